"""The ways back, and which of them is open.

    before switched   offsets that somebody deleted come back · undoing · the seat is left · owner fences away ·
                      access lists back · nudge · undone
    after it          we have the rights · Spark queries are asked to leave · nobody is in the modern group · returning
                      · the nodes are this run's · nobody is registered · owner fences · the seat · Kafka -> ZooKeeper ·
                      compared · returned (the authority moves) · confirmed · which offsets those were is
                      recorded (``returned``) · the seat is left · owner fences away · access lists back · nudge ·
                      undone
    returned, but     nobody is in the modern group · the seat · Kafka -> ZooKeeper · compared · confirmed · ...
    not confirmed

The steps are derived from where the migration stands, so that a run that goes on is the same as one that was never cut
off.  What Kafka knows of topics and partitions that came meanwhile is taken along.

Of ``dual`` the members stay, and take the group back themselves (``dual.back``); nobody has to be woken then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.clusters import SameClusters
from bridge.migration.control_access import ControlIsOurs
from bridge.migration.control_steps import ControlTo, HoldRun
from bridge.migration.dual.back import has_non_acknowledging_members, has_registered_members, dual_return_steps
from bridge.migration.dual.following import MembersFollow
from bridge.migration.errors import PartlyDone
from bridge.migration.fences.acls import AclFence, RestoreLists
from bridge.migration.fences.late_lists import acls_before_fence
from bridge.migration.fences.lifting import LiftOwnerFences
from bridge.migration.fences.list_of_made import acl_of_new_offsets
from bridge.migration.fences.lists import is_fence
from bridge.migration.fences.mark import parse_fence_record
from bridge.migration.fences.nudge import Nudge, OffsetsMove
from bridge.migration.fences.owner_nodes import read_owner_nodes
from bridge.migration.fences.owners import LateOwnerFences, owner_fence_steps
from bridge.migration.fences.rights import MayCarryOut, MayChangeLists, fenced_levels
from bridge.migration.fences.standing import NobodyRegistered
from bridge.migration.move_steps import ConfirmMove, confirm_switch_steps, authority_move_steps
from bridge.migration.mover import COPYING, ReturnToZooKeeper
from bridge.migration.moving import WriteDown
from bridge.migration.phases import Phase
from bridge.migration.put_back import PutOffsetsBack
from bridge.migration.returned import KeepReturned
from bridge.migration.seat_steps import AskToLeave, LeaveSeat, NoModernMembers, SeatOutlivesRun, TakeSeat
from bridge.migration.step import Done, Refused, Standing
from bridge.migration.verify import VerifyReturn
from zkconsumer.admin.log_ranges import LogRange, log_ranges
from zkconsumer.errors import Bug, PreconditionFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.migration.authority import Authority
    from bridge.migration.decisions import OffsetConvention
    from bridge.migration.fences.lists import AccessList
    from bridge.migration.moving import Moving
    from bridge.migration.step import Step
    from zkconsumer.types import TopicPartition

_BEHIND = (Phase.SWITCHED, Phase.RETURNING)


@dataclass(frozen=True, slots=True)
class RollbackOptions:
    """``has_plan`` False: the plan was not kept whole, as when the first run was cut off in writing it.

    ``tell``: is given a sentence about members that must be started anew.  ``patience_ms``: how long it is looked
    whether the offsets of old members move.
    """

    report: Callable[[str], None]
    progress_timeout_ms: int
    has_plan: bool = True


def rollback_steps(moving: Moving, options: RollbackOptions) -> Iterator[Step]:
    """The steps from where the migration stands.  Each is carried out before the next is asked for."""
    authority, phase = moving.control_znode, moving.phase
    if phase is Phase.COMPLETED:
        raise PreconditionFailed(
            f"migration {authority.migration_id} of group {moving.group} is completed: there is no way back "
            "from it. A second migration that keeps Kafka's offsets can be rolled back: stop the new members, then "
            f"zkconsumer migrate plan {moving.group} --existing keep-target; then apply that plan, and roll back. Or "
            f"old members go on under another group.id, with offsets of: zkconsumer offsets export {moving.group}"
        )
    if phase is None or phase is Phase.UNDONE:
        return
    yield ControlIsOurs(authority.session, moving.group)
    yield SameClusters(moving)
    if phase in (*_BEHIND, Phase.RETURNED) and not has_registered_members(moving):
        yield SeatOutlivesRun(moving.placeholder, moving.session)
    if phase is Phase.SWITCHED:
        # Told while modern members still work: a way back that stops half-way would keep them from it.
        before: Mapping[str, AccessList] = {}
        if moving.plan.uses_acl_fence:
            before = acls_before_fence(authority, moving.plan.snapshot.acls)
            yield MayChangeLists(authority.session, moving.group, moving.topics)
        yield MayCarryOut(authority.session, moving.znodes, before)
    yield HoldRun(authority, moving.caller)
    is_dual = moving.plan.strategy == "dual"
    if phase in _BEHIND and has_registered_members(moving):
        yield from dual_return_steps(moving)
    elif phase in _BEHIND:
        yield from confirm_switch_steps(moving)
        yield from _return_steps(moving)
    elif phase is Phase.RETURNED:
        if not moving.is_confirmed:
            yield from _confirm_return_steps(moving)
    else:
        if phase in COPYING and options.has_plan and not is_dual:  # with dual the members store
            yield PutOffsetsBack(moving.stores, moving.plan.snapshot.partitions, acl_of_new_offsets(authority, moving.plan))
        yield ControlTo(authority, Phase.UNDOING)
    if phase in (*_BEHIND, Phase.RETURNED) and not is_dual:
        yield KeepReturned(moving)
    yield LeaveSeat(moving.placeholder)
    if is_dual and phase in (*_BEHIND, Phase.RETURNED):
        # By then members have written their provenance over what they committed before.
        yield MembersFollow(authority, moving.stores, Phase.RETURNED)
        yield KeepReturned(moving)
    if options.has_plan:
        yield LiftOwnerFences(authority, moving.parents_to_keep)
        if moving.plan.uses_acl_fence:
            yield RestoreLists(authority, moving.topics, moving.plan.snapshot.acls)
    else:
        yield NothingIsFenced(authority)
    if is_dual and not has_non_acknowledging_members(moving):
        yield ControlTo(authority, Phase.UNDONE)
        yield MembersFollow(authority, moving.stores, Phase.UNDONE)
        return
    yield Nudge(authority)
    yield ControlTo(authority, Phase.UNDONE)
    yield OffsetsMove(authority, lambda: _log_ends(moving), options.report, options.progress_timeout_ms)


def _return_steps(moving: Moving) -> Iterator[Step]:
    authority, plan, stores = moving.control_znode, moving.plan, moving.stores
    convention, acl_fence = _convention_of(moving), plan.uses_acl_fence
    if moving.phase is Phase.SWITCHED:
        yield AskToLeave(authority)
    yield NoModernMembers(moving.placeholder)
    yield ControlTo(authority, Phase.RETURNING)
    yield WriteDown(moving, "rollback", {"seat": moving.placeholder.name})
    if acl_fence:
        yield AclFence(authority, moving.topics, plan.snapshot.acls, members_may_delete=False)
    yield NobodyRegistered(authority)
    # Somebody may have deleted fences since the switch, and each must name this epoch.
    yield from owner_fence_steps(authority, plan.snapshot.partitions)
    yield LateOwnerFences(authority, frozenset(plan.snapshot.partitions))
    yield TakeSeat(moving.placeholder, had_placeholder=False)
    yield ReturnToZooKeeper(stores, convention, acl_of_new_offsets(authority, moving.plan))
    yield VerifyReturn(stores, convention)
    yield from authority_move_steps(moving, Phase.RETURNED)


def _confirm_return_steps(moving: Moving) -> Iterator[Step]:
    """``returned`` was written, and what others committed to Kafka before that may be missing in ZooKeeper."""
    authority, stores, acl_fence = moving.control_znode, moving.stores, moving.plan.uses_acl_fence
    yield NoModernMembers(moving.placeholder)
    if acl_fence:
        yield AclFence(authority, moving.topics, moving.plan.snapshot.acls, members_may_delete=False)
    yield NobodyRegistered(authority)
    yield TakeSeat(moving.placeholder, had_placeholder=False)
    convention = _convention_of(moving)
    acl = acl_of_new_offsets(authority, moving.plan)
    yield ReturnToZooKeeper(stores, convention, acl, Phase.RETURNED)
    yield VerifyReturn(stores, convention, Phase.RETURNED)
    yield ConfirmMove(authority, moving.placeholder, Phase.RETURNED)


def _convention_of(moving: Moving) -> OffsetConvention:
    convention = moving.plan.convention
    if convention is None:
        raise Bug(f"migration {moving.plan.migration_id} was switched without an offset convention")
    return convention


@dataclass(frozen=True, slots=True)
class NothingIsFenced:
    """Without a plan nobody knows what there was before a fence; there must be none."""

    control_znode: Authority

    name = "nothing is fenced"
    changes = False

    def describe(self) -> list[str]:
        """See ``Step``."""
        return ["look whether there are fences, since the plan was not kept whole"]

    def check(self) -> Standing:
        """See ``Step``."""
        session, group = self.control_znode.session, self.control_znode.group
        marks = [tp for tp, node in read_owner_nodes(session, group).items() if parse_fence_record(node.data) is not None]
        paths_ = [path for level in fenced_levels(session, group, []) for path in level]
        lists = [path for path, acl in session.get_acls(paths_).items() if acl is not None and is_fence(acl)]
        if not marks and not lists:
            return Done()
        return Refused(
            PartlyDone(
                f"group {group} has fences ({len(marks)} owner nodes, {len(lists)} access lists), and the plan, which "
                "says what was there before, was damaged: somebody else writes beside the control znode. Put the plan "
                f"back with its file: zkconsumer migrate rollback {group} --plan {group}.plan --execute"
            )
        )

    def do(self) -> None:
        """There is nothing to do."""


def _log_ends(moving: Moving) -> Mapping[TopicPartition, int]:
    found = log_ranges(moving.session.brokers, list(moving.plan.snapshot.partitions))
    return {tp: one.latest for tp, one in found.items() if isinstance(one, LogRange)}
