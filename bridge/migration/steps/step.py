"""The steps of a migration: their interface, and the loop that executes or shows them.

A step is idempotent.  It checks the state of the stores, never a record of what was done:

    check -> StepDone             the state is what the step requires; continue
          -> StepPending          ``do`` it
          -> StepWaiting(for)     a member or a server must change first; check again
          -> StepRefused(error)   it cannot be done now, and why

``StepRunner`` is the only loop.  It checks a step before it executes it, and again afterwards: ``StepPending`` after
the execution is a bug.  It waits for a ``StepWaiting`` step until the operator's deadline.  A request to stop ends the
run between two steps or while a step waits.  The loop waits for an unavailable store until the same deadline; then it
derives the steps again from the current state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from bridge.migration.errors import PartiallyDoneError, WaitTimeoutError
from bridge.migration.steps.unavailable_stores import is_unavailable
from zkconsumer.base.clock import Clock
from zkconsumer.errors import InternalError, PreconditionFailed, UsageError, ZkConsumerError

_NOTHING_CHANGED = (UsageError.exit_code, PreconditionFailed.exit_code)


@dataclass(frozen=True, slots=True)
class StepDone:
    """The state is what the step requires."""


@dataclass(frozen=True, slots=True)
class StepPending:
    """The step can be executed now."""


@dataclass(frozen=True, slots=True)
class StepWaiting:
    """``waits_for``: text for the operator, with names, that follows "waiting for"."""

    waits_for: str


@dataclass(frozen=True, slots=True)
class StepRefused:
    """``error``: who must act and what to do, with the exit code."""

    error: ZkConsumerError


StepStatus: TypeAlias = StepDone | StepPending | StepWaiting | StepRefused


class MigrationStep(Protocol):
    """One named, idempotent action."""

    @property
    def name(self) -> str:
        """The name for the operator and the log; the same in every run."""

    @property
    def changes(self) -> bool:
        """Whether ``do`` changes a store; a run that waited too long before the first of them changed nothing."""

    def describe(self) -> list[str]:
        """What ``do`` will do, line by line, for the dry run."""

    def check(self) -> StepStatus:
        """Check the state of the stores; changes nothing."""

    def do(self) -> None:
        """Execute it, or the part that is not done; raises on failure.  After any interruption it can run again."""


class CheckingStep:
    """A ``MigrationStep`` that only checks: it is done, waits or is refused, so ``do`` is never needed."""

    __slots__ = ()
    changes = False

    def do(self) -> None:
        """There is nothing to do."""


class StepExecutor(Protocol):
    """Executes the steps (``ApplyExecutor``) or shows them (``DryRunExecutor``)."""

    @property
    def rechecks_steps(self) -> bool:
        """Whether a step is checked again after its execution; not in a dry run, which changes nothing."""

    def execute(self, step: MigrationStep) -> None:
        """Called for a pending step."""

    def on_already_done(self, step: MigrationStep) -> None:
        """Called for a step that is already done."""

    def on_waiting(self, step: MigrationStep, waiting: StepWaiting, left_ms: int) -> bool:
        """Called for a step that waits: True (after a pause): check it again; False: continue without it."""

    def on_refused(self, step: MigrationStep, error: ZkConsumerError) -> None:
        """Called for a refused step: raise the error, or record it and continue."""

    def on_unavailable(self, error: ZkConsumerError, left_ms: int) -> None:
        """Called when a store is unavailable: return after a pause, or raise the error."""


@dataclass(slots=True)
class StepRunner:
    """Runs the steps.

    ``timeout_ms``: the limit of all waits together.  ``resume_command``: the command that continues.  ``has_changed``:
    whether a store was changed, also by an earlier run; ``has_changed_in_this_run``: by this one.
    """

    executor: StepExecutor
    clock: Clock
    timeout_ms: int
    resume_command: str
    is_abort_requested: Callable[[], bool]
    has_changed: bool = False
    has_changed_in_this_run: bool = False
    _deadline_ms: int | None = None

    def run_with_retry(self, make_steps: Callable[[], Iterable[MigrationStep]]) -> None:
        """``run_steps``, and again from the first step on when a store was unavailable; ``make_steps`` returns the
        steps.

        Raises what ``run_steps`` raises, and a timeout error when a store does not answer before the deadline.
        """
        while True:
            try:
                self.run_steps(make_steps())
            except ZkConsumerError as error:
                if not is_unavailable(error):
                    raise
                left_ms = self._left_ms()
                if left_ms <= 0:
                    raise self._timeout_error(f"the --timeout ended: {error}") from error
                self.executor.on_unavailable(error, left_ms)
            else:
                return

    def run_steps(self, steps: Iterable[MigrationStep]) -> None:
        """Run the steps in their order.

        Raises the error of a refused step.  Once this run has changed something, an error that promises that nothing
        was changed becomes ``PartiallyDoneError``.  Raises ``WaitTimeoutError`` when nothing was changed yet, else
        ``PartiallyDoneError``, also when an operator aborted it.
        """
        self._left_ms()  # the deadline counts from here
        try:
            self._run_steps(steps)
        except ZkConsumerError as error:
            if self.has_changed_in_this_run and error.exit_code in _NOTHING_CHANGED:
                raise PartiallyDoneError(
                    f"{error}\nThe completed steps remain; then continue with: {self.resume_command}"
                ) from error
            raise

    def _run_steps(self, steps: Iterable[MigrationStep]) -> None:
        for step in steps:
            self._stop_if_aborted(step)
            if self._is_pending(step):
                self.has_changed = self.has_changed or step.changes
                self.has_changed_in_this_run = self.has_changed_in_this_run or (
                    step.changes and self.executor.rechecks_steps
                )
                self.executor.execute(step)
                if self.executor.rechecks_steps and self._is_pending(step):
                    self._stop_if_aborted(step)  # raises the better error when the lock was lost
                    raise InternalError(f"step {step.name!r} was executed, and is still pending")

    def _is_pending(self, step: MigrationStep) -> bool:
        """Whether the step must be executed; waits while the step is ``StepWaiting``."""
        while True:
            standing = step.check()
            match standing:
                case StepDone():
                    self.executor.on_already_done(step)
                    return False
                case StepPending():
                    return True
                case StepRefused(error):
                    self.executor.on_refused(step, error)
                    return False
                case StepWaiting():
                    left_ms = self._left_ms()
                    if left_ms <= 0:
                        raise self._timeout_error(f"{step.name}: the --timeout ended, waiting for {standing.waits_for}")
                    if not self.executor.on_waiting(step, standing, left_ms):
                        return False
                    self._stop_if_aborted(step)

    def _stop_if_aborted(self, step: MigrationStep) -> None:
        if self.is_abort_requested():
            raise PartiallyDoneError(
                f"stopped before {step.name!r} by 'zkconsumer migrate abort'. Continue with: {self.resume_command}"
            )

    def _left_ms(self) -> int:
        """The time until the deadline, which is the same for all waits."""
        if self._deadline_ms is None:
            self._deadline_ms = self.clock.now_ms() + self.timeout_ms
        return self._deadline_ms - self.clock.now_ms()

    def _timeout_error(self, words: str) -> ZkConsumerError:
        if self.has_changed:
            return PartiallyDoneError(f"{words}. The completed steps remain; continue with: {self.resume_command}")
        return WaitTimeoutError(f"{words}; nothing was changed. To try again: {self.resume_command}")
