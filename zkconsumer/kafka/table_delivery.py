"""``TableDelivery``: delivers records with the compiled modules, one table of rows after the other.

    chunk --wire.record_tables--> table --load--> base._delivery --Iterator.__next__--> message, message, ...
                                    ^                  |
                                    '---- _refill -----'   once a table; also waits, and raises

The contract is in ``record_delivery``; ``_delivery.c`` has the order of the steps.  This file has the parts that need
no speed: chunks, poison messages and waiting (``ChunkReader``).  If one of the two compiled modules is missing,
``AVAILABLE`` is false and ``RecordDelivery`` replaces this class.

An exception of a signal handler can come here, between two bytecodes, and while C code calls Python code.  The compiled
part runs no Python code between the moment in which a record counts as delivered and the return to the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from sys import getsizeof
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from zkconsumer.base.delivery_state import COMPILED_DELIVERY
from zkconsumer.errors import UsageError
from zkconsumer.kafka.chunk_reader import SIGNAL_HANDLER_MESSAGE, TWO_THREADS_MESSAGE, ChunkReader, stream_ended
from zkconsumer.kafka.chunks import ChunkQueue, FetchedDataChunk, PartitionTopicInfo
from zkconsumer.kafka.record_batch import RecordBatch
from zkconsumer.kafka.record_columns import TableColumns
from zkconsumer.wire import compiled
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_tables import JOINED_BYTES_MAX, ROW, RecordTable, TableReader

if TYPE_CHECKING:
    from zkconsumer.base import _delivery
    from zkconsumer.base.delivery_lease import Lease
else:
    _delivery = COMPILED_DELIVERY

AVAILABLE = COMPILED_DELIVERY is not None and compiled.RECORD_DECODER is not None
"""Whether this module can be used."""

TABLE_ROWS = 1024
"""Rows of one table: 48 KB, which fit into a core's cache together with the bytes of small records."""

BATCH_ROWS_MAX = 16 * 1024
"""Rows of one table for batches."""

BATCH_JOINED_BYTES_MAX = 512 * 1024
"""Rows of a table for batches that contains several compressed entries."""

M = TypeVar("M")

if AVAILABLE:

    class TableDelivery(_delivery.Delivery, ChunkReader[RecordTable]):
        """The state of one stream's iterator; see ``_delivery.Delivery`` for the compiled part.

        ``_chunk``: the chunk that the loaded table belongs to.
        """

        def __init__(
            self,
            queue: ChunkQueue,
            lease: Lease,
            timeout_ms: int,
            key_decoder: Callable[[bytes], Any] | None,
            value_decoder: Callable[[bytes], Any] | None,
        ) -> None:
            _delivery.Delivery.__init__(self, queue, lease, key_decoder, value_decoder)
            ChunkReader.__init__(self, queue, lease, timeout_ms)
            self._rows = bytearray(TABLE_ROWS * ROW.size)
            self._joined_bytes_max = JOINED_BYTES_MAX
            self._chunk: FetchedDataChunk | None = None

        def fail(self, error: BaseException) -> None:
            super().fail(error)
            self.is_failed = True

        def batches(
            self, max_records: int, max_bytes: int, make_message: Callable[[str, int, Record], Any]
        ) -> Iterator[RecordBatch]:
            """An iterator over batches; it and the iterator over messages continue at the same position."""
            rows = min(max_records, BATCH_ROWS_MAX)
            if rows * ROW.size > len(self._rows):
                self._rows = bytearray(rows * ROW.size)  # from the next chunk on
                self._joined_bytes_max = min(max(max_bytes, JOINED_BYTES_MAX), BATCH_JOINED_BYTES_MAX)

            def make(data: Any, table: bytes, count: int, topic: str, partition: int, delivery: int) -> RecordBatch:
                assert self._chunk is not None, "a table is loaded"
                done_through = partial(self.acknowledge_through, delivery)
                fields = TableColumns(data, table, count)
                return RecordBatch(topic, partition, fields, self._chunk.info, make_message, done_through)

            found: Iterator[RecordBatch] = _delivery.BatchIterator(self, max_records, max_bytes, make)
            return found

        def unacknowledged_position(self) -> tuple[PartitionTopicInfo, int] | None:
            found = self.delivered
            if found is None:
                return None
            info, next_offset, resets = found
            return (info, next_offset) if resets == info.resets else None

        def clear_current_chunk(self) -> None:
            self._open = None
            self._drop_table()

        # --- what the compiled part calls -------------------------------------------------------------------------

        def _refill(self) -> bool:
            """Load the next table; False: the stream has ended."""
            return self._is_ready()

        def _await_lease(self) -> bool:
            """Wait until records may be delivered; False: the partition has left, or the stream ended, meanwhile."""
            return self._chunk is not None and self._wait_for_lease(self._chunk)

        def _raise_concurrent_use(self, is_same_thread: bool) -> NoReturn:
            raise UsageError(SIGNAL_HANDLER_MESSAGE if is_same_thread else TWO_THREADS_MESSAGE)

        # --- what ``ChunkReader`` calls ---------------------------------------------------------------------------

        def _decode(self, chunk: FetchedDataChunk, start_offset: int) -> Iterator[RecordTable]:
            assert compiled.RECORD_DECODER is not None, "see AVAILABLE"
            reader = TableReader(
                compiled.RECORD_DECODER,
                chunk.records,
                start_offset,
                excluded_batches=chunk.excluded_batches,
                joined_bytes_max=self._joined_bytes_max,
            )
            return reader.tables(self._rows)

        def _store_decoded(self, chunk: FetchedDataChunk, table: RecordTable) -> None:
            self._chunk = chunk
            data = table.data
            is_of_chunk = data is chunk.records or isinstance(data, memoryview)
            self._queue.decompressed_bytes = 0 if is_of_chunk else getsizeof(data)
            info, tp = chunk.info, chunk.info.tp
            self.load(info, chunk.resets, tp.topic, tp.partition, table.data, table.rows, table.size)

        def _has_decoded(self) -> bool:
            if self.is_ready:
                return True
            chunk = self._chunk
            self._drop_table()
            if chunk is not None and (chunk.is_stale or self._queue.is_ended):
                self._open = None
            return False

        def _drop_table(self) -> None:
            chunk, self._chunk = self._chunk, None
            handed_out = self.rows_delivered
            self.unload()
            if chunk is not None:
                chunk.info.tally.count += handed_out

        def _check_no_call_running(self) -> None:
            if self.inside:
                self._raise_concurrent_use(self.inside == _delivery.calling_thread())

    class TableIterator(_delivery.Iterator, Generic[M]):
        """An iterator over the messages of a delivery, or over the results of ``wrap`` for them."""

        delivery: TableDelivery

        def __new__(cls, delivery: TableDelivery, wrap: Callable[[Any], Any] | None = None) -> Any:
            made = super().__new__(cls, delivery, wrap)
            made.delivery = delivery
            return made

        def next(self) -> M:
            """``__next__`` without the gap in which CPython itself can drop the result: see ``record_delivery``."""
            before = self.delivery.deliveries
            message: M
            try:
                for message in self:
                    return message
            except BaseException:
                if self.delivery.deliveries != before:
                    self.delivery.undeliver()
                raise
            raise stream_ended()
