"""Where a keeper's membership is to be while its group moves.  Pure: the control znode, as a table.

    copy      planned, undone                                              ZooKeeper
              fencing, fenced, copied, verified, undoing                   nowhere: old members are locked out
              switched, completed                                          Kafka
              switched, and a rollback waits for modern members to leave   nowhere
              returning, returned                                          nowhere: modern members are locked out
    dual      undone                                                       ZooKeeper
              planned, armed, ready, locked, copied, undoing               nowhere: members read its share
              switched                                                     Kafka, as a guest of the members
              completed                                                    Kafka, as any client
              switched, and a rollback waits for modern members to leave   nowhere
              returning, returned                                          nowhere: members take the group back

*Nowhere* is no membership at all: nothing is read, and the group's offsets stand.  Before the switch of a ``dual``
migration, and on its way back, a member has duties in both worlds at once
(``bridge.migration.dual.machine.phase_rules``).  A keeper takes them not: who is no member has none.  It goes with
*planned*, because that phase waits for everybody's answer.
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
    """Whose group the keeper is a member of."""

    ZOOKEEPER = "zookeeper"
    KAFKA = "kafka"
    NONE = "nowhere"


@dataclass(frozen=True, slots=True)
class MembershipTarget:
    """``why``: what is waited for, for whoever reads a log; empty where the keeper is a member.

    ``protocols``: what is offered to Kafka's group, as the members of a ``dual`` migration do (``PHASE_RULES``); empty:
    what the query is configured to.
    """

    group: TargetGroup
    wait_reason: str = ""
    protocols: tuple[str, ...] = ()


ZOOKEEPER_TARGET = MembershipTarget(TargetGroup.ZOOKEEPER)

_ZOOKEEPER_PHASES = {"copy": (Phase.PLANNED, Phase.UNDONE), "dual": (Phase.UNDONE,)}
_KAFKA_PHASES = (Phase.SWITCHED, Phase.COMPLETED)
_ROLLBACK_PHASES = (Phase.UNDOING, Phase.RETURNING, Phase.RETURNED)


def target_of(control: ControlRecord | None, *, is_rollback_waiting: bool = False) -> MembershipTarget:
    """The table above; ``is_rollback_waiting``: a rollback waits.

    Raises ``MigrationError`` for a phase or a strategy that this release does not know.
    """
    if control is None:
        return ZOOKEEPER_TARGET
    try:
        strategy, phase = strategy_of(control), phase_of(control)
    except ValueError as error:
        raise MigrationError(
            f"the group's migration {control.migration_id} is in phase {control.phase!r} ({control.strategy}), which "
            "this release does not know: run the release that moves the group, here too"
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
        f"migration {control.migration_id} ({strategy}) is in phase {phase.value}, and it goes on at {goal}",
    )
