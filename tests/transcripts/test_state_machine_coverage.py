"""Some transcript, from the first event of a member, takes every row of every table, with each target state.

A row that no sequence of events reaches does not describe the machine: remove it from the table.
"""

from __future__ import annotations

import pytest

from tests.transcripts.conversation import rewritten, transcripts
from zkconsumer.member.listener_state_machine import ListenerStateMachine
from zkconsumer.member.membership_state_machine import MembershipStateMachine
from zkconsumer.member.partition_state_machine import PartitionStateMachine
from zkconsumer.member.rebalance_state_machine import RebalanceStateMachine
from zkconsumer.member.registration_state_machine import RegistrationStateMachine
from zkconsumer.member.session_state_machine import SessionStateMachine
from zkconsumer.member.state_machine import CoveredTransition, StateMachine

MACHINES = (
    SessionStateMachine,
    MembershipStateMachine,
    RegistrationStateMachine,
    RebalanceStateMachine,
    PartitionStateMachine,
    ListenerStateMachine,
)


@pytest.fixture(scope="module")
def hit() -> set[CoveredTransition]:
    """The transitions that all transcripts together take."""
    before, StateMachine.covered_transitions = StateMachine.covered_transitions, set()
    try:
        for path in transcripts():
            rewritten(path)
        return StateMachine.covered_transitions
    finally:
        StateMachine.covered_transitions = before


@pytest.mark.parametrize("machine", MACHINES)
def test_every_row_is_taken_with_each_target_state(machine: type[StateMachine], hit: set[CoveredTransition]) -> None:
    missed = sorted(arrow for arrow in arrows(machine) if arrow not in hit)
    assert not missed, "no transcript takes:\n" + "\n".join(" ".join(arrow[1:]) for arrow in missed)


def test_no_other_test_records_transitions() -> None:
    assert StateMachine.covered_transitions is None


def arrows(machine: type[StateMachine]) -> set[CoveredTransition]:
    """The transitions that the table declares."""
    return {
        CoveredTransition(machine.__name__, before.value, event.__name__, after.value)
        for (before, event), handler in machine.TRANSITIONS.items()
        for after in handler.target_states or (before,)
    }
