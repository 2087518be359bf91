"""Settings of the connections to brokers: addresses, TLS and SASL.  Pure.

The names are those of Kafka's newer clients; some settings also have the name of librdkafka.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from zkconsumer.config_def import (
    JAVA_BLANKS,
    USER_IN_ADDRESS_ERROR,
    Origin,
    Setting,
    SettingsTable,
    boolean,
    integer,
    mask_user,
    optional_text,
    secret,
    text,
)
from zkconsumer.config_tables.jaas import PLAIN_MODULE, SCRAM_MODULE, parse_jaas

if TYPE_CHECKING:
    from collections.abc import Mapping

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")

_TLS_KEYS = (
    "ssl.truststore.location", "ssl.ca.location", "ssl.keystore.location", "ssl.certificate.location",
    "ssl.key.location", "ssl.key.password",
)  # fmt: skip
_SASL_KEYS = ("sasl.mechanism", "sasl.username", "sasl.password", "sasl.jaas.config", "sasl.kerberos.service.name")
_STORE_TYPES = {"JKS": "a Java keystore", "PKCS12": "a PKCS #12 file"}


def check_bootstrap(given: str) -> str:
    """Check broker addresses; return them without blanks and empty items."""
    servers = [server.strip(JAVA_BLANKS) for server in given.split(",")]
    servers = [server for server in servers if server]
    if "@" in given:
        raise ValueError(USER_IN_ADDRESS_ERROR)
    if not servers:
        raise ValueError("it contains no broker; remove the key to find the brokers through ZooKeeper")
    for server in servers:
        host, _, port = server.rpartition(":")
        if not re.fullmatch(r"\[[0-9a-fA-F:.%]+\]|[^\s:/\[\]]+", host) or not re.fullmatch(r"[0-9]{1,5}", port):
            raise ValueError(f"{server!r} is not HOST:PORT")
        if not 1 <= int(port) <= 65_535:
            raise ValueError(f"{server!r} has no port between 1 and 65535")
    return ",".join(servers)


def _choice_any_case(key: str, words: tuple[str, ...], default: str | None, sentence: str) -> Setting[Any]:
    """One of ``words``, in upper or lower case."""

    def check(given: str) -> str:
        word = given.upper()
        if word not in words:
            raise ValueError("")
        return word

    return text(key, default, sentence, check, " or ".join(words))


def _check_store_type(given: str) -> str:
    word = given.upper()
    if word == "PEM":
        return word
    if word in _STORE_TYPES:
        raise ValueError(
            f"{_STORE_TYPES[word]} is not supported; the error for the file contains the command that converts it"
        )
    raise ValueError("")


def _check_algorithm(given: str) -> str:
    word = given.lower()
    if word not in ("https", ""):
        raise ValueError("")
    return word


def _check_tls_versions(given: str) -> str:
    names = [name.strip(JAVA_BLANKS) for name in given.split(",")]
    for name in names:
        if name not in TLS_VERSIONS:
            raise ValueError(f"{name!r} is not supported")
    return ",".join(version for version in TLS_VERSIONS if version in names)


def _check_jaas(given: str) -> str:
    parse_jaas(given)
    return given


def _not_empty(given: str) -> str:
    if not given or "\0" in given:
        raise ValueError("")
    return given


def _pem_file(key: str, sentence: str) -> Setting[str | None]:
    return optional_text(key, sentence, _not_empty, "the path of a PEM file")


class BrokerConnectionSettings(SettingsTable):
    """The addresses of the brokers, their authentication, and the authentication of this client."""

    __slots__ = ()

    ORIGIN = Origin.NEWER_CLIENTS

    bootstrap_servers = optional_text(
        "bootstrap.servers",
        "Some brokers of the cluster. If it is set, the member reads topics, partitions and leaders from Kafka, and "
        "only the group from ZooKeeper: so a group can read a cluster without ZooKeeper. If it is not set, brokers and "
        "topics are those below `zookeeper.connect`.",
        check_bootstrap, "HOST:PORT[,HOST:PORT…]",
    )  # fmt: skip
    bootstrap_servers.mask = mask_user
    metadata_max_age_ms = integer(
        "metadata.max.age.ms", 30_000,
        "How often the member asks Kafka for new topics and partitions; only with `bootstrap.servers`. (300000 in the "
        "newer clients; ZooKeeper reports changes at once.)",
        unit="ms", low=100,
    )  # fmt: skip
    api_version_request = boolean(
        "api.version.request", True,
        "Whether to send ApiVersions requests to brokers. Set `false` for brokers of 0.9.0: there this request makes "
        "the broker lose requests that other clients send at that moment. Then all brokers are treated as 0.9. A "
        "broker that registered as 0.9 in ZooKeeper never gets this request, and one that did not answer it gets none "
        "for ten minutes; so the setting only matters without `zookeeper.connect`. (Of librdkafka.)",
    )  # fmt: skip
    security_protocol = _choice_any_case(
        "security.protocol", SECURITY_PROTOCOLS, "PLAINTEXT",
        "The protocol of the connections to brokers. Of the listeners that a broker has registered in ZooKeeper, the "
        "first one with this protocol is used.",
    )  # fmt: skip

    # TLS: the certificates of brokers and of this client.

    ssl_truststore_location = _pem_file(
        "ssl.truststore.location",
        "The certificates of the trusted authorities for brokers. Without it, those of the system.",
    )
    ssl_truststore_type = text(
        "ssl.truststore.type", "PEM", "The format of `ssl.truststore.location`.", _check_store_type, "PEM"
    )
    ssl_ca_location = _pem_file("ssl.ca.location", "librdkafka's name of `ssl.truststore.location`.")
    ssl_keystore_location = _pem_file(
        "ssl.keystore.location", "The client's private key and certificate in one file, for brokers that require one."
    )
    ssl_keystore_type = text(
        "ssl.keystore.type", "PEM", "The format of `ssl.keystore.location`.", _check_store_type, "PEM"
    )
    ssl_certificate_location = _pem_file(
        "ssl.certificate.location", "The client's certificate and its chain; set it with `ssl.key.location`."
    )
    ssl_key_location = _pem_file(
        "ssl.key.location", "The client's private key; set it with `ssl.certificate.location`."
    )
    ssl_key_password = secret("ssl.key.password", "The password of the private key, if it is encrypted.", "any text")
    ssl_endpoint_identification_algorithm = text(
        "ssl.endpoint.identification.algorithm", "https",
        "`https`: the broker's certificate must contain the host name of the connection. Empty: it need not, so the "
        "owner of any certificate of the same authority can impersonate a broker.",
        _check_algorithm, "https or nothing",
    )  # fmt: skip
    ssl_enabled_protocols = text(
        "ssl.enabled.protocols", ",".join(TLS_VERSIONS), "The supported versions of TLS.",
        _check_tls_versions, "TLSv1.2 or TLSv1.3 or both",
    )  # fmt: skip

    # SASL: the login of this client.

    sasl_mechanism = _choice_any_case(
        "sasl.mechanism", SASL_MECHANISMS, None,
        "The login mechanism, with `SASL_PLAINTEXT` and `SASL_SSL`. GSSAPI requires the package `gssapi`; OAUTHBEARER "
        "requires a function `oauth_token` that the program passes to the connector.",
    )  # fmt: skip
    sasl_username = optional_text(
        "sasl.username", "The user, for PLAIN and SCRAM. (Of librdkafka.)", _not_empty, "any text"
    )
    sasl_password = secret("sasl.password", "The user's password, for PLAIN and SCRAM. (Of librdkafka.)", "any text")
    sasl_jaas_config = text(
        "sasl.jaas.config", None,
        "User and password in the format of Kafka's Java clients: "
        f'`{SCRAM_MODULE} required username="…" password="…";` or the same with `PlainLoginModule`.',
        _check_jaas, "a PlainLoginModule or a ScramLoginModule",
    )  # fmt: skip
    sasl_jaas_config.is_secret = True
    sasl_kerberos_service_name = text(
        "sasl.kerberos.service.name", "kafka", "The service name of the brokers in Kerberos, for GSSAPI.",
        _not_empty, "any text",
    )  # fmt: skip

    @staticmethod
    def conflicts(values: Mapping[str, Any], given: frozenset[str]) -> list[str]:
        """See ``SettingsTable``."""
        protocol = values["security.protocol"]
        problems = (
            _tls_conflicts(values, protocol) if protocol.endswith("SSL") else _tls_keys_without_tls(given, protocol)
        )
        problems += (
            _sasl_conflicts(values, given, protocol)
            if protocol.startswith("SASL")
            else _sasl_keys_without_sasl(given, protocol)
        )
        return problems

    @staticmethod
    def without_effect(values: Mapping[str, Any], given: frozenset[str]) -> dict[str, str]:
        """See ``SettingsTable``."""
        idle: dict[str, str] = {}
        if values["bootstrap.servers"] is None:
            idle["metadata.max.age.ms"] = (
                "has no effect without bootstrap.servers: ZooKeeper reports new topics and partitions at once"
            )
        if values["sasl.mechanism"] not in (None, "GSSAPI"):
            idle["sasl.kerberos.service.name"] = "only has an effect with sasl.mechanism=GSSAPI"
        return {key: why for key, why in idle.items() if key in given}


def _tls_conflicts(values: Mapping[str, Any], protocol: str) -> list[str]:
    problems = []
    for one, other in (
        ("ssl.truststore.location", "ssl.ca.location"),
        ("ssl.keystore.location", "ssl.certificate.location"),
        ("ssl.keystore.location", "ssl.key.location"),
    ):
        if values[one] is not None and values[other] is not None:
            problems.append(f"{one} and {other}: set only one of them")
    if (values["ssl.certificate.location"] is None) != (values["ssl.key.location"] is None):
        problems.append("ssl.certificate.location and ssl.key.location: set both or none of them")
    if values["ssl.key.password"] and values["ssl.keystore.location"] is None and values["ssl.key.location"] is None:
        problems.append("ssl.key.password: no private key is set; also set ssl.keystore.location or ssl.key.location")
    return problems


def _tls_keys_without_tls(given: frozenset[str], protocol: str) -> list[str]:
    set_anyway = [key for key in _TLS_KEYS if key in given]
    if not set_anyway:
        return []
    with_tls = "SASL_SSL" if protocol.startswith("SASL") else "SSL"
    return [
        f"security.protocol={protocol}: does not use TLS, so {', '.join(set_anyway)} would have no effect; "
        f"set security.protocol={with_tls}, or remove them"
    ]


def _sasl_conflicts(values: Mapping[str, Any], given: frozenset[str], protocol: str) -> list[str]:
    mechanism, jaas = values["sasl.mechanism"], values["sasl.jaas.config"]
    if mechanism is None:
        words = " or ".join(SASL_MECHANISMS)
        missing = f"sasl.mechanism is missing: security.protocol={protocol} needs it; set it to {words}"
        return [] if "sasl.mechanism" in given else [missing]
    names = [key for key in ("sasl.username", "sasl.password", "sasl.jaas.config") if key in given]
    if mechanism not in PASSWORD_MECHANISMS:
        return [f"sasl.mechanism={mechanism}: has no user and password; remove {', '.join(names)}"] if names else []
    if "sasl.jaas.config" in names and len(names) > 1:
        return ["sasl.jaas.config and sasl.username, sasl.password: set the user in only one of the two ways"]
    if jaas is not None:
        wanted = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
        found = parse_jaas(jaas).module
        return [] if found == wanted else [f"sasl.jaas.config: contains {found}, but {mechanism} needs {wanted}"]
    if "sasl.jaas.config" in given:
        return []
    return [
        f"{key} is missing: sasl.mechanism={mechanism} needs a user and a password"
        for key in ("sasl.username", "sasl.password")
        if not values[key]
    ]


def _sasl_keys_without_sasl(given: frozenset[str], protocol: str) -> list[str]:
    set_anyway = [key for key in _SASL_KEYS if key in given]
    if not set_anyway:
        return []
    with_sasl = "SASL_SSL" if protocol == "SSL" else "SASL_PLAINTEXT or SASL_SSL"
    return [
        f"security.protocol={protocol}: does not use SASL, so {', '.join(set_anyway)} would have no effect; "
        f"set security.protocol={with_sasl}, or remove them"
    ]
