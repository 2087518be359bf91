"""Reads and writes the control znode for one run, so that a stale run cannot write.

    read           the current data
    require_phase  the data, if it is of our migration and in one of these phases; else ``PartiallyDoneError``
    check_phase    the same for ``check`` and for dry runs, where the phase may come later
    transact       operations in one multi that also checks the control znode's version: all of them, or none
    run            an ephemeral child, the lock: its session is the only run
    write          requests in the session that owns ``run``, or not at all

Every write of a run uses ``write``.  A process may be paused at any moment and for any time.  While the session that
created ``run`` lives, no other run begins.  After the end of that session, ZooKeeper executes none of its requests, and
the client does not send them again in a later session.  Such a write raises ``MigrationLockLostError``: the run starts
again with its first step, which acquires ``run``.  So no multi has to check ``run`` too: only a person can delete it
while its session lives, and ``is_abort_requested`` detects that between two steps.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.control.control_acls import acl_policy_of
from bridge.migration.control.control_layout import ABORT_CHILD, LOCK_CHILD, phase_of, strategy_of
from bridge.migration.control.phases import ENDED, can_reach
from bridge.migration.errors import MigrationLockLostError, PartiallyDoneError
from bridge.migration.fences.fence_acls import FenceAclTemplate, fence_acl_entry
from bridge.migration.steps.step import StepRefused
from zkconsumer.admin.admin_session import expect_result, unexpected_result_error, zk_error_name
from zkconsumer.admin.zookeeper_group import read_control
from zkconsumer.admin.zookeeper_offset_writes import OffsetWrite, StoreWriteReport, write_offsets
from zkconsumer.errors import PreconditionFailed, UnavailableError, ZkTimeoutException
from zkconsumer.zk import paths
from zkconsumer.zk.requests import (
    Acl,
    BadVersion,
    CheckOp,
    ConnectionLost,
    Exists,
    GetAcl,
    Multi,
    MultiFailed,
    MultiOk,
    NoNode,
    Op,
    Request,
    Result,
    SessionEnded,
    SetData,
    Stat,
    StoreError,
    ZnodeData,
)
from zkconsumer.zk.znode_formats import format_control

if TYPE_CHECKING:
    from bridge.migration.control.phases import Phase, Strategy
    from zkconsumer.admin.admin_session import AdminSession
    from zkconsumer.zk.znode_formats import ControlRecord

TRIES_MAX = 3
"""How often a write is tried whose answer was lost with the connection; each time after a read."""


@dataclass(frozen=True, slots=True)
class VersionedControl:
    """The control znode at one moment; writes check ``version``."""

    control: ControlRecord
    version: int

    @property
    def phase(self) -> Phase:
        """Where the migration stands."""
        return phase_of(self.control)

    @property
    def strategy(self) -> Strategy:
        """How it moves."""
        return strategy_of(self.control)


@dataclass(frozen=True, slots=True)
class MigrationLock:
    """The owner of the lock (user, host, process), since when, and its session."""

    owner: str
    since_ms: int
    session_id: int


class ControlZnode:
    """One migration of one group, seen through one session.  One thread."""

    def __init__(self, session: AdminSession, group: str, migration_id: str) -> None:
        self.session = session
        self.group = paths.check_group(group)
        self.migration_id = migration_id
        self.acl_policy = acl_policy_of(session)
        """Which access lists the nodes get that this run creates."""
        self.fence_acl_template = FenceAclTemplate(
            fence_acl_entry(migration_id) if self.acl_policy.is_protected else None
        )
        """Which access lists the nodes of the group get as a fence."""
        self.had_lock = False
        """Whether this run had the lock at some time: then a request to stop may be for it."""
        self._lock_session_id: int | None = None
        """The session that made ``run``, from the moment in which ``run`` was found to be ours until the steps begin
        anew.  None: this run may write nothing."""
        self.fence_migration_ids: frozenset[str] = frozenset({migration_id})
        """Migrations whose owner fences are ours to change: this one, and a completed one whose fences it takes over.
        Constant from ``open_migration`` on."""

    def read(self) -> VersionedControl | None:
        """The control znode, of any migration; None: it does not exist.

        Raises ``PreconditionFailed`` for a node that this release cannot read, ``UnavailableError`` when ZooKeeper does
        not tell.
        """
        control, version, problem = read_control(self.session, self.group)
        if problem:
            raise PreconditionFailed(
                f"{paths.control(self.group)} cannot be parsed ({problem}), so the store of the offsets of group "
                f"{self.group} is unknown. Find the client that wrote it, and correct it manually"
            )
        if control is None or version is None:
            return None
        try:
            phase_of(control), strategy_of(control)
        except ValueError as error:
            raise PreconditionFailed(
                f"{paths.control(self.group)} is of a later release ({error}): continue with that release"
            ) from error
        return VersionedControl(control, version)

    def require_phase(self, *phases: Phase) -> VersionedControl:
        """The control znode, if it is of our migration and in one of these phases.

        Raises ``PartiallyDoneError`` if not: another run acts on this group.
        """
        held = self.read()
        if held is not None and held.control.migration_id == self.migration_id and held.phase in phases:
            return held
        wanted = " or ".join(dict.fromkeys(phase.value for phase in phases))
        raise self.concurrent_change_error(held, f"migration {self.migration_id} in phase {wanted}")

    def check_phase(self, *phases: Phase) -> VersionedControl | StepRefused | None:
        """What stands there, for the ``check`` of a step that needs one of these phases.

        None: it is not there yet, and may come there: whoever does the step is refused, a dry run goes on.  Refused:
        it has gone another way, or is another's.
        """
        try:
            held = self.read()
        except PreconditionFailed as error:
            return StepRefused(error)
        if held is None:
            return None
        if held.control.migration_id != self.migration_id:
            return (
                None
                if held.phase in ENDED
                else StepRefused(self.concurrent_change_error(held, f"migration {self.migration_id}"))
            )
        if held.phase in phases:
            return held
        if can_reach(held.strategy, held.phase, phases):
            return None
        wanted = " or ".join(phase.value for phase in phases)
        return StepRefused(self.concurrent_change_error(held, f"migration {self.migration_id} in phase {wanted}"))

    def concurrent_change_error(self, held: VersionedControl | None, wanted: str) -> PartiallyDoneError:
        """The error for a control znode that another run changed."""
        found = "does not exist"
        if held is not None:
            found = f"contains migration {held.control.migration_id} in phase {held.control.phase}"
        return PartiallyDoneError(
            f"{paths.control(self.group)} {found}, and this run needs {wanted}: another run acts on group "
            f"{self.group}, and this run stops. See: zkconsumer migrate status {self.group}"
        )

    def write(self, requests: Sequence[Request]) -> list[Result]:
        """The results, in order; ZooKeeper executes each request in the session that owns the lock, or not at all.

        ``ConnectionLost`` is a result: whether that request was carried out is not known.  Raises
        ``MigrationLockLostError`` when the session has ended, ``ZkTimeoutException`` when ZooKeeper does not answer.
        """
        if not requests:
            return []
        if self._lock_session_id is None:
            raise self._lock_lost()
        answers = self.session.request(requests, self._lock_session_id)
        if any(isinstance(answer, SessionEnded) for answer in answers):
            raise self._lock_lost()
        return answers

    def write_offsets(
        self,
        held: VersionedControl,
        writes: Sequence[OffsetWrite],
        acl: tuple[Acl, ...] | None = None,
        *,
        allow_members: bool = False,
    ) -> str:
        """``zkconsumer.admin.zookeeper_offset_writes.write_offsets`` in the session that holds the run, behind a check
        of the control znode; gives what stopped it, empty when every offset is written.  Raises as ``write`` does.
        """
        if self._lock_session_id is None:
            raise self._lock_lost()
        report = StoreWriteReport()
        write_offsets(
            self.session, self.group, writes, control_version=held.version, report=report, acl=acl,
            allow_members=allow_members, in_session=self._lock_session_id,
        )  # fmt: skip
        if report.stopped_by:
            self.require_lock_session()  # ``MigrationLockLostError`` tells more than what stopped it
        return report.stopped_by

    def create_lock(self, held: VersionedControl, op: Op, session_id: int | None) -> MultiOk | MultiFailed | None:
        """Make ``run`` by this operation, in that session or not at all; the answer is that of ``transact``."""
        [answer] = self.session.request([self._conditional_multi(held, [op])], session_id)
        return self._multi_result(answer, held, 1)

    def transact(self, held: VersionedControl, ops: Sequence[Op]) -> MultiOk | MultiFailed | None:
        """All of these operations, if the control znode is still as ``held`` says; None: unknown, so look again.

        What failed first is counted without the check.  Raises ``PartiallyDoneError`` when the control znode has
        changed, ``MigrationLockLostError`` when the session of the run has ended, ``UnavailableError`` for any other
        answer.
        """
        [answer] = self.write([self._conditional_multi(held, ops)])
        return self._multi_result(answer, held, len(ops))

    def write_control(self, held: VersionedControl, control: ControlRecord) -> bool:
        """Write the control znode once, if it is still as ``held`` says; False: the answer was lost.

        Raises as ``transact`` does.
        """
        path = paths.control(self.group)
        [answer] = self.write([SetData(path, format_control(control), held.version)])
        match answer:
            case Stat():
                return True
            case ConnectionLost():
                return False
            case BadVersion() | NoNode():
                raise self.concurrent_change_error(self.read(), f"it at version {held.version}, as it read it")
        raise UnavailableError(f"{path} cannot be written: {zk_error_name(answer)}")

    def _conditional_multi(self, held: VersionedControl, ops: Sequence[Op]) -> Multi:
        return Multi((CheckOp(paths.control(self.group), held.version), *ops))

    def _multi_result(self, answer: Result, held: VersionedControl, count: int) -> MultiOk | MultiFailed | None:
        match answer:
            case MultiOk(results):
                return MultiOk(results[1:])
            case MultiFailed(_, 0, _):
                raise self.concurrent_change_error(self.read(), f"it at version {held.version}, as it read it")
            case MultiFailed(path, failed, error):
                return MultiFailed(path, failed - 1, error)
            case ConnectionLost() | SessionEnded():
                return None
        raise UnavailableError(f"ZooKeeper refused {count} changes of group {self.group}: {zk_error_name(answer)}")

    # --- the run

    def read_lock(self) -> MigrationLock | None:
        """The lock; None: no run is active."""
        node = self.session.get(paths.control_child(self.group, LOCK_CHILD))
        return None if node is None else _parse_lock(node)

    def lock_acquired(self, session_id: int) -> None:
        """``run`` was found to be of this session, which is ours: the run writes in it from now on."""
        self.had_lock = True
        self._lock_session_id = session_id

    def reset_lock(self) -> None:
        """The steps are carried out from the first one on, which takes the run again if its session has ended."""
        self._lock_session_id = None

    def require_lock_session(self) -> int:
        """The session that holds the run, which is ours: looked at now.  Raises ``MigrationLockLostError`` when it does
        not.
        """
        lost = self.lock_lost_error(self.read_lock())
        if lost is not None:
            raise lost
        if self._lock_session_id is None:
            raise self._lock_lost()
        return self._lock_session_id

    def lock_lost_error(self, run: MigrationLock | None) -> MigrationLockLostError | None:
        """What to raise when this run was taken and ``run``, as it is now, is not ours; None in any other case."""
        session_id = self._lock_session_id
        if session_id is None or (run is not None and run.session_id == session_id):
            return None
        return self._lock_lost()

    def check_lock(self) -> None:
        """Raises ``MigrationLockLostError`` when this run was taken and is not ours any more; looked at now."""
        if self._lock_session_id is not None:
            self.require_lock_session()

    def _lock_lost(self) -> MigrationLockLostError:
        return MigrationLockLostError(
            f"the session of this run with ZooKeeper has ended, so the run changes nothing of group {self.group} "
            "before it has acquired the lock again"
        )

    def own_acl_entries(self) -> tuple[Acl, ...]:
        """Who we are for ZooKeeper, each with all rights, as the server writes it into lists.

        Empty while the run is not ours, and for a session without a login.  Read from the list of ``run``, which was
        made for ``auth``: no client knows what a server makes of a Kerberos principal.
        """
        run = self.read_lock()
        if run is None or run.session_id != self.session.session_id:
            return ()
        path = paths.control_child(self.group, LOCK_CHILD)
        [acl] = self.session.request([GetAcl(path)])
        entries: tuple[Acl, ...] = () if isinstance(acl, NoNode) else expect_result(acl, tuple, path)
        return tuple(one for one in entries if one.scheme != "world")

    def is_abort_requested(self) -> bool:
        """Whether an operator requested this run to stop; ``StepRunner`` checks it between two steps.

        False before this run has the lock, since acquiring it deletes a request to an earlier run.  Raises
        ``MigrationLockLostError`` when the lock was lost.
        """
        if not self.had_lock:
            return False
        self.check_lock()
        [stat] = self.session.request([Exists(paths.control_child(self.group, ABORT_CHILD))])
        if isinstance(stat, StoreError):
            raise unexpected_result_error("ZooKeeper did not answer whether a stop was requested", stat)
        return isinstance(stat, Stat) and stat.data_length > 0


def connection_lost_error(path: str) -> ZkTimeoutException:
    """The error for a write whose answer was lost in every try."""
    return ZkTimeoutException(f"{path} was not written in {TRIES_MAX} tries: the connection to ZooKeeper broke")


def format_lock(who: str, since_ms: int) -> bytes:
    """The bytes of the child ``run``."""
    return json.dumps({"who": who, "since_ms": since_ms}, ensure_ascii=True).encode()


def _parse_lock(node: ZnodeData) -> MigrationLock:
    """Any data mean that a run has the lock."""
    try:
        read = json.loads(node.data)
        who, since_ms = str(read["who"])[:200], int(read["since_ms"])
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        who, since_ms = "somebody", node.stat.ctime_ms
    return MigrationLock(who, since_ms, node.stat.ephemeral_owner)
