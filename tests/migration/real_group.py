"""One group of real members that moves on real servers by the real command, and what became of each of its records."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridge.migration.plan.plan_file import read_plan_file
from tests.lab import history_files
from tests.lab.coordinator_member import CoordinatorMember
from tests.lab.python_member import MIGRATING_PROGRAM, PythonMember
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.admin.kafka_offsets import KafkaOffsetAdmin
from zkconsumer.testing.sandbox import Sandbox, ScalaMember, wait_until
from zkconsumer.testing.sandbox.kraft_broker import KraftBroker
from zkconsumer.testing.sandbox.member_process import MemberProcess
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import Acl, GetAcl, Stat

PROGRAM = str(Path(sys.executable).parent / "zkconsumer")
COMMAND_TIMEOUT_S = 180
SETTLE_TIMEOUT_MS = 60_000

Record = tuple[str, int, int]
"""Topic, partition, offset."""

Nodes = dict[str, tuple[bytes, Stat, tuple[Acl, ...]]]
"""Path -> data, the whole stat, and the access list."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The deliveries of the records.

    ``across``: delivered by members of more than one stage.  ``again``: for each stage, how many were repeated within.
    """

    records: int
    missing: int
    across: int
    again: Mapping[str, int]

    def __str__(self) -> str:
        again = ", ".join(f"{count} again within {stage}" for stage, count in self.again.items() if count)
        return f"{self.records} records, {self.missing} missing, {self.across} twice across a cut" + (
            f", {again}" if again else ""
        )


class RealGroup:
    """One group with one topic, on a running sandbox.

    Members are started in stages, one after the other: Scala consumers, Java consumers, Scala consumers again.
    """

    def __init__(
        self, sandbox: Sandbox, group: str, topic: str, partitions: int, folder: Path, *, is_new_topic: bool = True
    ) -> None:
        self.sandbox = sandbox
        self.group = group
        self.topic = topic
        self.partitions = partitions
        self.folder = folder
        self.stages: dict[str, list[MemberProcess]] = {}
        if is_new_topic:
            sandbox.create_topic(topic, partitions)

    @property
    def where(self) -> tuple[str, ...]:
        """The options with the addresses of the cluster."""
        more = ("--bootstrap-server", self._bootstrap) if self._bootstrap else ()
        return ("--zookeeper", self.sandbox.zookeeper_connect, *more)

    @property
    def _bootstrap(self) -> str | None:
        """Brokers that are in no ZooKeeper must be named."""
        is_kraft = any(isinstance(broker, KraftBroker) for broker in self.sandbox.brokers)
        return self.sandbox.bootstrap if is_kraft else None

    # --- the command --------------------------------------------------------------------------------------------

    def migrate(self, *words: str | Path, expect: int | None = 0) -> subprocess.CompletedProcess[str]:
        """``zkconsumer migrate <words>`` to its end; ``expect``: its exit code, if that is not for the test to see."""
        done = subprocess.run(
            [PROGRAM, "migrate", *map(str, words), *self.where],
            capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False,
        )  # fmt: skip
        assert expect is None or done.returncode == expect, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    @property
    def kept(self) -> tuple[str, ...]:
        """The options that go on with the plan in ZooKeeper, confirmed by the digest of the plan in the file."""
        return ("--resume", self.group, "--plan-digest", read_plan_file(self.folder / f"{self.group}.plan").digest)

    @contextmanager
    def begun(self, *words: str | Path) -> Iterator[None]:
        """The command runs beside the ``with`` block, waits for members first, and must end with success."""
        program = [PROGRAM, "migrate", *map(str, words), *self.where]
        with subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            told: list[str] = []
            try:
                for line in process.stderr:
                    told.append(line)
                    if "waiting for" in line:
                        break
                yield
                told.append(process.communicate(timeout=COMMAND_TIMEOUT_S)[1])
            finally:
                process.kill()
            assert process.returncode == 0, "".join(told)

    def plan(self, *options: str) -> Path:
        """A plan that can be applied."""
        file = self.folder / f"{self.group}.plan"
        self.migrate("plan", self.group, "-f", file, *options)
        return file

    def status(self, *options: str, expect: int = 0) -> dict[str, Any]:
        """The output of ``migrate status``; it must end with the exit code ``expect``."""
        shown = self.migrate("status", self.group, "-o", "json", *options, expect=expect)
        found: dict[str, Any] = json.loads(shown.stdout)
        return found

    # --- members ------------------------------------------------------------------------------------------------

    def scala(self, stage: str, name: str, release: str, *, wait: bool = True, **more: Any) -> ScalaMember:
        """A Scala consumer, ``more`` as ``ScalaMember`` takes it; ``wait``: until its streams exist."""
        member = ScalaMember(
            release, self.sandbox.zookeeper, self.group, {self.topic: 1}, chroot=self.sandbox.chroot,
            name=f"{self.group}-{name}", consumer_id=name, **more,
        )  # fmt: skip
        self.sandbox.members.append(member)
        self.stages.setdefault(stage, []).append(member)
        member.start(wait=wait)
        return member

    def dual(self, stage: str, name: str, settings: Mapping[str, str] | None = None, **more: Any) -> PythonMember:
        """A member that can be moved, as a process."""
        member = PythonMember(
            self.sandbox.zookeeper, self.group, {self.topic: 1}, chroot=self.sandbox.chroot, program=MIGRATING_PROGRAM,
            name=f"{self.group}-{name}", consumer_id=name, history_name=name,
            settings={"bootstrap.servers": self.sandbox.bootstrap, **(settings or {})}, **more,
        )  # fmt: skip
        self.stages.setdefault(stage, []).append(member)
        member.start(wait=False)
        return member

    def modern(
        self, stage: str, name: str, client: str, settings: Mapping[str, str] | None = None
    ) -> CoordinatorMember:
        """A stock Java consumer or another client of coordinator groups."""
        member = CoordinatorMember(
            self.sandbox.run, client, self.sandbox.bootstrap, self.group, [self.topic],
            name=f"{self.group}-{name}", history_name=name, settings=settings,
        )  # fmt: skip
        self.stages.setdefault(stage, []).append(member)
        member.start(wait=False)
        return member

    def stop(self, stage: str, but: MemberProcess | None = None) -> None:
        """As an operator does: SIGTERM to one after the other, and each must end without SIGKILL."""
        for member in self.stages[stage]:
            if member is not but and member.is_running():
                assert member.stop(), f"{member.name} did not end; {member.process.log_end()}"

    def close(self) -> None:
        """End what still runs."""
        for members in self.stages.values():
            for member in members:
                member.close()

    # --- records ------------------------------------------------------------------------------------------------

    def load(self, per_second: int) -> None:
        """Records for all partitions, until ``halt``."""
        self.sandbox.producer.start_rate(self.topic, self.partitions, per_second)

    def halt(self) -> None:
        """End the load; every record is acknowledged."""
        self.sandbox.producer.stop_rate()

    def produce(self, count: int) -> None:
        """So many records at once, evenly."""
        for number in range(self.partitions):
            self.sandbox.produce(self.topic, number, count // self.partitions)

    def ends(self) -> dict[int, int]:
        """Partition -> the offset after its last record."""
        ends = history_files.log_end_offsets(self.sandbox.producer.acked, [self.topic])
        return {number: ends.get((self.topic, number), 0) for number in range(self.partitions)}

    def handed(self, stage: str) -> Counter[Record]:
        """Record -> how often the members of a stage were given it."""
        return Counter(message[:3] for member in self.stages.get(stage, ()) for message in member.delivered)

    def first_handed(self, stage: str) -> dict[int, int]:
        """Partition -> the lowest offset that a stage was given."""
        found: dict[int, int] = {}
        for _, partition, offset in self.handed(stage):
            found[partition] = min(offset, found.get(partition, offset))
        return found

    def wait_delivered(self, stage: str, count: int) -> None:
        """Until a stage was given so many records, some of every partition."""
        self._wait(
            lambda: self.handed(stage).total() >= count and len(self.first_handed(stage)) == self.partitions,
            f"{stage}: {count} records",
        )

    def wait_drained(self) -> None:
        """Wait until everything that was acknowledged was delivered."""

        def is_drained() -> bool:
            handed = sum(len(member.delivered) for members in self.stages.values() for member in members)
            return handed >= sum(self.ends().values()) and self.judge().missing == 0

        self._wait(is_drained, "every record is handed out")

    def _wait(self, check: Any, what: str) -> None:
        wait_until(check, what, SETTLE_TIMEOUT_MS, poll_ms=200)

    def judge(self) -> Judged:
        """Record by record, over all stages."""
        all_of = {(self.topic, number, offset) for number, end in self.ends().items() for offset in range(end)}
        by_stage = {stage: self.handed(stage) for stage in self.stages}
        stages_of = Counter(record for counts in by_stage.values() for record in counts)
        return Judged(
            len(all_of),
            len(all_of - set(stages_of)),
            sum(count > 1 for count in stages_of.values()),
            {stage: counts.total() - len(counts) for stage, counts in by_stage.items()},
        )

    def gap_s(self, before: str, after: str) -> float:
        """Seconds between the last record of one stage and the first of the next."""
        last = max(message.t_ms for member in self.stages[before] for message in member.delivered)
        return (min(message.t_ms for member in self.stages[after] for message in member.delivered) - last) / 1000

    # --- both stores --------------------------------------------------------------------------------------------

    @contextmanager
    def session(self) -> Iterator[AdminSession]:
        """Both stores, as tools reach them."""
        session = AdminSession.open(self.sandbox.zookeeper_connect, bootstrap_servers=self._bootstrap)
        try:
            yield session
        finally:
            session.close()

    def in_zookeeper(self) -> dict[int, int]:
        """Partition -> offset."""
        return self.sandbox.admin.offsets(self.group, self.topic)

    def owners(self) -> dict[int, str]:
        """Partition -> the thread that owns it."""
        return self.sandbox.admin.owners(self.group, self.topic)

    def in_kafka(self) -> dict[int, int]:
        """Partition -> offset."""
        with self.session() as session:
            return {
                tp.partition: one.offset for tp, one in KafkaOffsetAdmin(session, self.group).read_offsets().items()
            }

    def stores(self) -> tuple[Nodes, Mapping[TopicPartition, object]]:
        """Everything that both stores have of the group, to the last version and access list."""
        with self.session() as session:
            nodes = nodes_below(session, [paths.group_root(self.group), paths.control(self.group)])
            return nodes, KafkaOffsetAdmin(session, self.group).read_offsets()


def nodes_below(session: AdminSession, roots: Sequence[str]) -> Nodes:
    """These nodes, and all below them."""
    found: Nodes = {}
    left = [*roots]
    while left:
        path = left.pop()
        node = session.get(path)
        if node is None:
            continue
        [acl] = session.request([GetAcl(path)])
        assert isinstance(acl, tuple), acl
        found[path] = node.data, node.stat, acl
        listed = session.children(path)
        left += [f"{path}/{name}" for name in (listed.names if listed else ())]
    return found
