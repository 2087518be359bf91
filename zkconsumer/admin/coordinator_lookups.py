"""Finds the coordinator of a group and reads what Kafka has stored for the group.

On a cluster without the topic of Kafka's offsets no request is sent: the request itself would make brokers create the
topic (0.8.2 and later).  Every wait is bounded, and the result contains a sentence for data that could not be read.
Kafka's ConsumerOffsetChecker hangs if no broker can name a coordinator.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zkconsumer.admin.broker_client import BROKER_REQUEST_ERRORS, REQUEST_TIMEOUT_MS
from zkconsumer.base.threads import StopSignal
from zkconsumer.errors import KafkaException
from zkconsumer.kafka.error_codes import NONE, BrokerError, ErrorCode
from zkconsumer.kafka.group_offsets import (
    COORDINATOR_LOADING_ERRORS,
    COORDINATOR_MOVED_ERRORS,
    fetch_offsets,
    find_coordinator,
)
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata

if TYPE_CHECKING:
    from collections.abc import Callable

    from zkconsumer.admin.broker_client import BrokerClient
    from zkconsumer.types import BrokerAddress, TopicPartition

OFFSETS_TOPIC = "__consumer_offsets"
"""The topic in which Kafka stores offsets (0.8.2 and later)."""

COORDINATOR_ATTEMPTS_MAX = 4
COORDINATOR_RETRY_BACKOFF_MS = 500
"""How often the search for a coordinator is repeated while it is elected or loads, and the pause between."""

OFFSET_FETCH_PARTITIONS_MAX = 2_000
"""Partitions in one OffsetFetch."""


@dataclass(frozen=True, slots=True)
class StoredKafkaOffsets:
    """What Kafka has stored.  ``problem``: why nothing is known; empty if Kafka has stored nothing."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    problem: str = ""


def discover_coordinator(
    brokers: BrokerClient, group: str, pause: Callable[[int], object] | None = None
) -> BrokerAddress:
    """Return the broker that coordinates the group.

    Raises ``BrokerUnreachable`` when no broker answers, ``KafkaException`` when none can name one after
    ``COORDINATOR_ATTEMPTS_MAX`` questions or all are too old (before 0.8.2).
    """
    error: ErrorCode = NONE
    for attempt in range(COORDINATOR_ATTEMPTS_MAX):
        if attempt:
            (pause or StopSignal().wait)(COORDINATOR_RETRY_BACKOFF_MS)
        found = brokers.execute_on_any(
            lambda connection, ranges, timeout_ms: find_coordinator(connection, ranges, group, timeout_ms)
        )
        if not isinstance(found, ErrorCode):
            return found
        error = found
        if error not in COORDINATOR_MOVED_ERRORS | COORDINATOR_LOADING_ERRORS:
            break
    raise BrokerError(error, f"no broker names the coordinator of group {group}")


def fetch_kafka_offsets(
    brokers: BrokerClient,
    group: str,
    partitions: Collection[TopicPartition],
    all_topics: Collection[str],
    pause: Callable[[int], object] | None = None,
) -> StoredKafkaOffsets:
    """What Kafka has stored for these partitions; never raises if a broker does not answer.

    ``all_topics``: the existing topics; without ``__consumer_offsets`` among them no broker is asked.
    """
    if OFFSETS_TOPIC not in all_topics or not partitions:
        return StoredKafkaOffsets()
    wanted = sorted(partitions)
    found: dict[TopicPartition, int] = {}
    try:
        for start in range(0, len(wanted), OFFSET_FETCH_PARTITIONS_MAX):
            found |= _fetch(
                brokers, group, wanted[start : start + OFFSET_FETCH_PARTITIONS_MAX], pause or StopSignal().wait
            )
    except BROKER_REQUEST_ERRORS as error:
        return StoredKafkaOffsets({}, str(error))
    return StoredKafkaOffsets(found)


def _fetch(
    brokers: BrokerClient, group: str, partitions: Collection[TopicPartition], pause: Callable[[int], object]
) -> dict[TopicPartition, int]:
    error: ErrorCode = NONE
    for attempt in range(COORDINATOR_ATTEMPTS_MAX):
        if attempt:
            pause(COORDINATOR_RETRY_BACKOFF_MS)
        coordinator = discover_coordinator(brokers, group, pause)
        answer = brokers.execute(
            coordinator,
            lambda connection, ranges: fetch_offsets(connection, ranges, group, partitions, REQUEST_TIMEOUT_MS),
        )
        if answer.error == NONE:
            return {tp: one.offset for tp, one in answer.partitions.items() if isinstance(one, OffsetAndMetadata)}
        error = answer.error
        if error not in COORDINATOR_MOVED_ERRORS | COORDINATOR_LOADING_ERRORS:
            break
    raise KafkaException(f"the coordinator of group {group} answers {error}")
