"""``KafkaStream`` and its one iterator: where records meet the program.

                       next, has_next, peek
   NOT_READY --------------------------------> READY --next--> NOT_READY
       |   an error that is not a time-out       |
       +------------> FAILED (for good)          +-- a partition that left takes its prefetched record with it
       |   the shutdown marker
       +------------> DONE (for good)

``consumed`` moves when the iterating thread comes *back* for more, so that an automatic commit never covers a record
that the program has not dealt with.  (The original moves it when ``next`` returns.)

Before each hand-out two things are looked at, in this order: whether the partition is still ours, and whether the
lease holds (by the clock, so that a process which was stopped for a while hands out nothing of its former life).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

from zkconsumer.base.lease import Lease
from zkconsumer.errors import (
    ConsumerTimeoutException,
    IteratorFailed,
    MessageSizeTooLargeException,
    NoSuchElementException,
)
from zkconsumer.kafka.chunks import (
    ChunkQueue,
    FetchedDataChunk,
    PartitionTopicInfo,
    ShutdownMarker,
)
from zkconsumer.wire.records import Record, iter_records

K = TypeVar("K")
V = TypeVar("V")
Decoder = Callable[[bytes], Any]

LEASE_WAIT_MS = 100

log = logging.getLogger("zkconsumer.streams")


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


@dataclass(slots=True)
class _Open:
    """The chunk that is being read."""

    chunk: FetchedDataChunk
    records: Iterator[Record]


class ConsumerIterator(Generic[K, V]):
    """The iterator of one stream; not to be shared between threads.

    Raises ``ConsumerTimeoutException`` when nothing came within ``consumer.timeout.ms`` (iteration may go on after
    it), ``InvalidMessageException``, ``MessageSizeTooLargeException`` and ``UnsupportedCodec`` for what was read
    (the iterator is then failed for good), ``ThreadDied``, ``MigrationError`` and ``ConsumerIdInUse`` when the
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
        self._next: tuple[PartitionTopicInfo, Record] | None = None
        self._in_hand: PartitionTopicInfo | None = None
        self._consumed_when_back = 0
        self._failure: BaseException | None = None
        self._resets_when_handed = 0
        self.thread_id = 0
        self.records_handed_out = 0

    def __iter__(self) -> ConsumerIterator[K, V]:
        return self

    def __next__(self) -> MessageAndMetadata[K, V]:
        """The next record; ``StopIteration`` once the connector is closed."""
        self.thread_id = threading.get_ident()
        self._come_back()
        while True:
            if not self._has_next():
                raise NoSuchElementException("the stream has ended: its connector is closed")
            assert self._next is not None, "READY means that there is a record"
            info, record = self._next
            if self._may_hand_out(info, record.offset):
                break
        self._next = None
        self._state = IteratorState.NOT_READY
        self._in_hand = info
        self._consumed_when_back = record.offset + 1
        self._resets_when_handed = info.resets
        self.records_handed_out += 1
        return MessageAndMetadata(info, record, self._key_decoder, self._value_decoder)

    next = __next__

    def has_next(self) -> bool:
        """Whether there is a record; waits for one, at most ``consumer.timeout.ms``."""
        self.thread_id = threading.get_ident()
        self._come_back()
        return self._has_next()

    def peek(self) -> MessageAndMetadata[K, V] | None:
        """The record that ``next`` will give, or None at the end; it may be another if its partition leaves."""
        if not self.has_next():
            return None
        assert self._next is not None, "READY means that there is a record"
        info, record = self._next
        return MessageAndMetadata(info, record, self._key_decoder, self._value_decoder)

    def clear_current_chunk(self) -> None:
        """Forget what was decoded ahead; what was not consumed of a partition that is still ours comes again."""
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
        info, self._in_hand = self._in_hand, None
        if info is not None:
            info.put_back()

    def fail(self, error: BaseException) -> None:
        """Raise this from now on; takes no lock, so that it can be called in a forked child."""
        self._failure = error
        self._state = IteratorState.FAILED

    def position_in_hand(self) -> tuple[PartitionTopicInfo, int] | None:
        """The ownership and the next offset, when the program holds a record of this stream."""
        info = self._in_hand
        return None if info is None else (info, self._consumed_when_back)

    # --- inside -------------------------------------------------------------------------------------------------

    def _come_back(self) -> None:
        info = self._in_hand
        if info is not None:
            self._in_hand = None
            info.come_back(self._consumed_when_back, self._resets_when_handed)

    def _has_next(self) -> bool:
        while True:
            match self._state:
                case IteratorState.FAILED:
                    raise self._failure or IteratorFailed("Iterator is in failed state")
                case IteratorState.DONE:
                    return False
                case IteratorState.READY:
                    assert self._next is not None, "READY means that there is a record"
                    if self._next[0].is_live:
                        return True
                    self.clear_current_chunk()
                case IteratorState.NOT_READY:
                    self._state = IteratorState.FAILED
                    self._next = self._make_next()
                    self._state = IteratorState.DONE if self._next is None else IteratorState.READY

    def _make_next(self) -> tuple[PartitionTopicInfo, Record] | None:
        while True:
            if self._open is None:
                self._open = self._next_chunk()
                if self._open is None:
                    return None
            chunk = self._open.chunk
            if chunk.is_void:
                self._open = None
                continue
            record = next(self._open.records, None)
            if record is not None:
                return chunk.info, record
            if not chunk.is_void:
                chunk.info.consumed_offset = max(chunk.info.consumed_offset, chunk.next_offset)
            self._open = None

    def _next_chunk(self) -> _Open | None:
        taken = self._queue.take(self._timeout_ms)
        if taken is None:
            self._state = IteratorState.NOT_READY
            raise ConsumerTimeoutException(f"no message within consumer.timeout.ms={self._timeout_ms}")
        if isinstance(taken, ShutdownMarker):
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
            info.consumed_offset = taken.fetch_offset
        if not taken.complete_bytes:
            raise MessageSizeTooLargeException(
                "Found a message larger than the maximum fetch size of this consumer on topic "
                f"{info.tp.topic} partition {info.tp.partition} at fetch offset {taken.fetch_offset}. Increase the "
                "fetch size (fetch.message.max.bytes), or decrease the maximum message size the broker will allow."
            )
        return self._opened(taken)

    def _opened(self, chunk: FetchedDataChunk) -> _Open:
        return _Open(chunk, iter_records(chunk.records, chunk.info.consumed_offset))

    def _may_hand_out(self, info: PartitionTopicInfo, offset: int) -> bool:
        """Take the record in hand if the partition is still ours and the lease holds; wait for the lease."""
        waited_ms = 0
        while True:
            if not info.take_in_hand(offset):
                return False
            if self._lease.holds:
                return True
            info.put_back()
            if self._timeout_ms is not None and waited_ms >= self._timeout_ms:
                raise ConsumerTimeoutException(
                    f"ZooKeeper has not answered lately, so nothing was handed out for {waited_ms} ms"
                )
            self._lease.wait(LEASE_WAIT_MS)
            waited_ms += LEASE_WAIT_MS
            if self._queue.is_ended:
                return False


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

