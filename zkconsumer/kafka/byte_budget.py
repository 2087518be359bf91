"""``ByteBudget``: how much memory the fetched and the decompressed bytes of one connector may take.

    fetcher --room--> ByteBudget --looks at--> queues (chunks, expanded_bytes) and shares (waiting, reserved_bytes)
       ^                  |
       '-- 0: no room ----'   the fetcher asks when a stream goes on, and after a while

Nothing is counted up or down: what is held is looked up each time, so no interruption of an iterating thread can make
the count wrong.  A request reserves what its answer may bring, and says so in its limit (KIP-74, from Fetch 3 on), so
several fetchers together keep to the budget.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zkconsumer.kafka.chunks import ChunkQueue, FetchedDataChunk
    from zkconsumer.wire.primitives import RecordSet


class BudgetReservation:
    """What one fetcher thread holds: ``waiting``, the chunks that are not in their queues yet, and ``reserved_bytes``,
    what the answer to its request in flight may bring."""

    def __init__(self) -> None:
        self.pending_chunks: deque[FetchedDataChunk] = deque()
        self.reserved_bytes = 0


class ByteBudget:
    """The bytes of one connector: all its fetcher threads and streams.  Everything may be called from any thread.

    ``bytes_max``: the setting ``queued.max.bytes``.  ``has_waiting_fetcher``: a fetcher waits for room.  Read without
    the lock.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._lock = threading.Lock()
        self._queues: list[ChunkQueue] = []
        self._shares: list[BudgetReservation] = []
        self._short: set[BudgetReservation] = set()

    @property
    def has_waiting_fetcher(self) -> bool:
        return bool(self._short)

    def add_queue(self, queue: ChunkQueue) -> None:
        """Count what is in this queue, and what its stream has expanded."""
        with self._lock:
            if queue not in self._queues:
                self._queues.append(queue)

    def add_reservation(self) -> BudgetReservation:
        """For one more fetcher thread."""
        with self._lock:
            share = BudgetReservation()
            self._shares.append(share)
            return share

    def remove_reservation(self, share: BudgetReservation) -> None:
        """Its fetcher thread has ended."""
        with self._lock:
            self._shares.remove(share)
            self._short.discard(share)

    @property
    def held_bytes(self) -> int:
        """What is held now, in bytes; requests in flight do not count."""
        with self._lock:
            return self._held()

    def reserve(self, share: BudgetReservation, chunk_bytes: int, max_bytes: int) -> int:
        """Reserve room for the answer to one request, at most ``max_bytes`` bytes; 0: there is none, ask again later.

        ``chunk_bytes``: what one partition may bring.  Room for one chunk is enough to ask.  A fetcher gets at most
        half of its part of the budget, so the requests of idle brokers leave room for what the others bring.
        """
        with self._lock:
            # Before the look: a stream that goes on meanwhile wakes the fetcher.
            self._short.add(share)
            share.reserved_bytes = 0
            part = max(1, self.bytes_max // (2 * len(self._shares)))
            free = self.bytes_max - self._held() - sum(each.reserved_bytes for each in self._shares)
            room = min(max_bytes, free, part)
            if room < min(chunk_bytes, max_bytes, part):
                return 0
            self._short.discard(share)
            share.reserved_bytes = room
            return room

    def reserve_over_limit(self, share: BudgetReservation, chunk_bytes: int) -> int:
        """Room for one chunk although there is none: for a stream that has nothing."""
        with self._lock:
            self._short.discard(share)
            share.reserved_bytes = chunk_bytes
            return chunk_bytes

    def release(self, share: BudgetReservation) -> None:
        """No request is in flight, and none is to be made now."""
        with self._lock:
            self._short.discard(share)
            share.reserved_bytes = 0

    def _held(self) -> int:
        expanded = sum(queue.decompressed_bytes for queue in self._queues)
        chunks = [chunk for queue in self._queues for chunk in queue.chunks()]
        for share in self._shares:
            chunks += share.pending_chunks
        return expanded + retained_bytes(chunk.records for chunk in chunks)


def retained_bytes(record_sets: Iterable[RecordSet]) -> int:
    """The bytes that these record sets keep in memory: a part of an answer keeps all of it."""
    sizes: dict[int, int] = {}
    for records in record_sets:
        owner = memoryview(records).obj
        sizes[id(owner)] = memoryview(owner).nbytes
    return sum(sizes.values())
