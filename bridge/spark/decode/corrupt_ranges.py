"""Finds the offsets of a damaged part of a record set, for the advice to skip them.  Pure.

The errors of ``zkconsumer.wire.entries`` contain the offsets of the damaged entry, except where its offsets begin: the
header of a batch (format 2) has its first offset, the header of a compressed message (formats 0 and 1) its last one.
"""

from __future__ import annotations

from typing import TypeAlias

from bridge.spark.decode.offset_ranges import OffsetRange, SkipOffsets, skip_option
from zkconsumer.errors import InvalidMessageException, UnsupportedCodec
from zkconsumer.wire.entries import LogEntry, codec_of, iter_entries

_BATCH_MAGIC = 2


UndecodableError: TypeAlias = InvalidMessageException | UnsupportedCodec


def with_skip_advice(
    error: UndecodableError, records: bytes | memoryview, fetched: int, wanted: OffsetRange, skips: SkipOffsets
) -> UndecodableError:
    """The same error, with the partition, and with the option to continue without the damaged offsets.

    ``fetched``: the offset from which ``records`` were fetched.  ``skips``: the current value of the option.
    """
    bad, has_end = corrupt_range(records, error, fetched, wanted)
    extent = "" if has_end else " It is not known where the damage ends."
    return type(error)(f"{wanted.tp}: {error}.{extent} {skip_advice(bad, skips)}")


def skip_advice(bad: OffsetRange, skips: SkipOffsets) -> str:
    """What a user can do about offsets that cannot be read."""
    return (
        "Check that broker's disk, and start the query again: a stream repeats this batch. To continue without offsets "
        f"{bad.first} to {bad.end - 1} (a stream: on the same checkpoint), add to the reader {skip_option(skips, bad)}"
    )


def corrupt_range(
    records: bytes | memoryview, error: UndecodableError, fetched: int, wanted: OffsetRange
) -> tuple[OffsetRange, bool]:
    """The offsets that cannot be read because of ``error``, and whether their end is known.

    An unknown end is the end of ``wanted``: the size or the offsets of the entry are damaged, so the start of the next
    entry is not known.
    """
    at: int = getattr(error, "position", 0)
    next_offset: int = getattr(error, "next_offset", -1)
    entry, after = _entry_at(records, at, fetched)
    if entry is None or next_offset < 0:
        first = min(max(after, wanted.first), wanted.end - 1)
        return OffsetRange(wanted.tp, first, wanted.end), False
    if getattr(error, "next_position", at) == at:  # one message in a compressed one
        first = next_offset - 1
    elif entry.magic == _BATCH_MAGIC or not codec_of(records, entry):
        first = entry.offset
    else:
        first = min(after, entry.offset)
    return OffsetRange(wanted.tp, first, next_offset), True


def _entry_at(records: bytes | memoryview, at: int, fetched: int) -> tuple[LogEntry | None, int]:
    """The entry that starts at byte ``at``, and the offset after all entries before it (at least ``fetched``)."""
    after = fetched
    try:
        for entry in iter_entries(records):
            if entry.position >= at:
                return (entry if entry.position == at else None), after
            after = max(after, entry.last_offset + 1)
    except (InvalidMessageException, UnsupportedCodec):
        pass  # the entry at ``at`` has no valid header
    return None, after
