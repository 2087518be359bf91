"""Which node a consumer asks for which partitions, and the requests for them (``Fetcher.prepareFetchRequests``).  Pure.

    partitions that may be fetched --prepare_fetch_requests--> rows by node --FetchSessionHandler--> the changed rows
                                                                              --fetch_request--> RequestBuilder

A partition is left out of this round when

- its position has no leader: an update of the metadata is requested;
- a fetch is in flight to the node: its response has to be processed first;
- the node is disconnected and its back-off is not over, or its last login failed (which is raised).

*The node* is the leader, or the replica that the leader has named for this reader's rack (KIP-392), while its lease
lasts and it is online.

Difference from Java: requests use Fetch 13 (3.1) where the ids of all topics are known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from zkconsumer.kafka.fetch.fetch_config import FetchConfig
from zkconsumer.kafka.fetch.fetch_session import FetchSessionRequest
from zkconsumer.kafka.fetch.subscription_state import SubscriptionState
from zkconsumer.kafka.metadata.consumer_metadata import ConsumerMetadata
from zkconsumer.kafka.metadata.node import Node
from zkconsumer.kafka.net.client_request import RequestBuilder
from zkconsumer.types import TopicPartition
from zkconsumer.wire.fetch_codec import (
    FAST_FETCH,
    TOPIC_IDS_FROM,
    TOPIC_NAMES_VERSION_MAX,
    UNKNOWN_VALUE,
    VERSION_MAX,
    FetchRequestBody,
    partition_encoder,
)
from zkconsumer.wire.isolation_level import READ_UNCOMMITTED


class FetchRow(NamedTuple):
    """A partition in a request.  ``leader_epoch``: -1 if unknown.  ``bytes_max``: of its record set."""

    fetch_offset: int
    leader_epoch: int
    bytes_max: int


class NodeStates(Protocol):
    """The part of ``ConsumerNetworkClient`` that is used here."""

    def is_unavailable(self, node: Node) -> bool: ...

    def maybe_throw_auth_failure(self, node: Node) -> None: ...


def select_read_replica(
    subscriptions: SubscriptionState, metadata: ConsumerMetadata, tp: TopicPartition, leader: Node, now_ms: int
) -> Node:
    """The preferred replica while it is online, or else the leader; an offline replica is not preferred any more."""
    node_id = subscriptions.preferred_read_replica(tp, now_ms)
    if node_id is None:
        return leader
    node = metadata.fetch().node_if_online(tp, node_id)
    if node is None:
        subscriptions.clear_preferred_read_replica(tp)
        return leader
    return node


def prepare_fetch_requests(
    subscriptions: SubscriptionState,
    metadata: ConsumerMetadata,
    nodes: NodeStates,
    partitions: Iterable[TopicPartition],
    *,
    nodes_in_flight: Collection[int],
    fetch_size: int,
    now_ms: int,
) -> dict[Node, dict[TopicPartition, FetchRow]]:
    """The rows for each node that can be asked now; see the module.

    ``partitions``: with valid positions.  ``nodes_in_flight``: ids of nodes with a fetch in flight.
    ``AuthenticationException``: the last login at one of the nodes failed.
    """
    found: dict[Node, dict[TopicPartition, FetchRow]] = {}
    unavailable: set[Node] = set()
    for tp in partitions:
        state = subscriptions.assigned_state(tp)
        assert state is not None, "only an assigned partition is fetched"
        position = state.position
        assert position is not None, "only a partition with a position is fetched"
        leader = position.current_leader
        if leader.leader is None:
            metadata.request_update()
            continue
        node = leader.leader
        if state.preferred_read_replica(now_ms) is not None:
            node = select_read_replica(subscriptions, metadata, tp, node, now_ms)
        if node.id in nodes_in_flight or node in unavailable:
            continue
        rows = found.get(node)
        if rows is None:
            if nodes.is_unavailable(node):
                nodes.maybe_throw_auth_failure(node)
                unavailable.add(node)
                continue
            rows = found[node] = {}
        rows[tp] = FetchRow(position.offset, UNKNOWN_VALUE if leader.epoch is None else leader.epoch, fetch_size)
    return found


def fetch_request(config: FetchConfig, request: FetchSessionRequest[FetchRow]) -> RequestBuilder:
    """The Fetch request of a session."""

    limits = FetchLimits(
        config.max_wait_ms, config.min_bytes, config.max_bytes, config.isolation_level, config.client_rack_id
    )

    def build(version: int) -> FetchRequestBody:
        encode = partition_encoder(version)
        rows = {
            tp: encode(tp.partition, row.fetch_offset, row.bytes_max, row.leader_epoch)
            for tp, row in request.rows.items()
        }
        return fetch_body(request, rows, limits, by_ids=version >= TOPIC_IDS_FROM)

    return RequestBuilder(
        FAST_FETCH, build, version_max=VERSION_MAX if request.has_topic_ids else TOPIC_NAMES_VERSION_MAX
    )


class FetchLimits(NamedTuple):
    """What applies to a whole request.  ``client_rack_id``: empty if unknown."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int = READ_UNCOMMITTED
    client_rack_id: str = ""


def fetch_body(
    request: FetchSessionRequest[Any],
    rows: Mapping[TopicPartition, bytes],
    limits: FetchLimits,
    *,
    by_ids: bool = False,
) -> FetchRequestBody:
    """The body of a session's request, for streams and for ``poll``.

    ``rows``: those of the request, encoded (``partition_encoder``).  ``by_ids``: topics are named by their ids.
    """
    topics: dict[str, list[bytes]] = {}
    for tp, row in rows.items():
        topics.setdefault(tp.topic, []).append(row)
    forgotten: dict[str, list[int]] = {}
    for tp in request.forgotten:
        # By name, a topic that was created again is the same one: its partitions stay in the session.
        if by_ids or tp not in rows:
            forgotten.setdefault(tp.topic, []).append(tp.partition)
    return FetchRequestBody(
        limits.max_wait_ms,
        limits.min_bytes,
        limits.max_bytes,
        request.session_id,
        request.epoch,
        {request.topic_ids[topic]: encoded for topic, encoded in topics.items()} if by_ids else topics,
        {request.forgotten_topic_ids[topic]: numbers for topic, numbers in forgotten.items()} if by_ids else forgotten,
        limits.isolation_level,
        limits.client_rack_id,
    )
