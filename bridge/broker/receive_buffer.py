"""What clients have sent and nobody has looked at yet: the bytes of one connection, and those of all together.

    bytes --> Incoming --frame--> the connection
                 '-- counted by Budget: too much is held --> whoever has held the most for the longest is given up

Whoever happens to come next is not to blame when memory is short: it is who begins requests and does not finish them.
Bytes times time tells them from others: a large request that comes in at once is young, a small one that trickles in
is old.
"""

from __future__ import annotations

from collections.abc import Callable

from zkconsumer.wire.request_frames import SIZE_BYTES, frame_size


class RequestMemoryBudget:
    """At most ``bytes_max`` lie in the buffers of all connections."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes_held = 0
        self._buffers: set[ReceiveBuffer] = set()

    def update(self, buffer: ReceiveBuffer, bytes_more: int) -> None:
        """So many more lie there, or (below 0) fewer."""
        self._bytes_held += bytes_more
        if buffer.size:
            self._buffers.add(buffer)
        else:
            self._buffers.discard(buffer)

    def enforce_limit(self, now_ms: int) -> None:
        """Give up those who hold too much, one after the other."""
        while self._bytes_held > self._bytes_max:
            buffer = max(self._buffers, key=lambda one: one.size * (now_ms - one.since_ms + 1))
            words = f"queued.max.request.bytes are held, and {buffer.size} by this one, which sends no whole request"
            buffer.discard()
            buffer.close_connection(words)


class ReceiveBuffer:
    """One connection's.  ``give_up(why)`` ends the connection; what it had sent is gone then.

    ``since_ms``: when the first byte of the request that is coming in came, or when the one before it was taken.
    """

    def __init__(self, budget: RequestMemoryBudget, give_up: Callable[[str], None], now_ms: int) -> None:
        self.close_connection = give_up
        self.since_ms = now_ms
        self._budget = budget
        self._bytes = bytearray()

    @property
    def size(self) -> int:
        """How many bytes lie here."""
        return len(self._bytes)

    def add(self, data: bytes, now_ms: int) -> None:
        """These came.  Somebody may be given up for them, us or another."""
        if not self._bytes:
            self.since_ms = now_ms
        self._bytes += data
        self._budget.update(self, len(data))
        self._budget.enforce_limit(now_ms)

    def next_frame(self, bytes_max: int, now_ms: int) -> bytes | None:
        """Take a request out, without its size; None: it is not whole.  ``RemoteProtocolError``: it is too large."""
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
        """Nobody will look at it any more."""
        dropped = len(self._bytes)
        self._bytes.clear()
        self._budget.update(self, -dropped)
