"""Taking turns with the membership's own thread: a call waits for so long at most, and not when the query is gone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from zkconsumer.errors import ConnectorClosed, ZkConsumerError, ZkTimeoutException

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zkconsumer.base.clock import Clock
    from zkconsumer.base.delivery_lease import Lease
    from zkconsumer.member.offset_stores import CommitFailure
    from zkconsumer.types import TopicPartition
    from zkconsumer.zk.group_procedures import Procedure
    from zkconsumer.zk.store import ZkStore

T = TypeVar("T")

POLL_MS = 20
"""How often a wait looks whether the query is gone, or the lease has come; everything else tells."""

WRITE_RESERVE_MS = 3_000
"""Of a claim's time, kept for its writing when the share is waited for."""

RETRY_BACKOFF_MS = 200
"""Between two tries at something that the connection to ZooKeeper broke."""

LEAVING_MESSAGE = "the query's keeper is leaving the group"


class EventLoopCaller(Protocol):
    """The membership's own thread."""

    def call_soon(self, action: Callable[[], None]) -> None:
        """Run something there, in its turn."""


class UnderlyingMembership(Protocol):
    """A membership, as the calls of a query use it."""

    @property
    def event_loop(self) -> EventLoopCaller: ...

    @property
    def failure(self) -> ZkConsumerError | None:
        """The error that ended it, if one did."""

    def commit(self, positions: Mapping[TopicPartition, int], timeout_ms: int) -> dict[TopicPartition, CommitFailure]:
        """Write these positions of what is ours; gives back what was not written, with the reason."""

    def leave(self) -> bool:
        """Give everything back and leave the group."""

    def close(self) -> bool:
        """End everything."""


class MembershipResources(Protocol):
    """What turns are taken with.  ``store``: the session in which procedures run."""

    group: str
    store: ZkStore
    lease: Lease

    @property
    def membership(self) -> UnderlyingMembership: ...

    def run_procedure(self, procedure: Procedure[T], session_id: int, then: Callable[[T], None]) -> None:
        """Run this in that session, or have its requests refused; ``then`` on some thread."""


class BlockingCalls:
    """Used by the thread of the calls; ``gone`` may be set by any."""

    def __init__(self, opened: MembershipResources, clock: Clock) -> None:
        self.query_gone = threading.Event()
        self._opened = opened
        self._membership = opened.membership
        self._clock = clock

    def check(self) -> None:
        """Raise the error that ended the membership, or that the query is gone."""
        if self._membership.failure is not None:
            raise self._membership.failure
        if self.query_gone.is_set():
            raise ConnectorClosed(LEAVING_MESSAGE)

    def session_id(self) -> int:
        """The session of now; raises ``ZkTimeoutException`` when there is none."""
        session_id = self._opened.store.session_id
        if session_id is None:
            raise ZkTimeoutException("there is no session with ZooKeeper at the moment")
        return session_id

    def run(self, make: Callable[[], Procedure[T]], until_ms: int) -> T:
        """Run a procedure on the group's thread, in the session of now.

        Raises what the procedure raises, and ``ZkTimeoutException``; then it goes on all the same, to its end.
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
        """Try until the connection to ZooKeeper does not break in the middle; what is done is safe to be done again."""
        while True:
            try:
                return action()
            except ZkTimeoutException:
                if self.remaining_ms(until_ms) < WRITE_RESERVE_MS or self.pause(RETRY_BACKOFF_MS):
                    raise
                self.check()

    def on_event_loop(self, action: Callable[[], T], until_ms: int) -> T:
        """Do this on the group's thread, between two of its events."""
        box: list[T] = []
        done = threading.Event()

        def act() -> None:
            box.append(action())
            done.set()

        self._membership.event_loop.call_soon(act)
        self.wait_for(done, until_ms, "the membership's own thread")
        return box[0]

    def wait_for(self, done: threading.Event, until_ms: int, server: str) -> None:
        """Wait for ``server``; raises ``ZkTimeoutException``, and what ``check`` raises."""
        while not done.wait(min(POLL_MS, max(0, self.remaining_ms(until_ms))) / 1000):
            self.check()
            if self.remaining_ms(until_ms) <= 0:
                raise ZkTimeoutException(f"{server} did not answer in time: group {self._opened.group}")

    def remaining_ms(self, until_ms: int) -> int:
        """What is left of a call's time; negative when it is over."""
        return until_ms - self._clock.now_ms()

    def pause(self, ms: int) -> bool:
        """Wait so long; True: the query is gone."""
        return self.query_gone.wait(ms / 1000)
