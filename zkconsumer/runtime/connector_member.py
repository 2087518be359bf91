"""A membership with the streams and fetchers that work on its partitions; in ZooKeeper or at a coordinator.

    ConsumerConnector --> ConnectorMember --+-- membership: assignment and offsets (ZooKeeper, or a coordinator)
                                            +-- StreamFetcher, ConsumerFetcherManager
                                            +-- metrics

It does not depend on messages, decoders or configuration files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from zkconsumer.base.delivery_lease import Lease
from zkconsumer.kafka.fetcher_manager import ConsumerFetcherManager
from zkconsumer.member.ownership import Membership
from zkconsumer.observe.metrics import TICK_MS, Registry
from zkconsumer.runtime.metrics import MemberMetrics
from zkconsumer.runtime.stream_fetcher import QueueKey, StreamFetcher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from zkconsumer.base.clock import Clock
    from zkconsumer.errors import AuthenticationException, UsageError
    from zkconsumer.kafka.bootstrap_client import BootstrapClient
    from zkconsumer.kafka.chunks import ChunkQueue
    from zkconsumer.kafka.error_codes import ErrorCode
    from zkconsumer.kafka.fetcher_thread import FetchSettings
    from zkconsumer.kafka.topic_finder import TopicFinder
    from zkconsumer.member.group_view import TopicSubscription
    from zkconsumer.observe.counters import Counters
    from zkconsumer.observe.member_health import MemberHealthSnapshot
    from zkconsumer.runtime.broker_access import BrokerAccess
    from zkconsumer.runtime.listener_calls import ListenerCalls
    from zkconsumer.runtime.member_observer import MemberObserver


class ConnectorMembership(Membership, Protocol):
    """What streams and their connector also need from a membership."""

    counters: Counters
    observer: MemberObserver
    bootstrap_client: BootstrapClient
    topic_finder: TopicFinder | None

    @property
    def listener(self) -> ListenerCalls:
        """Calls the program's rebalance listener."""

    @property
    def negotiated_timeout_ms(self) -> int:
        """After how many ms without a request the group removes the member."""

    def health_snapshot(self, fetching: int, failures: Sequence[str]) -> MemberHealthSnapshot:
        """The present state of this member; only on the membership's thread.

        ``fetching``: the number of partitions that are read and have a leader; ``failures``: why others have none, or
        their brokers do not answer.
        """

    def thread_died(self, name: str, error: BaseException) -> None:
        """A thread died; called in that thread."""

    def authentication_failed(self, error: AuthenticationException) -> None:
        """No broker accepts the authentication settings; called on a fetcher thread."""

    def position_missing(self, error: UsageError) -> None:
        """``auto.offset.reset=none``, and partitions of this member have no position; called on a fetcher thread."""

    def topics_rejected(self, errors: Mapping[str, ErrorCode]) -> None:
        """Brokers reject these topics, of which we own partitions; called on a fetcher thread."""


M_co = TypeVar("M_co", bound=ConnectorMembership, covariant=True)


class ConnectorMember(Generic[M_co]):
    """A member of a group, with its streams, fetchers and metrics."""

    def __init__(
        self,
        name: str,
        group: str,
        fetch: FetchSettings,
        *,
        num_fetchers: int,
        brokers: BrokerAccess,
        clock: Clock,
        make_membership: Callable[[Lease, MemberMetrics], M_co],
    ) -> None:
        self.id = name
        self.lease = Lease(clock)
        self.registry = Registry(clock, {"clientId": fetch.client_id, "groupId": group})
        self.metrics = MemberMetrics(
            self.registry,
            clock,
            self.lease,
            infos=lambda: self.streams.all_partitions().values(),
            queues=lambda: self.streams.queues,
            min_fetch_rate=lambda: self.fetchers.min_fetch_rate(),
            queued_bytes=lambda: self.fetchers.budget.held_bytes,
        )
        self.membership = make_membership(self.lease, self.metrics)
        topic_finder = self.membership.topic_finder
        self.membership.event_loop.call_every(TICK_MS, self.registry.tick)
        self.fetchers = ConsumerFetcherManager(
            self.id,
            fetch,
            num_fetchers,
            connect=brokers.connect,
            brokers=self.membership.bootstrap_client,
            clock=clock,
            on_reset=lambda info, offset: self.streams.on_reset(info, offset),
            on_position_missing=self.membership.position_missing,
            on_thread_error=self.membership.thread_died,
            on_authentication_error=self.membership.authentication_failed,
            registry=self.registry,
            on_fetch_error=self.membership.observer.fetch_failed,
            on_unknown_topics=topic_finder.refresh if topic_finder is not None else None,
            on_topics_rejected=self.membership.topics_rejected,
        )
        self.streams = StreamFetcher(self.fetchers, self.lease, self.membership.event_loop, self.metrics.tally_of)
        self.membership.attach_processor(self.streams)

    def join(self, subscription: TopicSubscription, queues: Mapping[QueueKey, ChunkQueue]) -> None:
        """Join with this subscription; keys of ``queues``: topic and thread id (``ANY_TOPIC`` for a topic filter)."""
        self.streams.add_queues(queues)
        self.membership.join(subscription)

    def end_streams(self, error: BaseException | None) -> None:
        """End every stream after the records that it has; ``error``: raised there, None for a normal end."""
        self.streams.end(error)
