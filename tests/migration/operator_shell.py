"""The commands of ``zkconsumer migrate`` as an operator types them, in an environment that fails when a step begins.

    shell.at["commit the offsets to Kafka"] = lambda: shell.zookeeper_away(60_000)
    done = shell("apply", file, "--execute")

Time passes only when a command waits, in one ``ManualClock``; a later event (a server answers again) is due at a moment
of that clock.  Each step can be intercepted twice: ``at`` before it is checked, ``in_`` before it is executed.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bridge.commands import migrate_apply, migrate_complete, migrate_execution, migrate_rollback
from bridge.migration.placeholder import placeholder_member
from bridge.migration.plan.decisions import Decisions
from bridge.migration.plan.plan_file import write_plan_file
from bridge.migration.steps.migration_invariant import MigrationInvariant
from bridge.migration.steps.step import MigrationStep, StepStatus
from bridge.testing.fake_environment import ADDRESS
from tests.migration.migration_write_faults import DECISIONS, EXPECTED, STORED, CutConnection, Cuts, Lab, judge
from tests.migration.placeholder_fixtures import refused
from zkconsumer.admin import admin_session as admin_session
from zkconsumer.admin import coordinator_client, coordinator_lookups, log_ranges
from zkconsumer.admin.admin_session import AdminDependencies
from zkconsumer.cli.main import main
from zkconsumer.errors import BrokerUnreachable, ZkTimeoutException
from zkconsumer.kafka.broker_connection import PendingRequest
from zkconsumer.kafka.error_codes import COORDINATOR_NOT_AVAILABLE
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.wire.schemas import (
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
    Api,
)
from zkconsumer.wire.schemas.offset_commit import OffsetCommitRequest
from zkconsumer.zk import broker_directory
from zkconsumer.zk import store as zk_store
from zkconsumer.zk.requests import Request
from zkconsumer.zk.requests import Result as ZkResult
from zkconsumer.zk.zk_security import DigestLogin

CONNECT_MS = 3_000
"""What it costs to find that a broker is away."""

ASKED_OF_COORDINATORS = (
    DESCRIBE_GROUPS, FIND_COORDINATOR, HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, OFFSET_COMMIT, SYNC_GROUP
)  # fmt: skip


class Later(ManualClock):
    """Things happen when their time has come."""

    def __init__(self) -> None:
        super().__init__()
        self.due: list[tuple[int, Callable[[], None]]] = []

    def after(self, ms: int, what: Callable[[], None]) -> None:
        self.due.append((self.now_ms() + ms, what))

    def move(self, by_ms: int) -> None:
        until_ms = self.now_ms() + by_ms
        while self.due:
            at_ms, what = min(self.due, key=lambda one: one[0])
            if at_ms > until_ms:
                break
            self.due.remove((at_ms, what))
            super().move(max(0, at_ms - self.now_ms()))
            what()
        super().move(until_ms - self.now_ms())


_MOMENTS: dict[str, list[tuple[str, str]]] = {}
"""The same for every group, so it is read once."""


@dataclass(frozen=True)
class Met:
    """A step, and what happens before it is looked at and before it is done."""

    step: MigrationStep
    shell: Shell

    @property
    def name(self) -> str:
        return self.step.name

    @property
    def changes(self) -> bool:
        return self.step.changes

    def describe(self) -> list[str]:
        return self.step.describe()

    def check(self) -> StepStatus:
        self.shell.meet(self.name, "at")
        return self.step.check()

    def do(self) -> None:
        self.shell.meet(self.name, "in")
        self.step.do()


class MetInvariant(MigrationInvariant):
    """The invariant for the steps inside of ``Met``."""

    def check_before(self, step: MigrationStep) -> None:
        super().check_before(step.step if isinstance(step, Met) else step)

    def check_after(self, step: MigrationStep) -> None:
        super().check_after(step.step if isinstance(step, Met) else step)


class FailingCable(CutConnection):
    """A broker that may be away, or answer that it does not coordinate the group (any more, yet)."""

    def __init__(self, shell: Shell, host: str, port: int, **how: Any) -> None:
        super().__init__(Cuts(), shell.lab.history, host, port, **how)
        self.shell = shell

    def send(self, api: Api[Any, Any], version: int, body: Any, timeout_ms: int, **how: Any) -> Any:
        self._fail()
        return super().send(api, version, body, timeout_ms, **how)

    def request(self, api: Api[Any, Any], version: int, body: Any, timeout_ms: int, **how: Any) -> Any:
        self._fail()
        code = self.shell.coordinator_code
        if not code or api not in ASKED_OF_COORDINATORS:
            return super().request(api, version, body, timeout_ms, **how)
        if api in (DESCRIBE_GROUPS, FIND_COORDINATOR):
            code = COORDINATOR_NOT_AVAILABLE.code if api is FIND_COORDINATOR else code
            return _with_code(super().request(api, version, body, timeout_ms, **how), code)
        if isinstance(body, OffsetCommitRequest):
            return refused(body, code)
        return api.response(error_code=code)

    def receive(self, pending: PendingRequest[Any], timeout_ms: int, **how: Any) -> Any:
        answer = super().receive(pending, timeout_ms, **how)
        code = self.shell.coordinator_code
        return _with_code(answer, code) if code and pending.api is OFFSET_FETCH else answer

    def _fail(self) -> None:
        if self.shell.is_broker_away:
            self.shell.clock.move(CONNECT_MS)
        if self.shell.is_broker_away:
            raise BrokerUnreachable(f"{self}: nothing listens there")


@dataclass
class Shell:
    """One operator.  ``met``: every step that was met, in order, ``at`` and ``in``."""

    lab: Lab
    clock: Later
    folder: Path
    at: dict[str, Callable[[], None]] = field(default_factory=dict)
    in_: dict[str, Callable[[], None]] = field(default_factory=dict)
    met: list[tuple[str, str]] = field(default_factory=list)
    is_broker_away: bool = False
    coordinator_code: int = 0
    stores: list[FakeZkStore] = field(default_factory=list)
    paused: list[int] = field(default_factory=list)

    # --- commands

    def __call__(self, *words: str | Path, typed: str | None = None) -> Result:
        """Runs ``zkconsumer migrate <words>``."""
        doors = AdminDependencies(self._store, self._connect, self.clock)
        given = [*map(str, words)]
        where = () if "--zookeeper" in given else ("--zookeeper", ADDRESS)
        self.met = []
        done = CliRunner().invoke(main, ["migrate", *given, *where], obj=doors, input=typed)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done

    def beside(self, *words: str | Path) -> Result:
        """The same from another terminal, while a command of ours is in the middle of a step."""
        met, self.met = self.met, []
        try:
            return self(*words)
        finally:
            self.met = met

    def again(self, done: Result, *more: str) -> Result:
        """The command that a refusal names last."""
        return self(*command_in(done.stderr), *more)

    def planned(self, decisions: Decisions = DECISIONS) -> tuple[str, Path]:
        """A group without members, and its plan in a file."""
        group = self.lab.new_group()
        file = self.folder / f"{group}.plan"
        write_plan_file(file, self.lab.plan(group, decisions))
        return group, file

    # --- what fails

    def moments(self, name: str) -> list[tuple[str, str]]:
        """When something may happen to one of ``COMMANDS``: each step, before it is looked at or done."""
        if name not in _MOMENTS:
            group, file = COMMANDS[name].prepare(self)
            assert COMMANDS[name](self, group, file).exit_code == 0
            _MOMENTS[name] = list(dict.fromkeys(self.met))
        return _MOMENTS[name]

    def happens(self, when: str, step: str, what: Callable[[], None]) -> None:
        """Once, ``at`` or ``in`` that step."""
        (self.at if when == "at" else self.in_)[step] = what

    @property
    def never_came(self) -> set[tuple[str, str]]:
        """The moments that something was to happen at, and that did not come."""
        return {("at", step) for step in self.at} | {("in", step) for step in self.in_}

    def meet(self, name: str, when: str) -> None:
        self.met.append((when, name))
        what = (self.at if when == "at" else self.in_).pop(name, None)
        if what is not None:
            what()

    def zookeeper_away(self, ms: int, *, expires: bool = False) -> None:
        """No server can be reached for so long; ``expires``: they were there, and ended our sessions meanwhile."""
        server = self.lab.zookeeper
        server.is_up = False
        mine = {store: store.session_id for store in self.stores if store in server.stores}
        for store in mine:
            server.disconnect(store)

        def back() -> None:
            server.is_up = True
            for store, session_id in mine.items():
                if store not in server.stores:
                    server.end_session(session_id or 0)  # it was closed meanwhile, and the server did not hear of it
                    continue
                if expires:
                    server.expire(store)
                server.reconnect(store)

        self.clock.after(ms, back)

    def broker_away(self, ms: int) -> None:
        self.is_broker_away = True

        def back() -> None:
            self.is_broker_away = False

        self.clock.after(ms, back)

    def coordinator_away(self, ms: int, code: int) -> None:
        """Every broker answers that it is not the coordinator any more (16), or not yet (14)."""
        self.coordinator_code = code

        def back() -> None:
            self.coordinator_code = 0

        self.clock.after(ms, back)

    def all_back(self) -> None:
        """The night is over."""
        while self.clock.due:
            self.clock.move(max(0, min(at for at, _ in self.clock.due) - self.clock.now_ms()))

    # --- replacements for the environment of a process

    def pause(self, ms: int) -> None:
        assert len(self.paused) < 100_000, "it waits for ever"
        self.paused.append(ms)
        self.clock.move(ms)

    def call(
        self, store: FakeZkStore, requests: list[Request], timeout_ms: int, session_id: int | None = None
    ) -> list[ZkResult]:
        """``zkconsumer.zk.store.submit_and_wait`` that takes no time."""
        server = self.lab.zookeeper
        if server.is_up:
            return zk_store.submit_and_wait(store, requests, 30_000, session_id)
        box: list[list[ZkResult]] = []
        store.submit(session_id, requests, box.append)
        until_ms = self.clock.now_ms() + timeout_ms
        while not box and not server.is_up and self.clock.now_ms() < until_ms:
            self.clock.move(min(1_000, until_ms - self.clock.now_ms()))
        if server.is_up or box:
            zk_store.submit_and_wait(store, [], 30_000)  # behind what was submitted before
            return box[0]
        raise ZkTimeoutException(f"ZooKeeper did not answer {len(requests)} requests within {timeout_ms} ms")

    def _store(self, connect: str, timeout_ms: int, **how: Any) -> FakeZkStore:
        made = FakeZkStore(self.lab.zookeeper, "", timeout_ms, DigestLogin("operator", "secret"))
        self.stores.append(made)
        return made

    def _connect(self, host: str, port: int, **how: Any) -> FailingCable:
        return FailingCable(self, host, port, **how)


def _with_code(answer: Any, code: int) -> Any:
    """An answer of a broker that does not coordinate the group."""
    for rows in ("groups", "coordinators"):
        for one in getattr(answer, rows, ()):
            one.error_code = code
    if hasattr(answer, "error_code"):
        answer.error_code = code
    return answer


def command_in(text: str) -> list[str]:
    """The arguments of ``zkconsumer migrate`` in the last command that a text contains."""
    line = text[text.rindex("zkconsumer migrate ") :].split("\n")[0]
    return shlex.split(line)[2:]


def told(done: Result) -> dict[str, Any]:
    """What a command printed for programs."""
    read: dict[str, Any] = json.loads(done.stdout)
    return read


@dataclass(frozen=True)
class Command:
    """The state before it, its arguments, and the phase after it."""

    prepare: Callable[[Shell], tuple[str, Path]]
    words: Callable[[str, Path], list[str]]
    end: tuple[str, str]

    def __call__(self, shell: Shell, group: str, file: Path, *more: str) -> Result:
        return shell(*self.words(group, file), "--execute", *more)


def moved(shell: Shell, *more: str) -> tuple[str, Path]:
    group, file = shell.planned()
    assert shell("apply", file, "--execute", *more).exit_code == 0
    return group, file


def rollback(group: str, file: Path) -> list[str]:
    return ["rollback", group]


COMMANDS = {
    "copy": Command(lambda shell: shell.planned(), lambda group, file: ["apply", str(file)], ("switched", "kafka")),
    "back after the switch": Command(moved, rollback, ("undone", "zookeeper")),
    "back before it": Command(lambda shell: moved(shell, "--stop-after=verified"), rollback, ("undone", "zookeeper")),
    "complete": Command(
        moved,
        lambda group, file: ["complete", group, "--confirm", group, "--archive", f"{file}.znodes"],
        ("completed", "kafka"),
    ),
    "complete and lift": Command(
        moved,
        lambda group, file: ["complete", group, "--remove-fences", "--confirm", group, "--archive", f"{file}.znodes"],
        ("completed", "kafka"),
    ),
}


def both(lab: Lab, group: str) -> object:
    """Everything that is stored of a group."""
    return lab.nodes(group), lab.control(group), lab.kafka(group)


def ends_right(lab: Lab, group: str, command: Command) -> None:
    """As without any trouble: the authority, the offsets in its store, and every write on the way."""
    assert lab.stands(group) == command.end
    if command.end[1] == "kafka":
        assert {tp: offset for tp, (offset, _) in lab.kafka(group).items()} == EXPECTED
    else:
        assert lab.offsets(group).items() in (EXPECTED.items(), STORED.items())
    judge(lab.history.moments[group])


@dataclass
class _Signal:
    shell: Shell

    def __call__(self) -> _Signal:
        return self

    def wait(self, ms: int) -> bool:
        self.shell.pause(ms)
        return False


@pytest.fixture
def shell(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    clock = Later()
    made = Shell(lab, clock, tmp_path)
    monkeypatch.setattr(lab, "clock", clock)
    for module in (migrate_execution, placeholder_member, coordinator_client, coordinator_lookups, log_ranges):
        monkeypatch.setattr(module, "StopSignal", _Signal(made))
    for module in (admin_session, broker_directory):
        monkeypatch.setattr(module, "submit_and_wait", made.call)
    monkeypatch.setattr(migrate_execution, "MigrationInvariant", MetInvariant)
    for module, name in ((migrate_apply, "copy_steps"), (migrate_rollback, "rollback_steps"),
                         (migrate_complete, "complete_steps")):  # fmt: skip
        monkeypatch.setattr(module, name, _met(made, getattr(module, name)))
    yield made
    made.all_back()


def _met(shell: Shell, steps: Callable[..., Iterator[MigrationStep]]) -> Callable[..., Iterator[MigrationStep]]:
    def each(*given: Any, **how: Any) -> Iterator[MigrationStep]:
        for step in steps(*given, **how):
            yield Met(step, shell)

    return each
