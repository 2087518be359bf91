"""The interface to ZooKeeper: ``ZkStore``, and the blocking ``submit_and_wait`` for tools and tests.

Everything is asynchronous, because the control thread must never wait for a server.  Two implementations:
``zkconsumer.zk.kazoo_store.KazooStore`` and ``zkconsumer.testing.fake_zookeeper.FakeZkStore``; one set of
conformance tests runs over both.

Both keep this order: the answers of one session arrive in the order of its requests; a watch event arrives before the
answer of any request that would show the change; ``SessionLost`` arrives before the ``SessionEnded`` results of the
waiting requests; ``ConnectionLost`` results arrive before ``SessionSuspended``, and that before ``SessionLost``.
All callbacks run on one thread of the library, one at a time (for a request that fails at once: on the caller's
thread); so they must only queue.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from zkconsumer.errors import ZkTimeoutException
from zkconsumer.zk.requests import Request, Result, StoreEvent


class ZkStore(Protocol):
    """The sessions, one after the other, at one ZooKeeper ensemble, below one chroot."""

    @property
    def session_id(self) -> int | None:
        """The id of the current session, also while it is suspended; None before the first and between two sessions."""

    @property
    def negotiated_timeout_ms(self) -> int:
        """The session timeout that the server granted, in ms; 0 before the first session."""

    @property
    def packets_sent(self) -> int:
        """How many requests were sent to ZooKeeper (without pings), for metrics and for tests of request counts."""

    def listen(self, on_event: Callable[[StoreEvent], None]) -> None:
        """Set the callback for session and watch events.  Call it once, before ``start``."""

    def start(self, timeout_ms: int) -> None:
        """Connect, and wait for the first session.

        Raises ``ZkTimeoutException`` (with the addresses) when no server created a session within ``timeout_ms``,
        ``ChrootMissing`` when the chroot does not exist, ``UnavailableError`` when the server is older than 3.4.
        """

    def submit(self, session_id: int | None, requests: Sequence[Request], done: Callable[[list[Result]], None]) -> None:
        """Send the requests, pipelined in their order; ``done`` receives all results when the last one is known.

        With a ``session_id`` they are executed in that session or not at all (each result is ``SessionEnded``); with
        None in the present or the next session.  While the connection is suspended they wait for the connection, the
        end of the session, or ``close``.  Never blocks; ``done`` may be called before this returns.

        Raises ``InvalidNameError`` for an invalid path, ``ForkedError`` in a forked child.
        """

    def host_of(self, session_id: int, timeout_ms: int) -> str | None:
        """The host of another session; None if no server reports it.  Blocks for up to ``timeout_ms`` per server."""

    def close(self, timeout_ms: int) -> bool:
        """Close the session at once; pending requests get their answer or ``SessionEnded``.  No more events follow.

        True if the server confirmed, so our ephemeral nodes are deleted; False if they may exist until the session
        times out.  Returns within about ``timeout_ms``; a second call has no effect.
        """


def submit_and_wait(
    store: ZkStore, requests: Sequence[Request], timeout_ms: int, session_id: int | None = None
) -> list[Result]:
    """Submit and wait, in tools and tests; never on the control thread.

    Raises ``ZkTimeoutException`` when the answers did not arrive in time (the requests may still be executed).
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
