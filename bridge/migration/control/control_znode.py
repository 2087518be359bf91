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
"""How often a write is tried after the connection lost its answer; the node is read before each try."""


@dataclass(frozen=True, slots=True)
class VersionedControl:
    """The control znode at one moment; writes check ``version``."""

    control: ControlRecord
    version: int

    @property
    def phase(self) -> Phase:
        """The phase of the migration."""
        return phase_of(self.control)

    @property
    def strategy(self) -> Strategy:
        """The strategy of the migration."""
        return strategy_of(self.control)


@dataclass(frozen=True, slots=True)
class MigrationLock:
    """The owner of the lock (user, host, process), since when, and its session."""

    owner: str
    since_ms: int
    session_id: int


class ControlZnode:
    """One migration of one group, accessed in one session.  One thread."""

    def __init__(self, session: AdminSession, group: str, migration_id: str) -> None:
        self.session = session
        self.group = paths.check_group(group)
        self.migration_id = migration_id
        self.acl_policy = acl_policy_of(session)
        """The access lists of the nodes that this run creates."""
        self.fence_acl_template = FenceAclTemplate(
            fence_acl_entry(migration_id) if self.acl_policy.is_protected else None
        )
        """The access lists of a fence for the nodes of the group."""
        self.had_lock = False
        """Whether this run has ever had the lock: then a request to stop may be for it."""
        self.has_earlier_abort_request = True
        """Whether a request to stop may still be for an earlier run: this run has not deleted it yet."""
        self.last_seen: VersionedControl | None = None
        """The control znode as this run last read or wrote it, of any migration; None: not read yet, or it did not
        exist."""
        self._lock_session_id: int | None = None
        """The session that created ``run``, from the moment when ``run`` was read as ours until the steps start again.
        None: this run may write nothing."""
        self.fence_migration_ids: frozenset[str] = frozenset({migration_id})
        """Migrations whose owner fences this run may change: this one, and a completed one whose fences it takes over.
        Constant after ``open_migration``."""

    def read(self) -> VersionedControl | None:
        """The control znode, of any migration; None: it does not exist.

        Raises ``PreconditionFailed`` for a node that this release cannot read, ``UnavailableError`` when ZooKeeper does
        not answer.
        """
        control, version, problem = read_control(self.session, self.group)
        if problem:
            raise PreconditionFailed(
                f"{paths.control(self.group)} cannot be parsed ({problem}), so the store of the offsets of group "
                f"{self.group} is unknown. Find the client that wrote it, and correct it manually"
            )
        if control is None or version is None:
            self.last_seen = None
            return None
        try:
            phase_of(control), strategy_of(control)
        except ValueError as error:
            raise PreconditionFailed(
                f"{paths.control(self.group)} is of a later release ({error}): continue with that release"
            ) from error
        self.last_seen = VersionedControl(control, version)
        return self.last_seen

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
        """The control znode, for the ``check`` of a step that needs one of these phases.

        None: the migration has not reached the phase, and can reach it: ``do`` of the step raises, a dry run continues.
        Refused: the migration cannot reach the phase any more, or the control znode belongs to another migration.
        """
        try:
            held = self.read()
        except PreconditionFailed as error:
            return StepRefused(error)
        if held is None:
            return None
        if held.control.migration_id != self.migration_id:
            if held.phase in ENDED:
                return None
            return StepRefused(self.concurrent_change_error(held, f"migration {self.migration_id}"))
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

        ``ConnectionLost`` is a result: it is unknown whether that request was executed.  Raises
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
        """``zkconsumer.admin.zookeeper_offset_writes.write_offsets`` in the session that has the lock, with a check of
        the control znode; returns what stopped it, empty when every offset is written.  Raises as ``write`` does.
        """
        if self._lock_session_id is None:
            raise self._lock_lost()
        report = StoreWriteReport()
        write_offsets(
            self.session, self.group, writes, control_version=held.version, report=report, acl=acl,
            allow_members=allow_members, in_session=self._lock_session_id,
        )  # fmt: skip
        if report.stopped_by:
            self.require_lock_session()  # ``MigrationLockLostError`` is a better error than the reason of the stop
        return report.stopped_by

    def create_lock(self, held: VersionedControl, op: Op, session_id: int | None) -> MultiOk | MultiFailed | None:
        """Create ``run`` with this operation, in that session or not at all; returns the result of ``transact``."""
        [answer] = self.session.request([self._conditional_multi(held, [op])], session_id)
        return self._multi_result(answer, held, 1)

    def transact(self, held: VersionedControl, ops: Sequence[Op]) -> MultiOk | MultiFailed | None:
        """All of these operations, if the control znode still equals ``held``; None: unknown, so read again.

        The index of the first failed operation does not count the check.  Raises ``PartiallyDoneError`` when the
        control znode has changed, ``MigrationLockLostError`` when the session of the run has ended,
        ``UnavailableError`` for any other answer.
        """
        [answer] = self.write([self._conditional_multi(held, ops)])
        return self._multi_result(answer, held, len(ops))

    def write_control(self, held: VersionedControl, control: ControlRecord) -> bool:
        """Write the control znode once, if it still equals ``held``; False: the answer was lost.

        Raises as ``transact`` does.
        """
        path = paths.control(self.group)
        [answer] = self.write([SetData(path, format_control(control), held.version)])
        match answer:
            case Stat(version=version):
                self.last_seen = VersionedControl(control, version)
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
        """``run`` was read as created in this session of ours: from now on the run writes in it."""
        self.had_lock = True
        self._lock_session_id = session_id

    @property
    def has_lock(self) -> bool:
        """Whether the run acquired the lock and has not started again since; sends no request."""
        return self._lock_session_id is not None

    def reset_lock(self) -> None:
        """The steps start again from the first one, which acquires the lock again if its session has ended."""
        self._lock_session_id = None

    def require_lock_session(self) -> int:
        """The session that has the lock, read now.  Raises ``MigrationLockLostError`` if it is not this run's."""
        lost = self.lock_lost_error(self.read_lock())
        if lost is not None:
            raise lost
        if self._lock_session_id is None:
            raise self._lock_lost()
        return self._lock_session_id

    def lock_lost_error(self, run: MigrationLock | None) -> MigrationLockLostError | None:
        """The error if this run had the lock and ``run``, as it is now, is not ours; None in any other case."""
        session_id = self._lock_session_id
        if session_id is None or (run is not None and run.session_id == session_id):
            return None
        return self._lock_lost()

    def check_lock(self) -> None:
        """Raises ``MigrationLockLostError`` if this run had the lock and has lost it; read now."""
        if self._lock_session_id is not None:
            self.require_lock_session()

    def _lock_lost(self) -> MigrationLockLostError:
        return MigrationLockLostError(
            f"the session of this run with ZooKeeper has ended, so the run changes nothing of group {self.group} "
            "before it has acquired the lock again"
        )

    def own_acl_entries(self) -> tuple[Acl, ...]:
        """The logins of this session as the server writes them into lists, each with all permissions.

        Empty while this run has no lock, and for a session without a login.  Read from the list of ``run``, which was
        created with ``auth``: a client cannot compute what a server makes of a Kerberos principal.
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
        if self.has_earlier_abort_request:
            return False
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
        who, since_ms = "an unknown process", node.stat.ctime_ms
    return MigrationLock(who, since_ms, node.stat.ephemeral_owner)
