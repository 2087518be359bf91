"""Both offset stores of one group, as the ``offsets`` commands need them: first read, then written.

    read()               members, the control znode, the offsets in ZooKeeper with their versions, the offsets in Kafka
    plan                 made by pure functions from the snapshot (``offset_plan``)
    rejection_reason()   why nothing may be written: members are active, or the other store has the authority
    write()              the plan's rows: ZooKeeper first, where each write names the version it replaces, then Kafka

With brokers only there is only Kafka's store, and members of a ZooKeeper group of that name are not visible.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.admin.broker_client import BROKER_REQUEST_ERRORS
from zkconsumer.admin.kafka_offsets import KafkaOffsetAdmin
from zkconsumer.admin.log_ranges import LogRange, log_ranges
from zkconsumer.admin.text_format import count_text
from zkconsumer.admin.zookeeper_group import OffsetNode, TopicPartitions, read_control, read_offsets, read_topics
from zkconsumer.admin.zookeeper_offset_writes import (
    NO_ZNODE_VERSION,
    OffsetWrite,
    StoreWriteReport,
    members_registered_text,
    registered_members,
    write_offsets,
)
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.zk_security import SECURE_ACL
from zkconsumer.zk.znode_formats import placeholder_client_id

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from zkconsumer.admin.admin_session import AnySession
    from zkconsumer.admin.offset_lines import OffsetStoreName
    from zkconsumer.admin.offset_plan import OffsetPlan, PlannedOffset
    from zkconsumer.kafka.coordinator_groups import CoordinatorGroup
    from zkconsumer.zk.znode_formats import ControlRecord

MEMBERS_SHOWN_MAX = 5

NO_SUCH_TOPIC = "there is no such topic"


@dataclass(frozen=True, slots=True)
class GroupOffsetsSnapshot:
    """A group's stores as they were read.

    ``kafka`` is None if it was not read, or ``kafka_problem`` has the reason.
    """

    group: str
    members: Sequence[str]
    zookeeper: Mapping[TopicPartition, OffsetNode]
    unexpected_nodes: Sequence[str]
    kafka: Mapping[TopicPartition, int] | None
    kafka_problem: str
    control: ControlRecord | None
    control_version: int | None
    control_problem: str
    coordinator_group: CoordinatorGroup | None = None
    is_zookeeper_read: bool = True
    """False with brokers only."""

    @property
    def unreadable(self) -> list[OffsetNode]:
        """The offset znodes that do not contain a number."""
        return [node for node in self.zookeeper.values() if node.problem]

    @property
    def may_have_unseen_members(self) -> bool:
        """Whether ZooKeeper was not read, and no member of the coordinator stored the offsets in Kafka."""
        has_been_modern = self.coordinator_group is not None and bool(self.coordinator_group.protocol_type)
        return not self.is_zookeeper_read and bool(self.kafka) and not has_been_modern

    @property
    def is_migrating(self) -> bool:
        """Whether a migration is under way."""
        return self.control is not None and not self.control.is_over

    @property
    def is_new(self) -> bool:
        """Whether the group does not exist: it has no member, and no offset in a store that was read."""
        has_been_modern = self.coordinator_group is not None and bool(self.coordinator_group.protocol_type)
        is_unknown = bool(self.kafka_problem)
        return not (self.members or self.zookeeper or self.kafka or self.control or has_been_modern or is_unknown)

    @property
    def is_migrated(self) -> bool:
        """Whether a migration has given the authority to Kafka, so that no member reads the offsets in ZooKeeper."""
        return self.control is not None and self.control.authority == "kafka"

    def offsets_in(self, store: OffsetStoreName) -> Mapping[TopicPartition, int | None]:
        """The offset of each partition in this store; None: the znode does not contain an offset."""
        if store == "zookeeper":
            return {tp: node.offset for tp, node in self.zookeeper.items()}
        assert self.kafka is not None, "Kafka's offsets were not read"
        return dict(self.kafka)

    def rejection_reason(self, stores: Sequence[OffsetStoreName]) -> str:
        """Why nothing may be written now; empty if it may."""
        if self.control_problem:
            return f"the control znode of group {self.group} cannot be read ({self.control_problem}); repair it first"
        if self.control is not None and self.is_migrated and "zookeeper" in stores:
            return (
                f"the offsets of group {self.group} are in Kafka now (migration {self.control.migration_id}), "
                "and no member reads what is written to ZooKeeper: write to store kafka"
            )
        if self.members:
            names = ", ".join(self.members[:MEMBERS_SHOWN_MAX])
            more = len(self.members) - MEMBERS_SHOWN_MAX
            return (
                f"group {self.group} is active: {names}{f' and {more} more' if more > 0 else ''}. A running owner "
                "overwrites any offset with its own position at its next commit, so stop all members first. "
                f"Their hosts: zkconsumer groups describe {shlex.quote(self.group)}"
            )
        if (
            "kafka" in stores
            and self.coordinator_group is not None
            and has_only_placeholder_member(self.coordinator_group, self.control)
        ):
            return (
                f"the placeholder member of a migration blocks the coordinator group {self.group}, and brokers accept "
                "commits of its members only: finish the migration or roll it back first. Its state: "
                f"zkconsumer migrate status {shlex.quote(self.group)}"
            )
        if "kafka" in stores and self.coordinator_group is not None and self.coordinator_group.has_members:
            members = count_text(len(self.coordinator_group.members), "member")
            return (
                f"the coordinator group {self.group} has members ({self.coordinator_group.state}, {members}), and "
                "brokers accept commits of its members only: stop them first. Their hosts: zkconsumer groups describe "
                f"{shlex.quote(self.group)}"
            )
        return ""


def has_only_placeholder_member(coordinator_group: CoordinatorGroup, control: ControlRecord | None) -> bool:
    """Whether the only member of the coordinator's group is the placeholder member of a migration."""
    if control is None or control.is_over or not coordinator_group.members:
        return False
    return all(member.client_id == placeholder_client_id(control.migration_id) for member in coordinator_group.members)


class GroupOffsetStores:
    """The stores of one group.  One thread."""

    def __init__(self, session: AnySession, group: str) -> None:
        self._session = session
        # Brokers accept any name; only in a path it must be a safe one.
        self._group = paths.check_group(group) if isinstance(session, AdminSession) else group
        self._kafka = KafkaOffsetAdmin(session, group)

    def read(self, stores: Sequence[OffsetStoreName], *, include_kafka: bool = False) -> GroupOffsetsSnapshot:
        """Read the group.  Kafka is read if ``stores`` contains it, or, where it may fail, with ``include_kafka``.

        Raises ``UnavailableError`` when ZooKeeper does not answer, and what ``KafkaOffsetAdmin.read_offsets`` raises
        when Kafka is needed.
        """
        if not isinstance(self._session, AdminSession):
            return self._read_from_brokers(stores)
        nodes, _, odd = read_offsets(self._session, self._group)
        control, version, problem = read_control(self._session, self._group)
        members = registered_members(self._session, self._group)
        kafka: Mapping[TopicPartition, int] | None = None
        kafka_problem = ""
        coordinator_group = self._coordinator_group() if "kafka" in stores else None
        try:
            if include_kafka or "kafka" in stores:
                kafka = {tp: stored.offset for tp, stored in self._kafka.read_offsets().items()}
        except BROKER_REQUEST_ERRORS as error:
            if "kafka" in stores:
                raise
            kafka_problem = str(error)
        return GroupOffsetsSnapshot(
            self._group, members, nodes, odd, kafka, kafka_problem, control, version, problem, coordinator_group
        )

    def _read_from_brokers(self, stores: Sequence[OffsetStoreName]) -> GroupOffsetsSnapshot:
        assert "zookeeper" not in stores, "with brokers only the command rejects this store"
        kafka = {tp: stored.offset for tp, stored in self._kafka.read_offsets().items()}
        coordinator_group = self._coordinator_group()
        return GroupOffsetsSnapshot(
            self._group, (), {}, (), kafka, "", None, None, "", coordinator_group, is_zookeeper_read=False
        )

    def _coordinator_group(self) -> CoordinatorGroup | None:
        """None if its coordinator does not answer: then the broker itself rejects a write to a group with members."""
        try:
            return self._kafka.coordinator_group()
        except BROKER_REQUEST_ERRORS:
            return None

    def log_ranges(
        self, partitions: Collection[TopicPartition], time_ms: int | None = None
    ) -> dict[TopicPartition, LogRange | str]:
        """The start and the end of the logs, or why they are unknown.

        Requests name only existing topics: a broker before 0.11 would create others.
        """
        try:
            topics = self.topics({tp.topic for tp in partitions})
        except BROKER_REQUEST_ERRORS as error:
            return dict.fromkeys(partitions, str(error))
        numbers = {topic: set(node.partitions) for topic, node in topics.items()}
        found: dict[TopicPartition, LogRange | str] = {}
        for tp in partitions:
            if tp.topic not in topics:
                found[tp] = NO_SUCH_TOPIC
            elif topics[tp.topic].problem:
                found[tp] = f"the znode of topic {tp.topic} cannot be read: {topics[tp.topic].problem}"
            elif tp.partition not in numbers[tp.topic]:
                found[tp] = f"topic {tp.topic} has no such partition"
        wanted = [tp for tp in partitions if tp not in found]
        try:
            found |= log_ranges(self._session.brokers, wanted, time_ms) if wanted else {}
        except BROKER_REQUEST_ERRORS as error:
            found |= dict.fromkeys(wanted, str(error))
        return found

    def topics(self, names: Iterable[str]) -> dict[str, TopicPartitions]:
        """Those of these topics that exist."""
        return read_topics(self._session, names)

    def can_delete_in_kafka(self) -> bool:
        """Whether the brokers can delete single offsets (from 2.4 on)."""
        return self._kafka.can_delete()

    def write(self, plan: OffsetPlan, seen: GroupOffsetsSnapshot, reports: GroupWriteReports) -> None:
        """Execute the plan's changes until one fails; ``reports`` is correct at every moment."""
        changes = plan.changes
        if isinstance(self._session, AdminSession):
            self._write_to_zookeeper(self._session, [row for row in changes if row.store == "zookeeper"], seen, reports)
        if not reports.zookeeper.stopped_by:
            self._write_to_kafka([row for row in changes if row.store == "kafka"], reports.kafka)

    def _write_to_zookeeper(
        self,
        session: AdminSession,
        rows: Sequence[PlannedOffset],
        seen: GroupOffsetsSnapshot,
        reports: GroupWriteReports,
    ) -> None:
        writes = [OffsetWrite(row.tp, row.new, _version(seen, row.tp)) for row in rows]
        acl = SECURE_ACL if session.config.zookeeper_set_acl else None
        write_offsets(
            session, self._group, writes, control_version=seen.control_version, report=reports.zookeeper, acl=acl
        )

    def _write_to_kafka(self, rows: Sequence[PlannedOffset], report: StoreWriteReport) -> None:
        if not rows:
            return
        known = {row.tp: row.current for row in rows}
        self._kafka.write_offsets({row.tp: row.new for row in rows if row.new is not None}, known, report)
        if not report.stopped_by:
            self._kafka.delete([row.tp for row in rows if row.new is None], known, report)
        members = self._kafka.zookeeper_members()
        if members and not report.stopped_by:
            report.stopped_by = members_registered_text(members)


@dataclass(slots=True)
class GroupWriteReports:
    """The progress of the writes, for each store."""

    zookeeper: StoreWriteReport = field(default_factory=StoreWriteReport)
    kafka: StoreWriteReport = field(default_factory=StoreWriteReport)

    @property
    def written(self) -> int:
        """How many offsets were certainly written."""
        return len(self.zookeeper.written) + len(self.kafka.written)

    @property
    def unknown(self) -> list[TopicPartition]:
        """Offsets that were sent and whose answer never arrived."""
        return [*self.zookeeper.unknown, *self.kafka.unknown]

    @property
    def stopped_by(self) -> str:
        """Why the writes stopped; empty if they did not."""
        return self.zookeeper.stopped_by or self.kafka.stopped_by


def _version(seen: GroupOffsetsSnapshot, tp: TopicPartition) -> int:
    node = seen.zookeeper.get(tp)
    return NO_ZNODE_VERSION if node is None else node.stat.version
