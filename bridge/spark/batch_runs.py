"""Runs of batches of format 2: where they lie, and all their headers at once.  Pure.

    int64 base offset, int32 size, int32 leader epoch, int8 magic, uint32 crc | int16 attributes,
    int32 last offset delta, int64 base timestamp, int64 max timestamp, producer (14 bytes), int32 count, records

A batch says only how long it is, so the walk goes from one to the next; it looks at sizes and magic alone.  Everything
else is looked at for all batches together, once an answer: what is done for some of them needs few steps then.

Nothing here raises: a run ends in front of what does not fit together, and ``wire.entries.walk`` has the last word.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, auto
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridge.spark import compiled
from bridge.spark.spans import Raw, values_at
from bridge.spark.varints import Ints
from zkconsumer.wire.entries import BATCH_BYTES_MIN, ENTRY_PREFIX_BYTES, OFFSET_MAX, Entry

MAGIC = 2
COVERED_POSITION = 21
"""The first byte that the checksum of a batch covers, from its beginning."""

_HEADER = np.dtype(
    {
        "names": ["OFFSET", "CRC", "ATTRIBUTES", "DELTA", "BASE_TIMESTAMP", "MAX_TIMESTAMP", "COUNT"],
        "formats": [">i8", ">u4", ">i2", ">i4", ">i8", ">i8", ">i4"],
        "offsets": [0, 17, 21, 23, 27, 35, 57],
        "itemsize": ENTRY_PREFIX_BYTES + BATCH_BYTES_MIN,
    }
)
HEADER_BYTES = _HEADER.itemsize


class Fact(IntEnum):
    """What is said of a batch, in the order of ``_rows.c``: a row of numbers."""

    START = 0
    END = auto()
    RECORDS_START = auto()
    """Of uncompressed ones in the same buffer; of others once they are ``expanded``."""
    RECORDS_END = auto()
    COUNT = auto()
    OFFSET = auto()
    LAST_OFFSET = auto()
    ATTRIBUTES = auto()
    BASE_TIMESTAMP = auto()
    MAX_TIMESTAMP = auto()
    CRC = auto()


_SIZE_AND_MAGIC = Struct(">i4xb")
_SIZE_POSITION = 8


@dataclass(frozen=True, slots=True)
class BatchRun:
    """Complete batches that follow each other in one buffer.

    ``table``: a row for each, of the numbers that ``Fact`` names.
    """

    table: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.table)

    def of(self, column: Fact) -> Ints:
        """One number of each."""
        return self.table[:, column]

    @property
    def end(self) -> int:
        """The byte behind the last."""
        return int(self.table[-1, Fact.END])

    @property
    def first_offset(self) -> int:
        return int(self.table[0, Fact.OFFSET])

    @property
    def last_offset(self) -> int:
        return int(self.table[-1, Fact.LAST_OFFSET])

    def chosen(self, which: slice | NDArray[Any]) -> BatchRun:
        """Some of them."""
        return BatchRun(self.table[which])

    def up_to(self, end_offset: int) -> BatchRun:
        """Those up to the one that covers the last offset before ``end_offset``."""
        number = int(self.of(Fact.LAST_OFFSET).searchsorted(end_offset - 1)) + 1
        return self if number >= len(self) else self.chosen(slice(number))

    def expanded(self, sizes: Ints) -> BatchRun:
        """The same, whose records are in another buffer, so many bytes of each behind each other."""
        table = self.table.copy()
        ends = np.cumsum(sizes)
        table[:, Fact.RECORDS_START], table[:, Fact.RECORDS_END] = ends - sizes, ends
        return BatchRun(table)

    def entry(self, index: int) -> Entry:
        """One of them, for the record reader."""
        said = self.table[index].tolist()
        return Entry(said[Fact.START], said[Fact.END], MAGIC, said[Fact.OFFSET], said[Fact.LAST_OFFSET])


def run_of_batches(raw: Raw, position: int, offset_before: int) -> BatchRun | None:
    """The longest run of complete batches from ``position`` on whose offsets increase."""
    bounds = _bounds(raw, position)
    starts, ends = bounds[:-1], bounds[1:]
    if not len(starts):
        return None
    run = BatchRun(_table(raw, starts, ends))
    offsets, last_offsets = run.of(Fact.OFFSET), run.of(Fact.LAST_OFFSET)
    before = np.empty_like(offsets)
    before[0], before[1:] = offset_before, last_offsets[:-1]
    wrong = (offsets <= before) | (last_offsets < offsets) | (last_offsets > OFFSET_MAX)
    if wrong.any():
        sound = int(wrong.argmax())
        return run.chosen(slice(sound)) if sound else None
    return run


def _table(raw: Raw, starts: Ints, ends: Ints) -> NDArray[np.int64]:
    table = np.empty((len(starts), len(Fact)), np.int64)
    heads = values_at(raw, _HEADER, starts)
    table[:, Fact.START], table[:, Fact.END] = starts, ends
    table[:, Fact.RECORDS_START], table[:, Fact.RECORDS_END] = starts + HEADER_BYTES, ends
    for column in (
        Fact.COUNT, Fact.OFFSET, Fact.ATTRIBUTES, Fact.BASE_TIMESTAMP, Fact.MAX_TIMESTAMP, Fact.CRC
    ):  # fmt: skip
        table[:, column] = heads[column.name]
    # Where this overflows the offset is too large as well.
    table[:, Fact.LAST_OFFSET] = table[:, Fact.OFFSET] + heads["DELTA"]
    return table


def _bounds(raw: Raw, position: int) -> Ints:
    """Where complete batches begin, and where the last one ends."""
    if compiled.is_there():
        return compiled.bounds(raw, position, MAGIC)
    bounds = [position]
    size_and_magic_at, total = _SIZE_AND_MAGIC.unpack_from, len(raw)
    while position <= total - HEADER_BYTES:
        size, magic = size_and_magic_at(raw, position + _SIZE_POSITION)
        position += ENTRY_PREFIX_BYTES + size
        if magic != MAGIC or size < BATCH_BYTES_MIN or position > total:
            break
        bounds.append(position)
    return np.array(bounds, np.int64)
