"""``OffsetForLeaderEpochClient``: validates positions at the leaders, as ``OffsetsForLeaderEpochClient`` of Kafka 3.0.

Pure: it makes requests and reads responses; the caller sends them, one a node.

    lookups of partitions_needing_validation --group_by_leader--> {node: lookups} --prepare_request--> request
    response --handle_response--> OffsetForEpochResult --SubscriptionState.maybe_complete_validation

It has no state: a response that is lost leaves the partitions awaiting validation, and their requests become due again.

Difference from Java: the topics that this user may not read are in the result, beside the end offsets of the others.
Java raises ``TopicAuthorizationException`` and loses them, so one such topic delays the validation of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from zkconsumer.kafka.client_log_event import ClientLogEvent
from zkconsumer.kafka.error_codes import (
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    error_code,
)
from zkconsumer.kafka.fetch.fetch_errors import CHANGE_OF_LEADER_LOOKUP_ERRORS
from zkconsumer.kafka.fetch.fetch_position import PositionLookup
from zkconsumer.kafka.metadata.node import Node
from zkconsumer.kafka.supported_versions import SupportedVersions
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import OFFSET_FOR_LEADER_EPOCH
from zkconsumer.wire.schemas.fetch import EpochEndOffset
from zkconsumer.wire.schemas.offset_for_leader_epoch import (
    CONSUMER_REPLICA_ID,
    NO_EPOCH,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

CONSUMER_VERSION_MIN = 3
"""The version (2.3) from which DESCRIBE on the topic is sufficient.  Earlier ones need CLUSTER_ACTION on the cluster,
which consumers do not have (KIP-320)."""


def has_usable_version(versions: SupportedVersions) -> bool:
    """Whether consumers can validate positions at a broker."""
    found = versions.ranges.get(OFFSET_FOR_LEADER_EPOCH.key)
    return found is not None and found.highest >= CONSUMER_VERSION_MIN


def group_by_leader(lookups: Iterable[PositionLookup]) -> dict[Node, dict[TopicPartition, PositionLookup]]:
    """The lookups by the leader of their position; those without a leader wait for the metadata."""
    found: dict[Node, dict[TopicPartition, PositionLookup]] = {}
    for lookup in lookups:
        if lookup.position is not None and lookup.position.current_leader.leader is not None:
            found.setdefault(lookup.position.current_leader.leader, {})[lookup.partition] = lookup
    return found


@dataclass(frozen=True, slots=True)
class OffsetForEpochResult:
    """``end_offsets``: the end of the requested epoch, or of the largest one below it.

    ``partitions_to_retry``: without a usable answer.  ``unauthorized_topics``: DESCRIBE is missing; their partitions
    are in neither of the two.
    """

    end_offsets: Mapping[TopicPartition, EpochEndOffset] = field(default_factory=dict)
    partitions_to_retry: frozenset[TopicPartition] = frozenset()
    unauthorized_topics: frozenset[str] = frozenset()
    log_events: tuple[ClientLogEvent, ...] = ()


class OffsetForLeaderEpochClient:
    """Requests and responses; versions from ``CONSUMER_VERSION_MIN`` on."""

    def prepare_request(self, lookups: Mapping[TopicPartition, PositionLookup]) -> OffsetForLeaderEpochRequest:
        """The request for these positions; those without an epoch have nothing to validate and are left out."""
        topics: dict[str, list[OffsetForLeaderPartition]] = {}
        for tp, lookup in lookups.items():
            position = lookup.position
            if position is None or position.offset_epoch is None:
                continue
            leader_epoch = position.current_leader.epoch
            topics.setdefault(tp.topic, []).append(
                OffsetForLeaderPartition(
                    partition=tp.partition,
                    current_leader_epoch=NO_EPOCH if leader_epoch is None else leader_epoch,
                    leader_epoch=position.offset_epoch,
                )
            )
        return OffsetForLeaderEpochRequest(
            replica_id=CONSUMER_REPLICA_ID,
            topics=[OffsetForLeaderTopic(topic=topic, partitions=rows) for topic, rows in topics.items()],
        )

    def handle_response(
        self, lookups: Mapping[TopicPartition, PositionLookup], response: OffsetForLeaderEpochResponse
    ) -> OffsetForEpochResult:
        """Read the response to the request for these lookups; a partition without a row is to be retried."""
        end_offsets: dict[TopicPartition, EpochEndOffset] = {}
        unauthorized: set[str] = set()
        log: list[ClientLogEvent] = []
        for topic in response.topics:
            for row in topic.partitions:
                tp = TopicPartition(topic.topic, row.partition)
                error = error_code(row.error_code)
                if tp not in lookups:
                    log.append(ClientLogEvent("WARNING", "unrequested-partition-ignored", (("partition", tp),)))
                elif error == NONE:
                    end_offsets[tp] = EpochEndOffset(epoch=row.leader_epoch, end_offset=row.end_offset)
                elif error == TOPIC_AUTHORIZATION_FAILED:
                    unauthorized.add(tp.topic)
                else:
                    fields = (("partition", tp), ("error", error.name))
                    if error in CHANGE_OF_LEADER_LOOKUP_ERRORS:
                        log.append(ClientLogEvent("DEBUG", "position-validation-failed", fields))
                    else:
                        log.append(ClientLogEvent("WARNING", "position-validation-failed", fields))
        retried = frozenset(tp for tp in lookups if tp not in end_offsets and tp.topic not in unauthorized)
        return OffsetForEpochResult(end_offsets, retried, frozenset(unauthorized), tuple(log))
