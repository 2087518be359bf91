"""What is sent to which broker and when, and what follows from answers and from their absence."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from bridge.spark.sink.delivery_errors import RecordsNotWritten
from bridge.spark.sink.produce_machine import (
    AWAIT_MS_MAX,
    RETRY_BACKOFF_MAX_MS,
    RETRY_BACKOFF_MS,
    AwaitResponse,
    Pause,
    ProduceLimits,
    ProduceMachine,
    ProduceResult,
    RequestMetadata,
    SendProduce,
)
from bridge.spark.sink.topic_partitions import PartitionCounts, TopicLeaders
from zkconsumer.errors import TimeoutException, UsageError
from zkconsumer.kafka.error_codes import (
    LEADER_NOT_AVAILABLE,
    MESSAGE_TOO_LARGE,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode,
    error_code,
)
from zkconsumer.types import BrokerAddress, TopicPartition

TOPIC = "copies"
NOT_ENOUGH_REPLICAS = error_code(19)
ONE, TWO = BrokerAddress(1, "one", 9092), BrokerAddress(2, "two", 9092)
LIMITS = ProduceLimits(request_bytes=100, request_timeout_ms=1_000, delivery_timeout_ms=5_000, max_block_ms=2_000)
LEADERS = {0: ONE, 1: TWO, 2: ONE}


@dataclass(frozen=True)
class Rows:
    """Rows with numbers instead of columns."""

    tp: TopicPartition
    numbers: tuple[int, ...]
    data_bytes: int

    def __len__(self) -> int:
        return len(self.numbers)

    def halves(self) -> list[Rows]:
        middle = len(self) // 2
        return [Rows(self.tp, part, self.data_bytes // 2) for part in (self.numbers[:middle], self.numbers[middle:])]


def rows(partition: int, *numbers: int, data_bytes: int = 40) -> Rows:
    return Rows(TopicPartition(TOPIC, partition), numbers, data_bytes)


def ready(limits: ProduceLimits = LIMITS) -> ProduceMachine:
    """A machine that has the leaders of the topic at time 0."""
    machine = ProduceMachine(limits)
    machine.need_topic(TOPIC, 0)
    assert machine.next_command(0) == RequestMetadata(TOPIC)
    machine.on_metadata(TOPIC, TopicLeaders(LEADERS), 0)
    return machine


def answer(machine: ProduceMachine, sent: object, now_ms: int, code: ErrorCode = NONE) -> None:
    """The broker answers for all partitions of its request; the base offset is the first number."""
    assert isinstance(sent, SendProduce)
    results = {each.tp: ProduceResult(code, each.numbers[0]) for each in sent.rows if isinstance(each, Rows)}
    machine.on_response(sent.broker, results, now_ms)


def test_a_machine_without_rows_has_nothing_to_do() -> None:
    assert ProduceMachine(LIMITS).next_command(0) is None
    assert ready().next_command(0) is None


def test_partitions_of_one_leader_share_a_request_up_to_its_limit() -> None:
    machine = ready()
    for each in (rows(0, 1), rows(1, 2), rows(2, 3)):
        machine.add(each)
    first, second = machine.next_command(0), machine.next_command(0)
    assert first == SendProduce(ONE, (rows(0, 1), rows(2, 3)))
    assert second == SendProduce(TWO, (rows(1, 2),))
    large = ready()
    large.add(rows(0, 1, data_bytes=70))
    large.add(rows(2, 3, data_bytes=70))
    assert large.next_command(0) == SendProduce(ONE, (rows(0, 1, data_bytes=70),))


def test_a_record_set_that_is_larger_than_a_request_is_sent_alone() -> None:
    machine = ready()
    machine.add(rows(0, 1, data_bytes=500))
    machine.add(rows(2, 3))
    assert machine.next_command(0) == SendProduce(ONE, (rows(0, 1, data_bytes=500),))


def test_a_broker_has_one_request_in_flight_and_a_partition_stays_in_order() -> None:
    machine = ready()
    machine.add(rows(0, 1))
    machine.add(rows(0, 2))
    first = machine.next_command(0)
    assert machine.next_command(0) == AwaitResponse(ONE, 1_000)
    answer(machine, first, 10)
    assert machine.next_command(10) == SendProduce(ONE, (rows(0, 2),))


def test_partitions_take_turns_when_a_request_cannot_have_all() -> None:
    machine = ready()
    for number in (1, 2):
        machine.add(rows(0, number, data_bytes=70))
        machine.add(rows(2, number, data_bytes=70))
    order = []
    while (sent := machine.next_command(0)) is not None:
        assert isinstance(sent, SendProduce)
        order.append([each.tp.partition for each in sent.rows])
        answer(machine, sent, 0)
    assert order == [[0], [2], [0], [2]]


def test_two_brokers_are_waited_for_in_turns() -> None:
    machine = ready()
    machine.add(rows(0, 1))
    machine.add(rows(1, 2))
    machine.next_command(0), machine.next_command(0)
    waits = [machine.next_command(0) for _ in range(3)]
    assert waits == [AwaitResponse(broker, AWAIT_MS_MAX) for broker in (ONE, TWO, ONE)]


def test_it_ends_only_when_all_rows_are_acknowledged() -> None:
    machine = ready()
    machine.add(rows(0, 10, 11))
    machine.add(rows(0, 12))
    assert machine.pending_bytes == 80
    answer(machine, machine.next_command(0), 0)
    assert machine.pending_bytes == 40
    answer(machine, machine.next_command(0), 0)
    assert machine.next_command(0) is None
    assert machine.pending_bytes == 0
    assert machine.written == {TopicPartition(TOPIC, 0): (10, 13, 3)}


def test_a_stale_leader_is_asked_for_again_before_the_next_attempt() -> None:
    machine = ready()
    machine.add(rows(0, 1))
    answer(machine, machine.next_command(0), 10, NOT_LEADER_OR_FOLLOWER)
    assert machine.next_command(10) == Pause(RETRY_BACKOFF_MS)
    assert machine.next_command(110) == RequestMetadata(TOPIC)
    machine.on_metadata(TOPIC, TopicLeaders({**LEADERS, 0: TWO}), 115)
    assert machine.next_command(115) == SendProduce(TWO, (rows(0, 1),))


def test_an_error_of_the_right_leader_is_retried_there() -> None:
    machine = ready()
    machine.add(rows(0, 1))
    answer(machine, machine.next_command(0), 10, NOT_ENOUGH_REPLICAS)
    assert machine.next_command(10) == Pause(RETRY_BACKOFF_MS)
    assert machine.next_command(110) == SendProduce(ONE, (rows(0, 1),))


def test_other_partitions_go_on_while_one_waits() -> None:
    machine = ready()
    machine.add(rows(0, 1))
    answer(machine, machine.next_command(0), 10, NOT_ENOUGH_REPLICAS)
    machine.add(rows(2, 2))
    assert machine.next_command(10) == SendProduce(ONE, (rows(2, 2),))


def test_pauses_grow_up_to_a_limit() -> None:
    machine = ready(LIMITS)
    machine.add(rows(0, 1))
    now_ms, pauses = 0, []
    while len(pauses) < 6:
        match machine.next_command(now_ms):
            case Pause(timeout_ms):
                pauses.append(timeout_ms)
                now_ms += timeout_ms
            case sent:
                answer(machine, sent, now_ms, NOT_ENOUGH_REPLICAS)
    assert pauses == [100, 200, 400, 800, RETRY_BACKOFF_MAX_MS, RETRY_BACKOFF_MAX_MS]


def test_a_lost_connection_repeats_every_partition_of_the_request() -> None:
    machine = ready()
    machine.add(rows(0, 1))
    machine.add(rows(2, 2))
    machine.next_command(0)
    machine.on_lost(ONE, "closed", 10)
    assert machine.next_command(110) == RequestMetadata(TOPIC)
    machine.on_metadata(TOPIC, TopicLeaders(LEADERS), 110)
    assert machine.next_command(110) == SendProduce(ONE, (rows(0, 1), rows(2, 2)))


def test_a_partition_that_the_answer_leaves_out_is_not_written() -> None:
    machine = ready()
    machine.add(rows(0, 1))
    machine.add(rows(2, 2))
    machine.next_command(0)
    machine.on_response(ONE, {TopicPartition(TOPIC, 0): ProduceResult(NONE, 0)}, 10)
    assert machine.pending_bytes == 40
    assert machine.written.keys() == {TopicPartition(TOPIC, 0)}


def test_an_answer_may_come_late_if_nobody_looked() -> None:
    """The rows of the next batch took longer than the timeout; the answer had arrived."""
    machine = ready()
    machine.add(rows(0, 1))
    sent = machine.next_command(0)
    assert machine.next_command(60_000) == AwaitResponse(ONE, 0)
    answer(machine, sent, 60_000)
    assert machine.next_command(60_000) is None


def test_no_answer_within_the_request_timeout_counts_as_lost() -> None:
    machine = ready()
    machine.add(rows(0, 1))
    machine.next_command(0)
    assert not machine.on_no_response(ONE, 999)
    assert machine.on_no_response(ONE, 1_000)
    assert machine.next_command(1_100) == RequestMetadata(TOPIC)


def test_attempts_end_after_the_delivery_timeout_of_the_record_set() -> None:
    machine = ready()
    machine.add(rows(0, 1))
    first = machine.next_command(3_000)
    answer(machine, first, 3_000, NOT_ENOUGH_REPLICAS)
    again = machine.next_command(7_999)
    answer(machine, again, 7_999, NOT_ENOUGH_REPLICAS)
    late = machine.next_command(9_999)
    with pytest.raises(TimeoutException, match=r"copies/0: .* 6999 ms .* NOT_ENOUGH_REPLICAS \(19\) from "):
        answer(machine, late, 9_999, NOT_ENOUGH_REPLICAS)


def test_each_record_set_has_the_whole_delivery_timeout() -> None:
    machine = ready()
    machine.add(rows(0, 1))
    machine.add(rows(0, 2))
    answer(machine, machine.next_command(2_000), 2_000)
    answer(machine, machine.next_command(8_000), 8_000, NOT_ENOUGH_REPLICAS)
    assert machine.next_command(8_100) == SendProduce(ONE, (rows(0, 2),))


def test_a_partition_without_a_leader_is_waited_for_until_the_delivery_timeout() -> None:
    machine = ready()
    machine.add(rows(0, 1))
    machine.next_command(0)
    machine.on_lost(ONE, "closed", 0)
    now_ms = 0
    with pytest.raises(TimeoutException, match=r"LEADER_NOT_AVAILABLE \(5\)\. Start the brokers"):
        while True:
            match machine.next_command(now_ms):
                case RequestMetadata(topic):
                    machine.on_metadata(topic, TopicLeaders({**LEADERS, 0: LEADER_NOT_AVAILABLE}), now_ms)
                case Pause(timeout_ms):
                    assert timeout_ms <= RETRY_BACKOFF_MAX_MS
                    now_ms += timeout_ms
                case other:
                    pytest.fail(f"{other} without a leader")
    assert 5_000 <= now_ms <= 5_000 + RETRY_BACKOFF_MAX_MS


def test_brokers_that_do_not_answer_metadata_are_asked_until_the_delivery_timeout() -> None:
    machine = ready()
    machine.add(rows(0, 1))
    machine.next_command(0)
    machine.on_lost(ONE, "closed", 0)
    now_ms, asked = 0, 0
    with pytest.raises(TimeoutException, match="no broker answers"):
        while True:
            match machine.next_command(now_ms):
                case RequestMetadata(topic):
                    asked += 1
                    machine.on_metadata_failed(topic, "no broker answers", now_ms)
                case Pause(timeout_ms):
                    now_ms += timeout_ms
                case other:
                    pytest.fail(f"{other} without a leader")
    assert 5 <= asked <= 20


def test_a_search_for_leaders_that_succeeded_starts_the_pauses_again() -> None:
    machine = ready()
    for number, began_ms in enumerate((0, 1_000)):
        machine.add(rows(0, number))
        answer(machine, machine.next_command(began_ms), began_ms, NOT_LEADER_OR_FOLLOWER)
        assert machine.next_command(began_ms + 100) == RequestMetadata(TOPIC)
        machine.on_metadata_failed(TOPIC, "silence", began_ms + 100)
        assert machine.next_command(began_ms + 100) == Pause(RETRY_BACKOFF_MS)
        assert machine.next_command(began_ms + 200) == RequestMetadata(TOPIC)
        machine.on_metadata(TOPIC, TopicLeaders(LEADERS), began_ms + 200)
        answer(machine, machine.next_command(began_ms + 900), began_ms + 900)


def test_metadata_changes_nothing_for_a_partition_whose_request_is_in_flight() -> None:
    machine = ready()
    machine.add(rows(0, 1))
    machine.add(rows(0, 2))
    sent = machine.next_command(0)
    machine.add(rows(1, 3))
    machine.next_command(0)
    machine.on_lost(TWO, "closed", 0)
    assert machine.next_command(100) == RequestMetadata(TOPIC)
    machine.on_metadata(TOPIC, TopicLeaders({**LEADERS, 0: LEADER_NOT_AVAILABLE}), 100)
    machine.next_command(100)
    answer(machine, sent, 100)
    assert machine.next_command(100) == SendProduce(ONE, (rows(0, 2),))


def test_a_record_set_that_is_too_large_is_halved_in_order_down_to_one_row() -> None:
    machine = ready()
    machine.add(rows(0, 1, 2, 3, 4))
    machine.add(rows(0, 5))
    answer(machine, machine.next_command(0), 0, MESSAGE_TOO_LARGE)
    assert machine.pending_bytes == 80
    assert machine.next_command(0) == SendProduce(ONE, (rows(0, 1, 2, data_bytes=20),))
    machine.on_response(ONE, {TopicPartition(TOPIC, 0): ProduceResult(NONE, 0)}, 0)
    assert machine.next_command(0) == SendProduce(ONE, (rows(0, 3, 4, data_bytes=20),))
    machine.on_response(ONE, {TopicPartition(TOPIC, 0): ProduceResult(NONE, 0)}, 0)
    single = machine.next_command(0)
    with pytest.raises(RecordsNotWritten, match=r"copies/0: MESSAGE_TOO_LARGE .* about 40 bytes: raise max.message"):
        answer(machine, single, 0, MESSAGE_TOO_LARGE)


def test_an_error_that_stays_ends_the_task_with_the_brokers_words() -> None:
    machine = ready()
    machine.add(rows(0, 1))
    machine.next_command(0)
    result = ProduceResult(TOPIC_AUTHORIZATION_FAILED, message="no ACL")
    with pytest.raises(RecordsNotWritten, match=r"copies/0: TOPIC_AUTHORIZATION_FAILED \(29\) from .* \(no ACL\)\. Al"):
        machine.on_response(ONE, {TopicPartition(TOPIC, 0): result}, 0)


def test_the_leaders_that_are_there_are_reported_to_the_partitioner() -> None:
    machine = ProduceMachine(LIMITS)
    machine.need_topic(TOPIC, 0)
    assert machine.partitions_of(TOPIC) is None
    machine.on_metadata(TOPIC, TopicLeaders({**LEADERS, 1: LEADER_NOT_AVAILABLE}), 0)
    assert machine.partitions_of(TOPIC) == PartitionCounts(3, (0, 2))


@pytest.mark.parametrize("answers", [True, False])
def test_a_topic_is_waited_for_no_longer_than_max_block_ms(answers: bool) -> None:
    machine = ProduceMachine(LIMITS)
    machine.need_topic(TOPIC, 0)
    now_ms = 0
    with pytest.raises((UsageError, TimeoutException), match=r"copies.*2000 ms \(kafka\.max\.block\.ms\)"):
        while True:
            match machine.next_command(now_ms):
                case RequestMetadata(topic) if answers:
                    machine.on_metadata(topic, TopicLeaders({}, UNKNOWN_TOPIC_OR_PARTITION), now_ms)
                case RequestMetadata(topic):
                    machine.on_metadata_failed(topic, "silence", now_ms)
                case Pause(timeout_ms):
                    now_ms += timeout_ms
    assert 2_000 <= now_ms <= 2_000 + RETRY_BACKOFF_MAX_MS


def test_a_topic_that_this_user_may_not_see_fails_at_once() -> None:
    machine = ProduceMachine(LIMITS)
    machine.need_topic(TOPIC, 0)
    with pytest.raises(RecordsNotWritten, match=r"topic copies: TOPIC_AUTHORIZATION_FAILED .*WRITE and DESCRIBE"):
        machine.on_metadata(TOPIC, TopicLeaders({}, TOPIC_AUTHORIZATION_FAILED, is_final=True), 0)


def test_a_quota_mutes_the_broker_but_not_longer_than_the_request_timeout() -> None:
    machine = ready()
    machine.add(rows(0, 1))
    machine.add(rows(0, 2))
    machine.next_command(0)
    machine.on_response(ONE, {TopicPartition(TOPIC, 0): ProduceResult(NONE, 0)}, 0, throttle_time_ms=90_000)
    assert machine.next_command(0) == Pause(1_000)
    assert machine.next_command(1_000) == SendProduce(ONE, (rows(0, 2),))
