"""Reads untrusted JSON, member by member.  Pure.

    members = JsonObjectReader.parse(line, "line 1")
    group = members.text("group", 1_000)
    members.reject_unknown_keys()            # a member that was not read is an error

Any bytes give the requested values, or ``InvalidJsonError`` with the place, and no other error: no duplicate key, no
fraction, no NaN, no number beyond 64 bits, no unpaired surrogate, no nesting that exceeds the parser's limit.
(``zkconsumer.strict_json`` reads files of offsets, which people write: the whole object, with fractions.)
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NoReturn, TypeAlias, TypeVar

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | bool | None"

DIGITS_MAX = 20
INT64_MAX = 2**63 - 1
TEXT_CHARS_MAX = 100_000
"""The longest text, if the caller gives no shorter limit."""

T = TypeVar("T")


class InvalidJsonError(ValueError):
    """The text is not valid; the error contains the place and the reason."""


class JsonObjectReader:
    """One JSON object, from which every member is read once."""

    def __init__(self, value: JsonValue, where: str) -> None:
        if not isinstance(value, dict):
            raise InvalidJsonError(f"{where}: not a JSON object")
        self._members = dict(value)
        self._where = where

    @classmethod
    def parse(cls, text: str, where: str) -> JsonObjectReader:
        """The object in a text.  Raises ``InvalidJsonError``."""
        return cls(parse_json(text, where), where)

    def error(self, why: str) -> InvalidJsonError:
        """An error with this place."""
        return InvalidJsonError(f"{self._where}: {why}")

    def reject_unknown_keys(self) -> None:
        """Raises ``InvalidJsonError`` when a member was not read."""
        if self._members:
            raise self.error(f"{next(iter(self._members))[:50]!r} is not known here")

    def has(self, name: str) -> bool:
        """Whether there is such a member."""
        return name in self._members

    def take(self, name: str) -> JsonValue:
        """A member of any type."""
        if name not in self._members:
            raise self.error(f"{name!r} is missing")
        return self._members.pop(name)

    def text(self, name: str, chars_max: int = TEXT_CHARS_MAX) -> str:
        """A text."""
        value = self.take(name)
        if isinstance(value, str) and len(value) <= chars_max and value.isascii():
            return value  # the usual case, a million times a plan
        return as_text(value, self._location(name), chars_max)

    def number(self, name: str, lowest: int = 0, highest: int = INT64_MAX) -> int:
        """An integer between these, both included."""
        value = self.take(name)
        if type(value) is int and lowest <= value <= highest:
            return value
        return as_number(value, self._location(name), lowest, highest)

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self.take(name)
        if not isinstance(value, bool):
            raise self.error(f"{name!r} is neither true nor false")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts."""
        return tuple(as_text(each, self._location(name), TEXT_CHARS_MAX) for each in self.items(name))

    def items(self, name: str) -> list[JsonValue]:
        """A list."""
        return as_list(self.take(name), self._location(name))

    def take_object(self, name: str) -> JsonObjectReader:
        """An object."""
        return JsonObjectReader(self.take(name), self._location(name))

    def take_entries(self, name: str) -> list[tuple[str, JsonValue]]:
        """The members of an object, whose names are data."""
        value = self.take(name)
        if not isinstance(value, dict):
            raise self.error(f"{name!r} is no object")
        return [(as_text(key, self._location(name), TEXT_CHARS_MAX), each) for key, each in value.items()]

    def nullable(self, name: str, read: Callable[[str], T]) -> T | None:
        """``read(name)``, None for null."""
        if name in self._members and self._members[name] is None:
            del self._members[name]
            return None
        return read(name)

    def optional(self, name: str, read: Callable[[str], T], missing: T) -> T:
        """``read(name)``, or ``missing`` where the member does not exist."""
        return read(name) if name in self._members else missing

    def checked(self, name: str, check: Callable[[str], T]) -> T:
        """A text that ``check`` accepts; for others it raises ``ValueError`` or an error of the package."""
        text = self.text(name)
        try:
            return check(text)
        except Exception as error:
            raise self.error(f"{name!r}: {error}") from error

    def _location(self, name: str) -> str:
        return f"{self._where}: {name!r}"


def parse_json(text: str, where: str) -> JsonValue:
    """One JSON value, and nothing after it.  Raises ``InvalidJsonError``."""
    try:
        value: JsonValue = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise InvalidJsonError(f"{where}: not JSON, {error.msg} at character {error.pos}") from error
    except RecursionError as error:
        raise InvalidJsonError(f"{where}: nested too deeply") from error
    except InvalidJsonError as error:
        raise InvalidJsonError(f"{where}: {error}") from error
    return value


def as_text(value: JsonValue, where: str, chars_max: int) -> str:
    """A text of at most so many characters that can be encoded in UTF-8."""
    if not isinstance(value, str):
        raise InvalidJsonError(f"{where} is no text")
    if len(value) > chars_max:
        raise InvalidJsonError(f"{where} has {len(value)} characters; the limit is {chars_max}")
    if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
        raise InvalidJsonError(f"{where} contains an unpaired surrogate")
    return value


def as_number(value: JsonValue, where: str, lowest: int = 0, highest: int = INT64_MAX) -> int:
    """An integer between these, both included; true and false are none."""
    if type(value) is not int or not lowest <= value <= highest:
        raise InvalidJsonError(f"{where} is no integer from {lowest} to {highest}")
    return value


def as_list(value: JsonValue, where: str, length: int | None = None) -> list[JsonValue]:
    """A list, of this length if one is given."""
    if not isinstance(value, list) or (length is not None and len(value) != length):
        raise InvalidJsonError(f"{where} is no list{'' if length is None else f' of {length}'}")
    return value


def _integer(digits: str) -> int:
    if len(digits) > DIGITS_MAX:
        raise InvalidJsonError(f"a number has {len(digits)} digits")
    return int(digits)


def _reject_fraction(text: str) -> NoReturn:
    raise InvalidJsonError(f"{text[:DIGITS_MAX]} is no integer")


def _reject_duplicate_keys(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    members = dict(pairs)
    if len(members) != len(pairs):
        twice = next(name for name in members if sum(name == other for other, _ in pairs) > 1)
        raise InvalidJsonError(f"{twice[:50]!r} is a duplicate key")
    return members


_DECODER = json.JSONDecoder(
    object_pairs_hook=_reject_duplicate_keys,
    parse_int=_integer,
    parse_float=_reject_fraction,
    parse_constant=_reject_fraction,
)
