"""Whether this member is registered in the group.

                JoinStarted            PreflightPassed               RegistrationDone
   NOT_REGISTERED -------> PREFLIGHT ----------------> REGISTERING ------------------> REGISTERED
    ^                       ^   | |                        | RegistrationDeferred          | MemberExcluded,
    |      MemberExcluded   |   | +---------------------+  | (another session              | RegistrationDeleted,
    |               +-------|---+  RegistrationDeferred |  |  uses the id)                 v LeaveRequested
    |               v       | JoinStarted (unreadable)  v  v                            LEAVING
    |           EXCLUDED ---+-------------------------- WAITING                            | DeregistrationDone
    |                                                                                      v
    +---------- SessionLost, from any state                                    NOT_REGISTERED or EXCLUDED

The member reads the group *before* it registers (preflight), so that it never makes a registration that would stop
the group, or that it would have to delete at once.

REGISTERED means that the registration existed at the last answer, not that it exists now: each view shows whether it
still does, and ``RegistrationDeleted`` leads through LEAVING, because the other members have assigned our partitions
to themselves.  LEAVING ends when all partitions are released and the delete is answered; the connector that is being
closed does not retry a delete, since the session ends anyway.  EXCLUDED is left only after a change of the group or a
reconnect, because nothing else can remove the reason.  A lost answer leads to WAITING, and the next preflight finds
out what the group looks like (``leaving_with_a_registration_of_unknown_outcome.txt``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from zkconsumer.member.events import LeaveRequested, SessionLost
from zkconsumer.member.state_machine import StateMachine, TransitionTable, go_to, transitions_to


class MembershipState(Enum):
    """How far the registration of this member is."""

    NOT_REGISTERED = "out"
    PREFLIGHT = "scouting"
    REGISTERING = "registering"
    WAITING = "waiting"
    REGISTERED = "in"
    LEAVING = "leaving"
    EXCLUDED = "withdrawn"


@dataclass(frozen=True, slots=True)
class JoinStarted:
    """A session and a subscription exist: join the group."""


@dataclass(frozen=True, slots=True)
class PreflightPassed:
    """The group can be joined."""


@dataclass(frozen=True, slots=True)
class RegistrationDone:
    """Our registration znode exists."""


@dataclass(frozen=True, slots=True)
class RegistrationDeferred:
    """Our registration cannot be made now; it is tried again later."""


@dataclass(frozen=True, slots=True)
class RegistrationDeleted:
    """Another client deleted our registration znode; our session is alive.

    We release all partitions before we register again: the other members assign them to themselves.
    """


@dataclass(frozen=True, slots=True)
class MemberExcluded:
    """Another member's subscription cannot be evaluated here: this member must not join.

    ``may_be_registered``: our registration may exist; one with unknown outcome counts.
    """

    may_be_registered: bool


@dataclass(frozen=True, slots=True)
class DeregistrationDone:
    """Our registration znode is deleted; ``is_excluded``: the member joins again when the group has changed."""

    is_excluded: bool


class MembershipStateMachine(StateMachine):
    """The registration of this member: from not registered to registered and back."""

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
