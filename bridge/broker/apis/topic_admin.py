"""CreateTopics and DeleteTopics; every node handles them, since all nodes share the topics."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from bridge.broker.config import read_topic_config, topic_config_entries
from bridge.broker.topic_store import (
    BROKER_INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    PARTITIONS_MAX,
    BrokerTopic,
    NewTopic,
    is_valid_topic_name,
)
from bridge.coordinator.api_request import AclOperation
from zkconsumer.errors import UsageError
from zkconsumer.kafka.error_codes import (
    INVALID_CONFIG,
    INVALID_PARTITIONS,
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR,
    INVALID_REQUEST,
    INVALID_TOPIC_EXCEPTION,
    KAFKA_STORAGE_ERROR,
    POLICY_VIOLATION,
    TOPIC_ALREADY_EXISTS,
    TOPIC_AUTHORIZATION_FAILED,
    TOPIC_DELETION_DISABLED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode,
)
from zkconsumer.wire.schemas.create_topics import (
    BROKER_DEFAULT,
    CreatableTopic,
    CreatedTopic,
    CreatedTopicConfig,
    CreateTopicsResponse,
)
from zkconsumer.wire.schemas.delete_topics import (
    TOPIC_STATES_FROM,
    DeletedTopic,
    DeleteTopicsResponse,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from bridge.broker.broker_cluster import BrokerCluster
    from bridge.broker.node import BrokerNode
    from bridge.coordinator.api_request import ApiRequest

BROKER_DEFAULTS_FROM = 4
"""The version from which both numbers may be the broker's defaults (2.4, KIP-464)."""

DYNAMIC_TOPIC_CONFIG, DEFAULT_CONFIG = 1, 5
"""``config_source``: set for the topic, and Kafka's default."""

_log = logging.getLogger(__name__)


class _TopicRequestError(Exception):
    """Why a topic cannot be created or deleted."""

    def __init__(self, code: ErrorCode, words: str) -> None:
        super().__init__(words)
        self.code = code


def create_topics(node: BrokerNode, call: ApiRequest) -> CreateTopicsResponse:
    """Check each topic separately and reject names that occur twice; create the valid ones together."""
    times = Counter(asked.name for asked in call.body.topics)
    rows: dict[str, CreatedTopic] = {}
    new: list[NewTopic] = []
    for name, asked in {asked.name: asked for asked in call.body.topics}.items():
        try:
            if times[name] > 1:
                raise _TopicRequestError(INVALID_REQUEST, "the topic is named twice")
            rows[name], topic = _validate_topic(node, call, asked, len(new))
            new.append(topic)
        except _TopicRequestError as refused:
            rows[name] = _error_topic(name, refused)
    try:
        if sum(len(topic.replicas) for topic in new) > PARTITIONS_MAX:
            raise _TopicRequestError(
                POLICY_VIOLATION, f"one request makes {PARTITIONS_MAX} partitions at most; send several"
            )
        for made in [] if call.body.validate_only else _create(node.cluster, new):
            rows[made.name].topic_id = made.topic_id
    except _TopicRequestError as refused:
        rows |= {topic.name: _error_topic(topic.name, refused) for topic in new}
    return CreateTopicsResponse(topics=list(rows.values()))


def _error_topic(name: str, refused: _TopicRequestError) -> CreatedTopic:
    return CreatedTopic(name=name, error_code=refused.code.code, error_message=str(refused))


def _create(cluster: BrokerCluster, new: list[NewTopic]) -> list[BrokerTopic]:
    try:
        return cluster.create_topics(new)
    except OSError as error:
        _log.error("topic-creation-failed topics=%d first=%s error=%s", len(new), new[0].name, error)
        raise _TopicRequestError(KAFKA_STORAGE_ERROR, str(error)) from error


def _validate_topic(
    node: BrokerNode, call: ApiRequest, asked: CreatableTopic, topics_before: int
) -> tuple[CreatedTopic, NewTopic]:
    """The response and the topic to create; ``topics_before``: how many topics of the request come before this one."""
    cluster = node.cluster
    if not node.is_authorized(call, AclOperation.CREATE, asked.name):
        raise _TopicRequestError(TOPIC_AUTHORIZATION_FAILED, "this user may not create it")
    if not is_valid_topic_name(asked.name):
        raise _TopicRequestError(
            INVALID_TOPIC_EXCEPTION, "a topic's name has 1 to 249 of the characters a-z A-Z 0-9 . _ -"
        )
    if cluster.topics.get(asked.name) is not None:
        raise _TopicRequestError(TOPIC_ALREADY_EXISTS, f"Topic '{asked.name}' already exists.")
    if asked.name in BROKER_INTERNAL_TOPICS:
        raise _TopicRequestError(
            INVALID_REQUEST, f"the broker makes {OFFSETS_TOPIC} itself, when a coordinator is asked for"
        )
    try:
        config = read_topic_config({row.name: row.value for row in asked.configs})
    except UsageError as error:
        raise _TopicRequestError(INVALID_CONFIG, str(error)) from error
    replicas = (
        _manual_assignment(cluster, asked)
        if asked.assignments
        else _automatic_assignment(cluster, asked, call.version, topics_before)
    )
    row = CreatedTopic(
        name=asked.name,
        num_partitions=len(replicas),
        replication_factor=len(replicas[0]),
        configs=[
            CreatedTopicConfig(
                name=key, value=value, config_source=DEFAULT_CONFIG if is_default else DYNAMIC_TOPIC_CONFIG
            )
            for key, value, _, is_default in (
                (row.key, row.value, row.kind, row.is_default) for row in topic_config_entries(config, cluster.config)
            )
        ],
    )
    return row, NewTopic(asked.name, replicas, config.to_properties())


def _automatic_assignment(
    cluster: BrokerCluster, asked: CreatableTopic, version: int, topics_before: int
) -> list[tuple[int, ...]]:
    partitions, factor = asked.num_partitions, asked.replication_factor
    if version < BROKER_DEFAULTS_FROM and BROKER_DEFAULT in (partitions, factor):
        raise _TopicRequestError(
            INVALID_PARTITIONS, f"-1 means the broker's default from version {BROKER_DEFAULTS_FROM} on"
        )
    if partitions == BROKER_DEFAULT:
        partitions = cluster.config.num_partitions
    if factor == BROKER_DEFAULT:
        factor = min(cluster.config.default_replication_factor, len(cluster.nodes))
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise _TopicRequestError(
            INVALID_PARTITIONS, f"a topic has 1 to {PARTITIONS_MAX} partitions here, not {partitions}"
        )
    if not 1 <= factor <= len(cluster.nodes):
        words = f"Replication factor: {factor} larger than available brokers: {len(cluster.nodes)}."
        raise _TopicRequestError(INVALID_REPLICATION_FACTOR, words)
    return cluster.topics.assign_replicas(partitions, factor, topics_before)


def _manual_assignment(cluster: BrokerCluster, asked: CreatableTopic) -> list[tuple[int, ...]]:
    if asked.num_partitions != BROKER_DEFAULT or asked.replication_factor != BROKER_DEFAULT:
        raise _TopicRequestError(INVALID_REQUEST, "both numbers must be -1 beside an assignment")
    by_index = {row.partition_index: tuple(row.broker_ids) for row in asked.assignments}
    is_whole = sorted(by_index) == list(range(len(asked.assignments)))
    sizes = {len(ids) for ids in by_index.values()}
    if not is_whole or len(asked.assignments) > PARTITIONS_MAX:
        raise _TopicRequestError(INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered from 0 without a gap")
    for ids in by_index.values():
        if not ids or len(set(ids)) != len(ids) or any(node_id not in cluster.nodes for node_id in ids):
            raise _TopicRequestError(
                INVALID_REPLICA_ASSIGNMENT, f"replicas {list(ids)}: the nodes are {sorted(cluster.nodes)}"
            )
    if len(sizes) != 1:
        raise _TopicRequestError(INVALID_REPLICA_ASSIGNMENT, "all partitions must have as many replicas")
    return [by_index[index] for index in sorted(by_index)]


def delete_topics(node: BrokerNode, call: ApiRequest) -> DeleteTopicsResponse:
    """Check each topic separately; delete the valid ones together."""
    if call.version >= TOPIC_STATES_FROM:
        asked = call.body.topics
    else:
        asked = [DeleteTopicState(name=name) for name in call.body.topic_names]
    rows = []
    to_delete: dict[str, tuple[BrokerTopic, DeletedTopic]] = {}
    for state in asked:
        topic = node.cluster.topics.by_id(state.topic_id) if state.name is None else node.cluster.topics.get(state.name)
        if topic is not None and topic.name in to_delete:
            topic = None
        try:
            found = _validate_deletion(node, call, state, topic)
            row = DeletedTopic(name=found.name, topic_id=found.topic_id)
            to_delete[found.name] = found, row
        except _TopicRequestError as refused:
            row = DeletedTopic(name=state.name, topic_id=state.topic_id)
            row.error_code, row.error_message = refused.code.code, str(refused)
        rows.append(row)
    try:
        node.cluster.delete_topics([topic for topic, _ in to_delete.values()])
    except OSError as error:
        _log.error("topic-deletion-failed topics=%d first=%s error=%s", len(to_delete), next(iter(to_delete)), error)
        for _, row in to_delete.values():
            row.error_code, row.error_message = KAFKA_STORAGE_ERROR.code, str(error)
    return DeleteTopicsResponse(responses=rows)


def _validate_deletion(
    node: BrokerNode, call: ApiRequest, asked: DeleteTopicState, topic: BrokerTopic | None
) -> BrokerTopic:
    name = asked.name if topic is None else topic.name
    if name is not None and not node.is_authorized(call, AclOperation.DELETE, name):
        raise _TopicRequestError(TOPIC_AUTHORIZATION_FAILED, "this user may not delete it")
    if topic is None:
        code = UNKNOWN_TOPIC_ID if asked.name is None else UNKNOWN_TOPIC_OR_PARTITION
        raise _TopicRequestError(code, "This server does not host this topic-partition.")
    if not node.cluster.config.delete_topic_enable:
        raise _TopicRequestError(TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    if topic.is_internal:
        raise _TopicRequestError(INVALID_REQUEST, f"{topic.name} is the coordinator's, and is not deleted here")
    return topic
