"""What one task writes to the brokers of an in-memory Kafka of each age, and what it does when they fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the data source needs the extra [spark]")

import pyarrow as pa

from bridge.spark.decode.cluster_connections import ClusterAddress, ClusterConnectionPool, ClusterConnections
from bridge.spark.decode.offset_ranges import OffsetRange
from bridge.spark.decode.range_partition import RangePartition, read_partition
from bridge.spark.sink import topic_writer
from bridge.spark.sink.delivery_errors import RecordsNotWritten
from bridge.spark.sink.produce_machine import ProduceLimits, RecordSetRows
from bridge.spark.sink.row_partitioning import StickyPartitions
from bridge.spark.sink.topic_writer import SinkTask, TopicWriter
from bridge.testing.fake_cluster import FakeCluster
from bridge.testing.fake_faults import CloseConnection, Hold, PartitionError
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.errors import TimeoutException, UsageError
from zkconsumer.kafka.broker_security import BrokerSecurity
from zkconsumer.kafka.error_codes import (
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    TOPIC_AUTHORIZATION_FAILED,
)
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import TopicPartition
from zkconsumer.wire import compression
from zkconsumer.wire.murmur2 import partition_of_key
from zkconsumer.wire.schemas import PRODUCE

TOPIC = "copies"
TP = TopicPartition(TOPIC, 0)
LIMITS = ProduceLimits(
    request_bytes=1_000_000, request_timeout_ms=1_000, delivery_timeout_ms=10_000, max_block_ms=5_000
)  # fmt: skip
RELEASES = {"0.8.2.2": 0, "0.10.2.2": 1, "1.1.1": 2, "3.9.1": 2}
"""Release -> the record format that it is written in."""

HEADER_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def new_writer(
    fake: FakeCluster, clock: ManualClock, *, topic: str | None = TOPIC, codec: int = compression.NONE, acks: int = -1,
    batch_bytes: int = 10_000, headers: tuple[tuple[str, bytes | None], ...] = (),
) -> TopicWriter:  # fmt: skip
    """A writer whose pauses move the clock."""
    address = ClusterAddress(tuple(fake.addresses), BrokerSecurity(), "sink")
    cluster, for_metadata = (
        ClusterConnections(lambda: address.brokers, fake.connect, address.client_id, clock) for _ in range(2)
    )
    task = SinkTask(address, topic, acks, codec, batch_bytes, LIMITS)
    return TopicWriter(cluster, for_metadata, task, StickyPartitions(0), headers=headers, clock=clock, pause=clock.move)


def new_cluster(clock: ManualClock, release: str = "3.9.1", brokers: int = 1, partitions: int = 1) -> FakeCluster:
    made = FakeCluster(brokers, release=release, clock=clock)
    made.create_topic(TOPIC, partitions)
    return made


def values_batch(values: Sequence[bytes | None], **columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary()), **columns})


def records_of(fake: FakeCluster, partition: int = 0, topic: str = TOPIC) -> list[dict[str, Any]]:
    """What the log has: rows of the source."""
    end = fake.log_end(topic, partition)
    pool = ClusterConnectionPool(lambda at: ClusterConnections(lambda: at.brokers, fake.connect, "", SYSTEM_CLOCK))
    columns = ("key", "value", "offset", "timestamp", "headers")
    wanted = RangePartition(OffsetRange(TopicPartition(topic, partition), 0, end), tuple(fake.addresses), columns)
    found = []
    for batch in read_partition(wanted, pool):
        found += batch.set_column(3, "timestamp", batch.column("timestamp").view("int64")).to_pylist()
    return found


def values_of(fake: FakeCluster, partition: int = 0, topic: str = TOPIC) -> list[bytes | None]:
    return [row["value"] for row in records_of(fake, partition, topic)]


def produced(fake: FakeCluster) -> list[Any]:
    """The partitions of every Produce request that a broker could read."""
    return [
        part for each in fake.requests if each.api is PRODUCE for t in each.body.topic_data for part in t.partition_data
    ]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def write_all(writer: TopicWriter, *batches: pa.RecordBatch) -> None:
    for batch in batches:
        writer.write(batch)
    writer.flush()


@pytest.mark.parametrize("codec", [compression.NONE, compression.GZIP, compression.SNAPPY, compression.LZ4])
@pytest.mark.parametrize(("release", "magic"), RELEASES.items())
def test_brokers_of_each_age_get_their_record_format(
    clock: ManualClock, release: str, magic: int, codec: int
) -> None:  # fmt: skip
    fake = new_cluster(clock, release)
    values = [b"%d" % number for number in range(50)]
    keys = pa.array([b"k%d" % number for number in range(50)], pa.binary())
    writer = new_writer(fake, clock, codec=codec, batch_bytes=2_000, headers=(("zkconsumer.batch", b"7"),))
    write_all(writer, values_batch(values, key=keys))
    assert {part.records[16] for part in produced(fake)} == {magic}
    rows = records_of(fake)
    assert [row["value"] for row in rows] == values
    assert [row["key"] for row in rows] == keys.to_pylist()
    assert [row["offset"] for row in rows] == list(range(50))
    expected = [{"key": "zkconsumer.batch", "value": b"7"}] if magic == 2 else None
    assert {str(row["headers"]) for row in rows} == {str(expected)}
    assert writer.written[TP] == (0, 50, 50)


def test_zstd_for_a_broker_before_2_1_fails_and_names_the_option(clock: ManualClock) -> None:
    fake = new_cluster(clock, "1.1.1")
    with pytest.raises(UsageError, match=r"kafka\.compression\.type=zstd: .* before 2\.1"):
        write_all(new_writer(fake, clock, codec=compression.ZSTD), values_batch([b"v"]))


def test_headers_of_the_row_come_before_those_of_the_sink_and_the_source(clock: ManualClock) -> None:
    fake = new_cluster(clock)
    own = pa.array([[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None, []], HEADER_TYPE)
    source = pa.array(["clicks/0/5", "clicks/0/6", None])
    writer = new_writer(fake, clock, headers=(("zkconsumer.query", b"q"),))
    write_all(writer, values_batch([b"x", b"y", b"z"], headers=own, source=source))
    headers = [[(each["key"], each["value"]) for each in row["headers"]] for row in records_of(fake)]
    assert headers == [
        [("a", b"1"), ("b", None), ("zkconsumer.query", b"q"), ("zkconsumer.source", b"clicks/0/5")],
        [("zkconsumer.query", b"q"), ("zkconsumer.source", b"clicks/0/6")],
        [("zkconsumer.query", b"q")],
    ]


def test_the_stage_of_a_dead_letter_is_a_header_only_where_the_format_has_headers(clock: ManualClock) -> None:
    for release, expected in (
        ("3.9.1", [("zkconsumer.source", b"c/0/5"), ("zkconsumer.stage", b"decode")]),
        ("0.8.2.2", []),
    ):
        fake = new_cluster(clock, release)
        columns = {"source": pa.array(["c/0/5"]), "stage": pa.array(["decode"])}
        write_all(new_writer(fake, clock), values_batch([b"{}"], **columns))
        [row] = records_of(fake)
        assert [(each["key"], each["value"]) for each in row["headers"] or ()] == expected


def test_a_limit_of_a_record_of_its_own_does_not_change_the_size_of_requests(clock: ManualClock) -> None:
    values = [b"x" * 1_020_000, b"y"]  # between the limit of a request and the one of the topic
    with pytest.raises(UsageError, match=r"kafka\.max\.request\.size allows"):
        write_all(new_writer(new_cluster(clock), clock), values_batch(values))
    fake = new_cluster(clock)
    writer = new_writer(fake, clock)
    writer.task = replace(writer.task, record_bytes_max=2_000_000)
    write_all(writer, values_batch(values))
    assert values_of(fake) == values


def test_a_row_with_headers_is_never_written_without_them(clock: ManualClock) -> None:
    fake = new_cluster(clock, "0.10.2.2")
    with pytest.raises(UsageError, match=r"Drop the column headers .* newer brokers"):
        write_all(
            new_writer(fake, clock),
            values_batch([b"v", b"w"], headers=pa.array([[], [{"key": "a", "value": b"1"}]], HEADER_TYPE)),
        )
    assert values_of(fake) == []


def test_empty_headers_are_no_error_on_old_brokers(clock: ManualClock) -> None:
    fake = new_cluster(clock, "0.8.2.2")
    write_all(new_writer(fake, clock), values_batch([b"v", b"w"], headers=pa.array([[], None], HEADER_TYPE)))
    assert values_of(fake) == [b"v", b"w"]


def test_a_row_without_a_timestamp_gets_the_time_of_writing(clock: ManualClock) -> None:
    fake = new_cluster(clock)
    times = pa.array([1_500_000_000_123_999, None], pa.timestamp("us", "UTC"))
    write_all(new_writer(fake, clock), values_batch([b"v", b"w"], timestamp=times))
    assert [row["timestamp"] // 1000 for row in records_of(fake)] == [1_500_000_000_123, clock.wall_ms()]


def test_rows_go_to_the_topic_of_their_column_and_the_partition_of_their_key(clock: ManualClock) -> None:
    fake = new_cluster(clock, brokers=3, partitions=5)
    fake.create_topic("others", 2)
    keys = [b"key-%d" % (number % 11) for number in range(200)]
    topics = [TOPIC if number % 3 else "others" for number in range(200)]
    batch = values_batch(
        [b"%d" % number for number in range(200)], key=pa.array(keys, pa.binary()), topic=pa.array(topics)
    )  # fmt: skip
    write_all(new_writer(fake, clock, topic=None), batch)
    for topic, partitions in ((TOPIC, 5), ("others", 2)):
        for partition in range(partitions):
            assert values_of(fake, partition, topic) == [
                b"%d" % number
                for number in range(200)
                if topics[number] == topic and partition_of_key(keys[number], partitions) == partition
            ]


def test_the_leader_that_moved_is_found_and_nothing_is_lost_or_out_of_order(clock: ManualClock) -> None:
    fake = new_cluster(clock, brokers=2)
    writer = new_writer(fake, clock)
    write_all(writer, values_batch([b"0", b"1"]))
    leader = fake.requests[-1].broker_id
    fake.move_leader(TOPIC, 0, 1 - leader)
    write_all(writer, values_batch([b"2", b"3"]))
    assert values_of(fake) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("code", [NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT])
def test_an_error_that_passes_is_followed_by_another_attempt(clock: ManualClock, code: Any) -> None:
    fake = new_cluster(clock)
    fake.inject(PartitionError(TP, code.code), api=PRODUCE, times=3)
    write_all(new_writer(fake, clock), values_batch([b"0", b"1"]))
    assert values_of(fake) == [b"0", b"1"]
    assert len(produced(fake)) == 4


def test_an_answer_that_is_lost_repeats_the_records(clock: ManualClock) -> None:
    fake = new_cluster(clock)
    writer = new_writer(fake, clock)
    before = writer.cluster.connection_to(fake.addresses[0])
    fake.inject(CloseConnection(), api=PRODUCE)
    write_all(writer, values_batch([b"0", b"1"]))
    assert values_of(fake) == [b"0", b"1", b"0", b"1"]
    assert writer.cluster.connection_to(fake.addresses[0]) is not before, "the versions are negotiated again"


def test_a_broker_that_stops_and_comes_back_gets_every_record(clock: ManualClock) -> None:
    fake = new_cluster(clock)
    writer = new_writer(fake, clock)
    write_all(writer, values_batch([b"0"]))
    fake.stop_broker(0)
    paused: list[int] = []

    def pause(timeout_ms: int) -> None:
        clock.move(timeout_ms)
        paused.append(timeout_ms)
        if len(paused) == 4:
            fake.start_broker(0)

    writer.pause = pause
    write_all(writer, values_batch([b"1"]))
    assert values_of(fake) == [b"0", b"1"]
    assert max(paused) <= 1_000


def test_attempts_end_with_the_delivery_timeout_and_the_last_error(clock: ManualClock) -> None:
    fake = new_cluster(clock)
    fake.inject(PartitionError(TP, NOT_LEADER_OR_FOLLOWER.code), api=PRODUCE, times=None)
    began_ms = clock.now_ms()
    with pytest.raises(TimeoutException, match=r"copies/0: .*kafka\.delivery\.timeout\.ms.*NOT_LEADER_OR_FOLLOWER"):
        write_all(new_writer(fake, clock), values_batch([b"0"]))
    assert LIMITS.delivery_timeout_ms <= clock.now_ms() - began_ms <= LIMITS.delivery_timeout_ms + 2_000


@pytest.mark.parametrize(
    ("code", "advice"),
    [(TOPIC_AUTHORIZATION_FAILED, "Allow this user WRITE"), (INVALID_TIMESTAMP, "Correct column timestamp")],
)
def test_an_error_that_stays_fails_at_once_and_says_what_to_do(clock: ManualClock, code: Any, advice: str) -> None:
    fake = new_cluster(clock)
    fake.inject(PartitionError(TP, code.code), api=PRODUCE, times=None)
    with pytest.raises(RecordsNotWritten, match=rf"copies/0: {code.name} .* {advice}"):
        write_all(new_writer(fake, clock), values_batch([b"0"]))
    assert len(produced(fake)) == 1


def test_a_record_set_that_is_too_large_is_divided(clock: ManualClock) -> None:
    fake = new_cluster(clock)
    fake.inject(PartitionError(TP, MESSAGE_TOO_LARGE.code), api=PRODUCE, times=2)
    values = [b"%d" % number for number in range(8)]
    write_all(new_writer(fake, clock), values_batch(values))
    assert values_of(fake) == values


def test_a_single_record_that_is_too_large_is_an_error_and_not_dropped(clock: ManualClock) -> None:
    fake = new_cluster(clock)
    fake.inject(PartitionError(TP, MESSAGE_TOO_LARGE.code), api=PRODUCE, times=None)
    with pytest.raises(RecordsNotWritten, match=r"raise max\.message\.bytes"):
        write_all(new_writer(fake, clock), values_batch([b"0", b"1"]))


def test_a_topic_that_does_not_exist_is_waited_for_and_not_created(clock: ManualClock) -> None:
    fake = new_cluster(clock)
    began_ms = clock.now_ms()
    with pytest.raises(UsageError, match=r"topic nothing does not exist.*Create the topic"):
        write_all(new_writer(fake, clock, topic="nothing"), values_batch([b"0"]))
    assert clock.now_ms() - began_ms >= LIMITS.max_block_ms


def test_a_broker_that_answers_late_counts_as_lost(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of the second request only is read: the connection of the first one was closed."""
    fake = new_cluster(clock)
    writer = new_writer(fake, clock)
    write_all(writer, values_batch([b"0"]))
    [connection, _] = writer.cluster.connection_to(fake.addresses[0])

    def no_response(timeout_ms: int) -> bool:
        clock.move(timeout_ms)
        return False

    monkeypatch.setattr(connection, "has_response", no_response)
    write_all(writer, values_batch([b"1"]))
    assert values_of(fake) == [b"0", b"1", b"1"]


def test_a_task_that_is_faster_than_the_brokers_waits_for_them(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    fake = new_cluster(clock)
    writer = new_writer(fake, clock, batch_bytes=1_000)
    monkeypatch.setattr(topic_writer, "BUFFER_BYTES_MAX", 5_000)
    pending: list[int] = []
    add = writer._machine.add

    def added(rows: RecordSetRows) -> None:
        add(rows)
        pending.append(writer._machine.pending_bytes)

    monkeypatch.setattr(writer._machine, "add", added)
    write_all(writer, values_batch([b"%d" % number for number in range(1_000)]))
    assert len(values_of(fake)) == 1_000
    assert 5_000 < max(pending) <= 6_000


def test_leaders_are_found_while_an_answer_is_awaited(clock: ManualClock) -> None:
    fake = new_cluster(clock)
    fake.create_topic("others")
    writer = new_writer(fake, clock, topic=None)
    held = fake.inject(Hold(), api=PRODUCE)
    writer.write(values_batch([b"0"], topic=pa.array([TOPIC])))
    writer.write(values_batch([b"1"], topic=pa.array(["others"])))
    fake.lift(held)
    writer.flush()
    assert (values_of(fake), values_of(fake, topic="others")) == ([b"0"], [b"1"])


def test_no_rows_write_nothing(clock: ManualClock) -> None:
    fake = new_cluster(clock)
    writer = new_writer(fake, clock)
    write_all(writer, values_batch([]))
    write_all(new_writer(fake, clock, topic=None), values_batch([], topic=pa.array([], pa.string())))
    assert produced(fake) == []
    assert writer.written == {}
