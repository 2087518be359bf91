"""``dual``: the members stay, and go from one world to the other as the control znode says; nothing stands still.

    planned    we have the rights · nobody else is there · control znode · the run · the plan ·
               what no member carries over, to Kafka
    armed      members join the coordinator's group, by a protocol that nobody else has
    ready      all are in it
    locked     members take what the coordinator gives them, and read it while they own it in ZooKeeper too;
               each commit goes to ZooKeeper, then to Kafka
    copied     each goes to Kafka, then to ZooKeeper · hooks before the cut-over · compared once more · all there still
    switched   the commit point: one conditional write · claims are given back, and fenced · hooks after it

A phase is told by one write of the control znode, and begins a piece of work of the members'.  It is followed by the
next one when every member that is registered has acknowledged it by name, and both worlds show what it wants.  Up to
``switched`` ZooKeeper is right, whoever dies; the steps are derived from where the migration stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.accepting import StartsFollow
from bridge.migration.clusters import SameClusters
from bridge.migration.control_access import ControlIsOurs, ProtectedNeedsLogin
from bridge.migration.control_steps import BeginControl, ControlTo, HoldRun
from bridge.migration.dual.comparing import CompareStores
from bridge.migration.dual.following import MembersFollow, MembersHold, NobodyElse, NobodyElseClaims
from bridge.migration.dual.unheld import UnheldAsPlanned, read_orphaned_copies
from bridge.migration.fences.behind_switch import FenceWhatIsFree
from bridge.migration.fences.rights import MayCarryOut
from bridge.migration.hooks import AFTER, BEFORE, hook_steps
from bridge.migration.moving import WriteDown, copy_to_kafka_step
from bridge.migration.phases import FORWARD, Phase
from bridge.migration.pieces import KeepPlan
from bridge.migration.seat_steps import LeaveSeat, NoModernMembers, TakeSeat

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.migration.moving import Moving
    from bridge.migration.step import Step

HELD = (Phase.ARMED, Phase.READY, Phase.LOCKED, Phase.COPIED)
"""Where a run can be held: members stay in such a phase for as long as nobody tells the next."""


@dataclass(frozen=True, slots=True)
class DualOptions:
    """What the operator says for one run.

    ``plan_text``: the bytes of the plan as it was made.  ``hold_at``: the run ends when every member acts by that phase
    and all that it wants is so.
    """

    plan_text: bytes
    hooks_dir: Path | None = None
    stop_after: Phase | None = None


def dual_steps(moving: Moving, options: DualOptions) -> Iterator[Step]:
    """The steps from where the migration stands, up to ``hold_at`` if there is one.

    Each is carried out before the next is asked for.
    """
    authority = moving.control_znode
    yield ControlIsOurs(authority.session, moving.group)
    yield SameClusters(moving)
    if moving.phase is None:
        yield MayCarryOut(authority.session, moving.znodes)
        yield ProtectedNeedsLogin(authority.session, moving.group, {})
        yield NobodyElse(authority)
        yield NoModernMembers(moving.placeholder)
        yield UnheldAsPlanned(moving)
    yield BeginControl(authority, "dual", moving.plan.snapshot)
    if moving.phase is Phase.COMPLETED:
        return
    yield HoldRun(authority, moving.caller)
    reached = moving.phase or Phase.PLANNED
    if reached is not Phase.SWITCHED:
        yield KeepPlan(authority, options.plan_text)
        yield WriteDown(moving, "apply", {"plan": moving.plan.digest})
    way = FORWARD["dual"][:-1]
    for phase in way[way.index(reached) :]:
        if phase is not reached:
            yield ControlTo(authority, phase)
        yield from _phase_steps(moving, phase)
        if phase is options.stop_after:
            return
        if phase is Phase.COPIED:
            yield from _pre_switch_steps(moving, options)
    yield from hook_steps(moving, options.hooks_dir, AFTER)


def _phase_steps(moving: Moving, phase: Phase) -> Iterator[Step]:
    authority, stores = moving.control_znode, moving.stores
    yield MembersFollow(authority, stores, phase)
    match phase:
        case Phase.PLANNED:
            copies = read_orphaned_copies(moving)
            if copies:
                yield TakeSeat(moving.placeholder, had_placeholder=False)
                yield StartsFollow(moving, copies)
                yield copy_to_kafka_step(moving, copies, Phase.PLANNED)
            yield LeaveSeat(moving.placeholder)
        case Phase.LOCKED | Phase.COPIED:
            yield MembersHold(authority, stores, phase)
            yield CompareStores(moving, phase)
        case Phase.SWITCHED:
            yield FenceWhatIsFree(authority, moving.topics)
            yield NobodyElseClaims(authority)
            yield FenceWhatIsFree(authority, moving.topics)


def _pre_switch_steps(moving: Moving, options: DualOptions) -> Iterator[Step]:
    yield from hook_steps(moving, options.hooks_dir, BEFORE)
    if options.hooks_dir is not None:
        # Programs take time: the members and both stores are checked once more.
        yield from _phase_steps(moving, Phase.COPIED)
    # The comparison takes time too, and a member that registered meanwhile has not acknowledged.
    yield MembersFollow(moving.control_znode, moving.stores, Phase.COPIED)
