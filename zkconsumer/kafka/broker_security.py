"""How connections to brokers are made: the one ``ConnectionFactory`` of all clients of Kafka.

    security.protocol   above the socket
    PLAINTEXT           nothing
    SSL                 TLS
    SASL_PLAINTEXT      the login
    SASL_SSL            TLS, the login

``connection_factory_from_config(config)`` is what programs call; tools and tests that have no consumer's configuration
make a ``BrokerSecurity`` themselves.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Unpack

from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.config_tables.jaas import parse_jaas
from zkconsumer.errors import (
    AuthenticationException,
    BrokerUnreachable,
    KafkaException,
    RemoteProtocolError,
    SecurityProtocolMismatch,
    SslAuthenticationException,
)
from zkconsumer.kafka.api_versions_deny_list import API_VERSIONS_DENY_LIST
from zkconsumer.kafka.broker_connection import BlockingConnection, ConnectionOptions
from zkconsumer.kafka.error_codes import ILLEGAL_SASL_STATE, UNSUPPORTED_SASL_MECHANISM
from zkconsumer.kafka.net.api_versions_discovery import NEGOTIATION_BYTES_MAX
from zkconsumer.kafka.net.broker_channel import BrokerChannel
from zkconsumer.kafka.net.connection_errors import BrokerConnectionError, ConnectionFailureReason
from zkconsumer.kafka.sasl_mechanisms import SaslSettings
from zkconsumer.kafka.tls import NotTlsError, TlsSettings
from zkconsumer.kafka.transport import SocketTransport, TransportFactory
from zkconsumer.wire.schemas import API_VERSIONS, SASL_HANDSHAKE
from zkconsumer.wire.schemas.api_versions import ApiVersionsRequest
from zkconsumer.wire.schemas.sasl_handshake import SaslHandshakeRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from zkconsumer.config import ConsumerConfig
    from zkconsumer.config_tables.broker_connection_settings import BrokerConnectionSettings
    from zkconsumer.types import BrokerAddress

DIAGNOSIS_TIMEOUT_MS = 2_000
"""How long each of at most four probes of a port may take, after a connection failed in another way."""


@dataclass(frozen=True, slots=True)
class BrokerSecurity:
    """``protocol`` is ``security.protocol``; it decides which of ``tls`` and ``sasl`` is used.

    ``negotiates_versions``: False for brokers to which ApiVersions must not be sent (``api_versions_deny_list``).
    """

    protocol: str = "PLAINTEXT"
    tls: TlsSettings = field(default_factory=TlsSettings)
    sasl: SaslSettings | None = None
    negotiates_versions: bool = True

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        """Whether connections begin with a login."""
        return self.protocol.startswith("SASL_")

    def for_brokers(self, brokers: Iterable[BrokerAddress]) -> BrokerSecurity:
        """For another process, so that it need not find out again which brokers are in the list
        (``api_versions_deny_list``).
        """
        asks = self.negotiates_versions and not any(
            API_VERSIONS_DENY_LIST.contains(broker.host, broker.port) for broker in brokers
        )
        return self if asks == self.negotiates_versions else replace(self, negotiates_versions=asks)


def broker_security_from_config(
    config: BrokerConnectionSettings, oauth_token: Callable[[], str] | None = None
) -> BrokerSecurity:
    """The security settings of a configuration."""
    tls = TlsSettings(
        ca_file=config.ssl_truststore_location or config.ssl_ca_location,
        certificate_file=config.ssl_keystore_location or config.ssl_certificate_location,
        key_file=config.ssl_key_location,
        key_password=config.ssl_key_password,
        checks_host=config.ssl_endpoint_identification_algorithm == "https",
        versions=tuple(config.ssl_enabled_protocols.split(",")),
    )
    sasl = None
    if config.sasl_mechanism is not None:
        username, password = config.sasl_username or "", config.sasl_password or ""
        if config.sasl_jaas_config is not None:
            _, username, password = parse_jaas(config.sasl_jaas_config)
        sasl = SaslSettings(
            config.sasl_mechanism, username, password, config.sasl_kerberos_service_name, oauth_token=oauth_token
        )
    return BrokerSecurity(config.security_protocol, tls, sasl, config.api_version_request)


def connection_factory_from_config(
    config: ConsumerConfig, oauth_token: Callable[[], str] | None = None, clock: Clock = SYSTEM_CLOCK
) -> SecureConnectionFactory:
    """The ``ConnectionFactory`` of a configuration.

    Raises ``InvalidConfigException`` for a file that cannot be read or is not in PEM format, for OAUTHBEARER
    without ``oauth_token``, and for GSSAPI without its package.
    """
    return SecureConnectionFactory(broker_security_from_config(config, oauth_token), clock)


class SecureConnectionFactory:
    """A ``ConnectionFactory``: makes connections with the protocol of ``security``.

    Files are read once, here; ``InvalidConfigException`` names the file that cannot be used.  ``socket`` is for tests.
    """

    def __init__(
        self, security: BrokerSecurity, clock: Clock = SYSTEM_CLOCK, *, socket: TransportFactory = SocketTransport
    ) -> None:
        self.security = security
        self._clock = clock
        self._socket = socket
        self._context = security.tls.context() if security.has_tls else None
        if security.has_sasl:
            assert security.sasl is not None, "a configuration with SASL names the mechanism"
            security.sasl.check()

    def __call__(self, host: str, port: int, **options: Unpack[ConnectionOptions]) -> BlockingConnection:
        if not self.security.negotiates_versions:
            API_VERSIONS_DENY_LIST.add(host, port)
        return BlockingConnection(
            host, port, transport=self._socket, channel=self.new_channel, clock=self._clock, **options
        )

    def new_channel(self, host: str, port: int) -> BrokerChannel:
        """A ``ChannelFactory``: TLS and login of a connection, without its socket."""
        sasl = self.security.sasl if self.security.has_sasl else None
        return BrokerChannel(host, port, tls_context=self._context, sasl=sasl)

    # --- when a port does not answer as expected --------------------------------------------------------------------

    def diagnose(self, host: str, port: int, error: Exception) -> AuthenticationException | None:
        """After a connection failed with ``error``: find out whether the port uses another protocol than the configured
        one.

        Connects again, at most twice, and sends nothing secret.  None: it does not, or cannot be probed.
        """
        if not _may_be_other_protocol(error):
            return None
        found = self._protocol_of(host, port)
        wanted = self.security.protocol
        if found in ("", wanted) or (found == "SSL" and wanted == "SASL_SSL"):
            return None
        return SecurityProtocolMismatch(
            f"{host}:{port}: this port speaks {found}, and security.protocol is {wanted}; set "
            f"security.protocol={found}, or take the broker's port for {wanted}"
        )

    def _protocol_of(self, host: str, port: int) -> str:
        """The ``security.protocol`` of the port; empty if its answers do not show it."""
        insecure_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        insecure_context.check_hostname, insecure_context.verify_mode = False, ssl.CERT_NONE
        for context in (None, insecure_context):
            found = self._with_sasl_or_without(context, host, port)
            if found is not None:
                return found
        return ""

    def _with_sasl_or_without(self, context: ssl.SSLContext | None, host: str, port: int) -> str | None:
        """Which of the two the port uses; None: neither."""
        timeout_ms = DIAGNOSIS_TIMEOUT_MS
        connection = BlockingConnection(
            host,
            port,
            connect_timeout_ms=timeout_ms,
            transport=self._socket,
            channel=partial(BrokerChannel, tls_context=context),
            clock=self._clock,
        )
        plain, sasl = ("PLAINTEXT", "SASL_PLAINTEXT") if context is None else ("SSL", "SASL_SSL")
        try:
            connection.request(
                API_VERSIONS, 0, ApiVersionsRequest(), timeout_ms, response_bytes_max=NEGOTIATION_BYTES_MAX
            )
            asked = SaslHandshakeRequest(mechanism="")
            answer = connection.request(SASL_HANDSHAKE, 0, asked, timeout_ms, response_bytes_max=NEGOTIATION_BYTES_MAX)
        except NotTlsError:
            return None
        except SslAuthenticationException:
            # The port uses TLS, and requires a client certificate before anything else.
            return plain
        except (BrokerUnreachable, RemoteProtocolError):
            return None
        finally:
            connection.close()
        return {ILLEGAL_SASL_STATE.code: plain, UNSUPPORTED_SASL_MECHANISM.code: sasl}.get(answer.error_code)


def _may_be_other_protocol(error: Exception) -> bool:
    match error:
        case NotTlsError() | RemoteProtocolError():
            return True
        case BrokerConnectionError():
            return error.reason in (ConnectionFailureReason.CLOSED, ConnectionFailureReason.CLOSED_IN_HANDSHAKE)
        case KafkaException():
            return False
    return isinstance(error, BrokerUnreachable)
