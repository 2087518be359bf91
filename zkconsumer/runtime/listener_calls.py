"""Calls the program's rebalance listener, on a separate thread.

``member.listener_state_machine`` decides when it is called.
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, Protocol

from zkconsumer.member import events as ev
from zkconsumer.member.listener_state_machine import PartitionsLostListener
from zkconsumer.runtime.callback_thread import CallbackThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from zkconsumer.base.threads import OnThreadError
    from zkconsumer.member import commands as do
    from zkconsumer.member.listener_state_machine import ConsumerRebalanceListener
    from zkconsumer.member.topic_count import ConsumerThreadId
    from zkconsumer.types import TopicPartition

LISTENER_CALLS_QUEUED_MAX = 2
"""One call of the state machine, which starts no second one before it returns, and one call for lost partitions."""

log = logging.getLogger("zkconsumer.member")


class ListenerEventSink(Protocol):
    """The event loop that receives the events of the listener."""

    def submit(self, event: ev.ListenerSet | ev.ListenerReturned) -> None:
        """Queue an event, from any thread."""


class ListenerCalls:
    """Calls ``listener``, and reports when the call returned."""

    def __init__(self, member: str, control: ListenerEventSink, on_thread_error: OnThreadError) -> None:
        self.listener: ConsumerRebalanceListener | None = None
        self.member = member
        self._control = control
        self._thread = CallbackThread(f"{member}-listener", LISTENER_CALLS_QUEUED_MAX, on_thread_error)
        self._running: ev.ListenerReturned | None = None
        self._closed = False
        self._lost: set[TopicPartition] = set()
        self._lock = threading.Lock()

    def set(self, listener: ConsumerRebalanceListener) -> None:
        """Call this one from now on."""
        self.listener = listener
        self._control.submit(ev.ListenerSet())

    def call_before_releasing(self, command: do.CallBeforeReleasing) -> None:
        assert self.listener is not None, "this command is sent only after ListenerSet"
        call = partial(self.listener.before_releasing_partitions, _by_topic(command.partitions))
        self._enqueue(ev.ListenerReturned(command.ticket, "before_releasing_partitions"), call)

    def call_before_starting(self, command: do.CallBeforeStarting) -> None:
        assignment: dict[str, dict[int, ConsumerThreadId]] = {}
        for (topic, number), thread in command.assignment.items():
            assignment.setdefault(topic, {})[number] = thread
        assert self.listener is not None, "this command is sent only after ListenerSet"
        call = partial(self.listener.before_starting_fetchers, self.member, assignment)
        self._enqueue(ev.ListenerReturned(command.ticket, "before_starting_fetchers"), call)

    def call_partitions_lost(self, command: do.CallPartitionsLost) -> None:
        """Nothing waits for this call; it names all partitions that were lost before it is made."""
        if isinstance(self.listener, PartitionsLostListener):
            with self._lock:
                is_waiting = bool(self._lost)
                self._lost.update(command.partitions)
            if not is_waiting:
                self._thread.enqueue(partial(self._call_lost, self.listener))

    def report_early_return(self) -> None:
        """Report a running call as returned: the listener itself will wait for a rebalance that waits for it."""
        if self._thread.is_current and self._running is not None:
            running, self._running = self._running, None
            self._control.submit(running)

    @property
    def is_inside_awaited_call(self) -> bool:
        """Whether the caller runs in a listener call for which the rebalance, or a close, still waits."""
        return self._thread.is_current and self._running is not None and not self._closed

    def close(self, *, finish: bool = False) -> None:
        """Accept no more calls; ``finish``: make the queued calls first."""
        self._closed = True
        self._thread.close(finish=finish)

    def join(self, timeout_ms: int) -> bool:
        """Wait for a running call, unless the caller runs in it."""
        return self._thread.join(timeout_ms)

    def _enqueue(self, returned: ev.ListenerReturned, call: Callable[[], None]) -> None:
        self._thread.enqueue(partial(self._call, returned, call))

    def _call(self, returned: ev.ListenerReturned, call: Callable[[], None]) -> None:
        self._running = returned
        try:
            call()
        except BaseException as error:
            log.error("listener-raised member=%s call=%s", self.member, returned.method_name, exc_info=error)
            returned = ev.ListenerReturned(returned.ticket, returned.method_name, f"{type(error).__name__}: {error}")
        running, self._running = self._running, None
        if running is not None:
            self._control.submit(returned)

    def _call_lost(self, listener: PartitionsLostListener) -> None:
        with self._lock:
            lost, self._lost = self._lost, set()
        try:
            listener.on_partitions_lost(_by_topic(lost))
        except BaseException as error:
            log.error("listener-raised member=%s call=on_partitions_lost", self.member, exc_info=error)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, set()).add(number)
    return found
