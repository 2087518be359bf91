"""The addresses at which a broker listens, and those that it advertises: Kafka's ``listeners``.  Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from zkconsumer.config_def import mask_user
from zkconsumer.errors import UsageError
from zkconsumer.types import BrokerAddress

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PORT_MAX = 65_535

WILDCARDS = ("", "0.0.0.0", "::")
"""Hosts that mean every address of the machine, and that cannot be advertised."""

_LISTENER = re.compile(
    r"(?:(?P<name>[A-Za-z0-9_]+)=)?(?P<protocol>[A-Z_]+)://\[?(?P<host>[^\]/@]*)\]?:(?P<port>[0-9]{1,5})"
)
_ADVERTISED = re.compile(r"(?P<name>[A-Za-z0-9_]+)://\[?(?P<host>[^\]/@]+)\]?:(?P<port>[0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class BrokerListener:
    """One address to listen at.  Port 0: any free port.

    ``advertised_host`` "" and ``advertised_port`` 0: the same as the listening address.
    """

    name: str
    protocol: str
    host: str
    port: int
    advertised_host: str = ""
    advertised_port: int = 0

    @property
    def has_tls(self) -> bool:
        """Whether it uses TLS."""
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        """Whether clients must log in."""
        return self.protocol.startswith("SASL")

    def for_node(self, number: int) -> BrokerListener:
        """The same for another node of the process: ports count up from the first."""
        port = self.port + number if self.port else 0
        advertised = self.advertised_port + number if self.advertised_port else 0
        if max(port, advertised) > PORT_MAX:
            raise UsageError(f"node {number} would need port {max(port, advertised)}; take a lower first port")
        return replace(self, port=port, advertised_port=advertised)


def read_listener(text: str) -> BrokerListener:
    """``[NAME=]PROTOCOL://HOST:PORT``; without a name the protocol is the name."""
    found = _LISTENER.fullmatch(text)
    if found is None or found["protocol"] not in PROTOCOLS or int(found["port"]) > PORT_MAX:
        raise UsageError(
            f"{mask_user(text)!r} is not a listener: write PROTOCOL://HOST:PORT, or NAME=PROTOCOL://HOST:PORT, with a "
            f"protocol of {', '.join(PROTOCOLS)}"
        )
    return BrokerListener(found["name"] or found["protocol"], found["protocol"], found["host"], int(found["port"]))


def with_advertised(listeners: list[BrokerListener], texts: list[str]) -> list[BrokerListener]:
    """``NAME://HOST:PORT`` for each listener whose advertised address differs from its own."""
    check_listeners(listeners)
    by_name = {listener.name: listener for listener in listeners}
    for text in texts:
        found = _ADVERTISED.fullmatch(text)
        if found is None or found["name"] not in by_name or not 0 < int(found["port"]) <= PORT_MAX:
            raise UsageError(
                f"{mask_user(text)!r} is not a listener address: write NAME://HOST:PORT; the names are "
                f"{', '.join(by_name)}"
            )
        by_name[found["name"]] = replace(
            by_name[found["name"]], advertised_host=found["host"], advertised_port=int(found["port"])
        )
    return list(by_name.values())


def bootstrap_servers(addresses: Iterable[BrokerAddress]) -> str:
    """``HOST:PORT,…`` as clients accept it, with IPv6 addresses in brackets."""
    return ",".join(
        f"[{address.host}]:{address.port}" if ":" in address.host else f"{address.host}:{address.port}"
        for address in addresses
    )


def check_ports(listeners: Iterable[BrokerListener], nodes: int) -> None:
    """``UsageError``: two listeners of this broker have the same port; each needs a port for every node."""
    taken: dict[int, list[tuple[str, BrokerListener]]] = {}
    for number in range(nodes):
        for listener in listeners:
            wanted = listener.for_node(number)
            words = f"listener {listener.name} of node {number}"
            for other_words, other in taken.get(wanted.port, ()) if wanted.port else ():
                if wanted.host == other.host or {wanted.host, other.host} & {*WILDCARDS}:
                    raise UsageError(
                        f"{other_words} and {words} would both listen at port {wanted.port}: each listener takes a "
                        f"port for every node, so keep first ports {nodes} apart"
                    )
            taken.setdefault(wanted.port, []).append((words, wanted))


def check_listeners(listeners: list[BrokerListener]) -> None:
    """``UsageError``: two have the same name."""
    names = [listener.name for listener in listeners]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two listeners are called {name}; name them: NAME=PROTOCOL://HOST:PORT")
