"""Builds batches of transactions and the markers that end them, as a producer and a broker write them (KIP-98)."""

from __future__ import annotations

import struct

import google_crc32c

from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_set_builder import build_record_set

TRANSACTIONAL, CONTROL = 0x10, 0x20
ABORT, COMMIT = 0, 1


def batch(first: int, count: int, producer: int, attributes: int = TRANSACTIONAL, codec: int = 0) -> bytes:
    """``count`` records of a producer from the offset ``first`` on; transactional unless ``attributes`` says else."""
    made = bytearray(build_record_set([Record(first + n, 0, 0, None, b"v") for n in range(count)], 2, codec))
    return signed(made, producer, attributes | codec)


def marker(offset: int, producer: int, kind: int) -> bytes:
    """The control batch that ends the transaction of a producer; ``kind``: ``ABORT`` or ``COMMIT``."""
    record = Record(offset, 0, 0, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0))
    return signed(bytearray(build_record_set([record], 2, control=True)), producer, TRANSACTIONAL | CONTROL)


def signed(made: bytearray, producer: int, attributes: int) -> bytes:
    """The batch with these attributes and this producer id, and a valid checksum."""
    struct.pack_into(">h", made, 21, attributes)
    struct.pack_into(">q", made, 43, producer)
    struct.pack_into(">I", made, 17, google_crc32c.value(bytes(made[21:])))
    return bytes(made)
