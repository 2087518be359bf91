"""The steps about the modern group: members of ours are asked to leave it, nobody is in it, the seat is taken, left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.control.control_layout import LEAVE_CHILD
from bridge.migration.control.control_znode import TRIES_MAX
from bridge.migration.control.phases import Phase
from bridge.migration.errors import PartiallyDoneError, VerificationError
from bridge.migration.placeholder.placeholder_rules import (
    INVALID_SESSION_TIMEOUT,
    SESSION_MARGIN_MS,
    SHORT_ZOOKEEPER_SESSION_MS,
    join_error_remedy,
)
from bridge.migration.steps.step import StepDone, StepPending, StepRefused, StepStatus, StepWaiting
from zkconsumer.admin.admin_session import zk_error_name
from zkconsumer.errors import PreconditionFailed, UnavailableError
from zkconsumer.zk import paths
from zkconsumer.zk.requests import CreateOp, Delete, Get, MultiFailed, MultiOk, NodeExists, ZnodeData

if TYPE_CHECKING:
    from bridge.migration.control.control_znode import ControlZnode
    from bridge.migration.placeholder.placeholder_member import PlaceholderMember
    from zkconsumer.admin.admin_session import AdminSession


@dataclass(frozen=True, slots=True)
class RequestMembersToLeave:
    """Members of ours leave the modern group by themselves, as long as this run lasts; others must be stopped."""

    control_znode: ControlZnode

    name = "members of ours are asked to leave"
    changes = False
    """Ephemeral: it is gone with the session, and they come back."""

    def describe(self) -> list[str]:
        return [f"hold {self._path}: Spark queries on this group step aside, and wait"]

    @property
    def _path(self) -> str:
        return paths.control_child(self.control_znode.group, LEAVE_CHILD)

    def check(self) -> StepStatus:
        [there] = self.control_znode.session.request([Get(self._path)])
        if isinstance(there, ZnodeData) and there.stat.ephemeral_owner == self.control_znode.session.session_id:
            return StepDone()
        return StepPending()

    def do(self) -> None:
        for _ in range(TRIES_MAX):
            # That of a run that died may stand until its session ends, and would then be missing.
            self.control_znode.write([Delete(self._path)])
            held = self.control_znode.require_phase(Phase.SWITCHED)
            create = CreateOp(self._path, b"", ephemeral=True, acl=self.control_znode.acl_policy.acl)
            match self.control_znode.transact(held, [create]):
                case MultiOk():
                    return
                case MultiFailed(_, _, NodeExists()) | None:
                    if isinstance(self.check(), StepDone):
                        return
                case MultiFailed(_, _, error):
                    raise UnavailableError(f"{self._path} cannot be made: {zk_error_name(error)}")
        raise UnavailableError(f"{self._path} was not made: the connection broke again and again. Run it again")


@dataclass(slots=True)
class EnsureSessionTimeouts:
    """The coordinator keeps the seat for longer than ZooKeeper keeps the run; asked before anything is changed.

    A run that is paused loses both.  It must lose the run first, and with a margin: then the next run finds the seat
    still there.  Where brokers allow short sessions only (0.9: 30 s), the session with ZooKeeper is opened anew, with
    10 s.
    """

    placeholder: PlaceholderMember
    session: AdminSession
    _is_short: bool = False
    """Whether ZooKeeper was asked for the short session."""

    name = "the seat outlives the run"
    changes = False

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return [f"open the session with ZooKeeper anew, with {SHORT_ZOOKEEPER_SESSION_MS // 1_000} s"]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        allowed_ms, granted_ms = self.placeholder.session_timeout_ms(), self.session.negotiated_timeout_ms
        if allowed_ms is None or allowed_ms > granted_ms + SESSION_MARGIN_MS:
            return StepDone()
        if allowed_ms == 0:
            return StepRefused(
                PreconditionFailed(f"{join_error_remedy(INVALID_SESSION_TIMEOUT, '')}. Nothing was changed")
            )
        if not self._is_short and granted_ms > SHORT_ZOOKEEPER_SESSION_MS:
            return StepPending()
        least_ms = granted_ms + SESSION_MARGIN_MS
        return StepRefused(
            PreconditionFailed(
                f"the brokers allow a member of a group a session of {allowed_ms} ms (group.max.session.timeout.ms), "
                f"and ZooKeeper granted this run one of {granted_ms} ms. The first must be longer than the second by "
                f"more than {SESSION_MARGIN_MS} ms, or a run that is paused could lose the seat in group "
                f"{self.placeholder.group} before it loses its session. Nothing was changed. Raise "
                f"group.max.session.timeout.ms above {least_ms}, or let ZooKeeper grant {SHORT_ZOOKEEPER_SESSION_MS} "
                "ms "
                "(minSessionTimeout, by default two ticks of tickTime)"
            )
        )

    def do(self) -> None:
        """See ``MigrationStep``."""
        self._is_short = True
        self.session.reopen(SHORT_ZOOKEEPER_SESSION_MS)


@dataclass(frozen=True, slots=True)
class WaitForEmptyCoordinatorGroup:
    """Nobody but a seat of this migration is in the modern group, which is waited for; and we might sit there."""

    placeholder: PlaceholderMember

    name = "nobody is in the modern group"
    changes = False

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return [f"wait until the modern group {self.placeholder.group} has no members"]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        found = self.placeholder.read_occupants()
        if found.others:
            return StepWaiting(f"{found.names} to leave the modern group")
        problem = self.placeholder.join_error()
        return StepRefused(PreconditionFailed(f"{problem}. Nothing was changed")) if problem else StepDone()

    def do(self) -> None:
        """Never called: one waits for others."""
        raise AssertionError("there is nothing to do but to wait")


@dataclass(frozen=True, slots=True)
class JoinPlaceholder:
    """We sit in the modern group (K5).

    ``has_sat``: the control znode says that the seat was taken before.  Then a member of somebody else is an
    interference and ends the run (exit code 5), while before it is only waited for.
    """

    placeholder: PlaceholderMember
    had_placeholder: bool

    name = "take the seat in the modern group"
    changes = True

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return [
            f"join the modern group {self.placeholder.group} as {self.placeholder.name}, so that nobody else can join "
            "or commit"
        ]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        try:
            if self.placeholder.joined is not None:
                self.placeholder.heartbeat()
                return StepDone()
            found = self.placeholder.read_occupants()
        except (VerificationError, PartiallyDoneError) as error:
            return StepRefused(error)
        if not found.others:
            return StepPending()
        if not self.had_placeholder:
            return StepWaiting(f"{found.names} to leave the modern group")
        return StepRefused(
            VerificationError(
                f"the seat in group {self.placeholder.group} ended, and {found.names} came since: stop it, and find "
                "out who "
                "started it; then run the same command again: it compares every offset before it goes on"
            )
        )

    def do(self) -> None:
        """See ``MigrationStep``."""
        self.placeholder.join()


@dataclass(frozen=True, slots=True)
class RemovePlaceholder:
    """No seat of this migration is in the modern group."""

    placeholder: PlaceholderMember

    name = "leave the seat in the modern group"
    changes = True

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return [f"leave the modern group {self.placeholder.group}, so that others can join"]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        return StepPending() if self.placeholder.read_occupants().placeholders else StepDone()

    def do(self) -> None:
        """See ``MigrationStep``."""
        self.placeholder.leave()
