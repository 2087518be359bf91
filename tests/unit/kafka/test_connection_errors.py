"""Errors of sockets: the reason, and who must act."""

from __future__ import annotations

import errno
import socket

import pytest

from zkconsumer.kafka.net.connection_errors import ConnectionFailureReason, connection_error, ended_error
from zkconsumer.kafka.net.handshake_errors import HandshakeClosedError, HandshakeTimeoutError

REASON = ConnectionFailureReason


@pytest.mark.parametrize(
    ("error", "reason", "text"),
    [
        (
            TimeoutError(),
            REASON.TIMED_OUT,
            "b1:9092: no answer to Metadata v1 within 500 ms; the broker hangs, is overloaded, or a firewall drops the "
            "packets",
        ),
        (
            HandshakeTimeoutError("the SASL login"),
            REASON.TIMED_OUT,
            "b1:9092: no answer to Metadata v1 within 500 ms (during the SASL login); the broker hangs, is overloaded, "
            "or a firewall drops the packets",
        ),
        (
            HandshakeClosedError("the TLS handshake"),
            REASON.CLOSED_IN_HANDSHAKE,
            "b1:9092: the connection was closed in the middle of the TLS handshake; is this a port for another "
            "security.protocol? The broker's log says why it closed",
        ),
        (
            ConnectionResetError("reset"),
            REASON.CLOSED,
            "b1:9092: the connection was closed during Metadata v1 (reset)",
        ),
        (
            ConnectionRefusedError(),
            REASON.REFUSED,
            "b1:9092: the connection was refused; start the broker, or correct its address: the one given here, or the "
            "one that it advertises",
        ),
        (
            socket.gaierror(socket.EAI_NONAME, "unknown"),
            REASON.UNRESOLVED,
            f"b1:9092: the name b1 has no address ([Errno {int(socket.EAI_NONAME)}] unknown); correct DNS here, or the "
            "host: the one given here, or the one that the broker advertises",
        ),
        (
            OSError(errno.ENETUNREACH, "unreachable"),
            REASON.NETWORK_ERROR,
            f"b1:9092: Metadata v1 failed: [Errno {errno.ENETUNREACH}] unreachable; check the network between this "
            "machine and the broker",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, OSError) else "",
)
def test_each_error_of_a_socket_has_a_reason_and_advice(
    error: OSError, reason: ConnectionFailureReason, text: str
) -> None:
    translated = connection_error("b1", 9092, error, "Metadata v1", 500)
    assert translated.reason is reason
    assert str(translated) == text
    assert (translated.host, translated.port) == ("b1", 9092)


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        (b"", "b1:9092: the connection was closed instead of answering Fetch v4"),
        (b"\0\0\0\x10", "b1:9092: the connection was closed after 4 bytes of the answer to Fetch v4"),
        (
            b"\x15\x03",
            "b1:9092: the connection was closed after 2 bytes of the answer to Fetch v4; is this port a TLS port?",
        ),
    ],
)
def test_an_end_says_how_much_of_the_answer_had_come(seen: bytes, text: str) -> None:
    error = ended_error("b1", 9092, "Fetch v4", seen)
    assert error.reason is REASON.CLOSED
    assert str(error) == text
