"""What a member of a ``dual`` migration does in each phase of the control znode.  Pure; a table and its reader.

    member phase  active side   assignment        commits                  in the coordinator group with
    ALONE         ZooKeeper     computed          ZooKeeper                -
    JOINED        ZooKeeper     computed          ZooKeeper                private
    LOCKED        ZooKeeper     from coordinator  ZooKeeper, then Kafka    private
    COPIED        ZooKeeper     from coordinator  Kafka, then ZooKeeper    private
    SWITCHED      coordinator   empty             Kafka (mirrored)         private, range
    COMPLETED     coordinator   empty             Kafka                    range
    RETURNING     coordinator   from coordinator  Kafka, then ZooKeeper    private, range
    RETURNED      ZooKeeper     from coordinator  ZooKeeper, then Kafka    private, range

The *active side* decides which partitions are processed: those with owner nodes of the ZooKeeper side, or those of the
coordinator side's generation.  *Assignment* is that of the ZooKeeper side.  Members see a phase at different times.
While two consecutive phases are both in use, the owner node is one lock for both; or (from COPIED to SWITCHED, and from
RETURNING to RETURNED) the generation and the version of the control znode reject the member that is late.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from bridge.migration.control.control_layout import phase_of, strategy_of
from bridge.migration.control.phases import Phase
from zkconsumer.errors import MigrationError

if TYPE_CHECKING:
    from zkconsumer.zk.znode_formats import ControlRecord


class MemberPhase(Enum):
    """The phase that a member follows."""

    ZOOKEEPER_ONLY = "alone"
    JOINED = "joined"
    LOCKED = "locked"
    COPIED = "copied"
    SWITCHED = "switched"
    COMPLETED = "completed"
    RETURNING = "returning"
    RETURNED = "returned"


class MembershipSide(Enum):
    """The two memberships."""

    ZOOKEEPER = "zookeeper"
    COORDINATOR = "coordinator"


class ZooKeeperAssignment(Enum):
    """Where the assignment of the ZooKeeper side comes from."""

    COMPUTED = "computed"
    FROM_COORDINATOR = "given"
    EMPTY = "nothing"


class CommitOrder(Enum):
    """The stores of a commit, and their order."""

    ZOOKEEPER = "zookeeper"
    ZOOKEEPER_FIRST = "zookeeper, then kafka"
    KAFKA_FIRST = "kafka, then zookeeper"
    KAFKA = "kafka"


MIGRATION_PROTOCOL, RANGE_PROTOCOL = "private", "range"
"""The protocols of a member in the coordinator group: that of the migration, which no stock client has; and Kafka's."""


@dataclass(frozen=True, slots=True)
class PhaseRules:
    """One row of the table.

    ``mirrors_to_zookeeper``: offsets that Kafka accepted are also written to ZooKeeper; failures are ignored.
    """

    active_side: MembershipSide
    zookeeper_assignment: ZooKeeperAssignment
    commit_order: CommitOrder
    protocols: tuple[str, ...] = ()
    mirrors_to_zookeeper: bool = False


_BOTH_PROTOCOLS = (MIGRATION_PROTOCOL, RANGE_PROTOCOL)

PHASE_RULES: dict[MemberPhase, PhaseRules] = {
    MemberPhase.ZOOKEEPER_ONLY: PhaseRules(
        MembershipSide.ZOOKEEPER, ZooKeeperAssignment.COMPUTED, CommitOrder.ZOOKEEPER
    ),
    MemberPhase.JOINED: PhaseRules(
        MembershipSide.ZOOKEEPER, ZooKeeperAssignment.COMPUTED, CommitOrder.ZOOKEEPER, (MIGRATION_PROTOCOL,)
    ),
    MemberPhase.LOCKED: PhaseRules(
        MembershipSide.ZOOKEEPER,
        ZooKeeperAssignment.FROM_COORDINATOR,
        CommitOrder.ZOOKEEPER_FIRST,
        (MIGRATION_PROTOCOL,),
    ),
    MemberPhase.COPIED: PhaseRules(
        MembershipSide.ZOOKEEPER, ZooKeeperAssignment.FROM_COORDINATOR, CommitOrder.KAFKA_FIRST, (MIGRATION_PROTOCOL,)
    ),
    MemberPhase.SWITCHED: PhaseRules(
        MembershipSide.COORDINATOR,
        ZooKeeperAssignment.EMPTY,
        CommitOrder.KAFKA,
        _BOTH_PROTOCOLS,
        mirrors_to_zookeeper=True,
    ),
    MemberPhase.COMPLETED: PhaseRules(
        MembershipSide.COORDINATOR, ZooKeeperAssignment.EMPTY, CommitOrder.KAFKA, (RANGE_PROTOCOL,)
    ),
    MemberPhase.RETURNING: PhaseRules(
        MembershipSide.COORDINATOR, ZooKeeperAssignment.FROM_COORDINATOR, CommitOrder.KAFKA_FIRST, _BOTH_PROTOCOLS
    ),
    MemberPhase.RETURNED: PhaseRules(
        MembershipSide.ZOOKEEPER, ZooKeeperAssignment.FROM_COORDINATOR, CommitOrder.ZOOKEEPER_FIRST, _BOTH_PROTOCOLS
    ),
}

_MEMBER_PHASES: dict[Phase, MemberPhase] = {
    Phase.PLANNED: MemberPhase.ZOOKEEPER_ONLY,
    Phase.ARMED: MemberPhase.JOINED,
    Phase.READY: MemberPhase.JOINED,
    Phase.LOCKED: MemberPhase.LOCKED,
    Phase.COPIED: MemberPhase.COPIED,
    Phase.SWITCHED: MemberPhase.SWITCHED,
    Phase.COMPLETED: MemberPhase.COMPLETED,
    Phase.UNDOING: MemberPhase.ZOOKEEPER_ONLY,
    Phase.RETURNING: MemberPhase.RETURNING,
    Phase.RETURNED: MemberPhase.RETURNED,
    Phase.UNDONE: MemberPhase.ZOOKEEPER_ONLY,
}


def member_phase_of(control: ControlRecord | None) -> MemberPhase:
    """The phase that a member follows; ``control`` None: the group does not migrate.

    A migration with strategy ``copy`` stops its members: there this member uses ZooKeeper only, until Kafka has the
    authority.  Raises ``MigrationError`` then, and for a phase or a strategy that this release does not support.
    """
    if control is None:
        return MemberPhase.ZOOKEEPER_ONLY
    try:
        strategy, phase = strategy_of(control), phase_of(control)
        if strategy == "dual":
            return _MEMBER_PHASES[phase]
    except (ValueError, KeyError) as error:
        raise MigrationError(
            f"the group's migration {control.migration_id} is in phase {control.phase!r} ({control.strategy}), which "
            "this release does not know: run the release that moves the group, here too"
        ) from error
    if control.authority == "zookeeper":
        return MemberPhase.ZOOKEEPER_ONLY
    raise MigrationError(
        f"the offsets of this group are in Kafka now (migration {control.migration_id}, strategy copy, phase "
        f"{control.phase!r}): start members of the coordinator group, or roll the migration back first"
    )
