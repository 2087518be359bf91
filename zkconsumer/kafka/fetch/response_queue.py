"""``ResponseQueue``: hands the ends of requests over to the thread of the program.  Pure.

    RequestFuture --ends in any thread--> queue --run, in the program's thread--> the handler

A request may end in the heartbeat thread, which polls the same network client.  Its listener only appends to the queue;
so the state that the handlers change belongs to one thread and needs no lock.  Each handler is called once, in the
order in which the requests ended.  If the thread of the program never calls ``run`` again, the queue keeps the
responses of the requests that were in flight, and no more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class EndingRequest(Protocol[T_co]):
    """The part of ``RequestFuture`` that is used here."""

    def add_listener(
        self,
        on_success: Callable[[T_co], None] | None = None,
        on_failure: Callable[[Exception], None] | None = None,
    ) -> None: ...


class ResponseQueue:
    """``when_done`` and ``run`` are for the thread of the program."""

    def __init__(self) -> None:
        self.ended: deque[Callable[[], None]] = deque()
        """The handlers of the requests that have ended, until ``run`` calls them."""

    def when_done(
        self, future: EndingRequest[T], on_success: Callable[[T], None], on_failure: Callable[[Exception], None]
    ) -> None:
        """Let ``run`` call one of these after the end of the request."""
        future.add_listener(
            lambda value: self.ended.append(partial(on_success, value)),
            lambda error: self.ended.append(partial(on_failure, error)),
        )

    def run(self) -> None:
        """Call the handlers of the requests in ``ended``; they raise nothing."""
        while self.ended:
            self.ended.popleft()()
