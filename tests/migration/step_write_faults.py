"""One group in memory, and a tool that is interrupted at any of its writes.

    before    the process dies before the n-th write is sent
    behind    the n-th write is executed, and the process dies before it receives the answer
    lost      the n-th write is executed, its answer is lost with the connection, and the process continues
    dropped   the n-th write is lost with the connection, not executed, and the process continues

``at_every_cut`` runs something once for every n and each of these, and once more in a new process with a new session;
the end state must be what it is without an interruption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import is_
from typing import Any, Literal, TypeAlias

from bridge.migration.control.control_layout import LOCK_CHILD
from bridge.migration.control.control_steps import AcquireLock
from bridge.migration.control.control_znode import ControlZnode
from bridge.migration.errors import ControlWriteUnknownError
from bridge.migration.steps.step import MigrationStep, StepRunner, StepWaiting
from zkconsumer.admin.admin_session import AdminDependencies, AdminSession, tools_config
from zkconsumer.errors import ZkConsumerError
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.testing.fake_zookeeper import FakeZooKeeper
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import (
    IMPOSSIBLE_VERSION,
    Acl,
    CheckOp,
    Create,
    Delete,
    Multi,
    Request,
    Result,
    SetAcl,
    SetData,
)
from zkconsumer.zk.zk_security import DigestLogin, ZkLogin

GROUP = "g1"
MIGRATION = "m1"
ADDRESS = "fake.invalid:2181"
WHO = "alice@host, process 1"
TIMEOUT_MS = 600_000

How: TypeAlias = Literal["before", "behind", "lost", "dropped"]
WAYS: tuple[How, ...] = ("before", "behind", "lost", "dropped")


class Killed(BaseException):
    """The process has died; no handler of ours may catch it."""


def is_write(request: Request) -> bool:
    if isinstance(request, Multi) and request.ops[-1:] == (CheckOp(request.ops[0].path, IMPOSSIBLE_VERSION),):
        return False  # it asks for rights, and always fails
    return isinstance(request, Create | SetData | SetAcl | Delete | Multi)


@dataclass
class Cut:
    """Where a process is cut off; ``at`` 0: never.  ``seen``: how many writes there were so far."""

    at: int = 0
    how: How = "before"
    seen: int = 0

    @property
    def was_reached(self) -> bool:
        return 0 < self.at <= self.seen


class RunningAuthority(ControlZnode):
    """Takes the run before its first write, for steps that a test carries out without those that come first."""

    def write(self, requests: Sequence[Request]) -> list[Result]:
        self._hold()
        return super().write(requests)

    def write_offsets(self, *arguments: Any, **more: Any) -> str:
        self._hold()
        return super().write_offsets(*arguments, **more)

    def _hold(self) -> None:
        if not self.had_lock:
            AcquireLock(self, WHO).do()


Submit: TypeAlias = Callable[[int | None, Sequence[Request], Callable[[list[Result]], None]], None]


def cut_off(
    store: FakeZkStore, submit: Submit, how: How, session_id: int | None, requests: Sequence[Request], index: int
) -> None:
    """What becomes of the write at ``index`` of these requests, and of the process; ``submit`` sends for real."""
    match how:
        case "before" | "behind":
            submit(session_id, requests[: index + (how == "behind")], lambda _: None)
            raise Killed
        case _:
            store.server.lose_connection_on_next(partial(is_, requests[index]), is_done=how == "lost", store=store)


class CutStore(FakeZkStore):
    """A store whose process dies at a write."""

    cut: Cut = Cut()

    def submit(self, session_id: int | None, requests: Sequence[Request], done: Callable[[list[Result]], None]) -> None:
        for index, request in enumerate(requests):
            self.cut.seen += is_write(request)
            if not is_write(request) or self.cut.seen != self.cut.at:
                continue
            cut_off(self, super().submit, self.cut.how, session_id, requests, index)
        super().submit(session_id, requests, done)


@dataclass
class Group:
    """A ZooKeeper with one group and its topics, and what a test does to it."""

    zookeeper: FakeZooKeeper = field(default_factory=FakeZooKeeper)
    clock: ManualClock = field(default_factory=ManualClock)
    login: ZkLogin | None = field(default_factory=lambda: DigestLogin("operator", "secret"))
    stores: list[CutStore] = field(default_factory=list)
    auth: str | None = None
    """``zookeeper.auth`` of the tool: with it ``login`` is its own; without it, one that was made up for the run."""

    def topic(self, topic: str, partitions: int) -> None:
        numbers = ",".join(f'"{number}":[1]' for number in range(partitions))
        self.zookeeper.ensure(paths.topic(topic), f'{{"version":1,"partitions":{{{numbers}}}}}'.encode())

    def offset(self, topic: str, partition: int, offset: int = 42) -> None:
        self.zookeeper.ensure(paths.offset(GROUP, TopicPartition(topic, partition)), b"%d" % offset)

    def member(self) -> FakeZkStore:
        """A session of another client."""
        store = FakeZkStore(self.zookeeper)
        store.start(1_000)
        return store

    @contextmanager
    def process(self, cut: Cut | None = None, migration: str = MIGRATION) -> Iterator[ControlZnode]:
        """One process with its session; when it is killed its session ends, later, at the server."""
        made: list[CutStore] = []

        def store(connect: str, timeout_ms: int) -> CutStore:
            made.append(CutStore(self.zookeeper, "", timeout_ms, self.login))
            made[-1].cut = cut or Cut()
            self.stores.append(made[-1])
            return made[-1]

        more = {} if self.auth is None else {"zookeeper.auth": self.auth}
        session = AdminSession(
            tools_config(ADDRESS, None, None, more), AdminDependencies(store=store, clock=self.clock)
        )
        session.start()
        try:
            yield RunningAuthority(session, GROUP, migration)
        finally:
            for one in made:
                self.zookeeper.expire(one, reconnects=False)
            session.close()

    def state(self) -> dict[str, tuple[bytes, frozenset[Acl]]]:
        """Data and list of every node, without the lock: two runs with the same end must agree on these."""
        tree = self.zookeeper.tree
        left_out = (paths.control_child(GROUP, LOCK_CHILD),)
        return {
            path: (data, frozenset(tree._nodes[path].acl)) for path, data in tree.dump().items() if path not in left_out
        }


class Doer:
    """Carries steps out, and lets the time pass while one waits."""

    rechecks_steps = True

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.waited_for: list[str] = []

    def execute(self, step: MigrationStep) -> None:
        assert step.describe(), "a step says what it will do"
        step.do()

    def on_already_done(self, step: MigrationStep) -> None:
        pass

    def on_waiting(self, step: MigrationStep, waiting: StepWaiting, left_ms: int) -> bool:
        self.waited_for.append(waiting.waits_for)
        self.clock.move(1_000)
        return True

    def on_refused(self, step: MigrationStep, error: ZkConsumerError) -> None:
        raise error


def carry_out(authority: ControlZnode, steps: Sequence[MigrationStep], timeout_ms: int = TIMEOUT_MS) -> list[str]:
    """All of them, once more when the answer to a phase was lost; returns for which members it waited."""
    clock: Any = authority.session.clock
    doer = Doer(clock)
    while True:
        try:
            StepRunner(doer, clock, timeout_ms, "zkconsumer migrate apply", authority.is_abort_requested).run_steps(
                steps
            )
        except ControlWriteUnknownError:
            continue
        return doer.waited_for


def with_run(make: Callable[[ControlZnode], list[MigrationStep]]) -> Callable[[ControlZnode], None]:
    """What a command does: hold the run, then its steps."""

    def run(authority: ControlZnode) -> None:
        carry_out(authority, [AcquireLock(authority, WHO), *make(authority)])

    return run


def at_every_cut(
    make_group: Callable[[], Group], run: Callable[[ControlZnode], None], *, writes_min: int, migration: str = MIGRATION
) -> None:
    """See above.  ``writes_min``: at least so many writes must have been cut, or the loop shows nothing."""
    whole = make_group()
    with whole.process(migration=migration) as authority:
        run(authority)
    for how in WAYS:
        cut = Cut(1, how)
        while True:
            group = make_group()
            try:
                with group.process(cut, migration) as authority:
                    run(authority)
            except Killed:
                pass
            else:
                assert how in ("lost", "dropped") or not cut.was_reached, "a killed process went on"
            with group.process(migration=migration) as authority:
                run(authority)
            assert group.state() == whole.state(), f"{how} write {cut.at}"
            if not cut.was_reached:
                break
            cut = Cut(cut.at + 1, how)
        assert cut.at > writes_min, f"{cut.at - 1} writes were cut {how}"
