"""``PartitionPositions``: the part of ``SubscriptionState`` about the assigned partitions and their positions.  Pure.

For each partition without a valid position the caller sends a request: the committed offset
(``initializing_partitions``), ListOffsets (``partitions_needing_reset``) or OffsetForLeaderEpoch
(``partitions_needing_validation``).  It takes the ``position_lookup`` with the request and passes it with the response.
Whatever has changed the position meanwhile (a seek, another reset, a new assignment) has changed the lookup, and the
response is ignored.  A response that is lost leaves the partition where it is; ``set_next_allowed_retry`` and
``request_failed`` say when the request is due again.

Invariants: ``_assignment`` is in the order of the next fetch.  ``assignment_id`` grows with each change of the
assignment.  ``change_id`` grows with each change of what is fetched and from which node, but not with a move of a valid
position, nor with the end of a preferred replica.  A ``state_id`` is a ``change_id`` that one state alone has had.  All
partitions have valid positions while ``change_id`` is ``_valid_until_id``.

Differences from Java:

- The caller serialises all calls (Java's class is synchronized).
- A lookup has an identity (``PositionLookup``).  Java compares the reset policy or the position, which are the same
  again after "seek to the end, seek, seek to the end" or "seek away and back"; and it takes a committed offset whenever
  the partition is assigned.
- ``reset_initializing_positions`` can be restricted to the partitions whose committed offset was loaded.
- ``mark_pending_revocation`` is of 3.3 (KAFKA-14196): a partition that is being revoked is not fetched any more.
- Log lines are collected in ``log_events``; the oldest are dropped above ``LOG_EVENTS_MAX``.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable
from typing import Any

from zkconsumer.errors import UsageError
from zkconsumer.kafka.client_log_event import ClientLogEvent, LogLevel
from zkconsumer.kafka.fetch.fetch_position import FetchPosition, LogTruncation, PositionLookup
from zkconsumer.kafka.fetch.offset_for_leader_epoch_client import has_usable_version
from zkconsumer.kafka.fetch.offset_reset_strategy import OffsetResetStrategy
from zkconsumer.kafka.fetch.position_errors import no_offset_error
from zkconsumer.kafka.fetch.topic_partition_state import FetchState, TopicPartitionState
from zkconsumer.kafka.metadata.leader_and_epoch import LeaderAndEpoch
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.kafka.supported_versions import SupportedVersions
from zkconsumer.types import TopicPartition
from zkconsumer.wire.isolation_level import IsolationLevel
from zkconsumer.wire.schemas.fetch import EpochEndOffset
from zkconsumer.wire.schemas.offset_for_leader_epoch import NO_EPOCH

LOG_EVENTS_MAX = 1_000
"""How many log lines are kept until they are taken."""

UNDEFINED_EPOCH_OFFSET = -1
"""``end_offset`` of a response that has none for the requested epoch."""


class PartitionPositions:
    """``default_reset_strategy``: auto.offset.reset.  A position is the offset of the next record to read."""

    def __init__(self, default_reset_strategy: OffsetResetStrategy) -> None:
        self._default_reset_strategy = default_reset_strategy
        self._assignment: OrderedDict[TopicPartition, TopicPartitionState] = OrderedDict()
        self.assignment_id = 0
        """A number that grows with each change of the assignment."""
        self.change_id = 0
        """A number that grows with each change of what is fetched but the positions: see the module."""
        self._valid_until_id = 0
        self.log_events: deque[ClientLogEvent] = deque(maxlen=LOG_EVENTS_MAX)
        """The log lines that the caller has not taken yet."""

    # --- assignment ---------------------------------------------------------------------------------------------

    def assigned_partitions(self) -> set[TopicPartition]:
        """A copy of the assignment."""
        return set(self._assignment)

    def assigned_partitions_list(self) -> list[TopicPartition]:
        """A copy of the assignment, in its order."""
        return list(self._assignment)

    def num_assigned_partitions(self) -> int:
        """How many partitions are assigned."""
        return len(self._assignment)

    def is_assigned(self, tp: TopicPartition) -> bool:
        """Whether a partition is assigned."""
        return tp in self._assignment

    def mark_pending_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """These are being revoked: until the next assignment no record of them is fetched or returned."""
        self._new_change_id()
        for tp in partitions:
            self._assigned(tp).is_pending_revocation = True

    def move_partition_to_end(self, tp: TopicPartition) -> None:
        """Fetch it after the others, because records of it were returned."""
        if tp in self._assignment:
            self._assignment.move_to_end(tp)

    def _assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Replace the assignment; the partitions of a topic follow each other, as in a request."""
        by_topic: dict[str, list[TopicPartition]] = {}
        for tp in partitions:
            by_topic.setdefault(tp.topic, []).append(tp)
        kept = self._assignment
        self._assignment = OrderedDict(
            (tp, kept.get(tp) or TopicPartitionState(self._new_change_id))
            for topic in by_topic.values()
            for tp in topic
        )
        for state in self._assignment.values():
            state.is_pending_revocation = False
        self.assignment_id += 1
        self._new_change_id()

    def _new_change_id(self) -> int:
        self.change_id += 1
        return self.change_id

    def _assigned(self, tp: TopicPartition) -> TopicPartitionState:
        try:
            return self._assignment[tp]
        except KeyError:
            raise UsageError(f"the partition {tp} is not assigned to this consumer") from None

    def _where(self, condition: Callable[[TopicPartitionState], bool]) -> set[TopicPartition]:
        return {tp for tp, state in self._assignment.items() if condition(state)}

    # --- fetching ---------------------------------------------------------------------------------------------------

    def fetchable_partitions(self, is_available: Callable[[TopicPartition], bool]) -> list[TopicPartition]:
        """The partitions to fetch, in order: with a valid position, not paused, not being revoked, and available."""
        return [tp for tp, state in self._assignment.items() if state.is_fetchable and is_available(tp)]

    def is_fetchable(self, tp: TopicPartition) -> bool:
        """Whether records of a partition may be requested and returned."""
        state = self._assignment.get(tp)
        return state is not None and state.is_fetchable

    def pause(self, tp: TopicPartition) -> None:
        """Do not fetch it until ``resume``."""
        self._set_paused(tp, is_paused=True)

    def resume(self, tp: TopicPartition) -> None:
        """Fetch it again."""
        self._set_paused(tp, is_paused=False)

    def _set_paused(self, tp: TopicPartition, *, is_paused: bool) -> None:
        state = self._assigned(tp)
        if state.is_paused is not is_paused:
            state.is_paused = is_paused
            self._new_change_id()

    def is_paused(self, tp: TopicPartition) -> bool:
        """Whether it is assigned and paused."""
        state = self._assignment.get(tp)
        return state is not None and state.is_paused

    def paused_partitions(self) -> set[TopicPartition]:
        """The paused partitions."""
        return self._where(lambda state: state.is_paused)

    def preferred_read_replica(self, tp: TopicPartition, now_ms: int) -> int | None:
        """The id of the node to fetch from instead of the leader (KIP-392), None: the leader."""
        state = self._assignment.get(tp)
        return None if state is None else state.preferred_read_replica(now_ms)

    def update_preferred_read_replica(self, tp: TopicPartition, node_id: int, expire_ms: int) -> None:
        """The leader has named another node, to be used up to this time; the same node does not extend its lease."""
        if self._assigned(tp).update_preferred_read_replica(node_id, expire_ms):
            self._new_change_id()

    def clear_preferred_read_replica(self, tp: TopicPartition) -> int | None:
        """Fetch from the leader; returns the id of the node that was preferred."""
        return self._assigned(tp).clear_preferred_read_replica()

    def has_preferred_read_replicas(self) -> bool:
        """Whether a node is preferred for any partition."""
        return any(state.has_preferred_read_replica for state in self._assignment.values())

    # --- positions --------------------------------------------------------------------------------------------------

    def position(self, tp: TopicPartition) -> FetchPosition | None:
        """The position, valid or not; None: not known yet."""
        return self._assigned(tp).position

    def assigned_state(self, tp: TopicPartition) -> TopicPartitionState | None:
        """The state of a partition, for a caller that looks at several of its values; None: it is not assigned."""
        return self._assignment.get(tp)

    def valid_position(self, tp: TopicPartition) -> FetchPosition | None:
        """The position, None if it is not known yet or not validated."""
        state = self._assigned(tp)
        return state.position if state.has_valid_position else None

    def has_valid_position(self, tp: TopicPartition) -> bool:
        """Whether it is assigned and has a valid position."""
        state = self._assignment.get(tp)
        return state is not None and state.has_valid_position

    def has_all_fetch_positions(self) -> bool:
        """Whether all partitions have valid positions.  It looks at them only after a change."""
        if self.change_id != self._valid_until_id:
            if not all(state.has_valid_position for state in self._assignment.values()):
                return False
            self._valid_until_id = self.change_id
        return True

    def all_consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The valid positions, as a commit needs them."""
        return {
            tp: OffsetAndMetadata(
                position.offset, leader_epoch=NO_EPOCH if position.offset_epoch is None else position.offset_epoch
            )
            for tp, state in self._assignment.items()
            if state.has_valid_position and (position := state.position) is not None
        }

    def set_position(self, tp: TopicPartition, position: FetchPosition) -> None:
        """Move a valid position, because records were returned."""
        self._assigned(tp).set_position(position)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Read from this offset."""
        self.seek_validated(tp, FetchPosition(offset))

    def seek_validated(self, tp: TopicPartition, position: FetchPosition) -> None:
        """Read from this position."""
        self._assigned(tp).seek_validated(position)

    def seek_unvalidated(self, tp: TopicPartition, position: FetchPosition) -> None:
        """Read from this position, after a validation if it has an epoch."""
        self._assigned(tp).seek_unvalidated(position)

    def position_lookup(self, tp: TopicPartition) -> PositionLookup:
        """The identity of a lookup that is sent now: pass it with the response."""
        state = self._assigned(tp)
        return PositionLookup(tp, state.state_id, state.position)

    def _looked_up(self, lookup: PositionLookup, wanted: FetchState) -> TopicPartitionState | None:
        """The state that a response answers, None if it has changed since the request."""
        state = self._assignment.get(lookup.partition)
        if state is None or state.state_id != lookup.state_id or state.fetch_state is not wanted:
            self._log_event("DEBUG", "late-position-lookup-ignored", partition=lookup.partition, lookup=wanted.value)
            return None
        return state

    def set_next_allowed_retry(self, partitions: Iterable[TopicPartition], next_retry_ms: int) -> None:
        """Requests for these were sent: the next are due then, unless the position changes before."""
        for tp in partitions:
            self._assigned(tp).next_retry_ms = next_retry_ms

    def request_failed(self, lookups: Iterable[PositionLookup], next_retry_ms: int) -> None:
        """These requests have failed: the next are due then.  Older lookups are ignored."""
        for lookup in lookups:
            state = self._assignment.get(lookup.partition)
            if state is not None and state.state_id == lookup.state_id:
                state.next_retry_ms = next_retry_ms

    # --- positions: the committed offset ------------------------------------------------------------------------------

    def initializing_partitions(self) -> set[TopicPartition]:
        """The partitions whose committed offset must be loaded."""
        return self._where(lambda state: state.fetch_state is FetchState.INITIALIZING)

    def maybe_seek_to_committed(self, lookup: PositionLookup, position: FetchPosition) -> bool:
        """The committed offset was loaded; returns whether it is used: not after a seek or another assignment."""
        state = self._looked_up(lookup, FetchState.INITIALIZING)
        if state is None:
            return False
        state.seek_unvalidated(position)
        self._log_event("INFO", "position-from-committed-offset", partition=lookup.partition, offset=position.offset)
        return True

    def reset_initializing_positions(self, without_offset: Iterable[PositionLookup] | None = None) -> None:
        """Reset the partitions that have no committed offset: those of these lookups, or all that still initialize.

        ``NoOffsetForPartitionException``: auto.offset.reset=none; no partition is changed.
        """
        if without_offset is None:
            found = self.initializing_partitions()
        else:
            found = {
                lookup.partition
                for lookup in without_offset
                if self._looked_up(lookup, FetchState.INITIALIZING) is not None
            }
        if found and not self.has_default_offset_reset_policy:
            raise no_offset_error(found)
        for tp in found:
            self.request_offset_reset(tp)

    # --- positions: reset -------------------------------------------------------------------------------------------

    @property
    def has_default_offset_reset_policy(self) -> bool:
        """Whether ``auto.offset.reset`` is not ``none``."""
        return self._default_reset_strategy is not OffsetResetStrategy.NONE

    def request_offset_reset(self, tp: TopicPartition, strategy: OffsetResetStrategy | None = None) -> None:
        """Find a new position by this policy, or by ``auto.offset.reset``."""
        self._assigned(tp).reset(strategy or self._default_reset_strategy)

    def request_offset_resets(self, partitions: Collection[TopicPartition], strategy: OffsetResetStrategy) -> None:
        """Seek to the beginning or the end; ``UsageError`` if one is not assigned, and then none is changed."""
        states = {tp: self._assigned(tp) for tp in partitions}
        for tp, state in states.items():
            self._log_event("INFO", "seeking", partition=tp, to=strategy.value)
            state.reset(strategy)

    def is_offset_reset_needed(self, tp: TopicPartition) -> bool:
        """Whether the partition waits for the offset of a reset."""
        return self._assigned(tp).fetch_state is FetchState.AWAIT_RESET

    def reset_strategy(self, tp: TopicPartition) -> OffsetResetStrategy | None:
        """The policy of the reset that the partition waits for."""
        return self._assigned(tp).reset_strategy

    def partitions_needing_reset(self, now_ms: int) -> set[TopicPartition]:
        """The partitions whose ListOffsets request is due."""
        return self._where(
            lambda state: state.fetch_state is FetchState.AWAIT_RESET and not state.awaits_retry_backoff(now_ms)
        )

    def maybe_seek_unvalidated(
        self, lookup: PositionLookup, position: FetchPosition, strategy: OffsetResetStrategy
    ) -> bool:
        """The offset of a reset has arrived; returns whether it is used: not after a seek or another reset."""
        state = self._looked_up(lookup, FetchState.AWAIT_RESET)
        if state is None or state.reset_strategy is not strategy:
            return False
        self._log_event("INFO", "position-reset", partition=lookup.partition, offset=position.offset)
        state.seek_unvalidated(position)
        return True

    # --- positions: validation --------------------------------------------------------------------------------------

    def maybe_validate_position_for_current_leader(
        self, leader_versions: SupportedVersions | None, tp: TopicPartition, leader: LeaderAndEpoch
    ) -> bool:
        """Take the leader from the metadata; returns whether the position must be validated at it.

        ``leader_versions``: of the leader, None while they are not known.  A leader whose OffsetForLeaderEpoch needs
        the permission for the cluster (before 2.3) is not asked, and the position is taken as valid.
        """
        state = self._assigned(tp)
        if leader.leader is None or leader_versions is None or has_usable_version(leader_versions):
            return state.maybe_validate_position(leader)
        state.update_leader_without_validation(leader)
        return False

    def awaiting_validation(self, tp: TopicPartition) -> bool:
        """Whether the position must be validated before it is used."""
        return self._assigned(tp).fetch_state is FetchState.AWAIT_VALIDATION

    def partitions_needing_validation(self, now_ms: int) -> set[TopicPartition]:
        """The partitions whose OffsetForLeaderEpoch request is due."""
        if self.has_all_fetch_positions():
            return set()
        return self._where(
            lambda state: state.fetch_state is FetchState.AWAIT_VALIDATION and not state.awaits_retry_backoff(now_ms)
        )

    def complete_validation(self, tp: TopicPartition) -> None:
        """Take the position as valid."""
        self._assigned(tp).complete_validation()

    def maybe_complete_validation(self, lookup: PositionLookup, end: EpochEndOffset) -> LogTruncation | None:
        """Process the end of the epoch of a position's last record, as the leader has it.

        Returns the truncation if the log does not have that record and there is no reset policy; the partition then
        keeps awaiting validation, and is not fetched.  With a policy, it continues at the end of the common part, or
        at the offset of the policy if that end is unknown.
        """
        state = self._looked_up(lookup, FetchState.AWAIT_VALIDATION)
        if state is None or state.position is None:
            return None
        tp, position = lookup.partition, state.position
        is_unknown = end.end_offset == UNDEFINED_EPOCH_OFFSET or end.epoch == NO_EPOCH
        if not is_unknown and end.end_offset >= position.offset:
            state.complete_validation()
            return None
        divergent = None if is_unknown else OffsetAndMetadata(end.end_offset, leader_epoch=end.epoch)
        end_offset = "unknown" if is_unknown else end.end_offset
        if not self.has_default_offset_reset_policy:
            self._log_event(
                "WARNING", "log-truncated", partition=tp, offset=position.offset, divergent_offset=end_offset
            )
            return LogTruncation(tp, position, divergent)
        self._log_event("INFO", "log-truncated", partition=tp, offset=position.offset, divergent_offset=end_offset)
        if divergent is None:
            self.request_offset_reset(tp)
        else:
            state.seek_validated(FetchPosition(end.end_offset, end.epoch, position.current_leader))
        return None

    # --- lag --------------------------------------------------------------------------------------------------------

    def partition_end_offset(self, tp: TopicPartition, isolation_level: IsolationLevel) -> int | None:
        """The last stable offset or the high watermark of the last fetch, None before."""
        return self._assigned(tp).end_offset(isolation_level)

    def partition_lag(self, tp: TopicPartition, isolation_level: IsolationLevel) -> int | None:
        """How many offsets there are between the position and the end, None if one of them is not known."""
        return self._assigned(tp).distances(isolation_level)[0]

    def partition_lead(self, tp: TopicPartition) -> int | None:
        """How many offsets there are between the begin of the log and the position, None if one is not known."""
        return self._assigned(tp).distances(IsolationLevel.READ_UNCOMMITTED)[1]

    def request_partition_end_offset(self, tp: TopicPartition) -> None:
        """ListOffsets was sent for the end of the log."""
        self._assigned(tp).end_offset_requested = True

    def end_offset_request_failed(self, partitions: Iterable[TopicPartition]) -> None:
        """The end offsets of these will not be answered: they may be requested again."""
        for tp in partitions:
            if tp in self._assignment:
                self._assignment[tp].end_offset_requested = False

    def partition_end_offset_requested(self, tp: TopicPartition) -> bool:
        """Whether ListOffsets was sent for the end, and nothing has shown the end since."""
        return self._assigned(tp).end_offset_requested

    def update_high_watermark(self, tp: TopicPartition, offset: int) -> None:
        """A response has shown the high watermark."""
        state = self._assigned(tp)
        state.high_watermark = offset
        state.end_offset_requested = False

    def update_last_stable_offset(self, tp: TopicPartition, offset: int) -> None:
        """A response has shown the last stable offset."""
        state = self._assigned(tp)
        state.last_stable_offset = offset
        state.end_offset_requested = False

    def update_log_start_offset(self, tp: TopicPartition, offset: int) -> None:
        """A response has shown the begin of the log."""
        self._assigned(tp).log_start_offset = offset

    def _log_event(self, level: LogLevel, name: str, **fields: Any) -> None:
        self.log_events.append(ClientLogEvent(level, name, tuple((key, str(value)) for key, value in fields.items())))
