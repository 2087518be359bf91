"""What the two sides of a member of both worlds want of its partitions, and who is told what the holder says.  Pure.

Whoever *holds* by the present duty (``duty``) tells the holder what to do, and is told what it says.  The other side is
answered at once, as by a holder that works on nothing; what it has is remembered:

    given       what the coordinator's side has: the share of ZooKeeper's side, where a share is given
    locked      what ZooKeeper's side has: an owner node of ours exists
    running     what the holder works on, whoever told it (``works``)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from bridge.migration.dual.machine import machine_messages as val
from bridge.migration.dual.machine.acknowledgement import NO_GENERATION
from bridge.migration.dual.machine.phase_rules import (
    PHASE_RULES,
    CommitOrder,
    MemberPhase,
    MembershipSide,
    PhaseRules,
    ZooKeeperAssignment,
)
from bridge.migration.dual.machine.running_partitions import RunningPartitions
from bridge.migration.dual.machine.store_positions import StorePositions
from zkconsumer.member import ownership
from zkconsumer.member.offset_stores import OffsetSource

if TYPE_CHECKING:
    from bridge.migration.dual.machine.machine_messages import MigratingMemberCommand
    from zkconsumer.types import TopicPartition

UNKNOWN_POSITION = -1
ZOOKEEPER, COORDINATOR = MembershipSide.ZOOKEEPER, MembershipSide.COORDINATOR


class SideArbiter:
    """All but the phases, which are ``MigratingMember``'s."""

    def __init__(self, *, commits_by_itself: bool) -> None:
        self._auto_commit = commits_by_itself
        self.member_phase = MemberPhase.ZOOKEEPER_ONLY
        self.generation = NO_GENERATION
        self.assigned: dict[TopicPartition, str] = {}
        self.owned: set[TopicPartition] = set()
        self.partitions = RunningPartitions(self._emit)
        self.positions = StorePositions()
        self._new: set[TopicPartition] = set()
        """What of ``given`` came into being under the coordinator's eyes, and was never worked on."""
        self._announced_new: set[TopicPartition] = set()
        self._deferred_starts: dict[TopicPartition, ownership.StartFetching] = {}
        """What ZooKeeper's side would begin with, while the other side holds."""
        self._draining_for: dict[MembershipSide, set[TopicPartition]] = {ZOOKEEPER: set(), COORDINATOR: set()}
        """What a side wants to be at rest.  While ZooKeeper's side holds, the other hears when it is given back."""
        self._collecting: deque[MembershipSide] = deque()
        self._writes: dict[int, dict[TopicPartition, int]] = {}
        self._last_write_number = 0
        self._sync_write_number = 0
        self._drained_behind_own_write: dict[int, Mapping[TopicPartition, int]] = {}
        """Kafka is told of these, and then ZooKeeper's side that they are at rest."""
        self._drained_behind_other_write: dict[int, dict[TopicPartition, int]] = {}
        """Kafka is being told of these for another reason; ZooKeeper's side hears that they are at rest behind that."""
        self._collected: dict[int, Mapping[TopicPartition, int]] = {}
        """Kafka is told of these, one write at a time, and then ZooKeeper's side that they were collected."""
        self._collects_again = False
        """Whether more was collected while Kafka was told: it is collected anew once Kafka has answered."""
        self._pending_kafka_reads: set[TopicPartition] = set()
        """On the way back: what Kafka was asked for and has not told yet."""
        self._commits: dict[int, tuple[CommitOrder, frozenset[TopicPartition]]] = {}
        """Those of the program: which way each goes, and of what."""
        self._sent_assignment: tuple[ZooKeeperAssignment, dict[TopicPartition, str]] = (
            ZooKeeperAssignment.COMPUTED,
            {},
        )
        self._emitted: list[MigratingMemberCommand] = []

    @property
    def rules(self) -> PhaseRules:
        """What is to be done in the present phase."""
        return PHASE_RULES[self.member_phase]

    def _send_assignment(self) -> None:
        share = self.rules.zookeeper_assignment
        now = (share, dict(self.assigned) if share is ZooKeeperAssignment.FROM_COORDINATOR else {})
        if now == self._sent_assignment:
            return
        self._sent_assignment = now
        new = frozenset((self._new - self._announced_new) & now[1].keys())
        self._announced_new |= new
        self._emit(val.SetZooKeeperAssignment(None if share is ZooKeeperAssignment.COMPUTED else now[1], new))

    @property
    def _assigns_from_coordinator(self) -> bool:
        """Whether what the coordinator's side has is the share of ZooKeeper's side."""
        return self.rules.zookeeper_assignment is ZooKeeperAssignment.FROM_COORDINATOR

    # --- what ZooKeeper's side wants ------------------------------------------------------------------------------

    def _zookeeper_commanded(self, command: ownership.PartitionCommand) -> None:
        holds = self.rules.active_side is ZOOKEEPER
        match command:
            case ownership.StartFetching(positions):
                self.owned.update(positions)
                if holds:
                    self._start(command)
                else:
                    self._deferred_starts.update(dict.fromkeys(positions, command))
            case ownership.Drain(partitions) if holds:
                self._draining_for[ZOOKEEPER].update(partitions)
                self.partitions.drain(partitions)
                at_rest = self.partitions.drained
                self._partitions_drained({tp: at_rest[tp] for tp in partitions if tp in at_rest})
                self._send_drained(
                    ZOOKEEPER, {tp: UNKNOWN_POSITION for tp in partitions if tp not in self.partitions.running}
                )
            case ownership.Drain(partitions):
                self._send_drained(ZOOKEEPER, dict.fromkeys(partitions, UNKNOWN_POSITION))
            case ownership.ForceDrain(partitions):
                # What Kafka has not taken yet was not accepted: it is given back as it was.
                at_rest = self.partitions.drained
                late = [tp for tp in partitions if tp in self._draining_for[ZOOKEEPER]]
                queued = {tp: at for waiting in self._drained_behind_other_write.values() for tp, at in waiting.items()}
                self._send_drained(ZOOKEEPER, {tp: queued.get(tp, UNKNOWN_POSITION) for tp in late if tp in at_rest})
                self.partitions.force_drain(late)
            case ownership.DropPartitions(partitions, why):
                self._zookeeper_dropped(partitions, why, holds=holds)
            case ownership.MoveToThread() if holds:
                self.partitions.resume(command)
            case ownership.CollectPositions() if holds:
                self._collect(ZOOKEEPER)
            case ownership.MoveToThread() | ownership.CollectPositions():
                pass

    def _zookeeper_dropped(self, partitions: Iterable[TopicPartition], why: str, *, holds: bool) -> None:
        gone = set(partitions)
        self.owned -= gone
        self._draining_for[ZOOKEEPER] -= gone
        for tp in gone:
            self._deferred_starts.pop(tp, None)
        if holds:
            self.partitions.stop(gone, why)
            self.positions.forget(gone)
            self._send_drained(COORDINATOR, dict.fromkeys(gone & self._draining_for[COORDINATOR], UNKNOWN_POSITION))

    # --- what the coordinator's side wants ------------------------------------------------------------------------

    def _coordinator_commanded(self, command: ownership.PartitionCommand) -> None:
        holds = self.rules.active_side is COORDINATOR
        match command:
            case ownership.StartFetching(positions, threads):
                self.assigned.update(threads)
                self._new.update(tp for tp, at in positions.items() if at == ownership.BEGINNING)
                if holds:
                    self._start(command)
                    self.positions.kafka_committed(positions)
            case ownership.Drain(partitions):
                self._coordinator_drains(partitions, holds=holds)
            case ownership.ForceDrain(partitions) if holds:
                self.partitions.force_drain(partitions)
            case ownership.ForceDrain(partitions):
                late = [tp for tp in partitions if tp in self._draining_for[COORDINATOR]]
                self._send_drained(COORDINATOR, dict.fromkeys(late, UNKNOWN_POSITION))
            case ownership.DropPartitions(partitions, why):
                for tp in partitions:
                    self.assigned.pop(tp, None)
                self._new.difference_update(partitions)
                self._announced_new.difference_update(partitions)
                self._pending_kafka_reads.difference_update(partitions)
                self._draining_for[COORDINATOR].difference_update(partitions)
                if holds:
                    self.partitions.stop(partitions, why)
                    self.positions.forget(partitions)
            case ownership.MoveToThread(threads):
                self.assigned.update(threads)
                if holds:
                    self.partitions.resume(command)
            case ownership.CollectPositions() if holds:
                self._collect(COORDINATOR)
            case ownership.CollectPositions():
                # What Kafka is told while ZooKeeper's side holds is decided here, with its provenance.
                self._emit(val.SendToSide(COORDINATOR, ownership.PositionsCollected({})))
        self._send_assignment()

    def _coordinator_drains(self, partitions: Iterable[TopicPartition], *, holds: bool) -> None:
        """What is locked is stopped now, and at rest for this side once ZooKeeper's side has given it back."""
        leaving = set(partitions)
        here = self.partitions.running.keys() if holds else self.owned if self._assigns_from_coordinator else set()
        if not holds:
            for tp in leaving:
                self.assigned.pop(tp, None)
        self._draining_for[COORDINATOR] |= leaving & here
        self.partitions.drain(leaving & here)
        self._send_drained(COORDINATOR, dict.fromkeys(leaving - here, UNKNOWN_POSITION))

    # --- what the holder says -------------------------------------------------------------------------------------

    def _processor_reported(self, said: ownership.PartitionEvent) -> None:
        match said:
            case ownership.PartitionsDrained(positions):
                self._partitions_drained(self.partitions.drain_finished(positions))
            case ownership.PositionsCollected(positions):
                self._positions_collected(positions)
            case ownership.OffsetReset():
                self._emit(val.SendToSide(self.rules.active_side, said))

    def _partitions_drained(self, positions: Mapping[TopicPartition, int]) -> None:
        """Tell the side that holds and waits for them; what nobody wants to leave any more goes on where it stands."""
        side = self.rules.active_side
        goes_on = {tp: self.partitions.running[tp] for tp in positions if self._resumes(tp)}
        if goes_on:
            self.partitions.resume(ownership.MoveToThread(goes_on, dict.fromkeys(goes_on, max(self.generation, 0))))
        waited = {tp: at for tp, at in positions.items() if tp in self._draining_for[side]}
        first = {tp: at for tp, at in waited.items() if self._auto_commit and self._needs_kafka_commit(tp, at)}
        if first:
            self._drained_behind_own_write[self._write(first, is_urgent=True)] = first
        rest = {tp: at for tp, at in waited.items() if tp not in first}
        self._send_drained(side, self._without_open_writes(rest) if side is ZOOKEEPER else rest)

    def _without_open_writes(self, positions: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Those that Kafka is not being told of now; a write that ended later would be in the next owner's way."""
        for tp in list(positions):
            open_writes = [number for number, offsets in self._writes.items() if tp in offsets]
            if open_writes:
                self._drained_behind_other_write.setdefault(max(open_writes), {})[tp] = positions.pop(tp)
        return positions

    def _resumes(self, tp: TopicPartition) -> bool:
        is_wanted = any(tp in waiting for waiting in self._draining_for.values())
        return not is_wanted and (
            tp in self.assigned or self.rules.zookeeper_assignment is ZooKeeperAssignment.COMPUTED
        )

    def _needs_kafka_commit(self, tp: TopicPartition, position: int) -> bool:
        is_first = self.rules.active_side is ZOOKEEPER and self.rules.commit_order is CommitOrder.KAFKA_FIRST
        return is_first and position >= 0 and position != self.positions.in_kafka.get(tp)

    def _send_drained(self, side: MembershipSide, positions: Mapping[TopicPartition, int]) -> None:
        self._draining_for[side].difference_update(positions)
        if positions:
            self._emit(val.SendToSide(side, ownership.PartitionsDrained(dict(sorted(positions.items())))))

    def _positions_collected(self, positions: Mapping[TopicPartition, int]) -> None:
        side = self._collecting.popleft()
        if side is not self.rules.active_side:
            if side is COORDINATOR:
                self._send_collected(side, {})
            return
        fresh = {tp: at for tp, at in sorted(positions.items()) if self._needs_kafka_commit(tp, at)}
        if not fresh:
            self._send_collected(side, positions)
        elif self._collected:
            # A coordinator that is slower than the timer would have a queue, and the last write before a rebalance its
            # end: the whole group would wait for it.
            self._collects_again = True
        else:
            self._collected[self._write(fresh)] = positions

    def _send_collected(self, side: MembershipSide, positions: Mapping[TopicPartition, int]) -> None:
        self._emit(val.SendToSide(side, ownership.PositionsCollected(dict(positions))))

    # --- both stores ----------------------------------------------------------------------------------------------

    def _write(self, offsets: dict[TopicPartition, int], *, is_urgent: bool = False) -> int:
        self._last_write_number += 1
        self._writes[self._last_write_number] = offsets
        self._emit(val.WriteToKafka(self._last_write_number, offsets, is_urgent))
        return self._last_write_number

    def _kafka_write_finished(self, event: val.KafkaWriteFinished) -> None:
        number = event.number
        offsets = self._writes.pop(number)
        self._sync_write_number = 0 if self._sync_write_number == number else self._sync_write_number
        refused = {tp for tp in offsets if tp not in event.committed or tp not in self.partitions.running}
        self.positions.kafka_committed({tp: at for tp, at in offsets.items() if tp not in refused})
        # What Kafka did not take is not written to ZooKeeper either: it was not accepted, and is read again.
        resting = self._drained_behind_own_write.pop(number, {})
        waited = {tp: at for tp, at in resting.items() if tp in self._draining_for[ZOOKEEPER]}
        self._send_drained(ZOOKEEPER, {tp: UNKNOWN_POSITION if tp in refused else at for tp, at in waited.items()})
        queued = self._drained_behind_other_write.pop(number, {})
        self._send_drained(ZOOKEEPER, {tp: at for tp, at in queued.items() if tp in self._draining_for[ZOOKEEPER]})
        collected = {tp: at for tp, at in self._collected.pop(number, {}).items() if tp not in refused}
        if collected and self.rules.active_side is ZOOKEEPER:
            self._send_collected(ZOOKEEPER, collected)
        if self._collects_again and not self._collected:
            self._collects_again = False
            if self.rules.active_side is ZOOKEEPER:
                self._collect(ZOOKEEPER)

    def _kafka_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The program's commits, and those that the coordinator's side makes by itself while it holds.

        While ZooKeeper has each commit first, Kafka is told by ``_sync_stores`` alone.  What is answered then began in
        the phase before, without the provenance of this epoch, so Kafka is told once more: a later migration recognises
        the values of this one by it.
        """
        if self.rules.commit_order is CommitOrder.ZOOKEEPER_FIRST:
            return
        ours = {tp: at for tp, at in offsets.items() if tp in self.partitions.running}
        self.positions.kafka_committed(ours)
        self._pending_kafka_reads.difference_update(ours)
        if ours and self.rules.mirrors_to_zookeeper:
            self._emit(val.MirrorToZooKeeper(ours))
        elif ours and self.rules.active_side is COORDINATOR:
            self._sync_stores()

    def _sync_stores(self) -> None:
        """Bring up the store that is behind; Kafka by one write at a time."""
        order = self.rules.commit_order
        if self.rules.active_side is COORDINATOR and order is CommitOrder.KAFKA_FIRST:
            late = self.positions.missing_in_zookeeper(self.owned)
            if late:
                self._send_collected(ZOOKEEPER, late)
        elif self.rules.active_side is ZOOKEEPER and not self._sync_write_number:
            under_way = self._in_flight_to_kafka
            late = {tp: at for tp, at in self.positions.missing_in_kafka(order).items() if tp not in under_way}
            if late:
                self._sync_write_number = self._write(late)

    @property
    def _in_flight_to_kafka(self) -> set[TopicPartition]:
        """What Kafka is told first, and may have further than ZooKeeper: ZooKeeper's is not written over that."""
        found: set[TopicPartition] = set()
        if self.rules.commit_order is CommitOrder.KAFKA_FIRST:
            found.update(*self._writes.values(), *(of for _, of in self._commits.values()))
        return found

    def _kafka_read(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Where those stand that the coordinator's side has: what nobody works on begins there, and on the way back
        ZooKeeper is brought up to it."""
        self._pending_kafka_reads.difference_update(offsets)
        known = {tp: at for tp, at in sorted(offsets.items()) if tp in self.assigned}
        if not known or self.rules.active_side is not COORDINATOR:
            return
        starts = {tp: ownership.BEGINNING if at < 0 and tp in self._new else at for tp, at in known.items()}
        threads = {tp: self.assigned[tp] for tp in known}
        sources = {tp: OffsetSource.KAFKA if at >= 0 else OffsetSource.NEITHER for tp, at in known.items()}
        self._start(ownership.StartFetching(starts, threads, sources, dict.fromkeys(known, self.generation)))
        self.positions.kafka_read(known)
        self._sync_stores()

    # --- small things ---------------------------------------------------------------------------------------------

    def _start(self, command: ownership.StartFetching) -> None:
        self._new.difference_update(command.positions)
        self.partitions.start(command)

    def _collect(self, side: MembershipSide) -> None:
        self._collecting.append(side)
        self._emit(ownership.CollectPositions())

    def _emit(self, command: MigratingMemberCommand) -> None:
        self._emitted.append(command)
