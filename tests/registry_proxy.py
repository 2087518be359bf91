"""``RegistryProxy``: a proxy in front of a real schema registry, with faults that a test sets while it runs.

    client --> RegistryProxy --> registry         RegistryFault.NONE
           <-- 404, 500, silence, the end of the connection

A change of ``fault`` ends requests that are silent.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from zkconsumer.testing.sandbox.waiting import HOST

REGISTRY_TIMEOUT_S = 30


class RegistryFault(Enum):
    """What the proxy does with a request."""

    NONE = "passes it on"
    NO_SUCH_ID = "answers as a registry without schemas"
    NO_SUCH_PATH = "answers 404 as a web server that is no registry"
    ERROR = "answers 500"
    SILENCE = "accepts it, and does not answer"
    CLOSED = "ends the connection"


_ANSWERS: dict[RegistryFault, tuple[int, Any]] = {
    RegistryFault.NO_SUCH_ID: (404, {"error_code": 40403, "message": "Schema not found"}),
    RegistryFault.NO_SUCH_PATH: (404, {}),
    RegistryFault.ERROR: (500, {"error_code": 50001, "message": "no space left"}),
}


class RegistryProxy:
    """``url``: of the proxy, with the path of the registry.  ``paths``: of the requests, in their order."""

    def __init__(self, registry_url: str) -> None:
        parts = urlsplit(registry_url)
        self.paths: list[str] = []
        self._registry = (parts.hostname or "", parts.port or 0)
        self._fault = RegistryFault.NONE
        self._changed = threading.Condition()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                proxy.paths.append(self.path)
                self.close_connection = True
                fault = proxy.wait_in_silence()
                if fault is RegistryFault.CLOSED:
                    return
                status, body = _answer(fault) if fault in _ANSWERS else proxy.ask_registry(self.path)
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer((HOST, 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.url = f"http://{HOST}:{self._server.server_address[1]}{parts.path}"

    @property
    def fault(self) -> RegistryFault:
        return self._fault

    @fault.setter
    def fault(self, fault: RegistryFault) -> None:
        with self._changed:
            self._fault = fault
            self._changed.notify_all()

    def wait_in_silence(self) -> RegistryFault:
        """The fault for a request; while it is ``SILENCE``, this waits, and then the connection ends."""
        with self._changed:
            if self._fault is not RegistryFault.SILENCE:
                return self._fault
            self._changed.wait_for(lambda: self._fault is not RegistryFault.SILENCE)
            return RegistryFault.CLOSED

    def ask_registry(self, path: str) -> tuple[int, bytes]:
        """The registry's own answer."""
        connection = http.client.HTTPConnection(*self._registry, timeout=REGISTRY_TIMEOUT_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def close(self) -> None:
        self.fault = RegistryFault.CLOSED
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def registry_proxy(registry_url: str) -> Iterator[RegistryProxy]:
    """A proxy until the end of the block."""
    proxy = RegistryProxy(registry_url)
    try:
        yield proxy
    finally:
        proxy.close()


def _answer(fault: RegistryFault) -> tuple[int, bytes]:
    status, content = _ANSWERS[fault]
    return status, json.dumps(content).encode()
