"""Checks a segment after a crash.  Pure.

    valid | valid | valid | incomplete       a torn tail: it was never acknowledged, so it is cut off
    valid | damaged | valid                  a disk that lost bits: the entries after the damage were acknowledged

A kill in the middle of a write causes the first case.  The broker never repairs the second one silently: a cut would
lose acknowledged records, and a skipped entry would be a gap for readers.  To distinguish the two, this module searches
for a valid entry where the valid ones end, and after that.
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
"""How far after a bad entry a valid one is searched for: some times the largest batch of brokers' default settings."""

_BYTES_TO_MAGIC = 12


@dataclass(frozen=True, slots=True)
class RecoveredSegment:
    """``batches`` are valid and fill ``valid_bytes``.  ``problem``: what follows them, empty if nothing does.

    ``is_torn``: there is nothing valid after the problem, so it may be cut off.
    """

    batches: tuple[StoredBatch, ...]
    valid_bytes: int
    problem: str
    is_torn: bool


def recover(data: bytes | memoryview, base_offset: int) -> RecoveredSegment:
    """Check every entry of a segment that begins with ``base_offset``; offsets have no gaps, as nothing is compacted.

    No checksum covers an offset, so a valid entry with another offset than the next one is damage as well.
    """
    batches: list[StoredBatch] = []
    sound_bytes, offset_before, problem = 0, base_offset - 1, ""
    try:
        for entry in iter_entries(data, 0, offset_before):
            if not has_valid_checksum(data, entry):
                problem = "the checksum of an entry does not match"
            elif entry.offset != offset_before + 1 and not _is_wrapper(data, entry):
                problem = f"an entry with offset {entry.offset} where {offset_before + 1} is expected"
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
    """Whether the offset in its header is that of the last of several messages."""
    return entry.magic < 2 and codec_of(data, entry) != compression.NONE


def _has_valid_entry_after(data: bytes | memoryview, start: int, base_offset: int) -> bool:
    """Whether a valid entry begins at ``start`` (whatever its offset is), or soon after it in this segment.

    Only the lower half of an offset changes within a segment, so the upper half shows where an entry may begin.
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
