"""``ClusterConnectionStates``: the state of the connection to each node.  Pure.

As ``org.apache.kafka.clients.ClusterConnectionStates``:

    (no entry) or DISCONNECTED --connecting--> CONNECTING --checking_api_versions--> CHECKING_API_VERSIONS
                                                   |                                        |
                                                   '------------------ready---------------> READY
    any state --disconnected--> DISCONNECTED         any state --authentication_failed--> AUTHENTICATION_FAILED
    any state --remove--> (no entry)

CONNECTING lasts from the TCP connect until TLS and the login are agreed on.  It ends with an event of the socket, or
when ``connection_setup_timeout_ms`` is over, so it never lasts forever.  AUTHENTICATION_FAILED counts as disconnected:
the node may be connected again after the back-off, and keeps its error until it is ready.

After the n-th failure in a row (n from 0) a node is connected again after ``reconnect_backoff_ms * 2 ** n`` at the
earliest, and the next attempt may take ``connection_setup_timeout_ms * 2 ** n``, both with a jitter of 20 % and a
maximum.

Addresses.  The caller resolves the name of a host and passes all of its addresses (``set_addresses``).  Each further
attempt uses the next address; after the last one, and after a connection that had been established, the addresses are
dropped, so that the caller resolves the name again.

Differences from Kafka 3.0: ``checking_api_versions`` does not reset the reconnect back-off, since a port that accepts
connections and closes them on the first request (a TLS port, a proxy without its broker) would be connected every
``reconnect_backoff_ms`` for ever.  ``authentication_failed`` includes what ``disconnected`` does, so one failure counts
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from zkconsumer.base.timer import FOREVER_MS
from zkconsumer.errors import AuthenticationException
from zkconsumer.kafka.net.exponential_backoff import ExponentialBackoff, Uniform


class ConnectionState(Enum):
    """What a connection can do; see the module."""

    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    CHECKING_API_VERSIONS = "checking-api-versions"
    READY = "ready"
    AUTHENTICATION_FAILED = "authentication-failed"

    @property
    def is_disconnected(self) -> bool:
        """Whether there is no connection, and none is being established."""
        return self in (ConnectionState.DISCONNECTED, ConnectionState.AUTHENTICATION_FAILED)

    @property
    def is_connected(self) -> bool:
        """Whether the connection is established and authenticated."""
        return self in (ConnectionState.CHECKING_API_VERSIONS, ConnectionState.READY)


@dataclass(slots=True)
class NodeConnectionState:
    """The entry of one node.

    ``last_connect_attempt_ms``: when the last attempt began or, once it failed, ended.  ``failed_attempts``: failures
    since the node was last ready.  ``failed_connect_attempts``: those among them in a row that did not get past
    CONNECTING.  ``throttled_until_ms``: no request before this time; it never goes back.  ``addresses``: empty, or
    ``address_index`` is the one that the present attempt uses.
    """

    host: str
    last_connect_attempt_ms: int
    reconnect_backoff_ms: int
    connection_setup_timeout_ms: int
    state: ConnectionState = ConnectionState.CONNECTING
    authentication_error: AuthenticationException | None = None
    failed_attempts: int = 0
    failed_connect_attempts: int = 0
    throttled_until_ms: int = 0
    addresses: tuple[str, ...] = ()
    address_index: int = 0

    def move_to_next_address(self) -> None:
        """Use the next address; after the last one drop all of them."""
        if self.addresses:
            self.address_index += 1
            if self.address_index == len(self.addresses):
                self.addresses, self.address_index = (), 0


class ClusterConnectionStates:
    """The states by node id.  Times are ms of a monotonic clock; ``KeyError``: the node has no entry."""

    def __init__(
        self,
        *,
        reconnect_backoff_ms: int,
        reconnect_backoff_max_ms: int,
        connection_setup_timeout_ms: int,
        connection_setup_timeout_max_ms: int,
        uniform: Uniform,
    ) -> None:
        self._reconnect_backoff = ExponentialBackoff(reconnect_backoff_ms, reconnect_backoff_max_ms, uniform)
        self._connection_setup_timeout = ExponentialBackoff(
            connection_setup_timeout_ms, connection_setup_timeout_max_ms, uniform
        )
        self._nodes: dict[int, NodeConnectionState] = {}

    # --- questions --------------------------------------------------------------------------------------------------

    def connection_state(self, node_id: int) -> ConnectionState:
        """The state of a node that has an entry."""
        return self._nodes[node_id].state

    def can_connect(self, node_id: int, now_ms: int) -> bool:
        """Whether a connection may be opened now: there is none, and the back-off is over."""
        entry = self._nodes.get(node_id)
        return entry is None or (entry.state.is_disconnected and _backoff_left_ms(entry, now_ms) == 0)

    def is_blacked_out(self, node_id: int, now_ms: int) -> bool:
        """Whether the node is disconnected, and must not be connected yet."""
        entry = self._nodes.get(node_id)
        return entry is not None and entry.state.is_disconnected and _backoff_left_ms(entry, now_ms) > 0

    def connection_delay_ms(self, node_id: int, now_ms: int) -> int:
        """How long to wait before an attempt to send: the rest of the back-off, or of the set-up time-out.

        ``FOREVER_MS`` for an established connection, because an event ends the wait.
        """
        entry = self._nodes.get(node_id)
        if entry is None:
            return 0
        if entry.state is ConnectionState.CONNECTING:
            return entry.connection_setup_timeout_ms
        return _backoff_left_ms(entry, now_ms) if entry.state.is_disconnected else FOREVER_MS

    def poll_delay_ms(self, node_id: int, now_ms: int) -> int:
        """The rest of the throttling of an established connection, or else the connection delay."""
        throttle_ms = self.throttle_delay_ms(node_id, now_ms)
        if throttle_ms > 0 and self.is_connected(node_id):
            return throttle_ms
        return self.connection_delay_ms(node_id, now_ms)

    def throttle_delay_ms(self, node_id: int, now_ms: int) -> int:
        """How long the node gets no request because of a quota (KIP-219)."""
        entry = self._nodes.get(node_id)
        return 0 if entry is None else max(0, entry.throttled_until_ms - now_ms)

    def is_connecting(self, node_id: int) -> bool:
        """Whether the connection is being established."""
        entry = self._nodes.get(node_id)
        return entry is not None and entry.state is ConnectionState.CONNECTING

    def is_preparing_connection(self, node_id: int) -> bool:
        """Whether the connection is being established, or its API versions are being requested."""
        entry = self._nodes.get(node_id)
        return entry is not None and not entry.state.is_disconnected and entry.state is not ConnectionState.READY

    def is_connected(self, node_id: int) -> bool:
        """Whether the connection is established and authenticated."""
        entry = self._nodes.get(node_id)
        return entry is not None and entry.state.is_connected

    def is_disconnected(self, node_id: int) -> bool:
        """Whether the connection failed or ended; False for a node without an entry."""
        entry = self._nodes.get(node_id)
        return entry is not None and entry.state.is_disconnected

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        """Whether requests may be sent: the state is READY, and the node is not throttled."""
        entry = self._nodes.get(node_id)
        return entry is not None and _is_ready(entry, now_ms)

    def has_ready_nodes(self, now_ms: int) -> bool:
        """Whether requests may be sent to any node."""
        return any(_is_ready(entry, now_ms) for entry in self._nodes.values())

    def authentication_error(self, node_id: int) -> AuthenticationException | None:
        """Why the last login at the node failed; None: it did not, or the node has been ready since."""
        entry = self._nodes.get(node_id)
        return None if entry is None else entry.authentication_error

    def last_connect_attempt_ms(self, node_id: int) -> int:
        """When the last attempt began or failed; 0 for a node without an entry."""
        entry = self._nodes.get(node_id)
        return 0 if entry is None else entry.last_connect_attempt_ms

    def connection_setup_timeout_ms(self, node_id: int) -> int:
        """How long the present attempt may take, or the next one."""
        return self._nodes[node_id].connection_setup_timeout_ms

    def connecting_nodes(self) -> list[int]:
        """The ids of the nodes in CONNECTING."""
        return [node_id for node_id, entry in self._nodes.items() if entry.state is ConnectionState.CONNECTING]

    def nodes_with_connection_setup_timeout(self, now_ms: int) -> list[int]:
        """The nodes in CONNECTING whose time is over."""
        return [node_id for node_id in self.connecting_nodes() if self._setup_left_ms(node_id, now_ms) < 0]

    def time_to_next_setup_timeout_ms(self, now_ms: int) -> int:
        """How long until ``nodes_with_connection_setup_timeout`` names a node, if nothing else happens."""
        left = (self._setup_left_ms(node_id, now_ms) + 1 for node_id in self.connecting_nodes())
        return max(0, min(left, default=FOREVER_MS))

    def host(self, node_id: int) -> str | None:
        """The host of the last attempt; None for a node without an entry."""
        entry = self._nodes.get(node_id)
        return None if entry is None else entry.host

    def current_address(self, node_id: int) -> str | None:
        """The IP address of the present attempt; None: the name must be resolved (``set_addresses``)."""
        entry = self._nodes[node_id]
        return entry.addresses[entry.address_index] if entry.addresses else None

    # --- transitions ------------------------------------------------------------------------------------------------

    def connecting(self, node_id: int, now_ms: int, host: str) -> None:
        """An attempt begins.  It uses the next address, unless the host is another one than before."""
        entry = self._nodes.get(node_id)
        if entry is None or entry.host != host:
            self._nodes[node_id] = NodeConnectionState(
                host, now_ms, self._reconnect_backoff.backoff(0), self._connection_setup_timeout.backoff(0)
            )
            return
        entry.last_connect_attempt_ms = now_ms
        entry.state = ConnectionState.CONNECTING
        entry.move_to_next_address()

    def set_addresses(self, node_id: int, addresses: Sequence[str]) -> None:
        """The IP addresses of the host, in the order in which to try them; at least one."""
        assert addresses, "a host without an address cannot be connected, which is disconnected()"
        entry = self._nodes[node_id]
        entry.addresses, entry.address_index = tuple(addresses), 0

    def checking_api_versions(self, node_id: int) -> None:
        """The connection is established; the request for its API versions is sent."""
        entry = self._nodes[node_id]
        entry.state = ConnectionState.CHECKING_API_VERSIONS
        self._reset_connection_setup_timeout(entry)

    def ready(self, node_id: int) -> None:
        """The connection accepts requests."""
        entry = self._nodes[node_id]
        entry.state = ConnectionState.READY
        entry.authentication_error = None
        entry.failed_attempts = 0
        entry.reconnect_backoff_ms = self._reconnect_backoff.backoff(0)
        self._reset_connection_setup_timeout(entry)

    def disconnected(self, node_id: int, now_ms: int) -> None:
        """The connection ended, or could not be established; the back-off begins."""
        entry = self._nodes[node_id]
        if entry.state is ConnectionState.CONNECTING:
            entry.failed_connect_attempts += 1
            entry.connection_setup_timeout_ms = self._connection_setup_timeout.backoff(entry.failed_connect_attempts)
        else:
            self._reset_connection_setup_timeout(entry)
            if entry.state.is_connected:
                # The host may have moved to other addresses since they were resolved.
                entry.addresses, entry.address_index = (), 0
        self._begin_backoff(entry, now_ms)
        entry.state = ConnectionState.DISCONNECTED

    def authentication_failed(self, node_id: int, now_ms: int, error: AuthenticationException) -> None:
        """The login or the TLS handshake failed; the back-off begins."""
        self.disconnected(node_id, now_ms)
        entry = self._nodes[node_id]
        entry.authentication_error = error
        entry.state = ConnectionState.AUTHENTICATION_FAILED

    def throttle(self, node_id: int, until_ms: int) -> None:
        """Send no request to the node before ``until_ms``; an earlier time than before changes nothing."""
        entry = self._nodes.get(node_id)
        if entry is not None:
            entry.throttled_until_ms = max(entry.throttled_until_ms, until_ms)

    def remove(self, node_id: int) -> None:
        """Delete the entry: unlike after ``disconnected``, the node may be connected at once."""
        self._nodes.pop(node_id, None)

    def _begin_backoff(self, entry: NodeConnectionState, now_ms: int) -> None:
        entry.last_connect_attempt_ms = now_ms
        entry.reconnect_backoff_ms = self._reconnect_backoff.backoff(entry.failed_attempts)
        entry.failed_attempts += 1

    def _reset_connection_setup_timeout(self, entry: NodeConnectionState) -> None:
        entry.failed_connect_attempts = 0
        entry.connection_setup_timeout_ms = self._connection_setup_timeout.backoff(0)

    def _setup_left_ms(self, node_id: int, now_ms: int) -> int:
        entry = self._nodes[node_id]
        return entry.connection_setup_timeout_ms - (now_ms - entry.last_connect_attempt_ms)


def _backoff_left_ms(entry: NodeConnectionState, now_ms: int) -> int:
    return max(0, entry.reconnect_backoff_ms - (now_ms - entry.last_connect_attempt_ms))


def _is_ready(entry: NodeConnectionState, now_ms: int) -> bool:
    return entry.state is ConnectionState.READY and entry.throttled_until_ms <= now_ms
