"""``SchemaRegistryClient``: reads schemas by id from a registry with Confluent's HTTP API.

    lookup(id) -> cache -> GET /schemas/ids/{id} -> GET /subjects/{s}/versions/{v} for each reference -> cache

The API is that of Confluent Schema Registry 7.x; Karapace, Redpanda and Apicurio (below ``/apis/ccompat/v7``) have it
as well.  Seen on Apicurio 2.6.13 (``tests/spark/pipeline/test_registry_pipeline.py``):

    /schemas/ids/ID          200 also after its subject was deleted; without ``schemaType`` for Avro, with it for JSON
                             and Protobuf; ``references`` is an empty list where there are none
                             404 with code 40403 for every id from 0 to 2147483647 that is not registered
    /subjects/S/versions/N   404 with code 40401 for an unknown subject, 40402 for an unknown version
    /schemas/types           200 and a list of three types
    another prefix           404 with code 404 and a message of the web server: refused, no dead letter
    a stopped process        its port accepts connections and is silent

The ids are those of contents: the same schema under two subjects has one id.

An answer decides what happens to the record:

    the id is not registered, or what is registered is no Avro schema       the record becomes a dead letter
    refused, silent, 5xx, 408, 425, 429, an incomplete response             retried; then the batch fails, is repeated
    another 4xx, a redirect, no JSON, a certificate that is not trusted     the batch fails; an operator must act

A 404 proves that an id is not registered only if a registry sends it: a wrong path prefix has the same status for
every id, and would turn a topic into dead letters.  It counts as such an answer with an error code of the API (404xx);
without one, if ``GET /schemas/types`` of the same prefix answers with a list.

Theory of operation.  A registered schema never changes, so ``_schemas`` keeps it until ``schemas_cached_max`` others
were used later.  An id that is not registered may be registered later: ``_missing`` keeps its error for
``missing_ttl_ms``, so that a thousand such records in a batch cost one request.  A failure of the registry is never
kept.  ``_lock`` protects the two dictionaries and is not held during a request: two threads may fetch the same schema,
and the second result replaces the first, which is equal.  A lookup has one deadline for all requests, retries and
pauses; an answer that is lost costs a retry, and nothing is changed at the registry.
"""

from __future__ import annotations

import base64
import http.client
import json
import logging
import random
import ssl
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from bridge.spark.pipeline.decode.registry_http import HttpAnswer, HttpEndpoint, RegistryBodyTooLong, http_get
from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.base.threads import StopSignal
from zkconsumer.config_def import HIDDEN, mask_user
from zkconsumer.errors import PeerError, UnavailableError, UsageError
from zkconsumer.kafka.net.exponential_backoff import ExponentialBackoff, Uniform
from zkconsumer.kafka.tls import TlsSettings

log = logging.getLogger("zkconsumer.spark")

REFERENCES_MAX = 200
"""The maximum number of schemas that one schema refers to, directly or not."""

SHOWN_CHARS_MAX = 200
"""How much of an answer's text is in an error."""

_ACCEPT = "application/vnd.schemaregistry.v1+json, application/vnd.schemaregistry+json, application/json"
_RETRIED_STATUS = frozenset({408, 425, 429})
_NOT_FOUND = 404


class SchemaUnusable(PeerError):
    """A record names a schema id without a usable Avro schema; the record is a dead letter, register the schema."""


class SchemaIdNotFound(SchemaUnusable):
    """The registry has no schema of this id; the record is a dead letter, register the schema and replay it."""


class SchemaRegistryUnavailable(UnavailableError):
    """The registry did not answer in time or failed; start it: the batch is repeated, without dead letters."""


class SchemaRegistryRefused(UsageError):
    """The registry refuses the request, or the URL is not a registry's; correct the URL, the login or the rights."""


@dataclass(frozen=True, slots=True, repr=False)
class SchemaRegistrySettings:
    """The settings of a client.  Can be pickled, and contains the password then; shows no secret.

    ``url``: ``http(s)://HOST[:PORT][/PREFIX]``, without a user.  ``username``, ``password``: basic authentication, both
    or none.  ``ca_file``: the authorities of the registry's certificate, PEM; None: the system's.  Times in ms:
    ``connect_timeout_ms`` until a connection is open, ``read_timeout_ms`` of silence, ``lookup_timeout_ms`` for a
    lookup with its retries.  ``retries_max``: after the first attempt, of each request.  Raises
    ``SchemaRegistryRefused`` for settings that cannot be used.
    """

    url: str
    username: str | None = None
    password: str | None = None
    ca_file: str | None = None
    connect_timeout_ms: int = 5_000
    read_timeout_ms: int = 10_000
    lookup_timeout_ms: int = 60_000
    retries_max: int = 5
    retry_backoff_ms: int = 200
    retry_backoff_max_ms: int = 5_000
    schemas_cached_max: int = 1_000
    missing_ttl_ms: int = 30_000

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem:
            raise SchemaRegistryRefused(f"the registry's URL {mask_user(self.url)!r}: {problem}")

    def __repr__(self) -> str:
        login = "" if self.username is None else f", username={self.username!r}, password={HIDDEN}"
        return f"SchemaRegistrySettings(url={mask_user(self.url)!r}{login})"

    def _problem(self) -> str:
        try:
            parts = urlsplit(self.url)
            port = parts.port
        except ValueError:
            return "is not a URL; set it to http(s)://HOST[:PORT][/PREFIX]"
        if "@" in parts.netloc:
            return "must not contain a user or a password; set them as username and password"
        if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
            return "is not a URL of a server; set it to http(s)://HOST[:PORT][/PREFIX]"
        if parts.query or parts.fragment or not self.url.isascii() or any(char <= " " for char in self.url):
            return "has more than a host, a port and a path; set it to http(s)://HOST[:PORT][/PREFIX]"
        if (self.username is None) != (self.password is None):
            return "basic authentication needs both username and password, or none of them"
        if ":" in (self.username or ""):
            return "a user name must not contain a colon (RFC 7617)"
        return ""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of the registry.  ``text``: its JSON.  ``references``: the texts of the schemas that it refers to, each
    after those that it refers to itself."""

    schema_id: int
    text: str
    references: tuple[str, ...] = ()


class SchemaRegistryClient:
    """Reads schemas by id; see the head of this module.  Threads may share it.  It has nothing to close."""

    def __init__(
        self,
        settings: SchemaRegistrySettings,
        *,
        clock: Clock = SYSTEM_CLOCK,
        pause: Callable[[int], object] | None = None,
        uniform: Uniform = random.random,
    ) -> None:
        """``pause(ms)`` waits between two attempts.  Raises ``InvalidConfigException`` for an unusable ``ca_file``."""
        parts = urlsplit(settings.url)
        is_tls = parts.scheme == "https"
        self._settings = settings
        self._endpoint = HttpEndpoint(
            parts.hostname or "",
            parts.port or (443 if is_tls else 80),
            settings.connect_timeout_ms,
            settings.read_timeout_ms,
            TlsSettings(ca_file=settings.ca_file).context() if is_tls else None,
        )
        self._prefix = parts.path.rstrip("/")
        self._headers = {"Accept": _ACCEPT, **_authorization(settings)}
        self._clock = clock
        self._pause = pause if pause is not None else StopSignal().wait
        self._backoff = ExponentialBackoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, uniform)
        self._lock = threading.Lock()
        # Under the lock.  The last one was used last.
        self._schemas: OrderedDict[int, RegisteredSchema] = OrderedDict()
        # Under the lock.  The error of an id, and until when it is kept; oldest first.
        self._missing: OrderedDict[int, tuple[int, SchemaUnusable]] = OrderedDict()

    def __repr__(self) -> str:
        return f"SchemaRegistryClient({self._settings!r})"

    def lookup(self, schema_id: int) -> RegisteredSchema:
        """The schema of this id.

        Raises ``SchemaIdNotFound`` and ``SchemaUnusable`` (the record is a dead letter), ``SchemaRegistryUnavailable``
        (repeat the batch), ``SchemaRegistryRefused`` (an operator must act).
        """
        with self._lock:
            found = self._schemas.get(schema_id)
            if found is not None:
                self._schemas.move_to_end(schema_id)
                return found
            expires_ms, missing = self._missing.get(schema_id, (0, None))
            if missing is not None and self._clock.now_ms() < expires_ms:
                raise type(missing)(str(missing))
        try:
            fetched = _Lookup(self, schema_id).run()
        except SchemaUnusable as error:
            self._keep_missing(schema_id, error)
            raise
        with self._lock:
            self._missing.pop(schema_id, None)
            self._schemas[schema_id] = fetched
            self._schemas.move_to_end(schema_id)
            while len(self._schemas) > self._settings.schemas_cached_max:
                self._schemas.popitem(last=False)
        return fetched

    def _keep_missing(self, schema_id: int, error: SchemaUnusable) -> None:
        with self._lock:
            self._missing[schema_id] = (self._clock.now_ms() + self._settings.missing_ttl_ms, error)
            self._missing.move_to_end(schema_id)
            while len(self._missing) > self._settings.schemas_cached_max:
                self._missing.popitem(last=False)

    def get(self, path: str, deadline_ms: int, schema_id: int) -> HttpAnswer:
        """The answer to a GET below the prefix: a status below 500 that is not retried.

        Raises ``SchemaRegistryUnavailable`` after the last attempt, and ``SchemaRegistryRefused``.
        """
        attempt = 0
        while True:
            reason = ""
            try:
                answer = http_get(self._endpoint, self._prefix + path, self._headers, deadline_ms, self._clock)
                if answer.status == 200 and not answer.has_length and _json_of(answer) is None:
                    reason = "sends an incomplete answer"
                elif answer.status < 500 and answer.status not in _RETRIED_STATUS:
                    return answer
                else:
                    reason = f"answers {answer.status}{_message_of(answer)}"
            except ssl.SSLCertVerificationError as error:
                raise SchemaRegistryRefused(
                    f"{self._name()}: its certificate is not trusted: {error.verify_message}; set the file of its "
                    "authority, or correct the certificate"
                ) from error
            except UnicodeError as error:  # a label of the host name that IDNA does not allow
                raise SchemaRegistryRefused(f"{self._name()}: its host name is invalid; correct the URL") from error
            except RegistryBodyTooLong as error:
                raise SchemaRegistryRefused(f"{self._name()}: {error}; correct the URL") from error
            except TimeoutError:
                reason = "does not answer in time"
            except (OSError, http.client.HTTPException) as error:
                reason = getattr(error, "strerror", None) or type(error).__name__
            pause_ms = self._backoff.backoff(attempt)
            attempt += 1
            left_ms = deadline_ms - self._clock.now_ms()
            if attempt > self._settings.retries_max or left_ms <= pause_ms:
                attempts = "1 attempt" if attempt == 1 else f"{attempt} attempts"
                raise SchemaRegistryUnavailable(
                    f"{self._name()}: {reason} ({attempts} for schema id {schema_id}); the operator must start the "
                    "registry or correct its URL, and repeat the command: the batch is read again, and no record is a "
                    "dead letter because of this"
                )
            log.warning("schema-registry-retry schema_id=%d attempt=%d reason=%r", schema_id, attempt, reason)
            self._pause(pause_ms)

    def deadline_ms(self) -> int:
        """The deadline of a lookup that begins now."""
        return self._clock.now_ms() + self._settings.lookup_timeout_ms

    def refused(self, answer: HttpAnswer) -> SchemaRegistryRefused:
        """The error for an answer that only an operator can change."""
        if answer.status == 401:
            whose = "no login is set" if self._settings.username is None else f"user {self._settings.username!r}"
            advice = f"rejects the login ({whose}); correct username and password"
        elif answer.status == 403:
            advice = "does not allow reading schemas; give the user the right to read them"
        elif 300 <= answer.status < 400:
            where = mask_user((answer.location or "").partition("?")[0])[:SHOWN_CHARS_MAX]
            advice = f"redirects to {where!r}; set the URL to the registry's own"
        elif answer.status == _NOT_FOUND:
            advice = "has no schema registry at this path; correct the prefix of the URL"
        elif answer.status == 200:
            advice = "does not answer as a schema registry does; correct the URL"
        else:
            advice = "refuses the request; correct the URL"
        return SchemaRegistryRefused(f"{self._name()}: {advice} (status {answer.status}{_message_of(answer)})")

    def _name(self) -> str:
        return f"the schema registry {self._settings.url}"


class _Lookup:
    """One lookup: the schema and its references, with one deadline."""

    def __init__(self, client: SchemaRegistryClient, schema_id: int) -> None:
        self._client = client
        self._schema_id = schema_id
        self._deadline_ms = client.deadline_ms()
        self._texts: dict[tuple[str, int], str] = {}
        """The references whose own references are complete, in the order in which a parser needs them."""

    def run(self) -> RegisteredSchema:
        answer = self._get(f"/schemas/ids/{self._schema_id}")
        found = self._object_of(answer, "there is no schema of this id")
        self._follow(found, ())
        return RegisteredSchema(self._schema_id, found["schema"], tuple(self._texts.values()))

    def _get(self, path: str) -> HttpAnswer:
        return self._client.get(path, self._deadline_ms, self._schema_id)

    def _follow(self, found: dict[str, Any], path: tuple[tuple[str, int], ...]) -> None:
        references = found.get("references") or []
        if not isinstance(references, list):
            raise self._unusable("its references are no list")
        for one in references:
            match one:
                case {"subject": str(subject), "version": int(version)}:
                    place = (subject, version)
                case _:
                    raise self._unusable("a reference has no subject and version")
            if place in path:
                raise self._unusable(f"the reference {subject!r} version {version} refers to itself")
            if place in self._texts:
                continue
            if len(self._texts) + len(path) >= REFERENCES_MAX:
                raise self._unusable(f"it has more than {REFERENCES_MAX} references")
            answer = self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}")
            of_it = self._object_of(answer, f"its reference {subject!r} version {version} does not exist")
            self._follow(of_it, (*path, place))
            self._texts[place] = of_it["schema"]

    def _object_of(self, answer: HttpAnswer, if_not_found: str) -> dict[str, Any]:
        """The schema in an answer."""
        if answer.status == _NOT_FOUND:
            if not 40400 <= _error_code(answer) < 40500 and not self._is_registry():
                raise self._client.refused(answer)
            raise SchemaIdNotFound(f"schema id {self._schema_id}: {if_not_found} in the registry")
        found = _json_of(answer)
        if answer.status != 200 or not isinstance(found, dict) or not isinstance(found.get("schema"), str):
            raise self._client.refused(answer)
        kind = found.get("schemaType") or "AVRO"
        if kind != "AVRO":
            raise self._unusable(f"it is a schema of type {str(kind)[:SHOWN_CHARS_MAX]!r}, not of Avro")
        return found

    def _is_registry(self) -> bool:
        answer = self._get("/schemas/types")
        return answer.status == 200 and isinstance(_json_of(answer), list)

    def _unusable(self, why: str) -> SchemaUnusable:
        return SchemaUnusable(f"schema id {self._schema_id}: {why}")


def _authorization(settings: SchemaRegistrySettings) -> dict[str, str]:
    if settings.username is None:
        return {}
    login = f"{settings.username}:{settings.password}".encode()
    return {"Authorization": "Basic " + base64.b64encode(login).decode("ascii")}


def _json_of(answer: HttpAnswer) -> Any:
    """The content of the body; None if it is not JSON."""
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        return None


def _error_code(answer: HttpAnswer) -> int:
    match _json_of(answer):
        case {"error_code": int(code)}:
            return code
        case _:
            return 0


def _message_of(answer: HttpAnswer) -> str:
    """What the registry writes about its error, for our error."""
    match _json_of(answer):
        case {"message": str(message)}:
            return f": {message[:SHOWN_CHARS_MAX]!r}"
        case _:
            return ""
