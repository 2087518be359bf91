"""The phases of a migration, and which phase may follow which.  Pure.

The control znode contains the phase.  Each change of the phase is one conditional write of that znode, and the last
write of the phase before.  Exactly two of these writes move the authority: to ``SWITCHED``, and to ``RETURNED``.

    copy      planned -> fencing -> fenced -> copied -> verified -> switched -> completed
    dual      planned -> armed -> ready -> locked -> copied -> switched -> completed
    back      (before switched)  anything -> undoing -> undone
              (after)            switched -> returning -> returned -> undone
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Literal, TypeAlias

from zkconsumer.zk.znode_formats import ENDED_PHASES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zkconsumer.zk.znode_formats import Authority

Strategy: TypeAlias = Literal["copy", "dual"]
"""``copy``: stop the old members, start the new ones.  ``dual``: all members run this library, and no member stops."""


class Phase(Enum):
    """A phase, with its text in the control znode."""

    PLANNED = "planned"
    """The plan is stored beside the control znode; nothing is fenced."""
    FENCING = "fencing"
    """Fences are being set; some old members may still read."""
    FENCED = "fenced"
    """No old member can own or commit, no new member can join or commit: the offsets do not change."""
    ARMED = "armed"
    """The control znode announces the migration to the members; not all have acknowledged it."""
    READY = "ready"
    """Every member has acknowledged this epoch."""
    LOCKED = "locked"
    """The coordinator assigns partitions; a member reads one only while it also owns it in ZooKeeper."""
    COPIED = "copied"
    """Kafka has an offset of this migration for every partition."""
    VERIFIED = "verified"
    """Every offset was read back and is equal; ZooKeeper's offsets did not change meanwhile."""
    SWITCHED = "switched"
    """Kafka has the authority; new members may read."""
    COMPLETED = "completed"
    """The znodes of the group are archived in a file.  No rollback is possible; the fences remain until lifted."""
    UNDOING = "undoing"
    """Rollback before ``SWITCHED``: fences are being lifted."""
    RETURNING = "returning"
    """Rollback after ``SWITCHED``: Kafka's offsets are being written to ZooKeeper."""
    RETURNED = "returned"
    """ZooKeeper has the authority again; fences are being lifted."""
    UNDONE = "undone"
    """As before the migration, and every offset is that of the last commit."""


FORWARD: dict[Strategy, tuple[Phase, ...]] = {
    "copy": (
        Phase.PLANNED,
        Phase.FENCING,
        Phase.FENCED,
        Phase.COPIED,
        Phase.VERIFIED,
        Phase.SWITCHED,
        Phase.COMPLETED,
    ),
    "dual": (
        Phase.PLANNED,
        Phase.ARMED,
        Phase.READY,
        Phase.LOCKED,
        Phase.COPIED,
        Phase.SWITCHED,
        Phase.COMPLETED,
    ),
}

ENDED = frozenset(map(Phase, ENDED_PHASES))
"""No migration is active; another one may begin."""

_BACK: dict[Phase, tuple[Phase, ...]] = {
    Phase.SWITCHED: (Phase.RETURNING,),
    Phase.RETURNING: (Phase.RETURNED,),
    Phase.RETURNED: (Phase.UNDONE,),
    Phase.UNDOING: (Phase.UNDONE,),
    Phase.COMPLETED: (),
    Phase.UNDONE: (),
}


def next_phases(strategy: Strategy, phase: Phase) -> tuple[Phase, ...]:
    """The phases that may come next: forward first, then back."""
    forward = FORWARD[strategy]
    later = forward[forward.index(phase) + 1 :][:1] if phase in forward else ()
    return (*later, *_BACK.get(phase, (Phase.UNDOING,)))


def can_reach(strategy: Strategy, phase: Phase, wanted: Iterable[Phase]) -> bool:
    """Whether a migration in ``phase`` can still reach one of these phases, forward or back."""
    found: set[Phase] = set()
    pending = list(next_phases(strategy, phase))
    while pending:
        one = pending.pop()
        if one not in found:
            found.add(one)
            pending += next_phases(strategy, one)
    return not found.isdisjoint(wanted)


def authority_of(phase: Phase) -> Authority:
    """The store that has the authority in a phase; exactly one at every moment."""
    return "kafka" if phase in (Phase.SWITCHED, Phase.COMPLETED, Phase.RETURNING) else "zookeeper"


def blocks_old_members(phase: Phase) -> bool:
    """Whether the fences certainly block a Scala consumer that starts now."""
    return phase in (Phase.FENCED, Phase.COPIED, Phase.VERIFIED, Phase.SWITCHED, Phase.RETURNING)


def has_reached(strategy: Strategy, phase: Phase, wanted: Phase) -> bool:
    """Whether a migration on its way forward is in ``wanted`` or in a later phase."""
    forward = FORWARD[strategy]
    return {phase, wanted} <= set(forward) and forward.index(phase) >= forward.index(wanted)
