"""Matches trees with look-around against a whole name, in a bounded number of steps.  Pure.

A set of positions in the name is one integer: bit i is the position before character i.  ``match_forward`` maps the set
of positions where a match may begin to the set of positions where it may end; ``match_backward`` is the inverse.  A
look-around is computed once for the whole name: a look-ahead matches at ``match_backward`` of all positions, a
look-behind at ``match_forward`` of all positions.  The matcher never backtracks.  One step is a few operations on such
integers, and ``steps_max`` computes the number of steps in the worst case.

The repetition of a single character takes a constant number of steps (see ``_repeat_character_set``).  The repetition
of a group is repeated while it finds new positions, at most once for each position of the name.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from zkconsumer.member.regex_tree import (
    Alternation,
    Anchor,
    AnchorKind,
    CharacterSet,
    CodePointRanges,
    Concatenation,
    Lookaround,
    RegexTree,
    Repetition,
)

NAME_CHARS_MAX = 249
"""The maximum number of characters of a topic name, in Kafka."""

STEPS_MAX = 4_000
"""The maximum number of steps for one name of ``NAME_CHARS_MAX`` characters; a tree that may need more is refused.
A step takes about a microsecond, so a match takes a few milliseconds."""

WORD_CHARACTERS: CodePointRanges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
"""Those valid characters of topic names that are word characters for ``\\b``."""


def steps_max(tree: RegexTree) -> int:
    """The maximum number of steps of this tree, for a name of ``NAME_CHARS_MAX`` characters."""
    match tree:
        case CharacterSet() | Anchor():
            return 1
        case Concatenation(items):
            return 1 + sum(map(steps_max, items))
        case Alternation(branches):
            return 1 + sum(map(steps_max, branches))
        case Lookaround(body):
            return 1 + steps_max(body)
        case Repetition(CharacterSet(), 0 | 1, None):
            return 2
        case Repetition(body, least, most):
            times = least + (NAME_CHARS_MAX + 1 if most is None else most - least)
            return 1 + times * steps_max(body)


def full_match(tree: RegexTree, name: str) -> bool:
    """Whether the tree matches the whole name."""
    return bool(_PositionSetMatcher(name).match_forward(tree, 1) >> len(name) & 1)


@dataclass(slots=True)
class _PositionSetMatcher:
    """Matches trees against one name; the dictionaries cache the positions of character sets and look-arounds."""

    name: str
    _chars: dict[CodePointRanges, int] = field(default_factory=dict)
    _lookaround_cache: dict[Lookaround, int] = field(default_factory=dict)

    @property
    def all_positions(self) -> int:
        return (1 << (len(self.name) + 1)) - 1

    def match_forward(self, tree: RegexTree, begins: int) -> int:
        """The positions where a match may end that begins at one of ``begins``."""
        if not begins:
            return 0
        match tree:
            case CharacterSet(ranges):
                return (begins & self._positions_of_characters(ranges)) << 1
            case Concatenation(items):
                for item in items:
                    begins = self.match_forward(item, begins)
                return begins
            case Alternation(branches):
                ends = 0
                for branch in branches:
                    ends |= self.match_forward(branch, begins)
                return ends
            case Anchor() | Lookaround():
                return begins & self._anchor_positions(tree)
            case Repetition(CharacterSet(ranges) as body, least, None):
                for _ in range(least):
                    begins = self.match_forward(body, begins)
                return self._repeat_character_set(begins, self._positions_of_characters(ranges), back=False)
            case Repetition(body, least, most):
                return self._repeated(body, least, most, begins, back=False)

    def match_backward(self, tree: RegexTree, ends: int) -> int:
        """The positions where a match may begin that ends at one of ``ends``."""
        if not ends:
            return 0
        match tree:
            case CharacterSet(ranges):
                return ends >> 1 & self._positions_of_characters(ranges)
            case Concatenation(items):
                for item in reversed(items):
                    ends = self.match_backward(item, ends)
                return ends
            case Alternation(branches):
                begins = 0
                for branch in branches:
                    begins |= self.match_backward(branch, ends)
                return begins
            case Anchor() | Lookaround():
                return ends & self._anchor_positions(tree)
            case Repetition(CharacterSet(ranges) as body, least, None):
                for _ in range(least):
                    ends = self.match_backward(body, ends)
                return self._repeat_character_set(ends, self._positions_of_characters(ranges), back=True)
            case Repetition(body, least, most):
                return self._repeated(body, least, most, ends, back=True)

    def _repeated(self, body: RegexTree, least: int, most: int | None, places: int, *, back: bool) -> int:
        step = self.match_backward if back else self.match_forward
        for _ in range(least):
            places = step(body, places)
        found = new = places
        rounds = len(self.name) + 1 if most is None else most - least
        for _ in range(rounds):
            new = step(body, new) & ~found
            if not new:
                break
            found |= new
        return found

    def _repeat_character_set(self, places: int, held: int, *, back: bool) -> int:
        """The positions reachable from ``places`` over characters at ``held``; each round doubles the distance."""
        found, through, far = places, held, 1
        while far <= len(self.name):
            if back:
                found |= found >> far & through
                through &= through >> far
            else:
                found |= (found & through) << far
                through &= through >> far
            far *= 2
        return found

    def _positions_of_characters(self, ranges: CodePointRanges) -> int:
        """The positions of the name that are followed by a character of this set."""
        held = self._chars.get(ranges)
        if held is None:
            held = 0
            for at, character in enumerate(self.name):
                code = ord(character)
                if any(low <= code <= high for low, high in ranges):
                    held |= 1 << at
            self._chars[ranges] = held
        return held

    def _anchor_positions(self, tree: Anchor | Lookaround) -> int:
        match tree:
            case Anchor(AnchorKind.START):
                return 1
            case Anchor(AnchorKind.END):
                return 1 << len(self.name)
            case Anchor(at):
                words = self._positions_of_characters(WORD_CHARACTERS)
                boundaries = words ^ (words << 1)
                return boundaries if at is AnchorKind.WORD_BOUNDARY else self.all_positions & ~boundaries
            case Lookaround():
                places = self._lookaround_cache.get(tree)
                if places is None:
                    step = self.match_forward if tree.is_lookbehind else self.match_backward
                    places = step(tree.body, self.all_positions)
                    places = self.all_positions & ~places if tree.is_negative else places
                    self._lookaround_cache[tree] = places
                return places
