"""The part of Java's regular expressions whose meaning is the same everywhere.  Pure.

Every member of a group evaluates the filters of all the others, so a filter must mean here exactly what it means to
``java.util.regex`` (``String.matches``: the whole name).  This module reads a pattern as Java does and writes it
down again for RE2, which needs time linear in the name whatever the pattern is.  It knows

    literals . | ( ) (?: ) * + ? {n} and their lazy forms, simple classes, \\d \\w \\s \\D \\W \\S,
    escaped punctuation, \\t \\n \\r \\f \\a \\e, (?i) in front, ^ and $ at the ends of the pattern or an alternative

and stops at anything else: ``NotEvaluable`` for what Java may well accept, ``NotJava`` for what every Java refuses.
Where the two could be confused it says ``NotEvaluable``, because a member is left out of the group's reckoning for
a pattern that Java refuses, and doing that to a valid one would set us against all the others.

A whole match asks only *whether* a name is in the language of the pattern.  Hence greedy and lazy are the same, and
groups need not be remembered; possessive repetition changes the language and is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass

GROUP_DEPTH_MAX = 32
"""Groups inside groups; deeper patterns are not evaluated."""

REPEAT_MAX = 1000
"""The largest ``{n}`` that RE2 knows."""

_CODE_POINT_MAX = 0x10FFFF
_NOTHING = "[^\\x{0}-\\x{10ffff}]"
_Ranges = tuple[tuple[int, int], ...]

_LINE_ENDS: _Ranges = ((0x0A, 0x0A), (0x0D, 0x0D), (0x85, 0x85), (0x2028, 0x2029))
_DIGIT: _Ranges = ((0x30, 0x39),)
_WORD: _Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACE: _Ranges = ((0x09, 0x0D), (0x20, 0x20))
"""Java's ``\\s`` holds the vertical tab, RE2's does not: hence all classes are written out."""

_NAMED = {"t": 0x09, "n": 0x0A, "r": 0x0D, "f": 0x0C, "a": 0x07, "e": 0x1B}
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


class NotJava(ValueError):
    """Every Java refuses to compile this; ``position`` counts characters from 0."""

    def __init__(self, position: int, what: str) -> None:
        super().__init__(what)
        self.position = position
        self.what = what


class NotEvaluable(ValueError):
    """Java may accept this, but its exact meaning is not known here; ``position`` counts characters from 0."""

    def __init__(self, position: int, what: str) -> None:
        super().__init__(what)
        self.position = position
        self.what = what


def to_re2(pattern: str) -> str:
    """The same language, written for RE2 (to be matched against the whole name).

    Raises ``NotJava`` or ``NotEvaluable`` with the place of the first character that stopped the reading.
    """
    return _Reader(pattern).read()


@dataclass(slots=True)
class _Reader:
    """Reads a pattern from left to right, as Java's own parser does: one rule a method."""

    pattern: str
    position: int = 0
    depth: int = 0
    ignore_case: bool = False

    def read(self) -> str:
        if self.pattern.startswith("(?i)"):
            self.ignore_case = True
            self.position = len("(?i)")
        written = self._alternatives()
        if self.position < len(self.pattern):
            raise NotJava(self.position, "a closing parenthesis without an opening one")
        return written

    def _peek(self, ahead: int = 0) -> str:
        """The character at the reading position, or an empty text at the end."""
        return self.pattern[self.position + ahead : self.position + ahead + 1]

    def _alternatives(self) -> str:
        branches = [self._sequence()]
        while self._peek() == "|":
            self.position += 1
            branches.append(self._sequence())
        return "|".join(branches)

    def _sequence(self) -> str:
        if self._peek() == "^" and self.depth == 0:
            self.position += 1  # A whole match begins at the beginning anyway.
            if self._peek() in ("*", "+", "?", "{"):
                raise NotEvaluable(self.position, "a repetition of '^'")
        parts: list[str] = []
        while (c := self._peek()) not in ("", "|", ")"):
            if c == "$" and self.depth == 0 and self._peek(1) in ("", "|"):
                self.position += 1  # A whole match ends at the end anyway, whatever '$' means elsewhere.
                break
            if c in "*+?":
                raise NotJava(self.position, f"a '{c}' with nothing in front of it to repeat")
            parts.append(self._atom() + self._repetition())
        return "".join(parts)

    def _atom(self) -> str:
        c = self._peek()
        match c:
            case "(":
                return self._group()
            case "[":
                return self._class()
            case "\\":
                return _written(self._folded(self._escape()))
            case ".":
                self.position += 1
                return _written(_complement(_LINE_ENDS))
            case "^" | "$":
                raise NotEvaluable(self.position, f"'{c}' elsewhere than at an end of the pattern")
            case "{":
                raise NotEvaluable(self.position, "a '{' with nothing in front of it to repeat")
        return _written(self._folded(self._literal()))

    def _literal(self) -> _Ranges:
        code = ord(self._peek())
        if 0xD800 <= code <= 0xDFFF:
            raise NotEvaluable(self.position, "half of a surrogate pair")
        self.position += 1
        return ((code, code),)

    def _repetition(self) -> str:
        c = self._peek()
        if c == "" or c not in "*+?{":
            return ""
        start = self.position
        if c == "{":
            written = self._count()
        else:
            written = c
            self.position += 1
        if self._peek() == "?":
            self.position += 1
        elif self._peek() == "+":
            raise NotEvaluable(start, "a possessive repetition")
        return written

    def _count(self) -> str:
        start = self.position
        end = self.pattern.find("}", start)
        digits = self.pattern[start + 1 : end if end >= 0 else None]
        if end >= 0 and digits.isascii() and digits.isdigit():
            if len(digits) > len(str(REPEAT_MAX)) or int(digits) > REPEAT_MAX:
                raise NotEvaluable(start, f"a repetition of more than {REPEAT_MAX} times")
            self.position = end + 1
            return f"{{{int(digits)}}}"
        if "," in digits:
            raise NotEvaluable(start, "a counted repetition with two numbers")
        raise NotJava(
            start,
            "a '{' that is not a counted repetition {n} (in a topic filter {n,m} cannot be written: commas become '|')",
        )

    def _group(self) -> str:
        start = self.position
        if self.depth == GROUP_DEPTH_MAX:
            raise NotEvaluable(start, f"more than {GROUP_DEPTH_MAX} groups inside one another")
        self.position += 1
        if self._peek() == "?":
            if self._peek(1) != ":":
                raise NotEvaluable(start, f"the group '{self.pattern[start : start + 3]}'")
            self.position += 2
        self.depth += 1
        written = self._alternatives()
        self.depth -= 1
        if self._peek() != ")":
            raise NotJava(start, "a group that is never closed")
        self.position += 1
        return f"(?:{written})"

    def _escape(self) -> _Ranges:
        """What a backslash and the character behind it stand for, in a class or outside."""
        start = self.position
        c = self._peek(1)
        if c == "":
            raise NotJava(start, "a backslash at the end")
        self.position += 2
        match c:
            case "d":
                return _DIGIT
            case "w":
                return _WORD
            case "s":
                return _SPACE
            case "D":
                return _complement(_DIGIT)
            case "W":
                return _complement(_WORD)
            case "S":
                return _complement(_SPACE)
        code = _NAMED.get(c) or (ord(c) if c in _PUNCTUATION else None)
        if code is None:
            raise NotEvaluable(start, f"the escape '\\{c}'")
        return ((code, code),)

    def _class(self) -> str:
        start = self.position
        self.position += 1
        negated = self._peek() == "^"
        if negated:
            self.position += 1
        if self._peek() == "]":
            raise NotEvaluable(self.position, "a ']' at the beginning of a class")
        members: list[tuple[int, int]] = []
        while self._peek() != "]":
            members.extend(self._folded(self._class_item(start)))
        self.position += 1
        ranges = _merged(members)
        return _written(_complement(ranges) if negated else ranges)

    def _class_item(self, start: int) -> _Ranges:
        """One character, range or escape of a class."""
        at = self.position
        self._refuse_in_class(start)
        predefined = self._peek() == "\\" and self._peek(1) in tuple("dwsDWS")
        low = self._class_character()
        # A '-' before the end of the class, and one behind \w, is itself; anywhere else it makes a range.
        if predefined or self._peek() != "-" or self._peek(1) == "]":
            return low
        self.position += 1
        if self._peek() == "-":
            raise NotEvaluable(self.position, "a '-' at the end of a range")
        if self._peek() == "\\" and self._peek(1) in tuple("dwsDWS"):
            raise NotEvaluable(self.position, "a range that ends in a class")
        self._refuse_in_class(start)
        high = self._class_character()
        if high[0][0] < low[0][0]:
            raise NotJava(at, f"the range '{self.pattern[at : self.position]}', which runs backwards")
        return ((low[0][0], high[0][0]),)

    def _class_character(self) -> _Ranges:
        return self._escape() if self._peek() == "\\" else self._literal()

    def _refuse_in_class(self, start: int) -> None:
        c = self._peek()
        if c == "":
            raise NotJava(start, "a class that is never closed")
        if c == "[":
            raise NotEvaluable(self.position, "a class inside a class")
        if c == "&" and self._peek(1) == "&":
            raise NotEvaluable(self.position, "an intersection of classes")

    def _folded(self, ranges: _Ranges) -> _Ranges:
        """With ``(?i)``: every ASCII letter in both cases.  Java's flag knows no other letters, RE2's does."""
        if not self.ignore_case:
            return ranges
        added: list[tuple[int, int]] = list(ranges)
        for low, high in ranges:
            for first, last, shift in ((0x41, 0x5A, 32), (0x61, 0x7A, -32)):
                if low <= last and high >= first:
                    added.append((max(low, first) + shift, min(high, last) + shift))
        return _merged(added)


def _merged(ranges: list[tuple[int, int]]) -> _Ranges:
    """The same set of characters in ascending ranges that neither touch nor overlap."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def _complement(ranges: _Ranges) -> _Ranges:
    """All other characters; ``ranges`` must be ascending."""
    gaps: list[tuple[int, int]] = []
    first_free = 0
    for low, high in ranges:
        if first_free < low:
            gaps.append((first_free, low - 1))
        first_free = high + 1
    if first_free <= _CODE_POINT_MAX:
        gaps.append((first_free, _CODE_POINT_MAX))
    return tuple(gaps)


def _written(ranges: _Ranges) -> str:
    """A set of characters in RE2's spelling."""
    if not ranges:
        return _NOTHING  # RE2 would take "[]" for the beginning of a class that holds "]".
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return _spelled(ranges[0][0])
    if len(ranges) == 2 and ranges[0][0] == ranges[0][1] and ranges[1] == (ranges[0][0] + 32,) * 2:
        # RE2 takes [Kk] for "k in either case", and beside others of the kind it lets the Kelvin sign in as well.
        return f"(?:{_spelled(ranges[0][0])}|{_spelled(ranges[1][0])})"
    inside = "".join(
        _spelled(low) if low == high else f"{_spelled(low)}-{_spelled(high)}" for low, high in ranges
    )
    return f"[{inside}]"


def _spelled(code: int) -> str:
    return chr(code) if code < 0x80 and chr(code).isalnum() else f"\\x{{{code:x}}}"
