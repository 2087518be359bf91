"""Patterns of the part of Java's language that is the same everywhere, against Python's own engine."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.errors import InvalidTopicFilter
from zkconsumer.member.topic_filter import PatternNotEvaluable, Whitelist, normalise

LETTERS = "abAkKsS1_-"
NAME = st.text(LETTERS + "." + "\u212a\u017f\u00e9", max_size=8)
CHARACTER = st.sampled_from([*LETTERS, "\u212a", "\u00e9", r"\.", r"\-"])
IN_CLASS = st.sampled_from(["a", "k", "K", "s", "_", ".", r"\.", r"\d", r"\w", "a-k", "A-K", "0-9"])
CLASS = st.builds("[{}{}]".format, st.sampled_from(["", "^"]), st.lists(IN_CLASS, min_size=1, max_size=3).map("".join))
ATOM = CHARACTER | CLASS | st.sampled_from([".", r"\d", r"\w", r"\D", r"\W"])
REPEATED = st.sampled_from(["", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{0}"])
PATTERN = st.recursive(
    ATOM,
    lambda inner: (
        st.builds("({}){}".format, inner, REPEATED)
        | st.builds("(?:{}|{}){}".format, inner, inner, REPEATED)
        | st.builds("{}{}".format, inner, inner)
    ),
    max_leaves=8,
)


@given(prefix=st.sampled_from(["", "(?i)", "^"]), pattern=PATTERN, names=st.lists(NAME, min_size=1, max_size=8))
def test_patterns_mean_what_they_mean_elsewhere(prefix: str, pattern: str, names: list[str]) -> None:
    made = Whitelist(prefix + pattern)
    elsewhere = re.compile(prefix + pattern, re.ASCII)
    for name in names:
        assert made.is_topic_allowed(name, False) is (elsewhere.fullmatch(name) is not None), name


@given(raw=st.text(max_size=20) | st.text("ab,|()[]{}*+?^$\\.-&dwsQEi:12 \"'", max_size=20))
def test_any_text_is_a_filter_or_is_refused_by_name(raw: str) -> None:
    try:
        made = Whitelist(raw)
    except (InvalidTopicFilter, PatternNotEvaluable) as refused:
        words = str(refused)
    else:
        assert made.regex == normalise(raw)
        assert made.is_topic_allowed("a", False) in (True, False)
        return
    assert "at character" in words
