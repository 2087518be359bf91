"""The membership at the coordinator of a migrating member, with what a migration needs of it besides.

    MigratingMembership --offer_assignors, write_offsets, read_offsets--> CoordinatorSide --> CoordinatorMembership
                        <--on_event: generation, commits that Kafka accepted, results of write and read--

``CoordinatorSide`` contains the membership and receives its ``MembershipEvents``.  ``on_event`` is called only on the
control thread of this membership; it never waits.

Theory of operation.  Two requests of the migrating member go through the commit and the fetch of the membership, and
have retry rules of their own, because the rules of a program's commit would be wrong here:

    write_offsets  the partition may belong to another member when a repeated commit arrives.  So a commit is made once,
                   or, if a release waits for it, again for a limited time (``urgent_writes``).
    read_offsets   a stream waits for the offset, or the tool waits for this member; there is no other source.  So it is
                   requested again for as long as the partition is assigned (``committed_offset_reader``).

Both are bookkeeping on the control thread of this membership; only the request itself leaves it.  When the membership
has ended, a write that is open gets no answer here: ``CoordinatorSideLifecycle`` answers it when the side is closed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from bridge.migration.dual.connector.committed_offset_reader import CommittedOffsetReader
from bridge.migration.dual.connector.urgent_writes import UrgentWrites
from bridge.migration.dual.machine import machine_messages as val
from zkconsumer.kafka.group import commands as cmd
from zkconsumer.member.events import WriteOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.client.coordinator_membership import CoordinatorMembership, MembershipEvents
    from zkconsumer.base.clock import Clock
    from zkconsumer.kafka.group import events as cev
    from zkconsumer.member.events import KafkaCommitResult
    from zkconsumer.types import TopicPartition

NO_COMMITTED_OFFSET = -1
"""Kafka has no committed offset of the partition."""

SIDE_RETRY_INTERVAL_MS = 50
"""The interval after which a request is repeated that the group rejected because it rebalanced."""


class CoordinatorSide:
    """One membership at the coordinator, from its join to its end; a later join is another ``CoordinatorSide``.

    ``make_membership``: makes it; the argument receives its events.  ``on_assignment``: it owns its assignment.
    """

    def __init__(
        self,
        make_membership: Callable[[MembershipEvents], CoordinatorMembership],
        drain_timeout_ms: int,
        clock: Clock,
        *,
        on_event: Callable[[CoordinatorSide, val.MigratingMemberEvent], None],
        on_assignment: Callable[[CoordinatorSide], None],
    ) -> None:
        assert drain_timeout_ms > 0, "a release has a limit"
        self._on_event = partial(on_event, self)
        self.assignment_complete = partial(on_assignment, self)
        """See ``MembershipEvents``."""
        self.membership = make_membership(self)
        """It receives calls of any thread; its threads start with ``attach_processor``."""
        self._drain_timeout_ms = drain_timeout_ms
        self._writes = UrgentWrites(
            lambda number, offsets: self.membership.request_commit(
                offsets, partial(self._writes.handle_response, number)
            ),
            lambda number, committed: self._on_event(val.KafkaWriteFinished(number, committed)),
            clock,
        )
        self._offset_reader = CommittedOffsetReader(
            lambda number, partitions: self.membership.request_offsets(partitions, partial(self._fetched, number)),
            lambda offsets: self._on_event(val.KafkaOffsetsRead(offsets)),
            clock,
        )
        self.membership.event_loop.call_every(SIDE_RETRY_INTERVAL_MS, self._retry_pending)

    # --- calls from any thread ----------------------------------------------------------------------------------

    def write_offsets(self, number: int, offsets: Mapping[TopicPartition, cev.Offset], *, is_urgent: bool) -> None:
        """Commit these once; ``KafkaWriteFinished`` with the number follows.

        ``is_urgent``: the commit is repeated while the group rebalances, for half of the drain timeout.  After a whole
        one the ZooKeeper side has forced the drain, and releases the partition without the position.
        """
        retry_ms = self._drain_timeout_ms // 2 if is_urgent else 0
        self.membership.event_loop.call_soon(lambda: self._writes.write(number, offsets, retry_ms))

    def read_offsets(self, partitions: frozenset[TopicPartition]) -> None:
        """Fetch the committed offsets of these until they are known; ``KafkaOffsetsRead`` follows."""
        self.membership.event_loop.call_soon(lambda: self._offset_reader.read(partitions))

    # --- on the control thread of the membership ----------------------------------------------------------------

    def _retry_pending(self) -> None:
        """Repeat what is due.  After the end of the membership its offsets are not read any more; the open writes still
        run out of time here.
        """
        self._writes.retry()
        if not self.membership.has_ended:
            self._offset_reader.poll(self.membership.running_partitions)

    def _fetched(self, number: int, answer: cmd.FetchDone) -> None:
        """The answer to a request of the reader.

        An error that a person must correct (an ACL) goes the way of all errors of the membership: it is logged once,
        and ends the membership if it is permanent.  The reader only tries again.
        """
        found = {tp: NO_COMMITTED_OFFSET if at is None else at.offset for tp, at in answer.offsets.items()}
        is_expected = self._offset_reader.handle_response(number, None if answer.error else found)
        if is_expected and answer.error is not None and not self.membership.has_ended:
            self.membership.raised(cmd.Raise(answer.error, is_fatal=False))

    def generation_changed(self, generation: int) -> None:
        """See ``MembershipEvents``."""
        self._on_event(val.GenerationChanged(generation))

    def offsets_committed(
        self, offsets: Mapping[TopicPartition, int | None], results: Mapping[TopicPartition, KafkaCommitResult]
    ) -> None:
        """See ``MembershipEvents``: all commits of the membership except ``write_offsets``.

        Partitions of which the coordinator gave no result, or a rejection, are left out: nothing is known of them.
        """
        committed = {
            tp: offset
            for tp, offset in offsets.items()
            if offset is not None and tp in results and results[tp].outcome is WriteOutcome.DONE
        }
        if committed:
            self._on_event(val.KafkaCommitted(committed))
