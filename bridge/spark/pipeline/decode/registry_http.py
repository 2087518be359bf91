"""One GET request over HTTP/1.1 or HTTPS with a deadline that holds for all of it.

``http.client`` has a timeout for each system call only: a server that sends a byte now and then keeps a caller for
ever.  ``_DeadlineSocket`` gives each system call what is left until the deadline, at most ``read_timeout_ms``.  The
name resolution has no deadline: the resolver of the system limits it.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zkconsumer.base.clock import Clock

ADDRESSES_MAX = 8
"""The maximum number of addresses of a host that are tried."""

BODY_BYTES_MAX = 16 * 1024 * 1024
"""The longest body that is read; the largest schemas have some hundred kilobytes."""


class RegistryBodyTooLong(Exception):
    """The body of the response is longer than ``BODY_BYTES_MAX``: no registry answers that."""


@dataclass(frozen=True, slots=True)
class HttpEndpoint:
    """A server: host, port, the timeout of a connect and of a silence in ms; ``tls`` None: plain HTTP."""

    host: str
    port: int
    connect_timeout_ms: int
    read_timeout_ms: int
    tls: ssl.SSLContext | None


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The response: its status, its body, and the header ``Location`` if there is one.

    ``has_length``: whether the response shows where its body ends; otherwise a connection that broke may have cut it.
    """

    status: int
    body: bytes
    location: str | None
    has_length: bool


def http_get(
    endpoint: HttpEndpoint, path: str, headers: Mapping[str, str], deadline_ms: int, clock: Clock
) -> HttpAnswer:
    """Sends the request over a new connection, and reads the response.

    Raises ``OSError`` (``TimeoutError`` and ``ssl.SSLError`` are such) and ``http.client.HTTPException`` for a server
    that cannot be reached, is silent, or sends no complete response; ``RegistryBodyTooLong``.
    """
    connection = http.client.HTTPConnection(endpoint.host, endpoint.port)
    with _connect(endpoint, deadline_ms, clock) as sock:
        connection.sock = _DeadlineSocket(sock, endpoint.read_timeout_ms, deadline_ms, clock)
        connection.request("GET", path, headers={**headers, "Connection": "close"})
        response = connection.getresponse()
        has_length = response.length is not None or response.chunked
        body = response.read(BODY_BYTES_MAX + 1)
        if len(body) > BODY_BYTES_MAX:
            raise RegistryBodyTooLong(f"the body is longer than {BODY_BYTES_MAX} bytes")
        if response.length:
            raise http.client.IncompleteRead(body, response.length)
        return HttpAnswer(response.status, body, response.getheader("Location"), has_length)


def _connect(endpoint: HttpEndpoint, deadline_ms: int, clock: Clock) -> socket.socket:
    connect_deadline_ms = min(deadline_ms, clock.now_ms() + endpoint.connect_timeout_ms)
    last_error: OSError = OSError(f"{endpoint.host} has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)[
        :ADDRESSES_MAX
    ]:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(_left_s(connect_deadline_ms, clock))
            sock.connect(address)
            if endpoint.tls is None:
                return sock
            sock.settimeout(_left_s(connect_deadline_ms, clock))
            return endpoint.tls.wrap_socket(sock, server_hostname=endpoint.host)
        except OSError as error:
            sock.close()
            last_error = error
    raise last_error


def _left_s(deadline_ms: int, clock: Clock) -> float:
    """The seconds until the deadline; raises ``TimeoutError`` when there are none."""
    left_ms = deadline_ms - clock.now_ms()
    if left_ms <= 0:
        raise TimeoutError("timed out")
    return left_ms / 1000


class _DeadlineSocket:
    """What ``http.client`` calls of a socket, with the deadline."""

    def __init__(self, sock: socket.socket, read_timeout_ms: int, deadline_ms: int, clock: Clock) -> None:
        self._sock = sock
        self._read_timeout_ms = read_timeout_ms
        self._deadline_ms = deadline_ms
        self._clock = clock

    def sendall(self, data: Any) -> None:
        self._set_timeout()
        self._sock.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """The file that the response is read from."""
        return io.BufferedReader(_DeadlineReader(self))

    def close(self) -> None:
        """Does nothing: ``HTTPConnection`` closes before the body is read, and ``http_get`` closes the socket."""

    def receive_into(self, buffer: Any) -> int:
        self._set_timeout()
        return self._sock.recv_into(buffer)

    def _set_timeout(self) -> None:
        self._sock.settimeout(min(_left_s(self._deadline_ms, self._clock), self._read_timeout_ms / 1000))


class _DeadlineReader(io.RawIOBase):
    def __init__(self, sock: _DeadlineSocket) -> None:
        super().__init__()
        self._sock = sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._sock.receive_into(buffer)
