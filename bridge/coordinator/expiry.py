"""Finds the expired offsets of a group.  Pure.

    the group                                       an offset's retention begins
    empty, and has had members                      when it became empty
    stable, of consumers whose topics are known     at its commit, if no member subscribes to its topic
    never had members                               at its commit
    any other                                       no offset expires

These are the rules since 2.1 (KIP-211).  An expiry that the commit itself requested (OffsetCommit v2 to v4) is used
instead.  Before 2.1, all offsets have their expiry, and the state of the group does not matter.  An offset that is
being committed never expires.
"""

from __future__ import annotations

from bridge.coordinator.behaviour import Behaviour
from bridge.coordinator.group_metadata import EMPTY, STABLE, GroupMetadata
from bridge.coordinator.stored_state import CommitRecord
from zkconsumer.types import TopicPartition


def expired_offsets(group: GroupMetadata, now_ms: int, retention_ms: int, behaviour: Behaviour) -> list[TopicPartition]:
    """The partitions of expired offsets; Kafka's ``removeExpiredOffsets``."""
    if not behaviour.always_writes_expiry and not _may_expire(group):
        return []
    is_emptied = group.protocol_type is not None and group.is_(EMPTY)

    def is_expired(partition: TopicPartition, commit: CommitRecord) -> bool:
        if partition in group.pending_offset_commits:
            return False
        value = commit.value
        if behaviour.always_writes_expiry:
            end_ms = value.expire_timestamp
            return now_ms > (value.commit_timestamp + retention_ms if end_ms is None else end_ms)
        if group.is_(STABLE) and group.protocol_type is not None and group.is_subscribed_to_topic(partition.topic):
            return False
        if value.expire_timestamp is not None:
            return now_ms >= value.expire_timestamp
        since_ms = value.commit_timestamp
        if is_emptied and group.current_state_timestamp is not None:
            since_ms = group.current_state_timestamp
        return now_ms - since_ms >= retention_ms

    return [partition for partition, commit in group.stored.offsets.items() if is_expired(partition, commit)]


def _may_expire(group: GroupMetadata) -> bool:
    if group.protocol_type is None or group.is_(EMPTY):
        return True
    return group.is_(STABLE) and group.is_consumer_group and group.subscribed_topics is not None
