"""DescribeConfigs: the settings of topics and nodes, as far as Java's tools request them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.broker.config import BrokerConfigEntry, broker_config_entries, topic_config_entries
from bridge.broker.topic_store import is_valid_topic_name
from bridge.coordinator.api_request import AclOperation
from zkconsumer.kafka.error_codes import (
    INVALID_REQUEST,
    INVALID_TOPIC_EXCEPTION,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode,
)
from zkconsumer.wire.schemas.describe_configs import (
    RESOURCE_TYPE_TOPIC,
    ConfigSynonym,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribedConfig,
    DescribedResource,
)

if TYPE_CHECKING:
    from bridge.broker.node import BrokerNode
    from bridge.coordinator.api_request import ApiRequest

BROKER_RESOURCE = 4
"""``resource_type`` of a broker."""

DYNAMIC_TOPIC_CONFIG, STATIC_BROKER_CONFIG, DEFAULT_CONFIG = 1, 4, 5
"""``config_source``: set for the topic, in the broker's file, and Kafka's default."""


def describe_configs(node: BrokerNode, call: ApiRequest) -> DescribeConfigsResponse:
    """Answer each resource separately, and only once: otherwise a short request has an unbounded response."""
    once = {
        (asked.resource_type, asked.resource_name, _key_set(asked.configuration_keys)): asked
        for asked in call.body.resources
    }
    return DescribeConfigsResponse(results=[_describe_resource(node, call, asked) for asked in once.values()])


def _key_set(asked: list[str] | None) -> frozenset[str] | None:
    return None if asked is None else frozenset(asked)


def _describe_resource(node: BrokerNode, call: ApiRequest, asked: DescribeConfigsResource) -> DescribedResource:
    match asked.resource_type:
        case t if t == RESOURCE_TYPE_TOPIC:
            return _describe_topic(node, call, asked)
        case t if t == BROKER_RESOURCE:
            if asked.resource_name not in ("", str(node.node_id)):
                words = f"Unexpected broker id, expected {node.node_id}, but received {asked.resource_name}"
                return _error_resource(asked, INVALID_REQUEST, words)
            return _described_resource(
                call,
                asked,
                [*broker_config_entries(node.cluster.config), *node.cluster.group_config_entries],
                STATIC_BROKER_CONFIG,
            )
    return _error_resource(asked, INVALID_REQUEST, f"resources of type {asked.resource_type} are not known here")


def _describe_topic(node: BrokerNode, call: ApiRequest, asked: DescribeConfigsResource) -> DescribedResource:
    name = asked.resource_name
    if not node.is_authorized(call, AclOperation.DESCRIBE, name):
        return _error_resource(asked, TOPIC_AUTHORIZATION_FAILED, None)
    topic = node.cluster.topics.get(name)
    if topic is None:
        return _error_resource(
            asked, UNKNOWN_TOPIC_OR_PARTITION if is_valid_topic_name(name) else INVALID_TOPIC_EXCEPTION, None
        )
    return _described_resource(
        call, asked, topic_config_entries(topic.config, node.cluster.config), DYNAMIC_TOPIC_CONFIG
    )


def _described_resource(
    call: ApiRequest, asked: DescribeConfigsResource, rows: list[BrokerConfigEntry], source: int
) -> DescribedResource:
    wanted = _key_set(asked.configuration_keys)
    configs = [
        DescribedConfig(
            name=row.key,
            value=row.value,
            read_only=source == STATIC_BROKER_CONFIG,
            is_default=row.is_default,
            config_source=DEFAULT_CONFIG if row.is_default else source,
            config_type=row.kind,
            synonyms=[ConfigSynonym(name=row.key, value=row.value, source=DEFAULT_CONFIG if row.is_default else source)]
            if call.body.include_synonyms
            else [],
        )
        for row in rows
        if wanted is None or row.key in wanted
    ]
    return DescribedResource(resource_type=asked.resource_type, resource_name=asked.resource_name, configs=configs)


def _error_resource(asked: DescribeConfigsResource, error: ErrorCode, words: str | None) -> DescribedResource:
    return DescribedResource(
        error_code=error.code,
        error_message=words,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
    )
