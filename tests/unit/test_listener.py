"""The rebalance listener on whole connectors, on a world in memory; ``tests/transcripts/*listener*`` has its rules."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from bridge.testing.fake_environment import FakeEnvironment
from tests.in_memory_fixtures import DEADLINE_MS, MakeConnector, our_threads, run_in_thread, take, wait_until
from zkconsumer import javaapi
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.errors import ConnectorClosed, MessageStreamsExistException, OffsetsNotCommitted, UsageError
from zkconsumer.member import commands as do
from zkconsumer.member.topic_count import ConsumerThreadId
from zkconsumer.runtime import zookeeper_membership
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths

TOPIC, GROUP = "topic1", "group1"
QUICK = {"rebalance_backoff_ms": 50, "rebalance_debounce_ms": 5}
Assignment = dict[str, dict[int, ConsumerThreadId]]


@dataclass
class Recorder:
    """Writes every call down; ``work`` is what it does in one, told by the number of the call."""

    work: Callable[[int], Any] = lambda _: None
    calls: list[Any] = field(default_factory=list)
    overlaps: int = 0
    running: threading.Lock = field(default_factory=threading.Lock)

    def before_releasing_partitions(self, partitions: dict[str, set[int]]) -> None:
        self._called(partitions)

    def before_starting_fetchers(self, consumer_id: str, assignment: Assignment) -> None:
        self._called((consumer_id, assignment))

    def _called(self, what: Any) -> None:
        if not self.running.acquire(blocking=False):
            self.overlaps += 1
            return
        try:
            self.calls.append(what)
            self.work(len(self.calls) - 1)
        finally:
            self.running.release()


def threads(assignment: Assignment, topic: str = TOPIC) -> dict[int, str]:
    return {number: str(thread) for number, thread in assignment[topic].items()}


def listening(
    connect: MakeConnector, listener: Any, consumer_id: str = "consumer1", **settings: Any
) -> ZookeeperConsumerConnector:
    connector = connect(group_id=GROUP, consumer_id=consumer_id, **(QUICK | settings))
    connector.set_consumer_rebalance_listener(listener)
    return connector


def test_consumer_rebalance_listener(world: FakeEnvironment, connect: MakeConnector) -> None:
    """ZookeeperConsumerConnectorTest.testConsumerRebalanceListener."""
    world.create_topic(TOPIC, 2)
    first, second = Recorder(), Recorder()
    listening(connect, first).create_message_streams({TOPIC: 1})
    [released, (consumer, assignment)] = first.calls
    assert released == {}
    assert consumer == "group1_consumer1"
    assert assignment == {TOPIC: {n: ConsumerThreadId("group1_consumer1", 0) for n in (0, 1)}}

    first.calls.clear()
    listening(connect, second, "consumer2").create_message_streams({TOPIC: 1})
    wait_until(lambda: len(first.calls) == 2, "the first member hears of the second")
    assert first.calls[0] == {TOPIC: {1}}, "only what leaves: the original gives up both, and names both"
    split = {0: "group1_consumer1-0", 1: "group1_consumer2-0"}
    assert threads(first.calls[1][1]) == split
    assert second.calls[0] == {}
    assert second.calls[1] == ("group1_consumer2", first.calls[1][1])


def test_the_java_names(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC, 1)
    heard: list[Any] = []

    class Listener:
        def beforeReleasingPartitions(self, partitions: Any) -> None:
            heard.append(partitions)

        def beforeStartingFetchers(self, consumer: str, assignment: Any) -> None:
            heard.append((consumer, assignment))

    connector = javaapi.ConsumerConnector(connect(group_id=GROUP, consumer_id="consumer1"))
    connector.setConsumerRebalanceListener(Listener())
    connector.createMessageStreams({TOPIC: 1})
    [released, (consumer, assignment)] = heard
    thread = assignment[TOPIC][0]
    assert (released, consumer) == ({}, "group1_consumer1")
    assert (thread.consumer(), thread.threadId(), thread.toString()) == ("group1_consumer1", 0, "group1_consumer1-0")
    assert javaapi.ConsumerThreadId is ConsumerThreadId
    assert thread == ConsumerThreadId("group1_consumer1", 0)
    with pytest.raises(MessageStreamsExistException):
        connector.setConsumerRebalanceListener(Listener())
    with pytest.raises(UsageError, match="beforeReleasingPartitions"):
        connector.setConsumerRebalanceListener(Recorder())  # type: ignore[arg-type]


def test_a_listener_is_set_before_streams_are_created_and_the_last_one_counts(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic(TOPIC)
    first, second = Recorder(), Recorder()
    connector = listening(connect, first)
    connector.set_consumer_rebalance_listener(second)
    with pytest.raises(UsageError, match="before_releasing_partitions"):
        connector.set_consumer_rebalance_listener(object())  # type: ignore[arg-type]
    connector.create_message_streams({TOPIC: 1})
    assert (len(first.calls), len(second.calls)) == (0, 2)
    with pytest.raises(MessageStreamsExistException, match="can only set consumer rebalance listener before creating"):
        connector.set_consumer_rebalance_listener(first)


def test_without_a_listener_there_is_no_thread_for_it(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC)
    connect().create_message_streams({TOPIC: 1})
    assert not [name for name in our_threads() if name.endswith("-listener")]


def test_what_it_commits_before_a_release_is_accepted_and_nothing_is_committed_before_it(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic(TOPIC, 2)
    world.cluster.append(TOPIC, 1, [b"a", b"b", b"c"])
    stored: list[Any] = []

    def work(call: int) -> None:
        if call == 2:
            stored.append((world.owners(GROUP, TOPIC)[1], world.offsets(GROUP, TOPIC), connector.assignment))
            connector.commit_offsets({TopicPartition(TOPIC, 1): 1})
            stored.append(world.offsets(GROUP, TOPIC))

    connector = listening(connect, Recorder(work), auto_commit_enable=False)
    [stream] = connector.create_message_streams({TOPIC: 1})[TOPIC]
    assert len(take(stream, 3)) == 3
    reading = run_in_thread(lambda: stream.iterator().has_next())
    connect(group_id=GROUP, consumer_id="consumer2").create_message_streams({TOPIC: 1})
    assert stored[0] == ("group1_consumer1-0", {}, {TopicPartition(TOPIC, 0): "group1_consumer1-0"})
    assert stored[1] == {1: 1}
    assert world.offsets(GROUP, TOPIC) == {1: 1}, "without automatic commits nothing else writes"
    world.cluster.append(TOPIC, 0, [b"d"])
    assert reading()


def test_a_commit_of_everything_in_the_call_covers_what_leaves(world: FakeEnvironment, connect: MakeConnector) -> None:
    """As MirrorMaker's listener does: flush, then ``commitOffsets``."""
    world.create_topic(TOPIC, 2)
    for partition in range(2):
        world.cluster.append(TOPIC, partition, [b"a", b"b"])
    connector = listening(
        connect, Recorder(lambda call: connector.commit_offsets() if call == 2 else None), auto_commit_enable=False
    )
    [stream] = connector.create_message_streams({TOPIC: 1})[TOPIC]
    take(stream, 4)
    reading = run_in_thread(lambda: stream.iterator().has_next())
    connect(group_id=GROUP, consumer_id="consumer2").create_message_streams({TOPIC: 1})
    assert world.offsets(GROUP, TOPIC) == {0: 2, 1: 2}
    world.cluster.append(TOPIC, 0, [b"c"])
    assert reading()


def test_the_automatic_commit_of_what_leaves_comes_after_the_call(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    """What is consumed is committed when the change is seen, as in the Scala consumer; the rest after the call."""
    world.create_topic(TOPIC, 2)
    world.cluster.append(TOPIC, 1, [b"a", b"b", b"c"])
    seen: list[Any] = []
    recorder = Recorder(lambda call: seen.append(world.offsets(GROUP, TOPIC)))
    connector = listening(connect, recorder)
    [stream] = connector.create_message_streams({TOPIC: 1})[TOPIC]
    assert len(take(stream, 3)) == 3
    other = connect(group_id=GROUP, consumer_id="consumer2")
    joining = run_in_thread(lambda: other.create_message_streams({TOPIC: 1}))
    wait_until(lambda: world.offsets(GROUP, TOPIC) == {0: 0, 1: 2}, "what is consumed is committed")
    reading = run_in_thread(lambda: stream.iterator().has_next())
    assert joining()
    wait_until(lambda: len(seen) == 4, "it is told of the release and of the start")
    assert seen == [{}, {}, {0: 0, 1: 2}, {0: 0, 1: 3}]
    world.cluster.append(TOPIC, 0, [b"d"])
    assert reading()


def test_an_exception_fails_the_attempt_and_the_next_one_asks_again(
    world: FakeEnvironment, connect: MakeConnector, caplog: pytest.LogCaptureFixture
) -> None:
    world.create_topic(TOPIC, 2)

    def work(call: int) -> None:
        if call in (0, 2, 4):
            raise SystemExit(f"no, {call}")

    recorder = Recorder(work)
    connector = listening(connect, recorder)
    connector.create_message_streams({TOPIC: 1})
    assert recorder.calls[:2] == [{}, {}], "the first attempt failed, and the second asked again"
    connect(group_id=GROUP, consumer_id="consumer2", **QUICK).create_message_streams({TOPIC: 1})
    wait_until(lambda: world.owners(GROUP, TOPIC).get(1) == "group1_consumer2-0", "it is given back in the end")
    wait_until(lambda: len(recorder.calls) == 7, "it hears of the start")
    assert threads(recorder.calls[2][1]) == {0: "group1_consumer1-0", 1: "group1_consumer1-0"}
    assert recorder.calls[4:6] == [{TOPIC: {1}}] * 2
    assert connector.counters["listener_failures"] == 3
    told = [record.getMessage() for record in caplog.records if record.getMessage().startswith("listener-failed")]
    assert len(told) == 3
    assert "SystemExit: no, 0" in told[0]
    assert "the rebalance is retried" in told[0]
    raised = [record for record in caplog.records if record.getMessage().startswith("listener-raised")]
    assert all(record.exc_info for record in raised)
    assert len(raised) == 3


def test_a_listener_that_blocks_is_not_waited_for_and_never_called_twice_at_once(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic(TOPIC, 2)
    let_go = threading.Event()
    recorder = Recorder(lambda call: let_go.wait(10) if call == 0 else None)
    connector = listening(connect, recorder, rebalance_listener_timeout_ms=30)
    connector.create_message_streams({TOPIC: 1})
    assert connector.counters["listener_timeouts"] == 1
    neighbour = connect(group_id=GROUP, consumer_id="consumer2", **QUICK)
    neighbour.create_message_streams({TOPIC: 1})
    wait_until(lambda: len(connector.assignment) == 1, "the rebalance goes on without it")
    assert recorder.calls == [{}]
    let_go.set()
    wait_until(lambda: len(recorder.calls) == 3, "it is told what it missed")
    assert recorder.calls[1] == {}
    assert threads(recorder.calls[2][1]) == {0: "group1_consumer1-0", 1: "group1_consumer2-0"}
    assert recorder.overlaps == 0


def test_a_listener_may_close_its_connector(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC, 2)
    closed = threading.Event()

    def work(call: int) -> None:
        if call == 2:
            connector.close()
            closed.set()

    recorder = Recorder(work)
    connector = listening(connect, recorder, rebalance_listener_timeout_ms=60_000)
    connector.create_message_streams({TOPIC: 1})
    connect(group_id=GROUP, consumer_id="consumer2", **QUICK).create_message_streams({TOPIC: 1})
    assert closed.wait(30)
    both = dict.fromkeys((0, 1), "group1_consumer2-0")
    wait_until(lambda: world.owners(GROUP, TOPIC) == both, "everything was given back")
    assert len(recorder.calls) == 3


def test_a_close_waits_for_the_listener_that_is_being_called(
    world: FakeEnvironment, connect: MakeConnector, caplog: pytest.LogCaptureFixture
) -> None:
    world.create_topic(TOPIC, 2)
    world.cluster.append(TOPIC, 1, [b"a", b"b"])
    is_called, let_go = threading.Event(), threading.Event()

    def work(call: int) -> None:
        if call == 2:
            is_called.set()
            let_go.wait(10)
            connector.commit_offsets()

    recorder = Recorder(work)
    connector = listening(connect, recorder, auto_commit_enable=False)
    [stream] = connector.create_message_streams({TOPIC: 1})[TOPIC]
    take(stream, 2)
    stream.iterator().acknowledge()
    neighbour = connect(group_id=GROUP, consumer_id="consumer2", **QUICK)
    joining = run_in_thread(lambda: neighbour.create_message_streams({TOPIC: 1}))
    assert is_called.wait(30)
    closing = run_in_thread(connector.close)
    wait_until(lambda: connector._member.membership.state_machine.is_leaving, "the close has begun")
    assert world.owners(GROUP, TOPIC)[1] == "group1_consumer1-0"
    let_go.set()
    closing()
    joining()
    assert world.offsets(GROUP, TOPIC)[1] == 2, "what the listener commits while the close waits is accepted"
    assert not [record for record in caplog.records if record.getMessage().startswith("close-incomplete")]


def test_a_listener_that_never_returns_does_not_stop_a_close_and_is_not_called_again(
    world: FakeEnvironment, connect: MakeConnector, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world.create_topic(TOPIC)
    let_go = threading.Event()
    errors: list[Exception] = []

    def work(_: int) -> None:
        let_go.wait(60)
        try:
            connector.commit_offsets()
        except ConnectorClosed as error:
            errors.append(error)

    recorder = Recorder(work)
    connector = listening(connect, recorder, rebalance_listener_timeout_ms=20)
    connector.create_message_streams({TOPIC: 1})
    connector.close()
    assert [record.getMessage() for record in caplog.records if "listener-not-returned" in record.getMessage()]
    let_go.set()
    wait_until(lambda: not our_threads(), "its thread ends when it returns")
    assert recorder.calls == [{}]
    assert len(errors) == 1, "it is told at once that it comes too late"


def test_what_was_held_when_the_session_expired_is_named_in_no_call(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    """The original clears its registry first, so its first call of the new session names nothing either."""
    world.create_topic(TOPIC, 2)
    recorder = Recorder()
    connector = listening(connect, recorder)
    connector.create_message_streams({TOPIC: 1})
    recorder.calls.clear()
    world.zookeeper.expire(world.store_of(connector))
    wait_until(lambda: len(recorder.calls) == 2, "the new session begins like the first one")
    assert recorder.calls[0] == {}
    assert threads(recorder.calls[1][1]) == {0: "group1_consumer1-0", 1: "group1_consumer1-0"}


@pytest.mark.parametrize(("strategy", "topics"), [("range", {"mine"}), ("roundrobin", {"mine", "theirs"})])
def test_the_assignment_is_that_of_the_whole_group_or_under_range_of_own_topics(
    strategy: str, topics: set[str], world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic("mine", 2)
    world.create_topic("theirs", 2)
    settings = {"partition_assignment_strategy": strategy, "roundrobin_compatibility": "1.0"} | QUICK
    connect(group_id=GROUP, consumer_id="other", **settings).create_message_streams({"theirs": 1, "mine": 1})
    recorder = Recorder()
    listening(connect, recorder, **settings).create_message_streams({"mine": 1})
    told: Assignment = recorder.calls[1][1]
    assert set(told) == topics
    consumers = {thread.consumer_id for row in told.values() for thread in row.values()}
    assert consumers == {"group1_consumer1", "group1_other"}
    told["mine"].clear()
    assert recorder.calls[1][1]["mine"] == {}, "the maps are the listener's own"


# --- what is lost -----------------------------------------------------------------------------------------------


@dataclass
class LossRecorder(Recorder):
    """Also notified of what is lost; ``lose`` is what it does then."""

    lose: Callable[[dict[str, set[int]]], Any] = lambda _: None

    def on_partitions_lost(self, partitions: dict[str, set[int]]) -> None:
        self.calls.append(("lost", partitions))
        self.lose(partitions)


def test_what_was_held_when_the_session_expired_is_reported_as_lost_before_the_next_calls(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic(TOPIC, 2)
    refused: list[Exception] = []

    def lose(_: dict[str, set[int]]) -> None:
        try:
            connector.commit_offsets({TopicPartition(TOPIC, 0): 1}, retry_on_failure=False)
        except OffsetsNotCommitted as error:
            refused.append(error)

    recorder = LossRecorder(lose=lose)
    connector = listening(connect, recorder)
    connector.create_message_streams({TOPIC: 1})
    recorder.calls.clear()
    world.zookeeper.expire(world.store_of(connector))
    wait_until(lambda: len(recorder.calls) == 3, "the loss is reported, and the new share")
    assert recorder.calls[:2] == [("lost", {TOPIC: {0, 1}}), {}]
    assert threads(recorder.calls[2][1]) == {0: "group1_consumer1-0", 1: "group1_consumer1-0"}
    assert len(refused) == 1, "a commit of what is lost is refused"
    connector.close()
    assert len(recorder.calls) == 3, "a close reports no loss"


def test_a_partition_whose_owner_node_vanishes_is_reported_as_lost(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic(TOPIC, 2)
    recorder = LossRecorder()
    connector = listening(connect, recorder)
    connector.create_message_streams({TOPIC: 1})
    connect(group_id=GROUP, consumer_id="consumer2", **QUICK).create_message_streams({TOPIC: 1})
    wait_until(lambda: len(connector.assignment) == 1, "one each: the owners are watched")
    world.zookeeper.remove(paths.owner(GROUP, TopicPartition(TOPIC, 0)))
    loss = ("lost", {TOPIC: {0}})
    # The calls of the rebalance before may still be under way.
    wait_until(lambda: loss in recorder.calls[:-2], "the loss is reported, and that it is ours again")
    at = recorder.calls.index(loss)
    assert recorder.calls[at + 1] == {}
    assert threads(recorder.calls[at + 2][1])[0] == "group1_consumer1-0"


def test_what_is_lost_while_it_is_busy_is_reported_in_one_call(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC, 2)
    let_go = threading.Event()
    recorder = LossRecorder(lose=lambda _: let_go.wait(30))
    connector = listening(connect, recorder, rebalance_listener_timeout_ms=60_000)
    connector.create_message_streams({TOPIC: 1})
    recorder.calls.clear()
    calls = connector._member.membership.listener
    world.zookeeper.expire(world.store_of(connector))
    wait_until(lambda: recorder.calls, "the loss is reported")
    for number in (3, 4):
        calls.call_partitions_lost(do.CallPartitionsLost((TopicPartition("later", number),)))
    let_go.set()
    wait_until(lambda: len(recorder.calls) == 4, "the other calls come when it has returned")
    assert recorder.calls[0] == ("lost", {TOPIC: {0, 1}})
    assert ("lost", {"later": {3, 4}}) in recorder.calls


def test_an_error_in_the_call_about_a_loss_stops_nothing(
    world: FakeEnvironment, connect: MakeConnector, caplog: pytest.LogCaptureFixture
) -> None:
    world.create_topic(TOPIC, 2)

    def lose(_: dict[str, set[int]]) -> None:
        raise SystemExit("no")

    recorder = LossRecorder(lose=lose)
    connector = listening(connect, recorder)
    connector.create_message_streams({TOPIC: 1})
    world.zookeeper.expire(world.store_of(connector))
    wait_until(lambda: len(recorder.calls) == 5, "the rebalance goes on")
    [record] = [record for record in caplog.records if record.getMessage().startswith("listener-raised")]
    assert "call=on_partitions_lost" in record.getMessage()
    assert record.exc_info


def test_a_member_that_an_error_ends_has_lost_what_it_had(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC, 2)
    recorder = LossRecorder()
    connector = listening(connect, recorder)
    connector.create_message_streams({TOPIC: 1})
    recorder.calls.clear()
    connector._member.membership.thread_died("a-thread", ValueError("bad luck"))
    wait_until(lambda: recorder.calls == [("lost", {TOPIC: {0, 1}})], "the loss is reported")
    wait_until(lambda: world.owners(GROUP, TOPIC) == {}, "and others may have it")
    connector.close()
    assert len(recorder.calls) == 1


def test_the_loss_is_reported_also_when_the_program_closes_at_once(
    world: FakeEnvironment, connect: MakeConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a program does whose ``with`` block the error leaves."""
    monkeypatch.setattr(zookeeper_membership, "CLOSE_STEP_MS", DEADLINE_MS)
    world.create_topic(TOPIC, 2)
    recorder = LossRecorder()
    connector = listening(connect, recorder)
    connector.create_message_streams({TOPIC: 1})
    recorder.calls.clear()
    let_go = threading.Event()
    connector._member.membership.event_loop.call_soon(lambda: let_go.wait(DEADLINE_MS / 1000))
    connector._member.membership.thread_died("a-thread", ValueError("bad luck"))
    closing = run_in_thread(connector.close)
    wait_until(connector._closing.is_set, "the close has begun")
    let_go.wait(0.2)  # a close that does not wait for the control thread closes the listener now
    let_go.set()
    closing()
    assert recorder.calls == [("lost", {TOPIC: {0, 1}})]


@pytest.mark.parametrize("is_for_losses", [True, False])
def test_the_java_name_of_the_call_about_a_loss(
    is_for_losses: bool, world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic(TOPIC, 1)
    heard: list[Any] = []

    class Listener:
        def beforeReleasingPartitions(self, partitions: Any) -> None:
            heard.append("release")

        def beforeStartingFetchers(self, consumer: str, assignment: Any) -> None:
            heard.append("start")

    class LossListener(Listener):
        def onPartitionsLost(self, partitions: Any) -> None:
            heard.append(partitions)

    connector = connect(group_id=GROUP, consumer_id="consumer1", **QUICK)
    old = javaapi.ConsumerConnector(connector)
    old.setConsumerRebalanceListener(LossListener() if is_for_losses else Listener())
    old.createMessageStreams({TOPIC: 1})
    world.zookeeper.expire(world.store_of(connector))
    both = ["release", "start"]
    expected = [*both, {TOPIC: {0}}, *both] if is_for_losses else [*both, *both]
    wait_until(lambda: heard == expected, "the new session has its share")
