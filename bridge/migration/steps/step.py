"""One named action of a migration, and how actions are carried out: for real, or in words.

A step is idempotent and looks at the world, never at a list of what was done:

    check -> Done                 it is as the step wants it; go on
          -> Todo                 ``do`` it
          -> Waiting(for, ...)    somebody else must come or go; look again
          -> Refused(error)       it cannot be done now, and why

``StepRunner`` is the only loop.  It checks before it does and again afterwards: a step that was done and still says
``StepPending`` is a bug, one that waits is waited for until the deadline that the operator gave.  An abort of somebody
else, seen between two steps or while one waits, ends it.  A store that is away is waited for until the same deadline;
then the steps are derived anew, from what is found.
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
    """It is as the step wants it."""


@dataclass(frozen=True, slots=True)
class StepPending:
    """Nothing stands in the way."""


@dataclass(frozen=True, slots=True)
class StepWaiting:
    """``whom``: for the operator, with names; it stands behind "waiting for"."""

    waits_for: str


@dataclass(frozen=True, slots=True)
class StepRefused:
    """The error says who must act, and has the exit code."""

    error: ZkConsumerError


StepStatus: TypeAlias = StepDone | StepPending | StepWaiting | StepRefused


class MigrationStep(Protocol):
    """Something of which one can say whether it is done."""

    @property
    def name(self) -> str:
        """A few words; the same for the same action in every run: what the log, the story and ``--stop-after`` show."""

    @property
    def changes(self) -> bool:
        """Whether ``do`` changes a store; a run that waited too long before the first of them changed nothing."""

    def describe(self) -> list[str]:
        """What ``do`` will do, line by line, for the dry run."""

    def check(self) -> StepStatus:
        """Look at the world; changes nothing."""

    def do(self) -> None:
        """Do it, or the part that is not done; raises when it cannot.  Cut off anywhere, it may be done again."""


class StepExecutor(Protocol):
    """Who carries steps out: ``ApplyExecutor``, or ``Explain`` for a dry run."""

    @property
    def rechecks_steps(self) -> bool:
        """Whether a step that was performed is checked again: a dry run changes nothing, so there is nothing to see."""

    def execute(self, step: MigrationStep) -> None:
        """A step that is to be done."""

    def on_already_done(self, step: MigrationStep) -> None:
        """A step that was done before."""

    def on_waiting(self, step: MigrationStep, waiting: StepWaiting, left_ms: int) -> bool:
        """A step that waits: True once it was waited a little and should be looked at again, False to go on without."""

    def on_refused(self, step: MigrationStep, error: ZkConsumerError) -> None:
        """A step that cannot be done now: raise the error, or note it and go on."""

    def on_unavailable(self, error: ZkConsumerError, left_ms: int) -> None:
        """A store is away: return once it was waited a little, or raise the error."""


@dataclass(slots=True)
class StepRunner:
    """One run over the steps.

    ``timeout_ms``: how long may be waited altogether.  ``resume``: the command that goes on.  ``has_changed``: whether
    a store was changed, by a run before this one too; ``has_changed_in_this_run``: by this one.
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
        """``carry_out``, once more from the first step on when a store was away meanwhile; ``make_steps`` gives the
        steps.

        Raises the same, and like waiting in vain for a store that does not come back before the deadline.
        """
        while True:
            try:
                self.run_steps(make_steps())
            except ZkConsumerError as error:
                if not is_unavailable(error):
                    raise
                left_ms = self._left_ms()
                if left_ms <= 0:
                    raise self._timeout_error(f"waited long enough: {error}") from error
                self.executor.on_unavailable(error, left_ms)
            else:
                return

    def run_steps(self, steps: Iterable[MigrationStep]) -> None:
        """All of them, in their order.

        Raises what a step refuses with, and ``PartiallyDoneError`` in place of what says that nothing was changed once
        this run has changed something; ``WaitTimeoutError`` when nothing was changed yet, else ``PartiallyDoneError``,
        also when somebody aborted it.
        """
        self._left_ms()  # the time runs from here
        try:
            self._run_steps(steps)
        except ZkConsumerError as error:
            if self.has_changed_in_this_run and error.exit_code in _NOTHING_CHANGED:
                raise PartiallyDoneError(
                    f"{error}\nWhat was done stands; then go on with: {self.resume_command}"
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
                    self._stop_if_aborted(step)  # whose run it is not any more is told so
                    raise InternalError(f"step {step.name!r} was done, and is still to do")

    def _is_pending(self, step: MigrationStep) -> bool:
        """Whether it must be performed; waits for whoever must come or go first."""
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
                        raise self._timeout_error(f"{step.name}: waited long enough for {standing.waits_for}")
                    if not self.executor.on_waiting(step, standing, left_ms):
                        return False
                    self._stop_if_aborted(step)

    def _stop_if_aborted(self, step: MigrationStep) -> None:
        if self.is_abort_requested():
            raise PartiallyDoneError(
                f"stopped before {step.name!r}: somebody aborted it. Go on with: {self.resume_command}"
            )

    def _left_ms(self) -> int:
        """Till the deadline, which is one for everything that is waited for."""
        if self._deadline_ms is None:
            self._deadline_ms = self.clock.now_ms() + self.timeout_ms
        return self._deadline_ms - self.clock.now_ms()

    def _timeout_error(self, words: str) -> ZkConsumerError:
        if self.has_changed:
            return PartiallyDoneError(f"{words}. What was done stands; go on with: {self.resume_command}")
        return WaitTimeoutError(f"{words}; nothing was changed. Again: {self.resume_command}")
