"""``NetworkClient``: the loop around the network machine, as ``org.apache.kafka.clients.NetworkClient`` (IO).

    poll:  metadata request --> commands --> wait for sockets --> events --> time-outs --> commands --> callbacks

The machine decides, the selector has the sockets; here is only what connects them.  Commands are executed until the
machine has no more; a command may cause events at once (an address that is refused, a request that the socket took).

``receive_more`` is a small ``poll`` for a caller that has other work while a large response arrives: only bytes.

Not thread-safe except ``wakeup`` and ``initiate_close``: ``ConsumerNetworkClient`` has the lock for two threads.

``_completed`` has the responses whose callbacks were not called yet.  Callbacks are called at the end of ``poll``, when
the machine is consistent, so a callback may call any method of this class except ``poll``.

The resolver of host names blocks; like Java's client this one waits for it.

Before any broker has answered, a connection that ends in its first exchange is examined (``diagnose``): the port may
have another protocol than ``security.protocol``.  Then this is the error of the program; Java only logs the lost
connection.  It happens once for each address, and not later, since it takes seconds and heartbeats would wait for it.
"""

from __future__ import annotations

import logging
import os
import random
from dataclasses import replace
from enum import Enum

from zkconsumer.base.clock import Clock
from zkconsumer.errors import (
    AuthenticationException,
    BrokerUnreachable,
    DisconnectException,
    ForkedError,
    RemoteProtocolError,
)
from zkconsumer.kafka.api_versions_deny_list import API_VERSIONS_DENY_LIST
from zkconsumer.kafka.client_log import log_client_events
from zkconsumer.kafka.client_log_event import ClientLogEvent
from zkconsumer.kafka.metadata.node import Node
from zkconsumer.kafka.net.broker_channel import ChannelFactory
from zkconsumer.kafka.net.client_request import (
    ClientRequest,
    ClientResponse,
    RequestBuilder,
    RequestCompletionHandler,
)
from zkconsumer.kafka.net.connection_errors import PortDiagnosis
from zkconsumer.kafka.net.host_resolver import HostResolver, resolve_host
from zkconsumer.kafka.net.metadata_updater import MetadataUpdater
from zkconsumer.kafka.net.network_machine import DenyList, NetworkMachine, NetworkSettings
from zkconsumer.kafka.net.network_messages import (
    CompleteRequest,
    DisconnectReason,
    DropConnection,
    FrameReceived,
    HostResolved,
    NetworkCommand,
    NetworkEvent,
    NodeDisconnected,
    OpenConnection,
    ResolveHost,
    SendFrame,
)
from zkconsumer.kafka.net.selector import ReceivedParts, Selector
from zkconsumer.kafka.supported_versions import SupportedVersions
from zkconsumer.kafka.tls import NotTlsError

log = logging.getLogger("zkconsumer.kafka")

POLL_MS = 10
"""How long ``receive_more`` may take the place of ``poll``."""


class ClientState(Enum):
    """Whether requests may be sent."""

    ACTIVE = "active"
    CLOSING = "closing"
    CLOSED = "closed"


_ACTIVE, _NONE, _EVENT = ClientState.ACTIVE, ReceivedParts.NONE, ReceivedParts.EVENT
"""For ``receive_more``: a look-up in an enum class costs as much as a call."""


class NetworkClient:
    """See the module.

    After ``initiate_close``, ``send`` and ``poll`` raise ``DisconnectException``.  In a child process, ``ready``,
    ``send`` and ``poll`` raise ``ForkedError``, and ``close`` does not disturb the connections of the parent.
    """

    def __init__(
        self,
        machine: NetworkMachine,
        selector: Selector,
        clock: Clock,
        *,
        resolve: HostResolver = resolve_host,
        diagnose: PortDiagnosis | None = None,
    ) -> None:
        self._machine = machine
        self._diagnose = diagnose
        """None once a broker has answered."""
        self._addresses_of_nodes: dict[int, tuple[str, int]] = {}
        """Node id -> host and port of the last connection."""
        self._diagnosed: set[tuple[str, int]] = set()
        self._selector = selector
        self._clock = clock
        self._resolve = resolve
        self._pid = os.getpid()
        self._state = ClientState.ACTIVE
        self._completed: list[ClientResponse] = []
        self._polled_ms = self._looked_ms = clock.now_ms() - POLL_MS
        """When ``poll`` was called last, and when ``receive_more`` or ``poll`` has last looked at the sockets."""

    # --- connections ------------------------------------------------------------------------------------------------

    def ready(self, node: Node, now_ms: int) -> bool:
        """Whether a request may be sent to the node now; if not, connect to it when that is possible."""
        self._ensure_same_process()
        is_ready = self._machine.ready(node, now_ms)
        self._settle()
        return is_ready

    def is_ready(self, node: Node, now_ms: int) -> bool:
        """Whether a request may be sent to the node now."""
        return self._machine.is_ready(node, now_ms)

    def connection_delay_ms(self, node: Node, now_ms: int) -> int:
        """How long to wait before the next attempt to send; ``FOREVER_MS``: until an event."""
        return self._machine.connection_delay_ms(node, now_ms)

    def poll_delay_ms(self, node: Node, now_ms: int) -> int:
        """The same, and the rest of the throttling of an established connection."""
        return self._machine.poll_delay_ms(node, now_ms)

    def throttle_delay_ms(self, node: Node, now_ms: int) -> int:
        """How long the node gets no request because of a quota."""
        return self._machine.throttle_delay_ms(node, now_ms)

    def connection_failed(self, node: Node) -> bool:
        """Whether the last connection failed or ended, and no other attempt has begun."""
        return self._machine.connection_failed(node)

    def authentication_error(self, node: Node) -> AuthenticationException | None:
        """Why the last login at the node failed."""
        return self._machine.authentication_error(node)

    def supported_versions(self, node: Node) -> SupportedVersions | None:
        """The versions of the node; None: it is not ready.  From any thread."""
        return self._machine.supported_versions(node)

    def has_ready_nodes(self, now_ms: int) -> bool:
        """Whether any connection is ready and not throttled."""
        return self._machine.has_ready_nodes(now_ms)

    def least_loaded_node(self, now_ms: int) -> Node | None:
        """The node with the fewest requests in flight; None: no node can be used now."""
        return self._machine.least_loaded_node(now_ms)

    def disconnect(self, node_id: int) -> None:
        """Close the connection to a node; the next ``poll`` completes its requests with ``was_disconnected``."""
        self._machine.disconnect(node_id, self._clock.now_ms())
        self._settle()

    def close_node(self, node_id: int) -> None:
        """Close the connection to a node and forget it; callbacks of its requests are not called (``close(node)``)."""
        self._machine.close(node_id, self._clock.now_ms())
        self._settle()

    # --- requests ---------------------------------------------------------------------------------------------------

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
        return self._machine.new_client_request(
            node_id,
            builder,
            created_ms,
            expects_response=expects_response,
            request_timeout_ms=request_timeout_ms,
            callback=callback,
        )

    def send(self, request: ClientRequest, now_ms: int) -> None:
        """Send a request to a node that is ready; a later ``poll`` returns its end.  ``UsageError``: it is not."""
        self._ensure_active()
        self._machine.send(request, now_ms)
        self._settle()

    def in_flight_request_count(self, node_id: int | None = None) -> int:
        """How many requests are in flight to a node, or to all."""
        return self._machine.in_flight_request_count(node_id)

    def has_in_flight_requests(self, node_id: int | None = None) -> bool:
        """Whether any request is in flight to a node, or to any."""
        return self._machine.has_in_flight_requests(node_id)

    def poll(self, timeout_ms: int, now_ms: int) -> list[ClientResponse]:
        """Send, receive, and end what is late; returns the responses, after their callbacks were called.

        Waits for at most ``timeout_ms``, and not at all if requests have ended since the last ``poll``.
        """
        if os.getpid() != self._pid or self._state is not _ACTIVE:
            self._ensure_active()  # raises
        self._polled_ms = self._looked_ms = now_ms
        if not self._completed:
            metadata_ms = self._machine.maybe_update_metadata(now_ms)
            self._settle()
            wait_ms = 0 if self._completed else min(timeout_ms, metadata_ms)
            if wait_ms > 0:
                wait_ms = min(wait_ms, self._machine.time_to_next_deadline_ms(now_ms))
            events = self._selector.poll(wait_ms)
            for event in events:
                self._on_event(event)
            self._looked_ms = now_ms = self._clock.now_ms()
            self._machine.on_time(now_ms)
            self._settle()
        return self._complete_requests()

    def receive_more(self, now_ms: int) -> bool:
        """Receive more of the responses that have begun to arrive, without waiting; False: ``poll`` must be called.

        A program with small lists calls it some thousand times in a second, while a large response arrives; only bytes
        can arrive then.  Timers and all else are left to ``poll``, which is called at least every ``POLL_MS``.
        It looks at the sockets once in a millisecond while no response has begun to arrive.
        """
        if os.getpid() != self._pid or self._state is not _ACTIVE:
            self._ensure_active()  # raises
        if self._completed or now_ms - self._polled_ms >= POLL_MS:
            return False
        found = self._selector.receive_more()
        if found is _NONE and now_ms > self._looked_ms:
            self._looked_ms = now_ms
            return not self._selector.is_any_socket_ready()
        return found is not _EVENT

    def wakeup(self) -> None:
        """End the present ``poll``, or the next one; from any thread."""
        self._selector.wakeup()

    # --- the end ----------------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether requests may be sent."""
        return self._state is ClientState.ACTIVE

    def initiate_close(self) -> None:
        """Accept no more calls, and wake ``poll`` up; from any thread."""
        if self._state is ClientState.ACTIVE:
            self._state = ClientState.CLOSING
            self.wakeup()

    def close(self) -> None:
        """Close all connections; a second call does nothing."""
        if self._state is not ClientState.CLOSED:
            self._state = ClientState.CLOSED
            self._selector.close()

    def _ensure_same_process(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedError(
                f"the network client belongs to process {self._pid}; create a consumer in the child instead"
            )

    def _ensure_active(self) -> None:
        self._ensure_same_process()
        if self._state is not ClientState.ACTIVE:
            raise DisconnectException(f"the network client is {self._state.value}")

    # --- commands ---------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Execute commands, and feed the events that they caused, until there is neither."""
        while commands := self._machine.take_commands():
            for command in commands:
                self._execute(command)
            for event in self._selector.take_events():
                self._on_event(event)

    def _on_event(self, event: NetworkEvent) -> None:
        match event:
            case FrameReceived():
                self._diagnose = None
            case NodeDisconnected() if self._diagnose is not None:
                event = self._diagnosed_event(self._diagnose, event)
        self._machine.on_event(event, self._clock.now_ms())

    def _diagnosed_event(self, diagnose: PortDiagnosis, event: NodeDisconnected) -> NodeDisconnected:
        address = self._addresses_of_nodes[event.node_id]
        if address in self._diagnosed:
            return event
        match event.reason:
            case DisconnectReason.INVALID_RESPONSE:
                error: Exception = RemoteProtocolError(event.detail)
            case DisconnectReason.CLOSED_IN_HANDSHAKE | DisconnectReason.CLOSED:
                error = BrokerUnreachable(event.detail)
            case DisconnectReason.AUTHENTICATION_FAILED if isinstance(event.error, NotTlsError):
                error = event.error
            case _:
                return event
        self._diagnosed.add(address)
        found = diagnose(*address, error)
        return event if found is None else replace(event, reason=DisconnectReason.AUTHENTICATION_FAILED, error=found)

    def _execute(self, command: NetworkCommand) -> None:
        match command:
            case ClientLogEvent():
                log_client_events([command])
            case SendFrame(node_id, frame):
                self._selector.send(node_id, frame)
            case CompleteRequest(response):
                self._completed.append(response)
            case ResolveHost(node_id, host):
                addresses, reason = self._addresses(host)
                self._machine.on_event(HostResolved(node_id, addresses, reason), self._clock.now_ms())
            case OpenConnection(node_id, host, port, address):
                self._addresses_of_nodes[node_id] = host, port
                self._selector.connect(node_id, host, port, address)
            case DropConnection(node_id):
                self._selector.drop(node_id)

    def _addresses(self, host: str) -> tuple[tuple[str, ...], str]:
        try:
            return self._resolve(host), ""
        except (OSError, UnicodeError) as error:  # UnicodeError: a label that IDNA does not allow
            return (), f"{host}: {error}"

    def _complete_requests(self) -> list[ClientResponse]:
        completed, self._completed = self._completed, []
        for response in completed:
            try:
                response.on_complete()
            except Exception:
                log.exception("request-callback-failed request=%s", response.request)
        return completed


class EveryBroker:
    """The ``DenyList`` of ``api.version.request=false``: no broker is asked for its versions."""

    def contains(self, host: str, port: int) -> bool:
        return True

    def add(self, host: str, port: int) -> None:
        pass


def new_network_client(
    new_channel: ChannelFactory,
    updater: MetadataUpdater,
    settings: NetworkSettings,
    clock: Clock,
    *,
    diagnose: PortDiagnosis | None,
    asks_versions: bool = True,
    send_buffer_bytes: int = -1,
    receive_buffer_bytes: int = -1,
) -> NetworkClient:
    """A network client with its own sockets.  ``asks_versions``: api.version.request; buffers: -1 is the system's."""
    deny_list: DenyList = API_VERSIONS_DENY_LIST if asks_versions else EveryBroker()
    machine = NetworkMachine(settings, updater, uniform=random.random, deny_list=deny_list)
    selector = Selector(
        new_channel, clock, send_buffer_bytes=send_buffer_bytes, receive_buffer_bytes=receive_buffer_bytes
    )
    return NetworkClient(machine, selector, clock, diagnose=diagnose)
