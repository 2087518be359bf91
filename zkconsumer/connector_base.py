"""``ConsumerConnector``: the base class of all connectors, for ZooKeeper groups and coordinator groups.

It has the streams, commits, the rebalance listener, metrics and the close (in the Scala consumer: the trait of this
name).  A subclass creates the member of its kind of group.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import (
    ConnectorClosed,
    ConsumerRebalanceFailedException,
    ForkedError,
    MessageStreamsExistException,
    OffsetsNotCommitted,
    UsageError,
)
from zkconsumer.kafka.chunks import ChunkQueue
from zkconsumer.kafka.fetch.offset_reset_strategy import OffsetResetStrategy
from zkconsumer.kafka.fetcher_thread import FetchSettings
from zkconsumer.member.group_view import STATIC_SUBSCRIPTION, TopicSubscription
from zkconsumer.member.offset_stores import CommitFailure, OffsetSource
from zkconsumer.member.topic_count import THREADS_PER_TOPIC_MAX, make_thread_id
from zkconsumer.member.topic_filter import Blacklist, TopicFilter, Whitelist, normalise
from zkconsumer.observe.metrics_file import write_metrics
from zkconsumer.runtime.broker_access import check_brokers
from zkconsumer.runtime.connector_member import ConnectorMember, ConnectorMembership
from zkconsumer.runtime.health_server import (
    HealthServer,
    HealthSource,
    register_health_source,
    unregister_health_source,
)
from zkconsumer.runtime.stream_fetcher import ANY_TOPIC, QueueKey
from zkconsumer.streams import Decoder, KafkaStream, calling_thread, default_decoder
from zkconsumer.types import TopicPartition
from zkconsumer.wire.isolation_level import IsolationLevel
from zkconsumer.zk import paths
from zkconsumer.zk.member_registration import format_registration, parse_registration, registration_of

if TYPE_CHECKING:
    from types import TracebackType

    from zkconsumer.base.clock import Clock
    from zkconsumer.member.listener_state_machine import ConsumerRebalanceListener
    from zkconsumer.observe.metrics import MetricSample

SESSION_TIMEOUTS_FOR_FIRST_ASSIGNMENT = 2

OFFSET_MAX = 2**63 - 1
TRANSIENT_RETRY_MS = 20
"""The pause before a commit is retried that waits for a migration or rebalance: the caller reads nothing meanwhile."""

log = logging.getLogger("zkconsumer.connector")

_connectors: weakref.WeakSet[ConsumerConnector[Any]] = weakref.WeakSet()


class Position(NamedTuple):
    """The position of a partition, and where this member started it.

    ``offset``: the consumed offset, -1 while it is not known.  ``started_at``: the committed offset from which it
    started, -1 without one; ``source``: the store that had it.
    """

    offset: int
    started_at: int
    source: OffsetSource


M = TypeVar("M", bound=ConnectorMember[ConnectorMembership])


class ConsumerConnector(Generic[M]):
    """A member of a consumer group; a context manager.

    A subclass calls ``_open`` at the end of its constructor.
    """

    CONNECTOR: ClassVar[str]
    """Its name in ``consumer.connector``."""

    _INCOMPLETE_CLOSE_TEXT: ClassVar[str]
    """The log text for a close that could not be completed."""

    def __init__(
        self,
        config: ConsumerConfig,
        consumer_id: str,
        member: M,
        clock: Clock,
        without_effect: Mapping[str, str] | None = None,
    ) -> None:
        """``without_effect``: settings that have no effect here -> reason; None: ``config.ignored``."""
        self.config = config
        self.consumer_id = consumer_id
        self._clock = clock
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._closed = False
        self._closing = threading.Event()
        self._streams: list[KafkaStream[Any, Any]] = []
        self._created = False
        self._member = member
        self._membership = member.membership
        self._health_source: HealthSource
        self._health: HealthServer | None = None
        for key, why in (config.ignored if without_effect is None else without_effect).items():
            log.warning("setting-ignored key=%s reason=%r", key, why)

    def _open(self, looker: HealthSource, timeout_ms: int) -> None:
        """Start the health socket and connect; if that fails, it stops everything and raises."""
        self._health_source = looker
        try:
            if self.config.health_socket is not None:
                self._health = register_health_source(looker, self.config.health_socket)
            self._membership.start(timeout_ms)
        except BaseException:
            self._stop_health()
            self._membership.close()
            raise
        _connectors.add(self)
        self._finalizer = weakref.finalize(self, _warn_not_closed, self.consumer_id, self._pid)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.consumer_id})"

    @property
    def _commit_timeout_ms(self) -> int:
        """How long a commit may take."""
        raise NotImplementedError

    def reading_problems(self, timeout_ms: int) -> list[str]:
        """Why this member cannot read its whole assignment now, a sentence for each reason; empty without one.

        Reasons are topics that do not exist, brokers that do not answer, partitions without a leader, a missing
        membership.  Waits at most ``timeout_ms`` for the control thread.
        """
        self._health_source.request_snapshot()
        return self._health_source.health(timeout_ms).reading_problems

    # --- streams --------------------------------------------------------------------------------------------

    def set_consumer_rebalance_listener(self, listener: ConsumerRebalanceListener) -> None:
        """Set the listener that is called in every rebalance (0.9 and later); it replaces one that was set before.

        ``listener`` is a ``ConsumerRebalanceListener``.  Its two methods are called alternately on a separate thread,
        never at the same time, and not after ``close`` has returned; ``close`` itself calls neither, as in the Scala
        consumer.  Released partitions are committed automatically only after the first method has returned (the Scala
        consumer commits before); commits of the listener are accepted.

        Raises ``MessageStreamsExistException`` after streams were created, ``UsageError`` if it is not a listener.
        """
        self._check_usable()
        for name in ("before_releasing_partitions", "before_starting_fetchers"):
            if not callable(getattr(listener, name, None)):
                raise UsageError(f"{listener!r} is not a rebalance listener: it has no method {name}")
        with self._lock:
            if self._created:
                raise MessageStreamsExistException(
                    f"{type(self).__name__} can only set consumer rebalance listener before creating streams"
                )
            self._membership.listener.set(listener)

    def create_message_streams(
        self,
        topic_count_map: Mapping[str, int],
        key_decoder: Decoder = default_decoder,
        value_decoder: Decoder = default_decoder,
    ) -> dict[str, list[KafkaStream[Any, Any]]]:
        """Join the group with this number of threads for each topic; return topic -> one stream per thread.

        Waits for the first complete assignment at most max(``rebalance.max.retries`` x ``rebalance.backoff.ms``, twice
        the negotiated session timeout); then it logs a warning and returns the streams, while the attempts continue.
        With ``rebalance.fail.fast`` the member leaves the group instead and raises
        ``ConsumerRebalanceFailedException``.  (The Scala consumer raises and keeps its registration.)

        Raises ``MessageStreamsExistException`` on a second call, ``UsageError`` for an invalid topic or number of
        threads, ``ConsumerIdInUse`` when another live session uses the ``consumer.id``, ``MigrationError`` when
        ZooKeeper has not the authority of the group.  If brokers may reject us (TLS, SASL, ``bootstrap.servers``), it
        first sends a request to one of them and raises an ``AuthenticationException`` within 10 s, so that a member
        that cannot read does not register.  With an empty map it registers, too, as in the Scala consumer.
        """
        self._check_usable()
        threads = self._checked(topic_count_map)
        self._check_brokers()
        self._create_once()
        streams: dict[str, list[KafkaStream[Any, Any]]] = {}
        queues: dict[QueueKey, ChunkQueue] = {}
        for topic, count in threads.items():
            for number in range(count):
                thread, queue, stream = self._make_stream(number, key_decoder, value_decoder)
                queues[topic, thread] = queue
                streams.setdefault(topic, []).append(stream)
        self._member.join(TopicSubscription(STATIC_SUBSCRIPTION, threads), queues)
        self._wait_for_first_assignment()
        return streams

    def create_message_streams_by_filter(
        self,
        topic_filter: TopicFilter,
        num_streams: int = 1,
        key_decoder: Decoder = default_decoder,
        value_decoder: Decoder = default_decoder,
    ) -> list[KafkaStream[Any, Any]]:
        """Join with a ``Whitelist`` or a ``Blacklist``; return ``num_streams`` streams, each for all matching topics.

        Topics that are created, extended or deleted later are added and removed automatically; other topics are not
        paused.  Waits and raises as ``create_message_streams`` does; each connector creates streams once, in one of the
        two ways, else ``MessageStreamsExistException`` (a plain ``RuntimeException`` in the Scala consumer).

        Raises ``UsageError``, before it writes anything, for an invalid number of streams (0 stops a whole group of
        Scala consumers as soon as a topic matches) and for a pattern that other members would read differently.  The
        constructor of the filter raises for a pattern that Java cannot compile or that cannot be evaluated exactly.
        """
        self._check_usable()
        subscription = self._checked_filter(topic_filter, num_streams)
        self._check_brokers()
        self._create_once()
        streams: list[KafkaStream[Any, Any]] = []
        queues: dict[QueueKey, ChunkQueue] = {}
        for number in range(num_streams):
            thread, queue, stream = self._make_stream(number, key_decoder, value_decoder)
            queues[ANY_TOPIC, thread] = queue
            streams.append(stream)
        self._member.join(subscription, queues)
        self._wait_for_first_assignment()
        return streams

    def _check_brokers(self) -> None:
        if self.config.security_protocol != "PLAINTEXT" or self.config.bootstrap_servers is not None:
            check_brokers(self._membership.bootstrap_client)

    def _create_once(self) -> None:
        with self._lock:
            if self._created:
                raise MessageStreamsExistException(
                    f"{type(self).__name__} can create message streams at most once, by topics or by a filter; create "
                    "another connector for other topics"
                )
            self._created = True

    def _make_stream(
        self, number: int, key_decoder: Decoder, value_decoder: Decoder
    ) -> tuple[str, ChunkQueue, KafkaStream[Any, Any]]:
        """Create a stream; return its thread id, its queue and the stream."""
        thread = make_thread_id(self.consumer_id, number)
        queue = ChunkQueue(self.config.queued_max_message_chunks)
        stream: KafkaStream[Any, Any] = KafkaStream(
            thread,
            queue,
            self._member.lease,
            timeout_ms=self.config.consumer_timeout_ms,
            key_decoder=key_decoder,
            value_decoder=value_decoder,
        )
        stream.iterator().delivery.on_poison = self._report_poison
        self._streams.append(stream)
        return thread, queue, stream

    def _report_poison(self, tp: TopicPartition, why: str) -> None:
        """Report on the control thread: on the program's thread a signal handler may raise while a lock is taken."""
        self._membership.event_loop.call_soon(partial(self._membership.observer.poison_record_found, tp, why))

    def _checked(self, topic_count_map: Mapping[str, int]) -> dict[str, int]:
        if not isinstance(topic_count_map, Mapping):
            raise UsageError(
                'topic_count_map must be a mapping from topic to number of threads, such as {"clicks": 1}, not '
                f"{topic_count_map!r}"
            )
        for topic, count in topic_count_map.items():
            paths.check_topic(topic)
            if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= THREADS_PER_TOPIC_MAX:
                raise UsageError(
                    f"topic {topic!r}: {count!r} is not a number of threads between 1 and {THREADS_PER_TOPIC_MAX}"
                )
        if sum(topic_count_map.values()) > THREADS_PER_TOPIC_MAX:
            raise UsageError(f"a registration may have at most {THREADS_PER_TOPIC_MAX} threads in total")
        return dict(topic_count_map)

    def _checked_filter(self, topic_filter: TopicFilter, num_streams: int) -> TopicSubscription:
        """The subscription to register; raises ``UsageError`` if other members would read it differently."""
        if not isinstance(topic_filter, Whitelist | Blacklist):
            raise UsageError(f"{topic_filter!r} is not a topic filter: pass Whitelist(pattern) or Blacklist(pattern)")
        if isinstance(num_streams, bool) or not isinstance(num_streams, int) or num_streams < 1:
            raise UsageError(f"{num_streams!r} is not a number of streams: 1 to {THREADS_PER_TOPIC_MAX}")
        if num_streams > THREADS_PER_TOPIC_MAX:
            raise UsageError(f"{num_streams} streams are too many: 1 to {THREADS_PER_TOPIC_MAX}")
        subscription = TopicSubscription(topic_filter.pattern, {topic_filter.regex: num_streams})
        read = parse_registration(format_registration(registration_of(subscription, "0")))
        if normalise(topic_filter.regex) != topic_filter.regex or read.subscription != subscription.topics:
            raise UsageError(
                f"other members would read the filter {topic_filter.regex!r} differently: every reader strips blanks "
                "and quotes at its ends again; write it without them"
            )
        return subscription

    def _wait_for_first_assignment(self) -> None:
        config = self.config
        timeout_ms = max(
            config.rebalance_max_retries * config.rebalance_backoff_ms,
            SESSION_TIMEOUTS_FOR_FIRST_ASSIGNMENT * self._membership.negotiated_timeout_ms,
        )
        if self._membership.wait_for_assignment(timeout_ms):
            return
        words = f"{self.consumer_id} did not get its complete assignment within {timeout_ms} ms"
        if config.rebalance_fail_fast:
            left = "it has left the group" if self._membership.leave() else "the group removes it when its session ends"
            raise ConsumerRebalanceFailedException(f"{words}; {left} (rebalance.fail.fast)")
        log.warning("assignment-wait-timeout member=%s waited_ms=%d: still trying", self.consumer_id, timeout_ms)

    # --- offsets --------------------------------------------------------------------------------------------

    def commit_offsets(
        self, offsets: Mapping[TopicPartition, int] | None = None, *, retry_on_failure: bool = True
    ) -> None:
        """Commit the changed consumed offsets of all partitions, or the given next offsets (0.9 and later).

        With ``offsets.storage=kafka`` every offset is committed to Kafka, changed or not, because brokers delete
        offsets that are not committed again.  With dual commit ZooKeeper is written first, and Kafka receives the
        offsets that ZooKeeper accepted.

        For streams that the calling thread read last, the commit includes the unacknowledged record, as old programs
        expect; for other streams only acknowledged records.  A stored offset never decreases: a given offset below it
        is skipped.

        ``retry_on_failure``: retry up to ``offsets.commit.max.retries`` times, ``offsets.channel.backoff.ms`` apart,
        if a retry can succeed; only for partitions that this member still owns, in the same stream, without a reset
        (after a reset the old offset may belong to other records).  Without automatic commits a partition that is
        being released counts as owned, because its release commits nothing then.  A commit that only waits for a
        migration or rebalance of the group is retried at once, for the same total time.  (The Scala consumer documents
        this meaning, and does the opposite since 0.9.)

        Raises ``OffsetsNotCommitted``, with the store and the reason for each partition, if an offset was not written;
        its records are then delivered again, here or at another member.  (The Scala consumer returned normally.)
        Raises ``UsageError`` for an invalid partition or offset, before it writes anything.
        """
        self._check_usable()
        ownerships = self._ownerships()
        positions = self._consumed() if offsets is None else _checked_offsets(offsets)
        timeout_ms = self._commit_timeout_ms
        refused = self._membership.commit(positions, timeout_ms)
        retries = self.config.offsets_commit_max_retries if retry_on_failure else 0
        waited_ms = 0
        while refused_now := self._retriable(refused, ownerships):
            backoff_ms = max(1, self.config.offsets_channel_backoff_ms)
            is_passing = all(refused[tp].is_transient for tp in refused_now)
            pause_ms = min(TRANSIENT_RETRY_MS, backoff_ms) if is_passing else backoff_ms
            if waited_ms >= retries * backoff_ms or self._closing.wait(pause_ms / 1000):
                break
            waited_ms += pause_ms
            again = {tp: positions[tp] for tp in self._retriable(refused, ownerships)}
            if not again:
                break
            refused = {tp: why for tp, why in refused.items() if tp not in again}
            refused |= self._membership.commit(again, timeout_ms)
        if refused:
            raise OffsetsNotCommitted({tp: str(why) for tp, why in refused.items()})

    def _retriable(
        self, refused: Mapping[TopicPartition, CommitFailure], ownerships: dict[TopicPartition, tuple[object, int]]
    ) -> list[TopicPartition]:
        same = self._ownerships().items() & ownerships.items()
        return [tp for tp, _ in same if tp in refused and not refused[tp].is_permanent]

    def _ownerships(self) -> dict[TopicPartition, tuple[object, int]]:
        """Owned partition -> (ownership, reset count): while both are the same, a position means the same record.

        A partition that is being released is committed with its release; without automatic commits only the program
        can commit it.
        """
        include_leaving = not self.config.auto_commit_enable
        held = self._member.streams.all_partitions().items()
        return {tp: (info, info.resets) for tp, info in held if info.is_live or include_leaving}

    def _consumed(self) -> dict[TopicPartition, int]:
        """The consumed offsets to commit.

        A partition that is being released is committed with its release; without automatic commits only here.  A
        partition whose first offset is not known yet (-1: ``auto.offset.reset`` has no answer yet) is not committed.
        """
        infos = self._member.streams.all_partitions()
        include_leaving = not self.config.auto_commit_enable
        consumed = {tp: info.consumed_offset for tp, info in infos.items() if info.is_live or include_leaving}
        positions = {tp: offset for tp, offset in consumed.items() if offset >= 0}
        here = calling_thread()
        for stream in self._streams:
            in_hand = stream.iterator().unacknowledged_position() if stream.iterator().thread_id == here else None
            if in_hand is not None and infos.get(in_hand[0].tp) is in_hand[0]:
                positions[in_hand[0].tp] = in_hand[1]
        return positions

    # --- close ----------------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """Leave the group and stop everything; may be called twice.

        It takes at most about 10 s, or about 20 s with offsets in Kafka and a coordinator that does not answer.  The
        unacknowledged record of the calling thread counts as consumed.  It commits offsets (with
        ``auto.commit.enable``), deletes the owner nodes and the registration, and ends the streams.
        """
        self.close()

    def close(self, *, acknowledge_delivered: bool = True) -> None:
        """``shutdown``, with a choice whether the unacknowledged record of the calling thread counts as consumed.

        It waits for a running call of the rebalance listener, at most ``rebalance.listener.timeout.ms``.
        """
        if os.getpid() != self._pid:
            # The lock may be locked by a thread that does not exist in this process.
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._finalizer.detach()
        self._closing.set()
        here = calling_thread()
        for stream in self._streams:
            if stream.iterator().thread_id == here:
                if acknowledge_delivered:
                    stream.iterator().acknowledge()
                else:
                    stream.iterator().undeliver()
        left = self._membership.leave()
        clean = self._membership.close()
        self._stop_health()
        if not (left and clean):
            log.warning(
                "close-incomplete member=%s: %s, after at most %d ms",
                self.consumer_id,
                self._INCOMPLETE_CLOSE_TEXT,
                self._membership.negotiated_timeout_ms,
            )

    def end_streams(self) -> None:
        """End every stream at once, without further records; the member stays in its group until ``shutdown``."""
        self._member.end_streams(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(acknowledge_delivered=kind is None)

    # --- assignment and metrics -----------------------------------------------------------------------------

    @property
    def assignment(self) -> dict[TopicPartition, str]:
        """The partitions that this member reads now: partition -> thread id."""
        return self._member.streams.assignment

    @property
    def positions(self) -> dict[TopicPartition, Position]:
        """The position of each partition that this member reads now, and where it started."""
        return {
            tp: Position(info.consumed_offset, info.start_offset, info.source)
            for tp, info in list(self._member.streams.partition_infos.items())
            if info.is_live
        }

    def metrics(self) -> dict[str, Any]:
        """All present metrics, for ``json.dumps``.

        ``metrics``: MBean name of the Scala consumer -> attribute -> value, only of this connector, also if others
        have the same client id.  ``counters``: event -> count.  ``member``, ``group``, ``client_id``; ``at_ms``: ms
        since 1970.  Works after ``close``, too.
        """
        return {
            "member": self.consumer_id,
            "group": self.config.group_id,
            "client_id": self.config.client_id,
            "at_ms": self._clock.wall_ms(),
            "metrics": self._member.registry.mbeans(),
            "counters": self.counters,
        }

    def dump_metrics(self, path: str | os.PathLike[str]) -> None:
        """Write ``metrics()`` to this file as JSON, atomically; raises ``OSError`` if that fails."""
        write_metrics(Path(path), self.metrics())

    def metric_samples(self) -> list[MetricSample]:
        """The same metrics with their rows and labels, for exporters: see ``zkconsumer.observe.prometheus``."""
        return list(self._member.registry.samples())

    @property
    def counters(self) -> dict[str, int]:
        """Event -> how often it happened so far."""
        return self._membership.counters.snapshot()

    # --- helpers --------------------------------------------------------------------------------------------

    def _delivered_at_ms(self) -> list[int | None]:
        return [stream.iterator().delivered_at_ms for stream in list(self._streams)]

    def _stop_health(self) -> None:
        server, self._health = self._health, None
        if server is not None:
            unregister_health_source(self._health_source, server)

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedError(
                f"{self.consumer_id} was created in process {self._pid}; create a connector in this process instead"
            )
        # A close, and an end by an error, wait for a running call of the rebalance listener: that call may commit.
        if self._membership.listener.is_inside_awaited_call:
            return
        if self._closed:
            raise ConnectorClosed(f"{self.consumer_id} is closed: create another connector")
        if self._membership.failure is not None:
            raise self._membership.failure

    def _fail_in_child(self) -> None:
        self._closed = True
        forked = ForkedError(
            f"{self.consumer_id} belongs to process {self._pid}, and this is a fork of it; create a connector here"
        )
        for stream in self._streams:
            stream.iterator().fail(forked)


def fetch_settings_of(config: ConsumerConfig) -> FetchSettings:
    """The settings of the fetchers."""
    return FetchSettings(
        client_id=config.client_id,
        partition_max_bytes=config.fetch_message_max_bytes,
        max_bytes=config.fetch_max_bytes,
        queued_max_bytes=config.queued_max_bytes,
        min_bytes=config.fetch_min_bytes,
        max_wait_ms=config.fetch_wait_max_ms,
        pause_ms=config.fetch_pause_ms,
        socket_timeout_ms=config.socket_timeout_ms,
        receive_buffer_bytes=config.socket_receive_buffer_bytes,
        backoff_ms=config.refresh_leader_backoff_ms,
        reset=OffsetResetStrategy.of_setting(config.auto_offset_reset),
        isolation_level=IsolationLevel.of_setting(config.isolation_level),
    )


def check_config(config: object, connector: type[ConsumerConnector[Any]], kind: type[ConsumerConfig]) -> None:
    """Raise ``UsageError`` if ``config`` is not a configuration, or one that names another connector.

    ``kind`` is the class of configurations that the text names.
    """
    if not isinstance(config, ConsumerConfig):
        name = kind.__name__
        raise UsageError(
            f"{connector.__name__} takes a {name}, not {type(config).__name__}: create one with {name}(…), or with "
            f'{name}.from_properties("consumer.properties")'
        )
    if "consumer.connector" in config.given and config.consumer_connector != connector.CONNECTOR:
        raise UsageError(
            f"consumer.connector={config.consumer_connector}, but the program creates a {connector.__name__}; remove "
            "the key, or let Consumer.createJavaConsumerConnector of zkconsumer.javaapi create the connector"
        )


def _checked_offsets(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    if not isinstance(offsets, Mapping):
        raise UsageError(f"offsets must be a mapping from TopicPartition to the next offset, not {offsets!r}")
    checked: dict[TopicPartition, int] = {}
    for tp, offset in offsets.items():
        match tp:
            case (str() as topic, int() as partition) if not isinstance(partition, bool):
                pass
            case _:
                raise UsageError(f"{tp!r} is not a partition: pass TopicPartition(topic, number)")
        if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset <= OFFSET_MAX:
            raise UsageError(f"{topic}/{partition}: {offset!r} is not an offset: pass a number from 0 to {OFFSET_MAX}")
        checked[TopicPartition(topic, partition)] = offset
    return checked


def _warn_not_closed(consumer_id: str, pid: int) -> None:
    """Log that the program ended, or dropped the connector and its streams, without a close."""
    if os.getpid() == pid:
        log.warning(
            "connector-not-closed member=%s: the program did not close its connector, so records read since the last "
            "commit are delivered again, and other members get its partitions late; call close(), or use the connector "
            "in a with statement",
            consumer_id,
        )


def _fail_streams_in_child() -> None:
    """End all streams in a forked child with an error: it has no control thread, and the sockets are the parent's."""
    for connector in list(_connectors):
        connector._fail_in_child()


os.register_at_fork(after_in_child=_fail_streams_in_child)
