"""A membership, and the streams and fetchers that work on its partitions, put together; whoever keeps the group.

    ConsumerConnector --> ConnectorMember --+-- membership: who has what            (ZooKeeper, or a coordinator)
                                          +-- StreamFetcher, ConsumerFetcherManager
                                          +-- metrics

It knows no message, no decoder and no configuration file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from zkconsumer.base.delivery_lease import Lease
from zkconsumer.kafka.fetcher_manager import ConsumerFetcherManager
from zkconsumer.observe.metrics import TICK_MS, Registry
from zkconsumer.runtime.membership_protocols import Membership
from zkconsumer.runtime.metrics import MemberMetrics
from zkconsumer.runtime.stream_fetcher import QueueKey, StreamFetcher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from zkconsumer.base.clock import Clock
    from zkconsumer.errors import AuthenticationException, ZkConsumerError
    from zkconsumer.kafka.bootstrap_client import BootstrapClient
    from zkconsumer.kafka.chunks import ChunkQueue
    from zkconsumer.kafka.error_codes import ErrorCode
    from zkconsumer.kafka.fetcher_thread import FetchSettings
    from zkconsumer.kafka.topic_finder import TopicFinder
    from zkconsumer.member.group_view import TopicSubscription
    from zkconsumer.member.offset_stores import CommitFailure
    from zkconsumer.observe.counters import Counters
    from zkconsumer.runtime.broker_access import BrokerAccess
    from zkconsumer.runtime.listener_calls import ListenerCalls
    from zkconsumer.runtime.member_observer import MemberObserver
    from zkconsumer.types import TopicPartition


class ConnectorMembership(Membership, Protocol):
    """What streams and their connector need of a membership besides."""

    counters: Counters
    listener: ListenerCalls
    observer: MemberObserver
    bootstrap_client: BootstrapClient
    topic_finder: TopicFinder | None

    @property
    def negotiated_timeout_ms(self) -> int:
        """How long the group waits for a member that is silent."""

    def check_brokers(self) -> None:
        """Speak to one broker before anything is registered; raises the ``AuthenticationException`` in the way."""

    def every(self, interval_ms: int, action: Callable[[], None]) -> None:
        """Run something on the membership's thread again and again; before ``attach_processor``."""

    def thread_died(self, name: str, error: BaseException) -> None:
        """Called in the dying thread."""

    def authentication_failed(self, error: AuthenticationException) -> None:
        """Called on a thread of the fetchers: nothing can be read with these settings."""

    def topics_rejected(self, errors: Mapping[str, ErrorCode]) -> None:
        """Called on a thread of the fetchers: brokers refuse these topics, of which we have partitions."""


M = TypeVar("M", bound=ConnectorMembership)


class ConnectorMember(Generic[M]):
    """A member of a group, from its first connection to its last."""

    def __init__(
        self,
        name: str,
        group: str,
        fetch: FetchSettings,
        num_fetchers: int,
        brokers: BrokerAccess,
        clock: Clock,
        make_membership: Callable[[Lease, MemberMetrics], M],
    ) -> None:
        self.id = name
        self.lease = Lease(clock)
        self.registry = Registry(clock, {"clientId": fetch.client_id, "groupId": group})
        self.metrics = MemberMetrics(
            self.registry,
            clock,
            self.lease,
            lambda: self.streams.all_partitions().values(),
            lambda: self.streams.queues,
            lambda: self.fetchers.min_fetch_rate(),
            lambda: self.fetchers.budget.held_bytes,
        )
        self.membership = make_membership(self.lease, self.metrics)
        self.counters = self.membership.counters
        self.listener = self.membership.listener
        self.observer = self.membership.observer
        self.topic_finder = self.membership.topic_finder
        self.membership.every(TICK_MS, self.registry.tick)
        self.fetchers = ConsumerFetcherManager(
            self.id,
            fetch,
            num_fetchers,
            brokers.connect,
            self.membership.bootstrap_client,
            clock,
            lambda info, offset: self.streams.on_reset(info, offset),
            self.membership.thread_died,
            self.membership.authentication_failed,
            self.registry,
            self.observer.fetch_failed,
            on_unknown_topics=self.topic_finder.refresh if self.topic_finder is not None else None,
            on_topics_rejected=self.membership.topics_rejected,
        )
        self.streams = StreamFetcher(self.fetchers, self.lease, self.membership.event_loop, self.metrics.tally_of)
        self.membership.attach_processor(self.streams)

    def start(self, timeout_ms: int) -> None:
        """Connect to who keeps the group; raises with nothing left running when that cannot be done."""
        self.membership.start(timeout_ms)

    def check_brokers(self) -> None:
        """Speak to one broker before anything is registered; raises the ``AuthenticationException`` in the way."""
        self.membership.check_brokers()

    def join(self, subscription: TopicSubscription, queues: Mapping[QueueKey, ChunkQueue]) -> None:
        """Become a member with this subscription; queues are by topic and thread id, those of a filter by thread id."""
        self.streams.add_queues(queues)
        self.membership.join(subscription)

    def wait_for_share(self, timeout_ms: int) -> bool:
        """Wait for the first whole share; raises the error that ended the member, if one did."""
        return self.membership.wait_for_assignment(timeout_ms)

    def commit(self, positions: Mapping[TopicPartition, int], timeout_ms: int) -> dict[TopicPartition, CommitFailure]:
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
        """How long the group waits for a member that is silent."""
        return self.membership.negotiated_timeout_ms

    @property
    def failure(self) -> ZkConsumerError | None:
        """The error that ended this member, if one did."""
        return self.membership.failure
