"""The offsets of a group in Kafka's own store: requests and commits over a connection.

Each function sends one request in the best version that both sides support, and returns one result that does not
depend on the version.  The group's *coordinator* keeps the store (Kafka 0.8.2 and later): find it through any broker,
then send the requests to it.  Nothing is retried here: ``COORDINATOR_MOVED_ERRORS`` and ``COORDINATOR_LOADING_ERRORS``
group the errors by how the caller retries.

Offsets in ZooKeeper are not handled here: they are znodes (``zkconsumer.zk``), or version 0 of the same requests, which
``zkconsumer.simple_consumer`` can send.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from zkconsumer.errors import RemoteProtocolError
from zkconsumer.kafka.broker_connection import Connection
from zkconsumer.kafka.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    GROUP_AUTHORIZATION_FAILED,
    NONE,
    NOT_COORDINATOR,
    ErrorCode,
    error_code,
)
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.kafka.pipelining import send_pipelined, split_partitions
from zkconsumer.kafka.supported_versions import SupportedVersions
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.wire.schemas import FIND_COORDINATOR, JOIN_GROUP, OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH
from zkconsumer.wire.schemas.find_coordinator import BATCHED_FROM as COORDINATORS_BATCHED_FROM
from zkconsumer.wire.schemas.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from zkconsumer.wire.schemas.offset_commit import (
    BROKER_RETENTION,
    NO_GENERATION,
    RETENTION_FROM,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
)
from zkconsumer.wire.schemas.offset_delete import OffsetDeletePartition, OffsetDeleteRequest, OffsetDeleteTopic
from zkconsumer.wire.schemas.offset_fetch import (
    ALL_TOPICS_IS_NULL_FROM,
    BATCHED_FROM,
    OffsetFetchGroup,
    OffsetFetchPartitionResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
)

KAFKA_STORE_FROM = 1
"""The version of OffsetCommit and OffsetFetch from which they use Kafka's own store; 0 means ZooKeeper."""

NO_OFFSET = -1

COORDINATOR_MOVED_ERRORS = frozenset({NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE})
"""Errors after which the client finds the coordinator again."""

COORDINATOR_LOADING_ERRORS = frozenset({COORDINATOR_LOAD_IN_PROGRESS})
"""Errors after which the client repeats the request to the same coordinator, a little later."""

_GROUP_ERRORS = COORDINATOR_MOVED_ERRORS | COORDINATOR_LOADING_ERRORS | {GROUP_AUTHORIZATION_FAILED}


class CommittingMember(NamedTuple):
    """The committing client: a member of the group in one generation; the defaults mean a client that is no member.

    ``instance_id``: of a static member, at brokers from 2.3 on.
    """

    generation_id: int = NO_GENERATION
    member_id: str = ""
    instance_id: str | None = None


NON_MEMBER = CommittingMember()

FetchedOffset: TypeAlias = OffsetAndMetadata | ErrorCode | None
"""The stored offset of one partition; None: there is none; or the error."""


@dataclass(frozen=True, slots=True)
class OffsetFetchResult:
    """The result of ``fetch_offsets``.

    ``error``: of the whole group, ``NONE`` if there is none; with an error, ``partitions`` is empty.
    """

    error: ErrorCode
    partitions: Mapping[TopicPartition, FetchedOffset]


def find_coordinator(
    connection: Connection, ranges: SupportedVersions, group: str, timeout_ms: int
) -> BrokerAddress | ErrorCode:
    """The broker that keeps the group's offsets, or the error.

    Error 15 is normal for the first such request in a cluster: the broker then creates the topic of the offsets.
    Raises ``KafkaException`` for a broker without coordinators (before 0.8.2), and what ``Connection.request``
    raises; a broker of 0.8.1, which does not support ApiVersions, closes the connection.
    """
    version = ranges.pick(FIND_COORDINATOR)
    response = connection.request(FIND_COORDINATOR, version, find_coordinator_request(version, group), timeout_ms)
    return parse_find_coordinator(response, version, group)


def find_coordinator_request(version: int, group: str) -> FindCoordinatorRequest:
    """The request in this version."""
    if version < COORDINATORS_BATCHED_FROM:
        return FindCoordinatorRequest(key=group)
    return FindCoordinatorRequest(coordinator_keys=[group])


def parse_find_coordinator(response: FindCoordinatorResponse, version: int, group: str) -> BrokerAddress | ErrorCode:
    """The coordinator in a response, or the error.  ``RemoteProtocolError``: it is about other groups."""
    if version < COORDINATORS_BATCHED_FROM:
        error, address = response.error_code, BrokerAddress(response.node_id, response.host, response.port)
    else:
        found = next((one for one in response.coordinators if one.key == group), None)
        if found is None:
            raise RemoteProtocolError(f"FindCoordinator v{version} was not answered for group {group}")
        error, address = found.error_code, BrokerAddress(found.node_id, found.host, found.port)
    return address if error == NONE.code else error_code(error)


def fetch_offsets(
    connection: Connection,
    ranges: SupportedVersions,
    group: str,
    partitions: Collection[TopicPartition] | None,
    timeout_ms: int,
) -> OffsetFetchResult:
    """The stored offsets of the group for these partitions (None: all; requires a broker from 0.10.2 on).

    Many partitions are split into several requests, with ``timeout_ms`` for each: one long response takes a broker
    twice the time.  ``connection`` is one to the coordinator; any other broker answers with error 16 for the group.
    Raises ``RemoteProtocolError`` when a partition is missing in the response, ``KafkaException`` when the broker is
    too old, and what ``Connection.request`` raises.
    """
    at_least = ALL_TOPICS_IS_NULL_FROM if partitions is None else KAFKA_STORE_FROM
    version = ranges.pick(OFFSET_FETCH, at_least=at_least)
    cut = [None] if partitions is None else split_partitions(partitions)
    questions = (offset_fetch_request(version, group, some) for some in cut)
    stored: dict[TopicPartition, FetchedOffset] = {}
    of_the_group = NONE
    for response in send_pipelined(connection, OFFSET_FETCH, version, questions, timeout_ms):
        error, rows = parse_offset_fetch(response, version, group)
        if error == NONE:  # before version 2 the error is in every partition
            codes = {row.error_code for row in rows.values()}
            error = next((one for one in _GROUP_ERRORS if one.code in codes), NONE)
        of_the_group = error if of_the_group == NONE else of_the_group
        stored |= {tp: _fetched_offset(row) for tp, row in rows.items()}
    if of_the_group != NONE:
        return OffsetFetchResult(of_the_group, {})
    missing = next((tp for tp in partitions or () if tp not in stored), None)
    if missing is not None:
        raise RemoteProtocolError(f"OffsetFetch v{version} of group {group} was not answered for {missing}")
    return OffsetFetchResult(NONE, stored if partitions is None else {tp: stored[tp] for tp in partitions})


def offset_fetch_request(version: int, group: str, partitions: Collection[TopicPartition] | None) -> OffsetFetchRequest:
    """The request in this version, for either store; None: all offsets of the group."""
    topics = None
    if partitions is not None:
        rows = partitions_by_topic(partitions).items()
        topics = [OffsetFetchTopic(name=name, partition_indexes=indexes) for name, indexes in rows]
    if version < BATCHED_FROM:
        return OffsetFetchRequest(group_id=group, topics=topics)
    return OffsetFetchRequest(groups=[OffsetFetchGroup(group_id=group, topics=topics)])


def parse_offset_fetch(
    response: OffsetFetchResponse, version: int, group: str
) -> tuple[ErrorCode, dict[TopicPartition, OffsetFetchPartitionResponse]]:
    """The error of the group and the offset of each partition.  ``RemoteProtocolError``: it is about other groups."""
    error, topics = response.error_code, response.topics
    if version >= BATCHED_FROM:
        found = next((one for one in response.groups if one.group_id == group), None)
        if found is None:
            raise RemoteProtocolError(f"OffsetFetch v{version} was not answered for group {group}")
        error, topics = found.error_code, found.topics
    rows = {TopicPartition(topic.name, row.partition_index): row for topic in topics for row in topic.partitions}
    return error_code(error), rows


def _fetched_offset(row: OffsetFetchPartitionResponse) -> FetchedOffset:
    # Brokers of 0.8.2 answer error 3 for a partition that they have not learned of yet, also right after a restart:
    # there may still be an offset.
    if row.error_code != NONE.code:
        return error_code(row.error_code)
    if row.committed_offset == NO_OFFSET:
        return None
    return OffsetAndMetadata(row.committed_offset, row.metadata or "", row.committed_leader_epoch)


def commit_offsets(
    connection: Connection,
    ranges: SupportedVersions,
    group: str,
    *,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    timeout_ms: int,
    committer: CommittingMember = NON_MEMBER,
    retention_ms: int = BROKER_RETENTION,
) -> dict[TopicPartition, ErrorCode]:
    """Store these offsets; return the result for each.

    Error 25 for all of them: a coordinator group of this name has members, and only they may commit; or the committing
    client is not a member any more.  22 and 27: it is not in this generation.  12: the metadata is longer than the
    broker allows (4096 characters by default).  3: the topic does not exist.  28: the commit is too large.  Errors of
    the whole group (``COORDINATOR_MOVED_ERRORS``, ``COORDINATOR_LOADING_ERRORS``) are returned for every partition.
    Raises as ``fetch_offsets`` does; after an error of the connection it is unknown whether they were stored.

    ``retention_ms``: how long brokers before 2.1 keep the offsets from this commit on; by default the broker's setting.
    It is not sent to later brokers, so they keep the offsets as long as the group has members: with an explicit
    expiry, an older offset is lost in the first moment in which the group has no members (KIP-211, ``expiry``).
    """
    version = _commit_version(ranges, retention_ms)
    body = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=committer.generation_id,
        member_id=committer.member_id,
        group_instance_id=committer.instance_id,
        retention_time_ms=retention_ms,
        topics=offset_commit_topics(offsets),
    )
    response = connection.request(OFFSET_COMMIT, version, body, timeout_ms)
    answered = parse_offset_commit(response)
    missing = [tp for tp in offsets if tp not in answered]
    if missing:
        raise RemoteProtocolError(f"OffsetCommit v{version} of group {group} was not answered for {missing[0]}")
    return {tp: answered[tp] for tp in offsets}


def _commit_version(ranges: SupportedVersions, retention_ms: int) -> int:
    if retention_ms != BROKER_RETENTION and ranges.is_assumed and ranges.supports(JOIN_GROUP, 0):
        return RETENTION_FROM  # 0.9 speaks it and cannot be asked; version 1 is only what 0.8.2 speaks too
    return ranges.pick(OFFSET_COMMIT, at_least=KAFKA_STORE_FROM)


def offset_commit_topics(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[OffsetCommitTopic]:
    """The topics of an OffsetCommit request."""
    rows: dict[str, list[OffsetCommitPartition]] = {}
    for tp, stored in offsets.items():
        row = OffsetCommitPartition(
            partition_index=tp.partition,
            committed_offset=stored.offset,
            committed_leader_epoch=stored.leader_epoch,
            commit_timestamp=stored.commit_timestamp_ms,
            committed_metadata=stored.metadata,
        )
        rows.setdefault(tp.topic, []).append(row)
    return [OffsetCommitTopic(name=topic, partitions=partitions) for topic, partitions in rows.items()]


def parse_offset_commit(response: OffsetCommitResponse) -> dict[TopicPartition, ErrorCode]:
    """The result for each partition."""
    return {
        TopicPartition(topic.name, row.partition_index): error_code(row.error_code)
        for topic in response.topics
        for row in topic.partitions
    }


def delete_offsets(
    connection: Connection,
    ranges: SupportedVersions,
    group: str,
    partitions: Collection[TopicPartition],
    timeout_ms: int,
) -> dict[TopicPartition, ErrorCode]:
    """Delete the stored offsets of these partitions (brokers from 2.4 on, KIP-496); return the result for each.

    86: a live member subscribes to the topic.  3: the partition does not exist, so its stored offset stays until it
    expires.  Errors of the whole group are returned for every partition, also 69, the group does not exist: nothing is
    stored.  Raises as ``commit_offsets`` does.
    """
    version = ranges.pick(OFFSET_DELETE)
    topics = [
        OffsetDeleteTopic(name=topic, partitions=[OffsetDeletePartition(partition_index=index) for index in indexes])
        for topic, indexes in partitions_by_topic(partitions).items()
    ]
    body = OffsetDeleteRequest(group_id=group, topics=topics)
    response = connection.request(OFFSET_DELETE, version, body, timeout_ms)
    if response.error_code != NONE.code:
        return dict.fromkeys(partitions, error_code(response.error_code))
    answered = {
        TopicPartition(topic.name, partition.partition_index): error_code(partition.error_code)
        for topic in response.topics
        for partition in topic.partitions
    }
    missing = [tp for tp in partitions if tp not in answered]
    if missing:
        raise RemoteProtocolError(f"OffsetDelete v{version} of group {group} was not answered for {missing[0]}")
    return {tp: answered[tp] for tp in partitions}


def partitions_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic, in the order in which they were given."""
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return topics
