"""M5 for a process that is paused, and not killed: it continues after others acted, at each of its writes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from bridge.migration.plan.migration_plan import MigrationPlan
from tests.migration.dual_kill_cases import DualBackAfter, DualBackBefore, DualComplete, Forth
from tests.migration.kill_cases import GROUP, Apply, BackAfter, BackBefore, Complete, KillCase, KillScenario, Life
from tests.migration.pause_cases import (
    GONE,
    OPERATORS,
    Act,
    Gone,
    Operates,
    Outcome,
    a_coordinator_client_commits,
    an_old_member_starts,
    nobody_acts,
    operator,
    pause_at,
)
from zkconsumer.errors import InternalError, ZkConsumerError

MakeWay = Callable[[], KillCase]
WAYS: tuple[type[KillCase], ...] = (
    Apply, BackBefore, BackAfter, Complete, Forth, DualBackBefore, DualBackAfter, DualComplete,
)  # fmt: skip
ACTS: tuple[Act, ...] = (nobody_acts, a_coordinator_client_commits, an_old_member_starts, *map(operator, OPERATORS))


def outcomes(make: MakeWay, act: Act, gone: Gone, folder: Path) -> list[Outcome]:
    """One for each write of the command."""
    found: list[Outcome] = []
    for at in count(1):
        outcome = pause_at(make(), at, act, gone, folder)
        if outcome is None:
            return found
        found.append(outcome)
    raise AssertionError("a command ends")


def wrong(found: list[Outcome]) -> list[str]:
    """What must not be: findings, and errors that no operator can act on."""
    return [
        f"{one.phase}, before {one.write}: {one.findings} {one.error!r}"
        for one in found
        if one.findings or isinstance(one.error, InternalError) or not isinstance(one.error, ZkConsumerError | None)
    ]


FOR_EVERY_RUN = {
    (BackAfter, nobody_acts), (BackAfter, a_coordinator_client_commits), (Apply, a_coordinator_client_commits),
    (Forth, nobody_acts),
}  # fmt: skip
"""Where the authority moves; the others are tried at night."""
CASES = [
    pytest.param(make, act, id=f"{make.__name__}-{act.__name__}",
                 marks=() if (make, act) in FOR_EVERY_RUN else pytest.mark.nightly)
    for make in WAYS
    for act in ACTS
]  # fmt: skip


@pytest.mark.parametrize("gone", GONE)
@pytest.mark.parametrize(("make", "act"), CASES)
def test_paused_at_any_write(tmp_path: Path, make: MakeWay, act: Act, gone: Gone) -> None:
    found = outcomes(make, act, gone, tmp_path)
    assert len(found) >= make().writes_min
    assert wrong(found) == []
    if act is nobody_acts:
        ends = [one.ground.control(GROUP) for one in found]
        assert {None if end is None else end.phase for end in ends} <= set(make().ends), "it goes on by itself"


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("gone", GONE)
@pytest.mark.parametrize("operates", OPERATORS)
@pytest.mark.parametrize("make", WAYS)
def test_paused_at_any_write_while_another_operator_stops_at_any_of_his(
    tmp_path: Path, make: MakeWay, operates: Operates, gone: Gone
) -> None:
    for stop in count(1):
        lives: list[Life] = []

        def act(ground: KillScenario, plan: MigrationPlan, stop: int = stop, lives: list[Life] = lives) -> None:
            lives.append(Life(stop, "before"))
            operator(operates, lives[-1])(ground, plan)

        found = outcomes(make, act, gone, tmp_path)
        assert wrong(found) == [], f"stopped before his write {stop}"
        if not any(life.was_reached for life in lives):
            return
