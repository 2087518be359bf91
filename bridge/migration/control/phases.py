"""Where a migration can stand, and what may follow.  Pure.

The phase stands in the control znode; each change of it is one conditional write of that znode, and the last write of
whatever belongs to the phase.  ``authority`` moves with exactly two of them: into ``SWITCHED``, and into ``RETURNED``.

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
"""``copy``: stop the old members, start the new ones.  ``dual``: all members run this library, and none stops."""


class Phase(Enum):
    """One word of the control znode."""

    PLANNED = "planned"
    """The plan is kept beside the control znode; nothing is fenced."""
    FENCING = "fencing"
    """Old members are being locked out; some may be still."""
    FENCED = "fenced"
    """No old member can claim or commit, no modern one can join or commit: the offsets stand still."""
    ARMED = "armed"
    """Members were told that the group moves; not all have answered."""
    READY = "ready"
    """Every member answered with this epoch."""
    LOCKED = "locked"
    """The coordinator assigns; a partition is read only while its owner znode is held too."""
    COPIED = "copied"
    """Kafka has a value of this migration for every partition."""
    VERIFIED = "verified"
    """Every value was read back and is right; ZooKeeper's did not move meanwhile."""
    SWITCHED = "switched"
    """Kafka has the authority; modern members may work."""
    COMPLETED = "completed"
    """What the group left in ZooKeeper is in a file.  There is no way back; the fences stay until they are lifted."""
    UNDOING = "undoing"
    """On the way back before ``SWITCHED``: fences are being lifted."""
    RETURNING = "returning"
    """On the way back after ``SWITCHED``: Kafka's offsets are being written to ZooKeeper."""
    RETURNED = "returned"
    """ZooKeeper has the authority again; fences are being lifted."""
    UNDONE = "undone"
    """As before the migration, and every offset where the last commit left it."""


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
"""Nothing is under way; another migration may begin."""

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
    """Whether a migration that stands in ``phase`` can still come to one of these, forward or back."""
    found: set[Phase] = set()
    pending = list(next_phases(strategy, phase))
    while pending:
        one = pending.pop()
        if one not in found:
            found.add(one)
            pending += next_phases(strategy, one)
    return not found.isdisjoint(wanted)


def authority_of(phase: Phase) -> Authority:
    """Which store is right in a phase: exactly one, at every moment."""
    return "kafka" if phase in (Phase.SWITCHED, Phase.COMPLETED, Phase.RETURNING) else "zookeeper"


def blocks_old_members(phase: Phase) -> bool:
    """Whether an original member that starts now is held off for certain."""
    return phase in (Phase.FENCED, Phase.COPIED, Phase.VERIFIED, Phase.SWITCHED, Phase.RETURNING)


def has_reached(strategy: Strategy, phase: Phase, wanted: Phase) -> bool:
    """Whether a migration that goes forward has ``wanted`` behind it, or is there."""
    forward = FORWARD[strategy]
    return {phase, wanted} <= set(forward) and forward.index(phase) >= forward.index(wanted)
