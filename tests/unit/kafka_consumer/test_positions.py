"""Positions and offsets of ``KafkaConsumer``: seek, pause, the committed offset, look-ups, lag, topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kafka_consumer_fixtures import (
    BEGINNING,
    END,
    HEARTBEAT_MS,
    TOPIC,
    TP0,
    TP1,
    RecordingListener,
    ScriptedConsumer,
    offsets,
    offsets_of_fetch,
)
from tests.poll_fetcher_fixtures import list_offsets_response
from zkconsumer.errors import (
    AuthenticationException,
    InvalidTopicException,
    NoOffsetForPartitionException,
    TimeoutException,
    UsageError,
    WakeupException,
)
from zkconsumer.kafka.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    GROUP_AUTHORIZATION_FAILED,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    REBALANCE_IN_PROGRESS,
)
from zkconsumer.kafka.group.errors import GroupAuthorizationException
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.kafka.supported_versions import VersionRange
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import (
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FETCH,
)

OTHER = TopicPartition("another", 0)


# --- the first position -------------------------------------------------------------------------------------------


def test_a_partition_begins_at_its_committed_offset() -> None:
    scripted = ScriptedConsumer(auto_offset_reset="none")
    scripted.cluster.committed[TP0] = 539
    scripted.assign(TP0)
    assert scripted.position(TP0) == 539
    assert scripted.sent(LIST_OFFSETS) == []


@pytest.mark.parametrize(("policy", "expected"), [("latest", 50), ("earliest", 10)])
def test_a_partition_without_committed_offset_begins_by_the_reset_policy(policy: str, expected: int) -> None:
    scripted = ScriptedConsumer(auto_offset_reset=policy)
    scripted.cluster.logs[TP0] = (10, 50)
    scripted.consumer.assign([TP0])
    scripted.poll_until(lambda: scripted.sent(FETCH))
    assert offsets_of_fetch(scripted.sent(FETCH)[0]) == {TP0: expected}


def test_a_partition_without_committed_offset_and_policy_raises_until_a_seek() -> None:
    scripted = ScriptedConsumer(auto_offset_reset="none")
    scripted.cluster.append(TP0, 3)
    scripted.consumer.assign([TP0])
    for _ in range(2):
        with pytest.raises(NoOffsetForPartitionException) as raised:
            scripted.poll_until(lambda: False)
        assert raised.value.partitions == {TP0}
    scripted.consumer.seek(TP0, 1)
    assert scripted.read(2) == [(TP0, 1), (TP0, 2)]


def test_without_a_group_a_partition_begins_by_the_reset_policy() -> None:
    scripted = ScriptedConsumer(group=None, auto_offset_reset="latest")
    scripted.cluster.append(TP0, 4)
    scripted.assign(TP0)
    assert scripted.position(TP0) == 4
    assert "FindCoordinator" not in scripted.sent_names()


def test_a_seek_needs_no_coordinator() -> None:
    scripted = ScriptedConsumer()
    scripted.cluster.logs[TP0] = (50, 55)
    scripted.consumer.assign([TP0])
    scripted.consumer.seek_to_beginning([TP0])
    assert scripted.read(5)[0] == (TP0, 50)
    assert scripted.position(TP0) == 55
    assert set(scripted.sent_names()) == {"ListOffsets", "Fetch"}


def test_a_load_of_committed_offsets_is_repeated_until_it_is_answered() -> None:
    scripted = ScriptedConsumer()
    scripted.cluster.committed[TP0] = 7
    scripted.cluster.fail_next(OFFSET_FETCH, COORDINATOR_LOAD_IN_PROGRESS)
    scripted.consumer.assign([TP0])
    scripted.poll(1000)
    assert scripted.position(TP0) == 7
    assert len(scripted.sent(OFFSET_FETCH)) == 2


def test_one_partition_is_read_while_the_committed_offset_of_another_is_looked_up() -> None:
    scripted = ScriptedConsumer(partition_assignment_strategy="cooperative-sticky")
    scripted.join(TP0)
    scripted.cluster.hold(OFFSET_FETCH)
    scripted.cluster.assignment = (TP0, TP1)
    scripted.consumer.enforce_rebalance()
    scripted.poll_until(lambda: scripted.in_flight(OFFSET_FETCH))
    scripted.append(TP0, 3)
    began = scripted.clock.now_ms()
    assert offsets(scripted.poll(1000)) == [0, 1, 2]
    assert scripted.clock.now_ms() == began
    scripted.cluster.committed[TP1] = 7
    scripted.answer(OFFSET_FETCH)
    assert scripted.consumer.position(TP1) == 7


def test_a_load_without_permission_is_raised_by_poll() -> None:
    scripted = ScriptedConsumer()
    scripted.cluster.fail_next(OFFSET_FETCH, GROUP_AUTHORIZATION_FAILED)
    scripted.consumer.assign([TP0])
    with pytest.raises(GroupAuthorizationException):
        scripted.poll_until(lambda: False)
    scripted.poll_until(lambda: scripted.in_flight(FETCH))


def test_an_offset_out_of_range_begins_again_by_the_reset_policy() -> None:
    scripted = ScriptedConsumer()
    scripted.cluster.committed[TP0] = 3
    scripted.cluster.logs[TP0] = (10, 12)
    scripted.cluster.partition_errors[TP0] = OFFSET_OUT_OF_RANGE
    scripted.consumer.assign([TP0])
    scripted.poll_until(lambda: scripted.sent(FETCH))
    del scripted.cluster.partition_errors[TP0]
    assert scripted.read(2) == [(TP0, 10), (TP0, 11)]


# --- seek ---------------------------------------------------------------------------------------------------------


def test_the_position_after_a_seek_is_its_offset() -> None:
    scripted = ScriptedConsumer(auto_offset_reset="latest")
    scripted.consumer.assign([TP0])
    scripted.consumer.seek(TP0, 20)
    scripted.poll()
    assert scripted.position(TP0) == 20
    scripted.consumer.seek(TP0, OffsetAndMetadata(30, "note"))
    assert scripted.position(TP0) == 30


@pytest.mark.parametrize(("partition", "offset"), [(TP0, -1), (OTHER, 5), (TP0, 2**63), (TP0, "5"), (TP0, 5.0)])
def test_a_seek_of_a_wrong_offset_or_partition_is_an_error(partition: TopicPartition, offset: Any) -> None:
    consumer = ScriptedConsumer(group=None).consumer
    consumer.assign([TP0])
    with pytest.raises(UsageError):
        consumer.seek(partition, offset)


def test_a_load_that_arrives_after_a_seek_does_not_undo_it() -> None:
    scripted = ScriptedConsumer()
    scripted.cluster.committed[TP0] = 3
    scripted.cluster.append(TP0, 12)
    scripted.cluster.hold(OFFSET_FETCH)
    scripted.consumer.assign([TP0])
    scripted.poll_until(lambda: scripted.in_flight(OFFSET_FETCH))
    scripted.consumer.seek(TP0, 10)
    scripted.answer(OFFSET_FETCH)
    assert scripted.read(2) == [(TP0, 10), (TP0, 11)]


def test_a_load_that_arrives_after_another_assignment_does_not_change_it() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False)
    scripted.cluster.committed[TP0] = 3
    scripted.cluster.append(TP0, 12)
    scripted.cluster.hold(OFFSET_FETCH)
    scripted.consumer.assign([TP0])
    scripted.poll_until(lambda: scripted.in_flight(OFFSET_FETCH))
    scripted.consumer.assign([TP1])
    scripted.consumer.assign([TP0])
    scripted.answer(OFFSET_FETCH)  # it answers the first assignment
    scripted.cluster.committed[TP0] = 8
    assert scripted.read(1)[0] == (TP0, 8)


def test_a_reset_that_arrives_after_a_seek_does_not_undo_it() -> None:
    scripted = ScriptedConsumer(group=None)
    scripted.cluster.append(TP0, 12)
    scripted.cluster.hold(LIST_OFFSETS)
    scripted.consumer.assign([TP0])
    scripted.poll_until(lambda: scripted.in_flight(LIST_OFFSETS))
    scripted.consumer.seek(TP0, 10)
    scripted.answer(LIST_OFFSETS)
    assert scripted.read(2) == [(TP0, 10), (TP0, 11)]


def test_a_seek_drops_what_is_buffered_and_what_is_in_flight() -> None:
    scripted = ScriptedConsumer(group=None, max_poll_records=1)
    scripted.assign(TP0)
    scripted.append(TP0, 6)
    assert offsets(scripted.poll()) == [0]
    scripted.consumer.seek(TP0, 4)
    assert scripted.read(2) == [(TP0, 4), (TP0, 5)]


def test_seek_to_the_beginning_and_the_end_take_all_partitions_by_default() -> None:
    scripted = ScriptedConsumer(group=None)
    scripted.cluster.logs.update({TP0: (2, 5), TP1: (3, 9)})
    scripted.consumer.assign([TP0, TP1])
    scripted.consumer.seek_to_end()
    assert (scripted.consumer.position(TP0), scripted.consumer.position(TP1)) == (5, 9)
    scripted.consumer.seek_to_beginning()
    assert (scripted.consumer.position(TP0), scripted.consumer.position(TP1)) == (2, 3)


# --- position -----------------------------------------------------------------------------------------------------


def test_position_waits_until_it_is_known() -> None:
    scripted = ScriptedConsumer()
    scripted.cluster.committed[TP0] = 539
    scripted.consumer.assign([TP0])
    assert scripted.consumer.position(TP0) == 539


def test_position_raises_after_its_time() -> None:
    scripted = ScriptedConsumer()
    scripted.cluster.hold(FIND_COORDINATOR)
    scripted.consumer.assign([TP0])
    began = scripted.clock.now_ms()
    with pytest.raises(TimeoutException, match="Timeout of 1500ms expired before the position for partition test/0"):
        scripted.consumer.position(TP0, 1500)
    assert scripted.clock.now_ms() - began <= 1600


def test_position_of_a_partition_that_is_not_assigned_is_an_error() -> None:
    scripted = ScriptedConsumer()
    with pytest.raises(UsageError, match="assigned to this consumer"):
        scripted.consumer.position(TP0)


def test_position_is_found_while_the_group_waits_for_the_next_poll() -> None:
    scripted = ScriptedConsumer()
    scripted.cluster.committed[TP0] = 5
    scripted.cluster.hold(OFFSET_FETCH)
    scripted.subscribe(TP0)
    scripted.cluster.fail_next(HEARTBEAT, REBALANCE_IN_PROGRESS)
    scripted.run_heartbeat_thread(HEARTBEAT_MS)
    assert scripted.consumer._coordinator is not None
    assert scripted.consumer._coordinator.has_commands
    scripted.cluster.held.clear()
    scripted.answer(OFFSET_FETCH)
    assert scripted.consumer.position(TP0, 1000) == 5


def test_position_is_found_while_an_automatic_commit_waits_for_the_next_poll() -> None:
    scripted = ScriptedConsumer()
    scripted.cluster.committed[TP0] = 5
    scripted.cluster.fail_next(OFFSET_FETCH, *[COORDINATOR_LOAD_IN_PROGRESS] * 6)
    scripted.consumer.assign([TP0])
    scripted.poll()
    assert scripted.consumer.position(TP0, 30_000) == 5


def test_position_is_found_inside_of_the_listener() -> None:
    scripted = ScriptedConsumer()
    scripted.cluster.committed[TP0] = 5
    found: list[int] = []
    listener = RecordingListener()
    listener.on_call = lambda name: found.append(scripted.consumer.position(TP0, 1000))
    scripted.join(TP0, listener=listener)
    assert found == [5]


# --- pause --------------------------------------------------------------------------------------------------------


def test_paused_partitions_are_reported_until_resume_or_unsubscribe() -> None:
    consumer = ScriptedConsumer().consumer
    consumer.assign([TP0])
    assert consumer.paused() == frozenset()
    consumer.pause([TP0])
    assert consumer.paused() == {TP0}
    consumer.resume([TP0])
    assert consumer.paused() == frozenset()
    consumer.pause([TP0])
    consumer.unsubscribe()
    assert consumer.paused() == frozenset()


def test_pause_keeps_what_is_buffered_and_resume_returns_it_without_another_fetch() -> None:
    scripted = ScriptedConsumer(group=None, max_poll_records=2)
    scripted.assign(TP0)
    scripted.append(TP0, 4)
    assert offsets(scripted.poll()) == [0, 1]
    scripted.consumer.pause([TP0])
    assert [scripted.poll(10).count() for _ in range(3)] == [0, 0, 0]
    scripted.consumer.resume([TP0])
    assert offsets(scripted.poll()) == [2, 3]
    scripted.poll()
    assert [offsets_of_fetch(body) for body in scripted.sent(FETCH)] == [{TP0: 0}, {TP0: 4}]


def test_pause_of_one_partition_returns_the_others() -> None:
    scripted = ScriptedConsumer(group=None)
    scripted.assign(TP0, TP1)
    scripted.consumer.pause([TP0])
    scripted.cluster.append(TP0, 2)
    scripted.append(TP1, 2)
    assert scripted.read(2) == [(TP1, 0), (TP1, 1)]
    scripted.consumer.resume([TP0])
    assert scripted.read(2) == [(TP0, 0), (TP0, 1)]


def test_pause_of_a_partition_that_is_not_assigned_is_an_error() -> None:
    scripted = ScriptedConsumer()
    scripted.consumer.assign([TP0])
    for call in (scripted.consumer.pause, scripted.consumer.resume):
        with pytest.raises(UsageError, match="not assigned"):
            call([OTHER])


def test_the_positions_of_paused_partitions_can_be_read() -> None:
    scripted = ScriptedConsumer()
    scripted.cluster.logs.update({TP0: (0, 3), TP1: (0, 3)})
    scripted.cluster.committed.update({TP0: 0, TP1: 0})
    scripted.consumer.assign([TP0, TP1])
    scripted.consumer.pause([TP0, TP1])
    scripted.consumer.seek_to_end([TP0, TP1])
    for tp in (TP0, TP1):
        assert scripted.consumer.committed([tp]) == {tp: OffsetAndMetadata(0)}
    assert (scripted.consumer.position(TP0), scripted.consumer.position(TP1)) == (3, 3)


# --- committed ----------------------------------------------------------------------------------------------------


def test_committed_offsets_are_those_of_the_coordinator() -> None:
    scripted = ScriptedConsumer()
    scripted.cluster.committed.update({TP0: 10_000, TP1: 20_000})
    scripted.consumer.assign([TP0])
    assert scripted.consumer.committed([TP0]) == {TP0: OffsetAndMetadata(10_000)}
    scripted.consumer.assign([TP0, TP1])
    assert scripted.consumer.committed([TP1]) == {TP1: OffsetAndMetadata(20_000)}
    assert len(scripted.sent(FIND_COORDINATOR)) == 1


def test_a_partition_without_committed_offset_has_none() -> None:
    scripted = ScriptedConsumer()
    scripted.cluster.committed[TP0] = 10_000
    assert scripted.consumer.committed([TP0, TP1]) == {TP0: OffsetAndMetadata(10_000), TP1: None}
    assert scripted.consumer.committed([]) == {}


def test_an_old_broker_is_asked_for_committed_offsets_without_the_condition_of_stable_ones() -> None:
    for ask in (
        lambda scripted: scripted.consumer.committed([TP0])[TP0].offset,
        lambda scripted: scripted.consumer.position(TP0),
    ):
        scripted = ScriptedConsumer()
        scripted.kafka.limits[OFFSET_FETCH.key] = VersionRange(0, 6)
        scripted.cluster.committed[TP0] = 10_000
        scripted.consumer.assign([TP0])
        assert ask(scripted) == 10_000


def test_committed_raises_after_its_time() -> None:
    scripted = ScriptedConsumer()
    scripted.cluster.hold(OFFSET_FETCH)
    with pytest.raises(TimeoutException, match="Timeout of 1500ms expired before the last committed offset"):
        scripted.consumer.committed([TP0], 1500)


def test_a_wakeup_ends_committed() -> None:
    scripted = ScriptedConsumer()
    scripted.cluster.hold(OFFSET_FETCH)
    scripted.kafka.on_wait = lambda ms: scripted.consumer.wakeup()
    with pytest.raises(WakeupException):
        scripted.consumer.committed([TP0])


# --- look-ups of offsets ------------------------------------------------------------------------------------------


def test_the_first_and_last_offsets_of_partitions_need_no_assignment() -> None:
    scripted = ScriptedConsumer(group=None)
    scripted.cluster.logs.update({TP0: (2, 5), TP1: (3, 9)})
    assert scripted.consumer.beginning_offsets([TP0, TP1]) == {TP0: 2, TP1: 3}
    assert scripted.consumer.end_offsets([TP0, TP1]) == {TP0: 5, TP1: 9}
    timestamps = [body.topics[0].partitions[0].timestamp for body in scripted.sent(LIST_OFFSETS)]
    assert timestamps == [BEGINNING, END]


def test_offsets_for_times_returns_the_record_that_the_broker_names() -> None:
    scripted = ScriptedConsumer(group=None)
    scripted.kafka.prepare(list_offsets_response({TP0: 7}, timestamp=1234))
    assert scripted.consumer.offsets_for_times({TP0: 1200}) == {TP0: (7, 1234, None)}
    scripted.kafka.prepare(list_offsets_response({TP0: -1}, timestamp=-1))
    assert scripted.consumer.offsets_for_times({TP0: 5000}) == {TP0: None}
    with pytest.raises(UsageError, match="cannot be negative"):
        scripted.consumer.offsets_for_times({TP0: -1})
    with pytest.raises(UsageError, match="'1200': pass a number"):
        scripted.consumer.offsets_for_times({TP0: "1200"})  # type: ignore[dict-item]


LOOKUPS: list[Callable[[ScriptedConsumer], Any]] = [
    lambda scripted: scripted.consumer.offsets_for_times({TP0: 0}),
    lambda scripted: scripted.consumer.beginning_offsets([TP0]),
    lambda scripted: scripted.consumer.end_offsets([TP0]),
]


@pytest.mark.parametrize("look_up", LOOKUPS)
def test_a_look_up_without_answer_raises_after_the_time_of_the_configuration(look_up: Callable[..., Any]) -> None:
    scripted = ScriptedConsumer(group=None, default_api_timeout_ms=40_000)
    scripted.cluster.hold(LIST_OFFSETS)
    with pytest.raises(TimeoutException, match="40000"):
        look_up(scripted)


@pytest.mark.parametrize(
    "call",
    [
        *LOOKUPS,
        lambda scripted: scripted.consumer.partitions_for("another"),
        lambda scripted: scripted.consumer.list_topics(),
        lambda scripted: scripted.consumer.committed([TP0]),
    ],
)
def test_a_look_up_raises_a_failed_login(call: Callable[..., Any]) -> None:
    scripted = ScriptedConsumer()
    scripted.fail_login()
    with pytest.raises(AuthenticationException, match="the password is wrong"):
        call(scripted)


# --- lag ----------------------------------------------------------------------------------------------------------


def test_the_lag_is_unknown_until_the_position_and_the_end_are_known() -> None:
    scripted = ScriptedConsumer()
    with pytest.raises(UsageError):
        scripted.consumer.current_lag(TP0)
    scripted.consumer.assign([TP0])
    assert scripted.consumer.current_lag(TP0) is None  # the leader is not known, so nothing is requested
    scripted.consumer.seek(TP0, 50)
    scripted.cluster.logs[TP0] = (50, 90)
    scripted.cluster.hold(FETCH, LIST_OFFSETS)
    scripted.poll()
    assert [scripted.consumer.current_lag(TP0) for _ in range(3)] == [None] * 3
    scripted.poll()
    scripted.answer(LIST_OFFSETS)
    scripted.poll()
    assert scripted.consumer.current_lag(TP0) == 40
    assert len(scripted.sent(LIST_OFFSETS)) == 1


def test_the_lag_is_asked_for_again_after_an_error() -> None:
    scripted = ScriptedConsumer()
    scripted.consumer.assign([TP0])
    scripted.consumer.seek(TP0, 50)
    scripted.cluster.logs[TP0] = (50, 90)
    scripted.cluster.hold(FETCH)
    scripted.cluster.fail_next(LIST_OFFSETS, NOT_LEADER_OR_FOLLOWER)
    scripted.poll()
    lags = []
    for _ in range(3):
        lags.append(scripted.consumer.current_lag(TP0))
        scripted.poll()
    assert lags == [None, None, 40]


def test_the_lag_is_asked_for_again_after_a_disconnect() -> None:
    scripted = ScriptedConsumer(group=None)
    scripted.consumer.assign([TP0])
    scripted.consumer.seek(TP0, 50)
    scripted.consumer.pause([TP0])
    scripted.cluster.logs[TP0] = (50, 90)
    scripted.cluster.hold(LIST_OFFSETS)
    scripted.poll()
    assert scripted.consumer.current_lag(TP0) is None
    scripted.poll()
    scripted.kafka.disconnect(0)
    scripted.cluster.held.clear()
    scripted.poll()
    assert scripted.consumer.current_lag(TP0) is None
    scripted.poll()
    assert scripted.consumer.current_lag(TP0) == 40


def test_the_lag_follows_the_fetches() -> None:
    scripted = ScriptedConsumer(group=None)
    scripted.cluster.records_max = 5
    scripted.cluster.logs[TP0] = (50, 100)
    scripted.consumer.assign([TP0])
    assert scripted.read(5)[-1] == (TP0, 54)
    assert scripted.consumer.current_lag(TP0) == 45


def test_the_end_offsets_of_a_look_up_show_the_lag() -> None:
    scripted = ScriptedConsumer(group=None)
    scripted.cluster.hold(FETCH)
    scripted.cluster.logs[TP0] = (0, 90)
    scripted.consumer.assign([TP0])
    scripted.consumer.seek(TP0, 50)
    assert scripted.consumer.end_offsets([TP0]) == {TP0: 90}
    assert scripted.consumer.current_lag(TP0) == 40


# --- topics -------------------------------------------------------------------------------------------------------


def test_a_topic_that_does_not_exist_has_no_partitions() -> None:
    scripted = ScriptedConsumer()
    assert scripted.consumer.partitions_for("non-existent") == ()
    with pytest.raises(InvalidTopicException):
        scripted.consumer.partitions_for("")


def test_partitions_for_asks_only_for_topics_that_are_not_known() -> None:
    scripted = ScriptedConsumer(group=None)
    assert [each.partition for each in scripted.consumer.partitions_for(TOPIC)] == [0, 1]
    assert len(scripted.sent(METADATA)) == 1
    scripted.assign(TP0)
    assert len(scripted.consumer.partitions_for(TOPIC)) == 2
    assert len(scripted.sent(METADATA)) == 1


def test_list_topics_has_all_topics() -> None:
    scripted = ScriptedConsumer(group=None)
    assert {name: len(found) for name, found in scripted.consumer.list_topics().items()} == scripted.cluster.topics


def test_a_look_up_of_topics_raises_after_its_time() -> None:
    scripted = ScriptedConsumer(group=None)
    scripted.cluster.hold(METADATA)
    with pytest.raises(TimeoutException, match="1500"):
        scripted.consumer.list_topics(1500)
