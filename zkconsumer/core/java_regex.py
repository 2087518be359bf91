r"""Java's regular expressions, as far as their meaning is known exactly.  Pure.

Every member of a group evaluates the filters of all the others, so a filter must mean here exactly what it means to
``java.util.regex`` (``String.matches``: the whole name) for every name that a topic can have.  This module reads a
pattern as Java does, and makes a tree of it (``regex_tree``) that is matched in bounded time.  What it knows and what
it refuses is listed in ``migration_docs/reference/topic-filters.md``, which is held to this code by a test.

It stops with ``NotEvaluable`` at what Java may well accept, and with ``NotJava`` at what every Java refuses.  Where
the two could be confused it says ``NotEvaluable``, because a member is left out of the group's reckoning for a
pattern that Java refuses, and doing that to a valid one would set us against all the others.

A whole match asks only *whether* a name is in the language of the pattern.  Hence greedy and lazy are the same, and
groups need not be remembered.  A possessive repetition of something that always takes the same number of characters
is the repetition, and behind it a place from which that does not match: ``x*+`` is ``x*(?!x)``.

So a possessive repetition refers to its body twice, and n of them inside one another would refer to the innermost body
2**n times.  The reader counts nodes as the tree grows and refuses a pattern with more than ``NODES_MAX``; groups are at
most ``GROUP_DEPTH_MAX`` deep, so reading visits at most the product of both.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from zkconsumer.core.java_characters import GROUP_DEPTH_MAX, Characters, NotEvaluable, NotJava
from zkconsumer.core.java_classes import LINE_ENDS
from zkconsumer.core.java_quotes import expand_regex_quotes
from zkconsumer.core.regex_tree import (
    NODES_MAX,
    At,
    Chars,
    Choice,
    Look,
    Place,
    Repeat,
    Sequence,
    Tree,
    complement,
    fixed_length,
    may_be_empty_at_anchor,
)

REPEAT_MAX = 1000
"""The largest ``{n}`` that RE2 knows."""

_PLACES = {"b": At.WORD_BOUNDARY, "B": At.NOT_WORD_BOUNDARY, "A": At.START, "G": At.START, "Z": At.END, "z": At.END}
"""A topic's name has no line ends, so ``\\Z`` is ``\\z``; the end of the last match, ``\\G``, is the beginning here."""

_LOOKS = {"(?=": (False, False), "(?!": (False, True), "(?<=": (True, False), "(?<!": (True, True)}
_FLAGS = frozenset("idmsuU")
"""``d``, ``m`` and ``s`` are about line ends, which no topic's name has; ``u`` and ``U`` about what is not ASCII."""


def parse_java_regex(pattern: str) -> Tree:
    """The language of a pattern, for names that topics can have.

    Raises ``NotJava`` or ``NotEvaluable`` with the place of the first character that stopped the reading.
    """
    text, places = expand_regex_quotes(pattern)
    try:
        return _Reader(text).parse()
    except (NotJava, NotEvaluable) as error:
        raise type(error)(places[error.position], error.what) from None


@dataclass(slots=True)
class _Reader(Characters):
    """The structure of a pattern: alternatives, repetition, groups, places."""

    names: set[str] = field(default_factory=set)
    nodes: int = 0
    """Nodes of everything that was read, each as often as the tree refers to it; never above ``NODES_MAX``."""

    def parse(self) -> Tree:
        tree = self._alternatives()
        if self.position < len(self.pattern):
            raise NotJava(self.position, "a closing parenthesis without an opening one")
        return tree

    def _alternatives(self) -> Tree:
        branches = [self._sequence()]
        while self._accept("|"):
            branches.append(self._sequence())
        self._add_nodes(1, self.position)
        return branches[0] if len(branches) == 1 else Choice(tuple(branches))

    def _sequence(self) -> Tree:
        items: list[Tree] = []
        while (c := self._peek()) not in ("", "|", ")"):
            if c in "*+?":
                raise NotJava(self.position, f"a '{c}' with nothing in front of it to repeat")
            start, nodes_before = self.position, self.nodes
            atom = self._atom()
            if atom is not None:
                self._add_nodes(1, start)
                items.append(self._repeated(atom, self.nodes - nodes_before))
        self._add_nodes(1, self.position)
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    def _add_nodes(self, more: int, position: int) -> None:
        """Count nodes.  Without a possessive repetition no pattern of 1,024 characters has so many."""
        self.nodes += more
        if self.nodes > NODES_MAX:
            raise NotEvaluable(position, f"possessive repetitions with more than {NODES_MAX} nodes inside them,")

    # --- one atom -----------------------------------------------------------------------------------------------

    def _atom(self) -> Tree | None:
        """A character, a class, a group or a place; None for flags, which stand for nothing themselves."""
        c = self._peek()
        match c:
            case "(":
                return self._group()
            case "[":
                return Chars(self._class())
            case ".":
                self.position += 1
                return Chars(complement(LINE_ENDS))
            case "^" | "$":
                self.position += 1
                return Place(At.START if c == "^" else At.END)
            case "\\" if self._peek(1) in _PLACES and self._peek(1):
                if self._peek(1) == "b" and self._peek(2) == "{":
                    raise NotEvaluable(self.position, "the boundary of something else than a word, '\\b{'")
                self.position += 2
                return Place(_PLACES[self._peek(-1)])
            case "\\" if self._peek(1) == "R":
                raise NotEvaluable(self.position, "the escape '\\R'")
            case "\\":
                return Chars(self._with_both_cases(self._escape()))
            case "{":
                raise NotEvaluable(self.position, "a '{' with nothing in front of it to repeat")
        return Chars(self._with_both_cases(self._literal()))

    # --- repetition ---------------------------------------------------------------------------------------------

    def _repeated(self, atom: Tree, atom_nodes: int) -> Tree:
        """``atom``, which has ``atom_nodes`` nodes, with the repetition that follows it, if one does."""
        start = self.position
        c = self._peek()
        if c == "" or c not in "*+?{":
            return atom
        if isinstance(atom, Place | Look):
            raise NotEvaluable(start, "the repetition of something that takes no character")
        if c == "{":
            least: int = self._count()
            most: int | None = least
            if least > 1 and may_be_empty_at_anchor(atom):
                # Java stops counting at an empty round, though a later one might take something.
                raise NotEvaluable(start, "a counted repetition of something that is empty in some places only")
        else:
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[c]
            self.position += 1
        self._add_nodes(1, start)
        repeated = Repeat(atom, least, most)
        if self._accept("?"):
            return repeated
        if self._accept("+"):
            return self._possessive(repeated, atom_nodes, start)
        return repeated

    def _possessive(self, repeated: Repeat, body_nodes: int, start: int) -> Tree:
        """What takes all it can and gives nothing back; refers to its body of ``body_nodes`` nodes twice."""
        length = fixed_length(repeated.body)
        if length is None or length < 1:
            raise NotEvaluable(start, "a possessive repetition of something that has no fixed length")
        if repeated.max_count == repeated.min_count:
            return repeated
        self._add_nodes(body_nodes + 2, start)
        no_more = Look(repeated.body, is_lookbehind=False, is_negative=True)
        if repeated.max_count is None:
            return Sequence((repeated, no_more))
        return Choice((repeated.body, no_more))

    def _count(self) -> int:
        start = self.position
        end = self.pattern.find("}", start)
        digits = self.pattern[start + 1 : end if end >= 0 else None]
        if end >= 0 and digits.isascii() and digits.isdigit():
            if len(digits) > len(str(REPEAT_MAX)) or int(digits) > REPEAT_MAX:
                raise NotEvaluable(start, f"a repetition of more than {REPEAT_MAX} times")
            self.position = end + 1
            return int(digits)
        if "," in digits:
            raise NotEvaluable(start, "a counted repetition with two numbers")
        raise NotJava(
            start,
            "a '{' that is not a counted repetition {n} (in a topic filter {n,m} cannot be written: commas become '|')",
        )

    # --- groups -------------------------------------------------------------------------------------------------

    def _group(self) -> Tree | None:
        start = self.position
        if self.depth == GROUP_DEPTH_MAX:
            raise NotEvaluable(start, f"more than {GROUP_DEPTH_MAX} groups inside one another")
        look = next((kind for opening, kind in _LOOKS.items() if self._accept(opening)), None)
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
            raise NotJava(start, "a group that is never closed")
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
            raise NotEvaluable(start, f"the group '{self.pattern[start : start + 4]}'")
        if name in self.names:
            raise NotJava(start, f"a second group with the name '{name}'")
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
                raise NotEvaluable(start, f"the group '{self.pattern[start : self.position]}'")
            elif is_on:
                flags |= {c, "u"} if c == "U" else {c}
            else:
                flags -= {c}  # Releases of Java differ in whether ``-U`` takes ``u`` back.
        if not self._peek():
            raise NotJava(start, "a group that is never closed")
        self.flags = frozenset(flags)
        self.position += 1
        return self._peek(-1) == ")"

    def _lookaround(self, body: Tree, behind: bool, negated: bool, start: int) -> Tree:
        if behind and not _has_obvious_length(body):
            raise NotEvaluable(start, "a look-behind with a repetition in it")
        return Look(body, behind, negated)

    def _atomic(self, body: Tree, start: int) -> Tree:
        """``(?>X)`` gives nothing back: no difference where there is nothing to give."""
        if fixed_length(body) is None:
            raise NotEvaluable(start, "an atomic group that has no fixed length")
        return body


def _has_obvious_length(tree: Tree) -> bool:
    """Whether every Java sees how long this can get: characters, places and alternatives, nothing repeated."""
    match tree:
        case Chars() | Place():
            return True
        case Sequence(items):
            return all(map(_has_obvious_length, items))
        case Choice(branches):
            return all(map(_has_obvious_length, branches))
        case Repeat(Chars(), least, most):
            return least == most
        case Repeat() | Look():
            return False
