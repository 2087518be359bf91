"""``KafkaStream.batches``: many records as one object, with the promises of one record."""

from __future__ import annotations

from array import array

import pyarrow as pa
import pytest

from tests.in_memory_fixtures import take, wait_until
from tests.unit.test_streams import OTHER, SHORT_MS, TP, Lane, records_of
from zkconsumer.errors import ConsumerTimeoutException, InvalidMessageException, UsageError
from zkconsumer.kafka import record_batch, table_delivery
from zkconsumer.kafka.chunks import PartitionTopicInfo, ShutdownMarker
from zkconsumer.streams import MessageAndMetadata, RecordBatch, string_decoder
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_set_builder import build_record_set

RECORDS = [
    Record(0, 1_000, 0, b"k0", b"v0", (("name", b"x"), ("name", None))),
    Record(1, 2_000, 0, None, b"", ()),
    Record(3, 3_000, 0, b"", None, (("caf\u00e9", b""),)),
    Record(4, 4_000, 0, b"k4", b"v" * 50, ()),
]


def lane_of(records: bytes, timeout_ms: int = 0, **how: object) -> tuple[Lane, PartitionTopicInfo]:
    lane = Lane(timeout_ms, **how)  # type: ignore[arg-type]
    info = lane.info()
    lane.put(info, records)
    return lane, info


def one(lane: Lane, max_records: int = 100, max_bytes: int = 1_000_000) -> RecordBatch:
    return next(lane.stream.batches(max_records, max_bytes))


def test_the_columns_of_a_batch_are_those_of_its_records() -> None:
    lane, _ = lane_of(build_record_set(RECORDS, 2))
    batch = one(lane)
    assert (batch.topic, batch.partition, len(batch)) == (TP.topic, TP.partition, 4)
    assert (batch.first_offset, batch.last_offset) == (0, 4)
    assert batch.offsets.tolist() == [0, 1, 3, 4]
    assert (batch.offsets.format, batch.timestamps.format, batch.timestamp_types.format) == ("q", "q", "i")
    assert batch.timestamps.tolist() == [1_000, 2_000, 3_000, 4_000]
    assert batch.timestamp_types.tolist() == [0] * 4
    assert list(batch.keys) == [b"k0", None, b"", b"k4"]
    assert list(batch.values) == [b"v0", b"", None, b"v" * 50]
    assert batch.values[-1] == b"v" * 50
    assert batch.values[1:3] == [b"", None]
    assert [batch.keys.is_null(index) for index in range(4)] == [False, True, False, False]
    assert batch.keys.null_count == 1
    assert bytes(batch.keys.data) == b"k0k4"
    assert batch.keys.bounds.tolist() == [0, 2, 2, 2, 4]
    with pytest.raises(IndexError):
        batch.values[4]
    assert repr(batch) == "RecordBatch(clicks/0 offsets 0 to 4, 4 records)"


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_batches_of_each_format_and_codec_hold_each_record_once(magic: int, codec: int) -> None:
    lane, info = lane_of(records_of(range(100), magic, codec))
    got: list[int] = []
    with pytest.raises(ConsumerTimeoutException):
        for batch in lane.stream.batches(7):
            assert 1 <= len(batch) <= 7
            assert [message.value for message in batch] == [b"v%d" % offset for offset in batch.offsets]
            got += batch.offsets
    assert got == list(range(100))
    assert info.consumed_offset == 100


@pytest.mark.skipif(not table_delivery.AVAILABLE, reason="the compiled modules are missing")
@pytest.mark.parametrize(("max_bytes", "sizes"), [(1_000_000, [640, 160]), (20_000, [200, 200, 200, 200])])
def test_compressed_entries_of_16_kb_come_together_in_one_batch(max_bytes: int, sizes: list[int]) -> None:
    """Each batch costs as much as some hundred records, and a producer with default settings sends 16 KB at a time."""
    records = [Record(offset, 0, 0, b"k", b"%099d" % offset) for offset in range(800)]
    entries = [build_record_set(records[low : low + 160], 2, 3) for low in range(0, 800, 160)]
    lane, _ = lane_of(b"".join(entries))
    found = []
    with pytest.raises(ConsumerTimeoutException):
        for batch in lane.stream.batches(640, max_bytes):
            found.append(len(batch))
            assert batch.values[0] == b"%099d" % batch.first_offset
    assert found == sizes


def test_an_item_is_a_message_with_the_decoders_of_the_stream() -> None:
    lane, _ = lane_of(build_record_set(RECORDS, 2), value_decoder=string_decoder)
    batch = one(lane)
    message = batch[0]
    assert isinstance(message, MessageAndMetadata)
    assert (message.topic, message.partition, message.offset) == ("clicks", 0, 0)
    assert (message.key, message.value, message.timestamp) == (b"k0", "v0", 1_000)
    assert message.headers == (("name", b"x"), ("name", None))
    assert batch.values[0] == b"v0", "columns have the raw bytes"
    assert [each.offset for each in batch[1:]] == [1, 3, 4]


def test_a_limit_in_bytes_counts_keys_and_values_and_one_record_may_be_larger() -> None:
    records = [Record(offset, 0, 0, b"kk", b"v" * size) for offset, size in enumerate([8, 8, 8, 100, 8])]
    lane, _ = lane_of(build_record_set(records, 2))
    found: list[list[int]] = []
    with pytest.raises(ConsumerTimeoutException):
        found.extend(batch.offsets.tolist() for batch in lane.stream.batches(max_bytes=20))
    assert found == [[0, 1], [2], [3], [4]]


@pytest.mark.parametrize(("records", "size"), [(0, 1), (1, 0), (-1, 1)])
def test_limits_below_one_are_refused(records: int, size: int) -> None:
    lane = Lane()
    with pytest.raises(UsageError, match="both must be 1 or more"):
        lane.stream.batches(records, size)


# --- what counts as consumed -------------------------------------------------------------------------------------


def test_consumed_moves_when_the_program_asks_for_more() -> None:
    lane, info = lane_of(records_of(range(6)))
    batches = lane.stream.batches(4)
    first = next(batches)
    assert (first.last_offset, info.consumed_offset, info.unacknowledged_offset) == (3, 0, 0)
    assert lane.iterator.unacknowledged_position() == (info, 4)
    second = next(batches)
    assert (second.first_offset, info.consumed_offset) == (4, 4)


def test_done_through_moves_consumed_within_the_batch() -> None:
    lane, info = lane_of(records_of(range(6)))
    batch = one(lane, 4)
    batch.acknowledge_through(1)
    assert (info.consumed_offset, info.unacknowledged_offset) == (2, 0)
    assert lane.iterator.unacknowledged_position() == (info, 2), "commit_offsets() covers what the program named"
    batch.acknowledge_through(0)
    assert info.consumed_offset == 2, "it never moves back"
    for outside in (-1, 4):
        with pytest.raises(ValueError, match="outside of RecordBatch"):
            batch.acknowledge_through(outside)
    following = one(lane, 4)
    assert (following.first_offset, info.consumed_offset) == (4, 4)
    batch.acknowledge_through(3)
    assert info.consumed_offset == 4, "a batch that the program has come back from has no effect"
    assert lane.iterator.unacknowledged_position() == (info, 6)


@pytest.mark.parametrize("done", [None, 0, 2, 3])
def test_a_batch_that_is_given_back_comes_again_from_where_the_program_is(done: int | None) -> None:
    lane, info = lane_of(records_of(range(6)))
    batch = one(lane, 4)
    if done is not None:
        batch.acknowledge_through(done)
    lane.iterator.undeliver()
    assert info.unacknowledged_offset == -1
    first = 0 if done is None else done + 1
    assert one(lane).offsets.tolist() == list(range(first, 6))


def test_messages_and_batches_in_turn_give_each_record_once() -> None:
    lane, info = lane_of(records_of(range(20)))
    got: list[int] = []
    batches = lane.stream.batches(3)
    for _ in range(4):
        got.append(next(lane.iterator).offset)
        got += next(batches).offsets
        assert lane.iterator.has_next()
    assert got == list(range(16))
    assert info.consumed_offset == 16


# --- a partition that leaves, the lease, the end -------------------------------------------------------------------


def test_a_drain_waits_for_the_batch() -> None:
    lane, info = lane_of(records_of(range(6)))
    lane.put(lane.info(tp=OTHER), records_of([0]))
    batches = lane.stream.batches(4)
    batch = next(batches)
    backs: list[int] = []
    info.stop(lambda stopped: backs.append(stopped.consumed_offset))
    assert backs == []
    assert not batch.is_owned
    batch.acknowledge_through(1)
    assert backs == [], "the rest of the batch is in the program's hands"
    assert next(batches).partition == OTHER.partition
    assert backs == [4]


def test_a_batch_of_a_partition_that_left_is_not_handed_out() -> None:
    lane, info = lane_of(records_of(range(6)))
    assert one(lane, 2).is_owned
    info.stop(lambda _: None)
    with pytest.raises(ConsumerTimeoutException):
        one(lane, 2)


def test_without_a_lease_no_batch_is_handed_out() -> None:
    clock = ManualClock()
    lane, info = lane_of(records_of(range(3)), SHORT_MS, clock=clock)
    clock.move(10**10)
    with pytest.raises(ConsumerTimeoutException, match="ZooKeeper has not answered"):
        one(lane)
    assert info.unacknowledged_offset == -1
    lane.lease.set_until(clock.now_ms() + 1_000)
    assert one(lane).offsets.tolist() == [0, 1, 2]


def test_a_reset_ends_the_ownership_of_a_batch() -> None:
    lane, info = lane_of(records_of(range(6)))
    batch = one(lane, 2)
    info.reset(50)
    assert not batch.is_owned
    batch.acknowledge_through(1)
    assert info.consumed_offset == 50
    with pytest.raises(ConsumerTimeoutException):
        one(lane)
    assert info.consumed_offset == 50


def test_a_poison_message_ends_the_batch_before_it_and_is_raised_next() -> None:
    bad = bytearray(records_of([4, 5]))
    bad[-1] ^= 1
    lane, info = lane_of(records_of(range(4)) + bytes(bad) + records_of([6]))
    batches = lane.stream.batches()
    assert next(batches).offsets.tolist() == [0, 1, 2, 3]
    for _ in range(2):
        with pytest.raises(InvalidMessageException, match="clicks/0 at offset 4"):
            next(batches)
    assert lane.iterator.skip_poison() is not None
    assert next(batches).offsets.tolist() == [6]
    assert info.consumed_offset == 6


def test_the_end_of_the_stream_ends_the_iteration() -> None:
    lane, _ = lane_of(records_of(range(3)))
    batches = lane.stream.batches()
    assert next(batches).offsets.tolist() == [0, 1, 2]
    lane.queue.end(ShutdownMarker())
    assert list(batches) == []


def test_records_that_a_batch_holds_are_counted_once() -> None:
    lane, info = lane_of(records_of(range(1000)))
    with pytest.raises(ConsumerTimeoutException):
        for _ in lane.stream.batches(64, 200):
            pass
    wait_until(lambda: info.tally.count == 1000, f"{info.tally.count} records were counted")


def test_a_batch_outlives_its_stream() -> None:
    lane, _ = lane_of(records_of(range(100)))
    batch = one(lane, 10)
    take(lane.stream, 50)
    del lane
    assert [message.value for message in batch] == [b"v%d" % offset for offset in range(10)]


# --- Arrow ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_arrow_takes_a_batch_as_it_is(magic: int) -> None:
    records = RECORDS if magic == 2 else [Record(r.offset, r.timestamp, 0, r.key, r.value) for r in RECORDS]
    if magic == 0:
        records = [Record(r.offset, -1, -1, r.key, r.value) for r in records]
    lane, _ = lane_of(build_record_set(records, magic))
    batch = one(lane)
    table = pa.record_batch(batch)
    table.validate(full=True)
    assert table.schema.names == ["key", "value", "offset", "timestamp", "timestamp_type", "headers"]
    assert table.column("offset").to_pylist() == [0, 1, 3, 4]
    assert table.column("key").to_pylist() == [b"k0", None, b"", b"k4"]
    assert table.column("value").to_pylist() == [b"v0", b"", None, b"v" * 50]
    times = table.column("timestamp").cast(pa.int64()).to_pylist()
    assert times == ([None] * 4 if magic == 0 else [1_000, 2_000, 3_000, 4_000])
    headers = [
        [(header["key"], header["value"]) for header in of_one] for of_one in table.column("headers").to_pylist()
    ]
    assert headers == [list(record.headers) for record in records]
    assert table.schema.field("timestamp").type == pa.timestamp("ms", "UTC")


def test_a_header_name_that_is_no_utf_8_is_replaced() -> None:
    raw = build_record_set([Record(0, 0, 0, b"k", b"v", (("\u00e9\u00e9", b"x"), ("b", b"y")))], 2)
    damaged = raw.replace("\u00e9\u00e9".encode(), b"\xc3(\xc3(")
    lane = Lane(0)
    info = lane.info()
    lane.put(info, _with_checksum(damaged))
    batch = one(lane)
    assert batch[0].headers[0][0] == "\ufffd(\ufffd("
    table = pa.record_batch(batch)
    table.validate(full=True)
    assert [header["key"] for header in table.column("headers").to_pylist()[0]] == ["\ufffd(\ufffd(", "b"]


def _with_checksum(batch: bytes) -> bytes:
    import google_crc32c

    return batch[:17] + google_crc32c.value(batch[21:]).to_bytes(4, "big") + batch[21:]


def test_an_arrow_array_outlives_its_batch() -> None:
    lane, _ = lane_of(records_of(range(100)))
    table = pa.record_batch(one(lane))
    del lane
    assert table.column("value").to_pylist() == [b"v%d" % offset for offset in range(100)]


def test_without_the_compiled_module_pyarrow_makes_the_same_array(monkeypatch: pytest.MonkeyPatch) -> None:
    lane, _ = lane_of(build_record_set(RECORDS, 2))
    batch = one(lane)
    expected = pa.record_batch(batch)
    monkeypatch.setattr(record_batch, "ARROW_MODULE", None)
    assert pa.record_batch(batch).equals(expected)
    assert pa.record_batch(batch).schema.equals(expected.schema)


def test_offsets_can_be_summed_as_a_buffer() -> None:
    lane, _ = lane_of(records_of(range(1000)))
    assert sum(array("q", one(lane, 1000).offsets)) == sum(range(1000))
