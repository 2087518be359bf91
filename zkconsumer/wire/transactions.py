"""Which batches of a record set belong to aborted transactions.  Pure.

A broker answers a Fetch with isolation level ``read_committed`` (0.11 and later, KIP-98) with the unchanged record set,
aborted records included, and with a list of the aborted transactions in it: the producer's id and the offset of its
first record.  The reader omits the transactional batches of such a producer, from that offset on up to the
control batch that marks the end of the transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from zkconsumer.wire.entries import LogEntry, iter_entries
from zkconsumer.wire.records_v2 import read_control_type
from zkconsumer.wire.schemas.fetch import AbortedTransaction

ABORT = 0
"""The type of a control record that ends an aborted transaction; 1 ends a committed one."""

_ABORTED_TRANSACTION = Struct(">qq")

_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_ATTRIBUTES_POSITION = 21
_PRODUCER_ID_POSITION = 43
_ATTRIBUTES = Struct(">h")
_PRODUCER_ID = Struct(">q")


def write_aborted_transactions(aborted: Sequence[AbortedTransaction]) -> bytes:
    """The transactions as ``read_aborted_transactions`` reads them."""
    return b"".join(_ABORTED_TRANSACTION.pack(each.producer_id, each.first_offset) for each in aborted)


def read_aborted_transactions(data: bytes) -> list[AbortedTransaction]:
    """The transactions in ``FetchedPartition.aborted``: 16 bytes each, the producer id and the first offset."""
    return [
        AbortedTransaction(producer_id=producer, first_offset=first)
        for producer, first in _ABORTED_TRANSACTION.iter_unpack(data)
    ]


def aborted_batches(record_set: bytes | memoryview, aborted: Sequence[AbortedTransaction]) -> list[int]:
    """The positions of the batches that belong to these transactions; for ``excluded_batches`` of ``iter_records``.

    ``aborted``: as the broker sent it, in any order.  Raises as ``entries.walk`` does for what stands before the end of
    the record set; checksums are not looked at, the record reader does that.
    """
    waiting = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    running: set[int] = set()
    found: list[int] = []
    if not waiting:
        return found
    for entry in iter_entries(record_set):
        if entry.magic < 2:
            continue
        while waiting and waiting[-1].first_offset <= entry.last_offset:
            running.add(waiting.pop().producer_id)
        (attributes,) = _ATTRIBUTES.unpack_from(record_set, entry.position + _ATTRIBUTES_POSITION)
        (producer_id,) = _PRODUCER_ID.unpack_from(record_set, entry.position + _PRODUCER_ID_POSITION)
        if attributes & _CONTROL:
            if _is_abort(record_set, entry):
                running.discard(producer_id)
        elif attributes & _TRANSACTIONAL and producer_id in running:
            found.append(entry.position)
    return found


def _is_abort(record_set: bytes | memoryview, entry: LogEntry) -> bool:
    return read_control_type(record_set, entry) == ABORT
