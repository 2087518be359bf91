"""The process that ``bench/rebalance.py --processes`` starts: one member, or the broker of all members.

    python rebalance_member.py member '{"group_id": ..., "topic": ...}'
    python rebalance_member.py broker '{"topic": ..., "partitions": ...}'

The first line on standard output is JSON: the broker's id, host and port, or ``{"package": path}`` of a member that is
ready.  Then it reads commands from standard input, one on each line, and answers each with a line of JSON:

    join       begin to join the group; answered at once
    figures    {"cpu_s": processor time of this process so far, "packets": requests to ZooKeeper so far}
    leave      leave the group; answered when the member has left; then the process ends
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import zkconsumer
from bridge.testing.fake_cluster import FakeCluster
from zkconsumer.config import ConsumerConfig
from zkconsumer.connector import ZookeeperConsumerConnector


def tell(value: object) -> None:
    """One line."""
    print(json.dumps(value), flush=True)


def broker(settings: dict[str, Any]) -> None:
    """A broker in memory with a real port, for all members; no records are read from it."""
    cluster = FakeCluster(brokers=[1])
    cluster.create_topic(settings["topic"], settings["partitions"])
    with cluster.serve():
        tell(list(cluster.address(1)))
        sys.stdin.read()


def member(settings: dict[str, Any]) -> None:
    """Execute the commands in their order."""
    topic = settings.pop("topic")
    connector: ZookeeperConsumerConnector | None = None
    tell({"package": zkconsumer.__file__})
    for line in sys.stdin:
        match line.strip():
            case "join":
                connector = ZookeeperConsumerConnector(ConsumerConfig(**settings))
                connector.create_message_streams({topic: 1})
                tell({})
            case "figures":
                packets = 0 if connector is None else connector.store.packets_sent
                tell({"cpu_s": time.process_time(), "packets": packets})
            case "leave":
                if connector is not None:
                    connector.close()
                tell({})
                return
            case word:
                raise SystemExit(f"unknown command: {word!r}")


if __name__ == "__main__":
    {"broker": broker, "member": member}[sys.argv[1]](json.loads(sys.argv[2]))
