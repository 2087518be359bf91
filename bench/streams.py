"""Measures the CPU that zkconsumer and other consumers need per message, with one real broker.

    python bench/streams.py [--quick] [--cells 100B-v2 ...] [--before PATH] [--json FILE] [--write]
    python bench/streams.py --page FILE [FILE ...] [--write]

CPU time per message: user and system time of the consumer's process with all its threads, from before it joins its
group until it has left it, minus the time of a reading of some hundred messages (joining and leaving), divided by the
number of messages.  The whole topic is read, so the work that a client does ahead counts once.  Every peer is a
separate process that runs for the whole cell.  It reads the topic once without counting (a JVM reads 30 million
messages, or ten times), and then the peers alternate; each reading uses a new group.  In the first reading offsets and
lengths are summed, and must be equal to the written ones.  In the other readings key, value and offset of each message
are accessed.

The broker is one of the sandbox (3.9.1 in ZooKeeper mode, with ``inter.broker.protocol.version=2.8``, so that it writes
format 1 for topics with this setting; the format on disk is checked).  It uses the same cores, and its CPU does not
count.  Every peer reads twice: with its best known settings, and with settings that are equal to zkconsumer's defaults.
At the tail a producer sends at a constant rate, up to 1,000 records per second with their time of sending; CPU per
second and the latency of these records are measured in windows of 8 s.

A peer that cannot run has a line with the reason.  ``--before PATH`` is a second checkout of this project with its own
virtual environment (``.venv`` or ``venv`` in it or next to it); it is one more peer.  ``--spark FILE`` adds the gates
of ``bench/spark.py --before PATH --json FILE``.

``--quick`` is for a rough result: some cells, a fifth of the messages, two rounds, windows of 4 s at the tail, only
best settings, at most ten minutes.  A whole run takes up to two hours on two idle cores.  ``--json`` saves all
readings after each cell; the page lists the fields.  ``--page`` makes the page from such a file, without measuring.
A run can be in parts, each with other ``--cells``: ``--page`` accepts the file of each part, if machine, peers, rounds
and scale are the same.  A cell of a later file replaces the one of an earlier file; the page shows its commit.
``--write`` writes page and plots to migration_docs/reference/.  Requires Java, Maven and, for franz-go, Go; Python
packages: the extra ``[bench]``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import stream_gates
import stream_page
from stream_cells import CELLS, Cell, Columns, columns_of
from stream_peers import PEER_TABLE, ROOT, Checkout, Cluster, NotRun, Start, checkout_of, commit_of
from stream_process import PeerFailed, PeerProcess
from stream_results import CellResult, Results, Run, joined, load, percentile
from topics import Filled, delete, fill, on_disk

from zkconsumer.testing.sandbox import Sandbox, SandboxSecurity

BROKER = "3.9.1"
HEAP_MB = 768
BROKER_SETTINGS = {
    # Each reading uses a new group: the wait for its other members would be most of the time of a run.
    "group.initial.rebalance.delay.ms": "0",
    # The timestamps of the records are in 2023.
    "log.retention.ms": "-1",
    "log.message.timestamp.before.max.ms": str(2**63 - 1),
    # Below 3.0 a topic may still have its record format.
    "inter.broker.protocol.version": "2.8",
    "file.delete.delay.ms": "1000",
    "log.segment.bytes": "1073741824",
}
FORMAT_1 = {"message.format.version": "0.10.2"}
ROUNDS, ROUNDS_QUICK = 5, 2
SCALE_QUICK = 0.2
WARM_MESSAGES = 30_000_000
"""The number of messages that a JVM reads before its readings count.

A message of the fifth reading of 6 million costs the Java client a third of one of the first; later ones do not cost
less."""
WARM_READINGS_MAX = 10
SETTLE_S = 3
WINDOW_S, WINDOW_S_QUICK = 8, 4
READ_TIMEOUT_S = 60
PRODUCER_END_S = 10
READ_TIMEOUT_US_A_MESSAGE = 100
KEPT_UP = 0.95
TAIL_TRIES = 2
"""A consumer that is too slow in a window gets another attempt."""

_groups = itertools.count()


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of a cell: ``start`` has one batch for each partition, ``tenth`` is for slow peers."""

    whole: Filled
    start: Filled
    tenth: Filled | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading, including joining and leaving."""

    messages: int
    cpu_s: float
    wall_s: float


class Turns:
    """The peers of one cell: starts them, alternates their readings, and excludes those that fail, with the reason."""

    def __init__(self, result: CellResult, rounds: int, window_s: int = WINDOW_S) -> None:
        self._result, self._rounds, self._window_s = result, rounds, window_s
        self._processes: dict[tuple[str, str], PeerProcess] = {}

    def start(self, cell: Cell, columns: Columns, cluster: Cluster, before: Checkout | None, folder: Path) -> None:
        """Start each peer that can read the cell."""
        for peer, column in columns:
            if peer in cell.cannot:
                self._leave_out((peer, column), cell.cannot[peer])
                continue
            place = folder / f"{peer}-{column}"
            place.mkdir(parents=True)
            try:
                self._processes[peer, column] = _start(peer, column, cluster, Start(place / "settings", place, before))
            except (NotRun, PeerFailed) as error:
                self._leave_out((peer, column), str(error))

    def about(self) -> dict[str, dict[str, Any]]:
        """Peer -> its description of itself."""
        return {peer: process.about for (peer, _), process in self._processes.items()}

    def read(self, topics: Topics) -> None:
        """All readings of topics that end."""
        starts: dict[tuple[str, str], list[float]] = defaultdict(list)
        readings: dict[tuple[str, str], list[Reading]] = defaultdict(list)
        for number in range(self._rounds + 1):
            for who in self._in_turn(number):
                topic = topics.tenth if PEER_TABLE[who[0]].is_slow else topics.whole
                assert topic is not None, "a cell with a slow peer has a topic of a tenth"
                times = _warm_readings(who[0], topic.rows) if number == 0 else 1
                with self._left_out_when_it_fails(who):
                    for turn in range(times):
                        reading = self._read_once(who, topic, is_checked=number == turn == 0)
                    if number:
                        readings[who].append(reading)
                    if number in (0, self._rounds):
                        starts[who].append(self._read_once(who, topics.start, is_checked=False).cpu_s)
        for who in list(self._processes):
            with self._left_out_when_it_fails(who):
                start_s = statistics.mean(starts[who])
                self._result.runs += [
                    _without_start(who, number, reading, start_s, topics.start.rows)
                    for number, reading in enumerate(readings[who], 1)
                ]

    def follow(self, topic: str, rate: int) -> None:
        """All readings at the tail."""
        for number in range(self._rounds + 1):
            for who in self._in_turn(number):
                with self._left_out_when_it_fails(who):
                    run = self._follow_once(who, topic, rate, number)
                    if number:
                        self._result.runs.append(run)

    def leave_out_all(self, why: str) -> None:
        """Exclude all peers: no figure of this cell counts."""
        for who in list(self._processes):
            self._processes.pop(who).close()
            self._leave_out(who, why)

    def close(self) -> None:
        for process in self._processes.values():
            process.close()

    def _in_turn(self, number: int) -> list[tuple[str, str]]:
        """The order of the peers; in each round another one is first."""
        names = list(self._processes)
        first = number % len(names) if names else 0
        return names[first:] + names[:first]

    def _read_once(self, who: tuple[str, str], topic: Filled, *, is_checked: bool) -> Reading:
        timeout_s = READ_TIMEOUT_S + topic.rows * READ_TIMEOUT_US_A_MESSAGE // 1_000_000
        words = "read", topic.topic, _new_group(), topic.rows, int(is_checked), timeout_s
        answer = self._processes[who].ask(words, 2 * timeout_s)
        found = answer["messages"], answer["offsets"], answer["bytes"]
        written = topic.rows, topic.offsets, topic.value_bytes
        if any(is_ not in (None, should_be) for is_, should_be in zip(found, written, strict=True)):
            raise PeerFailed(f"it read other records: count, offsets and bytes are {found} instead of {written}")
        return Reading(topic.rows, answer["window_cpu_s"], answer["window_s"])

    def _follow_once(self, who: tuple[str, str], topic: str, rate: int, number: int) -> Run:
        timeout_s = READ_TIMEOUT_S + SETTLE_S + self._window_s
        read = []
        for _ in range(TAIL_TRIES):
            words = "tail", topic, _new_group(), SETTLE_S, self._window_s, timeout_s
            answer = self._processes[who].ask(words, 2 * timeout_s)
            messages, seconds = answer["window_messages"], answer["window_s"]
            if messages >= KEPT_UP * rate * seconds:
                late = [percentile(answer["latencies_us"], share) / 1000 for share in (0.5, 0.99)]
                return Run(*who, number, messages, answer["window_cpu_s"], seconds, 0.0, (late[0], late[1]))
            read.append(f"{messages / seconds:.0f}")
        raise PeerFailed(f"it read {', then '.join(read)} records/s of {rate}")

    @contextmanager
    def _left_out_when_it_fails(self, who: tuple[str, str]) -> Iterator[None]:
        try:
            yield
        except PeerFailed as error:
            self._processes.pop(who).close()
            self._leave_out(who, str(error))

    def _leave_out(self, who: tuple[str, str], why: str) -> None:
        """Exclude a peer that failed: it has no figure in this cell, because it would miss rounds."""
        self._result.runs = [run for run in self._result.runs if (run.peer, run.settings) != who]
        self._result.not_run[" ".join(who)] = why
        print(f"  {PEER_TABLE[who[0]].title}, settings {who[1]}: not run: {why}", flush=True)


def _start(peer: str, column: str, cluster: Cluster, start: Start) -> PeerProcess:
    row = PEER_TABLE[peer]
    settings = {**row.reach(cluster), **row.columns[column]}
    start.settings_file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    command = row.command(start)
    command = replace(command, environment={**command.environment, **row.environment})
    process = PeerProcess(peer, command, start.folder)
    if row.checkout is not None:
        root, file = row.checkout(start).root, Path(process.about["file"])
        why = ""
        if not file.resolve().is_relative_to(root):
            why = f"it imports {file}, which is not in {root}"
        elif peer == "before" and not process.about["extension"]:
            why = "the second checkout has no compiled module for messages; see its line without extensions"
        if why:
            process.close()
            raise PeerFailed(why)
    return process


def _without_start(who: tuple[str, str], number: int, reading: Reading, start_s: float, start_messages: int) -> Run:
    """Subtract joining and leaving.  Raises ``PeerFailed`` if the rest is not larger than that."""
    cpu_s = reading.cpu_s - start_s
    if cpu_s <= 0:
        raise PeerFailed(
            f"a reading took {reading.cpu_s:.2f} s of CPU, joining and leaving {start_s:.2f} s: read more (--scale)"
        )
    return Run(*who, number, reading.messages - start_messages, cpu_s, reading.wall_s, start_s)


def _new_group() -> str:
    return f"bench-{os.getpid()}-{next(_groups)}"


def _warm_readings(peer: str, messages: int) -> int:
    if not PEER_TABLE[peer].is_jvm:
        return 1
    return min(WARM_READINGS_MAX, math.ceil(WARM_MESSAGES / messages))


class Bench:
    """Measures the cells one after the other, on one cluster."""

    def __init__(self, arguments: argparse.Namespace, results: Results, scratch: Path) -> None:
        self._arguments, self._results, self._scratch = arguments, results, scratch
        self._security = SandboxSecurity()
        self._sandbox: Sandbox | None = None

    def run(self, cells: Sequence[Cell]) -> None:
        with Sandbox() as self._sandbox:
            self._sandbox.start_zookeeper()
            self._sandbox.start_broker(
                BROKER, chroot="/kafka", heap_mb=HEAP_MB, settings=BROKER_SETTINGS, security=self._security
            )
            for cell in cells:
                start = time.monotonic()
                print(f"{cell.name}: {cell.shape}", flush=True)
                self._cell(self._sandbox, cell)
                print(f"  {time.monotonic() - start:.0f} s", flush=True)
                self._results.seconds = round(self._results.seconds + time.monotonic() - start, 1)
                if self._arguments.json is not None:
                    save(self._results, self._arguments.json)

    def _cell(self, sandbox: Sandbox, cell: Cell) -> None:
        columns = columns_of(cell, is_quick=self._arguments.quick)
        columns = tuple(each for each in columns if each[0] in self._arguments.peers)
        result = CellResult(
            cell.name,
            cell.title,
            str(cell.shape),
            cell.shape.size,
            cell.partitions,
            messages=0,
            tenth=0,
            rate=cell.rate,
            on_disk={},
            commit=self._results.commit,
        )
        self._results.cells.append(result)
        window_s = WINDOW_S_QUICK if self._arguments.quick else WINDOW_S
        turns = Turns(result, self._arguments.rounds, window_s)
        with ExitStack() as stack:
            stack.callback(turns.close)
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=cell.name, dir=self._scratch)))
            start = partial(turns.start, cell, columns, self._cluster(sandbox, cell), self._arguments.before, folder)
            if cell.rate:
                sandbox.create_topic(cell.name, cell.partitions)
                start()
                self._follow(sandbox, cell, turns)
            else:
                has_slow = any(PEER_TABLE[peer].is_slow for peer, _ in columns)
                topics = self._topics(sandbox, cell, result, has_slow=has_slow)
                start()
                turns.read(topics)
            for peer, about in turns.about().items():
                kept = {key: value for key, value in about.items() if key != "file"}
                self._results.peers[peer]["versions"].update(kept)
        for ending in ("", "-start", "-tenth"):
            delete(sandbox, cell.name + ending)
        for line in stream_page.lines_of(result, self._results.peers):
            print(line, flush=True)

    def _topics(self, sandbox: Sandbox, cell: Cell, result: CellResult, *, has_slow: bool) -> Topics:
        def filled(name: str, rows: int) -> Filled:
            config = FORMAT_1 if cell.shape.magic == 1 else None
            return fill(sandbox, name, cell.shape, rows, cell.partitions, config)

        rows = int(cell.messages * self._arguments.scale)
        tenth = filled(f"{cell.name}-tenth", rows // 10) if has_slow else None
        made = Topics(filled(cell.name, rows), filled(f"{cell.name}-start", 1), tenth)
        found = on_disk(sandbox.run.root / sandbox.brokers[0].name / "data" / f"{cell.name}-0")
        if (found.magic, found.codec) != (cell.shape.magic, stream_page.codec_of(cell.shape)):
            raise SystemExit(f"{cell.name}: the broker wrote {found} instead of {cell.shape}")
        result.messages, result.on_disk = made.whole.rows, asdict(found)
        result.tenth = tenth.rows if tenth is not None else 0
        return made

    def _cluster(self, sandbox: Sandbox, cell: Cell) -> Cluster:
        if cell.is_tls:
            return Cluster(self._security.address("SSL"), sandbox.zookeeper_connect, self._security.certificates)
        return Cluster(sandbox.bootstrap, sandbox.zookeeper_connect)

    def _follow(self, sandbox: Sandbox, cell: Cell, turns: Turns) -> None:
        """The readings at the tail, with a running producer.  If it does not keep its rate, no figure counts."""
        words = [sys.executable, str(ROOT / "bench" / "tail_producer.py"), sandbox.bootstrap, cell.name]
        words += [str(cell.partitions), str(cell.rate)]
        with tempfile.TemporaryFile("w+", dir=self._scratch) as out:
            process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=out, text=True, start_new_session=True)
            try:
                turns.follow(cell.name, cell.rate)
            finally:
                assert process.stdin is not None
                process.stdin.close()
                process.wait(PRODUCER_END_S)
            out.seek(0)
            lines = [line for line in out if line.startswith("{")]
        why = producer_trouble(lines, cell.rate)
        if why:
            turns.leave_out_all(why)


def producer_trouble(lines: Sequence[str], rate: int) -> str:
    """Why the figures with this producer do not count; "" if they do.  ``lines``: its output."""
    if not lines:
        return "the producer sent nothing"
    last = json.loads(lines[-1])
    sent = last["acked"] / last["seconds"]
    if last["failed"] or sent < KEPT_UP * rate:
        return f"the producer sent {sent:.0f} records/s of {rate}, and {last['failed']} failed"
    return ""


def machine() -> dict[str, Any]:
    """The machine: names to texts and numbers."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    except OSError:
        pass
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def new_results(arguments: argparse.Namespace) -> Results:
    before: Checkout | None = arguments.before
    peers = {
        name: {
            "title": peer.title,
            "difference": peer.difference,
            "versions": {},
            "settings": {column: {**settings, **peer.environment} for column, settings in peer.columns.items()},
        }
        for name, peer in PEER_TABLE.items()
    }
    return Results(
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        command=shlex.join(["python", "bench/streams.py", *sys.argv[1:]]),
        machine=machine(),
        load_at_start=round(os.getloadavg()[0], 2),
        rounds=arguments.rounds,
        scale=arguments.scale,
        is_quick=arguments.quick,
        broker=BROKER,
        commit=commit_of(ROOT),
        before=commit_of(before.root) if before is not None else "",
        peers=peers,
        spark=arguments.spark,
    )


def spark_gates(file: str) -> list[dict[str, Any]]:
    """The gates of a file of ``bench/spark.py``, without their verdicts."""
    try:
        rows = json.loads(Path(file).read_text("utf-8"))["gates"]
        return [{key: value for key, value in row.items() if key != "verdict"} for row in rows]
    except (OSError, ValueError, KeyError) as error:
        raise argparse.ArgumentTypeError(f"{file} is not a file of bench/spark.py --json: {error!r}") from None


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a rough result: some cells, fewer messages and rounds")
    parser.add_argument("--cells", nargs="+", choices=list(CELLS), metavar="CELL", help=f"of {', '.join(CELLS)}")
    parser.add_argument(
        "--peers", nargs="+", choices=list(PEER_TABLE), default=list(PEER_TABLE), metavar="PEER",
        help=f"of {', '.join(PEER_TABLE)}",
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, help=f"number of rounds that count  [{ROUNDS}]")
    parser.add_argument("--scale", type=float, help="factor for the numbers of messages  [1]")
    parser.add_argument("--before", type=lambda path: checkout_of(Path(path)), metavar="PATH", help="a second checkout")
    parser.add_argument("--spark", type=spark_gates, default=[], metavar="FILE", help="from bench/spark.py --json")
    parser.add_argument("--json", type=Path, metavar="FILE", help="save all readings")
    parser.add_argument(
        "--page", type=Path, nargs="+", metavar="FILE", help="make the page from saved readings, without measuring"
    )
    parser.add_argument("--write", action="store_true", help="write page and plots to migration_docs/reference/")
    arguments = parser.parse_args(words)
    arguments.rounds = arguments.rounds or (ROUNDS_QUICK if arguments.quick else ROUNDS)
    arguments.scale = arguments.scale or (SCALE_QUICK if arguments.quick else 1.0)
    if arguments.cells is None:
        arguments.cells = [name for name, cell in CELLS.items() if cell.is_quick or not arguments.quick]
    return arguments


def save(results: Results, path: Path) -> None:
    """Write the readings so far and their gates to a file."""
    made = stream_gates.gates(results)
    path.write_text(results.to_json([stream_gates.as_dict(gate) for gate in made]), "utf-8")


def main() -> None:
    arguments = parsed()
    if arguments.page is not None:
        results, wanted = joined([load(path) for path in arguments.page]), None
        results.spark = arguments.spark or results.spark
    else:
        results = new_results(arguments)
        wanted = tuple(arguments.cells)
        with tempfile.TemporaryDirectory(prefix="bench-streams-") as scratch:
            Bench(arguments, results, Path(scratch)).run([CELLS[name] for name in arguments.cells])
    gates = stream_gates.gates(results, wanted)
    print("\n".join(stream_page.gate_table(gates)))
    missed = [gate.what for gate in gates if gate.verdict == "MISSED"]
    print(f"{results.seconds:.0f} s; {'missed: ' + '; '.join(missed) if missed else 'no gate is missed'}")
    if arguments.write:
        for path in stream_page.write(results):
            print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
