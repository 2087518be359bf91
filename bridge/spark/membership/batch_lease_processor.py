"""``BatchLeaseProcessor``: what a keeper does with the partitions of its membership, which is to lend them to batches.

Everything but what is marked runs on the membership's thread.  Whoever waits for a change waits on ``changed``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

from bridge.spark.group_membership import BatchEnd, LeasedPartition
from bridge.spark.membership.batch_leases import BatchLeases
from zkconsumer.base.delivery_lease import Lease
from zkconsumer.member import commands as do
from zkconsumer.member import events as ev
from zkconsumer.runtime.membership_protocols import MembershipEventLoop
from zkconsumer.types import TopicPartition


class BatchLeaseProcessor:
    """A ``PartitionProcessor`` without streams or fetchers."""

    def __init__(self, lending: BatchLeases, lease: Lease, inbox: MembershipEventLoop) -> None:
        self.leases = lending
        self.changed = threading.Condition()
        self.is_ended = False
        self._lease = lease
        self._inbox = inbox

    # --- what the membership says -------------------------------------------------------------------------------

    def start_fetching(self, command: do.StartFetching) -> None:
        for tp, offset in command.positions.items():
            self.leases.add(tp, command.threads[tp], command.epochs[tp], offset)
        self.notify()

    def drain(self, command: do.Drain) -> None:
        self._post_drained(self.leases.drain(command.partitions))

    def force_drain(self, command: do.ForceDrain) -> None:
        self._post_drained(self.leases.abandon_drain(command.partitions))

    def drop_partitions(self, command: do.DropPartitions) -> None:
        self.leases.drop(command.partitions)
        self.notify()

    def move_to_thread(self, command: do.MoveToThread) -> None:
        for tp, thread in command.threads.items():
            self.leases.change_thread(tp, thread, command.epochs[tp])
        self.notify()

    def collect_positions(self) -> None:
        """What Kafka keeps of a group is told again and again, because brokers forget what is not repeated."""
        self._inbox.submit(ev.PositionsCollected(self.leases.positions))

    # --- what the query says ------------------------------------------------------------------------------------

    def end_batch(self, ended: Mapping[TopicPartition, BatchEnd]) -> dict[TopicPartition, int]:
        """The batch before is over; gives back what is to be written of what stays ours."""
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
        """The query is gone: nothing is waited for any more."""
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
        """A batch may take as long as it takes: Spark watches the query, and a keeper ends with it."""
        return None

    def end(self, error: BaseException | None) -> None:
        self.is_ended = True
        self.notify()

    def request_stop(self) -> None:
        """There is no thread."""

    def join(self, timeout_ms: int) -> bool:
        return True

    def notify(self) -> None:
        """Let whoever waits look again."""
        with self.changed:
            self.changed.notify_all()

    def wait(self, is_true: Callable[[], bool], timeout_ms: int) -> bool:
        """Wait until that is so, or everything is over; whether it is so."""
        with self.changed:
            self.changed.wait_for(lambda: is_true() or self.is_ended, max(0, timeout_ms) / 1000)
        return is_true()

    def _post_drained(self, rested: Mapping[TopicPartition, int]) -> None:
        """Posted and not fed: the membership may be in the middle of the commands of an event."""
        if rested:
            self._inbox.submit(ev.PartitionsDrained(dict(rested)))
