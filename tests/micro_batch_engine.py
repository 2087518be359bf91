"""Spark's micro-batch engine without Spark: calls a stream's reader in the order in which Spark 4.2 and 4.3 do.

    a trigger     latestOffset, reportLatestOffset; if there is anything new: offset log, commit(the previous batch),
                  partitions, read, sink, commit log
    a restart     the last batch of the offset log is not in the commit log: partitions of it first, before any
                  latestOffset; its start is the end of the previous batch, or initialOffset, asked again

Every offset is converted to JSON and back, as between the JVM and Python.  ``trigger`` is a generator that stops at
the points of ``CRASH_POINTS``: there the test may run other members, or drop the generator, which is a crash.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from bridge.spark.decode.range_partition import RangePartition
from bridge.spark.source.stream_reader import ZkConsumerStreamReader
from zkconsumer.types import TopicPartition

PLANNED = "planned"
AFTER_WAL = "after_wal"
AFTER_CLAIM = "after_claim"
AFTER_SINK = "after_sink"
AFTER_COMMIT_LOG = "after_commitlog"
CRASH_POINTS = (PLANNED, AFTER_WAL, AFTER_CLAIM, AFTER_SINK, AFTER_COMMIT_LOG)

BATCHES_MAX = 10_000
"""The maximum number of batches of a run to the end, which otherwise might never end."""

OutputRow = tuple[TopicPartition, int]


@dataclass
class FakeSparkCheckpoint:
    """What survives a crash: Spark's two logs, and a sink that accepts a batch once, like the file sink."""

    offsets: list[str] = field(default_factory=list)
    commits: int = 0
    sink: dict[int, list[OutputRow]] = field(default_factory=dict)

    @property
    def rows(self) -> list[OutputRow]:
        """All rows in the sink."""
        return [row for _, rows in sorted(self.sink.items()) for row in rows]


class MicroBatchEngine:
    """One run of a query, from a checkpoint."""

    def __init__(
        self,
        make_reader: Callable[[], ZkConsumerStreamReader],
        checkpoint: FakeSparkCheckpoint,
        *,
        available_now: bool = False,
        read: Callable[[RangePartition], Iterable[int]] | None = None,
    ) -> None:
        """``read``: returns the offsets that a task reads; without it a task reads all offsets of its range."""
        self._read = read or (lambda task: range(task.wanted.first, task.wanted.end))
        self.reader = make_reader()
        self._checkpoint = checkpoint
        self._limit = self.reader.getDefaultReadLimit()
        self.reader.initialOffset()
        if available_now:
            self.reader.prepareForTriggerAvailableNow()

    @property
    def _start(self) -> str:
        """The end of the last batch that is in the commit log."""
        done = self._checkpoint.commits
        return self._checkpoint.offsets[done - 1] if done else json.dumps(self.reader.initialOffset())

    def trigger(self) -> Iterator[str]:
        """Run one trigger, up to the next of ``CRASH_POINTS``; yields nothing if there is nothing new."""
        checkpoint = self._checkpoint
        batch = checkpoint.commits
        if len(checkpoint.offsets) == batch:
            start = self._start
            end = json.dumps(self.reader.latestOffset(json.loads(start), self._limit))
            self.reader.reportLatestOffset()
            if json.loads(end) == json.loads(start):
                return
            yield PLANNED
            checkpoint.offsets.append(end)
            if batch:
                self.reader.commit(json.loads(start))
        yield AFTER_WAL
        tasks = self.reader.partitions(json.loads(self._start), json.loads(checkpoint.offsets[batch]))
        yield AFTER_CLAIM
        rows = [(task.wanted.tp, offset) for task in tasks for offset in self._read(task)]
        checkpoint.sink.setdefault(batch, rows)
        yield AFTER_SINK
        checkpoint.commits += 1
        yield AFTER_COMMIT_LOG

    def run(self) -> int:
        """Run triggers until one finds nothing new; returns the number of batches."""
        for batches in range(BATCHES_MAX):
            if not list(self.trigger()):
                return batches
        raise AssertionError(f"{BATCHES_MAX} batches, and still something new")

    def last_planned_offset(self) -> dict[str, Any]:
        """The offset of the last batch that was planned."""
        found: dict[str, Any] = json.loads(self._checkpoint.offsets[-1])
        return found
