"""Measures the copy of a group's offsets from ZooKeeper to Kafka: time and memory to read, commit and compare.

    python bench/migrate.py --partitions 10000 100000 --rounds 3 [--zookeeper 3.8 3.4.6] [--before PATH] [--write]
    python bench/migrate.py --invariant [--partitions 10000] [--rounds 5] [--in-memory]
    python bench/migrate.py --in-memory

It uses a real ZooKeeper (3.8; 3.4.6 cannot read many nodes at once) and a real broker, fetched by Maven.  The broker is
1.1.1: it accepts commits for partitions that a topic does not have, so 100,000 partitions need no 100,000 logs.  Each
round is a separate process that does the steps of ``copy`` and reports its times and its peak of resident memory.  The
epoch grows from round to round, so every round writes everything.

*Read*: read every offset znode with its version, and the offsets in Kafka, as for a plan.  *Commit*: the placeholder
member joins, Kafka's values are compared with their provenance, and all offsets are committed in batches.  *Read back*:
read both stores and compare the values.  Not in that sum: *check of rights*, the step that checks the permissions for a
migration without the fence of ACLs; it reads the ACL of every offset znode (one packet for each node, because ZooKeeper
cannot read many ACLs in one packet).  *Lists changed and put back*: that fence and its removal, two more packets for
each node.  The start of the process and the creation of the znodes do not count.  The table also has the CPU time of
the process and the number of its requests.

``--before``: the rounds of another checkout of this project alternate with those of this one, on the same servers; the
last table has the ratios.  Each checkout executes its own ``bench/migrate.py``.

``--invariant``: instead, each round is a whole ``migrate apply`` of the strategy ``copy``; the check of the invariant
between the steps is on and off in turn.  Each round migrates a group of its own.  The partitions exist on the broker,
and one broker can have 10,000.

``--in-memory``: ZooKeeper in memory in the measured process, and a development broker, to try the program without Java;
the times include the fake's part, and the memory is meaningless.

``--write`` writes the page to migration_docs/reference/migrate-speed.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gates import Gate
from migrate_apply import ClockWithoutPauses, measure_apply
from migrate_round import A_TOPIC, CHECK, FENCE, PARTS, Door, fill, measure, topics_of

from bridge.testing.fake_environment import ADDRESS
from zkconsumer.admin.admin_session import AdminDependencies, AdminSession
from zkconsumer.admin.coordinator_lookups import OFFSETS_TOPIC
from zkconsumer.base.gc_tuning import infrequent_gc
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.testing.fake_zookeeper import FakeZooKeeper
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.zk import paths

PAGE = Path(__file__).resolve().parent.parent / "migration_docs" / "reference" / "migrate-speed.md"
BROKER = "1.1.1"
ZOOKEEPERS = ("3.8", "3.4.6")
IN_MEMORY = "in memory"
BEFORE = "before"
SECONDS: dict[tuple[int, str], tuple[float, float | None]] = {
    (10_000, "3.8"): (1.0, 0.2),
    (100_000, "3.8"): (5.0, 1.5),
    (100_000, "3.4.6"): (15.0, None),
}
"""Partitions and ZooKeeper release -> the gate and the goal for the sum of the three parts, in seconds."""
CHECK_S_MAX = {100_000: 5.0}
"""Partitions -> the gate for the check of rights, on either ZooKeeper."""
RSS_MB_MAX = 300
INVARIANT_RATIO_MAX = 1.03
"""The gate for a whole ``migrate apply`` with the check of the invariant, divided by one without it."""
WITH, WITHOUT = "with-invariant", "without-invariant"
TREE = Path(__file__).resolve().parent.parent

OURS = f"""
import sys
from bridge.testing import EmbeddedBroker
with EmbeddedBroker(release="{BROKER}") as broker:
    for number in range(int(sys.argv[1])):
        broker.create_topic(f"topic-{{number:04}}", {A_TOPIC})
    print(broker.bootstrap, flush=True)
    sys.stdin.read()
"""


def child(arguments: argparse.Namespace) -> None:
    """The measured process, as ``zkconsumer migrate`` runs."""
    with infrequent_gc():
        run_round(arguments, Door())


def measured(
    session: AdminSession, clock: ClockWithoutPauses, arguments: argparse.Namespace, door: Door
) -> dict[str, dict[str, float]]:
    """The figures of one round."""
    if arguments.apply is None:
        return measure(session, arguments.epoch, door)
    group, partitions = f"apply-{arguments.epoch}", arguments.partitions[0]
    return {arguments.apply: measure_apply(session, clock, group, partitions, with_invariant=arguments.apply == WITH)}


def run_round(arguments: argparse.Namespace, door: Door) -> None:
    """Run one round, and print its figures as JSON."""
    clock = ClockWithoutPauses()
    if arguments.child == "in-memory":
        zookeeper = FakeZooKeeper(delivery="thread")
        host, _, port = arguments.where.rpartition(":")
        zookeeper.ensure(paths.broker(0), json.dumps({"host": host, "port": int(port), "version": 1}).encode())
        zookeeper.ensure(paths.topic(OFFSETS_TOPIC), b'{"version":1,"partitions":{"0":[0]}}')
        for topic in topics_of(arguments.partitions[0]):
            replicas = {str(partition): [0] for partition in range(A_TOPIC)}
            zookeeper.ensure(paths.topic(topic), json.dumps({"version": 1, "partitions": replicas}).encode())

        def fake_store(connect: str, timeout_ms: int) -> FakeZkStore:
            store = FakeZkStore(zookeeper, "", timeout_ms, None)
            door.stores.append(store)
            return store

        with AdminSession.open(ADDRESS, None, AdminDependencies(fake_store, door.connect, clock)) as session:
            if arguments.apply is None:
                fill(session, arguments.partitions[0])
            print(json.dumps(measured(session, clock, arguments, door)))
        zookeeper.stop()
    else:
        with AdminSession.open(
            arguments.where, None, AdminDependencies(door.real_store, door.connect, clock)
        ) as session:
            print(json.dumps(measured(session, clock, arguments, door)))


def run_child(
    kind: str, where: str, partitions: int, epoch: int, tree: Path, *more: str
) -> dict[str, dict[str, float]]:
    words = [sys.executable, str(tree / "bench" / "migrate.py"), "--child", kind, "--where", where]
    words += ["--partitions", str(partitions), "--epoch", str(epoch), *more]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    out = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, env=environment, cwd=tree).stdout
    figures: dict[str, dict[str, float]] = json.loads(out)
    return figures


@contextmanager
def real_servers(zookeeper: str, partitions: int, *, partitions_exist: bool) -> Iterator[str]:
    with Sandbox() as sandbox:
        # Each round of --invariant leaves a group with its fences: more nodes than the sandbox's heap has room for.
        sandbox.start_zookeeper(zookeeper, options=("-Xmx1g",) if partitions_exist else ())
        sandbox.start_broker(BROKER, chroot="/kafka", heap_mb=1_024 if partitions_exist else 512)
        for topic in topics_of(partitions):
            sandbox.create_topic(topic, min(A_TOPIC, partitions) if partitions_exist else 1)
        if not partitions_exist:
            with AdminSession.open(sandbox.zookeeper_connect) as session:
                fill(session, partitions)
        yield sandbox.zookeeper_connect


@contextmanager
def development_broker(partitions: int) -> Iterator[str]:
    words = [sys.executable, "-c", OURS, str(len(topics_of(partitions)))]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


@dataclass(frozen=True, slots=True)
class Cell:
    """The rounds of one checkout with one number of partitions on one ZooKeeper."""

    partitions: int
    zookeeper: str
    rounds: list[dict[str, dict[str, float]]]
    tree: str = ""

    def _median(self, part: str, what: str) -> float:
        return statistics.median(each[part][what] for each in self.rounds)

    @property
    def _whole(self) -> list[float]:
        return [sum(each[part]["s"] for part in PARTS) for each in self.rounds]

    @property
    def _rss_mb(self) -> float:
        return max(each["rss"]["mb"] for each in self.rounds)

    def row(self) -> str:
        """One line of the table: medians, and the range of the sum."""
        whole = self._whole
        cells = [f"{self.partitions:,}", f"{self.zookeeper} {self.tree}".strip()]
        shown = (*PARTS, CHECK, FENCE)
        cells += [f"{self._median(part, 's'):.2f} s ({self._median(part, 'cpu'):.2f} CPU)" for part in shown]
        cells.append(f"{statistics.median(whole):.2f} s ({min(whole):.2f} to {max(whole):.2f})")
        cells += [f"{sum(self._median(part, what) for part in PARTS):,.0f}" for what in ("zookeeper", "kafka")]
        cells.append(f"{self._rss_mb:.0f} MB")
        return f"| {' | '.join(cells)} |"

    def ratio_row(self, before: Cell) -> str:
        """One line: the time and CPU time of this checkout divided by those of the other one."""
        cells = [f"{self.partitions:,}", self.zookeeper]
        for part in (*PARTS, CHECK, FENCE):
            ratios = [self._median(part, what) / (before._median(part, what) or 1e-9) for what in ("s", "cpu")]
            cells.append(f"{ratios[0]:.2f} ({ratios[1]:.2f} CPU)")
        return f"| {' | '.join(cells)} |"

    def gates(self) -> list[Gate]:
        """The gates; none with ``--in-memory``, and none for another checkout."""
        if self.zookeeper == IN_MEMORY or self.tree == BEFORE:
            return []
        gate, goal = SECONDS.get((self.partitions, self.zookeeper), (None, None))
        what = f"{self.partitions:,} partitions, ZooKeeper {self.zookeeper}"
        return [
            Gate(f"{what}: read, commit, read back", statistics.median(self._whole), gate, goal, "s", at_least=False),
            Gate(
                f"{what}: check of rights", self._median(CHECK, "s"), CHECK_S_MAX.get(self.partitions), None, "s",
                at_least=False,
            ),
            Gate(f"{what}: peak of memory", self._rss_mb, RSS_MB_MAX, None, "MB", at_least=False),
        ]  # fmt: skip


def machine() -> str:
    """One sentence."""
    return (
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the "
        f"start, Python {platform.python_version()}; the servers (broker {BROKER}) are on the same cores."
    )


HEAD = (
    "partitions", "ZooKeeper", *PARTS, CHECK, FENCE, "read, commit, read back", "requests to ZooKeeper",
    "requests to Kafka", "peak of memory",
)  # fmt: skip


def page(head: str, cells: list[Cell], rounds: int) -> str:
    """The page, as Markdown."""
    command = shlex.join(["python", "bench/migrate.py", *sys.argv[1:]])
    lines = [
        "# How fast offsets move",
        "",
        f"Printed by `{command}`; its docstring explains the measurement.",
        "",
        head,
        f"{rounds} rounds; median (minimum to maximum). Gates are for an idle machine.",
        "",
        f"| {' | '.join(HEAD)} |",
        "|---" * len(HEAD) + "|",
        *(cell.row() for cell in cells),
    ]
    others = {(cell.partitions, cell.zookeeper): cell for cell in cells if cell.tree == BEFORE}
    if others:
        names = (*HEAD[:2], *PARTS, CHECK, FENCE)
        pairs = [(cell, others[cell.partitions, cell.zookeeper]) for cell in cells if cell.tree != BEFORE]
        lines += ["", "## Against the tree before", "", f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
        lines += [cell.ratio_row(before) for cell, before in pairs]
    gates = [gate.row() for cell in cells for gate in cell.gates()]
    if gates:
        lines += ["", "## Gates", "", "| what | is | gate | goal | |", "|---|---|---|---|---|", *gates]
    return "\n".join(lines) + "\n"


def compare_invariant(arguments: argparse.Namespace) -> None:
    """Run and print the rounds of ``--invariant``."""
    kind, partitions = ("in-memory" if arguments.in_memory else "real"), arguments.partitions[0]
    servers: Any = development_broker(partitions)
    if not arguments.in_memory:
        servers = real_servers(arguments.zookeeper[0], partitions, partitions_exist=True)
    rounds: dict[str, list[dict[str, float]]] = {WITH: [], WITHOUT: []}
    with servers as where:
        for n in range(arguments.rounds * 2):
            turn, place = divmod(n, 2)
            how = (WITH, WITHOUT)[(turn + place) % 2]
            rounds[how].append(run_child(kind, where, partitions, 1 + n, TREE, "--apply", how)[how])

    def median(how: str, what: str) -> float:
        return statistics.median(each[what] for each in rounds[how])

    for how, found in rounds.items():
        seconds = [each["s"] for each in found]
        print(
            f"{partitions:,} partitions, {how}: {median(how, 's'):.3f} s ({min(seconds):.3f} to {max(seconds):.3f}), "
            f"{median(how, 'cpu'):.3f} CPU, {median(how, 'steps'):.0f} steps, of it the checks of the invariant "
            f"{1_000 * median(how, 'invariant'):.2f} ms"
        )
    for what in ("s", "cpu"):
        ratio = median(WITH, what) / median(WITHOUT, what)
        print(Gate(f"{what} with / without", ratio, INVARIANT_RATIO_MAX, None, at_least=False).row())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--zookeeper", nargs="+", default=[ZOOKEEPERS[0]], choices=ZOOKEEPERS)
    parser.add_argument("--before", type=Path, metavar="PATH", help="another checkout, measured in turn with this one")
    parser.add_argument("--invariant", action="store_true")
    parser.add_argument("--in-memory", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--where", help=argparse.SUPPRESS)
    parser.add_argument("--epoch", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--apply", choices=(WITH, WITHOUT), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments)
        return
    if arguments.in_memory and arguments.write:
        parser.error("--write is for figures of real servers")
    trees = {"": TREE} if arguments.before is None else {"": TREE, BEFORE: arguments.before.resolve()}
    head = machine()
    print(head)
    if arguments.invariant:
        compare_invariant(arguments)
        return
    kind = "in-memory" if arguments.in_memory else "real"
    cells: list[Cell] = []
    for zookeeper in [IN_MEMORY] if arguments.in_memory else arguments.zookeeper:
        for partitions in arguments.partitions:
            servers: Any = development_broker(partitions)
            if not arguments.in_memory:
                servers = real_servers(zookeeper, partitions, partitions_exist=False)
            rounds: dict[str, list[dict[str, dict[str, float]]]] = {tree: [] for tree in trees}
            with servers as where:
                for n in range(arguments.rounds * len(trees)):
                    turn, place = divmod(n, len(trees))
                    tree = list(trees)[(turn + place) % len(trees)]
                    rounds[tree].append(run_child(kind, where, partitions, 1 + n, trees[tree]))
            cells += [Cell(partitions, zookeeper, found, tree) for tree, found in rounds.items()]
            print("\n".join(cell.row() for cell in cells[-len(trees) :]), flush=True)
    text = page(head, cells, arguments.rounds)
    print(text)
    gates = [gate for cell in cells for gate in cell.gates()]
    missed = [gate.what for gate in gates if gate.verdict == "MISSED"]
    if gates:
        print(f"missed: {'; '.join(missed)}" if missed else "every gate is met")
    if arguments.write:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
