"""Memory for answers of brokers: kept for the answers that follow, and in huge pages where the system has them.

An answer of 8 MB lies in 2,000 ordinary pages, and each pass over it (received, its checksum verified, values copied)
looks up each of them.  With values of 1 KB, in workers that read nothing else, huge pages save a fifteenth of all CPU
that a row takes.
"""

from __future__ import annotations

import mmap
import weakref
from contextlib import suppress

import pyarrow as pa

from bridge.spark.decode.arrow_schema import POOL

SLOT_BYTES = 10 * 1024 * 1024
"""An answer of as much as is asked for, and some; a larger one gets memory of its own."""

SMALL_BYTES = 1024 * 1024
"""Smaller answers gain nothing, and come from the allocator."""

FREE_SLOTS_MAX = 2
"""One answer is read while the next is on its way."""

HUGE_PAGE_BYTES = 2 * 1024 * 1024


class ResponseBuffers:
    """Gives memory for an answer, and takes it back once nothing looks at it any more; in any thread."""

    def __init__(self) -> None:
        self._free: list[mmap.mmap] = []

    def allocate(self, size: int) -> memoryview:
        """``size`` bytes of anything, to be written."""
        if not SMALL_BYTES <= size <= SLOT_BYTES:
            # As the allocator gives it, without a pass over it that writes zeros.
            return memoryview(pa.allocate_buffer(size, memory_pool=POOL)).cast("B")
        try:
            slot = self._free.pop()
        except IndexError:
            slot = _new_slot()
        begin = -pa.py_buffer(slot).address % HUGE_PAGE_BYTES
        answer = pa.py_buffer(memoryview(slot)[begin : begin + size])
        # Every memoryview of a part of the answer refers to this object.
        weakref.finalize(answer, self._release, slot).atexit = False
        return memoryview(answer).cast("B")

    def _release(self, slot: mmap.mmap) -> None:
        if len(self._free) < FREE_SLOTS_MAX:
            self._free.append(slot)


def _new_slot() -> mmap.mmap:
    slot = mmap.mmap(-1, SLOT_BYTES + HUGE_PAGE_BYTES)
    # Systems and kernels without huge pages say so, or do not know the word: then these are pages as any other.
    with suppress(OSError, AttributeError):
        slot.madvise(mmap.MADV_HUGEPAGE)
    return slot


RESPONSE_BUFFERS = ResponseBuffers()
"""Of this process."""
