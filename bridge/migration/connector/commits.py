"""The program's commits while a group moves: to which stores, and to which first.

begun (ZooKeeper's control thread)  the order of this moment, and the words for Kafka
made  (the program's thread)        one store after the other; what the first one refuses the second is not told
ended (ZooKeeper's control thread)  only then may the phase be acknowledged that wants another order
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bridge.migration.member import values as val
from bridge.migration.member.duty import Order, Side
from zkconsumer.core.commits import NOT_OURS
from zkconsumer.core.stores import KAFKA, NotWritten
from zkconsumer.errors import ZkConsumerError
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from bridge.migration.connector.membership import MigratingMembership

NOT_JOINED = NotWritten("this member is not in the coordinator's group yet, or not any more", KAFKA)

Offsets = Mapping[TopicPartition, int]
Refused = dict[TopicPartition, NotWritten]


@dataclass(slots=True)
class _Call:
    """One call of ``commit``; all but ``number`` and ``positions`` is known once ``begun`` is set."""

    number: int
    positions: Offsets
    is_of_listener: bool = False
    order: Order = Order.ZOOKEEPER
    metadata: Mapping[TopicPartition, str] | None = None
    ours: frozenset[TopicPartition] = frozenset()
    locked: frozenset[TopicPartition] = frozenset()
    is_given_up: bool = False
    begun: threading.Event = field(default_factory=threading.Event)


class CommitDesk:
    """Of one member; ``commit`` may be called on any thread but the control threads."""

    def __init__(self, member: MigratingMembership) -> None:
        self._member = member
        self._lock = threading.Lock()
        self._made = 0
        self._open: dict[int, _Call] = {}

    def commit(self, positions: Offsets, timeout_ms: int) -> Refused:
        """Write these; gives back what was not written, with the reason."""
        member = self._member
        until_ms = member.clock.now_ms() + timeout_ms
        with self._lock:
            self._made += 1
            # The listener is called before what an ended member has is given back, and may commit it.
            is_of_listener = member.listener.is_waited_for_here
            call = self._open[self._made] = _Call(self._made, dict(positions), is_of_listener)
        member.zookeeper.control.call(lambda: self._begin(call))
        if not call.begun.wait(timeout_ms / 1000):
            with self._lock:
                call.is_given_up = not call.begun.is_set()
        if call.is_given_up or not self._is_accepted(call):
            self._open.pop(call.number, None)
            return dict.fromkeys(positions, NotWritten(f"the control thread did not answer within {timeout_ms} ms"))
        try:
            refused = self._make(call, until_ms)
            if member.machine.duty.order is call.order:
                return refused
            # The phase is another one by now, and so is the order: another try goes by that.
            return {tp: replace(why, is_passing=not why.is_final) for tp, why in refused.items()}
        finally:
            member.zookeeper.control.call(lambda: self._end(call))

    def _is_accepted(self, call: _Call) -> bool:
        return self._member.failure is None or call.is_of_listener

    def end(self) -> None:
        """Let everybody go who waits: an error ended the member."""
        for call in list(self._open.values()):
            if not call.is_of_listener:
                call.begun.set()

    # --- on ZooKeeper's control thread ----------------------------------------------------------------------------

    def _begin(self, call: _Call) -> None:
        member, machine = self._member, self._member.machine
        with self._lock:
            if call.is_given_up or not self._is_accepted(call):
                return
            call.order = machine.duty.order
            call.ours = frozenset(machine.works.running)
            call.locked = frozenset(machine.locked)
            if machine.duty.holds is Side.ZOOKEEPER and call.order is Order.KAFKA_FIRST:
                call.metadata = member.metadata(call.positions)
            member.hear(val.CommitBegun(call.number, frozenset(call.positions)))
            call.begun.set()

    def _end(self, call: _Call) -> None:
        del self._open[call.number]
        self._member.hear(val.CommitEnded(call.number))
        self._member.look()

    # --- on the program's -----------------------------------------------------------------------------------------

    def _make(self, call: _Call, until_ms: int) -> Refused:
        if call.order in (Order.ZOOKEEPER, Order.ZOOKEEPER_FIRST):
            return self._to_zookeeper(call.positions, until_ms)
        ours = {tp: at for tp, at in call.positions.items() if tp in call.ours}
        refused = dict.fromkeys(call.positions.keys() - ours.keys(), NOT_OURS)
        refused |= self._to_kafka(ours, call.metadata, until_ms)
        if call.order is Order.KAFKA:
            return refused
        taken = {tp: at for tp, at in ours.items() if tp not in refused and tp in call.locked}
        return refused | self._to_zookeeper(taken, until_ms)

    def _to_zookeeper(self, offsets: Offsets, until_ms: int) -> Refused:
        return self._member.zookeeper.commit(offsets, self._left(until_ms)) if offsets else {}

    def _to_kafka(self, offsets: Offsets, metadata: Mapping[TopicPartition, str] | None, until_ms: int) -> Refused:
        side = self._member.coordinator
        if not offsets or side is None:
            return dict.fromkeys(offsets, NOT_JOINED)
        try:
            # While the owner node is the lock, a commit that is repeated may come behind the next owner's.
            return side.commit(offsets, self._left(until_ms), metadata, is_retried=metadata is None)
        except ZkConsumerError as error:
            return dict.fromkeys(offsets, NotWritten(str(error), KAFKA))

    def _left(self, until_ms: int) -> int:
        return max(1, until_ms - self._member.clock.now_ms())
