"""Each state machine of the core alone: no group, no other machine."""

from __future__ import annotations

from enum import Enum

import pytest

from zkconsumer.errors import InternalError
from zkconsumer.member import events as ev
from zkconsumer.member import membership_state_machine as mem
from zkconsumer.member import partition_state_machine as part
from zkconsumer.member import rebalance_state_machine as reb
from zkconsumer.member.commands import SetLease
from zkconsumer.member.events import StoredOffset
from zkconsumer.member.membership_state_machine import MembershipState, MembershipStateMachine
from zkconsumer.member.partition_state_machine import PartitionState, PartitionStateMachine
from zkconsumer.member.rebalance_state_machine import RebalanceState, RebalanceStateMachine
from zkconsumer.member.session_state_machine import SessionState, SessionStateMachine
from zkconsumer.member.state_machine import HISTORY_LINES_MAX, InvalidTransition, StateMachine, transitions_to


def walked(machine: StateMachine, *events: object) -> StateMachine:
    for event in events:
        machine.handle(event)
    return machine


# --- the shape --------------------------------------------------------------------------------------------------


def test_an_event_that_the_table_does_not_know_raises_with_the_story() -> None:
    machine = walked(RebalanceStateMachine(), reb.RebalanceTriggered(), reb.ViewRead())
    with pytest.raises(InvalidTransition) as raised:
        machine.handle(reb.PositionsDone(is_complete=True))
    error = raised.value
    assert isinstance(error, InternalError)
    assert (error.machine, error.state, error.event) == (
        "RebalanceStateMachine",
        "releasing",
        reb.PositionsDone(is_complete=True),
    )
    assert [(line.before, line.after) for line in error.history] == [("idle", "reading"), ("reading", "releasing")]
    told = str(error).splitlines()
    assert told[0] == "RebalanceStateMachine: PositionsDone while releasing; its history:"
    assert told[1].split() == ["idle", "RebalanceTriggered()", "->", "reading"]
    assert len(told) == 3


def test_an_event_that_is_refused_leaves_the_machine_as_it_was() -> None:
    machine = walked(RebalanceStateMachine(), reb.RebalanceTriggered())
    with pytest.raises(InvalidTransition):
        machine.handle(reb.AcquisitionsDone())
    assert machine.state is RebalanceState.READING
    assert len(machine.history) == 1


def test_a_story_keeps_its_last_lines_only() -> None:
    machine = SessionStateMachine()
    walked(machine, ev.SessionConnected(1, 6000), *(ev.SessionAnswered(1, at) for at in range(HISTORY_LINES_MAX)))
    assert len(machine.history) == HISTORY_LINES_MAX
    assert machine.history[0].event == ev.SessionAnswered(1, 0)
    assert machine.history[-1].event == ev.SessionAnswered(1, HISTORY_LINES_MAX - 1)


def test_a_machine_says_what_it_expects() -> None:
    machine = MembershipStateMachine()
    assert machine.expects(mem.JoinStarted)
    assert not machine.expects(mem.RegistrationDone)


class Lamp(Enum):
    ON = "on"
    OFF = "off"


class Flash:
    """Somebody pressed."""


def test_a_handler_that_leads_where_it_did_not_declare_is_caught() -> None:
    class Stray(StateMachine):
        INITIAL = Lamp.OFF

        @transitions_to(Lamp.OFF)
        def _pressed(self, _: Flash) -> tuple[Lamp, list[object]]:
            return Lamp.ON, []

        TRANSITIONS = {(Lamp.OFF, Flash): _pressed}  # noqa: RUF012

    machine = Stray()
    with pytest.raises(AssertionError, match="does not declare"):
        machine.handle(Flash())
    assert machine.state is Lamp.OFF


# --- session ----------------------------------------------------------------------------------------------------


def test_a_lease_is_two_thirds_of_the_time_out_from_the_sending_of_the_latest_answered_request() -> None:
    session = SessionStateMachine()
    assert session.handle(ev.SessionConnected(1, 6000)) == [SetLease(0)]
    assert session.handle(ev.SessionAnswered(1, 1000)) == [SetLease(5000)]
    assert session.handle(ev.SessionAnswered(1, 500)) == [SetLease(5000)], "answers may overtake each other"
    session.handle(ev.SessionSuspended())
    assert session.handle(ev.SessionAnswered(1, 2000)) == [SetLease(6000)]
    assert session.handle(ev.SessionConnected(1, 6000)) == [SetLease(6000)]
    assert session.handle(ev.SessionAnswered(2, 9000)) == [SetLease(6000)], "an answer of another session"
    assert session.handle(ev.SessionLost(1)) == [SetLease(0)]
    assert session.handle(ev.SessionAnswered(1, 9000)) == []


def test_a_new_session_begins_without_a_lease() -> None:
    session = SessionStateMachine()
    walked(session, ev.SessionConnected(1, 6000), ev.SessionAnswered(1, 1000))
    assert session.handle(ev.SessionConnected(2, 9000)) == [SetLease(0)]
    assert session.live is not None
    assert (session.live.session_id, session.live.timeout_ms) == (2, 9000)


def test_a_probe_is_sent_every_sixth_of_the_negotiated_time_out() -> None:
    session = SessionStateMachine()
    assert session.probe_interval_ms == 1000
    session.handle(ev.SessionConnected(1, 9000))
    assert session.probe_interval_ms == 1500
    session.handle(ev.SessionConnected(2, 3))
    assert session.probe_interval_ms == 1


def test_a_session_that_was_closed_stays_closed() -> None:
    session = SessionStateMachine()
    walked(session, ev.SessionConnected(1, 6000), ev.SessionClosed(), ev.SessionConnected(2, 6000))
    assert session.state is SessionState.CLOSED
    assert session.live is None
    assert not session.is_connected


# --- membership -------------------------------------------------------------------------------------------------


def test_the_group_is_looked_at_before_anything_is_registered() -> None:
    membership = walked(MembershipStateMachine(), mem.JoinStarted())
    assert membership.state is MembershipState.PREFLIGHT
    assert walked(membership, mem.PreflightPassed()).state is MembershipState.REGISTERING
    assert walked(membership, mem.RegistrationDone()).state is MembershipState.REGISTERED


def test_who_withdraws_gives_back_first_and_stays_out() -> None:
    membership = walked(
        MembershipStateMachine(),
        mem.JoinStarted(),
        mem.PreflightPassed(),
        mem.RegistrationDone(),
        mem.MemberExcluded(may_be_registered=True),
    )
    assert membership.state is MembershipState.LEAVING
    assert walked(membership, mem.DeregistrationDone(is_excluded=True)).state is MembershipState.EXCLUDED


@pytest.mark.parametrize(("registered", "state"), [(False, MembershipState.EXCLUDED), (True, MembershipState.LEAVING)])
def test_who_may_be_registered_takes_that_back_before_staying_out(registered: bool, state: MembershipState) -> None:
    assert walked(MembershipStateMachine(), mem.JoinStarted(), mem.MemberExcluded(registered)).state is state


def test_the_end_of_the_session_puts_a_member_out_wherever_it_stands() -> None:
    for state in MembershipState:
        membership = MembershipStateMachine()
        membership.state = state
        assert walked(membership, ev.SessionLost(1)).state is MembershipState.NOT_REGISTERED


def test_leaving_is_possible_from_anywhere() -> None:
    for state in MembershipState:
        membership = MembershipStateMachine()
        membership.state = state
        assert walked(membership, ev.LeaveRequested()).state in (
            MembershipState.NOT_REGISTERED,
            MembershipState.LEAVING,
        )


# --- rebalance --------------------------------------------------------------------------------------------------

STEPS = (reb.ViewRead(), reb.ReleasesDone(), reb.AcquisitionsDone(), reb.PositionsDone(is_complete=True))


def test_an_attempt_goes_through_its_steps() -> None:
    rebalance = walked(RebalanceStateMachine(), reb.RebalanceTriggered())
    seen = [walked(rebalance, step).state.value for step in STEPS]
    assert seen == ["releasing", "acquiring", "positioning", "stable"]


@pytest.mark.parametrize("at", range(len(STEPS)))
def test_a_trigger_in_the_middle_is_remembered_once(at: int) -> None:
    rebalance = walked(RebalanceStateMachine(), reb.RebalanceTriggered(), *STEPS[:at])
    walked(rebalance, reb.RebalanceTriggered(), reb.RebalanceTriggered())
    for step in STEPS[at:]:
        walked(rebalance, step)
        if rebalance.state is RebalanceState.READING:
            break
    assert rebalance.state is RebalanceState.READING
    assert walked(rebalance, *STEPS).state is RebalanceState.STABLE, "and only once"


def test_claims_that_are_under_way_are_finished_before_the_group_is_read_again() -> None:
    rebalance = walked(RebalanceStateMachine(), reb.RebalanceTriggered(), *STEPS[:2], reb.RebalanceTriggered())
    assert walked(rebalance, reb.AcquisitionsDone()).state is RebalanceState.POSITIONING
    assert walked(rebalance, reb.PositionsDone(is_complete=False)).state is RebalanceState.READING


def test_when_a_node_that_refused_us_goes_only_the_claims_are_repeated() -> None:
    rebalance = walked(
        RebalanceStateMachine(), reb.RebalanceTriggered(), *STEPS[:3], reb.PositionsDone(is_complete=False)
    )
    assert rebalance.state is RebalanceState.INCOMPLETE
    assert walked(rebalance, reb.PartitionsFreed()).state is RebalanceState.ACQUIRING


def test_an_attempt_that_is_stopped_forgets_what_was_remembered() -> None:
    rebalance = walked(
        RebalanceStateMachine(),
        reb.RebalanceTriggered(),
        reb.RebalanceTriggered(),
        reb.RebalanceStopped(),
        reb.RebalanceTriggered(),
        reb.ViewRead(),
    )
    assert rebalance.state is RebalanceState.RELEASING


# --- partition --------------------------------------------------------------------------------------------------


def fetching(offset: int = 10, version: int = 3) -> PartitionStateMachine:
    partition = PartitionStateMachine("me-0")
    walked(partition, part.OwnershipAcquired(7), part.PositionKnown(StoredOffset(offset, version)))
    return partition


def test_a_partition_is_claimed_then_positioned_then_fetched() -> None:
    partition = fetching()
    assert partition.state is PartitionState.FETCHING
    assert (partition.czxid, partition.position) == (7, 10)
    assert partition.is_owned
    assert not partition.is_leaving


def test_a_partition_is_given_back_drained() -> None:
    partition = fetching()
    walked(partition, part.PartitionRevoked())
    assert partition.state is PartitionState.DRAINING
    walked(partition, part.DrainCompleted(15))
    assert (partition.state, partition.position) == (PartitionState.DRAINED, 15)
    walked(partition, part.ReleaseSent(), part.OwnershipReleased())
    assert partition.state is PartitionState.NOT_OWNED
    assert not partition.is_owned


def test_a_partition_that_is_not_read_yet_has_nothing_to_drain() -> None:
    claimed = walked(PartitionStateMachine("me-0"), part.OwnershipAcquired(7), part.PartitionRevoked())
    assert claimed.state is PartitionState.DRAINED
    stuck = walked(
        PartitionStateMachine("me-0"),
        part.OwnershipAcquired(7),
        part.PositionUnreadable("'abc'"),
        part.PartitionRevoked(),
    )
    assert stuck.state is PartitionState.DRAINED


def test_a_claim_whose_answer_was_lost_is_given_back_after_a_look() -> None:
    partition = PartitionStateMachine("me-0")
    walked(partition, part.OwnershipUnknown())
    assert (partition.state, partition.is_ownership_unknown) == (PartitionState.DRAINED, True)
    assert partition.offset_for_zookeeper(partition.position) is None


def test_a_hand_over_inside_goes_on_with_the_other_thread_and_owes_no_look() -> None:
    partition = fetching()
    walked(
        partition,
        part.PartitionRevoked(),
        part.DrainCompleted(15),
        part.ReleaseSent(),
        part.ReleaseFailed(is_outcome_unknown=True),
    )
    assert partition.is_ownership_unknown
    walked(partition, part.ReleaseSent(), part.OwnerThreadChanged("me-1", 8))
    assert (partition.state, partition.thread, partition.is_ownership_unknown) == (
        PartitionState.FETCHING,
        "me-1",
        False,
    )
    assert partition.czxid == 8, "it is another node, and so another ownership"
    assert partition.position == 15


def test_a_release_that_fails_without_a_doubt_owes_no_look() -> None:
    partition = fetching()
    walked(
        partition,
        part.PartitionRevoked(),
        part.DrainCompleted(15),
        part.ReleaseSent(),
        part.ReleaseFailed(is_outcome_unknown=False),
    )
    assert (partition.state, partition.is_ownership_unknown) == (PartitionState.DRAINED, False)


@pytest.mark.parametrize(("position", "written"), [(-1, None), (9, None), (10, None), (11, 11)])
def test_a_commit_writes_what_is_new_and_never_goes_back(position: int, written: int | None) -> None:
    assert fetching().offset_for_zookeeper(position) == written


def test_after_a_reset_a_commit_may_go_back_once() -> None:
    partition = fetching(offset=100)
    partition.reset_count += 1
    assert partition.offset_for_zookeeper(40) == 40
    partition.record_zookeeper_write(StoredOffset(40, 4), partition.reset_count)
    assert partition.offset_for_zookeeper(39) is None


def test_a_write_that_was_decided_before_a_reset_does_not_settle_it() -> None:
    partition = fetching(offset=100)
    resets = partition.reset_count
    partition.reset_count += 1
    partition.record_zookeeper_write(StoredOffset(120, 4), resets)
    assert partition.was_reset_since_write
    assert partition.offset_for_zookeeper(40) == 40


def test_whatever_is_lost_is_gone() -> None:
    for state in PartitionState:
        if state is not PartitionState.NOT_OWNED:
            partition = PartitionStateMachine("me-0")
            partition.state = state
            assert walked(partition, part.OwnershipLost()).state is PartitionState.NOT_OWNED
