"""Resolves the names of hosts (IO): ``client.dns.lookup`` of Kafka's clients.

``use_all_dns_ips`` (the default since 2.6): a name means all of its addresses, which are tried in turn.
``resolve_canonical_bootstrap_servers_only`` (2.1): each address of a bootstrap server is replaced by its canonical
name, which Kerberos needs behind an alias; all other names are used as with ``use_all_dns_ips``.

Difference from Java, which uses only the addresses of the family of the first one: the addresses of both families are
used, IPv4 first, so a broker that listens on one of them is found.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import TypeAlias

from zkconsumer.errors import UnknownHostException

USE_ALL_DNS_IPS = "use_all_dns_ips"
RESOLVE_CANONICAL_BOOTSTRAP_SERVERS_ONLY = "resolve_canonical_bootstrap_servers_only"

HostResolver: TypeAlias = Callable[[str], tuple[str, ...]]
"""Host name -> its IP addresses, at least one.  ``OSError`` or
``UnicodeError``: it has none, or the resolver does not answer."""

CanonicalNameLookup: TypeAlias = Callable[[str], str]
"""IP address -> its canonical host name, or the address if it has none."""


def resolve_host(host: str) -> tuple[str, ...]:
    """A ``HostResolver`` that asks the system; IPv4 addresses first.  It may block for seconds."""
    if not host:
        raise socket.gaierror(socket.EAI_NONAME, "an empty name has no address")
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return preferred_addresses(str(address[0]) for *_, address in found)


def preferred_addresses(addresses: Iterable[str]) -> tuple[str, ...]:
    """Each address once: those of IPv4 first, otherwise in the order of the resolver."""
    return tuple(sorted(dict.fromkeys(addresses), key=lambda address: ":" in address))


def canonical_name(address: str) -> str:
    """A ``CanonicalNameLookup`` that asks the system."""
    return socket.getnameinfo((address, 0), 0)[0]


def bootstrap_addresses(
    servers: Iterable[tuple[str, int]],
    client_dns_lookup: str = USE_ALL_DNS_IPS,
    *,
    resolve: HostResolver = resolve_host,
    look_up_canonical_name: CanonicalNameLookup = canonical_name,
) -> list[tuple[str, int]]:
    """The hosts and ports at which to bootstrap (Java's ``ClientUtils.parseAndValidateAddresses``).

    A server whose name has no address is left out.  ``UnknownHostException``: all of them are.
    """
    usable: list[tuple[str, int]] = []
    reasons = []
    for host, port in servers:
        try:
            addresses = resolve(host)
        except (OSError, UnicodeError) as error:  # UnicodeError: a label that IDNA does not allow
            reasons.append(f"{host}: {error}")
            continue
        if client_dns_lookup == RESOLVE_CANONICAL_BOOTSTRAP_SERVERS_ONLY:
            usable += [(look_up_canonical_name(address), port) for address in addresses]
        else:
            usable.append((host, port))
    if not usable:
        raise UnknownHostException(f"bootstrap.servers has no name with an address ({'; '.join(reasons)})")
    return list(dict.fromkeys(usable))
