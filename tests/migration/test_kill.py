"""M5: killed at any write of either store, and at any two, a migration ends as if it never had been, or is undone.

What the stores accepted in all runs together, and what the members before and after were handed, is written down as a
history for each case, and ``zkconsumer check`` finds none of the promises M1 to M6 broken in it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner

from bridge.migration.errors import VerificationError
from bridge.migration.placeholder.placeholder_rules import PLACEHOLDER_SESSION_TIMEOUTS_MS
from bridge.migration.plan.decisions import Decisions
from tests.migration.dual_kill_cases import WAYS_OF_DUAL
from tests.migration.kill_cases import GROUP, PLAIN, T0, WAYS_OF, Apply, KillCase, KillScenario, Life
from tests.migration.migration_write_faults import DECISIONS
from tests.migration.step_write_faults import WAYS, How, Killed
from zkconsumer.cli.check import check
from zkconsumer.testing import checker as h

MakeWay = Callable[[], KillCase]
FOR_EVERY_RUN = {"copy": ("behind", "lost", "dropped"), "dual": ("behind",)}
"""A process that dies before its n-th write leaves the same as one that dies after the previous write; members of a
dual migration take time.  The other cases run at night."""
SINGLE = [
    pytest.param(make, how, marks=() if how in FOR_EVERY_RUN[make.strategy] else pytest.mark.nightly)
    for make in (*WAYS_OF, *WAYS_OF_DUAL)
    for how in WAYS
]


class Cases:
    """The histories of one test, and the one without a kill, with which they are compared."""

    def __init__(self, folder: Path, way: KillCase, decisions: Decisions = DECISIONS) -> None:
        self.folder = folder
        self.way = way
        self.decisions = decisions
        self.names: list[str] = []
        self.writes = self.case("whole", [])

    def case(self, name: str, lives: list[Life]) -> list[str]:
        """One group that is migrated: each life is killed at its point, and one more run ends it."""
        ground = self.way.ground(self.folder, self.decisions)
        (self.folder / "znodes").unlink(missing_ok=True)
        plan = self.way.prepare(ground)
        last = Life()
        runs = [self.way.run, *[self.way.again] * len(lives)]
        for run, life in zip(runs, [*lives, last], strict=True):
            try:
                with ground.process(life) as session:
                    run(ground, session, plan)
            except Killed:
                if self.way.is_probed:
                    ground.probe(GROUP)
        self.way.settle(ground)
        control = ground.control(GROUP)
        if lives and control is not None:
            assert control.phase in self.way.ends, name
        ground.state("end")
        self.way.go_on(ground)
        ground.recorder.add(h.FullReadExpected)
        ground.recorder.save(self.path(name))
        self.names.append(name)
        return last.seen

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.jsonl"

    def check(self) -> None:
        """What a person would type."""
        files = [str(self.path(name)) for name in self.names]
        result = CliRunner().invoke(check, ["--reference", str(self.path("whole")), *files])
        assert result.exit_code == 0, "\n".join(
            line for line in result.stdout.splitlines() if line.startswith(("==", "NOT", *h.FINDING_CODES))
        )


@pytest.mark.parametrize(("make", "how"), SINGLE)
def test_killed_at_any_write(tmp_path: Path, make: MakeWay, how: How) -> None:
    cases = Cases(tmp_path, make())
    assert len(cases.writes) >= cases.way.writes_min
    for at in range(1, len(cases.writes) + 1):
        cases.case(f"{how}-{at}", [Life(at, how)])
    cases.check()


@pytest.mark.parametrize("make", WAYS_OF)
def test_killed_at_any_write_where_owner_nodes_are_the_only_fence(tmp_path: Path, make: MakeWay) -> None:
    cases = Cases(tmp_path, make(), PLAIN)
    for at in range(1, len(cases.writes) + 1):
        cases.case(f"behind-{at}", [Life(at, "behind")])
    cases.check()


def test_a_client_that_joins_after_the_placeholder_of_a_killed_run_is_found_and_not_overwritten(tmp_path: Path) -> None:
    way, refused = Apply(), set()
    for at in range(1, len(Cases(tmp_path, way).writes) + 1):
        ground = KillScenario(tmp_path)
        plan = way.prepare(ground)
        with pytest.raises(Killed), ground.process(Life(at, "behind")) as session:
            way.run(ground, session, plan)
        control = ground.control(GROUP)
        if control is None or control.phase not in ("fenced", "copied", "verified"):
            continue
        ground.let_pass(PLACEHOLDER_SESSION_TIMEOUTS_MS[0])
        assert ground.commit(GROUP, 0, 40) == 0, "nobody is there any more who could be asked"
        with pytest.raises(VerificationError, match="40"), ground.process() as session:
            way.run(ground, session, plan)
        refused.add(control.phase)
        assert ground.stored()[T0] == (40, "")
        with ground.process() as session:
            ground.back(session, plan)
        ground.state("end")
        way.go_on(ground)
        verdict = h.check_history(ground.recorder.events)
        assert verdict.codes == {"commit_in_wrong_store"}, "the strange commit is named, and nothing else is wrong"
    assert refused == {"fenced", "copied", "verified"}


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("make", [*WAYS_OF, *WAYS_OF_DUAL])
def test_killed_at_any_two_writes(tmp_path: Path, make: MakeWay) -> None:
    """A process that dies before its n-th write leaves the same as one that dies after the previous write."""
    cases = Cases(tmp_path, make())
    for at in range(1, len(cases.writes) + 1):
        for then in count(1):
            second = Life(then, "behind")
            cases.case(f"{at}-{then}", [Life(at, "behind"), second])
            if not second.was_reached:
                break
    cases.check()
