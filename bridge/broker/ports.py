"""The ports of a broker: every node listens at every listener, all of them bound before anything is served."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bridge.broker.listeners import WILDCARDS, BrokerListener
from bridge.broker.node import BrokerNode
from zkconsumer.errors import PreconditionFailed
from zkconsumer.types import BrokerAddress

BACKLOG = 1024
"""How many connections may wait until they are accepted."""


@dataclass(frozen=True, slots=True)
class ListeningPort:
    """One node at one listener."""

    node: BrokerNode
    listener: BrokerListener
    socket: socket.socket


def bind_ports(nodes: Iterable[BrokerNode], listeners: Sequence[BrokerListener]) -> list[ListeningPort]:
    """Bind them all, and set the address of each node.

    ``PreconditionFailed``: one is in use, or cannot be bound; then none is bound.
    """
    ports: list[ListeningPort] = []
    try:
        for number, node in enumerate(nodes):
            for listener in listeners:
                port = ListeningPort(node, listener.for_node(number), _listen(listener.for_node(number)))
                ports.append(port)
                node.addresses[listener.name] = _address(port)
    except BaseException:
        close_ports(ports)
        raise
    return ports


def close_ports(ports: Iterable[ListeningPort]) -> None:
    """Stop listening."""
    for port in ports:
        port.socket.close()


def _address(port: ListeningPort) -> BrokerAddress:
    listener = port.listener
    host = listener.advertised_host or (socket.gethostname() if listener.host in WILDCARDS else listener.host)
    return BrokerAddress(port.node.node_id, host, listener.advertised_port or int(port.socket.getsockname()[1]))


def _listen(listener: BrokerListener) -> socket.socket:
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    try:
        return socket.create_server((listener.host, listener.port), family=family, backlog=BACKLOG)
    except OSError as error:
        where = f"{listener.host or '*'}:{listener.port}"
        if error.errno == errno.EADDRINUSE:
            raise PreconditionFailed(
                f"port {listener.port} is in use ({where}); stop what listens there, or take another port (0: any)"
            ) from error
        raise PreconditionFailed(f"{where} cannot be listened at: {error.strerror or error}") from error
