"""``LogEntryReader``: what logs have in ranges of offsets, by the headers of their entries; bounded in bytes and time.

A broker has no request for headers alone, so the entries of a range are fetched whole.  Only ranges whose counts do not
close are read.  What is not read because of a limit or an error is counted as unread, with the reason.

With ``read_committed`` the broker names the aborted transactions; a reader of all records has their records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bridge.spark.pipeline.audit.audit_facts import LogSpan, PartitionLog, UnknownLog
from bridge.spark.pipeline.audit.entry_counts import OffsetCounts, count_entries
from zkconsumer.admin.broker_client import BROKER_REQUEST_ERRORS, REQUEST_TIMEOUT_MS, BrokerClient
from zkconsumer.base.clock import Clock
from zkconsumer.errors import BrokerUnreachable, InvalidMessageException, UnsupportedCodec
from zkconsumer.kafka.broker_connection import Connection
from zkconsumer.kafka.error_codes import NONE, ErrorCode, error_code
from zkconsumer.kafka.metadata_client import LeaderMetadata
from zkconsumer.kafka.supported_versions import SupportedVersions
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.wire.entries import read_entry_header
from zkconsumer.wire.isolation_level import IsolationLevel
from zkconsumer.wire.schemas import FETCH
from zkconsumer.wire.schemas.fetch import FetchPartition, FetchPartitionResponse, FetchRequest, FetchTopic
from zkconsumer.wire.transactions import aborted_batches

FETCH_BYTES = 4 * 1024 * 1024
"""The bytes of one request, unless one entry is larger."""

ENTRY_BYTES_MAX = 256 * 1024 * 1024

FETCH_WAIT_MS = 100

EMPTY_MAX = 5
"""So many empty answers in a row end the reading: the log is damaged there, or an open transaction begins."""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """For all ranges together."""

    log_bytes: int
    deadline_ms: int


class LogEntryReader:
    """One thread.  ``read_bytes``: how much was fetched."""

    def __init__(
        self,
        brokers: BrokerClient,
        leaders: Callable[[], LeaderMetadata],
        isolation_level: IsolationLevel,
        limits: ReadLimits,
        clock: Clock,
    ) -> None:
        self._brokers = brokers
        self._find_leaders = leaders
        self._leaders: LeaderMetadata | None = None
        self._isolation_level = isolation_level
        self._limits = limits
        self._clock = clock
        self.read_bytes = 0

    def count(self, tp: TopicPartition, first: int, end: int, log: PartitionLog) -> tuple[OffsetCounts, str]:
        """What is at the offsets [first, end), and why some of it was not read; empty if all was."""
        if not isinstance(log, LogSpan):
            why = log.problem if isinstance(log, UnknownLog) else "the partition does not exist any more"
            return OffsetCounts(unread=end - first), f"{tp}: {why}"
        low, high = min(max(first, log.start), end), max(min(end, log.end), first)
        total = OffsetCounts(retention=low - first, beyond_end=end - max(high, low))
        position, problem = low, ""
        while position < high and not problem:
            counts, position, problem = self._read_some(tp, position, high)
            total += counts
        if position < high:
            total += OffsetCounts(unread=high - position)
        assert total.offsets == end - first, "each offset is counted once"
        return total, problem

    def _read_some(self, tp: TopicPartition, first: int, end: int) -> tuple[OffsetCounts, int, str]:
        """The counts of [first, next), next, and why the reading ends there; empty: it may continue."""
        nothing = OffsetCounts()
        fetch_bytes, empty = FETCH_BYTES, 0
        try:
            while True:
                if self.read_bytes >= self._limits.log_bytes:
                    return nothing, first, f"the limit of {self._limits.log_bytes} bytes was reached (--log-mebibytes)"
                if self._clock.now_ms() >= self._limits.deadline_ms:
                    return nothing, first, "the time limit was reached (--time-limit)"
                part = self._fetch(tp, first, fetch_bytes)
                code = error_code(part.error_code)
                records = part.records or b""
                self.read_bytes += len(records)
                if code != NONE:
                    return nothing, first, f"{tp}: its leader answers {code} at offset {first}"
                excluded = aborted_batches(records, part.aborted_transactions or ())
                counts, position = count_entries(records, first, end, frozenset(excluded))
                if position > first:
                    return counts, position, ""
                head = read_entry_header(records) if len(records) else None
                if head is not None and fetch_bytes < head.size_bytes <= ENTRY_BYTES_MAX:
                    fetch_bytes = head.size_bytes
                    continue
                empty += 1
                if empty >= EMPTY_MAX:
                    return nothing, first, f"{tp}: its leader sends no record at offset {first}"
        except BROKER_REQUEST_ERRORS as error:
            self._leaders = None
            return nothing, first, f"{tp}: {error}"
        except (InvalidMessageException, UnsupportedCodec) as error:
            return nothing, first, f"{tp}: {error}"

    def _fetch(self, tp: TopicPartition, offset: int, fetch_bytes: int) -> FetchPartitionResponse:
        if self._leaders is None:
            self._leaders = self._find_leaders()
        leader = self._leaders.partitions.get(tp)
        if not isinstance(leader, BrokerAddress):
            why = f" ({leader})" if isinstance(leader, ErrorCode) else ""
            raise BrokerUnreachable(f"{tp}: it has no leader{why}")

        def ask(connection: Connection, ranges: SupportedVersions) -> FetchPartitionResponse:
            row = FetchPartition(partition=tp.partition, fetch_offset=offset, partition_max_bytes=fetch_bytes)
            body = FetchRequest(
                max_wait_ms=FETCH_WAIT_MS, min_bytes=1, max_bytes=fetch_bytes, isolation_level=self._isolation_level,
                topics=[FetchTopic(topic=tp.topic, partitions=[row])],
            )  # fmt: skip
            answer = connection.request(FETCH, ranges.pick(FETCH), body, REQUEST_TIMEOUT_MS)
            parts = [part for topic in answer.responses for part in topic.partitions]
            if len(parts) != 1:  # a quota of the client is used up
                raise BrokerUnreachable(f"{leader} sends no answer for {tp}")
            found: FetchPartitionResponse = parts[0]
            return found

        return self._brokers.execute(leader, ask)
