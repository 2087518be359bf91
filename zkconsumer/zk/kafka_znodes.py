"""What brokers write: who they are, which partitions a topic has, who leads one.  Pure.

None of these is ours to repair, and one bad topic must not stop the others: a topic that cannot be read is a topic
without partitions that says why; a broker that cannot be spoken to is a broker without an address that says why.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from zkconsumer.errors import MalformedZnode
from zkconsumer.types import BrokerAddress
from zkconsumer.zk.java_json import JavaJsonError, Json, JsonReaderKind, is_int32, read_object
from zkconsumer.zk.paths import PARTITION_MAX

# As 0.10.2 and later; the earlier ones know fewer characters of a host name.
_ENDPOINT = re.compile(r"(?P<listener>.*)://\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>-?[0-9]+)", re.ASCII)
_INT = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
PORT_MAX = 65_535

PLAINTEXT = "PLAINTEXT"
PROTOCOLS = frozenset({PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL"})


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A broker's registration.

    ``addresses``: security protocol -> the first address that speaks it.  The original speaks PLAINTEXT only, and one
    broker without it fails *all* of them there.  ``registered`` is what stands in the node, for error texts.
    """

    broker_id: int
    version: int
    addresses: Mapping[str, BrokerAddress]
    endpoints_text: str
    rack: str | None = None

    def address(self, protocol: str) -> BrokerAddress | None:
        """Where the broker speaks this protocol; None: nowhere."""
        return self.addresses.get(protocol)

    def missing_endpoint_message(self, protocol: str) -> str:
        """Why there is no address for this protocol."""
        return f"no {protocol} endpoint among {self.endpoints_text}"


@dataclass(frozen=True, slots=True)
class TopicZnode:
    """A topic's partition numbers, ascending.  ``problem`` is not empty when the node could not be read."""

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
    """Read ``/brokers/ids/N``, written by any release.  Raises ``MalformedZnode`` when it is not even an object."""

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
    """Read ``/brokers/topics/T``.  Raises nothing: what cannot be read has no partitions and a problem."""
    try:
        return read_object(data, _topic)
    except MalformedZnode as exc:
        return TopicZnode((), str(exc))


def parse_partition_state(data: bytes) -> LeaderIsrAndControllerEpoch:
    """Read ``/brokers/topics/T/partitions/P/state``.  Raises ``MalformedZnode``."""
    return read_object(data, _partition_state)


# --- brokers ----------------------------------------------------------------------------------------------------


def _addresses(broker_id: int, members: dict[str, Json], version: int) -> dict[str, BrokerAddress]:
    """The first address of each protocol.  Version 1 has host and port; 0.8.x reads those of later ones too."""
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
        # Without a map the listener's name is the protocol; in a map that is there, every listener must be found.
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
        return TopicZnode((), "no partitions in it")
    if not isinstance(partitions, dict):
        raise JavaJsonError("partitions is no JSON object")
    numbers = set()
    for name in partitions:
        if _INT.fullmatch(name) is None or not 0 <= int(name) <= PARTITION_MAX:
            raise JavaJsonError(f"{name[:40]!r} is no partition number")
        numbers.add(int(name))
    return TopicZnode(tuple(sorted(numbers)))


def _partition_state(members: dict[str, Json], reader: JsonReaderKind) -> LeaderIsrAndControllerEpoch:
    isr = members.get("isr")
    if not isinstance(isr, list):
        raise JavaJsonError("isr is no JSON array")
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
    raise JavaJsonError(f"{key} is no int32")
