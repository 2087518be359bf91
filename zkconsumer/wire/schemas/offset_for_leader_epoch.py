"""OffsetForLeaderEpoch (23): the end offset of a leader epoch in a partition's log (0.11, KIP-101).

Followers use it to truncate their logs; consumers use it to detect that records which they read were truncated (2.1,
KIP-320).
"""

from __future__ import annotations

from zkconsumer.wire.field_types import int16, int32, int64, text
from zkconsumer.wire.schemas.message_schema import Api, array, f, message

CONSUMER_REPLICA_ID = -1
"""``replica_id`` of a consumer."""

DEBUGGING_REPLICA_ID = -2
"""``replica_id`` of a client that may read records above the high watermark; versions without the field mean this."""

NO_EPOCH = -1


@message
class OffsetForLeaderPartition:
    """``leader_epoch``: the epoch whose end is requested.  ``current_leader_epoch``: the present one for the client."""

    partition: int = f(int32)
    current_leader_epoch: int = f(int32, "2+", default=NO_EPOCH)
    leader_epoch: int = f(int32)


@message
class OffsetForLeaderTopic:
    """The partitions of one topic."""

    topic: str = f(text)
    partitions: list[OffsetForLeaderPartition] = f(array(OffsetForLeaderPartition))


@message
class OffsetForLeaderEpochRequest:
    """One entry for each partition."""

    replica_id: int = f(int32, "3+", default=DEBUGGING_REPLICA_ID)
    topics: list[OffsetForLeaderTopic] = f(array(OffsetForLeaderTopic))


@message
class OffsetForLeaderPartitionResponse:
    """The end of the largest epoch that is not above the requested one; −1: none."""

    error_code: int = f(int16, default=0)
    partition: int = f(int32)
    leader_epoch: int = f(int32, "1+", default=NO_EPOCH)
    end_offset: int = f(int64, default=-1)


@message
class OffsetForLeaderTopicResponse:
    """The partitions of one topic."""

    topic: str = f(text)
    partitions: list[OffsetForLeaderPartitionResponse] = f(array(OffsetForLeaderPartitionResponse))


@message
class OffsetForLeaderEpochResponse:
    """One entry for each requested partition."""

    throttle_time_ms: int = f(int32, "2+", default=0)
    topics: list[OffsetForLeaderTopicResponse] = f(array(OffsetForLeaderTopicResponse))


OFFSET_FOR_LEADER_EPOCH = Api(
    23,
    "OffsetForLeaderEpoch",
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    highest=4,
    flexible_from=4,
)
