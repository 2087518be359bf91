"""One member of a ZooKeeper group: combines the machines of session, membership, rebalance and partitions.

Every event enters through ``MemberStateMachine.handle``.  It returns the commands in the order in which they must be
executed:

    stop and drain before commit, commit before release, release before acquire, acquire before reading the position,
    reading the position before fetch.

When the group changes, the member commits the consumed offsets before it reads the group (``commit_on_change``).
The rebalance listener is called for released partitions between drain and commit, and for started partitions between
acquire and reading the position.

The state machines define which transitions are allowed; this module decides which step is *next*.  After each event
``_advance`` reads the states and starts every step that can start now.  So an answer that arrives late, or never
arrives because the session ended, needs no special case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from zkconsumer.member import commands as do
from zkconsumer.member import events as ev
from zkconsumer.member import membership_state_machine as mem
from zkconsumer.member import ownership
from zkconsumer.member import partition_state_machine as part
from zkconsumer.member import rebalance_state_machine as reb
from zkconsumer.member.commit_on_change import CommitOnChange
from zkconsumer.member.events import MemberTimer, WriteOutcome
from zkconsumer.member.listener_state_machine import ListenerStateMachine
from zkconsumer.member.log_rate_limiter import LOG_REPEAT_MS, LogRateLimiter
from zkconsumer.member.membership_state_machine import MembershipState, MembershipStateMachine
from zkconsumer.member.new_partition_tracker import NewPartitionTracker
from zkconsumer.member.offset_committer import NOT_OWNER, OffsetCommitter
from zkconsumer.member.offset_stores import OffsetStoreSelection
from zkconsumer.member.owner_watch_scheduler import OwnerWatchScheduler
from zkconsumer.member.partition_releaser import PartitionReleaser
from zkconsumer.member.partition_state_machine import PartitionState, PartitionStateMachine
from zkconsumer.member.position_reader import PositionReader
from zkconsumer.member.rebalance_state_machine import RebalanceState, RebalanceStateMachine
from zkconsumer.member.session_state_machine import SessionStateMachine
from zkconsumer.member.topic_messages import filter_topics_message, missing_topic_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from zkconsumer.member.commands import Command
    from zkconsumer.member.events import StoredOffset
    from zkconsumer.member.group_view import ControlRecord, GroupView, TopicSubscription
    from zkconsumer.member.topic_count import ConsumerThreadId
    from zkconsumer.types import TopicPartition

REGISTER_RETRY_MS = 500
RETRY_MAX_MS = 30_000
RETRY_GROWTH = 1.5
REGISTRATION_CONFLICT_GRACE_MS = 1_000
IDENTIFY_OWNERS_FROM_TRY = 2
KAFKA_RETRY_MAX_MS = 5_000
"""The longest retry pause when only the offsets from Kafka are missing."""

AUTHORITY_ZOOKEEPER = "zookeeper"

RegistrationResult: TypeAlias = ev.Registered | ev.RegistrationConflict | ev.RegistrationFailed | ev.Deregistered
MEMBERSHIP_TIMERS = tuple(timer for timer in MemberTimer if timer is not MemberTimer.PROBE)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings that decisions depend on; times in ms."""

    member_id: str
    rebalance_backoff_ms: int = 2000
    debounce_ms: int = 50
    drain_timeout_ms: int = 2000
    release_settle_ms: int = 0
    auto_commit: bool = True
    auto_commit_interval_ms: int = 60_000
    diagnose_after_ms: int = 12_000
    session_timeout_ms: int = 6000
    listener_timeout_ms: int = 5000
    offset_stores: OffsetStoreSelection = OffsetStoreSelection.ZOOKEEPER
    kafka_timeout_ms: int = 2500
    kafka_close_timeout_ms: int = 7500
    kafka_close_attempts: int = 6
    new_from_beginning: bool = True
    ignores_older_offsets: bool = False
    follows_control_znode: bool = False
    """True for migrating members: the member continues when Kafka has the authority, and emits ``AnnounceControl``;
    the caller decides what to do."""


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """The assignment of this member in one view; ``own_partitions``: partition -> thread id of this member.

    ``error``: why there is no assignment, or "".  ``unevaluable_filter``: which member has a topic filter that cannot
    be evaluated exactly, and why; then this member must not join.  ``is_partial``: the assignment gets more partitions
    when the owner nodes of other members show which variant the group uses.  ``subscribed_topics``: the topics that
    our subscription matches in this view.  ``group_assignment``: the assignment of the whole group, as far as it is
    certain; None when there is no assignment.
    """

    own_partitions: Mapping[TopicPartition, str]
    error: str = ""
    unevaluable_filter: str = ""
    log_commands: tuple[Command, ...] = ()
    is_partial: bool = False
    subscribed_topics: frozenset[str] = frozenset()
    group_assignment: Mapping[TopicPartition, ConsumerThreadId] | None = None


class AssignmentPlanner(Protocol):
    """Computes the assignment; ``member.assignment_planner`` implements it."""

    def needs_owners(self) -> bool:
        """Whether the next view must contain the owners; they show which variant the group uses."""

    def owners_max(self) -> int | None:
        """How many owners are enough; None: the view must contain all of them."""

    def needs_whole_group(self) -> bool:
        """Whether the view must also contain topics to which only other members subscribe."""

    def preflight(self, view: GroupView, subscription: TopicSubscription) -> MemberAssignment:
        """The assignment that the group would have if this member joined with this subscription."""

    def plan(self, view: GroupView) -> MemberAssignment:
        """Our assignment in this view, in which this member is registered."""

    def plan_external(self, view: GroupView, given: Mapping[TopicPartition, str]) -> MemberAssignment:
        """The part of an assignment from outside whose topics this view contains."""

    def diagnose(self, view: GroupView) -> tuple[Command, ...]:
        """Log commands that explain why owners and assignment differ for so long; may change the variant in use."""


class MemberStateMachine:
    """One member of one group: decisions only, no input or output."""

    def __init__(self, settings: GroupSettings, planner: AssignmentPlanner) -> None:
        self.settings = settings
        self.planner = planner
        self.session = SessionStateMachine()
        self.membership = MembershipStateMachine()
        self.rebalance = RebalanceStateMachine()
        self.partitions: dict[TopicPartition, PartitionStateMachine] = {}
        self.committer = OffsetCommitter(self.partitions, self._ticket, settings.offset_stores)
        self.commit_on_change = CommitOnChange(is_enabled=settings.auto_commit)
        self.new_partitions = NewPartitionTracker(
            self.partitions,
            from_beginning=settings.new_from_beginning,
            ignores_older=settings.ignores_older_offsets,
        )
        self.position_reader = PositionReader(
            self.partitions,
            self._ticket,
            newcomers=self.new_partitions,
            stores=settings.offset_stores,
            timeout_ms=settings.kafka_timeout_ms,
        )
        self.listener = ListenerStateMachine(self.partitions, self._ticket, settings.listener_timeout_ms)
        self.releaser = PartitionReleaser(
            self.partitions,
            self.committer,
            self._ticket,
            drain_timeout_ms=settings.drain_timeout_ms,
            settle_ms=settings.release_settle_ms,
            commit_first=settings.auto_commit,
            listener=self.listener,
            stores=settings.offset_stores,
            kafka_timeout_ms=settings.kafka_timeout_ms,
        )
        self.owner_watches = OwnerWatchScheduler(self._ticket)
        self.subscription: TopicSubscription | None = None
        self.view: GroupView | None = None
        self.own_assignment: dict[TopicPartition, str] = {}
        self.external_assignment: Mapping[TopicPartition, str] | None = None
        """The assignment that was set from outside; None: this member computes it."""
        self.subscribed_topics: frozenset[str] = frozenset()
        self._is_lease_expiry_logged = False
        """Whether ``lease-expired`` was logged, and ``lease-renewed`` not yet."""
        self._logged_topics: frozenset[str] | None = None
        """The topics of the filter that were logged last; None: nothing was logged yet."""
        self.group_assignment: Mapping[TopicPartition, ConsumerThreadId] | None = None
        self.not_acquired: dict[TopicPartition, str] = {}
        self.is_leaving = False
        self.has_failed = False
        self.attempt_count = 0
        self.assignment_error = ""
        self._is_assignment_partial = False
        self._is_excluding = False
        self._may_be_registered = self._has_announced_left = False
        self._is_deregistration_deferred = self._retrying_releases = False
        self._conflict_since_ms: int | None = None
        self._register_sent_ms = 0
        self._debouncing = self._diagnosing = self._diagnose_due = self._commit_timer = False
        self._changed_since_read = False
        self._changed_in_debounce = False
        """Another change arrived after the one that started the present debounce time."""
        self._tickets = self._register_ticket = self._read_ticket = self._acquire_ticket = 0
        self._unowned: set[str] = set()
        self._logged_ignored: set[str] = set()
        self._missing: frozenset[str] = frozenset()
        self._missing_due = LogRateLimiter()
        self._exclusion_reason: str = ""
        self._logged_assignment: dict[TopicPartition, str] | None = None
        self._announced_control: tuple[ControlRecord | None, int | None] = (None, None)
        self._out: list[Command] = []
        self._now_ms = 0

    # --- the entry point ------------------------------------------------------------------------------------

    def handle(self, event: ev.Event, now_ms: int) -> list[Command]:
        """Process one event; return the commands to execute, in order."""
        self._out = []
        self._now_ms = now_ms
        match event:
            case ev.SessionConnected():
                self._session_connected(event)
            case ev.SessionSuspended():
                self._emit(*self.session.handle(event))
            case ev.SessionAnswered():
                self._emit(*self.session.handle(event))
                self._log_lease_expiry()
            case ev.SessionLost():
                self._session_lost(event)
            case ev.SessionClosed():
                self._emit(*self.session.handle(event))
                self._reset("the connector is closed")
            case ev.MembershipEnded(why):
                self.has_failed = True
                self._reset(why)
            case ev.JoinRequested(subscription):
                self.subscription = subscription
            case ev.ExternalAssignmentSet():
                self._on_external_assignment(event)
            case ev.ListenerSet():
                self.listener.is_set = True
            case ev.LeaveRequested():
                self._leave_wanted()
            case ev.CommitRequested():
                self._commit_wanted(event)
            case ev.Registered() | ev.RegistrationConflict() | ev.RegistrationFailed() | ev.Deregistered():
                self._registration_answered(event)
            case ev.GroupChanged(is_control=is_control):
                self._group_changed(is_control=is_control)
            case ev.OwnersChanged(topic):
                self.owner_watches.on_watch_fired(topic)
            case ev.GroupRead() | ev.GroupReadFailed():
                self._read_answered(event)
            case ev.OwnersListed():
                self._owners_listed(event)
            case ev.AcquireOwnershipCompleted():
                self._on_acquire_completed(event)
            case ev.PositionsRead() | ev.OffsetsFetched():
                self._positions_read(event)
            case ev.ReleaseOwnershipCompleted():
                self._emit(*self.releaser.on_release_result(event))
            case ev.CommitToZooKeeperCompleted():
                self._commit_settled(*self.committer.on_zookeeper_result(event))
            case ev.CommitToKafkaCompleted():
                self._commit_settled(*self.committer.on_kafka_result(event))
            case ownership.PartitionsDrained(positions):
                self._emit(*self.releaser.on_drained(positions))
            case ownership.PositionsCollected(positions):
                self._auto_commit(positions)
            case ownership.OffsetReset(partition, offset):
                self._offset_reset(partition, offset)
            case ev.OffsetsOverwritten(stored):
                self._offsets_placed(stored)
            case ev.ListenerReturned():
                self._listener_returned(event)
            case ev.TimerFired(timer):
                self._timer_fired(timer)
        self._advance()
        out, self._out = self._out, []
        return out

    @property
    def fetched_partitions(self) -> dict[TopicPartition, str]:
        """The partitions that are fetched now: partition -> thread id."""
        return {tp: p.thread for tp, p in self.partitions.items() if p.state is PartitionState.FETCHING}

    # --- the next step --------------------------------------------------------------------------------------

    def _advance(self) -> None:
        if not self.session.is_connected or self.has_failed:
            return
        if not self.settings.auto_commit:  # a release commits nothing then, so commits of the program are sent first
            self._start_pending_commits()
        if self.membership.state is MembershipState.LEAVING:
            self._advance_leaving()
        self._advance_membership()
        if self.membership.state is MembershipState.REGISTERED:
            self._advance_rebalance()
        elif self.membership.state is not MembershipState.LEAVING and self.partitions:
            self._retry_unreleased()
        self._start_pending_commits()
        if self.settings.auto_commit and self.partitions and not self._commit_timer:
            self._commit_timer = True
            self._emit(do.StartTimer(MemberTimer.COMMIT, self.settings.auto_commit_interval_ms))

    def _start_pending_commits(self) -> None:
        self._emit(*self.committer.expire_calls(self._now_ms))
        while self.committer.pending_calls and not self.committer.is_in_progress:
            call = self.committer.pending_calls.pop(0)
            self._emit(*self.committer.send(call.positions, self._session_id, self.control_version, call))

    def _advance_membership(self) -> None:
        if self.subscription is None or self.is_leaving:
            return
        if self.membership.state is MembershipState.NOT_REGISTERED:
            self.membership.handle(mem.JoinStarted())
        if self.membership.state is MembershipState.PREFLIGHT and not self._read_ticket:
            self._read_group()
        if self.membership.state is MembershipState.REGISTERING and not self._register_ticket:
            self._register_ticket = self._ticket()
            self._register_sent_ms = self._now_ms
            self._may_be_registered = True
            self._emit(do.Register(self._register_ticket, self._session_id, self.subscription))

    def _advance_leaving(self) -> None:
        """Release all partitions, then delete the registration: other members rebalance only when it is deleted."""
        self._emit(*self.releaser.revoke(self.partitions))
        self._emit(*self.listener.call_before_release(None))
        if self.listener.is_blocking_rebalance:
            return
        self._emit(*self.releaser.send({}, self._session_id, self.control_version))
        if (
            self.releaser.is_pending
            or self._register_ticket
            or self._acquire_ticket
            or self._is_deregistration_deferred
        ):
            return
        if self._may_be_registered:
            self._register_ticket = self._ticket()
            self._emit(do.Deregister(self._register_ticket, self._session_id))
        else:
            self._deregistered()

    def _retry_unreleased(self) -> None:
        """Retry releases that failed while we left: other members cannot acquire these partitions until then."""
        self._emit(*self.releaser.send({}, self._session_id, self.control_version))
        if not self.releaser.is_pending and self.partitions and not self._retrying_releases:
            self._retrying_releases = True
            self._emit(do.StartTimer(MemberTimer.RETRY, self.settings.rebalance_backoff_ms))

    def _advance_rebalance(self) -> None:
        self._emit(*self.new_partitions.restart_recreated(self.own_assignment))
        if self.rebalance.state is RebalanceState.RELEASING:
            self._emit(*self.listener.call_before_release(self.group_assignment))
            # With a listener, a partition that only changes its thread is released and acquired again, because the
            # listener is called before the release and before the start.
            moves = {} if self.listener.is_set else self.own_assignment
            self._emit(*self.releaser.send(moves, self._session_id, self.control_version))
            if not self.releaser.is_pending and not self.listener.is_blocking_rebalance:
                self.rebalance.handle(reb.ReleasesDone())
        if self.rebalance.state is RebalanceState.ACQUIRING and not self._acquire_ticket:
            self._acquire_missing()
        is_to_read = self.rebalance.state is RebalanceState.READING and not self._read_ticket
        if is_to_read:
            self.commit_on_change.begin()
        self._emit(
            *self.commit_on_change.collect(
                is_fetching=bool(self.fetched_partitions), is_busy=self.committer.is_in_progress
            )
        )
        if is_to_read and not self.commit_on_change.is_collecting:
            self._emit(do.StopTimer(MemberTimer.RETRY))
            self._read_group()
        if self.rebalance.state in (RebalanceState.STABLE, RebalanceState.INCOMPLETE):
            self._emit(
                *self.owner_watches.ensure_watched(
                    self._topics_watched, soon=self.rebalance.state is RebalanceState.INCOMPLETE
                )
            )

    # --- session --------------------------------------------------------------------------------------------

    def _session_connected(self, event: ev.SessionConnected) -> None:
        live = self.session.live
        if live is not None and live.session_id != event.session_id:
            self._session_lost(ev.SessionLost(live.session_id))
        self._emit(*self.session.handle(event))
        if not self.session.is_connected:
            return
        self.owner_watches.reset(watches_only=True)
        self._changed_since_read = True
        self.commit_on_change.on_change()
        self._emit(do.ProbeSession(event.session_id), do.StartTimer(MemberTimer.PROBE, self.session.probe_interval_ms))
        if self.membership.state is MembershipState.EXCLUDED:
            self.membership.handle(mem.JoinStarted())
        self._trigger()

    def _session_lost(self, event: ev.SessionLost) -> None:
        live = self.session.live
        if live is None or live.session_id != event.session_id:
            return
        self._emit(*self.session.handle(event))
        self._is_lease_expiry_logged = False
        lost = f"session={event.session_id:#x} partitions={len(self.partitions)}"
        why = "ZooKeeper received no request from this member within the session timeout"
        self._log("WARNING", "session-lost", f"{lost}: {why}; records read since the last commit are delivered again")
        self._reset("the ZooKeeper session expired")

    def _reset(self, why: str) -> None:
        """Forget all state of the ended session: its records must not be delivered or committed in the next one."""
        self._drop_all_partitions(why)
        self._emit(*self.committer.reset(why), *self.position_reader.cancel(), *self.commit_on_change.reset())
        self.new_partitions.reset()
        self.releaser.reset()
        self.listener.reset()
        self.owner_watches.reset()
        self.membership.handle(ev.SessionLost(0))
        self.rebalance.handle(reb.RebalanceStopped())
        self.own_assignment = {}
        self.group_assignment = None
        self._is_assignment_partial = False
        self.not_acquired.clear()
        self._unowned.clear()
        self.attempt_count = 0
        self._logged_assignment = self._conflict_since_ms = None
        self._may_be_registered = self._is_deregistration_deferred = self._retrying_releases = False
        self._is_excluding = self._debouncing = self._diagnosing = self._diagnose_due = self._commit_timer = False
        self._register_ticket = self._read_ticket = self._acquire_ticket = 0
        self._emit(*(do.StopTimer(timer) for timer in MEMBERSHIP_TIMERS))
        if self.is_leaving:
            self._announce_left(())

    def _drop_all_partitions(self, why: str) -> None:
        gone = dict(self.partitions)
        for partition in gone.values():
            partition.handle(part.OwnershipLost())
        self.partitions.clear()
        if gone:
            self._emit(ownership.DropPartitions(tuple(sorted(gone)), why), *self.listener.on_ownership_lost(gone))

    def _log_lease_expiry(self) -> None:
        """Log when the lease expires while this member owns partitions, and when it is renewed.

        Streams deliver nothing in between.
        """
        is_over = 0 < self.session.lease_until_ms <= self._now_ms
        if is_over and self.partitions and not self._is_lease_expiry_logged:
            self._is_lease_expiry_logged = True
            self._log(
                "WARNING",
                "lease-expired",
                f"partitions={len(self.partitions)}: ZooKeeper has not answered for two thirds of the session "
                "timeout, or this process was paused; no records are delivered until ZooKeeper answers",
            )
        elif self._is_lease_expiry_logged and not is_over:
            self._is_lease_expiry_logged = False
            self._log("INFO", "lease-renewed", f"partitions={len(self.partitions)}: records are delivered again")

    # --- registration ---------------------------------------------------------------------------------------

    def _registration_answered(self, event: RegistrationResult) -> None:
        if event.ticket != self._register_ticket:
            return
        self._register_ticket = 0
        match event:
            case ev.Registered():
                self._conflict_since_ms = None
                self.membership.handle(mem.RegistrationDone())
                self._debouncing = self._retrying_releases = False
                self._emit(do.StopTimer(MemberTimer.DEBOUNCE))
                self._trigger()
            case ev.RegistrationConflict():
                self._may_be_registered = False
                self.membership.handle(mem.RegistrationDeferred())
                if self.membership.state is MembershipState.WAITING:
                    self._on_registration_conflict(event)
            case ev.RegistrationFailed(_, why):
                self.membership.handle(mem.RegistrationDeferred())
                if self.membership.state is MembershipState.WAITING:
                    self._retry_registration_later("registration-failed", why)
            case ev.Deregistered(_, why) if why and not self.is_leaving:
                self._is_deregistration_deferred = True
                self._retry_registration_later("deregistration-failed", why)
            case ev.Deregistered():
                self._deregistered()

    def _deregistered(self) -> None:
        """Our registration znode does not exist (any more)."""
        self._may_be_registered = False
        self.membership.handle(mem.DeregistrationDone(self._is_excluding and not self.is_leaving))
        self._is_excluding = False
        if self.is_leaving:
            self._left()
        self._read_again_if_changed()

    def _left(self) -> None:
        """Announce that we left; owner nodes that could not be deleted end with the session."""
        leftovers = tuple(sorted(self.partitions))
        self._announce_left(leftovers)
        self._drop_all_partitions("its owner node could not be deleted")
        self.releaser.reset()

    def _announce_left(self, not_released: Iterable[TopicPartition]) -> None:
        if not self._has_announced_left:
            self._has_announced_left = True
            self._emit(do.AnnounceLeft(tuple(sorted(not_released))))

    def _retry_registration_later(self, name: str, why: str) -> None:
        self._log("WARNING", name, f"reason={why!r} retry_ms={REGISTER_RETRY_MS}")
        self._emit(do.StartTimer(MemberTimer.REGISTER, REGISTER_RETRY_MS))

    def _on_registration_conflict(self, event: ev.RegistrationConflict) -> None:
        """Another session uses our id: wait as long as an expired session can still exist, then fail and report it.

        The time of the request counts, not the time of the answer: this process may have been paused before it read
        the answer.
        """
        conflict_timeout_ms = (
            max(self._session_timeout_ms, self.settings.session_timeout_ms) + REGISTRATION_CONFLICT_GRACE_MS
        )
        other_session = f"session={event.session_id:#x} host={event.holder_host} age_ms={event.age_ms}"
        if self._conflict_since_ms is None:
            self._conflict_since_ms = self._now_ms
            self._log(
                "WARNING",
                "consumer-id-in-use",
                f"id={self.settings.member_id} {other_session} waiting_ms={conflict_timeout_ms}",
            )
        if self._register_sent_ms - self._conflict_since_ms > conflict_timeout_ms:
            self._fail(
                "ConsumerIdInUse",
                f"the id {self.settings.member_id} is used by another session ({other_session}), which did not end "
                f"within {conflict_timeout_ms} ms: stop that process, or set another consumer.id for this one (without "
                "consumer.id an id is generated)",
            )
            return
        self._emit(do.StartTimer(MemberTimer.REGISTER, REGISTER_RETRY_MS))

    def _leave_wanted(self) -> None:
        if self.is_leaving:
            return
        self.is_leaving = True
        self.listener.skip_calls_on_close()
        self.releaser.kafka_timeout_ms = self.settings.kafka_close_timeout_ms
        self.releaser.kafka_attempts = self.settings.kafka_close_attempts
        self._is_deregistration_deferred = False
        self._stop_attempt()
        self.membership.handle(ev.LeaveRequested())
        if self.membership.state is MembershipState.NOT_REGISTERED:
            self._left()
        elif not self.session.is_connected:
            self._announce_left(tp for tp, p in self.partitions.items() if p.is_owned)

    def _on_external_assignment(self, event: ev.ExternalAssignmentSet) -> None:
        """Set or clear the assignment from outside; it takes effect with the next view, after the attempt under way."""
        if (event.threads is None) != (self.external_assignment is None):
            how = "this member computes it again" if event.threads is None else "this member receives it from now on"
            self._log("INFO", "assignment-source-changed", how)
            self._diagnosing = self._diagnose_due = False
            self._emit(do.StopTimer(MemberTimer.DIAGNOSE))
        self.new_partitions.add_new(event.new)
        if event.threads != self.external_assignment:
            self.external_assignment = event.threads
            self._trigger()

    # --- reading --------------------------------------------------------------------------------------------

    def _group_changed(self, *, is_control: bool) -> None:
        """Handle a watch event of the group.

        A change of the control znode alone starts no commit: it moves no partition, and ZooKeeper would reject a
        commit that checks the old version of the control znode.
        """
        self._changed_since_read = self._changed_in_debounce = True
        if not is_control:
            self.commit_on_change.on_change()
        self._read_again_if_changed()

    def _read_again_if_changed(self) -> None:
        """Read the group at once if the debounce time is over, else at its end: many changes cause few reads.

        Other members wait for the partitions that we release; a Scala consumer that finds one still owned pauses for
        ``rebalance.backoff.ms``.  A watch fires only once, and in some states the member cannot react yet (deleting
        our own registration fires it, too); so the change is remembered until it can.
        """
        concerned = self.membership.state in (MembershipState.REGISTERED, MembershipState.EXCLUDED)
        if concerned and self._changed_since_read and not self._debouncing:
            self._debouncing, self._changed_in_debounce = True, False
            self._emit(do.StartTimer(MemberTimer.DEBOUNCE, self.settings.debounce_ms))
            if self.membership.state is MembershipState.REGISTERED:
                self.commit_on_change.begin()
                self._trigger()

    def _stop_attempt(self) -> None:
        """Stop the present rebalance because this member leaves: acquire nothing more and read no positions."""
        self.rebalance.handle(reb.RebalanceStopped())
        self.releaser.unreleasable.clear()
        self._emit(*self.position_reader.cancel(), *self.commit_on_change.reset())
        self.new_partitions.reset()
        self._logged_assignment = None
        self._unowned.clear()
        self._diagnosing = self._diagnose_due = self._retrying_releases = False
        self._emit(
            do.StopTimer(MemberTimer.RETRY), do.StopTimer(MemberTimer.DIAGNOSE), do.StopTimer(MemberTimer.LIST_OWNERS)
        )
        self.owner_watches.reset()

    def _trigger(self) -> None:
        about_to_read = self.rebalance.state is RebalanceState.READING and not self._read_ticket
        if self.membership.state is MembershipState.REGISTERED and not about_to_read:
            self.rebalance.handle(reb.RebalanceTriggered())

    def _read_group(self) -> None:
        assert self.subscription is not None, "only a member with a subscription reads its group"
        self._changed_since_read = False
        self._read_ticket = self._ticket()
        self._emit(
            do.ReadGroup(
                self._read_ticket,
                self._session_id,
                self.subscription,
                whole_group=self.planner.needs_whole_group(),
                with_owners=self.planner.needs_owners() or self._diagnose_due,
                owners_max=None if self._diagnose_due else self.planner.owners_max(),
            )
        )

    def _read_answered(self, event: ev.GroupRead | ev.GroupReadFailed) -> None:
        if event.ticket != self._read_ticket:
            return
        self._read_ticket = 0
        scouting = self.membership.state is MembershipState.PREFLIGHT
        if not scouting and self.membership.state is not MembershipState.REGISTERED:
            return
        match event:
            case ev.GroupRead(_, view):
                self._log_group_problems(view)
                if not self._check_authority(view):
                    return
                if scouting:
                    self._on_preflight_view(view)
                else:
                    self._on_view(view)
            case ev.GroupReadFailed(_, why) if scouting:
                self.membership.handle(mem.RegistrationDeferred())
                self._retry_registration_later("group-read-failed", why)
            case ev.GroupReadFailed(_, why):
                self._log("WARNING", "group-read-failed", f"reason={why!r}")
                self.rebalance.handle(reb.ReadFailed())
                self._retry_later()

    def _log_group_problems(self, view: GroupView) -> None:
        """Log each invalid registration once, and again only if it was valid in between."""
        for member, why in view.ignored_registrations.items():
            if member not in self._logged_ignored:
                self._emit(do.IncrementCounter("registrations_ignored"))
                self._log("WARNING", "registration-ignored", f"registration={member} reason={why!r}")
        self._logged_ignored = set(view.ignored_registrations)
        named = {} if self.subscription is None or self.subscription.is_filter else self.subscription.topics
        self._missing = frozenset(topic for topic in view.missing_topics if topic in named)
        self._log_missing_topics()

    @property
    def missing_topics(self) -> frozenset[str]:
        """The subscribed topics that did not exist when the group was read last."""
        return self._missing

    def _log_missing_topics(self) -> None:
        """Log the missing topics, and repeat the log while they are missing."""
        for topic in self._missing_due.select_due(self._missing, self._now_ms):
            self._log("WARNING", "topic-missing", missing_topic_message(topic))
        if self._missing:
            self._emit(do.StartTimer(MemberTimer.MISSING_TOPICS, LOG_REPEAT_MS))

    def _check_authority(self, view: GroupView) -> bool:
        control = view.control
        if self.settings.follows_control_znode:
            self.view = view
            if (control, view.control_version) != self._announced_control:
                self._announced_control = control, view.control_version
                self._emit(do.AnnounceControl(control, view.control_version))
            return True
        if control is None or control.authority == AUTHORITY_ZOOKEEPER:
            self.view = view
            return True
        self._fail(
            "MigrationError",
            f"the authority for the offsets of this group is {control.authority!r} now (phase {control.phase!r}), no "
            "longer ZooKeeper: start consumers of the coordinator group instead, or roll the migration back first",
        )
        return False

    def _on_preflight_view(self, view: GroupView) -> None:
        assert self.subscription is not None, "only a member with a subscription does the preflight"
        share = self.planner.preflight(view, self.subscription)
        self._emit(*share.log_commands)
        if share.unevaluable_filter:
            self._exclude(share.unevaluable_filter)
        elif share.error:
            self._fail("ConsumerRebalanceFailedException", share.error)
        else:
            self._exclusion_reason = ""
            self.membership.handle(mem.PreflightPassed())

    def _on_view(self, view: GroupView) -> None:
        if self.settings.member_id not in view.members:
            self._log("WARNING", "registration-deleted", "another client deleted it; registering again")
            self._may_be_registered = False
            self._stop_attempt()
            self.membership.handle(mem.RegistrationDeleted())
            return
        if self._diagnose_due:
            self._diagnose_due = False
            self._unowned.clear()
            self._emit(*self.planner.diagnose(view))
        share = (
            self.planner.plan(view)
            if self.external_assignment is None
            else self.planner.plan_external(view, self.external_assignment)
        )
        self._emit(*share.log_commands)
        if share.unevaluable_filter:
            self._exclude(share.unevaluable_filter)
            return
        if share.error and share.error != self.assignment_error:
            self._log("ERROR", "assignment-failed", share.error)
        self.assignment_error = share.error
        self.own_assignment = dict(share.own_partitions)
        self.group_assignment = share.group_assignment
        self._is_assignment_partial = share.is_partial
        self._log_filter_topics(share.subscribed_topics)
        self.subscribed_topics = share.subscribed_topics
        if not share.error:
            wanted = self.own_assignment if self.external_assignment is None else self.external_assignment
            self._emit(*self.new_partitions.on_view(view, share.subscribed_topics, wanted))
        self.releaser.unreleasable.clear()
        self.commit_on_change.commit_done()
        self.rebalance.handle(reb.ViewRead())
        if self.rebalance.state is RebalanceState.RELEASING:
            self._emit(
                *self.releaser.revoke(
                    [tp for tp, p in self.partitions.items() if self.own_assignment.get(tp) != p.thread]
                )
            )

    def _log_filter_topics(self, topics: frozenset[str]) -> None:
        """Log the topics that the filter matches: in the first view, and when they have changed."""
        assert self.subscription is not None, "only a member with a subscription has a view"
        if self.subscription.is_filter and topics != self._logged_topics:
            words = filter_topics_message(self._logged_topics or frozenset(), topics)
            if topics:
                self._log("INFO", "filter-topics-changed", words)
            else:
                self._log("WARNING", "filter-topics-changed", words)
            self._logged_topics = topics

    def _exclude(self, why: str) -> None:
        """Leave the group: if two members evaluated one pattern differently, a partition would have two owners."""
        if why != self._exclusion_reason:
            self._exclusion_reason = why
            self._log("ERROR", "member-excluded", f"{why}: staying out of the group until its members change")
        self._stop_attempt()
        self.membership.handle(mem.MemberExcluded(may_be_registered=self._may_be_registered))
        self._is_excluding = self.membership.state is MembershipState.LEAVING
        self._read_again_if_changed()

    # --- acquiring ------------------------------------------------------------------------------------------

    def _acquire_missing(self) -> None:
        wanted = {tp: thread for tp, thread in sorted(self.own_assignment.items()) if tp not in self.partitions}
        if not wanted:
            self.not_acquired.clear()
            self._acquisitions_done()
            return
        for tp, thread in wanted.items():
            self.partitions[tp] = PartitionStateMachine(thread)
        alone = self.view is not None and len(self.view.members) == 1
        if not alone:
            self.owner_watches.on_watch_set(tp.topic for tp in wanted)
        self._acquire_ticket = self._ticket()
        self._emit(
            do.AcquireOwnership(
                self._acquire_ticket,
                self._session_id,
                wanted,
                list_owners_first=not alone,
                identify_owners=self.attempt_count >= IDENTIFY_OWNERS_FROM_TRY,
                control_version=self.control_version,
            )
        )

    def _on_acquire_completed(self, event: ev.AcquireOwnershipCompleted) -> None:
        if event.ticket != self._acquire_ticket:
            return
        self._acquire_ticket = 0
        self.not_acquired.clear()
        for topic in event.unwatched:
            self.owner_watches.on_watch_fired(topic)
        for tp, claimed in event.results.items():
            partition = self.partitions[tp]
            if claimed.outcome is WriteOutcome.DONE:
                partition.handle(part.OwnershipAcquired(claimed.czxid))
            elif claimed.outcome is WriteOutcome.UNKNOWN:
                partition.handle(part.OwnershipUnknown())
            else:
                partition.handle(part.OwnershipNotAcquired())
                del self.partitions[tp]
                self.not_acquired[tp] = claimed.why
        self._acquisitions_done()

    def _acquisitions_done(self) -> None:
        if self.membership.state is not MembershipState.REGISTERED:
            return
        self.rebalance.handle(reb.AcquisitionsDone())
        self._read_positions()

    def _read_positions(self) -> None:
        """Read the positions of the acquired partitions, after the listener was called with the assignment."""
        unread = tuple(sorted(tp for tp, p in self.partitions.items() if p.expects(part.PositionKnown)))
        if unread or not self.not_acquired:
            self._emit(*self.listener.call_before_start(self.group_assignment))
        if self.listener.is_blocking_rebalance:
            return
        if unread:
            self._emit(*self.position_reader.read(unread, self._session_id))
        else:
            self._positions_done()

    def _positions_read(self, event: ev.PositionsRead | ev.OffsetsFetched) -> None:
        commands = self.position_reader.on_result(event)
        if commands is None:
            return
        self._emit(*commands)
        if self.position_reader.unsupported:
            self._fail("OffsetsInKafkaUnsupported", self.position_reader.unsupported)
        elif self.rebalance.state is RebalanceState.POSITIONING:
            self._positions_done()

    def _positions_done(self) -> None:
        fetching = all(p.state is PartitionState.FETCHING for p in self.partitions.values())
        is_whole = not (self.not_acquired or self.assignment_error or self._is_assignment_partial)
        self.rebalance.handle(reb.PositionsDone(fetching and is_whole))
        if self.rebalance.state is RebalanceState.STABLE:
            self._on_assignment_complete()
        elif self.rebalance.state is RebalanceState.INCOMPLETE:
            self._retry_later()

    def _on_assignment_complete(self) -> None:
        self.attempt_count = 0
        self._diagnosing = self._diagnose_due = False
        self._emit(do.StopTimer(MemberTimer.RETRY), do.StopTimer(MemberTimer.DIAGNOSE))
        self._unowned &= {tp.topic for tp in self.own_assignment}
        if self._unowned:
            self._diagnose_later()
        if self._logged_assignment != self.own_assignment:
            self._logged_assignment = dict(self.own_assignment)
            members = len(self.view.members) if self.view else 0
            self._log("INFO", "assignment-complete", f"partitions={len(self.own_assignment)} members={members}")
        self._emit(do.AnnounceAssignment(len(self.own_assignment)))

    def _retry_later(self) -> None:
        """Retry after growing pauses with jitter; the owner nodes that conflicted with ours are watched meanwhile."""
        longest = KAFKA_RETRY_MAX_MS if self.position_reader.is_kafka_unavailable else RETRY_MAX_MS
        delay = min(longest, int(self.settings.rebalance_backoff_ms * RETRY_GROWTH ** min(self.attempt_count, 12)))
        spread = sum(self.settings.member_id.encode()) * (self.attempt_count + 1) % 20
        self.attempt_count += 1
        self._emit(do.StartTimer(MemberTimer.RETRY, delay * (100 + spread) // 100))
        if self.not_acquired and self.attempt_count in (1, IDENTIFY_OWNERS_FROM_TRY + 1):
            some = ", ".join(f"{tp} ({why})" for tp, why in sorted(self.not_acquired.items())[:3])
            # The rebalance of the other members is over by this attempt: an owner that still exists may be permanent.
            level, name = (
                ("INFO", "assignment-incomplete") if self.attempt_count == 1 else ("WARNING", "ownership-conflict")
            )
            self._logged_assignment = None
            self._log(level, name, f"missing={len(self.not_acquired)} first={some}")
        self._diagnose_later()

    def _diagnose_later(self) -> None:
        """Start the diagnosis timer; not for an assignment from outside, as the diagnosis compares computed ones."""
        if not self._diagnosing and self.external_assignment is None:
            self._diagnosing = True
            self._emit(do.StartTimer(MemberTimer.DIAGNOSE, self.settings.diagnose_after_ms))

    # --- changes of owner nodes -----------------------------------------------------------------------------

    def _owners_listed(self, event: ev.OwnersListed) -> None:
        if not self.owner_watches.on_listed(event):
            return

        def is_free(tp: TopicPartition) -> bool:
            return tp.topic in event.owned and tp.partition not in event.owned[tp.topic]

        partition = (PartitionState.ACQUIRED, PartitionState.FETCHING, PartitionState.POSITION_UNREADABLE)
        vanished = [tp for tp, p in self.partitions.items() if p.state in partition and is_free(tp)]
        self._on_ownership_lost(vanished, "its owner node vanished")
        freed = any(is_free(tp) for tp in self.own_assignment if tp not in self.partitions)
        if self.rebalance.state is RebalanceState.INCOMPLETE and self._is_assignment_partial:
            self._trigger()
        elif self.rebalance.state is RebalanceState.INCOMPLETE and freed and self._may_acquire:
            self._emit(do.StopTimer(MemberTimer.RETRY))
            self.rebalance.handle(reb.PartitionsFreed())
        self._track_unowned_topics(event.owned)

    def _track_unowned_topics(self, owned: Mapping[str, frozenset[int]]) -> None:
        """Start the diagnosis if we own our assignment and a partition of our topics stays without an owner."""
        if self.view is None or self.rebalance.state is not RebalanceState.STABLE:
            return
        for topic, numbers in owned.items():
            if set(self.view.partitions_by_topic.get(topic, ())) <= numbers:
                self._unowned.discard(topic)
            else:
                self._unowned.add(topic)
        if not self._unowned and self._diagnosing:
            self._diagnosing = False
            self._emit(do.StopTimer(MemberTimer.DIAGNOSE))
        elif self._unowned:
            self._diagnose_later()

    def _on_ownership_lost(self, partitions: Iterable[TopicPartition], why: str) -> None:
        """These owner nodes are no longer ours: stop at once, commit nothing for them, and read the group again.

        A partition that is being acquired has no owner node yet.  The loss is then that of an earlier ownership, for
        example the late result of a commit, and the answer to the acquisition decides.
        """
        lost = {
            tp: self.partitions.pop(tp)
            for tp in sorted(set(partitions) & self.partitions.keys())
            if self.partitions[tp].state is not PartitionState.ACQUIRING
        }
        for tp, partition in lost.items():
            partition.handle(part.OwnershipLost())
            self.position_reader.on_ownership_lost(tp)
        self._emit(*self.committer.on_ownership_lost(tuple(lost)))
        if lost:
            self._logged_assignment = None
            self._log("WARNING", "ownership-lost", f"partitions={len(lost)} first={min(lost)} reason={why!r}")
            self._emit(ownership.DropPartitions(tuple(lost), why), *self.listener.on_ownership_lost(lost))
            self._trigger()

    # --- the rebalance listener -----------------------------------------------------------------------------

    def _listener_returned(self, event: ev.ListenerReturned) -> None:
        commands, has_failed = self.listener.on_returned(
            event, is_leaving=self.membership.state is MembershipState.LEAVING
        )
        self._emit(*commands)
        if has_failed:
            self.rebalance.handle(reb.ListenerFailed())
            if self.rebalance.state is RebalanceState.INCOMPLETE:
                self._retry_later()
        else:
            self._continue_positioning()
        if self.listener.needs_rerun():
            self._trigger()

    @property
    def _may_acquire(self) -> bool:
        """Whether this attempt reached the acquire step; False if the listener failed before it."""
        return not self.releaser.is_pending and not self.listener.needs_release_call(self.group_assignment)

    def _continue_positioning(self) -> None:
        if self.rebalance.state is RebalanceState.POSITIONING and not self.position_reader.is_reading:
            self._read_positions()

    # --- commits and time -----------------------------------------------------------------------------------

    def _commit_wanted(self, event: ev.CommitRequested) -> None:
        """Queue a commit of the program; without a session answer "not owner" at once, because the caller waits."""
        if self.session.live is None or self.has_failed:
            self._emit(do.CompleteCommit(event.call_id, dict.fromkeys(event.positions, NOT_OWNER)))
        else:
            self._emit(*self.committer.expire_calls(self._now_ms))
            self.committer.pending_calls.append(event)

    def _commit_settled(self, commands: Iterable[Command], lost: Iterable[TopicPartition]) -> None:
        self._emit(*commands)
        self._on_ownership_lost(lost, "a commit found that the owner node is not ours")

    def _auto_commit(self, positions: Mapping[TopicPartition, int]) -> None:
        """Commit for the interval or for a change; only the interval repeats offsets that Kafka has already."""
        repeats = not self.commit_on_change.is_collecting
        self._emit(*self.commit_on_change.on_collected())
        if self.session.is_connected and not self.committer.is_in_progress:
            self.commit_on_change.commit_done()
            self._emit(*self.committer.send(positions, self._session_id, self.control_version, repeats=repeats))

    def _offset_reset(self, tp: TopicPartition, offset: int) -> None:
        partition = self.partitions.get(tp)
        if partition is not None and partition.state in (PartitionState.FETCHING, PartitionState.DRAINING):
            partition.reset_count += 1
            self.new_partitions.mark_positioned(tp)
            if partition.stored.offset >= 0 and partition.position >= 0:
                self._emit(do.IncrementCounter("offsets_reset"))
                words = f"partition={tp} stored={partition.stored.offset} is out of range; continuing at {offset}"
                self._log("WARNING", "offset-reset", words, (tp, partition.stored.offset, offset))

    def _offsets_placed(self, placed: Mapping[TopicPartition, StoredOffset]) -> None:
        """Offsets were overwritten on request: older offsets in a store do not block the next, smaller commit."""
        for tp, stored in placed.items():
            partition = self.partitions.get(tp)
            if partition is not None and partition.state in (PartitionState.FETCHING, PartitionState.DRAINING):
                partition.reset_count += 1
                partition.record_zookeeper_write(stored, partition.reset_count)
                self.new_partitions.mark_positioned(tp)

    def _timer_fired(self, timer: MemberTimer) -> None:
        match timer:
            case MemberTimer.PROBE if self.session.live is not None:
                self._emit(
                    do.ProbeSession(self._session_id), do.StartTimer(MemberTimer.PROBE, self.session.probe_interval_ms)
                )
                self._log_lease_expiry()
            case MemberTimer.DEBOUNCE:
                self._debouncing = False
                if self.membership.state is MembershipState.EXCLUDED and self._changed_since_read:
                    self.membership.handle(mem.JoinStarted())
                elif self._changed_in_debounce:
                    self._read_again_if_changed()
            case MemberTimer.COLLECT_POSITIONS:
                self.commit_on_change.on_timeout()
            case MemberTimer.LIST_OWNERS if self.session.live is not None:
                self._emit(
                    *self.owner_watches.on_timer(self._topics_watched, self.fetched_partitions, self._session_id)
                )
            case MemberTimer.RETRY:
                self._retrying_releases = False
                self.releaser.unreleasable.clear()
                self._trigger()
            case MemberTimer.DRAIN:
                self._emit(*self.releaser.on_drain_timeout())
            case MemberTimer.SETTLE:
                self.releaser.on_settle_timeout()
            case MemberTimer.RELEASE_WAITS_FOR_KAFKA:
                self._emit(*self.releaser.on_kafka_timeout())
            case MemberTimer.COMMIT:
                self._commit_timer = False
                if self.fetched_partitions:
                    self._emit(ownership.CollectPositions())
            case MemberTimer.REGISTER:
                self._is_deregistration_deferred = False
                if self.membership.state is MembershipState.WAITING:
                    self.membership.handle(mem.JoinStarted())
            case MemberTimer.DIAGNOSE:
                self._diagnosing = False
                self._diagnose_due = True
                self._trigger()
            case MemberTimer.LISTENER:
                self._emit(*self.listener.on_timeout())
                self._continue_positioning()
            case MemberTimer.MISSING_TOPICS:
                self._log_missing_topics()

    # --- helpers --------------------------------------------------------------------------------------------

    @property
    def _session_id(self) -> int:
        assert self.session.live is not None, "used only while a session exists"
        return self.session.live.session_id

    @property
    def _topics_watched(self) -> set[str]:
        """The topics whose owners are watched: those of our assignment; all subscribed ones while it is partial."""
        return {tp.topic for tp in self.own_assignment} | (
            self.subscribed_topics if self._is_assignment_partial else set()
        )

    @property
    def _session_timeout_ms(self) -> int:
        return self.session.live.timeout_ms if self.session.live else 0

    @property
    def exclusion_reason(self) -> str:
        """Why this member is excluded from its group; "" if it is not."""
        return self._exclusion_reason if self.membership.state is MembershipState.EXCLUDED else ""

    @property
    def control_version(self) -> int | None:
        """The version of the group's control znode in the present view; None when the znode does not exist."""
        return None if self.view is None else self.view.control_version

    def _fail(self, kind: str, words: str) -> None:
        """The member cannot continue: stop everything, and end the streams with this error."""
        self.has_failed = True
        self._reset(words)
        self._emit(do.Fail(kind, words))

    def _ticket(self) -> int:
        self._tickets += 1
        return self._tickets

    def _emit(self, *commands: Command) -> None:
        self._out += commands

    def _log(self, level: str, name: str, words: str, about: tuple[Any, ...] = ()) -> None:
        self._emit(do.LogEvent(level, name, words, about))
