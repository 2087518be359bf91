"""Builds batches of transactions and the markers that end them, as a producer and a broker write them (KIP-98)."""

from __future__ import annotations

import struct

import google_crc32c

from bridge.testing.fake_cluster import FakeCluster
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


class Transactions:
    """Appends batches of transactions and plain ones to a partition of a cluster in memory."""

    def __init__(self, cluster: FakeCluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.end_offset = 0

    def append(self, data: bytes, count: int) -> None:
        """Append bytes that take ``count`` offsets."""
        self.end_offset += count
        self.cluster.append_raw(self.topic, 0, data, self.end_offset)

    def records(self, producer: int, count: int) -> list[int]:
        """Append a batch of a producer's transaction; its offsets."""
        first = self.end_offset
        self.append(batch(first, count, producer), count)
        return list(range(first, first + count))

    def plain(self, count: int) -> list[int]:
        """Append a batch outside of transactions; its offsets."""
        first = self.end_offset
        self.append(build_record_set([Record(first + n, 0, 0, None, b"v") for n in range(count)], 2), count)
        return list(range(first, first + count))

    def end(self, producer: int, kind: int) -> None:
        """Append the marker that ends the producer's transaction."""
        self.append(marker(self.end_offset, producer, kind), 1)
