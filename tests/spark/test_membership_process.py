"""The membership process on a real ZooKeeper, beside a real Scala member: its assignment, and how fast it changes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from bridge.spark.group_membership import BatchEnd, ClaimedRange, CommitMode, GroupOffset, LeasedPartition, RangeToClaim
from bridge.spark.group_pipeline import GroupPipeline
from bridge.spark.membership.process_client import MembershipProcessClient
from bridge.spark.membership.process_settings import MembershipProcessSettings
from tests.sandbox_fixtures import require_zookeeper
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.errors import ChrootMissing, PipelineAlreadyRunning, UnavailableError, UsageError, ZkTimeoutException
from zkconsumer.member.group_view import STATIC_SUBSCRIPTION
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.testing.sandbox.member_process import ScalaMember
from zkconsumer.testing.sandbox.zookeeper_admin import ZooKeeperAdmin
from zkconsumer.types import TopicPartition

pytestmark = pytest.mark.real

WAIT_MS = 15_000
LOOK_S = 0.002
SESSION_MS = 4_000
PARTITIONS = 4
CHROOT = "/membership"

PARENT = """
import json, os, sys, threading
from bridge.spark.membership.process_client import MembershipProcessClient
from bridge.spark.membership.process_settings import MembershipProcessSettings
client = MembershipProcessClient(MembershipProcessSettings.from_json(json.loads(sys.stdin.readline())))
held = client.begin_batch({}, 15000)
sibling = os.fork()
if sibling == 0:
    threading.Event().wait(60)
    os._exit(0)
print(json.dumps([len(held.partitions), client.process_pid, sibling]), flush=True)
threading.Event().wait(60)
"""
"""A query's process that has a fork of itself, which holds the pipe open as well."""


def until_true(holds: Callable[[], object], what: str, timeout_ms: int = WAIT_MS) -> int:
    """Look until it holds; gives back when, in ms."""
    pause = threading.Event()
    deadline_ms = SYSTEM_CLOCK.now_ms() + timeout_ms
    while not holds():
        assert SYSTEM_CLOCK.now_ms() < deadline_ms, f"not within {timeout_ms} ms: {what}"
        pause.wait(LOOK_S)
    return SYSTEM_CLOCK.now_ms()


class Place:
    """A group of its own on a ZooKeeper; the brokers that it names do not run, for nobody reads here."""

    def __init__(self, sandbox: Sandbox, group: str) -> None:
        self.group = group
        self.zookeeper = sandbox.zookeeper
        self.admin: ZooKeeperAdmin = self.zookeeper.admin(CHROOT)
        self.clients: list[MembershipProcessClient] = []
        self.members: list[ScalaMember] = []

    def settings(self, mode: CommitMode = CommitMode.AFTER_BATCH, **properties: str) -> MembershipProcessSettings:
        given = {
            "group.id": self.group,
            "zookeeper.connect": self.zookeeper.connect_string(CHROOT),
            "zookeeper.session.timeout.ms": str(SESSION_MS),
        }
        return MembershipProcessSettings(
            given | properties, STATIC_SUBSCRIPTION, ("t",), f"{self.group}_a-spark", mode=mode
        )

    def client(self, mode: CommitMode = CommitMode.AFTER_BATCH) -> MembershipProcessClient:
        self.clients.append(MembershipProcessClient(self.settings(mode)))
        return self.clients[-1]

    def scala(self) -> ScalaMember:
        """Registers after ours in the order of ids, so that the second half of the partitions is its share."""
        member = ScalaMember(
            "1.1.1", self.zookeeper, self.group, {"t": 1}, chroot=CHROOT, name=f"scala-{self.group}", consumer_id="b"
        )
        self.members.append(member)
        return member

    def owners(self) -> dict[int, str]:
        return self.admin.owners(self.group, "t")

    def ours(self) -> set[int]:
        return {number for number, owner in self.owners().items() if owner.startswith(f"{self.group}_a-spark")}

    def offsets(self) -> dict[int, int]:
        return self.admin.offsets(self.group, "t")

    def registered(self) -> list[str]:
        return self.admin.members(self.group)

    def close(self) -> None:
        for client in self.clients:
            client.close()
        for member in self.members:
            member.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Sandbox]:
    """A ZooKeeper for this file alone: it is stopped and started again."""
    require_zookeeper()
    with Sandbox() as sandbox:
        admin = sandbox.start_zookeeper().admin()
        for path in ("/brokers/ids", "/brokers/topics", "/consumers"):
            admin.ensure_path(f"{CHROOT}{path}")
        broker: dict[str, Any] = {"version": 1, "host": "127.0.0.1", "port": 1, "jmx_port": -1, "timestamp": "0"}
        admin.put(f"{CHROOT}/brokers/ids/1", json.dumps(broker).encode())
        topic = {"version": 1, "partitions": {str(number): [1] for number in range(PARTITIONS)}}
        admin.put(f"{CHROOT}/brokers/topics/t", json.dumps(topic).encode())
        yield sandbox


@pytest.fixture
def place(server: Sandbox, names: tuple[str, str]) -> Iterator[Place]:
    made = Place(server, names[0])
    yield made
    made.close()


def tp(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def told(text: str) -> None:
    print(f"\n    {text}", end="", flush=True)


def test_in_claim_mode_an_original_member_gets_its_share_in_milliseconds_and_it_comes_back(place: Place) -> None:
    client = place.client(CommitMode.CLAIM)
    held = client.begin_batch({}, WAIT_MS).partitions
    assert len(held) == PARTITIONS
    ranges = {one: RangeToClaim(0, 5, owned.epoch) for one, owned in held.items()}
    assert client.claim("q", 0, ranges) == dict.fromkeys(held, ClaimedRange(0, 5))
    scala = place.scala()
    scala.start(wait=False)
    registered_ms = until_true(lambda: len(place.registered()) == 2, "the original member registers", 60_000)
    released_ms = until_true(lambda: place.ours() == {0, 1}, "its share is free")
    told(f"claim: given back {released_ms - registered_ms} ms after the original member had registered")
    assert released_ms - registered_ms < 1_500, "nothing was waited for"
    until_true(lambda: len(place.owners()) == PARTITIONS, "the original member has its share")
    assert place.offsets() == dict.fromkeys(range(PARTITIONS), 5), "where the batch ends, before it was read"
    assert client.begin_batch({}, WAIT_MS).partitions.keys() == {tp(0), tp(1)}
    scala.stop()
    until_true(lambda: len(place.ours()) == PARTITIONS, "everything comes back")
    again = client.begin_batch({}, WAIT_MS)
    assert again.is_complete
    assert again.rebalances == 2
    assert again.partitions[tp(0)] == LeasedPartition(held[tp(0)].epoch, 5), (
        "the same ownership, where the claim put it"
    )
    assert again.partitions[tp(3)].epoch != held[tp(3)].epoch


def test_after_a_batch_what_an_original_member_waits_for_is_given_back_with_its_commit(place: Place) -> None:
    client = place.client()
    held = client.begin_batch({}, WAIT_MS).partitions
    client.batch_planned(held)
    scala = place.scala()
    scala.start(wait=False)
    until_true(lambda: len(place.registered()) == 2, "the original member registers", 60_000)
    until_true(lambda: client.metrics()["draining_partitions"] == 2, "its share is asked for")
    assert len(place.ours()) == PARTITIONS, "the batch is not over"
    began_ms = SYSTEM_CLOCK.now_ms()
    left = client.begin_batch({one: BatchEnd(owned.epoch, 9) for one, owned in held.items()}, 0)
    assert left.partitions.keys() == {tp(0), tp(1)}, "what leaves is in no plan"

    def is_given_back() -> bool:
        ours, offsets = place.ours(), place.offsets()
        assert all(offsets.get(number) == 9 for number in set(range(PARTITIONS)) - ours), "the commit comes with it"
        return ours == {0, 1}

    released_ms = until_true(is_given_back, "its share is free")
    told(f"afterBatch: given back {released_ms - began_ms} ms after the batch had ended")
    until_true(lambda: len(place.owners()) == PARTITIONS, "the original member has its share")
    assert place.offsets() == dict.fromkeys(range(PARTITIONS), 9)
    assert client.metrics().get("drain_timeouts", 0) == 0


def test_a_query_that_is_gone_holds_nothing_though_a_fork_of_it_lives(place: Place) -> None:
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdin is not None, "it is a pipe"
        assert parent.stdout is not None, "it is a pipe"
        parent.stdin.write(json.dumps(place.settings().to_json()) + "\n")
        parent.stdin.flush()
        count, process, sibling = json.loads(parent.stdout.readline())
        try:
            assert count == len(place.ours()) == PARTITIONS
            arguments = Path(f"/proc/{process}/cmdline").read_text() if Path("/proc").exists() else ""
            assert place.group not in arguments, "nothing of the settings stands where others read it"
            killed_ms = SYSTEM_CLOCK.now_ms()
            parent.kill()
            gone_ms = until_true(lambda: not place.owners() and not place.registered(), "nobody is left")
            told(f"SIGKILL of the query: its nodes were gone after {gone_ms - killed_ms} ms")
            assert gone_ms - killed_ms < SESSION_MS // 2, "no session had to expire"
        finally:
            os.kill(sibling, signal.SIGKILL)


def test_the_end_of_the_pipe_is_the_end_of_the_membership(place: Place) -> None:
    client = place.client()
    assert len(client.begin_batch({}, WAIT_MS).partitions) == PARTITIONS
    assert client._process is not None
    client._process._in.close()
    closed_ms = SYSTEM_CLOCK.now_ms()
    gone_ms = until_true(lambda: not place.owners() and not place.registered(), "nobody is left")
    told(f"end of the pipe: its nodes were gone after {gone_ms - closed_ms} ms")
    client._process.end()
    client._process = None


def test_what_a_membership_process_holds_is_served_as_text(place: Place) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    client = MembershipProcessClient(replace(place.settings(), metrics_listen=listen))
    place.clients.append(client)
    client.begin_batch({}, WAIT_MS)
    with urlopen(f"http://{listen}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    labels = f'{{group="{place.group}",member="{place.group}_a-spark"}}'
    assert f"zkconsumer_spark_owned_partitions{labels} {PARTITIONS}\n" in text
    assert f"zkconsumer_spark_assignment_complete{labels} 1\n" in text


def test_a_membership_process_that_was_killed_is_started_again_and_waits_for_its_old_session(place: Place) -> None:
    client = place.client(CommitMode.CLAIM)
    held = client.begin_batch({}, WAIT_MS).partitions
    assert client.claim("q", 0, {tp(0): RangeToClaim(0, 5, held[tp(0)].epoch)}) == {tp(0): ClaimedRange(0, 5)}
    first = client.process_pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    killed_ms = SYSTEM_CLOCK.now_ms()
    assert client.claim("q", 0, {tp(0): RangeToClaim(0, 5, held[tp(0)].epoch)}) == {tp(0): ClaimedRange(0, 5)}, (
        "a replay"
    )
    again = client.begin_batch({}, WAIT_MS)
    told(f"SIGKILL of the membership process: everything is held again after {SYSTEM_CLOCK.now_ms() - killed_ms} ms")
    assert client.process_pid != first
    assert again.is_complete
    assert again.partitions.keys() == held.keys()
    assert not {owned.epoch for owned in again.partitions.values()} & {owned.epoch for owned in held.values()}
    assert client.group_offsets([tp(0), tp(1)], "q") == {tp(0): GroupOffset(5, 5), tp(1): GroupOffset(-1, None)}


def test_a_second_pipeline_is_refused_until_the_session_of_a_killed_one_ends_and_a_restart_at_no_time(
    place: Place,
) -> None:
    def pipeline(query: str, consumer: str) -> MembershipProcessClient:
        settings = place.settings(CommitMode.CLAIM, **{"zookeeper.session.timeout.ms": "10000"})
        about = GroupPipeline(query, f"of {query}", f"/{query}", "h1", 1, 1_416_246_370_000)
        settings = replace(settings, consumer_id=f"{place.group}_{consumer}", pipeline=about)
        place.clients.append(MembershipProcessClient(settings))
        return place.clients[-1]

    first = pipeline("q-1", "a")
    first.start()
    refused = f"another pipeline reads group {place.group}: of q-1 with the checkpoint /q-1"
    with pytest.raises(PipelineAlreadyRunning, match=refused):
        pipeline("q-2", "b").start()
    until_true(lambda: place.registered() == [f"{place.group}_a"], "the first one has registered")
    assert first.process_pid is not None
    os.kill(first.process_pid, signal.SIGKILL)
    with pytest.raises(PipelineAlreadyRunning, match=refused):
        pipeline("q-2", "b").start()
    restart = pipeline("q-1", "c")
    restart.start()
    assert len(restart.begin_batch({}, 30_000).partitions) == PARTITIONS
    with pytest.raises(PipelineAlreadyRunning, match=refused):
        pipeline("q-2", "b").start()
    restart.close()
    other = pipeline("q-2", "b")
    assert len(other.begin_batch({}, 30_000).partitions) == PARTITIONS


def test_of_two_pipelines_that_start_at_the_same_moment_exactly_one_goes_on(place: Place) -> None:
    settings = place.settings(CommitMode.CLAIM)
    made = []
    for query in ("q-1", "q-2"):
        about = GroupPipeline(query, query, f"/{query}", "h1", 1, 0)
        made.append(MembershipProcessClient(replace(settings, consumer_id=f"{place.group}_{query}", pipeline=about)))
    place.clients += made
    answers: list[str] = []

    def start(client: MembershipProcessClient) -> None:
        try:
            client.start()
            answers.append("goes on")
        except PipelineAlreadyRunning:
            answers.append("refused")

    threads = [threading.Thread(target=start, args=(client,), daemon=True) for client in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(answers) == ["goes on", "refused"]
    until_true(place.registered, "the one that goes on has registered: start() does not wait for it")
    assert len(place.registered()) == 1


def test_a_pipeline_that_was_stopped_for_longer_than_its_session_leaves_the_group_to_its_successor(
    place: Place,
) -> None:
    def pipeline(query: str) -> MembershipProcessClient:
        about = GroupPipeline(query, f"of {query}", f"/{query}", "h1", 1, 0)
        settings = replace(place.settings(CommitMode.CLAIM), consumer_id=f"{place.group}_{query}", pipeline=about)
        place.clients.append(MembershipProcessClient(settings))
        return place.clients[-1]

    first, second = pipeline("q-1"), pipeline("q-2")
    held = first.begin_batch({}, WAIT_MS).partitions
    first.batch_planned(held)
    assert first.process_pid is not None
    os.kill(first.process_pid, signal.SIGSTOP)
    try:
        until_true(lambda: not place.owners(), "its session has expired", 30_000)
        assert len(second.begin_batch({}, 30_000).partitions) == PARTITIONS
    finally:
        os.kill(first.process_pid, signal.SIGCONT)
    ranges = {one: RangeToClaim(0, 5, owned.epoch) for one, owned in held.items()}
    with pytest.raises(PipelineAlreadyRunning, match="of q-2 with the checkpoint /q-2"):
        first.claim("0" * 32, 0, ranges)
    with pytest.raises(PipelineAlreadyRunning, match="of q-2"):
        first.begin_batch({}, 0)
    until_true(lambda: place.registered() == [f"{place.group}_q-2"], "it has left")
    assert len(second.begin_batch({}, 30_000).partitions) == PARTITIONS
    assert place.offsets() == {}


@pytest.mark.nightly
def test_a_scala_member_joins_and_leaves_beside_a_registered_pipeline(place: Place) -> None:
    about = GroupPipeline("q-1", "clicks", "/cp", "h1", 1, 0)
    client = MembershipProcessClient(replace(place.settings(CommitMode.CLAIM), pipeline=about))
    place.clients.append(client)
    assert len(client.begin_batch({}, WAIT_MS).partitions) == PARTITIONS
    scala = place.scala()
    scala.start(wait=False)
    until_true(lambda: len(place.ours()) == 2 and len(place.owners()) == PARTITIONS, "it has its share", 60_000)
    assert scala.stop()
    until_true(lambda: len(place.ours()) == PARTITIONS, "they are back")


def test_a_session_that_expired_gives_other_epochs(place: Place) -> None:
    client = place.client()
    held = client.begin_batch({}, WAIT_MS).partitions
    process = client.process_pid
    assert process is not None
    os.kill(process, signal.SIGSTOP)
    until_true(lambda: not place.registered(), "the session expires")
    os.kill(process, signal.SIGCONT)
    ended = {one: BatchEnd(owned.epoch, 9) for one, owned in held.items()}
    again = client.begin_batch(ended, WAIT_MS)
    assert client.process_pid == process
    assert again.is_complete
    assert again.partitions.keys() == held.keys()
    assert not {owned.epoch for owned in again.partitions.values()} & {owned.epoch for owned in held.values()}
    assert place.offsets() == {}, "an end of another ownership is not written"
    assert client.metrics()["spark_sessions_lost"] == 1


def test_zookeeper_may_be_started_again(place: Place, server: Sandbox) -> None:
    client = place.client()
    held = client.begin_batch({}, WAIT_MS).partitions
    place.zookeeper.stop()
    place.zookeeper.start()
    ended = {one: BatchEnd(owned.epoch, 9) for one, owned in held.items()}
    again = client.begin_batch(ended, WAIT_MS)
    assert again.is_complete
    assert again.partitions.keys() == held.keys()
    place.admin = place.zookeeper.admin(CHROOT)
    assert place.offsets() in (dict.fromkeys(range(PARTITIONS), 9), {}), "written if the session has survived"


def test_a_membership_process_that_does_not_answer_is_killed_and_another_one_does(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.spark.membership.process_client.CALL_MS", 300)
    monkeypatch.setattr("bridge.spark.membership.process_client.GRACE_MS", 200)
    client = place.client()
    client.start()
    first = client.process_pid
    assert first is not None
    os.kill(first, signal.SIGSTOP)
    with pytest.raises(UnavailableError, match="did not answer within its deadline and was killed"):
        client.brokers()
    monkeypatch.undo()
    client.brokers()
    assert client.process_pid != first


def test_what_stands_in_the_way_is_the_same_error_as_of_a_connector(place: Place) -> None:
    away = {"zookeeper.connect": "127.0.0.1:1", "zookeeper.connection.timeout.ms": "400"}
    with pytest.raises(ZkTimeoutException, match=r"no session with ZooKeeper at 127\.0\.0\.1:1 within 400 ms"):
        MembershipProcessClient(place.settings(**away)).start()
    nowhere = place.zookeeper.connect_string("/nowhere")
    with pytest.raises(ChrootMissing, match="/nowhere"):
        MembershipProcessClient(place.settings(**{"zookeeper.connect": nowhere})).start()
    with pytest.raises(UsageError, match="topic 'tt' does not exist"):
        MembershipProcessClient(replace(place.settings(), topics=("tt",))).start()
    assert place.registered() == []


def test_a_membership_process_that_cannot_live_is_not_started_for_ever(place: Place) -> None:
    client = place.client()
    client.start()
    for _ in range(3):
        assert client.process_pid is not None
        os.kill(client.process_pid, signal.SIGKILL)
        client.brokers()
    assert client.process_pid is not None
    os.kill(client.process_pid, signal.SIGKILL)
    with pytest.raises(UnavailableError, match="ended 4 times within 10 minutes"):
        client.brokers()
