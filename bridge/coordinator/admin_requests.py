"""DescribeGroups, ListGroups, DeleteGroups and OffsetDelete: describe groups, and delete them.  Pure.

A deletion is answered once it is in the log: after a restart the coordinator does not have the deleted data any more.
"""

from __future__ import annotations

from bridge.coordinator.continuations import AnswerGroupDelete, AnswerOffsetDelete, PendingGroupDeletions
from bridge.coordinator.errors import Errors
from bridge.coordinator.events import RequestReceived
from bridge.coordinator.group_metadata import COMPLETING_REBALANCE, DEAD, EMPTY, STABLE, GroupMetadata
from bridge.coordinator.group_rebalance import GroupRebalance
from bridge.coordinator.group_responses import describe_group_error
from bridge.coordinator.member_metadata import DelayedRequest, MemberMetadata
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import DELETE_GROUPS, DESCRIBE_GROUPS, OFFSET_DELETE
from zkconsumer.wire.schemas.delete_groups import DeletedGroup, DeleteGroupsRequest, DeleteGroupsResponse
from zkconsumer.wire.schemas.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from zkconsumer.wire.schemas.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from zkconsumer.wire.schemas.offset_delete import (
    OffsetDeletePartitionResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopicResponse,
)

GROUP_TYPE = "classic"
"""The type of all groups of this protocol in ListGroups (from version 5, 3.8); those of KIP-848 have other types."""

DESCRIBE_GROUP_ID_NOT_FOUND_FROM = 6
"""The version of DescribeGroups from which a group that does not exist is an error (4.0)."""


class AdminRequests(GroupRebalance):
    """DescribeGroups, ListGroups, DeleteGroups, OffsetDelete."""

    # --- description -------------------------------------------------------------------------------------------------

    def handle_describe_group(self, request: RequestReceived) -> None:
        """Describe groups.  A group that is named more than once is described once.

        So did Kafka until 2.2; since then it describes the group as often as it is named, so that a short request may
        have a very long answer.
        """
        body: DescribeGroupsRequest = request.body
        groups = [self._describe(group_id, request.version) for group_id in dict.fromkeys(body.groups)]
        self.reply(DelayedRequest(request.token, request.version), DescribeGroupsResponse(groups=groups))

    def _describe(self, group_id: str, version: int) -> DescribedGroup:
        refused = self.validate_group_status(group_id, DESCRIBE_GROUPS.key)
        if refused is not Errors.NONE:
            return describe_group_error(group_id, refused)
        group = self._visible_group(group_id)
        if group is None:
            if version < DESCRIBE_GROUP_ID_NOT_FOUND_FROM:
                return describe_group_error(group_id, Errors.NONE, DEAD.value)
            words = f"Group {group_id} not found."
            return describe_group_error(group_id, Errors.GROUP_ID_NOT_FOUND, DEAD.value, words)
        protocol = group.protocol_name if group.is_(STABLE) else None
        return DescribedGroup(
            group_id=group_id,
            group_state=self._state_name(group),
            protocol_type=group.protocol_type or "",
            protocol_data=protocol or "",
            members=[_described_member(member, protocol) for member in group.members.values()],
        )

    def handle_list_groups(self, request: RequestReceived) -> None:
        """The groups of this broker; while some are not loaded the answer has the others, and error 14."""
        body: ListGroupsRequest = request.body
        states = {state.lower() for state in body.states_filter}
        types = {group_type.lower() for group_type in body.types_filter}
        groups = [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=name,
                group_type=GROUP_TYPE,
            )
            for group in self.manager.current_groups()
            if self._visible_group(group.group_id) is not None
            and ((name := self._state_name(group)).lower() in states or not states)
            and (GROUP_TYPE in types or not types)
        ]
        error = Errors.COORDINATOR_LOAD_IN_PROGRESS if self.manager.loading_partitions else Errors.NONE
        if not self.is_active:
            error, groups = Errors.COORDINATOR_NOT_AVAILABLE, []
        self.reply(DelayedRequest(request.token, request.version), ListGroupsResponse(error_code=error, groups=groups))

    def _visible_group(self, group_id: str) -> GroupMetadata | None:
        """A group that other clients can see: not a dead one, nor (4.0) one without a record in the log."""
        group = self.get_group(group_id)
        if group is None or group.is_(DEAD):
            return None
        return None if self.behaviour.describes_committed_only and group.stored.is_empty else group

    def _state_name(self, group: GroupMetadata) -> str:
        return self.behaviour.completing_state_name if group.is_(COMPLETING_REBALANCE) else group.state.value

    # --- deletion of groups ------------------------------------------------------------------------------------------

    def handle_delete_groups(self, request: RequestReceived) -> None:
        """Delete groups without members, and their offsets."""
        body: DeleteGroupsRequest = request.body
        deletions = PendingGroupDeletions(DelayedRequest(request.token, request.version), {})
        for group_id in dict.fromkeys(body.groups_names):
            deletions.errors[group_id] = self._delete_group(group_id, deletions)
        deleted = [group_id for group_id, error in deletions.errors.items() if error == Errors.NONE]
        if deleted:
            self.log_event(
                "groups-deleted",
                f"The following groups were deleted: {', '.join(deleted)}. A total of {deletions.offsets} offsets were "
                "removed.",
                groups=len(deleted),
            )
        self._maybe_reply_deletions(deletions)

    def _delete_group(self, group_id: str, deletions: PendingGroupDeletions) -> int:
        refused = self.validate_group_status(group_id, DELETE_GROUPS.key)
        if refused is not Errors.NONE:
            return refused
        group = self.get_group(group_id)
        if group is None or group.is_(DEAD):
            return Errors.GROUP_ID_NOT_FOUND
        if not group.is_(EMPTY):
            return Errors.NON_EMPTY_GROUP
        self.remove_timers(group)
        deletions.offsets += len(group.stored.offsets)
        if self.manager.delete_group(group, AnswerGroupDelete(group_id, deletions)):
            deletions.waiting.add(group_id)
        return Errors.NONE

    def on_group_deleted(self, deleted: AnswerGroupDelete, error: int) -> None:
        """The tombstones of one group are in the log, or could not be written."""
        deleted.deletions.errors[deleted.group_id] = error
        deleted.deletions.waiting.discard(deleted.group_id)
        self._maybe_reply_deletions(deleted.deletions)

    def _maybe_reply_deletions(self, deletions: PendingGroupDeletions) -> None:
        if not deletions.waiting:
            rows = [DeletedGroup(group_id=group_id, error_code=code) for group_id, code in deletions.errors.items()]
            self.reply(deletions.parked, DeleteGroupsResponse(results=rows))

    # --- deletion of offsets -----------------------------------------------------------------------------------------

    def handle_delete_offsets(self, request: RequestReceived) -> None:
        """Delete offsets, except those of topics that a member of the group reads."""
        body: OffsetDeleteRequest = request.body
        parked = DelayedRequest(request.token, request.version)
        refused = self.validate_group_status(body.group_id, OFFSET_DELETE.key)
        group = self.get_group(body.group_id) if refused is Errors.NONE else None
        if refused is Errors.NONE and (group is None or group.is_(DEAD)):
            refused = Errors.GROUP_ID_NOT_FOUND
        elif group is not None and not group.is_(EMPTY) and not group.is_consumer_group:
            refused = Errors.NON_EMPTY_GROUP
        if group is None or refused is not Errors.NONE:
            self.reply(parked, OffsetDeleteResponse(error_code=refused, topics=[]))
            return
        asked = tuple((topic.name, tuple(row.partition_index for row in topic.partitions)) for topic in body.topics)
        wanted = [TopicPartition(topic, index) for topic, indexes in asked for index in indexes]
        is_read = {at for at in wanted if not group.is_(EMPTY) and group.is_subscribed_to_topic(at.topic)}
        errors = tuple((at, int(Errors.GROUP_SUBSCRIBED_TO_TOPIC)) for at in wanted if at in is_read)
        then = AnswerOffsetDelete(parked, asked, errors)
        removed = [at for at in wanted if at not in is_read]
        if removed:
            names = ", ".join(f"{at.topic}-{at.partition}" for at in removed)
            self.log_event(
                "offsets-deleted",
                f"The following offsets of the group {group.group_id} were deleted: {names}. A total of "
                f"{sum(at in group.stored.offsets for at in removed)} offsets were removed.",
                group=group.group_id,
            )
        if not self.manager.remove_offsets(group, removed, then):
            self.on_offsets_deleted(then, Errors.NONE)

    def on_offsets_deleted(self, deleted: AnswerOffsetDelete, error: int) -> None:
        """The tombstones are in the log, or could not be written."""
        refused = dict(deleted.refused)
        topics = [
            OffsetDeleteTopicResponse(
                name=topic,
                partitions=[
                    OffsetDeletePartitionResponse(
                        partition_index=index, error_code=refused.get(TopicPartition(topic, index), error)
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in deleted.topics
        ]
        self.reply(deleted.parked, OffsetDeleteResponse(topics=topics))


def _described_member(member: MemberMetadata, protocol: str | None) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=b"" if protocol is None else member.metadata(protocol),
        member_assignment=b"" if protocol is None else member.assignment,
    )
