"""Where a broker listens, and where clients are told that it does: Kafka's ``listeners``.  Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from zkconsumer.errors import UsageError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PORT_MAX = 65_535

_LISTENER = re.compile(
    r"(?:(?P<name>[A-Za-z0-9_]+)=)?(?P<protocol>[A-Z_]+)://\[?(?P<host>[^\]/]*)\]?:(?P<port>[0-9]{1,5})"
)
_ADVERTISED = re.compile(r"(?P<name>[A-Za-z0-9_]+)://\[?(?P<host>[^\]/]+)\]?:(?P<port>[0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class Listener:
    """One place to listen at.  Port 0: any that is free.

    ``advertised_host`` "" and ``advertised_port`` 0: as it listens.
    """

    name: str
    protocol: str
    host: str
    port: int
    advertised_host: str = ""
    advertised_port: int = 0

    @property
    def has_tls(self) -> bool:
        """Whether it speaks TLS."""
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        """Whether clients must log in."""
        return self.protocol.startswith("SASL")

    def of_node(self, number: int) -> Listener:
        """The same for another node of the process: ports count up from the first."""
        port = self.port + number if self.port else 0
        advertised = self.advertised_port + number if self.advertised_port else 0
        if max(port, advertised) > PORT_MAX:
            raise UsageError(f"node {number} would need port {max(port, advertised)}; take a lower first port")
        return replace(self, port=port, advertised_port=advertised)


def read_listener(text: str) -> Listener:
    """``[NAME=]PROTOCOL://HOST:PORT``; without a name the protocol is the name."""
    found = _LISTENER.fullmatch(text)
    if found is None or found["protocol"] not in PROTOCOLS or int(found["port"]) > PORT_MAX:
        raise UsageError(
            f"{text!r} is no listener: write PROTOCOL://HOST:PORT, or NAME=PROTOCOL://HOST:PORT, with a protocol of "
            f"{', '.join(PROTOCOLS)}"
        )
    return Listener(found["name"] or found["protocol"], found["protocol"], found["host"], int(found["port"]))


def with_advertised(listeners: list[Listener], texts: list[str]) -> list[Listener]:
    """``NAME://HOST:PORT`` for each listener whose clients are told another address than that it listens at."""
    check_listeners(listeners)
    told = {listener.name: listener for listener in listeners}
    for text in texts:
        found = _ADVERTISED.fullmatch(text)
        if found is None or found["name"] not in told or not 0 < int(found["port"]) <= PORT_MAX:
            raise UsageError(
                f"{text!r} is no address of a listener: write NAME://HOST:PORT; there are {', '.join(told)}"
            )
        told[found["name"]] = replace(
            told[found["name"]], advertised_host=found["host"], advertised_port=int(found["port"])
        )
    return list(told.values())


def check_listeners(listeners: list[Listener]) -> None:
    """``UsageError``: two have the same name."""
    names = [listener.name for listener in listeners]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two listeners are called {name}; name them: NAME=PROTOCOL://HOST:PORT")
