"""Errors between the TCP connect and the first request: both are ``OSError``, which ``connection_errors`` translates.

    HandshakeTimeoutError   the other side did not answer in time
    HandshakeClosedError    the other side closed the connection

The argument of both is the step: ``the TLS handshake``, ``the SASL login``, ``the renewal of the SASL login``.
"""

from __future__ import annotations


class HandshakeTimeoutError(TimeoutError):
    """The connect succeeded, and then the other side did not answer; the text names the step."""


class HandshakeClosedError(ConnectionResetError):
    """The connect succeeded, and the connection ended before the handshake was complete; the text names the step."""
