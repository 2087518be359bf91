"""DescribeCluster (60): the brokers and the controller, without topics (2.8, KIP-700)."""

from __future__ import annotations

from zkconsumer.wire.field_types import boolean, int8, int16, int32, text
from zkconsumer.wire.schemas.message_schema import Api, array, f, message
from zkconsumer.wire.schemas.metadata import UNKNOWN_OPERATIONS

ENDPOINT_TYPE_BROKER = 1
"""``endpoint_type`` of brokers; 2: controllers (3.7, KIP-919)."""


@message
class DescribeClusterRequest:
    """``include_fenced_brokers``: also brokers that are registered and not in service (4.0, KIP-1073)."""

    include_cluster_authorized_operations: bool = f(boolean, default=False)
    endpoint_type: int = f(int8, "1+", default=ENDPOINT_TYPE_BROKER, needed=True)
    include_fenced_brokers: bool = f(boolean, "2+", default=False, needed=True)


@message
class DescribeClusterBroker:
    """The address of one broker, for the listener that received the request."""

    broker_id: int = f(int32)
    host: str = f(text)
    port: int = f(int32)
    rack: str | None = f(text, nullable="0+", default=None)
    is_fenced: bool = f(boolean, "2+", default=False)


@message
class DescribeClusterResponse:
    """``controller_id`` −1: unknown."""

    throttle_time_ms: int = f(int32, default=0)
    error_code: int = f(int16, default=0)
    error_message: str | None = f(text, nullable="0+", default=None)
    endpoint_type: int = f(int8, "1+", default=ENDPOINT_TYPE_BROKER, needed=True)
    cluster_id: str = f(text)
    controller_id: int = f(int32, default=-1)
    brokers: list[DescribeClusterBroker] = f(array(DescribeClusterBroker))
    cluster_authorized_operations: int = f(int32, default=UNKNOWN_OPERATIONS)


DESCRIBE_CLUSTER = Api(
    60, "DescribeCluster", DescribeClusterRequest, DescribeClusterResponse, highest=2, flexible_from=0
)
