"""``KafkaConsumer``: the methods of ``org.apache.kafka.clients.consumer.KafkaConsumer`` (3.0) with Python's spelling.

    consumer = KafkaConsumer({"bootstrap.servers": "host:9092", "group.id": "g"})
    consumer.subscribe(["clicks"])
    while True:
        for record in consumer.poll(1000):
            ...

One ``poll``: the group (``PolledCoordinator.poll``) --> positions of new partitions --> buffered records --> fetch
requests --> wait for the network.  The next fetches are sent before records are returned.

For ``ROUND_MS`` after such a round, the next calls return buffered records at once: a program with small lists calls
``poll`` some thousand times in a second.  Not if the group has a command, a callback or an error for the program, nor
after ``wakeup``.  What else the group and the look-ups of positions do waits for the next round.  Such a call looks at
the network once in a millisecond, unless it has something to send.  Java does everything in each call.

Only one thread may be inside of a method; ``wakeup`` may be called by any thread and by a signal handler.  All times
are integers in ms.

Differences from Java: ``reference/kafka-consumer.md``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Self, SupportsIndex, TypeVar

from bridge.client.kafka_consumer.committed_offset_load import CommittedOffsetLoad
from bridge.client.kafka_consumer.consumer_access import ConsumerAccess
from bridge.client.kafka_consumer.consumer_components import (
    SYSTEM_ENVIRONMENT,
    ConsumerEnvironment,
    close_deserializers,
    create_components,
)
from bridge.client.kafka_consumer.consumer_metrics import ConsumerMetrics, MetricName
from bridge.client.kafka_consumer.consumer_records import EMPTY, ConsumerRecords
from bridge.client.kafka_consumer.kafka_consumer_config import KafkaConsumerConfig
from bridge.client.kafka_consumer.offset_calls import OffsetCommitCallback, to_offset_and_metadata
from zkconsumer.base.timer import Timer
from zkconsumer.errors import (
    InvalidTopicException,
    TimeoutException,
    UsageError,
    ZkConsumerError,
)
from zkconsumer.kafka.fetch.fetch_position import FetchPosition
from zkconsumer.kafka.fetch.offset_reset_strategy import OffsetResetStrategy
from zkconsumer.kafka.group.errors import InvalidGroupIdException
from zkconsumer.kafka.metadata.metadata_request_builder import MetadataRequestBuilder
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.types import TopicPartition
from zkconsumer.wire.isolation_level import IsolationLevel

if TYPE_CHECKING:
    from bridge.client.kafka_consumer.polled_coordinator import PolledCoordinator
    from bridge.client.kafka_consumer.rebalance_listener import ConsumerRebalanceListener
    from zkconsumer.kafka.fetch.fetched_records import FetchedRecords
    from zkconsumer.kafka.fetch.list_offsets_requests import OffsetAndTimestamp
    from zkconsumer.kafka.metadata.cluster import PartitionInfo

K = TypeVar("K")
V = TypeVar("V")

CLOSE_TIMEOUT_MS = 30_000
"""How long ``close`` waits for the group without another value."""

OFFSET_MAX = 2**63 - 1
"""The largest offset that a request can contain."""

ROUND_MS = 10
"""How long ``poll`` may return buffered records before the group and the positions have their next turn."""

log = logging.getLogger("zkconsumer.member")


class ConsumerGroupMetadata(NamedTuple):
    """The member in its group, as ``org.apache.kafka.clients.consumer.ConsumerGroupMetadata``; −1 and "" in none."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


class KafkaConsumer(Generic[K, V]):
    """A consumer of Kafka's own protocol.  ``config``: keys of Kafka's consumer, or a ``KafkaConsumerConfig``.

    ``key_deserializer``, ``value_deserializer``: instead of the settings.  ``oauth_token``: returns a token, for
    ``sasl.mechanism=OAUTHBEARER``.  Raises ``InvalidConfigException``, or ``KafkaException`` with the cause; nothing is
    left open then.
    """

    _environment: ClassVar[ConsumerEnvironment] = SYSTEM_ENVIRONMENT
    """A test replaces it in a subclass."""

    def __init__(
        self,
        config: Mapping[str, object] | KafkaConsumerConfig,
        key_deserializer: Any = None,
        value_deserializer: Any = None,
        *,
        oauth_token: Callable[[], str] | None = None,
    ) -> None:
        given = {"key.deserializer": key_deserializer, "value.deserializer": value_deserializer}
        given = {key: one for key, one in given.items() if one is not None}
        if not isinstance(config, KafkaConsumerConfig):
            config = KafkaConsumerConfig({**config, **given})
        elif given:
            config = config.with_overrides(given)
        self.config = config
        clock = self._clock = self._environment.clock
        parts = create_components(config, self._environment, oauth_token)
        self._parts = parts
        self._client = parts.client
        self._metadata = parts.metadata
        self._subscriptions = parts.subscriptions
        self._fetcher = parts.fetcher
        self._coordinator = parts.coordinator
        self._load = (
            None
            if parts.coordinator is None
            else CommittedOffsetLoad(parts.coordinator, parts.metadata, parts.subscriptions)
        )
        self._isolation_level = IsolationLevel.of_setting(config.isolation_level)
        self._metrics = ConsumerMetrics(
            parts.client_id,
            parts.fetcher.metrics,
            None if parts.coordinator is None else parts.coordinator.metrics,
            clock.now_ms(),
        )
        self._interceptors = parts.interceptors if parts.interceptors else None
        self._has_all_positions = False
        self._round_ms = clock.now_ms() - ROUND_MS
        """When the group and the positions had their last turn in ``poll``."""
        self._network_ms = self._round_ms
        """When ``poll`` has last looked at the network before it returned records."""
        self._access = ConsumerAccess(parts.fetcher.log_events, parts.subscriptions.log_events)
        self._pid = os.getpid()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- access -------------------------------------------------------------------------------------------------------

    def _group(self) -> PolledCoordinator:
        """The coordinator; ``InvalidGroupIdException``: this consumer has no group."""
        if self._coordinator is None:
            raise InvalidGroupIdException(
                "To use the group management or offset commit APIs, you must provide a valid group.id in the consumer "
                "configuration."
            )
        return self._coordinator

    def _timer(self, timeout_ms: int | None) -> Timer:
        if timeout_ms is not None:
            _check_timeout(timeout_ms)
        return Timer(self._clock, self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms)

    # --- subscription and assignment ----------------------------------------------------------------------------------

    def subscribe(
        self, topics: Collection[str] | re.Pattern[str], listener: ConsumerRebalanceListener | None = None
    ) -> None:
        """Subscribe to these topics, or to all topics whose names match a compiled pattern, instead of the former ones.

        The group assigns the partitions; ``poll`` joins it.  An empty list unsubscribes.  ``UsageError``: partitions
        are assigned by ``assign``, or a topic has no name; ``InvalidGroupIdException``: no ``group.id``.
        """
        with self._access:
            group = self._group()
            if isinstance(topics, re.Pattern):
                if not topics.pattern:
                    raise UsageError("Topic pattern to subscribe to cannot be empty")
                log.info("subscribed: Subscribed to pattern: '%s' group=%s", topics.pattern, self.config.group_id)
                self._subscriptions.subscribe_pattern(topics, listener)
                self._metadata.request_update_for_new_topics()
                group.subscribe()
                return
            if topics is None or isinstance(topics, str):
                raise UsageError(f"subscribe takes a list of topics: subscribe([{topics!r}])")
            names = list(topics)
            if not names:
                self.unsubscribe()
                return
            if not all(isinstance(name, str) and name.strip() for name in names):
                raise UsageError("Topic collection to subscribe to cannot contain null or empty topic")
            self._fetcher.clear_buffered_data_for_unassigned_topics(names)
            log.info("subscribed: Subscribed to topic(s): %s group=%s", ", ".join(names), self.config.group_id)
            if self._subscriptions.subscribe(names, listener):
                self._metadata.request_update_for_new_topics()
            group.subscribe()

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read these partitions instead of the former ones, without the group; an empty list unsubscribes.

        ``UsageError``: the consumer is subscribed, or a topic has no name.
        """
        with self._access:
            assigned = _partitions_of(partitions)
            if not assigned:
                self.unsubscribe()
                return
            if not all(tp.topic and tp.topic.strip() for tp in assigned):
                raise UsageError("Topic partitions to assign to cannot have null or empty topic")
            if self._coordinator is not None:
                # What is due now; no rebalance follows that would commit it.
                self._coordinator.commit_if_due()
            is_other = self._subscriptions.assign_from_user(assigned)
            self._fetcher.clear_buffered_data_for_unassigned_partitions(assigned)
            log.info("subscribed: Subscribed to partition(s): %s", ", ".join(map(str, assigned)))
            if is_other:
                self._metadata.request_update_for_new_topics()

    def unsubscribe(self) -> None:
        """Leave the group, and read nothing.  Automatic commits are made, and the listener is called, before.

        Raises the exception of the listener, after that.
        """
        with self._access:
            self._fetcher.clear_buffered_data_for_unassigned_partitions(())
            try:
                if self._coordinator is not None and self._subscriptions.has_auto_assigned_partitions:
                    self._coordinator.unsubscribe(self._timer(None))
            finally:
                self._subscriptions.unsubscribe()
            log.info("unsubscribed: Unsubscribed all topics or patterns and assigned partitions")

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now, assigned by the group or by ``assign``."""
        with self._access:
            return frozenset(self._subscriptions.assigned_partitions())

    def subscription(self) -> frozenset[str]:
        """The subscribed topics; of a pattern those that match."""
        with self._access:
            return self._subscriptions.subscription()

    # --- poll ---------------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: int) -> ConsumerRecords[K, V]:
        """Records of the assigned partitions, at most ``max.poll.records``; waits up to ``timeout_ms`` for the first.

        Everything that a call returns counts as consumed in the next call.  Raises ``WakeupException`` after
        ``wakeup``; errors of the group, of authentication and of records; no error between taking records and returning
        them.  An exception of a signal handler (Ctrl-C) may end it anywhere.  Then it has returned nothing, and
        ``close`` commits what earlier calls have returned.
        """
        _check_timeout(timeout_ms)
        depth = 0
        try:
            with self._access:
                self._fetcher.moves.clear()
                depth = self._access.depth
                now_ms = self._clock.now_ms()
                self._metrics.poll.record_start(now_ms)
                # Buffered records may be returned before the group and the positions have their next turn: a program
                # with small lists calls this some thousand times in a second.
                is_between_rounds = (
                    now_ms - self._round_ms < ROUND_MS
                    and not self._client.is_wakeup_requested
                    and (self._coordinator is None or self._coordinator.note_call(now_ms))
                )
                if is_between_rounds and (more := self._fetcher.more_records()) is not None:
                    if now_ms != self._network_ms or self._client.unsent.by_node:
                        self._use_network(now_ms)
                    return self._returned(more)
                if is_between_rounds and (records := self._fetcher.fetched_records()):
                    self._use_network(now_ms)
                    return self._returned(records)
                if self._subscriptions.has_no_subscription_or_user_assignment:
                    raise UsageError("Consumer is not subscribed to any topics or assigned any partitions")
                if self._coordinator is not None and self._coordinator.is_in_callback:
                    raise UsageError("poll() cannot be called inside of the rebalance listener, which is a part of it")
                try:
                    return self._poll(Timer(self._clock, timeout_ms))
                finally:
                    self._metrics.poll.record_end(self._clock.now_ms())
        except BaseException:
            if depth:  # an exception of a signal handler may come anywhere
                self._fetcher.take_back()
                self._access.end_interrupted_exit(depth)
            raise

    def _poll(self, timer: Timer) -> ConsumerRecords[K, V]:
        while True:
            self._round_ms = timer.now_ms
            self._client.maybe_trigger_wakeup()
            if self._coordinator is not None:
                self._coordinator.poll()
            self._update_fetch_positions()  # the wait below is for all partitions
            records = self._poll_for_fetches(timer)
            timer.update()
            if records:
                self._use_network(timer.now_ms)
                return self._returned(records)
            if timer.is_expired:
                return EMPTY

    def _use_network(self, now_ms: int) -> None:
        """Send the next requests before records are returned.

        Their positions have moved: no error and no wake-up may be raised.
        """
        self._network_ms = now_ms
        try:  # noqa: SIM105 (three calls less)
            self._fetcher.send_fetches()
        except ZkConsumerError:
            pass  # the next call meets the same error
        self._client.transmit_sends(now_ms)

    def _returned(self, records: dict[TopicPartition, FetchedRecords[Any, Any]]) -> ConsumerRecords[K, V]:
        found: ConsumerRecords[K, V] = ConsumerRecords(records)
        return found if self._interceptors is None else self._interceptors.on_consume(found)

    def _update_fetch_positions(self, timer: Timer | None = None) -> None:
        """Give each partition a valid position, as far as possible; waits for committed offsets until ``timer``, and
        not at all without one."""
        self._fetcher.validate_offsets_if_needed()
        self._has_all_positions = self._subscriptions.has_all_fetch_positions()
        if self._has_all_positions:
            return
        if self._load is None:
            self._subscriptions.reset_initializing_positions()
        elif not self._load.refresh(timer or Timer(self._clock, 0)):
            return
        self._fetcher.reset_offsets_if_needed()

    def _poll_for_fetches(self, timer: Timer) -> dict[TopicPartition, FetchedRecords[Any, Any]]:
        group = self._coordinator
        if group is not None and group.has_commands:
            return {}
        records = self._fetcher.fetched_records()
        if records:
            return records
        self._fetcher.send_fetches()
        wait_ms = timer.remaining_ms
        if group is not None:
            wait_ms = min(wait_ms, group.time_to_next_poll_ms())
        if not self._has_all_positions:
            # A look-up may be waiting for its back-off.
            wait_ms = min(wait_ms, self.config.retry_backoff_ms)
        self._client.poll(Timer(self._clock, wait_ms), _UntilRecords(self._fetcher, group))
        self._fetcher.handle_responses()
        if group is not None and group.has_commands:
            # The group may have lost partitions: the next round handles that before it returns records.
            return {}
        return self._fetcher.fetched_records()

    def wakeup(self) -> None:
        """Let the blocked call of another thread, or else the next one, raise ``WakeupException``."""
        self._client.wakeup()

    # --- positions ----------------------------------------------------------------------------------------------------

    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """The offset of the next record of an assigned partition.  ``TimeoutException``: it was not found in time."""
        with self._access:
            if not self._subscriptions.is_assigned(partition):
                raise UsageError("You can only check the position for partitions assigned to this consumer.")
            timer = self._timer(timeout_ms)
            while True:
                found = self._subscriptions.valid_position(partition)
                if found is not None:
                    return found.offset
                self._update_fetch_positions(timer)
                step = Timer(self._clock, min(timer.remaining_ms, self.config.retry_backoff_ms))
                self._client.poll(step)
                self._fetcher.handle_responses()
                timer.update()
                if timer.is_expired and self._subscriptions.valid_position(partition) is None:
                    raise TimeoutException(
                        f"Timeout of {timer.timeout_ms}ms expired before the position for partition {partition} could "
                        "be determined"
                    )

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Read an assigned partition from this offset.  ``UsageError``: it is not assigned, or the offset negative."""
        with self._access:
            wanted = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
            _check_types(partition, wanted)
            if wanted.offset < 0:
                raise UsageError("seek offset must not be a negative number")
            if wanted.offset > OFFSET_MAX:
                raise UsageError(f"{wanted.offset} is not an offset: the largest one is {OFFSET_MAX}")
            log.info("seeking: Seeking to offset %d for partition %s", wanted.offset, partition)
            self._note_epoch(partition, wanted)
            epoch = wanted.leader_epoch if wanted.leader_epoch >= 0 else None
            position = FetchPosition(wanted.offset, epoch, self._metadata.current_leader(partition))
            self._subscriptions.seek_unvalidated(partition, position)

    def seek_to_beginning(self, partitions: Collection[TopicPartition] = ()) -> None:
        """Read these, or all assigned partitions, from their first record; it is looked up by ``poll``."""
        self._seek_to(partitions, OffsetResetStrategy.EARLIEST)

    def seek_to_end(self, partitions: Collection[TopicPartition] = ()) -> None:
        """Read these, or all assigned partitions, from their end; it is looked up by ``poll``."""
        self._seek_to(partitions, OffsetResetStrategy.LATEST)

    def _seek_to(self, partitions: Collection[TopicPartition], strategy: OffsetResetStrategy) -> None:
        with self._access:
            wanted = _partitions_of(partitions) or self._subscriptions.assigned_partitions_list()
            self._subscriptions.request_offset_resets(wanted, strategy)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Return no records of these until ``resume``; what is buffered is kept.  No rebalance happens."""
        with self._access:
            for tp in _partitions_of(partitions):
                self._subscriptions.pause(tp)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Return records of these again."""
        with self._access:
            for tp in _partitions_of(partitions):
                self._subscriptions.resume(tp)

    def paused(self) -> frozenset[TopicPartition]:
        """The paused partitions."""
        with self._access:
            return frozenset(self._subscriptions.paused_partitions())

    # --- offsets ------------------------------------------------------------------------------------------------------

    def commit_sync(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, timeout_ms: int | None = None
    ) -> None:
        """Commit these offsets, or those of all records that were returned, and wait for the coordinator.

        ``CommitFailedException``: the group went on without this member; ``RebalanceInProgressException``: call
        ``poll``, and commit what is still assigned; ``TimeoutException``: whether they were committed is unknown.
        """
        with self._access:
            group = self._group()
            group.commit_offsets_sync(self._offsets_to_commit(offsets), self._timer(timeout_ms))

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        callback: OffsetCommitCallback | None = None,
    ) -> None:
        """Commit without waiting and without retries; a later call of this consumer calls ``callback(offsets, error)``.

        Commits are sent in their order, one after the other, so a later one never loses against an earlier one.
        """
        with self._access:
            group = self._group()
            group.commit_offsets_async(self._offsets_to_commit(offsets), callback)

    def _offsets_to_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        wanted = self._subscriptions.all_consumed() if offsets is None else _offsets_of(offsets)
        for tp, offset in wanted.items():
            self._note_epoch(tp, offset)
        return wanted

    def committed(
        self, partitions: Collection[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The committed offsets of the group; None for a partition without one.  ``TimeoutException``."""
        with self._access:
            group = self._group()
            timer = self._timer(timeout_ms)
            call = group.ask_committed_offsets(_partitions_of(partitions))
            if not group.wait_for_committed_offsets(call, timer):
                raise TimeoutException(
                    f"Timeout of {timer.timeout_ms}ms expired before the last committed offset for partitions "
                    f"{sorted(map(str, call.partitions))} could be determined. Try tuning default.api.timeout.ms "
                    "larger to relax the threshold."
                )
            if call.error is not None:
                raise call.error
            found = {tp: None if one is None else to_offset_and_metadata(one) for tp, one in call.offsets.items()}
            for tp, offset in found.items():
                if offset is not None:
                    self._note_epoch(tp, offset)
            return found

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record whose timestamp (ms since 1970) is at or after the given one; None: there is none."""
        with self._access:
            _partitions_of(timestamps)
            for tp, timestamp in timestamps.items():
                if not isinstance(timestamp, SupportsIndex):
                    raise UsageError(f"the time of {tp} is {timestamp!r}: pass a number of milliseconds since 1970")
                if timestamp < 0:
                    raise UsageError(
                        f"The target time for partition {tp} is {timestamp}. The target time cannot be negative."
                    )
            return self._fetcher.offsets_for_times(timestamps, self._timer(timeout_ms))

    def beginning_offsets(
        self, partitions: Collection[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition, assigned or not."""
        with self._access:
            return self._fetcher.beginning_offsets(_partitions_of(partitions), self._timer(timeout_ms))

    def end_offsets(
        self, partitions: Collection[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The high watermark of each, or with ``isolation.level=read_committed`` its last stable offset."""
        with self._access:
            return self._fetcher.end_offsets(_partitions_of(partitions), self._timer(timeout_ms))

    def current_lag(self, partition: TopicPartition) -> int | None:
        """How many offsets there are between the position and the end, as the last fetch showed it; None: not known
        yet.  Never waits (3.0, KIP-695)."""
        with self._access:
            lag = self._subscriptions.partition_lag(partition, self._isolation_level)
            is_unknown = self._subscriptions.partition_end_offset(partition, self._isolation_level) is None
            if lag is None and is_unknown and not self._subscriptions.partition_end_offset_requested(partition):
                log.info(
                    "end-offset-requested: Requesting the log end offset for %s in order to compute lag", partition
                )
                self._subscriptions.request_partition_end_offset(partition)
                with contextlib.suppress(TimeoutException):
                    self._fetcher.end_offsets([partition], Timer(self._clock, 0))
            return lag

    def _note_epoch(self, tp: TopicPartition, offset: OffsetAndMetadata) -> None:
        if offset.leader_epoch >= 0:
            self._metadata.update_last_seen_epoch_if_newer(tp, offset.leader_epoch)

    # --- topics -------------------------------------------------------------------------------------------------------

    def partitions_for(self, topic: str, timeout_ms: int | None = None) -> tuple[PartitionInfo, ...]:
        """The partitions of a topic, subscribed or not; none if it does not exist."""
        with self._access:
            found = self._metadata.fetch().partitions_for_topic(topic)
            if found:
                return found
            if not topic:
                raise InvalidTopicException("a topic has a name")
            request = MetadataRequestBuilder((topic,), self._metadata.allow_auto_topic_creation)
            return self._fetcher.get_topic_metadata(request, self._timer(timeout_ms)).get(topic, ())

    def list_topics(self, timeout_ms: int | None = None) -> dict[str, tuple[PartitionInfo, ...]]:
        """All topics that this user may see."""
        with self._access:
            return self._fetcher.get_all_topic_metadata(self._timer(timeout_ms))

    # --- the group ----------------------------------------------------------------------------------------------------

    def group_metadata(self) -> ConsumerGroupMetadata:
        """The identity of this member, for a producer's transaction (2.5, KIP-447)."""
        with self._access:
            generation = self._group().generation
            assert self.config.group_id is not None, "a group has an id"
            return ConsumerGroupMetadata(
                self.config.group_id, generation.generation_id, generation.member_id, self.config.group_instance_id
            )

    def enforce_rebalance(self, reason: str = "") -> None:
        """Rebalance the group in the next ``poll`` (2.6, KIP-568).  ``UsageError``: the group assigns nothing here."""
        with self._access:
            if not self._subscriptions.has_auto_assigned_partitions:
                raise UsageError("Tried to force a rebalance but consumer does not have a group.")
            self._group().enforce_rebalance(reason or "rebalance enforced by user")

    def metrics(self) -> dict[MetricName, float]:
        """All metrics under Java's names; empty after ``close``.  From any thread."""
        if self._access.is_closed:
            return {}
        return self._metrics.values(self._clock.now_ms(), self._subscriptions.num_assigned_partitions())

    # --- close --------------------------------------------------------------------------------------------------------

    def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Commit if that is automatic, call the listener, leave the group, and close everything; a second call does
        nothing.  Waits for the group at most ``timeout_ms``.  Raises the first error, after everything is closed."""
        if self._access.is_closed:
            return
        _check_timeout(timeout_ms)
        with self._access:
            if self._access.depth > 1:
                raise UsageError("close() cannot be called inside of a callback of this consumer")
            is_forked = self._pid != os.getpid()  # a child does not leave the group
            self._client.disable_wakeups()
            try:
                if self._coordinator is not None and not is_forked:
                    self._coordinator.close(Timer(self._clock, min(timeout_ms, self.config.request_timeout_ms)))
            except Exception as error:
                log.error("close-failed: Failed to close coordinator reason=%r", str(error))
                raise
            finally:
                self._access.is_closed = True
                self._close_parts(is_forked=is_forked)

    def _close_parts(self, *, is_forked: bool) -> None:
        self._fetcher.close()
        self._parts.interceptors.close()
        self._metadata.close()
        self._client.close(is_forked=is_forked)
        close_deserializers(self._parts.deserializers)
        log.debug("consumer-closed: Kafka consumer has been closed client=%s", self._parts.client_id)


class _UntilRecords:
    """``PollCondition``: a poll of the network waits until records are there, or the group needs this thread."""

    def __init__(self, fetcher: Any, group: PolledCoordinator | None) -> None:
        self._fetcher = fetcher
        self._group = group

    def should_block(self) -> bool:
        return not (self._fetcher.has_available_fetches or (self._group is not None and self._group.has_commands))


def _check_timeout(timeout_ms: int) -> None:
    if not isinstance(timeout_ms, int) or timeout_ms < 0:
        raise UsageError(f"a timeout is a number of milliseconds, an integer that is not negative: {timeout_ms!r}")


def _partitions_of(partitions: Collection[TopicPartition]) -> list[TopicPartition]:
    """The partitions of an argument; ``UsageError``: it is not a collection of ``TopicPartition``."""
    if partitions is None or isinstance(partitions, TopicPartition):
        raise UsageError(f"this takes a list of partitions: [{partitions!r}]")
    found = list(partitions)
    for tp in found:
        if not isinstance(tp, TopicPartition):
            raise UsageError(f"{tp!r} is not a TopicPartition")
        if not isinstance(tp.topic, str) or not isinstance(tp.partition, SupportsIndex):
            raise UsageError(f"{tp!r} is not a partition: pass TopicPartition(topic, number)")
    return found


def _offsets_of(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offsets of an argument; ``UsageError``: they are not of this type."""
    _partitions_of(offsets)
    for tp, offset in offsets.items():
        if not isinstance(offset, OffsetAndMetadata):
            raise UsageError(f"the offset of {tp} is {offset!r}: pass an OffsetAndMetadata")
        _check_types(tp, offset)
    return dict(offsets)


def _check_types(tp: TopicPartition, offset: OffsetAndMetadata) -> None:
    """``UsageError``: a value has another type than it must have; the group's machine could not handle it."""
    numbers = offset.offset, offset.leader_epoch
    if not all(isinstance(one, SupportsIndex) for one in numbers) or not isinstance(offset.metadata, str | None):
        raise UsageError(f"{tp}: {offset!r} is not an offset: pass numbers, and the metadata as text")
