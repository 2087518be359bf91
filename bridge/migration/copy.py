"""``copy``: the old members stop, both sides are fenced, offsets are carried over and compared, the authority moves.

    planned    control znode · the run · the plan beside it
    fencing    nobody is registered · access lists (K9) · nobody owns · owner fences (K2) · the seat (K5)
    fenced     the fences stand · offsets as planned, or drift accepted · committed to Kafka with provenance (K6)
    copied     read back and compared by value, ZooKeeper's unmoved
    verified   hooks before the cut-over · looked at once more, the seat last
    switched   the commit point: one conditional write · confirmed by the seat · the seat is left · hooks after it

Each phase ends with one write of the control znode.  The steps are derived from where the migration stands when they
are asked for, so that a run that goes on is the same as one that was never cut off: behind ``fenced`` it takes the seat
again and compares everything before it writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.accepting import AcceptDrift, PlanHolds
from bridge.migration.authority import Authority
from bridge.migration.clusters import SameClusters
from bridge.migration.control_access import ControlIsOurs, ProtectedNeedsLogin
from bridge.migration.control_steps import BeginControl, ControlTo, HoldRun, NothingElseMoves
from bridge.migration.copies import copies_of
from bridge.migration.fences.acls import AclFence
from bridge.migration.fences.left import CarryLists
from bridge.migration.fences.list_of_made import keeps_members_out
from bridge.migration.fences.owners import LateOwnerFences, owner_fences
from bridge.migration.fences.rights import MayCarryOut, MayChangeLists
from bridge.migration.fences.standing import FencesStand, NobodyOwns, NobodyRegistered
from bridge.migration.hooks import AFTER, BEFORE, hook_steps
from bridge.migration.move_steps import confirm_switch, move_steps
from bridge.migration.moving import WriteDown, copy_to_kafka
from bridge.migration.phases import Phase
from bridge.migration.pieces import KeepPlan
from bridge.migration.seat_steps import LeaveSeat, NoModernMembers, SeatOutlivesRun, TakeSeat
from bridge.migration.verify import VerifyCopy
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.migration.moving import Moving
    from bridge.migration.step import Step


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """What the operator says for one run.

    ``plan_text``: the bytes of the plan as it was made, which stay beside the control znode.  ``hold_at``: the run ends
    when that phase has.
    """

    plan_text: bytes
    accept_drift: bool = False
    hooks_dir: Path | None = None
    hold_at: Phase | None = None


def copy_steps(moving: Moving, options: CopyOptions) -> Iterator[Step]:
    """The steps from where the migration stands, up to ``hold_at`` if there is one.

    Each is carried out before the next is asked for.
    """
    for step in _all(moving, options):
        if options.hold_at is not None and moving.has_reached(options.hold_at):
            return
        yield step
        if options.hold_at is not None and isinstance(step, ControlTo) and step.phase is options.hold_at:
            return  # a dry run, which reaches no phase, ends here too


def _all(moving: Moving, options: CopyOptions) -> Iterator[Step]:
    authority, acl_fence = moving.authority, moving.plan.changes_lists
    begin, ended = BeginControl(authority, "copy", moving.plan.seen), _fences_left(moving)
    yield ControlIsOurs(authority.session, moving.group)
    yield SameClusters(moving)
    if not moving.has_reached(Phase.SWITCHED):
        yield SeatOutlivesRun(moving.seat, moving.session)
    if moving.phase is None:
        yield NothingElseMoves(begin)  # its seat would be waited for, and its fences would be taken for lacking rights
        if acl_fence:
            yield MayChangeLists(authority.session, moving.group, moving.topics)
        yield MayCarryOut(authority.session, moving.nodes, moving.plan.seen.acls if ended else {})
        yield ProtectedNeedsLogin(authority.session, moving.group, moving.plan.seen.acls)
        yield NoModernMembers(moving.seat)
        yield PlanHolds(moving, options.accept_drift)
        if ended:
            yield HoldRun(ended, moving.who)
            yield CarryLists(ended, moving.plan.seen.acls)
    yield begin
    yield HoldRun(authority, moving.who)
    if not moving.has_reached(Phase.SWITCHED):
        yield KeepPlan(authority, options.plan_text)
        yield WriteDown(moving, "apply", {"plan": moving.plan.digest, "seat": moving.seat.name})
        has_sat = moving.has_reached(Phase.FENCED)
        if has_sat:
            yield TakeSeat(moving.seat, has_sat=True)
        else:
            yield from _fencing(moving)
        yield from _carrying_over(moving, options, has_sat=has_sat)
    else:
        yield from confirm_switch(moving, accept_drift=options.accept_drift)
    yield LeaveSeat(moving.seat)
    yield from hook_steps(moving, options.hooks_dir, AFTER)


def _fences_left(moving: Moving) -> Authority | None:
    """The completed migration whose fences this one takes over; None: there is none."""
    seen = moving.plan.seen
    return Authority(moving.session, moving.group, seen.fences_of) if seen.fences_of else None


def _fencing(moving: Moving) -> Iterator[Step]:
    authority, plan = moving.authority, moving.plan
    acl_fence, planned = plan.changes_lists, plan.seen.acls
    yield ControlTo(authority, Phase.FENCING)
    yield NobodyRegistered(authority)
    if acl_fence:
        yield AclFence(authority, moving.topics, planned, members_leave=True)
    yield NobodyOwns(authority, acl_fence and keeps_members_out(authority, planned))
    if acl_fence:
        yield AclFence(authority, moving.topics, planned, members_leave=False)
    yield from owner_fences(authority, plan.seen.partitions)
    yield LateOwnerFences(authority, frozenset(plan.seen.partitions))
    yield TakeSeat(moving.seat, has_sat=False)
    yield ControlTo(authority, Phase.FENCED)


def _carrying_over(moving: Moving, options: CopyOptions, *, has_sat: bool) -> Iterator[Step]:
    authority, stores = moving.authority, moving.stores
    yield _fences_stand(moving)
    yield AcceptDrift(moving, options.accept_drift, has_sat)
    copies = copies_of(moving.plan)
    known = frozenset(moving.plan.seen.partitions)
    yield copy_to_kafka(moving, copies)
    yield ControlTo(authority, Phase.COPIED)
    yield VerifyCopy(stores, copies, known)
    yield ControlTo(authority, Phase.VERIFIED)
    yield from hook_steps(moving, options.hooks_dir, BEFORE)
    if options.hooks_dir is not None:
        # Programs take their time: it is looked at once more.
        yield VerifyCopy(stores, copies, known)
    yield _fences_stand(moving)
    yield from move_steps(moving, Phase.SWITCHED)


def _fences_stand(moving: Moving) -> FencesStand:
    kept = f"the plan beside {paths.control(moving.group)}"
    return FencesStand(moving.authority, tuple(moving.plan.seen.partitions), kept)
