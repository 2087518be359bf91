"""The syntax tree of a regular expression, and its text for RE2.  Pure.

``java_regex`` parses Java's patterns into trees.  Only *whether* the whole name matches is needed.  So a tree does not
distinguish greedy from lazy repetition, it has no groups, and a possessive repetition is a repetition and a look-ahead.

RE2 matches a tree without ``Lookaround``, in time linear in the length of the name.  ``lookaround_matcher`` matches a
tree with ``Lookaround``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

CodePointRanges: TypeAlias = "tuple[tuple[int, int], ...]"
"""A set of code points: the first and the last one of each range; ascending, not adjacent, not overlapping."""

CODE_POINT_MAX = 0x10FFFF

NODES_MAX = 4_000
"""The maximum number of nodes of a tree.  A subtree with two references counts twice, because every function that
traverses the tree visits it twice.  Larger trees with look-around exceed ``lookaround_matcher.STEPS_MAX``, too."""

_RE2_EMPTY_SET = "[^\\x{0}-\\x{10ffff}]"


class AnchorKind(Enum):
    """A condition on the position; it matches no character."""

    START = "\\A"
    END = "\\z"
    WORD_BOUNDARY = "\\b"
    NOT_WORD_BOUNDARY = "\\B"


@dataclass(frozen=True, slots=True)
class CharacterSet:
    """Matches one character of a set."""

    ranges: CodePointRanges


@dataclass(frozen=True, slots=True)
class Concatenation:
    """Matches its items in sequence; without items it matches the empty text."""

    items: tuple[RegexTree, ...]


@dataclass(frozen=True, slots=True)
class Alternation:
    """Matches one of its branches."""

    branches: tuple[RegexTree, ...]


@dataclass(frozen=True, slots=True)
class Repetition:
    """Matches its body ``min_count`` to ``max_count`` times; None: without a limit."""

    body: RegexTree
    min_count: int
    max_count: int | None


@dataclass(frozen=True, slots=True)
class Anchor:
    """Matches the empty text at positions of this kind."""

    kind: AnchorKind


@dataclass(frozen=True, slots=True, eq=False)
class Lookaround:
    """Matches the empty text at positions where a match of the body begins.

    ``is_lookbehind``: where a match of it ends.  ``is_negative``: at all other positions.
    """

    body: RegexTree
    is_lookbehind: bool
    is_negative: bool


RegexTree: TypeAlias = CharacterSet | Concatenation | Alternation | Repetition | Anchor | Lookaround


# --- properties of a tree ---------------------------------------------------------------------------------------


def has_lookaround(tree: RegexTree) -> bool:
    """Whether the tree contains a lookaround."""
    match tree:
        case Lookaround():
            return True
        case Concatenation(items):
            return any(map(has_lookaround, items))
        case Alternation(branches):
            return any(map(has_lookaround, branches))
        case Repetition(body):
            return has_lookaround(body)
        case CharacterSet() | Anchor():
            return False


def fixed_length(tree: RegexTree) -> int | None:
    """The number of characters that every match of the tree has; None if it differs, or is not computed."""
    match tree:
        case CharacterSet():
            return 1
        case Anchor() | Lookaround():
            return 0
        case Concatenation(items):
            lengths = [fixed_length(item) for item in items]
            return None if None in lengths else sum(length for length in lengths if length is not None)
        case Alternation(branches):
            different = {fixed_length(branch) for branch in branches}
            return different.pop() if len(different) == 1 else None
        case Repetition(body, least, most):
            length = fixed_length(body)
            return length * least if length is not None and most == least else None


def may_be_empty_at_anchor(tree: RegexTree) -> bool:
    """Whether the tree can match the empty text, but perhaps only at some positions of a name."""
    return _may_be_empty(tree) and _has_anchor(tree)


def _may_be_empty(tree: RegexTree) -> bool:
    match tree:
        case CharacterSet():
            return False
        case Anchor() | Lookaround():
            return True
        case Concatenation(items):
            return all(map(_may_be_empty, items))
        case Alternation(branches):
            return any(map(_may_be_empty, branches))
        case Repetition(body, least):
            return not least or _may_be_empty(body)


def _has_anchor(tree: RegexTree) -> bool:
    match tree:
        case CharacterSet():
            return False
        case Anchor() | Lookaround():
            return True
        case Concatenation(items):
            return any(map(_has_anchor, items))
        case Alternation(branches):
            return any(map(_has_anchor, branches))
        case Repetition(body):
            return _has_anchor(body)


# --- sets of characters -----------------------------------------------------------------------------------------


def merge_ranges(ranges: list[tuple[int, int]]) -> CodePointRanges:
    """The same set of characters as ascending ranges that are not adjacent and do not overlap."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return tuple(found)


def complement(ranges: CodePointRanges) -> CodePointRanges:
    """All other characters."""
    gaps: list[tuple[int, int]] = []
    first_free = 0
    for low, high in ranges:
        if first_free < low:
            gaps.append((first_free, low - 1))
        first_free = high + 1
    if first_free <= CODE_POINT_MAX:
        gaps.append((first_free, CODE_POINT_MAX))
    return tuple(gaps)


def intersection(one: CodePointRanges, other: CodePointRanges) -> CodePointRanges:
    """The characters that are in both."""
    return complement(merge_ranges([*complement(one), *complement(other)]))


# --- the text for RE2 -------------------------------------------------------------------------------------------


def to_re2(tree: RegexTree) -> str:
    """The pattern for RE2 that matches the same whole names; the tree must not contain ``Lookaround``."""
    match tree:
        case CharacterSet(ranges):
            return _re2_character_set(ranges)
        case Concatenation(items):
            return "".join(_grouped(item) if isinstance(item, Alternation) else to_re2(item) for item in items)
        case Alternation(branches):
            return "|".join(map(to_re2, branches))
        case Anchor(at):
            return at.value
        case Repetition(body, least, most):
            written = to_re2(body) if isinstance(body, CharacterSet) else _grouped(body)
            return written + _RE2_QUANTIFIERS.get((least, most), f"{{{least}}}")
        case Lookaround():
            raise AssertionError("RE2 has no look-around")


_RE2_QUANTIFIERS: dict[tuple[int, int | None], str] = {(0, None): "*", (1, None): "+", (0, 1): "?"}


def _grouped(tree: RegexTree) -> str:
    return f"(?:{to_re2(tree)})"


def _re2_character_set(ranges: CodePointRanges) -> str:
    if not ranges:
        return _RE2_EMPTY_SET  # RE2 parses "[]" as the beginning of a class that contains "]".
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return _re2_character(ranges[0][0])
    if len(ranges) == 2 and ranges[0][0] == ranges[0][1] and ranges[1] == (ranges[0][0] + 32,) * 2:
        # RE2 rewrites [Kk] to "k, ignoring case"; next to other such letters this also matches the Kelvin sign.
        return f"(?:{_re2_character(ranges[0][0])}|{_re2_character(ranges[1][0])})"
    inside = "".join(
        _re2_character(low) if low == high else f"{_re2_character(low)}-{_re2_character(high)}" for low, high in ranges
    )
    return f"[{inside}]"


def _re2_character(code: int) -> str:
    return chr(code) if code < 0x80 and chr(code).isalnum() else f"\\x{{{code:x}}}"
