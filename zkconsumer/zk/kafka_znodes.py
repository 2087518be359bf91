"""Parses the znodes that brokers write: broker registrations, topics, partition states.  Pure.

This project never repairs these znodes, and one invalid topic must not stop the others.  So an invalid topic has no
partitions and an error text, and a broker without a usable address has a text that explains it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from zkconsumer.errors import MalformedZnode
from zkconsumer.types import BrokerAddress
from zkconsumer.zk.java_json import JavaJsonError, Json, JsonReaderKind, is_int32, read_object
from zkconsumer.zk.paths import PARTITION_MAX

# The pattern of 0.10.2 and later; earlier releases accept fewer characters in a host name.
_ENDPOINT = re.compile(r"(?P<listener>.*)://\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>-?[0-9]+)", re.ASCII)
_INT = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
PORT_MAX = 65_535

PLAINTEXT = "PLAINTEXT"
PROTOCOLS = frozenset({PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL"})


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A broker's registration.

    ``addresses``: security protocol -> the first address with this protocol.  (The Scala consumer supports only
    PLAINTEXT, and fails for *all* brokers when one has no such address.)  ``endpoints_text``: the addresses in the
    znode, as text for error messages.
    """

    broker_id: int
    version: int
    addresses: Mapping[str, BrokerAddress]
    endpoints_text: str
    rack: str | None = None

    def address(self, protocol: str) -> BrokerAddress | None:
        """The broker's address for this security protocol; None without one."""
        return self.addresses.get(protocol)

    def missing_endpoint_message(self, protocol: str) -> str:
        """Why there is no address for this protocol."""
        return f"no {protocol} endpoint among {self.endpoints_text}"


@dataclass(frozen=True, slots=True)
class TopicZnode:
    """A topic's partition numbers, ascending.  ``error``: why the znode could not be parsed, or ""."""

    partitions: tuple[int, ...]
    error: str = ""


@dataclass(frozen=True, slots=True)
class LeaderIsrAndControllerEpoch:
    """The leader of a partition; -1: no leader.  For tools: the consumer reads leaders from brokers."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int


def parse_broker(broker_id: int, data: bytes) -> BrokerRegistration:
    """Parse ``/brokers/ids/N`` of any release.  Raises ``MalformedZnode`` when it is not a JSON object."""

    def decode(members: dict[str, Json], reader: JsonReaderKind) -> BrokerRegistration:
        version, rack = members.get("version"), members.get("rack")
        number = version if isinstance(version, int) and is_int32(version) else 1
        return BrokerRegistration(
            broker_id,
            number,
            _addresses(broker_id, members, number),
            _registered(members, number),
            rack if isinstance(rack, str) else None,
        )

    return read_object(data, decode)


def parse_topic(data: bytes) -> TopicZnode:
    """Parse ``/brokers/topics/T``.  Raises nothing: the result for an invalid znode has no partitions and an error."""
    try:
        return read_object(data, _topic)
    except MalformedZnode as exc:
        return TopicZnode((), str(exc))


def parse_partition_state(data: bytes) -> LeaderIsrAndControllerEpoch:
    """Parse ``/brokers/topics/T/partitions/P/state``.  Raises ``MalformedZnode``."""
    return read_object(data, _partition_state)


# --- brokers ----------------------------------------------------------------------------------------------------


def _addresses(broker_id: int, members: dict[str, Json], version: int) -> dict[str, BrokerAddress]:
    """The first address of each protocol.  Version 1 has only host and port, which 0.8.x reads in all versions."""
    endpoints = members.get("endpoints")
    found: dict[str, BrokerAddress] = {}
    if version >= 2 and isinstance(endpoints, list):
        found = _of_endpoints(broker_id, endpoints, members.get("listener_security_protocol_map"))
    host, port = members.get("host"), members.get("port")
    if isinstance(host, str) and host and isinstance(port, int) and is_int32(port) and 0 < port <= PORT_MAX:
        found.setdefault(PLAINTEXT, BrokerAddress(broker_id, host, port))
    return found


def _of_endpoints(broker_id: int, endpoints: list[Json], protocols: Json) -> dict[str, BrokerAddress]:
    by_listener = {
        listener.upper(): protocol.upper()
        for listener, protocol in (protocols if isinstance(protocols, dict) else {}).items()
        if isinstance(protocol, str)
    }
    found: dict[str, BrokerAddress] = {}
    for endpoint in endpoints:
        parts = _ENDPOINT.fullmatch(endpoint) if isinstance(endpoint, str) else None
        if parts is None:
            continue
        listener = parts["listener"].upper()
        # Without a map the listener's name is the protocol; a listener that the map does not contain is ignored.
        protocol = by_listener.get(listener, "") if isinstance(protocols, dict) else listener
        port = int(parts["port"]) if len(parts["port"]) <= 5 else 0
        if protocol in PROTOCOLS and parts["host"] and 0 < port <= PORT_MAX:
            found.setdefault(protocol, BrokerAddress(broker_id, parts["host"], port))
    return found


def _registered(members: dict[str, Json], version: int) -> str:
    """A short text of the addresses in the znode."""
    endpoints = members.get("endpoints")
    if version >= 2 and isinstance(endpoints, list):
        protocols = members.get("listener_security_protocol_map")
        mapped = f" with {str(protocols)[:200]}" if isinstance(protocols, dict) else ""
        return f"{str(endpoints)[:200]}{mapped}"
    host, port = members.get("host"), members.get("port")
    return f"host {str(host)[:100]!r} and port {str(port)[:20]!r} of version {version}"


# --- topics -----------------------------------------------------------------------------------------------------


def _topic(members: dict[str, Json], reader: JsonReaderKind) -> TopicZnode:
    partitions = members.get("partitions")
    if partitions is None:
        return TopicZnode((), "it contains no partitions")
    if not isinstance(partitions, dict):
        raise JavaJsonError("partitions is not a JSON object")
    numbers = set()
    for name in partitions:
        if _INT.fullmatch(name) is None or not 0 <= int(name) <= PARTITION_MAX:
            raise JavaJsonError(f"{name[:40]!r} is not a partition number")
        numbers.add(int(name))
    return TopicZnode(tuple(sorted(numbers)))


def _partition_state(members: dict[str, Json], reader: JsonReaderKind) -> LeaderIsrAndControllerEpoch:
    isr = members.get("isr")
    if not isinstance(isr, list):
        raise JavaJsonError("isr is not a JSON array")
    return LeaderIsrAndControllerEpoch(
        _int(members, "leader"),
        _int(members, "leader_epoch"),
        tuple(_as_int("isr", replica) for replica in isr),
        _int(members, "controller_epoch"),
    )


def _int(members: dict[str, Json], key: str) -> int:
    return _as_int(key, members.get(key))


def _as_int(key: str, value: Json) -> int:
    if isinstance(value, int) and is_int32(value):
        return value
    raise JavaJsonError(f"{key} is not an int32")
