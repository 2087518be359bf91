"""What hundreds of connectors leave in one process: a program, and how tests run and judge it.

Makes one connector after the other in one process, and says what each left behind.

    python -m tests.connector_leak_program COUNT [ZOOKEEPER TOPIC RECORDS]

Each creates streams, reads so many records and is closed; without a ZooKeeper on a world in memory.  Prints a JSON
line after connector ``EARLY`` and after the last: threads, descriptors, resident kilobytes, loggers, and how many
objects of the package's types are alive.  A process of its own, so that nothing else moves these numbers.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bridge.testing.fake_environment import FakeEnvironment
from zkconsumer import ConsumerConfig, ZookeeperConsumerConnector
from zkconsumer.base.threads import live_threads

ROOT = Path(__file__).parent.parent
COUNT = 200
EARLY = 20
GROWTH_KB_MAX = 5 * 1024
TIMEOUT_S = 240
PATIENCE_MS = 10_000
SETTLE_S, SETTLE_POLL_S = 10, 0.2
PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024

OF_THE_FAKES = ("zkconsumer.testing.", "zkconsumer.wire.schemas.")
"""What they log."""

Make = Callable[[str], ZookeeperConsumerConnector]


def run(*place: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What there is after ``EARLY`` connectors, and after ``COUNT``."""
    words = [sys.executable, "-m", "tests.connector_leak_program", str(COUNT), *place]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            words,
            cwd=ROOT,
            env={**os.environ, "XDG_RUNTIME_DIR": folder},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    early, late = map(json.loads, done.stdout.splitlines())
    return early, late


def check(early: dict[str, Any], late: dict[str, Any]) -> None:
    """Nothing may have become more but a little memory (the heap settles; the fakes keep a log)."""
    growth_kb = late.pop("rss_kb") - early.pop("rss_kb")
    other = {name: (early[name], late[name]) for name in late if early[name] != late[name]}
    assert not other, f"after {EARLY} connectors and after {COUNT}: {other}"
    assert growth_kb <= GROWTH_KB_MAX, f"{COUNT} connectors took {growth_kb} kB"


def left_behind() -> dict[str, Any]:
    """What a connector may have left, once nobody refers to it."""
    gc.collect()
    kinds = Counter(
        f"{type(each).__module__}.{type(each).__qualname__}"
        for each in gc.get_objects()
        if type(each).__module__.startswith(("zkconsumer.", "kazoo.", "prometheus_client.", "re2"))
        and not type(each).__module__.startswith(OF_THE_FAKES)
    )
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[1])
    return {
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "ours": live_threads(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "loggers": len(logging.root.manager.loggerDict),
        "objects": dict(kinds),
        "rss_kb": pages * PAGE_KB,
    }


def settled() -> dict[str, Any]:
    """What is left when nothing ends any more: on a busy machine a thread may end some time after ``close``."""
    before, now = {}, left_behind()
    deadline = time.monotonic() + SETTLE_S
    while before != now and time.monotonic() < deadline:
        time.sleep(SETTLE_POLL_S)
        before, now = {**now, "rss_kb": 0}, left_behind()
        before["rss_kb"] = now["rss_kb"]
    return now


def use(make: Make, number: int, topic: str, records: int) -> None:
    """The life of one connector."""
    with make(f"many-{number}") as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        for _ in range(records):
            next(stream.iterator())
        connector.commit_offsets()


def settings(group: str) -> dict[str, Any]:
    return {
        "group_id": group,
        "auto_offset_reset": "smallest",
        "consumer_timeout_ms": PATIENCE_MS,
        "health_socket": "auto",
    }


def in_memory() -> tuple[Make, str, int]:
    world = FakeEnvironment(brokers=2)
    world.create_topic("t", 2)
    for partition in range(2):
        world.cluster.append("t", partition, [b"x" * 100] * 10)

    def make(group: str) -> ZookeeperConsumerConnector:
        world.connectors.clear()
        world.stores.clear()
        return world.connector(**settings(group))

    return make, "t", 20


def on_servers(zookeeper: str) -> Make:
    return lambda group: ZookeeperConsumerConnector(ConsumerConfig(zookeeper_connect=zookeeper, **settings(group)))


def main() -> None:
    count = int(sys.argv[1])
    if len(sys.argv) > 2:
        make, topic, records = on_servers(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    else:
        make, topic, records = in_memory()
    for number in range(1, count + 1):
        use(make, number, topic, records)
        if number in (EARLY, count):
            print(json.dumps(settled()), flush=True)


if __name__ == "__main__":
    main()
