"""Hooks: what a program is told of its member, and that nothing it does there can harm the member."""

from __future__ import annotations

import inspect
import threading
from pathlib import Path
from typing import Any

import pytest

from bridge.testing.fake_environment import FakeEnvironment
from tests.in_memory_fixtures import MakeConnector, our_threads, run_in_thread, take, wait_until
from zkconsumer.config import ConsumerConfig
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.errors import InvalidMessageException, ZkTimeoutException
from zkconsumer.observe.counters import Counters
from zkconsumer.runtime import hook_calls as runtime_hooks
from zkconsumer.runtime.hook_calls import HookCalls
from zkconsumer.types import Hooks, TopicPartition
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.records import Record
from zkconsumer.zk import paths

TOPIC, GROUP = "topic1", "group1"
ALL_HOOKS = sorted(name for name in vars(Hooks) if not name.startswith("_"))


class Recorder(Hooks):
    """Writes everything down."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattribute__(self, name: str) -> Any:
        if name in ALL_HOOKS:
            return lambda *values: self.calls.append((name, values))
        return super().__getattribute__(name)

    def of(self, name: str) -> list[tuple[Any, ...]]:
        return [values for called, values in self.calls if called == name]


def hooked(world: FakeEnvironment, hooks: Hooks, consumer_id: str = "a", **settings: Any) -> ZookeeperConsumerConnector:
    """A connector of this world with hooks."""
    return world.connector(
        hooks=hooks,
        group_id=GROUP,
        consumer_id=consumer_id,
        auto_offset_reset="smallest",
        consumer_timeout_ms=10_000,
        rebalance_debounce_ms=5,
        fetch_wait_max_ms=20,
        **settings,
    )


def test_a_life_is_told_in_its_order(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC, 2)
    world.cluster.append(TOPIC, 0, [b"a", b"b"])
    recorder = Recorder()
    connector = hooked(world, recorder)
    [stream] = connector.create_message_streams({TOPIC: 1})[TOPIC]
    take(stream, 2)
    connector.commit_offsets()
    reading = run_in_thread(lambda: stream.iterator().has_next())
    other = connect(group_id=GROUP, consumer_id="b")
    other.create_message_streams({TOPIC: 1})
    at = [TopicPartition(TOPIC, number) for number in range(2)]
    wait_until(lambda: len(recorder.of("assignment_complete")) == 2, "the share changed")
    world.cluster.append(TOPIC, 0, [b"c"])
    reading()
    store = world.store_of(connector)
    world.zookeeper.disconnect(store)
    wait_until(lambda: recorder.of("session_suspended"), "the disconnect is told")
    world.zookeeper.reconnect(store)
    wait_until(lambda: len(recorder.of("session_connected")) == 2, "the return is told")
    world.zookeeper.expire(store)
    wait_until(lambda: len(recorder.of("assignment_complete")) == 3, "the next session has its share")
    connector.close()

    thread = f"{GROUP}_a-0"
    assert recorder.of("assignment_complete")[:2] == [({at[0]: thread, at[1]: thread},), ({at[0]: thread},)]
    store_name, written, refused = recorder.of("commit_completed")[0]
    assert (store_name, written[at[0]], refused) == ("zookeeper", 2, {})
    assert recorder.of("partitions_revoked")[0] == ((at[1],),)
    [(lost, why)] = recorder.of("partitions_lost")
    assert (lost, why) == ((at[0],), "the ZooKeeper session expired")
    [(session_id,)] = recorder.of("session_lost")
    assert session_id == recorder.of("session_connected")[0][0]
    assert ("WARNING", "session-lost") in [values[:2] for values in recorder.of("warning_logged")]
    names = [name for name, _ in recorder.calls]
    assert names.index("session_connected") < names.index("assignment_complete") < names.index("partitions_revoked")
    assert not our_threads() or not [name for name in our_threads() if name.endswith("-hooks") and "_a-" in name]


def test_an_offset_that_a_release_may_not_write_is_told_as_refused(world: FakeEnvironment) -> None:
    world.create_topic(TOPIC, 1)
    world.cluster.append(TOPIC, 0, [b"a"] * 5)
    at = TopicPartition(TOPIC, 0)
    world.zookeeper.ensure(paths.offset(GROUP, at), b"0")
    recorder = Recorder()
    connector = hooked(world, recorder)
    [stream] = connector.create_message_streams({TOPIC: 1})[TOPIC]
    take(stream, 2)
    world.zookeeper.set_acl(paths.offset(GROUP, at), ())
    connector.close()
    assert world.owners(GROUP, TOPIC) == {}, "it is given back all the same"
    [(store, written, refused)] = recorder.of("commit_completed")
    assert (store, written, list(refused)) == ("zookeeper", {}, [at])
    assert "NoAuth" in refused[at]


def test_offsets_that_move_back_are_told(world: FakeEnvironment) -> None:
    world.create_topic(TOPIC, 1)
    world.cluster.append(TOPIC, 0, [b"a"] * 5)
    at = TopicPartition(TOPIC, 0)
    world.zookeeper.ensure(f"/consumers/{GROUP}/offsets/{TOPIC}/0", b"900")
    recorder = Recorder()
    connector = hooked(world, recorder)
    [stream] = connector.create_message_streams({TOPIC: 1})[TOPIC]
    take(stream, 3)
    wait_until(lambda: recorder.of("offset_reset") == [(at, 900, 0)], "the reset is told")
    connector.commit_offsets()
    world.zookeeper.remove(f"/consumers/{GROUP}/offsets/{TOPIC}/0")
    world.zookeeper.ensure(f"/consumers/{GROUP}/offsets/{TOPIC}/0", b"1")
    take(stream, 1)
    connector.commit_offsets()
    wait_until(lambda: recorder.of("offset_rewound"), "the foreign offset is told")
    assert recorder.of("offset_rewound") == [(at, 1, 4)]


def test_brokers_and_records_that_cannot_be_read_are_told(world: FakeEnvironment) -> None:
    world.create_topic(TOPIC, 1)
    world.cluster.append(TOPIC, 0, [b"x" * 5000])
    world.create_topic("other", 1)
    recorder = Recorder()
    connector = hooked(world, recorder, fetch_message_max_bytes=100, fetch_max_bytes=100)
    streams = connector.create_message_streams({TOPIC: 1, "other": 1})
    damaged = b"\0" * 8 + b"\0\0\0\x10" + b"\xff" * 16
    world.cluster.append_raw("other", 0, damaged, 1)
    wait_until(lambda: [v for v in recorder.of("fetch_failed") if v[1]], "the damaged partition is told")
    broker, partitions, why = next(values for values in recorder.of("fetch_failed") if values[1])
    assert partitions == (TopicPartition("other", 0),)
    assert broker in world.cluster.addresses
    assert "corrupt" in why
    connector._member.membership.observer.poison_record_found(TopicPartition(TOPIC, 0), "as a stream tells it")
    wait_until(lambda: recorder.of("poison_record_found"), "a stream's trouble is told")
    for broker in world.cluster.addresses:
        world.cluster.stop_broker(broker.broker_id)
    wait_until(lambda: [v for v in recorder.of("fetch_failed") if not v[1]], "a dead broker is told")
    assert streams


def test_a_stream_that_meets_a_record_which_it_cannot_hand_out_tells_it_once(world: FakeEnvironment) -> None:
    world.create_topic(TOPIC, 1)
    data = bytearray(build_record_set([Record(0, 1, 0, None, b"value", ())], 2))
    data[-3] ^= 1
    world.cluster.append_raw(TOPIC, 0, bytes(data), 1)
    recorder = Recorder()
    connector = hooked(world, recorder)
    [stream] = connector.create_message_streams({TOPIC: 1})[TOPIC]
    for _ in range(3):
        with pytest.raises(InvalidMessageException):
            next(stream.iterator())
    wait_until(lambda: recorder.of("poison_record_found"), "it is told")
    connector.close()
    [(at, why)] = recorder.of("poison_record_found")
    assert at == TopicPartition(TOPIC, 0)
    assert "at offset 0" in why


def test_a_caller_that_does_not_come_back_and_a_thread_that_dies_are_told(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic(TOPIC, 2)
    world.cluster.append(TOPIC, 1, [b"a"])
    recorder = Recorder()
    connector = hooked(world, recorder, rebalance_drain_timeout_ms=10)
    [stream] = connector.create_message_streams({TOPIC: 1})[TOPIC]
    take(stream, 1)
    connect(group_id=GROUP, consumer_id="b").create_message_streams({TOPIC: 1})
    wait_until(lambda: recorder.of("drain_timed_out"), "nobody came back")
    assert recorder.of("drain_timed_out") == [((TopicPartition(TOPIC, 1),),)]
    error = ValueError("a bug")
    connector._member.membership.thread_died("some-thread", error)
    wait_until(lambda: recorder.of("member_failed"), "the end is told")
    assert recorder.of("thread_died") == [("some-thread", error)], "it was told before"
    [(failure,)] = recorder.of("member_failed")
    assert "some-thread" in str(failure)


def test_a_hook_that_raises_is_reported_once_and_harms_nobody(
    world: FakeEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    world.create_topic(TOPIC, 1)
    world.cluster.append(TOPIC, 0, [b"a", b"b"])

    class Raises(Recorder):
        def __getattribute__(self, name: str) -> Any:
            if name == "commit_completed":
                raise SystemExit("no")
            return super().__getattribute__(name)

    connector = hooked(world, Raises())
    [stream] = connector.create_message_streams({TOPIC: 1})[TOPIC]
    for _ in range(2):
        take(stream, 1)
        connector.commit_offsets()
    wait_until(lambda: connector.counters.get("hooks_failed") == 2, "both raised")
    reported = [record for record in caplog.records if record.getMessage().startswith("hook-raised")]
    assert len(reported) == 1
    assert reported[0].exc_info
    assert "commit_completed" in reported[0].getMessage()


def test_a_slow_hook_delays_only_hooks_and_what_comes_too_much_is_dropped_and_counted(
    monkeypatch: pytest.MonkeyPatch, no_thread_is_left: None
) -> None:
    monkeypatch.setattr(runtime_hooks, "HOOK_CALLS_QUEUED_MAX", 3)
    let_go, is_called = threading.Event(), threading.Event()
    told: list[str] = []

    class Slow(Hooks):
        def warning_logged(self, level: str, event: str, words: str) -> None:
            told.append(event)
            is_called.set()
            let_go.wait(10)

    counters = Counters()
    calls = HookCalls("m", Slow(), counters, lambda *_: None)
    calls.call("warning_logged", "WARNING", "first", "")
    assert is_called.wait(30)
    for number in range(5):
        calls.call("warning_logged", "WARNING", f"event-{number}", "")
    assert counters.snapshot() == {"hooks_dropped": 2}
    calls.close()
    calls.call("warning_logged", "WARNING", "too late", "")
    assert not calls.join(10)
    let_go.set()
    assert calls.join(5_000)
    assert told == ["first", "event-0", "event-1", "event-2"], "a close lets what waits be told"


def test_a_hook_may_close_the_connector(world: FakeEnvironment) -> None:
    world.create_topic(TOPIC, 1)
    closed = threading.Event()

    class Closes(Hooks):
        def assignment_complete(self, assignment: dict[TopicPartition, str]) -> None:
            connector.close()
            closed.set()

    connector = hooked(world, Closes())
    connector.create_message_streams({TOPIC: 1})
    assert closed.wait(10)
    wait_until(lambda: world.owners(GROUP, TOPIC) == {}, "it has left")


def test_without_hooks_there_is_no_thread_for_them(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC)
    connect().create_message_streams({TOPIC: 1})
    assert not [name for name in our_threads() if name.endswith("-hooks")]


def test_every_hook_does_nothing_by_itself_and_is_called_somewhere() -> None:
    """A hook that nobody calls would be a promise that is not kept."""
    runtime = "".join(path.read_text("utf-8") for path in Path(runtime_hooks.__file__).parent.glob("*.py"))
    by_name = {"offset_reset", "offset_rewound"}
    for name in ALL_HOOKS:
        function = getattr(Hooks, name)
        arguments = [None] * (len(inspect.signature(function).parameters) - 1)
        assert function(Hooks(), *arguments) is None
        assert f'call("{name}"' in runtime or name in by_name, name


def test_a_connector_that_cannot_start_leaves_no_thread_for_its_hooks(no_thread_is_left: None) -> None:
    config = ConsumerConfig(group_id=GROUP, zookeeper_connect="127.0.0.1:1", zookeeper_connection_timeout_ms=50)
    with pytest.raises(ZkTimeoutException):
        ZookeeperConsumerConnector(config, hooks=Recorder())
