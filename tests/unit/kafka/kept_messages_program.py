"""Keeps one message of each of many chunks of 1 MB; prints by how much the process grew, and what the messages weigh.

python tests/unit/kafka/kept_messages_program.py CHUNKS
"""

from __future__ import annotations

import gc
import sys

import psutil

from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.delivery_lease import Lease
from zkconsumer.kafka.chunks import ChunkQueue, FetchedDataChunk, PartitionTopicInfo
from zkconsumer.streams import KafkaStream
from zkconsumer.types import TopicPartition
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_set_builder import build_record_set

CHUNK_BYTES = 1024 * 1024
VALUE_BYTES = 500
WARM_UP = 50


def main(chunks: int) -> tuple[int, int]:
    """The growth and the weight, in bytes."""
    lease, queue = Lease(SYSTEM_CLOCK), ChunkQueue(10)
    lease.set_until(SYSTEM_CLOCK.now_ms() + 10**9)
    stream: KafkaStream[bytes, bytes] = KafkaStream("c-0", queue, lease, timeout_ms=0)
    info = PartitionTopicInfo(TopicPartition("t", 0), "c-0", queue, offset=0)
    # The first entry is read and kept, the tail is cut off: it makes the chunk large and costs no time.
    kept, before = [], 0
    for offset in range(chunks + WARM_UP):
        if offset == WARM_UP:
            gc.collect()
            kept, before = [], psutil.Process().memory_info().rss
        entry = build_record_set([Record(offset, 0, 0, b"12345678", b"v" * VALUE_BYTES)], 2)
        chunk = bytearray(CHUNK_BYTES)
        chunk[: len(entry)] = entry
        chunk[len(entry) + 8 : len(entry) + 12] = (2**30).to_bytes(4, "big")  # the size of the entry that is cut off
        queue.offer(FetchedDataChunk(memoryview(chunk), info, offset, offset + 1, len(entry), 0))
        kept.append(next(stream.iterator()))
    gc.collect()
    grown = psutil.Process().memory_info().rss - before
    own = sum(sys.getsizeof(each) + sys.getsizeof(each.key) + sys.getsizeof(each.value) for each in kept)
    return grown, own


if __name__ == "__main__":
    print(*main(int(sys.argv[1])))
