"""``KafkaConsumer`` in a rebalance: heartbeats, the listener and its exceptions, records that go on."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.client.kafka_consumer.kafka_consumer import ROUND_MS, ConsumerGroupMetadata
from bridge.client.kafka_consumer.rebalance_listener import ConsumerRebalanceListener
from tests.kafka_consumer_fixtures import (
    GROUP,
    HEARTBEAT_MS,
    MAX_POLL_MS,
    MEMBER_ID,
    RETRY_MS,
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
from zkconsumer.errors import UsageError, WakeupException
from zkconsumer.kafka.coordinator_requests import COORDINATOR_NODE_ID
from zkconsumer.kafka.error_codes import (
    GROUP_AUTHORIZATION_FAILED,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    error_code,
)
from zkconsumer.kafka.group.errors import FencedInstanceIdException, RebalanceCallbackFailed
from zkconsumer.types import TopicPartition
from zkconsumer.wire.consumer_protocol import decode_subscription
from zkconsumer.wire.schemas import (
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    SYNC_GROUP,
)

COOPERATIVE = "cooperative-sticky"


class TwoMethods:
    """A listener without ``on_partitions_lost``."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[TopicPartition]]] = []

    def on_partitions_revoked(self, partitions: Any) -> None:
        self.calls.append(("revoked", list(partitions)))

    def on_partitions_assigned(self, partitions: Any) -> None:
        self.calls.append(("assigned", list(partitions)))


# --- heartbeats ---------------------------------------------------------------------------------------------------


def test_the_heartbeat_thread_sends_heartbeats_between_two_polls() -> None:
    scripted = ScriptedConsumer()
    scripted.join(TP0)
    scripted.run_heartbeat_thread(HEARTBEAT_MS)
    scripted.run_heartbeat_thread(HEARTBEAT_MS)
    assert [(body.generation_id, body.member_id) for body in scripted.sent(HEARTBEAT)] == [(1, MEMBER_ID)] * 2


def test_poll_sends_a_heartbeat_also_when_records_are_buffered() -> None:
    scripted = ScriptedConsumer()
    scripted.join(TP0)
    scripted.append(TP0, 5)
    scripted.deliver()
    scripted.clock.move(HEARTBEAT_MS)
    assert offsets(scripted.poll()) == [0, 1, 2, 3, 4]
    assert len(scripted.sent(HEARTBEAT)) == 1


def test_the_heartbeat_thread_starts_with_the_subscription_and_once() -> None:
    scripted = ScriptedConsumer()
    scripted.assign(TP0)
    assert scripted.threads == []
    scripted.consumer.unsubscribe()
    scripted.join(TP0)
    scripted.consumer.subscribe([TOPIC, TOPIC2])
    assert len(scripted.threads) == 1


def test_a_heartbeat_that_reports_a_rebalance_makes_the_next_poll_join() -> None:
    scripted = ScriptedConsumer()
    listener = RecordingListener()
    scripted.join(TP0, listener=listener)
    scripted.cluster.fail_next(HEARTBEAT, REBALANCE_IN_PROGRESS)
    scripted.run_heartbeat_thread()
    scripted.cluster.assignment = (TP1,)
    scripted.poll_until(lambda: scripted.consumer.assignment() == {TP1})
    assert listener.calls == [("assigned", [TP0]), ("revoked", [TP0]), ("assigned", [TP1])]
    assert scripted.generation == 2


def test_a_sync_that_ends_with_its_connection_is_followed_by_another_join() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False)
    scripted.join(TP0)
    scripted.append(TP0, 1)
    assert offsets(scripted.poll()) == [0]
    scripted.cluster.fail_next(HEARTBEAT, REBALANCE_IN_PROGRESS)
    scripted.run_heartbeat_thread()
    scripted.cluster.hold(SYNC_GROUP)
    scripted.poll_until(lambda: scripted.in_flight(SYNC_GROUP))
    [sync] = scripted.in_flight(SYNC_GROUP)
    scripted.kafka.disconnect(sync.request.destination)
    scripted.cluster.held.clear()
    scripted.poll()
    scripted.clock.move(RETRY_MS * 2)
    scripted.cluster.committed[TP0] = 1
    scripted.append(TP0, 1)
    assert scripted.read(1) == [(TP0, 1)]
    names = [name for name in scripted.sent_names() if name in ("FindCoordinator", "JoinGroup", "SyncGroup")]
    rejoin = ["JoinGroup", "SyncGroup"]
    assert names == ["FindCoordinator", *rejoin, *rejoin, "FindCoordinator", *rejoin]


def test_a_lost_coordinator_is_looked_up_again_and_the_member_stays() -> None:
    scripted = ScriptedConsumer()
    scripted.join(TP0)
    scripted.cluster.hold(HEARTBEAT)
    scripted.run_heartbeat_thread()
    [heartbeat] = scripted.in_flight(HEARTBEAT)
    scripted.kafka.disconnect(heartbeat.request.destination)
    scripted.cluster.held.clear()
    scripted.poll()
    scripted.clock.move(2 * RETRY_MS)
    scripted.poll_until(lambda: len(scripted.sent(FIND_COORDINATOR)) == 2)
    scripted.run_heartbeat_thread()
    assert len(scripted.sent(JOIN_GROUP)) == 1
    assert scripted.sent_names()[-1] == "Heartbeat"


# --- max.poll.interval.ms -----------------------------------------------------------------------------------------


def test_a_program_that_does_not_poll_in_time_leaves_the_group_and_joins_with_its_next_poll() -> None:
    scripted = ScriptedConsumer(session_timeout_ms=2 * MAX_POLL_MS)
    listener = RecordingListener()
    scripted.join(TP0, listener=listener)
    scripted.append(TP0, 2)
    scripted.deliver()
    scripted.run_heartbeat_thread(MAX_POLL_MS)
    assert len(scripted.sent(LEAVE_GROUP)) == 1
    assert listener.names() == ["assigned"]
    scripted.run_heartbeat_thread(5 * HEARTBEAT_MS)
    assert len(scripted.sent(JOIN_GROUP)) == 1
    records = scripted.poll_until(lambda: scripted.generation == 2)
    assert listener.calls == [("assigned", [TP0]), ("lost", [TP0])]
    assert records == []
    assert scripted.read(2) == [(TP0, 0), (TP0, 1)]
    assert scripted.cluster.commits == []


# --- the listener -------------------------------------------------------------------------------------------------


def test_the_listener_is_called_inside_of_poll_with_the_assignment_of_that_moment() -> None:
    scripted = ScriptedConsumer()
    listener = RecordingListener()
    seen: list[Any] = []
    listener.on_call = lambda name: seen.append((name, scripted.consumer.assignment()))
    scripted.join(TP0, listener=listener)
    scripted.cluster.assignment = (TP1,)
    scripted.consumer.enforce_rebalance()
    scripted.poll_until(lambda: scripted.consumer.assignment() == {TP1})
    assert seen == [("assigned", {TP0}), ("revoked", {TP0}), ("assigned", {TP1})]


def test_a_listener_without_a_method_for_lost_partitions_gets_them_as_revoked() -> None:
    scripted = ScriptedConsumer()
    listener = TwoMethods()
    assert isinstance(listener, ConsumerRebalanceListener)
    scripted.join(TP0, listener=listener)
    scripted.cluster.fail_next(HEARTBEAT, UNKNOWN_MEMBER_ID)
    scripted.run_heartbeat_thread()
    scripted.poll_until(lambda: scripted.generation == 2)
    assert listener.calls[:2] == [("assigned", [TP0]), ("revoked", [TP0])]


def test_the_listener_may_seek_before_the_first_record() -> None:
    scripted = ScriptedConsumer()
    listener = RecordingListener()
    listener.on_call = lambda name: scripted.consumer.seek(TP0, 3) if name == "assigned" else None
    scripted.cluster.append(TP0, 5)
    scripted.cluster.committed[TP0] = 1
    scripted.cluster.assignment = (TP0,)
    scripted.consumer.subscribe([TOPIC], listener)
    assert scripted.read(2) == [(TP0, 3), (TP0, 4)]


def test_the_listener_may_commit_what_was_returned() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False)
    listener = RecordingListener()
    scripted.join(TP0, listener=listener)
    scripted.append(TP0, 4)
    scripted.poll()
    listener.on_call = lambda name: scripted.consumer.commit_sync() if name == "revoked" else None
    scripted.consumer.enforce_rebalance()
    scripted.poll_until(lambda: scripted.generation == 2)
    assert scripted.cluster.commits == [{TP0: 4}]


def test_an_exception_of_the_listener_is_raised_by_poll_and_the_group_goes_on() -> None:
    scripted = ScriptedConsumer()
    listener = RecordingListener()
    cause = listener.raises["assigned"] = RuntimeError("assign failed")
    with pytest.raises(RebalanceCallbackFailed, match="assign failed") as raised:
        scripted.join(TP0, listener=listener)
    assert raised.value.__cause__ is cause
    assert scripted.consumer.assignment() == {TP0}
    scripted.cluster.append(TP0, 2)
    assert scripted.read(2) == [(TP0, 0), (TP0, 1)]
    scripted.run_heartbeat_thread()
    assert scripted.sent_names()[-1] == "Heartbeat"
    assert len(scripted.sent(JOIN_GROUP)) == 1


def test_an_exception_of_the_listener_in_a_revocation_is_raised_by_poll_and_the_group_goes_on() -> None:
    scripted = ScriptedConsumer()
    listener = RecordingListener()
    scripted.join(TP0, listener=listener)
    listener.raises["revoked"] = RuntimeError("revoke failed")
    scripted.cluster.assignment = (TP1,)
    scripted.consumer.enforce_rebalance()
    with pytest.raises(RebalanceCallbackFailed, match="revoke failed"):
        scripted.poll_until(lambda: False)
    scripted.poll_until(lambda: scripted.consumer.assignment() == {TP1})
    assert listener.calls[1:] == [("revoked", [TP0]), ("assigned", [TP1])]


def test_an_interrupt_inside_the_listener_leaves_a_member_that_goes_on() -> None:
    scripted = ScriptedConsumer()
    listener = RecordingListener()
    listener.raises["assigned"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        scripted.join(TP0, listener=listener)
    del listener.raises["assigned"]
    scripted.cluster.append(TP0, 2)
    assert scripted.read(2) == [(TP0, 0), (TP0, 1)]
    scripted.cluster.assignment = (TP1,)
    scripted.consumer.enforce_rebalance()
    scripted.poll_until(lambda: scripted.consumer.assignment() == {TP1})
    scripted.consumer.close()
    assert len(scripted.sent(LEAVE_GROUP)) == 1


def test_a_wakeup_inside_the_listener_is_raised_by_poll_and_the_group_goes_on() -> None:
    scripted = ScriptedConsumer()
    listener = RecordingListener()
    listener.raises["assigned"] = WakeupException("inside")
    with pytest.raises(WakeupException):
        scripted.join(TP0, listener=listener)
    scripted.cluster.append(TP0, 1)
    assert scripted.read(1) == [(TP0, 0)]


def test_a_generation_that_ends_during_the_callback_stops_the_partitions() -> None:
    scripted = ScriptedConsumer()
    listener = RecordingListener()

    def lose_the_generation(name: str) -> None:
        if name == "assigned" and scripted.generation == 1:
            scripted.cluster.fail_next(HEARTBEAT, UNKNOWN_MEMBER_ID)
            scripted.run_heartbeat_thread()

    listener.on_call = lose_the_generation
    scripted.cluster.append(TP0, 3)
    scripted.cluster.assignment = (TP0,)
    scripted.consumer.subscribe([TOPIC], listener)
    records = scripted.poll_until(lambda: scripted.generation == 2)
    assert records == []
    assert listener.names()[:2] == ["assigned", "lost"]
    assert scripted.read(3) == [(TP0, 0), (TP0, 1), (TP0, 2)]


# --- records during a rebalance -------------------------------------------------------------------------------------


def test_records_of_kept_partitions_are_returned_while_the_group_rebalances() -> None:
    scripted = ScriptedConsumer(partition_assignment_strategy=COOPERATIVE, auto_commit_interval_ms=60_000)
    scripted.join(TP0, T2P0)
    scripted.cluster.append(T2P0, 10)
    scripted.append(TP0, 1)
    assert sorted(scripted.read(11)) == [(TP0, 0), *((T2P0, offset) for offset in range(10))]
    scripted.consumer.subscribe([TOPIC, TOPIC3])
    scripted.cluster.hold(JOIN_GROUP)
    scripted.append(TP0, 1)
    assert scripted.read(1) == [(TP0, 1)]
    scripted.poll_until(lambda: scripted.in_flight(JOIN_GROUP))
    assert scripted.cluster.commits[0][T2P0] == 10
    assert scripted.consumer.assignment() == {TP0}
    scripted.append(TP0, 1)
    assert scripted.read(1) == [(TP0, 2)]
    scripted.cluster.hold(SYNC_GROUP)
    scripted.cluster.assignment = (TP0, T3P0)
    scripted.answer(JOIN_GROUP)
    scripted.poll_until(lambda: scripted.in_flight(SYNC_GROUP))
    scripted.append(TP0, 1)
    assert scripted.read(1) == [(TP0, 3)]
    scripted.answer(SYNC_GROUP)
    scripted.poll_until(lambda: scripted.consumer.assignment() == {TP0, T3P0})
    scripted.cluster.append(T3P0, 2)
    scripted.append(TP0, 1)
    assert sorted(scripted.read(3)) == [(TP0, 4), (T3P0, 0), (T3P0, 1)]
    owned = decode_subscription(scripted.sent(JOIN_GROUP)[-1].protocols[0].metadata).owned_partitions
    assert owned == (TP0,)


def test_records_of_revoked_partitions_are_not_returned_after_the_revocation_began() -> None:
    scripted = ScriptedConsumer()
    scripted.join(TP0)
    scripted.append(TP0, 3)
    scripted.deliver()
    scripted.cluster.hold(OFFSET_COMMIT)
    scripted.consumer.enforce_rebalance()
    assert [scripted.poll().count() for _ in range(4)] == [0] * 4
    assert scripted.in_flight(OFFSET_COMMIT)[0].body.topics[0].partitions[0].committed_offset == 0


def test_records_that_arrive_together_with_the_loss_of_their_partitions_are_not_returned() -> None:
    scripted = ScriptedConsumer()
    scripted.join(TP0)
    scripted.cluster.hold(JOIN_GROUP)
    scripted.cluster.fail_next(HEARTBEAT, UNKNOWN_MEMBER_ID)
    scripted.clock.move(HEARTBEAT_MS)
    scripted.append(TP0, 3)
    assert [scripted.poll().count() for _ in range(4)] == [0] * 4
    assert scripted.consumer.assignment() == frozenset()


def test_records_that_are_buffered_when_their_partitions_are_lost_are_not_returned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scripted = ScriptedConsumer()
    scripted.join(TP0)
    scripted.append(TP0, 3)
    scripted.deliver()
    scripted.cluster.hold(JOIN_GROUP)
    scripted.cluster.fail_next(HEARTBEAT, UNKNOWN_MEMBER_ID)
    scripted.clock.move(ROUND_MS)
    # The heartbeat thread works between the begin of poll() and the moment when it takes records.
    monkeypatch.setattr(scripted.consumer._fetcher, "validate_offsets_if_needed", scripted.run_heartbeat_thread)
    assert scripted.poll().is_empty()


def test_a_member_that_was_fenced_has_ended_and_can_be_closed() -> None:
    scripted = ScriptedConsumer(group_instance_id="instance")
    listener = RecordingListener()
    scripted.join(TP0, listener=listener)
    scripted.cluster.fail_next(HEARTBEAT, error_code(82))  # FENCED_INSTANCE_ID
    scripted.run_heartbeat_thread()
    for _ in range(2):
        with pytest.raises(FencedInstanceIdException):
            scripted.poll()
    scripted.consumer.close()
    assert len(scripted.sent(JOIN_GROUP)) == 1
    assert scripted.sent(LEAVE_GROUP) == []


def test_a_connection_to_the_coordinator_that_ends_without_a_request_is_noticed() -> None:
    scripted = ScriptedConsumer()
    scripted.join(TP0)
    scripted.kafka.backoff(COORDINATOR_NODE_ID, 200)
    scripted.poll()
    scripted.clock.move(250)
    scripted.poll_until(lambda: len(scripted.sent(FIND_COORDINATOR)) == 2)
    assert len(scripted.sent(JOIN_GROUP)) == 1


def test_enforce_rebalance_joins_in_the_next_poll() -> None:
    scripted = ScriptedConsumer()
    listener = RecordingListener()
    scripted.join(TP0, T2P0, listener=listener)
    assert listener.names() == ["assigned"]
    scripted.consumer.enforce_rebalance("more memory")
    assert listener.names() == ["assigned"]
    scripted.poll_until(lambda: scripted.generation == 2)
    assert listener.names()[1] == "revoked"
    assert scripted.sent(JOIN_GROUP)[-1].reason == "more memory"


def test_enforce_rebalance_with_assigned_partitions_is_an_error() -> None:
    for scripted in (ScriptedConsumer(group=None), ScriptedConsumer()):
        scripted.consumer.assign([TP0])
        with pytest.raises(UsageError, match="does not have a group"):
            scripted.consumer.enforce_rebalance()


def test_group_metadata_shows_the_generation_and_the_member() -> None:
    scripted = ScriptedConsumer(group_instance_id="instance")
    assert scripted.consumer.group_metadata() == ConsumerGroupMetadata(GROUP, -1, "", "instance")
    scripted.join(TP0)
    found = scripted.consumer.group_metadata()
    assert (found.group_id, found.group_instance_id) == (GROUP, "instance")
    assert (found.generation_id, found.member_id) == (1, MEMBER_ID)


def test_an_error_of_the_group_is_raised_by_poll_and_the_next_poll_tries_again() -> None:
    scripted = ScriptedConsumer()
    scripted.cluster.fail_next(FIND_COORDINATOR, GROUP_AUTHORIZATION_FAILED)
    scripted.consumer.subscribe([TOPIC])
    with pytest.raises(UsageError, match="GROUP_AUTHORIZATION_FAILED"):
        scripted.poll_until(lambda: False)
    scripted.cluster.assignment = (TP0,)
    scripted.poll_until(scripted.consumer.assignment)


def test_an_error_of_the_heartbeat_thread_is_raised_by_poll() -> None:
    scripted = ScriptedConsumer()
    scripted.join(TP0)
    scripted.cluster.fail_next(HEARTBEAT, GROUP_AUTHORIZATION_FAILED)
    scripted.run_heartbeat_thread()
    with pytest.raises(UsageError, match="GROUP_AUTHORIZATION_FAILED"):
        scripted.poll()


def test_unsubscribe_inside_of_the_listener_leaves_the_group_without_waiting() -> None:
    scripted = ScriptedConsumer()
    listener = RecordingListener()
    listener.on_call = lambda name: scripted.consumer.unsubscribe() if name == "assigned" else None
    scripted.cluster.assignment = (TP0,)
    scripted.consumer.subscribe([TOPIC], listener)
    began = scripted.clock.now_ms()
    with pytest.raises(UsageError, match="not subscribed"):
        scripted.poll_until(lambda: False)
    assert scripted.clock.now_ms() - began <= 10
    assert listener.names() == ["assigned", "revoked"]
    assert (scripted.consumer.subscription(), scripted.consumer.assignment()) == (frozenset(), frozenset())
    scripted.deliver()
    assert len(scripted.sent(LEAVE_GROUP)) == 1
    listener.on_call = lambda name: None
    scripted.join(TP1, listener=listener)


def test_poll_inside_of_the_listener_is_an_error() -> None:
    scripted = ScriptedConsumer()
    listener = RecordingListener()
    listener.on_call = lambda name: scripted.poll(1000) and None
    with pytest.raises(UsageError, match="inside of the rebalance listener"):
        scripted.join(TP0, listener=listener)


def test_an_interrupt_before_positions_are_collected_does_not_stop_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted = ScriptedConsumer()
    scripted.join(TP0)
    scripted.append(TP0, 3)
    scripted.poll()
    consumed = scripted.consumer._subscriptions.all_consumed
    interrupts = [KeyboardInterrupt()]

    def all_consumed() -> Any:
        if interrupts:
            raise interrupts.pop()
        return consumed()

    monkeypatch.setattr(scripted.consumer._subscriptions, "all_consumed", all_consumed)
    scripted.consumer.enforce_rebalance()
    with pytest.raises(KeyboardInterrupt):
        scripted.poll()
    scripted.poll_until(lambda: scripted.generation == 2 and scripted.consumer.assignment())
    assert scripted.cluster.commits == [{TP0: 3}]
