"""The hooks, listener calls and metrics of one side: those about partitions come from the active side only.

Theory of operation.  Each membership calls hooks, listener and metrics as if it were alone.  From LOCKED on both sides
rebalance over the same partitions.  When the active side changes, the former one releases all of them, and no partition
stops.  So the calls of the passive side end here
(``test_the_listener_is_not_called_for_a_side_change_and_once_for_a_rebalance``).

Whether a side is active is read at the moment of the call, on the thread of the caller: a membership may decide about a
call before the phase changes, and make it after that.  A rebalance that waits for the return of a listener call must
get an answer in any case; for a passive side the filter gives it at once.
"""

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
"""Hooks about partitions: called by the active side only."""

MEMBER_HOOKS = frozenset({"member_failed"})
"""Hooks about the member, not about one of its memberships: ``MembershipLifecycle`` of the migrating membership calls
them, never a side.  Every other hook (a warning, a thread that died) is called by either side."""

assert not PARTITION_HOOKS & MEMBER_HOOKS, "a hook is about one of both"


class ActiveSideHooks(HookCalls):
    """The member's hooks, as a side calls them; ``shared`` has the one thread of the hooks, so calls stay in order."""

    def __init__(self, shared: HookCalls, is_active: Callable[[], bool]) -> None:
        self._shared = shared
        self._is_active = is_active

    def __bool__(self) -> bool:
        return bool(self._shared)

    def call(self, name: str, *values: Any) -> None:
        """See ``HookCalls``; from any thread."""
        if name not in MEMBER_HOOKS and (name not in PARTITION_HOOKS or self._is_active()):
            self._shared.call(name, *values)

    def close(self) -> None:
        """``MigratingMembership`` closes them."""

    def join(self, timeout_ms: int) -> bool:
        """``MigratingMembership`` waits for them."""
        return True


class ActiveSideListener(ListenerCalls):
    """The program's rebalance listener for one side: a call of the passive side returns at once, without the listener.

    ``turn``: a lock for the calls of both sides, so that the program is never called twice at the same time: a call of
    the side that was active before may still run when the other one is active.  Each side makes its calls on a thread
    of its own, which may wait for the lock; the control threads never do.
    """

    def __init__(
        self,
        member: str,
        control: ListenerEventSink,
        on_thread_error: OnThreadError,
        is_active: Callable[[], bool],
        turn: threading.Lock,
    ) -> None:
        super().__init__(member, control, on_thread_error)
        self.other_listeners: list[ListenerCalls] = []
        """The other side's calls of the same listener: at most one, and none while there is one side.  The program may
        commit or leave inside of a call of either side, and each side must recognise that."""
        self._is_active = is_active
        self._call_lock = turn

    def call_before_releasing(self, command: do.CallBeforeReleasing) -> None:
        """See ``ListenerCalls``.  The rebalance of a passive side waits for the return as well, so it is reported."""
        if self._is_active():
            super().call_before_releasing(command)
        else:
            self._control.submit(ev.ListenerReturned(command.ticket, "before_releasing_partitions"))

    def call_before_starting(self, command: do.CallBeforeStarting) -> None:
        """See ``ListenerCalls``, and ``call_before_releasing``."""
        if self._is_active():
            super().call_before_starting(command)
        else:
            self._control.submit(ev.ListenerReturned(command.ticket, "before_starting_fetchers"))

    def call_partitions_lost(self, command: do.CallPartitionsLost) -> None:
        """See ``ListenerCalls``.  Nothing waits for it.  What a passive side loses, the program does not lose."""
        if self._is_active():
            super().call_partitions_lost(command)

    @property
    def is_inside_awaited_call(self) -> bool:
        """See ``ListenerCalls``: on either side."""
        assert self not in self.other_listeners, "a side asks the other one, which must not ask it back"
        return super().is_inside_awaited_call or any(other.is_inside_awaited_call for other in self.other_listeners)

    def _call(self, returned: ev.ListenerReturned, call: Callable[[], None]) -> None:
        with self._call_lock:
            super()._call(returned, call)

    def _call_lost(self, listener: PartitionsLostListener) -> None:
        with self._call_lock:
            super()._call_lost(listener)


class ActiveSideMeters:
    """``MembershipMeters`` of one side: only the active side reports whether the assignment is complete."""

    def __init__(self, meters: MembershipMeters, is_active: Callable[[], bool]) -> None:
        self._meters = meters
        self._is_active = is_active

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
