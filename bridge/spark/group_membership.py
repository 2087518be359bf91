"""What a query asks of the group that it is a member of, as values and one Protocol.  Pure.

    latestOffset(start)   begin_batch(what ended at start) -> Holding        one step: write, give back, lend
                          planned(partitions of the new batch, or none)
    partitions(...)       claim(query, batch, ranges) -> what may be read    only with ``group.offsets.commit=claim``

Where the membership lives is not the source's business: ``bridge.spark.membership`` holds it in ZooKeeper, or in the
group of Kafka's coordinator once the group has moved there.  An *epoch* names one uninterrupted ownership of one
partition (in ZooKeeper the czxid of our owner node); two equal epochs mean that nobody else had it in between.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

from zkconsumer.types import BrokerAddress, TopicPartition

NO_OFFSET = -1
"""The group has no offset here: the query's starting rule decides."""

FROM_BEGINNING = -2
"""The group has no offset here, and the partition came into being under our eyes: it is read from its beginning."""


class CommitMode(Enum):
    """``group.offsets.commit``: when the group's offsets move."""

    CLAIM = "claim"
    """Before a batch is read, on condition that they still stand where the batch begins."""

    AFTER_BATCH = "afterBatch"
    """Once the batch is in Spark's commit log."""

    NONE = "none"
    """Never."""


@dataclass(frozen=True, slots=True)
class LeasedPartition:
    """One partition that this query owns, and that nobody waits for.

    ``offset``: where the group stood when this ownership began (or ``NO_OFFSET``, ``FROM_BEGINNING``), or where a
    ``seek`` or a claim has put it since.
    """

    epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class BatchAssignment:
    """What may be planned now.  What another member waits for is not among ``partitions``.

    ``is_settled``: the group's whole share for this query is held.  ``rebalances``: how often the share changed since
    the query began.  ``topics``: the partitions that each subscribed topic has, this query's or not.
    """

    partitions: Mapping[TopicPartition, LeasedPartition]
    is_complete: bool
    rebalances: int
    partition_counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """A batch is in the commit log up to ``offset`` (the next one to read), read under ``epoch``."""

    epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """Where the group stands now, read from its store.

    ``offset``: or ``NO_OFFSET``.  ``claimed``: the end of this query's own latest claim, None without one.
    """

    offset: int
    claimed_end: int | None


@dataclass(frozen=True, slots=True)
class RangeToClaim:
    """A range to be claimed, [first, end), that was planned under ``epoch``."""

    first: int
    end: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ClaimedRange:
    """What was claimed, [first, end): it may be read, by this batch alone."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class ClaimRefused:
    """Nothing of the range may be read in this batch; ``why`` in a sentence."""

    reason: str


ClaimResult: TypeAlias = ClaimedRange | ClaimRefused


class GroupMembership(Protocol):
    """The group, as the source sees it.  Every call has a deadline; one thread, one process.

    Each raises a ``ZkConsumerError`` that says who must act when the membership cannot go on; the same error comes
    again at the next call.  Every call may be made again when it failed or its answer was lost: none is done twice.
    A session that expired, or a keeper that was killed, is no error: the member joins anew, and the epochs are others.

    While the group is on its way to another store, ``begin_batch``, ``stands`` and ``seek`` raise
    ``GroupMigratingError``: nothing may be planned, and the same is to be asked again later.  A claim is answered all
    the same: with what was claimed.
    """

    def begin_batch(self, ended: Mapping[TopicPartition, BatchEnd], wait_ms: int) -> BatchAssignment:
        """The batch that ``ended`` is over: write its offsets (``afterBatch``; only where the epoch still holds),
        give back at once whatever others wait for, and lend the rest to the batch that is planned now.

        ``wait_ms``: how long to wait for the whole share, if it is not held; then what is held is lent
        (``is_settled`` False).  What is lent is not given back before the next ``begin_batch`` or ``planned`` in
        ``afterBatch``, within ``rebalance.drain.timeout.ms`` (5 s unless set), and at any time in ``claim`` and
        ``none``.  While the session is in doubt nothing is lent.  An end that could not be written is written later,
        and logged.  A partition that changes only its thread gets another epoch, too, though nobody had it.

        Raises ``GroupNotExclusive`` in a takeover when others are members.
        """

    def batch_planned(self, partitions: Collection[TopicPartition]) -> None:
        """The new batch has these; the others are not lent any more (none: there is no new batch)."""

    def group_offsets(self, partitions: Collection[TopicPartition], query: str) -> dict[TopicPartition, GroupOffset]:
        """Where the group stands, read now, not remembered; of every partition asked for, held or not.

        With offsets in both stores the larger one, except in ``claim``, where ZooKeeper decides.
        """

    def claim(
        self, query: str, batch: int, ranges: Mapping[TopicPartition, RangeToClaim]
    ) -> dict[TopicPartition, ClaimResult]:
        """Claim before reading; the answer to a batch that was claimed before is the range of then (a replay).

        Waits, within its deadline (45 s), for the share of a membership that has just begun.  Raises ``GroupRewound``
        (``onGroupRewind=fail``), and ``ZkTimeoutException`` when it is not known what was claimed: ask again.
        """

    def seek(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
        """Write where a query goes on, also backwards, of partitions that are held; gives back what was not written,
        and why.  ``none`` writes nothing."""

    def brokers(self) -> list[BrokerAddress]:
        """The brokers that are registered now (or those of ``bootstrap.servers``); empty when none is."""

    def metrics(self) -> Mapping[str, int]:
        """Counters and gauges by name: see the page about counters."""

    def close(self) -> None:
        """Leave the group: give everything back and end the session.  Nothing of an unfinished batch is written."""
