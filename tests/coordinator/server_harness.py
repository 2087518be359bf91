"""A group coordinator on a table: a clock moved by hand, a log in memory, and requests as words.

    table = Table()
    a = table.join("g")            # sends, and gives the token
    table.move(3_000)              # timers fire on their way
    table.answer(a).generation_id

Appends are settled at once, unless ``table.holds_appends``; then ``settle(error)`` settles the oldest.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from bridge.coordinator.behaviour import Behaviour, behaviour_of
from bridge.coordinator.commands import (
    Append,
    CancelGroupTimer,
    Command,
    LoadPartition,
    LogGroupEvent,
    SendResponse,
    SetGroupTimer,
)
from bridge.coordinator.config import GroupCoordinatorConfig
from bridge.coordinator.events import (
    AppendCompleted,
    CoordinatorRecord,
    Elected,
    Event,
    GroupTimerFired,
    PartitionLoaded,
    RequestReceived,
    Resigned,
    TimerKey,
)
from bridge.coordinator.group_coordinator import GroupCoordinator
from bridge.coordinator.group_metadata import GroupMetadata
from zkconsumer.wire.consumer_protocol import Subscription, encode_subscription
from zkconsumer.wire.schemas.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from zkconsumer.wire.schemas.describe_groups import DescribedGroup, DescribeGroupsRequest
from zkconsumer.wire.schemas.heartbeat import HeartbeatRequest
from zkconsumer.wire.schemas.join_group import JoinGroupProtocol, JoinGroupRequest, JoinGroupResponse
from zkconsumer.wire.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse, LeavingMember
from zkconsumer.wire.schemas.list_groups import ListGroupsRequest, ListGroupsResponse
from zkconsumer.wire.schemas.offset_commit import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from zkconsumer.wire.schemas.offset_delete import (
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopic,
)
from zkconsumer.wire.schemas.offset_fetch import (
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
)
from zkconsumer.wire.schemas.sync_group import SyncGroupAssignment, SyncGroupRequest, SyncGroupResponse

JOIN, SYNC, HEARTBEAT, LEAVE, COMMIT, FETCH, DESCRIBE, LIST, DELETE, OFFSET_DELETE = (
    11,
    14,
    12,
    13,
    8,
    9,
    15,
    16,
    42,
    47,
)

SESSION_MS = 500
REBALANCE_MS = 500
DELAY_MS = 50
START_MS = 1_000_000

CONFIG = GroupCoordinatorConfig(
    offsets_topic_partitions=2,
    group_min_session_timeout_ms=10,
    group_max_session_timeout_ms=600_000,
    group_initial_rebalance_delay_ms=DELAY_MS,
    group_max_size=4,
)
"""The configuration of Kafka's own tests of its coordinator."""

RANGE = (("range", encode_subscription(Subscription(("t",)))),)


@dataclass
class Member:
    """Somebody who is in a group, as it knows itself."""

    member_id: str
    generation_id: int
    leader_id: str
    instance_id: str | None = None

    @property
    def is_leader(self) -> bool:
        return self.member_id == self.leader_id


@dataclass
class Table:
    """``auto``: appends are settled (well) as they come."""

    behaviour: Behaviour = field(default_factory=behaviour_of)
    config: GroupCoordinatorConfig = CONFIG
    elected: bool = True
    holds_appends: bool = False
    now_ms: int = START_MS

    def __post_init__(self) -> None:
        self._ids = 0
        self.coordinator = GroupCoordinator(self.config, self.behaviour, self._new_member_id)
        self.answers: dict[int, Any] = {}
        self.timers: dict[TimerKey, int] = {}
        self._heap: list[tuple[int, int, TimerKey]] = []
        self._pushed = 0
        self.logs: dict[int, list[tuple[int, CoordinatorRecord]]] = {}
        self.appends: deque[Append] = deque()
        self.written: list[Append] = []
        self.loads: list[LoadPartition] = []
        self.notes: list[LogGroupEvent] = []
        self._token = 0
        if self.elected:
            for partition in range(self.config.offsets_topic_partitions):
                self.elect(partition)

    def _new_member_id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}-{self._ids}"

    # --- the world ---------------------------------------------------------------------------------------------------

    def happen(self, event: Event) -> list[Command]:
        """Let something happen, and all that follows from it at once."""
        commands = self.coordinator.handle(event, self.now_ms)
        for command in commands:
            match command:
                case SendResponse():
                    assert command.token not in self.answers, "a request is answered once"
                    self.answers[command.token] = command.body
                case SetGroupTimer():
                    self.timers[command.key] = command.deadline_ms
                    self._pushed += 1
                    heapq.heappush(self._heap, (command.deadline_ms, self._pushed, command.key))
                case CancelGroupTimer():
                    self.timers.pop(command.key, None)
                case Append():
                    self.appends.append(command)
                case LoadPartition():
                    self.loads.append(command)
                case LogGroupEvent():
                    self.notes.append(command)
        while self.appends and not self.holds_appends:
            self.settle()
        return commands

    def settle(self, error: int = 0) -> Append:
        """The oldest append is written, or fails."""
        append = self.appends.popleft()
        log = self.logs.setdefault(append.partition, [])
        base = len(log)
        if not error:
            log.extend((base + index, record) for index, record in enumerate(append.records))
            self.written.append(append)
        self.happen(AppendCompleted(append.token, error, -1 if error else base))
        return append

    def move(self, by_ms: int) -> None:
        """Let time pass; what falls due on the way happens at its time."""
        end = self.now_ms + by_ms
        while self._heap and self._heap[0][0] <= end:
            deadline, _, key = heapq.heappop(self._heap)
            if self.timers.get(key) != deadline:
                continue
            del self.timers[key]
            self.now_ms = max(self.now_ms, deadline)
            self.happen(GroupTimerFired(key, deadline))
        self.now_ms = end

    def elect(self, partition: int, epoch: int = 1) -> None:
        """This broker leads the partition, and has read it."""
        self.happen(Elected(partition, epoch))
        while self.loads:
            load = self.loads.pop()
            self.happen(PartitionLoaded(load.partition, load.epoch, list(self.logs.get(load.partition, []))))

    def resign(self, partition: int, epoch: int = 2) -> None:
        self.happen(Resigned(partition, epoch))

    def restart(self) -> Table:
        """A broker that reads the same logs, in the next epoch."""
        other = Table(self.behaviour, self.config, elected=False, now_ms=self.now_ms)
        other._ids = self._ids
        other.logs = {partition: list(log) for partition, log in self.logs.items()}
        for partition in range(self.config.offsets_topic_partitions):
            other.elect(partition, 2)
        return other

    # --- requests ----------------------------------------------------------------------------------------------------

    def send(self, api_key: int, version: int, body: Any, client_id: str = "client") -> int:
        self._token += 1
        self.happen(RequestReceived(self._token, api_key, version, body, client_id, "/127.0.0.1"))
        return self._token

    def is_answered(self, token: int) -> bool:
        return token in self.answers

    def answer(self, token: int) -> Any:
        """The answer to a request; it must have come."""
        return self.answers[token]

    def join(
        self,
        group: str = "g",
        member_id: str = "",
        *,
        version: int = 3,
        instance_id: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        client_id: str = "client",
    ) -> int:
        if instance_id is not None:
            version = max(version, 5)
        body = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms if version > 0 else -1,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupProtocol(name=name, metadata=metadata) for name, metadata in protocols],
        )
        return self.send(JOIN, version, body, client_id)

    def sync(
        self,
        member: Member,
        assignments: dict[str, bytes] | None = None,
        group: str = "g",
        *,
        version: int = 3,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> int:
        body = SyncGroupRequest(
            group_id=group,
            generation_id=member.generation_id,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupAssignment(member_id=member_id, assignment=given)
                for member_id, given in (assignments or {}).items()
            ],
        )
        return self.send(SYNC, version, body)

    def heartbeat(self, member: Member, group: str = "g") -> int:
        body = HeartbeatRequest(
            group_id=group,
            generation_id=member.generation_id,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
        )
        return int(self.answer(self.send(HEARTBEAT, 3, body)).error_code)

    def leave(self, *members: LeavingMember, group: str = "g", version: int = 3) -> LeaveGroupResponse:
        if version < 3:
            body = LeaveGroupRequest(group_id=group, member_id=members[0].member_id)
        else:
            body = LeaveGroupRequest(group_id=group, members=list(members))
        answer = self.answer(self.send(LEAVE, version, body))
        assert isinstance(answer, LeaveGroupResponse)
        return answer

    def leave_one(self, member_id: str, group: str = "g") -> int:
        return int(self.leave(LeavingMember(member_id=member_id), group=group, version=2).error_code)

    def send_commit(
        self,
        offsets: dict[tuple[str, int], int],
        member: Member | None = None,
        group: str = "g",
        *,
        version: int = 7,
        metadata: str = "",
        retention_ms: int = -1,
        timestamp_ms: int = -1,
    ) -> int:
        topics: dict[str, list[OffsetCommitPartition]] = {}
        for (topic, partition), offset in offsets.items():
            row = OffsetCommitPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_metadata=metadata,
                commit_timestamp=timestamp_ms,
            )
            topics.setdefault(topic, []).append(row)
        body = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1 if member is None else member.generation_id,
            member_id="" if member is None else member.member_id,
            group_instance_id=None if member is None else member.instance_id,
            retention_time_ms=retention_ms,
            topics=[OffsetCommitTopic(name=topic, partitions=rows) for topic, rows in topics.items()],
        )
        return self.send(COMMIT, version, body)

    def commit(self, offsets: dict[tuple[str, int], int], member: Member | None = None, **words: Any) -> list[int]:
        """The error of each partition."""
        return commit_errors(self.answer(self.send_commit(offsets, member, **words)))

    def fetch(
        self, partitions: list[tuple[str, int]] | None = None, group: str = "g", *, require_stable: bool = False
    ) -> dict[tuple[str, int], tuple[int, str, int]]:
        """(topic, partition) → offset, metadata, error; the group's own error must be none."""
        found = self.fetch_answer(partitions, group, require_stable=require_stable)
        assert found.error_code == 0
        return {
            (topic.name, row.partition_index): (row.committed_offset, row.metadata or "", row.error_code)
            for topic in found.topics
            for row in topic.partitions
        }

    def fetch_answer(
        self,
        partitions: list[tuple[str, int]] | None = None,
        group: str = "g",
        *,
        version: int = 7,
        require_stable: bool = False,
    ) -> OffsetFetchResponse:
        topics: list[OffsetFetchTopic] | None = None
        if partitions is not None:
            topics = [OffsetFetchTopic(name=topic, partition_indexes=[index]) for topic, index in partitions]
        if version >= 8:
            groups = [OffsetFetchGroup(group_id=group, topics=topics)]
            body = OffsetFetchRequest(groups=groups, require_stable=require_stable)
        else:
            body = OffsetFetchRequest(group_id=group, topics=topics, require_stable=require_stable)
        answer = self.answer(self.send(FETCH, version, body))
        assert isinstance(answer, OffsetFetchResponse)
        return answer

    def describe(self, group: str = "g", version: int = 5) -> DescribedGroup:
        answer = self.answer(self.send(DESCRIBE, version, DescribeGroupsRequest(groups=[group])))
        (described,) = answer.groups
        assert isinstance(described, DescribedGroup)
        return described

    def list_groups(self, *states: str, types: tuple[str, ...] = ()) -> ListGroupsResponse:
        body = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        answer = self.answer(self.send(LIST, 5, body))
        assert isinstance(answer, ListGroupsResponse)
        return answer

    def send_delete(self, *groups: str) -> int:
        return self.send(DELETE, 2, DeleteGroupsRequest(groups_names=list(groups)))

    def delete(self, *groups: str) -> dict[str, int]:
        answer = self.answer(self.send_delete(*groups))
        assert isinstance(answer, DeleteGroupsResponse)
        return {row.group_id: row.error_code for row in answer.results}

    def send_delete_offsets(self, partitions: list[tuple[str, int]], group: str = "g") -> int:
        topics = [
            OffsetDeleteTopic(name=topic, partitions=[OffsetDeletePartition(partition_index=index)])
            for topic, index in partitions
        ]
        return self.send(OFFSET_DELETE, 0, OffsetDeleteRequest(group_id=group, topics=topics))

    def delete_offsets(self, partitions: list[tuple[str, int]], group: str = "g") -> tuple[int, list[int]]:
        """The error of the group, and those of its partitions."""
        answer = self.answer(self.send_delete_offsets(partitions, group))
        assert isinstance(answer, OffsetDeleteResponse)
        return answer.error_code, [row.error_code for topic in answer.topics for row in topic.partitions]

    # --- whole stories -----------------------------------------------------------------------------------------------

    def joined(self, token: int, instance_id: str | None = None) -> Member:
        """The member that a JoinGroup made; it must have been answered, and well."""
        answer = self.answer(token)
        assert isinstance(answer, JoinGroupResponse)
        assert answer.error_code == 0, f"JoinGroup was answered {answer.error_code}"
        return Member(answer.member_id, answer.generation_id, answer.leader, instance_id)

    def rebalanced(self, size: int = 1, group: str = "g", **words: Any) -> list[Member]:
        """So many dynamic members that have joined and not synced; the first leads."""
        tokens = [self.join(group, **words) for _ in range(size)]
        self.move(max(self.config.group_initial_rebalance_delay_ms, 1) * (size + 1))
        return sorted((self.joined(token) for token in tokens), key=lambda member: not member.is_leader)

    def stable(self, size: int = 1, group: str = "g", **words: Any) -> list[Member]:
        """A stable group of so many dynamic members; each has its own id as assignment; the first leads."""
        members = self.rebalanced(size, group, **words)
        self.sync_all(members, group)
        return members

    def sync_all(self, members: list[Member], group: str = "g") -> None:
        """Followers sync, then the leader; each member gets its own id as assignment."""
        assignments = {member.member_id: member.member_id.encode() for member in members}
        tokens = [self.sync(member, group=group) for member in members if not member.is_leader]
        tokens += [self.sync(member, assignments, group) for member in members if member.is_leader]
        for token in tokens:
            answer = self.answer(token)
            assert isinstance(answer, SyncGroupResponse)
            assert answer.error_code == 0, f"SyncGroup was answered {answer.error_code}"

    def group(self, group: str = "g") -> GroupMetadata:
        """The group itself; it must be there."""
        found = self.coordinator.manager.get_group(group)
        assert found is not None, f"there is no group {group}"
        return found

    def state(self, group: str = "g") -> str:
        """The group's state, ``Dead`` where there is none."""
        found = self.coordinator.manager.get_group(group)
        return "Dead" if found is None else found.state.value


def commit_errors(answer: Any) -> list[int]:
    """The error of each partition of an answered OffsetCommit."""
    return [row.error_code for topic in answer.topics for row in topic.partitions]
