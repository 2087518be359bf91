"""Which store is behind the other for what this member holds, and what brings it up.  Pure.

    ZooKeeper first     Kafka follows: what is in ZooKeeper and not in Kafka is written there, idle partitions too
    Kafka first         ZooKeeper follows: it has what Kafka took; what it has besides, from before, Kafka is told

Kafka's values are those that this member wrote, or read, at this epoch; of what it has only just claimed it knows none,
and writes what it found in ZooKeeper.  What was refused stays behind, is counted, and is tried again at the next look.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from bridge.migration.dual.machine.phase_rules import CommitOrder
from zkconsumer.types import TopicPartition


class StorePositions:
    """Both stores as this member knows them: partition -> next offset."""

    def __init__(self) -> None:
        self.in_zookeeper: dict[TopicPartition, int] = {}
        """-1: there is none."""
        self.in_kafka: dict[TopicPartition, int] = {}
        self._first_kafka_offset: dict[TopicPartition, int] = {}
        """What Kafka was first known to have at this epoch: with that ZooKeeper is brought up."""

    def zookeeper_read(self, stored: Mapping[TopicPartition, int]) -> None:
        """What is in ZooKeeper of all that its side holds; of anything else nothing is known."""
        self.in_zookeeper = dict(stored)

    def kafka_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Kafka has these."""
        for tp, offset in offsets.items():
            if offset >= 0:
                self.in_kafka[tp] = offset
                self._first_kafka_offset[tp] = min(offset, self._first_kafka_offset.get(tp, offset))

    def kafka_read(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Kafka said so when it was asked; what it took meanwhile is newer."""
        self.kafka_committed({tp: offset for tp, offset in offsets.items() if tp not in self.in_kafka})

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """These are not ours any more: others write them."""
        for tp in partitions:
            self.in_zookeeper.pop(tp, None)
            self.in_kafka.pop(tp, None)
            self._first_kafka_offset.pop(tp, None)

    def forget_kafka(self) -> None:
        """Another epoch: what was written in an earlier one does not count."""
        self.in_kafka.clear()
        self._first_kafka_offset.clear()

    def missing_in_kafka(self, order: CommitOrder) -> dict[TopicPartition, int]:
        """What Kafka has to be told of ZooKeeper's values."""
        known = {tp: at for tp, at in sorted(self.in_zookeeper.items()) if at >= 0}
        match order:
            case CommitOrder.ZOOKEEPER_FIRST:
                return {tp: at for tp, at in known.items() if self.in_kafka.get(tp) != at}
            case CommitOrder.KAFKA_FIRST:
                return {tp: at for tp, at in known.items() if self.in_kafka.get(tp, -1) < at}
            case CommitOrder.ZOOKEEPER | CommitOrder.KAFKA:
                return {}

    def not_written_to_kafka(self) -> set[TopicPartition]:
        """What has an offset, and was not written to Kafka at this epoch: what is there has no provenance of it."""
        return {tp for tp, at in self.in_zookeeper.items() if at >= 0 and tp not in self.in_kafka}

    def missing_in_zookeeper(self, locked: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """What ZooKeeper has to be told of Kafka's values, of what our owner nodes hold."""
        known = {tp: at for tp, at in sorted(self.in_kafka.items()) if tp in locked}
        return {tp: at for tp, at in known.items() if self.in_zookeeper.get(tp, -1) < at}

    def is_zookeeper_behind(self, locked: Collection[TopicPartition]) -> bool:
        """Whether ``missing_in_zookeeper`` has something."""
        return any(self.in_zookeeper.get(tp, -1) < at for tp, at in self.in_kafka.items() if tp in locked)

    def partitions_behind_in_zookeeper(self, locked: Collection[TopicPartition]) -> set[TopicPartition]:
        """What ZooKeeper was not brought up with yet, of what our owner nodes hold.

        What Kafka took since then is on its way: while members commit, something always is.
        """
        return {
            tp for tp, at in self._first_kafka_offset.items() if tp in locked and self.in_zookeeper.get(tp, -1) < at
        }

    def is_known(self, tp: TopicPartition) -> bool:
        """Whether it was looked what ZooKeeper has of it."""
        return tp in self.in_zookeeper
