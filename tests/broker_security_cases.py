"""Ways to speak to a secured broker, right and wrong, and what must come of each: for fake brokers and real ones."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import (
    SaslAuthenticationException,
    SecurityProtocolMismatch,
    SslAuthenticationException,
    UnsupportedSaslMechanismException,
    ZkConsumerError,
)
from zkconsumer.kafka.bootstrap_client import BootstrapClient, NoBrokerAvailableError
from zkconsumer.kafka.broker_security import SecureConnectionFactory, broker_security_from_config
from zkconsumer.kafka.metadata_client import fetch_leaders
from zkconsumer.kafka.transport import SocketTransport, TransportFactory
from zkconsumer.types import BrokerAddress

TLS = Path(__file__).parent / "data" / "tls"
USER, PASSWORD, TOKEN = "alice", "alice-password", "a-token"


@dataclass(frozen=True)
class Case:
    """``listener``: where we go; ``error`` None: it works.  ``words``: what the error must say."""

    name: str
    listener: str
    protocol: str
    mechanism: str | None = None
    change: dict[str, str] = field(default_factory=dict)
    error: type[ZkConsumerError] | None = None
    words: str = ""

    def __str__(self) -> str:
        return self.name


def _logins() -> list[Case]:
    cases = []
    for protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"):
            name = f"{mechanism} over {protocol}"
            cases.append(Case(name, protocol, protocol, mechanism))
            if mechanism == "OAUTHBEARER":
                refused = Case(
                    f"{name}, wrong token", protocol, protocol, mechanism, {"token": "wrong"},
                    SaslAuthenticationException, "the broker does not accept the token",
                )  # fmt: skip
                cases.append(refused)
                continue
            for key in ("sasl.password", "sasl.username"):
                refused = Case(
                    f"{name}, wrong {key}", protocol, protocol, mechanism, {key: "wrong"},
                    SaslAuthenticationException, "the broker does not accept the user or the password",
                )  # fmt: skip
                cases.append(refused)
    return cases


CASES = [
    Case("PLAINTEXT", "PLAINTEXT", "PLAINTEXT"),
    Case("SSL", "SSL", "SSL"),
    Case("SSL in TLS 1.2", "SSL", "SSL", None, {"ssl.enabled.protocols": "TLSv1.2"}),
    Case("a certificate of ours", "MUTUAL", "SSL", None, {"ssl.keystore.location": "CLIENT"}),
    Case(
        "no certificate of ours", "MUTUAL", "SSL", None, {}, SslAuthenticationException,
        "the broker rejects our certificate, or requires one that we do not send",
    ),
    Case(
        "no certificate of ours in TLS 1.2", "MUTUAL", "SSL", None, {"ssl.enabled.protocols": "TLSv1.2"},
        SslAuthenticationException, "ssl.keystore.location",
    ),
    Case(
        "another authority", "SSL", "SSL", None, {"ssl.truststore.location": "OTHER-CA"}, SslAuthenticationException,
        "from an unknown authority",
    ),
    Case(
        "the system's authorities", "SSL", "SSL", None, {"ssl.truststore.location": "LEFT-OUT"},
        SslAuthenticationException, "from an unknown authority",
    ),
    *_logins(),
    Case(
        "a mechanism that is not there", "SASL_SSL", "SASL_SSL", "PLAIN", {"mechanisms": "SCRAM-SHA-512"},
        UnsupportedSaslMechanismException,
        "the broker does not have sasl.mechanism=PLAIN; enabled there: SCRAM-SHA-512",
    ),
    *(
        Case(
            f"{protocol} to a port for {listener}", listener, protocol,
            "PLAIN" if protocol.startswith("SASL") else None, {}, SecurityProtocolMismatch,
            "this port wants no SASL"
            if protocol.removeprefix("SASL_").replace("PLAINTEXT", "") == listener.replace("PLAINTEXT", "")
            and protocol.startswith("SASL")
            else f"this port speaks {listener}, and security.protocol is {protocol}",
        )
        for listener in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
        for protocol in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
        if listener != protocol
    ),
]  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Where a case is tried: addresses by listener, and the files that fit its certificates."""

    address: Callable[[str], tuple[str, int]]
    ca: Path
    other_ca: Path
    client: Path
    token: Callable[[], str]
    socket: TransportFactory = SocketTransport


def config_for(case: Case, place: Place) -> ConsumerConfig:
    """The consumer's configuration of a case."""
    settings: dict[str, object] = {"security.protocol": case.protocol}
    if case.protocol.endswith("SSL"):
        settings["ssl.truststore.location"] = str(place.ca)
    if case.mechanism is not None:
        settings["sasl.mechanism"] = case.mechanism
        if case.mechanism != "OAUTHBEARER":
            settings |= {"sasl.username": USER, "sasl.password": PASSWORD}
    files = {"OTHER-CA": str(place.other_ca), "CLIENT": str(place.client)}
    changed = {key: files.get(value, value) for key, value in case.change.items() if "." in key}
    settings = {key: value for key, value in (settings | changed).items() if value != "LEFT-OUT"}
    return ConsumerConfig.from_properties({"group.id": "g", "zookeeper.connect": "z", **settings})


def attempt(case: Case, place: Place) -> ZkConsumerError | None:
    """Speak to the broker as the case says; what came of it."""

    def token() -> str:
        return case.change.get("token") or place.token()

    connect = SecureConnectionFactory(broker_security_from_config(config_for(case, place), token), socket=place.socket)
    host, port = place.address(case.listener)
    broker = BootstrapClient(connect, lambda: [BrokerAddress(-1, host, port)], "g", 10_000, diagnose=connect.diagnose)
    try:
        broker.execute(lambda connection, ranges, timeout_ms: fetch_leaders(connection, ranges, [], timeout_ms))
    except NoBrokerAvailableError as error:
        return error.authentication_error or error
    return None


def judge(case: Case, came: ZkConsumerError | None) -> None:
    """What came is what the case wants, and shows no secret."""
    if case.error is None:
        assert came is None, came
        return
    assert type(came) is case.error or type(came).__base__ is case.error, repr(came)
    assert case.words in str(came)
    assert PASSWORD not in str(came)


def unsecured_token(subject: str = USER, lifetime_s: int = 3600) -> str:
    """A token without a signature, as Kafka's development validator takes it."""

    def part(values: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")

    now_s = SYSTEM_CLOCK.wall_ms() // 1000
    return f"{part({'alg': 'none'})}.{part({'sub': subject, 'iat': now_s - 10, 'exp': now_s + lifetime_s})}."
