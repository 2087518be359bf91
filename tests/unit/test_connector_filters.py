"""Connectors that subscribe with a filter, on a world in memory: which topics they read, and what they refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.testing.fake_environment import FakeEnvironment
from tests.in_memory_fixtures import MakeConnector, Stream, run_in_thread, take, wait_until
from zkconsumer import Blacklist, Whitelist, javaapi
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.errors import InvalidTopicFilter, MessageStreamsExistException, UsageError
from zkconsumer.member.topic_filter import PatternNotEvaluable
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.member_registration import Registration, format_registration
from zkconsumer.zk.requests import ChildNames

GROUP = "g1"


def registrations(world: FakeEnvironment) -> list[dict[str, Any]]:
    children = world.zookeeper.tree.children(paths.ids(GROUP))
    names = children.names if isinstance(children, ChildNames) else []
    found = (world.zookeeper.data(paths.registration(GROUP, name)) for name in names)
    return [json.loads(data) for data in found if data is not None]


def wait_for_topics(connector: ZookeeperConsumerConnector, *topics: str) -> None:
    wait_until(lambda: {tp.topic for tp in connector.assignment} == set(topics), f"it reads {topics}")


def append(world: FakeEnvironment, topic: str, partition: int, *values: str) -> None:
    world.cluster.append(topic, partition, [value.encode() for value in values])


def read(stream: Stream, count: int) -> list[tuple[str, bytes]]:
    return sorted((message.topic, message.value) for message in take(stream, count))


# --- which topics -------------------------------------------------------------------------------------------------


def test_one_stream_takes_the_records_of_every_topic_that_the_filter_allows(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    for topic in ("clicks", "views", "other"):
        world.create_topic(topic, 2)
        append(world, topic, 1, f"of {topic}")
    connector = connect()
    [stream] = connector.create_message_streams_by_filter(Whitelist("clicks, views"))
    assert read(stream, 2) == [("clicks", b"of clicks"), ("views", b"of views")]
    assert sorted(connector.assignment) == [TopicPartition(t, n) for t in ("clicks", "views") for n in (0, 1)]
    [registered] = registrations(world)
    assert (registered["pattern"], registered["subscription"]) == ("white_list", {"clicks|views": 1})


def test_a_black_list_takes_all_others_but_no_internal_ones(world: FakeEnvironment, connect: MakeConnector) -> None:
    for topic in ("clicks", "secret", "__consumer_offsets", "__transaction_state"):
        world.create_topic(topic)
    connector = connect()
    connector.create_message_streams_by_filter(Blacklist("secret"))
    wait_for_topics(connector, "clicks")
    assert registrations(world)[0]["pattern"] == "black_list"


def test_internal_topics_are_read_where_they_are_not_excluded(world: FakeEnvironment, connect: MakeConnector) -> None:
    for topic in ("clicks", "__consumer_offsets", "__transaction_state"):
        world.create_topic(topic)
    connector = connect(exclude_internal_topics=False)
    connector.create_message_streams_by_filter(Whitelist("__.*"))
    wait_for_topics(connector, "__consumer_offsets", "__transaction_state")


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_topics_are_taken_up_as_they_come_and_given_back_as_they_go(
    world: FakeEnvironment, connect: MakeConnector, strategy: str
) -> None:
    world.create_topic("t1", 2)
    connector = connect(partition_assignment_strategy=strategy)
    connector.create_message_streams_by_filter(Whitelist("t.*"), 2)
    wait_for_topics(connector, "t1")
    infos = dict(connector._member.streams.partition_infos)
    world.create_topic("t2", 2)
    wait_for_topics(connector, "t1", "t2")
    world.create_topic("t2", 3)
    wait_until(lambda: TopicPartition("t2", 2) in connector.assignment, "what grew is read")
    world.create_topic("x1")
    world.zookeeper.remove(paths.topic("t2"))
    wait_for_topics(connector, "t1")
    wait_until(
        lambda: connector._member.streams.partition_infos == infos, "what stays is the same ownership all the time"
    )
    assert world.zookeeper.tree.children(paths.owners_of_topic(GROUP, "t2")).names == []
    assert {thread[-1] for thread in connector.assignment.values()} == {"0", "1"}


def test_a_filter_that_matches_no_topic_is_logged_as_a_warning(
    world: FakeEnvironment, connect: MakeConnector, caplog: pytest.LogCaptureFixture
) -> None:
    world.create_topic("clicks")
    caplog.set_level("INFO", "zkconsumer.group")
    connector = connect()
    connector.create_message_streams_by_filter(Whitelist("clikcs"))

    def said() -> list[tuple[str, str]]:
        lines = [record for record in caplog.records if record.getMessage().startswith("filter-topics-changed")]
        return [(record.levelname, record.getMessage().partition(" topics=")[2]) for record in lines]

    nothing = "0 came=0 [] gone=0 []: no topic matches the filter; one that is created later is read"
    assert said() == [("WARNING", nothing)]
    world.create_topic("clikcs")
    wait_for_topics(connector, "clikcs")
    assert said()[1:] == [("INFO", "1 came=1 ['clikcs'] gone=0 []")]


def test_no_topic_at_all_is_a_share_like_any_other(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.zookeeper.remove(paths.BROKER_TOPICS)
    connector = connect()
    [stream] = connector.create_message_streams_by_filter(Whitelist("t.*"))
    assert connector.assignment == {}
    world.zookeeper.ensure(paths.BROKER_TOPICS)
    world.create_topic("t1")
    append(world, "t1", 0, "first")
    assert read(stream, 1) == [("t1", b"first")]


def test_members_with_filters_and_with_topics_share_as_range_gives(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic("t1", 4)
    world.create_topic("t2", 3)
    one = connect(consumer_id="a")
    one.create_message_streams_by_filter(Whitelist("t.*"))
    two = connect(consumer_id="b")
    two.create_message_streams({"t1": 1})
    wait_until(
        lambda: world.owners(GROUP, "t1") == {0: "g1_a-0", 1: "g1_a-0", 2: "g1_b-0", 3: "g1_b-0"},
        "the first half to each",
    )
    assert set(world.owners(GROUP, "t2").values()) == {"g1_a-0"}


def test_a_filter_reads_the_topics_that_it_allows_and_watches_no_others(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    for number in range(20):
        world.create_topic(f"x{number}")
    world.create_topic("t1")
    connector = connect()
    connector.create_message_streams_by_filter(Whitelist("t.*"))
    wait_for_topics(connector, "t1")
    before = connector.store.packets_sent
    world.create_topic("x0", 2)
    world.create_topic("t1", 2)
    wait_until(lambda: len(connector.assignment) == 2, "what grew is read")
    assert connector.store.packets_sent - before < 20


# --- what is refused ----------------------------------------------------------------------------------------------


def test_streams_are_made_once_by_topics_or_by_a_filter(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic("t1")
    by_filter = connect()
    by_filter.create_message_streams_by_filter(Whitelist("t1"))
    with pytest.raises(MessageStreamsExistException):
        by_filter.create_message_streams_by_filter(Whitelist("t1"))
    with pytest.raises(MessageStreamsExistException):
        by_filter.create_message_streams({"t1": 1})
    by_topic = connect()
    by_topic.create_message_streams({"t1": 1})
    with pytest.raises(MessageStreamsExistException, match="by topics or by a filter"):
        by_topic.create_message_streams_by_filter(Whitelist("t1"))


@pytest.mark.parametrize("streams", [0, -1, True, 1.0, "1", None, 100_001])
def test_a_number_of_streams_that_cannot_be_is_refused_before_anything_is_written(
    world: FakeEnvironment, connect: MakeConnector, streams: Any
) -> None:
    connector = connect()
    with pytest.raises(UsageError, match="streams"):
        connector.create_message_streams_by_filter(Whitelist("t.*"), streams)
    assert registrations(world) == []
    assert len(connector.create_message_streams_by_filter(Whitelist("t.*"), 1)) == 1


@pytest.mark.parametrize("given", ["t.*", None, {"t": 1}])
def test_what_is_no_filter_is_refused(world: FakeEnvironment, connect: MakeConnector, given: Any) -> None:
    with pytest.raises(UsageError, match="pass Whitelist"):
        connect().create_message_streams_by_filter(given)
    assert registrations(world) == []


@pytest.mark.parametrize("raw", ["'\ta", "a\t'", "'\x00'a"])
def test_a_filter_that_would_be_read_back_otherwise_is_refused(
    world: FakeEnvironment, connect: MakeConnector, raw: str
) -> None:
    with pytest.raises(UsageError, match="other members would read the filter"):
        connect().create_message_streams_by_filter(Whitelist(raw))
    assert registrations(world) == []


def test_a_filter_with_half_a_surrogate_pair_never_reaches_zookeeper(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    connector = connect()
    with pytest.raises(UsageError):
        connector.create_message_streams_by_filter(Whitelist("a\ud800"))
    assert registrations(world) == []


# --- the old names ------------------------------------------------------------------------------------------------


def test_the_old_names_give_streams_by_a_filter(world: FakeEnvironment) -> None:
    world.create_topic("t1")
    append(world, "t1", 0, "first")
    connector = javaapi.ConsumerConnector(world.connector(auto_offset_reset="smallest"))
    streams = connector.createMessageStreamsByFilter(
        javaapi.Whitelist("t.*"), 2, javaapi.StringDecoder(), javaapi.StringDecoder()
    )
    assert len(streams) == 2
    assert streams[0].iterator().next().message() == "first"
    with pytest.raises(InvalidTopicFilter, match="is an invalid regex"):
        javaapi.Blacklist("*")


# --- the filters of others ----------------------------------------------------------------------------------------


def register(world: FakeEnvironment, member: str, pattern: str) -> None:
    data = format_registration(Registration("white_list", {pattern: 1}, "0"))
    world.zookeeper.ensure(paths.registration(GROUP, member), data)


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
@pytest.mark.parametrize("ours", ["topics", "filter"])
@pytest.mark.parametrize("bomb", ["(a+)+$", "(a|aa)+$", "(.*)*x", "(?=(a+)+$)(a|aa)+b"])
def test_a_pattern_bomb_of_another_member_is_answered_and_the_group_goes_on(
    world: FakeEnvironment, connect: MakeConnector, strategy: str, ours: str, bomb: str
) -> None:
    topic = "a" * 248 + "_"
    world.create_topic(topic, 2)
    register(world, "g1_other", bomb)
    connector = connect(partition_assignment_strategy=strategy)

    def join() -> None:
        if ours == "topics":
            connector.create_message_streams({topic: 1})
        else:
            connector.create_message_streams_by_filter(Whitelist("a.*"))

    run_in_thread(join)()
    assert sorted(connector.assignment) == [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert connector.counters.get("registrations_ignored", 0) == 0


def test_a_pattern_that_could_take_too_long_keeps_us_out_until_it_goes(
    world: FakeEnvironment, connect: MakeConnector, caplog: pytest.LogCaptureFixture
) -> None:
    world.create_topic("a1", 2)
    connector = connect()
    connector.create_message_streams_by_filter(Whitelist("a.*"))
    wait_for_topics(connector, "a1")
    register(world, "g1_other", "(((?!b)a)*)*c")
    wait_until(lambda: connector.assignment == {}, "it gives everything back")
    wait_until(lambda: len(registrations(world)) == 1, "and leaves")
    assert "member-excluded" in caplog.text
    assert "too many steps" in caplog.text
    world.zookeeper.remove(paths.registration(GROUP, "g1_other"))
    wait_for_topics(connector, "a1")


def test_a_pattern_bomb_of_our_own_is_refused_before_anything_is_written(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    connector = connect()
    with pytest.raises(PatternNotEvaluable, match="too many steps"):
        connector.create_message_streams_by_filter(Whitelist("(((?!b)a)*)*c"))
    assert registrations(world) == []


# --- topics that come while we are there --------------------------------------------------------------------------


def make_topic(world: FakeEnvironment, topic: str, *values: str) -> None:
    """Records first, then the znode: they are there before anybody can own the topic."""
    world.cluster.create_topic(topic, 1)
    if values:
        append(world, topic, 0, *values)
    world.zookeeper.ensure(paths.topic(topic), b'{"version":1,"partitions":{"0":[0]}}')


def delete_topic(world: FakeEnvironment, topic: str) -> None:
    world.cluster.delete_topic(topic)
    world.zookeeper.remove(paths.topic(topic))


def test_what_was_produced_to_a_new_topic_before_it_was_owned_is_read_although_the_policy_says_largest(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    make_topic(world, "t-old", "before we came")
    connector = connect(auto_offset_reset="largest")
    [stream] = connector.create_message_streams_by_filter(Whitelist("t-.*"))
    wait_until(
        lambda: connector._member.streams.partition_infos[TopicPartition("t-old", 0)].fetch_offset == 1, "it is placed"
    )
    make_topic(world, "t-new", "first", "second")
    assert read(stream, 2) == [("t-new", b"first"), ("t-new", b"second")]
    append(world, "t-old", 0, "later")
    assert read(stream, 1) == [("t-old", b"later")]


def test_with_the_setting_a_new_topic_begins_where_the_policy_says(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    connector = connect(auto_offset_reset="largest", new_partitions_from_beginning=False)
    [stream] = connector.create_message_streams_by_filter(Whitelist("t-.*"))
    make_topic(world, "t-new", "skipped")
    wait_for_topics(connector, "t-new")
    wait_until(
        lambda: connector._member.streams.partition_infos[TopicPartition("t-new", 0)].fetch_offset == 1, "it is placed"
    )
    append(world, "t-new", 0, "read")
    assert read(stream, 1) == [("t-new", b"read")]


@pytest.mark.parametrize("is_seen_missing", [True, False])
@pytest.mark.parametrize("policy", ["smallest", "largest"])
def test_a_topic_that_is_created_again_is_read_from_its_beginning(
    world: FakeEnvironment, connect: MakeConnector, is_seen_missing: bool, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    make_topic(world, "t-1")
    connector = connect(auto_offset_reset=policy, rebalance_debounce_ms=0 if is_seen_missing else 300)
    [stream] = connector.create_message_streams_by_filter(Whitelist("t-.*"))
    wait_until(
        lambda: connector._member.streams.partition_infos[TopicPartition("t-1", 0)].fetch_offset == 0, "it is placed"
    )
    append(world, "t-1", 0, "old", "older")
    assert read(stream, 2) == [("t-1", b"old"), ("t-1", b"older")]
    connector.commit_offsets()
    assert world.offsets(GROUP, "t-1") == {0: 2}
    delete_topic(world, "t-1")
    if is_seen_missing:
        wait_until(lambda: connector.assignment == {}, "it is given back")
    # More records than the old topic had: its offset is in range, and until the member has seen that the topic is
    # another one it may go on from there.
    make_topic(world, "t-1", "one", "two", "three")
    values = [message.value for message in take(stream, 3)]
    values += [message.value for message in take(stream, 3 - len(values[values.index(b"one") :]))]
    assert values[-3:] == [b"one", b"two", b"three"]
    connector.commit_offsets()
    assert world.offsets(GROUP, "t-1") == {0: 3}
    assert ("topic-recreated" in caplog.text) is not is_seen_missing
    assert ("offset-older-than-topic" in caplog.text) is is_seen_missing


@pytest.mark.parametrize(("what", "first"), [("use", b"three"), ("ignore", b"one")])
def test_an_offset_that_is_older_than_its_topic_is_used_and_told_or_ignored(
    world: FakeEnvironment, connect: MakeConnector, what: str, first: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    world.zookeeper.ensure(paths.offset(GROUP, TopicPartition("t-1", 0)), b"2")
    make_topic(world, "t-1", "one", "two", "three")
    connector = connect(offsets_older_than_topic=what)
    [stream] = connector.create_message_streams_by_filter(Whitelist("t-.*"))
    assert take(stream, 1)[0].value == first
    assert "offset-older-than-topic" in caplog.text
    assert connector.counters.get("offsets_ignored", 0) == (1 if what == "ignore" else 0)
