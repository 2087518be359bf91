"""What a test does to the groups of a fake cluster: requests to their coordinator, without a connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.broker.sasl_server_authenticator import ANONYMOUS
from bridge.coordinator.api_request import ApiRequest
from bridge.testing.fake_broker import CLIENT_HOST, LISTENER
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import JOIN_GROUP, LEAVE_GROUP, OFFSET_COMMIT, SYNC_GROUP, Api
from zkconsumer.wire.schemas.join_group import JoinGroupProtocol, JoinGroupRequest
from zkconsumer.wire.schemas.leave_group import LeaveGroupRequest
from zkconsumer.wire.schemas.offset_commit import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from zkconsumer.wire.schemas.sync_group import SyncGroupAssignment, SyncGroupRequest

if TYPE_CHECKING:
    from bridge.broker.node import BrokerNode
    from bridge.coordinator.group_coordinator import GroupCoordinator
    from bridge.coordinator.group_metadata import GroupMetadata
    from bridge.testing.fake_state import CallerScheduler

FOR_EVER_MS = 2**31 - 1
MEMBER_CLIENT_ID = "modern"


@dataclass(frozen=True, slots=True)
class FakeCommittedOffset:
    """One stored offset."""

    offset: int
    metadata: str
    leader_epoch: int = -1


class FakeCoordinatorClient:
    """``node``: the coordinator, which may be stopped.  Called with the cluster's lock held."""

    def __init__(self, node: BrokerNode, scheduler: CallerScheduler) -> None:
        self.node = node
        self._scheduler = scheduler

    def has_members(self, group: str) -> bool:
        """Whether the group has a member."""
        found = self._group(group)
        return found is not None and bool(found.members)

    def join(self, group: str, client_id: str) -> None:
        """Let a member join.  Its subscription cannot be read, so the coordinator counts every topic as subscribed."""
        joined = self._request(
            JOIN_GROUP,
            2,
            JoinGroupRequest(
                group_id=group,
                session_timeout_ms=FOR_EVER_MS,
                rebalance_timeout_ms=FOR_EVER_MS,
                member_id="",
                protocol_type="consumer",
                protocols=[JoinGroupProtocol(name="range", metadata=b"")],
            ),
            client_id,
        )
        assignment = SyncGroupAssignment(member_id=joined.member_id, assignment=b"")
        self._request(
            SYNC_GROUP,
            1,
            SyncGroupRequest(
                group_id=group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                assignments=[assignment],
            ),
        )

    def leave(self, group: str) -> None:
        """Let all members leave."""
        found = self._group(group)
        for member_id in [] if found is None else list(found.members):
            self._request(LEAVE_GROUP, 1, LeaveGroupRequest(group_id=group, member_id=member_id))

    def committed(self, group: str) -> dict[TopicPartition, FakeCommittedOffset]:
        """The stored offsets."""
        found = self._group(group)
        stored = {} if found is None else found.stored.offsets
        return {
            tp: FakeCommittedOffset(row.value.offset, row.value.metadata, row.value.leader_epoch)
            for tp, row in stored.items()
        }

    def commit(self, group: str, tp: TopicPartition, offset: int, metadata: str) -> None:
        """Store an offset; in a group with members in the name of one of them."""
        found = self._group(group)
        member_id = "" if found is None else next(iter(found.members), "")
        row = OffsetCommitPartition(partition_index=tp.partition, committed_offset=offset, committed_metadata=metadata)
        body = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=found.generation_id if found is not None and member_id else -1,
            member_id=member_id,
            topics=[OffsetCommitTopic(name=tp.topic, partitions=[row])],
        )
        [topic] = self._request(OFFSET_COMMIT, 2, body).topics
        assert topic.partitions[0].error_code == 0, "nothing of a commit in memory can fail"

    def _group(self, group: str) -> GroupMetadata | None:
        machine: GroupCoordinator = self.node.coordinator_runtime.machine  # type: ignore[assignment]
        return machine.manager.get_group(group)

    def _request(self, api: Api[Any, Any], version: int, body: Any, client_id: str = "test") -> Any:
        answers: list[Any] = []
        call = ApiRequest(api, version, body, client_id, CLIENT_HOST, ANONYMOUS, LISTENER, answers.append)
        self.node.submit_to_coordinator(call, body, answers.append)
        self._scheduler.run_due()
        [answer] = answers
        return answer
