"""``PageConnection``: uvicorn's connection, with a limit for each wait for its client.

uvicorn waits without a limit for a request, and for a client to take an answer.  ``CONNECTIONS_MAX`` such clients, with
a token or without, would lock out all others.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

from bridge.web.event_stream import SEND_TIMEOUT_S

REQUEST_TIMEOUT_S = 30.0
"""A request arrives completely within this time, from the connection or from its first byte on."""


class PageConnection(H11Protocol):  # type: ignore[misc, unused-ignore]
    """A client that does not send its request in time, or takes nothing of an answer in time, is disconnected."""

    _request_timer: asyncio.TimerHandle | None = None
    _send_timer: asyncio.TimerHandle | None = None
    _unsent_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override, unused-ignore]
        super().connection_made(transport)
        # Writing is paused while anything is left to send.  1, not 0: a TLS transport would pause at 0 bytes.
        transport.set_write_buffer_limits(high=1, low=0)
        self._watch_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_request_timer()
        self._cancel_send_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.timeout_keep_alive_task is None:  # the next request has begun to arrive
            self._watch_request()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_sending()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel_send_timer()

    def _watch_request(self) -> None:
        cycle = self.cycle
        if cycle is not None and not cycle.more_body and not cycle.response_complete:
            self._cancel_request_timer()
        elif self._request_timer is None:
            self._request_timer = self.loop.call_later(REQUEST_TIMEOUT_S, self.transport.abort)

    def _watch_sending(self) -> None:
        self._cancel_send_timer()
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self._send_timer = self.loop.call_later(SEND_TIMEOUT_S, self._check_sending)

    def _check_sending(self) -> None:
        if self.transport.get_write_buffer_size() < self._unsent_bytes:
            self._watch_sending()
        else:
            self.transport.abort()  # close() would wait until the client takes the rest

    def _cancel_request_timer(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _cancel_send_timer(self) -> None:
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None
