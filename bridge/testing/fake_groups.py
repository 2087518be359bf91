"""A fake broker's group responses: coordinators, offsets, members.  Called with the cluster's lock held.

version 0         the offset znodes of ZooKeeper, at any broker
version 1 and up  the cluster's own store, only at the group's coordinator
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from zkconsumer.kafka import error_codes as codes
from zkconsumer.kafka.error_codes import ErrorCode
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.wire.schemas.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from zkconsumer.wire.schemas.find_coordinator import (
    BATCHED_FROM as COORDINATORS_BATCHED_FROM,
)
from zkconsumer.wire.schemas.find_coordinator import (
    KEY_TYPE_GROUP,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from zkconsumer.wire.schemas.list_groups import ListedGroup, ListGroupsResponse
from zkconsumer.wire.schemas.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitPartitionResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopicResponse,
)
from zkconsumer.wire.schemas.offset_delete import (
    OffsetDeletePartition,
    OffsetDeletePartitionResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopicResponse,
)
from zkconsumer.wire.schemas.offset_fetch import (
    BATCHED_FROM,
    GROUP_ERROR_FROM,
    NO_EPOCH,
    OffsetFetchGroup,
    OffsetFetchGroupResponse,
    OffsetFetchPartitionResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
    OffsetFetchTopicResponse,
)
from zkconsumer.zk import paths
from zkconsumer.zk.znode_formats import parse_offset

if TYPE_CHECKING:
    from bridge.testing.fake_state import ClusterState
    from zkconsumer.kafka.release_features import BrokerRelease

METADATA_CHARS_MAX = 4096
"""Default of ``offset.metadata.max.bytes``; brokers count characters."""

COORDINATOR_MEMBER = DescribedGroupMember(
    member_id="modern-1", client_id="modern", client_host="/127.0.0.1", member_metadata=b"", member_assignment=b""
)
"""The one member of a coordinator group of the fakes, as in DescribeGroups."""

NO_BROKER = BrokerAddress(-1, "", -1)
NO_OFFSET = -1

GroupErrors: TypeAlias = Mapping[str, ErrorCode]
"""Injected errors by group."""

PartitionErrors: TypeAlias = Mapping[TopicPartition, ErrorCode]
"""Injected errors by partition."""


class Znodes(Protocol):
    """The part of a ZooKeeper that brokers need for offsets of version 0, such as ``FakeZooKeeper``."""

    def data(self, path: str) -> bytes | None:
        """The data of a node, None if it does not exist."""

    def ensure(self, path: str, data: bytes = b"") -> None:
        """Create a node and its parents, or set its data."""


class ZnodesInMemory:
    """For a cluster without a ZooKeeper."""

    def __init__(self) -> None:
        self._nodes: dict[str, bytes] = {}

    def data(self, path: str) -> bytes | None:
        return self._nodes.get(path)

    def ensure(self, path: str, data: bytes = b"") -> None:
        self._nodes[path] = data


@dataclass(frozen=True, slots=True)
class FakeCommittedOffset:
    """One stored offset."""

    offset: int
    metadata: str
    leader_epoch: int = NO_EPOCH


@dataclass(slots=True)
class FakeCoordinatorGroup:
    """``moved_to``: the coordinator, if it is not the default one.  ``has_members``: of the coordinator group."""

    offsets: dict[TopicPartition, FakeCommittedOffset] = field(default_factory=dict)
    moved_to: int | None = None
    has_members: bool = False


# --- FindCoordinator ---------------------------------------------------------------------------------------------


def coordinator_of(state: ClusterState, group: str) -> int | None:
    """The broker that coordinates a group, if it is running; chosen by the group's name."""
    known = state.groups.get(group)
    ids = sorted(state.addresses)
    chosen = known.moved_to if known is not None and known.moved_to is not None else None
    if chosen is None:
        chosen = ids[zlib.crc32(group.encode()) % len(ids)]
    return chosen if chosen in state.running_brokers else None


def find_coordinator(
    state: ClusterState, version: int, body: FindCoordinatorRequest, errors: GroupErrors
) -> FindCoordinatorResponse:
    """The coordinators of the requested keys."""
    if version >= COORDINATORS_BATCHED_FROM:
        rows = [_coordinator(state, key, body.key_type, errors) for key in body.coordinator_keys]
        return FindCoordinatorResponse(coordinators=rows)
    found = _coordinator(state, body.key, body.key_type, errors)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _coordinator(state: ClusterState, key: str, key_type: int, errors: GroupErrors) -> Coordinator:
    broker_id = coordinator_of(state, key)
    # Transactions and share groups are not emulated: they have no coordinator.
    error = errors.get(key) or (codes.NONE if key_type == KEY_TYPE_GROUP else codes.COORDINATOR_NOT_AVAILABLE)
    if error == codes.NONE and broker_id is None:
        error = codes.COORDINATOR_NOT_AVAILABLE
    address = NO_BROKER if error != codes.NONE or broker_id is None else state.addresses[broker_id]
    return Coordinator(
        key=key,
        node_id=address.broker_id,
        host=address.host,
        port=address.port,
        error_code=error.code,
        error_message=None if error == codes.NONE else error.name,
    )


def _refusal(state: ClusterState, broker_id: int, group: str, errors: GroupErrors) -> ErrorCode:
    """The error of this broker for the group; ``NONE``: it coordinates the group."""
    if group in errors:
        return errors[group]
    return codes.NONE if coordinator_of(state, group) == broker_id else codes.NOT_COORDINATOR


# --- DescribeGroups, ListGroups ------------------------------------------------------------------------------------


def describe_groups(
    state: ClusterState, broker_id: int, body: DescribeGroupsRequest, errors: GroupErrors
) -> DescribeGroupsResponse:
    """The states of the coordinator groups; an unknown one is dead."""
    return DescribeGroupsResponse(groups=[_described(state, broker_id, name, errors) for name in body.groups])


def _described(state: ClusterState, broker_id: int, name: str, errors: GroupErrors) -> DescribedGroup:
    error = _refusal(state, broker_id, name, errors)
    found = state.groups.get(name) if error == codes.NONE else None
    members = [COORDINATOR_MEMBER] if found is not None and found.has_members else []
    return DescribedGroup(
        error_code=error.code,
        group_id=name,
        group_state="" if error != codes.NONE else _group_state(found),
        protocol_type="consumer" if members else "",
        protocol_data="range" if members else "",
        members=members,
    )


def _group_state(group: FakeCoordinatorGroup | None) -> str:
    if group is None or not (group.has_members or group.offsets):
        return "Dead"
    return "Stable" if group.has_members else "Empty"


def list_groups(state: ClusterState, broker_id: int) -> ListGroupsResponse:
    """The groups that this broker coordinates."""
    mine = {name: group for name, group in state.groups.items() if coordinator_of(state, name) == broker_id}
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=name,
                protocol_type="consumer" if group.has_members else "",
                group_state=_group_state(group),
            )
            for name, group in mine.items()
            if _group_state(group) != "Dead"
        ]
    )


# --- OffsetCommit ------------------------------------------------------------------------------------------------


def offset_commit(
    state: ClusterState,
    broker_id: int,
    release: BrokerRelease,
    version: int,
    body: OffsetCommitRequest,
    errors: GroupErrors,
    injected: PartitionErrors,
) -> OffsetCommitResponse:
    """Store offsets in the store of the version."""
    refused = codes.NONE if version == 0 else _refused_commit(state, broker_id, release, body, errors)

    def commit(tp: TopicPartition, row: OffsetCommitPartition) -> OffsetCommitPartitionResponse:
        looks = version == 0 or release.checks_topics_of_commits
        error = injected.get(tp) or (_unknown(state, release, tp) if looks else codes.NONE)
        if error == codes.NONE:
            error = refused
        if error == codes.NONE and len(row.committed_metadata or "") > METADATA_CHARS_MAX:
            error = codes.OFFSET_METADATA_TOO_LARGE
        if error == codes.NONE:
            _store(state, body.group_id, tp, row, version)
        return OffsetCommitPartitionResponse(partition_index=tp.partition, error_code=error.code)

    topics = [
        OffsetCommitTopicResponse(
            name=topic.name,
            partitions=[commit(TopicPartition(topic.name, row.partition_index), row) for row in topic.partitions],
        )
        for topic in body.topics
    ]
    return OffsetCommitResponse(topics=topics)


def _refused_commit(
    state: ClusterState, broker_id: int, release: BrokerRelease, body: OffsetCommitRequest, errors: GroupErrors
) -> ErrorCode:
    refused = _refusal(state, broker_id, body.group_id, errors)
    if refused != codes.NONE or not release.supports_group_members:
        return refused
    group = state.groups.get(body.group_id)
    if group is not None and group.has_members:
        return codes.UNKNOWN_MEMBER_ID
    return codes.NONE


def _unknown(state: ClusterState, release: BrokerRelease, tp: TopicPartition) -> ErrorCode:
    is_known = state.partition(tp) is not None if release.checks_partitions_of_commits else tp.topic in state.topics
    return codes.NONE if is_known else codes.UNKNOWN_TOPIC_OR_PARTITION


def _store(state: ClusterState, group: str, tp: TopicPartition, row: OffsetCommitPartition, version: int) -> None:
    if version == 0:
        state.znodes.ensure(paths.offset(group, tp), b"%d" % row.committed_offset)
        return
    state.groups.setdefault(group, FakeCoordinatorGroup()).offsets[tp] = FakeCommittedOffset(
        row.committed_offset, row.committed_metadata or "", row.committed_leader_epoch
    )


# --- OffsetFetch -------------------------------------------------------------------------------------------------


def offset_fetch(
    state: ClusterState,
    broker_id: int,
    release: BrokerRelease,
    version: int,
    body: OffsetFetchRequest,
    errors: GroupErrors,
    injected: PartitionErrors,
) -> OffsetFetchResponse:
    """The offsets in the store of the version."""
    if version >= BATCHED_FROM:
        groups = [_of_group(state, broker_id, group, errors, injected) for group in body.groups]
        return OffsetFetchResponse(groups=groups)
    if version == 0:
        return OffsetFetchResponse(topics=_rows(body.topics or [], lambda tp: _from_znode(state, body.group_id, tp)))
    if version >= GROUP_ERROR_FROM:
        asked = OffsetFetchGroup(group_id=body.group_id, topics=body.topics)
        answer = _of_group(state, broker_id, asked, errors, injected)
        return OffsetFetchResponse(topics=answer.topics, error_code=answer.error_code)
    error = _refusal(state, broker_id, body.group_id, errors)

    def one(tp: TopicPartition) -> OffsetFetchPartitionResponse:
        if tp in injected:
            return _no_offset(tp, injected[tp])
        if release.checks_partitions_of_fetches and state.partition(tp) is None:
            return _no_offset(tp, codes.UNKNOWN_TOPIC_OR_PARTITION)
        return _no_offset(tp, error) if error != codes.NONE else _from_store(state, body.group_id, tp)

    return OffsetFetchResponse(topics=_rows(body.topics or [], one))


def _of_group(
    state: ClusterState, broker_id: int, asked: OffsetFetchGroup, errors: GroupErrors, injected: PartitionErrors
) -> OffsetFetchGroupResponse:
    error = _refusal(state, broker_id, asked.group_id, errors)
    if error != codes.NONE:
        return OffsetFetchGroupResponse(group_id=asked.group_id, topics=[], error_code=error.code)
    topics = asked.topics
    if topics is None:
        known: dict[str, list[int]] = {}
        for tp in sorted(state.groups.get(asked.group_id, FakeCoordinatorGroup()).offsets):
            known.setdefault(tp.topic, []).append(tp.partition)
        topics = [OffsetFetchTopic(name=name, partition_indexes=indexes) for name, indexes in known.items()]

    def one(tp: TopicPartition) -> OffsetFetchPartitionResponse:
        return _no_offset(tp, injected[tp]) if tp in injected else _from_store(state, asked.group_id, tp)

    rows = _rows(topics, one)
    return OffsetFetchGroupResponse(group_id=asked.group_id, topics=rows)


def partitions_of(topics: list[OffsetFetchTopic]) -> set[TopicPartition]:
    """The partitions of a request."""
    return {TopicPartition(topic.name, index) for topic in topics for index in topic.partition_indexes}


def _rows(
    topics: list[OffsetFetchTopic], one: Callable[[TopicPartition], OffsetFetchPartitionResponse]
) -> list[OffsetFetchTopicResponse]:
    return [
        OffsetFetchTopicResponse(
            name=topic.name, partitions=[one(TopicPartition(topic.name, index)) for index in topic.partition_indexes]
        )
        for topic in topics
    ]


def _from_znode(state: ClusterState, group: str, tp: TopicPartition) -> OffsetFetchPartitionResponse:
    data = state.znodes.data(paths.offset(group, tp))
    if data is None or state.partition(tp) is None:
        return _no_offset(tp, codes.UNKNOWN_TOPIC_OR_PARTITION)
    return OffsetFetchPartitionResponse(partition_index=tp.partition, committed_offset=parse_offset(data))


def _from_store(state: ClusterState, group: str, tp: TopicPartition) -> OffsetFetchPartitionResponse:
    known = state.groups.get(group)
    stored = None if known is None else known.offsets.get(tp)
    if stored is None:
        return _no_offset(tp, codes.NONE)
    return OffsetFetchPartitionResponse(
        partition_index=tp.partition,
        committed_offset=stored.offset,
        committed_leader_epoch=stored.leader_epoch,
        metadata=stored.metadata,
    )


def _no_offset(tp: TopicPartition, error: ErrorCode) -> OffsetFetchPartitionResponse:
    return OffsetFetchPartitionResponse(partition_index=tp.partition, committed_offset=NO_OFFSET, error_code=error.code)


# --- OffsetDelete ------------------------------------------------------------------------------------------------


def offset_delete(
    state: ClusterState, broker_id: int, body: OffsetDeleteRequest, errors: GroupErrors
) -> OffsetDeleteResponse:
    """Delete stored offsets; a group without offsets and members does not exist."""
    group = state.groups.get(body.group_id)
    error = _refusal(state, broker_id, body.group_id, errors)
    if error == codes.NONE and (group is None or not (group.offsets or group.has_members)):
        error = codes.GROUP_ID_NOT_FOUND
    if error != codes.NONE or group is None:
        return OffsetDeleteResponse(error_code=error.code, topics=[])
    known = group

    def forget(topic: str, asked: OffsetDeletePartition) -> OffsetDeletePartitionResponse:
        tp = TopicPartition(topic, asked.partition_index)
        if state.partition(tp) is None:
            error = codes.UNKNOWN_TOPIC_OR_PARTITION
        elif known.has_members:
            error = codes.GROUP_SUBSCRIBED_TO_TOPIC
        else:
            error = codes.NONE
            known.offsets.pop(tp, None)
        return OffsetDeletePartitionResponse(partition_index=tp.partition, error_code=error.code)

    topics = [
        OffsetDeleteTopicResponse(name=topic.name, partitions=[forget(topic.name, row) for row in topic.partitions])
        for topic in body.topics
    ]
    return OffsetDeleteResponse(topics=topics)
