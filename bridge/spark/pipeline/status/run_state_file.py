"""The status file of a pipeline, and whether the process lives that has written it.

The file is beside the checkpoint, not in it, so Spark never sees it: that of ``data/checkpoint`` is
``data/checkpoint.status``.  It is replaced atomically.  A checkpoint that is not on this machine has no status file.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from bridge.migration.plan.atomic_file import write_atomically
from bridge.spark.handoff.checkpoint_files import BadCheckpoint, local_path
from bridge.spark.pipeline.status.run_phase import ProcessSight
from bridge.spark.pipeline.status.run_state import (
    InvalidRunStateError,
    RunProcess,
    RunState,
    parse_run_state,
    run_state_json,
)

SUFFIX = ".status"
FILE_BYTES_MAX = 1024 * 1024

PROC = Path("/proc")


def run_state_path(checkpoint: str) -> Path | None:
    """The status file of a pipeline with this checkpoint; None: the checkpoint is not on this machine."""
    try:
        folder = local_path(checkpoint)
    except BadCheckpoint:
        return None
    return folder.parent / f"{folder.name}{SUFFIX}"


def write_run_state(path: Path, state: RunState) -> None:
    """Raises ``OSError``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, [run_state_json(state)], replace=True)


def read_run_state(path: Path) -> RunState | None:
    """None: there is no file.  Raises ``InvalidRunStateError``, also for one that this user may not read."""
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InvalidRunStateError(f"{path}: {error.strerror}; look at it as the user who runs the pipeline") from error
    return parse_run_state(data.decode("utf-8", "replace"), str(path))


def this_process() -> RunProcess:
    """This process, for the status file."""
    pid = os.getpid()
    return RunProcess(socket.gethostname(), _boot(), _namespace(), pid, _started_ticks(pid) or 0)


def sight_of(process: RunProcess) -> ProcessSight:
    """Whether that process lives."""
    if process.host == socket.gethostname() and process.boot and process.boot != _boot():
        return ProcessSight.GONE  # the machine was started again
    if (process.boot, process.namespace) != (_boot(), _namespace()) or not process.boot:
        return ProcessSight.NOT_SEEN
    ticks = _started_ticks(process.pid)
    return ProcessSight.LIVES if ticks is not None and ticks == process.started_ticks else ProcessSight.GONE


def _boot() -> str:
    """The id of this boot; empty where the system has none."""
    try:
        return (PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return os.readlink(PROC / "self/ns/pid")
    except OSError:
        return ""


def _started_ticks(pid: int) -> int | None:
    """When a process started, in ticks since the boot; None: there is none, or it is a zombie."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The name of the program is in parentheses and may contain any character.
    fields = text.rpartition(")")[2].split()
    return None if not fields or fields[0] == "Z" else int(fields[19])
