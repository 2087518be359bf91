"""Fetch (1): record sets from a partition's log (Kafka 0.8).

Record sets are views of the received frame, not copied and not decoded.  Size −1 is valid in every version and is None
here; a broker sends it with error 76, for zstd records that it would have to convert.

The version determines the newest message format in the answer: 0 for versions 0 and 1, 1 for 2 and 3, 2 from 4 on; the
broker converts newer formats.  From version 3 on (0.10.1, KIP-74) the answer contains at least one complete message,
regardless of the limits.  From version 13 on (3.1, KIP-516) topics are identified by id instead of by name.
"""

from __future__ import annotations

from zkconsumer.wire.field_types import NO_UUID, int8, int16, int32, int64, record_set, text, uuid
from zkconsumer.wire.primitives import RecordSet
from zkconsumer.wire.schemas.leader_fields import LeaderIdAndEpoch, NodeEndpoint
from zkconsumer.wire.schemas.message_schema import Api, NestedMessageFieldType, array, f, message

RESPONSE_BYTES_UNLIMITED = 0x7FFF_FFFF
"""``max_bytes`` as the Scala consumer sends it from version 3 on: only the limits of the partitions apply."""

UNKNOWN_HIGH_WATERMARK = 0x7FFF_FFFF_FFFF_FFFF
"""``high_watermark`` in requests of consumers, which have none (4.1, KIP-1166)."""

SESSIONLESS_EPOCH = -1
"""``session_epoch`` of a fetch outside any session (1.1, KIP-227)."""


@message
class FetchPartition:
    """One partition to read.  ``partition_max_bytes``: the maximum size of its record set."""

    partition: int = f(int32)
    current_leader_epoch: int = f(int32, "9+", default=-1)
    fetch_offset: int = f(int64)
    last_fetched_epoch: int = f(int32, "12+", default=-1)
    log_start_offset: int = f(int64, "5+", default=-1)
    partition_max_bytes: int = f(int32)
    replica_directory_id: bytes = f(uuid, "17+", tag=0, default=NO_UUID)
    high_watermark: int = f(int64, "18+", tag=1, default=UNKNOWN_HIGH_WATERMARK)


@message
class FetchTopic:
    """The partitions of one topic."""

    topic: str = f(text, "0-12", default="")
    topic_id: bytes = f(uuid, "13+", default=NO_UUID)
    partitions: list[FetchPartition] = f(array(FetchPartition))


@message
class ForgottenTopic:
    """Partitions to remove from a fetch session (1.1, KIP-227)."""

    topic: str = f(text, "0-12", default="")
    topic_id: bytes = f(uuid, "13+", default=NO_UUID)
    partitions: list[int] = f(array(int32))


@message
class ReplicaState:
    """The broker that fetches, and its broker epoch (3.5, KIP-903)."""

    replica_id: int = f(int32, default=-1)
    replica_epoch: int = f(int64, default=-1)


@message
class FetchRequest:
    """``max_wait_ms``: how long the broker waits for ``min_bytes``.  ``max_bytes``: the limit for all partitions.

    ``replica_id`` up to version 14, ``replica_state`` from 15 on: −1 or None for a consumer.
    """

    replica_id: int = f(int32, "0-14", default=-1, needed=True)
    max_wait_ms: int = f(int32)
    min_bytes: int = f(int32)
    max_bytes: int = f(int32, "3+", default=RESPONSE_BYTES_UNLIMITED)
    isolation_level: int = f(int8, "4+", default=0)
    session_id: int = f(int32, "7+", default=0)
    session_epoch: int = f(int32, "7+", default=SESSIONLESS_EPOCH)
    topics: list[FetchTopic] = f(array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = f(array(ForgottenTopic), "7+", default_factory=list, needed=True)
    rack_id: str = f(text, "11+", default="")
    cluster_id: str | None = f(text, "12+", nullable="12+", tag=0, default=None)
    replica_state: ReplicaState | None = f(
        NestedMessageFieldType(ReplicaState), "15+", tag=1, default=None, needed=True
    )


@message
class EpochEndOffset:
    """The end of the common part of the leader's and the reader's log (2.7, KIP-595)."""

    epoch: int = f(int32, default=-1)
    end_offset: int = f(int64, default=-1)


@message
class SnapshotId:
    """A snapshot that the reader should fetch first (2.7, KIP-630)."""

    end_offset: int = f(int64, default=-1)
    epoch: int = f(int32, default=-1)


@message
class AbortedTransaction:
    """The transaction with the records of this producer from this offset up to its abort marker (0.11, KIP-98)."""

    producer_id: int = f(int64)
    first_offset: int = f(int64)


@message
class FetchPartitionResponse:
    """``records``: the undecoded bytes, whose last entry may be incomplete; None: a null record set."""

    partition_index: int = f(int32)
    error_code: int = f(int16, default=0)
    high_watermark: int = f(int64)
    last_stable_offset: int = f(int64, "4+", default=-1)
    log_start_offset: int = f(int64, "5+", default=-1)
    aborted_transactions: list[AbortedTransaction] | None = f(
        array(AbortedTransaction), "4+", nullable="4+", default=None
    )
    preferred_read_replica: int = f(int32, "11+", default=-1)
    records: RecordSet | None = f(record_set, nullable="0+")
    diverging_epoch: EpochEndOffset | None = f(NestedMessageFieldType(EpochEndOffset), "12+", tag=0, default=None)
    current_leader: LeaderIdAndEpoch | None = f(NestedMessageFieldType(LeaderIdAndEpoch), "12+", tag=1, default=None)
    snapshot_id: SnapshotId | None = f(NestedMessageFieldType(SnapshotId), "12+", tag=2, default=None)


@message
class FetchTopicResponse:
    """The partitions of one topic."""

    topic: str = f(text, "0-12", default="")
    topic_id: bytes = f(uuid, "13+", default=NO_UUID)
    partitions: list[FetchPartitionResponse] = f(array(FetchPartitionResponse))


@message
class FetchResponse:
    """``error_code``: the error of the whole answer (fetch sessions); each partition has its own error.

    ``node_endpoints``: the addresses of the leaders in the partitions (3.7, KIP-951).
    """

    throttle_time_ms: int = f(int32, "1+", default=0)
    error_code: int = f(int16, "7+", default=0)
    session_id: int = f(int32, "7+", default=0)
    responses: list[FetchTopicResponse] = f(array(FetchTopicResponse))
    node_endpoints: list[NodeEndpoint] = f(array(NodeEndpoint), "16+", tag=0, default_factory=list)


FETCH = Api(1, "Fetch", FetchRequest, FetchResponse, highest=18, flexible_from=12, client_max=12)
