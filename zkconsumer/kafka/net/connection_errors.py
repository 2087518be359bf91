"""Translates errors of sockets into ``BrokerConnectionError``: the broker, what failed, and who must act.

The blocking connection and the selector use the same texts.  Nothing here does I/O; ``socket`` is imported for the type
of the resolver's error.
"""

from __future__ import annotations

import socket
from enum import Enum
from typing import Protocol

from zkconsumer.errors import AuthenticationException, BrokerUnreachable
from zkconsumer.kafka.net.handshake_errors import HandshakeClosedError, HandshakeTimeoutError
from zkconsumer.wire.request_frames import RESPONSE_BYTES_MAX, SIZE_BYTES


class ConnectionFailureReason(Enum):
    """Why a broker could not be reached."""

    UNRESOLVED = "its name has no address"
    REFUSED = "nothing listens there"
    TIMED_OUT = "it did not answer in time"
    CLOSED = "it closed the connection"
    CLOSED_IN_HANDSHAKE = "it closed the connection before TLS or the login was agreed on"
    NETWORK_ERROR = "the network failed"


class BrokerConnectionError(BrokerUnreachable):
    """A broker did not answer; the text contains the broker, the request, and who must act."""

    def __init__(self, host: str, port: int, reason: ConnectionFailureReason, what: str) -> None:
        super().__init__(f"{host}:{port}: {what}")
        self.host = host
        self.port = port
        self.reason = reason


def connection_error(host: str, port: int, error: OSError, what: str, timeout_ms: int) -> BrokerConnectionError:
    """The translation of ``error``; ``what``: the request or the step during which it occurred.

    ``timeout_ms``: the time that the caller allowed, for the text of a ``TimeoutError``.
    """
    reason, words = _reason_and_words(host, error, what, timeout_ms)
    return BrokerConnectionError(host, port, reason, words)


def ended_error(host: str, port: int, what: object, seen: bytes) -> BrokerConnectionError:
    """The error for a broker that ended the connection instead of answering ``what``.

    ``seen``: the bytes of the answer that had arrived, with its size.
    """
    where = f"after {len(seen)} bytes of the answer to" if seen else "instead of answering"
    words = f"the connection was closed {where} {what}{guess_protocol(seen)}"
    return BrokerConnectionError(host, port, ConnectionFailureReason.CLOSED, words)


def _reason_and_words(host: str, error: OSError, what: str, timeout_ms: int) -> tuple[ConnectionFailureReason, str]:
    match error:
        case TimeoutError():
            advice = "the broker hangs, is overloaded, or a firewall drops the packets"
            during = f" (during {error})" if isinstance(error, HandshakeTimeoutError) else ""
            return (
                ConnectionFailureReason.TIMED_OUT,
                f"no answer to {what} within {timeout_ms} ms{during}; {advice}",
            )
        case socket.gaierror():
            advice = "correct DNS here, or the host: the one given here, or the one that the broker advertises"
            return ConnectionFailureReason.UNRESOLVED, f"the name {host} has no address ({error}); {advice}"
        case ConnectionRefusedError():
            advice = "start the broker, or correct its address: the one given here, or the one that it advertises"
            return ConnectionFailureReason.REFUSED, f"the connection was refused; {advice}"
        case HandshakeClosedError():
            advice = "is this a port for another security.protocol? The broker's log says why it closed"
            return (
                ConnectionFailureReason.CLOSED_IN_HANDSHAKE,
                f"the connection was closed in the middle of {error}; {advice}",
            )
        case ConnectionError():
            return ConnectionFailureReason.CLOSED, f"the connection was closed during {what} ({error})"
    advice = "check the network between this machine and the broker"
    return ConnectionFailureReason.NETWORK_ERROR, f"{what} failed: {error}; {advice}"


def guess_protocol(start: bytes | bytearray) -> str:
    """A question for the error text, if the first bytes of a response look like another protocol's."""
    if start[:4] in (b"HTTP", b"<!DO", b"<htm", b"<HTM"):
        return "; is this port an HTTP port?"
    if len(start) >= 2 and start[0] in (0x15, 0x16) and start[1] == 0x03:
        return "; is this port a TLS port?"
    if start[:4] == b"SSH-":
        return "; is this port an SSH port?"
    if len(start) >= SIZE_BYTES and _is_invalid_size(start):
        return "; is this port a TLS or HTTP port, or something else than a Kafka broker?"
    return ""


def _is_invalid_size(start: bytes | bytearray) -> bool:
    """Whether the first four bytes cannot be the size of any frame that is accepted by default."""
    size = int.from_bytes(start[:SIZE_BYTES], "big", signed=True)
    return not 0 <= size <= RESPONSE_BYTES_MAX


class PortDiagnosis(Protocol):
    """Finds out whether a port has another protocol than ``security.protocol``: ``SecureConnectionFactory.diagnose``.

    ``error``: how a connection to the port ended.
    """

    def __call__(self, host: str, port: int, error: Exception) -> AuthenticationException | None: ...
