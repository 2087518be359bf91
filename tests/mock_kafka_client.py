"""``MockKafkaClient``: a network client without a network, as ``MockClient`` of Kafka's tests.

Requests and responses are encoded and decoded, so that the versions and the codecs are those of the product.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.fake_client_requests import NumberedRequests, decoded_response
from tests.metadata_responses import LATEST, update_now
from zkconsumer.base.timer import FOREVER_MS
from zkconsumer.errors import AuthenticationException, UnsupportedVersionException, UsageError
from zkconsumer.kafka.metadata.consumer_metadata import ConsumerMetadata
from zkconsumer.kafka.metadata.node import Node
from zkconsumer.kafka.net.client_request import (
    ClientRequest,
    ClientResponse,
)
from zkconsumer.kafka.supported_versions import SupportedVersions, VersionRange
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.wire.request_frames import SIZE_BYTES, decode_request, encode_request
from zkconsumer.wire.schemas.metadata import MetadataResponse

LOGIN_BACKOFF_MS = 50

LATER: Final = object()
"""What ``MockKafkaClient.respond_to`` returns instead of a response: the request stays in flight."""


@dataclass
class SentRequest:
    """A request in flight; ``body`` as a broker reads it."""

    request: ClientRequest
    version: int
    body: Any


@dataclass
class PreparedResponse:
    body: Any
    node_id: int | None
    was_disconnected: bool
    check: Callable[[Any], None]


class MockKafkaClient(NumberedRequests):
    """A ``KafkaClient``.  ``versions``: what ``supported_versions`` shows; ``limits``: versions of an API.

    ``respond_to`` answers each request for which no response is prepared.  ``sent`` has all requests that were sent.
    """

    def __init__(self, clock: ManualClock, metadata: ConsumerMetadata) -> None:
        super().__init__()
        self.clock = clock
        self.metadata = metadata
        self.prepared: deque[PreparedResponse] = deque()
        self.requests: deque[SentRequest] = deque()
        self.completed: deque[ClientResponse] = deque()
        self.metadata_updates: deque[MetadataResponse] = deque()
        self.last_metadata = MetadataResponse(brokers=[], topics=[])
        self.unavailable_until_ms: dict[int, int] = {}
        self.authentication_errors: dict[int, AuthenticationException] = {}
        self.next_login_error: AuthenticationException | None = None
        self.versions: dict[int, SupportedVersions] = {}
        self.limits: dict[int, VersionRange] = {}
        self.connected: set[int] = set()
        self.on_wakeup: Callable[[], None] = lambda: None
        self.on_wait: Callable[[int], None] = clock.move
        """Called with the ms of a poll that waits."""
        self.respond_to: Callable[[SentRequest], Any] = lambda sent: LATER
        self.sent: list[SentRequest] = []
        self.is_closed = False

    # --- what a test says ---------------------------------------------------------------------------------------------

    def prepare(
        self,
        body: Any,
        *,
        node_id: int | None = None,
        was_disconnected: bool = False,
        check: Callable[[Any], None] = lambda body: None,
    ) -> None:
        """Answer the next request, to this node if one is given; ``check`` is called with its body."""
        self.prepared.append(PreparedResponse(body, node_id, was_disconnected, check))

    def respond(self, body: Any, *, node_id: int | None = None) -> None:
        """Answer the oldest request in flight, to this node if one is given, at the next poll."""
        sent = next(each for each in self.requests if node_id in (None, each.request.destination))
        self.requests.remove(sent)
        self._answer(sent, body)

    def answer(self, sent: SentRequest) -> None:
        """Let ``respond_to`` answer a request in flight, perhaps once more."""
        body = self.respond_to(sent)
        if body is not LATER:
            self.requests.remove(sent)
            self._answer(sent, body)

    def backoff(self, node_id: int, ms: int) -> None:
        """The connection has failed, and may be tried again then."""
        self.unavailable_until_ms[node_id] = self.clock.now_ms() + ms

    def update_metadata(self, response: MetadataResponse, version: int = LATEST) -> None:
        self.last_metadata = response
        update_now(self.metadata, response, self.clock.now_ms(), version=version)

    # --- KafkaClient --------------------------------------------------------------------------------------------------

    def ready(self, node: Node, now_ms: int) -> bool:
        if self.next_login_error is not None:
            self.authentication_errors[node.id] = self.next_login_error
            self.next_login_error = None
            self.backoff(node.id, LOGIN_BACKOFF_MS)
        if self.connection_failed(node):
            return False
        self.authentication_errors.pop(node.id, None)
        self.connected.add(node.id)
        return True

    def send(self, request: ClientRequest, now_ms: int) -> None:
        builder = request.builder
        limit = self.limits.get(builder.api.key, VersionRange(0, builder.latest_allowed_version))
        version = min(builder.latest_allowed_version, limit.highest)
        if version < max(builder.version_min, limit.lowest):
            error = UnsupportedVersionException(f"{builder}: no common version")
            self.completed.append(ClientResponse(request, now_ms, version_mismatch=error))
            return
        try:
            frame = encode_request(builder.api, version, request.correlation_id, "test", builder.build(version))
        except UsageError as error:
            self.completed.append(ClientResponse(request, now_ms, version_mismatch=error))
            return
        sent = SentRequest(request, version, decode_request(frame[SIZE_BYTES:]).body)
        self.requests.append(sent)
        self.sent.append(sent)
        for prepared in self.prepared:
            if prepared.node_id in (None, request.destination):
                self.prepared.remove(prepared)
                prepared.check(sent.body)
                self.requests.remove(sent)
                self._answer(sent, prepared.body, was_disconnected=prepared.was_disconnected)
                return
        self.answer(sent)

    def poll(self, timeout_ms: int, now_ms: int) -> list[ClientResponse]:
        if self.metadata.update_requested:
            if self.metadata_updates:
                self.update_metadata(self.metadata_updates.popleft())
            else:
                self.clock.move(1)
                self.update_metadata(self.last_metadata)
        elif not self.completed and timeout_ms:
            assert timeout_ms < FOREVER_MS, "nothing would end this poll"
            self.on_wait(timeout_ms)
        done = list(self.completed)
        self.completed.clear()
        for response in done:
            response.on_complete()
        return done

    def wakeup(self) -> None:
        self.on_wakeup()

    def disconnect(self, node_id: int) -> None:
        for sent in [sent for sent in self.requests if sent.request.destination == node_id]:
            self.requests.remove(sent)
            self._answer(sent, None, was_disconnected=True)

    def close(self) -> None:
        self.is_closed = True

    def least_loaded_node(self, now_ms: int) -> Node | None:
        nodes = [node for node in self.metadata.fetch().nodes if not self.connection_failed(node)]
        return nodes[0] if nodes else None

    def receive_more(self, now_ms: int) -> bool:
        return False

    def has_ready_nodes(self, now_ms: int) -> bool:
        return True

    def connection_failed(self, node: Node) -> bool:
        return self.clock.now_ms() < self.unavailable_until_ms.get(node.id, 0)

    def connection_delay_ms(self, node: Node, now_ms: int) -> int:
        return max(0, self.unavailable_until_ms.get(node.id, 0) - now_ms)

    def poll_delay_ms(self, node: Node, now_ms: int) -> int:
        return 0

    def authentication_error(self, node: Node) -> AuthenticationException | None:
        return self.authentication_errors.get(node.id)

    def supported_versions(self, node: Node) -> SupportedVersions | None:
        return self.versions.get(node.id)

    def in_flight_request_count(self, node_id: int | None = None) -> int:
        return len(self.requests) + len(self.completed)

    def has_in_flight_requests(self, node_id: int | None = None) -> bool:
        return self.in_flight_request_count() > 0

    def _answer(self, sent: SentRequest, body: Any, *, was_disconnected: bool = False) -> None:
        request, now_ms = sent.request, self.clock.now_ms()
        if was_disconnected:
            self.completed.append(ClientResponse(request, now_ms, sent.version, was_disconnected=True))
            return
        answered = decoded_response(request, sent.version, body)
        self.completed.append(ClientResponse(request, now_ms, sent.version, answered))
