"""Whether this member is in the group's registry.

            Seek              Scouted               RegistrationDone
   OUT ------------> SCOUTING --------> REGISTERING ----------------> IN --RegistrationGone--> OUT
    ^                 ^   | |                | RegistrationPutOff      |
    |   Withdrawn     |   | +-------------+  | (another session        | Withdrawn, LeaveWanted
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
from typing import TYPE_CHECKING, Any, ClassVar

from zkconsumer.core.events import LeaveWanted, SessionLost
from zkconsumer.core.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


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
    """Our registration znode is missing although our session lives: somebody deleted it."""


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Another member's subscription cannot be evaluated here: we must not take part."""


@dataclass(frozen=True, slots=True)
class DeregistrationDone:
    """Our registration znode is gone; ``withdrawn`` when we mean to come back."""

    withdrawn: bool


class Membership(Machine):
    """Out, on the way in, in, on the way out."""

    INITIAL = MembershipState.OUT

    def _to(state: MembershipState) -> Callable[[Any, Any], tuple[Any, list[Any]]]:  # type: ignore[misc]  # noqa: N805
        def go(_machine: Membership, _event: object) -> tuple[MembershipState, list[Any]]:
            return state, []

        return go

    def _deregistered(self, event: DeregistrationDone) -> tuple[MembershipState, list[Any]]:
        return (MembershipState.WITHDRAWN if event.withdrawn else MembershipState.OUT), []

    TRANSITIONS: ClassVar[Mapping[tuple[Any, type], Callable[[Any, Any], tuple[Any, list[Any]]]]] = {
        (MembershipState.OUT, Seek): _to(MembershipState.SCOUTING),
        (MembershipState.OUT, SessionLost): _to(MembershipState.OUT),
        (MembershipState.OUT, LeaveWanted): _to(MembershipState.OUT),
        (MembershipState.SCOUTING, Scouted): _to(MembershipState.REGISTERING),
        (MembershipState.SCOUTING, RegistrationPutOff): _to(MembershipState.WAITING),
        (MembershipState.SCOUTING, Withdrawn): _to(MembershipState.WITHDRAWN),
        (MembershipState.SCOUTING, SessionLost): _to(MembershipState.OUT),
        (MembershipState.SCOUTING, LeaveWanted): _to(MembershipState.OUT),
        (MembershipState.REGISTERING, RegistrationDone): _to(MembershipState.IN),
        (MembershipState.REGISTERING, RegistrationPutOff): _to(MembershipState.WAITING),
        (MembershipState.REGISTERING, SessionLost): _to(MembershipState.OUT),
        (MembershipState.REGISTERING, LeaveWanted): _to(MembershipState.LEAVING),
        (MembershipState.WAITING, Seek): _to(MembershipState.SCOUTING),
        (MembershipState.WAITING, SessionLost): _to(MembershipState.OUT),
        (MembershipState.WAITING, LeaveWanted): _to(MembershipState.OUT),
        (MembershipState.IN, RegistrationGone): _to(MembershipState.OUT),
        (MembershipState.IN, Withdrawn): _to(MembershipState.LEAVING),
        (MembershipState.IN, LeaveWanted): _to(MembershipState.LEAVING),
        (MembershipState.IN, SessionLost): _to(MembershipState.OUT),
        (MembershipState.LEAVING, RegistrationDone): _to(MembershipState.LEAVING),
        (MembershipState.LEAVING, RegistrationPutOff): _to(MembershipState.LEAVING),
        (MembershipState.LEAVING, LeaveWanted): _to(MembershipState.LEAVING),
        (MembershipState.LEAVING, DeregistrationDone): _deregistered,
        (MembershipState.LEAVING, SessionLost): _to(MembershipState.OUT),
        (MembershipState.WITHDRAWN, Seek): _to(MembershipState.SCOUTING),
        (MembershipState.WITHDRAWN, SessionLost): _to(MembershipState.OUT),
        (MembershipState.WITHDRAWN, LeaveWanted): _to(MembershipState.OUT),
    }
