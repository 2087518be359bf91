r"""A member of a group, without the join: its identity, its heartbeats, how it leaves.  Pure.

    every heartbeat.interval.ms: Heartbeat --> 0, 27: alive   15, 16: another coordinator   22, 25, 82: out of the group
    no answer for session.timeout.ms: find the coordinator again     one record for max.poll.interval.ms: leave

``state`` is this member's state at the coordinator, ``step`` the current step towards the next generation:
``abstract_coordinator`` makes the steps, ``coordinator_discovery`` finds the coordinator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum

from zkconsumer.errors import ZkConsumerError
from zkconsumer.kafka.error_codes import error_code
from zkconsumer.kafka.group import group_requests
from zkconsumer.kafka.group.commands import Raise
from zkconsumer.kafka.group.coordinator_discovery import CoordinatorDiscovery, error_without_answer
from zkconsumer.kafka.group.error_policy import GROUP_AUTHORIZATION_FAILED, ErrorAction, error_action, error_from_code
from zkconsumer.kafka.group.error_policy import HEARTBEAT as HEARTBEAT_TABLE
from zkconsumer.kafka.group.events import Failure, RequestFailed
from zkconsumer.kafka.group.generation import NO_GENERATION, Generation, MemberState
from zkconsumer.kafka.group.group_member_config import GroupMemberConfig
from zkconsumer.kafka.group.heartbeat_timers import Heartbeat
from zkconsumer.kafka.group.kafka_text_forms import error_message, generation_text, node_text, optional_text
from zkconsumer.kafka.group.pending_commands import VERSION_ANY, PendingCommands, RequestKind, SentRequest
from zkconsumer.kafka.net.exponential_backoff import ExponentialBackoff, Uniform
from zkconsumer.wire.schemas import HEARTBEAT, LEAVE_GROUP
from zkconsumer.wire.schemas.heartbeat import HeartbeatResponse
from zkconsumer.wire.schemas.leave_group import BATCHED_FROM, LeaveGroupResponse

POLL_TIMEOUT_SENTENCE = (
    "consumer poll timeout has expired. This means the time between subsequent calls to poll() was longer than the "
    "configured max.poll.interval.ms, which typically implies that the poll loop is spending too much time processing "
    "messages. You can address this either by increasing max.poll.interval.ms or by reducing the maximum size of "
    "batches returned in poll() with max.poll.records."
)


class JoinStep(Enum):
    """The current step towards the next generation."""

    IDLE = "idle"
    PREPARING = "preparing"
    JOINING = "joining"
    ELECTED = "elected"
    SYNCING = "syncing"
    COMPLETING = "completing"


class GroupMemberBase(ABC):
    """One member of one group."""

    def __init__(self, config: GroupMemberConfig, uniform: Uniform, now_ms: int) -> None:
        self.config = config
        self.pending_commands = PendingCommands()
        self.pending_commands.now_ms = now_ms
        self.backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, uniform)
        self.coordinator_discovery = CoordinatorDiscovery(
            config.group_id, config.request_timeout_ms, self.backoff, self.pending_commands
        )
        self.heartbeat = Heartbeat(config, self.backoff, now_ms)
        self.state = MemberState.UNJOINED
        self.generation = NO_GENERATION
        self.step = JoinStep.IDLE
        self.needs_join_prepare = True
        self.rejoin_needed = True
        self.rejoin_reason = ""
        self.failure: ZkConsumerError | None = None
        """The error that ended this member permanently."""
        self.retry_at_ms = 0
        self._waits_for_call = False
        self._busy_stream = ""
        """The stream whose record the program has processed for the longest time; "" when there is none."""
        self._leaving: Generation | None = None
        self._told: ZkConsumerError | None = None

    @property
    @abstractmethod
    def has_auto_assigned_partitions(self) -> bool:
        """Whether the group decides which partitions this member reads, so that it commits as a member."""

    # --- the generation of a commit ---------------------------------------------------------------------------------

    @property
    def commits_while_joining(self) -> bool:
        """Whether JoinGroup is unanswered, and commits of the previous generation are accepted (see
        ``commit_queue``)."""
        return self.state is MemberState.PREPARING_REBALANCE and not self.generation.is_lost

    @property
    def awaits_generation(self) -> bool:
        """Whether JoinGroup or SyncGroup is in flight, or about to be sent: the answer has the next generation."""
        return self.step in (JoinStep.JOINING, JoinStep.ELECTED, JoinStep.SYNCING)

    # --- requests to rejoin, and errors for the program -------------------------------------------------------------

    def request_rejoin(self, reason: str) -> None:
        """Join again; JoinGroup contains the reason (3.2, KIP-800)."""
        self.pending_commands.log_event("rejoin-requested", f"Request joining group due to: {reason}", reason=reason)
        self.rejoin_reason = reason
        self.rejoin_needed = True

    def request_rejoin_if_necessary(self, reason: str) -> None:
        """The same, unless a rejoin is needed for another reason already."""
        if not self.rejoin_needed:
            self.request_rejoin(reason)

    def polled(self, busy_since_ms: int | None, stream: str) -> bool:
        """The state of the program (see ``Polled``); returns whether it is alive.

        A program that has processed one record for ``max.poll.interval.ms`` is not alive: the member retries nothing.
        """
        self._busy_stream = stream
        called_ms = self.pending_commands.now_ms if busy_since_ms is None else busy_since_ms
        if not self.heartbeat.has_called(called_ms, self.pending_commands.now_ms):
            return False
        self.poll_heartbeat(called_ms)
        return True

    def poll_heartbeat(self, called_ms: int | None = None) -> None:
        """The program called, now or at that time: it is alive, and failed operations may be retried."""
        self.heartbeat.reset_poll_timeout(self.pending_commands.now_ms if called_ms is None else called_ms)
        self._waits_for_call = False
        self.coordinator_discovery.clear_fatal_error()

    def ensure_coordinator_ready(self) -> bool:
        """Whether the coordinator is known; otherwise finds it, and reports a rejection to the program."""
        if self.coordinator_discovery.ensure_coordinator_ready():
            return True
        fatal = self.coordinator_discovery.fatal
        if fatal is not None and fatal is not self._told:
            self._told = fatal
            self.raise_to_program(fatal)
        return False

    def raise_to_program(self, error: ZkConsumerError) -> None:
        """The program's next call raises this; until then the member retries nothing."""
        self._waits_for_call = True
        self.pending_commands.add(Raise(error, is_fatal=False))

    def end(self, error: ZkConsumerError) -> None:
        """End permanently, without a retry: a member that was fenced would fence the other one."""
        self.give_up_joining()
        self.failure = error
        self._reset_state(keeps_member_id=False)
        self.pending_commands.add(Raise(error, is_fatal=True))

    # --- resets ------------------------------------------------------------------------------------------------------

    def give_up_joining(self) -> None:
        """Ignore the answers to requests that are in flight."""
        self.step = JoinStep.IDLE
        self.pending_commands.give_up(RequestKind.JOIN_GROUP, RequestKind.SYNC_GROUP)

    def _reset_state(self, *, keeps_member_id: bool) -> None:
        self.state = MemberState.UNJOINED
        self.generation = Generation(member_id=self.generation.member_id) if keeps_member_id else NO_GENERATION

    def reset_state_and_rejoin(self, reason: str, *, keeps_member_id: bool) -> None:
        """The generation has ended, and its partitions are lost."""
        what = "generation" if keeps_member_id else "generation and member id"  # the latter since Kafka 3.3
        self.pending_commands.log_event(
            "generation-reset",
            f"Resetting {what} due to: {reason}",
            generation=self.generation.generation_id,
            reason=reason,
        )
        self._reset_state(keeps_member_id=keeps_member_id)
        self.request_rejoin(reason)
        self.needs_join_prepare = True

    def reset_on_response_error(self, what: RequestKind, code: int, *, keeps_member_id: bool) -> None:
        """The same, because of an error code of the coordinator."""
        self.reset_state_and_rejoin(
            f"encountered {error_code(code)} from {what.value} response", keeps_member_id=keeps_member_id
        )

    def coordinator_failed(self, sent: SentRequest, event: RequestFailed) -> None:
        """The coordinator did not answer: forget it, unless another one is known by now."""
        if (
            event.failure in (Failure.DISCONNECTED, Failure.TIMED_OUT)
            and sent.incarnation == self.coordinator_discovery.incarnation
        ):
            is_disconnected = event.failure is Failure.DISCONNECTED
            self.coordinator_discovery.mark_coordinator_unknown(
                f"{sent.what.value}: {event.failure.value}", is_disconnected=is_disconnected
            )

    def request_failed(self, sent: SentRequest, event: RequestFailed) -> None:
        """A request about membership has no answer and will not have one."""
        match sent.what:
            case RequestKind.HEARTBEAT:
                self.heartbeat.fail_heartbeat(self.pending_commands.now_ms)
                if event.error is not None and not self._waits_for_call:
                    self._heartbeat_rejected(
                        "An authentication error occurred in the heartbeat thread",
                        error_without_answer(event, self.config.group_id, sent.what),
                    )
            case RequestKind.LEAVE_GROUP if event.failure is Failure.UNSUPPORTED and self._leaving is not None:
                self._leave_alone(self._leaving)
            case _:
                pass

    def send_to_coordinator(
        self, what: RequestKind, api_key: int, body: object, timeout_ms: int, version_most: int = VERSION_ANY
    ) -> None:
        """Send a request with the current generation."""
        assert self.coordinator_discovery.coordinator is not None, "a request needs a known coordinator"
        sent = SentRequest(what, self.generation, self.coordinator_discovery.incarnation)
        self.pending_commands.send(
            sent,
            self.coordinator_discovery.coordinator.id,
            api_key,
            body=body,
            timeout_ms=timeout_ms,
            version_most=version_most,
        )

    # --- heartbeats --------------------------------------------------------------------------------------------------

    def run_heartbeat(self) -> None:
        """One iteration of Kafka's heartbeat thread: at most one of these actions."""
        now_ms = self.pending_commands.now_ms
        if self.state.has_not_joined_group or self.failure is not None:
            return
        if self.coordinator_discovery.coordinator is None:
            self.ensure_coordinator_ready()
        elif self.heartbeat.session_timeout_expired(now_ms):
            self.coordinator_discovery.mark_coordinator_unknown(self._why_silent(now_ms))
        elif self.heartbeat.poll_timeout_expired(now_ms):
            self.pending_commands.log_event(
                "poll-timeout-expired", POLL_TIMEOUT_SENTENCE, stream=self._busy_stream, reason=self._why_hung()
            )
            self.maybe_leave_group("consumer poll timeout has expired")
            self._waits_for_call = True
        elif self.heartbeat.should_heartbeat(now_ms):
            self.heartbeat.sent_heartbeat(now_ms)
            body = group_requests.heartbeat(self.config, self.generation)
            self.send_to_coordinator(RequestKind.HEARTBEAT, HEARTBEAT.key, body, self.config.request_timeout_ms)

    def _why_hung(self) -> str:
        limit = f"max.poll.interval.ms={self.config.max_poll_interval_ms}"
        goes = (
            "this member leaves its group, and joins it again when the program asks for the next record"
            if self.config.is_dynamic_member
            else "this static member sends no heartbeats until the program asks for the next record, and loses its "
            f"partitions after session.timeout.ms={self.config.session_timeout_ms}"
        )
        what_to_do = "raise max.poll.interval.ms, or shorten the work on a record"
        return f"the program has worked on one record for longer than {limit}: {goes}; {what_to_do}"

    def _why_silent(self, now_ms: int) -> str:
        """The reason of a session time-out: when the heartbeat was not sent in time, this process was paused."""
        overdue_ms = self.heartbeat.overdue_ms(now_ms)
        if overdue_ms < self.config.heartbeat_interval_ms:
            return "session timed out without a heartbeat response"
        return f"this process was paused: its heartbeat was due {overdue_ms} ms ago, and the session has timed out"

    def heartbeat_answered(self, sent: SentRequest, body: HeartbeatResponse) -> None:
        """Process the response to a heartbeat."""
        now_ms = self.pending_commands.now_ms
        code = body.error_code
        what = None if code == 0 else error_action(HEARTBEAT_TABLE, code)
        match what:
            case None:
                self.heartbeat.receive_heartbeat(now_ms)
            case ErrorAction.REJOIN:
                # The coordinator still counts this member as alive during the rebalance, so it stays alive until it
                # joins.
                self.heartbeat.receive_heartbeat(now_ms)
                if self.state is MemberState.STABLE:
                    self.request_rejoin_if_necessary("group is already rebalancing")
                else:
                    self.pending_commands.log_event(
                        "heartbeat-error-ignored",
                        f"Ignoring heartbeat response with error {error_code(code).name} during {self.state.name} "
                        "state",
                        error=str(error_code(code)),
                    )
            case ErrorAction.FIND_COORDINATOR:
                self.heartbeat.fail_heartbeat(now_ms)
                self._heartbeat_failed(
                    code,
                    "Attempt to heartbeat failed since coordinator "
                    f"{node_text(self.coordinator_discovery.coordinator)} is either not started or not valid",
                )
                self.coordinator_discovery.mark_coordinator_unknown(f"error response {error_code(code).name}")
            case ErrorAction.RESET_MEMBER | ErrorAction.RESET_GENERATION | ErrorAction.FENCED:
                member = (
                    f"{generation_text(sent.generation)} and group instance id "
                    f"{optional_text(self.config.group_instance_id)} failed due to {error_code(code).name}"
                )
                if sent.generation != self.generation or self.state is MemberState.PREPARING_REBALANCE:
                    # JoinGroup has its own connection, so the coordinator may have read it first.  Its answer decides.
                    self.heartbeat.receive_heartbeat(now_ms)
                    self._heartbeat_failed(code, f"Attempt to heartbeat with stale {member}, ignoring the error")
                    return
                self.heartbeat.fail_heartbeat(now_ms)
                self._heartbeat_failed(code, f"Attempt to heartbeat with {member}, resetting generation")
                keeps_member_id = what is ErrorAction.RESET_GENERATION
                self.reset_on_response_error(sent.what, code, keeps_member_id=keeps_member_id)
                if what is ErrorAction.FENCED:
                    error = error_from_code(code, self.config.group_id, sent.what.value)
                    self.pending_commands.log_event(
                        "heartbeat-rejected",
                        f"Caught fenced group.instance.id {optional_text(self.config.group_instance_id)} error in "
                        "heartbeat thread",
                        reason=str(error),
                    )
                    self.end(error)
            case _:
                self.heartbeat.fail_heartbeat(now_ms)
                if not self._waits_for_call:
                    sentence = (
                        "A group authorization error occurred in the heartbeat thread"
                        if code == GROUP_AUTHORIZATION_FAILED
                        else "Heartbeat thread failed due to unexpected error"
                    )
                    self._heartbeat_rejected(sentence, error_from_code(code, self.config.group_id, sent.what.value))

    def _heartbeat_failed(self, code: int, sentence: str) -> None:
        self.pending_commands.log_event("heartbeat-failed", sentence, error=str(error_code(code)))

    def _heartbeat_rejected(self, sentence: str, error: ZkConsumerError) -> None:
        self.pending_commands.log_event("heartbeat-rejected", sentence, reason=str(error))
        self.raise_to_program(error)

    # --- leaving -----------------------------------------------------------------------------------------------------

    def maybe_leave_group(self, reason: str) -> bool:
        """Leave, if the coordinator knows this member and it is not static; one attempt.  Returns whether it was
        sent."""
        is_sent = (
            self.config.is_dynamic_member
            and self.coordinator_discovery.coordinator is not None
            and self.state is not MemberState.UNJOINED
            and self.generation.has_member_id
        )
        if is_sent:
            self.pending_commands.log_event(
                "leaving",
                f"Member {self.generation.member_id} sending LeaveGroup request to coordinator "
                f"{node_text(self.coordinator_discovery.coordinator)} due to {reason}",
                member=self.generation.member_id,
                reason=reason,
            )
            self._leaving = self.generation
            body = group_requests.leave_group(self.config, self.generation, reason)
            self.send_to_coordinator(RequestKind.LEAVE_GROUP, LEAVE_GROUP.key, body, self.config.request_timeout_ms)
        if self.awaits_generation:
            self.give_up_joining()
        self.reset_state_and_rejoin("consumer pro-actively leaving the group", keeps_member_id=False)
        return is_sent

    def _leave_alone(self, leaving: Generation) -> None:
        self._leaving = None
        if self.coordinator_discovery.coordinator is not None:
            body = group_requests.leave_group_single(self.config, leaving)
            self.send_to_coordinator(
                RequestKind.LEAVE_GROUP,
                LEAVE_GROUP.key,
                body,
                self.config.request_timeout_ms,
                version_most=BATCHED_FROM - 1,
            )

    def leave_answered(self, body: LeaveGroupResponse) -> None:
        """Process the response to LeaveGroup: a failure is logged and not retried."""
        left, self._leaving = self._leaving or NO_GENERATION, None
        codes = [body.error_code, *(member.error_code for member in body.members)]
        is_unexpected = len(body.members) > 1
        if is_unexpected:
            self.pending_commands.log_event("leave-response-unexpected", members=len(body.members))
        refused = next((code for code in codes if code != 0), 0)
        if refused:
            self.pending_commands.log_event(
                "leave-failed",
                f"LeaveGroup request with {generation_text(left)} failed with error: {error_message(refused)}",
                error=str(error_code(refused)),
            )
        elif not is_unexpected:
            self.pending_commands.log_event(
                "left", f"LeaveGroup response with {generation_text(left)} returned successfully: {body}"
            )
