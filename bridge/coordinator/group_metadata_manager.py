"""All groups of a broker, and their log: Kafka's ``GroupMetadataManager``.  Pure.

    store_group, store_offsets --Append--> log --Appended--> replay, and what was to be done then (``continuations``)
    elected --Load--> log --Loaded--> replay of everything --> groups

Appends are settled in the order in which they were commanded, and nothing is taken in before: what ``replay`` has seen
of a partition is always a prefix of its log.  A group that is being deleted is dead until its tombstones are written;
if they cannot be, it is as if the broker had just been elected, and found it in the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bridge.coordinator.behaviour import Behaviour
from bridge.coordinator.commands import Append
from bridge.coordinator.config import GroupCoordinatorConfig
from bridge.coordinator.continuations import Continuation
from bridge.coordinator.events import CoordinatorRecord, Token
from bridge.coordinator.expiry import expired_offsets
from bridge.coordinator.group_metadata import DEAD, EMPTY, GroupMetadata
from bridge.coordinator.offsets_topic_partitions import OffsetsTopicPartitions
from bridge.coordinator.records import (
    StoredGroup,
    StoredMember,
    StoredOffsetValue,
    group_record,
    group_tombstone,
    offset_record,
    offset_tombstone,
)
from zkconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True)
class PendingAppend:
    """An append that is under way; ``partitions``: those of which it commits an offset.

    ``is_end``: with it the group is over.  What else is under way of a group that is dead came before.
    """

    group: GroupMetadata
    records: tuple[CoordinatorRecord, ...]
    partitions: tuple[TopicPartition, ...]
    continuation: Continuation
    deletes_group: bool = False


class GroupMetadataManager(OffsetsTopicPartitions):
    """Groups, what of them is on its way to the log, and their end."""

    def __init__(self, config: GroupCoordinatorConfig, behaviour: Behaviour) -> None:
        super().__init__(config.offsets_topic_partitions)
        self.config = config
        self.behaviour = behaviour
        self.pending_appends: dict[Token, PendingAppend] = {}
        self._next_token = 1

    # --- appends -----------------------------------------------------------------------------------------------------

    def store_group(self, group: GroupMetadata, assignments: dict[str, bytes], then: Continuation) -> None:
        """Write the group as it is now, its members with these assignments (none: empty)."""
        value = StoredGroup(
            protocol_type=group.protocol_type or "",
            generation_id=group.generation_id,
            protocol_name=group.protocol_name,
            leader=group.leader_id,
            current_state_timestamp=group.current_state_timestamp,
            members=tuple(
                StoredMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    session_timeout_ms=member.session_timeout_ms,
                    subscription=member.metadata(group.protocol_name or ""),
                    assignment=assignments.get(member.member_id, b""),
                )
                for member in group.members.values()
            ),
        )
        record = group_record(group.group_id, value, self.behaviour.group_value_version)
        self._append(PendingAppend(group, (record,), (), then))

    def store_offsets(
        self, group: GroupMetadata, offsets: dict[TopicPartition, StoredOffsetValue], then: Continuation
    ) -> None:
        """Write these offsets of the group; there must be some."""
        version = self.behaviour.offset_value_version
        records = tuple(offset_record(group.group_id, tp, value, version) for tp, value in offsets.items())
        token = self._append(PendingAppend(group, records, tuple(offsets), then))
        group.pending_offset_commits.stage(token, offsets)

    def complete_append(self, token: Token, error_code: int, base_offset: int) -> PendingAppend | None:
        """An append is through (0), or has failed: take in what was written, and give what was waiting for it.

        Of a group that is not ours any more nothing is taken in: who leads it now has read it, or will.
        """
        pending = self.pending_appends.pop(token, None)
        if pending is None:
            return None
        group = pending.group
        group.pending_offset_commits.complete(token, pending.partitions)
        if self.get_group(group.group_id) is not group:
            return pending
        if error_code == 0:
            stored = self.stored[self.partition_for(group.group_id)]
            for index, record in enumerate(pending.records):
                stored.replay(base_offset + index, record)
        if pending.deletes_group:
            self.finish_deletion(group, is_in_log=error_code != 0)
        return pending

    def has_pending_append(self, group: GroupMetadata) -> bool:
        """Whether an append of this group is not settled yet; visits every append that is not."""
        return any(pending.group is group for pending in self.pending_appends.values())

    def _append(self, pending: PendingAppend) -> Token:
        token = self._next_token
        self._next_token += 1
        self.pending_appends[token] = pending
        partition = self.partition_for(pending.group.group_id)
        self.out.append(Append(partition, self.epochs[partition], pending.records, token))
        return token

    # --- deleting ----------------------------------------------------------------------------------------------------

    def remove_offsets(self, group: GroupMetadata, partitions: Iterable[TopicPartition], then: Continuation) -> bool:
        """Forget offsets; a group without members that has none left goes with them.

        Gives whether there is anything to write: if not, ``then`` is left to the caller.
        """
        known = {*group.stored.offsets, *group.pending_offset_commits}
        removed = [partition for partition in dict.fromkeys(partitions) if partition in known]
        is_over = (
            group.is_(EMPTY)
            and len(removed) == len(known)
            and not group.stored.pending_transactional_offsets
            and not group.pending_members
        )
        return self._remove(group, removed, then, is_over=is_over)

    def delete_group(self, group: GroupMetadata, then: Continuation) -> bool:
        """Forget a group without members, and all that it has stored; gives whether there is anything to write."""
        known = [*group.stored.offsets, *group.pending_offset_commits]
        return self._remove(group, list(dict.fromkeys(known)), then, is_over=True)

    def delete_group_record(self, group: GroupMetadata, then: Continuation) -> None:
        """The members are gone, and the group with them; offsets stay.  So before there was the Empty state (0.9)."""
        self._append(PendingAppend(group, (group_tombstone(group.group_id),), (), then))
        group.generation_id = 0
        group.protocol_type = None

    def expired_offsets(self, group: GroupMetadata) -> list[TopicPartition]:
        """The partitions of those that nobody needs any more."""
        return expired_offsets(group, self.now_ms, self.config.offsets_retention_ms, self.behaviour)

    def _remove(
        self, group: GroupMetadata, removed: list[TopicPartition], then: Continuation, *, is_over: bool
    ) -> bool:
        tombstones = [offset_tombstone(group.group_id, partition) for partition in removed]
        if is_over:
            group.transition_to(DEAD, self.now_ms)
            if group.generation_id > 0 or group.stored.group is not None or self.has_pending_append(group):
                tombstones.append(group_tombstone(group.group_id))
            if not tombstones:
                self.finish_deletion(group, is_in_log=False)
        if tombstones:
            self._append(PendingAppend(group, tuple(tombstones), (), then, is_over))
        return tombstones != []
