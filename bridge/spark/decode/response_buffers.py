"""Memory for answers of brokers: reused for later answers, and in huge pages where the system has them.

An answer of 8 MB needs 2,000 ordinary pages, and each pass over it (received, checksum verified, values copied)
looks up each of them.  With values of 1 KB, in workers that only read, huge pages save a fifteenth of the total CPU
time of a row.
"""

from __future__ import annotations

import mmap
import weakref
from contextlib import suppress

import pyarrow as pa

from bridge.spark.decode.arrow_schema import POOL

SLOT_BYTES = 10 * 1024 * 1024
"""An answer of the requested size, with a reserve; a larger one gets memory of its own."""

SMALL_BYTES = 1024 * 1024
"""For smaller answers there is no benefit; the allocator provides them."""

FREE_SLOTS_MAX = 2
"""One answer is read while the next one arrives."""

HUGE_PAGE_BYTES = 2 * 1024 * 1024


class ResponseBuffers:
    """Provides memory for an answer, and reuses it once no view refers to it any more; in any thread."""

    def __init__(self) -> None:
        self._free: list[mmap.mmap] = []

    def allocate(self, size: int) -> memoryview:
        """``size`` uninitialised bytes, to be written."""
        if not SMALL_BYTES <= size <= SLOT_BYTES:
            # From the allocator, without a pass that writes zeros.
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
    # Systems and kernels without huge pages return an error, or do not have the flag: then these are ordinary pages.
    with suppress(OSError, AttributeError):
        slot.madvise(mmap.MADV_HUGEPAGE)
    return slot


RESPONSE_BUFFERS = ResponseBuffers()
"""The buffers of this process."""
