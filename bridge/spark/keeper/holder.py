"""``LendingHolder``: what a keeper does with the partitions of its membership, which is to lend them to batches.

Everything but what is marked runs on the membership's thread.  Whoever waits for a change waits on ``changed``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

from bridge.spark.keeper.lending import Lending
from bridge.spark.membership import Ended, Held
from zkconsumer.base.lease import Lease
from zkconsumer.core import commands as do
from zkconsumer.core import events as ev
from zkconsumer.runtime.holder import Inbox
from zkconsumer.types import TopicPartition


class LendingHolder:
    """A ``Holder`` without streams or fetchers."""

    def __init__(self, lending: Lending, lease: Lease, inbox: Inbox) -> None:
        self.lending = lending
        self.changed = threading.Condition()
        self.is_over = False
        self._lease = lease
        self._inbox = inbox

    # --- what the membership says -------------------------------------------------------------------------------

    def start_fetching(self, command: do.StartFetching) -> None:
        for tp, offset in command.positions.items():
            self.lending.start(tp, command.threads[tp], command.epochs[tp], offset)
        self.tell()

    def drain(self, command: do.Drain) -> None:
        self._say(self.lending.drain(command.partitions))

    def give_up_drain(self, command: do.GiveUpDrain) -> None:
        self._say(self.lending.give_up(command.partitions))

    def drop(self, command: do.Drop) -> None:
        self.lending.drop(command.partitions)
        self.tell()

    def move_thread(self, command: do.MoveThread) -> None:
        for tp, thread in command.threads.items():
            self.lending.move(tp, thread, command.epochs[tp])
        self.tell()

    def collect_positions(self) -> None:
        """What Kafka keeps of a group is told again and again, because brokers forget what is not repeated."""
        self._inbox.post(ev.PositionsCollected(self.lending.positions))

    # --- what the query says ------------------------------------------------------------------------------------

    def ended(self, ended: Mapping[TopicPartition, Ended]) -> dict[TopicPartition, int]:
        """The batch before is over; gives back what is to be written of what stays ours."""
        to_write, rested = self.lending.ended(ended)
        self._say(rested)
        return to_write

    def lend(self) -> dict[TopicPartition, Held]:
        return self.lending.lend() if self._lease.holds and not self.is_over else {}

    def planned(self, partitions: Collection[TopicPartition]) -> None:
        self._say(self.lending.planned(partitions))

    def end_claim(self, held: Mapping[TopicPartition, int]) -> None:
        self._say(self.lending.end_claim(held))

    def let_go(self) -> None:
        """The query is gone: nothing is waited for any more."""
        self._say(self.lending.over())

    # --- on any thread ------------------------------------------------------------------------------------------

    @property
    def assignment(self) -> dict[TopicPartition, str]:
        return self.lending.threads

    @property
    def holds_nothing(self) -> bool:
        return not len(self.lending)

    @property
    def busy(self) -> None:
        """A batch may take as long as it takes: Spark watches the query, and a keeper ends with it."""
        return None

    def end(self, error: BaseException | None) -> None:
        self.is_over = True
        self.tell()

    def ask_to_stop(self) -> None:
        """There is no thread."""

    def join(self, timeout_ms: int) -> bool:
        return True

    def tell(self) -> None:
        """Let whoever waits look again."""
        with self.changed:
            self.changed.notify_all()

    def wait(self, is_true: Callable[[], bool], timeout_ms: int) -> bool:
        """Wait until that is so, or everything is over; whether it is so."""
        with self.changed:
            self.changed.wait_for(lambda: is_true() or self.is_over, max(0, timeout_ms) / 1000)
        return is_true()

    def _say(self, rested: Mapping[TopicPartition, int]) -> None:
        """Posted and not fed: the membership may be in the middle of the commands of an event."""
        if rested:
            self._inbox.post(ev.PartitionsDrained(dict(rested)))
