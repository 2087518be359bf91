"""OffsetDelete (47): delete the committed offsets of some partitions (2.4, KIP-496).

Only the group coordinator accepts it.  With an error of the whole group (69: it does not exist; 68: it has members that
are not consumers) the answer has no partitions; 86 is the error of partitions of a topic to which a member subscribes.
"""

from __future__ import annotations

from zkconsumer.wire.field_types import int16, int32, text
from zkconsumer.wire.schemas.message_schema import Api, array, f, message


@message
class OffsetDeletePartition:
    """One partition."""

    partition_index: int = f(int32)


@message
class OffsetDeleteTopic:
    """The partitions of one topic."""

    name: str = f(text)
    partitions: list[OffsetDeletePartition] = f(array(OffsetDeletePartition))


@message
class OffsetDeleteRequest:
    """One group."""

    group_id: str = f(text)
    topics: list[OffsetDeleteTopic] = f(array(OffsetDeleteTopic))


@message
class OffsetDeletePartitionResponse:
    """The result for one partition; 0 also if no offset was stored."""

    partition_index: int = f(int32)
    error_code: int = f(int16, default=0)


@message
class OffsetDeleteTopicResponse:
    """The partitions of one topic."""

    name: str = f(text)
    partitions: list[OffsetDeletePartitionResponse] = f(array(OffsetDeletePartitionResponse))


@message
class OffsetDeleteResponse:
    """``topics`` is empty with an error of the group."""

    error_code: int = f(int16, default=0)
    throttle_time_ms: int = f(int32, default=0)
    topics: list[OffsetDeleteTopicResponse] = f(array(OffsetDeleteTopicResponse))


OFFSET_DELETE = Api(47, "OffsetDelete", OffsetDeleteRequest, OffsetDeleteResponse, highest=0, flexible_from=1)
