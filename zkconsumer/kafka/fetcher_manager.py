"""``ConsumerFetcherManager``: finds the leader of every partition and assigns it to that broker's fetcher thread.

    start(infos) --> leaderless --leader finder--> fetcher thread of the leader
                        ^                                 |
                        +------ add_partitions_with_error-+

A partition goes to a fetcher thread at once if its leader is cached and other partitions are already read from that
broker.  So a rebalance of a large group costs no member a Metadata request for the whole topic.  A broker that does not
lead the partition any more answers with an error, and the leader is requested then.  (The Scala consumer requests it
each time.)

An *info* (``PartitionTopicInfo``) is one ownership of one partition; it is not *live* after the partition was released
or lost.  The manager stops no thread for a rebalance: each thread drops the infos that are not live any more.  So the
member reads the partitions that it keeps without a pause.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zkconsumer.base.threads import StopSignal, WorkerThread, spawn
from zkconsumer.errors import AuthenticationException, ConnectorClosed, SaslAuthenticationException, UnavailableError
from zkconsumer.kafka.bootstrap_client import BootstrapClient, NoBrokerAvailableError
from zkconsumer.kafka.byte_budget import ByteBudget
from zkconsumer.kafka.fetcher_thread import ConsumerFetcherThread, FetchSettings
from zkconsumer.kafka.metadata_client import LeaderMetadata, fetch_leaders
from zkconsumer.member.log_rate_limiter import LogRateLimiter
from zkconsumer.observe.fetch_metrics import FetchMetrics
from zkconsumer.observe.metrics import Registry
from zkconsumer.wire.java_hash import java_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from zkconsumer.base.clock import Clock
    from zkconsumer.errors import UsageError
    from zkconsumer.kafka.broker_connection import ConnectionFactory
    from zkconsumer.kafka.chunks import ChunkQueue, PartitionTopicInfo
    from zkconsumer.kafka.error_codes import ErrorCode
    from zkconsumer.types import BrokerAddress, TopicPartition

UNKNOWN_TOPIC_LOG_AFTER_MS = 5_000
"""For how long an unknown topic of this member is not logged: brokers learn of a new topic one after the other, and
remove a deleted one before the group does."""
PARTITIONS_LISTED_MAX = 3
"""How many partitions without a leader one message names."""

LEADERS_MAX_AGE_MS = 300_000
"""How long a cached leader is valid (``metadata.max.age.ms`` of Kafka's later clients)."""

IDLE_CHECK_MS = 10_000
"""How often an idle leader finder checks for fetcher threads without partitions: a rebalance takes partitions away
without waking the leader finder."""

log = logging.getLogger("zkconsumer.fetcher")


def fetcher_number(tp: TopicPartition, num_fetchers: int) -> int:
    """Which of ``num.consumer.fetchers`` threads of a broker reads this partition (0.8 to 1.1)."""
    mixed = (31 * java_hash(tp.topic) + tp.partition) & 0xFFFFFFFF
    signed = mixed - (1 << 32) if mixed >> 31 else mixed
    return 0 if signed == -(1 << 31) else abs(signed) % num_fetchers


@dataclass(frozen=True, slots=True)
class _CachedLeaders:
    """The leaders of a topic's partitions from the last Metadata; one that turned out to be wrong is removed."""

    at_ms: int
    of_partition: dict[int, BrokerAddress] = field(default_factory=dict)


class ConsumerFetcherManager:
    """The fetcher threads and the leader finder.  Every public method may be called from any thread.

    ``on_topics_rejected``: called with topics that this user may not read, or whose names are invalid, after every
    Metadata response that says so.
    """

    def __init__(
        self,
        name: str,
        settings: FetchSettings,
        num_fetchers: int,
        *,
        connect: ConnectionFactory,
        brokers: BootstrapClient,
        clock: Clock,
        on_reset: Callable[[PartitionTopicInfo, int], None],
        on_position_missing: Callable[[UsageError], None],
        on_thread_error: Callable[[str, BaseException], None],
        on_authentication_error: Callable[[AuthenticationException], None],
        registry: Registry | None = None,
        on_fetch_error: Callable[[BrokerAddress, tuple[TopicPartition, ...], str], None] = lambda *_: None,
        on_unknown_topics: Callable[[], None] | None = None,
        on_topics_rejected: Callable[[Mapping[str, ErrorCode]], None] = lambda _: None,
    ) -> None:
        self._registry = Registry(clock, {"clientId": settings.client_id}) if registry is None else registry
        self._on_trouble = on_fetch_error
        self._name = name
        self._settings = settings
        self.budget = ByteBudget(settings.queued_max_bytes)
        self._num_fetchers = num_fetchers
        self._connect = connect
        self._brokers = brokers
        self._clock = clock
        self._on_reset = on_reset
        self._on_position_missing = on_position_missing
        self._on_thread_error = on_thread_error
        self._on_authentication_error = on_authentication_error
        self._on_unknown = on_unknown_topics
        self._on_topics_refused = on_topics_rejected
        self._unknown = LogRateLimiter(first_after_ms=UNKNOWN_TOPIC_LOG_AFTER_MS)
        self._has_read = False
        """Whether a broker has answered a Fetch since the start."""
        self._changed = threading.Condition()
        self._leaderless: dict[TopicPartition, PartitionTopicInfo] = {}
        self._fetchers: dict[tuple[BrokerAddress, int], tuple[ConsumerFetcherThread, WorkerThread]] = {}
        self._stopped: list[WorkerThread] = []
        """Fetcher threads that were asked to stop and may still run."""
        self._finder: WorkerThread | None = None
        self._closed = False
        self._logged_lookup_failure = ""
        self._logged_fetch_failure: dict[BrokerAddress, str] = {}
        self._logged_leaderless: set[TopicPartition] = set()
        self._assigned_at_ms: dict[TopicPartition, int] = {}
        """When a lookup last gave each partition to a fetcher thread."""
        self._cached_leaders: dict[str, _CachedLeaders] = {}
        self._has_immediate_failure = False
        """Whether a partition failed within ``refresh.leader.backoff.ms`` of that: then the next lookup waits."""

    def start(self, infos: Iterable[PartitionTopicInfo]) -> None:
        """Read these partitions from their fetch offsets on."""
        with self._changed:
            self._add_leaderless(infos)
            if self._finder is None and not self._closed:
                name = f"{self._name}-leader-finder-thread"
                self._finder = spawn(name, self._find_leaders, self._on_thread_error, wake=self._wake_finder)

    def add_partitions_with_error(self, infos: Iterable[PartitionTopicInfo]) -> None:
        """The leader of these partitions is unknown, or not valid any more."""
        given = list(infos)
        since_ms = self._clock.now_ms() - self._settings.backoff_ms
        with self._changed:
            self._assigned_at_ms = {tp: at_ms for tp, at_ms in self._assigned_at_ms.items() if at_ms > since_ms}
            self._has_immediate_failure |= any(info.tp in self._assigned_at_ms for info in given)
            for info in given:
                known = self._cached_leaders.get(info.tp.topic)
                if known is not None:
                    known.of_partition.pop(info.tp.partition, None)
            self._add_leaderless(given)

    def _add_leaderless(self, infos: Iterable[PartitionTopicInfo]) -> None:
        """Called with the lock held."""
        self._leaderless.update({info.tp: info for info in infos if info.is_live})
        self._changed.notify_all()

    def add_queue(self, queue: ChunkQueue) -> None:
        """Read partitions into this queue from now on; its chunks count for ``queued.max.bytes``."""
        queue.on_space_available = self.space_available
        queue.budget = self.budget
        self.budget.add_queue(queue)

    def wake(self) -> None:
        """Partitions were removed or moved: make every fetcher check its partitions again.

        Takes no lock: the thread that iterates a stream calls it, and an exception there would leave the lock locked.
        """
        for fetcher, _ in list(self._fetchers.values()):
            fetcher.wake()

    def space_available(self) -> None:
        """A queue has room again: make every fetcher deliver chunks and fetch.  Takes no lock, like ``wake``."""
        for fetcher, _ in list(self._fetchers.values()):
            fetcher.space_available()

    def leaderless(self) -> set[TopicPartition]:
        """The partitions that wait for a leader."""
        with self._changed:
            return {tp for tp, info in self._leaderless.items() if info.is_live}

    def failures(self) -> list[str]:
        """Why partitions are not read now: they have no known leader, or the leader does not answer Fetch requests."""
        with self._changed:
            # A broker that leads no partition any more may stay unreachable.
            asked = {broker for broker, _ in self._fetchers}
            leaderless = {tp for tp, info in self._leaderless.items() if info.is_live}
            unled = sorted(leaderless & self._logged_leaderless)
            failed = {
                str(broker): why for broker, why in self._logged_fetch_failure.items() if leaderless or broker in asked
            }
        no_leaders = [self._logged_lookup_failure] if self._logged_lookup_failure else []
        if unled:
            named = ", ".join(map(str, unled[:PARTITIONS_LISTED_MAX])) + (
                ", …" if len(unled) > PARTITIONS_LISTED_MAX else ""
            )
            no_leaders.append(f"no broker leads {named} now: start the brokers that have its replicas")
        return no_leaders + [f"{broker} does not answer: {why}" for broker, why in sorted(failed.items())]

    def min_fetch_rate(self) -> float:
        """Requests per second to the broker of the slowest fetcher thread; 0 if there is none."""
        with self._changed:
            fetchers = [fetcher for fetcher, _ in self._fetchers.values()]
        return min((fetcher.metrics.request_rate for fetcher in fetchers), default=0.0)

    def ask_to_stop(self) -> None:
        """Ask every thread to end, without waiting for it; start no more threads."""
        with self._changed:
            self._closed = True
            workers = self._workers()
        for worker in workers:
            worker.request_stop()

    def join(self, timeout_ms: int) -> bool:
        """Wait for the end of every thread that was asked to stop, at most ``timeout_ms`` in total."""
        with self._changed:
            workers = self._workers()
        deadline_ms = self._clock.now_ms() + timeout_ms
        ended = [worker.join(max(1, deadline_ms - self._clock.now_ms())) for worker in workers]
        return all(ended)

    def close(self, timeout_ms: int) -> bool:
        """Stop every thread: first ask all of them to stop, then wait for them."""
        self.ask_to_stop()
        return self.join(timeout_ms)

    def _workers(self) -> list[WorkerThread]:
        """Called with the lock held."""
        finder = [] if self._finder is None else [self._finder]
        return [*finder, *self._stopped, *(worker for _, worker in self._fetchers.values())]

    # --- the leader finder --------------------------------------------------------------------------------------

    def _wake_finder(self) -> None:
        self._brokers.interrupt()
        with self._changed:
            self._changed.notify_all()

    def _find_leaders(self, stop: StopSignal) -> None:
        while not stop.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._leaderless or stop.is_set(), IDLE_CHECK_MS / 1000)
                self._leaderless = {tp: info for tp, info in self._leaderless.items() if info.is_live}
                self._give_to_known_leaders()
                wanted = dict(self._leaderless)
                again, self._has_immediate_failure = self._has_immediate_failure, False
            if again:
                # The leader that was just found cannot be read: a lookup without a pause would repeat endlessly.
                stop.wait(self._settings.backoff_ms)
            if wanted and not stop.is_set():
                leaders = self._fetch_leaders(sorted({tp.topic for tp in wanted}), stop)
                if leaders is not None:
                    self._give_to_fetchers(wanted, leaders)
            self._stop_idle_fetchers()
            with self._changed:
                unled = bool(wanted and self._leaderless)
            if unled:
                stop.wait(self._settings.backoff_ms)

    def _give_to_known_leaders(self) -> None:
        """Give partitions with a cached leader to its fetcher thread, if that runs and its broker answers.

        Called with the lock held.
        """
        now_ms = self._clock.now_ms()
        self._cached_leaders = {
            topic: known for topic, known in self._cached_leaders.items() if now_ms - known.at_ms < LEADERS_MAX_AGE_MS
        }
        given: dict[tuple[BrokerAddress, int], list[PartitionTopicInfo]] = {}
        for tp, info in self._leaderless.items():
            known = self._cached_leaders.get(tp.topic)
            broker = None if known is None else known.of_partition.get(tp.partition)
            if broker is not None and broker not in self._logged_fetch_failure:
                key = (broker, fetcher_number(tp, self._num_fetchers))
                if key in self._fetchers:
                    given.setdefault(key, []).append(info)
        for key, infos in given.items():
            for info in infos:
                del self._leaderless[info.tp]
            self._fetchers[key][0].add(infos)

    def _fetch_leaders(self, topics: list[str], stop: StopSignal) -> LeaderMetadata | None:
        """Ask the brokers until one answers; None: none did, or the member cannot continue."""
        try:
            leaders = self._brokers.execute(
                lambda connection, ranges, timeout_ms: fetch_leaders(connection, ranges, topics, timeout_ms),
                stop.is_set,
            )
        except ConnectorClosed:
            return None
        except NoBrokerAvailableError as error:
            if error.authentication_error is not None:
                self._handle_authentication_error(error.authentication_error)
            self._log_lookup_failure(str(error))
            return None
        except UnavailableError as error:
            self._log_lookup_failure(f"the brokers cannot be looked up: {error}")
            return None
        self._logged_lookup_failure = ""
        if leaders.topic_errors and self._on_unknown is not None:
            # The topics may have been deleted: a member that reads topics from Kafka must refresh them.
            self._on_unknown()
        if leaders.rejected_topics:
            self._on_topics_refused(leaders.rejected_topics)
        self._log_unknown(leaders)
        return leaders

    def _log_unknown(self, leaders: LeaderMetadata) -> None:
        """Log which topics cannot be read, and why; repeated while it lasts."""
        led = {tp.topic for tp in leaders.with_leader}
        unknown = {
            topic: error
            for topic, error in leaders.topic_errors.items()
            if topic not in leaders.rejected_topics and topic not in led
        }
        for topic in self._unknown.select_due(unknown, self._clock.now_ms()):
            log.warning(
                "topic-without-leaders topic=%s reason=%r: it is being created or deleted, or the brokers' ACLs hide "
                "it "
                "from this user; brokers are asked again every %d ms",
                topic,
                str(unknown[topic]),
                self._settings.backoff_ms,
            )

    def _handle_authentication_error(self, error: AuthenticationException) -> None:
        """A broker rejects the authentication permanently.  If nothing was ever read, the settings are wrong: the
        member ends.

        Later the brokers have changed, perhaps only one of them and for a moment: it is logged and tried again.  The
        same applies to a login that any broker has accepted once: a broker that has just started may not have its users
        yet.
        """
        is_login = isinstance(error, SaslAuthenticationException)
        if not self._has_read and not (is_login and self._brokers.has_succeeded):
            self._on_authentication_error(error)

    def _give_to_fetchers(self, wanted: dict[TopicPartition, PartitionTopicInfo], leaders: LeaderMetadata) -> None:
        given: dict[tuple[BrokerAddress, int], list[PartitionTopicInfo]] = {}
        known: dict[str, _CachedLeaders] = {}
        for tp, broker in leaders.with_leader.items():
            known.setdefault(tp.topic, _CachedLeaders(self._clock.now_ms())).of_partition[tp.partition] = broker
            info = wanted.get(tp)
            if info is not None:
                given.setdefault((broker, fetcher_number(tp, self._num_fetchers)), []).append(info)
        with self._changed:
            if self._closed:
                return
            self._cached_leaders |= known
            for infos in given.values():
                for info in infos:
                    if self._leaderless.get(info.tp) is info:
                        del self._leaderless[info.tp]
            for key, infos in given.items():
                self._assigned_at_ms |= {info.tp: self._clock.now_ms() for info in infos}
                self._fetcher(key).add(infos)
        self._log_leaderless({tp for tp in wanted if tp in leaders.partitions and tp not in leaders.with_leader})

    def _log_leaderless(self, unled: set[TopicPartition]) -> None:
        """Log these once, and again only after they had a leader in between."""
        fresh = sorted(unled - self._logged_leaderless)
        self._logged_leaderless = unled
        if fresh:
            log.warning(
                "partitions-without-leader partitions=%d first=%s reason='they have no leader now'",
                len(fresh),
                fresh[0],
            )

    def _fetcher(self, key: tuple[BrokerAddress, int]) -> ConsumerFetcherThread:
        if key not in self._fetchers:
            broker, number = key
            fetcher = ConsumerFetcherThread(
                broker,
                self._settings,
                self._connect,
                clock=self._clock,
                on_leaderless=self.add_partitions_with_error,
                on_reset=self._on_reset,
                on_position_missing=self._on_position_missing,
                on_round=self._after_round,
                metrics=FetchMetrics(self._registry, broker),
                budget=self.budget,
                on_trouble=self._on_trouble,
                on_topics_refused=self._on_topics_refused,
            )
            name = f"ConsumerFetcherThread-{self._name}-{number}-{broker.broker_id}"
            worker = spawn(name, fetcher.run, self._on_thread_error, wake=fetcher.interrupt)
            self._fetchers[key] = (fetcher, worker)
        return self._fetchers[key][0]

    def _stop_idle_fetchers(self) -> None:
        with self._changed:
            idle = [key for key, (fetcher, _) in self._fetchers.items() if fetcher.is_idle]
            ended = [self._fetchers.pop(key) for key in idle]
            stopped = [worker for _, worker in ended]
            self._stopped = [worker for worker in self._stopped if worker.is_alive] + stopped
            read = {fetcher.metrics.address for fetcher, _ in self._fetchers.values()}
            for fetcher, _ in ended:
                if fetcher.metrics.address not in read:
                    fetcher.metrics.remove()
        for worker in stopped:
            worker.request_stop()

    def _after_round(self, broker: BrokerAddress, error: Exception | None) -> None:
        """Log once why a broker cannot be read, and again only after it could be read in between."""
        why = str(error or "")
        if error is None:
            self._has_read = True
            self._logged_fetch_failure.pop(broker, None)
            return
        if isinstance(error, AuthenticationException):
            self._handle_authentication_error(error)
        if self._logged_fetch_failure.get(broker) != why:
            self._logged_fetch_failure[broker] = why
            log.warning("fetch-failed broker=%s reason=%r", broker, why)
            self._on_trouble(broker, (), why)

    def _log_lookup_failure(self, why: str) -> None:
        if why != self._logged_lookup_failure:
            self._logged_lookup_failure = why
            log.warning("leader-lookup-failed reason=%r", why)
