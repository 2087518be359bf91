"""Runs in a Spark executor: reads one range of a partition as Arrow record batches of the requested schema.

    RangePartition --pickled by the driver--> read_partition ---> record batches --socket--> JVM

This module does not use groups, ZooKeeper or plans.  One Arrow batch of ``BATCH_ROWS`` rows contains records of several
Kafka batches; columns that were not requested are not built.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from bridge.spark.decode.arrow_decoder import ArrowDecoder, warn_if_not_compiled
from bridge.spark.decode.arrow_schema import CORRUPT, SCHEMA, ArrowBatchSpec, corrupt_batch, schema_of
from bridge.spark.decode.cluster_connections import CONNECTION_POOL, ClusterAddress, ClusterConnectionPool
from bridge.spark.decode.corrupt_ranges import CorruptRange
from bridge.spark.decode.gc_freeze import gc_freeze_worker
from bridge.spark.decode.offset_ranges import OffsetRange, ReadSettings
from bridge.spark.decode.range_reader import read_range
from zkconsumer.base.threads import StopSignal
from zkconsumer.kafka.broker_security import BrokerSecurity
from zkconsumer.types import BrokerAddress

CLIENT_ID = "zkconsumer-spark"
"""The client id of the readers in quotas and logs of brokers, unless ``client.id`` is set."""

log = logging.getLogger("zkconsumer.spark")


@dataclass(frozen=True)
class RangePartition(InputPartition):  # type: ignore[misc]
    """One task: a range, and everything that an executor needs to read it.  Pickled; shows no secret.

    ``brokers``: where to find the leader of the partition; one that answers is enough.  ``columns``: names in
    ``arrow_schema.SCHEMA`` and ``ADDED_FIELDS``, in the order of the result.
    """

    wanted: OffsetRange
    brokers: tuple[BrokerAddress, ...]
    columns: tuple[str, ...] = tuple(SCHEMA.names)
    settings: ReadSettings = field(default_factory=ReadSettings)
    security: BrokerSecurity = field(default_factory=BrokerSecurity)
    client_id: str = CLIENT_ID


def read_partition(
    partition: InputPartition, pool: ClusterConnectionPool = CONNECTION_POOL
) -> Iterator[pa.RecordBatch]:
    """The records of the range, as batches of ``schema_of(partition.columns)``; no batch without records.

    Spark calls it with a partition of its own where a batch has no tasks: it has no records.  The caller may stop
    early.
    Raises the errors of ``read_range``, and ``InvalidConfigException`` for certificates that cannot be read on this
    machine.
    """
    if not isinstance(partition, RangePartition):
        return
    gc_freeze_worker()
    warn_if_not_compiled()
    wanted = partition.wanted
    target = ArrowBatchSpec(wanted.tp.topic, wanted.tp.partition, schema_of(partition.columns))

    def on_corrupt(passed_over: CorruptRange) -> pa.RecordBatch | None:
        warn_of_corrupt_records(passed_over)
        return corrupt_batch(target, passed_over) if CORRUPT in partition.columns else None

    with pool.borrow(ClusterAddress(partition.brokers, partition.security, partition.client_id)) as cluster:
        batches = read_range(
            cluster, wanted, partition.settings, StopSignal().wait, ArrowDecoder(target).batches, on_lost=_warn,
            on_corrupt=on_corrupt,
        )  # fmt: skip
        with closing(batches):
            yield from batches


def warn_of_corrupt_records(passed_over: CorruptRange) -> None:
    """Log offsets that cannot be read and are passed over."""
    log.warning(
        "corrupt-records-skipped partition=%s first=%d end=%d end_known=%s reason=%r",
        passed_over.tp, passed_over.first, passed_over.end, passed_over.has_end, passed_over.reason,
    )  # fmt: skip


def _warn(lost: OffsetRange) -> None:
    log.warning(
        "data-lost partition=%s first=%s end=%s lost_offsets=%s", lost.tp, lost.first, lost.end, lost.end - lost.first
    )
