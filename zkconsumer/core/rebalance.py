"""One attempt to hold what the group's present view gives us; bounded, restartable.

           Triggered          ViewRead            ReleasesDone         ClaimsDone             PositionsDone
   IDLE ------------> READING --------> RELEASING ------------> CLAIMING ---------> POSITIONING ------------> HELD
                       ^  ^  |              |                      ^                     |                      |
                       |  |  +- ReadFailed -+--(again)             |                     | (something missing)  |
                       |  |                 |                      |                     v                      |
                       |  +--- Triggered ---+----------------------+--- OwnersMoved -- SHORT                    |
                       +-------------------------------- Triggered -----------------------------------------+

A trigger that comes in the middle is remembered (``again``): the step under way is finished first, because its
writes are already with the server, and then the group is read anew.  What stays with its thread is touched by none
of these steps.  The original starts every attempt by giving up everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from zkconsumer.core.machine import Machine, Table, leads_to, stays


class RebalanceState(Enum):
    """How far the present attempt has come."""

    IDLE = "idle"
    READING = "reading"
    RELEASING = "releasing"
    CLAIMING = "claiming"
    POSITIONING = "positioning"
    HELD = "held"
    SHORT = "short"


@dataclass(frozen=True, slots=True)
class Triggered:
    """Something changed, or a retry is due: read the group."""


@dataclass(frozen=True, slots=True)
class ViewRead:
    """The group was read and a share computed."""


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """The group could not be read, or the assignment was refused."""


@dataclass(frozen=True, slots=True)
class ReleasesDone:
    """Nothing that leaves us is left."""


@dataclass(frozen=True, slots=True)
class ClaimsDone:
    """The claims came back."""


@dataclass(frozen=True, slots=True)
class PositionsDone:
    """Positions are known; ``whole`` when nothing of the share is missing."""

    whole: bool


@dataclass(frozen=True, slots=True)
class ListenerRefused:
    """The program's rebalance listener raised."""


@dataclass(frozen=True, slots=True)
class OwnersMoved:
    """A node that refused us may be gone."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The session is gone, or the member is leaving: forget the attempt."""


Step = tuple[RebalanceState, list[Any]]


class Rebalance(Machine):
    """The attempt under way."""

    INITIAL = RebalanceState.IDLE

    def __init__(self) -> None:
        super().__init__()
        self.again = False

    @leads_to(RebalanceState.READING)
    def _read(self, _: object) -> Step:
        self.again = False
        return RebalanceState.READING, []

    @stays
    def _remember(self, _: Triggered) -> Step:
        self.again = True
        return self.state, []

    @leads_to(RebalanceState.READING, RebalanceState.RELEASING)
    def _viewed(self, _: ViewRead) -> Step:
        return (RebalanceState.READING if self._take_again() else RebalanceState.RELEASING), []

    @leads_to(RebalanceState.READING, RebalanceState.SHORT)
    def _failed(self, _: ReadFailed | ListenerRefused) -> Step:
        return (RebalanceState.READING if self._take_again() else RebalanceState.SHORT), []

    @leads_to(RebalanceState.READING, RebalanceState.CLAIMING)
    def _released(self, _: ReleasesDone) -> Step:
        return (RebalanceState.READING if self._take_again() else RebalanceState.CLAIMING), []

    @leads_to(RebalanceState.POSITIONING)
    def _claimed(self, _: ClaimsDone) -> Step:
        return RebalanceState.POSITIONING, []

    @leads_to(RebalanceState.READING, RebalanceState.HELD, RebalanceState.SHORT)
    def _positioned(self, event: PositionsDone) -> Step:
        if self._take_again():
            return RebalanceState.READING, []
        return (RebalanceState.HELD if event.whole else RebalanceState.SHORT), []

    @leads_to(RebalanceState.CLAIMING)
    def _claim(self, _: OwnersMoved) -> Step:
        return RebalanceState.CLAIMING, []

    @leads_to(RebalanceState.IDLE)
    def _idle(self, _: Stopped) -> Step:
        self.again = False
        return RebalanceState.IDLE, []

    def _take_again(self) -> bool:
        again, self.again = self.again, False
        return again

    TRANSITIONS: ClassVar[Table] = {
        (RebalanceState.IDLE, Triggered): _read,
        (RebalanceState.IDLE, Stopped): _idle,
        (RebalanceState.READING, Triggered): _remember,
        (RebalanceState.READING, ViewRead): _viewed,
        (RebalanceState.READING, ReadFailed): _failed,
        (RebalanceState.READING, Stopped): _idle,
        (RebalanceState.RELEASING, Triggered): _remember,
        (RebalanceState.RELEASING, ReleasesDone): _released,
        (RebalanceState.RELEASING, ListenerRefused): _failed,
        (RebalanceState.RELEASING, Stopped): _idle,
        (RebalanceState.CLAIMING, Triggered): _remember,
        (RebalanceState.CLAIMING, ClaimsDone): _claimed,
        (RebalanceState.CLAIMING, Stopped): _idle,
        (RebalanceState.POSITIONING, Triggered): _remember,
        (RebalanceState.POSITIONING, PositionsDone): _positioned,
        (RebalanceState.POSITIONING, ListenerRefused): _failed,
        (RebalanceState.POSITIONING, Stopped): _idle,
        (RebalanceState.HELD, Triggered): _read,
        (RebalanceState.HELD, Stopped): _idle,
        (RebalanceState.SHORT, Triggered): _read,
        (RebalanceState.SHORT, OwnersMoved): _claim,
        (RebalanceState.SHORT, Stopped): _idle,
    }
