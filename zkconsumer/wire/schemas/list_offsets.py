"""ListOffsets (2), in the Scala consumer *Offsets*: the start or end of a partition, or the offset for a time (0.8).

Version 0 answers a list: the starts of the segments last written at or before the time, newest first.  From version 1
on (0.10.1, KIP-79) it answers the first offset whose timestamp is at or after the time, or −1.
"""

from __future__ import annotations

from zkconsumer.wire.field_types import int8, int16, int32, int64, text
from zkconsumer.wire.schemas.message_schema import Api, array, f, message

ISOLATION_LEVEL_FROM = 2
"""The version from which a request has an isolation level (0.11, KIP-98)."""


@message
class ListOffsetsPartition:
    """``timestamp``: milliseconds since 1970, or −1 (end), −2 (start), from version 7 −3 (newest timestamp).

    For tiered storage: from version 8 −4 (start of the local log), from 9 −5 (end of the tiered part), from 11 −6
    (start of the part that is not tiered yet).
    """

    partition_index: int = f(int32)
    current_leader_epoch: int = f(int32, "4+", default=-1)
    timestamp: int = f(int64)
    max_num_offsets: int = f(int32, "0", default=1)


@message
class ListOffsetsTopic:
    """The partitions of one topic."""

    name: str = f(text)
    partitions: list[ListOffsetsPartition] = f(array(ListOffsetsPartition))


@message
class ListOffsetsRequest:
    """``replica_id`` −1: a consumer.  ``isolation_level`` 1: the end is the last stable offset (0.11).

    ``timeout_ms``: how long the broker may search tiered storage (4.0, KIP-1075).
    """

    replica_id: int = f(int32, default=-1)
    isolation_level: int = f(int8, "2+", default=0, needed=True)
    topics: list[ListOffsetsTopic] = f(array(ListOffsetsTopic))
    timeout_ms: int = f(int32, "10+", default=0)


@message
class ListOffsetsPartitionResponse:
    """``old_style_offsets`` in version 0, ``timestamp`` and ``offset`` from version 1 on; −1: none."""

    partition_index: int = f(int32)
    error_code: int = f(int16, default=0)
    old_style_offsets: list[int] = f(array(int64), "0", default_factory=list)
    timestamp: int = f(int64, "1+", default=-1)
    offset: int = f(int64, "1+", default=-1)
    leader_epoch: int = f(int32, "4+", default=-1)


@message
class ListOffsetsTopicResponse:
    """The partitions of one topic."""

    name: str = f(text)
    partitions: list[ListOffsetsPartitionResponse] = f(array(ListOffsetsPartitionResponse))


@message
class ListOffsetsResponse:
    """One entry for each requested partition."""

    throttle_time_ms: int = f(int32, "2+", default=0)
    topics: list[ListOffsetsTopicResponse] = f(array(ListOffsetsTopicResponse))


LIST_OFFSETS = Api(2, "ListOffsets", ListOffsetsRequest, ListOffsetsResponse, highest=11, flexible_from=6, client_max=7)
