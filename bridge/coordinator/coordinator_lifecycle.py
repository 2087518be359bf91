"""Elections, loading, expiry, the end of the broker.  Pure.

Members do not request any of this.  They are answered, so that they look for the coordinator at another broker (16), or
wait (15), instead of waiting for their time-outs.
"""

from __future__ import annotations

from bridge.coordinator.continuations import LogAppendFailure
from bridge.coordinator.errors import Errors
from bridge.coordinator.events import Elected, PartitionLoaded, Resigned, ShutDown, TimerKey, TopicsDeleted
from bridge.coordinator.group_log_lines import member_text
from bridge.coordinator.group_metadata import DEAD, GroupMetadata
from bridge.coordinator.group_rebalance import GroupRebalance
from bridge.coordinator.group_responses import JoinGroupResult
from bridge.coordinator.offsets_topic_partitions import OFFSETS_TOPIC

EXPIRY_KEY: TimerKey = ("expiry",)


class CoordinatorLifecycle(GroupRebalance):
    """The changes of this broker's role in the cluster."""

    def on_election(self, event: Elected) -> None:
        """This broker leads a partition: read it; until then its groups are loading."""
        name = f"{OFFSETS_TOPIC}-{event.partition}"
        self.log_event(
            "partition-elected",
            f"Elected as the group coordinator for partition {event.partition} in epoch {event.epoch}",
            partition=event.partition,
            epoch=event.epoch,
        )
        self.log_event(
            "partition-loading",
            f"Scheduling loading of offsets and group metadata from {name} for epoch {event.epoch}",
            partition=event.partition,
            epoch=event.epoch,
        )
        self._loading_since_ms[event.partition] = self.now_ms
        for group in self.manager.on_election(event):
            self._unload(group, Errors.NOT_COORDINATOR)
        if not self.purgatory.is_watched(EXPIRY_KEY):
            self._schedule_expiry()

    def on_loaded(self, event: PartitionLoaded) -> None:
        """The groups of a partition are loaded: the sessions of their members begin now."""
        groups = self.manager.on_loaded(event)
        for group in groups:
            self._log_loaded_group(group)
            self.on_group_loaded(group)
        took_ms = self.now_ms - self._loading_since_ms.pop(event.partition, self.now_ms)
        self.log_event(
            "partition-loaded",
            f"Finished loading offsets and group metadata from {OFFSETS_TOPIC}-{event.partition} in {took_ms} "
            f"milliseconds for epoch {event.epoch}, of which 0 milliseconds was spent in the scheduler.",
            partition=event.partition,
            epoch=event.epoch,
            groups=len(groups),
        )

    def _log_loaded_group(self, group: GroupMetadata) -> None:
        if group.generation_id == 0:
            return  # only offsets
        for member in group.members.values():
            self.log_event(
                "member-loaded",
                f"Loaded member {member_text(member)} in group {group.group_id} with generation {group.generation_id}.",
                group=group.group_id,
                member=member.member_id,
            )
        self.log_event(
            "group-loaded",
            f"Loading group metadata for {group.group_id} with generation {group.generation_id}",
            group=group.group_id,
            generation=group.generation_id,
        )

    def on_group_loaded(self, group: GroupMetadata) -> None:
        """The sessions of the members in the log begin now; a group with too many members rebalances."""
        for member in group.members.values():
            self.complete_and_schedule_next_heartbeat_expiration(group, member)
        if self.behaviour.limits_new_members and group.size > self.config.group_max_size:
            reason = (
                f"Freshly-loaded group is over capacity ({self.config.group_max_size}). Rebalacing in order to give a "
                "chance for consumers to commit offsets"
            )
            self.prepare_rebalance(group, reason)

    def on_resignation(self, event: Resigned) -> None:
        """Another broker leads the partition: waiting members are answered (16)."""
        groups = self.manager.on_resignation(event)
        offsets = sum(len(group.stored.offsets) for group in groups)
        for group in groups:
            self._unload(group, Errors.NOT_COORDINATOR)
        if not self.manager.owned_partitions and not self.manager.loading_partitions:
            self.purgatory.cancel(EXPIRY_KEY)
        self.log_event(
            "partition-resigned",
            f"Resigned as the group coordinator for partition {event.partition} in epoch {event.epoch}",
            partition=event.partition,
            epoch=event.epoch,
            groups=len(groups),
        )
        self.log_event(
            "partition-unloaded",
            f"Finished unloading {OFFSETS_TOPIC}-{event.partition} for coordinator epoch {event.epoch}. Removed "
            f"{offsets} cached offsets and {len(groups)} cached groups.",
            partition=event.partition,
        )

    def _unload(self, group: GroupMetadata, error: int) -> None:
        self.log_event(
            "group-unloaded",
            f"Unloading group metadata for {group.group_id} with generation {group.generation_id}",
            group=group.group_id,
            generation=group.generation_id,
        )
        self.on_group_unloaded(group, error)

    def on_group_unloaded(self, group: GroupMetadata, error: int) -> None:
        """The group is not ours any more: all parked requests are answered with this error."""
        self.remove_timers(group)
        group.transition_to(DEAD, self.now_ms)
        for member in group.members.values():
            self.maybe_reply_join(group, member, JoinGroupResult(error, member.member_id))
            self.maybe_reply_sync(member, error)

    def on_new_group_stored(self, group: GroupMetadata, error: int) -> None:
        """The first record of a group is in the log, or could not be written: then the group does not exist.

        Unless another append of the group is in flight: then that is its first record, as it was before 4.0.
        """
        is_ours = self.manager.get_group(group.group_id) is group
        if error == Errors.NONE or not is_ours or self.manager.has_pending_append(group):
            return
        self.on_group_unloaded(group, error)
        self.manager.finish_deletion(group, is_in_log=False)

    # --- expiry ------------------------------------------------------------------------------------------------------

    def cleanup_group_metadata(self) -> None:
        """Delete expired offsets, and repeat after an interval; visits every group."""
        removed = 0
        for group in self.manager.current_groups():
            if not group.is_(DEAD):
                expired = self.manager.expired_offsets(group)
                self.manager.remove_offsets(group, expired, LogAppendFailure("expired"))
                removed += len(expired)
        if removed:
            sentence = f"Removed {removed} expired offsets in 0 milliseconds."  # the machine takes no time
            self.log_event("offsets-expired", sentence, offsets=removed)
        self._schedule_expiry()

    def _schedule_expiry(self) -> None:
        self.purgatory.watch(EXPIRY_KEY, self.now_ms + self.config.offsets_retention_check_interval_ms)

    def handle_deleted_topics(self, event: TopicsDeleted) -> None:
        """Delete the offsets of topics that no longer exist; visits every group."""
        removed = 0
        for group in self.manager.current_groups():
            gone = [at for at in group.stored.offsets if at.topic in event.topics]
            if gone and not group.is_(DEAD):
                self.manager.remove_offsets(group, gone, LogAppendFailure("topic deleted"))
                removed += len(gone)
        if removed:
            self.log_event(
                "deleted-topics-offsets-removed",
                f"Removed {removed} offsets associated with deleted partitions: {', '.join(sorted(event.topics))}.",
                offsets=removed,
            )

    # --- the end -----------------------------------------------------------------------------------------------------

    def shutdown(self, _: ShutDown) -> None:
        """The broker shuts down: waiting members are answered (15), and all timers end."""
        self.is_active = False
        for group in self.manager.current_groups():
            self.on_group_unloaded(group, Errors.COORDINATOR_NOT_AVAILABLE)
        self.purgatory.cancel(EXPIRY_KEY)
