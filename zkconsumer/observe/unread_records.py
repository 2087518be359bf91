"""The first record of a record set at or after an offset, with its timestamp.  Pure."""

from __future__ import annotations

from collections.abc import Collection

from zkconsumer.observe.lag_time import WITHOUT_TIMESTAMPS, FirstUnread, NoUnreadRecord, TimestampKind, UnreadRecord
from zkconsumer.wire.records import iter_records

DECOMPRESSED_BATCH_BYTES_MAX = 64 * 1024 * 1024
"""The limit for the expansion of one batch."""


def first_record_of(
    records: bytes | memoryview, offset: int, next_offset: int, excluded_batches: Collection[int] = ()
) -> FirstUnread:
    """The first record at or after the offset in a record set that ends before ``next_offset``.

    ``excluded_batches``: positions of batches of aborted transactions.  Raises ``InvalidMessageException`` and
    ``UnsupportedCodec`` if the batch is damaged, or compressed with an unknown codec.
    """
    found = iter_records(
        records, offset, excluded_batches=excluded_batches, decompressed_bytes_max=DECOMPRESSED_BATCH_BYTES_MAX
    )
    record = next(found, None)
    if record is None:
        return NoUnreadRecord(next_offset)
    if record.timestamp_type < 0:
        return WITHOUT_TIMESTAMPS
    kind = TimestampKind.LOG_APPEND_TIME if record.timestamp_type else TimestampKind.CREATE_TIME
    return UnreadRecord(record.offset, record.timestamp, kind)
