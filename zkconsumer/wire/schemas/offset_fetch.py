"""OffsetFetch (9): the committed offsets of a group (0.8.1).

The version says where: 0 reads the offset znodes of ZooKeeper, from version 1 on (0.8.2) Kafka's own store is read, at
the group's coordinator alone.  From version 2 (0.10.2) the answer has an error for the whole group, and lists no
partitions beside one; null topics mean all that are stored.  From version 8 (3.0) several groups are asked at once.
Version 10 (4.2) names topics by id instead of by name.
"""

from __future__ import annotations

from zkconsumer.wire.field_types import NO_UUID, boolean, int16, int32, int64, text, uuid
from zkconsumer.wire.schemas.message_schema import Api, array, f, message

GROUP_ERROR_FROM = 2
"""The version from which an error of the whole group is said once; before, in every partition."""

ALL_TOPICS_IS_NULL_FROM = 2
"""The version from which everything that a group has stored can be asked for."""

BATCHED_FROM = 8
"""The version from which the question and the answer are lists of groups."""

NO_EPOCH = -1


@message
class OffsetFetchTopic:
    """The partitions of one topic."""

    name: str = f(text, "0-9", default="")
    topic_id: bytes = f(uuid, "10+", default=NO_UUID)
    partition_indexes: list[int] = f(array(int32))


@message
class OffsetFetchGroup:
    """One group; ``topics`` None: all that it has stored.  Member and epoch are for members of a modern group."""

    group_id: str = f(text)
    member_id: str | None = f(text, "9+", nullable="9+", default=None)
    member_epoch: int = f(int32, "9+", default=NO_EPOCH)
    topics: list[OffsetFetchTopic] | None = f(array(OffsetFetchTopic), nullable="8+")


@message
class OffsetFetchRequest:
    """One group in the fields of the question itself up to version 7, ``groups`` from 8 on.

    ``topics`` None: all that the group has stored.  ``require_stable``: offsets of open transactions answer error 88
    instead of the last stable value (2.5, KIP-447).
    """

    group_id: str = f(text, "0-7", default="", needed=True)
    topics: list[OffsetFetchTopic] | None = f(
        array(OffsetFetchTopic), "0-7", nullable="2-7", default_factory=list, needed=True
    )
    groups: list[OffsetFetchGroup] = f(array(OffsetFetchGroup), "8+", default_factory=list, needed=True)
    require_stable: bool = f(boolean, "7+", default=False, needed=True)


@message
class OffsetFetchPartitionResponse:
    """``committed_offset``: of the next record to read, −1 where none is stored."""

    partition_index: int = f(int32)
    committed_offset: int = f(int64)
    committed_leader_epoch: int = f(int32, "5+", default=-1)
    metadata: str | None = f(text, nullable="0+", default="")
    error_code: int = f(int16, default=0)


@message
class OffsetFetchTopicResponse:
    """The partitions of one topic."""

    name: str = f(text, "0-9", default="")
    topic_id: bytes = f(uuid, "10+", default=NO_UUID)
    partitions: list[OffsetFetchPartitionResponse] = f(array(OffsetFetchPartitionResponse))


@message
class OffsetFetchGroupResponse:
    """What one group has stored."""

    group_id: str = f(text)
    topics: list[OffsetFetchTopicResponse] = f(array(OffsetFetchTopicResponse))
    error_code: int = f(int16, default=0)


@message
class OffsetFetchResponse:
    """One group in the fields of the answer itself up to version 7, ``groups`` from 8 on."""

    throttle_time_ms: int = f(int32, "3+", default=0)
    topics: list[OffsetFetchTopicResponse] = f(
        array(OffsetFetchTopicResponse), "0-7", default_factory=list, needed=True
    )
    error_code: int = f(int16, "2-7", default=0, needed=True)
    groups: list[OffsetFetchGroupResponse] = f(array(OffsetFetchGroupResponse), "8+", default_factory=list, needed=True)


OFFSET_FETCH = Api(9, "OffsetFetch", OffsetFetchRequest, OffsetFetchResponse, highest=10, flexible_from=6, client_max=9)
