"""``ZkConsumerListener``: the lag of each query of a session, kept, logged and exported.

    listener = ZkConsumerListener()
    spark.streams.addListener(listener)
    listener.latest["my query"].metrics["maxOffsetsBehindLatest"]

It works with Spark Connect, too, where listeners run in the client.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from bridge.spark.monitoring.query_lag import Lag, lag
from bridge.spark.monitoring.query_lag_times import QueryLagTimes
from bridge.spark.monitoring.query_listener import TrackingQueryListener
from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import QueryProgressEvent, QueryTerminatedEvent

log = logging.getLogger("zkconsumer.spark")

LOG_INTERVAL_MS = 10_000
"""The minimum time between two log lines of a query's lag."""

QUERIES_MAX = 1_000
"""The maximum number of queries that are kept; the one without events for the longest time is removed."""


class ZkConsumerListener(TrackingQueryListener):
    """Keeps the latest lag of each query that reads Kafka; others are ignored.

    ``on_lag(lag)`` is called after every batch of theirs, in Spark's listener thread: it must be fast.  An exception of
    it is logged once and has no other effect.  ``log_interval_ms``: one INFO line a query, at most once in this time;
    None: never.
    """

    def __init__(
        self,
        on_lag: Callable[[Lag], object] | None = None,
        *,
        log_interval_ms: int | None = LOG_INTERVAL_MS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__()
        self._on_lag = on_lag
        self._log_interval_ms = log_interval_ms
        self._clock = clock
        self._latest: dict[str, Lag] = {}
        self._lag_times: dict[str, QueryLagTimes] = {}
        self._logged_ms: dict[str, int] = {}
        self._logged_faults: set[str] = set()

    @property
    def latest(self) -> Mapping[str, Lag]:
        """Query -> its lag after its latest batch; a query is identified by its name, else by its id.  A copy.

        A query that ended stays until it runs again, so that the lag of a daily run is visible afterwards.
        """
        with self._changed:
            return MappingProxyType(dict(self._latest))

    def on_progress(self, event: QueryProgressEvent) -> None:
        """Keep it, log it, call ``on_lag``."""
        try:
            found = lag(event.progress)
        except UsageError as error:
            if self._is_new("lag"):
                log.warning("query-lag-unknown reason=%r", str(error))
            return
        if not found.sources:
            return
        name = found.name or found.query_id
        with self._changed:
            found = self._lag_times.setdefault(name, QueryLagTimes()).observe(found)
            self._latest.pop(name, None)
            self._latest[name] = found
            while len(self._latest) > QUERIES_MAX:
                gone = next(iter(self._latest))
                del self._latest[gone]
                self._lag_times.pop(gone, None)
                self._logged_ms.pop(gone, None)
        self._log(name, found)
        if self._on_lag is not None:
            try:
                self._on_lag(found)
            except Exception as error:  # noqa: BLE001 (code of the caller may raise anything)
                if self._is_new("on_lag"):
                    log.warning("lag-callback-failed error=%r: it is called again after the next batch", error)

    def on_terminated(self, event: QueryTerminatedEvent) -> None:
        """The next run's first line is logged without a delay."""
        with self._changed:
            ended = [name for name, found in self._latest.items() if found.run_id == str(event.runId)]
            for name in ended:
                self._logged_ms.pop(name, None)

    def _log(self, name: str, found: Lag) -> None:
        now_ms = self._clock.now_ms()
        last_ms = self._logged_ms.get(name)
        if self._log_interval_ms is None or (last_ms is not None and now_ms - last_ms < self._log_interval_ms):
            return
        self._logged_ms[name] = now_ms
        numbers = found.metrics
        log.info(
            "query-lag query=%s batch=%d group_lag=%s max_behind=%s max_seconds=%s trend=%s owned_partitions=%s "
            "rebalances=%s lost_offsets=%s skipped_offsets=%s waiting_for_migration=%s sources=%r",
            name,
            found.batch,
            numbers.get("groupLag", "?"),
            numbers.get("maxOffsetsBehindLatest", "?"),
            numbers.get("maxSecondsBehindLatest", "?"),
            found.catch_up.trend.value,
            numbers.get("ownedPartitions", "?"),
            numbers.get("rebalances", "-"),
            numbers.get("lostOffsets", "-"),
            numbers.get("skippedOffsets", "-"),
            numbers.get("waitingForMigration", "-"),
            "; ".join(source.description for source in found.sources),
        )

    def _is_new(self, fault: str) -> bool:
        """Whether it was not logged before: the same fault occurs in every batch."""
        if fault in self._logged_faults:
            return False
        self._logged_faults.add(fault)
        return True
