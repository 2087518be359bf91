r"""How a member joins a group of any protocol type: prepare, join, sync, complete.  Pure.

    IDLE --needed--> PREPARING --on_join_prepare is done--> JOINING --leader--> ELECTED --assignments--> SYNCING
      ^                                                        |  '--follower-------------------------------^
      '----------------------- COMPLETING <--------------------- answered: STABLE
            on_join_complete is done;         every failure leads to IDLE, and another join is needed

The steps are those of ``AbstractCoordinator.joinGroupIfNeeded`` (3.x), without blocking: each event runs as many steps
as possible.  The subclass implements the protocol type.  Its ``on_...`` methods are called again at every event until
they report that they are done, so they can wait for callbacks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from zkconsumer.errors import ZkConsumerError
from zkconsumer.kafka.error_codes import error_code
from zkconsumer.kafka.group import group_requests
from zkconsumer.kafka.group.coordinator_discovery import error_without_answer
from zkconsumer.kafka.group.error_policy import JOIN_GROUP as JOIN_TABLE
from zkconsumer.kafka.group.error_policy import SYNC_GROUP as SYNC_TABLE
from zkconsumer.kafka.group.error_policy import ErrorAction, error_action, error_from_code
from zkconsumer.kafka.group.errors import InconsistentGroupProtocolException
from zkconsumer.kafka.group.events import Failure, RequestFailed
from zkconsumer.kafka.group.generation import Generation, MemberState
from zkconsumer.kafka.group.group_member import GroupMemberBase, JoinStep
from zkconsumer.kafka.group.group_member_config import GroupMemberConfig
from zkconsumer.kafka.group.join_error_sentences import JoinErrorKind, join_error_sentence
from zkconsumer.kafka.group.kafka_text_forms import generation_text
from zkconsumer.kafka.group.pending_commands import RequestKind, SentRequest
from zkconsumer.kafka.net.exponential_backoff import Uniform
from zkconsumer.wire.schemas import JOIN_GROUP, SYNC_GROUP
from zkconsumer.wire.schemas.join_group import JoinGroupMember, JoinGroupProtocol, JoinGroupResponse
from zkconsumer.wire.schemas.sync_group import SyncGroupResponse

RETRIES_AT_ONCE_MAX = 5
"""How many times in a row a failed join is repeated without a pause; Kafka's clients have no limit."""


class AbstractCoordinator(GroupMemberBase):
    """One member of one group."""

    def __init__(self, config: GroupMemberConfig, uniform: Uniform, now_ms: int) -> None:
        super().__init__(config, uniform, now_ms)
        self.assignment_bytes = b""
        self._join_attempts = self._retries_at_once = 0
        self._election: JoinGroupResponse | None = None

    # --- the protocol type ----------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def protocol_type(self) -> str:
        """``consumer``, ``connect`` …: the same for all members of a group."""

    @abstractmethod
    def metadata(self) -> Sequence[JoinGroupProtocol]:
        """The protocols that this member supports, in order of preference."""

    @abstractmethod
    def on_join_prepare(self) -> bool:
        """Called before this member joins; returns whether it may join now."""

    @abstractmethod
    def on_leader_elected(
        self, protocol: str, members: Sequence[JoinGroupMember], *, skip_assignment: bool
    ) -> Mapping[str, bytes] | None:
        """The assignment of each member id, empty with ``skip_assignment``; None while an input is missing."""

    @abstractmethod
    def on_join_complete(self, assignment: bytes) -> bool:
        """Apply this member's assignment of ``generation``; returns whether that is done."""

    @abstractmethod
    def wants_group(self) -> bool:
        """Whether this member wants to be in the group."""

    # --- joining --------------------------------------------------------------------------------------------------

    def rejoin_needed_or_pending(self) -> bool:
        """Whether another generation is needed, or is being joined."""
        return self.rejoin_needed or self.step in (JoinStep.JOINING, JoinStep.SYNCING, JoinStep.COMPLETING)

    def join_group_if_needed(self) -> None:
        """Continue towards the next generation, as far as possible now."""
        while self.failure is None and self.wants_group():
            match self.step:
                case JoinStep.IDLE:
                    if not self._may_begin():
                        return
                    if self.needs_join_prepare:
                        # Cleared before the preparation: a reset during it sets it again, and it is prepared again.
                        self.needs_join_prepare = False
                        self.step = JoinStep.PREPARING
                    else:
                        self.initiate_join_group()
                case JoinStep.PREPARING:
                    if not self.on_join_prepare():
                        return
                    self.step = JoinStep.IDLE
                case JoinStep.ELECTED:
                    if not self.sync_as_leader():
                        return
                case JoinStep.COMPLETING:
                    if not self._complete():
                        return
                case JoinStep.JOINING | JoinStep.SYNCING:
                    return

    def _complete(self) -> bool:
        """Apply our assignment; returns whether that has ended, with success or not."""
        try:
            if not self.on_join_complete(self.assignment_bytes):
                return False
        except ZkConsumerError as error:
            self._fail(error)
        else:
            self.step = JoinStep.IDLE
        self.needs_join_prepare = True
        return True

    def _may_begin(self) -> bool:
        """Whether a preparation can begin: there is a reason for it, and no pause or answer is pending."""
        if not self.rejoin_needed_or_pending():
            return False
        if self.needs_join_prepare and self.generation.is_lost:
            # The member stops reading lost partitions at once, also while no coordinator is known.
            return True
        if self._waits_for_call or self.pending_commands.now_ms < self.retry_at_ms:
            return False
        return self.ensure_coordinator_ready()

    def initiate_join_group(self) -> None:
        """Send JoinGroup.  The coordinator answers when all members have joined."""
        self.state = MemberState.PREPARING_REBALANCE
        self.step = JoinStep.JOINING
        self.pending_commands.log_event(
            "joining", "(Re-)joining group", reason=self.rejoin_reason, member=self.generation.member_id
        )
        body = group_requests.join_group(
            self.config, self.generation, self.protocol_type, self.metadata(), self.rejoin_reason
        )
        self.send_to_coordinator(RequestKind.JOIN_GROUP, JOIN_GROUP.key, body, self.config.join_group_timeout_ms)

    def join_answered(self, sent: SentRequest, body: JoinGroupResponse) -> None:
        """Process the response to JoinGroup."""
        if body.error_code != 0:
            self._log_rejection(sent, body.error_code, body.member_id)
            if error_action(JOIN_TABLE, body.error_code) is ErrorAction.USE_GIVEN_MEMBER_ID:
                # Keep the member id and the reason: it continues the same join.
                self.generation = Generation(member_id=body.member_id)
            self._react(JOIN_TABLE, body.error_code, sent)
            return
        if body.protocol_type is not None and body.protocol_type != self.protocol_type:
            what = "JoinGroup failed: Inconsistent Protocol Type"
            self._fail_inconsistent(sent, what, body.protocol_type, self.protocol_type)
            return
        if self.state is not MemberState.PREPARING_REBALANCE:
            self._retry("the generation ended before the answer to JoinGroup came", at_once=False)
            return
        self.state = MemberState.COMPLETING_REBALANCE
        self.heartbeat.enable(self.pending_commands.now_ms)
        self.generation = Generation(body.generation_id, body.member_id, body.protocol_name)
        is_leader = body.leader == body.member_id
        self.pending_commands.log_event(
            "joined",
            f"Successfully joined group with generation {generation_text(self.generation)}",
            generation=body.generation_id,
            member=body.member_id,
            is_leader=is_leader,
        )
        if is_leader:
            self._election = body
            self.step = JoinStep.ELECTED
        else:
            self._send_sync({})

    def sync_as_leader(self) -> bool:
        """Send the assignments when they are computed; returns whether a step was possible."""
        elected = self._election
        if elected is None or self.state is not MemberState.COMPLETING_REBALANCE:
            self._retry("the generation ended before its leader had spoken", at_once=True)
            return True
        try:
            shares = self.on_leader_elected(
                elected.protocol_name or "", elected.members, skip_assignment=elected.skip_assignment
            )
        except ZkConsumerError as error:
            self._fail(error)
            return True
        if shares is None:
            return False
        self._election = None
        self._send_sync(shares)
        return True

    def _send_sync(self, assignments: Mapping[str, bytes]) -> None:
        """Send SyncGroup; join again if the coordinator is unknown by now: JoinGroup has a connection of its own, which
        may live longer."""
        if self.coordinator_discovery.coordinator is None:
            self._retry("the coordinator is unknown", at_once=False)
            return
        self.step = JoinStep.SYNCING
        body = group_requests.sync_group(self.config, self.generation, self.protocol_type, assignments)
        self.send_to_coordinator(RequestKind.SYNC_GROUP, SYNC_GROUP.key, body, self.config.request_timeout_ms)

    def sync_answered(self, sent: SentRequest, body: SyncGroupResponse) -> None:
        """Process the response to SyncGroup."""
        if body.error_code != 0:
            self._log_rejection(sent, body.error_code)
            self._react(SYNC_TABLE, body.error_code, sent)
        elif body.protocol_type is not None and body.protocol_type != self.protocol_type:
            what = "SyncGroup failed due to inconsistent Protocol Type"
            self._fail_inconsistent(sent, what, body.protocol_type, self.protocol_type)
        elif self.generation.is_reset or self.state is not MemberState.COMPLETING_REBALANCE:
            self.pending_commands.log_event(
                "join-failed",
                f"Generation data was cleared by heartbeat thread to {generation_text(self.generation)} and state is "
                f"now {self.state.name} before receiving SyncGroup response, marking this rebalance as failed and "
                "retry",
                request=sent.what.value,
            )
            self._retry("the generation ended before the answer to SyncGroup came", at_once=True)
        elif body.protocol_name is not None and body.protocol_name != self.generation.protocol_name:
            what = "SyncGroup failed due to inconsistent Protocol Name"
            self._fail_inconsistent(sent, what, body.protocol_name, str(self.generation.protocol_name))
        else:
            self.pending_commands.log_event(
                "synced",
                f"Successfully synced group in generation {generation_text(self.generation)}",
                generation=self.generation.generation_id,
            )
            self.state = MemberState.STABLE
            self.rejoin_needed = False
            self.rejoin_reason = ""
            self._join_attempts = self._retries_at_once = 0
            self.assignment_bytes = body.assignment
            self.step = JoinStep.COMPLETING

    def _fail_inconsistent(self, sent: SentRequest, what: str, found: str, expected: str) -> None:
        self.pending_commands.log_event(
            "join-rejected", f"{what}, received {found} but expected {expected}", request=sent.what.value
        )
        self._fail(
            InconsistentGroupProtocolException(
                f"{sent.what.value} of group {self.config.group_id}: the coordinator reports {found!r}, but this "
                f"member expected {expected!r}"
            )
        )

    # --- errors ---------------------------------------------------------------------------------------------------

    def _log_rejection(self, sent: SentRequest, code: int, given_member_id: str = "") -> None:
        """Log how Kafka's client logs this error of JoinGroup or SyncGroup."""
        kind, sentence = join_error_sentence(
            sent.what,
            code,
            sent.generation,
            coordinator=self.coordinator_discovery.coordinator,
            group_instance_id=self.config.group_instance_id,
            given_member_id=given_member_id,
        )
        request, error = sent.what.value, str(error_code(code))
        match kind:
            case JoinErrorKind.REJECTED:
                self.pending_commands.log_event("join-rejected", sentence, request=request, error=error)
            case JoinErrorKind.RETRIED:
                self.pending_commands.log_event("join-failed", sentence, request=request, error=error)
            case JoinErrorKind.MEMBER_ID_GIVEN:
                self.pending_commands.log_event("member-id-given", sentence, request=request, error=error)

    def _react(self, table: Mapping[int, ErrorAction], code: int, sent: SentRequest) -> None:
        """The coordinator rejected a JoinGroup or SyncGroup request."""
        what = error_action(table, code)
        reason = f"rebalance failed due to {error_code(code)}"
        match what:
            case ErrorAction.RESET_MEMBER | ErrorAction.RESET_GENERATION:
                if sent.generation == self.generation:
                    self.reset_on_response_error(sent.what, code, keeps_member_id=what is ErrorAction.RESET_GENERATION)
                self._retry(reason, at_once=True)
            case ErrorAction.FIND_COORDINATOR:
                self.coordinator_discovery.mark_coordinator_unknown(f"error response {error_code(code).name}")
                self._retry(reason, at_once=False)
            case ErrorAction.RETRY_AFTER_BACKOFF:
                self._retry(reason, at_once=False)
            case ErrorAction.USE_GIVEN_MEMBER_ID:
                self._retry(self.rejoin_reason or "need to re-join with the given member id", at_once=True)
            case ErrorAction.RETRY_IMMEDIATELY:
                self._retry(reason, at_once=True)
            case ErrorAction.FENCED:
                self.end(error_from_code(code, self.config.group_id, sent.what.value))
            case _:
                self._fail(error_from_code(code, self.config.group_id, sent.what.value))

    def _retry(self, reason: str, *, at_once: bool) -> None:
        """Join again, at once or after a pause.  The state and the member id stay."""
        self.give_up_joining()
        self.request_rejoin(reason)
        if at_once and self._retries_at_once < RETRIES_AT_ONCE_MAX:
            self._retries_at_once += 1
            return
        self.retry_at_ms = self.pending_commands.now_ms + self.backoff.backoff(self._join_attempts)
        self._join_attempts += 1

    def _fail(self, error: ZkConsumerError) -> None:
        """Report the error to the program; the next call of the program retries."""
        self._retry(f"rebalance failed due to {type(error).__name__}", at_once=False)
        self.raise_to_program(error)

    def request_failed(self, sent: SentRequest, event: RequestFailed) -> None:
        """See ``GroupMemberBase``."""
        if sent.what in (RequestKind.JOIN_GROUP, RequestKind.SYNC_GROUP):
            self._join_failed(sent, event)
        else:
            super().request_failed(sent, event)

    def _join_failed(self, sent: SentRequest, event: RequestFailed) -> None:
        if event.error is not None or event.failure is Failure.UNSUPPORTED:
            self._fail(error_without_answer(event, self.config.group_id, sent.what))
        else:
            self._retry(f"rebalance failed due to {event.failure.value}", at_once=False)
