"""``ReaderThread``: reads documents of one kind on a schedule, in its own thread with its own session.

One slow or failing kind of read (a coordinator that does not answer) must not delay the others, so each kind has a
thread.  A session is used by one thread only.  Every wait is bounded: by the limits of ``AdminSession``, and by the
stop signal between two reads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from bridge.web.read_state import next_read_ms
from zkconsumer.base.clock import thread_cpu_ms
from zkconsumer.base.threads import StopSignal, spawn
from zkconsumer.errors import ZkConsumerError

if TYPE_CHECKING:
    from zkconsumer.admin.admin_session import AnySession
    from zkconsumer.base.clock import Clock

log = logging.getLogger("zkconsumer.web")

OpenSession: TypeAlias = "Callable[[], AnySession]"

CLOSE_TIMEOUT_MS = 3_000
WAIT_MAX_MS = 60_000


@dataclass(frozen=True, slots=True)
class ReadingKind:
    """``read`` reads one subject and publishes the result; it raises ``ZkConsumerError`` when a server does not answer,
    and then ``failed`` is called with the subject and the reason.  ``interval_ms``: from one start to the next.
    """

    name: str
    interval_ms: int
    read: Callable[[AnySession, str], None]
    failed: Callable[[str, str], None]


class ReaderThread:
    """One kind of document, of several subjects (groups)."""

    def __init__(self, kind: ReadingKind, open_session: OpenSession, clock: Clock) -> None:
        self._kind = kind
        self._open_session = open_session
        self._clock = clock
        self._session: AnySession | None = None
        # Under the condition: subject -> when it is due (ms of the clock).
        self._changed = threading.Condition()
        self._due_ms: dict[str, int] = {}
        self._is_stopped = False
        self._worker = spawn(f"zkconsumer-web-{kind.name}", self._run, _report_end, wake=self._wake)

    def want(self, subjects: Collection[str]) -> None:
        """Read exactly these from now on; a new one at once."""
        with self._changed:
            now_ms = self._clock.now_ms()
            self._due_ms = {one: self._due_ms.get(one, now_ms) for one in subjects}
            self._changed.notify_all()

    def close(self) -> None:
        """End the thread and its session; a read in progress may go on for its bounded time, and has no effect."""
        if not self._worker.stop(CLOSE_TIMEOUT_MS):
            session = self._session
            if session is not None:
                session.close()  # a wait for ZooKeeper ends with the session
            self._worker.join(CLOSE_TIMEOUT_MS)

    def _wake(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def _run(self, stop: StopSignal) -> None:
        try:
            while (subject := self._next_subject()) is not None:
                started_ms, started_cpu_ms = self._clock.now_ms(), thread_cpu_ms()
                self._read(subject)
                ended_ms, cpu_ms = self._clock.now_ms(), thread_cpu_ms() - started_cpu_ms
                with self._changed:
                    if subject in self._due_ms:
                        self._due_ms[subject] = next_read_ms(started_ms, ended_ms, cpu_ms, self._kind.interval_ms)
        finally:
            if self._session is not None:
                self._session.close()

    def _next_subject(self) -> str | None:
        """Wait for the subject that is due first; None when the thread must end."""
        with self._changed:
            while not self._is_stopped:
                now_ms = self._clock.now_ms()
                subject = min(self._due_ms, key=self._due_ms.__getitem__, default=None)
                if subject is not None and self._due_ms[subject] <= now_ms:
                    return subject
                wait_ms = WAIT_MAX_MS if subject is None else min(WAIT_MAX_MS, self._due_ms[subject] - now_ms)
                self._changed.wait(wait_ms / 1000)
            return None

    def _read(self, subject: str) -> None:
        try:
            if self._session is None:
                self._session = self._open_session()
            self._kind.read(self._session, subject)
        except ZkConsumerError as error:
            self._kind.failed(subject, str(error) or type(error).__name__)
        except Exception as error:
            log.exception("web-read-failed kind=%s subject=%s", self._kind.name, subject)
            self._kind.failed(subject, f"internal error: {type(error).__name__}: {error}")


def _report_end(name: str, error: BaseException) -> None:
    log.error("web-thread-ended thread=%s error=%r", name, error)
