"""Runs in a Spark executor: writes the rows of one task to topics, and returns when all are acknowledged.

    record batches --SinkRows--> rows of partitions --ProduceMachine--> commands --TopicWriter--> brokers
                                                          <------------- answers <---------------'

The machine decides, this module does the I/O: one thread, blocking connections of the executor's pool, every wait with
a limit.  Rows are encoded when they are sent, for the record format of that broker.

Memory: ``BUFFER_BYTES_MAX`` of rows that are not acknowledged, one Arrow batch, and one encoded request for each
broker.  While the buffer has room, the task takes the next rows from Spark instead of waiting for an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import TaskContext

from bridge.spark.decode.cluster_connections import (
    CONNECTION_POOL,
    ClusterAddress,
    ClusterConnectionPool,
    ClusterConnections,
)
from bridge.spark.decode.gc_freeze import gc_freeze_worker
from bridge.spark.sink.produce_machine import (
    AwaitResponse,
    Pause,
    ProduceCommand,
    ProduceLimits,
    ProduceMachine,
    ProduceResult,
    RecordSetRows,
    RequestMetadata,
    SendProduce,
    WrittenRange,
)
from bridge.spark.sink.row_partitioning import PartitionRows, RecordHeaders, SinkRows, StickyPartitions
from bridge.spark.sink.topic_partitions import PartitionCounts, TopicLeaders
from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.base.threads import StopSignal
from zkconsumer.errors import BrokerUnreachable, RemoteProtocolError, UsageError
from zkconsumer.kafka.broker_connection import Connection, PendingRequest
from zkconsumer.kafka.error_codes import BrokerError, error_code
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.wire import compression
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.schemas import PRODUCE
from zkconsumer.wire.schemas.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)

BUFFER_BYTES_MAX = 32 * 1024 * 1024
"""The default of ``buffer.memory`` in Java's producer."""

QUERY_HEADER = "zkconsumer.query"
BATCH_HEADER = "zkconsumer.batch"

QUERY_ID_PROPERTY = "sql.streaming.queryId"
BATCH_ID_PROPERTY = "streaming.sql.batchId"
"""The local properties in which Spark's micro-batch execution has the ids (``StreamExecution.QUERY_ID_KEY``,
``MicroBatchExecution.BATCH_ID_KEY``); its tasks get them, also those of a ``foreachBatch`` function."""

MAGIC_1_FROM = 2
MAGIC_2_FROM = 3
"""The Produce versions from which the record format is 1 (0.10) and 2 (0.11)."""

ZSTD_FROM = 7
"""The Produce version from which a broker accepts zstd (2.1, KIP-110)."""

_LOST = (BrokerUnreachable, RemoteProtocolError, BrokerError)


@dataclass(frozen=True, slots=True)
class SinkTask:
    """Everything that an executor needs to write.  Pickled; shows no secret.

    ``query``, ``batch``: headers; None: the ids that Spark gives to the task, if it has them.  ``record_bytes_max``: of
    one record; None: as of a request.
    """

    address: ClusterAddress
    topic: str | None
    acks: int
    codec: int
    batch_bytes: int
    limits: ProduceLimits
    query: str | None = None
    batch: str | None = None
    record_bytes_max: int | None = None


def write_rows(
    task: SinkTask, batches: Iterable[pa.RecordBatch], pool: ClusterConnectionPool = CONNECTION_POOL
) -> dict[TopicPartition, WrittenRange]:
    """Write the rows of one task; returns what was acknowledged, when that is all.

    Raises ``UsageError`` for rows that cannot be written, ``RecordsNotWritten``, ``TimeoutException``,
    ``AuthenticationException``, and ``InvalidConfigException`` for certificates that cannot be read on this machine.
    """
    gc_freeze_worker()
    context = TaskContext.get()
    sticky = StickyPartitions(0 if context is None else context.partitionId())
    with pool.borrow(task.address) as cluster, pool.borrow(task.address) as for_metadata:
        writer = TopicWriter(cluster, for_metadata, task, sticky, headers=_task_headers(task, context))
        for batch in batches:
            writer.write(batch)
        writer.flush()
        return writer.written


def _task_headers(task: SinkTask, context: TaskContext | None) -> RecordHeaders:
    def of(given: str | None, local_property: str) -> str | None:
        return given if given is not None or context is None else context.getLocalProperty(local_property)

    named = ((QUERY_HEADER, of(task.query, QUERY_ID_PROPERTY)), (BATCH_HEADER, of(task.batch, BATCH_ID_PROPERTY)))
    return tuple((name, value.encode()) for name, value in named if value is not None)


@dataclass(eq=False, repr=False)
class TopicWriter:
    """Writes Arrow batches.  One thread.

    ``for_metadata``: connections of their own, since a broker answers the requests of a connection in order, and a
    search for leaders must not wait for a Produce request.
    ``_pending``: broker -> its connection and the request that was sent; the same brokers as in the machine's requests.
    """

    cluster: ClusterConnections
    for_metadata: ClusterConnections
    task: SinkTask
    sticky: StickyPartitions
    headers: RecordHeaders = ()
    clock: Clock = SYSTEM_CLOCK
    pause: Callable[[int], object] = field(default_factory=lambda: StopSignal().wait)
    _pending: dict[BrokerAddress, tuple[Connection, PendingRequest[ProduceResponse]]] = field(
        default_factory=dict, init=False
    )

    def __post_init__(self) -> None:
        self._machine = ProduceMachine(self.task.limits)

    @property
    def written(self) -> dict[TopicPartition, WrittenRange]:
        """What was acknowledged so far."""
        return self._machine.written

    def write(self, batch: pa.RecordBatch) -> None:
        """Take the rows; returns when at most ``BUFFER_BYTES_MAX`` of rows are not acknowledged."""
        rows = SinkRows(batch, self.task.topic)
        for topic in rows.topics:
            self._machine.need_topic(topic, self.clock.now_ms())
            while self._machine.partitions_of(topic) is None:
                self._step()
        divided = rows.divide(
            self._partitions_of, self.sticky, self.task.batch_bytes,
            self.task.record_bytes_max or self.task.limits.request_bytes,
            now_ms=self.clock.wall_ms(), headers=self.headers,
        )  # fmt: skip
        for each in divided:
            self._machine.add(each)
            while self._machine.pending_bytes > BUFFER_BYTES_MAX:
                self._step()
        while self._step(may_wait=False):
            pass

    def flush(self) -> None:
        """Returns when all rows are acknowledged."""
        while self._step():
            pass

    def _partitions_of(self, topic: str) -> PartitionCounts:
        found = self._machine.partitions_of(topic)
        assert found is not None, "the topic was waited for"
        return found

    def _step(self, *, may_wait: bool = True) -> bool:
        """One command; False if there is none, or only to wait and that is not allowed."""
        command: ProduceCommand | None = self._machine.next_command(self.clock.now_ms())
        match command:
            case None:
                return False
            case SendProduce(broker, rows):
                self._send(broker, rows)
            case RequestMetadata(topic):
                self._request_metadata(topic)
            case AwaitResponse(broker, timeout_ms):
                if not may_wait:
                    return self._receive(broker, 0)
                self._receive(broker, timeout_ms)
            case Pause(timeout_ms):
                if not may_wait:
                    return False
                self.pause(timeout_ms)
        return True

    def _request_metadata(self, topic: str) -> None:
        try:
            found = self.for_metadata.topic_metadata(topic)
        except BrokerUnreachable as error:
            self._machine.on_metadata_failed(topic, str(error), self.clock.now_ms())
            return
        leaders = {tp.partition: leader for tp, leader in found.partitions.items() if tp.topic == topic}
        is_final = topic in found.rejected_topics
        self._machine.on_metadata(
            topic, TopicLeaders(leaders, found.topic_errors.get(topic), is_final), self.clock.now_ms()
        )

    def _send(self, broker: BrokerAddress, rows: tuple[RecordSetRows, ...]) -> None:
        try:
            connection, versions = self.cluster.connection_to(broker)
            version = versions.pick(PRODUCE)
            body = self._request(version, broker, rows)
            pending = connection.send(PRODUCE, version, body, self.task.limits.request_timeout_ms)
        except _LOST as error:
            self._lost(broker, str(error))
            return
        self._pending[broker] = connection, pending

    def _request(self, version: int, broker: BrokerAddress, rows: tuple[RecordSetRows, ...]) -> ProduceRequest:
        """Raises ``UsageError`` for what the broker's version cannot express."""
        magic = 2 if version >= MAGIC_2_FROM else 1 if version >= MAGIC_1_FROM else 0
        if self.task.codec == compression.ZSTD and version < ZSTD_FROM:
            raise UsageError(
                f"kafka.compression.type=zstd: {broker} is a broker before 2.1, which has no zstd. Set gzip, snappy or "
                "lz4"
            )
        topics: dict[str, list[ProducePartition]] = {}
        for each in rows:
            assert isinstance(each, PartitionRows), "the machine returns what was added"
            data = build_record_set(each.records(magic), magic, self.task.codec)
            topics.setdefault(each.tp.topic, []).append(ProducePartition(index=each.tp.partition, records=data))
        return ProduceRequest(
            transactional_id=None, acks=self.task.acks, timeout_ms=self.task.limits.request_timeout_ms,
            topic_data=[ProduceTopic(name=name, partition_data=parts) for name, parts in topics.items()],
        )  # fmt: skip

    def _receive(self, broker: BrokerAddress, timeout_ms: int) -> bool:
        """Whether the request of the broker is over."""
        connection, pending = self._pending[broker]
        try:
            if not connection.has_response(timeout_ms):
                is_late = self._machine.on_no_response(broker, self.clock.now_ms())
                if is_late:
                    del self._pending[broker]
                    self.cluster.drop(broker)
                return is_late
            response = connection.receive(pending, self.task.limits.request_timeout_ms)
        except _LOST as error:
            del self._pending[broker]
            self._lost(broker, str(error))
            return True
        del self._pending[broker]
        results = {
            TopicPartition(topic.name, part.index): _result(part)
            for topic in response.responses
            for part in topic.partition_responses
        }
        self._machine.on_response(broker, results, self.clock.now_ms(), response.throttle_time_ms)
        return True

    def _lost(self, broker: BrokerAddress, why: str) -> None:
        self.cluster.drop(broker)
        self._machine.on_lost(broker, why, self.clock.now_ms())


def _result(part: ProducePartitionResponse) -> ProduceResult:
    texts = [part.error_message, *(each.batch_index_error_message for each in part.record_errors)]
    return ProduceResult(error_code(part.error_code), part.base_offset, next(filter(None, texts), ""))
