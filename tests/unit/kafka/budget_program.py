"""Reads compressed partitions of brokers on this machine under a budget; prints by how much the process grew, in bytes.

    python tests/unit/kafka/budget_program.py BUDGET PORT,PORT... TOPIC PARTITIONS RECORDS

Two streams.  The program first takes nothing until the fetchers are held back, or have brought all; then each stream
reads RECORDS records.  The first partition is read before, so that what a codec keeps is there when the growth begins.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from itertools import islice
from typing import Any

import psutil

from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.delivery_lease import Lease
from zkconsumer.kafka.bootstrap_client import BootstrapClient
from zkconsumer.kafka.broker_connection import BlockingConnection
from zkconsumer.kafka.chunks import ChunkQueue, PartitionTopicInfo
from zkconsumer.kafka.fetcher_manager import ConsumerFetcherManager
from zkconsumer.kafka.fetcher_thread import FetchSettings
from zkconsumer.runtime.broker_access import NO_BROKER_REGISTERED
from zkconsumer.streams import KafkaStream
from zkconsumer.types import BrokerAddress, TopicPartition

STREAMS = 2
QUIET_S = 1.0
TIMEOUT_MS = 60_000
CHUNKS_MAX = 1_000


class Peak:
    """The largest memory of the process, looked at every few milliseconds."""

    def __init__(self) -> None:
        self.rss = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        process = psutil.Process()
        while not self._ended.wait(0.003):
            self.rss = max(self.rss, process.memory_info().rss)

    def end(self) -> int:
        """What it was."""
        self._ended.set()
        self._thread.join()
        return self.rss


def main(budget: int, ports: list[int], topic: str, partitions: int, records: int) -> int:
    """The growth in bytes."""
    addresses = [BrokerAddress(number, "127.0.0.1", port) for number, port in enumerate(ports, 1)]
    settings = FetchSettings("budget", queued_max_bytes=budget)
    brokers = BootstrapClient(
        BlockingConnection, lambda: addresses, "budget", TIMEOUT_MS, no_broker_message=NO_BROKER_REGISTERED
    )

    def died(name: str, error: BaseException) -> None:
        raise SystemExit(f"{name}: {error}")

    def ignored(*_: Any) -> None:
        """Nothing is reset here."""

    manager = ConsumerFetcherManager(
        "budget",
        settings,
        1,
        connect=BlockingConnection,
        brokers=brokers,
        clock=SYSTEM_CLOCK,
        on_reset=ignored,
        on_position_missing=ignored,
        on_thread_error=died,
        on_authentication_error=ignored,
    )
    lease = Lease(SYSTEM_CLOCK)
    lease.set_until(SYSTEM_CLOCK.now_ms() + 10**9)
    queues = [ChunkQueue(CHUNKS_MAX) for _ in range(STREAMS)]
    streams = []
    for number, queue in enumerate(queues):
        manager.add_queue(queue)
        stream: KafkaStream[bytes, bytes] = KafkaStream(f"c-{number}", queue, lease, timeout_ms=TIMEOUT_MS)
        streams.append(stream)

    def start(numbers: range) -> None:
        manager.start(
            [PartitionTopicInfo(TopicPartition(topic, at), "c", queues[at % STREAMS], offset=0) for at in numbers]
        )

    start(range(1))
    next(streams[0].iterator())
    gc.collect()
    before = psutil.Process().memory_info().rss
    peak = Peak()
    start(range(1, partitions))
    last, since = -1, time.monotonic()
    while time.monotonic() - since < QUIET_S:
        held = manager.budget.held_bytes
        if held != last:
            last, since = held, time.monotonic()
        time.sleep(0.05)

    def read(stream: KafkaStream[bytes, bytes]) -> None:
        for _ in islice(stream, records):
            pass

    threads = [threading.Thread(target=read, args=(stream,)) for stream in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    grown = peak.end() - before
    if not manager.close(TIMEOUT_MS):
        raise SystemExit("the fetchers did not end")
    return grown


if __name__ == "__main__":
    print(main(int(sys.argv[1]), [*map(int, sys.argv[2].split(","))], sys.argv[3], *map(int, sys.argv[4:])))
