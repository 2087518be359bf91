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

Theory of operation
-------------------

States.  The session, the membership, the registration znode, the rebalance attempt, each partition and the calls of
the listener have a machine each.  They are coupled only here:

- Partitions are acquired and fetched only while the membership is ``REGISTERED``; the rebalance is ``IDLE`` in every
  other state of the membership.
- The end of the session resets all of them (``_reset``): every owner node and the registration ended with it.  What
  remains is what describes the process and not the session: the subscription, the assignment from outside, the wish to
  leave, what was logged.
- A disconnect resets nothing.  ZooKeeper keeps the ephemeral znodes, answers do not arrive, and ``_advance`` waits.
  Watches are lost with the connection, so a reconnect counts as a change of the group.

What waits for what.

- A rebalance waits for the drain of revoked partitions (bounded by ``drain_timeout_ms``), for the listener
  (``listener_timeout_ms``), for a commit to Kafka (``kafka_timeout_ms``) and for the settle time; then for ZooKeeper.
- The read of the group waits for the positions of the commit that the change causes (``commit_on_change``).
- A partition whose commit is under way is not released; a commit call of the program waits for the commit before it.
- The registration is deleted after the last release, since the other members rebalance only when it is deleted
  (``a_member_leaves_cleanly.txt``), and after the answer to an acquisition, whose owner nodes must be released, too
  (``defect_16_a_leave_does_not_wait_for_a_running_attempt.txt``).

What is lost when an answer is lost.  A write without an answer may have been executed.  For an owner node the member
assumes that it exists: it checks and releases it before it acquires the partition again
(``an_acquisition_without_an_answer_is_released_and_repeated.txt``).  A registration counts as possible, see
``registration_state_machine``.  A commit is repeated with the next one; the version of the offset znode shows whether
the lost one was executed.  A ticket distinguishes the expected answer from one of an earlier attempt or session
(``late_answers_have_no_effect.txt``).

Which part decides what.  Each has its own state and theory, and none of them calls this module.  The releaser uses the
committer and the listener, the acquirer uses the watches of owners, and the position reader uses the new partitions.

    releaser            when a drained partition is committed and released
    acquirer            what the answer to an acquisition means for each partition
    position_reader     where a partition starts, from the answers of one or two stores
    new_partitions      which partitions start at their beginning
    committer           which offsets are written, and in which order to which store; one commit at a time
    commit_on_change    whether a read of the group waits for a commit
    owner_watches       when the owners of a topic are listed again
    retries, diagnosis  when an incomplete assignment is tried again, and when it is explained
    listener            whether a step waits for the program's rebalance listener
    id_conflict         how long another session may have our id

What a pause of the process costs.  The lease expires, and the streams deliver nothing until an answer renews it.  If
the session ended meanwhile, ``SessionLost`` arrives and the partitions are dropped without a commit: their next owners
have started from the last committed offsets.  Timers that became due in the pause fire after it, perhaps after the
answer that makes them needless; so no case of ``_timer_fired`` relies on having been started.

Errors.  A member never gives up because of another member or a server: it retries, and logs.  ``Fail`` ends it for what
a person must repair: an id that another process uses, a group that it cannot join, an authority that is not ZooKeeper,
brokers that cannot store offsets.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

from zkconsumer.member import commands as do
from zkconsumer.member import events as ev
from zkconsumer.member import membership_state_machine as mem
from zkconsumer.member import ownership
from zkconsumer.member import partition_state_machine as part
from zkconsumer.member import rebalance_state_machine as reb
from zkconsumer.member import registration_state_machine as reg
from zkconsumer.member.commit_on_change import CommitOnChange
from zkconsumer.member.consumer_id_conflict import ConsumerIdConflict
from zkconsumer.member.diagnosis_schedule import DiagnosisSchedule
from zkconsumer.member.events import MemberTimer
from zkconsumer.member.group_view_log import GroupViewLog
from zkconsumer.member.listener_state_machine import ListenerStateMachine
from zkconsumer.member.member_assignment import MemberAssignment
from zkconsumer.member.membership_state_machine import MembershipState, MembershipStateMachine
from zkconsumer.member.new_partition_tracker import NewPartitionTracker
from zkconsumer.member.offset_committer import NOT_OWNER, OffsetCommitter
from zkconsumer.member.owner_watch_scheduler import OwnerWatchScheduler
from zkconsumer.member.partition_acquirer import PartitionAcquirer
from zkconsumer.member.partition_releaser import PartitionReleaser
from zkconsumer.member.partition_state_machine import PartitionState, PartitionStateMachine
from zkconsumer.member.position_reader import PositionReader
from zkconsumer.member.rebalance_retries import RebalanceRetries
from zkconsumer.member.rebalance_state_machine import RebalanceState, RebalanceStateMachine
from zkconsumer.member.registration_state_machine import RegistrationState, RegistrationStateMachine
from zkconsumer.member.session_state_machine import SessionStateMachine

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from zkconsumer.member.commands import Command
    from zkconsumer.member.events import StoredOffset
    from zkconsumer.member.group_settings import GroupSettings
    from zkconsumer.member.group_view import GroupView, TopicSubscription
    from zkconsumer.member.member_assignment import AssignmentPlanner
    from zkconsumer.types import TopicPartition

REGISTER_RETRY_MS = 500
"""The pause before a failed create, delete or preflight read is tried again."""

AUTHORITY_ZOOKEEPER = "zookeeper"

RegistrationResult: TypeAlias = ev.Registered | ev.RegistrationConflict | ev.RegistrationFailed | ev.Deregistered

MEMBERSHIP_TIMERS = tuple(timer for timer in MemberTimer if timer is not MemberTimer.PROBE)
"""The timers that end with the membership.  The probe belongs to the session: it is ignored without one, and started
again by the next one."""


class LeaveProgress(Enum):
    """How far this member is with leaving for good, which only the connector requests.

    An exclusion also leaves the group, but the member joins again later; it does not count here.  ``ANNOUNCED``:
    ``AnnounceLeft`` was emitted, which is done once and ends the wait of the close.
    """

    NOT_REQUESTED = "not requested"
    LEAVING = "leaving"
    ANNOUNCED = "announced"


class MemberStateMachine:
    """One member of one group: decisions only, no input or output.

    The health report and the status read its public attributes on the control thread; only ``handle`` changes them.
    """

    def __init__(self, settings: GroupSettings, planner: AssignmentPlanner) -> None:
        self.settings = settings
        self.planner = planner
        # The machines and parts.  Many of them share ``partitions``.  All tickets are from one counter, so that no two
        # requests of a member have the same one.
        self.session = SessionStateMachine()
        self.membership = MembershipStateMachine()
        self.registration = RegistrationStateMachine()
        self.rebalance = RebalanceStateMachine()
        self.partitions: dict[TopicPartition, PartitionStateMachine] = {}
        """The partitions whose owner node is ours, may be ours, or was requested; empty without a session.  A lost or
        released one is removed in the event that reports it, so none is ``NOT_OWNED`` between events."""
        new_ticket = count(1).__next__
        self.committer = OffsetCommitter(self.partitions, new_ticket, settings.offset_stores)
        self.commit_on_change = CommitOnChange(is_enabled=settings.auto_commit)
        self.new_partitions = NewPartitionTracker(self.partitions, settings)
        self.position_reader = PositionReader(self.partitions, new_ticket, self.new_partitions, settings)
        self.listener = ListenerStateMachine(self.partitions, new_ticket, settings.listener_timeout_ms)
        self.releaser = PartitionReleaser(self.partitions, self.committer, new_ticket, self.listener, settings)
        self.owner_watches = OwnerWatchScheduler(new_ticket)
        self.acquirer = PartitionAcquirer(self.partitions, new_ticket, self.owner_watches)
        self.retries = RebalanceRetries(settings)
        self.diagnosis = DiagnosisSchedule(settings.diagnose_after_ms)
        self.id_conflict = ConsumerIdConflict(settings)
        self.view_log = GroupViewLog()
        self.subscription: TopicSubscription | None = None
        """What to join with; None until streams were created, then never None again."""
        self.view: GroupView | None = None
        """The view that was read last; kept after the end of a session, for the status and the control version.  Writes
        check its control version, so one that was decided before the cut-over is refused after it."""
        self.assignment = MemberAssignment({})
        """The assignment in the last view, also one with an error; without partitions when the session has ended since.
        While the member leaves, it is the one of before and nothing follows from it."""
        self.external_assignment: Mapping[TopicPartition, str] | None = None
        """The assignment that was set from outside; None: this member computes it.  It outlives sessions
        (``an_external_assignment_outlives_the_session.txt``)."""
        self.leave_progress = LeaveProgress.NOT_REQUESTED
        """Moves forward only: a member that leaves does not join again."""
        self.has_failed = False
        """Never False again; then nothing is owned, and no request is sent."""
        self._new_ticket = new_ticket
        self._read_ticket: int | None = None
        """That of the ``ReadGroup`` without an answer.  It is sent in ``PREFLIGHT`` and ``REGISTERED`` only; if the
        membership is in another state when the answer arrives, the answer is ignored."""
        self._timers: set[MemberTimer] = set()
        """The timers that were started, and neither stopped nor fired since; complete, because every command passes
        ``_emit``."""
        self._has_unread_change = False
        """Something changed after the last read was requested, which may not contain it.  A watch fires once, so the
        flag is kept until a read is sent."""
        self._has_change_in_debounce = False
        """A change arrived after the one that started the present debounce time; the end of the time handles it.  Both
        flags can be False while the timer runs: the read at its start contained the change."""
        self._exclusion_reason = ""
        """Why this member was excluded last; "" after a preflight has passed, so always "" when it registers."""
        self._is_lease_expiry_logged = False
        """Whether ``lease-expired`` was logged, and ``lease-renewed`` not yet; False in a new session."""
        self._out: list[Command] = []
        """The commands of the event that is being handled, or was handled last, in order."""
        self._now_ms = 0
        """The monotonic time of that event; all decisions of one event see the same time."""

    # --- the entry point ------------------------------------------------------------------------------------

    def handle(self, event: ev.Event, now_ms: int) -> list[Command]:
        """Process one event; return the commands to execute, in order.

        Only the control thread calls it, one event after the other.  An answer with an outdated ticket changes nothing.
        An exception is a defect: the runtime ends the membership, and the end of the session releases everything.
        """
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
                if self.acquirer.on_result(event):
                    self._acquisitions_done()
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
        registered = self.membership.state is MembershipState.REGISTERED
        assert not (self.has_failed and self.partitions), "a member that has failed owns nothing"
        assert not self.partitions or self.session.live is not None, "an owner node exists in a session only"
        assert registered or self.rebalance.state is RebalanceState.IDLE, "only a registered member rebalances"
        assert not registered or self.registration.state is RegistrationState.POSSIBLE, "no request about it is open"
        return self._out

    @property
    def is_leaving(self) -> bool:
        """Whether this member leaves for good, or has left."""
        return self.leave_progress is not LeaveProgress.NOT_REQUESTED

    @property
    def fetched_partitions(self) -> dict[TopicPartition, str]:
        """The partitions that are fetched now: partition -> thread id."""
        return {tp: p.thread for tp, p in self.partitions.items() if p.state is PartitionState.FETCHING}

    # --- the next step --------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Start every step that can start now, in the order in which their commands must be executed.

        Without a connection nothing starts: the runtime would hold the requests back, and the reconnect decides anew.

        Commits of the program come first without auto commit, because a release writes no offset then: the next owner
        would read again what the program had asked to commit
        (``a_pending_commit_of_the_program_precedes_a_release_without_auto_commit.txt``).  With auto commit they come
        last: a release writes the newest position itself, and must not wait for a commit under way.
        """
        if not self.session.is_connected or self.has_failed:
            return
        if not self.settings.auto_commit:
            self._start_pending_commits()
        if self.membership.state is MembershipState.LEAVING:
            self._advance_leaving()
        self._advance_membership()
        if self.membership.state is MembershipState.REGISTERED:
            self._advance_rebalance()
        elif self.membership.state is not MembershipState.LEAVING and self.partitions:
            self._retry_unreleased()
        self._start_pending_commits()
        if self.settings.auto_commit and self.partitions and MemberTimer.COMMIT not in self._timers:
            self._emit(do.StartTimer(MemberTimer.COMMIT, self.settings.auto_commit_interval_ms))

    def _start_pending_commits(self) -> None:
        """Send the calls of the program in their order; one whose caller has stopped waiting is not made any more.

        A commit that finds nothing to write is complete at once, so the loop may send several.
        """
        self._emit(*self.committer.expire_calls(self._now_ms))
        while self.committer.pending_calls and not self.committer.is_in_progress:
            call = self.committer.pending_calls.pop(0)
            self._emit(*self.committer.send(call.positions, self._session_id, self.control_version, call))

    def _advance_membership(self) -> None:
        """Join: read the group, then register.  ``WAITING`` and ``EXCLUDED`` are left by timers and changes only.

        The read comes first, so that a member that cannot join creates no registration
        (``defect_17_a_member_that_cannot_join_the_group_does_not_register.txt``).  A read of an earlier state that has
        no answer yet is awaited, and its view is used: it is as new as a second one would be, apart from changes, which
        the watches report.
        """
        if self.subscription is None or self.is_leaving:
            return
        if self.membership.state is MembershipState.NOT_REGISTERED:
            self.membership.handle(mem.JoinStarted())
        if self.membership.state is MembershipState.PREFLIGHT and self._read_ticket is None:
            self._read_group()
        if self.membership.state is MembershipState.REGISTERING and self.registration.ticket is None:
            ticket = self._new_ticket()
            self.registration.handle(reg.RegistrationSent(ticket, self._now_ms))
            self._emit(do.Register(ticket, self._session_id, self.subscription))

    def _advance_leaving(self) -> None:
        """Release all partitions, then delete the registration: other members rebalance only when it is deleted.

        Called at every event until the delete is sent.  It waits for the listener (a close starts no call of it),
        for the releases, and for an acquisition under way, whose owner nodes must be released, too.  The delete waits
        for the answer to a create, see ``registration_state_machine``.  A partition whose release was rejected does not
        stop it: the session's end, or ``_retry_unreleased``, releases that one.
        """
        assert self.rebalance.state is RebalanceState.IDLE, "a member that leaves acquires nothing more"
        self._emit(*self.releaser.revoke(self.partitions))
        self._emit(*self.listener.call_before_release(None))
        if self.listener.is_blocking_rebalance:
            return
        self._emit(*self.releaser.send({}, self._session_id, self.control_version))
        if self.releaser.is_pending or self.acquirer.is_pending:
            return
        if self.registration.state is RegistrationState.POSSIBLE:
            ticket = self._new_ticket()
            self.registration.handle(reg.DeregistrationSent(ticket))
            self._emit(do.Deregister(ticket, self._session_id))
        elif self.registration.state is RegistrationState.ABSENT:
            self._deregistered()

    def _retry_unreleased(self) -> None:
        """Retry releases that failed while we left: other members cannot acquire these partitions until then.

        This member stays outside of the group, perhaps for long, and its session lives
        (``a_member_that_stays_excluded_retries_its_failed_releases.txt``).
        """
        assert self.rebalance.state is RebalanceState.IDLE, "an attempt of a registered member releases by itself"
        self._emit(*self.releaser.send({}, self._session_id, self.control_version))
        if not self.releaser.is_pending and self.partitions and MemberTimer.RETRY not in self._timers:
            self._emit(do.StartTimer(MemberTimer.RETRY, self.settings.rebalance_backoff_ms))

    def _advance_rebalance(self) -> None:
        """Continue the attempt.  One event may carry it through several steps, when a step has nothing to wait for.

        The order of the ``if`` statements is the order of the steps, so the commands of several steps are in order,
        too. The end of an attempt leads to ``READING`` when a rerun was requested; that read is sent in the same event.
        """
        self._emit(*self.new_partitions.restart_recreated(self.assignment.own_partitions))
        if self.rebalance.state is RebalanceState.RELEASING:
            self._emit(*self.listener.call_before_release(self.assignment.group_assignment))
            # With a listener, a partition that only changes its thread is released and acquired again, because the
            # listener is called before the release and before the start.
            moves = {} if self.listener.is_set else self.assignment.own_partitions
            self._emit(*self.releaser.send(moves, self._session_id, self.control_version))
            if not self.releaser.is_pending and not self.listener.is_blocking_rebalance:
                self.rebalance.handle(reb.ReleasesDone())
        if self.rebalance.state is RebalanceState.ACQUIRING and not self.acquirer.is_pending:
            self._acquire_missing()
        # The positions for a commit are requested before the group is read, and the read waits for them: a Scala
        # consumer may read the offset of a partition that it takes over from us as soon as it has read the group.
        is_to_read = self.rebalance.state is RebalanceState.READING and self._read_ticket is None
        if is_to_read:
            self.commit_on_change.begin()
        is_fetching, is_busy = bool(self.fetched_partitions), self.committer.is_in_progress
        self._emit(*self.commit_on_change.collect(is_fetching=is_fetching, is_busy=is_busy))
        if is_to_read and not self.commit_on_change.is_collecting:
            self._emit(do.StopTimer(MemberTimer.RETRY))
            self._read_group()
        if self.rebalance.state in (RebalanceState.STABLE, RebalanceState.INCOMPLETE):
            is_incomplete = self.rebalance.state is RebalanceState.INCOMPLETE
            self._emit(*self.owner_watches.ensure_watched(self._topics_watched, soon=is_incomplete))

    # --- session --------------------------------------------------------------------------------------------

    def _session_connected(self, event: ev.SessionConnected) -> None:
        """Continue the session, or start a new one.  A new id without ``SessionLost`` ends the old session here.

        A change may have happened while no watch existed, so the group is read again also in the same session; nothing
        visible follows if nothing has changed (``a_short_disconnect_causes_no_rebalance.txt``).  For an excluded member
        the change may be the one that it waits for.
        """
        live = self.session.live
        if live is not None and live.session_id != event.session_id:
            self._session_lost(ev.SessionLost(live.session_id))
        self._emit(*self.session.handle(event))
        if not self.session.is_connected:
            return
        self.owner_watches.reset(watches_only=True)
        self._has_unread_change = True
        self.commit_on_change.on_change()
        self._probe()
        if self.membership.state is MembershipState.EXCLUDED:
            self.membership.handle(mem.JoinStarted())
        self._trigger()

    def _session_lost(self, event: ev.SessionLost) -> None:
        """The session expired; a report about an older session than the live one is ignored."""
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
        """Forget all state of the ended session: its records must not be delivered or committed in the next one.

        The session machine has handled the event before, so the lease is zero.  Then the order is: stop the partitions;
        answer the commits that wait (``defect_27_a_commit_is_always_answered.txt``) and cancel requests to Kafka; reset
        the parts and machines; stop the timers.  No request to ZooKeeper is emitted: there is no session for it, and
        the server has deleted, or will delete, what was ours.
        """
        self._drop(dict(self.partitions), why)
        self._emit(*self.committer.reset(why), *self.position_reader.cancel(), *self.commit_on_change.reset())
        self.new_partitions.reset()
        self.releaser.reset()
        self.listener.reset()
        self.owner_watches.reset()
        self.membership.handle(ev.SessionLost(0))
        self.rebalance.handle(reb.RebalanceStopped())
        self.registration.handle(ev.SessionLost(0))
        self.assignment = replace(self.assignment, own_partitions={}, group_assignment=None, is_partial=False)
        self.acquirer.reset()
        self.diagnosis.reset()
        self.retries.reset()
        self.id_conflict.end()
        self._read_ticket = None
        self._emit(*(do.StopTimer(timer) for timer in MEMBERSHIP_TIMERS))
        assert not self.partitions, "an owner node ends with its session"
        assert not self.registration.may_exist, "a registration ends with its session"
        if self.is_leaving:
            self._announce_left(())

    def _drop(self, lost: Mapping[TopicPartition, PartitionStateMachine], why: str) -> None:
        """Stop these without a commit: their owner nodes are gone, and other members may own them."""
        for tp, partition in lost.items():
            partition.handle(part.OwnershipLost())
            del self.partitions[tp]
        if lost:
            self._emit(ownership.DropPartitions(tuple(sorted(lost)), why), *self.listener.on_ownership_lost(lost))

    def _probe(self) -> None:
        """Send a request whose answer renews the lease, and the next one after a sixth of the session timeout."""
        interval_ms = self.session.probe_interval_ms
        self._emit(do.ProbeSession(self._session_id), do.StartTimer(MemberTimer.PROBE, interval_ms))

    def _log_lease_expiry(self) -> None:
        """Log when the lease expires while this member owns partitions, and when it is renewed.

        Streams deliver nothing in between.
        """
        is_over = 0 < self.session.lease_until_ms <= self._now_ms
        if is_over and self.partitions and not self._is_lease_expiry_logged:
            self._is_lease_expiry_logged = True
            why = "ZooKeeper has not answered for two thirds of the session timeout, or this process was paused"
            words = f"partitions={len(self.partitions)}: {why}; no records are delivered until ZooKeeper answers"
            self._log("WARNING", "lease-expired", words)
        elif self._is_lease_expiry_logged and not is_over:
            self._is_lease_expiry_logged = False
            self._log("INFO", "lease-renewed", f"partitions={len(self.partitions)}: records are delivered again")

    # --- registration ---------------------------------------------------------------------------------------

    def _registration_answered(self, event: RegistrationResult) -> None:
        """Process the answer to the only open request about the registration; others are of an earlier session.

        A member that leaves stays ``LEAVING`` when a registration is answered; ``_advance_leaving`` deletes it.
        """
        if event.ticket != self.registration.ticket:
            return
        self.registration.handle(event)
        match event:
            case ev.Registered():
                self.membership.handle(mem.RegistrationDone())
                self.id_conflict.end()
                self._emit(do.StopTimer(MemberTimer.DEBOUNCE))
                self._trigger()
            case ev.RegistrationConflict():
                self.membership.handle(mem.RegistrationDeferred())
                if self.membership.state is MembershipState.WAITING:
                    self._on_registration_conflict(event)
            case ev.RegistrationFailed(_, why):
                self.membership.handle(mem.RegistrationDeferred())
                if self.membership.state is MembershipState.WAITING:
                    self._retry_registration_later("registration-failed", why)
            case ev.Deregistered(_, why) if why and not self.is_leaving:
                self._retry_registration_later("deregistration-failed", why)
            case ev.Deregistered():
                self._deregistered()

    def _deregistered(self) -> None:
        """Our registration znode does not exist (any more); when the connector is closed, it ends with the session.

        An excluded member reads the changes that arrived while it was leaving: the only watch has fired for them, or
        for our own delete, and nothing else would make it join again
        (``a_topic_filter_that_cannot_be_evaluated_excludes_the_member.txt``).
        """
        self.membership.handle(mem.DeregistrationDone(bool(self._exclusion_reason) and not self.is_leaving))
        if self.is_leaving:
            self._left()
        self._read_again_if_changed()

    def _left(self) -> None:
        """Announce that we left; owner nodes that could not be deleted end with the session.

        So does a release that is still under way: its answer finds no ticket and is ignored
        (``a_leave_of_an_excluded_member_does_not_wait_for_the_retry_of_a_release.txt``).
        """
        assert not self.acquirer.is_pending or not self.session.is_connected, "an acquisition may still succeed"
        leftovers = tuple(sorted(self.partitions))
        self._announce_left(leftovers)
        self._drop(dict(self.partitions), "its owner node could not be deleted")
        self.releaser.reset()

    def _announce_left(self, not_released: Iterable[TopicPartition]) -> None:
        """End the wait of the close, once; ``not_released`` are named in its log line."""
        assert self.is_leaving, "only a member that leaves for good announces that it has left"
        if self.leave_progress is not LeaveProgress.ANNOUNCED:
            self.leave_progress = LeaveProgress.ANNOUNCED
            self._emit(do.AnnounceLeft(tuple(sorted(not_released))))

    def _retry_registration_later(self, name: str, why: str) -> None:
        self._log("WARNING", name, f"reason={why!r} retry_ms={REGISTER_RETRY_MS}")
        self._emit(do.StartTimer(MemberTimer.REGISTER, REGISTER_RETRY_MS))

    def _on_registration_conflict(self, event: ev.RegistrationConflict) -> None:
        """Another session uses our id: try again soon, until that has lasted longer than a session can."""
        assert self.membership.state is MembershipState.WAITING, "a member that leaves does not wait for its id"
        assert self.session.live is not None, "the answer of an ended session has another ticket"
        sent_at_ms, session_timeout_ms = self.registration.sent_at_ms, self.session.live.timeout_ms
        commands, error = self.id_conflict.on_conflict(event, sent_at_ms, self._now_ms, session_timeout_ms)
        self._emit(*commands)
        if error:
            self._fail("ConsumerIdInUse", error)
        else:
            self._emit(do.StartTimer(MemberTimer.REGISTER, REGISTER_RETRY_MS))

    def _end_deletion_pause(self) -> None:
        """Allow the delete again after a failed one; ``_advance_leaving`` sends it."""
        if self.registration.state is RegistrationState.DELETE_FAILED:
            self.registration.handle(reg.DeletionDue())

    def _leave_wanted(self) -> None:
        """Leave for good.  A disconnected member announces at once what it owns: the session's end will release that.

        The attempt under way is stopped, so nothing more is fetched and the drain begins in this event
        (``defect_16_a_leave_does_not_wait_for_a_running_attempt.txt``).  Answers that are still open are awaited where
        they may have created a znode.

        The program waits for the close, so a commit to Kafka gets more time and more attempts than in a rebalance.
        """
        if self.is_leaving:
            return
        self.leave_progress = LeaveProgress.LEAVING
        self.listener.skip_calls_on_close()
        self.releaser.kafka_timeout_ms = self.settings.kafka_close_timeout_ms
        self.releaser.kafka_attempts = self.settings.kafka_close_attempts
        self._end_deletion_pause()
        self._stop_attempt()
        self.membership.handle(ev.LeaveRequested())
        if self.membership.state is MembershipState.NOT_REGISTERED:
            self._left()
        elif not self.session.is_connected:
            self._announce_left(tp for tp, p in self.partitions.items() if p.is_owned)

    def _on_external_assignment(self, event: ev.ExternalAssignmentSet) -> None:
        """Set or clear the assignment from outside; it takes effect with the next view, after the attempt under way.

        A migrating member uses it: the coordinator's assignment is executed with owner nodes, which stay the lock while
        the members of the group change over at different times
        (``an_external_assignment_is_acquired_like_a_computed_one.txt``).
        """
        if (event.threads is None) != (self.external_assignment is None):
            how = "this member computes it again" if event.threads is None else "this member receives it from now on"
            self._log("INFO", "assignment-source-changed", how)
            self._emit(*self.diagnosis.stop())
            self.diagnosis.is_enabled = event.threads is None
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
        self._has_unread_change = self._has_change_in_debounce = True
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
        if concerned and self._has_unread_change and MemberTimer.DEBOUNCE not in self._timers:
            self._has_change_in_debounce = False
            self._emit(do.StartTimer(MemberTimer.DEBOUNCE, self.settings.debounce_ms))
            if self.membership.state is MembershipState.REGISTERED:
                self.commit_on_change.begin()
                self._trigger()

    def _stop_attempt(self) -> None:
        """Stop the present rebalance because this member leaves: acquire nothing more and read no positions.

        What is under way at the server is not forgotten: the tickets of the acquisition, of releases and of the commit
        stay.  Releases that were rejected are tried once more, as part of leaving.
        """
        self.rebalance.handle(reb.RebalanceStopped())
        self.releaser.unreleasable.clear()
        self._emit(*self.position_reader.cancel(), *self.commit_on_change.reset())
        self.new_partitions.reset()
        self.retries.forget_logged()
        self.diagnosis.forget_topics()
        self._emit(do.StopTimer(MemberTimer.RETRY), *self.diagnosis.stop(), do.StopTimer(MemberTimer.LIST_OWNERS))
        self.owner_watches.reset()

    def _trigger(self) -> None:
        """Request an attempt; a read that was not sent yet will contain the change anyway, so it needs no rerun."""
        about_to_read = self.rebalance.state is RebalanceState.READING and self._read_ticket is None
        if self.membership.state is MembershipState.REGISTERED and not about_to_read:
            self.rebalance.handle(reb.RebalanceTriggered())

    def _read_group(self) -> None:
        """Read members, topics and, if they decide something, owners; changes from now on need another read.

        Owners are limited to as many as the planner needs, because servers without multiRead answer one packet for each
        of them; a diagnosis needs all.
        """
        assert self.subscription is not None, "only a member with a subscription reads its group"
        assert self._read_ticket is None, "one read at a time: the answer of an older one would be taken for the newer"
        self._has_unread_change = False
        self._read_ticket = self._new_ticket()
        whole_group = self.planner.needs_whole_group()
        with_owners = self.planner.needs_owners() or self.diagnosis.is_due
        owners_max = None if self.diagnosis.is_due else self.planner.owners_max()
        ticket, session_id = self._read_ticket, self._session_id
        self._emit(do.ReadGroup(ticket, session_id, self.subscription, whole_group, with_owners, owners_max))

    def _read_answered(self, event: ev.GroupRead | ev.GroupReadFailed) -> None:
        """Process a view: as a preflight before the registration, as the input of the assignment after it.

        In any other state the member is leaving or has left the group, and the view decides nothing.
        """
        if event.ticket != self._read_ticket:
            return
        self._read_ticket = None
        is_preflight = self.membership.state is MembershipState.PREFLIGHT
        if not is_preflight and self.membership.state is not MembershipState.REGISTERED:
            return
        match event:
            case ev.GroupRead(_, view):
                self._emit(*self.view_log.on_view(view, self.subscription, self._now_ms))
                if self._check_authority(view):
                    (self._on_preflight_view if is_preflight else self._on_view)(view)
            case ev.GroupReadFailed(_, why) if is_preflight:
                self.membership.handle(mem.RegistrationDeferred())
                self._retry_registration_later("group-read-failed", why)
            case ev.GroupReadFailed(_, why):
                self._log("WARNING", "group-read-failed", f"reason={why!r}")
                self.rebalance.handle(reb.ReadFailed())
                self._retry_later()

    def _check_authority(self, view: GroupView) -> bool:
        """Whether the member may continue with this view: ZooKeeper has the authority, or the caller follows it.

        A member that went on after the cut-over would commit offsets that nothing reads, and deliver records twice.
        """
        control, follows = view.control, self.settings.follows_control_znode
        if not follows and control is not None and control.authority != AUTHORITY_ZOOKEEPER:
            words = (
                f"the authority for the offsets of this group is {control.authority!r} now (phase {control.phase!r}), "
                "no longer ZooKeeper: start consumers of the coordinator group instead, or roll the migration back "
                "first"
            )
            self._fail("MigrationError", words)
            return False
        before = (self.view.control, self.view.control_version) if self.view else (None, None)
        self.view = view
        if follows and (control, view.control_version) != before:
            self._emit(do.AnnounceControl(control, view.control_version))
        return True

    def _on_preflight_view(self, view: GroupView) -> None:
        """Register only if the group would stay valid: one member that cannot be assigned stops a Scala group."""
        assert self.subscription is not None, "only a member with a subscription does the preflight"
        planned = self.planner.preflight(view, self.subscription)
        self._emit(*planned.log_commands)
        if planned.unevaluable_filter:
            self._exclude(planned.unevaluable_filter)
        elif planned.error:
            self._fail("ConsumerRebalanceFailedException", planned.error)
        else:
            self._exclusion_reason = ""
            self.membership.handle(mem.PreflightPassed())

    def _on_view(self, view: GroupView) -> None:
        """Compute the assignment, and revoke what it takes from us or from one of our threads.

        A change that arrived during the read makes the attempt read again at once (``ViewRead`` leads to ``READING``):
        releasing by an outdated assignment would move partitions twice.

        Without our registration the other members have assigned our partitions to themselves, so everything is released
        before we register again
        (``a_member_whose_registration_is_deleted_releases_its_partitions_and_registers_again.txt``).  One that another
        client overwrote with invalid data is deleted first
        (``a_member_whose_registration_is_overwritten_deletes_it_and_registers_again.txt``).  An assignment
        with an error has no partitions, and what we own is released, as a Scala member does before it fails.  A new
        view ends the exemption of partitions that could not be released, and the commit for the change: releases
        contain the commit.
        """
        if self.settings.member_id not in view.members:
            is_damaged = self.settings.member_id in view.ignored_registrations
            how = "overwrote" if is_damaged else "deleted"
            self._log("WARNING", "registration-deleted", f"another client {how} it; registering again")
            self._stop_attempt()
            for machine in (self.membership,) if is_damaged else (self.registration, self.membership):
                machine.handle(mem.RegistrationDeleted())
            return
        if self.diagnosis.on_view():
            self._emit(*self.planner.diagnose(view))
        given = self.external_assignment
        planned = self.planner.plan(view) if given is None else self.planner.plan_external(view, given)
        self._emit(*planned.log_commands)
        if planned.unevaluable_filter:
            self._exclude(planned.unevaluable_filter)
            return
        if planned.error and planned.error != self.assignment.error:
            self._log("ERROR", "assignment-failed", planned.error)
        self.assignment = planned
        assert self.subscription is not None, "only a member with a subscription has a view"
        self._emit(*self.view_log.on_filter_topics(self.subscription, planned.subscribed_topics))
        if not planned.error:
            wanted = planned.own_partitions if given is None else given
            self._emit(*self.new_partitions.on_view(view, planned.subscribed_topics, wanted))
        self.releaser.unreleasable.clear()
        self.commit_on_change.commit_done()
        self.rebalance.handle(reb.ViewRead())
        if self.rebalance.state is RebalanceState.RELEASING:
            own = planned.own_partitions
            self._emit(*self.releaser.revoke([tp for tp, p in self.partitions.items() if own.get(tp) != p.thread]))

    def _exclude(self, why: str) -> None:
        """Leave the group: if two members evaluated one pattern differently, a partition would have two owners.

        Ignoring the other member instead is no choice: Scala members count it.  The member comes back when the group
        changes; ``why`` is logged when it differs from the reason of the last exclusion.
        """
        assert why, "an excluded member can name the reason"
        if why != self._exclusion_reason:
            self._exclusion_reason = why
            self._log("ERROR", "member-excluded", f"{why}: staying out of the group until its members change")
        self._stop_attempt()
        self.membership.handle(mem.MemberExcluded(may_be_registered=self.registration.may_exist))
        self._read_again_if_changed()

    # --- acquiring ------------------------------------------------------------------------------------------

    def _acquire_missing(self) -> None:
        """Create the owner nodes of the assignment that we do not have; the attempt continues with the answer."""
        assert not self.releaser.is_pending, "release before acquire"
        assert self.view is not None, "an attempt has read the group"
        own, identifies = self.assignment.own_partitions, self.retries.identifies_owners
        commands = self.acquirer.acquire(own, self.view, self._session_id, identify_owners=identifies)
        self._emit(*commands)
        if not commands:
            self._acquisitions_done()

    def _acquisitions_done(self) -> None:
        """Continue with the positions; a member that leaves meanwhile releases what it got, in ``_advance_leaving``."""
        if self.membership.state is not MembershipState.REGISTERED:
            return
        self.rebalance.handle(reb.AcquisitionsDone())
        self._read_positions()

    def _read_positions(self) -> None:
        """Read the positions of the acquired partitions, after the listener was called with the assignment.

        Called at the end of the acquire step, and again when a call of the listener has ended.  Partitions whose offset
        was unreadable are read again.  The listener is called if something starts, or if the assignment is whole; not
        for an attempt that got nothing (``the_listener_is_called_when_an_acquisition_succeeds.txt``).
        """
        unread = tuple(sorted(tp for tp, p in self.partitions.items() if p.expects(part.PositionKnown)))
        if unread or not self.acquirer.not_acquired:
            self._emit(*self.listener.call_before_start(self.assignment.group_assignment))
        if self.listener.is_blocking_rebalance:
            return
        if unread:
            self._emit(*self.position_reader.read(unread, self._session_id))
        else:
            self._positions_done()

    def _positions_read(self, event: ev.PositionsRead | ev.OffsetsFetched) -> None:
        """Start the partitions whose positions are known, when every store has answered.

        Brokers without offset storage (before 0.8.2) are an error: no retry helps
        (``kafka_a_member_fails_when_the_brokers_do_not_store_offsets.txt``).
        """
        commands = self.position_reader.on_result(event)
        if commands is None:
            return
        self._emit(*commands)
        if self.position_reader.unsupported:
            self._fail("OffsetsInKafkaUnsupported", self.position_reader.unsupported)
        elif self.rebalance.state is RebalanceState.POSITIONING:
            self._positions_done()

    def _positions_done(self) -> None:
        """End the attempt.  It is complete only if every partition is fetched; an unreadable offset is retried."""
        assert not self.position_reader.is_reading, "the other store has not answered"
        fetching = all(p.state is PartitionState.FETCHING for p in self.partitions.values())
        is_whole = not (self.acquirer.not_acquired or self.assignment.error or self.assignment.is_partial)
        self.rebalance.handle(reb.PositionsDone(fetching and is_whole))
        if self.rebalance.state is RebalanceState.STABLE:
            self._on_assignment_complete()
        elif self.rebalance.state is RebalanceState.INCOMPLETE:
            self._retry_later()

    def _on_assignment_complete(self) -> None:
        """Stop the retries; a diagnosis follows only for topics that the other members do not own completely."""
        assert not self.acquirer.not_acquired, "a missing partition makes the attempt incomplete"
        assert not self.assignment.error, "without an assignment nothing is complete"
        own = self.assignment.own_partitions
        self._emit(*self.retries.on_complete(), *self.diagnosis.on_complete({tp.topic for tp in own}))
        self._emit(*self.retries.log_complete(own, len(self.view.members) if self.view else 0))
        self._emit(do.AnnounceAssignment(len(own)))

    def _retry_later(self) -> None:
        """Retry after growing pauses; the owner nodes that conflicted with ours are watched meanwhile."""
        assert self.rebalance.state in (RebalanceState.INCOMPLETE, RebalanceState.READING), "an attempt has ended"
        is_kafka_unavailable = self.position_reader.is_kafka_unavailable
        self._emit(*self.retries.on_incomplete(self.acquirer.not_acquired, is_kafka_unavailable=is_kafka_unavailable))
        self._emit(*self.diagnosis.start())

    # --- changes of owner nodes -----------------------------------------------------------------------------

    def _owners_listed(self, event: ev.OwnersListed) -> None:
        """Compare the owner nodes with ours: lost ones stop, freed ones of our assignment are acquired without a read.

        A topic that the answer lacks was not listed; nothing is concluded about its partitions.  A partition that is
        being acquired or released is not compared: the answer to that request decides.  While the assignment is
        partial, owners of other members may show the variant of the group, so the group is read again with its owners.
        """
        if not self.owner_watches.on_listed(event):
            return

        def is_free(tp: TopicPartition) -> bool:
            return tp.topic in event.owned and tp.partition not in event.owned[tp.topic]

        with_node = (PartitionState.ACQUIRED, PartitionState.FETCHING, PartitionState.POSITION_UNREADABLE)
        vanished = [tp for tp, p in self.partitions.items() if p.state in with_node and is_free(tp)]
        self._on_ownership_lost(vanished, "its owner node vanished")
        freed = any(is_free(tp) for tp in self.assignment.own_partitions if tp not in self.partitions)
        if self.rebalance.state is RebalanceState.INCOMPLETE and self.assignment.is_partial:
            self._trigger()
        elif self.rebalance.state is RebalanceState.INCOMPLETE and freed and self._may_acquire:
            self._emit(do.StopTimer(MemberTimer.RETRY))
            self.rebalance.handle(reb.PartitionsFreed())
        if self.rebalance.state is RebalanceState.STABLE and self.view is not None:
            self._emit(*self.diagnosis.on_owners_listed(event.owned, self.view.partitions_by_topic))

    def _on_ownership_lost(self, partitions: Iterable[TopicPartition], why: str) -> None:
        """These owner nodes are no longer ours: stop at once, commit nothing for them, and read the group again.

        A partition that is being acquired has no owner node yet.  The loss is then that of an earlier ownership, for
        example the late result of a commit, and the answer to the acquisition decides.
        """
        found = {tp: self.partitions[tp] for tp in sorted(set(partitions) & self.partitions.keys())}
        lost = {tp: partition for tp, partition in found.items() if partition.is_owned}
        for tp in lost:
            self.position_reader.on_ownership_lost(tp)
        self._emit(*self.committer.on_ownership_lost(tuple(lost)))
        if lost:
            self.retries.forget_logged()
            self._log("WARNING", "ownership-lost", f"partitions={len(lost)} first={min(lost)} reason={why!r}")
            self._drop(lost, why)
            self._trigger()

    # --- the rebalance listener -----------------------------------------------------------------------------

    def _listener_returned(self, event: ev.ListenerReturned) -> None:
        """Continue the attempt that waited for the listener, or end it when the listener raised.

        ``_advance`` continues a release; only the positions must be requested here.  A call that was skipped because an
        earlier one was late is made up for by another attempt.
        """
        is_leaving = self.membership.state is MembershipState.LEAVING
        commands, has_failed = self.listener.on_returned(event, is_leaving=is_leaving)
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
        """Whether this attempt reached the acquire step; False if the listener failed before it.

        Then an owner node that is freed must not be acquired: the listener has not confirmed this assignment.
        """
        return not self.releaser.is_pending and not self.listener.needs_release_call(self.assignment.group_assignment)

    def _continue_positioning(self) -> None:
        """The listener blocks no more: read the positions, if that is the step that waited for it."""
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
        """A store has answered; a commit is also the check that finds a lost owner node whose watch was missed."""
        self._emit(*commands)
        self._on_ownership_lost(lost, "a commit found that the owner node is not ours")

    def _auto_commit(self, positions: Mapping[TopicPartition, int]) -> None:
        """Commit for the interval or for a change; only the interval repeats offsets that Kafka has already.

        Brokers delete offsets that are not committed again (``defect_39_unchanged_offsets_are_repeated_to_kafka.txt``);
        a change must not delay the rebalance with them.  While another commit is under way the positions are dropped:
        the next interval, or the release, commits newer ones.
        """
        repeats = not self.commit_on_change.is_collecting
        self._emit(*self.commit_on_change.on_collected())
        if self.session.is_connected and not self.committer.is_in_progress:
            self.commit_on_change.commit_done()
            self._emit(*self.committer.send(positions, self._session_id, self.control_version, repeats=repeats))

    def _offset_reset(self, tp: TopicPartition, offset: int) -> None:
        """The reset policy moved the position; from now on a smaller offset than the stored one may be committed.

        It is counted, not flagged: the answer of a commit that was decided before it must not end its effect
        (``only_a_reset_decreases_a_stored_offset.txt``).  Only the first position of a partition without an offset is
        not logged.
        """
        partition = self.partitions.get(tp)
        if partition is not None and partition.state in (PartitionState.FETCHING, PartitionState.DRAINING):
            partition.reset_count += 1
            self.new_partitions.mark_positioned(tp)
            stored = max(partition.stored.offset, partition.kafka_offset)
            if stored >= 0 and partition.position >= 0:
                self._emit(do.IncrementCounter("offsets_reset"))
                words = f"partition={tp} stored={stored} is out of range; continuing at {offset}"
                self._log("WARNING", "offset-reset", words, (tp, stored, offset))

    def _offsets_placed(self, placed: Mapping[TopicPartition, StoredOffset]) -> None:
        """Offsets were overwritten on request: older offsets in a store do not block the next, smaller commit.

        The versions of the znodes are those of that write, so the next commit does not find a foreign one.
        """
        for tp, stored in placed.items():
            partition = self.partitions.get(tp)
            if partition is not None and partition.state in (PartitionState.FETCHING, PartitionState.DRAINING):
                partition.reset_count += 1
                partition.record_zookeeper_write(stored, partition.reset_count)
                self.new_partitions.mark_positioned(tp)

    def _timer_fired(self, timer: MemberTimer) -> None:
        """A timer fired.  It may have been stopped just before, so no case relies on having started it.

        Most cases only remove what a step waits for; ``_advance`` then takes the step.  At the end of the debounce time
        an excluded member does the preflight again, because the change may have removed the reason.  A retry tries all
        releases again that were rejected: the reason may have been temporary.
        """
        self._timers.discard(timer)
        match timer:
            case MemberTimer.PROBE if self.session.live is not None:
                self._probe()
                self._log_lease_expiry()
            case MemberTimer.DEBOUNCE:
                if self.membership.state is MembershipState.EXCLUDED and self._has_unread_change:
                    self.membership.handle(mem.JoinStarted())
                elif self._has_change_in_debounce:
                    self._read_again_if_changed()
            case MemberTimer.COLLECT_POSITIONS:
                self.commit_on_change.on_timeout()
            case MemberTimer.LIST_OWNERS if self.session.live is not None:
                topics, fetched = self._topics_watched, self.fetched_partitions
                self._emit(*self.owner_watches.on_timer(topics, fetched, self._session_id))
            case MemberTimer.RETRY:
                self.releaser.unreleasable.clear()
                self._trigger()
            case MemberTimer.DRAIN:
                self._emit(*self.releaser.on_drain_timeout())
            case MemberTimer.SETTLE:
                self.releaser.on_settle_timeout()
            case MemberTimer.RELEASE_WAITS_FOR_KAFKA:
                self._emit(*self.releaser.on_kafka_timeout())
            case MemberTimer.COMMIT:
                if self.fetched_partitions:
                    self._emit(ownership.CollectPositions())
            case MemberTimer.REGISTER:
                self._end_deletion_pause()
                if self.membership.state is MembershipState.WAITING:
                    self.membership.handle(mem.JoinStarted())
            case MemberTimer.DIAGNOSE:
                self.diagnosis.on_timer()
                self._trigger()
            case MemberTimer.LISTENER:
                self._emit(*self.listener.on_timeout())
                self._continue_positioning()
            case MemberTimer.MISSING_TOPICS:
                self._emit(*self.view_log.on_repeat_timer(self._now_ms))

    # --- helpers --------------------------------------------------------------------------------------------

    @property
    def _session_id(self) -> int:
        assert self.session.live is not None, "used only while a session exists"
        return self.session.live.session_id

    @property
    def _topics_watched(self) -> set[str]:
        """The topics whose owners are watched: those of our assignment; all subscribed ones while it is partial."""
        topics = {tp.topic for tp in self.assignment.own_partitions}
        return topics | self.assignment.subscribed_topics if self.assignment.is_partial else topics

    @property
    def exclusion_reason(self) -> str:
        """Why this member is excluded from its group; "" if it is not."""
        return self._exclusion_reason if self.membership.state is MembershipState.EXCLUDED else ""

    @property
    def control_version(self) -> int | None:
        """The version of the group's control znode in the present view; None when the znode does not exist."""
        return None if self.view is None else self.view.control_version

    def _fail(self, kind: str, words: str) -> None:
        """The member cannot continue: stop everything, and end the streams with this error.

        The runtime closes the session after it, which deletes the registration and the owner nodes.
        """
        assert not self.has_failed, "nothing can go wrong in a member that has stopped"
        self.has_failed = True
        self._reset(words)
        self._emit(do.Fail(kind, words))

    def _emit(self, *commands: Command) -> None:
        """Append to the commands of this event.  Every timer of the member passes here, so ``_timers`` is complete."""
        for command in commands:
            match command:
                case do.StartTimer(timer):
                    self._timers.add(timer)
                case do.StopTimer(timer):
                    self._timers.discard(timer)
        self._out += commands

    def _log(self, level: str, name: str, words: str, about: tuple[Any, ...] = ()) -> None:
        self._emit(do.LogEvent(level, name, words, about))
