"""What the figures of ``migration_docs/reference/spark-speed.md`` rest on; no clock is read here."""

from __future__ import annotations

import gc
import math
import platform
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from bridge.testing.fake_cluster import FakeCluster
from zkconsumer.types import TopicPartition
from zkconsumer.wire import compression
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.schemas import FETCH

pytest.importorskip("pyspark", reason="the data source needs the extra [spark]")

import pyarrow as pa

from bridge.spark.decode import gc_freeze
from bridge.spark.decode.arrow_schema import POOL, SCHEMA
from bridge.spark.decode.cluster_connections import ClusterAddress, ClusterConnectionPool, ClusterConnections
from bridge.spark.decode.offset_ranges import OffsetRange, ReadSettings
from bridge.spark.decode.range_partition import RangePartition, read_partition
from bridge.spark.source import batch_reader
from bridge.spark.source.datasource import ZkConsumerDataSource
from tests.spark_decoder_fixtures import COMPILED, batches_of, decoder, only_fast, target  # noqa: F401
from zkconsumer.base.clock import SYSTEM_CLOCK

TP = TopicPartition("clicks", 0)
ROWS = 6_000
FETCH_BYTES = 100_000
RUN_TIMEOUT_S = 60
SHAPES = [(magic, codec) for magic in (1, 2) for codec in (compression.NONE, compression.SNAPPY)]


def record_set(magic: int, codec: int) -> bytes:
    """Lengths that differ, in batches of a hundred."""
    records = [
        Record(n, 1_700_000_000_000 + n // 7, 0, n.to_bytes(8, "big"), b"some text " * (3 + n * 7 % 11))
        for n in range(ROWS)
    ]
    return b"".join(build_record_set(records[low : low + 100], magic, codec) for low in range(0, ROWS, 100))


@pytest.fixture
def fake() -> FakeCluster:
    made = FakeCluster(1)
    made.create_topic(TP.topic, 1)
    for _ in range(ROWS // 100):
        made.append(TP.topic, 0, [b"some text " * 10] * 100)
    return made


@pytest.fixture
def connects(fake: FakeCluster) -> Iterator[tuple[ClusterConnectionPool, list[str]]]:
    """What a worker keeps, and the hosts that it connected to."""
    made: list[str] = []

    def connect(host: str, port: int, **options: Any) -> Any:
        made.append(host)
        return fake.connect(host, port, **options)

    def open_(address: ClusterAddress) -> ClusterConnections:
        return ClusterConnections(lambda: address.brokers, connect, address.client_id, SYSTEM_CLOCK)

    clusters = ClusterConnectionPool(open_)
    yield clusters, made
    clusters.close()


def task(fake: FakeCluster, first: int, end: int) -> RangePartition:
    settings = ReadSettings(fetch_bytes=FETCH_BYTES)
    return RangePartition(OffsetRange(TP, first, end), tuple(fake.addresses), ("key", "value", "offset"), settings)


def test_a_range_costs_a_fetch_for_each_so_many_bytes_and_no_more(
    fake: FakeCluster, connects: tuple[ClusterConnectionPool, list[str]]
) -> None:
    rows = sum(each.num_rows for each in read_partition(task(fake, 0, ROWS), connects[0]))
    assert rows == ROWS
    asked = [seen.body.topics[0].partitions[0] for seen in fake.requests if seen.api is FETCH]
    log_bytes = ROWS * 110
    # Whole batches only: each answer leaves at most one of 11 KB over.
    assert len(asked) <= math.ceil(log_bytes / (FETCH_BYTES - 11_500)) + 1
    assert all(row.partition_max_bytes <= FETCH_BYTES for row in asked)


def test_tasks_one_after_the_other_use_the_same_connection(
    fake: FakeCluster, connects: tuple[ClusterConnectionPool, list[str]]
) -> None:
    clusters, made = connects
    for first in range(0, ROWS, ROWS // 3):
        assert list(read_partition(task(fake, first, first + ROWS // 3), clusters))
    assert len(made) == 1


def test_a_worker_does_not_look_through_what_is_loaded_after_each_task_and_each_plan(
    fake: FakeCluster, connects: tuple[ClusterConnectionPool, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside of a process that Spark keeps nothing is changed."""
    frozen: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(1))
    monkeypatch.setattr(batch_reader, "plan_batch", lambda *_: [])
    options = {"subscribe": "clicks", "kafka.bootstrap.servers": "nobody:1", "startingOffsets": "earliest"}
    options |= {"endingOffsets": "latest"}
    source = ZkConsumerDataSource(options)

    def plan() -> None:
        source.reader(source.schema()).partitions()

    def read() -> None:
        list(read_partition(task(fake, 0, 10), connects[0]))

    for number, work in enumerate((plan, read)):
        monkeypatch.delenv(gc_freeze.WORKER_IS_KEPT, raising=False)
        monkeypatch.setattr(gc_freeze, "_loaded", 0)
        work()
        assert not frozen
        monkeypatch.setenv(gc_freeze.WORKER_IS_KEPT, "1")
        for _ in range(3):
            work()
        assert len(frozen) == 1
        # Spark loads what it sends rows with behind the first.
        monkeypatch.setitem(sys.modules, f"loaded_meanwhile_{number}", sys)
        for _ in range(3):
            work()
        assert len(frozen) == 2
        frozen.clear()


NO_HEADERS = SCHEMA.remove(7)


@pytest.fixture
def _is_compiled(decoder: str) -> None:  # noqa: F811
    if decoder != COMPILED:
        pytest.skip("an object is made for each record there")


@pytest.mark.usefixtures("only_fast")
@pytest.mark.parametrize(("magic", "codec"), SHAPES)
def test_sound_records_are_never_read_one_by_one(magic: int, codec: int) -> None:
    assert sum(batch.num_rows for batch in batches_of(record_set(magic, codec))) == ROWS


@pytest.mark.usefixtures("_is_compiled")
@pytest.mark.parametrize(("magic", "codec"), SHAPES)
def test_records_are_no_objects(magic: int, codec: int) -> None:
    """Of what is alive when a record set was read, there are far fewer pieces of memory than records."""
    made = record_set(magic, codec)
    list(batches_of(made))
    tracemalloc.start()
    try:
        before = len(tracemalloc.take_snapshot().traces)
        arrow = list(batches_of(made, into=target(NO_HEADERS)))
        after = len(tracemalloc.take_snapshot().traces)
    finally:
        tracemalloc.stop()
    assert sum(batch.num_rows for batch in arrow) == ROWS
    assert after - before < ROWS / 10


@pytest.mark.usefixtures("_is_compiled")
@pytest.mark.parametrize("magic", [1, 2])
def test_what_was_fetched_is_not_copied_before_it_is_arrow(magic: int) -> None:
    """The rest of what is allocated is a table of positions, whose size does not depend on that of the records."""
    records = [Record(n, 0, 0, None, bytes(2_000)) for n in range(1_000)]
    received = memoryview(build_record_set(records, magic, compression.NONE)).toreadonly()
    no_value = SCHEMA.empty_table().select(["offset"]).schema
    into = target(no_value, max_rows=100)
    sum(batch.num_rows for batch in batches_of(received, into=into))
    tracemalloc.start()
    try:
        assert sum(batch.num_rows for batch in batches_of(received, into=into)) == len(records)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < len(received) / 20


FAULTS = """
import resource
import bridge.spark.decode.arrow_decoder
one = b"x"
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [one * 800_000 for _ in range(4)]
    del blocks
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have other rules")
def test_memory_of_the_size_of_batches_is_used_again() -> None:
    """These blocks are 780 pages, each of which would be taken from the system again."""
    done = subprocess.run(
        [sys.executable, "-c", FAULTS], capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=True
    )
    assert int(done.stdout) < 100


def columns_bytes(batches: list[pa.RecordBatch], name: str) -> list[int]:
    """What the column has of bytes, batch for batch."""
    return [batch.column(name).buffers()[2].size for batch in batches]


@pytest.mark.usefixtures("_is_compiled")
def test_long_values_are_copied_once() -> None:
    """Memory is taken once and as much as there is: what grows or shrinks is copied each time."""
    records = [Record(n, 0, 0, b"8 bytes!", b"x" * (512 + n * 37 % 1024)) for n in range(1_000)]
    schema = SCHEMA.empty_table().select(["value"]).schema
    before = POOL.num_allocations()
    made = list(batches_of(build_record_set(records, 2, compression.NONE), into=target(schema)))
    assert POOL.num_allocations() == before, "Arrow takes the bytes as they are"
    assert sum(columns_bytes(made, "value")) == sum(len(record.value or b"") for record in records)


@pytest.mark.parametrize("length", [0, 1, 12, 13, 32, 33, 1000])
@pytest.mark.parametrize("null", [None, 0, 50, 99])
def test_what_is_null_stays_so_among_fields_of_one_length(length: int, null: int | None) -> None:
    values = [None if n == null else bytes([n + 1]) * length for n in range(100)]
    made = build_record_set([Record(n, 0, 0, None, v) for n, v in enumerate(values)], 2, 0)
    [batch] = batches_of(made, into=target(SCHEMA.empty_table().select(["value"]).schema))
    batch.validate(full=True)
    assert batch.column("value").to_pylist() == values


def test_a_column_that_was_not_asked_for_is_not_made() -> None:
    made = record_set(2, compression.NONE)
    narrow = SCHEMA.empty_table().select(["value"]).schema
    sizes = [sum(batch.nbytes for batch in batches_of(made, into=target(schema))) for schema in (narrow, NO_HEADERS)]
    values = sum(columns_bytes(list(batches_of(made)), "value"))
    assert sizes[0] < values + 5 * ROWS
    assert sizes[1] > sizes[0] + 8 * ROWS


def test_constant_columns_show_the_same_memory_again() -> None:
    """The topic's name and the partition's number are not written again for each batch."""
    made = list(batches_of(record_set(2, compression.NONE), into=target(NO_HEADERS, max_rows=ROWS // 2)))
    assert len(made) == 2
    for name in ("topic", "partition"):
        addresses = {batch.column(name).buffers()[-1].address for batch in made}
        assert len(addresses) == 1
