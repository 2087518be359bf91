"""``subscribe``, ``assign`` and ``unsubscribe`` of ``KafkaConsumer``, and what the group does about them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.kafka_consumer_fixtures import (
    AUTO_COMMIT_MS,
    HEARTBEAT_MS,
    T2P0,
    T3P0,
    TOPIC,
    TOPIC2,
    TOPIC3,
    TP0,
    TP1,
    RecordingListener,
    ScriptedConsumer,
    offsets,
)
from zkconsumer.errors import InvalidConfigException, UsageError
from zkconsumer.kafka.error_codes import UNKNOWN_MEMBER_ID
from zkconsumer.kafka.group.errors import InvalidGroupIdException, RebalanceCallbackFailed
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import FETCH, HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, OFFSET_COMMIT

OTHER, OFFSETS_TOPIC = "other", "__consumer_offsets"


# --- the calls ----------------------------------------------------------------------------------------------------


def test_subscription_and_assignment_replace_each_other_after_unsubscribe() -> None:
    consumer = ScriptedConsumer().consumer
    consumer.subscribe([TOPIC])
    assert (consumer.subscription(), consumer.assignment()) == ({TOPIC}, frozenset())
    consumer.subscribe([])
    assert (consumer.subscription(), consumer.assignment()) == (frozenset(), frozenset())
    consumer.assign([TP0])
    assert (consumer.subscription(), consumer.assignment()) == (frozenset(), {TP0})
    consumer.unsubscribe()
    assert (consumer.subscription(), consumer.assignment()) == (frozenset(), frozenset())


def test_an_empty_assignment_unsubscribes() -> None:
    consumer = ScriptedConsumer().consumer
    consumer.assign([TP0])
    consumer.assign([])
    assert (consumer.subscription(), consumer.assignment()) == (frozenset(), frozenset())


@pytest.mark.parametrize("topics", [None, [None], [""], ["  "], ["good", " "], TOPIC, re.compile("")])
def test_a_subscription_without_a_topic_name_is_an_error(topics: Any) -> None:
    consumer = ScriptedConsumer().consumer
    with pytest.raises(UsageError):
        consumer.subscribe(topics)
    assert consumer.subscription() == frozenset()


@pytest.mark.parametrize(
    "partitions", [None, [None], [TopicPartition("", 0)], [TopicPartition("  ", 0)], [TopicPartition(None, 0)]]
)
def test_an_assignment_without_a_topic_name_is_an_error(partitions: Any) -> None:
    consumer = ScriptedConsumer(group=None).consumer
    with pytest.raises(UsageError):
        consumer.assign(partitions)
    assert consumer.assignment() == frozenset()


def test_topics_a_pattern_and_an_assignment_exclude_each_other() -> None:
    consumer = ScriptedConsumer().consumer
    consumer.subscribe([TOPIC])
    with pytest.raises(UsageError, match="exclude each other"):
        consumer.assign([TP0])
    with pytest.raises(UsageError, match="exclude each other"):
        consumer.subscribe(re.compile(TOPIC))
    consumer.unsubscribe()
    consumer.assign([TP0])
    with pytest.raises(UsageError, match="exclude each other"):
        consumer.subscribe([TOPIC])


def test_an_empty_list_of_assignors_is_refused_when_the_consumer_is_created() -> None:
    with pytest.raises(InvalidConfigException, match=r"partition\.assignment\.strategy"):
        ScriptedConsumer(partition_assignment_strategy="")


def test_without_a_group_id_subscriptions_and_commits_are_errors() -> None:
    consumer = ScriptedConsumer(group=None).consumer
    for call in (
        lambda: consumer.subscribe([TOPIC]),
        lambda: consumer.committed([TP0]),
        consumer.commit_async,
        consumer.commit_sync,
        consumer.group_metadata,
    ):
        with pytest.raises(InvalidGroupIdException, match=r"group\.id"):
            call()


def test_without_a_group_id_an_assignment_works_and_commits_are_errors() -> None:
    scripted = ScriptedConsumer(group=None)
    scripted.assign(TP0)
    scripted.append(TP0, 1)
    assert offsets(scripted.poll()) == [0]
    for call in (
        lambda: scripted.consumer.committed([TP0]),
        scripted.consumer.commit_async,
        scripted.consumer.commit_sync,
    ):
        with pytest.raises(InvalidGroupIdException):
            call()
    assert scripted.threads == []


def test_automatic_commits_without_a_group_id_are_an_error() -> None:
    with pytest.raises(InvalidConfigException, match=r"enable\.auto\.commit"):
        ScriptedConsumer(group=None, enable_auto_commit=True)


# --- patterns -----------------------------------------------------------------------------------------------------


def pattern_consumer(**settings: object) -> ScriptedConsumer:
    return ScriptedConsumer(topics={TOPIC: 1, OTHER: 1}, **settings)


def test_a_pattern_subscribes_to_the_topics_that_it_matches() -> None:
    scripted = pattern_consumer()
    scripted.cluster.assignment = (TP0,)
    scripted.consumer.subscribe(re.compile(TOPIC))
    scripted.poll_until(scripted.consumer.assignment)
    assert (scripted.consumer.subscription(), scripted.consumer.assignment()) == ({TOPIC}, {TP0})
    assert scripted.joined_topics() == [{TOPIC}]


def test_another_pattern_joins_the_group_with_its_topics() -> None:
    scripted = pattern_consumer(enable_auto_commit=False)
    scripted.cluster.assignment = (TP0,)
    scripted.consumer.subscribe(re.compile(TOPIC))
    scripted.poll_until(scripted.consumer.assignment)
    other = TopicPartition(OTHER, 0)
    scripted.cluster.assignment = (other,)
    scripted.consumer.subscribe(re.compile(OTHER))
    scripted.poll_until(lambda: scripted.consumer.assignment() == {other})
    assert scripted.consumer.subscription() == {OTHER}
    assert scripted.joined_topics() == [{TOPIC}, {OTHER}]


def test_a_pattern_joins_with_topics_of_new_metadata_only() -> None:
    scripted = pattern_consumer()
    scripted.join(TP0)
    scripted.consumer.unsubscribe()
    scripted.cluster.assignment = ()
    scripted.consumer.subscribe(re.compile(".*"))
    scripted.poll_until(lambda: scripted.generation == 2)
    assert scripted.joined_topics() == [{TOPIC}, {TOPIC, OTHER}]


@pytest.mark.parametrize("excludes", [True, False])
def test_a_look_up_of_an_internal_topic_does_not_subscribe_a_pattern_to_it(excludes: bool) -> None:
    scripted = ScriptedConsumer(topics={TOPIC: 1, OFFSETS_TOPIC: 1}, exclude_internal_topics=excludes)
    wanted = {TOPIC} if excludes else {TOPIC, OFFSETS_TOPIC}
    scripted.cluster.assignment = (TP0,)
    scripted.consumer.subscribe(re.compile(".*"))
    scripted.poll_until(lambda: scripted.in_flight(FETCH))
    assert scripted.consumer.end_offsets([TopicPartition(OFFSETS_TOPIC, 0)])
    for _ in range(5):
        scripted.poll()
    assert scripted.consumer.subscription() == wanted
    assert scripted.joined_topics() == [wanted]


def test_a_pattern_follows_new_topics() -> None:
    scripted = pattern_consumer(metadata_max_age_ms=5_000)
    scripted.cluster.assignment = (TP0,)
    scripted.consumer.subscribe(re.compile("t.*"))
    scripted.poll_until(scripted.consumer.assignment)
    scripted.cluster.topics["titles"] = 1
    scripted.kafka.update_metadata(scripted.cluster.metadata())
    titles = TopicPartition("titles", 0)
    scripted.cluster.assignment = (TP0, titles)
    scripted.poll_until(lambda: scripted.consumer.assignment() == {TP0, titles})
    assert scripted.joined_topics() == [{TOPIC}, {TOPIC, "titles"}]


# --- changes ------------------------------------------------------------------------------------------------------


def test_a_changed_subscription_commits_what_was_returned_and_then_changes_the_assignment() -> None:
    scripted = ScriptedConsumer(auto_commit_interval_ms=60_000)
    scripted.join(TP0, T2P0)
    scripted.cluster.append(T2P0, 10)
    scripted.append(TP0, 1)
    records = scripted.poll()
    assert (offsets(records, TP0), offsets(records, T2P0)) == ([0], list(range(10)))
    scripted.consumer.subscribe([TOPIC, TOPIC3])
    assert scripted.consumer.subscription() == {TOPIC, TOPIC3}
    assert scripted.consumer.assignment() == {TP0, T2P0}
    assert scripted.cluster.commits == []
    scripted.cluster.assignment = (TP0, T3P0)
    scripted.poll_until(lambda: scripted.consumer.assignment() == {TP0, T3P0})
    assert scripted.cluster.commits == [{TP0: 1, T2P0: 10}]
    assert scripted.joined_topics() == [{TOPIC, TOPIC2}, {TOPIC, TOPIC3}]
    assert scripted.position(TP0) == 1
    scripted.consumer.unsubscribe()
    assert (scripted.consumer.subscription(), scripted.consumer.assignment()) == (frozenset(), frozenset())


def test_a_changed_subscription_commits_nothing_if_commits_are_not_automatic() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False)
    scripted.join(TP0)
    scripted.append(TP0, 1)
    assert offsets(scripted.poll()) == [0]
    scripted.consumer.subscribe([TOPIC2])
    assert (scripted.consumer.subscription(), scripted.consumer.assignment()) == ({TOPIC2}, {TP0})
    scripted.cluster.assignment = (T2P0,)
    scripted.poll_until(lambda: scripted.consumer.assignment() == {T2P0})
    scripted.consumer.unsubscribe()
    assert (scripted.consumer.subscription(), scripted.consumer.assignment()) == (frozenset(), frozenset())
    assert scripted.sent(OFFSET_COMMIT) == []


def test_subscribe_drops_what_is_buffered_of_topics_that_are_no_longer_subscribed() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False)
    scripted.join(TP0, T2P0)
    scripted.cluster.append(T2P0, 3)
    scripted.append(TP0, 2)
    scripted.cluster.hold(JOIN_GROUP)
    scripted.consumer.pause([TP0, T2P0])
    scripted.poll()  # the responses are buffered
    scripted.consumer.subscribe([TOPIC])
    scripted.consumer.resume([TP0, T2P0])
    records = scripted.consumer._fetcher.fetched_records()  # before the group revokes anything
    assert records.keys() == {TP0}


def test_unsubscribe_leaves_the_group_after_the_listener_and_the_commit() -> None:
    scripted = ScriptedConsumer()
    listener = RecordingListener()
    scripted.join(TP0, listener=listener)
    scripted.append(TP0, 2)
    scripted.poll()
    listener.on_call = lambda name: seen.append((name, list(scripted.cluster.commits), scripted.sent(LEAVE_GROUP)))
    seen: list[Any] = []
    scripted.consumer.unsubscribe()
    assert seen == [("revoked", [{TP0: 2}], [])]
    assert scripted.sent_names()[-1] == "LeaveGroup"
    assert scripted.consumer.assignment() == frozenset()


def test_after_unsubscribe_the_consumer_can_join_again() -> None:
    scripted = ScriptedConsumer()
    scripted.join(TP0)
    scripted.consumer.unsubscribe()
    scripted.join(TP1)
    assert scripted.consumer.assignment() == {TP1}
    assert len(scripted.sent(JOIN_GROUP)) == 2


def test_unsubscribe_calls_the_listener_of_a_member_and_raises_its_exception() -> None:
    scripted = ScriptedConsumer(partition_assignment_strategy="cooperative-sticky", enable_auto_commit=False)
    listener = RecordingListener()
    listener.raises["revoked"] = RuntimeError("revoke failed")
    scripted.join(TP0, listener=listener)
    with pytest.raises(RebalanceCallbackFailed, match="revoke failed"):
        scripted.consumer.unsubscribe()
    assert listener.calls[-1] == ("revoked", [TP0])
    assert scripted.consumer.assignment() == frozenset()
    assert len(scripted.sent(LEAVE_GROUP)) == 1


def test_unsubscribe_of_a_member_without_generation_reports_lost_partitions_and_raises() -> None:
    scripted = ScriptedConsumer(partition_assignment_strategy="cooperative-sticky", enable_auto_commit=False)
    listener = RecordingListener()
    listener.raises["lost"] = RuntimeError("the loss failed")
    scripted.join(TP0, listener=listener)
    scripted.cluster.fail_next(HEARTBEAT, UNKNOWN_MEMBER_ID)
    scripted.run_heartbeat_thread(HEARTBEAT_MS)
    with pytest.raises(RebalanceCallbackFailed, match="the loss failed"):
        scripted.consumer.unsubscribe()
    assert listener.calls[-1] == ("lost", [TP0])
    assert scripted.consumer.assignment() == frozenset()


def test_unsubscribe_waits_for_a_silent_coordinator_only_for_its_time() -> None:
    scripted = ScriptedConsumer(default_api_timeout_ms=2_000, request_timeout_ms=1_500)
    scripted.join(TP0)
    scripted.append(TP0, 1)
    scripted.poll()
    scripted.cluster.hold(OFFSET_COMMIT)
    began = scripted.clock.now_ms()
    scripted.consumer.unsubscribe()
    assert scripted.clock.now_ms() - began <= 2_000
    assert scripted.consumer.assignment() == frozenset()


def test_another_assignment_of_the_program_commits_what_is_due() -> None:
    scripted = ScriptedConsumer()
    scripted.cluster.committed[TP0] = 10
    scripted.cluster.logs[TP0] = (10, 10)
    scripted.assign(TP0)
    scripted.append(TP0, 1)
    assert offsets(scripted.poll()) == [10]
    scripted.clock.move(AUTO_COMMIT_MS)
    scripted.consumer.assign([T2P0])
    assert scripted.consumer.assignment() == {T2P0}
    scripted.poll()
    assert scripted.cluster.commits == [{TP0: 11}]


def test_another_assignment_of_the_program_commits_nothing_if_commits_are_not_automatic() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False)
    scripted.assign(TP0)
    scripted.append(TP0, 1)
    assert offsets(scripted.poll()) == [0]
    scripted.clock.move(AUTO_COMMIT_MS)
    scripted.consumer.assign([T2P0])
    scripted.poll_until(lambda: scripted.in_flight(FETCH))
    assert scripted.consumer.assignment() == {T2P0}
    assert scripted.sent(OFFSET_COMMIT) == []


def test_another_assignment_drops_what_is_buffered_of_the_former_one() -> None:
    scripted = ScriptedConsumer(group=None, max_poll_records=1)
    scripted.assign(TP0, TP1)
    scripted.cluster.append(TP1, 2)
    scripted.append(TP0, 2)
    assert scripted.poll().count() == 1
    scripted.consumer.assign([TP1])
    fetcher = scripted.consumer._fetcher
    assert [fetch.partition for fetch in (fetcher._next_in_line, *fetcher._completed_fetches) if fetch] == [TP1]
    assert scripted.read(2) == [(TP1, 0), (TP1, 1)]
    assert scripted.consumer.assignment() == {TP1}
