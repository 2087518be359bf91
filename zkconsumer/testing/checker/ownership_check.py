"""Checks who owns a partition, and whether its records are consecutive.  Pure.

Its codes are skipped, reordered, two_owners and delivered_without_owner.

There are two sources: the members' own ``claimed`` and ``released`` lines, exact, and the owner nodes as the observer
saw them, late.  For a member that writes its own lines only these count.
"""

from __future__ import annotations

from zkconsumer.testing.checker import events as h
from zkconsumer.testing.checker.checker_state import CheckerState
from zkconsumer.testing.checker.log_contents import subtract_ranges
from zkconsumer.testing.checker.tracked_partitions import (
    Delivery,
    OffsetJump,
    OwnerObservation,
    OwnershipAcquisition,
    OwnershipPeriod,
    TrackedMember,
    TrackedPartition,
)

PENDING_JUMPS_MAX = 64
EARLIER_OWNERSHIPS_MAX = 8

REDELIVERED = "repeated"
"""No finding of its own: the same offset again, or the first one after a stale chunk.  It may be the start of an
ownership; if not, a record that was delivered before counts as a duplicate.
"""


class OwnershipCheck:
    """Tracks the start and end of ownerships."""

    def __init__(self, bench: CheckerState) -> None:
        self._bench = bench

    # --- start and end of ownership -----------------------------------------------------------------------------

    def claimed(self, event: h.MemberAcquiredPartition) -> None:
        member, partition = self._bench.member(event.member), self._bench.partition(event)
        self.restart(member, partition, event.t, 0, event.offset)
        partition.ownerships[member].is_claimed = True
        self._claim(member, partition, event.t)

    def released(self, event: h.MemberReleasedPartition) -> None:
        member, partition = self._bench.member(event.member), self._bench.partition(event)
        tenure = partition.ownerships.get(member)
        if tenure is not None:
            tenure.released_t = event.t
        self.end_ownership(member, partition)

    def owner_seen(self, event: h.OwnerObserved) -> None:
        partition = self._bench.partition(event)
        if event.zxid is not None:
            if event.owner is not None and event.zxid <= partition.observed_zxid:
                return
            partition.observed_zxid = max(partition.observed_zxid, event.zxid)
        member = self._bench.member_of_thread(event.owner)
        partition.observed_owner = OwnerObservation(
            event.owner, member.name if member else None, event.t, self._bench.line_number()
        )
        if event.owner is None:
            if partition.current_owner is not None and not partition.current_owner.reports_ownership:
                self.end_ownership(partition.current_owner, partition)
        elif member is not None:
            partition.observed_positions[member] = self._bench.position
            if not member.reports_ownership:
                self._claim_seen(member, partition, event.t)

    def _claim_seen(self, member: TrackedMember, partition: TrackedPartition, t: int) -> None:
        late_ms = self._bench.policy.observer_delay_ms
        tenure = partition.ownerships.get(member)
        is_begun_by_it = (
            tenure is not None
            and tenure.has_begun
            and not tenure.is_claimed
            and not tenure.jumps
            and tenure.first_t >= t - late_ms
        )
        if not is_begun_by_it:
            self.restart(member, partition, t, late_ms)
        partition.ownerships[member].is_claimed = True
        self._claim(member, partition, t)

    def _claim(self, member: TrackedMember, partition: TrackedPartition, t: int) -> None:
        partition.acquisition_positions[member] = self._bench.position
        partition.acquisition_times[member] = t
        member.was_seen = True
        member.started_t = t
        if member.closed is None:
            member.last_end = None
        self._hold(member, partition, t)

    def _hold(self, member: TrackedMember, partition: TrackedPartition, t: int) -> None:
        if member.kind != "ours":
            return
        if partition.current_owner is not None and partition.current_owner is not member:
            partition.superseded[partition.current_owner] = OwnershipAcquisition(
                member.name, t, self._bench.line_number()
            )
        partition.superseded.pop(member, None)
        partition.current_owner = member
        partition.current_acquisition = OwnershipAcquisition(member.name, t, self._bench.line_number())
        partition.former_owners.add(member)

    @staticmethod
    def end_ownership(member: TrackedMember, partition: TrackedPartition) -> None:
        """The member no longer conflicts with another member on the partition."""
        if partition.current_owner is member:
            partition.current_owner = None
            for earlier in [m for m, claim in partition.superseded.items() if claim.member == member.name]:
                del partition.superseded[earlier]

    def restart(
        self, member: TrackedMember, partition: TrackedPartition, t: int, late_ms: int, expected: int | None = None
    ) -> None:
        """The next ownership of the member begins; ``expected``: the start offset in its ``claimed`` line.

        ``late_ms``: by how much the line about it may follow its start.  0: the line is the member's own and exact, and
        every jump of the old ownership is a finding.  Otherwise the observer wrote the line, and records of the new
        ownership may be before it.  The first of them is where the offsets of the old ownership jumped, at most
        ``late_ms`` ago.  So the oldest such jump is no finding: the new ownership began there, and the records and
        jumps after it belong to the new one.  Older jumps are findings.

        Late lines may still concern the old ownership.  ``before`` leads to it, unless the member released it;
        ``restarted`` leads from it to the new one, for records that were counted to the old one at first.
        """
        old = partition.ownerships.get(member)
        if old is None:
            partition.ownerships[member] = OwnershipPeriod(t, expected)
            return
        start = self._settle(member, partition, old, t - late_ms if late_ms else None)
        before = None if old.is_released else (old if old.has_begun else old.before)
        _cut_chain(before)
        if start is None:
            partition.ownerships[member] = OwnershipPeriod(
                t, expected, before, had_before=old.has_begun or old.had_before
            )
            return
        new = OwnershipPeriod(start.t, None, before, had_before=True)
        new.begin(start.to, start.t, start.position)
        new.last = new.high = old.last
        new.jumps, old.jumps = old.jumps, []
        old.restarted = partition.ownerships[member] = new

    # --- consecutive records ------------------------------------------------------------------------------------

    def follow(self, delivery: Delivery) -> OwnershipPeriod:
        """The ownership to which this record belongs; checks that the record follows the previous one."""
        member, partition, (first, last), t, position = delivery
        is_change = bool(partition.delivery_spans) and partition.delivery_spans[-1][0] is not member
        # Without reported ownership, only records of another member in between show a new ownership.
        is_reported = member.reports_ownership or partition.name.topic in self._bench.observed_topics
        if is_change and not is_reported:
            self.restart(member, partition, t, 0)
        tenure = partition.ownerships.get(member)
        if tenure is None:
            tenure = partition.ownerships[member] = OwnershipPeriod(t)
        if tenure.has_begun:
            if first == tenure.high + 1:
                pass
            elif self._is_after_stale_chunk(member, partition, tenure, first):
                tenure.stale_starts += 1
                tenure.begin(first, t, position)
                # A late line may show that the next ownership began here.
                self._jump(delivery, tenure, REDELIVERED, first)
            elif first > tenure.high:
                if partition.log.has_any(tenure.high + 1, first):
                    self._jump(delivery, tenure, "skipped", tenure.high + 1)
            elif first <= tenure.last:
                code = "reordered" if first < tenure.last else REDELIVERED
                self._jump(delivery, tenure, code, first)
            if first <= tenure.high:
                self._fill_skips(tenure, first, last)
        else:
            tenure.begin(first, t, position)
            if tenure.expected is not None:
                tenure.last = tenure.expected - 1
                if first < tenure.expected:
                    self._jump(delivery, tenure, "reordered", first)
                elif partition.log.has_any(tenure.expected, first):
                    self._jump(delivery, tenure, "skipped", tenure.expected)
        tenure.last = last
        tenure.high = max(tenure.high, last)
        return tenure

    def _is_after_stale_chunk(
        self, member: TrackedMember, partition: TrackedPartition, tenure: OwnershipPeriod, first: int
    ) -> bool:
        # A Scala member that has a partition again after a rebalance may deliver one more chunk that it fetched before,
        # and then starts from the committed offset; once an ownership, and only where it has acquired it.  That offset
        # is a higher one if another member has delivered the records in between.
        if member.kind != "scala" or not (tenure.had_before and tenure.is_claimed) or tenure.stale_starts:
            return False
        if first <= tenure.high:
            return first >= self.lowest_start_offset(member, partition, tenure)
        skipped = tenure.high + 1, first
        return partition.log.has_any(*skipped) and next(partition.undelivered(*skipped), None) is None

    def lowest_start_offset(self, member: TrackedMember, partition: TrackedPartition, tenure: OwnershipPeriod) -> int:
        """The lowest committed offset from which this ownership can have started, as far as is known now."""
        if tenure.floor is not None:
            return tenure.floor
        delay = self._bench.policy.observer_delay_ms
        since = tenure.start_t - delay
        if member.kind == "scala":
            since -= self._bench.policy.scala_read_window_ms
        floor = partition.commits.lowest(since, tenure.first_t + delay, partition.base)
        if self._bench.events[self._bench.position - 1].t > tenure.first_t + delay:
            tenure.floor = floor
        return floor

    def _jump(self, delivery: Delivery, tenure: OwnershipPeriod, code: str, low: int) -> None:
        to, _ = delivery.span
        span = (low, to - 1) if code == "skipped" else (to, to)
        tenure.jumps.append(OffsetJump(code, tenure.last, to, (span,), delivery.t, delivery.position))
        if len(tenure.jumps) > PENDING_JUMPS_MAX:
            self._report_jump(delivery.member, delivery.partition, tenure.jumps.pop(0))

    @staticmethod
    def _fill_skips(tenure: OwnershipPeriod, first: int, last: int) -> None:
        """Offsets that are delivered later in the same ownership were not skipped but are out of order."""
        for index, jump in enumerate(tenure.jumps):
            if jump.code == "skipped":
                left = subtract_ranges([(low, high + 1) for low, high in jump.spans], [(first, last + 1)])
                tenure.jumps[index] = jump._replace(spans=tuple((low, high - 1) for low, high in left))

    def end(self, member: TrackedMember, partition: TrackedPartition) -> None:
        """Check at the end of the history."""
        self._settle(member, partition, partition.ownerships[member], None)

    def _settle(
        self, member: TrackedMember, partition: TrackedPartition, tenure: OwnershipPeriod, since: int | None
    ) -> OffsetJump | None:
        """Report the jumps before ``since`` (None: all); returns the first later one, which is explained."""
        waiting = []
        for jump in tenure.jumps:
            if since is None or jump.t < since:
                self._report_jump(member, partition, jump)
            else:
                waiting.append(jump)
        tenure.jumps = waiting[1:]
        return waiting[0] if waiting else None

    def _report_jump(self, member: TrackedMember, partition: TrackedPartition, jump: OffsetJump) -> None:
        spans = tuple((a, b - 1) for low, high in jump.spans for a, b in partition.log.existing(low, high + 1))
        if jump.code == REDELIVERED or (jump.code == "skipped" and not spans):
            return
        verb = "jumped" if jump.code == "skipped" else "went back"
        self._bench.findings.add(
            (member, jump.position),
            jump.code,
            f"{member.name} {verb} from {jump.after} to {jump.to} within one ownership",
            t=jump.t,
            lines=(self._bench.line_number(jump.position),),
            partition=partition.name,
            members=(member.name,),
            spans=spans,
        )

    # --- deliveries without ownership ---------------------------------------------------------------------------

    def check_is_owner(self, delivery: Delivery, tenure: OwnershipPeriod, *, in_hand: bool) -> None:
        """A member of ours delivered records: check that it owned the partition."""
        bench, (member, partition, _, t, _) = self._bench, delivery
        delay = bench.policy.observer_delay_ms
        claim = self._later_claim(member, partition)
        if claim is not None:
            if t > claim.t and in_hand:
                self._allow_in_hand(delivery)
            elif t > claim.t:
                late = 0 if member.reports_ownership else delay
                bench.schedule_check(t + late, self._two_owners, delivery, claim)
        elif tenure.is_released:
            text = f"{member.name} delivered after it had released the partition"
            bench.report("delivered_without_owner", text, delivery, key="released")
        elif partition.current_owner is not member and member.closed is None:
            self._hold(member, partition, t)
        sight = partition.observed_owner
        if sight is None or sight.member == member.name or t <= sight.t:
            return
        if member.reports_ownership and t <= partition.acquisition_times.get(member, -1 - delay) + delay:
            return  # It has just acquired ownership; the observer may miss a short ownership between two reads.
        if in_hand:
            self._allow_in_hand(delivery)
        else:
            bench.schedule_check(t + delay, self._without_owner, delivery, sight)

    @staticmethod
    def _later_claim(member: TrackedMember, partition: TrackedPartition) -> OwnershipAcquisition | None:
        """The acquisition of another member of ours that conflicts with this one's."""
        if partition.current_owner is None or partition.current_owner is member:
            return partition.superseded.get(member)
        # Where a member reports ownership, or had the partition before, a record alone shows no acquisition.
        if member.reports_ownership or member in partition.former_owners:
            return partition.superseded.get(member, partition.current_acquisition)
        return None

    def _allow_in_hand(self, delivery: Delivery) -> None:
        text = f"{delivery.member.name} wrote after its pause the line of a record that it had received before"
        self._bench.report("in_hand_at_pause", text, delivery, key=delivery.position)

    def _two_owners(self, delivery: Delivery, claim: OwnershipAcquisition) -> None:
        if delivery.partition.acquisition_positions.get(delivery.member, 0) > delivery.position:
            return
        name, other = delivery.member.name, claim.member
        text = f"{name} still delivered after {other} had acquired the partition (line {claim.line})"
        self._bench.report("two_owners", text, delivery, key=claim.line, lines=(claim.line,), others=(other,))

    def _without_owner(self, delivery: Delivery, sight: OwnerObservation) -> None:
        if delivery.partition.observed_positions.get(delivery.member, 0) > delivery.position:
            return
        seen = f"owned by {sight.owner}" if sight.owner is not None else "without an owner"
        text = f"{delivery.member.name} delivered although the partition was observed {seen} (line {sight.line})"
        others = (sight.member,) if sight.member else ()
        self._bench.report(
            "delivered_without_owner", text, delivery, key=sight.line, lines=(sight.line,), others=others
        )


def _cut_chain(tenure: OwnershipPeriod | None) -> None:
    """Keep only as many earlier ownerships as a late line can concern."""
    for _ in range(EARLIER_OWNERSHIPS_MAX - 1):
        tenure = tenure.before if tenure is not None else None
    if tenure is not None:
        tenure.before = None
