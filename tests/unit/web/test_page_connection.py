"""``PageConnection``: clients that send or take nothing, on a socket pair without a server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from bridge.web import page_connection
from bridge.web.page_connection import PageConnection

STEP_TIMEOUT_S = 30.0
"""For what must happen: only its absence takes so long."""

LARGE = b"x" * 4_000_000
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


async def answer(scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    """Read the request, and send a large body in parts."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(LARGE))]})
    for place in range(0, len(LARGE), 1_000_000):
        await send({"type": "http.response.body", "body": LARGE[place : place + 1_000_000], "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[socket.socket, ServerState]]:
    """The client's end of a connection, and what the server knows of its connections."""
    config = uvicorn.Config(answer, lifespan="off", log_config=None, access_log=False, http=PageConnection)
    config.load()
    state = ServerState()
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_accepted_socket(lambda: config.http_protocol_class(config, state, {}), ours)
    try:
        yield theirs, state
    finally:
        transport.abort()
        theirs.close()


async def until_closed(state: ServerState) -> None:
    while state.connections:
        await asyncio.sleep(0.01)


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), STEP_TIMEOUT_S))


@pytest.mark.parametrize(
    "sent",
    [b"", GET[:20], b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"],
    ids=["nothing", "head", "body"],
)
def test_a_client_that_does_not_send_its_request_is_disconnected(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(page_connection, "REQUEST_TIMEOUT_S", 0.2)

    async def work() -> None:
        async with connected() as (client, state):
            await asyncio.get_running_loop().sock_sendall(client, sent)
            await until_closed(state)

    run(work)


def test_a_client_that_takes_nothing_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_connection, "SEND_TIMEOUT_S", 0.2)

    async def work() -> None:
        async with connected() as (client, state):
            await asyncio.get_running_loop().sock_sendall(client, GET)
            await until_closed(state)

    run(work)


def test_a_slow_client_gets_everything_and_keeps_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_connection, "SEND_TIMEOUT_S", 0.3)
    monkeypatch.setattr(page_connection, "REQUEST_TIMEOUT_S", 0.3)

    async def work() -> None:
        loop = asyncio.get_running_loop()
        async with connected() as (client, state):
            for _ in range(2):
                await loop.sock_sendall(client, GET)
                received = b""
                while not received.endswith(b"\r\n\r\n" + LARGE):
                    part = await loop.sock_recv(client, 100_000)
                    assert part, "the connection was closed"
                    received += part
                    await asyncio.sleep(0.02)
            await asyncio.sleep(0.6)
            assert state.connections, "it may wait for the next request, as uvicorn lets it"

    run(work)
