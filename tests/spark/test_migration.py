"""A stream of format("zkconsumer") whose group is moved to Kafka's coordinator by the real command, and back."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from bridge.spark import lag, register
from tests.migration.real_group import RealGroup
from tests.sandbox_fixtures import Clusters
from tests.spark_session_fixtures import start_query, sunk
from zkconsumer.testing.sandbox import Sandbox, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.real

PARTITIONS = 3
PER_SECOND = 150
WAIT_MS = 60_000
NEXT = "--offset-convention", "next"


class Follows:
    """One query on the group, as often as it is started."""

    def __init__(self, spark: SparkSession, moving: RealGroup, folder: Path, mode: str) -> None:
        self._spark = spark
        self._moving = moving
        self._folder = folder
        self._mode = mode
        self.query: StreamingQuery

    def start(self) -> None:
        options = {
            "zookeeper.connect": self._moving.sandbox.zookeeper_connect, "group.id": self._moving.group,
            "subscribe": self._moving.topic, "auto.offset.reset": "smallest", "group.offsets.commit": self._mode,
        }  # fmt: skip
        stream = self._spark.readStream.format("zkconsumer").options(**options).load()
        self.query = start_query(stream, self._folder)

    def reads_on(self, store: str) -> None:
        """It has read more than now, and the group stands further in that store."""
        where = self._moving.in_kafka if store == "kafka" else self._moving.in_zookeeper
        before, read = sum(where().values()), self._last_batch

        def has_read() -> bool:
            failed = self.query.exception()
            assert failed is None, failed
            return self._last_batch > read and sum(where().values()) > before

        wait_until(has_read, f"it reads on, in {store}", WAIT_MS, poll_ms=200)

    def waits(self) -> bool:
        progress = self.query.lastProgress
        return progress is not None and lag(progress).metrics.get("waitingForMigration") == 1

    @property
    def _last_batch(self) -> int:
        progress = self.query.lastProgress
        return -1 if progress is None or not progress.numInputRows else progress.batchId

    def rows(self) -> Counter[tuple[str, int, int]]:
        """Record -> how often the sink has it."""
        return Counter((row.topic, row.partition, row.offset) for row in sunk(self._spark, self._folder))


@pytest.mark.parametrize("mode", [pytest.param("claim", marks=pytest.mark.nightly), "afterBatch"])
def test_a_query_moves_with_its_group_and_back_and_its_sink_has_every_record_once(
    spark: SparkSession, shared_cluster: Sandbox, fresh_name: str, tmp_path: Path, mode: str
) -> None:
    register(spark)
    moving = RealGroup(shared_cluster, f"g-{fresh_name}", fresh_name, PARTITIONS, tmp_path)
    follows = Follows(spark, moving, tmp_path / "query", mode)
    moving.load(PER_SECOND)
    is_loading = True
    follows.start()
    try:
        follows.reads_on("zookeeper")

        # Out: the query steps aside by itself, says so, and goes on behind the cut-over.
        moving.migrate("apply", moving.plan(*NEXT), "--execute", "--accept-drift", "--stop-after", "verified")
        wait_until(follows.waits, "it says that it waits", WAIT_MS, poll_ms=200)
        moving.migrate("apply", *moving.kept, "--execute")
        follows.reads_on("kafka")

        # Started again, it is a member there.
        follows.query.stop()
        follows.start()
        follows.reads_on("kafka")

        # And back: it leaves because the command waits for it.
        moving.migrate("rollback", moving.group, "--execute")
        follows.reads_on("zookeeper")
        is_loading = False
        moving.halt()
        wait_until(lambda: moving.in_zookeeper() == moving.ends(), "it reads to the end", WAIT_MS, poll_ms=200)
        follows.query.processAllAvailable()
    finally:
        if is_loading:
            moving.halt()
        follows.query.stop()
    ends = moving.ends()
    everything = {(moving.topic, number, offset) for number, end in ends.items() for offset in range(end)}
    assert follows.rows() == Counter(dict.fromkeys(everything, 1))


MEMBERS = "members"
QUICK = {"heartbeat.interval.ms": "500"}
DUAL = "--strategy", "dual", "--existing", "keep-source"


@pytest.mark.parametrize("mode", ["claim", pytest.param("afterBatch", marks=pytest.mark.nightly)])
def test_a_query_moves_with_a_group_that_keeps_its_members_and_every_record_is_read_once(
    spark: SparkSession, clusters: Clusters, fresh_name: str, tmp_path: Path, mode: str
) -> None:
    """Two members go there and back without a stop; the query steps aside and comes back behind the switch."""
    register(spark)
    moving = RealGroup(clusters.get("3.9.1"), f"g-{fresh_name}", fresh_name, 6, tmp_path)
    follows = Follows(spark, moving, tmp_path / "query", mode)
    moving.load(PER_SECOND)
    is_loading = True
    for number in range(2):
        moving.dual(MEMBERS, f"m{number}", QUICK)
    follows.start()
    try:
        for member in moving.stages[MEMBERS]:
            member.wait_started()
        wait_until(lambda: len(set(moving.owners().values())) == 3, "members and query own something", WAIT_MS)
        follows.reads_on("zookeeper")
        for _ in range(2):
            moving.migrate("apply", moving.plan(*DUAL), "--execute")
            assert moving.status()["phase"] == "switched"
            follows.reads_on("kafka")
            assert "a Spark query" in str(moving.status()["coordinator_members"])
            if mode == "claim":  # a query that is stopped in its batch has not committed it in afterBatch
                follows.query.stop()
                follows.start()
                follows.reads_on("kafka")
            moving.migrate("rollback", moving.group, "--execute")
            assert moving.status()["phase"] == "undone"
            follows.reads_on("zookeeper")
        is_loading = False
        moving.halt()
        wait_until(lambda: moving.in_zookeeper() == moving.ends(), "all is read", WAIT_MS, poll_ms=200)
        follows.query.processAllAvailable()
    finally:
        if is_loading:
            moving.halt()
        follows.query.stop()
        moving.stop(MEMBERS)
        moving.close()
    read = follows.rows() + moving.handed(MEMBERS)
    everything = {(moving.topic, number, offset) for number, end in moving.ends().items() for offset in range(end)}
    assert read == Counter(dict.fromkeys(everything, 1)), judged(read, everything)


def judged(read: Counter[tuple[str, int, int]], everything: set[tuple[str, int, int]]) -> str:
    twice = [record for record, count in read.items() if count > 1]
    return f"missing {len(everything - read.keys())}, twice {len(twice)}: {twice[:10]}"
