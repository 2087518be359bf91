"""The state of idempotent producers in a partition (0.11, KIP-98).  Pure.

A producer numbers the records that it sends to a partition.  The partition keeps the last batches of each producer.  A
batch that arrives again is answered as before and not stored again; one that is not the next is rejected.  The state is
computed from the log.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from bridge.broker.log.batches import NO_PRODUCER_ID, StoredBatch
from zkconsumer.kafka.error_codes import (
    INVALID_PRODUCER_EPOCH,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode,
)

BATCHES_KEPT = 5
"""How many batches of a producer are kept: as many requests as an idempotent producer has in flight (1.0)."""

PRODUCERS_MAX = 10_000
"""How many producers a partition keeps; the one that wrote longest ago is removed first."""

SEQUENCE_COUNT = 2**31
"""The sequence number after the last one is 0."""


@dataclass(frozen=True, slots=True)
class BatchMetadata:
    """One batch of a producer: sequence numbers and offsets, the last ones included."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int


@dataclass(slots=True)
class ProducerStateEntry:
    """The newest epoch of one producer, and its last batches in it."""

    epoch: int
    batches: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))


class ProducerStateManager:
    """All producers of one partition.

    ``unknown_error``: the error for an unknown producer that does not begin with 0; None: it may (2.5, KIP-360).
    """

    def __init__(self, unknown_error: ErrorCode | None) -> None:
        self._unknown_error = unknown_error
        self._entries: OrderedDict[int, ProducerStateEntry] = OrderedDict()

    def check(self, batch: StoredBatch) -> ErrorCode | BatchMetadata | None:
        """What to do with a batch: store it (None), answer as before (``BatchMetadata``), or reject it.

        A new epoch of a known producer begins with 0.
        """
        known = self._entries.get(batch.producer_id)
        if batch.producer_id == NO_PRODUCER_ID:
            return None
        if known is None:
            return self._unknown_error if batch.first_sequence else None
        if batch.producer_epoch < known.epoch:
            return INVALID_PRODUCER_EPOCH
        if batch.producer_epoch > known.epoch:
            return OUT_OF_ORDER_SEQUENCE_NUMBER if batch.first_sequence else None
        last_sequence = _last_sequence(batch)
        for written in known.batches:
            if (written.first_sequence, written.last_sequence) == (batch.first_sequence, last_sequence):
                return written
        if batch.first_sequence == (known.batches[-1].last_sequence + 1) % SEQUENCE_COUNT:
            return None
        return OUT_OF_ORDER_SEQUENCE_NUMBER

    def update(self, batch: StoredBatch) -> None:
        """Record a batch that was stored now or before."""
        if batch.producer_id == NO_PRODUCER_ID:
            return
        known = self._entries.get(batch.producer_id)
        if known is None or known.epoch != batch.producer_epoch:
            known = self._entries[batch.producer_id] = ProducerStateEntry(batch.producer_epoch)
        first_offset = batch.last_offset - batch.record_count + 1
        known.batches.append(
            BatchMetadata(batch.first_sequence, _last_sequence(batch), first_offset, batch.last_offset)
        )
        self._entries.move_to_end(batch.producer_id)
        if len(self._entries) > PRODUCERS_MAX:
            self._entries.popitem(last=False)


def _last_sequence(batch: StoredBatch) -> int:
    return (batch.first_sequence + batch.record_count - 1) % SEQUENCE_COUNT
