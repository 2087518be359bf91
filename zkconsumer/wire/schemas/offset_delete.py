"""OffsetDelete (47): delete the committed offsets of some partitions (2.4, KIP-496).

For the group's coordinator.  An error of the whole group (69: there is none of this name; 68: it has members of another
kind than consumers) stands alone; 86 stands beside partitions of topics that a live member subscribes to.
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
    """What became of one partition; 0 also where nothing was stored."""

    partition_index: int = f(int32)
    error_code: int = f(int16, default=0)


@message
class OffsetDeleteTopicResponse:
    """The partitions of one topic."""

    name: str = f(text)
    partitions: list[OffsetDeletePartitionResponse] = f(array(OffsetDeletePartitionResponse))


@message
class OffsetDeleteResponse:
    """``topics`` is empty beside an error of the group."""

    error_code: int = f(int16, default=0)
    throttle_time_ms: int = f(int32, default=0)
    topics: list[OffsetDeleteTopicResponse] = f(array(OffsetDeleteTopicResponse))


OFFSET_DELETE = Api(47, "OffsetDelete", OffsetDeleteRequest, OffsetDeleteResponse, highest=0, flexible_from=1)
