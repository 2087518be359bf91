"""Arbitrates between a migrating member's two memberships.  Pure.

Only the active one (see ``phase_rules``) controls the partitions and receives their events.  The other one is answered
at once, as if no partition ran; what it owns is remembered:

    assigned    partitions of the coordinator side: the assignment of the ZooKeeper side, where that comes from there
    owned       partitions of the ZooKeeper side: an owner node of ours exists
    running     partitions of the processor, for either side (``running_partitions``)
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
    """Everything except the phases, which ``MigratingMember`` handles."""

    def __init__(self, *, commits_by_itself: bool) -> None:
        self._auto_commit = commits_by_itself
        self.member_phase = MemberPhase.ZOOKEEPER_ONLY
        self.generation = NO_GENERATION
        self.assigned: dict[TopicPartition, str] = {}
        self.owned: set[TopicPartition] = set()
        self.partitions = RunningPartitions(self._emit)
        self.positions = StorePositions()
        self._new: set[TopicPartition] = set()
        """Assigned partitions that were created while the coordinator side was a member, and did not run yet."""
        self._announced_new: set[TopicPartition] = set()
        self._deferred_starts: dict[TopicPartition, ownership.StartFetching] = {}
        """Starts of the ZooKeeper side while it is the passive side."""
        self._draining_for: dict[MembershipSide, set[TopicPartition]] = {ZOOKEEPER: set(), COORDINATOR: set()}
        """The drains for which a side waits.  While the ZooKeeper side is active, the other side is answered when the
        owner node is deleted."""
        self._collecting: deque[MembershipSide] = deque()
        self._writes: dict[int, dict[TopicPartition, int]] = {}
        self._last_write_number = 0
        self._sync_write_number = 0
        self._drained_behind_own_write: dict[int, Mapping[TopicPartition, int]] = {}
        """Write number -> drained partitions whose positions it commits; reported when it completes."""
        self._drained_behind_other_write: dict[int, dict[TopicPartition, int]] = {}
        """Write number -> drained partitions of a write that began before.  The ZooKeeper side receives them only when
        it completes, or the write would race the next owner's commit."""
        self._collected: dict[int, Mapping[TopicPartition, int]] = {}
        """Write number -> collected positions, which the ZooKeeper side receives when it completes; one at a time."""
        self._collects_again = False
        """Whether positions were collected during such a write: they are collected again after it."""
        self._pending_kafka_reads: set[TopicPartition] = set()
        """In phase ``returning``: partitions whose committed offsets Kafka has not returned yet."""
        self._commits: dict[int, tuple[CommitOrder, frozenset[TopicPartition]]] = {}
        """The commits of the program that run: call number -> order and partitions."""
        self._sent_assignment: tuple[ZooKeeperAssignment, dict[TopicPartition, str]] = (
            ZooKeeperAssignment.COMPUTED,
            {},
        )
        self._emitted: list[MigratingMemberCommand] = []

    @property
    def rules(self) -> PhaseRules:
        """The rules of the present phase."""
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
        """Whether the ZooKeeper side takes its assignment from the coordinator side."""
        return self.rules.zookeeper_assignment is ZooKeeperAssignment.FROM_COORDINATOR

    # --- commands of the ZooKeeper side ----------------------------------------------------------------------------

    def _zookeeper_commanded(self, command: ownership.PartitionCommand) -> None:
        is_active = self.rules.active_side is ZOOKEEPER
        match command:
            case ownership.StartFetching(positions):
                self.owned.update(positions)
                if is_active:
                    self._start(command)
                else:
                    self._deferred_starts.update(dict.fromkeys(positions, command))
            case ownership.Drain(partitions) if is_active:
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
                # An offset that Kafka has not accepted yet is not committed: the partition is released without it.
                at_rest = self.partitions.drained
                late = [tp for tp in partitions if tp in self._draining_for[ZOOKEEPER]]
                queued = {tp: at for waiting in self._drained_behind_other_write.values() for tp, at in waiting.items()}
                self._send_drained(ZOOKEEPER, {tp: queued.get(tp, UNKNOWN_POSITION) for tp in late if tp in at_rest})
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
        gone = set(partitions)
        self.owned -= gone
        self._draining_for[ZOOKEEPER] -= gone
        for tp in gone:
            self._deferred_starts.pop(tp, None)
        if is_active:
            self.partitions.stop(gone, why)
            self.positions.forget(gone)
            self._send_drained(COORDINATOR, dict.fromkeys(gone & self._draining_for[COORDINATOR], UNKNOWN_POSITION))

    # --- commands of the coordinator side ------------------------------------------------------------------------

    def _coordinator_commanded(self, command: ownership.PartitionCommand) -> None:
        is_active = self.rules.active_side is COORDINATOR
        match command:
            case ownership.StartFetching(positions, threads):
                self.assigned.update(threads)
                self._new.update(tp for tp, at in positions.items() if at == ownership.BEGINNING)
                if is_active:
                    self._start(command)
                    self.positions.kafka_committed(positions)
            case ownership.Drain(partitions):
                self._coordinator_drains(partitions, is_active=is_active)
            case ownership.ForceDrain(partitions) if is_active:
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
                if is_active:
                    self.partitions.stop(partitions, why)
                    self.positions.forget(partitions)
            case ownership.MoveToThread(threads):
                self.assigned.update(threads)
                if is_active:
                    self.partitions.resume(command)
            case ownership.CollectPositions() if is_active:
                self._collect(COORDINATOR)
            case ownership.CollectPositions():
                # Commits to Kafka while the ZooKeeper side is active are decided here, and have a provenance.
                self._emit(val.SendToSide(COORDINATOR, ownership.PositionsCollected({})))
        self._send_assignment()

    def _coordinator_drains(self, partitions: Iterable[TopicPartition], *, is_active: bool) -> None:
        """Owned partitions stop now; this side is answered when the ZooKeeper side has released them."""
        leaving = set(partitions)
        here = self.partitions.running.keys() if is_active else self.owned if self._assigns_from_coordinator else set()
        if not is_active:
            for tp in leaving:
                self.assigned.pop(tp, None)
        self._draining_for[COORDINATOR] |= leaving & here
        self.partitions.drain(leaving & here)
        self._send_drained(COORDINATOR, dict.fromkeys(leaving - here, UNKNOWN_POSITION))

    # --- events of the processor -----------------------------------------------------------------------------------

    def _processor_reported(self, event: ownership.PartitionEvent) -> None:
        match event:
            case ownership.PartitionsDrained(positions):
                self._partitions_drained(self.partitions.drain_finished(positions))
            case ownership.PositionsCollected(positions):
                self._positions_collected(positions)
            case ownership.OffsetReset():
                self._emit(val.SendToSide(self.rules.active_side, event))

    def _partitions_drained(self, positions: Mapping[TopicPartition, int]) -> None:
        """Answer the active side where it waits; partitions that no side drains any more continue."""
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
        """The positions without those of a running write to Kafka, which could end after the next owner's commit."""
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
            # If the coordinator is slower than the timer, writes queue up, and a rebalance waits for the last.
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
        # An offset that Kafka rejected is not written to ZooKeeper either, so its records are read again.
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
        """Commits of the program, and automatic commits of the coordinator side while it is active.

        While commits go to ZooKeeper first, only ``_sync_stores`` writes to Kafka.  An answer that arrives then belongs
        to a commit of the phase before, without the provenance of this epoch.  So the offset is written again: a later
        migration recognises the offsets of this one by their provenance.
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
        """Write missing offsets to the store that lacks them; to Kafka one write at a time."""
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
        """Partitions of running writes to Kafka, with larger offsets than ZooKeeper; they are not overwritten."""
        found: set[TopicPartition] = set()
        if self.rules.commit_order is CommitOrder.KAFKA_FIRST:
            found.update(*self._writes.values(), *(of for _, of in self._commits.values()))
        return found

    def _kafka_read(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The committed offsets of assigned partitions: those that do not run start there, and in phase ``returning``
        ZooKeeper receives them."""
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

    # --- helpers --------------------------------------------------------------------------------------------------

    def _start(self, command: ownership.StartFetching) -> None:
        self._new.difference_update(command.positions)
        self.partitions.start(command)

    def _collect(self, side: MembershipSide) -> None:
        self._collecting.append(side)
        self._emit(ownership.CollectPositions())

    def _emit(self, command: MigratingMemberCommand) -> None:
        self._emitted.append(command)
