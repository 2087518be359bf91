"""Commits of the program while a group migrates: to which stores, and to which one first.

start  (control thread of the ZooKeeper side)  reads the order of this moment, and the metadata for Kafka
write  (the program's thread)                  commits to one store after the other; offsets that the first store
                                               rejects are not sent to the second
finish (control thread of the ZooKeeper side)  only then may the member acknowledge a phase with another order
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
    """One call of ``commit``; all fields except ``number`` and ``positions`` are valid once ``started`` is set."""

    number: int
    positions: OffsetsByPartition
    is_of_listener: bool = False
    commit_order: CommitOrder = CommitOrder.ZOOKEEPER
    metadata: Mapping[TopicPartition, str] | None = None
    running: frozenset[TopicPartition] = frozenset()
    owned: frozenset[TopicPartition] = frozenset()
    is_cancelled: bool = False
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
        """The calls that have not returned: from ``commit`` on, until the call was cancelled or has finished."""

    def commit(self, positions: OffsetsByPartition, timeout_ms: int) -> UnwrittenOffsets:
        """Commit these; return the partitions that were not committed, with the reason."""
        member = self._member
        until_ms = member.clock.now_ms() + timeout_ms
        with self._lock:
            self._last_number += 1
            # The listener is called before a failed member releases its partitions, and may commit them.
            is_of_listener = member.listener.is_inside_awaited_call
            call = self._pending[self._last_number] = _PendingCommit(self._last_number, dict(positions), is_of_listener)
        member.zookeeper.event_loop.call_soon(lambda: self._start(call))
        if not call.started.wait(timeout_ms / 1000):
            with self._lock:
                call.is_cancelled = not call.started.is_set()
        if call.is_cancelled or not self._is_accepted(call):
            self._pending.pop(call.number, None)
            return dict.fromkeys(positions, CommitFailure(f"the control thread did not answer within {timeout_ms} ms"))
        try:
            refused = self._write(call, until_ms)
            if member.machine.rules.commit_order is call.commit_order:
                return refused
            # The phase has changed, and so has the order: a retry uses the new one.
            return {tp: replace(why, is_transient=not why.is_permanent) for tp, why in refused.items()}
        finally:
            member.zookeeper.event_loop.call_soon(lambda: self._finish(call))

    def _is_accepted(self, call: _PendingCommit) -> bool:
        return self._member.failure is None or call.is_of_listener

    def release_waiters(self) -> None:
        """Wake all callers: an error ended the member."""
        for call in list(self._pending.values()):
            if not call.is_of_listener:
                call.started.set()

    # --- on the control thread ------------------------------------------------------------------------------------

    def _start(self, call: _PendingCommit) -> None:
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
        del self._pending[call.number]
        self._member.handle_event(val.CommitFinished(call.number))
        self._member.check_zookeeper_offsets()

    # --- on the program's thread ----------------------------------------------------------------------------------

    def _write(self, call: _PendingCommit, until_ms: int) -> UnwrittenOffsets:
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
