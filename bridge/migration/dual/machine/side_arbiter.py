"""Arbitrates between a migrating member's two memberships.  Pure.

Only the active one (see ``phase_rules``) controls the partitions and receives their events.  The passive one is
answered at once, as if no partition ran; ``migrating_partitions`` has what each side owns, and what the processor does
with it.

Theory of operation.  While the ZooKeeper side is active:

    Drain of the ZooKeeper side   processor drains -> (automatic commits, Kafka first) the position is written to Kafka,
                                  or an earlier write of the partition ends -> ``drained`` -> the side commits, and
                                  deletes the owner node
    Drain of the coordinator side processor drains at once; ``drained`` only when the ZooKeeper side has deleted the
                                  owner node, because the next owner in the group needs it
    automatic commit              processor reports positions -> (Kafka first) one write to Kafka -> the ZooKeeper side
                                  receives the positions that Kafka accepted

While the coordinator side is active it is answered when the processor is, and nothing is written to Kafka here.

Order: a position is written to Kafka before the ZooKeeper side releases the partition.  Otherwise the write races the
commit of the next owner (transcript ``a_release_writes_to_kafka_before_zookeeper``); and no release passes an earlier
write of the same partition (transcript ``a_release_waits_for_a_write_in_progress``).

Each write to Kafka gets one answer in any case; the connector answers "nothing accepted" when the coordinator side
has failed.  So no side waits longer than that, or than its own drain timeout (``ForceDrain``).  When the active side
changes, all waits for the passive side end at once.

Which component waits for which, and what ends the wait:

    ZooKeeper side    waits for ``drained``: the program acknowledges its record, then Kafka answers; or ``ForceDrain``
    coordinator side  waits for ``drained``: the ZooKeeper side deletes the owner node (``DropPartitions``), or the
                      active side changes; or ``ForceDrain``.  The group waits in its rebalance for it.
    the tool          waits for the acknowledgement (``migrating_member``), and with it for the missing writes

What is lost when an answer is lost.  A write to Kafka whose answer is "nothing accepted" may have reached Kafka all the
same.  Then Kafka has a larger offset than ``StorePositions``; the next commit of the partition replaces it.  ZooKeeper
does not get the position, so records are read again, and none is skipped.

What a pause does.  The two sides have sessions of their own, and each reports the end of its own session as
``DropPartitions``.  Answers that arrive after it belong to an earlier ownership: they end no wait, and they say nothing
about the stores, because another member may have written since (``KafkaWrite.lost``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from bridge.migration.dual.machine import machine_messages as val
from bridge.migration.dual.machine.acknowledgement import NO_GENERATION
from bridge.migration.dual.machine.migrating_partitions import (
    UNKNOWN_POSITION,
    KafkaWaitEnded,
    KafkaWriteAwaited,
    MigratingPartition,
    MigratingPartitions,
    ProcessingState,
    start_of_partition,
)
from bridge.migration.dual.machine.phase_rules import (
    PHASE_RULES,
    CommitOrder,
    MemberPhase,
    MembershipSide,
    PhaseRules,
    ZooKeeperAssignment,
)
from bridge.migration.dual.machine.store_positions import StorePositions
from zkconsumer.member import ownership
from zkconsumer.member.offset_stores import OffsetSource

if TYPE_CHECKING:
    from bridge.migration.dual.machine.machine_messages import MigratingMemberCommand
    from zkconsumer.types import TopicPartition

ZOOKEEPER, COORDINATOR = MembershipSide.ZOOKEEPER, MembershipSide.COORDINATOR


class WritePurpose(Enum):
    """Why the member writes offsets to Kafka while the ZooKeeper side is active."""

    DRAIN = "drain"
    """A release waits for it (Kafka first): the only urgent write, which is repeated while the group rebalances."""
    COLLECTION = "collection"
    """An automatic commit (Kafka first)."""
    SYNC = "sync"
    """Kafka lacks offsets of ZooKeeper."""


@dataclass(frozen=True, slots=True)
class KafkaWrite:
    """One write in flight.  ``collected``: the positions that the ZooKeeper side receives when a COLLECTION ends.

    ``lost``: partitions that were dropped since; the answer is not about their present ownership.
    """

    offsets: Mapping[TopicPartition, int]
    purpose: WritePurpose
    collected: Mapping[TopicPartition, int] = field(default_factory=dict)
    lost: set[TopicPartition] = field(default_factory=set)


class SideArbiter:
    """Everything except the phases, which ``MigratingMember`` handles.

    Invariant: the processor has only partitions of the active side.  While the ZooKeeper side is active each of them
    is owned; while the coordinator side is active each is assigned, or is being drained for it.
    """

    def __init__(self, *, commits_by_itself: bool) -> None:
        self._auto_commit = commits_by_itself
        """Whether the position of a drained partition is committed.  Without it only the program decides what is
        consumed, in both stores."""
        self.member_phase = MemberPhase.ZOOKEEPER_ONLY
        """The phase that this member follows; only a new control znode changes it."""
        self.generation = NO_GENERATION
        """The generation of the coordinator side; -1 while it is in none."""
        self.partitions = MigratingPartitions(self._emit)
        """What each side has, and what the processor does with it.  Its changes emit the processor's commands."""
        self.positions = StorePositions()
        """What each store has of the partitions, as this member read or wrote it."""
        self._collecting: deque[MembershipSide] = deque()
        """The sides for which the processor was asked for positions, in the order of its answers: it answers each
        ``CollectPositions`` once, in order.  A side keeps its entry when it becomes passive."""
        self._writes: dict[int, KafkaWrite] = {}
        """The writes to Kafka without an answer: number -> write.  At most one COLLECTION and at most one SYNC: the
        coordinator side makes one commit at a time, so more of them would queue up there, and a rebalance of the group
        waits for the last one (``test_a_rebalance_waits_for_the_one_commit_that_is_under_way``).  A DRAIN for each
        report of the processor that has partitions to commit."""
        self._last_write_number = 0
        """Numbers begin with 1 and are never used twice, so 0 is no write."""
        self._collects_again = False
        """Whether positions were collected during a COLLECTION: they are collected again after it.  False without a
        COLLECTION in flight."""
        self._commits: dict[int, tuple[CommitOrder, frozenset[TopicPartition]]] = {}
        """The commits of the program that run: call number -> order and partitions.  A commit keeps the order of its
        start, so a phase with another order is not acknowledged before it has ended (transcript
        ``a_phase_is_acknowledged_after_the_commits_of_the_previous_phase``)."""
        self._sent_assignment: tuple[ZooKeeperAssignment, dict[TopicPartition, str]] = ZooKeeperAssignment.COMPUTED, {}
        """The assignment that the ZooKeeper side received last; the same one is not sent twice, because each starts a
        rebalance there.  Without a migration that side computes its assignment, and needs no message."""
        self._emitted: list[MigratingMemberCommand] = []
        """The commands of the present event, in their order; empty between two events."""

    @property
    def rules(self) -> PhaseRules:
        """The rules of the present phase."""
        return PHASE_RULES[self.member_phase]

    def _send_assignment(self) -> None:
        """Send its assignment to the ZooKeeper side, if it is another one than before.

        A partition is announced as new once for each assignment of the coordinator side: the ZooKeeper side reads a new
        partition from its beginning, and one that moves back to this member later is not new.
        """
        source = self.rules.zookeeper_assignment
        threads = self.partitions.assigned if source is ZooKeeperAssignment.FROM_COORDINATOR else {}
        if (source, threads) == self._sent_assignment:
            return
        self._sent_assignment = source, threads
        new = {tp for tp in threads if self.partitions[tp].is_new and not self.partitions[tp].is_announced_new}
        for tp in new:
            self.partitions[tp].is_announced_new = True
        self._emit(
            val.SetZooKeeperAssignment(None if source is ZooKeeperAssignment.COMPUTED else threads, frozenset(new))
        )

    @property
    def _assigns_from_coordinator(self) -> bool:
        """Whether the ZooKeeper side takes its assignment from the coordinator side."""
        return self.rules.zookeeper_assignment is ZooKeeperAssignment.FROM_COORDINATOR

    # --- commands of the ZooKeeper side ----------------------------------------------------------------------------

    def _zookeeper_commanded(self, command: ownership.PartitionCommand) -> None:
        """The ZooKeeper side commands its processor.

        Active: the command is executed.  Passive: the side gets the answers of a processor that has no partition, and a
        start is kept for the moment in which the side becomes active (``deferred_start``).  A collection of the passive
        side gets no answer: that side waits for one only before a rebalance, and for a limited time
        (``zkconsumer.member.commit_on_change``).
        """
        is_active = self.rules.active_side is ZOOKEEPER
        match command:
            case ownership.StartFetching(positions):
                for tp in positions:
                    self.partitions[tp].is_owned = True
                    if not is_active:
                        self.partitions[tp].deferred_start = start_of_partition(command, tp)
                if is_active:
                    self.partitions.start(command)
            case ownership.Drain(partitions) if is_active:
                running = [tp for tp in partitions if self.partitions.is_running(tp)]
                for tp in running:
                    self.partitions[tp].waiting_sides.add(ZOOKEEPER)
                self.partitions.drain(running)
                self._answer_drained(running)
                self._send_drained(ZOOKEEPER, dict.fromkeys(set(partitions) - set(running), UNKNOWN_POSITION))
            case ownership.Drain(partitions):
                self._send_drained(ZOOKEEPER, dict.fromkeys(partitions, UNKNOWN_POSITION))
            case ownership.ForceDrain(partitions):
                late = {tp: self.partitions[tp] for tp in partitions if self.partitions.is_awaited(tp, ZOOKEEPER)}
                awaiting = {tp: one for tp, one in late.items() if one.state is ProcessingState.AWAITING_KAFKA}
                # An offset that Kafka has not accepted yet is not committed: the partition is released without it.
                self._send_drained(ZOOKEEPER, {tp: _released_position(one) for tp, one in awaiting.items()})
                self.partitions.force_drain(late)
            case ownership.DropPartitions(partitions, why):
                self._zookeeper_dropped(partitions, why, is_active=is_active)
            case ownership.MoveToThread() if is_active:
                self.partitions.resume(command)
            case ownership.CollectPositions() if is_active:
                self._collect(ZOOKEEPER)
            case ownership.MoveToThread() | ownership.CollectPositions():
                pass

    def _zookeeper_dropped(self, partitions: Iterable[TopicPartition], why: str, *, is_active: bool) -> None:
        """The owner nodes of these are gone: released by this member, or lost with its session.

        Now the coordinator side gets the answers to its drains: before that the next owner in the group could not
        acquire the partition (``the_coordinator_side_revokes_partitions_while_the_zookeeper_side_is_active``).
        """
        gone = {tp for tp in partitions if tp in self.partitions}
        for tp in gone:
            self.partitions[tp].is_owned = False
            self.partitions[tp].deferred_start = None
        if is_active:
            self._stop(gone, why)
            for tp in gone:
                self.partitions[tp].waiting_sides.discard(ZOOKEEPER)
            awaited = [tp for tp in gone if self.partitions.is_awaited(tp, COORDINATOR)]
            self._send_drained(COORDINATOR, dict.fromkeys(awaited, UNKNOWN_POSITION))
        self.partitions.discard_unused(gone)

    def _stop(self, partitions: Collection[TopicPartition], why: str) -> None:
        """The active side does not have these any more: other members may process and commit them now."""
        self.partitions.stop(partitions, why)
        self.positions.forget(partitions)
        for write in self._writes.values():
            write.lost.update(partitions)

    # --- commands of the coordinator side ------------------------------------------------------------------------

    def _coordinator_commanded(self, command: ownership.PartitionCommand) -> None:
        """The coordinator side commands its processor.

        Active: the command is executed.  Passive: its partitions are the assignment of the ZooKeeper side (LOCKED and
        later), so each command may change that assignment.  A drain of the passive side stops the partition at once
        but waits for the owner node; see ``_coordinator_drains``.
        """
        is_active = self.rules.active_side is COORDINATOR
        match command:
            case ownership.StartFetching(positions, threads):
                for tp, at in positions.items():
                    self.partitions[tp].assigned_thread = threads[tp]
                    self.partitions[tp].is_new |= at == ownership.BEGINNING
                if is_active:
                    self.partitions.start(command)
                    self.positions.kafka_committed(positions)
                    self._answer_drained(positions)
                else:
                    # This side gave up its drain, and the ZooKeeper side has not reacted to it.
                    self._answer_drained(tp for tp in positions if not self.partitions[tp].is_answered)
            case ownership.Drain(partitions):
                self._coordinator_drains(partitions, is_active=is_active)
            case ownership.ForceDrain(partitions) if is_active:
                self.partitions.force_drain(partitions)
            case ownership.ForceDrain(partitions):
                late = [tp for tp in partitions if self.partitions.is_awaited(tp, COORDINATOR)]
                self._send_drained(COORDINATOR, dict.fromkeys(late, UNKNOWN_POSITION))
            case ownership.DropPartitions(partitions, why):
                self._coordinator_dropped(partitions, why, is_active=is_active)
            case ownership.MoveToThread(threads):
                for tp, thread in threads.items():
                    self.partitions[tp].assigned_thread = thread
                if is_active:
                    self._move_or_read(command)
            case ownership.CollectPositions() if is_active:
                self._collect(COORDINATOR)
            case ownership.CollectPositions():
                # Commits to Kafka while the ZooKeeper side is active are decided here, and have a provenance.
                self._emit(val.SendToSide(COORDINATOR, ownership.PositionsCollected({})))
        self._send_assignment()

    def _coordinator_drains(self, partitions: Iterable[TopicPartition], *, is_active: bool) -> None:
        """Owned partitions stop now; this side is answered when the ZooKeeper side has released them.

        A partition that needs no release gets its answer at once.  Before LOCKED that is each one: the ZooKeeper side
        computes its assignment, and does not release what the coordinator side revokes.
        """
        partitions = set(partitions)
        if is_active:
            waits = {tp for tp in partitions if self.partitions.is_running(tp)}
        else:
            waits = {tp for tp in partitions if self._assigns_from_coordinator and self.partitions.is_owned(tp)}
            for tp in partitions:
                self.partitions[tp].assigned_thread = None
        for tp in waits:
            self.partitions[tp].waiting_sides.add(COORDINATOR)
        self.partitions.drain(waits)
        if is_active:
            self._answer_drained(waits)
        self._send_drained(COORDINATOR, dict.fromkeys(partitions - waits, UNKNOWN_POSITION))

    def _move_or_read(self, command: ownership.MoveToThread) -> None:
        """Move the partitions that the processor has.  The others were drained while this side was passive, so their
        position is read from Kafka.

        Without the read such a partition would be assigned, and processed by no stream, until the next rebalance
        (``test_a_partition_that_was_drained_for_the_passive_side_is_read_from_kafka_when_it_moves``).
        """
        has = {tp: thread for tp, thread in command.threads.items() if self.partitions.is_running(tp)}
        if has:
            self.partitions.resume(ownership.MoveToThread(has, {tp: command.epochs[tp] for tp in has}))
        if len(has) < len(command.threads):
            self._emit(val.ReadFromKafka(frozenset(command.threads.keys() - has)))

    def _coordinator_dropped(self, partitions: Iterable[TopicPartition], why: str, *, is_active: bool) -> None:
        """These are not in the assignment any more: revoked, or lost with the generation.

        While the ZooKeeper side is active, an owned one continues until that side has released it: the assignment
        without it is its command to do so
        (``a_lost_generation_is_an_empty_assignment_while_the_zookeeper_side_is_active``).
        """
        gone = {tp for tp in partitions if tp in self.partitions}
        for tp in gone:
            one = self.partitions[tp]
            one.assigned_thread = None
            one.is_new = one.is_announced_new = one.awaits_kafka_offset = False
            one.waiting_sides.discard(COORDINATOR)
        if is_active:
            self._stop(gone, why)
        self.partitions.discard_unused(gone)

    # --- events of the processor -----------------------------------------------------------------------------------

    def _processor_reported(self, event: ownership.PartitionEvent) -> None:
        """An event of the processor.  A reset goes to the active side, whose partition it is."""
        match event:
            case ownership.PartitionsDrained(positions):
                self._partitions_drained(self.partitions.drain_finished(positions))
            case ownership.PositionsCollected(positions):
                self._positions_collected(positions)
            case ownership.OffsetReset():
                self._emit(val.SendToSide(self.rules.active_side, event))

    def _partitions_drained(self, positions: Mapping[TopicPartition, int]) -> None:
        """Answer the active side where it waits; partitions that no side drains any more continue.

        Precondition: each is DRAINED, and its drain is not answered.  A partition for which only the passive side waits
        stays drained: the active side drains it next, and gets its answer at once (``_answer_drained``).
        """
        assert all(not self.partitions[tp].is_answered for tp in positions), "an answered drain has no second answer"
        side = self.rules.active_side
        resumed = {tp: self.partitions[tp].thread for tp in positions if self._resumes(tp)}
        if resumed:
            self.partitions.resume(ownership.MoveToThread(resumed, dict.fromkeys(resumed, max(self.generation, 0))))
        waited = {tp: at for tp, at in positions.items() if self.partitions.is_awaited(tp, side)}
        first = {tp: at for tp, at in waited.items() if self._auto_commit and self._needs_kafka_commit(tp, at)}
        if first:
            number = self._write(first, WritePurpose.DRAIN)
            for tp in first:
                self.partitions[tp].handle(KafkaWriteAwaited(number, commits_position=True))
        rest = {tp: at for tp, at in waited.items() if tp not in first}
        self._send_drained(side, self._without_open_writes(rest) if side is ZOOKEEPER else rest)

    def _answer_drained(self, partitions: Iterable[TopicPartition]) -> None:
        """Answer for those of these partitions that are drained already, or continue them; earlier answers are void.

        The processor reports a drained partition once, so a second drain of it needs this answer.
        """
        again = {
            tp: self.partitions[tp].position
            for tp in partitions
            if self.partitions[tp].state is ProcessingState.DRAINED
        }
        self.partitions.clear_answers(again)
        self._partitions_drained(again)

    def _without_open_writes(self, positions: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The positions without those of a running write to Kafka, which could end after the next owner's commit.

        Such a partition awaits the newest of its writes: the coordinator side makes them in their order.
        """
        for tp in list(positions):
            open_writes = [number for number, write in self._writes.items() if tp in write.offsets]
            if open_writes:
                self.partitions[tp].handle(KafkaWriteAwaited(max(open_writes), commits_position=False))
                del positions[tp]
        return positions

    def _resumes(self, tp: TopicPartition) -> bool:
        """Whether a drained partition continues: no side waits for it, and this member keeps it.

        Where the coordinator side assigns, one that is not assigned any more does not continue; the ZooKeeper side
        releases it next.
        """
        return not self.partitions[tp].waiting_sides and (
            self.partitions.is_assigned(tp) or self.rules.zookeeper_assignment is ZooKeeperAssignment.COMPUTED
        )

    def _needs_kafka_commit(self, tp: TopicPartition, position: int) -> bool:
        """Whether ZooKeeper must not get this position before Kafka has accepted it.

        The position that Kafka has already needs no write: a partition without new records costs none.
        """
        is_first = self.rules.active_side is ZOOKEEPER and self.rules.commit_order is CommitOrder.KAFKA_FIRST
        return is_first and position >= 0 and position != self.positions.in_kafka.get(tp)

    def _send_drained(self, side: MembershipSide, positions: Mapping[TopicPartition, int]) -> None:
        """Answer a drain of this side; all answers are given here, so each wait ends exactly once.

        A partition that the side drains, and the member does not process for it, has no wait; it is answered as well.
        """
        for tp in [tp for tp in positions if self.partitions.is_awaited(tp, side)]:
            one = self.partitions[tp]
            one.waiting_sides.remove(side)
            if side is ZOOKEEPER and one.state is ProcessingState.AWAITING_KAFKA:
                one.handle(KafkaWaitEnded())
            if side is self.rules.active_side and one.state is ProcessingState.DRAINED:
                one.is_answered = True
            assert side is not ZOOKEEPER or one.state is not ProcessingState.AWAITING_KAFKA, "its wait has ended"
        if positions:
            self._emit(val.SendToSide(side, ownership.PartitionsDrained(dict(sorted(positions.items())))))

    def _positions_collected(self, positions: Mapping[TopicPartition, int]) -> None:
        """The processor answered the oldest ``CollectPositions``.

        If its side is passive by now, the positions are not committed.  The coordinator machine gets an answer all the
        same: each of its ``CollectPositions`` is answered once
        (``positions_that_the_previously_active_side_requested_are_not_used``).
        """
        assert self._collecting, "the processor answers each question once"
        side = self._collecting.popleft()
        if side is not self.rules.active_side:
            if side is COORDINATOR:
                self._send_collected(side, {})
            return
        # A partition that was dropped since the question is not committed: another member may own it.
        ours = {tp: at for tp, at in sorted(positions.items()) if self.partitions.is_running(tp)}
        fresh = {tp: at for tp, at in ours.items() if self._needs_kafka_commit(tp, at)}
        if not fresh:
            self._send_collected(side, positions)
        elif self._has_write(WritePurpose.COLLECTION):
            # If the coordinator is slower than the timer, writes queue up, and a rebalance waits for the last.
            self._collects_again = True
        else:
            self._write(fresh, WritePurpose.COLLECTION, ours)

    def _send_collected(self, side: MembershipSide, positions: Mapping[TopicPartition, int]) -> None:
        self._emit(val.SendToSide(side, ownership.PositionsCollected(dict(positions))))

    # --- both stores ----------------------------------------------------------------------------------------------

    def _write(
        self,
        offsets: Mapping[TopicPartition, int],
        purpose: WritePurpose,
        collected: Mapping[TopicPartition, int] | None = None,
    ) -> int:
        """Begin a write; ``_kafka_write_finished`` follows once, whatever becomes of the coordinator side."""
        assert offsets, "a write has offsets"
        assert self.rules.active_side is ZOOKEEPER, "the coordinator side writes its own offsets while it is active"
        assert purpose is WritePurpose.DRAIN or not self._has_write(purpose), "one such write at a time"
        self._last_write_number += 1
        self._writes[self._last_write_number] = KafkaWrite(offsets, purpose, collected or {})
        self._emit(val.WriteToKafka(self._last_write_number, offsets, purpose is WritePurpose.DRAIN))
        return self._last_write_number

    def _has_write(self, purpose: WritePurpose) -> bool:
        return any(write.purpose is purpose for write in self._writes.values())

    def _kafka_write_finished(self, event: val.KafkaWriteFinished) -> None:
        """Kafka answered a write, or it failed; drains and collections that wait for it go to the ZooKeeper side.

        A partition that was dropped since is treated as rejected, also if this member has acquired it again: another
        member may have committed another offset after ours
        (``test_an_answer_of_kafka_about_an_earlier_ownership_is_not_kafkas_offset``).
        """
        write = self._writes.pop(event.number)
        refused = {tp for tp in write.offsets if tp not in event.committed or not self.partitions.is_running(tp)}
        refused |= write.lost
        self.positions.kafka_committed({tp: at for tp, at in write.offsets.items() if tp not in refused})
        # An offset that Kafka rejected is not written to ZooKeeper either, so its records are read again.
        drained = {
            tp: _released_position(one) if tp in refused else one.position
            for tp, one in self.partitions.awaiting_write(event.number, write.offsets).items()
        }
        self._send_drained(ZOOKEEPER, drained)
        collected = {tp: at for tp, at in write.collected.items() if tp not in refused}
        if collected and self.rules.active_side is ZOOKEEPER:
            self._send_collected(ZOOKEEPER, collected)
        assert not self.partitions.awaiting_write(event.number, write.offsets), (
            "no partition awaits a write that has ended"
        )
        if self._collects_again and not self._has_write(WritePurpose.COLLECTION):
            self._collects_again = False
            if self.rules.active_side is ZOOKEEPER:
                self._collect(ZOOKEEPER)

    def _kafka_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits of the program, and automatic commits of the coordinator side while it is active.

        While commits go to ZooKeeper first, only ``_sync_stores`` writes to Kafka.  An answer that arrives then belongs
        to a commit of the phase before, without the provenance of this epoch.  So the offset is written again: a later
        migration recognises the offsets of this one by their provenance.
        """
        if self.rules.commit_order is CommitOrder.ZOOKEEPER_FIRST:
            return
        ours = {tp: at for tp, at in offsets.items() if self.partitions.is_running(tp)}
        self.positions.kafka_committed(ours)
        for tp in ours:
            self.partitions[tp].awaits_kafka_offset = False
        if ours and self.rules.mirrors_to_zookeeper:
            self._emit(val.MirrorToZooKeeper(ours))
        elif ours and self.rules.active_side is COORDINATOR:
            self._sync_stores()

    def _sync_stores(self) -> None:
        """Write missing offsets to the store that lacks them; to Kafka one write at a time.

        Called when either store has news.  A rejected write is not repeated here: the offset is still missing at the
        next report of ZooKeeper, which comes until nothing is missing (``MigratingMember.is_caught_up``).
        """
        order = self.rules.commit_order
        if self.rules.active_side is COORDINATOR and order is CommitOrder.KAFKA_FIRST:
            late = self.positions.missing_in_zookeeper(self.partitions.owned)
            if late:
                self._send_collected(ZOOKEEPER, late)
        elif self.rules.active_side is ZOOKEEPER and not self._has_write(WritePurpose.SYNC):
            in_flight = self._in_flight_to_kafka
            late = {tp: at for tp, at in self.positions.missing_in_kafka(order).items() if tp not in in_flight}
            if late:
                self._write(late, WritePurpose.SYNC)

    @property
    def _in_flight_to_kafka(self) -> set[TopicPartition]:
        """Partitions of running writes to Kafka, with larger offsets than ZooKeeper; they are not overwritten."""
        found: set[TopicPartition] = set()
        if self.rules.commit_order is CommitOrder.KAFKA_FIRST:
            found.update(*(write.offsets for write in self._writes.values()))
            found.update(*(partitions for _, partitions in self._commits.values()))
        return found

    def _kafka_read(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The committed offsets of assigned partitions: those that do not run start there, and in phase ``returning``
        ZooKeeper receives them.

        An answer that arrives when the ZooKeeper side is active again is dropped: that side starts its partitions at
        the offsets of ZooKeeper (``an_assigned_partition_that_does_not_run_starts_at_the_cut_over``).
        """
        known = {tp: at for tp, at in sorted(offsets.items()) if self.partitions.is_assigned(tp)}
        for tp in known:
            self.partitions[tp].awaits_kafka_offset = False
        if not known or self.rules.active_side is not COORDINATOR:
            return
        starts = {tp: ownership.BEGINNING if at < 0 and self.partitions[tp].is_new else at for tp, at in known.items()}
        assigned = self.partitions.assigned
        threads = {tp: assigned[tp] for tp in known}
        sources = {tp: OffsetSource.KAFKA if at >= 0 else OffsetSource.NEITHER for tp, at in known.items()}
        self.partitions.start(ownership.StartFetching(starts, threads, sources, dict.fromkeys(known, self.generation)))
        self.positions.kafka_read(known)
        self._sync_stores()

    # --- helpers --------------------------------------------------------------------------------------------------

    def _collect(self, side: MembershipSide) -> None:
        assert side is self.rules.active_side, "the processor works for the active side"
        self._collecting.append(side)
        self._emit(ownership.CollectPositions())

    def _emit(self, command: MigratingMemberCommand) -> None:
        self._emitted.append(command)


def _released_position(one: MigratingPartition) -> int:
    """The position of a partition whose write to Kafka has no answer, or a rejection: not known if it was that write
    which commits it."""
    return UNKNOWN_POSITION if one.commits_position else one.position
