"""Counts records, markers of transactions and offsets without an entry in the answers to Fetch requests.  Pure.

    format 2         the header of a batch has its number of records; a batch that the range cuts is decoded
    formats 0 and 1  a message is one record; a compressed message is decompressed, since its header has only the last
                     offset

An offset without an entry was removed by compaction.  That is proved by a later entry of the same answer, never by the
end of an answer.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from struct import Struct

from zkconsumer.wire.entries import LogEntry, iter_entries
from zkconsumer.wire.records import iter_records

_ATTRIBUTES = Struct(">h")
_ATTRIBUTES_POSITION = 21
_COUNT = Struct(">i")
_COUNT_POSITION = 57
_CONTROL = 0x20
_CODEC = 0x07
_LEGACY_ATTRIBUTES_POSITION = 17


@dataclass(frozen=True, slots=True)
class OffsetCounts:
    """Offsets of ranges, each in one field.

    ``records``: a record is there.  ``markers``: control records of transactions.  ``aborted``: records of aborted
    transactions that the pipeline does not read.  ``absent``: no entry is there, and a later one is.  ``retention``:
    before the start of the log.  ``beyond_end``: after the end of the log.  ``unread``: the log was not read there.
    """

    records: int = 0
    markers: int = 0
    aborted: int = 0
    absent: int = 0
    retention: int = 0
    beyond_end: int = 0
    unread: int = 0

    def __add__(self, other: OffsetCounts) -> OffsetCounts:
        return OffsetCounts(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    @property
    def offsets(self) -> int:
        """All of them."""
        return sum(getattr(self, each.name) for each in fields(self))


def count_entries(
    record_set: bytes | memoryview, first: int, end: int, aborted: Collection[int] = ()
) -> tuple[OffsetCounts, int]:
    """What is at the offsets from ``first`` on, up to the end of the last complete entry or to ``end``.

    ``aborted``: the positions of the batches of aborted transactions.  Returns the counts of [first, next) and next;
    next is ``first`` if there is no complete entry.  Raises ``InvalidMessageException`` and ``UnsupportedCodec``.
    """
    flat = memoryview(record_set)
    total, position = OffsetCounts(), first
    for entry in iter_entries(flat):
        if entry.last_offset < position:
            continue  # a broker sends the whole batch in which the offset is
        if position >= end:
            break
        until = min(entry.last_offset + 1, end)
        records, is_marker = _records_in(flat, entry, position, until)
        if is_marker:
            total += OffsetCounts(markers=records)
        elif entry.position in aborted:
            total += OffsetCounts(aborted=records)
        else:
            total += OffsetCounts(records=records)
        total += OffsetCounts(absent=until - position - records)
        position = until
    return total, position


def _records_in(flat: memoryview, entry: LogEntry, first: int, end: int) -> tuple[int, bool]:
    """How many records of the entry are in [first, end), and whether they are markers."""
    if entry.magic == 2:
        (attributes,) = _ATTRIBUTES.unpack_from(flat, entry.position + _ATTRIBUTES_POSITION)
        (count,) = _COUNT.unpack_from(flat, entry.position + _COUNT_POSITION)
        covers_all = first <= entry.offset and entry.last_offset < end
        is_marker = bool(attributes & _CONTROL)
        if covers_all or is_marker:
            return max(0, min(count, end - max(first, entry.offset))), is_marker
    elif not flat[entry.position + _LEGACY_ATTRIBUTES_POSITION] & _CODEC:
        return int(first <= entry.offset < end), False
    return sum(1 for _ in iter_records(flat[entry.position : entry.end], first, False, end_offset=end)), False
