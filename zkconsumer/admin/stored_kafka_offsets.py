"""Reads the offsets that Kafka has stored for a group; the result contains a sentence for what could not be read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from zkconsumer.admin.admin_session import chunks
from zkconsumer.admin.broker_client import BROKER_REQUEST_ERRORS, REQUEST_TIMEOUT_MS
from zkconsumer.admin.coordinator_client import CoordinatorClient, CoordinatorRetryPolicy
from zkconsumer.admin.coordinator_lookups import OFFSETS_TOPIC
from zkconsumer.admin.kafka_offsets import retriable_error
from zkconsumer.errors import KafkaException
from zkconsumer.kafka.error_codes import NONE
from zkconsumer.kafka.group_offsets import fetch_offsets
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata

if TYPE_CHECKING:
    from zkconsumer.admin.admin_session import AnySession
    from zkconsumer.types import TopicPartition

OFFSET_FETCH_PARTITIONS_MAX = 2_000
"""Partitions in one OffsetFetch."""


@dataclass(frozen=True, slots=True)
class StoredKafkaOffsets:
    """What Kafka has stored.  ``problem``: why nothing is known; empty if Kafka has stored nothing."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    problem: str = ""


def fetch_kafka_offsets(
    session: AnySession, group: str, partitions: Collection[TopicPartition], all_topics: Collection[str]
) -> StoredKafkaOffsets:
    """What Kafka has stored for these partitions; never raises if a broker does not answer.

    ``all_topics``: the existing topics; without ``__consumer_offsets`` among them no broker is asked.
    """
    if OFFSETS_TOPIC not in all_topics or not partitions:
        return StoredKafkaOffsets()
    policy = CoordinatorRetryPolicy(attempts_max=2, unreachable_attempts_max=1)  # each finds the coordinator in 2 s
    coordinator = CoordinatorClient(session, group, retry_policy=policy)
    found: dict[TopicPartition, int] = {}
    try:
        for some in chunks(sorted(partitions), OFFSET_FETCH_PARTITIONS_MAX):
            found |= _fetch(coordinator, group, some)
    except BROKER_REQUEST_ERRORS as error:
        return StoredKafkaOffsets({}, str(error))
    return StoredKafkaOffsets(found)


def _fetch(
    coordinator: CoordinatorClient, group: str, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    question = partial(fetch_offsets, group=group, partitions=partitions, timeout_ms=REQUEST_TIMEOUT_MS)
    answer = coordinator.execute(question, retriable_error)
    if answer.error != NONE:
        raise KafkaException(f"the coordinator of group {group} answers {answer.error}")
    return {tp: one.offset for tp, one in answer.partitions.items() if isinstance(one, OffsetAndMetadata)}
