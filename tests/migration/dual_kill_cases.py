"""A group that migrates with its members, on deterministic fakes, whose migration run is killed; all is recorded.

The members are those of ``dual_members``.  They act while the tool waits.  Here they also record the partitions that
they acquire and the records that they receive, and read their start from the store with the authority, as real ones do.
"""

from __future__ import annotations

from pathlib import Path

from bridge.migration.control.phases import Phase, Strategy
from bridge.migration.dual.machine.phase_rules import MembershipSide
from bridge.migration.plan.decisions import Decisions
from bridge.migration.plan.migration_plan import MigrationPlan
from tests.migration.dual_members import DualLab, DualMembers, Member
from tests.migration.dual_order_checker import judge_order
from tests.migration.kill_cases import GROUP, LOG_END, PARTITIONS, KillCase, KillScenario, back_while_there_is_a_way
from tests.migration.migration_write_faults import DECISIONS
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.testing import checker as h
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths

SETTLED_LOOKS = 6


class Reader(Member):
    """A member that writes its history."""

    def __post_init__(self) -> None:
        super().__post_init__()
        ground = self.crowd.lab
        assert isinstance(ground, DualKillScenario)
        self.ground = ground
        self.reads: dict[TopicPartition, int] = {}
        """Partition that it holds -> the next record."""
        self.talk.connection = ground.broker.connect(self.consumer)  # type: ignore[assignment]
        ground.recorder.member(self.consumer, "ours", self.store.session_id)

    def works(self) -> None:
        holds = self.given if self.duty.active_side is MembershipSide.COORDINATOR else self.owned
        for tp in sorted(self.reads.keys() - holds):
            self.ground.recorder.add(h.MemberReleasedPartition, self.consumer, *tp)
            del self.reads[tp]
        for tp in sorted(holds - self.reads.keys()):
            self.reads[tp] = self.ground.position(tp)
            self.ground.recorder.add(h.MemberAcquiredPartition, self.consumer, *tp, self.reads[tp])
            self.crowd.positions[tp] = self.reads[tp]
        super().works()

    def commit(self, tp: TopicPartition, offset: int) -> bool:
        if offset > self.reads[tp]:
            self.ground.recorder.add(h.RecordDelivered, self.consumer, *tp, offset - 1)
            self.reads[tp] = offset
        return super().commit(tp, offset)


class DualKillScenario(KillScenario, DualLab):
    """See above.  Two members hold three partitions; one has no offset, and is the tool's to carry over."""

    def __init__(self, folder: Path, decisions: Decisions = DECISIONS) -> None:
        super().__init__(folder, decisions)
        self.crowds = {}
        self.people = DualMembers(self, GROUP)
        self.crowds[GROUP] = self.people
        self.on_pause = self.people.acts
        for number in range(2):
            self.people.members.append(Reader(self.people, f"{GROUP}_c{number}", lag=number + 1))
        for _ in range(2):
            self.people.acts()
        self.state("before")

    def plan_it(self, strategy: Strategy) -> MigrationPlan:
        return self.dual_plan(self.people)

    def shown(self, offset: int, metadata: str) -> str:
        """When a member came to the end, and so at which epoch, depends on how long the tool was away."""
        return str(offset)

    def position(self, tp: TopicPartition) -> int:
        """Where the next owner starts, from the store that has the authority."""
        control = self.control(GROUP)
        if control is not None and control.authority == "kafka":
            return self.stored().get(tp, (0, ""))[0]
        return int(self.zookeeper.data(paths.offset(GROUP, tp)) or 0)


class Dual(KillCase):
    """One command of ``dual``.  It blocks a late Scala consumer only when the command has ended."""

    strategy: Strategy = "dual"
    writes_min = 4
    is_probed = False
    fenced_in = ""
    """The phase, besides ``switched``, in which every partition has its fence when the command has ended."""

    def ground(self, folder: Path, decisions: Decisions) -> KillScenario:
        return DualKillScenario(folder, decisions)

    def settle(self, ground: KillScenario) -> None:
        """The members follow to the present phase of the group, and read everything."""
        for _ in range(2 * LOG_END + SETTLED_LOOKS):
            ground.on_pause()

    def go_on(self, ground: KillScenario) -> None:
        assert isinstance(ground, DualKillScenario)
        judge_order(ground.recorder.events)
        people, control = ground.people, ground.control(GROUP)
        assert people.positions == dict.fromkeys(PARTITIONS, LOG_END), "members work, and come to the end"
        fenced = {tp for tp in PARTITIONS if ground.zookeeper.data(paths.fence_child(GROUP, tp)) is not None}
        phase = None if control is None else control.phase
        assert fenced == (set(PARTITIONS) if phase == "switched" or phase == self.fenced_in else set())
        if control is not None and control.authority == "kafka":
            assert {tp: offset for tp, (offset, _) in ground.stored().items()} == people.positions
        else:
            assert set().union(*(member.owned for member in people.members)) == set(PARTITIONS)
            assert ground.offsets(GROUP) == people.positions
        people.close()


class Forth(Dual):
    name = "dual: apply"
    ends = ("switched",)

    def run(self, ground: KillScenario, session: AdminSession, plan: MigrationPlan) -> None:
        assert isinstance(ground, DualKillScenario)
        ground.move(session, plan)


class ForthThenBack(Forth):
    name = "dual: apply, then back"
    ends = ("undone",)

    def again(self, ground: KillScenario, session: AdminSession, plan: MigrationPlan) -> None:
        ground.back(session, plan)


class DualBackBefore(Dual):
    """From ``copied``: everything but the switch was done."""

    name = "dual: back before the switch"
    ends = ("undone",)

    def prepare(self, ground: KillScenario) -> MigrationPlan:
        assert isinstance(ground, DualKillScenario)
        plan = super().prepare(ground)
        with ground.process() as session:
            ground.move(session, plan, stop_after=Phase.COPIED)
        return plan

    def run(self, ground: KillScenario, session: AdminSession, plan: MigrationPlan) -> None:
        ground.back(session, plan)


class DualBackAfter(DualBackBefore):
    name = "dual: back after the switch"

    def prepare(self, ground: KillScenario) -> MigrationPlan:
        assert isinstance(ground, DualKillScenario)
        plan = Dual.prepare(self, ground)
        with ground.process() as session:
            ground.move(session, plan)
        return plan


class DualComplete(DualBackAfter):
    name = "dual: complete"
    ends = ("completed",)
    writes_min = 2
    fenced_in = "completed"

    def run(self, ground: KillScenario, session: AdminSession, plan: MigrationPlan) -> None:
        ground.complete(session, remove_fences=False)


class DualCompleteAndLift(DualComplete):
    name = "dual: complete and lift"
    writes_min = 4
    fenced_in = ""

    def run(self, ground: KillScenario, session: AdminSession, plan: MigrationPlan) -> None:
        ground.complete(session, remove_fences=True)


class DualCompleteThenBack(DualCompleteAndLift):
    """As ``CompleteThenBack``."""

    name = "dual: complete, then back"
    ends = ("undone", "completed")

    def again(self, ground: KillScenario, session: AdminSession, plan: MigrationPlan) -> None:
        back_while_there_is_a_way(ground, session, plan)


WAYS_OF_DUAL: tuple[type[KillCase], ...] = (
    Forth, ForthThenBack, DualBackBefore, DualBackAfter, DualComplete, DualCompleteAndLift, DualCompleteThenBack,
)  # fmt: skip
