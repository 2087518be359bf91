r"""The commits of one member: which offsets are written to which store and when, one commit at a time.

    send --> CommitToZooKeeper (one conditional multi) --> CommitToKafka (what ZooKeeper accepted) --> done
      \----- only Kafka -------------------------------------^

A commit is decided from consumed positions and from the known content of the stores.  While one is under way, its
partitions (``in_flight``) are not released, because a release writes the same znodes, and because the next owner must
find the last commit in its store.  The Kafka part can be abandoned (``abandon_kafka_commit``): an unavailable
coordinator must not block the release of partitions permanently.

ZooKeeper is written first, because its write has conditions (our owner node, the version of the offset znode, the
version of the control znode); what it rejects is not sent to Kafka, whose commit has none
(``kafka_the_owner_node_is_looked_at_before_each_request.txt``).

If the answer of ZooKeeper is lost, its partitions have the outcome ``UNKNOWN``.  The next commit has the known
version as its condition again, and reads the znode when that version is outdated.  If the answer of Kafka is lost,
the offset is remembered as possible (``record_unknown_kafka_write``), and no smaller one is committed after it.  An
abandoned request is cancelled, but may have been executed; so it counts as an answer that was lost.

Every call of the program is completed exactly once: by its commit, by its timeout while it waits, or by ``reset``.
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
"""Why nothing was written: the group is migrating, and the commit was decided with an old control znode version."""

COMMIT_CALL_EXPIRED = CommitFailure("the commit did not start within the timeout, because others were under way")
COMMITTABLE = (PartitionState.FETCHING, PartitionState.DRAINING, PartitionState.DRAINED)


@dataclass(slots=True)
class _CommitInProgress:
    """One commit under way.

    ``kafka_offsets``: to commit to Kafka; only shrinks.  ``is_sent_to_kafka``: that request was sent; before, the
    commit waits for ZooKeeper.  ``failures``: the partitions that were not committed, as far as the answers have
    arrived; the answer to ``call``.
    """

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
    """At most one commit under way, and the queue of commit calls of the program."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, PartitionStateMachine],
        new_ticket: Callable[[], int],
        stores: OffsetStoreSelection = OffsetStoreSelection.ZOOKEEPER,
    ) -> None:
        self.in_flight: dict[TopicPartition, int] = {}
        """Partition that is being committed -> its reset count when that was decided."""
        self.pending_calls: list[CommitRequested] = []
        """The calls whose commit has not started, in their order; a call that has started is in ``_round``."""
        self._partitions = partitions
        self._new_ticket = new_ticket
        self._stores = stores
        self._round: _CommitInProgress | None = None
        """The commit under way; None exactly when ``in_flight`` is empty."""
        self._is_rewound_logged = False
        """Logged once for a process; the counter shows the others."""
        self._logged_kafka_failure = ""
        """The reason, without digits, that was logged last; "" since the last commit that succeeded completely."""

    @property
    def is_in_progress(self) -> bool:
        """Whether a commit is under way."""
        assert self._round is not None or not self.in_flight, "a partition in flight belongs to a commit"
        return self._round is not None

    @property
    def is_waiting_for_kafka(self) -> bool:
        """Whether the commit under way waits for Kafka."""
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
        """Commit the changed positions among these; with ``repeats`` also the unchanged ones to Kafka.

        ``attempts``: the total number of attempts for Kafka.
        """
        assert self._round is None, "one commit at a time: the next one needs the znode versions of this one"
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
                offsets[tp] = do.OffsetToCommit(to_znode, held.stored)
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
        """Complete the calls whose timeout has expired; nothing is written for them."""
        late = [call for call in self.pending_calls if call.until_ms is not None and call.until_ms <= now_ms]
        self.pending_calls = [call for call in self.pending_calls if call not in late]
        return [do.CompleteCommit(call.call_id, dict.fromkeys(call.positions, COMMIT_CALL_EXPIRED)) for call in late]

    def on_zookeeper_result(self, event: CommitToZooKeeperCompleted) -> tuple[list[Command], list[TopicPartition]]:
        """Process ZooKeeper's answer; return the commands, and the partitions that this member does not own."""
        now = self._round
        if now is None or now.is_sent_to_kafka or event.ticket != now.ticket:
            return [], []
        assert event.results.keys() <= self.in_flight.keys(), "an answer names what was requested"
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
            words = f"partitions={len(put_off)} first={put_off[0]}: the group is migrating; committed next time"
            out.append(do.LogEvent("INFO", "commit-deferred", words))
        counted = (("commits", done), ("commits_failed", len(event.results) - done))
        out += [do.IncrementCounter(name, by) for name, by in counted if by]
        return [*out, *(self._send_to_kafka(now) if now.kafka_offsets else self._finish(now))], lost

    def on_kafka_result(self, event: CommitToKafkaCompleted) -> tuple[list[Command], list[TopicPartition]]:
        """Process Kafka's answer; return the same as ``on_zookeeper_result``."""
        now = self._round
        if now is None or not now.is_sent_to_kafka or event.ticket != now.ticket:
            return [], []
        assert self.in_flight.keys() == now.kafka_offsets.keys(), "only these partitions wait for Kafka"
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
        """Stop waiting for Kafka; if the request was not sent yet, do not send it."""
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
        """These partitions were lost: their offsets must not be committed to Kafka any more.

        Other offsets of an abandoned request are committed with the next commit.
        """
        now = self._round
        mine = [] if now is None else [tp for tp in partitions if tp in now.kafka_offsets]
        if now is None or not mine:
            return []
        if now.is_sent_to_kafka:
            return self.abandon_kafka_commit(f"{mine[0]} was lost during the commit to Kafka")
        for tp in mine:
            now.failures[tp] = NOT_OWNER
            del now.kafka_offsets[tp]
        return []

    def reset(self, why: str) -> list[Command]:
        """The session ended: write nothing more, and complete all waiting calls with this reason."""
        now, self._round, self.in_flight = self._round, None, {}
        calls = self.pending_calls if now is None or now.call is None else [now.call, *self.pending_calls]
        self.pending_calls = []
        out: list[Command] = [] if now is None or not now.is_sent_to_kafka else [do.CancelKafkaRequest(now.ticket)]
        refused = CommitFailure(why)
        return [*out, *(do.CompleteCommit(call.call_id, dict.fromkeys(call.positions, refused)) for call in calls)]

    def report_rewound(self, tp: TopicPartition, written: ZooKeeperWriteResult) -> list[Command]:
        """Count, and log once, that a client which does not own the partition had written a smaller offset."""
        if written.rewound_from is None:
            return []
        out: list[Command] = [do.IncrementCounter("offsets_rewritten")]
        if not self._is_rewound_logged:
            self._is_rewound_logged = True
            words = (
                f"partition={tp} found={written.rewound_from} written_again={written.stored.offset}: a client that "
                "does not own the partition wrote it (a Scala consumer does so when it resumes after a pause)"
            )
            about = (tp, written.rewound_from, written.stored.offset)
            out.append(do.LogEvent("WARNING", "offset-rewound", words, about))
        return out

    def _zookeeper_failure(self, why: str) -> CommitFailure:
        return CommitFailure(
            why, ZOOKEEPER_NAME if self._stores.uses_kafka else "", is_transient=why == CONTROL_CHANGED
        )

    def _send_to_kafka(self, now: _CommitInProgress) -> list[Command]:
        assert now.kafka_offsets, "a request without offsets would be waited for"
        assert not now.is_sent_to_kafka, "one request for each commit"
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
        assert self._round is now, "a commit finishes once, so its call is completed once"
        self._round, self.in_flight = None, {}
        return [] if now.call is None else [do.CompleteCommit(now.call.call_id, now.failures)]

    def _log_kafka_failures(self, failed: Mapping[TopicPartition, KafkaCommitResult]) -> list[Command]:
        """Log why Kafka rejected offsets: once for each reason, until a commit succeeds completely."""
        if not failed:
            self._logged_kafka_failure = ""
            return []
        first, written = next(iter(failed.items()))
        # While a coordinator group has members, the code is REBALANCE_IN_PROGRESS or, after SyncGroup, another one.
        text = "a coordinator group with members" if written.is_coordinator_group_active else written.why
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
