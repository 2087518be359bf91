"""The pauses between attempts that did not get the whole assignment, and the log lines about how attempts end.

    attempt complete   --> count 0, no timer, ``assignment-complete`` once for each assignment
    attempt incomplete --> count + 1, RETRY timer with the next pause; ``assignment-incomplete`` at the first one,
                           ``ownership-conflict`` at the third one

Attempts continue without a limit.  A Scala consumer stops after ``rebalance.max.retries`` of them; then it keeps its
registration, and its partitions have no owner until the group changes
(``defect_01_a_member_retries_until_it_owns_its_assignment.txt``).

The pause is the upper limit of a wait, not the normal one: a change of the group triggers an attempt at once, and the
watch on the owners acquires a partition when its owner has gone.  It grows, so that a group with a permanent conflict
causes little load, and has jitter, so that members that wait for each other do not try at the same time again and
again. The jitter comes from the member id and the count, because a decision must be repeatable from its inputs: no
random source exists in this package.

The timer runs only between two attempts (``INCOMPLETE``): the read that begins an attempt stops it.  A pause of the
process makes it fire late, which is harmless.  The count survives a disconnect, and ends with the session.  The same
timer repeats the failed releases of a member that is outside of its group; the two uses exclude each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.member import commands as do
from zkconsumer.member.events import MemberTimer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zkconsumer.member.commands import Command
    from zkconsumer.member.group_settings import GroupSettings
    from zkconsumer.types import TopicPartition

RETRY_MAX_MS = 30_000
"""The longest pause, before jitter."""

RETRY_GROWTH = 1.5
GROWTH_STEPS_MAX = 12
"""Bounds the exponent.  The default pause of 2 s reaches RETRY_MAX_MS after seven attempts; a very short one never
does."""

JITTER_PERCENT_MAX = 20
KAFKA_RETRY_MAX_MS = 5_000
"""The longest retry pause when only the offsets from Kafka are missing."""

IDENTIFY_OWNERS_FROM_TRY = 2
"""The attempt, counted from 0, from which an owner that conflicts with us is identified and logged: usually the
rebalance of the other members is over by then."""


class RebalanceRetries:
    """The attempts since the assignment was complete."""

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._attempt_count = 0
        """Attempts since the assignment was complete; they determine the pause before the next one."""
        self._logged_assignment: Mapping[TopicPartition, str] | None = None
        """The assignment that was logged as complete; None if it must be logged (again) when it is complete."""

    @property
    def identifies_owners(self) -> bool:
        """Whether the next acquisition also reads who owns the partitions that we do not get."""
        return self._attempt_count >= IDENTIFY_OWNERS_FROM_TRY

    def on_complete(self) -> list[Command]:
        """The attempt acquired everything, and all of it is fetched."""
        self._attempt_count = 0
        return [do.StopTimer(MemberTimer.RETRY)]

    def log_complete(self, assignment: Mapping[TopicPartition, str], members: int) -> list[Command]:
        """Log a complete assignment; once, until it changes or a loss or a failed attempt interrupts it."""
        assert self._attempt_count == 0, "a complete assignment ends the series of attempts"
        if self._logged_assignment == assignment:
            return []
        self._logged_assignment = assignment
        return [do.LogEvent("INFO", "assignment-complete", f"partitions={len(assignment)} members={members}")]

    def on_incomplete(self, not_acquired: Mapping[TopicPartition, str], *, is_kafka_unavailable: bool) -> list[Command]:
        """Start the next pause.  A conflict is logged twice: at once, and when it looks permanent, with the owner.

        ``is_kafka_unavailable``: offsets are missing, and the coordinator may answer again soon.
        """
        longest = KAFKA_RETRY_MAX_MS if is_kafka_unavailable else RETRY_MAX_MS
        growth = RETRY_GROWTH ** min(self._attempt_count, GROWTH_STEPS_MAX)
        delay = min(longest, int(self._settings.rebalance_backoff_ms * growth))
        jitter = sum(self._settings.member_id.encode()) * (self._attempt_count + 1) % JITTER_PERCENT_MAX
        self._attempt_count += 1
        out: list[Command] = [do.StartTimer(MemberTimer.RETRY, delay * (100 + jitter) // 100)]
        level_and_name = {
            1: ("INFO", "assignment-incomplete"),
            IDENTIFY_OWNERS_FROM_TRY + 1: ("WARNING", "ownership-conflict"),
        }.get(self._attempt_count)
        if not_acquired and level_and_name is not None:
            some = ", ".join(f"{tp} ({why})" for tp, why in sorted(not_acquired.items())[:3])
            self.forget_logged()
            out.append(do.LogEvent(*level_and_name, f"missing={len(not_acquired)} first={some}"))
        return out

    def forget_logged(self) -> None:
        """The log has a line that ends the last ``assignment-complete``: the next one must be logged."""
        self._logged_assignment = None

    def reset(self) -> None:
        """The session ended."""
        self._attempt_count = 0
        self.forget_logged()
