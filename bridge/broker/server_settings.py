"""All start settings of a development broker.  Pure."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bridge.broker.broker_cluster import allow_all
from bridge.broker.emulated_releases import DEFAULT_RELEASE, emulated_release
from bridge.broker.listeners import BrokerListener, check_listeners, check_ports
from bridge.broker.log.segment_files import SyncPolicy
from bridge.broker.tls_handshakes import LoggedHandshake
from bridge.coordinator.api_request import Authorizer
from zkconsumer.config_def import check_connect, mask_user
from zkconsumer.errors import InvalidConfigException, UsageError

NODES_MAX = 100

LOOPBACK_LISTENER = BrokerListener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 0)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the server's certificate and key (in one file, or two), and the CA of client certificates, if
    required."""

    certificate: Path | str
    key: Path | str | None = None
    key_password: str = field(default="", repr=False)
    client_ca: Path | str | None = None

    def context(self) -> ssl.SSLContext:
        """``InvalidConfigException``: a file cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.sslobject_class = LoggedHandshake
        try:
            # Never None: OpenSSL would prompt for the password on the terminal.
            context.load_cert_chain(self.certificate, self.key, self.key_password or "")
        except (OSError, ValueError) as error:
            files = f"{self.certificate}" if self.key is None else f"{self.certificate} and {self.key}"
            raise InvalidConfigException(f"{files}: no certificate with its key in PEM ({_reason(error)})") from error
        if self.client_ca is not None:
            try:
                context.load_verify_locations(self.client_ca)
            except (OSError, ValueError) as error:
                raise InvalidConfigException(
                    f"{self.client_ca}: no certificate of an authority in PEM ({_reason(error)})"
                ) from error
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__


@dataclass(frozen=True, slots=True)
class BrokerServerSettings:
    """``data`` None: everything in memory.  ``nodes`` are numbered from ``first_node_id`` on.

    ``properties``: Kafka's keys of ``server.properties``, of the broker and of the coordinator.  ``users``: name →
    password, for SASL.  ``zookeeper``: where to register, and where OffsetCommit v0 writes.
    """

    release: str = DEFAULT_RELEASE
    nodes: int = 1
    first_node_id: int = 0
    listeners: tuple[BrokerListener, ...] = (LOOPBACK_LISTENER,)
    data: Path | None = None
    sync: SyncPolicy = SyncPolicy.SYSTEM
    properties: Mapping[str, str] = field(default_factory=dict)
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: TlsFiles | None = None
    zookeeper: str | None = None
    authorizer: Authorizer = allow_all

    def check(self) -> None:
        """``UsageError`` for invalid settings, and for settings that would have no effect."""
        emulated_release(self.release)
        check_listeners(list(self.listeners))
        if not 1 <= self.nodes <= NODES_MAX:
            raise UsageError(f"{self.nodes} nodes; 1 to {NODES_MAX} can be started in one process")
        if self.first_node_id < 0:
            raise UsageError("a node's id is 0 or more")
        if not self.listeners:
            raise UsageError("a broker needs at least one listener")
        for listener in self.listeners:
            if listener.has_tls and self.tls is None:
                raise UsageError(f"listener {listener.name} uses TLS and needs a certificate (--tls-certificate FILE)")
            if listener.has_sasl and not self.users:
                raise UsageError(f"listener {listener.name} requires a login, and no users are given (--users FILE)")
        if self.users and not any(listener.has_sasl for listener in self.listeners):
            raise UsageError(
                "users are given, but no listener requires a login, so every client could do everything. Use a "
                "listener SASL_PLAINTEXT://HOST:PORT or SASL_SSL://HOST:PORT"
            )
        if self.tls is not None and not any(listener.has_tls for listener in self.listeners):
            raise UsageError("a certificate is given, but no listener uses TLS: use SSL://HOST:PORT")
        check_ports(self.listeners, self.nodes)
        if self.zookeeper is not None:
            try:
                check_connect(self.zookeeper)
            except ValueError as error:
                raise UsageError(
                    f"--zookeeper={mask_user(self.zookeeper)}: {error}; set it to HOST:PORT[,HOST:PORT…][/CHROOT]"
                ) from None
        for key, value in self.properties.items():
            if not isinstance(value, str):
                raise UsageError(f"{key} is {value!r}: properties are text, as in server.properties")
