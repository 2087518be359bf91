"""The events and commands of the network machine.  Pure.

A node is named by its id; the node with an id has at most one connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from zkconsumer.errors import AuthenticationException
from zkconsumer.kafka.client_log_event import ClientLogEvent
from zkconsumer.kafka.net.client_request import ClientResponse


class DisconnectReason(Enum):
    """Why a connection ended, or could not be established (Java's ``ChannelState``)."""

    NOT_CONNECTED = "the connection could not be established"
    CLOSED_IN_HANDSHAKE = "the broker closed the connection before TLS or the login was agreed on"
    AUTHENTICATION_FAILED = "TLS or the login failed"
    CLOSED = "the broker closed the connection"
    INVALID_RESPONSE = "the broker sent bytes that are not a response"
    LOCAL_CLOSE = "this client closed the connection"


# --- events: what happened ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HostResolved:
    """The answer to ``ResolveHost``: the IP addresses of the host, in the order in which to try them.

    None: the name has no address, or could not be resolved; ``reason`` has the error text.
    """

    node_id: int
    addresses: tuple[str, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NodeConnected:
    """The connection of ``OpenConnection`` is established and authenticated; it accepts requests."""

    node_id: int


@dataclass(frozen=True, slots=True)
class NodeDisconnected:
    """The connection ended, or could not be established; never after ``DropConnection``.

    ``detail``: the error text.  ``error``: only for AUTHENTICATION_FAILED.
    """

    node_id: int
    reason: DisconnectReason
    detail: str = ""
    error: AuthenticationException | None = None


@dataclass(frozen=True, slots=True)
class RequestWritten:
    """The socket took all bytes of the frame that was sent last."""

    node_id: int


@dataclass(frozen=True, slots=True)
class FrameReceived:
    """A whole response frame arrived, without its size."""

    node_id: int
    frame: memoryview


NetworkEvent: TypeAlias = HostResolved | NodeConnected | NodeDisconnected | RequestWritten | FrameReceived

# --- commands: what the caller must do, in this order ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResolveHost:
    """Resolve the name of a host; ``HostResolved`` answers it."""

    node_id: int
    host: str


@dataclass(frozen=True, slots=True)
class OpenConnection:
    """Begin to connect to an IP address; ``NodeConnected`` or ``NodeDisconnected`` answers it.

    ``host`` is the name, for TLS and SASL.
    """

    node_id: int
    host: str
    port: int
    address: str


@dataclass(frozen=True, slots=True)
class SendFrame:
    """Send a request frame, with its size; ``RequestWritten`` follows, or the connection ends."""

    node_id: int
    frame: bytes


@dataclass(frozen=True, slots=True)
class DropConnection:
    """Close the connection, if there is one; no event follows."""

    node_id: int


@dataclass(frozen=True, slots=True)
class CompleteRequest:
    """A request ended: call ``response.on_complete()``."""

    response: ClientResponse


NetworkCommand: TypeAlias = ResolveHost | OpenConnection | SendFrame | DropConnection | CompleteRequest | ClientLogEvent
