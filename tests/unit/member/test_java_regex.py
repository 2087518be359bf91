"""Java's regular expressions: our reading against what Java 17 answered, and against the reference page."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.java_regex_cases import INVALID, PAGE, examples, recorded
from zkconsumer.errors import InvalidTopicFilter
from zkconsumer.member.java_character_parser import GROUP_DEPTH_MAX
from zkconsumer.member.java_regex import parse_java_regex
from zkconsumer.member.lookaround_matcher import NAME_CHARS_MAX, STEPS_MAX, full_match, steps_max
from zkconsumer.member.regex_tree import NODES_MAX
from zkconsumer.member.topic_filter import PATTERN_CHARS_MAX, PatternNotEvaluable, Whitelist, normalise

ANSWERS = {pattern: (said, of) for pattern, said, of in recorded()}
EXAMPLES = examples()


def test_every_recorded_answer_of_java_is_ours_or_is_refused() -> None:
    counts: Counter[str] = Counter()
    for pattern, said, of in recorded():
        try:
            made = Whitelist(pattern)
        except InvalidTopicFilter:
            assert said == INVALID, pattern
            counts["invalid"] += 1
        except PatternNotEvaluable:
            counts["refused"] += 1
        else:
            ours = "".join("01"[made.is_topic_allowed(name, exclude_internal_topics=False)] for name in of)
            assert ours == said, f"{pattern!r}: ours, Java's, and the names {of}"
            counts["exact"] += 1
            counts["matches"] += said.count("1")
    assert counts["exact"] > 150, counts
    assert counts["invalid"] > 20, counts
    assert counts["matches"] > 500, counts


@pytest.mark.parametrize(("example", "said"), EXAMPLES, ids=[example for example, _ in EXAMPLES])
def test_the_page_says_what_becomes_of_each_construct(example: str, said: str) -> None:
    pattern = normalise(example)
    java, of = ANSWERS[pattern]
    verdict, _, place = said.partition(" at ")
    if verdict == "exact":
        assert INVALID not in java
        made = Whitelist(example)
        assert "1" in java or not any(made.is_topic_allowed(name, exclude_internal_topics=False) for name in of)
        return
    error = InvalidTopicFilter if verdict == "invalid" else PatternNotEvaluable
    with pytest.raises(error, match=rf"at character {place}\b") as refused:
        Whitelist(example)
    assert type(refused.value) is error
    assert verdict != "invalid" or java == INVALID


def test_the_page_has_every_limit() -> None:
    said = set(map(int, re.findall(r"\d+", PAGE.read_text().split("## Time")[1])))
    assert {NODES_MAX, STEPS_MAX, NAME_CHARS_MAX, PATTERN_CHARS_MAX, GROUP_DEPTH_MAX} <= said


# --- the two engines ----------------------------------------------------------------------------------------------


def test_both_engines_read_a_tree_alike() -> None:
    """Everything that RE2 matches, the sets of places match as well."""
    seen = 0
    for pattern, said, of in recorded():
        if said[0] not in "01":
            continue
        try:
            Whitelist(pattern)
            tree = parse_java_regex(pattern)
        except PatternNotEvaluable:
            continue
        for name, answer in zip(of, said, strict=True):
            assert full_match(tree, name) is (answer == "1"), (pattern, name)
            seen += 1
    assert seen > 3000


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("a*+b", ["b", "aab"], ["aa"]),
        ("a*+ab", [], ["ab", "aab"]),
        ("(?:ab)++a", ["aba", "ababa"], ["ab", "a"]),
        ("(?:ab|cd)?+ab", ["ab" * 2, "cdab"], ["ab"]),
        ("(?=.*x)(?=.*y)[a-z]+", ["xy", "ayx"], ["x", "y-x"]),
        ("(?!test)(?!.*-tmp).*", ["a", "tes"], ["test1", "a-tmp", "a-tmp2"]),
        (".*(?<!-tmp)", ["a", "-tm"], ["a-tmp", "-tmp"]),
        (".*(?<=[0-9])", ["a1"], ["a", "1a"]),
        ("(?:(?!--).)*", ["a-b-c", ""], ["a--b"]),
        ("(a(?=b)|b(?=a|$))+", ["abab", "ab"], ["aab", "ba"]),
        ("(?!(?!a)).*", ["ab", "a"], ["b", ""]),
        (r"\bfoo\b.*|.*\Bx", ["foo-1", "ax"], ["foox1", "-x", "x"]),
        (r"(?i)ab(?-i)c|d", ["ABc", "d"], ["ABC", "D"]),
        (r"((?i)a|b)c", ["Ac", "Bc"], ["AC"]),
        (r"[\Q^]-\E]+", ["^", "-", "]"], ["a"]),
        (r"\Q*", ["*"], ["a"]),
        (r"\0\Q1\E", [], []),
    ],
)
def test_what_look_around_quotes_and_flags_mean(pattern: str, yes: list[str], no: list[str]) -> None:
    if not yes + no:
        with pytest.raises(PatternNotEvaluable):
            Whitelist(pattern)
        return
    made = Whitelist(pattern)
    assert [name for name in yes if not made.is_topic_allowed(name, exclude_internal_topics=False)] == []
    assert [name for name in no if made.is_topic_allowed(name, exclude_internal_topics=False)] == []


def test_the_steps_of_a_pattern_are_counted_for_the_longest_name() -> None:
    assert steps_max(parse_java_regex("abc")) == 4
    assert steps_max(parse_java_regex("a*")) == 2
    assert steps_max(parse_java_regex("(ab)*")) == 1 + (NAME_CHARS_MAX + 1) * 3
    assert steps_max(parse_java_regex("(ab){3}")) == 1 + 3 * 3
