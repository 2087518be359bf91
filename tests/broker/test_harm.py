"""What one client does, or one request says, must not harm the others."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bridge.broker.apis.topics import create_topics
from bridge.broker.cluster import Cluster
from bridge.broker.login import Login
from bridge.coordinator.calls import Call
from bridge.testing import EmbeddedBroker
from bridge.testing.embedded_broker import QUICK
from tests.broker.fix_talk import SUBSCRIPTION, Talk
from zkconsumer.wire.frames import encode_request
from zkconsumer.wire.schemas import CREATE_TOPICS, JOIN_GROUP, METADATA, Api
from zkconsumer.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest
from zkconsumer.wire.schemas.join_group import JoinGroupProtocol, JoinGroupRequest
from zkconsumer.wire.schemas.metadata import MetadataRequest

UNKNOWN_SERVER_ERROR, INVALID_TOPIC = -1, 17


@pytest.mark.parametrize("version", [2, 5])
def test_a_client_id_that_makes_too_long_a_member_id_is_refused_and_the_leader_goes_on(version: int) -> None:
    """The leader is told of all members: one whose id cannot be written would end the leader's connection."""
    with EmbeddedBroker(properties=QUICK) as broker:
        broker.create_topic("t")
        with Talk(broker.addresses()[0]) as good, Talk(broker.addresses()[0], client_id="x" * 0x7FFF) as bad:
            while good.find_coordinator("g").error_code:
                time.sleep(0.01)
            member = good.join("g").member_id
            assert bad.join("g", version=version).error_code == UNKNOWN_SERVER_ERROR
            again = good.join("g", member)
            assert (again.error_code, len(again.members)) == (0, 1)


def test_a_topic_that_is_asked_for_a_thousand_times_is_told_of_once() -> None:
    with EmbeddedBroker() as broker, Talk(broker.addresses()[0]) as talk:
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
    call = Call(CREATE_TOPICS, 4, CreateTopicsRequest(topics=topics), "", "", "", "", told.append)
    with EmbeddedBroker() as broker:
        answer = broker.call(lambda cluster: create_topics(cluster.nodes[0], call))
    assert {row.error_code for row in answer.topics} == {INVALID_TOPIC}
    assert len(answer.topics) == 1000
    assert topics.times <= 3


def test_a_login_does_not_show_passwords() -> None:
    assert "secret" not in repr(Login({"ann": "secret"}))


def _request(api: Api[Any, Any], version: int, body: Any) -> bytes:
    return encode_request(api, version, 1, "raw", body)


def test_a_request_that_fails_here_ends_its_own_connection_and_not_the_answers_to_others() -> None:
    """A group is answered member by member, and behind the first one's answer its next request is looked at."""
    with EmbeddedBroker(properties=QUICK | {"group.initial.rebalance.delay.ms": "500"}) as broker:
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

        def break_metadata(cluster: Cluster) -> None:
            for node in cluster.nodes.values():
                node.apis.handlers[METADATA.key] = fails

        with Talk(at) as talk, socket.create_connection((at.host, at.port), 10) as hostile:
            while talk.find_coordinator("g").error_code:
                time.sleep(0.01)
            broker.call(break_metadata)
            hostile.sendall(_request(JOIN_GROUP, 2, body) + _request(METADATA, 1, MetadataRequest(topics=None)))
            time.sleep(0.1)
            assert len(talk.ask(JOIN_GROUP, 2, body, 3_000).member_id) > 0, "the second of the two is answered"
            hostile.settimeout(10)
            while hostile.recv(65_536):
                pass
