"""One round: many cells live through one crash of one driver, and each is judged by itself.

peers "before" join, standing still       |
driver A: a query a cell, up to its fault |  the peers read a little
driver A and all memberships: SIGKILL     |  peers "before" go on; "after" and "middle" join; "middle" stops
driver B: the queries go on, AvailableNow |  "before" and "after" hold their share
no more records; the peers leave          |
driver B: AvailableNow once more          |  the group stands at the end of the last batch, which is the log's
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bridge.spark.group_membership import CommitMode
from bridge.testing import MemberRead, QueryHistory, QueryVerdict, check_query_history
from tests.spark.crash.crash_cases import Cell, cell_of
from tests.spark.crash.lab import Driver, StoredOffsets, last_ends, parquet_rows, planned, sink_rows
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.testing.sandbox import Sandbox, wait_until
from zkconsumer.testing.sandbox.scala_host import UNLIMITED, ScalaHost
from zkconsumer.types import TopicPartition

PER_BATCH = 30
"""Records of one partition in one batch, about."""

BACKLOG = 40
LAST_RECORDS = 3
PER_SECOND = 50
CATCH_UP = 4
"""After the crash a batch may be so many times as large."""

HANDLE_MS = 2
ALLOWED_BEFORE = 12
ALLOWED_IN_THE_MIDDLE = 11
SESSION_MS = 4_000
TRIGGER_MS = 100

FAULT_TIMEOUT_MS = 200_000
TAKEOVER_TIMEOUT_MS = 40_000
QUERY_TIMEOUT_MS = 100_000
STOP_TIMEOUT_MS = 60_000
"""An original member of 0.8.2 that stops waits for its fetchers' sockets (30 s, KAFKA-2241), and for a rebalance of its
own that finds the partitions of another such member still owned (20 tries of a second)."""


class Clusters:
    """One small cluster a broker release, and one JVM of original members a release of theirs, kept for a session."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sandboxes: dict[str, Sandbox] = {}
        self._hosts: dict[str, ScalaHost] = {}

    def sandbox(self, broker: str) -> Sandbox:
        """ZooKeeper (for a broker of 0.8 of its time) and one broker of this release below /kafka."""
        if broker not in self._sandboxes:
            made = self._sandboxes[broker] = Sandbox(self._folder / f"cluster-{broker}")
            made.start_zookeeper("3.4.6" if broker < "0.9" else "3.8")
            made.start_broker(broker, chroot="/kafka")
        return self._sandboxes[broker]

    def adopt(self, broker: str, sandbox: Sandbox) -> None:
        """Use this cluster, which somebody else ends."""
        self._sandboxes.setdefault(broker, sandbox)

    def host(self, release: str) -> ScalaHost:
        """Where the original members of this release live."""
        if release not in self._hosts:
            self._hosts[release] = ScalaHost(next(iter(self._sandboxes.values())).run, release)
        return self._hosts[release]

    def close(self, adopted: Sequence[Sandbox] = ()) -> None:
        """End what was started here."""
        for host in self._hosts.values():
            host.close()
        for sandbox in self._sandboxes.values():
            if sandbox not in adopted:
                sandbox.close()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one cell."""

    seed: int
    cell: Cell
    judgement: QueryVerdict
    planned_at_crash: int
    batches: int

    def as_json(self) -> dict[str, Any]:
        """For ``tests/spark/crash/results_table.py``."""
        overlap = list(self.judgement.overlap.values())
        return {
            "seed": self.seed,
            **asdict(self.cell),
            "records": self.judgement.records,
            "missing": sum(finding.code == "lost" for finding in self.judgement.findings),
            "findings": [str(finding) for finding in self.judgement.findings],
            "overlap": sum(overlap),
            "overlap_of_a_partition": max(overlap, default=0),
        }

    def __str__(self) -> str:
        state = "right" if self.judgement.is_valid else "WRONG"
        return f"seed {self.seed}: {self.cell}: {state}: {self.judgement.text}"


class Play:
    """One cell while it is played."""

    def __init__(self, seed: int, clusters: Clusters, folder: Path, salt: str) -> None:
        self.seed = seed
        self.cell = cell_of(seed)
        self.name = f"c{seed}-{salt}"
        self.folder = folder / self.name
        self.sandbox = clusters.sandbox(self.cell.broker)
        self.scala = clusters.host(self.cell.scala)
        self.peers = [f"z{number}-{self.name}" for number in range(self.cell.peers)]
        self.random = random.Random(seed)
        self.in_flight: Mapping[TopicPartition, range] = {}
        self.sandbox.create_topic(self.name, self.cell.partitions)
        for partition in range(self.cell.partitions):
            self.sandbox.producer.produce(self.name, partition, BACKLOG + PER_BATCH * (self.cell.batch + 1), size=0)
        self.stored = StoredOffsets(self.sandbox.zookeeper_connect, self.name, self.name, self.cell.partitions)

    @property
    def own_partitions(self) -> int:
        """How many fall to the query while the peers are there: its id is the first in the order of ids."""
        others = self.cell.peers if self.cell.peer == "before" else 0
        return -(-self.cell.partitions // (others + 1))

    @property
    def fault(self) -> str | None:
        """What the source is to stop at."""
        if self.cell.point in ("random", "after_sink"):
            return None
        return f"{self.cell.point}:{self.cell.batch}"

    def load(self) -> None:
        self.sandbox.producer.start_rate(self.name, self.cell.partitions, PER_SECOND, size=0)

    def start_peers(self, allowed: int) -> None:
        for name in self.peers:
            self.scala.start(
                name,
                self.name,
                self.name,
                self.sandbox.zookeeper_connect,
                allowed=allowed,
                handle_ms=HANDLE_MS,
                settings={"rebalance.max.retries": "20", "zookeeper.session.timeout.ms": str(SESSION_MS)},
            )

    def start_query(self, driver: Driver, *, is_first: bool) -> None:
        holds = is_first and self.cell.point == "after_sink"
        driver.start(
            self.name,
            self.folder,
            {
                "zookeeper.connect": self.sandbox.zookeeper_connect,
                "group.id": self.name,
                "consumer.id": f"a-{driver.mark}",
                "subscribe": self.name,
                "auto.offset.reset": "smallest",
                "group.offsets.commit": self.cell.mode,
                "zookeeper.session.timeout.ms": str(SESSION_MS),
                "maxOffsetsPerTrigger": str(
                    PER_BATCH * (self.own_partitions if is_first else CATCH_UP * self.cell.partitions)
                ),
            },
            sink=self.cell.sink,
            trigger=TRIGGER_MS if is_first else "availableNow",
            hold_after_sink=self.cell.batch if holds else None,
        )

    def has_met_its_fault(self, driver: Driver) -> bool:
        """Whether the moment to die has come; a random one comes some time after the first batch."""
        assert driver.ends(self.name) == 0, f"query {self.name} ended by itself"
        if self.cell.point == "random":
            return len(list((self.folder / "checkpoint" / "commits").glob("[0-9]*"))) > self.cell.batch
        return (driver.fault_folder / self.name).exists()

    def crashed(self) -> None:
        """Remember what was planned when it died."""
        batches = planned(self.folder)
        assert batches, f"{self.name} died before its first batch"
        self.in_flight = batches[max(batches)]

    def handed(self) -> list[MemberRead]:
        return [
            MemberRead(f"scala-{one.thread}", TopicPartition(one.topic, one.partition), one.offset)
            for one in self.scala.delivered(self.name)
        ]

    def is_taken_over(self) -> bool:
        """Whether a peer was handed something of a partition that the query had."""
        return any(one.partition in self.in_flight for one in self.handed()[self.handed_at_crash :])

    handed_at_crash = 0

    def owners(self) -> dict[int, str]:
        return self.sandbox.admin.owners(self.name, self.name)

    def log(self) -> dict[TopicPartition, range]:
        """What was acknowledged; topics are new, so logs begin at 0."""
        acked = self.sandbox.producer.acked
        places = [TopicPartition(self.name, partition) for partition in range(self.cell.partitions)]
        return {place: range(max((one.last + 1 for one in acked.get(place, [])), default=0)) for place in places}

    def judge(self) -> Outcome:
        rows = sink_rows(self.folder) if self.cell.sink == "foreachBatch" else parquet_rows(self.folder)
        stands = self.sandbox.admin.offsets(self.name, self.name)
        ends = last_ends(self.folder)
        batches, log = planned(self.folder), self.log()
        feed = QueryHistory(
            mode=CommitMode(self.cell.mode),
            log=log,
            sink_rows=rows,
            member_reads=self.handed(),
            stored=self.stored.all,
            # Everything was read, the last records by the query: its batches and the group end where the log does.
            final_offsets={
                place: (min(stands.get(place.partition, -1), ends.get(place, -1)), held.stop)
                for place, held in log.items()
            },
            crashes=1,
            value_of=lambda place, offset: f"{place.topic}-{place.partition}-{offset}",
        )
        in_flight = sum(map(len, self.in_flight.values()))
        return Outcome(self.seed, self.cell, check_query_history(feed), in_flight, len(batches))


def play_round(seeds: Sequence[int], clusters: Clusters, folder: Path, salt: str) -> list[Outcome]:
    """All cells of these seeds through one crash."""
    for seed in seeds:
        clusters.sandbox(cell_of(seed).broker)
    plays = [Play(seed, clusters, folder, salt) for seed in seeds]
    drivers: list[Driver] = []
    try:
        faults = {play.name: play.fault for play in plays if play.fault is not None}
        with _timed("up to the crash"):
            drivers.append(Driver(folder, f"a-{salt}", faults))
            _up_to_the_crash(plays, drivers[0])
        with _timed("peers take over"):
            drivers.append(Driver(folder, f"b-{salt}"))
            _take_over(plays)
        with _timed("queries go on"):
            _go_on(plays, drivers[1])
        with _timed("the end"):
            _end(plays, drivers[1])
        return [play.judge() for play in plays]
    finally:
        for driver in drivers:
            driver.kill()
        for play in plays:
            play.stored.close()


@contextmanager
def _timed(what: str) -> Iterator[None]:
    began_ms = SYSTEM_CLOCK.now_ms()
    try:
        yield
    finally:
        print(f"{what}: {(SYSTEM_CLOCK.now_ms() - began_ms) / 1000:.1f} s")


def _up_to_the_crash(plays: Sequence[Play], driver: Driver) -> None:
    before = [play for play in plays if play.cell.peer == "before"]
    for play in before:
        play.start_peers(allowed=0)
    driver.wait_ready()
    for play in before:
        play.scala.wait_started(*play.peers)
    for play in plays:
        play.load()
        play.start_query(driver, is_first=True)
    for play in before:
        for peer in play.peers:
            play.scala.allow(peer, ALLOWED_BEFORE)

    def waits() -> list[str]:
        return [str(play.cell) for play in plays if not play.has_met_its_fault(driver)]

    try:
        driver.wait(lambda: not waits(), FAULT_TIMEOUT_MS, "every query meets its fault")
    except AssertionError as error:
        raise AssertionError(f"not met: {waits()}; {error}") from error
    for play in plays:
        play.handed_at_crash = len(play.handed())
    driver.kill()
    for play in plays:
        play.crashed()


def _take_over(plays: Sequence[Play]) -> None:
    for play in plays:
        if play.cell.peer == "before":
            for peer in play.peers:
                play.scala.allow(peer, UNLIMITED)
        else:
            play.start_peers(ALLOWED_IN_THE_MIDDLE if play.cell.peer == "middle" else UNLIMITED)
    for play in plays:
        wait_until(play.is_taken_over, f"peers take over from {play.name}", TAKEOVER_TIMEOUT_MS)
    for play in plays:
        if play.cell.peer == "middle":
            play.scala.stop(*play.peers, timeout_ms=STOP_TIMEOUT_MS)


def _go_on(plays: Sequence[Play], driver: Driver) -> None:
    driver.wait_ready()
    for play in plays:
        play.start_query(driver, is_first=False)
    for play in plays:
        driver.wait(lambda name=play.name: driver.ends(name) == 1, QUERY_TIMEOUT_MS, f"{play.name} runs to its end")


def _end(plays: Sequence[Play], driver: Driver) -> None:
    for sandbox in {id(play.sandbox): play.sandbox for play in plays}.values():
        sandbox.producer.stop_rate()
    for play in plays:
        if play.cell.peer != "middle":
            play.scala.stop(*play.peers, timeout_ms=STOP_TIMEOUT_MS)
    for play in plays:
        for partition in range(play.cell.partitions):
            play.sandbox.producer.produce(play.name, partition, LAST_RECORDS, size=0)
        play.start_query(driver, is_first=False)
    for play in plays:
        driver.wait(lambda name=play.name: driver.ends(name) == 2, QUERY_TIMEOUT_MS, f"{play.name} ends again")
    for play in plays:
        if play.cell.sink == "parquet" and (play.folder / "parquet" / "_spark_metadata").exists():
            driver.say({"do": "collect", "query": play.name, "folder": str(play.folder)})
            driver.wait(lambda name=play.name: driver.seen("collected", name), QUERY_TIMEOUT_MS, "its sink is read")
