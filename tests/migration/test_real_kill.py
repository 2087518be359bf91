"""``migrate apply`` and ``rollback`` are killed on real servers, after each step or at any write, and repeated."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.migration.real_group import PROGRAM, nodes_below
from tests.sandbox_fixtures import Clusters
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.admin.kafka_offsets import KafkaOffsetAdmin
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.zk import paths

pytestmark = [pytest.mark.real]

AT_ONCE = 24
"""Processes side by side: each waits for the session of the one that was killed, and works little."""

STORED = {0: 10, 1: 20}
"""What ZooKeeper has; partition 2 has no offset, and begins at its earliest record."""
EXPECTED = {0: 10, 1: 20, 2: 0}
COMMITTED = EXPECTED | {0: 33}
"""The offsets of the coordinator group, after it has continued to read."""
DECISIONS = ("--offset-convention", "next", "--missing", "earliest")
RECORDS = 50
PATIENCE_S = 150


class KilledMoves:
    """Groups of one topic, each of which is moved by processes that are killed.  ``way``: apply or rollback."""

    def __init__(self, sandbox: Sandbox, topic: str, folder: Path, way: str) -> None:
        self.sandbox = sandbox
        self.topic = topic
        self.folder = folder
        self.way = way
        sandbox.create_topic(topic, len(EXPECTED))
        for number in EXPECTED:
            sandbox.produce(topic, number, RECORDS)

    def prepare(self, group: str) -> None:
        """A group as Scala consumers left it, and its plan; for ``rollback`` it has migrated, and has continued to
        read.
        """
        admin = self.sandbox.admin
        for kind in ("ids", "owners", f"owners/{self.topic}"):
            admin.ensure_path(f"/consumers/{group}/{kind}")
        for number, offset in STORED.items():
            admin.put(f"/consumers/{group}/offsets/{self.topic}/{number}", b"%d" % offset)
        assert self.run("plan", group, "-f", str(self.plan(group)), *DECISIONS).returncode == 0
        if self.way == "rollback":
            assert self.run("apply", str(self.plan(group)), "--execute").returncode == 0
            consumer = Consumer({"bootstrap.servers": self.sandbox.bootstrap, "group.id": group})
            consumer.commit(offsets=[TopicPartition(self.topic, 0, COMMITTED[0])], asynchronous=False)
            consumer.close()

    def plan(self, group: str) -> Path:
        return self.folder / f"{group}.plan"

    def run(self, *words: str, killed: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-m", "tests.migration.killed_program", *killed] if killed else [PROGRAM]
        return subprocess.run(
            [*program, "migrate", *words, "--zookeeper", self.sandbox.zookeeper_connect],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip

    def go(self, group: str, *killed: str) -> subprocess.CompletedProcess[str]:
        """The command that is to be killed, and given again."""
        whose = str(self.plan(group)) if self.way == "apply" else group
        return self.run(self.way, whose, "--execute", "-o", "json", killed=killed)

    def end(self, group: str) -> tuple[object, ...]:
        """What both stores have, with the group's name and migration left out."""
        with AdminSession.open(self.sandbox.zookeeper_connect) as session:
            nodes = nodes_below(session, [paths.group_root(group)])
            status = json.loads(self.run("status", group, "-o", "json").stdout)
            kafka = KafkaOffsetAdmin(session, group).read_offsets()
        in_kafka = {tp.partition: one.offset for tp, one in kafka.items()}
        in_zookeeper = self.sandbox.admin.offsets(group, self.topic)
        if self.way == "apply":
            assert (status["phase"], status["authority"], in_kafka) == ("switched", "kafka", EXPECTED), status
        else:
            assert (status["phase"], status["authority"], in_zookeeper) == ("undone", "zookeeper", COMMITTED), status
        migration = status["migration_id"]
        shown = {
            path.replace(group, "G"): (
                data.replace(migration.encode(), b"M"),
                sorted((acl.perms, acl.scheme, acl.id if acl.scheme == "world" else "") for acl in lists),
            )
            for path, (data, _, lists) in nodes.items()
        }
        metadata = {tp.partition: one.metadata.replace(migration, "M") for tp, one in kafka.items()}
        return sorted(shown.items()), metadata, status["epoch"]

    def kill_and_go_on(self, group: str, whole: object, *killed: str) -> bool:
        """Whether it was killed at all; either way it ends as the one that was not."""
        self.prepare(group)
        first = self.go(group, *killed)
        if first.returncode != -9:
            assert first.returncode == 0, first.stderr
            return False
        again = self.go(group)
        assert again.returncode == 0, f"{killed}: {again.stderr}"
        assert self.end(group) == whole, killed
        return True


def side_by_side(works: Sequence[Callable[[], bool]]) -> list[bool]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda work: work(), works))


@pytest.mark.timeout(280)
@pytest.mark.parametrize("way", ["apply", pytest.param("rollback", marks=pytest.mark.nightly)])
def test_after_a_kill_at_every_step_the_same_command_continues(
    way: str, clusters: Clusters, names: tuple[str, str], tmp_path: Path
) -> None:
    group, topic = names
    moves = KilledMoves(clusters.get("3.9.1"), topic, tmp_path, way)
    moves.prepare(f"{group}-whole")
    steps = json.loads(moves.go(f"{group}-whole").stdout)["steps"]
    assert "join the placeholder member" in steps
    assert ("control znode: switched" if way == "apply" else "control znode: returned") in steps
    whole = moves.end(f"{group}-whole")
    works = [partial(moves.kill_and_go_on, f"{group}-{at}", whole, "step", str(at)) for at in range(1, len(steps) + 1)]
    assert all(side_by_side(works)), "each was killed"


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("how", ["before", "behind"])
@pytest.mark.parametrize("way", ["apply", "rollback"])
@pytest.mark.parametrize("servers", [("3.9.1", "3.8"), ("1.1.1", "3.4.6")], ids="-zookeeper-".join)
def test_after_a_kill_at_every_write_the_same_command_continues(
    servers: tuple[str, str], way: str, how: str, clusters: Clusters, names: tuple[str, str], tmp_path: Path
) -> None:
    group, topic = names
    moves = KilledMoves(clusters.get(*servers), topic, tmp_path, way)
    moves.prepare(f"{group}-whole")
    done = moves.go(f"{group}-whole", how, "0")
    writes = int(done.stderr.rsplit("writes ", 1)[1])
    assert writes > 15, done.stderr
    whole = moves.end(f"{group}-whole")
    works = [partial(moves.kill_and_go_on, f"{group}-{at}", whole, how, str(at)) for at in range(1, writes + 1)]
    assert all(side_by_side(works)), "each was killed"
    print(f"\n{'-'.join(servers)}, {way} killed {how} each of {writes} writes")
