"""Releases partitions, for every reason: stop, commit, then call the program.  Pure.

    COLLECTING --positions--> COMMITTING --answered--> CALLING --the callback returned--> DONE
         '-- lost already, or nothing to commit, or too late ----^

Stop before commit, commit before the callback, callback before another member can own the partitions.  A commit that
fails, or takes too long, does not block: the group waits only a limited time for a member.

A member that leaves while the group rebalances commits too: in the generation that ends, or, if that has ended, in the
next one, which it still joins for that (``commit_queue``).  When neither accepts the commit, the partitions count as
lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from zkconsumer.kafka.group.auto_commit_scheduler import AutoCommitScheduler
from zkconsumer.kafka.group.commands import Callback, Invoke
from zkconsumer.kafka.group.commit_queue import CommitQueue, CommitReason, PendingCommit
from zkconsumer.kafka.group.events import Offset
from zkconsumer.kafka.group.group_member import GroupMemberBase
from zkconsumer.kafka.group.kafka_text_forms import partitions_text
from zkconsumer.member.ownership import Drain
from zkconsumer.types import TopicPartition


class RevocationStep(Enum):
    """The progress of a revocation."""

    COLLECTING = "collecting"
    COMMITTING = "committing"
    CALLING = "calling"
    DONE = "done"


class PartitionRevocation:
    """Partitions that are being revoked.  Without partitions it is only a commit of all running ones."""

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
        is_drained: bool = False,
    ) -> None:
        self.partitions = partitions
        self.until_ms = until_ms
        self.error: Exception | None = None
        """The exception of the callback."""
        self.number = member.pending_commands.new_number()
        self._member = member
        self._commits = commits
        self._is_leaving = is_leaving
        self.has_moved = has_moved
        """Whether other members own them already, by the current generation."""
        self._is_committed = False
        self._others: frozenset[TopicPartition] = frozenset()
        """Those of them that other members own by a generation that this member joined only to commit."""
        self.step = RevocationStep.COLLECTING
        if partitions and not is_drained:
            member.pending_commands.add(Drain(tuple(sorted(partitions))))
        if commits_first and not member.generation.is_lost and not has_moved:
            positions.collect(CommitReason.REVOCATION)
        else:
            self._call()

    @property
    def is_lost(self) -> bool:
        """Whether other members own them already: this member is in no generation in which it owns them."""
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
        """Other members own these by now, so their offsets are not committed."""
        self._others |= partitions
        self._commits.exclude(self.number, partitions)

    def committed(self, number: int, *, is_done: bool) -> None:
        """They are committed, or will not be."""
        if self.step is RevocationStep.COMMITTING and number == self.number:
            self._is_committed = is_done
            self._call()

    def called(self, number: int, error: Exception | None) -> bool:
        """The callback returned; returns whether it belongs to this revocation."""
        if self.step is not RevocationStep.CALLING or number != self.number:
            return False
        self.error = error
        self.step = RevocationStep.DONE
        return True

    def advance(self) -> bool:
        """Continue; returns whether it is done."""
        if self._member.pending_commands.now_ms >= self.until_ms:
            self.stop_waiting()
        return self.step is RevocationStep.DONE

    def stop_waiting(self) -> None:
        """Call the program now, unless that was done: there is no time for the commit."""
        if self.step in (RevocationStep.COLLECTING, RevocationStep.COMMITTING):
            self._member.pending_commands.log_event("revoked-without-commit", partitions=len(self.partitions))
            self._call()

    def _call(self) -> None:
        if not self.partitions:
            self.step = RevocationStep.DONE
            return
        self.step = RevocationStep.CALLING
        callback = Callback.LOST if self.is_lost else Callback.REVOKED
        names, count = partitions_text(self.partitions), len(self.partitions)
        if callback is Callback.LOST:
            self._member.pending_commands.log_event(
                "losing", f"Lost previously assigned partitions {names}", partitions=count
            )
        else:
            self._member.pending_commands.log_event(
                "revoking", f"Revoke previously assigned partitions {names}", partitions=count
            )
        self._member.pending_commands.add(Invoke(self.number, callback, self.partitions))
