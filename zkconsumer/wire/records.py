"""Reading record sets: the fetch side's ``scan`` and the stream side's ``iter_records``.  Pure.

    fetch response --bytes--> scan_record_set --> the next fetch offset; nothing is decoded
                      |
                      '--chunk--> iter_records --Record--> stream

Formats: 0 (``message set``, until 0.9), 1 (timestamps and relative offsets, 0.10), 2 (batches, 0.11 and later).
One record set may hold all three.  The parts: ``entries`` (headers of shallow entries), ``records_legacy`` (inside
an entry of formats 0 and 1), ``records_v2`` (inside a batch), ``compression``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from zkconsumer.types import RecordCounter
from zkconsumer.wire import compiled
from zkconsumer.wire.entries import NO_END, DecompressionBudget, Record, codec_of, iter_entries
from zkconsumer.wire.records_legacy import read_legacy_entry
from zkconsumer.wire.records_v2 import read_batch

__all__ = ["DECOMPRESSED_BYTES_MAX", "Record", "RecordSetScan", "iter_records", "scan_record_set"]

DECOMPRESSED_BYTES_MAX = 256 * 1024 * 1024
"""Limit for the expansion of one entry.  The broker's ``message.max.bytes`` limits a producer's batch *after*
compression, so this is far above any real batch, and far below what a small gzip stream can expand to.
"""


@dataclass(frozen=True, slots=True)
class RecordSetScan:
    """What a fetcher needs of a record set.

    ``complete_bytes`` and ``entries`` count the complete shallow entries.  ``first_offset`` is the offset in the
    header of the first (-1 when there is none): a batch's base offset, but a wrapper's *last* one.  ``next_offset``
    follows the last complete entry (-1 when there is none).  ``truncated``: bytes of another entry follow.
    ``starts_with_wrapper``: ``first_offset`` is that of a wrapper.
    """

    complete_bytes: int
    entries: int
    first_offset: int
    next_offset: int
    truncated: bool
    starts_with_compressed_wrapper: bool = False


def scan_record_set(record_set: bytes | memoryview, end_offset: int = NO_END) -> RecordSetScan:
    """Where the complete entries of ``record_set`` end, and the offset to fetch next.

    The last entry that is looked at is the first one that covers ``end_offset - 1`` or a later offset.

    Costs time per entry (a message when uncompressed in formats 0 and 1, else a batch), not per byte.  A tail that
    is cut off is legal: brokers cut at the fetch size (until 0.10.0 also the first entry).  The next offset after
    a batch comes from its last offset delta, since compaction and control batches leave gaps that no record fills.
    No checksum is verified: ``iter_records`` does this.

    Raises ``InvalidMessageException`` and ``UnsupportedCodec`` (a format above 2), see ``entries.walk``; their
    attribute ``position`` says how many bytes before are sound.
    """
    flat = flat_bytes(record_set)
    if compiled.RECORD_DECODER is not None:
        found = compiled.RECORD_DECODER.scan(flat, end_offset)
        if found is not None:
            complete_bytes, entries, first_offset, next_offset, is_wrapper = found
            truncated = complete_bytes < len(flat)
            return RecordSetScan(complete_bytes, entries, first_offset, next_offset, truncated, is_wrapper)
    return _scan_in_python(flat, end_offset)


def _scan_in_python(flat: bytes | memoryview, end_offset: int) -> RecordSetScan:
    """The same in Python, which raises the errors."""
    entries = 0
    complete_bytes = 0
    first_offset = next_offset = -1
    starts_with_wrapper = False
    for entry in iter_entries(flat) if end_offset > 0 else ():
        if not entries:
            first_offset = entry.offset
            starts_with_wrapper = entry.magic < 2 and bool(codec_of(flat, entry))
        entries += 1
        complete_bytes = entry.end
        next_offset = entry.last_offset + 1
        if entry.last_offset >= end_offset - 1:
            break
    return RecordSetScan(
        complete_bytes, entries, first_offset, next_offset, complete_bytes < len(flat), starts_with_wrapper
    )


def iter_records(
    record_set: bytes | memoryview,
    start_offset: int = 0,
    check_crcs: bool = True,
    *,
    end_offset: int = NO_END,
    excluded_batches: Collection[int] = (),
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    tally: RecordCounter | None = None,
    budget: DecompressionBudget | None = None,
) -> Iterator[Record]:
    """The records with ``start_offset`` <= offset < ``end_offset``, in strictly increasing order of offset.

    Lazy: an entry is checked and decompressed when its first record is requested, and the records before a bad
    entry are yielded before the error.  Control batches are omitted, a cut-off tail is ignored.  With
    ``check_crcs`` the checksum of every entry, and of every message inside a wrapper, is verified.  Nothing at or after
    ``end_offset`` is read, except for the checksum of the batch that contains it.

    ``excluded_batches``: positions of batches whose records are left out (``transactions.aborted_batches``); their
    checksums are verified.

    ``budget``: what compressed batches (format 2) are charged to, for a caller that bounds several record sets
    together; ``DecompressionLimitError``, a kind of ``InvalidMessageException``, when it does not suffice.

    ``tally`` is raised after some dozen records, and by the rest of an entry when it is finished, or the iterator
    dropped in the middle of it: to count each record would cost each record.

    Raises ``InvalidMessageException`` (checksum, structure, offsets that do not increase, more than
    ``decompressed_bytes_max`` out of one entry) and ``UnsupportedCodec``, and nothing else for any bytes.  Both name
    the offset of the entry and carry ``offset``, ``position``, ``next_position`` and ``next_offset``: reading can go on
    with ``record_set[next_position:]`` from ``next_offset`` on, unless those are -1.
    """
    flat = flat_bytes(record_set)
    offset_before = -1
    tally = RecordCounter() if tally is None else tally
    if end_offset <= 0:
        return
    for entry in iter_entries(flat):
        if entry.offset >= end_offset and not (entry.magic < 2 and codec_of(flat, entry)):
            return
        if entry.magic == 2:
            start = entry.last_offset + 1 if entry.position in excluded_batches else start_offset
            limits = start, check_crcs, decompressed_bytes_max, tally, budget
            yield from read_batch(flat, entry, *limits, end_offset=end_offset)
        else:
            yield from read_legacy_entry(
                flat, entry, offset_before, start_offset, check_crcs, decompressed_bytes_max, tally, end_offset
            )
        offset_before = entry.last_offset
        if offset_before >= end_offset - 1:
            return


def flat_bytes(record_set: bytes | memoryview) -> bytes | memoryview:
    """The same bytes with items of one byte."""
    return record_set if isinstance(record_set, bytes) else memoryview(record_set).cast("B")
