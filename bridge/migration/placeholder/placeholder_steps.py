"""The steps on the coordinator group: our members leave it, it is empty, the placeholder member joins, and leaves."""

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
    """Request members of this library to leave the coordinator group during this run; others must be stopped."""

    control_znode: ControlZnode

    name = "request our members to leave"
    changes = False
    """Ephemeral: ZooKeeper deletes it with the session, and the members join again."""

    def describe(self) -> list[str]:
        return [f"create {self._path}: Spark queries on this group leave it, and wait"]

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
            # The node of a run that died may exist until its session ends, and would be deleted during this run.
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
                    raise UnavailableError(f"{self._path} cannot be created: {zk_error_name(error)}")
        raise UnavailableError(f"{self._path} was not created: the connection broke in every try. Run it again")


@dataclass(slots=True)
class EnsureSessionTimeouts:
    """The coordinator keeps the placeholder for longer than ZooKeeper keeps the session of the run; checked first.

    A paused run loses both.  It must lose its ZooKeeper session first, and with a margin: then the next run still finds
    the placeholder.  Where brokers allow short sessions only (0.9: 30 s), the step opens the session with ZooKeeper
    again, with 10 s.
    """

    placeholder: PlaceholderMember
    session: AdminSession
    _is_short: bool = False
    """Whether the short session was requested from ZooKeeper."""

    name = "the placeholder member outlives the run"
    changes = False

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return [f"open the session with ZooKeeper again, with {SHORT_ZOOKEEPER_SESSION_MS // 1_000} s"]

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
                f"more than {SESSION_MARGIN_MS} ms, or a paused run could lose its placeholder member in group "
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
    """Wait until the coordinator group has no members but placeholder members of this migration, and we may join."""

    placeholder: PlaceholderMember

    name = "the coordinator group is empty"
    changes = False

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return [f"wait until the coordinator group {self.placeholder.group} has no members"]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        found = self.placeholder.read_occupants()
        if found.others:
            return StepWaiting(f"{found.names} to leave the coordinator group")
        problem = self.placeholder.join_error()
        return StepRefused(PreconditionFailed(f"{problem}. Nothing was changed")) if problem else StepDone()

    def do(self) -> None:
        """Never called: the step only waits."""
        raise AssertionError("this step only waits")


@dataclass(frozen=True, slots=True)
class JoinPlaceholder:
    """Join the placeholder member.

    ``had_placeholder``: by the control znode an earlier run joined it.  Then another member is an interference and
    ends the run (exit code 5); otherwise the step waits for it to leave.
    """

    placeholder: PlaceholderMember
    had_placeholder: bool

    name = "join the placeholder member"
    changes = True

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return [
            f"join the coordinator group {self.placeholder.group} as {self.placeholder.name}, so that no other client "
            "can join or commit"
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
            return StepWaiting(f"{found.names} to leave the coordinator group")
        return StepRefused(
            VerificationError(
                f"the placeholder member of group {self.placeholder.group} was removed, and {found.names} joined "
                "since: stop it, and find out what started it; then run the same command again: it compares every "
                "offset before it continues"
            )
        )

    def do(self) -> None:
        """See ``MigrationStep``."""
        self.placeholder.join()


@dataclass(frozen=True, slots=True)
class RemovePlaceholder:
    """Remove the placeholder member of this migration."""

    placeholder: PlaceholderMember

    name = "remove the placeholder member"
    changes = True

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return [f"leave the coordinator group {self.placeholder.group}, so that other clients can join"]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        return StepPending() if self.placeholder.read_occupants().placeholders else StepDone()

    def do(self) -> None:
        """See ``MigrationStep``."""
        self.placeholder.leave()
