"""``TopicPartitionState``: the position of one assigned partition, as in ``SubscriptionState`` of Kafka 3.0.  Pure.

                       .---------- committed offset, seek, no epoch to validate ------------.
                       |                                                                     v
    (assigned) INITIALIZING --committed offset with an epoch--> AWAIT_VALIDATION --valid--> FETCHING
                       |                                             |   ^                   |  |
                       '--no committed offset--> AWAIT_RESET <-------'   '--the leader has --'  |
                                                   |     ^               a new epoch            |
                                                   |     '---- offset out of range, ------------'
                                                   |           seek_to_beginning/end
                                                   '---- offset of the reset policy --> FETCHING or AWAIT_VALIDATION

``_TRANSITIONS`` has all of them: in AWAIT_RESET there is no position to validate, and nothing returns to INITIALIZING.
A seek and a request to reset are possible in every state.

What a state waits for: in INITIALIZING the caller loads the committed offset; in AWAIT_RESET it sends ListOffsets; in
AWAIT_VALIDATION it sends OffsetForLeaderEpoch.  When a response is lost, the state stays, and the request is sent again
after ``next_retry_ms``.  Each lookup has the ``state_id`` of its request; a response with another id is ignored.

Invariants: ``position`` is None exactly in INITIALIZING and AWAIT_RESET.  ``reset_strategy`` is set in AWAIT_RESET.
``state_id`` was never used before by a partition of the same ``SubscriptionState``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from zkconsumer.errors import UsageError
from zkconsumer.kafka.fetch.fetch_position import FetchPosition
from zkconsumer.kafka.fetch.offset_reset_strategy import OffsetResetStrategy
from zkconsumer.kafka.metadata.leader_and_epoch import LeaderAndEpoch
from zkconsumer.wire.isolation_level import IsolationLevel


class FetchState(Enum):
    """Whether a partition has a position, and whether it can be fetched from there."""

    INITIALIZING = "initializing"
    FETCHING = "fetching"
    AWAIT_RESET = "await-reset"
    AWAIT_VALIDATION = "await-validation"


_TRANSITIONS = {
    FetchState.INITIALIZING: {FetchState.FETCHING, FetchState.AWAIT_RESET, FetchState.AWAIT_VALIDATION},
    FetchState.FETCHING: {FetchState.FETCHING, FetchState.AWAIT_RESET, FetchState.AWAIT_VALIDATION},
    FetchState.AWAIT_RESET: {FetchState.FETCHING, FetchState.AWAIT_RESET},
    FetchState.AWAIT_VALIDATION: {FetchState.FETCHING, FetchState.AWAIT_RESET, FetchState.AWAIT_VALIDATION},
}

_FETCHING = FetchState.FETCHING
_WITH_POSITION = frozenset({FetchState.FETCHING, FetchState.AWAIT_VALIDATION})


class TopicPartitionState:
    """``new_id`` returns another number at each call.

    ``is_pending_revocation``: the partition is being revoked, and no more records are fetched or returned.
    ``high_watermark``, ``last_stable_offset``, ``log_start_offset``: of the last fetch, None before.
    ``end_offset_requested``: ``current_lag`` has sent ListOffsets for the end, which is not answered.
    """

    __slots__ = (
        "_new_id",
        "_preferred_read_replica",
        "_preferred_read_replica_expire_ms",
        "end_offset_requested",
        "fetch_state",
        "high_watermark",
        "is_paused",
        "is_pending_revocation",
        "last_stable_offset",
        "log_start_offset",
        "next_retry_ms",
        "position",
        "reset_strategy",
        "state_id",
    )

    def __init__(self, new_id: Callable[[], int]) -> None:
        self._new_id = new_id
        self.state_id = new_id()
        self.fetch_state = FetchState.INITIALIZING
        self.position: FetchPosition | None = None
        self.reset_strategy: OffsetResetStrategy | None = None
        self.next_retry_ms: int | None = None
        self.is_paused = False
        self.is_pending_revocation = False
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.end_offset_requested = False
        self._preferred_read_replica: int | None = None
        self._preferred_read_replica_expire_ms = 0

    @property
    def has_valid_position(self) -> bool:
        """Whether there is a position that needs no validation."""
        return self.fetch_state is FetchState.FETCHING

    @property
    def is_fetchable(self) -> bool:
        """Whether records may be requested and returned."""
        return self.fetch_state is _FETCHING and not self.is_paused and not self.is_pending_revocation

    def awaits_retry_backoff(self, now_ms: int) -> bool:
        """Whether the lookup was sent, or failed, so lately that it must not be sent again."""
        return self.next_retry_ms is not None and now_ms < self.next_retry_ms

    def end_offset(self, isolation_level: IsolationLevel) -> int | None:
        """The last stable offset or the high watermark of the last fetch, None before."""
        is_committed = isolation_level is IsolationLevel.READ_COMMITTED
        return self.last_stable_offset if is_committed else self.high_watermark

    def distances(self, isolation_level: IsolationLevel) -> tuple[int | None, int | None]:
        """How many offsets there are from the position to the end, and from the begin of the log to the position;
        None: one of them is not known."""
        position, end, start = self.position, self.end_offset(isolation_level), self.log_start_offset
        if position is None:
            return None, None
        return None if end is None else end - position.offset, None if start is None else position.offset - start

    # --- transitions ------------------------------------------------------------------------------------------------

    def seek_validated(self, position: FetchPosition) -> None:
        """Fetch from here."""
        self._enter(FetchState.FETCHING, position)
        self.reset_strategy = None

    def seek_unvalidated(self, position: FetchPosition) -> None:
        """Fetch from here, after a validation if the position and its leader have epochs."""
        self.seek_validated(position)
        self._validate(position)

    def reset(self, strategy: OffsetResetStrategy) -> None:
        """Find a new position by this policy."""
        self._enter(FetchState.AWAIT_RESET, None)
        self.reset_strategy = strategy

    def maybe_validate_position(self, leader: LeaderAndEpoch) -> bool:
        """Take the leader; returns whether the position must be validated at it now."""
        position = self.position
        if self.fetch_state is FetchState.AWAIT_RESET or leader.leader is None:
            return False
        if position is not None and position.current_leader != leader:
            self._validate(position._replace(current_leader=leader))
            self._preferred_read_replica = None
        return self.fetch_state is FetchState.AWAIT_VALIDATION

    def update_leader_without_validation(self, leader: LeaderAndEpoch) -> None:
        """Take the leader, which does not support validation, and fetch from the position."""
        if self.position is not None:
            self._enter(FetchState.FETCHING, self.position._replace(current_leader=leader))

    def complete_validation(self) -> None:
        """The position is valid."""
        if self.position is not None:
            self._enter(FetchState.FETCHING, self.position)

    def set_position(self, position: FetchPosition) -> None:
        """Move the position because records were returned; ``UsageError`` if there is no valid one."""
        if self.fetch_state is not FetchState.FETCHING:
            raise UsageError(f"a position can be moved only from a valid one, not while {self.fetch_state.value}")
        self.position = position

    def _validate(self, position: FetchPosition) -> None:
        has_epochs = position.offset_epoch is not None and position.current_leader.epoch is not None
        self._enter(FetchState.AWAIT_VALIDATION if has_epochs else FetchState.FETCHING, position)

    def _enter(self, state: FetchState, position: FetchPosition | None) -> None:
        assert state in _TRANSITIONS[self.fetch_state], f"{self.fetch_state} -> {state}"
        assert (position is not None) == (state in _WITH_POSITION)
        self.fetch_state, self.position = state, position
        self.state_id = self._new_id()
        self.next_retry_ms = None

    # --- preferred read replica -------------------------------------------------------------------------------------

    def preferred_read_replica(self, now_ms: int) -> int | None:
        """The node to fetch from instead of the leader, until its lease has expired."""
        if now_ms > self._preferred_read_replica_expire_ms:
            self._preferred_read_replica = None
        return self._preferred_read_replica

    @property
    def has_preferred_read_replica(self) -> bool:
        """Whether the leader has named another node, whose lease may have expired."""
        return self._preferred_read_replica is not None

    def update_preferred_read_replica(self, node_id: int, expire_ms: int) -> bool:
        """The leader has named a node; returns whether it is another one.  The same node does not extend its lease."""
        is_other = node_id != self._preferred_read_replica
        if is_other:
            self._preferred_read_replica, self._preferred_read_replica_expire_ms = node_id, expire_ms
        return is_other

    def clear_preferred_read_replica(self) -> int | None:
        """Fetch from the leader; returns the node that was preferred."""
        node_id, self._preferred_read_replica = self._preferred_read_replica, None
        return node_id
