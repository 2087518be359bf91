"""Parses ``zookeeper.connect``, for example ``h1:2181,h2:2181/kafka/x``.  Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from zkconsumer.errors import InvalidConfigException, InvalidNameError
from zkconsumer.zk.requests import check_path

DEFAULT_PORT = 2181
PORT_MAX = 65_535

_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.%]+)\]|(?P<name>[^\s:/\[\]@]+))(?::(?P<port>[0-9]{1,5}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ConnectString:
    """The servers (host, port), and the chroot: the path that prefixes every path of this client ("": none)."""

    hosts: tuple[tuple[str, int], ...]
    chroot: str = ""

    @property
    def addresses(self) -> str:
        """The servers as text, each with its port: ``h1:2181,h2:2181``."""
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)

    def __str__(self) -> str:
        return self.addresses + self.chroot


def parse_connect(text: str) -> ConnectString:
    """Parse the setting; the default port is 2181.  Raises ``InvalidConfigException`` that names the invalid part."""
    servers, slash, rest = text.partition("/")
    chroot = slash + rest if rest else ""
    try:
        check_path(chroot or "/")
    except InvalidNameError as exc:
        raise InvalidConfigException(f"zookeeper.connect: {chroot!r} cannot be a chroot") from exc
    return ConnectString(tuple(_host(server.strip()) for server in servers.split(",")), chroot)


def _host(server: str) -> tuple[str, int]:
    found = _HOST.fullmatch(server)
    port = int(found["port"] or DEFAULT_PORT) if found else 0
    if found is None or not 0 < port <= PORT_MAX:
        raise InvalidConfigException(f"zookeeper.connect: {server!r} is not host:port")
    return found["v6"] or found["name"], port
