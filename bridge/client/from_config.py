"""What the old consumer's configuration says of a member of a coordinator's group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.client.handing import Limits
from bridge.client.membership import MembershipSettings
from bridge.client.spread import Spread

if TYPE_CHECKING:
    from zkconsumer.config import ConsumerConfig


def membership_settings_of(config: ConsumerConfig, member: str) -> MembershipSettings:
    """Besides the group's own settings; ``member`` is its name here."""
    return MembershipSettings(
        member=member,
        client_id=config.client_id,
        socket_timeout_ms=config.socket_timeout_ms,
        limits=Limits(
            drain_ms=config.rebalance_drain_timeout_ms,
            listener_ms=config.rebalance_listener_timeout_ms,
            positions_ms=config.rebalance_backoff_ms,
            new_from_beginning=config.new_partitions_from_beginning,
        ),
    )


def spread_of(config: ConsumerConfig, member: str) -> Spread:
    """How what is ours falls to its threads."""
    return Spread(member, config.partition_assignment_strategy, exclude_internal_topics=config.exclude_internal_topics)
