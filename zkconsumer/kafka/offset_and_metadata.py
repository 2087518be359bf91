"""``OffsetAndMetadata``: a committed offset, as ``org.apache.kafka.clients.consumer.OffsetAndMetadata``.  Pure."""

from __future__ import annotations

from typing import NamedTuple

from zkconsumer.wire.schemas.offset_fetch import NO_EPOCH


class OffsetAndMetadata(NamedTuple):
    """The committed offset of a partition: the offset of the next record to read, and the group's own metadata.

    ``leader_epoch``: of the record before it, −1 if unknown; stored by brokers from 2.1 on.  ``commit_timestamp_ms``:
    the start of the offset's retention, −1 for now; only OffsetCommit v1 can send another time.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_EPOCH
    commit_timestamp_ms: int = -1
