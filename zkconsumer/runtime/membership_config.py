"""The settings of a membership, from a configuration; for connectors and for other members."""

from __future__ import annotations

import socket
import uuid
from typing import TYPE_CHECKING

from zkconsumer.errors import InvalidConfigException
from zkconsumer.kafka.offsets_coordinator_client import OffsetsChannelSettings
from zkconsumer.member.assignment_planner import ZooKeeperAssignmentPlanner
from zkconsumer.member.group_settings import GroupSettings
from zkconsumer.member.offset_stores import OffsetStoreSelection

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock
    from zkconsumer.config import ConsumerConfig

KAFKA_CLOSE_TIMEOUT_MAX_MS = 10_000
"""How long the last commit to Kafka may take when a member leaves, with all its attempts."""


def make_consumer_id(group: str, consumer_id: str | None, clock: Clock) -> str:
    """``group_host-millis-8 hex digits``, or ``group_<consumer.id>`` (0.8.0 to 1.1).

    On a machine without a host name the host is ``localhost``; the Scala consumer does not start there.
    """
    if consumer_id:
        return f"{group}_{consumer_id}"
    host = "".join(c if c.isalnum() or c in "._-" else "-" for c in socket.gethostname()) or "localhost"
    return f"{group}_{host}-{clock.wall_ms()}-{uuid.uuid4().hex[:8]}"


def group_settings_of(config: ConsumerConfig, consumer_id: str, *, auto_commit: bool | None = None) -> GroupSettings:
    """The settings for ``MemberStateMachine``; ``auto_commit`` overrides ``auto.commit.enable``."""
    return GroupSettings(
        member_id=consumer_id,
        rebalance_backoff_ms=config.rebalance_backoff_ms,
        debounce_ms=config.rebalance_debounce_ms,
        drain_timeout_ms=config.rebalance_drain_timeout_ms,
        release_settle_ms=config.release_settle_ms,
        auto_commit=config.auto_commit_enable if auto_commit is None else auto_commit,
        auto_commit_interval_ms=config.auto_commit_interval_ms,
        diagnose_after_ms=max(
            config.rebalance_max_retries * config.rebalance_backoff_ms, 2 * config.zookeeper_session_timeout_ms
        ),
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        new_from_beginning=config.new_partitions_from_beginning,
        ignores_older_offsets=config.offsets_older_than_topic == "ignore",
        listener_timeout_ms=config.rebalance_listener_timeout_ms,
        offset_stores=offset_stores_of(config),
        kafka_timeout_ms=config.rebalance_offsets_timeout_ms,
        kafka_close_timeout_ms=min(
            config.rebalance_offsets_timeout_ms + config.offsets_commit_max_retries * config.offsets_channel_backoff_ms,
            KAFKA_CLOSE_TIMEOUT_MAX_MS,
        ),
        kafka_close_attempts=1 + config.offsets_commit_max_retries,
    )


def assignment_planner_of(config: ConsumerConfig, consumer_id: str) -> ZooKeeperAssignmentPlanner:
    """The planner that computes this member's assignment.

    Raises ``InvalidConfigException`` for a strategy that only coordinator groups have.
    """
    if config.partition_assignment_strategy not in ("range", "roundrobin"):
        raise InvalidConfigException(
            f"partition.assignment.strategy={config.partition_assignment_strategy}: a ZooKeeper group has only range "
            "and roundrobin; set it to one of them"
        )
    return ZooKeeperAssignmentPlanner(
        consumer_id,
        config.partition_assignment_strategy,
        config.roundrobin_compatibility,
        exclude_internal_topics=config.exclude_internal_topics,
    )


def offset_stores_of(config: ConsumerConfig) -> OffsetStoreSelection:
    """Where the group's offsets are stored."""
    if config.offsets_storage == "zookeeper":
        return OffsetStoreSelection.ZOOKEEPER
    return OffsetStoreSelection.BOTH if config.dual_commit_enabled else OffsetStoreSelection.KAFKA


def channel_settings_of(config: ConsumerConfig) -> OffsetsChannelSettings | None:
    """The settings of the offsets channel to the group coordinator; None if Kafka stores no offsets of the group."""
    if not offset_stores_of(config).uses_kafka:
        return None
    return OffsetsChannelSettings(
        config.group_id,
        config.client_id,
        config.offsets_channel_socket_timeout_ms,
        config.offsets_channel_backoff_ms,
    )
