"""Giving partitions back, whoever asks for it: stop, commit, then tell the program.  Pure.

    COLLECTING --positions--> COMMITTING --answered--> CALLING --the callback returned--> DONE
         '-- lost already, or nothing to commit, or too late ----^

Stop before commit, commit before the callback, callback before the partitions are anybody else's.  A commit that fails,
or takes too long, stops nobody: the group waits only so long for a member.

A member that leaves while the group rebalances commits too: in the generation that ends, or, where that is over, in the
next one, which it still joins for that (``commits``).  When neither accepts the commit, the partitions count as lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from bridge.client.auto_commit_scheduler import AutoCommitScheduler
from bridge.client.commands import Callback, Invoke, StopPartitions
from bridge.client.commit_queue import CommitQueue, CommitReason, PendingCommit
from bridge.client.events import Offset
from bridge.client.group_member import GroupMemberBase
from zkconsumer.types import TopicPartition


class RevocationStep(Enum):
    """How far it is."""

    COLLECTING = "collecting"
    COMMITTING = "committing"
    CALLING = "calling"
    DONE = "done"


class PartitionRevocation:
    """Some partitions on their way out.  With none of them it is only a commit of all that is read."""

    def __init__(
        self,
        member: GroupMemberBase,
        commits: CommitQueue,
        positions: AutoCommitScheduler,
        partitions: frozenset[TopicPartition],
        until_ms: int,
        *,
        commits_first: bool,
        is_leaving: bool = False,
        has_moved: bool = False,
    ) -> None:
        self.partitions = partitions
        self.until_ms = until_ms
        self.error: Exception | None = None
        """What the callback raised."""
        self.number = member.pending_commands.new_number()
        self._member = member
        self._commits = commits
        self._is_leaving = is_leaving
        self.has_moved = has_moved
        """Whether somebody else has them already, by the generation that we are in."""
        self._is_committed = False
        self._others: frozenset[TopicPartition] = frozenset()
        """What of them other members have by a generation that this member joined only to commit."""
        self.step = RevocationStep.COLLECTING
        if partitions:
            member.pending_commands.add(StopPartitions(partitions))
        if commits_first and not member.generation.is_lost and not has_moved:
            positions.collect(CommitReason.REVOCATION)
        else:
            self._call()

    @property
    def is_lost(self) -> bool:
        """Whether they are somebody else's already: this member is in no generation that has them."""
        member = self._member
        may_be_lost = self._is_leaving and member.state.is_rebalance_in_progress and not self._is_committed
        return self.has_moved or member.generation.is_lost or may_be_lost

    def collected(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """These are the last positions."""
        if self.step is RevocationStep.COLLECTING:
            self.step = RevocationStep.COMMITTING
            offsets = {tp: offset for tp, offset in offsets.items() if tp not in self._others}
            self._commits.ask(
                PendingCommit(self.number, offsets, CommitReason.REVOCATION, is_retried=True, until_ms=self.until_ms)
            )

    def leave_out(self, partitions: frozenset[TopicPartition]) -> None:
        """Other members have these by now, so their offsets are not committed."""
        self._others |= partitions
        self._commits.exclude(self.number, partitions)

    def committed(self, number: int, *, is_done: bool) -> None:
        """They are committed, or will not be."""
        if self.step is RevocationStep.COMMITTING and number == self.number:
            self._is_committed = is_done
            self._call()

    def called(self, number: int, error: Exception | None) -> bool:
        """The callback returned; whether it was ours."""
        if self.step is not RevocationStep.CALLING or number != self.number:
            return False
        self.error = error
        self.step = RevocationStep.DONE
        return True

    def advance(self) -> bool:
        """Whether it is through."""
        if (
            self.step in (RevocationStep.COLLECTING, RevocationStep.COMMITTING)
            and self._member.pending_commands.now_ms >= self.until_ms
        ):
            self._member.pending_commands.log_event("revoked-without-commit", partitions=len(self.partitions))
            self._call()
        return self.step is RevocationStep.DONE

    def _call(self) -> None:
        if not self.partitions:
            self.step = RevocationStep.DONE
            return
        self.step = RevocationStep.CALLING
        callback = Callback.LOST if self.is_lost else Callback.REVOKED
        self._member.pending_commands.add(Invoke(self.number, callback, self.partitions))
