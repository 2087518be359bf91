"""Requests to brokers while a batch of a stream is planned: log bounds, and the size of records.

    Logs ---> zkconsumer.admin.log_ranges ---> the leaders; each receives one request for all partitions that it leads

The leaders are cached from batch to batch.  They are requested again when one has moved, after ``LEADERS_AGE_MAX_MS``,
and when topics change or grow.  ``zkconsumer.admin.broker_client`` and ``log_ranges`` limit every wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from bridge.spark.source.micro_batch_plan import LogBounds
from zkconsumer.admin.broker_client import BROKER_REQUEST_ERRORS, REQUEST_TIMEOUT_MS, BrokerClient
from zkconsumer.admin.log_ranges import LogRange, log_ranges
from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import UnavailableError
from zkconsumer.kafka.broker_connection import Connection, ConnectionFactory
from zkconsumer.kafka.broker_security import connection_factory_from_config
from zkconsumer.kafka.error_codes import NONE
from zkconsumer.kafka.metadata_client import LeaderMetadata, fetch_leaders
from zkconsumer.kafka.supported_versions import SupportedVersions
from zkconsumer.runtime.broker_access import NO_BOOTSTRAP_SERVER, no_endpoint_message
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.wire.entries import iter_entries
from zkconsumer.wire.isolation_level import IsolationLevel
from zkconsumer.wire.schemas import FETCH
from zkconsumer.wire.schemas.fetch import FetchPartition, FetchRequest, FetchTopic

LEADERS_AGE_MAX_MS = 60_000
"""The maximum age of cached leaders."""

CACHED_TOPIC_SETS_MAX = 64
"""The maximum number of topic sets whose leaders are cached; a query asks for the same set again and again."""

SAMPLE_BYTES = 256 * 1024
"""How many bytes of a topic are fetched to measure its records."""

MAGIC_OF_BATCHES = 2
"""From this format on an entry contains its first offset, before its last one (0.11)."""

SAMPLE_WAIT_MS = 50
"""How long the broker may wait for a sample: records are available, so it does not wait."""

log = logging.getLogger("zkconsumer.spark")


class LogReader(Protocol):
    """The information about logs that planning needs."""

    def read_bounds(
        self, partitions: Collection[TopicPartition], times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, LogBounds | str]:
        """The bounds of logs, with the offset at a time where one is requested; or why they are unknown."""

    def sample_bytes_per_offset(self, tp: TopicPartition, offset: int) -> float | None:
        """The approximate bytes of one offset of this topic, measured from ``offset`` on; None when unknown."""

    def unreachable_reason(self) -> str:
        """Why no broker answers; empty when one does."""

    def close(self) -> None:
        """End every connection."""


class BrokerLogReader:
    """Sends requests to real brokers.  One thread."""

    def __init__(
        self,
        config: ConsumerConfig,
        find: Callable[[], Sequence[BrokerAddress]],
        clock: Clock = SYSTEM_CLOCK,
        connect: ConnectionFactory | None = None,
    ) -> None:
        way = connect or connection_factory_from_config(config, None, clock)
        no_broker = (
            NO_BOOTSTRAP_SERVER
            if config.bootstrap_servers is not None
            else no_endpoint_message(config.security_protocol)
        )
        self._isolation_level = IsolationLevel.of_setting(config.isolation_level)
        self._brokers = _LeaderCachingBrokers(find, way, clock, client_id=config.client_id, no_broker_message=no_broker)

    def read_bounds(
        self, partitions: Collection[TopicPartition], times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, LogBounds | str]:
        """See ``LogReader``.  Raises ``BrokerUnreachable`` when no broker answers at all."""
        by_time: dict[int | None, list[TopicPartition]] = {}
        for tp in partitions:
            by_time.setdefault(times.get(tp), []).append(tp)
        found: dict[TopicPartition, LogBounds | str] = {}
        for time_ms, some in by_time.items():
            self._brokers.use_cache_once = self._brokers.has_cached(some)
            found_ranges = log_ranges(self._brokers, some, time_ms, isolation_level=self._isolation_level)
            for tp, log_range in found_ranges.items():
                found[tp] = _log_bounds_of(log_range) if isinstance(log_range, LogRange) else log_range
        return found

    def sample_bytes_per_offset(self, tp: TopicPartition, offset: int) -> float | None:
        """See ``LogReader``; a failure of a broker is not an error here, the next batch samples again."""
        leader = self._brokers.leaders([tp.topic]).with_leader.get(tp)
        if leader is None:
            return None
        try:
            return self._brokers.execute(leader, lambda connection, ranges: _sample(connection, ranges, tp, offset))
        except BROKER_REQUEST_ERRORS as error:
            log.warning("spark-sample-failed partition=%s reason=%r", tp, str(error))
            return None

    def unreachable_reason(self) -> str:
        """See ``LogReader``: sends a metadata request to each broker."""
        try:
            self._brokers.execute_on_any(lambda on, ranges, timeout_ms: fetch_leaders(on, ranges, [], timeout_ms))
        except UnavailableError as error:
            return str(error)
        return ""

    def close(self) -> None:
        """See ``LogReader``."""
        self._brokers.close()


class _LeaderCachingBrokers(BrokerClient):
    """A broker client that caches leaders: it returns them once from the cache for each ``may_remember``, and then
    requests them."""

    def __init__(self, find: Callable[[], Sequence[BrokerAddress]], *args: object, **more: object) -> None:
        super().__init__(find, *args, **more)  # type: ignore[arg-type]
        self.use_cache_once = False
        self._leaders: dict[frozenset[str], tuple[LeaderMetadata, int]] = {}

    def has_cached(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether all of these existed when the leaders were last requested; a topic may have grown since."""
        known = self._leaders.get(frozenset(tp.topic for tp in partitions))
        return known is not None and all(tp in known[0].partitions for tp in partitions)

    def leaders(self, topics: Collection[str] | None) -> LeaderMetadata:
        """See ``BrokerClient``."""
        key = frozenset(topics or ())
        known = self._leaders.get(key)
        now_ms = self.clock.now_ms()
        may_remember, self.use_cache_once = self.use_cache_once, False
        if may_remember and known is not None and now_ms - known[1] < LEADERS_AGE_MAX_MS:
            return known[0]
        found = super().leaders(topics)
        if len(self._leaders) >= CACHED_TOPIC_SETS_MAX:
            self._leaders.clear()
        self._leaders[key] = found, now_ms
        return found


def _log_bounds_of(log_range: LogRange) -> LogBounds:
    at = None if log_range.for_time is None or log_range.for_time.kind == "end" else log_range.for_time.offset
    return LogBounds(log_range.earliest, log_range.latest, at, log_range.last_stable)


def _sample(connection: Connection, ranges: SupportedVersions, tp: TopicPartition, offset: int) -> float | None:
    row = FetchPartition(partition=tp.partition, fetch_offset=offset, partition_max_bytes=SAMPLE_BYTES)
    body = FetchRequest(
        max_wait_ms=SAMPLE_WAIT_MS, min_bytes=1, max_bytes=SAMPLE_BYTES,
        topics=[FetchTopic(topic=tp.topic, partitions=[row])],
    )  # fmt: skip
    answer = connection.request(FETCH, ranges.pick(FETCH), body, REQUEST_TIMEOUT_MS)
    part = answer.responses[0].partitions[0]
    entries = list(iter_entries(part.records or b""))
    if part.error_code != NONE.code or not entries:
        return None
    size = sum(entry.end - entry.position for entry in entries)
    begin = entries[0].offset if entries[0].magic == MAGIC_OF_BATCHES else min(offset, entries[0].offset)
    return size / max(1, entries[-1].last_offset + 1 - begin)
