"""The state that the checks share: the history, what applies to all of it, and the pending checks.  Pure.

A suspicious event is not reported at once.  The check is *scheduled* for the time after which no late line can explain
the event any more.  Checks of one millisecond run when the next one begins, because lines of one millisecond from
different programs have no order.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

from zkconsumer.testing.checker import events as h
from zkconsumer.testing.checker.policy import Policy
from zkconsumer.testing.checker.tracked_partitions import Delivery, TrackedMember, TrackedPartition
from zkconsumer.testing.checker.verdict import ALLOWANCE_REASONS, FindingCollector
from zkconsumer.types import TopicPartition


class CheckerState:
    """The history that is checked."""

    def __init__(self, events: list[h.HistoryEvent], policy: Policy) -> None:
        self.events = events
        self.policy = policy
        self.members: dict[str, TrackedMember] = {}
        self.partitions: dict[tuple[str, int], TrackedPartition] = {}
        self.observed_topics: set[str] = set()
        self.findings = FindingCollector()
        self.allowances = FindingCollector()
        self.position = 0
        """The number of the present line, counted from 1."""
        self._by_consumer_id: dict[str, TrackedMember] = {}
        self._scheduled_checks: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._alarms_set = 0
        self._read_ahead()

    # --- lookups ------------------------------------------------------------------------------------------------

    def partition(self, event: h.PartitionEvent | h.MemberPartitionEvent) -> TrackedPartition:
        key = (event.topic, event.partition)
        partition = self.partitions.get(key)
        if partition is None:
            partition = self.partitions[key] = TrackedPartition(TopicPartition(*key))
        return partition

    def member(self, name: str) -> TrackedMember:
        member = self.members.get(name)
        if member is None:
            raise h.HistoryError(self.line_number(), f"member {name!r} has no member line")
        return member

    def member_of_thread(self, thread_id: str | None) -> TrackedMember | None:
        """The member to which this thread belongs; None when the history does not contain it."""
        if thread_id is None:
            return None
        consumer_id, dash, number = thread_id.rpartition("-")
        return self._by_consumer_id.get(consumer_id) if dash and number.isdigit() else None

    def line_number(self, position: int | None = None) -> int:
        """The line of the file for a position in the history; 0 for none."""
        position = self.position if position is None else position
        return (self.events[position - 1].line or position) if position > 0 else 0

    def report(
        self,
        code: str,
        text: str,
        delivery: Delivery,
        *,
        key: object,
        lines: Sequence[int] = (),
        others: Sequence[str] = (),
    ) -> None:
        """Add a finding or an allowance about a delivery.  ``lines``: earlier lines; ``others``: other members."""
        book = self.allowances if code in ALLOWANCE_REASONS else self.findings
        book.add(
            (delivery.member, key),
            code,
            text,
            t=delivery.t,
            lines=(*lines, self.line_number(delivery.position)),
            partition=delivery.partition.name,
            members=(delivery.member.name, *others),
            spans=(delivery.span,),
        )

    # --- scheduled checks ---------------------------------------------------------------------------------------

    def schedule_check(self, due: int, act: Callable[..., None], *args: Any) -> None:
        """Call ``act`` when every line up to ``due`` has been read."""
        self._alarms_set += 1
        heapq.heappush(self._scheduled_checks, (due, self._alarms_set, act, args))

    def advance_to(self, position: int, t: int) -> None:
        """Advance to the next line; first run the checks that were due before it."""
        if self._scheduled_checks and self._scheduled_checks[0][0] < t:
            self.run_due_checks(t)
        self.position = position

    def run_due_checks(self, until: int | None = None) -> None:
        """Run the checks due before ``until`` (None: all), in order."""
        while self._scheduled_checks and (until is None or self._scheduled_checks[0][0] < until):
            _, _, act, args = heapq.heappop(self._scheduled_checks)
            act(*args)

    # --- what applies to the whole history ----------------------------------------------------------------------

    def _read_ahead(self) -> None:
        exact: set[str] = set()
        tells: set[str] = set()
        for event in self.events:
            match event:
                case h.RecordDelivered() | h.RecordRangeDelivered():
                    continue
                case h.MemberAcquiredPartition():
                    exact.add(event.member)
                case h.RecordConsumed():
                    tells.add(event.member)
                case h.LogRangeReported():
                    if event.start > event.end:
                        raise h.HistoryError(event.line, f"a log from {event.start} to {event.end}")
                    self.partition(event).log.add(event.start, event.end, event.missing, event.line)
                case h.InitialOffset():
                    partition = self.partition(event)
                    partition.base, partition.is_base_stored = event.offset, True
                case h.MemberDeclared():
                    self._add_member(event)
                case h.PolicyChanged():
                    self.policy = self.policy.changed(event.changes)
                case h.OwnerObserved():
                    self.observed_topics.add(event.topic)
        for partition in self.partitions.values():
            partition.log.seal()
            if not partition.is_base_stored:
                partition.base = partition.log.start
        for member in self.members.values():
            member.reports_ownership = member.name in exact
            member.reports_consumed = member.name in tells

    def _add_member(self, event: h.MemberDeclared) -> None:
        member = self.members.get(event.member)
        if member is None:
            member = self.members[event.member] = TrackedMember(event.member, event.kind, event.streams)
        elif member.kind != event.kind:
            raise h.HistoryError(event.line, f"member {event.member!r} is both {member.kind} and {event.kind}")
        consumer_id = event.consumer_id or event.member
        if self._by_consumer_id.setdefault(consumer_id, member) is not member:
            raise h.HistoryError(event.line, f"consumer id {consumer_id!r} belongs to two members")
