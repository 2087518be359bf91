"""The control znode of a migrating group: its children, their names, and the order of phases.  Pure.

    /zkconsumer/groups/G              Control: id, epoch, phase, authority, strategy (``zkconsumer.zk.znode_formats``)
    /zkconsumer/groups/G/plan-0000    the plan, gzip, in pieces of at most ``CHILD_BYTES_MAX``
    /zkconsumer/groups/G/accepted-0000   the plan that was accepted with its drift; it is valid once it is complete
    /zkconsumer/groups/G/returned-0000   which offsets in Kafka the rollback wrote to ZooKeeper, for the next plan
    /zkconsumer/groups/G/journal      which process *intended* what and when, gzip; the state of the stores takes
                                      precedence
    /zkconsumer/groups/G/acls-0000    access lists of nodes that differ from the plan, each piece complete
    /zkconsumer/groups/G/run          ephemeral: the lock of the active run; no other run begins meanwhile
    /zkconsumer/groups/G/abort        with data: a request to stop the run; the next run deletes or empties it
    /zkconsumer/groups/G/leave        ephemeral: a rollback waits until members of this library leave the coordinator
                                      group
    /zkconsumer/groups/G/members      dual: one ephemeral child a member, with the epoch that it acknowledges

The epoch grows with each write that moves the authority, or begins or undoes a fence.  An offset, an owner node or a
member with an older epoch is ignored.
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
"""Phases that begin with a greater epoch; ``planned`` does too, where another migration left the znode."""


PLAN_PIECE_PREFIX = "plan-"
ACL_PIECE_PREFIX = "acls-"
ACCEPTED_PIECE_PREFIX = "accepted-"
RETURNED_PIECE_PREFIX = "returned-"
PRIVATE_PIECE_PREFIXES = (PLAN_PIECE_PREFIX, ACL_PIECE_PREFIX, ACCEPTED_PIECE_PREFIX)
"""Prefixes of the pieces that only the run's login may read: they contain access lists."""
PIECE_PREFIXES = (*PRIVATE_PIECE_PREFIXES, RETURNED_PIECE_PREFIX)
"""The prefixes of all pieces."""


def plan_piece_name(number: int) -> str:
    """The name of one piece of the plan."""
    return f"{PLAN_PIECE_PREFIX}{number:04d}"


def acl_piece_name(number: int) -> str:
    """The name of one piece of the access lists that were found after the plan was made."""
    return f"{ACL_PIECE_PREFIX}{number:04d}"


def accepted_piece_name(number: int) -> str:
    """The name of one piece of the plan that was accepted with its drift."""
    return f"{ACCEPTED_PIECE_PREFIX}{number:04d}"


def returned_piece_name(number: int) -> str:
    """The name of one piece of the record of what the rollback wrote to ZooKeeper."""
    return f"{RETURNED_PIECE_PREFIX}{number:04d}"


def initial_control(migration_id: str, strategy: Strategy, before: ControlRecord | None) -> ControlRecord:
    """The first control znode of a migration; ``before`` is what an ended migration left there."""
    epoch = 1 if before is None else before.epoch + 1
    return ControlRecord(migration_id, epoch, Phase.PLANNED.value, authority_of(Phase.PLANNED), strategy)


def next_control(control: ControlRecord, phase: Phase, *, is_confirmed: bool = True) -> ControlRecord:
    """The control znode in the next phase.  Raises ``InternalError`` for a phase that cannot follow, or before a move
    of the authority is confirmed.
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
    """The phase.  Raises ``ValueError`` for a phase of a later release."""
    return Phase(control.phase)


def strategy_of(control: ControlRecord) -> Strategy:
    """The strategy as one of ours.  Raises ``ValueError`` for a word of a later release."""
    match control.strategy:
        case "copy" | "dual" as strategy:
            return strategy
    raise ValueError(f"{control.strategy!r} is no strategy of this release")
