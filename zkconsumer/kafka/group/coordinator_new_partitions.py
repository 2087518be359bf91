"""Tracks partitions that were created while this member was in its group, and that no other member has owned.  Pure.

    assigned --metadata has more--> assigned again: additional ones that are ours are new --not ours any more--> not new

A new partition without a committed offset is read from its beginning, whatever ``auto.offset.reset`` is: all of its
records were produced after we joined (``new.partitions.from.beginning``; for a ZooKeeper group
``zkconsumer.member.new_partition_tracker`` decides that).  It stays new while every applied assignment has it: an eager
member revokes all partitions for a moment, and records that the program has not committed by then must be read again.

This member knows only its own assignment.  A partition that the leader saw before we did, and that another member owned
in between, may count as new; it is read again then if none of its offsets was committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zkconsumer.types import TopicPartition


class CoordinatorNewPartitions:
    """``counts`` are those of subscribed topics: 0 for a topic that does not exist, None while unknown."""

    def __init__(self) -> None:
        self.new: frozenset[TopicPartition] = frozenset()
        self._before: dict[str, int | None] | None = None
        """Topic -> its partitions when the last assignment was applied; None: this member has had no assignment."""

    def forget(self) -> None:
        """The membership has ended: the next one starts with the partitions that exist then."""
        self.new = frozenset()
        self._before = None

    def on_metadata(self, counts: Mapping[str, int | None]) -> None:
        """New metadata; a count that was unknown when an assignment was applied is known from now on."""
        if self._before is not None:
            for topic in self._before:
                if self._before[topic] is None:
                    self._before[topic] = counts.get(topic)

    def on_assignment(
        self, assigned: Iterable[TopicPartition], counts: Mapping[str, int | None], *, by_pattern: bool
    ) -> None:
        """We own these now.  All partitions of a topic that a pattern matches for the first time are new."""
        assigned = frozenset(assigned)
        before = self._before
        if before is not None:
            unseen = 0 if by_pattern else None
            first = {topic: before.get(topic, unseen) for topic in {tp.topic for tp in assigned}}
            came = {tp for tp in assigned if (known := first[tp.topic]) is not None and tp.partition >= known}
            self.new = (self.new & assigned) | came
        topics = counts.keys() | {tp.topic for tp in assigned}
        self._before = {topic: self._seen(topic, counts.get(topic), assigned) for topic in topics}

    @staticmethod
    def _seen(topic: str, count: int | None, assigned: frozenset[TopicPartition]) -> int | None:
        """The leader may know more partitions than we do: those that it assigned exist."""
        given = max((tp.partition + 1 for tp in assigned if tp.topic == topic), default=0)
        return None if count is None else max(count, given)
