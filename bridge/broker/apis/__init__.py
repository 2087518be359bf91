"""The request handlers of a node, one file for each family of APIs.

Each handler is a function of the node and the call that returns the response body.  Fetch, which may wait, and Produce,
which may have no response, reply themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bridge.broker.apis.describe_configs import describe_configs
from bridge.broker.apis.fetch import handle_fetch
from bridge.broker.apis.list_offsets import list_offsets, offset_for_leader_epoch
from bridge.broker.apis.metadata import describe_cluster, handle_metadata
from bridge.broker.apis.produce import handle_produce, init_producer_id
from bridge.broker.apis.topic_admin import create_topics, delete_topics
from zkconsumer.wire.schemas import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    FETCH,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)

if TYPE_CHECKING:
    from bridge.broker.node import BrokerNode
    from bridge.coordinator.api_request import ApiHandler, ApiRequest

_IMMEDIATE_HANDLERS: dict[int, Callable[[BrokerNode, ApiRequest], Any]] = {
    METADATA.key: handle_metadata,
    DESCRIBE_CLUSTER.key: describe_cluster,
    LIST_OFFSETS.key: list_offsets,
    OFFSET_FOR_LEADER_EPOCH.key: offset_for_leader_epoch,
    INIT_PRODUCER_ID.key: init_producer_id,
    CREATE_TOPICS.key: create_topics,
    DELETE_TOPICS.key: delete_topics,
    DESCRIBE_CONFIGS.key: describe_configs,
}


def api_handlers(node: BrokerNode) -> dict[int, ApiHandler]:
    """API key → handler, of the APIs that are not about groups."""

    def at_once(answer: Callable[[BrokerNode, ApiRequest], Any]) -> ApiHandler:
        return lambda call: call.reply(answer(node, call))

    return {
        PRODUCE.key: lambda call: handle_produce(node, call),
        FETCH.key: lambda call: handle_fetch(node, call),
        **{key: at_once(answer) for key, answer in _IMMEDIATE_HANDLERS.items()},
    }
