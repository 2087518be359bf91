"""``SimpleConsumer`` on real brokers: the cases of the fakes, and what only a real one does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import CliRunner

from bridge.coordinator.release_features import RELEASES
from tests.conformance.brokers_under_test import BrokerUnderTest, RealTopics, real
from tests.sandbox_fixtures import Clusters
from tests.simple_consumer_cases import CASES, TIMEOUT_MS, consumer_of, what_was_produced_in_every_version
from zkconsumer import javaapi
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.cli.main import main
from zkconsumer.errors import BrokerUnreachable
from zkconsumer.kafka.broker_connection import BlockingConnection
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.simple_consumer import SimpleConsumer
from zkconsumer.simple_requests import (
    FetchRequestBuilder,
    OffsetCommitRequest,
    OffsetFetchRequest,
    TopicMetadataRequest,
)
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths

pytestmark = pytest.mark.real

SHORT_MS = 300
BEFORE_AND_AFTER = ["0.8.2.2", "0.9.0.1", "0.10.2.2", "3.9.1", "4.1.1"]


def broker_of(sandbox: Sandbox) -> BrokerUnderTest:
    host, port = sandbox.brokers[0].address.split(":")
    release = RELEASES[sandbox.brokers[0].release]
    return BrokerUnderTest(release, BlockingConnection, host, int(port), RealTopics(sandbox))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_simple_consumer_on_1_1_1(shared_cluster: Sandbox, case: Callable[[BrokerUnderTest], None]) -> None:
    """The cases of PrimitiveApiTest, OffsetCommitTest and LogOffsetTest."""
    case(broker_of(shared_cluster))


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_what_was_produced_comes_back_on_1_1_1(shared_cluster: Sandbox, codec: str) -> None:
    what_was_produced_in_every_version(broker_of(shared_cluster), codec)


def test_the_java_names_read_and_commit_in_zookeeper(shared_cluster: Sandbox, fresh_name: str) -> None:
    """Line by line what old programs do: find the leader, read from an offset, commit where the Java classes do."""
    broker = broker_of(shared_cluster)
    topic = broker.topic(b"one", b"two", codec="gzip")
    seed = javaapi.SimpleConsumer(broker.host, broker.port, TIMEOUT_MS, 64 * 1024, "leaderLookup")
    metadata = seed.send(javaapi.TopicMetadataRequest([topic])).topicsMetadata()[0].partitionsMetadata()[0]
    seed.close()
    leader = metadata.leader()
    assert leader is not None
    consumer = javaapi.SimpleConsumer(leader.host(), leader.port(), TIMEOUT_MS, 64 * 1024, "reader")
    request = javaapi.FetchRequestBuilder().clientId("reader").addFetch(topic, 0, 1, 100_000).build()
    response = consumer.fetch(request)
    assert not response.hasError()
    read = [(m.offset(), m.nextOffset(), m.message().payload()) for m in response.messageSet(topic, 0)]
    assert read == [(0, 1, b"one"), (1, 2, b"two")], "a compressed set comes whole, as it did there"
    at = javaapi.TopicAndPartition(topic, 0)
    stored = {at: javaapi.OffsetAndMetadata(2, "", -1)}
    assert not consumer.commitOffsets(javaapi.OffsetCommitRequest(fresh_name, stored, 0, "reader")).hasError()
    assert shared_cluster.admin.get(paths.offset(fresh_name, TopicPartition(topic, 0))) == b"2"
    fetched = consumer.fetchOffsets(javaapi.OffsetFetchRequest(fresh_name, [at], 0, "reader"))
    assert fetched.offsets()[at].offset == 2
    consumer.close()


def test_a_broker_that_closes_an_idle_connection_goes_unnoticed(shared_cluster: Sandbox) -> None:
    """Any end of the connection will do: here the broker closes it on a request that it cannot read."""
    broker = broker_of(shared_cluster)
    topic = broker.topic(b"a")
    with consumer_of(broker) as consumer:
        consumer.connect()
        with pytest.raises(BrokerUnreachable, match=f"{broker.host}:{broker.port}"):
            consumer.send(TopicMetadataRequest([topic], version=12))
        fetched = consumer.fetch(FetchRequestBuilder().add_fetch(topic, 0, 0, 1000).build())
        assert [record.value for record in fetched.messages(topic, 0)] == [b"a"]


@pytest.mark.parametrize("time", ["-1", "-2"])
def test_log_ends_prints_what_get_offset_shell_prints(shared_cluster: Sandbox, fresh_name: str, time: str) -> None:
    shared_cluster.create_topic(fresh_name, 3)
    for partition, count in ((0, 5), (2, 3)):
        shared_cluster.produce(fresh_name, partition, count)
    words = ["--topic", fresh_name, "--time", time]
    original = shared_cluster.run_tool(
        "1.1.1", "kafka.tools.GetOffsetShell", ["--broker-list", shared_cluster.bootstrap, *words]
    )
    for where in (["--bootstrap-server", shared_cluster.bootstrap], ["--zookeeper", shared_cluster.zookeeper_connect]):
        ours = CliRunner().invoke(main, ["log-ends", *words, *where])
        assert (ours.exit_code, ours.stderr) == (0, "")
        assert ours.stdout.splitlines() == sorted(original.out.splitlines()), original
    assert ours.stdout.splitlines()[0] == f"{fresh_name}:0:{5 if time == '-1' else 0}"


@pytest.mark.nightly
@pytest.mark.parametrize("release", BEFORE_AND_AFTER)
def test_simple_consumers_on_brokers_of_every_age(release: str) -> None:
    with real(release) as broker:
        for case in CASES:
            case(broker)
        for codec in ("none", "gzip", "snappy", "lz4"):
            what_was_produced_in_every_version(broker, codec)
        broker.close()


@pytest.mark.nightly
def test_a_broker_without_zookeeper_that_says_it_speaks_version_0_answers_error_35() -> None:
    """3.9 in KRaft mode advertises version 0 of both, and has nowhere to read or write."""
    with Sandbox() as sandbox:
        sandbox.start_kraft_broker("3.9.1")
        broker = broker_of(sandbox)
        at = TopicPartition(broker.topic(), 0)
        with consumer_of(broker) as consumer:
            refused = consumer.commit_offsets(OffsetCommitRequest("g", {at: OffsetAndMetadata(1)}, storage="zookeeper"))
            assert (refused.version, refused.error_code(at)) == (0, 35)
            fetched = consumer.fetch_offsets(OffsetFetchRequest("g", [at], storage="zookeeper"))
            assert (fetched.version, fetched.offset(at).error.code) == (0, 35)


@pytest.mark.nightly
def test_a_broker_that_was_restarted_goes_unnoticed_and_one_that_hangs_does_not(clusters: Clusters) -> None:
    """The first part is what a reader sees of ServerShutdownTest."""
    sandbox = clusters.get("1.1.1")
    broker = broker_of(sandbox)
    topic = broker.topic(b"a", b"b")
    request = FetchRequestBuilder().add_fetch(topic, 0, 0, 1000)
    with SimpleConsumer(broker.host, broker.port, TIMEOUT_MS) as consumer:
        assert len(list(consumer.fetch(request.build()).messages(topic, 0))) == 2
        sandbox.brokers[0].stop()
        sandbox.brokers[0].start()
        sandbox.wait_leaders(topic, 1)
        again = consumer.fetch(request.add_fetch(topic, 0, 0, 1000).build())
        assert [record.value for record in again.messages(topic, 0)] == [b"a", b"b"]
    with SimpleConsumer(broker.host, broker.port, SHORT_MS) as impatient:
        impatient.connect()
        sandbox.brokers[0].pause()
        try:
            started_ms = SYSTEM_CLOCK.now_ms()
            with pytest.raises(BrokerUnreachable, match=f"within {SHORT_MS} ms"):
                impatient.fetch(request.request_version(4).add_fetch(topic, 0, 0, 1000).build())
            assert SYSTEM_CLOCK.now_ms() - started_ms < TIMEOUT_MS, "it did not wait for the broker"
        finally:
            sandbox.brokers[0].resume()
