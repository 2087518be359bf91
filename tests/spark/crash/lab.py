"""The parts of the crash lab: a Spark driver as a tree of processes, a group that is watched, clusters that are kept.

A driver is a Python process, its JVM, Python workers, and a membership process for each query; workers and membership
processes lead process groups or sessions of their own.  So a tree is found by a mark in the environment, which every
child inherits, and is stopped (SIGSTOP) as a whole before it is killed: no process in it acts on the death of another.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bridge.testing import SinkRow
from tests.lab.group_observer import GroupObserver
from tests.spark_session_fixtures import ROOT, local_spark_environment, spark_environment
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.errors import SandboxError
from zkconsumer.testing.checker import HistoryEvent, InitialOffset, OffsetCommitted
from zkconsumer.testing.sandbox import Sandbox, wait_until
from zkconsumer.testing.sandbox.event_file import EventFile
from zkconsumer.types import TopicPartition

MARK = "ZKC_LAB_TREE"
READY_TIMEOUT_MS = 300_000
KILL_ROUNDS_MAX = 200
LOG_LINES_QUOTED = 60


def marked(mark: str) -> list[int]:
    """The processes of a tree."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                if wanted in Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                    found.append(int(entry))
    return found


def command_of(pid: int) -> str:
    """The command line of a process; empty if it is gone."""
    with suppress(OSError):
        return Path("/proc", str(pid), "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def signal_tree(mark: str, number: signal.Signals) -> set[int]:
    """The signal for all of them, once; returns the processes."""
    pids = set(marked(mark))
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    return pids


def stop_tree(mark: str) -> set[int]:
    """SIGSTOP for all of them, as if at one moment; returns the processes."""
    stopped: set[int] = set()
    for _ in range(KILL_ROUNDS_MAX):
        found = signal_tree(mark, signal.SIGSTOP)
        if found <= stopped:
            return stopped
        stopped |= found
    raise SandboxError(f"processes of {mark} start new ones: {sorted(stopped)}")


def kill_tree(mark: str) -> int:
    """SIGKILL for all of them, as if at one moment; returns how many there were."""
    killed = stop_tree(mark)
    for _ in range(KILL_ROUNDS_MAX):
        found = signal_tree(mark, signal.SIGKILL)
        killed |= found
        if not found:
            return len(killed)
    raise SandboxError(f"processes of {mark} do not die: {[(pid, command_of(pid)) for pid in marked(mark)]}")


class Driver:
    """A Spark driver program (``tests/spark/crash/driver.py``) and all that it starts.

    ``faults``: group -> point:batch at which the source stops; ``fault_folder`` then gets a file named as the group.
    ``master``, ``settings``: of Spark, instead of those of the program.  ``path``: folders with packages that come
    before those of this environment.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        faults: Mapping[str, str] | None = None,
        *,
        master: str | None = None,
        settings: Mapping[str, str] | None = None,
        path: Sequence[Path] = (),
    ) -> None:
        self.mark = f"{name}-{uuid.uuid4().hex[:12]}"
        self.folder = folder / name
        self.fault_folder = self.folder / "faults"
        self.fault_folder.mkdir(parents=True)
        self.events: list[dict[str, Any]] = []
        is_local = (master is None or master.startswith("local[")) and not path  # other packages: another Spark
        of_spark = local_spark_environment() if is_local else spark_environment()
        environment = {**os.environ, **of_spark, MARK: self.mark}
        environment["PYTHONPATH"] = os.pathsep.join([*map(str, path), environment["PYTHONPATH"]])
        environment["ZKC_SPARK_FAULT_FILE"] = str(self.fault_folder)
        if faults:
            environment["ZKC_SPARK_FAULT"] = ",".join(f"{group}={point}" for group, point in sorted(faults.items()))
        out, self.log = self.folder / "out.jsonl", self.folder / "log.txt"
        with out.open("wb") as stdout, self.log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.spark.crash.driver",
                    str(self.folder),
                    master or "",
                    json.dumps(settings or {}),
                ],
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
                cwd=ROOT,
                env=environment,
                start_new_session=True,
            )
        self._file = EventFile(out)

    def wait_ready(self) -> None:
        """Until Spark is there."""
        self.wait(lambda: self.seen("ready"), READY_TIMEOUT_MS, "Spark is ready")

    def start(self, query: str, folder: Path, options: Mapping[str, str], **others: Any) -> None:
        """Starts a query; see the program for ``others``."""
        folder.mkdir(parents=True, exist_ok=True)
        self.say({"do": "start", "query": query, "folder": str(folder), "options": dict(options), **others})

    def say(self, command: Mapping[str, Any]) -> None:
        """One command."""
        assert self.process.stdin is not None, "it was opened as a pipe"
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()

    def seen(self, event: str, query: str | None = None) -> list[dict[str, Any]]:
        """The events of this name, of this query, so far."""
        self.events += self._file.read_new()
        return [each for each in self.events if each["event"] == event and query in (None, each.get("query"))]

    def ends(self, query: str) -> int:
        """How often this query has ended; AssertionError if it failed."""
        ended = self.seen("ended", query)
        failed = [each["error"] for each in ended if each["error"] is not None]
        assert not failed, f"query {query} failed: {failed[0]}\n{self.log_end()}"
        return len(ended)

    def wait(self, condition: Callable[[], object], timeout_ms: int, what: str) -> None:
        """Until the condition holds; an error with the log's end if it does not, or if the driver has ended."""

        def check() -> bool:
            if condition():
                return True
            if self.process.poll() is not None:
                raise SandboxError(f"the driver ended with code {self.process.returncode}")
            return False

        try:
            wait_until(check, what, timeout_ms, poll_ms=50)
        except SandboxError as error:
            raise AssertionError(f"{error}\n{self.log_end()}") from error

    def pids(self, words: str) -> list[int]:
        """Those of the tree whose command line has these words."""
        return [pid for pid in marked(self.mark) if words in command_of(pid)]

    def pause(self) -> None:
        """SIGSTOP for the whole tree."""
        stop_tree(self.mark)

    def resume(self) -> None:
        """SIGCONT for the whole tree, which was paused."""
        signal_tree(self.mark, signal.SIGCONT)

    def kill(self) -> int:
        """SIGKILL for the whole tree."""
        killed = kill_tree(self.mark)
        self.process.wait()
        return killed

    def terminate(self, timeout_ms: int) -> None:
        """SIGTERM for the driver's Python alone, as a supervisor does; waits until the whole tree is gone."""
        self.process.terminate()
        self.process.wait(timeout_ms / 1000)
        wait_until(lambda: not marked(self.mark), "the driver's tree ends", timeout_ms)

    def log_end(self) -> str:
        """The end of the driver's log, for error texts."""
        lines = self.log.read_text(errors="replace").splitlines()
        lines = [line for line in lines if "WARN" not in line]
        return f"the end of {self.log}:\n" + "\n".join(lines[-LOG_LINES_QUOTED:])


class StoredOffsets:
    """Follows what a group's offsets are set to, in the order in which ZooKeeper took it."""

    def __init__(self, connect: str, group: str, topic: str, partitions: int) -> None:
        self._lock = threading.Lock()
        self._seen: dict[TopicPartition, list[int]] = defaultdict(list)
        self.observer = GroupObserver(connect, group, {topic: partitions}, self, self)  # type: ignore[arg-type]

    # What an observer needs of its writer, and of who knows the members.

    def now_ms(self) -> int:
        return SYSTEM_CLOCK.wall_ms()

    def write(self, event: HistoryEvent) -> None:
        if isinstance(event, OffsetCommitted | InitialOffset):
            with self._lock:
                self._seen[TopicPartition(event.topic, event.partition)].append(event.offset)

    def name_of(self, consumer_id: str) -> str | None:
        return None

    def is_expected_to_leave(self, consumer_id: str) -> bool:
        return True

    def returns_by_acquiring(self, consumer_id: str) -> bool:
        return False

    @property
    def all(self) -> dict[TopicPartition, list[int]]:
        """Partition -> every offset that was seen stored."""
        with self._lock:
            return {partition: list(offsets) for partition, offsets in self._seen.items()}

    def close(self) -> None:
        self.observer.close()


def owners_of(sandbox: Sandbox, group: str, topic: str) -> dict[int, str]:
    """Partition -> the thread that owns it, read now."""
    return sandbox.admin.owners(group, topic)


# --- what a query has left on the disk ------------------------------------------------------------------------------


def sink_rows(folder: Path) -> list[SinkRow]:
    """What the ``foreachBatch`` sink holds."""
    rows = []
    for path in sorted((folder / "sink").glob("*.json")):
        batch = int(path.stem)
        found = json.loads(path.read_text())
        rows += [SinkRow(batch, TopicPartition(topic, number), offset, value) for topic, number, offset, value in found]
    return rows


def parquet_rows(folder: Path) -> list[SinkRow]:
    """What the Parquet sink holds, as Spark has collected it; the batches are those whose ranges hold the records."""
    if not (folder / "collected.json").exists():
        return []
    ranges = planned(folder)

    def batch_of(partition: TopicPartition, offset: int) -> int:
        found = [batch for batch, parts in ranges.items() if offset in parts.get(partition, range(0))]
        return max(found, default=-1)

    rows = []
    for topic, number, offset, value in json.loads((folder / "collected.json").read_text()):
        partition = TopicPartition(topic, number)
        rows.append(SinkRow(batch_of(partition, offset), partition, offset, value))
    return rows


def planned(folder: Path) -> dict[int, dict[TopicPartition, range]]:
    """Spark's id of a batch -> what was planned for it, as the checkpoint's offsets describe themselves."""
    found: dict[int, dict[TopicPartition, range]] = {}
    for path in (folder / "checkpoint" / "offsets").glob("*"):
        if path.name.isdigit():
            offsets = json.loads(path.read_text().splitlines()[-1])
            first, end = offsets.get("from", {}), offsets.get("to", {})
            found[int(path.name)] = {
                TopicPartition(topic, int(number)): range(first[topic][number], end[topic][number])
                for topic in first
                for number in first[topic]
            }
    return found


def is_committed(folder: Path) -> bool:
    """Whether the last batch that was planned is in Spark's commit log."""
    return bool(_ids(folder, "offsets")) and max(_ids(folder, "offsets")) == max(_ids(folder, "commits"), default=-1)


def _ids(folder: Path, log: str) -> list[int]:
    return [int(path.name) for path in (folder / "checkpoint" / log).glob("*") if path.name.isdigit()]


def last_ends(folder: Path) -> dict[TopicPartition, int]:
    """Where the last batch of the checkpoint ends, partition by partition."""
    logs = {int(p.name): p for p in (folder / "checkpoint" / "offsets").glob("*") if p.name.isdigit()}
    if not logs:
        return {}
    ends = json.loads(logs[max(logs)].read_text().splitlines()[-1]).get("to", {})
    return {TopicPartition(topic, int(number)): end for topic in ends for number, end in ends[topic].items()}
