"""When the owners of the whole group are compared with its assignment.

    INCOMPLETE, or a partition of our topics without an owner --> DIAGNOSE timer --> *due* --> a read with all owners
                                                                                                |
    the planner logs why owners and assignment differ, or changes the variant  <----------------+

ZooKeeper does not contain the settings of the other members.  A member with another strategy, or one that has given up
(a Scala consumer does so after ``rebalance.max.retries``), is visible only by owners that do not fit for long.  The
wait (``diagnose_after_ms``) is longer than a rebalance, because in the middle of one no owner fits.

Two causes start the timer: this member lacks a partition, or it has its whole assignment and a partition of its topics
has no owner.  The second one matters because members with different strategies can divide a topic without a conflict,
if one came first and the other gave up (``defect_21_an_orphaned_partition_is_logged.txt``).  When the cause has gone
before the timer fires, the timer is stopped.

A diagnosis that is due waits for the next view, however many attempts that takes: a read that fails, or that is
replaced by another one, leaves it due.  The end of the session forgets everything; the next session starts with a
diagnosis of its own, if something does not fit then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.member import commands as do
from zkconsumer.member.events import MemberTimer

if TYPE_CHECKING:
    from collections.abc import Mapping, Set

    from zkconsumer.member.commands import Command


class DiagnosisSchedule:
    """The timer of the diagnosis, and the topics that cause one."""

    def __init__(self, delay_ms: int) -> None:
        self.is_enabled = True
        """False while the assignment comes from outside: the diagnosis compares owners with computed assignments."""
        self.is_due = False
        """The timer has fired, and no view was diagnosed since; False while the assignment is complete."""
        self._delay_ms = delay_ms
        self._unowned_topics: set[str] = set()
        """Topics of which a partition had no owner when the owners were listed last, while our part was complete."""
        self._is_timer_running = False
        """A timer that runs is not started again: a long series of attempts would postpone it without end."""

    def start(self) -> list[Command]:
        """Something does not fit: start the timer, unless it runs."""
        if self._is_timer_running or not self.is_enabled:
            return []
        self._is_timer_running = True
        return [do.StartTimer(MemberTimer.DIAGNOSE, self._delay_ms)]

    def stop(self) -> list[Command]:
        """The member leaves, or its assignment is complete or has another source: no diagnosis is due."""
        self.is_due = False
        return self._stop_timer()

    def on_timer(self) -> None:
        """The timer fired; the caller triggers a read."""
        self.is_due = True
        self._is_timer_running = False

    def on_view(self) -> bool:
        """A view arrived; True if it must be diagnosed, which happens once."""
        was_due, self.is_due = self.is_due, False
        if was_due:
            self._unowned_topics.clear()
        return was_due

    def on_complete(self, topics: Set[str]) -> list[Command]:
        """This member owns its assignment, of these topics; those without an owner are still watched."""
        out = self.stop()
        self._unowned_topics &= topics
        return [*out, *(self.start() if self._unowned_topics else ())]

    def on_owners_listed(
        self, owned: Mapping[str, frozenset[int]], partitions: Mapping[str, tuple[int, ...]]
    ) -> list[Command]:
        """The owners of some topics were listed while this member owns its assignment.

        Start the timer when a partition has no owner, and stop it when each has one again.  A partition of a topic that
        was not listed keeps the verdict of its last list.
        """
        assert not self.is_due, "a diagnosis that is due starts a read, which ends the stable state"
        for topic, numbers in owned.items():
            if set(partitions.get(topic, ())) <= numbers:
                self._unowned_topics.discard(topic)
            else:
                self._unowned_topics.add(topic)
        if self._unowned_topics:
            return self.start()
        return self._stop_timer() if self._is_timer_running else []

    def forget_topics(self) -> None:
        """The member leaves: the owners of its topics are not its concern any more."""
        self._unowned_topics.clear()

    def reset(self) -> None:
        """The session ended; the caller stops the timer with all others."""
        self.is_due = self._is_timer_running = False
        self._unowned_topics.clear()

    def _stop_timer(self) -> list[Command]:
        self._is_timer_running = False
        return [do.StopTimer(MemberTimer.DIAGNOSE)]
