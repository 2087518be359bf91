"""How the old console consumer prints a message: its ``--property`` settings.

    [timestamp SEPARATOR][key SEPARATOR][value]LINE      as DefaultMessageFormatter of 0.8.2 to 1.1

A null prints as ``null``.  A part that is not printed has no separator either; without the value there is no line end
(0.11 and later).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from zkconsumer.errors import UsageError

if TYPE_CHECKING:
    from zkconsumer.streams import MessageAndMetadata

LinePart: TypeAlias = "bytes | Callable[[Any], bytes]"

PRINT_TIMESTAMP, PRINT_KEY, PRINT_VALUE = "print.timestamp", "print.key", "print.value"
KEY_SEPARATOR, LINE_SEPARATOR = "key.separator", "line.separator"
DEFAULTS = {
    PRINT_TIMESTAMP: "false",
    PRINT_KEY: "false",
    PRINT_VALUE: "true",
    KEY_SEPARATOR: "\t",
    LINE_SEPARATOR: "\n",
}
"""Property → default, of the properties that apply to bytes; deserializers are Java classes."""

TIMESTAMP_TYPES = {0: "CreateTime", 1: "LogAppendTime"}


def console_format(properties: Sequence[str]) -> list[LinePart]:
    """The parts of a line from ``key=value`` texts; raises ``UsageError`` for an unknown property."""
    given = dict(DEFAULTS)
    for text in properties:
        key, equals, value = text.partition("=")
        if not equals or key not in DEFAULTS:
            raise UsageError(f"--property {text}: write KEY=VALUE; the properties are {', '.join(DEFAULTS)}")
        given[key] = value
    between, line_end = given[KEY_SEPARATOR].encode(), given[LINE_SEPARATOR].encode()
    has_value = _is_true(given, PRINT_VALUE)
    parts: list[LinePart] = []
    if _is_true(given, PRINT_TIMESTAMP):
        parts += [_timestamp, between]
    if _is_true(given, PRINT_KEY):
        parts += [_key, between]
    if has_value:
        parts += [_value, line_end]
    return parts


def _is_true(given: dict[str, str], key: str) -> bool:
    """As the Scala consumer reads it: ``true`` in any case is true, everything else is false."""
    return given[key].strip().lower() == "true"


def _timestamp(message: MessageAndMetadata[bytes, bytes]) -> bytes:
    kind = TIMESTAMP_TYPES.get(message.timestamp_type)
    return b"NO_TIMESTAMP" if kind is None else f"{kind}:{message.timestamp}".encode()


def _key(message: MessageAndMetadata[bytes, bytes]) -> bytes:
    return b"null" if message.key is None else message.key


def _value(message: MessageAndMetadata[bytes, bytes]) -> bytes:
    return b"null" if message.value is None else message.value
