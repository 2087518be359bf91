"""The brokers that the conformance tests run against: fake ones of every release, and real ones where Java is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest
from kafka import KafkaConsumer

from bridge.coordinator.release_features import RELEASES, BrokerRelease
from bridge.testing.fake_cluster import FakeCluster
from tests.sandbox_fixtures import require_releases
from zkconsumer.kafka.broker_connection import BlockingConnection, Connection, ConnectionFactory
from zkconsumer.kafka.supported_versions import SupportedVersions
from zkconsumer.kafka.version_negotiation import negotiate
from zkconsumer.testing.fake_zookeeper import FakeZooKeeper
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.testing.sandbox.artifacts import ARTIFACT_SETS
from zkconsumer.testing.sandbox.waiting import wait_until
from zkconsumer.wire import compression
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.records import Record
from zkconsumer.wire.schemas import FETCH, PRODUCE, Api
from zkconsumer.wire.schemas.fetch import FetchPartition, FetchPartitionResponse, FetchRequest, FetchTopic
from zkconsumer.wire.schemas.produce import ProducePartition, ProduceRequest, ProduceTopic

TIMEOUT_MS = 10_000
REAL_ALWAYS = ("0.8.2.2", "0.10.2.2", "1.1.1", "3.9.1")
ZOOKEEPER_MODE_BEFORE = (4,)
WITHOUT_PRODUCER = ("0.8.1.1",)
"""Releases without the producer that the sandbox drives (it came with 0.8.2)."""

COMPACTS = {"log.cleaner.enable": "true", "log.cleaner.backoff.ms": "200"}
"""Compacted topics are compacted soon, also by 0.8.2, which otherwise never does it."""

PLENTY = 1_000_000

_numbers = itertools.count()


class Topics(Protocol):
    """What fake and real clusters are asked to do."""

    def create(self, topic: str) -> None:
        """Make a topic of one partition."""

    def produce(self, topic: str, values: Sequence[bytes | None], codec: str) -> None:
        """Append to its partition 0; a real producer may make several batches of it."""

    def znode(self, path: str) -> bytes | None:
        """The data of a znode."""

    def modern_member(self, group: str, topic: str) -> AbstractContextManager[object]:
        """A Java consumer that is a member of the group inside the ``with`` block."""


@dataclass(slots=True)
class BrokerUnderTest:
    """One broker that leads everything, and a way to put records into it."""

    release: BrokerRelease
    connect: ConnectionFactory
    host: str
    port: int
    topics: Topics
    _ranges: SupportedVersions | None = None
    _connections: list[Connection] = field(default_factory=list)

    def connection(self) -> Connection:
        """A connection of one's own; closed after the last test."""
        made = self.connect(self.host, self.port, client_id="conformance")
        self._connections.append(made)
        return made

    def close(self) -> None:
        """Close what ``connection`` made."""
        for made in self._connections:
            made.close()

    @property
    def ranges(self) -> SupportedVersions:
        """What the broker speaks, asked once."""
        if self._ranges is None:
            self._ranges = negotiate(self.connection(), TIMEOUT_MS)
        return self._ranges

    def topic(self, *values: bytes | None, codec: str = "none") -> str:
        """A fresh topic with these records in its only partition."""
        name = f"conformance-{next(_numbers)}"
        self.topics.create(name)
        if values:
            self.topics.produce(name, values, codec)
        return name


class FakeTopics:
    """On a fake cluster."""

    def __init__(self, cluster: FakeCluster, zookeeper: FakeZooKeeper) -> None:
        self._cluster = cluster
        self._zookeeper = zookeeper

    def create(self, topic: str) -> None:
        self._cluster.create_topic(topic)

    def znode(self, path: str) -> bytes | None:
        return self._zookeeper.data(path)

    @contextmanager
    def modern_member(self, group: str, topic: str) -> Iterator[None]:
        self._cluster.set_coordinator_members(group, True)
        yield
        self._cluster.set_coordinator_members(group, False)

    def produce(self, topic: str, values: Sequence[bytes | None], codec: str) -> None:
        numbers = {name: number for number, name in compression.CODEC_NAMES.items()}
        self._cluster.append(topic, 0, values, codec=numbers[codec])


class RealTopics:
    """On a real one, by its own producer."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    def create(self, topic: str) -> None:
        self.sandbox.create_topic(topic, 1)

    def znode(self, path: str) -> bytes | None:
        return self.sandbox.admin.get(path)

    @contextmanager
    def modern_member(self, group: str, topic: str) -> Iterator[None]:
        # kafka-python waits half a minute for the answer of a broker that cannot be asked what it speaks.
        cannot_say = not RELEASES[self.sandbox.brokers[0].release].has_api_versions
        member = KafkaConsumer(
            bootstrap_servers=self.sandbox.bootstrap,
            group_id=group,
            enable_auto_commit=False,
            api_version=(0, 9) if cannot_say else None,
        )
        try:
            # A topic that it does not know yet is left out of the assignment.
            wait_until(lambda: member.partitions_for_topic(topic), f"it knows {topic}", TIMEOUT_MS)
            member.subscribe([topic])
            wait_until(lambda: member.poll(100) is not None and bool(member.assignment()), "it has joined", TIMEOUT_MS)
            yield
        finally:
            member.close()

    def produce(self, topic: str, values: Sequence[bytes | None], codec: str) -> None:
        if self.sandbox.brokers[0].release in WITHOUT_PRODUCER:
            self._produce_by_hand(topic, values, codec)
        else:
            self.sandbox.produce(topic, 0, values, codec=codec)

    def _produce_by_hand(self, topic: str, values: Sequence[bytes | None], codec: str) -> None:
        host, port = self.sandbox.brokers[0].address.split(":")
        numbers = {name: number for number, name in compression.CODEC_NAMES.items()}
        records = [Record(offset, -1, -1, None, value) for offset, value in enumerate(values)]
        row = ProducePartition(index=0, records=build_record_set(records, 0, numbers[codec]))
        body = ProduceRequest(
            acks=1, timeout_ms=TIMEOUT_MS, topic_data=[ProduceTopic(name=topic, partition_data=[row])]
        )
        connection = BlockingConnection(host, int(port))
        try:
            wait_until(lambda: _is_taken(connection, body), f"{topic} has a leader that takes records", TIMEOUT_MS)
        finally:
            connection.close()


def _is_taken(connection: Connection, body: ProduceRequest) -> bool:
    response = connection.request(PRODUCE, 0, body, TIMEOUT_MS)
    return response.responses[0].partition_responses[0].error_code == 0


@contextmanager
def fake(release: str) -> Iterator[BrokerUnderTest]:
    """A fake broker without sockets."""
    zookeeper = FakeZooKeeper()
    cluster = FakeCluster(release=release, zookeeper=zookeeper)
    _, host, port = cluster.address(0)
    yield BrokerUnderTest(RELEASES[release], cluster.connect, host, port, FakeTopics(cluster, zookeeper))


@contextmanager
def real(release: str) -> Iterator[BrokerUnderTest]:
    """A real broker on this machine; the test is skipped (in CI: fails) where Java and Maven are missing."""
    require_releases(release)
    with Sandbox() as sandbox:
        if RELEASES[release].version < ZOOKEEPER_MODE_BEFORE:
            sandbox.start_zookeeper("3.8" if RELEASES[release].version >= (0, 9) else "3.4.6")
            host, port = sandbox.start_broker(release, settings=COMPACTS).address.split(":")
        else:
            host, port = sandbox.start_kraft_broker(release).address.split(":")
        yield BrokerUnderTest(RELEASES[release], BlockingConnection, host, int(port), RealTopics(sandbox))


def real_one(release: str, *marks: pytest.MarkDecorator) -> object:
    """The parameter of ``broker_under_test`` for a real broker; for tests that no fake one can pass."""
    return pytest.param((real, release), id=f"real-{release}", marks=[pytest.mark.real, *marks])


@pytest.fixture(
    scope="session",
    params=[
        *(pytest.param((fake, release), id=f"fake-{release}") for release in RELEASES),
        *(real_one(each) for each in RELEASES if each in REAL_ALWAYS),
        *(
            real_one(each, pytest.mark.nightly)
            for each in RELEASES
            if each in ARTIFACT_SETS and each not in REAL_ALWAYS
        ),
    ],
)
def broker_under_test(request: pytest.FixtureRequest) -> Iterator[BrokerUnderTest]:
    """Each broker in turn, for all tests of this folder that take it."""
    make, release = request.param
    with make(release) as broker:
        yield broker
        broker.close()


# --- fetching -------------------------------------------------------------------------------------------------------


def versions_of(broker: BrokerUnderTest, api: Api[Any, Any]) -> list[int]:
    """The versions that both sides speak."""
    return [v for v in range(api.lowest, api.client_highest + 1) if broker.ranges.supports(api, v)]


def asking(topic: str, offset: int = 0, bytes_max: int = PLENTY) -> FetchTopic:
    """Partition 0, for a Fetch request."""
    row = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=bytes_max)
    return FetchTopic(topic=topic, partitions=[row])


def fetched(
    connection: Connection, version: int, *topics: FetchTopic, wait_ms: int = 1, **more: Any
) -> list[FetchPartitionResponse]:
    """The answers of the partitions, in order; ``more``: other fields of the request."""
    body = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=list(topics), **more)
    responses = connection.request(FETCH, version, body, TIMEOUT_MS).responses
    return [partition for topic in responses for partition in topic.partitions]
