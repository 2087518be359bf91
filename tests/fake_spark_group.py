"""A group, its members' partitions and its logs, in memory: for a stream reader without servers.

    FakeSparkGroup     offsets, owners and records of claims; a test assigns the partitions with ``assign``
    FakeMembership     one query's ``GroupMembership`` of it; answers like ``bridge.spark.membership``, without waiting
    FakeScalaMember    a Scala consumer: reads what it owns from the group's offsets, and commits
    FakeLogReader      the logs; a record is its offset

Claims are decided by the real code.  ``tests/conformance/test_membership_conformance.py`` compares it with the real
membership process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from bridge.spark.claims.claim_decision import (
    ClaimSnapshot,
    OnRewind,
    RewoundBelowClaim,
    WriteClaim,
    WriteRefusal,
    decide_claim,
)
from bridge.spark.claims.claim_messages import group_rewound_message
from bridge.spark.claims.records import BatchClaim, ClaimRecord
from bridge.spark.group_membership import (
    NO_OFFSET,
    BatchAssignment,
    BatchEnd,
    ClaimedRange,
    ClaimRefused,
    ClaimResult,
    CommitMode,
    GroupOffset,
    LeasedPartition,
    RangeToClaim,
)
from bridge.spark.source.micro_batch_plan import LogBounds
from zkconsumer.errors import BrokerUnreachable, ConnectorClosed, GroupRewound
from zkconsumer.types import BrokerAddress, TopicPartition

NOT_OWNED_MESSAGE = "this query does not own the partition"


@dataclass
class FakeSparkGroup:
    """The group's state in its store.

    ``topics``: topic -> partitions.  ``owners``: the owner of each partition, and its epoch.  ``wanted``: the assigned
    member.  ``history``: every offset that was written, in order.
    """

    topics: dict[str, int]
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    owners: dict[TopicPartition, tuple[str, int]] = field(default_factory=dict)
    assignment: dict[TopicPartition, str] = field(default_factory=dict)
    records: dict[tuple[str, TopicPartition], ClaimRecord] = field(default_factory=dict)
    newcomers: set[TopicPartition] = field(default_factory=set)
    history: list[tuple[TopicPartition, int]] = field(default_factory=list)
    members: dict[str, FakeMembership | FakeScalaMember] = field(default_factory=dict)
    _epochs: Iterator[int] = field(default_factory=lambda: iter(range(100, 1 << 60)))

    @property
    def partitions(self) -> list[TopicPartition]:
        """Every partition of every topic."""
        return [TopicPartition(topic, n) for topic, count in sorted(self.topics.items()) for n in range(count)]

    def assign(self, wanted: Mapping[TopicPartition, str]) -> None:
        """Assign the partitions; members release what they may, and acquire what is free."""
        self.assignment.update(wanted)
        self.rebalance()

    def rebalance(self) -> None:
        """Every member releases and acquires, as far as possible now."""
        for member in list(self.members.values()):
            member.release_revoked()
        for tp, name in self.assignment.items():
            if tp not in self.owners and name in self.members:
                self.owners[tp] = name, next(self._epochs)
                self.members[name].on_assigned(tp)

    def remove_member(self, name: str) -> None:
        """A member is dead and its session has expired; its partitions are unassigned until the next ``assign``."""
        self.members.pop(name, None)
        self.owners = {tp: owner for tp, owner in self.owners.items() if owner[0] != name}

    def release(self, tp: TopicPartition) -> None:
        """Delete the owner node of a partition."""
        del self.owners[tp]

    def write(self, tp: TopicPartition, offset: int) -> None:
        """Set the offset of a partition, whatever it was."""
        self.offsets[tp] = offset
        self.history.append((tp, offset))

    def owned_by(self, name: str) -> dict[TopicPartition, int]:
        """Partition -> epoch of the partitions that a member owns."""
        return {tp: epoch for tp, (owner, epoch) in self.owners.items() if owner == name}


class FakeMembership:
    """One query's membership; see ``GroupMembership``."""

    def __init__(
        self, group: FakeSparkGroup, name: str, mode: CommitMode, on_rewind: OnRewind = OnRewind.IGNORE
    ) -> None:
        self._group = group
        self._name = name
        self._mode = mode
        self._on_rewind = on_rewind
        self._leased: set[TopicPartition] = set()
        self._offset_at_start: dict[TopicPartition, int] = {}
        self._rebalances = 0
        self._is_closed = False
        group.members[name] = self
        group.rebalance()

    # --- called by the group ------------------------------------------------------------------------------------

    def on_assigned(self, tp: TopicPartition) -> None:
        """This query owns the partition from now on."""
        self._offset_at_start[tp] = self._group.offsets.get(tp, NO_OFFSET)
        self._rebalances += 1

    def release_revoked(self) -> None:
        """Release what is assigned to others and not leased; with ``claim`` and ``none`` also what is leased."""
        for tp in self._leaving():
            if tp not in self._leased or self._mode is not CommitMode.AFTER_BATCH:
                self._leased.discard(tp)
                self._group.release(tp)
                self._rebalances += 1

    def _leaving(self) -> list[TopicPartition]:
        wanted = self._group.assignment
        return [tp for tp in self._group.owned_by(self._name) if wanted.get(tp) != self._name]

    def expire_session(self) -> None:
        """The session expired: its partitions are free for their assigned members; nothing was written."""
        for tp in self._group.owned_by(self._name):
            self._group.release(tp)
            self._rebalances += 1
        self._leased.clear()
        self._group.rebalance()

    # --- GroupMembership ----------------------------------------------------------------------------------------

    def begin_batch(self, ended: Mapping[TopicPartition, BatchEnd], wait_ms: int) -> BatchAssignment:
        self._check()
        if self._mode is CommitMode.AFTER_BATCH:
            held = self._group.owned_by(self._name)
            for tp, one in ended.items():
                if held.get(tp) == one.epoch and self._group.offsets.get(tp, NO_OFFSET) < one.offset:
                    self._group.write(tp, one.offset)
        self._leased.clear()
        self._group.rebalance()
        held = self._group.owned_by(self._name)
        self._leased = set(held)
        share = {tp for tp, name in self._group.assignment.items() if name == self._name}
        lent = {tp: LeasedPartition(epoch, self._offset_at_start[tp]) for tp, epoch in held.items()}
        return BatchAssignment(lent, share <= held.keys(), self._rebalances, dict(self._group.topics))

    def batch_planned(self, partitions: Collection[TopicPartition]) -> None:
        self._check()
        self._leased &= set(partitions)
        self._group.rebalance()

    def group_offsets(self, partitions: Collection[TopicPartition], query: str) -> dict[TopicPartition, GroupOffset]:
        self._check()
        made = {}
        for tp in partitions:
            latest = self._group.records.get((query, tp), ClaimRecord()).latest
            made[tp] = GroupOffset(self._group.offsets.get(tp, NO_OFFSET), latest.end if latest is not None else None)
        return made

    def claim(
        self, query: str, batch: int, ranges: Mapping[TopicPartition, RangeToClaim]
    ) -> dict[TopicPartition, ClaimResult]:
        self._check()
        return {tp: self._claim_one(query, batch, tp, wanted) for tp, wanted in ranges.items()}

    def _claim_one(self, query: str, batch: int, tp: TopicPartition, wanted: RangeToClaim) -> ClaimResult:
        group = self._group
        record = group.records.get((query, tp), ClaimRecord())
        epoch = group.owned_by(self._name).get(tp)
        claimed = record.latest.end if record.latest is not None else None
        seen = ClaimSnapshot(record, claimed, "" if epoch is not None else NOT_OWNED_MESSAGE, group.offsets.get(tp))
        verdict = decide_claim(batch, wanted, seen, self._on_rewind)
        if isinstance(verdict, ClaimRefused):
            return verdict
        if isinstance(verdict, RewoundBelowClaim):
            raise GroupRewound(group_rewound_message("fake", tp, verdict.offset, verdict.claimed))
        if isinstance(verdict, WriteRefusal):
            group.records[query, tp] = record.with_refusal(batch)
            return ClaimRefused(verdict.reason)
        if isinstance(verdict, WriteClaim):
            assert epoch is not None, "row 4 refuses the others"
            group.write(tp, verdict.end)
            self._offset_at_start[tp] = verdict.end
            group.records[query, tp] = record.with_claim(BatchClaim(batch, verdict.first, verdict.end, epoch, 0))
        return ClaimedRange(verdict.first, verdict.end)

    def seek(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
        self._check()
        held = self._group.owned_by(self._name)
        for tp in offsets.keys() & held.keys():
            self._group.write(tp, offsets[tp])
            self._offset_at_start[tp] = offsets[tp]
        return dict.fromkeys(offsets.keys() - held.keys(), NOT_OWNED_MESSAGE)

    def brokers(self) -> list[BrokerAddress]:
        self._check()
        return [BrokerAddress(0, "broker", 9092)]

    def metrics(self) -> Mapping[str, int]:
        return {"owned_partitions": len(self._group.owned_by(self._name)), "rebalances": self._rebalances}

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._group.remove_member(self._name)

    def _check(self) -> None:
        if self._is_closed or self._group.members.get(self._name) is not self:
            raise ConnectorClosed("this membership is over")


class FakeScalaMember:
    """A Scala consumer that commits at once whatever it has read; ``output`` has all of it."""

    def __init__(self, group: FakeSparkGroup, name: str) -> None:
        self._group = group
        self._name = name
        self._positions: dict[TopicPartition, int] = {}
        self.output: list[tuple[TopicPartition, int]] = []
        group.members[name] = self

    def on_assigned(self, tp: TopicPartition) -> None:
        """It reads from the group's offset, or from the beginning."""
        self._positions[tp] = max(0, self._group.offsets.get(tp, 0))

    def release_revoked(self) -> None:
        """Release at once."""
        for tp in self._group.owned_by(self._name):
            if self._group.assignment.get(tp) != self._name:
                self._group.release(tp)

    def read(self, logs: FakeLogReader, most: int) -> None:
        """Read at most this many records of each partition that it owns."""
        for tp in self._group.owned_by(self._name):
            position = self._positions[tp]
            end = min(logs.ranges[tp].end, position + most)
            self.output += [(tp, offset) for offset in range(position, end)]
            self._positions[tp] = end
            if end > position:
                self._group.write(tp, end)


@dataclass
class FakeLogReader:
    """Logs in memory; see ``bridge.spark.source.log_reader.LogReader``.  ``unknown``: the partitions whose leaders do
    not answer, and why; ``is_unreachable``: no broker answers.
    """

    ranges: dict[TopicPartition, LogBounds]
    unknown: dict[TopicPartition, str] = field(default_factory=dict)
    times: dict[TopicPartition, dict[int, int]] = field(default_factory=dict)
    bytes_per_offset: float = 100.0
    requests: int = 0
    is_unreachable: bool = False

    def read_bounds(
        self, partitions: Collection[TopicPartition], times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, LogBounds | str]:
        self.requests += 1
        if self.is_unreachable:
            raise BrokerUnreachable("none of 1 brokers answers")
        return {tp: self.unknown.get(tp) or self._log(tp, times.get(tp)) for tp in partitions}

    def _log(self, tp: TopicPartition, time_ms: int | None) -> LogBounds:
        log = self.ranges[tp]
        return log if time_ms is None else LogBounds(log.first, log.end, self.times.get(tp, {}).get(time_ms))

    def sample_bytes_per_offset(self, tp: TopicPartition, offset: int) -> float | None:
        return self.bytes_per_offset

    def unreachable_reason(self) -> str:
        return "none of 1 brokers answers" if self.is_unreachable else ""

    def close(self) -> None:
        pass

    def append(self, tp: TopicPartition, count: int) -> None:
        """Append this many records."""
        log = self.ranges[tp]
        self.ranges[tp] = LogBounds(log.first, log.end + count)
