"""Which store lacks offsets of the other one for the partitions of this member, and the writes that correct it.  Pure.

    ZooKeeper first     Kafka follows: every offset of ZooKeeper is written there, also of idle partitions
    Kafka first         ZooKeeper follows with the offsets that Kafka accepted; older offsets of ZooKeeper go to Kafka

The offsets in Kafka are those that this member wrote, or read, at this epoch.  For a partition that it has just
acquired it has none, and writes the offset of ZooKeeper.  A rejected offset is counted, and written again at the next
check.

Theory of operation.  Both maps are the last known state of a store, never the present one: an answer may be late, and a
commit may be under way.  So nothing here decides that both stores are equal; the tool compares the stores themselves
(``store_comparison``).  The maps only name the partitions that need a write, and ``behind`` of the acknowledgement is
their number.  A lost answer leaves ``in_kafka`` older than Kafka, which costs one repeated write of the same offset.

Why an epoch begins without offsets in Kafka: each offset in Kafka must have the provenance of this epoch.  The next
migration, and the tool, recognise the offsets of this migration by their provenance
(transcript ``in_phase_returned_kafka_gets_the_provenance_of_the_migration``).

Why not the larger offset of both stores: a reset decreases an offset on purpose.  While ZooKeeper is first, any
difference is corrected.  While Kafka is first, a larger offset in Kafka is a commit that ZooKeeper receives next; only
a larger one in ZooKeeper is one that Kafka lacks (transcript
``an_offset_that_kafka_refused_in_phase_locked_is_written_again``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from bridge.migration.dual.machine.phase_rules import CommitOrder
from zkconsumer.types import TopicPartition


class StorePositions:
    """Both stores as this member read or wrote them: partition -> next offset."""

    def __init__(self) -> None:
        self.in_zookeeper: dict[TopicPartition, int] = {}
        """-1: no offset.  The partitions that were owned at the last read; one that was not read yet is missing."""
        self.in_kafka: dict[TopicPartition, int] = {}
        """The offsets that Kafka accepted or returned at this epoch; never -1."""
        self._first_kafka_offset: dict[TopicPartition, int] = {}
        """The smallest offset of each partition in Kafka at this epoch, with the keys of ``in_kafka``; ZooKeeper must
        have at least this one."""

    def zookeeper_read(self, stored: Mapping[TopicPartition, int]) -> None:
        """The offsets in ZooKeeper of all owned partitions; a partition that was owned before is forgotten."""
        self.in_zookeeper = dict(stored)

    def kafka_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Kafka accepted these."""
        for tp, offset in offsets.items():
            if offset >= 0:
                self.in_kafka[tp] = offset
                # After a reset the smaller offset counts: ZooKeeper need not reach the older one
                # (``a_rollback_does_not_wait_for_later_commits``).
                self._first_kafka_offset[tp] = min(offset, self._first_kafka_offset.get(tp, offset))
        assert len(self.in_kafka) == len(self._first_kafka_offset), "each offset in Kafka has a first one"

    def kafka_read(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Kafka returned these; an offset that it accepted meanwhile is newer.

        The answer may be older than a commit of this member that ended while the request was on its way (transcript
        ``a_rollback_repeats_a_failed_write_to_zookeeper``).
        """
        self.kafka_committed({tp: offset for tp, offset in offsets.items() if tp not in self.in_kafka})

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """These are not ours any more: other members write them.

        An answer to a commit that arrives later must not add them again (``SideArbiter`` drops it).
        """
        for tp in partitions:
            self.in_zookeeper.pop(tp, None)
            self.in_kafka.pop(tp, None)
            self._first_kafka_offset.pop(tp, None)

    def forget_kafka(self) -> None:
        """A new epoch: offsets of an earlier one do not count."""
        self.in_kafka.clear()
        self._first_kafka_offset.clear()

    def missing_in_kafka(self, order: CommitOrder) -> dict[TopicPartition, int]:
        """The offsets of ZooKeeper that must be written to Kafka; never one of a partition without an offset.

        A partition that has no offset in ZooKeeper gets none in Kafka: "no offset" is not 0, and the reset policy
        decides about it in either group.
        """
        known = {tp: at for tp, at in sorted(self.in_zookeeper.items()) if at >= 0}
        match order:
            case CommitOrder.ZOOKEEPER_FIRST:
                return {tp: at for tp, at in known.items() if self.in_kafka.get(tp) != at}
            case CommitOrder.KAFKA_FIRST:
                return {tp: at for tp, at in known.items() if self.in_kafka.get(tp, -1) < at}
            case CommitOrder.ZOOKEEPER | CommitOrder.KAFKA:
                return {}

    def not_written_to_kafka(self) -> set[TopicPartition]:
        """Partitions with an offset that was not written to Kafka at this epoch, so Kafka's has another provenance."""
        return {tp for tp, at in self.in_zookeeper.items() if at >= 0 and tp not in self.in_kafka}

    def missing_in_zookeeper(self, owned: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets of Kafka that must be written to ZooKeeper, of owned partitions."""
        known = {tp: at for tp, at in sorted(self.in_kafka.items()) if tp in owned}
        return {tp: at for tp, at in known.items() if self.in_zookeeper.get(tp, -1) < at}

    def is_zookeeper_behind(self, owned: Collection[TopicPartition]) -> bool:
        """Whether ``missing_in_zookeeper`` is not empty."""
        return any(self.in_zookeeper.get(tp, -1) < at for tp, at in self.in_kafka.items() if tp in owned)

    def partitions_behind_in_zookeeper(self, owned: Collection[TopicPartition]) -> set[TopicPartition]:
        """Owned partitions for which ZooKeeper lacks the first offset of Kafka at this epoch.

        Later offsets do not count: while members commit, some of them are always in flight.
        """
        return {tp for tp, at in self._first_kafka_offset.items() if tp in owned and self.in_zookeeper.get(tp, -1) < at}

    def is_known(self, tp: TopicPartition) -> bool:
        """Whether the offset in ZooKeeper was read."""
        return tp in self.in_zookeeper
