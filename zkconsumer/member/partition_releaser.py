"""Releases partitions: drain, settle, and one write that commits the offset and deletes the owner node.

The order is fixed: *stop and drain before commit, commit before release*.  With ``release.settle.ms`` the commit is a
separate write, and the owner nodes remain for that time after it.  The reason: a Scala consumer reads the offset
*before* it creates the owner node; when that fails once after our commit, it reads the offset again.

With offsets in Kafka the commit is separate, too, because a multi cannot contain a commit to Kafka.  The release waits
for it at most ``rebalance.offsets.timeout.ms``; then the partitions are released without it.

A release waits for the program (drain timeout), the listener, a commit of the partition under way, the separate commit,
the settle time, and then for ZooKeeper.  All partitions that are ready go in one write; one that is not ready does not
delay the others.

A release whose answer is lost leaves its partitions ``DRAINED`` with unknown ownership, and ``send`` repeats it with a
verification of the owner.  A release that ZooKeeper rejects makes the partition unreleasable for this attempt, so that
it does not block the rebalance (``a_partition_that_cannot_be_given_back_does_not_stop_the_others.txt``).
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
        """How long drained partitions wait for a commit to Kafka."""
        self.kafka_attempts = 1
        """How many attempts that commit may make in this time."""
        self._partitions = partitions
        self._commits = commits
        self._new_ticket = new_ticket
        self._listener = listener
        self._settings = settings
        self._stores = settings.offset_stores
        self._settle_ms = settings.release_settle_ms
        self._commits_before_release = self._settle_ms > 0 or self._stores.uses_kafka
        self._is_kafka_timer_running = False
        """A drained partition waits for a commit to Kafka, and the wait has not timed out."""
        self._logged_failures: dict[TopicPartition, str] = {}
        """Partition -> the reason that was logged last; removed when it is released."""
        self._tickets: dict[int, Mapping[TopicPartition, do.PartitionToRelease]] = {}
        """Ticket of each release without an answer -> its partitions, which are ``RELEASING``, or were lost since."""

    @property
    def is_pending(self) -> bool:
        """Whether a partition that can be released is not released yet."""
        return bool(self._tickets) or any(
            p.is_leaving and tp not in self.unreleasable for tp, p in self._partitions.items()
        )

    def revoke(self, partitions: Iterable[TopicPartition]) -> list[Command]:
        """Stop these at once; those that are fetched are drained first."""
        leaving = sorted(tp for tp in partitions if self._partitions[tp].expects(PartitionRevoked))
        draining = tuple(tp for tp in leaving if self._partitions[tp].state is PartitionState.FETCHING)
        for tp in leaving:
            self._partitions[tp].handle(PartitionRevoked())
        if not draining:
            return []
        return [ownership.Drain(draining), do.StartTimer(MemberTimer.DRAIN, self._settings.drain_timeout_ms)]

    def on_drained(self, positions: Mapping[TopicPartition, int]) -> list[Command]:
        """The program acknowledged the delivered records, or the drain timed out."""
        for tp, position in positions.items():
            held = self._partitions.get(tp)
            if held is not None and held.state is PartitionState.DRAINING:
                held.handle(DrainCompleted(position))
        return [] if self._draining() else [do.StopTimer(MemberTimer.DRAIN)]

    def on_drain_timeout(self) -> list[Command]:
        """Stop waiting for the program; the delivered record counts as not consumed."""
        late = self._draining()
        if not late:
            return []
        words = f"partitions={len(late)} first={late[0]}: the unacknowledged record will be delivered again"
        return [
            do.IncrementCounter("drain_timeouts", len(late)),
            do.LogEvent("WARNING", "drain-timeout", words),
            ownership.ForceDrain(late),
        ]

    def send(self, moves: Mapping[TopicPartition, str], session_id: int, control_version: int | None) -> list[Command]:
        """Release, in one write, the partitions that are drained, settled and in no commit under way."""
        out: list[Command] = []
        if self._commits_before_release:
            out += self._settle(moves, session_id, control_version)
        ready = [tp for tp in self._ready() if not self._commits_before_release or tp in moves or self._is_settled(tp)]
        out += self._update_kafka_timer(ready)
        if not ready:
            return out
        parts: dict[TopicPartition, do.PartitionToRelease] = {}
        writes = self._settings.auto_commit and self._stores.uses_zookeeper
        for tp in ready:
            held = self._partitions[tp]
            offset = held.offset_for_zookeeper(held.position) if writes else None
            next_owner = moves.get(tp) if held.position >= 0 else None
            parts[tp] = do.PartitionToRelease(offset, held.stored, next_owner, verify_owner=held.is_ownership_unknown)
            held.handle(ReleaseSent())
        ticket = self._new_ticket()
        self._tickets[ticket] = parts
        return [*out, do.ReleaseOwnership(ticket, session_id, parts, control_version)]

    def on_release_result(self, event: ReleaseOwnershipCompleted) -> list[Command]:
        """Process the result of a release."""
        parts = self._tickets.pop(event.ticket, None)
        if parts is None:
            return []
        assert event.results.keys() <= parts.keys(), "an answer names what was requested"
        out: list[Command] = []
        gone: list[TopicPartition] = []
        moved: dict[TopicPartition, str] = {}
        for tp, written in sorted(event.results.items()):
            held = self._partitions[tp]
            out += self._commits.report_rewound(tp, written)
            if written.outcome is WriteOutcome.DONE and written.is_thread_changed:
                if parts[tp].offset is None:
                    held.stored = written.stored
                else:
                    held.record_zookeeper_write(written.stored, held.reset_count)
                moved[tp] = parts[tp].next_owner or held.thread
                held.handle(OwnerThreadChanged(moved[tp], written.czxid))
            elif written.outcome is WriteOutcome.DONE:
                held.handle(OwnershipReleased())
                gone.append(tp)
            elif written.outcome is WriteOutcome.NOT_OWNER:
                if not parts[tp].verify_owner:
                    out.append(do.LogEvent("WARNING", "ownership-lost", f"partition={tp} reason={written.why!r}"))
                held.handle(OwnershipLost())
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
        """The settle time is over."""
        for held in self._partitions.values():
            if held.settle_state is SettleState.WAITING:
                held.settle_state = SettleState.DONE

    def on_kafka_timeout(self) -> list[Command]:
        """Stop waiting for Kafka: other members wait for these partitions."""
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
        """The session ended."""
        self._is_kafka_timer_running = False
        self._tickets.clear()
        self.unreleasable.clear()
        self._logged_failures.clear()

    def _draining(self) -> tuple[TopicPartition, ...]:
        return tuple(tp for tp, p in sorted(self._partitions.items()) if p.state is PartitionState.DRAINING)

    def _drained(self) -> list[TopicPartition]:
        return [
            tp
            for tp, p in sorted(self._partitions.items())
            if p.state is PartitionState.DRAINED and tp not in self.unreleasable and self._listener.may_release(p)
        ]

    def _ready(self) -> list[TopicPartition]:
        return [
            tp for tp in self._drained() if tp not in self._commits.in_flight and not self._has_pending_commit_call(tp)
        ]

    def _has_pending_commit_call(self, tp: TopicPartition) -> bool:
        """Whether a commit call of the program for it is queued, and the release would not write its offset."""
        return not self._settings.auto_commit and any(tp in call.positions for call in self._commits.pending_calls)

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

    def _is_settled(self, tp: TopicPartition) -> bool:
        return self._settling(tp) is SettleState.DONE

    def _settle(
        self, moves: Mapping[TopicPartition, str], session_id: int, control_version: int | None
    ) -> list[Command]:
        """Commit the drained partitions, and keep their owner nodes for the settle time after the commit.

        A partition that only changes its thread does not wait: the next owner is this member.  Without a settle time
        no partition waits.
        """
        assert self._commits_before_release, "otherwise the release itself contains the commit"
        out: list[Command] = []
        if not self._commits.is_in_progress:
            fresh = [tp for tp in self._ready() if tp not in moves and self._settling(tp) is SettleState.NOT_STARTED]
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
