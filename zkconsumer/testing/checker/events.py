"""The events of a history: what a program observed of a group under test, and when.

This module decides nothing about a history; ``checker`` does.  ``history`` converts events to lines and back.

Every line has ``t`` (wall clock milliseconds; all writers of one history run on one machine) and ``event``.
Lines are merged by ``t``; lines of one millisecond keep the order of the file and count as *unordered* where they come
from different programs.  An unknown event, an unknown field, a missing field or a wrong type is an error with its line
number, because a misspelt line would make the checks weaker unnoticed.

===============  =================================================================================================
event            fields (``?`` = may be omitted)
===============  =================================================================================================
log              topic partition start end missing?    the log at the broker; ``end`` exclusive; ``missing`` is a list
                                                       of offsets or [first, last] pairs (compaction, control records)
started_at       topic partition offset                committed offset before the test; default: the log's start
member           member kind pid? consumer_id? streams?   kind "ours", "scala" or "migrator" (a run of the tool);
                                                       owner nodes of ``<consumer_id>-<n>`` are this member's (default:
                                                       its name); streams: threads, 1
joined           member                                its registration is in the group
leaving          member                                close() was called
left             member clean?                         close() returned (Scala: the process has ended); clean: true
killed           member                                SIGKILL, stamped when the process was reaped
paused           member                                SIGSTOP was sent
continued        member                                SIGCONT was sent
expired          member                                its session was observed to have ended
claimed          member topic partition offset?        by the member: it acquired ownership; offset: where it starts
released         member topic partition                by the member: its owner node is deleted
drain_timeout    member topic partition                by the member: released with an unacknowledged message
handed           member topic partition offset         by the member: one record was returned to user code
handed_range     member topic partition first last     the same for each offset first..last, all in this millisecond
consumed         member topic partition offset         by the member: the caller acknowledged this record
commit_called    member                                by the member: commit_offsets() was called by user code
committed        topic partition offset by? zxid? store?   the committed offset was observed to change; with ``store``
                                                       ("zookeeper", "kafka") the store itself reports what it accepted
owner            topic partition owner session? zxid?  the owner node was observed with this thread id; null: deleted
reset            topic partition offset reason member?    an allowed jump (auto.offset.reset, a journalled reset)
assignment       expected                              the group is stable, owners must be these: {"t/0": thread id}
settled                                                the group is stable: each partition has one living owner
drained          topic? partition?                     everything in the log (of this topic, partition) must be read
control          epoch phase authority migration strategy   the control znode was written with these values
fenced           store topic? partition?               only the tool can acquire or commit there (all partitions)
unfenced         store topic? partition?               other clients can again
target           topic partition offset                the plan's start of the partition in Kafka
state            when nodes others?                    the state "before" a migration, or at the "end"
policy           fields of ``Policy``                  limits and tolerances of this history
note             text                                  for the reader
===============  =================================================================================================

``committed``, ``owner``, ``expired``, ``joined`` of Scala members come from an *observer* (a watch): never early, late
by at most ``observer_delay_ms``.  ``zxid`` (mzxid of the offset node, czxid of the owner node) orders the reports of
one node; a report that is not newer than an earlier one is ignored.  ``committed`` with a store, ``control``,
``fenced`` and ``unfenced`` come from the stores themselves (``bridge.testing.HistoryRecorder``): not late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from zkconsumer.errors import UsageError

OFFSET_MAX = 2**63 - 1

HistoryMemberKind = Literal["ours", "scala", "migrator"]
HistoryStore = Literal["zookeeper", "kafka"]
StateTime = Literal["before", "end"]
OffsetSpans: TypeAlias = tuple[tuple[int, int], ...]
"""Offsets as (first, last) pairs, both inclusive."""


class HistoryError(UsageError):
    """A history cannot be read; the text names the line and the problem."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}" if line else problem)
        self.line = line
        self.problem = problem


# --- the events -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """What every line has: the time, and (for evidence) the line number; 0 = not from a file."""

    t: int
    line: int = field(default=0, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class PartitionEvent(HistoryEvent):
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class MemberEvent(HistoryEvent):
    member: str


@dataclass(frozen=True, slots=True)
class MemberPartitionEvent(HistoryEvent):
    member: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class LogRangeReported(PartitionEvent):
    start: int
    end: int
    missing: OffsetSpans = ()


@dataclass(frozen=True, slots=True)
class InitialOffset(PartitionEvent):
    offset: int


@dataclass(frozen=True, slots=True)
class MemberDeclared(MemberEvent):
    kind: HistoryMemberKind
    pid: int | None = None
    consumer_id: str | None = None
    streams: int = 1


@dataclass(frozen=True, slots=True)
class Joined(MemberEvent): ...


@dataclass(frozen=True, slots=True)
class Leaving(MemberEvent): ...


@dataclass(frozen=True, slots=True)
class Left(MemberEvent):
    clean: bool = True


@dataclass(frozen=True, slots=True)
class Killed(MemberEvent): ...


@dataclass(frozen=True, slots=True)
class Paused(MemberEvent): ...


@dataclass(frozen=True, slots=True)
class Continued(MemberEvent): ...


@dataclass(frozen=True, slots=True)
class Expired(MemberEvent): ...


@dataclass(frozen=True, slots=True)
class CommitCalled(MemberEvent): ...


@dataclass(frozen=True, slots=True)
class MemberAcquiredPartition(MemberPartitionEvent):
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class MemberReleasedPartition(MemberPartitionEvent): ...


@dataclass(frozen=True, slots=True)
class DrainTimedOut(MemberPartitionEvent): ...


@dataclass(frozen=True, slots=True)
class RecordDelivered(MemberPartitionEvent):
    offset: int


@dataclass(frozen=True, slots=True)
class RecordRangeDelivered(MemberPartitionEvent):
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class RecordConsumed(MemberPartitionEvent):
    offset: int


@dataclass(frozen=True, slots=True)
class OffsetCommitted(PartitionEvent):
    offset: int
    by: str | None = None
    zxid: int | None = None
    store: HistoryStore | None = None


@dataclass(frozen=True, slots=True)
class OwnerObserved(PartitionEvent):
    owner: str | None
    session: int | None = None
    zxid: int | None = None


@dataclass(frozen=True, slots=True)
class OffsetJumpAllowed(PartitionEvent):
    offset: int
    reason: str
    member: str | None = None


@dataclass(frozen=True, slots=True)
class AssignmentExpected(HistoryEvent):
    expected: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class GroupSettled(HistoryEvent): ...


@dataclass(frozen=True, slots=True)
class FullReadExpected(HistoryEvent):
    topic: str | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class ControlWritten(HistoryEvent):
    epoch: int
    phase: str
    authority: HistoryStore
    migration: str
    strategy: str
    is_confirmed: bool = True
    """False: the authority moves, and has moved only after a later line of the same phase confirms it."""


@dataclass(frozen=True, slots=True)
class Fenced(HistoryEvent):
    store: HistoryStore
    topic: str | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Unfenced(HistoryEvent):
    store: HistoryStore
    topic: str | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class PlannedKafkaOffset(PartitionEvent):
    offset: int


@dataclass(frozen=True, slots=True)
class StateSnapshot(HistoryEvent):
    when: StateTime
    nodes: Mapping[str, str]
    others: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PolicyChanged(HistoryEvent):
    changes: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class HistoryNote(HistoryEvent):
    text: str


EVENTS: Mapping[str, type[HistoryEvent]] = {
    "log": LogRangeReported,
    "started_at": InitialOffset,
    "member": MemberDeclared,
    "joined": Joined,
    "leaving": Leaving,
    "left": Left,
    "killed": Killed,
    "paused": Paused,
    "continued": Continued,
    "expired": Expired,
    "claimed": MemberAcquiredPartition,
    "released": MemberReleasedPartition,
    "drain_timeout": DrainTimedOut,
    "handed": RecordDelivered,
    "handed_range": RecordRangeDelivered,
    "consumed": RecordConsumed,
    "commit_called": CommitCalled,
    "committed": OffsetCommitted,
    "owner": OwnerObserved,
    "reset": OffsetJumpAllowed,
    "assignment": AssignmentExpected,
    "settled": GroupSettled,
    "drained": FullReadExpected,
    "control": ControlWritten,
    "fenced": Fenced,
    "unfenced": Unfenced,
    "target": PlannedKafkaOffset,
    "state": StateSnapshot,
    "policy": PolicyChanged,
    "note": HistoryNote,
}
EVENT_NAMES: Mapping[type[HistoryEvent], str] = {event: name for name, event in EVENTS.items()}


def in_order(events: Iterable[HistoryEvent]) -> list[HistoryEvent]:
    """Merged by time; events of one millisecond keep their order."""
    return sorted(events, key=lambda event: event.t)
