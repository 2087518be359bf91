"""Commits of ``KafkaConsumer``: automatic ones, ``commit_sync``, ``commit_async``, and their order."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.client.kafka_consumer.offset_calls import OffsetCommitCallback
from tests.kafka_consumer_fixtures import (
    AUTO_COMMIT_MS,
    HEARTBEAT_MS,
    RETRY_MS,
    TP0,
    TP1,
    RecordingListener,
    ScriptedConsumer,
    offsets,
    offsets_of_commit,
)
from zkconsumer.errors import (
    AuthenticationException,
    TimeoutException,
    TopicAuthorizationException,
    UsageError,
    WakeupException,
)
from zkconsumer.kafka.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_MEMBER_ID,
)
from zkconsumer.kafka.group.errors import (
    CommitFailedException,
    RebalanceInProgressException,
    RetriableCommitFailedException,
)
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import FIND_COORDINATOR, HEARTBEAT, JOIN_GROUP, OFFSET_COMMIT


def at(offset: int) -> dict[Any, OffsetAndMetadata]:
    return {TP0: OffsetAndMetadata(offset)}


# --- automatic commits --------------------------------------------------------------------------------------------


def test_an_automatic_commit_has_what_was_returned_and_not_what_is_buffered() -> None:
    scripted = ScriptedConsumer()
    scripted.join(TP0)
    scripted.append(TP0, 5)
    scripted.deliver()
    scripted.clock.move(AUTO_COMMIT_MS)
    assert offsets(scripted.poll()) == [0, 1, 2, 3, 4]
    scripted.deliver()
    assert scripted.cluster.commits == [{TP0: 0}]


def test_an_automatic_commit_has_the_records_of_the_poll_before() -> None:
    scripted = ScriptedConsumer(max_poll_records=2)
    scripted.join(TP0)
    scripted.append(TP0, 5)
    commits = []
    for _ in range(4):
        scripted.poll()
        scripted.deliver()
        commits.append(list(scripted.cluster.commits))
        scripted.clock.move(AUTO_COMMIT_MS)
    assert commits == [[], [{TP0: 2}], [{TP0: 2}, {TP0: 4}], [{TP0: 2}, {TP0: 4}, {TP0: 5}]]


def test_the_heartbeat_thread_makes_no_automatic_commit() -> None:
    scripted = ScriptedConsumer()
    scripted.join(TP0)
    scripted.append(TP0, 5)
    scripted.poll()
    scripted.run_heartbeat_thread(AUTO_COMMIT_MS)
    assert scripted.sent(OFFSET_COMMIT) == []


def test_automatic_commits_also_serve_an_assignment_of_the_program() -> None:
    scripted = ScriptedConsumer()
    scripted.assign(TP0)
    scripted.append(TP0, 2)
    scripted.poll()
    scripted.clock.move(AUTO_COMMIT_MS)
    scripted.poll()
    scripted.deliver()
    assert scripted.cluster.commits == [{TP0: 2}]
    [body] = scripted.sent(OFFSET_COMMIT)
    assert (body.generation_id_or_member_epoch, body.member_id) == (-1, "")


def test_without_automatic_commits_nothing_is_committed() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False)
    scripted.join(TP0)
    scripted.append(TP0, 2)
    scripted.poll()
    scripted.clock.move(10 * AUTO_COMMIT_MS)
    scripted.poll()
    scripted.consumer.close()
    assert scripted.sent(OFFSET_COMMIT) == []


def test_a_failed_automatic_commit_is_made_again_with_newer_offsets() -> None:
    scripted = ScriptedConsumer()
    scripted.join(TP0)
    scripted.append(TP0, 2)
    scripted.poll()
    scripted.cluster.fail_next(OFFSET_COMMIT, COORDINATOR_LOAD_IN_PROGRESS)
    scripted.clock.move(AUTO_COMMIT_MS)
    scripted.append(TP0, 3)
    scripted.poll_until(lambda: scripted.cluster.commits)
    scripted.clock.move(2 * RETRY_MS)
    scripted.poll_until(lambda: len(scripted.cluster.commits) == 2)
    assert scripted.cluster.commits == [{TP0: 2}, {TP0: 5}]
    assert scripted.cluster.committed == {TP0: 5}


def test_automatic_commits_go_on_while_partitions_are_paused() -> None:
    scripted = ScriptedConsumer()
    scripted.join(TP0)
    scripted.append(TP0, 2)
    scripted.poll()
    scripted.consumer.pause([TP0])
    scripted.clock.move(AUTO_COMMIT_MS)
    scripted.poll()
    scripted.deliver()
    assert scripted.cluster.commits == [{TP0: 2}]


# --- the order of commits -----------------------------------------------------------------------------------------


def test_a_manual_commit_that_overlaps_an_automatic_one_is_sent_after_it_and_never_rewinds() -> None:
    scripted = ScriptedConsumer()
    scripted.join(TP0)
    scripted.append(TP0, 5)
    scripted.poll()
    scripted.cluster.hold(OFFSET_COMMIT)
    scripted.clock.move(AUTO_COMMIT_MS)
    scripted.append(TP0, 5)
    assert offsets(scripted.poll()) == [5, 6, 7, 8, 9]
    scripted.deliver()
    [automatic] = scripted.in_flight(OFFSET_COMMIT)
    assert offsets_of_commit(automatic.body) == {TP0: 5}
    scripted.consumer.commit_async()
    scripted.deliver()
    assert scripted.in_flight(OFFSET_COMMIT) == [automatic]
    scripted.cluster.fail_next(OFFSET_COMMIT, COORDINATOR_LOAD_IN_PROGRESS)  # of the automatic commit
    scripted.answer(OFFSET_COMMIT)
    scripted.poll_until(lambda: len(scripted.cluster.commits) == 2)
    for _ in range(5):
        scripted.clock.move(AUTO_COMMIT_MS)
        scripted.poll()
    assert [commit[TP0] for commit in scripted.cluster.commits[:2]] == [5, 10]
    assert min(commit[TP0] for commit in scripted.cluster.commits[1:]) == 10
    assert scripted.cluster.committed == {TP0: 10}


def test_a_repeated_commit_is_sent_before_a_later_one() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False)
    scripted.join(TP0)
    scripted.cluster.fail_next(OFFSET_COMMIT, COORDINATOR_LOAD_IN_PROGRESS)
    done: list[Any] = []

    def commit_later(ms: int) -> None:
        scripted.clock.move(ms)
        if not done:
            done.append(True)
            scripted.consumer.commit_async(at(9))

    scripted.kafka.on_wait = commit_later
    scripted.consumer.commit_sync(at(4))
    scripted.deliver()
    assert [commit[TP0] for commit in scripted.cluster.commits] == [4, 4, 9]


def test_asynchronous_commits_are_sent_in_their_order_and_their_callbacks_called_by_a_later_call() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False)
    scripted.join(TP0)
    called: list[Any] = []
    for offset in (1, 2, 3):
        scripted.consumer.commit_async(at(offset), lambda *result: called.append(result))
    scripted.run_heartbeat_thread(0)
    scripted.run_heartbeat_thread(0)
    assert scripted.cluster.commits == [{TP0: 1}, {TP0: 2}, {TP0: 3}]
    before = len(called)
    scripted.poll()
    assert before < 3
    assert called == [(at(offset), None) for offset in (1, 2, 3)]


def test_an_exception_of_a_commit_callback_is_raised_and_the_other_callbacks_follow() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False)
    scripted.join(TP0)
    called: list[Any] = []

    def fail(*result: Any) -> None:
        called.append("first")
        raise RuntimeError("the callback failed")

    scripted.cluster.hold(OFFSET_COMMIT)
    scripted.consumer.commit_async(at(1), fail)
    scripted.consumer.commit_async(at(2), lambda *result: called.append("second"))
    scripted.answer(OFFSET_COMMIT)
    with pytest.raises(RuntimeError, match="the callback failed"):
        scripted.poll_until(lambda: False)
    scripted.poll_until(lambda: len(called) == 2)
    assert called == ["first", "second"]


def test_a_failed_asynchronous_commit_is_not_repeated_and_its_callback_gets_the_error() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False)
    scripted.join(TP0)
    called: list[Any] = []
    callback: OffsetCommitCallback = lambda offsets, error: called.append((offsets, error))  # noqa: E731
    scripted.cluster.fail_next(OFFSET_COMMIT, NOT_COORDINATOR)
    scripted.consumer.commit_async(at(1), callback)
    scripted.poll_until(lambda: called)
    [(committed, error)] = called
    assert committed == at(1)
    assert isinstance(error, RetriableCommitFailedException)
    assert len(scripted.cluster.commits) == 1


# --- commit_sync --------------------------------------------------------------------------------------------------


def test_a_synchronous_commit_has_what_was_returned() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False, max_poll_records=3)
    scripted.join(TP0, TP1)
    scripted.append(TP0, 5)
    assert scripted.poll().count() == 3
    scripted.consumer.commit_sync()
    assert scripted.cluster.commits == [{TP0: 3, TP1: 0}]


def test_a_synchronous_commit_sends_metadata_and_leader_epoch() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False)
    scripted.join(TP0)
    scripted.consumer.commit_sync({TP0: OffsetAndMetadata(7, "note", 3)})
    [row] = scripted.sent(OFFSET_COMMIT)[-1].topics[0].partitions
    assert (row.committed_offset, row.committed_metadata, row.committed_leader_epoch) == (7, "note", 3)


def test_a_synchronous_commit_of_nothing_sends_nothing() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False)
    scripted.consumer.commit_sync()
    scripted.consumer.commit_sync({})
    assert scripted.kafka.sent == []


def test_a_synchronous_commit_finds_the_coordinator_and_is_repeated_until_it_is_accepted() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False)
    scripted.cluster.fail_next(OFFSET_COMMIT, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS)
    scripted.consumer.assign([TP0])
    scripted.consumer.commit_sync(at(5))
    assert scripted.cluster.committed == {TP0: 5}
    assert len(scripted.sent(FIND_COORDINATOR)) == 2
    assert scripted.cluster.commits == [{TP0: 5}] * 3


def test_a_synchronous_commit_without_answer_raises_after_its_time() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False)
    scripted.cluster.hold(OFFSET_COMMIT)
    scripted.consumer.assign([TP0])
    began = scripted.clock.now_ms()
    with pytest.raises(TimeoutException, match="Timeout of 2500ms expired"):
        scripted.consumer.commit_sync(at(5), 2500)
    assert scripted.clock.now_ms() - began <= 2510


def test_a_synchronous_commit_without_time_is_sent_once() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False)
    scripted.join(TP0)
    scripted.cluster.hold(OFFSET_COMMIT)
    with pytest.raises(TimeoutException):
        scripted.consumer.commit_sync(at(2), timeout_ms=0)
    scripted.answer(OFFSET_COMMIT)
    scripted.deliver()
    assert scripted.cluster.commits == [{TP0: 2}]


def test_a_synchronous_commit_without_coordinator_raises_after_its_time() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False)
    scripted.cluster.hold(FIND_COORDINATOR)
    scripted.consumer.assign([TP0])
    with pytest.raises(TimeoutException, match="Timeout of 2500ms expired"):
        scripted.consumer.commit_sync(at(5), 2500)


def test_a_synchronous_commit_has_the_time_of_the_configuration() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False, default_api_timeout_ms=40_000)
    scripted.cluster.hold(OFFSET_COMMIT)
    scripted.consumer.assign([TP0])
    with pytest.raises(TimeoutException, match="Timeout of 40000ms expired"):
        scripted.consumer.commit_sync(at(5))


def test_a_commit_of_a_member_that_was_removed_raises_and_the_next_poll_joins() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False)
    listener = RecordingListener()
    scripted.join(TP0, listener=listener)
    scripted.cluster.fail_next(OFFSET_COMMIT, UNKNOWN_MEMBER_ID)
    with pytest.raises(CommitFailedException):
        scripted.consumer.commit_sync(at(5))
    scripted.poll_until(lambda: len(listener.calls) == 3)
    assert listener.names() == ["assigned", "lost", "assigned"]


def test_a_commit_during_a_rebalance_raises_and_succeeds_after_it() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False)
    scripted.join(TP0)
    scripted.cluster.fail_next(OFFSET_COMMIT, REBALANCE_IN_PROGRESS)
    with pytest.raises(RebalanceInProgressException):
        scripted.consumer.commit_sync(at(5))
    scripted.poll_until(lambda: scripted.generation == 2 and scripted.consumer.assignment())
    scripted.consumer.commit_sync(at(6))
    assert scripted.cluster.committed == {TP0: 6}


def test_a_commit_without_permission_for_a_topic_raises() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False)
    scripted.join(TP0)
    scripted.cluster.fail_next(OFFSET_COMMIT, TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(TopicAuthorizationException):
        scripted.consumer.commit_sync(at(5))


def test_a_synchronous_commit_raises_a_failed_login() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False)
    scripted.fail_login()
    with pytest.raises(AuthenticationException, match="the password is wrong"):
        scripted.consumer.commit_sync(at(10))


def test_a_wakeup_ends_a_synchronous_commit_and_the_offsets_are_committed_later() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False)
    scripted.cluster.hold(OFFSET_COMMIT)
    scripted.consumer.assign([TP0])
    scripted.kafka.on_wait = lambda ms: scripted.consumer.wakeup()
    with pytest.raises(WakeupException):
        scripted.consumer.commit_sync(at(5))
    scripted.kafka.on_wait = scripted.clock.move
    scripted.answer(OFFSET_COMMIT)
    scripted.poll()
    assert scripted.cluster.committed == {TP0: 5}


def test_a_synchronous_commit_calls_the_callbacks_of_earlier_commits() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False)
    scripted.join(TP0)
    called: list[Any] = []
    scripted.cluster.hold(OFFSET_COMMIT)
    scripted.consumer.commit_async(at(1), lambda *result: called.append(result))
    scripted.cluster.held.clear()
    scripted.answer(OFFSET_COMMIT)
    scripted.consumer.commit_sync(at(2))
    assert called == [(at(1), None)]


# --- interceptors -------------------------------------------------------------------------------------------------


class CountingInterceptor:
    """Notes the offsets of ``on_commit``."""

    def __init__(self) -> None:
        self.committed: list[Any] = []

    def on_consume(self, records: Any) -> Any:
        return records

    def on_commit(self, offsets: Any) -> None:
        self.committed.append(dict(offsets))

    def close(self) -> None:
        pass


def test_interceptors_get_the_offsets_of_accepted_commits_only() -> None:
    interceptor = CountingInterceptor()
    scripted = ScriptedConsumer(enable_auto_commit=False, interceptor_classes=[interceptor])
    scripted.join(TP0)
    scripted.cluster.fail_next(OFFSET_COMMIT, TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(TopicAuthorizationException):
        scripted.consumer.commit_sync(at(5))
    assert interceptor.committed == []
    scripted.consumer.commit_sync(at(6))
    assert interceptor.committed == [at(6)]


def test_interceptors_get_the_offsets_of_automatic_commits() -> None:
    interceptor = CountingInterceptor()
    scripted = ScriptedConsumer(interceptor_classes=[interceptor])
    scripted.join(TP0)
    scripted.append(TP0, 2)
    scripted.poll()
    scripted.clock.move(AUTO_COMMIT_MS)
    scripted.poll_until(lambda: interceptor.committed)
    assert interceptor.committed == [at(2)]


def test_a_commit_is_answered_while_the_group_needs_the_program() -> None:
    scripted = ScriptedConsumer(enable_auto_commit=False)
    scripted.join(TP0)
    scripted.cluster.fail_next(HEARTBEAT, REBALANCE_IN_PROGRESS)
    scripted.run_heartbeat_thread(HEARTBEAT_MS)
    assert scripted.consumer._coordinator is not None
    assert scripted.consumer._coordinator.has_commands
    scripted.consumer.commit_sync(at(5))
    assert scripted.cluster.committed == {TP0: 5}
    assert len(scripted.sent(JOIN_GROUP)) == 1


# --- values that cannot be sent -----------------------------------------------------------------------------------


def test_metadata_that_cannot_be_sent_is_named_at_once_and_the_coordinator_stays_known() -> None:
    scripted = ScriptedConsumer()
    scripted.join(TP0)
    searches = scripted.sent_names().count("FindCoordinator")
    began_ms = scripted.clock.now_ms()
    with pytest.raises(UsageError, match="committed_metadata has 40000 bytes, at most 32767"):
        scripted.consumer.commit_sync({TP0: OffsetAndMetadata(1, "x" * 40_000)})
    assert scripted.clock.now_ms() == began_ms
    scripted.consumer.commit_sync(at(1))
    assert scripted.cluster.committed == {TP0: 1}
    assert scripted.sent_names().count("FindCoordinator") == searches


@pytest.mark.parametrize(
    ("partition", "offset"),
    [
        (TP0, OffsetAndMetadata("5")),  # type: ignore[arg-type]
        (TP0, OffsetAndMetadata(5.0)),  # type: ignore[arg-type]
        (TP0, OffsetAndMetadata(5, b"note")),  # type: ignore[arg-type]
        (TP0, OffsetAndMetadata(5, leader_epoch="1")),  # type: ignore[arg-type]
        (TopicPartition("test", "0"), OffsetAndMetadata(5)),  # type: ignore[arg-type]
        (TopicPartition(b"test", 0), OffsetAndMetadata(5)),  # type: ignore[arg-type]
    ],
)
def test_a_commit_with_a_value_of_another_type_is_an_error_of_the_call_and_the_member_goes_on(
    partition: TopicPartition, offset: OffsetAndMetadata
) -> None:
    scripted = ScriptedConsumer()
    scripted.join(TP0)
    for commit in (scripted.consumer.commit_sync, scripted.consumer.commit_async):
        with pytest.raises(UsageError, match="pass "):
            commit({partition: offset})
    scripted.poll()
    scripted.consumer.commit_sync(at(1))
    assert scripted.cluster.commits == [{TP0: 1}]
