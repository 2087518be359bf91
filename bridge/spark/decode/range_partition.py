"""What runs in a Spark executor: one range of a partition in, Arrow record batches of the schema asked for out.

    RangePartition --pickled by the driver--> read_partition ---> record batches --socket--> JVM

Nothing here knows groups, ZooKeeper or plans.  Records of several Kafka batches stand in one Arrow batch of
``BATCH_ROWS`` rows; columns that were not asked for are not built.
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
"""What brokers call the readers, in quotas and logs, when ``client.id`` says nothing else."""

log = logging.getLogger("zkconsumer.spark")


@dataclass(frozen=True)
class RangePartition(InputPartition):  # type: ignore[misc]
    """One task: a range, and all that an executor needs to read it.  Pickled; shows no secret.

    ``brokers``: where to ask who leads the partition; one that answers is enough.  ``columns``: names out of
    ``arrow.SCHEMA``, in the order in which they are to come.
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
    """The records of the range, as batches of ``schema_of(partition.columns)``; none when there are no records.

    Spark makes a partition of its own where a batch has none at all: there is nothing in it.  May be left half-way.
    Raises what ``read_range`` raises, and ``InvalidConfigException`` for certificates that cannot be read on this
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
    """The part of ``SCHEMA`` with these columns, in this order.  ``KeyError`` for one that there is not."""
    return pa.schema([SCHEMA.field(name) for name in columns])


def _warn(lost: OffsetRange) -> None:
    log.warning(
        "data-lost partition=%s first=%s end=%s lost_offsets=%s", lost.tp, lost.first, lost.end, lost.end - lost.first
    )
