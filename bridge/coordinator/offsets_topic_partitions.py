"""The partitions of ``__consumer_offsets`` that a broker leads, and the groups in them.  Pure.

    Elected ---> loading --PartitionLoaded--> owned --Resigned--> (removed)
                    '------------------------Resigned----------------^

An epoch is a leader's term.  Events of an older term than the known one are ignored.
"""

from __future__ import annotations

from bridge.coordinator.commands import Command, LoadPartition, LogGroupEvent
from bridge.coordinator.events import Elected, PartitionLoaded, Resigned
from bridge.coordinator.group_metadata import GroupMetadata
from bridge.coordinator.partitioning import partition_for
from bridge.coordinator.stored_state import StoredPartition

OFFSETS_TOPIC = "__consumer_offsets"


class OffsetsTopicPartitions:
    """``out`` collects commands, ``now_ms`` is the time of the event that is being handled."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.out: list[Command] = []
        self.now_ms = 0
        self.loading_partitions: set[int] = set()
        self.owned_partitions: set[int] = set()
        self.epochs: dict[int, int] = {}
        self.stored: dict[int, StoredPartition] = {}
        self._groups: dict[int, dict[str, GroupMetadata]] = {}

    def partition_for(self, group_id: str) -> int:
        """The partition of ``__consumer_offsets`` that stores the group."""
        return partition_for(group_id, self.partitions)

    def is_group_local(self, group_id: str) -> bool:
        """Whether the group is ours, and loaded."""
        return self.partition_for(group_id) in self.owned_partitions

    def is_group_loading(self, group_id: str) -> bool:
        """Whether the group is ours, and not loaded yet."""
        return self.partition_for(group_id) in self.loading_partitions

    # --- groups ------------------------------------------------------------------------------------------------------

    def get_group(self, group_id: str) -> GroupMetadata | None:
        """An existing group."""
        return self._groups.get(self.partition_for(group_id), {}).get(group_id)

    def add_group(self, group_id: str) -> GroupMetadata:
        """A new, empty group; its partition is ours."""
        partition = self.partition_for(group_id)
        group = GroupMetadata(group_id, self.now_ms, self.stored[partition].state_of(group_id))
        self._groups[partition][group_id] = group
        return group

    def current_groups(self) -> list[GroupMetadata]:
        """All groups, by partition."""
        return [group for partition in sorted(self._groups) for group in self._groups[partition].values()]

    def finish_deletion(self, group: GroupMetadata, *, is_in_log: bool) -> None:
        """Finish the deletion of a dead group; if it is still in the log, it is restored as by an election."""
        partition = self.partition_for(group.group_id)
        if is_in_log:
            self._groups[partition][group.group_id] = GroupMetadata.load_group(
                group.group_id, group.stored, self.now_ms
            )
        else:
            del self._groups[partition][group.group_id]
            self.stored[partition].remove_group(group.group_id)

    # --- elections ---------------------------------------------------------------------------------------------------

    def on_election(self, event: Elected) -> list[GroupMetadata]:
        """This broker leads the partition: read it; returns the groups of an earlier term, for the caller to unload.

        Kafka keeps its state of its own earlier term.  We cannot know whether another broker led in between.
        """
        partition, is_newer = event.partition, event.epoch > self.epochs.get(event.partition, -1)
        is_known = partition in self.owned_partitions or partition in self.loading_partitions
        if not self._maybe_update_coordinator_epoch(partition, event.epoch):
            name, epoch = f"{OFFSETS_TOPIC}-{partition}", self.epochs[partition]
            sentence = (
                f"Not loading offsets and group metadata for {name} in epoch {event.epoch} since current epoch is "
                f"Some({epoch})"
            )
            fields = (("partition", partition), ("epoch", event.epoch))
            self.out.append(LogGroupEvent("stale-election-ignored", fields, sentence))
            return []
        if is_known and not is_newer:
            if partition in self.loading_partitions:
                sentence = f"Already loading offsets and group metadata from {OFFSETS_TOPIC}-{partition}"
                self.out.append(LogGroupEvent("partition-loading-already", (("partition", partition),), sentence))
            return []
        groups = self._drop(partition)
        self.loading_partitions.add(partition)
        self.out.append(LoadPartition(partition, event.epoch))
        return groups

    def on_loaded(self, event: PartitionLoaded) -> list[GroupMetadata]:
        """The partition's log was read: returns its groups, which are ours from now on."""
        partition = event.partition
        if partition not in self.loading_partitions or event.epoch != self.epochs[partition]:
            self.out.append(LogGroupEvent("stale-load-ignored", (("partition", partition), ("epoch", event.epoch))))
            return []
        stored = StoredPartition()
        for offset, record in event.records:
            passed_over = stored.replay(offset, record)
            if passed_over is not None:
                fields = (("partition", partition), ("offset", offset), ("reason", passed_over))
                self.out.append(LogGroupEvent("record-skipped", fields))
        stored.drop_empty()
        self.stored[partition] = stored
        self._groups[partition] = {
            group_id: GroupMetadata.load_group(group_id, state, self.now_ms)
            for group_id, state in stored.groups.items()
        }
        self.loading_partitions.discard(partition)
        self.owned_partitions.add(partition)
        return list(self._groups[partition].values())

    def on_resignation(self, event: Resigned) -> list[GroupMetadata]:
        """Another broker leads the partition: returns the groups that are no longer ours, for the caller to unload."""
        partition = event.partition
        if not self._maybe_update_coordinator_epoch(partition, event.epoch):
            sentence = (
                f"Not removing offsets and group metadata for {OFFSETS_TOPIC}-{partition} in epoch {event.epoch} since "
                f"current epoch is Some({self.epochs[partition]})"
            )
            fields = (("partition", partition), ("epoch", event.epoch))
            self.out.append(LogGroupEvent("stale-resignation-ignored", fields, sentence))
            return []
        return self._drop(partition)

    def _drop(self, partition: int) -> list[GroupMetadata]:
        self.loading_partitions.discard(partition)
        self.owned_partitions.discard(partition)
        self.stored.pop(partition, None)
        return list(self._groups.pop(partition, {}).values())

    def _maybe_update_coordinator_epoch(self, partition: int, epoch: int) -> bool:
        known = self.epochs.get(partition, epoch)
        self.epochs[partition] = max(known, epoch)
        return epoch >= known
