"""``TopicMetadataFetcher``: the partitions of topics, whether or not they are subscribed (``partitions_for``).  Pure.

As ``getTopicMetadata`` of ``Fetcher`` in Kafka 3.0.  Each attempt is one Metadata request, to the least loaded node.
After a transient failure, or an answer with a transient error, it waits for retry.backoff.ms and asks again, until the
timer expires.

Difference from Java: while it waits it polls the network client, so that ``wakeup`` ends it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from zkconsumer.base.timer import Timer
from zkconsumer.errors import TimeoutException
from zkconsumer.kafka.error_codes import (
    INVALID_TOPIC_EXCEPTION,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    BrokerError,
    ErrorCode,
)
from zkconsumer.kafka.metadata.cluster import PartitionInfo
from zkconsumer.kafka.metadata.metadata_request_builder import MetadataRequestBuilder
from zkconsumer.kafka.metadata.metadata_responses import cluster_from_response, topic_errors
from zkconsumer.kafka.metadata.node import Node
from zkconsumer.kafka.net.client_request import ClientResponse, RequestBuilder
from zkconsumer.kafka.net.request_future import RequestFuture
from zkconsumer.kafka.topic_errors import topic_exception_of
from zkconsumer.wire.schemas import METADATA

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock


class PolledNetworkClient(Protocol):
    """The part of ``ConsumerNetworkClient`` that is used here."""

    def least_loaded_node(self) -> Node | None: ...

    def send(self, node: Node, builder: RequestBuilder) -> RequestFuture[ClientResponse]: ...

    def poll_future(self, future: RequestFuture[ClientResponse], timer: Timer) -> bool: ...

    def poll(self, timer: Timer) -> None: ...


class TopicMetadataFetcher:
    """It keeps no state between calls."""

    def __init__(self, client: PolledNetworkClient, clock: Clock, retry_backoff_ms: int) -> None:
        self._client = client
        self._clock = clock
        self._retry_backoff_ms = retry_backoff_ms

    def get_all_topic_metadata(self, timer: Timer) -> dict[str, tuple[PartitionInfo, ...]]:
        """The partitions of all topics that this user may see."""
        return self.get_topic_metadata(MetadataRequestBuilder.all_topics(), timer)

    def get_topic_metadata(self, request: MetadataRequestBuilder, timer: Timer) -> dict[str, tuple[PartitionInfo, ...]]:
        """The partitions of the topics; a topic that does not exist is not in the result.

        ``TopicAuthorizationException``, ``InvalidTopicException``; ``BrokerError`` for another error that repeating
        does not cure; ``TimeoutException``: no usable answer arrived before the timer expired.
        """
        if not request.is_all_topics and not request.topics:
            return {}
        builder = RequestBuilder(METADATA, request.build, version_min=request.version_min)
        while True:
            response = self._ask(builder, timer)
            if response is not None:
                errors = topic_errors(response.body)
                if not self._must_retry(errors):
                    assert response.version is not None, "it was sent"
                    cluster = cluster_from_response(response.body, response.version)
                    return {topic: cluster.partitions_for_topic(topic) for topic in cluster.topics}
            pause = Timer(self._clock, min(self._retry_backoff_ms, timer.remaining_ms))
            while not pause.is_expired:
                self._client.poll(pause)
            timer.update()
            if timer.is_expired:
                raise TimeoutException(f"the topic metadata was not read within {timer.timeout_ms} ms")

    def _ask(self, builder: RequestBuilder, timer: Timer) -> ClientResponse | None:
        """The response; None if it did not arrive, and may arrive if it is asked for again."""
        node = self._client.least_loaded_node()
        if node is None:
            return None
        future = self._client.send(node, builder)
        self._client.poll_future(future, timer)
        if future.failed and not future.is_retriable:
            raise future.exception
        return future.value if future.succeeded else None

    @staticmethod
    def _must_retry(errors: Mapping[str, ErrorCode]) -> bool:
        """Whether an error is transient; raises those that are not."""
        refused = {topic: error for topic, error in errors.items() if error == TOPIC_AUTHORIZATION_FAILED}
        refused = refused or {topic: error for topic, error in errors.items() if error == INVALID_TOPIC_EXCEPTION}
        if refused:
            raise topic_exception_of(refused)
        must_retry = False
        for topic, error in errors.items():
            if error == UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if not error.is_retriable:
                raise BrokerError(error, f"Metadata of topic {topic!r}")
            must_retry = True
        return must_retry
