"""A member as the simulation plays it: it joins, syncs, heartbeats and commits, and takes errors as clients do."""

from __future__ import annotations

from typing import Any

from tests.coordinator.server_simulation import Connection, World
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas.heartbeat import HeartbeatRequest
from zkconsumer.wire.schemas.join_group import JoinGroupProtocol, JoinGroupRequest
from zkconsumer.wire.schemas.leave_group import LeaveGroupRequest, LeavingMember
from zkconsumer.wire.schemas.offset_commit import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from zkconsumer.wire.schemas.sync_group import SyncGroupAssignment, SyncGroupRequest

PARTITIONS = 6
SESSION_MS = 6_000
REBALANCE_MS = 8_000
HEARTBEAT_MS = 1_000
REQUEST_TIMEOUT_MS = REBALANCE_MS + 5_000
JOIN, SYNC, HEARTBEAT, LEAVE, COMMIT = 11, 14, 12, 13, 8


class Process:
    """One process; ``instance``: of a static member.  A frozen one sends nothing and hears nothing until it thaws."""

    def __init__(self, world: World, instance: str | None) -> None:
        self.world = world
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.partitions: tuple[int, ...] = ()
        self.is_stable = False
        self.is_alive = True
        self.frozen_until_ms = 0
        self._connection: Connection | None = None
        self._round = 0
        self._is_busy = False
        world.after(world.random.randint(0, 500), self.join)
        world.after(HEARTBEAT_MS, self._beat)

    # --- talking -----------------------------------------------------------------------------------------------------

    def _send(self, api_key: int, version: int, body: Any, heard: Any) -> None:
        """Ask the coordinator; ``heard`` is given the answer, unless something else has begun meanwhile."""
        world = self.world
        if self._connection is None or not self._connection.is_open:
            brokers = world.brokers
            is_right = world.is_calm or world.random.random() < 0.9
            broker = world.leader if is_right and world.leader is not None else world.random.choice(brokers)
            self._connection = Connection(world, broker, self._lost)
        connection, round_ = self._connection, self._round

        def answered(answer: Any) -> None:
            if self.frozen_until_ms > world.now_ms:
                world.at(self.frozen_until_ms, lambda: answered(answer))
            elif self.is_alive and self._round == round_:
                heard(answer)

        connection.send(api_key, version, body, answered)

    def _lost(self) -> None:
        self._connection = None
        if self.is_alive and not self.is_stable:
            self._again(100)

    def _again(self, after_ms: int) -> None:
        """Join again after a while; whatever was asked before is not waited for any more."""
        self._round += 1
        self.is_stable = False
        round_ = self._round
        self.world.after(after_ms, lambda: self.join() if self.is_alive and self._round == round_ else None)

    def _refused(self, error: int) -> None:
        if error == 82:
            self.is_alive = False
        elif error in (15, 16, 14):
            self._move()
            self._again(100)
        else:
            if error == 25:
                self.member_id, self.generation = "", -1
            self._again(10)

    def _move(self) -> None:
        if self._connection is not None:
            self._connection.is_open = False
            self._connection = None

    # --- joining -----------------------------------------------------------------------------------------------------

    def join(self) -> None:
        if not self.is_alive:
            return
        if self.frozen_until_ms > self.world.now_ms:
            self.world.at(self.frozen_until_ms, self.join)
            return
        self._round += 1
        self.is_stable = False
        round_, sent_as = self._round, self.member_id
        body = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[JoinGroupProtocol(name="range", metadata=b"")],
        )
        self._send(JOIN, 7, body, lambda answer: self._joined(answer, sent_as))
        self.world.after(REQUEST_TIMEOUT_MS, lambda: self._timed_out(round_))

    def _timed_out(self, round_: int) -> None:
        if self.is_alive and self._round == round_ and not self.is_stable:
            if self.frozen_until_ms > self.world.now_ms:
                self.world.at(self.frozen_until_ms + 10, lambda: self._timed_out(round_))
                return
            self._move()
            self._again(10)

    def _joined(self, answer: Any, sent_as: str) -> None:
        if self.instance is not None and sent_as:
            self.world.checker.told(sent_as, answer.error_code)
        if answer.error_code == 79:
            self.member_id = answer.member_id
            self.join()
            return
        if answer.error_code:
            self._refused(answer.error_code)
            return
        self.member_id, self.generation = answer.member_id, answer.generation_id
        assignments = []
        if answer.leader == answer.member_id:
            ids = [member.member_id for member in answer.members]
            for index, member_id in enumerate(ids):
                given = bytes(range(index, PARTITIONS, len(ids)))
                assignments.append(SyncGroupAssignment(member_id=member_id, assignment=given))
        body = SyncGroupRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            assignments=assignments,
        )
        self._send(SYNC, 4, body, self._synced)

    def _synced(self, answer: Any) -> None:
        self._told(answer.error_code)
        if answer.error_code:
            self._refused(answer.error_code)
            return
        self.partitions = tuple(answer.assignment)
        self.is_stable = True
        self.world.checker.assigned(self.instance or self.member_id, self.generation, self.partitions)

    def _told(self, error: int) -> None:
        if self.instance is not None:
            self.world.checker.told(self.member_id, error)

    # --- staying -----------------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        if not self.is_alive:
            return
        if self.frozen_until_ms <= self.world.now_ms and self.generation > 0:
            body = HeartbeatRequest(
                group_id="g",
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance,
            )
            if self.is_stable:
                self._send(HEARTBEAT, 3, body, self._heard)
                if self.partitions and self.world.random.random() < 0.5:
                    self._commit()
        self.world.after(HEARTBEAT_MS, self._beat)

    def _heard(self, answer: Any) -> None:
        if answer.error_code not in (27,):
            self._told(answer.error_code)
        if answer.error_code:
            self._refused(answer.error_code)

    def _commit(self) -> None:
        # Numbers grow with time, so that of two commits the one that was made later is greater.
        offset = self.world.now_ms
        rows = [OffsetCommitPartition(partition_index=index, committed_offset=offset) for index in self.partitions]
        body = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            topics=[OffsetCommitTopic(name="t", partitions=rows)],
        )
        self._send(COMMIT, 7, body, lambda answer: self._committed(answer, offset))

    def _committed(self, answer: Any, offset: int) -> None:
        errors = {row.error_code for topic in answer.topics for row in topic.partitions}
        if errors == {0}:
            self._told(0)
            rows = [row for topic in answer.topics for row in topic.partitions]
            self.world.checker.committed({TopicPartition("t", row.partition_index): offset for row in rows})

    # --- going -------------------------------------------------------------------------------------------------------

    def crash(self) -> None:
        self.is_alive = False
        self._move()

    def freeze(self, for_ms: int) -> None:
        self.frozen_until_ms = self.world.now_ms + for_ms

    def leave(self) -> None:
        if self.member_id and self.is_alive:
            who = LeavingMember(member_id=self.member_id, group_instance_id=self.instance)
            self._send(LEAVE, 3, LeaveGroupRequest(group_id="g", members=[who]), lambda answer: None)
        self.is_alive = False
