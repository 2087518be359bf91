"""Checks the committed offset: commit_ahead and commit_rewound.  Pure.

A committed offset may be observed late, never early.  So it must not exceed what has been delivered by the time of the
observation (for Scala members a moment later, because their programs write a record's line after the commit thread has
counted it).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from zkconsumer.testing.checker import events as h
from zkconsumer.testing.checker.checker_state import CheckerState
from zkconsumer.testing.checker.redelivery_check import RedeliveryCheck
from zkconsumer.testing.checker.tracked_partitions import TrackedMember, TrackedPartition
from zkconsumer.testing.checker.verdict import ALLOWANCE_REASONS


@dataclass(frozen=True, slots=True, eq=False)
class ObservedCommit:
    """One observed change of the committed offset; ``by``: the member, if the history contains it."""

    partition: TrackedPartition
    offset: int
    by: TrackedMember | None
    t: int
    position: int


class CommitCheck:
    """Checks commits in the order in which they are observed."""

    def __init__(self, bench: CheckerState, repeats: RedeliveryCheck) -> None:
        self._bench = bench
        self._repeats = repeats
        self.commits = 0

    # --- consumed -----------------------------------------------------------------------------------------------

    def consumed(self, event: h.RecordConsumed) -> None:
        partition, member = self._bench.partition(event), self._bench.member(event.member)
        partition.consumed[member] = max(event.offset + 1, partition.consumed.get(member, 0))

    def allow_unacknowledged(self, member: TrackedMember) -> None:
        """An explicit commit or a close also commits the message that the caller has not acknowledged."""
        for partition in self._bench.partitions.values():
            tenure = partition.ownerships.get(member)
            if tenure is not None and tenure.has_begun:
                partition.unacknowledged_allowed[member] = tenure.last + 1

    # --- committed ----------------------------------------------------------------------------------------------

    def committed(self, event: h.OffsetCommitted) -> None:
        partition = self._bench.partition(event)
        by = self._bench.member(event.by) if event.by is not None else None
        commit = ObservedCommit(partition, event.offset, by, event.t, self._bench.position)
        self.commits += 1
        partition.was_used = True
        is_scala_near = any(member.kind == "scala" for member in partition.ownerships)
        due = event.t + (self._bench.policy.scala_print_delay_ms if is_scala_near else 0)
        self._bench.schedule_check(due, self._check_ahead, commit)
        trail = partition.commits
        if event.zxid is not None:
            if event.zxid <= trail.zxid:
                return
            trail.zxid = event.zxid
        stored = partition.stored()
        if stored is not None and event.offset < stored and not self._is_back_allowed(commit, stored):
            self._bench.schedule_check(due, self._check_back, commit, stored)
        trail.append(event.t, event.offset)

    def _check_ahead(self, commit: ObservedCommit) -> None:
        partition, offset = commit.partition, commit.offset
        allowed = max([partition.base, *(to for _, to in partition.resets)])
        reached = max(partition.highest_delivered + 1, allowed)
        committer = commit.by or partition.last_member
        spans = self._existing(partition, reached, offset)
        if spans or (partition.log.is_known and offset > max(partition.log.end, allowed)):
            if committer is not None and self._is_in_flight(committer, commit, reached):
                partition.skippable.append((reached, offset, "scala_in_flight"))
            else:
                self._report_ahead(commit, committer, f"only offsets below {reached} had been delivered", spans)
            return
        if committer is None or not committer.reports_consumed or not self._is_surely_by(committer, commit):
            return
        tenure = partition.ownerships.get(committer)
        if tenure is not None and not tenure.has_begun:
            tenure = tenure.before
        if tenure is None:
            return
        taken = max(partition.consumed.get(committer, 0), partition.unacknowledged_allowed.get(committer, 0))
        reached = max(taken, tenure.first, allowed)
        if spans := self._existing(partition, reached, offset):
            self._report_ahead(commit, committer, f"{committer.name} had consumed only offsets below {reached}", spans)

    def _is_in_flight(self, member: TrackedMember, commit: ObservedCommit, reached: int) -> bool:
        """Whether the commit thread counted one record whose line the program, being stopped, did not write."""
        partition = commit.partition
        tenure = partition.ownerships.get(member)
        if tenure is not None and not tenure.has_begun:
            tenure = tenure.before
        if tenure is None or member.kind != "scala" or not member.is_stopped:
            return False
        if tenure.high != partition.highest_delivered or partition.log.count(reached, commit.offset) != 1:
            return False
        claims = [t for other, t in partition.acquisition_times.items() if other is not member]
        is_alone = not any(tenure.first_t < t <= commit.t for t in claims)
        return commit.by is member or (is_alone and all(other is member for other in self._recent(commit)))

    def _is_surely_by(self, member: TrackedMember, commit: ObservedCommit) -> bool:
        """Whether no other client can have made this commit: no former owner, observed late, and no resumed Scala
        member.
        """
        if commit.by is not None:
            return True
        is_zombie_near = any(other.zombie_t is not None for other in commit.partition.ownerships)
        return not is_zombie_near and all(other is member for other in self._recent(commit))

    @staticmethod
    def _existing(partition: TrackedPartition, low: int, high: int) -> tuple[tuple[int, int], ...]:
        return tuple((a, b - 1) for a, b in partition.log.existing(low, high))

    def _report_ahead(
        self, commit: ObservedCommit, committer: TrackedMember | None, what: str, spans: tuple[tuple[int, int], ...]
    ) -> None:
        name = committer.name if committer else "an unknown client"
        text = f"{commit.offset} was committed while {name} read the partition, but {what}"
        self._add("commit_ahead", text, commit, committer, spans)

    def _add(
        self,
        code: str,
        text: str,
        commit: ObservedCommit,
        member: TrackedMember | None,
        spans: tuple[tuple[int, int], ...] = (),
    ) -> None:
        """Add a finding or an allowance about a commit."""
        book = self._bench.allowances if code in ALLOWANCE_REASONS else self._bench.findings
        lines, members = (self._bench.line_number(commit.position),), (member.name,) if member else ()
        name = commit.partition.name
        book.add(commit.position, code, text, t=commit.t, lines=lines, partition=name, members=members, spans=spans)

    # --- commits of a smaller offset ----------------------------------------------------------------------------

    def _rewinder(self, commit: ObservedCommit) -> TrackedMember | None:
        """The Scala member that has just resumed and may have committed its old position."""
        window = self._bench.policy.zombie_window_ms
        for member in commit.partition.ownerships:
            if member.kind != "scala" or (commit.by is not None and commit.by is not member):
                continue
            has_woken = member.resumed_t is not None and commit.t - member.resumed_t <= window
            if has_woken or commit.partition.is_zombie(member):
                return member
        return None

    def _check_back(self, commit: ObservedCommit, stored: int) -> None:
        if self._is_back_allowed(commit, stored):
            return
        writer = commit.by or commit.partition.last_member
        name = writer.name if writer else "no member"
        text = f"the committed offset went back from {stored} to {commit.offset}; {name} read the partition"
        self._add("commit_rewound", text, commit, writer)

    def _is_back_allowed(self, commit: ObservedCommit, stored: int) -> bool:
        """Whether there is a reason; then the next owner may also read the records between again."""
        member: TrackedMember | None = None
        last = stored - 1
        if self._was_reset(commit):
            reason, why = "reset", "by a reset"
        elif (member := self._rewinder(commit)) is not None:
            reason, why = "scala_zombie", f"because {member.name} had just resumed with an old position"
            # Of two writes between two reads the observer sees only the second: a commit of the owner may be missing.
            last = max(last, commit.partition.highest_delivered)
        elif (member := self._at_own_position(commit)) is not None:
            reason, why = "scala_commit", f"because {member.name} had started below it"
        else:
            return False
        self._repeats.allow_after_rewind(commit.partition, commit.offset, last, reason)
        text = f"the committed offset went back from {stored} to {commit.offset}, {why}"
        self._add(reason, text, commit, member)
        return True

    def _was_reset(self, commit: ObservedCommit) -> bool:
        """Whether there was a reset to this offset or below since the previous commit, or just now."""
        times = commit.partition.commits.times
        before = bisect_left(times, commit.t)
        since = times[before - 1] if before else 0
        since = min(since, commit.t - self._bench.policy.observer_delay_ms)
        return any(since <= t <= commit.t and to <= commit.offset for t, to in commit.partition.resets)

    def _at_own_position(self, commit: ObservedCommit) -> TrackedMember | None:
        """A Scala member starts from an offset that it read before the last commit, and commits its own position."""
        for writer in [commit.by] if commit.by is not None else self._recent(commit):
            tenure = commit.partition.ownerships.get(writer)
            while tenure is not None and writer.kind == "scala":
                if tenure.has_begun and tenure.first <= commit.offset <= tenure.high + 1:
                    return writer
                tenure = tenure.before
        return None

    def _recent(self, commit: ObservedCommit) -> list[TrackedMember]:
        """The members that received records of the partition when the commit was made; it may be observed late."""
        partition = commit.partition
        since = commit.t - self._bench.policy.observer_delay_ms
        recent = []
        for (member, _), position in zip(
            reversed(partition.delivery_spans), reversed(partition.delivery_span_positions), strict=True
        ):
            recent.append(member)
            if self._bench.events[position - 1].t < since:
                break
        return recent
