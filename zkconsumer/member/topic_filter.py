"""Topic filters: a white list or a black list of topics, as one Java regular expression.  Pure.

The text that a user gives is *normalised* first (``a, b`` becomes ``a|b``); the normalised text is what stands in
ZooKeeper, and every member of the group evaluates it, with its own ``exclude.internal.topics``, on its own list of
topics.  What cannot be evaluated exactly as Java does is refused here, and never guessed: see ``java_regex``.
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

if TYPE_CHECKING:
    from collections.abc import Callable

    from zkconsumer.member.regex_tree import RegexTree

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
"""Topics of Kafka itself.  Members up to 0.10.2 know the first only; brokers have the second from 0.11 on."""

PATTERN_CHARS_MAX = 1024
"""Longer patterns are not evaluated, whoever wrote them."""

_COMPILED_PATTERNS_MAX = 64
"""Patterns that are kept compiled; RE2 may take some megabytes for one of them."""

_CHECKED_PATTERNS_MAX = 4_096
"""Patterns of at most ``PATTERN_CHARS_MAX`` characters for which the verdict is kept: accepted, or the reason of the
refusal.  A member asks for the filter of every other member at every change of the group."""

_MATCH_RESULTS_MAX = 100_000
"""Answers that are kept: every member's filter is asked of every topic, at every change of the group."""

_TRIMMED = "".join(map(chr, range(0x21)))
_TRAILING_QUOTES = re.compile("[\"']+(?=[\u0085\u2028\u2029]?\\Z)")
"""Quotes at the end, also before a final line end, because that is what Java's ``$`` means."""


class PatternNotEvaluable(UsageError):
    """A topic filter may be valid for Java, but its exact meaning is not known here; write it with simpler means.

    ``pattern`` is the normalised text, ``position`` the place (characters from 0), ``what`` the construct.  Not an
    ``InvalidTopicFilter``: a member whose filter no Java accepts can be left out of the group's reckoning, one whose
    filter only we cannot read never may.
    """

    def __init__(self, pattern: str, position: int, what: str) -> None:
        super().__init__(
            f"the topic filter {_shortened(pattern)} cannot be evaluated exactly: {what} at character {position + 1}. "
            "Write it with simpler means: migration_docs/reference/topic-filters.md has a table of what is known"
        )
        self.pattern = pattern
        self.position = position
        self.what = what


class TopicFilter:
    """What ``Whitelist`` and ``Blacklist`` have in common; ``regex`` is the normalised pattern, and so is ``str()``.

    Raises ``InvalidTopicFilter`` for what no Java compiles, ``PatternNotEvaluable`` for what is not known here.
    """

    __slots__ = ("regex",)

    pattern: ClassVar[str]
    """The kind, as it stands in a registration: ``white_list`` or ``black_list``."""

    def __init__(self, raw: str) -> None:
        self.regex = normalise(raw)
        _check(self.regex)

    def is_topic_allowed(self, topic: str, exclude_internal_topics: bool) -> bool:
        """Whether this filter takes ``topic`` (all releases; the whole name must match)."""
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

    ``Whitelist("clicks, views-.*")``: commas stand between patterns, blanks and quotes around are dropped.
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
    """The pattern that stands in ZooKeeper for what the user wrote; the same in every release from 0.8 to 1.1.

    In this order: trimmed of control characters and blanks; ``,`` becomes ``|``; blanks go, wherever they are;
    quotes go from the beginning and from the end.
    """
    text = raw.strip(_TRIMMED).replace(",", "|").replace(" ", "")
    return _TRAILING_QUOTES.sub("", text.lstrip("\"'"))


@lru_cache(maxsize=_MATCH_RESULTS_MAX)
def _is_match(pattern: str, topic: str) -> bool:
    return _compiled(pattern)(topic)


def _check(pattern: str) -> None:
    """Raises what ``TopicFilter`` raises; a new exception each time, so that no traceback is kept."""
    # Before the cache, whose keys are the patterns: a registration may hold a megabyte.
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
    """Why a pattern is not evaluated.  ``is_invalid``: no Java compiles it.  ``position``: characters from 0."""

    is_invalid: bool
    position: int
    what: str


@lru_cache(maxsize=_CHECKED_PATTERNS_MAX)
def _pattern_error(pattern: str) -> _PatternError | None:
    """Why this pattern of at most ``PATTERN_CHARS_MAX`` characters is refused; None: it can be evaluated."""
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
    """For what RE2 does not know.  Raises ``UnsupportedJavaRegexError``."""
    if steps_max(tree) > STEPS_MAX:
        raise UnsupportedJavaRegexError(0, "it looks around, and could take too many steps to match")
    return partial(full_match, tree)


def _shortened(pattern: str) -> str:
    return pattern if len(pattern) <= 200 else f"{pattern[:200]}…"
