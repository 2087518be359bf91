"""The members and the state of a group as rows, for ``zkconsumer groups describe``.  Pure: sends no requests.

The columns are those of ``kafka-consumer-groups --describe --members`` and ``--state`` (Kafka 2.0 and later), in its
order, without the coordinator, which a ZooKeeper group does not have; then the kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from zkconsumer.admin.coordinator_group_snapshot import COORDINATOR_KIND
from zkconsumer.admin.describe import UNKNOWN
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from zkconsumer.admin.coordinator_group_snapshot import CoordinatorGroupSnapshot
    from zkconsumer.admin.zookeeper_group import ZooKeeperGroup

MEMBER_COLUMNS = ("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "KIND")
VERBOSE_MEMBER_COLUMNS = (*MEMBER_COLUMNS[:-1], "ASSIGNMENT", "KIND")
STATE_COLUMNS = ("GROUP", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS", "KIND")
DROPPABLE_MEMBER_COLUMNS = ("CLIENT-ID", "KIND", "HOST")
DROPPABLE_STATE_COLUMNS = ("KIND", "ASSIGNMENT-STRATEGY")
"""Columns that a narrow terminal can do without, the least important first."""


@dataclass(frozen=True, slots=True)
class GroupMemberRow:
    """One member with the partitions that it owns.  ``client_id``: None in ZooKeeper, no znode contains it."""

    group: str
    consumer_id: str
    host: str | None
    client_id: str | None
    kind: str
    partitions: Sequence[TopicPartition] = ()

    @property
    def cells(self) -> tuple[object, ...]:
        """The values in the order of ``MEMBER_COLUMNS``."""
        return self.group, self.consumer_id, self.host, self.client_id, len(self.partitions), self.kind

    @property
    def verbose_cells(self) -> tuple[object, ...]:
        """The values in the order of ``VERBOSE_MEMBER_COLUMNS``."""
        return (*self.cells[:-1], assignment_text(self.partitions), self.kind)


@dataclass(frozen=True, slots=True)
class GroupStateRow:
    """One group: of ZooKeeper (without a strategy or a state, no znode contains them), or of a coordinator.

    ``members``: None if the group has members that the broker does not name (groups of KIP-848).
    """

    group: str
    kind: str
    strategy: str | None
    state: str | None
    members: int | None

    @property
    def cells(self) -> tuple[object, ...]:
        """The values in the order of ``STATE_COLUMNS``."""
        members = UNKNOWN if self.members is None else self.members
        return self.group, self.strategy, self.state, members, self.kind


def assignment_text(partitions: Iterable[TopicPartition]) -> str:
    """Return ``topic(0,1), other(3)``, sorted; empty without partitions."""
    by_topic = groupby(sorted(partitions), key=lambda tp: tp.topic)
    return ", ".join(f"{topic}({','.join(str(tp.partition) for tp in tps)})" for topic, tps in by_topic)


def zookeeper_member_rows(state: ZooKeeperGroup) -> list[GroupMemberRow]:
    """Return the registered members, sorted by id."""
    return [
        GroupMemberRow(
            state.group, name, member.host, None, UNKNOWN if member.kind == "unknown" else member.kind,
            sorted(tp for tp, owner in state.owners.items() if owner.consumer_id == name),
        )
        for name, member in sorted(state.members.items())
    ]  # fmt: skip


def coordinator_member_rows(look: CoordinatorGroupSnapshot) -> list[GroupMemberRow]:
    """Return the members that the coordinator reports, sorted by id."""
    return [
        GroupMemberRow(look.group, one.member_id, one.host, one.client_id, COORDINATOR_KIND, sorted(one.partitions))
        for one in sorted(look.state.members, key=lambda one: one.member_id)
    ]


def group_state_rows(
    zookeeper: ZooKeeperGroup | None, coordinator: CoordinatorGroupSnapshot | None
) -> list[GroupStateRow]:
    """Return one row for each store that has the group."""
    rows = []
    if zookeeper is not None:
        rows.append(GroupStateRow(zookeeper.group, "zookeeper", None, None, len(zookeeper.members)))
    if coordinator is not None:
        found = coordinator.state
        members = None if found.has_members and not found.members else len(found.members)
        rows.append(GroupStateRow(coordinator.group, COORDINATOR_KIND, found.protocol or None, found.state, members))
    return rows
