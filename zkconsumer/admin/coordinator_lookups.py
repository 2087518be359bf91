"""Finds the coordinator of a group.

On a cluster without the topic of Kafka's offsets callers send no request: the request itself would make brokers create
the topic (0.8.2 and later).  Every wait is bounded: Kafka's ConsumerOffsetChecker hangs if no broker can name a
coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.base.threads import StopSignal
from zkconsumer.kafka.error_codes import NONE, BrokerError, ErrorCode
from zkconsumer.kafka.group_offsets import (
    COORDINATOR_LOADING_ERRORS,
    COORDINATOR_MOVED_ERRORS,
    find_coordinator,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from zkconsumer.admin.broker_client import BrokerClient
    from zkconsumer.types import BrokerAddress

OFFSETS_TOPIC = "__consumer_offsets"
"""The topic in which Kafka stores offsets (0.8.2 and later)."""

COORDINATOR_ATTEMPTS_MAX = 4
COORDINATOR_RETRY_BACKOFF_MS = 500
"""How often the search for a coordinator is repeated while it is elected or loads, and the pause between."""


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
