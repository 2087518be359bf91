"""``NetworkMachine``: every decision of the network client, as ``org.apache.kafka.clients.NetworkClient``.  Pure.

The caller (``network_client``) executes the commands and feeds the events (``network_messages``); this machine has no
socket and no clock.  Methods append commands, which ``take_commands`` returns in their order.

Theory of operation, for one node:

    ready(node) --> ResolveHost --> HostResolved --> OpenConnection --> NodeConnected --> ApiVersions --> READY
                        |                                 |                                   |
                        '---------- failure: NodeDisconnected, or a time-out -----------------'--> back-off, ready()

- The machine connects only when it is asked for a node (``ready``, or a Metadata request).  So a lost connection is
  opened again by the next request, after the back-off of ``connection_states``.
- Requests of one connection are answered in their order.  A response belongs to the oldest request in flight; only a
  broker of 0.9 skips one, namely ApiVersions (``api_versions_discovery``).
- What happens when an answer is lost: a request that is late by its own time-out ends its whole connection, since all
  later answers of that connection would be late, too.  Then every request in flight there completes with
  ``was_disconnected``.  A connection that is not established in time ends in the same way.
- Internal requests (ApiVersions and its probe, Metadata of the ``MetadataUpdater``) are not reported to the caller.
- A request for which the node has no version is not sent; it completes with ``version_mismatch``.
- A response with ``throttle_time_ms`` mutes its connection for so long (KIP-219, ``client_throttling``).
- A connection without traffic for ``connections_max_idle_ms`` and without a request in flight is closed, before the
  broker does the same (its default is 10 min) while a request is on its way.

Invariants:

- ``_nodes`` has an entry for exactly the nodes that ``_states`` has: the address of the last attempt.
- ``_last_activity_ms`` has an entry for exactly the established connections.
- ``_versions`` has an entry for exactly the nodes in READY (none without ``discover_api_versions``).
- ``_discoveries`` has an entry for each node in CHECKING_API_VERSIONS, and for nodes whose discovery continues on the
  next connection.
- ``_silent_from_ms`` has an entry only for nodes in CHECKING_API_VERSIONS: those with an unanswered ApiVersions request
  in the newest version, and no probe.  The value is the time from which the node counts as silent.
- Only established connections have requests in flight; in CHECKING_API_VERSIONS only internal ones.

Differences from Kafka 3.0: the wait for the channel (TLS, login) is part of CONNECTING, so the set-up time-out covers
it.  ``poll`` may wait only until the next time-out of the machine, where Java's waits up to the default request
time-out.  Bytes that are no response end the connection instead of the program's call.  ``disconnect`` also forgets the
versions.  ``least_loaded_node`` of no nodes is None.  Brokers before 0.10 are supported.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from zkconsumer.base.timer import FOREVER_MS
from zkconsumer.errors import AuthenticationException, KafkaException, UnsupportedVersionException, UsageError
from zkconsumer.kafka.client_log_event import ClientLogEvent, LogLevel
from zkconsumer.kafka.error_codes import BrokerError
from zkconsumer.kafka.metadata.node import NO_NODE, Node
from zkconsumer.kafka.net.api_versions_discovery import (
    NO_RESPONSE_MS,
    ApiVersionsDiscovery,
    DiscoveryOutcome,
    DiscoveryRequest,
)
from zkconsumer.kafka.net.client_request import (
    ClientRequest,
    ClientResponse,
    RequestBuilder,
    RequestCompletionHandler,
)
from zkconsumer.kafka.net.client_throttling import throttle_time_ms
from zkconsumer.kafka.net.connection_states import ClusterConnectionStates, ConnectionState
from zkconsumer.kafka.net.exponential_backoff import Uniform
from zkconsumer.kafka.net.in_flight_requests import InFlightRequest, InFlightRequests
from zkconsumer.kafka.net.metadata_updater import MetadataUpdater
from zkconsumer.kafka.net.network_messages import (
    CompleteRequest,
    DisconnectReason,
    DropConnection,
    FrameReceived,
    HostResolved,
    NetworkCommand,
    NetworkEvent,
    NodeConnected,
    NodeDisconnected,
    OpenConnection,
    RequestWritten,
    ResolveHost,
    SendFrame,
)
from zkconsumer.kafka.net.sasl_client_authenticator import REQUEST_CORRELATION_ID_MAX
from zkconsumer.kafka.supported_versions import ASSUMED_FOR_0_9, SupportedVersions
from zkconsumer.wire.primitives import MalformedMessage
from zkconsumer.wire.request_frames import correlation_id_of, decode_response, encode_request
from zkconsumer.wire.schemas import API_VERSIONS, METADATA

MAX_IN_FLIGHT_REQUESTS = 100
"""Requests in flight on one connection of a consumer, as in Kafka: in fact no limit."""


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """The settings of the network client; the defaults are those of Kafka 3.0's consumer.  Times in ms."""

    client_id: str = ""
    max_in_flight_requests_per_connection: int = MAX_IN_FLIGHT_REQUESTS
    request_timeout_ms: int = 30_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    connection_setup_timeout_ms: int = 10_000
    connection_setup_timeout_max_ms: int = 30_000
    connections_max_idle_ms: int = 540_000
    discover_api_versions: bool = True


class DenyList(Protocol):
    """Brokers that must not be asked for their versions (``api_versions_deny_list``)."""

    def contains(self, host: str, port: int) -> bool:
        """Whether ApiVersions must not be sent to this broker now."""

    def add(self, host: str, port: int) -> None:
        """This broker ignored ApiVersions."""


class NetworkMachine:
    """See the module.  Used by one thread at a time; times are ms of one monotonic clock.

    ``uniform``: returns random numbers in [0, 1), for jitter and for the choice of a node.
    """

    def __init__(
        self, settings: NetworkSettings, metadata_updater: MetadataUpdater, *, uniform: Uniform, deny_list: DenyList
    ) -> None:
        self._settings = settings
        self._metadata_updater = metadata_updater
        self._uniform = uniform
        self._deny_list = deny_list
        self._states = ClusterConnectionStates(
            reconnect_backoff_ms=settings.reconnect_backoff_ms,
            reconnect_backoff_max_ms=settings.reconnect_backoff_max_ms,
            connection_setup_timeout_ms=settings.connection_setup_timeout_ms,
            connection_setup_timeout_max_ms=settings.connection_setup_timeout_max_ms,
            uniform=uniform,
        )
        self._in_flight = InFlightRequests(settings.max_in_flight_requests_per_connection)
        self._commands: list[NetworkCommand] = []
        self._correlation_ids = itertools.count()
        self._nodes: dict[int, Node] = {}
        self._versions: dict[int, SupportedVersions] = {}
        self._discoveries: dict[int, ApiVersionsDiscovery] = {}
        """Node id -> its discovery, from the first connection until the versions are known or ``close``."""
        self._silent_from_ms: dict[int, int] = {}
        self._last_activity_ms: dict[int, int] = {}

    def take_commands(self) -> list[NetworkCommand]:
        """The commands since the last call, in the order in which to execute them."""
        commands, self._commands = self._commands, []
        return commands

    # --- questions --------------------------------------------------------------------------------------------------

    def is_ready(self, node: Node, now_ms: int) -> bool:
        """Whether a request may be sent to the node now; never while an update of the metadata is due."""
        return not self._metadata_updater.is_update_due(now_ms) and self.can_send_request(node.id, now_ms)

    def can_send_request(self, node_id: int, now_ms: int) -> bool:
        """Whether the connection is ready, not throttled, and has room for one more request in flight."""
        return self._states.is_ready(node_id, now_ms) and self._in_flight.can_send_more(node_id)

    def can_connect(self, node: Node, now_ms: int) -> bool:
        """Whether a connection to the node may be opened now."""
        return self._states.can_connect(node.id, now_ms)

    def has_ready_nodes(self, now_ms: int) -> bool:
        """Whether any connection is ready and not throttled."""
        return self._states.has_ready_nodes(now_ms)

    def connection_delay_ms(self, node: Node, now_ms: int) -> int:
        """How long to wait before the next attempt to send: the back-off, the set-up time-out, or ``FOREVER_MS``."""
        return self._states.connection_delay_ms(node.id, now_ms)

    def poll_delay_ms(self, node: Node, now_ms: int) -> int:
        """The same, and the rest of the throttling of an established connection."""
        return self._states.poll_delay_ms(node.id, now_ms)

    def throttle_delay_ms(self, node: Node, now_ms: int) -> int:
        """The rest of the throttling."""
        return self._states.throttle_delay_ms(node.id, now_ms)

    def connection_failed(self, node: Node) -> bool:
        """Whether the last connection failed or ended, and no other attempt has begun."""
        return self._states.is_disconnected(node.id)

    def authentication_error(self, node: Node) -> AuthenticationException | None:
        """Why the last login at the node failed."""
        return self._states.authentication_error(node.id)

    def supported_versions(self, node: Node) -> SupportedVersions | None:
        """The versions of the node; None: it is not ready."""
        return self._versions.get(node.id)

    def in_flight_request_count(self, node_id: int | None = None) -> int:
        """How many requests are in flight to a node, or to all; internal ones count."""
        return self._in_flight.count(node_id)

    def has_in_flight_requests(self, node_id: int | None = None) -> bool:
        """Whether any request is in flight to a node, or to any."""
        return not self._in_flight.is_empty(node_id)

    def least_loaded_node(self, now_ms: int) -> Node | None:
        """The node with the fewest requests in flight; None: no node can be used now.

        A ready node without a request in flight is taken at once, from a random start on.  Otherwise: the ready node
        with the fewest, then a node that is being connected, then among those that may be connected the one whose last
        attempt is the longest ago.  A throttled node, and one in its back-off, is never chosen.
        """
        nodes = self._metadata_updater.fetch_nodes()
        offset = int(self._uniform() * len(nodes))
        ready: Node | None = None
        connecting: Node | None = None
        connectable: Node | None = None
        for node in (*nodes[offset:], *nodes[:offset]):
            if self.can_send_request(node.id, now_ms):
                if self._in_flight.is_empty(node.id):
                    return node
                if ready is None or self._in_flight.count(node.id) < self._in_flight.count(ready.id):
                    ready = node
            elif self._states.is_preparing_connection(node.id):
                connecting = node
            elif self._states.can_connect(node.id, now_ms) and (
                connectable is None
                or self._states.last_connect_attempt_ms(node.id) < self._states.last_connect_attempt_ms(connectable.id)
            ):
                connectable = node
        return ready or connecting or connectable

    def time_to_next_deadline_ms(self, now_ms: int) -> int:
        """How long until ``on_time`` has something to do, if no event arrives."""
        left_ms = min(
            self._states.time_to_next_setup_timeout_ms(now_ms),
            self._in_flight.time_to_next_timeout_ms(now_ms),
            max(0, min(self._silent_from_ms.values()) - now_ms) if self._silent_from_ms else FOREVER_MS,
        )
        idle_ms = self._settings.connections_max_idle_ms
        if idle_ms < 0 or min(self._last_activity_ms.values(), default=FOREVER_MS) + idle_ms - now_ms >= left_ms:
            return left_ms
        dues_ms = [since + idle_ms for node, since in self._last_activity_ms.items() if self._may_be_idle(node)]
        return min(left_ms, max(0, min(dues_ms) - now_ms)) if dues_ms else left_ms

    # --- requests of the caller -------------------------------------------------------------------------------------

    def ready(self, node: Node, now_ms: int) -> bool:
        """``is_ready``; if the node is not connected, and may be connected now, the connection begins."""
        assert node != NO_NODE, "there is nothing to connect to"
        if self.is_ready(node, now_ms):
            return True
        if self._states.can_connect(node.id, now_ms):
            self._initiate_connect(node, now_ms)
        return False

    def new_client_request(
        self,
        node_id: int,
        builder: RequestBuilder,
        created_ms: int,
        *,
        expects_response: bool = True,
        request_timeout_ms: int | None = None,
        callback: RequestCompletionHandler | None = None,
    ) -> ClientRequest:
        """A request with the next correlation id; ``request_timeout_ms`` None: the setting."""
        timeout_ms = self._settings.request_timeout_ms if request_timeout_ms is None else request_timeout_ms
        return ClientRequest(
            node_id, builder, self.next_correlation_id(), created_ms, timeout_ms, expects_response, callback
        )

    def next_correlation_id(self) -> int:
        """Consecutive numbers without those reserved for SASL.  Any thread may call this: ``next`` is atomic."""
        return next(self._correlation_ids) % (REQUEST_CORRELATION_ID_MAX + 1)

    def send(self, request: ClientRequest, now_ms: int) -> None:
        """Send a request to a node that is ready.  Its end is a ``CompleteRequest``.

        ``UsageError``: the node is not ready; call ``ready`` before.
        """
        if not self.can_send_request(request.destination, now_ms):
            raise UsageError(f"{request} cannot be sent: the node is not ready; call ready() before")
        mismatch = self._send(request, now_ms, is_internal=False)
        if mismatch is not None:
            node = self._name(request.destination)
            self._log_event("DEBUG", "request-version-unsupported", request=request.builder, node=node)
            self._commands.append(CompleteRequest(ClientResponse(request, now_ms, version_mismatch=mismatch)))

    def disconnect(self, node_id: int, now_ms: int) -> None:
        """Close the connection to a node; its requests in flight complete with ``was_disconnected``."""
        if self._states.host(node_id) is None or self._states.is_disconnected(node_id):
            return
        self._commands.append(DropConnection(node_id))
        self._states.disconnected(node_id, now_ms)
        self._forget_connection(node_id)
        self._cancel_in_flight(node_id, now_ms)

    def close(self, node_id: int, now_ms: int) -> None:
        """Close the connection to a node, and forget the node; its requests in flight are dropped without an end."""
        self._commands.append(DropConnection(node_id))
        self._cancel_in_flight(node_id, now_ms, is_reported=False)
        self._states.remove(node_id)
        self._forget_connection(node_id)
        self._discoveries.pop(node_id, None)
        self._nodes.pop(node_id, None)

    # --- metadata ---------------------------------------------------------------------------------------------------

    def maybe_update_metadata(self, now_ms: int) -> int:
        """Let the updater send a request if one is due; returns the ms until this must be called again."""
        return self._metadata_updater.maybe_update(now_ms, self)

    def send_metadata_request(self, new_request: Callable[[], RequestBuilder], now_ms: int) -> int:
        """See ``MetadataRequestSender``."""
        node = self.least_loaded_node(now_ms)
        if node is None:
            return self._settings.reconnect_backoff_ms
        if self.can_send_request(node.id, now_ms):
            self.send_internal_metadata_request(new_request(), node.id, now_ms)
            return self._settings.request_timeout_ms
        if any(self._states.is_connecting(each.id) for each in self._metadata_updater.fetch_nodes()):
            # Wait for that attempt instead of connecting to all nodes one after the other.
            return self._settings.reconnect_backoff_ms
        if self._states.can_connect(node.id, now_ms):
            self._initiate_connect(node, now_ms)
            return self._settings.reconnect_backoff_ms
        # Its versions are being requested, or its requests in flight are too many: an event ends the wait.
        return FOREVER_MS

    def send_internal_metadata_request(self, builder: RequestBuilder, node_id: int, now_ms: int) -> None:
        """Send a Metadata request of the updater to a node that is ready."""
        request = self.new_client_request(node_id, builder, now_ms)
        mismatch = self._send(request, now_ms, is_internal=True)
        if mismatch is not None:
            self._commands += self._metadata_updater.handle_failed_request(now_ms, mismatch)

    # --- events -----------------------------------------------------------------------------------------------------

    def on_event(self, event: NetworkEvent, now_ms: int) -> None:
        """Something happened on a connection.  An event of a connection that the machine has dropped is ignored: it was
        on its way when an earlier event of the same poll made the machine drop it."""
        if self._states.host(event.node_id) is None or self._states.is_disconnected(event.node_id):
            return
        match event:
            case HostResolved(node_id, addresses, reason):
                self._on_host_resolved(node_id, addresses, reason, now_ms)
            case NodeConnected(node_id):
                self._on_connected(node_id, now_ms)
            case NodeDisconnected():
                self._on_disconnected(event, now_ms)
            case RequestWritten(node_id):
                self._on_request_written(node_id, now_ms)
            case FrameReceived(node_id, frame):
                self._on_frame(node_id, frame, now_ms)

    def on_time(self, now_ms: int) -> None:
        """End what is late: attempts to connect, requests, silence of a discovery, idle connections."""
        for node_id in self._states.nodes_with_connection_setup_timeout(now_ms):
            timeout_ms = self._states.connection_setup_timeout_ms(node_id)
            self._log_event("DEBUG", "connection-setup-timeout", node=self._name(node_id), timeout_ms=timeout_ms)
            self._close_locally(node_id, now_ms)
        for node_id in self._in_flight.nodes_with_timed_out_requests(now_ms):
            oldest = next(iter(self._in_flight.of(node_id))).request
            self._log_event("DEBUG", "request-timeout", node=self._name(node_id), request=oldest.builder)
            self._close_locally(node_id, now_ms, timed_out=True)
        for node_id in [node_id for node_id, since_ms in self._silent_from_ms.items() if since_ms <= now_ms]:
            del self._silent_from_ms[node_id]
            self._follow(node_id, self._discoveries[node_id].on_silence(), now_ms)
        if self._settings.connections_max_idle_ms >= 0:
            for node_id in self._idle_nodes(now_ms):
                self._log_event("DEBUG", "idle-connection-closed", node=self._name(node_id))
                self._close_locally(node_id, now_ms)

    # --- connections ------------------------------------------------------------------------------------------------

    def _initiate_connect(self, node: Node, now_ms: int) -> None:
        known_host = self._states.host(node.id)
        if known_host not in (None, node.host):
            self._log_event("INFO", "node-host-changed", node=node, host_before=known_host)
        self._states.connecting(node.id, now_ms, node.host)
        self._nodes[node.id] = node
        if self._states.current_address(node.id) is None:
            self._commands.append(ResolveHost(node.id, node.host))
        else:
            self._open(node.id)

    def _on_host_resolved(self, node_id: int, addresses: tuple[str, ...], reason: str, now_ms: int) -> None:
        if addresses:
            self._states.set_addresses(node_id, addresses)
            self._open(node_id)
            return
        self._log_event("WARNING", "host-unresolved", node=self._name(node_id), reason=reason)
        self._states.disconnected(node_id, now_ms)
        self._forget_connection(node_id)
        self._commands += self._metadata_updater.handle_server_disconnect(now_ms, node_id, None)

    def _open(self, node_id: int) -> None:
        node = self._nodes[node_id]
        address = self._states.current_address(node_id)
        assert address is not None, "an attempt has an address"
        self._log_event("DEBUG", "connecting", node=node, address=address)
        self._commands.append(OpenConnection(node_id, node.host, node.port, address))

    def _on_connected(self, node_id: int, now_ms: int) -> None:
        assert self._states.is_connecting(node_id), "a connection is established once"
        self._last_activity_ms[node_id] = now_ms
        node = self._nodes[node_id]
        self._log_event("DEBUG", "connected", node=node)
        if not self._settings.discover_api_versions:
            self._states.ready(node_id)
        elif self._deny_list.contains(node.host, node.port):
            self._become_ready(node_id, ASSUMED_FOR_0_9)
        else:
            discovery = self._discoveries.setdefault(node_id, ApiVersionsDiscovery(f"{node.host}:{node.port}"))
            self._states.checking_api_versions(node_id)
            self._follow(node_id, discovery.begin(), now_ms)

    def _on_disconnected(self, event: NodeDisconnected, now_ms: int) -> None:
        node = self._name(event.node_id)
        match event.reason:
            case DisconnectReason.NOT_CONNECTED:
                self._log_event("WARNING", "connection-failed", node=node, reason=event.detail)
            case DisconnectReason.CLOSED_IN_HANDSHAKE:
                self._log_event("WARNING", "connection-closed-in-handshake", node=node, reason=event.detail)
            case DisconnectReason.AUTHENTICATION_FAILED:
                self._log_event("ERROR", "node-authentication-failed", node=node, reason=event.error)
            case DisconnectReason.INVALID_RESPONSE:
                self._log_event("ERROR", "response-invalid", node=node, reason=event.detail)
            case DisconnectReason.CLOSED | DisconnectReason.LOCAL_CLOSE:
                self._log_event("DEBUG", "disconnected", node=node, reason=event.detail or event.reason.value)
        is_discovering = self._states.connection_state(event.node_id) is ConnectionState.CHECKING_API_VERSIONS
        if is_discovering and event.reason is DisconnectReason.CLOSED:
            self._on_closed_in_discovery(event.node_id)
        self._process_disconnection(event.node_id, now_ms, error=event.error)

    def _close_locally(self, node_id: int, now_ms: int, *, timed_out: bool = False) -> None:
        self._commands.append(DropConnection(node_id))
        self._process_disconnection(node_id, now_ms, timed_out=timed_out)

    def _process_disconnection(
        self, node_id: int, now_ms: int, *, error: AuthenticationException | None = None, timed_out: bool = False
    ) -> None:
        if error is None:
            self._states.disconnected(node_id, now_ms)
        else:
            self._states.authentication_failed(node_id, now_ms, error)
        self._forget_connection(node_id)
        self._cancel_in_flight(node_id, now_ms, error=error, timed_out=timed_out)
        self._commands += self._metadata_updater.handle_server_disconnect(now_ms, node_id, error)

    def _forget_connection(self, node_id: int) -> None:
        self._versions.pop(node_id, None)
        self._silent_from_ms.pop(node_id, None)
        self._last_activity_ms.pop(node_id, None)

    def _cancel_in_flight(
        self,
        node_id: int,
        now_ms: int,
        *,
        error: AuthenticationException | None = None,
        timed_out: bool = False,
        is_reported: bool = True,
    ) -> None:
        for each in self._in_flight.clear_all(node_id):
            if not each.is_internal:
                if is_reported:
                    self._commands.append(CompleteRequest(each.disconnected(now_ms, error, timed_out)))
            elif each.request.builder.api is METADATA:
                self._commands += self._metadata_updater.handle_failed_request(now_ms, None)

    def _may_be_idle(self, node_id: int) -> bool:
        return self._states.is_connected(node_id) and self._in_flight.is_empty(node_id)

    def _idle_nodes(self, now_ms: int) -> list[int]:
        idle_ms = self._settings.connections_max_idle_ms
        return [
            node_id
            for node_id, since_ms in self._last_activity_ms.items()
            if now_ms - since_ms >= idle_ms and self._may_be_idle(node_id)
        ]

    # --- discovery of API versions ----------------------------------------------------------------------------------

    def _follow(self, node_id: int, outcome: DiscoveryOutcome, now_ms: int) -> None:
        match outcome:
            case DiscoveryRequest(api, version, body):
                builder = RequestBuilder(api, body, version_min=version, version_max=version)
                self._put_in_flight(self.new_client_request(node_id, builder, now_ms), version, body, now_ms, True)
                if self._discoveries[node_id].may_be_silent:
                    self._silent_from_ms[node_id] = now_ms + NO_RESPONSE_MS
            case SupportedVersions():
                node = self._nodes[node_id]
                if outcome is ASSUMED_FOR_0_9:
                    self._deny_list.add(node.host, node.port)
                del self._discoveries[node_id]
                self._become_ready(node_id, outcome)
            case None:
                pass  # the end of the probe follows

    def _become_ready(self, node_id: int, versions: SupportedVersions) -> None:
        self._versions[node_id] = versions
        self._states.ready(node_id)
        self._log_event("DEBUG", "node-ready", node=self._nodes[node_id], assumed=versions.is_assumed)

    def _on_closed_in_discovery(self, node_id: int) -> None:
        if not self._discoveries[node_id].on_closed():
            why = "is this port a TLS or SASL port, or something else than a Kafka broker?"
            self._log_event("WARNING", "every-request-closes-connection", node=self._name(node_id), reason=why)

    def _on_discovery_response(self, answered: InFlightRequest, body: Any, now_ms: int) -> None:
        node_id, api = answered.request.destination, answered.request.builder.api
        self._silent_from_ms.pop(node_id, None)
        try:
            outcome = self._discoveries[node_id].on_response(api, answered.version, body)
        except BrokerError as error:
            self._log_event("WARNING", "api-versions-rejected", node=self._name(node_id), reason=error)
            self._close_locally(node_id, now_ms)
            return
        self._follow(node_id, outcome, now_ms)

    # --- requests and responses -------------------------------------------------------------------------------------

    def _send(self, request: ClientRequest, now_ms: int, *, is_internal: bool) -> UsageError | None:
        """Send a request; the error if no version that the node and this client support can contain it."""
        builder = request.builder
        versions = self._versions.get(request.destination)
        try:
            if versions is None:
                version = builder.latest_allowed_version
            else:
                version = versions.pick(builder.api, builder.latest_allowed_version, builder.version_min)
            self._put_in_flight(request, version, builder.build(version), now_ms, is_internal)
        except KafkaException as error:
            mismatch = UnsupportedVersionException(f"{builder} to {self._name(request.destination)}: {error}")
            mismatch.__cause__ = error
            return mismatch
        except UsageError as error:
            return error
        return None

    def _put_in_flight(self, request: ClientRequest, version: int, body: Any, now_ms: int, is_internal: bool) -> None:
        api = request.builder.api
        frame = encode_request(api, version, request.correlation_id, self._settings.client_id, body)
        self._in_flight.add(InFlightRequest(request, version, is_internal, now_ms))
        self._last_activity_ms[request.destination] = now_ms
        self._commands.append(SendFrame(request.destination, frame))

    def _on_request_written(self, node_id: int, now_ms: int) -> None:
        self._last_activity_ms[node_id] = now_ms
        if self._in_flight.is_empty(node_id):
            return  # the response was faster than the report of the write
        last = self._in_flight.last_sent(node_id)
        last.is_written = True
        if not last.request.expects_response:
            self._in_flight.complete_last_sent(node_id)
            self._commands.append(CompleteRequest(last.completed(None, now_ms)))

    def _on_frame(self, node_id: int, frame: memoryview, now_ms: int) -> None:
        self._last_activity_ms[node_id] = now_ms
        try:
            answered = self._answered_request(node_id, frame)
            api = answered.request.builder.api
            body = decode_response(api, answered.version, frame)[1]
        except MalformedMessage as error:
            self._commands.append(DropConnection(node_id))
            self._on_disconnected(NodeDisconnected(node_id, DisconnectReason.INVALID_RESPONSE, str(error)), now_ms)
            return
        self._in_flight.complete_next(node_id)
        muted_ms = throttle_time_ms(api, answered.version, body)
        if muted_ms > 0:
            self._states.throttle(node_id, now_ms + muted_ms)
        if not answered.is_internal:
            self._commands.append(CompleteRequest(answered.completed(body, now_ms)))
        elif api is METADATA:
            self._commands += self._metadata_updater.handle_successful_response(
                answered.version, answered.request.correlation_id, now_ms, body
            )
        else:
            self._on_discovery_response(answered, body, now_ms)

    def _answered_request(self, node_id: int, frame: memoryview) -> InFlightRequest:
        """The request that a response belongs to, which is then the oldest one; ``MalformedMessage``: there is none."""
        correlation_id = correlation_id_of(frame)
        waiting = tuple(self._in_flight.of(node_id))
        if (
            len(waiting) > 1
            and waiting[0].is_internal
            and waiting[0].request.builder.api is API_VERSIONS
            and waiting[1].request.correlation_id == correlation_id
        ):
            self._in_flight.complete_next(node_id)
            return waiting[1]
        if not waiting or waiting[0].request.correlation_id != correlation_id:
            expected = f"expected {waiting[0].request.correlation_id}" if waiting else "no request is in flight"
            where = f"response of {self._name(node_id)}"
            raise MalformedMessage(where, "correlation_id", 0, f"{correlation_id}, {expected}")
        return waiting[0]

    def check_invariants(self) -> None:
        """Assert what the head of the module states."""
        nodes = set(self._nodes)
        connected = {node_id for node_id in nodes if self._states.is_connected(node_id)}
        states = {node_id: self._states.connection_state(node_id) for node_id in nodes}
        ready = {node_id for node_id, state in states.items() if state is ConnectionState.READY}
        assert set(self._last_activity_ms) == connected, "activity of a connection that is not established"
        assert set(self._versions) == (ready if self._settings.discover_api_versions else set()), "versions of no node"
        assert connected - ready <= set(self._discoveries) <= nodes, "a connection waits for no discovery"
        assert set(self._silent_from_ms) <= connected - ready, "a ready connection cannot be silent"
        assert all(self._in_flight.is_empty(node_id) for node_id in nodes - connected), "requests without a connection"

    # --- log --------------------------------------------------------------------------------------------------------

    def _name(self, node_id: int) -> str:
        node = self._nodes.get(node_id)
        return f"(id {node_id})" if node is None else str(node)

    def _log_event(self, level: LogLevel, name: str, **fields: object) -> None:
        self._commands.append(ClientLogEvent(level, name, tuple(fields.items())))
