"""Topics and brokers from Kafka (``bootstrap.servers``): a group in ZooKeeper on a cluster that is not there."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from bridge.testing.fake_cluster import FakeCluster
from bridge.testing.fake_environment import FakeEnvironment
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.errors import AuthenticationException, BrokerUnreachable, ConnectorClosed, RemoteProtocolError
from zkconsumer.kafka import topic_finder
from zkconsumer.kafka.bootstrap_brokers import BootstrapBrokers
from zkconsumer.kafka.bootstrap_client import BootstrapClient
from zkconsumer.kafka.broker_connection import Connection
from zkconsumer.kafka.metadata_client import TopicDescription, fetch_topics
from zkconsumer.kafka.topic_finder import MISSING_RESPONSES_MIN, TopicFinder
from zkconsumer.kafka.version_negotiation import negotiate
from zkconsumer.member.topic_filter import Whitelist
from zkconsumer.testing.fake_zookeeper import FakeZooKeeper
from zkconsumer.testing.sandbox.waiting import wait_until
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.wire.field_types import NO_UUID
from zkconsumer.wire.schemas import METADATA
from zkconsumer.wire.schemas.metadata import MetadataRequest
from zkconsumer.zk import paths

DEADLINE_MS = 30_000
"""Only what does not happen takes so long."""
TOPIC = "clicks"


@pytest.fixture
def world() -> Iterator[FakeEnvironment]:
    """A KRaft cluster, and a ZooKeeper that has never heard of it."""
    with FakeEnvironment(release="4.1.1") as made:
        made.zookeeper.stop()
        made.zookeeper = FakeZooKeeper(delivery="thread")
        made.zookeeper.ensure(paths.CONSUMERS)
        made.cluster.create_topic(TOPIC, 2)
        yield made


def member(world: FakeEnvironment, consumer_id: str = "a", **settings: Any) -> ZookeeperConsumerConnector:
    address = world.cluster.address(0)
    return world.connector(
        consumer_id=consumer_id,
        bootstrap_servers=f"{address.host}:{address.port}",
        metadata_max_age_ms=100,
        auto_offset_reset="smallest",
        consumer_timeout_ms=DEADLINE_MS,
        rebalance_backoff_ms=50,
        refresh_leader_backoff_ms=10,
        **settings,
    )


def append(world: FakeEnvironment, partition: int, count: int, topic: str = TOPIC) -> None:
    world.cluster.append(topic, partition, [b"%d" % n for n in range(count)])


def held(connector: ZookeeperConsumerConnector) -> list[int]:
    return sorted(tp.partition for tp in connector.assignment)


# --- a member --------------------------------------------------------------------------------------------------------


def test_a_group_reads_a_cluster_that_zookeeper_does_not_know(world: FakeEnvironment) -> None:
    append(world, 0, 3)
    append(world, 1, 3)
    one = member(world)
    [stream] = one.create_message_streams({TOPIC: 1})[TOPIC]
    read = iter(stream)
    assert sorted(next(read).partition for _ in range(6)) == [0, 0, 0, 1, 1, 1]
    one.commit_offsets()
    assert {n: world.zookeeper.data(paths.offset("g1", TopicPartition(TOPIC, n))) for n in (0, 1)} == {0: b"3", 1: b"3"}
    assert world.zookeeper.data(paths.BROKER_TOPICS) is None, "nothing of Kafka's own is made in ZooKeeper"


def test_two_members_share_and_a_topic_grows(world: FakeEnvironment) -> None:
    one, two = member(world, "a"), member(world, "b")
    one.create_message_streams({TOPIC: 1})
    [stream] = two.create_message_streams({TOPIC: 1})[TOPIC]
    wait_until(lambda: (held(one), held(two)) == ([0], [1]), "both have their share", DEADLINE_MS)
    world.cluster.add_partitions(TOPIC, 4)
    wait_until(lambda: (held(one), held(two)) == ([0, 1], [2, 3]), "both have seen the new partitions", DEADLINE_MS)
    append(world, 3, 1)
    assert next(iter(stream)).partition == 3


def test_a_topic_that_comes_later_is_taken_up_and_never_created(
    world: FakeEnvironment, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_finder, "MISSING_POLL_MS", 50)
    world.cluster.set_auto_creation(3)
    one = member(world)
    one.create_message_streams({"later": 1})
    wait_until(lambda: " topic=later: no topic of this name exists" in caplog.text, "it is missed", DEADLINE_MS)
    assert one.assignment == {}
    asked = [seen.body for seen in world.cluster.requests if seen.api is METADATA]
    assert asked
    assert not any(body.allow_auto_topic_creation for body in asked if isinstance(body, MetadataRequest))
    world.cluster.create_topic("later", 1)
    wait_until(lambda: held(one) == [0], "it is taken up", DEADLINE_MS)


def test_a_filter_takes_new_topics_of_kafka(world: FakeEnvironment) -> None:
    one = member(world)
    one.create_message_streams_by_filter(Whitelist("cl.*|new"), 1)
    wait_until(lambda: held(one) == [0, 1], "what is there", DEADLINE_MS)
    world.cluster.create_topic("new", 1)
    world.cluster.create_topic("other", 1)
    wait_until(lambda: TopicPartition("new", 0) in one.assignment, "what is new", DEADLINE_MS)
    assert "other" not in {tp.topic for tp in one.assignment}


def test_a_deleted_topic_is_given_back(world: FakeEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_finder, "RETRY_POLL_MS", 20)
    one = member(world)
    one.create_message_streams({TOPIC: 1})
    wait_until(lambda: held(one) == [0, 1], "the share", DEADLINE_MS)
    world.cluster.delete_topic(TOPIC)
    wait_until(lambda: held(one) == [], "given back", DEADLINE_MS)


def test_a_member_that_starts_before_its_brokers_goes_on_when_they_come(
    world: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_finder, "RETRY_POLL_MS", 20)
    world.cluster.stop_broker(0)
    one = member(world, zookeeper_session_timeout_ms=200)
    one.create_message_streams({TOPIC: 1})
    assert one.assignment == {}
    world.cluster.start_broker(0)
    wait_until(lambda: held(one) == [0, 1], "the share", DEADLINE_MS)


def test_a_member_that_waits_for_its_brokers_leaves_at_once(
    world: FakeEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    world.cluster.stop_broker(0)
    one = member(world, zookeeper_session_timeout_ms=200)
    one.create_message_streams({TOPIC: 1})
    began_ms = SYSTEM_CLOCK.now_ms()
    one.close()
    assert SYSTEM_CLOCK.now_ms() - began_ms < 3_000
    assert "close-incomplete" not in caplog.text
    assert "group-read-failed" not in caplog.text, "that brokers are down is said once, in its own words"


def test_an_outage_of_the_brokers_moves_no_partition(world: FakeEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_finder, "RETRY_POLL_MS", 20)
    one = member(world)
    [stream] = one.create_message_streams({TOPIC: 1})[TOPIC]
    wait_until(lambda: held(one) == [0, 1], "the share", DEADLINE_MS)
    releases = one.counters.get("releases", 0)
    world.cluster.stop_broker(0)
    one._closing.wait(0.3)
    world.cluster.start_broker(0)
    append(world, 0, 1)
    assert next(iter(stream)).partition == 0
    assert held(one) == [0, 1]
    assert one.counters.get("releases", 0) == releases


def test_the_thread_ends_with_the_connector(world: FakeEnvironment) -> None:
    one = member(world)
    one.create_message_streams({TOPIC: 1})
    finder = one._member.membership.topic_finder
    assert finder is not None
    one.close()
    assert finder.join(0)


# --- the finder alone ------------------------------------------------------------------------------------------------


class Bench:
    """A finder whose answers are written by the test; nothing is asked by itself."""

    def __init__(self, *, watches_racks: bool = False) -> None:
        self.changes = 0
        self.finder = TopicFinder(
            "m",
            BootstrapClient(lambda *_, **__: pytest.fail("no broker is asked"), list, "g", 1_000),
            10_000,
            SYSTEM_CLOCK,
            watches_racks=watches_racks,
            on_brokers=lambda _: None,
            on_change=self._changed,
            on_authentication_error=lambda _: None,
            on_thread_error=lambda *_: None,
        )

    def _changed(self) -> None:
        self.changes += 1

    def told(self, names: Sequence[str] | None, **topics: TopicDescription) -> bool:
        """An answer; whether it said something new."""
        self.finder._wanted = frozenset(names or ())
        return self.finder._apply_response(topics, names)


def a_topic(*partitions: int, topic_id: bytes = b"1") -> TopicDescription:
    return TopicDescription(partitions, topic_id)


def test_a_part_of_an_answer_takes_no_partition_away() -> None:
    bench = Bench()
    assert bench.told(["t"], t=a_topic(0, 1, 2))
    assert not bench.told(["t"], t=a_topic(0, 2))
    assert bench.finder.partitions("t") == (0, 1, 2)
    assert bench.told(["t"], t=a_topic(3))
    assert bench.finder.partitions("t") == (0, 1, 2, 3)


def test_a_topic_that_was_made_anew_may_be_smaller() -> None:
    bench = Bench()
    bench.told(["t"], t=a_topic(0, 1, 2))
    assert bench.finder.incarnation("t") == 0
    assert bench.told(["t"], t=a_topic(0, topic_id=b"2"))
    assert bench.finder.partitions("t") == (0,)
    assert bench.finder.incarnation("t") == 1
    assert bench.told(["t"], t=a_topic(0, topic_id=b"3")), "as large as before, and another topic all the same"


def test_a_broker_that_tells_no_id_makes_no_other_topic_of_it() -> None:
    bench = Bench()
    bench.told(["t"], t=a_topic(0, 1, topic_id=NO_UUID))
    for topic_id in (b"1", NO_UUID, b"1"):
        assert not bench.told(["t"], t=a_topic(0, 1, topic_id=topic_id))
    assert bench.finder.incarnation("t") == 0
    assert bench.told(["t"], t=a_topic(0, 1, topic_id=b"2"))
    assert bench.finder.incarnation("t") == 1


def test_a_broker_that_has_not_learnt_of_the_new_topic_yet_does_not_make_it_new_again() -> None:
    bench = Bench()
    bench.told(["t"], t=a_topic(0, 1, 2))
    assert bench.told(["t"], t=a_topic(0, topic_id=b"2"))
    assert not bench.told(["t"], t=a_topic(0, 1, 2)), "an id that was replaced never comes back"
    assert not bench.told(["t"], t=a_topic(0, topic_id=b"2"))
    assert (bench.finder.partitions("t"), bench.finder.incarnation("t")) == ((0,), 1)


def test_a_topic_that_brokers_had_only_forgotten_for_a_while_comes_back() -> None:
    bench = Bench()
    bench.told(["t"], t=a_topic(0))
    for _ in range(MISSING_RESPONSES_MIN):
        bench.told(["t"])
    assert bench.told(["t"], t=a_topic(0)), "the same id"
    assert bench.finder.partitions("t") == (0,)


def on_racks(**racks: str) -> TopicDescription:
    """``p0="ab"``: partition 0 has replicas on the racks a and b."""
    told = {int(name[1:]): frozenset(text) for name, text in racks.items()}
    return TopicDescription(tuple(told), b"1", racks=told)


def test_other_racks_are_a_change_for_whoever_watches_them() -> None:
    bench = Bench(watches_racks=True)
    bench.told(["t"], t=on_racks(p0="ab", p1="b"))
    assert not bench.told(["t"], t=on_racks(p0="ba", p1="b"))
    assert bench.told(["t"], t=on_racks(p0="ac", p1="b"))
    assert bench.finder.racks("t")[0] == frozenset("ac")
    blind = Bench()
    blind.told(["t"], t=on_racks(p0="ab"))
    assert not blind.told(["t"], t=on_racks(p0="ac"))


def test_what_an_answer_leaves_out_has_the_racks_of_before() -> None:
    bench = Bench(watches_racks=True)
    bench.told(["t"], t=on_racks(p0="ab", p1="b"))
    assert not bench.told(["t"], t=on_racks(p1="b")), "a part of an answer"
    assert not bench.told(["t"], t=a_topic(0, 1)), "a broker that tells no racks"
    assert bench.finder.racks("t") == {0: frozenset("ab"), 1: frozenset("b")}


def test_a_question_that_is_taken_back_goes_to_no_further_broker() -> None:
    """Of brokers that swallow packets each would take its whole time-out, long after the connector was closed."""
    tried: list[int] = []

    def connect(_: str, port: int, **__: object) -> Connection:
        tried.append(port)
        raise BrokerUnreachable("nobody answers")

    brokers = [BrokerAddress(n, "h", n) for n in range(5)]
    with pytest.raises(ConnectorClosed):
        BootstrapClient(connect, lambda: brokers, "g", 1_000).execute(lambda *_: None, lambda: bool(tried))
    assert len(tried) == 1


def test_a_stop_that_comes_just_before_the_finder_waits_is_not_missed() -> None:
    class JustThen:
        """Set between the look at it and the lock: whoever set it has found nobody to wake."""

        looks = 0

        def is_set(self) -> bool:
            self.looks += 1
            return self.looks > 1

    bench = Bench()
    running = threading.Thread(target=bench.finder._run, args=(JustThen(),), daemon=True)
    running.start()
    running.join(DEADLINE_MS / 1000)
    is_over = not running.is_alive()
    bench.finder._wake()
    assert is_over


@pytest.mark.parametrize("names", [["t"], None])
def test_a_topic_is_gone_only_when_answers_in_a_row_say_so(names: list[str] | None) -> None:
    bench = Bench()
    bench.told(names, t=a_topic(0), other=a_topic(0))
    for _ in range(MISSING_RESPONSES_MIN - 1):
        assert not bench.told(names, other=a_topic(0))
    assert not bench.told(names, t=a_topic(0), other=a_topic(0)), "it is there after all, and counting begins anew"
    for _ in range(MISSING_RESPONSES_MIN - 1):
        assert not bench.told(names, other=a_topic(0))
    assert bench.finder.partitions("t") == (0,)
    assert bench.told(names, other=a_topic(0))
    assert bench.finder.partitions("t") is None


def test_what_nobody_wants_any_more_is_forgotten() -> None:
    bench = Bench()
    bench.told(["t", "u"], t=a_topic(0), u=a_topic(0))
    bench.told(["u"], u=a_topic(0))
    assert bench.finder.all_topics() == ("u",)


# --- what is asked ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", ["0.8.2.2", "0.10.2.2", "1.1.1", "4.1.1"])
def test_asking_for_topics_creates_none_on_any_broker(release: str) -> None:
    cluster = FakeCluster(release=release, auto_create_partitions=3)
    cluster.create_topic("t", 2)
    connection = cluster.connect(*cluster.address(0)[1:])
    told, brokers = fetch_topics(connection, negotiate(connection, 5_000), ["t", "none"], 5_000)
    assert told["t"].partitions == (0, 1)
    assert "none" not in told or told["none"].is_unknown
    assert brokers == cluster.addresses
    told, _ = fetch_topics(connection, negotiate(connection, 5_000), None, 5_000)
    assert set(told) == {"t"}


def test_a_broker_that_knows_nothing_yet_is_not_believed() -> None:
    cluster = FakeCluster()
    connection = cluster.connect(*cluster.address(0)[1:])
    ranges = negotiate(connection, 5_000)
    cluster.stop_broker(0)
    with pytest.raises((RemoteProtocolError, ConnectionError, Exception), match=r"names no broker|closed"):
        fetch_topics(connection, ranges, None, 5_000)


def test_brokers_of_the_setting_are_never_forgotten() -> None:
    known = BootstrapBrokers("b1:9092,[::1]:9093")
    given = [BrokerAddress(-1, "b1", 9092), BrokerAddress(-1, "::1", 9093)]
    assert known.brokers() == given
    known.update([BrokerAddress(7, "b7", 9092), BrokerAddress(1, "b1", 9092)])
    assert set(known.brokers()) == {BrokerAddress(1, "b1", 9092), given[1], BrokerAddress(7, "b7", 9092)}
    known.update([BrokerAddress(8, "b8", 9092)])
    assert set(known.brokers()) == {*given, BrokerAddress(8, "b8", 9092)}


def test_a_question_is_answered_from_any_thread_and_once() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t", 1)
    answers: list[str] = []
    answered = threading.Event()
    refused: list[AuthenticationException] = []
    finder = TopicFinder(
        "m",
        BootstrapClient(cluster.connect, lambda: cluster.addresses, "g", 5_000),
        60_000,
        SYSTEM_CLOCK,
        on_brokers=lambda _: None,
        on_change=lambda: None,
        on_authentication_error=refused.append,
        on_thread_error=lambda name, error: answers.append(f"{name} died: {error}"),
    )

    def done(why: str) -> None:
        answers.append(why)
        answered.set()

    finder.request_topics(["t"], done)
    assert answered.wait(30)
    assert answers == [""]
    assert finder.partitions("t") == (0,)
    finder.request_topics(["t"], done)
    assert answers == ["", ""], "what is known is told at once"
    finder.ask_to_stop()
    assert finder.join(5_000)


def finder_on(cluster: FakeCluster, answers: list[str]) -> TopicFinder:
    """A finder whose end by an error is one of the answers."""
    return TopicFinder(
        "m",
        BootstrapClient(cluster.connect, lambda: cluster.addresses, "g", 5_000),
        60_000,
        SYSTEM_CLOCK,
        on_brokers=lambda _: None,
        on_change=lambda: None,
        on_authentication_error=lambda _: None,
        on_thread_error=lambda name, error: answers.append(f"{name} died: {error}"),
    )


def test_brokers_that_are_down_are_waited_for_and_complained_of_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_finder, "RETRY_POLL_MS", 10)
    monkeypatch.setattr(topic_finder, "TOPIC_REQUEST_TIMEOUT_MS", 200)
    cluster = FakeCluster(2)
    for broker_id in range(2):
        cluster.stop_broker(broker_id)
    answers: list[str] = []
    finder = finder_on(cluster, answers)
    finder.request_topics(["t"], answers.append)
    wait_until(lambda: len(answers) == 1, "patience ends", DEADLINE_MS)
    finder.ask_to_stop()
    assert finder.join(5_000)
    assert answers[0].startswith("none of 2 brokers answers")
    assert caplog.text.count("topic-lookup-failed") == 1


def test_a_question_that_another_one_follows_is_answered_all_the_same() -> None:
    cluster = FakeCluster()
    answers: list[str] = []
    finder = finder_on(cluster, answers)
    finder.request_topics(["one"], answers.append)
    finder.request_topics(["two"], answers.append)
    wait_until(lambda: len(answers) == 2, "both are answered", DEADLINE_MS)
    finder.ask_to_stop()
    assert finder.join(5_000)
    assert answers == ["", ""]
    assert len(cluster.requests) < 10, "nobody is asked again and again"
