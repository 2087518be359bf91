"""Derives settings of a coordinator group's member from the Scala consumer's configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.client.assignment_executor import AssignmentLimits
from bridge.client.coordinator_membership import MembershipSettings
from bridge.client.custom_assignor import create_assignors
from bridge.client.stream_assignor import StreamAssignor

if TYPE_CHECKING:
    from zkconsumer.config import ConsumerConfig
    from zkconsumer.kafka.group.partition_assignor import ConsumerPartitionAssignor

SCALA_CONSUMER_STRATEGIES = ("range", "roundrobin")
"""The Scala consumer's strategies.  The first of them in ``partition.assignment.strategy``, else ``range``, assigns the
member's partitions to its threads."""


def membership_settings_of(config: ConsumerConfig, member: str) -> MembershipSettings:
    """The settings of a membership that are not settings of the group (``client.config``); ``member``: the name of the
    member in this process."""
    return MembershipSettings(
        member=member,
        client_id=config.client_id,
        socket_timeout_ms=config.socket_timeout_ms,
        limits=AssignmentLimits(
            drain_ms=config.rebalance_drain_timeout_ms,
            listener_ms=config.rebalance_listener_timeout_ms,
            positions_ms=config.rebalance_backoff_ms,
            new_from_beginning=config.new_partitions_from_beginning,
        ),
    )


def stream_assignor_of(config: ConsumerConfig, member: str) -> StreamAssignor:
    """How our partitions are assigned to our threads."""
    named = [name for name in strategies_of(config) if name in SCALA_CONSUMER_STRATEGIES]
    strategy = named[0] if named else SCALA_CONSUMER_STRATEGIES[0]
    return StreamAssignor(member, strategy, exclude_internal_topics=config.exclude_internal_topics)


def assignors_of(config: ConsumerConfig) -> list[ConsumerPartitionAssignor]:
    """The assignors of the group, in order of preference.

    Raises ``InvalidConfigException`` for an assignor of the user that cannot be used, and for two of one name.
    """
    return create_assignors(strategies_of(config), config.values)


def strategies_of(config: ConsumerConfig) -> list[str]:
    """The names and import paths in ``partition.assignment.strategy``."""
    return config.partition_assignment_strategy.split(",")
