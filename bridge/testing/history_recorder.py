"""Records the writes of one group that the fake ZooKeeper and the embedded broker accepted, for ``zkconsumer check``.

    recorder = HistoryRecorder("g1")
    zookeeper.on_changes = recorder.zookeeper_callback(zookeeper)       # a FakeZooKeeper
    broker.on_group_response(recorder.kafka_callback(lambda call, body: call.client_id))   # an EmbeddedBroker
    recorder.member("tool", "migrator", store.session_id)
    ...
    verdict = check_history(recorder.events)

One line for each write, in the order in which the stores executed them; every line has a later time than the one
before.  ZooKeeper has sessions and no members, so ``member`` and ``session`` must name the owner of a session.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from zkconsumer.errors import MalformedZnode
from zkconsumer.testing.checker import (
    ControlWritten,
    Fenced,
    HistoryEvent,
    HistoryNote,
    MemberDeclared,
    OffsetCommitted,
    Unfenced,
    dump_line,
)
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse
from zkconsumer.wire.schemas.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from zkconsumer.wire.schemas.sync_group import SyncGroupRequest, SyncGroupResponse
from zkconsumer.zk import paths
from zkconsumer.zk.znode_formats import parse_control, parse_offset

if TYPE_CHECKING:
    from bridge.coordinator.api_request import ApiRequest
    from zkconsumer.testing.checker.events import HistoryMemberKind, HistoryStore
    from zkconsumer.testing.fake_zookeeper import FakeZooKeeper
    from zkconsumer.testing.znode_tree import ZnodeChange

ClientNameOf: TypeAlias = "Callable[[ApiRequest, Any], str | None]"
"""The name of the client of a group coordinator; None: it is not in the history."""

FIRST_MS = 1_400_000_000_000


class HistoryRecorder:
    """The lines of one group.  ``events`` may be checked at any time; ``save`` writes them to a file."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.events: list[HistoryEvent] = []
        self._sessions: dict[int, str] = {}
        self._migrators: set[str] = set()
        self._placeholder_id: str | None = None
        """The member id of the placeholder member while it is in the group."""
        place = re.escape(paths.group_root(group))
        self._node = re.compile(rf"{place}/(owners|offsets)/([^/]+)/([0-9]+)(/fenced)?")

    def add(self, event: type[HistoryEvent], *fields: Any, **more: Any) -> None:
        """Add a line, later than all before it."""
        self.events.append(event(FIRST_MS + len(self.events), *fields, **more))

    def member(self, name: str, kind: HistoryMemberKind, session_id: int | None = None) -> None:
        """Add a member; writes of the session are its writes."""
        self.add(MemberDeclared, name, kind)
        if kind == "migrator":
            self._migrators.add(name)
        if session_id is not None:
            self._sessions[session_id] = name

    def session(self, session_id: int, name: str) -> None:
        """Add a session of a member."""
        self._sessions[session_id] = name

    def placeholder_expired(self) -> None:
        """The coordinator has removed the placeholder member after its session timeout; no response shows that."""
        if self._placeholder_id is not None:
            self._members_left([self._placeholder_id])

    def save(self, path: Path) -> None:
        """Write the lines."""
        path.write_text("".join(f"{dump_line(event)}\n" for event in self.events), encoding="utf-8")

    # --- ZooKeeper ----------------------------------------------------------------------------------------------

    def zookeeper_callback(self, zookeeper: FakeZooKeeper) -> Callable[[Iterable[ZnodeChange], int], None]:
        """For ``FakeZooKeeper.on_changes``."""

        def changed(changes: Iterable[ZnodeChange], session_id: int) -> None:
            for path, kind in changes:
                self._changed(path, None if kind == "deleted" else zookeeper.tree.data(path), session_id)

        return changed

    def _changed(self, path: str, data: bytes | None, session_id: int) -> None:
        if path == paths.control(self.group) and data is not None:
            found = parse_control(data)
            self.add(
                ControlWritten, found.epoch, found.phase, found.authority, found.migration_id, found.strategy,
                found.is_confirmed,
            )  # fmt: skip
            return
        node = self._node.fullmatch(path)
        if node is None:
            return
        folder, topic, number, is_fence = node[1], node[2], int(node[3]), bool(node[4])
        if folder == "owners" and is_fence:
            self.add(Fenced if data is not None else Unfenced, "zookeeper", topic, number)
        elif folder == "offsets" and not is_fence and data is not None:
            by = self._sessions.get(session_id)
            try:
                self._committed("zookeeper", TopicPartition(topic, number), parse_offset(data), by)
            except MalformedZnode as error:
                self.add(HistoryNote, f"{path}, written by {by or 'an unknown client'}: {error}")

    # --- Kafka --------------------------------------------------------------------------------------------------

    def kafka_callback(self, whose: ClientNameOf) -> Callable[[ApiRequest, Any, Any], None]:
        """For ``EmbeddedBroker.on_group_response``."""

        def answered(call: ApiRequest, body: Any, answer: Any) -> None:
            by = whose(call, body)
            match body, answer:
                case OffsetCommitRequest(group_id=self.group), OffsetCommitResponse():
                    self._committed_in_kafka(body, answer, by)
                case SyncGroupRequest(group_id=self.group), SyncGroupResponse(error_code=0):
                    if by in self._migrators:
                        self._placeholder_joined(body.member_id)
                case LeaveGroupRequest(group_id=self.group), LeaveGroupResponse(error_code=0):
                    self._members_left(
                        [body.member_id, *(one.member_id for one in answer.members if not one.error_code)]
                    )

        return answered

    def _committed_in_kafka(self, body: OffsetCommitRequest, answer: OffsetCommitResponse, by: str | None) -> None:
        taken = {(topic.name, one.partition_index) for topic in answer.topics for one in topic.partitions
                 if not one.error_code}  # fmt: skip
        for topic in body.topics:
            for one in topic.partitions:
                if (topic.name, one.partition_index) in taken:
                    self._committed("kafka", TopicPartition(topic.name, one.partition_index), one.committed_offset, by)

    def _placeholder_joined(self, member_id: str) -> None:
        if self._placeholder_id is None:
            self.add(Fenced, "kafka")
        self._placeholder_id = member_id

    def _members_left(self, member_ids: Collection[str]) -> None:
        if self._placeholder_id is not None and self._placeholder_id in member_ids:
            self.add(Unfenced, "kafka")
            self._placeholder_id = None

    def _committed(self, store: HistoryStore, tp: TopicPartition, offset: int, by: str | None) -> None:
        if offset < 0:
            self.add(HistoryNote, f"{tp}: {by or 'an unknown client'} stored {offset} in {store}, which is no offset")
        else:
            self.add(OffsetCommitted, tp.topic, tp.partition, offset, by, store=store)
