"""The facts about a group, and the findings.  Pure values.

``GroupFacts`` has two snapshots of the group and the samples between them.  A fact that could not be read is a sentence
in ``not_known``, and findings that need it are not made.
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
"""``auto.commit.interval.ms`` of the Scala consumer (0.8.2 to 1.1): how long a stored offset may stay unchanged."""

REBALANCE_ATTEMPTS_MS = 8_000
"""``rebalance.max.retries`` times ``rebalance.backoff.ms`` of the Scala consumer: after this time it has given up."""


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One problem.

    ``name`` is for programs and never changes; ``description`` is a sentence.  ``evidence``: paths, values and ages
    that show it.  ``next_steps``: commands, or who must do what.
    """

    name: str
    description: str
    evidence: tuple[str, ...]
    next_steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetSample:
    """Stored offsets at one moment between the snapshots: partition → offset and data version."""

    at_ms: int
    offsets: Mapping[TopicPartition, tuple[int, int]]


@dataclass(frozen=True)
class GroupFacts:
    """``first_snapshot`` and ``second_snapshot``: the same one if there was no time for two.

    ``now_ms`` is ZooKeeper's time as far as it is known.  ``samples`` are from between them, oldest first.  ``codecs``:
    topic → names of the codecs in its newest batches, with the position of one batch each.  ``coordinator_group``: the
    group of the same name at the coordinator, None if unknown.  ``brokers_before_0_10``: brokers without ApiVersions.
    ``stores_in_kafka``: the given file has ``offsets.storage=kafka``.
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
        """The group in the second snapshot."""
        return self.second_snapshot.state

    @property
    def group(self) -> str:
        return self.state.group

    @property
    def zookeeper_only_members(self) -> list[str]:
        """Registered members that are not migrating members (strategy ``dual``), in ZooKeeper's order.

        The others are also in the group of the coordinator, by design, and get their assignments from there.
        """
        return [name for name in self.state.members if name not in self.state.migrating_members]

    @property
    def interval_ms(self) -> int:
        """The time between the two snapshots."""
        return self.second_snapshot.state.read_at_ms - self.first_snapshot.state.read_at_ms

    def is_kept_in_kafka(self, tp: TopicPartition) -> bool:
        """Whether Kafka's offset of the partition is valid: by the control znode or the file, or because Kafka's is
        larger."""
        if self.state.authority == "kafka":
            return True
        node, in_kafka = self.state.offsets.get(tp), self.second_snapshot.kafka.offsets.get(tp)
        in_zookeeper = node.offset if node is not None else None
        return self.stores_in_kafka or (in_kafka is not None and (in_zookeeper is None or in_kafka > in_zookeeper))

    @cached_property
    def assignment_context(self) -> AssignmentContext | None:
        """What assignments are computed from; None if some subscription cannot be evaluated."""
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
        """The variants that explain every owner of a registered member, the most common first; empty if none does."""
        if self.assignment_context is None:
            return ()
        found = recognise(self.registered_owners, self.assignment_context)
        return tuple(form for form in AssignorVariant if form in found)

    @cached_property
    def assignment(self) -> GroupAssignment | None:
        """The assignment as the group computes it, if the owners show the variant; None if they do not.

        While there are no owners it is range, the default.
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
        """The owners: partition → thread id, of registered members."""
        return {
            tp: owner.thread_id for tp, owner in self.state.owners.items()
            if owner.kind != "persistent" and owner.consumer_id in self.state.members
        }  # fmt: skip

    @property
    def is_stable(self) -> bool:
        """Whether both snapshots have the same members and owners, and no member joined within the retries of a
        rebalance."""
        first, second = self.first_snapshot.state, self.second_snapshot.state
        youngest_ms = max((member.stat.ctime_ms for member in second.members.values()), default=0)
        return (
            list(first.members) == list(second.members)
            and {tp: one.stat.czxid for tp, one in first.owners.items()}
            == {tp: one.stat.czxid for tp, one in second.owners.items()}
            and self.now_ms - youngest_ms > REBALANCE_ATTEMPTS_MS
        )
