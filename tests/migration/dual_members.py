"""Migrating members as the tool sees them: they act by ``phase_rules``, and acknowledge the phase.

They act while the tool waits (``Lab.pause``), one after the other, each at its own pace; their group at the broker is
real.  Every commit that the store with the authority accepted is recorded, so that at the end none may be missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import pytest

from bridge.migration.control.control_layout import MEMBERS_CHILD
from bridge.migration.dual.dual_strategy import DualOptions, dual_steps
from bridge.migration.dual.machine.acknowledgement import Acknowledgement, acknowledgement_path, format_acknowledgement
from bridge.migration.dual.machine.phase_rules import (
    MIGRATION_PROTOCOL,
    PHASE_RULES,
    CommitOrder,
    MemberPhase,
    MembershipSide,
    PhaseRules,
    ZooKeeperAssignment,
    member_phase_of,
)
from bridge.migration.inspect.group_inspection import inspect_group
from bridge.migration.offsets.provenance import Provenance, format_provenance
from bridge.migration.plan.decisions import Decisions
from bridge.migration.plan.migration_plan import MigrationPlan
from bridge.migration.plan.plan_file import plan_to_bytes
from bridge.migration.plan.start_offsets import make_plan
from bridge.migration.steps.rollback import RollbackOptions, rollback_steps
from bridge.testing import HistoryRecorder
from tests.broker.raw_client import RawClient
from tests.migration.migration_write_faults import DECISIONS, Lab, lab
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.testing import checker as h
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.types import TopicPartition
from zkconsumer.wire.consumer_protocol import Assignment, Subscription, encode_assignment, encode_subscription
from zkconsumer.wire.schemas import JOIN_GROUP, LEAVE_GROUP, OFFSET_COMMIT, SYNC_GROUP
from zkconsumer.wire.schemas.join_group import JoinGroupProtocol, JoinGroupRequest
from zkconsumer.wire.schemas.leave_group import LeaveGroupRequest
from zkconsumer.wire.schemas.offset_commit import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from zkconsumer.wire.schemas.sync_group import SyncGroupAssignment, SyncGroupRequest
from zkconsumer.zk import paths
from zkconsumer.zk.member_registration import Registration, format_registration
from zkconsumer.zk.requests import (
    CheckOp,
    Create,
    CreateOp,
    Delete,
    Get,
    Multi,
    MultiOk,
    Op,
    SetData,
    SetOp,
    Stat,
    ZnodeData,
)
from zkconsumer.zk.store import submit_and_wait
from zkconsumer.zk.zk_security import ZkLogin
from zkconsumer.zk.znode_formats import ControlRecord, parse_control

__all__ = ["dual", "lab"]

PARTITIONS = tuple(TopicPartition("t", number) for number in range(3))
LOG_END = 50
TIMEOUT_MS = 30_000


@dataclass(eq=False)
class Member:
    """One member.  ``lag``: it acts at every so many looks only.  ``is_mute``: as one that cannot follow."""

    crowd: DualMembers
    consumer: str
    lag: int = 1
    is_mute: bool = False
    topics: tuple[str, ...] = ("t",)
    name_in_group: str = ""
    """The name with which it joins the coordinator group, if not its own."""
    generation: int = -1
    member_id: str = ""
    given: set[TopicPartition] = field(default_factory=set)
    owned: set[TopicPartition] = field(default_factory=set)
    in_kafka: dict[TopicPartition, int] = field(default_factory=dict)
    refusals: int = 0
    """So many of its next commits with a provenance are refused."""
    control: ControlRecord | None = None
    version: int = -1

    def __post_init__(self) -> None:
        self.store = FakeZkStore(self.crowd.lab.zookeeper, login=self.crowd.lab.member_login)
        self.store.start(TIMEOUT_MS)
        self.talk = RawClient(self.crowd.lab.broker.addresses()[0], client_id="app")
        data = format_registration(Registration("static", dict.fromkeys(self.topics, 1), "1"))
        self.ask(Create(paths.registration(self.group, self.consumer), data, ephemeral=True))

    @property
    def group(self) -> str:
        return self.crowd.group

    @property
    def duty(self) -> PhaseRules:
        return PHASE_RULES[member_phase_of(self.control)]

    def ask(self, request: Any) -> Any:
        [answer] = submit_and_wait(self.store, [request], TIMEOUT_MS)
        return answer

    # --- what it does, in this order

    def looks(self) -> None:
        node = self.ask(Get(paths.control(self.group)))
        before = self.control
        self.control = parse_control(node.data) if isinstance(node, ZnodeData) else None
        self.version = node.stat.version if isinstance(node, ZnodeData) else -1
        if self.control is not None and (before is None or before.epoch != self.control.epoch):
            self.in_kafka.clear()

    def share(self, number: int, count: int) -> set[TopicPartition]:
        match self.duty.zookeeper_assignment:
            case ZooKeeperAssignment.COMPUTED:
                return {tp for tp in PARTITIONS if tp.topic in self.topics and tp.partition % count == number}
            case ZooKeeperAssignment.FROM_COORDINATOR:
                return set(self.given)
        return set()

    def releases(self, share: set[TopicPartition]) -> None:
        for tp in self.owned - share:
            self.ask(Delete(paths.owner(self.group, tp), 1))
            self.owned.discard(tp)

    def claims(self, share: set[TopicPartition]) -> None:
        for tp in sorted(share - self.owned):
            path = paths.owner(self.group, tp)
            claim = (CreateOp(path, ephemeral=True), SetOp(path, f"{self.consumer}-0".encode()))
            answer = self.ask(Multi((*self._checks(), *claim)))
            if isinstance(answer, MultiOk):
                self.owned.add(tp)

    def _checks(self) -> list[Op]:
        return [] if self.control is None else [CheckOp(paths.control(self.group), self.version)]

    def stored(self, tp: TopicPartition) -> int:
        data = self.crowd.lab.zookeeper.data(paths.offset(self.group, tp))
        return -1 if data is None else int(data)

    def works(self) -> None:
        """Read one more record of each partition, and commit; then update the other store."""
        holds = self.given if self.duty.active_side is MembershipSide.COORDINATOR else self.owned
        for tp in sorted(holds if self.crowd.is_loaded else ()):
            at = self.crowd.positions.get(tp, max(self.stored(tp), 0)) + 1
            if at <= LOG_END and self.commit(tp, at):
                self.crowd.positions[tp] = at
        for tp in sorted(self.owned):
            stored, known = self.stored(tp), self.in_kafka.get(tp)
            if self.duty.commit_order is CommitOrder.ZOOKEEPER_FIRST and stored >= 0 and stored != known:
                self.to_kafka(tp, stored)
            if self.duty.commit_order is CommitOrder.KAFKA_FIRST and stored >= 0 and (known is None or known < stored):
                self.to_kafka(tp, stored)
            if self.duty.commit_order is CommitOrder.KAFKA_FIRST and known is not None and stored < known:
                self.to_zookeeper(tp, known)

    def commit(self, tp: TopicPartition, offset: int) -> bool:
        """Whether the store that comes first has it."""
        match self.duty.commit_order:
            case CommitOrder.ZOOKEEPER:
                return self.to_zookeeper(tp, offset)
            case CommitOrder.ZOOKEEPER_FIRST:
                return self.to_zookeeper(tp, offset) and (self.to_kafka(tp, offset) or True)
            case CommitOrder.KAFKA_FIRST:
                return self.to_kafka(tp, offset) and (tp not in self.owned or self.to_zookeeper(tp, offset) or True)
        return self.to_kafka(tp, offset) and (self.mirror(tp, offset) or True)

    def to_zookeeper(self, tp: TopicPartition, offset: int) -> bool:
        return self._write(tp, offset, [*self._checks(), CheckOp(paths.owner(self.group, tp), 1)])

    def mirror(self, tp: TopicPartition, offset: int) -> bool:
        return self._write(tp, offset, self._checks())

    def _write(self, tp: TopicPartition, offset: int, checks: list[Op]) -> bool:
        path, data = paths.offset(self.group, tp), b"%d" % offset
        write: Op = SetOp(path, data) if self.stored(tp) >= 0 else CreateOp(path, data)
        return isinstance(self.ask(Multi((*checks, write))), MultiOk)

    def to_kafka(self, tp: TopicPartition, offset: int) -> bool:
        assert self.control is not None
        words = format_provenance(Provenance(self.control.migration_id, self.control.epoch, 7))
        if self.duty.active_side is MembershipSide.COORDINATOR:
            words = ""  # a member like any other
        elif self.refusals:
            self.refusals -= 1
            return False
        row = OffsetCommitPartition(partition_index=tp.partition, committed_offset=offset, committed_metadata=words)
        topic = OffsetCommitTopic(name=tp.topic, partitions=[row])
        body = OffsetCommitRequest(
            group_id=self.group, generation_id_or_member_epoch=self.generation, member_id=self.member_id, topics=[topic]
        )
        code = self.talk.ask(OFFSET_COMMIT, 2, body).topics[0].partitions[0].error_code
        if code == 0:
            self.in_kafka[tp] = offset
        return not code

    def acknowledges(self) -> None:
        if self.control is None or self.is_mute:
            return
        behind = 0
        if self.duty.zookeeper_assignment is ZooKeeperAssignment.FROM_COORDINATOR:
            late = {tp for tp in self.owned if self.stored(tp) >= 0 and self.stored(tp) != self.in_kafka.get(tp)}
            if self.duty is PHASE_RULES[MemberPhase.RETURNED]:
                late = {tp for tp in self.owned if self.stored(tp) >= 0 and tp not in self.in_kafka}
            elif self.duty.active_side is MembershipSide.COORDINATOR:
                late = {tp for tp in self.owned if tp in self.in_kafka and self.stored(tp) != self.in_kafka[tp]}
            behind = len((self.given - self.owned) | late)
        control = self.control
        said = Acknowledgement(control.migration_id, control.epoch, control.phase, self.generation, behind)
        path, data = acknowledgement_path(self.group, self.consumer), format_acknowledgement(said)
        if not isinstance(self.ask(SetData(path, data, -1)), Stat):
            self.ask(Create(paths.control_child(self.group, MEMBERS_CHILD)))
            self.ask(Create(path, data, ephemeral=True))

    # --- the coordinator's group

    def join_body(self, protocols: Sequence[str]) -> JoinGroupRequest:
        name = self.name_in_group or self.consumer
        said = encode_subscription(Subscription(self.topics, user_data=name.encode()), version=0)
        return JoinGroupRequest(
            group_id=self.group, session_timeout_ms=300_000, rebalance_timeout_ms=300_000, member_id=self.member_id,
            protocol_type="consumer", protocols=[JoinGroupProtocol(name=name, metadata=said) for name in protocols],
        )  # fmt: skip

    def leaves(self) -> None:
        if self.generation >= 0:
            body = LeaveGroupRequest(group_id=self.group, member_id=self.member_id)
            self.talk.ask(LEAVE_GROUP, 0, body)
            self.generation, self.member_id, self.given = -1, "", set()

    def ends(self) -> None:
        """It stops, or is stopped: its session ends, and its place in the group."""
        self.leaves()
        self.crowd.lab.zookeeper.expire(self.store, reconnects=False)
        self.talk.connection.close()
        self.crowd.members.remove(self)


@dataclass(eq=False)
class DualMembers:
    """The members of one group."""

    lab: DualLab
    group: str
    is_loaded: bool = True
    members: list[Member] = field(default_factory=list)
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    """Partition -> what was accepted last."""
    recorder: HistoryRecorder = field(init=False)
    """What both stores accept of the group from its beginning on."""
    looks: int = 0
    _protocols: tuple[str, ...] = ()

    def add(self, name: str, **how: Any) -> Member:
        member = Member(self, f"{self.group}_{name}", **how)
        self.members.append(member)
        return member

    def acts(self) -> None:
        """Every member does its tasks."""
        self.looks += 1
        for member in self.members:
            if self.looks % member.lag == 0 and not member.is_mute:
                member.looks()
        self._joins()
        shares = {
            member: member.share(number, len(self.members)) for number, member in enumerate(self.members)
        }  # fmt: skip
        for member, share in shares.items():
            member.releases(share)
        for member, share in shares.items():
            member.claims(share)
            member.works()
            member.acknowledges()

    def _joins(self) -> None:
        protocols: tuple[str, ...] = ()
        for member in self.members:
            duty = member.duty
            if not duty.protocols:
                member.leaves()
            elif member.control is not None:
                private = f"zkconsumer-{member.control.migration_id}"
                protocols = tuple(private if name == MIGRATION_PROTOCOL else name for name in duty.protocols)
        joining = [member for member in self.members if member.duty.protocols]
        inside = [member for member in joining if member.generation >= 0]
        if not joining or (inside == joining and protocols == self._protocols):
            return
        self._protocols = protocols
        if inside == joining:
            self._form(joining, protocols)
        for member in joining:
            if member not in inside:
                inside.append(member)
                self._form(inside, protocols)
        self._share_out(joining)

    def _form(self, members: Sequence[Member], protocols: Sequence[str]) -> None:
        """All in one generation.  A member that was answered too early, before the new member joined, asks again."""
        asked = {one: self._ask_to_join(one, protocols) for one in members}
        leaders: dict[int, str] = {}
        for _ in range(1_000):
            for one, pending in list(asked.items()):
                if one.talk.connection.has_response(2):
                    answer = one.talk.connection.receive(pending, TIMEOUT_MS)
                    assert answer.error_code == 0, f"{one.consumer} was not let in: {answer.error_code}"
                    one.member_id, one.generation = answer.member_id, answer.generation_id
                    leaders[answer.generation_id] = answer.leader
                    del asked[one]
            newest = max(leaders, default=-1)
            early = [one for one in members if one not in asked and (asked or one.generation < newest)]
            if not asked and not early:
                self._leader = leaders[newest]
                return
            asked |= {one: self._ask_to_join(one, protocols) for one in early}
        raise AssertionError("the group does not form")

    def _ask_to_join(self, one: Member, protocols: Sequence[str]) -> Any:
        return one.talk.connection.send(JOIN_GROUP, 2, one.join_body(protocols), TIMEOUT_MS)

    def _share_out(self, members: Sequence[Member]) -> None:
        shares = {
            one: [tp for tp in PARTITIONS if tp.topic in one.topics and tp.partition % len(members) == number]
            for number, one in enumerate(members)
        }
        rows = [
            SyncGroupAssignment(
                member_id=one.member_id, assignment=encode_assignment(Assignment(tuple(share)), version=0)
            )
            for one, share in shares.items()
        ]
        asked = []
        for one in sorted(members, key=lambda one: one.member_id == self._leader):
            body = SyncGroupRequest(
                group_id=self.group, generation_id=one.generation, member_id=one.member_id,
                assignments=rows if one.member_id == self._leader else [],
            )  # fmt: skip
            asked.append((one, one.talk.connection.send(SYNC_GROUP, 1, body, TIMEOUT_MS)))
        for one, pending in asked:
            assert one.talk.connection.receive(pending, TIMEOUT_MS).error_code == 0
            one.given = set(shares[one])

    def close(self) -> None:
        for member in list(self.members):
            member.ends()


@dataclass
class DualLab(Lab):
    """A lab whose groups have members."""

    crowds: dict[str, DualMembers] = field(default_factory=dict)
    member_login: ClassVar[ZkLogin | None] = None
    """Of every member of every group."""

    def crowd(self, count: int = 2, *, is_loaded: bool = True, stored: bool = True) -> DualMembers:
        """A new group with members that own everything."""
        crowd = DualMembers(self, self.new_group(), is_loaded)
        if stored:
            self.zookeeper.ensure(paths.offset(crowd.group, PARTITIONS[2]), b"5")
        crowd.recorder = HistoryRecorder(crowd.group)
        for tp, offset in self.offsets(crowd.group).items():
            crowd.recorder.add(h.OffsetCommitted, *tp, offset, store="zookeeper")
        self.zookeeper.on_changes = crowd.recorder.zookeeper_callback(self.zookeeper)
        self.broker.on_group_response(crowd.recorder.kafka_callback(lambda call, body: None))
        self.crowds[crowd.group] = crowd
        self.on_pause = crowd.acts
        for number in range(count):
            crowd.add(f"c{number}", lag=number + 1)
        for _ in range(count):
            crowd.acts()
        return crowd

    def dual_plan(self, crowd: DualMembers, decisions: Decisions = DECISIONS, name: str = "m") -> MigrationPlan:
        with self.process() as session:
            seen = inspect_group(session, crowd.group, with_acls=False)
        assert seen is not None
        plan = make_plan(seen, decisions, migration_id=f"{name}{crowd.group}", strategy="dual", made_at_ms=1)
        assert plan.can_be_applied, (plan.refusals, plan.partitions)
        return plan

    def move(
        self, session: AdminSession, plan: MigrationPlan, *, timeout_ms: int = 600_000, **options: Any
    ) -> list[str]:
        moving = self.moving(session, plan)
        steps = partial(dual_steps, moving, DualOptions(plan_to_bytes(plan), **options))
        return self.carry_out(moving, steps, timeout_ms)

    def take_back(self, session: AdminSession, plan: MigrationPlan, timeout_ms: int = 600_000) -> list[str]:
        moving = self.moving(session, plan)
        told: list[str] = []
        steps = partial(rollback_steps, moving, RollbackOptions(told.append, 1_000))
        return self.carry_out(moving, steps, timeout_ms) + told


@pytest.fixture
def dual(lab: Lab) -> Iterator[DualLab]:
    """The lab; at the end none of its groups has a member."""
    made = DualLab(lab.broker, lab.zookeeper, lab.history, groups=lab.groups)
    with ExitStack() as stack:
        yield made
        lab.groups = made.groups
        for crowd in made.crowds.values():
            stack.callback(crowd.close)
