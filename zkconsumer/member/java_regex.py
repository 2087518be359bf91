r"""Parses Java's regular expressions, as far as they can be evaluated exactly as Java does.  Pure.

Every member of a group evaluates the topic filters of all other members.  So, for every valid topic name, the result
must be the same as the result of ``java.util.regex`` (``String.matches``: the whole name).  This module parses a
pattern as Java does, and makes a tree (``regex_tree``) that is matched in bounded time.  A test compares it with
``migration_docs/reference/topic-filters.md``, which lists what is supported and what is refused.

``InvalidJavaRegexError``: no release of Java compiles the pattern.  The members ignore the registration of a member
with such a pattern.  ``UnsupportedJavaRegexError``: Java may compile it.  In doubt it is ``UnsupportedJavaRegexError``:
if this member ignored a registration that the others accept, its assignment would contradict theirs.

``String.matches`` only returns *whether* the name matches.  Hence greedy and lazy repetition have the same result, and
the texts of groups are not recorded.  A possessive repetition, whose body always matches the same number of characters,
is the repetition and a negative look-ahead: ``x*+`` is ``x*(?!x)``.

So a possessive repetition refers to its body twice, and n nested ones would refer to the innermost body 2**n times.
The parser counts the nodes while it builds the tree and refuses a pattern with more than ``NODES_MAX``.  Groups are at
most ``GROUP_DEPTH_MAX`` deep, so parsing visits at most the product of both.
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
"""The largest ``{n}`` that RE2 accepts."""

_ANCHORS = {
    "b": AnchorKind.WORD_BOUNDARY,
    "B": AnchorKind.NOT_WORD_BOUNDARY,
    "A": AnchorKind.START,
    "G": AnchorKind.START,
    "Z": AnchorKind.END,
    "z": AnchorKind.END,
}
"""Topic names contain no line terminators, so ``\\Z`` equals ``\\z``.  ``\\G``, the end of the last match, is the
beginning of the name, because there is no last match.
"""

_LOOKAROUNDS = {"(?=": (False, False), "(?!": (False, True), "(?<=": (True, False), "(?<!": (True, True)}
_FLAGS = frozenset("idmsuU")
"""``d``, ``m`` and ``s`` only affect line terminators, ``u`` and ``U`` only characters outside ASCII.  Topic names
contain neither.
"""


def parse_java_regex(pattern: str) -> RegexTree:
    """Parse a pattern; for valid topic names the tree matches the same names as Java.

    Raises ``InvalidJavaRegexError`` or ``UnsupportedJavaRegexError`` with the position of the first character that
    cannot be parsed.
    """
    text, places = expand_regex_quotes(pattern)
    try:
        return _PatternParser(text).parse()
    except (InvalidJavaRegexError, UnsupportedJavaRegexError) as error:
        raise type(error)(places[error.position], error.what) from None


@dataclass(slots=True)
class _PatternParser(JavaCharacterParser):
    """Parses the structure of a pattern: alternatives, repetitions, groups and anchors.  Use one parser per pattern."""

    names: set[str] = field(default_factory=set)
    nodes: int = 0
    """The number of nodes parsed so far.  A node counts once for each reference to it; at most ``NODES_MAX``."""

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
                raise InvalidJavaRegexError(self.position, f"a '{c}' without an expression before it to repeat")
            start, nodes_before = self.position, self.nodes
            atom = self._atom()
            if atom is not None:
                self._add_nodes(1, start)
                items.append(self._repeated(atom, self.nodes - nodes_before))
        self._add_nodes(1, self.position)
        return items[0] if len(items) == 1 else Concatenation(tuple(items))

    def _add_nodes(self, more: int, position: int) -> None:
        """Count nodes.  Only possessive repetitions exceed ``NODES_MAX`` in a pattern of at most 1,024 characters."""
        self.nodes += more
        if self.nodes > NODES_MAX:
            raise UnsupportedJavaRegexError(
                position, f"possessive repetitions with more than {NODES_MAX} nodes inside them,"
            )

    # --- one atom -----------------------------------------------------------------------------------------------

    def _atom(self) -> RegexTree | None:
        """Parse a character, a class, a group or an anchor; None for a group that only sets flags."""
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
                    raise UnsupportedJavaRegexError(self.position, "the boundary '\\b{'")
                self.position += 2
                return Anchor(_ANCHORS[self._peek(-1)])
            case "\\" if self._peek(1) == "R":
                raise UnsupportedJavaRegexError(self.position, "the escape '\\R'")
            case "\\":
                return CharacterSet(self._with_both_cases(self._escape()))
            case "{":
                raise UnsupportedJavaRegexError(self.position, "a '{' without an expression before it to repeat")
        return CharacterSet(self._with_both_cases(self._literal()))

    # --- repetition ---------------------------------------------------------------------------------------------

    def _repeated(self, atom: RegexTree, atom_nodes: int) -> RegexTree:
        """Parse the repetition after ``atom``, if one follows; ``atom_nodes``: the number of nodes of ``atom``."""
        start = self.position
        c = self._peek()
        if c == "" or c not in "*+?{":
            return atom
        if isinstance(atom, Anchor | Lookaround):
            raise UnsupportedJavaRegexError(start, "the repetition of an expression that matches no character")
        if c == "{":
            least: int = self._count()
            most: int | None = least
            if least > 1 and may_be_empty_at_anchor(atom):
                # Java stops after an iteration that matches no character, although a later one may match some.
                raise UnsupportedJavaRegexError(
                    start, "a counted repetition of an expression that matches the empty text in some places only"
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
        """A possessive repetition as a repetition and a look-ahead; ``body_nodes``: the number of nodes of its body."""
        length = fixed_length(repeated.body)
        if length is None or length < 1:
            raise UnsupportedJavaRegexError(start, "a possessive repetition of an expression without a fixed length")
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
            "a '{' that is not a counted repetition {n} (topic filters do not support {n,m}, because ',' becomes '|')",
        )

    # --- groups -------------------------------------------------------------------------------------------------

    def _group(self) -> RegexTree | None:
        start = self.position
        if self.depth == GROUP_DEPTH_MAX:
            raise UnsupportedJavaRegexError(start, f"more than {GROUP_DEPTH_MAX} nested groups")
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
        """Parse the name of a group; False if the group has none."""
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
        """Parse flags.  True: ``(?i-s)``, for the rest of the enclosing group; False: ``(?i-s:``, a new group."""
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
                flags -= {c}  # Releases of Java differ in whether ``-U`` also clears ``u``.
        if not self._peek():
            raise InvalidJavaRegexError(start, "a group that is never closed")
        self.flags = frozenset(flags)
        self.position += 1
        return self._peek(-1) == ")"

    def _lookaround(self, body: RegexTree, behind: bool, negated: bool, start: int) -> RegexTree:
        if behind and not _has_obvious_length(body):
            raise UnsupportedJavaRegexError(start, "a look-behind that contains a repetition")
        return Lookaround(body, behind, negated)

    def _atomic(self, body: RegexTree, start: int) -> RegexTree:
        """``(?>X)`` does not backtrack; with a body of fixed length it matches the same names as ``(?:X)``."""
        if fixed_length(body) is None:
            raise UnsupportedJavaRegexError(start, "an atomic group without a fixed length")
        return body


def _has_obvious_length(tree: RegexTree) -> bool:
    """Whether every release of Java computes the maximum length: characters, anchors, alternatives, fixed counts."""
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
