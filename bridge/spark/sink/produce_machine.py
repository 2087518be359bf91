"""Decides which record sets are sent to which broker, and what follows from each answer.  Pure.

    add(rows)  --> queue of the partition --next_command--> SendProduce      --on_response, on_lost--> done, or again
                                                            AwaitResponse    --on_no_response
    need_topic --> topic                  --next_command--> RequestMetadata  --on_metadata, on_metadata_failed
                                                            Pause

Theory of operation.  Each partition has a queue of rows; only its head is sent, in a request with the heads of other
partitions of the same leader.  A broker has at most one request in flight.  So the rows of a partition stay in order,
also when they are sent again.

    a partition   waiting --SendProduce--> in flight --no error--> the head is removed
                     ^                         |
                     '--- retry_at_ms <--------'  retriable error, lost connection, no answer
                                               '--> an error that stays: ``RecordsNotWritten``

A lost answer does not show whether the broker wrote the records, so they are sent again: at least once.  A task ends
with success only when ``next_command`` returns None, that is when each record set was acknowledged.

Whether a time-out has passed is decided only after an attempt has failed.  The caller may spend any time elsewhere
between two calls, and an answer that arrived meanwhile is read first.

A record set that is too large for the broker is divided, down to one row.

Differences from Java's producer: ``delivery.timeout.ms`` counts from the first attempt of a record set, and not from
when it was added, since a task adds rows as fast as Spark makes them, and is slowed down by its buffer.  One request in
flight for each broker instead of five: without idempotence more would change the order after an error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from bridge.spark.sink.delivery_errors import TOO_LARGE, RecordsNotWritten, delivery_advice, too_large_advice
from bridge.spark.sink.topic_partitions import PartitionCounts, TopicLeaders
from zkconsumer.errors import TimeoutException, UsageError
from zkconsumer.kafka.error_codes import NONE, UNKNOWN_TOPIC_OR_PARTITION, ErrorCode
from zkconsumer.types import BrokerAddress, TopicPartition

RETRY_BACKOFF_MS = 100
RETRY_BACKOFF_MAX_MS = 1_000
"""``retry.backoff.ms`` and ``retry.backoff.max.ms`` of Java's producer (KIP-580): doubled with each attempt."""

AWAIT_MS_MAX = 50
"""How long one broker is waited for while others have a request in flight, too."""


class RecordSetRows(Protocol):
    """The rows of one record set: ``row_partitioning.PartitionRows``."""

    @property
    def tp(self) -> TopicPartition: ...

    @property
    def data_bytes(self) -> int: ...

    def __len__(self) -> int: ...

    def halves(self) -> Sequence[RecordSetRows]: ...


@dataclass(frozen=True, slots=True)
class ProduceLimits:
    """``request_bytes``: of one request, unless a single record set is larger.  Times in ms."""

    request_bytes: int
    request_timeout_ms: int
    delivery_timeout_ms: int
    max_block_ms: int


class ProduceResult(NamedTuple):
    """The answer for one partition.  ``message``: the broker's own text about the error, if any."""

    code: ErrorCode
    base_offset: int = -1
    message: str = ""


class WrittenRange(NamedTuple):
    """The first offset of a task's records in a partition, and the one after the last; others may lie between them."""

    first: int
    end: int
    records: int


@dataclass(frozen=True, slots=True)
class SendProduce:
    """Send these record sets to the broker, one for each partition."""

    broker: BrokerAddress
    rows: tuple[RecordSetRows, ...]


@dataclass(frozen=True, slots=True)
class AwaitResponse:
    """Wait so long for the answer of the broker; then call ``on_response`` or ``on_no_response``."""

    broker: BrokerAddress
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class RequestMetadata:
    """Ask any broker for the partitions of the topic and their leaders."""

    topic: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing can be done for so long."""

    timeout_ms: int


ProduceCommand: TypeAlias = SendProduce | AwaitResponse | RequestMetadata | Pause


@dataclass(slots=True, eq=False)
class _PartitionQueue:
    """The rows of one partition.

    ``first_attempt_ms``: when the head was first sent, or its first attempt failed before that; None before it.
    ``is_in_flight``: the head is in the request of ``_requests[leader]``, and then ``leader`` is not None.
    ``attempts``: failed ones of the head.
    """

    tp: TopicPartition
    rows: deque[RecordSetRows] = field(default_factory=deque)
    leader: BrokerAddress | None = None
    first_attempt_ms: int | None = None
    retry_at_ms: int = 0
    attempts: int = 0
    is_in_flight: bool = False


@dataclass(slots=True, eq=False)
class _WantedTopic:
    """``partitions``: None until a broker answered; ``leaders``: as in the last answer.  ``is_stale``: the leaders must
    be requested, not before ``retry_at_ms``; ``attempts``: how often that failed since the last success."""

    wanted_since_ms: int
    partitions: PartitionCounts | None = None
    leaders: dict[int, BrokerAddress] = field(default_factory=dict)
    is_stale: bool = True
    retry_at_ms: int = 0
    attempts: int = 0


@dataclass(slots=True, eq=False)
class _RequestInFlight:
    queues: list[_PartitionQueue]
    deadline_ms: int


class ProduceMachine:
    """One task's record sets.

    ``pending_bytes``: the sum of ``data_bytes`` of all rows in the queues, in flight ones too.  ``written``: what was
    acknowledged.  ``_requests``: broker -> the request in flight; each of its queues has ``is_in_flight``.
    ``_muted_until_ms``: broker -> when its quota allows the next request (KIP-219).

    ``next_command`` and the ``on_…`` methods raise ``RecordsNotWritten`` for an error that stays, ``TimeoutException``
    when the attempts lasted too long, and ``UsageError`` for a topic that does not exist.
    """

    def __init__(self, limits: ProduceLimits) -> None:
        self.pending_bytes = 0
        self.written: dict[TopicPartition, WrittenRange] = {}
        self._limits = limits
        self._topics: dict[str, _WantedTopic] = {}
        self._queues: dict[TopicPartition, _PartitionQueue] = {}
        self._requests: dict[BrokerAddress, _RequestInFlight] = {}
        self._muted_until_ms: dict[BrokerAddress, int] = {}

    # --- what is to be done -------------------------------------------------------------------------------------

    def need_topic(self, topic: str, now_ms: int) -> None:
        """The partitions of the topic must become known, before rows for it are added."""
        self._topics.setdefault(topic, _WantedTopic(now_ms))

    def partitions_of(self, topic: str) -> PartitionCounts | None:
        """The partitions of a needed topic; None while they are not known."""
        return self._topics[topic].partitions

    def add(self, rows: RecordSetRows) -> None:
        """Write these rows after those of the same partition that were added before."""
        assert self.partitions_of(rows.tp.topic) is not None, "the partition was chosen among them"
        assert len(rows) > 0, "a record set has records"
        queue = self._queues.get(rows.tp)
        if queue is None:
            topic = self._topics[rows.tp.topic]
            queue = self._queues[rows.tp] = _PartitionQueue(rows.tp, leader=topic.leaders.get(rows.tp.partition))
            topic.is_stale = topic.is_stale or queue.leader is None
        queue.rows.append(rows)
        self.pending_bytes += rows.data_bytes

    def next_command(self, now_ms: int) -> ProduceCommand | None:
        """What to do now; None: all is written."""
        for name, topic in self._topics.items():
            if topic.is_stale and now_ms >= topic.retry_at_ms and self._needs_metadata(name, topic):
                return RequestMetadata(name)
        send = self._next_send(now_ms)
        if send is not None:
            return send
        wake_at_ms = self._next_wake_ms()
        if self._requests:
            return self._await(now_ms, wake_at_ms)
        if wake_at_ms is not None:
            return Pause(max(1, wake_at_ms - now_ms))
        assert not self.pending_bytes, "rows that wait have a leader, or a time to ask for it"
        return None

    def _needs_metadata(self, name: str, topic: _WantedTopic) -> bool:
        return topic.partitions is None or any(
            queue.rows and queue.leader is None and not queue.is_in_flight for queue in self._queues_of(name)
        )

    def _queues_of(self, topic: str) -> list[_PartitionQueue]:
        return [queue for queue in self._queues.values() if queue.tp.topic == topic]

    def _next_send(self, now_ms: int) -> SendProduce | None:
        """A request with the heads of all partitions of one leader that has none in flight."""
        chosen: list[_PartitionQueue] = []
        broker: BrokerAddress | None = None
        request_bytes = 0
        for queue in self._queues.values():
            if not queue.rows or queue.is_in_flight or queue.leader is None or now_ms < queue.retry_at_ms:
                continue
            if queue.leader in self._requests or now_ms < self._muted_until_ms.get(queue.leader, 0):
                continue
            if broker is not None and queue.leader != broker:
                continue
            head_bytes = queue.rows[0].data_bytes
            if chosen and request_bytes + head_bytes > self._limits.request_bytes:
                continue
            broker, request_bytes = queue.leader, request_bytes + head_bytes
            chosen.append(queue)
        if broker is None:
            return None
        for queue in chosen:
            queue.is_in_flight = True
            if queue.first_attempt_ms is None:
                queue.first_attempt_ms = now_ms
            # The next request begins with other partitions.
            self._queues[queue.tp] = self._queues.pop(queue.tp)
        self._requests[broker] = _RequestInFlight(chosen, now_ms + self._limits.request_timeout_ms)
        return SendProduce(broker, tuple(queue.rows[0] for queue in chosen))

    def _await(self, now_ms: int, wake_at_ms: int | None) -> AwaitResponse:
        """The request in flight that was waited for least recently."""
        broker = next(iter(self._requests))
        request = self._requests.pop(broker)
        self._requests[broker] = request
        timeout_ms = request.deadline_ms - now_ms
        if len(self._requests) > 1:
            timeout_ms = min(timeout_ms, AWAIT_MS_MAX)
        if wake_at_ms is not None:
            timeout_ms = min(timeout_ms, wake_at_ms - now_ms)
        return AwaitResponse(broker, max(0, timeout_ms))

    def _next_wake_ms(self) -> int | None:
        """When the next attempt is due, that is not due yet."""
        times = [topic.retry_at_ms for name, topic in self._topics.items() if self._waits_for_metadata(name, topic)]
        for queue in self._queues.values():
            is_waiting = queue.rows and not queue.is_in_flight
            if is_waiting and queue.leader is not None and queue.leader not in self._requests:
                times.append(max(queue.retry_at_ms, self._muted_until_ms.get(queue.leader, 0)))
        return min(times, default=None)

    def _waits_for_metadata(self, name: str, topic: _WantedTopic) -> bool:
        return topic.is_stale and self._needs_metadata(name, topic)

    # --- what happened ------------------------------------------------------------------------------------------

    def on_metadata(self, topic: str, found: TopicLeaders, now_ms: int) -> None:
        """A broker answered ``RequestMetadata``."""
        wanted = self._topics[topic]
        if found.error is not None and found.is_final:
            raise RecordsNotWritten(f"topic {topic}: {found.error}. {delivery_advice(found.error)}")
        wanted.leaders = {number: at for number, at in found.leaders.items() if isinstance(at, BrokerAddress)}
        if found.leaders:
            wanted.partitions = PartitionCounts(max(found.leaders) + 1, tuple(sorted(wanted.leaders)))
        elif wanted.partitions is None:
            self._check_blocked(topic, wanted, found.error, now_ms)
        wanted.is_stale = not found.leaders
        for queue in self._queues_of(topic):
            if queue.is_in_flight:
                continue
            queue.leader = wanted.leaders.get(queue.tp.partition)
            if queue.rows and queue.leader is None:
                error = found.leaders.get(queue.tp.partition, UNKNOWN_TOPIC_OR_PARTITION)
                assert isinstance(error, ErrorCode), "a partition has a leader or an error"
                self._retry(queue, f"{error}. {delivery_advice(error)}", now_ms)
                wanted.is_stale = True
        if wanted.is_stale:
            self._delay_metadata(wanted, now_ms)
        else:
            wanted.attempts = 0

    def on_metadata_failed(self, topic: str, why: str, now_ms: int) -> None:
        """No broker answered ``RequestMetadata``."""
        wanted = self._topics[topic]
        if wanted.partitions is None and now_ms - wanted.wanted_since_ms >= self._limits.max_block_ms:
            raise TimeoutException(
                f"topic {topic}: no broker answered for {self._limits.max_block_ms} ms (kafka.max.block.ms): {why}. "
                "Start the brokers, or correct kafka.bootstrap.servers"
            )
        self._delay_metadata(wanted, now_ms)
        for queue in self._queues_of(topic):
            if queue.rows and queue.leader is None:
                self._retry(queue, why, now_ms)

    def on_response(
        self,
        broker: BrokerAddress,
        results: Mapping[TopicPartition, ProduceResult],
        now_ms: int,
        throttle_time_ms: int = 0,
    ) -> None:
        """The broker answered its request.  A partition without a result counts as not written."""
        request = self._requests.pop(broker)
        if throttle_time_ms > 0:
            self._muted_until_ms[broker] = now_ms + min(throttle_time_ms, self._limits.request_timeout_ms)
        for queue in request.queues:
            queue.is_in_flight = False
            result = results.get(queue.tp)
            if result is None:
                self._failed(queue, f"{broker} sent no result for this partition", now_ms)
            elif result.code == NONE:
                self._done(queue, result.base_offset)
            else:
                self._on_error(queue, broker, result, now_ms)

    def on_lost(self, broker: BrokerAddress, why: str, now_ms: int) -> None:
        """The request to the broker could not be sent, or its answer is lost: the connection is closed."""
        request = self._requests.pop(broker)
        for queue in request.queues:
            queue.is_in_flight = False
            self._failed(queue, why, now_ms)

    def on_no_response(self, broker: BrokerAddress, now_ms: int) -> bool:
        """The answer has not arrived yet.  True: it is too late, and the connection must be closed."""
        if now_ms < self._requests[broker].deadline_ms:
            return False
        limit_ms = self._limits.request_timeout_ms
        self.on_lost(broker, f"{broker} did not answer for {limit_ms} ms (kafka.request.timeout.ms)", now_ms)
        return True

    def _on_error(self, queue: _PartitionQueue, broker: BrokerAddress, result: ProduceResult, now_ms: int) -> None:
        head, code = queue.rows[0], result.code
        said = f"{code} from {broker}{f' ({result.message})' if result.message else ''}"
        if code in TOO_LARGE:
            if len(head) == 1:
                raise RecordsNotWritten(f"{queue.tp}: {said}. {too_large_advice(head.data_bytes)}")
            queue.rows.popleft()
            halves = head.halves()
            queue.rows.extendleft(reversed(halves))
            self.pending_bytes += sum(half.data_bytes for half in halves) - head.data_bytes
        elif code.is_retriable:
            self._failed(queue, f"{said}. {delivery_advice(code)}", now_ms, keeps_leader=not code.is_stale_metadata)
        else:
            raise RecordsNotWritten(f"{queue.tp}: {said}. {delivery_advice(code)}")

    def _done(self, queue: _PartitionQueue, base_offset: int) -> None:
        rows = queue.rows.popleft()
        self.pending_bytes -= rows.data_bytes
        queue.first_attempt_ms, queue.attempts = None, 0
        before = self.written.get(queue.tp)
        end = base_offset + len(rows)
        if before is None:
            self.written[queue.tp] = WrittenRange(base_offset, end, len(rows))
        else:
            self.written[queue.tp] = WrittenRange(
                min(before.first, base_offset), max(before.end, end), before.records + len(rows)
            )

    def _failed(self, queue: _PartitionQueue, why: str, now_ms: int, *, keeps_leader: bool = False) -> None:
        """An attempt to send the head failed; the next one asks for the leader, unless the broker is certainly it."""
        self._retry(queue, why, now_ms)
        if not keeps_leader:
            queue.leader = None
            topic = self._topics[queue.tp.topic]
            if not topic.is_stale:
                topic.is_stale = True
                topic.retry_at_ms = max(topic.retry_at_ms, queue.retry_at_ms)

    def _retry(self, queue: _PartitionQueue, why: str, now_ms: int) -> None:
        if queue.first_attempt_ms is None:
            queue.first_attempt_ms = now_ms
        waited_ms = now_ms - queue.first_attempt_ms
        if waited_ms >= self._limits.delivery_timeout_ms:
            raise TimeoutException(
                f"{queue.tp}: records were not acknowledged for {waited_ms} ms (kafka.delivery.timeout.ms is "
                f"{self._limits.delivery_timeout_ms}); the last error: {why}"
            )
        queue.retry_at_ms = now_ms + _backoff_ms(queue.attempts)
        queue.attempts += 1

    def _delay_metadata(self, topic: _WantedTopic, now_ms: int) -> None:
        topic.is_stale = True
        topic.retry_at_ms = now_ms + _backoff_ms(topic.attempts)
        topic.attempts += 1

    def _check_blocked(self, name: str, topic: _WantedTopic, error: ErrorCode | None, now_ms: int) -> None:
        """Whether the partitions of the topic were waited for too long."""
        if now_ms - topic.wanted_since_ms >= self._limits.max_block_ms:
            raise UsageError(
                f"topic {name} does not exist, {self._limits.max_block_ms} ms (kafka.max.block.ms) after the first "
                f"request: {error or UNKNOWN_TOPIC_OR_PARTITION}. {delivery_advice(UNKNOWN_TOPIC_OR_PARTITION)}"
            )


def _backoff_ms(attempts: int) -> int:
    return int(min(RETRY_BACKOFF_MS << min(attempts, 10), RETRY_BACKOFF_MAX_MS))
