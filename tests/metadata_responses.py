"""Metadata responses for tests, as ``RequestTestUtils.metadataUpdateWith`` of Kafka makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zkconsumer.kafka.error_codes import ErrorCode
from zkconsumer.kafka.metadata.metadata import Metadata
from zkconsumer.types import INTERNAL_TOPICS
from zkconsumer.wire.field_types import NO_UUID
from zkconsumer.wire.schemas.metadata import MetadataBroker, MetadataPartition, MetadataResponse, MetadataTopic

LATEST = 12
"""The version of Metadata that clients use."""


def partition_row(index: int, leader_id: int = 0, leader_epoch: int = -1, **fields: object) -> MetadataPartition:
    """One replica, on the leader."""
    row = MetadataPartition(
        partition_index=index,
        leader_id=leader_id,
        leader_epoch=leader_epoch,
        replica_nodes=[leader_id],
        isr_nodes=[leader_id],
    )
    for name, value in fields.items():
        setattr(row, name, value)
    return row


def topic_row(name: str, *partitions: MetadataPartition, **fields: object) -> MetadataTopic:
    topic = MetadataTopic(name=name, partitions=list(partitions), is_internal=name in INTERNAL_TOPICS)
    for key, value in fields.items():
        setattr(topic, key, value)
    return topic


def metadata_response(*topics: MetadataTopic, nodes: int = 1, cluster_id: str | None = "dummy") -> MetadataResponse:
    """Nodes 0 to ``nodes`` − 1; the first is the controller."""
    brokers = [MetadataBroker(node_id=number, host="localhost", port=1969 + number) for number in range(nodes)]
    return MetadataResponse(brokers=brokers, cluster_id=cluster_id, controller_id=0, topics=list(topics))


def metadata_update(
    counts: Mapping[str, int] | None = None,
    *,
    nodes: int = 1,
    errors: Mapping[str, ErrorCode] | None = None,
    epoch: int | Callable[[int], int] = -1,
    topic_ids: Mapping[str, bytes] | None = None,
    cluster_id: str | None = "dummy",
) -> MetadataResponse:
    """Topics with so many partitions, and topics with errors; the leaders are the nodes in turn."""
    ids = topic_ids or {}
    epoch_of = epoch if callable(epoch) else lambda _: epoch
    good = [
        topic_row(
            name,
            *(partition_row(index, index % nodes, epoch_of(index)) for index in range(count)),
            topic_id=ids.get(name, NO_UUID),
        )
        for name, count in (counts or {}).items()
    ]
    bad = [
        topic_row(name, error_code=error.code, topic_id=ids.get(name, NO_UUID))
        for name, error in (errors or {}).items()
    ]
    return metadata_response(*good, *bad, nodes=nodes, cluster_id=cluster_id)


EMPTY = MetadataResponse(brokers=[], topics=[])


def update_now(
    metadata: Metadata, response: MetadataResponse, now_ms: int = 0, *, is_partial: bool = False, version: int = LATEST
) -> list[str]:
    """Take a response to the newest request; returns the log lines."""
    request = metadata.new_metadata_request_and_version(now_ms)
    return [str(line) for line in metadata.update(request.request_version, response, version, is_partial, now_ms)]
