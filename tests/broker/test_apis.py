"""What the broker answers, API by API, through its sockets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.testing import EmbeddedBroker
from tests.broker.raw_client import RawClient
from tests.fetch_session_cases import walk_through
from zkconsumer.errors import BrokerUnreachable
from zkconsumer.testing.sandbox import wait_until
from zkconsumer.types import BrokerAddress
from zkconsumer.wire import compression
from zkconsumer.wire.entries import Record, iter_entries
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.records import iter_records
from zkconsumer.wire.schemas import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_GROUPS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)
from zkconsumer.wire.schemas.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from zkconsumer.wire.schemas.delete_topics import DeleteTopicsRequest, DeleteTopicState
from zkconsumer.wire.schemas.describe_cluster import DescribeClusterRequest
from zkconsumer.wire.schemas.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from zkconsumer.wire.schemas.describe_groups import DescribeGroupsRequest
from zkconsumer.wire.schemas.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from zkconsumer.wire.schemas.find_coordinator import FindCoordinatorRequest
from zkconsumer.wire.schemas.init_producer_id import InitProducerIdRequest
from zkconsumer.wire.schemas.list_groups import ListGroupsRequest
from zkconsumer.wire.schemas.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from zkconsumer.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic
from zkconsumer.wire.schemas.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from zkconsumer.wire.schemas.produce import ProducePartition, ProduceRequest, ProduceTopic

KEPT = "offsets.retention.minutes"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(nodes=1, properties={"num.partitions": "2"}) as started:
        yield started


@pytest.fixture
def talk(broker: EmbeddedBroker) -> Iterator[RawClient]:
    with RawClient(broker.addresses()[0]) as made:
        yield made


@pytest.fixture
def topic(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> str:
    name = f"t{abs(hash(request.node.nodeid))}"
    broker.create_topic(name)
    return name


# --- metadata and topics ------------------------------------------------------------------------------------------


def test_asking_for_a_topic_makes_it_and_says_so_the_second_time(talk: RawClient) -> None:
    [first] = talk.metadata("made").topics
    assert (first.error_code, first.partitions) == (5, [])
    [second] = talk.metadata("made").topics
    assert second.error_code == 0
    assert [p.leader_id for p in second.partitions] == [0, 0]


def test_a_topic_is_not_made_where_that_is_not_wanted_or_the_name_cannot_be(talk: RawClient) -> None:
    assert talk.metadata("unwanted", creates=False).topics[0].error_code == 3
    for name in ("no spaces", "", ".", "x" * 250):
        assert talk.metadata(name).topics[0].error_code == 17
    strict = EmbeddedBroker(properties={"auto.create.topics.enable": "false"})
    with strict, RawClient(strict.addresses()[0]) as other:
        assert other.metadata("t").topics[0].error_code == 3


def test_all_topics_are_asked_for_by_an_empty_list_at_first_and_by_null_later(talk: RawClient, topic: str) -> None:
    assert topic in {t.name for t in talk.ask(METADATA, 0, MetadataRequest(topics=[])).topics}
    assert talk.ask(METADATA, 1, MetadataRequest(topics=[])).topics == []
    assert topic in {t.name for t in talk.ask(METADATA, 12, MetadataRequest(topics=None)).topics}


def test_a_topic_is_found_by_its_id_in_metadata_fetch_and_produce(talk: RawClient, topic: str) -> None:
    topic_id = talk.metadata(topic, version=10).topics[0].topic_id
    asked = MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name=None)])
    assert talk.ask(METADATA, 12, asked).topics[0].name == topic
    asked = MetadataRequest(topics=[MetadataRequestTopic(topic_id=b"x" * 16, name=None)])
    assert talk.ask(METADATA, 12, asked).topics[0].error_code == 100
    talk.produce(topic, 0, b"by id")
    for wanted, code in ((topic_id, 0), (b"x" * 16, 100)):
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        body = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic_id=wanted, partitions=[partition])])
        [row] = talk.ask(FETCH, 17, body).responses[0].partitions
        assert row.error_code == code
        if not code:
            assert [record.value for record in iter_records(row.records)] == [b"by id"]
    with EmbeddedBroker(release="4.1.1") as modern, RawClient(modern.addresses()[0]) as other:
        modern.create_topic("t")
        topic_id = other.metadata("t", version=10).topics[0].topic_id
        sent = ProducePartition(index=0, records=build_record_set([Record(0, 1, 0, None, b"v")], 2))
        rows = [ProduceTopic(topic_id=topic_id, partition_data=[sent])]
        answer = other.ask(PRODUCE, 13, ProduceRequest(acks=1, timeout_ms=0, topic_data=rows))
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert modern.log_end("t", 0) == 1


def create(talk: RawClient, *topics: CreatableTopic, validate_only: bool = False) -> list[tuple[str, int]]:
    body = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    return [(row.name, row.error_code) for row in talk.ask(CREATE_TOPICS, 7, body).topics]


def new(name: str, partitions: int = 1, factor: int = 1, **more: Any) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, **more)


def test_topics_are_created_and_deleted(talk: RawClient, broker: EmbeddedBroker) -> None:
    assert create(talk, new("c1", 3), new("c2", -1, -1)) == [("c1", 0), ("c2", 0)]
    assert [len(t.partitions) for t in talk.metadata("c1", "c2").topics] == [3, 2]
    assert create(talk, new("c3"), validate_only=True) == [("c3", 0)]
    assert talk.metadata("c3", creates=False).topics[0].error_code == 3
    assigned = [CreatableReplicaAssignment(partition_index=at, broker_ids=[0]) for at in (1, 0)]
    assert create(talk, new("c4", -1, -1, assignments=assigned)) == [("c4", 0)]
    broker.append("c1", 0, [b"x"])
    topic_id = talk.metadata("c2", version=10).topics[0].topic_id
    states = [DeleteTopicState(name="c1"), DeleteTopicState(name=None, topic_id=topic_id)]
    answer = talk.ask(DELETE_TOPICS, 6, DeleteTopicsRequest(topics=states, timeout_ms=0))
    assert [(row.name, row.error_code) for row in answer.responses] == [("c1", 0), ("c2", 0)]
    assert [t.error_code for t in talk.metadata("c1", "c2", creates=False).topics] == [3, 3]
    answer = talk.ask(DELETE_TOPICS, 1, DeleteTopicsRequest(topic_names=["c1", "c4"], timeout_ms=0))
    assert [(row.name, row.error_code) for row in answer.responses] == [("c1", 3), ("c4", 0)]
    create(talk, new("c1"))
    assert talk.fetch("c1", 0, 0).high_watermark == 0, "nothing of the old topic comes back"


@pytest.mark.parametrize(
    ("topic_", "code"),
    [
        (new("made twice"), 17),
        (new("__consumer_offsets"), 42),
        (new("bad", 0), 37),
        (new("bad", 100_000), 37),
        (new("bad", 1, 2), 38),
        (new("bad", 1, 0), 38),
        (new("bad", configs=[CreatableTopicConfig(name="retention.ms", value="1")]), 40),
        (new("bad", configs=[CreatableTopicConfig(name="cleanup.policy", value="burn")]), 40),
        (new("bad", -1, -1, assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[7])]), 39),
        (new("bad", -1, -1, assignments=[CreatableReplicaAssignment(partition_index=1, broker_ids=[0])]), 39),
        (new("bad", 1, 1, assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[0])]), 42),
    ],
)
def test_topics_that_cannot_be_are_refused(topic_: CreatableTopic, code: int, talk: RawClient) -> None:
    assert create(talk, topic_) == [(topic_.name, code)]


def test_defaults_are_the_broker_s_from_version_4_on(talk: RawClient) -> None:
    for version, code in ((3, 37), (4, 0)):
        answer = talk.ask(CREATE_TOPICS, version, CreateTopicsRequest(topics=[new("defaults", -1, -1)]))
        assert [row.error_code for row in answer.topics] == [code]


def test_a_topic_that_is_there_and_one_that_is_named_twice(talk: RawClient, topic: str) -> None:
    assert create(talk, new(topic)) == [(topic, 36)]
    assert create(talk, new("twice"), new("twice")) == [("twice", 42)]


def test_settings_of_topics_and_nodes_are_described(talk: RawClient) -> None:
    create(talk, new("set", configs=[CreatableTopicConfig(name="max.message.bytes", value="100")]))
    asked = [
        DescribeConfigsResource(resource_type=2, resource_name="set"),
        DescribeConfigsResource(resource_type=2, resource_name="no-such"),
        DescribeConfigsResource(resource_type=4, resource_name="0", configuration_keys=["num.partitions", KEPT]),
        DescribeConfigsResource(resource_type=4, resource_name="9"),
        DescribeConfigsResource(resource_type=8, resource_name="0"),
    ]
    answer = talk.ask(DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=asked, include_synonyms=True))
    topic_, unknown, node, other, loggers = answer.results
    assert {(row.name, row.value, row.config_source) for row in topic_.configs} >= {
        ("max.message.bytes", "100", 1),
        ("cleanup.policy", "delete", 5),
    }
    assert [(row.name, row.value, row.config_source) for row in node.configs] == [
        ("num.partitions", "2", 4),
        (KEPT, "10080", 5),
    ]
    assert [unknown.error_code, other.error_code, loggers.error_code] == [3, 42, 42]
    assert talk.produce("set", 0, b"x" * 200).error_code == 10


def test_the_cluster_is_described_by_listener(talk: RawClient, broker: EmbeddedBroker) -> None:
    answer = talk.ask(DESCRIBE_CLUSTER, 0, DescribeClusterRequest())
    [address] = broker.addresses()
    assert [(row.broker_id, row.host, row.port) for row in answer.brokers] == [tuple(address)]
    assert answer.cluster_id == talk.metadata().cluster_id
    assert len(answer.cluster_id) == 22


# --- produce and fetch --------------------------------------------------------------------------------------------


def test_errors_of_produce_are_per_partition(talk: RawClient, topic: str) -> None:
    assert talk.produce(topic, 1, b"v").error_code == 3
    assert talk.produce("no-such", 0, b"v").error_code == 3
    assert talk.produce(topic, 0, records=b"garbage").error_code == 87
    assert talk.produce(topic, 0, records=bytes(100)).error_code == 2
    assert talk.produce("__consumer_offsets", 0, b"v").error_code == 17
    sent = ProducePartition(index=0, records=build_record_set([Record(0, 1, 0, None, b"v")], 2))
    rows = [ProduceTopic(name=topic, partition_data=[sent])]
    for change, code in (({"acks": 2}, 21), ({"acks": 1, "transactional_id": "tx"}, 53)):
        answer = talk.ask(PRODUCE, 7, ProduceRequest(timeout_ms=0, topic_data=rows, **change))
        assert answer.responses[0].partition_responses[0].error_code == code


def test_old_releases_cannot_read_what_is_not_one_batch() -> None:
    batch = build_record_set([Record(0, 1, 0, None, b"v")], 2)
    with EmbeddedBroker(release="1.1.1") as broker, RawClient(broker.addresses()[0]) as talk:
        broker.create_topic("t")
        for records in (batch + batch, batch[:-1], b""):
            with pytest.raises(BrokerUnreachable):
                talk.produce("t", 0, version=5, records=records)
        assert broker.log_end("t", 0) == 0
        assert talk.produce("t", 0, version=5, records=batch).error_code == 0


@pytest.mark.parametrize(("release", "version", "magic"), [("0.9.0.1", 1, 0), ("0.10.2.2", 2, 1), ("1.1.1", 5, 2)])
def test_each_release_stores_its_own_format(release: str, version: int, magic: int) -> None:
    with EmbeddedBroker(release=release) as broker, RawClient(broker.addresses()[0]) as talk:
        broker.create_topic("t")
        for values in ((b"a", b"b"), (b"c",)):
            assert talk.produce("t", 0, *values, version=version).error_code == 0
        batch = build_record_set([Record(0, 1, 0, None, b"new")], 2)
        if magic < 2:
            assert talk.produce("t", 0, version=version, records=batch).error_code == 2
        stored = talk.fetch("t", 0, 0, version=version).records
        assert {entry.magic for entry in iter_entries(stored)} == {magic}
        assert [(r.offset, r.value) for r in iter_records(stored)] == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_old_readers_of_a_new_log_get_their_format(talk: RawClient, topic: str) -> None:
    talk.produce(topic, 0, b"a", b"b")
    for version, magic in ((0, 0), (3, 1), (4, 2)):
        stored = talk.fetch(topic, 0, 0, version=version).records
        assert {entry.magic for entry in iter_entries(stored)} == {magic}
        assert [record.value for record in iter_records(stored)] == [b"a", b"b"]


def test_zstd_is_not_given_to_readers_that_do_not_know_it(talk: RawClient, topic: str) -> None:
    batch = build_record_set([Record(0, 1, 0, None, b"v")], 2, compression.ZSTD)
    assert talk.produce(topic, 0, records=batch).error_code == 0
    for version in (0, 3):
        refused = talk.fetch(topic, 0, 0, version=version)
        assert (refused.error_code, refused.records) == (76, None)
    for version in (4, 9, 10):
        records = iter_records(talk.fetch(topic, 0, 0, version=version).records)
        assert [record.value for record in records] == [b"v"], "as real brokers: see test_broker_conformance"


def test_a_fetch_waits_for_bytes_no_longer_than_it_says(talk: RawClient, topic: str, broker: EmbeddedBroker) -> None:
    begin = time.monotonic()
    assert talk.fetch(topic, 0, 0, max_wait_ms=300).records == b""  # or an error after ``TIMEOUT_MS``
    assert time.monotonic() - begin > 0.25
    pending = talk.connection.send(FETCH, 11, talk.fetch_body(topic, 0, 0, max_wait_ms=20_000, min_bytes=150), 10_000)
    assert not talk.connection.has_response(100)
    broker.append(topic, 0, [b"x" * 10])
    assert not talk.connection.has_response(100), "too few"
    broker.append(topic, 0, [b"x" * 100])
    answer = talk.connection.receive(pending, 10_000)
    assert len(list(iter_records(answer.responses[0].partitions[0].records))) == 2
    assert broker.run_on_broker_thread(lambda cluster: cluster.fetch_purgatory.waiting_count) == 0


def test_a_fetch_that_waits_is_forgotten_with_its_client(topic: str, broker: EmbeddedBroker) -> None:
    """Else who connects, asks and goes away leaves a request behind for five minutes each time."""

    def waiting() -> int:
        return broker.run_on_broker_thread(lambda cluster: cluster.fetch_purgatory.waiting_count)

    with RawClient(broker.addresses()[0]) as gone:
        gone.connection.send(FETCH, 11, gone.fetch_body(topic, 0, 0, max_wait_ms=300_000), 10_000)
        wait_until(lambda: waiting() == 1, "it waits", timeout_ms=30_000)
    wait_until(lambda: waiting() == 0, "it is forgotten", timeout_ms=30_000)


def test_a_fetch_that_waits_hears_of_its_topic_s_end(talk: RawClient, topic: str, broker: EmbeddedBroker) -> None:
    pending = talk.connection.send(FETCH, 11, talk.fetch_body(topic, 0, 0, max_wait_ms=20_000), 10_000)
    assert not talk.connection.has_response(100)
    broker.delete_topic(topic)
    answer = talk.connection.receive(pending, 10_000)
    assert answer.responses[0].partitions[0].error_code == 3


def test_what_cannot_be_fetched_is_said_at_once(talk: RawClient, topic: str) -> None:
    for partition, offset, code in ((1, 0, 3), (0, 1, 1), (0, -1, 1)):
        assert talk.fetch(topic, partition, offset, max_wait_ms=20_000).error_code == code
    body = talk.fetch_body(topic, 0, 0)
    body.session_id, body.session_epoch = 7, 1
    assert talk.ask(FETCH, 11, body).error_code == 70
    for epoch, code in ((0, 0), (1, 75)):
        body = talk.fetch_body(topic, 0, 0)
        body.topics[0].partitions[0].current_leader_epoch = epoch
        assert talk.ask(FETCH, 11, body).responses[0].partitions[0].error_code == code


@pytest.mark.parametrize("version", [7, 12])
def test_fetch_sessions_are_those_of_kafka(talk: RawClient, broker: EmbeddedBroker, version: int) -> None:
    topics = [f"session-{version}-{name}" for name in "ab"]
    for name in topics:
        broker.create_topic(name)
    walk_through(
        lambda body: talk.ask(FETCH, version, body), lambda topic, value: talk.produce(topic, 0, value), *topics
    )


def test_a_fetch_of_a_session_that_waits_ends_when_one_of_its_partitions_has_records(
    talk: RawClient, topic: str
) -> None:
    with RawClient(BrokerAddress(0, talk.connection.host, talk.connection.port)) as reader:
        body = talk.fetch_body(topic, 0, 0)
        body.session_epoch = 0
        session = reader.ask(FETCH, 12, body).session_id
        waiting = FetchRequest(max_wait_ms=30_000, min_bytes=1, session_id=session, session_epoch=1, topics=[])
        pending = reader.connection.send(FETCH, 12, waiting, 40_000)
        talk.produce(topic, 0, b"new")
        answer = reader.connection.receive(pending, 40_000)
        [row] = answer.responses[0].partitions
        assert [record.value for record in iter_records(row.records or b"")] == [b"new"]
        assert answer.session_id == session


def test_a_waiting_fetch_whose_session_another_request_used_ends_with_its_error_and_harms_no_producer(
    talk: RawClient, topic: str
) -> None:
    address = BrokerAddress(0, talk.connection.host, talk.connection.port)
    with RawClient(address) as reader, RawClient(address) as other:
        body = talk.fetch_body(topic, 0, 0)
        body.session_epoch = 0
        session = reader.ask(FETCH, 12, body).session_id
        waiting = FetchRequest(max_wait_ms=30_000, min_bytes=1, session_id=session, session_epoch=1, topics=[])
        pending = reader.connection.send(FETCH, 12, waiting, 40_000)
        forgetting = FetchRequest(
            max_wait_ms=0, min_bytes=1, session_id=session, session_epoch=2, topics=[],
            forgotten_topics_data=[ForgottenTopic(topic=topic, partitions=[0])],
        )  # fmt: skip
        wait_until(lambda: other.ask(FETCH, 12, forgetting).error_code == 0, "the session goes on", timeout_ms=30_000)
        assert talk.produce(topic, 0, b"new").error_code == 0
        answer = reader.connection.receive(pending, 40_000)
        assert (answer.error_code, answer.session_id, answer.responses) == (71, session, [])


def test_a_topic_whose_files_cannot_be_deleted_is_deleted_with_its_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(5, "Input/output error")

    with EmbeddedBroker(data_dir=tmp_path / "data") as broker, RawClient(broker.addresses()[0]) as talk:
        broker.create_topic("t", partitions=2)
        broker.append("t", 0, [b"old"] * 3)
        broker.append("t", 1, [b"old"])
        talk.find_coordinator("g")
        wait_until(lambda: talk.commit("g", "t", 0, 3) == 0, "the coordinator has loaded", timeout_ms=30_000)
        with monkeypatch.context() as failing:
            failing.setattr(Path, "unlink", refuse)
            [row] = talk.ask(DELETE_TOPICS, 1, DeleteTopicsRequest(topic_names=["t"], timeout_ms=0)).responses
        broker.create_topic("t", partitions=2)
        assert (row.error_code, talk.committed("g", "t", 0), broker.records("t", 0)) == (0, (-1, 0), [])


def test_limits_of_a_fetch(talk: RawClient, topic: str) -> None:
    for _ in range(3):
        talk.produce(topic, 0, b"x" * 100)
    size = len(talk.fetch(topic, 0, 0, partition_max_bytes=1).records)
    assert size > 100, "the first entry comes whole from version 3 on"
    assert len(talk.fetch(topic, 0, 0, max_bytes=2 * size).records) == 2 * size
    assert talk.fetch(topic, 0, 0, version=2, partition_max_bytes=10).records == b""
    with EmbeddedBroker(release="0.9.0.1") as old, RawClient(old.addresses()[0]) as other:
        old.create_topic("t")
        other.produce("t", 0, b"x" * 100, version=1)
        assert len(other.fetch("t", 0, 0, version=1, partition_max_bytes=10).records) == 10


def test_idempotent_ids_are_never_given_twice_and_transactions_are_refused(tmp_path: Path) -> None:
    seen: list[int] = []
    for _ in range(2):
        with EmbeddedBroker(data_dir=tmp_path / "data") as broker, RawClient(broker.addresses()[0]) as talk:
            seen += [talk.producer_id() for _ in range(3)]
            body = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1)
            assert talk.ask(INIT_PRODUCER_ID, 1, body).error_code == 53
            asked = FindCoordinatorRequest(key="tx", key_type=1)
            assert talk.ask(FIND_COORDINATOR, 2, asked).error_code == 53
    assert len(set(seen)) == 6


# --- offsets ------------------------------------------------------------------------------------------------------


def list_offset(talk: RawClient, topic: str, time_ms: int, version: int = 7, epoch: int = -1) -> Any:
    asked = ListOffsetsPartition(partition_index=0, timestamp=time_ms, current_leader_epoch=epoch, max_num_offsets=10)
    body = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
    return talk.ask(LIST_OFFSETS, version, body).topics[0].partitions[0]


def test_offsets_by_time(talk: RawClient, topic: str) -> None:
    times = [1_000, 3_000, 2_000]
    for at, time_ms in enumerate(times):
        talk.produce(topic, 0, records=build_record_set([Record(0, time_ms, 0, None, b"%d" % at)], 2))
    for asked, expected in ((-2, (0, -1)), (-1, (3, -1)), (-3, (1, 3_000)), (1_500, (1, 3_000)), (4_000, (-1, -1))):
        row = list_offset(talk, topic, asked)
        assert (row.offset, row.timestamp) == expected, asked
    assert list_offset(talk, topic, -3, version=6).error_code == 35
    assert list_offset(talk, topic, -4, version=8).offset == 0
    assert list_offset(talk, topic, -1, epoch=1).error_code == 75
    assert list_offset(talk, topic, -1, version=0).old_style_offsets == [3, 0]
    assert list_offset(talk, topic, -2, version=0).old_style_offsets == [0]
    assert list_offset(talk, topic, 1_000, version=0).old_style_offsets == []


def test_times_that_a_release_does_not_know_yet_are_times() -> None:
    """Real brokers of 2.8 give the first record, since all are later; nothing is refused."""
    with EmbeddedBroker(release="2.8.2") as broker, RawClient(broker.addresses()[0]) as talk:
        broker.create_topic("t")
        talk.produce("t", 0, b"first", b"second")
        rows = [list_offset(talk, "t", asked, version=6) for asked in (-3, -4, -5)]
        assert [(row.error_code, row.offset, row.timestamp) for row in rows] == [(0, 0, 1_000)] * 3


def test_format_0_has_no_times() -> None:
    with EmbeddedBroker(release="0.9.0.1") as broker, RawClient(broker.addresses()[0]) as talk:
        broker.create_topic("t")
        assert list_offset(talk, "t", -1, version=0).old_style_offsets == [0]


def test_where_an_epoch_ends(talk: RawClient, topic: str) -> None:
    talk.produce(topic, 0, b"a", b"b")

    def end(epoch: int, current: int = -1) -> tuple[int, int, int]:
        asked = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
        body = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])])
        row = talk.ask(OFFSET_FOR_LEADER_EPOCH, 3, body).topics[0].partitions[0]
        return row.error_code, row.leader_epoch, row.end_offset

    assert end(0) == (0, 0, 2)
    assert end(1) == (0, -1, -1)
    assert end(0, current=5) == (75, -1, -1)


# --- rights -------------------------------------------------------------------------------------------------------


def test_who_may_not_is_told_so_in_the_order_of_the_gates() -> None:
    def may(principal: str, operation: object, resource: str, name: str) -> bool:
        return not name.startswith("secret")

    with EmbeddedBroker(authorizer=may) as broker, RawClient(broker.addresses()[0]) as talk:
        for name in ("secret", "open"):
            broker.create_topic(name)
        while talk.find_coordinator("g").error_code:
            pass
        assert talk.find_coordinator("secret-group").error_code == 30
        assert talk.join("secret-group").error_code == 30
        assert talk.heartbeat("secret-group", 1, "m") == 30
        assert talk.commit("secret-group", "secret", 0, 1) == 30, "the group comes first"
        assert talk.commit("g", "secret", 0, 1) == 29
        assert talk.commit("g", "open", 0, 1) == 0
        assert talk.commit("g", "open", 1, 1) == 3
        assert talk.committed("g", "secret", 0) == (-1, 29)
        assert talk.committed("secret-group", "open", 0) == (-1, 30)
        assert talk.committed("secret-group", "open", 0, version=1) == (-1, 30)
        assert talk.produce("secret", 0, b"v").error_code == 29
        assert talk.fetch("secret", 0, 0).error_code == 29
        assert talk.metadata("secret").topics[0].error_code == 29
        assert list_offset(talk, "secret", -1).error_code == 29
        assert "secret" not in {t.name for t in talk.ask(METADATA, 7, MetadataRequest(topics=None)).topics}
        groups = talk.ask(DESCRIBE_GROUPS, 1, DescribeGroupsRequest(groups=["secret-group", "g"])).groups
        assert [(group.group_id, group.error_code) for group in groups] == [("secret-group", 30), ("g", 0)]
        listed = talk.ask(LIST_GROUPS, 1, ListGroupsRequest()).groups
        assert [group.group_id for group in listed] == ["g"]


@pytest.mark.parametrize(("release", "code"), [("1.1.1", 0), ("2.0.1", 3)])
def test_commits_for_partitions_that_there_are_not_by_release(release: str, code: int) -> None:
    with EmbeddedBroker(release=release) as broker, RawClient(broker.addresses()[0]) as talk:
        broker.create_topic("t")
        while talk.find_coordinator("g").error_code:
            pass
        assert talk.commit("g", "t", 7, 1) == code
        assert talk.commit("g", "no-such", 0, 1) == 3
