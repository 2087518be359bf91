"""Record sets as columns: positions of all fields of many records at once, no object for each.  Pure.

    record set --scan--> batches (format 2) ----------------> ``batches``   -.
                    |--> messages (formats 0, 1) -----------> ``messages``   |--> Columns
                    '--> compressed messages --one buffer---> ``messages``  -'

Whatever does not fit together is read once more by the record reader of ``zkconsumer.wire``, one record after the
other, which has the last word: the same records come out, or the same error does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from bridge.spark import compiled
from bridge.spark.batch_runs import MAGIC, BatchRun, run_of_batches
from bridge.spark.batches import batch_columns
from bridge.spark.messages import (
    CODEC_MASK,
    Messages,
    Wrapped,
    as_wrapped,
    plain_columns,
    run_of_messages,
    wrapped_columns,
)
from bridge.spark.spans import PIECE_BYTES_MAX, Columns, Headers, Limits, Raw, Spans, columns_between, pieces_of
from zkconsumer.errors import InvalidMessageException
from zkconsumer.types import Tally
from zkconsumer.wire.entries import (
    ENTRY_PREFIX_BYTES,
    MAGIC_POSITION,
    MESSAGE_BYTES_MIN,
    OFFSET_AND_SIZE,
    Entry,
    Record,
    codec_of,
    walk,
)
from zkconsumer.wire.records import DECOMPRESSED_BYTES_MAX
from zkconsumer.wire.records_legacy import open_wrapper, read_entry

__all__ = ["Columns", "Headers", "Scanned", "Spans", "columns_between", "read_columns", "scan"]

OFFSET_END = 2**63 - 1

RUN_MIN = 16
"""Uncompressed messages that are read as a run of their own.  A run costs as much as some ten messages that are read
one by one, and producers that compress and producers that do not may take turns."""


@dataclass(frozen=True, slots=True)
class _Wrappers:
    """Compressed messages that follow each other, and uncompressed ones in runs of less than ``RUN_MIN``."""

    entries: list[Entry]

    @property
    def first_offset(self) -> int:
        """-1, for not known: the header of a compressed message has its last offset."""
        return -1

    @property
    def last_offset(self) -> int:
        return self.entries[-1].last_offset


_Part: TypeAlias = "BatchRun | Messages | _Wrappers"


@dataclass(frozen=True, slots=True)
class Scanned:
    """What a record set is made of, up to the end of what is wanted.

    ``next_offset``: the one behind the last complete entry, -1 when there is none.  ``first_offset``: the first that a
    complete entry has, -1 when that is not known.
    """

    parts: list[_Part] = field(default_factory=list)

    @property
    def next_offset(self) -> int:
        return self.parts[-1].last_offset + 1 if self.parts else -1

    @property
    def first_offset(self) -> int:
        return self.parts[0].first_offset if self.parts else -1


def scan(record_set: Raw, end_offset: int = OFFSET_END) -> Scanned:
    """The complete entries, up to the one that covers the last offset before ``end_offset``; none is read.

    Raises as ``entries.walk`` does for what stands before that one.
    """
    parts: list[_Part] = []
    position, offset_before = 0, -1
    few_until = 0
    while True:
        run: BatchRun | Messages | None = None
        for entry in walk(record_set, position, offset_before):
            if entry.position >= few_until:
                few_until = _end_of_few(record_set, entry)
            if entry.position >= few_until:
                run = _run(record_set, entry, offset_before)
            if run is not None:
                break
            last = parts[-1] if parts else None
            if isinstance(last, _Wrappers):
                last.entries.append(entry)
            else:
                parts.append(_Wrappers([entry]))
            offset_before = entry.last_offset
            if offset_before >= end_offset - 1:
                break
        if run is None:
            return Scanned(parts)
        run = run.up_to(end_offset)
        parts.append(run)
        position, offset_before = run.end, run.last_offset
        if offset_before >= end_offset - 1:
            return Scanned(parts)


def _end_of_few(record_set: Raw, entry: Entry) -> int:
    """Where uncompressed messages end that begin with this entry and are too few for a run; 0: they are enough, are
    the last of the record set, or it is another entry."""
    if entry.magic == MAGIC or codec_of(record_set, entry):
        return 0
    end = entry.end
    for _ in range(1, RUN_MIN):
        if end + MAGIC_POSITION + 1 >= len(record_set):
            return 0
        _, size = OFFSET_AND_SIZE.unpack_from(record_set, end)
        if record_set[end + MAGIC_POSITION] != entry.magic or record_set[end + MAGIC_POSITION + 1] & CODEC_MASK:
            return end
        if size < MESSAGE_BYTES_MIN:
            return 0
        end += ENTRY_PREFIX_BYTES + size
    return 0


def _run(record_set: Raw, entry: Entry, offset_before: int) -> BatchRun | Messages | None:
    """What begins with this entry and can be read together; None: it is read by itself."""
    if entry.magic == MAGIC:
        return run_of_batches(record_set, entry.position, offset_before)
    if codec_of(record_set, entry):
        return None
    return run_of_messages(record_set, entry.position, offset_before)


def read_columns(
    record_set: Raw,
    first_offset: int = 0,
    end_offset: int = OFFSET_END,
    *,
    scanned: Scanned | None = None,
    with_headers: bool = False,
    check_crcs: bool = True,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> Iterator[Columns]:
    """The records with ``first_offset`` <= offset < ``end_offset``, in pieces that are not empty.

    ``scanned``: what ``scan`` found in ``record_set``, if it was asked already.

    Raises ``InvalidMessageException`` and ``UnsupportedCodec`` as ``wire.records.iter_records`` does, though perhaps
    before the sound records of the same piece were given.
    """
    limits = Limits(first_offset, end_offset, with_headers, check_crcs, decompressed_bytes_max)
    offset_before = -1
    for part in (scan(record_set, end_offset) if scanned is None else scanned).parts:
        for piece in _pieces(record_set, part, offset_before, limits):
            if len(piece):
                yield piece
        offset_before = part.last_offset


def _pieces(raw: Raw, part: _Part, offset_before: int, limits: Limits) -> Iterator[Columns]:
    if isinstance(part, Messages):
        # The last may stand behind the end, where it was only looked for.
        part = part.below(int(part.offsets.searchsorted(limits.end_offset)))
        for near in part.parts(compiled.piece_bytes_max()):
            found = plain_columns(raw, near, limits)
            if found is None:
                yield from _one_by_one(raw, near.entries(), offset_before, limits)
            else:
                yield found
            offset_before = near.last_offset
    elif isinstance(part, BatchRun):
        yield from batch_columns(raw, part, limits)
    else:
        yield from _wrapped(raw, part.entries, offset_before, limits)


def _wrapped(raw: Raw, entries: Iterable[Entry], offset_before: int, limits: Limits) -> Iterator[Columns]:
    """Compressed messages, some megabytes of what they hold at a time."""
    group: list[Entry] = []
    wrapped: list[Wrapped] = []
    parts: list[bytes] = []
    size = 0
    for entry in entries:
        if entry.offset < limits.first_offset:
            # Nothing of it is wanted: its checksum is looked at, and it is not opened.
            next(_records(raw, [entry], offset_before, limits), None)
            offset_before = entry.last_offset
            continue
        if codec_of(raw, entry):
            expanded = open_wrapper(raw, entry, limits.check_crcs, limits.decompressed_bytes_max)
        else:
            expanded = as_wrapped(raw, entry)
        if group and size + len(expanded[0]) > PIECE_BYTES_MAX:
            yield from _opened_columns(raw, group, wrapped, parts, offset_before, limits)
            offset_before = group[-1].last_offset
            group, wrapped, parts, size = [], [], [], 0
        group.append(entry)
        inner, append_time = expanded
        wrapped.append(Wrapped(entry, size, append_time))
        parts.append(inner)
        size += len(inner)
    if group:
        yield from _opened_columns(raw, group, wrapped, parts, offset_before, limits)


def _opened_columns(
    raw: Raw, group: list[Entry], wrapped: list[Wrapped], parts: list[bytes], offset_before: int, limits: Limits
) -> Iterator[Columns]:
    found = None
    # One that alone is larger than a piece may stand for some ten million messages: those come one after the other.
    if sum(map(len, parts)) <= PIECE_BYTES_MAX:
        found = wrapped_columns(b"".join(parts), wrapped, offset_before, limits)
    if found is None:
        yield from _one_by_one(raw, group, offset_before, limits)
    else:
        yield found


def _one_by_one(raw: Raw, entries: Iterable[Entry], offset_before: int, limits: Limits) -> Iterator[Columns]:
    return pieces_of(_records(raw, entries, offset_before, limits), limits)


def _records(raw: Raw, entries: Iterable[Entry], offset_before: int, limits: Limits) -> Iterator[Record]:
    """Entries of formats 0 and 1 by the record reader."""
    for entry in entries:
        try:
            yield from read_entry(
                raw, entry, offset_before, limits.first_offset, limits.check_crcs, limits.decompressed_bytes_max,
                Tally(),
            )  # fmt: skip
        except InvalidMessageException as error:
            if not _is_after(error, limits.end_offset):
                raise
            return
        offset_before = entry.last_offset


def _is_after(error: InvalidMessageException, end_offset: int) -> bool:
    """Whether only a message at or after ``end_offset`` is damaged, inside a compressed one that is sound."""
    is_inside = getattr(error, "next_position", -1) == getattr(error, "position", 0)
    next_offset: int = getattr(error, "next_offset", -1)
    return is_inside and next_offset > end_offset
