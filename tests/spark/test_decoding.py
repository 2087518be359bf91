"""Every format, codec and kind of time, from real brokers: what librdkafka reads is what comes out of Arrow."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Theirs
from confluent_kafka.admin import AdminClient

from bridge.spark.decode.cluster_connections import ClusterConnectionPool
from bridge.spark.decode.offset_ranges import DataLost
from bridge.spark.decode.range_partition import read_partition
from tests.sandbox_fixtures import Clusters as Servers
from tests.sandbox_fixtures import require_releases
from tests.spark.reference_reader import QUICK, TIMEOUT_S, ours, produce, task, theirs
from zkconsumer.testing.sandbox import Sandbox, wait_until, zookeeper_release

pytestmark = pytest.mark.real

RECORDS = 200
CODECS = ["none", "gzip", "snappy", "lz4"]
SEED = 7

FORMATS = {0: "0.9.0", 1: "0.10.2", 2: "1.1"}
TIMES = {False: "CreateTime", True: "LogAppendTime"}


@pytest.fixture(scope="module")
def kept() -> Iterator[ClusterConnectionPool]:
    """Connections are kept over the tests, as in a worker."""
    made = ClusterConnectionPool()
    yield made
    made.close()


def compare(
    sandbox: Sandbox, topic: str, partition: int, number: int, kept: ClusterConnectionPool, **settings: object
) -> set[int]:
    """Whole, and a few ranges that begin and end anywhere; gives the kinds of time that were there."""
    expected = theirs(sandbox.bootstrap, topic, partition, number, **settings)
    end = expected[-1][0] + 1
    assert ours(task(sandbox.bootstrap, topic, partition, 0, end), kept) == expected
    some = random.Random(SEED)
    for _ in range(3):
        low, high = sorted(some.sample(range(end + 1), 2))
        part = ours(task(sandbox.bootstrap, topic, partition, low, high), kept)
        assert part == [row for row in expected if low <= row[0] < high]
    return {row[1] for row in expected}


@pytest.mark.parametrize(("magic", "append"), [(0, False), (1, False), (1, True), (2, False), (2, True)])
def test_a_broker_that_keeps_every_format(
    shared_cluster: Sandbox, fresh_name: str, kept: ClusterConnectionPool, magic: int, append: bool
) -> None:
    config = {"message.format.version": FORMATS[magic], "message.timestamp.type": TIMES[append]}
    shared_cluster.create_topic(fresh_name, len(CODECS) + 1, config=config)
    for partition, codec in enumerate(CODECS):
        produce(shared_cluster.bootstrap, fresh_name, partition, codec, RECORDS, with_headers=magic == 2)
    shared_cluster.produce(fresh_name, len(CODECS), RECORDS, codec="snappy")
    for partition in range(len(CODECS) + 1):
        assert compare(shared_cluster, fresh_name, partition, RECORDS, kept) == {-1 if magic == 0 else int(append)}


def test_what_was_deleted_is_data_lost_or_passed_over(
    shared_cluster: Sandbox, fresh_name: str, kept: ClusterConnectionPool, caplog: pytest.LogCaptureFixture
) -> None:
    bootstrap = shared_cluster.bootstrap
    shared_cluster.create_topic(fresh_name, 1)
    shared_cluster.produce(fresh_name, 0, RECORDS)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [deleted] = admin.delete_records([Theirs(fresh_name, 0, 50)]).values()
    assert deleted.result(TIMEOUT_S).low_watermark == 50
    with pytest.raises(DataLost, match="offsets 20 to 49 must be read, but the log contains 50 to 199"):
        ours(task(bootstrap, fresh_name, 0, 20, 100), kept)
    lenient = replace(QUICK, fail_on_data_loss=False, give_up_ms=1_000)
    with caplog.at_level("WARNING"):
        rows = ours(task(bootstrap, fresh_name, 0, 20, RECORDS + 10, lenient), kept)
    assert [row[0] for row in rows] == list(range(50, RECORDS))
    assert [message for message in caplog.messages if message.startswith("data-lost")] == [
        f"data-lost partition={fresh_name}/0 first=20 end=50 lost_offsets=30",
        f"data-lost partition={fresh_name}/0 first={RECORDS} end={RECORDS + 10} lost_offsets=10",
    ]


# --- nightly --------------------------------------------------------------------------------------------------------


ASSUMED = {"0.8.2.2": "0.8.2.2", "0.9.0.1": "0.9.0.1"}
"""Releases that librdkafka cannot ask what they are."""

RELEASES = ["0.8.2.2", "0.9.0.1", "0.10.2.2", "0.11.0.3", "1.1.1", "2.0.1", "3.9.1", "4.1.1"]


@contextmanager
def cluster(release: str, servers: Servers) -> Iterator[Sandbox]:
    if release != "4.1.1":
        yield servers.get(release, "3.4.6" if release.startswith("0.8") else "3.8")
        return
    require_releases(release)
    with Sandbox() as made:
        made.start_kraft_broker(release)
        yield made


@pytest.mark.nightly
@pytest.mark.parametrize("release", RELEASES)
def test_brokers_of_every_age(release: str, clusters: Servers, fresh_name: str, kept: ClusterConnectionPool) -> None:
    fallback = {"api.version.request": False, "broker.version.fallback": ASSUMED[release]} if release in ASSUMED else {}
    codecs = [*CODECS[: 3 if release == "0.8.2.2" else 4], *(["zstd"] if release in ("3.9.1", "4.1.1") else [])]
    has_headers = release not in ("0.8.2.2", "0.9.0.1", "0.10.2.2")
    with cluster(release, clusters) as sandbox:
        sandbox.create_topic(fresh_name, len(codecs) + 1)
        for partition, codec in enumerate(codecs):
            produce(sandbox.bootstrap, fresh_name, partition, codec, RECORDS, with_headers=has_headers, **fallback)
        sandbox.produce(fresh_name, len(codecs), RECORDS, codec="snappy")
        for partition in range(len(codecs) + 1):
            compare(sandbox, fresh_name, partition, RECORDS, kept, **fallback)


@pytest.mark.nightly
@pytest.mark.parametrize("release", RELEASES[:-1])
def test_a_broker_that_dies_in_the_middle_of_a_range(
    release: str, clusters: Servers, fresh_name: str, kept: ClusterConnectionPool
) -> None:
    with cluster(release, clusters) as sandbox:
        sandbox.create_topic(fresh_name, 1)
        sandbox.produce(fresh_name, 0, 5_000, size=100)
        small = replace(QUICK, fetch_bytes=64 * 1024)
        rows = read_partition(task(sandbox.bootstrap, fresh_name, 0, 0, 5_000, small), kept)
        seen = next(rows).column("offset").to_pylist()
        assert len(seen) < 5_000
        sandbox.brokers[0].restart(kill=True)
        for batch in rows:
            seen += batch.column("offset").to_pylist()
    assert seen == list(range(5_000))


COMPACTED_RECORDS, COMPACTED_KEYS = 3_000, 300
CLEANED_WITHIN_MS = 60_000

CLEANS = {
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": "200",
    "log.segment.delete.delay.ms": "200",
}


def active_segment(folder: Path) -> int:
    """The offset at which the last segment of a log begins, which no cleaner touches."""
    return max(int(file.stem) for file in folder.glob("*.log"))


def cleaned_up_to(folder: Path) -> int:
    """Up to which offset the cleaner has been through a log, as it notes for itself behind every run."""
    noted = folder.parent / "cleaner-offset-checkpoint"
    topic, _, partition = folder.name.rpartition("-")
    lines = noted.read_text().splitlines() if noted.exists() else []
    return max((int(line.split()[2]) for line in lines if line.split()[:2] == [topic, partition]), default=0)


def is_clean(folder: Path) -> bool:
    """Nothing is left to the cleaner, and nothing of what it took away stands there."""
    is_through = cleaned_up_to(folder) == active_segment(folder) > 0
    return is_through and not any(file.suffix in (".cleaned", ".swap", ".deleted") for file in folder.iterdir())


@pytest.mark.nightly
@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("release", ["0.8.2.2", "0.10.2.2", "1.1.1", "3.9.1"])
def test_gaps_that_compaction_left(release: str, codec: str, fresh_name: str, kept: ClusterConnectionPool) -> None:
    """What the broker kept, which its rule tells, is what librdkafka finds, and what comes out of ranges with gaps."""
    require_releases(release)
    fallback = {"api.version.request": False, "broker.version.fallback": ASSUMED[release]} if release in ASSUMED else {}
    with Sandbox() as sandbox:
        sandbox.start_zookeeper("3.4.6" if release.startswith("0.8") else "3.8")
        sandbox.start_broker(release, chroot="/kafka", settings=CLEANS)
        config = {"cleanup.policy": "compact", "segment.bytes": "20000", "min.cleanable.dirty.ratio": "0.01"}
        sandbox.create_topic(fresh_name, 1, config=config)
        settings = {"compression.type": codec, "linger.ms": 20, "batch.num.messages": 40, **fallback}
        producer = Producer({"bootstrap.servers": sandbox.bootstrap, **settings})
        some = random.Random(SEED)
        keys = [b"key-%d" % some.randrange(COMPACTED_KEYS) for _ in range(COMPACTED_RECORDS)]
        for index, key in enumerate(keys):
            producer.produce(fresh_name, some.randbytes(index % 90), key, 0)
        assert not producer.flush(TIMEOUT_S)
        folder = sandbox.run.root / sandbox.brokers[0].name / "data" / f"{fresh_name}-0"
        wait_until(lambda: is_clean(folder), "the cleaner is through", CLEANED_WITHIN_MS)

        untouched = active_segment(folder)
        newest = {key: offset for offset, key in enumerate(keys[:untouched])}
        offsets = [*sorted(newest.values()), *range(untouched, COMPACTED_RECORDS)]
        assert len(offsets) < COMPACTED_RECORDS // 2, "there are gaps"
        expected = theirs(sandbox.bootstrap, fresh_name, 0, len(offsets), **fallback)
        assert [row[0] for row in expected] == offsets
        gap = next(offset for offset in range(COMPACTED_RECORDS) if offset not in offsets)
        ranges = [(0, COMPACTED_RECORDS), (gap, gap + 1), (1, 500), (gap, untouched), (untouched, COMPACTED_RECORDS)]
        for first, end in [*ranges, *(sorted(some.sample(range(COMPACTED_RECORDS), 2)) for _ in range(10))]:
            found = ours(task(sandbox.bootstrap, fresh_name, 0, first, end), kept)
            assert found == [row for row in expected if first <= row[0] < end], (first, end)


@pytest.mark.nightly
def test_a_leader_that_goes_away_for_good(fresh_name: str, kept: ClusterConnectionPool) -> None:
    require_releases("1.1.1", zookeeper_release("3.8"))
    with Sandbox() as sandbox:
        sandbox.start_zookeeper()
        sandbox.start_broker("1.1.1", chroot="/kafka")
        sandbox.start_broker("1.1.1", chroot="/kafka")
        sandbox.create_topic(fresh_name, replicas={0: [0, 1]})
        sandbox.produce(fresh_name, 0, 5_000, size=100)
        small = replace(QUICK, fetch_bytes=64 * 1024)
        rows = read_partition(task(sandbox.bootstrap, fresh_name, 0, 0, 5_000, small), kept)
        seen = next(rows).column("offset").to_pylist()
        sandbox.brokers[0].stop()
        for batch in rows:
            seen += batch.column("offset").to_pylist()
    assert seen == list(range(5_000))
