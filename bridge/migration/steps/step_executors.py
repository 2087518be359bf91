"""Executes the steps of a run, or shows them in a dry run.

ApplyExecutor    executes and reports each step; while a step waits, it reports for what and how long, and sends the
                 heartbeats of the placeholder member; the invariant is checked before and after each step
DryRunExecutor   shows what would be done, what it would wait for, and what blocks it; changes nothing
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from zkconsumer.base.progress import has_progress_listener, progress_task

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.migration.steps.step import MigrationStep, StepWaiting
    from zkconsumer.base.clock import Clock
    from zkconsumer.errors import ZkConsumerError

STEP_POLL_INTERVAL_MS = 1_000
"""The pause between two checks of a step that waits."""

WAIT_REPORT_INTERVAL_MS = 10_000
"""How often the same wait is reported."""


class StepInvariant(Protocol):
    """What must hold between two steps (``MigrationInvariant``).  The checks send no request."""

    def check_before(self, step: MigrationStep) -> None:
        """Called for a pending step before its execution; raises when the step must not be executed."""

    def check_after(self, step: MigrationStep) -> None:
        """Called when the check of a step has found that it is done, executed by this run or not."""

    def restart(self) -> None:
        """The steps start again from the first one: what the earlier ones have found does not count any more."""


@dataclass(slots=True)
class ApplyExecutor:
    """Executes every step.  ``heartbeat`` is called before each step and while one waits; it raises when another client
    interfered.

    ``invariant``: checked between the steps.  ``executed_steps``: the names of the executed steps, in their order.
    """

    report: Callable[[str], None]
    heartbeat: Callable[[], None]
    pause: Callable[[int], object]
    clock: Clock
    invariant: StepInvariant
    executed_steps: list[str] = field(default_factory=list)
    _reported: str = ""
    _reported_at_ms: int = 0

    rechecks_steps = True

    def execute(self, step: MigrationStep) -> None:
        """See ``StepExecutor``."""
        self.invariant.check_before(step)
        self.heartbeat()
        if not has_progress_listener():
            self.report(f"{step.name} …")
        with progress_task(step.name, is_step=True):
            step.do()
        self.executed_steps.append(step.name)

    def on_already_done(self, step: MigrationStep) -> None:
        """See ``StepExecutor``."""
        self.invariant.check_after(step)
        if self._reported == step.name:
            self.report(f"{step.name}: already done")
            self._reported = ""

    def on_waiting(self, step: MigrationStep, waiting: StepWaiting, left_ms: int) -> bool:
        """See ``StepExecutor``."""
        now_ms = self.clock.now_ms()
        if step.name != self._reported or now_ms - self._reported_at_ms >= WAIT_REPORT_INTERVAL_MS:
            self.report(f"{step.name}: waiting for {waiting.waits_for} ({-(-left_ms // 1_000)} s left)")
            self._reported, self._reported_at_ms = step.name, now_ms
        self.pause(min(STEP_POLL_INTERVAL_MS, left_ms))
        self.heartbeat()
        return True

    def on_refused(self, step: MigrationStep, error: ZkConsumerError) -> None:
        """See ``StepExecutor``."""
        raise error

    def on_unavailable(self, error: ZkConsumerError, left_ms: int) -> None:
        """See ``StepExecutor``."""
        self.invariant.restart()
        words = str(error)
        now_ms = self.clock.now_ms()
        if words != self._reported or now_ms - self._reported_at_ms >= WAIT_REPORT_INTERVAL_MS:
            self.report(f"{words}; trying again ({-(-left_ms // 1_000)} s left)")
            self._reported, self._reported_at_ms = words, now_ms
        self.pause(min(STEP_POLL_INTERVAL_MS, left_ms))


@dataclass(slots=True)
class DryRunStep:
    """One step of a dry run.  ``status``: ``done``, ``to do``, ``waits``, ``blocked`` or ``refused``."""

    name: str
    status: str
    changes: bool
    lines: list[str]


@dataclass(slots=True)
class DryRunExecutor:
    """Shows what each step would do.

    ``error``: what blocks the first step that would change something; later steps are not shown, since a run would not
    reach them.  After a step that would change something, a later step may be refused only because the earlier one has
    not run: its status is ``blocked``.
    """

    steps: list[DryRunStep] = field(default_factory=list)
    error: ZkConsumerError | None = None
    would_change: bool = False
    _is_blocked: bool = False

    rechecks_steps = False

    def execute(self, step: MigrationStep) -> None:
        """See ``StepExecutor``."""
        self._record(step, "to do", step.describe())
        self.would_change = self.would_change or step.changes

    def on_already_done(self, step: MigrationStep) -> None:
        """See ``StepExecutor``."""
        self._record(step, "done", [])

    def on_waiting(self, step: MigrationStep, waiting: StepWaiting, left_ms: int) -> bool:
        """See ``StepExecutor``."""
        self._record(step, "waits", [f"waits for {waiting.waits_for}"])
        self.would_change = self.would_change or step.changes
        return False

    def on_refused(self, step: MigrationStep, error: ZkConsumerError) -> None:
        """See ``StepExecutor``."""
        if self.would_change:
            self._record(step, "blocked", [str(error)])
            return
        self._record(step, "refused", [str(error)])
        self.error = self.error or error

    def on_unavailable(self, error: ZkConsumerError, left_ms: int) -> None:
        """See ``StepExecutor``: a dry run does not wait for a store."""
        raise error

    def _record(self, step: MigrationStep, standing: str, lines: list[str]) -> None:
        self._is_blocked = self._is_blocked or (self.error is not None and step.changes)
        if self._is_blocked:
            return
        self.steps.append(DryRunStep(step.name, standing, step.changes, lines))
