"""What the program and its metrics hear of a member with two memberships: of the side that holds, and once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zkconsumer.member import events as ev
from zkconsumer.runtime.hook_calls import HookCalls
from zkconsumer.runtime.listener_calls import ListenerCalls

if TYPE_CHECKING:
    import threading

    from zkconsumer.base.threads import OnThreadError
    from zkconsumer.member import commands as do
    from zkconsumer.member.listener_state_machine import PartitionsLostListener
    from zkconsumer.observe.metrics import Meter
    from zkconsumer.runtime.listener_calls import ListenerEventSink
    from zkconsumer.runtime.member_observer import MembershipMeters

PARTITION_HOOKS = frozenset({"assignment_complete", "partitions_revoked", "partitions_lost", "drain_timed_out"})
"""Hooks that tell of partitions."""

MEMBER_HOOKS = frozenset({"member_failed"})
"""Hooks that tell of the member, not of one of its memberships."""


class ActiveSideHooks(HookCalls):
    """The member's hooks, as a side calls them."""

    def __init__(self, shared: HookCalls, holds: Callable[[], bool]) -> None:
        self._shared = shared
        self._is_active = holds

    def __bool__(self) -> bool:
        return bool(self._shared)

    def call(self, name: str, *values: Any) -> None:
        """See ``HookCalls``."""
        if name not in MEMBER_HOOKS and (name not in PARTITION_HOOKS or self._is_active()):
            self._shared.call(name, *values)

    def close(self) -> None:
        """They are the member's to close."""

    def join(self, timeout_ms: int) -> bool:
        """They are the member's to wait for."""
        return True


class ActiveSideListener(ListenerCalls):
    """The program's rebalance listener, as a side calls it: while the side does not hold, it has returned at once.

    ``turn``: both sides' calls take it, so that the program is never called twice at the same time.
    """

    def __init__(
        self,
        member: str,
        control: ListenerEventSink,
        on_thread_error: OnThreadError,
        holds: Callable[[], bool],
        turn: threading.Lock,
    ) -> None:
        super().__init__(member, control, on_thread_error)
        self.other_listeners: list[ListenerCalls] = []
        """Who else calls the same one."""
        self._is_active = holds
        self._call_lock = turn

    def call_before_releasing(self, command: do.CallBeforeReleasing) -> None:
        """See ``ListenerCalls``."""
        if self._is_active():
            super().call_before_releasing(command)
        else:
            self._control.submit(ev.ListenerReturned(command.ticket, "before_releasing_partitions"))

    def call_before_starting(self, command: do.CallBeforeStarting) -> None:
        """See ``ListenerCalls``."""
        if self._is_active():
            super().call_before_starting(command)
        else:
            self._control.submit(ev.ListenerReturned(command.ticket, "before_starting_fetchers"))

    def call_partitions_lost(self, command: do.CallPartitionsLost) -> None:
        """See ``ListenerCalls``."""
        if self._is_active():
            super().call_partitions_lost(command)

    @property
    def is_inside_awaited_call(self) -> bool:
        """See ``ListenerCalls``."""
        return super().is_inside_awaited_call or any(other.is_inside_awaited_call for other in self.other_listeners)

    def _call(self, returned: ev.ListenerReturned, call: Callable[[], None]) -> None:
        with self._call_lock:
            super()._call(returned, call)

    def _call_lost(self, listener: PartitionsLostListener) -> None:
        with self._call_lock:
            super()._call_lost(listener)


class ActiveSideMeters:
    """``MembershipMeters``: whether the share is whole is said by the side that holds."""

    def __init__(self, meters: MembershipMeters, holds: Callable[[], bool]) -> None:
        self._meters = meters
        self._is_active = holds

    @property
    def zookeeper_commits(self) -> Meter:
        """See ``MembershipMeters``."""
        return self._meters.zookeeper_commits

    @property
    def kafka_commits(self) -> Meter:
        """See ``MembershipMeters``."""
        return self._meters.kafka_commits

    def rebalance_started(self) -> None:
        """See ``MembershipMeters``."""
        if self._is_active():
            self._meters.rebalance_started()

    def rebalance_completed(self) -> None:
        """See ``MembershipMeters``."""
        if self._is_active():
            self._meters.rebalance_completed()
