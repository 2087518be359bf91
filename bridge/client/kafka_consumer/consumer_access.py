"""``ConsumerAccess``: one thread at a time may be inside of the methods of a consumer."""

from __future__ import annotations

import threading
from collections import deque

from zkconsumer.errors import ConnectorClosed, UsageError
from zkconsumer.kafka.client_log import log_client_events
from zkconsumer.kafka.client_log_event import ClientLogEvent


class ConsumerAccess:
    """A context for each method; the same thread may enter it again, in a callback.

    Entering raises ``UsageError`` while another thread is inside, and ``ConnectorClosed`` after ``is_closed`` was set.
    The lines of ``log_queues`` are logged at each end.
    """

    __slots__ = ("_lock", "_log_queues", "depth", "is_closed")

    def __init__(self, *log_queues: deque[ClientLogEvent]) -> None:
        self.is_closed = False
        self.depth = 0
        """How often the thread that is inside has entered."""
        self._lock = threading.RLock()
        self._log_queues = log_queues

    def __enter__(self) -> None:
        if not self._lock.acquire(False):
            raise UsageError(
                "KafkaConsumer is not safe for multi-threaded access: another thread is inside of a method; use "
                "one consumer for each thread, and only wakeup() from others"
            )
        self.depth += 1
        if self.is_closed:
            self.__exit__()
            raise ConnectorClosed("this consumer has already been closed")

    def __exit__(self, *_: object) -> None:
        try:
            for queue in self._log_queues:
                if queue:
                    taken = list(queue)
                    queue.clear()
                    log_client_events(taken)
        finally:
            self.depth -= 1
            self._lock.release()

    def end_interrupted_exit(self, depth: int) -> None:
        """Leave, if an exception of a signal handler has ended ``__exit__`` before it did; ``depth``: inside."""
        if self.depth == depth:
            self.__exit__()
