"""Topic filters: what is written, what is matched, and what is refused rather than guessed."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress

import pytest

from tests.call_counter import calls_of
from zkconsumer.errors import InvalidTopicFilter, UsageError
from zkconsumer.member import java_regex, topic_filter
from zkconsumer.member.java_character_parser import GROUP_DEPTH_MAX
from zkconsumer.member.topic_filter import (
    PATTERN_CHARS_MAX,
    Blacklist,
    PatternNotEvaluable,
    Whitelist,
    normalise,
)
from zkconsumer.types import INTERNAL_TOPICS

OFFSETS = "__consumer_offsets"


def matches(regex: str, name: str) -> bool:
    return Whitelist(regex).is_topic_allowed(name, exclude_internal_topics=False)


# --- what the original's TopicFilterTest asserts ------------------------------------------------------------------


def test_white_lists() -> None:
    """TopicFilterTest.testWhitelists."""
    two = Whitelist("white1,white2")
    assert two.is_topic_allowed("white2", True)
    assert two.is_topic_allowed("white2", False)
    assert not two.is_topic_allowed("black1", True)
    every = Whitelist(".+")
    assert every.is_topic_allowed("alltopics", True)
    assert not every.is_topic_allowed(OFFSETS, True)
    assert every.is_topic_allowed(OFFSETS, False)
    listed = Whitelist("white_listed-topic.+")
    assert listed.is_topic_allowed("white_listed-topic1", True)
    assert not listed.is_topic_allowed("black1", True)
    good = Whitelist(r"test-(?!bad\b)[\w]+")
    assert good.is_topic_allowed("test-good", True)
    assert not good.is_topic_allowed("test-bad", True)


def test_black_lists() -> None:
    """TopicFilterTest.testBlacklists."""
    black = Blacklist("black1")
    assert black.is_topic_allowed("white2", True)
    assert not black.is_topic_allowed("black1", True)
    assert not black.is_topic_allowed("black1", False)
    assert not black.is_topic_allowed(OFFSETS, True)
    assert black.is_topic_allowed(OFFSETS, False)


# --- normalisation ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "normalised"),
    [
        (" a, b ,c ", "a|b|c"),
        ('"foo,bar"', "foo|bar"),
        ("'\"foo'\"'", "foo"),
        ("t{1,3}", "t{1|3}"),
        ("*", "*"),
        ("(?i)ABC", "(?i)ABC"),
        ("\t\x00 a\tb \x1f\n", "a\tb"),
        ("a b c", "abc"),
        ("a'b", "a'b"),
        ('a"\u2028', "a\u2028"),
        ('a"\u2028"', 'a"\u2028'),
        ("\u00a0a\u00a0", "\u00a0a\u00a0"),
        ("", ""),
        ("'", ""),
    ],
)
def test_a_raw_filter_is_normalised_as_the_original_does_it(raw: str, normalised: str) -> None:
    assert normalise(raw) == normalised


def test_the_normalised_text_is_what_is_shown_and_written() -> None:
    made = Whitelist(" a, b ")
    assert (made.regex, str(made), repr(made)) == ("a|b", "a|b", "Whitelist('a|b')")
    assert made == Whitelist("a|b")
    assert hash(made) == hash(Whitelist("a|b"))
    assert made != Blacklist("a|b")
    assert Whitelist(made.regex) == made


def test_internal_topics_are_both_of_them_and_no_others() -> None:
    assert {"__consumer_offsets", "__transaction_state"} == INTERNAL_TOPICS
    for topic in INTERNAL_TOPICS:
        assert not Whitelist("__.*").is_topic_allowed(topic, True)
        assert not Blacklist("x").is_topic_allowed(topic, True)
        assert Whitelist("__.*").is_topic_allowed(topic, False)
    assert Whitelist("__.*").is_topic_allowed("__other", True)


# --- meaning ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("regex", "yes", "no"),
    [
        ("abc", ["abc"], ["ab", "abcd", "xabc", "ABC"]),
        ("a.c", ["abc", "a.c", "a\u00e9c", "a\U0001f600c"], ["ac", "a\nc", "a\rc", "a\u0085c", "a\u2028c"]),
        (r"a\.c", ["a.c"], ["abc"]),
        ("a|bc|", ["a", "bc", ""], ["b", "abc"]),
        ("(a|b)(?:c|d)", ["ac", "bd"], ["ab", "a"]),
        ("(a(b(c)?)*)+", ["a", "abbcab"], ["", "c"]),
        ("a*b+c?", ["b", "aabbc"], ["a", "bcc"]),
        ("a*?b+?c??", ["b", "aabbc"], ["a", "bcc"]),
        (r"t-\d{4}", ["t-2016"], ["t-201", "t-20161"]),
        ("a{0}b", ["b"], ["ab"]),
        ("[a-c0-9_.]+", ["a", "b9_."], ["d", "-"]),
        ("[^a-c]", ["d", "\n"], ["a", "", "dd"]),
        ("[a-]", ["a", "-"], ["b"]),
        ("[-a]", ["a", "-"], ["b"]),
        ("[a^]", ["a", "^"], ["b"]),
        (r"[\w-]+", ["a-b_9"], ["a.b"]),
        (r"[\w-.]+", ["a-b.c"], ["a/b"]),
        (r"[\d\.-]+", ["1.2-3"], ["a"]),
        (r"[^\w\W]", [], ["a", "[", "]", "\n"]),
        (r"[^\d.]+", ["ab"], ["a1", "a.b"]),
        (r"\w+", ["aZ_9"], ["a-b", "\u00e9", "\u0663"]),
        (r"\d", ["5"], ["\u0663", "a"]),
        (r"\s", [" ", "\t", "\v", "\f", "\n", "\r"], ["\u00a0", "\u0085"]),
        (r"\D\W\S", ["a-b"], ["1-b", "aab", "a- "]),
        (r"\t\n\r\f\a\e", ["\t\n\r\f\a\x1b"], ["t"]),
        (r"\-\_\/\*\\", ["-_/*\\"], ["-_/*"]),
        ("^abc$", ["abc"], ["^abc$", "abc\n"]),
        ("^a$|^b$", ["a", "b"], ["ab"]),
        ("(?i)aBc[x-z]", ["AbCx", "abcZ"], ["abcw"]),
        ("(?i)k|s", ["K", "S"], ["\u212a", "\u017f"]),
        ("[Kk]|[Ss]", ["K", "S", "k", "s"], ["\u212a", "\u017f"]),
        ("(?i)[^a]", ["b", "B"], ["a", "A"]),
        ("(?i)\u00e9", ["\u00e9"], ["\u00c9"]),
        ("\u00e9\U0001f600", ["\u00e9\U0001f600"], ["e"]),
        ("a&b-c~!@#%=:;<>]}", ["a&b-c~!@#%=:;<>]}"], []),
        ("[a&b]", ["&"], ["c"]),
        ("(a*)*b", ["b", "aaab"], ["a" * 200]),
        ("(a|a)*c", ["c"], ["a" * 200]),
    ],
)
def test_a_pattern_means_what_it_means_to_java(regex: str, yes: list[str], no: list[str]) -> None:
    assert [name for name in yes if not matches(regex, name)] == []
    assert [name for name in no if matches(regex, name)] == []


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("regex", "place", "what"),
    [
        ("*", 1, "'*' without an expression before it"),
        ("a|*", 3, "'*' without an expression before it"),
        ("(+a)", 2, "'+' without an expression before it"),
        ("a**", 3, "'*' without an expression before it"),
        ("a???", 4, "'?' without an expression before it"),
        ("a(b", 2, "a group that is never closed"),
        ("a)b", 2, "a closing parenthesis"),
        ("a[bc", 2, "a class that is never closed"),
        ("[z-a]", 2, "the range 'z-a' in descending order"),
        ("t{1,3}", 2, "topic filters do not support {n,m}"),
        ("t{x}", 2, "that is not a counted repetition"),
        ("a\\", 2, "a backslash at the end"),
    ],
)
def test_what_no_java_compiles_is_invalid_and_names_the_place(regex: str, place: int, what: str) -> None:
    with pytest.raises(InvalidTopicFilter) as refused:
        Whitelist(regex)
    assert str(refused.value).startswith(f"{normalise(regex)} is an invalid regex")
    assert ("all topics are '.*'" in str(refused.value)) is (regex == "*")
    assert what in str(refused.value)
    assert str(refused.value).endswith(f"at character {place}")


@pytest.mark.parametrize(
    ("regex", "place"),
    [
        ("(?>a|bc)", 1),
        ("(?x)a", 1),
        ("(?#a)", 1),
        ("(?<1>a)", 1),
        ("(?<=a*)b", 1),
        ("(a|bb)*+", 7),
        ("(a*)*+", 5),
        (r"\b*", 3),
        ("(?=a)*", 6),
        ("(^|a){2}", 6),
        (r"\b{g}", 1),
        (r"(a)\1", 4),
        (r"\k<n>", 1),
        (r"\p{IsGreek}", 1),
        (r"\p{L", 1),
        (r"(?i)\p{Lu}", 5),
        (r"[\b]", 2),
        (r"\u00", 1),
        (r"\ud83d\ude00", 1),
        (r"\x4", 1),
        (r"\x{110000}", 1),
        (r"\08", 1),
        (r"\c", 1),
        (r"\X", 1),
        ("(?iu)k\u212a", 7),
        ("[a-z&&]", 5),
        ("[a-z&&[x]y]", 10),
        ("[a&&b&&c]", 6),
        ("[&&a]", 2),
        ("[^a&&b]", 4),
        ("[^a[bc]]", 4),
        ("[a-[bc]]", 4),
        ("[]a]", 2),
        ("[^]a]", 3),
        ("[a--]", 4),
        (r"[a-\w]", 4),
        ("^*a", 2),
        ("(((?!b)a)*)*c", 1),
        ("{2}", 1),
        ("a{2}{3}", 5),
        ("a{1001}", 2),
        ("a{2000000000000}", 2),
        ("\ud800", 1),
        ("(" * (GROUP_DEPTH_MAX + 1) + ")" * (GROUP_DEPTH_MAX + 1), GROUP_DEPTH_MAX + 1),
        ("a" * (PATTERN_CHARS_MAX + 1), PATTERN_CHARS_MAX + 1),
        ("(((a{999}){999}){999}){999}", 1),
    ],
)
def test_what_java_may_accept_but_is_not_known_here_names_the_place(regex: str, place: int) -> None:
    with pytest.raises(PatternNotEvaluable) as refused:
        Whitelist(regex)
    assert refused.value.position + 1 == place
    assert refused.value.pattern == regex
    assert f"at character {place}" in str(refused.value)
    assert refused.value.what in str(refused.value)
    assert len(str(refused.value)) < 600


def test_a_pattern_that_only_we_cannot_read_is_never_taken_for_an_invalid_one() -> None:
    assert not issubclass(PatternNotEvaluable, InvalidTopicFilter)
    assert issubclass(PatternNotEvaluable, UsageError)


def test_patterns_up_to_the_limit_are_evaluated() -> None:
    assert matches("a" * PATTERN_CHARS_MAX, "a" * PATTERN_CHARS_MAX)
    assert matches("(" * GROUP_DEPTH_MAX + "a" + ")" * GROUP_DEPTH_MAX, "a")


# --- bombs --------------------------------------------------------------------------------------------------------

BOMBS = {
    "(a+)+$": "a" * 248 + "!",
    "(a|aa)+$": "a" * 248 + "!",
    "(.*)*x": "a" * 249,
    "(a*)*b": "a" * 249,
    "(x+x+)+y": "x" * 20_000,
    "(.*a){20}": "b" * 20_000,
    "(.*a){200}": "a" * 198 + "b" * 51,
    "(([a-z])+.)+[A-Z]([a-z])+$": "a" * 249,
    "((((a{9}){9}){9}){9})x": "a" * 249,
    "(((a{30}){30}){30}){30}": "a" * 249,
    "a?" * 250 + "a" * 250: "a" * 249,
    "(a{1000})" * 100: "a" * 249,
    "(.|.|.)*" * 120: "a" * 248 + "\n",
    "(" * 32 + "a" + ")*" * 32: "a" * 248 + "b",
    "(?=(a+)+$)(a|aa)+b": "a" * 249,
    "((?!b)a+)+$": "a" * 248 + "b",
    "(((?!b)a)*)*c": "a" * 249,
    "(?!x)((((((a)*)*)*)*)*)*b": "a" * 249,
    "(?=.*a)" * 140 + "b": "a" * 249,
    "(?:(?!b).)*(?<!" + "a|" * 400 + "a)c": "a" * 249,
    "(a|b|ab)*+c": "ab" * 120,
    "(?!x)(a{9}){9}(a{9}){9}": "a" * 161,
}
"""Patterns that keep a backtracking matcher busy for ever, each with a name that it does not match."""

BOMBS_TIMEOUT_S = 60
"""For all of them, in a process of its own; they take a fraction of a second, and Java would take years."""

DEFUSE = """
import json, sys
from zkconsumer.member.topic_filter import PatternNotEvaluable, Whitelist
answers = []
for pattern, name in json.load(sys.stdin).items():
    try:
        answers.append(Whitelist(pattern).is_topic_allowed(name, exclude_internal_topics=False))
    except PatternNotEvaluable:
        answers.append("refused")
print(json.dumps(answers))
"""


def test_a_pattern_that_explodes_elsewhere_is_answered_or_refused_at_once() -> None:
    # In a process of its own, because nothing else can stop a matcher that does not come back.
    done = subprocess.run(
        [sys.executable, "-c", DEFUSE], input=json.dumps(BOMBS), capture_output=True, text=True, check=True,
        timeout=BOMBS_TIMEOUT_S,
    )  # fmt: skip
    answers = dict(zip(BOMBS, json.loads(done.stdout), strict=True))
    assert [pattern for pattern, answer in answers.items() if answer is True] == []
    assert list(answers.values()).count("refused") < len(BOMBS) / 2, answers


# --- work --------------------------------------------------------------------------------------------------------

CALLS_MAX = 200_000
"""Function calls for one pattern: groups are at most 32 deep, and a tree has at most 4,000 nodes."""


def possessive(depth: int, innermost: str = "a") -> str:
    """A pattern whose tree refers to ``innermost`` 2**depth times."""
    pattern = innermost
    for _ in range(depth):
        pattern = f"(?:x(?={pattern}))?+"
    return pattern


def refuse(pattern: str) -> PatternNotEvaluable:
    with pytest.raises(PatternNotEvaluable) as refused:
        Whitelist(pattern)
    return refused.value


@pytest.mark.parametrize(
    ("depth", "innermost"),
    [
        *((depth, "a") for depth in range(12, 16)),
        (10, "a" * 800),
        (13, "a" * 800),
        (15, "a" * 840),
        (15, "[a-z]?" * 100),
    ],
)
def test_possessive_repetitions_inside_one_another_are_refused_after_bounded_work(depth: int, innermost: str) -> None:
    pattern = possessive(depth, innermost)
    calls_of(lambda: refuse(pattern), CALLS_MAX)
    assert "possessive repetitions with more than 4000 nodes" in refuse(pattern).what


@pytest.mark.parametrize("depth", range(16, 40))
def test_what_is_nested_too_deep_is_refused_after_bounded_work(depth: int) -> None:
    calls_of(lambda: refuse(possessive(depth, "a" * (1024 - 11 * depth))), CALLS_MAX)


def test_a_few_possessive_repetitions_inside_one_another_are_evaluated() -> None:
    assert matches(possessive(5), "")
    assert not matches(possessive(5), "a")


@pytest.mark.parametrize(
    "pattern", sorted({*BOMBS, "(?>" * 31 + "a" * 900 + ")" * 31, "((" * 15 + "a" * 900 + "){2})" * 15})
)
def test_every_pattern_is_read_with_bounded_work(pattern: str) -> None:
    def decide() -> None:
        with suppress(PatternNotEvaluable):
            Whitelist(pattern)

    calls_of(decide, CALLS_MAX)


@pytest.mark.parametrize("pattern", [possessive(9), "(((a{999}){999}){999}){999}", "(a)\\1", "(?!x)(((a)*b)*c)*"])
def test_a_refusal_is_kept(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the group asks for the filter of every member."""
    first = str(refuse(pattern))
    monkeypatch.setattr(java_regex, "parse_java_regex", None)
    assert str(refuse(pattern)) == first


def test_that_no_java_compiles_a_pattern_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidTopicFilter, match="at character 2"):
        Whitelist("a)(kept")
    monkeypatch.setattr(java_regex, "parse_java_regex", None)
    with pytest.raises(InvalidTopicFilter, match="at character 2"):
        Whitelist("a)(kept")


def test_patterns_that_are_too_long_are_not_kept() -> None:
    kept = topic_filter._pattern_error.cache_info().currsize
    for letter in "abc":
        refuse(letter * 1_000_000)
    assert topic_filter._pattern_error.cache_info().currsize == kept
