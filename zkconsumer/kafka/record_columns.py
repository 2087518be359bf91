"""The fields of many records in buffers: ``BatchColumns``, and the sources that it is made of.  Pure.

The buffers have the layout of Arrow's binary arrays: all values one after the other, and the end of each.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, Protocol, overload

from zkconsumer.wire import compiled
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_tables import ROW


class ByteColumnBuffers(NamedTuple):
    """Byte fields one after the other: a 0 and the end of each (int32), the bytes, one bit for each that is not null
    (None: none is null), and the number of nulls."""

    ends: bytes
    data: bytes
    valid: bytes | None
    nulls: int


class BatchColumns(Protocol):
    """The source of the columns of a batch."""

    def __len__(self) -> int: ...

    def fixed_columns(self) -> tuple[bytes, bytes, bytes]:
        """Offsets, timestamps in ms (both int64) and types of timestamps (int32)."""

    def keys(self) -> ByteColumnBuffers: ...

    def values(self) -> ByteColumnBuffers: ...

    def headers(self) -> tuple[bytes, ByteColumnBuffers, ByteColumnBuffers]:
        """A 0 and the end of the headers of each record (int32); names; values."""

    def records(self, low: int, high: int) -> list[Record]:
        """Some of the records as objects."""


class FixedColumnViews:
    """The columns of fixed size of a batch, as views of ``_numbers``: what ``BatchColumns.fixed_columns`` returns."""

    @property
    def _numbers(self) -> tuple[bytes, bytes, bytes]:
        raise NotImplementedError

    @property
    def offsets(self) -> memoryview[int]:
        return memoryview(self._numbers[0]).cast("q")

    @property
    def timestamps(self) -> memoryview[int]:
        return memoryview(self._numbers[1]).cast("q")

    @property
    def timestamp_types(self) -> memoryview[int]:
        return memoryview(self._numbers[2]).cast("i")


class TableColumns:
    """Rows of a table (``wire.record_tables``), from ``first`` on: ``data`` and ``rows``."""

    __slots__ = ("_count", "data", "first", "rows")

    def __init__(self, data: Any, rows: bytes | bytearray, count: int, first: int = 0) -> None:
        self.data, self.rows, self.first, self._count = data, rows, first, count

    def __len__(self) -> int:
        return self._count

    def fixed_columns(self) -> tuple[bytes, bytes, bytes]:
        assert compiled.RECORD_DECODER is not None, "tables are made by it"
        end = self.first + self._count
        found: tuple[bytes, bytes, bytes] = compiled.RECORD_DECODER.numbers(self.rows, self.first, end, False)
        return found

    def keys(self) -> ByteColumnBuffers:
        return self._gathered(True)

    def values(self) -> ByteColumnBuffers:
        return self._gathered(False)

    def _gathered(self, is_key: bool) -> ByteColumnBuffers:
        assert compiled.RECORD_DECODER is not None, "tables are made by it"
        end = self.first + self._count
        return ByteColumnBuffers(*compiled.RECORD_DECODER.fields(self.data, self.rows, self.first, end, is_key))

    def headers(self) -> tuple[bytes, ByteColumnBuffers, ByteColumnBuffers]:
        assert compiled.RECORD_DECODER is not None, "tables are made by it"
        end = self.first + self._count
        ends, _, _, _, names, values = compiled.RECORD_DECODER.headers(self.data, self.rows, self.first, end)
        return ends, ByteColumnBuffers(*names), ByteColumnBuffers(*values)

    def records(self, low: int, high: int) -> list[Record]:
        assert compiled.RECORD_DECODER is not None, "tables are made by it"
        low, high = self.first + low, self.first + high
        ends, _, _, _, names, values = compiled.RECORD_DECODER.headers(self.data, self.rows, low, high)
        of_each = _headers_of(ends, names, values)
        found = []
        for index in range(low, high):
            row = ROW.unpack_from(self.rows, index * ROW.size)
            offset, timestamp, key, key_bytes, value, value_bytes, _, _, _, timestamp_type = row
            fields = self._field(key, key_bytes), self._field(value, value_bytes), of_each[index - low]
            found.append(Record(offset, timestamp, timestamp_type, *fields))
        return found

    def _field(self, start: int, size: int) -> bytes | None:
        return None if size < 0 else bytes(self.data[start : start + size])


class RecordColumns:
    """Records that were decoded one by one."""

    def __init__(self, records: list[Record]) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def fixed_columns(self) -> tuple[bytes, bytes, bytes]:
        return (
            array("q", [record.offset for record in self._records]).tobytes(),
            array("q", [record.timestamp for record in self._records]).tobytes(),
            array("i", [record.timestamp_type for record in self._records]).tobytes(),
        )

    def keys(self) -> ByteColumnBuffers:
        return byte_column_buffers([record.key for record in self._records])

    def values(self) -> ByteColumnBuffers:
        return byte_column_buffers([record.value for record in self._records])

    def headers(self) -> tuple[bytes, ByteColumnBuffers, ByteColumnBuffers]:
        ends = array("i", accumulate((len(record.headers) for record in self._records), initial=0)).tobytes()
        pairs = [header for record in self._records for header in record.headers]
        return (
            ends,
            byte_column_buffers([name.encode() for name, _ in pairs]),
            byte_column_buffers([value for _, value in pairs]),
        )

    def records(self, low: int, high: int) -> list[Record]:
        return self._records[low:high]


def byte_column_buffers(fields: Sequence[bytes | None]) -> ByteColumnBuffers:
    """The buffers of a column with these fields."""
    ends = array("i", accumulate((0 if field is None else len(field) for field in fields), initial=0)).tobytes()
    nulls = sum(field is None for field in fields)
    valid = None
    if nulls:
        bits = bytearray((len(fields) + 7) // 8)
        for index, field in enumerate(fields):
            bits[index // 8] |= (field is not None) << index % 8
        valid = bytes(bits)
    return ByteColumnBuffers(ends, b"".join(field for field in fields if field is not None), valid, nulls)


def _headers_of(ends: bytes, names: Any, values: Any) -> list[tuple[tuple[str, bytes | None], ...]]:
    bounds = memoryview(ends).cast("i")
    name_of, value_of = ByteColumn(ByteColumnBuffers(*names)), ByteColumn(ByteColumnBuffers(*values))
    return [
        tuple(((name_of[each] or b"").decode("utf-8", "replace"), value_of[each]) for each in range(first, end))
        for first, end in pairwise(bounds)
    ]


class ByteColumn(Sequence["bytes | None"]):
    """Byte fields of many records: ``column[i]`` is bytes, or None for null.

    ``data`` has the bytes of all fields one after the other (null fields have none).  ``bounds`` has one int32 more
    than there are fields: field ``i`` is ``data[bounds[i]:bounds[i + 1]]``.  ``null_count``: the number of nulls.
    """

    def __init__(self, gathered: ByteColumnBuffers) -> None:
        self.data = memoryview(gathered.data)
        self.bounds = memoryview(gathered.ends).cast("i")
        self.null_count = gathered.nulls
        self._valid = gathered.valid

    def is_null(self, index: int) -> bool:
        """Whether this field is null."""
        index = range(len(self))[index]
        return self._valid is not None and not self._valid[index // 8] >> index % 8 & 1

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @overload
    def __getitem__(self, index: int) -> bytes | None: ...

    @overload
    def __getitem__(self, index: slice) -> list[bytes | None]: ...

    def __getitem__(self, index: int | slice) -> bytes | list[bytes | None] | None:
        if isinstance(index, slice):
            return [self[each] for each in range(len(self))[index]]
        index = range(len(self))[index]
        if self.is_null(index):
            return None
        return bytes(self.data[self.bounds[index] : self.bounds[index + 1]])
