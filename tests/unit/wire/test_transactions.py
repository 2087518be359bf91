"""Batches of aborted transactions are left out, as Kafka's consumer leaves them out with ``read_committed``."""

from __future__ import annotations

import pytest

from tests.transactional_records import ABORT, COMMIT, CONTROL, TRANSACTIONAL, batch, marker, signed
from zkconsumer.errors import InvalidMessageException
from zkconsumer.wire import compiled
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.record_tables import ROW, TableReader
from zkconsumer.wire.records import iter_records
from zkconsumer.wire.schemas.fetch import AbortedTransaction
from zkconsumer.wire.transactions import aborted_batches


def left_by_both(data: bytes, aborted: list[AbortedTransaction], start: int = 0) -> list[int]:
    """The offsets that are not left out, by the reference, and by the compiled decoder where it is in use."""
    positions = aborted_batches(data, aborted)
    by_reference = [record.offset for record in iter_records(data, start, excluded_batches=positions)]
    if compiled.RECORD_DECODER is not None:
        rows = bytearray(8 * ROW.size)
        by_tables = [
            ROW.unpack_from(table.rows, index * ROW.size)[0]
            for table in TableReader(compiled.RECORD_DECODER, data, start, excluded_batches=positions).tables(rows)
            for index in range(table.size)
        ]
        assert by_tables == by_reference
    return by_reference


def aborted(*pairs: tuple[int, int]) -> list[AbortedTransaction]:
    return [AbortedTransaction(producer_id=producer, first_offset=first) for producer, first in pairs]


def test_without_aborted_transactions_nothing_is_left_out() -> None:
    data = batch(0, 2, 7) + marker(2, 7, COMMIT)
    assert aborted_batches(data, []) == []
    assert left_by_both(data, []) == [0, 1]


@pytest.mark.parametrize("codec", [0, 1, 3, 4])
def test_a_transaction_is_left_out_up_to_its_marker(codec: int) -> None:
    data = batch(0, 2, 7, codec=codec) + batch(2, 1, 7, codec=codec) + marker(3, 7, ABORT) + batch(4, 2, 7, codec=codec)
    assert left_by_both(data + marker(6, 7, COMMIT), aborted((7, 0))) == [4, 5]


def test_other_producers_and_batches_outside_of_transactions_stay() -> None:
    data = (
        batch(0, 1, 7) + batch(1, 1, 8) + batch(2, 1, 9, attributes=0) + batch(3, 1, 7) + marker(4, 8, COMMIT)
        + marker(5, 7, ABORT) + build_record_set([Record(6, 0, 0, None, b"v")], 2)
    )  # fmt: skip
    assert left_by_both(data, aborted((7, 0))) == [1, 2, 6]


def test_transactions_of_one_producer_may_be_aborted_committed_and_aborted() -> None:
    kinds = [ABORT, COMMIT, ABORT]
    data = b"".join(batch(2 * n, 1, 7) + marker(2 * n + 1, 7, kind) for n, kind in enumerate(kinds))
    assert left_by_both(data, aborted((7, 4), (7, 0))) == [2], "the order of the list does not matter"


def test_a_transaction_that_began_before_the_record_set_is_left_out() -> None:
    data = batch(10, 2, 7) + marker(12, 7, ABORT) + batch(13, 1, 7)
    assert left_by_both(data, aborted((7, 3)), start=10) == [13]


def test_a_transaction_that_begins_behind_the_record_set_changes_nothing() -> None:
    assert left_by_both(batch(0, 3, 7), aborted((7, 50))) == [0, 1, 2]


def test_entries_of_older_formats_belong_to_no_transaction() -> None:
    data = build_record_set([Record(0, 0, 0, None, b"v")], 1) + batch(1, 1, 7) + marker(2, 7, ABORT)
    assert left_by_both(data, aborted((7, 0))) == [0]


def test_the_checksum_of_a_batch_that_is_left_out_is_verified() -> None:
    data = bytearray(batch(0, 2, 7) + marker(2, 7, ABORT))
    data[70] ^= 1
    with pytest.raises(InvalidMessageException, match="checksum"):
        left_by_both(bytes(data), aborted((7, 0)))


def test_a_marker_without_a_record_ends_nothing() -> None:
    empty = signed(bytearray(build_record_set([], 2, base_offset=2, last_offset=2)), 7, TRANSACTIONAL | CONTROL)
    data = batch(0, 1, 7) + empty + batch(3, 1, 7)
    assert left_by_both(data, aborted((7, 0))) == []
