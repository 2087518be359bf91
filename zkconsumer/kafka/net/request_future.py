"""``RequestFuture``: the result of a request that may not have ended yet, as ``RequestFuture`` of Kafka.  Pure.

A future ends once, with a value (``complete``) or with an exception (``raise_``).  Listeners are called when it ends,
in the thread that ends it and in the order in which they were added; one that is added later is called at once.

Threads.  ``complete`` and ``raise_`` take the single item out of ``_permission`` first, and removing an item from a
list is atomic, so of several threads one ends the future and the others get an error.  ``_outcome`` is set afterwards,
and listeners are taken from a deque, so each is called once, by the thread that ends the future or by the one that adds
it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar, cast

from zkconsumer.errors import RetriableException
from zkconsumer.kafka.error_codes import BrokerError

T = TypeVar("T")
S = TypeVar("S")


class _Outcome(NamedTuple):
    value: object
    error: Exception | None


class RequestFuture(Generic[T]):
    """See the module.  Poll the network client until ``is_done``; then look at ``succeeded``."""

    __slots__ = ("_listeners", "_outcome", "_permission")

    def __init__(self) -> None:
        self._outcome: _Outcome | None = None
        self._permission = [None]
        self._listeners: deque[tuple[Callable[[T], None] | None, Callable[[Exception], None] | None]] = deque()

    @classmethod
    def failure(cls, error: Exception) -> RequestFuture[T]:
        """A future that has failed."""
        future = cls()
        future.raise_(error)
        return future

    @staticmethod
    def void_success() -> RequestFuture[None]:
        """A future that has succeeded without a value."""
        future: RequestFuture[None] = RequestFuture()
        future.complete(None)
        return future

    @property
    def is_done(self) -> bool:
        """Whether it has succeeded or failed."""
        return self._outcome is not None

    @property
    def succeeded(self) -> bool:
        """Whether it has a value."""
        return self._outcome is not None and self._outcome.error is None

    @property
    def failed(self) -> bool:
        """Whether it has an exception."""
        return self._outcome is not None and self._outcome.error is not None

    @property
    def value(self) -> T:
        """The value.  ``RuntimeError``: it has none (yet)."""
        if self._outcome is None or self._outcome.error is not None:
            raise RuntimeError("a future that has not succeeded has no value")
        return cast(T, self._outcome.value)

    @property
    def exception(self) -> Exception:
        """The exception.  ``RuntimeError``: it has none (yet)."""
        if self._outcome is None or self._outcome.error is None:
            raise RuntimeError("a future that has not failed has no exception")
        return self._outcome.error

    @property
    def is_retriable(self) -> bool:
        """Whether the request may succeed if it is repeated.  ``RuntimeError``: it has not failed."""
        error = self.exception
        return isinstance(error, RetriableException) or (isinstance(error, BrokerError) and error.code.is_retriable)

    def should_block(self) -> bool:
        """Whether a poll may wait for the network: the future is not done (Java's ``PollCondition``)."""
        return self._outcome is None

    def complete(self, value: T) -> None:
        """Succeed.  ``RuntimeError``: the future is done already; ``TypeError``: the value is an exception."""
        if isinstance(value, Exception):
            raise TypeError(f"a future fails by raise_({value!r}), it cannot have an exception as its value")
        self._end(_Outcome(value, None))

    def raise_(self, error: Exception) -> None:
        """Fail.  ``RuntimeError``: the future is done already."""
        self._end(_Outcome(None, error))

    def add_listener(
        self,
        on_success: Callable[[T], None] | None = None,
        on_failure: Callable[[Exception], None] | None = None,
    ) -> None:
        """Call one of these when the future ends, or now if it has ended."""
        self._listeners.append((on_success, on_failure))
        if self._outcome is not None:
            self._call_listeners(self._outcome)

    def compose(
        self,
        on_success: Callable[[T, RequestFuture[S]], None],
        on_failure: Callable[[Exception, RequestFuture[S]], None] | None = None,
    ) -> RequestFuture[S]:
        """Another future, which these functions end; a failure is passed on unless ``on_failure`` is given."""
        adapted: RequestFuture[S] = RequestFuture()
        self.add_listener(
            lambda value: on_success(value, adapted),
            adapted.raise_ if on_failure is None else lambda error: on_failure(error, adapted),
        )
        return adapted

    def chain(self, future: RequestFuture[T]) -> None:
        """End another future in the same way as this one."""
        self.add_listener(future.complete, future.raise_)

    def _end(self, outcome: _Outcome) -> None:
        try:
            self._permission.pop()
        except IndexError:
            raise RuntimeError("a future ends once, and this one is done already") from None
        self._outcome = outcome
        self._call_listeners(outcome)

    def _call_listeners(self, outcome: _Outcome) -> None:
        while True:
            try:
                on_success, on_failure = self._listeners.popleft()
            except IndexError:
                return
            if outcome.error is None:
                if on_success is not None:
                    on_success(cast(T, outcome.value))
            elif on_failure is not None:
                on_failure(outcome.error)
