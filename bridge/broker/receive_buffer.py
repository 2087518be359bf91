"""Received bytes that are not processed yet: of one connection, and the total of all connections.

    bytes --> ReceiveBuffer --frame--> the connection
                 '-- counted by RequestMemoryBudget: above the limit it closes the connection with the largest
                     product of bytes and time

If memory is short, the cause is not the client that sends next, but clients that begin requests and do not finish them.
Bytes times time shows them: a large request that arrives at once is young, a small one that arrives slowly is old.
"""

from __future__ import annotations

from collections.abc import Callable

from zkconsumer.wire.request_frames import SIZE_BYTES, frame_size


class RequestMemoryBudget:
    """Limits the bytes in the buffers of all connections to ``bytes_max``."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes_held = 0
        self._buffers: set[ReceiveBuffer] = set()

    def update(self, buffer: ReceiveBuffer, bytes_more: int) -> None:
        """The buffer has this many bytes more, or (below 0) fewer."""
        self._bytes_held += bytes_more
        if buffer.size:
            self._buffers.add(buffer)
        else:
            self._buffers.discard(buffer)

    def enforce_limit(self, now_ms: int) -> None:
        """Close connections with the largest product of bytes and time, one after the other, until the limit holds."""
        while self._bytes_held > self._bytes_max:
            buffer = max(self._buffers, key=lambda one: one.size * (now_ms - one.since_ms + 1))
            words = f"queued.max.request.bytes are held, and {buffer.size} by this one, which sends no whole request"
            buffer.discard()
            buffer.close_connection(words)


class ReceiveBuffer:
    """The buffer of one connection.  ``give_up(why)`` ends the connection, and its received bytes are lost.

    ``since_ms``: when the first byte of the incomplete request arrived, or when the previous request was taken.
    """

    def __init__(self, budget: RequestMemoryBudget, give_up: Callable[[str], None], now_ms: int) -> None:
        self.close_connection = give_up
        self.since_ms = now_ms
        self._budget = budget
        self._bytes = bytearray()

    @property
    def size(self) -> int:
        """How many bytes it contains."""
        return len(self._bytes)

    def add(self, data: bytes, now_ms: int) -> None:
        """Add received bytes.  This may close a connection, this one or another."""
        if not self._bytes:
            self.since_ms = now_ms
        self._bytes += data
        self._budget.update(self, len(data))
        self._budget.enforce_limit(now_ms)

    def next_frame(self, bytes_max: int, now_ms: int) -> bytes | None:
        """Take a request out, without its size; None: it is incomplete.  ``RemoteProtocolError``: it is too large."""
        if len(self._bytes) < SIZE_BYTES:
            return None
        end = SIZE_BYTES + frame_size(self._bytes, bytes_max, "request")
        if len(self._bytes) < end:
            return None
        frame = bytes(self._bytes[SIZE_BYTES:end])
        del self._bytes[:end]
        self.since_ms = now_ms
        self._budget.update(self, -end)
        return frame

    def discard(self) -> None:
        """Discard the bytes."""
        dropped = len(self._bytes)
        self._bytes.clear()
        self._budget.update(self, -dropped)
