"""A Spark query beside migrating members: the tool runs, the members read, the query continues."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from bridge.migration.control.phases import Phase
from bridge.migration.dual.member_steps import WaitForAcknowledgements, WaitForFullOwnership
from bridge.migration.dual.store_comparison import COMPARED_PHASES, CompareStores
from bridge.migration.steps.migration_context import MigrationContext, open_migration
from bridge.migration.steps.step import MigrationStep, StepDone
from tests.migration.migrating_connectors import GROUP, Dual, wait_until
from tests.migration.migrating_spark_query import Query
from tests.migration.migration_write_faults import WHO
from tests.migration.test_dual_end_to_end import TIMEOUT_MS, Load, Reader, carry_out, plan_of, tool
from zkconsumer.admin.coordinator_client import CoordinatorRetryPolicy

MEMBERS = 2
WAIT_MS = 90_000
"""Longer than the first batch of a query waits for its share (30 s)."""
DRAIN_MS = "20000"
"""A batch that takes longer is read again by others; here that would be the machine's fault."""

COMMITS: dict[str, Any] = {
    "auto_commit_enable": True, "auto_commit_interval_ms": 20, "rebalance_drain_timeout_ms": int(DRAIN_MS),
}  # fmt: skip

Record = tuple[int, int]


class DualSparkGroup:
    """Two members and a query in one group, and a producer."""

    def __init__(self, dual: Dual, mode: str, **options: str) -> None:
        self.dual = dual
        self.query = Query(
            dual.zookeeper, GROUP, mode,
            **{"kafka.bootstrap.servers": dual.broker.bootstrap, "rebalance.drain.timeout.ms": DRAIN_MS, **options},
        )  # fmt: skip
        self._owners = MEMBERS if "subscribe" in options else MEMBERS + 1
        self.load = Load(dual)
        self.readers: list[Reader] = []
        self._moves = 0

    def begin(self) -> None:
        """Members and query, each with something to read."""
        self.query.start()
        for number in range(MEMBERS):
            member = self.dual.member(f"c{number}", **COMMITS)
            self.readers.append(Reader(member))
        self.query.triggers_until(self.all_read, "everybody reads")

    def all_read(self) -> bool:
        """Whether every partition is owned, and every member that reads the topic has one."""
        owners = self.dual.owners()
        return len(owners) == self.dual.partitions and len(set(owners.values())) == self._owners

    def tell(self, phase: str) -> None:
        """Write this phase manually, and wait for what the tool waits for before it writes the next one.

        The acknowledgement of every member is not enough.  When a query leaves, its partitions belong to no member at
        first, and in a rollback ZooKeeper may have the offsets from before the query read them.  The tool waits until
        the query has left, members own every partition and both stores agree (``dual_rollback.dual_return_steps``).
        """
        if phase == "undone":
            self.dual.say(phase)  # the query registers at once, and acknowledges nothing
            return
        self.dual.move(phase)
        if Phase(phase) not in COMPARED_PHASES:
            return
        with tool(self.dual) as session:
            moving = open_migration(session, self.kept, WHO, patience=CoordinatorRetryPolicy(min_duration_ms=5_000))
            for step in steps_before_next(moving, Phase(phase)):
                wait_until(partial(is_done, step), step.name, TIMEOUT_MS)

    def plan(self) -> None:
        self._moves += 1
        self.kept = plan_of(self.dual, f"m{self._moves}")

    def run(self, what: str) -> None:
        """``apply``, ``rollback`` or ``complete``, while the query continues."""
        step = self._complete if what == "complete" else partial(carry_out, self.dual, self.kept, what)
        self.while_triggered(step, what)

    def _complete(self) -> None:
        """Without the archive: the phase is written, and the members follow."""
        self.dual.move("completed")

    def while_triggered(self, act: Callable[[], object], what: str) -> None:
        """Execute a command while the query continues."""
        failed: list[BaseException] = []

        def acted() -> None:
            try:
                act()
            except BaseException as error:  # noqa: BLE001 - it is raised where the test waits
                failed.append(error)

        actor = threading.Thread(target=acted)
        actor.start()
        if self.query.members:
            self.query.triggers_until(lambda: not actor.is_alive(), what, TIMEOUT_MS)
        actor.join()
        if failed:
            raise failed[0]

    def reads_on(self, what: str) -> None:
        """The query has more than now."""
        before = len(self.query.rows)
        self.query.triggers_until(lambda: len(self.query.rows) > before, what, WAIT_MS)

    def end(self) -> None:
        """Every record that was written was read by a member or the query."""
        self.load.stop()
        written = set(self.load.written)

        def is_read() -> bool:
            return {*self.members_read(), *self.query_read()} >= written

        self.query.triggers_until(is_read, "everything is read", WAIT_MS)

    def judge(self) -> tuple[list[Record], dict[Record, list[str]]]:
        """Records that were not read, and records that were read more than once, with their readers."""
        read: dict[Record, list[str]] = {}
        by_whom = {f"c{number}": reader.read for number, reader in enumerate(self.readers)}
        for name, records in {**by_whom, "query": self.query_read()}.items():
            for at, record in enumerate(records):
                read.setdefault(record, []).append(f"{name} as number {at} of {len(records)}")
        return sorted(set(self.load.written) - read.keys()), {one: by for one, by in read.items() if len(by) > 1}

    def members_read(self) -> list[Record]:
        return sorted(record for reader in self.readers for record in reader.read)

    def query_read(self) -> list[Record]:
        return sorted((tp.partition, offset) for tp, offset in self.query.rows)

    def close(self) -> None:
        self.load.stop()
        for reader in self.readers:
            reader.stop()
        self.query.crash()


def steps_before_next(moving: MigrationContext, phase: Phase) -> list[MigrationStep]:
    """What the tool waits for in a phase in which members hold partitions in both worlds."""
    authority, stores = moving.control_znode, moving.stores
    return [
        WaitForAcknowledgements(authority, stores, phase),
        WaitForFullOwnership(authority, stores, phase),
        CompareStores(moving, phase),
    ]


def is_done(step: MigrationStep) -> bool:
    return isinstance(step.check(), StepDone)


@contextmanager
def company(dual: Dual, mode: str, **options: str) -> Iterator[DualSparkGroup]:
    made = DualSparkGroup(dual, mode, **options)
    try:
        yield made
    finally:
        made.close()
