"""``KafkaConsumer.poll``: what it returns, in which order it works, wake-ups, and use by several threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from bridge.client.kafka_consumer.kafka_consumer import ROUND_MS
from tests.kafka_consumer_fixtures import (
    HEARTBEAT_MS,
    RETRY_MS,
    T2P0,
    TP0,
    TP1,
    RecordingListener,
    ScriptedConsumer,
    offsets,
    offsets_of_fetch,
)
from tests.mock_kafka_client import LATER, SentRequest
from tests.poll_fetcher_fixtures import fetch_response, partition_response, record_set
from zkconsumer.errors import (
    AuthenticationException,
    ConnectorClosed,
    InvalidTopicException,
    RecordDeserializationException,
    TopicAuthorizationException,
    UsageError,
    WakeupException,
)
from zkconsumer.kafka.error_codes import (
    INVALID_TOPIC_EXCEPTION,
    NOT_LEADER_OR_FOLLOWER,
    REBALANCE_IN_PROGRESS,
    TOPIC_AUTHORIZATION_FAILED,
)
from zkconsumer.kafka.net.client_request import RequestBuilder
from zkconsumer.types import TopicPartition
from zkconsumer.wire import compiled
from zkconsumer.wire.schemas import FETCH, FIND_COORDINATOR, HEARTBEAT, JOIN_GROUP, SYNC_GROUP
from zkconsumer.wire.schemas.heartbeat import HeartbeatRequest


class FailingDeserializer:
    """Raises for one record."""

    def __init__(self, bad: bytes) -> None:
        self.bad = bad

    def deserialize(self, topic: str, headers: Any, data: bytes) -> str:
        if data == self.bad:
            raise ValueError("not readable")
        return data.decode()


# --- records ------------------------------------------------------------------------------------------------------


def test_poll_returns_the_records_of_the_assigned_partitions() -> None:
    scripted = ScriptedConsumer()
    scripted.join(TP0)
    scripted.append(TP0, 5)
    records = scripted.poll()
    assert (records.count(), records.partitions(), len(records.records(TP0))) == (5, {TP0}, 5)
    assert offsets(records) == [0, 1, 2, 3, 4]
    assert scripted.position(TP0) == 5


def buffered(count: int) -> ScriptedConsumer:
    """A consumer that has this many records in its buffer, and returns one in each ``poll``."""
    scripted = ScriptedConsumer(max_poll_records=1)
    scripted.join(TP0)
    scripted.append(TP0, count + 1)
    assert offsets(scripted.poll()) == [0]
    return scripted


def test_buffered_records_are_returned_for_some_milliseconds_before_the_group_has_its_next_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scripted = buffered(4)
    group = scripted.consumer._coordinator
    assert group is not None
    turns: list[int] = []
    poll = group.poll
    monkeypatch.setattr(group, "poll", lambda: (turns.append(scripted.clock.now_ms()), poll()))
    for offset in (1, 2):
        scripted.clock.move(ROUND_MS - 1 if offset == 1 else 0)
        assert offsets(scripted.poll()) == [offset]
        assert turns == []
        assert group._called_ms == scripted.clock.now_ms(), "max.poll.interval.ms counts from this call"
    scripted.clock.move(1)
    assert offsets(scripted.poll()) == [3]
    assert turns == [scripted.clock.now_ms()]


@pytest.mark.skipif(compiled.RECORD_DECODER is None, reason="lists of one table are made by the compiled decoder")
def test_buffered_records_look_at_the_network_once_in_a_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted = buffered(6)
    looked: list[int] = []
    client = scripted.consumer._client
    transmit_sends = client.transmit_sends
    monkeypatch.setattr(client, "transmit_sends", lambda now_ms: (looked.append(now_ms), transmit_sends(now_ms)))
    start_ms = scripted.clock.now_ms()
    assert [offsets(scripted.poll()) for _ in range(2)] == [[1], [2]]
    assert looked == [], "the call before has looked"
    scripted.clock.move(1)
    assert [offsets(scripted.poll()) for _ in range(2)] == [[3], [4]]
    assert looked == [start_ms + 1]


def test_what_waits_to_be_sent_is_sent_by_the_next_poll_in_the_same_millisecond() -> None:
    scripted = buffered(3)
    [node, *_] = scripted.consumer._metadata.fetch().nodes
    builder = RequestBuilder(HEARTBEAT, HeartbeatRequest(group_id="another", generation_id=1, member_id="m"))
    scripted.consumer._client.send(node, builder)
    before = scripted.sent(HEARTBEAT)
    assert offsets(scripted.poll()) == [1]
    assert scripted.sent(HEARTBEAT) == [*before, builder.body]


def test_a_wakeup_precedes_buffered_records() -> None:
    scripted = buffered(1)
    scripted.consumer.wakeup()
    with pytest.raises(WakeupException):
        scripted.poll()
    assert offsets(scripted.poll()) == [1]


def test_a_commit_callback_precedes_buffered_records() -> None:
    scripted = buffered(2)
    order: list[object] = []
    scripted.consumer.commit_async(callback=lambda committed, error: order.append(error))
    scripted.deliver()
    scripted.deliver()
    order.append(offsets(scripted.poll()))
    assert order == [None, [1]]


def test_a_rebalance_is_joined_although_records_are_buffered() -> None:
    scripted = buffered(9)
    scripted.cluster.fail_next(HEARTBEAT, REBALANCE_IN_PROGRESS)
    scripted.cluster.hold(HEARTBEAT)
    scripted.run_heartbeat_thread()
    assert offsets(scripted.poll()) == [1], "a round of the group at this time"
    scripted.answer(HEARTBEAT)
    scripted.deliver()
    joined = len(scripted.sent(JOIN_GROUP))
    for _ in range(2):  # an automatic commit precedes the join
        scripted.poll()
        scripted.deliver()
    assert len(scripted.sent(JOIN_GROUP)) == joined + 1


def test_a_record_that_cannot_be_deserialized_raises_in_the_poll_after_the_records_before_it() -> None:
    scripted = ScriptedConsumer(value_deserializer=FailingDeserializer(b"value-3"))
    scripted.join(TP0)
    scripted.append(TP0, 5)
    assert offsets(scripted.poll()) == [0, 1, 2]
    for _ in range(2):
        with pytest.raises(RecordDeserializationException) as raised:
            scripted.poll()
        assert (raised.value.partition, raised.value.offset) == (TP0, 3)
        assert scripted.position(TP0) == 3


def test_poll_returns_at_most_max_poll_records_and_the_rest_later() -> None:
    scripted = ScriptedConsumer(max_poll_records=2)
    scripted.assign(TP0)
    scripted.append(TP0, 5)
    assert [offsets(scripted.poll()) for _ in range(4)] == [[0, 1], [2, 3], [4], []]


def test_a_response_with_a_partition_that_was_not_requested_returns_no_record_of_it() -> None:
    scripted = ScriptedConsumer()
    scripted.join(TP0)
    rows = [(tp, partition_response(tp, record_set(0, 10))) for tp in (TP0, T2P0)]
    scripted.kafka.respond(fetch_response(*rows))
    records = scripted.poll()
    assert records.partitions() == {TP0}


def test_the_next_fetch_is_sent_before_records_are_returned() -> None:
    scripted = ScriptedConsumer()
    scripted.assign(TP0)
    scripted.append(TP0, 3)
    assert offsets(scripted.poll()) == [0, 1, 2]
    [fetch] = scripted.in_flight(FETCH)
    assert fetch.body.topics[0].partitions[0].fetch_offset == 3


def test_an_error_of_the_next_fetch_does_not_hide_the_records_that_are_returned() -> None:
    scripted = ScriptedConsumer()
    scripted.assign(TP0)
    scripted.append(TP0, 3)
    scripted.deliver()
    scripted.kafka.authentication_errors[0] = AuthenticationException("the password has changed")
    scripted.kafka.backoff(0, 1000)
    assert offsets(scripted.poll()) == [0, 1, 2]
    with pytest.raises(AuthenticationException):
        scripted.poll()


def test_poll_waits_for_records_no_longer_than_its_time() -> None:
    scripted = ScriptedConsumer()
    scripted.assign(TP0)
    began = scripted.clock.now_ms()
    assert scripted.poll(250).is_empty()
    assert scripted.clock.now_ms() - began == 250


def test_poll_returns_as_soon_as_records_arrive() -> None:
    scripted = ScriptedConsumer()
    scripted.assign(TP0)
    began = scripted.clock.now_ms()

    def on_wait(ms: int) -> None:
        scripted.clock.move(40)
        scripted.append(TP0, 1)

    scripted.kafka.on_wait = on_wait
    assert offsets(scripted.poll(10_000)) == [0]
    assert scripted.clock.now_ms() - began == 40


def test_a_poll_without_waiting_does_not_wait_for_the_group() -> None:
    scripted = ScriptedConsumer()
    scripted.consumer.subscribe(["test"])
    scripted.cluster.hold(FIND_COORDINATOR)
    scripted.poll()  # the metadata
    began = scripted.clock.now_ms()
    assert [scripted.poll().count() for _ in range(3)] == [0, 0, 0]
    assert scripted.clock.now_ms() == began


def test_a_join_does_not_block_beyond_the_time_of_poll() -> None:
    scripted = ScriptedConsumer()
    scripted.consumer.subscribe(["test"])
    scripted.cluster.hold(JOIN_GROUP)
    began = scripted.clock.now_ms()
    assert scripted.poll(300).is_empty()
    assert 300 <= scripted.clock.now_ms() - began <= 301  # one ms for the metadata
    assert scripted.in_flight(JOIN_GROUP)


def test_no_fetch_is_sent_before_the_group_has_assigned_partitions() -> None:
    scripted = ScriptedConsumer()
    scripted.cluster.hold(SYNC_GROUP)
    scripted.consumer.subscribe(["test"])
    for _ in range(6):
        assert scripted.poll().is_empty()
    assert scripted.in_flight(SYNC_GROUP)
    assert not scripted.sent(FETCH)


def test_a_fetch_follows_the_committed_offset_and_that_follows_the_assignment() -> None:
    scripted = ScriptedConsumer()
    scripted.join(TP0)
    order = ["FindCoordinator", "JoinGroup", "SyncGroup", "OffsetFetch", "ListOffsets", "Fetch"]
    assert scripted.sent_names() == order


def test_one_partition_is_read_while_another_has_no_position() -> None:
    scripted = ScriptedConsumer(group=None)
    scripted.cluster.append(TP1, 5)
    scripted.cluster.partition_errors[TP0] = NOT_LEADER_OR_FOLLOWER
    scripted.consumer.assign([TP0, TP1])
    assert scripted.read(5) == [(TP1, offset) for offset in range(5)]
    assert all(offsets_of_fetch(body).keys() == {TP1} for body in scripted.sent(FETCH))


# --- misuse -------------------------------------------------------------------------------------------------------


def test_poll_without_subscription_and_assignment_raises() -> None:
    scripted = ScriptedConsumer(group=None)
    with pytest.raises(UsageError, match="not subscribed to any topics or assigned any partitions"):
        scripted.poll()


def test_poll_after_an_empty_subscription_raises() -> None:
    scripted = ScriptedConsumer()
    scripted.consumer.subscribe([])
    with pytest.raises(UsageError, match="not subscribed"):
        scripted.poll()


def test_poll_after_an_empty_assignment_raises() -> None:
    scripted = ScriptedConsumer()
    scripted.consumer.assign([])
    with pytest.raises(UsageError, match="not subscribed"):
        scripted.poll()


def test_poll_with_a_negative_time_raises() -> None:
    scripted = ScriptedConsumer()
    scripted.assign(TP0)
    with pytest.raises(UsageError, match="negative"):
        scripted.poll(-1)


def test_use_by_a_second_thread_raises_and_the_first_goes_on() -> None:
    scripted = ScriptedConsumer()
    scripted.assign(TP0)
    raised: list[str] = []

    def other_thread() -> None:
        for call in (
            scripted.consumer.group_metadata,
            scripted.consumer.assignment,
            lambda: scripted.poll(),
            scripted.consumer.close,
        ):
            try:
                call()
            except UsageError as error:
                raised.append(str(error))

    def on_wait(ms: int) -> None:
        scripted.clock.move(ms)
        thread = threading.Thread(target=other_thread)
        thread.start()
        thread.join(30)
        scripted.append(TP0, 1)

    scripted.kafka.on_wait = on_wait
    assert offsets(scripted.poll(1000)) == [0]
    assert len(raised) == 4
    assert all("not safe for multi-threaded access" in text for text in raised)
    assert scripted.consumer.assignment() == {TP0}


def test_another_thread_may_use_the_consumer_after_the_first() -> None:
    scripted = ScriptedConsumer()
    scripted.assign(TP0)
    scripted.append(TP0, 1)
    read: list[int] = []
    thread = threading.Thread(target=lambda: read.extend(offsets(scripted.poll())))
    thread.start()
    thread.join(30)
    assert read == [0]


def test_a_method_may_be_called_inside_of_a_callback() -> None:
    scripted = ScriptedConsumer()
    seen: list[Any] = []
    listener = RecordingListener()
    listener.on_call = lambda name: seen.append(scripted.consumer.assignment())
    scripted.join(TP0, listener=listener)
    assert seen == [{TP0}]


def test_a_closed_consumer_refuses_every_method() -> None:
    scripted = ScriptedConsumer()
    scripted.consumer.close(0)
    for call in (scripted.consumer.group_metadata, scripted.consumer.assignment, lambda: scripted.poll()):
        with pytest.raises(ConnectorClosed):
            call()


# --- wake-ups -----------------------------------------------------------------------------------------------------


def test_a_wakeup_before_poll_raises_and_the_records_are_returned_by_the_next_one() -> None:
    scripted = ScriptedConsumer()
    scripted.join(TP0)
    scripted.append(TP0, 5)
    scripted.deliver()
    scripted.consumer.wakeup()
    with pytest.raises(WakeupException):
        scripted.poll()
    assert scripted.position(TP0) == 0
    assert scripted.poll().count() == 5


def test_a_wakeup_during_the_wait_raises() -> None:
    scripted = ScriptedConsumer()
    scripted.assign(TP0)
    scripted.kafka.on_wait = lambda ms: scripted.consumer.wakeup()
    with pytest.raises(WakeupException):
        scripted.poll(10_000)


def test_a_wakeup_between_taking_records_and_returning_them_waits_for_the_next_poll() -> None:
    class Interceptor:
        def on_consume(self, records: Any) -> Any:
            scripted.consumer.wakeup()
            return records

        def on_commit(self, offsets: Any) -> None: ...

        def close(self) -> None: ...

    scripted = ScriptedConsumer(interceptor_classes=[Interceptor()])
    scripted.assign(TP0)
    scripted.append(TP0, 2)

    def wake_up_at_the_next_fetch(sent: SentRequest) -> Any:
        scripted.consumer.wakeup()
        return LATER

    scripted.kafka.respond_to = wake_up_at_the_next_fetch
    assert offsets(scripted.poll()) == [0, 1]
    assert scripted.in_flight(FETCH)
    with pytest.raises(WakeupException):
        scripted.poll()
    assert scripted.poll().is_empty()


def test_a_wakeup_is_honoured_once() -> None:
    scripted = ScriptedConsumer()
    scripted.assign(TP0)
    scripted.consumer.wakeup()
    scripted.consumer.wakeup()
    with pytest.raises(WakeupException):
        scripted.poll()
    assert scripted.poll().is_empty()


def test_an_interrupt_of_the_wait_is_raised_and_loses_nothing() -> None:
    scripted = ScriptedConsumer()
    scripted.join(TP0)

    def interrupt(ms: int) -> None:
        raise KeyboardInterrupt

    scripted.kafka.on_wait = interrupt
    with pytest.raises(KeyboardInterrupt):
        scripted.poll(1000)
    scripted.kafka.on_wait = scripted.clock.move
    scripted.append(TP0, 3)
    assert offsets(scripted.poll()) == [0, 1, 2]
    scripted.run_heartbeat_thread(HEARTBEAT_MS)
    assert scripted.sent_names()[-1] == "Heartbeat"


# --- errors of brokers --------------------------------------------------------------------------------------------


def test_an_invalid_topic_is_raised() -> None:
    scripted = ScriptedConsumer()
    scripted.cluster.topic_errors["topic abc"] = INVALID_TOPIC_EXCEPTION
    scripted.kafka.last_metadata = scripted.cluster.metadata()
    scripted.consumer.subscribe(["topic abc"])
    with pytest.raises(InvalidTopicException):
        scripted.poll()


def test_one_topic_without_permission_is_raised_and_the_others_are_read() -> None:
    scripted = ScriptedConsumer(group=None)
    scripted.cluster.append(TP0, 2)
    secret = TopicPartition("secret", 0)
    scripted.cluster.topic_errors["secret"] = TOPIC_AUTHORIZATION_FAILED
    scripted.kafka.last_metadata = scripted.cluster.metadata()
    scripted.consumer.assign([TP0, secret])
    read: list[int] = []
    errors = []
    while len(read) < 2:
        try:
            read += offsets(scripted.poll())
        except TopicAuthorizationException as error:
            errors.append(error)
    assert read == [0, 1]
    assert errors[0].unauthorized_topics == {"secret"}


def test_a_failed_login_is_raised_by_poll() -> None:
    scripted = ScriptedConsumer()
    scripted.fail_login()
    scripted.consumer.subscribe(["test"])
    with pytest.raises(AuthenticationException, match="the password is wrong"):
        scripted.poll_until(lambda: False)
    assert scripted.kafka.sent == []
    scripted.clock.move(RETRY_MS)
    scripted.poll_until(lambda: scripted.sent(JOIN_GROUP))
