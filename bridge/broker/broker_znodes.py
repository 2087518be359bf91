"""The broker's znodes, as brokers of the emulated release write them.  Pure.

/brokers/ids/N                        the addresses of a broker (ephemeral)
/brokers/topics/T                     the partitions, and their replicas
/brokers/topics/T/partitions/P/state  the leader of partition P
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from bridge.broker.listeners import BrokerListener
from bridge.broker.topic_store import BrokerTopic
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.zk import paths

CONTROLLER_EPOCH = 1


def broker_znode_data(
    listeners: Iterable[BrokerListener], addresses: Mapping[str, BrokerAddress], release: tuple[int, ...], wall_ms: int
) -> bytes:
    """The data of ``/brokers/ids/N``: version 2 in 0.9, 4 with a map of listeners to protocols from 0.10.2 on.

    ``host`` and ``port`` are those of the first PLAINTEXT listener; null and -1 without one.
    """
    rows = [(listener, addresses[listener.name]) for listener in listeners]
    plain = next((address for listener, address in rows if listener.protocol == "PLAINTEXT"), None)
    has_map = release >= (0, 10, 2)
    node = {
        "endpoints": [
            f"{listener.name if has_map else listener.protocol}://{_host(address.host)}:{address.port}"
            for listener, address in rows
        ],
        "jmx_port": -1,
        "host": None if plain is None else plain.host,
        "timestamp": str(wall_ms),
        "port": -1 if plain is None else plain.port,
        "version": 4 if has_map else 2,
    }
    if has_map:
        node = {"listener_security_protocol_map": {listener.name: listener.protocol for listener, _ in rows}, **node}
    return _json(node)


def topic_znodes(topics: Iterable[BrokerTopic]) -> dict[str, bytes]:
    """Path → data, parents before children."""
    nodes: dict[str, bytes] = {}
    for topic in topics:
        replicas = {str(partition.index): list(partition.replicas) for partition in topic.partitions}
        nodes[paths.topic(topic.name)] = _json({"version": 1, "partitions": replicas})
        nodes[f"{paths.topic(topic.name)}/partitions"] = b""
        for partition in topic.partitions:
            state = paths.partition_state(TopicPartition(topic.name, partition.index))
            nodes[state.removesuffix("/state")] = b""
            nodes[state] = _json(
                {
                    "controller_epoch": CONTROLLER_EPOCH,
                    "leader": partition.leader,
                    "version": 1,
                    "leader_epoch": partition.leader_epoch,
                    "isr": list(partition.replicas),
                }
            )
    return nodes


def with_parents(wanted: Iterable[str]) -> list[str]:
    """Each path and its parents, parents first, each once."""
    return list(dict.fromkeys(path for leaf in wanted for path in [*paths.parents(leaf), leaf]))


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
