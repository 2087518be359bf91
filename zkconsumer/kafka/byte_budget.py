"""``ByteBudget``: limits the memory of the fetched and the decompressed bytes of one connector.

    fetcher --reserve--> ByteBudget --reads--> queues (chunks, expanded_bytes) and reservations (pending_chunks,
       ^                  |                                                                        reserved_bytes)
       '-- 0: no room ----'   the fetcher asks again when a stream has read on, and after a while

There is no counter: the used bytes are computed each time, so an interruption of an iterating thread cannot make
a count wrong.  A request reserves the size of its response, which is also its limit (KIP-74, from Fetch 3 on), so
several fetchers together keep to the budget.  Brokers apply this limit to the records: the other fields of a response,
up to 64 bytes for each partition, come in addition.
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
    """The bytes of one fetcher thread: ``pending_chunks``, the chunks that are not in their queues yet, and
    ``reserved_bytes``, the possible size of the response to its request in flight."""

    def __init__(self) -> None:
        self.pending_chunks: deque[FetchedDataChunk] = deque()
        self.reserved_bytes = 0


class ByteBudget:
    """The bytes of one connector: all its fetcher threads and streams.  Every method may be called from any thread.

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
        """Count the chunks of this queue, and the decompressed bytes of its stream."""
        with self._lock:
            if queue not in self._queues:
                self._queues.append(queue)

    def add_reservation(self) -> BudgetReservation:
        """Add a reservation for one more fetcher thread."""
        with self._lock:
            share = BudgetReservation()
            self._shares.append(share)
            return share

    def remove_reservation(self, share: BudgetReservation) -> None:
        """Remove the reservation of a fetcher thread that has ended."""
        with self._lock:
            self._shares.remove(share)
            self._short.discard(share)

    @property
    def held_bytes(self) -> int:
        """The bytes that are used now; requests in flight do not count."""
        with self._lock:
            return self._held()

    def reserve(self, share: BudgetReservation, chunk_bytes: int, max_bytes: int) -> int:
        """Reserve room for the response to one request, at most ``max_bytes`` bytes; 0: there is no room, try again
        later.

        ``chunk_bytes``: the maximum of one partition.  Room for one chunk is enough to send a request.  A fetcher gets
        at most half of its part of the budget, so the requests to idle brokers leave room for the responses of others.
        """
        with self._lock:
            # Before the check: a stream that reads on meanwhile wakes the fetcher.
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
        """Reserve room for one chunk although there is none: for a stream that has nothing to read."""
        with self._lock:
            self._short.discard(share)
            share.reserved_bytes = chunk_bytes
            return chunk_bytes

    def release(self, share: BudgetReservation) -> None:
        """No request is in flight, and none will be sent now."""
        with self._lock:
            self._short.discard(share)
            share.reserved_bytes = 0

    def _held(self) -> int:
        # In the order in which a chunk moves, without a lock: it may count in two places, but never in none.
        chunks = [chunk for share in self._shares for chunk in tuple(share.pending_chunks)]
        for queue in self._queues:
            chunks += queue.chunks()
        expanded = sum(queue.decompressed_bytes for queue in self._queues)
        return expanded + retained_bytes(chunk.records for chunk in chunks)


def retained_bytes(record_sets: Iterable[RecordSet]) -> int:
    """The bytes that these record sets keep in memory: a part of a response keeps the whole response."""
    sizes: dict[int, int] = {}
    for records in record_sets:
        owner = memoryview(records).obj
        sizes[id(owner)] = memoryview(owner).nbytes
    return sum(sizes.values())
