"""Programs of the operator that a migration runs around the cut-over.

    DIR/zkconsumer-on-before-cut-over*    everything is copied and verified, the authority has not moved: a program
                                          that ends with another code than 0, or too late, vetoes (exit code 6: the
                                          fences remain)
    DIR/zkconsumer-on-after-cut-over*     Kafka has the authority, the placeholder has left: start the new members here

They run in the order of their names, without arguments; ``ZKCONSUMER_…`` variables of the environment describe the
migration.  Their output is written to standard error.  A run after a crash runs them again.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.control.phases import Phase
from bridge.migration.errors import HookFailedError, HookVetoError
from bridge.migration.steps.step import StepDone, StepPending, StepRefused, StepStatus
from zkconsumer.errors import PreconditionFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from bridge.migration.steps.migration_context import MigrationContext

BEFORE_CUT_OVER = "zkconsumer-on-before-cut-over"
AFTER_CUT_OVER = "zkconsumer-on-after-cut-over"

HOOK_TIMEOUT_S = 60.0
"""The time limit of each program."""

HOOK_POLL_INTERVAL_S = 0.25
HOOK_KILL_TIMEOUT_S = 5.0
"""How long a program may run after SIGTERM."""


def check_hooks(folder: Path | None) -> None:
    """Check, before anything is changed, that every program can be run.  Raises ``PreconditionFailed``."""
    for event in (BEFORE_CUT_OVER, AFTER_CUT_OVER):
        find_hooks(folder, event)


def find_hooks(folder: Path | None, event: str) -> list[Path]:
    """The programs for an event, by name.  Raises ``PreconditionFailed`` for one that cannot be run."""
    if folder is None:
        return []
    try:
        found = sorted(path for path in folder.iterdir() if path.name.startswith(event) and path.is_file())
    except OSError as error:
        raise PreconditionFailed(f"--hooks-dir {folder} cannot be read: {error.strerror}") from error
    for path in found:
        if not os.access(path, os.X_OK):
            raise PreconditionFailed(f"{path} cannot be run: make it executable, or remove it")
    return found


def hook_steps(moving: MigrationContext, folder: Path | None, event: str) -> Iterator[RunHooks]:
    """The step that runs the programs for an event; none where there are none."""
    step = RunHooks(moving, folder, event)
    if isinstance(step.check(), StepPending | StepRefused):
        yield step


@dataclass(slots=True)
class RunHooks:
    """Every program for one event.  ``folder`` None: there are none.

    Before the cut-over they may veto; after it, when one fails, the next run runs the others (exit code 6).
    """

    context: MigrationContext
    folder: Path | None
    event: str
    timeout_s: float = HOOK_TIMEOUT_S
    _is_done: bool = False

    changes = False

    @property
    def name(self) -> str:
        """See ``MigrationStep``."""
        return f"hook {self.event}"

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return [f"run {path}" for path in find_hooks(self.folder, self.event)]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        try:
            return StepDone() if self._is_done or not find_hooks(self.folder, self.event) else StepPending()
        except PreconditionFailed as error:
            return StepRefused(error)

    def do(self) -> None:
        """See ``MigrationStep``.  Raises ``HookVetoError`` or ``HookFailedError``."""
        moving = self.context
        held = moving.control_znode.require_phase(*Phase)
        environment = {
            "ZKCONSUMER_GROUP": moving.group,
            "ZKCONSUMER_MIGRATION": moving.control_znode.migration_id,
            "ZKCONSUMER_STRATEGY": held.strategy,
            "ZKCONSUMER_PHASE": held.phase.value,
            "ZKCONSUMER_EPOCH": str(held.control.epoch),
            "ZKCONSUMER_AUTHORITY": held.control.authority,
            "ZKCONSUMER_PARTITIONS": str(len(moving.plan.targets)),
        }
        for path in find_hooks(self.folder, self.event):
            problem = run_hook_program(path, environment, self.timeout_s, moving.placeholder.heartbeat_if_due)
            if problem:
                raise self._failed(path, problem)
        self._is_done = True

    def _failed(self, path: Path, problem: str) -> HookVetoError | HookFailedError:
        group = self.context.group
        if self.event == BEFORE_CUT_OVER:
            return HookVetoError(
                f"{path} {problem}: group {group} was not switched. Repair what its output names; then run the same "
                f"command again. Or roll back: zkconsumer migrate rollback {group} --execute"
            )
        return HookFailedError(
            f"{path} {problem}. Group {group} is switched to Kafka all the same; the same command runs the programs "
            "again"
        )


def run_hook_program(
    path: Path, environment: Mapping[str, str], timeout_s: float, heartbeat: Callable[[], None]
) -> str:
    """Run it to its end; empty after success, else the problem.  ``heartbeat`` is called while it runs.

    The program has a process group of its own, which is ended completely after the time limit or an interrupt.
    """
    try:
        process = subprocess.Popen(
            [path.absolute()], env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(),
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return f"cannot be run: {error.strerror}"
    try:
        for _ in range(math.ceil(timeout_s / HOOK_POLL_INTERVAL_S)):
            try:
                code = process.wait(HOOK_POLL_INTERVAL_S)
            except subprocess.TimeoutExpired:
                heartbeat()
                continue
            return "" if code == 0 else f"ended with {code}"
        return f"did not end within {timeout_s:g} s"
    finally:
        _terminate(process)


def _terminate(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(HOOK_KILL_TIMEOUT_S)
