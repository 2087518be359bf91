"""A move of the authority counts when a heartbeat after its write was answered; conditions of writes; the
placeholder.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

import pytest

from bridge.migration.control.control_layout import next_control
from bridge.migration.control.control_steps import AcquireLock, AdvancePhase
from bridge.migration.control.phases import Phase
from bridge.migration.errors import (
    AuthorityMoveUnconfirmedError,
    MigrationLockLostError,
    PartiallyDoneError,
    VerificationError,
)
from bridge.migration.fences.fence_removal import RemoveOwnerFences
from bridge.migration.placeholder.placeholder_rules import GroupOccupants
from bridge.migration.placeholder.placeholder_steps import EnsureSessionTimeouts
from bridge.migration.plan.migration_plan import MigrationPlan
from bridge.migration.steps.authority_steps import ConfirmAuthorityMove, MoveAuthority
from bridge.migration.steps.migration_context import MigrationContext
from bridge.migration.steps.rollback import RollbackOptions, rollback_steps
from bridge.migration.steps.step import StepDone, StepPending, StepRefused
from tests.migration.fence_fixtures import moved
from tests.migration.kill_cases import GROUP, PARTITIONS, T0, BackAfter, KillScenario
from tests.migration.migration_write_faults import DECISIONS
from tests.migration.pause_cases import COMMITTED, forget_placeholder
from tests.migration.placeholder_fixtures import RELEASES, MakePlaceholderFixture
from tests.migration.step_write_faults import WHO
from zkconsumer.admin.zookeeper_offset_writes import NO_ZNODE_VERSION, OffsetWrite
from zkconsumer.errors import InternalError, PreconditionFailed
from zkconsumer.testing import checker as h
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import Create, Delete
from zkconsumer.zk.znode_formats import ControlRecord, format_control


def switched_unconfirmed(
    tmp_path: Path, then: Callable[[KillScenario, MigrationContext], None] = lambda ground, moving: None
) -> tuple[KillScenario, MigrationPlan]:
    """``then``: what the same run does next."""
    ground = KillScenario(tmp_path)
    plan = ground.plan_it("copy")
    with ground.process() as session:
        ground.apply(session, plan, stop_after=Phase.VERIFIED)
    with ground.process() as session:
        moving = ground.moving(session, ground.kept(session, GROUP))
        AcquireLock(moving.control_znode, WHO).do()
        moving.placeholder.join()
        MoveAuthority(moving.control_znode, moving.placeholder, Phase.SWITCHED).do()
        then(ground, moving)
    return ground, plan


def returned_unconfirmed(
    tmp_path: Path, meanwhile: Callable[[KillScenario], None]
) -> tuple[KillScenario, MigrationPlan]:
    """A rollback that is paused between its heartbeat and its write of ``returned``, and killed directly after it."""
    way = BackAfter()
    ground = way.ground(tmp_path, DECISIONS)
    plan = way.prepare(ground)
    with ground.process() as session:
        moving = ground.moving(session, ground.kept(session, GROUP))
        steps = rollback_steps(moving, RollbackOptions(lambda _: None, 1_000))
        ground.carry_out(moving, takewhile(lambda step: not isinstance(step, MoveAuthority), steps))
        moving.placeholder.heartbeat()
        meanwhile(ground)
        AdvancePhase(moving.control_znode, Phase.RETURNED).write(is_confirmed=False)
    return ground, plan


# --- what writes of a run are bound to -----------------------------------------------------------------------------


def test_a_write_of_a_run_whose_session_has_ended_is_never_made() -> None:
    group = moved(Phase.FENCING)
    with group.process() as authority:
        AcquireLock(authority, WHO).do()
        held = authority.require_phase(Phase.FENCING)
        before = group.state()
        group.zookeeper.expire(group.stores[-1], reconnects=True)
        assert authority.session.session_id is not None, "there is another session by now"
        writes: list[Callable[[], object]] = [
            lambda: authority.write([Create("/left"), Delete(paths.ids(authority.group))]),
            lambda: authority.transact(held, []),
            lambda: authority.write_control(held, next_control(held.control, Phase.FENCED)),
            lambda: authority.write_offsets(held, [OffsetWrite(TopicPartition("clicks", 7), 1, NO_ZNODE_VERSION)]),
        ]
        for write in writes:
            with pytest.raises(MigrationLockLostError, match="the session of this run with ZooKeeper has ended"):
                write()
        assert group.state() == before


def test_a_phase_is_not_written_over_a_control_znode_that_changed_after_it_was_read() -> None:
    """The version condition of the write: here the other one deleted ``run`` by hand, so its session still lives."""
    group = moved(Phase.FENCING)
    others = format_control(ControlRecord("m2", 9, "planned", "zookeeper", "copy"))
    with group.process() as authority:
        AcquireLock(authority, WHO).do()
        step = AdvancePhase(authority, Phase.FENCED)
        require = authority.require_phase

        def overtaken(*phases: Phase) -> object:
            held = require(*phases)
            group.zookeeper.ensure(paths.control(authority.group), others)
            return held

        authority.require_phase = overtaken  # type: ignore[method-assign, assignment]
        with pytest.raises(PartiallyDoneError, match="contains migration m2 in phase planned"):
            step.do()
    assert group.zookeeper.data(paths.control(authority.group)) == others


# --- the proof -----------------------------------------------------------------------------------------------------


def test_a_move_is_confirmed_only_by_a_heartbeat_that_is_answered_after_it(tmp_path: Path) -> None:
    def confirms_too_late(ground: KillScenario, moving: MigrationContext) -> None:
        forget_placeholder(ground)
        with pytest.raises(AuthorityMoveUnconfirmedError, match="UNKNOWN_MEMBER_ID"):
            ConfirmAuthorityMove(moving.control_znode, moving.placeholder, Phase.SWITCHED).do()

    ground, _ = switched_unconfirmed(tmp_path, confirms_too_late)
    control = ground.control(GROUP)
    assert control is not None
    assert (control.phase, control.is_confirmed) == ("switched", False)
    with pytest.raises(InternalError, match="before that is confirmed"):
        next_control(control, Phase.COMPLETED)


def test_no_fence_is_lifted_before_the_move_is_confirmed(tmp_path: Path) -> None:
    ground, plan = returned_unconfirmed(tmp_path, lambda ground: None)
    with ground.process() as session:
        moving = ground.moving(session, plan)
        standing = RemoveOwnerFences(moving.control_znode, moving.parents_to_keep).check()
    assert isinstance(standing, StepRefused)
    assert "phase returned is not confirmed" in str(standing.error)


@pytest.mark.parametrize("is_gone", [False, True])
def test_the_next_run_confirms_a_switch_when_kafka_has_every_offset_that_was_copied(
    tmp_path: Path, is_gone: bool
) -> None:
    ground, plan = switched_unconfirmed(tmp_path)
    if is_gone:
        forget_placeholder(ground)
    with ground.process() as session:
        ground.apply(session, plan)
    control = ground.control(GROUP)
    assert control is not None
    assert (control.phase, control.is_confirmed) == ("switched", True)
    ground.modern(dict.fromkeys(PARTITIONS, 50))
    assert h.check_history(ground.recorder.events).codes == set()


def test_a_commit_of_another_client_before_or_after_the_switch_is_named_and_stays_until_it_is_accepted(
    tmp_path: Path,
) -> None:
    ground, plan = switched_unconfirmed(tmp_path)
    forget_placeholder(ground)
    assert ground.commit(GROUP, 0, COMMITTED) == 0
    fences = {path for path in ground.nodes(GROUP) if path.endswith("/fenced")}
    for command in (ground.apply, ground.back, lambda session, _: ground.complete(session)):
        named = pytest.raises(VerificationError, match=r"t/0: Kafka has 40, not 10.*--accept-drift")
        with named as refused, ground.process() as session:
            command(session, plan)
        assert refused.value.exit_code == 5
        assert ground.stored()[T0] == (COMMITTED, "")
        assert {path for path in ground.nodes(GROUP) if path.endswith("/fenced")} == fences
    with ground.process() as session:
        ground.apply(session, plan, accept_drift=True)
    assert ground.stored()[T0] == (COMMITTED, "")
    control = ground.control(GROUP)
    assert control is not None
    assert control.is_confirmed


def test_commits_before_returned_are_in_zookeeper_before_a_fence_is_removed(
    tmp_path: Path,
) -> None:
    """The run is paused after its heartbeat, and killed directly after its write: the next run does not know of it."""

    def others(ground: KillScenario) -> None:
        forget_placeholder(ground)
        ground.modern({T0: COMMITTED}, "client")

    ground, plan = returned_unconfirmed(tmp_path, others)
    assert ground.offsets(GROUP)[T0] == 33
    with ground.process() as session:
        ground.back(session, plan)
    control = ground.control(GROUP)
    assert control is not None
    assert control.phase == "undone"
    assert ground.offsets(GROUP)[T0] == COMMITTED
    assert h.check_history(ground.recorder.events).codes == set()


# --- the placeholder member ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", RELEASES)
def test_a_late_leave_group_of_an_earlier_run_does_not_remove_the_placeholder_of_the_next(
    make_env: MakePlaceholderFixture, release: str
) -> None:
    env = make_env(release)
    with env.process() as first, env.process() as second:
        earlier, later = env.seat(first), env.seat(second)
        earlier.join()
        assert earlier.joined is not None
        member_id = earlier.joined.generation.member_id
        later.join()
        assert later.joined is not None
        assert later.joined.generation.member_id != member_id, "each run is a member of its own"
        assert earlier._joiner._remove(member_id) == "", "the LeaveGroup that was under way"
        later.heartbeat()


def test_brokers_with_short_sessions_get_a_short_session_with_zookeeper_before_anything_is_changed(
    make_env: MakePlaceholderFixture,
) -> None:
    env = make_env("0.9.0.1")
    with env.process() as session:
        assert session.negotiated_timeout_ms == 30_000
        step = EnsureSessionTimeouts(env.seat(session), session)
        assert step.check() == StepPending()
        step.do()
        assert session.negotiated_timeout_ms == 10_000
        assert step.check() == StepDone()
        env.seat(session).join()


@pytest.mark.parametrize(
    ("allowed_ms", "words"),
    [
        (40_000, r"allow a member of a group a session of 30000 ms.*granted this run one of 20000 ms.*above 30000"),
        (29_999, r"the brokers allow no session of 30 s: raise their group.max.session.timeout.ms to 30000 at least"),
    ],
)
def test_a_placeholder_that_would_not_outlive_the_run_is_refused_before_any_change(
    make_env: MakePlaceholderFixture, allowed_ms: int, words: str
) -> None:
    env = make_env("3.9.1", properties={"group.max.session.timeout.ms": str(allowed_ms)})
    env.zookeeper.timeout_range_ms = (20_000, 40_000)
    with env.process() as session:
        step = EnsureSessionTimeouts(env.seat(session), session)
        if step.check() == StepPending():
            step.do()
        refused = step.check()
        assert isinstance(refused, StepRefused)
        assert isinstance(refused.error, PreconditionFailed)
        assert re.search(words, str(refused.error))
        assert env.seat(session).read_occupants() == GroupOccupants(), "to ask makes no member"


def test_the_longest_session_that_brokers_allow_is_found_without_a_change(make_env: MakePlaceholderFixture) -> None:
    for release, longest_ms in (("0.9.0.1", 30_000), ("2.0.1", 300_000), ("3.9.1", 1_800_000)):
        env = make_env(release)
        with env.process() as session:
            seat = env.seat(session)
            assert seat.session_timeout_ms() == longest_ms
            seat.join()
            assert seat.joined is not None
            assert seat.joined.config.session_timeout_ms == longest_ms
            assert seat.session_timeout_ms() == longest_ms, "also in a group that has a member"
            seat.heartbeat()
