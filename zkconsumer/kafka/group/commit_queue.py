"""Commits of a member: the program's, automatic ones, and the last before a revocation.  Pure.

    CommitAsked, the timer, a revocation --> [waiting] --> in flight --> answered: done, rejected, or retried after a
    pause

One is in flight at a time, in the order of the requests: a commit that is repeated never overwrites a later one.  A
commit is sent with the generation of that moment, and its answer is evaluated for that generation.  It is sent only in
the generation in which it was requested, except for the last commit of partitions (below).

While the group rebalances (Kafka's coordinator, ``GroupCoordinator.doCommitOffsets``, 0.9 to 4.1):

    PREPARING_REBALANCE    the coordinator waits for members to join and accepts commits of the previous generation
    COMPLETING_REBALANCE   it waits for the leader's assignment and rejects every commit (27; before 2.4 also those of
                           the previous generation, which later releases reject with 22)

So a member that keeps partitions while it joins can commit until all have joined.  JoinGroup has its own connection
(``network``), so the answer to a commit may arrive before the one to JoinGroup: while JoinGroup is unanswered, 22 and
25 mean that the generation has ended, and only the answer to JoinGroup shows whether this member is in the next one.
Commits that are rejected meanwhile are made in the next generation: the last commit of partitions waits here for it,
positions of automatic commits are collected again, and the program receives ``RebalanceInProgressException``, after
which ``commit_offsets`` retries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from zkconsumer.errors import BrokerUnreachable, UsageError, ZkConsumerError
from zkconsumer.kafka.error_codes import error_code
from zkconsumer.kafka.group.coordinator_discovery import error_without_answer
from zkconsumer.kafka.group.error_policy import OFFSET_COMMIT as COMMIT_TABLE
from zkconsumer.kafka.group.error_policy import ErrorAction, error_action, error_from_code
from zkconsumer.kafka.group.errors import (
    CommitFailedException,
    FencedInstanceIdException,
    RebalanceInProgressException,
    RetriableCommitFailedException,
    TopicAuthorizationException,
)
from zkconsumer.kafka.group.events import Failure, Offset, RequestFailed
from zkconsumer.kafka.group.generation import NO_GENERATION, Generation, MemberState
from zkconsumer.kafka.group.group_member import GroupMemberBase, JoinStep
from zkconsumer.kafka.group.kafka_text_forms import (
    error_message,
    generation_text,
    optional_text,
    partition_text,
    topics_text,
)
from zkconsumer.kafka.group.pending_commands import RequestKind, SentRequest
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import OFFSET_COMMIT
from zkconsumer.wire.schemas.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
)

_OF_A_GENERATION = (ErrorAction.REJOIN, ErrorAction.RESET_MEMBER, ErrorAction.RESET_GENERATION, ErrorAction.FENCED)
"""Errors about the generation in which a commit was sent (27, 25, 22, 82)."""

WAITING_MAX = 1000
"""The maximum number of waiting commits; one more fails at once."""


class CommitReason(Enum):
    """The origin of a commit."""

    REQUESTED = "asked"
    AUTOMATIC = "automatic"
    REVOCATION = "hand-back"


@dataclass(slots=True)
class PendingCommit:
    """One commit until it is done.  ``is_retried``: until ``until_ms``; else one attempt."""

    number: int
    offsets: Mapping[TopicPartition, Offset]
    why: CommitReason
    is_retried: bool
    until_ms: int
    attempts: int = 0
    retry_at_ms: int = 0
    asked_in: Generation = NO_GENERATION
    is_of_member: bool = False
    """Whether the group had assigned its partitions when it was asked: it is never sent without a generation."""
    refused_in: Generation | None = None
    """The generation that had ended when the commit arrived: it is not sent in that one again."""


CommitErrors: TypeAlias = Mapping[TopicPartition, ZkConsumerError]

CommitCallback: TypeAlias = Callable[[PendingCommit, ZkConsumerError | None, CommitErrors], None]
"""Receives the result of a commit: no error, one for the whole commit, or one for each rejected partition."""


class CommitQueue:
    """The waiting commits; the first one may be in flight."""

    def __init__(self, member: GroupMemberBase, finished: CommitCallback) -> None:
        self._member = member
        self._finished = finished
        self._queue: deque[PendingCommit] = deque()
        self._is_in_flight = False

    @property
    def is_idle(self) -> bool:
        """Whether no commit waits."""
        return not self._queue

    @property
    def retry_at_ms(self) -> int | None:
        """When the first commit is retried, or fails; in ms."""
        if not self._queue or self._is_in_flight:
            return None
        first = self._queue[0]
        return min(first.until_ms, first.retry_at_ms) if first.attempts else first.until_ms

    def ask(self, commit: PendingCommit) -> None:
        """Add a commit to the queue."""
        offsets = commit.offsets
        if any(offset.offset < 0 for offset in offsets.values()):
            error = UsageError("a negative offset cannot be committed: commit the offset of the next record to read")
            self._finished(commit, error, {})
        elif len(self._queue) >= WAITING_MAX:
            self._finished(commit, RetriableCommitFailedException(f"{WAITING_MAX} commits are waiting already"), {})
        else:
            commit.asked_in = self._member.generation
            commit.is_of_member = self._member.has_auto_assigned_partitions
            self._queue.append(commit)

    def advance(self) -> None:
        """Send the first commit, if that is possible now."""
        member = self._member
        while self._queue and not self._is_in_flight:
            first = self._queue[0]
            if not first.offsets:
                self._done(None)
            elif member.failure is not None:
                self._done(member.failure)
            elif member.pending_commands.now_ms >= first.until_ms:
                self._done(self._too_late())
            elif self._waits_for_generation(first):
                return
            elif (error := self._not_in_group(first)) is not None:
                self._done(error)
            elif member.pending_commands.now_ms < first.retry_at_ms:
                return
            elif not member.coordinator_discovery.ensure_coordinator_ready():
                if member.coordinator_discovery.fatal is None:
                    return
                self._done(member.coordinator_discovery.fatal)
            else:
                self._send(first)

    def give_up(self, why: str) -> None:
        """Fail all waiting commits."""
        self._member.pending_commands.give_up(RequestKind.OFFSET_COMMIT)
        self._is_in_flight = False
        while self._queue:
            self._done(RetriableCommitFailedException(why))

    def exclude(self, number: int, partitions: frozenset[TopicPartition]) -> None:
        """Do not commit these with the revocation of this number, if it was not sent yet: other members own them."""
        for index, commit in enumerate(self._queue):
            is_sent = index == 0 and self._is_in_flight
            if commit.why is CommitReason.REVOCATION and commit.number == number and not is_sent:
                commit.offsets = {tp: at for tp, at in commit.offsets.items() if tp not in partitions}

    def _waits_for_generation(self, commit: PendingCommit) -> bool:
        """Whether it would be rejected now, and may be accepted in the generation that this member is joining."""
        member = self._member
        if commit.why is not CommitReason.REVOCATION:
            return False
        if member.step is JoinStep.COMPLETING and commit.asked_in != member.generation:
            return True  # until it is known which of its partitions other members own by now (``exclude``)
        if not member.awaits_generation:
            return False
        return member.state is MemberState.COMPLETING_REBALANCE or commit.refused_in == member.generation

    def _not_in_group(self, commit: PendingCommit) -> ZkConsumerError | None:
        """Why a commit would be rejected, if that is known in advance."""
        member = self._member
        if not member.has_auto_assigned_partitions:
            if commit.is_of_member:
                return CommitFailedException(
                    f"this member has unsubscribed from group {member.config.group_id}: nothing was committed"
                )
            return None
        if commit.why is not CommitReason.REVOCATION and not member.generation.is_lost:
            is_outdated = commit.asked_in != member.generation
            if is_outdated and member.state in (MemberState.STABLE, MemberState.PREPARING_REBALANCE):
                return self._outdated(commit)
        if member.state is MemberState.STABLE:
            return None
        if member.commits_while_joining and commit.refused_in != member.generation:
            return None
        member.pending_commands.log_event(
            "commit-without-group",
            "Failing OffsetCommit request since the consumer is not part of an active group",
            partitions=len(commit.offsets),
        )
        if member.state.is_rebalance_in_progress:
            return RebalanceInProgressException(
                f"group {member.config.group_id} is rebalancing, and its coordinator accepts no commit until the next "
                "generation has its assignment: nothing was committed"
            )
        return CommitFailedException(
            f"this member is not in group {member.config.group_id}: it was dropped, or has not joined yet"
        )

    def _outdated(self, commit: PendingCommit) -> ZkConsumerError:
        """A commit waited for an earlier one, or for its retry, while a rebalance began and ended.  Other members may
        own some of its partitions now, and may have committed larger offsets."""
        before, group = commit.asked_in, self._member.config.group_id
        if before.is_lost or before.member_id != self._member.generation.member_id:
            return CommitFailedException(f"this member was not in group {group} any more: nothing was committed")
        return RebalanceInProgressException(
            f"group {group} has rebalanced since this commit of generation {before.generation_id} was requested: "
            "nothing was committed"
        )

    def _too_late(self) -> ZkConsumerError:
        return RetriableCommitFailedException(
            f"the coordinator of group {self._member.config.group_id} did not accept the commit in time"
        )

    def _send(self, commit: PendingCommit) -> None:
        member = self._member
        assert member.coordinator_discovery.coordinator is not None, "a commit needs a known coordinator"
        is_member = member.has_auto_assigned_partitions
        generation = member.generation if is_member else NO_GENERATION
        body = _request(member.config.group_id, generation, commit.offsets)
        if generation.has_member_id:
            body.group_instance_id = member.config.group_instance_id
        self._is_in_flight = True
        commit.attempts += 1
        member.pending_commands.send(
            SentRequest(RequestKind.OFFSET_COMMIT, generation, member.coordinator_discovery.incarnation, commit.number),
            member.coordinator_discovery.coordinator.id,
            OFFSET_COMMIT.key,
            body=body,
            timeout_ms=member.config.request_timeout_ms,
        )

    # --- answers --------------------------------------------------------------------------------------------------

    def answered(self, sent: SentRequest, body: OffsetCommitResponse) -> None:
        """Process the coordinator's answer to the commit in flight."""
        self._is_in_flight = False
        member = self._member
        refused: dict[TopicPartition, ZkConsumerError] = {}
        missing = set(self._queue[0].offsets)
        for topic in body.topics:
            for partition in topic.partitions:
                tp = TopicPartition(topic.name, partition.partition_index)
                missing.discard(tp)
                code = partition.error_code
                if code == 0:
                    continue
                what = error_action(COMMIT_TABLE, code)
                error = error_from_code(code, member.config.group_id, f"the commit of {tp}")
                self._log_refusal(sent, what, tp, code)
                if what is not ErrorAction.PARTITION_ERROR:
                    self._react(sent, what, code, error)
                    return
                refused[tp] = error
        unauthorized = {tp.topic for tp, error in refused.items() if isinstance(error, TopicAuthorizationException)}
        if unauthorized:
            member.pending_commands.log_event(
                "commit-unauthorized",
                f"Not authorized to commit to topics {topics_text(unauthorized)}",
                topics=sorted(unauthorized),
            )
        if missing:
            some = min(missing)
            self._done(BrokerUnreachable(f"the coordinator did not report the result of the commit of {some}"))
        else:
            self._done(None, refused)

    def _log_refusal(self, sent: SentRequest, what: ErrorAction, tp: TopicPartition, code: int) -> None:
        if what in _OF_A_GENERATION and self._is_in_next_generation(sent, what):
            return  # not an error: the commit is made in the next generation
        stored = self._queue[0].offsets.get(tp)
        offset = -1 if stored is None else stored.offset
        sentence = f"Offset commit failed on partition {partition_text(tp)} at offset {offset}: {error_message(code)}"
        if error_code(code).is_retriable:
            self._member.pending_commands.log_event("commit-refused", sentence, error=str(error_code(code)))
        else:
            self._member.pending_commands.log_event("commit-rejected", sentence, error=str(error_code(code)))

    def _react(self, sent: SentRequest, what: ErrorAction, code: int, error: ZkConsumerError) -> None:
        """An error of one partition that applies to the whole commit."""
        member = self._member
        is_unchanged = sent.generation == member.generation or not member.has_auto_assigned_partitions
        if what in _OF_A_GENERATION and self._is_in_next_generation(sent, what):
            self._refused_in(sent.generation, error)
            return
        if what in (ErrorAction.FENCED, ErrorAction.RESET_MEMBER, ErrorAction.RESET_GENERATION):
            instance = optional_text(member.config.group_instance_id)
            reason = f" due to group instance id {instance} fenced" if what is ErrorAction.FENCED else ""
            sentence = f"OffsetCommit failed with {generation_text(sent.generation)}"
            sentence += reason or f": {error_message(code)}"
            member.pending_commands.log_event("commit-generation-over", sentence, error=str(error_code(code)))
        match what:
            case ErrorAction.RETRY_AFTER_BACKOFF:
                self._retry(error)
            case ErrorAction.FIND_COORDINATOR:
                member.coordinator_discovery.mark_coordinator_unknown(f"error response {error_code(code).name}")
                self._retry(error)
            case ErrorAction.REJOIN:
                member.request_rejoin_if_necessary("offset commit failed since group is already rebalancing")
                self._done(self._stale(RebalanceInProgressException, error))
            case ErrorAction.FENCED if is_unchanged:
                self._done(error)
            case ErrorAction.FENCED | ErrorAction.RESET_MEMBER | ErrorAction.RESET_GENERATION:
                if what is not ErrorAction.FENCED and is_unchanged and sent.generation.has_member_id:
                    member.reset_state_and_rejoin(
                        f"encountered {error_code(code)} from OffsetCommit response",
                        keeps_member_id=what is ErrorAction.RESET_GENERATION,
                    )
                self._done(self._stale(CommitFailedException, error))
            case _:
                self._done(error)

    def _is_in_next_generation(self, sent: SentRequest, what: ErrorAction) -> bool:
        """Whether the generation of the commit has ended, and this member is in the next one, or is joining it."""
        member = self._member
        if not member.has_auto_assigned_partitions or member.generation.is_lost:
            return False
        if sent.generation != member.generation:
            return True
        # With error 82 another instance has our id; the answer to JoinGroup adds no information.
        return what is not ErrorAction.FENCED and member.state is MemberState.PREPARING_REBALANCE

    def _refused_in(self, generation: Generation, error: ZkConsumerError) -> None:
        first = self._queue[0]
        first.refused_in = generation
        if first.why is not CommitReason.REVOCATION:
            self._done(self._stale(RebalanceInProgressException, error))

    def _stale(self, kind: type[ZkConsumerError], cause: ZkConsumerError) -> ZkConsumerError:
        error = kind(f"nothing was committed: {cause}")
        error.__cause__ = cause
        return error

    def failed(self, event: RequestFailed) -> None:
        """The commit in flight has no answer."""
        self._is_in_flight = False
        error = error_without_answer(event, self._member.config.group_id, RequestKind.OFFSET_COMMIT)
        if event.error is not None or event.failure is Failure.UNSUPPORTED:
            self._done(error)
        else:
            self._retry(error)

    def _retry(self, error: ZkConsumerError) -> None:
        first = self._queue[0]
        now_ms = self._member.pending_commands.now_ms
        pause_ms = self._member.backoff.backoff(first.attempts - 1)
        if first.is_retried and now_ms + pause_ms < first.until_ms:
            first.retry_at_ms = now_ms + pause_ms
        else:
            self._done(self._stale(RetriableCommitFailedException, error))

    def _done(self, error: ZkConsumerError | None, refused: CommitErrors | None = None) -> None:
        commit = self._queue.popleft()
        if isinstance(error, FencedInstanceIdException) and self._member.failure is None:
            self._member.end(error)
        self._finished(commit, error, refused or {})


def _request(group: str, generation: Generation, offsets: Mapping[TopicPartition, Offset]) -> OffsetCommitRequest:
    topics: dict[str, OffsetCommitTopic] = {}
    for tp, offset in sorted(offsets.items()):
        topic = topics.setdefault(tp.topic, OffsetCommitTopic(name=tp.topic, partitions=[]))
        topic.partitions.append(
            OffsetCommitPartition(
                partition_index=tp.partition,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation.generation_id,
        member_id=generation.member_id,
        topics=list(topics.values()),
    )
