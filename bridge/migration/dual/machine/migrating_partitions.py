"""Each partition of a migrating member: what the processor does with it, and what each side has of it.  Pure.

   IDLE --ProcessingStarted--> RUNNING --DrainRequested--> DRAINING --PartitionDrained--> DRAINED
   DRAINED --KafkaWriteAwaited--> AWAITING_KAFKA --KafkaWaitEnded--> DRAINED
   DRAINED --ProcessingResumed--> RUNNING

ProcessingStopped leads to IDLE from every state.

Theory of operation.  ``MigratingPartitions`` is the only table of partitions: ``SideArbiter`` decides, and this file
records the decision and gives the processor one command for all partitions that it concerns.  The states are those of
the *processor*.  What a side has is independent of them, because the passive side acquires and releases partitions
without the processor: a partition can be owned and idle, or assigned and processed for the other side.

Who waits for whom:

    DRAINING         the processor waits for the program, which has a record of the partition.  It reports in any case,
                     at the latest after ForceDrain.
    AWAITING_KAFKA   the ZooKeeper side waits for the answer of one write to Kafka.  It gets the answer ``drained``
                     once, when the write ends, or earlier, when its own drain timeout ends the wait (ForceDrain).
    waiting_sides    a side that sent Drain, and has no answer.  An answer removes it, whatever the state is.

Order: a wait of a stopped partition ends with the ownership.  An answer of Kafka that arrives later is not an answer to
the next drain of the same partition
(``test_an_answer_of_kafka_about_an_earlier_ownership_does_not_end_a_drain``).  A process that was paused changes
nothing here: all state is in memory, and the answers arrive later.

One partition, from the first assignment to the release, while the ZooKeeper side is active:

    coordinator side: StartFetching   assigned_thread is set; the ZooKeeper side gets the assignment
    ZooKeeper side: StartFetching     is_owned; RUNNING
    coordinator side: Drain           assigned_thread is None; DRAINING; the coordinator side waits
    ZooKeeper side: Drain             it got the smaller assignment, and waits too
    processor: PartitionsDrained      DRAINED; the ZooKeeper side has its answer, and commits: is_answered
    ZooKeeper side: DropPartitions    the owner node is deleted; IDLE; now the coordinator side has its answer

After the last step no side has the partition, and it leaves the table (``is_unused``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, ClassVar

from bridge.migration.dual.machine.phase_rules import MembershipSide
from zkconsumer.member import ownership
from zkconsumer.member.offset_stores import OffsetSource
from zkconsumer.member.state_machine import StateMachine, TransitionTable, transitions_to
from zkconsumer.types import TopicPartition

UNKNOWN_POSITION = -1
"""The processor has delivered no record of the partition, or the position must not be committed."""


class ProcessingState(Enum):
    """What the processor does with one partition."""

    IDLE = "idle"
    """The processor does not have it; a side may own it, or be assigned to it."""
    RUNNING = "running"
    """Its records are delivered."""
    DRAINING = "draining"
    """No further record is delivered; the program has one that it has not acknowledged."""
    AWAITING_KAFKA = "awaiting kafka"
    """Drained; the answer to the ZooKeeper side waits for a write to Kafka."""
    DRAINED = "drained"
    """All delivered records are acknowledged, or the drain timed out.  The processor keeps the queued records."""


@dataclass(frozen=True, slots=True)
class ProcessingStarted:
    """The processor starts the partition for this thread."""

    thread: str


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """The processor stops to deliver its records."""


@dataclass(frozen=True, slots=True)
class PartitionDrained:
    """The processor reports the next offset to consume; -1: not known."""

    position: int


@dataclass(frozen=True, slots=True)
class KafkaWriteAwaited:
    """The ZooKeeper side gets its answer when this write ends.

    ``commits_position``: the write commits the position, which is valid only if Kafka accepts it.
    """

    number: int
    commits_position: bool


@dataclass(frozen=True, slots=True)
class KafkaWaitEnded:
    """The ZooKeeper side has its answer."""


@dataclass(frozen=True, slots=True)
class ProcessingResumed:
    """The processor continues the partition, for this thread."""

    thread: str


@dataclass(frozen=True, slots=True)
class ProcessingStopped:
    """The processor drops the partition: it does not belong to the active side any more."""


class MigratingPartition(StateMachine):
    """One partition of one member."""

    INITIAL = ProcessingState.IDLE

    def __init__(self) -> None:
        super().__init__()
        self.thread = ""
        """The thread that processes it, in every state except IDLE, in which it is ""."""
        self.position = UNKNOWN_POSITION
        """The next offset to consume, as the processor reported it; -1 except in DRAINED and AWAITING_KAFKA.  It is -1
        there too if the processor never fetched the partition."""
        self.awaited_write = 0
        """The number of the awaited write to Kafka; 0 except in AWAITING_KAFKA."""
        self.commits_position = False
        """Whether the awaited write commits ``position``; False except in AWAITING_KAFKA."""
        self.is_answered = False
        """Whether the active side has its answer to ``Drain`` and has neither dropped the partition nor moved it: it
        may be releasing it, so the partition must not continue
        (``test_a_late_acknowledgement_does_not_resume_a_partition_that_is_being_released``).  True only in DRAINED."""
        self.assigned_thread: str | None = None
        """The thread in the assignment of the coordinator side; None exactly when it is not in that assignment."""
        self.is_owned = False
        """Whether the ZooKeeper side has an owner node of ours, as far as it has reported: from its StartFetching to
        its DropPartitions, also while it is passive."""
        self.waiting_sides: set[MembershipSide] = set()
        """The sides that sent ``Drain`` and have no answer.  The ZooKeeper side waits only while it is active; the
        coordinator side also while it is passive, until the ZooKeeper side has deleted the owner node."""
        self.is_new = False
        """Whether the topic got it while the coordinator side was a member, and it has not run since.  It is read from
        its beginning, regardless of the reset policy (``new.partitions.from.beginning``)."""
        self.is_announced_new = False
        """Whether it was announced to the ZooKeeper side as new, which happens once for each assignment."""
        self.deferred_start: ownership.StartFetching | None = None
        """The start that the ZooKeeper side sent while it was passive, of this partition alone, at the offset that
        ZooKeeper has now; it is executed when that side becomes active, unless the partition runs then.  Only of an
        owned partition."""
        self.awaits_kafka_offset = False
        """Whether Kafka has not returned its committed offset yet; in phase ``returning`` only, and only of an assigned
        partition.  It counts as behind: nothing else shows whether ZooKeeper has the last mirrored offset."""

    def handle(self, event: object) -> list[Any]:
        """See ``StateMachine``; checks after each transition that the values belong to the state."""
        commands = super().handle(event)
        is_drained = self.state in (ProcessingState.DRAINED, ProcessingState.AWAITING_KAFKA)
        is_awaiting = self.state is ProcessingState.AWAITING_KAFKA
        assert (self.thread == "") == (self.state is ProcessingState.IDLE), "a thread processes it unless it is idle"
        assert is_drained or self.position == UNKNOWN_POSITION, "only a drained partition has a final position"
        assert is_drained or not self.is_answered, "an answer is given for a drained partition"
        assert (self.awaited_write > 0) == is_awaiting, "a write is awaited exactly in AWAITING_KAFKA"
        assert is_awaiting or not self.commits_position, "without an awaited write no position depends on one"
        return commands

    @property
    def is_running(self) -> bool:
        """Whether the processor has it: running, draining or drained."""
        return self.state is not ProcessingState.IDLE

    @property
    def is_unused(self) -> bool:
        """Whether nothing has to be remembered of it.

        ``deferred_start`` belongs to an owned partition, and ``awaits_kafka_offset`` to an assigned one.
        """
        assert self.deferred_start is None or self.is_owned, "a start is deferred of an owned partition only"
        return not (
            self.is_running
            or self.is_owned
            or self.assigned_thread is not None
            or self.waiting_sides
            or self.is_new
            or self.is_announced_new
        )

    @transitions_to(ProcessingState.RUNNING)
    def _started(self, event: ProcessingStarted | ProcessingResumed) -> tuple[ProcessingState, list[Any]]:
        assert event.thread, "a partition is processed for a thread"
        assert self.awaited_write == 0, "a partition whose release awaits Kafka does not continue"
        self.thread = event.thread
        self.position, self.is_answered = UNKNOWN_POSITION, False
        return ProcessingState.RUNNING, []

    @transitions_to(ProcessingState.DRAINING)
    def _drain_requested(self, _: DrainRequested) -> tuple[ProcessingState, list[Any]]:
        assert self.position == UNKNOWN_POSITION, "a partition that delivers records has no final position"
        return ProcessingState.DRAINING, []

    @transitions_to(ProcessingState.DRAINED)
    def _drained(self, event: PartitionDrained) -> tuple[ProcessingState, list[Any]]:
        # Also in DRAINED: after ForceDrain the program may still acknowledge its record, which is a new position.
        assert event.position >= UNKNOWN_POSITION, "a position is an offset, or not known"
        self.position = event.position
        return ProcessingState.DRAINED, []

    @transitions_to(ProcessingState.AWAITING_KAFKA)
    def _write_awaited(self, event: KafkaWriteAwaited) -> tuple[ProcessingState, list[Any]]:
        assert event.number > 0, "writes have numbers from 1 on"
        assert MembershipSide.ZOOKEEPER in self.waiting_sides, "only the ZooKeeper side waits for Kafka"
        self.awaited_write, self.commits_position = event.number, event.commits_position
        return ProcessingState.AWAITING_KAFKA, []

    @transitions_to(ProcessingState.DRAINED)
    def _wait_ended(self, _: KafkaWaitEnded) -> tuple[ProcessingState, list[Any]]:
        self.awaited_write, self.commits_position = 0, False
        return ProcessingState.DRAINED, []

    @transitions_to(ProcessingState.IDLE)
    def _stopped(self, _: ProcessingStopped) -> tuple[ProcessingState, list[Any]]:
        # Every value of the processing ends here, also the awaited write: its answer must not end a later drain.
        self.thread, self.position, self.is_answered = "", UNKNOWN_POSITION, False
        self.awaited_write, self.commits_position = 0, False
        return ProcessingState.IDLE, []

    # No PartitionDrained in AWAITING_KAFKA: the position that is being written must be the one of the answer, and a
    # second report would start a second write.
    TRANSITIONS: ClassVar[TransitionTable] = {
        (ProcessingState.IDLE, ProcessingStarted): _started,
        (ProcessingState.RUNNING, DrainRequested): _drain_requested,
        (ProcessingState.RUNNING, ProcessingResumed): _started,
        (ProcessingState.RUNNING, ProcessingStopped): _stopped,
        (ProcessingState.DRAINING, PartitionDrained): _drained,
        (ProcessingState.DRAINING, ProcessingStopped): _stopped,
        (ProcessingState.DRAINED, PartitionDrained): _drained,
        (ProcessingState.DRAINED, KafkaWriteAwaited): _write_awaited,
        (ProcessingState.DRAINED, ProcessingResumed): _started,
        (ProcessingState.DRAINED, ProcessingStopped): _stopped,
        (ProcessingState.AWAITING_KAFKA, KafkaWaitEnded): _wait_ended,
        (ProcessingState.AWAITING_KAFKA, ProcessingStopped): _stopped,
    }


class MigratingPartitions:
    """All partitions of one member; ``emit`` receives the commands for the partition processor.

    Every change of a state that concerns the processor is made here, together with its command: so the table and the
    processor never differ (``MigratingMemberConversation`` compares them after each event of a test).
    """

    def __init__(self, emit: Callable[[ownership.PartitionCommand], None]) -> None:
        self._emit = emit
        self._table: dict[TopicPartition, MigratingPartition] = {}
        """Every partition that a side has, or that the processor has.  An unused one may remain until it is dropped."""

    def __getitem__(self, tp: TopicPartition) -> MigratingPartition:
        """The state of a partition; it is added to the table if it is not in it.

        A method that only asks uses ``is_running``, ``is_owned`` and so on: they add nothing.
        """
        found = self._table.get(tp)
        if found is None:
            found = self._table[tp] = MigratingPartition()
        return found

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._table

    def items(self) -> Iterable[tuple[TopicPartition, MigratingPartition]]:
        """All partitions of the table."""
        return self._table.items()

    def values(self) -> Iterable[MigratingPartition]:
        """Their states."""
        return self._table.values()

    # --- views ------------------------------------------------------------------------------------------------------

    @property
    def running(self) -> dict[TopicPartition, str]:
        """Partition -> thread, of all partitions that the processor has; also of drained ones.

        A view, as those below: it costs one pass over the table, so an event about few partitions must not use it.
        """
        return {tp: one.thread for tp, one in self._table.items() if one.is_running}

    @property
    def assigned(self) -> dict[TopicPartition, str]:
        """Partition -> thread: the assignment of the coordinator side."""
        return {tp: one.assigned_thread for tp, one in self._table.items() if one.assigned_thread is not None}

    @property
    def owned(self) -> set[TopicPartition]:
        """The partitions for which the ZooKeeper side has an owner node of ours."""
        return {tp for tp, one in self._table.items() if one.is_owned}

    @property
    def has_owned(self) -> bool:
        """Whether ``owned`` is not empty."""
        return any(one.is_owned for one in self._table.values())

    @property
    def drained(self) -> dict[TopicPartition, int]:
        """The drained partitions for which no write to Kafka is awaited, and the next offset of each."""
        return {tp: one.position for tp, one in self._table.items() if one.state is ProcessingState.DRAINED}

    def is_running(self, tp: TopicPartition) -> bool:
        """Whether the processor has it."""
        return tp in self._table and self._table[tp].is_running

    def is_owned(self, tp: TopicPartition) -> bool:
        """Whether the ZooKeeper side has an owner node of ours."""
        return tp in self._table and self._table[tp].is_owned

    def is_assigned(self, tp: TopicPartition) -> bool:
        """Whether it is in the assignment of the coordinator side."""
        return tp in self._table and self._table[tp].assigned_thread is not None

    def is_awaited(self, tp: TopicPartition, side: MembershipSide) -> bool:
        """Whether this side waits until it is drained."""
        return tp in self._table and side in self._table[tp].waiting_sides

    def awaited_by(self, side: MembershipSide) -> set[TopicPartition]:
        """The partitions for which this side waits until they are drained."""
        return {tp for tp, one in self._table.items() if side in one.waiting_sides}

    def awaiting_write(
        self, number: int, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, MigratingPartition]:
        """Those of the ``partitions`` of a write to Kafka that are reported drained when it ends."""
        return {tp: self._table[tp] for tp in partitions if tp in self and self._table[tp].awaited_write == number}

    # --- changes ----------------------------------------------------------------------------------------------------

    def start(self, command: ownership.StartFetching) -> None:
        """Start those that do not run; none of them is new after that.

        One that runs, or drains, is left alone: its position is further than that of the command (after a change of
        the active side, or when the coordinator side assigns again what it gave up).
        """
        fresh: dict[TopicPartition, int] = {}
        for tp, at in command.positions.items():
            one = self[tp]
            one.is_new = False
            if not one.is_running:
                one.handle(ProcessingStarted(command.threads[tp]))
                fresh[tp] = at
        if fresh:
            threads = {tp: command.threads[tp] for tp in fresh}
            sources = {tp: command.sources[tp] for tp in fresh}
            epochs = {tp: command.epochs[tp] for tp in fresh}
            self._emit(ownership.StartFetching(fresh, threads, sources, epochs))

    def update_deferred_starts(self, stored: Mapping[TopicPartition, int]) -> None:
        """ZooKeeper has these offsets; -1: none.

        While the coordinator side is active, this member reads on, and commits to both stores.  A start at the offset
        of the acquisition would deliver those records again.
        """
        for tp, at in stored.items():
            deferred = self._table[tp].deferred_start if tp in self._table else None
            if deferred is not None and at >= 0 and at != deferred.positions[tp]:
                self._table[tp].deferred_start = replace(
                    deferred, positions={tp: at}, sources={tp: OffsetSource.ZOOKEEPER}
                )

    def drain(self, partitions: Iterable[TopicPartition]) -> None:
        """Drain those that run and neither drain nor are drained: the processor refuses a second Drain."""
        fresh = self._in_state(partitions, ProcessingState.RUNNING)
        for tp in fresh:
            self._table[tp].handle(DrainRequested())
        if fresh:
            self._emit(ownership.Drain(fresh))

    def force_drain(self, partitions: Iterable[TopicPartition]) -> None:
        """The drain of these timed out.  Those that drain get a report of the processor at once; others need none."""
        late = self._in_state(partitions, ProcessingState.DRAINING)
        if late:
            self._emit(ownership.ForceDrain(late))

    def drain_finished(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The processor drained these; returns those for which the active side has no answer yet.

        The processor reports a partition again when the program acknowledges a record after ForceDrain.  The active
        side may be deleting the owner node then, so the partition must not continue.
        """
        unanswered: dict[TopicPartition, int] = {}
        for tp, at in positions.items():
            if tp in self._table and self._table[tp].expects(PartitionDrained):
                self._table[tp].handle(PartitionDrained(at))
                if not self._table[tp].is_answered:
                    unanswered[tp] = at
        return unanswered

    def clear_answers(self, partitions: Iterable[TopicPartition]) -> None:
        """The active side does not release these any more, or waits for another answer.

        Precondition: each is in the table.  Called when the active side drains it again, when the other side becomes
        active, and when the coordinator side assigns again what it gave up.
        """
        for tp in partitions:
            self._table[tp].is_answered = False

    def resume(self, command: ownership.MoveToThread) -> None:
        """Continue these drained partitions, with the records that are queued.

        Precondition: the processor has each of them, drained.
        """
        for tp, thread in command.threads.items():
            self[tp].handle(ProcessingResumed(thread))
        self._emit(command)

    def stop(self, partitions: Iterable[TopicPartition], why: str) -> None:
        """Drop these: they are not ours any more.  A side that waits for one of them keeps its wait."""
        gone = tuple(tp for tp in sorted(partitions) if self.is_running(tp))
        for tp in gone:
            self._table[tp].handle(ProcessingStopped())
        if gone:
            self._emit(ownership.DropPartitions(gone, why))

    def discard_unused(self, partitions: Collection[TopicPartition]) -> None:
        """Remove those of which nothing has to be remembered."""
        for tp in partitions:
            if tp in self._table and self._table[tp].is_unused:
                del self._table[tp]

    def _in_state(self, partitions: Iterable[TopicPartition], state: ProcessingState) -> tuple[TopicPartition, ...]:
        return tuple(tp for tp in sorted(partitions) if tp in self._table and self._table[tp].state is state)


def start_of_partition(command: ownership.StartFetching, tp: TopicPartition) -> ownership.StartFetching:
    """The start of one partition of the command."""
    return ownership.StartFetching(
        {tp: command.positions[tp]},
        {tp: command.threads[tp]},
        {tp: command.sources[tp]},
        {tp: command.epochs[tp]},
    )
