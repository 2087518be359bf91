"""The state machines as a page of documentation, drawn from their tables.  Pure.

``state_machine_page()`` is the text of ``migration_docs/reference/state-machines.md``; a test checks that they are
equal.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum

from zkconsumer.member.listener_state_machine import ListenerStateMachine
from zkconsumer.member.membership_state_machine import MembershipStateMachine
from zkconsumer.member.partition_state_machine import PartitionStateMachine
from zkconsumer.member.rebalance_state_machine import RebalanceStateMachine
from zkconsumer.member.registration_state_machine import RegistrationStateMachine
from zkconsumer.member.session_state_machine import SessionStateMachine
from zkconsumer.member.state_machine import StateMachine, Transition

STATE_MACHINES: tuple[type[StateMachine], ...] = (
    SessionStateMachine,
    MembershipStateMachine,
    RegistrationStateMachine,
    RebalanceStateMachine,
    PartitionStateMachine,
    ListenerStateMachine,
)

INTRODUCTION = """\
# State machines

*Generated from the tables in `zkconsumer/member`; `pytest tests/transcripts --rewrite` writes it anew.*

A member of a group has six kinds of state machine: one for the session, one for the membership, one for the
registration znode, one for the rebalance attempt, one for each partition that it owns, and one for the calls of the
rebalance listener. `member_state_machine` contains them. An event that a table does not have is a defect: the error
shows the last transitions of the machine.
The diagrams leave out events that do not change the state. Lines at the right side lead down, lines at the left side
lead up; all transitions to one state share a line.
"""


def state_machine_page() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *(line for machine in STATE_MACHINES for line in _section(machine))])


def _section(machine: type[StateMachine]) -> Iterator[str]:
    yield f"## {machine.__name__}\n"
    yield f"{_summary(machine)}\n"
    yield f"![The states of {machine.__name__}; the table below has the same](../pictures/{picture_name(machine)})\n"
    yield "| state | event | leads to |"
    yield "|---|---|---|"
    for (before, event), handler in _rows(machine):
        targets = " or ".join(state.value for state in handler.target_states or (before,))
        yield f"| {before.value} | {event.__name__} | {targets} |"
    yield ""
    yield "| event | meaning |"
    yield "|---|---|"
    for event in dict.fromkeys(event for (_, event), _ in _rows(machine)):
        yield f"| {event.__name__} | {_summary(event)} |"
    yield ""


def picture_name(machine: type[StateMachine]) -> str:
    """The file of the diagram; ``tests/pictures`` draws it."""
    words = re.findall("[A-Z][a-z]+", machine.__name__)
    return "-".join(words).lower() + ".svg"


def _rows(machine: type[StateMachine]) -> list[tuple[tuple[Enum, type], Transition]]:
    """The rows of the table, ordered by state; the table itself lists an event of many states once."""
    order = list(type(machine.INITIAL))
    return sorted(machine.TRANSITIONS.items(), key=lambda row: order.index(row[0][0]))


def arrows_of(machine: type[StateMachine]) -> dict[tuple[str, str], list[str]]:
    """(state, next state) -> events; without those that stay."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (before, event), handler in _rows(machine):
        for after in handler.target_states:
            if after is not before:
                arrows.setdefault((before.value, after.value), []).append(event.__name__)
    return arrows


def _summary(described: type) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join((inspect.getdoc(described) or "").partition("\n\n")[0].split())
