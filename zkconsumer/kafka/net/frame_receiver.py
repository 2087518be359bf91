"""Assembles response frames from plain bytes.  Pure.

    buffer() -> the caller puts bytes there -> filled(count) -> next_frame() until it returns None

Bytes arrive in one of two places.  While the size of the next frame is unknown, they go into the read-ahead buffer:
a small response, and those behind it, are then one system call.  As soon as the size is known, the frame gets a buffer
of its own, the bytes of it that are in the read-ahead buffer are copied there, and the rest of the frame is received
directly into it: a large response is copied nowhere.

Invariants:
- ``_ahead[_start:_end]`` are the received bytes that belong to no frame yet.
- ``_frame`` is None, or a frame whose size is known and of which ``_filled`` bytes have arrived.  Then the read-ahead
  buffer is empty, unless all bytes of the frame have arrived.
- The read-ahead buffer is never full when bytes are received: the caller takes all whole frames before, so that it
  contains at most the size and the header of one.

Java's ``NetworkReceive`` reads the size with one system call and the body with others; here the read-ahead buffer makes
it one, since each system call of a thread may wait for the interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from zkconsumer.wire import compiled
from zkconsumer.wire.request_frames import SIZE_BYTES, frame_size

RECEIVE_AHEAD_BYTES: Final = 64 * 1024
"""How many bytes are received at a time before the size of a response is known, so that a small response is one system
call.  As much as the default receive buffer of a socket."""

CORRELATION_ID_BYTES: Final = 4

NO_CORRELATION_ID: Final = -1
"""Stands for the correlation id of a frame that is too short to have one; no request has it."""

BufferAllocator: TypeAlias = Callable[[int], memoryview]
"""A writable buffer of this size, with undefined content."""


def uninitialized_buffer(size: int) -> memoryview:
    """A ``BufferAllocator``; zeros where the compiled decoder is missing."""
    return memoryview(bytearray(size) if compiled.RECORD_DECODER is None else compiled.RECORD_DECODER.unwritten(size))


class FrameReceiver:
    """Plain bytes in, whole frames out; see the head of this module."""

    __slots__ = ("_ahead", "_end", "_filled", "_frame", "_start")

    def __init__(self) -> None:
        self._ahead = memoryview(b"")
        self._start = self._end = 0
        self._frame: memoryview | None = None
        self._filled = 0

    @property
    def missing_bytes(self) -> int:
        """How many bytes of a frame with a known size have not arrived; 0: no such frame."""
        return 0 if self._frame is None else len(self._frame) - self._filled

    @property
    def is_in_frame(self) -> bool:
        """Whether the next frame has a known size; ``next_frame`` has not returned it yet."""
        return self._frame is not None

    @property
    def has_bytes(self) -> bool:
        """Whether bytes have arrived that ``next_frame`` has not returned."""
        return self._start < self._end or self._frame is not None

    def buffer(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._frame is not None:
            return self._frame[self._filled :]
        if not self._ahead:
            self._ahead = memoryview(bytearray(RECEIVE_AHEAD_BYTES))
        if self._start:
            kept = bytes(self._ahead[self._start : self._end])
            self._ahead[: len(kept)] = kept
            self._start, self._end = 0, len(kept)
        assert self._end < len(self._ahead), "all whole frames are taken before more bytes are received"
        return self._ahead[self._end :]

    def filled(self, count: int) -> None:
        """``count`` bytes were put at the beginning of ``buffer()``."""
        if self._frame is not None:
            self._filled += count
        else:
            self._end += count

    def next_frame(self, bytes_max: int, new_buffer: BufferAllocator) -> memoryview | None:
        """The next frame without its size, or None while it is incomplete.

        Raises ``MalformedMessage`` for a size that is negative or larger than ``bytes_max``, before it allocates.
        """
        frame = self._frame
        if frame is None:
            start, end = self._start, self._end
            if end - start < SIZE_BYTES:
                return None
            size = frame_size(self._ahead[start:end], bytes_max)
            frame = new_buffer(size)
            start += SIZE_BYTES
            here = self._ahead[start : min(end, start + size)]
            self._filled = len(here)
            frame[: self._filled] = here
            self._start = start + self._filled
            if self._filled < size:
                self._frame = frame
                return None
            return frame
        if self._filled < len(frame):
            return None
        self._frame = None
        return frame

    def next_correlation_id(self) -> int | None:
        """The correlation id of the next frame, before that is taken; None: its bytes have not arrived.

        No frame may be partly received.
        """
        assert self._frame is None, "the correlation id was read before the frame got its buffer"
        start = bytes(self._ahead[self._start : min(self._end, self._start + SIZE_BYTES + CORRELATION_ID_BYTES)])
        if len(start) < SIZE_BYTES:
            return None
        if int.from_bytes(start[:SIZE_BYTES], "big", signed=True) < CORRELATION_ID_BYTES:
            return NO_CORRELATION_ID
        return int.from_bytes(start[SIZE_BYTES:], "big", signed=True) if len(start) > SIZE_BYTES + 3 else None

    def incomplete_bytes(self) -> bytes:
        """The bytes of the next frame that have arrived, with its size; a copy, for the texts of errors."""
        if self._frame is not None:
            return len(self._frame).to_bytes(SIZE_BYTES, "big") + bytes(self._frame[: self._filled])
        return bytes(self._ahead[self._start : self._end])
