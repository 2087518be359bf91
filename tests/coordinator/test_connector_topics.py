"""What the program of a coordinator's member gets to know of topics that brokers refuse, or do not have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from bridge import CoordinatorConsumerConnector
from bridge.client import group_topics as group_topics
from bridge.client.assignors import RangeAssignor
from bridge.coordinator.api_request import AclOperation
from bridge.testing.embedded_broker import EmbeddedBroker
from tests.broker.raw_client import RawClient
from tests.coordinator.test_connector_embedded import QUICK, config_of, read_until, wait_until
from zkconsumer import TopicPartition, Whitelist
from zkconsumer.base.threads import live_threads
from zkconsumer.errors import InvalidTopicException, TopicAuthorizationException, ZkConsumerError
from zkconsumer.kafka import topic_finder
from zkconsumer.kafka.error_codes import INVALID_TOPIC_EXCEPTION
from zkconsumer.kafka.group.errors import AssignorFailed
from zkconsumer.kafka.group.partition_assignor import Assignment
from zkconsumer.kafka.metadata_client import fetch_topics
from zkconsumer.member.log_rate_limiter import LogRateLimiter
from zkconsumer.wire.consumer_protocol import Subscription, encode_subscription
from zkconsumer.wire.schemas import JOIN_GROUP
from zkconsumer.wire.schemas.join_group import JoinGroupProtocol, JoinGroupRequest

WAIT_MS = 30_000

Make = Callable[..., CoordinatorConsumerConnector]


class Acls:
    """Everything is allowed but what is in ``denied``: (operation, topic)."""

    def __init__(self) -> None:
        self.denied: set[tuple[AclOperation, str]] = set()

    def __call__(self, principal: str, operation: AclOperation, resource: str, name: str) -> bool:
        return resource != "topic" or (operation, name) not in self.denied

    def hide(self, topic: str) -> None:
        self.denied |= {(AclOperation.DESCRIBE, topic), (AclOperation.READ, topic)}


@pytest.fixture
def acls() -> Acls:
    return Acls()


@pytest.fixture
def broker(acls: Acls) -> Iterator[EmbeddedBroker]:
    before = live_threads()
    with EmbeddedBroker(properties={"offsets.topic.num.partitions": "5"}, authorizer=acls) as made:
        for topic in ("t", "u"):
            made.create_topic(topic, 1)
            made.append(topic, 0, [b"x"])
        yield made
    assert live_threads() == before


@pytest.fixture
def make(broker: EmbeddedBroker) -> Iterator[Make]:
    with ExitStack() as stack:

        def connector(**how: Any) -> CoordinatorConsumerConnector:
            return stack.enter_context(CoordinatorConsumerConnector(config_of(broker, **how), QUICK))

        yield connector


def failure_of(connector: CoordinatorConsumerConnector) -> ZkConsumerError | None:
    return connector._member.membership.failure


def topics_of(connector: CoordinatorConsumerConnector) -> set[str]:
    return {tp.topic for tp in connector.assignment}


def test_a_topic_that_the_user_may_not_see_is_an_error_of_the_first_call(
    acls: Acls, broker: EmbeddedBroker, make: Make
) -> None:
    acls.hide("t")
    connector = make()
    with pytest.raises(TopicAuthorizationException, match=r"topic 't' \(TOPIC_AUTHORIZATION_FAILED \(29\)\): allow"):
        connector.create_message_streams({"t": 1, "u": 1})
        wait_until(lambda: failure_of(connector), "it ends")
        connector.commit_offsets()
    other = make()
    [stream] = other.create_message_streams({"u": 1})["u"]
    assert read_until(stream, 1) == [(0, 0)], "the group is not kept waiting"


def test_rights_that_are_taken_away_end_the_streams(acls: Acls, make: Make) -> None:
    connector = make()
    [stream] = connector.create_message_streams({"t": 1})["t"]
    assert read_until(stream, 1) == [(0, 0)]
    acls.hide("t")
    with pytest.raises(TopicAuthorizationException, match="allow DESCRIBE and READ"):
        read_until(stream, 1)


def test_a_topic_that_may_be_described_and_not_read_is_an_error(acls: Acls, make: Make) -> None:
    acls.denied.add((AclOperation.READ, "t"))
    connector = make()
    with pytest.raises(TopicAuthorizationException, match="topic 't'"):  # of either call
        [stream] = connector.create_message_streams_by_filter(Whitelist("t"))
        read_until(stream, 1)


def test_a_filter_takes_what_the_user_may_see(acls: Acls, broker: EmbeddedBroker, make: Make) -> None:
    acls.hide("t")
    connector = make()
    [stream] = connector.create_message_streams_by_filter(Whitelist("t|u"))
    assert read_until(stream, 1) == [(0, 0)]
    assert topics_of(connector) == {"u"}
    acls.denied.clear()
    wait_until(lambda: topics_of(connector) == {"t", "u"}, "it is taken up when the user may see it")


def named_invalid(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Brokers say of these that no topic can have such a name."""

    def fetch(*asked: Any) -> Any:
        found, brokers = fetch_topics(*asked)
        wrong = {name: replace(topic, error=INVALID_TOPIC_EXCEPTION, partitions=()) for name, topic in found.items()}
        return {name: wrong[name] if name in names else topic for name, topic in found.items()}, brokers

    monkeypatch.setattr(topic_finder, "fetch_topics", fetch)


def test_a_name_that_no_topic_can_have_is_an_error(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    named_invalid(monkeypatch, "t")
    connector = make()
    with pytest.raises(InvalidTopicException, match=r"topic 't' \(INVALID_TOPIC_EXCEPTION \(17\)\): correct it"):
        connector.create_message_streams({"t": 1, "u": 1})
        wait_until(lambda: failure_of(connector), "it ends")
        connector.commit_offsets()


def join_and_be_silent(talk: RawClient, topic: str) -> None:
    """One more member of the group, which reads this topic."""
    metadata = encode_subscription(Subscription(topics=(topic,)))
    body = JoinGroupRequest(
        group_id="g", session_timeout_ms=60_000, rebalance_timeout_ms=60_000, member_id="", protocol_type="consumer",
        protocols=[JoinGroupProtocol(name="range", metadata=metadata)],
    )  # fmt: skip
    talk.connection.send(JOIN_GROUP, 2, body, WAIT_MS)


def test_a_leader_that_may_not_see_a_topic_of_another_member_ends_as_kafkas_does(
    acls: Acls, broker: EmbeddedBroker, make: Make
) -> None:
    """It would leave that topic without an owner; the next leader may have the right."""
    leader = make()
    leader.create_message_streams({"t": 1})
    wait_until(lambda: topics_of(leader), "it leads")
    acls.hide("u")
    with RawClient(broker.addresses()[0]) as other:
        join_and_be_silent(other, "u")
        wait_until(lambda: failure_of(leader), "it ends")
    assert isinstance(failure_of(leader), TopicAuthorizationException)


def test_a_wrong_name_of_another_member_is_left_out_by_the_leader(
    broker: EmbeddedBroker, make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leader = make()
    [stream] = leader.create_message_streams({"t": 1})["t"]
    wait_until(lambda: topics_of(leader), "it leads")  # a member that comes first leads, and this one is silent
    named_invalid(monkeypatch, "u")
    with RawClient(broker.addresses()[0]) as other:
        join_and_be_silent(other, "u")
        wait_until(lambda: "topic-ignored" in caplog.text, "it is said")
        wait_until(lambda: leader.generation >= 2 and topics_of(leader), "the group is divided without it")
    assert "topic=u reason='INVALID_TOPIC_EXCEPTION (17)'" in caplog.text
    assert read_until(stream, 1) == [(0, 0)]
    assert failure_of(leader) is None


def test_a_missing_topic_is_logged_again_and_again_until_it_is_there(
    broker: EmbeddedBroker, make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("bridge.client.coordinator_membership.TOPIC_CHECK_INTERVAL_MS", 20)
    monkeypatch.setattr(group_topics, "LogRateLimiter", lambda: LogRateLimiter(repeat_ms=20))
    monkeypatch.setattr(topic_finder, "MISSING_POLL_MS", 50)
    connector = make()
    streams = connector.create_message_streams({"t": 1, "late": 1})
    wait_until(lambda: caplog.text.count("topic-missing") >= 3, "it is logged again")
    assert "topic=late: no topic of this name exists" in caplog.text
    obstacles = ["the topic late does not exist: create it, or correct its name or the chroot"]
    wait_until(lambda: connector.reading_problems(10_000) == obstacles, "all but the topic is there")
    assert read_until(streams["t"][0], 1) == [(0, 0)], "the other topic is read meanwhile"
    broker.create_topic("late", 1)
    broker.append("late", 0, [b"x"])
    assert read_until(streams["late"][0], 1) == [(0, 0)]
    lines = caplog.text.count("topic-missing")
    assert TopicPartition("late", 0) in connector.assignment
    connector.commit_offsets()
    assert caplog.text.count("topic-missing") == lines, "nothing more is logged"


def test_a_filter_that_matches_no_topic_is_logged_as_a_warning(
    broker: EmbeddedBroker, make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "zkconsumer.member")
    connector = make()
    connector.create_message_streams_by_filter(Whitelist("late|later"))

    def said() -> list[tuple[str, str]]:
        lines = [record for record in caplog.records if record.getMessage().startswith("filter-topics-changed")]
        return [(record.levelname, record.getMessage().partition(" topics=")[2]) for record in lines]

    nothing = "0 came=0 [] gone=0 []: no topic matches the filter; one that is created later is read"
    wait_until(lambda: said() == [("WARNING", nothing)], "it is a warning")
    broker.create_topic("late", 1)
    wait_until(lambda: TopicPartition("late", 0) in connector.assignment, "it is read")
    assert said()[1:] == [("INFO", "1 came=1 ['late'] gone=0 []")]


class Generous(RangeAssignor):
    """Gives a topic to its members to which they do not subscribe."""

    def assign(self, partitions: Any, subscriptions: Any, racks: Any = None) -> dict[str, Assignment]:
        shares = super().assign(partitions, subscriptions, racks)
        return {
            member: Assignment((*share.partitions, TopicPartition("u", 0)), share.user_data)
            for member, share in shares.items()
        }


@pytest.mark.parametrize("by_filter", [False, True])
def test_what_no_stream_reads_is_never_held(by_filter: bool, broker: EmbeddedBroker) -> None:
    """A leader gives a member what it does not subscribe to: before, one with a filter held it, and read nothing."""
    with CoordinatorConsumerConnector(config_of(broker), QUICK, assignors=[Generous()]) as connector:
        with pytest.raises(
            AssignorFailed, match=r"\['u'\] to this member, which does not subscribe to them, 3 times in a row"
        ):
            if by_filter:
                connector.create_message_streams_by_filter(Whitelist("t"))
            else:
                connector.create_message_streams({"t": 1})
        assert connector.assignment == {}
        assert connector.counters["assignment_unsubscribed"] == 3
