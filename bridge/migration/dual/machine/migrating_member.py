"""The decisions of a member with two memberships.  Pure.

    ZooKeeper side   --SideCommanded--> MigratingMember --PartitionCommand--> partition processor
           ^-----------SendToSide-----------|  |  ^ ------PartitionEvent-----------'
    coordinator side --SideCommanded--------'  '-- SendToSide --> coordinator side

This file decides what a new phase of the control znode changes, and when the member acknowledges it; ``side_arbiter``
decides everything in between.  When the other side becomes active, the partitions that run and belong to it too
continue without a command: no drain, no new start.

Theory of operation.  A new control znode is one event, and everything that follows from it is decided in that event, in
this order (``_control_changed``):

    1  offsets of an earlier epoch are forgotten: they lack the provenance of the new one
    2  the rules change: from now on each command of a side is judged by them
    3  the other side becomes active: it gets what it has, and the waits of the passive side end.  After 2, because an
       answer is final only for the active side (``is_answered``).  Its waits also end where the ZooKeeper side computes
       its assignment: no release follows there.
    4  the committed offsets are read, where the phase needs them (RETURNING)
    5  the ZooKeeper side gets its assignment
    6  the acknowledgement is written, or taken back.  Last, because 3 and 5 may change what it says.

The acknowledgement is the only thing for which another process waits.  It promises that this member does nothing any
more by the rules of the phase before.  Three conditions decide it (``_is_phase_reached``): the coordinator side is in a
generation exactly if the phase has protocols; no commit of the program runs in another order; and where the ZooKeeper
side has no assignment, its owner nodes are deleted.  ``behind`` is its second part: what this member has to do before
the tool can continue.

When a control znode is missed.  The ZooKeeper side reads the znode under a watch, and only its present content: a
member that was paused may go from any phase to any other one, and to another epoch.  So nothing here compares the new
phase with the one before, except to find out which side was active.  Until it reads the znode, a paused member acts by
an old phase.  Its writes to ZooKeeper fail then, because they check the version of the control znode; the coordinator
accepts its commits only in the generation that it is in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.migration.dual.machine import machine_messages as val
from bridge.migration.dual.machine.acknowledgement import NO_GENERATION, Acknowledgement
from bridge.migration.dual.machine.migrating_partitions import UNKNOWN_POSITION
from bridge.migration.dual.machine.phase_rules import MemberPhase, MembershipSide, ZooKeeperAssignment, member_phase_of
from bridge.migration.dual.machine.side_arbiter import COORDINATOR, ZOOKEEPER, SideArbiter
from zkconsumer.member.ownership import PartitionEvent

if TYPE_CHECKING:
    from bridge.migration.dual.machine.machine_messages import MigratingMemberCommand, MigratingMemberEvent
    from zkconsumer.zk.znode_formats import ControlRecord

NOT_HELD_BY_ACTIVE_SIDE = "the side that is active now does not own it"
"""The reason of ``DropPartitions`` after a change of the active side."""


class MigratingMember(SideArbiter):
    """One member; ``handle`` takes an event and returns the commands to execute, in order.

    ``auto_commit``: the position of a drained partition is committed (``auto.commit.enable``).
    All calls are made on one thread.  ``member_phase``, ``generation`` and ``rules`` may be read on any thread.
    ``handle`` raises ``MigrationError`` for a control znode that this member cannot follow: then it must end.
    """

    def __init__(self, *, auto_commit: bool = True) -> None:
        super().__init__(commits_by_itself=auto_commit)
        self.control: ControlRecord | None = None
        """The control znode as this member last followed it; None without a migration.  ``member_phase`` is that of
        this record.  One that cannot be followed is not stored: the member ends with the rules that it has."""
        self._protocols: tuple[str, ...] = ()
        """The protocols of the last ``SetCoordinatorProtocols``: those of the present phase.  Another phase with the
        same protocols sends nothing, because each list of protocols makes the group rebalance."""
        self._acknowledged: Acknowledgement | None = None
        """The content of the last ``WriteAcknowledgement``; None before the first one too.  The writer repeats it in
        each new session, so a lost session changes nothing here."""

    def handle(self, event: MigratingMemberEvent) -> list[MigratingMemberCommand]:
        """Handle one event.  Not re-entrant: the caller executes the commands after the call, and their results are new
        events.

        A ``MigrationError`` leaves the machine as it was, and emits nothing.
        """
        assert not self._emitted, "one event at a time"
        match event:
            case val.ControlChanged(control):
                self._control_changed(control)
            case val.GenerationChanged(generation):
                self.generation = generation
            case val.SideCommanded(side, command) if side is ZOOKEEPER:
                self._zookeeper_commanded(command)
            case val.SideCommanded(_, command):
                self._coordinator_commanded(command)
            case val.ZooKeeperOffsetsRead(stored):
                self.positions.zookeeper_read({tp: at for tp, at in stored.items() if self.partitions.is_owned(tp)})
                self.partitions.update_deferred_starts(stored)
                self._sync_stores()
            case val.CommitStarted(call, partitions):
                assert call not in self._commits, "a commit starts once"
                self._commits[call] = (self.rules.commit_order, partitions)
            case val.CommitFinished(call):
                del self._commits[call]
            case val.KafkaWriteFinished():
                self._kafka_write_finished(event)
            case val.KafkaCommitted(offsets):
                self._kafka_committed(offsets)
            case val.KafkaOffsetsRead(offsets):
                self._kafka_read(offsets)
            case _:
                self._processor_reported(event)
        if not isinstance(event, PartitionEvent | val.CommitStarted):
            # Neither changes the acknowledgement, and the first one is frequent.
            self._acknowledge()
        commands, self._emitted = self._emitted, []
        return commands

    @property
    def is_caught_up(self) -> bool:
        """Whether the phase is acknowledged, both stores have all offsets, and ZooKeeper needs no further write.

        While it is False, the caller reports the offsets of ZooKeeper again at each tick: that repeats rejected writes.
        Otherwise it reports only changes, because a report costs a pass over all partitions.
        """
        if self._acknowledged is None or self._acknowledged.behind > 0:
            return False
        return self.rules.active_side is ZOOKEEPER or not self.positions.is_zookeeper_behind(self.partitions.owned)

    # --- the phase ----------------------------------------------------------------------------------------------

    def _control_changed(self, control: ControlRecord | None) -> None:
        """Follow this control znode; the order of the steps is that of the head of this file.

        Raises ``MigrationError`` before any change.  ``is_anew`` is also True for the same phase at another epoch: that
        is a second migration, or a second rollback, and its offsets need the provenance of the new epoch.
        """
        member_phase = member_phase_of(control)
        is_anew = control is not None and (self.control is None or control.epoch != self.control.epoch)
        if is_anew:
            self.positions.forget_kafka()
        before, self.control, self.member_phase = self.rules, control, member_phase
        if self.rules.protocols != self._protocols:
            self._protocols = self.rules.protocols
            self._emit(val.SetCoordinatorProtocols(self._protocols))
        if before.active_side is not self.rules.active_side:
            self._activate(self.rules.active_side)
            assert not self.partitions.awaited_by(self._passive_side), "the passive side waits for no drain"
        if self.rules.zookeeper_assignment is ZooKeeperAssignment.COMPUTED:
            self._end_drains_of_coordinator_side()
        if is_anew or before is not self.rules:
            reads = self.rules.active_side is COORDINATOR and self._assigns_from_coordinator
            for one in self.partitions.values():
                one.awaits_kafka_offset = reads and one.assigned_thread is not None
            if reads and self.partitions.assigned:
                # The mirrored offset of a partition without new records may be missing in ZooKeeper.
                self._emit(val.ReadFromKafka(frozenset(self.partitions.assigned)))
        self._send_assignment()

    def _end_drains_of_coordinator_side(self) -> None:
        """The ZooKeeper side computes its assignment again, so it need not release what the coordinator side drains.

        It keeps such a partition if it has not begun to release it; so the partition continues.  Otherwise it would be
        owned, and no stream would process it (``a_rollback_comes_during_a_drain_of_the_coordinator_side``).
        """
        awaited = self.partitions.awaited_by(COORDINATOR)
        self._send_drained(COORDINATOR, dict.fromkeys(awaited, UNKNOWN_POSITION))
        self._answer_drained(tp for tp in self.partitions.drained if not self.partitions[tp].is_answered)

    @property
    def _passive_side(self) -> MembershipSide:
        return COORDINATOR if self.rules.active_side is ZOOKEEPER else ZOOKEEPER

    def _activate(self, side: MembershipSide) -> None:
        """This side is active from now on; drains for which the other side waits are answered at once.

        What runs and belongs to this side too continues, also in the middle of a drain that this side asked for
        (``the_cut_over_comes_during_a_release``).  What does not belong to it is dropped; its records since the last
        commit are read again by the owner.  What belongs to it and does not run is started: by the deferred start of
        the ZooKeeper side, or at the offset that Kafka has now.
        """
        assert self.rules.active_side is side, "the rules change first"
        other = self._passive_side
        self._send_drained(other, dict.fromkeys(self.partitions.awaited_by(other), UNKNOWN_POSITION))
        assigned, awaited = self.partitions.assigned, self.partitions.awaited_by(side)
        has = self.partitions.owned if side is ZOOKEEPER else assigned.keys() | awaited
        self._stop(self.partitions.running.keys() - has, NOT_HELD_BY_ACTIVE_SIDE)
        # We own these, and they do not run: no drain is necessary.
        self._send_drained(side, dict.fromkeys(awaited - self.partitions.running.keys(), UNKNOWN_POSITION))
        self.partitions.drain(awaited)
        self._answer_drained(self.partitions.drained)
        assert self.partitions.running.keys() <= has, "nothing runs that the active side does not have"
        if side is ZOOKEEPER:
            for _, one in sorted(self.partitions.items()):
                if one.deferred_start is not None:
                    self.partitions.start(one.deferred_start)
                    one.deferred_start = None
        elif assigned.keys() - self.partitions.running.keys():
            # Their offsets of when they were assigned are old: other members may have owned them since.
            self._emit(val.ReadFromKafka(frozenset(assigned.keys() - self.partitions.running.keys())))

    # --- the acknowledgement ----------------------------------------------------------------------------------------

    def _acknowledge(self) -> None:
        """Write the acknowledgement if it has changed; deleting it is a change too."""
        acknowledgement = self._acknowledgement()
        if acknowledgement != self._acknowledged:
            self._acknowledged = acknowledgement
            self._emit(val.WriteAcknowledgement(acknowledgement))

    def _acknowledgement(self) -> Acknowledgement | None:
        """None until this member has done what the phase requires, and in a copy, which waits for no member.

        It can become None again: a generation that is lost, or an owner node that comes late, is not the phase.
        """
        now = self.control
        if now is None or now.strategy != "dual" or not self._is_phase_reached():
            return None
        return Acknowledgement(now.migration_id, now.epoch, now.phase, self.generation, self._count_behind())

    def _is_phase_reached(self) -> bool:
        """Whether this member does nothing any more by the rules of another phase.

        A commit in the order of the previous phase may still run, and owner nodes are deleted one by one.
        """
        if (self.generation != NO_GENERATION) != bool(self.rules.protocols):
            return False
        if any(order is not self.rules.commit_order for order, _ in self._commits.values()):
            return False
        return not (self.rules.zookeeper_assignment is ZooKeeperAssignment.EMPTY and self.partitions.has_owned)

    def _count_behind(self) -> int:
        """How many partitions do not meet the requirements of the phase yet.

        Where the coordinator assigns, each assigned partition must be owned, with a known offset in ZooKeeper.  And:

            LOCKED, COPIED  Kafka has the offset of ZooKeeper
            RETURNING       ZooKeeper has the offset that Kafka had first at this epoch.  Not the last one: under load
                            one is always on its way, and the tool would see 0 by chance
                            (``a_rollback_does_not_wait_for_later_commits``).
            RETURNED        each offset was written to Kafka once with the provenance of this epoch.  Kafka follows
                            after that, and the phase does not wait for it.
        """
        if not self._assigns_from_coordinator:
            return 0
        owned = self.partitions.owned
        if self.rules.active_side is COORDINATOR:
            assert self.member_phase is MemberPhase.RETURNING, "in the others it needs no owner node"
            is_late = self.positions.partitions_behind_in_zookeeper(owned)
        elif self.member_phase is MemberPhase.RETURNED:
            is_late = self.positions.not_written_to_kafka()
        else:
            is_late = set(self.positions.missing_in_kafka(self.rules.commit_order))
        unknown = {tp for tp in owned if self.partitions[tp].awaits_kafka_offset or not self.positions.is_known(tp)}
        return len((self.partitions.assigned.keys() - owned) | unknown | is_late)
