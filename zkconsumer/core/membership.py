"""Whether this member is in the group's registry.

            Seek              Scouted               RegistrationDone
   OUT ------------> SCOUTING --------> REGISTERING ----------------> IN
    ^                 ^   | |                | RegistrationPutOff      |
    |   Withdrawn     |   | +-------------+  | (another session        | Withdrawn, RegistrationGone, LeaveWanted
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

from zkconsumer.core.events import LeaveWanted, SessionLost
from zkconsumer.core.machine import Machine, Table, transitions_to, go_to


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
class Seek:
    """There is a session and a subscription: become a member."""


@dataclass(frozen=True, slots=True)
class Scouted:
    """The group can be joined."""


@dataclass(frozen=True, slots=True)
class RegistrationDone:
    """Our registration znode exists."""


@dataclass(frozen=True, slots=True)
class RegistrationPutOff:
    """Our registration could not be made now."""


@dataclass(frozen=True, slots=True)
class RegistrationGone:
    """Our registration znode is missing although our session lives: somebody deleted it.

    What we own is given back before we register again: the others' view gives it to them.
    """


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Another member's subscription cannot be evaluated here: we must not take part.

    ``registered`` when a registration of ours may exist: one whose outcome is not known counts.
    """

    may_be_registered: bool


@dataclass(frozen=True, slots=True)
class DeregistrationDone:
    """Our registration znode is gone; ``withdrawn`` when we mean to come back."""

    is_excluded: bool


class Membership(Machine):
    """Out, on the way in, in, on the way out."""

    INITIAL = MembershipState.NOT_REGISTERED

    @transitions_to(MembershipState.EXCLUDED, MembershipState.LEAVING)
    def _withdrawn(self, event: Withdrawn) -> tuple[MembershipState, list[Any]]:
        return (MembershipState.LEAVING if event.may_be_registered else MembershipState.EXCLUDED), []

    @transitions_to(MembershipState.EXCLUDED, MembershipState.NOT_REGISTERED)
    def _deregistered(self, event: DeregistrationDone) -> tuple[MembershipState, list[Any]]:
        return (MembershipState.EXCLUDED if event.is_excluded else MembershipState.NOT_REGISTERED), []

    TRANSITIONS: ClassVar[Table] = {
        (MembershipState.NOT_REGISTERED, Seek): go_to(MembershipState.PREFLIGHT),
        (MembershipState.NOT_REGISTERED, SessionLost): go_to(MembershipState.NOT_REGISTERED),
        (MembershipState.NOT_REGISTERED, LeaveWanted): go_to(MembershipState.NOT_REGISTERED),
        (MembershipState.PREFLIGHT, Scouted): go_to(MembershipState.REGISTERING),
        (MembershipState.PREFLIGHT, RegistrationPutOff): go_to(MembershipState.WAITING),
        (MembershipState.PREFLIGHT, Withdrawn): _withdrawn,
        (MembershipState.PREFLIGHT, SessionLost): go_to(MembershipState.NOT_REGISTERED),
        (MembershipState.PREFLIGHT, LeaveWanted): go_to(MembershipState.NOT_REGISTERED),
        (MembershipState.REGISTERING, RegistrationDone): go_to(MembershipState.REGISTERED),
        (MembershipState.REGISTERING, RegistrationPutOff): go_to(MembershipState.WAITING),
        (MembershipState.REGISTERING, SessionLost): go_to(MembershipState.NOT_REGISTERED),
        (MembershipState.REGISTERING, LeaveWanted): go_to(MembershipState.LEAVING),
        (MembershipState.WAITING, Seek): go_to(MembershipState.PREFLIGHT),
        (MembershipState.WAITING, SessionLost): go_to(MembershipState.NOT_REGISTERED),
        (MembershipState.WAITING, LeaveWanted): go_to(MembershipState.NOT_REGISTERED),
        (MembershipState.REGISTERED, RegistrationGone): go_to(MembershipState.LEAVING),
        (MembershipState.REGISTERED, Withdrawn): go_to(MembershipState.LEAVING),
        (MembershipState.REGISTERED, LeaveWanted): go_to(MembershipState.LEAVING),
        (MembershipState.REGISTERED, SessionLost): go_to(MembershipState.NOT_REGISTERED),
        (MembershipState.LEAVING, RegistrationDone): go_to(MembershipState.LEAVING),
        (MembershipState.LEAVING, RegistrationPutOff): go_to(MembershipState.LEAVING),
        (MembershipState.LEAVING, LeaveWanted): go_to(MembershipState.LEAVING),
        (MembershipState.LEAVING, DeregistrationDone): _deregistered,
        (MembershipState.LEAVING, SessionLost): go_to(MembershipState.NOT_REGISTERED),
        (MembershipState.EXCLUDED, Seek): go_to(MembershipState.PREFLIGHT),
        (MembershipState.EXCLUDED, SessionLost): go_to(MembershipState.NOT_REGISTERED),
        (MembershipState.EXCLUDED, LeaveWanted): go_to(MembershipState.NOT_REGISTERED),
    }
