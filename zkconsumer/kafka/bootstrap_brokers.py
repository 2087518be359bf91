"""``BootstrapBrokers``: the brokers of ``bootstrap.servers``, and those that Kafka has told of since.

A cluster may be moved to other machines while a member runs: so the brokers of the last answer to Metadata are known as
well, and those of the setting are never forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.base.host_names import check_host_names
from zkconsumer.types import BrokerAddress

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_ID = -1
"""The id of a broker that is known by its address only."""


class BootstrapBrokers:
    """Every method may be called from any thread."""

    def __init__(self, servers: str) -> None:
        self._configured = tuple(_address(server) for server in servers.split(","))
        self._discovered: tuple[BrokerAddress, ...] = ()

    def check(self) -> None:
        """Raise ``UnknownHostException`` if none of the given host names has an address."""
        check_host_names("bootstrap.servers", [(broker.host, broker.port) for broker in self._configured])

    def brokers(self) -> list[BrokerAddress]:
        """All of them, each address once."""
        by_address = {(broker.host, broker.port): broker for broker in (*self._configured, *self._discovered)}
        return list(by_address.values())

    def update(self, brokers: Iterable[BrokerAddress]) -> None:
        """Kafka has told of these; they take the place of those that it told of before."""
        self._discovered = tuple(brokers)


def _address(server: str) -> BrokerAddress:
    host, _, port = server.rpartition(":")
    return BrokerAddress(NO_ID, host.strip("[]"), int(port))
