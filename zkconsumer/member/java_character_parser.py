r"""Parses the characters of Java's regular expressions: literals, escapes and classes.  Pure.

``java_regex`` parses the structure: groups, repetitions and alternatives.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkconsumer.member.java_character_classes import ESCAPE_CLASSES, NAMED_CLASSES, SINGLE_CASE_CLASSES
from zkconsumer.member.regex_tree import CODE_POINT_MAX, CodePointRanges, complement, intersection, merge_ranges

GROUP_DEPTH_MAX = 32
"""The maximum depth of nested groups and classes; a deeper pattern raises ``UnsupportedJavaRegexError``."""

_CONTROL_ESCAPES = {"t": 0x09, "n": 0x0A, "r": 0x0D, "f": 0x0C, "a": 0x07, "e": 0x1B}

_INVALID_ESCAPES = frozenset("CEFIJKLMOTUYgijlmoqy")
"""In every release of Java, a backslash before one of these letters is an error."""


class InvalidJavaRegexError(ValueError):
    """No release of Java compiles the pattern.

    ``position``: the index of the character in the pattern, from 0.  ``what``: the invalid part, a noun phrase.
    """

    def __init__(self, position: int, what: str) -> None:
        super().__init__(what)
        self.position = position
        self.what = what


class UnsupportedJavaRegexError(ValueError):
    """Java may accept the pattern, but this module does not evaluate it exactly as Java does.

    ``position``: the index of the character in the pattern, from 0.  ``what``: the unsupported part, a noun phrase.
    """

    def __init__(self, position: int, what: str) -> None:
        super().__init__(what)
        self.position = position
        self.what = what


@dataclass(slots=True)
class JavaCharacterParser:
    """Parses characters and classes from left to right, as Java's parser does.  Each method parses one grammar rule.

    ``position``: the index of the next character.  ``depth``: the current depth of groups and classes.  ``flags``: the
    flags that apply at ``position``, as letters.
    """

    pattern: str
    position: int = 0
    depth: int = 0
    flags: frozenset[str] = frozenset()

    def _peek(self, ahead: int = 0) -> str:
        """The character ``ahead`` characters after ``position``; "" after the end of the pattern."""
        return self.pattern[self.position + ahead : self.position + ahead + 1]

    def _accept(self, text: str) -> bool:
        """Return whether ``text`` is next in the pattern; if so, move ``position`` after it."""
        found = self.pattern.startswith(text, self.position)
        if found:
            self.position += len(text)
        return found

    def _literal(self) -> CodePointRanges:
        code = ord(self._peek())
        if 0xD800 <= code <= 0xDFFF:
            raise UnsupportedJavaRegexError(self.position, "half of a surrogate pair")
        self._check_case(code)
        self.position += 1
        return ((code, code),)

    def _check_case(self, code: int) -> None:
        if code >= 0x80 and self.flags >= {"i", "u"}:
            raise UnsupportedJavaRegexError(self.position, "a character outside ASCII, with the flags 'i' and 'u'")

    # --- escapes ------------------------------------------------------------------------------------------------

    def _escape(self) -> CodePointRanges:
        """The characters that an escape matches, in a class or outside of one."""
        start = self.position
        c = self._peek(1)
        if c == "":
            raise InvalidJavaRegexError(start, "a backslash at the end")
        if c in ("p", "P"):
            return self._named_class(start)
        if c in ("x", "u", "0", "c"):
            return self._by_number(start, c)
        self.position += 2
        if c in ESCAPE_CLASSES:
            return ESCAPE_CLASSES[c]
        if c in _CONTROL_ESCAPES:
            return ((_CONTROL_ESCAPES[c], _CONTROL_ESCAPES[c]),)
        if c in _INVALID_ESCAPES:
            raise InvalidJavaRegexError(start, f"the escape '\\{c}', which does not exist")
        if c.isascii() and c.isalnum():
            raise UnsupportedJavaRegexError(start, f"the escape '\\{c}'")
        self.position -= 1
        return self._literal()

    def _named_class(self, start: int) -> CodePointRanges:
        negated = self._peek(1) == "P"
        self.position += 2
        end = self.pattern.find("}", self.position) if self._peek() == "{" else self.position + 1
        name = self.pattern[self.position : end].removeprefix("{")
        if end < 0 or name not in NAMED_CLASSES:
            raise UnsupportedJavaRegexError(start, f"the class '{self.pattern[start : max(end + 1, start + 3)][:40]}'")
        if "i" in self.flags and name in SINGLE_CASE_CLASSES:
            raise UnsupportedJavaRegexError(start, f"the class '{name}', with the flag 'i'")
        self.position = end + 1 if self._peek() == "{" else end
        return complement(NAMED_CLASSES[name]) if negated else NAMED_CLASSES[name]

    def _by_number(self, start: int, kind: str) -> CodePointRanges:
        self.position += 2
        match kind:
            case "x" if self._peek() == "{":
                end = self.pattern.find("}", self.position)
                digits = self.pattern[self.position + 1 : end if end >= 0 else None]
                self.position = end + 1
                code = _number(digits, 16, 1, 8) if end >= 0 else None
            case "x" | "u":
                length = 2 if kind == "x" else 4
                code = _number(self.pattern[self.position : self.position + length], 16, length, length)
                self.position += length
            case "0":
                length = 0
                while length < 3 and self._peek(length) and self._peek(length) in "01234567":
                    length += 1
                if length == 3 and self._peek() > "3":
                    length = 2
                code = _number(self.pattern[self.position : self.position + length], 8, 1, 3)
                self.position += length
            case _:
                code = ord(self._peek()) ^ 64 if self._peek() and self._peek().isascii() else None
                self.position += 1
        if code is None or code > CODE_POINT_MAX or 0xD800 <= code <= 0xDFFF:
            raise UnsupportedJavaRegexError(start, f"the escape '\\{kind}' without a valid number")
        if code >= 0x80 and self.flags >= {"i", "u"}:
            raise UnsupportedJavaRegexError(start, "a character outside ASCII, with the flags 'i' and 'u'")
        return ((code, code),)

    # --- classes ------------------------------------------------------------------------------------------------

    def _class(self) -> CodePointRanges:
        """Parse a class in brackets, which contains at most one intersection."""
        start = self.position
        if self.depth == GROUP_DEPTH_MAX:
            raise UnsupportedJavaRegexError(start, f"more than {GROUP_DEPTH_MAX} nested groups")
        self.depth += 1
        self.position += 1
        negated = self._accept("^")
        if self._peek() == "]":
            raise UnsupportedJavaRegexError(self.position, "a ']' at the beginning of a class")
        found = self._union(start, negated)
        if self._accept("&&"):
            if negated:
                raise UnsupportedJavaRegexError(self.position - 2, "an intersection in a class that begins with '^'")
            found = intersection(found, self._intersection_operand(start))
        self.position += 1
        self.depth -= 1
        return complement(found) if negated else found

    def _intersection_operand(self, start: int) -> CodePointRanges:
        """Parse the part after ``&&``: one class in brackets, or characters and ranges."""
        if self._peek() in ("]", "&"):
            raise UnsupportedJavaRegexError(self.position - 2, "an intersection with an empty part")
        if self._peek() == "[":
            right = self._class()
            if self._peek() != "]":
                raise UnsupportedJavaRegexError(self.position, "a character after the second class of an intersection")
            return right
        right = self._union(start, flat=True)
        if self._peek() != "]":
            raise UnsupportedJavaRegexError(self.position, "a second intersection in one class")
        return right

    def _union(self, start: int, flat: bool) -> CodePointRanges:
        """Parse characters, ranges and nested classes, up to ``]`` or ``&&``.  ``flat``: refuse nested classes.

        A class in a class that begins with ``^`` has one meaning up to Java 8, and another one since Java 9.
        """
        members: list[tuple[int, int]] = []
        while self._peek() != "]":
            if self._peek() == "":
                raise InvalidJavaRegexError(start, "a class that is never closed")
            if self._peek() == "&" and self._peek(1) == "&":
                if not members:
                    raise UnsupportedJavaRegexError(self.position, "an intersection with an empty part")
                break
            if self._peek() == "[":
                if flat:
                    raise UnsupportedJavaRegexError(
                        self.position, "a class inside a class that begins with '^', or after '&&'"
                    )
                members.extend(self._class())
            else:
                members.extend(self._with_both_cases(self._class_item(start)))
        return merge_ranges(members)

    def _class_item(self, start: int) -> CodePointRanges:
        """Parse one character, range or escape in a class."""
        at = self.position
        low = self._class_character()
        # A '-' at the end of the class, or after an escape such as \w, is a literal; elsewhere it makes a range.
        if self._is_class(at) or self._peek() != "-" or self._peek(1) == "]":
            return low
        self.position += 1
        if self._peek() in ("-", "[", "&"):
            raise UnsupportedJavaRegexError(self.position, f"a '{self._peek()}' at the end of a range")
        if self._peek() == "":
            raise InvalidJavaRegexError(start, "a class that is never closed")
        if self._is_class(self.position):
            raise UnsupportedJavaRegexError(self.position, "a range that ends in a class")
        high = self._class_character()
        if high[0][0] < low[0][0]:
            raise InvalidJavaRegexError(at, f"the range '{self.pattern[at : self.position]}' in descending order")
        return ((low[0][0], high[0][0]),)

    def _is_class(self, at: int) -> bool:
        r"""Whether the escape of a class such as ``\w`` or ``\p{...}`` begins at this index."""
        return self.pattern[at : at + 1] == "\\" and self.pattern[at + 1 : at + 2] in ("p", "P", *ESCAPE_CLASSES)

    def _class_character(self) -> CodePointRanges:
        if self._peek() != "\\":
            return self._literal()
        if self._peek(1) in ("b", "B", "A", "G", "Z", "z", "R", "X", "N"):
            raise UnsupportedJavaRegexError(self.position, f"the escape '\\{self._peek(1)}' in a class")
        return self._escape()

    def _with_both_cases(self, ranges: CodePointRanges) -> CodePointRanges:
        """With the flag ``i``: add the other case of every ASCII letter.

        Java's flag applies to ASCII letters only, RE2's flag to other letters, too.
        """
        if "i" not in self.flags:
            return ranges
        added: list[tuple[int, int]] = list(ranges)
        for low, high in ranges:
            for first, last, shift in ((0x41, 0x5A, 32), (0x61, 0x7A, -32)):
                if low <= last and high >= first:
                    added.append((max(low, first) + shift, min(high, last) + shift))
        return merge_ranges(added)


def _number(digits: str, base: int, shortest: int, longest: int) -> int | None:
    """The number, if ``digits`` are ``shortest`` to ``longest`` valid digits of ``base``; else None."""
    allowed = "0123456789abcdefABCDEF" if base == 16 else "01234567"
    if not shortest <= len(digits) <= longest or any(digit not in allowed for digit in digits):
        return None
    return int(digits, base)
