"""A range of a partition comes out whole, is refused, or what is missing is told of: on fake brokers."""

from __future__ import annotations

import pickle
import re
import zlib
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace

import pytest

from bridge.coordinator.release_features import RELEASES
from bridge.testing.fake_cluster import FakeCluster
from bridge.testing.fake_faults import (
    CloseConnection,
    CorruptRecords,
    Delay,
    NullRecords,
    PartitionError,
    SlowTieredStorage,
)
from bridge.testing.fake_log import FakeLog
from zkconsumer.errors import (
    BrokerUnreachable,
    InvalidMessageException,
    MessageSizeTooLargeException,
    UnsupportedCodec,
)
from zkconsumer.kafka.broker_security import BrokerSecurity
from zkconsumer.kafka.error_codes import BrokerError
from zkconsumer.kafka.sasl_mechanisms import SaslSettings
from zkconsumer.kafka.tls import TlsSettings
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import TopicPartition
from zkconsumer.wire import compression
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.schemas import FETCH, LIST_OFFSETS, METADATA

pytest.importorskip("pyarrow", reason="the columnar reader needs the extra [spark]")

import pyarrow as pa

from bridge.spark.decode import range_reader
from bridge.spark.decode.arrow_decoder import ArrowDecoder
from bridge.spark.decode.arrow_schema import SCHEMA, ArrowBatchSpec
from bridge.spark.decode.cluster_connections import ClusterAddress, ClusterConnectionPool, ClusterConnections
from bridge.spark.decode.offset_ranges import (
    DataLost,
    FetchStalled,
    OffsetRange,
    ReadSettings,
    SkipOffsets,
    without_skipped,
)
from bridge.spark.decode.range_reader import read_range
from bridge.spark.offset_range_limits import parse_skip_offsets
from tests.spark_decoder_fixtures import decoder  # noqa: F401
from tests.transactional_records import ABORT, COMMIT, Transactions
from zkconsumer.wire.isolation_level import READ_COMMITTED

TP = TopicPartition("clicks", 0)
QUICK = ReadSettings(fetch_bytes=4096, request_timeout_ms=2_000, give_up_ms=5_000)
PATIENCE_MS = 1_000


class World:
    """A fake cluster, one that reads from it, and a clock that moves when the reader pauses."""

    def __init__(self, release: str = "3.9.1", brokers: int = 2) -> None:
        self.clock = ManualClock()
        self.fake = FakeCluster(brokers, release=release)
        self.fake.create_topic(TP.topic, 1, leaders={0: 0})
        self.on_pause: list[Callable[[], object]] = []
        self.pauses = 0
        self.lost: list[OffsetRange] = []
        self.cluster = ClusterConnections(lambda: self.fake.addresses, self.fake.connect, "test", self.clock)
        self.decode = ArrowDecoder(ArrowBatchSpec(TP.topic, TP.partition, SCHEMA)).batches

    def pause(self, _: int) -> None:
        self.pauses += 1
        self.clock.move(PATIENCE_MS)
        for change in self.on_pause:
            change()
        self.on_pause.clear()

    def fill(self, number: int, size: int = 100, codec: int = 0) -> None:
        for first in range(0, number, 10):
            self.fake.append(TP.topic, 0, [b"v" * size] * min(10, number - first), codec=codec)

    def pieces(self, first: int, end: int, settings: ReadSettings = QUICK) -> Iterable[pa.RecordBatch]:
        return read_range(
            self.cluster, OffsetRange(TP, first, end), settings, self.pause, self.decode, on_lost=self.lost.append,
            clock=self.clock,
        )  # fmt: skip

    def offsets(self, first: int, end: int, settings: ReadSettings = QUICK) -> list[int]:
        return [offset for batch in self.pieces(first, end, settings) for offset in offsets_of(batch)]


def offsets_of(batch: pa.RecordBatch) -> list[int]:
    found: list[int] = batch.column("offset").to_pylist()
    return found


def skips_of(text: str) -> SkipOffsets:
    """The option that an error names, read as a user pastes it."""
    [option] = re.findall(r"""\.option\("skipOffsets", '(\S+)'\)""", text)
    return parse_skip_offsets(option)


def read_without(world: World, first: int, end: int, skips: SkipOffsets) -> list[int]:
    """What the tasks of this range read when the query has the option."""
    kept, _ = without_skipped(OffsetRange(TP, first, end), skips)
    settings = replace(QUICK, skip_offsets=skips)
    return [offset for each in kept for offset in world.offsets(each.first, each.end, settings)]


@pytest.mark.parametrize("release", list(RELEASES))
def test_a_range_comes_out_whole_on_every_release(release: str) -> None:
    world = World(release, brokers=1)
    world.fill(500)
    assert world.offsets(0, 500) == list(range(500))
    assert world.offsets(7, 493) == list(range(7, 493))
    assert world.pauses == 0


@pytest.mark.parametrize("release", ["0.8.2.2", "0.10.2.2", "3.9.1"])
def test_a_range_may_begin_and_end_inside_a_compressed_entry(release: str) -> None:
    world = World(release, brokers=1)
    world.fill(60, codec=1)
    assert world.offsets(13, 37) == list(range(13, 37))


def test_no_more_is_asked_for_than_the_range_is_likely_to_have() -> None:
    world = World()
    world.fill(2_000)
    world.offsets(0, 1_000, replace(QUICK, fetch_bytes=1 << 20))
    asked = [s.body.topics[0].partitions[0] for s in world.fake.requests if s.api is FETCH]
    assert [row.partition_max_bytes for row in asked] == [1_024_000]
    assert world.offsets(0, 10) == list(range(10))


def test_a_leader_that_moves_is_followed() -> None:
    world = World()
    world.fill(400)
    pieces = iter(world.pieces(0, 400))
    seen = offsets_of(next(pieces))
    world.fake.move_leader(TP.topic, 0, 1)
    for piece in pieces:
        seen += offsets_of(piece)
    assert seen == list(range(400))


def test_a_broker_that_goes_away_and_comes_back_is_waited_for() -> None:
    world = World(brokers=1)
    world.fill(400)
    pieces = iter(world.pieces(0, 400))
    seen = offsets_of(next(pieces))
    world.fake.stop_broker(0)
    world.on_pause.append(lambda: world.fake.start_broker(0))
    for piece in pieces:
        seen += offsets_of(piece)
    assert seen == list(range(400))
    assert world.pauses >= 1


def test_nobody_who_leads_is_given_up_in_time() -> None:
    world = World(brokers=1)
    world.fill(10)
    world.fake.stop_broker(0)
    with pytest.raises(BrokerUnreachable):
        world.offsets(0, 10)
    assert world.pauses <= QUICK.give_up_ms // PATIENCE_MS + 1


def test_a_slow_user_of_the_records_costs_no_patience() -> None:
    """The time in which nobody asks for more is not counted."""
    world = World(brokers=1)
    world.fill(400)
    seen: list[int] = []
    for piece in world.pieces(0, 400):
        seen += offsets_of(piece)
        world.clock.move(10 * QUICK.give_up_ms)
        world.fake.inject(CloseConnection(), api=FETCH, times=1)
    assert seen == list(range(400))


def test_an_error_that_does_not_pass_is_raised_at_once() -> None:
    world = World(brokers=1)
    world.fill(10)
    world.fake.inject(PartitionError(TP, 29), api=FETCH)
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        world.offsets(0, 10)
    assert world.pauses == 0


def test_an_error_that_passes_is_waited_for() -> None:
    world = World(brokers=1)
    world.fill(10)
    world.fake.inject(PartitionError(TP, 6), api=FETCH, times=3)
    assert world.offsets(0, 10) == list(range(10))
    assert world.pauses == 2


def test_a_topic_that_is_not_there_is_given_up_and_not_made() -> None:
    world = World("0.10.2.2", brokers=1)
    world.fake.delete_topic(TP.topic)
    with pytest.raises(BrokerUnreachable, match=r"does not exist at the brokers.*deleted"):
        world.offsets(0, 10)
    asked = [s.body.topics for s in world.fake.requests if s.api is METADATA]
    assert asked
    assert not any(asked)


@pytest.mark.parametrize("release", ["0.8.2.2", "3.9.1"])
def test_a_message_larger_than_the_fetch_size_comes_out(release: str) -> None:
    world = World(release, brokers=1)
    world.fill(10)
    world.fake.append(TP.topic, 0, [b"x" * 300_000])
    world.fill(10)
    assert world.offsets(0, 21) == list(range(21))


def test_a_message_above_the_largest_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_reader, "FETCH_BYTES_MAX", 200_000)
    world = World("0.8.2.2", brokers=1)
    world.fake.append(TP.topic, 0, [b"x" * 300_000])
    with pytest.raises(MessageSizeTooLargeException, match=r"offset 0 has 3000.. bytes, but the maximum is 200000"):
        world.offsets(0, 1)


def test_a_size_that_the_log_does_not_hold_is_damage() -> None:
    world = World("0.8.2.2", brokers=1)
    sound = bytearray(build_record_set([Record(0, -1, -1, None, b"v" * 50)], 0))
    sound[8:12] = (100_000).to_bytes(4, "big")
    world.fake.append_raw(TP.topic, 0, bytes(sound), 1)
    with pytest.raises(InvalidMessageException, match="has a header with 100012 bytes"):
        world.offsets(0, 1)


# --- offsets without a record ---------------------------------------------------------------------------------------


KEPT = [0, 1, 5, 40, 41, 90]
"""What compaction leaves of offsets 0 to 99 in the tests below."""


def compacted(release: str, codec: int, by: int = 1) -> World:
    """A log that holds ``KEPT``, ``by`` records in each entry."""
    world = World(release, brokers=1)
    for first in range(0, len(KEPT), by):
        entry = [Record(offset, -1, -1, b"k", b"v") for offset in KEPT[first : first + by]]
        world.fake.append_records(TP.topic, 0, entry, codec)
    return world


@pytest.mark.parametrize("by", [1, 2, 3])
@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("release", ["0.8.2.2", "0.10.2.2", "3.9.1"])
def test_gaps_of_compaction_are_passed_over_where_a_later_entry_follows(release: str, codec: int, by: int) -> None:
    """Formats 0 to 2.  The offset of a compressed message is its last one, and the gap may be inside of it."""
    world = compacted(release, codec, by)
    for first in range(91):
        for end in (first + 1, (first + 91) // 2 + 1, 91):
            assert world.offsets(first, end) == [offset for offset in KEPT if first <= offset < end]
    assert world.pauses == 0


def test_the_entry_after_the_range_proves_that_its_end_is_empty_and_comes_in_the_same_answer() -> None:
    world = compacted("3.9.1", 0)
    assert world.offsets(6, 40) == []
    assert [s.body.topics[0].partitions[0].fetch_offset for s in world.fake.requests if s.api is FETCH] == [6]


def test_an_entry_that_is_cut_off_proves_nothing_and_is_fetched_whole() -> None:
    """Brokers before 0.10.1 cut an entry at the size of the fetch."""
    world = World("0.8.2.2", brokers=1)
    world.fill(10)
    world.fake.append_records(TP.topic, 0, [Record(50, -1, -1, None, b"x" * 300_000)])
    assert world.offsets(10, 40) == []
    sizes = [s.body.topics[0].partitions[0].partition_max_bytes for s in world.fake.requests if s.api is FETCH]
    assert sizes[0] < 300_000 < sizes[1], "the gap was passed over when the entry was whole"


def test_a_batch_keeps_its_last_offset_when_compaction_takes_its_last_records() -> None:
    world = World(brokers=1)
    world.fill(10)
    half = build_record_set([Record(12, 5, 0, b"k", b"v")], 2, base_offset=10, last_offset=19)
    world.fake.append_raw(TP.topic, 0, half, 20)
    assert world.offsets(0, 20) == [*range(10), 12]
    assert world.offsets(15, 20) == []
    empty = build_record_set([], 2, base_offset=25, last_offset=29)
    world.fake.append_raw(TP.topic, 0, empty, 30)
    assert world.offsets(13, 30) == [], "an empty batch, which keeps a producer's state, is an entry as well"
    assert world.pauses == 0


@pytest.mark.parametrize("fails", [True, False], ids=["failOnDataLoss", "passes-losses-over"])
@pytest.mark.parametrize("release", ["0.8.2.2", "0.11.0.3", "3.9.1"])
def test_answers_without_a_record_never_prove_a_gap(release: str, fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiered storage that is slow for longer than a task waits: the records exist, so the task fails."""
    monkeypatch.setattr(range_reader, "FETCH_WAIT_MS", 1)
    world = World(release, brokers=1)
    world.fill(1_000)
    slow = world.fake.inject(SlowTieredStorage(TP), api=FETCH, times=None)
    with pytest.raises(FetchStalled) as raised:
        world.offsets(20, 1_000, replace(QUICK, fail_on_data_loss=fails))
    assert str(raised.value).startswith(f"clicks/0: no record arrived from offset 20 on for {QUICK.give_up_ms} ms: ")
    assert """.option("skipOffsets", '{"clicks":{"0":[[20,1000]]}}')""" in str(raised.value)
    assert "also not with failOnDataLoss=false" in str(raised.value)
    assert world.lost == []
    assert QUICK.give_up_ms // PATIENCE_MS <= world.pauses <= QUICK.give_up_ms // PATIENCE_MS + 1
    world.fake.lift(slow)
    assert world.offsets(20, 1_000) == list(range(20, 1_000))


class PassingClock(ManualClock):
    """Half a second passes between two looks at it, as while a broker waits for its storage."""

    def now_ms(self) -> int:
        self.move(500)
        return super().now_ms()


@pytest.mark.parametrize("fails", [True, False], ids=["failOnDataLoss", "passes-losses-over"])
def test_a_range_of_records_that_exist_is_not_dropped_with_the_settings_as_shipped(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_reader, "FETCH_WAIT_MS", 1)
    world = World(brokers=1)
    world.fill(1_000)
    world.fake.inject(SlowTieredStorage(TP), api=FETCH, times=None)
    pieces = read_range(
        world.cluster, OffsetRange(TP, 0, 1_000), ReadSettings(fail_on_data_loss=fails), world.pause, world.decode,
        on_lost=world.lost.append, clock=PassingClock(),
    )  # fmt: skip
    with pytest.raises(FetchStalled, match="no record arrived from offset 0 on for 120000 ms"):
        list(pieces)
    assert world.lost == []


@pytest.mark.parametrize("answers", [1, 3])
def test_storage_that_is_slow_for_some_answers_is_waited_for(answers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_reader, "FETCH_WAIT_MS", 1)
    world = World(brokers=1)
    world.fill(10)
    world.fake.inject(SlowTieredStorage(TP), api=FETCH, times=answers)
    assert world.offsets(0, 10) == list(range(10))
    assert world.pauses == answers


def test_storage_that_becomes_slow_in_the_middle_of_a_range_fails_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_reader, "FETCH_WAIT_MS", 1)
    world = World(brokers=1)
    world.fill(400)
    pieces = iter(world.pieces(0, 400))
    seen = offsets_of(next(pieces))
    world.fake.inject(SlowTieredStorage(TP), api=FETCH, times=None)
    with pytest.raises(FetchStalled) as raised:
        for piece in pieces:
            seen += offsets_of(piece)
    assert seen == list(range(raised.value.rest.first))
    assert raised.value.rest == OffsetRange(TP, len(seen), 400)


def test_a_gap_at_the_end_of_a_log_cannot_be_proved_and_the_option_leaves_it_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No later entry exists: the error names the option, which ``without_skipped`` carries out."""
    monkeypatch.setattr(range_reader, "FETCH_WAIT_MS", 1)
    world = compacted("3.9.1", 0)
    world.fake.append_raw(TP.topic, 0, b"", 100)
    with pytest.raises(FetchStalled) as raised:
        world.offsets(41, 100)
    skips = skips_of(str(raised.value))
    assert skips == {TP: ((91, 100),)}
    assert read_without(world, 0, 100, skips) == KEPT


def test_a_log_start_offset_that_is_later_proves_a_loss_and_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka answers error 1 there; another implementation of its protocol need not."""
    world = World(brokers=1)
    world.fill(100)
    world.fake.delete_before(TP.topic, 0, 30)
    monkeypatch.setattr(FakeLog, "can_read_from", lambda self, offset: True)
    with pytest.raises(DataLost, match="offsets 10 to 29 must be read, but the log contains 30 to 99"):
        world.offsets(10, 60)
    world.fake.inject(SlowTieredStorage(TP), api=FETCH, times=1)
    assert world.offsets(10, 60, replace(QUICK, fail_on_data_loss=False)) == list(range(30, 60))
    assert world.lost == [OffsetRange(TP, 10, 30)]


@pytest.mark.parametrize(("codec", "begins_later"), [(0, True), (1, False)])
def test_a_compressed_message_does_not_say_where_it_begins(
    codec: int, begins_later: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Format 1: its header has the offset of its last message, so it is no proof that the ones before are gone."""
    world = World(brokers=1)
    records = [Record(offset, 5, 0, None, b"v") for offset in range(20, 30)]
    world.fake.append_raw(TP.topic, 0, build_record_set(records, 1, codec), 30)
    world.fake.delete_before(TP.topic, 0, 15)
    monkeypatch.setattr(FakeLog, "can_read_from", lambda self, offset: True)
    if begins_later:
        with pytest.raises(DataLost, match="offsets 10 to 14 must be read"):
            world.offsets(10, 30)
    else:
        assert world.offsets(10, 30) == list(range(20, 30))


@pytest.mark.parametrize("fails", [True, False], ids=["failOnDataLoss", "passes-losses-over"])
def test_an_offset_that_is_refused_although_the_log_holds_it_is_not_lost(fails: bool) -> None:
    """A broker whose metadata of tiered segments is not there yet answers OFFSET_OUT_OF_RANGE."""
    world = World(brokers=1)
    world.fill(100)
    refused = world.fake.inject(PartitionError(TP, 1), api=FETCH, times=None)
    with pytest.raises(FetchStalled, match=r"OFFSET_OUT_OF_RANGE.*it reports 100 as the end of its log"):
        world.offsets(10, 60, replace(QUICK, fail_on_data_loss=fails))
    assert world.lost == []
    world.fake.lift(refused)
    assert world.offsets(10, 60) == list(range(10, 60))


def test_records_are_lost_when_list_offsets_says_so_and_not_by_a_high_watermark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new leader's high watermark can be low for a while; ListOffsets is refused then (KIP-207)."""
    monkeypatch.setattr(range_reader, "FETCH_WAIT_MS", 1)
    world = World(brokers=1)
    world.fill(40)
    unknown = world.fake.inject(PartitionError(TP, 78), api=LIST_OFFSETS, times=None)
    with pytest.raises(BrokerError, match="OFFSET_NOT_AVAILABLE"):
        world.offsets(40, 100, replace(QUICK, fail_on_data_loss=False))
    assert world.lost == []
    world.fake.lift(unknown)
    assert world.offsets(40, 100, replace(QUICK, fail_on_data_loss=False)) == []
    assert world.lost == [OffsetRange(TP, 40, 100)]


def test_a_range_may_end_in_control_records() -> None:
    world = World(brokers=1)
    world.fill(10)
    control = build_record_set([Record(10, 5, 0, b"\0\0\0\0", b"\0\0\0\0\0\0")], 2, control=True)
    world.fake.append_raw(TP.topic, 0, control, 11)
    assert world.offsets(0, 11) == list(range(10))
    assert world.offsets(10, 11) == []


def test_what_retention_took_is_data_lost() -> None:
    world = World(brokers=1)
    world.fill(100)
    world.fake.delete_before(TP.topic, 0, 30)
    with pytest.raises(DataLost, match="offsets 10 to 29 must be read, but the log contains 30 to 99") as told:
        world.offsets(10, 60)
    assert str(told.value).startswith("clicks/0: ")
    assert "failOnDataLoss=false" in str(told.value)
    assert world.lost == []


def test_with_data_loss_allowed_it_goes_on_where_the_log_begins() -> None:
    world = World(brokers=1)
    world.fill(100)
    world.fake.delete_before(TP.topic, 0, 30)
    allowed = replace(QUICK, fail_on_data_loss=False)
    assert world.offsets(10, 60, allowed) == list(range(30, 60))
    assert world.lost == [OffsetRange(TP, 10, 30)]
    world.lost.clear()
    assert world.offsets(0, 20, allowed) == []
    assert world.lost == [OffsetRange(TP, 0, 20)]


def test_retention_in_the_middle_of_a_range() -> None:
    world = World(brokers=1)
    world.fill(1_000)
    pieces = iter(world.pieces(0, 1_000, replace(QUICK, fail_on_data_loss=False)))
    seen = offsets_of(next(pieces))
    world.fake.delete_before(TP.topic, 0, 900)
    for piece in pieces:
        seen += offsets_of(piece)
    [lost] = world.lost
    assert seen == [*range(lost.first), *range(900, 1_000)]
    assert lost.end == 900


@pytest.mark.parametrize("end", [40, 100], ids=["before", "at"])
def test_a_log_that_was_cut_is_waited_for_and_then_lost(end: int) -> None:
    world = World(brokers=1)
    world.fill(100)
    world.fake.truncate(TP.topic, 0, 40)
    world.fake.inject(Delay(0), api=FETCH, times=None)
    with pytest.raises(DataLost, match=r"offsets 60 to 99 must be read, but the log contains 0 to 39"):
        world.offsets(60, 100)
    assert QUICK.give_up_ms // PATIENCE_MS <= world.pauses <= QUICK.give_up_ms // PATIENCE_MS + 2
    assert world.offsets(60, 100, replace(QUICK, fail_on_data_loss=False)) == []
    assert world.lost == [OffsetRange(TP, 60, 100)]


def test_a_replica_that_catches_up_is_waited_for() -> None:
    world = World(brokers=1)
    world.fill(100)
    world.fake.truncate(TP.topic, 0, 40)
    world.on_pause.append(lambda: world.fill(60))
    assert world.offsets(60, 100) == list(range(60, 100))


def test_damage_names_the_partition_and_the_option_that_goes_on_without_it() -> None:
    world = World(brokers=1)
    world.fill(30)
    world.fake.inject(CorruptRecords(TP, 80), api=FETCH, times=None)
    with pytest.raises(InvalidMessageException, match=r"clicks/0: .*checksum.*offsets 0 to 9 .a stream: on") as raised:
        world.offsets(0, 30)
    assert skips_of(str(raised.value)) == {TP: ((0, 10),)}


def read_past_damage(world: World, first: int, end: int) -> tuple[list[int], set[int]]:
    """What a query reads whose user sets the option of each error, and what it leaves out."""
    skips: SkipOffsets = {}
    for _ in range(20):
        before = skips
        try:
            return read_without(world, first, end, skips), {o for a, b in skips[TP] for o in range(a, b)}
        except InvalidMessageException as error:
            skips = skips_of(str(error))
        assert skips != before, "the option had no effect"
    raise AssertionError("the options lead nowhere")


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("release", ["0.8.2.2", "0.10.2.2", "3.9.1"])
def test_what_the_error_of_a_damaged_log_says_leads_to_the_end_of_the_range(release: str, codec: int) -> None:
    """Two damaged entries, gaps before and after them, ranges that begin and end inside them, and every format."""
    world = World(release, brokers=1)
    magic = RELEASES[release].magic
    sound: list[int] = []
    for first in range(0, 100, 10):
        offsets = [first + n for n in (2, 3, 7)]
        entry = build_record_set([Record(o, -1, -1, b"k", b"v" * 40) for o in offsets], magic, codec)
        if first in (20, 70):
            entry = entry[:-5] + bytes([entry[-5] ^ 0xFF]) + entry[-4:]
            # Without compression three messages are three entries, and one of them is damaged.
            offsets = offsets[:2] if magic < 2 and not codec else []
        sound += offsets
        world.fake.append_raw(TP.topic, 0, entry, first + 8)
    for first, end in ((0, 98), (23, 98), (0, 78), (22, 75)):
        got, left_out = read_past_damage(world, first, end)
        assert got == [offset for offset in sound if first <= offset < end]
        assert left_out.isdisjoint(sound), "no more than what is damaged"
    assert world.lost == []


@pytest.mark.parametrize("release", ["0.8.2.2", "0.10.2.2"])
def test_one_damaged_message_inside_a_compressed_one_is_left_out_alone(release: str) -> None:
    world = World(release, brokers=1)
    magic = RELEASES[release].magic
    shift = 10 if magic == 1 else 0
    inner = bytearray(build_record_set([Record(10 + n - shift, -1, -1, b"k", b"v" * 9) for n in range(5)], magic))
    inner[3 * len(inner) // 5 - 1] ^= 0xFF
    world.fill(10)
    # A message whose value is the compressed set is a wrapper, but for the codec in its attributes.
    value = compression.compress(compression.GZIP, bytes(inner), magic)
    wrapper = bytearray(build_record_set([Record(14, -1, -1, None, value)], magic))
    wrapper[17] |= compression.GZIP
    wrapper[12:16] = zlib.crc32(wrapper[16:]).to_bytes(4, "big")
    world.fake.append_raw(TP.topic, 0, bytes(wrapper), 15)
    world.fill(10)
    got, left_out = read_past_damage(world, 0, 25)
    assert (got, left_out) == ([n for n in range(25) if n != 12], {12})


def test_damaged_sizes_and_offsets_say_that_the_end_is_not_known() -> None:
    world = World(brokers=1)
    world.fill(10)
    world.fake.append_raw(TP.topic, 0, b"\0" * 100, 20)
    world.fill(10)
    with pytest.raises(InvalidMessageException, match=r"It is not known where the damage ends") as raised:
        world.offsets(0, 30)
    assert skips_of(str(raised.value)) == {TP: ((10, 30),)}
    assert read_without(world, 0, 30, {TP: ((10, 20),)}) == [*range(10), *range(20, 30)]


def test_damage_behind_the_range_is_not_looked_at() -> None:
    world = World(brokers=1)
    world.fill(10)
    world.fake.append_raw(TP.topic, 0, b"\xff" * 100, 20)
    assert world.offsets(0, 10) == list(range(10))


def test_records_that_the_broker_cannot_convert_are_named() -> None:
    world = World(brokers=1)
    world.fill(10)
    world.fake.inject(NullRecords(TP, 76), api=FETCH)
    with pytest.raises(UnsupportedCodec, match="does not convert the zstd records at offset 0"):
        world.offsets(0, 10)


def test_a_reader_that_is_left_half_way_leaves_nothing_on_the_connection() -> None:
    world = World(brokers=1)
    world.fill(400)
    with closing(iter(world.pieces(0, 400))) as pieces:  # type: ignore[type-var]
        next(pieces)
    assert world.offsets(100, 400) == list(range(100, 400))
    assert world.pauses == 0


# --- clusters that are kept ---------------------------------------------------------------------------------------


def kept(world: World, number: int = 2) -> tuple[ClusterConnectionPool, list[ClusterAddress], list[ClusterConnections]]:
    opened: list[ClusterConnections] = []

    def open_(address: ClusterAddress) -> ClusterConnections:
        opened.append(ClusterConnections(lambda: address.brokers, world.fake.connect, address.client_id, world.clock))
        return opened[-1]

    addresses = [ClusterAddress(tuple(world.fake.addresses), BrokerSecurity(), f"client-{n}") for n in range(number)]
    return ClusterConnectionPool(open_, kept_max=2), addresses, opened


def test_the_next_task_finds_the_connections_of_the_one_before() -> None:
    world = World(brokers=1)
    world.fill(20)
    clusters, [address, _], opened = kept(world)
    for _ in range(3):
        with clusters.borrow(address) as cluster:
            [piece] = read_range(cluster, OffsetRange(TP, 0, 20), QUICK, world.pause, world.decode)
            assert offsets_of(piece) == list(range(20))
    assert len(opened) == 1
    assert len([s for s in world.fake.requests if s.api is METADATA]) == 1


def test_two_readers_at_once_have_a_cluster_each_and_errors_are_not_kept() -> None:
    world = World(brokers=1)
    clusters, [one, other], opened = kept(world)
    with clusters.borrow(one) as first, clusters.borrow(one) as second:
        assert first is not second
    with pytest.raises(ValueError), clusters.borrow(one):
        raise ValueError
    with clusters.borrow(one) as left, clusters.borrow(other), clusters.borrow(other):
        assert left in opened[:2]
    assert len(clusters._kept) == 2, "no more are kept than that"
    clusters.close()


def test_an_address_shows_no_secret() -> None:
    security = BrokerSecurity("SASL_SSL", TlsSettings(key_password="s3cret"), SaslSettings("PLAIN", "u", "s3cret"))
    address = ClusterAddress((), security, "c")
    assert "s3cret" not in repr(address)
    assert pickle.loads(pickle.dumps(address)) == address


# --- transactions -----------------------------------------------------------------------------------------------------


COMMITTED = replace(QUICK, isolation_level=READ_COMMITTED)


def test_records_of_aborted_transactions_are_left_out_of_committed_reading() -> None:
    world = World()
    log = Transactions(world.fake, TP.topic)
    wanted = log.plain(2)
    log.records(7, 3)
    wanted += log.records(8, 2)
    log.end(7, ABORT)
    log.end(8, COMMIT)
    wanted += log.records(7, 1)
    log.end(7, COMMIT)
    assert world.offsets(0, log.end_offset, COMMITTED) == wanted
    small = replace(COMMITTED, fetch_bytes=1)
    assert world.offsets(0, log.end_offset, small) == wanted, "each response has the transactions that it needs"
    everything = [*range(5), *range(5, 7), 9]
    assert world.offsets(0, log.end_offset) == everything


def test_a_range_with_an_open_transaction_fails_and_is_never_taken_for_lost_records() -> None:
    world = World()
    log = Transactions(world.fake, TP.topic)
    log.plain(1)
    log.records(7, 2)
    for fails in (True, False):
        settings = replace(COMMITTED, fail_on_data_loss=fails)
        with pytest.raises(FetchStalled, match=r"end the open transaction at that offset"):
            world.offsets(0, log.end_offset, settings)
    assert world.lost == []
    world.on_pause.append(lambda: log.end(7, COMMIT))
    assert world.offsets(0, 3, COMMITTED) == [0, 1, 2], "it ends while the task waits"
