"""Blocking calls to the membership's own thread, each with a deadline; the end of the query ends every wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from zkconsumer.errors import ConnectorClosed, ZkConsumerError, ZkTimeoutException

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock
    from zkconsumer.base.delivery_lease import Lease
    from zkconsumer.member.ownership import Membership
    from zkconsumer.zk.group_procedures import Procedure
    from zkconsumer.zk.store import ZkStore

T = TypeVar("T")

POLL_MS = 20
"""Poll interval for the two conditions without a notification: query ended, lease renewed."""

WRITE_RESERVE_MS = 3_000
"""The part of a claim's time that is reserved for its writes while the call waits for the assignment."""

RETRY_BACKOFF_MS = 200
"""The pause between two attempts at an operation that a broken connection to ZooKeeper interrupted."""

LEAVING_MESSAGE = "the query's membership process is leaving the group"


class MembershipResources(Protocol):
    """The resources of ``BlockingCalls``.  ``store``: the session in which procedures run."""

    group: str
    store: ZkStore
    lease: Lease

    @property
    def membership(self) -> Membership: ...

    def run_procedure(self, procedure: Procedure[T], session_id: int, then: Callable[[T], None]) -> None:
        """Run this in that session, or have its requests rejected; calls ``then`` on some thread."""


class BlockingCalls:
    """Used by the thread of the calls; any thread may set ``gone``."""

    def __init__(self, opened: MembershipResources, clock: Clock) -> None:
        self.query_gone = threading.Event()
        self._opened = opened
        self._membership = opened.membership
        self._clock = clock

    def check(self) -> None:
        """Raise the error that ended the membership, or an error if the query has ended."""
        if self._membership.failure is not None:
            raise self._membership.failure
        if self.query_gone.is_set():
            raise ConnectorClosed(LEAVING_MESSAGE)

    def session_id(self) -> int:
        """The current session; raises ``ZkTimeoutException`` without one."""
        session_id = self._opened.store.session_id
        if session_id is None:
            raise ZkTimeoutException("there is no session with ZooKeeper at the moment; the call must be repeated")
        return session_id

    def run(self, make: Callable[[], Procedure[T]], until_ms: int) -> T:
        """Run a procedure on the group's thread, in the current session.

        Raises the errors of the procedure, and ``ZkTimeoutException``; after a time-out the procedure still runs to its
        end.
        """
        box: list[T | ZkConsumerError] = []
        done = threading.Event()

        def guarded() -> Generator[Any, Any, T | ZkConsumerError]:
            try:
                return (yield from make())
            except ZkConsumerError as error:
                return error

        def then(result: T | ZkConsumerError) -> None:
            box.append(result)
            done.set()

        self._opened.run_procedure(guarded(), self._opened.store.session_id or 0, then)
        self.wait_for(done, until_ms, "ZooKeeper")
        if isinstance(box[0], ZkConsumerError):
            raise box[0]
        return box[0]

    def retry(self, action: Callable[[], T], until_ms: int) -> T:
        """Retry while the connection to ZooKeeper breaks during the action; the action must be safe to repeat."""
        while True:
            try:
                return action()
            except ZkTimeoutException:
                if self.remaining_ms(until_ms) < WRITE_RESERVE_MS or self.pause(RETRY_BACKOFF_MS):
                    raise
                self.check()

    def on_event_loop(self, action: Callable[[], T], until_ms: int) -> T:
        """Run this on the group's thread, between two of its events."""
        box: list[T] = []
        done = threading.Event()

        def act() -> None:
            box.append(action())
            done.set()

        self._membership.event_loop.call_soon(act)
        self.wait_for(done, until_ms, "the membership's own thread")
        return box[0]

    def wait_for(self, done: threading.Event, until_ms: int, server: str) -> None:
        """Wait for ``server``; raises ``ZkTimeoutException``, and the errors of ``check``."""
        while not done.wait(min(POLL_MS, max(0, self.remaining_ms(until_ms))) / 1000):
            self.check()
            if self.remaining_ms(until_ms) <= 0:
                raise ZkTimeoutException(f"{server} did not answer in time: group {self._opened.group}")

    def remaining_ms(self, until_ms: int) -> int:
        """The rest of a call's time; negative after its deadline."""
        return until_ms - self._clock.now_ms()

    def pause(self, ms: int) -> bool:
        """Wait so many ms; True: the query has ended."""
        return self.query_gone.wait(ms / 1000)
