"""Acquires ownership: one request that creates the owner nodes which our assignment lacks.

    acquire --> AcquireOwnership --> AcquireOwnershipCompleted --> each partition ACQUIRED, DRAINED or forgotten

The owner node is the lock of a partition, in a group with Scala members, too.  Order: release before acquire, because
other members wait for what we release; acquire before position, because only an owner can be sure that no other member
commits after its read (``release before acquire`` in ``tests/property/group_model/member_invariants.py``,
``defect_28_*`` in the transcripts).

One request is under way at most.  Its partitions exist as machines (``ACQUIRING``) from the moment when it is sent, so
that the end of the session, or a leave, has something to end.  A rebalance does not interrupt it: what was created must
be known before it can be released (``defect_16_a_leave_does_not_wait_for_a_running_attempt.txt``).

Each partition has its own result (``defect_11_a_failed_acquisition_leaves_no_owner_node.txt``).  *Not created*: the
partition is forgotten here and remembered in ``not_acquired``; the next attempt tries again, and the watch on the
owners of its topic shows when its owner has gone.  The Scala consumer gives back everything that it acquired in the
attempt; keeping it moves no partition twice.  *Unknown*, when the answer was lost with the connection: the node may
exist, so the partition is ``DRAINED`` with unknown ownership, and a release verifies the owner before the next
acquisition (``an_acquisition_without_an_answer_is_released_and_repeated.txt``).

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
    from zkconsumer.member.group_view import GroupView
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
        self, assigned: Mapping[TopicPartition, str], view: GroupView, session_id: int, *, identify_owners: bool
    ) -> list[Command]:
        """Create the owner nodes of the assignment that we do not have; nothing is pending if none is missing.

        ``identify_owners``: also read who owns the partitions that we do not get, which is one more read.
        A member that is alone in ``view`` lists no owners before, which saves a packet: no other member can own a
        partition.  A node of a session that has not expired yet makes the request fail; its owners are listed then.
        """
        assert self._ticket is None, "one request at a time: its partitions would be requested twice"
        wanted = {tp: thread for tp, thread in sorted(assigned.items()) if tp not in self._partitions}
        if not wanted:
            self.not_acquired.clear()
            return []
        for tp, thread in wanted.items():
            self._partitions[tp] = PartitionStateMachine(thread)
        lists_owners = len(view.members) > 1
        if lists_owners:
            self._owner_watches.on_watch_set(tp.topic for tp in wanted)
        ticket = self._ticket = self._new_ticket()
        return [do.AcquireOwnership(ticket, session_id, wanted, lists_owners, identify_owners, view.control_version)]

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
