"""A run that is paused before its n-th write, while others act; then it continues, as a process does after SIGCONT.

It then sends the write that it had prepared, and its client opens a new ZooKeeper session.  Where only the placeholder
member has ended, ZooKeeper kept the session of the run, as it does while it elects a leader.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from bridge.migration.plan.migration_plan import MigrationPlan
from tests.migration.kill_cases import GROUP, LOG_END, T0, KillCase, KilledStore, KillScenario, Life
from tests.migration.migration_write_faults import DECISIONS
from tests.migration.step_write_faults import Killed
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.errors import ZkConsumerError
from zkconsumer.testing import checker as h
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.wire.schemas import LEAVE_GROUP
from zkconsumer.wire.schemas.leave_group import LeaveGroupRequest
from zkconsumer.zk import paths
from zkconsumer.zk.requests import Create, SetData, StoreError
from zkconsumer.zk.store import submit_and_wait

Gone: TypeAlias = Literal["session and placeholder", "placeholder"]
"""What the paused run has lost when it continues."""

GONE: tuple[Gone, ...] = ("session and placeholder", "placeholder")
COMMITTED = 40
"""What a client of the coordinator's group commits for t-0; no run writes that."""


@dataclass
class Pause(Life):
    """A life that is paused once, before write ``at``, for as long as ``meanwhile`` takes."""

    meanwhile: Callable[[], None] = lambda: None
    was_paused: bool = False

    def count(self, what: str) -> bool:
        """See ``Cuts``: nothing is ever cut off."""
        self.seen.append(what)
        if len(self.seen) == self.at and not self.was_paused:
            self.was_paused = True
            self.meanwhile()
        return False


Act: TypeAlias = "Callable[[KillScenario, MigrationPlan], None]"


@dataclass
class Outcome:
    """``findings``: the checker's findings that are not caused by the others alone, one in each line."""

    write: str
    phase: str | None
    """Where the migration stood before the pause."""
    error: BaseException | None
    findings: list[str]
    ground: KillScenario


# --- what others do -----------------------------------------------------------------------------------------------


def nobody_acts(ground: KillScenario, plan: MigrationPlan) -> None:
    """The pause alone."""


def a_coordinator_client_commits(ground: KillScenario, plan: MigrationPlan) -> None:
    """Where Kafka has the authority, it read so far; else it is a tool that knows of no migration."""
    control = ground.control(GROUP)
    if control is not None and control.authority == "kafka" and plan.strategy == "copy":
        with suppress(AssertionError):  # it is refused where a member is in the group
            ground.modern({T0: COMMITTED}, "client")
    else:
        ground.commit(GROUP, T0.partition, COMMITTED)


def an_old_member_starts(ground: KillScenario, plan: MigrationPlan) -> None:
    """It reads and commits if ZooKeeper lets it; a fence turns it away.

    Not where no fence is promised: without access lists, which ``dual`` does not have, before members gave all back.
    """
    control = ground.control(GROUP)
    if plan.strategy == "dual" and control is not None and control.authority == "kafka":
        return
    store = FakeZkStore(ground.zookeeper)
    store.start(1_000)
    ground.recorder.member("zombie", "ours", store.session_id)
    [claimed] = submit_and_wait(store, [Create(paths.owner(GROUP, T0), b"zombie", ephemeral=True)], 1_000)
    if not isinstance(claimed, StoreError):
        ground._read("zombie", T0, int(ground.zookeeper.data(paths.offset(GROUP, T0)) or 0), LOG_END)
        [written] = submit_and_wait(store, [SetData(paths.offset(GROUP, T0), b"%d" % LOG_END, -1)], 1_000)
        assert not isinstance(written, StoreError), written
        ground.recorder.add(h.MemberReleasedPartition, "zombie", *T0)
    store.close(1_000)


def applies(ground: KillScenario, session: AdminSession, plan: MigrationPlan) -> None:
    if plan.strategy == "dual":
        ground.move(session, plan)  # type: ignore[attr-defined]
    else:
        ground.apply(session, plan)


def rolls_back(ground: KillScenario, session: AdminSession, plan: MigrationPlan) -> None:
    ground.back(session, plan)


def completes(ground: KillScenario, session: AdminSession, plan: MigrationPlan) -> None:
    ground.complete(session)


Operates: TypeAlias = Callable[[KillScenario, AdminSession, MigrationPlan], None]
OPERATORS: tuple[Operates, ...] = (applies, rolls_back, completes)


def operator(operates: Operates, life: Life | None = None) -> Act:
    """Another operator, whose command is refused or ends; or is killed as ``life`` defines, and its session ends."""

    def act(ground: KillScenario, plan: MigrationPlan) -> None:
        with suppress(ZkConsumerError, Killed), ground.process(life) as session:
            operates(ground, session, plan)
        if life is not None and life.was_reached:
            ground.pause(60_000)  # his placeholder member stays longer than that

    act.__name__ = f"another_{operates.__name__}"
    return act


# --- the paused run -----------------------------------------------------------------------------------------------


def pause_at(way: KillCase, at: int, act: Act, gone: Gone, folder: Path) -> Outcome | None:
    """Run the command, paused before its write ``at``; None: it makes fewer writes."""
    ground = way.ground(folder, DECISIONS)
    (folder / "znodes").unlink(missing_ok=True)
    plan = way.prepare(ground)
    phases: list[str | None] = []

    def meanwhile() -> None:
        control = ground.control(GROUP)
        phases.append(None if control is None else control.phase)
        store = session._store
        assert isinstance(store, KilledStore)
        if gone == "session and placeholder":
            ground.zookeeper.expire(store, reconnects=True)
        ground.recorder.session(store.session_id or 0, name)
        forget_placeholder(ground)
        act(ground, plan)

    pause = Pause(at=at, meanwhile=meanwhile)
    error: BaseException | None = None
    name = f"run {ground.runs + 1}"
    try:
        with ground.process(pause) as session:
            way.run(ground, session, plan)
    except (ZkConsumerError, ValueError, KeyError, AssertionError) as found:
        error = found
    if not pause.was_paused:
        return None
    way.settle(ground)
    findings = [f"{one.code}: {one.text}" for one in h.check_history(ground.recorder.events).findings]
    # Whose commit it was that Kafka took while it had no authority: that is named, whatever the run does.
    findings = [one for one in findings if " of an unknown client" not in one]
    return Outcome(pause.seen[at - 1], phases[0], error, findings, ground)


def forget_placeholder(ground: KillScenario) -> None:
    """Its session at the coordinator is over.  No time passes, so that what the run waits for is as it was."""
    group = ground.broker.group(GROUP)
    seats = [] if group is None else [one for one in group.members.values() if one.client_id.startswith("zkconsumer-")]
    connection = ground.broker.connect("")
    for seat in seats:
        connection.request(LEAVE_GROUP, 0, LeaveGroupRequest(group_id=GROUP, member_id=seat.member_id), 1_000)
    connection.close()
