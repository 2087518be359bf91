"""A session of Spark Connect: a server that cannot be reached is one line, at once."""

from __future__ import annotations

import socket

import pytest

from bridge.spark.pipeline import pipeline_session
from bridge.spark.pipeline.pipeline_session import require_connect_client, require_connect_server
from zkconsumer.errors import UnavailableError, UsageError

HOST = "127.0.0.1"


def test_a_server_that_listens_is_reached() -> None:
    with socket.create_server((HOST, 0)) as server:
        require_connect_server(f"sc://{HOST}:{server.getsockname()[1]}/;user_id=me")


def test_a_server_that_does_not_listen_is_named_with_the_reason() -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))  # bound and not listening: connections are refused
        port = taken.getsockname()[1]
        with pytest.raises(UnavailableError, match=rf"server {HOST}:{port} cannot be reached: .*refused; the operator"):
            require_connect_server(f"sc://{HOST}:{port}")


@pytest.mark.parametrize(
    ("master", "why"), [("sc://", "no host"), ("sc://h:port", "[Pp]ort"), ("sc://h:99999", "Port")]
)
def test_a_url_that_names_no_server_is_refused(master: str, why: str) -> None:
    with pytest.raises(UsageError, match=rf"--master {master}: .*{why}.*; write it as sc://HOST:PORT"):
        require_connect_server(master)


@pytest.mark.parametrize(
    ("place", "why"),
    [("h:99999/", "Port out of range"), ("h:x/", "Port could not be cast"), ("/", "there is no host"),
     ("[::1/", "Invalid IPv6 URL"), ("h", "there is no / before the parameters"),
     ("h:15002", "there is no / before the parameters")],
)  # fmt: skip
def test_no_error_has_the_token_of_an_address(place: str, why: str) -> None:
    with pytest.raises(UsageError) as raised:
        require_connect_server(f"sc://{place};token=Hunter2;user_id=me")
    assert str(raised.value).startswith(f"--master sc://{place}: {why}")
    assert "hunter2" not in str(raised.value).lower()


def test_a_client_without_its_packages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_session, "CONNECT_MODULES", ("no_such_module",))
    with pytest.raises(UsageError, match="client of Spark Connect, and no_such_module is not installed"):
        require_connect_client()
