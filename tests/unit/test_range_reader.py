"""A range of a partition comes out whole, is refused, or what is missing is told of: on fake brokers."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace

import pytest

from zkconsumer.errors import (
    BrokerUnreachable,
    InvalidMessageException,
    MessageSizeTooLargeException,
    UnsupportedCodec,
)
from zkconsumer.kafka.error_codes import BrokerError
from zkconsumer.kafka.sasl import SaslSettings
from zkconsumer.kafka.security import BrokerSecurity
from zkconsumer.kafka.tls import TlsSettings
from zkconsumer.testing.fake_cluster import FakeCluster
from zkconsumer.testing.fake_faults import CloseConnection, CorruptRecords, Delay, NullRecords, PartitionError
from zkconsumer.testing.fake_releases import RELEASES
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import TopicPartition
from zkconsumer.wire.build import build_record_set
from zkconsumer.wire.entries import Record
from zkconsumer.wire.schemas import FETCH, METADATA

pytest.importorskip("pyarrow", reason="the columnar reader needs the extra [spark]")

from bridge.spark import range_reader
from bridge.spark.cluster import Address, Cluster, Clusters
from bridge.spark.columns import Columns
from bridge.spark.range_reader import read_range
from bridge.spark.ranges import DataLost, OffsetRange, ReadSettings

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
        self.cluster = Cluster(lambda: self.fake.addresses, self.fake.connect, "test", self.clock)

    def pause(self, _: int) -> None:
        self.pauses += 1
        self.clock.move(PATIENCE_MS)
        for change in self.on_pause:
            change()
        self.on_pause.clear()

    def fill(self, number: int, size: int = 100, codec: int = 0) -> None:
        for first in range(0, number, 10):
            self.fake.append(TP.topic, 0, [b"v" * size] * min(10, number - first), codec=codec)

    def pieces(self, first: int, end: int, settings: ReadSettings = QUICK) -> Iterable[Columns]:
        return read_range(
            self.cluster, OffsetRange(TP, first, end), settings, self.pause, on_lost=self.lost.append, clock=self.clock
        )

    def offsets(self, first: int, end: int, settings: ReadSettings = QUICK) -> list[int]:
        return [offset for piece in self.pieces(first, end, settings) for offset in piece.offset.tolist()]


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
    seen = next(pieces).offset.tolist()
    world.fake.move_leader(TP.topic, 0, 1)
    for piece in pieces:
        seen += piece.offset.tolist()
    assert seen == list(range(400))


def test_a_broker_that_goes_away_and_comes_back_is_waited_for() -> None:
    world = World(brokers=1)
    world.fill(400)
    pieces = iter(world.pieces(0, 400))
    seen = next(pieces).offset.tolist()
    world.fake.stop_broker(0)
    world.on_pause.append(lambda: world.fake.start_broker(0))
    for piece in pieces:
        seen += piece.offset.tolist()
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
        seen += piece.offset.tolist()
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
    with pytest.raises(BrokerUnreachable, match=r"know no such partition.*deleted"):
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
    with pytest.raises(MessageSizeTooLargeException, match=r"offset 0 has 3000.. bytes, and 200000 are the most"):
        world.offsets(0, 1)


def test_a_size_that_the_log_does_not_hold_is_damage() -> None:
    world = World("0.8.2.2", brokers=1)
    sound = bytearray(build_record_set([Record(0, -1, -1, None, b"v" * 50)], 0))
    sound[8:12] = (100_000).to_bytes(4, "big")
    world.fake.append_raw(TP.topic, 0, bytes(sound), 1)
    with pytest.raises(InvalidMessageException, match="says that it has 100012 bytes"):
        world.offsets(0, 1)


def test_gaps_of_compaction_are_passed_over(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(range_reader, "GAP_PATIENCE_MS", 0)
    monkeypatch.setattr(range_reader, "FETCH_WAIT_MS", 10)
    world = World(brokers=1)
    kept = [0, 1, 5, 40, 41, 90]
    for offset in kept:
        world.fake.append_records(TP.topic, 0, [Record(offset, 5, 0, b"k", b"v")])
    world.fake.append_raw(TP.topic, 0, b"", 100)
    assert world.offsets(0, 100) == kept
    assert world.offsets(6, 40) == []
    assert world.offsets(91, 100) == [], "nothing behind it is left, up to the end of the range"
    assert set(caplog.messages) == {"offsets-without-records partition=clicks/0 first=91 end=100"}
    assert world.pauses == 0


@pytest.mark.parametrize("answers", [1, 3])
def test_an_answer_without_records_alone_is_no_gap(answers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiered storage that is slow looks like that."""
    monkeypatch.setattr(range_reader, "FETCH_WAIT_MS", 10)
    world = World(brokers=1)
    world.fill(10)
    world.fake.inject(NullRecords(TP, 0), api=FETCH, times=answers)
    assert world.offsets(0, 10) == list(range(10))


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
    with pytest.raises(DataLost, match="offsets 10 to 29 were to be read, but the log holds 30 to 99") as told:
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
    seen = next(pieces).offset.tolist()
    world.fake.delete_before(TP.topic, 0, 900)
    for piece in pieces:
        seen += piece.offset.tolist()
    [lost] = world.lost
    assert seen == [*range(lost.first), *range(900, 1_000)]
    assert lost.end == 900


@pytest.mark.parametrize("end", [40, 100], ids=["before", "at"])
def test_a_log_that_was_cut_is_waited_for_and_then_lost(end: int) -> None:
    world = World(brokers=1)
    world.fill(100)
    world.fake.truncate(TP.topic, 0, 40)
    world.fake.inject(Delay(0), api=FETCH, times=None)
    with pytest.raises(DataLost, match=r"offsets 60 to 99 were to be read, but the log holds 0 to 39"):
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


def test_damage_names_the_partition_and_what_can_be_done() -> None:
    world = World(brokers=1)
    world.fill(10)
    world.fake.inject(CorruptRecords(TP, 80), api=FETCH)
    with pytest.raises(InvalidMessageException, match=r"clicks/0: .*checksum.*startingOffsets"):
        world.offsets(0, 10)


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


def kept(world: World, number: int = 2) -> tuple[Clusters, list[Address], list[Cluster]]:
    opened: list[Cluster] = []

    def open_(address: Address) -> Cluster:
        opened.append(Cluster(lambda: address.brokers, world.fake.connect, address.client_id, world.clock))
        return opened[-1]

    addresses = [Address(tuple(world.fake.addresses), BrokerSecurity(), f"client-{n}") for n in range(number)]
    return Clusters(open_, kept_max=2), addresses, opened


def test_the_next_task_finds_the_connections_of_the_one_before() -> None:
    world = World(brokers=1)
    world.fill(20)
    clusters, [address, _], opened = kept(world)
    for _ in range(3):
        with clusters.lent(address) as cluster:
            [piece] = read_range(cluster, OffsetRange(TP, 0, 20), QUICK, world.pause)
            assert piece.offset.tolist() == list(range(20))
    assert len(opened) == 1
    assert len([s for s in world.fake.requests if s.api is METADATA]) == 1


def test_two_readers_at_once_have_a_cluster_each_and_errors_are_not_kept() -> None:
    world = World(brokers=1)
    clusters, [one, other], opened = kept(world)
    with clusters.lent(one) as first, clusters.lent(one) as second:
        assert first is not second
    with pytest.raises(ValueError), clusters.lent(one):
        raise ValueError
    with clusters.lent(one) as left, clusters.lent(other), clusters.lent(other):
        assert left in opened[:2]
    assert len(clusters._kept) == 2, "no more are kept than that"
    clusters.close()


def test_an_address_shows_no_secret() -> None:
    security = BrokerSecurity("SASL_SSL", TlsSettings(key_password="s3cret"), SaslSettings("PLAIN", "u", "s3cret"))
    address = Address((), security, "c")
    assert "s3cret" not in repr(address)
    assert pickle.loads(pickle.dumps(address)) == address
