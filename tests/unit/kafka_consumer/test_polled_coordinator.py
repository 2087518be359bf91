"""``PolledCoordinator`` and ``CommittedOffsetLoad``: what ``KafkaConsumer`` and the heartbeat thread call."""

from __future__ import annotations

import re

import pytest

from bridge.client.kafka_consumer.committed_offset_load import CommittedOffsetLoad
from bridge.client.kafka_consumer.polled_coordinator import PolledCoordinator
from tests.kafka_consumer_fixtures import (
    AUTO_COMMIT_MS,
    HEARTBEAT_MS,
    MEMBER_ID,
    RETRY_MS,
    TOPIC,
    TP0,
    TP1,
    RecordingListener,
    ScriptedConsumer,
)
from zkconsumer.base.timer import Timer
from zkconsumer.errors import AuthenticationException, InternalError, TimeoutException
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.wire.schemas import FIND_COORDINATOR, HEARTBEAT, LEAVE_GROUP, OFFSET_COMMIT, OFFSET_FETCH


def coordinator(scripted: ScriptedConsumer) -> PolledCoordinator:
    found = scripted.consumer._coordinator
    assert found is not None
    return found


# --- time ---------------------------------------------------------------------------------------------------------


def test_the_time_to_the_next_poll_ends_with_the_next_deadline() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False)
    scripted.join(TP0)
    group = coordinator(scripted)
    group.poll()
    assert group.time_to_next_poll_ms() == HEARTBEAT_MS
    scripted.clock.move(300)
    assert group.time_to_next_poll_ms() == HEARTBEAT_MS - 300


def test_a_poll_is_needed_at_once_when_the_group_needs_the_program() -> None:
    scripted = ScriptedConsumer()
    scripted.join(TP0)
    group = coordinator(scripted)
    assert group.time_to_next_poll_ms() > 0
    group.enforce_rebalance("test")
    assert group.has_commands
    assert group.time_to_next_poll_ms() == 0


def test_the_background_needs_the_network_while_a_request_is_in_flight() -> None:
    scripted = ScriptedConsumer()
    group = coordinator(scripted)
    assert group.background_deadline_ms() is None
    scripted.cluster.hold(FIND_COORDINATOR)
    scripted.consumer.subscribe([TOPIC])
    scripted.poll_until(lambda: scripted.in_flight(FIND_COORDINATOR))
    assert group.background_deadline_ms() == scripted.clock.now_ms() + RETRY_MS


def test_automatic_commits_are_no_deadline_of_the_background() -> None:
    scripted = ScriptedConsumer()
    scripted.join(TP0)
    assert AUTO_COMMIT_MS < HEARTBEAT_MS
    joined_ms = scripted.clock.now_ms()
    assert coordinator(scripted).background_deadline_ms() == joined_ms + HEARTBEAT_MS


# --- errors of the other thread -------------------------------------------------------------------------------------


def test_an_error_that_the_background_finds_is_raised_by_the_program() -> None:
    scripted = ScriptedConsumer()
    scripted.join(TP0)
    scripted.kafka.metadata.fatal_error(AuthenticationException("the password has changed"))
    scripted.run_heartbeat_thread()
    with pytest.raises(AuthenticationException, match="the password has changed"):
        scripted.poll()
    scripted.poll()


def test_the_end_of_the_heartbeat_thread_by_an_exception_is_raised_by_every_poll() -> None:
    scripted = ScriptedConsumer()
    scripted.join(TP0)
    cause = RuntimeError("a defect")
    coordinator(scripted)._on_thread_error("heartbeat", cause)
    for _ in range(2):
        with pytest.raises(InternalError, match="a defect") as raised:
            scripted.poll()
        assert raised.value.__cause__ is cause
    scripted.consumer.close()


def test_no_call_waits_after_the_end_of_the_heartbeat_thread_by_an_exception() -> None:
    scripted = ScriptedConsumer()
    scripted.join(TP0)
    ends: list[object] = []
    scripted.cluster.hold(OFFSET_COMMIT)
    scripted.consumer.commit_async(callback=lambda _, error: ends.append(error))
    coordinator(scripted)._on_thread_error("heartbeat", RuntimeError("a defect"))
    began_ms = scripted.clock.now_ms()
    with pytest.raises(InternalError, match="a defect") as raised:
        scripted.consumer.commit_sync()
    with pytest.raises(InternalError, match="a defect"):
        scripted.consumer.committed([TP0])
    scripted.consumer.commit_async(callback=lambda _, error: ends.append(error))
    scripted.consumer.close()
    assert scripted.clock.now_ms() == began_ms
    assert ends == [raised.value, raised.value]


# --- the subscription -----------------------------------------------------------------------------------------------


def test_a_pattern_is_compared_with_each_new_state_of_the_metadata_once() -> None:
    scripted = ScriptedConsumer()
    scripted.consumer.subscribe(re.compile("test"))
    scripted.poll_until(scripted.consumer.subscription)
    group = coordinator(scripted)
    assert scripted.consumer.subscription() == {TOPIC}
    scripted.consumer._subscriptions.subscribe_from_pattern([])
    group._update_pattern_subscription()
    assert scripted.consumer.subscription() == frozenset()
    scripted.kafka.update_metadata(scripted.cluster.metadata())
    group._update_pattern_subscription()
    assert scripted.consumer.subscription() == {TOPIC}


def test_the_generation_is_that_of_the_member() -> None:
    scripted = ScriptedConsumer()
    group = coordinator(scripted)
    assert (group.generation.generation_id, group.generation.member_id) == (-1, "")
    scripted.join(TP0)
    assert (group.generation.generation_id, group.generation.member_id) == (1, MEMBER_ID)


# --- offsets ------------------------------------------------------------------------------------------------------


def test_a_look_up_of_committed_offsets_does_not_wait_before_it_is_waited_for() -> None:
    scripted = ScriptedConsumer()
    scripted.cluster.committed[TP0] = 5
    group = coordinator(scripted)
    began = scripted.clock.now_ms()
    call = group.ask_committed_offsets([TP0, TP1])
    assert not call.is_done
    assert not group.wait_for_committed_offsets(call, Timer(scripted.clock, 0))
    assert scripted.clock.now_ms() == began
    assert group.wait_for_committed_offsets(call, Timer(scripted.clock, 1000))
    assert (call.offsets[TP1], call.error) == (None, None)


def test_a_commit_without_waiting_is_sent_at_once_and_one_with_waiting_when_it_is_accepted() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False)
    scripted.join(TP0)
    group = coordinator(scripted)
    scripted.cluster.hold(OFFSET_COMMIT)
    group.commit_offsets_async({TP0: OffsetAndMetadata(1)}, None)
    assert len(scripted.in_flight(OFFSET_COMMIT)) == 1
    with pytest.raises(TimeoutException):
        group.commit_offsets_sync({TP0: OffsetAndMetadata(2)}, Timer(scripted.clock, 500))
    scripted.answer(OFFSET_COMMIT)
    group.commit_offsets_sync({TP0: OffsetAndMetadata(3)}, Timer(scripted.clock, 500))
    assert scripted.cluster.committed == {TP0: 3}


def test_an_automatic_commit_begins_only_when_it_is_due() -> None:
    scripted = ScriptedConsumer()
    scripted.assign(TP0)
    group = coordinator(scripted)
    group.commit_if_due()
    scripted.deliver()
    assert scripted.sent(OFFSET_COMMIT) == []
    scripted.clock.move(AUTO_COMMIT_MS)
    group.commit_if_due()
    scripted.deliver()
    assert scripted.cluster.commits == [{TP0: 0}]


def test_the_load_of_committed_offsets_asks_for_partitions_that_were_assigned_meanwhile() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False)
    scripted.cluster.committed.update({TP0: 3, TP1: 4})
    scripted.consumer.assign([TP0])
    load = CommittedOffsetLoad(coordinator(scripted), scripted.kafka.metadata, scripted.consumer._subscriptions)
    assert not load.refresh(Timer(scripted.clock, 0))
    scripted.consumer.assign([TP0, TP1])
    assert load.refresh(Timer(scripted.clock, 1000))
    partitions = [set(body.topics[0].partition_indexes) for body in scripted.sent(OFFSET_FETCH)]
    assert partitions == [{0}, {1}]
    assert (scripted.position(TP0), scripted.position(TP1)) == (3, 4)


# --- the end ------------------------------------------------------------------------------------------------------


def test_close_of_the_coordinator_ends_the_thread_and_the_membership() -> None:
    scripted = ScriptedConsumer()
    listener = RecordingListener()
    scripted.join(TP0, listener=listener)
    coordinator(scripted).close(Timer(scripted.clock, 1000))
    assert listener.names() == ["assigned", "revoked"]
    assert len(scripted.sent(LEAVE_GROUP)) == 1
    assert scripted.threads[0].is_stopped
    heartbeats = len(scripted.sent(HEARTBEAT))
    scripted.run_heartbeat_thread()
    assert len(scripted.sent(HEARTBEAT)) == heartbeats
