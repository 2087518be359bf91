"""The commit that a change of the group causes, before the group is read.

    change --> collect --> CollectPositions --> PositionsCollected --> Commit --> ReadGroup
                  \\---- COLLECT timer: the positions do not come --------------> ReadGroup

The Scala consumer reads the offset of a partition before it takes the owner node, and its commit is the first thing
that it does in a rebalance (``closeFetchersForQueues``, all releases).  So a Scala member that takes a partition over
from us may read the offset while we still read the group.  What it finds then is what we consumed until the change.

One commit belongs to the change after a quiet time, and one to each further reading that changes cause: so a storm of
changes costs no more commits than readings.  A commit that finds another one under way waits for it, and the reading
does not.  Once the group is read, what leaves this member is committed with its release, and nothing is owed any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.member import commands as do
from zkconsumer.member.events import MemberTimer

if TYPE_CHECKING:
    from zkconsumer.member.commands import Command

COLLECT_TIMEOUT_MS = 50
"""How long a reading waits for the positions.  The streams of this process give them at once; the holder of a member
that migrates commits them to Kafka first, and a slow coordinator must not delay a rebalance.
"""


class CommitOnChange:
    """At most one commit is owed, and one question for positions is open.  ``is_enabled``: auto commit is on."""

    def __init__(self, *, is_enabled: bool) -> None:
        self._is_enabled = is_enabled
        self._has_changed = False
        """A change was seen, and ``begin`` was not called since."""
        self._is_commit_due = False
        """What was consumed until a change is to be committed, and that commit is not decided yet."""
        self.is_collecting = False
        """``CollectPositions`` was sent for that commit and is not answered; the group is not read meanwhile."""

    def on_change(self) -> None:
        """Members or topics changed, or may have changed while the connection was broken."""
        self._has_changed = self._is_enabled

    def begin(self) -> None:
        """The change is the first one after a quiet time, or the group is about to be read because of it."""
        self._is_commit_due = self._is_commit_due or self._has_changed
        self._has_changed = False

    def collect(self, *, is_fetching: bool, is_busy: bool) -> list[Command]:
        """Ask for the positions, unless a commit is under way (``is_busy``); without partitions nothing is owed."""
        self._is_commit_due = self._is_commit_due and is_fetching
        if not self._is_commit_due or self.is_collecting or is_busy:
            return []
        self.is_collecting = True
        return [do.CollectPositions(), do.StartTimer(MemberTimer.COLLECT_POSITIONS, COLLECT_TIMEOUT_MS)]

    def on_collected(self) -> list[Command]:
        """The positions are here."""
        was_collecting, self.is_collecting = self.is_collecting, False
        return [do.StopTimer(MemberTimer.COLLECT_POSITIONS)] if was_collecting else []

    def on_timeout(self) -> None:
        """Do not wait for the positions any longer; when they come they are committed like those of the interval."""
        self.is_collecting = self._is_commit_due = False

    def commit_done(self) -> None:
        """The commit is decided, or what leaves this member is known: nothing is owed."""
        self._is_commit_due = False

    def reset(self) -> list[Command]:
        """The session is gone, or the member leaves."""
        self._has_changed = self._is_commit_due = False
        return self.on_collected()
