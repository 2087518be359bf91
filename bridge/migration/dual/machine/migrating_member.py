"""A member of both worlds: between its two memberships and what works on the partitions.  Pure.

    ZooKeeper's side ----Told----> MigratingMember ---TellHolder---> holder (streams, or a keeper)
           ^---Give, Say----------        |  ^ ---HolderSaid---------'
    coordinator's side --Told----> -------'  '-- Say --> (as their holder)

What a new phase of the control znode changes, and when it is acknowledged; what happens between is in ``sides``.
When the other side begins to hold, what runs and belongs to it as well goes on untouched: no drain, no fetch again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.migration.dual.machine import machine_messages as val
from bridge.migration.dual.machine.acknowledgement import NO_GENERATION, Acknowledgement
from bridge.migration.dual.machine.phase_rules import MemberPhase, MembershipSide, ZooKeeperAssignment, member_phase_of
from bridge.migration.dual.machine.side_arbiter import COORDINATOR, UNKNOWN_POSITION, ZOOKEEPER, SideArbiter
from zkconsumer.member import ownership
from zkconsumer.member.ownership import PartitionEvent

if TYPE_CHECKING:
    from bridge.migration.dual.machine.machine_messages import MigratingMemberCommand, MigratingMemberEvent
    from zkconsumer.types import TopicPartition
    from zkconsumer.zk.znode_formats import ControlRecord

NOT_HELD_BY_ACTIVE_SIDE = "the side that holds from here on does not have it"


class MigratingMember(SideArbiter):
    """One member; ``handle`` takes an event and gives back what must now be done, in order.

    ``commits_by_itself``: where a partition came to rest is committed (``auto.commit.enable``).
    Raises ``MigrationError`` for a control znode that this member cannot follow: then it must end.
    """

    def __init__(self, *, auto_commit: bool = True) -> None:
        super().__init__(commits_by_itself=auto_commit)
        self.control: ControlRecord | None = None
        self._protocols: tuple[str, ...] = ()
        self._acknowledged: Acknowledgement | None = None

    def handle(self, event: MigratingMemberEvent) -> list[MigratingMemberCommand]:
        """Take one event in."""
        self._emitted.clear()
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
                self.positions.zookeeper_read({tp: at for tp, at in stored.items() if tp in self.owned})
                self._sync_stores()
            case val.CommitStarted(call, partitions):
                self._commits[call] = (self.rules.commit_order, partitions)
            case val.CommitFinished(call, in_kafka):
                del self._commits[call]
                self._kafka_committed(in_kafka)
            case val.KafkaWriteFinished():
                self._kafka_write_finished(event)
            case val.KafkaCommitted(offsets):
                self._kafka_committed(offsets)
            case val.KafkaOffsetsRead(offsets):
                self._kafka_read(offsets)
            case _:
                self._processor_reported(event)
        if not isinstance(event, PartitionEvent | val.CommitStarted):
            # Neither changes what is acknowledged, and the first comes once a partition.
            self._acknowledge()
        return list(self._emitted)

    @property
    def is_caught_up(self) -> bool:
        """Whether the phase is acknowledged, no partition is behind, and nothing is to be written to ZooKeeper."""
        is_on_its_way = self.rules.active_side is COORDINATOR and self.positions.is_zookeeper_behind(self.owned)
        return self._acknowledged is not None and self._acknowledged.behind == 0 and not is_on_its_way

    # --- the phase ----------------------------------------------------------------------------------------------

    def _control_changed(self, control: ControlRecord | None) -> None:
        stance = member_phase_of(control)
        is_anew = control is not None and (self.control is None or control.epoch != self.control.epoch)
        if is_anew:
            self.positions.forget_kafka()
        before, self.control, self.member_phase = self.rules, control, stance
        if self.rules.protocols != self._protocols:
            self._protocols = self.rules.protocols
            self._emit(val.SetCoordinatorProtocols(self._protocols))
        if before.active_side is not self.rules.active_side:
            self._activate(self.rules.active_side)
        if is_anew or before is not self.rules:
            self._pending_kafka_reads = (
                set(self.assigned)
                if self.rules.active_side is COORDINATOR and self._assigns_from_coordinator
                else set()
            )
            if self._pending_kafka_reads:
                # What could not be mirrored, and nobody reads, would stay behind in ZooKeeper.
                self._emit(val.ReadFromKafka(frozenset(self._pending_kafka_reads)))
        self._send_assignment()

    def _activate(self, side: MembershipSide) -> None:
        """This side holds from here on; what the other one waited for is no business of its any more."""
        other = COORDINATOR if side is ZOOKEEPER else ZOOKEEPER
        self._send_drained(other, dict.fromkeys(self._draining_for[other], UNKNOWN_POSITION))
        self._drained_behind_own_write.clear()
        self._drained_behind_other_write.clear()
        has = self.owned if side is ZOOKEEPER else self.assigned.keys() | self._draining_for[side]
        self.partitions.stop(self.partitions.running.keys() - has, NOT_HELD_BY_ACTIVE_SIDE)
        # An owner node of ours without anything that runs: the other side would have said so when it gave it back.
        self._send_drained(
            side, dict.fromkeys(self._draining_for[side] - self.partitions.running.keys(), UNKNOWN_POSITION)
        )
        self.partitions.drain(self._draining_for[side])
        self._partitions_drained(self.partitions.drained)
        if side is ZOOKEEPER:
            for tp in sorted(self._deferred_starts.keys() & self.owned):
                self._start(_for_partition(self._deferred_starts[tp], tp))
            self._deferred_starts.clear()
        elif self.assigned.keys() - self.partitions.running.keys():
            # Where they stood when they were given is long ago: others had them meanwhile.
            self._emit(val.ReadFromKafka(frozenset(self.assigned.keys() - self.partitions.running.keys())))

    # --- the acknowledgement ----------------------------------------------------------------------------------------

    def _acknowledge(self) -> None:
        said = self._acknowledgement()
        if said != self._acknowledged:
            self._acknowledged = said
            self._emit(val.WriteAcknowledgement(said))

    def _acknowledgement(self) -> Acknowledgement | None:
        """None until what the phase wants of this member is so, and where nobody asks: a copy waits for no member."""
        now = self.control
        if now is None or now.strategy != "dual" or not self._is_phase_reached():
            return None
        return Acknowledgement(now.migration_id, now.epoch, now.phase, self.generation, self._count_behind())

    def _is_phase_reached(self) -> bool:
        """A commit that began the old way may end after the phase changed; owner nodes go one by one."""
        if (self.generation != NO_GENERATION) != bool(self.rules.protocols):
            return False
        if any(order is not self.rules.commit_order for order, _ in self._commits.values()):
            return False
        return not (self.rules.zookeeper_assignment is ZooKeeperAssignment.EMPTY and self.owned)

    def _count_behind(self) -> int:
        """How many partitions are not yet as the phase wants them."""
        if not self._assigns_from_coordinator:
            return 0
        if self.rules.active_side is COORDINATOR:
            is_late = self.positions.partitions_behind_in_zookeeper(self.owned)
        elif self.member_phase is MemberPhase.RETURNED:
            is_late = self.positions.not_written_to_kafka()
        else:
            is_late = set(self.positions.missing_in_kafka(self.rules.commit_order))
        unknown = {tp for tp in self.owned if tp in self._pending_kafka_reads or not self.positions.is_known(tp)}
        return len((self.assigned.keys() - self.owned) | unknown | is_late)


def _for_partition(command: ownership.StartFetching, tp: TopicPartition) -> ownership.StartFetching:
    return ownership.StartFetching(
        {tp: command.positions[tp]},
        {tp: command.threads[tp]},
        {tp: command.sources[tp]},
        {tp: command.epochs[tp]},
    )
