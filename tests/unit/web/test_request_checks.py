"""Which requests the page refuses; each case is an attack, or the request of an honest browser beside it."""

from __future__ import annotations

import pytest

from bridge.web.request_checks import (
    SECURITY_HEADERS,
    AllowedRequests,
    RequestFacts,
    bearer_token,
    check_request,
    cookie_header,
    equals_token,
    is_loopback,
    session_cookie,
    split_host,
)

LOCAL = AllowedRequests("127.0.0.1", 8650)
ANYWHERE = AllowedRequests("0.0.0.0", 8650, "http", frozenset({"kafka.example"}), "t" * 32)
ONE_ADDRESS = AllowedRequests("10.0.0.5", 8650, "http", frozenset(), "t" * 32)
WITH_TLS = AllowedRequests("10.0.0.5", 443, "https", frozenset({"kafka.example"}), "t" * 32)


def status(allowed: AllowedRequests, host: str, method: str = "GET", path: str = "/", **headers: str) -> int | None:
    """The status of the refusal; None: the request is answered."""
    given = {"host": host, **{name.replace("_", "-"): value for name, value in headers.items()}}
    refusal = check_request(RequestFacts(method, path, given), allowed)
    return None if refusal is None else refusal.status


@pytest.mark.parametrize("host", ["127.0.0.1:8650", "localhost:8650", "LOCALHOST:8650", "[::1]:8650", "127.0.0.2:8650"])
def test_loopback_is_answered_by_its_names(host: str) -> None:
    assert status(LOCAL, host) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:8650",  # DNS rebinding: the name resolves to 127.0.0.1
        "127.0.0.1.evil.example:8650",
        "localhost.evil.example:8650",
        "evil.example",
        "127.0.0.1",  # port 80 is another server
        "127.0.0.1:9999",
        "localhost",
        "",
        "127.0.0.1:8650, evil.example",
        "user@127.0.0.1:8650",
        "127.0.0.1:8650/",
        "127.0.0.1:",
        "[::1",
        "127.0.0.1:８６５０",
        "10.0.0.5:8650",
        "\u212aocalhost:8650",
    ],
)
def test_another_host_is_refused_on_loopback_as_well(host: str) -> None:
    assert status(LOCAL, host) == 421


def test_a_request_with_two_or_no_hosts_is_refused() -> None:
    for hosts in (0, 2):
        refusal = check_request(RequestFacts("GET", "/", {"host": "127.0.0.1:8650"}, hosts), LOCAL)
        assert refusal is not None
        assert refusal.status == 421


@pytest.mark.parametrize(
    ("host", "is_answered"),
    [
        ("10.1.2.3:8650", True),  # an address cannot come from another site's name
        ("kafka.example:8650", True),
        ("kafka.example", True),  # behind a proxy
        ("evil.example:8650", False),
        ("10.1.2.3", False),
        ("10.1.2.3:80", False),
    ],
)
def test_every_address_of_a_wildcard_is_answered_and_only_given_names(host: str, is_answered: bool) -> None:
    assert (status(ANYWHERE, host) is None) == is_answered


def test_a_server_on_one_address_has_only_that_address() -> None:
    assert status(ONE_ADDRESS, "10.0.0.5:8650") is None
    assert status(ONE_ADDRESS, "10.0.0.6:8650") == 421
    assert status(ONE_ADDRESS, "127.0.0.1:8650") == 421


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "http://evil.example",
        "http://127.0.0.1:9999",  # another program of this machine
        "https://127.0.0.1:8650",
        "http://localhost:8650",  # the same server, and still another origin
        "http://127.0.0.1:8650.evil.example",
        "http://127.0.0.1:8650, http://evil.example",
        "127.0.0.1:8650",
        "",
        "file://",
    ],
)
def test_pages_of_other_origins_are_refused(origin: str) -> None:
    assert status(LOCAL, "127.0.0.1:8650", origin=origin) == 403


def test_the_own_origin_is_answered() -> None:
    assert status(LOCAL, "127.0.0.1:8650", origin="http://127.0.0.1:8650") is None
    assert status(WITH_TLS, "10.0.0.5", origin="https://10.0.0.5") is None
    assert status(WITH_TLS, "10.0.0.5", origin="http://10.0.0.5") == 403
    # A proxy ends TLS for a name that was given; for an address no such thing was said.
    assert status(ANYWHERE, "kafka.example", origin="https://kafka.example") is None
    assert status(ANYWHERE, "10.1.2.3:8650", origin="https://10.1.2.3:8650") == 403


def test_another_site_may_only_link_to_the_page() -> None:
    def fetched(site: str, mode: str, dest: str, method: str = "GET") -> int | None:
        more = {"sec_fetch_site": site, "sec_fetch_mode": mode, "sec_fetch_dest": dest}
        return status(LOCAL, "127.0.0.1:8650", method, **more)

    assert fetched("cross-site", "navigate", "document") is None
    assert fetched("none", "navigate", "document") is None
    assert fetched("same-origin", "cors", "empty") is None
    for mode, dest in (("no-cors", "image"), ("cors", "empty"), ("no-cors", "script"), ("navigate", "iframe")):
        assert fetched("cross-site", mode, dest) == 403
        assert fetched("same-site", mode, dest) == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE"])
def test_the_page_only_reads(method: str) -> None:
    assert status(LOCAL, "127.0.0.1:8650", method) == 405
    assert status(LOCAL, "127.0.0.1:8650", method, "/group") == 405


def test_a_form_of_another_site_cannot_send_a_token() -> None:
    assert status(ANYWHERE, "10.1.2.3:8650", "POST", "/session", origin="http://evil.example") == 403
    navigation = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert status(ANYWHERE, "10.1.2.3:8650", "POST", "/session", **navigation) == 403
    assert status(ANYWHERE, "10.1.2.3:8650", "POST", "/session", origin="http://10.1.2.3:8650") is None


@pytest.mark.parametrize("name", ["token", "Token", "access_token", "auth", "key"])
def test_a_token_in_an_address_is_refused(name: str) -> None:
    facts = RequestFacts("GET", "/", {"host": "10.1.2.3:8650"}, 1, {name, "format"})
    refusal = check_request(facts, ANYWHERE)
    assert refusal is not None
    assert refusal.status == 400


def test_the_cookie_cannot_be_read_by_scripts_or_sent_by_other_sites() -> None:
    parts = cookie_header(ONE_ADDRESS, "id", 60).split("; ")
    assert parts == ["zkconsumer_web_8650=id", "HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=60"]
    assert cookie_header(WITH_TLS, "id", 60).endswith("; Secure")


def test_pages_on_two_ports_of_a_host_have_a_cookie_each() -> None:
    pages = (ONE_ADDRESS, WITH_TLS)
    cookies = "; ".join(cookie_header(page, str(page.port), 60).partition(";")[0] for page in pages)
    assert [session_cookie({"cookie": cookies}, page.cookie_name) for page in pages] == ["8650", "443"]


def test_a_second_cookie_of_our_name_makes_both_invalid() -> None:
    assert session_cookie({"cookie": "a=b; ours=x"}, "ours") == "x"
    assert session_cookie({"cookie": "ours=evil; ours=x"}, "ours") is None
    assert session_cookie({}, "ours") is None


def test_bearer_tokens() -> None:
    assert bearer_token({"authorization": "Bearer abc"}) == "abc"
    assert bearer_token({"authorization": "bearer abc "}) == "abc"
    assert bearer_token({"authorization": "Basic abc"}) is None
    assert bearer_token({"authorization": "Bearer "}) is None


def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return a == b

    monkeypatch.setattr("bridge.web.request_checks.hmac.compare_digest", compare)
    assert equals_token("é", "é")
    assert not equals_token("a", "\ud800")
    assert len(compared) == 2


def test_the_policy_allows_no_inline_code() -> None:
    policy = SECURITY_HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "data:" not in policy
    assert policy.startswith("default-src 'none'; ")
    assert "frame-ancestors 'none'" in policy


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("127.9.9.9", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.5", False), ("kafka.example", False)],
)  # fmt: skip
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) == expected


def test_hosts_are_split() -> None:
    assert split_host("[::1]:8650") == ("::1", 8650)
    assert split_host("a") == ("a", None)
    assert split_host("[::1]8650") is None
    assert split_host("[::1]:") is None
    assert split_host("a:123456") is None
