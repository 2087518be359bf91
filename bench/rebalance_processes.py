"""Measures joins and leaves of a group with one process for each member: ``bench/rebalance.py --processes``.

The members of a checkout (this one, and with ``--before`` another one) form a group, change it a few times and leave;
then the members of the next checkout do the same with the same names in the same order, so both move the same
partitions.

A *join* starts with the command to a process that runs already, a *leave* with the command to the member that leaves.
Both end when every partition is owned and each member has its range assignment.  A separate session observes the
owners: one ``exists`` of their parent every few milliseconds, and all owner nodes only when it has changed.  *Packets*:
the packets that a member has sent by then.  *CPU*: the CPU time of all members together (user and system) from the
change until they are quiet again, minus their use in the same time without a change; the joiner's part includes the
start of its connections, but not the start of its process.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import string
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gates import Gate
from rebalance_watch import TOPIC, Watcher

from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.testing.sandbox import Sandbox

PROGRAM = Path(__file__).resolve().parent / "rebalance_member.py"
TREE = PROGRAM.parent.parent
CHANGES_A_GROUP = 5
"""The number of joins and leaves of one group before the other checkout continues."""

QUIET_S = 0.7
"""A member is quiet if it sends at most one packet in this time; it sends a probe every few seconds."""

SESSION_TIMEOUT_MS = 30_000
"""The requested session timeout: sixteen members start on two cores, and the server grants 20 s."""

FETCH_WAIT_MS = 1_000
"""How long the broker delays a fetch, because there are no records."""

SECONDS_MAX = (2.0, 1.0)
"""The gate and the goal for a join and for a leave."""

PACKETS_OF_OTHERS_MAX = 15
"""The gate for a member that stays; a joiner may send as many, and one more for each member."""

TITLE = "## One process a member"


class Process:
    """A child process that answers each command with a line of JSON."""

    def __init__(self, kind: str, settings: dict[str, Any], tree: Path) -> None:
        words = [sys.executable, str(PROGRAM), kind, json.dumps(settings)]
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        self._child = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=tree
        )
        self.hello = self.hear()
        if kind == "member" and not Path(self.hello["package"]).is_relative_to(tree):
            raise SystemExit(f"a member of {tree} runs {self.hello['package']}, which is not in that checkout")

    def say(self, word: str) -> None:
        """Send a command without waiting for its answer."""
        assert self._child.stdin is not None
        self._child.stdin.write(f"{word}\n")
        self._child.stdin.flush()

    def hear(self) -> Any:
        """Read the next answer.  Raises ``SystemExit`` if the child has ended."""
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise SystemExit(f"a child of the benchmark ended with code {self._child.wait()}")
        return json.loads(line)

    def ask(self, word: str) -> Any:
        """Send a command and return its answer."""
        self.say(word)
        return self.hear()

    def close(self) -> None:
        """End the process in any case."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        try:
            self._child.wait(20)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


@dataclass(frozen=True, slots=True)
class Used:
    """The CPU time and packets of a member so far."""

    cpu_s: float
    packets: int


def used_by(members: Sequence[Process]) -> list[Used]:
    """Send the command to all members, then read the answers."""
    for member in members:
        member.say("figures")
    return [Used(**member.hear()) for member in members]


def wait_quiet(members: Sequence[Process], pause: Callable[[float], object]) -> tuple[list[Used], float]:
    """Wait until members send only probes; return the use of each, and the CPU seconds per second of all while idle."""
    while True:
        before, since_ms = used_by(members), SYSTEM_CLOCK.now_ms()
        pause(QUIET_S)
        now = used_by(members)
        if all(one.packets - then.packets <= 1 for one, then in zip(now, before, strict=True)):
            spent_s = sum(one.cpu_s - then.cpu_s for one, then in zip(now, before, strict=True))
            return now, 1000 * spent_s / (SYSTEM_CLOCK.now_ms() - since_ms)


@dataclass
class TreeFigures:
    """The measurements of one checkout: ms, packets of a member, and CPU ms of all members together."""

    name: str
    join_ms: list[float] = field(default_factory=list)
    leave_ms: list[float] = field(default_factory=list)
    join_cpu_ms: list[float] = field(default_factory=list)
    leave_cpu_ms: list[float] = field(default_factory=list)
    joiner_packets: list[float] = field(default_factory=list)
    others_packets: list[float] = field(default_factory=list)

    def row(self) -> str:
        """One line of the table."""
        cells = [
            self.join_ms, self.leave_ms, self.join_cpu_ms, self.leave_cpu_ms, self.joiner_packets, self.others_packets
        ]  # fmt: skip
        shown = (f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})" for values in cells)
        return f"| {self.name} | {' | '.join(shown)} |"

    def ratio_row(self, before: TreeFigures) -> str:
        """The medians of this checkout divided by those of another one."""
        pairs = [
            (self.join_ms, before.join_ms), (self.leave_ms, before.leave_ms),
            (self.join_cpu_ms, before.join_cpu_ms), (self.leave_cpu_ms, before.leave_cpu_ms),
        ]  # fmt: skip
        ratios = (f"{statistics.median(now) / statistics.median(then):.2f}" for now, then in pairs)
        return f"| ratio | {' | '.join(ratios)} | - | - |"

    def gates(self, members: int) -> list[Gate]:
        """The gates of this checkout."""
        gate, goal = SECONDS_MAX
        return [
            Gate("join, median", statistics.median(self.join_ms) / 1000, gate, goal, "s", at_least=False),
            Gate("leave, median", statistics.median(self.leave_ms) / 1000, gate, goal, "s", at_least=False),
            Gate(
                "packets of another member, maximum",
                max(self.others_packets), PACKETS_OF_OTHERS_MAX, None, "", at_least=False,
            ),
            Gate(
                "packets of the joiner, maximum",
                max(self.joiner_packets), members + PACKETS_OF_OTHERS_MAX, None, "", at_least=False,
            ),
        ]  # fmt: skip


class Group:
    """The members of one checkout, and one more process that is ready to join."""

    def __init__(self, address: str, group: str, tree: Path, strategy: str, names: Iterator[str]) -> None:
        self._settings = {
            "group_id": group,
            "zookeeper_connect": address,
            "zookeeper_session_timeout_ms": SESSION_TIMEOUT_MS,
            "fetch_wait_max_ms": FETCH_WAIT_MS,
            "partition_assignment_strategy": strategy,
            "topic": TOPIC,
        }
        self._tree = tree
        self._names = names
        self.members: list[Process] = []
        self.joiner = self.new_process()

    def new_process(self) -> Process:
        """Start a process that is ready to join."""
        return Process("member", {**self._settings, "consumer_id": next(self._names)}, self._tree)

    def grow(self) -> None:
        """Add a member, and start another process that is ready."""
        self.joiner.ask("join")
        self.members.append(self.joiner)
        self.joiner = self.new_process()

    def close(self) -> None:
        """All members leave."""
        everyone = [*self.members, self.joiner]
        for process in everyone:
            process.say("leave")
        for process in everyone:
            process.hear()
            process.close()


def measure_changes(group: Group, watcher: Watcher, members: int, changes: int, figures: TreeFigures) -> None:
    """``changes`` joins, each followed by a leave."""
    pause = threading.Event().wait
    while len(group.members) < members - 1:
        group.grow()
    watcher.wait_covered(members - 1, SYSTEM_CLOCK.now_ms())
    for number in range(changes):
        before, at_rest = wait_quiet([*group.members, group.joiner], pause)
        start_ms = SYSTEM_CLOCK.now_ms()
        group.joiner.say("join")
        figures.join_ms.append(watcher.wait_covered(members, start_ms))
        group.joiner.hear()
        everyone = [*group.members, group.joiner]
        sent = [now.packets - then.packets for now, then in zip(used_by(everyone), before, strict=True)]
        figures.joiner_packets.append(sent.pop())
        figures.others_packets += sent
        figures.join_cpu_ms.append(_spent_ms(everyone, before, at_rest, start_ms, pause))
        leaver = everyone.pop(number % members)
        before, at_rest = wait_quiet(everyone, pause)
        start_ms = SYSTEM_CLOCK.now_ms()
        leaver.say("leave")
        figures.leave_ms.append(watcher.wait_covered(members - 1, start_ms))
        sent = [now.packets - then.packets for now, then in zip(used_by(everyone), before, strict=True)]
        figures.others_packets += sent
        figures.leave_cpu_ms.append(_spent_ms(everyone, before, at_rest, start_ms, pause))
        leaver.hear()
        leaver.close()
        group.members, group.joiner = everyone, group.new_process()


def _spent_ms(
    members: Sequence[Process], before: Sequence[Used], at_rest: float, since_ms: int, pause: Callable[[float], object]
) -> float:
    now, _ = wait_quiet(members, pause)
    spent_s = sum(one.cpu_s - then.cpu_s for one, then in zip(now, before, strict=True))
    return 1000 * spent_s - at_rest * (SYSTEM_CLOCK.now_ms() - since_ms)


@contextmanager
def running_broker(partitions: int) -> Iterator[list[Any]]:
    """Its id, host and port."""
    process = Process("broker", {"topic": TOPIC, "partitions": partitions}, TREE)
    try:
        yield process.hello
    finally:
        process.close()


def names_from(seed: int) -> Iterator[str]:
    """Consumer ids in a random order, the same for each checkout: they determine the partitions that move."""
    chance = random.Random(seed)
    number = 0
    while True:
        number += 1
        yield f"{''.join(chance.choices(string.ascii_lowercase, k=6))}-{number}"


def measure_processes(
    trees: dict[str, Path], members: int, partitions: int, rounds: int, strategy: str, zookeeper: str, seed: int
) -> list[TreeFigures]:
    """``rounds`` joins and leaves of each checkout; they alternate after ``CHANGES_A_GROUP``."""
    figures = {name: TreeFigures(name) for name in trees}
    with Sandbox() as sandbox, running_broker(partitions) as (broker_id, host, port):
        sandbox.start_zookeeper(zookeeper)
        sandbox.zookeeper.admin().ensure_path("/processes")
        admin = sandbox.zookeeper.admin("/processes")
        admin.put_topic(TOPIC, {number: [broker_id] for number in range(partitions)})
        registration = {"jmx_port": -1, "timestamp": "0", "host": host, "version": 1, "port": port}
        admin.put(f"/brokers/ids/{broker_id}", json.dumps(registration).encode())
        address = sandbox.zookeeper.connect_string("/processes")
        for turn, start in enumerate(range(0, rounds, CHANGES_A_GROUP)):
            in_turn = list(trees.items())
            for number, (name, tree) in enumerate(in_turn if turn % 2 == 0 else in_turn[::-1]):
                group = Group(address, f"bench-{turn}-{number}", tree, strategy, names_from(seed + turn))
                try:
                    with Watcher(address, partitions, f"bench-{turn}-{number}") as watcher:
                        changes = min(CHANGES_A_GROUP, rounds - start)
                        measure_changes(group, watcher, members, changes, figures[name])
                finally:
                    group.close()
                print(figures[name].row(), f"load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    return list(figures.values())


HEAD = (
    "| members of | join ms | leave ms | CPU of all, join ms | CPU of all, leave ms | packets of the joiner "
    "| packets of each other member |\n|---|---|---|---|---|---|---|"
)


def processes_section(
    members: int,
    partitions: int,
    rounds: int,
    *,
    strategy: str,
    zookeeper: str,
    before: Path | None,
    seed: int,
    machine: Callable[[], str],
) -> str:
    """Measure, and return the section of the page."""
    trees = {"this tree": TREE} if before is None else {"this tree": TREE, "before": before.resolve()}
    words = f" --members {members} --partitions {partitions} --rounds {rounds}"
    words += "" if strategy == "range" else f" --strategy {strategy}"
    words += "" if before is None else f" --before {before}"
    head = [
        TITLE,
        "",
        f"Printed by `python bench/rebalance.py --processes{words} --write`.",
        "",
        f"{members} members in separate processes, {partitions} partitions, {strategy}, {rounds} joins and leaves,",
        f"ZooKeeper {zookeeper}, {machine()}. Median (minimum to maximum).",
        "",
        HEAD,
    ]
    found = measure_processes(trees, members, partitions, rounds, strategy, zookeeper, seed)
    ratio = [found[0].ratio_row(found[1])] if len(found) > 1 else []
    gates = ["", "| what | is | gate | goal | |", "|---|---|---|---|---|", *(g.row() for g in found[0].gates(members))]
    return "\n".join([*head, *(one.row() for one in found), *ratio, *gates]) + "\n"
