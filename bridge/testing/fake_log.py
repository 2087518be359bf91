"""The log of a partition of a ``FakeCluster``: the broker's own, and what a test may do to it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

from bridge.broker.log.batches import NO_TIMESTAMP, StoredBatch, read_batch_header
from bridge.broker.log.partition_log import PartitionLog
from bridge.broker.log.segment import Segment
from bridge.broker.log.transaction_index import TransactionIndex
from zkconsumer.errors import InvalidMessageException, UnsupportedCodec, UsageError
from zkconsumer.wire.entries import Record, iter_entries
from zkconsumer.wire.record_set_builder import build_record_set


class FakeLog(PartitionLog):
    """Its last segment is the only one that a test changes; the log of a test has no other."""

    def append_at(self, records: Iterable[Record], codec: int, wall_ms: int, magic: int | None = None) -> None:
        """Append records at their own offsets, which must not be below the end; one batch, or one wrapper."""
        batch = list(records)
        if not batch:
            return
        if batch[0].offset < self.end:
            raise UsageError(f"offset {batch[0].offset} is below the end of the log, {self.end}")
        own = self.settings.validation_rules.magic
        self._append(build_record_set(batch, own if magic is None else magic, codec), batch[0].offset, wall_ms)

    def append_raw(self, data: bytes, next_offset: int, wall_ms: int) -> None:
        """Append bytes unchanged, even damaged ones; readers find them at the old end, and the end moves."""
        if next_offset <= self.end:
            raise UsageError(f"the end of the log, {self.end}, can only move on, not to {next_offset}")
        if not self._segments:
            self._segments.append(Segment(self.end, self._storage.create(self.end), wall_ms))
        self._segments[-1].append(data, [StoredBatch(0, len(data), 0, next_offset - 1, NO_TIMESTAMP)], wall_ms)
        self._index_transactions(data)
        self.end = next_offset

    def delete_before(self, offset: int) -> None:
        """Move the start, like retention: whole entries are deleted, and the rest of the first one is not readable."""
        if not self.start <= offset <= self.end:
            raise UsageError(f"the start can move to {self.start} up to {self.end}, not to {offset}")
        self._keep(offset, self.end, lambda last_offset: last_offset >= offset)

    def truncate(self, offset: int) -> None:
        """Truncate the end, like an unclean leader election; entries across the cut are deleted as a whole."""
        if not self.start <= offset <= self.end:
            raise UsageError(f"the end can be cut to {self.start} up to {self.end}, not to {offset}")
        self._keep(self.start, offset, lambda last_offset: last_offset < offset)

    def _keep(self, start: int, end: int, is_kept: Callable[[int], bool]) -> None:
        """Write the entries to keep to one new segment."""
        kept = [entry for segment in self._segments for entry in segment.entries() if is_kept(entry[0].last_offset)]
        modified_ms = self._segments[-1].modified_ms if self._segments else 0
        new = Segment(start, self._storage.create(start), modified_ms)
        self._transactions = TransactionIndex()
        for batch, data in kept:
            new.append(data, [batch], modified_ms)
            self._index_transactions(data)
        self._segments = [new]
        self.end = end

    def _index_transactions(self, data: bytes) -> None:
        """Record the transactions in these entries, up to the first damaged one."""
        with contextlib.suppress(InvalidMessageException, UnsupportedCodec):
            for entry in iter_entries(data):
                self._transactions.update(read_batch_header(data, entry))
