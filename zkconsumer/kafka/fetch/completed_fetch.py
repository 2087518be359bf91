"""``CompletedFetch``: one partition of a Fetch response; ``poll`` takes its records in portions (Kafka 3.0).  Pure.

    (arrived) --is_initialized--> fetch_records, fetch_records, ... --> consumed --drain--> measured
        '------------------------ drain: the records are not needed any more ----------------^

``next_fetch_offset`` moves with the records: after the last one that was returned, and at the end after the last
batch, whose last offset may have no record any more (compaction, control batches, aborted transactions).  So a fetch
without any record to return moves the position, too.

*Errors.*  The records before an error are returned first, and ``next_fetch_offset`` stays in front of it.

- Damaged bytes: ``KafkaException`` by this and by each further call, until the program seeks past it: then the position
  differs from ``next_fetch_offset``, and the fetch is drained.
- A deserializer fails: ``RecordDeserializationException``, and the next call tries the same record again.

Invariants: ``is_consumed`` becomes True once, by ``drain``.  ``_reader`` is made by the first ``fetch_records``.

Differences from Java: the exception of damaged bytes has the original one as its cause, with ``offset`` and
``next_offset`` of the entry (``wire.entries.entry_error``).  Sizes for metrics are approximate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from zkconsumer.errors import KafkaException, RecordDeserializationException
from zkconsumer.kafka.fetch.consumer_fetch_metrics import FetchedResponseTotals
from zkconsumer.kafka.fetch.fetched_records import (
    BatchEpochs,
    Deserializer,
    FetchedRecords,
    RecordHeaders,
    RecordSlice,
    TableRecords,
    bytes_of,
    headers_of,
)
from zkconsumer.kafka.fetch.record_set_reader import (
    RecordSetReader,
    RecordsPart,
    RowBuffers,
    excluded_batches,
    outline_of,
)
from zkconsumer.types import TopicPartition
from zkconsumer.wire.fetch_codec import UNKNOWN_VALUE, FetchedPartition
from zkconsumer.wire.isolation_level import IsolationLevel
from zkconsumer.wire.record_tables import DECODE_ERRORS


class RecordReading(NamedTuple):
    """How records are read: the same for all fetches of a ``Fetcher``.

    A deserializer None: bytes are returned as they are.
    """

    buffers: RowBuffers
    check_crcs: bool
    isolation_level: IsolationLevel
    key_deserializer: Deserializer[Any] | None = None
    value_deserializer: Deserializer[Any] | None = None


class CompletedFetch:
    """``row``: the partition in the response.  ``fetch_offset``: the requested one.  ``version``: of the response.

    ``on_drained`` is called once, with whether records were read.
    """

    def __init__(
        self,
        partition: TopicPartition,
        row: FetchedPartition,
        fetch_offset: int,
        version: int,
        reading: RecordReading,
        totals: FetchedResponseTotals,
        on_drained: Callable[[TopicPartition, bool], None],
    ) -> None:
        self.partition = partition
        self.row = row
        self.version = version
        self.next_fetch_offset = fetch_offset
        self.last_epoch: int | None = None
        """The leader epoch of the batch before ``next_fetch_offset``."""
        self.is_initialized = False
        """The caller has taken the high watermark and the other numbers of ``row``."""
        self.is_consumed = False
        self._reading = reading
        self._has_bytes = reading.key_deserializer is None and reading.value_deserializer is None
        self._totals = totals
        self._on_drained = on_drained
        self._reader: RecordSetReader | None = None
        self._epochs = BatchEpochs()
        self._records_read = 0

    def __repr__(self) -> str:
        return f"CompletedFetch({self.partition} at {self.next_fetch_offset})"

    @property
    def has_records(self) -> bool:
        """Whether the response has bytes of records, which may be an incomplete one."""
        return bool(self.row.records)

    def drain(self) -> None:
        """Drop the records that were not read, and measure those that were."""
        if not self.is_consumed:
            self.is_consumed = True
            size_bytes = 0 if self._reader is None else self._reader.size_bytes
            self._reader = None
            self.row = self.row._replace(records=None)  # the memory of a response is used again
            self._totals.record(self.partition, size_bytes, self._records_read)
            self._on_drained(self.partition, self._records_read > 0)

    def fetch_records(self, records_max: int) -> FetchedRecords[Any, Any]:
        """The next records; none at the end, and then ``next_fetch_offset`` is after all batches.

        ``KafkaException``, ``RecordDeserializationException``: the next record cannot be read (see the module).
        """
        slices: list[RecordSlice] = []
        left = records_max
        reader = self._reader or self._open_reader(records_max)
        if reader.is_reading:
            self.drain()  # a signal handler has interrupted it: the records are fetched again
        while left and not self.is_consumed:
            try:
                part = reader.peek(left)
                if part is None:
                    self._finish()
                    break
                if self._has_bytes:
                    records = RecordSlice(part.columns, self._epochs)
                else:
                    part, records = self._deserialized(reader, part)
            except DECODE_ERRORS as error:
                if slices:
                    break
                raise KafkaException(
                    f"a record of {self.partition} at offset {self.next_fetch_offset} or after it cannot be read: "
                    f"{error}; if needed, seek past it to go on"
                ) from error
            except RecordDeserializationException:
                if slices:
                    break
                raise
            # First: after an exception of a signal handler it is not the position, and so the fetch is dropped.
            self.next_fetch_offset = part.last_offset + 1
            reader.skip(part.size)
            slices.append(records)
            left -= part.size
            self._records_read += part.size
            self.last_epoch = self._epochs.at(part.last_offset)
        return FetchedRecords(self.partition, slices, records_max - left)

    def fetch_from_table(self, size: int) -> FetchedRecords[Any, Any] | None:
        """The next ``size`` records, as bytes, if one table has so many; None: ``fetch_records`` must be used."""
        reader = self._reader
        if reader is None or not self._has_bytes or reader.is_reading:
            return None
        if reader.begin == reader.count:
            try:
                reader.next_chunk()
            except DECODE_ERRORS:
                return None  # `fetch_records` raises it
        data, begin = reader.data, reader.begin
        if data is None or begin + size > reader.count:
            return None
        epochs, last_offset = self._epochs, reader.offsets[begin + size - 1]
        self.next_fetch_offset = last_offset + 1  # first: see above
        reader.skip(size)
        self._records_read += size
        self.last_epoch = epochs.at(last_offset)
        return TableRecords(self.partition, epochs, data, reader.rows, begin, size)

    def _open_reader(self, first_list: int) -> RecordSetReader:
        assert self._reader is None, "it is opened once"
        records, reading = self.row.records or b"", self._reading
        begin, self._epochs = outline_of(records, self.next_fetch_offset)
        is_committed = reading.isolation_level is IsolationLevel.READ_COMMITTED
        excluded = excluded_batches(records, self.row.aborted) if is_committed and self.row.aborted else ()
        self._reader = RecordSetReader(
            records[begin:],
            self.next_fetch_offset,
            reading.buffers,
            reading.check_crcs,
            [position - begin for position in excluded if position >= begin],
            first_list,
        )
        return self._reader

    def _finish(self) -> None:
        """Go to the end of the last batch: its last record may have been removed by compaction."""
        if self.row.next_offset != UNKNOWN_VALUE:
            self.next_fetch_offset = max(self.next_fetch_offset, self.row.next_offset)
            self.last_epoch = self._epochs.last
        self.drain()

    # --- deserializers ----------------------------------------------------------------------------------------------

    def _deserialized(self, reader: RecordSetReader, part: RecordsPart) -> tuple[RecordsPart, RecordSlice]:
        """The records up to the first that cannot be deserialized; at least one, or an error."""
        columns = part.columns
        key_deserializer, value_deserializer = self._reading.key_deserializer, self._reading.value_deserializer
        keys: list[Any] | None = None if key_deserializer is None else []
        values: list[Any] | None = None if value_deserializer is None else []
        headers = islice(headers_of(columns), part.size)
        raw_keys: Sequence[bytes | None] = bytes_of(columns.keys()) if key_deserializer else ()
        raw_values: Sequence[bytes | None] = bytes_of(columns.values()) if value_deserializer else ()
        topic = self.partition.topic
        for index, header in enumerate(headers):
            try:
                # Both before one is added: the lists have the same length at any time.
                key = _object(key_deserializer, topic, header, raw_keys[index]) if key_deserializer else None
                value = _object(value_deserializer, topic, header, raw_values[index]) if value_deserializer else None
            except Exception as error:
                if not index:
                    [record] = columns.records(0, 1)
                    raise RecordDeserializationException(
                        f"the record of {self.partition} at offset {record.offset} cannot be deserialized "
                        f"({type(error).__name__}: {error}); if needed, seek past it to go on",
                        self.partition,
                        record.offset,
                    ) from error
                first = reader.peek(index)
                assert first is not None, "the same as before"
                assert first.size == index, "the same as before"
                return first, RecordSlice(first.columns, self._epochs, keys, values)
            if keys is not None:
                keys.append(key)
            if values is not None:
                values.append(value)
        return part, RecordSlice(columns, self._epochs, keys, values)


def _object(deserializer: Deserializer[Any], topic: str, headers: RecordHeaders, data: bytes | None) -> Any:
    return None if data is None else deserializer.deserialize(topic, headers, data)
