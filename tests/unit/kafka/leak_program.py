"""Reads chunks as messages, batches and records of poll, again and again; prints how much objects and memory grew.

python tests/unit/kafka/leak_program.py CHUNKS
"""

from __future__ import annotations

import gc
import sys

import psutil
import pytest

from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.delivery_lease import Lease
from zkconsumer.errors import ConsumerTimeoutException
from zkconsumer.kafka.chunks import ChunkQueue, FetchedDataChunk, PartitionTopicInfo
from zkconsumer.kafka.fetch.fetched_records import BatchEpochs, FetchedRecords, RecordSlice
from zkconsumer.kafka.fetch.record_set_reader import RecordSetReader, RowBuffers
from zkconsumer.streams import KafkaStream, MessageAndMetadata
from zkconsumer.types import TopicPartition
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_set_builder import build_record_set

RECORDS = 10_000
VALUE = b"v" * 20
WARM_UP = 50


def stream_of(data: bytes) -> KafkaStream[bytes, bytes]:
    """A stream with one chunk."""
    lease, queue = Lease(SYSTEM_CLOCK), ChunkQueue(10)
    lease.set_until(SYSTEM_CLOCK.now_ms() + 10**9)
    info = PartitionTopicInfo(TopicPartition("t", 0), "c-0", queue, offset=0)
    queue.offer(FetchedDataChunk(data, info, 0, RECORDS, len(data), 0))
    return KafkaStream("c-0", queue, lease, timeout_ms=0)


def read(data: bytes) -> None:
    """Read one chunk as messages, some of which are kept, and one as batches."""
    kept: list[MessageAndMetadata[bytes, bytes]] = []
    with pytest.raises(ConsumerTimeoutException):
        kept.extend(message for message in stream_of(data) if message.offset % 100 == 0 and message.headers)
    assert len(kept) == RECORDS // 100
    found = 0
    with pytest.raises(ConsumerTimeoutException):
        for batch in stream_of(data).batches():
            assert batch.values[0] == VALUE
            batch.__arrow_c_array__()
            found += len(batch)
    assert found == RECORDS
    read_polled(data)


def read_polled(data: bytes) -> None:
    """Read the records as ``poll`` returns them; some are kept."""
    buffers = RowBuffers(RECORDS)
    reader = RecordSetReader(memoryview(data), 0, buffers, True, [], first_list=RECORDS)
    kept = []
    while (found := reader.peek(RECORDS)) is not None:
        part = RecordSlice(found.columns, BatchEpochs([0], [1]))
        records = FetchedRecords(TopicPartition("t", 0), [part])
        kept += [record for record in records if record.offset % 100 == 0 and record.headers and record.value == VALUE]
        reader.skip(found.size)
    assert len(kept) == RECORDS // 100


def main(chunks: int) -> tuple[int, int]:
    """The growth in objects, and in bytes of resident memory."""
    data = build_record_set([Record(offset, 0, 0, b"k", VALUE, (("h", b"x"),)) for offset in range(RECORDS)], 2)
    process = psutil.Process()
    for _ in range(WARM_UP):
        read(data)
    gc.collect()
    before, objects = process.memory_info().rss, len(gc.get_objects())
    for _ in range(chunks):
        read(data)
    gc.collect()
    return len(gc.get_objects()) - objects, process.memory_info().rss - before


if __name__ == "__main__":
    print(*main(int(sys.argv[1])))
