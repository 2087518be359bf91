"""``ChunkReader``: opens the chunks of a stream's queue one after the other, and decodes them.

                       read
   NOT_READY -> READING ----> a record, or a table of records ---> NOT_READY
       ^   |     |  a timeout, or a message that cannot be delivered |
       |   |     +-------------------------------------------------> |
       |   +-- an exception of a signal handler: the next call opens the chunk again at the
       program's position
       |
       +------------> FAILED (permanently): the connector could not continue
       +------------> DONE (permanently): the shutdown marker

``RecordDelivery`` reads one record at a time, ``TableDelivery`` one table of rows.  Both report
the position of the program (``unacknowledged_position``) and keep what was read
(``_store_decoded``).

``_state`` is READING while a chunk is decoded.  If a call finds this state, the previous call
was interrupted there: the decoder, a generator, may have ended, or may have yielded a record
that was lost.  A new decoder then begins at the consumed offset.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Generic, NamedTuple, NoReturn, TypeVar

from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.errors import (
    ConsumerTimeoutException,
    InvalidMessageException,
    MessageSizeTooLargeException,
    NoSuchElementException,
    UnsupportedCodec,
    UsageError,
)
from zkconsumer.kafka.chunks import ChunkQueue, FetchedDataChunk, PartitionTopicInfo, ShutdownMarker
from zkconsumer.types import RecordSetPosition, TopicPartition
from zkconsumer.wire.entries import read_entry_header

if TYPE_CHECKING:
    from zkconsumer.base.delivery_lease import Lease

LEASE_POLL_MS = 100

TWO_THREADS_MESSAGE = (
    "two threads are inside one stream's iterator: give each thread a stream of its own (the number in "
    "create_message_streams), or hold a lock of yours around has_next, next and all that belongs to a record"
)

SIGNAL_HANDLER_MESSAGE = (
    "a signal handler calls the stream's iterator that it has interrupted: make the handler set a flag, or raise an "
    "exception, and read on after it has returned"
)

U = TypeVar("U")
"""The unit of decoding: a record, or a table of records."""

log = logging.getLogger("zkconsumer.streams")


def stream_ended() -> NoSuchElementException:
    """The error of a call that needs a record after the connector has closed; it also ends a ``for`` loop."""
    return NoSuchElementException("the stream has ended: its connector is closed")


class IteratorState(Enum):
    """As in Scala's IteratorTemplate; here a record that is kept corresponds to READY, and ``_failure`` to FAILED."""

    NOT_READY = "not ready"
    READING = "reading"
    DONE = "done"


class PoisonMessage(NamedTuple):
    """A message that cannot be delivered.  ``offset``: the stream's position; ``next_offset``: the position after a
    skip.

    Damage inside a batch affects the whole batch, so there may be several messages between the two.
    """

    tp: TopicPartition
    offset: int
    next_offset: int
    error: Exception


class ChunkReader(Generic[U]):
    """The chunks of one stream.

    ``_open``     the chunk that is read and its decoder; only a cache of ``queue.reading``.  None: open that one again.
    ``_resumable_chunk``   the chunk whose ``RecordSetPosition`` is kept: an interrupted decoder continues near it.
    ``_poison``   set when a message was raised, until it is skipped or its chunk is opened again.
    """

    def __init__(self, queue: ChunkQueue, lease: Lease, timeout_ms: int) -> None:
        self.on_poison: Callable[[TopicPartition, str], None] | None = None
        self.timeout_ms = None if timeout_ms < 0 else timeout_ms
        self._queue = queue
        self._lease = lease
        self._state = IteratorState.NOT_READY
        self._open: tuple[FetchedDataChunk, Iterator[U]] | None = None
        self._resumable_chunk: FetchedDataChunk | None = None
        self._failure: BaseException | None = None
        self._poison: tuple[FetchedDataChunk, PoisonMessage, int] | None = None
        self._reported_poison: tuple[TopicPartition, int] | None = None
        lease.add_wake_up(queue.wake_up)

    # --- what the two kinds of delivery do in their own way -------------------------------------------------------

    @abstractmethod
    def _decode(self, chunk: FetchedDataChunk, start_offset: int) -> Iterator[U]:
        """Yield the records of the chunk from this offset on."""

    @abstractmethod
    def _store_decoded(self, chunk: FetchedDataChunk, unit: U) -> None:
        """Keep the decoded unit for delivery."""

    @abstractmethod
    def _has_decoded(self) -> bool:
        """Whether a record of a partition that this member owns is kept; records of other partitions are discarded."""

    @abstractmethod
    def clear_current_chunk(self) -> None:
        """Discard what was decoded ahead; undelivered records of owned partitions are decoded again."""

    @abstractmethod
    def unacknowledged_position(self) -> tuple[PartitionTopicInfo, int] | None:
        """The ownership and the next offset, if the program has a delivered record of this stream that still counts."""

    @abstractmethod
    def _check_no_call_running(self) -> None:
        """Raise ``UsageError`` while another call is running."""

    def _raise_ended(self) -> NoReturn:
        raise stream_ended()

    # --- poison -------------------------------------------------------------------------------------------------

    @property
    def poison(self) -> PoisonMessage | None:
        return None if self._poison is None or self._poison[0].is_stale else self._poison[1]

    def skip_poison(self) -> PoisonMessage | None:
        """See ``ConsumerIterator.skip_poison``.

        ``_poison`` is reset last, so that an interrupted call can be repeated.
        """
        self._check_no_call_running()
        if self._poison is None:
            raise UsageError("there is nothing to skip: no message was reported that cannot be delivered")
        chunk, poison, next_position = self._poison
        info = chunk.info
        if chunk.is_stale:
            self._poison = None
            return None
        place = poison.tp, poison.offset, poison.next_offset
        log.warning("poison-skipped partition=%s from=%d next=%d reason=%r", *place, str(poison.error))
        self._open = None
        if next_position < chunk.complete_bytes:
            # The chunk is cut, so that a stream which opens it again does not find the message again.
            self._queue.current_chunk = info.current_chunk = chunk.skip_to(next_position)
            info.mark_consumed(poison.next_offset, chunk.resets)
        elif chunk.complete_bytes:
            info.mark_consumed(max(poison.next_offset, chunk.next_offset), chunk.resets)
            self._queue.finish(chunk)
        else:
            # It was never fetched whole, and the fetch offset is before it too.
            info.reset(poison.next_offset)
            info.current_chunk = None
            self._queue.finish(chunk)
            if self._queue.on_space_available is not None:
                self._queue.on_space_available()
        self._poison = None
        return poison

    # --- reading ------------------------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """Raise this error from now on; takes no lock, so that it can be called in a forked child."""
        self._failure = error

    def _is_ready(self) -> bool:
        """Whether a record of an owned partition is kept; False: the stream has ended."""
        while True:
            state = self._state
            if self._failure is not None:
                raise self._failure
            if state is IteratorState.DONE:
                return False
            if self._has_decoded():
                return True
            if state is IteratorState.READING:
                self._open = None
            self._state = IteratorState.READING
            self._state = IteratorState.NOT_READY if self._read() else IteratorState.DONE

    def _read(self) -> bool:
        """Decode one record, or one table, and keep it; False: the stream has ended."""
        started_ms = None
        while True:
            found = self._open
            if found is None or self._queue.is_ended:
                if started_ms is None:
                    started_ms = SYSTEM_CLOCK.now_ms()
                found = self._open = self._open_chunk(started_ms)
                if found is None:
                    return False
            chunk, units = found
            try:
                unit = next(units, None)
            except (InvalidMessageException, UnsupportedCodec) as error:
                if not chunk.is_stale:
                    raise self._poison_error(chunk, error) from error
                unit = None
            if unit is not None:
                self._store_decoded(chunk, unit)
                return True
            if not chunk.is_stale:
                if not chunk.complete_bytes:
                    raise self._too_large_error(chunk)
                chunk.info.mark_consumed(max(chunk.info.consumed_offset, chunk.next_offset), chunk.resets)
            self._queue.finish(chunk)
            self._open = self._resumable_chunk = None
            # So that this chunk is not kept in memory while the stream waits for the next one.
            del found, chunk, units

    def _open_chunk(self, started_ms: int) -> tuple[FetchedDataChunk, Iterator[U]] | None:
        """Open the next chunk.  The timeout counts from ``started_ms``, because chunks without a record may arrive."""
        while isinstance(taken := self._queue.take(self._left_ms(started_ms)), FetchedDataChunk) and taken.is_stale:
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
                "consumed-offset-mismatch partition=%s consumed=%d fetched=%d: records may be lost",
                info.tp,
                info.consumed_offset,
                taken.fetch_offset,
            )
            info.mark_consumed(taken.fetch_offset, taken.resets)
        self._poison = None
        if self._resumable_chunk is not taken:
            info.tally.position = RecordSetPosition()
            self._resumable_chunk = taken
        return taken, self._decode(taken, self._first_undelivered(taken))

    def _left_ms(self, started_ms: int) -> int | None:
        return None if self.timeout_ms is None else max(0, self.timeout_ms - (SYSTEM_CLOCK.now_ms() - started_ms))

    def _wait_for_lease(self, chunk: FetchedDataChunk) -> bool:
        """Wait until records may be delivered; False: the partition has left, or the stream ended, meanwhile."""
        started_ms = SYSTEM_CLOCK.now_ms()
        while not self._lease.is_valid:
            waited_ms = SYSTEM_CLOCK.now_ms() - started_ms
            if self.timeout_ms is not None and waited_ms >= self.timeout_ms:
                raise ConsumerTimeoutException(
                    f"ZooKeeper has not answered lately, so no record was delivered for {waited_ms} ms"
                )
            left_ms = LEASE_POLL_MS if self.timeout_ms is None else self.timeout_ms - waited_ms
            self._queue.wake_up.wait(min(LEASE_POLL_MS, left_ms))
            if chunk.is_stale or self._queue.is_ended:
                return False
        return True

    def _poison_error(self, chunk: FetchedDataChunk, error: InvalidMessageException | UnsupportedCodec) -> Exception:
        """Return the error with its place in the log; the chunk is opened again, so that the next call raises it
        again."""
        self._open = None
        offset = self._first_undelivered(chunk)
        place = vars(error)
        next_offset = max(place.get("next_offset", -1), offset)
        next_position = place.get("next_position", -1)
        if next_position < 0:
            next_offset, next_position = max(next_offset, chunk.next_offset), chunk.complete_bytes
        placed = type(error)(
            f"{chunk.info.tp} at offset {offset}: {error}; skip_poison() continues at offset {next_offset}"
        )
        return self._set_poison(chunk, PoisonMessage(chunk.info.tp, offset, next_offset, placed), next_position)

    def _too_large_error(self, chunk: FetchedDataChunk) -> Exception:
        tp, offset = chunk.info.tp, chunk.fetch_offset
        head = read_entry_header(chunk.records)
        next_offset = max(offset, head.next_offset - 1 if head else offset) + 1
        error = MessageSizeTooLargeException(
            "Found a message larger than the maximum fetch size of this consumer on topic "
            f"{tp.topic} partition {tp.partition} at fetch offset {offset}. Increase the "
            "fetch size, or decrease the maximum message size the broker will allow. "
            f"(It has {head.size_bytes if head else 'some'} bytes, {len(chunk.records)} were requested last; "
            f"skip_poison() continues at offset {next_offset}.)"
        )
        return self._set_poison(chunk, PoisonMessage(tp, offset, next_offset, error), 0)

    def _set_poison(self, chunk: FetchedDataChunk, poison: PoisonMessage, next_position: int) -> Exception:
        self._poison = chunk, poison, next_position
        self._state = IteratorState.NOT_READY
        if self.on_poison is not None and self._reported_poison != (poison.tp, poison.offset):
            self._reported_poison = poison.tp, poison.offset
            self.on_poison(poison.tp, str(poison.error))
        return poison.error

    def _first_undelivered(self, chunk: FetchedDataChunk) -> int:
        start = chunk.info.consumed_offset
        found = self.unacknowledged_position()
        if found is not None and found[0] is chunk.info and chunk.resets == chunk.info.resets:
            start = max(start, found[1])
        return start
