"""What is left of a segment after a crash.  Pure.

    sound | sound | sound | begun, and never finished      a torn tail: nobody was told that it is stored; it is cut
    sound | damaged | sound                                a disk that lost bits: what follows was acknowledged

The first is what a kill in the middle of a write leaves.  The second is never repaired silently: cutting there would
lose what others were promised, and going past it would hand out a gap.  They are told apart by looking for a sound
entry behind the bad one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bridge.broker.log.batches import StoredBatch, describe, is_sound
from zkconsumer.errors import InvalidMessageException, UnsupportedCodec
from zkconsumer.wire.entries import ENTRY_PREFIX_BYTES, Entry, walk

SEARCH_BYTES_MAX = 8 * 1024 * 1024
"""How far behind a bad entry a sound one is looked for: some times the largest batch that brokers take as they ship."""

_BYTES_TO_MAGIC = 12


@dataclass(frozen=True, slots=True)
class Recovered:
    """``batches`` are sound and fill ``sound_bytes``.  ``problem``: what begins there, empty when nothing does.

    ``is_torn``: nothing sound stands behind the problem, so that it may be cut off.
    """

    batches: tuple[StoredBatch, ...]
    sound_bytes: int
    problem: str
    is_torn: bool


def recover(data: bytes | memoryview, base_offset: int) -> Recovered:
    """Look at every entry of a segment that begins with ``base_offset``, or behind it (compaction leaves gaps)."""
    batches: list[StoredBatch] = []
    sound_bytes, offset_before, problem = 0, base_offset - 1, ""
    try:
        for entry in walk(data, 0, offset_before):
            if not is_sound(data, entry):
                problem = "the checksum of an entry does not match"
                break
            batches.append(describe(data, entry))
            sound_bytes, offset_before = entry.end, entry.last_offset
    except (InvalidMessageException, UnsupportedCodec) as error:
        problem = str(error)
    if not problem and sound_bytes < len(data):
        problem = "an entry is cut off"
    is_torn = bool(problem) and not _follows(data, sound_bytes + 1, offset_before + 1)
    return Recovered(tuple(batches), sound_bytes, problem, is_torn)


def _follows(data: bytes | memoryview, start: int, offset_from: int) -> bool:
    """Whether a sound entry with an offset of at least ``offset_from`` begins at ``start`` or soon after.

    Only the lower half of an offset changes within a segment, so the upper half says where it is worth looking.
    """
    window = bytes(data[start : start + SEARCH_BYTES_MAX])
    upper = re.escape(offset_from.to_bytes(8, "big")[:4])
    for found in re.finditer(b"(?s)(?=" + upper + b".{%d}[\x00-\x02])" % _BYTES_TO_MAGIC, window):
        at = start + found.start()
        size = int.from_bytes(data[at + 8 : at + ENTRY_PREFIX_BYTES], "big", signed=True)
        end = at + ENTRY_PREFIX_BYTES + size
        if size <= 0 or end > len(data):
            continue
        entry = _entry_at(data[at:end], offset_from - 1)
        if entry is not None and is_sound(data[at:end], entry):
            return True
    return False


def _entry_at(piece: bytes | memoryview, offset_before: int) -> Entry | None:
    try:
        return next(walk(piece, 0, offset_before), None)
    except (InvalidMessageException, UnsupportedCodec):
        return None
