"""The commands of a pipeline with Delta tables: audit and status without Spark, replay, and a replacement."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from bridge.spark.pipeline.backfill.backfill_bounds import parse_bounds
from bridge.spark.pipeline.backfill.backfill_run import BackfillReport, BackfillRequest, backfill
from bridge.spark.pipeline.pipeline_file import read_pipeline
from bridge.spark.pipeline.pipeline_query import PreparedPipeline, prepare_pipeline
from bridge.spark.pipeline.replay.replay_run import ReplayReport, ReplayRequest, replay
from tests.pipeline_run_fixtures import run_to_end
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.cli.main import main
from zkconsumer.testing.sandbox import Sandbox

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.real


def good(first: int, count: int) -> list[bytes]:
    return [json.dumps({"id": n, "n": str(n)}).encode() for n in range(first, first + count)]


class DeltaPlace:
    """A topic, a pipeline file, a table of rows in a folder, and one of dead letters in the catalog."""

    def __init__(self, spark: SparkSession, cluster: Sandbox, topic: str, folder: Path) -> None:
        self.spark, self.cluster, self.topic, self.folder = spark, cluster, topic, folder
        cluster.create_topic(topic, 1)
        self.rows = f"delta.`{folder / 'rows'}`"
        self.letters = f"dead_{topic.replace('-', '_')}"
        self.file = folder / "clicks.toml"
        self.write()

    def write(self, number: str = "CAST(n AS INT)") -> None:
        self.file.write_text(
            f"""
            [pipeline]
            name = "{self.topic}"
            [source]
            zookeeper.connect = "{self.cluster.zookeeper.connect_string("/kafka")}"
            group.id = "{self.topic}"
            subscribe = "{self.topic}"
            auto.offset.reset = "smallest"
            [decode]
            format = "json"
            schema = "id BIGINT, n STRING"
            [transform]
            select = ["id", {json.dumps(f"{number} AS n")}, "topic", "partition", "offset"]
            [sink]
            format = "delta"
            path = "rows"
            [dead-letters]
            format = "delta"
            table = "{self.letters}"
            [trigger]
            available-now = true
            [checkpoint]
            path = "checkpoint"
            """
        )

    def prepared(self, call: Callable[[PreparedPipeline], Any]) -> Any:
        made = prepare_pipeline(self.spark, read_pipeline(self.file), {}, lambda path: Path(path).read_bytes())
        try:
            return call(made)
        finally:
            made.close()

    def run(self, *records: bytes) -> None:
        """One run, after these records were produced."""
        self.cluster.produce(self.topic, 0, list(records))
        self.prepared(run_to_end)

    def replay(self) -> ReplayReport:
        found: ReplayReport = self.prepared(
            lambda made: replay(made, ReplayRequest(None, None, 5), SYSTEM_CLOCK.wall_ms)
        )
        return found

    def replace(self, first: int, end: int) -> BackfillReport:
        bounds = (json.dumps({self.topic: {"0": offset}}) for offset in (first, end))
        request = BackfillRequest(parse_bounds(*bounds, None, None), True, 3)
        found: BackfillReport = self.prepared(lambda made: backfill(made, request, SYSTEM_CLOCK.wall_ms))
        return found

    def command(self, name: str, code: int = 0) -> dict[str, Any]:
        """The document of a command that works without Spark."""
        done = CliRunner().invoke(main, ["pipeline", name, str(self.file), "--json"])
        assert done.exit_code == code, done.output
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def audit(self, code: int = 0) -> tuple[list[tuple[str, int]], int]:
        """The findings, and the rows in the sink."""
        found = self.command("audit", code)
        return [(each["reason"], each["offsets"]) for each in found["findings"]], found["rows_in_sink"]

    def table(self) -> list[tuple[int, int, int]]:
        rows = self.spark.read.format("delta").load(str(self.folder / "rows")).collect()
        return sorted((row.offset, row.id, row.n) for row in rows)


@pytest.mark.nightly
def test_delta_tables_are_audited_replayed_and_replaced(
    spark: SparkSession, shared_cluster: Sandbox, fresh_name: str, tmp_path: Path
) -> None:
    place = DeltaPlace(spark, shared_cluster, fresh_name, tmp_path)
    assert place.command("audit", 4)["schema"] == "zkconsumer/error/1", "no pipeline has created the table"
    place.run(*good(0, 5), b'{"id": 5, "n": "five"}', b"{broken")
    place.run(*good(7, 3))
    found = place.command("status")
    assert (found["rows"], found["dead_letters"], found["lag"], found["not_known"]) == (8, 2, 0, [])

    assert place.audit() == ([("dead-letters", 2)], 8)

    # A dead letter becomes a row, once.
    place.write("TRY_CAST(n AS INT)")
    report = place.replay()
    assert (report.rows, report.still_dead, report.others) == (1, 1, {})
    assert place.audit() == ([("replayed", 1), ("dead-letters", 1)], 9)

    # Rows are written again, with another expression.
    place.write("TRY_CAST(n AS INT) + 100")
    replaced = place.replace(3, 8)
    assert (replaced.batches, replaced.deleted_rows, replaced.counts.rows) == (2, 4, 4)
    assert [(offset, n) for offset, _, n in place.table()] == [
        (0, 0), (1, 1), (2, 2), (3, 103), (4, 104), (5, None), (7, 107), (8, 8), (9, 9),
    ]  # fmt: skip
    assert place.audit()[1] == 9
    spark.sql(f"ALTER TABLE {place.rows} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')").collect()
    spark.sql(f"DELETE FROM {place.rows} WHERE offset = 9").collect()
    log = "".join(each.read_text() for each in (tmp_path / "rows" / "_delta_log").glob("*.json"))
    assert '"cardinality":1' in log, "Delta has kept the file, with a deletion vector"
    assert place.audit()[1] == 8
