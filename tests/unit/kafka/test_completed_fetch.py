"""What ``poll`` returns of one fetched partition: transactions, formats, and the same without the compiled decoder."""

from __future__ import annotations

import pytest

from tests.poll_fetcher_fixtures import (
    TP0,
    PollFetcher,
    full_fetch_response,
    offsets_of,
    partition_response,
    record_set,
    values_of,
)
from tests.transactional_records import ABORT, COMMIT, TRANSACTIONAL, batch, marker, signed
from zkconsumer.errors import KafkaException
from zkconsumer.kafka.fetch.record_set_reader import RecordSetReader, RowBuffers, excluded_batches, outline_of
from zkconsumer.wire import compiled
from zkconsumer.wire.entries import Record
from zkconsumer.wire.isolation_level import IsolationLevel
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.schemas.fetch import AbortedTransaction
from zkconsumer.wire.transactions import write_aborted_transactions

PID_1, PID_2, PID_3 = 1, 2, 3
DECODERS = ["compiled", "python"]


@pytest.fixture(params=DECODERS, autouse=True)
def _decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test runs with the compiled record decoder and without it."""
    if request.param == "python":
        monkeypatch.setattr(compiled, "RECORD_DECODER", None)
    elif compiled.RECORD_DECODER is None:
        pytest.skip("installed without a compiler")


def read(
    log: bytes,
    aborted: list[tuple[int, int]] | None = None,
    *,
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED,
    offset: int = 0,
    **fields: object,
) -> tuple[list[int], int]:
    """The offsets that are returned of a log by one fetch, and the position after it."""
    made = PollFetcher(isolation_level=isolation_level, **fields)
    made.assign(TP0)
    made.subscriptions.seek(TP0, offset)
    found = made.fetch(full_fetch_response(TP0, log, aborted=aborted or [], last_stable_offset=100))
    return (offsets_of(found[TP0]) if found else []), made.position()


def test_a_fetch_that_was_read_keeps_no_bytes_of_its_response() -> None:
    """The fetcher refers to the last one until the next response: the memory of megabytes is free before."""
    made = PollFetcher()
    made.assign(TP0)
    made.subscriptions.seek(TP0, 0)
    made.receive(full_fetch_response(TP0, batch(0, 2, PID_1)))
    [fetch] = made.fetcher._completed_fetches
    assert fetch.has_records
    assert offsets_of(made.fetcher.fetched_records()[TP0]) == [0, 1]
    assert made.fetcher.fetched_records() == {}
    assert fetch.is_consumed
    assert not fetch.has_records


# --- transactions ---------------------------------------------------------------------------------------------------


def test_records_of_an_aborted_transaction_are_skipped_and_the_position_moves() -> None:
    assert read(batch(0, 2, PID_1) + marker(2, PID_1, ABORT), [(PID_1, 0)]) == ([], 3)


def test_records_of_a_committed_transaction_are_returned() -> None:
    made = PollFetcher(isolation_level=IsolationLevel.READ_COMMITTED)
    made.assign(TP0)
    made.subscriptions.seek(TP0, 0)
    assert made.fetcher.send_fetches() == 1
    made.poll()
    assert made.last_request().isolation_level == 1
    made.kafka.respond(full_fetch_response(TP0, batch(0, 2, PID_1) + marker(2, PID_1, COMMIT)))
    made.poll()
    assert offsets_of(made.fetcher.fetched_records()[TP0]) == [0, 1]
    assert made.position() == 3


def interleaved() -> bytes:
    """Two producers, each with a committed and an aborted transaction, batch by batch in turn."""
    return b"".join(
        [
            batch(0, 2, PID_1),  # committed
            batch(2, 1, PID_2),  # aborted
            marker(3, PID_1, COMMIT),
            batch(4, 1, PID_2),  # aborted
            marker(5, PID_2, ABORT),
            batch(6, 1, PID_1),  # aborted
            batch(7, 1, PID_2),  # committed
            batch(8, 1, PID_1),  # aborted
            marker(9, PID_1, ABORT),
            marker(10, PID_2, COMMIT),
        ]
    )


def test_committed_and_aborted_batches_of_the_same_producers_are_told_apart() -> None:
    assert read(interleaved(), [(PID_2, 2), (PID_1, 6)]) == ([0, 1, 7], 11)


def test_the_order_of_the_aborted_transactions_does_not_matter() -> None:
    assert read(interleaved(), [(PID_1, 6), (PID_2, 2)]) == ([0, 1, 7], 11)


def test_one_producer_may_abort_and_commit_in_one_fetch() -> None:
    log = batch(0, 1, PID_1) + marker(1, PID_1, ABORT) + batch(2, 1, PID_1) + marker(3, PID_1, COMMIT)
    log += batch(4, 1, PID_1) + marker(5, PID_1, ABORT)
    assert read(log, [(PID_1, 4), (PID_1, 0)]) == ([2], 6)


def test_a_second_abort_marker_changes_nothing() -> None:
    log = batch(0, 2, PID_1) + marker(2, PID_1, ABORT) + marker(3, PID_1, ABORT)
    log += batch(4, 2, PID_1) + marker(6, PID_1, COMMIT)
    assert read(log, [(PID_1, 0)]) == ([4, 5], 7)


def test_an_abort_marker_without_records_ends_the_transaction() -> None:
    """Compaction has removed the records."""
    log = marker(5, PID_1, ABORT) + batch(6, 3, PID_1) + marker(9, PID_1, COMMIT)
    assert read(log, [(PID_1, 0)]) == ([6, 7, 8], 10)


def test_transactions_that_begin_before_a_compacted_log_are_skipped() -> None:
    log = batch(3, 2, PID_3) + batch(15, 3, PID_2) + batch(22, 2, PID_1) + marker(28, PID_2, ABORT)
    log += batch(30, 3, PID_3) + marker(35, PID_3, COMMIT) + batch(39, 2, PID_1)
    assert read(log, [(PID_2, 6), (PID_1, 0)]) == ([3, 4, 30, 31, 32], 41)


def test_all_records_are_returned_to_a_reader_of_uncommitted_ones() -> None:
    log = batch(0, 2, PID_1) + marker(2, PID_1, ABORT)
    assert read(log, [(PID_1, 0)], isolation_level=IsolationLevel.READ_UNCOMMITTED) == ([0, 1], 3)


def test_an_empty_control_batch_moves_the_position() -> None:
    """Compaction removes the marker of a transaction whose records are gone, and may keep the empty batch."""
    empty = build_record_set([], 2, base_offset=1, last_offset=1, control=True)
    empty = signed(bytearray(empty), PID_1, TRANSACTIONAL | 0x20)
    log = empty + batch(2, 2, PID_1) + marker(4, PID_1, COMMIT)
    assert read(log) == ([2, 3], 5)


def test_aborted_records_are_skipped_behind_max_poll_records() -> None:
    made = PollFetcher(isolation_level=IsolationLevel.READ_COMMITTED, max_poll_records=2)
    made.assign(TP0)
    made.subscriptions.seek(TP0, 0)
    log = batch(0, 2, PID_1) + marker(2, PID_1, COMMIT) + batch(3, 2, PID_1) + marker(5, PID_1, ABORT)
    found = made.fetch(full_fetch_response(TP0, log, aborted=[(PID_1, 3)]))
    assert offsets_of(found[TP0]) == [0, 1]
    assert made.position() == 2
    assert made.fetcher.send_fetches() == 0, "the rest of the fetch is not read yet"
    assert made.fetcher.fetched_records() == {}
    assert made.position() == 6


def test_aborted_records_before_damaged_bytes_are_skipped() -> None:
    log = batch(0, 1, PID_1) + batch(1, 1, PID_2) + marker(2, PID_1, ABORT) + bytes(40)
    made = PollFetcher(isolation_level=IsolationLevel.READ_COMMITTED)
    made.assign(TP0)
    made.subscriptions.seek(TP0, 0)
    found = made.fetch(full_fetch_response(TP0, log, aborted=[(PID_1, 0)]))
    assert offsets_of(found[TP0]) == [1]
    with pytest.raises(KafkaException):
        made.fetcher.fetched_records()


def test_transactions_before_the_position_are_counted_too() -> None:
    """The abort marker is before the position, in the same response."""
    log = batch(0, 2, PID_1) + marker(2, PID_1, ABORT) + batch(3, 2, PID_1) + marker(5, PID_1, COMMIT)
    assert read(log, [(PID_1, 0)], offset=3) == ([3, 4], 6)


# --- records of all formats -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("magic", "codec"), [(0, 0), (0, 1), (1, 0), (1, 2), (2, 0), (2, 1), (2, 4)])
def test_records_of_each_format_and_codec_are_the_same_in_rows_and_in_columns(magic: int, codec: int) -> None:
    made = PollFetcher(max_poll_records=7)
    made.assign(TP0)
    made.subscriptions.seek(TP0, 0)
    keys = [None if number % 3 == 0 else b"k%d" % number for number in range(20)]
    values = [None if number % 4 == 0 else b"v" * number for number in range(20)]
    records = [Record(number, 1_000 + number, 0, keys[number], values[number]) for number in range(20)]
    log = build_record_set(records[:9], magic, codec) + build_record_set(records[9:], magic, codec)
    made.receive(full_fetch_response(TP0, log))
    taken = []
    while found := made.fetcher.fetched_records():
        part = found[TP0]
        assert len(part) <= 7
        assert [part[index] for index in range(len(part))] == list(part)
        assert (list(part.keys), list(part.values)) == ([r.key for r in part], [r.value for r in part])
        assert list(part.timestamps) == [record.timestamp for record in part]
        assert list(part.timestamp_types) == [record.timestamp_type for record in part]
        assert part[-1] == list(part)[-1]
        assert part[1:3] == list(part)[1:3]
        taken += list(part)
    assert [record.offset for record in taken] == list(range(20))
    assert [record.key for record in taken] == keys
    assert [record.value for record in taken] == values
    assert [record.serialized_key_size for record in taken] == [-1 if key is None else len(key) for key in keys]
    assert [record.serialized_value_size for record in taken] == [-1 if v is None else len(v) for v in values]
    assert {(record.topic, record.partition) for record in taken} == {TP0}
    assert taken[5].timestamp == (-1 if magic == 0 else 1_005)
    assert made.position() == 20


def test_several_batches_are_one_sequence() -> None:
    made = PollFetcher()
    made.assign(TP0)
    made.subscriptions.seek(TP0, 0)
    log = b"".join(build_record_set([Record(n, 0, 0, b"k", b"%d" % n)], 2, n % 5) for n in range(10))
    found = made.fetch(full_fetch_response(TP0, log))[TP0]
    assert values_of(found) == [b"%d" % n for n in range(10)]
    assert found.values == values_of(found)
    assert offsets_of(found) == list(range(10))
    assert [found[index].offset for index in range(-10, 10)] == [*range(10), *range(10)]
    assert repr(found) == "FetchedRecords(test/0 offsets 0 to 9, 10 records)"
    with pytest.raises(IndexError):
        found[10]


def test_a_record_is_decoded_when_it_is_requested_and_not_before() -> None:
    made = PollFetcher(max_poll_records=1)
    made.assign(TP0)
    made.subscriptions.seek(TP0, 0)
    damaged = record_set(1, 1)
    log = record_set(0, 1) + damaged[:17] + b"beef" + damaged[21:]
    assert offsets_of(made.fetch(full_fetch_response(TP0, log))[TP0]) == [0]
    with pytest.raises(KafkaException):
        made.fetcher.fetched_records()


def test_the_error_of_a_reader_is_raised_by_each_peek() -> None:
    damaged = record_set(1, 1)
    reader = RecordSetReader(damaged[:17] + b"beef" + damaged[21:], 0, RowBuffers(10), True, [], 10)
    for _ in range(2):
        with pytest.raises(Exception, match="checksum"):
            reader.peek(5)


def test_the_outline_has_the_begin_and_the_epochs_up_to_damaged_bytes() -> None:
    log = record_set(0, 2, epoch=3) + record_set(2, 2, epoch=3) + record_set(4, 1, epoch=5)
    outline = outline_of(log + bytes(30), 3)
    assert outline.begin == len(record_set(0, 2))
    assert [outline.epochs.at(offset) for offset in (0, 3, 4, 9)] == [3, 3, 5, 5]
    assert outline.epochs.last == 5


def test_excluded_batches_are_found_up_to_damaged_bytes() -> None:
    aborted = write_aborted_transactions([AbortedTransaction(producer_id=PID_1, first_offset=0)])
    log = batch(0, 1, PID_2) + batch(1, 1, PID_1)
    assert excluded_batches(log + bytes(30), aborted) == [len(batch(0, 1, PID_2))]


def test_a_response_without_bytes_leaves_the_position() -> None:
    made = PollFetcher()
    made.assign(TP0)
    made.subscriptions.seek(TP0, 7)
    assert made.fetch(full_fetch_response(TP0)) == {}
    assert made.position() == 7
    assert partition_response(TP0).records == b""
