"""One member's machinery, put together: store, core, control thread, fetchers, queues.

``Member`` is what ``connector`` holds; it knows no message, no decoder and no configuration file.  Everything that
waits here waits with a deadline.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from zkconsumer import errors
from zkconsumer.base.lease import Lease
from zkconsumer.base.threads import Worker, spawn
from zkconsumer.core import commands as do
from zkconsumer.core import events as ev
from zkconsumer.core.group import Group, GroupSettings
from zkconsumer.core.planner import SharePlanner
from zkconsumer.core.stores import NotWritten
from zkconsumer.errors import Bug, ThreadDied, WorldError, ZkConsumerError, ZkNotAuthorized
from zkconsumer.kafka.any_broker import NoBrokerAnswers
from zkconsumer.kafka.chunks import ChunkQueue, ShutdownMarker
from zkconsumer.kafka.coordinator_lookup import ChannelSettings
from zkconsumer.kafka.fetcher_manager import ConsumerFetcherManager
from zkconsumer.kafka.metadata import fetch_leaders
from zkconsumer.kafka.offsets_channel import OffsetsChannel
from zkconsumer.kafka.topic_finder import TopicFinder
from zkconsumer.observe.counters import Counters
from zkconsumer.observe.metrics import TICK_MS, Registry
from zkconsumer.runtime.control import Control
from zkconsumer.runtime.hooks import HookCalls
from zkconsumer.runtime.listener import ListenerCalls
from zkconsumer.runtime.metrics import MemberMetrics
from zkconsumer.runtime.observing import Observing
from zkconsumer.runtime.offsets import KafkaHalf
from zkconsumer.runtime.perform import Performer, StreamsHalf, ZooKeeperHalf
from zkconsumer.runtime.rights import Rights
from zkconsumer.runtime.topics import KafkaTopics
from zkconsumer.zk.group_reader import GroupReader
from zkconsumer.zk.security import OPEN, ZkSecurity

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock
    from zkconsumer.core.view import Subscription
    from zkconsumer.errors import AuthenticationException
    from zkconsumer.kafka.fetcher_thread import FetchSettings
    from zkconsumer.runtime.brokers import BrokerAccess
    from zkconsumer.types import Hooks, TopicPartition
    from zkconsumer.zk.store import ZkStore

LEAVE_GRACE_MS = 2_000
"""On top of draining and settling: how long a leave may take before the session is ended without it."""

CLOSE_STEP_MS = 1_500
"""How long each of the last steps of a close may take (fetchers, session, control thread)."""

BROKER_CHECK_MS = 8_000
"""How long brokers are asked before a member joins, where they may refuse us (TLS, SASL, ``bootstrap.servers``)."""

ANY_TOPIC = None
"""Stands for the topic where a queue takes the chunks of every topic."""

QueueKey: TypeAlias = "tuple[str | None, str]"
"""Topic, or ``ANY_TOPIC``, and thread id."""

log = logging.getLogger("zkconsumer.member")


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
        self.counters = Counters()
        self.lease = Lease(clock)
        self.registry = Registry(clock, {"clientId": fetch.client_id, "groupId": group})
        self.metrics = MemberMetrics(
            self.registry,
            clock,
            self.lease,
            lambda: self.streams.held().values(),
            lambda: self.queues,
            lambda: self.fetchers.min_fetch_rate(),
        )
        self.hooks = HookCalls(self.id, hooks, self.counters, self._thread_died)
        self.observing = Observing(self.metrics, self.hooks, lambda: self.streams.assignment)
        self.group = Group(settings, planner)
        self.queues: dict[QueueKey, ChunkQueue] = {}
        self._settings = settings
        self._store = store
        self._clock = clock
        self._share_known = threading.Event()
        self._has_left = threading.Event()
        self._not_released: tuple[TopicPartition, ...] = ()
        self._failure: ZkConsumerError | None = None
        self._giving_up: Worker | None = None
        self._calls: dict[int, tuple[threading.Event, dict[TopicPartition, NotWritten]]] = {}
        self._calls_made = 0
        self._calls_lock = threading.Lock()
        self._any_broker = brokers.any_broker(fetch.client_id, fetch.socket_timeout_ms, clock)
        self.control = Control(self.group, clock)
        self.control.every(TICK_MS, self.registry.tick)
        self.topic_finder = self._make_topic_finder(brokers, fetch) if brokers.bootstrap is not None else None
        topics = KafkaTopics(self.topic_finder) if self.topic_finder is not None else None
        rights = Rights(security.acl, security.who, lambda: not self.streams.infos, self._not_authorized)
        zookeeper = ZooKeeperHalf(
            group, self.id, store, GroupReader(group, topics), self.control, clock, self.observing, rights
        )
        self.fetchers = ConsumerFetcherManager(
            self.id,
            fetch,
            num_fetchers,
            brokers.connect,
            self._any_broker,
            clock,
            lambda info, offset: self.streams.on_reset(info, offset),
            self._thread_died,
            self._refused_by_brokers,
            self.registry,
            self.observing.fetch_failed,
            on_unknown=self.topic_finder.refresh if self.topic_finder is not None else None,
        )
        self.streams = StreamsHalf(self._queue_of, self.fetchers, self.lease, self.control, self.metrics.tally_of)
        self.listener = ListenerCalls(self.id, self.control, self._thread_died)
        self.channel: OffsetsChannel | None = None
        kafka: KafkaHalf | None = None
        if channel is not None:
            self.channel = OffsetsChannel(self.id, channel, brokers.connect, brokers.find, clock, self._thread_died)
            kafka = KafkaHalf(group, store, self.channel, self.lease, self.control, self.observing)
        self.control.start(
            f"{self.id}-control",
            Performer(self.id, zookeeper, kafka, self.streams, self.listener, self.counters, self.observing, self),
            self._thread_died,
        )
        store.listen(zookeeper.on_store_event)

    def _make_topic_finder(self, brokers: BrokerAccess, fetch: FetchSettings) -> TopicFinder:
        assert brokers.bootstrap is not None, "topics come from Kafka where its brokers do"
        return TopicFinder(
            self.id,
            brokers.any_broker(fetch.client_id, fetch.socket_timeout_ms, self._clock),
            brokers.metadata_max_age_ms,
            self._clock,
            on_brokers=brokers.bootstrap.learn,
            on_change=lambda: self.control.post(ev.GroupChanged("topics in Kafka")),
            on_refused=self._refused_by_brokers,
            on_death=self._thread_died,
        )

    # --- what the connector asks for ----------------------------------------------------------------------------

    def start(self, timeout_ms: int) -> None:
        """Connect to ZooKeeper; raises what ``ZkStore.start`` raises, with nothing left running."""
        try:
            self._store.start(timeout_ms)
        except BaseException:
            self.control.stop(CLOSE_STEP_MS)
            self._store.close(CLOSE_STEP_MS)
            self.hooks.close()
            raise

    def check_brokers(self) -> None:
        """Speak to one broker, before anything is registered: a member that no broker accepts would only be in the way.

        Raises the ``AuthenticationException`` that stands in the way.  Brokers that are down are waited for later.
        """
        try:
            self._any_broker.ask(
                lambda connection, ranges, timeout_ms: fetch_leaders(connection, ranges, [], timeout_ms),
                limit_ms=BROKER_CHECK_MS,
            )
        except NoBrokerAnswers as error:
            if error.refused is not None:
                raise error.refused from error
            log.warning("brokers-silent why=%r", str(error))
        except WorldError as error:
            log.warning("brokers-silent why=%r", f"the brokers cannot be looked up: {error}")

    def join(self, subscription: Subscription, queues: Mapping[QueueKey, ChunkQueue]) -> None:
        """Become a member with this subscription; queues are by topic and thread id, those of a filter by thread id."""
        self.queues.update(queues)
        for queue in queues.values():
            queue.on_room = self.fetchers.wake
        self.control.post(ev.JoinWanted(subscription))

    def _queue_of(self, topic: str, thread: str) -> ChunkQueue:
        """Whose chunks of this topic are this thread's: the streams of a filter take every topic."""
        queue = self.queues.get((topic, thread))
        return self.queues[ANY_TOPIC, thread] if queue is None else queue

    def wait_for_share(self, timeout_ms: int) -> bool:
        """Wait for the first whole share; raises the error that ended the member, if one did."""
        known = self._share_known.wait(timeout_ms / 1000)
        if self._failure is not None:
            raise self._failure
        return known

    def commit(self, positions: Mapping[TopicPartition, int], timeout_ms: int) -> dict[TopicPartition, NotWritten]:
        """Write these positions; gives back what was not written, with the reason.

        Raises the error that ended the member, if one did.
        """
        if self._failure is not None:
            raise self._failure
        done = threading.Event()
        refused: dict[TopicPartition, NotWritten] = {}
        with self._calls_lock:
            self._calls_made += 1
            number = self._calls_made
            self._calls[number] = (done, refused)
        self.control.post(ev.CommitWanted(number, dict(positions), self._clock.now_ms() + timeout_ms))
        if not done.wait(timeout_ms / 1000):
            with self._calls_lock:
                self._calls.pop(number, None)
            asked = "ZooKeeper" if self.channel is None else "ZooKeeper, or the group's coordinator,"
            return dict.fromkeys(positions, NotWritten(f"{asked} did not answer within {timeout_ms} ms"))
        if self._failure is not None:
            raise self._failure
        return refused

    def leave(self) -> bool:
        """Give everything back and leave the group; False when that could not be done in time.

        A call of the rebalance listener that is under way is waited for, unless it is the listener that asks.
        """
        self.listener.return_early()
        self.control.post(ev.LeaveWanted())
        patience_ms = self._settings.drain_timeout_ms + self._settings.settle_ms + LEAVE_GRACE_MS
        if self.listener.listener is not None:
            patience_ms += self._settings.listener_timeout_ms
        if self.channel is not None:
            patience_ms += self._settings.kafka_close_timeout_ms
        return self._has_left.wait(patience_ms / 1000) and not self._not_released

    def close(self) -> bool:
        """End everything: streams, session, fetchers, control thread.  True when nothing was left behind.

        The streams first: once the session has ended, others hand these records out.  The session before the fetchers
        are waited for, because the leader finder may be waiting for an answer from ZooKeeper.
        """
        self.end_streams(None)
        self.listener.close()
        self._ask_to_stop()
        self.control.post(ev.SessionClosed())
        clean = self._store.close(CLOSE_STEP_MS)
        clean = (self._giving_up is None or self._giving_up.join(CLOSE_STEP_MS)) and clean
        clean = self.fetchers.join(CLOSE_STEP_MS) and clean
        clean = (self.topic_finder is None or self.topic_finder.join(CLOSE_STEP_MS)) and clean
        clean = (self.channel is None or self.channel.join(CLOSE_STEP_MS)) and clean
        clean = self.control.stop(CLOSE_STEP_MS) and clean
        self._share_known.set()
        self.hooks.close()
        if not self.hooks.join(CLOSE_STEP_MS):
            log.warning("hook-running member=%s: it has not returned, and its thread goes on", self.id)
        if not self.listener.join(CLOSE_STEP_MS):
            log.warning("listener-running member=%s: it has not returned, and its thread goes on", self.id)
        return clean

    def end_streams(self, error: BaseException | None) -> None:
        """Put the marker behind which nothing comes."""
        for queue in list(self.queues.values()):
            queue.end(ShutdownMarker(error))
        self.lease.wake()

    @property
    def negotiated_timeout_ms(self) -> int:
        """The session time-out that ZooKeeper granted."""
        return self._store.negotiated_timeout_ms

    @property
    def failure(self) -> ZkConsumerError | None:
        """The error that ended this member, if one did."""
        return self._failure

    # --- what the performer tells (on the control thread) -------------------------------------------------------

    def commit_completed(self, command: do.CompleteCommit) -> None:
        with self._calls_lock:
            waiting = self._calls.pop(command.call, None)
        if waiting is not None:
            waiting[1].update(command.refused)
            waiting[0].set()

    def share_held(self, _: do.AnnounceShare) -> None:
        self._share_known.set()

    def left(self, command: do.AnnounceLeft) -> None:
        self._not_released = command.not_released
        self._has_left.set()

    def failed(self, command: do.Fail) -> None:
        kind = getattr(errors, command.kind, WorldError)
        self._end(kind(command.words))

    def _refused_by_brokers(self, error: AuthenticationException) -> None:
        """Called on a thread of the fetchers: nothing can be read with these settings."""
        log.error("brokers-refuse member=%s why=%r", self.id, str(error))
        self._end(error)

    def _not_authorized(self, words: str) -> None:
        self._end(ZkNotAuthorized(words))

    def _thread_died(self, name: str, error: BaseException) -> None:
        """Called in the dying thread: an error on every stream, never silence."""
        log.error("thread-died member=%s thread=%s", self.id, name, exc_info=error)
        self.hooks.call("thread_died", name, error)
        if isinstance(error, Bug):
            self._end(error)
        else:
            died = ThreadDied(f"the thread {name} of {self.id} ended: {type(error).__name__}: {error}")
            died.__cause__ = error
            self._end(died)

    def _end(self, error: ZkConsumerError) -> None:
        """Nothing is handed out any more, so nothing may be held: the session is ended for the sake of the others."""
        is_first = self._failure is None
        self._failure = self._failure or error
        self.end_streams(self._failure)
        self.lease.set(0)
        if is_first:
            self.hooks.call("member_failed", error)
            self._ask_to_stop()
            self._giving_up = spawn(f"{self.id}-give-up", lambda _: self._give_up(), self._thread_died)
        self._share_known.set()
        self._has_left.set()
        with self._calls_lock:
            calls, self._calls = list(self._calls.values()), {}
        for done, _ in calls:
            done.set()

    def _ask_to_stop(self) -> None:
        self.fetchers.ask_to_stop()
        if self.topic_finder is not None:
            self.topic_finder.ask_to_stop()
        if self.channel is not None:
            self.channel.ask_to_stop()

    def _give_up(self) -> None:
        self._store.close(CLOSE_STEP_MS)
