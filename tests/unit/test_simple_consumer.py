"""``SimpleConsumer`` on fake brokers of every release: what it answers, and what it does when the connection breaks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from bridge.broker.topic_store import OFFSETS_TOPIC
from bridge.coordinator.release_features import RELEASES
from bridge.testing.fake_cluster import FakeCluster
from bridge.testing.fake_faults import CloseConnection, CorruptRecords, Garbage, Hold, NullRecords, PartitionError
from tests.conformance.brokers_under_test import BrokerUnderTest, fake
from tests.simple_consumer_cases import CASES, CODECS, what_was_produced_in_every_version
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.threads import spawn
from zkconsumer.errors import (
    BrokerUnreachable,
    ConnectorClosed,
    InvalidMessageException,
    InvalidNameError,
    KafkaException,
    RemoteProtocolError,
    UsageError,
)
from zkconsumer.kafka import version_negotiation
from zkconsumer.kafka.broker_connection import BlockingConnection, Connection
from zkconsumer.kafka.error_codes import BrokerError
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.simple_consumer import SimpleConsumer
from zkconsumer.simple_requests import (
    FetchRequest,
    FetchRequestBuilder,
    OffsetCommitRequest,
    OffsetFetchRequest,
    PartitionFetchInfo,
    TopicMetadataRequest,
)
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import API_VERSIONS, FETCH, METADATA

TIMEOUT_MS = 5_000
SHORT_MS = 100
TP = TopicPartition("t", 0)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_negotiation, "NO_RESPONSE_MS", 20)


@pytest.fixture(params=list(RELEASES))
def broker(request: pytest.FixtureRequest) -> Iterator[BrokerUnderTest]:
    with fake(request.param) as made:
        yield made


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_simple_consumer(broker: BrokerUnderTest, case: Callable[[BrokerUnderTest], None]) -> None:
    case(broker)


@pytest.mark.parametrize("codec", CODECS)
def test_what_was_produced_comes_back_in_every_version(broker: BrokerUnderTest, codec: str) -> None:
    what_was_produced_in_every_version(broker, codec)


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster(release="1.1.1")
    made.create_topic("t", 1)
    made.append("t", 0, [b"a", b"b"])
    return made


@pytest.fixture
def consumer(cluster: FakeCluster) -> Iterator[SimpleConsumer]:
    with SimpleConsumer(*cluster.address(0)[1:], TIMEOUT_MS, client_id="me", connect=cluster.connect) as made:
        yield made


def a_fetch(version: int | None = 3, offset: int = 0, **more: int) -> FetchRequest:
    return FetchRequest([(TP, PartitionFetchInfo(offset, 1000))], version=version, **more)


def values(consumer: SimpleConsumer, request: FetchRequest) -> list[bytes | None]:
    return [record.value for record in consumer.fetch(request).messages(*TP)]


# --- the connection ---------------------------------------------------------------------------------------------


def test_a_connection_that_broke_is_opened_again_and_the_request_sent_once_more(
    cluster: FakeCluster, consumer: SimpleConsumer
) -> None:
    assert values(consumer, a_fetch()) == [b"a", b"b"]
    cluster.stop_broker(0)
    cluster.start_broker(0)
    assert values(consumer, a_fetch()) == [b"a", b"b"]


class Alarm(Exception):
    """What a signal handler of the program raises."""


def test_a_signal_handler_that_raises_between_a_request_and_its_answer_ends_only_this_request(
    consumer: SimpleConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive = BlockingConnection.receive

    def interrupted(*_: object, **__: object) -> None:
        monkeypatch.setattr(BlockingConnection, "receive", receive)
        raise Alarm

    consumer.connect()
    monkeypatch.setattr(BlockingConnection, "receive", interrupted)
    with pytest.raises(Alarm):
        consumer.fetch(a_fetch())
    assert values(consumer, a_fetch()) == [b"a", b"b"]


@pytest.mark.parametrize("fault", [CloseConnection(), CloseConnection(9), Garbage(b"\0\0\0\5\1\2\3\4\5")])
def test_the_second_error_is_raised_and_names_host_and_port(
    cluster: FakeCluster, consumer: SimpleConsumer, fault: CloseConnection | Garbage
) -> None:
    injected = cluster.inject(fault, api=FETCH, times=2)
    with pytest.raises((BrokerUnreachable, RemoteProtocolError), match=r"broker-0\.fake\.invalid:9092"):
        consumer.fetch(a_fetch())
    assert injected.hits == 2, "sent once more, and no more"
    assert values(consumer, a_fetch()) == [b"a", b"b"], "the next request connects again"


def test_a_request_of_an_exact_version_that_is_not_spoken_is_advised(
    cluster: FakeCluster, consumer: SimpleConsumer
) -> None:
    with pytest.raises(BrokerUnreachable) as caught:
        consumer.fetch(a_fetch(version=9))
    assert "a broker that does not support Fetch v9 closes the connection" in "".join(caught.value.__notes__)
    with pytest.raises(UsageError, match="Fetch v99 is not spoken here"):
        consumer.fetch(a_fetch(version=99))


def test_nobody_is_there() -> None:
    cluster = FakeCluster()
    cluster.stop_broker(0)
    with (
        SimpleConsumer(*cluster.address(0)[1:], TIMEOUT_MS, connect=cluster.connect) as consumer,
        pytest.raises(BrokerUnreachable, match=r"broker-0\.fake\.invalid:9092"),
    ):
        consumer.send(TopicMetadataRequest(["t"]))


def test_a_broker_that_hangs_ends_at_the_time_out(cluster: FakeCluster) -> None:
    held = cluster.inject(Hold(), times=None)
    consumer = SimpleConsumer(*cluster.address(0)[1:], SHORT_MS, connect=cluster.connect)
    started_ms = SYSTEM_CLOCK.now_ms()
    with pytest.raises(BrokerUnreachable, match=f"no answer to Fetch v3 within {SHORT_MS} ms"):
        consumer.fetch(a_fetch())
    assert 2 * SHORT_MS <= SYSTEM_CLOCK.now_ms() - started_ms < TIMEOUT_MS, "once, and once more"
    cluster.lift(held)
    consumer.close()


def test_a_fetch_that_waits_for_records_may_take_that_much_longer(cluster: FakeCluster) -> None:
    consumer = SimpleConsumer(*cluster.address(0)[1:], SHORT_MS, connect=cluster.connect)
    assert values(consumer, a_fetch(offset=2, max_wait_ms=2 * SHORT_MS, min_bytes=1)) == []
    assert len([seen for seen in cluster.requests if seen.api is FETCH]) == 1
    consumer.close()


@pytest.mark.parametrize("end", ["close", "disconnect"])
def test_ending_it_from_another_thread_ends_a_request_that_waits_and_nothing_is_tried_again(
    cluster: FakeCluster, consumer: SimpleConsumer, end: str
) -> None:
    cluster.inject(Hold(), api=FETCH, times=1)
    caught: list[BaseException] = []

    def fetch(_: object) -> None:
        try:
            consumer.fetch(a_fetch())
        except ConnectorClosed as error:
            caught.append(error)

    worker = spawn("fetch", fetch, lambda _, error: caught.append(error))
    cluster.wait_for_request(lambda seen: seen.api is FETCH, TIMEOUT_MS)
    getattr(consumer, end)()
    assert worker.join(TIMEOUT_MS)
    assert [type(error) for error in caught] == [ConnectorClosed]
    assert len([seen for seen in cluster.requests if seen.api is FETCH]) == 1
    if end == "disconnect":
        assert values(consumer, a_fetch()) == [b"a", b"b"], "the next request connects again"


def test_a_closed_consumer_stays_closed(consumer: SimpleConsumer) -> None:
    consumer.close()
    consumer.close()
    with pytest.raises(ConnectorClosed, match=r"the SimpleConsumer of broker-0\.fake\.invalid:9092 is closed"):
        consumer.fetch(a_fetch())
    with pytest.raises(ConnectorClosed):
        consumer.reconnect()


def test_connecting_asks_what_the_broker_speaks_once(cluster: FakeCluster, consumer: SimpleConsumer) -> None:
    consumer.connect()
    consumer.connect()
    consumer.send(TopicMetadataRequest(["t"]))
    assert [seen.api for seen in cluster.requests] == [API_VERSIONS, METADATA]
    consumer.reconnect()
    assert [seen.api for seen in cluster.requests][2:] == [API_VERSIONS]


def test_a_broker_that_was_replaced_by_another_release_is_asked_anew() -> None:
    old, new = FakeCluster(release="0.10.2.2"), FakeCluster(release="3.9.1")
    current = [old]

    def connect(host: str, port: int, **more: object) -> Connection:
        return current[0].connect(host, port, **more)  # type: ignore[arg-type]

    with SimpleConsumer(*old.address(0)[1:], TIMEOUT_MS, connect=connect) as consumer:
        consumer.send(TopicMetadataRequest())
        current[0] = new
        old.stop_broker(0)
        consumer.send(TopicMetadataRequest())
    assert [seen.version for seen in new.requests if seen.api is METADATA] == [12]


def test_threads_that_share_a_consumer_wait_for_each_other(cluster: FakeCluster, consumer: SimpleConsumer) -> None:
    seen: list[list[bytes | None]] = []
    start = threading.Barrier(8)

    def fetch(_: object) -> None:
        start.wait(TIMEOUT_MS / 1000)
        seen.append(values(consumer, a_fetch(version=None)))

    workers = [spawn(f"fetch-{n}", fetch, lambda _, error: seen.append([str(error).encode()])) for n in range(8)]
    assert all(worker.join(TIMEOUT_MS) for worker in workers)
    assert seen == [[b"a", b"b"]] * 8


def test_a_request_carries_its_own_client_id_or_the_consumers(cluster: FakeCluster, consumer: SimpleConsumer) -> None:
    consumer.send(TopicMetadataRequest(["t"], version=0))
    consumer.send(TopicMetadataRequest(["t"], version=0, client_id="other"))
    assert [seen.client_id for seen in cluster.requests] == ["me", "other"]


@pytest.mark.parametrize("client_id", ["a b", "ä", "x/y"])
def test_a_client_id_that_no_broker_takes_is_refused(consumer: SimpleConsumer, client_id: str) -> None:
    with pytest.raises(InvalidNameError, match="client id"):
        SimpleConsumer("h", 1, client_id=client_id)
    with pytest.raises(InvalidNameError, match="client id"):
        consumer.send(TopicMetadataRequest(client_id=client_id))


# --- requests and answers ---------------------------------------------------------------------------------------


def test_a_builder_counts_and_empties_itself() -> None:
    builder = FetchRequestBuilder().client_id("c").max_wait(5).min_bytes(6).max_bytes(7).request_version(2)
    first = builder.add_fetch("t", 0, 1, 2).add_fetch("u", 3, 4, 5).build()
    second = builder.add_fetch("v", 0, 0, 1).build()
    assert first.request_info == (
        (TopicPartition("t", 0), PartitionFetchInfo(1, 2)),
        (TopicPartition("u", 3), PartitionFetchInfo(4, 5)),
    )
    assert [topic for (topic, _), _ in second.request_info] == ["v"]
    assert (first.correlation_id, second.correlation_id) == (0, 1)
    assert (first.client_id, first.max_wait_ms, first.min_bytes, first.max_bytes, first.version) == ("c", 5, 6, 7, 2)
    plain = FetchRequestBuilder().build()
    assert (plain.max_wait_ms, plain.min_bytes, plain.max_bytes, plain.version) == (0, 0, 0x7FFFFFFF, None)


def test_the_order_of_the_partitions_is_kept(cluster: FakeCluster, consumer: SimpleConsumer) -> None:
    builder = FetchRequestBuilder()
    for topic, partition in (("b", 1), ("a", 0), ("b", 0)):
        builder.add_fetch(topic, partition, 0, 1)
    consumer.fetch(builder.build())
    asked = [(t.topic, p.partition) for t in cluster.requests[-1].body.topics for p in t.partitions]
    assert asked == [("b", 1), ("a", 0), ("b", 0)]


def test_a_partition_that_is_named_twice_is_refused(consumer: SimpleConsumer) -> None:
    with pytest.raises(UsageError, match="twice"):
        consumer.fetch(FetchRequestBuilder().add_fetch("t", 0, 0, 1).add_fetch("t", 0, 1, 1).build())


def test_a_message_larger_than_the_fetch_size_shows_in_the_bytes(cluster: FakeCluster) -> None:
    old = FakeCluster(release="0.8.2.2")
    old.create_topic("t", 1)
    old.append("t", 0, [b"x" * 500])
    with SimpleConsumer(*old.address(0)[1:], TIMEOUT_MS, connect=old.connect) as consumer:
        request = FetchRequestBuilder().add_fetch("t", 0, 0, 100).build()
        messages = consumer.fetch(request).messages("t", 0)
    assert (messages.size_in_bytes, messages.valid_bytes, list(messages)) == (100, 0, [])


def test_a_damaged_record_is_raised_when_it_is_reached(cluster: FakeCluster, consumer: SimpleConsumer) -> None:
    cluster.inject(CorruptRecords(TP, at=-1), api=FETCH)
    response = consumer.fetch(a_fetch(version=4))
    with pytest.raises(InvalidMessageException, match="checksum"):
        list(response.messages(*TP))


def test_a_null_record_set_is_an_empty_one(cluster: FakeCluster, consumer: SimpleConsumer) -> None:
    cluster.inject(NullRecords(TP, 76), api=FETCH)
    response = consumer.fetch(a_fetch())
    assert (response.error_code(*TP), list(response.messages(*TP))) == (76, [])


def test_a_broker_that_does_not_lead_says_so(cluster: FakeCluster, consumer: SimpleConsumer) -> None:
    cluster.inject(PartitionError(TP, 6), times=None)
    assert consumer.fetch(a_fetch()).error_code(*TP) == 6
    with pytest.raises(BrokerError, match=r"broker-0.*NOT_LEADER_OR_FOLLOWER \(6\)"):
        consumer.earliest_or_latest_offset(TP, -1)


@pytest.mark.parametrize(
    ("storage", "version", "text"),
    [
        (None, None, "set where the offsets are stored"),
        ("zookeeper", 1, "version 1 does not mean zookeeper"),
        ("kafka", 0, "version 0 does not mean kafka"),
        ("disk", None, "not 'disk'"),
    ],
)
def test_where_the_offsets_are_must_be_said(storage: str | None, version: int | None, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        OffsetCommitRequest("g", {}, storage=storage, version=version)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=text):
        OffsetFetchRequest("g", [], storage=storage, version=version)  # type: ignore[arg-type]


def test_how_long_offsets_are_kept_is_said_in_versions_2_to_4_or_refused(
    cluster: FakeCluster, consumer: SimpleConsumer
) -> None:
    cluster.create_topic(OFFSETS_TOPIC, 1)
    stored = {TP: OffsetAndMetadata(1)}
    assert consumer.commit_offsets(OffsetCommitRequest("g", stored, storage="kafka", retention_ms=9)).version == 3
    assert cluster.requests[-1].body.retention_time_ms == 9
    for version in (0, 1, 5):
        with pytest.raises(UsageError, match="has no retention_ms"):
            consumer.commit_offsets(OffsetCommitRequest("g", stored, version=version, retention_ms=9))
    stamped = {TP: OffsetAndMetadata(1, commit_timestamp_ms=77)}
    assert not consumer.commit_offsets(OffsetCommitRequest("g", stamped, version=1)).has_error
    assert cluster.requests[-1].body.topics[0].partitions[0].commit_timestamp == 77
    with pytest.raises(UsageError, match="commit_timestamp is 77, which version 2 cannot contain"):
        consumer.commit_offsets(OffsetCommitRequest("g", stamped, version=2))


def test_a_broker_without_kafka_offsets_says_so() -> None:
    cluster = FakeCluster(release="4.1.1")
    with (
        SimpleConsumer(*cluster.address(0)[1:], TIMEOUT_MS, connect=cluster.connect) as consumer,
        pytest.raises(KafkaException, match="no OffsetFetch v0, so it stores no offsets in ZooKeeper"),
    ):
        consumer.fetch_offsets(OffsetFetchRequest("g", [TP], storage="zookeeper"))
