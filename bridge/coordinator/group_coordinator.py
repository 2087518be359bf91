"""Kafka's ``GroupCoordinator`` as a machine: events in, commands out.  Pure.

    coordinator = GroupCoordinator(config, behaviour, new_member_id)
    commands = coordinator.handle(event, now_ms)

It has all groups of a broker, in the partitions of ``__consumer_offsets`` that the broker leads.  Its state is plain
data without callbacks, so that it can be copied, compared and inspected between two events.
The methods that handle a request have Kafka's names; ``coordinator_base`` lists the modules of the class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from bridge.coordinator.admin_requests import AdminRequests
from bridge.coordinator.behaviour import Behaviour
from bridge.coordinator.commands import Command
from bridge.coordinator.config import GroupCoordinatorConfig
from bridge.coordinator.continuations import (
    EMPTIED,
    AnswerCommit,
    AnswerGroupDelete,
    AnswerOffsetDelete,
    AnswerStaticMember,
    ConfirmNewGroup,
    DeliverAssignment,
    LogAppendFailure,
)
from bridge.coordinator.coordinator_lifecycle import EXPIRY_KEY, CoordinatorLifecycle
from bridge.coordinator.errors import Errors, group_append_error, offset_append_error
from bridge.coordinator.events import (
    AppendCompleted,
    Elected,
    Event,
    GroupTimerFired,
    PartitionLoaded,
    RequestReceived,
    Resigned,
    ShutDown,
    TopicsDeleted,
)
from bridge.coordinator.group_log_lines import set_text
from bridge.coordinator.group_metadata import GroupMetadata
from bridge.coordinator.group_metadata_manager import PendingAppend
from bridge.coordinator.heartbeat_and_leave_requests import HeartbeatAndLeaveRequests
from bridge.coordinator.join_requests import JoinRequests
from bridge.coordinator.offset_requests import OffsetRequests
from bridge.coordinator.sync_requests import SyncRequests
from zkconsumer.errors import InternalError
from zkconsumer.kafka.error_codes import error_code
from zkconsumer.wire.schemas import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
)


class GroupCoordinator(
    JoinRequests, SyncRequests, HeartbeatAndLeaveRequests, OffsetRequests, AdminRequests, CoordinatorLifecycle
):
    """All groups of a broker.  ``manager`` and ``purgatory`` may be read; only ``handle`` changes them.

    ``new_member_id`` generates a member id from the client id, or from the group instance id, and never the same twice.
    """

    def __init__(
        self, config: GroupCoordinatorConfig, behaviour: Behaviour, new_member_id: Callable[[str], str]
    ) -> None:
        super().__init__(config, behaviour, new_member_id)
        self._handlers: dict[int, Callable[[RequestReceived], None]] = {
            JOIN_GROUP.key: self.handle_join_group,
            SYNC_GROUP.key: self.handle_sync_group,
            HEARTBEAT.key: self.handle_heartbeat,
            LEAVE_GROUP.key: self.handle_leave_group,
            OFFSET_COMMIT.key: self.handle_commit_offsets,
            OFFSET_FETCH.key: self.handle_fetch_offsets,
            DESCRIBE_GROUPS.key: self.handle_describe_group,
            LIST_GROUPS.key: self.handle_list_groups,
            DELETE_GROUPS.key: self.handle_delete_groups,
            OFFSET_DELETE.key: self.handle_delete_offsets,
        }

    def handle(self, event: Event, now_ms: int) -> list[Command]:
        """Process one event; returns the commands to execute, in order.  ``now_ms`` never decreases.

        A wrong request is answered with an error, never raised.  Raises ``InternalError`` for an API that does not
        belong to the coordinator.
        """
        self.now_ms = self.manager.now_ms = now_ms
        out: list[Command] = []
        self.out = self.manager.out = self.purgatory.out = out
        match event:
            case RequestReceived():
                if event.api_key not in self._handlers:
                    raise InternalError(f"API {event.api_key} does not belong to a group coordinator")
                self._handlers[event.api_key](event)
            case GroupTimerFired():
                if self.purgatory.is_due(event):
                    self._on_expiration(event)
            case AppendCompleted():
                self._on_appended(event)
            case Elected():
                self.on_election(event)
            case PartitionLoaded():
                self.on_loaded(event)
            case Resigned():
                self.on_resignation(event)
            case TopicsDeleted():
                self.handle_deleted_topics(event)
            case ShutDown():
                self.shutdown(event)
            case _:
                assert_never(event)
        return out

    def partition_for(self, group_id: str) -> int:
        """The partition of ``__consumer_offsets`` whose leader coordinates the group."""
        return self.manager.partition_for(group_id)

    def _on_expiration(self, fired: GroupTimerFired) -> None:
        if fired.key == EXPIRY_KEY:
            self.cleanup_group_metadata()
            return
        what, group_id, *member_id = fired.key
        group = self.manager.get_group(group_id)
        assert group is not None, "the timers of a group end with it"
        if what == "join":
            self.on_expire_join(group)
        elif what == "sync":
            self.on_expire_pending_sync(group)
        else:
            self.on_expire_heartbeat(group, member_id[0])

    def _on_deletion_failed(self, group: GroupMetadata) -> None:
        again = self.manager.get_group(group.group_id)
        if again is not None and again is not group:
            self.on_group_loaded(again)

    def _on_appended(self, event: AppendCompleted) -> None:
        pending = self.manager.complete_append(event.token, event.error_code, event.base_offset)
        if pending is None:
            return
        group, then = pending.group, pending.continuation
        error = group_append_error(event.error_code)
        if event.error_code:
            self._log_failed_append(pending, event.error_code)
        if pending.deletes_group and event.error_code:
            self._on_deletion_failed(group)
        match then:
            case DeliverAssignment():
                self.on_assignment_stored(group, then, error)
            case AnswerStaticMember():
                self.on_static_member_stored(group, then, error)
            case ConfirmNewGroup():
                self.on_new_group_stored(group, error)
            case AnswerCommit():
                self.on_offsets_stored(then, offset_append_error(event.error_code))
            case AnswerGroupDelete():
                self.on_group_deleted(then, error)
            case AnswerOffsetDelete():
                self.on_offsets_deleted(then, offset_append_error(event.error_code))
            case LogAppendFailure(why):
                if event.error_code:
                    failed = f"Failed to write empty metadata for group {group.group_id}: "
                    sentence = failed + error_code(event.error_code).name if why == EMPTIED else ""
                    self.log_event("append-failed", sentence, group=group.group_id, error=event.error_code, reason=why)
            case _:
                assert_never(then)

    def _log_failed_append(self, pending: PendingAppend, error: int) -> None:
        """Log the failure of an append as Kafka's manager of groups does, before the continuation handles it."""
        group, name = pending.group, error_code(error).name
        then, fields = pending.continuation, {"group": group.group_id, "error": error}
        if isinstance(then, AnswerCommit):
            offsets = set_text(f"{tp.topic}-{tp.partition}" for tp in pending.partitions)
            self.log_event(
                "offsets-append-failed",
                f"Offset commit {offsets} from group {group.group_id}, consumer {then.consumer_id} with generation "
                f"{group.generation_id} failed when appending to log due to {name}",
                **fields,
            )
        elif not isinstance(then, AnswerGroupDelete | AnswerOffsetDelete):
            what = f"group {group.group_id} with generation {group.generation_id}"
            self.log_event(
                "group-append-failed", f"Metadata from {what} failed when appending to log due to {name}", **fields
            )
            answer = group_append_error(error)
            reason = None
            if answer == Errors.UNKNOWN_SERVER_ERROR:
                reason = f"due to {name}, returning UNKNOWN error code to the client"
            elif answer == error:
                reason = f"due to unexpected error: {name}"
            if reason is not None:
                what = f"group {group.group_id} generation {group.generation_id}"
                self.log_event(
                    "group-append-rejected", f"Appending metadata message for {what} failed {reason}", **fields
                )
