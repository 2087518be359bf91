"""Streams with ``isolation.level=read_committed`` on brokers in memory that hold transactions."""

from __future__ import annotations

import pytest

from bridge.testing.fake_cluster import FakeCluster
from tests.in_memory_fixtures import DEADLINE_MS, MakeConnector, MakeWorld, wait_until
from tests.transactional_records import ABORT, COMMIT, Transactions
from tests.unit.kafka.test_fetcher import SOON_MS, TOPIC, Bench, MakeBench, bench
from zkconsumer.errors import ConsumerTimeoutException, InvalidMessageException
from zkconsumer.types import TopicPartition
from zkconsumer.wire.entries import Record
from zkconsumer.wire.isolation_level import READ_COMMITTED, READ_UNCOMMITTED
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.schemas import FETCH, LIST_OFFSETS

RELEASES = ("0.11.0.3", "1.1.1", "3.9.1")
T0 = TopicPartition(TOPIC, 0)

__all__ = ["bench"]


def transactions(release: str = "3.9.1") -> Transactions:
    cluster = FakeCluster(release=release)
    cluster.create_topic(TOPIC)
    return Transactions(cluster, TOPIC)


def is_at_end(made: Bench) -> bool:
    """Whether the stream has no record for a moment; it consumes what it omits."""
    delivery = made.streams[0].iterator().delivery
    delivery.timeout_ms = SOON_MS
    try:
        return not made.streams[0].iterator().has_next()
    except ConsumerTimeoutException:
        return True
    finally:
        delivery.timeout_ms = DEADLINE_MS


@pytest.mark.parametrize("release", RELEASES)
def test_records_of_aborted_transactions_are_not_delivered(release: str, bench: MakeBench) -> None:
    log = transactions(release)
    first = log.records(7, 2)
    log.records(8, 3)
    second = log.records(7, 1)
    log.end(8, ABORT)
    third = log.plain(2)
    log.end(7, COMMIT)
    fourth = log.records(8, 1)
    log.end(8, COMMIT)
    made = bench(log.cluster, isolation_level=READ_COMMITTED)
    [info] = made.start(0)
    wanted = [*first, *second, *third, *fourth]
    assert made.take(len(wanted)) == {0: wanted}
    wait_until(lambda: info.fetch_offset == log.end_offset, "everything was fetched")
    assert is_at_end(made)
    assert info.consumed_offset == log.end_offset, "the markers are consumed, too"


def test_all_records_are_delivered_to_a_reader_of_uncommitted_records(bench: MakeBench) -> None:
    log = transactions()
    wanted = [*log.records(7, 2), *log.records(8, 1)]
    log.end(7, ABORT)
    made = bench(log.cluster, isolation_level=READ_UNCOMMITTED)
    made.start(0)
    assert made.take(3) == {0: wanted}


def test_the_records_of_an_open_transaction_follow_when_it_is_committed(bench: MakeBench) -> None:
    log = transactions()
    before = log.plain(2)
    waiting = log.records(7, 2)
    behind = log.plain(1)
    made = bench(log.cluster, isolation_level=READ_COMMITTED)
    [info] = made.start(0)
    assert made.take(2) == {0: before}
    assert is_at_end(made)
    assert info.high_watermark == waiting[0], "the lag counts up to the last stable offset"
    log.end(7, COMMIT)
    assert made.take(3) == {0: [*waiting, *behind]}


def test_a_partition_with_nothing_but_aborted_records_is_consumed_to_its_end(bench: MakeBench) -> None:
    log = transactions()
    for producer in range(3):
        log.records(producer, 4)
        log.end(producer, ABORT)
    made = bench(log.cluster, isolation_level=READ_COMMITTED)
    [info] = made.start(0)
    wait_until(lambda: info.fetch_offset == log.end_offset, "everything was fetched")
    assert is_at_end(made)
    assert info.consumed_offset == log.end_offset


def test_a_reader_that_begins_inside_of_an_aborted_transaction_receives_none_of_it(bench: MakeBench) -> None:
    log = transactions()
    log.records(7, 2)
    inside = log.records(7, 2)
    log.end(7, ABORT)
    after = log.plain(1)
    made = bench(log.cluster, isolation_level=READ_COMMITTED)
    made.start(0, offset=inside[0])
    assert made.take(1) == {0: after}


def test_small_responses_end_in_the_middle_of_a_transaction(bench: MakeBench) -> None:
    """Each response has the aborted transactions again that it concerns, so the reader keeps none between two."""
    log = transactions()
    wanted: list[int] = []
    for number in range(6):
        log.records(7, 2)
        wanted += log.plain(1)
        log.records(7, 1)
        log.end(7, ABORT if number % 2 else COMMIT)
        if not number % 2:
            wanted = sorted({*wanted, *range(log.end_offset - 5, log.end_offset - 1)})
    made = bench(log.cluster, isolation_level=READ_COMMITTED, partition_max_bytes=100)
    made.start(0)
    assert made.take(len(wanted)) == {0: wanted}


def test_the_end_of_the_log_is_the_last_stable_offset(bench: MakeBench) -> None:
    """``auto.offset.reset=largest`` begins at an open transaction, whose records follow when it is committed."""
    log = transactions()
    log.plain(2)
    waiting = log.records(7, 2)
    made = bench(log.cluster, isolation_level=READ_COMMITTED)
    made.start(0, offset=-1)
    wait_until(lambda: made.resets != [], "the broker was asked for the end")
    assert made.resets == [(T0, waiting[0])]
    log.end(7, COMMIT)
    assert made.take(2) == {0: waiting}
    asked = [seen.body for seen in log.cluster.requests if seen.api is LIST_OFFSETS and seen.body.topics]
    assert [body.isolation_level for body in asked] == [READ_COMMITTED]


@pytest.mark.parametrize("release", ["0.8.2.2", "0.10.2.2"])
def test_a_broker_without_transactions_is_read_as_before(release: str, bench: MakeBench) -> None:
    cluster = FakeCluster(release=release)
    cluster.create_topic(TOPIC)
    cluster.append(TOPIC, 0, [b"a", b"b"])
    made = bench(cluster, isolation_level=READ_COMMITTED)
    made.start(0)
    assert made.take(2) == {0: [0, 1]}
    made.start(0, offset=-1)
    wait_until(lambda: made.resets != [], "the broker was asked for the end")
    assert made.resets == [(T0, 2)]


def test_aborted_batches_behind_a_skipped_message_are_still_omitted(bench: MakeBench) -> None:
    """A skip cuts the chunk, so the positions of its batches change."""
    log = transactions()
    log.plain(1)
    damaged = bytearray(build_record_set([Record(1, 0, 0, None, b"damaged")], 2))
    damaged[-1] ^= 0xFF
    log.append(bytes(damaged), 1)
    log.records(7, 2)
    log.end(7, ABORT)
    after = log.plain(1)
    made = bench(log.cluster, isolation_level=READ_COMMITTED)
    made.start(0)
    assert made.take(1) == {0: [0]}
    iterator = made.streams[0].iterator()
    with pytest.raises(InvalidMessageException):
        iterator.next()
    iterator.skip_poison()
    assert made.take(1) == {0: after}


@pytest.mark.parametrize(("level", "wanted"), [("read_committed", [2]), ("read_uncommitted", [0, 2])])
def test_the_setting_of_a_connector_reaches_the_broker(
    level: str, wanted: list[int], make_world: MakeWorld, connect: MakeConnector
) -> None:
    world = make_world(release="3.9.1")
    world.create_topic(TOPIC)
    log = Transactions(world.cluster, TOPIC)
    log.records(7, 1)
    log.end(7, ABORT)
    log.plain(1)
    connector = connect(on=world, isolation_level=level, auto_offset_reset="smallest")
    [stream] = connector.create_message_streams({TOPIC: 1})[TOPIC]
    assert [stream.iterator().next().offset for _ in wanted] == wanted
    sent = {seen.body.isolation_level for seen in world.cluster.requests if seen.api is FETCH}
    assert sent == {READ_COMMITTED if level == "read_committed" else READ_UNCOMMITTED}
