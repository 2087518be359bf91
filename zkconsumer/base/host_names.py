"""Names that a person wrote: host names without an address, and names that are nearly right.

``check_host_names`` checks, before anything is connected, that the host names of a setting have addresses.

A connection that is retried cannot report a wrong name at once: a name may be missing for a moment.  At the start it is
an error at once, as in Kafka's own clients ("No resolvable bootstrap urls").
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterable
from difflib import get_close_matches

from zkconsumer.errors import UnknownHostException


def check_host_names(setting: str, addresses: Iterable[tuple[str, int]]) -> None:
    """Raise ``UnknownHostException`` if no host of these has an address; one that has is enough."""
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


def near_name(name: str, known: Collection[str]) -> str:
    """`` (did you mean NAME?)`` with the known name that is nearest to a wrong one; empty if none is near."""
    near = get_close_matches(name, known, 1)
    return f" (did you mean {near[0]}?)" if near else ""
