"""The end of the coordinator side: nothing of a migrating member waits for it any more."""

from __future__ import annotations

from typing import Any, cast

from bridge.migration.dual.connector.coordinator_side_lifecycle import CoordinatorSideLifecycle
from bridge.migration.dual.machine import machine_messages as val
from bridge.migration.dual.machine.migrating_member import MigratingMember
from tests.transcripts.migration.migrating_member_conversation import MigratingMemberConversation
from zkconsumer.testing.manual_clock import ManualClock


class Listener:
    """It has the calls of no other side."""

    other_listeners: tuple[object, ...] = ()


class Member:
    """What the lifecycle needs of a member whose program has not joined."""

    def __init__(self, machine: MigratingMember) -> None:
        self.machine = machine
        self.clock = ManualClock()
        self.listener = Listener()

    def handle_event(self, event: val.MigratingMemberEvent) -> None:
        self.machine.handle(event)


def test_a_partition_that_the_closed_side_was_draining_continues_when_the_next_side_gets_it() -> None:
    """The side was closed after an error, before it had its answers; ZooKeeper's side has not released it."""
    talk = MigratingMemberConversation()
    lifecycle = CoordinatorSideLifecycle(cast("Any", Member(talk.member)), *cast("Any", (None,) * 4))
    for line in ("control locked@3", "generation 4", "co start t/0=10", "zk start t/0=10"):
        talk.handle(line)
    for line in ("co drain t/0", "drained t/0=15"):
        talk.handle(line)
    lifecycle.side = cast("Any", object())
    lifecycle._side_closed()
    talk.handle("generation 5")
    assert "processor: move t/0=me-0" in talk.handle("co start t/0=15")
