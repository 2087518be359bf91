"""Which offsets a damaged part of a record set covers, for the advice to skip them.  Pure.

The errors of ``zkconsumer.wire.entries`` carry the numbers of the damaged entry.  What they do not carry is where its
offsets begin: the header of a batch (format 2) has its first offset, the header of a compressed message (formats 0 and
1) its last one.
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
    """The same error, with the partition, and with the option that goes on without the damaged offsets.

    ``fetched``: the offset from which ``records`` were fetched.  ``skips``: the option as it is set.
    """
    bad, has_end = corrupt_range(records, error, fetched, wanted)
    extent = "" if has_end else " It is not known how far the damage reaches."
    return type(error)(f"{wanted.tp}: {error}.{extent} {skip_advice(bad, skips)}")


def skip_advice(bad: OffsetRange, skips: SkipOffsets) -> str:
    """What a user can do about offsets that cannot be read."""
    return (
        "Check that broker's disk, and start the query again: a stream repeats this batch. To go on without offsets "
        f"{bad.first} to {bad.end - 1} (a stream: on the same checkpoint), add to the reader {skip_option(skips, bad)}"
    )


def corrupt_range(
    records: bytes | memoryview, error: UndecodableError, fetched: int, wanted: OffsetRange
) -> tuple[OffsetRange, bool]:
    """The offsets that cannot be read because of ``error``, and whether their end is known.

    An end that is not known is the end of ``wanted``: the size or the
    offsets of the entry are damaged, so nothing shows where the next entry begins.
    """
    at: int = getattr(error, "position", 0)
    next_offset: int = getattr(error, "next_offset", -1)
    entry, after = _entry_at(records, at, fetched)
    if entry is None or next_offset < 0:
        first = min(max(after, wanted.first), wanted.end - 1)
        return OffsetRange(wanted.tp, first, wanted.end), False
    if getattr(error, "next_position", at) == at:  # one message inside a compressed one
        first = next_offset - 1
    elif entry.magic == _BATCH_MAGIC or not codec_of(records, entry):
        first = entry.offset
    else:
        first = min(after, entry.offset)
    return OffsetRange(wanted.tp, first, next_offset), True


def _entry_at(records: bytes | memoryview, at: int, fetched: int) -> tuple[LogEntry | None, int]:
    """The entry that begins at byte ``at``, and the offset after all entries before it (at least ``fetched``)."""
    after = fetched
    try:
        for entry in iter_entries(records):
            if entry.position >= at:
                return (entry if entry.position == at else None), after
            after = max(after, entry.last_offset + 1)
    except (InvalidMessageException, UnsupportedCodec):
        pass  # the entry at ``at`` has no sound header
    return None, after
