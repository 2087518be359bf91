"""The result of one read of the group: the members, the topics and, on request, the owners.

Only values.  ``zk.group_reader`` makes them from znodes; ``member_state_machine`` decides on them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zkconsumer.types import TopicPartition


STATIC_SUBSCRIPTION = "static"
"""The pattern kind of a subscription that names its topics; ``white_list`` and ``black_list`` are the others."""


@dataclass(frozen=True, slots=True)
class TopicSubscription:
    """One member's subscription: pattern kind, and topic (or regular expression) -> threads, in document order."""

    pattern: str
    topics: Mapping[str, int]

    @property
    def is_filter(self) -> bool:
        """Whether a regular expression selects the topics."""
        return self.pattern != STATIC_SUBSCRIPTION and bool(self.topics)


Authority: TypeAlias = Literal["zookeeper", "kafka"]

ENDED_PHASES = frozenset({"completed", "undone"})
"""The phases in which the migration has ended: the group moved to Kafka, or everything is as before."""


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """The content of the control znode of a migrating group (``/zkconsumer/groups/G``).

    ``epoch`` grows with every change of the authority or of a fence.  ``phase`` and ``strategy``: see the glossary.
    Commits of our members check the znode's *version*.
    """

    migration_id: str
    epoch: int
    phase: str
    authority: Authority
    strategy: str
    is_confirmed: bool = True
    """False after a write that changes the authority of a group without members, until it is known that no member of
    the coordinator group committed before that write.  Until then, no step that depends on the change is done."""

    @property
    def is_over(self) -> bool:
        """Whether the migration has ended.  An unknown phase counts as not ended."""
        return self.phase in ENDED_PHASES


@dataclass(frozen=True, slots=True)
class GroupView:
    """The group as it was read.

    ``all_topics``: every child of ``/brokers/topics`` in ZooKeeper's order if a topic filter needs them, else None.
    ``members``: in ZooKeeper's child order.  ``ignored_registrations``: registrations that no release accepts -> the
    reason.  ``partitions_by_topic``: the partition numbers of every topic that was read; ``missing_topics``: topics
    without a znode.  ``owners``: partition -> thread id; None if they were not requested.  ``topic_czxids``: the
    transaction that created each topic's znode, if topics are read from ZooKeeper.  ``control_version``: the version of
    the control znode; None if it does not exist.
    """

    members: Mapping[str, TopicSubscription]
    partitions_by_topic: Mapping[str, tuple[int, ...]]
    ignored_registrations: Mapping[str, str] = field(default_factory=dict)
    missing_topics: frozenset[str] = frozenset()
    owners: Mapping[TopicPartition, str] | None = None
    control: ControlRecord | None = None
    all_topics: tuple[str, ...] | None = None
    topic_czxids: Mapping[str, int] = field(default_factory=dict)
    control_version: int | None = None
