"""``EventStream``: server-sent events of one viewer, and ``ViewerHub``, which wakes all of them.

What bounds a viewer: the hub refuses more than ``VIEWERS_MAX``.  A stream keeps no queue: it knows which revision it
sent last, and sends the newest one when the connection takes it, so a slow viewer skips changes.  A connection that
takes nothing for ``SEND_TIMEOUT_S`` is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from bridge.web.group_feed import PublishedMessage

VIEWERS_MAX = 64
SEND_TIMEOUT_S = 20.0
HEARTBEAT_S = 15.0
"""A comment is sent after such a silence, so that proxies keep the connection, and a viewer that has gone is found."""

RETRY_MS = 2_000
"""After a lost connection the browser waits this long."""

HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]

AsgiMessage: TypeAlias = MutableMapping[str, Any]
AsgiReceive: TypeAlias = Callable[[], Awaitable[AsgiMessage]]
AsgiSend: TypeAlias = Callable[[AsgiMessage], Awaitable[None]]


class ViewerHub:
    """The viewers of one server.  ``wake_soon`` may be called by any thread, everything else only in the loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: set[asyncio.Event] = set()
        self._viewers = 0
        self.is_closed = False

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Called once, when the server starts."""
        self._loop = loop

    def wake_soon(self) -> None:
        """Wake all that wait.  Has no effect before ``attach``, and after the loop has ended."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            try:
                loop.call_soon_threadsafe(self._wake)
            except RuntimeError:
                return  # the loop was closed meanwhile

    def close(self) -> None:
        """End all streams, so that the server can stop."""
        self.is_closed = True
        self._wake()

    def enter(self) -> bool:
        """Whether one more viewer fits; each True needs one ``leave``."""
        if self._viewers >= VIEWERS_MAX or self.is_closed:
            return False
        self._viewers += 1
        return True

    def leave(self) -> None:
        self._viewers -= 1

    @property
    def viewers(self) -> int:
        return self._viewers

    def new_event(self) -> asyncio.Event:
        """An event that each change sets; give it back with ``discard``."""
        event = asyncio.Event()
        self._waiting.add(event)
        return event

    def discard(self, event: asyncio.Event) -> None:
        self._waiting.discard(event)

    def _wake(self) -> None:
        for event in self._waiting:
            event.set()


class EventStream:
    """An ASGI response.  ``messages`` returns the newest message of each kind."""

    def __init__(
        self,
        hub: ViewerHub,
        messages: Callable[[], Mapping[str, PublishedMessage]],
        send_timeout_s: float = SEND_TIMEOUT_S,
    ) -> None:
        self._hub = hub
        self._messages = messages
        self._send_timeout_s = send_timeout_s
        self._sent: dict[str, int] = {}

    async def run(self, receive: AsgiReceive, send: AsgiSend) -> None:
        """Send until the viewer leaves, takes nothing any more, or the hub closes."""
        changed = self._hub.new_event()
        changed.set()
        gone = asyncio.ensure_future(_wait_for_disconnect(receive))
        gone.add_done_callback(lambda _: changed.set())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await self._send(send, b"retry: %d\n\n" % RETRY_MS)
            while not gone.done() and not self._hub.is_closed:
                try:
                    await asyncio.wait_for(changed.wait(), HEARTBEAT_S)
                except TimeoutError:
                    await self._send(send, b": keep-alive\n\n")
                    continue
                changed.clear()
                if not gone.done():
                    await self._send(send, b"".join(self._pending()))
            if not gone.done():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            return  # without an end of the body the server closes the connection
        finally:
            gone.cancel()
            self._hub.discard(changed)

    def _pending(self) -> list[bytes]:
        found = []
        for name, message in self._messages().items():
            sent = self._sent.get(name)
            if sent == message.revision:
                continue
            is_next = sent is not None and sent + 1 == message.revision
            found.append(message.patch if is_next and message.patch is not None else message.full())
            self._sent[name] = message.revision
        return found

    async def _send(self, send: AsgiSend, body: bytes) -> None:
        if body:
            message = {"type": "http.response.body", "body": body, "more_body": True}
            await asyncio.wait_for(send(message), self._send_timeout_s)


async def _wait_for_disconnect(receive: AsgiReceive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
