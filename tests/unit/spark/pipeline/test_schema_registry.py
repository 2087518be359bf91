"""The client of a schema registry: which answer is a dead letter, fails the batch, or needs an operator."""

from __future__ import annotations

import base64
import gc
import json
import logging
import pickle
import socket
import ssl
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from bridge.spark.pipeline.decode import registry_http
from bridge.spark.pipeline.decode.schema_registry import (
    REFERENCES_MAX,
    RegisteredSchema,
    SchemaIdNotFound,
    SchemaRegistryClient,
    SchemaRegistryRefused,
    SchemaRegistrySettings,
    SchemaRegistryUnavailable,
    SchemaUnusable,
)
from tests.broker_security_cases import TLS
from zkconsumer.errors import InvalidConfigException, PeerError, UnavailableError, UsageError

SECRET = "hunter2secret"
AVRO = '"string"'
NOT_FOUND = (404, {"error_code": 40403, "message": "Schema 7 not found"})
FAR_MS = 30_000


class Registry:
    """A registry on a local port.  ``answers``: path -> a list of (status, JSON); the last one is repeated."""

    def __init__(self, certificate: Path | None = None) -> None:
        self.answers: dict[str, list[Any]] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.requests.append((self.path, dict(self.headers)))
                queue = outer.answers.get(self.path, [(404, {"error_code": 404, "message": "HTTP 404 Not Found"})])
                answer = queue.pop(0) if len(queue) > 1 else queue[0]
                if callable(answer):
                    answer(self)
                    return
                status, content, *headers = answer
                body = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.port = self._server.server_address[1]

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.requests]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class StillClock:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.ms = 1_000

    def now_ms(self) -> int:
        return self.ms

    def wall_ms(self) -> int:
        return self.ms


@pytest.fixture
def registry() -> Iterator[Registry]:
    made = Registry()
    yield made
    made.close()


def settings_of(registry: Registry, prefix: str = "", **changes: Any) -> SchemaRegistrySettings:
    made = SchemaRegistrySettings(f"http://127.0.0.1:{registry.port}{prefix}", lookup_timeout_ms=FAR_MS)
    return replace(made, **changes)


def client_of(registry: Registry, prefix: str = "", **changes: Any) -> tuple[SchemaRegistryClient, list[int]]:
    """A client whose pauses take no time, and the pauses."""
    pauses: list[int] = []
    made = SchemaRegistryClient(settings_of(registry, prefix, **changes), pause=pauses.append, uniform=lambda: 0.5)
    return made, pauses


def test_a_schema_is_fetched_once_and_then_comes_from_the_cache(registry: Registry) -> None:
    registry.answers["/schemas/ids/7"] = [(200, {"schema": AVRO})]
    client, _ = client_of(registry)
    assert client.lookup(7) == client.lookup(7) == RegisteredSchema(7, AVRO)
    assert registry.paths == ["/schemas/ids/7"]
    assert "application/vnd.schemaregistry.v1+json" in registry.requests[0][1]["Accept"]
    assert "Authorization" not in registry.requests[0][1]


@pytest.mark.parametrize("prefix", ["/apis/ccompat/v7", "/apis/ccompat/v7/"])
def test_a_registry_may_be_below_a_path(registry: Registry, prefix: str) -> None:
    registry.answers["/apis/ccompat/v7/schemas/ids/1"] = [(200, {"schema": AVRO, "schemaType": "AVRO"})]
    assert client_of(registry, prefix)[0].lookup(1).text == AVRO


def test_a_login_is_sent_as_basic_authentication_in_utf8(registry: Registry) -> None:
    registry.answers["/schemas/ids/1"] = [(200, {"schema": AVRO})]
    client_of(registry, username="ü", password="p:w")[0].lookup(1)
    kind, _, login = registry.requests[0][1]["Authorization"].partition(" ")
    assert (kind, base64.b64decode(login).decode()) == ("Basic", "ü:p:w")


def test_references_are_fetched_and_each_comes_after_its_own(registry: Registry) -> None:
    a, b, c = ({"subject": f"{name}/x y", "name": name, "version": 2} for name in "abc")
    registry.answers |= {
        "/schemas/ids/1": [(200, {"schema": "top", "references": [a, b]})],
        "/subjects/a%2Fx%20y/versions/2": [(200, {"schema": "A", "references": [c]})],
        "/subjects/b%2Fx%20y/versions/2": [(200, {"schema": "B", "references": [c]})],
        "/subjects/c%2Fx%20y/versions/2": [(200, {"schema": "C"})],
    }
    assert client_of(registry)[0].lookup(1) == RegisteredSchema(1, "top", ("C", "A", "B"))
    assert len(registry.requests) == 4, "a reference that is needed twice is fetched once"


@pytest.mark.parametrize(
    ("references", "words"),
    [
        ([{"subject": "s", "version": 1, "name": "s"}], "its reference 's' version 1 does not exist"),
        ([{"subject": "loop", "version": 1}], "refers to itself"),
        ([{"subject": 5}], "a reference has no subject and version"),
        ({"a": 1}, "its references are no list"),
        ([{"subject": f"many{n}", "version": 1} for n in range(REFERENCES_MAX + 1)], "more than 200 references"),
    ],
)
def test_a_schema_with_references_that_do_not_exist_or_do_not_end_is_unusable(
    registry: Registry, references: Any, words: str
) -> None:
    loop = {"schema": AVRO, "references": [{"subject": "loop", "version": 1}]}
    registry.answers |= {
        "/schemas/ids/1": [(200, {"schema": AVRO, "references": references})],
        "/subjects/s/versions/1": [(404, {"error_code": 40402, "message": "no"})],
        "/subjects/loop/versions/1": [(200, loop)],
        **{f"/subjects/many{n}/versions/1": [(200, {"schema": AVRO})] for n in range(REFERENCES_MAX + 1)},
    }
    with pytest.raises(SchemaUnusable, match=f"^schema id 1: .*{words}"):
        client_of(registry)[0].lookup(1)


def test_an_id_that_is_not_registered_is_a_permanent_answer_and_is_not_asked_again_for_a_while(
    registry: Registry,
) -> None:
    registry.answers["/schemas/ids/7"] = [NOT_FOUND, (200, {"schema": AVRO})]
    clock = StillClock()
    client = SchemaRegistryClient(settings_of(registry, missing_ttl_ms=100), clock=clock)
    for _ in range(3):
        with pytest.raises(SchemaIdNotFound, match="schema id 7: there is no schema of this id") as raised:
            client.lookup(7)
        assert isinstance(raised.value, PeerError), "no batch fails because of it"
        clock.ms += 33
    assert registry.paths == ["/schemas/ids/7"]
    clock.ms += 1
    assert client.lookup(7).text == AVRO, "it was registered later"


def test_a_404_of_a_wrong_path_is_an_error_of_the_configuration_and_no_dead_letter(registry: Registry) -> None:
    for answer in ((404, {"error_code": 404, "message": "HTTP 404 Not Found"}), (404, b"<html>no</html>"), (404, b"")):
        registry.answers["/schemas/ids/7"] = [answer]
        with pytest.raises(SchemaRegistryRefused, match="no schema registry at this path; correct the prefix"):
            client_of(registry)[0].lookup(7)


def test_a_404_without_a_code_counts_if_the_same_path_is_a_registry_s(registry: Registry) -> None:
    registry.answers |= {"/schemas/ids/7": [(404, b"")], "/schemas/types": [(200, ["AVRO", "JSON"])]}
    with pytest.raises(SchemaIdNotFound):
        client_of(registry)[0].lookup(7)


@pytest.mark.parametrize("kind", ["JSON", "PROTOBUF", 5])
def test_a_schema_that_is_not_avro_is_unusable(registry: Registry, kind: Any) -> None:
    registry.answers["/schemas/ids/7"] = [(200, {"schema": "{}", "schemaType": kind})]
    client, _ = client_of(registry)
    for _ in range(2):
        with pytest.raises(SchemaUnusable, match="not of Avro"):
            client.lookup(7)
    assert len(registry.requests) == 1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((401, {"message": "Unauthorized"}), "rejects the login .*correct username and password .status 401: 'Unauth"),
        ((403, {}), "give the user the right to read them"),
        ((400, {}), "correct the URL"),
        ((405, b"x"), "status 405"),
        ((301, b"", ("Location", f"https://u:{SECRET}@other/x?{SECRET}")), r"redirects to '\[hidden\]@other/x'"),
        ((200, b"<html>login</html>"), "does not answer as a schema registry does"),
        ((200, {"message": "x"}), "does not answer as a schema registry does"),
        ((200, {"schema": 5}), "does not answer as a schema registry does"),
        ((200, b"[" * 100_000), "does not answer as a schema registry does"),
        ((204, b""), "correct the URL"),
    ],
)
def test_a_refusal_says_who_must_act_and_is_not_repeated(registry: Registry, answer: Any, words: str) -> None:
    registry.answers["/schemas/ids/7"] = [answer]
    client, pauses = client_of(registry, username="me", password=SECRET)
    with pytest.raises(SchemaRegistryRefused, match=words) as raised:
        client.lookup(7)
    assert isinstance(raised.value, UsageError)
    assert (len(registry.requests), pauses) == (1, [])
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("status", [500, 502, 503, 408, 425, 429])
def test_a_failing_registry_is_asked_again_with_growing_pauses(registry: Registry, status: int) -> None:
    registry.answers["/schemas/ids/7"] = [(status, {}), (status, b"<html>"), (200, {"schema": AVRO})]
    client, pauses = client_of(registry)
    assert client.lookup(7).text == AVRO
    assert pauses == [200, 400]


def test_a_registry_that_goes_on_failing_fails_the_batch_and_is_asked_again_by_the_next_one(
    registry: Registry,
) -> None:
    registry.answers["/schemas/ids/7"] = [(500, {"message": "disk"})] * 4 + [(200, {"schema": AVRO})]
    client, pauses = client_of(registry, retries_max=3)
    with pytest.raises(
        SchemaRegistryUnavailable, match=r"answers 500: 'disk' \(4 attempts for schema id 7\)"
    ) as raised:
        client.lookup(7)
    assert isinstance(raised.value, UnavailableError)
    assert pauses == [200, 400, 800]
    assert client.lookup(7).text == AVRO, "a failure is not kept"


def test_a_port_without_a_server_is_unavailable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pauses: list[int] = []
    client = SchemaRegistryClient(
        SchemaRegistrySettings(f"http://127.0.0.1:{port}", retries_max=2), pause=pauses.append
    )
    with pytest.raises(SchemaRegistryUnavailable, match="Connection refused"):
        client.lookup(1)
    assert len(pauses) == 2


@pytest.mark.parametrize("host", ["registry..example", f"{'a' * 64}.example"])
def test_a_host_name_that_no_server_can_have_is_an_error_of_the_configuration(host: str) -> None:
    pauses: list[int] = []
    client = SchemaRegistryClient(SchemaRegistrySettings(f"http://{host}:8081"), pause=pauses.append)
    with pytest.raises(SchemaRegistryRefused, match=f"{host}:8081: its host name is invalid; correct the URL"):
        client.lookup(1)
    assert not pauses


def tls_client(registry: Registry, ca_file: str | None) -> SchemaRegistryClient:
    settings = SchemaRegistrySettings(f"https://127.0.0.1:{registry.port}", ca_file=ca_file, retries_max=0)
    return SchemaRegistryClient(settings)


def test_https_reads_with_the_authority_s_file() -> None:
    registry = Registry(TLS / "broker.pem")
    registry.answers["/schemas/ids/1"] = [(200, {"schema": AVRO})]
    assert tls_client(registry, str(TLS / "ca.pem")).lookup(1).text == AVRO
    registry.close()


@pytest.mark.parametrize(
    ("certificate", "ca_file"),
    [("broker.pem", "other-ca.pem"), ("broker.pem", None), ("elsewhere.pem", "ca.pem"), ("expired.pem", "ca.pem")],
)
def test_a_certificate_that_is_not_trusted_is_an_error_of_the_configuration(
    certificate: str, ca_file: str | None
) -> None:
    registry = Registry(TLS / certificate)
    with pytest.raises(SchemaRegistryRefused, match=r"certificate is not trusted: .*set the file of its authority"):
        tls_client(registry, None if ca_file is None else str(TLS / ca_file)).lookup(1)
    registry.close()


def test_a_port_without_tls_is_unavailable(registry: Registry) -> None:
    with pytest.raises(SchemaRegistryUnavailable):
        tls_client(registry, str(TLS / "ca.pem")).lookup(1)


def test_a_file_of_authorities_that_cannot_be_read_is_refused_when_the_client_is_made() -> None:
    with pytest.raises(InvalidConfigException, match="/nonexistent"):
        SchemaRegistryClient(SchemaRegistrySettings("https://h", ca_file="/nonexistent"))


def silent(handler: BaseHTTPRequestHandler) -> None:
    handler.rfile.read()  # until the client closes
    handler.close_connection = True


def dribbling(handler: BaseHTTPRequestHandler) -> None:
    """A byte of an endless header line every few milliseconds."""
    handler.close_connection = True
    pause = threading.Event()
    try:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        while True:
            handler.wfile.write(b"x")
            pause.wait(0.005)
    except OSError:
        pass


@pytest.mark.parametrize("behaviour", [silent, dribbling])
def test_silence_and_single_bytes_end_at_the_deadline_of_the_lookup(
    registry: Registry, behaviour: Callable[[BaseHTTPRequestHandler], None]
) -> None:
    """With ``http.client`` alone the second one would last for ever."""
    registry.answers["/schemas/ids/7"] = [behaviour]
    client, _ = client_of(registry, read_timeout_ms=10_000, lookup_timeout_ms=150, retries_max=100)
    with pytest.raises(SchemaRegistryUnavailable, match="does not answer in time"):
        client.lookup(7)


def test_silence_is_limited_by_the_read_timeout_and_then_retried(registry: Registry) -> None:
    registry.answers["/schemas/ids/7"] = [silent, silent, (200, {"schema": AVRO})]
    client, pauses = client_of(registry, read_timeout_ms=50)
    assert client.lookup(7).text == AVRO
    assert len(pauses) == 2


def test_no_pause_goes_beyond_the_deadline(registry: Registry) -> None:
    registry.answers["/schemas/ids/7"] = [(500, {})]
    clock = StillClock()

    def pause(ms: int) -> None:
        clock.ms += ms

    settings = settings_of(registry, lookup_timeout_ms=1_000, retries_max=100)
    with pytest.raises(SchemaRegistryUnavailable, match="3 attempts"):
        SchemaRegistryClient(settings, clock=clock, pause=pause, uniform=lambda: 0.5).lookup(7)
    assert clock.ms == 1_000 + 200 + 400


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"HTTP/1.1 200 OK\r\n",
        b"\x15\x03\x01",
        b"",
    ],
)
def test_an_incomplete_answer_is_retried(registry: Registry, answer: bytes) -> None:
    def broken(handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        handler.wfile.write(answer)

    registry.answers["/schemas/ids/7"] = [broken, (200, {"schema": AVRO})]
    client, pauses = client_of(registry)
    assert client.lookup(7).text == AVRO
    assert len(pauses) == 1


def test_a_body_without_an_end_is_no_registry(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_http, "BODY_BYTES_MAX", 1000)
    registry.answers["/schemas/ids/7"] = [(200, {"schema": "x" * 1000})]
    with pytest.raises(SchemaRegistryRefused, match="longer than 1000 bytes"):
        client_of(registry)[0].lookup(7)


def test_the_cache_forgets_the_schema_that_was_not_used_for_the_longest_time(registry: Registry) -> None:
    for n in (1, 2, 3):
        registry.answers[f"/schemas/ids/{n}"] = [(200, {"schema": AVRO})]
    client, _ = client_of(registry, schemas_cached_max=2)
    for n in (1, 2, 1, 3, 1, 2):
        client.lookup(n)
    assert registry.paths == [f"/schemas/ids/{n}" for n in (1, 2, 3, 2)]


def test_the_cache_of_missing_ids_is_bounded(registry: Registry) -> None:
    for n in range(1, 4):
        registry.answers[f"/schemas/ids/{n}"] = [NOT_FOUND]
    client, _ = client_of(registry, schemas_cached_max=2)
    for n in (1, 2, 3, 3, 1):
        with pytest.raises(SchemaIdNotFound):
            client.lookup(n)
    assert registry.paths == [f"/schemas/ids/{n}" for n in (1, 2, 3, 1)]


def test_threads_may_share_a_client(registry: Registry) -> None:
    for n in range(20):
        registry.answers[f"/schemas/ids/{n}"] = [(200, {"schema": str(n)})]
    client, _ = client_of(registry, schemas_cached_max=5)
    wrong: list[object] = []

    def work() -> None:
        try:
            wrong.extend(n for n in range(20) if client.lookup(n).text != str(n))
        except Exception as error:  # noqa: BLE001 (the main thread reports it)
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_every_socket_is_closed(registry: Registry) -> None:
    """A socket that is not closed is a ResourceWarning when it is collected."""
    registry.answers["/schemas/ids/1"] = [(500, {}), silent, (200, {"schema": AVRO})]
    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        client_of(registry, read_timeout_ms=50)[0].lookup(1)
        gc.collect()
    assert [str(each.message) for each in caught if issubclass(each.category, ResourceWarning)] == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"url": f"http://u:{SECRET}@h"}, "must not contain a user or a password"),
        ({"url": f"http://{SECRET}@h"}, "must not contain a user or a password"),
        ({"url": "h:8081"}, "is not a URL of a server"),
        ({"url": "ftp://h"}, "is not a URL of a server"),
        ({"url": "http://"}, "is not a URL of a server"),
        ({"url": "http://h:99999"}, "is not a URL"),
        ({"url": "http://[::1"}, "is not a URL"),
        ({"url": "http://h/x?y=1"}, "has more than a host, a port and a path"),
        ({"url": "http://h/x#y"}, "has more than a host"),
        ({"url": "http://h/x y"}, "has more than a host"),
        ({"url": "http://h/\n"}, "has more than a host"),
        ({"username": "me"}, "needs both username and password"),
        ({"password": SECRET}, "needs both username and password"),
        ({"username": f"me:{SECRET}", "password": SECRET}, "must not contain a colon"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_without_showing_a_secret(changes: dict[str, str], words: str) -> None:
    with pytest.raises(SchemaRegistryRefused, match=words) as raised:
        SchemaRegistrySettings(**{"url": "http://h", **changes})
    assert SECRET not in "".join(traceback.format_exception(raised.value))


def test_no_secret_is_shown_by_settings_clients_errors_and_logs(
    registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_of(registry, username="me", password=SECRET, retries_max=1)
    client = SchemaRegistryClient(settings, pause=lambda ms: None)
    shown = [repr(settings), str(settings), repr(client), str(client)]
    with caplog.at_level(logging.DEBUG):
        for answer in ((401, {}), (500, {}), (404, b""), (200, b"x")):
            registry.answers["/schemas/ids/1"] = [answer]
            with pytest.raises((SchemaRegistryRefused, SchemaRegistryUnavailable)) as raised:
                client.lookup(1)
            shown.append("".join(traceback.format_exception(raised.value)))
    shown += [record.getMessage() for record in caplog.records]
    assert any("schema-registry-retry schema_id=1 attempt=1" in text for text in shown)
    assert [
        text for text in shown if SECRET in text or base64.b64encode(f"me:{SECRET}".encode()).decode() in text
    ] == []
    assert "username='me', password=[hidden]" in repr(settings)


def test_settings_can_be_pickled_and_make_the_same_client(registry: Registry) -> None:
    settings = settings_of(registry, username="me", password=SECRET)
    copied = pickle.loads(pickle.dumps(settings))
    assert copied == settings
    assert copied.password == SECRET
