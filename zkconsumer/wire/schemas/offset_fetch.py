"""OffsetFetch (9): the committed offsets of a group (0.8.1).

The version selects the store: with version 0 the broker reads the offset znodes of ZooKeeper; from version 1 on (0.8.2)
the group coordinator reads from Kafka, and only it accepts the request.  From version 2 on (0.10.2) the answer has an
error for the whole group, and then no partitions; null topics mean all stored offsets.  From version 8 on (3.0) the
request contains several groups.  Version 10 (4.2) identifies topics by id instead of by name.
"""

from __future__ import annotations

from zkconsumer.wire.field_types import NO_UUID, boolean, int16, int32, int64, text, uuid
from zkconsumer.wire.schemas.message_schema import Api, array, f, message

GROUP_ERROR_FROM = 2
"""The first version with one error for the whole group; before, it is in every partition."""

ALL_TOPICS_IS_NULL_FROM = 2
"""The first version in which all stored offsets of a group can be requested."""

BATCHED_FROM = 8
"""The first version whose request and answer contain lists of groups."""

NO_EPOCH = -1


@message
class OffsetFetchTopic:
    """The partitions of one topic."""

    name: str = f(text, "0-9", default="")
    topic_id: bytes = f(uuid, "10+", default=NO_UUID)
    partition_indexes: list[int] = f(array(int32))


@message
class OffsetFetchGroup:
    """One group; ``topics`` None: all stored offsets.  Member id and epoch are for members of the consumer protocol."""

    group_id: str = f(text)
    member_id: str | None = f(text, "9+", nullable="9+", default=None)
    member_epoch: int = f(int32, "9+", default=NO_EPOCH)
    topics: list[OffsetFetchTopic] | None = f(array(OffsetFetchTopic), nullable="8+")


@message
class OffsetFetchRequest:
    """Up to version 7 one group, in the fields of the request; ``groups`` from 8 on.

    ``topics`` None: all stored offsets of the group.  ``require_stable``: partitions with offsets of open transactions
    have error 88 instead of the last stable offset (2.5, KIP-447).
    """

    group_id: str = f(text, "0-7", default="", needed=True)
    topics: list[OffsetFetchTopic] | None = f(
        array(OffsetFetchTopic), "0-7", nullable="2-7", default_factory=list, needed=True
    )
    groups: list[OffsetFetchGroup] = f(array(OffsetFetchGroup), "8+", default_factory=list, needed=True)
    require_stable: bool = f(boolean, "7+", default=False, needed=True)


@message
class OffsetFetchPartitionResponse:
    """``committed_offset``: the offset of the next record to read; −1: none is stored."""

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
    """The stored offsets of one group."""

    group_id: str = f(text)
    topics: list[OffsetFetchTopicResponse] = f(array(OffsetFetchTopicResponse))
    error_code: int = f(int16, default=0)


@message
class OffsetFetchResponse:
    """Up to version 7 one group, in the fields of the answer; ``groups`` from 8 on."""

    throttle_time_ms: int = f(int32, "3+", default=0)
    topics: list[OffsetFetchTopicResponse] = f(
        array(OffsetFetchTopicResponse), "0-7", default_factory=list, needed=True
    )
    error_code: int = f(int16, "2-7", default=0, needed=True)
    groups: list[OffsetFetchGroupResponse] = f(array(OffsetFetchGroupResponse), "8+", default_factory=list, needed=True)


OFFSET_FETCH = Api(9, "OffsetFetch", OffsetFetchRequest, OffsetFetchResponse, highest=10, flexible_from=6, client_max=9)
