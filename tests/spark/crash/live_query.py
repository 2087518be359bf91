"""One live query in one group, to which something happens; judged at its end like every cell of the matrix."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import TopicPartition as Theirs
from confluent_kafka.admin import AdminClient

from bridge.spark.group_membership import CommitMode
from bridge.testing import MemberRead, QueryHistory, QueryVerdict, check_query_history
from tests.spark.crash.lab import Driver, StoredOffsets, is_committed, last_ends, sink_rows
from zkconsumer.simple_consumer import SimpleConsumer
from zkconsumer.testing.sandbox import Sandbox, wait_until
from zkconsumer.testing.sandbox.scala_host import UNLIMITED, ScalaHost
from zkconsumer.testing.sandbox.waiting import HOST
from zkconsumer.types import TopicPartition

MEMBERSHIP_PROCESS = "bridge.spark.membership"
"""Words in the command line of a membership process."""

SESSION_MS = 4_000
EARLIEST = -2
LATEST = -1
END = -1
"""In DeleteRecords: all records."""
DELETE_TIMEOUT_S = 30
PER_SECOND = 300
PER_BATCH = 200
TRIGGER_MS = 400
ROWS_TIMEOUT_MS = 180_000
END_TIMEOUT_MS = 300_000


class LiveQuery:
    """A query of ``driver`` in a group and on a topic named ``name``, fed until ``finish``."""

    def __init__(
        self,
        name: str,
        sandbox: Sandbox,
        driver: Driver,
        folder: Path,
        *,
        mode: str = "claim",
        partitions: int = 4,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.sandbox = sandbox
        self.driver = driver
        self.folder = folder / name
        self.mode = mode
        self.partitions = partitions
        self.peers: list[str] = []
        self.deleted: dict[TopicPartition, int] = {}
        self._hosts: list[ScalaHost] = []
        self._options = dict(options or {})
        self._starts = 0
        sandbox.create_topic(name, partitions)
        self.stored = StoredOffsets(sandbox.zookeeper_connect, name, name, partitions)
        sandbox.producer.start_rate(name, partitions, PER_SECOND, size=0)

    # --- the query ----------------------------------------------------------------------------------------------

    def start(self, trigger: int | str = TRIGGER_MS, **options: str) -> None:
        """Starts it, or starts it again from its checkpoint."""
        self._starts += 1
        wanted = {
            "zookeeper.connect": self.sandbox.zookeeper_connect,
            "group.id": self.name,
            "subscribe": self.name,
            "consumer.id": "a",
            "auto.offset.reset": "smallest",
            "group.offsets.commit": self.mode,
            "zookeeper.session.timeout.ms": str(SESSION_MS),
            "maxOffsetsPerTrigger": str(PER_BATCH),
            **self._options,
            **options,
        }
        self.driver.start(self.name, self.folder, wanted, sink="foreachBatch", trigger=trigger)

    def stop(self) -> None:
        """``query.stop()``, and waits until it has ended."""
        self.driver.say({"do": "stop", "query": self.name})
        self.wait_ended()

    def wait_ended(self) -> None:
        """Until it has ended as often as it was started."""
        self.driver.wait(
            lambda: len(self.driver.seen("ended", self.name)) == self._starts, END_TIMEOUT_MS, f"{self.name} ends"
        )

    @property
    def error(self) -> str | None:
        """With what words it ended last; None if it runs, or was stopped."""
        ended = self.driver.seen("ended", self.name)
        return str(ended[-1]["error"]) if ended and ended[-1]["error"] is not None else None

    def check_running(self) -> None:
        """AssertionError, with its words, if it has ended."""
        ended = len(self.driver.seen("ended", self.name))
        assert ended < self._starts, f"{self.name} ended: {self.error}\n{self.driver.log_end()}"

    def rows(self) -> int:
        """How many rows it has written so far."""
        return sum(event["rows"] for event in self.driver.seen("written", self.name))

    def wait_rows(self, more: int = 200, timeout_ms: int = ROWS_TIMEOUT_MS) -> None:
        """Until it has written so many rows more than now."""
        wanted = self.rows() + more

        def check() -> bool:
            self.check_running()
            return self.rows() >= wanted

        self.driver.wait(check, timeout_ms, f"{self.name} writes {more} rows more")

    def membership_processes(self) -> list[int]:
        """The membership processes of the driver's queries."""
        return self.driver.pids(MEMBERSHIP_PROCESS)

    def owners(self) -> dict[int, str]:
        return self.sandbox.admin.owners(self.name, self.name)

    def owned_by_query(self) -> int:
        """How many partitions the query owns."""
        return sum(owner.startswith(f"{self.name}_a") for owner in self.owners().values())

    # --- others -------------------------------------------------------------------------------------------------

    def join(self, host: ScalaHost, allowed: int = UNLIMITED) -> str:
        """One more original member; returns its name at once."""
        name = f"z{len(self.peers)}-{self.name}"
        self.peers.append(name)
        if host not in self._hosts:
            self._hosts.append(host)
        settings = {"rebalance.max.retries": "20", "zookeeper.session.timeout.ms": str(SESSION_MS)}
        host.start(
            name, self.name, self.name, self.sandbox.zookeeper_connect, allowed=allowed, handle_ms=1, settings=settings
        )
        return name

    def read(self) -> list[MemberRead]:
        """What original members were handed."""
        return [
            MemberRead(f"scala-{one.thread}", TopicPartition(one.topic, one.partition), one.offset)
            for host in self._hosts
            for one in host.delivered(self.name)
        ]

    def wait_read(self, more: int = 20, timeout_ms: int = ROWS_TIMEOUT_MS) -> None:
        """Until original members were handed so many more than now."""
        wanted = len(self.read()) + more
        wait_until(lambda: len(self.read()) >= wanted, f"members of {self.name} read {more} more", timeout_ms)

    # --- the end ------------------------------------------------------------------------------------------------

    def log(self) -> dict[TopicPartition, range]:
        """What was acknowledged; topics are new, so logs begin at 0."""
        acked = self.sandbox.producer.acked
        places = [TopicPartition(self.name, partition) for partition in range(self.partitions)]
        return {place: range(max((one.last + 1 for one in acked.get(place, [])), default=0)) for place in places}

    def delete_records(self) -> None:
        """The broker deletes all records, as retention does; in each partition also some after the last batch."""
        ends = last_ends(self.folder)
        wait_until(lambda: all(self._log_offsets(LATEST)[p] > ends[p] for p in ends), "records to delete", 60_000)
        admin = AdminClient({"bootstrap.servers": self.sandbox.bootstrap})
        everything = [Theirs(self.name, partition, END) for partition in range(self.partitions)]
        for deleted in admin.delete_records(everything).values():
            deleted.result(DELETE_TIMEOUT_S)
        self.deleted = self._log_offsets(EARLIEST)

    def _log_offsets(self, time: int) -> dict[TopicPartition, int]:
        broker = self.sandbox.brokers[0]
        with SimpleConsumer(HOST, broker.port, 10_000, 65_536, "lab") as asking:
            places = [TopicPartition(self.name, partition) for partition in range(self.partitions)]
            return {place: asking.earliest_or_latest_offset(place, time) for place in places}

    def finish(self, *, crashes: int = 0) -> QueryVerdict:
        """No more records; the query reads to the end and is stopped; AssertionError if a promise was not kept.

        The original members must have left.
        """
        self.sandbox.producer.stop_rate()
        ends = {place: held.stop for place, held in self.log().items()}

        def is_at_the_end() -> bool:
            self.check_running()
            stands = self.sandbox.admin.offsets(self.name, self.name)
            # A claimed batch stands in the group before it is read.
            return (
                is_committed(self.folder)
                and last_ends(self.folder) == ends
                and all(stands.get(p.partition) == ends[p] for p in ends)
            )

        try:
            self.driver.wait(is_at_the_end, END_TIMEOUT_MS, f"{self.name} and its group come to the end of the log")
        except AssertionError as error:
            stands = self.sandbox.admin.offsets(self.name, self.name)
            text = f"batches {last_ends(self.folder)}, group {stands}, log {ends}, owners {self.owners()}"
            raise AssertionError(f"{text}; {error}") from error
        self.stop()
        assert self.error is None, self.error
        return self.judge(crashes=crashes)

    def judge(self, *, crashes: int = 0) -> QueryVerdict:
        """What was seen up to now."""
        stands = self.sandbox.admin.offsets(self.name, self.name)
        ends = last_ends(self.folder)
        judgement = check_query_history(
            QueryHistory(
                mode=CommitMode(self.mode),
                log=self.log(),
                sink_rows=sink_rows(self.folder),
                member_reads=self.read(),
                stored=self.stored.all,
                final_offsets={place: (stands.get(place.partition, -1), ends.get(place, -1)) for place in self.log()},
                crashes=crashes,
                retention_starts=self.deleted,
                value_of=lambda place, offset: f"{place.topic}-{place.partition}-{offset}",
            )
        )
        print(f"{self.name} {self.mode}: {judgement.text}")
        assert judgement.is_valid, judgement.text
        return judgement

    def close(self) -> None:
        """Ends what still runs."""
        self.stored.close()
        for host in self._hosts:
            host.stop(*(peer for peer in self.peers))
        if len(self.driver.seen("ended", self.name)) < self._starts and self.driver.process.poll() is None:
            self.driver.say({"do": "stop", "query": self.name})
