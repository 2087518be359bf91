"""The partitions that the processor works on, and which of them are drained.  Pure.

start --> running --drain--> draining --PartitionsDrained--> drained --resume--> running
             '------------------ stop, from any state: dropped --------------'
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from zkconsumer.member import ownership
from zkconsumer.types import TopicPartition


class RunningPartitions:
    """``emit`` receives the commands for the partition processor."""

    def __init__(self, emit: Callable[[ownership.PartitionCommand], None]) -> None:
        self.running: dict[TopicPartition, str] = {}
        """Partition -> thread; also drained partitions."""
        self._emit = emit
        self._drain_positions: dict[TopicPartition, int | None] = {}
        """The draining partitions (None), and the drained ones with their positions."""

    @property
    def drained(self) -> dict[TopicPartition, int]:
        """The drained partitions, and the next offset of each."""
        return {tp: at for tp, at in self._drain_positions.items() if at is not None}

    def start(self, command: ownership.StartFetching) -> None:
        """Start those that do not run."""
        fresh = {tp: at for tp, at in command.positions.items() if tp not in self.running}
        if not fresh:
            return
        threads = {tp: command.threads[tp] for tp in fresh}
        self.running.update(threads)
        sources = {tp: command.sources[tp] for tp in fresh}
        epochs = {tp: command.epochs[tp] for tp in fresh}
        self._emit(ownership.StartFetching(fresh, threads, sources, epochs))

    def drain(self, partitions: Iterable[TopicPartition]) -> None:
        """Drain those that run and neither drain nor are drained."""
        fresh = tuple(tp for tp in sorted(partitions) if tp in self.running and tp not in self._drain_positions)
        if fresh:
            self._drain_positions.update(dict.fromkeys(fresh))
            self._emit(ownership.Drain(fresh))

    def force_drain(self, partitions: Iterable[TopicPartition]) -> None:
        """The drain of these timed out."""
        late = tuple(
            tp for tp in sorted(partitions) if tp in self._drain_positions and self._drain_positions[tp] is None
        )
        if late:
            self._emit(ownership.ForceDrain(late))

    def drain_finished(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The processor drained these; returns those that were to be drained."""
        ours = {tp: at for tp, at in positions.items() if tp in self._drain_positions}
        self._drain_positions.update(ours)
        return ours

    def resume(self, command: ownership.MoveToThread) -> None:
        """Continue these drained partitions."""
        self.running.update(command.threads)
        for tp in command.threads:
            self._drain_positions.pop(tp, None)
        self._emit(command)

    def stop(self, partitions: Collection[TopicPartition], why: str) -> None:
        """Drop these: they are not ours any more."""
        gone = tuple(tp for tp in sorted(partitions) if self.running.pop(tp, None) is not None)
        for tp in gone:
            self._drain_positions.pop(tp, None)
        if gone:
            self._emit(ownership.DropPartitions(gone, why))
