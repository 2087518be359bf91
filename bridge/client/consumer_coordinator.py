r"""A member of a consumer group: the door of the whole machine, and how it leaves.  Pure.

    handle(event, now_ms) --> hear: one machine changes --> advance: what is possible now --> commands, timers

      discovery x membership                   what hangs on it
      coordinator_lookup                       commits, fetches: questions to the coordinator
      group_member: heartbeats, leaving        positions: automatic commits
      abstract_coordinator: join, sync         hand_back: stop, commit, call
      consumer_rebalance: give back, take up   leadership: what was divided, by what there was then
                                               subscription_state: topics, assignment, metadata

Callbacks of the program are commands (``Invoke``) with an answer (``CallbackDone``): heartbeats go on meanwhile.  A
timer says only that it is time to look; what is due follows from the clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bridge.client import events as ev
from bridge.client.assignor import ConsumerPartitionAssignor
from bridge.client.backoff import Uniform
from bridge.client.commands import Command, CommitDone, Disconnect, FetchDone, Stopped
from bridge.client.commits import Commit, Why
from bridge.client.config import GroupConfig
from bridge.client.consumer_rebalance import ConsumerRebalance, Exit
from bridge.client.events import TimerKind
from bridge.client.fetches import Fetches
from bridge.client.generation import MemberState
from bridge.client.group_member import JoinStep
from bridge.client.outbox import What
from zkconsumer.errors import ConnectorClosed
from zkconsumer.types import TopicPartition


class ConsumerCoordinator(ConsumerRebalance):
    """One member of one consumer group, without the world.

    ``assignors``: the best first; their highest common protocol is spoken.  ``uniform`` gives numbers from 0 to 1 for
    the jitter of pauses.  Raises ``InvalidConfigException`` when the assignors do not go together.
    """

    def __init__(
        self, config: GroupConfig, assignors: Sequence[ConsumerPartitionAssignor], uniform: Uniform, now_ms: int
    ) -> None:
        super().__init__(config, assignors, uniform, now_ms)
        self.fetches = Fetches(self)
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

    def _hear(self, event: ev.Event) -> None:
        until_ms = self.outbox.now_ms + self.config.default_api_timeout_ms
        match event:
            case ev.Polled(busy_since_ms, stream):
                self._is_polled = self.polled(busy_since_ms, stream) or self._is_polled
            case ev.Subscribed(topics, takes):
                if not self.subscriptions.has_auto_assigned_partitions:
                    self.poll_heartbeat()
                self.subscriptions.subscribe(topics, takes)
            case ev.Unsubscribed():
                self.subscriptions.unsubscribe()
                self.newcomers.forget()
                if self.exit is Exit.NONE:
                    self.exit = Exit.UNSUBSCRIBING
            case ev.MetadataUpdated():
                self.subscriptions.metadata_updated(event)
                self.newcomers.learnt(self.subscriptions.own_counts())
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
                self.called(number, error)
            case ev.RejoinAsked(reason):
                self.poll_heartbeat()
                self.request_rejoin(reason)
            case ev.AssignorsOffered(assignors):
                self.offer(assignors)
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
            case Why.HAND_BACK if self.hand_back is not None:
                self.hand_back.collected(offsets)
            case _:
                pass

    # --- what is possible now -------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Until there is nothing to do: the end of one thing (a commit) may be what another waits for (a hand-back)."""
        before = None
        while before != self._at() and self.exit is not Exit.STOPPED:
            before = self._at()
            self.run_heartbeat()
            self.look_for_changes()
            self.join_group_if_needed()
            if self._commits_by_itself():
                self.positions.collect_if_due()
            self.commits.advance()
            self.fetches.advance()
            if self.exit is not Exit.NONE:
                self._advance_exit()

    def _at(self) -> tuple[object, ...]:
        # Of a hand-back of nothing nothing is said: its step alone tells that it is through.
        handing = None if self.hand_back is None else self.hand_back.step
        return self.step, self.state, self.exit, self.outbox.said, handing

    def _commits_by_itself(self) -> bool:
        if not self.config.enable_auto_commit or self.exit is not Exit.NONE or self.failure is not None:
            return False
        if self.has_auto_assigned_partitions:
            return self.commits_while_joining or (self.state is MemberState.STABLE and bool(self.assigned))
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
        if self.hand_back is not None:
            deadlines[TimerKind.REBALANCE] = self.hand_back.until_ms
        elif self.leadership.metadata_until_ms is not None:
            deadlines[TimerKind.REBALANCE] = self.leadership.metadata_until_ms
        if self._close_until_ms is not None:
            deadlines[TimerKind.CLOSE] = self._close_until_ms
        return deadlines

    # --- leaving --------------------------------------------------------------------------------------------------

    def _advance_exit(self) -> None:
        """Give back, leave, and then either rest or stop; a callback that runs is waited for first."""
        is_late = self._close_until_ms is not None and self.outbox.now_ms >= self._close_until_ms
        if not self._has_left and (self._let_go() or is_late):
            self._has_left = True
            if self.awaits_generation:
                self.give_up_joining()
            if self._leaves or self.exit is Exit.UNSUBSCRIBING:
                closing = self.exit is Exit.CLOSING
                self.maybe_leave_group("the consumer is being closed" if closing else "the consumer unsubscribed")
        if not self._has_left:
            return
        if self.exit is Exit.UNSUBSCRIBING:
            self.exit = Exit.NONE
            self._has_left = False
            self.joined_topics = None
        elif is_late or (self.commits.is_idle and self.fetches.is_idle and not self.outbox.has_open(What.LEAVE_GROUP)):
            self._stop()

    def _let_go(self) -> bool:
        """Whether everything is given back.

        JoinGroup and SyncGroup that are on their way are given up behind the last commit: where the generation before
        ends first, that commit is accepted in the next one alone.
        """
        if self.step is JoinStep.PREPARING and not self.on_join_prepare():
            return False
        if self.step is JoinStep.COMPLETING and not self._pass_over_share():
            return False
        if self.step in (JoinStep.PREPARING, JoinStep.COMPLETING):
            self.step = JoinStep.RESTING
        if self.hand_back is None and self.assigned:
            self.hand_back = self.new_hand_back(self.assigned, self._close_until_ms)
        if self.hand_back is not None:
            if self.step is JoinStep.ELECTED:
                self.sync_as_leader()
            if not self.hand_back.advance():
                return False
            self.gave_back()
        return True

    def _pass_over_share(self) -> bool:
        """Whether nothing more is to be done about the share of this generation.

        What was given back since before this generation is not taken up again; only its commit is made in it.
        """
        if self.is_taking_up or self.hand_back is None:
            return self.on_join_complete(self.assignment_bytes)
        self.hand_back.leave_out(self.moved_at_once(self.assignment_bytes))
        return True

    def _stop(self) -> None:
        self.commits.give_up("the member was closed before its commit was answered")
        self.fetches.give_up()
        if self.lookup.coordinator is not None:
            self.outbox.say(Disconnect(self.lookup.coordinator.id))
        self.exit = Exit.STOPPED
        self.outbox.say(Stopped())
