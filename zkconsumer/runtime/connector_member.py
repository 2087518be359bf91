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
    """What streams and their connector also need from a membership."""

    counters: Counters
    listener: ListenerCalls
    observer: MemberObserver
    bootstrap_client: BootstrapClient
    topic_finder: TopicFinder | None

    @property
    def negotiated_timeout_ms(self) -> int:
        """After how many ms without a request the group removes the member."""

    def check_brokers(self) -> None:
        """Send a request to one broker before the member registers; raises its ``AuthenticationException``."""

    def every(self, interval_ms: int, action: Callable[[], None]) -> None:
        """Run ``action`` periodically on the membership's thread.  Call it before ``attach_processor``."""

    def thread_died(self, name: str, error: BaseException) -> None:
        """A thread died; called in that thread."""

    def authentication_failed(self, error: AuthenticationException) -> None:
        """No broker accepts the authentication settings; called on a fetcher thread."""

    def topics_rejected(self, errors: Mapping[str, ErrorCode]) -> None:
        """Brokers reject these topics, of which we own partitions; called on a fetcher thread."""


M = TypeVar("M", bound=ConnectorMembership)


class ConnectorMember(Generic[M]):
    """A member of a group, with its streams, fetchers and metrics."""

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
            connect=brokers.connect,
            brokers=self.membership.bootstrap_client,
            clock=clock,
            on_reset=lambda info, offset: self.streams.on_reset(info, offset),
            on_thread_error=self.membership.thread_died,
            on_authentication_error=self.membership.authentication_failed,
            registry=self.registry,
            on_fetch_error=self.observer.fetch_failed,
            on_unknown_topics=self.topic_finder.refresh if self.topic_finder is not None else None,
            on_topics_rejected=self.membership.topics_rejected,
        )
        self.streams = StreamFetcher(self.fetchers, self.lease, self.membership.event_loop, self.metrics.tally_of)
        self.membership.attach_processor(self.streams)

    def start(self, timeout_ms: int) -> None:
        """Connect to ZooKeeper or the coordinator; if that fails, it stops everything and raises."""
        self.membership.start(timeout_ms)

    def check_brokers(self) -> None:
        """Send a request to one broker before the member registers; raises its ``AuthenticationException``."""
        self.membership.check_brokers()

    def join(self, subscription: TopicSubscription, queues: Mapping[QueueKey, ChunkQueue]) -> None:
        """Join with this subscription; keys of ``queues``: topic and thread id (``ANY_TOPIC`` for a topic filter)."""
        self.streams.add_queues(queues)
        self.membership.join(subscription)

    def wait_for_share(self, timeout_ms: int) -> bool:
        """Wait for the first complete assignment, False after the timeout; raises the error that ended the member."""
        return self.membership.wait_for_assignment(timeout_ms)

    def commit(self, positions: Mapping[TopicPartition, int], timeout_ms: int) -> dict[TopicPartition, CommitFailure]:
        """Commit these positions; return the partitions that were not committed, with the reason."""
        return self.membership.commit(positions, timeout_ms)

    def leave(self) -> bool:
        """Release all partitions and leave the group; False if that was not complete in time."""
        return self.membership.leave()

    def close(self) -> bool:
        """Stop everything; True if all threads have ended."""
        return self.membership.close()

    def end_streams(self, error: BaseException | None) -> None:
        """End every stream after the records that it has; ``error``: raised there, None for a normal end."""
        self.streams.end(error)

    @property
    def negotiated_timeout_ms(self) -> int:
        """After how many ms without a request the group removes the member."""
        return self.membership.negotiated_timeout_ms

    @property
    def failure(self) -> ZkConsumerError | None:
        """The error that ended this member; None while it runs."""
        return self.membership.failure
