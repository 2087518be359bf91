"""``run_registry``: a schema registry, Apicurio in memory, with the HTTP API of Confluent's registry.

    with run_registry() as registry:
        schema_id = registry.register("clicks-value", schema)
        ... registry.url

Fetched with Maven once, as the jars of Kafka are: 142 MB, and 146 MB unpacked in the cache.  It starts in 5 to 9 s and
needs 230 MB.  What is registered is gone when the process ends.
"""

from __future__ import annotations

import hashlib
import http.client
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from zkconsumer.errors import SandboxError
from zkconsumer.testing.sandbox import cache
from zkconsumer.testing.sandbox.artifacts import ensure_jars, is_complete
from zkconsumer.testing.sandbox.child_process import JavaCommand
from zkconsumer.testing.sandbox.java import find_jdk, find_maven
from zkconsumer.testing.sandbox.sandbox_runs import SandboxRun, reap
from zkconsumer.testing.sandbox.server_process import ServerProcess
from zkconsumer.testing.sandbox.waiting import HOST

RELEASE = "2.6.13.Final"
JARS = 310
PREFIX = "/apis/ccompat/v7"
"""The path of Confluent's API, version 7."""

MAIN = "io.quarkus.runner.GeneratedMain"
HEAP_MB = 192
OPTIONS = ("-Dquarkus.log.console.stderr=true", "-Dquarkus.log.console.color=false")
PROBE_TIMEOUT_S = 2
REQUEST_TIMEOUT_S = 30
SCHEMA_TYPE = "application/vnd.schemaregistry.v1+json"


class RegistryArchive:
    """The archive of the registry, as ``artifacts`` fetches a set; Maven unpacks it."""

    title = f"Apicurio Registry {RELEASE}"
    goal = "unpack"
    jars = JARS

    def pom(self) -> str:
        """The complete pom for Maven: one archive, and none of its dependencies."""
        return (
            "<project>\n"
            "  <modelVersion>4.0.0</modelVersion>\n"
            "  <groupId>zkconsumer</groupId><artifactId>registry</artifactId><version>1</version>\n"
            "  <build><plugins><plugin>\n"
            "    <groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId>\n"
            "    <configuration><artifactItems><artifactItem>\n"
            "      <groupId>io.apicurio</groupId><artifactId>apicurio-registry-app</artifactId>\n"
            f"      <version>{RELEASE}</version><classifier>all</classifier><type>tar.gz</type>\n"
            "    </artifactItem></artifactItems></configuration>\n"
            "  </plugin></plugins></build>\n"
            "</project>\n"
        )

    def digest(self) -> str:
        return hashlib.sha256(self.pom().encode()).hexdigest()


ARCHIVE = RegistryArchive()


def ensure_registry() -> Path:
    """The folder of the registry, fetched if it is not in the cache or not whole.

    Raises SandboxError if Maven is missing, too old or fails.
    """
    return ensure_jars(ARCHIVE, cache.folder("registry") / RELEASE)


def missing_for_registry() -> str | None:
    """Why it cannot be started here, as a sentence, or None; downloads nothing."""
    try:
        find_jdk()
        if not is_complete(ARCHIVE, cache.root() / "registry" / RELEASE):
            find_maven()
    except SandboxError as error:
        return str(error)
    return None


class SchemaRegistryServer(ServerProcess):
    """A registry; ``restart`` forgets what was registered."""

    kind = "registry"
    start_timeout_ms = 120_000
    stop_timeout_ms = 10_000

    def __init__(self, run: SandboxRun, name: str = "registry") -> None:
        super().__init__(run, name)

    @property
    def url(self) -> str:
        """The address for clients of Confluent's registry."""
        return f"http://{self.address}{PREFIX}"

    def register(
        self, subject: str, schema: Any, *, kind: str = "AVRO", references: Sequence[Mapping[str, Any]] = ()
    ) -> int:
        """The id of a schema.  ``schema``: its text, or what is its JSON.  ``references``: as in the API.

        Raises SandboxError with the answer of the registry if it does not take the schema.
        """
        text = schema if isinstance(schema, str) else json.dumps(schema)
        asked = {"schema": text, "schemaType": kind, "references": list(references)}
        status, answer = self._request(
            "POST", f"/subjects/{quote(subject, safe='')}/versions", json.dumps(asked).encode(), REQUEST_TIMEOUT_S
        )
        if status != http.client.OK:
            raise SandboxError(f"{self.name} does not register {subject}: {status} {answer.decode(errors='replace')}")
        return int(json.loads(answer)["id"])

    def command(self, port: int) -> JavaCommand:
        jar = ensure_registry() / f"apicurio-registry-app-{RELEASE}-runner.jar"
        place = (f"-Dquarkus.http.host={HOST}", f"-Dquarkus.http.port={port}")
        return JavaCommand(RELEASE, MAIN, heap_mb=HEAP_MB, options=(*OPTIONS, *place), jar=jar)

    def is_up(self, port: int) -> bool:
        # Another registry may have taken the port, and would answer.
        if f"Listening on: http://{HOST}:{port}" not in self.process.log_text():
            return False
        try:
            status, answer = self._request("GET", "/schemas/types", None, PROBE_TIMEOUT_S, port)
        except (OSError, http.client.HTTPException):
            return False
        return status == http.client.OK and b"AVRO" in answer

    def _request(self, method: str, path: str, body: bytes | None, timeout_s: int, port: int = 0) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(HOST, port or self.port, timeout=timeout_s)
        try:
            connection.request(method, PREFIX + path, body, {"Content-Type": SCHEMA_TYPE})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@contextmanager
def run_registry() -> Iterator[SchemaRegistryServer]:
    """A registry until the end of the block.  Raises SandboxError if it cannot be fetched or does not start."""
    reap()
    run = SandboxRun.create()
    server = SchemaRegistryServer(run)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        run.remove()
