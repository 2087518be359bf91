"""The transactions in a partition's log: which are open, and which were aborted (0.11, KIP-98).  Pure.

The index is computed from the stored batches, in order.  A transaction of a producer begins with its first
transactional batch and ends with the next control batch of this producer: an abort marker or a commit marker.  The
broker itself coordinates no transactions and accepts no transactional batch of a client; logs that hold some come from
tests, and from files of a real broker.
"""

from __future__ import annotations

from typing import NamedTuple

from bridge.broker.log.batches import CONTROL, TRANSACTIONAL, StoredBatch
from zkconsumer.wire.schemas.fetch import AbortedTransaction
from zkconsumer.wire.transactions import ABORT


class AbortedRange(NamedTuple):
    """An aborted transaction: the offsets of its first record and of its abort marker."""

    producer_id: int
    first_offset: int
    marker_offset: int


class TransactionIndex:
    """All transactions of one log.  ``_open``: producer id -> first offset; ``_aborted`` is in the order of markers."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._aborted: list[AbortedRange] = []

    def update(self, batch: StoredBatch) -> None:
        """Record a batch that was stored now or before."""
        first_offset = batch.last_offset - batch.record_count + 1
        if batch.attributes & CONTROL:
            began = self._open.pop(batch.producer_id, None)
            if began is not None and batch.control_type == ABORT:
                self._aborted.append(AbortedRange(batch.producer_id, began, batch.last_offset))
        elif batch.attributes & TRANSACTIONAL:
            self._open.setdefault(batch.producer_id, first_offset)

    def last_stable_offset(self, end: int) -> int:
        """The first offset of the oldest open transaction; ``end``, the end of the log, if none is open."""
        return min(self._open.values(), default=end)

    def aborted_between(self, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions with a record or a marker at or after ``start`` that begin before ``end``."""
        return [
            AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
            for each in self._aborted
            if each.marker_offset >= start and each.first_offset < end
        ]
