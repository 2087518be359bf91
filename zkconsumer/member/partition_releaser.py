"""Releases partitions: drain, settle, and one write that commits the offset and deletes the owner node.

    revoke --> DRAINING --> DRAINED --[listener, commits, settle time]--> RELEASING --> not owned any more
                                ^--------- rejected, or the answer was lost ----'   '-> FETCHING, in another thread

Theory of operation
-------------------

*Who calls.*  ``MemberStateMachine`` revokes what the view assigns to others, or everything when the member leaves.  It
calls ``send`` after every event while partitions are being released, and ``send`` finds out which are ready.  So the
answers, the timers and the end of a commit only change a state, and the same call continues.

*Order.*  It is fixed: *stop and drain before commit, commit before release*.  A commit before the drain would lack the
record that the program still processes; a release before the commit would let the next owner start from the offset
before.  ``check_command_order`` checks it in every transcript and every simulated group.

*The commit.*  With offsets in ZooKeeper alone and without a settle time the release contains the commit, in one multi.
In two cases it is a write of its own, before the release (``_commits_before_release``):

- With ``release.settle.ms`` the owner nodes remain for that time after the commit.  A Scala consumer reads the offset
  *before* it creates the owner node; when that fails once after our commit, it reads the offset again
  (``release_settle_ms_delays_the_release_after_the_commit.txt``).
- With offsets in Kafka, because a multi cannot contain a commit to Kafka
  (``kafka_a_partition_that_is_drained_during_a_commit_is_committed_again.txt``).

*What a release waits for.*  For the program, at most the drain timeout; for the listener; for a commit of the partition
under way, because both write the same znode; for the separate commit; for the settle time; and then for ZooKeeper.
The wait for Kafka ends after ``rebalance.offsets.timeout.ms``, and the partitions are released without that commit:
other members wait for them, and a Scala consumer gives up after 8 s with its defaults
(``kafka_a_release_waits_for_kafka_until_its_timeout.txt``).  All partitions that are ready go in one write; one that is
not ready does not delay the others.

*What waits for a release.*  The acquisitions of the attempt (``is_pending``), as in the Scala consumer: two members
that exchange partitions must not wait for each other's owner nodes.  The deletion of the registration waits, too.

*A lost answer.*  The partitions are ``DRAINED`` again, with unknown ownership, and ``send`` repeats the release with a
check of the owner before the write: the node may be deleted already, and another member may own the partition
(``a_release_without_an_answer_is_repeated_after_an_owner_check.txt``).

*A rejection.*  The partition becomes unreleasable for this attempt, so that it does not block the rebalance
(``a_partition_that_cannot_be_released_does_not_stop_the_others.txt``).  The next attempt tries again
(``an_excluded_member_retries_a_failed_release.txt``).

*A pause, and the end of the session.*  Owner nodes end with the session, so ``reset`` forgets everything.  The release
is not executed in a later session (``the_session_expires_during_a_release.txt``), and its answer has a ticket that is
no longer in ``_tickets``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.member import commands as do
from zkconsumer.member import ownership
from zkconsumer.member.events import MemberTimer, WriteOutcome
from zkconsumer.member.offset_committer import CONTROL_CHANGED
from zkconsumer.member.partition_state_machine import (
    DrainCompleted,
    OwnershipLost,
    OwnershipReleased,
    OwnerThreadChanged,
    PartitionRevoked,
    PartitionState,
    ReleaseFailed,
    ReleaseSent,
    SettleState,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from zkconsumer.member.commands import Command
    from zkconsumer.member.events import ReleaseOwnershipCompleted
    from zkconsumer.member.group_settings import GroupSettings
    from zkconsumer.member.listener_state_machine import ListenerStateMachine
    from zkconsumer.member.offset_committer import OffsetCommitter
    from zkconsumer.member.partition_state_machine import PartitionStateMachine
    from zkconsumer.types import TopicPartition


DROP_REASON_RELEASED = "released"
"""The reason in ``DropPartitions`` for a released partition; any other reason means that it was lost."""


class PartitionReleaser:
    """The partitions that are being released."""

    def __init__(
        self,
        partitions: dict[TopicPartition, PartitionStateMachine],
        commits: OffsetCommitter,
        new_ticket: Callable[[], int],
        listener: ListenerStateMachine,
        settings: GroupSettings,
    ) -> None:
        self.unreleasable: dict[TopicPartition, str] = {}
        """Partition whose release was rejected in this attempt -> why; it is ``DRAINED``, and nothing waits for it.  An
        entry may outlive its partition, until the next view, retry or end of the session clears all of them."""
        self.kafka_timeout_ms = settings.kafka_timeout_ms
        """How long drained partitions wait for a commit to Kafka.  Longer when the member leaves: the program waits for
        the close, and this commit is the last one."""
        self.kafka_attempts = 1
        """How many attempts that commit may make in this time; more when the member leaves."""
        self._partitions = partitions
        """The member's table; released partitions are removed here."""
        self._commits = commits
        self._new_ticket = new_ticket
        self._listener = listener
        """Decides when a partition may be released: not before the release call for it has returned."""
        self._settings = settings
        self._stores = settings.offset_stores
        self._settle_ms = settings.release_settle_ms
        self._commits_before_release = self._settle_ms > 0 or self._stores.uses_kafka
        """Whether the last commit of a partition is a write of its own before the release; False: the release contains
        it.  Constant.  Only where it is True does a partition pass through the values of ``SettleState``."""
        self._is_kafka_timer_running = False
        """A drained partition waits for a commit to Kafka, and the wait has not timed out."""
        self._logged_failures: dict[TopicPartition, str] = {}
        """Partition -> the reason that was logged last; removed when it is released."""
        self._tickets: dict[int, Mapping[TopicPartition, do.PartitionToRelease]] = {}
        """Ticket of each release without an answer -> its partitions.  They are ``RELEASING``, and no others are: in
        this state a partition is dropped only with all others, and ``reset`` clears the tickets then."""

    @property
    def is_pending(self) -> bool:
        """Whether a partition that can be released is not released yet."""
        return bool(self._tickets) or any(
            p.is_leaving and tp not in self.unreleasable for tp, p in self._partitions.items()
        )

    def revoke(self, partitions: Iterable[TopicPartition]) -> list[Command]:
        """Stop these at once; those that are fetched are drained first.

        Partitions that are leaving already, or that are being acquired, are skipped: the answer of the acquisition
        comes first.  The drain timer starts anew with each call, also for partitions that were draining before.
        """
        leaving = sorted(tp for tp in partitions if self._partitions[tp].expects(PartitionRevoked))
        draining = tuple(tp for tp in leaving if self._partitions[tp].state is PartitionState.FETCHING)
        for tp in leaving:
            self._partitions[tp].handle(PartitionRevoked())
        if not draining:
            return []
        return [ownership.Drain(draining), do.StartTimer(MemberTimer.DRAIN, self._settings.drain_timeout_ms)]

    def on_drained(self, positions: Mapping[TopicPartition, int]) -> list[Command]:
        """The program acknowledged the delivered records, or the drain timed out.

        A partition in another state was lost meanwhile, perhaps acquired again; its position is no longer valid.
        """
        for tp, position in positions.items():
            held = self._partitions.get(tp)
            if held is not None and held.state is PartitionState.DRAINING:
                held.handle(DrainCompleted(position))
        return [] if self._draining() else [do.StopTimer(MemberTimer.DRAIN)]

    def on_drain_timeout(self) -> list[Command]:
        """Stop waiting for the program; the delivered record counts as not consumed.

        The partitions stay ``DRAINING`` until the processor answers ``ForceDrain`` with their positions.
        """
        late = self._draining()
        if not late:
            return []
        words = f"partitions={len(late)} first={late[0]}: the unacknowledged record will be delivered again"
        return [
            do.IncrementCounter("drain_timeouts", len(late)),
            do.LogEvent("WARNING", "drain-timeout", words),
            ownership.ForceDrain(late),
        ]

    def send(
        self, own_threads: Mapping[TopicPartition, str], session_id: int, control_version: int | None
    ) -> list[Command]:
        """Release, in one write, the partitions that are drained, settled and in no commit under way.

        ``own_threads``: our assignment in the present view, partition -> thread of this member.  A drained partition in
        it only changes its thread (or was assigned to us again by a later view): its owner node is replaced in one
        multi, and its undelivered records move to the new thread.  It waits for no separate commit, as no other member
        reads its offset.  Empty when all partitions leave this member, or when the listener must see each of them.

        A partition without a position is deleted and acquired again instead: a moved one is fetched without a read of
        its position.
        """
        out: list[Command] = []
        if self._commits_before_release:
            out += self._settle(own_threads, session_id, control_version)
        ready = [
            tp
            for tp in self._ready()
            if not self._commits_before_release or tp in own_threads or self._settling(tp) is SettleState.DONE
        ]
        out += self._update_kafka_timer(ready)
        if not ready:
            return out
        parts: dict[TopicPartition, do.PartitionToRelease] = {}
        writes = self._settings.auto_commit and self._stores.uses_zookeeper
        for tp in ready:
            held = self._partitions[tp]
            offset = held.offset_for_zookeeper(held.position) if writes else None
            next_owner = own_threads.get(tp) if held.position >= 0 else None
            parts[tp] = do.PartitionToRelease(
                offset,
                held.stored,
                next_owner,
                verify_owner=held.is_ownership_unknown,
                is_reset=offset is not None and held.was_reset_since_write,
            )
            held.handle(ReleaseSent())
        ticket = self._new_ticket()
        self._tickets[ticket] = parts
        return [*out, do.ReleaseOwnership(ticket, session_id, parts, control_version)]

    def on_release_result(self, event: ReleaseOwnershipCompleted) -> list[Command]:
        """Process the result of a release; each partition ends the state ``RELEASING`` here.

        "Not the owner" after a check of the owner is what a release that was executed looks like: it is no loss, and
        nothing is logged.  A rejection because of the control znode is none either: the next view has its new version.
        """
        parts = self._tickets.pop(event.ticket, None)
        if parts is None:
            return []
        assert event.results.keys() == parts.keys(), "every partition of a release has an outcome"
        out: list[Command] = []
        gone: list[TopicPartition] = []
        moved: dict[TopicPartition, str] = {}
        for tp, written in sorted(event.results.items()):
            held, part = self._partitions[tp], parts[tp]
            out += self._commits.report_rewound(tp, written)
            if written.outcome is WriteOutcome.DONE and part.next_owner is not None:
                assert written.is_thread_changed, "the node of the next thread is created in the same multi"
                # Without an offset nothing was written, so a reset of the position is still to be committed.
                if part.offset is None:
                    held.stored = written.stored
                else:
                    held.record_zookeeper_write(written.stored, held.reset_count)
                moved[tp] = part.next_owner
                held.handle(OwnerThreadChanged(part.next_owner, written.czxid))
            elif written.outcome in (WriteOutcome.DONE, WriteOutcome.NOT_OWNER):
                is_lost = written.outcome is WriteOutcome.NOT_OWNER
                if is_lost and not part.verify_owner:
                    out.append(do.LogEvent("WARNING", "ownership-lost", f"partition={tp} reason={written.why!r}"))
                held.handle(OwnershipLost() if is_lost else OwnershipReleased())
                gone.append(tp)
            else:
                held.handle(ReleaseFailed(is_outcome_unknown=written.outcome is WriteOutcome.UNKNOWN))
                if written.outcome is not WriteOutcome.UNKNOWN:
                    self.unreleasable[tp] = written.why
                    if written.why not in (CONTROL_CHANGED, self._logged_failures.get(tp)):
                        self._logged_failures[tp] = written.why
                        out.append(do.LogEvent("ERROR", "release-failed", f"partition={tp} reason={written.why!r}"))
        for tp in (*gone, *moved):
            self._logged_failures.pop(tp, None)
        for tp in gone:
            del self._partitions[tp]
        if moved:
            out.append(ownership.MoveToThread(moved, {tp: self._partitions[tp].czxid for tp in moved}))
        if gone:
            out.append(ownership.DropPartitions(tuple(gone), DROP_REASON_RELEASED))
        return out

    def on_settle_timeout(self) -> None:
        """The settle time is over.

        One timer serves all partitions: one that began to wait later restarts it, so an earlier one waits longer.
        """
        for held in self._partitions.values():
            if held.settle_state is SettleState.WAITING:
                assert held.is_leaving, "only a drained partition settles"
                held.settle_state = SettleState.DONE

    def on_kafka_timeout(self) -> list[Command]:
        """Stop waiting for Kafka: other members wait for these partitions.

        They count as committed from now on, also those whose own commit has not started, because it would wait for the
        same coordinator.  The commit under way is abandoned as a whole; offsets of partitions that this member keeps
        are committed with the next one (``kafka_a_release_waits_for_an_earlier_commit_until_its_timeout.txt``).
        """
        assert self._stores.uses_kafka, "only a commit to Kafka delays a release so long"
        self._is_kafka_timer_running = False
        late = [tp for tp in self._drained() if self._settling(tp) in (SettleState.NOT_STARTED, SettleState.COMMITTING)]
        if not late:
            return []
        for tp in late:
            self._partitions[tp].settle_state = SettleState.COMMITTING
        there = (
            "; ZooKeeper has them"
            if self._stores.uses_zookeeper
            else ": records read since the last commit are delivered again"
        )
        words = (
            f"partitions={len(late)} first={late[0]} waited_ms={self.kafka_timeout_ms}: they are released, but the "
            f"group coordinator did not accept their last offsets{there}"
        )
        why = f"the coordinator did not answer within {self.kafka_timeout_ms} ms, and the partitions had to be released"
        return [
            do.IncrementCounter("kafka_release_timeouts", len(late)),
            do.LogEvent("WARNING", "kafka-release-timeout", words),
            *self._commits.abandon_kafka_commit(why),
        ]

    def reset(self) -> None:
        """The session ended: no owner node is left to release."""
        self._is_kafka_timer_running = False
        self._tickets.clear()
        self.unreleasable.clear()
        self._logged_failures.clear()

    def _draining(self) -> tuple[TopicPartition, ...]:
        return tuple(tp for tp, p in sorted(self._partitions.items()) if p.state is PartitionState.DRAINING)

    def _drained(self) -> list[TopicPartition]:
        """The partitions that are to be released, for which the listener was called."""
        return [
            tp
            for tp, p in sorted(self._partitions.items())
            if p.state is PartitionState.DRAINED and tp not in self.unreleasable and self._listener.may_release(p)
        ]

    def _ready(self) -> list[TopicPartition]:
        """Those of them that no commit under way and no queued call of the program delays.

        Without auto commit the release writes no offset.  A call that is queued when its partition is drained must be
        executed first, or the next owner reads again what the program has asked to commit
        (``a_pending_commit_of_the_program_precedes_a_release_without_auto_commit.txt``).
        """
        calls = [] if self._settings.auto_commit else self._commits.pending_calls
        return [
            tp
            for tp in self._drained()
            if tp not in self._commits.in_flight and not any(tp in call.positions for call in calls)
        ]

    def _update_kafka_timer(self, ready: Collection[TopicPartition]) -> list[Command]:
        """Start the timer when a drained partition begins to wait for a commit to Kafka; stop it when none waits.

        The timer continues from one commit to the next: a drained partition waits for the commit of the group change,
        then for its own.
        """
        waits = (
            self._stores.uses_kafka and self._commits.is_in_progress and any(tp not in ready for tp in self._drained())
        )
        if waits == self._is_kafka_timer_running:
            return []
        self._is_kafka_timer_running = waits
        return [
            do.StartTimer(MemberTimer.RELEASE_WAITS_FOR_KAFKA, self.kafka_timeout_ms)
            if waits
            else do.StopTimer(MemberTimer.RELEASE_WAITS_FOR_KAFKA)
        ]

    def _settle(
        self, own_threads: Mapping[TopicPartition, str], session_id: int, control_version: int | None
    ) -> list[Command]:
        """Commit the drained partitions, and keep their owner nodes for the settle time after the commit.

            NOT_STARTED --commit sent--> COMMITTING --no commit under way--> WAITING --timer--> DONE
                                                     '-- without a settle time -----------------^

        A partition that only changes its thread does not take part: the next owner is this member.  Without auto commit
        nothing is written, and the settle time counts nevertheless: the program commits when its listener is called
        (``release_settle_ms_delays_a_release_without_automatic_commits.txt``).  A failed commit does not hold the
        partition either; the release contains the offset for ZooKeeper once more.
        """
        assert self._commits_before_release, "otherwise the release itself contains the commit"
        out: list[Command] = []
        if not self._commits.is_in_progress:
            fresh = [
                tp for tp in self._ready() if tp not in own_threads and self._settling(tp) is SettleState.NOT_STARTED
            ]
            if fresh and self._settings.auto_commit:
                positions = {tp: self._partitions[tp].position for tp in fresh}
                out += self._commits.send(
                    positions, session_id, control_version, repeats=False, attempts=self.kafka_attempts
                )
            for tp in fresh:
                self._partitions[tp].settle_state = SettleState.COMMITTING
        committed = [tp for tp in self._ready() if self._settling(tp) is SettleState.COMMITTING]
        for tp in committed:
            self._partitions[tp].settle_state = SettleState.WAITING if self._settle_ms else SettleState.DONE
        return [*out, do.StartTimer(MemberTimer.SETTLE, self._settle_ms)] if committed and self._settle_ms else out

    def _settling(self, tp: TopicPartition) -> SettleState:
        return self._partitions[tp].settle_state
