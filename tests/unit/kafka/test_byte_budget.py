"""``queued.max.bytes``: what fetched and decompressed bytes of a connector may take."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.testing.fake_cluster import FakeCluster
from bridge.testing.fake_environment import FakeEnvironment
from tests.in_memory_fixtures import DEADLINE_MS, MakeConnector, run_in_thread, take, wait_until
from tests.unit.kafka.test_fetcher import TOPIC, Bench, MakeBench, bench
from zkconsumer.kafka.byte_budget import ByteBudget, retained_bytes
from zkconsumer.kafka.chunks import ChunkQueue, FetchedDataChunk, PartitionTopicInfo
from zkconsumer.types import TopicPartition
from zkconsumer.wire import compression
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_set_builder import build_record_set

__all__ = ["bench"]

RELEASES = ("0.8.2.2", "0.11.0.3", "3.9.1")
"""Without a limit for a whole answer, with one, and with sessions."""

CHUNK = 10_000
ROOM_FOR_NOISE = 6 * 1024 * 1024


def chunk_of(queue: ChunkQueue, records: bytes | memoryview) -> FetchedDataChunk:
    info = PartitionTopicInfo(TopicPartition("t", 0), "c-0", queue, offset=0)
    return FetchedDataChunk(records, info, 0, 1, len(records), 0)


def filled(partitions: int, batches: int, release: str = "3.9.1", brokers: int = 1) -> FakeCluster:
    """Each batch has about ``CHUNK`` bytes: one record."""
    cluster = FakeCluster(brokers=brokers, release=release)
    cluster.create_topic(TOPIC, partitions)
    for partition in range(partitions):
        for _ in range(batches):
            cluster.append(TOPIC, partition, [bytes(CHUNK - 100)])
    return cluster


def largest_held(made: Bench, until: Any) -> int:
    """What was held at most while this was not true."""
    held = [0]

    def look() -> bool:
        held[0] = max(held[0], made.manager.budget.held_bytes)
        return bool(until())

    wait_until(look, "the end", DEADLINE_MS)
    return held[0]


# --- the sum --------------------------------------------------------------------------------------------------------


def test_requests_in_flight_and_chunks_together_keep_to_the_budget() -> None:
    budget, queue = ByteBudget(1_000), ChunkQueue(10)
    budget.add_queue(queue)
    one, other = budget.add_reservation(), budget.add_reservation()
    assert budget.reserve(one, 100, 10_000) == 250, "half of its part"
    assert budget.reserve(other, 100, 10_000) == 250
    queue.offer(chunk_of(queue, bytes(600)))
    assert budget.reserve(one, 100, 10_000) == 150, "1000 - 600 - 250"
    other.pending_chunks.append(chunk_of(queue, bytes(200)))
    budget.release(other)
    assert budget.reserve(one, 100, 10_000) == 200
    assert budget.reserve(other, 100, 10_000) == 0
    assert budget.has_waiting_fetcher
    budget.remove_reservation(other)
    assert not budget.has_waiting_fetcher
    assert budget.held_bytes == 600


def test_half_of_the_budget_is_left_by_requests_that_wait_at_idle_brokers() -> None:
    budget, queue = ByteBudget(1_000), ChunkQueue(10)
    budget.add_queue(queue)
    shares = [budget.add_reservation() for _ in range(20)]
    queue.offer(chunk_of(queue, bytes(400)))
    assert [budget.reserve(share, 100, 10_000) for share in shares] == [25] * 20


def test_parts_of_one_answer_count_once_and_as_all_of_it() -> None:
    answer = memoryview(bytearray(1_000))
    assert retained_bytes([answer[:10], answer[10:300], bytes(5), answer[:10]]) == 1_005


def test_a_chunk_counts_while_its_fetcher_puts_it_into_the_queue() -> None:
    class MovesWhileRead(ChunkQueue):
        def chunks(self) -> list[FetchedDataChunk]:
            found = super().chunks()
            self.offer(share.pending_chunks[0])
            share.pending_chunks.popleft()
            return found

    budget, queue = ByteBudget(1_000), MovesWhileRead(10)
    budget.add_queue(queue)
    share = budget.add_reservation()
    share.pending_chunks.append(chunk_of(queue, bytes(600)))
    assert budget.held_bytes == 600


def test_a_chunk_counts_while_its_stream_takes_it() -> None:
    class TakenWhileRead(deque[FetchedDataChunk]):
        def __iter__(self) -> Iterator[FetchedDataChunk]:
            if not is_being_taken.is_set():
                is_being_taken.set()
                queue.take(0)
            return super().__iter__()

    budget, queue, is_being_taken = ByteBudget(1_000), ChunkQueue(10), threading.Event()
    budget.add_queue(queue)
    queue.offer(chunk_of(queue, bytes(600)))
    queue._chunks = TakenWhileRead(queue._chunks)
    assert budget.held_bytes == 600


@pytest.mark.parametrize("codec", [compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD])
@pytest.mark.parametrize("magic", [1, 2])
def test_what_a_stream_has_decompressed_counts(bench: MakeBench, codec: int, magic: int) -> None:
    if codec == compression.ZSTD and magic < 2:
        pytest.skip("zstd is of format 2")
    cluster = FakeCluster(brokers=1, release="3.9.1" if magic == 2 else "0.10.2.2")
    cluster.create_topic(TOPIC, 1)
    cluster.append(TOPIC, 0, [bytes(50_000), b"x"], codec=codec)
    cluster.append(TOPIC, 0, [b"y"])
    made = bench(cluster)
    made.start(0)
    budget = made.manager.budget
    take(made.streams[0], 1)
    assert 50_000 < budget.held_bytes < 150_000
    take(made.streams[0], 2)
    assert budget.held_bytes < 5_000, "the bytes of the last record's batch"


def test_nothing_counts_while_a_stream_waits(bench: MakeBench) -> None:
    cluster = FakeCluster(brokers=1)
    cluster.create_topic(TOPIC, 1)
    cluster.append(TOPIC, 0, [bytes(50_000)], codec=compression.GZIP)
    made = bench(cluster)
    made.start(0)
    take(made.streams[0], 1)
    more = run_in_thread(lambda: take(made.streams[0], 1))
    wait_until(lambda: made.manager.budget.held_bytes == 0, "nothing is held")
    cluster.append(TOPIC, 0, [b"x"])
    assert len(more()) == 1


def test_a_stream_that_goes_on_wakes_fetchers_that_wait_for_room() -> None:
    budget, queue = ByteBudget(1_000), ChunkQueue(10)
    budget.add_queue(queue)
    queue.budget = budget
    woken: list[None] = []
    queue.on_space_available = lambda: woken.append(None)
    for _ in range(3):
        queue.offer(chunk_of(queue, bytes(900)))
    queue.take(0)
    assert not woken
    assert budget.reserve(budget.add_reservation(), 1_000, 1_000) == 0
    queue.take(0)
    assert woken


# --- fetchers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", RELEASES)
def test_fetchers_ask_for_nothing_more_when_the_budget_is_used_up(bench: MakeBench, release: str) -> None:
    made = bench(
        filled(40, 5, release, brokers=2), chunks_max=1_000, partition_max_bytes=CHUNK, queued_max_bytes=10 * CHUNK
    )
    made.start(*range(40))
    held = largest_held(made, lambda: made.manager.budget.has_waiting_fetcher)
    requests = len(made.fetches())
    assert 4 * CHUNK < made.manager.budget.held_bytes <= 10 * CHUNK
    held = max(held, largest_held(made, lambda: len(made.fetches()) - requests <= 2))
    assert held <= 10 * CHUNK
    found: list[dict[int, list[int]]] = []
    ended = run_in_thread(lambda: found.append(made.take(200)))
    held = largest_held(made, lambda: found)
    ended()
    assert {partition: len(offsets) for partition, offsets in found[0].items()} == dict.fromkeys(range(40), 5)
    # One chunk more: a fetcher may request it while the stream has nothing to read, and the chunks of the other fetcher
    # are on their way to the queue.
    assert held <= (10 + 1) * CHUNK


@pytest.mark.parametrize("release", RELEASES)
def test_one_chunk_always_fits(bench: MakeBench, release: str) -> None:
    made = bench(filled(3, 3, release), partition_max_bytes=CHUNK, queued_max_bytes=1)
    made.start(0, 1, 2)
    assert made.take(9) == {0: [0, 1, 2], 1: [0, 1, 2], 2: [0, 1, 2]}


@pytest.mark.parametrize("release", RELEASES)
def test_what_a_slow_stream_holds_does_not_stop_another(bench: MakeBench, release: str) -> None:
    made = bench(
        filled(10, 5, release), streams=2, chunks_max=10, partition_max_bytes=CHUNK, queued_max_bytes=4 * CHUNK
    )
    made.start(*range(9))
    wait_until(lambda: made.manager.budget.has_waiting_fetcher, "the first stream holds all")
    made.start(9, stream=1)
    assert made.take(5, stream=1) == {9: [0, 1, 2, 3, 4]}
    assert len(made.take(45)) == 9


def test_a_partition_that_leaves_makes_room(bench: MakeBench) -> None:
    made = bench(filled(2, 20), chunks_max=1_000, partition_max_bytes=CHUNK, queued_max_bytes=6 * CHUNK)
    left, stays = made.start(0, 1)
    wait_until(lambda: made.manager.budget.has_waiting_fetcher, "the fetcher is held back")
    backs: list[PartitionTopicInfo] = []
    left.stop(backs.append)
    made.manager.wake()
    assert backs == [left], "it waits for nothing"
    assert set(made.take(20)) == {stays.tp.partition}


def test_metrics_say_what_is_held_and_that_fetchers_were_held_back(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic(TOPIC, 4)
    for partition in range(4):
        for _ in range(5):
            world.cluster.append(TOPIC, partition, [bytes(CHUNK - 100)])
    connector = connect(
        queued_max_bytes=4 * CHUNK, fetch_message_max_bytes=CHUNK, queued_max_message_chunks=100,
        auto_offset_reset="smallest",
    )  # fmt: skip
    stream = connector.create_message_streams({TOPIC: 1})[TOPIC][0]

    def value(name: str, attribute: str) -> float:
        beans: dict[str, dict[str, float]] = connector.metrics()["metrics"]
        return sum(values[attribute] for bean, values in beans.items() if f"name={name}," in bean)

    wait_until(lambda: value("FetchesDeferredPerSec", "Count") > 0, "a fetcher is held back")
    assert CHUNK // 2 <= value("QueuedBytes", "Value") <= 4 * CHUNK
    assert len(take(stream, 20)) == 20


# --- the process ----------------------------------------------------------------------------------------------------


def growth_of(cluster: FakeCluster, budget: int, partitions: int, records: int) -> int:
    """Of a process that reads."""
    ports = ",".join(str(address.port) for address in cluster.addresses)
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("budget_program.py")), str(budget), ports, TOPIC,
         str(partitions), str(records)],
        capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_a_process_grows_by_its_budget_and_half_of_it_at_most() -> None:
    """1,000 partitions in batches of gzip, 100 to 1."""
    record_sets = []
    for batch in range(4):
        records = [Record(100 * batch + at, 0, 0, None, os.urandom(80) + bytes(9_920)) for at in range(100)]
        record_sets.append(build_record_set(records, 2, compression.GZIP))
    data = b"".join(record_sets)
    assert 80 < 4 * 1_000_000 / len(data) < 120
    cluster = FakeCluster(brokers=2)
    cluster.create_topic(TOPIC, 1_000)
    for partition in range(1_000):
        cluster.append_raw(TOPIC, partition, data, 400)
    budget = 8 * 1024 * 1024
    with cluster.serve():
        grown = growth_of(cluster, budget, 1_000, 30_000)
        unbounded = growth_of(cluster, 2**30, 1_000, 100)
    assert grown <= 1.5 * budget + ROOM_FOR_NOISE, f"{grown} bytes"
    assert unbounded > 2 * budget + ROOM_FOR_NOISE, f"{unbounded} bytes: the budget bounds nothing here"
