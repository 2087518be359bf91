"""The state that a partition of ``__consumer_offsets`` stores, computed from its records.  Pure.

    record ---> replay ---> StoredPartition: group -> StoredGroupState (its last record, its offsets)

``replay`` is the only writer: it processes every record once when the log is loaded, and every record of our own once
the log has accepted it.  So the live state of a group and its reloaded state are computed by the same code.

Offsets of a transaction wait in ``pending_transactional_offsets`` for its marker.  When it commits, they count by their
position in the log: an offset that was stored after them stays.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge.coordinator.events import CoordinatorRecord
from bridge.coordinator.records import (
    StoredGroup,
    StoredGroupKey,
    StoredOffsetKey,
    StoredOffsetValue,
    UnreadableRecordError,
    is_commit_marker,
    read_group_value,
    read_key,
    read_offset_value,
)
from zkconsumer.types import TopicPartition

__all__ = ["CommitRecord", "StoredGroup", "StoredGroupState", "StoredOffsetValue", "StoredPartition"]


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """One committed offset, and its position in the log."""

    log_offset: int
    value: StoredOffsetValue


@dataclass(slots=True)
class StoredGroupState:
    """The state of one group in the log; ``group`` None: it has no record, or was deleted."""

    group: StoredGroup | None = None
    offsets: dict[TopicPartition, CommitRecord] = field(default_factory=dict)
    pending_transactional_offsets: dict[int, dict[TopicPartition, CommitRecord]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether the log has no state of the group."""
        return self.group is None and not self.offsets and not self.pending_transactional_offsets

    def has_pending_transactional(self, partition: TopicPartition) -> bool:
        """Whether an open transaction has an offset of this partition."""
        return any(partition in offsets for offsets in self.pending_transactional_offsets.values())

    def put(self, partition: TopicPartition, commit: CommitRecord) -> None:
        """Store an offset, unless one from a later position in the log is known."""
        known = self.offsets.get(partition)
        if known is None or known.log_offset <= commit.log_offset:
            self.offsets[partition] = commit


class StoredPartition:
    """The state of one partition; ``groups`` may contain empty states."""

    __slots__ = ("_open_transactions", "groups")

    def __init__(self) -> None:
        self.groups: dict[str, StoredGroupState] = {}
        self._open_transactions: dict[int, set[str]] = {}

    def state_of(self, group_id: str) -> StoredGroupState:
        """The state of a group; creates an empty one if it has none."""
        return self.groups.setdefault(group_id, StoredGroupState())

    def replay(self, log_offset: int, record: CoordinatorRecord) -> str | None:
        """Apply one record; return the reason if it was skipped, else None."""
        try:
            if record.is_marker:
                self._end_transaction(record)
                return None
            match read_key(record.key):
                case StoredGroupKey(group_id):
                    value = None if record.value is None else read_group_value(record.value)
                    self.state_of(group_id).group = value
                case StoredOffsetKey(group_id, partition):
                    commit = None if record.value is None else read_offset_value(record.value)
                    self._replay_offset(group_id, partition, log_offset, commit, record.producer_id)
        except UnreadableRecordError as unreadable:
            return str(unreadable)
        return None

    def drop_empty(self) -> None:
        """Remove groups without state in the log."""
        self.groups = {group_id: state for group_id, state in self.groups.items() if not state.is_empty}

    def remove_group(self, group_id: str) -> None:
        """The group was deleted, and the log has its tombstone."""
        self.groups.pop(group_id, None)

    def _replay_offset(
        self,
        group_id: str,
        partition: TopicPartition,
        log_offset: int,
        value: StoredOffsetValue | None,
        producer_id: int | None,
    ) -> None:
        state = self.state_of(group_id)
        if producer_id is not None:
            self._open_transactions.setdefault(producer_id, set()).add(group_id)
            pending = state.pending_transactional_offsets.setdefault(producer_id, {})
            if value is None:
                pending.pop(partition, None)
            else:
                pending[partition] = CommitRecord(log_offset, value)
            return
        if value is not None:
            state.put(partition, CommitRecord(log_offset, value))
            return
        state.offsets.pop(partition, None)

    def _end_transaction(self, marker: CoordinatorRecord) -> None:
        assert marker.producer_id is not None, "a marker ends the transaction of a producer"
        is_commit = is_commit_marker(marker.key)
        for group_id in sorted(self._open_transactions.pop(marker.producer_id, ())):
            state = self.state_of(group_id)
            offsets = state.pending_transactional_offsets.pop(marker.producer_id, {})
            if is_commit:
                for partition, commit in offsets.items():
                    state.put(partition, commit)
