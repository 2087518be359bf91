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
out what the group looks like (``a_leave_deletes_a_registration_without_an_answer.txt``).

What each state waits for.  PREFLIGHT waits for a read of the group, REGISTERING for the create, LEAVING for the
releases and the delete: ZooKeeper answers them, or the session ends.  WAITING ends by a timer, EXCLUDED by a watch and
the debounce time after it.  NOT_REGISTERED is left at once while a session and a subscription exist, so it lasts only
before the program has created streams, without a session, and after the member has left for good.

The order *release, then delete the registration* is the reason for LEAVING: the other members rebalance when the
registration disappears, and an owner node that still exists then costs a Scala member ``rebalance.backoff.ms``, and one
of its four attempts (``a_member_leaves_cleanly.txt``).

A pause of the process that outlasts the session ends every state by ``SessionLost``; the registration is ephemeral, so
nothing has to be deleted.  ``LeaveRequested`` during a session never leads back: ``MemberStateMachine`` starts no join
after it.  It goes through LEAVING wherever a registration or an owner node may exist because of this member; in
WAITING and EXCLUDED what may be left ends with the session, which the connector closes next
(``a_leave_while_waiting_for_the_consumer_id_completes_at_once.txt``,
``a_leave_of_an_excluded_member_does_not_wait_for_the_retry_of_a_release.txt``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from zkconsumer.member.events import LeaveRequested, SessionLost
from zkconsumer.member.state_machine import MachineEvent, StateMachine, TransitionTable, go_to, rows_for, transitions_to


class MembershipState(Enum):
    """How far the registration of this member is."""

    NOT_REGISTERED = "not_registered"
    PREFLIGHT = "preflight"
    REGISTERING = "registering"
    WAITING = "waiting"
    REGISTERED = "registered"
    LEAVING = "leaving"
    EXCLUDED = "excluded"


STATES_WITHOUT_REQUEST = (MembershipState.NOT_REGISTERED, MembershipState.WAITING, MembershipState.EXCLUDED)
"""In these no request of the member about the group or its registration is under way."""

STATES_WITH_ZNODES = (MembershipState.REGISTERING, MembershipState.REGISTERED, MembershipState.LEAVING)
"""In these a member that leaves must wait for an answer, or delete what it made."""


class JoinStarted(MachineEvent):
    """A session and a subscription exist: join the group."""


class PreflightPassed(MachineEvent):
    """The group can be joined."""


class RegistrationDone(MachineEvent):
    """Our registration znode exists."""


class RegistrationDeferred(MachineEvent):
    """Our registration cannot be made now, or its outcome is unknown; it is tried again later, after a preflight."""


class RegistrationDeleted(MachineEvent):
    """Another client deleted our registration znode; our session is alive.

    We release all partitions before we register again: the other members assign them to themselves.
    """


@dataclass(frozen=True, slots=True)
class MemberExcluded:
    """Another member's subscription cannot be evaluated here: this member must not join.

    A Scala member can evaluate every Java pattern, so a different result would give one partition two owners.
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
        **rows_for(STATES_WITHOUT_REQUEST, JoinStarted, go_to(MembershipState.PREFLIGHT)),
        (MembershipState.PREFLIGHT, PreflightPassed): go_to(MembershipState.REGISTERING),
        (MembershipState.PREFLIGHT, RegistrationDeferred): go_to(MembershipState.WAITING),
        (MembershipState.PREFLIGHT, MemberExcluded): _withdrawn,
        (MembershipState.REGISTERING, RegistrationDone): go_to(MembershipState.REGISTERED),
        (MembershipState.REGISTERING, RegistrationDeferred): go_to(MembershipState.WAITING),
        (MembershipState.REGISTERED, RegistrationDeleted): go_to(MembershipState.LEAVING),
        (MembershipState.REGISTERED, MemberExcluded): go_to(MembershipState.LEAVING),
        # The answer to a create that was sent before the member left; the delete follows it.
        (MembershipState.LEAVING, RegistrationDone): go_to(MembershipState.LEAVING),
        (MembershipState.LEAVING, RegistrationDeferred): go_to(MembershipState.LEAVING),
        (MembershipState.LEAVING, DeregistrationDone): _deregistered,
        **rows_for(MembershipState, LeaveRequested, go_to(MembershipState.NOT_REGISTERED)),
        **rows_for(STATES_WITH_ZNODES, LeaveRequested, go_to(MembershipState.LEAVING)),
        **rows_for(MembershipState, SessionLost, go_to(MembershipState.NOT_REGISTERED)),
    }
