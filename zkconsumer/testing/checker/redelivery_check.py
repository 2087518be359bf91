"""Checks records that were delivered again: what allows it, and what is too much.  Pure.

A record may be delivered again by a *later* ownership only, and only from a committed offset on that this ownership can
have read.  Within this limit a reason is needed: a permission (a member was killed, paused, expired, closed uncleanly,
released a partition with an unacknowledged message; the offset was reset), or a transfer that the policy allows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from zkconsumer.testing.checker import events as h
from zkconsumer.testing.checker.checker_state import CheckerState
from zkconsumer.testing.checker.ownership_check import OwnershipCheck
from zkconsumer.testing.checker.tracked_partitions import (
    OwnershipPeriod,
    RedeliveryPermission,
    TrackedMember,
    TrackedPartition,
)


@dataclass(frozen=True, slots=True, eq=False)
class RedeliveredRecord:
    """One record that was delivered before, at position ``earlier``."""

    member: TrackedMember
    partition: TrackedPartition
    tenure: OwnershipPeriod
    offset: int
    earlier: int
    position: int
    t: int
    in_hand: bool


class RedeliveryCheck:
    """Permissions, and the redeliveries that they explain."""

    def __init__(self, bench: CheckerState, ownership: OwnershipCheck) -> None:
        self._bench = bench
        self._ownership = ownership
        self.counts: Counter[str] = Counter()

    # --- permissions --------------------------------------------------------------------------------------------

    def allow_since_commit(self, member: TrackedMember, reason: str, t: int, late_ms: int = 0) -> None:
        """The member was stopped: the records that it received since the last commit may be delivered again.

        The lower limit is the lowest offset from which the next ownership can start.
        """
        held = [
            (p, tenure) for p in self._bench.partitions.values() if (tenure := p.ownerships.get(member)) is not None
        ]
        # A millisecond has no order: all its records must be read before the permission is measured.
        self._bench.schedule_check(t, self._measure, held, reason, t, late_ms)

    def _measure(self, held: list[tuple[TrackedPartition, OwnershipPeriod]], reason: str, t: int, late_ms: int) -> None:
        for partition, tenure in held:
            if tenure.has_begun and not tenure.is_released_before(t):
                self._grant(partition, 0, tenure.high, reason)
            while late_ms and tenure.before is not None and tenure.start_t >= t - late_ms:
                # The end was observed late, and the member had started again by then.
                tenure = tenure.before
                self._grant(partition, 0, tenure.high, reason)

    def drain_timed_out(self, event: h.DrainTimedOut) -> None:
        partition = self._bench.partition(event)
        tenure = partition.ownerships.get(self._bench.member(event.member))
        if tenure is not None:
            self._bench.schedule_check(event.t, self._grant_last, partition, tenure)

    def _grant_last(self, partition: TrackedPartition, tenure: OwnershipPeriod) -> None:
        if tenure.has_begun:
            self._grant(partition, tenure.last, tenure.last, "drain_timeout")

    def reset(self, event: h.OffsetJumpAllowed) -> None:
        partition = self._bench.partition(event)
        delay = self._bench.policy.observer_delay_ms
        position = partition.commits.lowest(event.t - delay, event.t, partition.base)
        if position < event.offset:
            partition.skippable.append((position, event.offset, f"reset ({event.reason})"))
        self._grant(partition, event.offset, max(partition.highest_delivered, partition.base - 1), "reset")
        partition.resets.append((event.t, event.offset))
        partition.was_used = True
        for member in list(partition.ownerships):
            self._ownership.restart(member, partition, event.t, delay)

    def allow_after_rewind(self, partition: TrackedPartition, low: int, high: int, reason: str) -> None:
        """The committed offset was set back: the next owner starts from it."""
        self._grant(partition, low, high, reason)

    def _grant(self, partition: TrackedPartition, low: int, high: int, reason: str) -> None:
        if low <= high:
            partition.redelivery_permissions.append(RedeliveryPermission(self._bench.position, low, high, reason))

    # --- redeliveries -------------------------------------------------------------------------------------------

    def check_later(self, repeat: RedeliveredRecord) -> None:
        """A record was delivered again; the event that explains it may be observed a little later."""
        reason = self._reason(repeat, is_last_look=False)
        if reason is None:
            due = repeat.t + self._bench.policy.observer_delay_ms
            self._bench.schedule_check(due, lambda: self._write(repeat, self._reason(repeat, is_last_look=True)))
        else:
            self._write(repeat, reason)

    def _reason(self, repeat: RedeliveredRecord, is_last_look: bool) -> str | None:
        member, partition, offset = repeat.member, repeat.partition, repeat.offset
        tenure = repeat.tenure.period_at(repeat.position)
        previous = partition.delivered_to(repeat.earlier)
        if previous is not None and previous[0] is member and repeat.earlier >= tenure.start_position:
            return None
        this = partition.delivered_to(repeat.position)
        if (previous is not None and previous[1]) or (this is not None and this[1]):
            return "scala_zombie"
        if repeat.in_hand and previous is not None and previous[0] is not member:
            return "in_hand_at_pause"
        can_have_read = offset >= self._ownership.lowest_start_offset(member, partition, tenure)
        for grant in reversed(partition.redelivery_permissions):
            if grant.position < repeat.earlier:
                break
            if grant.low <= offset <= grant.high and (can_have_read or grant.reason == "reset"):
                return grant.reason
        if previous is None:
            return None
        if is_last_look and self._is_left_over(member, partition, tenure):
            return "scala_stale_chunk"
        pair = f"{previous[0].kind}_to_{member.kind}"
        limit = self._bench.policy.limit(pair)
        if not can_have_read or (limit is not None and tenure.repeats >= limit):
            return None
        tenure.repeats += 1
        return pair

    @staticmethod
    def _is_left_over(member: TrackedMember, partition: TrackedPartition, tenure: OwnershipPeriod) -> bool:
        # A Scala member may deliver a chunk that it fetched before it released the partition to another owner.
        sight = partition.observed_owner
        if member.kind != "scala" or sight is None or sight.member == member.name:
            return False
        return tenure.first_t <= sight.t

    def _write(self, repeat: RedeliveredRecord, reason: str | None) -> None:
        member, partition = repeat.member, repeat.partition
        self.counts[reason or "unexplained"] += 1
        previous = partition.delivered_to(repeat.earlier)
        source = previous[0].name if previous else "a member before this history"
        book = self._bench.findings if reason is None else self._bench.allowances
        book.add(
            (source, member, repeat.tenure.period_at(repeat.position).start_position),
            reason or "duplicated",
            f"{member.name} delivered again what {source} had delivered",
            t=repeat.t,
            lines=(self._bench.line_number(repeat.earlier), self._bench.line_number(repeat.position)),
            partition=partition.name,
            members=(source, member.name) if previous else (member.name,),
            spans=((repeat.offset, repeat.offset),),
        )
