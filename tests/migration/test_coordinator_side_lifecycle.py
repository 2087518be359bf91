"""The end of the coordinator side: nothing of a migrating member waits for it any more."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bridge.migration.dual.connector.coordinator_side_lifecycle import REJOIN_DELAY_MS, CoordinatorSideLifecycle
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


def test_a_phase_that_comes_while_a_failed_side_is_closed_does_not_wait_for_the_pause_after_the_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[object] = []
    monkeypatch.setattr(CoordinatorSideLifecycle, "_open", lambda _, subscription: opened.append(subscription))
    member = Member(MigratingMember())
    lifecycle = CoordinatorSideLifecycle(cast("Any", member), *cast("Any", (None,) * 4))
    lifecycle.subscription = cast("Any", "a subscription")
    lifecycle.side = lifecycle.leave_thread = cast("Any", object())
    lifecycle._rejoin_at_ms = member.clock.now_ms() + REJOIN_DELAY_MS
    lifecycle.set_protocols(("private", "range"))
    lifecycle._side_closed()
    assert opened == ["a subscription"]
