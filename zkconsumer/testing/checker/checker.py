"""Checks a history and returns a verdict.  Pure.

The history is read twice: first for what applies to all of it (logs, members, policy: ``checker_state``), then line by
line.  This module tracks how members start and end.  The other checks are in ``ownership_check``,
``redelivery_check``, ``commit_check``, ``final_checks``, and for a migration in ``migration_check`` and
``end_state_check``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from zkconsumer.testing.checker import events as h
from zkconsumer.testing.checker.checker_state import CheckerState
from zkconsumer.testing.checker.commit_check import CommitCheck
from zkconsumer.testing.checker.end_state_check import EndStateCheck
from zkconsumer.testing.checker.final_checks import AssignmentChecks, LossCheck
from zkconsumer.testing.checker.migration_check import MigrationCheck
from zkconsumer.testing.checker.ownership_check import OwnershipCheck
from zkconsumer.testing.checker.policy import Policy
from zkconsumer.testing.checker.redelivery_check import RedeliveredRecord, RedeliveryCheck
from zkconsumer.testing.checker.tracked_partitions import (
    BEFORE_HISTORY,
    NEVER,
    Delivery,
    MemberEnd,
    TrackedMember,
    TrackedPartition,
)
from zkconsumer.testing.checker.verdict import Allowance, CheckerCounts, Finding, Verdict


def check_history(
    history: Iterable[h.HistoryEvent], policy: Policy | None = None, *, expected_end: h.StateSnapshot | None = None
) -> Verdict:
    """The verdict on a history; ``policy`` applies where the history's own policy lines set nothing.

    ``expected_end``: the end (``end_state``) of the same migration without a kill; this one must reach it or be undone.

    Raises ``HistoryError`` when a line names a member without a ``member`` line, or contradicts another line.
    """
    return _Checker(h.in_order(history), policy or Policy(), expected_end).verdict()


class _Checker:
    def __init__(self, events: list[h.HistoryEvent], policy: Policy, expected_end: h.StateSnapshot | None) -> None:
        self._bench = CheckerState(events, policy)
        self._migration = MigrationCheck(self._bench)
        self._end = EndStateCheck(self._bench, expected_end)
        self._ownership = OwnershipCheck(self._bench)
        self._repeats = RedeliveryCheck(self._bench, self._ownership)
        self._stored = CommitCheck(self._bench, self._repeats)
        self._checkpoints = AssignmentChecks(self._bench)
        self._ownership_transfers: Counter[str] = Counter()
        self._delivered = 0
        # Lines without a handler (log, started_at, policy, note) were read in the first pass, or are for people.
        self._handlers: dict[type[h.HistoryEvent], Callable[[Any], None]] = {
            h.MemberDeclared: self._introduced,
            h.Joined: self._joined,
            h.Leaving: self._leaving,
            h.Left: self._left,
            h.Killed: self._killed,
            h.Paused: self._paused,
            h.Continued: self._continued,
            h.Expired: self._expired,
            h.MemberAcquiredPartition: self._claimed,
            h.MemberReleasedPartition: self._released,
            h.OwnerObserved: self._ownership.owner_seen,
            h.DrainTimedOut: self._repeats.drain_timed_out,
            h.OffsetJumpAllowed: self._reset,
            h.RecordDelivered: self._handed,
            h.RecordRangeDelivered: self._handed,
            h.RecordConsumed: self._stored.consumed,
            h.CommitCalled: self._leaving,
            h.OffsetCommitted: self._committed,
            h.ControlWritten: self._migration.control_written,
            h.Fenced: self._migration.fenced,
            h.Unfenced: self._migration.unfenced,
            h.PlannedKafkaOffset: self._migration.targeted,
            h.StateSnapshot: self._end.add_state,
            h.AssignmentExpected: self._checkpoints.assignment,
            h.GroupSettled: self._checkpoints.settled,
            h.FullReadExpected: self._drained,
        }

    def verdict(self) -> Verdict:
        bench = self._bench
        for position, event in enumerate(bench.events, 1):
            bench.advance_to(position, event.t)
            handler = self._handlers.get(type(event))
            if handler is not None:
                handler(event)
        bench.run_due_checks()
        for partition in bench.partitions.values():
            for member in partition.ownerships:
                self._ownership.end(member, partition)
        LossCheck(bench).judge_all()
        self._end.judge(self._migration.control)
        findings = tuple(Finding(d.label, d.text, d.evidence()) for d in bench.findings.sorted_findings())
        allowances = tuple(Allowance(d.label, d.text, d.evidence()) for d in bench.allowances.sorted_findings())
        return Verdict(not findings, findings, allowances, self._counts())

    def _counts(self) -> CheckerCounts:
        partitions = self._bench.partitions.values()
        return CheckerCounts(
            lines=len(self._bench.events),
            members=len(self._bench.members),
            partitions=sum(partition.log.is_known for partition in partitions),
            records=sum(p.log.count(p.base, p.log.end) for p in partitions if p.log.is_known),
            delivered=self._delivered,
            delivered_distinct=sum(partition.delivered.distinct for partition in partitions),
            commits=self._stored.commits,
            duplicates=dict(self._repeats.counts),
            ownership_transfers=dict(self._ownership_transfers),
            authority_changes=self._migration.authority_changes,
        )

    # --- start and end of members -------------------------------------------------------------------------------

    def _introduced(self, event: h.MemberDeclared) -> None:
        member = self._bench.member(event.member)
        if member.closed is not None:
            self._starts_again(member, event.t)

    def _joined(self, event: h.Joined) -> None:
        member = self._bench.member(event.member)
        self._starts_again(member, event.t)
        member.was_seen = True
        member.started_t = event.t

    def _starts_again(self, member: TrackedMember, t: int) -> None:
        if member.closed is not None or member.zombie_t is not None:
            self._forget(member, t, self._late_ms(member) if member.kind == "scala" else 0)
        member.last_end = member.closed = member.zombie_t = None
        member.is_paused = False

    def _late_ms(self, member: TrackedMember) -> int:
        return 0 if member.reports_ownership else self._bench.policy.observer_delay_ms

    def _leaving(self, event: h.Leaving | h.CommitCalled) -> None:
        self._stored.allow_unacknowledged(self._bench.member(event.member))

    def _left(self, event: h.Left) -> None:
        member = self._bench.member(event.member)
        if not event.clean:
            self._repeats.allow_since_commit(member, "unclean_close", event.t)
        self._closed(member, "left", event.t)

    def _killed(self, event: h.Killed) -> None:
        member = self._bench.member(event.member)
        self._repeats.allow_since_commit(member, "killed", event.t)
        self._closed(member, "was killed", event.t)

    def _closed(self, member: TrackedMember, how: str, t: int) -> None:
        member.last_end = member.closed = MemberEnd(how, t, self._bench.line_number())
        self._bench.schedule_check(t, self._stop_holding, member)
        # Its last acquisition may still be observed; only then is it certain which records began an ownership.
        self._bench.schedule_check(t + self._late_ms(member), self._forget, member, t, 0)

    def _paused(self, event: h.Paused) -> None:
        member = self._bench.member(event.member)
        member.is_paused = True
        self._repeats.allow_since_commit(member, "paused", event.t)

    def _continued(self, event: h.Continued) -> None:
        member = self._bench.member(event.member)
        member.is_paused = False
        member.resumed_t = event.t
        member.delivered_since_resume = 0
        if member.kind == "scala":
            member.zombie_t = event.t

    def _expired(self, event: h.Expired) -> None:
        member = self._bench.member(event.member)
        delay = self._bench.policy.observer_delay_ms
        self._repeats.allow_since_commit(member, "expired", event.t, delay)
        if member.started_t >= 0 and event.t - delay <= member.started_t:
            return  # It has started again already: the end was observed late.
        if member.closed is None:
            member.last_end = MemberEnd("lost its session", event.t, self._bench.line_number())
        if member.kind == "scala":
            # A Scala consumer continues with the records that it has fetched until it has registered again.
            member.zombie_t = event.t
        self._bench.schedule_check(event.t, self._stop_holding, member)
        self._bench.schedule_check(event.t, self._forget, member, event.t, self._late_ms(member))

    def _forget(self, member: TrackedMember, t: int, late_ms: int) -> None:
        """End the ownerships of the member."""
        for partition in self._bench.partitions.values():
            tenure = partition.ownerships.get(member)
            if tenure is not None and tenure.start_t <= t:
                self._ownership.restart(member, partition, t, late_ms)

    def _stop_holding(self, member: TrackedMember) -> None:
        for partition in self._bench.partitions.values():
            self._ownership.end_ownership(member, partition)

    def _drained(self, event: h.FullReadExpected) -> None:
        for partition in self._bench.partitions.values():
            if event.topic in (None, partition.name.topic) and event.partition in (None, partition.name.partition):
                partition.must_be_read = True

    # --- events that also concern a migration -------------------------------------------------------------------

    def _claimed(self, event: h.MemberAcquiredPartition) -> None:
        self._migration.claimed(event)
        self._ownership.claimed(event)

    def _released(self, event: h.MemberReleasedPartition) -> None:
        self._migration.released(event)
        self._ownership.released(event)

    def _reset(self, event: h.OffsetJumpAllowed) -> None:
        self._migration.reset(event)
        self._repeats.reset(event)

    def _committed(self, event: h.OffsetCommitted) -> None:
        if self._migration.committed(event):
            self._stored.committed(event)

    # --- records ------------------------------------------------------------------------------------------------

    def _handed(self, event: h.RecordDelivered | h.RecordRangeDelivered) -> None:
        self._migration.delivered(event)
        member, partition, position = (
            self._bench.member(event.member),
            self._bench.partition(event),
            self._bench.position,
        )
        if isinstance(event, h.RecordDelivered):
            first = last = event.offset
        else:
            first, last = event.first, event.last
        delivery = Delivery(member, partition, (first, last), event.t, position)
        self._delivered += last - first + 1
        partition.was_used = True
        member.was_seen = True
        self._check_life_and_log(delivery)
        in_hand = member.resumed_t is not None and self._was_in_hand(member, partition)
        member.delivered_since_resume += last - first + 1
        tenure = self._ownership.follow(delivery)
        if member.kind == "ours":
            self._ownership.check_is_owner(delivery, tenure, in_hand=in_hand)
        is_zombie = member.zombie_t is not None and partition.is_zombie(member)
        before = partition.add_delivery_span(member, is_zombie, position)
        if before is not None and before[0] is not member and not is_zombie and not before[1]:
            self._ownership_transfers[f"{before[0].kind}_to_{member.kind}"] += 1
        for offset in range(first, last + 1):
            earlier = partition.delivered.put(offset, position)
            if not earlier and partition.is_base_stored and offset < partition.base:
                earlier = BEFORE_HISTORY
            if earlier != NEVER:
                self._repeats.check_later(
                    RedeliveredRecord(member, partition, tenure, offset, earlier, position, event.t, in_hand)
                )
        partition.highest_delivered = max(partition.highest_delivered, last)

    def _was_in_hand(self, member: TrackedMember, partition: TrackedPartition) -> bool:
        """Whether the record may have been returned before the pause, and its line written after it."""
        tenure = partition.ownerships.get(member)
        if member.kind != "ours" or member.resumed_t is None or tenure is None or tenure.start_t > member.resumed_t:
            return False
        return member.delivered_since_resume < self._bench.policy.in_hand_at_pause * member.streams

    def _check_life_and_log(self, delivery: Delivery) -> None:
        member, (first, last) = delivery.member, delivery.span
        closed, log = member.closed, delivery.partition.log
        if closed is not None and delivery.t > closed.t:
            text = f"{member.name} delivered after it {closed.how} (line {closed.line})"
            self._bench.report("delivered_after_close", text, delivery, key=closed.line, lines=(closed.line,))
        if log.is_known and (first < log.start or last >= log.end):
            text = f"{member.name} delivered an offset outside the log, which contains {log.start} to {log.end - 1}"
            self._bench.report("not_in_log", text, delivery, key="log", lines=(log.line,))
