"""What the doctor knows of a group, and what it says.  Pure values.

``GroupFacts`` has two looks at the group and what was seen in between; a fact that could not be had is a sentence in
``unknown``, and the findings that need it are not made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from zkconsumer.errors import MalformedZnode
from zkconsumer.member.group_assignment import (
    AssignmentContext,
    AssignmentError,
    AssignorVariant,
    GroupAssignment,
    create_instance,
)
from zkconsumer.member.group_assignment import detect_variants as recognise

if TYPE_CHECKING:
    from zkconsumer.admin.zookeeper_group import ZooKeeperGroup
    from zkconsumer.admin.zookeeper_group_snapshot import ZooKeeperGroupSnapshot
    from zkconsumer.kafka.coordinator_groups import CoordinatorGroup
    from zkconsumer.types import TopicPartition

COMMIT_INTERVAL_MS = 60_000
"""``auto.commit.interval.ms`` of the original (0.8.2 to 1.1): how long a stored offset may stand while all is well."""

REBALANCE_ATTEMPTS_MS = 8_000
"""``rebalance.max.retries`` times ``rebalance.backoff.ms`` of the original: who got nothing by then has given up."""


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One thing that is wrong.

    ``name`` is for programs and never changes; ``description`` is a sentence.  ``evidence``: paths, values and ages
    that show it.  ``next_steps``: commands, or who must do what.
    """

    name: str
    description: str
    evidence: tuple[str, ...]
    next_steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetSample:
    """Stored offsets at one moment between the looks: partition → offset and data version."""

    at_ms: int
    offsets: Mapping[TopicPartition, tuple[int, int]]


@dataclass(frozen=True)
class GroupFacts:
    """``first`` and ``second`` are the two looks (the same one when there was no time for two).

    ``now_ms`` is ZooKeeper's time as far as it is known.  ``samples`` lie between the looks, oldest first.  ``codecs``:
    topic → names of the codecs in its newest batches, with the place of one batch each.  ``coordinator_group``: the
    group of the same name at the coordinator, None when unknown.  ``brokers_before_0_10``: those that could not be
    asked what they speak.  ``stores_in_kafka``: the file that was given says ``offsets.storage=kafka``.
    """

    first_snapshot: ZooKeeperGroupSnapshot
    second_snapshot: ZooKeeperGroupSnapshot
    now_ms: int
    samples: tuple[OffsetSample, ...] = ()
    codecs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    coordinator_group: CoordinatorGroup | None = None
    brokers_before_0_10: tuple[str, ...] = ()
    commit_interval_ms: int = COMMIT_INTERVAL_MS
    stores_in_kafka: bool = False
    not_known: tuple[str, ...] = ()

    @property
    def state(self) -> ZooKeeperGroup:
        """The group at the second look."""
        return self.second_snapshot.state

    @property
    def group(self) -> str:
        return self.state.group

    @property
    def zookeeper_only_members(self) -> list[str]:
        """Registered members that do not move with the group (strategy ``dual``), in ZooKeeper's order.

        The others are in the group of the coordinator as well, by design, and their shares come from there.
        """
        return [name for name in self.state.members if name not in self.state.migrating_members]

    @property
    def interval_ms(self) -> int:
        """How far apart the looks are."""
        return self.second_snapshot.state.read_at_ms - self.first_snapshot.state.read_at_ms

    def is_kept_in_kafka(self, tp: TopicPartition) -> bool:
        """Whether the partition's offset that counts is Kafka's: the control znode or the file says so, or Kafka's is
        ahead."""
        if self.state.authority == "kafka":
            return True
        node, in_kafka = self.state.offsets.get(tp), self.second_snapshot.kafka.offsets.get(tp)
        in_zookeeper = node.offset if node is not None else None
        return self.stores_in_kafka or (in_kafka is not None and (in_zookeeper is None or in_kafka > in_zookeeper))

    @cached_property
    def assignment_context(self) -> AssignmentContext | None:
        """What a looker-on computes assignments from; None when some subscription cannot be evaluated."""
        state = self.state
        if any(m.registration is not None and n not in state.subscriptions for n, m in state.members.items()):
            return None
        partitions = {topic: one.partitions for topic, one in state.topics.items()}
        try:
            return AssignmentContext("", state.subscriptions, partitions, topics=state.all_topics)
        except MalformedZnode:
            return None

    @cached_property
    def forms(self) -> tuple[AssignorVariant, ...]:
        """The forms that explain every owner of a registered member, the commonest first; empty when none does."""
        if self.assignment_context is None:
            return ()
        found = recognise(self.registered_owners, self.assignment_context)
        return tuple(form for form in AssignorVariant if form in found)

    @cached_property
    def assignment(self) -> GroupAssignment | None:
        """The shares as the group computes them, as far as the owners show its form; None when they show none.

        While nobody owns anything, range: the default.
        """
        if self.assignment_context is None or (self.registered_owners and not self.forms):
            return None
        form = self.forms[0] if self.forms else AssignorVariant.RANGE
        try:
            return create_instance(form.strategy, form.compatibility).assign(self.assignment_context)
        except AssignmentError:
            return None

    @cached_property
    def registered_owners(self) -> dict[TopicPartition, str]:
        """Who owns what: partition → thread id, of registered members."""
        return {
            tp: owner.thread for tp, owner in self.state.owners.items()
            if owner.kind != "persistent" and owner.consumer_id in self.state.members
        }  # fmt: skip

    @property
    def is_stable(self) -> bool:
        """Whether members and owners were the same in both looks, and nobody came within the original's tries."""
        first, second = self.first_snapshot.state, self.second_snapshot.state
        youngest_ms = max((member.stat.ctime_ms for member in second.members.values()), default=0)
        return (
            list(first.members) == list(second.members)
            and {tp: one.stat.czxid for tp, one in first.owners.items()}
            == {tp: one.stat.czxid for tp, one in second.owners.items()}
            and self.now_ms - youngest_ms > REBALANCE_ATTEMPTS_MS
        )
