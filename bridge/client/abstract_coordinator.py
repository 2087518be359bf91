r"""Membership in a group, whatever the group is for: join, sync, heartbeat, leave.  Pure.

    RESTING --needed--> PREPARING --on_join_prepare is through--> JOINING --leader--> ELECTED --its shares--> SYNCING
       ^                                                             |  '--follower------------------------------^
       '----------------------- COMPLETING <---------------------- answered: STABLE
             on_join_complete is through;    every failure leads to RESTING, with the wish to join

The steps are those of ``AbstractCoordinator.joinGroupIfNeeded`` (3.x), with nothing that waits: each event takes it as
far as it goes.  ``state`` is what the coordinator knows, ``step`` what we are doing.  Another machine finds the
coordinator (``coordinator_lookup``).  The subclass says what the group is for; its ``on_...`` are called again at every
event until they say that they are through, so that what they wait for can be callbacks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum

from bridge.client import group_requests
from bridge.client.backoff import ExponentialBackoff, Uniform
from bridge.client.commands import Raise
from bridge.client.config import GroupConfig
from bridge.client.coordinator_lookup import CoordinatorLookup, error_without_answer
from bridge.client.errors import InconsistentGroupProtocolException
from bridge.client.events import Failed, Failure
from bridge.client.generation import NO_GENERATION, Generation, MemberState
from bridge.client.heartbeat import Heartbeat
from bridge.client.outbox import Outbox, Sent, What
from bridge.client.reactions import HEARTBEAT as HEARTBEAT_TABLE
from bridge.client.reactions import JOIN_GROUP as JOIN_TABLE
from bridge.client.reactions import SYNC_GROUP as SYNC_TABLE
from bridge.client.reactions import Reaction, error_of, reaction
from zkconsumer.errors import ZkConsumerError
from zkconsumer.kafka.error_codes import error_code
from zkconsumer.wire.schemas import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from zkconsumer.wire.schemas.heartbeat import HeartbeatResponse
from zkconsumer.wire.schemas.join_group import JoinGroupMember, JoinGroupProtocol, JoinGroupResponse
from zkconsumer.wire.schemas.leave_group import BATCHED_FROM, LeaveGroupResponse
from zkconsumer.wire.schemas.sync_group import SyncGroupResponse

RETRIES_AT_ONCE_MAX = 5
"""So often in a row a failed join is repeated without a pause; Kafka's clients set no limit."""


class JoinStep(Enum):
    """What we are doing to be in the next generation."""

    RESTING = "resting"
    PREPARING = "preparing"
    JOINING = "joining"
    ELECTED = "elected"
    SYNCING = "syncing"
    COMPLETING = "completing"


class AbstractCoordinator(ABC):
    """One member of one group."""

    def __init__(self, config: GroupConfig, uniform: Uniform, now_ms: int) -> None:
        self.config = config
        self.outbox = Outbox()
        self.outbox.now_ms = now_ms
        self.backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, uniform)
        self.lookup = CoordinatorLookup(config.group_id, config.request_timeout_ms, self.backoff, self.outbox)
        self.heartbeat = Heartbeat(config, self.backoff, now_ms)
        self.state = MemberState.UNJOINED
        self.generation = NO_GENERATION
        self.step = JoinStep.RESTING
        self.needs_join_prepare = True
        self.rejoin_needed = True
        self.rejoin_reason = ""
        self.failure: ZkConsumerError | None = None
        """What ended this member for good."""
        self.retry_at_ms = 0
        self._waits_for_call = False
        self._join_attempts = self._retries_at_once = 0
        self._election: JoinGroupResponse | None = None
        self.assignment_bytes = b""
        self._leaving: Generation | None = None
        self._told: ZkConsumerError | None = None

    # --- what the group is for ------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def protocol_type(self) -> str:
        """``consumer``, ``connect`` …: all members of a group have the same."""

    @abstractmethod
    def metadata(self) -> Sequence[JoinGroupProtocol]:
        """What this member can do, the best first."""

    @abstractmethod
    def on_join_prepare(self) -> bool:
        """Before this member joins; whether it may."""

    @abstractmethod
    def on_leader_elected(
        self, protocol: str, members: Sequence[JoinGroupMember], *, skip_assignment: bool
    ) -> Mapping[str, bytes] | None:
        """Everybody's share by member id, nothing with ``skip_assignment``; None while something is waited for."""

    @abstractmethod
    def on_join_complete(self, assignment: bytes) -> bool:
        """This member's share of ``generation``; whether it is taken up."""

    @property
    @abstractmethod
    def has_auto_assigned_partitions(self) -> bool:
        """Whether what this member reads is decided by the group, so that it commits as a member."""

    @abstractmethod
    def wants_group(self) -> bool:
        """Whether this member wants to be in the group."""

    # --- joining --------------------------------------------------------------------------------------------------

    def rejoin_needed_or_pending(self) -> bool:
        """Whether there is to be a next generation, or one is being joined."""
        return self.rejoin_needed or self.step in (JoinStep.JOINING, JoinStep.SYNCING, JoinStep.COMPLETING)

    def request_rejoin(self, reason: str) -> None:
        """Join again; the coordinator is told the reason (3.2, KIP-800)."""
        self.rejoin_reason = reason
        self.rejoin_needed = True

    def request_rejoin_if_necessary(self, reason: str) -> None:
        """The same, unless it is wanted for another reason already."""
        if not self.rejoin_needed:
            self.request_rejoin(reason)

    def poll_heartbeat(self) -> None:
        """The program called: it lives, and what it was told of may be tried again."""
        self.heartbeat.reset_poll_timeout(self.outbox.now_ms)
        self._waits_for_call = False
        self.lookup.allow()

    def join_group_if_needed(self) -> None:
        """Go on towards the next generation, as far as that is possible now."""
        while self.failure is None and self.wants_group():
            match self.step:
                case JoinStep.RESTING:
                    if not self._may_begin():
                        return
                    if self.needs_join_prepare:
                        # False already while it is prepared: a reset meanwhile sets it, and it is prepared once more.
                        self.needs_join_prepare = False
                        self.step = JoinStep.PREPARING
                    else:
                        self.initiate_join_group()
                case JoinStep.PREPARING:
                    if not self.on_join_prepare():
                        return
                    self.step = JoinStep.RESTING
                case JoinStep.ELECTED:
                    if not self._sync_as_leader():
                        return
                case JoinStep.COMPLETING:
                    if not self._complete():
                        return
                case JoinStep.JOINING | JoinStep.SYNCING:
                    return

    def _complete(self) -> bool:
        """Take up our share; whether that is through, one way or the other."""
        try:
            if not self.on_join_complete(self.assignment_bytes):
                return False
        except ZkConsumerError as error:
            self._fail(error)
        else:
            self.step = JoinStep.RESTING
        self.needs_join_prepare = True
        return True

    def _may_begin(self) -> bool:
        """Whether there is something to begin with, and nothing to be waited for."""
        if not self.rejoin_needed_or_pending():
            return False
        if self.needs_join_prepare and self.generation.is_lost:
            # What was lost is stopped at once, whether anybody can be asked or not.
            return True
        if self._waits_for_call or self.outbox.now_ms < self.retry_at_ms:
            return False
        return self.ensure_coordinator_ready()

    def ensure_coordinator_ready(self) -> bool:
        """Whether the coordinator is known; looks for it if not, and tells the program if that was refused."""
        if self.lookup.ensure_coordinator_ready():
            return True
        fatal = self.lookup.fatal
        if fatal is not None and fatal is not self._told:
            self._told = fatal
            self.tell(fatal)
        return False

    def initiate_join_group(self) -> None:
        """Send JoinGroup.  Its answer comes when all members have joined."""
        self.state = MemberState.PREPARING_REBALANCE
        self.step = JoinStep.JOINING
        self.outbox.note("joining", reason=self.rejoin_reason, member=self.generation.member_id)
        body = group_requests.join_group(
            self.config, self.generation, self.protocol_type, self.metadata(), self.rejoin_reason
        )
        self._send(What.JOIN_GROUP, JOIN_GROUP.key, body, self.config.join_group_timeout_ms)

    def _send(self, what: What, api_key: int, body: object, timeout_ms: int, version_most: int = 0x7FFF) -> None:
        assert self.lookup.coordinator is not None, "nothing is sent to a coordinator that is not known"
        sent = Sent(what, self.generation, self.lookup.incarnation)
        self.outbox.send(sent, self.lookup.coordinator.id, api_key, body, timeout_ms, version_most)

    def join_answered(self, sent: Sent, body: JoinGroupResponse) -> None:
        """The answer to JoinGroup."""
        if body.error_code != 0:
            if reaction(JOIN_TABLE, body.error_code) is Reaction.TAKE_MEMBER_ID:
                # The id is kept and the reason too: it is the same wish to join.
                self.generation = Generation(member_id=body.member_id)
            self._react(JOIN_TABLE, body.error_code, sent)
            return
        if body.protocol_type is not None and body.protocol_type != self.protocol_type:
            self._fail(self._inconsistent("JoinGroup", body.protocol_type, self.protocol_type))
            return
        if self.state is not MemberState.PREPARING_REBALANCE:
            self._retry("the generation ended before the answer to JoinGroup came", at_once=False)
            return
        self.state = MemberState.COMPLETING_REBALANCE
        self.heartbeat.enable(self.outbox.now_ms)
        self.generation = Generation(body.generation_id, body.member_id, body.protocol_name)
        is_leader = body.leader == body.member_id
        self.outbox.note("joined", generation=body.generation_id, member=body.member_id, is_leader=is_leader)
        if is_leader:
            self._election = body
            self.step = JoinStep.ELECTED
        else:
            self._send_sync({})

    def _sync_as_leader(self) -> bool:
        """Tell everybody's share when it is known; whether there was something to do."""
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
        if self.lookup.coordinator is None:
            self._retry("the coordinator is unknown", at_once=False)
        else:
            self._send_sync(shares)
        return True

    def _send_sync(self, assignments: Mapping[str, bytes]) -> None:
        self.step = JoinStep.SYNCING
        body = group_requests.sync_group(self.config, self.generation, self.protocol_type, assignments)
        self._send(What.SYNC_GROUP, SYNC_GROUP.key, body, self.config.request_timeout_ms)

    def sync_answered(self, sent: Sent, body: SyncGroupResponse) -> None:
        """The answer to SyncGroup."""
        if body.error_code != 0:
            self._react(SYNC_TABLE, body.error_code, sent)
        elif body.protocol_type is not None and body.protocol_type != self.protocol_type:
            self._fail(self._inconsistent("SyncGroup", body.protocol_type, self.protocol_type))
        elif self.generation.is_reset or self.state is not MemberState.COMPLETING_REBALANCE:
            self._retry("the generation ended before the answer to SyncGroup came", at_once=True)
        elif body.protocol_name is not None and body.protocol_name != self.generation.protocol_name:
            self._fail(self._inconsistent("SyncGroup", body.protocol_name, str(self.generation.protocol_name)))
        else:
            self.state = MemberState.STABLE
            self.rejoin_needed = False
            self.rejoin_reason = ""
            self._join_attempts = self._retries_at_once = 0
            self.assignment_bytes = body.assignment
            self.step = JoinStep.COMPLETING

    def _inconsistent(self, what: str, found: str, expected: str) -> InconsistentGroupProtocolException:
        return InconsistentGroupProtocolException(
            f"{what} of group {self.config.group_id}: the coordinator says {found!r}, and this member {expected!r}"
        )

    # --- what went wrong ------------------------------------------------------------------------------------------

    def _react(self, table: Mapping[int, Reaction], code: int, sent: Sent) -> None:
        """A join or a sync was refused."""
        what = reaction(table, code)
        reason = f"rebalance failed due to {error_code(code)}"
        match what:
            case Reaction.NEW_MEMBER | Reaction.NEW_GENERATION:
                if sent.generation == self.generation:
                    self._reset_on_response_error(sent.what, code, keeps_member_id=what is Reaction.NEW_GENERATION)
                self._retry(reason, at_once=True)
            case Reaction.FIND_COORDINATOR:
                self.lookup.mark_coordinator_unknown(str(error_code(code)))
                self._retry(reason, at_once=False)
            case Reaction.BACKOFF:
                self._retry(reason, at_once=False)
            case Reaction.TAKE_MEMBER_ID:
                self._retry(self.rejoin_reason or "need to re-join with the given member id", at_once=True)
            case Reaction.AT_ONCE:
                self._retry(reason, at_once=True)
            case Reaction.FENCED:
                self.end(error_of(code, self.config.group_id, sent.what.value))
            case _:
                self._fail(error_of(code, self.config.group_id, sent.what.value))

    def _retry(self, reason: str, *, at_once: bool) -> None:
        """Join again, at once or after a pause.  The state stays, and so does the member id."""
        self.give_up_joining()
        self.request_rejoin(reason)
        if at_once and self._retries_at_once < RETRIES_AT_ONCE_MAX:
            self._retries_at_once += 1
            return
        self.retry_at_ms = self.outbox.now_ms + self.backoff.backoff(self._join_attempts)
        self._join_attempts += 1

    def give_up_joining(self) -> None:
        """An answer to what was asked before concerns nobody any more."""
        self.step = JoinStep.RESTING
        self._election = None
        self.outbox.give_up(What.JOIN_GROUP, What.SYNC_GROUP)

    def _fail(self, error: ZkConsumerError) -> None:
        """The program is told, and with its next call it is tried again."""
        self._retry(f"rebalance failed due to {type(error).__name__}", at_once=False)
        self.tell(error)

    def tell(self, error: ZkConsumerError) -> None:
        """The program's next call raises this; until then nothing that failed is tried again."""
        self._waits_for_call = True
        self.outbox.say(Raise(error, is_fatal=False))

    def end(self, error: ZkConsumerError) -> None:
        """Nothing can be tried again: a member that was fenced would fence the other in its turn."""
        self.give_up_joining()
        self.failure = error
        self._reset_state(keeps_member_id=False)
        self.outbox.say(Raise(error, is_fatal=True))

    def _reset_state(self, *, keeps_member_id: bool) -> None:
        self.state = MemberState.UNJOINED
        self.generation = Generation(member_id=self.generation.member_id) if keeps_member_id else NO_GENERATION

    def reset_state_and_rejoin(self, reason: str, *, keeps_member_id: bool) -> None:
        """The generation is over, and what was owned in it is lost."""
        self.outbox.note("generation-reset", generation=self.generation.generation_id, why=reason)
        self._reset_state(keeps_member_id=keeps_member_id)
        self.request_rejoin(reason)
        self.needs_join_prepare = True

    def _reset_on_response_error(self, what: What, code: int, *, keeps_member_id: bool) -> None:
        self.reset_state_and_rejoin(
            f"encountered {error_code(code)} from {what.value} response", keeps_member_id=keeps_member_id
        )

    def coordinator_failed(self, sent: Sent, event: Failed) -> None:
        """The coordinator did not answer: it is not one any more, unless it is another one by now."""
        if event.failure in (Failure.DISCONNECTED, Failure.TIMED_OUT) and sent.incarnation == self.lookup.incarnation:
            is_disconnected = event.failure is Failure.DISCONNECTED
            self.lookup.mark_coordinator_unknown(
                f"{sent.what.value}: {event.failure.value}", is_disconnected=is_disconnected
            )

    def request_failed(self, sent: Sent, event: Failed) -> None:
        """A request about membership has no answer and will have none."""
        match sent.what:
            case What.JOIN_GROUP | What.SYNC_GROUP:
                self._join_failed(sent, event)
            case What.HEARTBEAT:
                self.heartbeat.fail_heartbeat(self.outbox.now_ms)
                if event.error is not None and not self._waits_for_call:
                    self.tell(error_without_answer(event, self.config.group_id, sent.what))
            case What.LEAVE_GROUP if event.failure is Failure.UNSUPPORTED and self._leaving is not None:
                self._leave_alone(self._leaving)
            case _:
                pass

    def _join_failed(self, sent: Sent, event: Failed) -> None:
        if event.error is not None or event.failure is Failure.UNSUPPORTED:
            self._fail(error_without_answer(event, self.config.group_id, sent.what))
        else:
            self._retry(f"rebalance failed due to {event.failure.value}", at_once=False)

    # --- heartbeats -----------------------------------------------------------------------------------------------

    def run_heartbeat(self) -> None:
        """One turn of Kafka's heartbeat thread: at most one of these is done."""
        now_ms = self.outbox.now_ms
        if self.state.has_not_joined_group or self.failure is not None:
            return
        if self.lookup.coordinator is None:
            self.ensure_coordinator_ready()
        elif self.heartbeat.session_timeout_expired(now_ms):
            self.lookup.mark_coordinator_unknown("session timed out without a heartbeat response")
        elif self.heartbeat.poll_timeout_expired(now_ms):
            self.maybe_leave_group("consumer poll timeout has expired")
            self._waits_for_call = True
        elif self.heartbeat.should_heartbeat(now_ms):
            self.heartbeat.sent_heartbeat(now_ms)
            body = group_requests.heartbeat(self.config, self.generation)
            self._send(What.HEARTBEAT, HEARTBEAT.key, body, self.config.request_timeout_ms)

    def heartbeat_answered(self, sent: Sent, body: HeartbeatResponse) -> None:
        """The answer to a heartbeat."""
        now_ms = self.outbox.now_ms
        code = body.error_code
        what = None if code == 0 else reaction(HEARTBEAT_TABLE, code)
        match what:
            case None:
                self.heartbeat.receive_heartbeat(now_ms)
            case Reaction.REJOIN:
                # The coordinator goes on counting us as alive, so we go on too, until we have joined.
                self.heartbeat.receive_heartbeat(now_ms)
                if self.state is MemberState.STABLE:
                    self.request_rejoin_if_necessary("group is already rebalancing")
            case Reaction.FIND_COORDINATOR:
                self.heartbeat.fail_heartbeat(now_ms)
                self.lookup.mark_coordinator_unknown(str(error_code(code)))
            case Reaction.NEW_MEMBER | Reaction.NEW_GENERATION | Reaction.FENCED:
                if sent.generation != self.generation:
                    self.heartbeat.receive_heartbeat(now_ms)
                    return
                self.heartbeat.fail_heartbeat(now_ms)
                keeps_member_id = what is Reaction.NEW_GENERATION
                self._reset_on_response_error(sent.what, code, keeps_member_id=keeps_member_id)
                if what is Reaction.FENCED:
                    self.end(error_of(code, self.config.group_id, sent.what.value))
            case _:
                self.heartbeat.fail_heartbeat(now_ms)
                if not self._waits_for_call:
                    self.tell(error_of(code, self.config.group_id, sent.what.value))

    # --- leaving --------------------------------------------------------------------------------------------------

    def maybe_leave_group(self, reason: str) -> bool:
        """Leave, if the coordinator knows us and we are no static member; one attempt.  Whether it was sent."""
        is_sent = (
            self.config.is_dynamic_member
            and self.lookup.coordinator is not None
            and self.state is not MemberState.UNJOINED
            and self.generation.has_member_id
        )
        if is_sent:
            self.outbox.note("leaving", member=self.generation.member_id, reason=reason)
            self._leaving = self.generation
            body = group_requests.leave_group(self.config, self.generation, reason)
            self._send(What.LEAVE_GROUP, LEAVE_GROUP.key, body, self.config.request_timeout_ms)
        if self.step in (JoinStep.JOINING, JoinStep.ELECTED, JoinStep.SYNCING):
            self.give_up_joining()
        self.reset_state_and_rejoin("consumer pro-actively leaving the group", keeps_member_id=False)
        return is_sent

    def _leave_alone(self, leaving: Generation) -> None:
        self._leaving = None
        if self.lookup.coordinator is not None:
            body = group_requests.leave_group_alone(self.config, leaving)
            self._send(
                What.LEAVE_GROUP, LEAVE_GROUP.key, body, self.config.request_timeout_ms, version_most=BATCHED_FROM - 1
            )

    def leave_answered(self, body: LeaveGroupResponse) -> None:
        """The answer to LeaveGroup: noted, and nothing is tried again."""
        self._leaving = None
        codes = [body.error_code, *(member.error_code for member in body.members)]
        if len(body.members) > 1:
            self.outbox.note("leave-answered-oddly", members=len(body.members))
        refused = next((code for code in codes if code != 0), 0)
        if refused:
            self.outbox.note("leave-refused", error=str(error_code(refused)))
