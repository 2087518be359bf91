"""What a member of a ``dual`` migration does in each phase of the control znode.  Pure; a table and its reader.

    member phase    active side   assignment        commits                  in the coordinator group with
    ZOOKEEPER_ONLY  ZooKeeper     computed          ZooKeeper                -
    JOINED          ZooKeeper     computed          ZooKeeper                migration
    LOCKED          ZooKeeper     from coordinator  ZooKeeper, then Kafka    migration
    COPIED          ZooKeeper     from coordinator  Kafka, then ZooKeeper    migration
    SWITCHED        coordinator   empty             Kafka (mirrored)         migration, range
    COMPLETED       coordinator   empty             Kafka                    range
    RETURNING       coordinator   from coordinator  Kafka, then ZooKeeper    migration, range
    RETURNED        ZooKeeper     from coordinator  ZooKeeper, then Kafka    migration, range

The *active side* decides which partitions are processed: those with owner nodes of the ZooKeeper side, or those of the
coordinator side's generation.  *Assignment* is that of the ZooKeeper side: which owner nodes it creates and deletes.
*migration* is the protocol of the migration (``migration_assignor``), ``range`` is Kafka's.

Theory of operation.  One write of the control znode changes the phase of the group.  The tool makes it only after the
registered members have acknowledged the phase before.  But members see the write at different times, and a member that
was paused sees it much later.  So each pair of consecutive phases must be safe side by side:

    JOINED, LOCKED       both own by owner nodes, and read offsets from ZooKeeper
    LOCKED, COPIED       the owner node is one lock for both.  Only the order of the two stores differs.
    COPIED, SWITCHED     one side reads by owner nodes, the other by its generation.  Before the switch both are the
                         same sets (``WaitForFullOwnership``), and a partition that moves is released in both.  The
                         commits of a late member reach Kafka while it is in the generation; those to ZooKeeper fail,
                         because they check the version of the control znode.
    SWITCHED, COMPLETED  both own by the generation; both offer ``range``, which the coordinator then selects
    SWITCHED, RETURNING  both own by the generation.  The owner nodes come back while nothing depends on them.
    RETURNING, RETURNED  as from COPIED to SWITCHED, in the other direction
    any, ZOOKEEPER_ONLY  (rollback before the switch, or after RETURNED) the owner node is the lock of both, and
                         ZooKeeper has the authority in both

Why two phases before the switch: in LOCKED an offset that Kafka rejects is only late, because ZooKeeper has the
authority and has the offset.  At the switch Kafka's offset must never be smaller than that of ZooKeeper.  So in COPIED
Kafka is first, and ZooKeeper gets only what Kafka has accepted
(``test_offsets_that_kafka_rejects_are_not_written_to_zookeeper_where_kafka_is_first``).  On the way back RETURNING is
the mirror image.
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
    """The phase that a member follows.  The value is ``MigratingConsumerConnector.member_phase`` of the program."""

    ZOOKEEPER_ONLY = "alone"
    """The member is in the ZooKeeper group alone: before ``armed``, after a rollback, and without a migration."""
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
    """The ZooKeeper side computes it from the registrations, as the Scala consumer does."""
    FROM_COORDINATOR = "given"
    """The partitions of the coordinator side's generation; the ZooKeeper side owns them in addition."""
    EMPTY = "nothing"
    """The ZooKeeper side releases its owner nodes and acquires none; it keeps its registration and its session."""


class CommitOrder(Enum):
    """The stores of a commit, and their order.  An offset that the first store rejects is not sent to the second."""

    ZOOKEEPER = "zookeeper"
    ZOOKEEPER_FIRST = "zookeeper, then kafka"
    KAFKA_FIRST = "kafka, then zookeeper"
    KAFKA = "kafka"


MIGRATION_PROTOCOL, RANGE_PROTOCOL = "private", "range"
"""The protocols of a member in the coordinator group: that of the migration, which no stock client has; and Kafka's."""


@dataclass(frozen=True, slots=True)
class PhaseRules:
    """One row of the table.

    ``protocols``: in the order of preference; () exactly where the member is not in the coordinator group.
    ``mirrors_to_zookeeper``: offsets that Kafka accepted are also written to ZooKeeper; failures are ignored, because a
    rollback reads Kafka again (transcript ``a_rollback_repeats_a_failed_write_to_zookeeper``).
    """

    active_side: MembershipSide
    zookeeper_assignment: ZooKeeperAssignment
    commit_order: CommitOrder
    protocols: tuple[str, ...] = ()
    mirrors_to_zookeeper: bool = False


_ZOOKEEPER, _COORDINATOR = MembershipSide.ZOOKEEPER, MembershipSide.COORDINATOR
_COMPUTED, _EMPTY = ZooKeeperAssignment.COMPUTED, ZooKeeperAssignment.EMPTY
_GIVEN = ZooKeeperAssignment.FROM_COORDINATOR
_MIGRATION, _RANGE = (MIGRATION_PROTOCOL,), (RANGE_PROTOCOL,)
_BOTH = _MIGRATION + _RANGE

PHASE_RULES: dict[MemberPhase, PhaseRules] = {
    MemberPhase.ZOOKEEPER_ONLY: PhaseRules(_ZOOKEEPER, _COMPUTED, CommitOrder.ZOOKEEPER),
    MemberPhase.JOINED: PhaseRules(_ZOOKEEPER, _COMPUTED, CommitOrder.ZOOKEEPER, _MIGRATION),
    MemberPhase.LOCKED: PhaseRules(_ZOOKEEPER, _GIVEN, CommitOrder.ZOOKEEPER_FIRST, _MIGRATION),
    MemberPhase.COPIED: PhaseRules(_ZOOKEEPER, _GIVEN, CommitOrder.KAFKA_FIRST, _MIGRATION),
    MemberPhase.SWITCHED: PhaseRules(_COORDINATOR, _EMPTY, CommitOrder.KAFKA, _BOTH, mirrors_to_zookeeper=True),
    MemberPhase.COMPLETED: PhaseRules(_COORDINATOR, _EMPTY, CommitOrder.KAFKA, _RANGE),
    MemberPhase.RETURNING: PhaseRules(_COORDINATOR, _GIVEN, CommitOrder.KAFKA_FIRST, _BOTH),
    MemberPhase.RETURNED: PhaseRules(_ZOOKEEPER, _GIVEN, CommitOrder.ZOOKEEPER_FIRST, _BOTH),
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
"""The phases of strategy ``dual``.  A phase without an entry is one of ``copy`` (``fencing``, ``fenced``, ``verified``)
or of a later release: the member cannot follow it (transcript
``a_member_ends_in_a_phase_that_it_does_not_support``)."""

assert PHASE_RULES.keys() == set(MemberPhase), "each phase of a member has a row"


def member_phase_of(control: ControlRecord | None) -> MemberPhase:
    """The phase that a member follows; ``control`` None: the group does not migrate.

    A migration with strategy ``copy`` stops its members: there this member uses ZooKeeper only, until Kafka has the
    authority.  Raises ``MigrationError`` then, and for a phase or a strategy that this release does not support.  The
    member ends with that error: it must not guess the rules, because another member already follows the phase.
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
