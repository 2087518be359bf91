"""``queued.max.bytes`` on real brokers: without a limit for a whole answer, with one, and with fetch sessions."""

from __future__ import annotations

import threading

import pytest

from tests.in_memory_fixtures import take, wait_until
from tests.sandbox_fixtures import Clusters
from zkconsumer.config import ConsumerConfig
from zkconsumer.connector import ZookeeperConsumerConnector

pytestmark = pytest.mark.real

CHUNK_BYTES = 100_000
BUDGET = 4 * CHUNK_BYTES
PARTITIONS = 6
RECORDS = 4_000
"""In each partition, of 100 bytes."""
WAIT_MS = 30_000


@pytest.mark.parametrize(
    ("release", "zookeeper"),
    [
        ("0.8.2.2", "3.4.6"),
        pytest.param("0.10.2.2", "3.8", marks=pytest.mark.nightly),
        pytest.param("1.1.1", "3.8", marks=pytest.mark.nightly),
        ("3.9.1", "3.8"),
    ],
)
def test_a_slow_program_bounds_what_is_fetched_and_a_slow_stream_stops_no_other(
    clusters: Clusters, names: tuple[str, str], release: str, zookeeper: str
) -> None:
    sandbox = clusters.get(release, zookeeper)
    group, topic = names
    sandbox.create_topic(topic, PARTITIONS)
    for partition in range(PARTITIONS):
        sandbox.produce(topic, partition, RECORDS, size=100, codec="gzip" if partition % 2 else "none")
    config = ConsumerConfig(
        group_id=group,
        zookeeper_connect=sandbox.zookeeper_connect,
        auto_offset_reset="smallest",
        consumer_timeout_ms=WAIT_MS,
        fetch_message_max_bytes=CHUNK_BYTES,
        queued_max_bytes=BUDGET,
        queued_max_message_chunks=100,
    )
    with ZookeeperConsumerConnector(config) as connector:
        slow, fast = connector.create_message_streams({topic: 2})[topic]
        budget = connector._member.fetchers.budget
        most, is_over = 0, threading.Event()

        def look() -> None:
            nonlocal most
            while not is_over.wait(0.002):
                most = max(most, budget.held_bytes)

        watcher = threading.Thread(target=look)
        watcher.start()
        wait_until(lambda: budget.has_waiting_fetcher, "the budget is used up", WAIT_MS)
        share = PARTITIONS // 2 * RECORDS
        assert len(take(fast, share)) == share
        assert len(take(slow, share)) == share
        is_over.set()
        watcher.join()
    assert BUDGET // 2 < most <= BUDGET + 3 * CHUNK_BYTES, "a chunk for each stream, and what one of them decompresses"
