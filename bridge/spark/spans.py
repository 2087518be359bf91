"""Columns of records as positions in a buffer, before they are Arrow's.  Pure; numpy only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum, auto
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bridge.spark.varints import Ints
from zkconsumer.wire.entries import Record

Raw: TypeAlias = bytes | memoryview
"""The bytes of a record set, or what compressed ones stand for."""

PIECE_BYTES_MAX = 1 << 26
"""What compressed batches expand to is given in pieces of about this size: an answer may stand for far more."""

NEAR_BYTES = 900 * 1024
"""What stays in a core's cache from its checksum to the copy that Arrow gets."""

PIECE_OBJECTS_MAX = 1 << 17
"""Records and headers that stand as objects at a time, where they are read one by one."""


@dataclass(frozen=True, slots=True)
class Spans:
    """A byte field of each record: ``data[start:start + length]``, or null where ``length`` is negative."""

    start: Ints
    length: Ints


@dataclass(frozen=True, slots=True)
class Headers:
    """The headers of all records, in order: ``count`` of each record, then name and value of each header."""

    count: Ints
    name: Spans
    value: Spans


class Number(IntEnum):
    """What is said of a record, in the order of ``_rows.c``: a row of numbers for each."""

    OFFSET = 0
    TIMESTAMP = auto()
    """In ms since 1970, -1 when there is none."""
    TIMESTAMP_TYPE = auto()
    """0 (producer), 1 (log append), -1 (none)."""
    KEY_START = auto()
    KEY_LENGTH = auto()
    VALUE_START = auto()
    VALUE_LENGTH = auto()
    HEADERS_START = auto()
    """From here on of format 2 alone, and not needed any more once headers are read."""
    HEADER_COUNT = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Columns:
    """Records of one partition, in order of offset.

    ``data``: the bytes that the spans point into, in the order of the records.  ``numbers``: a row for each of
    ``Number``, at least up to the length of the value.  ``headers`` None: not asked for.
    """

    data: Raw
    numbers: NDArray[np.int64]
    headers: Headers | None

    def __len__(self) -> int:
        return len(self.numbers[0])

    def of(self, number: Number) -> Ints:
        """One number of each."""
        found: Ints = self.numbers[number]
        return found

    @property
    def offset(self) -> Ints:
        return self.of(Number.OFFSET)

    @property
    def key(self) -> Spans:
        return Spans(self.of(Number.KEY_START), self.of(Number.KEY_LENGTH))

    @property
    def value(self) -> Spans:
        return Spans(self.of(Number.VALUE_START), self.of(Number.VALUE_LENGTH))


@dataclass(frozen=True, slots=True)
class Limits:
    """What is wanted of a record set, and how much it may expand to."""

    first_offset: int
    end_offset: int
    with_headers: bool
    check_crcs: bool
    decompressed_bytes_max: int


def values_at(raw: Raw, kind: np.dtype[Any], at: Ints) -> NDArray[Any]:
    """One value of ``kind`` at each of these bytes, aligned or not; all must lie inside."""
    everywhere: NDArray[Any] = np.ndarray((len(raw) - kind.itemsize + 1,), kind, raw, strides=(1,))
    return everywhere[at]


def narrowed(columns: Columns, limits: Limits) -> Columns:
    """Without the records before and after the limits; an entry may reach beyond both."""
    offset = columns.offset
    if len(offset) and offset[0] >= limits.first_offset and offset[-1] < limits.end_offset:
        return columns
    return columns_between(
        columns, int(offset.searchsorted(limits.first_offset)), int(offset.searchsorted(limits.end_offset))
    )


def columns_between(columns: Columns, low: int, high: int) -> Columns:
    """The records from index ``low`` up to, not including, ``high``; nothing is copied."""
    headers = None
    if columns.headers is not None:
        before = columns.headers.count[:low].sum()
        inside = slice(int(before), int(before + columns.headers.count[low:high].sum()))
        headers = Headers(
            columns.headers.count[low:high], _sliced(columns.headers.name, inside),
            _sliced(columns.headers.value, inside),
        )  # fmt: skip
    return Columns(columns.data, columns.numbers[:, low:high], headers)


def no_headers(rows: int) -> Headers:
    """Records of formats 0 and 1 have none."""
    none = np.empty(0, np.int64)
    return Headers(np.zeros(rows, np.int64), Spans(none, none), Spans(none, none))


def _sliced(spans: Spans, part: slice) -> Spans:
    return Spans(spans.start[part], spans.length[part])


# --- one by one ---------------------------------------------------------------------------------------------------


def pieces_of(records: Iterable[Record], limits: Limits) -> Iterator[Columns]:
    """Those below the end, in pieces that are not empty; a piece is given before the record behind it is looked at.

    Offsets increase, so nothing after the end is looked at: it may be damaged.
    """
    piece: list[Record] = []
    objects = size = 0
    for record in records:
        if record.offset >= limits.end_offset:
            break
        piece.append(record)
        objects += 1 + len(record.headers)
        size += len(record.key or b"") + len(record.value or b"")
        if objects >= PIECE_OBJECTS_MAX or size >= PIECE_BYTES_MAX:
            yield from_records(piece, with_headers=limits.with_headers)
            piece, objects, size = [], 0, 0
    if piece:
        yield from_records(piece, with_headers=limits.with_headers)


def from_records(records: list[Record], *, with_headers: bool) -> Columns:
    """The same columns from records that were read one by one; all bytes are copied into one buffer."""
    buffer = bytearray()
    key = _Collected(buffer)
    value = _Collected(buffer)
    names = _Collected(buffer)
    header_values = _Collected(buffer)
    for record in records:
        key.add(record.key)
        value.add(record.value)
        for name, header in record.headers if with_headers else ():
            names.add(name.encode())
            header_values.add(header)
    headers = None
    if with_headers:
        count = np.array([len(record.headers) for record in records], np.int64)
        headers = Headers(count, names.spans(), header_values.spans())
    keys, values = key.spans(), value.spans()
    said = [[record.offset, record.timestamp, record.timestamp_type] for record in records]
    numbers = np.vstack([np.array(said, np.int64).T, keys.start, keys.length, values.start, values.length])
    return Columns(bytes(buffer), numbers, headers)


class _Collected:
    def __init__(self, buffer: bytearray) -> None:
        self._buffer = buffer
        self._start: list[int] = []
        self._length: list[int] = []

    def add(self, field: bytes | None) -> None:
        self._start.append(len(self._buffer))
        self._length.append(-1 if field is None else len(field))
        self._buffer += field or b""

    def spans(self) -> Spans:
        return Spans(np.array(self._start, np.int64), np.array(self._length, np.int64))
