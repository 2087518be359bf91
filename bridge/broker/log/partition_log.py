"""The log of one partition: offsets from ``start`` up to and without ``end``.

    append --> check sequence numbers --> assign offsets --> newest segment --> epochs, producers
    read   --> the segment that contains the offset --> stored bytes

All state besides the bytes (index, epochs, producers, transactions) is computed from them, again each time the log is
opened.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from bridge.broker.log.batches import read_batch_header
from bridge.broker.log.leader_epochs import EpochEnd, LeaderEpochs
from bridge.broker.log.log_validator import (
    ProduceRejected,
    RecordValidationRules,
    ValidatedRecords,
    assign_offsets,
    build_entries,
)
from bridge.broker.log.producer_state import BatchMetadata, ProducerStateManager
from bridge.broker.log.recovery import recover
from bridge.broker.log.segment import Segment
from bridge.broker.log.segment_files import SegmentFile
from bridge.broker.log.transaction_index import TransactionIndex
from zkconsumer.errors import PreconditionFailed
from zkconsumer.kafka.error_codes import ErrorCode
from zkconsumer.wire.entries import Record, iter_entries
from zkconsumer.wire.records import iter_records
from zkconsumer.wire.schemas.fetch import AbortedTransaction

READ_CHUNK_BYTES = 1024 * 1024
"""How many bytes are read at a time when a whole log is read."""


class SegmentStorage(Protocol):
    """Stores the segments of one partition."""

    def segments(self) -> list[tuple[int, SegmentFile]]:
        """The existing segments, by base offset, ascending."""

    def create(self, base_offset: int) -> SegmentFile:
        """Create a segment."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """``segment_bytes``: the size at which a new segment begins.  ``retention_bytes`` −1: nothing is ever deleted."""

    validation_rules: RecordValidationRules
    segment_bytes: int
    retention_bytes: int = -1
    unknown_producer_error: ErrorCode | None = None


class LogAppendInfo(NamedTuple):
    """The offsets of the stored records, −1 if there were none; ``is_duplicate``: they had been stored before."""

    first_offset: int
    last_offset: int
    is_duplicate: bool = False


class TimestampOffset(NamedTuple):
    """A record's timestamp and offset."""

    timestamp: int
    offset: int


class PartitionLog:
    """Not thread-safe: it belongs to the thread of its broker.

    ``on_truncated`` is called with a text about bytes that were cut off on opening.  Raises ``PreconditionFailed`` for
    a log that is damaged in the middle, without a change to it.
    """

    def __init__(
        self, name: str, storage: SegmentStorage, settings: LogSettings, on_truncated: Callable[[str], None]
    ) -> None:
        self.settings = settings
        self._name = name
        self._storage = storage
        self._producers = ProducerStateManager(settings.unknown_producer_error)
        self._epochs = LeaderEpochs()
        self._transactions = TransactionIndex()
        self._segments: list[Segment] = []
        self.end = 0
        self._open(on_truncated)

    @property
    def start(self) -> int:
        """The first offset that can be read."""
        return self._segments[0].base_offset if self._segments else 0

    @property
    def size(self) -> int:
        """How many bytes are stored."""
        return sum(segment.size for segment in self._segments)

    @property
    def last_stable_offset(self) -> int:
        """Where a ``read_committed`` reader ends: at the oldest open transaction, or at the end."""
        return self._transactions.last_stable_offset(self.end)

    def aborted_transactions(self, start: int) -> list[AbortedTransaction]:
        """The aborted transactions that a ``read_committed`` reader from ``start`` on must know."""
        return self._transactions.aborted_between(start, self.last_stable_offset)

    def can_read_from(self, offset: int) -> bool:
        """Whether a reader may request this offset; the end is allowed: it waits for the next record."""
        return self.start <= offset <= self.end

    def append_validated(
        self, sent: ValidatedRecords, leader_epoch: int, wall_ms: int
    ) -> LogAppendInfo | ProduceRejected:
        """Store a producer's records, or detect a duplicate.  ``OSError``: nothing was stored."""
        for entry in sent.entries:
            result = self._producers.check(entry.batch)
            if isinstance(result, BatchMetadata):
                return LogAppendInfo(result.first_offset, result.last_offset, is_duplicate=True)
            if isinstance(result, ErrorCode):
                batch = entry.batch
                words = f"producer {batch.producer_id} epoch {batch.producer_epoch} sequence {batch.first_sequence}"
                return ProduceRejected(result, f"{words}: {result.name}")
        if not sent.entries:
            return LogAppendInfo(-1, -1)
        first = self.end
        self._append(assign_offsets(sent, first, leader_epoch, self.settings.validation_rules), first, wall_ms)
        return LogAppendInfo(first, self.end - 1)

    def append_records(self, records: list[Record], leader_epoch: int, wall_ms: int) -> LogAppendInfo:
        """Store the broker's own records, all or none (in format 2; before that, as one write).  ``OSError``: none."""
        first = self.end
        self._append(build_entries(records, first, leader_epoch, self.settings.validation_rules.magic), first, wall_ms)
        return LogAppendInfo(first, self.end - 1)

    def read(
        self,
        offset: int,
        bytes_max: int,
        *,
        min_one_message: bool = False,
        may_truncate: bool = False,
        has_tail: bool = False,
        is_committed_only: bool = False,
    ) -> bytes:
        """Stored entries from the one that contains ``offset`` on, of one segment; see ``Segment.read``.

        ``is_committed_only``: only those before the last stable offset.
        """
        end = self.last_stable_offset if is_committed_only else self.end
        if offset >= end:
            return b""
        at = max(0, bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1)
        for segment in self._segments[at:]:
            found = segment.read(
                offset, end, bytes_max, min_one_message=min_one_message, may_truncate=may_truncate, has_tail=has_tail
            )
            if found or segment.base_offset > offset:
                return found
        return b""

    def records(self) -> Iterator[Record]:
        """All records, in order."""
        offset = self.start
        while offset < self.end:
            piece = self.read(offset, READ_CHUNK_BYTES, min_one_message=True)
            if not piece:
                return
            yield from iter_records(piece, offset)
            *_, last = iter_entries(piece)
            offset = last.last_offset + 1

    def first_at_or_after(self, time_ms: int) -> TimestampOffset | None:
        """The first record whose timestamp is at or after the time."""
        for segment in self._segments:
            found = segment.first_with_timestamp(time_ms)
            if found is not None:
                return _first(found[1], found[0], time_ms)
        return None

    def max_timestamp(self) -> TimestampOffset | None:
        """The first record with the greatest timestamp."""
        all_newest = [found for segment in self._segments if (found := segment.max_timestamp_entry()) is not None]
        if not all_newest:
            return None
        greatest = max(newest for newest, _, _ in all_newest)
        _, before, data = next(found for found in all_newest if found[0] == greatest)
        return _first(data, before, greatest)

    def segment_starts(self, time_ms: int, is_latest: bool, wall_ms: int) -> list[int]:
        """The starts of segments that were last written at or before the time, newest first, as ListOffsets v0 returns
        them.

        The end of the log counts as a segment that is being written now, unless the newest one is empty.
        """
        rows = [(segment.base_offset, segment.modified_ms) for segment in self._segments]
        if not rows:
            return [self.end] if is_latest or time_ms >= wall_ms else []
        if self._segments[-1].size:
            rows.append((self.end, wall_ms))
        return [offset for offset, modified_ms in reversed(rows) if is_latest or modified_ms <= time_ms]

    def end_offset_for_epoch(self, epoch: int, leader_epoch: int) -> EpochEnd:
        """See ``LeaderEpochs.end_offset_for``."""
        return self._epochs.end_offset_for(epoch, leader_epoch, self.end)

    def delete(self) -> None:
        """Delete the log."""
        for segment in self._segments:
            segment.delete()
        self._segments.clear()

    def _append(self, data: bytes, first_offset: int, wall_ms: int) -> None:
        batches = [read_batch_header(data, entry) for entry in iter_entries(data)]
        if not self._segments or self._is_full(len(data)):
            self._segments.append(Segment(self.end, self._storage.create(self.end), wall_ms))
            self._apply_retention()
        self._segments[-1].append(data, batches, wall_ms)
        for batch in batches:
            self._epochs.assign(batch.leader_epoch, first_offset)
            self._producers.update(batch)
            self._transactions.update(batch)
            first_offset = batch.last_offset + 1
        self.end = first_offset

    def _is_full(self, more_bytes: int) -> bool:
        newest = self._segments[-1]
        return newest.size > 0 and newest.size + more_bytes > self.settings.segment_bytes

    def _apply_retention(self) -> None:
        """Delete the oldest segments while the rest is still larger than the retention size."""
        keep = self.settings.retention_bytes
        while keep >= 0 and len(self._segments) > 1 and self.size - self._segments[0].size >= keep:
            self._segments[0].delete()
            del self._segments[0]

    def _open(self, on_truncated: Callable[[str], None]) -> None:
        found = self._storage.segments()
        for index, (base_offset, file) in enumerate(found):
            if index and base_offset != self.end:
                raise PreconditionFailed(
                    f"{self._name}, segment {base_offset}: the one before it ends at {self.end}, so records in between "
                    "are missing; restore the files from a copy, or delete the topic's directory if its records are "
                    "not needed"
                )
            whole = file.read_all()
            recovered = recover(whole, max(base_offset, self.end))
            whole.release()
            is_last = index == len(found) - 1
            if recovered.problem:
                where = f"{self._name}, segment {base_offset}, byte {recovered.valid_bytes}"
                if not (is_last and recovered.is_torn):
                    raise PreconditionFailed(
                        f"{where}: {recovered.problem}, and sound records follow; restore the file from a copy, or "
                        "delete the topic's directory if its records are not needed"
                    )
                on_truncated(f"{where}: {recovered.problem}; {file.size - recovered.valid_bytes} bytes are cut off")
                file.truncate(recovered.valid_bytes)
            segment = Segment(base_offset, file, file.modified_ms)
            self.end = max(self.end, base_offset)
            for batch in recovered.batches:
                segment.index(batch)
                self._epochs.assign(batch.leader_epoch, self.end)
                self._producers.update(batch)
                self._transactions.update(batch)
                self.end = batch.last_offset + 1
            self._segments.append(segment)


def _first(data: bytes, before: int, time_ms: int) -> TimestampOffset | None:
    for record in iter_records(data, before + 1):
        if record.timestamp >= time_ms:
            return TimestampOffset(record.timestamp, record.offset)
    return None
