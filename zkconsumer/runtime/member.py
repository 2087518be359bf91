"""One member of a ZooKeeper group: its membership, and the streams and fetchers that work on its partitions.

``Member`` is what ``connector`` holds; it knows no message, no decoder and no configuration file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.runtime.membership import ZooKeeperMembership
from zkconsumer.runtime.stream_holder import ANY_TOPIC, QueueKey
from zkconsumer.runtime.streams_member import StreamsMember
from zkconsumer.zk.security import OPEN, ZkSecurity

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock
    from zkconsumer.core.group import GroupSettings
    from zkconsumer.core.planner import SharePlanner
    from zkconsumer.kafka.coordinator_lookup import ChannelSettings
    from zkconsumer.kafka.fetcher_thread import FetchSettings
    from zkconsumer.runtime.brokers import BrokerAccess
    from zkconsumer.types import Hooks
    from zkconsumer.zk.store import ZkStore

__all__ = ["ANY_TOPIC", "Member", "QueueKey"]


class Member(StreamsMember[ZooKeeperMembership]):
    """A member of a group, from its first connection to its last."""

    def __init__(
        self,
        group: str,
        settings: GroupSettings,
        planner: SharePlanner,
        fetch: FetchSettings,
        *,
        num_fetchers: int,
        store: ZkStore,
        brokers: BrokerAccess,
        clock: Clock,
        security: ZkSecurity = OPEN,
        channel: ChannelSettings | None = None,
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
