"""The ASGI application: pages, documents and events; every request passes ``RequestGuard`` first.

    /                     the list of groups                     groups list
    /group?name=G         members, owners, changes               groups describe
    /group/lag?name=G     offsets, lag, graphs                   lag
    /group/move?name=G    the migration                          migrate status
    /group/evidence?name=G    findings, verify rows, events      groups doctor
    /group/verify?name=G  only as JSON                           migrate verify

Each address answers a browser with the page, and a program (``Accept: application/json``, or ``format=json``) with the
document of the command in the right column.  A group's name is a parameter because it may contain any character.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, quote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from bridge.web.cluster_watcher import ClusterWatcher, TooManyGroups
from bridge.web.event_stream import AsgiReceive, AsgiSend, EventStream, ViewerHub
from bridge.web.group_feed import DOCTOR, GROUP, LAG, MOVE, VERIFY, json_bytes
from bridge.web.read_state import ReadState
from bridge.web.request_checks import (
    PATHS_WITHOUT_TOKEN,
    SECURITY_HEADERS,
    SESSION_PATH,
    SIGN_IN_PATH,
    AllowedRequests,
    RequestFacts,
    RequestRefusal,
    bearer_token,
    check_request,
    cookie_header,
    session_cookie,
)
from bridge.web.web_sessions import SESSION_MS, WebSessions
from zkconsumer.base.clock import SYSTEM_CLOCK, Clock

DOCUMENT_TIMEOUT_S = 45.0
"""How long a program waits for the first read of a document: longer than a request to a silent server takes."""

FRESH_MS: Mapping[str, int] = {GROUP: 3_000, LAG: 3_000, MOVE: 5_000, DOCTOR: 30_000, VERIFY: 30_000}
"""A program gets a document that was read within this time; for an older one it waits for the next read."""

LIST_FRESH_MS = 45_000

BODY_BYTES_MAX = 4_096
"""Of a request; only the token is ever sent."""

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8", ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}  # fmt: skip

PANEL_KINDS = {
    "/group": GROUP,
    "/group/lag": LAG,
    "/group/move": MOVE,
    "/group/evidence": DOCTOR,
    "/group/verify": VERIFY,
}


@dataclass(frozen=True, slots=True)
class PageSettings:
    """What the server shows about itself.  ``cluster``: its addresses.  ``note``: a sentence for every page."""

    cluster: str
    version: str
    note: str = ""


def static_files() -> dict[str, bytes]:
    """The files of ``static/`` by their path below it; all are read once, so no request reads a path of the disk."""
    found: dict[str, bytes] = {}
    pending = [("", resources.files("bridge.web").joinpath("static"))]
    while pending:
        prefix, folder = pending.pop()
        for one in folder.iterdir():
            if one.is_dir():
                pending.append((f"{prefix}{one.name}/", one))
            else:
                found[f"{prefix}{one.name}"] = one.read_bytes()
    return found


def make_page_app(
    watcher: ClusterWatcher,
    hub: ViewerHub,
    allowed: AllowedRequests,
    settings: PageSettings,
    clock: Clock = SYSTEM_CLOCK,
) -> RequestGuard:
    """The application.  ``hub.wake_soon`` must be the watcher's ``on_change``."""
    sessions = None if allowed.token is None else WebSessions(allowed.token)
    pages = GroupPages(watcher, hub, settings, clock)
    routes = [
        Route("/", pages.list_page),
        *(Route(path, pages.panel) for path in PANEL_KINDS),
        Route("/about", pages.about),
        Route("/events/list", pages.list_events),
        Route("/events/group", pages.group_events),
        Route("/static/{path:path}", pages.static),
    ]
    if sessions is not None:
        sign_in = SignIn(sessions, pages.files["sign-in.html"], clock, allowed)
        routes += [Route(SIGN_IN_PATH, sign_in.page), Route(SESSION_PATH, sign_in.exchange, methods=["POST"])]
    return RequestGuard(Starlette(routes=routes), allowed, sessions, clock)


class RequestGuard:
    """Refuses what ``request_checks`` refuses, and adds the security headers to every response."""

    def __init__(self, app: Any, allowed: AllowedRequests, sessions: WebSessions | None, clock: Clock) -> None:
        self._app = app
        self._allowed = allowed
        self._sessions = sessions
        self._clock = clock

    async def __call__(self, scope: Mapping[str, Any], receive: AsgiReceive, send: AsgiSend) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                own = {name.lower().encode() for name in SECURITY_HEADERS}
                kept = [(name, value) for name, value in message.get("headers", []) if name.lower() not in own]
                added = [(name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
                message = {**message, "headers": [*kept, *added]}
            await send(message)

        request = request_facts(scope)
        refusal = check_request(request, self._allowed) or self._check_session(request, scope)
        if refusal is None:
            await self._app(scope, receive, send_with_headers)
            return
        response: Response
        if refusal.status == 401 and _accepts_page(request):
            response = RedirectResponse(SIGN_IN_PATH, 303)
        else:
            response = EscapedJSONResponse({"error": refusal.reason}, refusal.status)
        await response(scope, receive, send_with_headers)

    def _check_session(self, request: RequestFacts, scope: Mapping[str, Any]) -> RequestRefusal | None:
        if self._sessions is None or request.path in PATHS_WITHOUT_TOKEN:
            return None
        now_ms = self._clock.now_ms()
        cookie = session_cookie(request.headers, self._allowed.cookie_name)
        if cookie is not None and self._sessions.is_valid(cookie, now_ms):
            return None
        token = bearer_token(request.headers)
        if token is not None and self._sessions.is_token(token, client_of(scope), now_ms):
            return None
        return RequestRefusal(401, f"This address needs the token: open {SIGN_IN_PATH}, or send it as a bearer token.")


def request_facts(scope: Mapping[str, Any]) -> RequestFacts:
    """What decides about an ASGI request."""
    headers: dict[str, str] = {}
    hosts = 0
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        hosts += key == "host"
        text = value.decode("latin-1")
        # Two cookies of our name are ambiguous, so both must be seen; two origins match no origin.
        separator = "; " if key == "cookie" else ", "
        headers[key] = f"{headers[key]}{separator}{text}" if key in headers else text
    query = parse_qs(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
    return RequestFacts(scope["method"], scope["path"], headers, hosts, frozenset(query))


def client_of(scope: Mapping[str, Any]) -> str:
    """The address of the client, for the limit on wrong tokens."""
    client = scope.get("client")
    return client[0] if client else ""


def _accepts_page(request: RequestFacts) -> bool:
    return request.method == "GET" and "text/html" in request.headers.get("accept", "")


class SignIn:
    """The page for the token, and its exchange for a cookie."""

    def __init__(self, sessions: WebSessions, html: bytes, clock: Clock, allowed: AllowedRequests) -> None:
        self._sessions = sessions
        self._html = html
        self._clock = clock
        self._allowed = allowed

    async def page(self, request: Request) -> Response:
        """The form; its script takes the token from the fragment of the address, which browsers never send."""
        return Response(self._html, media_type=MEDIA_TYPES[".html"])

    async def exchange(self, request: Request) -> Response:
        """``token=…`` as a form -> the cookie of a new session."""
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > BODY_BYTES_MAX:
                return EscapedJSONResponse({"error": "the request is too large"}, 413)
        token = "".join(parse_qs(body.decode("latin-1")).get("token", []))
        new_id, now_ms, client = secrets.token_urlsafe(32), self._clock.now_ms(), client_of(request.scope)
        if self._sessions.is_blocked(client, now_ms):
            return EscapedJSONResponse({"error": "too many wrong tokens; wait a minute"}, 429, {"Retry-After": "60"})
        if not self._sessions.exchange(token.strip(), new_id, client, now_ms):
            return RedirectResponse(f"{SIGN_IN_PATH}?wrong", 303)
        response = RedirectResponse("/", 303)
        response.headers["Set-Cookie"] = cookie_header(self._allowed, new_id, SESSION_MS // 1000)
        return response


class GroupPages:
    """What is answered about the cluster."""

    def __init__(self, watcher: ClusterWatcher, hub: ViewerHub, settings: PageSettings, clock: Clock) -> None:
        self._watcher = watcher
        self._hub = hub
        self._settings = settings
        self._clock = clock
        self.files = static_files()

    async def list_page(self, request: Request) -> Response:
        if not wants_json(request):
            return self._page()
        self._watcher.want_list()
        state = await self._fresh(self._watcher.list_state, LIST_FRESH_MS)
        return self._document(state, "the list of groups was not read in time")

    async def panel(self, request: Request) -> Response:
        kind = PANEL_KINDS[request.url.path]
        if not wants_json(request) and kind != VERIFY:
            return self._page()
        group = request.query_params.get("name", "")
        if not group:
            return EscapedJSONResponse({"error": "name the group: ?name=GROUP"}, 400)
        try:
            feed = self._watcher.want_group(group, kind)
        except TooManyGroups as error:
            return _busy(str(error))
        state = await self._fresh(lambda: feed.state(kind), FRESH_MS[kind])
        if state.is_absent:
            why = f"The consumer group '{group}' does not exist."
            if kind == VERIFY:
                why = f"No migration of the group '{group}' has begun."
            return EscapedJSONResponse({"error": why}, 404)
        if kind == VERIFY and state.document is not None and "reason" in state.document:
            return EscapedJSONResponse({"error": state.document["reason"]}, 409)
        return self._document(state, f"the group {group} was not read in time")

    async def about(self, request: Request) -> Response:
        """What every page shows in its head."""
        settings = self._settings
        facts = {"cluster": settings.cluster, "version": settings.version, "note": settings.note or None}
        return EscapedJSONResponse(facts | {"now_ms": self._clock.wall_ms()})

    async def static(self, request: Request) -> Response:
        """A file of ``static/``."""
        path = request.path_params["path"]
        body = self.files.get(path)
        if body is None or path.endswith(".html"):
            return EscapedJSONResponse({"error": "there is no such file"}, 404)
        return Response(body, media_type=MEDIA_TYPES.get(path[path.rfind(".") :], "text/plain; charset=utf-8"))

    async def list_events(self, request: Request) -> Any:
        """The events of the list."""
        if not self._hub.enter():
            return _busy("too many pages are open")

        async def end() -> None:
            self._watcher.show_list(-1)
            self._hub.leave()

        self._watcher.show_list(1)
        return StreamResponse(EventStream(self._hub, self._watcher.list_messages), end)

    async def group_events(self, request: Request) -> Any:
        """The events of a group; ``panel=evidence`` has the findings too, which cost more to read."""
        group = request.query_params.get("name", "")
        if not group:
            return EscapedJSONResponse({"error": "name the group: ?name=GROUP"}, 400)
        if not self._hub.enter():
            return _busy("too many pages are open")
        kinds = (DOCTOR, VERIFY) if request.query_params.get("panel") == "evidence" else ()
        try:
            feed = self._watcher.show_group(group, kinds)
        except TooManyGroups as error:
            self._hub.leave()
            return _busy(str(error))

        async def end() -> None:
            self._watcher.hide_group(group, kinds)
            self._hub.leave()

        return StreamResponse(EventStream(self._hub, feed.published), end)

    def _page(self) -> Response:
        return Response(self.files["page.html"], media_type=MEDIA_TYPES[".html"])

    async def _fresh(self, read: Callable[[], ReadState], fresh_ms: int) -> ReadState:
        """Wait until a read has ended that is fresh enough, at most ``DOCUMENT_TIMEOUT_S``; then what there is."""
        changed = self._hub.new_event()
        begin_ms = self._clock.wall_ms()
        try:
            async with asyncio.timeout(DOCUMENT_TIMEOUT_S):
                while not _is_fresh(state := read(), begin_ms - fresh_ms):
                    changed.clear()
                    if _is_fresh(state := read(), begin_ms - fresh_ms):
                        break
                    await changed.wait()
        except TimeoutError:
            return read()
        finally:
            self._hub.discard(changed)
        return state

    def _document(self, state: ReadState, if_none: str) -> Response:
        if state.document is None:
            return EscapedJSONResponse({"error": state.error or if_none}, 503)
        age_s = max(0, self._clock.wall_ms() - (state.read_at_ms or 0)) // 1000
        headers = {"Age": str(age_s)}
        if state.error:
            headers["Zkconsumer-Read-Error"] = quote(state.error, safe=" ,:;()'/", errors="replace")
        return EscapedJSONResponse(dict(state.document), headers=headers)


class EscapedJSONResponse(JSONResponse):  # type: ignore[misc, unused-ignore]
    """JSON in ASCII, as in the events (``json_bytes``)."""

    def render(self, content: Any) -> bytes:
        return json_bytes(content)


class StreamResponse:
    """Runs an ``EventStream`` as the response of a route, and then ``end``."""

    def __init__(self, stream: EventStream, end: Callable[[], Any]) -> None:
        self._stream = stream
        self._end = end

    async def __call__(self, scope: Mapping[str, Any], receive: AsgiReceive, send: AsgiSend) -> None:
        try:
            await self._stream.run(receive, send)
        finally:
            await self._end()


def wants_json(request: Request) -> bool:
    """Whether a program asks: ``format=json``, or ``Accept`` has JSON and no HTML."""
    accept = request.headers.get("accept", "")
    return request.query_params.get("format") == "json" or ("application/json" in accept and "text/html" not in accept)


def _busy(why: str) -> Response:
    return EscapedJSONResponse({"error": why}, 503, {"Retry-After": "10"})


def _is_fresh(state: ReadState, from_ms: int) -> bool:
    return state.tried_at_ms is not None and state.tried_at_ms >= from_ms
