"""What the rest of the program asks of ZooKeeper: ``ZkStore``, and a blocking ``call`` for tools and tests.

Everything is asynchronous, because the control thread must never wait for a server.  Two implementations:
``zkconsumer.zk.kazoo_store.KazooStore`` and ``zkconsumer.testing.fake_zookeeper.FakeZkStore``; one set of
conformance tests runs over both.

The order that both keep: answers of one session come in the order of its requests; a watch event comes before the
answer of any request that would show the change; ``SessionLost`` comes before the ``SessionEnded`` results of what
waited for it; ``ConnectionLost`` results come before ``SessionSuspended``, and that before ``SessionLost``.
Everything is delivered on one thread of the library, one thing at a time (what is refused at once: on the caller's):
callbacks only enqueue.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from zkconsumer.errors import ZkTimeoutException
from zkconsumer.zk.requests import Request, Result, StoreEvent


class ZkStore(Protocol):
    """One session after the other at one ZooKeeper ensemble, below one chroot."""

    @property
    def session_id(self) -> int | None:
        """The current session, None before the first and between two.  Kept while suspended."""

    @property
    def negotiated_timeout_ms(self) -> int:
        """The session time-out that the server granted; 0 before the first session."""

    @property
    def packets_sent(self) -> int:
        """Requests handed to ZooKeeper so far (pings not counted), for metrics and for tests of thrift."""

    def listen(self, on_event: Callable[[StoreEvent], None]) -> None:
        """Say who is told of session and watch events.  Once, before ``start``."""

    def start(self, timeout_ms: int) -> None:
        """Connect, and wait for the first session.

        Raises ``ZkTimeoutException`` (naming the addresses) when no server gave a session within ``timeout_ms``,
        ``ChrootMissing`` when the chroot does not exist, ``UnavailableError`` when the server is older than 3.4.
        """

    def submit(self, session_id: int | None, requests: Sequence[Request], done: Callable[[list[Result]], None]) -> None:
        """Send the requests, pipelined in their order; ``done`` gets all results once the last has settled.

        With a ``session_id`` they are executed in that session or not at all (``SessionEnded`` each); with None in
        whatever session comes.  What is submitted while suspended waits for the connection, the end of the
        session, or ``close``.  Never blocks; ``done`` may be called before this returns.

        Raises ``InvalidNameError`` for a path that cannot be one, ``ForkedError`` in a forked child.
        """

    def host_of(self, session_id: int, timeout_ms: int) -> str | None:
        """From which host another session is connected, None when no server tells; blocks, ``timeout_ms`` a server."""

    def close(self, timeout_ms: int) -> bool:
        """End the session at once; what is under way settles (its answer, or ``SessionEnded``).  No more events come.

        True when the server confirmed, so that our ephemerals are gone; False when they may live on until the
        session times out.  Returns within about ``timeout_ms``; a second call does nothing.
        """


def submit_and_wait(
    store: ZkStore, requests: Sequence[Request], timeout_ms: int, session_id: int | None = None
) -> list[Result]:
    """Submit and wait: for tools and tests, never for the control thread.

    Raises ``ZkTimeoutException`` when the answers did not come in time (they may still be executed).
    """
    box: list[list[Result]] = []
    settled = threading.Event()

    def done(results: list[Result]) -> None:
        box.append(results)
        settled.set()

    store.submit(session_id, requests, done)
    if not settled.wait(timeout_ms / 1000):
        raise ZkTimeoutException(f"ZooKeeper did not answer {len(requests)} requests within {timeout_ms} ms")
    return box[0]
