"""The history of a group under test: one JSON object a line, written by all programs that observe the group.

Converts lines to events of ``events`` and back, and contains the writer that a member's program uses.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import IO, Any, Self, get_args

from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.testing.checker.events import (
    EVENT_NAMES,
    EVENTS,
    OFFSET_MAX,
    HistoryError,
    HistoryEvent,
    HistoryMemberKind,
    HistoryStore,
    OffsetSpans,
    PolicyChanged,
    RecordDelivered,
    RecordRangeDelivered,
    StateTime,
    in_order,
)
from zkconsumer.testing.checker.policy import Policy

LINE_BYTES_MAX = 64 * 1024 * 1024
RANGE_RECORDS_MAX = 1_000_000

# --- parsing ----------------------------------------------------------------------------------------------------


def parse_line(raw: bytes, number: int) -> HistoryEvent:
    """The event of one line; raises ``HistoryError`` with the line number."""
    if len(raw) > LINE_BYTES_MAX:
        raise HistoryError(number, f"longer than {LINE_BYTES_MAX} bytes")
    try:
        found = json.loads(raw.decode("utf-8"))
        if b"\\u" in raw:  # an escape may be half of a surrogate pair, which cannot be printed
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError as problem:
        raise HistoryError(number, "it has half of a surrogate pair") from problem
    except (ValueError, RecursionError) as problem:
        raise HistoryError(number, f"not JSON: {problem}") from problem
    if not isinstance(found, dict):
        raise HistoryError(number, "not a JSON object")
    name = found.pop("event", None)
    event = EVENTS.get(name) if isinstance(name, str) else None
    if event is None:
        raise HistoryError(number, f"unknown event {name!r}")
    try:
        if event is PolicyChanged:
            return PolicyChanged(_whole(found.pop("t", None)), Policy.check_changes(found), line=number)
        for field_name, check, needed in _SHAPES[event]:
            if field_name in found:
                found[field_name] = check(found[field_name])
            elif needed:
                raise ValueError(f"{name} needs {field_name!r}")
        if not found.keys() <= _FIELDS[event]:
            raise ValueError(f"{name} has no field {min(found.keys() - _FIELDS[event])!r}")
        if event is RecordRangeDelivered and not 0 <= found["last"] - found["first"] < RANGE_RECORDS_MAX:
            raise ValueError(f"handed_range must contain 1 to {RANGE_RECORDS_MAX} records")
        return event(**found, line=number)
    except ValueError as problem:
        raise HistoryError(number, str(problem)) from problem


def read_history(source: Path | IO[bytes]) -> list[HistoryEvent]:
    """All events, in the order of their time; raises ``HistoryError``, or ``OSError`` of the file."""
    if isinstance(source, Path):
        with source.open("rb") as stream:
            return in_order(_events(stream))
    return in_order(_events(source))


def _events(stream: IO[bytes]) -> Iterator[HistoryEvent]:
    number = 0
    while raw := stream.readline(LINE_BYTES_MAX + 1):
        number += 1
        if not raw.isspace():
            yield parse_line(raw, number)


def _whole(value: object) -> int:
    if type(value) is int and 0 <= value <= OFFSET_MAX:
        return value
    raise ValueError(f"{_short(value)} is not a whole number from 0")


def _session(value: object) -> int:
    if type(value) is int:  # ZooKeeper's session ids are signed
        return value
    raise ValueError(f"{_short(value)} is not a whole number")


def _text(value: object) -> str:
    if isinstance(value, str) and value:
        # A million lines contain few names of members and topics: store each once.
        return sys.intern(value)
    raise ValueError(f"{_short(value)} is not a text")


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(f"{_short(value)} is not true or false")


def _one_of(what: str, words: tuple[str, ...]) -> Callable[[object], object]:
    def check(value: object) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise ValueError(f"{what} {_short(value)} is not one of {', '.join(words)}")

    return check


def _spans(value: object) -> OffsetSpans:
    if not isinstance(value, list):
        raise ValueError("missing is not a list")
    spans = []
    for item in value:
        pair = item if isinstance(item, list) else [item, item]
        if len(pair) != 2 or _whole(pair[0]) > _whole(pair[1]):
            raise ValueError(f"{_short(item)} is not [first, last]")
        spans.append((pair[0], pair[1]))
    return tuple(spans)


def _owners(value: object) -> dict[str, str | None]:
    if not isinstance(value, dict):
        raise ValueError("expected is not an object")
    for partition, owner in value.items():
        topic, slash, number = partition.rpartition("/")
        if not (topic and slash and number.isascii() and number.isdigit()):
            raise ValueError(f"{_short(partition)} is not topic/partition")
        if owner is not None:
            _text(owner)
    return value


def _texts(value: object) -> dict[str, str]:
    if isinstance(value, dict) and all(isinstance(text, str) for text in value.values()):
        return value
    raise ValueError(f"{_short(value)} is not an object of texts")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _or_none(check: Callable[[object], object]) -> Callable[[object], object]:
    return lambda value: None if value is None else check(value)


_CHECKS: Mapping[str, Callable[[object], object]] = {
    "int": _whole,
    "int | None": _or_none(_whole),
    "str": _text,
    "str | None": _or_none(_text),
    "bool": _flag,
    "HistoryMemberKind": _one_of("kind", get_args(HistoryMemberKind)),
    "HistoryStore": _one_of("store", get_args(HistoryStore)),
    "HistoryStore | None": _or_none(_one_of("store", get_args(HistoryStore))),
    "StateTime": _one_of("state", get_args(StateTime)),
    "OffsetSpans": _spans,
    "Mapping[str, str]": _texts,
    "Mapping[str, str | None]": _owners,
}


def _is_needed(f: Field[Any]) -> bool:
    return f.default is MISSING and f.default_factory is MISSING


_SHAPES: Mapping[type[HistoryEvent], tuple[tuple[str, Callable[[object], object], bool], ...]] = {
    event: tuple(
        (f.name, _session if f.name == "session" else _CHECKS[str(f.type)], _is_needed(f))
        for f in fields(event)
        if f.name != "line"
    )
    for event in EVENTS.values()
    if event is not PolicyChanged
}
_FIELDS: Mapping[type[HistoryEvent], frozenset[str]] = {
    event: frozenset(name for name, _, _ in shape) for event, shape in _SHAPES.items()
}


# --- writing ----------------------------------------------------------------------------------------------------


def dump_line(event: HistoryEvent) -> str:
    """The line of an event, without its end; fields with their default are omitted."""
    found: dict[str, Any] = {"t": event.t, "event": EVENT_NAMES[type(event)]}
    if isinstance(event, PolicyChanged):
        return json.dumps(found | dict(event.changes))
    for f in fields(event):
        value = getattr(event, f.name)
        if f.name not in ("t", "line") and (_is_needed(f) or value not in (f.default, {})):
            found[f.name] = value
    return json.dumps(found, ensure_ascii=False)


class HistoryWriter:
    """Appends lines to a history; several threads and processes may write one file.

    Each line is one ``write`` to a file opened for appending, made before the call returns: the line of a delivered
    record exists before the member can request more, even when it is killed a moment later.
    """

    def __init__(self, path: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def now_ms(self) -> int:
        """The time for a new event."""
        return self._clock.wall_ms()

    def write(self, event: HistoryEvent) -> None:
        """Append one event."""
        os.write(self._file, f"{dump_line(event)}\n".encode())

    def delivered(self, member: str, topic: str, partition: int, offset: int) -> None:
        """Append that this record was just returned to user code; call it before requesting the next."""
        self.write(RecordDelivered(self._clock.wall_ms(), member, topic, partition, offset))

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
