"""One attempt to own the assignment that the present view of the group gives this member.

   IDLE ----RebalanceTriggered----> READING
   READING ----ViewRead-----------> RELEASING
   RELEASING --ReleasesDone-------> ACQUIRING
   ACQUIRING --AcquisitionsDone---> POSITIONING
   POSITIONING --PositionsDone----> STABLE, or INCOMPLETE if a partition is missing
   INCOMPLETE --PartitionsFreed---> ACQUIRING
   STABLE, INCOMPLETE --RebalanceTriggered--> READING
   READING --ReadFailed-----------> INCOMPLETE
   RELEASING, POSITIONING --ListenerFailed--> INCOMPLETE
   any state --RebalanceStopped---> IDLE

A trigger during an attempt is remembered (``is_rerun_requested``): the step under way finishes first, because its
writes are already sent to the server; then the member reads the group again.  A partition that stays with its thread
is not touched by any step.  The Scala consumer releases all partitions at the start of every attempt.

READING waits for ZooKeeper, RELEASING for the drain, the listener, the last commit and ZooKeeper, ACQUIRING for
ZooKeeper, POSITIONING for the listener and the offset stores.  Each wait for something else than ZooKeeper has a
timeout; without ZooKeeper the member can do nothing, and the end of the session stops the attempt.

``PartitionsFreed`` skips the read: the assignment has not changed, only an owner node of it is gone.  A rerun request
does not interrupt ACQUIRING: owner nodes whose answers are open cannot be released.  So the request is honoured at the
end of POSITIONING, when the new partitions are fetched already and can be drained like all others.

The order of the states is the contract of a member.  RELEASING comes before ACQUIRING, because other members wait for
what we release: a Scala member gives up after four attempts (``release before acquire`` in
``tests/property/group_model/member_invariants.py``).  POSITIONING comes after ACQUIRING, because only an owner can be
sure that no other member commits after its read.  The Scala consumer reads first
(``ZookeeperConsumerConnector.rebalance``), so it may start from an offset that the former owner replaces a moment later
(``defect_28_a_stored_offset_never_decreases.txt``).

A lost answer does not change the state: a write with unknown outcome ends its step like an answer, and the partition
remembers that its owner is unknown.  After a reconnect a new attempt is triggered; it is a rerun if one is under way.

Between two attempts a member is STABLE or INCOMPLETE, and both keep what they own: an attempt that failed releases
nothing.  The Scala consumer gives back everything after a failed attempt, and stops after ``rebalance.max.retries`` of
them; here the attempts continue (``defect_01_a_member_retries_until_it_owns_its_assignment.txt``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from zkconsumer.member.state_machine import MachineEvent, StateMachine, TransitionTable, go_to, rows_for, transitions_to


class RebalanceState(Enum):
    """How far the present attempt has come."""

    IDLE = "idle"
    READING = "reading"
    RELEASING = "releasing"
    ACQUIRING = "acquiring"
    POSITIONING = "positioning"
    STABLE = "stable"
    INCOMPLETE = "incomplete"


STATES_BETWEEN_ATTEMPTS = (RebalanceState.IDLE, RebalanceState.STABLE, RebalanceState.INCOMPLETE)
STATES_OF_ATTEMPT = tuple(state for state in RebalanceState if state not in STATES_BETWEEN_ATTEMPTS)


class RebalanceTriggered(MachineEvent):
    """Something changed, or a retry is due: read the group."""


class ViewRead(MachineEvent):
    """The group was read and the assignment computed."""


class ReadFailed(MachineEvent):
    """The group could not be read."""


class ReleasesDone(MachineEvent):
    """All revoked partitions are released."""


class AcquisitionsDone(MachineEvent):
    """The results of creating the owner nodes have arrived."""


@dataclass(frozen=True, slots=True)
class PositionsDone:
    """Positions are known; ``is_complete``: every partition of the assignment is fetched."""

    is_complete: bool


class ListenerFailed(MachineEvent):
    """The program's rebalance listener raised."""


class PartitionsFreed(MachineEvent):
    """An owner node that conflicted with ours does not exist any more."""


class RebalanceStopped(MachineEvent):
    """The session ended, or the member leaves: forget the attempt."""


RebalanceStep = tuple[RebalanceState, list[Any]]


class RebalanceStateMachine(StateMachine):
    """The rebalance attempt under way."""

    INITIAL = RebalanceState.IDLE

    def __init__(self) -> None:
        super().__init__()
        self.is_rerun_requested = False
        """A trigger arrived during this attempt, after its read was sent; False in ``STATES_BETWEEN_ATTEMPTS``.

        One flag is enough: the read that follows contains all changes until then.
        """

    def handle(self, event: object) -> list[Any]:
        """Process one event, see the base class; a rerun request belongs to an attempt."""
        commands = super().handle(event)
        assert not (self.is_rerun_requested and self.state in STATES_BETWEEN_ATTEMPTS), "its attempt consumes a request"
        return commands

    @transitions_to()
    def _request_rerun(self, _: RebalanceTriggered) -> RebalanceStep:
        self.is_rerun_requested = True
        return self.state, []

    @transitions_to(RebalanceState.READING, RebalanceState.RELEASING)
    def _viewed(self, _: ViewRead) -> RebalanceStep:
        """Release, unless the group changed during the read: an outdated assignment would move partitions twice."""
        return (RebalanceState.READING if self._consume_rerun_request() else RebalanceState.RELEASING), []

    @transitions_to(RebalanceState.READING, RebalanceState.INCOMPLETE)
    def _failed(self, _: ReadFailed | ListenerFailed) -> RebalanceStep:
        """End the attempt; a change is read at once, without the pause that follows a failure."""
        return (RebalanceState.READING if self._consume_rerun_request() else RebalanceState.INCOMPLETE), []

    @transitions_to(RebalanceState.READING, RebalanceState.ACQUIRING)
    def _released(self, _: ReleasesDone) -> RebalanceStep:
        """Acquire, unless the group changed meanwhile; nothing is requested at this point that must be answered."""
        return (RebalanceState.READING if self._consume_rerun_request() else RebalanceState.ACQUIRING), []

    @transitions_to(RebalanceState.READING, RebalanceState.STABLE, RebalanceState.INCOMPLETE)
    def _positioned(self, event: PositionsDone) -> RebalanceStep:
        if self._consume_rerun_request():
            return RebalanceState.READING, []
        return (RebalanceState.STABLE if event.is_complete else RebalanceState.INCOMPLETE), []

    @transitions_to(RebalanceState.IDLE)
    def _idle(self, _: RebalanceStopped) -> RebalanceStep:
        self.is_rerun_requested = False
        return RebalanceState.IDLE, []

    def _consume_rerun_request(self) -> bool:
        again, self.is_rerun_requested = self.is_rerun_requested, False
        return again

    TRANSITIONS: ClassVar[TransitionTable] = {
        **rows_for(STATES_BETWEEN_ATTEMPTS, RebalanceTriggered, go_to(RebalanceState.READING)),
        **rows_for(STATES_OF_ATTEMPT, RebalanceTriggered, _request_rerun),
        (RebalanceState.READING, ViewRead): _viewed,
        (RebalanceState.READING, ReadFailed): _failed,
        (RebalanceState.RELEASING, ReleasesDone): _released,
        (RebalanceState.RELEASING, ListenerFailed): _failed,
        (RebalanceState.ACQUIRING, AcquisitionsDone): go_to(RebalanceState.POSITIONING),
        (RebalanceState.POSITIONING, PositionsDone): _positioned,
        (RebalanceState.POSITIONING, ListenerFailed): _failed,
        (RebalanceState.INCOMPLETE, PartitionsFreed): go_to(RebalanceState.ACQUIRING),
        **rows_for(RebalanceState, RebalanceStopped, _idle),
    }
