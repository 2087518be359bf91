"""Reads the timestamp of the first record at or after an offset, for many partitions at once.

ListOffsets finds the offset for a time, never the time of an offset, so this sends Fetch requests: one for each leader,
with all its partitions and a small limit for each.  A partition whose first batch is larger than its limit comes back
empty and is requested again with the next limit of ``FETCH_BYTES``; from Fetch version 3 on (0.10.1) the first
partition of a response is complete whatever its limit.  The limit that sufficed is remembered.

    Fetch 0 and 1 (0.8, 0.9)      no request: the broker would return format 0, which has no timestamps
    Fetch 2 and later             the timestamp of the record itself, also inside a compressed batch

A record does not change, so an answer is cached by its offset, with a limit for its age: compaction may remove it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from zkconsumer.admin.broker_client import BROKER_REQUEST_ERRORS, REQUEST_TIMEOUT_MS
from zkconsumer.errors import InvalidMessageException, UnsupportedCodec
from zkconsumer.kafka.error_codes import NONE, OFFSET_OUT_OF_RANGE, ErrorCode, error_code
from zkconsumer.observe.lag_time import (
    WITHOUT_TIMESTAMPS,
    FirstUnread,
    NoUnreadRecord,
    UnreadRecord,
    UnreadRecordProblem,
)
from zkconsumer.observe.unread_records import first_record_of
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.wire.fetch_codec import (
    FAST_FETCH,
    TOPIC_NAMES_VERSION_MAX,
    FetchedPartition,
    FetchRequestBody,
    partition_encoder,
)
from zkconsumer.wire.isolation_level import READ_COMMITTED, READ_UNCOMMITTED, IsolationLevel
from zkconsumer.wire.schemas.fetch import SESSIONLESS_EPOCH
from zkconsumer.wire.transactions import aborted_batches, read_aborted_transactions

if TYPE_CHECKING:
    from zkconsumer.admin.broker_client import BrokerClient, BrokerRequestError
    from zkconsumer.kafka.broker_connection import Connection, PendingRequest
    from zkconsumer.kafka.supported_versions import SupportedVersions

FETCH_BYTES = (1_024, 16 * 1024, 128 * 1024, 1024 * 1024)
"""Limits for the bytes of one partition, one after the other until its first batch fits."""

RESPONSE_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of one response; a single batch may be larger."""

READ_BYTES_MAX = 64 * 1024 * 1024
"""Bytes that one read requests from one leader; the next read begins with other partitions."""

EMPTY_FETCHES_MAX = 4
"""How often a partition is requested again because all fetched batches were without records for the group."""

CACHED_RECORDS_MAX = 50_000
CACHE_VALID_MS = 600_000
"""How many answers are kept, the latest ones, and for how long."""

TIMESTAMPS_FROM = 2
"""The Fetch version from which records have timestamps (0.10.0)."""

ATTEMPTS_MAX = 2
"""A partition whose leader has moved is requested again once."""


class PartitionOffset(NamedTuple):
    """The place in a log at which a group continues."""

    tp: TopicPartition
    offset: int


class FirstUnreadReader:
    """The brokers of one cluster, for readers of one isolation level.  One thread."""

    def __init__(
        self,
        brokers: BrokerClient,
        isolation_level: IsolationLevel = READ_UNCOMMITTED,
        *,
        read_bytes_max: int = READ_BYTES_MAX,
        cached_records_max: int = CACHED_RECORDS_MAX,
    ) -> None:
        self._brokers = brokers
        self._isolation_level = isolation_level
        self._read_bytes_max = read_bytes_max
        self._cached_records_max = cached_records_max
        self._cache: OrderedDict[PartitionOffset, tuple[int, FirstUnread]] = OrderedDict()
        self._leaders: dict[TopicPartition, BrokerAddress] = {}
        self._limits: dict[TopicPartition, int] = {}
        self._reads = 0

    @property
    def isolation_level(self) -> IsolationLevel:
        """Which records the groups read."""
        return self._isolation_level

    def read(self, wanted: Mapping[PartitionOffset, int]) -> dict[PartitionOffset, FirstUnread]:
        """The first record at or after each offset; the value is the end of the log, where the search ends.

        Offsets must be inside their logs, and topics must exist: a broker before 0.11 may create a topic that is named.
        Never raises for a broker or a partition: its answer is an ``UnreadRecordProblem``, and the others are complete.
        """
        now_ms = self._brokers.clock.now_ms()
        found: dict[PartitionOffset, FirstUnread] = {}
        searches: list[_Search] = []
        for place, end in wanted.items():
            cached = self._cached(place, now_ms)
            if cached is not None:
                found[place] = cached
            else:
                searches.append(_Search(place, end, place.offset, self._limits.get(place.tp, 0)))
        self._reads += 1
        start = self._reads * len(FETCH_BYTES) % max(1, len(searches))
        left = searches[start:] + searches[:start]
        tried: dict[PartitionOffset, BrokerAddress] = {}
        for _ in range(ATTEMPTS_MAX):
            if left:
                moved = self._search(left, found, tried)
                left = [each for each in left if each.place in moved]
        for each in searches:
            answer = found[each.place]
            if isinstance(answer, UnreadRecord) or answer is WITHOUT_TIMESTAMPS:
                self._cache[each.place] = now_ms, answer
        while len(self._cache) > self._cached_records_max:
            self._cache.popitem(last=False)
        return found

    def _cached(self, place: PartitionOffset, now_ms: int) -> FirstUnread | None:
        known = self._cache.get(place)
        if known is None:
            return None
        at_ms, answer = known
        if now_ms - at_ms > CACHE_VALID_MS:
            del self._cache[place]
            return None
        self._cache.move_to_end(place)
        return answer

    def _search(
        self,
        searches: Sequence[_Search],
        found: dict[PartitionOffset, FirstUnread],
        tried: dict[PartitionOffset, BrokerAddress],
    ) -> set[PartitionOffset]:
        """Fill ``found``; return the places whose leader may have moved, so that another attempt is useful.

        ``tried``: the leaders of the attempt before; the same leader is not asked twice, as it would fail twice.
        """
        no_leader = self._find_leaders({each.place.tp for each in searches})
        by_leader: dict[BrokerAddress, list[_Search]] = {}
        moved: set[PartitionOffset] = set()
        for each in searches:
            leader = self._leaders.get(each.place.tp)
            if leader is None:
                found.setdefault(each.place, UnreadRecordProblem(no_leader))
                moved.add(each.place)
            elif tried.get(each.place) == leader:
                moved.add(each.place)
            else:
                tried[each.place] = leader
                by_leader.setdefault(leader, []).append(each)
        connections = self._brokers.execute_on_each(list(by_leader), lambda connection, ranges, _: (connection, ranges))
        reads = [
            _LeaderFetches(self, leader, theirs, found, moved)
            for leader, theirs in by_leader.items()
            if self._connected(connections[leader], theirs, found, moved)
        ]
        for each_read in reads:
            connection = connections[each_read.leader]
            assert isinstance(connection, tuple), "others are not read"
            each_read.begin(*connection)
        while reads:
            for each_read in reads:
                each_read.send()
            for each_read in reads:
                each_read.receive()
            reads = [each_read for each_read in reads if not each_read.is_over]
        for place in moved:
            self._leaders.pop(place.tp, None)
        return moved

    def _connected(
        self,
        connection: tuple[Connection, SupportedVersions] | BrokerRequestError,
        searches: Sequence[_Search],
        found: dict[PartitionOffset, FirstUnread],
        moved: set[PartitionOffset],
    ) -> bool:
        if isinstance(connection, tuple):
            return True
        for each in searches:
            found[each.place] = UnreadRecordProblem(str(connection))
            moved.add(each.place)
        return False

    def _find_leaders(self, partitions: set[TopicPartition]) -> str:
        """Request the unknown leaders; return the reason for those that stay unknown."""
        topics = {tp.topic for tp in partitions if tp not in self._leaders}
        if not topics:
            return ""
        try:
            self._leaders |= self._brokers.leaders(topics).with_leader
        except BROKER_REQUEST_ERRORS as error:
            return str(error)
        return "the partition has no leader"

    def limit_sufficed(self, tp: TopicPartition, limit: int) -> None:
        """The next read of this partition begins with this limit."""
        if limit:
            self._limits[tp] = limit
        else:
            self._limits.pop(tp, None)

    @property
    def read_bytes_max(self) -> int:
        """Bytes that one read requests from one leader."""
        return self._read_bytes_max

    def disconnect(self, leader: BrokerAddress) -> None:
        """The connection is broken."""
        self._brokers.disconnect(leader.host, leader.port)


@dataclass(frozen=True, slots=True)
class _Search:
    """``fetch_offset``: where the next request begins.  ``limit``: the index in ``FETCH_BYTES``."""

    place: PartitionOffset
    log_end: int
    fetch_offset: int
    limit: int
    empty_fetches: int = 0


class _LeaderFetches:
    """The requests to one leader, one in flight."""

    def __init__(
        self,
        reader: FirstUnreadReader,
        leader: BrokerAddress,
        searches: Sequence[_Search],
        found: dict[PartitionOffset, FirstUnread],
        moved: set[PartitionOffset],
    ) -> None:
        self.leader = leader
        self._reader = reader
        self._queues = tuple(deque[_Search]() for _ in FETCH_BYTES)
        for each in searches:
            self._queues[each.limit].append(each)
        self._found = found
        self._moved = moved
        self._bytes_left = reader.read_bytes_max
        self._sent: tuple[PendingRequest[Any], dict[TopicPartition, _Search]] | None = None

    def begin(self, connection: Connection, ranges: SupportedVersions) -> None:
        """Choose the version; without timestamps in it there is nothing to request."""
        self._connection = connection
        try:
            self._version = ranges.pick(FAST_FETCH, TOPIC_NAMES_VERSION_MAX)
        except BROKER_REQUEST_ERRORS as error:
            self._end(UnreadRecordProblem(str(error)))
            return
        if self._version < TIMESTAMPS_FROM:
            self._end(WITHOUT_TIMESTAMPS)

    @property
    def is_over(self) -> bool:
        return self._sent is None and not any(self._queues)

    def send(self) -> None:
        limit = next((number for number, queue in enumerate(self._queues) if queue), None)
        if self._sent is not None or limit is None:
            return
        bytes_each = FETCH_BYTES[limit]
        asked = self._take(self._queues[limit], max(1, RESPONSE_BYTES_MAX // bytes_each))
        self._bytes_left -= bytes_each * len(asked)
        if self._bytes_left < 0:
            problem = UnreadRecordProblem(
                f"more than {self._reader.read_bytes_max} bytes would have been read from the broker at once"
            )
            self._found.update({each.place: problem for each in asked.values()})
            self._end(problem)
            return
        try:
            body = self._request(asked.values(), bytes_each)
            self._sent = self._connection.send(FAST_FETCH, self._version, body, REQUEST_TIMEOUT_MS), asked
        except BROKER_REQUEST_ERRORS as error:
            self._break(error, asked)

    def _take(self, queue: deque[_Search], count: int) -> dict[TopicPartition, _Search]:
        """The next searches, of different partitions: a request names a partition once."""
        asked: dict[TopicPartition, _Search] = {}
        for _ in range(len(queue)):
            each = queue.popleft()
            if each.place.tp in asked or len(asked) == count:
                queue.append(each)
            else:
                asked[each.place.tp] = each
        return asked

    def _request(self, searches: Any, bytes_each: int) -> FetchRequestBody:
        encode = partition_encoder(self._version)
        topics: dict[str, list[bytes]] = {}
        count = 0
        for each in searches:
            count += 1
            topics.setdefault(each.place.tp.topic, []).append(
                encode(each.place.tp.partition, each.fetch_offset, bytes_each)
            )
        level = self._reader.isolation_level
        return FetchRequestBody(0, 0, bytes_each * count, 0, SESSIONLESS_EPOCH, topics, {}, level)

    def receive(self) -> None:
        if self._sent is None:
            return
        pending, asked = self._sent
        try:
            response = self._connection.receive(pending, REQUEST_TIMEOUT_MS)
        except BROKER_REQUEST_ERRORS as error:
            self._break(error, asked)
            return
        self._sent = None
        left = dict(asked)
        for row in response.rows:
            fetched = FetchedPartition(*row)
            search = left.pop(TopicPartition(fetched.topic, fetched.partition), None)
            if search is not None:
                self._take_answer(search, fetched)
        problem = UnreadRecordProblem("its leader returned nothing for the partition")
        if response.error_code != NONE.code:
            problem = UnreadRecordProblem(f"its leader answers {error_code(response.error_code)}")
        self._found.update({each.place: problem for each in left.values()})

    def _take_answer(self, search: _Search, row: FetchedPartition) -> None:
        if row.error_code != NONE.code:
            self._partition_error(search, error_code(row.error_code))
            return
        is_committed = self._reader.isolation_level is READ_COMMITTED
        try:
            answer = first_record(row, search.place.offset, is_committed=is_committed)
        except (InvalidMessageException, UnsupportedCodec) as error:
            self._found[search.place] = UnreadRecordProblem(f"the first unread record cannot be read: {error}")
            return
        tp = search.place.tp
        if answer is None:  # not one batch fits into the limit
            if search.limit + 1 < len(FETCH_BYTES):
                self._queues[search.limit + 1].append(replace(search, limit=search.limit + 1))
                return
            self._found[search.place] = UnreadRecordProblem(
                f"its leader returned no whole batch of records within {FETCH_BYTES[-1]} bytes"
            )
        elif isinstance(answer, NoUnreadRecord) and answer.next_offset < search.log_end:
            if search.empty_fetches < EMPTY_FETCHES_MAX and answer.next_offset > search.fetch_offset:
                limit = min(search.limit + 1, len(FETCH_BYTES) - 1)
                again = replace(
                    search, fetch_offset=answer.next_offset, limit=limit, empty_fetches=search.empty_fetches + 1
                )
                self._queues[limit].append(again)
                return
            self._found[search.place] = answer
        else:
            self._reader.limit_sufficed(tp, search.limit if not search.empty_fetches else 0)
            self._found[search.place] = answer

    def _partition_error(self, search: _Search, error: ErrorCode) -> None:
        if error == OFFSET_OUT_OF_RANGE:
            why = "the offset is not in the log any more, so auto.offset.reset decides which record is read first"
        else:
            why = f"its leader answers {error}"
        self._found[search.place] = UnreadRecordProblem(why)
        if error.is_retriable:
            self._moved.add(search.place)

    def _break(self, error: Exception, asked: Mapping[TopicPartition, _Search]) -> None:
        self._reader.disconnect(self.leader)
        problem = UnreadRecordProblem(str(error))
        self._sent = None
        for each in (*asked.values(), *(one for queue in self._queues for one in queue)):
            self._found[each.place] = problem
            self._moved.add(each.place)
        for queue in self._queues:
            queue.clear()

    def _end(self, problem: UnreadRecordProblem) -> None:
        """Every search that is left has this answer."""
        for queue in self._queues:
            self._found.update({each.place: problem for each in queue})
            queue.clear()


def first_record(row: FetchedPartition, offset: int, *, is_committed: bool) -> FirstUnread | None:
    """The first record of a fetched partition at or after the offset; None: not one batch is complete.

    ``is_committed``: records of aborted transactions are left out.  Raises ``InvalidMessageException`` and
    ``UnsupportedCodec`` if the first batch is damaged, or compressed with an unknown codec.
    """
    if row.records is None or not row.entries:
        return None
    excluded: Sequence[int] = ()
    if is_committed and row.aborted:
        excluded = aborted_batches(row.records, read_aborted_transactions(row.aborted))
    return first_record_of(row.records, offset, row.next_offset, excluded)
