"""The loop that carries steps out: what it does with each answer of a step."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from bridge.migration.errors import PartiallyDoneError, WaitTimeoutError
from bridge.migration.steps.step import (
    MigrationStep,
    StepDone,
    StepPending,
    StepRefused,
    StepRunner,
    StepStatus,
    StepWaiting,
)
from bridge.migration.steps.step_executors import ApplyExecutor
from zkconsumer.errors import PreconditionFailed, UsageError, ZkConsumerError, ZkReadNotAuthorized
from zkconsumer.testing.manual_clock import ManualClock


@dataclass
class OneStep:
    """Gives its answers one after the other, the last for ever."""

    name: str
    answers: list[StepStatus]
    changes: bool = True
    did: int = 0

    def describe(self) -> list[str]:
        return [f"does {self.name}"]

    def check(self) -> StepStatus:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def do(self) -> None:
        self.did += 1


@dataclass
class Doer:
    clock: ManualClock
    rechecks_steps: bool = True
    said: list[str] = field(default_factory=list)

    def execute(self, step: MigrationStep) -> None:
        self.said.append(f"do {step.name}")
        if self.rechecks_steps:
            step.do()

    def on_already_done(self, step: MigrationStep) -> None:
        self.said.append(f"done {step.name}")

    def on_waiting(self, step: MigrationStep, waiting: StepWaiting, left_ms: int) -> bool:
        self.said.append(f"wait {waiting.waits_for} {left_ms}")
        self.clock.move(400)
        return self.rechecks_steps

    def on_refused(self, step: MigrationStep, error: ZkConsumerError) -> None:
        self.said.append(f"refused {step.name}")
        if self.rechecks_steps:
            raise error


class NoInvariant:
    """For an executor with steps of no migration."""

    def check_before(self, step: MigrationStep) -> None:
        pass

    def check_after(self, step: MigrationStep) -> None:
        pass

    def restart(self) -> None:
        pass


def run(steps: list[OneStep], *, for_real: bool = True, aborted_at: int = 99) -> tuple[list[str], StepRunner]:
    clock = ManualClock()
    doer = Doer(clock, for_real)
    looks = iter(range(100))
    it = StepRunner(doer, clock, 1_000, "zkconsumer migrate apply p.json --execute", lambda: next(looks) >= aborted_at)
    try:
        it.run_steps(steps)
    except ZkConsumerError as error:
        doer.said.append(f"{type(error).__name__}: {error}")
    return doer.said, it


def test_done_steps_are_skipped_and_others_are_executed_once() -> None:
    steps = [OneStep("a", [StepDone()]), OneStep("b", [StepPending(), StepDone()])]
    said, it = run(steps)
    assert said == ["done a", "do b", "done b"]
    assert [step.did for step in steps] == [0, 1]
    assert it.has_changed


def test_a_step_that_does_nothing_is_a_bug() -> None:
    said, _ = run([OneStep("a", [StepPending()]), OneStep("b", [StepPending(), StepDone()])])
    assert said == ["do a", "InternalError: step 'a' was executed, and is still pending"]


def test_waiting_ends_when_the_other_has_left() -> None:
    said, it = run([OneStep("a", [StepWaiting("m1"), StepWaiting("m1"), StepDone()], changes=False)])
    assert said == ["wait m1 1000", "wait m1 600", "done a"]
    assert not it.has_changed


def test_waiting_too_long_before_and_after_the_first_change() -> None:
    """Exit code 7 means that nothing was changed, 6 that the command continues."""
    said, _ = run([OneStep("a", [StepWaiting("m1")])])
    assert said[-1].startswith("WaitTimeoutError: a: the --timeout ended, waiting for m1; nothing was changed")
    said, _ = run([OneStep("a", [StepPending(), StepDone()]), OneStep("b", [StepWaiting("m1")])])
    assert said[-1].startswith(
        "PartiallyDoneError: b: the --timeout ended, waiting for m1. The completed steps remain; continue with: "
        "zkconsumer"
    )
    assert (WaitTimeoutError.exit_code, PartiallyDoneError.exit_code) == (7, 6)


@pytest.mark.parametrize("error", [PreconditionFailed("no"), ZkReadNotAuthorized("no"), UsageError("no")])
def test_a_refusal_after_the_first_change_does_not_claim_that_nothing_was_changed(error: ZkConsumerError) -> None:
    did, refuses = OneStep("a", [StepPending(), StepDone()]), OneStep("b", [StepRefused(error)])
    said, it = run([did, refuses])
    resume = "zkconsumer migrate apply p.json --execute"
    assert said[-1] == f"PartiallyDoneError: no\nThe completed steps remain; then continue with: {resume}"
    assert it.has_changed_in_this_run
    said, _ = run([OneStep("a", [StepPending(), StepDone()], changes=False), refuses])
    assert said[-1] == f"{type(error).__name__}: no", "a look is no change"
    said, _ = run([did, refuses], for_real=False)
    assert said[-1] == "refused b"


def test_a_refusal_ends_it() -> None:
    later = OneStep("b", [StepPending(), StepDone()])
    said, _ = run([OneStep("a", [StepRefused(PreconditionFailed("no"))]), later])
    assert said == ["refused a", "PreconditionFailed: no"]
    assert later.did == 0


def test_an_abort_is_seen_between_two_steps() -> None:
    steps = [OneStep("a", [StepPending(), StepDone()]), OneStep("b", [StepPending(), StepDone()])]
    said, _ = run(steps, aborted_at=1)
    assert [step.did for step in steps] == [1, 0]
    assert said[-1].startswith("PartiallyDoneError: stopped before 'b'")


def test_an_abort_is_seen_while_a_step_waits() -> None:
    """Old members that do not leave cause the longest waits, and operators stop runs in these."""
    said, _ = run([OneStep("a", [StepWaiting("m1")], changes=False)], aborted_at=2)
    assert said[:-1] == ["wait m1 1000", "wait m1 600"]
    assert said[-1].startswith("PartiallyDoneError: stopped before 'a'")


def test_a_dry_run_shows_every_step_and_changes_nothing() -> None:
    steps = [
        OneStep("a", [StepPending()]),
        OneStep("b", [StepWaiting("m1")]),
        OneStep("c", [StepRefused(PreconditionFailed("no"))]),
        OneStep("d", [StepDone()]),
    ]
    said, _ = run(steps, for_real=False)
    assert said == ["do a", "wait m1 1000", "refused c", "done d"]
    assert not any(step.did for step in steps)


def test_an_unavailable_store_is_reported_every_ten_seconds_and_not_at_each_try() -> None:
    """Each try begins with the first step again: that steps pass is no news of the store."""
    clock, told = ManualClock(), list[str]()
    real = ApplyExecutor(told.append, lambda: None, clock.move, clock, NoInvariant())
    away = ZkConsumerError("no broker answers")
    for left_ms in range(25_000, 0, -1_000):
        real.on_already_done(OneStep("looks", [StepDone()]))
        real.on_unavailable(away, left_ms)
    assert told == [f"no broker answers; trying again ({left} s left)" for left in (25, 15, 5)]
