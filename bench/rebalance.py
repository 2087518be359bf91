"""How long a group is without full cover when a member joins or leaves, and what it costs in ZooKeeper packets.

    python bench/rebalance.py --members 8 --partitions 64 --rounds 20 [--scala 1.1.1] [--write]
    python bench/rebalance.py --repeats --changes 200 [--scala 1.1.1] [--write]

On a real ZooKeeper (fetched by Maven); brokers are in memory, because nothing is read.  A *join* is counted from the
call that joins, a *leave* from the call that leaves, both to the moment when every partition has an owner node again
and the owners are those of the new assignment.  With ``--scala`` original members do the same in turn (a join there
is counted from the new registration, since a JVM takes seconds to start).

``--repeats`` counts instead which records are read twice when members of both kinds join and leave cleanly, on a real
broker of the release of the Scala members (``rebalance_repeats``): 2 + 2 members, 8 partitions, 400 records/s.
``--changes`` are those of all its runs together.

``--write`` puts the table into migration_docs/reference/rebalance.md, and leaves the other table there as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rebalance_repeats import REPEATS_TITLE, repeats_section

from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.config import ConsumerConfig
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.testing.fake_cluster import FakeCluster
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.kazoo_store import KazooStore
from zkconsumer.zk.requests import Children, ChildrenOf, GetMany, Node
from zkconsumer.zk.store import call
from zkconsumer.zk.znodes import consumer_of, parse_owner

GROUP, TOPIC = "bench", "bench"
DEADLINE_MS = 60_000
LOOK_MS = 2
PAGE = Path(__file__).resolve().parent.parent / "migration_docs" / "reference" / "rebalance.md"


@dataclass
class Figures:
    """What was measured of one kind of member: ms, and packets a rebalance."""

    who: str
    join_ms: list[float] = field(default_factory=list)
    leave_ms: list[float] = field(default_factory=list)
    joiner_packets: list[int] = field(default_factory=list)
    others_packets: list[int] = field(default_factory=list)

    def row(self) -> str:
        """One line of the table."""

        def spread(values: list[float] | list[int]) -> str:
            if not values:
                return "-"
            return f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})"

        cells = [self.join_ms, self.leave_ms, self.joiner_packets, self.others_packets]
        return f"| {self.who} | " + " | ".join(spread(cell) for cell in cells) + " |"


class Watcher:
    """Looks at the owner nodes from outside, with a session of its own."""

    def __init__(self, address: str, partitions: int) -> None:
        self._store = KazooStore(address, 10_000)
        self._store.listen(lambda _: None)
        self._store.start(10_000)
        self._partitions = [TopicPartition(TOPIC, number) for number in range(partitions)]

    def members(self) -> list[str]:
        """The registered ids."""
        [listed] = call(self._store, [Children(paths.ids(GROUP))], 10_000)
        return sorted(listed.names) if isinstance(listed, ChildrenOf) else []

    def counts(self) -> dict[str, int]:
        """How many partitions each member owns."""
        [nodes] = call(self._store, [GetMany(tuple(paths.owner(GROUP, tp) for tp in self._partitions))], 10_000)
        assert isinstance(nodes, list)
        counts: dict[str, int] = {}
        for node in nodes:
            if isinstance(node, Node):
                member = consumer_of(parse_owner(node.data))
                counts[member] = counts.get(member, 0) + 1
        return counts

    def is_covered(self, members: int) -> bool:
        """Every partition is owned, each by one of so many members, and each has its range share."""
        counts = self.counts()
        share, more = divmod(len(self._partitions), members)
        wanted = sorted([share + 1] * more + [share] * (members - more))
        return sorted(counts.values()) == wanted

    def wait_covered(self, members: int, since_ms: int) -> float:
        """Milliseconds from ``since_ms`` to full cover."""
        wait_until(lambda: self.is_covered(members), f"{members} members cover {TOPIC}")
        return SYSTEM_CLOCK.now_ms() - since_ms

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close(2_000)


def registration_of(broker: BrokerAddress) -> bytes:
    """What a broker of 0.8 writes about itself."""
    fields = {"jmx_port": -1, "timestamp": "0", "host": broker.host, "version": 1, "port": broker.port}
    return json.dumps(fields).encode()


def wait_until(holds: Callable[[], bool], what: str) -> None:
    pause = threading.Event()
    deadline_ms = SYSTEM_CLOCK.now_ms() + DEADLINE_MS
    while not holds():
        if SYSTEM_CLOCK.now_ms() > deadline_ms:
            raise SystemExit(f"not within {DEADLINE_MS} ms: {what}")
        pause.wait(LOOK_MS / 1000)


def wait_quiet(connectors: list[ZookeeperConsumerConnector]) -> None:
    """Until nobody but the probes sends anything (those come once a second)."""
    pause = threading.Event()
    while True:
        before = [connector.store.packets_sent for connector in connectors]
        pause.wait(0.7)
        if all(c.store.packets_sent - b <= 1 for c, b in zip(connectors, before, strict=True)):
            return


def measure_ours(address: str, cluster: FakeCluster, watcher: Watcher, members: int, rounds: int) -> Figures:
    """``rounds`` joins and leaves of one member, the others staying."""
    figures = Figures(f"zkconsumer, {members} members")
    config = {"group_id": GROUP, "zookeeper_connect": address, "zookeeper_session_timeout_ms": 6000}

    def join() -> ZookeeperConsumerConnector:
        connector = ZookeeperConsumerConnector(ConsumerConfig(**config), connect=cluster.connect)
        connector.create_message_streams({TOPIC: 1})
        return connector

    connectors = [join() for _ in range(members - 1)]
    try:
        watcher.wait_covered(members - 1, SYSTEM_CLOCK.now_ms())
        for number in range(rounds):
            wait_quiet(connectors)
            before = [connector.store.packets_sent for connector in connectors]
            start_ms = SYSTEM_CLOCK.now_ms()
            joiner = join()
            figures.join_ms.append(watcher.wait_covered(members, start_ms))
            figures.joiner_packets.append(joiner.store.packets_sent)
            figures.others_packets += [c.store.packets_sent - b for c, b in zip(connectors, before, strict=True)]
            wait_quiet([*connectors, joiner])
            leaver = ([joiner, *connectors])[number % members]
            stay = [connector for connector in [*connectors, joiner] if connector is not leaver]
            start_ms = SYSTEM_CLOCK.now_ms()
            leaver.close()
            figures.leave_ms.append(watcher.wait_covered(members - 1, start_ms))
            connectors = stay
    finally:
        for connector in connectors:
            connector.close()
    return figures


def measure_scala(sandbox: Sandbox, watcher: Watcher, release: str, members: int, rounds: int) -> Figures:
    """The same with original members; a join is counted from the moment when the new one is registered."""
    figures = Figures(f"Scala {release}, {members} members")
    settings = {"zookeeper.session.timeout.ms": "6000"}

    def start(number: int) -> None:
        sandbox.start_member(release, GROUP, {TOPIC: 1}, name=f"bench-{number}", settings=settings, wait=False)

    for number in range(members - 1):
        start(number)
    wait_until(lambda: len(watcher.members()) == members - 1, "the Scala members are registered")
    watcher.wait_covered(members - 1, SYSTEM_CLOCK.now_ms())
    for number in range(rounds):
        start(members + number)
        wait_until(lambda: len(watcher.members()) == members, "the joiner is registered")
        figures.join_ms.append(watcher.wait_covered(members, SYSTEM_CLOCK.now_ms()))
        leaver = sandbox.members.pop(0)
        start_ms = SYSTEM_CLOCK.now_ms()
        leaver.stop()
        figures.leave_ms.append(watcher.wait_covered(members - 1, start_ms))
        leaver.close()
    return figures


def machine() -> str:
    """Where the figures come from, for the page."""
    load = os.getloadavg()[0]
    return f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load {load:.1f}"


def write(section: str, *, is_second: bool) -> None:
    """Put one of the two sections of the page down, and keep the other."""
    first, mark, second = PAGE.read_text(encoding="utf-8").partition(f"\n{REPEATS_TITLE}\n")
    if is_second:
        PAGE.write_text(f"{first.rstrip()}\n\n{section}", encoding="utf-8")
    else:
        PAGE.write_text(section + mark + second, encoding="utf-8")


def report(figures: list[Figures], partitions: int, rounds: int, zookeeper: str) -> str:
    """The page, as Markdown."""
    head = [
        "# What a rebalance costs",
        "",
        "Printed by `python bench/rebalance.py --write` (its docstring says what is counted from when to when).",
        "",
        f"{partitions} partitions, range, {rounds} joins and leaves, ZooKeeper {zookeeper}, {machine()}.",
        "Median (least to most).",
        "",
        "| members | join ms | leave ms | packets of the joiner | packets of each that was there |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *(one.row() for one in figures)]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--zookeeper", default="3.8", choices=["3.8", "3.4.6"])
    parser.add_argument("--scala", metavar="RELEASE", help="measure original members of this release as well")
    parser.add_argument("--scala-rounds", type=int, default=5)
    parser.add_argument("--repeats", action="store_true", help="count records that are read twice at clean changes")
    parser.add_argument("--changes", type=int, default=200, help="joins and leaves of all runs of --repeats together")
    parser.add_argument("--seed", type=int, default=1, help="of the members' names, which decide what moves")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    if arguments.repeats:
        section = repeats_section(arguments.scala or "1.1.1", arguments.changes, arguments.seed, machine)
        print(section)
        if arguments.write:
            write(section, is_second=True)
        return
    figures: list[Figures] = []
    cluster = FakeCluster(brokers=[1])
    cluster.create_topic(TOPIC, arguments.partitions)
    with Sandbox() as sandbox:
        sandbox.start_zookeeper(arguments.zookeeper)
        # Our members read from brokers in memory, below a chroot where those are registered.
        sandbox.zookeeper.admin().ensure_path("/ours")
        admin = sandbox.zookeeper.admin("/ours")
        admin.put_topic(TOPIC, {n: [1] for n in range(arguments.partitions)})
        admin.put("/brokers/ids/1", registration_of(cluster.address(1)))
        ours = sandbox.zookeeper.connect_string("/ours")
        with Watcher(ours, arguments.partitions) as watcher:
            figures.append(measure_ours(ours, cluster, watcher, arguments.members, arguments.rounds))
        if arguments.scala:
            sandbox.start_broker(arguments.scala, chroot="/kafka")
            sandbox.create_topic(TOPIC, arguments.partitions)
            with Watcher(sandbox.zookeeper_connect, arguments.partitions) as watcher:
                figures.append(
                    measure_scala(sandbox, watcher, arguments.scala, arguments.members, arguments.scala_rounds)
                )
        page = report(figures, arguments.partitions, arguments.rounds, arguments.zookeeper)
    print(page)
    if arguments.write:
        write(page, is_second=False)


if __name__ == "__main__":
    main()
