"""Reads the last entry of logs, where it shows whether the stored offsets are the next or the last record.

One Fetch a leader for ``PARTITIONS_PER_FETCH_MAX`` partitions, from the last offset on.  A partition whose leader does
not answer, or whose last record is corrupt, has no last entry.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.migration.inspect.group_snapshot import LastLogEntry
from bridge.migration.plan.offset_convention import needs_last_entry
from zkconsumer.admin.admin_session import chunks
from zkconsumer.admin.broker_client import BROKER_REQUEST_ERRORS, REQUEST_TIMEOUT_MS
from zkconsumer.admin.log_ranges import LogRange
from zkconsumer.errors import InvalidMessageException, UnsupportedCodec
from zkconsumer.kafka.error_codes import NONE
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.wire.entries import iter_entries
from zkconsumer.wire.records import iter_records
from zkconsumer.wire.schemas import FETCH
from zkconsumer.wire.schemas.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bridge.migration.inspect.group_snapshot import PartitionSnapshot
    from zkconsumer.admin.admin_session import AdminSession
    from zkconsumer.kafka.broker_connection import Connection
    from zkconsumer.kafka.supported_versions import SupportedVersions

SAMPLED_PARTITIONS_MAX = 60
"""How many partitions are read, distributed over the topics: they show the convention as well as all partitions do."""

PARTITIONS_PER_FETCH_MAX = 10
BYTES_PER_PARTITION = 1024 * 1024
"""Partitions in one Fetch, and bytes of each: a batch of the usual ``message.max.bytes``."""


def read_last_entries(
    session: AdminSession, partitions: Mapping[TopicPartition, PartitionSnapshot]
) -> dict[TopicPartition, PartitionSnapshot]:
    """The same snapshots, with ``last`` where it was read."""
    found = dict(partitions)
    wanted = _sample([tp for tp, one in partitions.items() if needs_last_entry(one)])
    if not wanted:
        return found
    try:
        leaders = session.brokers.leaders({tp.topic for tp in wanted}).with_leader
    except BROKER_REQUEST_ERRORS:
        return found
    of_leader: dict[BrokerAddress, list[TopicPartition]] = {}
    for tp in wanted:
        if tp in leaders:
            of_leader.setdefault(leaders[tp], []).append(tp)
    for leader, led in of_leader.items():
        for some in chunks(led, PARTITIONS_PER_FETCH_MAX):
            for tp, last in _fetch_last_entries(session, leader, {tp: _newest(partitions[tp]) for tp in some}).items():
                found[tp] = replace(found[tp], last_entry=last)
    return found


def _newest(seen: PartitionSnapshot) -> int:
    assert isinstance(seen.log, LogRange), "only partitions with a known log are selected"
    return seen.log.latest - 1


def _sample(partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    """One of every topic, then a second of each, and so on."""
    turn: dict[str, int] = {}
    ranked: list[tuple[int, TopicPartition]] = []
    for tp in sorted(partitions):
        turn[tp.topic] = turn.get(tp.topic, 0) + 1
        ranked.append((turn[tp.topic], tp))
    return [tp for _, tp in sorted(ranked)[:SAMPLED_PARTITIONS_MAX]]


def _fetch_last_entries(
    session: AdminSession, leader: BrokerAddress, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, LastLogEntry]:
    topics: dict[str, list[FetchPartition]] = {}
    for tp, offset in offsets.items():
        row = FetchPartition(partition=tp.partition, fetch_offset=offset, partition_max_bytes=BYTES_PER_PARTITION)
        topics.setdefault(tp.topic, []).append(row)
    body = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=[FetchTopic(topic=topic, partitions=rows) for topic, rows in topics.items()],
    )

    def fetch(connection: Connection, ranges: SupportedVersions) -> FetchResponse:
        return connection.request(FETCH, ranges.pick(FETCH), body, REQUEST_TIMEOUT_MS)

    try:
        response = session.brokers.execute(leader, fetch)
    except BROKER_REQUEST_ERRORS:
        return {}
    found: dict[TopicPartition, LastLogEntry] = {}
    for topic in response.responses:
        for part in topic.partitions:
            tp = TopicPartition(topic.topic, part.partition_index)
            last = _entry(part.records, offsets[tp]) if tp in offsets and part.error_code == NONE.code else None
            if last is not None:
                found[tp] = last
    return found


def _entry(records: bytes | memoryview | None, offset: int) -> LastLogEntry | None:
    """The entry at this offset; None when the response does not contain it, or it cannot be read."""
    if records is None:
        return None
    try:
        covers = any(entry.offset <= offset <= entry.last_offset for entry in iter_entries(records))
        for record in iter_records(records, offset):
            if record.offset == offset:
                return LastLogEntry(True, record.timestamp)
    except (InvalidMessageException, UnsupportedCodec):
        return None
    return LastLogEntry(False) if covers else None
