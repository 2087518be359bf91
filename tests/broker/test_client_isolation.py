"""What one client does, or one request says, must not harm the others."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bridge.broker import cluster_builder
from bridge.broker.apis.topic_admin import create_topics
from bridge.broker.broker_cluster import BrokerCluster
from bridge.broker.catalogue import Catalogue, MemoryCatalogueStore
from bridge.broker.sasl_server_authenticator import SaslServerAuthenticator
from bridge.coordinator.api_request import ApiRequest
from bridge.testing import EmbeddedBroker
from bridge.testing.embedded_broker import TEST_PROPERTIES
from tests.broker.raw_client import SUBSCRIPTION, RawClient
from zkconsumer.wire.field_types import NO_UUID
from zkconsumer.wire.request_frames import encode_request
from zkconsumer.wire.schemas import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    JOIN_GROUP,
    METADATA,
    OFFSET_FETCH,
    Api,
)
from zkconsumer.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest
from zkconsumer.wire.schemas.delete_topics import DeleteTopicsRequest
from zkconsumer.wire.schemas.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from zkconsumer.wire.schemas.describe_groups import DescribeGroupsRequest
from zkconsumer.wire.schemas.join_group import JoinGroupProtocol, JoinGroupRequest
from zkconsumer.wire.schemas.metadata import MetadataRequest
from zkconsumer.wire.schemas.offset_fetch import OffsetFetchGroup, OffsetFetchRequest, OffsetFetchTopic

UNKNOWN_SERVER_ERROR, UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, INVALID_TOPIC, POLICY_VIOLATION = -1, 3, 5, 17, 44


@pytest.mark.parametrize("version", [2, 5])
def test_a_client_id_that_makes_too_long_a_member_id_is_refused_and_the_leader_goes_on(version: int) -> None:
    """The leader is told of all members: one whose id cannot be written would end the leader's connection."""
    with EmbeddedBroker(properties=TEST_PROPERTIES) as broker:
        broker.create_topic("t")
        with RawClient(broker.addresses()[0]) as good, RawClient(broker.addresses()[0], client_id="x" * 0x7FFF) as bad:
            while good.find_coordinator("g").error_code:
                time.sleep(0.01)
            member = good.join("g").member_id
            assert bad.join("g", version=version).error_code == UNKNOWN_SERVER_ERROR
            again = good.join("g", member)
            assert (again.error_code, len(again.members)) == (0, 1)


def test_a_topic_that_is_asked_for_a_thousand_times_is_told_of_once() -> None:
    with EmbeddedBroker() as broker, RawClient(broker.addresses()[0]) as talk:
        broker.create_topic("t")
        assert [row.name for row in talk.metadata(*["t"] * 1000).topics] == ["t"]


class Counted(list[CreatableTopic]):
    """A list that knows how often it was gone through."""

    times = 0

    def __iter__(self) -> Iterator[CreatableTopic]:
        self.times += 1
        return super().__iter__()


def test_topics_that_are_made_are_looked_through_a_few_times_and_not_once_for_each() -> None:
    """A request has room for a million names; a broker that compares each with each is gone for hours."""
    topics = Counted(CreatableTopic(name=f"?{at}", num_partitions=1, replication_factor=1) for at in range(1000))
    told: list[Any] = []
    call = ApiRequest(CREATE_TOPICS, 4, CreateTopicsRequest(topics=topics), "", "", "", "", told.append)
    with EmbeddedBroker() as broker:
        answer = broker.run_on_broker_thread(lambda cluster: create_topics(cluster.nodes[0], call))
    assert {row.error_code for row in answer.topics} == {INVALID_TOPIC}
    assert len(answer.topics) == 1000
    assert topics.times <= 3


class Saves(MemoryCatalogueStore):
    """Counts how often the catalogue is written."""

    def __init__(self) -> None:
        self.times = 0

    def save(self, catalogue: Catalogue) -> None:
        self.times += 1


@pytest.fixture
def saves(monkeypatch: pytest.MonkeyPatch) -> Saves:
    store = Saves()
    monkeypatch.setattr(cluster_builder, "MemoryCatalogueStore", lambda: store)
    return store


def test_a_request_that_makes_or_deletes_many_topics_writes_the_catalogue_once(saves: Saves) -> None:
    """It holds all topics: writing it for each of a thousand names is a million lines, each synchronised."""
    names = [f"t{at}" for at in range(200)]
    with EmbeddedBroker() as broker, RawClient(broker.addresses()[0]) as talk:
        at_the_start = saves.times
        new = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        made = talk.ask(CREATE_TOPICS, 7, CreateTopicsRequest(topics=new, timeout_ms=1_000))
        assert {(row.error_code, row.topic_id == NO_UUID) for row in made.topics} == {(0, False)}
        assert saves.times == at_the_start + 1
        told = talk.metadata(*names, *(f"auto{at}" for at in range(200)))
        assert [row.error_code for row in told.topics] == [0] * 200 + [LEADER_NOT_AVAILABLE] * 200
        assert {row.error_code for row in talk.metadata(*(f"auto{at}" for at in range(200))).topics} == {0}
        assert saves.times == at_the_start + 2
        gone = talk.ask(DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=[*names, "none", "t0"], timeout_ms=1_000))
        assert [row.error_code for row in gone.responses] == [0] * 200 + [UNKNOWN_TOPIC] * 2
        assert saves.times == at_the_start + 3
        assert len(talk.metadata(*names, creates=False).topics) == 200
        assert {row.error_code for row in talk.metadata(*names, creates=False).topics} == {UNKNOWN_TOPIC}


def test_topics_of_one_request_still_take_turns_among_the_nodes() -> None:
    with EmbeddedBroker(nodes=3) as broker, RawClient(broker.addresses()[0]) as talk:
        new = [CreatableTopic(name=f"t{at}", num_partitions=1, replication_factor=1) for at in range(3)]
        talk.ask(CREATE_TOPICS, 4, CreateTopicsRequest(topics=new, timeout_ms=1_000))
        talk.metadata("u0", "u1", "u2")
        names = [f"{letter}{at}" for letter in "tu" for at in range(3)]
        leaders = [row.partitions[0].leader_id for row in talk.metadata(*names).topics]
        assert [sorted(leaders[:3]), sorted(leaders[3:])] == [[0, 1, 2]] * 2


def test_topics_that_cannot_be_written_down_are_all_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedBroker() as broker, RawClient(broker.addresses()[0]) as talk:
        broker.create_topic("old")

        def full(store: MemoryCatalogueStore, catalogue: Catalogue) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(MemoryCatalogueStore, "save", full)
        new = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("a", "b", "old")]
        made = talk.ask(CREATE_TOPICS, 4, CreateTopicsRequest(topics=new, timeout_ms=1_000))
        assert [(row.name, row.error_code) for row in made.topics] == [("a", 56), ("b", 56), ("old", 36)]
        assert [row.error_code for row in talk.metadata("c", "old").topics] == [UNKNOWN_TOPIC, 0]
        gone = talk.ask(DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=["old"], timeout_ms=1_000))
        assert [row.error_code for row in gone.responses] == [56]


def test_a_request_for_more_partitions_than_the_broker_has_room_for_makes_none() -> None:
    """Twenty bytes ask for ten thousand partitions, and a request has room for millions of bytes."""
    with EmbeddedBroker() as broker, RawClient(broker.addresses()[0]) as talk:
        new = [CreatableTopic(name=f"t{at}", num_partitions=5_001, replication_factor=1) for at in range(2)]
        made = talk.ask(CREATE_TOPICS, 4, CreateTopicsRequest(topics=new, timeout_ms=1_000))
        assert [row.error_code for row in made.topics] == [POLICY_VIOLATION] * 2
        assert talk.metadata(version=7).topics == []


def test_whatever_is_named_a_thousand_times_is_answered_once() -> None:
    """A name costs a few bytes, and what is told of it may be kilobytes."""
    with EmbeddedBroker(properties=TEST_PROPERTIES) as broker, RawClient(broker.addresses()[0]) as talk:
        broker.create_topic("t", 2)
        while talk.find_coordinator("g").error_code or talk.commit("g", "t", 1, 5):
            time.sleep(0.01)
        one = OffsetFetchGroup(group_id="g", topics=[OffsetFetchTopic(name="t", partition_indexes=[1, 1])])
        two = OffsetFetchGroup(group_id="g", topics=[OffsetFetchTopic(name="t", partition_indexes=[0])])
        [told] = talk.ask(OFFSET_FETCH, 8, OffsetFetchRequest(groups=[one, two] * 1000)).groups
        rows = [(topic.name, p.partition_index, p.committed_offset) for topic in told.topics for p in topic.partitions]
        assert rows == [("t", 1, 5), ("t", 0, -1)]
        all_of_it = OffsetFetchGroup(group_id="g", topics=None)
        [told] = talk.ask(OFFSET_FETCH, 8, OffsetFetchRequest(groups=[one, all_of_it, two])).groups
        assert [[p.partition_index for p in topic.partitions] for topic in told.topics] == [[1]]
        old = OffsetFetchRequest(group_id="g", topics=(one.topics or []) * 1000)
        assert [len(topic.partitions) for topic in talk.ask(OFFSET_FETCH, 3, old).topics] == [1]
        described = talk.ask(DESCRIBE_GROUPS, 4, DescribeGroupsRequest(groups=["g", "h"] * 1000))
        assert [group.group_id for group in described.groups] == ["g", "h"]
        asked = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=None)
        configs = talk.ask(DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=[asked] * 1000))
        assert len(configs.results) == 1


def test_a_login_does_not_show_passwords() -> None:
    assert "secret" not in repr(SaslServerAuthenticator({"ann": "secret"}))


def _request(api: Api[Any, Any], version: int, body: Any) -> bytes:
    return encode_request(api, version, 1, "raw", body)


def test_a_request_that_fails_here_ends_its_own_connection_and_not_the_answers_to_others() -> None:
    """A group is answered member by member, and behind the first one's answer its next request is looked at."""
    with EmbeddedBroker(properties=TEST_PROPERTIES | {"group.initial.rebalance.delay.ms": "500"}) as broker:
        broker.create_topic("t")
        [at] = broker.addresses()
        body = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=[JoinGroupProtocol(name="range", metadata=SUBSCRIPTION)],
        )

        def fails(call: object) -> None:
            raise ValueError("a mistake of ours")

        def break_metadata(cluster: BrokerCluster) -> None:
            for node in cluster.nodes.values():
                node.kafka_apis.handlers[METADATA.key] = fails

        with RawClient(at) as talk, socket.create_connection((at.host, at.port), 10) as hostile:
            while talk.find_coordinator("g").error_code:
                time.sleep(0.01)
            broker.run_on_broker_thread(break_metadata)
            hostile.sendall(_request(JOIN_GROUP, 2, body) + _request(METADATA, 1, MetadataRequest(topics=None)))
            time.sleep(0.1)
            assert len(talk.ask(JOIN_GROUP, 2, body, 3_000).member_id) > 0, "the second of the two is answered"
            hostile.settimeout(10)
            while hostile.recv(65_536):
                pass
