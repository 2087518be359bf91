"""Deletes groups that brokers coordinate: finds them by ListGroups; their coordinators delete them (1.1, KIP-229).

The coordinator rejects the request if the group has members at that moment, so no fence is needed here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from zkconsumer.admin.coordinator_group_snapshot import list_all_coordinator_groups
from zkconsumer.admin.kafka_offsets import KafkaOffsetAdmin
from zkconsumer.admin.text_format import count_text
from zkconsumer.errors import UnavailableError
from zkconsumer.kafka.error_codes import GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, NONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zkconsumer.admin.admin_session import AnySession
    from zkconsumer.admin.delete_zookeeper_group import DeletionStatus
    from zkconsumer.kafka.coordinator_groups import CoordinatorGroup


@dataclass(frozen=True, slots=True)
class CoordinatorGroupDeletion:
    """One group.  ``status`` other than ``would delete``: nothing is deleted, and ``reason`` names the cause.

    ``had_members``: whether it had members of the coordinator; otherwise the offsets may belong to a ZooKeeper group.
    """

    group: str
    status: DeletionStatus
    state: str = ""
    offsets: int = 0
    had_members: bool = True
    reason: str = ""


def plan_coordinator_group_deletion(session: AnySession, groups: Sequence[str]) -> list[CoordinatorGroupDeletion]:
    """Return what the deletion of these groups would do.

    Raises ``UnavailableError`` when a broker that does not answer may coordinate one of them, ``BROKER_REQUEST_ERRORS``
    when a coordinator does not return the stored offsets.
    """
    listed = list_all_coordinator_groups(session.brokers)
    missing = [group for group in groups if group not in listed.groups]
    if missing and listed.not_known:
        raise UnavailableError(f"whether there is a group {missing[0]} is not known: {'; '.join(listed.not_known)}")
    return [
        CoordinatorGroupDeletion(group, "missing", reason=f"The consumer group '{group}' does not exist.")
        if group in missing
        else _plan_one(session, group, listed.groups[group][1])
        for group in groups
    ]


def _plan_one(session: AnySession, group: str, found: CoordinatorGroup) -> CoordinatorGroupDeletion:
    target = CoordinatorGroupDeletion(group, "would delete", found.state, had_members=bool(found.protocol_type))
    if found.has_members:
        members = f"with {count_text(len(found.members), 'member')}" if found.members else "with members"
        return replace(target, status="active", reason=f"it is {found.state}, {members}")
    store = KafkaOffsetAdmin(session, group)
    if not store.can_delete_group():
        why = (
            "brokers before 1.1 cannot delete groups; they delete a group when all its offsets have expired "
            "(offsets.retention.minutes)"
        )
        return replace(target, status="rejected", reason=why)
    return replace(target, offsets=len(store.read_offsets()))


def execute_coordinator_group_deletion(
    session: AnySession, target: CoordinatorGroupDeletion
) -> CoordinatorGroupDeletion:
    """Delete what ``plan_coordinator_group_deletion`` found; the coordinator rejects it if a member has joined
    meanwhile.

    A group that does not exist any more, perhaps because of our own request whose answer was lost, counts as deleted.
    Raises ``BROKER_REQUEST_ERRORS``.
    """
    assert target.status == "would delete", "only such groups can be deleted"
    error = KafkaOffsetAdmin(session, target.group).delete_group()
    if error in (NONE, GROUP_ID_NOT_FOUND):
        return replace(target, status="deleted")
    if error == NON_EMPTY_GROUP:
        return replace(target, status="active", reason="a member has joined it")
    return replace(target, status="rejected", reason=f"the coordinator answers {error}")
