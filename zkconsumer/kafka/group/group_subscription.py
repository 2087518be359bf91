"""The subscription and the assignment of this member, and the metadata of the topics.  Pure.

Two sets of topics differ: those that this member reads, and, while it leads, those of all members of the group.
The leader assigns all of them, so it watches all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import filterfalse

from zkconsumer.kafka.group.commands import NeedMetadata
from zkconsumer.kafka.group.events import MetadataUpdated
from zkconsumer.kafka.group.pending_commands import PendingCommands
from zkconsumer.types import TopicPartition


class SubscriptionState:
    """``topics`` None: no subscription; commits are then not made as a member of the group."""

    def __init__(self, outbox: PendingCommands) -> None:
        self.topics: frozenset[str] | None = None
        self.takes: Callable[[str], bool] | None = None
        """Whether our filter matches a topic; None where the subscription has names."""
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
        """Subscribe to these from now on."""
        self.topics, self.takes = topics, takes
        self._ask()

    def unsubscribe(self) -> None:
        """Remove the subscription."""
        self.topics = self.takes = None
        self._group_topics = frozenset()

    def group_subscribe(self, topics: Iterable[str]) -> bool:
        """We lead, and members read these; returns whether their metadata is complete, as far as possible."""
        self._group_topics = frozenset(topics)
        self._ask()
        return self._is_all_known or self._answered >= self._group_topics

    def reset_group_subscription(self) -> None:
        """We do not lead, for the moment."""
        self._group_topics = frozenset()

    def follow(self) -> None:
        """Another member leads: only our topics are needed.  If we lead again, the others are requested again."""
        self.reset_group_subscription()
        self._ask()
        self._answered &= self._asked

    def metadata_updated(self, event: MetadataUpdated) -> None:
        """Store the metadata of the requested topics."""
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
        """Topic -> its number of partitions, for existing topics that the group reads."""
        return {topic: self._counts[topic] for topic in sorted(self._group_topics) if topic in self._counts}

    def partition_counts(self) -> dict[str, int | None]:
        """The number of partitions of this member's topics: 0 if it does not exist, None while unknown."""
        return {
            topic: self._counts.get(topic, 0 if self._is_all_known or topic in self._answered else None)
            for topic in self.topics or ()
        }

    def racks(self) -> dict[TopicPartition, frozenset[str]]:
        """The racks with replicas of the snapshot's partitions, from the last metadata."""
        return {tp: racks for tp, racks in self._racks.items() if tp.topic in self._group_topics}

    def unsubscribed_topics(self, partitions: Iterable[TopicPartition]) -> list[str]:
        """The topics of these that are not subscribed; a filter may match more topics than we know yet."""
        topics = {tp.topic for tp in partitions}
        return sorted(topics - (self.topics or set()) if self.takes is None else filterfalse(self.takes, topics))

    def _ask(self) -> None:
        wanted = self._group_topics | (self.topics or frozenset())
        if wanted != self._asked:
            self._asked = wanted
            self._pending_commands.add(NeedMetadata(wanted))
