"""Every row of every table is reached by some transcript, from the beginning of a member's life, and every arrow.

A row that no sequence of events reaches says something about the machine that is not true: take it out of the table.
"""

from __future__ import annotations

import pytest

from tests.transcripts.conversation import rewritten, transcripts
from zkconsumer.core.listener import Listener
from zkconsumer.core.machine import Arrow, Machine
from zkconsumer.core.membership import Membership
from zkconsumer.core.partition import Partition
from zkconsumer.core.rebalance import Rebalance
from zkconsumer.core.session import Session

MACHINES = (Session, Membership, Rebalance, Partition, Listener)


@pytest.fixture(scope="module")
def hit() -> set[Arrow]:
    """The arrows that all transcripts together take."""
    before, Machine.covered_transitions = Machine.covered_transitions, set()
    try:
        for path in transcripts():
            rewritten(path)
        return Machine.covered_transitions
    finally:
        Machine.covered_transitions = before


@pytest.mark.parametrize("machine", MACHINES)
def test_every_row_is_hit_and_leads_wherever_it_may(machine: type[Machine], hit: set[Arrow]) -> None:
    missed = sorted(arrow for arrow in arrows(machine) if arrow not in hit)
    assert not missed, "no transcript takes:\n" + "\n".join(" ".join(arrow[1:]) for arrow in missed)


def test_nobody_records_outside_such_a_test() -> None:
    assert Machine.covered_transitions is None


def arrows(machine: type[Machine]) -> set[Arrow]:
    """What the table declares."""
    return {
        Arrow(machine.__name__, before.value, event.__name__, after.value)
        for (before, event), handler in machine.TRANSITIONS.items()
        for after in handler.target_states or (before,)
    }
