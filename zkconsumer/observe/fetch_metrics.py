"""The metrics of a fetcher thread: the responses of its broker, and the chunks that it queued."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.observe import metric_names as names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zkconsumer.observe.metrics import Meter, Registry
    from zkconsumer.types import BrokerAddress


ROWS_PER_BROKER = (names.FETCHER_REQUESTS, names.FETCHER_BYTES, names.FETCH_TIME, names.FETCH_SIZE, names.THROTTLE)
"""The rows whose labels include a broker's address."""


class FetchMetrics:
    """The metrics of one broker, and those of all brokers together.

    The fetcher threads of one address have the same metrics; call ``remove`` when the last of these threads ends.
    """

    def __init__(self, registry: Registry, broker: BrokerAddress) -> None:
        self.address = where = broker.host, str(broker.port)
        self.requests = registry.meter(names.FETCHER_REQUESTS, *where)
        self._bytes = registry.meter(names.FETCHER_BYTES, *where)
        self._bytes_all = registry.meter(names.BYTES_ALL)
        self._held_back = registry.meter(names.FETCHES_DEFERRED)
        self._topics: dict[str, Meter] = {}
        self._times = (registry.timer(names.FETCH_TIME_ALL), registry.timer(names.FETCH_TIME, *where))
        self._sizes = (registry.histogram(names.FETCH_SIZE_ALL), registry.histogram(names.FETCH_SIZE, *where))
        self._throttles = (registry.timer(names.THROTTLE_ALL), registry.timer(names.THROTTLE, *where))
        self._registry = registry

    @property
    def request_rate(self) -> float:
        """Requests per second over the last minute."""
        return self.requests.values()["OneMinuteRate"]

    def remove(self) -> None:
        """Remove the broker's metrics: it is unavailable, or leads no assigned partition.  The totals stay."""
        for row in ROWS_PER_BROKER:
            self._registry.remove(row, *self.address)

    def record_response(self, elapsed_ms: int, records_bytes: int, throttle_ms: int) -> None:
        """A fetch request was answered."""
        self.requests.mark()
        for timer in self._times:
            timer.update(elapsed_ms)
        for size in self._sizes:
            size.update(records_bytes)
        for throttle in self._throttles:
            throttle.update(throttle_ms)

    def record_deferred(self) -> None:
        """A fetch was deferred, because ``queued.max.bytes`` has no room for a response."""
        self._held_back.mark()

    def record_queued(self, complete_bytes: Mapping[str, int]) -> None:
        """Chunks of one response were queued; ``complete_bytes``: topic -> bytes of complete messages."""
        if not complete_bytes:
            return
        total = sum(complete_bytes.values())
        self._bytes.mark(total)
        self._bytes_all.mark(total)
        for topic, count in complete_bytes.items():
            meter = self._topics.get(topic)
            if meter is None:
                meter = self._topics[topic] = self._registry.meter(names.BYTES, topic)
            meter.mark(count)
