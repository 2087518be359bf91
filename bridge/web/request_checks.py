"""Decides whether the page answers a request: Host, Origin, method, token, cookie.  Pure.

Why each check exists:

    Host      DNS rebinding: a page of another site resolves its own name to 127.0.0.1, and its script is then of the
              same origin as this server.  Its requests still have the other site's name in ``Host``.  An IP address in
              ``Host`` cannot come from a name, so every address at which the server listens is allowed.
    Origin    another site's page sends requests to this address.  It cannot read the answers, but each one costs work,
              and a form can POST.  ``null`` is an opaque origin, and is refused too.
    Sec-Fetch-Site   the same for requests without ``Origin``: only a navigation, a click on a link, may be cross-site.
    token     on every address but loopback.  Never in the address of a request, because proxies log addresses.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

TOKEN_CHARS_MIN = 16
"""A shorter token can be guessed."""

SIGN_IN_PATH = "/sign-in"
SESSION_PATH = "/session"

PATHS_WITHOUT_TOKEN = frozenset(
    {SIGN_IN_PATH, SESSION_PATH, "/static/sign-in.js", "/static/page.css", "/static/theme.js", "/static/icon.svg"}
)
"""What a browser needs to send the token; none of these contains data of the cluster."""

FORBIDDEN_PARAMETERS = frozenset({"token", "access_token", "auth", "key"})
"""Parameters of an address in which people put tokens.  Such a request is refused, so that the token is noticed."""

SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With no-referrer a browser would send "Origin: null" with the form of the token.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
"""Headers of every response."""

Scheme: TypeAlias = Literal["http", "https"]


@dataclass(frozen=True, slots=True)
class AllowedRequests:
    """What the server is: ``host`` and ``port`` where it listens, further names, and whether a token is needed.

    ``names``: lower case, without a port: those of ``--allow-host`` and of this machine.
    """

    host: str
    port: int
    scheme: Scheme = "http"
    names: frozenset[str] = frozenset()
    token: str | None = None

    @property
    def needs_token(self) -> bool:
        """Whether requests need the token or a cookie."""
        return self.token is not None

    @property
    def cookie_name(self) -> str:
        """One for each port: a browser sends the cookies of a host to all of its ports."""
        return f"zkconsumer_web_{self.port}"


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """The parts of a request that decide.  ``headers``: lower-case names; ``host`` and ``origin`` once each.

    ``host_count``: the number of Host headers.  ``parameters``: the names in the query.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    host_count: int = 1
    parameters: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class RequestRefusal:
    """The HTTP status, and a sentence for the user."""

    status: int
    reason: str


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach this address; a name other than ``localhost`` counts as no."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_request(request: RequestFacts, allowed: AllowedRequests) -> RequestRefusal | None:
    """Whether to refuse the request before its session is checked; None: continue."""
    if request.host_count != 1 or not is_host_allowed(request.headers.get("host", ""), allowed):
        return RequestRefusal(421, "This server does not have that name. Start it with --allow-host NAME.")
    if request.method not in ("GET", "HEAD") and not (request.method == "POST" and request.path == SESSION_PATH):
        return RequestRefusal(405, "The page only reads: GET and HEAD.")
    origin = request.headers.get("origin")
    if origin is not None and not is_origin_allowed(origin, request.headers["host"], allowed):
        return RequestRefusal(403, "Requests from pages of other origins are refused.")
    if not is_fetch_site_allowed(request):
        return RequestRefusal(403, "Requests from pages of other sites are refused.")
    if not FORBIDDEN_PARAMETERS.isdisjoint(name.lower() for name in request.parameters):
        return RequestRefusal(400, "A token must not be in an address: addresses are logged. Use the page /sign-in.")
    return None


def is_host_allowed(header: str, allowed: AllowedRequests) -> bool:
    """Whether ``Host`` names this server.

    On loopback: ``localhost`` or a loopback address, with this port.  Elsewhere: an allowed name, or the address at
    which the server listens (any address for 0.0.0.0 and ::), with this port or without one: a proxy may remove it.
    """
    parts = split_host(header)
    if parts is None:
        return False
    name, port = parts
    default_port = 443 if allowed.scheme == "https" else 80
    is_port_ours = (default_port if port is None else port) == allowed.port
    if name in allowed.names:
        return is_port_ours or port is None
    if is_loopback(allowed.host):
        return is_port_ours and is_loopback(name)
    if not is_port_ours:
        return False
    try:
        address, bound = ipaddress.ip_address(name), ipaddress.ip_address(allowed.host)
    except ValueError:
        return name == allowed.host.lower()
    return bound.is_unspecified or address == bound


def split_host(header: str) -> tuple[str, int | None] | None:
    """``host:port`` as its two parts; None for anything else.  The name is lower case, without brackets."""
    text = header.strip().lower()
    if text.startswith("["):
        name, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            return None
        port = rest[1:]
        if rest == ":":
            return None
    else:
        name, colon, port = text.partition(":")
        if colon and not port:
            return None
    if not name or not all(c.isascii() and (c.isalnum() or c in "-._:") for c in name):
        return None
    if not port:
        return name, None
    if not (port.isascii() and port.isdigit() and len(port) <= 5):
        return None
    return name, int(port)


def is_origin_allowed(origin: str, host: str, allowed: AllowedRequests) -> bool:
    """Whether the page that sent the request is ours: the scheme and the Host that the browser used.

    ``Host`` must have been checked before.  A proxy that ends TLS makes ``https`` out of our ``http``: allowed for
    names of ``--allow-host`` only.
    """
    scheme, separator, place = origin.partition("://")
    if not separator or split_host(place) is None or place.lower() != host.strip().lower():
        return False
    parts = split_host(place)
    return scheme == allowed.scheme or (scheme == "https" and parts is not None and parts[0] in allowed.names)


def is_fetch_site_allowed(request: RequestFacts) -> bool:
    """Whether ``Sec-Fetch-Site`` allows it; a client that is no browser does not send the header.

    ``same-site`` is another port or another name of the same machine or domain: another program's page.
    """
    site = request.headers.get("sec-fetch-site")
    if site in (None, "same-origin", "none"):
        return True
    is_navigation = (
        request.headers.get("sec-fetch-mode") == "navigate" and request.headers.get("sec-fetch-dest") == "document"
    )
    return request.method == "GET" and is_navigation


def equals_token(given: str, expected: str) -> bool:
    """Compare in a time that does not depend on the position of the first difference."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode("utf-8", "surrogatepass"))


def bearer_token(headers: Mapping[str, str]) -> str | None:
    """The token of ``Authorization: Bearer TOKEN``, which programs send; None without one."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def session_cookie(headers: Mapping[str, str], cookie_name: str) -> str | None:
    """The value of this cookie; None without one, or if there are two: another site's page may have set the second."""
    found = [
        value
        for part in headers.get("cookie", "").split(";")
        for name, _, value in [part.strip().partition("=")]
        if name == cookie_name
    ]
    return found[0] if len(found) == 1 else None


def cookie_header(allowed: AllowedRequests, value: str, max_age_s: int) -> str:
    """The ``Set-Cookie`` header of a session: no script reads it, and no other site's page sends it."""
    secure = "; Secure" if allowed.scheme == "https" else ""
    return f"{allowed.cookie_name}={value}; HttpOnly; SameSite=Strict; Path=/; Max-Age={max_age_s}{secure}"
