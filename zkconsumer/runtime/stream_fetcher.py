"""The partition processor of a connector: fetchers fill chunk queues, streams empty them.

``StreamFetcher`` implements ``PartitionProcessor``; it does not depend on groups or ZooKeeper.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from zkconsumer.kafka.chunks import ChunkQueue, PartitionTopicInfo, ShutdownMarker
from zkconsumer.member.ownership import (
    BusyStream,
    CollectPositions,
    Drain,
    DropPartitions,
    ForceDrain,
    MoveToThread,
    OffsetReset,
    PartitionsDrained,
    PositionsCollected,
    StartFetching,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from zkconsumer.base.delivery_lease import Lease
    from zkconsumer.kafka.fetcher_manager import ConsumerFetcherManager
    from zkconsumer.member.offset_stores import OffsetSource
    from zkconsumer.member.ownership import MembershipEventLoop, PartitionCommand
    from zkconsumer.types import RecordCounter, TopicPartition

ANY_TOPIC = None
"""The topic in the key of a queue that receives the chunks of every topic."""

QueueKey: TypeAlias = "tuple[str | None, str]"
"""Topic, or ``ANY_TOPIC``, and thread id."""


class StreamFetcher:
    """Starts, stops and moves partitions between fetchers and streams; a ``PartitionProcessor``."""

    def __init__(
        self,
        fetchers: ConsumerFetcherManager,
        lease: Lease,
        event_loop: MembershipEventLoop,
        tally_of: Callable[[str, str], RecordCounter],
    ) -> None:
        self.queues: dict[QueueKey, ChunkQueue] = {}
        self.partition_infos: dict[TopicPartition, PartitionTopicInfo] = {}
        self._tally_of = tally_of
        self._fetchers = fetchers
        self._lease = lease
        self._event_loop = event_loop

    def add_queues(self, queues: Mapping[QueueKey, ChunkQueue]) -> None:
        """Add the queues of streams; keys: topic and thread id (``ANY_TOPIC`` for a topic filter)."""
        self.queues.update(queues)
        for queue in queues.values():
            self._fetchers.add_queue(queue)

    def _queue_of(self, topic: str, thread: str) -> ChunkQueue:
        """The queue of this thread for this topic; a stream of a topic filter has one queue for all topics."""
        queue = self.queues.get((topic, thread))
        return self.queues[ANY_TOPIC, thread] if queue is None else queue

    def execute(self, command: PartitionCommand) -> None:
        match command:
            case StartFetching():
                self._start_fetching(command)
            case Drain(partitions):
                self._drain(partitions)
            case ForceDrain(partitions):
                found = {tp: self.partition_infos[tp] for tp in partitions if tp in self.partition_infos}
                self._event_loop.submit(PartitionsDrained({tp: info.consumed_offset for tp, info in found.items()}))
            case DropPartitions(partitions):
                self._drop_partitions(partitions)
            case MoveToThread(threads):
                self._move_to_thread(threads)
            case CollectPositions():
                # A partition that is being released is committed with its release.
                live = {tp: info.consumed_offset for tp, info in self.partition_infos.items() if info.is_live}
                self._event_loop.submit(PositionsCollected(live))

    def _start_fetching(self, command: StartFetching) -> None:
        started: list[PartitionTopicInfo] = []
        for tp, offset in command.positions.items():
            thread = command.threads[tp]
            info = self._info(tp, thread, offset, command.sources[tp])
            self.partition_infos[tp] = info
            started.append(info)
        self._fetchers.start(started)

    def _info(self, tp: TopicPartition, thread: str, offset: int, source: OffsetSource) -> PartitionTopicInfo:
        queue, tally = self._queue_of(tp.topic, thread), self._tally_of(tp.topic, thread)
        return PartitionTopicInfo(tp, thread, queue, offset=offset, source=source, tally=tally)

    def _drain(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop delivery; partitions without an unacknowledged record are drained at once, in one event."""
        drained: dict[TopicPartition, int] = {}
        here = threading.get_ident()

        def on_back(info: PartitionTopicInfo) -> None:
            if threading.get_ident() == here:
                drained[info.tp] = info.consumed_offset
            else:
                self._event_loop.call_soon(partial(self._on_acknowledged, info))

        for tp in partitions:
            self.partition_infos[tp].stop(on_back)
        self._fetchers.wake()
        self._lease.wake()
        if drained:
            self._event_loop.submit(PartitionsDrained(drained))

    def _on_acknowledged(self, info: PartitionTopicInfo) -> None:
        if self.partition_infos.get(info.tp) is info:
            self._event_loop.handle_event(PartitionsDrained({info.tp: info.consumed_offset}))

    def _drop_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        queues: set[ChunkQueue] = set()
        for tp in partitions:
            info = self.partition_infos.pop(tp, None)
            if info is not None:
                info.invalidate()
                queues.add(info.queue)
        self._drop_stale(queues)

    def _move_to_thread(self, threads: Mapping[TopicPartition, str]) -> None:
        """Put the undelivered chunks of the old stream at the front of the new stream's queue."""
        moved: list[PartitionTopicInfo] = []
        queues: set[ChunkQueue] = set()
        for tp, thread in threads.items():
            old = self.partition_infos[tp]
            # A partition without a position starts as it would have: by the reset policy, or at the beginning.
            offset = old.consumed_offset if old.fetch_offset >= 0 else old.fetch_offset
            new = self._info(tp, thread, offset, old.source)
            new.high_watermark, new.last_response_ms = old.high_watermark, old.last_response_ms
            chunks = []
            for chunk in old.undelivered_chunks():
                if chunk.fetch_offset <= new.fetch_offset < chunk.next_offset:
                    chunks.append(replace(chunk, info=new, resets=new.resets))
                    new.fetch_offset = chunk.next_offset
            new.queue.prepend(chunks)
            queues.add(old.queue)
            self.partition_infos[tp] = new
            moved.append(new)
        self._drop_stale(queues)
        self._fetchers.start(moved)

    def all_partitions(self) -> dict[TopicPartition, PartitionTopicInfo]:
        """All owned partitions, also those that are being released; from any thread."""
        return dict(self.partition_infos)

    @property
    def assignment(self) -> dict[TopicPartition, str]:
        """The partitions that are fetched now: partition -> thread id; from any thread."""
        return {tp: info.thread for tp, info in self.all_partitions().items() if info.is_live}

    @property
    def has_no_partitions(self) -> bool:
        return not self.partition_infos

    @property
    def busy_stream(self) -> BusyStream | None:
        found = ((queue.unacknowledged_since_ms, thread) for (_, thread), queue in list(self.queues.items()))
        return min((BusyStream(at_ms, thread) for at_ms, thread in found if at_ms is not None), default=None)

    def end(self, error: BaseException | None) -> None:
        """Put the end marker into every queue; ``error``: raised in the streams, None for a normal end."""
        for queue in list(self.queues.values()):
            queue.end(ShutdownMarker(error))
        self._lease.wake()

    def request_stop(self) -> None:
        self._fetchers.ask_to_stop()

    def join(self, timeout_ms: int) -> bool:
        return self._fetchers.join(timeout_ms)

    def on_reset(self, info: PartitionTopicInfo, offset: int) -> None:
        """The reset policy set an offset; called on a fetcher thread."""
        self._event_loop.call_soon(partial(self._on_offset_reset, info, offset))

    def _on_offset_reset(self, info: PartitionTopicInfo, offset: int) -> None:
        if self.partition_infos.get(info.tp) is info:
            self._event_loop.handle_event(OffsetReset(info.tp, offset))

    def _drop_stale(self, queues: Iterable[ChunkQueue]) -> None:
        for queue in queues:
            queue.drop_stale()
        self._fetchers.wake()
