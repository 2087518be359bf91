"""Records that cannot be decoded are passed over with exact offsets, after a second fetch gave the same bytes."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace

import google_crc32c
import pytest

from bridge.coordinator.release_features import RELEASES
from bridge.testing.fake_cluster import FakeCluster
from bridge.testing.fake_faults import ActiveFault, CorruptRecords, NullRecords, PartitionError
from zkconsumer.errors import InvalidMessageException, UnsupportedCodec
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import TopicPartition
from zkconsumer.wire import compression
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.schemas import FETCH

pytest.importorskip("pyarrow", reason="the columnar reader needs the extra [spark]")

import pyarrow as pa

from bridge.spark.decode import range_reader
from bridge.spark.decode.arrow_decoder import ArrowDecoder
from bridge.spark.decode.arrow_schema import CORRUPT, SCHEMA, ArrowBatchSpec, schema_of
from bridge.spark.decode.cluster_connections import ClusterConnectionPool, ClusterConnections
from bridge.spark.decode.corrupt_ranges import RAW_BYTES_MAX, CorruptRange
from bridge.spark.decode.offset_ranges import OffsetRange, OnCorruptRecord, ReadSettings
from bridge.spark.decode.range_partition import RangePartition, read_partition
from bridge.spark.decode.range_reader import read_range
from tests.spark_decoder_fixtures import decoder  # noqa: F401
from tests.transactional_records import ABORT, COMMIT, TRANSACTIONAL, Transactions, batch, signed
from zkconsumer.wire.isolation_level import READ_COMMITTED

TP = TopicPartition("clicks", 0)
FAIL = ReadSettings(fetch_bytes=1 << 20, request_timeout_ms=2_000, give_up_ms=5_000)
SKIP = replace(FAIL, on_corrupt_record=OnCorruptRecord.SKIP)
COLUMNS = (*SCHEMA.names, CORRUPT)
CONTROL_TYPE = 69
"""The low byte of the type in a control batch."""


class World:
    """A log on one fake broker, a reader, and what the reader passed over."""

    def __init__(self, release: str = "3.9.1") -> None:
        self.clock = ManualClock()
        self.magic = RELEASES[release].magic
        self.fake = FakeCluster(1, release=release)
        self.fake.create_topic(TP.topic, 1)
        self.passed_over: list[CorruptRange] = []
        self.connections = 0
        self.on_connect: Callable[[], None] = lambda: None
        self.cluster = self.open()
        self.decode = ArrowDecoder(ArrowBatchSpec(TP.topic, TP.partition, SCHEMA)).batches

    def open(self, _: object = None) -> ClusterConnections:
        def connect(*given: object, **more: object) -> object:
            self.connections += 1
            self.on_connect()
            return self.fake.connect(*given, **more)  # type: ignore[arg-type]

        return ClusterConnections(lambda: self.fake.addresses, connect, "test", self.clock)  # type: ignore[arg-type]

    def fill(self, number: int, codec: int = 0) -> None:
        self.fake.append(TP.topic, 0, [b"v" * 40] * number, codec=codec)

    @property
    def end(self) -> int:
        return self.fake.log_end(TP.topic, 0)

    def put(self, data: bytes, offsets: int) -> None:
        self.fake.append_raw(TP.topic, 0, data, self.end + offsets)

    def records(self, number: int) -> list[Record]:
        return [Record(self.end + n, -1 if self.magic == 0 else 5, 0, b"k", b"v" * 40) for n in range(number)]

    def read(self, first: int, end: int, settings: ReadSettings = SKIP) -> list[int]:
        pieces: Iterable[pa.RecordBatch] = read_range(
            self.cluster, OffsetRange(TP, first, end), settings, lambda _: self.clock.move(1_000), self.decode,
            on_corrupt=self.passed_over.append, clock=self.clock,
        )  # fmt: skip
        return [offset for piece in pieces for offset in piece.column("offset").to_pylist()]

    def ranges(self) -> list[tuple[int, int, bool]]:
        return [(each.first, each.end, each.has_end) for each in self.passed_over]

    @property
    def fetches(self) -> int:
        return len([each for each in self.fake.requests if each.api is FETCH])


def damaged(entry: bytes) -> bytes:
    return entry[:-5] + bytes([entry[-5] ^ 0xFF]) + entry[-4:]


def with_checksum(entry: bytearray) -> bytes:
    """The entry with the right checksum."""
    if entry[16] == 2:
        entry[17:21] = google_crc32c.value(bytes(entry[21:])).to_bytes(4, "big")
    else:
        entry[12:16] = zlib.crc32(entry[16:]).to_bytes(4, "big")
    return bytes(entry)


def with_codec(entry: bytes, codec: int) -> bytes:
    made = bytearray(entry)
    made[22 if made[16] == 2 else 17] |= codec
    return with_checksum(made)


# --- the second fetch -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [FAIL, SKIP], ids=["fail", "skip"])
def test_bytes_that_the_network_damaged_are_fetched_again_and_read(settings: ReadSettings) -> None:
    world = World()
    world.fill(10)
    world.fill(10)
    world.fake.inject(CorruptRecords(TP, 80), api=FETCH, times=1)
    assert world.read(0, 20, settings) == list(range(20))
    assert world.passed_over == []
    assert world.connections == 2, "the second fetch is over a new connection"


def test_the_second_fetch_uses_a_new_connection() -> None:
    world = World()
    world.fill(5)
    assert world.read(0, 5) == list(range(5))
    before = world.connections
    world.put(damaged(build_record_set(world.records(5), 2)), 5)
    assert world.read(5, 10) == []
    assert world.ranges() == [(5, 10, True)]
    assert world.connections > before


def test_a_query_that_fails_reads_twice_before_it_does() -> None:
    world = World()
    world.put(damaged(build_record_set(world.records(5), 2)), 5)
    with pytest.raises(InvalidMessageException, match=r"clicks/0: .*checksum.*skipOffsets"):
        world.read(0, 5, FAIL)
    assert world.fetches == 2


def test_bytes_that_differ_each_time_are_never_passed_over() -> None:
    world = World()
    world.fill(10)
    active = [world.fake.inject(CorruptRecords(TP, 70), api=FETCH, times=None)]

    def other_byte() -> None:
        world.fake.lift(active.pop())
        active.append(world.fake.inject(CorruptRecords(TP, 70 + world.connections), api=FETCH, times=None))

    world.on_connect = other_byte
    with pytest.raises(InvalidMessageException, match="checksum"):
        world.read(0, 10)
    assert world.passed_over == []
    assert world.fetches == range_reader.DIFFERENT_ANSWERS_MAX + 1


def test_a_repaired_log_is_read_although_its_first_answer_was_damaged() -> None:
    world = World()
    world.fill(10)
    world.put(damaged(build_record_set(world.records(5), 2)), 5)
    world.fill(5)
    world.fake.inject(CorruptRecords(TP, 80), api=FETCH, times=1)
    assert world.read(0, 20) == [*range(10), *range(15, 20)]
    assert world.ranges() == [(10, 15, True)], "only what two answers have in common"


def test_a_second_entry_that_only_one_answer_has_damaged_is_read() -> None:
    """The first entry is damaged in the log; the second one was damaged on the way of the second answer."""
    world = World()
    entry = damaged(build_record_set(world.records(5), 2))
    world.put(entry, 5)
    world.fill(5)
    faults = [None, CorruptRecords(TP, len(entry) + 80)]

    def second_answer() -> None:
        if world.connections == 2:
            world.fake.inject(faults[1], api=FETCH, times=1)  # type: ignore[arg-type]

    world.on_connect = second_answer
    assert world.read(0, 10) == list(range(5, 10))
    assert world.ranges() == [(0, 5, True)]


def test_a_sound_range_costs_nothing_of_this(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> None:
        pytest.fail("work for a sound range")

    for name in ("damage_of", "damage_of_headers", "bytes_before_damage", "head_of", "Damage"):
        monkeypatch.setattr(range_reader, name, forbidden)
    counts = []
    for settings in (FAIL, SKIP):
        world = World()
        for _ in range(50):
            world.fill(10)
        small = replace(settings, fetch_bytes=4_096)
        assert world.read(0, 500, small) == list(range(500))
        counts.append((world.fetches, world.connections))
    assert counts[0] == counts[1]


def test_many_damaged_entries_in_a_row_need_two_answers() -> None:
    world = World("0.8.2.2")
    for _ in range(200):
        world.put(with_codec(build_record_set(world.records(1), 0), 5), 1)
    world.fill(1)
    assert world.read(0, 201) == [200]
    assert world.ranges() == [(offset, offset + 1, True) for offset in range(200)]
    assert world.fetches == 2


# --- kinds of damage --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("release", ["0.8.2.2", "0.10.2.2", "3.9.1"])
def test_a_wrong_checksum_is_passed_over_with_exact_offsets_in_every_format(release: str, codec: int) -> None:
    """Gaps before and after the damaged entries, and ranges that begin and end inside of them."""
    for first, end in ((0, 98), (23, 98), (0, 78), (22, 75)):
        world = World(release)
        sound: list[int] = []
        for base in range(0, 100, 10):
            offsets = [base + n for n in (2, 3, 7)]
            entry = build_record_set([Record(o, -1, -1, b"k", b"v" * 40) for o in offsets], world.magic, codec)
            if base in (20, 70):
                entry = damaged(entry)
                offsets = offsets[:2] if world.magic < 2 and not codec else []
            sound += offsets
            world.fake.append_raw(TP.topic, 0, entry, base + 8)
        assert world.read(first, end) == [offset for offset in sound if first <= offset < end]
        is_plain = world.magic < 2 and not codec
        expected = [(base + 7 if is_plain else base + 2, base + 8) for base in (20, 70)]
        for (low, high), (at, until, has_end) in zip(expected, world.ranges(), strict=False):
            assert has_end
            assert max(low, first) >= at
            assert until == min(high, end)
            assert sound.count(at) == 0
        assert len(world.passed_over) == len([each for each in expected if each[0] < end and each[1] > first])


@pytest.mark.parametrize("codec", [5, 6, 7])
@pytest.mark.parametrize("release", ["0.8.2.2", "0.10.2.2", "3.9.1"])
def test_an_unknown_codec_is_passed_over(release: str, codec: int) -> None:
    world = World(release)
    world.fill(3)
    world.put(with_codec(build_record_set(world.records(1), world.magic), codec), 1)
    world.fill(3)
    assert world.read(0, 7) == [0, 1, 2, 4, 5, 6]
    assert world.ranges() == [(3, 4, True)]
    assert "codec" in world.passed_over[0].reason
    with pytest.raises(UnsupportedCodec, match="skipOffsets"):
        world.read(0, 7, FAIL)


@pytest.mark.parametrize("release", ["0.8.2.2", "0.10.2.2", "3.9.1"])
def test_a_compressed_entry_that_cannot_be_decompressed_is_passed_over(release: str) -> None:
    world = World(release)
    world.fill(3)
    entry = bytearray(build_record_set(world.records(4), world.magic, compression.GZIP))
    entry[-20] ^= 0xFF
    world.put(with_checksum(entry), 4)
    world.fill(3)
    assert world.read(0, 10) == [0, 1, 2, 7, 8, 9]
    assert world.ranges() == [(3, 7, True)]


def batch_with_an_invalid_record(records: list[Record], bad: int) -> bytes:
    """The header length of one record is changed, and the checksum is right."""
    one = len(build_record_set(records[:2], 2)) - len(build_record_set(records[:1], 2))
    batch = bytearray(build_record_set(records, 2))
    batch[61 + bad * one] += 2
    return with_checksum(batch)


@pytest.mark.parametrize("bad", [0, 3])
def test_the_records_before_an_invalid_one_in_a_batch_are_read_once(bad: int) -> None:
    world = World()
    world.fill(3)
    world.put(batch_with_an_invalid_record(world.records(8), bad), 8)
    world.fill(3)
    assert world.read(0, 14) == [*range(3 + bad), 11, 12, 13]
    assert world.ranges() == [(3 + bad, 11, True)]


@pytest.mark.parametrize("release", ["0.8.2.2", "0.10.2.2"])
def test_one_damaged_message_inside_a_compressed_one_is_one_offset(release: str) -> None:
    world = World(release)
    shift = 10 if world.magic == 1 else 0
    inner = bytearray(build_record_set([Record(10 + n - shift, -1, -1, b"k", b"v" * 9) for n in range(5)], world.magic))
    inner[3 * len(inner) // 5 - 1] ^= 0xFF
    for _ in range(2):
        world.fill(5)
    value = compression.compress(compression.GZIP, bytes(inner), world.magic)
    world.put(with_codec(build_record_set([Record(14, -1, -1, None, value)], world.magic), compression.GZIP), 5)
    world.fill(5)
    assert world.read(0, 20) == [n for n in range(20) if n != 12]
    assert world.ranges() == [(12, 13, True)]


def header_with(position: int, data: bytes) -> Callable[[World], bytes]:
    def made(world: World) -> bytes:
        entry = bytearray(build_record_set(world.records(10), world.magic))
        entry[position : position + len(data)] = data
        return bytes(entry)

    return made


@pytest.mark.parametrize(
    ("release", "broken"),
    [
        ("3.9.1", lambda _: b"\0" * 100),
        ("0.8.2.2", lambda _: b"\0" * 100),
        ("3.9.1", lambda _: b"\xff" * 100),
        ("3.9.1", header_with(8, b"\0\0\0\1")),
        ("3.9.1", header_with(16, b"\7")),
        ("3.9.1", header_with(0, b"\1")),
        ("0.8.2.2", header_with(0, b"\1")),
        ("3.9.1", header_with(23, b"\0\1\0\0")),
        ("3.9.1", header_with(23, b"\0\0\0\x0f")),
        ("3.9.1", header_with(23, b"\xff\0\0\0")),
        ("3.9.1", header_with(8, b"\x7f\xff\xff\xff")),
        ("3.9.1", header_with(8, b"\0\1\0\0")),
        ("0.8.2.2", header_with(8, b"\0\1\0\0")),
    ],
    ids=[
        "zeros", "zeros-0.8", "ones", "size-too-small", "unknown-format", "base-offset", "offset-0.8",
        "last-offset", "last-offset-in-the-log",
        "negative-delta", "size-of-2-GiB", "size-beyond-the-next", "size-beyond-the-next-0.8",
    ],
)  # fmt: skip
def test_the_end_of_a_damaged_header_is_the_next_offset_that_the_broker_sends(
    release: str, broken: Callable[[World], bytes]
) -> None:
    world = World(release)
    world.fill(10)
    world.put(broken(world), 10)
    world.fill(10)
    assert world.read(0, 30) == [*range(10), *range(20, 30)]
    assert world.ranges() == [(10, 20, False)]
    assert world.passed_over[0].data is None, "how many bytes it has is not known"


def test_a_message_with_the_offset_of_a_later_one_is_no_row() -> None:
    """Its checksum is right, since it does not cover the offset."""
    world = World("0.8.2.2")
    for number in range(7):
        offset = 5 if number == 3 else number
        world.put(build_record_set([Record(offset, -1, -1, b"k", b"%d" % number)], 0), 1)
    assert world.read(0, 7) == [0, 1, 2, 4, 5, 6]
    assert world.ranges() == [(3, 4, False)]


def test_a_damaged_header_at_the_end_of_a_range_ends_with_the_range() -> None:
    world = World()
    world.fill(10)
    world.put(b"\0" * 100, 10)
    assert world.read(0, 15) == list(range(10))
    assert world.ranges() == [(10, 15, False)]


def test_damage_that_the_broker_reports_twice_is_passed_over_and_once_is_not() -> None:
    world = World()
    world.fill(10)
    world.fill(10)
    world.fake.inject(PartitionError(TP, 2), api=FETCH, times=1)
    assert world.read(0, 20) == list(range(20))
    assert world.passed_over == []
    world.fake.inject(PartitionError(TP, 2), api=FETCH, times=6)
    assert world.read(0, 20) == list(range(5, 20)), "one fetch, a second one, and four probes"
    assert world.ranges() == [(0, 5, False)]


def test_records_that_the_broker_does_not_convert_are_no_damage() -> None:
    world = World()
    world.fill(10)
    world.fake.inject(NullRecords(TP, 76), api=FETCH, times=None)
    with pytest.raises(UnsupportedCodec, match="does not convert"):
        world.read(0, 10)


def test_a_damaged_marker_does_not_hide_the_next_transaction_of_its_producer() -> None:
    """The type in the marker that ends an aborted transaction is damaged; the producer commits its next one."""
    world = World()
    log = Transactions(world.fake, TP.topic)
    sound = log.plain(2)
    aborted = batch(log.end_offset, 3, 7)
    log.append(aborted, 3)
    marker_offset = log.end_offset
    log.end(7, ABORT)
    committed = []
    for _ in range(2):  # each as long as the marker
        record = Record(log.end_offset, 0, 0, None, b"v" * 10)
        committed.append(log.end_offset)
        log.append(signed(bytearray(build_record_set([record], 2)), 7, TRANSACTIONAL), 1)
    log.end(7, COMMIT)
    plain = len(build_record_set([Record(n, 0, 0, None, b"v") for n in range(2)], 2))
    places = [plain + len(aborted) + CONTROL_TYPE, CONTROL_TYPE]  # from the start, and from the marker on
    active: list[ActiveFault] = []

    def damage_next_answer() -> None:
        while active:
            world.fake.lift(active.pop())
        if places:
            active.append(world.fake.inject(CorruptRecords(TP, places.pop(0)), api=FETCH, times=None))

    world.on_connect = damage_next_answer
    settings = replace(SKIP, isolation_level=READ_COMMITTED)
    assert world.read(0, log.end_offset, settings) == [*sound, *committed]
    assert world.ranges() == [(marker_offset, marker_offset + 1, True)]


def test_no_bytes_make_the_reader_lose_count_or_wait() -> None:
    """One bit or more of a log is changed, also of sizes; each offset is a row, or passed over."""
    for seed in range(120):
        rng = random.Random(seed)
        release = rng.choice(["0.8.2.2", "0.10.2.2", "3.9.1"])
        world = World(release)
        while world.end < 24:
            codec = rng.choice([0, 0, 1])
            number = 4 if codec or world.magic == 2 else 1  # an uncompressed message is an entry
            number = min(number, 24 - world.end)
            entry = bytearray(build_record_set(world.records(number), world.magic, codec))
            if rng.random() < 0.3:
                for at in rng.sample(range(8, len(entry)), rng.choice([1, 1, 3])):
                    entry[at] ^= 1 << rng.randrange(8)
            world.put(bytes(entry), number)
        offsets = world.read(0, 24)
        ranges = [(each.first, each.end) for each in world.passed_over]
        assert offsets == sorted(set(offsets)), seed
        lost = {offset for first, end in ranges for offset in range(first, end)}
        assert sum(end - first for first, end in ranges) == len(lost), seed
        assert lost.isdisjoint(offsets), seed
        assert lost | set(offsets) == set(range(24)), seed


# --- rows of corrupt offsets ------------------------------------------------------------------------------------------


def rows(world: World, partition: RangePartition) -> list[dict[str, object]]:
    pool = ClusterConnectionPool(world.open)
    found = [row for batch in read_partition(partition, pool) for row in batch.to_pylist()]
    pool.close()
    return found


def partition_of(world: World, first: int, end: int, **more: object) -> RangePartition:
    settings = replace(SKIP, on_corrupt_record=OnCorruptRecord.DEAD_LETTER)
    given: dict[str, object] = {"columns": COLUMNS, "settings": settings, **more}
    return RangePartition(OffsetRange(TP, first, end), tuple(world.fake.addresses), **given)  # type: ignore[arg-type]


def test_a_row_for_each_corrupt_range_stands_between_the_records(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.fill(3)
    entry = damaged(build_record_set(world.records(4), 2))
    world.put(entry, 4)
    world.fill(2)
    found = rows(world, partition_of(world, 0, 9))
    assert [row["offset"] for row in found] == [0, 1, 2, 3, 7, 8]
    assert [row[CORRUPT] is None for row in found] == [True, True, True, False, True, True]
    bad = found[3]
    error = bad.pop(CORRUPT)
    assert isinstance(error, dict)
    assert error["end"] == 7
    assert "checksum" in error["error"]
    assert bad == {
        "key": None, "value": entry, "topic": "clicks", "partition": 0, "offset": 3, "timestamp": None,
        "timestampType": None, "headers": None,
    }  # fmt: skip
    assert "corrupt-records-skipped partition=clicks/0 first=3 end=7 end_known=True reason='record set" in caplog.text


def test_skip_gives_no_row_and_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.put(damaged(build_record_set(world.records(4), 2)), 4)
    world.fill(1)
    found = rows(world, partition_of(world, 0, 5, columns=tuple(SCHEMA.names), settings=SKIP))
    assert [row["offset"] for row in found] == [4]
    assert "corrupt-records-skipped partition=clicks/0 first=0 end=4" in caplog.text


def test_the_bytes_of_an_entry_above_the_limit_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert RAW_BYTES_MAX == 1 << 20
    monkeypatch.setattr("bridge.spark.decode.corrupt_ranges.RAW_BYTES_MAX", 50)
    world = World()
    world.put(damaged(build_record_set(world.records(4), 2)), 4)
    [bad] = rows(world, partition_of(world, 0, 4))
    assert (bad["offset"], bad["value"]) == (0, None)


def test_the_column_is_null_for_all_records_and_shares_its_memory() -> None:
    world = World()
    world.fill(10)
    batch = next(iter(read_partition(partition_of(world, 0, 10), ClusterConnectionPool(world.open))))
    assert batch.schema == schema_of(COLUMNS)
    assert batch.column(CORRUPT).null_count == 10
