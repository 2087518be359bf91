"""``KafkaStream`` and its one iterator: where records meet the program.

                       next, has_next, peek
   NOT_READY --------------------------------> READY --next--> NOT_READY
       |   a time-out, a message that cannot     |
       +-- be handed out: NOT_READY              +-- a partition that left takes its prefetched record with it
       |   any other error
       +------------> FAILED (for good)
       |   the shutdown marker
       +------------> DONE (for good)

A message that cannot be handed out (a *poison* message: corrupt, of an unknown codec, too large) is raised each time
the iterator comes to it, until the program goes past it with ``skip_poison``.  (In the original it ends the iterator.)

``consumed`` moves when the iterating thread comes *back* for more, so that an automatic commit never covers a record
that the program has not dealt with.  (The original moves it when ``next`` returns.)

Before each hand-out two things are looked at, in this order: whether the partition is still ours, and whether the
lease holds (by the clock, so that a process which was stopped for a while hands out nothing of its former life).
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

from zkconsumer.base.lease import Lease
from zkconsumer.errors import (
    ConsumerTimeoutException,
    InvalidMessageException,
    IteratorFailed,
    MessageSizeTooLargeException,
    NoSuchElementException,
    UnsupportedCodec,
    UsageError,
)
from zkconsumer.kafka.chunks import (
    ChunkQueue,
    FetchedDataChunk,
    PartitionTopicInfo,
    ShutdownMarker,
)
from zkconsumer.types import TopicPartition
from zkconsumer.wire.entries import read_head
from zkconsumer.wire.records import Record, iter_records

K = TypeVar("K")
V = TypeVar("V")
Decoder = Callable[[bytes], Any]

LEASE_WAIT_MS = 100

NOBODY = 0
"""No thread has this number."""

log = logging.getLogger("zkconsumer.streams")


_numbers = itertools.count(1)


class _Here(threading.local):
    def __init__(self) -> None:
        self.number = next(_numbers)


_here = _Here()


def calling_thread() -> int:
    """A number for the calling thread that no other ever gets; the system gives those of ended threads again."""
    return _here.number


def default_decoder(data: bytes) -> bytes:
    """The bytes as they are (``kafka.serializer.DefaultDecoder``)."""
    return data


def string_decoder(data: bytes) -> str:
    """UTF-8 text (``kafka.serializer.StringDecoder``)."""
    return data.decode("utf-8")


class MessageAndMetadata(Generic[K, V]):
    """One record.  ``key`` and ``value`` are decoded on each access, and None stays None (a tombstone).

    ``timestamp``: ms since 1970, -1 in message format 0.  ``headers``: name and bytes, from format 2 on.
    An error of a decoder comes out of the access and does not harm the iterator (0.8.1 and later).
    """

    __slots__ = ("_key_decoder", "_record", "_value_decoder", "partition", "topic")

    def __init__(self, info: PartitionTopicInfo, record: Record, key_decoder: Decoder, value_decoder: Decoder) -> None:
        self.topic, self.partition = info.tp
        self._record = record
        self._key_decoder = key_decoder
        self._value_decoder = value_decoder

    @property
    def offset(self) -> int:
        return self._record.offset

    @property
    def key(self) -> K | None:
        raw = self._record.key
        return None if raw is None else self._key_decoder(raw)

    @property
    def value(self) -> V | None:
        raw = self._record.value
        return None if raw is None else self._value_decoder(raw)

    @property
    def timestamp(self) -> int:
        return self._record.timestamp

    @property
    def timestamp_type(self) -> int:
        return self._record.timestamp_type

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        return self._record.headers

    def __repr__(self) -> str:
        return f"MessageAndMetadata({self.topic}/{self.partition} offset {self.offset})"


class IteratorState(Enum):
    """The states of the original's IteratorTemplate."""

    NOT_READY = "not ready"
    READY = "ready"
    DONE = "done"
    FAILED = "failed"


class Poison(NamedTuple):
    """A message that cannot be handed out.  ``offset``: where the stream stands; ``next_offset``: where a skip leads.

    Damage inside a batch concerns all of it, so there may be several messages between the two.
    """

    tp: TopicPartition
    offset: int
    next_offset: int
    error: Exception


@dataclass(slots=True)
class _Open:
    """The chunk that is being read."""

    chunk: FetchedDataChunk
    records: Iterator[Record]


class ConsumerIterator(Generic[K, V]):
    """The iterator of one stream; one thread at a time may be inside (``UsageError`` for the second).

    Raises ``ConsumerTimeoutException`` when nothing came within ``consumer.timeout.ms``, and
    ``InvalidMessageException``, ``MessageSizeTooLargeException`` and ``UnsupportedCodec`` for a message that cannot be
    handed out: the text names topic, partition and offset, ``poison`` has them, and ``skip_poison`` goes past it.
    After both, iteration may go on.  ``ThreadDied``, ``MigrationError`` and ``ConsumerIdInUse`` mean that the
    connector could not go on.
    """

    def __init__(
        self, queue: ChunkQueue, lease: Lease, timeout_ms: int, key_decoder: Decoder, value_decoder: Decoder
    ) -> None:
        self._queue = queue
        self._lease = lease
        self._timeout_ms = None if timeout_ms < 0 else timeout_ms
        self._key_decoder = key_decoder
        self._value_decoder = value_decoder
        self._state = IteratorState.NOT_READY
        self._open: _Open | None = None
        self._next: tuple[FetchedDataChunk, Record] | None = None
        self._in_hand: FetchedDataChunk | None = None
        self._consumed_when_back = 0
        self._failure: BaseException | None = None
        self._poison: tuple[FetchedDataChunk, Poison, int] | None = None
        self._inside = NOBODY
        self.thread_id = NOBODY
        self.on_poison: Callable[[TopicPartition, str], None] | None = None
        self._told_poison: tuple[TopicPartition, int] | None = None
        self.handed_out_at_ms: int | None = None

    def __iter__(self) -> ConsumerIterator[K, V]:
        return self

    def __next__(self) -> MessageAndMetadata[K, V]:
        """The next record; ``StopIteration`` once the connector is closed."""
        number = _here.number
        if self._inside and self._inside != number:
            raise self._shared()
        self._inside = self.thread_id = number
        try:
            self._come_back()
            while True:
                if not self._is_ready():
                    raise NoSuchElementException("the stream has ended: its connector is closed")
                chunk, record = self._upcoming
                if not chunk.info.take_in_hand(record.offset):
                    continue
                now_ms = self._lease.clock.now_ms()
                if now_ms < self._lease.until_ms:
                    self.handed_out_at_ms = now_ms
                    break
                chunk.info.put_back()
                self._await_lease(chunk)
            self._next = None
            self._state = IteratorState.NOT_READY
            self._in_hand = chunk
            self._consumed_when_back = record.offset + 1
        finally:
            self._inside = NOBODY
        return MessageAndMetadata(chunk.info, record, self._key_decoder, self._value_decoder)

    next = __next__

    def has_next(self) -> bool:
        """Whether there is a record that may be handed out; waits for one, at most ``consumer.timeout.ms``."""
        number = _here.number
        if self._inside and self._inside != number:
            raise self._shared()
        self._inside = self.thread_id = number
        try:
            self._come_back()
            while self._is_ready():
                if self._await_lease(self._upcoming[0]):
                    return True
            return False
        finally:
            self._inside = NOBODY

    def peek(self) -> MessageAndMetadata[K, V] | None:
        """The record that ``next`` will give, or None at the end; it may be another if its partition leaves."""
        if not self.has_next():
            return None
        chunk, record = self._upcoming
        return MessageAndMetadata(chunk.info, record, self._key_decoder, self._value_decoder)

    @property
    def poison(self) -> Poison | None:
        """The message that the iterator stands before and cannot hand out, once it was raised; else None."""
        return None if self._poison is None or self._poison[0].is_void else self._poison[1]

    def skip_poison(self) -> Poison | None:
        """Go past the message that the last call could not hand out: it counts as consumed, and is never seen again.

        Gives what was skipped; None when its partition has left meanwhile (whoever owns it now meets the message).
        Raises ``UsageError`` when nothing of the kind was raised.
        """
        if self._inside not in (NOBODY, _here.number):
            raise self._shared()
        if self._poison is None:
            raise UsageError("there is nothing to skip: no message was raised that cannot be handed out")
        (chunk, poison, next_position), self._poison = self._poison, None
        if chunk.is_void:
            return None
        place = poison.tp, poison.offset, poison.next_offset
        log.warning("poison-skipped partition=%s from=%d next=%d why=%r", *place, str(poison.error))
        if next_position < chunk.complete_bytes:
            # Cut, and not only read from there on: whoever opens the chunk again must not meet the message again.
            rest = chunk.info.opened = chunk.behind(next_position)
            chunk.info.move_past(poison.next_offset, chunk.resets)
            self._open = self._opened(rest)
            return poison
        if chunk.complete_bytes:
            chunk.info.move_past(max(poison.next_offset, chunk.next_offset), chunk.resets)
        else:
            # It was never fetched whole, and the fetcher stands before it too.
            chunk.info.reset(poison.next_offset)
            if self._queue.on_room is not None:
                self._queue.on_room()
        chunk.info.opened = self._open = None
        return poison

    def clear_current_chunk(self) -> None:
        """Forget what was decoded ahead; what was not handed out of a partition that is still ours comes again."""
        self._next = None
        if self._state is IteratorState.READY:
            self._state = IteratorState.NOT_READY
        if self._open is not None:
            self._open = None if self._open.chunk.is_void else self._opened(self._open.chunk)

    def come_back(self) -> None:
        """Count the record in hand as consumed, as asking for the next one does (for ``close`` in this thread)."""
        self._come_back()

    def give_back(self) -> None:
        """Count the record in hand as not consumed: it will be handed out again, here or elsewhere."""
        chunk, self._in_hand = self._in_hand, None
        if chunk is not None:
            chunk.info.put_back()

    def fail(self, error: BaseException) -> None:
        """Raise this from now on; takes no lock, so that it can be called in a forked child."""
        self._failure = error
        self._state = IteratorState.FAILED

    def position_in_hand(self) -> tuple[PartitionTopicInfo, int] | None:
        """The ownership and the next offset, when the program holds a record of this stream that still counts."""
        chunk = self._in_hand
        if chunk is None or chunk.resets != chunk.info.resets:
            return None
        return chunk.info, self._consumed_when_back

    # --- inside -------------------------------------------------------------------------------------------------

    @property
    def _upcoming(self) -> tuple[FetchedDataChunk, Record]:
        assert self._next is not None, "READY means that there is a record"
        return self._next

    def _come_back(self) -> None:
        chunk = self._in_hand
        if chunk is not None:
            self._in_hand = None
            chunk.info.come_back(self._consumed_when_back, chunk.resets)

    def _is_ready(self) -> bool:
        """Whether there is a record of a partition that is still ours; False: the stream has ended."""
        while True:
            match self._state:
                case IteratorState.FAILED:
                    raise self._failure or IteratorFailed("Iterator is in failed state")
                case IteratorState.DONE:
                    return False
                case IteratorState.READY:
                    if not self._upcoming[0].is_void and not self._queue.is_ended:
                        return True
                    self.clear_current_chunk()
                case IteratorState.NOT_READY:
                    self._state = IteratorState.FAILED
                    self._next = self._make_next()
                    self._state = IteratorState.DONE if self._next is None else IteratorState.READY

    def _await_lease(self, chunk: FetchedDataChunk) -> bool:
        """Wait until records may be handed out; False: the partition has left, or the stream ended, meanwhile."""
        waited_ms = 0
        while not self._lease.holds:
            if self._timeout_ms is not None and waited_ms >= self._timeout_ms:
                raise ConsumerTimeoutException(
                    f"ZooKeeper has not answered lately, so nothing was handed out for {waited_ms} ms"
                )
            step_ms = LEASE_WAIT_MS if self._timeout_ms is None else min(LEASE_WAIT_MS, self._timeout_ms - waited_ms)
            self._lease.wait(step_ms)
            waited_ms += step_ms
            if chunk.is_void or self._queue.is_ended:
                return False
        return True

    def _make_next(self) -> tuple[FetchedDataChunk, Record] | None:
        while True:
            if self._open is None or self._queue.is_ended:
                self._open = self._next_chunk()
                if self._open is None:
                    return None
            chunk = self._open.chunk
            if chunk.is_void:
                self._open = None
                continue
            try:
                record = next(self._open.records, None)
            except (InvalidMessageException, UnsupportedCodec) as error:
                raise self._poisoned(chunk, error) from error
            if record is not None:
                return chunk, record
            if not chunk.is_void:
                if not chunk.complete_bytes:
                    raise self._too_large(chunk)
                chunk.info.move_past(max(chunk.info.consumed_offset, chunk.next_offset), chunk.resets)
                chunk.info.opened = None
            self._open = None

    def _next_chunk(self) -> _Open | None:
        taken = self._queue.take(self._timeout_ms)
        if taken is None:
            self._state = IteratorState.NOT_READY
            raise ConsumerTimeoutException(f"no message within consumer.timeout.ms={self._timeout_ms}")
        if isinstance(taken, ShutdownMarker):
            self._failure = taken.error
            if taken.error is not None:
                raise taken.error
            return None
        info = taken.info
        if taken.is_void:
            return _Open(taken, iter(()))
        if info.consumed_offset < taken.fetch_offset:
            log.error(
                "consumed offset: %d doesn't match fetch offset: %d for %s; Consumer may lose data",
                info.consumed_offset,
                taken.fetch_offset,
                info.tp,
            )
            info.move_past(taken.fetch_offset, taken.resets)
        return self._opened(taken)

    def _poisoned(self, chunk: FetchedDataChunk, error: InvalidMessageException | UnsupportedCodec) -> Exception:
        """The same error with its place in the log; the chunk is opened anew, so that the message is met again."""
        self._open = self._opened(chunk)
        offset = self._start_in(chunk)
        place = vars(error)
        next_offset = max(place.get("next_offset", -1), offset)
        next_position = place.get("next_position", -1)
        if next_position < 0:
            next_offset, next_position = max(next_offset, chunk.next_offset), chunk.complete_bytes
        told = type(error)(
            f"{chunk.info.tp} at offset {offset}: {error}; skip_poison() goes on at offset {next_offset}"
        )
        return self._remember(chunk, Poison(chunk.info.tp, offset, next_offset, told), next_position)

    def _too_large(self, chunk: FetchedDataChunk) -> Exception:
        tp, offset = chunk.info.tp, chunk.fetch_offset
        head = read_head(chunk.records)
        next_offset = max(offset, head.next_offset - 1 if head else offset) + 1
        told = MessageSizeTooLargeException(
            "Found a message larger than the maximum fetch size of this consumer on topic "
            f"{tp.topic} partition {tp.partition} at fetch offset {offset}. Increase the "
            "fetch size, or decrease the maximum message size the broker will allow. "
            f"(It has {head.bytes_total if head else 'some'} bytes, {len(chunk.records)} were asked for at last; "
            f"skip_poison() goes on at offset {next_offset}.)"
        )
        return self._remember(chunk, Poison(tp, offset, next_offset, told), 0)

    def _remember(self, chunk: FetchedDataChunk, poison: Poison, next_position: int) -> Exception:
        self._poison = chunk, poison, next_position
        self._state = IteratorState.NOT_READY
        if self.on_poison is not None and self._told_poison != (poison.tp, poison.offset):
            self._told_poison = poison.tp, poison.offset
            self.on_poison(poison.tp, str(poison.error))
        return poison.error

    def _opened(self, chunk: FetchedDataChunk) -> _Open:
        return _Open(chunk, iter_records(chunk.records, self._start_in(chunk), tally=chunk.info.tally))

    def _start_in(self, chunk: FetchedDataChunk) -> int:
        """The first offset that was not handed out yet."""
        start = chunk.info.consumed_offset
        if self._in_hand is not None and self._in_hand.info is chunk.info and self._in_hand.resets == chunk.resets:
            start = max(start, self._consumed_when_back)
        return start

    def _shared(self) -> UsageError:
        return UsageError(
            "two threads are inside one stream's iterator: give each thread a stream of its own (the number in "
            "create_message_streams), or hold a lock of yours around has_next, next and all that belongs to a record"
        )


class KafkaStream(Generic[K, V]):
    """What one thread of the program reads; ``iterator()`` gives the same iterator every time."""

    def __init__(
        self,
        thread: str,
        queue: ChunkQueue,
        lease: Lease,
        timeout_ms: int,
        key_decoder: Decoder = default_decoder,
        value_decoder: Decoder = default_decoder,
    ) -> None:
        self.thread = thread
        self.queue = queue
        self._iterator: ConsumerIterator[K, V] = ConsumerIterator(queue, lease, timeout_ms, key_decoder, value_decoder)

    def iterator(self) -> ConsumerIterator[K, V]:
        """The stream's one iterator."""
        return self._iterator

    def __iter__(self) -> ConsumerIterator[K, V]:
        return self._iterator

    def clear(self) -> None:
        """Drop the chunk that is being read (the original's rebalances do; ours only stop what leaves)."""
        self._iterator.clear_current_chunk()

    def __repr__(self) -> str:
        return f"{self.thread} kafka stream"

