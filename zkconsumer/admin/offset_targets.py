"""The arguments of ``offsets set``: which partitions, and the new offset of each.  Pure.

The scopes and the targets are those of ``kafka-consumer-groups --reset-offsets`` (KIP-122, Kafka 0.11 to 3.9), with its
rules: an offset outside the log becomes the nearer end (``--to-offset``, ``--shift-by``, ``--from-file``), a time later
than every record means the end, and ``--to-current`` of a partition without an offset means the end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, TypeAlias

from zkconsumer.errors import UsageError
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from zkconsumer.admin.log_ranges import LogRange

# --- targets ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToEarliest:
    """The start of the log."""


@dataclass(frozen=True, slots=True)
class ToLatest:
    """The end of the log."""


@dataclass(frozen=True, slots=True)
class ToCurrent:
    """The present offset; the end of the log if there is none."""


@dataclass(frozen=True, slots=True)
class ToOffset:
    """This offset, or the nearer end of the log."""

    offset: int


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """The present offset plus or minus this number, or the nearer end of the log."""

    by: int


@dataclass(frozen=True, slots=True)
class ToTime:
    """The first record at or after a time, in milliseconds since 1970; or the end of the log."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class ToFile:
    """The offset in a file, or the nearer end of the log."""

    offsets: Mapping[TopicPartition, int]


ResetTarget: TypeAlias = ToEarliest | ToLatest | ToCurrent | ToOffset | ShiftBy | ToTime | ToFile


@dataclass(frozen=True, slots=True)
class ResetOffset:
    """The new offset of a partition, and a remark for the user."""

    offset: int
    remark: str = ""


def resolve_target(
    target: ResetTarget, tp: TopicPartition, current: int | None, log: LogRange | str
) -> ResetOffset | str:
    """The new offset of a partition, or why it is unknown.  ``log`` may be the reason why its range is unknown."""
    match target:
        case ToCurrent() if current is not None:
            return ResetOffset(current)
        case ShiftBy() if current is None:
            return "it has no offset to shift"
    if isinstance(log, str):
        return log
    match target:
        case ToEarliest():
            return ResetOffset(log.earliest)
        case ToLatest():
            return ResetOffset(log.latest)
        case ToCurrent():
            return ResetOffset(log.latest, "had no offset: the end of the log")
        case ToOffset(offset):
            return _clamped(offset, log)
        case ShiftBy(by):
            assert current is not None, "checked above"
            return _clamped(current + by, log)
        case ToFile(offsets):
            return _clamped(offsets[tp], log)
        case ToTime():
            return _at_time(log)


def _clamped(offset: int, log: LogRange) -> ResetOffset:
    if offset > log.latest:
        return ResetOffset(log.latest, f"{offset} is beyond the end of the log")
    if offset < log.earliest:
        return ResetOffset(log.earliest, f"{offset} is before the start of the log")
    return ResetOffset(offset)


_KIND_REMARKS = {
    "exact": "",
    "end": "no record is that new: the end of the log",
    "segment": "by segment: may be earlier than requested",
    "start": "by segment: the start of the log",
}


def _at_time(log: LogRange) -> ResetOffset:
    assert log.for_time is not None, "the range was requested with the time"
    return ResetOffset(log.for_time.offset, _KIND_REMARKS[log.for_time.kind])


# --- scopes -----------------------------------------------------------------------------------------------------

Scope: TypeAlias = "Mapping[str, frozenset[int] | None]"
"""Topic → partitions, None: all of its partitions."""


def parse_scope(texts: Iterable[str]) -> dict[str, frozenset[int] | None]:
    """``T`` and ``T:0,1,2``, as ``--topic`` of Kafka's tool.  Raises ``UsageError``."""
    scope: dict[str, frozenset[int] | None] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        paths.check_topic(topic)
        known = scope.get(topic, frozenset())
        scope[topic] = known | _numbers(text, numbers) if colon and known is not None else None
    return scope


def _numbers(text: str, numbers: str) -> frozenset[int]:
    found = [paths.partition_number(number.strip()) for number in numbers.split(",")]
    if None in found:
        raise UsageError(f"--topic {text!r}: expected a topic, or a topic and partitions as in clicks:0,1,2")
    return frozenset(number for number in found if number is not None)


def in_scope(scope: Scope | None, tp: TopicPartition) -> bool:
    """Whether a partition is selected; ``scope`` None: all are."""
    if scope is None:
        return True
    return tp.topic in scope and ((numbers := scope[tp.topic]) is None or tp.partition in numbers)


# --- times ------------------------------------------------------------------------------------------------------

_DATETIME = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})(?:\.(\d{3}))?(Z|[+-]\d{2}(?::?\d{2})?)?", re.ASCII
)
_DURATION = re.compile(
    r"P(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,9})(?:\.(?P<millis>\d{1,3}))?S)?)?",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def parse_datetime(text: str) -> int:
    """``YYYY-MM-DDTHH:mm:SS.sss`` with ``Z``, ``+01:00``, ``+0100``, ``+01`` or nothing after it, in ms since 1970.

    Without a zone it is UTC, as in Kafka's tool (0.11 to 3.9).  Milliseconds may be missing here; if present, they must
    be three digits: Kafka's tool reads ``.5`` as five milliseconds.  Raises ``UsageError``.
    """
    found = _DATETIME.fullmatch(text)
    if found is None:
        raise UsageError(f"--to-datetime {text!r}: expected YYYY-MM-DDTHH:mm:SS.sss, UTC or with a zone as in +01:00")
    year, month, day, hour, minute, second, millis = (int(digits or 0) for digits in found.groups()[:-1])
    try:
        moment = datetime(year, month, day, hour, minute, second, millis * 1_000, tzinfo=_zone(found.groups()[-1]))
        return (moment - _EPOCH) // _MS
    except (ValueError, OverflowError) as error:
        raise UsageError(f"--to-datetime {text!r}: {error}") from error


def _zone(text: str | None) -> timezone:
    if text is None or text == "Z":
        return UTC
    digits = text[1:].replace(":", "")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:] or 0))
    return timezone(-offset if text[0] == "-" else offset)


def parse_duration(text: str, option: str = "--by-duration") -> int:
    """``PnDTnHnMnS`` in milliseconds; a day has 24 hours.  ``option``: the name for errors.

    Years and months, which 1.1 accepted and 3.9 does not, are rejected.  Raises ``UsageError``.
    """
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        raise UsageError(f"{option} {text!r}: expected PnDTnHnMnS, as in P1DT2H or PT30M")
    days, hours, minutes, seconds = (int(found[name] or 0) for name in ("days", "hours", "minutes", "seconds"))
    millis = int((found["millis"] or "0").ljust(3, "0"))
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000 + millis


def datetime_text(time_ms: int) -> str:
    """A time as text, in UTC; the number itself if it is outside the range of the calendar."""
    try:
        return (_EPOCH + time_ms * _MS).strftime("%Y-%m-%dT%H:%M:%S.") + f"{time_ms % 1_000:03}Z"
    except (ValueError, OverflowError):
        return f"{time_ms} ms since 1970"
