"""Responses that contain only an error, for each API in the field that it has for it.  Pure."""

from __future__ import annotations

from typing import Any

from bridge.coordinator.group_responses import (
    commit_response,
    committed_partitions,
    describe_group_error,
    missing_topic_offsets,
)
from zkconsumer.kafka.error_codes import ErrorCode
from zkconsumer.wire.schemas import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
    Api,
)
from zkconsumer.wire.schemas.delete_groups import DeletedGroup, DeleteGroupsResponse
from zkconsumer.wire.schemas.describe_groups import DescribeGroupsResponse
from zkconsumer.wire.schemas.heartbeat import HeartbeatResponse
from zkconsumer.wire.schemas.join_group import JoinGroupResponse
from zkconsumer.wire.schemas.leave_group import LeaveGroupResponse
from zkconsumer.wire.schemas.list_groups import ListGroupsResponse
from zkconsumer.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from zkconsumer.wire.schemas.offset_delete import OffsetDeleteResponse
from zkconsumer.wire.schemas.offset_fetch import (
    BATCHED_FROM,
    GROUP_ERROR_FROM,
    OffsetFetchGroupResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from zkconsumer.wire.schemas.sync_group import SyncGroupResponse


def error_response(api: Api[Any, Any], version: int, body: Any, error: ErrorCode) -> Any:
    """The response of a group API to ``body`` when ``error`` prevented the request."""
    code = error.code
    match api.key:
        case JOIN_GROUP.key:
            return JoinGroupResponse(error_code=code, member_id=body.member_id)
        case SYNC_GROUP.key:
            return SyncGroupResponse(error_code=code)
        case HEARTBEAT.key:
            return HeartbeatResponse(error_code=code)
        case LEAVE_GROUP.key:
            return LeaveGroupResponse(error_code=code)
        case LIST_GROUPS.key:
            return ListGroupsResponse(error_code=code, groups=[])
        case DESCRIBE_GROUPS.key:
            return DescribeGroupsResponse(groups=[describe_group_error(name, code) for name in body.groups])
        case DELETE_GROUPS.key:
            return DeleteGroupsResponse(results=[DeletedGroup(group_id=n, error_code=code) for n in body.groups_names])
        case OFFSET_COMMIT.key:
            return commit_error_response(body, error)
        case OFFSET_FETCH.key:
            return fetch_error_response(version, body, error)
        case OFFSET_DELETE.key:
            return OffsetDeleteResponse(error_code=code, topics=[])
    raise AssertionError(f"{api.name} is not an API of groups")


def commit_error_response(body: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """Every partition has the error of the whole group, in all versions."""
    return commit_response(committed_partitions(body), error.code)


def fetch_error_response(version: int, body: OffsetFetchRequest, error: ErrorCode) -> OffsetFetchResponse:
    """In every partition at first, once from version 2 on, once a group from version 8 on."""
    if version >= BATCHED_FROM:
        return OffsetFetchResponse(
            groups=[
                OffsetFetchGroupResponse(group_id=group.group_id, topics=[], error_code=error.code)
                for group in body.groups
            ]
        )
    if version >= GROUP_ERROR_FROM:
        return OffsetFetchResponse(topics=[], error_code=error.code)
    topics = [missing_topic_offsets(topic.name, topic.partition_indexes, error.code) for topic in body.topics or []]
    return OffsetFetchResponse(topics=topics)
