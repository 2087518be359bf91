"""OffsetCommit (8): commit the offsets of a group (0.8.1).

The version selects the store: with version 0, any broker that has a ZooKeeper writes the offset znodes; from version 1
on (0.8.2) the group coordinator writes to Kafka, and only it accepts the request.  Version 10 (4.2) identifies topics
by id instead of by name.
"""

from __future__ import annotations

from zkconsumer.wire.field_types import NO_UUID, int16, int32, int64, text, uuid
from zkconsumer.wire.schemas.message_schema import Api, array, f, message

NO_GENERATION = -1
"""``generation_id_or_member_epoch`` of a client that commits without being a member."""

BROKER_RETENTION = -1
"""``retention_time_ms``: the broker's retention."""

RETENTION_FROM, RETENTION_TO = 2, 4
"""Versions that have ``retention_time_ms``: from that of 0.9 to that of 2.0.  Version 5 (2.1) has no such field:
brokers store offsets while their group has members (KIP-211).  In the older versions brokers still apply the field.
"""


@message
class OffsetCommitPartition:
    """``committed_offset``: the offset of the next record to read.  ``commit_timestamp`` −1: the broker's time."""

    partition_index: int = f(int32)
    committed_offset: int = f(int64)
    committed_leader_epoch: int = f(int32, "6+", default=-1)
    commit_timestamp: int = f(int64, "1", default=-1, needed=True)
    committed_metadata: str | None = f(text, nullable="0+", default="")


@message
class OffsetCommitTopic:
    """The partitions of one topic."""

    name: str = f(text, "0-9", default="")
    topic_id: bytes = f(uuid, "10+", default=NO_UUID)
    partitions: list[OffsetCommitPartition] = f(array(OffsetCommitPartition))


@message
class OffsetCommitRequest:
    """The defaults are for a client that is not a member, such as the Scala consumer."""

    group_id: str = f(text)
    generation_id_or_member_epoch: int = f(int32, "1+", default=NO_GENERATION)
    member_id: str = f(text, "1+", default="")
    group_instance_id: str | None = f(text, "7+", nullable="7+", default=None, needed=True)
    retention_time_ms: int = f(int64, "2-4", default=BROKER_RETENTION)
    topics: list[OffsetCommitTopic] = f(array(OffsetCommitTopic))


@message
class OffsetCommitPartitionResponse:
    """The result for one partition; 0: its offset is stored."""

    partition_index: int = f(int32)
    error_code: int = f(int16, default=0)


@message
class OffsetCommitTopicResponse:
    """The partitions of one topic."""

    name: str = f(text, "0-9", default="")
    topic_id: bytes = f(uuid, "10+", default=NO_UUID)
    partitions: list[OffsetCommitPartitionResponse] = f(array(OffsetCommitPartitionResponse))


@message
class OffsetCommitResponse:
    """One entry for each partition; an error of the whole group is in all of them."""

    throttle_time_ms: int = f(int32, "3+", default=0)
    topics: list[OffsetCommitTopicResponse] = f(array(OffsetCommitTopicResponse))


OFFSET_COMMIT = Api(
    8, "OffsetCommit", OffsetCommitRequest, OffsetCommitResponse, highest=10, flexible_from=8, client_max=9
)
