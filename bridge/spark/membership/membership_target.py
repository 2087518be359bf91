"""The group in which the membership must be while its group migrates.  Pure: a table over the control znode.

    copy      planned, undone                                              ZooKeeper
              fencing, fenced, copied, verified, undoing                   none: ZooKeeper members are fenced out
              switched, completed                                          Kafka
              switched, and a rollback waits for its members to leave      none
              returning, returned                                          none: coordinator members are fenced out
    dual      undone                                                       ZooKeeper
              planned, armed, ready, locked, copied, undoing               none: migrating members read its partitions
              switched                                                     Kafka, with the protocols of migrating
                                                                           members
              completed                                                    Kafka, as any client
              switched, and a rollback waits for its members to leave      none
              returning, returned                                          none: migrating members take the group back

Without a membership the query reads no records, and the group's offsets do not change.  Before the switch of a ``dual``
migration, and during its rollback, a member has duties in both groups at once
(``bridge.migration.dual.machine.phase_rules``).  The membership process cannot do them, so it leaves the group.  It
leaves in *planned*, because that phase waits for the acknowledgement of every member.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from bridge.migration.control.control_layout import phase_of, strategy_of
from bridge.migration.control.phases import Phase
from bridge.migration.dual.machine.phase_rules import PHASE_RULES, member_phase_of
from zkconsumer.errors import MigrationError

if TYPE_CHECKING:
    from zkconsumer.zk.znode_formats import ControlRecord


class TargetGroup(Enum):
    """The group of which the membership process is a member."""

    ZOOKEEPER = "zookeeper"
    KAFKA = "kafka"
    NONE = "nowhere"


@dataclass(frozen=True, slots=True)
class MembershipTarget:
    """``wait_reason``: what the query waits for, for the log; empty where the process is a member.

    ``protocols``: those offered to the coordinator, as the members of a ``dual`` migration do (``PHASE_RULES``); empty:
    the configured ones.
    """

    group: TargetGroup
    wait_reason: str = ""
    protocols: tuple[str, ...] = ()


ZOOKEEPER_TARGET = MembershipTarget(TargetGroup.ZOOKEEPER)

_ZOOKEEPER_PHASES = {"copy": (Phase.PLANNED, Phase.UNDONE), "dual": (Phase.UNDONE,)}
_KAFKA_PHASES = (Phase.SWITCHED, Phase.COMPLETED)
_ROLLBACK_PHASES = (Phase.UNDOING, Phase.RETURNING, Phase.RETURNED)


def target_of(control: ControlRecord | None, *, is_rollback_waiting: bool = False) -> MembershipTarget:
    """Looks up the table above; ``is_rollback_waiting``: a rollback waits for the members to leave.

    Raises ``MigrationError`` for a phase or a strategy that this release does not know.
    """
    if control is None:
        return ZOOKEEPER_TARGET
    try:
        strategy, phase = strategy_of(control), phase_of(control)
    except ValueError as error:
        raise MigrationError(
            f"the group's migration {control.migration_id} is in phase {control.phase!r} ({control.strategy}), which "
            "this release does not know: install the release that runs the migration on this machine, too"
        ) from error
    if phase in _ZOOKEEPER_PHASES[strategy]:
        return ZOOKEEPER_TARGET
    if phase in _KAFKA_PHASES and not is_rollback_waiting:
        return MembershipTarget(
            TargetGroup.KAFKA, protocols=PHASE_RULES[member_phase_of(control)].protocols if strategy == "dual" else ()
        )
    goal = "undone" if phase in _ROLLBACK_PHASES or is_rollback_waiting else Phase.SWITCHED.value
    return MembershipTarget(
        TargetGroup.NONE,
        f"migration {control.migration_id} ({strategy}) is in phase {phase.value}; the query continues in phase {goal}",
    )
