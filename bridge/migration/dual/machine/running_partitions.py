"""What the holder works on, whoever told it, and what of it comes to rest.  Pure.

start --> running --drain--> draining --arrived--> at rest --move--> running
             '------------------ stop, from anywhere: gone ------'
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from zkconsumer.member import ownership
from zkconsumer.types import TopicPartition


class RunningPartitions:
    """``say`` takes what the holder is to be told."""

    def __init__(self, say: Callable[[ownership.PartitionCommand], None]) -> None:
        self.running: dict[TopicPartition, str] = {}
        """Partition -> thread; what is at rest included."""
        self._emit = say
        self._drain_positions: dict[TopicPartition, int | None] = {}
        """What was told to come to rest: where it stands, None while it is not known."""

    @property
    def drained(self) -> dict[TopicPartition, int]:
        """What nothing more is handed out of, and the next offset."""
        return {tp: at for tp, at in self._drain_positions.items() if at is not None}

    def start(self, command: ownership.StartFetching) -> None:
        """Begin with those that are not worked on already."""
        fresh = {tp: at for tp, at in command.positions.items() if tp not in self.running}
        if not fresh:
            return
        threads = {tp: command.threads[tp] for tp in fresh}
        self.running.update(threads)
        sources = {tp: command.sources[tp] for tp in fresh}
        epochs = {tp: command.epochs[tp] for tp in fresh}
        self._emit(ownership.StartFetching(fresh, threads, sources, epochs))

    def drain(self, partitions: Iterable[TopicPartition]) -> None:
        """Bring these to rest, where that was not asked before."""
        fresh = tuple(tp for tp in sorted(partitions) if tp in self.running and tp not in self._drain_positions)
        if fresh:
            self._drain_positions.update(dict.fromkeys(fresh))
            self._emit(ownership.Drain(fresh))

    def force_drain(self, partitions: Iterable[TopicPartition]) -> None:
        """Do not wait for these any longer."""
        late = tuple(
            tp for tp in sorted(partitions) if tp in self._drain_positions and self._drain_positions[tp] is None
        )
        if late:
            self._emit(ownership.ForceDrain(late))

    def drain_finished(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The holder says that these are at rest; those of them that it was asked for."""
        ours = {tp: at for tp, at in positions.items() if tp in self._drain_positions}
        self._drain_positions.update(ours)
        return ours

    def resume(self, command: ownership.MoveToThread) -> None:
        """These are worked on again."""
        self.running.update(command.threads)
        for tp in command.threads:
            self._drain_positions.pop(tp, None)
        self._emit(command)

    def stop(self, partitions: Collection[TopicPartition], why: str) -> None:
        """These are not ours any more."""
        gone = tuple(tp for tp in sorted(partitions) if self.running.pop(tp, None) is not None)
        for tp in gone:
            self._drain_positions.pop(tp, None)
        if gone:
            self._emit(ownership.DropPartitions(gone, why))
