"""The common part of our listeners: they handle a query's end as an event, and a program can wait for it.

Spark calls listeners from a queue of its own: when a batch has ended and ``awaitTermination()`` has returned, its event
may still be in the queue.  The events of one run are in order and ``onQueryTerminated`` is the last of them, so a
listener that has received it has received all.  With Spark Connect all of this happens in the client.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from zkconsumer.base.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

ENDED_RUNS_MAX = 1_000
"""The maximum number of runs whose end is remembered, the latest ones."""


class TrackingQueryListener(StreamingQueryListener):  # type: ignore[misc]
    """Remembers which runs have ended.  Subclasses override ``on_progress`` and ``on_terminated``."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ended: deque[str] = deque(maxlen=ENDED_RUNS_MAX)

    def on_progress(self, event: QueryProgressEvent) -> None:
        """A batch has ended, and is in the commit log."""

    def on_terminated(self, event: QueryTerminatedEvent) -> None:
        """The last event of a run."""

    def flush(self, timeout_ms: int) -> None:
        """Finish the work that events have started; raises when that was not possible.  Here: there is none."""

    def await_end(self, run_id: str, timeout_ms: int) -> bool:
        """Wait until the last event of this run was handled; False: not within the time."""
        give_up_ms = SYSTEM_CLOCK.now_ms() + timeout_ms
        with self._changed:
            while run_id not in self._ended:
                left_ms = give_up_ms - SYSTEM_CLOCK.now_ms()
                if left_ms <= 0:
                    return False
                self._changed.wait(left_ms / 1000)
        return True

    def forget_session(self) -> None:
        """The listener was removed from its session, and may be added to one again."""
        self._sparkSession = None

    # --- called by Spark ----------------------------------------------------------------------------------------

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Does nothing: the query waits meanwhile."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A batch has ended."""
        self.on_progress(event)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Does nothing: there was no batch."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The run has ended."""
        try:
            self.on_terminated(event)
        finally:
            with self._changed:
                self._ended.append(str(event.runId))
                self._changed.notify_all()
