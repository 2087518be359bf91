"""One partition of this member (in the Scala consumer: PartitionTopicInfo and its registry entry).

   ACQUIRING --OwnershipAcquired-----> ACQUIRED
   ACQUIRING --OwnershipNotAcquired--> NOT_OWNED
   ACQUIRING --OwnershipUnknown------> DRAINED (the connection was lost before the answer: the member checks
                                       whether the owner node is its own, and releases it)
   ACQUIRED --PositionKnown----------> FETCHING
   ACQUIRED --PositionUnreadable-----> POSITION_UNREADABLE --PositionKnown--> FETCHING
   FETCHING --PartitionRevoked-------> DRAINING --DrainCompleted--> DRAINED
   DRAINED --ReleaseSent-------------> RELEASING
   RELEASING --OwnershipReleased-----> NOT_OWNED
   RELEASING --ReleaseFailed---------> DRAINED
   RELEASING --OwnerThreadChanged----> FETCHING

OwnershipLost leads to NOT_OWNED from every state.  PartitionRevoked leads from ACQUIRED and POSITION_UNREADABLE to
DRAINED at once.

DRAINED means: no more records are delivered, the position is final, the owner node is still ours.  In
POSITION_UNREADABLE the member keeps the owner node and fetches nothing: a reset because of an unreadable offset would
lose records.

While the state is FETCHING or DRAINING, the position here is old: the streams have the present one and report it with a
collect or a drain.  Two things may make a commit smaller than a stored offset: a delayed commit of an earlier owner,
which must not win, and a reset, which must.  The reset count distinguishes them: each store remembers at which count it
was written last, and an offset written before the last reset blocks no commit.

If the answer to a release is lost, the owner node may exist or not.  The partition is DRAINED again with
``is_ownership_unknown``, and the next release verifies the owner before it writes the offset: the node may belong to
the next owner by then (``a_thread_change_without_an_answer_is_repeated_after_an_owner_check.txt``).

What each state waits for: ACQUIRING and RELEASING for ZooKeeper, ACQUIRED for the offset stores, DRAINING for the
program (at most the drain timeout), DRAINED for the listener, a commit and the settle time (see
``partition_releaser``). A machine lives for one ownership.  The member makes it when it requests the owner node, and
drops it in NOT_OWNED, so no offset, reset or flag of an earlier ownership can influence the next one.

The order FETCHING, DRAINING, DRAINED, RELEASING is *stop and drain before commit, commit before release*.  A commit
before the end of the drain would be too small, and the next owner would deliver the last records again; a release
before the commit would let the next owner read the offset before it is written
(``another_member_joins_and_gets_its_partitions.txt``).

What a lost answer of a commit costs.  ZooKeeper: nothing, because the version of the znode shows whether it was
written.  Kafka has no version, and a request that the coordinator still has may be executed later than the next one; so
the possible offset is remembered, and the next commit is not smaller
(``kafka_a_lost_answer_is_never_followed_by_a_smaller_offset.txt``).

A pause of the process changes nothing here.  If the session has ended meanwhile, the member handles OwnershipLost for
every partition, and an answer that arrives later finds no machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from zkconsumer.member.events import StoredOffset
from zkconsumer.member.offset_stores import OffsetSource
from zkconsumer.member.state_machine import MachineEvent, StateMachine, TransitionTable, go_to, rows_for, transitions_to

NO_POSITION = -1


class PartitionState(Enum):
    """The state of one partition of this member."""

    ACQUIRING = "acquiring"
    ACQUIRED = "acquired"
    POSITION_UNREADABLE = "position_unreadable"
    FETCHING = "fetching"
    DRAINING = "draining"
    DRAINED = "drained"
    RELEASING = "releasing"
    NOT_OWNED = "not_owned"


class SettleState(Enum):
    """Progress of a drained partition through the wait of ``release.settle.ms``."""

    NOT_STARTED = "not_started"
    COMMITTING = "committing"
    WAITING = "waiting"
    DONE = "done"


STATES_OF_RELEASE = (PartitionState.DRAINING, PartitionState.DRAINED, PartitionState.RELEASING)
STATES_BEFORE_FETCH = (PartitionState.ACQUIRED, PartitionState.POSITION_UNREADABLE)
STATES_OF_MACHINE = tuple(state for state in PartitionState if state is not PartitionState.NOT_OWNED)
"""Every state that a partition has between two events of the member."""


@dataclass(frozen=True, slots=True)
class OwnershipAcquired:
    """Our owner node exists; ``czxid`` identifies it."""

    czxid: int


class OwnershipNotAcquired(MachineEvent):
    """Our owner node was not created."""


class OwnershipUnknown(MachineEvent):
    """It is unknown whether our owner node was created."""


@dataclass(frozen=True, slots=True)
class PositionKnown:
    """The stored offsets were read; ``kafka_offset`` is -1 if Kafka has none or is not used."""

    stored: StoredOffset
    kafka_offset: int = NO_POSITION


@dataclass(frozen=True, slots=True)
class PositionUnreadable:
    """The stored offset could not be read."""

    why: str


class PartitionRevoked(MachineEvent):
    """The present view assigns this partition to another thread."""


@dataclass(frozen=True, slots=True)
class DrainCompleted:
    """The program acknowledged the delivered records, or the drain timed out; ``position``: next offset to consume."""

    position: int


class ReleaseSent(MachineEvent):
    """The request to delete the owner node was sent."""


@dataclass(frozen=True, slots=True)
class ReleaseFailed:
    """The owner node was not deleted, or, with ``is_outcome_unknown``, may have been deleted."""

    is_outcome_unknown: bool


@dataclass(frozen=True, slots=True)
class OwnerThreadChanged:
    """The owner node was replaced by one that names another thread of this member; ``czxid`` identifies the new one."""

    thread: str
    czxid: int


class OwnershipReleased(MachineEvent):
    """The owner node is deleted."""


class OwnershipLost(MachineEvent):
    """The owner node is no longer ours."""


PartitionStep = tuple[PartitionState, list[Any]]


class PartitionStateMachine(StateMachine):
    """One partition of one member, with its position and what each offset store contains."""

    INITIAL = PartitionState.ACQUIRING

    def __init__(self, thread: str) -> None:
        super().__init__()
        self.thread = thread
        """The thread id in the owner node; changes only with ``OwnerThreadChanged``."""
        self.czxid = 0
        """The transaction that created our owner node, which is the epoch of this ownership; 0 until an answer showed
        that the node exists."""
        self.stored = StoredOffset()
        """The known content of the offset znode.  Its version is the condition of the next write, so a write of another
        client since then is detected; without offsets in ZooKeeper it stays empty."""
        self.kafka_offset = NO_POSITION
        """The offset that Kafka is known to have; -1 if it has none, or is not used."""
        self.position = NO_POSITION
        """The next offset to consume; final in ``DRAINED``, and -1 there if nothing was fetched."""
        self.reset_count = 0
        """How often the position was set by something else than consuming: by the reset policy, or by offsets that were
        overwritten on request.  Never decreases."""
        self._zookeeper_write_resets = 0
        """``reset_count`` when ``stored`` was decided; never larger than it."""
        self._kafka_write_resets = 0
        """``reset_count`` when ``kafka_offset`` was decided; never larger than it."""
        self._possible_kafka_offset = NO_POSITION
        """The offset of the last commit to Kafka whose answer was lost; -1 if there was none.  It is kept after a
        commit that succeeded, because the lost request may be executed later."""
        self._possible_kafka_offset_resets = 0
        """``reset_count`` when that commit was decided; from another count on, the possible offset has no effect."""
        self.settle_state = SettleState.NOT_STARTED
        """Changes only in ``DRAINED``, in the order of its values; back at the start with a new thread."""
        self.is_ownership_unknown = False
        """Our owner node may not exist: the answer to its creation or deletion was lost.  True only in ``DRAINED`` and
        ``RELEASING``; the release that verifies the owner ends it."""
        self.is_listener_notified = False
        """The release call was made for it, or none is needed; without a listener it has no effect."""
        self.is_position_valid = True
        """False when the topic was deleted and created again: then the position must not be committed.  True again with
        a position in the new topic."""

    def handle(self, event: object) -> list[Any]:
        """Process one event, see the base class."""
        commands = super().handle(event)
        assert self.state is not PartitionState.FETCHING or self.czxid, "only a partition with an owner node is fetched"
        assert not self.is_ownership_unknown or self.state in STATES_OF_RELEASE or not self.is_owned, (
            "only a release ends it"
        )
        return commands

    @property
    def is_owned(self) -> bool:
        """Whether our owner node exists, as far as is known."""
        return self.state not in (PartitionState.ACQUIRING, PartitionState.NOT_OWNED)

    @property
    def is_leaving(self) -> bool:
        """Whether this member is releasing the partition."""
        return self.state in STATES_OF_RELEASE

    @property
    def was_reset_since_write(self) -> bool:
        """Whether the reset policy moved the position since the last write; it may then be below the stored offset."""
        return self.reset_count != self._zookeeper_write_resets

    @property
    def source(self) -> OffsetSource:
        """Which store contains the larger offset."""
        if max(self.stored.offset, self.kafka_offset) < 0:
            return OffsetSource.NEITHER
        if self.stored.offset == self.kafka_offset:
            return OffsetSource.BOTH
        return OffsetSource.ZOOKEEPER if self.stored.offset > self.kafka_offset else OffsetSource.KAFKA

    def record_zookeeper_write(self, stored: StoredOffset, resets: int) -> None:
        """The offset znode contains ``stored`` now; ``resets``: the reset count when the write was decided."""
        assert resets <= self.reset_count, "a write cannot be decided after a reset that has not happened"
        self.stored = stored
        self._zookeeper_write_resets = resets

    def record_kafka_write(self, offset: int, resets: int) -> None:
        """Kafka has stored ``offset``; ``resets``: the reset count when the commit was decided."""
        assert resets <= self.reset_count, "a write cannot be decided after a reset that has not happened"
        self.kafka_offset = offset
        self._kafka_write_resets = resets

    def record_unknown_kafka_write(self, offset: int, resets: int) -> None:
        """The answer to a commit was lost: Kafka may store this offset now or later."""
        assert offset >= 0, "only an offset that was to be committed may be stored"
        assert resets <= self.reset_count, "a write cannot be decided after a reset that has not happened"
        self._possible_kafka_offset = offset
        self._possible_kafka_offset_resets = resets

    def offset_for_zookeeper(self, position: int) -> int | None:
        """The offset that a commit writes to the offset znode; None when nothing has changed.

        Never a negative offset, and never a smaller one than a store is known to contain, unless the reset policy
        moved the position back.  (The Scala consumer writes its position unchecked: a stored offset could decrease.)
        """
        if position < 0 or position == self.stored.offset or not self.is_position_valid:
            return None
        return None if self._goes_back(position) else position

    def offset_for_kafka(self, position: int, *, repeats: bool) -> int | None:
        """The offset to commit to Kafka; None when nothing must be committed.

        The same rule as for ZooKeeper.  With ``repeats`` an unchanged offset is committed again, because brokers
        delete offsets that are not committed again within ``offsets.retention.minutes``.  If the answer to a commit
        was lost and its offset is larger, the larger one is committed again: a smaller one could overwrite it.
        """
        if position < 0 or (position == self.kafka_offset and not repeats) or not self.is_position_valid:
            return None
        if self._goes_back(position):
            return None
        if self.reset_count == self._possible_kafka_offset_resets:
            return max(position, self._possible_kafka_offset)
        return position

    def _goes_back(self, position: int) -> bool:
        """Whether a store is known to contain a larger offset that was written since the last reset.

        An offset from before the reset blocks no commit, not to the other store either: an unavailable coordinator
        keeps its old offset until it can be reached again.
        """
        behind_kafka = position < self.kafka_offset and self.reset_count == self._kafka_write_resets
        return behind_kafka or (position < self.stored.offset and not self.was_reset_since_write)

    @transitions_to(PartitionState.ACQUIRED)
    def _acquired(self, event: OwnershipAcquired) -> PartitionStep:
        self.czxid = event.czxid
        return PartitionState.ACQUIRED, []

    @transitions_to(PartitionState.FETCHING)
    def _position_known(self, event: PositionKnown) -> PartitionStep:
        """Start from the larger offset, as Scala members with ``dual.commit.enabled`` do.

        While members change from one store to the other, the former owner may have committed to either store.
        """
        self.record_zookeeper_write(event.stored, self.reset_count)
        self.record_kafka_write(event.kafka_offset, self.reset_count)
        self.position = max(event.stored.offset, event.kafka_offset)
        return PartitionState.FETCHING, []

    @transitions_to(PartitionState.DRAINED)
    def _revoked_before_fetch(self, _: PartitionRevoked) -> PartitionStep:
        """Nothing was delivered, so there is nothing to drain, and no position to commit."""
        self.position = NO_POSITION
        return PartitionState.DRAINED, []

    @transitions_to(PartitionState.DRAINED)
    def _drained(self, event: DrainCompleted) -> PartitionStep:
        self.position = event.position
        return PartitionState.DRAINED, []

    @transitions_to(PartitionState.DRAINED)
    def _acquisition_unknown(self, _: OwnershipUnknown) -> PartitionStep:
        """Our node may exist, and its czxid is unknown: the release of it is the only way to find out and to continue.

        Without it, a node of ours that no machine represents would block the partition until the session ends.
        """
        self.is_ownership_unknown = True
        self.is_listener_notified = True  # the partition was never fetched: the listener needs no call
        return PartitionState.DRAINED, []

    @transitions_to(PartitionState.DRAINED)
    def _not_released(self, event: ReleaseFailed) -> PartitionStep:
        """An unknown outcome is not forgotten when a later release fails for another reason."""
        self.is_ownership_unknown = self.is_ownership_unknown or event.is_outcome_unknown
        return PartitionState.DRAINED, []

    @transitions_to(PartitionState.FETCHING)
    def _thread_changed(self, event: OwnerThreadChanged) -> PartitionStep:
        """Continue in another thread of this member, without a read of the offset: no other member owned it meanwhile.

        The position and the records that were fetched and not delivered move to the queue of that thread.
        """
        self.thread = event.thread
        self.czxid = event.czxid
        self.is_ownership_unknown = self.is_listener_notified = False
        self.settle_state = SettleState.NOT_STARTED
        return PartitionState.FETCHING, []

    TRANSITIONS: ClassVar[TransitionTable] = {
        (PartitionState.ACQUIRING, OwnershipAcquired): _acquired,
        (PartitionState.ACQUIRING, OwnershipNotAcquired): go_to(PartitionState.NOT_OWNED),
        (PartitionState.ACQUIRING, OwnershipUnknown): _acquisition_unknown,
        **rows_for(STATES_BEFORE_FETCH, PositionKnown, _position_known),
        **rows_for(STATES_BEFORE_FETCH, PositionUnreadable, go_to(PartitionState.POSITION_UNREADABLE)),
        **rows_for(STATES_BEFORE_FETCH, PartitionRevoked, _revoked_before_fetch),
        (PartitionState.FETCHING, PartitionRevoked): go_to(PartitionState.DRAINING),
        (PartitionState.DRAINING, DrainCompleted): _drained,
        (PartitionState.DRAINED, ReleaseSent): go_to(PartitionState.RELEASING),
        (PartitionState.RELEASING, OwnershipReleased): go_to(PartitionState.NOT_OWNED),
        (PartitionState.RELEASING, ReleaseFailed): _not_released,
        (PartitionState.RELEASING, OwnerThreadChanged): _thread_changed,
        **rows_for(STATES_OF_MACHINE, OwnershipLost, go_to(PartitionState.NOT_OWNED)),
    }
