"""What may exist of the registration znode of this member, and the request about it that has no answer yet.

   ABSENT, POSSIBLE --RegistrationSent----> CREATING
   CREATING --Registered, RegistrationFailed (outcome unknown)--> POSSIBLE
   CREATING --RegistrationConflict--------> ABSENT (the znode is another session's)
   POSSIBLE --DeregistrationSent----------> DELETING
   DELETING --Deregistered----------------> ABSENT, or DELETE_FAILED with a reason
   DELETE_FAILED --DeletionDue------------> POSSIBLE
   POSSIBLE --RegistrationDeleted---------> ABSENT
   any state --SessionLost----------------> ABSENT (the znode is ephemeral)

``MembershipStateMachine`` says what the member does; this machine says what may exist in ZooKeeper because of it.  They
differ when an answer is lost: the member is then ``WAITING`` or ``PREFLIGHT``, and the znode ``POSSIBLE``.  A member
that must stay out of the group while its znode is possible deletes it first, because other members assign partitions
to every registration that exists.

At most one request is under way, and its answer is awaited even when the member leaves meanwhile: a delete that
overtook the create would leave a registration until the session ends
(``a_leave_during_the_registration_deletes_the_registration.txt`` in the transcripts).  The answer of an earlier session
has another ticket.

A create may be sent while the znode is ``POSSIBLE``: one of our own session is then found, and counts as registered
(``a_registration_without_an_answer_is_requested_again.txt``).  A znode of *another* session is a conflict.  Usually the
session is that of the same process before a restart, and ends within its timeout.  So the member repeats the create,
and ``consumer_id_conflict`` decides when that has lasted too long.

A delete that failed is not repeated at once: ``DELETE_FAILED`` lasts for the pause that the member starts.  A pause of
the process needs no state: if the session has ended meanwhile, ``SessionLost`` arrives, and an answer that was
already in the socket is measured from the time of its request
(``a_pause_of_the_process_does_not_count_as_waiting_for_the_consumer_id.txt``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from zkconsumer.member.events import (
    Deregistered,
    Registered,
    RegistrationConflict,
    RegistrationFailed,
    SessionLost,
)
from zkconsumer.member.membership_state_machine import RegistrationDeleted
from zkconsumer.member.state_machine import MachineEvent, StateMachine, TransitionTable, go_to, rows_for, transitions_to


class RegistrationState(Enum):
    """What may exist, and what was requested.

    Only ``ABSENT`` is certain.  In every other state other members may count this member, and assign partitions to it.
    """

    ABSENT = "absent"
    CREATING = "creating"
    POSSIBLE = "possible"
    DELETING = "deleting"
    DELETE_FAILED = "delete_failed"


STATES_WITH_REQUEST = (RegistrationState.CREATING, RegistrationState.DELETING)


@dataclass(frozen=True, slots=True)
class RegistrationSent:
    """The request to create the znode was sent at that time."""

    ticket: int
    sent_at_ms: int


@dataclass(frozen=True, slots=True)
class DeregistrationSent:
    """The request to delete the znode was sent."""

    ticket: int


class DeletionDue(MachineEvent):
    """The pause after a failed delete is over, or the connector is being closed, which does not wait for it."""


RegistrationStep = tuple[RegistrationState, list[Any]]


class RegistrationStateMachine(StateMachine):
    """The registration znode of this member, as far as it is known."""

    INITIAL = RegistrationState.ABSENT

    def __init__(self) -> None:
        super().__init__()
        self.ticket: int | None = None
        """That of the request without an answer; not None exactly in ``CREATING`` and ``DELETING``."""
        self.sent_at_ms = 0
        """When the last create request was sent; ``ConsumerIdConflict`` measures a conflict from request to request."""

    @property
    def may_exist(self) -> bool:
        """Whether our znode may exist; one with unknown outcome counts."""
        return self.state is not RegistrationState.ABSENT

    def handle(self, event: object) -> list[Any]:
        """Process one event, see the base class; only a request without an answer has a ticket."""
        commands = super().handle(event)
        is_open = self.state in STATES_WITH_REQUEST
        assert is_open == (self.ticket is not None), "a ticket belongs to exactly one request under way"
        return commands

    @transitions_to(RegistrationState.CREATING)
    def _create_sent(self, event: RegistrationSent) -> RegistrationStep:
        assert event.sent_at_ms >= self.sent_at_ms, "the monotonic clock measures how long a conflict lasts"
        self.ticket, self.sent_at_ms = event.ticket, event.sent_at_ms
        return RegistrationState.CREATING, []

    @transitions_to(RegistrationState.POSSIBLE)
    def _created(self, _: Registered | RegistrationFailed) -> RegistrationStep:
        """A failed create counts like one that was executed: its outcome may be unknown, and a later delete of a znode
        that does not exist succeeds, too."""
        self.ticket = None
        return RegistrationState.POSSIBLE, []

    @transitions_to(RegistrationState.DELETING)
    def _delete_sent(self, event: DeregistrationSent) -> RegistrationStep:
        self.ticket = event.ticket
        return RegistrationState.DELETING, []

    @transitions_to(RegistrationState.ABSENT, RegistrationState.DELETE_FAILED)
    def _deleted(self, event: Deregistered) -> RegistrationStep:
        self.ticket = None
        return (RegistrationState.DELETE_FAILED if event.why else RegistrationState.ABSENT), []

    @transitions_to(RegistrationState.ABSENT)
    def _gone(self, _: RegistrationConflict | SessionLost) -> RegistrationStep:
        self.ticket = None
        return RegistrationState.ABSENT, []

    TRANSITIONS: ClassVar[TransitionTable] = {
        **rows_for((RegistrationState.ABSENT, RegistrationState.POSSIBLE), RegistrationSent, _create_sent),
        (RegistrationState.CREATING, Registered): _created,
        (RegistrationState.CREATING, RegistrationFailed): _created,
        (RegistrationState.CREATING, RegistrationConflict): _gone,
        (RegistrationState.POSSIBLE, DeregistrationSent): _delete_sent,
        (RegistrationState.DELETING, Deregistered): _deleted,
        (RegistrationState.DELETE_FAILED, DeletionDue): go_to(RegistrationState.POSSIBLE),
        (RegistrationState.POSSIBLE, RegistrationDeleted): go_to(RegistrationState.ABSENT),
        **rows_for(RegistrationState, SessionLost, _gone),
    }
