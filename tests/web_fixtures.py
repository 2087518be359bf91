"""Requests to the page's application without a server, and a cluster in memory that it shows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from bridge.web.cluster_watcher import ClusterWatcher
from bridge.web.event_stream import ViewerHub
from bridge.web.page_app import PageSettings, RequestGuard, make_page_app
from bridge.web.request_checks import AllowedRequests
from zkconsumer.admin.admin_session import AdminDependencies, AdminSession

T = TypeVar("T")

HOST = "127.0.0.1:8650"
STEP_TIMEOUT_S = 60.0
"""For what must happen: only its absence takes so long."""

LOCAL_PAGE = AllowedRequests("127.0.0.1", 8650)
REMOTE_PAGE = AllowedRequests("10.0.0.5", 8650, token="the token of this test")


@dataclass
class Answer:
    """What the application answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


@dataclass
class PageUnderTest:
    """The application on a cluster in memory."""

    world: FakeEnvironment
    watcher: ClusterWatcher
    hub: ViewerHub
    app: RequestGuard

    def get(self, address: str, method: str = "GET", body: bytes = b"", **headers: str) -> Answer:
        """One request; ``headers`` with _ for -."""
        return self.run(lambda: request(self.app, address, method, body, **headers))

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run it in an event loop that the watcher wakes."""

        async def attached() -> T:
            self.hub.attach(asyncio.get_running_loop())
            return await asyncio.wait_for(work(), STEP_TIMEOUT_S)

        return asyncio.run(attached())


def dependencies_of(world: FakeEnvironment) -> AdminDependencies:
    """For sessions of tools with this cluster."""
    return AdminDependencies(store=world.store, connect=world.connect)


@contextmanager
def page_of(
    world: FakeEnvironment,
    allowed: AllowedRequests = LOCAL_PAGE,
    open_session: Callable[[], Any] | None = None,
    complete: Callable[[object], object] = lambda document: document,
) -> Iterator[PageUnderTest]:
    """The page of this cluster."""
    hub = ViewerHub()
    opener = open_session or partial(AdminSession.open, ADDRESS, None, dependencies_of(world))
    watcher = ClusterWatcher(opener, hub.wake_soon, complete=complete)
    try:
        yield PageUnderTest(world, watcher, hub, make_page_app(watcher, hub, allowed, PageSettings("test", "0")))
    finally:
        watcher.close()


def scope_of(address: str, method: str = "GET", **headers: str) -> dict[str, Any]:
    """An ASGI scope, as uvicorn makes it."""
    parts = urlsplit(address)
    given = {"host": HOST, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": parts.path,
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in given.items()],
        "client": ("127.0.0.1", 1234),
        "server": ("127.0.0.1", 8650),
    }


async def request(app: Any, address: str, method: str = "GET", body: bytes = b"", **headers: str) -> Answer:
    """Send one request, and read the whole answer."""
    messages: list[dict[str, Any]] = []
    pending = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if pending:
            return pending.pop()
        await asyncio.Event().wait()
        raise AssertionError("it waits until it is cancelled")

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    await app(scope_of(address, method, **headers), receive, send)
    begin = messages[0]
    return Answer(
        begin["status"],
        {name.decode(): value.decode() for name, value in begin["headers"]},
        b"".join(message.get("body", b"") for message in messages[1:]),
    )


@dataclass
class StreamViewer:
    """One viewer of server-sent events: what it received, and when it leaves or stops to read."""

    app: Any
    address: str
    headers: dict[str, str] = field(default_factory=dict)
    status: int = 0
    events: list[tuple[str, Any]] = field(default_factory=list)
    reads: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._left = asyncio.Event()
        self._received = asyncio.Event()
        self._rest = b""
        self.reads.set()
        self._task = asyncio.ensure_future(self._run())

    async def wait_for(self, name: str, holds: Callable[[Any], bool] = lambda _: True) -> Any:
        """The first event of that name, of those received so far or later, that holds."""
        while True:
            for each, data in self.events:
                if each == name and holds(data):
                    return data
            self._received.clear()
            assert not self._task.done(), f"the stream ended with {self.status} before {name}"
            await self._received.wait()

    async def leave(self) -> None:
        """Close the connection."""
        self._left.set()
        await self._task

    async def ended(self) -> None:
        """Wait until the server ends the stream."""
        await self._task

    async def _run(self) -> None:
        async def receive() -> dict[str, Any]:
            await self._left.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            await self.reads.wait()
            if message["type"] == "http.response.start":
                self.status = message["status"]
            self._take(message.get("body", b""))
            self._received.set()

        await self.app(scope_of(self.address, **self.headers), receive, send)
        self._received.set()

    def _take(self, body: bytes) -> None:
        *whole, self._rest = (self._rest + body).split(b"\n\n")
        for block in whole:
            lines = dict(line.split(": ", 1) for line in block.decode().split("\n") if not line.startswith(":"))
            if "event" in lines:
                self.events.append((lines["event"], json.loads(lines["data"])))
