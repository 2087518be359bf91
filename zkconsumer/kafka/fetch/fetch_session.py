"""``FetchSessionHandler``: the reader's half of a fetch session with one broker.  Pure.

KIP-227; brokers from 1.1 (Fetch 7).  The broker keeps the list of partitions and what it last sent for each.  So a
request contains only changes, and a response only news.

            full request, epoch 0                              incremental request, epoch n
    NONE ---------------------------> response with an id --> OPEN --------------------------> response with the id
      ^                                  | id 0: the broker    ^                                  |  |
      |                                  v keeps no session    '------------ epoch n + 1 ---------'  |
      '--- id 0, or error 70 (unknown id) <----------------------------------------------------------'
           any other error, no response, an invalid response: CLOSING, a full request with the old id and epoch 0,
           which ends the old session and requests a new one

Without a session (the broker has no slot for one, or Fetch is below 7) each request is full.

    handler.set_partition(tp, row)     request this partition with this row
    handler.remove_partition(tp)       do not request it
    handler.next_request()             the content of the next request; then exactly one of
    handler.handle_response(...)       its response arrived, which has handler.partitions_of(...)
    handler.handle_error()             it may or may not have reached the broker

A row is the part of the request about a partition.  Rows are compared, and an unchanged one is not sent again.  The
cost depends on the partitions that changed, not on all.  If the reader stops using a session, the broker removes it
when it needs the slot, after two minutes (``min.incremental.fetch.session.eviction.ms``).

*Topic ids* (KIP-516; brokers from 3.1, Fetch 13).  A session names its topics either by ids or by names, for its whole
life: the broker rejects the other (FETCH_SESSION_TOPIC_ID_ERROR).  A full request has ids if the caller allows them and
the id of each topic is known; the requests of its session have them as well.  When a topic without an id is added, or
the caller does not allow ids any more, the session ends, and a full request by names follows.  A topic whose id has
changed was deleted and created again: its partitions are forgotten under the old id and added under the new one.

The errors UNKNOWN_TOPIC_ID and INCONSISTENT_TOPIC_ID of a partition do not end the session.  They show that the id is
outdated: the caller requests metadata (``ErrorCode.is_stale_metadata``), and the next id replaces the topic.

Invariants: ``_changed`` contains each partition whose row or topic id may differ between ``partitions`` and
``_session_partitions``, while a session is open.  ``_session_topic_ids`` contains the topics of ``_session_partitions``
if ``_has_topic_ids``, and else is empty.  ``_asked`` is the request without a response; one at a time.

Differences from Java (``FetchSessionHandler`` of 3.0 and 3.1): a session by names goes on by names when the ids become
known, and one by ids is ended by us when they cannot be used any more.  Java sends the next incremental request in the
other form, which the broker rejects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import Generic, TypeVar

from zkconsumer.kafka.error_codes import (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
    NONE,
    ErrorCode,
    error_code,
)
from zkconsumer.types import TopicPartition
from zkconsumer.wire.fetch_codec import FetchedPartition, FetchResponseBody
from zkconsumer.wire.field_types import NO_UUID

NO_SESSION = 0
FULL_EPOCH = 0
EPOCH_MAX = 0x7FFF_FFFF

SESSION_ERRORS = frozenset(
    error.code for error in (FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR)
)
"""A broker's errors for an incremental request if it has another session than the reader, or none."""

NO_TOPIC_IDS: Mapping[str, bytes] = MappingProxyType({})

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class FetchSessionRequest(Generic[Row]):
    """The content of a request.  ``forgotten``: partitions to remove from the session.

    ``has_topic_ids``: topics are identified by their ids (Fetch 13 and later), by names otherwise (up to 12).
    ``topic_ids`` has the ids for ``rows``, ``forgotten_topic_ids`` those for ``forgotten``.  A topic that was created
    again is in both, with different ids.
    """

    session_id: int
    epoch: int
    rows: Mapping[TopicPartition, Row]
    forgotten: Collection[TopicPartition]
    has_topic_ids: bool = False
    topic_ids: Mapping[str, bytes] = field(default_factory=lambda: NO_TOPIC_IDS)
    forgotten_topic_ids: Mapping[str, bytes] = field(default_factory=lambda: NO_TOPIC_IDS)

    @property
    def is_full(self) -> bool:
        """Whether ``rows`` contains all requested partitions."""
        return self.epoch == FULL_EPOCH


class FetchSessionHandler(Generic[Row]):
    """One reader and one broker; it outlives connections.

    ``partitions``: the requested partitions, in the order of full requests.  ``_session_partitions``: those of the
    broker, if it keeps the session; ``_changed``: where the two may differ.  ``_topic_ids``: the present ids of topics,
    ``_session_topic_ids``: those of the session.
    """

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, Row] = {}
        self._topic_ids: dict[str, bytes] = {}
        self._session_partitions: dict[TopicPartition, Row] = {}
        self._has_topic_ids = False
        self._session_topic_ids: dict[str, bytes] = {}
        self._session_topic_names: dict[bytes, str] = {}
        self._changed: dict[TopicPartition, None] = {}
        self._session_id = NO_SESSION
        self._epoch = FULL_EPOCH
        self._asked: FetchSessionRequest[Row] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the next request contains only changes."""
        return self._epoch != FULL_EPOCH

    @property
    def requested(self) -> Mapping[TopicPartition, Row]:
        """What the last request asks for: its rows, and the unchanged rows of the session."""
        return self._session_partitions

    def set_partition(self, tp: TopicPartition, row: Row, topic_id: bytes | None = None) -> None:
        """Request this partition with this row from now on.

        ``topic_id``: the id of its topic, ``NO_UUID`` if it is not known (any more); None leaves it as it is.
        """
        if topic_id is not None and self._topic_ids.get(tp.topic, NO_UUID) != topic_id:
            self._set_topic_id(tp.topic, topic_id)
        if self.partitions.get(tp) != row:
            self.partitions[tp] = row
            self._changed[tp] = None

    def _set_topic_id(self, topic: str, topic_id: bytes) -> None:
        if topic_id == NO_UUID:
            del self._topic_ids[topic]
        else:
            self._topic_ids[topic] = topic_id
        if self._session_topic_ids.get(topic, topic_id) != topic_id:
            self._changed.update((tp, None) for tp in self.partitions if tp.topic == topic)

    def remove_partition(self, tp: TopicPartition) -> None:
        """Do not request this partition from now on."""
        if self.partitions.pop(tp, None) is not None:
            self._changed[tp] = None

    def move_to_end(self, tp: TopicPartition) -> None:
        """Put it after the others in full requests; a broker with a session has its own order."""
        row = self.partitions.pop(tp, None)
        if row is not None:
            self.partitions[tp] = row

    def next_request(
        self, partitions_max: int | None = None, *, with_topic_ids: bool = False
    ) -> FetchSessionRequest[Row]:
        """The content of the next request.  ``partitions_max``: a full one contains at most this many.

        ``with_topic_ids``: the broker and the caller support Fetch 13.
        """
        assert self._asked is None, "one request at a time"
        if self._has_topic_ids and self.is_open and not (with_topic_ids and self._have_topic_ids(self._changed)):
            self._close(forget=False)
        self._asked = self._next_incremental() if self.is_open else self._next_full(partitions_max, with_topic_ids)
        self._changed.clear()
        return self._asked

    def _have_topic_ids(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether the ids of those that are requested are known."""
        return all(tp.topic in self._topic_ids for tp in partitions if tp in self.partitions)

    def _next_full(self, partitions_max: int | None, with_topic_ids: bool) -> FetchSessionRequest[Row]:
        rows = self._session_partitions = dict(islice(self.partitions.items(), partitions_max))
        self._has_topic_ids = with_topic_ids and self._have_topic_ids(rows)
        self._session_topic_ids = {tp.topic: self._topic_ids[tp.topic] for tp in rows} if self._has_topic_ids else {}
        self._session_topic_names = {topic_id: topic for topic, topic_id in self._session_topic_ids.items()}
        return FetchSessionRequest(
            self._session_id, FULL_EPOCH, rows, (), self._has_topic_ids, dict(self._session_topic_ids)
        )

    def _next_incremental(self) -> FetchSessionRequest[Row]:
        rows: dict[TopicPartition, Row] = {}
        forgotten = self._forget_replaced() if self._has_topic_ids else []
        for tp in self._changed:
            row = self.partitions.get(tp)
            if row is None:
                if self._session_partitions.pop(tp, None) is not None:
                    forgotten.append(tp)
            elif self._session_partitions.get(tp) != row:
                rows[tp] = self._session_partitions[tp] = row
        if not self._has_topic_ids:
            return FetchSessionRequest(self._session_id, self._epoch, rows, forgotten)
        forgotten_ids = {tp.topic: self._session_topic_ids[tp.topic] for tp in forgotten}
        ids = {tp.topic: self._topic_ids[tp.topic] for tp in rows}
        for topic, topic_id in ids.items():
            old_id = self._session_topic_ids.get(topic)
            if old_id != topic_id:
                self._session_topic_names.pop(old_id or NO_UUID, None)
                self._session_topic_ids[topic], self._session_topic_names[topic_id] = topic_id, topic
        return FetchSessionRequest(self._session_id, self._epoch, rows, forgotten, True, ids, forgotten_ids)

    def _forget_replaced(self) -> list[TopicPartition]:
        """Remove the partitions of topics whose id has changed from the session."""
        old_ids = self._session_topic_ids
        found = [
            tp
            for tp in self._changed
            if tp in self._session_partitions and self._topic_ids.get(tp.topic, old_ids[tp.topic]) != old_ids[tp.topic]
        ]
        for tp in found:
            del self._session_partitions[tp]
        return found

    def partitions_of(
        self, response: FetchResponseBody, *, by_ids: bool = False
    ) -> dict[TopicPartition, FetchedPartition]:
        """The partitions of a response.  ``by_ids``: it names topics by their ids.

        A topic id that is not in the session gives an empty name, so that the response is invalid.
        """
        if not by_ids:
            return {TopicPartition(row[0], row[1]): FetchedPartition(*row) for row in response.rows}
        names = self._session_topic_names
        return {TopicPartition(names.get(row[0], ""), row[1]): FetchedPartition(*row) for row in response.rows}

    def handle_response(self, error: int, session_id: int, answered: Collection[TopicPartition]) -> ErrorCode | None:
        """Process the response to the last request: its error code, its session, and its partitions.

        Returns the error if the broker rejects the session of an incremental request: the next request is then full,
        and may be sent at once.  The caller handles any other error.
        """
        asked, self._asked = self._asked, None
        assert asked is not None, "a request was sent"
        if error != NONE.code:
            self._close(forget=error == FETCH_SESSION_ID_NOT_FOUND.code)
            return error_code(error) if error in SESSION_ERRORS and not asked.is_full else None
        if asked.is_full:
            is_whole = len(answered) == len(self._session_partitions) and self._is_in_session(answered)
            self._session_id = session_id if is_whole else NO_SESSION
            self._epoch = FULL_EPOCH if self._session_id == NO_SESSION else 1
        elif session_id == NO_SESSION:
            self._close(forget=True)
        elif session_id != self._session_id or not self._is_in_session(answered):
            self._close(forget=False)
        else:
            self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1
        return None

    def _is_in_session(self, answered: Collection[TopicPartition]) -> bool:
        return all(map(self._session_partitions.__contains__, answered))

    def handle_error(self) -> None:
        """The last request has no response: the broker may have processed it, or not."""
        self._asked = None
        self._close(forget=False)

    def _close(self, *, forget: bool) -> None:
        """Make the next request full; unless ``forget``, it names the old session, which ends with it."""
        self._epoch = FULL_EPOCH
        if forget:
            self._session_id = NO_SESSION
