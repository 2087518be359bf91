"""The broker's half of fetch sessions, for the brokers in this repository (KIP-227; 1.1, Fetch 7).  Pure.

    body of a request --new_context--> FetchContext --topics--> partitions to read
                                           '-build_response---> the rows that the reader needs

Like Kafka's ``FetchSession.scala``: a full request (epoch 0) creates a session if there is a slot for it.  An
incremental one contains the changes since the request before.  Its response contains only partitions with records, an
error, another high watermark or another log start.  A partition with records moves to the end of the session, so that
the limit of a response does not always exclude the same partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TypeAlias

from zkconsumer.kafka.error_codes import (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
    NONE,
    ErrorCode,
)
from zkconsumer.kafka.fetch.fetch_session import EPOCH_MAX, FULL_EPOCH, NO_SESSION
from zkconsumer.wire.schemas.fetch import (
    SESSIONLESS_EPOCH,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResponse,
)

FETCH_SESSION_SLOTS = 1_000
"""``max.incremental.fetch.session.cache.slots``."""

EVICTION_MS = 120_000
"""``min.incremental.fetch.session.eviction.ms``: how long a session keeps its slot without a request."""

PARTITIONS_MAX = 100_000
"""Limit for all sessions of a broker together, about 25 MB.  (Kafka has no such limit.)"""

TOPIC_IDS_FROM = 13
UNKNOWN_OFFSET = -1

FetchPartitionKey: TypeAlias = "tuple[str, bytes, int]"
"""Topic, topic id, partition: one of the first two is empty."""


@dataclass(slots=True)
class _CachedPartition:
    """One partition of a session: the latest request for it (``asked``), and the values last sent to the reader."""

    asked: FetchPartition
    high_watermark: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET

    def must_respond(self, row: FetchPartitionResponse) -> bool:
        """Whether the response must contain this row; if so, it is recorded as sent."""
        is_new = bool(row.records) or row.high_watermark != self.high_watermark
        is_new |= row.log_start_offset != self.log_start_offset or row.error_code != NONE.code
        # After an error the next response contains the partition once more.
        self.high_watermark = row.high_watermark if row.error_code == NONE.code else UNKNOWN_OFFSET
        self.log_start_offset = row.log_start_offset
        return is_new


@dataclass(slots=True)
class _CachedSession:
    has_topic_ids: bool
    partitions: dict[FetchPartitionKey, _CachedPartition] = field(default_factory=dict)
    epoch: int = 1
    used_at_ms: int = 0

    def update(self, body: FetchRequest) -> None:
        """Apply the changes of an incremental request."""
        for key, row in _rows(body):
            if key in self.partitions:
                self.partitions[key].asked = row
            else:
                self.partitions[key] = _CachedPartition(row)
        for topic in body.forgotten_topics_data:
            for partition in topic.partitions:
                self.partitions.pop((topic.topic, topic.topic_id, partition), None)
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1


@dataclass(frozen=True, slots=True)
class FetchContext:
    """One request: its partitions, and how it is answered.  ``session`` None: the response contains all partitions.

    ``epoch``: that of the session after this request.  A request that waits may be overtaken by the next one.
    """

    partitions: Mapping[FetchPartitionKey, FetchPartition]
    session_id: int = NO_SESSION
    session: _CachedSession | None = None
    epoch: int = FULL_EPOCH

    @property
    def topics(self) -> list[FetchTopic]:
        """The requested partitions, in order."""
        found: dict[tuple[str, bytes], list[FetchPartition]] = {}
        for (topic, topic_id, _), asked in self.partitions.items():
            found.setdefault((topic, topic_id), []).append(asked)
        return [FetchTopic(topic=name, topic_id=topic_id, partitions=rows) for (name, topic_id), rows in found.items()]

    def build_response(self, topics: list[FetchTopicResponse]) -> FetchResponse:
        """Build the response from the rows for all of ``topics``; error 71 if a later request has used the session."""
        if self.session is None:
            return FetchResponse(session_id=self.session_id, responses=topics)
        if self.session.epoch != self.epoch:
            return FetchResponse(error_code=INVALID_FETCH_SESSION_EPOCH.code, session_id=self.session_id, responses=[])
        partitions, changed = self.session.partitions, []
        for topic in topics:
            rows = []
            for row in topic.partitions:
                key = topic.topic, topic.topic_id, row.partition_index
                if partitions[key].must_respond(row):
                    rows.append(row)
                    if row.records:
                        partitions[key] = partitions.pop(key)
            if rows:
                changed.append(FetchTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=rows))
        return FetchResponse(session_id=self.session_id, responses=changed)


class FetchSessionCache:
    """The sessions of one broker.  ``slots_max``: the number of slots; 0: none."""

    def __init__(self, now_ms: Callable[[], int], slots_max: int = FETCH_SESSION_SLOTS) -> None:
        self._now_ms = now_ms
        self._slots_max = slots_max
        self._sessions: dict[int, _CachedSession] = {}
        self._ids = count(1)

    def __len__(self) -> int:
        return len(self._sessions)

    def new_context(self, body: FetchRequest, version: int) -> FetchContext | ErrorCode:
        """Process a request; return the error of the whole response if it names a session that does not exist."""
        has_ids = version >= TOPIC_IDS_FROM
        if body.session_epoch in (SESSIONLESS_EPOCH, FULL_EPOCH):
            self._sessions.pop(body.session_id, None)
            asked = dict(_rows(body))
            session_id, session = NO_SESSION, None
            if body.session_epoch != SESSIONLESS_EPOCH and asked:
                session_id, session = self._new(asked, has_ids)
            return FetchContext(asked, session_id, session, FULL_EPOCH if session is None else session.epoch)
        session = self._sessions.get(body.session_id)
        if session is None:
            return FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != body.session_epoch:
            return INVALID_FETCH_SESSION_EPOCH
        if session.has_topic_ids != has_ids:
            return FETCH_SESSION_TOPIC_ID_ERROR
        session.update(body)
        if not session.partitions:
            del self._sessions[body.session_id]
            return FetchContext({})
        if self._partitions > PARTITIONS_MAX:
            del self._sessions[body.session_id]
            return FETCH_SESSION_ID_NOT_FOUND
        session.used_at_ms = self._now_ms()
        asked = {key: cached.asked for key, cached in session.partitions.items()}
        return FetchContext(asked, body.session_id, session, session.epoch)

    @property
    def _partitions(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def drop_all(self) -> None:
        """Delete all sessions, like a broker that restarts."""
        self._sessions.clear()

    def _new(
        self, asked: Mapping[FetchPartitionKey, FetchPartition], has_ids: bool
    ) -> tuple[int, _CachedSession | None]:
        now_ms = self._now_ms()
        if self._partitions + len(asked) > PARTITIONS_MAX:
            return NO_SESSION, None
        if len(self._sessions) >= self._slots_max:
            oldest = min(self._sessions, key=lambda number: self._sessions[number].used_at_ms, default=None)
            if oldest is None or now_ms - self._sessions[oldest].used_at_ms <= EVICTION_MS:
                return NO_SESSION, None
            del self._sessions[oldest]
        session = _CachedSession(has_ids, {key: _CachedPartition(row) for key, row in asked.items()}, used_at_ms=now_ms)
        session_id = next(self._ids)
        self._sessions[session_id] = session
        return session_id, session


def _rows(body: FetchRequest) -> Iterator[tuple[FetchPartitionKey, FetchPartition]]:
    for topic in body.topics:
        for row in topic.partitions:
            yield (topic.topic, topic.topic_id, row.partition), row
