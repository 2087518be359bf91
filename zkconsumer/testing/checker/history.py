"""The history of a group under test: one JSON object a line, written by everybody who saw something.

What may live here: the events, the way from a line to an event and back, and the writer that a member's program
uses.  What may not: any opinion about a history; those are in ``checker``.

Every line has ``t`` (wall clock milliseconds; all writers of one history stand on one machine) and ``event``.
Lines are merged by ``t``; lines of one millisecond keep the order of the file and are held to be *unordered* where
they come from different programs.  An unknown event, an unknown field, a missing field or a wrong type is refused
with its line number, because a misspelt line would silently loosen the judgement.

===============  =================================================================================================
event            fields (``?`` = may be left out)
===============  =================================================================================================
log              topic partition start end missing?    what the broker holds; ``end`` exclusive; ``missing`` is a list
                                                       of offsets or [first, last] pairs (compaction, control records)
started_at       topic partition offset                stored offset before the test; default: the log's start
member           member kind pid? consumer_id? streams?   kind "ours" or "scala"; owner nodes of ``<consumer_id>-<n>``
                                                       are this member's (default: its name); streams: threads, 1
joined           member                                its registration is in the group
leaving          member                                close() was called
left             member clean?                         close() returned (Scala: the process is gone); clean: true
killed           member                                SIGKILL, stamped when the process was reaped
paused           member                                SIGSTOP was sent
continued        member                                SIGCONT was sent
expired          member                                its session was seen gone
claimed          member topic partition offset?        by the member: its claim succeeded; offset: where it starts
released         member topic partition                by the member: its owner node is deleted
drain_timeout    member topic partition                by the member: released with a message still in the caller's hand
handed           member topic partition offset         by the member: one record was returned to user code
handed_range     member topic partition first last     the same for each offset first..last, all in this millisecond
consumed         member topic partition offset         by the member: the caller came back after this record
commit_called    member                                by the member: commit_offsets() was called by user code
committed        topic partition offset by? zxid?      the stored offset was seen changed
owner            topic partition owner session? zxid?  the owner node was seen with this thread id, or null: deleted
reset            topic partition offset reason member?    an allowed jump (auto.offset.reset, a journalled reset)
assignment       expected                              the group has settled, owners must be these: {"t/0": thread id}
settled                                                the group has settled: each partition has one living owner
drained          topic? partition?                     everything in the log (of this topic, partition) must be read
policy           fields of ``Policy``                  limits and tolerances of this history
note             text                                  for the reader
===============  =================================================================================================

``committed``, ``owner``, ``expired``, ``joined`` of Scala members come from an *observer* (a watch): never early, late
by at most ``observer_delay_ms``.  ``zxid`` (mzxid of the offset node, czxid of the owner node) puts reports of one
node in order; a report that is not newer than one already seen is old news.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import IO, Any, Literal, Self, TypeAlias, get_args

from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.errors import UsageError
from zkconsumer.testing.checker.policy import Policy

LINE_BYTES_MAX = 64 * 1024 * 1024
RANGE_RECORDS_MAX = 1_000_000
OFFSET_MAX = 2**63 - 1

Kind = Literal["ours", "scala"]
Spans: TypeAlias = tuple[tuple[int, int], ...]
"""Offsets as (first, last) pairs, both inclusive."""


class HistoryError(UsageError):
    """A history cannot be read; the text names the line and what is wrong with it."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}" if line else problem)
        self.line = line
        self.problem = problem


# --- the events -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Event:
    """What every line has: when, and (for evidence) on which line; 0 = not from a file."""

    t: int
    line: int = field(default=0, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class OfPartition(Event):
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class OfMember(Event):
    member: str


@dataclass(frozen=True, slots=True)
class OfBoth(Event):
    member: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class LogHeld(OfPartition):
    start: int
    end: int
    missing: Spans = ()


@dataclass(frozen=True, slots=True)
class StartedAt(OfPartition):
    offset: int


@dataclass(frozen=True, slots=True)
class MemberKnown(OfMember):
    kind: Kind
    pid: int | None = None
    consumer_id: str | None = None
    streams: int = 1


@dataclass(frozen=True, slots=True)
class Joined(OfMember): ...


@dataclass(frozen=True, slots=True)
class Leaving(OfMember): ...


@dataclass(frozen=True, slots=True)
class Left(OfMember):
    clean: bool = True


@dataclass(frozen=True, slots=True)
class Killed(OfMember): ...


@dataclass(frozen=True, slots=True)
class Paused(OfMember): ...


@dataclass(frozen=True, slots=True)
class Continued(OfMember): ...


@dataclass(frozen=True, slots=True)
class Expired(OfMember): ...


@dataclass(frozen=True, slots=True)
class CommitCalled(OfMember): ...


@dataclass(frozen=True, slots=True)
class Claimed(OfBoth):
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Released(OfBoth): ...


@dataclass(frozen=True, slots=True)
class DrainTimedOut(OfBoth): ...


@dataclass(frozen=True, slots=True)
class Handed(OfBoth):
    offset: int


@dataclass(frozen=True, slots=True)
class HandedRange(OfBoth):
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Consumed(OfBoth):
    offset: int


@dataclass(frozen=True, slots=True)
class Committed(OfPartition):
    offset: int
    by: str | None = None
    zxid: int | None = None


@dataclass(frozen=True, slots=True)
class OwnerSeen(OfPartition):
    owner: str | None
    session: int | None = None
    zxid: int | None = None


@dataclass(frozen=True, slots=True)
class OffsetReset(OfPartition):
    offset: int
    reason: str
    member: str | None = None


@dataclass(frozen=True, slots=True)
class AssignmentExpected(Event):
    expected: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Settled(Event): ...


@dataclass(frozen=True, slots=True)
class Drained(Event):
    topic: str | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class PolicySet(Event):
    changes: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class Note(Event):
    text: str


EVENTS: Mapping[str, type[Event]] = {
    "log": LogHeld,
    "started_at": StartedAt,
    "member": MemberKnown,
    "joined": Joined,
    "leaving": Leaving,
    "left": Left,
    "killed": Killed,
    "paused": Paused,
    "continued": Continued,
    "expired": Expired,
    "claimed": Claimed,
    "released": Released,
    "drain_timeout": DrainTimedOut,
    "handed": Handed,
    "handed_range": HandedRange,
    "consumed": Consumed,
    "commit_called": CommitCalled,
    "committed": Committed,
    "owner": OwnerSeen,
    "reset": OffsetReset,
    "assignment": AssignmentExpected,
    "settled": Settled,
    "drained": Drained,
    "policy": PolicySet,
    "note": Note,
}
NAMES: Mapping[type[Event], str] = {event: name for name, event in EVENTS.items()}


# --- from a line to an event ------------------------------------------------------------------------------------


def parse_line(raw: bytes, number: int) -> Event:
    """The event of one line; raises ``HistoryError`` with the line number."""
    if len(raw) > LINE_BYTES_MAX:
        raise HistoryError(number, f"longer than {LINE_BYTES_MAX} bytes")
    try:
        found = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as problem:
        raise HistoryError(number, f"not JSON: {problem}") from problem
    if not isinstance(found, dict):
        raise HistoryError(number, "not a JSON object")
    name = found.pop("event", None)
    event = EVENTS.get(name) if isinstance(name, str) else None
    if event is None:
        raise HistoryError(number, f"unknown event {name!r}")
    try:
        if event is PolicySet:
            return PolicySet(_whole(found.pop("t", None)), Policy.check_changes(found), line=number)
        for field_name, check, needed in _SHAPES[event]:
            if field_name in found:
                found[field_name] = check(found[field_name])
            elif needed:
                raise ValueError(f"{name} needs {field_name!r}")
        if not found.keys() <= _FIELDS[event]:
            raise ValueError(f"{name} has no field {min(found.keys() - _FIELDS[event])!r}")
        if event is HandedRange and not 0 <= found["last"] - found["first"] < RANGE_RECORDS_MAX:
            raise ValueError(f"handed_range must hold 1 to {RANGE_RECORDS_MAX} records")
        return event(**found, line=number)
    except ValueError as problem:
        raise HistoryError(number, str(problem)) from problem


def read_history(source: Path | IO[bytes]) -> list[Event]:
    """All events, in the order of their time; raises ``HistoryError``, or ``OSError`` of the file."""
    if isinstance(source, Path):
        with source.open("rb") as stream:
            return in_order(_events(stream))
    return in_order(_events(source))


def in_order(events: Iterable[Event]) -> list[Event]:
    """Merged by time; events of one millisecond stay as they were."""
    return sorted(events, key=lambda event: event.t)


def _events(stream: IO[bytes]) -> Iterator[Event]:
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
        # A million lines name few members and topics: one copy of each.
        return sys.intern(value)
    raise ValueError(f"{_short(value)} is not a text")


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(f"{_short(value)} is not true or false")


def _kind(value: object) -> str:
    if value in get_args(Kind):
        return str(value)
    raise ValueError(f"kind {_short(value)} is not one of {', '.join(get_args(Kind))}")


def _spans(value: object) -> Spans:
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
    "Kind": _kind,
    "Spans": _spans,
    "Mapping[str, str | None]": _owners,
}

_SHAPES: Mapping[type[Event], tuple[tuple[str, Callable[[object], object], bool], ...]] = {
    event: tuple(
        (f.name, _session if f.name == "session" else _CHECKS[str(f.type)], f.default is MISSING)
        for f in fields(event)
        if f.name != "line"
    )
    for event in EVENTS.values()
    if event is not PolicySet
}
_FIELDS: Mapping[type[Event], frozenset[str]] = {
    event: frozenset(name for name, _, _ in shape) for event, shape in _SHAPES.items()
}


# --- from an event to a line ------------------------------------------------------------------------------------


def dump_line(event: Event) -> str:
    """The line of an event, without its end; fields that have their default are left out."""
    found: dict[str, Any] = {"t": event.t, "event": NAMES[type(event)]}
    if isinstance(event, PolicySet):
        return json.dumps(found | dict(event.changes))
    for f in fields(event):
        value = getattr(event, f.name)
        if f.name not in ("t", "line") and (f.default is MISSING or value != f.default):
            found[f.name] = value
    return json.dumps(found, ensure_ascii=False)


class HistoryWriter:
    """Appends lines to a history; several threads and processes may write one file.

    Each line is one ``write`` to a file opened for appending, made before the call returns: what a member was
    handed is on the record before it can ask for more, even when it is killed a moment later.
    """

    def __init__(self, path: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def now_ms(self) -> int:
        """The time for an event that is being made."""
        return self._clock.wall_ms()

    def write(self, event: Event) -> None:
        """Append one event."""
        os.write(self._file, f"{dump_line(event)}\n".encode())

    def handed(self, member: str, topic: str, partition: int, offset: int) -> None:
        """Append that this record was returned to user code just now; call it before asking for the next."""
        self.write(Handed(self._clock.wall_ms(), member, topic, partition, offset))

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
