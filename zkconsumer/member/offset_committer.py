r"""The commits of one member: which offsets are written to which store and when, one commit at a time.

    send --> CommitToZooKeeper (one conditional multi) --> CommitToKafka (what ZooKeeper accepted) --> done
      \----- only Kafka -------------------------------------^

Theory of operation
-------------------

*What starts a commit.*  The interval and a change of the group (``MemberStateMachine._auto_commit``), a call of the
program (``pending_calls``), and a release, if its commit is a write of its own (``PartitionReleaser._settle``).  None
of them starts while another commit is under way.  The interval skips its turn then; the others wait.

*What a commit is decided from.*  From consumed positions and from the known content of the stores
(``PartitionStateMachine.offset_for_zookeeper``).  So an offset that is stored already is not written again, and no
offset is replaced by a smaller one unless the reset policy moved the position back
(``defect_28_a_stored_offset_never_decreases.txt``).

*One at a time.*  The condition of a write is the znode version that the write before it left.  Two commits at once
would send the same version, and the second one would fail.  (The Scala consumer's commits race its rebalances: its
commit thread may write after the partition has moved to another member.)

*Who waits for a commit.*  Its partitions (``in_flight``) are not released, because a release writes the same znodes,
and because the next owner must find the last commit in its store
(``kafka_a_partition_that_is_drained_during_a_commit_is_committed_again.txt``).  The next call of the program waits for
it.  The Kafka part can be abandoned (``abandon_kafka_commit``): an unavailable coordinator must not block the release
of partitions permanently (``kafka_a_release_waits_for_an_earlier_commit_until_its_timeout.txt``).

*Order of the stores.*  ZooKeeper is written first, because its write has conditions (our owner node, the version of the
offset znode, the version of the control znode); what it rejects is not sent to Kafka, whose commit has none
(``kafka_a_dual_commit_writes_zookeeper_first.txt``).  In the other order only the read of the owner nodes immediately
before the request would protect Kafka's offset, and it misses a change during the request
(``kafka_each_request_checks_the_owner_node_first.txt``).

*A lost answer.*  If the answer of ZooKeeper is lost, its partitions have the outcome ``UNKNOWN``.  The next commit has
the known version as its condition again, and reads the znode when that version is outdated.  If the answer of Kafka is
lost, the offset is remembered as possible (``record_unknown_kafka_write``), and no smaller one is committed after it
(``kafka_a_lost_answer_is_never_followed_by_a_smaller_offset.txt``).  An abandoned request is cancelled, but may have
been executed; so it counts as an answer that was lost.

*A pause, and the end of the session.*  ``reset`` ends the commit: no part of it is sent in the next session
(``the_session_expires_during_a_commit.txt``).  Answers that arrive later have an old ticket.  A partition can also be
lost and acquired again within one session while its commit is under way.  The answer then belongs to the ownership
before, and changes neither the state nor the offsets of the new one
(``the_answer_of_a_commit_has_no_effect_on_a_later_ownership.txt``).

*Calls of the program.*  Every call is completed exactly once: by its commit, by its timeout while it waits, or by
``reset``.  A call that has timed out is never executed later: the caller was answered that nothing was written
(``a_commit_whose_caller_has_timed_out_is_not_written.txt``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zkconsumer.member import commands as do
from zkconsumer.member.events import KafkaCommitResult, WriteOutcome
from zkconsumer.member.log_rate_limiter import LoggedReason
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
"""Why nothing was written: the group is migrating, and the commit was decided with an old control znode version.  It is
no error: the next view has the new version, and ``commit_offsets()`` is repeated after 20 ms."""

COMMIT_CALL_EXPIRED = CommitFailure("the commit did not start within the timeout, because others were under way")

COMMITTABLE = (PartitionState.FETCHING, PartitionState.DRAINING, PartitionState.DRAINED)
"""The states with a position.  Before them nothing was consumed, and the stored offset is not known.  After them
(``RELEASING``) the owner node may be deleted already."""


@dataclass(slots=True)
class _CommitInProgress:
    """One commit under way."""

    ticket: int
    """That of both requests.  An answer with another ticket belongs to a commit before."""
    session_id: int
    control_version: int | None
    """The version of the control znode when the commit was decided; checked again before the request to Kafka."""
    attempts: int
    """How many attempts Kafka's channel may make."""
    call: CommitRequested | None
    """The call of the program that this commit completes; None for an automatic one."""
    failures: dict[TopicPartition, CommitFailure]
    """The partitions that were not committed, as far as the answers have arrived; the answer to ``call``."""
    kafka_offsets: dict[TopicPartition, int]
    """To commit to Kafka; only shrinks.  After ``is_sent_to_kafka`` exactly the partitions ``in_flight``."""
    is_sent_to_kafka: bool = False
    """Never False again.  Before, the commit waits for ZooKeeper; after, only for Kafka."""


class OffsetCommitter:
    """At most one commit under way, and the queue of commit calls of the program."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, PartitionStateMachine],
        new_ticket: Callable[[], int],
        stores: OffsetStoreSelection = OffsetStoreSelection.ZOOKEEPER,
    ) -> None:
        self.in_flight: dict[TopicPartition, tuple[PartitionStateMachine, int]] = {}
        """Partition that is being committed -> its ownership, and the reset count when that was decided.  The ownership
        may have ended since; the answer is recorded there nevertheless, and never in the one that followed."""
        self.pending_calls: list[CommitRequested] = []
        """The calls whose commit has not started, in their order; a call that has started is in ``_round``."""
        self._partitions = partitions
        """The member's table; read only, but for what the machines record of answers."""
        self._new_ticket = new_ticket
        """Tickets grow over all requests of the member, so a late answer never has the ticket of a later request."""
        self._stores = stores
        self._round: _CommitInProgress | None = None
        """The commit under way; None exactly when ``in_flight`` is empty."""
        self._is_rewound_logged = False
        """Logged once for a process; the counter shows the others."""
        self._logged_kafka_failure = LoggedReason()
        """Cleared by a commit that succeeds completely."""

    @property
    def is_in_progress(self) -> bool:
        """Whether a commit is under way."""
        assert (self._round is None) == (not self.in_flight), "a partition in flight belongs to a commit"
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

        ``attempts``: the total number of attempts for Kafka.  Precondition: no commit is under way.  Without anything
        to write the call is completed at once.  A partition whose position is stored already is neither written nor
        refused, also in the middle of its release: the program's offset is safe.
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
            if (to_znode, to_kafka) != (None, None) and held.state not in COMMITTABLE:
                refused[tp] = NOT_OWNER
                continue
            if to_znode is not None:
                offsets[tp] = do.OffsetToCommit(to_znode, held.stored, held.was_reset_since_write)
            if to_kafka is not None:
                for_kafka[tp] = to_kafka
        if not offsets and not for_kafka:
            return [] if call is None else [do.CompleteCommit(call.call_id, refused)]
        now = self._round = _CommitInProgress(
            self._new_ticket(), session_id, control_version, attempts, call, refused, for_kafka
        )
        committed = {tp: self._partitions[tp] for tp in (*offsets, *for_kafka)}
        assert not committed.keys() & refused.keys(), "a refused partition is not written"
        self.in_flight = {tp: (held, held.reset_count) for tp, held in committed.items()}
        if offsets:
            return [do.CommitToZooKeeper(now.ticket, session_id, offsets, control_version)]
        return self._send_to_kafka(now)

    def expire_calls(self, now_ms: int) -> list[Command]:
        """Complete the calls whose timeout has expired; nothing is written for them."""
        late = [call for call in self.pending_calls if call.until_ms is not None and call.until_ms <= now_ms]
        self.pending_calls = [call for call in self.pending_calls if call not in late]
        return [do.CompleteCommit(call.call_id, dict.fromkeys(call.positions, COMMIT_CALL_EXPIRED)) for call in late]

    def on_zookeeper_result(self, event: CommitToZooKeeperCompleted) -> tuple[list[Command], list[TopicPartition]]:
        """Process ZooKeeper's answer; return the commands, and the partitions that this member does not own.

        The caller drops these partitions.  Without Kafka, or when ZooKeeper accepted none for it, the commit is done.
        A larger offset that ZooKeeper kept counts as done: Kafka gets ours, and the larger one of both is read.
        """
        now = self._round
        if now is None or now.is_sent_to_kafka or event.ticket != now.ticket:
            return [], []
        assert event.results.keys() <= self.in_flight.keys(), "an answer names what was requested"
        out: list[Command] = []
        lost: list[TopicPartition] = []
        put_off: list[TopicPartition] = []
        done = 0
        for tp, written in sorted(event.results.items()):
            held, resets = self.in_flight[tp]
            out += self.report_rewound(tp, written)
            if written.outcome is WriteOutcome.DONE:
                done += 1
                held.record_zookeeper_write(written.stored, resets)
                continue
            now.kafka_offsets.pop(tp, None)
            store = ZOOKEEPER_NAME if self._stores.uses_kafka else ""
            now.failures[tp] = CommitFailure(written.why, store, is_transient=written.why == CONTROL_CHANGED)
            if written.outcome is WriteOutcome.NOT_OWNER:
                lost += [tp] if self._partitions.get(tp) is held else []
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
        """Process Kafka's answer; return the same as ``on_zookeeper_result``.

        A partition that the answer lacks counts as unknown: the coordinator may have stored its offset.  So does one
        with REQUEST_TIMED_OUT or COORDINATOR_NOT_AVAILABLE: a coordinator returns them also when the commit is in its
        log and the other replicas did not follow in time.
        """
        now = self._round
        if now is None or not now.is_sent_to_kafka or event.ticket != now.ticket:
            return [], []
        assert self.in_flight.keys() == now.kafka_offsets.keys(), "only these partitions wait for Kafka"
        out: list[Command] = []
        lost: list[TopicPartition] = []
        failed: dict[TopicPartition, KafkaCommitResult] = {}
        silent = KafkaCommitResult(WriteOutcome.UNKNOWN, "the coordinator did not answer for it")
        for tp, offset in now.kafka_offsets.items():
            (held, resets), written = self.in_flight[tp], event.results.get(tp, silent)
            if written.outcome is WriteOutcome.DONE:
                held.record_kafka_write(offset, resets)
                continue
            if written.outcome is WriteOutcome.UNKNOWN:
                held.record_unknown_kafka_write(offset, resets)
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
        """Stop waiting for Kafka; if the request was not sent yet, do not send it.

        Before the request the commit stays under way, because ZooKeeper's answer is still expected.
        """
        now = self._round
        if now is None:
            return []
        out: list[Command] = []
        if now.kafka_offsets:
            out.append(do.IncrementCounter("kafka_commits_failed", len(now.kafka_offsets)))
        for tp, offset in now.kafka_offsets.items():
            now.failures[tp] = CommitFailure(why, KAFKA_NAME)
            if now.is_sent_to_kafka:
                held, resets = self.in_flight[tp]
                held.record_unknown_kafka_write(offset, resets)
        now.kafka_offsets.clear()
        return [*out, do.CancelKafkaRequest(now.ticket), *self._finish(now)] if now.is_sent_to_kafka else out

    def on_ownership_lost(self, partitions: Collection[TopicPartition]) -> list[Command]:
        """These partitions were lost: their offsets must not be committed to Kafka any more.

        A request that was sent is abandoned as a whole: the channel may still retry it, after the next owner has
        committed.  Other offsets of it are committed with the next commit.  ZooKeeper needs no such step, as its write
        checks the owner node.
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
        """Count, and log once, that a client which does not own the partition had written a smaller offset.

        Used for commits and releases.  The program's hook gets the partition and both offsets.
        """
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

    def _send_to_kafka(self, now: _CommitInProgress) -> list[Command]:
        """Send what ZooKeeper accepted; partitions without an offset for Kafka can be released from now on."""
        assert now.kafka_offsets, "a request without offsets would be waited for"
        assert not now.is_sent_to_kafka, "one request for each commit"
        now.is_sent_to_kafka = True
        self.in_flight = {tp: self.in_flight[tp] for tp in now.kafka_offsets}
        return [
            do.CommitToKafka(now.ticket, now.session_id, dict(now.kafka_offsets), now.attempts, now.control_version)
        ]

    def _finish(self, now: _CommitInProgress) -> list[Command]:
        assert self._round is now, "a commit finishes once, so its call is completed once"
        self._round, self.in_flight = None, {}
        return [] if now.call is None else [do.CompleteCommit(now.call.call_id, now.failures)]

    def _log_kafka_failures(self, failed: Mapping[TopicPartition, KafkaCommitResult]) -> list[Command]:
        """Log why Kafka rejected offsets: once for each reason, until a commit succeeds completely.

        An unavailable coordinator rejects the commit of each interval, and every rejection has other numbers in its
        text.
        """
        if not failed:
            self._logged_kafka_failure.clear()
            return []
        first, written = next(iter(failed.items()))
        # While a coordinator group has members, the code is REBALANCE_IN_PROGRESS or, after SyncGroup, another one.
        reason = "a coordinator group with members" if written.is_coordinator_group_active else written.why
        if not self._logged_kafka_failure.is_new(reason):
            return []
        words = f"partitions={len(failed)} first={first} reason={written.why!r}"
        if self._stores.uses_zookeeper:
            words += ": ZooKeeper has the offsets"
        if written.is_coordinator_group_active:
            return [do.LogEvent("ERROR", "coordinator-group-active", words)]
        return [do.LogEvent("ERROR", "kafka-commit-failed", words)]
