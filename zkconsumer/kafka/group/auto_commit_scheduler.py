"""Automatic commits: when positions are collected, and for which commit.  Pure.

Positions are collected for the timer and before a revocation.  The requests for positions are answered in their order,
so a revocation never uses the answer to an earlier request: records that were consumed in between would be read again.

A commit that the coordinator rejects because the group rebalances is not kept.  A new one is due, and positions are
collected again as soon as the next assignment is applied.
"""

from __future__ import annotations

from collections import deque

from zkconsumer.errors import ZkConsumerError
from zkconsumer.kafka.group.commit_queue import CommitErrors, CommitReason, PendingCommit
from zkconsumer.kafka.group.errors import RebalanceInProgressException, RetriableCommitFailedException
from zkconsumer.kafka.group.group_member_config import GroupMemberConfig
from zkconsumer.kafka.group.kafka_text_forms import offsets_text
from zkconsumer.kafka.group.pending_commands import PendingCommands
from zkconsumer.kafka.net.exponential_backoff import ExponentialBackoff
from zkconsumer.member.ownership import CollectPositions


class AutoCommitScheduler:
    """The pending requests for positions, and the timer of automatic commits."""

    def __init__(self, config: GroupMemberConfig, backoff: ExponentialBackoff, outbox: PendingCommands) -> None:
        self._interval_ms = config.auto_commit_interval_ms
        self._backoff = backoff
        self._pending_commands = outbox
        self._waiting: deque[CommitReason] = deque()
        self._is_committing = False
        self._is_owed = False
        """Whether the last commit was rejected because the group rebalanced."""
        self._failures = 0
        self.next_ms = outbox.now_ms + self._interval_ms

    def restart(self) -> None:
        """An assignment was applied: the interval begins now, unless a commit was due, or rejected, before it."""
        now_ms = self._pending_commands.now_ms
        if self._is_owed:
            self.next_ms = now_ms
        elif self.next_ms > now_ms:
            self.next_ms = now_ms + self._interval_ms

    def collect(self, why: CommitReason) -> None:
        """Request positions."""
        self._waiting.append(why)
        self._pending_commands.add(CollectPositions())

    def collect_if_due(self) -> None:
        """Request positions for the timer: one request at a time."""
        if self._pending_commands.now_ms < self.next_ms or self._is_committing:
            return
        self.next_ms = self._pending_commands.now_ms + self._interval_ms
        self._is_committing = True
        self.collect(CommitReason.AUTOMATIC)

    def collected(self) -> CommitReason | None:
        """The commit for which positions have arrived; None: there was no request."""
        return self._waiting.popleft() if self._waiting else None

    def committed(self, commit: PendingCommit, error: ZkConsumerError | None, refused: CommitErrors) -> None:
        """The result of the timer's commit: it is logged, and after a transient error the commit is repeated soon."""
        self._is_committing = False
        self._is_owed = isinstance(error, RebalanceInProgressException)
        if self._is_owed or isinstance(error, RetriableCommitFailedException):
            self.next_ms = self._pending_commands.now_ms + self._backoff.backoff(self._failures)
            self._failures += 1
        else:
            self._failures = 0
        if self._is_owed:
            self._pending_commands.log_event("auto-commit-deferred", partitions=len(commit.offsets), reason=str(error))
            return
        if isinstance(error, RetriableCommitFailedException):
            self._pending_commands.log_event(
                "auto-commit-retried",
                f"Asynchronous auto-commit of offsets {offsets_text(commit.offsets)} failed due to retriable error: "
                f"{error}",
                partitions=len(commit.offsets),
            )
            return
        for why in (error, *refused.values()):
            if why is not None:
                self._pending_commands.log_event(
                    "auto-commit-failed",
                    f"Asynchronous auto-commit of offsets {offsets_text(commit.offsets)} failed: {why}",
                    partitions=len(commit.offsets),
                    reason=str(why),
                )
