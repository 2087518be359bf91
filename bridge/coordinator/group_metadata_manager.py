"""All groups of a broker, and their log: Kafka's ``GroupMetadataManager``.  Pure.

    store_group, store_offsets --Append--> log --AppendCompleted--> replay, and the next action (``continuations``)
    elected --LoadPartition--> log --PartitionLoaded--> replay of everything --> groups

Appends are settled in the order of their commands, and replayed only then: the replayed records of a partition are
always a prefix of its log.  A group that is being deleted is dead until its tombstones are written.  If that fails, its
state is the same as after a new election of the broker, which finds it in the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bridge.coordinator.behaviour import Behaviour
from bridge.coordinator.commands import Append, LogGroupEvent
from bridge.coordinator.config import GroupCoordinatorConfig
from bridge.coordinator.continuations import Continuation
from bridge.coordinator.events import CoordinatorRecord, Token
from bridge.coordinator.expiry import expired_offsets
from bridge.coordinator.group_metadata import DEAD, EMPTY, GroupMetadata
from bridge.coordinator.offsets_topic_partitions import OffsetsTopicPartitions
from bridge.coordinator.records import (
    StoredGroup,
    StoredOffsetValue,
    group_record,
    group_tombstone,
    offset_record,
    offset_tombstone,
)
from zkconsumer.types import TopicPartition
from zkconsumer.wire.group_records import GroupMetadataMember


@dataclass(frozen=True, slots=True)
class PendingAppend:
    """An append in flight; ``partitions``: those whose offsets it commits.

    ``deletes_group``: it deletes the group.  Other appends in flight of a dead group came before it.
    """

    group: GroupMetadata
    records: tuple[CoordinatorRecord, ...]
    partitions: tuple[TopicPartition, ...]
    continuation: Continuation
    deletes_group: bool = False


class GroupMetadataManager(OffsetsTopicPartitions):
    """Groups, their appends in flight, and their deletion."""

    def __init__(self, config: GroupCoordinatorConfig, behaviour: Behaviour) -> None:
        super().__init__(config.offsets_topic_partitions)
        self.config = config
        self.behaviour = behaviour
        self.pending_appends: dict[Token, PendingAppend] = {}
        self._next_token = 1

    # --- appends -----------------------------------------------------------------------------------------------------

    def store_group(self, group: GroupMetadata, assignments: dict[str, bytes], then: Continuation) -> None:
        """Write the current group, its members with these assignments (none: empty)."""
        value = StoredGroup(
            protocol_type=group.protocol_type or "",
            generation_id=group.generation_id,
            protocol_name=group.protocol_name,
            leader=group.leader_id,
            current_state_timestamp=group.current_state_timestamp,
            members=tuple(
                GroupMetadataMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
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
        """Write these offsets of the group; ``offsets`` is not empty."""
        version = self.behaviour.offset_value_version
        records = tuple(offset_record(group.group_id, tp, value, version) for tp, value in offsets.items())
        token = self._append(PendingAppend(group, records, tuple(offsets), then))
        group.pending_offset_commits.stage(token, offsets)

    def complete_append(self, token: Token, error_code: int, base_offset: int) -> PendingAppend | None:
        """An append succeeded (0), or failed: replay its records, and return it with its next action.

        A record of a group that is not ours any more is not replayed: its new leader has read it, or will.
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
        """Whether an append of this group is in flight; visits every append in flight."""
        return any(pending.group is group for pending in self.pending_appends.values())

    def _append(self, pending: PendingAppend) -> Token:
        token = self._next_token
        self._next_token += 1
        self.pending_appends[token] = pending
        partition = self.partition_for(pending.group.group_id)
        self.out.append(Append(partition, self.epochs[partition], pending.records, token))
        return token

    # --- deletion ----------------------------------------------------------------------------------------------------

    def remove_offsets(self, group: GroupMetadata, partitions: Iterable[TopicPartition], then: Continuation) -> bool:
        """Delete offsets; a group without members and other offsets is deleted with them.

        Returns whether there is a record to write: if not, the caller executes ``then``.
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
        """Delete a group without members, and all its offsets; returns whether there is a record to write."""
        known = [*group.stored.offsets, *group.pending_offset_commits]
        return self._remove(group, list(dict.fromkeys(known)), then, is_over=True)

    def delete_group_record(self, group: GroupMetadata, then: Continuation) -> None:
        """Delete a group whose members have left; its offsets stay.  So before there was the Empty state (0.9)."""
        self._append(PendingAppend(group, (group_tombstone(group.group_id),), (), then))
        group.generation_id = 0
        group.protocol_type = None

    def expired_offsets(self, group: GroupMetadata) -> list[TopicPartition]:
        """The partitions of expired offsets."""
        return expired_offsets(group, self.now_ms, self.config.offsets_retention_ms, self.behaviour)

    def _remove(
        self, group: GroupMetadata, removed: list[TopicPartition], then: Continuation, *, is_over: bool
    ) -> bool:
        tombstones = [offset_tombstone(group.group_id, partition) for partition in removed]
        if is_over:
            generation = group.generation_id
            sentence = f"Group {group.group_id} transitioned to Dead in generation {generation}"
            fields = (("group", group.group_id), ("generation", generation))
            self.out.append(LogGroupEvent("group-dead", fields, sentence))
            group.transition_to(DEAD, self.now_ms)
            if group.generation_id > 0 or group.stored.group is not None or self.has_pending_append(group):
                tombstones.append(group_tombstone(group.group_id))
            if not tombstones:
                self.finish_deletion(group, is_in_log=False)
        if tombstones:
            self._append(PendingAppend(group, tuple(tombstones), (), then, is_over))
        return tombstones != []
