"""What a member of both worlds does in each phase of the control znode.  Pure; a table and its reader.

    stance      who holds       share      commits                  in the coordinator's group as
    ALONE       ZooKeeper       computed   ZooKeeper                -
    JOINED      ZooKeeper       computed   ZooKeeper                private
    LOCKED      ZooKeeper       given      ZooKeeper, then Kafka    private
    COPIED      ZooKeeper       given      Kafka, then ZooKeeper    private
    SWITCHED    coordinator     nothing    Kafka (mirrored)         private, range
    COMPLETED   coordinator     nothing    Kafka                    range
    RETURNING   coordinator     given      Kafka, then ZooKeeper    private, range
    RETURNED    ZooKeeper       given      ZooKeeper, then Kafka    private, range

*Who holds* tells the streams what to read: ZooKeeper's side what its owner nodes hold, the coordinator's side what its
generation gives.  *Share* is what ZooKeeper's side claims.  Members see a phase at different times; while two phases
that follow each other are both in use the owner node is one lock for both, or (from COPIED to SWITCHED, from RETURNING
to RETURNED) the generation and the version of the control znode refuse whoever is late.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from bridge.migration.control import phase_of, strategy_of
from bridge.migration.phases import Phase
from zkconsumer.errors import MigrationError

if TYPE_CHECKING:
    from zkconsumer.zk.znodes import Control


class Stance(Enum):
    """What a member is to be."""

    ZOOKEEPER_ONLY = "alone"
    JOINED = "joined"
    LOCKED = "locked"
    COPIED = "copied"
    SWITCHED = "switched"
    COMPLETED = "completed"
    RETURNING = "returning"
    RETURNED = "returned"


class Side(Enum):
    """Which of the two memberships counts."""

    ZOOKEEPER = "zookeeper"
    COORDINATOR = "coordinator"


class Share(Enum):
    """What ZooKeeper's side claims."""

    COMPUTED = "computed"
    FROM_COORDINATOR = "given"
    EMPTY = "nothing"


class Order(Enum):
    """Where a commit goes, and which store has it first."""

    ZOOKEEPER = "zookeeper"
    ZOOKEEPER_FIRST = "zookeeper, then kafka"
    KAFKA_FIRST = "kafka, then zookeeper"
    KAFKA = "kafka"


PRIVATE, RANGE = "private", "range"
"""What a member offers the coordinator's group: the migration's own protocol, which no stock client has; Kafka's."""


@dataclass(frozen=True, slots=True)
class Duty:
    """One row of the table.  ``mirrors``: what Kafka took is written to ZooKeeper as well, as far as that goes."""

    active_side: Side
    zookeeper_assignment: Share
    commit_order: Order
    protocols: tuple[str, ...] = ()
    mirrors_to_zookeeper: bool = False


_BOTH = (PRIVATE, RANGE)

DUTIES: dict[Stance, Duty] = {
    Stance.ZOOKEEPER_ONLY: Duty(Side.ZOOKEEPER, Share.COMPUTED, Order.ZOOKEEPER),
    Stance.JOINED: Duty(Side.ZOOKEEPER, Share.COMPUTED, Order.ZOOKEEPER, (PRIVATE,)),
    Stance.LOCKED: Duty(Side.ZOOKEEPER, Share.FROM_COORDINATOR, Order.ZOOKEEPER_FIRST, (PRIVATE,)),
    Stance.COPIED: Duty(Side.ZOOKEEPER, Share.FROM_COORDINATOR, Order.KAFKA_FIRST, (PRIVATE,)),
    Stance.SWITCHED: Duty(Side.COORDINATOR, Share.EMPTY, Order.KAFKA, _BOTH, mirrors_to_zookeeper=True),
    Stance.COMPLETED: Duty(Side.COORDINATOR, Share.EMPTY, Order.KAFKA, (RANGE,)),
    Stance.RETURNING: Duty(Side.COORDINATOR, Share.FROM_COORDINATOR, Order.KAFKA_FIRST, _BOTH),
    Stance.RETURNED: Duty(Side.ZOOKEEPER, Share.FROM_COORDINATOR, Order.ZOOKEEPER_FIRST, _BOTH),
}

_STANCES: dict[Phase, Stance] = {
    Phase.PLANNED: Stance.ZOOKEEPER_ONLY,
    Phase.ARMED: Stance.JOINED,
    Phase.READY: Stance.JOINED,
    Phase.LOCKED: Stance.LOCKED,
    Phase.COPIED: Stance.COPIED,
    Phase.SWITCHED: Stance.SWITCHED,
    Phase.COMPLETED: Stance.COMPLETED,
    Phase.UNDOING: Stance.ZOOKEEPER_ONLY,
    Phase.RETURNING: Stance.RETURNING,
    Phase.RETURNED: Stance.RETURNED,
    Phase.UNDONE: Stance.ZOOKEEPER_ONLY,
}


def member_phase_of(control: Control | None) -> Stance:
    """What a member is to be; ``control`` None: the group does not move.

    A group that moves by copying stops its old members: there this member is one of ZooKeeper's alone, until Kafka has
    the authority.  Raises ``MigrationError`` then, and for a phase or a strategy that this release does not know.
    """
    if control is None:
        return Stance.ZOOKEEPER_ONLY
    try:
        strategy, phase = strategy_of(control), phase_of(control)
        if strategy == "dual":
            return _STANCES[phase]
    except (ValueError, KeyError) as error:
        raise MigrationError(
            f"the group's migration {control.migration_id} is in phase {control.phase!r} ({control.strategy}), which "
            "this release does not know: run the release that moves the group, here too"
        ) from error
    if control.authority == "zookeeper":
        return Stance.ZOOKEEPER_ONLY
    raise MigrationError(
        f"the offsets of this group are kept by Kafka now (migration {control.migration_id} by copying, phase "
        f"{control.phase!r}): start members of the modern kind, or take the group's migration back first"
    )
