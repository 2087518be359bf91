r"""A member of a consumer group: an ``AbstractCoordinator`` for consumers, and the door of the whole machine.  Pure.

    handle(event, now_ms) --> hear: one machine changes --> advance: what is possible now --> commands, timers

      discovery x membership          what hangs on it
      coordinator_lookup              commits, fetches: questions to the coordinator
      abstract_coordinator            positions: automatic commits      hand_back: stop, commit, call
      (join, sync, heartbeat, leave)  subscription_state: topics, assignment, metadata

Callbacks of the program are commands (``Invoke``) with an answer (``CallbackDone``): heartbeats go on meanwhile.  A
timer says only that it is time to look; what is due follows from the clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from bridge.client import events as ev
from bridge.client.abstract_coordinator import AbstractCoordinator, JoinStep
from bridge.client.assignments import (
    lookup_assignor,
    perform_assignment,
    read_subscriptions,
    select_rebalance_protocol,
)
from bridge.client.assignor import (
    NO_GENERATION,
    Assignment,
    ConsumerPartitionAssignor,
    RebalanceProtocol,
    Subscription,
)
from bridge.client.backoff import Uniform
from bridge.client.commands import (
    Callback,
    Command,
    CommitDone,
    Disconnect,
    FetchDone,
    Invoke,
    StartFetching,
    StopFetching,
    Stopped,
)
from bridge.client.commits import Commit, Commits, Refused, Why
from bridge.client.config import GroupConfig
from bridge.client.errors import AssignorFailed, RebalanceCallbackFailed
from bridge.client.events import TimerKind
from bridge.client.fetches import Fetches
from bridge.client.generation import MemberState
from bridge.client.hand_back import HandBack
from bridge.client.outbox import What
from bridge.client.positions import PositionsDesk
from bridge.client.subscription_state import SubscriptionState
from zkconsumer.errors import BrokerUnreachable, ConnectorClosed, ZkConsumerError
from zkconsumer.types import TopicPartition
from zkconsumer.wire.consumer_protocol import PROTOCOL_TYPE, decode_assignment, encode_subscription
from zkconsumer.wire.schemas.join_group import JoinGroupMember, JoinGroupProtocol


REVOKED_REASON = "need to revoke partitions and re-join"


class Exit(Enum):
    """Whether the member is on its way out."""

    NONE = "none"
    UNSUBSCRIBING = "unsubscribing"
    CLOSING = "closing"
    STOPPED = "stopped"


@dataclass(slots=True)
class _TakingUp:
    """A share that is being taken up: what of it is new, and the callback that is told of it once it was called."""

    assignment: Assignment
    assignor: ConsumerPartitionAssignor
    added: frozenset[TopicPartition] = frozenset()
    call: int | None = None
    is_called: bool = False
    error: Exception | None = None


class ConsumerCoordinator(AbstractCoordinator):
    """One member of one consumer group, without the world.

    ``assignors``: the best first; their highest common protocol is spoken.  ``uniform`` gives numbers from 0 to 1 for
    the jitter of pauses.  Raises ``InvalidConfigException`` when the assignors do not go together.
    """

    def __init__(
        self, config: GroupConfig, assignors: Sequence[ConsumerPartitionAssignor], uniform: Uniform, now_ms: int
    ) -> None:
        super().__init__(config, uniform, now_ms)
        self.assignors = tuple(assignors)
        self.protocol = select_rebalance_protocol(self.assignors)
        self.subscriptions = SubscriptionState(self.outbox)
        self.positions = PositionsDesk(config, self.backoff, self.outbox)
        self.commits = Commits(self, self._commit_finished)
        self.fetches = Fetches(self)
        self.is_leader = False
        self.exit = Exit.NONE
        self._joined_topics: frozenset[str] | None = None
        self._assignment_snapshot: dict[str, int] | None = None
        self._divided: dict[str, int] | None = None
        """By what this process divided last, whatever became of its membership since."""
        self._owned_generation = NO_GENERATION
        self._revoked_in: int | None = None
        """In which generation we last gave back what somebody else shall have in the next one."""
        self._hand_back: HandBack | None = None
        self._taking_up: _TakingUp | None = None
        self._metadata_until_ms: int | None = None
        self._is_polled = False
        self._leaves = True
        self._has_left = False
        self._close_until_ms: int | None = None

    # --- the door -------------------------------------------------------------------------------------------------

    def handle(self, event: ev.Event, now_ms: int) -> list[Command]:
        """Take one event in; give back what must now be done, in order.  ``now_ms`` never goes back."""
        self.outbox.now_ms = now_ms
        if self.exit is Exit.STOPPED:
            self._hear_after_the_end(event)
        else:
            self._hear(event)
            self._advance()
        self.outbox.set_timers({} if self.exit is Exit.STOPPED else self._deadlines())
        return self.outbox.taken()

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """What this member reads, or is about to give back."""
        return self.subscriptions.assigned

    def _hear(self, event: ev.Event) -> None:
        until_ms = self.outbox.now_ms + self.config.default_api_timeout_ms
        match event:
            case ev.Polled():
                self._is_polled = True
                self.poll_heartbeat()
            case ev.Subscribed(topics, pattern):
                if not self.subscriptions.has_auto_assigned_partitions:
                    self.poll_heartbeat()
                self.subscriptions.subscribe(topics, pattern)
            case ev.Unsubscribed():
                self.subscriptions.unsubscribe()
                if self.exit is Exit.NONE:
                    self.exit = Exit.UNSUBSCRIBING
            case ev.MetadataUpdated():
                self.subscriptions.metadata_updated(event)
            case ev.Responded():
                self._responded(event)
            case ev.Failed():
                self._failed(event)
            case ev.Disconnected(node):
                if self.lookup.coordinator is not None and self.lookup.coordinator.id == node:
                    self.lookup.mark_coordinator_unknown("disconnected", is_disconnected=True)
            case ev.TimerFired():
                pass
            case ev.CommitAsked(number, offsets, retried):
                self.lookup.allow()
                self.commits.ask(Commit(number, offsets, Why.ASKED, retried, until_ms))
            case ev.PositionsCollected(offsets):
                self._collected(offsets)
            case ev.FetchAsked():
                self.lookup.allow()
                self.fetches.ask(event)
            case ev.CallbackDone(number, error=error):
                self._called(number, error)
            case ev.RejoinAsked(reason):
                self.poll_heartbeat()
                self.request_rejoin(reason)
            case ev.Closed(leave, timeout_ms):
                self.exit = Exit.CLOSING
                self._leaves = leave
                self._close_until_ms = self.outbox.now_ms + timeout_ms

    def _hear_after_the_end(self, event: ev.Event) -> None:
        error = ConnectorClosed(f"this member of group {self.config.group_id} is closed")
        match event:
            case ev.CommitAsked(number):
                self.outbox.say(CommitDone(number, error, {}))
            case ev.FetchAsked(number):
                self.outbox.say(FetchDone(number, {}, error))
            case _:
                pass

    def _responded(self, event: ev.Responded) -> None:
        sent = self.outbox.answered(event.request)
        if sent is None:
            return
        if sent.what is not What.FIND_COORDINATOR and sent.incarnation == self.lookup.incarnation:
            self.lookup.is_alive()
        match sent.what:
            case What.FIND_COORDINATOR:
                if self.lookup.answered(event.body):
                    self.heartbeat.reset_session_timeout(self.outbox.now_ms)
            case What.JOIN_GROUP:
                self.join_answered(sent, event.body)
            case What.SYNC_GROUP:
                self.sync_answered(sent, event.body)
            case What.HEARTBEAT:
                self.heartbeat_answered(sent, event.body)
            case What.LEAVE_GROUP:
                self.leave_answered(event.body)
            case What.OFFSET_COMMIT:
                self.commits.answered(sent, event.body)
            case What.OFFSET_FETCH:
                self.fetches.answered(sent, event.body)

    def _failed(self, event: ev.Failed) -> None:
        sent = self.outbox.answered(event.request)
        if sent is None:
            return
        if sent.what is What.FIND_COORDINATOR:
            self.lookup.failed(event)
            return
        self.coordinator_failed(sent, event)
        match sent.what:
            case What.OFFSET_COMMIT:
                self.commits.failed(event)
            case What.OFFSET_FETCH:
                self.fetches.failed(sent, event)
            case _:
                self.request_failed(sent, event)

    def _collected(self, offsets: Mapping[TopicPartition, ev.Offset]) -> None:
        if self.has_auto_assigned_partitions:
            # What was lost meanwhile may be somebody else's, who is further.
            offsets = {tp: offset for tp, offset in offsets.items() if tp in self.assigned}
        match self.positions.collected():
            case Why.AUTOMATIC:
                until_ms = self.outbox.now_ms + self.config.default_api_timeout_ms
                self.commits.ask(Commit(0, offsets, Why.AUTOMATIC, is_retried=False, until_ms=until_ms))
            case Why.HAND_BACK if self._hand_back is not None:
                self._hand_back.collected(offsets)
            case _:
                pass

    def _called(self, number: int, error: Exception | None) -> None:
        if self._hand_back is not None and self._hand_back.called(number, error):
            return
        taking_up = self._taking_up
        if taking_up is not None and taking_up.call == number:
            taking_up.is_called = True
            taking_up.error = taking_up.error or error

    def _commit_finished(self, commit: Commit, error: ZkConsumerError | None, refused: Refused) -> None:
        match commit.why:
            case Why.ASKED:
                self.outbox.say(CommitDone(commit.number, error, refused))
            case Why.AUTOMATIC:
                self.positions.committed(commit, error, refused)
            case Why.HAND_BACK:
                if error is not None:
                    self.outbox.note("last-commit-failed", why=str(error))
                if self._hand_back is not None:
                    self._hand_back.committed(commit.number)

    # --- what is possible now -------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Until there is nothing to do: the end of one thing (a commit) may be what another waits for (a hand-back)."""
        before = None
        while before != self._at() and self.exit is not Exit.STOPPED:
            before = self._at()
            self.run_heartbeat()
            self._look_for_changes()
            self.join_group_if_needed()
            if self._commits_by_itself():
                self.positions.collect_if_due()
            self.commits.advance()
            self.fetches.advance()
            if self.exit is not Exit.NONE:
                self._advance_exit()

    def _at(self) -> tuple[object, ...]:
        return self.step, self.state, self.exit, self.outbox.said, self._hand_back is None

    def _look_for_changes(self) -> None:
        """What the leader has divided may not be what there is now, nor what we joined with what we want now."""
        snapshot = self._assignment_snapshot
        if snapshot is not None and snapshot != self.subscriptions.snapshot():
            self.request_rejoin_if_necessary("cached metadata has changed")
        if self._joined_topics is not None and self._joined_topics != self.subscriptions.topics:
            self.request_rejoin_if_necessary("subscription has changed")

    def _commits_by_itself(self) -> bool:
        if not self.config.enable_auto_commit or self.exit is not Exit.NONE or self.failure is not None:
            return False
        if self.has_auto_assigned_partitions:
            return self.state is MemberState.STABLE and bool(self.assigned)
        return self._is_polled

    def _deadlines(self) -> dict[TimerKind, int]:
        deadlines: dict[TimerKind, int] = {}
        has_coordinator = self.lookup.coordinator is not None
        is_in_group = not self.state.has_not_joined_group and self.failure is None
        if is_in_group and has_coordinator:
            deadlines[TimerKind.HEARTBEAT] = self.heartbeat.next_heartbeat_ms
            deadlines[TimerKind.SESSION] = self.heartbeat.session_until_ms
            deadlines[TimerKind.POLL] = self.heartbeat.poll_until_ms
        pauses = [self.commits.retry_at_ms, self.fetches.retry_at_ms]
        if self.step is JoinStep.RESTING and self.wants_group() and self.rejoin_needed:
            pauses.append(self.retry_at_ms)
        if not has_coordinator and not self.lookup.is_looking:
            pauses.append(self.lookup.retry_at_ms)
        ahead = [at for at in pauses if at is not None and at > self.outbox.now_ms]
        if ahead:
            deadlines[TimerKind.BACKOFF] = min(ahead)
        if self._commits_by_itself():
            deadlines[TimerKind.AUTO_COMMIT] = self.positions.next_ms
        if self._hand_back is not None:
            deadlines[TimerKind.REBALANCE] = self._hand_back.until_ms
        elif self._metadata_until_ms is not None:
            deadlines[TimerKind.REBALANCE] = self._metadata_until_ms
        if self._close_until_ms is not None:
            deadlines[TimerKind.CLOSE] = self._close_until_ms
        return deadlines

    # --- what the group is for: the answers to AbstractCoordinator ------------------------------------------------

    @property
    def protocol_type(self) -> str:
        """See ``AbstractCoordinator``."""
        return PROTOCOL_TYPE

    @property
    def has_auto_assigned_partitions(self) -> bool:
        """See ``AbstractCoordinator``."""
        return self.subscriptions.has_auto_assigned_partitions or bool(self.assigned)

    def wants_group(self) -> bool:
        """See ``AbstractCoordinator``."""
        return self.subscriptions.has_auto_assigned_partitions and self.exit is Exit.NONE

    def metadata(self) -> Sequence[JoinGroupProtocol]:
        """Our subscription, once for each assignor: each may say something of its own."""
        topics = self.subscriptions.topics or frozenset()
        self._joined_topics = topics
        self._metadata_until_ms = None
        return [
            JoinGroupProtocol(
                name=assignor.name,
                metadata=encode_subscription(
                    Subscription(
                        topics=tuple(sorted(topics)),
                        user_data=assignor.subscription_user_data(topics),
                        owned_partitions=tuple(sorted(self.assigned)),
                        generation_id=self._owned_generation,
                        rack_id=self.config.client_rack,
                    )
                ),
            )
            for assignor in self.assignors
        ]

    def on_leader_elected(
        self, protocol: str, members: Sequence[JoinGroupMember], *, skip_assignment: bool
    ) -> Mapping[str, bytes] | None:
        """Divide what all members together subscribe to; wait until all of it is known."""
        assignor = lookup_assignor(self.assignors, protocol, self.config.group_id)
        subscriptions = read_subscriptions(members)
        topics = {topic for subscription in subscriptions.values() for topic in subscription.topics}
        if not self.subscriptions.group_subscribe(topics):
            now_ms = self.outbox.now_ms
            self._metadata_until_ms = self._metadata_until_ms or now_ms + self.config.max_poll_interval_ms
            if now_ms < self._metadata_until_ms:
                return None
            self._metadata_until_ms = None
            raise BrokerUnreachable(f"no broker told how many partitions the topics of {self.config.group_id} have")
        self._metadata_until_ms = None
        self.is_leader = True
        partitions = self.subscriptions.snapshot()
        shares: Mapping[str, bytes] = {}
        # A coordinator that divides by itself may name us as the leader and tell us of nobody.
        if subscriptions and not skip_assignment:
            shares = perform_assignment(assignor, self.protocol, partitions, subscriptions, self.subscriptions.racks())
            self._divided = partitions
        # The share that stands was divided by what there was then: what has changed since is a reason to rebalance.
        self._assignment_snapshot = partitions if self._divided is None else self._divided
        self.outbox.note("assigned-group", members=len(members), topics=len(partitions), is_skipped=skip_assignment)
        return shares

    def on_join_prepare(self) -> bool:
        """Give back what may not be kept while the group forms anew; whether that is through."""
        if self._hand_back is None:
            self._hand_back = self._new_hand_back(self._to_give_back_first())
        if not self._hand_back.advance():
            return False
        self._gave_back()
        self.is_leader = False
        self._assignment_snapshot = None
        self.subscriptions.reset_group_subscription()
        return True

    def _to_give_back_first(self) -> frozenset[TopicPartition]:
        if self.generation.is_lost or self.protocol is RebalanceProtocol.EAGER:
            return self.assigned
        wanted = self.subscriptions.topics or frozenset()
        return frozenset(tp for tp in self.assigned if tp.topic not in wanted)

    def _new_hand_back(self, partitions: frozenset[TopicPartition], until_ms: int | None = None) -> HandBack:
        is_leaving = self.exit is not Exit.NONE
        return HandBack(
            self, self.commits, self.positions, partitions,
            until_ms or self.outbox.now_ms + self.config.max_poll_interval_ms,
            commits_first=self.config.enable_auto_commit and bool(self.assigned), is_leaving=is_leaving,
        )  # fmt: skip

    def _gave_back(self) -> None:
        """What was handed back is not ours any more."""
        done, self._hand_back = self._hand_back, None
        assert done is not None, "a hand-back ends once"
        self.subscriptions.assigned -= done.partitions
        if not self.assigned:
            self._owned_generation = NO_GENERATION
        self._callback_failed(done.error)

    def _callback_failed(self, error: Exception | None) -> None:
        if error is not None:
            told = error if isinstance(error, ZkConsumerError) else RebalanceCallbackFailed(f"it raised {error!r}")
            if told is not error:
                told.__cause__ = error
            self.tell(told)

    def on_join_complete(self, assignment: bytes) -> bool:
        """Take our share up: first give back what is not in it any more, then tell the program what is new."""
        if self._taking_up is None:
            self._taking_up = self._begin_taking_up(assignment)
            if self._taking_up is None:
                return True
        taking_up = self._taking_up
        if self._hand_back is not None:
            if not self._hand_back.advance():
                return False
            taking_up.error = self._hand_back.error
            self._hand_back.error = None
            self._gave_back()
            self._revoked_in = self.generation.generation_id
            self.request_rejoin(REVOKED_REASON)
        elif self._revoked_in == self.generation.generation_id and taking_up.call is None:
            # A static member that went away before it joined once more is given the same generation again, in which
            # nobody has what it gave back.
            self._revoked_in = None
            self.request_rejoin(REVOKED_REASON)
        if taking_up.call is None and not self._take_up(taking_up):
            self._taking_up = None
            return True
        if not taking_up.is_called:
            return False
        self._taking_up = None
        if taking_up.added and not self.generation.is_lost and self.exit is Exit.NONE:
            self.outbox.say(StartFetching(taking_up.added, self._owned_generation))
        self._callback_failed(taking_up.error)
        return True

    def _begin_taking_up(self, data: bytes) -> _TakingUp | None:
        if not self.is_leader:
            self._assignment_snapshot = None
        if not data:
            self.outbox.note("assignment-missing", generation=self.generation.generation_id)
        assignor = lookup_assignor(self.assignors, self.generation.protocol_name or "", self.config.group_id)
        assignment = decode_assignment(data)
        if not self.subscriptions.matches(assignment.partitions):
            self.request_rejoin("received assignment does not match the current subscription")
            return None
        revoked = self.assigned - frozenset(assignment.partitions)
        if revoked:
            self._hand_back = self._new_hand_back(revoked)
        return _TakingUp(assignment, assignor)

    def _take_up(self, taking_up: _TakingUp) -> bool:
        """The share is ours now; whether it still is."""
        if self.generation.is_lost or self.exit is not Exit.NONE:
            return False
        generation = self.generation.generation_id
        try:
            taking_up.assignor.on_assignment(taking_up.assignment, generation)
        except Exception as error:  # noqa: BLE001 - an assignor is the program's, and what it raises is told to it
            failure = AssignorFailed(f"the assignor {taking_up.assignor.name} raised {error!r}")
            failure.__cause__ = error
            taking_up.error = taking_up.error or failure
        assigned = frozenset(taking_up.assignment.partitions)
        taking_up.added = assigned - self.assigned
        self.subscriptions.assigned = assigned
        self._owned_generation = generation
        self.positions.restart()
        taking_up.call = self.outbox.new_number()
        self.outbox.note("assigned", generation=generation, partitions=len(assigned), added=len(taking_up.added))
        self.outbox.say(Invoke(taking_up.call, Callback.ASSIGNED, taking_up.added))
        return True

    # --- leaving --------------------------------------------------------------------------------------------------

    def end(self, error: ZkConsumerError) -> None:
        """See ``AbstractCoordinator``; what was ours is somebody else's."""
        if self.assigned:
            self.outbox.say(StopFetching(self.assigned))
        super().end(error)

    def _advance_exit(self) -> None:
        """Give back, leave, and then either rest or stop; a callback that runs is waited for first."""
        is_late = self._close_until_ms is not None and self.outbox.now_ms >= self._close_until_ms
        if not self._has_left and (self._let_go() or is_late):
            self._has_left = True
            if self._leaves or self.exit is Exit.UNSUBSCRIBING:
                closing = self.exit is Exit.CLOSING
                self.maybe_leave_group("the consumer is being closed" if closing else "the consumer unsubscribed")
        if not self._has_left:
            return
        if self.exit is Exit.UNSUBSCRIBING:
            self.exit = Exit.NONE
            self._has_left = False
            self._joined_topics = None
        elif is_late or (self.commits.is_idle and self.fetches.is_idle and not self.outbox.has_open(What.LEAVE_GROUP)):
            self._stop()

    def _let_go(self) -> bool:
        """Whether everything is given back."""
        if self.step in (JoinStep.JOINING, JoinStep.ELECTED, JoinStep.SYNCING):
            self.give_up_joining()
        if self.step is JoinStep.PREPARING and not self.on_join_prepare():
            return False
        if self.step is JoinStep.COMPLETING and not self.on_join_complete(self.assignment_bytes):
            return False
        if self.step in (JoinStep.PREPARING, JoinStep.COMPLETING):
            self.step = JoinStep.RESTING
        if self._hand_back is None and self.assigned:
            self._hand_back = self._new_hand_back(self.assigned, self._close_until_ms)
        if self._hand_back is not None:
            if not self._hand_back.advance():
                return False
            self._gave_back()
        return True

    def _stop(self) -> None:
        self.commits.give_up("the member was closed before its commit was answered")
        self.fetches.give_up()
        if self.lookup.coordinator is not None:
            self.outbox.say(Disconnect(self.lookup.coordinator.id))
        self.exit = Exit.STOPPED
        self.outbox.say(Stopped())
