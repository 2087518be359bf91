"""All headers of a run of batches at once: where the run ends, and that it says what the walk over entries says."""

from __future__ import annotations

from struct import pack_into

import pytest

from zkconsumer.errors import InvalidMessageException
from zkconsumer.wire import compression
from zkconsumer.wire.build import build_record_set
from zkconsumer.wire.entries import Record, walk

pytest.importorskip("pyarrow", reason="the columnar reader needs the extra [spark]")

from bridge.spark.batch_runs import BatchRun, Fact, run_of_batches
from bridge.spark.columns import read_columns, scan
from tests.fix_decoder import decoder  # noqa: F401

BATCHES, IN_A_BATCH = 5, 3
SIZE_POSITION, DELTA_POSITION, COUNT_POSITION = 8, 23, 57


def batch(first: int, magic: int = 2, codec: int = compression.NONE) -> bytes:
    records = [Record(first + n, 1_000 + n, 0, b"k", b"value", ()) for n in range(IN_A_BATCH)]
    return build_record_set(records, magic, codec)


def several(codec: int = compression.NONE) -> list[bytes]:
    return [batch(number * IN_A_BATCH, codec=codec) for number in range(BATCHES)]


def of_all(record_set: bytes, offset_before: int = -1) -> BatchRun:
    run = run_of_batches(record_set, 0, offset_before)
    assert run is not None
    return run


@pytest.mark.parametrize("codec", [compression.NONE, compression.LZ4])
def test_a_run_says_what_the_walk_says(codec: int) -> None:
    record_set = b"".join(several(codec))
    run = of_all(record_set)
    assert list(map(run.entry, range(len(run)))) == list(walk(record_set))
    assert run.end == len(record_set)
    assert run.of(Fact.COUNT).tolist() == [IN_A_BATCH] * BATCHES
    assert set(run.of(Fact.BASE_TIMESTAMP).tolist()) == {1_000}
    assert set((run.of(Fact.ATTRIBUTES) & 7).tolist()) == {codec}


def test_a_run_ends_in_front_of_a_batch_that_is_cut_off() -> None:
    made = several()
    for cut in range(1, len(made[-1]) + 1):
        run = of_all(b"".join(made)[:-cut])
        assert (len(run), run.end) == (BATCHES - 1, len(b"".join(made[:-1])))


def test_a_run_ends_in_front_of_another_format() -> None:
    record_set = b"".join([*several(), batch(100, magic=1), batch(200)])
    assert len(of_all(record_set)) == BATCHES
    assert sum(map(len, read_columns(record_set))) == (BATCHES + 2) * IN_A_BATCH


@pytest.mark.parametrize(
    ("position", "number"),
    [(SIZE_POSITION, 48), (SIZE_POSITION, -1), (DELTA_POSITION, -1), (0, 0)],
    ids=["too small", "negative size", "negative delta", "an old offset"],
)
def test_a_run_ends_in_front_of_what_no_batch_says_and_the_scan_refuses_it(position: int, number: int) -> None:
    made = bytearray(b"".join(several()))
    third = len(b"".join(several()[:2]))
    pack_into(">q" if position == 0 else ">i", made, third + position, number)
    record_set = bytes(made)
    assert len(of_all(record_set)) == 2
    with pytest.raises(InvalidMessageException) as refused:
        scan(record_set)
    assert vars(refused.value)["position"] == third
    assert scan(record_set, 2 * IN_A_BATCH).next_offset == 2 * IN_A_BATCH


def test_a_run_does_not_begin_with_an_offset_that_was_there_before() -> None:
    record_set = b"".join(several())
    assert run_of_batches(record_set, 0, 0) is None
    assert run_of_batches(record_set[:60], 0, -1) is None


def test_a_number_of_records_below_zero_is_refused() -> None:
    made = bytearray(b"".join(several()))
    pack_into(">i", made, len(batch(0)) + COUNT_POSITION, -1)
    with pytest.raises(InvalidMessageException, match=r"offset 3 .*a batch of -1 records"):
        list(read_columns(bytes(made), check_crcs=False))


def test_the_damaged_batch_is_named() -> None:
    made = bytearray(b"".join(several()))
    made[-1] ^= 1
    with pytest.raises(InvalidMessageException, match=r"offset 12 .*the checksum does not match"):
        list(read_columns(bytes(made)))
    # What is behind the end is nobody's business.
    assert sum(map(len, read_columns(bytes(made), end_offset=12))) == 12


def test_compressed_and_other_batches_take_turns() -> None:
    codecs = [compression.NONE, compression.NONE, compression.GZIP, compression.LZ4, compression.NONE]
    record_set = b"".join(batch(number * IN_A_BATCH, codec=codec) for number, codec in enumerate(codecs))
    pieces = list(read_columns(record_set))
    assert [len(piece) for piece in pieces] == [6, 6, 3]
    assert [offset for piece in pieces for offset in piece.offset.tolist()] == list(range(15))


def test_markers_of_transactions_part_nothing() -> None:
    record_set = b""
    for number in range(0, 6, 2):
        marker = [Record((number + 1) * IN_A_BATCH, 5, 0, b"\0\0\0\1", b"\0" * 6, ())]
        record_set += batch(number * IN_A_BATCH, codec=compression.LZ4) + build_record_set(marker, 2, control=True)
    [piece] = read_columns(record_set)
    assert piece.offset.tolist() == [0, 1, 2, 6, 7, 8, 12, 13, 14]
    damaged = bytearray(record_set)
    damaged[-1] ^= 1
    with pytest.raises(InvalidMessageException, match=r"offset 15 .*the checksum does not match"):
        list(read_columns(bytes(damaged)))
