"""Commits of the program while a group migrates: to which stores, and to which one first.

start  (control thread of the ZooKeeper side)  reads the order of this moment, and the metadata for Kafka
write  (the program's thread)                  commits to one store after the other; offsets that the first store
                                               rejects are not sent to the second
finish (control thread of the ZooKeeper side)  only then may the member acknowledge a phase with another order

Theory of operation.  The commit of a program waits for two stores, so it must not run on a control thread; but only the
control thread of the ZooKeeper side has a consistent view of the phase.  So the start takes everything from there that
the write needs, and the write uses no newer state: a phase that changes meanwhile does not change the order of a commit
that runs.  The machine counts the running commits (``CommitStarted``, ``CommitFinished``), and the tool waits for the
acknowledgement: so no member commits in the order of LOCKED when the group is in SWITCHED.

Which offset goes to which store:

    ZooKeeper first  to ZooKeeper alone.  Kafka follows by the machine's own writes, which have the provenance of the
                     epoch (``StorePositions``), also if this commit is never repeated.
    Kafka first      to Kafka; then what Kafka accepted, of owned partitions, to ZooKeeper
    Kafka            to Kafka alone; the machine mirrors what Kafka accepted

A partition that the member does not process at the start is refused by the first store in the order: ZooKeeper checks
the owner node itself, and for Kafka ``running`` is the check, because the generation does not show that another member
has the owner node (``test_a_lost_partition_is_committed_to_neither_store``).

When an answer is lost, the store that was asked may have the offset.  Kafka first: ZooKeeper does not get it, and the
machine compares both stores at its next report.  A process that is paused between the two stores continues with
ZooKeeper, whose multi checks the owner node and the control znode.

Deadline: one for the call, shared by its parts; each part gets what is left, at least 1 ms.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bridge.migration.dual.machine import machine_messages as val
from bridge.migration.dual.machine.phase_rules import CommitOrder, MembershipSide
from zkconsumer.errors import ZkConsumerError
from zkconsumer.member.offset_committer import NOT_OWNER
from zkconsumer.member.offset_stores import KAFKA_NAME, CommitFailure
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from bridge.migration.dual.connector.migrating_membership import MigratingMembership

NOT_JOINED = CommitFailure("this member is not in the coordinator's group yet, or not any more", KAFKA_NAME)

OffsetsByPartition = Mapping[TopicPartition, int]
UnwrittenOffsets = dict[TopicPartition, CommitFailure]


@dataclass(slots=True)
class _PendingCommit:
    """One call of ``commit``; all fields except the first three are valid once ``started`` is set without a cancel."""

    number: int
    positions: OffsetsByPartition
    is_of_listener: bool = False
    """Whether the rebalance listener makes it, in a call that the end of the member still waits for."""
    commit_order: CommitOrder = CommitOrder.ZOOKEEPER
    """That of the phase in which it started, until it ends."""
    metadata: Mapping[TopicPartition, str] | None = None
    """The provenance for Kafka, while Kafka is first and the ZooKeeper side is active; else None.  With the coordinator
    side active the generation is the lock, so the membership may repeat the commit by its own rules."""
    running: frozenset[TopicPartition] = frozenset()
    """Those that the processor had at the start, also drained ones."""
    owned: frozenset[TopicPartition] = frozenset()
    """Those for which this member had an owner node at the start."""
    is_cancelled: bool = False
    """Whether the caller gave up before the start.  Never together with ``started``, except when an error ends the
    member (``release_waiters``)."""
    started: threading.Event = field(default_factory=threading.Event)


class MigratingCommits:
    """The commits of one member; ``commit`` may be called on any thread except the control threads."""

    def __init__(self, member: MigratingMembership) -> None:
        self._member = member
        self._lock = threading.Lock()
        """Held where a call starts or is cancelled, so that exactly one of both happens."""
        self._last_number = 0
        """Numbers begin with 1 and are never used twice."""
        self._pending: dict[int, _PendingCommit] = {}
        """The calls that have not returned: from ``commit`` on, until the call was cancelled or has finished.  Each
        started one has one ``CommitStarted`` and one ``CommitFinished``, in this order, unless an error ends the
        member in between."""

    def commit(self, positions: OffsetsByPartition, timeout_ms: int) -> UnwrittenOffsets:
        """Commit these; return the partitions that were not committed, with the reason.

        If the phase changes during the call, its failures are transient: the program commits again, by the new order
        (``test_a_commit_during_the_switch_is_tried_again_at_once``).  ``commit_offsets`` of the connector repeats it.
        """
        assert timeout_ms > 0, "a commit has a deadline"
        member = self._member
        until_ms = member.clock.now_ms() + timeout_ms
        with self._lock:
            self._last_number += 1
            # The listener is called before a failed member releases its partitions, and may commit them.
            is_of_listener = member.listener.is_inside_awaited_call
            call = self._pending[self._last_number] = _PendingCommit(self._last_number, dict(positions), is_of_listener)
        try:
            member.zookeeper.event_loop.call_soon(lambda: self._start(call))
            call.started.wait(timeout_ms / 1000)
            if not self._has_begun(call):
                silent = CommitFailure(f"the control thread did not answer within {timeout_ms} ms")
                return dict.fromkeys(positions, silent)
            refused = self._write(call, until_ms)
            if member.machine.rules.commit_order is call.commit_order:
                return refused
            # The phase has changed, and so has the order: a retry uses the new one.
            return {tp: replace(why, is_transient=not why.is_permanent) for tp, why in refused.items()}
        finally:
            # Also after an exception of a signal handler: a phase waits for the end of each commit that has started.
            if self._has_begun(call):
                member.zookeeper.event_loop.call_soon(lambda: self._finish(call))
            else:
                self._pending.pop(call.number, None)

    def _has_begun(self, call: _PendingCommit) -> bool:
        """Whether it has started, and no error has ended the member.  One that has not started is cancelled."""
        with self._lock:
            call.is_cancelled = not call.started.is_set()
        return not call.is_cancelled and self._is_accepted(call)

    def _is_accepted(self, call: _PendingCommit) -> bool:
        """Whether the member still commits: after an error only inside of a listener call, which is made to let the
        program commit the partitions that are released then."""
        return self._member.failure is None or call.is_of_listener

    def release_waiters(self) -> None:
        """Wake all callers: an error ended the member.

        A woken call returns a failure; its caller then raises the error.  A call of the listener is not woken: it may
        still commit, and the control thread runs until the member is closed.
        """
        for call in list(self._pending.values()):
            if not call.is_of_listener:
                call.started.set()

    # --- on the control thread ------------------------------------------------------------------------------------

    def _start(self, call: _PendingCommit) -> None:
        """Take from the machine what the write needs.

        Either this happens, or the caller has cancelled: the lock makes both exclusive, so a cancelled commit never
        writes, and the machine never waits for its end.
        """
        member, machine = self._member, self._member.machine
        with self._lock:
            if call.is_cancelled or not self._is_accepted(call):
                return
            assert not call.started.is_set(), "a call starts once"
            call.commit_order = machine.rules.commit_order
            call.running = frozenset(tp for tp in call.positions if machine.partitions.is_running(tp))
            call.owned = frozenset(tp for tp in call.positions if machine.partitions.is_owned(tp))
            if machine.rules.active_side is MembershipSide.ZOOKEEPER and call.commit_order is CommitOrder.KAFKA_FIRST:
                call.metadata = member.metadata(call.positions)
            member.handle_event(val.CommitStarted(call.number, frozenset(call.positions)))
            call.started.set()

    def _finish(self, call: _PendingCommit) -> None:
        """The write has ended, with whatever result; the offsets of ZooKeeper may have changed."""
        assert not call.is_cancelled, "a cancelled call has not started"
        del self._pending[call.number]
        self._member.handle_event(val.CommitFinished(call.number))
        self._member.check_zookeeper_offsets()

    # --- on the program's thread ----------------------------------------------------------------------------------

    def _write(self, call: _PendingCommit, until_ms: int) -> UnwrittenOffsets:
        """Commit to the stores in the order of the start; return what any of them does not have.

        A failure of the second store is returned too, although the first one has the offset: the program repeats the
        commit, and both stores get it.
        """
        if call.commit_order in (CommitOrder.ZOOKEEPER, CommitOrder.ZOOKEEPER_FIRST):
            return self._to_zookeeper(call.positions, until_ms)
        ours = {tp: at for tp, at in call.positions.items() if tp in call.running}
        refused = dict.fromkeys(call.positions.keys() - ours.keys(), NOT_OWNER)
        refused |= self._to_kafka(ours, call.metadata, until_ms)
        if call.commit_order is CommitOrder.KAFKA:
            return refused
        taken = {tp: at for tp, at in ours.items() if tp not in refused and tp in call.owned}
        return refused | self._to_zookeeper(taken, until_ms)

    def _to_zookeeper(self, offsets: OffsetsByPartition, until_ms: int) -> UnwrittenOffsets:
        return self._member.zookeeper.commit(offsets, self._remaining_ms(until_ms)) if offsets else {}

    def _to_kafka(
        self, offsets: OffsetsByPartition, metadata: Mapping[TopicPartition, str] | None, until_ms: int
    ) -> UnwrittenOffsets:
        side = self._member.coordinator
        if not offsets or side is None:
            return dict.fromkeys(offsets, NOT_JOINED)
        try:
            # While the owner node is the lock, a repeated commit may arrive after the commit of the next owner.
            return side.commit(offsets, self._remaining_ms(until_ms), metadata, is_retried=metadata is None)
        except ZkConsumerError as error:
            return dict.fromkeys(offsets, CommitFailure(str(error), KAFKA_NAME))

    def _remaining_ms(self, until_ms: int) -> int:
        return max(1, until_ms - self._member.clock.now_ms())
