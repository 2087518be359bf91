"""How long a group's offsets take from ZooKeeper to Kafka: read, commit, read back, compare; and in how much memory.

    python bench/migrate.py --partitions 10000 100000 --rounds 3 [--zookeeper 3.4.6] [--in-memory]

A real ZooKeeper (3.8; 3.4.6 cannot read many nodes at once) and a real broker (1.1.1, which takes commits for
partitions that a known topic does not have, so that a hundred thousand of them need no hundred thousand logs), fetched
by Maven.  Each round is a process of its own that does what the steps of ``copy`` do, and tells its times and its peak
of resident memory; the epoch grows from round to round, so everything is written again.

*Read*: every offset znode with its version, and what Kafka has, as for a plan.  *Commit*: the seat is taken, Kafka's
values are compared with their provenance, and every offset is committed in batches.  *Read back*: both stores are read
and compared by value.  Start-up and the making of the znodes are not counted.

``--in-memory``: ZooKeeper in memory in the measured process and a development broker beside it, to try the program
without Java; its times have the fake's part in them, and its memory says nothing.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bridge.migration.authority import Authority
from bridge.migration.copies import Copy
from bridge.migration.mover import CopyToKafka, Stores
from bridge.migration.seat import Seat
from bridge.migration.step import Done, Todo
from bridge.migration.verify import VerifyCopy
from zkconsumer.admin.coordinators import OFFSETS_TOPIC
from zkconsumer.admin.session import AdminSession, Doors
from zkconsumer.admin.stores import MISSING, OffsetWrite, WriteReport, write_offsets
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.testing.fake_zookeeper import FakeZooKeeper
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.testing.world import ADDRESS
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import Create, SetData
from zkconsumer.zk.znodes import Control, format_control

GROUP, MIGRATION = "bench", "bench-1"
A_TOPIC = 1_000
BROKER = "1.1.1"
GATES = {10_000: 1.0, 100_000: 5.0}
"""Partitions -> seconds in all, on a ZooKeeper that reads many nodes at once; and ``RSS_MB_MAX``."""
RSS_MB_MAX = 300
PARTS = ("read", "commit", "read back")

OURS = f"""
import sys
from bridge.testing import EmbeddedBroker
with EmbeddedBroker(release="{BROKER}") as broker:
    for number in range(int(sys.argv[1])):
        broker.create_topic(f"topic-{{number:04}}", {A_TOPIC})
    print(broker.bootstrap, flush=True)
    sys.stdin.read()
"""


def topics_of(partitions: int) -> list[str]:
    return [f"topic-{number:04}" for number in range(-(-partitions // A_TOPIC))]


def wanted(partitions: int) -> list[TopicPartition]:
    return [TopicPartition(topic, n) for topic in topics_of(partitions) for n in range(A_TOPIC)][:partitions]


def fill(session: AdminSession, partitions: int) -> None:
    """The offset znodes of a group, and the control znode of a migration that has fenced it."""
    path = paths.control(GROUP)
    session.ask([*map(Create, paths.parents(path)), Create(path, b"{}")])
    report = WriteReport()
    writes = [OffsetWrite(tp, 1_000_000_000 + number, MISSING) for number, tp in enumerate(wanted(partitions))]
    write_offsets(session, GROUP, writes, None, report)
    assert not report.stopped_by, report.stopped_by


def measure(session: AdminSession, epoch: int) -> dict[str, float]:
    """One round: seconds of each part, and the peak of resident memory in MB."""
    fenced = Control(MIGRATION, epoch, "fenced", "zookeeper", "copy")
    session.ask([SetData(paths.control(GROUP), format_control(fenced))])
    topics = sorted(session.children(paths.offsets(GROUP)).names)  # type: ignore[union-attr]
    stores = Stores(Authority(session, GROUP, MIGRATION), Seat(session, GROUP, MIGRATION, topics))
    marks = [SYSTEM_CLOCK.now_ms()]

    nodes = stores.zookeeper()
    before = stores.kafka(list(nodes))
    copies = [
        Copy(tp, node.offset, node.offset, node.stat.version, before.get(tp))
        for tp, node in nodes.items()
        if node.offset is not None
    ]
    marks.append(SYSTEM_CLOCK.now_ms())

    stores.seat.sit()
    copy = CopyToKafka(stores, copies)
    assert copy.check() == Todo(), "everything is to be written"
    copy.do()
    marks.append(SYSTEM_CLOCK.now_ms())

    assert VerifyCopy(stores, copies).check() == Done()
    marks.append(SYSTEM_CLOCK.now_ms())
    stores.seat.leave()

    seconds = {part: (b - a) / 1000 for part, a, b in zip(PARTS, marks, marks[1:], strict=False)}
    return {**seconds, "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def child(arguments: argparse.Namespace) -> None:
    """The measured process."""
    if arguments.child == "in-memory":
        zookeeper = FakeZooKeeper(delivery="thread")
        host, _, port = arguments.where.rpartition(":")
        zookeeper.ensure(paths.broker(0), json.dumps({"host": host, "port": int(port), "version": 1}).encode())
        zookeeper.ensure(paths.topic(OFFSETS_TOPIC), b'{"version":1,"partitions":{"0":[0]}}')
        doors = Doors(lambda connect, timeout_ms: FakeZkStore(zookeeper, "", timeout_ms, None))
        with AdminSession.open(ADDRESS, None, doors) as session:
            fill(session, arguments.partitions[0])
            print(json.dumps(measure(session, arguments.epoch)))
        zookeeper.stop()
    else:
        with AdminSession.open(arguments.where) as session:
            print(json.dumps(measure(session, arguments.epoch)))


def run_child(kind: str, where: str, partitions: int, epoch: int) -> dict[str, float]:
    words = [sys.executable, __file__, "--child", kind, "--where", where]
    words += ["--partitions", str(partitions), "--epoch", str(epoch)]
    out = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    told: dict[str, float] = json.loads(out)
    return told


@contextmanager
def real_servers(zookeeper: str, partitions: int) -> Iterator[str]:
    with Sandbox() as sandbox:
        sandbox.start_zookeeper(zookeeper)
        sandbox.start_broker(BROKER, chroot="/kafka", heap_mb=512)
        for topic in topics_of(partitions):
            sandbox.create_topic(topic, 1)
        with AdminSession.open(sandbox.zookeeper_connect) as session:
            fill(session, partitions)
        yield sandbox.zookeeper_connect


@contextmanager
def development_broker(partitions: int) -> Iterator[str]:
    words = [sys.executable, "-c", OURS, str(len(topics_of(partitions)))]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


def row(partitions: int, rounds: list[dict[str, float]]) -> str:
    """One line of the table: medians, and the worst in all."""
    cells = [f"{statistics.median(each[part] for each in rounds):.2f} s" for part in PARTS]
    whole = [sum(each[part] for part in PARTS) for each in rounds]
    rss = max(each["rss_mb"] for each in rounds)
    gate = f"{GATES[partitions]:.0f} s, {RSS_MB_MAX} MB" if partitions in GATES else "-"
    cells += [f"{statistics.median(whole):.2f} s ({min(whole):.2f} to {max(whole):.2f})", f"{rss:.0f} MB", gate]
    return f"| {partitions:,} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, nargs="+", default=sorted(GATES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--zookeeper", default="3.8", choices=["3.8", "3.4.6"])
    parser.add_argument("--in-memory", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--where", help=argparse.SUPPRESS)
    parser.add_argument("--epoch", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments)
        return
    print("| partitions | " + " | ".join(PARTS) + " | in all | peak of memory | gate |")
    print("|" + "---|" * 7)
    for partitions in arguments.partitions:
        kind = "in-memory" if arguments.in_memory else "real"
        servers: Any = development_broker(partitions)
        if not arguments.in_memory:
            servers = real_servers(arguments.zookeeper, partitions)
        with servers as where:
            rounds = [run_child(kind, where, partitions, 1 + n) for n in range(arguments.rounds)]
        print(row(partitions, rounds), flush=True)


if __name__ == "__main__":
    main()
