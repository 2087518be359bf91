"""Blocking commits on any thread, and the results of commits for the metrics."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bridge.client.coordinator_event_loop import NetworkAnswer
from zkconsumer.errors import UsageError
from zkconsumer.kafka.error_codes import NONE, error_code
from zkconsumer.kafka.group import commands as cmd
from zkconsumer.kafka.group import events as cev
from zkconsumer.kafka.group.errors import CommitFailedException, RebalanceInProgressException
from zkconsumer.member.events import KafkaCommitResult, WriteOutcome
from zkconsumer.member.offset_stores import KAFKA_NAME, CommitFailure
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import OFFSET_COMMIT

NOT_COMMITTED = CommitFailedException, RebalanceInProgressException, UsageError
"""After these errors the commit was certainly not made: the coordinator rejected it (22, 25, 27 …), or it was not
sent."""


@dataclass(slots=True)
class CommitCall:
    """``refused`` is complete once ``done`` is set.  ``unknown``: the partitions that may have been committed although
    they are in ``refused``.

    ``is_ended``: an error ended the member first, so the result is unknown.
    """

    number: int
    offsets: Mapping[TopicPartition, cev.Offset]
    is_retried: bool = True
    done: threading.Event = field(default_factory=threading.Event)
    refused: dict[TopicPartition, CommitFailure] = field(default_factory=dict)
    unknown: set[TopicPartition] = field(default_factory=set)
    is_ended: bool = False
    then: Callable[[cmd.CommitDone], None] | None = None
    """Receives the result instead of ``done``."""


class CommitCalls:
    """The open blocking commits, by number."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made = 0
        self._open: dict[int, CommitCall] = {}

    def open(
        self,
        offsets: Mapping[TopicPartition, cev.Offset],
        *,
        is_retried: bool = True,
        then: Callable[[cmd.CommitDone], None] | None = None,
    ) -> CommitCall:
        """Start one call."""
        with self._lock:
            self._made += 1
            call = CommitCall(self._made, dict(offsets), is_retried, then=then)
            self._open[call.number] = call
        return call

    def give_up(self, call: CommitCall) -> None:
        """The caller does not wait for it any longer."""
        with self._lock:
            self._open.pop(call.number, None)

    def done(self, command: cmd.CommitDone) -> None:
        """The machine reports the result of one."""
        with self._lock:
            call = self._open.pop(command.number, None)
        if call is None:
            return
        if call.then is not None:
            call.then(command)
            return
        refused = dict(command.refused)
        if command.error is not None:
            refused = dict.fromkeys(call.offsets.keys() - call.refused.keys(), command.error)
            if not isinstance(command.error, NOT_COMMITTED):
                call.unknown |= refused.keys()
        call.refused.update({tp: _not_written(why) for tp, why in refused.items()})
        call.done.set()

    def end(self) -> None:
        """Wake all waiting callers: an error ended the member.  The machine still answers the other calls."""
        with self._lock:
            calls = [call for call in self._open.values() if call.then is None]
            self._open = {call.number: call for call in self._open.values() if call.then is not None}
        for call in calls:
            call.is_ended = True
            call.done.set()


def _not_written(why: Exception) -> CommitFailure:
    return CommitFailure(
        str(why), KAFKA_NAME, isinstance(why, UsageError), isinstance(why, RebalanceInProgressException)
    )


def commit_results(
    answer: NetworkAnswer,
) -> tuple[dict[TopicPartition, int | None], dict[TopicPartition, KafkaCommitResult]] | None:
    """The offsets of a commit, and the result for each; None: it is not the answer to a commit."""
    sent, event = answer.sent, answer.event
    if sent is None or sent.api_key != OFFSET_COMMIT.key or not isinstance(event, cev.Responded):
        return None
    asked: dict[TopicPartition, int | None] = {
        TopicPartition(topic.name, each.partition_index): each.committed_offset
        for topic in sent.body.topics
        for each in topic.partitions
    }
    written: dict[TopicPartition, KafkaCommitResult] = {}
    for topic in event.body.topics:
        for each in topic.partitions:
            code = error_code(each.error_code)
            outcome = (
                KafkaCommitResult(WriteOutcome.DONE)
                if code == NONE
                else KafkaCommitResult(WriteOutcome.FAILED, str(code))
            )
            written[TopicPartition(topic.name, each.partition_index)] = outcome
    return asked, written
