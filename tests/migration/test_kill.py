"""M5: killed at any write of either store, and at any two, a migration ends as if it had never been killed.

M1 to M4 are judged over everything that was written in all runs together; M6 is the way back.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from bridge.migration.phases import Phase
from bridge.migration.plan import Plan
from tests.migration.fix_cuts import WAYS, How, Killed
from tests.migration.fix_move import DECISIONS, EXPECTED, Cuts, Lab, judge, lab
from zkconsumer.admin.session import AdminSession
from zkconsumer.types import TopicPartition

__all__ = ["lab"]

KILLS: tuple[How, ...] = ("before", "behind")
T0 = TopicPartition("t", 0)


class Way:
    """One command, what stands before it, and what must stand behind it."""

    name: str

    def prepare(self, lab: Lab) -> tuple[str, Plan]:
        group = lab.new_group()
        return group, lab.plan(group, DECISIONS)

    def run(self, lab: Lab, session: AdminSession, plan: Plan) -> None:
        raise NotImplementedError

    def end(self, lab: Lab, group: str) -> object:
        """What two runs to the same end agree on, besides what ``check`` holds to be right."""
        control = lab.control(group)
        assert control is not None
        kafka = {tp: (offset, text.replace(group, "G")) for tp, (offset, text) in lab.kafka(group).items()}
        return lab.nodes(group), (control.phase, control.epoch, control.authority), kafka

    def check(self, lab: Lab, group: str) -> None:
        """The end, in itself."""


class CopyIt(Way):
    name = "copy"

    def run(self, lab: Lab, session: AdminSession, plan: Plan) -> None:
        lab.apply(session, plan)

    def check(self, lab: Lab, group: str) -> None:
        assert {tp: offset for tp, (offset, _) in lab.kafka(group).items()} == EXPECTED
        assert lab.stands(group) == ("switched", "kafka")
        assert lab.commit(group, 0, 11) == 0, "the seat was left: the modern group may work"


class BackBefore(Way):
    """From ``verified``: everything but the switch was done."""

    name = "back before the switch"

    def prepare(self, lab: Lab) -> tuple[str, Plan]:
        group, plan = super().prepare(lab)
        self.before = lab.nodes(group)
        with lab.process() as session:
            lab.apply(session, plan, hold_at=Phase.VERIFIED)
        return group, plan

    def run(self, lab: Lab, session: AdminSession, plan: Plan) -> None:
        lab.rollback(session, plan)

    def check(self, lab: Lab, group: str) -> None:
        assert lab.nodes(group) == self.before, "as before the migration"
        assert lab.stands(group) == ("undone", "zookeeper")


class BackAfter(Way):
    """From ``switched``, and the modern group has committed."""

    name = "back after the switch"

    def prepare(self, lab: Lab) -> tuple[str, Plan]:
        group, plan = super().prepare(lab)
        with lab.process() as session:
            lab.apply(session, plan)
        assert lab.commit(group, 0, 33) == 0
        return group, plan

    def run(self, lab: Lab, session: AdminSession, plan: Plan) -> None:
        lab.rollback(session, plan)

    def check(self, lab: Lab, group: str) -> None:
        assert lab.offsets(group) == EXPECTED | {T0: 33}, "nothing that was committed is lost"
        assert lab.stands(group) == ("undone", "zookeeper")


WAYS_BACK_AND_FORTH = (CopyIt, BackBefore, BackAfter)


def cut_at(lab: Lab, way: Way, plan: Plan, group: str, cuts: Cuts) -> bool:
    """One process; whether it was killed."""
    try:
        with lab.process(cuts) as session:
            way.run(lab, session, plan)
    except Killed:
        lab.probe(group)
        return True
    assert cuts.how in ("lost", "dropped") or not cuts.was_reached, "a killed process went on"
    return False


def whole(lab: Lab, way: Way) -> tuple[object, list[str]]:
    """Without any cut: what there is in the end, and what was written."""
    group, plan = way.prepare(lab)
    cuts = Cuts()
    cut_at(lab, way, plan, group, cuts)
    end = way.end(lab, group)
    way.check(lab, group)
    judge(lab.history.moments[group])
    assert "LeaveGroup" in cuts.seen, "the seat is written of, too"
    return end, cuts.seen


def ends_right(lab: Lab, way: Way, group: str, end: object, words: str) -> None:
    assert way.end(lab, group) == end, words
    way.check(lab, group)
    judge(lab.history.moments[group])


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("make", WAYS_BACK_AND_FORTH)
def test_cut_off_at_any_write(lab: Lab, make: Callable[[], Way], how: How) -> None:
    way = make()
    end, writes = whole(lab, way)
    for at in range(1, len(writes) + 1):
        group, plan = way.prepare(lab)
        cut_at(lab, way, plan, group, Cuts(at, how))
        with lab.process() as session:
            way.run(lab, session, plan)
        ends_right(lab, way, group, end, f"{how} write {at}, {writes[at - 1]}")


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("make", WAYS_BACK_AND_FORTH)
@pytest.mark.parametrize("second", KILLS)
@pytest.mark.parametrize("first", KILLS)
def test_cut_off_at_any_two_writes(lab: Lab, make: Callable[[], Way], first: How, second: How) -> None:
    way = make()
    end, writes = whole(lab, way)
    for at in range(1, len(writes) + 1):
        for then in count(1):
            group, plan = way.prepare(lab)
            assert cut_at(lab, way, plan, group, Cuts(at, first))
            was_killed = cut_at(lab, way, plan, group, Cuts(then, second))
            with lab.process() as session:
                way.run(lab, session, plan)
            ends_right(lab, way, group, end, f"{first} write {at}, then {second} write {then}")
            if not was_killed:
                break
