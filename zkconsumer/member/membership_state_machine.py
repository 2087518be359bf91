"""Whether this member is in the group's registry.

            Seek              Scouted               RegistrationDone
   OUT ------------> SCOUTING --------> REGISTERING ----------------> IN
    ^                 ^   | |                | RegistrationDeferred      |
    |   Withdrawn     |   | +-------------+  | (another session        | Withdrawn, RegistrationDeleted, LeaveRequested
    |         +-------|---+   (unreadable)|  |  holds the id)          v
    |         v       | Seek              v  v                      LEAVING --DeregistrationDone--> OUT or WITHDRAWN
    |     WITHDRAWN --+------------------ WAITING
    +------------------------------ SessionLost, from anywhere

The group is read *before* registering (scouting), so that a registration which would stop the group, or which we
should have to take back at once, is never made.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from zkconsumer.member.events import LeaveRequested, SessionLost
from zkconsumer.member.state_machine import StateMachine, TransitionTable, go_to, transitions_to


class MembershipState(Enum):
    """Where this member stands in its group's registry."""

    NOT_REGISTERED = "out"
    PREFLIGHT = "scouting"
    REGISTERING = "registering"
    WAITING = "waiting"
    REGISTERED = "in"
    LEAVING = "leaving"
    EXCLUDED = "withdrawn"


@dataclass(frozen=True, slots=True)
class JoinStarted:
    """There is a session and a subscription: become a member."""


@dataclass(frozen=True, slots=True)
class PreflightPassed:
    """The group can be joined."""


@dataclass(frozen=True, slots=True)
class RegistrationDone:
    """Our registration znode exists."""


@dataclass(frozen=True, slots=True)
class RegistrationDeferred:
    """Our registration could not be made now."""


@dataclass(frozen=True, slots=True)
class RegistrationDeleted:
    """Our registration znode is missing although our session lives: somebody deleted it.

    What we own is given back before we register again: the others' view gives it to them.
    """


@dataclass(frozen=True, slots=True)
class MemberExcluded:
    """Another member's subscription cannot be evaluated here: we must not take part.

    ``registered`` when a registration of ours may exist: one whose outcome is not known counts.
    """

    may_be_registered: bool


@dataclass(frozen=True, slots=True)
class DeregistrationDone:
    """Our registration znode is gone; ``withdrawn`` when we mean to come back."""

    is_excluded: bool


class MembershipStateMachine(StateMachine):
    """Out, on the way in, in, on the way out."""

    INITIAL = MembershipState.NOT_REGISTERED

    @transitions_to(MembershipState.EXCLUDED, MembershipState.LEAVING)
    def _withdrawn(self, event: MemberExcluded) -> tuple[MembershipState, list[Any]]:
        return (MembershipState.LEAVING if event.may_be_registered else MembershipState.EXCLUDED), []

    @transitions_to(MembershipState.EXCLUDED, MembershipState.NOT_REGISTERED)
    def _deregistered(self, event: DeregistrationDone) -> tuple[MembershipState, list[Any]]:
        return (MembershipState.EXCLUDED if event.is_excluded else MembershipState.NOT_REGISTERED), []

    TRANSITIONS: ClassVar[TransitionTable] = {
        (MembershipState.NOT_REGISTERED, JoinStarted): go_to(MembershipState.PREFLIGHT),
        (MembershipState.NOT_REGISTERED, SessionLost): go_to(MembershipState.NOT_REGISTERED),
        (MembershipState.NOT_REGISTERED, LeaveRequested): go_to(MembershipState.NOT_REGISTERED),
        (MembershipState.PREFLIGHT, PreflightPassed): go_to(MembershipState.REGISTERING),
        (MembershipState.PREFLIGHT, RegistrationDeferred): go_to(MembershipState.WAITING),
        (MembershipState.PREFLIGHT, MemberExcluded): _withdrawn,
        (MembershipState.PREFLIGHT, SessionLost): go_to(MembershipState.NOT_REGISTERED),
        (MembershipState.PREFLIGHT, LeaveRequested): go_to(MembershipState.NOT_REGISTERED),
        (MembershipState.REGISTERING, RegistrationDone): go_to(MembershipState.REGISTERED),
        (MembershipState.REGISTERING, RegistrationDeferred): go_to(MembershipState.WAITING),
        (MembershipState.REGISTERING, SessionLost): go_to(MembershipState.NOT_REGISTERED),
        (MembershipState.REGISTERING, LeaveRequested): go_to(MembershipState.LEAVING),
        (MembershipState.WAITING, JoinStarted): go_to(MembershipState.PREFLIGHT),
        (MembershipState.WAITING, SessionLost): go_to(MembershipState.NOT_REGISTERED),
        (MembershipState.WAITING, LeaveRequested): go_to(MembershipState.NOT_REGISTERED),
        (MembershipState.REGISTERED, RegistrationDeleted): go_to(MembershipState.LEAVING),
        (MembershipState.REGISTERED, MemberExcluded): go_to(MembershipState.LEAVING),
        (MembershipState.REGISTERED, LeaveRequested): go_to(MembershipState.LEAVING),
        (MembershipState.REGISTERED, SessionLost): go_to(MembershipState.NOT_REGISTERED),
        (MembershipState.LEAVING, RegistrationDone): go_to(MembershipState.LEAVING),
        (MembershipState.LEAVING, RegistrationDeferred): go_to(MembershipState.LEAVING),
        (MembershipState.LEAVING, LeaveRequested): go_to(MembershipState.LEAVING),
        (MembershipState.LEAVING, DeregistrationDone): _deregistered,
        (MembershipState.LEAVING, SessionLost): go_to(MembershipState.NOT_REGISTERED),
        (MembershipState.EXCLUDED, JoinStarted): go_to(MembershipState.PREFLIGHT),
        (MembershipState.EXCLUDED, SessionLost): go_to(MembershipState.NOT_REGISTERED),
        (MembershipState.EXCLUDED, LeaveRequested): go_to(MembershipState.NOT_REGISTERED),
    }
