"""The control znode of a group on the move, what follows which, and what its children are called.  Pure.

    /zkconsumer/groups/G              Control: id, epoch, phase, authority, strategy (``zkconsumer.zk.znode_formats``)
    /zkconsumer/groups/G/plan-0000    the plan, gzip, in pieces of at most ``CHILD_BYTES_MAX``
    /zkconsumer/groups/G/accepted-0000   the same, as it was accepted with its drift; it counts once it is whole
    /zkconsumer/groups/G/returned-0000   which offsets in Kafka the way back wrote to ZooKeeper, for the next plan
    /zkconsumer/groups/G/journal      who ran what when, gzip: what was *intended*, never believed over the world
    /zkconsumer/groups/G/acls-0000    access lists of nodes that the plan did not see so, each piece for itself
    /zkconsumer/groups/G/run          ephemeral: whose run it is; nobody else's begins meanwhile
    /zkconsumer/groups/G/abort        with data: a run is asked to stop; deleted, or emptied, by the next run
    /zkconsumer/groups/G/leave        ephemeral: a rollback waits; members of ours are to leave the modern group
    /zkconsumer/groups/G/members      dual: one ephemeral child a member, with the epoch that it acknowledges

The epoch grows with each write that moves the authority, or begins or undoes a fence; a value, a claim or a member that
names an older one is not believed.
"""

from __future__ import annotations

from dataclasses import replace

from bridge.migration.control.phases import Phase, Strategy, authority_of, next_phases
from zkconsumer.errors import InternalError
from zkconsumer.zk import paths
from zkconsumer.zk.znode_formats import ControlRecord

CHILD_BYTES_MAX = 512 * 1024
JOURNAL_CHILD = "journal"
LOCK_CHILD = "run"
ABORT_CHILD = "abort"
MEMBERS_CHILD = paths.CONTROL_MEMBERS
LEAVE_CHILD = "leave"

PHASES_WITH_NEW_EPOCH = frozenset(
    {Phase.FENCING, Phase.ARMED, Phase.LOCKED, Phase.SWITCHED, Phase.UNDOING, Phase.RETURNING, Phase.RETURNED}
)
"""Phases that begin with a greater epoch; ``planned`` does too, where the znode was left by another migration."""


PLAN_PIECE_PREFIX = "plan-"
ACL_PIECE_PREFIX = "acls-"
ACCEPTED_PIECE_PREFIX = "accepted-"
RETURNED_PIECE_PREFIX = "returned-"
PRIVATE_PIECE_PREFIXES = (PLAN_PIECE_PREFIX, ACL_PIECE_PREFIX, ACCEPTED_PIECE_PREFIX)
"""What the names of pieces begin with that only the run's login may read: they hold access lists."""
PIECE_PREFIXES = (*PRIVATE_PIECE_PREFIXES, RETURNED_PIECE_PREFIX)
"""The same, of all pieces."""


def plan_piece_name(number: int) -> str:
    """The name of one piece of the plan."""
    return f"{PLAN_PIECE_PREFIX}{number:04d}"


def acl_piece_name(number: int) -> str:
    """The name of one piece of the access lists that were found later than the plan."""
    return f"{ACL_PIECE_PREFIX}{number:04d}"


def accepted_piece_name(number: int) -> str:
    """The name of one piece of the plan that was accepted with its drift."""
    return f"{ACCEPTED_PIECE_PREFIX}{number:04d}"


def returned_piece_name(number: int) -> str:
    """The name of one piece of the record of what the way back wrote to ZooKeeper."""
    return f"{RETURNED_PIECE_PREFIX}{number:04d}"


def initial_control(migration_id: str, strategy: Strategy, before: ControlRecord | None) -> ControlRecord:
    """What the first run writes; ``before`` is what a migration that has ended left there."""
    epoch = 1 if before is None else before.epoch + 1
    return ControlRecord(migration_id, epoch, Phase.PLANNED.value, authority_of(Phase.PLANNED), strategy)


def next_control(control: ControlRecord, phase: Phase, *, is_confirmed: bool = True) -> ControlRecord:
    """The control znode one phase on.  Raises ``InternalError`` for a phase that cannot follow, or before a move is
    confirmed.
    """
    if not control.is_confirmed:
        raise InternalError(f"{phase.value} must not follow {control.phase} before that is confirmed")
    if phase not in next_phases(strategy_of(control), phase_of(control)):
        raise InternalError(f"{phase.value} does not follow {control.phase} in a {control.strategy} migration")
    epoch = control.epoch + (phase in PHASES_WITH_NEW_EPOCH)
    return replace(
        control, epoch=epoch, phase=phase.value, authority=authority_of(phase), is_confirmed=is_confirmed
    )  # fmt: skip


def phase_of(control: ControlRecord) -> Phase:
    """The phase as one of ours.  Raises ``ValueError`` for a word of a later release."""
    return Phase(control.phase)


def strategy_of(control: ControlRecord) -> Strategy:
    """The strategy as one of ours.  Raises ``ValueError`` for a word of a later release."""
    match control.strategy:
        case "copy" | "dual" as strategy:
            return strategy
    raise ValueError(f"{control.strategy!r} is no strategy of this release")
