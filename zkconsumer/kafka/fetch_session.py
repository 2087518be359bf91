"""``FetchSession``: the reader's half of a fetch session with one broker (KIP-227; brokers from 1.1, Fetch 7).  Pure.

The broker keeps the list of partitions and what it said of each.  So a request names what changed, and an answer holds
what is new.

            full request, epoch 0                              incremental request, epoch n
    NONE ---------------------------> answer with an id ---> OPEN ---------------------------> answer with the id
      ^                                  | id 0: the broker    ^                                  |  |
      |                                  v keeps no session    '------------ epoch n + 1 ---------'  |
      '--- id 0, or error 70 (the id is not known) <-------------------------------------------------'
           any other error, no answer, an answer that cannot be: CLOSING, a full request with the old id and epoch 0,
           which ends the old session and asks for a new one

Without a session, on a broker that has none to give or before Fetch 7, each request is full.  Java's
``FetchSessionHandler`` decides alike.

    session.want(tp, row)        ask for this partition with this row
    session.leave_out(tp)        do not
    session.next_request()       what the next request says; then exactly one of
    session.answered(...)        its answer
    session.failed()             it may or may not have reached the broker

A row is whatever the request says of a partition; rows are compared, and one that is equal is not sent again.  Costs
follow the partitions that changed, not all.  A session that its reader leaves is dropped by the broker when its place
is needed, after two minutes (``min.incremental.fetch.session.eviction.ms``).
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
"""What a broker answers to an incremental request when it has another session than the reader, or none."""

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class FetchSessionRequest(Generic[Row]):
    """What a request says.  ``forgotten``: partitions that the session shall not have any more."""

    session_id: int
    epoch: int
    rows: Mapping[TopicPartition, Row]
    forgotten: Collection[TopicPartition]

    @property
    def is_full(self) -> bool:
        """Whether ``rows`` is all that is asked for."""
        return self.epoch == FULL_EPOCH


class FetchSession(Generic[Row]):
    """One reader and one broker; it outlives connections.

    ``partitions``: what is asked for, in the order of full requests.  ``_session_partitions``: what the broker has, if
    it keeps the session; ``_changed``: where the two may differ.
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
        """Whether the next request names only what changed."""
        return self._epoch != FULL_EPOCH

    @property
    def requested(self) -> Mapping[TopicPartition, Row]:
        """What the last request asks for: its rows, and those that the session has from before."""
        return self._session_partitions

    def set_partition(self, tp: TopicPartition, row: Row) -> None:
        """Ask for this partition with this row from now on."""
        if self.partitions.get(tp) != row:
            self.partitions[tp] = row
            self._changed[tp] = None

    def remove_partition(self, tp: TopicPartition) -> None:
        """Do not ask for this partition from now on."""
        if self.partitions.pop(tp, None) is not None:
            self._changed[tp] = None

    def move_to_end(self, tp: TopicPartition) -> None:
        """Name it behind the others in full requests; a broker with a session has an order of its own."""
        row = self.partitions.pop(tp, None)
        if row is not None:
            self.partitions[tp] = row

    def next_request(self, partitions_max: int | None = None) -> FetchSessionRequest[Row]:
        """What the next request says.  ``partitions_max``: a full one names the first so many."""
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
        """The answer to the last request has come: its error code, its session, and which partitions it is about.

        Gives the error when the broker refuses the session of an incremental request: the next request is full, and
        may be sent at once.  Any other error is for the caller to judge.
        """
        asked, self._asked = self._asked, None
        assert asked is not None, "a request was made"
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
        """The last request has no answer: the broker may have taken it in, or not."""
        self._asked = None
        self._close(forget=False)

    def _close(self, *, forget: bool) -> None:
        """The next request is full; unless ``forget``, it names the old session, which ends with it."""
        self._epoch = FULL_EPOCH
        if forget:
            self._session_id = NO_SESSION
