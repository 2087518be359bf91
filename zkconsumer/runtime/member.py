"""One member's machinery, put together: its membership, and the streams and fetchers that work on its partitions.

``Member`` is what ``connector`` holds; it knows no message, no decoder and no configuration file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.base.lease import Lease
from zkconsumer.kafka.fetcher_manager import ConsumerFetcherManager
from zkconsumer.observe.metrics import TICK_MS, Registry
from zkconsumer.runtime.membership import ZooKeeperMembership
from zkconsumer.runtime.metrics import MemberMetrics
from zkconsumer.runtime.stream_holder import ANY_TOPIC, QueueKey, StreamHolder
from zkconsumer.zk.security import OPEN, ZkSecurity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zkconsumer.base.clock import Clock
    from zkconsumer.core.group import GroupSettings
    from zkconsumer.core.planner import SharePlanner
    from zkconsumer.core.stores import NotWritten
    from zkconsumer.core.view import Subscription
    from zkconsumer.errors import ZkConsumerError
    from zkconsumer.kafka.chunks import ChunkQueue
    from zkconsumer.kafka.coordinator_lookup import ChannelSettings
    from zkconsumer.kafka.fetcher_thread import FetchSettings
    from zkconsumer.runtime.brokers import BrokerAccess
    from zkconsumer.types import Hooks, TopicPartition
    from zkconsumer.zk.store import ZkStore

__all__ = ["ANY_TOPIC", "Member", "QueueKey"]


class Member:
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
        self.id = settings.member
        self.lease = Lease(clock)
        self.registry = Registry(clock, {"clientId": fetch.client_id, "groupId": group})
        self.metrics = MemberMetrics(
            self.registry,
            clock,
            self.lease,
            lambda: self.streams.held().values(),
            lambda: self.streams.queues,
            lambda: self.fetchers.min_fetch_rate(),
        )
        self.membership = ZooKeeperMembership(
            group,
            settings,
            planner,
            client_id=fetch.client_id,
            socket_timeout_ms=fetch.socket_timeout_ms,
            store=store,
            brokers=brokers,
            clock=clock,
            lease=self.lease,
            meters=self.metrics,
            security=security,
            channel=channel,
            hooks=hooks,
        )
        self.counters = self.membership.counters
        self.group = self.membership.group
        self.control = self.membership.control
        self.listener = self.membership.listener
        self.observing = self.membership.observing
        self.topic_finder = self.membership.topic_finder
        self.control.every(TICK_MS, self.registry.tick)
        self.fetchers = ConsumerFetcherManager(
            self.id,
            fetch,
            num_fetchers,
            brokers.connect,
            self.membership.any_broker,
            clock,
            lambda info, offset: self.streams.on_reset(info, offset),
            self.membership.thread_died,
            self.membership.refused_by_brokers,
            self.registry,
            self.observing.fetch_failed,
            on_unknown=self.topic_finder.refresh if self.topic_finder is not None else None,
        )
        self.streams = StreamHolder(self.fetchers, self.lease, self.membership.inbox, self.metrics.tally_of)
        self.membership.run_with(self.streams)

    def start(self, timeout_ms: int) -> None:
        """Connect to ZooKeeper; raises what ``ZkStore.start`` raises, with nothing left running."""
        self.membership.start(timeout_ms)

    def check_brokers(self) -> None:
        """Speak to one broker before anything is registered; raises the ``AuthenticationException`` in the way."""
        self.membership.check_brokers()

    def join(self, subscription: Subscription, queues: Mapping[QueueKey, ChunkQueue]) -> None:
        """Become a member with this subscription; queues are by topic and thread id, those of a filter by thread id."""
        self.streams.add_queues(queues)
        self.membership.join(subscription)

    def wait_for_share(self, timeout_ms: int) -> bool:
        """Wait for the first whole share; raises the error that ended the member, if one did."""
        return self.membership.wait_for_share(timeout_ms)

    def commit(self, positions: Mapping[TopicPartition, int], timeout_ms: int) -> dict[TopicPartition, NotWritten]:
        """Write these positions; gives back what was not written, with the reason."""
        return self.membership.commit(positions, timeout_ms)

    def leave(self) -> bool:
        """Give everything back and leave the group; False when that could not be done in time."""
        return self.membership.leave()

    def close(self) -> bool:
        """End everything; True when nothing was left behind."""
        return self.membership.close()

    def end_streams(self, error: BaseException | None) -> None:
        """Put the marker behind which nothing comes."""
        self.streams.end(error)

    @property
    def negotiated_timeout_ms(self) -> int:
        """The session time-out that ZooKeeper granted."""
        return self.membership.negotiated_timeout_ms

    @property
    def failure(self) -> ZkConsumerError | None:
        """The error that ended this member, if one did."""
        return self.membership.failure
