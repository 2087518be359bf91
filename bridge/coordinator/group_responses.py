"""Converts the coordinator's results to responses in the version of the request.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bridge.coordinator.errors import Errors
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas.describe_groups import DescribedGroup
from zkconsumer.wire.schemas.join_group import NO_GENERATION, NO_MEMBER_ID, JoinGroupMember, JoinGroupResponse
from zkconsumer.wire.schemas.leave_group import (
    BATCHED_FROM,
    LeaveGroupResponse,
    LeavingMember,
    LeavingMemberResponse,
)
from zkconsumer.wire.schemas.offset_commit import (
    OffsetCommitPartitionResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopicResponse,
)
from zkconsumer.wire.schemas.offset_fetch import OffsetFetchPartitionResponse, OffsetFetchTopicResponse
from zkconsumer.wire.schemas.sync_group import SyncGroupResponse

NO_OFFSET = -1

_NULLABLE_PROTOCOL_FROM = 7
"""The version of JoinGroup from which no protocol is null, and not the empty string."""


@dataclass(frozen=True, slots=True)
class JoinGroupResult:
    """Kafka's ``JoinGroupResult``."""

    error: int
    member_id: str = NO_MEMBER_ID
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None
    skip_assignment: bool = False
    members: list[JoinGroupMember] = field(default_factory=list)


def join_response(version: int, result: JoinGroupResult) -> JoinGroupResponse:
    """The answer to a JoinGroup."""
    protocol_name = result.protocol_name
    if protocol_name is None and version < _NULLABLE_PROTOCOL_FROM:
        protocol_name = ""
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=protocol_name,
        leader=result.leader_id or NO_MEMBER_ID,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=result.members,
    )


def sync_response(
    error: int, assignment: bytes = b"", protocol_type: str | None = None, protocol_name: str | None = None
) -> SyncGroupResponse:
    """The answer to a SyncGroup; with an error it names no protocol."""
    return SyncGroupResponse(
        error_code=error, protocol_type=protocol_type, protocol_name=protocol_name, assignment=assignment
    )


def leave_response(version: int, error: int, members: list[tuple[LeavingMember, int]]) -> LeaveGroupResponse:
    """The answer to a LeaveGroup: up to version 2 the error of its one member is that of the whole."""
    if version < BATCHED_FROM:
        of_members = next((of_member for _, of_member in members), Errors.NONE)
        return LeaveGroupResponse(error_code=error or of_members)
    rows = [
        LeavingMemberResponse(
            member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=of_member
        )
        for member, of_member in members
    ]
    return LeaveGroupResponse(error_code=error, members=rows)


def committed_partitions(body: OffsetCommitRequest) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The partitions of an OffsetCommit, in its order, which the answer also has."""
    return tuple((topic.name, tuple(row.partition_index for row in topic.partitions)) for topic in body.topics)


def commit_response(
    topics: Iterable[tuple[str, tuple[int, ...]]], error: int, instead: Mapping[TopicPartition, int] | None = None
) -> OffsetCommitResponse:
    """The answer to an OffsetCommit: one error for all partitions, except those with an error of their own."""
    own = instead or {}
    return OffsetCommitResponse(
        topics=[
            OffsetCommitTopicResponse(
                name=topic,
                partitions=[
                    OffsetCommitPartitionResponse(
                        partition_index=index, error_code=own.get(TopicPartition(topic, index), error)
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in topics
        ]
    )


def missing_offset(partition: int, error: int) -> OffsetFetchPartitionResponse:
    """The entry of OffsetFetch for a partition without a stored offset, or with an error."""
    return OffsetFetchPartitionResponse(partition_index=partition, committed_offset=NO_OFFSET, error_code=error)


def missing_topic_offsets(topic: str, partitions: Iterable[int], error: int) -> OffsetFetchTopicResponse:
    """The same for partitions of one topic."""
    return OffsetFetchTopicResponse(name=topic, partitions=[missing_offset(index, error) for index in partitions])


def describe_group_error(group_id: str, error: int, state: str = "", words: str | None = None) -> DescribedGroup:
    """The entry of DescribeGroups for a group that cannot be described."""
    return DescribedGroup(
        error_code=error,
        error_message=words,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=[],
    )
