"""One partition in the hands of this member (the original: PartitionTopicInfo and its registry entry).

   CLAIMING --Won--> CLAIMED --PositionKnown--> FETCHING --Revoked--> DRAINING --Drained--> DRAINED
    |   |             |   ^                        ^                                         ^  | ReleaseSent
    |   |             v   | PositionKnown          |                                         |  v
    |   |            STUCK (offset unreadable)     +------------------ HandedOver ---------- RELEASING
    |   +-- Refused: GONE                                             NotReleased: DRAINED --+  +-- Released: GONE
    +-- Unsure: DRAINED (the answer was lost with the connection: look whether it is ours, and give it back)

Lost leads to GONE from anywhere; a CLAIMED or STUCK partition that is Revoked is DRAINED at once.

DRAINED means: nothing more is handed out, the position is final, the owner node is still ours.  STUCK holds the
owner node and reads nothing: an offset that nobody can read must not become a reset that loses records.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from zkconsumer.core.events import StoredOffset
from zkconsumer.core.machine import Machine, Table, leads_to
from zkconsumer.core.stores import Source

NO_POSITION = -1


class PartitionState(Enum):
    """Where a partition of ours stands."""

    CLAIMING = "claiming"
    CLAIMED = "claimed"
    STUCK = "stuck"
    FETCHING = "fetching"
    DRAINING = "draining"
    DRAINED = "drained"
    RELEASING = "releasing"
    GONE = "gone"


class Settling(Enum):
    """How far a drained partition is with ``release.settle.ms``."""

    NOT_YET = "not yet"
    COMMITTING = "committing"
    HOLDING = "holding"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Won:
    """Our owner node exists; ``czxid`` names it."""

    czxid: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Our owner node was not made."""


@dataclass(frozen=True, slots=True)
class Unsure:
    """Whether our owner node was made is not known."""


@dataclass(frozen=True, slots=True)
class PositionKnown:
    """The stored offset was read, and what Kafka keeps (-1: nothing, or it is not asked)."""

    stored: StoredOffset
    in_kafka: int = NO_POSITION


@dataclass(frozen=True, slots=True)
class PositionUnreadable:
    """The stored offset could not be read."""

    why: str


@dataclass(frozen=True, slots=True)
class Revoked:
    """The present view gives this partition to another thread."""


@dataclass(frozen=True, slots=True)
class Drained:
    """The caller has come back, or was waited for long enough; this is the next offset to consume."""

    position: int


@dataclass(frozen=True, slots=True)
class ReleaseSent:
    """The release is under way."""


@dataclass(frozen=True, slots=True)
class NotReleased:
    """The release did not happen, or, with ``unsure``, may have happened."""

    unsure: bool


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The owner node now names another thread of this member; it is a new one, which ``czxid`` names."""

    thread: str
    czxid: int


@dataclass(frozen=True, slots=True)
class Released:
    """The owner node is gone."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The owner node is not ours any more."""


class Partition(Machine):
    """The life of one partition with one member."""

    INITIAL = PartitionState.CLAIMING

    def __init__(self, thread: str) -> None:
        super().__init__()
        self.thread = thread
        self.czxid = 0
        self.stored = StoredOffset()
        self.in_kafka = NO_POSITION
        self.position = NO_POSITION
        self.resets = 0
        self._resets_stored = 0
        self._resets_in_kafka = 0
        self._unsure_in_kafka = NO_POSITION
        self._resets_unsure = 0
        self.settling = Settling.NOT_YET
        self.is_unsure = False
        self.is_told = False
        self.position_counts = True
        """False when its topic was deleted and created again: then the position is not committed."""

    @property
    def is_owned(self) -> bool:
        """Whether an owner node of ours exists as far as we know."""
        return self.state not in (PartitionState.CLAIMING, PartitionState.GONE)

    @property
    def is_leaving(self) -> bool:
        """Whether it is on its way out."""
        return self.state in (PartitionState.DRAINING, PartitionState.DRAINED, PartitionState.RELEASING)

    @property
    def was_reset(self) -> bool:
        """Whether the reset policy moved the position since the last write: then it may be behind the stored one."""
        return self.resets != self._resets_stored

    @property
    def source(self) -> Source:
        """Which store knows the larger offset."""
        if max(self.stored.offset, self.in_kafka) < 0:
            return Source.NEITHER
        if self.stored.offset == self.in_kafka:
            return Source.BOTH
        return Source.ZOOKEEPER if self.stored.offset > self.in_kafka else Source.KAFKA

    def wrote(self, stored: StoredOffset, resets: int) -> None:
        """A write that was decided after that many resets came back; this is what the offset znode holds now."""
        self.stored = stored
        self._resets_stored = resets

    def wrote_to_kafka(self, offset: int, resets: int) -> None:
        """The same of Kafka."""
        self.in_kafka = offset
        self._resets_in_kafka = resets

    def may_be_in_kafka(self, offset: int, resets: int) -> None:
        """What became of a commit to Kafka is not known: it may hold this offset now, or later."""
        self._unsure_in_kafka = offset
        self._resets_unsure = resets

    def offset_to_commit(self, position: int) -> int | None:
        """What a commit should write to the offset znode: None when there is nothing new.

        Never a negative offset, and never a smaller one than either store is known to hold unless the reset policy
        moved the position back (the original writes whatever it holds: a stored offset could go back).
        """
        if position < 0 or position == self.stored.offset or not self.position_counts:
            return None
        return None if self._goes_back(position) else position

    def offset_for_kafka(self, position: int, *, repeats: bool) -> int | None:
        """What a commit should tell Kafka.

        The same rule; but with ``repeats`` what has not changed is told again, because brokers forget offsets that
        nobody repeats (``offsets.retention.minutes``).  Instead of a smaller offset than Kafka may hold, because the
        answer to its commit was lost, that one is told again: the smaller one could be written over it.
        """
        if position < 0 or (position == self.in_kafka and not repeats) or not self.position_counts:
            return None
        if self._goes_back(position):
            return None
        return max(position, self._unsure_in_kafka) if self.resets == self._resets_unsure else position

    def _goes_back(self, position: int) -> bool:
        """Whether a store is known to hold more than this since the last reset.

        What a store holds of before the reset counts for nothing, also not in the way of the other one: a coordinator
        that is away keeps its old offset for as long.
        """
        behind_kafka = position < self.in_kafka and self.resets == self._resets_in_kafka
        return behind_kafka or (position < self.stored.offset and not self.was_reset)

    @leads_to(PartitionState.CLAIMED)
    def _won(self, event: Won) -> tuple[PartitionState, list[Any]]:
        self.czxid = event.czxid
        return PartitionState.CLAIMED, []

    @leads_to(PartitionState.FETCHING)
    def _position_known(self, event: PositionKnown) -> tuple[PartitionState, list[Any]]:
        self.wrote(event.stored, self.resets)
        self.wrote_to_kafka(event.in_kafka, self.resets)
        self.position = max(event.stored.offset, event.in_kafka)
        return PartitionState.FETCHING, []

    @leads_to(PartitionState.STUCK)
    def _unreadable(self, _: PositionUnreadable) -> tuple[PartitionState, list[Any]]:
        return PartitionState.STUCK, []

    @leads_to(PartitionState.DRAINED)
    def _revoked_idle(self, _: Revoked) -> tuple[PartitionState, list[Any]]:
        self.position = NO_POSITION
        return PartitionState.DRAINED, []

    @leads_to(PartitionState.DRAINING)
    def _revoked(self, _: Revoked) -> tuple[PartitionState, list[Any]]:
        return PartitionState.DRAINING, []

    @leads_to(PartitionState.DRAINED)
    def _drained(self, event: Drained) -> tuple[PartitionState, list[Any]]:
        self.position = event.position
        return PartitionState.DRAINED, []

    @leads_to(PartitionState.RELEASING)
    def _release_sent(self, _: ReleaseSent) -> tuple[PartitionState, list[Any]]:
        return PartitionState.RELEASING, []

    @leads_to(PartitionState.DRAINED)
    def _unsure(self, _: Unsure) -> tuple[PartitionState, list[Any]]:
        self.is_unsure = True
        self.is_told = True  # it was never read: there is nothing to tell of it
        return PartitionState.DRAINED, []

    @leads_to(PartitionState.DRAINED)
    def _not_released(self, event: NotReleased) -> tuple[PartitionState, list[Any]]:
        self.is_unsure = self.is_unsure or event.unsure
        return PartitionState.DRAINED, []

    @leads_to(PartitionState.FETCHING)
    def _handed_over(self, event: HandedOver) -> tuple[PartitionState, list[Any]]:
        self.thread = event.thread
        self.czxid = event.czxid
        self.is_unsure = self.is_told = False
        self.settling = Settling.NOT_YET
        return PartitionState.FETCHING, []

    @leads_to(PartitionState.GONE)
    def _gone(self, _: object) -> tuple[PartitionState, list[Any]]:
        return PartitionState.GONE, []

    TRANSITIONS: ClassVar[Table] = {
        (PartitionState.CLAIMING, Won): _won,
        (PartitionState.CLAIMING, Refused): _gone,
        (PartitionState.CLAIMING, Unsure): _unsure,
        (PartitionState.CLAIMING, Lost): _gone,
        (PartitionState.CLAIMED, PositionKnown): _position_known,
        (PartitionState.CLAIMED, PositionUnreadable): _unreadable,
        (PartitionState.CLAIMED, Revoked): _revoked_idle,
        (PartitionState.CLAIMED, Lost): _gone,
        (PartitionState.STUCK, PositionKnown): _position_known,
        (PartitionState.STUCK, PositionUnreadable): _unreadable,
        (PartitionState.STUCK, Revoked): _revoked_idle,
        (PartitionState.STUCK, Lost): _gone,
        (PartitionState.FETCHING, Revoked): _revoked,
        (PartitionState.FETCHING, Lost): _gone,
        (PartitionState.DRAINING, Drained): _drained,
        (PartitionState.DRAINING, Lost): _gone,
        (PartitionState.DRAINED, ReleaseSent): _release_sent,
        (PartitionState.DRAINED, Lost): _gone,
        (PartitionState.RELEASING, Released): _gone,
        (PartitionState.RELEASING, NotReleased): _not_released,
        (PartitionState.RELEASING, HandedOver): _handed_over,
        (PartitionState.RELEASING, Lost): _gone,
    }
