"""Formats dates like ``java.text.SimpleDateFormat``, for options of the tools of Kafka.

``compile_date_format("yyyy-MM-dd HH:mm:ss:SSS")`` returns a function from milliseconds since 1970 to text, in the time
zone of this machine and in English.  It supports the letters of Java 8 except week years and weeks (``Y w W F``), the
standalone month (``L``) and the full name of a zone (``zzzz``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

from zkconsumer.errors import UsageError

DateFormat: TypeAlias = Callable[[int], str]
_Part: TypeAlias = Callable[[datetime], str]

MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
          "November", "December")  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SHORT_CHARS = 3
"""Names of months and days."""

# A text in quotes (two quotes are one), a run of one letter, or any other character unchanged.
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^'A-Za-z]+")

_NUMBERS: dict[str, Callable[[datetime], int]] = {
    "d": lambda at: at.day,
    "D": lambda at: at.timetuple().tm_yday,
    "H": lambda at: at.hour,
    "k": lambda at: at.hour or 24,
    "K": lambda at: at.hour % 12,
    "h": lambda at: at.hour % 12 or 12,
    "m": lambda at: at.minute,
    "s": lambda at: at.second,
    "S": lambda at: at.microsecond // 1000,
    "u": lambda at: at.isoweekday(),
}
KNOWN = "y M d D E u a H k K h m s S z Z X G"


def compile_date_format(pattern: str) -> DateFormat:
    """A function from ms since 1970 to text.  Raises ``UsageError`` for a letter that is not supported."""
    parts: list[_Part] = []
    at = 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            raise UsageError(f"the date format {pattern!r} has a quote that does not end; '' is one quote")
        at = token.end()
        parts.append(_letters(pattern, token[2], len(token[0])) if token[2] else _text(token[1], token[0]))

    def format_date(ms: int) -> str:
        when = datetime.fromtimestamp(ms // 1000, UTC).astimezone().replace(microsecond=ms % 1000 * 1000)
        return "".join(part(when) for part in parts)

    return format_date


def _text(quoted: str | None, plain: str) -> _Part:
    text = plain if quoted is None else quoted.replace("''", "'") or "'"
    return lambda _: text


def _letters(pattern: str, letter: str, count: int) -> _Part:
    if letter in _NUMBERS:
        number = _NUMBERS[letter]
        return lambda at: f"{number(at):0{count}d}"
    match letter:
        case "y":
            return lambda at: f"{at.year % 100:02d}" if count == 2 else f"{at.year:0{count}d}"
        case "M" if count < SHORT_CHARS:
            return lambda at: f"{at.month:0{count}d}"
        case "M":
            return lambda at: _name(MONTHS[at.month - 1], count)
        case "E":
            return lambda at: _name(DAYS[at.weekday()], count)
        case "a":
            return lambda at: "AM" if at.hour < 12 else "PM"
        case "G":
            return lambda _: "AD"
        case "z" if count <= SHORT_CHARS:
            return lambda at: at.tzname() or ""
        case "Z":
            return lambda at: at.strftime("%z")[:5]
        case "X" if count <= 3:
            return lambda at: _iso_zone(at.strftime("%z"), count)
    raise UsageError(
        f"the date format {pattern!r} has {letter * count!r}, which is not supported; the letters are {KNOWN}"
    )


def _name(name: str, count: int) -> str:
    return name if count > SHORT_CHARS else name[:SHORT_CHARS]


def _iso_zone(offset: str, count: int) -> str:
    if offset == "+0000":
        return "Z"
    return (offset[:3], offset[:5], f"{offset[:3]}:{offset[3:5]}")[count - 1]
