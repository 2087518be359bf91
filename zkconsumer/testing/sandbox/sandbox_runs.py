"""Records what was started: a folder for each run, so that no process outlives a run that was killed.

    <cache>/runs/<id>/run.json          the owner of the run (machine, process id, start time); none if it was detached
    <cache>/runs/<id>/processes/<pid>   one for each process: start time, a word of its command line, kind
    <cache>/runs/<id>/files/...         data and logs, unless the caller named another root

Invariant: run.json is there before the first process starts, and a record before its process is waited for.  A
process is only ever signalled if its id, its start time and the word of its command line all agree: ids are used again.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.testing.sandbox import cache
from zkconsumer.testing.sandbox.waiting import pause_ms

OWNER_FILE = "run.json"
PS_TIMEOUT_S = 10
# A process that got SIGKILL ends when the kernel has freed its memory, which takes seconds on a busy machine.
KILL_TIMEOUT_MS = 30_000

# The order in which kinds are stopped: a broker without ZooKeeper hangs on SIGTERM.
STOP_ORDER = ("tool", "member", "load", "broker", "zookeeper")


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """One process that was started: enough to know it again, and to know when to stop it."""

    pid: int
    started: str
    kind: str
    name: str
    marker: str

    def is_alive(self) -> bool:
        """Whether that very process still runs; a zombie does not.

        A process that is ending has no command line any more, and may hold its ports still.
        """
        if start_time(self.pid) != self.started:
            return False
        words = command_line(self.pid)
        return self.marker in words or not words

    def signal(self, number: signal.Signals) -> None:
        """Signal the process and its child processes; nothing if it has ended."""
        if self.is_alive():
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)


class SandboxRun:
    """One sandbox's folder and records."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder = folder
        self.root = root
        self.marker = f"-Dzkconsumer.run={folder.name}"

    @classmethod
    def create(cls, root: Path | None = None) -> SandboxRun:
        """A new run of this process.

        ``root`` is where data and logs go; it is left in place.  Without it they go into the run's own folder, which
        is removed with the run.
        """
        owner = {"machine": machine(), "pid": os.getpid(), "started": start_time(os.getpid())}
        target = cache.folder("runs") / f"{SYSTEM_CLOCK.wall_ms()}-{os.getpid()}-{os.urandom(3).hex()}"
        with cache.atomic_folder(target) as building:
            (building / "processes").mkdir()
            (building / OWNER_FILE).write_text(json.dumps({"owner": owner}))
        files = root or target / "files"
        files.mkdir(parents=True, exist_ok=True)
        return cls(target, files)

    def detach(self) -> None:
        """From now on the run has no owner: it lives until ``down`` ends it."""
        path = self.folder / OWNER_FILE
        path.with_suffix(".new").write_text(json.dumps({"owner": None}))
        path.with_suffix(".new").rename(path)

    def record(self, pid: int, kind: str, name: str) -> ProcessRecord | None:
        """Remembers a process that was just started; None if it has ended already."""
        started = start_time(pid)
        if started is None:
            return None
        record = ProcessRecord(pid, started, kind, name, self.marker)
        path = self.folder / "processes" / str(pid)
        path.with_suffix(".new").write_text(json.dumps(asdict(record)))
        path.with_suffix(".new").rename(path)
        return record

    def forget(self, pid: int) -> None:
        """The process has ended."""
        (self.folder / "processes" / str(pid)).unlink(missing_ok=True)

    def records(self) -> list[ProcessRecord]:
        """The processes that were started and not forgotten, in the order in which they should be stopped."""
        return records_of(self.folder)

    def remove(self) -> None:
        """Forgets the run; its files go too if they lie in its folder."""
        remove(self.folder)


def remove(folder: Path) -> None:
    """Removes a run's folder and whatever lies in it."""
    shutil.rmtree(folder, ignore_errors=True)


def records_of(folder: Path) -> list[ProcessRecord]:
    found = []
    for path in folder.glob("processes/*"):
        with suppress(OSError, ValueError, TypeError):  # incomplete, or removed by its owner at this moment
            found.append(ProcessRecord(**json.loads(path.read_text())))
    return sorted(found, key=lambda record: STOP_ORDER.index(record.kind) if record.kind in STOP_ORDER else 0)


def reap() -> list[ProcessRecord]:
    """End, with SIGKILL, the processes of killed runs, remove their folders, and return those that were alive."""
    reaped = []
    for folder in cache.folder("runs").iterdir():
        if _is_abandoned(folder):
            alive = [record for record in records_of(folder) if record.is_alive()]
            end(alive, timeout_ms=0)
            reaped += alive
            remove(folder)
    return reaped


def end(records: Iterable[ProcessRecord], timeout_ms: int) -> None:
    """Stops processes one after the other: SIGTERM, ``timeout_ms`` of patience, SIGKILL."""
    for record in records:
        if timeout_ms > 0:
            record.signal(signal.SIGCONT)  # a stopped process does not hear SIGTERM
            record.signal(signal.SIGTERM)
            _wait_for_end(record, timeout_ms)
        record.signal(signal.SIGKILL)
        _wait_for_end(record, KILL_TIMEOUT_MS)


def start_time(pid: int) -> str | None:
    """When a process started, as a text to compare; None if there is no such process (or only a zombie)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]
    except OSError:
        return None if Path("/proc/self").exists() else _ps(pid, "lstart=")


def machine() -> str:
    """Where a process id means something: this host, and this container of it.  A home folder may be shared."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return f"{platform.node()} {namespace}".strip()


def command_line(pid: int) -> str:
    """The words of a process's command line; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "" if Path("/proc/self").exists() else _ps(pid, "command=") or ""


def _is_abandoned(folder: Path) -> bool:
    try:
        owner = json.loads((folder / OWNER_FILE).read_text())["owner"]
    except (OSError, ValueError, KeyError):
        return False  # not a run, or just being removed
    if owner is None or owner["machine"] != machine():
        return False  # detached, or perhaps alive where we cannot see it
    return bool(start_time(owner["pid"]) != owner["started"])


def _wait_for_end(record: ProcessRecord, timeout_ms: int) -> None:
    deadline_ms = SYSTEM_CLOCK.now_ms() + timeout_ms
    while record.is_alive() and SYSTEM_CLOCK.now_ms() < deadline_ms:
        pause_ms(10)


def _ps(pid: int, column: str) -> str | None:
    done = subprocess.run(
        ["ps", "-o", column, "-p", str(pid)], capture_output=True, text=True, timeout=PS_TIMEOUT_S, check=False
    )
    return done.stdout.strip() or None
