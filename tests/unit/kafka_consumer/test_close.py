"""``KafkaConsumer.close``: what it sends, how long it waits, what it raises, and what is left afterwards."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from bridge.client.kafka_consumer.kafka_consumer import KafkaConsumer
from tests.kafka_consumer_fixtures import (
    GROUP,
    TOPIC,
    TP0,
    RecordingListener,
    ScriptedConsumer,
    offsets,
)
from zkconsumer.base.threads import live_threads
from zkconsumer.errors import ConnectorClosed, UsageError
from zkconsumer.kafka.error_codes import GROUP_AUTHORIZATION_FAILED, UNKNOWN_MEMBER_ID
from zkconsumer.kafka.group.errors import RebalanceCallbackFailed
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.wire.schemas import (
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
)


class ClosedObject:
    """An interceptor, a deserializer and a listener of the cluster; notes ``close``."""

    def __init__(self) -> None:
        self.closed = 0
        self.clusters: list[Any] = []

    def on_update(self, cluster: Any) -> None:
        self.clusters.append(cluster.cluster_id)

    def deserialize(self, topic: str, headers: Any, data: bytes) -> bytes:
        return data

    def on_consume(self, records: Any) -> Any:
        return records

    def on_commit(self, offsets: Any) -> None:
        pass

    def close(self) -> None:
        self.closed += 1


def joined(**settings: object) -> ScriptedConsumer:
    scripted = ScriptedConsumer(**settings)
    scripted.join(TP0)
    scripted.append(TP0, 2)
    assert offsets(scripted.poll()) == [0, 1]
    return scripted


# --- the order ----------------------------------------------------------------------------------------------------


def test_close_commits_then_calls_the_listener_and_then_leaves_the_group() -> None:
    scripted = ScriptedConsumer()
    listener = RecordingListener()
    scripted.join(TP0, listener=listener)
    scripted.append(TP0, 2)
    scripted.poll()
    seen: list[Any] = []
    listener.on_call = lambda name: seen.append((name, list(scripted.cluster.commits), scripted.sent(LEAVE_GROUP)))
    began = scripted.clock.now_ms()
    scripted.consumer.close()
    assert seen == [("revoked", [{TP0: 2}], [])]
    assert len(scripted.sent(LEAVE_GROUP)) == 1
    assert scripted.clock.now_ms() == began
    assert scripted.kafka.is_closed
    assert [thread.is_stopped for thread in scripted.threads] == [True]


def test_close_waits_for_a_commit_of_the_program() -> None:
    scripted = joined(enable_auto_commit=False)
    called: list[Any] = []
    scripted.cluster.hold(OFFSET_COMMIT)
    scripted.consumer.commit_async({TP0: OffsetAndMetadata(2)}, lambda *result: called.append(result))

    def answer(ms: int) -> None:
        scripted.clock.move(ms)
        scripted.answer(OFFSET_COMMIT)

    scripted.kafka.on_wait = answer
    scripted.consumer.close()
    assert scripted.cluster.committed == {TP0: 2}
    assert called == [({TP0: OffsetAndMetadata(2)}, None)]


def test_close_commits_an_assignment_of_the_program_and_leaves_no_group() -> None:
    scripted = ScriptedConsumer()
    scripted.assign(TP0)
    scripted.append(TP0, 2)
    scripted.poll()
    scripted.consumer.close()
    assert scripted.cluster.commits == [{TP0: 2}]
    assert scripted.sent(LEAVE_GROUP) == []


def test_a_static_member_does_not_leave_the_group() -> None:
    scripted = joined(group_instance_id="instance")
    scripted.consumer.close()
    assert scripted.cluster.commits == [{TP0: 2}]
    assert scripted.sent(LEAVE_GROUP) == []


def test_close_in_the_middle_of_a_join_ends_in_time() -> None:
    scripted = ScriptedConsumer()
    scripted.cluster.hold(JOIN_GROUP)
    scripted.consumer.subscribe([TOPIC])
    scripted.poll_until(lambda: scripted.in_flight(JOIN_GROUP))
    began = scripted.clock.now_ms()
    scripted.consumer.close(5000)
    assert scripted.clock.now_ms() - began <= 5000
    assert scripted.kafka.is_closed


# --- its time -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", [OFFSET_COMMIT, LEAVE_GROUP])
def test_close_waits_for_the_coordinator_only_for_its_time(api: Any) -> None:
    scripted = joined()
    scripted.cluster.hold(api)
    began = scripted.clock.now_ms()
    scripted.consumer.close(5000)
    assert scripted.clock.now_ms() - began == 5000
    assert len(scripted.sent(OFFSET_COMMIT)) == 1
    assert len(scripted.sent(LEAVE_GROUP)) == 1


def test_close_waits_no_longer_than_the_time_of_a_request() -> None:
    scripted = joined(request_timeout_ms=3000)
    scripted.cluster.hold(LEAVE_GROUP)
    began = scripted.clock.now_ms()
    scripted.consumer.close(60_000)
    assert scripted.clock.now_ms() - began <= 3000


@pytest.mark.parametrize("is_answered", [True, False])
def test_close_without_time_sends_the_last_commit_and_leaves_without_waiting(is_answered: bool) -> None:
    scripted = ScriptedConsumer()
    listener = RecordingListener()
    scripted.join(TP0, listener=listener)
    scripted.append(TP0, 2)
    scripted.poll()
    if not is_answered:
        scripted.cluster.hold(OFFSET_COMMIT, LEAVE_GROUP)
    began = scripted.clock.now_ms()
    scripted.consumer.close(0)
    assert scripted.clock.now_ms() == began
    assert listener.names() == ["assigned", "revoked"]
    assert [len(scripted.sent(api)) for api in (OFFSET_COMMIT, LEAVE_GROUP)] == [1, 1]
    assert scripted.cluster.commits == ([{TP0: 2}] if is_answered else [])


def test_close_with_a_negative_time_is_an_error_and_closes_nothing() -> None:
    scripted = joined()
    with pytest.raises(UsageError, match="negative"):
        scripted.consumer.close(-1)
    assert scripted.consumer.assignment() == {TP0}
    assert not scripted.kafka.is_closed


def test_close_without_coordinator_ends_in_time() -> None:
    scripted = ScriptedConsumer()
    scripted.cluster.hold(FIND_COORDINATOR)
    scripted.consumer.subscribe([TOPIC])
    scripted.poll()
    began = scripted.clock.now_ms()
    scripted.consumer.close(5000)
    assert scripted.clock.now_ms() - began <= 5000


# --- what it raises -----------------------------------------------------------------------------------------------


def test_close_raises_the_exception_of_the_listener_after_everything_is_closed() -> None:
    interceptor = ClosedObject()
    scripted = ScriptedConsumer(interceptor_classes=[interceptor])
    listener = RecordingListener()
    scripted.join(TP0, listener=listener)
    listener.raises["revoked"] = RuntimeError("revoke failed")
    with pytest.raises(RebalanceCallbackFailed, match="revoke failed"):
        scripted.consumer.close()
    assert len(scripted.sent(LEAVE_GROUP)) == 1
    assert (scripted.kafka.is_closed, interceptor.closed, scripted.threads[0].is_stopped) == (True, 1, True)
    scripted.consumer.close()


def test_close_does_not_raise_an_earlier_error_of_the_group() -> None:
    scripted = joined()
    scripted.cluster.fail_next(HEARTBEAT, GROUP_AUTHORIZATION_FAILED)
    scripted.run_heartbeat_thread()
    scripted.consumer.close()
    assert len(scripted.sent(LEAVE_GROUP)) == 1


def test_close_does_not_raise_when_the_last_commit_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    for scripted in (joined(), ScriptedConsumer()):
        if not scripted.consumer.assignment():
            scripted.assign(TP0)
        scripted.cluster.fail_next(OFFSET_COMMIT, UNKNOWN_MEMBER_ID)
        scripted.consumer.close()
        assert len(scripted.cluster.commits) == 1
        assert scripted.kafka.is_closed
    assert caplog.text.count("revocation-commit-failed") == 2


def test_an_interrupt_of_close_closes_everything() -> None:
    interceptor = ClosedObject()
    scripted = joined(interceptor_classes=[interceptor])
    scripted.cluster.hold(OFFSET_COMMIT)

    def interrupt(ms: int) -> None:
        raise KeyboardInterrupt

    scripted.kafka.on_wait = interrupt
    with pytest.raises(KeyboardInterrupt):
        scripted.consumer.close()
    assert (scripted.kafka.is_closed, interceptor.closed, scripted.threads[0].is_stopped) == (True, 1, True)
    with pytest.raises(ConnectorClosed):
        scripted.poll()


def test_close_ignores_a_wakeup() -> None:
    scripted = joined()
    scripted.consumer.wakeup()
    scripted.consumer.close()
    assert scripted.cluster.commits == [{TP0: 2}]
    assert len(scripted.sent(LEAVE_GROUP)) == 1


def test_a_second_close_does_nothing() -> None:
    scripted = ScriptedConsumer(group=None)
    for _ in range(3):
        scripted.consumer.close()
    assert scripted.kafka.is_closed


def test_close_inside_of_a_callback_is_an_error() -> None:
    scripted = ScriptedConsumer()
    listener = RecordingListener()
    listener.on_call = lambda name: scripted.consumer.close()
    with pytest.raises(UsageError, match="inside of a callback"):
        scripted.join(TP0, listener=listener)
    listener.on_call = lambda name: None
    assert not scripted.kafka.is_closed
    scripted.consumer.close()


def test_a_with_statement_closes() -> None:
    scripted = ScriptedConsumer()
    with scripted.consumer as consumer:
        assert consumer is scripted.consumer
    assert scripted.kafka.is_closed


# --- a forked child -----------------------------------------------------------------------------------------------


def test_close_in_a_forked_child_does_not_leave_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted = ScriptedConsumer()
    listener = RecordingListener()
    scripted.join(TP0, listener=listener)
    scripted.append(TP0, 2)
    scripted.poll()
    sent = scripted.sent_names()
    child = os.getpid() + 1
    monkeypatch.setattr(os, "getpid", lambda: child)
    scripted.consumer.close()
    assert scripted.sent_names() == sent
    assert listener.names() == ["assigned"]
    assert scripted.kafka.is_closed


def test_close_in_a_forked_child_does_not_wait_for_a_thread_of_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted = joined()
    client = scripted.consumer._client
    is_held, may_release = threading.Event(), threading.Event()

    def hold_the_lock() -> None:
        with client._lock:
            is_held.set()
            may_release.wait(30)

    thread = threading.Thread(target=hold_the_lock)
    thread.start()
    is_held.wait(30)
    child = os.getpid() + 1
    try:
        monkeypatch.setattr(os, "getpid", lambda: child)
        closer = threading.Thread(target=scripted.consumer.close, daemon=True)
        closer.start()
        closer.join(10)
        assert not closer.is_alive()
    finally:
        may_release.set()
        thread.join(30)


# --- without the scripted network ---------------------------------------------------------------------------------


def open_files() -> set[str]:
    gc.collect()
    return set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()


@pytest.fixture
def no_leaks() -> Iterator[None]:
    files, threads = open_files(), live_threads()
    yield
    assert len(open_files()) <= len(files)
    assert live_threads() == threads


@pytest.mark.usefixtures("no_leaks")
def test_close_leaves_no_thread_and_no_open_file() -> None:
    with closing(KafkaConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": GROUP})) as consumer:
        consumer.subscribe([TOPIC])
        consumer.poll(20)
        assert any(name.endswith("-heartbeat") for name in live_threads())
        consumer.close(0)


def test_interceptors_and_deserializers_are_closed_and_get_the_cluster() -> None:
    interceptor, deserializer = ClosedObject(), ClosedObject()
    scripted = ScriptedConsumer(group=None, interceptor_classes=[interceptor], value_deserializer=deserializer)
    assert interceptor.clusters == []
    scripted.assign(TP0)
    assert interceptor.clusters[-1] == deserializer.clusters[-1] == "dummy"
    assert (interceptor.closed, deserializer.closed) == (0, 0)
    scripted.consumer.close()
    assert (interceptor.closed, deserializer.closed) == (1, 1)
