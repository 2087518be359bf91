"""``RecordDelivery``: decides which record a stream gives next, and when that record counts as consumed.

The contract
------------
An exception may come between any two bytecodes of the iterating thread: Ctrl-C, a signal handler that raises, also
while the thread waits.  (An implementation in C keeps the same contract.)  Then each record is in one of two states:

*undelivered*  The next call gives it.  It is not counted as consumed, and its partition can leave at once.
*delivered*    The program has it, and it counts as consumed when the iterating thread comes back for more
               (``next``, ``has_next``, ``peek``), or as ``close`` and ``commit_offsets`` describe.

How the record changes from one state to the other
--------------------------------------------------
    read          ``_next`` = (chunk, record)              ``_next`` keeps the record until it counts as consumed
    offer         ``outbox`` = [message]                   first: from here on ``_offered`` means "undelivered"
                  ``_offered`` = ``_next``
                  ``info.in_hand`` = offset                ``take_in_hand``: the agreement with ``stop``, see ``chunks``
                  the lease is checked
                  ``queue.in_hand_since_ms``               for ``max.poll.interval.ms``; None again when the record is
                                                           withdrawn, given back or consumed
    deliver       ``outbox.pop()``                         in C, inside of ``map.__next__`` of ``ConsumerIterator``: the
                                                           one step in which the record becomes delivered; no bytecode
                                                           of ours follows it
    come back     ``info.come_back()``, ``_next`` = None, ``_offered`` = None

So, with ``_offered`` set, the record is undelivered while ``outbox`` is not empty, and delivered otherwise.  Each step
is one store, and each sequence may be run again from its beginning: what an exception interrupts, the next call (or
``close``) settles.  ``_withdraw`` undoes an offer, and runs already while the exception passes, so that a partition
which leaves need not wait for the program to call again.

``_state`` is READING while a chunk is decoded.  If a call finds it so, the call before was interrupted there: the
decoder, a generator, may have ended, or may have given a record that was lost.  It is made again, and begins at the
consumed offset.

What remains is CPython's own: after the builtin ``next(iterator)``, as after every call of a function in C, CPython
handles signals before the program's next bytecode, and an exception there drops the result; no iterator learns of it.
A ``for`` statement and the method ``iterator.next()`` have no such place.
"""

from __future__ import annotations

import itertools
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from enum import Enum
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.lease import Lease
from zkconsumer.errors import (
    ConsumerTimeoutException,
    InvalidMessageException,
    MessageSizeTooLargeException,
    NoSuchElementException,
    UnsupportedCodec,
    UsageError,
)
from zkconsumer.kafka.chunks import ChunkQueue, FetchedDataChunk, PartitionTopicInfo, ShutdownMarker
from zkconsumer.types import Place, TopicPartition
from zkconsumer.wire.entries import read_head
from zkconsumer.wire.records import Record, iter_records

LEASE_WAIT_MS = 100

NO_THREAD = 0
"""No thread has this number."""

LAST = -1
"""The index of the message in ``outbox``: what ``__next__`` gives, and ``map.__next__`` passes to ``outbox.pop``."""

M = TypeVar("M")

log = logging.getLogger("zkconsumer.streams")

_numbers = itertools.count(1)


class _Here(threading.local):
    def __init__(self) -> None:
        self.number = next(_numbers)


_here = _Here()


def calling_thread() -> int:
    """A number for the calling thread that no other ever gets; the system gives those of ended threads again."""
    return _here.number


class IteratorState(Enum):
    """As in the original's IteratorTemplate; here a record in ``_next`` is its READY, and ``_failure`` its FAILED."""

    NOT_READY = "not ready"
    READING = "reading"
    DONE = "done"


class Poison(NamedTuple):
    """A message that cannot be handed out.  ``offset``: where the stream stands; ``next_offset``: where a skip leads.

    Damage inside a batch concerns all of it, so there may be several messages between the two.
    """

    tp: TopicPartition
    offset: int
    next_offset: int
    error: Exception


class RecordDelivery:
    """The state of one stream's iterator.  Iterating over it gives ``LAST`` each time a message is in ``outbox``.

    ``make(info, record, key_decoder, value_decoder)`` makes the message.

    ``_inside``   the number of the thread whose call is running.  An exception at the end of a call may leave it set,
                  so ``_check_thread`` looks for the running call before it refuses another one.
    ``_open``     the chunk that is read and its decoder; only a cache of ``queue.reading``, None: open that one again.
    ``_placed``   the chunk whose ``Place`` the tally has: a decoder that was interrupted continues near where it was.
    ``_poison``   set when a message was raised, until it is skipped or its chunk is opened again.
    """

    def __init__(
        self,
        queue: ChunkQueue,
        lease: Lease,
        timeout_ms: int,
        make: Callable[[PartitionTopicInfo, Record, Any, Any], Any],
        key_decoder: Any,
        value_decoder: Any,
    ) -> None:
        self.outbox: list[Any] = []
        self.thread_id = NO_THREAD
        self.handed_out_at_ms: int | None = None
        self.on_poison: Callable[[TopicPartition, str], None] | None = None
        self.timeout_ms = None if timeout_ms < 0 else timeout_ms
        self._queue = queue
        self._lease = lease
        self._make = make
        self._key_decoder = key_decoder
        self._value_decoder = value_decoder
        self._state = IteratorState.NOT_READY
        self._next: tuple[FetchedDataChunk, Record] | None = None
        self._offered: tuple[FetchedDataChunk, Record] | None = None
        self._open: tuple[FetchedDataChunk, Iterator[Record]] | None = None
        self._placed: FetchedDataChunk | None = None
        self._failure: BaseException | None = None
        self._poison: tuple[FetchedDataChunk, Poison, int] | None = None
        self._reported_poison: tuple[TopicPartition, int] | None = None
        self._inside = NO_THREAD
        lease.add_wake_up(queue.wake_up)

    # --- the three calls that wait for a record -----------------------------------------------------------------

    def __iter__(self) -> RecordDelivery:
        return self

    def offer(self, wrap: Callable[[Any], Any] | None = None) -> int:
        """Put the next message, or what ``wrap`` makes of it, into ``outbox``; gives ``LAST``, its index."""
        number = _here.number
        if self._inside:
            self._check_thread(number)
        self._inside = self.thread_id = number
        try:
            while True:
                if self._offered is not None or self.outbox:
                    self.come_back()
                if not self._is_ready():
                    raise NoSuchElementException("the stream has ended: its connector is closed")
                ready = self._next
                if ready is None:
                    continue  # a signal handler closed the connector just now
                chunk, record = ready
                message = self._make(chunk.info, record, self._key_decoder, self._value_decoder)
                self.outbox.append(message if wrap is None else wrap(message))
                self._offered = ready
                if not self.outbox:  # a signal handler closed the connector just now, which emptied it
                    self._offered = None
                    continue
                if not chunk.info.take_in_hand(record.offset):
                    self._withdraw()
                    continue
                now_ms = self._lease.clock.now_ms()
                if now_ms >= self._lease.until_ms:
                    self._withdraw()
                    self._await_lease(chunk)
                    continue
                self.handed_out_at_ms = self._queue.in_hand_since_ms = now_ms
                if self.outbox:
                    self._inside = NO_THREAD
                    return LAST
                self._queue.in_hand_since_ms = None
                chunk.info.put_back()  # a signal handler closed the connector just now, which withdrew the offer
        except BaseException:
            self._withdraw()
            self._inside = NO_THREAD
            raise

    __next__ = offer

    def peek(self) -> tuple[PartitionTopicInfo, Record] | None:
        """The record that ``offer`` would take; None: the stream has ended."""
        number = _here.number
        if self._inside:
            self._check_thread(number)
        self._inside = self.thread_id = number
        try:
            self.come_back()
            while self._is_ready():
                ready = self._next
                if ready is not None and self._await_lease(ready[0]):
                    return ready[0].info, ready[1]
            return None
        finally:
            self._inside = NO_THREAD

    def message(self, info: PartitionTopicInfo, record: Record) -> Any:
        """What a program gets of this record."""
        return self._make(info, record, self._key_decoder, self._value_decoder)

    # --- the record in hand -------------------------------------------------------------------------------------

    @property
    def delivered(self) -> tuple[FetchedDataChunk, Record] | None:
        """The record that the program has, and has not come back from."""
        return None if self.outbox else self._offered

    def come_back(self) -> None:
        """Count the record in hand as consumed."""
        if self.outbox:
            self._withdraw()
        elif self._offered is not None:
            self._queue.in_hand_since_ms = None
            chunk, record = self._offered
            chunk.info.come_back(record.offset + 1, chunk.resets)
            self._next = None
            self._offered = None

    def give_back(self) -> None:
        """Count the record in hand as not consumed; the next call gives it again, if its partition is still ours."""
        if self.outbox:
            self._withdraw()
        elif self._offered is not None:
            self._queue.in_hand_since_ms = None
            self._offered[0].info.put_back()
            self._offered = None

    def position_in_hand(self) -> tuple[PartitionTopicInfo, int] | None:
        """The ownership and the next offset, when the program holds a record of this stream that still counts."""
        found = self.delivered
        if found is None or found[0].resets != found[0].info.resets:
            return None
        return found[0].info, found[1].offset + 1

    def _withdraw(self) -> None:
        """Undo an offer that was not taken out of ``outbox``.  The order matters: see the head of this file."""
        if self.outbox:
            self._queue.in_hand_since_ms = None
            if self._offered is not None:
                self._offered[0].info.put_back()
                self._offered = None
            self.outbox.clear()

    # --- poison -------------------------------------------------------------------------------------------------

    @property
    def poison(self) -> Poison | None:
        return None if self._poison is None or self._poison[0].is_void else self._poison[1]

    def skip_poison(self) -> Poison | None:
        """See ``ConsumerIterator.skip_poison``.  ``_poison`` goes last: interrupted, it may be called again."""
        if self._inside:
            self._check_thread(_here.number)
        if self._poison is None:
            raise UsageError("there is nothing to skip: no message was raised that cannot be handed out")
        chunk, poison, next_position = self._poison
        info = chunk.info
        if chunk.is_void:
            self._poison = None
            return None
        place = poison.tp, poison.offset, poison.next_offset
        log.warning("poison-skipped partition=%s from=%d next=%d why=%r", *place, str(poison.error))
        self._open = None
        if next_position < chunk.complete_bytes:
            # The chunk is cut, so that a stream which opens it again does not meet the message again.
            self._queue.reading = info.opened = chunk.behind(next_position)
            info.move_past(poison.next_offset, chunk.resets)
        elif chunk.complete_bytes:
            info.move_past(max(poison.next_offset, chunk.next_offset), chunk.resets)
            self._queue.finish(chunk)
        else:
            # It was never fetched whole, and the fetcher stands before it too.
            info.reset(poison.next_offset)
            info.opened = None
            self._queue.finish(chunk)
            if self._queue.on_room is not None:
                self._queue.on_room()
        self._poison = None
        return poison

    # --- reading ------------------------------------------------------------------------------------------------

    def clear_current_chunk(self) -> None:
        """Forget what was decoded ahead; what was not handed out of a partition that is still ours comes again."""
        self._open = None
        self._next = None

    def fail(self, error: BaseException) -> None:
        """Raise this from now on; takes no lock, so that it can be called in a forked child."""
        self._failure = error

    def _is_ready(self) -> bool:
        """Whether ``_next`` is a record of a partition that is still ours; False: the stream has ended."""
        while True:
            state = self._state
            if self._failure is not None:
                raise self._failure
            if state is IteratorState.DONE:
                return False
            if self._next is not None:
                if not self._next[0].is_void and not self._queue.is_ended:
                    return True
                self.clear_current_chunk()
            if state is IteratorState.READING:
                self._open = None
            self._state = IteratorState.READING
            self._state = IteratorState.NOT_READY if self._read() else IteratorState.DONE

    def _read(self) -> bool:
        """Decode one record into ``_next``; False: the stream has ended."""
        while True:
            found = self._open
            if found is None or self._queue.is_ended:
                found = self._open = self._open_chunk()
                if found is None:
                    return False
            chunk, records = found
            try:
                record = next(records, None)
            except (InvalidMessageException, UnsupportedCodec) as error:
                if not chunk.is_void:
                    raise self._poisoned(chunk, error) from error
                record = None
            if record is not None:
                self._next = chunk, record
                return True
            if not chunk.is_void:
                if not chunk.complete_bytes:
                    raise self._too_large(chunk)
                chunk.info.move_past(max(chunk.info.consumed_offset, chunk.next_offset), chunk.resets)
            self._queue.finish(chunk)
            self._open = None

    def _open_chunk(self) -> tuple[FetchedDataChunk, Iterator[Record]] | None:
        while isinstance(taken := self._queue.take(self.timeout_ms), FetchedDataChunk) and taken.is_void:
            self._queue.finish(taken)
        if taken is None:
            self._state = IteratorState.NOT_READY
            raise ConsumerTimeoutException(f"no message within consumer.timeout.ms={self.timeout_ms}")
        if isinstance(taken, ShutdownMarker):
            if taken.error is not None:
                self.fail(taken.error)
                raise taken.error
            return None
        info = taken.info
        if info.consumed_offset < taken.fetch_offset:
            log.error(
                "consumed offset: %d doesn't match fetch offset: %d for %s; Consumer may lose data",
                info.consumed_offset,
                taken.fetch_offset,
                info.tp,
            )
            info.move_past(taken.fetch_offset, taken.resets)
        self._poison = None
        if self._placed is not taken:
            info.tally.place = Place()
            self._placed = taken
        return taken, iter_records(taken.records, self._first_undelivered(taken), tally=info.tally)

    def _await_lease(self, chunk: FetchedDataChunk) -> bool:
        """Wait until records may be handed out; False: the partition has left, or the stream ended, meanwhile."""
        started_ms = SYSTEM_CLOCK.now_ms()
        while not self._lease.holds:
            waited_ms = SYSTEM_CLOCK.now_ms() - started_ms
            if self.timeout_ms is not None and waited_ms >= self.timeout_ms:
                raise ConsumerTimeoutException(
                    f"ZooKeeper has not answered lately, so nothing was handed out for {waited_ms} ms"
                )
            left_ms = LEASE_WAIT_MS if self.timeout_ms is None else self.timeout_ms - waited_ms
            self._queue.wake_up.wait(min(LEASE_WAIT_MS, left_ms))
            if chunk.is_void or self._queue.is_ended:
                return False
        return True

    def _poisoned(self, chunk: FetchedDataChunk, error: InvalidMessageException | UnsupportedCodec) -> Exception:
        """The same error with its place in the log; the chunk is opened again, so that the message is met again."""
        self._open = None
        offset = self._first_undelivered(chunk)
        place = vars(error)
        next_offset = max(place.get("next_offset", -1), offset)
        next_position = place.get("next_position", -1)
        if next_position < 0:
            next_offset, next_position = max(next_offset, chunk.next_offset), chunk.complete_bytes
        placed = type(error)(
            f"{chunk.info.tp} at offset {offset}: {error}; skip_poison() goes on at offset {next_offset}"
        )
        return self._remember(chunk, Poison(chunk.info.tp, offset, next_offset, placed), next_position)

    def _too_large(self, chunk: FetchedDataChunk) -> Exception:
        tp, offset = chunk.info.tp, chunk.fetch_offset
        head = read_head(chunk.records)
        next_offset = max(offset, head.next_offset - 1 if head else offset) + 1
        error = MessageSizeTooLargeException(
            "Found a message larger than the maximum fetch size of this consumer on topic "
            f"{tp.topic} partition {tp.partition} at fetch offset {offset}. Increase the "
            "fetch size, or decrease the maximum message size the broker will allow. "
            f"(It has {head.bytes_total if head else 'some'} bytes, {len(chunk.records)} were asked for at last; "
            f"skip_poison() goes on at offset {next_offset}.)"
        )
        return self._remember(chunk, Poison(tp, offset, next_offset, error), 0)

    def _remember(self, chunk: FetchedDataChunk, poison: Poison, next_position: int) -> Exception:
        self._poison = chunk, poison, next_position
        self._state = IteratorState.NOT_READY
        if self.on_poison is not None and self._reported_poison != (poison.tp, poison.offset):
            self._reported_poison = poison.tp, poison.offset
            self.on_poison(poison.tp, str(poison.error))
        return poison.error

    def _first_undelivered(self, chunk: FetchedDataChunk) -> int:
        start = chunk.info.consumed_offset
        found = self.delivered
        if found is not None and found[0].info is chunk.info and found[0].resets == chunk.resets:
            start = max(start, found[1].offset + 1)
        return start

    # --- one thread at a time -----------------------------------------------------------------------------------

    def _check_thread(self, number: int) -> None:
        """Raise ``UsageError`` if another call is running; an exception may have ended the one of ``_inside``."""
        here = sys._getframe(1)
        for top in sys._current_frames().values():
            frame: FrameType | None = top
            while frame is not None:
                if frame is not here and frame.f_code in _CALLS and frame.f_locals.get("self") is self:
                    raise UsageError(SIGNAL_HANDLER if self._inside == number else TWO_THREADS)
                frame = frame.f_back
        self._inside = NO_THREAD


_CALLS = frozenset({RecordDelivery.offer.__code__, RecordDelivery.peek.__code__})
"""What runs while a thread is inside of an iterator."""

TWO_THREADS = (
    "two threads are inside one stream's iterator: give each thread a stream of its own (the number in "
    "create_message_streams), or hold a lock of yours around has_next, next and all that belongs to a record"
)

SIGNAL_HANDLER = (
    "a signal handler calls the stream's iterator that it has interrupted: let the handler set a flag, or raise an "
    "exception, and read on when it has returned"
)


if TYPE_CHECKING:

    class MapOf(map[M]):
        """``map``, which has no type arguments at run time."""

else:

    class MapOf(map, Generic[M]):
        """The same, at run time."""


class DeliveringIterator(MapOf[M]):
    """An iterator whose ``__next__`` runs in C: ``outbox.pop(LAST)``, after ``offers`` has put a message there.

    ``offers`` calls ``delivery.offer`` for each message; the delivery itself does.
    """

    delivery: RecordDelivery

    def __new__(cls, delivery: RecordDelivery, offers: Iterator[int]) -> Self:
        made = super().__new__(cls, delivery.outbox.pop, offers)
        made.delivery = delivery
        return made

    def next(self) -> M:
        """``__next__`` without the place where CPython itself can drop the result: see the head of this file."""
        before = self.delivery.delivered
        try:
            return self.__next__()
        except BaseException:
            if self.delivery.delivered is not before:
                self.delivery.give_back()
            raise
