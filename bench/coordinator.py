"""Measures a group coordinator: a thousand members join one group, ten thousand in two thousand groups send heartbeats.

    python bench/coordinator.py --members 1000 --groups 2000 --per-group 5 --rounds 3 [--real 3.9.1] [--write]

The same client sends the same requests to the development broker of this project (in memory, in a separate process) and
to a real broker (fetched by Maven, ZooKeeper mode).  They alternate round by round, so that both have the same load of
the machine.

*Join*: with open connections, from the first JoinGroup (version 9: each member first gets an id) to the last answer to
SyncGroup, including ``group.initial.rebalance.delay.ms=200``.  The median of the rounds.
*Heartbeats*: each member of the groups sends a heartbeat every 3 s, spread evenly.  The figures are the CPU time of the
*server's process*, in cores, and the duration of the answers.  Twenty members use one connection.

``--write`` writes the table to migration_docs/reference/coordinator-speed.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import platform
import statistics
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.testing.sandbox.waiting import HOST, pause_ms
from zkconsumer.wire.request_frames import decode_response, encode_request
from zkconsumer.wire.schemas import FIND_COORDINATOR, HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP, Api
from zkconsumer.wire.schemas.find_coordinator import FindCoordinatorRequest
from zkconsumer.wire.schemas.heartbeat import HeartbeatRequest
from zkconsumer.wire.schemas.join_group import JoinGroupProtocol, JoinGroupRequest, JoinGroupResponse
from zkconsumer.wire.schemas.leave_group import LeaveGroupRequest, LeavingMember
from zkconsumer.wire.schemas.sync_group import SyncGroupAssignment, SyncGroupRequest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "migration_docs" / "reference" / "coordinator-speed.md"

BEAT_MS = 3_000
SESSION_MS = 30_000
DELAY_MS = 200
MEMBERS_A_CONNECTION = 20
GROUPS_AT_ONCE = 60
MEASURE_S = 15
START_MS = 60_000
METADATA = bytes.fromhex("0000 00000001 0006") + b"clicks" + bytes.fromhex("ffffffff")
SHARE = bytes.fromhex("0000 00000001 0006") + b"clicks" + bytes.fromhex("00000001 00000000 ffffffff")
SETTINGS = {"group.initial.rebalance.delay.ms": str(DELAY_MS)}

OURS = f"""
import sys
from bridge.testing.embedded_broker import EmbeddedBroker
with EmbeddedBroker(release="3.9.1", properties={{**{SETTINGS!r}, "max.connections": "20000"}}) as broker:
    print(broker.bootstrap, flush=True)
    sys.stdin.read()
"""

_numbers = itertools.count()


@dataclass
class Figures:
    """The measurements of one server."""

    who: str
    pid: int
    port: int
    join_s: list[float] = field(default_factory=list)
    cores: list[float] = field(default_factory=list)
    answers_ms: list[float] = field(default_factory=list)
    refused: int = 0

    def row(self) -> str:
        """One line of the table."""
        answers = sorted(self.answers_ms)
        middle, late = answers[len(answers) // 2], answers[int(len(answers) * 0.99)]
        beats_s = len(answers) / (len(self.cores) * MEASURE_S)
        cells = [
            f"{statistics.median(self.join_s):.2f} s ({min(self.join_s):.2f} to {max(self.join_s):.2f})",
            f"{statistics.median(self.cores):.2f} ({min(self.cores):.2f} to {max(self.cores):.2f})",
            f"{beats_s:.0f}",
            f"{middle:.1f} ms, {late:.1f} ms",
            str(self.refused),
        ]
        return f"| {self.who} | " + " | ".join(cells) + " |"


class Wire:
    """One connection, for one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, port: int) -> Wire:
        return cls(*await asyncio.open_connection(HOST, port, limit=1 << 22))

    async def ask(self, api: Api[Any, Any], version: int, body: Any) -> Any:
        self._writer.write(encode_request(api, version, 1, "bench", body))
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return decode_response(api, version, await self._reader.readexactly(size))[1]

    def close(self) -> None:
        self._writer.close()


@dataclass
class Member:
    """One member of a group."""

    group: str
    member_id: str = ""
    generation: int = -1

    async def join(self, wire: Wire) -> JoinGroupResponse:
        """Join as clients of 2.2 and later do: the first answer contains the member id."""
        body = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupProtocol(name="range", metadata=METADATA)],
        )
        told: JoinGroupResponse = await wire.ask(JOIN_GROUP, 9, body)
        assert told.error_code == 79, told
        body.member_id = told.member_id
        told = await wire.ask(JOIN_GROUP, 9, body)
        assert told.error_code == 0, told
        self.member_id, self.generation = told.member_id, told.generation_id
        return told

    async def sync(self, wire: Wire, joined: JoinGroupResponse) -> None:
        """Send SyncGroup; the leader sends an assignment for each member."""
        body = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupAssignment(member_id=one.member_id, assignment=SHARE) for one in joined.members],
        )
        told = await wire.ask(SYNC_GROUP, 5, body)
        assert (told.error_code, told.assignment) == (0, SHARE), told

    async def come(self, wire: Wire) -> None:
        await self.sync(wire, await self.join(wire))

    async def beat(self, wire: Wire) -> int:
        body = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
        told = await wire.ask(HEARTBEAT, 4, body)
        return int(told.error_code)


def now_s() -> float:
    """The time in seconds, with a higher resolution than milliseconds."""
    return asyncio.get_running_loop().time()


async def leave(wire: Wire, members: list[Member]) -> None:
    """All members leave at once; then no heartbeat may be sent for them."""
    rows = [LeavingMember(member_id=one.member_id) for one in members]
    await wire.ask(LEAVE_GROUP, 5, LeaveGroupRequest(group_id=members[0].group, members=rows))


async def measure_join(figures: Figures, count: int) -> None:
    """``count`` members join one group."""
    members = [Member(f"join-{next(_numbers)}")]
    members += [Member(members[0].group) for _ in range(count - 1)]
    wires = [await Wire.to(figures.port) for _ in members]
    try:
        start_s = now_s()
        await asyncio.gather(*(member.come(wire) for member, wire in zip(members, wires, strict=True)))
        figures.join_s.append(now_s() - start_s)
        assert {member.generation for member in members} == {1}, "all members joined in one rebalance"
        await leave(wires[0], members)
    finally:
        for wire in wires:
            wire.close()


async def measure_beats(figures: Figures, groups: int, per_group: int) -> None:
    """``groups`` groups with ``per_group`` members each send heartbeats."""
    members = await make_groups(figures.port, groups, per_group)
    wires = [await Wire.to(figures.port) for _ in range(0, len(members), MEMBERS_A_CONNECTION)]
    server = psutil.Process(figures.pid)
    end_s = now_s() + BEAT_MS / 1000 + MEASURE_S
    measured_from_s = now_s() + BEAT_MS / 1000
    try:
        beating = []
        for n, wire in enumerate(wires):
            some = members[n * MEMBERS_A_CONNECTION : (n + 1) * MEMBERS_A_CONNECTION]
            beats = beat_for(figures, wire, some, n / len(wires), measured_from_s, end_s)
            beating.append(asyncio.create_task(beats))
        await asyncio.sleep(BEAT_MS / 1000)
        before, before_s = used_s(server), now_s()
        await asyncio.sleep(MEASURE_S - 0.5)
        figures.cores.append((used_s(server) - before) / (now_s() - before_s))
        await asyncio.gather(*beating)
        by_group: dict[str, list[Member]] = {}
        for member in members:
            by_group.setdefault(member.group, []).append(member)
        for one in by_group.values():
            await leave(wires[0], one)
    finally:
        for wire in wires:
            wire.close()


def used_s(process: psutil.Process) -> float:
    """The CPU time of the process, with all its threads."""
    times = process.cpu_times()
    return float(times.user + times.system)


async def beat_for(
    figures: Figures, wire: Wire, members: list[Member], phase: float, measured_from_s: float, end_s: float
) -> None:
    """Each member sends one heartbeat in ``BEAT_MS``, spread evenly."""
    step_s = BEAT_MS / 1000 / len(members)
    next_s = now_s() + phase * step_s
    for member in itertools.cycle(members):
        if next_s >= end_s:
            return
        await asyncio.sleep(max(0.0, next_s - now_s()))
        asked_s = now_s()
        error = await member.beat(wire)
        if asked_s >= measured_from_s:
            figures.answers_ms.append((now_s() - asked_s) * 1000)
        figures.refused += error != 0
        next_s += step_s


async def make_groups(port: int, groups: int, per_group: int) -> list[Member]:
    """Create the groups, several at once; each member joins over a connection that no other member uses meanwhile."""
    waiting = [f"beat-{next(_numbers)}" for _ in range(groups)]
    made: list[Member] = []

    async def work() -> None:
        wires = [await Wire.to(port) for _ in range(per_group)]
        try:
            while waiting:
                group = waiting.pop()
                members = [Member(group) for _ in range(per_group)]
                await asyncio.gather(*(one.come(wire) for one, wire in zip(members, wires, strict=True)))
                made.extend(members)
        finally:
            for wire in wires:
                wire.close()

    await asyncio.gather(*(work() for _ in range(GROUPS_AT_ONCE)))
    return made


def wait_ready(port: int) -> None:
    """Wait until every partition of the offsets topic has its coordinator."""

    async def is_ready() -> bool:
        wire = await Wire.to(port)
        try:
            for number in range(40):
                told = await wire.ask(FIND_COORDINATOR, 1, FindCoordinatorRequest(key=f"ready-{number}"))
                if told.error_code:
                    return False
                body = LeaveGroupRequest(group_id=f"ready-{number}", member_id="nobody")
                told = await wire.ask(LEAVE_GROUP, 1, body)
                if told.error_code != 25:
                    return False
            return True
        finally:
            wire.close()

    deadline_ms = SYSTEM_CLOCK.now_ms() + START_MS
    while not asyncio.run(is_ready()):
        if SYSTEM_CLOCK.now_ms() > deadline_ms:
            raise SystemExit(f"the broker on port {port} did not coordinate groups within {START_MS} ms")
        pause_ms(100)


@contextlib.contextmanager
def ours() -> Iterator[Figures]:
    """Start the development broker as a process."""
    process = subprocess.Popen(
        [sys.executable, "-c", OURS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().rpartition(":")[2])
        yield Figures("our development broker", process.pid, port)
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def real(release: str) -> Iterator[Figures]:
    """Start a real broker."""
    with Sandbox() as sandbox:
        sandbox.start_zookeeper()
        broker = sandbox.start_broker(release, chroot="/kafka", settings=SETTINGS, heap_mb=512)
        yield Figures(f"Kafka {release}", broker.process.pid, broker.port)


def report(figures: list[Figures], arguments: argparse.Namespace, load: float) -> str:
    """The page, as Markdown."""
    machine = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load {load:.1f}"
    head = [
        "# How fast the coordinator is",
        "",
        "Printed by `python bench/coordinator.py --write`; its docstring explains the measurement.",
        "",
        f"{arguments.members} members join one group; {arguments.groups} groups of {arguments.per_group} members, "
        f"a heartbeat of each every {BEAT_MS / 1000:.0f} s.",
        f"{arguments.rounds} alternating rounds, {machine} (including the client's work). Median (minimum to maximum).",
        "",
        "| server | join | cores under heartbeats | heartbeats/s | answer: median, 99 % | refused |",
        "|---|---|---|---|---|---|",
    ]
    lines = [*head, *(one.row() for one in figures)]
    if len(figures) == 2:
        mine, theirs = figures
        joins = statistics.median(mine.join_s) / statistics.median(theirs.join_s)
        cores = statistics.median(mine.cores) / statistics.median(theirs.cores)
        lines += ["", f"Ours divided by the real one: {joins:.2f} for the time to join, {cores:.2f} for the CPU time."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=1_000)
    parser.add_argument("--groups", type=int, default=2_000)
    parser.add_argument("--per-group", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--real", metavar="RELEASE", default="3.9.1")
    parser.add_argument("--no-real", action="store_true", help="measure only the development broker")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    with contextlib.ExitStack() as stack:
        figures = [stack.enter_context(ours())]
        if not arguments.no_real:
            figures.append(stack.enter_context(real(arguments.real)))
        for one in figures:
            wait_ready(one.port)
            asyncio.run(measure_join(one, 50))  # warm up: the JVM loads classes and compiles code
            one.join_s.clear()
        for _ in range(arguments.rounds):
            for one in figures:
                asyncio.run(measure_join(one, arguments.members))
        for _ in range(arguments.rounds):
            for one in figures:
                asyncio.run(measure_beats(one, arguments.groups, arguments.per_group))
        page = report(figures, arguments, load)
    print(page)
    if arguments.write:
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
