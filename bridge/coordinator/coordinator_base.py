"""The base class of ``GroupCoordinator``, with the common parts of its modules.  Pure.

    group_rebalance               from the start of a rebalance to the next generation; members that time out
    join_requests                 JoinGroup;   static_member_rejoin: a static member under a new id
    sync_requests                 SyncGroup
    heartbeat_and_leave_requests  Heartbeat, LeaveGroup
    offset_requests               OffsetCommit, OffsetFetch
    admin_requests                DescribeGroups, ListGroups, DeleteGroups, OffsetDelete
    coordinator_lifecycle         elections, loading, expiry, the end of the broker
    group_coordinator             passes events to these modules

Each module has a class on top of this one, with Kafka's method names.  They emit commands with ``reply``, ``manager``
(appends) and ``purgatory`` (timers), which all add to one list of commands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bridge.coordinator.behaviour import Behaviour
from bridge.coordinator.commands import Command, LogGroupEvent, SendResponse
from bridge.coordinator.config import GroupCoordinatorConfig
from bridge.coordinator.delayed_heartbeat import member_key
from bridge.coordinator.delayed_join import join_key
from bridge.coordinator.delayed_sync import sync_key
from bridge.coordinator.errors import Errors
from bridge.coordinator.group_metadata import DEAD, EMPTY, GroupMetadata
from bridge.coordinator.group_metadata_manager import GroupMetadataManager
from bridge.coordinator.group_responses import JoinGroupResult, join_response, sync_response
from bridge.coordinator.member_metadata import DelayedRequest, MemberMetadata
from bridge.coordinator.offsets_topic_partitions import OFFSETS_TOPIC
from bridge.coordinator.purgatory import DelayedOperationPurgatory
from zkconsumer.wire.schemas import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
)

GROUP_ID_BYTES_MAX = 0x7FFF
"""The maximum length of a group id in a record of the log."""

_MAY_BE_EMPTY = frozenset({OFFSET_COMMIT.key, OFFSET_FETCH.key, DESCRIBE_GROUPS.key, DELETE_GROUPS.key})
"""APIs that accept a group with an empty name: offsets without members, as in 0.8."""

_NAME_CHECKED_BEFORE_2_0 = frozenset({JOIN_GROUP.key, DELETE_GROUPS.key})
"""APIs that checked the name before 2.0."""


class CoordinatorBase:
    """``new_member_id`` generates a member id from the client id, or the group instance id, and never the same
    twice."""

    def __init__(
        self, config: GroupCoordinatorConfig, behaviour: Behaviour, new_member_id: Callable[[str], str]
    ) -> None:
        self.config = config
        self.behaviour = behaviour
        self.new_member_id = new_member_id
        self.is_active = True
        self.now_ms = 0
        self._loading_since_ms: dict[int, int] = {}
        """Partition → the time of its election, while it is loading."""
        self.out: list[Command] = []
        self.manager = GroupMetadataManager(config, behaviour)
        self.purgatory = DelayedOperationPurgatory()

    # --- checks ------------------------------------------------------------------------------------------------------

    def validate_group_status(self, group_id: str, api_key: int) -> Errors:
        """The error that prevents a request for this group, or ``NONE``.

        Since 2.0 the checks are: the name, is the broker up, is the group loading, is it ours.  Before: is the broker
        up, the name (JoinGroup and DeleteGroups only), is it ours, is it loading; and a group that loads for the first
        time is not ours yet, so that old brokers answer 16 where new ones answer 14.
        """
        is_valid = self._is_valid_group_id(group_id, api_key)
        if not is_valid and not self.behaviour.checks_coordinator_first:
            return Errors.INVALID_GROUP_ID
        if not self.is_active:
            return Errors.COORDINATOR_NOT_AVAILABLE
        if not is_valid:
            return Errors.INVALID_GROUP_ID
        is_local = self.manager.is_group_local(group_id)
        if self.behaviour.checks_coordinator_first and not is_local:
            return Errors.NOT_COORDINATOR
        if self.manager.is_group_loading(group_id):
            return Errors.COORDINATOR_LOAD_IN_PROGRESS
        return Errors.NONE if is_local else Errors.NOT_COORDINATOR

    def _is_valid_group_id(self, group_id: str, api_key: int) -> bool:
        if len(group_id) > GROUP_ID_BYTES_MAX // 4 and len(group_id.encode()) > GROUP_ID_BYTES_MAX:
            return False
        if self.behaviour.checks_coordinator_first and api_key not in _NAME_CHECKED_BEFORE_2_0:
            return True
        return group_id != "" or api_key in _MAY_BE_EMPTY

    def get_group(self, group_id: str) -> GroupMetadata | None:
        """An existing group.  Without the Empty state (0.9) a group without members does not exist, also with
        offsets."""
        group = self.manager.get_group(group_id)
        if group is not None and group.is_(EMPTY) and not self.behaviour.has_empty_state:
            return None
        return group

    def validate_current_member(
        self, group: GroupMetadata, member_id: str, group_instance_id: str | None, *, operation: str
    ) -> Errors:
        """Whether this is a member: a static one is fenced (82) once its place belongs to another member id.

        A group that is being deleted (15 since 2.3: retry; before 25) has no members, nor has an empty one.
        ``operation``: the name of the request in the log.
        """
        if group.is_(DEAD):
            return self.behaviour.dead_group_error
        if group_instance_id is not None:
            current = group.current_static_member_id(group_instance_id)
            if current is None:
                return Errors.UNKNOWN_MEMBER_ID
            if current != member_id:
                self.log_event(
                    "static-member-fenced",
                    f"Request memberId={member_id} for static member with groupInstanceId={group_instance_id} is "
                    f"fenced by current memberId={current} during operation {operation}",
                    group=group.group_id,
                    member=member_id,
                )
                return Errors.FENCED_INSTANCE_ID
        return Errors.NONE if group.has(member_id) else Errors.UNKNOWN_MEMBER_ID

    # --- output ------------------------------------------------------------------------------------------------------

    def reply(self, parked: DelayedRequest, body: Any) -> None:
        """Answer a request."""
        self.out.append(SendResponse(parked.token, body))

    def reply_join(self, parked: DelayedRequest, result: JoinGroupResult) -> None:
        """Answer a JoinGroup."""
        if result.error:
            result = replace(result, generation_id=self.behaviour.join_error_generation)
        self.reply(parked, join_response(parked.version, result))

    def log_event(self, what: str, sentence: str = "", /, **fields: Any) -> None:
        """Log an event; ``sentence``: how Kafka's coordinator logs it."""
        self.out.append(LogGroupEvent(what, tuple(fields.items()), sentence))

    def log_partition_of(self, group: GroupMetadata) -> str:
        """The partition that stores the group, as in Kafka's log."""
        return f"{OFFSETS_TOPIC}-{self.manager.partition_for(group.group_id)}"

    def maybe_reply_join(self, group: GroupMetadata, member: MemberMetadata, result: JoinGroupResult) -> bool:
        """Answer the parked JoinGroup of a member, if it has one."""
        parked = group.set_awaiting_join(member, None)
        if parked is not None:
            self.reply_join(parked, result)
        return parked is not None

    def maybe_reply_sync(self, member: MemberMetadata, error: int) -> bool:
        """Answer the parked SyncGroup of a member, if it has one, with this error."""
        parked, member.awaiting_sync = member.awaiting_sync, None
        if parked is not None:
            self.reply(parked, sync_response(error))
        return parked is not None

    # --- member time-outs --------------------------------------------------------------------------------------------

    def complete_and_schedule_next_heartbeat_expiration(self, group: GroupMetadata, member: MemberMetadata) -> None:
        """The member is alive: its session timeout starts again."""
        self.watch_member(group, member.member_id, member.session_timeout_ms)

    def watch_member(self, group: GroupMetadata, member_id: str, timeout_ms: int) -> None:
        """Set the time-out of a member, from now on."""
        self.purgatory.watch(member_key(group.group_id, member_id), self.now_ms + timeout_ms)

    def remove_heartbeat_for_leaving_member(self, group: GroupMetadata, member_id: str) -> None:
        """Remove the time-out of this member."""
        self.purgatory.cancel(member_key(group.group_id, member_id))

    def remove_timers(self, group: GroupMetadata) -> None:
        """Remove all time-outs of this group; visits every member."""
        self.purgatory.cancel(join_key(group.group_id))
        self.purgatory.cancel(sync_key(group.group_id))
        for member_id in (*group.members, *group.pending_members):
            self.remove_heartbeat_for_leaving_member(group, member_id)


LOADING_ERRORS = {SYNC_GROUP.key: Errors.REBALANCE_IN_PROGRESS, HEARTBEAT.key: Errors.NONE}
"""The error for a group that is loading, for clients that do not support error 14."""
