"""``RecordDelivery``: decides which record a stream returns next, and when that record counts as consumed.

The contract
------------
An exception may come between any two bytecodes of the iterating thread: Ctrl-C, a signal handler that raises, also
while the thread waits.  (The implementation in C keeps the same contract.)  Then each record is in one of two states:

*undelivered*  The next call returns it.  It is not counted as consumed, and its partition can leave at once.
*delivered*    The program has it, and it counts as consumed when the iterating thread asks for the next record
               (``next``, ``has_next``, ``peek``), or as ``close`` and ``commit_offsets`` describe.

How the record changes from one state to the other
--------------------------------------------------
    read          ``_next`` = (chunk, record)              ``_next`` keeps the record until it counts as consumed
    prepare       ``message_slot`` = [message]             first: from here on ``_prepared`` means "undelivered"
                  ``_prepared`` = ``_next``
                  ``info.unacknowledged_offset`` = offset  ``begin_delivery``: agrees with ``stop``, see ``chunks``
                  the lease is checked
                  ``queue.unacknowledged_since_ms``        for ``max.poll.interval.ms``; None again when the record is
                                                           cancelled, undelivered or consumed
    deliver       ``message_slot.pop()``                   in C, inside of ``map.__next__`` of ``ConsumerIterator``: the
                                                           one step in which the record becomes delivered; no bytecode
                                                           of ours follows it
    acknowledge   ``info.acknowledge()``, ``_next`` = None, ``_prepared`` = None

So, with ``_prepared`` set, the record is undelivered while ``message_slot`` is not empty, and delivered otherwise.
Each step is one store, and each sequence may be run again from its beginning: if an exception interrupts it, the next
call (or ``close``) completes it.  ``_cancel_prepared`` undoes a prepare step, and already runs while the exception
propagates, so that a partition which leaves need not wait for the program to call again.

One gap belongs to CPython itself: after the builtin ``next(iterator)``, as after every call of a function in C, CPython
handles signals before the program's next bytecode.  An exception there drops the result, and no iterator can notice it.
A ``for`` statement and the method ``iterator.next()`` have no such gap.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from zkconsumer.base.delivery_lease import Lease
from zkconsumer.errors import InvalidMessageException, UnsupportedCodec, UsageError
from zkconsumer.kafka.chunk_reader import SIGNAL_HANDLER_MESSAGE, TWO_THREADS_MESSAGE, ChunkReader, stream_ended
from zkconsumer.kafka.chunks import ChunkQueue, FetchedDataChunk, PartitionTopicInfo
from zkconsumer.kafka.record_batch import RecordBatch
from zkconsumer.kafka.record_columns import RecordColumns
from zkconsumer.wire.records import Record, iter_records

NO_THREAD = 0
"""No thread has this number."""

SLOT_INDEX = -1
"""The index of the message in ``message_slot``: ``__next__`` returns it, and ``map.__next__`` pops that item."""

M = TypeVar("M")

_numbers = itertools.count(1)


class _CallerThread(threading.local):
    def __init__(self) -> None:
        self.number = next(_numbers)


_caller_thread = _CallerThread()


def calling_thread() -> int:
    """A unique number of the calling thread; the operating system reuses the ids of ended threads."""
    return _caller_thread.number


class RecordDelivery(ChunkReader[Record]):
    """The state of one stream's iterator.  Iterating over it yields ``SLOT_INDEX`` each time a message is in
    ``message_slot``.

    ``make(topic, partition, record, key_decoder, value_decoder)`` makes the message.

    ``_next``     the record that comes next.  None for a batch: it is read again if it was not delivered.
    ``_prepared``  the record in ``message_slot``, or delivered to the program; of a batch, its last record.
    ``_done``     the last record of a batch, and the offset up to which the program has acknowledged it.
    ``_calling_thread``   the number of the thread whose call runs.  An exception at the end of a call may leave it
                  set, so ``_check_thread`` checks whether that call still runs before it rejects another one.
    """

    def __init__(
        self,
        queue: ChunkQueue,
        lease: Lease,
        timeout_ms: int,
        *,
        make: Callable[[str, int, Record, Any, Any], Any],
        key_decoder: Any,
        value_decoder: Any,
    ) -> None:
        super().__init__(queue, lease, timeout_ms)
        self.message_slot: list[Any] = []
        self.thread_id = NO_THREAD
        self.delivered_at_ms: int | None = None
        self._make = make
        self._key_decoder = key_decoder
        self._value_decoder = value_decoder
        self._next: tuple[FetchedDataChunk, Record] | None = None
        self._prepared: tuple[FetchedDataChunk, Record] | None = None
        self._done: tuple[Record | None, int] = (None, 0)
        self._calling_thread = NO_THREAD

    # --- the three calls that wait for a record -----------------------------------------------------------------

    def __iter__(self) -> RecordDelivery:
        return self

    def prepare_next(
        self,
        wrap: Callable[[Any], Any] | None = None,
        gather: Callable[[FetchedDataChunk, Record], tuple[RecordBatch, Record]] | None = None,
    ) -> int:
        """Put the next message, or the result of ``wrap``, into ``message_slot``; returns ``SLOT_INDEX``, its index.

        ``gather`` makes a batch that begins with the record, and returns its last record as well.
        """
        number = _caller_thread.number
        if self._calling_thread:
            self._check_thread(number)
        self._calling_thread = self.thread_id = number
        try:
            while True:
                if self._prepared is not None or self.message_slot:
                    self.acknowledge()
                if not self._is_ready():
                    self._raise_ended()
                ready = self._next
                if ready is None:
                    continue  # a signal handler closed the connector just now
                chunk, record = ready
                if gather is None:
                    message = self._message(chunk.info, record)
                    self.message_slot.append(message if wrap is None else wrap(message))
                    self._prepared = ready
                else:
                    batch, last = gather(chunk, record)
                    self.message_slot.append(batch)
                    self._prepared = (chunk, last)
                if not self.message_slot:  # a signal handler closed the connector just now, which emptied it
                    self._prepared = None
                    continue
                if not chunk.info.begin_delivery(record.offset):
                    self._cancel_prepared()
                    continue
                now_ms = self._lease.clock.now_ms()
                if now_ms >= self._lease.until_ms:
                    self._cancel_prepared()
                    self._wait_for_lease(chunk)
                    continue
                self.delivered_at_ms = self._queue.unacknowledged_since_ms = now_ms
                if self.message_slot:
                    self._calling_thread = NO_THREAD
                    return SLOT_INDEX
                self._queue.unacknowledged_since_ms = None
                chunk.info.undeliver()  # a signal handler closed the connector just now, which cancelled it
        except BaseException:
            self._cancel_prepared()
            self._calling_thread = NO_THREAD
            raise

    __next__ = prepare_next

    def collect_batch(
        self, max_records: int, max_bytes: int, make_message: Callable[[str, int, Record], Any],
        chunk: FetchedDataChunk, record: Record,
    ) -> tuple[RecordBatch, Record]:  # fmt: skip
        """Return a batch that begins with this record, and its last record."""
        records = self._batch_records(chunk, record, max_records, max_bytes)
        info, last, resets = chunk.info, records[-1], chunk.resets

        def done_through(offset: int) -> None:
            is_in_hand = self._prepared is not None and self._prepared[1] is last
            if is_in_hand and info.resets == resets and offset >= info.consumed_offset:
                info.mark_consumed(offset + 1, resets)
                self._done = last, offset + 1

        fields = RecordColumns(records)
        return RecordBatch(info.tp.topic, info.tp.partition, fields, info, make_message, done_through), last

    def _batch_records(self, chunk: FetchedDataChunk, first: Record, max_records: int, max_bytes: int) -> list[Record]:
        """Return the records of a batch.  The next batch opens the chunk again, so that an interruption loses none."""
        found, self._open, self._next, self._resumable_chunk = self._open, None, None, None
        records, size = [first], _size_of(first)
        if found is None:
            return records
        with contextlib.suppress(InvalidMessageException, UnsupportedCodec):  # the next call raises it
            for record in itertools.islice(found[1], max_records - 1):
                size += _size_of(record)
                if size > max_bytes:
                    chunk.info.tally.count -= 1  # it will be read again
                    break
                records.append(record)
        return records

    def peek(self, with_message: bool) -> Any:
        """Return the message that ``prepare_next`` would deliver (True, if it is not wanted); None: the stream has
        ended."""
        number = _caller_thread.number
        if self._calling_thread:
            self._check_thread(number)
        self._calling_thread = self.thread_id = number
        try:
            self.acknowledge()
            while self._is_ready():
                ready = self._next
                if ready is not None and self._wait_for_lease(ready[0]):
                    return self._message(ready[0].info, ready[1]) if with_message else True
            return None
        finally:
            self._calling_thread = NO_THREAD

    def _message(self, info: PartitionTopicInfo, record: Record) -> Any:
        """Make the message of this record."""
        return self._make(info.tp.topic, info.tp.partition, record, self._key_decoder, self._value_decoder)

    def batches(
        self, max_records: int, max_bytes: int, make_message: Callable[[str, int, Record], Any]
    ) -> Iterator[RecordBatch]:
        """An iterator over batches; it and the iterator over messages continue at the same position."""
        return map(self.message_slot.pop, _BatchSource(self, max_records, max_bytes, make_message))

    # --- the delivered record -----------------------------------------------------------------------------------

    @property
    def delivered(self) -> tuple[FetchedDataChunk, Record] | None:
        """The record that was delivered and is not acknowledged."""
        return None if self.message_slot else self._prepared

    def acknowledge(self) -> None:
        """Count the delivered record as consumed."""
        if self.message_slot:
            self._cancel_prepared()
        elif self._prepared is not None:
            self._queue.unacknowledged_since_ms = None
            chunk, record = self._prepared
            chunk.info.acknowledge(record.offset + 1, chunk.resets)
            self._next = None
            self._prepared = None

    def undeliver(self) -> None:
        """Count the delivered record as not consumed; the next call returns it again, if this member owns its
        partition."""
        if self.message_slot:
            self._cancel_prepared()
        elif self._prepared is not None:
            self._queue.unacknowledged_since_ms = None
            self._prepared[0].info.undeliver()
            self._prepared = None

    def unacknowledged_position(self) -> tuple[PartitionTopicInfo, int] | None:
        found = self.delivered
        if found is None or found[0].resets != found[0].info.resets:
            return None
        record, done = self._done
        return found[0].info, done if record is found[1] else found[1].offset + 1

    def _cancel_prepared(self) -> None:
        """Undo a prepare step whose message is still in ``message_slot``.

        The order matters: see the head of this file.
        """
        if self.message_slot:
            self._queue.unacknowledged_since_ms = None
            if self._prepared is not None:
                self._prepared[0].info.undeliver()
                self._prepared = None
            self.message_slot.clear()

    # --- reading ------------------------------------------------------------------------------------------------

    def clear_current_chunk(self) -> None:
        self._open = None
        self._next = None

    def _decode(self, chunk: FetchedDataChunk, start_offset: int) -> Iterator[Record]:
        return iter_records(
            chunk.records, start_offset, excluded_batches=chunk.excluded_batches, tally=chunk.info.tally
        )

    def _store_decoded(self, chunk: FetchedDataChunk, record: Record) -> None:
        self._next = chunk, record
        self._queue.decompressed_bytes = chunk.info.tally.expanded_bytes

    def _has_decoded(self) -> bool:
        if self._next is None:
            return False
        if not self._next[0].is_stale and not self._queue.is_ended:
            return True
        self.clear_current_chunk()
        return False

    # --- one thread at a time -----------------------------------------------------------------------------------

    def _check_no_call_running(self) -> None:
        if self._calling_thread:
            self._check_thread(_caller_thread.number)

    def _check_thread(self, number: int) -> None:
        """Raise ``UsageError`` if another call is running; an exception may have ended the call of
        ``_calling_thread``."""
        here = sys._getframe(1)
        for top in sys._current_frames().values():
            frame: FrameType | None = top
            while frame is not None:
                if frame is not here and frame.f_code in _ITERATOR_CALLS and frame.f_locals.get("self") is self:
                    raise UsageError(SIGNAL_HANDLER_MESSAGE if self._calling_thread == number else TWO_THREADS_MESSAGE)
                frame = frame.f_back
        self._calling_thread = NO_THREAD


_ITERATOR_CALLS = frozenset({RecordDelivery.prepare_next.__code__, RecordDelivery.peek.__code__})
"""The functions that run while a thread is inside of an iterator."""

if TYPE_CHECKING:

    class TypedMap(map[M]):
        """``map``, which has no type arguments at run time."""

else:

    class TypedMap(map, Generic[M]):
        """The same, at run time."""


class _MessageSource:
    """Makes the delivery put the result of ``wrap`` for each message into its slot."""

    def __init__(self, delivery: RecordDelivery, wrap: Callable[[Any], Any]) -> None:
        self._delivery = delivery
        self._wrap = wrap

    def __iter__(self) -> _MessageSource:
        return self

    def __next__(self) -> int:
        return self._delivery.prepare_next(self._wrap)


class _BatchSource:
    """Makes the delivery put one batch after the other into its slot."""

    def __init__(
        self, delivery: RecordDelivery, max_records: int, max_bytes: int, make: Callable[[str, int, Record], Any]
    ) -> None:
        self._delivery = delivery
        self._gather = partial(delivery.collect_batch, max_records, max_bytes, make)

    def __iter__(self) -> _BatchSource:
        return self

    def __next__(self) -> int:
        return self._delivery.prepare_next(None, self._gather)


def _size_of(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"")


class RecordIterator(TypedMap[M]):
    """An iterator whose ``__next__`` runs in C: ``message_slot.pop(SLOT_INDEX)``, after ``prepare_next`` has put a
    message there, or the result of ``wrap``."""

    delivery: RecordDelivery

    def __new__(cls, delivery: RecordDelivery, wrap: Callable[[Any], Any] | None = None) -> Self:
        made = super().__new__(
            cls, delivery.message_slot.pop, delivery if wrap is None else _MessageSource(delivery, wrap)
        )
        made.delivery = delivery
        return made

    def next(self) -> M:
        """``__next__`` without the gap in which CPython itself can drop the result: see the head of this file.

        CPython handles no signal between ``for`` and ``return``, so no exception of a handler can drop the message
        here, also not a second one shortly after the first.  A trace function (a debugger) can raise there:
        ``undeliver`` is for that.
        """
        before = self.delivery.delivered
        try:
            for message in self:
                return message
        except BaseException:
            if self.delivery.delivered is not before:
                self.delivery.undeliver()
            raise
        raise stream_ended()
