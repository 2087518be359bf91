"""A whole migration on one broker and one fake ZooKeeper, interrupted at any write of either store, and its check.

    before    the process dies before the n-th write is sent
    behind    the n-th write is executed, and the process dies before it receives the answer
    lost      the n-th write is executed, its answer is lost with the connection, and the process continues
    dropped   the n-th write is lost with the connection, not executed, and the process continues

Writes of both stores are counted together, in the order in which they are sent.  Every group has its own name, so that
one broker serves thousands of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bridge.migration.control.control_layout import phase_of
from bridge.migration.control.phases import Phase, authority_of, blocks_old_members, next_phases
from bridge.migration.inspect.group_inspection import inspect_group
from bridge.migration.placeholder.placeholder_group import UNUSED_MEMBER_ID
from bridge.migration.plan.decisions import Decisions, OffsetConvention, OffsetFallback
from bridge.migration.plan.migration_plan import MigrationPlan
from bridge.migration.plan.plan_file import plan_to_bytes
from bridge.migration.plan.start_offsets import make_plan
from bridge.migration.steps.copy_strategy import CopyOptions, copy_steps
from bridge.migration.steps.migration_context import MigrationContext, open_migration, read_effective_plan
from bridge.migration.steps.migration_invariant import MigrationInvariant
from bridge.migration.steps.rollback import RollbackOptions, rollback_steps
from bridge.migration.steps.step import MigrationStep, StepRunner
from bridge.migration.steps.step_executors import ApplyExecutor
from bridge.testing import EmbeddedBroker
from bridge.testing.fake_environment import ADDRESS
from tests.broker.raw_client import RawClient
from tests.in_memory_fixtures import wait_until
from tests.migration.step_write_faults import How, Killed, cut_off, is_write
from zkconsumer.admin.admin_session import AdminDependencies, AdminSession
from zkconsumer.admin.coordinator_client import CoordinatorRetryPolicy
from zkconsumer.admin.kafka_offsets import KafkaOffsetAdmin
from zkconsumer.admin.zookeeper_group import read_control
from zkconsumer.errors import BrokerUnreachable
from zkconsumer.kafka.broker_connection import BlockingConnection, Connection
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.testing.fake_zookeeper import FakeZooKeeper
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.testing.znode_tree import NO_AUTH_IDS, AuthIds, ZnodeTree
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import JOIN_GROUP, LEAVE_GROUP, OFFSET_COMMIT, SYNC_GROUP, Api
from zkconsumer.wire.schemas.offset_commit import OffsetCommitRequest
from zkconsumer.zk import paths
from zkconsumer.zk.requests import (
    Acl,
    CheckOp,
    Create,
    MultiFailed,
    MultiOk,
    Op,
    Request,
    Result,
    SetData,
    StoreError,
)
from zkconsumer.zk.store import submit_and_wait
from zkconsumer.zk.zk_security import DigestLogin, ZkLogin
from zkconsumer.zk.znode_formats import ControlRecord, parse_control

KAFKA_WRITES = (JOIN_GROUP, SYNC_GROUP, LEAVE_GROUP, OFFSET_COMMIT)
WHO = "alice@host, process 1"
STORED = {TopicPartition("t", 0): 10, TopicPartition("t", 1): 20}
"""What ZooKeeper has; t-2 has no offset, and begins at its earliest one."""
DECISIONS = Decisions(convention=OffsetConvention.NEXT, missing=OffsetFallback.EARLIEST)
EXPECTED = {TopicPartition("t", 0): 10, TopicPartition("t", 1): 20, TopicPartition("t", 2): 0}


@dataclass
class Moment:
    """What both stores hold when something has been written; ``wrote``: what, in words."""

    wrote: str
    control: ControlRecord | None
    zookeeper: dict[TopicPartition, int]
    kafka: dict[TopicPartition, int]
    fences: int


class History:
    """Every accepted write of a group that matters, with the contents of both stores after it."""

    def __init__(self) -> None:
        self.moments: dict[str, list[Moment]] = {}
        self._kafka: dict[str, dict[TopicPartition, int]] = {}

    def committed(self, group: str, tp: TopicPartition, offset: int) -> None:
        """Kafka has taken an offset."""
        self._kafka.setdefault(group, {})[tp] = offset
        of_group = self.moments.setdefault(group, [])
        before = of_group[-1] if of_group else Moment("", None, {}, {}, 0)
        of_group.append(replace(before, wrote=f"kafka {tp}", kafka=dict(self._kafka[group])))

    def kafka_only(self, group: str, tp: TopicPartition, offset: int) -> None:
        """Kafka has accepted an offset of the coordinator group's own members."""
        self._kafka.setdefault(group, {})[tp] = offset
        last = self.moments[group][-1]
        self.moments[group].append(replace(last, wrote="kafka by others", kafka=dict(self._kafka[group])))

    def written(self, tree: ZnodeTree, path: str) -> None:
        """ZooKeeper has changed a node."""
        found = _GROUP.match(path)
        if found is None:
            return
        group = found[1]
        dump = tree.dump()
        data = dump.get(paths.control(group))
        root = f"{paths.offsets(group)}/t/"
        stored = {
            TopicPartition("t", int(node.removeprefix(root))): int(value)
            for node, value in dump.items() if node.startswith(root) and value.isdigit()
        }  # fmt: skip
        fences = sum(node.startswith(f"{paths.owners(group)}/t/") and node.endswith("/fenced") for node in dump)
        control = None if data is None else parse_control(data)
        moment = Moment(path, control, stored, dict(self._kafka.get(group, {})), fences)
        self.moments.setdefault(group, []).append(moment)


_GROUP = re.compile(r"/(?:consumers|zkconsumer/groups)/(g[0-9]+)(?:/offsets/t/[0-9]+|/owners/t/[0-9]+/fenced)?$")


class RecordingZooKeeper(FakeZooKeeper):
    """Writes its history."""

    def __init__(self, history: History) -> None:
        super().__init__(delivery="thread")
        self._history = history

    def _transact(self, ops: Sequence[Op], session_id: int, who: AuthIds = NO_AUTH_IDS) -> MultiOk | MultiFailed:
        result = super()._transact(ops, session_id, who)
        if isinstance(result, MultiOk):
            for path in dict.fromkeys(op.path for op in ops if not isinstance(op, CheckOp)):
                self._history.written(self.tree, path)
        return result


def judge(moments: Sequence[Moment]) -> None:
    """M3, M4 and the order rule, over everything that was written."""
    for before, now in pairwise([Moment("", None, {}, {}, 0), *moments]):
        phase = None if now.control is None else phase_of(now.control)
        if now.control != before.control and now.control is not None:
            _judge_step(before, now)
        moved = now.zookeeper != before.zookeeper
        if moved and now.wrote.startswith("/consumers/") and before.control is not None:
            assert phase is Phase.RETURNING, f"ZooKeeper's offsets were written in phase {phase}"
        if now.wrote.startswith("kafka t"):
            assert phase in (Phase.FENCED, Phase.COPIED, Phase.VERIFIED), f"Kafka was written in phase {phase}"
        if now.wrote == "kafka by others":
            assert phase in (None, Phase.SWITCHED, Phase.UNDONE), f"somebody else committed in phase {phase}"


def _judge_step(before: Moment, now: Moment) -> None:
    """One write of the control znode."""
    assert now.control is not None
    assert now.control.authority == authority_of(phase_of(now.control))
    if before.control is None:
        assert now.control.phase == "planned"
        return
    if before.control == now.control:
        return
    if before.control.phase == now.control.phase:
        assert now.control == replace(before.control, is_confirmed=True), "the move is confirmed"
        return
    assert phase_of(now.control) in next_phases("copy", phase_of(before.control)), "phases follow each other"
    assert now.control.epoch >= before.control.epoch, "epochs grow"
    if now.control.authority == "kafka" != before.control.authority:
        assert now.control.epoch == before.control.epoch + 1
        assert now.fences == 3, "all claims are fenced when the authority moves"
        assert now.kafka == EXPECTED, "Kafka has every partition when it gets the authority"
        assert all(now.kafka[tp] == offset for tp, offset in now.zookeeper.items()), "and what ZooKeeper has"
    if now.control.authority == "zookeeper" != before.control.authority:
        assert now.control.epoch == before.control.epoch + 1
        assert now.fences == 3, "all claims are fenced when the authority moves"
        assert now.zookeeper == now.kafka, "ZooKeeper has what Kafka has when it gets the authority back"


@dataclass
class Cuts:
    """Where one process is cut off; ``at`` 0: never.  ``seen``: the writes so far, in words."""

    at: int = 0
    how: How = "before"
    seen: list[str] = field(default_factory=list)

    @property
    def was_reached(self) -> bool:
        return 0 < self.at <= len(self.seen)

    def count(self, what: str) -> bool:
        """One more write; True when it is the one."""
        self.seen.append(what)
        return len(self.seen) == self.at


class CutStore(FakeZkStore):
    """ZooKeeper, as a process reaches it that may be cut off."""

    cuts: Cuts

    def submit(self, session_id: int | None, requests: Sequence[Request], done: Callable[[list[Result]], None]) -> None:
        for index, request in enumerate(requests):
            if not is_write(request) or not self.cuts.count(_words(request)):
                continue
            cut_off(self, super().submit, self.cuts.how, session_id, requests, index)
        super().submit(session_id, requests, done)


class CutConnection(BlockingConnection):
    """A broker, as that process reaches it."""

    def __init__(self, cuts: Cuts, history: History, host: str, port: int, **how: Any) -> None:
        super().__init__(host, port, **how)
        self._cuts = cuts
        self._history = history

    def request(self, api: Api[Any, Any], version: int, body: Any, timeout_ms: int, **how: Any) -> Any:
        is_question = getattr(body, "member_id", "") == UNUSED_MEMBER_ID
        if api not in KAFKA_WRITES or is_question or not self._cuts.count(api.name):
            return self._done(super().request(api, version, body, timeout_ms, **how), body)
        if self._cuts.how == "before":
            raise Killed
        if self._cuts.how == "dropped":
            raise BrokerUnreachable(f"{self}: the connection broke")
        self._done(super().request(api, version, body, timeout_ms, **how), body)
        if self._cuts.how == "behind":
            raise Killed
        raise BrokerUnreachable(f"{self}: the connection broke")

    def _done(self, answer: Any, body: Any) -> Any:
        if isinstance(body, OffsetCommitRequest):
            accepted = {(topic.name, one.partition_index) for topic in answer.topics for one in topic.partitions
                        if one.error_code == 0}  # fmt: skip
            for topic in body.topics:
                for one in topic.partitions:
                    if (topic.name, one.partition_index) in accepted:
                        tp = TopicPartition(topic.name, one.partition_index)
                        self._history.committed(body.group_id, tp, one.committed_offset)
        return answer


def _words(request: Request) -> str:
    return f"{type(request).__name__} {getattr(request, 'path', '')}"


@dataclass
class Lab:
    """The servers, and how the time passes."""

    broker: EmbeddedBroker
    zookeeper: FakeZooKeeper
    history: History
    clock: ManualClock = field(default_factory=ManualClock)
    groups: int = 0
    on_pause: Callable[[], None] = lambda: None
    login: ZkLogin | None = field(default_factory=lambda: DigestLogin("operator", "secret"))
    config_file: Path | None = None
    """Of the tool.  With ``zookeeper.auth`` in it ``login`` is its own, else one that was made up for the run."""

    def new_group(self) -> str:
        """A group without members, with two offsets, as a Scala consumer left it."""
        self.groups += 1
        group = f"g{self.groups:05d}"
        self.zookeeper.ensure(paths.ids(group))
        self.zookeeper.ensure(paths.owners_of_topic(group, "t"))
        for tp, offset in STORED.items():
            self.zookeeper.ensure(paths.offset(group, tp), b"%d" % offset)
        return group

    @contextmanager
    def process(self, cuts: Cuts | None = None) -> Iterator[AdminSession]:
        """A process with its sessions; whatever kills it, ZooKeeper ends its session later."""
        made: list[CutStore] = []
        cuts = cuts or Cuts()

        def store(connect: str, timeout_ms: int) -> CutStore:
            one = CutStore(self.zookeeper, "", timeout_ms, self.login)
            one.cuts = cuts
            made.append(one)
            return one

        def connect(host: str, port: int, **how: Any) -> Connection:
            return CutConnection(cuts, self.history, host, port, **how)

        session = AdminSession.open(ADDRESS, self.config_file, AdminDependencies(store, connect, self.clock))
        try:
            yield session
        finally:
            for one in made:
                if one in self.zookeeper.stores:
                    self.zookeeper.expire(one, reconnects=False)
            session.close()

    def pause(self, ms: int) -> None:
        self.clock.move(ms)
        self.on_pause()

    def plan(self, group: str, decisions: Decisions, name: str = "m") -> MigrationPlan:
        with self.process() as session:
            seen = inspect_group(session, group, with_acls=decisions.acl_fence)
        assert seen is not None
        plan = make_plan(seen, decisions, migration_id=f"{name}{group}", strategy="copy", made_at_ms=1)
        assert plan.can_be_applied, (plan.refusals, plan.partitions)
        return plan

    def kept(self, session: AdminSession, group: str) -> MigrationPlan:
        """The plan that counts."""
        return read_effective_plan(session, group)

    def moving(self, session: AdminSession, plan: MigrationPlan) -> MigrationContext:
        return open_migration(
            session, plan, WHO, pause=self.pause, patience=CoordinatorRetryPolicy(min_duration_ms=60_000)
        )

    def carry_out(
        self,
        moving: MigrationContext,
        steps: Iterator[MigrationStep] | Callable[[], Iterator[MigrationStep]],
        timeout_ms: int = 600_000,
    ) -> list[str]:
        """The reports.  The steps are derived as the commands do it: again when a store was unavailable."""
        told: list[str] = []
        invariant = MigrationInvariant(moving)
        real = ApplyExecutor(told.append, moving.placeholder.heartbeat_if_due, self.pause, self.clock, invariant)
        has_changed = moving.phase is not None
        run = StepRunner(real, self.clock, timeout_ms, "again", moving.control_znode.is_abort_requested, has_changed)

        if not callable(steps):
            run.run_steps(steps)
            return told

        def derive() -> Iterator[MigrationStep]:
            moving.control_znode.reset_lock()
            return steps()

        run.run_with_retry(derive)
        return told

    def apply(self, session: AdminSession, plan: MigrationPlan, **options: Any) -> list[str]:
        moving = self.moving(session, plan)
        return self.carry_out(moving, partial(copy_steps, moving, CopyOptions(plan_to_bytes(plan), **options)))

    def rollback(self, session: AdminSession, plan: MigrationPlan) -> list[str]:
        moving = self.moving(session, plan)
        told: list[str] = []
        steps = partial(rollback_steps, moving, RollbackOptions(told.append, 1_000))
        return self.carry_out(moving, steps) + told

    # --- the state ---

    def control(self, group: str) -> ControlRecord | None:
        with self.process() as session:
            return read_control(session, group)[0]

    def stands(self, group: str) -> tuple[str, str]:
        """Phase and authority."""
        control = self.control(group)
        assert control is not None
        return control.phase, control.authority

    def kafka(self, group: str) -> dict[TopicPartition, tuple[int, str]]:
        with self.process() as session:
            return {
                tp: (one.offset, one.metadata) for tp, one in KafkaOffsetAdmin(session, group).read_offsets().items()
            }

    def offsets(self, group: str) -> dict[TopicPartition, int]:
        found = {}
        for number in range(3):
            tp = TopicPartition("t", number)
            data = self.zookeeper.data(paths.offset(group, tp))
            if data is not None:
                found[tp] = int(data)
        return found

    def nodes(self, group: str) -> dict[str, tuple[bytes, frozenset[Acl]]]:
        """Data and list of every node of the group below ``/consumers``, with its name left out."""
        tree = self.zookeeper.tree
        root = paths.group_root(group)
        return {
            path.removeprefix(root): (data.replace(group.encode(), b"G"), frozenset(tree._nodes[path].acl))
            for path, data in tree.dump().items()
            if path == root or path.startswith(f"{root}/")
        }

    def commit_first(self, group: str, partition: int, offset: int) -> int:
        """As another client whose writes the check need not know."""
        with RawClient(self.broker.addresses()[0]) as talk:
            while talk.find_coordinator(group, version=0).error_code:
                pass
            return talk.commit(group, "t", partition, offset, version=2)

    def commit(self, group: str, partition: int, offset: int) -> int:
        """As a tool does that is no member; the error code."""
        with RawClient(self.broker.addresses()[0]) as talk:
            while talk.find_coordinator(group, version=0).error_code:
                pass
            code = talk.commit(group, "t", partition, offset, version=2)
        if not code:
            self.history.kafka_only(group, TopicPartition("t", partition), offset)
        return code

    def probe(self, group: str) -> None:
        """M1 and M2 from outside: every try now is refused, in each phase that requires it."""
        control = self.control(group)
        phase = None if control is None else phase_of(control)
        if phase is not None and blocks_old_members(phase):
            old = FakeZkStore(self.zookeeper)
            old.start(1_000)
            tries = submit_and_wait(old, [
                Create(f"{paths.ids(group)}/old", b"x", ephemeral=True),
                Create(paths.owner(group, TopicPartition("t", 0)), b"old", ephemeral=True),
                SetData(paths.offset(group, TopicPartition("t", 0)), b"1", -1),
            ], 1_000)  # fmt: skip
            old.close(1_000)
            assert all(isinstance(one, StoreError) for one in tries), f"in phase {phase} an old member was let in"
        if phase in (Phase.FENCED, Phase.COPIED, Phase.VERIFIED):
            assert self.commit(group, 0, 1), f"in phase {phase} a tool's commit was taken"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    history = History()
    zookeeper = RecordingZooKeeper(history)
    try:
        store = lambda connect, timeout_ms: FakeZkStore(zookeeper, "", timeout_ms, None)  # noqa: E731
        properties = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
        with EmbeddedBroker(properties=properties, zookeeper=ADDRESS, zk_store=store) as broker:
            broker.create_topic("t", 3)
            for number in range(3):
                broker.append("t", number, [b"x"] * 50)
            # What was stored before there was a topic would be older than it, and count for nothing.
            wait_until(lambda: zookeeper.data(paths.topic("t")) is not None, "the topic is in ZooKeeper")
            yield Lab(broker, zookeeper, history)
    finally:
        zookeeper.stop()
