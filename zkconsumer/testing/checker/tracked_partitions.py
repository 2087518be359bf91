"""The state of a member and of a partition while a history is read.  Pure.

A *position* is the number of an event in the merged history, from 1 on: one position per line, not an offset.  ``t`` is
the time of an event in ms since 1970, ``line`` its line in the file.

An *ownership* (``OwnershipPeriod``) of a member begins when it acquires the partition, or at its first record if the
history has no line about that.  It ends when the next ownership of this member begins.  A ``RedeliveryPermission``
allows that records are delivered again, with a reason.  An ``OffsetJump`` is a place where the offsets of an ownership
are not consecutive; it becomes a finding only after a late line of the observer could have explained it.

A *zombie* is a Scala member that was paused or lost its session, and may continue with partitions that it lost.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from zkconsumer.testing.checker.events import HistoryMemberKind
from zkconsumer.testing.checker.log_contents import CommitHistory, DeliveryMap, LogContents
from zkconsumer.types import TopicPartition

NEVER = 0
"""Instead of a position: the record was not delivered."""
BEFORE_HISTORY = -1
"""Instead of a position: the record was delivered before the history begins."""


class MemberEnd(NamedTuple):
    """How and when a member was last observed to end."""

    how: str
    t: int
    line: int


@dataclass(slots=True, eq=False)
class TrackedMember:
    """One member: its kind, and its last observed state."""

    name: str
    kind: HistoryMemberKind
    streams: int
    reports_ownership: bool = False
    """It writes ``claimed`` lines: they are exact, so the observer's are not used."""
    reports_consumed: bool = False
    """It writes a line when the program has consumed a record."""
    was_seen: bool = False
    started_t: int = -1
    """When it last joined or acquired a partition."""
    last_end: MemberEnd | None = None
    closed: MemberEnd | None = None
    """It left or was killed; it delivers nothing later."""
    is_paused: bool = False
    resumed_t: int | None = None
    """When it continued after its last pause; None if it was not paused."""
    delivered_since_resume: int = 0
    """Records since then: the first ones may be records that it had received before the pause."""
    zombie_t: int | None = None
    """Since when a Scala member may continue with partitions that it no longer owns."""

    @property
    def is_alive(self) -> bool:
        return self.was_seen and self.last_end is None

    @property
    def is_stopped(self) -> bool:
        return self.closed is not None or self.is_paused or self.zombie_t is not None


class OffsetJump(NamedTuple):
    """Offsets that are not consecutive: after ``after`` the member delivered ``to``.

    ``code``: the finding that it becomes.  ``spans``: the affected offsets, as (first, last).
    """

    code: str
    after: int
    to: int
    spans: tuple[tuple[int, int], ...]
    t: int
    position: int


class RedeliveryPermission(NamedTuple):
    """The records with offsets ``low`` to ``high`` that were delivered up to ``position`` may be delivered again."""

    position: int
    low: int
    high: int
    reason: str


class OwnershipAcquisition(NamedTuple):
    """An acquisition by a member, as far as the history shows it."""

    member: str
    t: int
    line: int


class OwnerObservation(NamedTuple):
    """The owner node as the observer last read it."""

    owner: str | None
    member: str | None
    t: int
    line: int


@dataclass(slots=True, eq=False)
class OwnershipPeriod:
    """One ownership of a partition by a member."""

    start_t: int
    expected: int | None = None
    """The start offset in its ``claimed`` line."""
    before: OwnershipPeriod | None = None
    """The member's previous ownership, if it did not release that one itself."""
    restarted: OwnershipPeriod | None = None
    """The next ownership of this member, if a late line showed that it had begun during this one."""
    had_before: bool = False
    """The member had the partition before."""
    is_claimed: bool = False
    """A line of the member or of the observer showed that the member acquired the partition."""
    released_t: int | None = None
    """When the member wrote that it released the partition; None: it did not."""
    start_position: int = 0
    """The position of its first record, or of the first one after a stale chunk; 0: no record yet."""
    first_position: int = 0
    """The position of its first record, also of a stale chunk; 0: no record yet."""
    first_t: int = 0
    first: int = -1
    """The offset of its first record; ``last``: of its latest one; ``high``: the largest one."""
    last: int = -1
    high: int = -1
    repeats: int = 0
    """Records that were delivered again and are already explained by the transfer that began this ownership."""
    stale_starts: int = 0
    """How often it began again, after a chunk that a Scala member fetched before the rebalance: at most once."""
    floor: int | None = None
    """The lowest committed offset from which it can have started; None: later commits can still change it."""
    jumps: list[OffsetJump] = field(default_factory=list)
    """Jumps that no line has explained yet."""

    @property
    def has_begun(self) -> bool:
        return self.start_position > 0

    @property
    def is_released(self) -> bool:
        return self.released_t is not None

    def is_released_before(self, t: int) -> bool:
        """Whether it ended with a release before this millisecond; the lines of one millisecond have no order."""
        return self.released_t is not None and self.released_t < t

    def begin(self, offset: int, t: int, position: int) -> None:
        """Record its first record."""
        self.start_position = position
        self.first_position = self.first_position or position
        self.first_t = t
        self.start_t = min(self.start_t, t)
        self.first = offset
        self.floor = None

    def period_at(self, position: int) -> OwnershipPeriod:
        """The ownership to which the record at this position belongs."""
        tenure = self
        while tenure.restarted is not None and tenure.restarted.first_position <= position:
            tenure = tenure.restarted
        return tenure


@dataclass(slots=True, eq=False)
class TrackedPartition:
    """One partition."""

    name: TopicPartition
    log: LogContents = field(default_factory=LogContents)
    base: int = 0
    """The offset from which records must be delivered: the committed one at the start, else the start of the log."""
    is_base_stored: bool = False
    """``base`` is a committed offset."""
    delivered: DeliveryMap = field(default_factory=DeliveryMap)
    highest_delivered: int = -1
    """The highest delivered offset."""
    commits: CommitHistory = field(default_factory=CommitHistory)
    ownerships: dict[TrackedMember, OwnershipPeriod] = field(default_factory=dict)
    redelivery_permissions: list[RedeliveryPermission] = field(default_factory=list)
    delivery_span_positions: list[int] = field(default_factory=list)
    delivery_spans: list[tuple[TrackedMember, bool]] = field(default_factory=list)
    """Which member received records from which position on, and whether as a zombie."""
    current_owner: TrackedMember | None = None
    """The member of ours that acquired the partition last, until it releases it."""
    current_acquisition: OwnershipAcquisition | None = None
    former_owners: set[TrackedMember] = field(default_factory=set)
    """Every member of ours that has acquired the partition, the current one too."""
    superseded: dict[TrackedMember, OwnershipAcquisition] = field(default_factory=dict)
    """Member of ours -> the acquisition of another one of ours that followed without a release."""
    acquisition_positions: dict[TrackedMember, int] = field(default_factory=dict)
    """The position of each member's last acquisition."""
    acquisition_times: dict[TrackedMember, int] = field(default_factory=dict)
    observed_owner: OwnerObservation | None = None
    observed_zxid: int = -1
    """The newest ZooKeeper transaction that the observer reported; older lines about an owner are ignored."""
    observed_positions: dict[TrackedMember, int] = field(default_factory=dict)
    """The position of the line in which the observer last saw each member as the owner."""
    resets: list[tuple[int, int]] = field(default_factory=list)
    """(time, offset) of each allowed jump."""
    skippable: list[tuple[int, int, str]] = field(default_factory=list)
    """Ranges that no member has to read, and why."""
    consumed: dict[TrackedMember, int] = field(default_factory=dict)
    """Member -> the offset after the largest one that its program has consumed."""
    unacknowledged_allowed: dict[TrackedMember, int] = field(default_factory=dict)
    """Member -> the offset that it may commit although the last record is not acknowledged: an explicit commit, or a
    close."""
    must_be_read: bool = False
    """Every record up to the end of the log must be delivered, not only those below the committed offset."""
    was_used: bool = False
    """The history has a record, a commit or a reset of it."""

    def add_delivery_span(
        self, member: TrackedMember, is_zombie: bool, position: int
    ) -> tuple[TrackedMember, bool] | None:
        """Add a record of this member.  If another member received the previous record, return that member.

        A member counts as another one before and after it became a zombie.
        """
        before = self.delivery_spans[-1] if self.delivery_spans else None
        if before is not None and before[0] is member and before[1] == is_zombie:
            return None
        self.delivery_span_positions.append(position)
        self.delivery_spans.append((member, is_zombie))
        return before

    def delivered_to(self, position: int) -> tuple[TrackedMember, bool] | None:
        """The member that received the record at this position, and whether as a zombie."""
        if position <= NEVER:
            return None
        return self.delivery_spans[bisect_right(self.delivery_span_positions, position) - 1]

    @property
    def last_member(self) -> TrackedMember | None:
        """The member that received the latest record."""
        return self.delivery_spans[-1][0] if self.delivery_spans else None

    def undelivered(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """The existing ranges of ``[low, high)`` that no member received."""
        for first, last in self.log.existing(low, high):
            yield from self.delivered.undelivered(first, last)

    def stored(self) -> int | None:
        """The committed offset as last observed."""
        last = self.commits.last
        return last if last is not None else (self.base if self.is_base_stored else None)

    def is_zombie(self, member: TrackedMember) -> bool:
        """Whether this Scala member continues with the partition after it lost its session or was paused."""
        return member.zombie_t is not None and self.acquisition_times.get(member, -1) < member.zombie_t


class Delivery(NamedTuple):
    """The records of one line that a member delivered.  ``span``: their offsets, as (first, last)."""

    member: TrackedMember
    partition: TrackedPartition
    span: tuple[int, int]
    t: int
    position: int
