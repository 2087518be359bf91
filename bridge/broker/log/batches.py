"""The fields of a stored entry that the log needs: a message, a wrapper, or a batch.  Pure.

``zkconsumer.wire.entries`` iterates over entries and defines their layout.  This module has the checksum of a whole
entry and the header fields from which the index, the list of epochs and the state of producers are made.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import NamedTuple

import google_crc32c

from zkconsumer.wire.entries import LogEntry
from zkconsumer.wire.records_v2 import read_control_type

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1

CODEC_MASK = 0x07
TRANSACTIONAL = 0x10
CONTROL = 0x20

OFFSET = Struct(">q")
LEADER_EPOCH = Struct(">i")
LEADER_EPOCH_AT = 12
"""The byte position of the leader epoch in a batch (format 2).  The offset is at 0.  No checksum covers the two."""

# Byte positions in an entry: of the checksum, and of the first byte that it covers; ``_V2``: in format 2, the others in
# formats 0 and 1.
_CRC = Struct(">I")
_CRC_AT, _COVERED_AT = 12, 16
_CRC_AT_V2, _COVERED_AT_V2 = 17, 21
_ATTRIBUTES_AT = 17
_TIMESTAMP_AT_V1 = 18
_HEADER_V2 = Struct(">hiqqqhii")
_FORMAT_1_BYTES_MIN = _TIMESTAMP_AT_V1 + OFFSET.size


class StoredBatch(NamedTuple):
    """One entry; ``position`` and ``end`` are bytes of its segment, or of the record set that it was found in.

    ``max_timestamp`` −1: none.  ``leader_epoch`` −1, ``producer_id`` −1: none, as in formats 0 and 1.
    ``control_type``: of a control batch, see ``read_control_type``.
    """

    position: int
    end: int
    magic: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int = -1
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1
    first_sequence: int = -1
    record_count: int = 0
    attributes: int = 0
    control_type: int | None = None


def read_batch_header(data: bytes | memoryview, entry: LogEntry) -> StoredBatch:
    """Read the header of an entry; its checksum is not verified."""
    at, end = entry.position, entry.end
    if entry.magic == 2:
        attributes, _, _, newest, producer, epoch, sequence, count = _HEADER_V2.unpack_from(data, at + _COVERED_AT_V2)
        (leader_epoch,) = LEADER_EPOCH.unpack_from(data, at + LEADER_EPOCH_AT)
        control = read_control_type(data, entry) if attributes & CONTROL else None
        return StoredBatch(
            at, end, 2, entry.last_offset, newest, leader_epoch, producer, epoch, sequence, count, attributes, control
        )
    newest = NO_TIMESTAMP
    if entry.magic == 1 and end - at >= _FORMAT_1_BYTES_MIN:
        (newest,) = OFFSET.unpack_from(data, at + _TIMESTAMP_AT_V1)
    return StoredBatch(at, end, entry.magic, entry.last_offset, newest, attributes=data[at + _ATTRIBUTES_AT])


def has_valid_checksum(data: bytes | memoryview, entry: LogEntry) -> bool:
    """Whether the checksum of the whole entry matches."""
    if entry.magic == 2:
        (crc,) = _CRC.unpack_from(data, entry.position + _CRC_AT_V2)
        return bool(google_crc32c.value(bytes(data[entry.position + _COVERED_AT_V2 : entry.end])) == crc)
    (crc,) = _CRC.unpack_from(data, entry.position + _CRC_AT)
    return bool(zlib.crc32(data[entry.position + _COVERED_AT : entry.end]) == crc)
