"""``FetchSession``: the reader's half of a fetch session with one broker (KIP-227; brokers from 1.1, Fetch 7).  Pure.

The broker keeps the list of partitions and what it last sent for each.  So a request contains only changes, and a
response only news.

            full request, epoch 0                              incremental request, epoch n
    NONE ---------------------------> response with an id --> OPEN --------------------------> response with the id
      ^                                  | id 0: the broker    ^                                  |  |
      |                                  v keeps no session    '------------ epoch n + 1 ---------'  |
      '--- id 0, or error 70 (unknown id) <----------------------------------------------------------'
           any other error, no response, an invalid response: CLOSING, a full request with the old id and epoch 0,
           which ends the old session and requests a new one

Without a session (the broker has no slot for one, or Fetch is below 7) each request is full.  Java's
``FetchSessionHandler`` decides in the same way.

    session.set_partition(tp, row)     request this partition with this row
    session.remove_partition(tp)       do not request it
    session.next_request()             the content of the next request; then exactly one of
    session.handle_response(...)       its response arrived
    session.handle_error()             it may or may not have reached the broker

A row is the part of the request about a partition.  Rows are compared, and an unchanged one is not sent again.  The
cost depends on the partitions that changed, not on all.  If the reader stops using a session, the broker removes it
when it needs the slot, after two minutes (``min.incremental.fetch.session.eviction.ms``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import islice
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

NO_SESSION = 0
FULL_EPOCH = 0
EPOCH_MAX = 0x7FFF_FFFF

SESSION_ERRORS = frozenset(
    error.code for error in (FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR)
)
"""A broker's errors for an incremental request if it has another session than the reader, or none."""

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class FetchSessionRequest(Generic[Row]):
    """The content of a request.  ``forgotten``: partitions to remove from the session."""

    session_id: int
    epoch: int
    rows: Mapping[TopicPartition, Row]
    forgotten: Collection[TopicPartition]

    @property
    def is_full(self) -> bool:
        """Whether ``rows`` contains all requested partitions."""
        return self.epoch == FULL_EPOCH


class FetchSession(Generic[Row]):
    """One reader and one broker; it outlives connections.

    ``partitions``: the requested partitions, in the order of full requests.  ``_session_partitions``: those of the
    broker, if it keeps the session; ``_changed``: where the two may differ.
    """

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, Row] = {}
        self._session_partitions: dict[TopicPartition, Row] = {}
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

    def set_partition(self, tp: TopicPartition, row: Row) -> None:
        """Request this partition with this row from now on."""
        if self.partitions.get(tp) != row:
            self.partitions[tp] = row
            self._changed[tp] = None

    def remove_partition(self, tp: TopicPartition) -> None:
        """Do not request this partition from now on."""
        if self.partitions.pop(tp, None) is not None:
            self._changed[tp] = None

    def move_to_end(self, tp: TopicPartition) -> None:
        """Put it after the others in full requests; a broker with a session has its own order."""
        row = self.partitions.pop(tp, None)
        if row is not None:
            self.partitions[tp] = row

    def next_request(self, partitions_max: int | None = None) -> FetchSessionRequest[Row]:
        """The content of the next request.  ``partitions_max``: a full one contains at most this many."""
        assert self._asked is None, "one request at a time"
        if self.is_open:
            rows: dict[TopicPartition, Row] = {}
            forgotten: list[TopicPartition] = []
            for tp in self._changed:
                row = self.partitions.get(tp)
                if row is None:
                    if self._session_partitions.pop(tp, None) is not None:
                        forgotten.append(tp)
                elif self._session_partitions.get(tp) != row:
                    rows[tp] = self._session_partitions[tp] = row
            self._asked = FetchSessionRequest(self._session_id, self._epoch, rows, forgotten)
        else:
            self._session_partitions = dict(islice(self.partitions.items(), partitions_max))
            self._asked = FetchSessionRequest(self._session_id, FULL_EPOCH, self._session_partitions, ())
        self._changed.clear()
        return self._asked

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
            is_whole = len(answered) == len(self._session_partitions) and all(
                tp in self._session_partitions for tp in answered
            )
            self._session_id = session_id if is_whole else NO_SESSION
            self._epoch = FULL_EPOCH if self._session_id == NO_SESSION else 1
        elif session_id == NO_SESSION:
            self._close(forget=True)
        elif session_id != self._session_id or not all(tp in self._session_partitions for tp in answered):
            self._close(forget=False)
        else:
            self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1
        return None

    def handle_error(self) -> None:
        """The last request has no response: the broker may have processed it, or not."""
        self._asked = None
        self._close(forget=False)

    def _close(self, *, forget: bool) -> None:
        """Make the next request full; unless ``forget``, it names the old session, which ends with it."""
        self._epoch = FULL_EPOCH
        if forget:
            self._session_id = NO_SESSION
