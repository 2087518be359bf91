"""``BatchLeaseProcessor``: leases the partitions of a membership to batches.

All methods run on the membership's thread, except those in the section for any thread.  A thread that waits for a
change waits on ``changed``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

from bridge.spark.group_membership import BatchEnd, LeasedPartition
from bridge.spark.membership.batch_leases import BatchLeases
from zkconsumer.base.delivery_lease import Lease
from zkconsumer.errors import ZkConsumerError
from zkconsumer.member.ownership import (
    CollectPositions,
    Drain,
    DropPartitions,
    ForceDrain,
    MembershipEventLoop,
    MoveToThread,
    PartitionCommand,
    PartitionsDrained,
    PositionsCollected,
    StartFetching,
)
from zkconsumer.types import TopicPartition


class BatchLeaseProcessor:
    """A ``PartitionProcessor`` without streams or fetchers."""

    def __init__(self, lending: BatchLeases, lease: Lease, event_loop: MembershipEventLoop) -> None:
        self.leases = lending
        self.changed = threading.Condition()
        self.is_ended = False
        self._lease = lease
        self._event_loop = event_loop

    # --- calls of the membership --------------------------------------------------------------------------------

    def execute(self, command: PartitionCommand) -> None:
        match command:
            case StartFetching(positions, threads, _, epochs):
                for tp, offset in positions.items():
                    self.leases.add(tp, threads[tp], self._epoch_of(epochs[tp]), offset)
                self.notify()
            case Drain(partitions):
                self._post_drained(self.leases.drain(partitions))
            case ForceDrain(partitions):
                self._post_drained(self.leases.abandon_drain(partitions))
            case DropPartitions(partitions):
                self.leases.drop(partitions)
                self.notify()
            case MoveToThread(threads, epochs):
                for tp, thread in threads.items():
                    self.leases.change_thread(tp, thread, self._epoch_of(epochs[tp]))
                self.notify()
            case CollectPositions():
                # The committed offsets are sent to Kafka again: brokers expire offsets that are not committed again.
                self._event_loop.submit(PositionsCollected(self.leases.positions))

    def _epoch_of(self, epoch: int) -> int:
        """The id of an ownership that no other run of the query has."""
        return epoch

    # --- calls of the query -------------------------------------------------------------------------------------

    def end_batch(self, ended: Mapping[TopicPartition, BatchEnd]) -> dict[TopicPartition, int]:
        """The last batch has ended; returns the offsets to commit of partitions that stay ours."""
        to_write, rested = self.leases.end_batch(ended)
        self._post_drained(rested)
        return to_write

    def lease_all(self) -> dict[TopicPartition, LeasedPartition]:
        return self.leases.lease_all() if self._lease.is_valid and not self.is_ended else {}

    def keep_planned(self, partitions: Collection[TopicPartition]) -> None:
        self._post_drained(self.leases.keep_planned(partitions))

    def end_claim(self, held: Mapping[TopicPartition, int]) -> None:
        self._post_drained(self.leases.end_claim(held))

    def end_query(self) -> None:
        """The query has ended: no drain waits any longer."""
        self._post_drained(self.leases.end_query())

    # --- on any thread ------------------------------------------------------------------------------------------

    @property
    def assignment(self) -> dict[TopicPartition, str]:
        return self.leases.threads

    @property
    def has_no_partitions(self) -> bool:
        return not len(self.leases)

    @property
    def busy_stream(self) -> None:
        """The duration of a batch is not limited: Spark monitors the query, and this process ends with it."""
        return None

    def end(self, error: ZkConsumerError | None) -> None:
        self.is_ended = True
        self.notify()

    def request_stop(self) -> None:
        """Does nothing: there is no thread to stop."""

    def join(self, timeout_ms: int) -> bool:
        return True

    def notify(self) -> None:
        """Wake up the waiting threads."""
        with self.changed:
            self.changed.notify_all()

    def wait(self, is_true: Callable[[], bool], timeout_ms: int) -> bool:
        """Wait until ``is_true()``, the time-out or the end of the process; returns the last result."""
        with self.changed:
            self.changed.wait_for(lambda: is_true() or self.is_ended, max(0, timeout_ms) / 1000)
        return is_true()

    def _post_drained(self, rested: Mapping[TopicPartition, int]) -> None:
        """Posts an event instead of a direct call: the membership may be executing the commands of an event."""
        if rested:
            self._event_loop.submit(PartitionsDrained(dict(rested)))
