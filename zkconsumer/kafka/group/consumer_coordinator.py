r"""A member of a consumer group: the entry point of the whole machine, and how the member leaves.  Pure.

    handle(event, now_ms) --> dispatch to one part --> _advance: run every step that is possible now --> commands,
    timers

      discovery and membership                     what depends on them
      coordinator_discovery                        commit_queue, offset_fetches: requests to the coordinator
      group_member: heartbeats, leaving            auto_commit_scheduler: automatic commits
      abstract_coordinator: join, sync             revocation: stop, commit, callback
      consumer_rebalance: revoke, apply            leadership: the computed assignment and its input
                                                   subscription_state: topics, assignment, metadata

Callbacks of the program are commands (``Invoke``) with an answer (``CallbackDone``): heartbeats continue meanwhile.  A
timer only causes another ``_advance``; the clock decides what is due.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zkconsumer.errors import ConnectorClosed
from zkconsumer.kafka.group import events as ev
from zkconsumer.kafka.group.commands import Command, CommitDone, DisconnectCoordinator, FetchDone, MemberStopped
from zkconsumer.kafka.group.commit_queue import CommitReason, PendingCommit
from zkconsumer.kafka.group.consumer_rebalance import ConsumerRebalance, Exit
from zkconsumer.kafka.group.events import TimerKind
from zkconsumer.kafka.group.generation import MemberState
from zkconsumer.kafka.group.group_member import JoinStep
from zkconsumer.kafka.group.group_member_config import GroupMemberConfig
from zkconsumer.kafka.group.offset_fetches import OffsetFetches
from zkconsumer.kafka.group.partition_assignor import ConsumerPartitionAssignor
from zkconsumer.kafka.group.pending_commands import RequestKind
from zkconsumer.kafka.net.exponential_backoff import Uniform
from zkconsumer.member.ownership import PositionsCollected
from zkconsumer.types import TopicPartition


class ConsumerCoordinator(ConsumerRebalance):
    """The state machine of one member of one consumer group; it does no I/O.

    ``assignors``: in order of preference; their highest common protocol is used.  ``uniform`` returns numbers from 0 to
    1 for the jitter of pauses.  Raises ``InvalidConfigException`` when the assignors have no common protocol.
    """

    def __init__(
        self, config: GroupMemberConfig, assignors: Sequence[ConsumerPartitionAssignor], uniform: Uniform, now_ms: int
    ) -> None:
        super().__init__(config, assignors, uniform, now_ms)
        self.offset_fetches = OffsetFetches(self)
        self._is_polled = False
        self._leaves = True
        self._has_left = False
        self._close_until_ms: int | None = None

    @property
    def is_settled(self) -> bool:
        """Whether a call of the program would change nothing but the time of its last call.

        It may be reported later then (``Polled.busy_since_ms``), until a timer fires.
        """
        discovery = self.coordinator_discovery
        if self._waits_for_call or self.exit is not Exit.NONE or discovery.coordinator is None or discovery.fatal:
            return False
        if not self.has_auto_assigned_partitions:
            return self._is_polled
        return self.state is MemberState.STABLE and self.revocation is None and not self.rejoin_needed_or_pending()

    # --- the entry point ------------------------------------------------------------------------------------------

    def handle(self, event: ev.Event, now_ms: int) -> list[Command]:
        """Process one event; returns the commands to execute, in order.  ``now_ms`` never decreases."""
        self.pending_commands.now_ms = now_ms
        if self.exit is Exit.STOPPED:
            self._handle_event_after_stop(event)
        else:
            self._handle_event(event)
            self._advance()
        self.pending_commands.set_timers({} if self.exit is Exit.STOPPED else self._deadlines())
        return self.pending_commands.take_all()

    def _handle_event(self, event: ev.Event) -> None:
        until_ms = self.pending_commands.now_ms + self.config.default_api_timeout_ms
        match event:
            case ev.Polled(busy_since_ms, stream):
                self._is_polled = self.polled(busy_since_ms, stream) or self._is_polled
            case ev.Subscribed(topics, takes):
                if not self.subscriptions.has_auto_assigned_partitions:
                    self.poll_heartbeat()
                self.subscriptions.subscribe(topics, takes)
            case ev.Unsubscribed():
                self.subscriptions.unsubscribe()
                self.new_partitions.forget()
                if self.exit is Exit.NONE:
                    self.exit = Exit.UNSUBSCRIBING
            case ev.MetadataUpdated():
                self.subscriptions.metadata_updated(event)
                self.new_partitions.on_metadata(self.subscriptions.partition_counts())
            case ev.Responded():
                self._responded(event)
            case ev.RequestFailed():
                self._failed(event)
            case ev.Disconnected(node):
                if (
                    self.coordinator_discovery.coordinator is not None
                    and self.coordinator_discovery.coordinator.id == node
                ):
                    self.coordinator_discovery.mark_coordinator_unknown("disconnected", is_disconnected=True)
            case ev.MemberTimerFired():
                pass
            case ev.CommitAsked(number, offsets, retried, timeout_ms):
                self.coordinator_discovery.clear_fatal_error()
                if timeout_ms is not None:
                    until_ms = self.pending_commands.now_ms + timeout_ms
                self.commit_queue.ask(PendingCommit(number, offsets, CommitReason.REQUESTED, retried, until_ms))
            case PositionsCollected(positions):
                self._collected({tp: ev.Offset(at) for tp, at in positions.items() if at >= 0})
            case ev.OffsetsCollected(offsets):
                self._collected(offsets)
            case ev.FetchAsked():
                self.coordinator_discovery.clear_fatal_error()
                self.offset_fetches.ask(event)
            case ev.CallbackDone(number, error=error):
                self.called(number, error)
            case ev.RejoinAsked(reason):
                self.poll_heartbeat()
                self.request_rejoin(reason)
            case ev.AssignorsOffered(assignors):
                self.set_assignors(assignors)
            case ev.Closed(leave, timeout_ms):
                self.exit = Exit.CLOSING
                self._leaves = leave
                self._close_until_ms = self.pending_commands.now_ms + timeout_ms

    def _handle_event_after_stop(self, event: ev.Event) -> None:
        error = ConnectorClosed(f"this member of group {self.config.group_id} is closed")
        match event:
            case ev.CommitAsked(number):
                self.pending_commands.add(CommitDone(number, error, {}))
            case ev.FetchAsked(number):
                self.pending_commands.add(FetchDone(number, {}, error))
            case _:
                pass

    def _responded(self, event: ev.Responded) -> None:
        sent = self.pending_commands.answered(event.request)
        if sent is None:
            return
        if sent.what is not RequestKind.FIND_COORDINATOR and sent.incarnation == self.coordinator_discovery.incarnation:
            self.coordinator_discovery.record_response()
        match sent.what:
            case RequestKind.FIND_COORDINATOR:
                if self.coordinator_discovery.answered(event.body):
                    self.heartbeat.reset_session_timeout(self.pending_commands.now_ms)
            case RequestKind.JOIN_GROUP:
                self.join_answered(sent, event.body)
            case RequestKind.SYNC_GROUP:
                self.sync_answered(sent, event.body)
            case RequestKind.HEARTBEAT:
                self.heartbeat_answered(sent, event.body)
            case RequestKind.LEAVE_GROUP:
                self.leave_answered(event.body)
            case RequestKind.OFFSET_COMMIT:
                self.commit_queue.answered(sent, event.body)
            case RequestKind.OFFSET_FETCH:
                self.offset_fetches.answered(sent, event.body)

    def _failed(self, event: ev.RequestFailed) -> None:
        sent = self.pending_commands.answered(event.request)
        if sent is None:
            return
        if sent.what is RequestKind.FIND_COORDINATOR:
            self.coordinator_discovery.failed(event)
            return
        self.coordinator_failed(sent, event)
        match sent.what:
            case RequestKind.OFFSET_COMMIT:
                self.commit_queue.failed(event)
            case RequestKind.OFFSET_FETCH:
                self.offset_fetches.failed(sent, event)
            case _:
                self.request_failed(sent, event)

    def _collected(self, offsets: Mapping[TopicPartition, ev.Offset]) -> None:
        if self.has_auto_assigned_partitions:
            # Another member may own a partition that was lost meanwhile, and may have committed a larger offset.
            offsets = {tp: offset for tp, offset in offsets.items() if tp in self.assigned}
        match self.auto_commit.collected():
            case CommitReason.AUTOMATIC:
                until_ms = self.pending_commands.now_ms + self.config.default_api_timeout_ms
                self.commit_queue.ask(
                    PendingCommit(0, offsets, CommitReason.AUTOMATIC, is_retried=False, until_ms=until_ms)
                )
            case CommitReason.REVOCATION if self.revocation is not None:
                self.revocation.collected(offsets)
            case _:
                pass

    # --- what is possible now -------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Repeat until no step is possible: the end of one step (a commit) may enable another one (a revocation)."""
        before = None
        while before != self._progress() and self.exit is not Exit.STOPPED:
            before = self._progress()
            self.run_heartbeat()
            self.check_for_changes()
            self.join_group_if_needed()
            if self._commits_by_itself():
                self.auto_commit.collect_if_due()
            self.commit_queue.advance()
            self.offset_fetches.advance()
            if self.exit is not Exit.NONE:
                self._advance_exit()

    def _progress(self) -> tuple[object, ...]:
        # The revocation of an empty set emits no command: only its step shows that it has ended.
        handing = None if self.revocation is None else self.revocation.step
        return self.step, self.state, self.exit, self.pending_commands.command_count, handing

    def _commits_by_itself(self) -> bool:
        if not self.config.enable_auto_commit or self.exit is not Exit.NONE or self.failure is not None:
            return False
        if self.has_auto_assigned_partitions:
            return self.commits_while_joining or (self.state is MemberState.STABLE and bool(self.assigned))
        return self._is_polled

    def _deadlines(self) -> dict[TimerKind, int]:
        deadlines: dict[TimerKind, int] = {}
        has_coordinator = self.coordinator_discovery.coordinator is not None
        is_in_group = not self.state.has_not_joined_group and self.failure is None
        if is_in_group and has_coordinator:
            deadlines[TimerKind.HEARTBEAT] = self.heartbeat.next_heartbeat_ms
            deadlines[TimerKind.SESSION] = self.heartbeat.session_until_ms
            deadlines[TimerKind.POLL] = self.heartbeat.poll_until_ms
        pauses = [self.commit_queue.retry_at_ms, self.offset_fetches.retry_at_ms]
        if self.step is JoinStep.IDLE and self.wants_group() and self.rejoin_needed:
            pauses.append(self.retry_at_ms)
        if not has_coordinator and not self.coordinator_discovery.has_pending_request:
            pauses.append(self.coordinator_discovery.retry_at_ms)
        ahead = [at for at in pauses if at is not None and at > self.pending_commands.now_ms]
        if ahead:
            deadlines[TimerKind.BACKOFF] = min(ahead)
        if self._commits_by_itself():
            deadlines[TimerKind.AUTO_COMMIT] = self.auto_commit.next_ms
        if self.revocation is not None:
            deadlines[TimerKind.REBALANCE] = self.revocation.until_ms
        elif self.leadership.metadata_until_ms is not None:
            deadlines[TimerKind.REBALANCE] = self.leadership.metadata_until_ms
        if self._close_until_ms is not None:
            deadlines[TimerKind.CLOSE] = self._close_until_ms
        return deadlines

    # --- leaving --------------------------------------------------------------------------------------------------

    def _advance_exit(self) -> None:
        """Revoke, leave, and then become idle or stop; a running callback is waited for first."""
        is_late = self._close_until_ms is not None and self.pending_commands.now_ms >= self._close_until_ms
        if not self._has_left and (self._revoke_all() or is_late):
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
        elif is_late or (
            self.commit_queue.is_idle
            and self.offset_fetches.is_idle
            and not self.pending_commands.has_in_flight(RequestKind.LEAVE_GROUP)
        ):
            self._stop()

    def _revoke_all(self) -> bool:
        """Whether all partitions are revoked.

        JoinGroup and SyncGroup requests in flight are abandoned only after the last commit: when the previous
        generation ends first, the coordinator accepts that commit only in the next one.
        """
        if self.step is JoinStep.PREPARING and not self.on_join_prepare():
            return False
        if self.step is JoinStep.COMPLETING and not self._skip_assignment():
            return False
        if self.step in (JoinStep.PREPARING, JoinStep.COMPLETING):
            self.step = JoinStep.IDLE
        if self.revocation is None and self.assigned:
            self.revocation = self.new_revocation(self.assigned, self._close_until_ms)
        if self.revocation is not None:
            if self.step is JoinStep.ELECTED:
                self.sync_as_leader()
            if not self.revocation.advance():
                return False
            self.on_revoked()
        return True

    def _skip_assignment(self) -> bool:
        """Whether the assignment of this generation needs no further action.

        Partitions that were revoked before this generation are not applied again; only their commit is sent in it.
        """
        if self.is_applying_assignment or self.revocation is None:
            return self.on_join_complete(self.assignment_bytes)
        self.revocation.leave_out(self.partitions_already_transferred(self.assignment_bytes))
        return True

    def _release_at_once(self) -> None:
        """When the time of ``close`` is over, the program is called for all partitions that it still has."""
        revoked: frozenset[TopicPartition] = frozenset()
        if self.revocation is not None:
            self.revocation.stop_waiting()
            revoked = self.revocation.partitions
        if self.assigned - revoked:
            # A lost generation was drained when it was reset.
            is_drained = self.generation.is_lost
            self.new_revocation(self.assigned - revoked, is_drained=is_drained).stop_waiting()

    def _stop(self) -> None:
        unanswered = len(self.pending_commands.in_flight)
        if unanswered:
            self.pending_commands.log_event(
                "close-timed-out",
                f"Close timed out with {unanswered} pending requests to coordinator, terminating client connections",
                requests=unanswered,
            )
        self._release_at_once()
        self.commit_queue.give_up("the member was closed before its commit was answered")
        self.offset_fetches.give_up()
        if self.coordinator_discovery.coordinator is not None:
            self.pending_commands.add(DisconnectCoordinator(self.coordinator_discovery.coordinator.id))
        self.exit = Exit.STOPPED
        self.pending_commands.add(MemberStopped())
