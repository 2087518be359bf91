"""Checks around the fences, which change nothing: no old member is left, and all fences exist."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.control.control_znode import ControlZnode, VersionedControl
from bridge.migration.control.phases import Phase
from bridge.migration.errors import VerificationError
from bridge.migration.fences.fence_record import parse_fence_record
from bridge.migration.fences.owner_nodes import (
    foreign_owner_error,
    format_partitions,
    member_registered_error,
    read_owner_nodes,
    read_some_owner_nodes,
)
from bridge.migration.steps.step import CheckingStep, StepDone, StepPending, StepRefused, StepStatus, StepWaiting
from zkconsumer.admin.zookeeper_offset_writes import registered_members
from zkconsumer.zk import paths
from zkconsumer.zk.requests import ZnodeData

if TYPE_CHECKING:
    from zkconsumer.types import TopicPartition

_FENCED = (Phase.FENCED, Phase.COPIED, Phase.VERIFIED, Phase.SWITCHED, Phase.RETURNING)


@dataclass(frozen=True, slots=True)
class WaitForMembersToLeave(CheckingStep):
    """Wait until ``ids`` is empty."""

    control_znode: ControlZnode

    name = "every old member has left"

    def describe(self) -> list[str]:
        return [f"wait until {paths.ids(self.control_znode.group)} has no children"]

    def check(self) -> StepStatus:
        members = registered_members(self.control_znode.session, self.control_znode.group)
        if not members:
            return StepDone()
        more = f" and {len(members) - 5} more" if len(members) > 5 else ""
        return StepWaiting(f"{', '.join(members[:5])}{more} to leave: stop the old members")


@dataclass(slots=True)
class WaitForOwnershipRelease(CheckingStep):
    """Wait until no owner node is left, and none can be created.

    The owner nodes of a member that could not make its last commit, or was paused, exist until its session ends.  With
    access lists as a fence, the step waits for them at most the longest session that ZooKeeper grants.  Without
    (``acl_fence`` False) it waits that time in full, since only then no member that left can write any more.
    """

    control_znode: ControlZnode
    acl_fence: bool
    _since_ms: int | None = None
    _longest_ms: int = 0

    name = "no owner nodes are left"

    def describe(self) -> list[str]:
        return [f"wait until {paths.owners(self.control_znode.group)} has no owner nodes"]

    def check(self) -> StepStatus:
        session = self.control_znode.session
        held = self.control_znode.check_phase(Phase.FENCING, *_FENCED)
        if isinstance(held, StepRefused):
            return held
        if held is not None and held.phase is not Phase.FENCING:
            return StepDone()
        claims = self._claims()
        if held is None:
            return StepWaiting(f"the owner nodes of {format_partitions(list(claims))} to end") if claims else StepDone()
        members = registered_members(session, self.control_znode.group)
        if members:
            return StepRefused(member_registered_error(self.control_znode.group, members))
        if not claims and self.acl_fence:
            return StepDone()
        if self._since_ms is None:
            self._longest_ms = session.max_session_timeout_ms()
            self._since_ms = session.clock.now_ms()
        left_ms = self._since_ms + self._longest_ms - session.clock.now_ms()
        if left_ms > 0:
            whose = (
                f"the owner nodes of {format_partitions(list(claims))} to end"
                if claims
                else "sessions of old members to end"
            )
            return StepWaiting(f"{whose}, at most {-(-left_ms // 1_000)} s")
        if claims:
            return StepRefused(foreign_owner_error(self.control_znode.group, claims, self.control_znode.migration_id))
        return StepDone()

    def _claims(self) -> dict[TopicPartition, ZnodeData]:
        session = self.control_znode.session
        nodes = read_owner_nodes(session, self.control_znode.group)
        return {
            tp: node
            for tp, node in sorted(nodes.items())
            if node.stat.ephemeral_owner not in (0, session.session_id)
            or (not node.stat.ephemeral_owner and parse_fence_record(node.data) is None)
        }


@dataclass(frozen=True, slots=True)
class CheckFences:
    """After ``fenced``: the group is still there, and every partition has its fence.

    Old tools delete ``/consumers/G`` as soon as ``ids`` is empty.  ``plan_location``: where the group's offsets are
    stored, as text for the operator.
    """

    control_znode: ControlZnode
    partitions: Collection[TopicPartition]
    plan_location: str

    name = "all fences exist"
    changes = False

    def describe(self) -> list[str]:
        return [f"check that the fences of {len(self.partitions)} partitions exist"]

    def check(self) -> StepStatus:
        held = self.control_znode.check_phase(*_FENCED)
        if not isinstance(held, VersionedControl):
            return held or StepPending()
        group, session = self.control_znode.group, self.control_znode.session
        if session.get(paths.group_root(group)) is None:
            return StepRefused(
                VerificationError(
                    f"{paths.group_root(group)} was deleted, as old tools do with groups without members. Its offsets "
                    f"from before are in {self.plan_location}. Roll back, which restores them: zkconsumer migrate "
                    f"rollback {group} --execute"
                )
            )
        nodes = read_some_owner_nodes(session, group, self.partitions)
        broken = [tp for tp in sorted(self.partitions) if not self._is_fenced(nodes.get(tp), held.control.epoch)]
        if broken:
            return StepRefused(
                VerificationError(
                    f"the fences of {format_partitions(broken)} were deleted or replaced by another client, and old "
                    "members may have read and committed since. The offsets from before are in "
                    f"{self.plan_location}. Roll back, and begin again: zkconsumer migrate rollback {group}"
                )
            )
        return StepDone()

    def _is_fenced(self, node: ZnodeData | None, epoch: int) -> bool:
        mark = None if node is None or node.stat.ephemeral_owner else parse_fence_record(node.data)
        return mark is not None and mark.migration_id == self.control_znode.migration_id and mark.epoch <= epoch

    def do(self) -> None:
        """Raises ``PartiallyDoneError``: before ``fenced`` the check is not possible, and after it there is nothing to
        do.
        """
        self.control_znode.require_phase(*_FENCED)
