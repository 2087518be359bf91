"""The commit that a change of the group causes, before the group is read.

    change --> collect --> CollectPositions --> PositionsCollected --> commit --> ReadGroup
                  \\---- COLLECT_POSITIONS timer: no positions in time ----------> ReadGroup

The Scala consumer reads the offset of a partition before it takes the owner node, and its commit is the first thing
that it does in a rebalance (``closeFetchersForQueues``, all releases).  So a Scala consumer that takes over a
partition from us may read the offset while we still read the group.  It then finds the offset that we had consumed at
the time of the change.

The first change after a quiet time causes one commit, and each further read of the group that changes cause another
one; so many changes cause no more commits than reads.  If a commit is under way already, the new one waits for it; the
read of the group does not wait.  After the read, released partitions are committed with their release, and no commit
is due any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.member import commands as do
from zkconsumer.member import ownership
from zkconsumer.member.events import MemberTimer

if TYPE_CHECKING:
    from zkconsumer.member.commands import Command

COLLECT_TIMEOUT_MS = 50
"""How long the read of the group waits for the positions.  The streams of this process report them at once; a
migrating member commits them to Kafka first, and a slow coordinator must not delay a rebalance.
"""


class CommitOnChange:
    """At most one commit is due, and one request for positions is open.  ``is_enabled``: auto commit is on."""

    def __init__(self, *, is_enabled: bool) -> None:
        self._is_enabled = is_enabled
        self._has_changed = False
        """The group changed, and ``begin`` was not called since."""
        self._is_commit_due = False
        """The offsets consumed until a change must be committed, and that commit is not decided yet."""
        self.is_collecting = False
        """``CollectPositions`` was sent for that commit and has no answer yet; the group is not read meanwhile."""

    def on_change(self) -> None:
        """Members or topics changed, or may have changed while the connection was broken."""
        self._has_changed = self._is_enabled

    def begin(self) -> None:
        """The change is the first one after a quiet time, or the group is about to be read because of it."""
        self._is_commit_due = self._is_commit_due or self._has_changed
        self._has_changed = False

    def collect(self, *, is_fetching: bool, is_busy: bool) -> list[Command]:
        """Request the positions, unless a commit is under way (``is_busy``); without partitions no commit is due."""
        self._is_commit_due = self._is_commit_due and is_fetching
        if not self._is_commit_due or self.is_collecting or is_busy:
            return []
        self.is_collecting = True
        return [ownership.CollectPositions(), do.StartTimer(MemberTimer.COLLECT_POSITIONS, COLLECT_TIMEOUT_MS)]

    def on_collected(self) -> list[Command]:
        """The positions have arrived."""
        was_collecting, self.is_collecting = self.is_collecting, False
        return [do.StopTimer(MemberTimer.COLLECT_POSITIONS)] if was_collecting else []

    def on_timeout(self) -> None:
        """Stop waiting for the positions; when they arrive they are committed like those of the interval."""
        self.is_collecting = self._is_commit_due = False

    def commit_done(self) -> None:
        """The commit is decided, or the partitions to release are known: no commit is due."""
        self._is_commit_due = False

    def reset(self) -> list[Command]:
        """The session ended, or the member leaves."""
        self._has_changed = self._is_commit_due = False
        return self.on_collected()
