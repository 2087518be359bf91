"""What a ZooKeeper member's program gets to know of topics that brokers refuse, or do not have."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from bridge.testing.fake_environment import FakeEnvironment
from bridge.testing.fake_faults import PartitionError, TopicError
from tests.in_memory_fixtures import DEADLINE_MS, MakeConnector, MakeWorld, take, wait_until
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.errors import InvalidTopicException, TopicAuthorizationException, UsageError
from zkconsumer.kafka import fetcher_manager
from zkconsumer.kafka.error_codes import INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED
from zkconsumer.kafka.metadata_client import fetch_leaders
from zkconsumer.kafka.topic_errors import topic_exception_of
from zkconsumer.kafka.version_negotiation import negotiate
from zkconsumer.member import group_view_log
from zkconsumer.member.log_rate_limiter import LogRateLimiter
from zkconsumer.member.topic_filter import Whitelist
from zkconsumer.runtime import command_executor, topic_error_handler
from zkconsumer.types import Hooks, TopicPartition
from zkconsumer.wire.schemas import FETCH, LIST_OFFSETS
from zkconsumer.zk import paths

DENIED, INVALID, MISSING = 29, 17, 3
KINDS = {DENIED: TopicAuthorizationException, INVALID: InvalidTopicException}
QUICK = {"refresh_leader_backoff_ms": 10, "rebalance_backoff_ms": 50, "metadata_max_age_ms": 100, "consumer_id": "a"}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher_manager, "UNKNOWN_TOPIC_LOG_AFTER_MS", 0)


def from_kafka(world: FakeEnvironment) -> dict[str, Any]:
    """The settings of a member that learns topics from Kafka."""
    address = world.cluster.address(0)
    return QUICK | {"bootstrap_servers": f"{address.host}:{address.port}"}


def refuse(world: FakeEnvironment, topic: str, code: int) -> Any:
    return world.cluster.inject(TopicError(topic, code), times=None)


def is_registered(world: FakeEnvironment) -> bool:
    return world.zookeeper.data(paths.registration("g", "g_a")) is not None


# --- topics from Kafka ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", KINDS)
def test_a_topic_that_the_brokers_refuse_is_an_error_before_the_member_joins(
    code: int,
    world: FakeEnvironment,
    connect: MakeConnector,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    registered: list[object] = []
    monkeypatch.setattr(command_executor, "register_member", lambda *what: registered.append(what))
    world.create_topic("t", 2)
    world.create_topic("open", 2)
    refuse(world, "t", code)
    connector = connect(group_id="g", **from_kafka(world))
    with pytest.raises(KINDS[code], match=rf"'t'.*\({code}\)"):
        connector.create_message_streams({"t": 1, "open": 1})
    connector.close()
    assert registered == [], "it never stood in the way of the others"
    assert "group-read-failed" not in caplog.text
    assert caplog.text.count("member-failed") == 1


def test_rights_that_are_taken_away_end_the_streams(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic("t")
    world.cluster.append("t", 0, [b"a"])
    connector = connect(group_id="g", **from_kafka(world))
    [stream] = connector.create_message_streams({"t": 1})["t"]
    take(stream, 1)
    refuse(world, "t", DENIED)
    with pytest.raises(TopicAuthorizationException, match="allow DESCRIBE and READ"):
        take(stream, 1)
    with pytest.raises(TopicAuthorizationException):
        connector.commit_offsets()
    wait_until(lambda: not is_registered(world), "it has left the group for the sake of the others")


def test_a_filter_takes_what_the_user_may_see(world: FakeEnvironment, connect: MakeConnector) -> None:
    """Brokers leave out of all topics those that the user may not describe."""
    for topic in ("t-open", "t-hidden"):
        world.create_topic(topic)
        world.cluster.append(topic, 0, [b"a"])
    hidden = refuse(world, "t-hidden", DENIED)
    connector = connect(group_id="g", **from_kafka(world))
    [stream] = connector.create_message_streams_by_filter(Whitelist("t-.*"))
    assert [message.topic for message in take(stream, 1)] == ["t-open"]
    world.cluster.lift(hidden)
    assert [message.topic for message in take(stream, 1)] == ["t-hidden"]


def test_a_topic_that_only_another_member_reads_is_left_out_with_a_line(
    world: FakeEnvironment, connect: MakeConnector, caplog: pytest.LogCaptureFixture
) -> None:
    """Under roundrobin every topic of the group counts, also one that this member's user may not see."""
    world.create_topic("mine", 2)
    world.create_topic("other", 1)
    world.cluster.append("other", 0, [b"a"])
    other = connect(group_id="g", consumer_id="b", partition_assignment_strategy="roundrobin")
    take(other.create_message_streams({"other": 1})["other"][0], 1)
    refuse(world, "other", DENIED)
    alerts: list[str] = []

    class Alerts(Hooks):
        def warning_logged(self, level: str, event: str, words: str) -> None:
            alerts.append(event)

    settings = from_kafka(world) | {"partition_assignment_strategy": "roundrobin", "hooks": Alerts()}
    connector = connect(group_id="g", **settings)
    connector.create_message_streams({"mine": 1})
    wait_until(lambda: {tp.topic for tp in connector.assignment} == {"mine"}, "its own topic is read")
    assert connector._member.membership.failure is None
    lines = [line for line in caplog.messages if line.startswith("topic-ignored")]
    assert len(lines) == 1, "readings of the group do not repeat it"
    assert "topic=other reason='TOPIC_AUTHORIZATION_FAILED (29)'" in lines[0]
    wait_until(lambda: "topic-ignored" in alerts, "the hook is called")


# --- topics from ZooKeeper ------------------------------------------------------------------------------------------


def read_one(connector: ZookeeperConsumerConnector) -> None:
    """Take one record of ``t``.  An error comes from either call: the broker may refuse before the first is over."""
    [stream] = connector.create_message_streams({"t": 1})["t"]
    take(stream, 1)


@pytest.mark.parametrize("code", KINDS)
def test_the_leader_of_a_topic_that_is_refused_is_not_looked_for_in_silence(
    code: int, world: FakeEnvironment, connect: MakeConnector
) -> None:
    """The Scala consumer asks again every ``refresh.leader.backoff.ms`` and logs nothing."""
    world.create_topic("t")
    refuse(world, "t", code)
    with pytest.raises(KINDS[code], match=rf"'t'.*\({code}\)"):
        read_one(connect(group_id="g", **QUICK))
    wait_until(lambda: not is_registered(world), "it has left the group")


@pytest.mark.parametrize("api", [FETCH, LIST_OFFSETS])
def test_a_topic_that_may_be_described_and_not_read_is_an_error(
    api: Any, world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic("t")
    world.cluster.inject(PartitionError(TopicPartition("t", 0), DENIED), api=api, times=None)
    with pytest.raises(TopicAuthorizationException, match="allow DESCRIBE and READ"):
        read_one(connect(group_id="g", **QUICK))


@pytest.mark.parametrize("where", ["metadata", "fetch"])
def test_a_filter_reads_the_other_topics_and_says_which_it_cannot_read(
    where: str, world: FakeEnvironment, connect: MakeConnector, caplog: pytest.LogCaptureFixture
) -> None:
    """ZooKeeper names every topic to everybody, so a filter matches also what is not meant for this user."""
    for topic in ("t-open", "t-secret"):
        world.create_topic(topic)
    secret = TopicPartition("t-secret", 0)
    fault: Any = TopicError("t-secret", DENIED) if where == "metadata" else PartitionError(secret, DENIED)
    injected = world.cluster.inject(fault, api=None if where == "metadata" else FETCH, times=None)
    [stream] = connect(group_id="g", **QUICK).create_message_streams_by_filter(Whitelist("t-.*"))
    wait_until(lambda: injected.hits > 20, "brokers are asked again and again")
    world.cluster.append("t-open", 0, [b"a"])
    world.cluster.append("t-secret", 0, [b"a"])
    assert [message.topic for message in take(stream, 1)] == ["t-open"]
    lines = [line for line in caplog.messages if line.startswith("topic-ignored")]
    assert len(lines) == 1, "and that is said rarely"
    world.cluster.lift(injected)
    assert [message.topic for message in take(stream, 1)] == ["t-secret"]


@pytest.mark.parametrize(("release", "code"), [("4.1.1", MISSING), ("0.10.2.2", MISSING), ("0.9.0.1", DENIED)])
def test_a_topic_that_brokers_do_not_know_is_a_line_and_is_read_when_they_do(
    release: str, code: int, make_world: MakeWorld, connect: MakeConnector, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker before 0.11 answers 29 also for a topic that is being deleted, when this user may not create it."""
    world = make_world(release=release)
    for topic in ("there", "late"):
        world.create_topic(topic)
        world.cluster.append(topic, 0, [b"a"])
    late = refuse(world, "late", code)
    streams = connect(on=world, group_id="g", **QUICK).create_message_streams({"there": 1, "late": 1})
    assert [message.value for message in take(streams["there"][0], 1)] == [b"a"]
    wait_until(lambda: late.hits > 20, "brokers are asked again and again")
    [line] = [line for line in caplog.messages if line.startswith("topic-without-leaders")]
    assert f"topic=late reason='{fault_name(code)} ({code})'" in line
    world.cluster.lift(late)
    assert [message.value for message in take(streams["late"][0], 1)] == [b"a"]


def fault_name(code: int) -> str:
    return {DENIED: "TOPIC_AUTHORIZATION_FAILED", MISSING: "UNKNOWN_TOPIC_OR_PARTITION"}[code]


@pytest.mark.parametrize(("release", "is_final"), [("0.10.2.2", False), ("0.11.0.3", True), ("4.1.1", True)])
def test_which_brokers_answer_29_to_nothing_but_a_missing_right(release: str, is_final: bool) -> None:
    world = FakeEnvironment(release=release)
    world.create_topic("t")
    refuse(world, "t", DENIED)
    connection = world.cluster.connect(*world.cluster.address(0)[1:])
    leaders = fetch_leaders(connection, negotiate(connection, DEADLINE_MS), ["t"], DEADLINE_MS)
    assert leaders.topic_errors == {"t": TOPIC_AUTHORIZATION_FAILED}
    assert leaders.rejected_topics == (leaders.topic_errors if is_final else {})
    world.stop()


# --- missing topics -------------------------------------------------------------------------------------------------


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lasts is said again every 30 ms, instead of every minute."""
    monkeypatch.setattr(group_view_log, "LOG_REPEAT_MS", 30)
    monkeypatch.setattr(group_view_log, "LogRateLimiter", lambda: LogRateLimiter(repeat_ms=30))
    monkeypatch.setattr(topic_error_handler, "LogRateLimiter", lambda: LogRateLimiter(repeat_ms=30))


@pytest.mark.usefixtures("repeated")
@pytest.mark.parametrize("learns_from", ["zookeeper", "kafka"])
def test_a_missing_topic_is_logged_again_and_again_until_it_is_there(
    learns_from: str, world: FakeEnvironment, connect: MakeConnector, caplog: pytest.LogCaptureFixture
) -> None:
    world.create_topic("there")
    world.cluster.append("there", 0, [b"a"])
    settings = from_kafka(world) if learns_from == "kafka" else QUICK
    streams = connect(group_id="g", **settings).create_message_streams({"there": 1, "late": 1})
    with caplog.at_level(logging.WARNING):
        wait_until(lambda: caplog.text.count("topic-missing") >= 3, "it is logged again")
    assert [message.value for message in take(streams["there"][0], 1)] == [b"a"], "the other topic is read meanwhile"
    world.create_topic("late")
    world.cluster.append("late", 0, [b"b"])
    assert [message.value for message in take(streams["late"][0], 1)] == [b"b"]


@pytest.mark.usefixtures("repeated")
def test_a_member_that_has_ended_says_nothing_more(
    world: FakeEnvironment, connect: MakeConnector, caplog: pytest.LogCaptureFixture
) -> None:
    world.create_topic("t")
    connector: ZookeeperConsumerConnector = connect(group_id="g", **QUICK)
    connector.create_message_streams({"t": 1, "missing": 1})
    errors = {"t": TOPIC_AUTHORIZATION_FAILED, "other": TOPIC_AUTHORIZATION_FAILED}
    for _ in range(3):
        connector._member.membership.topics_rejected(errors)
    assert caplog.text.count("member-failed") == 1
    assert caplog.text.count("topic-ignored") == 1


# --- the parts ------------------------------------------------------------------------------------------------------


def test_a_missing_right_is_named_before_a_wrong_name_and_few_topics_are_named() -> None:
    both: UsageError = topic_exception_of({"a": INVALID_TOPIC_EXCEPTION, "b": TOPIC_AUTHORIZATION_FAILED})
    assert isinstance(both, TopicAuthorizationException)
    assert "topic 'b' (TOPIC_AUTHORIZATION_FAILED (29))" in str(both)
    many = topic_exception_of({f"t{n}": INVALID_TOPIC_EXCEPTION for n in range(7)})
    assert "the topics 't0', 't1', 't2', 't3', 't4' and 2 more (INVALID_TOPIC_EXCEPTION (17))" in str(many)


def test_what_lasts_is_due_at_first_and_then_rarely() -> None:
    reminders = LogRateLimiter(repeat_ms=100)
    assert reminders.select_due({"b", "a"}, 0) == ["a", "b"]
    assert reminders.select_due({"a", "b", "c"}, 99) == ["c"]
    assert reminders.select_due({"a", "c"}, 100) == ["a"]
    assert reminders.select_due({"a", "b", "c"}, 101) == ["b"], "it was over in between"
    assert reminders.select_due({"a", "c"}, 199) == ["c"]


def test_what_may_pass_by_itself_is_due_only_when_it_has_lasted() -> None:
    reminders = LogRateLimiter(repeat_ms=100, first_after_ms=10)
    assert reminders.select_due({"a"}, 0) == []
    assert reminders.select_due({"a"}, 9) == []
    assert reminders.select_due({"a"}, 10) == ["a"]
    assert reminders.select_due({"a"}, 109) == []
    assert reminders.select_due((), 110) == []
    assert reminders.select_due({"a"}, 111) == []
