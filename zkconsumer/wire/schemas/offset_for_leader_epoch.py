"""OffsetForLeaderEpoch (23): where a leader's reign ended in a partition's log (0.11, KIP-101).

Followers ask so where to cut their logs; consumers, whether what they have read still stands (2.1, KIP-320).
"""

from __future__ import annotations

from zkconsumer.wire.field_types import int16, int32, int64, text
from zkconsumer.wire.schemas.message_schema import Api, array, f, message

CONSUMER_REPLICA_ID = -1
"""``replica_id`` of a consumer."""

DEBUGGING_REPLICA_ID = -2
"""``replica_id`` of somebody who may see what is not committed yet; what older versions count as."""

NO_EPOCH = -1


@message
class OffsetForLeaderPartition:
    """``leader_epoch``: whose end is asked for.  ``current_leader_epoch``: who leads, as far as the asker knows."""

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
    """The end of the greatest epoch that is not above the one asked for; −1 where there is none."""

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
    """One entry for each partition that was asked for."""

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
