"""Assembles response frames from plain bytes.  Pure.

    buffer() -> the caller puts bytes there -> filled(count) -> next_frame() until it returns None
    receive(recv_into): the same for a frame of which bytes are missing, with fewer calls

Bytes arrive in one of two places.  While the size of the next frame is unknown, they go into the read-ahead buffer:
a small response, and those behind it, are then one system call.  As soon as the size is known, the frame gets a buffer
of its own, the bytes of it that are in the read-ahead buffer are copied there, and the rest of the frame is received
directly into it: a large response is copied nowhere.

Invariants:
- ``_ahead[_start:_end]`` are the received bytes that belong to no frame yet.
- ``_frame`` is None, or a frame whose size is known and of which ``missing_bytes`` have not arrived.  Then the
  read-ahead buffer is empty, unless all bytes of the frame have arrived.
- The read-ahead buffer is never full when bytes are received: the caller takes all whole frames before, so that it
  contains at most the size and the header of one.

Java's ``NetworkReceive`` reads the size with one system call and the body with others; here the read-ahead buffer makes
it one, since each system call of a thread may wait for the interpreter's lock.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from zkconsumer.wire import compiled
from zkconsumer.wire.request_frames import SIZE_BYTES, frame_size

RECEIVE_AHEAD_BYTES: Final = 64 * 1024
"""How many bytes are received at a time before the size of a response is known, so that a small response is one system
call.  As much as the default receive buffer of a socket."""

CORRELATION_ID_BYTES: Final = 4

NO_CORRELATION_ID: Final = -1
"""Stands for the correlation id of a frame that is too short to have one; no request has it."""

REUSED_BYTES_MIN: Final = 256 * 1024
"""Buffers of frames that are smaller are not kept: the allocator of the process keeps their memory."""

REUSED_BYTES_STEP: Final = 64 * 1024
"""The size of a kept buffer is a multiple of this, since responses differ a little in size."""

REUSED_BYTES_MAX: Final = 8 * 1024 * 1024 + REUSED_BYTES_STEP
"""Buffers of frames that are larger are not kept: the allocator of the process keeps their memory, too.

The step is for what a response has beside its records: brokers fill the maximum of a partition to the last byte.
"""

BUFFERS_KEPT_MAX: Final = 3
"""The records of one response are read while the next one arrives, and the program may have some of the last one."""

MAPPED_BYTES_MIN: Final = 32 * 1024 * 1024
"""Buffers of such frames are kept: glibc takes their memory from the system each time, and gives it back."""

MAPPED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Buffers of frames that are larger are not kept.  The default of ``fetch.max.bytes`` is 50 MiB."""

MAPPED_KEPT_MAX: Final = 2
"""One fewer, since each has so much memory; a program seldom has records of the last response for long."""

FRAMES_WITHOUT_REUSE_MAX: Final = 16
"""After so many frames in succession of other sizes, no buffer is kept."""

BufferAllocator: TypeAlias = Callable[[int], memoryview]
"""A writable buffer of this size, with undefined content."""


def uninitialized_bytes(size: int) -> bytearray:
    """Undefined content; zeros where the compiled decoder is missing."""
    if compiled.RECORD_DECODER is None:
        return bytearray(size)
    made: bytearray = compiled.RECORD_DECODER.unwritten(size)
    return made


def uninitialized_buffer(size: int) -> memoryview:
    """A ``BufferAllocator``."""
    return memoryview(uninitialized_bytes(size))


def references_of(objects: Sequence[object], index: int) -> int:
    """The number of references to an object of a list, with that of the list and those of this call."""
    return sys.getrefcount(objects[index])


REFERENCES_OF_UNUSED: Final = references_of([bytearray()], 0)
"""What ``references_of`` returns if only the list refers to the object."""


class ReusedBuffers:
    """Buffers for the frames of one connection that have ``bytes_min`` to ``bytes_max``.

    New memory of a few megabytes costs a page fault for each 4 KiB, a tenth of the time that its records take.  So the
    buffers of the last frames are kept, and given again when only ``_kept`` refers to them: every view of a frame, and
    every object that has one, has a reference to its buffer.

    Invariant: ``_kept`` has at most ``kept_max`` buffers, each of at most ``bytes_max`` and one step.
    """

    __slots__ = ("_bytes_max", "_bytes_min", "_kept", "_kept_max", "_others_count")

    def __init__(self, bytes_min: int, bytes_max: int, kept_max: int) -> None:
        self._bytes_min, self._bytes_max, self._kept_max = bytes_min, bytes_max, kept_max
        self._kept: list[bytearray] = []
        self._others_count = 0

    def buffer(self, size: int) -> memoryview | None:
        """A writable buffer with undefined content; None: frames of this size have other ones.

        It must be called for each frame: so a connection whose frames have become small keeps nothing.
        """
        if not self._bytes_min <= size <= self._bytes_max:
            self._others_count += 1
            if self._others_count == FRAMES_WITHOUT_REUSE_MAX:
                self._kept.clear()
            return None
        self._others_count = 0
        unused = [n for n in range(len(self._kept)) if references_of(self._kept, n) == REFERENCES_OF_UNUSED]
        for n in unused:
            if size <= len(self._kept[n]) <= 2 * size + REUSED_BYTES_STEP:
                return memoryview(self._kept[n])[:size]
        if len(self._kept) == self._kept_max:
            del self._kept[unused[0] if unused else 0]
        made = uninitialized_bytes(size + REUSED_BYTES_STEP - size % REUSED_BYTES_STEP)
        self._kept.append(made)
        return memoryview(made)[:size]


class FrameBuffers:
    """Buffers for all frames of one connection; ``allocate`` is a ``BufferAllocator``.

    The sizes between ``REUSED_BYTES_MAX`` and ``MAPPED_BYTES_MIN`` are for the allocator of the process: it gives the
    memory that was released last, which is still in the caches of the processor.
    """

    __slots__ = ("_mapped", "_reused")

    def __init__(self) -> None:
        self._reused = ReusedBuffers(REUSED_BYTES_MIN, REUSED_BYTES_MAX, BUFFERS_KEPT_MAX)
        self._mapped = ReusedBuffers(MAPPED_BYTES_MIN, MAPPED_BYTES_MAX, MAPPED_KEPT_MAX)

    def allocate(self, size: int) -> memoryview:
        """A writable buffer of this size, with undefined content."""
        reused, mapped = self._reused.buffer(size), self._mapped.buffer(size)
        if reused is None:
            reused = mapped
        return uninitialized_buffer(size) if reused is None else reused


class FrameReceiver:
    """Plain bytes in, whole frames out; see the head of this module."""

    __slots__ = ("_ahead", "_end", "_frame", "_start", "missing_bytes")

    def __init__(self) -> None:
        self._ahead = memoryview(b"")
        self._start = self._end = 0
        self._frame: memoryview | None = None
        self.missing_bytes = 0
        """How many bytes of a frame with a known size have not arrived; 0: there is no such frame."""

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
            return self._frame[len(self._frame) - self.missing_bytes :]
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
            self.missing_bytes -= count
        else:
            self._end += count

    def receive(self, recv_into: Callable[[memoryview], int]) -> int:
        """Let a function put bytes into the frame of which bytes are missing; returns how many, as it does."""
        frame = self._frame
        assert frame is not None, "the size of the frame is known"
        count = recv_into(frame[len(frame) - self.missing_bytes :])
        self.missing_bytes -= count
        return count

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
            frame[: len(here)] = here
            self._start = start + len(here)
            if len(here) < size:
                self._frame, self.missing_bytes = frame, size - len(here)
                return None
            return frame
        if self.missing_bytes:
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
            filled = len(self._frame) - self.missing_bytes
            return len(self._frame).to_bytes(SIZE_BYTES, "big") + bytes(self._frame[:filled])
        return bytes(self._ahead[self._start : self._end])
