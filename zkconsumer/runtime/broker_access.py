"""How members and tools find brokers and connect to them, from the configuration.

The brokers are those of ``bootstrap.servers`` if it is set, else those registered in ZooKeeper with a listener of
``security.protocol``.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zkconsumer.errors import InvalidConfigException, UnavailableError
from zkconsumer.kafka.api_versions_deny_list import API_VERSIONS_DENY_LIST, REGISTRATION_VERSION_0_9
from zkconsumer.kafka.bootstrap_brokers import BootstrapBrokers
from zkconsumer.kafka.bootstrap_client import BootstrapClient, NoBrokerAvailableError
from zkconsumer.kafka.broker_security import connection_factory_from_config
from zkconsumer.kafka.metadata_client import fetch_leaders
from zkconsumer.kafka.net.broker_channel import BrokerChannel, ChannelFactory
from zkconsumer.kafka.net.connection_errors import PortDiagnosis
from zkconsumer.kafka.net.metadata_updater import MetadataUpdater
from zkconsumer.kafka.net.network_client import NetworkClient, new_network_client
from zkconsumer.kafka.net.network_machine import NetworkSettings
from zkconsumer.zk.broker_directory import BrokerDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from zkconsumer.base.clock import Clock
    from zkconsumer.config import ConsumerConfig
    from zkconsumer.kafka.broker_connection import ConnectionFactory
    from zkconsumer.types import BrokerAddress
    from zkconsumer.zk.store import ZkStore

NO_BROKER_REGISTERED = "no broker is registered in ZooKeeper (/brokers/ids): start one, or correct the chroot"
NO_BOOTSTRAP_SERVER = "bootstrap.servers names no broker"

BROKER_CHECK_TIMEOUT_MS = 8_000
"""How long the check of brokers before a join may take, if they may reject us (TLS, SASL, ``bootstrap.servers``)."""

log = logging.getLogger("zkconsumer.member")


def no_endpoint_message(protocol: str) -> str:
    """The error text if ZooKeeper has no broker with an endpoint for this ``security.protocol``."""
    return (
        f"no broker is registered in ZooKeeper (/brokers/ids) with an endpoint for security.protocol={protocol}: start "
        "one, correct the chroot, or set security.protocol to what the brokers have"
    )


REGISTRATIONS_TIMEOUT_MS = 6_000
"""How long a client with ``bootstrap.servers`` waits for the brokers' registrations in ZooKeeper."""

REGISTRATIONS_MAX_AGE_MS = 60_000
"""How long it uses them, or goes on without them: less than ``api_versions_deny_list.ENTRY_TTL_MS``."""


@dataclass(frozen=True, slots=True)
class BrokerAccess:
    """``find_brokers`` blocks and raises ``UnavailableError``; ``bootstrap`` is None if brokers come from ZooKeeper."""

    connect: ConnectionFactory
    find_brokers: Callable[[], Sequence[BrokerAddress]]
    bootstrap: BootstrapBrokers | None
    diagnose: PortDiagnosis | None
    metadata_max_age_ms: int
    new_channel: ChannelFactory
    asks_versions: bool = True
    """``api.version.request``."""
    no_broker_message: str = NO_BROKER_REGISTERED
    """The error text if no broker is found."""

    @classmethod
    def from_config(
        cls,
        config: ConsumerConfig,
        store: ZkStore | None,
        lookup_timeout_ms: int,
        clock: Clock,
        *,
        connect: ConnectionFactory | None = None,
        oauth_token: Callable[[], str] | None = None,
    ) -> BrokerAccess:
        """Create it from a configuration; ``connect`` replaces its security.  Without ``store`` ZooKeeper is not used.

        Raises ``InvalidConfigException`` for certificates that cannot be read (see ``connection_factory_from_config``),
        and without a store where ``bootstrap.servers`` is missing; ``UnknownHostException`` if none of its host names
        has an address.
        """
        diagnose: PortDiagnosis | None = None
        is_real = connect is None
        new_channel: ChannelFactory = BrokerChannel
        if connect is None:
            secure = connection_factory_from_config(config, oauth_token, clock)
            connect, diagnose, new_channel = secure, secure.diagnose, secure.new_channel
        asks_versions = config.api_version_request
        if config.bootstrap_servers is not None:
            bootstrap = BootstrapBrokers(config.bootstrap_servers)
            if is_real:
                bootstrap.check()
            find: Callable[[], Sequence[BrokerAddress]] = bootstrap.brokers
            if store is not None:
                timeout_ms = min(lookup_timeout_ms, REGISTRATIONS_TIMEOUT_MS)
                find = RegisteredBootstrapBrokers(bootstrap, store, timeout_ms, config.security_protocol, clock).brokers
            return cls(
                connect, find, bootstrap, diagnose, config.metadata_max_age_ms, new_channel, asks_versions,
                NO_BOOTSTRAP_SERVER,
            )  # fmt: skip
        if store is None:
            raise InvalidConfigException(
                "bootstrap.servers is missing: set it; brokers are not read from ZooKeeper here"
            )
        directory = BrokerDirectory(
            store,
            lookup_timeout_ms,
            config.security_protocol,
            on_registered=API_VERSIONS_DENY_LIST.update_from_registration,
        )
        no_endpoint = no_endpoint_message(config.security_protocol)
        return cls(
            connect, directory.brokers, None, diagnose, config.metadata_max_age_ms, new_channel, asks_versions,
            no_endpoint,
        )  # fmt: skip

    def network_client(
        self, client_id: str, request_timeout_ms: int, updater: MetadataUpdater, clock: Clock
    ) -> NetworkClient:
        """Create a network client with connections of its own."""
        settings = NetworkSettings(client_id=client_id, request_timeout_ms=request_timeout_ms)
        return new_network_client(
            self.new_channel, updater, settings, clock, diagnose=self.diagnose, asks_versions=self.asks_versions
        )

    def bootstrap_client(self, client_id: str, timeout_ms: int, clock: Clock) -> BootstrapClient:
        """Create another client, for a separate thread."""
        return BootstrapClient(
            self.connect,
            self.find_brokers,
            client_id,
            timeout_ms,
            diagnose=self.diagnose,
            no_broker_message=self.no_broker_message,
            clock=clock,
        )


class RegisteredBootstrapBrokers:
    """The brokers of ``bootstrap.servers``, for a client that also has ZooKeeper.  For any thread.

    Before the client contacts them, it reads from their registrations which of them must not get ApiVersions
    (``api_versions_deny_list``): in a broker of 0.9 that request makes requests of other clients fail.  A registration
    may have another name for the address of a broker than ``bootstrap.servers``, so one broker of 0.9 is enough to add
    all configured addresses that no registration has.
    """

    def __init__(
        self, bootstrap: BootstrapBrokers, store: ZkStore, timeout_ms: int, protocol: str, clock: Clock
    ) -> None:
        self._bootstrap = bootstrap
        self._directory = BrokerDirectory(store, timeout_ms, protocol, on_registered=self._on_registered)
        self._clock = clock
        self._lock = threading.Lock()
        self._versions: dict[tuple[str, int], int] = {}
        """Address -> version of the registration, of the read that is under way or the last one."""
        self._read_at_ms: int | None = None
        """When the last read ended, successful or not; None: there was none."""

    def brokers(self) -> list[BrokerAddress]:
        """All of them.  Waits for ZooKeeper, at most for the timeout, and once in ``REGISTRATIONS_MAX_AGE_MS``."""
        with self._lock:
            now_ms = self._clock.now_ms()
            if self._read_at_ms is None or now_ms - self._read_at_ms >= REGISTRATIONS_MAX_AGE_MS:
                self._read()
                self._read_at_ms = self._clock.now_ms()
        return self._bootstrap.brokers()

    def _read(self) -> None:
        self._versions = {}
        try:
            self._directory.brokers()
        except UnavailableError:
            return  # a group that has moved goes on without ZooKeeper
        if REGISTRATION_VERSION_0_9 in self._versions.values():
            for broker in self._bootstrap.brokers():
                if (broker.host, broker.port) not in self._versions:
                    API_VERSIONS_DENY_LIST.add(broker.host, broker.port)

    def _on_registered(self, host: str, port: int, version: int) -> None:
        self._versions[host, port] = version
        API_VERSIONS_DENY_LIST.update_from_registration(host, port, version)


def check_brokers(brokers: BootstrapClient) -> None:
    """Send a request to one broker before the member registers: one that no broker accepts would block partitions.

    Raises the ``AuthenticationException`` of the broker.  Unavailable brokers are only logged; the member waits for
    them later.
    """
    try:
        brokers.execute(
            lambda connection, ranges, timeout_ms: fetch_leaders(connection, ranges, [], timeout_ms),
            total_timeout_ms=BROKER_CHECK_TIMEOUT_MS,
        )
    except NoBrokerAvailableError as error:
        if error.authentication_error is not None:
            raise error.authentication_error from error
        log.warning("brokers-unreachable reason=%r", str(error))
    except UnavailableError as error:
        log.warning("brokers-unreachable reason=%r", f"the brokers cannot be looked up: {error}")
