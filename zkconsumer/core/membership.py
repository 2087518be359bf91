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
from zkconsumer.core.machine import Machine, Table, leads_to, to


class MembershipState(Enum):
    """Where this member stands in its group's registry."""

    OUT = "out"
    SCOUTING = "scouting"
    REGISTERING = "registering"
    WAITING = "waiting"
    IN = "in"
    LEAVING = "leaving"
    WITHDRAWN = "withdrawn"


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

    registered: bool


@dataclass(frozen=True, slots=True)
class DeregistrationDone:
    """Our registration znode is gone; ``withdrawn`` when we mean to come back."""

    withdrawn: bool


class Membership(Machine):
    """Out, on the way in, in, on the way out."""

    INITIAL = MembershipState.OUT

    @leads_to(MembershipState.WITHDRAWN, MembershipState.LEAVING)
    def _withdrawn(self, event: Withdrawn) -> tuple[MembershipState, list[Any]]:
        return (MembershipState.LEAVING if event.registered else MembershipState.WITHDRAWN), []

    @leads_to(MembershipState.WITHDRAWN, MembershipState.OUT)
    def _deregistered(self, event: DeregistrationDone) -> tuple[MembershipState, list[Any]]:
        return (MembershipState.WITHDRAWN if event.withdrawn else MembershipState.OUT), []

    TRANSITIONS: ClassVar[Table] = {
        (MembershipState.OUT, Seek): to(MembershipState.SCOUTING),
        (MembershipState.OUT, SessionLost): to(MembershipState.OUT),
        (MembershipState.OUT, LeaveWanted): to(MembershipState.OUT),
        (MembershipState.SCOUTING, Scouted): to(MembershipState.REGISTERING),
        (MembershipState.SCOUTING, RegistrationPutOff): to(MembershipState.WAITING),
        (MembershipState.SCOUTING, Withdrawn): _withdrawn,
        (MembershipState.SCOUTING, SessionLost): to(MembershipState.OUT),
        (MembershipState.SCOUTING, LeaveWanted): to(MembershipState.OUT),
        (MembershipState.REGISTERING, RegistrationDone): to(MembershipState.IN),
        (MembershipState.REGISTERING, RegistrationPutOff): to(MembershipState.WAITING),
        (MembershipState.REGISTERING, SessionLost): to(MembershipState.OUT),
        (MembershipState.REGISTERING, LeaveWanted): to(MembershipState.LEAVING),
        (MembershipState.WAITING, Seek): to(MembershipState.SCOUTING),
        (MembershipState.WAITING, SessionLost): to(MembershipState.OUT),
        (MembershipState.WAITING, LeaveWanted): to(MembershipState.OUT),
        (MembershipState.IN, RegistrationGone): to(MembershipState.LEAVING),
        (MembershipState.IN, Withdrawn): to(MembershipState.LEAVING),
        (MembershipState.IN, LeaveWanted): to(MembershipState.LEAVING),
        (MembershipState.IN, SessionLost): to(MembershipState.OUT),
        (MembershipState.LEAVING, RegistrationDone): to(MembershipState.LEAVING),
        (MembershipState.LEAVING, RegistrationPutOff): to(MembershipState.LEAVING),
        (MembershipState.LEAVING, LeaveWanted): to(MembershipState.LEAVING),
        (MembershipState.LEAVING, DeregistrationDone): _deregistered,
        (MembershipState.LEAVING, SessionLost): to(MembershipState.OUT),
        (MembershipState.WITHDRAWN, Seek): to(MembershipState.SCOUTING),
        (MembershipState.WITHDRAWN, SessionLost): to(MembershipState.OUT),
        (MembershipState.WITHDRAWN, LeaveWanted): to(MembershipState.OUT),
    }
