"""The log of one partition, in memory.

A log is a list of shallow entries as on a broker's disk: messages, compressed wrappers (formats 0 and
1) or batches (format 2).  Readers get slices of it, converted down if their version needs an older format.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from zkconsumer.errors import UsageError
from zkconsumer.wire import compression
from zkconsumer.wire.entries import BATCH_BYTES_MIN, ENTRY_PREFIX_BYTES, LogEntry, Record, iter_entries
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.records import iter_records, scan_record_set

_CODEC_MASK = 0x07
_LEGACY_ATTRIBUTES_AT = 17
_BATCH_ATTRIBUTES_AT = 22
_BASE_OFFSET_BYTES = 8
_LEADER_EPOCH_AT = slice(12, 16)


class ZstdNotConvertibleError(Exception):
    """A reader of an older format requested zstd records, which no older format supports."""


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """One shallow entry; offsets are inclusive."""

    first_offset: int
    last_offset: int
    magic: int
    codec: int
    data: bytes

    def records(self) -> list[Record]:
        """Its records, checked."""
        return list(iter_records(self.data))


@dataclass(frozen=True, slots=True)
class FakeReadRules:
    """How a reader may be answered: by its fetch version, and by the broker's release.

    ``magic_max``: the newest format it reads.  ``at_least_one``: the first entry is returned whole whatever its size.
    ``empty_if_cut``: a first entry that does not fit is omitted, not cut.  The others as in ``BrokerRelease``.
    """

    magic_max: int
    at_least_one: bool
    empty_if_cut: bool
    converts_lazily: bool
    hides_unconvertible: bool


class RecordsRead(NamedTuple):
    """A record set, and how many bytes of the log it took: limits count those."""

    data: bytes
    stored_bytes: int


class FakeLog:
    """Offsets ``start`` up to and without ``end``."""

    def __init__(self, magic: int) -> None:
        self.magic = magic
        self.start = 0
        self.end = 0
        self.leader_epoch = 0
        self._stored: list[StoredEntry] = []

    @property
    def entries(self) -> Sequence[StoredEntry]:
        """The stored entries, oldest first."""
        return self._stored

    def append(self, records: Iterable[Record], codec: int, magic: int | None = None) -> None:
        """Append records at their own offsets, which must not be below the end; one batch, or one wrapper."""
        batch = list(records)
        if not batch:
            return
        if batch[0].offset < self.end:
            raise UsageError(f"offset {batch[0].offset} is below the end of the log, {self.end}")
        chosen = self.magic if magic is None else magic
        self._store_all(build_record_set(batch, chosen, codec))

    def append_produced(self, record_set: bytes | memoryview) -> int:
        """Append a producer's records, in the log's own format, at the end; returns the first offset.

        Raises ``InvalidMessageException`` or ``UnsupportedCodec`` before anything was appended.
        """
        first_offset = next_offset = self.end
        pieces = []
        for entry in iter_entries(record_set):
            data = bytes(record_set[entry.position : entry.end])
            records = list(iter_records(data))
            pieces.append(self._numbered(entry, data, records, next_offset))
            next_offset += len(records)
        for piece in pieces:
            self._store_all(piece)
        return first_offset

    def append_raw(self, data: bytes, next_offset: int) -> None:
        """Append bytes unchanged, even damaged ones; readers find them at the old end, and the end moves."""
        if next_offset <= self.end:
            raise UsageError(f"the end of the log, {self.end}, can only move on, not to {next_offset}")
        self._stored.append(StoredEntry(self.end, next_offset - 1, 0, compression.NONE, data))
        self.end = next_offset

    def delete_before(self, offset: int) -> None:
        """Move the start, like retention: whole entries are deleted, and the rest of the first one is not readable."""
        if not self.start <= offset <= self.end:
            raise UsageError(f"the start can move to {self.start} up to {self.end}, not to {offset}")
        self.start = offset
        self._stored = [stored for stored in self._stored if stored.last_offset >= offset]

    def truncate(self, offset: int) -> None:
        """Truncate the end, like an unclean leader election; entries across the cut are deleted as a whole."""
        if not self.start <= offset <= self.end:
            raise UsageError(f"the end can be cut to {self.start} up to {self.end}, not to {offset}")
        self._stored = [stored for stored in self._stored if stored.last_offset < offset]
        self.end = offset

    def holds(self, offset: int) -> bool:
        """Whether a reader may request this offset; the end is allowed: it waits for the next record."""
        return self.start <= offset <= self.end

    def read(self, offset: int, bytes_max: int, how: FakeReadRules) -> RecordsRead:
        """The record set from the entry with ``offset`` on; raises ``ZstdNotConvertibleError``."""
        wanted = [stored for stored in self._stored if stored.last_offset >= offset]
        whole: list[StoredEntry] = []
        room = bytes_max
        while len(whole) < len(wanted):
            stored = wanted[len(whole)]
            if len(stored.data) > room and (whole or not how.at_least_one):
                break
            whole.append(stored)
            room -= len(stored.data)
        cut = wanted[len(whole) : len(whole) + 1] if room > 0 else []
        seen = whole + cut
        must_convert = any(stored.magic > how.magic_max for stored in seen)
        if must_convert and any(stored.codec == compression.ZSTD for stored in seen):
            raise ZstdNotConvertibleError
        if not whole and (how.empty_if_cut or (must_convert and how.hides_unconvertible)):
            return RecordsRead(b"", 0)
        tail = b"".join(stored.data[:room] for stored in cut)
        stored_bytes = sum(len(stored.data) for stored in whole) + len(tail)
        if not whole or not must_convert:
            return RecordsRead(b"".join(stored.data for stored in whole) + tail, stored_bytes)
        return RecordsRead(_all_converted(whole, stored_bytes, how), stored_bytes)

    def first_at_or_after(self, time_ms: int) -> Record | None:
        """The first readable record whose timestamp is at or after the time."""
        for stored in self._stored:
            for record in stored.records():
                if record.offset >= self.start and record.timestamp >= time_ms:
                    return record
        return None

    def newest(self) -> Record | None:
        """The readable record with the highest timestamp."""
        records = [r for stored in self._stored for r in stored.records() if r.offset >= self.start]
        return max(records, key=lambda record: record.timestamp, default=None)

    def _numbered(self, entry: LogEntry, data: bytes, records: list[Record], first_offset: int) -> bytes:
        if entry.magic == self.magic == 2:
            # The checksum covers neither field, so brokers can assign offsets without changing the rest.
            numbered = bytearray(data)
            numbered[:_BASE_OFFSET_BYTES] = first_offset.to_bytes(_BASE_OFFSET_BYTES, "big")
            numbered[_LEADER_EPOCH_AT] = self.leader_epoch.to_bytes(4, "big")
            return bytes(numbered)
        moved = [replace(record, offset=first_offset + at) for at, record in enumerate(records)]
        if self.magic < 2:
            moved = [replace(record, headers=()) for record in moved]
        return build_record_set(moved, self.magic, _codec(data, entry.magic))

    def _store_all(self, record_set: bytes) -> None:
        for entry in iter_entries(record_set):
            data = record_set[entry.position : entry.end]
            codec = _codec(data, entry.magic)
            first = entry.offset
            if codec and entry.magic < 2:
                first = next(iter_records(data)).offset
            self._stored.append(StoredEntry(first, entry.last_offset, entry.magic, codec, data))
        self.end = scan_record_set(record_set).next_offset


def _codec(data: bytes, magic: int) -> int:
    return data[_BATCH_ATTRIBUTES_AT if magic == 2 else _LEGACY_ATTRIBUTES_AT] & _CODEC_MASK


def _all_converted(whole: list[StoredEntry], stored_bytes: int, how: FakeReadRules) -> bytes:
    converted = [
        stored.data if stored.magic <= how.magic_max else _converted(stored, how.magic_max) for stored in whole
    ]
    data = b"".join(converted)
    if not how.converts_lazily:
        return data
    # The length was fixed before the conversion, so the response must have it.
    promised = max(stored_bytes, len(converted[0]))
    return data[:promised] + _filler(promised - len(data))


def _filler(size: int) -> bytes:
    """The beginning of an entry that is longer than the rest, as real brokers send it: readers treat it as cut off."""
    if size <= 0:
        return b""
    head = (-1).to_bytes(8, "big", signed=True) + max(size + 1, BATCH_BYTES_MIN + ENTRY_PREFIX_BYTES).to_bytes(4, "big")
    return head[:size].ljust(size, b"\0")


def _converted(stored: StoredEntry, magic: int) -> bytes:
    """The same records in an older format, without headers, in format 0 without timestamps; control batches are
    removed."""
    records = [replace(record, headers=()) for record in stored.records()]
    return build_record_set(records, magic, stored.codec)
