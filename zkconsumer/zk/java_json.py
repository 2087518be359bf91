r"""JSON as the releases of the original read it.  Pure.

Two parsers in three uses.  A text that one of them takes and another refuses is a text that some member of the
group takes, so a caller tries them in this order until one gives what it can use:

    strict    Jackson, from 1.0 on: proper JSON, any numbers; what follows the first value is not looked at
    old       Scala's parser combinators, up to 0.11: a backslash that escapes nothing stays in the string, control
              characters are allowed in strings and between tokens, digits of any script are digits; but *every*
              number, also one that nobody reads, must be an int32
    doubled   Jackson again, as 1.0.1 and later do when the first reading failed: every backslash doubled

Where two of them read the same text differently (only where *strict* refused), *old* goes first.
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
    """A number that is no integer, or has more than 19 digits; the text is kept."""

    text: str


Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | bool | UnparsedNumber | None"

JsonReaderKind: TypeAlias = Literal["strict", "old", "doubled"]

T = TypeVar("T")


class JavaJsonError(Exception):
    """A reader rejects this text, or a decoder rejects this value; the text explains why."""


def read_object(data: bytes, decode: Callable[[dict[str, Json], JsonReaderKind], T]) -> T:
    """The first reading that ``decode`` accepts; it is told whose reading it is, and raises ``JavaJsonError`` if not.

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
    raise JavaJsonError(f"{name} is no JSON number")


_JACKSON = json.JSONDecoder(parse_int=_integer, parse_float=UnparsedNumber, parse_constant=_no_constant)


def read_jackson_json(text: str) -> Json:
    """As Jackson reads it.  Raises ``JavaJsonError``."""
    start = len(text) - len(text.lstrip(" \t\r\n"))
    if start == len(text):
        raise JavaJsonError("empty")
    try:
        value: Json = _JACKSON.raw_decode(text, start)[0]
    except json.JSONDecodeError as exc:
        raise JavaJsonError(f"not JSON: {exc.msg} at character {exc.pos}") from exc
    return value


def read_double_escaped_json(text: str) -> Json:
    """As 1.0.1 and later read what they could not read.  Raises ``JavaJsonError``."""
    return read_jackson_json(text.replace("\\", "\\\\"))


# --- Scala's parser combinators ---------------------------------------------------------------------------------

_END_OF_INPUT = "\x1a"
_BLANK = re.compile(r"[\x00-\x19\x1b-\x20]*")
# Possessive, because the parser combinators do not go back: an escaped quote at the end leaves the string open.
_STRING = re.compile(r'"((?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|[^"\n\x1a])*+)"')
_ESCAPE = re.compile(r'\\(?:(["\\/bfnrt])|u([0-9a-fA-F]{4}))')
_NUMBER = re.compile(r"(-?)[\x00-\x19\x1b-\x20]*((?:0|(?!0)\d+)(\.\d*)?([eE][+-]?\d+)?)")
_PLAIN_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LITERALS: dict[str, Json] = {"true": True, "false": False, "null": None}


def read_scala_json(text: str) -> Json:
    """As the releases up to 0.11 read it.  Raises ``JavaJsonError``."""
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
            return  # nearly always; a mebibyte has a million places to look at
        blank = _BLANK.match(self.text, self.position)
        assert blank is not None, "matches nothing at least"
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
        # Integer.parseInt, whatever the number is for.  Digits beyond the basic plane are two chars to Java.
        is_digits = fraction is None and exponent is None and digits <= "\uffff"
        number = int(sign + digits) if is_digits and len(digits) <= 19 else None
        if number is None or not is_int32(number):
            raise JavaJsonError(f"the number {(sign + digits)[:40]} is no int32")
        return number

    def _letters(self) -> str:
        """The letters that come next: as many as are needed to see that they are no word of JSON."""
        if not self.peek().isalpha():
            return ""
        ahead = self.text[self.position : self.position + len("false") + 1]
        return "".join(takewhile(str.isalpha, ahead))


def _unescaped(escape: re.Match[str]) -> str:
    plain, code = escape.groups()
    return chr(int(code, 16)) if code else _PLAIN_ESCAPES.get(plain, plain)


def _join_surrogates(text: str) -> str:
    r"""Two escaped halves (``\ud83d\ude00``) are one character, as in any UTF-16 string."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


_READERS: dict[JsonReaderKind, tuple[str, Callable[[str], Json]]] = {
    "strict": ("from 1.0 on", read_jackson_json),
    "old": ("up to 0.11", read_scala_json),
    "doubled": ("from 1.0.1 on", read_double_escaped_json),
}
