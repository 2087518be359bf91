"""M5 and M6 of a group that moves with its members: the tool is killed at any write; the members go on reading.

However often it dies, ``apply`` again ends at the switch and ``rollback`` again where the group began, nothing that was
accepted is lost, and the order rule holds in everything that was written.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from bridge.migration.phases import Phase
from bridge.migration.plan import Plan
from tests.migration.fix_crowd import PARTITIONS, Crowd, DualLab, dual, judge_dual, lab
from tests.migration.fix_cuts import WAYS, How, Killed
from tests.migration.fix_move import Cuts
from zkconsumer.admin.session import AdminSession
from zkconsumer.zk import paths

__all__ = ["dual", "lab"]

KILLS: tuple[How, ...] = ("before", "behind")


class Way:
    """One command, what stands before it, and what must stand behind it."""

    def prepare(self, dual: DualLab) -> tuple[Crowd, Plan]:
        # One partition has no offset: the tool commits that itself.
        crowd = dual.crowd(stored=False)
        return crowd, dual.dual_plan(crowd)

    def run(self, dual: DualLab, session: AdminSession, plan: Plan) -> None:
        raise NotImplementedError

    def check(self, dual: DualLab, crowd: Crowd) -> None:
        raise NotImplementedError


class Forth(Way):
    def run(self, dual: DualLab, session: AdminSession, plan: Plan) -> None:
        dual.move(session, plan)

    def check(self, dual: DualLab, crowd: Crowd) -> None:
        control = dual.control(crowd.group)
        assert control is not None
        assert (control.phase, control.authority, control.epoch) == ("switched", "kafka", 4)
        assert all(dual.zookeeper.data(f"{paths.owner(crowd.group, tp)}/fenced") is not None for tp in PARTITIONS)
        assert {tp: offset for tp, (offset, _) in dual.kafka(crowd.group).items()} == crowd.positions


class BackBefore(Way):
    def prepare(self, dual: DualLab) -> tuple[Crowd, Plan]:
        crowd, plan = super().prepare(dual)
        with dual.process() as session:
            dual.move(session, plan, hold_at=Phase.COPIED)
        return crowd, plan

    def run(self, dual: DualLab, session: AdminSession, plan: Plan) -> None:
        dual.take_back(session, plan)

    def check(self, dual: DualLab, crowd: Crowd) -> None:
        assert dual.stands(crowd.group) == ("undone", "zookeeper")
        assert all(dual.zookeeper.data(f"{paths.owner(crowd.group, tp)}/fenced") is None for tp in PARTITIONS)
        assert set().union(*(member.owned for member in crowd.members)) == set(PARTITIONS)
        assert dual.offsets(crowd.group) == crowd.positions


class BackAfter(BackBefore):
    def prepare(self, dual: DualLab) -> tuple[Crowd, Plan]:
        crowd, plan = Way.prepare(self, dual)
        with dual.process() as session:
            dual.move(session, plan)
        return crowd, plan


WAYS_BACK_AND_FORTH = (Forth, BackBefore, BackAfter)


def cut_at(dual: DualLab, way: Way, plan: Plan, cuts: Cuts) -> bool:
    """One process; whether it was killed."""
    try:
        with dual.process(cuts) as session:
            way.run(dual, session, plan)
    except Killed:
        return True
    assert cuts.how in ("lost", "dropped") or not cuts.was_reached, "a killed process went on"
    return False


def ends_right(dual: DualLab, way: Way, crowd: Crowd, plan: Plan, words: str) -> None:
    with dual.process() as session:
        way.run(dual, session, plan)
    for _ in range(2):
        crowd.acts()
    try:
        way.check(dual, crowd)
        judge_dual(dual.history.moments[crowd.group])
    except AssertionError as error:
        error.add_note(words)
        raise
    crowd.close()


def writes_of(dual: DualLab, way: Way) -> list[str]:
    crowd, plan = way.prepare(dual)
    cuts = Cuts()
    cut_at(dual, way, plan, cuts)
    ends_right(dual, way, crowd, plan, "without any cut")
    return cuts.seen


@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", [pytest.param(how, marks=() if how in KILLS else pytest.mark.nightly) for how in WAYS])
@pytest.mark.parametrize("make", WAYS_BACK_AND_FORTH)
def test_cut_off_at_any_write(dual: DualLab, make: Callable[[], Way], how: How) -> None:
    way = make()
    writes = writes_of(dual, way)
    assert len(writes) >= 4
    for at in range(1, len(writes) + 1):
        crowd, plan = way.prepare(dual)
        cut_at(dual, way, plan, Cuts(at, how))
        ends_right(dual, way, crowd, plan, f"{how} write {at}, {writes[at - 1]}")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", KILLS)
def test_killed_on_the_way_forth_it_goes_back(dual: DualLab, how: How) -> None:
    forth, back = Forth(), BackBefore()
    for at in range(1, len(writes_of(dual, forth)) + 1):
        crowd, plan = forth.prepare(dual)
        cut_at(dual, forth, plan, Cuts(at, how))
        if dual.control(crowd.group) is not None:
            ends_right(dual, back, crowd, plan, f"{how} write {at}")


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("make", WAYS_BACK_AND_FORTH)
@pytest.mark.parametrize("second", KILLS)
@pytest.mark.parametrize("first", KILLS)
def test_cut_off_at_any_two_writes(dual: DualLab, make: Callable[[], Way], first: How, second: How) -> None:
    way = make()
    for at in range(1, len(writes_of(dual, way)) + 1):
        for then in count(1):
            crowd, plan = way.prepare(dual)
            assert cut_at(dual, way, plan, Cuts(at, first))
            was_killed = cut_at(dual, way, plan, Cuts(then, second))
            ends_right(dual, way, crowd, plan, f"{first} write {at}, then {second} write {then}")
            if not was_killed:
                break
