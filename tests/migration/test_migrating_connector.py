"""A member that is moved without a stop: whole, on a fake ZooKeeper and the embedded broker, moved by hand."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress

import pytest

from bridge import CoordinatorConsumerConfig
from bridge.client.coordinator_membership import CoordinatorMembership
from bridge.migration.dual.connector import committed_offset_reader
from bridge.migration.dual.connector.coordinator_side_lifecycle import CoordinatorSideLifecycle
from bridge.migration.dual.connector.migrating_connector import MigratingConsumerConnector
from bridge.migration.dual.connector.migration_assignor import migration_protocol_name
from bridge.migration.dual.machine.phase_rules import CommitOrder
from bridge.migration.offsets.provenance import parse_provenance
from bridge.testing.fake_environment import ADDRESS
from tests.broker.raw_client import RawClient
from tests.generate_docs import kafkas_keys
from tests.migration.migrating_connectors import BACK, EPOCHS, ID, TOPIC, Dual, Stream, dual, wait_until
from zkconsumer import ConsumerConfig, TopicPartition, Whitelist
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.threads import live_threads
from zkconsumer.config_def import SettingStatus
from zkconsumer.errors import (
    ConsumerTimeoutException,
    InvalidConfigException,
    MigrationError,
    OffsetsNotCommitted,
    TopicAuthorizationException,
    ZkNotAuthorized,
    ZkTimeoutException,
)
from zkconsumer.kafka.error_codes import TOPIC_AUTHORIZATION_FAILED
from zkconsumer.kafka.group.commands import Send
from zkconsumer.kafka.group.errors import GroupAuthorizationException
from zkconsumer.member.group_view import TopicSubscription
from zkconsumer.member.offset_committer import NOT_OWNER
from zkconsumer.member.offset_stores import CommitFailure
from zkconsumer.testing.fake_zookeeper import FakeZkStore, FakeZooKeeper
from zkconsumer.types import Hooks
from zkconsumer.wire.schemas import LEAVE_GROUP, OFFSET_FETCH
from zkconsumer.wire.schemas.leave_group import LeaveGroupRequest
from zkconsumer.zk import paths
from zkconsumer.zk.zk_security import NO_SECURITY
from zkconsumer.zk.znode_formats import ControlRecord, format_control

__all__ = ["dual"]

ALL = range(6)


def read(stream: Stream, count: int) -> list[tuple[int, int]]:
    """The next so many records."""
    found: list[tuple[int, int]] = []

    def enough() -> bool:
        try:
            while len(found) < count:
                message = next(stream.iterator())
                found.append((message.partition, message.offset))
        except ConsumerTimeoutException:
            pass
        return len(found) >= count

    wait_until(enough, lambda: f"{count} records, not {len(found)}")
    return found


def streams_of(member: MigratingConsumerConnector) -> Stream:
    [stream] = member.create_message_streams({TOPIC: 1})[TOPIC]
    return stream


def started(member: MigratingConsumerConnector) -> dict[TopicPartition, object]:
    """The fetched partitions: the same objects as long as no fetch was started again."""
    return dict(member._member.streams.partition_infos)


def test_one_member_migrates_and_returns_and_starts_each_fetch_once(dual: Dual) -> None:
    dual.fill(10)
    member = dual.member("a")
    stream = streams_of(member)
    assert len(read(stream, 60)) == 60
    infos = started(member)
    at = 10
    for phase in (*EPOCHS, *BACK):
        if phase == "completed":
            continue  # no rollback from it is possible
        said = dual.move(phase)
        is_joined = phase not in ("planned", "undone")
        assert (said["g_a"].generation > 0) is is_joined, said
        dual.broker.append(TOPIC, 0, [b"x"])
        assert read(stream, 1) == [(0, at)]
        at += 1
        member.commit_offsets()
        zookeeper, kafka = dual.in_zookeeper(), dual.in_kafka()
        match phase:
            case "planned" | "armed" | "ready":
                assert (zookeeper[0], kafka) == (at, {})
            case "locked" | "returned":
                assert zookeeper[0] == at
                wait_until(lambda: dual.in_kafka()[0][0] == at, "Kafka follows")  # noqa: B023 (waited for here)
                assert {n: offset for n, (offset, _) in dual.in_kafka().items()} == zookeeper
            case "copied":
                assert (zookeeper[0], kafka[0][0]) == (at, at)
            case "switched":
                assert kafka[0][0] == at
                wait_until(lambda: dual.in_zookeeper()[0] == at, "ZooKeeper is mirrored")  # noqa: B023
            case "returning":
                assert (zookeeper[0], kafka[0][0]) == (at, at)
            case "undone":
                assert (zookeeper[0], kafka[0][0]) == (at, at - 1)
        if phase in ("locked", "copied", "returned"):
            for offset, words in dual.in_kafka().values():
                written = parse_provenance(words)
                assert written is not None, (phase, offset, words)
                assert (written.migration_id, written.epoch) == (ID, said["g_a"].epoch)
        assert dual.owners() == ({} if phase == "switched" else dict.fromkeys(ALL, "g_a"))
    assert started(member) == infos, "nothing was started anew"
    assert member.member_phase == "alone"
    assert member.counters["offsets_mirrored"] == 1


def test_a_commit_during_the_switch_is_tried_again_at_once(dual: Dual, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka accepts it, and the owner node is deleted before the write to ZooKeeper: the next try uses the new
    order.
    """
    dual.fill(10)
    member = dual.member("a")
    stream = streams_of(member)
    read(stream, 60)
    for phase in ("planned", "armed", "ready", "locked", "copied"):
        dual.move(phase)
    side = member._member.membership.zookeeper
    waited: list[float] = []

    class Pause:
        def wait(self, seconds: float) -> bool:
            waited.append(seconds)
            time.sleep(seconds)  # the tries are counted in time, and the member may be joining at the coordinator
            return False

    def overtaken(offsets: Mapping[TopicPartition, int], _: int) -> dict[TopicPartition, CommitFailure]:
        dual.say("switched")
        wait_until(
            lambda: member._member.membership.machine.rules.commit_order is CommitOrder.KAFKA, "it goes by the switch"
        )
        return dict.fromkeys(offsets, NOT_OWNER)

    with monkeypatch.context() as patch:
        patch.setattr(side, "commit", overtaken)
        patch.setattr(member, "_closing", Pause())
        member.commit_offsets()
    assert set(waited) == {0.02}
    assert {number: offset for number, (offset, _) in dual.in_kafka().items()} == dict.fromkeys(range(6), 10)


def test_in_a_rollback_offsets_that_were_not_mirrored_are_requested_until_kafka_answers(
    dual: Dual, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No member commits it again, and the first answer is lost."""
    dual.fill(10)
    member = dual.member("a")
    stream = streams_of(member)
    read(stream, 60)
    for phase in ("planned", "armed", "ready", "locked", "copied", "switched"):
        dual.move(phase)
    membership = member._member.membership
    side = membership.coordinator
    assert side is not None
    monkeypatch.setattr(membership._mirror, "add", lambda _: None)
    member.commit_offsets()
    assert dual.in_zookeeper() != dict.fromkeys(ALL, 10)
    monkeypatch.setattr(committed_offset_reader, "RESPONSE_TIMEOUT_MS", 100)
    perform, lost = side._network.execute, list[object]()

    def lose(command: Send) -> None:
        if isinstance(command, Send) and command.api_key == OFFSET_FETCH.key and not lost:
            lost.append(command)
        else:
            perform(command)

    monkeypatch.setattr(side._network, "execute", lose)
    dual.move("returning")
    assert lost
    assert dual.in_zookeeper() == dict.fromkeys(ALL, 10)


def test_after_the_end_it_is_a_member_of_the_coordinators_group_alone(dual: Dual) -> None:
    dual.fill(3)
    member = dual.member("a")
    stream = streams_of(member)
    read(stream, 18)
    infos = started(member)
    for phase in EPOCHS:
        dual.move(phase)
    wait_until(lambda: member._member.membership.coordinator.machine.generation.protocol_name == "range", "by range")
    assert started(member) == infos
    dual.fill(2)
    assert len(read(stream, 12)) == 12
    member.commit_offsets()
    assert {offset for offset, _ in dual.in_kafka().values()} == {5}
    member.close()
    late = dual.member("b")
    dual.fill(1)
    assert sorted(read(streams_of(late), 6)) == [(n, 5) for n in ALL]
    assert late.member_phase == "completed"


class Reader:
    """A member that reads on a thread of its own, and commits now and then."""

    def __init__(self, dual: Dual, name: str, seen: list[tuple[str, int, int]], **how: object) -> None:
        self.name = name
        self.member = dual.member(name, **how)
        self.errors: list[BaseException] = []
        self._seen = seen
        self._leaves = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"test-{name}", daemon=True)

    def start(self) -> Reader:
        self.stream = streams_of(self.member)
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            self._read()
            if self._leaves:
                self.member.close()
        except BaseException as error:  # noqa: BLE001 (raised by ``stop``)
            self.errors.append(error)

    def _read(self) -> None:
        count = 0
        while not self._stop.is_set():
            try:
                message = next(self.stream.iterator())
            except ConsumerTimeoutException:
                continue
            self._seen.append((self.name, message.partition, message.offset))
            count += 1
            if count % 50 == 0:
                with suppress(OffsetsNotCommitted):  # of what moved to another member meanwhile
                    self.member.commit_offsets()

    def leave(self) -> None:
        """Stop, and close the connector on the thread that has a record of it in hand."""
        self._leaves = True
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self.errors:
            raise self.errors[0]


class Load:
    """Appends to all partitions until it is stopped."""

    def __init__(self, dual: Dual, each: int = 20) -> None:
        self.ends: dict[int, int] = {}
        self._each = each
        self._dual = dual
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="test-load", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            for number in range(self._dual.partitions):
                self.ends[number] = self._dual.broker.append(TOPIC, number, [b"%d" % n for n in range(self._each)])

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(10)


def check(seen: list[tuple[str, int, int]], ends: dict[int, int], *, once: bool) -> None:
    """No record is missing; and none comes twice."""
    count = Counter((number, offset) for _, number, offset in seen)
    missing = [(n, at) for n, end in ends.items() for at in range(end) if (n, at) not in count]
    twice = {one: [who for who, *what in seen if tuple(what) == one] for one, times in count.items() if times > 1}
    assert not missing, missing[:20]
    assert not (once and twice), list(twice.items())[:20]


def all_read(seen: list[tuple[str, int, int]], ends: dict[int, int]) -> Callable[[], bool]:
    return lambda: len({(number, offset) for _, number, offset in list(seen)}) >= sum(ends.values())


@pytest.mark.parametrize("auto", [True, False], ids=["commits by itself", "the program commits"])
def test_three_members_under_load_there_and_back(dual: Dual, auto: bool) -> None:
    """Without automatic commits what moves between members comes again from where the program had committed it."""
    seen: list[tuple[str, int, int]] = []
    settings = {"auto_commit_enable": auto, "auto_commit_interval_ms": 100}
    readers = [Reader(dual, name, seen, **settings).start() for name in "abc"]
    load = Load(dual)
    try:
        epoch = 0
        for _ in range(2):
            for phase in (*EPOCHS, *BACK):
                if phase != "completed":
                    dual.move(phase, epoch + (EPOCHS | BACK)[phase])
            epoch += 10
    finally:
        load.stop()
    wait_until(all_read(seen, load.ends), lambda: f"{len(seen)} of {sum(load.ends.values())}")
    for reader in readers:
        reader.stop()
    check(seen, load.ends, once=auto)


# --- members that end, and worlds that are away -----------------------------------------------------------------


@pytest.mark.parametrize("phase", ["armed", "locked", "copied", "switched", "returning", "returned"])
def test_the_others_get_the_partitions_of_a_member_killed_in_a_phase(dual: Dual, phase: str) -> None:
    """Its session ends in both worlds; what it had not committed comes again, and nothing is missing."""
    dual.fill(20)
    first, second = dual.member("a"), dual.member("b", {"session.timeout.ms": 1_000})
    a, b = streams_of(first), streams_of(second)
    wait_until(lambda: len(first.assignment) == len(second.assignment) == 3, "three each")
    for step in (*EPOCHS, *BACK):
        if step != "completed":
            dual.move(step)
        if step == phase:
            break
    had = {tp.partition for tp in second.assignment}
    seen = read(b, 10)
    dual.kill(second)
    wait_until(lambda: len(first.assignment) == 6, lambda: f"all of it, not {first.assignment}")
    seen += read(a, 120 - len({one for one in seen if one[0] not in had}))
    wait_until(lambda: set(seen) == {(n, at) for n in ALL for at in range(20)} or bool(seen.extend(read(a, 1))), "all")
    first.commit_offsets()
    stored = dual.in_kafka() if phase in ("switched", "returning") else dual.in_zookeeper()
    assert set(stored) == set(ALL)


def test_without_brokers_for_the_group_a_member_of_zookeeper_continues(dual: Dual) -> None:
    """No coordinator is found: the migration is not acknowledged, and nothing else happens."""
    dual.fill(5)
    member = dual.member("a")
    stream = streams_of(member)
    assert len(read(stream, 30)) == 30
    dual.broker.move_coordinator("g", None)
    control = dual.say("armed")
    wait_until(lambda: member.member_phase == "joined", "it is told")
    dual.fill(5)
    assert len(read(stream, 30)) == 30
    member.commit_offsets()
    assert dual.in_zookeeper() == dict.fromkeys(ALL, 10)
    assert not dual.acknowledged(control)
    dual.broker.move_coordinator("g", 0)
    wait_until(lambda: dual.acknowledged(control), "it has joined")
    assert dual.move("undoing", 3)["g_a"].generation == -1


def test_an_acknowledgement_comes_again_with_the_next_session(dual: Dual) -> None:
    member = dual.member("a")
    streams_of(member)
    for phase in ("planned", "armed", "ready", "locked", "copied", "switched"):
        control = dual.say(phase)
        wait_until(lambda: dual.acknowledged(control), phase)  # noqa: B023 (waited for here)
    infos = started(member)
    dual.zookeeper.expire(dual.stores["a"])
    wait_until(lambda: not dual.ids(), "the session is gone")
    wait_until(lambda: dual.acknowledged(control), "in the next session")
    assert started(member) == infos, "the coordinator's side holds: nothing was stopped"


def test_a_member_that_missed_the_end_of_a_migration_joins_with_the_protocol_of_the_next_one(dual: Dual) -> None:
    """It was paused during the rollback and the next plan.  With the old protocol it would keep the others out."""
    member = dual.member("a")
    streams_of(member)
    dual.move("armed")
    control = ControlRecord("m2", 7, "armed", "zookeeper", "dual")
    dual.say_bytes(format_control(control))

    def has_joined() -> bool:
        side = member._member.membership.coordinator
        return side is not None and side.machine.generation.protocol_name == migration_protocol_name("m2")

    wait_until(has_joined, "it offers the protocol of m1", timeout_ms=25_000)
    wait_until(lambda: [said for said in dual.acknowledged(control).values() if said.generation >= 0], "it says so")


def test_a_control_znode_of_a_later_release_ends_the_member(dual: Dual) -> None:
    member = dual.member("a")
    stream = streams_of(member)
    dual.say_bytes(format_control(ControlRecord(ID, 2, "polishing", "zookeeper", "dual")))
    with pytest.raises(MigrationError, match="run the release that moves the group"):
        while True:
            with suppress(ConsumerTimeoutException):
                next(stream.iterator())
    with pytest.raises(MigrationError):
        member.commit_offsets()


def test_a_copy_migration_ends_a_migrating_member_once_kafka_has_the_authority(dual: Dual) -> None:
    dual.fill(1)
    member = dual.member("a")
    stream = streams_of(member)
    dual.say_bytes(format_control(ControlRecord(ID, 2, "copied", "zookeeper", "copy")))
    assert len(read(stream, 6)) == 6
    dual.say_bytes(format_control(ControlRecord(ID, 3, "switched", "kafka", "copy")))
    with pytest.raises(MigrationError, match="strategy copy"):
        while True:
            with suppress(ConsumerTimeoutException):
                next(stream.iterator())


@pytest.mark.parametrize("missing", ["bootstrap_servers", "offsets"])
def test_a_configuration_that_cannot_migrate_is_refused(missing: str) -> None:
    settings: dict[str, object] = {"group_id": "g", "zookeeper_connect": "nowhere:2181"}
    if missing == "offsets":
        settings |= {"bootstrap_servers": "nowhere:9092", "offsets_storage": "kafka"}
    with pytest.raises(InvalidConfigException, match=r"bootstrap\.servers must be set|offsets\.storage=kafka"):
        MigratingConsumerConnector(ConsumerConfig(**settings))


def test_a_refusal_of_kafka_does_not_end_the_member_before_the_switch(
    dual: Dual, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker rejects the group's session time-out: an operator must act, and reading continues."""
    dual.fill(2)
    member = dual.member("a", {"session.timeout.ms": 3_600_000, "max.poll.interval.ms": 3_600_000})
    stream = streams_of(member)
    dual.say("armed")
    wait_until(lambda: member.counters.get("coordinator_side_ended"), "the side has ended")
    assert len(read(stream, 12)) == 12
    member.commit_offsets()
    assert dual.in_zookeeper() == dict.fromkeys(ALL, 2)
    assert "session.timeout.ms" in caplog.text


class Listening:
    """A rebalance listener that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, object]] = []

    def before_releasing_partitions(self, ownership: object) -> None:
        self.calls.append(("releasing", ownership))

    def before_starting_fetchers(self, consumer: str, assignment: object) -> None:
        self.calls.append(("starting", assignment))


def test_the_listener_is_not_called_for_a_side_change_and_once_for_a_rebalance(dual: Dual) -> None:
    member = dual.member("a")
    heard = Listening()
    member.set_consumer_rebalance_listener(heard)
    streams_of(member)
    for phase in ("planned", "armed", "ready"):
        dual.move(phase)
    before = len(heard.calls)
    for phase in ("locked", "copied", "switched"):
        dual.move(phase)
    assert all(not what for what in (said for call, said in heard.calls[before:] if call == "releasing"))
    before = len(heard.calls)
    second = dual.member("b")
    streams_of(second)
    wait_until(lambda: len(second.assignment) == 3, "three each")
    released = [said for call, said in heard.calls[before:] if call == "releasing" and said]
    assert released == [{TOPIC: {tp.partition for tp in second.assignment}}]


class Told(Hooks):
    """Hooks that record their calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[object, ...]]] = []

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def assignment_complete(self, assignment: Mapping[TopicPartition, str]) -> None:
        self.calls.append(("assignment_complete", (assignment,)))

    def partitions_revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        self.calls.append(("partitions_revoked", partitions))

    def partitions_lost(self, partitions: tuple[TopicPartition, ...], why: str) -> None:
        self.calls.append(("partitions_lost", partitions))

    def member_failed(self, error: BaseException) -> None:
        self.calls.append(("member_failed", (error,)))


def drop_from_the_coordinators_group(dual: Dual, member: MigratingConsumerConnector) -> None:
    """Send LeaveGroup in its name; wait until it is in the group again."""
    side = member._member.membership.coordinator
    assert side is not None
    before = side.machine.generation
    with RawClient(dual.broker.addresses()[0]) as talk:
        talk.ask(LEAVE_GROUP, 2, LeaveGroupRequest(group_id="g", member_id=before.member_id))
    wait_until(
        lambda: (
            side.machine.generation.generation_id > before.generation_id and len(side.assignment_executor.running) == 6
        ),
        "it is in the group again",
    )


def test_the_active_side_reports_losses_to_the_listener(dual: Dual) -> None:
    lost: list[dict[str, set[int]]] = []

    class LossListener:
        def before_releasing_partitions(self, partitions: dict[str, set[int]]) -> None: ...

        def before_starting_fetchers(self, consumer_id: str, assignment: object) -> None: ...

        def on_partitions_lost(self, partitions: dict[str, set[int]]) -> None:
            lost.append(partitions)

    everything = {TOPIC: set(ALL)}
    member = dual.member("a")
    member.set_consumer_rebalance_listener(LossListener())
    streams_of(member)
    dual.zookeeper.expire(dual.stores["a"])
    wait_until(lambda: lost == [everything], "ZooKeeper's side has lost its session")
    wait_until(lambda: len(member.assignment) == 6, "it has its share again")
    lost.clear()
    for phase in ("planned", "armed", "ready"):
        dual.move(phase)
    drop_from_the_coordinators_group(dual, member)
    assert lost == [], "nothing is lost: ZooKeeper's side holds"
    for phase in ("locked", "copied", "switched"):
        dual.move(phase)
    drop_from_the_coordinators_group(dual, member)
    assert lost == [everything]


def test_hooks_and_health_are_those_of_the_active_side(dual: Dual) -> None:
    told = Told()
    member = dual.member("a", hooks=told)
    streams_of(member)
    for phase in ("planned", "armed", "ready", "locked", "copied", "switched"):
        dual.move(phase)
        assert healthy(member) == [], phase
    assert "partitions_revoked" not in told.names(), "the owner nodes went, and nothing that is read"
    for phase in BACK:
        dual.move(phase)
        assert healthy(member) == [], phase
    assert set(told.names()) == {"assignment_complete"}


def test_the_health_of_a_member_that_can_migrate_names_a_partition_whose_offset_cannot_be_read(dual: Dual) -> None:
    dual.zookeeper.ensure(paths.offset("g", TopicPartition(TOPIC, 1)), b"nonsense")
    member = dual.member("a", zookeeper_session_timeout_ms=1_000)
    streams_of(member)
    member._health_source.request_snapshot()
    [note] = member._health_source.health(5_000).notes
    assert f"{TopicPartition(TOPIC, 1)}: owned but not fetched: its stored offset cannot be read" in note


@pytest.mark.parametrize("has_moved", [True, False])
def test_listener_and_hooks_agree_about_what_an_error_ends(dual: Dual, has_moved: bool) -> None:
    """After the switch partitions are revoked, and the listener commits; ZooKeeper's session ends before that."""
    heard: list[tuple[str, dict[str, set[int]]]] = []

    class Committer:
        def before_releasing_partitions(self, partitions: dict[str, set[int]]) -> None:
            if partitions:
                heard.append(("revoked", partitions))
                member.commit_offsets()

        def before_starting_fetchers(self, consumer_id: str, assignment: object) -> None: ...

        def on_partitions_lost(self, partitions: dict[str, set[int]]) -> None:
            heard.append(("lost", partitions))

    dual.fill(10)
    told = Told()
    member = dual.member("a", hooks=told)
    member.set_consumer_rebalance_listener(Committer())
    stream = streams_of(member)
    for phase in ("planned", "armed", "ready", "locked", "copied", "switched") if has_moved else ():
        dual.move(phase)
    read(stream, 60)
    told.calls.clear()
    member._member.membership.thread_died("a-thread", ValueError("bad luck"))
    member.close()
    call = "revoked" if has_moved else "lost"
    assert heard == [(call, {TOPIC: set(ALL)})]
    assert told.names() == ["member_failed", f"partitions_{call}"]
    if has_moved:
        assert {number: offset for number, (offset, _) in dual.in_kafka().items()} == dict.fromkeys(ALL, 10)
    else:
        assert set(dual.in_zookeeper().values()) != {10}, "what was read comes again"


def healthy(member: MigratingConsumerConnector) -> list[str]:
    member._health_source.request_snapshot()
    return member._health_source.health(5_000).problems


def test_a_filter_with_two_streams_migrates_as_well(dual: Dual) -> None:
    dual.broker.create_topic("t2", 3)
    dual.fill(4)
    member = dual.member("a")
    streams = member.create_message_streams_by_filter(Whitelist("t.*"), 2)
    wait_until(lambda: len(member.assignment) == 9, "all of it")
    for phase in ("planned", "armed", "ready", "locked", "copied", "switched"):
        dual.move(phase)
    infos, threads = started(member), member.assignment
    assert len(set(threads.values())) == 2
    for n in range(3):
        dual.broker.append("t2", n, [b"x"])
    found: list[tuple[str, int, int]] = []

    def everything() -> bool:
        for stream in streams:
            with suppress(ConsumerTimeoutException):
                while True:
                    message = next(stream.iterator())
                    found.append((message.topic, message.partition, message.offset))
        return len(found) >= 27

    wait_until(everything, lambda: f"27 records, not {len(found)}")
    assert len(set(found)) == len(found) == 27
    dual.broker.create_topic("t3", 1)
    dual.broker.append("t3", 0, [b"new"])
    wait_until(lambda: TopicPartition("t3", 0) in member.assignment, "a topic that came meanwhile")
    assert started(member).items() >= infos.items()


def ends_with(stream: Stream, kind: type[Exception]) -> None:
    """The stream raises this, sooner or later."""
    with pytest.raises(kind):
        while True:
            with suppress(ConsumerTimeoutException):
                next(stream.iterator())


def test_the_active_side_ends_the_streams_with_its_error(dual: Dual) -> None:
    told = Told()
    member = dual.member("a", hooks=told)
    stream = streams_of(member)
    for phase in ("planned", "armed", "ready", "locked", "copied", "switched"):
        dual.move(phase)
    side = member._member.membership.coordinator
    assert side is not None
    side.fail(GroupAuthorizationException("READ on the group is taken away"))
    ends_with(stream, GroupAuthorizationException)
    wait_until(lambda: not dual.ids(), "ZooKeeper's session is ended for the sake of the others")
    wait_until(lambda: told.names().count("member_failed") == 1, "it is told, once")


def test_the_active_side_decides_about_a_refused_topic_of_a_filter(
    dual: Dual, caplog: pytest.LogCaptureFixture
) -> None:
    """ZooKeeper's filters may match topics that this user may not read; a member must read what a coordinator
    assigns.
    """
    member = dual.member("a")
    [stream] = member.create_message_streams_by_filter(Whitelist(TOPIC))
    refused = {TOPIC: TOPIC_AUTHORIZATION_FAILED}
    member._member.membership.topics_rejected(refused)
    assert "topic-ignored" in caplog.text
    assert member._member.membership.failure is None
    for phase in ("planned", "armed", "ready", "locked", "copied", "switched"):
        dual.move(phase)
    member._member.membership.topics_rejected(refused)
    ends_with(stream, TopicAuthorizationException)


def test_a_member_that_cannot_follow_the_control_znode_ends_and_after_completed_continues(dual: Dual) -> None:
    first, second = dual.member("a"), dual.member("b")
    a, b = streams_of(first), streams_of(second)
    for phase in EPOCHS:
        if phase == "completed":
            first._member.membership.zookeeper.fail(ZkNotAuthorized("somebody took the rights away"))
            ends_with(a, ZkNotAuthorized)
            wait_until(lambda: len(second.assignment) == 6, "the other one has it all")
        dual.move(phase)
    second._member.membership.zookeeper.fail(ZkNotAuthorized("and here"))
    dual.fill(2)
    assert len(read(b, 12)) == 12
    second.commit_offsets()
    assert {offset for offset, _ in dual.in_kafka().values()} == {2}


def test_members_join_and_leave_in_every_phase(dual: Dual) -> None:
    """No record is missing, and no next owner begins before its predecessor's position: no commit was lost.

    Records that a leaving member could not commit are delivered again.
    """
    seen: list[tuple[str, int, int]] = []
    settings = {"auto_commit_enable": True, "auto_commit_interval_ms": 50}
    names = iter(f"m{number}" for number in range(100))
    readers = [Reader(dual, next(names), seen, **settings).start() for _ in range(3)]
    load = Load(dual, 5)
    try:
        for phase in (*EPOCHS, *BACK):
            if phase != "completed":
                dual.move(phase)
                readers.append(Reader(dual, next(names), seen, **settings).start())
                readers.pop(0).leave()
    finally:
        load.stop()
    wait_until(all_read(seen, load.ends), lambda: f"{len(seen)} of {sum(load.ends.values())}")
    for reader in readers:
        reader.stop()
    check(seen, load.ends, once=False)
    for number in ALL:
        turns = [(who, offset) for who, partition, offset in seen if partition == number]
        starts = [turn for last, turn in zip([("", -1), *turns], turns, strict=False) if last[0] != turn[0]]
        assert starts == sorted(starts, key=lambda turn: turn[1]), (number, starts)


@pytest.mark.nightly
def test_eight_members_under_load_ten_times_there_and_back(dual: Dual) -> None:
    seen: list[tuple[str, int, int]] = []
    settings = {"auto_commit_enable": True, "auto_commit_interval_ms": 100}
    readers = [Reader(dual, name, seen, **settings).start() for name in "abcdefgh"]
    load = Load(dual, 8)
    try:
        for epoch in range(0, 100, 10):
            for phase in (*EPOCHS, *BACK):
                if phase != "completed":
                    dual.move(phase, epoch + (EPOCHS | BACK)[phase])
    finally:
        load.stop()
    wait_until(all_read(seen, load.ends), lambda: f"{len(seen)} of {sum(load.ends.values())}")
    for reader in readers:
        reader.stop()
    check(seen, load.ends, once=True)


class _Unreachable(FakeZkStore):
    """A ZooKeeper that does not answer."""

    def start(self, timeout_ms: int) -> None:
        raise ZkTimeoutException("nobody answers")


def test_without_zookeeper_it_is_not_created_and_nothing_runs_on() -> None:
    before = live_threads()
    zookeeper = FakeZooKeeper(delivery="thread")
    config = ConsumerConfig(group_id="g", zookeeper_connect=ADDRESS, bootstrap_servers="nowhere.invalid:9092")
    with pytest.raises(ZkTimeoutException):
        MigratingConsumerConnector(config, store=lambda _, ms: _Unreachable(zookeeper, "", ms, NO_SECURITY.login))
    zookeeper.stop()
    assert live_threads() == before


def test_a_member_without_streams_is_in_neither_group(dual: Dual) -> None:
    dual.say("armed")
    member = dual.member("a")
    member.close()
    assert (dual.ids(), dual.in_kafka()) == ([], {})


# --- the file of a Java consumer, and max.poll.interval.ms ----------------------------------------------------------


def test_a_migrating_member_accepts_the_file_of_a_coordinator_member(
    dual: Dual, caplog: pytest.LogCaptureFixture
) -> None:
    keys = kafkas_keys()
    named = {
        key: value for key, value in keys.items()
        if CoordinatorConsumerConfig.outcome_of(key, value).status is SettingStatus.IGNORED
    }  # fmt: skip
    taken = ("group.instance.id", "max.poll.interval.ms", "client.rack", "enable.auto.commit")
    file = {**named, **{key: keys[key] for key in taken}, "session.timeout.ms": "10000"}
    member = dual.member("a", file=file)
    lines = [line for record in caplog.records if (line := record.getMessage()).startswith("setting-ignored ")]
    assert sorted(line.split()[1] for line in lines) == sorted(f"key={key}" for key in named)
    assert not [line for line in lines if "zookeeper" in line.lower()]
    group = member.group_config
    assert (group.group_instance_id, group.max_poll_interval_ms, group.client_rack) == ("billing-1", 200_000, "rack-a")
    assert (group.enable_auto_commit, group.session_timeout_ms) == (False, 10_000)


def test_settings_that_zookeepers_group_does_not_have_are_refused(dual: Dual) -> None:
    with pytest.raises(InvalidConfigException, match="a ZooKeeper group has only range and roundrobin"):
        dual.member("a", file={"partition.assignment.strategy": "cooperative-sticky"})
    with pytest.raises(InvalidConfigException, match=r"session\.timeout\.ms \(9000 and 10000\)"):
        dual.member("a", file={"session.timeout.ms": "9000"})


def test_a_stuck_program_counts_from_when_the_coordinators_side_is_active(dual: Dual) -> None:
    dual.fill(10)
    limit = {"max.poll.interval.ms": 1_000}
    a, b = dual.member("a", limit), dual.member("b")
    stuck, other = streams_of(a), streams_of(b)
    wait_until(lambda: len(a.assignment) == len(b.assignment) == 3, "three each")
    read(stuck, 1)
    over_ms = SYSTEM_CLOCK.now_ms() + 2_000

    def asks(until: Callable[[], bool]) -> Callable[[], bool]:
        def look() -> bool:
            with suppress(ConsumerTimeoutException):
                next(other.iterator())
            return until()

        return look

    dual.move("armed")
    wait_until(asks(lambda: SYSTEM_CLOCK.now_ms() > over_ms), "twice the limit")
    assert a.counters.get("poll_timeout_expired", 0) == 0, "ZooKeeper sets no limit"
    assert a.generation > 0
    for phase in ("ready", "locked", "copied"):
        dual.move(phase)
    dual.say("switched")
    wait_until(asks(lambda: len(b.assignment) == 6), "the other member has everything")
    assert a.counters["poll_timeout_expired"] == 1
    assert a.assignment == {}

    def is_back() -> bool:
        with suppress(ConsumerTimeoutException):
            next(stuck.iterator())
        return len(a.assignment) == len(b.assignment) == 3

    wait_until(asks(is_back), "it is back")


def test_a_coordinator_side_that_is_being_opened_when_the_program_closes_leaves_its_group(
    dual: Dual, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the coordinator keeps its member until the session timeout, and each rebalance waits for it."""
    opening, goes_on, left = threading.Event(), threading.Event(), list[str]()
    really_open, really_leave = CoordinatorSideLifecycle._open, CoordinatorMembership.leave

    def slow_open(lifecycle: CoordinatorSideLifecycle, subscription: TopicSubscription) -> None:
        opening.set()
        assert goes_on.wait(10)
        really_open(lifecycle, subscription)

    def leave(membership: CoordinatorMembership) -> bool:
        left.append(membership.id)
        return really_leave(membership)

    monkeypatch.setattr(CoordinatorSideLifecycle, "_open", slow_open)
    monkeypatch.setattr(CoordinatorMembership, "leave", leave)
    member = dual.member("a")
    streams_of(member)
    dual.say("armed")
    assert opening.wait(10)
    closes = threading.Thread(target=member.close)
    closes.start()
    wait_until(lambda: member._member.membership._coordinator_side_lifecycle.is_closing, "the close has begun")
    time.sleep(0.1)
    goes_on.set()
    closes.join(20)
    assert left == [member.consumer_id]
