"""What is left of a segment after a crash.  Pure.

    sound | sound | sound | begun, and never finished      a torn tail: nobody was told that it is stored; it is cut
    sound | damaged | sound                                a disk that lost bits: what follows was acknowledged

The first is what a kill in the middle of a write leaves.  The second is never repaired silently: cutting there would
lose what others were promised, and going past it would hand out a gap.  They are told apart by looking for a sound
entry where the sound ones end, or behind it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bridge.broker.log.batches import StoredBatch, has_valid_checksum, read_batch_header
from zkconsumer.errors import InvalidMessageException, UnsupportedCodec
from zkconsumer.wire import compression
from zkconsumer.wire.entries import (
    BATCH_BYTES_MIN,
    ENTRY_PREFIX_BYTES,
    MAGIC_POSITION,
    MESSAGE_BYTES_MIN,
    LogEntry,
    codec_of,
    iter_entries,
)

SEARCH_BYTES_MAX = 8 * 1024 * 1024
"""How far behind a bad entry a sound one is looked for: some times the largest batch that brokers take as they ship."""

_BYTES_TO_MAGIC = 12


@dataclass(frozen=True, slots=True)
class RecoveredSegment:
    """``batches`` are sound and fill ``sound_bytes``.  ``problem``: what begins there, empty when nothing does.

    ``is_torn``: nothing sound stands behind the problem, so that it may be cut off.
    """

    batches: tuple[StoredBatch, ...]
    valid_bytes: int
    problem: str
    is_torn: bool


def recover(data: bytes | memoryview, base_offset: int) -> RecoveredSegment:
    """Look at every entry of a segment that begins with ``base_offset``; offsets have no gaps, since nothing compacts.

    No checksum covers an offset, so a sound entry with another number than the next one is damage as well.
    """
    batches: list[StoredBatch] = []
    sound_bytes, offset_before, problem = 0, base_offset - 1, ""
    try:
        for entry in iter_entries(data, 0, offset_before):
            if not has_valid_checksum(data, entry):
                problem = "the checksum of an entry does not match"
            elif entry.offset != offset_before + 1 and not _is_wrapper(data, entry):
                problem = f"an entry with offset {entry.offset} stands where {offset_before + 1} belongs"
            if problem:
                break
            batches.append(read_batch_header(data, entry))
            sound_bytes, offset_before = entry.end, entry.last_offset
    except (InvalidMessageException, UnsupportedCodec) as error:
        problem = str(error)
    if not problem and sound_bytes < len(data):
        problem = "an entry is cut off"
    is_torn = bool(problem) and not _has_valid_entry_after(data, sound_bytes, base_offset)
    return RecoveredSegment(tuple(batches), sound_bytes, problem, is_torn)


def _is_wrapper(data: bytes | memoryview, entry: LogEntry) -> bool:
    """Whether the number in its header is that of the last of several messages."""
    return entry.magic < 2 and codec_of(data, entry) != compression.NONE


def _has_valid_entry_after(data: bytes | memoryview, start: int, base_offset: int) -> bool:
    """Whether a sound entry begins at ``start`` (whatever its offset says), or soon after it in this segment.

    Only the lower half of an offset changes within a segment, so the upper half says where it is worth looking.
    """
    if _is_valid_entry_at(data, start):
        return True
    window = bytes(data[start : start + SEARCH_BYTES_MAX])
    upper = re.escape(base_offset.to_bytes(8, "big")[:4])
    pattern = b"(?s)(?=" + upper + b".{%d}[\x00-\x02])" % _BYTES_TO_MAGIC
    return any(_is_valid_entry_at(data, start + found.start()) for found in re.finditer(pattern, window))


def _is_valid_entry_at(data: bytes | memoryview, at: int) -> bool:
    head = bytes(data[at : at + MAGIC_POSITION + 1])
    if len(head) <= MAGIC_POSITION or head[MAGIC_POSITION] > 2:
        return False
    size = int.from_bytes(head[8:ENTRY_PREFIX_BYTES], "big", signed=True)
    end = at + ENTRY_PREFIX_BYTES + size
    smallest = BATCH_BYTES_MIN if head[MAGIC_POSITION] == 2 else MESSAGE_BYTES_MIN
    return (
        smallest <= size
        and end <= len(data)
        and has_valid_checksum(data, LogEntry(at, end, head[MAGIC_POSITION], 0, 0))
    )
