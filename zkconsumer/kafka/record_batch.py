"""``RecordBatch``: many records of one partition as one object, with their fields in buffers.

    table --fields, numbers, headers--> buffers --__arrow_c_array__--> pyarrow, polars, DuckDB ...
    records, without the compiled modules ----'

Each buffer is built when it is first used.  The buffers have the layout of Arrow's binary arrays: all values one
after the other, and the end of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from zkconsumer import extensions
from zkconsumer.kafka.record_columns import (
    BatchColumns,
    ByteColumn,
    ByteColumnBuffers,
    FixedColumnViews,
    byte_column_buffers,
)
from zkconsumer.types import TopicPartition
from zkconsumer.wire.entries import Record

if TYPE_CHECKING:
    from zkconsumer.kafka.chunks import PartitionTopicInfo

ARROW_MODULE = extensions.load("zkconsumer.base._arrow")

RECORD_BATCH_RECORDS_MAX = 10_000
"""Default for the maximum number of records in a batch."""

RECORD_BATCH_BYTES_MAX = 1024 * 1024
"""Default for the maximum bytes of the keys and values in a batch; a single record may be larger."""


class RecordBatch(FixedColumnViews, Sequence[Any]):
    """Records of one partition, in order of offset; at least one.  ``batch[i]`` is a ``MessageAndMetadata``.

    A batch is delivered as a whole.  It counts as consumed when the program asks the stream for more.  Before that,
    ``acknowledge_through`` sets how far the program is: a commit covers that part, and a partition that is revoked
    waits for the rest as it waits for one message (``rebalance.drain.timeout.ms``).

    ``topic``, ``partition``; ``first_offset``, ``last_offset``.  ``offsets``, ``timestamps`` (ms since 1970, -1 in
    message format 0): int64 buffers.  ``timestamp_types``: int32 (0 producer, 1 log append, -1 none).  ``keys``,
    ``values``: ``ByteColumn``; they are the raw bytes, no decoder is called for them.

    Arrow: ``pyarrow.record_batch(batch)``, ``polars.DataFrame(batch)`` and others take it without a copy, by
    ``__arrow_c_array__``: key, value (binary), offset (int64), timestamp (ms, UTC; null in format 0), timestamp_type
    (int32), headers (a list of name and value).
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        fields: BatchColumns,
        info: PartitionTopicInfo,
        make: Callable[[str, int, Record], Any],
        done_through: Callable[[int], None],
    ) -> None:
        self.topic = topic
        self.partition = partition
        self._fields = fields
        self._info = info
        self._resets = info.resets
        self._make = make
        self._done_through = done_through

    def __repr__(self) -> str:
        tp = TopicPartition(self.topic, self.partition)
        return f"RecordBatch({tp} offsets {self.first_offset} to {self.last_offset}, {len(self)} records)"

    def __len__(self) -> int:
        return len(self._fields)

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[each] for each in range(len(self))[index]]
        index = range(len(self))[index]
        [record] = self._fields.records(index, index + 1)
        return self._make(self.topic, self.partition, record)

    def __iter__(self) -> Iterator[Any]:
        for record in self._fields.records(0, len(self)):
            yield self._make(self.topic, self.partition, record)

    @property
    def first_offset(self) -> int:
        return self.offsets[0]

    @property
    def last_offset(self) -> int:
        return self.offsets[-1]

    @cached_property
    def _numbers(self) -> tuple[bytes, bytes, bytes]:
        return self._fields.fixed_columns()

    @cached_property
    def _keys(self) -> ByteColumnBuffers:
        return self._fields.keys()

    @cached_property
    def _values(self) -> ByteColumnBuffers:
        return self._fields.values()

    @property
    def keys(self) -> ByteColumn:
        return ByteColumn(self._keys)

    @property
    def values(self) -> ByteColumn:
        return ByteColumn(self._values)

    @property
    def is_owned(self) -> bool:
        """Whether this stream still owns the partition.  If not, another member reads these records too, unless
        the program goes on with them before ``rebalance.drain.timeout.ms`` has passed."""
        return self._info.is_live and self._info.resets == self._resets

    def acknowledge_through(self, offset: int) -> None:
        """Acknowledge the records up to this offset; a commit covers them from now on.

        Has no effect after the program has asked the stream for more.  Raises ``ValueError`` for an offset outside of
        the batch.
        """
        if not self.first_offset <= offset <= self.last_offset:
            raise ValueError(f"offset {offset} is outside of {self!r}")
        self._done_through(offset)

    # --- Arrow ------------------------------------------------------------------------------------------------------

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]:
        """Arrow's PyCapsule interface; ``requested_schema`` is ignored, as the interface allows."""
        if ARROW_MODULE is None:
            return self._pyarrow_capsules()
        found: tuple[Any, Any] = ARROW_MODULE.capsules(self._node())
        return found

    def _node(self) -> tuple[Any, ...]:
        count = len(self)
        offsets, timestamps, types = self._numbers
        times_valid, without_time = _timestamp_validity(memoryview(types).cast("i"))
        header_ends, raw_names, header_values = self._fields.headers()
        names = _utf8_names(raw_names)
        headers = memoryview(header_ends).cast("i")[-1]
        of_one = _binary("key", names, "u"), _binary("value", header_values)
        header = ("+s", "item", False, headers, 0, (None,), of_one)
        columns = (
            _binary("key", self._keys),
            _binary("value", self._values),
            ("l", "offset", False, count, 0, (None, offsets), ()),
            ("tsm:UTC", "timestamp", True, count, without_time, (times_valid, timestamps), ()),
            ("i", "timestamp_type", False, count, 0, (None, types), ()),
            ("+l", "headers", False, count, 0, (None, header_ends), (header,)),
        )
        return ("+s", "", False, count, 0, (None,), columns)

    def _pyarrow_capsules(self) -> tuple[Any, Any]:
        try:
            import pyarrow as pa
        except ImportError as error:
            raise ImportError(
                "a batch becomes an Arrow array by a compiled module of zkconsumer, which is missing here "
                f"({extensions.status()['zkconsumer.base._arrow']}), or by pyarrow, which is missing too: "
                "install pyarrow, or zkconsumer with a C compiler"
            ) from error
        found: tuple[Any, Any] = _pyarrow_array(pa, self._node()).__arrow_c_array__()
        return found


def _utf8_names(names: ByteColumnBuffers) -> ByteColumnBuffers:
    """The same as UTF-8, with invalid bytes replaced, as the Java client reads them."""
    if names.data.isascii():
        return names
    column = ByteColumn(names)
    return byte_column_buffers([(name or b"").decode("utf-8", "replace").encode() for name in column])


def _binary(name: str, fields: ByteColumnBuffers, kind: str = "z") -> tuple[Any, ...]:
    buffers = fields.valid, fields.ends, fields.data
    return (kind, name, kind == "z", len(fields.ends) // 4 - 1, fields.nulls, buffers, ())


def _timestamp_validity(types: memoryview[int]) -> tuple[bytes | None, int]:
    """One bit for each record that has a timestamp (None: all have one), and how many have none."""
    if b"\xff" not in types.tobytes():
        return None, 0
    without = sum(each < 0 for each in types)
    bits = bytearray((len(types) + 7) // 8)
    for index, each in enumerate(types):
        bits[index // 8] |= (each >= 0) << index % 8
    return bytes(bits), without


def _pyarrow_array(pa: Any, node: tuple[Any, ...]) -> Any:
    """The same array, made with pyarrow."""
    form, _, _, length, nulls, buffers, children = node
    made = [None if each is None else pa.py_buffer(each) for each in buffers]
    inside = [_pyarrow_array(pa, child) for child in children]
    kinds = {"z": pa.binary(), "u": pa.string(), "l": pa.int64(), "i": pa.int32(), "tsm:UTC": pa.timestamp("ms", "UTC")}
    if form == "+s":
        fields = [pa.field(child[1], array.type, child[2]) for child, array in zip(children, inside, strict=True)]
        return pa.Array.from_buffers(pa.struct(fields), length, made, nulls, children=inside)
    if form == "+l":
        kind = pa.list_(pa.field("item", inside[0].type, False))
        return pa.Array.from_buffers(kind, length, made, nulls, children=inside)
    return pa.Array.from_buffers(kinds[form], length, made, nulls)
