"""A group of three partitions on deterministic fakes, whose migration run is killed; everything is recorded.

    KillScenario  both stores, the group, the members before and after, the recorder of what the stores accepted
    KillCase      one command, the state before it, and the required state after it

A killed process writes nothing any more, and its session ends after ZooKeeper's time-out.  Every case has a
scenario of its own, in which the same happens each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bridge.broker.emulated_releases import DEFAULT_RELEASE
from bridge.migration.control.control_acls import check_control_acls
from bridge.migration.control.control_layout import phase_of
from bridge.migration.control.phases import Phase, Strategy, blocks_old_members
from bridge.migration.plan.decisions import Decisions
from bridge.migration.plan.migration_plan import MigrationPlan
from bridge.migration.steps.complete import complete_steps
from bridge.migration.steps.migration_context import read_effective_plan
from bridge.migration.steps.rollback import RollbackOptions, rollback_steps
from bridge.testing import HistoryRecorder
from bridge.testing.fake_environment import ADDRESS
from tests.migration.deterministic_broker import DeterministicBroker
from tests.migration.migration_write_faults import DECISIONS, STORED, CutConnection, Cuts, CutStore, History, Lab
from tests.migration.step_write_faults import Killed
from zkconsumer.admin.admin_session import SESSION_TIMEOUT_MS, AdminDependencies, AdminSession
from zkconsumer.errors import PreconditionFailed
from zkconsumer.kafka.broker_connection import Connection
from zkconsumer.testing import checker as h
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.testing.fake_zookeeper import FakeZooKeeper
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import OFFSET_COMMIT, OFFSET_FETCH
from zkconsumer.wire.schemas.offset_commit import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from zkconsumer.wire.schemas.offset_fetch import OffsetFetchRequest
from zkconsumer.zk import paths
from zkconsumer.zk.requests import Create, NodeExists, Request, SetData, StoreError
from zkconsumer.zk.store import submit_and_wait
from zkconsumer.zk.znode_formats import ControlRecord, parse_control

GROUP = "g"
LOG_END = 50
PLAIN = replace(DECISIONS, acl_fence=False)
"""Fenced by owner nodes alone."""
PARTITIONS = tuple(TopicPartition("t", number) for number in range(3))
T0 = PARTITIONS[0]
NEW_OFFSETS = frozenset(f"/offsets/t/{tp.partition}" for tp in PARTITIONS if tp not in STORED)
"""They may come with a commit, and stay then."""


class NoHistory(History):
    """The broker itself informs the recorder."""

    def committed(self, group: str, tp: TopicPartition, offset: int) -> None:
        pass


@dataclass
class Life(Cuts):
    """Where a process is cut off.  A dead one sends nothing more, whatever its code does on the way out."""

    is_dead: bool = False

    @contextmanager
    def lasts(self) -> Iterator[None]:
        if self.is_dead:
            raise Killed
        try:
            yield
        except Killed:
            self.is_dead = True
            raise


class KilledStore(CutStore):
    """ZooKeeper, as a process with a life reaches it."""

    cuts: Life

    def submit(self, session_id: int | None, requests: Sequence[Request], done: Any) -> None:
        with self.cuts.lasts():
            super().submit(session_id, requests, done)


class KilledConnection(CutConnection):
    """A broker, as that process reaches it."""

    _cuts: Life

    def request(self, *args: Any, **how: Any) -> Any:
        with self._cuts.lasts():
            return super().request(*args, **how)

    def send(self, *args: Any, **how: Any) -> Any:
        with self._cuts.lasts():
            return super().send(*args, **how)


class KillScenario(Lab):
    """See above."""

    broker: DeterministicBroker  # type: ignore[assignment]

    def __init__(self, folder: Path, decisions: Decisions = DECISIONS, release: str = DEFAULT_RELEASE) -> None:
        self.folder = folder
        self.decisions = decisions
        clock = ManualClock()
        zookeeper = FakeZooKeeper(clock=clock)
        broker = DeterministicBroker(zookeeper, clock, {"offsets.topic.num.partitions": "1"}, release)
        super().__init__(broker, zookeeper, NoHistory(), clock)  # type: ignore[arg-type]
        broker.create_topic("t", len(PARTITIONS))
        for tp in PARTITIONS:
            broker.append("t", tp.partition, [b"x"] * LOG_END)
        zookeeper.ensure(paths.ids(GROUP))
        zookeeper.ensure(paths.owners_of_topic(GROUP, "t"))
        for tp, offset in STORED.items():
            zookeeper.ensure(paths.offset(GROUP, tp), b"%d" % offset)
        self.runs = 0
        self.recorder = HistoryRecorder(GROUP)
        for tp in PARTITIONS:
            self.recorder.add(h.LogRangeReported, *tp, 0, LOG_END)
            self.recorder.add(h.InitialOffset, *tp, STORED.get(tp, 0))
        self.state("before")
        zookeeper.on_changes = self.recorder.zookeeper_callback(zookeeper)
        broker.cluster.on_group_response = self.recorder.kafka_callback(
            lambda asked, body: asked.client_host[1:] or None
        )

    # --- the migrator -------------------------------------------------------------------------------------------

    @contextmanager
    def process(self, life: Life | None = None) -> Iterator[AdminSession]:  # type: ignore[override]
        """A run of the tool; ``Killed`` leaves its session to ZooKeeper, which ends it when its time is over."""
        life = life or Life()
        self.runs += 1
        name = f"run {self.runs}"
        self.recorder.member(name, "migrator")
        made: list[KilledStore] = []

        def store(connect: str, timeout_ms: int) -> KilledStore:
            one = KilledStore(self.zookeeper, "", timeout_ms, self.login)
            one.cuts = life
            made.append(one)
            return one

        def connect(host: str, port: int, **how: Any) -> Connection:
            kind: Any = partial(KilledConnection, life, self.history)
            return self.broker.connect(name, kind, **how)

        session = AdminSession.open(ADDRESS, self.config_file, AdminDependencies(store, connect, self.clock))
        self.recorder.session(session.session_id or 0, name)
        try:
            yield session
        except Killed:
            self.recorder.add(h.Killed, name)
            for one in made:
                if one in self.zookeeper.stores:
                    end = partial(self.zookeeper.expire, one, reconnects=False)
                    self.broker.scheduler.call_in(SESSION_TIMEOUT_MS, end)
            raise
        except BaseException:
            session.close()
            self.recorder.add(h.Left, name, clean=False)
            raise
        session.close()
        self.recorder.add(h.Left, name)

    def pause(self, ms: int) -> None:
        super().pause(ms)
        self.broker.scheduler.catch_up()

    def let_pass(self, ms: int) -> None:
        """No client does anything for this time: sessions end, and with them the placeholder member."""
        self.pause(ms)
        described = self.broker.group(GROUP)
        if described is None or not described.members:
            self.recorder.placeholder_expired()

    def probe(self, group: str) -> None:
        """Try to register and to commit: refused in every phase that requires it; the recorder records what is
        accepted.
        """
        control = self.control(group)
        if control is None or not blocks_old_members(phase_of(control)):
            return
        old = FakeZkStore(self.zookeeper)
        old.start(1_000)
        tries: list[Request] = [Create(paths.owner(group, PARTITIONS[0]), b"old", ephemeral=True)]
        if self.decisions.acl_fence:
            tries += [
                Create(f"{paths.ids(group)}/old", b"x", ephemeral=True),
                SetData(paths.offset(group, T0), b"1", -1),
            ]
        answers = submit_and_wait(old, tries, 1_000)
        old.close(1_000)
        assert all(isinstance(one, StoreError) for one in answers), f"in phase {control.phase} an old member was let in"
        if control.phase in ("fenced", "copied", "verified"):
            assert self.commit(group, 0, 1), f"in phase {control.phase} a tool's commit was taken"

    def plan_it(self, strategy: Strategy) -> MigrationPlan:
        plan = self.plan(GROUP, self.decisions)
        assert plan.strategy == strategy, "a plan is made for it"
        return plan

    def back(self, session: AdminSession, plan: MigrationPlan) -> None:
        """As ``zkconsumer migrate rollback`` does it, with the plan that was kept, or with none."""
        check_control_acls(session, GROUP)
        try:
            kept, has_plan = read_effective_plan(session, GROUP), True
        except PreconditionFailed:
            kept, has_plan = plan, False
        moving = self.moving(session, kept)
        self.carry_out(moving, partial(rollback_steps, moving, RollbackOptions(lambda _: None, 1_000, has_plan)))

    def complete(self, session: AdminSession, *, remove_fences: bool = False) -> None:
        """The archive of each ground is a file of its own."""
        check_control_acls(session, GROUP)
        moving = self.moving(session, read_effective_plan(session, GROUP))
        self.carry_out(moving, partial(complete_steps, moving, self.folder / "znodes", remove_fences=remove_fences))

    # --- the members --------------------------------------------------------------------------------------------

    def modern(self, ends: dict[TopicPartition, int], name: str = "new") -> None:
        """A member of the coordinator group reads each partition from Kafka's offset on, up to these, and commits."""
        self.recorder.member(name, "ours")
        stored = self.stored()
        for tp, end in ends.items():
            self._read(name, tp, stored[tp][0] if tp in stored else 0, end)
            assert not self.commit(GROUP, tp.partition, end, name), "the modern group may work"
            self.recorder.add(h.MemberReleasedPartition, name, *tp)

    def commit(self, group: str, partition: int, offset: int, name: str = "") -> int:
        """Commit without a membership; returns the error code."""
        row = OffsetCommitPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
        topics = [OffsetCommitTopic(name="t", partitions=[row])]
        body = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)
        connection = self.broker.connect(name)
        answer = connection.request(OFFSET_COMMIT, 2, body, 1_000)
        connection.close()
        return int(answer.topics[0].partitions[0].error_code)

    def old(self, name: str = "old") -> None:
        """An old member claims every partition, reads it to its end, and commits."""
        store = FakeZkStore(self.zookeeper)
        store.start(1_000)
        self.recorder.member(name, "ours", store.session_id)
        for tp in PARTITIONS:
            owner, node = paths.owner(GROUP, tp), paths.offset(GROUP, tp)
            [claimed] = submit_and_wait(store, [Create(owner, name.encode(), ephemeral=True)], 1_000)
            assert not isinstance(claimed, StoreError), f"old members may work: {claimed}"
            self._read(name, tp, int(self.zookeeper.data(node) or 0), LOG_END)
            parents = [Create(path) for path in paths.parents(node)]
            *_, made = submit_and_wait(store, [*parents, Create(node, b"%d" % LOG_END)], 1_000)
            if isinstance(made, NodeExists):
                [made] = submit_and_wait(store, [SetData(node, b"%d" % LOG_END, -1)], 1_000)
            assert not isinstance(made, StoreError), f"old members may work: {made}"
        store.close(1_000)

    def _read(self, name: str, tp: TopicPartition, start: int, end: int) -> None:
        self.recorder.add(h.MemberAcquiredPartition, name, *tp, start)
        if end > start:
            self.recorder.add(h.RecordRangeDelivered, name, *tp, start, end - 1)

    # --- the end ------------------------------------------------------------------------------------------------

    def state(self, when: str) -> None:
        """The state: the old group's nodes without the data of offsets, the control znode, Kafka's values."""
        nodes, others = {}, {}
        for path, (data, acl) in self.nodes(GROUP).items():
            rights = ", ".join(sorted(f"{one.scheme}:{one.id}:{one.perms}" for one in acl))
            if path in NEW_OFFSETS:
                others[path] = rights
            else:
                nodes[path] = rights if path.startswith("/offsets/t/") else f"{data.decode()} {rights}"
        if when == "end":
            control = self.control(GROUP)
            others["control"] = "" if control is None else f"{control.phase} {control.epoch} {control.authority}"
            others |= {f"kafka {tp}": self.shown(*value) for tp, value in self.stored().items()}
        self.recorder.add(h.StateSnapshot, when, nodes, others)

    def shown(self, offset: int, metadata: str) -> str:
        """What two runs to the same end agree on of a value in Kafka."""
        return f"{offset} {metadata}"

    def control(self, group: str) -> ControlRecord | None:
        data = self.zookeeper.data(paths.control(group))
        return None if data is None else parse_control(data)

    def stored(self) -> dict[TopicPartition, tuple[int, str]]:
        """What Kafka has, with the metadata."""
        connection = self.broker.connect("")
        found = connection.request(OFFSET_FETCH, 5, OffsetFetchRequest(group_id=GROUP, topics=None), 1_000)
        connection.close()
        return {TopicPartition(topic.name, one.partition_index): (one.committed_offset, one.metadata or "")
                for topic in found.topics for one in topic.partitions}  # fmt: skip


# --- the commands -----------------------------------------------------------------------------------------------


class KillCase:
    """One command of a strategy.  ``again``: what is run after the kill, by default the same."""

    name: str
    ends: tuple[str, ...]
    """The phases in which it may end."""
    strategy: Strategy = "copy"
    writes_min = 10
    """A command that writes less is not the one that is meant."""
    is_probed = True
    """Whether old members must be blocked, wherever it is killed, in the phases that require it."""

    def ground(self, folder: Path, decisions: Decisions) -> KillScenario:
        return KillScenario(folder, decisions)

    def prepare(self, ground: KillScenario) -> MigrationPlan:
        return ground.plan_it(self.strategy)

    def run(self, ground: KillScenario, session: AdminSession, plan: MigrationPlan) -> None:
        raise NotImplementedError

    def again(self, ground: KillScenario, session: AdminSession, plan: MigrationPlan) -> None:
        self.run(ground, session, plan)

    def settle(self, ground: KillScenario) -> None:
        """Members that still run follow before the end state is read."""

    def go_on(self, ground: KillScenario) -> None:
        """The group reads again in its present phase, and reads everything that is left."""
        control = ground.control(GROUP)
        if control is not None and control.authority == "kafka":
            ground.modern(dict.fromkeys(PARTITIONS, LOG_END), "last")
        else:
            ground.old("last")


class Apply(KillCase):
    name = "apply"
    ends = ("switched",)

    def run(self, ground: KillScenario, session: AdminSession, plan: MigrationPlan) -> None:
        ground.apply(session, plan)


class ApplyThenBack(Apply):
    """Killed while it goes forward, and then rolled back: it is undone, from wherever it stood."""

    name = "apply, then back"
    ends = ("undone",)

    def again(self, ground: KillScenario, session: AdminSession, plan: MigrationPlan) -> None:
        ground.back(session, plan)


class BackBefore(KillCase):
    """From ``verified``: everything but the switch was done."""

    name = "back before the switch"
    ends = ("undone",)

    def prepare(self, ground: KillScenario) -> MigrationPlan:
        plan = super().prepare(ground)
        with ground.process() as session:
            ground.apply(session, plan, stop_after=Phase.VERIFIED)
        return plan

    def run(self, ground: KillScenario, session: AdminSession, plan: MigrationPlan) -> None:
        ground.back(session, plan)


class BackAfter(BackBefore):
    """From ``switched``, and the coordinator group has committed."""

    name = "back after the switch"

    def prepare(self, ground: KillScenario) -> MigrationPlan:
        plan = KillCase.prepare(self, ground)
        with ground.process() as session:
            ground.apply(session, plan)
        ground.modern({PARTITIONS[0]: 33})
        return plan


class Complete(BackAfter):
    """From ``switched`` to the end without a rollback.  The fences stay."""

    name = "complete"
    ends = ("completed",)
    writes_min = 2

    def run(self, ground: KillScenario, session: AdminSession, plan: MigrationPlan) -> None:
        ground.complete(session, remove_fences=False)


class CompleteAndLift(Complete):
    """The same, and then the fences go: until the phase is ``completed``, no old member is let in."""

    name = "complete and lift"
    writes_min = 10

    def run(self, ground: KillScenario, session: AdminSession, plan: MigrationPlan) -> None:
        ground.complete(session, remove_fences=True)


class LiftLater(CompleteAndLift):
    """From ``completed`` with its fences: another run lifts them."""

    name = "lift later"
    writes_min = 8

    def prepare(self, ground: KillScenario) -> MigrationPlan:
        plan = super().prepare(ground)
        with ground.process() as session:
            ground.complete(session, remove_fences=False)
        return plan


class CompleteThenBack(CompleteAndLift):
    """Killed while it completes: a rollback is possible until the phase is ``completed``, and not after it."""

    name = "complete, then back"
    ends = ("undone", "completed")

    def again(self, ground: KillScenario, session: AdminSession, plan: MigrationPlan) -> None:
        back_while_there_is_a_way(ground, session, plan)


def back_while_there_is_a_way(ground: KillScenario, session: AdminSession, plan: MigrationPlan) -> None:
    """From the switch on, to its end; where that is refused, the fences are lifted by a further run."""
    control = ground.control(GROUP)
    assert control is not None, "it was switched"
    if control.phase == "completed":
        with pytest.raises(PreconditionFailed, match="is completed and cannot be rolled back"):
            ground.back(session, plan)
        ground.complete(session, remove_fences=True)
    else:
        ground.back(session, plan)


WAYS_OF: tuple[type[KillCase], ...] = (
    Apply, ApplyThenBack, BackBefore, BackAfter, Complete, CompleteAndLift, LiftLater, CompleteThenBack,
)  # fmt: skip
