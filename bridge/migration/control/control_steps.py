"""The steps on the control znode: create it, acquire the lock, advance the phase; and the request to stop a run.

The step that advances the control znode ends a phase: every other step of the phase comes before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bridge.migration.control.control_acls import read_group_logins
from bridge.migration.control.control_layout import (
    ABORT_CHILD,
    ACL_PIECE_PREFIX,
    JOURNAL_CHILD,
    LOCK_CHILD,
    MEMBERS_CHILD,
    PIECE_PREFIXES,
    initial_control,
    next_control,
)
from bridge.migration.control.control_znode import TRIES_MAX, ControlZnode, connection_lost_error, format_lock
from bridge.migration.control.phases import ENDED, FORWARD, Phase, Strategy, next_phases
from bridge.migration.errors import ControlWriteUnknownError, StalePlanError
from bridge.migration.steps.step import CheckingStep, StepDone, StepPending, StepRefused, StepStatus, StepWaiting
from zkconsumer.admin.admin_session import SESSION_TIMEOUT_MS, unexpected_result_error, zk_error_name
from zkconsumer.errors import PreconditionFailed, UnavailableError
from zkconsumer.zk import paths
from zkconsumer.zk.requests import (
    Acl,
    BadVersion,
    ConnectionLost,
    Create,
    CreateOp,
    Delete,
    DeleteOp,
    Exists,
    Multi,
    MultiFailed,
    MultiOk,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    OtherError,
    SessionEnded,
    SetData,
    SetOp,
    Stat,
    StoreError,
)
from zkconsumer.zk.zk_security import SECURE_ACL
from zkconsumer.zk.znode_formats import format_control

if TYPE_CHECKING:
    from bridge.migration.control.control_znode import VersionedControl
    from bridge.migration.inspect.group_snapshot import GroupSnapshot
    from zkconsumer.admin.admin_session import AdminSession

LOCK_WAIT_MS = SESSION_TIMEOUT_MS + 10_000
"""How long a run waits for the lock of another one; the session of a dead process ends earlier than this."""

_LATER_PHASES_OF_ROLLBACK: dict[Phase, tuple[Phase, ...]] = {
    Phase.UNDOING: (Phase.UNDONE,),
    Phase.RETURNING: (Phase.RETURNED, Phase.UNDONE),
    Phase.RETURNED: (Phase.UNDONE,),
}
"""Phase -> the later phases of a rollback."""


@dataclass(frozen=True, slots=True)
class CreateControlZnode:
    """The control znode of a new migration: created, or written over that of an ended one, whose children are deleted.

    ``seen``: the control znode in the plan.  The step is refused over a completed migration that the plan does not
    contain, and where another migration has removed the fences in the plan since.  Access lists that
    ``StoreInheritedAcls`` stored remain.
    """

    control_znode: ControlZnode
    strategy: Strategy
    snapshot: GroupSnapshot | None = None

    name = "control znode: planned"
    changes = True

    def describe(self) -> list[str]:
        return [
            f"write {paths.control(self.control_znode.group)}: migration {self.control_znode.migration_id}, phase "
            "planned, "
            "authority zookeeper"
        ]

    def check(self) -> StepStatus:
        held = self.control_znode.read()
        if held is None:
            return StepPending()
        group, found = self.control_znode.group, held.control
        if found.migration_id != self.control_znode.migration_id:
            if held.phase in ENDED and not self._plan_saw_end_of(held):
                return StepRefused(
                    StalePlanError(
                        f"migration {found.migration_id} of group {group} ended since this plan was made (phase "
                        f"{found.phase}), so the plan does not define its fences or which store has the authority. "
                        f"Plan again: zkconsumer migrate plan {group}"
                    )
                )
            if held.phase in ENDED:
                return StepPending()
            return StepRefused(
                PreconditionFailed(
                    f"migration {found.migration_id} of group {group} is active (phase {found.phase}). Complete it or "
                    f"roll it back first: zkconsumer migrate status {group}"
                )
            )
        if held.phase not in FORWARD[self.strategy] or held.strategy != self.strategy:
            return StepRefused(
                PreconditionFailed(
                    f"migration {found.migration_id} of group {group} is being rolled back, or was undone (phase "
                    f"{found.phase}). Finish the rollback (zkconsumer migrate rollback {group} --execute), then make a "
                    "new "
                    f"plan: zkconsumer migrate plan {group}"
                )
            )
        return StepDone()

    def _plan_saw_end_of(self, held: VersionedControl) -> bool:
        """Whether the plan contains the end of that migration, as far as it matters to the plan."""
        seen = self.snapshot
        if seen is None or (held.phase is not Phase.COMPLETED and not seen.fences_migration_id):
            return True
        return seen.control is not None and seen.control.migration_id == held.control.migration_id

    def do(self) -> None:
        session, group = self.control_znode.session, self.control_znode.group
        path = paths.control(group)
        for _ in range(TRIES_MAX):
            session_id = session.session_id
            held = self.control_znode.read()
            before = None if held is None else held.control
            if before is not None and before.migration_id == self.control_znode.migration_id:
                return
            standing = self.check()
            if isinstance(standing, StepRefused):
                raise standing.error
            data = format_control(initial_control(self.control_znode.migration_id, self.strategy, before))
            for_group = self._member_children_ops()
            ops: list[Op] = [CreateOp(path, data, acl=self.control_znode.acl_policy.acl)]
            if held is None:
                session.request(self._parents(), session_id)
            else:
                ops = [SetOp(path, data, held.version), *self._stale_children_ops()]
            [answer] = session.request([Multi((*ops, *for_group))], session_id)
            if isinstance(answer, MultiOk):
                return
            failed = answer.error if isinstance(answer, MultiFailed) else answer
            if not isinstance(failed, ConnectionLost | SessionEnded | NodeExists | NoNode | NotEmpty | BadVersion):
                raise UnavailableError(f"{path} cannot be written: {zk_error_name(failed)}")
        raise connection_lost_error(path)

    def _parents(self) -> list[Create]:
        """The parents of the control znode, and the node of Spark queries beside it: later only this login could
        create it."""
        [top, *below] = paths.parents(paths.control(self.control_znode.group))
        acl = self.control_znode.acl_policy.acl
        spark = [Create(paths.SPARK_CLAIMS)] if self.control_znode.acl_policy.is_protected else []
        return [Create(top, acl=acl), *spark, *(Create(path, acl=acl) for path in below)]

    def _member_children_ops(self) -> list[Op]:
        """Creates the children that members write below a control znode with another owner, with the members'
        logins.
        """
        session, group = self.control_znode.session, self.control_znode.group
        if not self.control_znode.acl_policy.is_protected:
            return []
        logins = read_group_logins(session, group)
        ops: list[Op] = []
        for name in (MEMBERS_CHILD, ABORT_CHILD):
            path = paths.control_child(group, name)
            [there] = session.request([Exists(path)])
            if isinstance(there, Stat) and name == MEMBERS_CHILD:
                if there.num_children:
                    continue  # members are there already, with the list that permitted them
                ops.append(DeleteOp(path))
            ops.append(CreateOp(path, acl=self.control_znode.acl_policy.acl_for_group_logins(name, logins)))
        return ops

    def _stale_children_ops(self) -> list[Op]:
        group = self.control_znode.group
        listed = self.control_znode.session.children(paths.control(group))
        names = sorted(listed.names) if listed else []
        carried = ACL_PIECE_PREFIX if self.snapshot is not None and self.snapshot.fences_migration_id else "/"
        ours = [
            name
            for name in names
            if (name.startswith(PIECE_PREFIXES) and not name.startswith(carried))
            or name in (JOURNAL_CHILD, ABORT_CHILD)
        ]
        return [DeleteOp(paths.control_child(group, name)) for name in ours]


@dataclass(frozen=True, slots=True)
class CheckNoOtherMigration(CheckingStep):
    """No other migration of the group is active; checked before the run waits for anything."""

    create: CreateControlZnode

    name = "no other migration is active"

    def describe(self) -> list[str]:
        return ["check that no other migration of the group is active"]

    def check(self) -> StepStatus:
        standing = self.create.check()
        return standing if isinstance(standing, StepRefused) else StepDone()


@dataclass(slots=True)
class AcquireLock:
    """Acquire the lock, so that this is the only run.  The lock contains the caller: user, host, process.

    The step waits for the lock of another run, because the lock of a dead process ends with its session.  A run that
    holds the lock longer is alive, and the step is refused.

    ``expected_phase``: the phase from which the next steps were derived, before this run had the lock.  The step is
    refused when another run has advanced the phase since: the operator chose this command for the earlier phase.  None:
    the next steps are derived after this one.
    """

    control_znode: ControlZnode
    caller: str
    expected_phase: Phase | None = None
    _other_lock_seen_at_ms: dict[int, int] = field(default_factory=dict)

    name = "acquire the lock"
    changes = False
    """Ephemeral: ZooKeeper deletes it with the session."""

    def describe(self) -> list[str]:
        return [f"create {self._path}, which exists as long as this run"]

    @property
    def _path(self) -> str:
        return paths.control_child(self.control_znode.group, LOCK_CHILD)

    def check(self) -> StepStatus:
        run = self.control_znode.read_lock()
        lost = self.control_znode.lock_lost_error(run)
        if lost is not None:
            return StepRefused(lost)  # the session ended after ``do``: the steps start again, in the next session
        if run is None:
            return StepPending()
        if run.session_id == self.control_znode.session.session_id:
            self.control_znode.lock_acquired(run.session_id)
            if self.expected_phase is not None:  # no other run changes the phase from now on
                self.control_znode.require_phase(self.expected_phase)
            return StepPending() if self.control_znode.has_earlier_abort_request else StepDone()
        now_ms = self.control_znode.session.clock.now_ms()
        since_ms = self._other_lock_seen_at_ms.setdefault(run.session_id, now_ms)
        if now_ms - since_ms < LOCK_WAIT_MS:
            return StepWaiting(f"the run of {run.owner} to end")
        return StepRefused(
            PreconditionFailed(
                f"{run.owner} runs a command on group {self.control_znode.group} and is alive. Wait for its end, or "
                f"stop it: zkconsumer migrate abort {self.control_znode.group}"
            )
        )

    def do(self) -> None:
        session = self.control_znode.session
        data = format_lock(self.caller, session.clock.wall_ms())
        acl: tuple[Acl, ...] | None = SECURE_ACL
        for _ in range(TRIES_MAX + 1):
            held = self.control_znode.read()
            if held is None or held.control.migration_id != self.control_znode.migration_id:
                raise self.control_znode.concurrent_change_error(held, f"migration {self.control_znode.migration_id}")
            create = CreateOp(self._path, data, ephemeral=True, acl=acl)
            session_id = session.session_id
            answer = self.control_znode.create_lock(held, create, session_id)
            match answer:
                case MultiFailed(_, _, OtherError()) if acl is not None:
                    acl = None  # the session has no login, so ``auth`` names no one
                    continue
                case MultiFailed(_, _, NodeExists()) | MultiOk() | None:
                    pass
                case MultiFailed(_, _, error):
                    raise UnavailableError(f"{self._path} cannot be created: {zk_error_name(error)}")
            run = self.control_znode.read_lock()
            # Not the session of this moment: it may be a later one, and what it reads was created in the one before.
            if run is not None and run.session_id == session_id:
                self.control_znode.lock_acquired(run.session_id)
                if self.control_znode.has_earlier_abort_request:  # otherwise it is for this run, or there is none
                    self._clear_abort_request()
                return
            if run is not None:
                raise PreconditionFailed(f"{run.owner} has just started a run of this group; wait for its end")
        raise connection_lost_error(self._path)

    def _clear_abort_request(self) -> None:
        """Delete the request to stop; where a run with a login created the node, empty it instead."""
        path = paths.control_child(self.control_znode.group, ABORT_CHILD)
        clear = SetData(path, b"") if self.control_znode.acl_policy.is_protected else Delete(path)
        for _ in range(TRIES_MAX):
            [answer] = self.control_znode.write([clear])
            if not isinstance(answer, ConnectionLost):
                self.control_znode.has_earlier_abort_request = False
                return
        raise connection_lost_error(path)


@dataclass(frozen=True, slots=True)
class AdvancePhase:
    """Advance the phase in one conditional write; ``switched`` and ``returned`` also move the authority.

    The write is tried once.  After a lost answer the steps start again, because their checks may be outdated.
    """

    control_znode: ControlZnode
    phase: Phase

    changes = True

    @property
    def name(self) -> str:
        return f"control znode: {self.phase.value}"

    def describe(self) -> list[str]:
        return [f"write {paths.control(self.control_znode.group)}: phase {self.phase.value}"]

    def check(self) -> StepStatus:
        standing = self.control_znode.check_phase(self.phase, *self._this_phase_and_later())
        if isinstance(standing, StepRefused):
            return standing
        return StepPending() if standing is None else StepDone()

    def _this_phase_and_later(self) -> tuple[Phase, ...]:
        """The phases of a migration that has reached this phase."""
        forward = [way[way.index(self.phase) :] for way in FORWARD.values() if self.phase in way]
        return tuple(phase for way in forward for phase in way) or _LATER_PHASES_OF_ROLLBACK.get(self.phase, ())

    def do(self) -> None:
        self.write(is_confirmed=True)

    def write(self, *, is_confirmed: bool) -> None:
        """Raises ``ControlWriteUnknownError`` when it is not known whether the phase was written, else as
        ``ControlZnode.advance``.
        """
        before = [phase for phase in Phase if any(self.phase in next_phases(s, phase) for s in FORWARD)]
        held = self.control_znode.require_phase(*before)
        if not self.control_znode.write_control(
            held, next_control(held.control, self.phase, is_confirmed=is_confirmed)
        ):
            raise ControlWriteUnknownError(
                f"the connection to ZooKeeper broke during the write of phase {self.phase.value} of group "
                f"{self.control_znode.group}: the run repeats every check before the next write"
            )


def request_abort(session: AdminSession, group: str, who: str) -> str:
    """Request the run of a group to stop at its next step; returns a sentence that names it.  Changes nothing else.

    Raises ``PreconditionFailed`` when no run is active, ``UnavailableError``.
    """
    run = ControlZnode(session, group, "").read_lock()
    if run is None:
        raise PreconditionFailed(
            f"no run is active on group {group}; to see its phase: zkconsumer migrate status {group}"
        )
    path = paths.control_child(group, ABORT_CHILD)
    data = format_lock(who, session.clock.wall_ms())
    [answer] = session.request([SetData(path, data)])
    if isinstance(answer, NoNode):
        [answer] = session.request([Create(path, data)])
    if isinstance(answer, StoreError) and not isinstance(answer, NodeExists):
        raise unexpected_result_error(f"{path} cannot be created", answer)
    return f"the run of {run.owner} stops before its next step"
