r"""Parses JSON as the releases of the Scala consumer do.  Pure.

Releases use two parsers in three ways.  If one of them accepts a text and another rejects it, some members of the group
accept it.  So ``read_object`` tries them in this order until the result is valid:

    strict    Jackson, from 1.0 on: standard JSON, any numbers; text after the first value is ignored
    old       Scala's parser combinators, up to 0.11: a backslash that escapes nothing stays in the string; control
              characters are allowed in strings and between tokens; digits of any script are digits; but *every*
              number, also an unused one, must be an int32
    doubled   Jackson again, with every backslash doubled: 1.0.1 and later do this when the first attempt failed

If *old* and *doubled* have different results for a text (only if *strict* rejected it), the result of *old* is used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal, NoReturn, TypeAlias, TypeVar

from zkconsumer.errors import MalformedZnode
from zkconsumer.utf8 import decode_like_java

NESTING_MAX = 100
"""The maximum nesting of brackets.  The Scala consumer has no limit except its stack; real data has at most three."""

BYTES_MAX = 1024 * 1024
"""The maximum size of a znode in bytes; a server accepts no more unless its ``jute.maxbuffer`` was raised."""

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


@dataclass(frozen=True, slots=True)
class UnparsedNumber:
    """A number that is not an integer, or that has more than 20 characters, as text."""

    text: str


Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | bool | UnparsedNumber | None"

JsonReaderKind: TypeAlias = Literal["strict", "old", "doubled"]

T = TypeVar("T")


class JavaJsonError(Exception):
    """A reader rejects this text, or a decoder rejects this value; the text explains why."""


def read_object(data: bytes, decode: Callable[[dict[str, Json], JsonReaderKind], T]) -> T:
    """Parse a JSON object and return the result of ``decode``, with the first parser for which ``decode`` accepts it.

    ``decode`` receives the object and the kind of the parser; it raises ``JavaJsonError`` to reject the object.
    Raises ``MalformedZnode`` with the reasons of all releases.
    """
    if len(data) > BYTES_MAX:
        raise MalformedZnode(f"{len(data)} bytes, at most {BYTES_MAX} are read")
    text = decode_like_java(data)
    _check_nesting(text)
    reasons: dict[str, str] = {}
    for reader, (releases, read) in _READERS.items():
        try:
            value = read(text)
            if not isinstance(value, dict):
                raise JavaJsonError("not a JSON object")
            return decode(value, reader)
        except JavaJsonError as exc:
            reasons.setdefault(str(exc), releases)
        except RecursionError:
            reasons.setdefault("nested too deeply", releases)
    raise MalformedZnode("; ".join(f"{why} ({releases})" for why, releases in reasons.items()))


def is_int32(value: Json) -> bool:
    """Whether it is an integer in the range of Java's ``int``; true and false are not."""
    return type(value) is int and INT32_MIN <= value <= INT32_MAX


def _check_nesting(text: str) -> None:
    if text.count("[") + text.count("{") <= NESTING_MAX:
        return
    depth = 0
    for bracket in re.findall(r'"(?:\\.|[^"\\])*+"?|[\[{\]}]', text, re.DOTALL):
        if bracket in "[{":
            depth += 1
        elif bracket in "]}":
            depth -= 1
        if depth > NESTING_MAX:
            raise MalformedZnode(f"brackets nested more than {NESTING_MAX} deep")


# --- Jackson ----------------------------------------------------------------------------------------------------


def _integer(digits: str) -> int | UnparsedNumber:
    return int(digits) if len(digits) <= 20 else UnparsedNumber(digits)


def _no_constant(name: str) -> NoReturn:
    raise JavaJsonError(f"{name} is not a JSON number")


_JACKSON = json.JSONDecoder(parse_int=_integer, parse_float=UnparsedNumber, parse_constant=_no_constant)


def read_jackson_json(text: str) -> Json:
    """Parse as Jackson does (1.0 and later).  Raises ``JavaJsonError``."""
    start = len(text) - len(text.lstrip(" \t\r\n"))
    if start == len(text):
        raise JavaJsonError("empty")
    try:
        value: Json = _JACKSON.raw_decode(text, start)[0]
    except json.JSONDecodeError as exc:
        raise JavaJsonError(f"not JSON: {exc.msg} at character {exc.pos}") from exc
    return value


def read_double_escaped_json(text: str) -> Json:
    """Parse with every backslash doubled, as 1.0.1 and later do in their second attempt.  Raises ``JavaJsonError``."""
    return read_jackson_json(text.replace("\\", "\\\\"))


# --- Scala's parser combinators ---------------------------------------------------------------------------------

_END_OF_INPUT = "\x1a"
_BLANK = re.compile(r"[\x00-\x19\x1b-\x20]*")
# Possessive, because the parser combinators do not backtrack: a string that ends with an escaped quote is not closed.
_STRING = re.compile(r'"((?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|[^"\n\x1a])*+)"')
_ESCAPE = re.compile(r'\\(?:(["\\/bfnrt])|u([0-9a-fA-F]{4}))')
_NUMBER = re.compile(r"(-?)[\x00-\x19\x1b-\x20]*((?:0|(?!0)\d+)(\.\d*)?([eE][+-]?\d+)?)")
_PLAIN_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LITERALS: dict[str, Json] = {"true": True, "false": False, "null": None}


def read_scala_json(text: str) -> Json:
    """Parse as the releases up to 0.11 do.  Raises ``JavaJsonError``."""
    reader = _ScalaJsonParser(text)
    reader.skip_blanks()
    if reader.peek() not in ("{", "["):
        raise JavaJsonError("neither an object nor an array" if text else "empty")
    value = reader.value()
    reader.skip_blanks()
    if reader.position != len(text):
        raise reader.invalid("the end")
    return value


class _ScalaJsonParser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def skip_blanks(self) -> None:
        if self.peek() > " ":
            return  # the usual case, without the cost of a regular expression: a text may have a million characters
        blank = _BLANK.match(self.text, self.position)
        assert blank is not None, "the pattern also matches the empty text"
        self.position = blank.end()

    def invalid(self, wanted: str) -> JavaJsonError:
        return JavaJsonError(f"not JSON: expected {wanted} at character {self.position}")

    def take(self, delimiter: str) -> bool:
        self.skip_blanks()
        if not self.text.startswith(delimiter, self.position):
            return False
        self.position += 1
        return True

    def value(self) -> Json:
        self.skip_blanks()
        first = self.peek()
        if first in ("{", "["):
            self.position += 1
            return self._object() if first == "{" else self._array()
        if first == '"':
            return self._string()
        if first == "-" or first.isdecimal():
            return self._number()
        word = self._letters()
        if word not in _LITERALS:
            raise self.invalid("a value")
        self.position += len(word)
        return _LITERALS[word]

    def _object(self) -> Json:
        members: dict[str, Json] = {}
        if self.take("}"):
            return members
        while True:
            self.skip_blanks()
            key = self._string()
            if not self.take(":"):
                raise self.invalid("':'")
            members[key] = self.value()
            if self.take("}"):
                return members
            if not self.take(","):
                raise self.invalid("',' or '}'")

    def _array(self) -> Json:
        items: list[Json] = []
        if self.take("]"):
            return items
        while True:
            items.append(self.value())
            if self.take("]"):
                return items
            if not self.take(","):
                raise self.invalid("',' or ']'")

    def _string(self) -> str:
        found = _STRING.match(self.text, self.position)
        if found is None:
            raise self.invalid("a string")
        self.position = found.end()
        inner = found[1]
        return _join_surrogates(_ESCAPE.sub(_unescaped, inner) if "\\" in inner else inner)

    def _number(self) -> int:
        found = _NUMBER.match(self.text, self.position)
        if found is None:
            raise self.invalid("a number")
        self.position = found.end()
        sign, digits, fraction, exponent = found.groups()
        if self._letters():
            raise self.invalid("the end of a number")
        # Those releases call Integer.parseInt for every number.  For Java, a digit above U+FFFF is two chars.
        is_digits = fraction is None and exponent is None and digits <= "\uffff"
        number = int(sign + digits) if is_digits and len(digits) <= 19 else None
        if number is None or not is_int32(number):
            raise JavaJsonError(f"the number {(sign + digits)[:40]} is not an int32")
        return number

    def _letters(self) -> str:
        """The next letters: at most one more than the longest JSON literal has."""
        if not self.peek().isalpha():
            return ""
        ahead = self.text[self.position : self.position + len("false") + 1]
        return "".join(takewhile(str.isalpha, ahead))


def _unescaped(escape: re.Match[str]) -> str:
    plain, code = escape.groups()
    return chr(int(code, 16)) if code else _PLAIN_ESCAPES.get(plain, plain)


def _join_surrogates(text: str) -> str:
    r"""Replace escaped surrogate pairs (``\ud83d\ude00``) by the character, as in UTF-16."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


_READERS: dict[JsonReaderKind, tuple[str, Callable[[str], Json]]] = {
    "strict": ("from 1.0 on", read_jackson_json),
    "old": ("up to 0.11", read_scala_json),
    "doubled": ("from 1.0.1 on", read_double_escaped_json),
}
