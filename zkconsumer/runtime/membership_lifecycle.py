"""The end of a membership, which all kinds of memberships have in common: its first error, or a close.

    running --end: the first error--> failed --close--> closed
       '------------------ close -----------------------^

The first error stops all processing, expires the lease, and wakes every call of the program that waits; each later
call raises that error.  A membership that failed must still be closed.  ``ZooKeeperMembership``,
``CoordinatorMembership`` and ``MigratingMembership`` contain one ``MembershipLifecycle`` each; what differs between
them (how the group is left, what else is closed) they pass to it.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Protocol

from zkconsumer.errors import ThreadFailedError
from zkconsumer.runtime.hook_calls import HookCalls

if TYPE_CHECKING:
    from collections.abc import Callable

    from zkconsumer.errors import AuthenticationException, UsageError, ZkConsumerError
    from zkconsumer.member.ownership import PartitionProcessor
    from zkconsumer.observe.counters import Counters
    from zkconsumer.runtime.listener_calls import ListenerCalls
    from zkconsumer.types import Hooks

CLOSE_STEP_MS = 1_500
"""The maximum duration of each of the last steps of a close (processor, session, control thread, hooks, listener)."""

log = logging.getLogger("zkconsumer.member")


class StoppableService(Protocol):
    """A thread of a membership that stops with the processor."""

    def ask_to_stop(self) -> None: ...
    def join(self, timeout_ms: int) -> bool: ...


class MembershipLifecycle:
    """The failure of one membership and what waits for it; all methods may be called on any thread.

    ``expire``: lets no more records be delivered.  ``release_waiters``: wakes the calls of the program that wait for
    the group.  ``on_first_error``: leaves the group, without waiting.
    """

    def __init__(
        self,
        member: str,
        hooks: Hooks | HookCalls | None,
        counters: Counters,
        *,
        expire: Callable[[], None],
        release_waiters: Callable[[], None],
        on_first_error: Callable[[ZkConsumerError], None],
    ) -> None:
        self.failure: ZkConsumerError | None = None
        """The first error.  It is set before a waiting call returns, so that the call raises it."""
        self.assignment_known = threading.Event()
        """Set by the first complete assignment, and by the end."""
        self.hooks = hooks if isinstance(hooks, HookCalls) else HookCalls(member, hooks, counters, self.thread_died)
        self.processor: PartitionProcessor
        self._services: list[StoppableService] = []
        self._member = member
        self._lock = threading.Lock()
        self._expire = expire
        self._release_waiters = release_waiters
        self._on_first_error = on_first_error

    def attach(self, processor: PartitionProcessor, *services: StoppableService | None) -> None:
        """The processor, and the services that the membership has; called before its thread starts."""
        self.processor = processor
        self._services = [service for service in services if service is not None]

    def wait_for_assignment(self, timeout_ms: int) -> bool:
        """Wait for the first complete assignment; False after the timeout.  Raises the error that ended the member."""
        known = self.assignment_known.wait(timeout_ms / 1000)
        self.check()
        return known

    def check(self) -> None:
        """Raise the error that ended the member, if one did."""
        if self.failure is not None:
            raise self.failure

    def end(self, error: ZkConsumerError) -> None:
        """End the membership with an error: other members must get its partitions."""
        with self._lock:
            is_first, self.failure = self.failure is None, self.failure or error
        self.processor.end(self.failure)
        self._expire()
        # Before the group is left: the listener, which is called then, waits for its commits.
        self._release_waiters()
        if is_first:
            self.hooks.call("member_failed", error)
            self.request_stop()
            self._on_first_error(error)
        self.assignment_known.set()

    def thread_died(self, name: str, error: BaseException) -> None:
        """End every stream with an error, because a thread died.  Called in that thread."""
        log.error("thread-died member=%s thread=%s", self._member, name, exc_info=error)
        self.hooks.call("thread_died", name, error)
        self.end(ThreadFailedError.of(self._member, name, error))

    def authentication_failed(self, error: AuthenticationException) -> None:
        """No broker accepts the authentication settings.  Called on a thread of the fetchers or the topic finder."""
        log.error("authentication-failed member=%s reason=%r", self._member, str(error))
        self.end(error)

    def position_missing(self, error: UsageError) -> None:
        """Partitions of this member have no position.  Called on a thread of the fetchers."""
        log.error("member-failed member=%s reason=%r", self._member, str(error))
        self.end(error)

    def request_stop(self) -> None:
        """Ask the processor and the services to stop; does not wait."""
        self.processor.request_stop()
        for service in self._services:
            service.ask_to_stop()

    def join(self) -> bool:
        """Wait for the processor and the services; a step of ``close``."""
        clean = self.processor.join(CLOSE_STEP_MS)
        for service in self._services:
            clean = service.join(CLOSE_STEP_MS) and clean
        return clean

    def close(self, listener: ListenerCalls | None, *steps: Callable[[], bool]) -> bool:
        """Stop processing, then run all steps in their order; True if each of them returned True.

        ``listener``: None if another membership closes it.  After an error its queued calls are still made.
        """
        self.processor.end(None)
        if listener is not None:
            listener.close(finish=self.failure is not None)
        self.request_stop()
        clean = True
        for step in steps:
            clean = step() and clean
        self.assignment_known.set()
        self.hooks.close()
        if not self.hooks.join(CLOSE_STEP_MS):
            log.warning("hook-not-returned member=%s: its thread is still running", self._member)
        if listener is not None and not listener.join(CLOSE_STEP_MS):
            log.warning("listener-not-returned member=%s: its thread is still running", self._member)
        return clean
