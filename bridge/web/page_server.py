"""Runs the page: the sockets, TLS, and uvicorn, until a signal comes.

The access log is off, so no address that a browser requested is written anywhere.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from bridge.web.cluster_watcher import ClusterWatcher
from bridge.web.event_stream import ViewerHub
from bridge.web.page_app import PageSettings, make_page_app
from bridge.web.page_connection import PageConnection
from bridge.web.reader_thread import OpenSession
from bridge.web.request_checks import AllowedRequests
from zkconsumer.errors import PreconditionFailed, UsageError

CONNECTIONS_MAX = 256
"""Open connections and requests; more are answered with 503."""

KEEP_ALIVE_S = 30
STOP_TIMEOUT_S = 3
BACKLOG = 128


@dataclass(frozen=True, slots=True)
class PageTls:
    """PEM files; ``key`` None: the certificate's file contains it."""

    certificate: Path
    key: Path | None = None


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0: any free port.  Raises ``PreconditionFailed``."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:  # UnicodeError: a label that IDNA does not allow
        raise PreconditionFailed(f"{host} is no address of this machine: {error}") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise PreconditionFailed(f"cannot listen on {host} port {port}: {error.strerror}") from error
    return listening


def check_tls(tls: PageTls) -> None:
    """Raises ``UsageError`` for files that are no certificate and key."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"{tls.certificate} and its key cannot be used: {error}") from error


@dataclass(slots=True)
class PageServer:
    """One server.  ``listening``: from ``listen``; ``allowed.port`` must be its port."""

    listening: socket.socket
    allowed: AllowedRequests
    settings: PageSettings
    open_session: OpenSession
    complete: Callable[[object], object] = lambda document: document
    tls: PageTls | None = None
    on_started: Callable[[], None] = lambda: None
    _server: Any = None

    def run(self) -> None:
        """Serve until ``stop`` is called, or SIGINT or SIGTERM comes (only on the main thread)."""
        hub = ViewerHub()
        watcher = ClusterWatcher(self.open_session, hub.wake_soon, complete=self.complete)
        app = make_page_app(watcher, hub, self.allowed, self.settings)
        config = uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=STOP_TIMEOUT_S,
            ws="none",
            http=PageConnection,
            ssl_certfile=None if self.tls is None else str(self.tls.certificate),
            ssl_keyfile=None if self.tls is None or self.tls.key is None else str(self.tls.key),
        )
        self._server = _Server(config, hub, self.on_started)
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        try:
            asyncio.run(self._server.serve(sockets=[self.listening]))
        except KeyboardInterrupt:
            return  # uvicorn stopped the server, and raises the signal again
        finally:
            watcher.close()
            self.listening.close()

    def stop(self) -> None:
        """End ``run``; any thread may call it."""
        if self._server is not None:
            self._server.should_exit = True


class _Server(uvicorn.Server):  # type: ignore[misc, unused-ignore]
    """Ends the streams of viewers before uvicorn waits for their requests to end."""

    def __init__(self, config: uvicorn.Config, hub: ViewerHub, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._hub = hub
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._hub.attach(asyncio.get_running_loop())
        await super().startup(sockets=sockets)
        self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._hub.close()
        await super().shutdown(sockets=sockets)
