"""``migrate apply`` and ``rollback`` of a dual migration, stopped before each step on real servers.

The process continues (SIGCONT) when its session with ZooKeeper has ended and another operator has rolled back.  The
members read all the time: no record may be missing, and none may be read twice, since no member is killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.migration.real_group import RealGroup
from tests.migration.test_real_dual import QUICK, STAGE
from tests.migration.test_real_pause import PAUSE_S, is_stopped
from tests.sandbox_fixtures import Clusters, require_releases
from zkconsumer.testing.sandbox import Sandbox, wait_until

pytestmark = [pytest.mark.real, pytest.mark.nightly, pytest.mark.timeout(1800)]

PARTITIONS = 4
PER_SECOND = 20
MEMBERS = 2
AT_ONCE = 10
"""Groups side by side: each waits for a session that ends most of the time."""
PATIENCE_S = 150
SETTINGS = QUICK | {"session.timeout.ms": "30000"}
"""Brokers of 0.9 allow no longer session."""
DECISIONS = ("--strategy", "dual", "--existing", "keep-source", "--offset-convention", "next")
MOVED = {"apply": "control znode: switched", "rollback": "control znode: returned"}


class PausedFlips:
    """Groups that read one topic; each is moved by a process that is stopped for a while."""

    def __init__(self, sandbox: Sandbox, topic: str, folder: Path, way: str) -> None:
        self.sandbox = sandbox
        self.topic = topic
        self.folder = folder
        self.way = way
        self.lock = threading.Lock()
        sandbox.create_topic(topic, PARTITIONS)
        sandbox.producer.start_rate(topic, PARTITIONS, PER_SECOND)

    def start(self, name: str) -> RealGroup:
        """A group whose members read and commit; for ``rollback`` it has moved."""
        group = RealGroup(self.sandbox, name, self.topic, PARTITIONS, self.folder, is_new_topic=False)
        for number in range(MEMBERS):
            group.dual(STAGE, f"m{number}", SETTINGS)
        wait_until(lambda: len(set(group.owners().values())) == MEMBERS, "each member owns something", 120_000)
        wait_until(lambda: len(group.in_zookeeper()) == PARTITIONS, "everything is committed", 120_000)
        group.plan(*DECISIONS)
        if self.way == "rollback":
            group.migrate("apply", self.plan(group), "--execute")
        return group

    def plan(self, group: RealGroup) -> Path:
        return self.folder / f"{group.group}.plan"

    def words(self, group: RealGroup) -> list[str]:
        """The command that is stopped."""
        what = str(self.plan(group)) if self.way == "apply" else group.group
        return [self.way, what, "--execute"]

    def steps(self, name: str) -> list[str]:
        """What the command does when it is not stopped."""
        group = self.start(name)
        try:
            done = group.migrate(*self.words(group), "-o", "json")
            self.judge(group, "not stopped")
            return [str(step) for step in json.loads(done.stdout)["steps"]]
        finally:
            group.close()

    def stop_and_go_on(self, name: str, at: int) -> bool:
        """Whether it was stopped before step ``at``."""
        group = self.start(name)
        log = self.folder / f"{name}.log"
        program = [sys.executable, "-m", "tests.migration.killed_program", "stop", str(at), "migrate"]
        try:
            with log.open("w") as file:
                process = subprocess.Popen([*program, *self.words(group), *group.where], stdout=file, stderr=file)
                try:
                    wait_until(
                        lambda: process.poll() is not None or is_stopped(process.pid), "it stops", PATIENCE_S * 1000
                    )
                    if process.poll() is not None:
                        return False
                    time.sleep(PAUSE_S)
                    group.migrate("rollback", group.group, "--execute", expect=None)
                    os.kill(process.pid, signal.SIGCONT)
                    process.wait(PATIENCE_S)
                finally:
                    process.kill()
                    process.wait()
            said = log.read_text()
            assert "Traceback" not in said, said
            group.migrate("rollback", group.group, "--execute")
            status = group.status()
            assert (status["phase"], status["authority"]) == ("undone", "zookeeper"), said
            self.judge(group, f"step {at}: {said}")
            return True
        finally:
            group.close()

    def judge(self, group: RealGroup, words: str) -> None:
        """Every record so far is read once; later records are not checked."""
        ends = self.ends(group)
        expected = {(self.topic, number, offset) for number, end in ends.items() for offset in range(end)}
        wait_until(lambda: expected <= set(group.handed(STAGE)), f"every record is read; {words}", 120_000, poll_ms=500)
        again = Counter({record: times - 1 for record, times in group.handed(STAGE).items() if times > 1})
        assert again.total() == 0, f"{again.total()} records were read twice, as {next(iter(again))}; {words}"

    def ends(self, group: RealGroup) -> dict[int, int]:
        with self.lock:  # it reads the producer's output
            return group.ends()


def failed_requests(sandbox: Sandbox) -> int:
    """How often a network thread of the broker failed.  In 0.9 it does on ApiVersions, and loses requests of others."""
    log = sandbox.run.root / sandbox.brokers[0].name / "log.txt"
    return log.read_text().count("Processor got uncaught exception")


@pytest.mark.parametrize("way", ["apply", "rollback"])
@pytest.mark.parametrize("broker", ["0.9.0.1", "3.9.1"])
def test_stopped_before_every_step_and_continued_when_the_group_was_taken_back(
    broker: str, way: str, clusters: Clusters, names: tuple[str, str], tmp_path: Path
) -> None:
    require_releases(broker)
    name, topic = names
    sandbox = clusters.get(broker)
    failures = failed_requests(sandbox)
    flips = PausedFlips(sandbox, topic, tmp_path, way)
    try:
        steps = flips.steps(f"{name}-whole")
        assert MOVED[way] in steps
        works = [partial(flips.stop_and_go_on, f"{name}-{at}", at) for at in range(1, len(steps) + 1)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            assert all(pool.map(lambda work: work(), works)), "each was stopped"
    finally:
        sandbox.producer.stop_rate()
    assert failed_requests(sandbox) == failures, "no client sent a request that harms other clients of the broker"
    print(f"\n{broker}: {way} of dual stopped before each of {len(steps)} steps")
