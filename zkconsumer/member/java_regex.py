r"""Java's regular expressions, as far as their meaning is known exactly.  Pure.

Every member of a group evaluates the filters of all the others, so a filter must mean here exactly what it means to
``java.util.regex`` (``String.matches``: the whole name) for every name that a topic can have.  This module reads a
pattern as Java does, and makes a tree of it (``regex_tree``) that is matched in bounded time.  What it knows and what
it refuses is listed in ``migration_docs/reference/topic-filters.md``, which is held to this code by a test.

It stops with ``UnsupportedJavaRegexError`` at what Java may well accept, and with ``InvalidJavaRegexError`` at what
every Java refuses.  Where the two could be confused it says ``UnsupportedJavaRegexError``, because a member is left out
of the group's reckoning for a pattern that Java refuses, and doing that to a valid one would set us against all the
others.

A whole match asks only *whether* a name is in the language of the pattern.  Hence greedy and lazy are the same, and
groups need not be remembered.  A possessive repetition of something that always takes the same number of characters
is the repetition, and behind it a place from which that does not match: ``x*+`` is ``x*(?!x)``.

So a possessive repetition refers to its body twice, and n of them inside one another would refer to the innermost body
2**n times.  The reader counts nodes as the tree grows and refuses a pattern with more than ``NODES_MAX``; groups are at
most ``GROUP_DEPTH_MAX`` deep, so reading visits at most the product of both.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from zkconsumer.member.java_character_classes import LINE_TERMINATORS
from zkconsumer.member.java_character_parser import (
    GROUP_DEPTH_MAX,
    InvalidJavaRegexError,
    JavaCharacterParser,
    UnsupportedJavaRegexError,
)
from zkconsumer.member.java_regex_quotes import expand_regex_quotes
from zkconsumer.member.regex_tree import (
    NODES_MAX,
    Alternation,
    Anchor,
    AnchorKind,
    CharacterSet,
    Concatenation,
    Lookaround,
    RegexTree,
    Repetition,
    complement,
    fixed_length,
    may_be_empty_at_anchor,
)

REPEAT_MAX = 1000
"""The largest ``{n}`` that RE2 knows."""

_ANCHORS = {
    "b": AnchorKind.WORD_BOUNDARY,
    "B": AnchorKind.NOT_WORD_BOUNDARY,
    "A": AnchorKind.START,
    "G": AnchorKind.START,
    "Z": AnchorKind.END,
    "z": AnchorKind.END,
}
"""A topic's name has no line ends, so ``\\Z`` is ``\\z``; the end of the last match, ``\\G``, is the beginning here."""

_LOOKAROUNDS = {"(?=": (False, False), "(?!": (False, True), "(?<=": (True, False), "(?<!": (True, True)}
_FLAGS = frozenset("idmsuU")
"""``d``, ``m`` and ``s`` are about line ends, which no topic's name has; ``u`` and ``U`` about what is not ASCII."""


def parse_java_regex(pattern: str) -> RegexTree:
    """The language of a pattern, for names that topics can have.

    Raises ``InvalidJavaRegexError`` or ``UnsupportedJavaRegexError`` with the place of the first character that stopped
    the reading.
    """
    text, places = expand_regex_quotes(pattern)
    try:
        return _PatternParser(text).parse()
    except (InvalidJavaRegexError, UnsupportedJavaRegexError) as error:
        raise type(error)(places[error.position], error.what) from None


@dataclass(slots=True)
class _PatternParser(JavaCharacterParser):
    """The structure of a pattern: alternatives, repetition, groups, places."""

    names: set[str] = field(default_factory=set)
    nodes: int = 0
    """Nodes of everything that was read, each as often as the tree refers to it; never above ``NODES_MAX``."""

    def parse(self) -> RegexTree:
        tree = self._alternatives()
        if self.position < len(self.pattern):
            raise InvalidJavaRegexError(self.position, "a closing parenthesis without an opening one")
        return tree

    def _alternatives(self) -> RegexTree:
        branches = [self._sequence()]
        while self._accept("|"):
            branches.append(self._sequence())
        self._add_nodes(1, self.position)
        return branches[0] if len(branches) == 1 else Alternation(tuple(branches))

    def _sequence(self) -> RegexTree:
        items: list[RegexTree] = []
        while (c := self._peek()) not in ("", "|", ")"):
            if c in "*+?":
                raise InvalidJavaRegexError(self.position, f"a '{c}' with nothing in front of it to repeat")
            start, nodes_before = self.position, self.nodes
            atom = self._atom()
            if atom is not None:
                self._add_nodes(1, start)
                items.append(self._repeated(atom, self.nodes - nodes_before))
        self._add_nodes(1, self.position)
        return items[0] if len(items) == 1 else Concatenation(tuple(items))

    def _add_nodes(self, more: int, position: int) -> None:
        """Count nodes.  Without a possessive repetition no pattern of 1,024 characters has so many."""
        self.nodes += more
        if self.nodes > NODES_MAX:
            raise UnsupportedJavaRegexError(
                position, f"possessive repetitions with more than {NODES_MAX} nodes inside them,"
            )

    # --- one atom -----------------------------------------------------------------------------------------------

    def _atom(self) -> RegexTree | None:
        """A character, a class, a group or a place; None for flags, which stand for nothing themselves."""
        c = self._peek()
        match c:
            case "(":
                return self._group()
            case "[":
                return CharacterSet(self._class())
            case ".":
                self.position += 1
                return CharacterSet(complement(LINE_TERMINATORS))
            case "^" | "$":
                self.position += 1
                return Anchor(AnchorKind.START if c == "^" else AnchorKind.END)
            case "\\" if self._peek(1) in _ANCHORS and self._peek(1):
                if self._peek(1) == "b" and self._peek(2) == "{":
                    raise UnsupportedJavaRegexError(self.position, "the boundary of something else than a word, '\\b{'")
                self.position += 2
                return Anchor(_ANCHORS[self._peek(-1)])
            case "\\" if self._peek(1) == "R":
                raise UnsupportedJavaRegexError(self.position, "the escape '\\R'")
            case "\\":
                return CharacterSet(self._with_both_cases(self._escape()))
            case "{":
                raise UnsupportedJavaRegexError(self.position, "a '{' with nothing in front of it to repeat")
        return CharacterSet(self._with_both_cases(self._literal()))

    # --- repetition ---------------------------------------------------------------------------------------------

    def _repeated(self, atom: RegexTree, atom_nodes: int) -> RegexTree:
        """``atom``, which has ``atom_nodes`` nodes, with the repetition that follows it, if one does."""
        start = self.position
        c = self._peek()
        if c == "" or c not in "*+?{":
            return atom
        if isinstance(atom, Anchor | Lookaround):
            raise UnsupportedJavaRegexError(start, "the repetition of something that takes no character")
        if c == "{":
            least: int = self._count()
            most: int | None = least
            if least > 1 and may_be_empty_at_anchor(atom):
                # Java stops counting at an empty round, though a later one might take something.
                raise UnsupportedJavaRegexError(
                    start, "a counted repetition of something that is empty in some places only"
                )
        else:
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[c]
            self.position += 1
        self._add_nodes(1, start)
        repeated = Repetition(atom, least, most)
        if self._accept("?"):
            return repeated
        if self._accept("+"):
            return self._possessive(repeated, atom_nodes, start)
        return repeated

    def _possessive(self, repeated: Repetition, body_nodes: int, start: int) -> RegexTree:
        """What takes all it can and gives nothing back; refers to its body of ``body_nodes`` nodes twice."""
        length = fixed_length(repeated.body)
        if length is None or length < 1:
            raise UnsupportedJavaRegexError(start, "a possessive repetition of something that has no fixed length")
        if repeated.max_count == repeated.min_count:
            return repeated
        self._add_nodes(body_nodes + 2, start)
        no_more = Lookaround(repeated.body, is_lookbehind=False, is_negative=True)
        if repeated.max_count is None:
            return Concatenation((repeated, no_more))
        return Alternation((repeated.body, no_more))

    def _count(self) -> int:
        start = self.position
        end = self.pattern.find("}", start)
        digits = self.pattern[start + 1 : end if end >= 0 else None]
        if end >= 0 and digits.isascii() and digits.isdigit():
            if len(digits) > len(str(REPEAT_MAX)) or int(digits) > REPEAT_MAX:
                raise UnsupportedJavaRegexError(start, f"a repetition of more than {REPEAT_MAX} times")
            self.position = end + 1
            return int(digits)
        if "," in digits:
            raise UnsupportedJavaRegexError(start, "a counted repetition with two numbers")
        raise InvalidJavaRegexError(
            start,
            "a '{' that is not a counted repetition {n} (in a topic filter {n,m} cannot be written: commas become '|')",
        )

    # --- groups -------------------------------------------------------------------------------------------------

    def _group(self) -> RegexTree | None:
        start = self.position
        if self.depth == GROUP_DEPTH_MAX:
            raise UnsupportedJavaRegexError(start, f"more than {GROUP_DEPTH_MAX} groups inside one another")
        look = next((kind for opening, kind in _LOOKAROUNDS.items() if self._accept(opening)), None)
        atomic = look is None and self._accept("(?>")
        flags = self.flags
        if look is None and not atomic:
            self.position += 1
            if self._accept("?") and not self._accept(":") and not self._name(start) and self._changes_flags(start):
                return None
        self.depth += 1
        body = self._alternatives()
        self.depth -= 1
        self.flags = flags
        if self._peek() != ")":
            raise InvalidJavaRegexError(start, "a group that is never closed")
        self.position += 1
        if look is not None:
            return self._lookaround(body, *look, start)
        return self._atomic(body, start) if atomic else body

    def _name(self, start: int) -> bool:
        """The name of a group, if one comes next."""
        if not self._accept("<"):
            return False
        end = self.pattern.find(">", self.position)
        name = self.pattern[self.position : end if end >= 0 else None]
        if end < 0 or not name.isascii() or not name.isalnum() or name[0].isdigit():
            raise UnsupportedJavaRegexError(start, f"the group '{self.pattern[start : start + 4]}'")
        if name in self.names:
            raise InvalidJavaRegexError(start, f"a second group with the name '{name}'")
        self.names.add(name)
        self.position = end + 1
        return True

    def _changes_flags(self, start: int) -> bool:
        """``(?i-s)``, which holds to the end of the group around it: True; ``(?i-s:`` opens a group: False."""
        flags = set(self.flags)
        is_on = True
        while (c := self._peek()) not in ("", ")", ":"):
            self.position += 1
            if c == "-" and is_on:
                is_on = False
            elif c == "x" and not is_on:
                pass
            elif c not in _FLAGS:
                raise UnsupportedJavaRegexError(start, f"the group '{self.pattern[start : self.position]}'")
            elif is_on:
                flags |= {c, "u"} if c == "U" else {c}
            else:
                flags -= {c}  # Releases of Java differ in whether ``-U`` takes ``u`` back.
        if not self._peek():
            raise InvalidJavaRegexError(start, "a group that is never closed")
        self.flags = frozenset(flags)
        self.position += 1
        return self._peek(-1) == ")"

    def _lookaround(self, body: RegexTree, behind: bool, negated: bool, start: int) -> RegexTree:
        if behind and not _has_obvious_length(body):
            raise UnsupportedJavaRegexError(start, "a look-behind with a repetition in it")
        return Lookaround(body, behind, negated)

    def _atomic(self, body: RegexTree, start: int) -> RegexTree:
        """``(?>X)`` gives nothing back: no difference where there is nothing to give."""
        if fixed_length(body) is None:
            raise UnsupportedJavaRegexError(start, "an atomic group that has no fixed length")
        return body


def _has_obvious_length(tree: RegexTree) -> bool:
    """Whether every Java sees how long this can get: characters, places and alternatives, nothing repeated."""
    match tree:
        case CharacterSet() | Anchor():
            return True
        case Concatenation(items):
            return all(map(_has_obvious_length, items))
        case Alternation(branches):
            return all(map(_has_obvious_length, branches))
        case Repetition(CharacterSet(), least, most):
            return least == most
        case Repetition() | Lookaround():
            return False
