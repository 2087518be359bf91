"""Finds the offsets of a damaged part of a record set: to pass over them, or for the advice to skip them.  Pure.

The errors of ``zkconsumer.wire.entries`` contain the offsets of the damaged entry, except where its offsets begin: the
header of a batch (format 2) has its first offset, the header of a compressed message (formats 0 and 1) its last one.

    corrupt_range    what the advice names: the whole entry, as ``skipOffsets`` must exclude it
    damage_of        what a reader passes over: without the records that it has returned before the error
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeAlias

from bridge.spark.decode.offset_ranges import OffsetRange, ReadSettings, skip_option
from zkconsumer.errors import InvalidMessageException, UnsupportedCodec
from zkconsumer.types import TopicPartition
from zkconsumer.wire.entries import (
    MAGIC_POSITION,
    OFFSET_AND_SIZE,
    LogEntry,
    codec_of,
    entry_error,
    iter_entries,
)
from zkconsumer.wire.records import iter_records

_BATCH_MAGIC = 2

RAW_BYTES_MAX = 1 << 20
"""The largest damaged entry whose bytes are kept."""

HEAD_BYTES = 61
"""The header of a batch; the start of an entry by which it is recognised."""


UndecodableError: TypeAlias = InvalidMessageException | UnsupportedCodec


@dataclass(frozen=True, slots=True)
class CorruptRange:
    """The offsets [first, end) that a reader passed over because of one damage.

    ``has_end``: the header of the entry has the end; False: a search found it, and the number of records is unknown.
    ``data``: the bytes of the damaged entry, if its extent is known and it has at most ``RAW_BYTES_MAX``.
    """

    tp: TopicPartition
    first: int
    end: int
    has_end: bool
    reason: str
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class EarlierAnswer:
    """The record set that the answer to the next fetch must have, if no byte was damaged on the network.

    ``records``: None: the broker must report the damage again.
    """

    records: bytes | memoryview | None


@dataclass(frozen=True, slots=True)
class Damage:
    """A damage in a record set that was fetched.

    ``first``: the first offset that cannot be read.  ``end``: the offset after those that cannot; None: unknown; the
    same as ``first``: every record of the entry could be read before the error.  ``records``: the bytes from the
    damaged entry on, which is at ``position`` of the answer; None: the broker reports the damage, and sends no bytes.
    ``extent``: how many of these bytes are the entry; 0: unknown.  ``is_whole``: whether no offset of the entry is
    after ``end``.  ``failure``: the error for a query that does not pass over damage.
    """

    first: int
    end: int | None
    reason: str
    failure: Exception
    records: bytes | memoryview | None = None
    position: int = 0
    extent: int = 0
    is_whole: bool = True

    def is_in(self, earlier: EarlierAnswer) -> bool:
        """Whether the earlier answer had the same bytes."""
        if self.records is None:
            return earlier.records is None
        return self.same_bytes(earlier) is not None

    def same_bytes(self, earlier: EarlierAnswer) -> memoryview | None:
        """The earlier answer from the same entry on, if it has the same bytes there; None: it has not.

        Both answers begin with the same entry, or a broker sends entries before the offset that was requested, and the
        earlier answer is there from the damage on.  The bytes of an entry contain its offset.
        """
        if self.records is None or earlier.records is None:
            return None
        now = memoryview(self.records)
        for at in (self.position, 0):
            before = memoryview(earlier.records)[at:]
            size = self.extent or min(len(before), len(now))
            if size and before[:size] == now[:size]:
                return before
        return None

    @property
    def suspected(self) -> EarlierAnswer:
        """To be compared with the answer to a fetch from ``first``."""
        return EarlierAnswer(self.records)

    @property
    def following(self) -> EarlierAnswer | None:
        """To be compared with the answer to a fetch from ``end``; None: what is there is not known."""
        if self.records is None or not self.extent:
            return None
        return EarlierAnswer(self.records[self.extent :] if self.is_whole else self.records)

    def corrupt_range(self, tp: TopicPartition, end: int) -> CorruptRange:
        """What is passed over, up to ``end``."""
        keeps_data = self.records is not None and 0 < self.extent <= RAW_BYTES_MAX
        data = bytes(self.records[: self.extent]) if keeps_data and self.records is not None else None
        return CorruptRange(tp, self.first, end, self.end is not None, self.reason, data)


def with_skip_advice(
    error: UndecodableError, records: bytes | memoryview, fetched: int, wanted: OffsetRange, settings: ReadSettings
) -> UndecodableError:
    """The same error, with the partition, and with the option to continue without the damaged offsets.

    ``fetched``: the offset from which ``records`` were fetched.
    """
    bad, has_end = corrupt_range(records, error, fetched, wanted)
    extent = "" if has_end else " It is not known where the damage ends."
    return type(error)(f"{wanted.tp}: {error}.{extent} {skip_advice(bad, settings)}")


def skip_advice(bad: OffsetRange, settings: ReadSettings) -> str:
    """What a user can do about offsets that cannot be read."""
    claimed = f". {settings.claim_advice}" if settings.claim_advice else ""
    return (
        "Check that broker's disk, and start the query again: a stream repeats this batch. To continue without offsets "
        f"{bad.first} to {bad.end - 1} (a stream: on the same checkpoint), add to the reader "
        f"{skip_option(settings.skip_offsets, bad)}{claimed}"
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


def damage_of(
    records: bytes | memoryview,
    error: UndecodableError,
    fetched: int,
    wanted: OffsetRange,
    settings: ReadSettings,
    *,
    high_watermark: int,
    excluded_batches: Collection[int] = (),
) -> Damage:
    """The damage that an error of the decoder shows, whose records before it were returned.

    ``records``: the whole answer, fetched from ``fetched``.  The end is known only where the header of the entry is
    plausible: it ends where the next entry begins, at the latest, and before ``high_watermark`` (-1: unknown).
    """
    failure = with_skip_advice(error, records, fetched, wanted, settings)
    bad, has_end = corrupt_range(records, error, fetched, wanted)
    at: int = getattr(error, "position", 0)
    entry, _ = _entry_at(records, at, fetched)
    first = max(bad.first, fetched, wanted.first)
    if not has_end or entry is None or not _is_plausible(records, entry, high_watermark):
        return Damage(min(first, wanted.end - 1), None, str(error), failure, records[at:], at)
    # The records of the same entry before an invalid one were returned.
    is_excluded = at in excluded_batches
    first = max(first, _after_readable_records(records[at : entry.end], first, wanted, settings, is_excluded))
    end = max(first, min(bad.end, wanted.end))
    return Damage(
        first, end, str(error), failure, records[at:], at, entry.end - at, is_whole=end > entry.last_offset
    )  # fmt: skip


def damage_of_headers(
    records: bytes | memoryview,
    error: UndecodableError,
    fetched: int,
    wanted: OffsetRange,
    settings: ReadSettings,
    position: int,
) -> Damage:
    """The damage that an error of the scan of headers shows, from this byte on; no record before it is needed."""
    failure = with_skip_advice(error, records, fetched, wanted, settings)
    return Damage(fetched, None, str(error), failure, records[position:], position)


def beyond_log_error(records: bytes | memoryview, complete_bytes: int, high_watermark: int) -> UndecodableError:
    """The error of the last complete entry, whose offsets are after the end of the log."""
    *_, entry = iter_entries(records[:complete_bytes])
    what = f"offsets up to {entry.last_offset} are after the end of the log, {high_watermark}"
    return entry_error(InvalidMessageException, what, entry.offset, entry.position, -1)


def bytes_before_damage(records: bytes | memoryview, error: UndecodableError, fetched: int) -> int:
    """How many bytes before the error of a scan of headers are sound entries.

    Where offsets do not increase, the entry before may have the wrong one, since no checksum covers it: it counts as
    sound only if its records follow those before it without a gap.
    """
    at: int = getattr(error, "position", 0)
    is_order = getattr(error, "next_position", -1) > at and isinstance(error, InvalidMessageException)
    if not is_order:
        return at
    before, after, expected = 0, fetched, fetched
    for entry in iter_entries(records[:at]):
        before, expected, after = entry.position, after, entry.last_offset + 1
    try:
        first = next(iter_records(records[before:at]), None)
    except (InvalidMessageException, UnsupportedCodec):
        return at  # the decoder reports it
    return at if first is not None and first.offset <= expected else before


def head_of(records: bytes | memoryview) -> bytes:
    """The first bytes of a record set, by which its first entry is recognised."""
    return bytes(records[:HEAD_BYTES])


def _is_plausible(records: bytes | memoryview, entry: LogEntry, high_watermark: int) -> bool:
    """Whether the last offset in the header can be true."""
    if 0 <= high_watermark <= entry.last_offset:
        return False
    if len(records) < entry.end + MAGIC_POSITION + 1:
        return True
    offset, _ = OFFSET_AND_SIZE.unpack_from(records, entry.end)
    return bool(offset > entry.last_offset)


def _after_readable_records(
    entry: bytes | memoryview, first: int, wanted: OffsetRange, settings: ReadSettings, is_excluded: bool
) -> int:
    """The offset after the records that a damaged entry gives before its error; ``first`` without one."""
    after = first
    excluded = (0,) if is_excluded else ()
    try:
        for record in iter_records(
            entry, first, settings.check_crcs, end_offset=wanted.end, excluded_batches=excluded
        ):  # fmt: skip
            after = record.offset + 1
    except (InvalidMessageException, UnsupportedCodec):
        pass  # the error that is known already
    return after


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
