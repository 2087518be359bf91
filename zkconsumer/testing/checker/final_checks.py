"""The checks at a checkpoint or at the end: wrong_owner, lost, no_log.  Pure."""

from __future__ import annotations

from zkconsumer.testing.checker import events as h
from zkconsumer.testing.checker.checker_state import CheckerState
from zkconsumer.testing.checker.log_contents import subtract_ranges
from zkconsumer.testing.checker.tracked_partitions import NEVER, OwnerObservation, TrackedPartition
from zkconsumer.types import TopicPartition


class AssignmentChecks:
    """Checks the owners of a stable group."""

    def __init__(self, bench: CheckerState) -> None:
        self._bench = bench

    def assignment(self, event: h.AssignmentExpected) -> None:
        self._bench.schedule_check(event.t, self._check_assignment, event, self._bench.position)

    def settled(self, event: h.GroupSettled) -> None:
        self._bench.schedule_check(event.t, self._check_settled, event.t, self._bench.position)

    def _check_assignment(self, event: h.AssignmentExpected, position: int) -> None:
        for text, expected in event.expected.items():
            topic, _, number = text.rpartition("/")
            name = TopicPartition(topic, int(number))
            partition = self._bench.partitions.get((name.topic, name.partition))
            sight = partition.observed_owner if partition else None
            seen = sight.owner if sight else None
            if seen != expected:
                problem = f"expected {expected or 'no owner'}, observed {seen or 'no owner'}"
                self._report(name, problem, sight, event.t, position)

    def _check_settled(self, t: int, position: int) -> None:
        for partition in self._bench.partitions.values():
            if partition.name.topic in self._bench.observed_topics and (problem := self._problem(partition)):
                self._report(partition.name, problem, partition.observed_owner, t, position)

    def _problem(self, partition: TrackedPartition) -> str:
        sight = partition.observed_owner
        if sight is None or sight.owner is None:
            is_anybody_there = any(member.is_alive for member in self._bench.members.values())
            return "without an owner although the group has living members" if is_anybody_there else ""
        owner = self._bench.member_of_thread(sight.owner)
        if owner is None:
            return f"owned by {sight.owner}, which is no member in the history"
        return (
            f"owned by {sight.owner}, which {owner.last_end.how} (line {owner.last_end.line})" if owner.last_end else ""
        )

    def _report(
        self, name: TopicPartition, problem: str, sight: OwnerObservation | None, t: int, position: int
    ) -> None:
        lines = (*((sight.line,) if sight else ()), self._bench.line_number(position))
        members = (sight.member,) if sight and sight.member else ()
        self._bench.findings.add(position, "wrong_owner", problem, t=t, lines=lines, partition=name, members=members)


class LossCheck:
    """Finds the records that no member received."""

    def __init__(self, bench: CheckerState) -> None:
        self._bench = bench
        self._t_end = bench.events[-1].t if bench.events else 0

    def judge_all(self) -> None:
        """Check at the end of the history."""
        partitions = self._bench.partitions.values()
        if not any(partition.log.is_known for partition in partitions):
            text = "the history has no log line: lost records cannot be found"
            self._bench.findings.add((), "no_log", text, t=self._t_end, lines=())
            return
        for partition in partitions:
            if partition.log.is_known:
                self._judge(partition)
            elif partition.was_used:
                text = "the history has no log line for it: lost records cannot be found"
                self._bench.findings.add((), "no_log", text, t=self._t_end, lines=(), partition=partition.name)

    def _judge(self, partition: TrackedPartition) -> None:
        for low, high, reason in partition.skippable:
            self._allow_unread(partition, low, high, reason)
        stored = partition.commits.last
        high = partition.log.end if partition.must_be_read else (stored if stored is not None else partition.base)
        excused = sorted((a, b) for a, b, _ in partition.skippable)
        lost = list(subtract_ranges(partition.undelivered(partition.base, high), excused))
        if lost:
            self._report(partition, lost, stored)

    def _allow_unread(self, partition: TrackedPartition, low: int, high: int, reason: str) -> None:
        spans = tuple((a, b - 1) for a, b in partition.undelivered(low, high))
        if spans:
            text = f"never delivered: {reason}"
            label = reason.partition(" ")[0]
            self._bench.allowances.add(
                low, label, text, t=self._t_end, lines=(), partition=partition.name, members=(), spans=spans
            )

    def _report(self, partition: TrackedPartition, lost: list[tuple[int, int]], stored: int | None) -> None:
        why = "everything had to be read" if partition.must_be_read else f"the committed offset ended at {stored}"
        parts = [f"never delivered, and {why}"]
        lines = []
        members = []
        for offset in (lost[0][0] - 1, lost[0][1]):
            position = partition.delivered.get(offset) if offset >= 0 else NEVER
            who = partition.delivered_to(position)
            if who is not None:
                parts.append(f"{who[0].name} received {offset}")
                lines.append(self._bench.line_number(position))
                members.append(who[0].name)
        spans = tuple((a, b - 1) for a, b in lost)
        around = tuple(dict.fromkeys(members))
        text = "; ".join(parts)
        self._bench.findings.add(
            (), "lost", text, t=self._t_end, lines=tuple(lines), partition=partition.name, members=around, spans=spans
        )
