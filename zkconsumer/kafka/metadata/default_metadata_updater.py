"""``DefaultMetadataUpdater``: connects ``Metadata`` with the network machine, as the class of ``NetworkClient``.  Pure.

    IDLE --maybe_update, the update is due, a node is connected--> IN_PROGRESS
         <--handle_successful_response, handle_failed_request-----

One request is in progress at most (``_in_progress``: what ``Metadata.update`` needs for its response; None: IDLE).  The
machine calls exactly one of the two methods for each request sent, also when the connection ends or the request times
out, so no state waits forever.

Difference from Java: topics without metadata are logged in one line for each error, with a limit; Java logs all of them
in one line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from zkconsumer.kafka.client_log_event import ClientLogEvent
from zkconsumer.kafka.error_codes import LISTENER_NOT_FOUND, ErrorCode
from zkconsumer.kafka.metadata.metadata import Metadata, MetadataRequestAndVersion
from zkconsumer.kafka.metadata.metadata_responses import named_topics, topic_errors
from zkconsumer.kafka.net.client_request import RequestBuilder
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import METADATA

if TYPE_CHECKING:
    from zkconsumer.errors import AuthenticationException, ZkConsumerError
    from zkconsumer.kafka.metadata.node import Node
    from zkconsumer.kafka.net.metadata_updater import MetadataRequestSender
    from zkconsumer.wire.schemas.metadata import MetadataResponse

LOGGED_MAX = 10
"""How many partitions or topics one log line names."""


class DefaultMetadataUpdater:
    """The ``MetadataUpdater`` of a ``Metadata``.  ``request_timeout_ms``: request.timeout.ms."""

    def __init__(self, metadata: Metadata, request_timeout_ms: int) -> None:
        self._metadata = metadata
        self._request_timeout_ms = request_timeout_ms
        self._in_progress: MetadataRequestAndVersion | None = None

    def fetch_nodes(self) -> Sequence[Node]:
        return self._metadata.fetch().nodes

    def is_update_due(self, now_ms: int) -> bool:
        return self._in_progress is None and self._metadata.time_to_next_update(now_ms) == 0

    def maybe_update(self, now_ms: int, sender: MetadataRequestSender) -> int:
        wait_ms = max(
            self._metadata.time_to_next_update(now_ms), 0 if self._in_progress is None else self._request_timeout_ms
        )
        return wait_ms if wait_ms > 0 else sender.send_metadata_request(self._request_maker(now_ms), now_ms)

    def _request_maker(self, now_ms: int) -> Callable[[], RequestBuilder]:
        def new_request() -> RequestBuilder:
            assert self._in_progress is None, "one Metadata request is in progress at most"
            self._in_progress = asked = self._metadata.new_metadata_request_and_version(now_ms)
            return RequestBuilder(METADATA, asked.request_builder.build, version_min=asked.request_builder.version_min)

        return new_request

    def handle_server_disconnect(
        self, now_ms: int, node_id: int, authentication_error: AuthenticationException | None
    ) -> Sequence[ClientLogEvent]:
        cluster = self._metadata.fetch()
        node = cluster.node_by_id(node_id) if cluster.is_bootstrap_configured else None
        # An update that is due has failed with this connection: without this, it would be tried again without a pause.
        if self.is_update_due(now_ms):
            self._metadata.failed_update(now_ms)
        if authentication_error is not None:
            self._metadata.fatal_error(authentication_error)
        # The broker may have left the cluster.
        self._metadata.request_update()
        return () if node is None else (ClientLogEvent("WARNING", "bootstrap-broker-disconnected", (("node", node),)),)

    def handle_failed_request(self, now_ms: int, fatal_error: ZkConsumerError | None) -> Sequence[ClientLogEvent]:
        if fatal_error is not None:
            self._metadata.fatal_error(fatal_error)
        self._metadata.failed_update(now_ms)
        self._in_progress = None
        return ()

    def handle_successful_response(
        self, version: int, correlation_id: int, now_ms: int, response: MetadataResponse
    ) -> Sequence[ClientLogEvent]:
        asked, self._in_progress = self._in_progress, None
        assert asked is not None, "a Metadata request was sent"
        log = [*_missing_listeners(response), *_errors(topic_errors(response), correlation_id)]
        if not response.brokers:
            # A broker that starts may not have the metadata yet.
            self._metadata.failed_update(now_ms)
            return log
        return log + self._metadata.update(asked.request_version, response, version, asked.is_partial_update, now_ms)


def _missing_listeners(response: MetadataResponse) -> list[ClientLogEvent]:
    """Leaders without the listener that this client uses: a wrong configuration of the brokers, or a change of it."""
    found = [
        TopicPartition(name, row.partition_index)
        for name, topic in named_topics(response)
        for row in topic.partitions
        if row.error_code == LISTENER_NOT_FOUND.code
    ]
    if not found:
        return []
    fields = (("count", len(found)), ("partitions", ",".join(map(str, found[:LOGGED_MAX]))))
    return [ClientLogEvent("WARNING", "leaders-without-listener", fields)]


def _errors(errors: Mapping[str, ErrorCode], correlation_id: int) -> list[ClientLogEvent]:
    by_error: dict[ErrorCode, list[str]] = {}
    for topic, error in errors.items():
        by_error.setdefault(error, []).append(topic)
    return [
        ClientLogEvent(
            "WARNING",
            "metadata-error",
            (
                ("correlation_id", correlation_id),
                ("error", error.name),
                ("count", len(topics)),
                ("topics", ",".join(sorted(topics)[:LOGGED_MAX])),
            ),
        )
        for error, topics in by_error.items()
    ]
