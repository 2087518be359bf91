"""Metadata (3): the brokers, and the leaders of partitions (Kafka 0.8).

In version 0 an empty list of topics means all topics; from version 1 on null means all, and an empty list none.  The
request may create a missing topic, unless the broker or (from version 4 on) the request forbids it.
"""

from __future__ import annotations

from zkconsumer.wire.field_types import NO_UUID, boolean, int16, int32, text, uuid
from zkconsumer.wire.schemas.message_schema import Api, array, f, message

UNKNOWN_OPERATIONS = -0x8000_0000
"""The value of an "authorized operations" field that was not requested (KIP-430)."""


@message
class MetadataRequestTopic:
    """A topic by name, or by id (2.8, KIP-516; brokers answer ids from version 12 on)."""

    topic_id: bytes = f(uuid, "10+", default=NO_UUID)
    name: str | None = f(text, nullable="10+")


@message
class MetadataRequest:
    """``topics`` None: all (from version 1)."""

    topics: list[MetadataRequestTopic] | None = f(array(MetadataRequestTopic), nullable="1+")
    allow_auto_topic_creation: bool = f(boolean, "4+", default=True)
    include_cluster_authorized_operations: bool = f(boolean, "8-10", default=False, needed=True)
    include_topic_authorized_operations: bool = f(boolean, "8+", default=False, needed=True)


@message
class MetadataBroker:
    """The address of one broker, for the listener that received the request."""

    node_id: int = f(int32)
    host: str = f(text)
    port: int = f(int32)
    rack: str | None = f(text, "1+", nullable="1+", default=None)


@message
class MetadataPartition:
    """``leader_id`` −1: no leader.  Error 9 (a replica is down) is possible together with a leader that works."""

    error_code: int = f(int16, default=0)
    partition_index: int = f(int32)
    leader_id: int = f(int32)
    leader_epoch: int = f(int32, "7+", default=-1)
    replica_nodes: list[int] = f(array(int32), default_factory=list)
    isr_nodes: list[int] = f(array(int32), default_factory=list)
    offline_replicas: list[int] = f(array(int32), "5+", default_factory=list)


@message
class MetadataTopic:
    """One topic; ``name`` None: the request contained an unknown id."""

    error_code: int = f(int16, default=0)
    name: str | None = f(text, nullable="12+")
    topic_id: bytes = f(uuid, "10+", default=NO_UUID)
    is_internal: bool = f(boolean, "1+", default=False)
    partitions: list[MetadataPartition] = f(array(MetadataPartition))
    topic_authorized_operations: int = f(int32, "8+", default=UNKNOWN_OPERATIONS)


@message
class MetadataResponse:
    """``controller_id`` −1: unknown.  ``error_code`` 129: bootstrap again (4.0, KIP-1102)."""

    throttle_time_ms: int = f(int32, "3+", default=0)
    brokers: list[MetadataBroker] = f(array(MetadataBroker))
    cluster_id: str | None = f(text, "2+", nullable="2+", default=None)
    controller_id: int = f(int32, "1+", default=-1)
    topics: list[MetadataTopic] = f(array(MetadataTopic))
    cluster_authorized_operations: int = f(int32, "8-10", default=UNKNOWN_OPERATIONS)
    error_code: int = f(int16, "13+", default=0)


METADATA = Api(3, "Metadata", MetadataRequest, MetadataResponse, highest=13, flexible_from=9, client_max=12)
