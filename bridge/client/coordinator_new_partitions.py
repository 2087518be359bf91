"""Partitions that came into being while this member was in its group, and that nobody else has had.  Pure.

    taken up --the brokers tell more--> taken up again: what is more, and ours, is new --not ours any more--> not new

What is new and has no committed offset is read from its beginning, whatever ``auto.offset.reset`` says: all of its
records were produced after we joined (``new.partitions.from.beginning``; for a group in ZooKeeper that is decided in
``zkconsumer.member.new_partition_tracker``).  It stays new while every share that is taken up has it: an eager member
gives everything back for a moment, and what the program has not committed by then shall come again, not be passed over.

Only this member's own share is known to it.  A partition that the leader saw before we did, and that somebody else had
in between, may be taken for new; it is read again then if nothing of it was committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zkconsumer.types import TopicPartition


class CoordinatorNewPartitions:
    """``counts`` are those of the topics that are subscribed to: 0 for one that there is not, None while not known."""

    def __init__(self) -> None:
        self.new: frozenset[TopicPartition] = frozenset()
        self._before: dict[str, int | None] | None = None
        """Topic -> how many partitions there were when the last share was taken up; None: this member has had none."""

    def forget(self) -> None:
        """The membership is over: another one begins with what is there then."""
        self.new = frozenset()
        self._before = None

    def on_metadata(self, counts: Mapping[str, int | None]) -> None:
        """The brokers told of topics; what was not known when a share was taken up is known from now on."""
        if self._before is not None:
            for topic in self._before:
                if self._before[topic] is None:
                    self._before[topic] = counts.get(topic)

    def on_assignment(
        self, assigned: Iterable[TopicPartition], counts: Mapping[str, int | None], *, by_pattern: bool
    ) -> None:
        """This is ours now.  A topic that a pattern takes now, and did not before, is new as a whole."""
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
        """The leader may know of more than we do: what it gave us is there."""
        given = max((tp.partition + 1 for tp in assigned if tp.topic == topic), default=0)
        return None if count is None else max(count, given)
