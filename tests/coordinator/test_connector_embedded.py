"""The connector of a coordinator's group, whole, on the embedded broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

import pytest

from bridge import CoordinatorConsumerConfig, CoordinatorConsumerConnector
from bridge.client import coordinator_membership as membership_module
from bridge.client.assignors import CooperativeStickyAssignor
from bridge.client.coordinator_connector import group_config_of
from bridge.client.supported_settings import OTHER_MEANING, SAME_MEANING
from bridge.testing.embedded_broker import EmbeddedBroker
from bridge.testing.fake_cluster import FakeCluster
from tests.broker.raw_client import RawClient
from tests.generate_docs import kafkas_keys
from tests.in_memory_fixtures import run_in_thread
from zkconsumer import ConsumerConfig, Hooks, KafkaStream, TopicPartition, Whitelist
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.threads import live_threads
from zkconsumer.config_def import SettingStatus
from zkconsumer.errors import (
    AuthenticationException,
    BrokerUnreachable,
    ConnectorClosed,
    ConsumerTimeoutException,
    InvalidConfigException,
    MessageStreamsExistException,
    NoOffsetForPartitionException,
    OffsetOutOfRangeException,
    OffsetsNotCommitted,
    TopicAuthorizationException,
    UsageError,
)
from zkconsumer.kafka import topic_finder
from zkconsumer.kafka.broker_connection import BlockingConnection
from zkconsumer.kafka.error_codes import error_code
from zkconsumer.kafka.group.errors import (
    FencedInstanceIdException,
    InvalidSessionTimeoutException,
    UnsupportedVersionException,
)
from zkconsumer.kafka.group.events import Offset, RejoinAsked
from zkconsumer.kafka.metadata_client import fetch_topics
from zkconsumer.member import ownership
from zkconsumer.testing.sandbox import waiting
from zkconsumer.wire.schemas import LEAVE_GROUP
from zkconsumer.wire.schemas.leave_group import LeaveGroupRequest

QUICK = {"session.timeout.ms": 3_000, "heartbeat.interval.ms": 100, "retry.backoff.ms": 20}

Make = Callable[..., CoordinatorConsumerConnector]


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    before = live_threads()
    with EmbeddedBroker(properties={"offsets.topic.num.partitions": "5"}) as made:
        made.create_topic("t", 4)
        yield made
    assert live_threads() == before


@pytest.fixture
def make(broker: EmbeddedBroker) -> Iterator[Make]:
    """Connectors that are closed in the end."""
    with ExitStack() as stack:

        def connector(group: dict[str, object] | None = None, **how: Any) -> CoordinatorConsumerConnector:
            own = {key: how.pop(key) for key in ("assignors", "hooks") if key in how}
            return stack.enter_context(
                CoordinatorConsumerConnector(config_of(broker, **how), {**QUICK, **(group or {})}, **own)
            )

        yield connector


def config_of(broker: EmbeddedBroker, **how: Any) -> ConsumerConfig:
    settings = {
        "group_id": "g",
        "zookeeper_connect": "nowhere:2181",
        "bootstrap_servers": broker.bootstrap,
        "auto_offset_reset": "smallest",
        "consumer_timeout_ms": 100,
        "metadata_max_age_ms": 200,
        "rebalance_drain_timeout_ms": 300,
    }
    return ConsumerConfig(**{**settings, **how})


def wait_until(check: Callable[[], object], what: str) -> None:
    waiting.wait_until(check, what, timeout_ms=30_000)


def fill(broker: EmbeddedBroker, each: int = 5, topic: str = "t", partitions: int = 4) -> None:
    for number in range(partitions):
        broker.append(topic, number, [b"%d" % n for n in range(each)])


def read(stream: KafkaStream[Any, Any]) -> list[tuple[int, int]]:
    """What comes until nothing more does."""
    found: list[tuple[int, int]] = []
    with suppress(ConsumerTimeoutException):
        found.extend((message.partition, message.offset) for message in stream)
    return found


def read_until(stream: KafkaStream[Any, Any], count: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []

    def enough() -> bool:
        found.extend(read(stream))
        return len(found) >= count

    wait_until(enough, f"{count} records")
    return found


def everything(each: int = 5, partitions: int = 4) -> list[tuple[int, int]]:
    return [(partition, offset) for partition in range(partitions) for offset in range(each)]


def test_a_member_reads_everything_and_the_next_one_goes_on_where_it_was(broker: EmbeddedBroker, make: Make) -> None:
    fill(broker)
    with make() as first:
        [stream] = first.create_message_streams({"t": 1})["t"]
        assert sorted(read_until(stream, 20)) == everything()
        assert first.generation >= 1
        assert first.counters["assigned"] == 1
    broker.append("t", 2, [b"more"])
    [stream] = make().create_message_streams({"t": 1})["t"]
    assert read_until(stream, 1) == [(2, 5)]


def test_two_members_share_and_what_one_leaves_the_other_takes_up_where_it_stands(
    broker: EmbeddedBroker, make: Make
) -> None:
    fill(broker)
    first, second = make(), make()
    [a] = first.create_message_streams({"t": 1})["t"]
    assert sorted(read_until(a, 20)) == everything()
    [b] = second.create_message_streams({"t": 1})["t"]
    wait_until(lambda: len(first.assignment) == len(second.assignment) == 2, "two each")
    assert first.assignment.keys() | second.assignment.keys() == {TopicPartition("t", n) for n in range(4)}
    first.close()
    wait_until(lambda: len(second.assignment) == 4, "all of it")
    fill(broker, 1)
    assert sorted(read_until(b, 4)) == [(n, 5) for n in range(4)]


def test_the_streams_of_a_member_divide_its_share_as_the_old_consumers_threads_do(make: Make) -> None:
    connector = make()
    connector.create_message_streams({"t": 3})
    threads = {tp.partition: thread.rpartition("-")[2] for tp, thread in connector.assignment.items()}
    assert threads == {0: "0", 1: "0", 2: "1", 3: "2"}


class Seen(Mapping[str, Any]):
    """The values of a configuration, and which of them were looked at."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values_, self.keys_ = values, set[str]()

    def __getitem__(self, key: str) -> Any:
        self.keys_.add(key)
        return self.values_[key]

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("a member asks for one setting at a time")

    def __len__(self) -> int:
        return len(self.values_)


READ_IN_TROUBLE = {"offsets.channel.backoff.ms", "rebalance.fail.fast"}
READ_WITH_THE_FILE = {"zookeeper.sync.time.ms", "ssl.truststore.type", "ssl.keystore.type", "consumer.connector"}


def test_a_member_reads_those_of_the_old_settings_that_are_said_to_be_taken(broker: EmbeddedBroker) -> None:
    login = {"sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": "p"}
    config = config_of(broker, security_protocol="SASL_PLAINTEXT", **login)
    seen = Seen(config.values)
    object.__setattr__(config, "values", seen)
    with pytest.raises(AuthenticationException):
        CoordinatorConsumerConnector(config, QUICK)
    config = config_of(broker)
    seen.values_ = config.values
    object.__setattr__(config, "values", seen)
    fill(broker)
    with CoordinatorConsumerConnector(config, QUICK) as connector:
        [stream] = connector.create_message_streams({"t": 1})["t"]
        read_until(stream, 20)
        connector.commit_offsets()
    assert seen.keys_ == {*SAME_MEANING, *OTHER_MEANING} - READ_IN_TROUBLE - READ_WITH_THE_FILE


def test_a_member_without_a_zookeeper_in_its_configuration(broker: EmbeddedBroker) -> None:
    fill(broker)
    config = CoordinatorConsumerConfig(
        group_id="g", bootstrap_servers=broker.bootstrap, auto_offset_reset="smallest", consumer_timeout_ms=100
    )
    with CoordinatorConsumerConnector(config, QUICK) as connector:
        [stream] = connector.create_message_streams({"t": 1})["t"]
        assert sorted(read_until(stream, 20)) == everything()


def test_a_filter_takes_up_a_topic_that_comes(broker: EmbeddedBroker, make: Make) -> None:
    connector = make()
    [stream] = connector.create_message_streams_by_filter(Whitelist("t|new.*"))
    broker.create_topic("new-1", 2)
    wait_until(lambda: TopicPartition("new-1", 1) in connector.assignment, "the new topic")
    broker.append("new-1", 1, [b"x"])
    assert read_until(stream, 1) == [(1, 0)]
    with pytest.raises(MessageStreamsExistException):
        connector.create_message_streams({"t": 1})


@pytest.mark.parametrize("from_beginning", [True, False])
def test_what_comes_into_being_while_we_are_there_is_read_from_its_beginning_also_with_largest(
    broker: EmbeddedBroker, make: Make, from_beginning: bool
) -> None:
    fill(broker)
    connector = make(auto_offset_reset="largest", new_partitions_from_beginning=from_beginning)
    [stream] = connector.create_message_streams_by_filter(Whitelist("t|new.*"))
    broker.create_topic("new-1", 1)
    broker.append("new-1", 0, [b"before it was ours"])
    at = TopicPartition("new-1", 0)
    start = 0 if from_beginning else 1
    wait_until(lambda: at in connector.positions and connector.positions[at].offset == start, "where it begins")
    wait_until(lambda: len(connector.assignment) == 5, "all of it")
    broker.append("new-1", 0, [b"after"])
    assert read_until(stream, 2 - start) == [(0, 0), (0, 1)][start:]


@pytest.mark.parametrize("stored", [3, None, 99])
def test_without_a_reset_policy_a_partition_without_a_usable_offset_ends_the_member(
    broker: EmbeddedBroker, make: Make, stored: int | None
) -> None:
    fill(broker)
    if stored is not None:
        first = make(auto_commit_enable=False)
        first.create_message_streams({"t": 1})
        wait_until(lambda: len(first.assignment) == 4, "all of it")
        first.commit_offsets({TopicPartition("t", number): stored for number in range(4)})
        first.close()
    config = CoordinatorConsumerConfig.from_properties(
        {"group.id": "g", "bootstrap.servers": broker.bootstrap, "auto.offset.reset": "none", **QUICK,
         "consumer.timeout.ms": 100}
    )  # fmt: skip
    with CoordinatorConsumerConnector(config) as connector:
        streams = []
        if stored == 3:
            streams += connector.create_message_streams({"t": 1})["t"]
            assert sorted(read_until(streams[0], 8)) == [(number, at) for number in range(4) for at in (3, 4)]
            return
        with pytest.raises(UsageError, match=r"auto\.offset\.reset=none: set earliest or latest") as failure:
            streams += connector.create_message_streams({"t": 1})["t"]  # on a busy machine the member has ended before
            read_until(streams[0], 1)
        error = failure.value
        if stored is None:
            assert isinstance(error, NoOffsetForPartitionException)
            assert {tp.topic for tp in error.partitions} == {"t"}
        else:
            assert isinstance(error, OffsetOutOfRangeException)
            assert set(error.offset_out_of_range_partitions.values()) == {99}
        for stream in streams:
            with pytest.raises(type(error)):
                read(stream)
    with make() as other:
        other.create_message_streams({"t": 1})
        wait_until(lambda: len(other.assignment) == 4, "the failed member has left the group")


class Listener:
    """Writes its calls down, and commits what is given back."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.connector: CoordinatorConsumerConnector | None = None

    def before_releasing_partitions(self, partitions: dict[str, set[int]]) -> None:
        self.calls.append(("release", partitions))
        if partitions and self.connector is not None:
            self.connector.commit_offsets()

    def before_starting_fetchers(self, consumer_id: str, assignment: dict[str, dict[int, Any]]) -> None:
        self.calls.append(("start", {topic: sorted(threads) for topic, threads in assignment.items()}))


def test_a_listener_is_told_in_turns_and_may_commit_what_it_gives_back(broker: EmbeddedBroker, make: Make) -> None:
    fill(broker)
    listener = Listener()
    first = listener.connector = make(auto_commit_enable=False)
    first.set_consumer_rebalance_listener(listener)
    [a] = first.create_message_streams({"t": 1})["t"]
    assert sorted(read_until(a, 20)) == everything()
    second = make(auto_commit_enable=False)
    [b] = second.create_message_streams({"t": 1})["t"]
    wait_until(lambda: len(first.assignment) == len(second.assignment) == 2, "two each")
    assert read(b) == []
    assert [call for call, _ in listener.calls] == ["release", "start", "release", "start"]
    assert listener.calls[0] == ("release", {})
    assert listener.calls[1] == ("start", {"t": [0, 1, 2, 3]})
    assert listener.calls[2] == ("release", {"t": {0, 1, 2, 3}})


class LossListener(Listener):
    """Also notified of what is lost."""

    def on_partitions_lost(self, partitions: dict[str, set[int]]) -> None:
        self.calls.append(("lost", partitions))


def test_what_a_member_had_when_its_group_dropped_it_is_reported_as_lost_before_the_next_calls(
    broker: EmbeddedBroker, make: Make
) -> None:
    listener = LossListener()
    connector = make()
    connector.set_consumer_rebalance_listener(listener)
    connector.create_message_streams({"t": 1})
    wait_until(lambda: len(listener.calls) == 2, "its share")
    listener.calls.clear()
    member_id = connector._member.membership.machine.generation.member_id
    with RawClient(broker.addresses()[0]) as talk:
        talk.ask(LEAVE_GROUP, 2, LeaveGroupRequest(group_id="g", member_id=member_id))
    wait_until(lambda: len(listener.calls) == 3, "it is in the group again")
    assert listener.calls == [("lost", {"t": {0, 1, 2, 3}}), ("release", {}), ("start", {"t": [0, 1, 2, 3]})]
    connector.close()
    assert len(listener.calls) == 3, "a close makes no call"


class Told(Hooks):
    """What the hooks are called about: partitions by the name of the hook."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[TopicPartition, ...]]] = []

    def partitions_revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        self.calls.append(("revoked", partitions))

    def partitions_lost(self, partitions: tuple[TopicPartition, ...], why: str) -> None:
        assert "an error ended the member" in why
        self.calls.append(("lost", partitions))


ALL = tuple(TopicPartition("t", number) for number in range(4))


def test_a_member_that_is_fenced_has_lost_what_it_had(make: Make) -> None:
    listener, told = LossListener(), Told()
    first = make({"group.instance.id": "one"}, hooks=told)
    first.set_consumer_rebalance_listener(listener)
    first.create_message_streams({"t": 1})
    wait_until(lambda: len(listener.calls) == 2, "its share")
    make({"group.instance.id": "one"}).create_message_streams({"t": 1})
    wait_until(lambda: first._member.membership.failure is not None, "it is fenced")
    first.close()
    assert listener.calls[2:] == [("lost", {"t": {0, 1, 2, 3}})], "also when the close follows at once"
    assert told.calls == [("lost", ALL)], "the hook says the same"


@pytest.mark.parametrize("is_closed_at_once", [True, False])
def test_a_member_that_an_error_ends_gives_back_what_is_its_own_and_its_listener_may_commit(
    broker: EmbeddedBroker, make: Make, caplog: pytest.LogCaptureFixture, is_closed_at_once: bool
) -> None:
    fill(broker)
    listener, told = LossListener(), Told()
    member = listener.connector = make(auto_commit_enable=False, hooks=told)
    member.set_consumer_rebalance_listener(listener)
    [stream] = member.create_message_streams({"t": 1})["t"]
    assert sorted(read_until(stream, 20)) == everything()
    caplog.clear()
    member._member.membership.topics_rejected({"t": error_code(29)})
    with pytest.raises(TopicAuthorizationException):
        next(iter(stream))
    if is_closed_at_once:
        member.close()
    wait_until(lambda: told.calls == [("revoked", ALL)], "it is given back")
    assert listener.calls[2:] == [("release", {"t": {0, 1, 2, 3}})], "the listener hears the same"
    with pytest.raises(ConnectorClosed if is_closed_at_once else TopicAuthorizationException):
        member.commit_offsets()
    member.close()
    with make() as next_member:
        membership: Any = next_member._member.membership
        assert membership.committed(ALL, 10_000) == dict.fromkeys(ALL, Offset(5, -1, ""))
    unwanted = ("close-incomplete", "listener-raised", "partitions-lost")
    assert [record for record in caplog.records if record.getMessage().startswith(unwanted)] == []


def test_what_an_ended_member_cannot_give_back_in_time_is_lost(
    broker: EmbeddedBroker, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership_module, "FAILED_LEAVE_TIMEOUT_MS", 200)
    fill(broker)
    listener, told = LossListener(), Told()
    member = make(hooks=told)
    member.set_consumer_rebalance_listener(listener)
    member.create_message_streams({"t": 1})
    wait_until(lambda: len(listener.calls) == 2, "its share")
    membership: Any = member._member.membership
    monkeypatch.setattr(type(membership), "_listener_ms", 0)  # so that it gives up after the time above
    processor = membership.assignment_executor.processor
    execute, drains = processor.execute, (ownership.Drain, ownership.ForceDrain)
    monkeypatch.setattr(processor, "execute", lambda one: None if isinstance(one, drains) else execute(one))
    membership.topics_rejected({"t": error_code(29)})
    wait_until(lambda: told.calls, "it has given up")
    wait_until(lambda: len(listener.calls) == 3, "the listener is called as well")
    assert (told.calls, listener.calls[2:]) == ([("lost", ALL)], [("lost", {"t": {0, 1, 2, 3}})])


def test_a_cooperative_member_goes_on_with_what_stays(broker: EmbeddedBroker, make: Make) -> None:
    first = make(assignors=[CooperativeStickyAssignor()])
    first.create_message_streams({"t": 1})
    before = dict(first._member.streams.partition_infos)
    second = make(assignors=[CooperativeStickyAssignor()])
    second.create_message_streams({"t": 1})
    wait_until(lambda: len(first.assignment) == len(second.assignment) == 2, "two each")
    assert all(info is before[tp] for tp, info in first._member.streams.partition_infos.items())


def test_the_group_forms_anew_when_replicas_move_to_other_racks_and_its_leader_has_one(
    broker: EmbeddedBroker, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("two", 2)
    racks = {0: frozenset("a"), 1: frozenset("b")}

    def fetch(*asked: Any) -> Any:
        told, brokers = fetch_topics(*asked)
        return {name: replace(topic, racks=dict(racks)) for name, topic in told.items()}, brokers

    monkeypatch.setattr(topic_finder, "fetch_topics", fetch)
    near_b = make({"client.rack": "b"})
    near_b.create_message_streams({"two": 1})
    near_a = make({"client.rack": "a"})
    near_a.create_message_streams({"two": 1})
    wait_until(lambda: set(near_a.assignment) == {TopicPartition("two", 0)}, "what is near")
    racks.update({0: frozenset("b"), 1: frozenset("a")})
    wait_until(lambda: set(near_a.assignment) == {TopicPartition("two", 1)}, "what is near now")
    wait_until(lambda: set(near_b.assignment) == {TopicPartition("two", 0)}, "the other one")


def test_a_commit_is_refused_for_what_is_not_ours(broker: EmbeddedBroker, make: Make) -> None:
    connector = make()
    connector.create_message_streams({"t": 1})
    connector.commit_offsets({TopicPartition("t", 0): 3}, retry_on_failure=False)
    with pytest.raises(OffsetsNotCommitted, match="this member does not own the partition"):
        connector.commit_offsets({TopicPartition("other", 0): 3}, retry_on_failure=False)


def test_a_commit_passes_over_partitions_whose_first_offset_is_not_known_yet() -> None:
    """A program may commit after its first record, when other leaders have not answered."""
    with EmbeddedBroker(nodes=2, properties={"offsets.topic.num.partitions": "5"}) as broker:
        broker.create_topic("t", 2)
        broker.move_coordinator("g", 0)
        here, silent = TopicPartition("t", 0), TopicPartition("t", 1)
        for tp, node in ((here, 0), (silent, 1)):
            broker.move_leader(tp.topic, tp.partition, node)
        ports = {address.broker_id: address.port for address in broker.addresses()}

        def connect(host: str, port: int, **how: Any) -> BlockingConnection:
            return BlockingConnection(host, 1 if port == ports[1] else port, **how)

        config = config_of(broker, bootstrap_servers=f"127.0.0.1:{ports[0]}", auto_commit_enable=False)
        broker.append("t", 0, [b"a", b"b"])
        with CoordinatorConsumerConnector(config, QUICK, connect=connect) as connector:
            [stream] = connector.create_message_streams({"t": 1})["t"]
            assert read_until(stream, 2) == [(0, 0), (0, 1)]
            assert connector.positions[silent].offset == -1
            connector.commit_offsets(retry_on_failure=False)
            membership: Any = connector._member.membership
            assert membership.committed([here, silent], 10_000) == {here: Offset(2, -1, ""), silent: None}


def test_a_claim_of_a_spark_query_is_committed_only_for_what_it_holds(broker: EmbeddedBroker, make: Make) -> None:
    """``is_held`` is asked where the group is decided: the query may have lost a partition since it asked."""
    connector = make(auto_commit_enable=False)
    connector.create_message_streams({"t": 1})
    held, lost, other = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("other", 0)
    membership: Any = connector._member.membership
    offsets = dict.fromkeys((held, lost, other), Offset(3))
    refused, unknown = membership.commit_once(offsets, lambda tp: tp != lost, 10_000)
    assert (refused.keys(), unknown) == ({lost, other}, set())
    committed = membership.committed([held, lost], 10_000)
    assert committed == {held: Offset(3, -1, ""), lost: None}


def test_nothing_is_handed_out_once_two_thirds_of_a_session_are_over_without_an_answer(
    broker: EmbeddedBroker, make: Make
) -> None:
    fill(broker, 1_000, partitions=1)
    # With something to commit, the close would wait three seconds for a coordinator that takes it.
    connector = make(auto_commit_enable=False)
    [stream] = connector.create_message_streams({"t": 1})["t"]
    iterator = iter(stream)

    def has_begun() -> bool:
        try:
            next(iterator)
        except ConsumerTimeoutException:
            return False
        return True

    wait_until(has_begun, "the first record")
    lease = connector._member.lease
    assert lease.is_valid
    broker.stop()
    wait_until(lambda: not lease.is_valid, "the lease is over")
    # Hundreds of records are here already, and may be somebody else's by now.
    with pytest.raises(ConsumerTimeoutException):
        next(iterator)


def test_a_group_goes_on_when_its_coordinator_moves(make: Make) -> None:
    with EmbeddedBroker(nodes=2, properties={"offsets.topic.num.partitions": "5"}) as broker:
        broker.create_topic("t", 4)
        fill(broker)
        with CoordinatorConsumerConnector(config_of(broker), QUICK) as connector:
            [stream] = connector.create_message_streams({"t": 1})["t"]
            assert sorted(read_until(stream, 20)) == everything()
            home = broker.coordinator("g")
            assert home is not None
            nodes = {address.broker_id for address in broker.addresses()}
            broker.move_coordinator("g", min(nodes - {home}))
            connector.commit_offsets()
            fill(broker, 1)
            assert len(read_until(stream, 4)) == 4


@pytest.mark.parametrize("release", ["0.8.1.1", "0.8.2.2"])
def test_brokers_that_keep_no_members_are_named_at_once(release: str) -> None:
    cluster = FakeCluster(release=release)
    address = cluster.address(0)
    config = CoordinatorConsumerConfig(group_id="g", bootstrap_servers=f"{address.host}:{address.port}")
    with pytest.raises(UnsupportedVersionException, match=r"older than 0\.9.*must upgrade"):
        CoordinatorConsumerConnector(config, QUICK, connect=cluster.connect)


@pytest.mark.usefixtures("short_silence")
@pytest.mark.parametrize("release", ["0.9.0.1", "0.10.2.2", "1.1.1", "4.1.1"])
def test_brokers_of_every_age_keep_our_group(release: str) -> None:
    with EmbeddedBroker(release=release, properties={"offsets.topic.num.partitions": "5"}) as broker:
        broker.create_topic("t", 4)
        fill(broker)
        with CoordinatorConsumerConnector(config_of(broker), QUICK) as first:
            [stream] = first.create_message_streams({"t": 1})["t"]
            assert sorted(read_until(stream, 20)) == everything()
            with CoordinatorConsumerConnector(config_of(broker), QUICK) as second:
                second.create_message_streams({"t": 1})
                wait_until(lambda: len(first.assignment) == len(second.assignment) == 2, "two each")
            wait_until(lambda: len(first.assignment) == 4, "all of it")
        broker.append("t", 2, [b"more"])
        with CoordinatorConsumerConnector(config_of(broker), QUICK) as third:
            [stream] = third.create_message_streams({"t": 1})["t"]
            assert read_until(stream, 1) == [(2, 5)]


def test_a_session_timeout_outside_of_the_limits_of_the_brokers_names_their_settings(make: Make) -> None:
    connector = make({"session.timeout.ms": 50, "heartbeat.interval.ms": 10})
    with pytest.raises(InvalidSessionTimeoutException, match=r"within their group\.min\.session\.timeout\.ms"):
        connector.create_message_streams({"t": 1})


def test_another_process_with_the_same_instance_id_ends_the_streams(broker: EmbeddedBroker, make: Make) -> None:
    first = make({"group.instance.id": "one"})
    [stream] = first.create_message_streams({"t": 1})["t"]
    make({"group.instance.id": "one"}).create_message_streams({"t": 1})
    wait_until(lambda: first._member.membership.failure is not None, "it is fenced")
    with pytest.raises(FencedInstanceIdException, match=r"group\.instance\.id"):
        next(iter(stream))


def test_without_a_broker_the_constructor_says_so_and_leaves_nothing_running(broker: EmbeddedBroker) -> None:
    config = config_of(broker, bootstrap_servers="127.0.0.1:1", zookeeper_connection_timeout_ms=500)
    with pytest.raises(BrokerUnreachable, match="none of 1 brokers answers"):
        CoordinatorConsumerConnector(config)


def test_brokers_must_be_named() -> None:
    config = ConsumerConfig(group_id="g", zookeeper_connect="nowhere:2181")
    with pytest.raises(InvalidConfigException, match=r"bootstrap\.servers is missing"):
        CoordinatorConsumerConnector(config)


def test_what_the_old_configuration_says_is_not_said_twice(broker: EmbeddedBroker) -> None:
    config = config_of(broker, auto_commit_enable=False, auto_commit_interval_ms=700)
    group = group_config_of(config, {"session.timeout.ms": "7000"})
    assert (group.group_id, group.enable_auto_commit, group.auto_commit_interval_ms) == ("g", False, 700)
    assert group.session_timeout_ms == 7_000
    with pytest.raises(InvalidConfigException, match=r"group\.id: remove it from"):
        group_config_of(config, {"group.id": "other"})


def test_metrics_and_health_are_those_of_any_connector(broker: EmbeddedBroker, make: Make) -> None:
    connector = make(auto_commit_enable=False)
    connector.create_message_streams({"t": 1})
    told = connector.metrics()
    assert told["group"] == "g"
    assert told["counters"]["joined"] >= 1
    connector._health_source.request_snapshot()
    health = connector._health_source.health(2_000)
    assert health.is_healthy, health.problems
    assert health.snapshot is not None
    assert health.snapshot.partitions_owned == 4
    broker.stop()
    wait_until(lambda: not connector._member.lease.is_valid, "the lease is over")
    connector._health_source.request_snapshot()
    assert any(
        "the group's coordinator has not answered" in why for why in connector._health_source.health(2_000).problems
    )


# --- what is set and has no effect --------------------------------------------------------------------------------


def ignored_lines(caplog: pytest.LogCaptureFixture) -> dict[str, str]:
    """The keys that ``setting-ignored`` names, each with its line; no key is named twice."""
    lines = [line for record in caplog.records if (line := record.getMessage()).startswith("setting-ignored ")]
    keys = [line.split()[1].removeprefix("key=") for line in lines]
    assert len(set(keys)) == len(keys), "a warning each"
    return dict(zip(keys, lines, strict=True))


def test_each_key_of_a_modern_file_without_effect_is_one_warning_and_none_names_zookeeper(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    modern = {
        key: value for key, value in kafkas_keys().items()
        if CoordinatorConsumerConfig.outcome_of(key, value).status is SettingStatus.IGNORED
    }  # fmt: skip
    config = CoordinatorConsumerConfig({**modern, "group.id": "g", "bootstrap.servers": broker.bootstrap})
    with CoordinatorConsumerConnector(config, QUICK):
        named = ignored_lines(caplog)
    assert named.keys() == modern.keys()
    assert not [line for line in named.values() if "zookeeper" in line.lower()]


def test_a_file_of_zookeepers_member_has_its_warnings_in_the_words_of_a_coordinators(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    old = {
        "group.id": "g", "zookeeper.connect": "nowhere:2181", "bootstrap.servers": broker.bootstrap,
        "zookeeper.session.timeout.ms": "6000", "max.poll.records": "5", "dual.commit.enabled": "true",
        "reconnect.backoff.ms": "5",
    }  # fmt: skip
    with CoordinatorConsumerConnector(ConsumerConfig(old), QUICK):
        named = ignored_lines(caplog)
    assert named.keys() == old.keys() - {"group.id", "zookeeper.connect", "bootstrap.servers"}
    assert "the offsets of such a group are only in Kafka" in named["dual.commit.enabled"]
    assert "queued.max.message.chunks" in named["max.poll.records"]
    with pytest.raises(InvalidConfigException, match=r"enable\.auto\.commit: ConsumerConfig has ignored"):
        CoordinatorConsumerConnector(ConsumerConfig({**old, "enable.auto.commit": "false"}), QUICK)


def test_the_file_of_a_modern_program_makes_a_member_that_does_not_commit_by_itself(broker: EmbeddedBroker) -> None:
    fill(broker)
    modern = {
        "group.id": "g", "bootstrap.servers": broker.bootstrap, "enable.auto.commit": "false",
        "auto.offset.reset": "earliest", "session.timeout.ms": "3000", "heartbeat.interval.ms": "100",
        "isolation.level": "read_uncommitted", "partition.assignment.strategy": "CooperativeStickyAssignor,range",
        "max.partition.fetch.bytes": "100000", "consumer.timeout.ms": "100",
    }  # fmt: skip
    for _ in range(2):
        with CoordinatorConsumerConnector(CoordinatorConsumerConfig(modern)) as connector:
            [stream] = connector.create_message_streams({"t": 1})["t"]
            assert sorted(read_until(stream, 20)) == everything(), "nothing was committed"
            assert connector.group_config.session_timeout_ms == 3_000


# --- max.poll.interval.ms -----------------------------------------------------------------------------------------


def first_record(stream: KafkaStream[Any, Any]) -> Any:
    """The first record of the stream; the program has it in hand from here on."""
    found: list[Any] = []

    def has_come() -> bool:
        with suppress(ConsumerTimeoutException):
            found.append(next(iter(stream)))
        return bool(found)

    wait_until(has_come, "a record")
    return found[0]


def test_a_program_that_works_on_one_record_for_too_long_loses_its_partitions_until_it_asks_on(
    broker: EmbeddedBroker, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    fill(broker)
    first = make({"max.poll.interval.ms": 1_500}, auto_commit_enable=False)
    # Two streams: one of them is stuck, and the other one asks for records all the time.
    stuck, other = first.create_message_streams({"t": 2})["t"]
    record = first_record(stuck)
    second = make({"max.poll.interval.ms": 60_000}, auto_commit_enable=False)
    [stream] = second.create_message_streams({"t": 1})["t"]

    def has_all() -> bool:
        read(other)
        return len(second.assignment) == 4

    wait_until(has_all, "the other member has everything")
    assert first.assignment == {}
    assert first.counters["poll_timeout_expired"] == 1
    [line] = [each.getMessage() for each in caplog.records if each.getMessage().startswith("poll-timeout-expired")]
    assert f"stream='{stuck.thread}'" in line
    assert "max.poll.interval.ms=1500" in line
    with pytest.raises(OffsetsNotCommitted, match="this member does not own the partition"):
        first.commit_offsets({TopicPartition("t", record.partition): record.offset + 1}, retry_on_failure=False)
    assert (record.partition, record.offset) in read_until(stream, 20), "what was not committed comes again"

    def is_back() -> bool:
        read(stuck)
        read(other)
        return len(first.assignment) == len(second.assignment) == 2

    wait_until(is_back, "it joined again when its program asked for the next record")
    assert second.counters.get("poll_timeout_expired", 0) == 0


def test_a_program_that_waits_for_a_record_is_no_program_that_is_stuck(broker: EmbeddedBroker, make: Make) -> None:
    limit_ms = 1_000
    connector = make({"max.poll.interval.ms": limit_ms}, consumer_timeout_ms=-1)
    [stream] = connector.create_message_streams({"t": 1})["t"]
    broker.append("t", 0, [b"first"])

    def reads_on() -> int:
        # The first record is in hand until the second call, which waits.
        return next(iter(stream)).offset + next(iter(stream)).offset

    came = run_in_thread(reads_on)
    over_ms = SYSTEM_CLOCK.now_ms() + 4 * limit_ms
    wait_until(lambda: SYSTEM_CLOCK.now_ms() > over_ms, "several times the limit")
    broker.append("t", 0, [b"second"])
    assert came() == 1
    assert connector.counters.get("poll_timeout_expired", 0) == 0
    assert connector.counters["joined"] == 1


def test_a_close_waits_for_a_running_call_of_the_listener_before_it_leaves_the_group(
    broker: EmbeddedBroker, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the call returns the partitions are not given away: the program may still process their records."""
    monkeypatch.setattr(membership_module, "LEAVE_GRACE_MS", 100)
    entered, order = threading.Event(), list[str]()

    class SlowListener(Listener):
        def before_releasing_partitions(self, partitions: dict[str, set[int]]) -> None:
            if partitions:
                entered.set()
                time.sleep(1.5)
                order.append("returned")

    fill(broker)
    first = make(auto_commit_enable=False, rebalance_listener_timeout_ms=10_000)
    first.set_consumer_rebalance_listener(SlowListener())
    [a] = first.create_message_streams({"t": 1})["t"]
    read_until(a, 20)
    membership = first._member.membership
    stopped = membership.stopped

    def leaves() -> None:
        order.append("left")
        stopped()

    monkeypatch.setattr(membership, "stopped", leaves)
    membership.event_loop.call_soon(lambda: membership.event_loop.dispatch(RejoinAsked("test")))
    assert entered.wait(10)
    first.close()
    assert order == ["returned", "left"]
