"""Chunks of raw record sets, and the bounded queue through which they pass from a fetcher to a stream.

    FetcherThread --offer--> ChunkQueue --take--> ConsumerIterator
                  <- on_space_available -          (one queue a stream; full from ``queued.max.message.chunks`` on)

A chunk is one partition's part of one Fetch response, unchanged: nothing is decoded before the stream opens it.
``PartitionTopicInfo`` is one *ownership* of one partition.  When the partition is released, ``is_live`` becomes false,
and every chunk of it is void.  A later ownership has a new info, so an old chunk is never taken for a new one.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.delivery_state import NO_UNACKNOWLEDGED_OFFSET, OwnershipState, QueueState
from zkconsumer.base.wakeup import WakeUp
from zkconsumer.member.offset_stores import OffsetSource
from zkconsumer.types import RecordCounter

if TYPE_CHECKING:
    from collections.abc import Callable

    from zkconsumer.kafka.byte_budget import ByteBudget
    from zkconsumer.types import TopicPartition

INVALID_OFFSET = -1
"""``PartitionTopicInfo.InvalidOffset`` of the Scala consumer: no position yet, apply the reset policy."""


class LastResponseTime:
    """When a fetcher thread last processed a response, in ms of its clock."""

    __slots__ = ("at_ms",)

    def __init__(self) -> None:
        self.at_ms = 0


class PartitionTopicInfo(OwnershipState):
    """One ownership of one partition: its offsets, and whether it is live.

    ``fetch_offset``: the next offset to fetch; while it is negative, the broker is asked where to begin.
    ``consumed_offset``: the offset after the last record that the program has acknowledged.  ``unacknowledged_offset``:
    the offset of the record that the program is processing, or -1.  ``resets`` counts how often the reset policy moved
    the partition: chunks and records from before the last reset are void.

    ``unacknowledged_offset`` and ``is_live`` let the iterating thread and the control thread agree without a lock.
    The iterating thread writes ``unacknowledged_offset`` and then reads ``is_live``; the control thread writes
    ``is_live`` and then reads ``unacknowledged_offset``.  In every order of these four steps, either the record is not
    delivered, or the control thread sees that it was.  This requires that other threads see the writes of a thread in
    their order, as under the GIL; ``zkconsumer.platforms`` rejects interpreters without it.

    ``started_at`` is the offset that ``source`` returned when the partition was assigned to its thread; -1: none.
    ``high_watermark`` is the end of the log for this reader (with ``read_committed`` the last stable offset) in the
    broker's last response, at ``last_response_ms``.  ``answers``: the time of
    the last response to requests with this partition, whether or not the response mentions it.  ``tally``
    counts the messages that the stream has read.

    ``opened`` is the chunk that the stream is reading, and ``kept`` the chunks that waited after it when the partition
    was stopped: another stream of this member continues with them.
    """

    __slots__ = (
        "_answered_at_ms",
        "current_chunk",
        "fetch_offset",
        "high_watermark",
        "last_response",
        "queue",
        "source",
        "start_offset",
        "tally",
        "thread",
        "tp",
        "unread_chunks",
    )

    def __init__(
        self,
        tp: TopicPartition,
        thread: str,
        queue: ChunkQueue,
        *,
        offset: int,
        source: OffsetSource = OffsetSource.NEITHER,
        tally: RecordCounter | None = None,
    ) -> None:
        super().__init__()
        self.tp = tp
        self.thread = thread
        self.queue = queue
        self.fetch_offset = offset
        self.start_offset = max(offset, INVALID_OFFSET)
        self.source = source
        self.high_watermark = INVALID_OFFSET
        self.last_response: LastResponseTime | None = None
        self._answered_at_ms = 0
        self.tally = RecordCounter() if tally is None else tally
        self.current_chunk: FetchedDataChunk | None = None
        self.unread_chunks: list[FetchedDataChunk] = []
        self.start_at(self.start_offset)

    def __str__(self) -> str:
        return f"{self.tp}: consumed offset = {self.consumed_offset}, fetched offset = {self.fetch_offset}"

    @property
    def last_response_ms(self) -> int:
        """When a broker last answered a request with this partition; 0: never."""
        answers = self.last_response
        return self._answered_at_ms if answers is None else answers.at_ms

    @last_response_ms.setter
    def last_response_ms(self, at_ms: int) -> None:
        self._answered_at_ms = at_ms

    def attach_response_time(self, answers: LastResponseTime, high_watermark: int) -> None:
        """Requests contain it from now on; ``high_watermark``: the last one that the broker sent to any reader, or
        -1."""
        self.last_response = answers
        if self.high_watermark == INVALID_OFFSET:
            self.high_watermark = high_watermark

    def detach_response_time(self) -> None:
        """Requests do not contain it any more."""
        self._answered_at_ms = self.last_response_ms
        self.last_response = None

    def reset(self, offset: int) -> None:
        """``resetFetchOffset`` and ``resetConsumeOffset``: continue at the offset of the reset policy."""
        self.apply_reset(offset)
        self.fetch_offset = offset

    def stop(self, on_drained: Callable[[PartitionTopicInfo], None]) -> None:
        """Deliver no more records; call ``on_drained`` (perhaps twice) once no delivered record is unacknowledged."""
        self.on_drained = on_drained
        self.is_live = False
        self.unread_chunks = self.queue.remove_chunks_of(self)
        if self.unacknowledged_offset == NO_UNACKNOWLEDGED_OFFSET:
            on_drained(self)

    def invalidate(self) -> None:
        """Deliver no more records, and call nothing: this member does not own the partition any more."""
        self.is_live = False
        self.on_drained = None
        self.current_chunk = None
        self.unread_chunks = []

    def undelivered_chunks(self) -> list[FetchedDataChunk]:
        """After ``stop``, with no record unacknowledged: the chunks that the stream has not delivered, in order."""
        chunks = self.unread_chunks if self.current_chunk is None else [self.current_chunk, *self.unread_chunks]
        return [chunk for chunk in chunks if chunk.resets == self.resets]


@dataclass(frozen=True, slots=True, eq=False)
class FetchedDataChunk:
    """One partition's record set of one Fetch response, and the offset that was requested.

    ``excluded_batches``: the byte positions of batches of aborted transactions, if the reader is ``read_committed``.
    """

    records: bytes | memoryview
    info: PartitionTopicInfo
    fetch_offset: int
    next_offset: int
    complete_bytes: int
    resets: int
    excluded_batches: tuple[int, ...] = ()

    @property
    def is_stale(self) -> bool:
        """Whether its partition has left, or was moved by the reset policy, since it was fetched."""
        info = self.info
        return not info.is_live or self.resets != info.resets

    def skip_to(self, position: int) -> FetchedDataChunk:
        """The same chunk without its first bytes, which are whole entries."""
        return replace(
            self,
            records=self.records[position:],
            complete_bytes=self.complete_bytes - position,
            excluded_batches=tuple(each - position for each in self.excluded_batches if each >= position),
        )


class ShutdownMarker:
    """Ends a stream permanently; ``error`` is the reason, None if the connector was closed."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


class ChunkQueue(QueueState):
    """A stream's queue: chunks, or the shutdown marker, after which nothing comes.

    With ``chunks_max`` chunks it is full, and fetchers request nothing more.  It always accepts chunks that were
    requested before: they are in memory, and a fetcher that waits for its next response could not deliver them later.

    The thread that iterates the stream takes no lock (``take``, ``finish``): an exception of a signal handler may come
    at any bytecode, and a lock that it left locked would stop the fetchers.  All other threads change ``_chunks`` under
    ``_lock``.  Each operation on the deque is one call of C.  So if a chunk is removed while another thread replaces
    the deque, it may at worst be found twice, and the second reading of a chunk begins at the consumed offset.

    ``on_space_available`` is called when the queue is not full any more and a fetcher waits for that (``check_space``),
    or when chunks of partitions that leave were removed.

    ``reading``: the chunk that was taken and is not finished.  It is set before the chunk is removed from ``_chunks``,
    so a chunk of a live partition is always in one of the two.

    ``unacknowledged_since_ms``: when the program received the record that it is processing, of any partition; None
    while it has none.  It is a single attribute, so another thread always reads a consistent value.

    ``expanded_bytes``: the memory of the decompressed bytes that the stream is reading, or has read last: the next ones
    will need about as much.  0 if the stream reads uncompressed records, or waits.  ``budget``: the limit for these
    bytes and those of the chunks; None: no limit.
    """

    def __init__(self, chunks_max: int) -> None:
        super().__init__()
        self.chunks_max = chunks_max
        self.on_space_available: Callable[[], None] | None = None
        self.wake_up = WakeUp()
        self.current_chunk: FetchedDataChunk | None = None
        self._is_awaited = False
        self.decompressed_bytes = 0
        self.budget: ByteBudget | None = None
        self._chunks: deque[FetchedDataChunk] = deque()
        self._marker: ShutdownMarker | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._chunks)

    @property
    def free_chunks(self) -> int:
        """How many more chunks should be requested; 0: the queue is full, or has ended."""
        return 0 if self._marker is not None else max(0, self.chunks_max - len(self._chunks))

    def check_space(self) -> bool:
        """Whether a fetcher may request more; if False, ``on_space_available`` is called later."""
        if self.free_chunks:
            return True
        self._is_awaited = True
        return bool(self.free_chunks)  # the stream may have taken one just before

    @property
    def is_idle(self) -> bool:
        """Whether the stream has nothing to read."""
        return not self._chunks and self.current_chunk is None and self._marker is None

    def chunks(self) -> list[FetchedDataChunk]:
        """The queued chunks and the one being read; a chunk may be in the list twice."""
        waiting = [*self._chunks]  # first: `take` sets the current chunk before it removes it here
        reading = self.current_chunk
        return waiting if reading is None else [reading, *waiting]

    def offer(self, chunk: FetchedDataChunk) -> None:
        """Add a chunk, even if the queue is full; a void chunk is discarded.  Never blocks."""
        with self._lock:
            if chunk.is_stale or self._marker is not None:
                return
            self._chunks.append(chunk)
        self.wake_up.set()

    def take(self, timeout_ms: int | None) -> FetchedDataChunk | ShutdownMarker | None:
        """Return the marker, the unfinished chunk, or the next chunk; None if none arrived in time.

        ``timeout_ms`` None waits without a limit.  Chunks of a partition that is leaving are skipped: the thread that
        stopped it removes them.  Called by the iterating thread only.
        """
        started_ms = SYSTEM_CLOCK.now_ms()
        if self.budget is not None and self.budget.has_waiting_fetcher and self.on_space_available is not None:
            self.on_space_available()
        while True:
            found = self._marker or self.current_chunk or self._first()
            if found is not None:
                break
            self.decompressed_bytes = 0
            left_ms = None if timeout_ms is None else timeout_ms - (SYSTEM_CLOCK.now_ms() - started_ms)
            if left_ms is not None and left_ms <= 0:
                return None
            self.wake_up.wait(left_ms)
        if isinstance(found, ShutdownMarker) or found is self.current_chunk:
            return found
        found.info.current_chunk = found
        self.current_chunk = found
        with contextlib.suppress(ValueError):  # the partition was stopped meanwhile
            self._chunks.remove(found)
        if self._is_awaited and self.free_chunks and self.on_space_available is not None:
            self._is_awaited = False
            self.on_space_available()
        return found

    def finish(self, chunk: FetchedDataChunk) -> None:
        """All records of the chunk that ``take`` returned last were delivered, or it is void.  May be called twice."""
        if not chunk.is_stale:
            chunk.info.current_chunk = None
        self.current_chunk = None

    def end(self, marker: ShutdownMarker) -> None:
        """Empty the queue and add the marker: exactly one, whatever the number of topics (KAFKA-1764)."""
        with self._lock:
            self._chunks.clear()
            self._marker = self._marker or marker
            self.is_ended = True
        self.wake_up.set()

    def drop_stale(self) -> None:
        """Remove the chunks of partitions that have left."""
        with self._lock:
            self._chunks = deque([chunk for chunk in list(self._chunks) if not chunk.is_stale])
        if self.on_space_available is not None:
            self.on_space_available()

    def remove_chunks_of(self, info: PartitionTopicInfo) -> list[FetchedDataChunk]:
        """Remove and return the chunks of one ownership, in order; for the thread that has stopped it."""
        with self._lock:
            chunks = list(self._chunks)
            taken = [chunk for chunk in chunks if chunk.info is info]
            self._chunks = deque([chunk for chunk in chunks if chunk.info is not info])
        if taken and self.on_space_available is not None:
            self.on_space_available()
        return taken

    def prepend(self, chunks: list[FetchedDataChunk]) -> None:
        """Add chunks that another stream of this member did not deliver, before all others, even if the queue is
        full."""
        with self._lock:
            if self._marker is None:
                self._chunks.extendleft(reversed(chunks))
        self.wake_up.set()

    def _first(self) -> FetchedDataChunk | None:
        return next((chunk for chunk in list(self._chunks) if chunk.info.is_live), None)
