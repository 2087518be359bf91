"""The fetcher manager and its threads on brokers in memory: what arrives in the queues, whatever the brokers do."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from bridge.coordinator.release_features import RELEASES
from bridge.testing.fake_cluster import FakeCluster
from bridge.testing.fake_faults import (
    CloseConnection,
    CorruptRecords,
    Delay,
    Fault,
    Garbage,
    Hold,
    NullRecords,
    PartitionError,
    WrongCorrelationId,
)
from tests.in_memory_fixtures import (
    DEADLINE_MS,
    MakeConnector,
    MakeWorld,
    Stream,
    our_threads,
    run_in_thread,
    take,
    wait_until,
)
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.delivery_lease import Lease
from zkconsumer.base.threads import live_threads
from zkconsumer.errors import (
    AuthenticationException,
    ConsumerTimeoutException,
    KafkaException,
    MessageSizeTooLargeException,
    NoOffsetForPartitionException,
    OffsetOutOfRangeException,
    ThreadFailedError,
    UnavailableError,
    UsageError,
)
from zkconsumer.kafka import fetcher_manager, fetcher_thread
from zkconsumer.kafka.bootstrap_client import BootstrapClient
from zkconsumer.kafka.chunks import ChunkQueue, FetchedDataChunk, PartitionTopicInfo, ShutdownMarker
from zkconsumer.kafka.fetch.offset_reset_strategy import OffsetResetStrategy
from zkconsumer.kafka.fetcher_manager import ConsumerFetcherManager, fetcher_number
from zkconsumer.kafka.fetcher_thread import COPY_BELOW_FRACTION, FULL_QUEUE_WAIT_MS, FetchSettings
from zkconsumer.runtime.broker_access import NO_BROKER_REGISTERED
from zkconsumer.streams import KafkaStream
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.wire import compiled, compression
from zkconsumer.wire.entries import Record
from zkconsumer.wire.fetch_codec import FetchedPartition
from zkconsumer.wire.java_hash import java_hash
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.records import scan_record_set
from zkconsumer.wire.schemas import API_VERSIONS, FETCH, LIST_OFFSETS, METADATA, Api

TOPIC = "clicks"
NAME = "g1_a"
SOON_MS = 100
HELD_MS = 5_000
"""Far less than the time after which a broker that does not answer is given up, and far more than a call needs."""


class Bench:
    """A manager on a cluster, with as many streams as asked for; no group and no ZooKeeper."""

    def __init__(
        self, cluster: FakeCluster, *, streams: int = 1, chunks_max: int = 10, num_fetchers: int = 1, **settings: Any
    ) -> None:
        self.cluster = cluster
        self.deaths: list[tuple[str, BaseException]] = []
        self.resets: list[tuple[TopicPartition, int]] = []
        self.missing: list[UsageError] = []
        self.refusals: list[AuthenticationException] = []
        self.brokers: Callable[[], list[BrokerAddress]] = lambda: cluster.addresses
        fetch = FetchSettings(**({"client_id": "g1", "backoff_ms": 10, "max_wait_ms": 50} | settings))
        asked = BootstrapClient(
            cluster.connect,
            lambda: self.brokers(),
            "g1",
            fetch.socket_timeout_ms,
            no_broker_message=NO_BROKER_REGISTERED,
        )
        self.manager = ConsumerFetcherManager(
            NAME,
            fetch,
            num_fetchers,
            connect=cluster.connect,
            brokers=asked,
            clock=SYSTEM_CLOCK,
            on_reset=lambda info, offset: self.resets.append((info.tp, offset)),
            on_position_missing=self.missing.append,
            on_thread_error=lambda name, error: self.deaths.append((name, error)),
            on_authentication_error=self.refusals.append,
        )
        lease = Lease(SYSTEM_CLOCK)
        lease.set_until(SYSTEM_CLOCK.now_ms() + 10**9)
        self.queues = [ChunkQueue(chunks_max) for _ in range(streams)]
        self.streams: list[Stream] = []
        for number, queue in enumerate(self.queues):
            self.manager.add_queue(queue)
            self.streams.append(KafkaStream(f"{NAME}-{number}", queue, lease, timeout_ms=DEADLINE_MS))

    def start(self, *partitions: int, offset: int = 0, stream: int = 0) -> list[PartitionTopicInfo]:
        """Fetch these partitions for this stream."""
        infos = [
            PartitionTopicInfo(TopicPartition(TOPIC, number), f"{NAME}-{stream}", self.queues[stream], offset=offset)
            for number in partitions
        ]
        self.manager.start(infos)
        return infos

    def take(self, count: int, stream: int = 0) -> dict[int, list[int]]:
        """The offsets of the next so many records, by partition, in their order."""
        found: dict[int, list[int]] = {}
        for message in take(self.streams[stream], count):
            found.setdefault(message.partition, []).append(message.offset)
        return dict(sorted(found.items()))

    def fetches(self) -> list[Any]:
        """The bodies of all fetch requests so far, with all that they ask for, also by their session."""
        return [replace(seen.body, topics=seen.asked) for seen in self.cluster.requests if seen.api is FETCH]

    def close(self) -> None:
        assert self.manager.close(DEADLINE_MS)
        assert self.deaths == []


MakeBench = Callable[..., Bench]


@pytest.fixture
def bench(no_thread_is_left: None) -> Iterator[MakeBench]:
    made: list[Bench] = []

    def make(cluster: FakeCluster, **how: Any) -> Bench:
        made.append(Bench(cluster, **how))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def cluster() -> FakeCluster:
    """Two brokers, four partitions led in turn."""
    made = FakeCluster(brokers=2)
    made.create_topic(TOPIC, 4)
    return made


def append(cluster: FakeCluster, partition: int, count: int) -> None:
    first = cluster.log_end(TOPIC, partition)
    cluster.append(TOPIC, partition, [b"%d" % (first + at) for at in range(count)])


# --- the way of the data ----------------------------------------------------------------------------------------


def test_chunks_of_all_brokers_arrive_twice(cluster: FakeCluster, bench: MakeBench) -> None:
    """FetcherTest.testFetcher."""
    made = bench(cluster)
    made.start(0, 1, 2, 3)
    for first in (0, 5):
        for partition in range(4):
            append(cluster, partition, 5)
        assert made.take(20) == {partition: list(range(first, first + 5)) for partition in range(4)}


@pytest.mark.parametrize("release", RELEASES)
def test_brokers_of_every_release_are_read(release: str, bench: MakeBench) -> None:
    cluster = FakeCluster(brokers=2, release=release)
    cluster.create_topic(TOPIC, 2)
    made = bench(cluster)
    for partition in range(2):
        append(cluster, partition, 3)
    made.start(0, 1)
    assert made.take(6) == {0: [0, 1, 2], 1: [0, 1, 2]}


def test_one_fetcher_thread_a_broker_reads_all_its_partitions(cluster: FakeCluster, bench: MakeBench) -> None:
    made = bench(cluster)
    made.start(0, 1, 2, 3)
    for partition in range(4):
        append(cluster, partition, 1)
    made.take(4)
    assert live_threads() == [
        f"ConsumerFetcherThread-{NAME}-0-0",
        f"ConsumerFetcherThread-{NAME}-0-1",
        f"{NAME}-leader-finder-thread",
    ]


def test_a_broker_without_a_total_limit_is_asked_for_so_many_partitions_that_fetch_max_bytes_is_kept(
    bench: MakeBench,
) -> None:
    cluster = FakeCluster(brokers=1, release="0.8.2.2")
    cluster.create_topic(TOPIC, 10)
    made = bench(cluster, partition_max_bytes=1000, max_bytes=3500)
    made.start(*range(10))
    for partition in range(10):
        append(cluster, partition, 1)
    assert sorted(made.take(10)) == list(range(10))
    assert {sum(len(topic.partitions) for topic in body.topics) for body in made.fetches()} == {3}


def test_an_answer_as_long_as_many_partitions_make_it_is_taken(bench: MakeBench) -> None:
    cluster = FakeCluster(brokers=1, release="0.8.2.2")
    cluster.create_topic(TOPIC, 70)
    for partition in range(70):
        cluster.append(TOPIC, partition, [bytes(1_000_000)])
    made = bench(cluster, chunks_max=70, queued_max_bytes=2**28)
    made.start(*range(70))
    assert len(made.take(70)) == 70
    assert len(made.fetches()[0].topics[0].partitions) == 70


def test_more_fetchers_share_a_broker_by_number(cluster: FakeCluster, bench: MakeBench) -> None:
    made = bench(cluster, num_fetchers=2)
    made.start(0, 1, 2, 3)
    for partition in range(4):
        append(cluster, partition, 1)
    made.take(4)
    expected = {
        f"ConsumerFetcherThread-{NAME}-{fetcher_number(TopicPartition(TOPIC, partition), 2)}-{partition % 2}"
        for partition in range(4)
    }
    assert {name for name in live_threads() if "Fetcher" in name} == expected


def test_the_fetcher_number_is_that_of_the_original() -> None:
    for topic in ("clicks", "a", "topic.with-many_signs", "x" * 249):
        for partition in (0, 1, 7, 1_000):
            mixed = (31 * java_hash(topic) + partition) & 0xFFFF_FFFF
            signed = mixed - 2**32 if mixed >= 2**31 else mixed
            assert fetcher_number(TopicPartition(topic, partition), 3) == abs(signed) % 3


def test_the_one_number_that_has_no_absolute_value_is_0() -> None:
    """|Int.MinValue| is negative in Java; Kafka's Utils.abs makes it 0."""
    tp = TopicPartition("t", 2**31 - 31 * java_hash("t"))
    assert (31 * java_hash(tp.topic) + tp.partition) & 0xFFFF_FFFF == 2**31
    assert fetcher_number(tp, 7) == 0


def test_what_leaves_is_not_fetched_any_more_and_what_stays_goes_on(cluster: FakeCluster, bench: MakeBench) -> None:
    made = bench(cluster)
    [gone, _] = made.start(0, 2)
    append(cluster, 0, 1)
    append(cluster, 2, 1)
    made.take(2)
    gone.invalidate()
    made.manager.wake()
    append(cluster, 0, 1)
    append(cluster, 2, 1)
    assert made.take(1) == {2: [1]}
    append(cluster, 2, 1)
    made.take(1)
    last = made.fetches()[-1]
    assert [row.partition for topic in last.topics for row in topic.partitions] == [2]


def fetcher_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if "Fetcher" in thread.name}


def test_what_leaves_and_what_comes_stops_no_thread(cluster: FakeCluster, bench: MakeBench) -> None:
    """A rebalance gives one partition of each broker away, and brings another one."""
    made = bench(cluster)
    gone = made.start(0, 1)
    for partition in range(4):
        append(cluster, partition, 1)
    made.take(2)
    before = fetcher_threads()
    assert len(before) == 2
    for info in gone:
        info.invalidate()
    made.start(2, 3)
    assert made.take(2) == {2: [0], 3: [0]}
    assert fetcher_threads() == before


@pytest.mark.parametrize("api", [METADATA, FETCH], ids=lambda api: api.name)
def test_no_call_waits_for_a_broker_that_does_not_answer(
    cluster: FakeCluster, bench: MakeBench, api: Api[Any, Any]
) -> None:
    cluster.inject(Hold(), api=api, times=None)
    made = bench(cluster)
    made.start(0)
    wait_until(lambda: any(seen.api is api for seen in cluster.requests), "a broker is asked, and does not answer")

    def call_everything() -> int:
        begun_ms = SYSTEM_CLOCK.now_ms()
        made.manager.add_partitions_with_error(made.start(1))
        made.manager.wake()
        made.manager.leaderless()
        made.manager.min_fetch_rate()
        return SYSTEM_CLOCK.now_ms() - begun_ms

    assert run_in_thread(call_everything)() < HELD_MS


FETCH_VERSIONS = {
    "0.8.1.1": 0, "0.8.2.2": 0, "0.9.0.1": 0, "0.10.2.2": 3, "0.11.0.3": 5, "1.1.1": 7, "2.0.1": 8, "3.9.1": 12,
    "4.1.1": 12,
}  # fmt: skip
"""Brokers before 0.10 cannot be asked which versions they have, so they get the first one."""


@pytest.mark.parametrize(("release", "version"), FETCH_VERSIONS.items())
def test_a_fetch_has_the_newest_version_that_both_sides_speak(release: str, version: int, bench: MakeBench) -> None:
    cluster = FakeCluster(release=release)
    cluster.create_topic(TOPIC)
    append(cluster, 0, 1)
    made = bench(cluster)
    made.start(0)
    made.take(1)
    assert {seen.version for seen in cluster.requests if seen.api is FETCH} == {version}


# --- leaders and brokers ----------------------------------------------------------------------------------------


def test_a_leader_that_moves_is_found_again(cluster: FakeCluster, bench: MakeBench) -> None:
    made = bench(cluster)
    made.start(0, 1)
    append(cluster, 0, 1)
    assert made.take(1) == {0: [0]}
    cluster.move_leader(TOPIC, 0, 1)
    append(cluster, 0, 2)
    append(cluster, 1, 2)
    assert made.take(4) == {0: [1, 2], 1: [0, 1]}


def lookups(cluster: FakeCluster) -> int:
    """How often brokers were asked who leads what."""
    return sum(seen.api is METADATA for seen in cluster.requests)


def test_what_comes_to_a_broker_that_is_read_needs_no_lookup(cluster: FakeCluster, bench: MakeBench) -> None:
    """A rebalance of a large group would ask for the metadata of the whole topic, once a member."""
    made = bench(cluster)
    made.start(0, 1)
    for partition in range(4):
        append(cluster, partition, 1)
    assert made.take(2) == {0: [0], 1: [0]}
    asked = lookups(cluster)
    made.start(2, 3)
    assert made.take(2) == {2: [0], 3: [0]}
    assert lookups(cluster) == asked


def test_a_known_leader_that_leads_no_more_says_so_and_is_found_again(cluster: FakeCluster, bench: MakeBench) -> None:
    made = bench(cluster)
    made.start(0, 1)
    append(cluster, 0, 1)
    assert made.take(1) == {0: [0]}
    asked = lookups(cluster)
    cluster.move_leader(TOPIC, 2, 1)
    append(cluster, 2, 3)
    [info] = made.start(2)
    assert made.take(3) == {2: [0, 1, 2]}
    assert lookups(cluster) > asked
    info.invalidate()
    again = lookups(cluster)
    made.start(2, offset=1)
    assert made.take(2) == {2: [1, 2]}, "where it was found is known now"
    assert lookups(cluster) == again


def test_a_broker_that_is_not_read_is_not_taken_for_the_leader_that_it_was(
    cluster: FakeCluster, bench: MakeBench
) -> None:
    """It may be gone for good; who is read from now is there."""
    made = bench(cluster)
    made.start(0)
    append(cluster, 0, 1)
    append(cluster, 1, 1)
    assert made.take(1) == {0: [0]}
    asked = lookups(cluster)
    made.start(1)
    assert made.take(1) == {1: [0]}
    assert lookups(cluster) > asked


def test_leaders_that_were_named_long_ago_are_looked_up(
    cluster: FakeCluster, bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bench(cluster)
    made.start(0)
    append(cluster, 0, 1)
    append(cluster, 2, 1)
    assert made.take(1) == {0: [0]}
    asked = lookups(cluster)
    monkeypatch.setattr(fetcher_manager, "LEADERS_MAX_AGE_MS", 0)
    made.start(2)
    assert made.take(1) == {2: [0]}
    assert lookups(cluster) > asked


def test_a_partition_without_a_leader_is_looked_for_until_it_has_one(
    cluster: FakeCluster, bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.move_leader(TOPIC, 0, None)
    made = bench(cluster)
    made.start(0, 1)
    append(cluster, 1, 1)
    assert made.take(1) == {1: [0]}
    looks = len(cluster.requests)
    wait_until(lambda: len(cluster.requests) > looks + 5, "it is looked for again and again")
    [line] = caplog.messages
    assert "partitions-without-leader partitions=1 first=clicks/0" in line
    cluster.move_leader(TOPIC, 0, 1)
    append(cluster, 0, 1)
    assert made.take(1) == {0: [0]}


def test_a_broker_that_is_killed_and_comes_back_loses_nothing(cluster: FakeCluster, bench: MakeBench) -> None:
    made = bench(cluster)
    made.start(0, 1)
    append(cluster, 0, 3)
    assert made.take(3) == {0: [0, 1, 2]}
    cluster.stop_broker(0)
    append(cluster, 1, 2)
    assert made.take(2) == {1: [0, 1]}, "the other broker is read meanwhile"
    cluster.start_broker(0)
    append(cluster, 0, 3)
    assert made.take(3) == {0: [3, 4, 5]}


def test_a_broker_that_is_down_is_one_warning_each_time_it_goes_down(
    cluster: FakeCluster, bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    def warnings() -> int:
        return sum(record.getMessage().startswith("fetch-failed") for record in caplog.records)

    made = bench(cluster)
    made.start(0)
    for times in (1, 2):
        append(cluster, 0, 1)
        made.take(1)
        looked = len(cluster.requests)
        cluster.stop_broker(0)
        wait_until(lambda before=looked: len(cluster.requests) > before + 5, "the leader is looked for over and over")
        assert warnings() == times
        cluster.start_broker(0)


def test_a_fetcher_without_partitions_ends(cluster: FakeCluster, bench: MakeBench) -> None:
    made = bench(cluster)
    made.start(0, 1)
    append(cluster, 0, 1)
    made.take(1)
    cluster.move_leader(TOPIC, 0, 1)
    wait_until(lambda: f"ConsumerFetcherThread-{NAME}-0-0" not in live_threads(), "broker 0 has nothing left to read")


def metrics_of(made: Bench) -> dict[str, dict[str, float]]:
    """How many requests and answers of each broker are shown, by host; the totals have no address."""
    found: dict[str, dict[str, float]] = {}
    for sample in made.manager._registry.samples():
        found.setdefault(sample.labels.get("brokerHost", "all"), {})[sample.row.name] = sample.values["Count"]
    return found


OF_A_BROKER = {
    "RequestsPerSec", "BytesPerSec", "FetchRequestRateAndTimeMs", "FetchResponseSize",
    "FetchRequestThrottleRateAndTimeMs",
}  # fmt: skip


@pytest.mark.parametrize("why", ["leader moves", "broker is gone"])
def test_the_metrics_of_a_broker_go_with_its_last_fetcher_thread(
    cluster: FakeCluster, bench: MakeBench, why: str
) -> None:
    """AbstractFetcherThreadTest.testMetricsRemovedOnShutdown."""
    made = bench(cluster, num_fetchers=3)
    gone, stays = (address.host for address in cluster.addresses)
    made.start(0, 1, 2, 3)
    for number in range(4):
        append(cluster, number, 1)
    made.take(4)
    assert set(metrics_of(made)[gone]) == set(metrics_of(made)[stays]) == OF_A_BROKER
    cluster.move_leader(TOPIC, 0, 1)
    wait_until(lambda: len([name for name in live_threads() if name.endswith("-0")]) == 1, "one of its threads ends")
    assert gone in metrics_of(made), "the other one reads on"
    if why == "broker is gone":
        cluster.stop_broker(0)
    cluster.move_leader(TOPIC, 2, 1)
    append(cluster, 2, 1)
    made.take(1)
    wait_until(lambda: gone not in metrics_of(made), "nothing is read from that broker any more")
    shown = metrics_of(made)
    assert set(shown) == {"all", stays}
    assert shown["all"]["FetchResponseSize"] > shown[stays]["FetchResponseSize"], "the totals are of all brokers"


def test_the_metrics_of_a_broker_that_comes_back_begin_at_0(cluster: FakeCluster, bench: MakeBench) -> None:
    made = bench(cluster)
    host = cluster.addresses[0].host
    made.start(0, 1)
    for _ in range(5):
        append(cluster, 0, 1)
        made.take(1)
    assert metrics_of(made)[host]["BytesPerSec"] > 0
    before = metrics_of(made)[host]["RequestsPerSec"]
    cluster.move_leader(TOPIC, 0, 1)
    wait_until(lambda: host not in metrics_of(made), "nothing is read from that broker any more")
    cluster.move_leader(TOPIC, 0, 0)
    wait_until(lambda: host in metrics_of(made), "it is read again")
    assert metrics_of(made)[host]["RequestsPerSec"] < before


def test_the_metrics_of_a_broker_go_when_a_rebalance_leaves_it_nothing(
    cluster: FakeCluster, bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No leader is looked for then."""
    monkeypatch.setattr(fetcher_manager, "IDLE_CHECK_MS", 20)
    made = bench(cluster)
    gone, stays = (address.host for address in cluster.addresses)
    leaves, _ = made.start(0, 1)
    for number in range(2):
        append(cluster, number, 1)
    made.take(2)
    leaves.is_live = False
    made.manager.wake()
    wait_until(lambda: gone not in metrics_of(made), "nothing is read from that broker any more")
    assert set(metrics_of(made)) == {"all", stays}
    wait_until(lambda: f"ConsumerFetcherThread-{NAME}-0-0" not in live_threads(), "its thread ends")
    append(cluster, 1, 1)
    assert made.take(1) == {1: [1]}


def test_no_broker_registered_is_one_warning_and_the_looking_goes_on(
    cluster: FakeCluster, bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    made = bench(cluster)
    looks: list[None] = []

    def nobody() -> list[BrokerAddress]:
        looks.append(None)
        return []

    made.brokers = nobody
    append(cluster, 0, 1)
    with caplog.at_level(logging.WARNING):
        made.start(0)
        wait_until(lambda: len(looks) > 3, "it looks again")
        [line] = caplog.messages
        assert "no broker is registered in ZooKeeper (/brokers/ids)" in line
        made.brokers = lambda: cluster.addresses
        assert made.take(1) == {0: [0]}


def test_brokers_that_cannot_be_looked_up_are_one_warning(
    cluster: FakeCluster, bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    made = bench(cluster)
    looks: list[None] = []

    def lost() -> list[BrokerAddress]:
        looks.append(None)
        raise UnavailableError("ZooKeeper is away")

    made.brokers = lost
    append(cluster, 0, 1)
    made.start(0)
    wait_until(lambda: len(looks) > 3, "it looks again")
    assert [line for line in caplog.messages if "ZooKeeper is away" in line] == caplog.messages
    assert len(caplog.messages) == 1
    made.brokers = lambda: cluster.addresses
    assert made.take(1) == {0: [0]}


def test_one_broker_that_answers_is_enough_to_find_the_leaders(cluster: FakeCluster, bench: MakeBench) -> None:
    cluster.move_leader(TOPIC, 0, 1)
    cluster.stop_broker(0)
    append(cluster, 0, 1)
    for _ in range(5):
        made = bench(cluster)
        made.start(0)
        assert made.take(1) == {0: [0]}


# --- positions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reset", "expected"), [(OffsetResetStrategy.EARLIEST, [3, 4]), (OffsetResetStrategy.LATEST, [5])]
)
@pytest.mark.parametrize("offset", [-1, 1, 10_000])
def test_without_a_place_in_the_log_the_policy_says_where_to_go_on(
    reset: OffsetResetStrategy, expected: list[int], offset: int, cluster: FakeCluster, bench: MakeBench
) -> None:
    """No offset at all, one that retention has removed, and one behind the end."""
    for _ in range(5):
        append(cluster, 0, 1)
    cluster.delete_before(TOPIC, 0, 3)
    made = bench(cluster, reset=reset)
    [info] = made.start(0, offset=offset)
    wait_until(lambda: made.resets, "the position is reset")
    assert made.resets == [(info.tp, expected[0])]
    assert info.consumed_offset == expected[0]
    if reset is OffsetResetStrategy.LATEST:
        append(cluster, 0, 1)
    assert made.take(len(expected)) == {0: expected}


def test_without_a_reset_policy_a_missing_position_is_reported_and_the_others_are_read(
    cluster: FakeCluster, bench: MakeBench
) -> None:
    """``auto.offset.reset=none``: only a program or an operator can set a position."""
    for partition in range(3):
        append(cluster, partition, 2)
    made = bench(cluster, reset=OffsetResetStrategy.NONE)
    made.start(0, offset=-1)
    made.start(1, offset=10_000)
    made.start(2)
    assert made.take(2) == {2: [0, 1]}
    wait_until(lambda: len({str(error) for error in made.missing}) == 2, "both are reported")
    found = {type(error): error for error in made.missing}
    absent, out_of_range = found[NoOffsetForPartitionException], found[OffsetOutOfRangeException]
    assert isinstance(absent, NoOffsetForPartitionException)
    assert absent.partitions == {TopicPartition(TOPIC, 0)}
    assert str(absent) == (
        "there is no committed offset for clicks/0, and auto.offset.reset=none: set earliest or latest, or set an "
        "offset with `zkconsumer offsets set`, and start the member again"
    )
    assert isinstance(out_of_range, OffsetOutOfRangeException)
    assert out_of_range.offset_out_of_range_partitions == {TopicPartition(TOPIC, 1): 10_000}
    assert str(out_of_range).startswith("the log of clicks/1 does not have offset 10000, and auto.offset.reset=none:")
    assert made.resets == []


def test_a_log_that_lost_its_end_is_read_again_from_its_beginning(cluster: FakeCluster, bench: MakeBench) -> None:
    """What a reader sees of UncleanLeaderElectionTest."""
    made = bench(cluster, reset=OffsetResetStrategy.EARLIEST)
    for _ in range(6):
        append(cluster, 0, 1)
    made.start(0)
    assert made.take(6) == {0: [0, 1, 2, 3, 4, 5]}
    cluster.truncate(TOPIC, 0, 4)
    wait_until(lambda: made.resets, "the position is reset")
    append(cluster, 0, 1)
    assert made.take(5) == {0: [0, 1, 2, 3, 4]}


def test_a_leader_that_cannot_say_where_the_log_begins_is_looked_for_again(
    cluster: FakeCluster, bench: MakeBench
) -> None:
    cluster.inject(PartitionError(TopicPartition(TOPIC, 0), 6), api=LIST_OFFSETS)
    append(cluster, 0, 1)
    made = bench(cluster, reset=OffsetResetStrategy.EARLIEST)
    made.start(0, offset=-1)
    assert made.take(1) == {0: [0]}


# --- one partition does not stop the others ---------------------------------------------------------------------


def test_a_null_record_set_with_error_76_skips_its_partition_and_not_the_response(
    cluster: FakeCluster, bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    """What brokers answer for zstd records on an old Fetch version; the original stood still on all topics."""
    null = cluster.inject(NullRecords(TopicPartition(TOPIC, 0), 76), times=None)
    made = bench(cluster)
    append(cluster, 0, 2)
    append(cluster, 2, 2)
    made.start(0, 2)
    assert made.take(2) == {2: [0, 1]}
    hits = null.hits
    wait_until(lambda: null.hits > hits + 1, "it is asked for again and again")
    [line] = caplog.messages
    assert "first=clicks/0" in line
    assert "compression.type" in line
    cluster.lift(null)
    assert made.take(2) == {0: [0, 1]}


def test_an_error_with_a_null_record_set_is_that_error(cluster: FakeCluster, bench: MakeBench) -> None:
    """The leader moved: waiting for this broker to have a record set would be waiting for ever."""
    made = bench(cluster)
    made.start(0)
    append(cluster, 0, 1)
    made.take(1)
    null = cluster.inject(NullRecords(TopicPartition(TOPIC, 0), 6), broker_id=0, times=None)
    wait_until(lambda: null.hits, "broker 0 answers so")
    cluster.move_leader(TOPIC, 0, 1)
    append(cluster, 0, 1)
    assert made.take(1) == {0: [1]}


@pytest.mark.parametrize("at", [8, 16], ids=["size", "format"])
def test_a_corrupt_record_set_of_one_partition_does_not_stop_the_others(
    at: int, cluster: FakeCluster, bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    """AbstractFetcherThreadTest.testFetchRequestCorruptedMessageException."""
    corrupt = cluster.inject(CorruptRecords(TopicPartition(TOPIC, 0), at), api=FETCH, times=None)
    made = bench(cluster)
    append(cluster, 0, 2)
    append(cluster, 2, 2)
    made.start(0, 2)
    assert made.take(2) == {2: [0, 1]}
    wait_until(lambda: corrupt.hits > 2, "it is fetched again")
    [line] = caplog.messages
    assert "corrupt record set at fetch offset 0" in line
    cluster.lift(corrupt)
    assert made.take(2) == {0: [0, 1]}, "nothing was passed over"


@pytest.mark.parametrize("behind", [1, 2], ids=["ends where the fetch begins", "ends before it"])
def test_an_answer_that_brings_no_progress_is_reported_and_asked_for_again(
    behind: int,
    cluster: FakeCluster,
    bench: MakeBench,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Taken, it would be asked for again at once and without end, and each answer would fill the queue."""
    made = bench(cluster)
    append(cluster, 0, 5)
    older = build_record_set([Record(3 - behind, 0, 0, None, b"old")], 2)
    answers = [older, older]
    real = fetcher_thread.ConsumerFetcherThread._process_partition

    def take_older(fetcher: Any, reading: Any, row: FetchedPartition, *rest: Any) -> None:
        if answers:
            found = scan_record_set(answers[-1])
            row = row._replace(records=answers.pop(), entries=found.entries, next_offset=found.next_offset)
        real(fetcher, reading, row, *rest)

    monkeypatch.setattr(fetcher_thread.ConsumerFetcherThread, "_process_partition", take_older)
    made.start(0, offset=3)
    chunk = made.queues[0].take(DEADLINE_MS)
    assert isinstance(chunk, FetchedDataChunk)
    assert answers == []
    assert chunk.next_offset == 5, "no chunk was made of the answers before"
    assert f"the record set ends at {4 - behind}, before the fetch offset" in caplog.text


def test_an_answer_for_an_offset_that_was_left_meanwhile_is_dropped(cluster: FakeCluster, bench: MakeBench) -> None:
    """The program went past a message, which moves the position, while a fetch was under way.

    The answer that comes then says that the old position is out of range, and the policy (largest) would go to the end.
    """
    append(cluster, 0, 3)
    held = cluster.inject(Hold(), api=FETCH)
    made = bench(cluster)
    [info] = made.start(0, offset=100)
    wait_until(lambda: held.hits, "offset 100 is asked for")
    info.reset(0)
    cluster.lift(held)
    assert made.take(3) == {0: [0, 1, 2]}
    assert made.resets == []


def test_an_error_of_one_partition_does_not_stop_the_others(cluster: FakeCluster, bench: MakeBench) -> None:
    error = cluster.inject(PartitionError(TopicPartition(TOPIC, 0), 29), api=FETCH, times=None)
    made = bench(cluster)
    append(cluster, 0, 2)
    append(cluster, 2, 2)
    made.start(0, 2)
    assert made.take(2) == {2: [0, 1]}
    cluster.lift(error)
    assert made.take(2) == {0: [0, 1]}


def test_a_partition_that_can_never_be_read_is_asked_for_with_pauses(cluster: FakeCluster, bench: MakeBench) -> None:
    """Metadata names a leader, and that leader refuses: no storm of questions to either."""
    backoff_ms = 20
    error = cluster.inject(PartitionError(TopicPartition(TOPIC, 0), 29), api=FETCH, times=None)
    made = bench(cluster, backoff_ms=backoff_ms)
    made.start(0)
    wait_until(lambda: error.hits, "it is refused")
    first, started_ms = error.hits, SYSTEM_CLOCK.now_ms()
    wait_until(lambda: error.hits >= first + 10, "again and again")
    assert SYSTEM_CLOCK.now_ms() - started_ms >= 9 * backoff_ms


def test_a_small_record_set_does_not_keep_the_whole_answer_in_memory(bench: MakeBench) -> None:
    cluster = FakeCluster()
    cluster.create_topic(TOPIC, 20)
    made = bench(cluster, chunks_max=100, streams=2)
    for partition in range(20):
        cluster.append(TOPIC, partition, [bytes(1_000 if partition else 1_000_000)])
    made.start(19, stream=1)
    made.start(*range(19))
    wait_until(lambda: len(made.queues[0]) == 19, "all have arrived")
    for _ in range(19):
        chunk = made.queues[0].take(0)
        assert isinstance(chunk, FetchedDataChunk)
        kept = memoryview(chunk.records.obj).nbytes if isinstance(chunk.records, memoryview) else len(chunk.records)
        assert kept <= len(chunk.records) * COPY_BELOW_FRACTION


def test_an_error_of_many_partitions_is_one_line(
    cluster: FakeCluster, bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    made = bench(cluster)
    made.start(0, 2)
    append(cluster, 0, 1)
    append(cluster, 2, 1)
    made.take(2)
    held = cluster.inject(Hold(), api=FETCH)
    wait_until(lambda: held.hits, "a fetch is under way")
    for partition in (0, 2):
        cluster.move_leader(TOPIC, partition, 1)
    cluster.lift(held)
    append(cluster, 0, 1)
    append(cluster, 2, 1)
    made.take(2)
    [line] = [line for line in caplog.messages if "leader-moved" in line]
    assert "partitions=2 first=clicks/0" in line
    assert "NOT_LEADER" in line
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING], "nothing is wrong"


def asked_sizes(made: Bench, partition: int) -> list[int]:
    """How many bytes of a partition were asked for, each time."""
    rows = [row for body in made.fetches() for topic in body.topics for row in topic.partitions]
    return [row.partition_max_bytes for row in rows if row.partition == partition]


@pytest.mark.parametrize("codec", [compression.NONE, compression.GZIP])
def test_an_oversize_message_is_asked_for_again_with_as_many_bytes_as_it_has(bench: MakeBench, codec: int) -> None:
    cluster = FakeCluster(release="0.8.2.2")
    cluster.create_topic(TOPIC, 1)
    cluster.append(TOPIC, 0, [random_bytes(1_000), b"a"], codec=codec)
    made = bench(cluster, partition_max_bytes=200)
    made.start(0)
    assert made.take(2) == {0: [0, 1]}
    first, second, *rest = asked_sizes(made, 0)
    assert first == 200
    assert 1_000 < second < 1_200
    assert set(rest) <= {200}


def random_bytes(count: int) -> bytes:
    """Bytes that no codec makes shorter; the same every time."""
    return b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(count // 32 + 1))[:count]


def test_an_oversize_message_whose_head_does_not_fit_is_asked_for_with_twice_as_many_bytes(bench: MakeBench) -> None:
    cluster = FakeCluster(release="0.8.2.2")
    cluster.create_topic(TOPIC, 1)
    cluster.append(TOPIC, 0, [b"x" * 100])
    made = bench(cluster, partition_max_bytes=5)
    made.start(0)
    made.take(1)
    assert asked_sizes(made, 0)[:4] == [5, 10, 20, 126], "twice, and then what the head says"


def test_several_partitions_with_oversize_messages_are_asked_for_one_after_the_other(bench: MakeBench) -> None:
    cluster = FakeCluster(release="0.8.2.2")
    cluster.create_topic(TOPIC, 4)
    for partition in range(4):
        cluster.append(TOPIC, partition, [b"x" * 1_000] * 2)
    made = bench(cluster, partition_max_bytes=200)
    for partition in range(4):
        made.start(partition)
    made.take(8)
    for body in made.fetches():
        assert sum(row.partition_max_bytes > 200 for topic in body.topics for row in topic.partitions) <= 1


def test_an_oversize_message_for_a_stream_that_stands_still_does_not_hold_back_one_for_another_stream(
    bench: MakeBench,
) -> None:
    """Partition 1 fills the queue of the stream before the message of partition 0 is requested with its size."""
    cluster = FakeCluster(release="0.8.2.2")
    cluster.create_topic(TOPIC, 3)
    made = bench(cluster, streams=2, chunks_max=1, partition_max_bytes=200, max_wait_ms=HELD_MS)
    made.start(0, 1, stream=0)
    made.start(2, stream=1)
    wait_until(lambda: any(len(body.topics[0].partitions) == 3 for body in made.fetches()), "all are requested")
    cluster.append(TOPIC, 1, [b"a"])
    wait_until(lambda: len(made.queues[0]), "the queue is full, and the next request was sent before")
    for partition in (0, 2):
        cluster.append(TOPIC, partition, [b"x" * 1_000] * 2)
    assert made.take(2, stream=1) == {2: [0, 1]}
    assert made.take(3) == {0: [0, 1], 1: [0]}


def test_a_message_too_large_at_any_size_is_queued_once_and_asked_for_again_only_past_it(bench: MakeBench) -> None:
    cluster = FakeCluster(release="0.8.2.2")
    cluster.create_topic(TOPIC, 2)
    cluster.append(TOPIC, 0, [b"x" * 1_000])
    cluster.append(TOPIC, 0, [b"a"])
    made = bench(cluster, streams=2, partition_max_bytes=200, large_message_bytes_max=900)
    made.start(0, stream=0)
    made.start(1, stream=1)
    for _ in range(2):
        with pytest.raises(MessageSizeTooLargeException, match=f"topic {TOPIC} partition 0 at fetch offset 0"):
            made.take(1)
        append(cluster, 1, 1)
        made.take(1, stream=1)
    assert asked_sizes(made, 0) == [200]
    made.streams[0].iterator().skip_poison()
    assert made.take(1) == {0: [1]}


def test_a_chunk_carries_the_offset_that_was_asked_for_and_the_next_one_begins_behind_its_last_entry(
    bench: MakeBench,
) -> None:
    """PartitionTopicInfo.enqueue: a chunk of complete entries, then the fetched offset moves; without bytes nothing."""
    cluster = FakeCluster(release="1.1.1")
    cluster.create_topic(TOPIC, 1)
    cluster.append(TOPIC, 0, [b"a", b"b", b"c"], codec=compression.GZIP)
    made = bench(cluster)
    [info] = made.start(0, offset=1)
    wait_until(lambda: len(made.queues[0]), "the batch is queued")
    chunk = made.queues[0].take(0)
    assert isinstance(chunk, FetchedDataChunk)
    assert (chunk.info, chunk.fetch_offset, chunk.next_offset) == (info, 1, 3)
    assert chunk.complete_bytes == len(chunk.records)
    fetches = len(made.fetches())
    wait_until(lambda: len(made.fetches()) > fetches + 1, "fetches at the end bring nothing")
    assert len(made.queues[0]) == 0
    assert info.fetch_offset == 3


def test_the_next_request_is_sent_before_the_chunks_are_handed_over(
    cluster: FakeCluster, bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the broker works while the streams are fed."""
    made = bench(cluster)
    seen: list[tuple[int, int]] = []
    real = ChunkQueue.offer

    def offer(queue: ChunkQueue, chunk: FetchedDataChunk) -> bool:
        seen.append((chunk.next_offset, made.fetches()[-1].topics[0].partitions[0].fetch_offset))
        return real(queue, chunk)

    monkeypatch.setattr(ChunkQueue, "offer", offer)
    append(cluster, 0, 1)
    made.start(0)
    assert made.take(1) == {0: [0]}
    for number in range(1, 5):
        append(cluster, 0, 1)
        assert made.take(1) == {0: [number]}
    assert seen == [(number, number) for number in range(1, 6)]


def test_a_round_costs_one_request(cluster: FakeCluster, bench: MakeBench) -> None:
    """What an answer brings is asked for once, and nothing else is asked beside."""
    made = bench(cluster, max_wait_ms=30_000)
    made.start(0, 2)
    for number in range(10):
        append(cluster, 0, 1)
        assert made.take(1) == {0: [number]}
    wait_until(lambda: len(made.fetches()) == 11, "one for each record, and the one that waits")
    assert {seen.api for seen in cluster.requests} == {API_VERSIONS, METADATA, FETCH}


def test_after_an_answer_that_leaves_nothing_to_read_a_fetcher_pauses(cluster: FakeCluster, bench: MakeBench) -> None:
    """So one answer brings what several would.  What is added ends the pause, and so does the end of the fetcher."""
    made = bench(cluster, pause_ms=600_000, max_wait_ms=30_000)
    append(cluster, 0, 1)
    made.start(0)
    made.take(1)
    append(cluster, 0, 1)
    append(cluster, 2, 1)
    assert len(made.fetches()) == 1, "the second request would have been sent before the record came"
    made.start(2)
    assert made.take(2) == {0: [1], 2: [0]}


@pytest.mark.parametrize("release", ["0.8.2.2", "0.11.0.3", "3.9.1"])
def test_a_fetcher_does_not_pause_while_there_is_more_to_read(release: str, bench: MakeBench) -> None:
    cluster = FakeCluster(release=release)
    cluster.create_topic(TOPIC, 2)
    for number in range(10):
        cluster.append(TOPIC, 0, [bytes(900)])
        if number < 2:
            cluster.append(TOPIC, 1, [bytes(900)])
    made = bench(cluster, pause_ms=600_000, partition_max_bytes=1_000)
    made.start(0, 1)
    assert made.take(12) == {0: list(range(10)), 1: [0, 1]}


def test_a_fetcher_does_not_pause_after_a_large_answer(cluster: FakeCluster, bench: MakeBench) -> None:
    """A limit may have left partitions out of it."""
    made = bench(cluster, pause_ms=600_000, max_bytes=80_000)
    for partition in (0, 2):
        cluster.append(TOPIC, partition, [bytes(70_000)])
    made.start(0, 2)
    assert made.take(2) == {0: [0], 2: [0]}


def test_a_fetcher_does_not_pause_after_an_answer_without_records(cluster: FakeCluster, bench: MakeBench) -> None:
    made = bench(cluster, pause_ms=600_000, max_wait_ms=1)
    made.start(0)
    wait_until(lambda: len(made.fetches()) > 5, "it asks and asks")
    append(cluster, 0, 1)
    assert made.take(1) == {0: [0]}


FETCH_SIDE = ("zkconsumer/kafka/", "zkconsumer/wire/")


def calls_of_rounds(made: Bench, partition: int) -> list[int]:
    """How many calls of Python and of C our code made in each round that brought records of a partition."""
    rounds: list[int] = []
    count, has_records = 0, False

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal count, has_records
        if not threading.current_thread().name.startswith("ConsumerFetcherThread"):
            return
        name = frame.f_code.co_name
        if name == "_round" and event in ("call", "return"):
            if has_records:
                rounds.append(count)
            count, has_records = 0, False
        elif event in ("call", "c_call") and any(part in frame.f_code.co_filename for part in FETCH_SIDE):
            # A connection in memory waits in Python.
            if not any(part in frame.f_code.co_filename for part in ("connection", "transport")):
                count += 1
            has_records = has_records or name == "_process_records"

    threading.setprofile(profile)
    try:
        made.start(partition)
        made.take(1)
        wait_until(lambda: rounds, "a round has ended")
    finally:
        threading.setprofile(None)
    return rounds


@pytest.mark.skipif(
    compiled.RECORD_DECODER is None, reason="the Python reader looks at each message of formats 0 and 1"
)
@pytest.mark.parametrize("codec", [compression.NONE, compression.GZIP])
@pytest.mark.parametrize("release", ["0.8.2.2", "0.10.2.2", "3.9.1"])
def test_the_fetch_side_makes_no_call_for_a_message(release: str, codec: int, bench: MakeBench) -> None:
    cluster = FakeCluster(brokers=1, release=release)
    cluster.create_topic(TOPIC, 2)
    cluster.append(TOPIC, 0, [b"x"], codec=codec)
    cluster.append(TOPIC, 1, [b"x"] * 2_000, codec=codec)
    # The wait is long: a fetch of an earlier bench that ends meanwhile is answered in any thread, also in this one.
    calls_of_rounds(bench(cluster, max_wait_ms=30_000), 0)  # what is made once for a process is there then
    one, many = (calls_of_rounds(bench(cluster, max_wait_ms=30_000), partition) for partition in (0, 1))
    assert min(one) > 20
    assert max(many) <= max(one) + 20


# --- fetch sessions ---------------------------------------------------------------------------------------------


def named(made: Bench, since: int = 0) -> list[list[int]]:
    """Which partitions each fetch request names, whatever its session has from before."""
    bodies = [seen.body for seen in made.cluster.requests if seen.api is FETCH][since:]
    return [[row.partition for topic in body.topics for row in topic.partitions] for body in bodies]


@pytest.fixture
def single() -> FakeCluster:
    """One broker that leads eight partitions."""
    made = FakeCluster()
    made.create_topic(TOPIC, 8)
    return made


def test_a_request_names_the_partitions_that_brought_something_and_an_answer_holds_what_is_new(
    single: FakeCluster, bench: MakeBench
) -> None:
    made = bench(single, max_wait_ms=30_000)
    append(single, 3, 1)
    made.start(*range(8))
    made.take(1)
    for partition in (3, 5):
        append(single, partition, 1)
        made.take(1)
    wait_until(lambda: len(made.fetches()) == 4, "the last one is behind what it brought")
    assert named(made) == [list(range(8)), [3], [3], [5]]
    last = made.fetches()[-1]
    assert sorted(row.partition for topic in last.topics for row in topic.partitions) == list(range(8))
    assert {body.session_id for body in made.fetches()[1:]} == {made.fetches()[1].session_id}
    assert [body.session_epoch for body in made.fetches()] == [0, 1, 2, 3]


@pytest.mark.parametrize("release", ["1.0.2", "3.9.1"])
def test_a_broker_that_keeps_no_session_is_asked_for_everything(release: str, bench: MakeBench) -> None:
    """It had none before 1.1, or has no place for one."""
    cluster = FakeCluster(release="0.11.0.3" if release == "1.0.2" else release, fetch_sessions_max=0)
    cluster.create_topic(TOPIC, 3)
    made = bench(cluster, max_wait_ms=30_000)
    made.start(0, 1, 2)
    for partition in (1, 1, 2):
        append(cluster, partition, 1)
        made.take(1)
    assert {tuple(sorted(each)) for each in named(made)} == {(0, 1, 2)}
    assert {body.session_epoch for body in made.fetches()} == {-1 if release == "1.0.2" else 0}


def test_a_session_that_the_broker_forgets_is_made_anew_in_silence(
    single: FakeCluster, bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    made = bench(single)
    made.start(*range(8))
    append(single, 0, 1)
    assert made.take(1) == {0: [0]}
    for _ in range(3):
        single.drop_fetch_sessions(0)
        since = len(made.fetches())
        for partition in range(8):
            append(single, partition, 1)
        made.take(8)
        assert any(sorted(each) == list(range(8)) for each in named(made, since)), "everything was asked for again"
    assert caplog.messages == []
    assert {seen.api for seen in made.cluster.requests} == {API_VERSIONS, METADATA, FETCH}


def test_a_connection_that_breaks_ends_its_session_at_the_next_request(single: FakeCluster, bench: MakeBench) -> None:
    made = bench(single)
    made.start(*range(8))
    append(single, 0, 1)
    made.take(1)
    wait_until(lambda: made.fetches()[-1].session_epoch > 0, "there is a session")
    session = made.fetches()[-1].session_id
    broken = single.inject(CloseConnection(), api=FETCH)
    wait_until(lambda: broken.hits, "the connection breaks")
    append(single, 0, 1)
    assert made.take(1) == {0: [1]}
    again = [body for body in made.fetches() if body.session_epoch == 0][1]
    assert again.session_id == session


def test_what_has_no_room_leaves_the_session_and_comes_back(single: FakeCluster, bench: MakeBench) -> None:
    made = bench(single, streams=2, chunks_max=1)
    made.start(0, 1, stream=0)
    made.start(2, 3, stream=1)
    for number in range(2):
        append(single, 0, 1)
        wait_until(lambda number=number: len(made.queues[0]) > number, "a chunk arrives")
    append(single, 2, 1)
    assert made.take(1, stream=1) == {2: [0]}

    def asked() -> list[int]:
        return sorted(row.partition for topic in made.fetches()[-1].topics for row in topic.partitions)

    wait_until(lambda: asked() == [2, 3], "the queue of stream 0 is full")
    gone = [body.forgotten_topics_data for body in made.fetches() if body.forgotten_topics_data]
    assert [(topic.topic, sorted(topic.partitions)) for topic in gone[0]] == [(TOPIC, [0, 1])]
    assert made.take(2, stream=0) == {0: [0, 1]}
    wait_until(lambda: asked() == [0, 1, 2, 3], "it has room")


def test_an_answer_without_news_of_a_partition_is_an_answer_for_it(single: FakeCluster, bench: MakeBench) -> None:
    """The lag of a partition that was read to its end is known as long as its broker answers."""
    made = bench(single, max_wait_ms=5)
    infos = made.start(0, 1)
    append(single, 0, 1)
    made.take(1)
    wait_until(lambda: infos[1].last_response_ms, "it was answered for")
    before = infos[1].last_response_ms
    wait_until(lambda: infos[1].last_response_ms > before, "and again")
    assert [info.high_watermark for info in infos] == [1, 0]
    assert [] in named(made), "though answers say nothing of it"
    infos[1].invalidate()
    made.manager.wake()
    wait_until(lambda: infos[1].last_response is None, "nobody asks for it any more")
    left_at_ms = infos[1].last_response_ms
    wait_until(lambda: infos[0].last_response_ms > left_at_ms, "answers go on")
    assert infos[1].last_response_ms == left_at_ms


def test_another_ownership_of_a_partition_has_what_its_session_knows(single: FakeCluster, bench: MakeBench) -> None:
    """The broker has told the high watermark, and does not tell it again."""
    made = bench(single, max_wait_ms=5)
    append(single, 0, 3)
    [old] = made.start(0)
    made.take(3)
    wait_until(lambda: old.last_response_ms, "it is read")
    old.invalidate()
    [new] = made.start(0, offset=3)
    wait_until(lambda: new.last_response_ms, "it is read by its new owner")
    assert new.high_watermark == 3


# --- full queues ------------------------------------------------------------------------------------------------


def test_a_full_queue_of_one_stream_does_not_stop_the_others(cluster: FakeCluster, bench: MakeBench) -> None:
    """Head-of-line blocking of the original.  While something is left out, a request waits only shortly."""
    made = bench(cluster, streams=2, chunks_max=2, max_wait_ms=30_000)
    made.start(0, stream=0)
    made.start(2, stream=1)
    for number in range(3):
        append(cluster, 0, 1)
        wait_until(lambda number=number: len(made.queues[0]) > number, "a chunk arrives")
    wait_until(lambda: made.fetches()[-1].max_wait_ms == FULL_QUEUE_WAIT_MS, "the full one is left out")
    for number in range(5):
        append(cluster, 2, 1)
        assert made.take(1, stream=1) == {2: [number]}
    rows = [row.partition for topic in made.fetches()[-1].topics for row in topic.partitions]
    assert rows == [2]
    end = cluster.log_end(TOPIC, 0)
    assert made.take(end, stream=0) == {0: list(range(end))}
    append(cluster, 0, 1)
    assert made.take(1, stream=0) == {0: [end]}
    wait_until(lambda: made.fetches()[-1].max_wait_ms == 30_000, "nothing is left out any more")


def test_the_chunks_queued_are_bounded_and_nothing_is_lost_or_reordered(bench: MakeBench) -> None:
    """The limit is queued.max.message.chunks a stream, and two answers beyond, however many partitions it reads."""
    cluster = FakeCluster(brokers=2)
    cluster.create_topic(TOPIC, 20)
    made = bench(cluster, streams=2, chunks_max=2, partition_max_bytes=200)
    for partition in range(20):
        for _ in range(20):
            append(cluster, partition, 1)
    for partition in range(20):
        made.start(partition, stream=partition % 2)
    found: dict[int, list[int]] = {}
    for _ in range(200):
        for stream in range(2):
            assert len(made.queues[stream]) < 2 + 2 * 2 * 5, "two answers of each broker, about five partitions each"
            for partition, offsets in made.take(1, stream).items():
                found.setdefault(partition, []).extend(offsets)
    assert dict(sorted(found.items())) == {partition: list(range(20)) for partition in range(20)}


def test_what_waits_for_room_is_not_lost_when_its_fetcher_gives_up(bench: MakeBench) -> None:
    """The queue was full, and in the same round the broker died over another partition's reset."""
    cluster = FakeCluster(brokers=2)
    cluster.create_topic(TOPIC, 3, leaders=dict.fromkeys(range(3), 0))
    made = bench(cluster, chunks_max=1, reset=OffsetResetStrategy.EARLIEST)
    held = cluster.inject(Hold(), api=LIST_OFFSETS, broker_id=0)
    for partition in range(3):
        append(cluster, partition, 3)
    offsets = {0: 0, 1: 0, 2: 10_000}
    made.manager.start(
        PartitionTopicInfo(TopicPartition(TOPIC, partition), f"{NAME}-0", made.queues[0], offset=offset)
        for partition, offset in offsets.items()
    )
    wait_until(lambda: held.hits, "partition 2 is reset, and the chunks of 0 and 1 are here")
    for partition in range(3):
        cluster.move_leader(TOPIC, partition, 1)
    cluster.stop_broker(0)
    wait_until(lambda: f"ConsumerFetcherThread-{NAME}-0-0" not in live_threads(), "its fetcher ends")
    assert made.take(9) == {0: [0, 1, 2], 1: [0, 1, 2], 2: [0, 1, 2]}


def test_a_stream_that_has_ended_is_not_fetched_for(cluster: FakeCluster, bench: MakeBench) -> None:
    made = bench(cluster, streams=2)
    [info] = made.start(0, stream=0)
    made.start(2, stream=1)
    append(cluster, 0, 1)
    append(cluster, 2, 1)
    made.take(1, stream=0)
    made.take(1, stream=1)
    made.queues[0].end(ShutdownMarker())
    made.manager.wake()
    wait_until(lambda: len(made.fetches()[-1].topics[0].partitions) == 1, "only the other is asked for")
    append(cluster, 0, 5)
    append(cluster, 2, 1)
    made.take(1, stream=1)
    assert info.fetch_offset == 1


@pytest.mark.parametrize("release", ["0.8.2.2", "0.10.2.2", "3.9.1"])
def test_a_limit_for_the_whole_answer_hits_each_partition_in_turn(release: str, bench: MakeBench) -> None:
    """With more to read than fits, those at the end of the request must not wait until the others have caught up."""
    cluster = FakeCluster(release=release)
    cluster.create_topic(TOPIC, 6)
    for partition in range(6):
        for _ in range(40):
            cluster.append(TOPIC, partition, [bytes(900)])
    made = bench(cluster, chunks_max=100, partition_max_bytes=1_000, max_bytes=2_500)
    made.start(*range(6))
    counts = {partition: len(offsets) for partition, offsets in made.take(90).items()}
    assert set(counts) == set(range(6))
    assert max(counts.values()) - min(counts.values()) <= 3


# --- brokers that do not behave ---------------------------------------------------------------------------------

NONSENSE: dict[str, Fault] = {
    "a length of -1": Garbage(b"\xff\xff\xff\xff"),
    "a length of 2^31-1": Garbage(b"\x7f\xff\xff\xff" + bytes(100)),
    "a frame that is too short": Garbage(b"\0\0\0\x02\0\0"),
    "noise": Garbage(bytes(range(256))),
    "a page": Garbage(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "another correlation id": WrongCorrelationId(),
    "nothing, and the end": CloseConnection(),
    "half a frame, and the end": CloseConnection(after_bytes=30),
}


@pytest.mark.parametrize("fault", NONSENSE.values(), ids=NONSENSE)
@pytest.mark.parametrize("api", [FETCH, METADATA, LIST_OFFSETS, API_VERSIONS], ids=lambda api: api.name)
def test_nonsense_from_a_broker_is_survived_and_loses_nothing(
    api: Api[Any, Any], fault: Fault, cluster: FakeCluster, bench: MakeBench
) -> None:
    nonsense = cluster.inject(fault, api=api, times=2)
    made = bench(cluster, reset=OffsetResetStrategy.EARLIEST, socket_timeout_ms=200)
    for partition in range(2):
        append(cluster, partition, 3)
    made.start(0, 1, offset=-1)
    assert made.take(6) == {0: [0, 1, 2], 1: [0, 1, 2]}
    assert nonsense.hits == 2


def test_an_error_for_the_whole_fetch_is_survived(
    cluster: FakeCluster, bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bench(cluster)
    real = fetcher_thread.ConsumerFetcherThread._handle_response
    failures = [KafkaException("a broker refused the fetch"), KafkaException("and again")]

    def refused(*given: Any) -> None:
        if failures:
            raise failures.pop()
        real(*given)

    monkeypatch.setattr(fetcher_thread.ConsumerFetcherThread, "_handle_response", refused)
    append(cluster, 0, 1)
    made.start(0)
    assert made.take(1) == {0: [0]}


# --- the end ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", [FETCH, METADATA, LIST_OFFSETS, API_VERSIONS], ids=lambda api: api.name)
def test_a_manager_ends_at_once_though_a_broker_never_answers(
    api: Api[Any, Any], cluster: FakeCluster, bench: MakeBench
) -> None:
    held = cluster.inject(Hold(), api=api, times=None)
    made = bench(cluster)
    made.start(0, 1, offset=-1)
    wait_until(lambda: held.hits, "a broker is asked")
    started_ms = SYSTEM_CLOCK.now_ms()
    assert made.manager.close(1_500)
    assert SYSTEM_CLOCK.now_ms() - started_ms < 1_000
    assert live_threads() == []


def test_a_manager_that_is_closed_starts_nothing_any_more(cluster: FakeCluster, bench: MakeBench) -> None:
    made = bench(cluster)
    assert made.manager.close(1_500)
    made.start(0)
    assert live_threads() == []


def test_closing_over_and_over_at_any_moment_leaves_no_thread(cluster: FakeCluster, bench: MakeBench) -> None:
    for asked in range(30):
        made = bench(cluster)
        until = len(cluster.requests) + asked % 10
        made.start(0, 1, 2, 3, offset=-1)
        wait_until(lambda until=until: len(cluster.requests) >= until, "some questions were asked")
        assert made.manager.close(1_500)
        assert live_threads() == []


def test_a_connector_closes_in_time_with_everything_black_holed(make_world: MakeWorld, connect: MakeConnector) -> None:
    """L5: no broker answers, and ZooKeeper is gone while the leader finder waits for it."""
    world = make_world(brokers=2)
    world.create_topic(TOPIC, 4)
    connector = connect(on=world, consumer_id="a", rebalance_drain_timeout_ms=100)
    [stream] = connector.create_message_streams({TOPIC: 1})[TOPIC]
    world.cluster.append(TOPIC, 0, [b"v"])
    take(stream, 1)
    world.cluster.inject(Hold(), times=None)
    world.zookeeper.disconnect(world.store_of(connector))
    world.cluster.stop_broker(0)
    started_ms = SYSTEM_CLOCK.now_ms()
    connector.close()
    assert SYSTEM_CLOCK.now_ms() - started_ms < 10_000
    assert our_threads() == []


def test_a_connector_closes_in_time_though_zookeeper_takes_requests_and_never_answers(
    make_world: MakeWorld, connect: MakeConnector
) -> None:
    world = make_world(brokers=1)
    world.create_topic(TOPIC, 2)
    world.cluster.inject(Delay(60_000), times=None)
    connector = connect(on=world, consumer_id="a", rebalance_drain_timeout_ms=100)
    connector.create_message_streams({TOPIC: 1})
    world.zookeeper.hold("requests", world.store_of(connector))
    started_ms = SYSTEM_CLOCK.now_ms()
    connector.close()
    assert SYSTEM_CLOCK.now_ms() - started_ms < 10_000
    assert our_threads() == []


def test_a_dead_fetcher_thread_ends_every_stream_with_its_error(
    world: Any, connect: MakeConnector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Row 36: never a silent hang, and no record of a chunk that was open; commits say so, too."""
    world.create_topic(TOPIC, 4)
    connector = connect(consumer_id="a")
    streams = connector.create_message_streams({TOPIC: 2})[TOPIC]
    world.cluster.append(TOPIC, 0, [b"0", b"1", b"2"])
    assert take(streams[0], 1)[0].offset == 0

    def dies(*_: object) -> None:
        raise MemoryError("not enough")

    waiting = run_in_thread(lambda: next(streams[1].iterator()))
    monkeypatch.setattr(fetcher_thread.ConsumerFetcherThread, "_process_partition", dies)
    world.cluster.append(TOPIC, 1, [b"v"])
    wait_until(lambda: any("thread-died" in line for line in caplog.messages), "the thread dies")
    for reading in (waiting, streams[0].iterator().__next__, streams[0].iterator().has_next):
        with pytest.raises(ThreadFailedError, match="MemoryError") as raised:
            reading()
        assert isinstance(raised.value.__cause__, MemoryError)
    for refused in (connector.commit_offsets, lambda: connector.create_message_streams({TOPIC: 1})):
        with pytest.raises(ThreadFailedError):
            refused()


def test_a_commit_that_is_under_way_when_a_thread_dies_does_not_return_as_if_it_were_done(
    world: Any, connect: MakeConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create_topic(TOPIC, 1)
    connector = connect(consumer_id="a")
    [stream] = connector.create_message_streams({TOPIC: 1})[TOPIC]
    world.cluster.append(TOPIC, 0, [b"0"])
    take(stream, 1)

    def dies(*_: object) -> None:
        raise MemoryError("not enough")

    world.zookeeper.hold("requests", world.store_of(connector))
    committing = run_in_thread(lambda: connector.commit_offsets({TopicPartition(TOPIC, 0): 1}))
    monkeypatch.setattr(fetcher_thread.ConsumerFetcherThread, "_process_partition", dies)
    world.cluster.append(TOPIC, 0, [b"1"])
    with pytest.raises(ThreadFailedError):
        committing()
    with pytest.raises(ThreadFailedError):
        next(stream.iterator())
    world.zookeeper.release("requests", world.store_of(connector))


def test_a_stream_says_when_nothing_comes(cluster: FakeCluster, bench: MakeBench) -> None:
    made = bench(cluster)
    made.start(0)
    lease = Lease(SYSTEM_CLOCK)
    impatient: Stream = KafkaStream(NAME, made.queues[0], lease, timeout_ms=SOON_MS)
    with pytest.raises(ConsumerTimeoutException):
        next(impatient.iterator())
