"""Writes the offsets of a group without members: only larger offsets, and only over the offsets that were read.

ZooKeeper is written first, with the version that was read; then Kafka, with the offsets that ZooKeeper accepted.  A
member that registers meanwhile stops it: its own commits would be overwritten, or would overwrite ours.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Protocol

from bridge.spark.membership.membership_target import TargetGroup, target_of
from zkconsumer.admin.admin_session import AdminDependencies, AdminSession
from zkconsumer.admin.kafka_offsets import KafkaOffsetAdmin
from zkconsumer.admin.offset_lines import OffsetStoreName
from zkconsumer.admin.text_format import list_text, registered_text
from zkconsumer.admin.zookeeper_group import read_control, read_offsets
from zkconsumer.admin.zookeeper_offset_writes import (
    NO_ZNODE_VERSION,
    OffsetWrite,
    StoreWriteReport,
    registered_members,
    write_offsets,
)
from zkconsumer.errors import OffsetsNotCommitted, PreconditionFailed, ZkConsumerError
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import Acl, Create
from zkconsumer.zk.zk_security import SECURE_ACL

log = logging.getLogger("zkconsumer.spark")


class OffsetWriter(Protocol):
    """Where a projector writes offsets.  One thread."""

    def write_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write these offsets, except where the group's offset is larger.

        Raises ``OffsetsNotCommitted`` for rejected ones after it has written the others, and any ``ZkConsumerError``.
        """

    def close(self) -> None:
        """End; no more writes follow."""


class GroupOffsetWriter:
    """Both stores of a group without members.  The session is opened when it is needed, and again after an error.

    For a group that has migrated to Kafka it writes to Kafka, whatever ``stores`` is.
    """

    def __init__(
        self,
        zookeeper: str | None,
        group: str,
        stores: Collection[OffsetStoreName],
        config_file: Path | None = None,
        dependencies: AdminDependencies | None = None,
    ) -> None:
        """Opens no connection.  Raises ``InvalidNameError``."""
        self._open: Callable[[], AdminSession] = lambda: AdminSession.open(zookeeper, config_file, dependencies)
        self._group = paths.check_group(group)
        self._stores = stores
        self._session: AdminSession | None = None
        self._shown: set[str] = set()
        self._is_kafka_logged = False

    def write_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See ``OffsetWriter``; ``PreconditionFailed`` while the group has members, or is migrating."""
        try:
            if self._session is None:
                self._session = self._open()
            refused = self._write(self._session, offsets)
        except ZkConsumerError:
            self.close()
            raise
        if refused:
            raise OffsetsNotCommitted(refused)

    def close(self) -> None:
        """End the session; the next ``write_offsets`` opens another."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _write(self, session: AdminSession, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
        control, version, problem = read_control(session, self._group)
        if problem:
            raise PreconditionFailed(f"the control znode of group {self._group} cannot be read ({problem}): repair it")
        place = target_of(control)
        if place.group is TargetGroup.NONE:
            raise PreconditionFailed(
                f"group {self._group} is migrating, and no offset is written meanwhile: {place.wait_reason}; the "
                "offsets are written after the migration"
            )
        stores = ("kafka",) if place.group is TargetGroup.KAFKA else self._stores
        if place.group is TargetGroup.KAFKA and "zookeeper" in self._stores and not self._is_kafka_logged:
            self._is_kafka_logged = True
            log.warning(
                "projection-switched-to-kafka group=%s: its offsets are in Kafka now, and written there", self._group
            )
        self._refuse_members(session)
        refused: dict[TopicPartition, str] = {}
        if "zookeeper" in stores:
            refused = self._to_zookeeper(session, offsets, version)
        if "kafka" in stores:
            refused |= self._to_kafka(session, {tp: n for tp, n in offsets.items() if tp not in refused})
        return refused

    def _refuse_members(self, session: AdminSession) -> None:
        members = registered_members(session, self._group)
        if members:
            raise PreconditionFailed(
                f"{registered_text(len(members))} in group {self._group} ({list_text(members)}): no offset is written "
                "while the group has other members. Stop them, or let the query be a member: "
                'format("zkconsumer")'
            )

    def _to_zookeeper(
        self, session: AdminSession, offsets: Mapping[TopicPartition, int], control_version: int | None
    ) -> dict[TopicPartition, str]:
        topics = {tp.topic for tp in offsets}
        nodes, _, _ = read_offsets(session, self._group, topics)
        bad = {tp: node.problem for tp, node in nodes.items() if node.problem and tp in offsets}
        refused = {tp: f"its znode contains no number ({problem})" for tp, problem in bad.items()}
        writes: list[OffsetWrite] = []
        for tp in sorted(offsets.keys() - refused.keys()):
            node = nodes.get(tp)
            if node is None or node.offset is None or node.offset < offsets[tp]:
                writes.append(OffsetWrite(tp, offsets[tp], NO_ZNODE_VERSION if node is None else node.stat.version))
        acl = SECURE_ACL if session.config.zookeeper_set_acl else None
        report = StoreWriteReport()
        write_offsets(session, self._group, writes, control_version=control_version, report=report, acl=acl)
        written = set(report.written)
        refused |= {write.tp: report.stopped_by for write in writes if write.tp not in written}
        self._create_owner_parents(session, topics, acl)
        return refused

    def _create_owner_parents(self, session: AdminSession, topics: set[str], acl: tuple[Acl, ...] | None) -> None:
        """``kafka-consumer-groups --zookeeper`` lists topics below ``owners`` (0.9 to 1.1), not those of offsets."""
        new = sorted(topics - self._shown)
        wanted = [paths.owners(self._group), *(paths.owners_of_topic(self._group, topic) for topic in new)]
        if new:
            session.request([Create(path, acl=acl) for path in wanted])
            self._shown |= topics

    def _to_kafka(self, session: AdminSession, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
        kafka = KafkaOffsetAdmin(session, self._group)
        stored = kafka.read_some(offsets.keys())
        known = {tp: stored[tp].offset if tp in stored else None for tp in offsets}
        forward = {tp: offset for tp, offset in offsets.items() if tp not in stored or stored[tp].offset < offset}
        report = StoreWriteReport()
        kafka.write_offsets(forward, known, report)
        written = set(report.written)
        return {tp: report.stopped_by for tp in forward if tp not in written}
