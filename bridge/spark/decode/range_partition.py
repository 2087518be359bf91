"""Runs in a Spark executor: reads one range of a partition as Arrow record batches of the requested schema.

    RangePartition --pickled by the driver--> read_partition ---> record batches --socket--> JVM

This module does not use groups, ZooKeeper or plans.  One Arrow batch of ``BATCH_ROWS`` rows contains records of several
Kafka batches; columns that were not requested are not built.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from bridge.spark.decode.arrow_decoder import ArrowDecoder, warn_if_not_compiled
from bridge.spark.decode.arrow_schema import SCHEMA, ArrowBatchSpec
from bridge.spark.decode.cluster_connections import CONNECTION_POOL, ClusterAddress, ClusterConnectionPool
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
    ``arrow_schema.SCHEMA``, in the order of the result.
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
    wanted, schema = partition.wanted, schema_of(partition.columns)
    decode = ArrowDecoder(ArrowBatchSpec(wanted.tp.topic, wanted.tp.partition, schema)).batches
    with pool.borrow(ClusterAddress(partition.brokers, partition.security, partition.client_id)) as cluster:
        batches = read_range(cluster, wanted, partition.settings, StopSignal().wait, decode, on_lost=_warn)
        with closing(batches):
            yield from batches


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """The part of ``SCHEMA`` with these columns, in this order.  ``KeyError`` for one that does not exist."""
    return pa.schema([SCHEMA.field(name) for name in columns])


def _warn(lost: OffsetRange) -> None:
    log.warning(
        "data-lost partition=%s first=%s end=%s lost_offsets=%s", lost.tp, lost.first, lost.end, lost.end - lost.first
    )
