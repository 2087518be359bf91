"""Reads a stream in one thread while others stop, reset and start its partitions; prints what was lost or read twice.

    python tests/sanitizers/switching_program.py SECONDS

Each partition has increasing offsets.  A record must be read once, or its partition was stopped before the program came
back from it: the position that the stop is given says which.
"""

from __future__ import annotations

import random
import sys
import threading

from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.delivery_lease import Lease
from zkconsumer.errors import ConsumerTimeoutException
from zkconsumer.kafka import table_delivery
from zkconsumer.kafka.chunks import ChunkQueue, FetchedDataChunk, PartitionTopicInfo
from zkconsumer.streams import KafkaStream
from zkconsumer.types import TopicPartition
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_set_builder import build_record_set

PARTITIONS = 4
RECORDS = 500


class Partition:
    """One partition that is stopped and started again where it was."""

    def __init__(self, number: int, queue: ChunkQueue) -> None:
        self.tp = TopicPartition("t", number)
        self.queue = queue
        self.read: list[int] = []
        self.position = 0
        self.info = self._start()

    def _start(self) -> PartitionTopicInfo:
        return PartitionTopicInfo(self.tp, "c-0", self.queue, offset=self.position)

    def feed(self) -> None:
        info, first = self.info, self.info.fetch_offset
        data = build_record_set([Record(first + each, 0, 0, None, b"v") for each in range(RECORDS)], 2)
        chunk = FetchedDataChunk(data, info, first, first + RECORDS, len(data), info.resets)
        if self.queue.free_chunks:
            self.queue.offer(chunk)
            info.fetch_offset = first + RECORDS

    def restart(self) -> None:
        """Stop, wait until the program came back, and go on from there."""
        backs: list[int] = []
        is_back = threading.Event()

        def on_back(info: PartitionTopicInfo) -> None:
            backs.append(info.consumed_offset)
            is_back.set()

        self.info.stop(on_back)
        is_back.wait(10)
        self.position = backs[0]
        self.info = self._start()


def main(seconds: int) -> None:
    assert table_delivery.AVAILABLE, "the compiled modules are what is tested"
    sys.setswitchinterval(1e-6)
    lease, queue = Lease(SYSTEM_CLOCK), ChunkQueue(20)
    stream: KafkaStream[bytes, bytes] = KafkaStream("c-0", queue, lease, timeout_ms=50)
    partitions = [Partition(number, queue) for number in range(PARTITIONS)]
    deadline_ms = SYSTEM_CLOCK.now_ms() + seconds * 1000
    is_over = threading.Event()

    def iterate() -> None:
        while not is_over.is_set():
            try:
                for message in stream:
                    partitions[message.partition].read.append(message.offset)
                    if is_over.is_set():
                        break
            except ConsumerTimeoutException:
                continue
        stream.iterator().acknowledge()

    def feed() -> None:
        while not is_over.is_set():
            for partition in partitions:
                partition.feed()
            is_over.wait(0.001)

    def disturb() -> None:
        chance = random.Random(1)
        while not is_over.is_set():
            lease.set_until(SYSTEM_CLOCK.now_ms() + 1000)
            partitions[chance.randrange(PARTITIONS)].restart()

    threads = [threading.Thread(target=side) for side in (iterate, feed, disturb)]
    for thread in threads:
        thread.start()
    while SYSTEM_CLOCK.now_ms() < deadline_ms:
        is_over.wait(0.2)
    is_over.set()
    for thread in threads:
        thread.join()
    lost = twice = total = 0
    for partition in partitions:
        expected = range(len(set(partition.read)))
        lost += len(set(expected) - set(partition.read))
        twice += len(partition.read) - len(set(partition.read))
        total += len(partition.read)
    print(f"{total} records, lost {lost}, twice {twice}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
