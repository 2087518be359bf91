"""Measures a rebalance: the time until every partition is owned again, and the number of packets to ZooKeeper.

    python bench/rebalance.py --members 8 --partitions 64 --rounds 20 [--scala 1.1.1] [--write]
    python bench/rebalance.py --processes [--members 16 --partitions 512 --rounds 20] [--before PATH] [--write]
    python bench/rebalance.py --repeats --changes 200 [--scala 1.1.1] [--write]

It uses a real ZooKeeper (fetched by Maven); brokers are in memory, because nothing is read.  A *join* starts with the
call that joins, a *leave* with the call that leaves; both end when every partition has an owner node again and the
owners are those of the new assignment.  With ``--scala`` Scala members do the same in alternation (there a join starts
with the new registration, because a JVM takes seconds to start).

``--processes`` measures members that are one process each (see ``rebalance_processes``), with the CPU time of all of
them; with ``--before``, the members of another checkout alternate with them.

``--repeats`` instead counts the records that are read twice when members of both kinds join and leave cleanly, on a
real broker of the release of the Scala members (``rebalance_repeats``): 2 + 2 members, 8 partitions, 400 records/s.
``--changes``: the number of changes in all its runs together.

``--write`` writes the table to migration_docs/reference/rebalance.md, and keeps the other tables there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import threading
from dataclasses import dataclass, field
from pathlib import Path

from rebalance_processes import TITLE as PROCESSES_TITLE
from rebalance_processes import processes_section
from rebalance_repeats import REPEATS_TITLE, repeats_section
from rebalance_watch import GROUP, TOPIC, Watcher, wait_until

from bridge.testing.fake_cluster import FakeCluster
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.config import ConsumerConfig
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.types import BrokerAddress

SECTIONS = (PROCESSES_TITLE, REPEATS_TITLE)
"""The section titles of the page, after the first table."""

PAGE = Path(__file__).resolve().parent.parent / "migration_docs" / "reference" / "rebalance.md"


@dataclass
class Figures:
    """The measurements of one kind of member: ms, and packets per rebalance."""

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


def registration_of(broker: BrokerAddress) -> bytes:
    """The registration of a broker of 0.8."""
    fields = {"jmx_port": -1, "timestamp": "0", "host": broker.host, "version": 1, "port": broker.port}
    return json.dumps(fields).encode()


def wait_quiet(connectors: list[ZookeeperConsumerConnector]) -> None:
    """Wait until no member sends anything except its probe (once per second)."""
    pause = threading.Event()
    while True:
        before = [connector.store.packets_sent for connector in connectors]
        pause.wait(0.7)
        if all(c.store.packets_sent - b <= 1 for c, b in zip(connectors, before, strict=True)):
            return


def measure_ours(address: str, cluster: FakeCluster, watcher: Watcher, members: int, rounds: int) -> Figures:
    """``rounds`` joins and leaves of one member, while the others stay."""
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
    """The same with Scala members; a join starts when the new member is registered."""
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
    """The machine of the figures, for the page."""
    load = os.getloadavg()[0]
    return f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load {load:.1f}"


def write(section: str) -> None:
    """Write one section of the page, and keep the others."""
    text = PAGE.read_text(encoding="utf-8")
    starts = [0, *(at for title in SECTIONS if (at := text.find(f"\n{title}\n")) >= 0)]
    bounds = sorted(starts)
    sections = [text[start:end].strip() for start, end in zip(bounds, [*bounds[1:], len(text)], strict=True)]
    titles = ["", *SECTIONS]
    found = {next((title for title in SECTIONS if one.startswith(title)), ""): one for one in sections}
    found[next((title for title in SECTIONS if section.startswith(title)), "")] = section.strip()
    PAGE.write_text("\n\n".join(found[title] for title in titles if title in found) + "\n", encoding="utf-8")


def report(figures: list[Figures], partitions: int, rounds: int, zookeeper: str) -> str:
    """The page, as Markdown."""
    head = [
        "# What a rebalance costs",
        "",
        "Printed by `python bench/rebalance.py --write`; its docstring explains the measurement.",
        "",
        f"{partitions} partitions, range, {rounds} joins and leaves, ZooKeeper {zookeeper}, {machine()}.",
        "Median (minimum to maximum).",
        "",
        "| members | join ms | leave ms | packets of the joiner | packets of each other member |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *(one.row() for one in figures)]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, help="8; 16 with --processes")
    parser.add_argument("--partitions", type=int, help="64; 512 with --processes")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--zookeeper", default="3.8", choices=["3.8", "3.4.6"])
    parser.add_argument("--scala", metavar="RELEASE", help="also measure Scala members of this release")
    parser.add_argument("--scala-rounds", type=int, default=5)
    parser.add_argument("--processes", action="store_true", help="one process for each member, and their CPU time")
    parser.add_argument("--before", type=Path, metavar="PATH", help="another checkout, for --processes")
    parser.add_argument("--strategy", default="range", choices=["range", "roundrobin"], help="for --processes")
    parser.add_argument("--repeats", action="store_true", help="count the records that are read twice at clean changes")
    parser.add_argument("--changes", type=int, default=200, help="joins and leaves of all runs of --repeats together")
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the members' names, which determine the partitions that move"
    )
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    arguments.members = arguments.members or (16 if arguments.processes else 8)
    arguments.partitions = arguments.partitions or (512 if arguments.processes else 64)
    if arguments.repeats:
        section = repeats_section(arguments.scala or "1.1.1", arguments.changes, arguments.seed, machine)
        print(section)
        if arguments.write:
            write(section)
        return
    if arguments.processes:
        section = processes_section(
            arguments.members, arguments.partitions, arguments.rounds, strategy=arguments.strategy,
            zookeeper=arguments.zookeeper, before=arguments.before, seed=arguments.seed, machine=machine,
        )  # fmt: skip
        print(section)
        if arguments.write:
            write(section)
        return
    figures: list[Figures] = []
    cluster = FakeCluster(brokers=[1])
    cluster.create_topic(TOPIC, arguments.partitions)
    with Sandbox() as sandbox:
        sandbox.start_zookeeper(arguments.zookeeper)
        # The members read from brokers in memory, which are registered below this chroot.
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
        write(page)


if __name__ == "__main__":
    main()
