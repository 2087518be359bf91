"""One ``migrate apply`` of ``bench/migrate.py --invariant``, in the measured process: every step of ``copy``, as the
command executes them, with the check of the invariant between the steps or without it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from migrate_round import A_TOPIC, topics_of

from bridge.migration.inspect.group_inspection import inspect_group
from bridge.migration.plan.decisions import Decisions
from bridge.migration.plan.plan_file import plan_to_bytes
from bridge.migration.plan.start_offsets import make_plan
from bridge.migration.steps.copy_strategy import CopyOptions, copy_steps
from bridge.migration.steps.migration_context import open_migration
from bridge.migration.steps.migration_invariant import MigrationInvariant
from bridge.migration.steps.step import MigrationStep, StepRunner
from bridge.migration.steps.step_executors import ApplyExecutor
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.admin.zookeeper_offset_writes import NO_ZNODE_VERSION, OffsetWrite, StoreWriteReport, write_offsets
from zkconsumer.base.clock import SystemClock
from zkconsumer.types import TopicPartition

TIMEOUT_MS = 600_000


class ClockWithoutPauses(SystemClock):
    """A pause moves this clock and takes no time: the steps wait 40 s for the sessions of members that do not exist."""

    def __init__(self) -> None:
        self._paused_ms = 0

    def now_ms(self) -> int:
        """See ``Clock``."""
        return super().now_ms() + self._paused_ms

    def pause(self, ms: int) -> None:
        """Move the clock."""
        self._paused_ms += ms


class NoInvariant:
    """Takes the place of the invariant in the rounds without it."""

    def check_before(self, step: MigrationStep) -> None:
        """Check nothing."""

    def check_after(self, step: MigrationStep) -> None:
        """Check nothing."""

    def restart(self) -> None:
        """Forget nothing."""


@dataclass(slots=True)
class TimedInvariant:
    """The invariant, and the time that its checks take."""

    invariant: MigrationInvariant
    spent_s: float = 0.0

    def check_before(self, step: MigrationStep) -> None:
        """See ``StepInvariant``."""
        start_s = time.perf_counter()
        self.invariant.check_before(step)
        self.spent_s += time.perf_counter() - start_s

    def check_after(self, step: MigrationStep) -> None:
        """See ``StepInvariant``."""
        start_s = time.perf_counter()
        self.invariant.check_after(step)
        self.spent_s += time.perf_counter() - start_s

    def restart(self) -> None:
        """See ``StepInvariant``."""
        self.invariant.restart()


def measure_apply(
    session: AdminSession, clock: ClockWithoutPauses, group: str, partitions: int, *, with_invariant: bool
) -> dict[str, float]:
    """Give the group offsets, make a plan, and apply it: seconds and CPU seconds of the steps, their number, and the
    seconds that the checks of the invariant took.  ``clock``: that of the session.
    """
    report = StoreWriteReport()
    group_partitions = [TopicPartition(topic, n) for topic in topics_of(partitions) for n in range(A_TOPIC)][
        :partitions
    ]
    writes = [OffsetWrite(tp, 0, NO_ZNODE_VERSION) for tp in group_partitions]
    write_offsets(session, group, writes, control_version=None, report=report)
    assert not report.stopped_by, report.stopped_by
    snapshot = inspect_group(session, group, with_acls=False)
    assert snapshot is not None
    plan = make_plan(
        snapshot, Decisions(acl_fence=False), migration_id=group, strategy="copy", made_at_ms=clock.wall_ms()
    )
    assert plan.can_be_applied, plan.refusals

    migration = open_migration(session, plan, "bench", pause=clock.pause)
    timed = TimedInvariant(MigrationInvariant(migration))
    executor = ApplyExecutor(
        lambda _text: None,
        migration.placeholder.heartbeat_if_due,
        clock.pause,
        clock,
        timed if with_invariant else NoInvariant(),
    )
    runner = StepRunner(executor, clock, TIMEOUT_MS, "again", migration.control_znode.is_abort_requested)
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    runner.run_steps(copy_steps(migration, CopyOptions(plan_to_bytes(plan))))
    return {
        "s": time.perf_counter() - start_s,
        "cpu": time.process_time() - start_cpu_s,
        "steps": len(executor.executed_steps),
        "invariant": timed.spent_s,
    }
