"""What this member wants, what it has, and what is known of the topics.  Pure.

Two sets of topics differ: those that this member reads, and, while it leads, those that anybody in the group reads.
The leader divides all of them, so it watches all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import filterfalse

from bridge.client.commands import NeedMetadata
from bridge.client.events import MetadataUpdated
from bridge.client.pending_commands import PendingCommands
from zkconsumer.types import TopicPartition


class SubscriptionState:
    """``topics`` None: nothing is subscribed to, and whoever commits is no member of the group."""

    def __init__(self, outbox: PendingCommands) -> None:
        self.topics: frozenset[str] | None = None
        self.takes: Callable[[str], bool] | None = None
        """Whether our filter takes a topic; None where topics are subscribed to by name."""
        self.assigned: frozenset[TopicPartition] = frozenset()
        self._pending_commands = outbox
        self._group_topics: frozenset[str] = frozenset()
        self._asked: frozenset[str] = frozenset()
        self._counts: dict[str, int] = {}
        self._racks: dict[TopicPartition, frozenset[str]] = {}
        self._answered: set[str] = set()
        self._is_all_known = False

    @property
    def has_auto_assigned_partitions(self) -> bool:
        """Whether the group decides what this member reads."""
        return self.topics is not None

    def subscribe(self, topics: frozenset[str], takes: Callable[[str], bool] | None) -> None:
        """These are wanted from now on."""
        self.topics, self.takes = topics, takes
        self._ask()

    def unsubscribe(self) -> None:
        """Nothing is."""
        self.topics = self.takes = None
        self._group_topics = frozenset()

    def group_subscribe(self, topics: Iterable[str]) -> bool:
        """We lead, and these are read by somebody; whether all is known of them that can be."""
        self._group_topics = frozenset(topics)
        self._ask()
        return self._is_all_known or self._answered >= self._group_topics

    def reset_group_subscription(self) -> None:
        """We do not lead, for the time being."""
        self._group_topics = frozenset()

    def metadata_updated(self, event: MetadataUpdated) -> None:
        """Take in what the brokers say of those topics that they were asked about."""
        if event.asked is None:
            self._counts = dict(event.partitions)
            self._racks = dict(event.racks)
            self._is_all_known = True
            return
        self._answered |= event.asked
        for topic in event.asked:
            self._counts.pop(topic, None)
        self._counts |= {topic: count for topic, count in event.partitions.items() if topic in event.asked}
        others = {tp: racks for tp, racks in self._racks.items() if tp.topic not in event.asked}
        self._racks = others | dict(event.racks)

    def snapshot(self) -> dict[str, int]:
        """Topic -> how many partitions, of those that the group reads and that exist."""
        return {topic: self._counts[topic] for topic in sorted(self._group_topics) if topic in self._counts}

    def partition_counts(self) -> dict[str, int | None]:
        """How many partitions the topics have that this member reads: 0 where there is none, None while unknown."""
        return {
            topic: self._counts.get(topic, 0 if self._is_all_known or topic in self._answered else None)
            for topic in self.topics or ()
        }

    def racks(self) -> dict[TopicPartition, frozenset[str]]:
        """Where the partitions of the snapshot have replicas, as the brokers said last."""
        return {tp: racks for tp, racks in self._racks.items() if tp.topic in self._group_topics}

    def unsubscribed_topics(self, partitions: Iterable[TopicPartition]) -> list[str]:
        """The topics of these that are not subscribed to; a filter may take more than we know of yet."""
        topics = {tp.topic for tp in partitions}
        return sorted(topics - (self.topics or set()) if self.takes is None else filterfalse(self.takes, topics))

    def _ask(self) -> None:
        wanted = self._group_topics | (self.topics or frozenset())
        if wanted != self._asked:
            self._asked = wanted
            self._pending_commands.add(NeedMetadata(wanted))
