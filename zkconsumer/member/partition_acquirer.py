"""Acquires ownership: one request that creates the owner nodes which our assignment lacks.

    acquire --> AcquireOwnership --> AcquireOwnershipCompleted --> each partition ACQUIRED, DRAINED or forgotten

The owner node is the lock of a partition, in a group with Scala members, too.  Order: release before acquire, because
other members wait for what we release; acquire before position, because only an owner can be sure that no other member
commits after its read (``release before acquire`` in ``member.invariants``, ``defect_28_*`` in the transcripts).

One request is under way at most.  Its partitions exist as machines (``ACQUIRING``) from the moment when it is sent, so
that the end of the session, or a leave, has something to end.  A rebalance does not interrupt it: what was created must
be known before it can be released (``leaving_while_a_node_that_refused_us_goes.txt``).

Each partition has its own result.  *Not created*: the partition is forgotten here and remembered in ``not_acquired``;
the next attempt tries again, and the watch on the owners of its topic shows when its owner has gone.  The Scala
consumer gives back everything that it acquired in the attempt; keeping it moves no partition twice
(``defect_11_a_claim_that_fails_leaves_nothing_behind.txt``).  *Unknown*, when the answer was lost with the connection:
the node may exist, so the partition is ``DRAINED`` with unknown ownership, and a release verifies the owner before the
next acquisition (``a_claim_whose_outcome_is_unknown_is_given_back_and_made_again.txt``).

A pause of the process: if the session ended meanwhile, ``reset`` makes the answer an outdated one.  The server never
executes the request in another session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.member import commands as do
from zkconsumer.member import partition_state_machine as part
from zkconsumer.member.events import WriteOutcome
from zkconsumer.member.partition_state_machine import PartitionState, PartitionStateMachine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from zkconsumer.member.commands import Command
    from zkconsumer.member.events import AcquireOwnershipCompleted
    from zkconsumer.member.owner_watch_scheduler import OwnerWatchScheduler
    from zkconsumer.types import TopicPartition


class PartitionAcquirer:
    """The acquisition under way, and what the last one could not acquire."""

    def __init__(
        self,
        partitions: dict[TopicPartition, PartitionStateMachine],
        new_ticket: Callable[[], int],
        owner_watches: OwnerWatchScheduler,
    ) -> None:
        self.not_acquired: dict[TopicPartition, str] = {}
        """Partition of the assignment whose acquisition failed last -> why; in ``partitions`` only after a retry."""
        self._partitions = partitions
        self._new_ticket = new_ticket
        self._owner_watches = owner_watches
        self._ticket: int | None = None
        """That of the ``AcquireOwnership`` without an answer; its partitions are ``ACQUIRING``, and no others are."""

    @property
    def is_pending(self) -> bool:
        """Whether an acquisition has no answer yet; it is awaited also by a member that leaves."""
        return self._ticket is not None

    def acquire(
        self,
        assigned: Mapping[TopicPartition, str],
        session_id: int,
        *,
        is_alone: bool,
        identify_owners: bool,
        control_version: int | None,
    ) -> list[Command]:
        """Create the owner nodes of the assignment that we do not have; nothing is pending if none is missing.

        ``is_alone``: no other member is registered, so no list of owners is read before, which saves a packet; an owner
        node of a dead session makes the request fail, and the watch is set then.  ``identify_owners``: also read who
        owns the partitions that we do not get, which costs a packet for each.
        """
        assert self._ticket is None, "one request at a time: its partitions would be requested twice"
        wanted = {tp: thread for tp, thread in sorted(assigned.items()) if tp not in self._partitions}
        if not wanted:
            self.not_acquired.clear()
            return []
        for tp, thread in wanted.items():
            self._partitions[tp] = PartitionStateMachine(thread)
        if not is_alone:
            self._owner_watches.on_watch_set(tp.topic for tp in wanted)
        self._ticket = self._new_ticket()
        return [
            do.AcquireOwnership(
                self._ticket,
                session_id,
                wanted,
                list_owners_first=not is_alone,
                identify_owners=identify_owners,
                control_version=control_version,
            )
        ]

    def on_result(self, event: AcquireOwnershipCompleted) -> bool:
        """Keep what was acquired, also when the member leaves meanwhile: it must then be released.

        True if it is the expected answer.  The partitions of an older one were ended with their session.
        """
        if event.ticket != self._ticket:
            return False
        self._ticket = None
        self.not_acquired.clear()
        for topic in event.unwatched:
            self._owner_watches.on_watch_fired(topic)
        for tp, result in event.results.items():
            partition = self._partitions[tp]
            if result.outcome is WriteOutcome.DONE:
                partition.handle(part.OwnershipAcquired(result.czxid))
            elif result.outcome is WriteOutcome.UNKNOWN:
                partition.handle(part.OwnershipUnknown())
            else:
                partition.handle(part.OwnershipNotAcquired())
                del self._partitions[tp]
                self.not_acquired[tp] = result.why
        assert all(p.state is not PartitionState.ACQUIRING for p in self._partitions.values()), "each has a result"
        return True

    def reset(self) -> None:
        """The session ended: the answer is not expected any more, and its partitions are dropped by the caller."""
        self._ticket = None
        self.not_acquired.clear()
