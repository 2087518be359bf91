"""The writers of ``format("zkconsumer")``, as Spark calls them.

    batch_writer, stream_writer   in a planning process: options and columns -> a writer; open no connection
    write                         in an executor, once for each task: returns when all rows are acknowledged
    commit, abort                 in a planning process, after all tasks; the records are written already

Spark pickles the writer with its task, so it contains nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from bridge.spark.source.error_rendering import task_sentence_before_traceback
from bridge.spark.source.pickling import LoaderPickledMeta
from zkconsumer.errors import InvalidConfigException

if TYPE_CHECKING:
    import pyarrow as pa

    from bridge.spark.sink.produce_machine import WrittenRange
    from bridge.spark.sink.sink_options import SinkOptions
    from bridge.spark.sink.topic_writer import SinkTask
    from zkconsumer.types import TopicPartition

log = logging.getLogger("zkconsumer.spark")


@dataclass(frozen=True)
class TopicCommitMessage(WriterCommitMessage):  # type: ignore[misc]
    """What one task has written: all of its rows, acknowledged."""

    written: Mapping[TopicPartition, WrittenRange]

    @property
    def records(self) -> int:
        """The number of records."""
        return sum(each.records for each in self.written.values())


@task_sentence_before_traceback
def _write(task: SinkTask, batches: Iterator[pa.RecordBatch]) -> TopicCommitMessage:
    from bridge.spark.sink.topic_writer import write_rows  # a planning process does not need it

    return TopicCommitMessage(write_rows(task, batches))


class TopicBatchWriter(DataSourceArrowWriter, metaclass=LoaderPickledMeta):  # type: ignore[misc]
    """Writes a batch."""

    def __init__(self, task: SinkTask) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TopicCommitMessage:
        """Writes the rows of one task; see ``bridge.spark.sink.topic_writer.write_rows`` for the errors."""
        return _write(self._task, iterator)

    def commit(self, messages: Sequence[TopicCommitMessage | None]) -> None:
        """All tasks have written."""
        log.debug("sink-batch-written records=%s", _records(messages))

    def abort(self, messages: Sequence[TopicCommitMessage | None]) -> None:
        """A task has failed; what others have written stays."""
        log.warning("sink-batch-aborted written_records=%s", _records(messages))


class TopicStreamWriter(DataSourceStreamArrowWriter, metaclass=LoaderPickledMeta):  # type: ignore[misc]
    """Writes the batches of a stream."""

    def __init__(self, task: SinkTask) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TopicCommitMessage:
        """Writes the rows of one task; see ``bridge.spark.sink.topic_writer.write_rows`` for the errors."""
        return _write(self._task, iterator)

    def commit(self, messages: Sequence[TopicCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """All tasks have written."""
        log.debug("sink-batch-written batch=%s records=%s", batchId, _records(messages))

    def abort(self, messages: Sequence[TopicCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """A task has failed; what others have written stays, and is written again with the next attempt."""
        log.warning("sink-batch-aborted batch=%s written_records=%s", batchId, _records(messages))


def batch_writer(options: Mapping[str, str], schema: Any, overwrite: bool) -> TopicBatchWriter:
    """The writer of a batch of rows with this ``StructType``.

    Raises ``InvalidConfigException`` for wrong options and columns, and for ``overwrite``.
    """
    if overwrite:
        raise InvalidConfigException('mode("overwrite"): records of a topic cannot be replaced; set mode("append")')
    return TopicBatchWriter(_plan(options, schema))


def stream_writer(options: Mapping[str, str], schema: Any) -> TopicStreamWriter:
    """The writer of a stream of rows with this ``StructType``, in each output mode: every row becomes a record.

    Raises ``InvalidConfigException`` for wrong options and columns.
    """
    return TopicStreamWriter(_plan(options, schema))


def _plan(options: Mapping[str, str], schema: Any) -> SinkTask:
    from bridge.spark.sink.sink_columns import check_sink_columns  # executors load this file without what options need
    from bridge.spark.sink.sink_options import read_sink_options

    read = read_sink_options(options)
    check_sink_columns(schema, read.topic)
    for option, why in read.warnings.items():
        _warn_once(option, why)
    return sink_task(read)


@lru_cache
def _warn_once(option: str, why: str) -> None:
    """Once in a planning process, which plans many batches of a stream."""
    log.warning("option-without-effect option=%s reason=%s", option, why)


def sink_task(options: SinkOptions) -> SinkTask:
    """What an executor needs of the options."""
    from bridge.spark.decode.cluster_connections import ClusterAddress
    from bridge.spark.sink.produce_machine import ProduceLimits
    from bridge.spark.sink.topic_writer import SinkTask
    from zkconsumer.kafka.bootstrap_brokers import BootstrapBrokers
    from zkconsumer.kafka.broker_security import broker_security_from_config

    config = options.config
    assert config.bootstrap_servers is not None, "it is a required option"
    brokers = tuple(BootstrapBrokers(config.bootstrap_servers).brokers())
    limits = ProduceLimits(
        options.request_bytes, options.request_timeout_ms, options.delivery_timeout_ms, options.max_block_ms
    )
    security = broker_security_from_config(config)
    return SinkTask(
        ClusterAddress(brokers, security, config.client_id), options.topic, options.acks, options.codec,
        options.batch_bytes, limits, options.query, options.batch,
    )  # fmt: skip


def _records(messages: Sequence[TopicCommitMessage | None]) -> int:
    """The records of the tasks that have ended."""
    return sum(message.records for message in messages if message is not None)
