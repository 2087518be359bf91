r"""The commits of one member: what is written where and when, one commit at a time.

    send --> Commit (one conditional multi) --> CommitToKafka (what ZooKeeper took) --> done
      \----- Kafka alone ----------------------^

A commit is decided from consumed positions and from what the stores are known to hold.  While one is under way its
partitions are not released (``in_flight``), because a release writes the same znodes, and because whoever takes a
partition over must find the last commit in its store.  Kafka's part can be given up (``abandon_kafka_commit``): a
coordinator that is away must not hold partitions for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zkconsumer.member import commands as do
from zkconsumer.member.events import KafkaCommitResult, WriteOutcome
from zkconsumer.member.offset_stores import KAFKA_NAME, ZOOKEEPER_NAME, CommitFailure, OffsetStoreSelection
from zkconsumer.member.partition_state_machine import PartitionState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from zkconsumer.member.commands import Command
    from zkconsumer.member.events import (
        CommitRequested,
        CommitToKafkaCompleted,
        CommitToZooKeeperCompleted,
        ZooKeeperWriteResult,
    )
    from zkconsumer.member.partition_state_machine import PartitionStateMachine
    from zkconsumer.types import TopicPartition

NOT_OWNER = CommitFailure("this member does not own the partition (any more)")
CONTROL_CHANGED = "the control znode of the group changed"
"""Why nothing was written: the group moves, and what was decided by the znode of before is not carried out."""

COMMIT_CALL_EXPIRED = CommitFailure("its turn did not come in time")
COMMITTABLE = (PartitionState.FETCHING, PartitionState.DRAINING, PartitionState.DRAINED)


@dataclass(slots=True)
class _CommitInProgress:
    """One commit under way.  ``for_kafka`` is what Kafka is to be told; ``in_kafka`` says that it is being told now."""

    ticket: int
    session_id: int
    control_version: int | None
    attempts: int
    call: CommitRequested | None
    failures: dict[TopicPartition, CommitFailure]
    kafka_offsets: dict[TopicPartition, int]
    is_sent_to_kafka: bool = False
    reset_counts: dict[TopicPartition, int] = field(default_factory=dict)


class OffsetCommitter:
    """At most one commit under way, and the calls that wait for theirs."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, PartitionStateMachine],
        new_ticket: Callable[[], int],
        stores: OffsetStoreSelection = OffsetStoreSelection.ZOOKEEPER,
    ) -> None:
        self.in_flight: dict[TopicPartition, int] = {}
        """What is being written -> how often it had been reset when that was decided."""
        self.pending_calls: list[CommitRequested] = []
        self._partitions = partitions
        self._new_ticket = new_ticket
        self._stores = stores
        self._round: _CommitInProgress | None = None
        self._is_rewound_logged = False
        self._logged_kafka_failure = ""

    @property
    def is_in_progress(self) -> bool:
        """Whether a commit is under way."""
        return self._round is not None

    @property
    def is_waiting_for_kafka(self) -> bool:
        """Whether it is Kafka that a commit waits for."""
        return self._round is not None and self._round.is_sent_to_kafka

    def send(
        self,
        positions: Mapping[TopicPartition, int],
        session_id: int,
        control_version: int | None,
        call: CommitRequested | None = None,
        *,
        repeats: bool = True,
        attempts: int = 1,
    ) -> list[Command]:
        """Write what is new in these consumed positions; to Kafka, with ``repeats``, also what is not.

        ``attempts``: how often Kafka may be asked in all.
        """
        assert self._round is None, "one commit at a time: the next one needs the versions that this one makes"
        refused: dict[TopicPartition, CommitFailure] = {}
        offsets: dict[TopicPartition, do.OffsetToCommit] = {}
        for_kafka: dict[TopicPartition, int] = {}
        for tp, position in sorted(positions.items()):
            held = self._partitions.get(tp)
            if held is None or not held.is_owned:
                refused[tp] = NOT_OWNER
                continue
            to_znode = held.offset_for_zookeeper(position) if self._stores.uses_zookeeper else None
            to_kafka = held.offset_for_kafka(position, repeats=repeats) if self._stores.uses_kafka else None
            if to_znode is None and to_kafka is None:
                continue
            if held.state not in COMMITTABLE:
                refused[tp] = NOT_OWNER
                continue
            if to_znode is not None:
                offsets[tp] = do.OffsetToCommit(to_znode, held.stored, held.thread)
            if to_kafka is not None:
                for_kafka[tp] = to_kafka
        if not offsets and not for_kafka:
            return [] if call is None else [do.CompleteCommit(call.call_id, refused)]
        self._round = _CommitInProgress(
            self._new_ticket(), session_id, control_version, attempts, call, refused, for_kafka
        )
        self.in_flight = {tp: self._partitions[tp].reset_count for tp in (*offsets, *for_kafka)}
        if offsets:
            return [do.CommitToZooKeeper(self._round.ticket, session_id, offsets, control_version)]
        return self._send_to_kafka(self._round)

    def expire_calls(self, now_ms: int) -> list[Command]:
        """Forget the calls whose callers do not wait any longer: they were told that nothing was written."""
        late = [call for call in self.pending_calls if call.until_ms is not None and call.until_ms <= now_ms]
        self.pending_calls = [call for call in self.pending_calls if call not in late]
        return [do.CompleteCommit(call.call_id, dict.fromkeys(call.positions, COMMIT_CALL_EXPIRED)) for call in late]

    def on_zookeeper_result(self, event: CommitToZooKeeperCompleted) -> tuple[list[Command], list[TopicPartition]]:
        """Take ZooKeeper's answer in; gives back the commands, and the partitions that turned out not to be ours."""
        now = self._round
        if now is None or now.is_sent_to_kafka or event.ticket != now.ticket:
            return [], []
        out: list[Command] = []
        lost: list[TopicPartition] = []
        put_off: list[TopicPartition] = []
        done = 0
        for tp, written in sorted(event.results.items()):
            out += self.report_rewound(tp, written)
            held = self._partitions.get(tp)
            if written.outcome is WriteOutcome.DONE:
                done += 1
                if held is not None:
                    held.record_zookeeper_write(written.stored, self.in_flight[tp])
                continue
            now.kafka_offsets.pop(tp, None)
            now.failures[tp] = self._zookeeper_failure(written.why)
            if written.outcome is WriteOutcome.NOT_OWNER:
                lost.append(tp)
            elif written.why == CONTROL_CHANGED:
                put_off.append(tp)
            elif written.outcome is WriteOutcome.FAILED:
                out.append(do.LogEvent("ERROR", "commit-failed", f"partition={tp} reason={written.why!r}"))
        if put_off:
            words = f"partitions={len(put_off)} first={put_off[0]}: the group moves; the next commit has them"
            out.append(do.LogEvent("INFO", "commit-deferred", words))
        counted = (("commits", done), ("commits_failed", len(event.results) - done))
        out += [do.IncrementCounter(name, by) for name, by in counted if by]
        return [*out, *(self._send_to_kafka(now) if now.kafka_offsets else self._finish(now))], lost

    def on_kafka_result(self, event: CommitToKafkaCompleted) -> tuple[list[Command], list[TopicPartition]]:
        """The same of Kafka's answer."""
        now = self._round
        if now is None or not now.is_sent_to_kafka or event.ticket != now.ticket:
            return [], []
        out: list[Command] = []
        lost: list[TopicPartition] = []
        failed: dict[TopicPartition, KafkaCommitResult] = {}
        for tp, offset in now.kafka_offsets.items():
            written = event.results.get(
                tp, KafkaCommitResult(WriteOutcome.UNKNOWN, "the coordinator did not answer for it")
            )
            held = self._partitions.get(tp)
            if written.outcome is WriteOutcome.DONE:
                if held is not None:
                    held.record_kafka_write(offset, self.in_flight[tp])
                continue
            if written.outcome is WriteOutcome.UNKNOWN:
                self._record_unknown_kafka_write(tp, offset)
            now.failures[tp] = CommitFailure(
                written.why, KAFKA_NAME, written.is_permanent, written.why == CONTROL_CHANGED
            )
            if written.outcome is WriteOutcome.NOT_OWNER:
                lost.append(tp)
            else:
                failed[tp] = written
        out += self._log_kafka_failures(failed)
        not_done = len(lost) + len(failed)
        counted = (("kafka_commits", len(now.kafka_offsets) - not_done), ("kafka_commits_failed", not_done))
        out += [do.IncrementCounter(name, by) for name, by in counted if by]
        return [*out, *self._finish(now)], lost

    def abandon_kafka_commit(self, why: str) -> list[Command]:
        """Do not wait for Kafka any longer, and if it was not asked yet, do not ask it."""
        now = self._round
        if now is None:
            return []
        now.failures |= {tp: CommitFailure(why, KAFKA_NAME) for tp in now.kafka_offsets}
        out: list[Command] = (
            [do.IncrementCounter("kafka_commits_failed", len(now.kafka_offsets))] if now.kafka_offsets else []
        )
        if now.is_sent_to_kafka:
            for tp, offset in now.kafka_offsets.items():
                self._record_unknown_kafka_write(tp, offset)
        now.kafka_offsets.clear()
        return [*out, do.CancelKafkaRequest(now.ticket), *self._finish(now)] if now.is_sent_to_kafka else out

    def on_ownership_lost(self, partitions: Collection[TopicPartition]) -> list[Command]:
        """These are not ours any more: Kafka must not be told their offsets later, when they may be ours anew.

        What else Kafka was to be told in the same breath is told with the next commit.
        """
        now = self._round
        mine = [] if now is None else [tp for tp in partitions if tp in now.kafka_offsets]
        if now is None or not mine:
            return []
        if now.is_sent_to_kafka:
            return self.abandon_kafka_commit(f"{mine[0]} was lost while Kafka was to be told")
        for tp in mine:
            now.failures[tp] = NOT_OWNER
            del now.kafka_offsets[tp]
        return []

    def reset(self, why: str) -> list[Command]:
        """The session is gone: nothing of this may be written any more, and whoever waits is told."""
        now, self._round, self.in_flight = self._round, None, {}
        calls = self.pending_calls if now is None or now.call is None else [now.call, *self.pending_calls]
        self.pending_calls = []
        out: list[Command] = [] if now is None or not now.is_sent_to_kafka else [do.CancelKafkaRequest(now.ticket)]
        refused = CommitFailure(why)
        return [*out, *(do.CompleteCommit(call.call_id, dict.fromkeys(call.positions, refused)) for call in calls)]

    def report_rewound(self, tp: TopicPartition, written: ZooKeeperWriteResult) -> list[Command]:
        """Count, and say once, that somebody who is not the owner had written a smaller offset."""
        if written.rewound_from is None:
            return []
        out: list[Command] = [do.IncrementCounter("offsets_rewritten")]
        if not self._is_rewound_logged:
            self._is_rewound_logged = True
            words = (
                f"partition={tp} found={written.rewound_from} written_again={written.stored.offset}: somebody who does "
                "not own the partition wrote it (an original member that was paused does so when it wakes)"
            )
            about = (tp, written.rewound_from, written.stored.offset)
            out.append(do.LogEvent("WARNING", "offset-rewound", words, about))
        return out

    def _zookeeper_failure(self, why: str) -> CommitFailure:
        return CommitFailure(
            why, ZOOKEEPER_NAME if self._stores.uses_kafka else "", is_transient=why == CONTROL_CHANGED
        )

    def _send_to_kafka(self, now: _CommitInProgress) -> list[Command]:
        now.is_sent_to_kafka = True
        self.in_flight = {tp: self.in_flight[tp] for tp in now.kafka_offsets}
        return [
            do.CommitToKafka(now.ticket, now.session_id, dict(now.kafka_offsets), now.attempts, now.control_version)
        ]

    def _record_unknown_kafka_write(self, tp: TopicPartition, offset: int) -> None:
        held = self._partitions.get(tp)
        if held is not None:
            held.record_unknown_kafka_write(offset, self.in_flight[tp])

    def _finish(self, now: _CommitInProgress) -> list[Command]:
        self._round, self.in_flight = None, {}
        return [] if now.call is None else [do.CompleteCommit(now.call.call_id, now.failures)]

    def _log_kafka_failures(self, failed: Mapping[TopicPartition, KafkaCommitResult]) -> list[Command]:
        """Say why Kafka did not take offsets; once a reason, until it took everything again."""
        if not failed:
            self._logged_kafka_failure = ""
            return []
        first, written = next(iter(failed.items()))
        # A coordinator has several codes for a modern group: REBALANCE_IN_PROGRESS before SyncGroup, others after it.
        text = "a modern group" if written.is_coordinator_group_active else written.why
        reason = "".join(char for char in text if not char.isdigit())
        if reason == self._logged_kafka_failure:
            return []
        self._logged_kafka_failure = reason
        words = f"partitions={len(failed)} first={first} reason={written.why!r}"
        if self._stores.uses_zookeeper:
            words += ": ZooKeeper has the offsets"
        if written.is_coordinator_group_active:
            return [do.LogEvent("ERROR", "coordinator-group-active", words)]
        return [do.LogEvent("ERROR", "kafka-commit-failed", words)]
