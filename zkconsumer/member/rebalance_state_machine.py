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
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from zkconsumer.member.state_machine import StateMachine, TransitionTable, stays_in_state, transitions_to


class RebalanceState(Enum):
    """How far the present attempt has come."""

    IDLE = "idle"
    READING = "reading"
    RELEASING = "releasing"
    ACQUIRING = "claiming"
    POSITIONING = "positioning"
    STABLE = "held"
    INCOMPLETE = "short"


@dataclass(frozen=True, slots=True)
class RebalanceTriggered:
    """Something changed, or a retry is due: read the group."""


@dataclass(frozen=True, slots=True)
class ViewRead:
    """The group was read and the assignment computed."""


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """The group could not be read."""


@dataclass(frozen=True, slots=True)
class ReleasesDone:
    """All revoked partitions are released."""


@dataclass(frozen=True, slots=True)
class AcquisitionsDone:
    """The results of creating the owner nodes have arrived."""


@dataclass(frozen=True, slots=True)
class PositionsDone:
    """Positions are known; ``is_complete``: every partition of the assignment is fetched."""

    is_complete: bool


@dataclass(frozen=True, slots=True)
class ListenerFailed:
    """The program's rebalance listener raised."""


@dataclass(frozen=True, slots=True)
class PartitionsFreed:
    """An owner node that conflicted with ours does not exist any more."""


@dataclass(frozen=True, slots=True)
class RebalanceStopped:
    """The session ended, or the member leaves: forget the attempt."""


RebalanceStep = tuple[RebalanceState, list[Any]]


class RebalanceStateMachine(StateMachine):
    """The rebalance attempt under way."""

    INITIAL = RebalanceState.IDLE

    def __init__(self) -> None:
        super().__init__()
        self.is_rerun_requested = False
        """A trigger arrived during this attempt; always False in ``IDLE``, ``STABLE`` and ``INCOMPLETE``."""

    @transitions_to(RebalanceState.READING)
    def _read(self, _: object) -> RebalanceStep:
        assert not self.is_rerun_requested, "the attempt before has consumed its request"
        return RebalanceState.READING, []

    @stays_in_state
    def _request_rerun(self, _: RebalanceTriggered) -> RebalanceStep:
        self.is_rerun_requested = True
        return self.state, []

    @transitions_to(RebalanceState.READING, RebalanceState.RELEASING)
    def _viewed(self, _: ViewRead) -> RebalanceStep:
        return (RebalanceState.READING if self._consume_rerun_request() else RebalanceState.RELEASING), []

    @transitions_to(RebalanceState.READING, RebalanceState.INCOMPLETE)
    def _failed(self, _: ReadFailed | ListenerFailed) -> RebalanceStep:
        return (RebalanceState.READING if self._consume_rerun_request() else RebalanceState.INCOMPLETE), []

    @transitions_to(RebalanceState.READING, RebalanceState.ACQUIRING)
    def _released(self, _: ReleasesDone) -> RebalanceStep:
        return (RebalanceState.READING if self._consume_rerun_request() else RebalanceState.ACQUIRING), []

    @transitions_to(RebalanceState.POSITIONING)
    def _acquired(self, _: AcquisitionsDone) -> RebalanceStep:
        return RebalanceState.POSITIONING, []

    @transitions_to(RebalanceState.READING, RebalanceState.STABLE, RebalanceState.INCOMPLETE)
    def _positioned(self, event: PositionsDone) -> RebalanceStep:
        if self._consume_rerun_request():
            return RebalanceState.READING, []
        return (RebalanceState.STABLE if event.is_complete else RebalanceState.INCOMPLETE), []

    @transitions_to(RebalanceState.ACQUIRING)
    def _acquire(self, _: PartitionsFreed) -> RebalanceStep:
        assert not self.is_rerun_requested, "a request would have led to READING"
        return RebalanceState.ACQUIRING, []

    @transitions_to(RebalanceState.IDLE)
    def _idle(self, _: RebalanceStopped) -> RebalanceStep:
        self.is_rerun_requested = False
        return RebalanceState.IDLE, []

    def _consume_rerun_request(self) -> bool:
        again, self.is_rerun_requested = self.is_rerun_requested, False
        return again

    TRANSITIONS: ClassVar[TransitionTable] = {
        (RebalanceState.IDLE, RebalanceTriggered): _read,
        (RebalanceState.IDLE, RebalanceStopped): _idle,
        (RebalanceState.READING, RebalanceTriggered): _request_rerun,
        (RebalanceState.READING, ViewRead): _viewed,
        (RebalanceState.READING, ReadFailed): _failed,
        (RebalanceState.READING, RebalanceStopped): _idle,
        (RebalanceState.RELEASING, RebalanceTriggered): _request_rerun,
        (RebalanceState.RELEASING, ReleasesDone): _released,
        (RebalanceState.RELEASING, ListenerFailed): _failed,
        (RebalanceState.RELEASING, RebalanceStopped): _idle,
        (RebalanceState.ACQUIRING, RebalanceTriggered): _request_rerun,
        (RebalanceState.ACQUIRING, AcquisitionsDone): _acquired,
        (RebalanceState.ACQUIRING, RebalanceStopped): _idle,
        (RebalanceState.POSITIONING, RebalanceTriggered): _request_rerun,
        (RebalanceState.POSITIONING, PositionsDone): _positioned,
        (RebalanceState.POSITIONING, ListenerFailed): _failed,
        (RebalanceState.POSITIONING, RebalanceStopped): _idle,
        (RebalanceState.STABLE, RebalanceTriggered): _read,
        (RebalanceState.STABLE, RebalanceStopped): _idle,
        (RebalanceState.INCOMPLETE, RebalanceTriggered): _read,
        (RebalanceState.INCOMPLETE, PartitionsFreed): _acquire,
        (RebalanceState.INCOMPLETE, RebalanceStopped): _idle,
    }
