"""``BootstrapBrokers``: the brokers of ``bootstrap.servers``, and those of the latest Metadata response.

A cluster may move to other machines while a member runs, so the brokers of the latest Metadata response are used as
well.  Those of the setting are never removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.base.host_names import check_host_names
from zkconsumer.types import BrokerAddress

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_ID = -1
"""The id of a broker of which only the address is known."""


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
        """Set the brokers of the latest Metadata response; they replace those of the response before."""
        self._discovered = tuple(brokers)


def _address(server: str) -> BrokerAddress:
    host, _, port = server.rpartition(":")
    return BrokerAddress(NO_ID, host.strip("[]"), int(port))
