"""Produce (0): append record sets (Kafka 0.8).  For tests and tools; the consumer itself never sends it.

The version determines the message format of the record sets: 0 for versions 0 and 1, 1 for 2, 2 from 3 on.  With
``acks`` 0 the broker sends no answer.  Version 13 (4.1, KIP-516) identifies topics by id instead of by name.
"""

from __future__ import annotations

from zkconsumer.wire.field_types import NO_UUID, int16, int32, int64, record_set, text, uuid
from zkconsumer.wire.primitives import RecordSet
from zkconsumer.wire.schemas.leader_fields import LeaderIdAndEpoch, NodeEndpoint
from zkconsumer.wire.schemas.message_schema import Api, NestedMessageFieldType, array, f, message


@message
class ProducePartition:
    """One record set; the broker assigns its offsets."""

    index: int = f(int32)
    records: RecordSet | None = f(record_set, nullable="0+")


@message
class ProduceTopic:
    """The partitions of one topic."""

    name: str = f(text, "0-12", default="")
    topic_id: bytes = f(uuid, "13+", default=NO_UUID)
    partition_data: list[ProducePartition] = f(array(ProducePartition))


@message
class ProduceRequest:
    """``acks``: 0 none (the broker sends no answer), 1 the leader, −1 all in-sync replicas."""

    transactional_id: str | None = f(text, "3+", nullable="3+", default=None, needed=True)
    acks: int = f(int16)
    timeout_ms: int = f(int32)
    topic_data: list[ProduceTopic] = f(array(ProduceTopic))


@message
class BatchIndexAndErrorMessage:
    """An invalid record of a rejected batch (2.4, KIP-467)."""

    batch_index: int = f(int32)
    batch_index_error_message: str | None = f(text, nullable="0+", default=None)


@message
class ProducePartitionResponse:
    """``base_offset``: the offset of the first record; ``log_append_time_ms`` −1: the records keep their timestamps."""

    index: int = f(int32)
    error_code: int = f(int16, default=0)
    base_offset: int = f(int64, default=-1)
    log_append_time_ms: int = f(int64, "2+", default=-1)
    log_start_offset: int = f(int64, "5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = f(array(BatchIndexAndErrorMessage), "8+", default_factory=list)
    error_message: str | None = f(text, "8+", nullable="8+", default=None)
    current_leader: LeaderIdAndEpoch | None = f(NestedMessageFieldType(LeaderIdAndEpoch), "10+", tag=0, default=None)


@message
class ProduceTopicResponse:
    """The partitions of one topic."""

    name: str = f(text, "0-12", default="")
    topic_id: bytes = f(uuid, "13+", default=NO_UUID)
    partition_responses: list[ProducePartitionResponse] = f(array(ProducePartitionResponse))


@message
class ProduceResponse:
    """One entry for each record set.  ``node_endpoints``: the addresses of the leaders in them (3.7, KIP-951)."""

    responses: list[ProduceTopicResponse] = f(array(ProduceTopicResponse))
    throttle_time_ms: int = f(int32, "1+", default=0)
    node_endpoints: list[NodeEndpoint] = f(array(NodeEndpoint), "10+", tag=0, default_factory=list)


PRODUCE = Api(0, "Produce", ProduceRequest, ProduceResponse, highest=13, flexible_from=9, client_max=9)
