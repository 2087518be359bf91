"""Checks host names that a user wrote.

``check_host_names`` checks before the first connection that a host name of a setting has an address.  Without any
address the start fails, as in Kafka's clients ("No resolvable bootstrap urls").  Later a missing address is no error,
because DNS may fail for a moment: the connection is tried again.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable

from zkconsumer.errors import UnknownHostException


def check_host_names(setting: str, addresses: Iterable[tuple[str, int]]) -> None:
    """Raise ``UnknownHostException`` if none of these hosts has an address; one host with an address is enough."""
    failed: dict[str, str] = {}
    for host, port in addresses:
        try:
            socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            failed[host] = error.strerror or str(error)
        except UnicodeError as error:  # a label that IDNA does not allow: empty, or longer than 63 characters
            failed[host] = str(error)
        else:
            return
    if failed:
        names = ", ".join(f"{host} ({why})" for host, why in failed.items())
        raise UnknownHostException(
            f"no host of {setting} has an address: {names}; correct the host name, or DNS on this machine"
        )


def possible_hosts(addresses: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """The addresses whose names a host can have: no label is empty, or longer than 63 characters; all, if none can."""
    given = tuple(addresses)
    return tuple(address for address in given if _is_possible(address[0])) or given


def _is_possible(host: str) -> bool:
    try:
        host.encode("idna")  # as ``getaddrinfo`` does
    except UnicodeError:
        return False
    return True
