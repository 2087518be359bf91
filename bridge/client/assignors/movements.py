"""Tracks which partitions moved between which members in one assignment, to prevent moves back and forth.  Pure."""

from __future__ import annotations

from bridge.client.assignors.java_order import BUCKETS_FIRST, buckets_for, first_of, partition_hash
from zkconsumer.types import TopicPartition


class PartitionMovements:
    """Kafka's ``PartitionMovements``: for each topic, the partitions that moved from one member to another."""

    def __init__(self) -> None:
        self._way_of: dict[TopicPartition, tuple[str, str]] = {}
        self._by_way: dict[tuple[str, str, str], _Moved] = {}

    def move(self, tp: TopicPartition, source: str, target: str) -> None:
        """Record a move; a partition that returns to its first owner has not moved."""
        if tp in self._way_of:
            first, _ = self._forget(tp)
            if first != target:
                self._note(tp, first, target)
        else:
            self._note(tp, source, target)

    def to_move(self, tp: TopicPartition, source: str, target: str) -> TopicPartition:
        """The partition to move instead: one of the same topic that moved in the opposite direction moves back."""
        if tp in self._way_of:
            source, _ = self._way_of[tp]
        back = self._by_way.get((tp.topic, target, source))
        return tp if back is None else back.first()

    def _note(self, tp: TopicPartition, source: str, target: str) -> None:
        self._way_of[tp] = source, target
        self._by_way.setdefault((tp.topic, source, target), _Moved()).add(tp)

    def _forget(self, tp: TopicPartition) -> tuple[str, str]:
        source, target = self._way_of.pop(tp)
        way = tp.topic, source, target
        moved = self._by_way[way]
        del moved.partitions[tp]
        if not moved.partitions:
            del self._by_way[way]
        return source, target


class _Moved:
    """A ``HashSet`` of partitions; its table never becomes smaller."""

    __slots__ = ("buckets", "partitions")

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, None] = {}
        self.buckets = BUCKETS_FIRST

    def add(self, tp: TopicPartition) -> None:
        self.partitions[tp] = None
        self.buckets = buckets_for(len(self.partitions), self.buckets)

    def first(self) -> TopicPartition:
        return first_of(self.partitions, partition_hash, self.buckets)
