"""One member of a ZooKeeper group: its membership, and the streams and fetchers that work on its partitions.

``connector`` creates it; it does not depend on messages, decoders or configuration files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.runtime.connector_member import ConnectorMember
from zkconsumer.runtime.stream_fetcher import ANY_TOPIC, QueueKey
from zkconsumer.runtime.zookeeper_membership import ZooKeeperMembership
from zkconsumer.zk.zk_security import NO_SECURITY, ZkSecurity

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock
    from zkconsumer.kafka.fetcher_thread import FetchSettings
    from zkconsumer.kafka.offsets_coordinator_client import OffsetsChannelSettings
    from zkconsumer.member.assignment_planner import ZooKeeperAssignmentPlanner
    from zkconsumer.member.member_state_machine import GroupSettings
    from zkconsumer.runtime.broker_access import BrokerAccess
    from zkconsumer.types import Hooks
    from zkconsumer.zk.store import ZkStore

__all__ = ["ANY_TOPIC", "QueueKey", "ZooKeeperConnectorMember"]


class ZooKeeperConnectorMember(ConnectorMember[ZooKeeperMembership]):
    """A ``ConnectorMember`` of a ZooKeeper group."""

    def __init__(
        self,
        group: str,
        settings: GroupSettings,
        planner: ZooKeeperAssignmentPlanner,
        fetch: FetchSettings,
        *,
        num_fetchers: int,
        store: ZkStore,
        brokers: BrokerAccess,
        clock: Clock,
        security: ZkSecurity = NO_SECURITY,
        channel: OffsetsChannelSettings | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        super().__init__(
            settings.member_id,
            group,
            fetch,
            num_fetchers,
            brokers,
            clock,
            lambda lease, meters: ZooKeeperMembership(
                group,
                settings,
                planner,
                client_id=fetch.client_id,
                socket_timeout_ms=fetch.socket_timeout_ms,
                store=store,
                brokers=brokers,
                clock=clock,
                lease=lease,
                meters=meters,
                security=security,
                coordinator_channel=channel,
                hooks=hooks,
            ),
        )
        self.state_machine = self.membership.state_machine
        self.event_loop = self.membership.event_loop
