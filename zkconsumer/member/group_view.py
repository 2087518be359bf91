"""What one reading of the group gave: the members, the topics and, when asked for, the owners.

Only values.  ``zk.group_reader`` makes them from znodes; ``core.group`` decides on them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zkconsumer.types import TopicPartition


STATIC_SUBSCRIPTION = "static"
"""The pattern kind of a subscription that names its topics; ``white_list`` and ``black_list`` are the others."""


@dataclass(frozen=True, slots=True)
class TopicSubscription:
    """What one member wants: a pattern kind and topic (or regular expression) -> threads, in document order."""

    pattern: str
    topics: Mapping[str, int]

    @property
    def is_filter(self) -> bool:
        """Whether the topics are chosen by a regular expression."""
        return self.pattern != STATIC_SUBSCRIPTION and bool(self.topics)


@dataclass(frozen=True, slots=True)
class GroupControl:
    """The control znode of a group on the move (``/zkconsumer/groups/G``), at one version."""

    version: int
    authority: str
    phase: str = ""
    migration_id: str = ""
    epoch: int = 0
    strategy: str = ""


@dataclass(frozen=True, slots=True)
class GroupView:
    """The group as it was read.

    ``all_topics`` holds every child of ``/brokers/topics`` in ZooKeeper's order, when some filter needs them; else
    None.  ``members`` is in ZooKeeper's child order.  ``left_out`` names registrations that no release accepts, with
    the reason.  ``topics`` holds the partition numbers of every topic that matters here; ``missing`` the topics
    without a znode.  ``owners`` is None unless it was asked for.  ``topic_czxids`` tells in which transaction each
    topic's znode was created, where topics are read from ZooKeeper.
    """

    members: Mapping[str, TopicSubscription]
    partitions_by_topic: Mapping[str, tuple[int, ...]]
    ignored_registrations: Mapping[str, str] = field(default_factory=dict)
    missing_topics: frozenset[str] = frozenset()
    owners: Mapping[TopicPartition, str] | None = None
    control: GroupControl | None = None
    all_topics: tuple[str, ...] | None = None
    topic_czxids: Mapping[str, int] = field(default_factory=dict)
