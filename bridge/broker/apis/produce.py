"""Produce and InitProducerId: the requests of producers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from bridge.broker.client_connection import CLOSE_CONNECTION
from bridge.broker.log.log_validator import (
    BATCHES_ONLY_FROM,
    ProduceRejected,
    is_one_batch,
    new_produce_allowance,
    validate_records,
)
from bridge.broker.topic_store import BROKER_INTERNAL_TOPICS
from bridge.coordinator.api_request import NO_TRANSACTIONS, AclOperation
from zkconsumer.kafka.error_codes import (
    INVALID_REQUIRED_ACKS,
    INVALID_TOPIC_EXCEPTION,
    KAFKA_STORAGE_ERROR,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    ErrorCode,
)
from zkconsumer.wire.schemas.init_producer_id import InitProducerIdResponse
from zkconsumer.wire.schemas.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceResponse,
    ProduceTopicResponse,
)

if TYPE_CHECKING:
    from bridge.broker.node import BrokerNode
    from bridge.coordinator.api_request import ApiRequest
    from zkconsumer.wire.entries import DecompressionBudget

TOPIC_IDS_FROM = 13
VALID_ACKS = (-1, 0, 1)

_log = logging.getLogger(__name__)


def handle_produce(node: BrokerNode, call: ApiRequest) -> None:
    """Store, then answer.  With acks=0 there is no response; an error then ends the connection, as in Kafka.

    Releases that check the batches while they read the request end the connection if it is not one batch.
    """
    if node.release.disconnects_on_invalid_batches and call.version >= BATCHES_ONLY_FROM:
        sent = [partition.records or b"" for topic in call.body.topic_data for partition in topic.partition_data]
        if not all(map(is_one_batch, sent)):
            call.reply(CLOSE_CONNECTION)
            return
    topics = []
    errors = 0
    allowance = new_produce_allowance()
    for topic in call.body.topic_data:
        name: str | None = topic.name
        if call.version >= TOPIC_IDS_FROM:
            found = node.cluster.topics.by_id(topic.topic_id)
            name = None if found is None else found.name
        rows = [_append_partition(node, call, name, sent, allowance) for sent in topic.partition_data]
        errors += sum(row.error_code != NONE.code for row in rows)
        topics.append(ProduceTopicResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows))
    if call.body.acks == 0:
        call.reply(CLOSE_CONNECTION if errors else None)
    else:
        call.reply(ProduceResponse(responses=topics))


def _append_partition(
    node: BrokerNode, call: ApiRequest, topic: str | None, sent: ProducePartition, allowance: DecompressionBudget
) -> ProducePartitionResponse:
    if topic is None:
        return _error_partition(sent, UNKNOWN_TOPIC_ID)
    if call.body.acks not in VALID_ACKS:
        return _error_partition(sent, INVALID_REQUIRED_ACKS)
    if call.body.transactional_id is not None:
        return _error_partition(sent, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_TRANSACTIONS)
    if not node.is_authorized(call, AclOperation.WRITE, topic):
        return _error_partition(sent, TOPIC_AUTHORIZATION_FAILED)
    if topic in BROKER_INTERNAL_TOPICS:
        return _error_partition(sent, INVALID_TOPIC_EXCEPTION, f"{topic} is the coordinator's")
    partition = node.partition_or_error(call, topic, sent.index)
    if isinstance(partition, ErrorCode):
        return _error_partition(sent, partition)
    log = partition.log
    checked = validate_records(sent.records or b"", call.version, log.settings.validation_rules, allowance)
    if isinstance(checked, ProduceRejected):
        return _error_partition(sent, checked.code, checked.message)
    try:
        stored = log.append_validated(checked, partition.leader_epoch, node.cluster.scheduler.now_ms())
    except OSError as error:
        node.cluster.disk_errors.append_failed(topic, sent.index, error)
        return _error_partition(sent, KAFKA_STORAGE_ERROR, str(error))
    if isinstance(stored, ProduceRejected):
        return _error_partition(sent, stored.code, stored.message)
    if not stored.is_duplicate:
        node.cluster.disk_errors.append_succeeded(topic, sent.index)
        node.cluster.fetch_purgatory.on_append(topic, sent.index, len(sent.records or b""))
    return ProducePartitionResponse(index=sent.index, base_offset=stored.first_offset, log_start_offset=log.start)


def _error_partition(sent: ProducePartition, error: ErrorCode, words: str | None = None) -> ProducePartitionResponse:
    return ProducePartitionResponse(index=sent.index, error_code=error.code, error_message=words)


def init_producer_id(node: BrokerNode, call: ApiRequest) -> InitProducerIdResponse:
    """A producer id for an idempotent producer without transactions."""
    if call.body.transactional_id is not None:
        return InitProducerIdResponse(error_code=TRANSACTIONAL_ID_AUTHORIZATION_FAILED.code)
    try:
        return InitProducerIdResponse(producer_id=node.cluster.topics.new_producer_id(), producer_epoch=0)
    except OSError as error:
        _log.error("producer-id-not-stored error=%s", error)
        return InitProducerIdResponse(error_code=KAFKA_STORAGE_ERROR.code)
