"""Topic filters: what is written, what is matched, and what is refused rather than guessed."""

from __future__ import annotations

import pytest

from zkconsumer.core.java_regex import GROUP_DEPTH_MAX
from zkconsumer.core.topic_filter import (
    INTERNAL_TOPICS,
    PATTERN_CHARS_MAX,
    Blacklist,
    PatternNotEvaluable,
    Whitelist,
    normalise,
)
from zkconsumer.errors import InvalidTopicFilter, UsageError

OFFSETS = "__consumer_offsets"


def matches(regex: str, name: str) -> bool:
    return Whitelist(regex).is_topic_allowed(name, exclude_internal_topics=False)


# --- what the original's TopicFilterTest asserts ------------------------------------------------------------------


def test_white_lists() -> None:
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


def test_black_lists() -> None:
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
        ("*", 1, "'*' with nothing in front"),
        ("a|*", 3, "'*' with nothing in front"),
        ("(+a)", 2, "'+' with nothing in front"),
        ("a**", 3, "'*' with nothing in front"),
        ("a???", 4, "'?' with nothing in front"),
        ("a(b", 2, "a group that is never closed"),
        ("a)b", 2, "a closing parenthesis"),
        ("a[bc", 2, "a class that is never closed"),
        ("[z-a]", 2, "the range 'z-a', which runs backwards"),
        ("t{1,3}", 2, "in a topic filter {n,m} cannot be written"),
        ("t{x}", 2, "that is not a counted repetition"),
        ("a\\", 2, "a backslash at the end"),
    ],
)
def test_what_no_java_compiles_is_invalid_and_names_the_place(regex: str, place: int, what: str) -> None:
    with pytest.raises(InvalidTopicFilter) as refused:
        Whitelist(regex)
    assert str(refused.value).startswith(f"{normalise(regex)} is an invalid regex.")
    assert what in str(refused.value)
    assert str(refused.value).endswith(f"at character {place}")


@pytest.mark.parametrize(
    ("regex", "place"),
    [
        (r"test-(?!bad\b)[\w]+", 6),
        ("a(?=b)", 2),
        ("(?<n>a)", 1),
        ("(?>a)", 1),
        ("a(?i)b", 2),
        ("(?s)a", 1),
        ("(?-i)a", 1),
        ("a*+", 2),
        ("a{2}+", 2),
        (r"\bword", 1),
        (r"(a)\1", 4),
        (r"\p{Alnum}", 1),
        (r"\Qa.b\E", 1),
        (r"a\h", 2),
        (r"\u0041", 1),
        (r"\x41", 1),
        (r"\0101", 1),
        (r"a\z", 2),
        ("[a-z&&[^x]]", 5),
        ("[a[bc]]", 3),
        ("[]a]", 2),
        ("[^]a]", 3),
        ("[a--]", 4),
        (r"[a-\w]", 4),
        ("a^b", 2),
        ("a$b", 2),
        ("(a$)", 3),
        ("^*a", 2),
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


@pytest.mark.timeout(10)
def test_a_pattern_that_explodes_elsewhere_takes_no_time_here() -> None:
    assert not matches("(x+x+)+y", "x" * 20_000)
    assert not matches("(.*a){20}", "b" * 20_000)
