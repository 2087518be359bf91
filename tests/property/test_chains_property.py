"""Chains of records are found as one record after the other finds them, whatever lies in them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zkconsumer.wire.build import build_record_set, varint
from zkconsumer.wire.records import Record

pytest.importorskip("numpy", reason="the columnar reader needs the extra [spark]")

import numpy as np

from bridge.spark import chains
from bridge.spark.chains import walk_chains

RUNS = settings(deadline=None, max_examples=60)
HEADER_BYTES = 61


def walked(bodies: list[bytes], counts: list[int]) -> list[tuple[int, int]] | None:
    """Fields and ends, with some bytes between the chains."""
    raw, begin, end = b"", [], []
    for body in bodies:
        raw += b"\x00" * 7
        begin.append(len(raw))
        raw += body
        end.append(len(raw))
    numbers = (np.array(each, np.int64) for each in (begin, end, counts))
    found = walk_chains(np.frombuffer(raw, np.uint8), raw, *numbers)
    return None if found is None else list(zip(found[0].tolist(), found[1].tolist(), strict=True))


def one_by_one(bodies: list[bytes]) -> list[tuple[int, int]]:
    found, at = [], 0
    for body in bodies:
        at += 7
        stop = at + len(body)
        while at < stop:
            size, shift, byte, start = 0, 0, 0x80, at
            while byte >= 0x80:
                byte = body[at - (stop - len(body))]
                size |= (byte & 0x7F) << shift
                shift, at = shift + 7, at + 1
            assert at > start
            found.append((at, at + (size >> 1)))
            at += size >> 1
    return found


@st.composite
def many_records(draw: st.DrawFn) -> list[list[Record]]:
    """A few batches of many records: sizes alike or not, some large, gaps of a compaction, batches inside of values."""
    seed = draw(st.integers(0, 2**32))
    sizes = draw(st.lists(st.integers(0, 300), min_size=1, max_size=7))
    large_every = draw(st.sampled_from([0, 97, 700]))
    gap_every = draw(st.sampled_from([0, 1, 5]))
    fill = draw(st.sampled_from([b"v", b"\x00", b"\x0c\x00", b"nested"]))
    nested = build_record_set([Record(n, 0, 0, b"k", b"nested" * 5) for n in range(9)], 2)[HEADER_BYTES:]
    batches = []
    for number in range(draw(st.integers(1, 4))):
        records, offset = [], 0
        for index in range(draw(st.integers(400, 1500))):
            size = sizes[(index * (1 + seed % 5) + number) % len(sizes)]
            if large_every and index % large_every == large_every - 1:
                size = 9_000
            value = (nested if fill == b"nested" else fill) * (size // len(fill) + 1)
            records.append(Record(offset, index % 200, 0, offset.to_bytes(8, "big"), value[:size]))
            offset += 1 + bool(gap_every and index % gap_every == 0)
        batches.append(records)
    return batches


@RUNS
@given(many_records())
def test_every_record_of_a_long_chain_is_found(batches: list[list[Record]]) -> None:
    bodies = [build_record_set(batch, 2)[HEADER_BYTES:] for batch in batches]
    assert walked(bodies, [len(batch) for batch in batches]) == one_by_one(bodies)


@RUNS
@given(many_records(), st.data())
def test_a_damaged_chain_is_refused_or_is_another_sound_one(batches: list[list[Record]], data: st.DataObject) -> None:
    bodies = [bytearray(build_record_set(batch, 2)[HEADER_BYTES:]) for batch in batches]
    body = bodies[data.draw(st.integers(0, len(bodies) - 1))]
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    damaged = [bytes(each) for each in bodies]
    found = walked(damaged, [len(batch) for batch in batches])
    if found is not None:
        assert found == one_by_one(damaged)


def test_a_negative_length_is_refused_and_not_read_as_a_positive_one() -> None:
    """Zigzag: the lowest bit is the sign, and the other bits alone would look sound."""
    sound = b"".join(varint(10) + b"\x00" * 10 for _ in range(40))
    assert walked([sound], [40]) is not None
    for record in (0, 17, 39):
        damaged = bytearray(sound)
        damaged[11 * record] |= 1
        assert walked([bytes(damaged)], [40]) is None


def test_a_long_chain_is_cut_and_walked_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of lengths that differ, in one batch: nothing is walked one record after the other."""
    records = [Record(n, n // 9, 0, n.to_bytes(8, "big"), b"value" * (10 + n * 7 % 13)) for n in range(20_000)]
    body = build_record_set(records, 2)[HEADER_BYTES:]
    steps = 0

    def alone(raw: bytes, position: int, stop: int) -> np.ndarray:
        nonlocal steps
        found = original(raw, position, stop)
        steps += len(found)
        return found

    original = chains._alone
    monkeypatch.setattr(chains, "_alone", alone)
    assert walked([body], [len(records)]) == one_by_one([body])
    assert steps < len(records) / 20
