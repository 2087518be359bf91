"""ListOffsets requests and responses of a consumer, one for each leader, as in ``Fetcher`` of Kafka 3.0.  Pure.

Difference from Java: the topics that this user may not read are in the result, beside the offsets of the others.  Java
fails the whole response.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from zkconsumer.errors import RemoteProtocolError
from zkconsumer.kafka.client_log_event import ClientLogEvent
from zkconsumer.kafka.error_codes import (
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    UNSUPPORTED_FOR_MESSAGE_FORMAT,
    error_code,
)
from zkconsumer.kafka.fetch.fetch_errors import CHANGE_OF_LEADER_LOOKUP_ERRORS
from zkconsumer.kafka.net.client_request import RequestBuilder
from zkconsumer.types import TopicPartition
from zkconsumer.wire.isolation_level import IsolationLevel
from zkconsumer.wire.schemas import LIST_OFFSETS
from zkconsumer.wire.schemas.list_offsets import (
    ISOLATION_LEVEL_FROM,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1

TIMESTAMPS_FROM = 1
"""The version (0.10.1, KIP-79) that searches exact timestamps."""


class ListOffsetsTarget(NamedTuple):
    """What is searched: the first offset at ``timestamp`` (ms since 1970, -1 the end, -2 the begin) or later.

    ``leader_epoch``: of the leader as last known, None if unknown.
    """

    timestamp: int
    leader_epoch: int | None = None


class ListOffsetsFound(NamedTuple):
    """``timestamp``: of the record; -1 for an end, None before version 1.  ``leader_epoch`` None: unknown."""

    offset: int
    timestamp: int | None = None
    leader_epoch: int | None = None


class OffsetAndTimestamp(NamedTuple):
    """As ``org.apache.kafka.clients.consumer.OffsetAndTimestamp``; ``timestamp`` in ms since 1970."""

    offset: int
    timestamp: int
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class ListOffsetsResult:
    """``fetched_offsets``: what was found.  ``partitions_to_retry``: without a usable answer.

    A partition in neither of them has no such offset, or its topic is in ``unauthorized_topics``.
    """

    fetched_offsets: Mapping[TopicPartition, ListOffsetsFound] = field(default_factory=dict)
    partitions_to_retry: frozenset[TopicPartition] = frozenset()
    unauthorized_topics: frozenset[str] = frozenset()
    log_events: tuple[ClientLogEvent, ...] = ()


def list_offsets_request(
    targets: Mapping[TopicPartition, ListOffsetsTarget],
    isolation_level: IsolationLevel,
    *,
    requires_timestamps: bool = False,
) -> RequestBuilder:
    """The request to one leader.  ``requires_timestamps``: brokers before 0.10.1 cannot answer it."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for tp, target in targets.items():
        epoch = UNKNOWN_EPOCH if target.leader_epoch is None else target.leader_epoch
        row = ListOffsetsPartition(partition_index=tp.partition, timestamp=target.timestamp, current_leader_epoch=epoch)
        topics.setdefault(tp.topic, []).append(row)
    body = ListOffsetsRequest(
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=topic, partitions=rows) for topic, rows in topics.items()],
    )
    version_min = TIMESTAMPS_FROM if requires_timestamps else 0
    if isolation_level is IsolationLevel.READ_COMMITTED:
        version_min = ISOLATION_LEVEL_FROM
    return RequestBuilder(LIST_OFFSETS, body, version_min=version_min)


def read_list_offsets_response(
    targets: Mapping[TopicPartition, ListOffsetsTarget], response: ListOffsetsResponse
) -> ListOffsetsResult:
    """Read the response to the request for these; a partition without a row is to be retried.

    ``RemoteProtocolError``: a broker answered several offsets where one was requested.
    """
    found: dict[TopicPartition, ListOffsetsFound] = {}
    answered: set[TopicPartition] = set()
    unauthorized: set[str] = set()
    log: list[ClientLogEvent] = []
    for topic in response.topics:
        for row in topic.partitions:
            tp = TopicPartition(topic.name, row.partition_index)
            error = error_code(row.error_code)
            if tp not in targets:
                log.append(ClientLogEvent("WARNING", "unrequested-partition-ignored", (("partition", tp),)))
            elif error == NONE:
                answered.add(tp)
                offset = _found(tp, row)
                if offset is not None:
                    found[tp] = offset
            elif error == TOPIC_AUTHORIZATION_FAILED:
                answered.add(tp)
                unauthorized.add(tp.topic)
            else:
                fields = (("partition", tp), ("error", error.name))
                if error == UNSUPPORTED_FOR_MESSAGE_FORMAT:
                    # Messages before 0.10 have no timestamps, so there is no offset for one.
                    answered.add(tp)
                if error in CHANGE_OF_LEADER_LOOKUP_ERRORS or error == UNSUPPORTED_FOR_MESSAGE_FORMAT:
                    log.append(ClientLogEvent("DEBUG", "list-offsets-failed", fields))
                else:
                    log.append(ClientLogEvent("WARNING", "list-offsets-failed", fields))
    return ListOffsetsResult(found, frozenset(targets.keys() - answered), frozenset(unauthorized), tuple(log))


def _found(tp: TopicPartition, row: ListOffsetsPartitionResponse) -> ListOffsetsFound | None:
    if row.old_style_offsets:
        if len(row.old_style_offsets) > 1:
            raise RemoteProtocolError(f"ListOffsets of {tp}: {len(row.old_style_offsets)} offsets instead of one")
        [offset] = row.old_style_offsets
        return None if offset == UNKNOWN_OFFSET else ListOffsetsFound(offset)
    if row.offset == UNKNOWN_OFFSET:
        return None
    return ListOffsetsFound(row.offset, row.timestamp, None if row.leader_epoch == UNKNOWN_EPOCH else row.leader_epoch)
