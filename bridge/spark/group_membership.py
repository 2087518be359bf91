"""The calls of a query to its group, as values and one Protocol.  Pure.

    latestOffset(start)   begin_batch(what ended at start) -> BatchAssignment   one step: commit, release, lease
                          batch_planned(partitions of the new batch, or none)
    partitions(...)       claim(query, batch, ranges) -> what may be read       only with ``group.offsets.commit=claim``

The source does not depend on the store of the membership: ``bridge.spark.membership`` keeps it in ZooKeeper, or in the
coordinator group once the group has migrated.  An *epoch* identifies one uninterrupted ownership of one partition (in
ZooKeeper the czxid of our owner node): with two equal epochs no other member owned it in between.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

from zkconsumer.types import BrokerAddress, TopicPartition

NO_OFFSET = -1
"""The group has no offset here: the query's starting rule applies."""

FROM_BEGINNING = -2
"""The group has no offset here, and the partition was created while we were members: it is read from its beginning."""


class CommitMode(Enum):
    """``group.offsets.commit``: when the group's offsets are committed."""

    CLAIM = "claim"
    """Before a batch is read, on condition that they still are the offsets at which the batch begins."""

    AFTER_BATCH = "afterBatch"
    """Once the batch is in Spark's commit log."""

    NONE = "none"
    """Never."""


@dataclass(frozen=True, slots=True)
class LeasedPartition:
    """One partition that this query owns, and for which no other member waits.

    ``offset``: the group's offset when this ownership began (or ``NO_OFFSET``, ``FROM_BEGINNING``), or as a ``seek`` or
    a claim has set it since.
    """

    epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class BatchAssignment:
    """The partitions that may be planned now.  ``partitions`` has none for which another member waits.

    ``is_complete``: this query owns its complete assignment.  ``rebalances``: how often the assignment changed since
    the query began.  ``partition_counts``: the number of partitions of each subscribed topic, this query's or not.
    """

    partitions: Mapping[TopicPartition, LeasedPartition]
    is_complete: bool
    rebalances: int
    partition_counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """A batch that was read under ``epoch`` is in the commit log up to ``offset`` (the next one to read)."""

    epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """The current offset of the group, read from its store.

    ``offset``: or ``NO_OFFSET``.  ``claimed_end``: the end of this query's own latest claim, None without one.
    """

    offset: int
    claimed_end: int | None


@dataclass(frozen=True, slots=True)
class RangeToClaim:
    """A range to claim, [first, end), that was planned under ``epoch``."""

    first: int
    end: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ClaimedRange:
    """The claimed range, [first, end): only this batch may read it."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class ClaimRefused:
    """No record of the range may be read in this batch; ``reason`` is a sentence."""

    reason: str


ClaimResult: TypeAlias = ClaimedRange | ClaimRefused


class GroupMembership(Protocol):
    """The group, as the source sees it.  Every call has a deadline; one thread, one process.

    When the membership cannot continue, each call raises a ``ZkConsumerError`` that names who must act; the next call
    raises the same error.  Every call may be repeated when it failed or its answer was lost: no effect occurs twice.
    An expired session, or a membership process that was killed, is no error: the member joins again, with other epochs.

    While the group migrates to another store, ``begin_batch``, ``group_offsets`` and ``seek`` raise
    ``GroupMigratingError``: no batch may be planned, and the call must be repeated later.  A claim still returns the
    ranges that were claimed before.
    """

    def begin_batch(self, ended: Mapping[TopicPartition, BatchEnd], wait_ms: int) -> BatchAssignment:
        """The batch that ``ended`` has finished: commit its offsets (``afterBatch``; only where the epoch is still
        valid), release at once the partitions for which others wait, and lease the rest to the batch that is planned
        now.

        ``wait_ms``: how long to wait for the complete assignment; then the owned partitions are leased (``is_complete``
        False).  In ``afterBatch`` leased partitions are released at the next ``begin_batch`` or ``batch_planned``, or
        within ``rebalance.drain.timeout.ms`` (5 s unless set); in ``claim`` and ``none`` at any time.  While the
        session is in doubt no partition is leased.  An end that could not be committed is committed later, and logged.
        A partition that only changes its thread also gets another epoch, although no other member owned it.

        Raises ``GroupNotExclusive`` in a takeover when others are members.
        """

    def batch_planned(self, partitions: Collection[TopicPartition]) -> None:
        """The new batch has these; the others are not leased any more (none: there is no new batch)."""

    def group_offsets(self, partitions: Collection[TopicPartition], query: str) -> dict[TopicPartition, GroupOffset]:
        """The group's offsets, read now and not cached, of all these partitions, owned or not.

        With offsets in both stores the larger one, except in ``claim``, where ZooKeeper decides.
        """

    def claim(
        self, query: str, batch: int, ranges: Mapping[TopicPartition, RangeToClaim]
    ) -> dict[TopicPartition, ClaimResult]:
        """Claim before reading; for a batch that was claimed before it returns the range of that time (a replay).

        Waits, within its deadline (45 s), for the assignment of a membership that has just begun.  Raises
        ``GroupRewound`` (``onGroupRewind=fail``), and ``ZkTimeoutException`` when it is not known what was claimed:
        repeat the call.
        """

    def seek(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
        """Commit the position of a query, also backwards, in partitions that it owns; returns the partitions that were
        not committed, and why.  ``none`` commits nothing."""

    def brokers(self) -> list[BrokerAddress]:
        """The brokers that are registered now (or those of ``bootstrap.servers``); empty when none is registered."""

    def metrics(self) -> Mapping[str, int]:
        """Counters and gauges by name: see the page about counters."""

    def close(self) -> None:
        """Leave the group: release all partitions and end the session.  Commits nothing of an unfinished batch."""
