"""One partition in the hands of this member (the original: PartitionTopicInfo and its registry entry).

   CLAIMING --Won--> CLAIMED --PositionKnown--> FETCHING --Revoked--> DRAINING --Drained--> DRAINED
    |   |             |   ^                        ^                                         ^  | ReleaseSent
    |   |             v   | PositionKnown          |                                         |  v
    |   |            STUCK (offset unreadable)     +------------------ OwnerThreadChanged ---------- RELEASING
    |   +-- Refused: GONE                                             ReleaseFailed: DRAINED --+  +-- Released: GONE
    +-- Unsure: DRAINED (the answer was lost with the connection: look whether it is ours, and give it back)

Lost leads to GONE from anywhere; a CLAIMED or STUCK partition that is Revoked is DRAINED at once.

DRAINED means: nothing more is handed out, the position is final, the owner node is still ours.  STUCK holds the
owner node and reads nothing: an offset that nobody can read must not become a reset that loses records.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from zkconsumer.member.events import StoredOffset
from zkconsumer.member.offset_stores import OffsetSource
from zkconsumer.member.state_machine import StateMachine, TransitionTable, transitions_to

NO_POSITION = -1


class PartitionState(Enum):
    """Where a partition of ours stands."""

    ACQUIRING = "claiming"
    ACQUIRED = "claimed"
    POSITION_UNREADABLE = "stuck"
    FETCHING = "fetching"
    DRAINING = "draining"
    DRAINED = "drained"
    RELEASING = "releasing"
    NOT_OWNED = "gone"


class SettleState(Enum):
    """How far a drained partition is with ``release.settle.ms``."""

    NOT_STARTED = "not yet"
    COMMITTING = "committing"
    WAITING = "holding"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class OwnershipAcquired:
    """Our owner node exists; ``czxid`` names it."""

    czxid: int


@dataclass(frozen=True, slots=True)
class OwnershipNotAcquired:
    """Our owner node was not made."""


@dataclass(frozen=True, slots=True)
class OwnershipUnknown:
    """Whether our owner node was made is not known."""


@dataclass(frozen=True, slots=True)
class PositionKnown:
    """The stored offset was read, and what Kafka keeps (-1: nothing, or it is not asked)."""

    stored: StoredOffset
    kafka_offset: int = NO_POSITION


@dataclass(frozen=True, slots=True)
class PositionUnreadable:
    """The stored offset could not be read."""

    why: str


@dataclass(frozen=True, slots=True)
class PartitionRevoked:
    """The present view gives this partition to another thread."""


@dataclass(frozen=True, slots=True)
class DrainCompleted:
    """The caller has come back, or was waited for long enough; this is the next offset to consume."""

    position: int


@dataclass(frozen=True, slots=True)
class ReleaseSent:
    """The release is under way."""


@dataclass(frozen=True, slots=True)
class ReleaseFailed:
    """The release did not happen, or, with ``is_outcome_unknown``, may have happened."""

    is_outcome_unknown: bool


@dataclass(frozen=True, slots=True)
class OwnerThreadChanged:
    """The owner node now names another thread of this member; it is a new one, which ``czxid`` names."""

    thread: str
    czxid: int


@dataclass(frozen=True, slots=True)
class OwnershipReleased:
    """The owner node is gone."""


@dataclass(frozen=True, slots=True)
class OwnershipLost:
    """The owner node is not ours any more."""


class PartitionStateMachine(StateMachine):
    """The life of one partition with one member."""

    INITIAL = PartitionState.ACQUIRING

    def __init__(self, thread: str) -> None:
        super().__init__()
        self.thread = thread
        self.czxid = 0
        self.stored = StoredOffset()
        self.kafka_offset = NO_POSITION
        self.position = NO_POSITION
        self.reset_count = 0
        self._zookeeper_write_resets = 0
        self._kafka_write_resets = 0
        self._possible_kafka_offset = NO_POSITION
        self._possible_kafka_offset_resets = 0
        self.settle_state = SettleState.NOT_STARTED
        self.is_ownership_unknown = False
        self.is_listener_notified = False
        self.is_position_valid = True
        """False when its topic was deleted and created again: then the position is not committed."""

    @property
    def is_owned(self) -> bool:
        """Whether an owner node of ours exists as far as we know."""
        return self.state not in (PartitionState.ACQUIRING, PartitionState.NOT_OWNED)

    @property
    def is_leaving(self) -> bool:
        """Whether it is on its way out."""
        return self.state in (PartitionState.DRAINING, PartitionState.DRAINED, PartitionState.RELEASING)

    @property
    def was_reset_since_write(self) -> bool:
        """Whether the reset policy moved the position since the last write: then it may be behind the stored one."""
        return self.reset_count != self._zookeeper_write_resets

    @property
    def source(self) -> OffsetSource:
        """Which store knows the larger offset."""
        if max(self.stored.offset, self.kafka_offset) < 0:
            return OffsetSource.NEITHER
        if self.stored.offset == self.kafka_offset:
            return OffsetSource.BOTH
        return OffsetSource.ZOOKEEPER if self.stored.offset > self.kafka_offset else OffsetSource.KAFKA

    def record_zookeeper_write(self, stored: StoredOffset, resets: int) -> None:
        """A write that was decided after that many resets came back; this is what the offset znode holds now."""
        self.stored = stored
        self._zookeeper_write_resets = resets

    def record_kafka_write(self, offset: int, resets: int) -> None:
        """The same of Kafka."""
        self.kafka_offset = offset
        self._kafka_write_resets = resets

    def record_unknown_kafka_write(self, offset: int, resets: int) -> None:
        """What became of a commit to Kafka is not known: it may hold this offset now, or later."""
        self._possible_kafka_offset = offset
        self._possible_kafka_offset_resets = resets

    def offset_for_zookeeper(self, position: int) -> int | None:
        """What a commit should write to the offset znode: None when there is nothing new.

        Never a negative offset, and never a smaller one than either store is known to hold unless the reset policy
        moved the position back (the original writes whatever it holds: a stored offset could go back).
        """
        if position < 0 or position == self.stored.offset or not self.is_position_valid:
            return None
        return None if self._goes_back(position) else position

    def offset_for_kafka(self, position: int, *, repeats: bool) -> int | None:
        """What a commit should tell Kafka.

        The same rule; but with ``repeats`` what has not changed is told again, because brokers forget offsets that
        nobody repeats (``offsets.retention.minutes``).  Instead of a smaller offset than Kafka may hold, because the
        answer to its commit was lost, that one is told again: the smaller one could be written over it.
        """
        if position < 0 or (position == self.kafka_offset and not repeats) or not self.is_position_valid:
            return None
        if self._goes_back(position):
            return None
        return (
            max(position, self._possible_kafka_offset)
            if self.reset_count == self._possible_kafka_offset_resets
            else position
        )

    def _goes_back(self, position: int) -> bool:
        """Whether a store is known to hold more than this since the last reset.

        What a store holds of before the reset counts for nothing, also not in the way of the other one: a coordinator
        that is away keeps its old offset for as long.
        """
        behind_kafka = position < self.kafka_offset and self.reset_count == self._kafka_write_resets
        return behind_kafka or (position < self.stored.offset and not self.was_reset_since_write)

    @transitions_to(PartitionState.ACQUIRED)
    def _won(self, event: OwnershipAcquired) -> tuple[PartitionState, list[Any]]:
        self.czxid = event.czxid
        return PartitionState.ACQUIRED, []

    @transitions_to(PartitionState.FETCHING)
    def _position_known(self, event: PositionKnown) -> tuple[PartitionState, list[Any]]:
        self.record_zookeeper_write(event.stored, self.reset_count)
        self.record_kafka_write(event.kafka_offset, self.reset_count)
        self.position = max(event.stored.offset, event.kafka_offset)
        return PartitionState.FETCHING, []

    @transitions_to(PartitionState.POSITION_UNREADABLE)
    def _unreadable(self, _: PositionUnreadable) -> tuple[PartitionState, list[Any]]:
        return PartitionState.POSITION_UNREADABLE, []

    @transitions_to(PartitionState.DRAINED)
    def _revoked_idle(self, _: PartitionRevoked) -> tuple[PartitionState, list[Any]]:
        self.position = NO_POSITION
        return PartitionState.DRAINED, []

    @transitions_to(PartitionState.DRAINING)
    def _revoked(self, _: PartitionRevoked) -> tuple[PartitionState, list[Any]]:
        return PartitionState.DRAINING, []

    @transitions_to(PartitionState.DRAINED)
    def _drained(self, event: DrainCompleted) -> tuple[PartitionState, list[Any]]:
        self.position = event.position
        return PartitionState.DRAINED, []

    @transitions_to(PartitionState.RELEASING)
    def _release_sent(self, _: ReleaseSent) -> tuple[PartitionState, list[Any]]:
        return PartitionState.RELEASING, []

    @transitions_to(PartitionState.DRAINED)
    def _unsure(self, _: OwnershipUnknown) -> tuple[PartitionState, list[Any]]:
        self.is_ownership_unknown = True
        self.is_listener_notified = True  # it was never read: there is nothing to tell of it
        return PartitionState.DRAINED, []

    @transitions_to(PartitionState.DRAINED)
    def _not_released(self, event: ReleaseFailed) -> tuple[PartitionState, list[Any]]:
        self.is_ownership_unknown = self.is_ownership_unknown or event.is_outcome_unknown
        return PartitionState.DRAINED, []

    @transitions_to(PartitionState.FETCHING)
    def _handed_over(self, event: OwnerThreadChanged) -> tuple[PartitionState, list[Any]]:
        self.thread = event.thread
        self.czxid = event.czxid
        self.is_ownership_unknown = self.is_listener_notified = False
        self.settle_state = SettleState.NOT_STARTED
        return PartitionState.FETCHING, []

    @transitions_to(PartitionState.NOT_OWNED)
    def _gone(self, _: object) -> tuple[PartitionState, list[Any]]:
        return PartitionState.NOT_OWNED, []

    TRANSITIONS: ClassVar[TransitionTable] = {
        (PartitionState.ACQUIRING, OwnershipAcquired): _won,
        (PartitionState.ACQUIRING, OwnershipNotAcquired): _gone,
        (PartitionState.ACQUIRING, OwnershipUnknown): _unsure,
        (PartitionState.ACQUIRING, OwnershipLost): _gone,
        (PartitionState.ACQUIRED, PositionKnown): _position_known,
        (PartitionState.ACQUIRED, PositionUnreadable): _unreadable,
        (PartitionState.ACQUIRED, PartitionRevoked): _revoked_idle,
        (PartitionState.ACQUIRED, OwnershipLost): _gone,
        (PartitionState.POSITION_UNREADABLE, PositionKnown): _position_known,
        (PartitionState.POSITION_UNREADABLE, PositionUnreadable): _unreadable,
        (PartitionState.POSITION_UNREADABLE, PartitionRevoked): _revoked_idle,
        (PartitionState.POSITION_UNREADABLE, OwnershipLost): _gone,
        (PartitionState.FETCHING, PartitionRevoked): _revoked,
        (PartitionState.FETCHING, OwnershipLost): _gone,
        (PartitionState.DRAINING, DrainCompleted): _drained,
        (PartitionState.DRAINING, OwnershipLost): _gone,
        (PartitionState.DRAINED, ReleaseSent): _release_sent,
        (PartitionState.DRAINED, OwnershipLost): _gone,
        (PartitionState.RELEASING, OwnershipReleased): _gone,
        (PartitionState.RELEASING, ReleaseFailed): _not_released,
        (PartitionState.RELEASING, OwnerThreadChanged): _handed_over,
        (PartitionState.RELEASING, OwnershipLost): _gone,
    }
