"""A group of real members, under load, moved there and back by the tool: no record is missing, none is read twice."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count

import pytest

from bridge.migration.dual.connector.migrating_connector import MigratingConsumerConnector
from bridge.migration.dual.dual_strategy import DualOptions, dual_steps
from bridge.migration.inspect.group_inspection import inspect_group
from bridge.migration.plan.decisions import Decisions, OffsetConvention
from bridge.migration.plan.migration_plan import MigrationPlan
from bridge.migration.plan.plan_file import plan_to_bytes
from bridge.migration.plan.start_offsets import make_plan
from bridge.migration.steps.migration_context import open_migration
from bridge.migration.steps.migration_invariant import MigrationInvariant
from bridge.migration.steps.rollback import RollbackOptions, rollback_steps
from bridge.migration.steps.step import StepRunner
from bridge.migration.steps.step_executors import ApplyExecutor
from bridge.testing.fake_environment import ADDRESS
from tests.migration.migrating_connectors import GROUP, TOPIC, Dual, Stream, dual, wait_until
from tests.migration.migration_write_faults import WHO
from zkconsumer.admin.admin_session import AdminDependencies, AdminSession
from zkconsumer.admin.coordinator_client import CoordinatorRetryPolicy
from zkconsumer.admin.zookeeper_group import read_control
from zkconsumer.base.clock import SystemClock
from zkconsumer.base.threads import StopSignal
from zkconsumer.errors import ConsumerTimeoutException
from zkconsumer.testing.fake_zookeeper import FakeZkStore
from zkconsumer.zk.zk_security import NO_SECURITY

__all__ = ["dual"]

FIRST, LATER = Decisions(OffsetConvention.NEXT), Decisions()
"""The operator decides the offset convention once.  A later plan has it from the migration before, and knows what that
left in Kafka: directly after the rollback, under load, no owner may have written yet, and no number may be the end of
its log."""
LOOK_MS = 20
TIMEOUT_MS = 240_000
"""Seconds as a rule; a machine that others load may give this one a tenth of its time."""


class Reader:
    """A program that reads all that its member gives it."""

    def __init__(self, member: MigratingConsumerConnector) -> None:
        self.member = member
        self.read: list[tuple[int, int]] = []
        self._stop = threading.Event()
        [self._stream] = member.create_message_streams({TOPIC: 1})[TOPIC]
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        stream: Stream = self._stream
        while not self._stop.is_set():
            with suppress(ConsumerTimeoutException):
                while not self._stop.is_set():
                    message = next(stream.iterator())
                    self.read.append((message.partition, message.offset))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


class Load:
    """A producer that writes to every partition until it is stopped."""

    def __init__(self, dual: Dual) -> None:
        self.written: list[tuple[int, int]] = []
        self._dual = dual
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        for offset in count():
            for partition in range(self._dual.partitions):
                self._dual.broker.append(TOPIC, partition, [b"x"])
                self.written.append((partition, offset))
            if self._stop.wait(0.01):
                return

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


@contextmanager
def tool(dual: Dual) -> Iterator[AdminSession]:
    store = lambda connect, ms: FakeZkStore(dual.zookeeper, "", ms, NO_SECURITY.login)  # noqa: E731
    with AdminSession.open(ADDRESS, None, AdminDependencies(store), dual.broker.bootstrap) as session:
        yield session


def plan_of(dual: Dual, name: str, decisions: Decisions = FIRST) -> MigrationPlan:
    """A plan that can be applied, as soon as the group does not rebalance any more."""
    made: list[MigrationPlan] = []

    def can_be_applied() -> bool:
        with tool(dual) as session:
            seen = inspect_group(session, GROUP, with_acls=False)
        assert seen is not None
        made.append(make_plan(seen, decisions, migration_id=name, strategy="dual", made_at_ms=1))
        return made[-1].can_be_applied

    wait_until(can_be_applied, lambda: str((made[-1].refusals, [row.refusal for row in made[-1].partitions])))
    return made[-1]


def carry_out(dual: Dual, plan: MigrationPlan, what: str) -> None:
    """``apply`` or ``rollback``."""
    told: list[str] = []
    with tool(dual) as session:
        moving = open_migration(session, plan, WHO, patience=CoordinatorRetryPolicy(min_duration_ms=5_000))
        real = ApplyExecutor(
            told.append,
            moving.placeholder.heartbeat_if_due,
            lambda ms: StopSignal().wait(min(ms, LOOK_MS)),
            session.clock,
            MigrationInvariant(moving),
        )
        run = StepRunner(
            real, SystemClock(), TIMEOUT_MS, "again", moving.control_znode.is_abort_requested, moving.phase is not None
        )
        if what == "apply":
            run.run_steps(dual_steps(moving, DualOptions(plan_to_bytes(plan))))
        else:
            run.run_steps(rollback_steps(moving, RollbackOptions(told.append, 1_000)))


def stands(dual: Dual) -> str:
    with tool(dual) as session:
        control, _, _ = read_control(session, GROUP)
    assert control is not None
    return control.phase


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("members", "times"), [(3, 2), pytest.param(8, 10, marks=pytest.mark.nightly)])
def test_there_and_back_under_load_every_record_once(dual: Dual, members: int, times: int) -> None:
    """Of eight members two have no partition; they follow all the same."""
    with ExitStack() as stack:
        names = [f"c{number}" for number in range(members)]
        readers = [Reader(dual.member(name, auto_commit_enable=True, auto_commit_interval_ms=20)) for name in names]
        load = Load(dual)
        for reader in readers:
            stack.callback(reader.stop)
        stack.callback(load.stop)
        wait_until(lambda: len(dual.owners()) == dual.partitions, "everything is owned")
        wait_until(lambda: len(dual.in_zookeeper()) == dual.partitions, "everything is committed")
        for number in range(times):
            plan = plan_of(dual, f"m{number}", LATER if number else FIRST)
            carry_out(dual, plan, "apply")
            assert stands(dual) == "switched"
            carry_out(dual, plan, "rollback")
            assert stands(dual) == "undone"
        load.stop()
        wait_until(lambda: sum(len(reader.read) for reader in readers) >= len(load.written), "all is read")
        read = Counter(one for reader in readers for one in reader.read)
        assert read == Counter(load.written), "0 missing and 0 twice"
