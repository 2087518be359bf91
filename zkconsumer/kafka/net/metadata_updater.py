"""What the network machine asks of the cluster metadata, as ``org.apache.kafka.clients.MetadataUpdater``.  Pure.

The network machine and the metadata do not import each other.  The machine calls a ``MetadataUpdater`` before each poll
and for each event that concerns metadata.  The updater decides when a Metadata request is due and what it contains; the
machine decides to which node it goes, and sends it (``MetadataRequestSender``).

    before each poll             maybe_update(now, sender) --when due--> sender.send_metadata_request(new_request, now)
    the response has arrived     handle_successful_response
    the node was lost, or it
    supports no usable version   handle_failed_request            (exactly one of these two for each request sent)
    any node was lost            handle_server_disconnect         (after handle_failed_request, if both)

``ManualMetadataUpdater`` has a list of nodes that a program sets, and sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from zkconsumer.base.timer import FOREVER_MS
from zkconsumer.errors import AuthenticationException, ZkConsumerError
from zkconsumer.kafka.client_log_event import ClientLogEvent
from zkconsumer.kafka.metadata.node import Node
from zkconsumer.kafka.net.client_request import RequestBuilder
from zkconsumer.wire.schemas.metadata import MetadataResponse


class MetadataRequestSender(Protocol):
    """The part of the network machine that a ``MetadataUpdater`` uses."""

    def send_metadata_request(self, new_request: Callable[[], RequestBuilder], now_ms: int) -> int:
        """Send a Metadata request to the least loaded node, or connect to a node first.

        ``new_request`` is called only if the request is sent by this call; then ``handle_successful_response`` or
        ``handle_failed_request`` follows.  Returns how long the next call of ``maybe_update`` may wait, in ms: the
        request timeout if the request was sent, ``reconnect.backoff.ms`` if no node is connected.
        """


class MetadataUpdater(Protocol):
    """Keeps the cluster metadata for the network machine, which calls it in one thread at a time."""

    def fetch_nodes(self) -> Sequence[Node]:
        """The nodes of the cluster as last known; bootstrap addresses (negative ids) before the first response."""

    def is_update_due(self, now_ms: int) -> bool:
        """Whether an update is due and no request is in progress.  Meanwhile no node is ready for other requests."""

    def maybe_update(self, now_ms: int, sender: MetadataRequestSender) -> int:
        """Send a Metadata request through ``sender`` if one is due; returns the ms until this must be called again."""

    def handle_server_disconnect(
        self, now_ms: int, node_id: int, authentication_error: AuthenticationException | None
    ) -> Sequence[ClientLogEvent]:
        """A connection ended, or could not be established.  ``authentication_error``: why, if the login failed."""

    def handle_failed_request(self, now_ms: int, fatal_error: ZkConsumerError | None) -> Sequence[ClientLogEvent]:
        """The Metadata request in progress gets no response.  ``fatal_error``: repeating it is of no use."""

    def handle_successful_response(
        self, version: int, correlation_id: int, now_ms: int, response: MetadataResponse
    ) -> Sequence[ClientLogEvent]:
        """The response to the Metadata request in progress; ``version`` is that of the request (0 to 12)."""


class ManualMetadataUpdater:
    """A ``MetadataUpdater`` of fixed nodes, for clients that need no metadata (Java's ``ManualMetadataUpdater``).

    It is also the ``ConsumerClusterMetadata`` of a ``ConsumerNetworkClient`` that needs none.
    """

    update_version = 0
    update_requested = False

    def __init__(self, nodes: Sequence[Node] = ()) -> None:
        self._nodes = tuple(nodes)

    def request_update(self) -> int:
        return self.update_version

    def time_to_next_update(self, now_ms: int) -> int:
        return FOREVER_MS

    def maybe_throw_any_exception(self) -> None:
        """There is none."""

    def set_nodes(self, nodes: Sequence[Node]) -> None:
        """Replace the nodes."""
        self._nodes = tuple(nodes)

    def fetch_nodes(self) -> Sequence[Node]:
        return self._nodes

    def is_update_due(self, now_ms: int) -> bool:
        return False

    def maybe_update(self, now_ms: int, sender: MetadataRequestSender) -> int:
        return FOREVER_MS

    def handle_server_disconnect(
        self, now_ms: int, node_id: int, authentication_error: AuthenticationException | None
    ) -> Sequence[ClientLogEvent]:
        return ()

    def handle_failed_request(self, now_ms: int, fatal_error: ZkConsumerError | None) -> Sequence[ClientLogEvent]:
        return ()

    def handle_successful_response(
        self, version: int, correlation_id: int, now_ms: int, response: MetadataResponse
    ) -> Sequence[ClientLogEvent]:
        return ()
