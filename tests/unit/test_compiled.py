"""The compiled loops by themselves: that they are there, stay inside of their buffers, and find what numpy finds."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from zkconsumer.wire.build import build_record_set
from zkconsumer.wire.entries import Record

pytest.importorskip("pyarrow", reason="the columnar reader needs the extra [spark]")

import numpy as np
import pyarrow as pa

from bridge.spark import arrow, batch_rows, byte_fields, compiled, messages
from bridge.spark.batch_runs import BatchRun, Fact, run_of_batches
from bridge.spark.columns import Columns, read_columns
from bridge.spark.spans import NEAR_BYTES, Number, Spans

RUN_TIMEOUT_S = 60
DAMAGED_ROUNDS = 400

is_installed = pytest.mark.skipif(not compiled.is_there(), reason="installed without a compiler")


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def records(number: int, size: int) -> list[Record]:
    return [
        Record(n, 10**12 + n % 7, 0, b"k" * (n % 5) or None, b"v" * (n * 31 % (2 * size)), ()) for n in range(number)
    ]


def test_they_are_there_where_python_can_be_extended() -> None:
    header = Path(sysconfig.get_path("include"), "Python.h")
    if os.environ.get(compiled.SWITCH) or not header.exists() or not shutil.which("cc"):
        pytest.skip("no compiler, or told not to")
    assert compiled.is_there()


@pytest.mark.parametrize(("value", "is_there"), [("", compiled.is_there()), ("1", False)])
def test_they_can_be_left_out(value: str, is_there: bool) -> None:
    if os.environ.get(compiled.SWITCH):
        pytest.skip("told so for all tests")
    done = subprocess.run(
        [sys.executable, "-c", "from bridge.spark import compiled; print(compiled.is_there())"],
        env={**os.environ, compiled.SWITCH: value}, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=True,
    )  # fmt: skip
    assert done.stdout.split() == [str(is_there)]


@is_installed
@pytest.mark.parametrize(
    ("start", "length"),
    [([4], [5]), ([9], [0]), ([-1], [1]), ([0], [2**62]), ([2**62], [2**62]), ([0, 1], [1])],
    ids=["past the end", "behind the end", "before the beginning", "huge", "beyond 64 bits", "a length is missing"],
)
def test_a_field_outside_of_the_buffer_is_not_copied(start: list[int], length: list[int]) -> None:
    with pytest.raises(ValueError, match=r"a field outside of the buffer, or more than 2 GiB|not as many lengths"):
        compiled.gathered(b"12345678", Spans(ints(*start), ints(*length)))


@is_installed
def test_fields_of_more_than_2_gib_are_not_copied() -> None:
    data = np.zeros(1 << 30, np.uint8).data
    with pytest.raises(ValueError, match="more than 2 GiB"):
        compiled.gathered(data, Spans(ints(0, 0), ints(1 << 30, 1 << 30)))


@is_installed
def test_fields_are_copied_behind_each_other() -> None:
    span = Spans(ints(0, 3, 0, 8, 1), ints(3, 0, -1, 0, 2))
    ends, fields, valid, nulls = compiled.gathered(b"abcdefgh", span)
    assert np.frombuffer(ends, np.int32).tolist() == [0, 3, 3, 3, 3, 5]
    assert (fields, valid, nulls) == (b"abcbc", bytes([0b11011]), 1)
    assert byte_fields.of_spans(b"abcdefgh", span).to_pylist() == [b"abc", b"", None, b"", b"bc"]


@is_installed
def test_bounds_stop_where_the_array_is_full_and_before_what_is_no_entry() -> None:
    record_set = b"".join(build_record_set([Record(n, 5, 0, b"k", b"v", ())], 2) for n in range(5))
    [found] = {tuple(compiled.bounds(record_set + more, 0, 2).tolist()) for more in (b"", b"\0" * 70, record_set[:60])}
    assert len(found) == 6
    assert compiled.bounds(record_set, len(record_set), 2).tolist() == [len(record_set)]
    assert compiled.bounds(record_set, -1, 2).tolist() == []
    assert compiled._ROWS is not None
    few = np.empty(3, np.int64)
    assert compiled._ROWS.bounds(record_set, 0, 2, -1, few) == 3
    assert few.tolist() == list(found[:3])


def run_of(raw: bytes) -> BatchRun:
    run = run_of_batches(raw, 0, -1)
    assert run is not None
    return run


@is_installed
@pytest.mark.parametrize("append", [False, True])
def test_damaged_batches_are_refused_by_both_or_read_alike(append: bool) -> None:
    """Checksums are not looked at here, so that the damage comes as far as it can."""
    sound = b""
    for first in range(0, 40, 10):
        made = [
            Record(first + n, 5 + n, 0, b"k" * n, b"v" * 9 * n, (("h", b"x"),) if n % 3 == 0 else ()) for n in range(6)
        ]
        sound += build_record_set(made, 2, log_append_time=append)
    numbers = random.Random(7)
    refused = alike = 0
    for _ in range(DAMAGED_ROUNDS):
        damaged = bytearray(sound)
        run = run_of(sound)
        begin, end = run.of(Fact.RECORDS_START), run.of(Fact.RECORDS_END)
        which = numbers.randrange(len(run))
        for _ in range(numbers.randint(0, 2)):
            damaged[numbers.randrange(int(begin[which]), int(end[which]))] = numbers.choice([0, 1, 0x7F, 0x80, 0xFF])
        one = batch_rows.rows_of_batches(bytes(damaged), run)
        other = batch_rows._in_numpy(bytes(damaged), run)
        if one is None or other is None:
            assert one is other
            refused += 1
            continue
        alike += 1
        assert (one == other).all()
    assert min(refused, alike) > DAMAGED_ROUNDS // 10


@is_installed
@pytest.mark.parametrize(
    ("fact", "number"),
    [
        *[(Fact.RECORDS_START, -1), (Fact.RECORDS_START, 10**6), (Fact.RECORDS_END, 10**6), (Fact.RECORDS_END, 3)],
        *[(Fact.COUNT, -1), (Fact.COUNT, 2**40), (Fact.OFFSET, -5), (Fact.OFFSET, 2**62), (Fact.LAST_OFFSET, 0)],
        *[(Fact.BASE_TIMESTAMP, 2**62), (Fact.BASE_TIMESTAMP, -(2**62))],
    ],
)
def test_what_is_said_of_a_batch_is_not_believed(fact: Fact, number: int) -> None:
    raw = build_record_set(records(6, 20), 2)
    table = run_of(raw).table
    assert compiled.rows_of_batches(raw, table, 6) is not None
    assert compiled.rows_of_batches(raw, table, 7) is None
    table[0, fact] = number
    assert compiled.rows_of_batches(raw, table, 6) is None


@is_installed
@pytest.mark.parametrize(
    ("number", "value"),
    [(Number.KEY_START, -1), (Number.VALUE_START, 2**62), (Number.VALUE_LENGTH, 2**62), (Number.KEY_LENGTH, 9)],
)
def test_no_field_is_copied_from_outside(number: Number, value: int) -> None:
    numbers = np.zeros((len(Number), 3), np.int64)
    *_, key, value_ = compiled.buffers(Columns(b"12345678", numbers, None), True, True)
    assert key == value_ == (bytes(16), b"", None, 0)
    numbers[number, 1] = value
    with pytest.raises(ValueError, match="outside of the buffer"):
        compiled.buffers(Columns(b"12345678", numbers, None), True, True)
    is_key = number in (Number.KEY_START, Number.KEY_LENGTH)
    *_, key, value_ = compiled.buffers(Columns(b"12345678", numbers, None), not is_key, is_key)
    assert (key is None, value_ is None) == (is_key, not is_key)
    assert compiled._ROWS is not None
    for rows in (-1, 5, 2**62):
        with pytest.raises(ValueError, match="not as many numbers"):
            compiled._ROWS.buffers(b"12345678", numbers, rows, False, False)


@is_installed
def test_times_beyond_the_end_of_microseconds_are_put_there() -> None:
    most = arrow.MS_MAX
    ms = ints(0, -1, most, most + 1, 2**63 - 1, -most, -most - 1, -(2**63))
    numbers = np.zeros((len(Number), len(ms)), np.int64)
    numbers[Number.TIMESTAMP] = ms
    _, micros, *_ = compiled.buffers(Columns(b"", numbers, None), False, False)
    made = np.frombuffer(micros, np.int64).tolist()
    assert made == np.asarray(arrow._micros(ms)).tolist()
    assert made[3] == made[2] == most * 1000


@is_installed
@pytest.mark.parametrize("magic", [0, 1])
def test_damaged_messages_are_refused_by_both_or_read_alike(magic: int) -> None:
    sound = build_record_set(records(12, 20), magic)
    run = messages.run_of_messages(sound, 0, -1)
    assert run is not None
    numbers = random.Random(9)
    refused = 0
    for _ in range(DAMAGED_ROUNDS):
        damaged = bytearray(sound)
        damaged[numbers.randrange(len(sound))] ^= 1 << numbers.randrange(8)
        for check in (False, True):
            one = messages._rows(bytes(damaged), run, check)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(compiled, "_ROWS", None)
                other = messages._rows(bytes(damaged), run, check)
            if one is None or other is None:
                assert one is other
                refused += 1
            else:
                assert (one == other).all()
    assert refused > DAMAGED_ROUNDS // 2
    wrong = messages.Messages(magic, run.starts, run.ends + len(sound), run.offsets)
    assert messages._rows(sound, wrong, False) is None


@is_installed
@pytest.mark.parametrize("magic", [1, 2])
def test_what_is_decoded_together_is_near_and_is_one_arrow_batch(magic: int) -> None:
    """What the figures of migration_docs/reference/spark-speed.md rest on."""
    made = records(4_000, 1_000)
    record_set = b"".join(build_record_set(made[low : low + 16], magic) for low in range(0, len(made), 16))
    schema = pa.schema([field for field in arrow.SCHEMA if field.name != "headers"])
    pieces = list(read_columns(record_set))
    assert len(pieces) <= 2 + len(record_set) // (NEAR_BYTES - 100_000)
    for piece in pieces:
        assert int(piece.value.start[-1] + piece.value.length[-1] - piece.value.start[0]) <= NEAR_BYTES
        assert len(list(arrow.record_batches(piece, "t", 0, schema))) == 1
    assert sum(map(len, pieces)) == len(made)


@is_installed
def test_an_entry_larger_than_what_is_near_comes_whole() -> None:
    made = records(3_000, 1_000)
    for magic in (1, 2):
        record_set = build_record_set(made, magic) + build_record_set([Record(5_000, 5, 0, b"k", b"v", ())], magic)
        assert sum(map(len, read_columns(record_set))) == len(made) + 1
