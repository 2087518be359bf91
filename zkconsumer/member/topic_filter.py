"""Topic filters: a white list or a black list of topics, as one Java regular expression.  Pure.

The user's text is *normalised* first (``a, b`` becomes ``a|b``).  ZooKeeper contains the normalised text, and every
member of the group applies it, with its own ``exclude.internal.topics``, to its own list of topics.  A pattern that
cannot be evaluated exactly as in Java raises an error: see ``java_regex``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar

import re2

from zkconsumer.errors import InvalidTopicFilter, UsageError
from zkconsumer.member import java_regex
from zkconsumer.member.java_character_parser import InvalidJavaRegexError, UnsupportedJavaRegexError
from zkconsumer.member.lookaround_matcher import STEPS_MAX, full_match, steps_max
from zkconsumer.member.regex_tree import has_lookaround, to_re2
from zkconsumer.types import INTERNAL_TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable

    from zkconsumer.member.regex_tree import RegexTree

PATTERN_CHARS_MAX = 1024
"""Longer patterns are not evaluated, also not those of other members."""

_COMPILED_PATTERNS_MAX = 64
"""How many compiled patterns are cached; RE2 may need some megabytes for one of them."""

_CHECKED_PATTERNS_MAX = 4_096
"""How many check results of patterns are cached (accepted, or the reason of the error); patterns have at most
``PATTERN_CHARS_MAX`` characters.  A member checks the filter of every other member at every change of the group."""

_MATCH_RESULTS_MAX = 100_000
"""How many match results are cached: every member's filter is applied to every topic at every change of the group."""

_TRIMMED = "".join(map(chr, range(0x21)))
_TRAILING_QUOTES = re.compile("[\"']+(?=[\u0085\u2028\u2029]?\\Z)")
"""Quotes at the end, also before a final line end, because that is what Java's ``$`` means."""


class PatternNotEvaluable(UsageError):
    """A topic filter may be valid in Java, but this project cannot evaluate it exactly; write a simpler pattern.

    ``pattern`` is the normalised text, ``position`` the place (characters from 0), ``what`` the construct.  Not an
    ``InvalidTopicFilter``: a member whose filter is invalid in Java has no assignment and is ignored; a member whose
    filter only this project cannot evaluate must never be ignored.
    """

    def __init__(self, pattern: str, position: int, what: str) -> None:
        super().__init__(
            f"the topic filter {_shortened(pattern)} cannot be evaluated exactly: {what} at character {position + 1}. "
            "Write a simpler pattern: migration_docs/reference/topic-filters.md lists the supported constructs"
        )
        self.pattern = pattern
        self.position = position
        self.what = what


class TopicFilter:
    """Base class of ``Whitelist`` and ``Blacklist``; ``regex`` and ``str()`` are the normalised pattern.

    Raises ``InvalidTopicFilter`` if Java cannot compile the pattern, ``PatternNotEvaluable`` if this project cannot
    evaluate it exactly.
    """

    __slots__ = ("regex",)

    pattern: ClassVar[str]
    """The kind, as a registration contains it: ``white_list`` or ``black_list``."""

    def __init__(self, raw: str) -> None:
        self.regex = normalise(raw)
        _check(self.regex)

    def is_topic_allowed(self, topic: str, exclude_internal_topics: bool) -> bool:
        """Whether this filter allows ``topic`` (all releases; the whole name is matched)."""
        raise NotImplementedError

    def _matches(self, topic: str) -> bool:
        return _is_match(self.regex, topic)

    def _is_excluded_internal_topic(self, topic: str, exclude_internal_topics: bool) -> bool:
        return exclude_internal_topics and topic in INTERNAL_TOPICS

    def __str__(self) -> str:
        return self.regex

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.regex!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicFilter) and (self.pattern, self.regex) == (other.pattern, other.regex)

    def __hash__(self) -> int:
        return hash((self.pattern, self.regex))


class Whitelist(TopicFilter):
    """All topics whose whole name matches, but no internal ones while those are excluded.

    ``Whitelist("clicks, views-.*")``: commas separate patterns; blanks and surrounding quotes are removed.
    """

    __slots__ = ()
    pattern = "white_list"

    def is_topic_allowed(self, topic: str, exclude_internal_topics: bool) -> bool:
        return not self._is_excluded_internal_topic(topic, exclude_internal_topics) and self._matches(topic)


class Blacklist(TopicFilter):
    """All topics whose whole name does not match, but no internal ones while those are excluded."""

    __slots__ = ()
    pattern = "black_list"

    def is_topic_allowed(self, topic: str, exclude_internal_topics: bool) -> bool:
        return not self._is_excluded_internal_topic(topic, exclude_internal_topics) and not self._matches(topic)


def normalise(raw: str) -> str:
    """The pattern that ZooKeeper contains for the user's text; the same in every release from 0.8 to 1.1.

    In this order: trim control characters and blanks; replace ``,`` by ``|``; remove all blanks; remove quotes at the
    beginning and at the end.
    """
    text = raw.strip(_TRIMMED).replace(",", "|").replace(" ", "")
    return _TRAILING_QUOTES.sub("", text.lstrip("\"'"))


@lru_cache(maxsize=_MATCH_RESULTS_MAX)
def _is_match(pattern: str, topic: str) -> bool:
    return _compiled(pattern)(topic)


def _check(pattern: str) -> None:
    """Raises the errors of ``TopicFilter``; a new exception each time, so that no traceback is kept."""
    # Before the cache, whose keys are the patterns: a registration may contain a megabyte.
    if len(pattern) > PATTERN_CHARS_MAX:
        raise PatternNotEvaluable(pattern, PATTERN_CHARS_MAX, f"it is longer than {PATTERN_CHARS_MAX} characters")
    refusal = _pattern_error(pattern)
    if refusal is None:
        return
    if refusal.is_invalid:
        hint = " (all topics are '.*')" if pattern == "*" else ""
        raise InvalidTopicFilter(
            f"{_shortened(pattern)} is an invalid regex{hint}. There is {refusal.what} at character "
            f"{refusal.position + 1}"
        )
    raise PatternNotEvaluable(pattern, refusal.position, refusal.what)


@dataclass(frozen=True, slots=True)
class _PatternError:
    """Why a pattern is not evaluated.  ``is_invalid``: Java cannot compile it.  ``position``: characters from 0."""

    is_invalid: bool
    position: int
    what: str


@lru_cache(maxsize=_CHECKED_PATTERNS_MAX)
def _pattern_error(pattern: str) -> _PatternError | None:
    """Why this pattern of at most ``PATTERN_CHARS_MAX`` characters cannot be evaluated; None: it can."""
    try:
        _compiled(pattern)
    except InvalidJavaRegexError as e:
        return _PatternError(True, e.position, e.what)
    except UnsupportedJavaRegexError as e:
        return _PatternError(False, e.position, e.what)
    except re2.error as e:
        return _PatternError(False, 0, f"it is too large for the matcher ({e})")
    return None


@lru_cache(maxsize=_COMPILED_PATTERNS_MAX)
def _compiled(pattern: str) -> Callable[[str], bool]:
    """A test for a whole name.  Raises ``InvalidJavaRegexError``, ``UnsupportedJavaRegexError`` and ``re2.error``."""
    options = re2.Options()
    options.log_errors = False
    tree = java_regex.parse_java_regex(pattern)
    if has_lookaround(tree):
        return _by_position_sets(tree)
    program: Any = re2.compile(to_re2(tree), options)
    full_match = program.fullmatch

    def matches(topic: str) -> bool:
        return full_match(topic) is not None

    return matches


def _by_position_sets(tree: RegexTree) -> Callable[[str], bool]:
    """A matcher for constructs that RE2 does not have.  Raises ``UnsupportedJavaRegexError``."""
    if steps_max(tree) > STEPS_MAX:
        raise UnsupportedJavaRegexError(0, "it has lookaround and could take too many steps to match")
    return partial(full_match, tree)


def _shortened(pattern: str) -> str:
    return pattern if len(pattern) <= 200 else f"{pattern[:200]}…"
