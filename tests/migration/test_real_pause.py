"""``migrate apply``, ``rollback`` and ``complete`` on real servers: each is stopped (SIGSTOP) before each of its steps.

It continues (SIGCONT) when the session of the run with ZooKeeper and that of its placeholder member with the
coordinator have ended.  Meanwhile another operator rolls back, or a client of the coordinator group commits.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.migration.test_real_kill import COMMITTED, DECISIONS, EXPECTED, STORED, KilledMoves, side_by_side
from tests.sandbox_fixtures import require_releases
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.admin.kafka_offsets import KafkaOffsetAdmin
from zkconsumer.testing.sandbox import Sandbox, wait_until

pytestmark = [pytest.mark.real, pytest.mark.nightly, pytest.mark.timeout(900)]

PLACEHOLDER_MS = 30_000
"""``group.max.session.timeout.ms``, as brokers of 0.9 have it; the run's ZooKeeper session is 10 s then."""
PAUSE_S = PLACEHOLDER_MS / 1_000 + 15
"""The coordinator looks at sessions by timers, and the machine may be busy."""
BY_CLIENT = 40
CLIENTS = {"0.9.0.1": {"api.version.request": "false", "broker.version.fallback": "0.9.0.1"}}


@pytest.fixture(scope="module", params=[("0.9.0.1", "3.4.6"), ("3.9.1", "3.8")], ids="-zookeeper-".join)
def servers(request: pytest.FixtureRequest) -> Iterator[tuple[Sandbox, str]]:
    broker, zookeeper = request.param
    require_releases(broker)
    with Sandbox() as sandbox:
        sandbox.start_zookeeper(zookeeper)
        sandbox.start_broker(broker, chroot="/kafka", settings={"group.max.session.timeout.ms": str(PLACEHOLDER_MS)})
        yield sandbox, broker


class PausedMoves(KilledMoves):
    """Groups of one topic, each of which is moved by a process that is stopped for a while."""

    def __init__(self, servers: tuple[Sandbox, str], topic: str, folder: Path, way: str) -> None:
        super().__init__(servers[0], topic, folder, way)
        self.client = CLIENTS.get(servers[1], {})

    def commit(self, group: str, offset: int) -> bool:
        """As a client of the coordinator's group that is no member; whether the broker took it."""
        consumer = Consumer({"bootstrap.servers": self.sandbox.bootstrap, "group.id": group, **self.client})
        try:
            [done] = consumer.commit(offsets=[TopicPartition(self.topic, 0, offset)], asynchronous=False) or [None]
        except KafkaException:
            return False
        finally:
            consumer.close()
        return done is not None and done.error is None

    def prepare(self, group: str) -> None:
        admin = self.sandbox.admin
        for kind in ("ids", "owners", f"owners/{self.topic}"):
            admin.ensure_path(f"/consumers/{group}/{kind}")
        for number, offset in STORED.items():
            admin.put(f"/consumers/{group}/offsets/{self.topic}/{number}", b"%d" % offset)
        made = self.run("plan", group, "-f", str(self.plan(group)), *DECISIONS)
        assert made.returncode == 0, made.stderr
        if self.way != "apply":
            moved = self.run("apply", str(self.plan(group)), "--execute")
            assert moved.returncode == 0, moved.stderr
            assert self.commit(group, COMMITTED[0])

    def words(self, group: str) -> list[str]:
        """The command that is stopped."""
        if self.way == "apply":
            return ["apply", str(self.plan(group)), "--execute"]
        if self.way == "rollback":
            return ["rollback", group, "--execute"]
        archive = str(self.folder / f"{group}.znodes")
        return ["complete", group, "--execute", "--remove-fences", "--confirm", group, "--archive", archive]

    def steps(self, group: str) -> list[str]:
        """What the command does when it is not stopped."""
        self.prepare(group)
        done = self.run(*self.words(group), "-o", "json")
        assert done.returncode == 0, done.stderr
        return [str(step) for step in json.loads(done.stdout)["steps"]]

    def status(self, group: str) -> tuple[str, str]:
        told = json.loads(self.run("status", group, "-o", "json").stdout)
        return str(told["phase"]), str(told["authority"])

    def kafka(self, group: str) -> dict[int, int]:
        with AdminSession.open(self.sandbox.zookeeper_connect) as session:
            return {tp.partition: one.offset for tp, one in KafkaOffsetAdmin(session, group).read_offsets().items()}

    def stop_and_go_on(self, group: str, at: int) -> bool:
        """Whether it was stopped.  However it ends, no offset is lost, and ``rollback`` leads to the end."""
        self.prepare(group)
        words = ["migrate", *self.words(group), "--zookeeper", self.sandbox.zookeeper_connect]
        with (self.folder / f"{group}.log").open("w") as log:
            program = [sys.executable, "-m", "tests.migration.killed_program", "stop", str(at)]
            process = subprocess.Popen([*program, *words], stdout=log, stderr=log)
            try:
                wait_until(lambda: process.poll() is not None or is_stopped(process.pid), "it stops, or ends", 150_000)
                if process.poll() is not None:
                    return False
                time.sleep(PAUSE_S)
                due = self.meanwhile(group)
                os.kill(process.pid, signal.SIGCONT)
                process.wait(150)
            finally:
                process.kill()
                process.wait()
        told = (self.folder / f"{group}.log").read_text()
        assert "Traceback" not in told, told
        self.judge(group, due, f"step {at}: {told}")
        return True

    def owners(self, group: str) -> list[str]:
        """The owner nodes and fences."""
        return self.sandbox.admin.children(f"/consumers/{group}/owners/{self.topic}")

    def meanwhile(self, group: str) -> int:
        """What others do; the offset that counts for partition 0 after that."""
        if self.way != "rollback":
            self.run("rollback", group, "--execute")
            return STORED[0] if self.way == "apply" else COMMITTED[0]
        authority = self.status(group)[1]
        taken = self.commit(group, BY_CLIENT)
        return BY_CLIENT if taken and authority == "kafka" else COMMITTED[0]

    def judge(self, group: str, due: int, words: str) -> None:
        phase, authority = self.status(group)
        if self.way == "apply" and phase == "switched":
            assert self.kafka(group) == EXPECTED, words
        if phase == "completed":
            assert (self.way, authority, self.kafka(group)) == ("complete", "kafka", COMMITTED), words
            # The rest of a run that was refused half-way.
            again = self.run(*self.words(group))
            assert again.returncode == 0, f"{words}\n{again.stderr}"
            assert self.owners(group) == [], words
            return
        again = self.run("rollback", group, "--execute", "--timeout", "120")
        assert again.returncode == 0, f"{words}\n{again.stderr}"
        assert (*self.status(group), self.owners(group)) == ("undone", "zookeeper", []), words
        found = self.sandbox.admin.offsets(group, self.topic)
        if self.way == "apply":
            # A rollback after the switch writes the migration's decision for partition 2, too.
            assert found in (STORED, EXPECTED), (found, words)
        else:
            # A commit after the authority has moved back may be copied: its time is unknown.
            assert found in (COMMITTED | {0: due}, COMMITTED | {0: BY_CLIENT}), (found, due, words)


def is_stopped(pid: int) -> bool:
    """By SIGSTOP."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.parametrize("way", ["apply", "rollback", "complete"])
def test_stopped_before_every_step_and_continued_when_others_have_acted(
    way: str, servers: tuple[Sandbox, str], names: tuple[str, str], tmp_path: Path
) -> None:
    group, topic = names
    moves = PausedMoves(servers, topic, tmp_path, way)
    steps = moves.steps(f"{group}-whole")
    assert {"apply": "confirm switched", "rollback": "confirm returned", "complete": "control znode: completed"}[
        way
    ] in steps
    works = [partial(moves.stop_and_go_on, f"{group}-{at}", at) for at in range(1, len(steps) + 1)]
    assert all(side_by_side(works)), "each was stopped"
    print(f"\n{servers[1]}: {way} stopped before each of {len(steps)} steps")
