"""Fetches that wait for records: Kafka's ``DelayedFetch`` and its purgatory.

Each fetch waits at the partitions that it requested.  An append adds its bytes to the fetches that wait at its
partition.  A fetch with enough bytes reads again, and so does a fetch whose wait time is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bridge.broker.timers import ScheduledCall, Scheduler
from zkconsumer.types import TopicPartition


@dataclass(slots=True, eq=False)
class DelayedFetch:
    """``bytes_missing``: how many bytes are still needed before it is answered early."""

    partitions: tuple[TopicPartition, ...]
    bytes_missing: int
    complete: Callable[[], None]
    timer: ScheduledCall | None = None


class DelayedFetchPurgatory:
    """All delayed fetches."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._by_partition: dict[TopicPartition, dict[DelayedFetch, None]] = {}

    def add(
        self, partitions: Iterable[TopicPartition], bytes_missing: int, wait_ms: int, complete: Callable[[], None]
    ) -> Callable[[], object]:
        """``complete`` is called once: after this many bytes were appended, or after ``wait_ms``.

        Returns a function that removes the fetch: then ``complete`` is not called any more.
        """
        delayed = DelayedFetch(tuple(partitions), bytes_missing, complete)
        for tp in delayed.partitions:
            self._by_partition.setdefault(tp, {})[delayed] = None
        delayed.timer = self._scheduler.call_in(wait_ms, lambda: self._complete(delayed))
        return lambda: self._remove(delayed)

    def on_append(self, topic: str, partition: int, size: int) -> None:
        """This many bytes were appended."""
        for delayed in list(self._by_partition.get(TopicPartition(topic, partition), ())):
            delayed.bytes_missing -= size
            if delayed.bytes_missing <= 0:
                self._complete(delayed)

    def on_partition_changed(self, topic: str, partition: int) -> None:
        """The partition has moved or was deleted: complete the waiting fetches at once."""
        for delayed in list(self._by_partition.get(TopicPartition(topic, partition), ())):
            self._complete(delayed)

    @property
    def waiting_count(self) -> int:
        """How many fetches wait."""
        return len({delayed for waiting in self._by_partition.values() for delayed in waiting})

    def _complete(self, delayed: DelayedFetch) -> None:
        if self._remove(delayed):
            delayed.complete()

    def _remove(self, delayed: DelayedFetch) -> bool:
        """Remove it; returns whether it was still waiting."""
        for tp in delayed.partitions:
            waiting = self._by_partition.get(tp, {})
            waiting.pop(delayed, None)
            if not waiting:
                self._by_partition.pop(tp, None)
        timer, delayed.timer = delayed.timer, None
        if timer is not None:
            timer.cancel()
        return timer is not None
