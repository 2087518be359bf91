"""A pipeline with servers in memory: its file, a group, and a table that is written without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bridge.spark.decode.offset_ranges import OffsetRange
from bridge.spark.pipeline.lineage import BatchAttempt, BatchCounts, BatchLineage, partition_ranges, to_json
from bridge.spark.pipeline.sinks.parquet_manifest import (
    BATCHES,
    RESERVATIONS,
    BatchManifest,
    ManifestFile,
    batch_path,
    data_path,
    format_manifest,
)
from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from tests.spark_checkpoint_files import CheckpointFolder, envelope
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths

GROUP = TOPIC = "clicks"
SPARK_QUERY = "11111111-2222-3333-4444-555555555555"
"""The id that ``CheckpointFolder`` writes."""

TP = TopicPartition(TOPIC, 0)

PARQUET = 'format = "parquet"\npath = "rows"'


class PipelineInMemory:
    """A folder with the file ``clicks.toml``, and the table that its batches wrote."""

    def __init__(self, world: FakeEnvironment, folder: Path) -> None:
        self.world, self.folder = world, folder
        self.file = folder / "clicks.toml"
        self.write_file()

    def write_file(self, more: str = "", source: str = "", rows: str = PARQUET) -> None:
        self.file.write_text(
            f"""
            [pipeline]
            name = "clicks"
            [source]
            zookeeper.connect = "{ADDRESS}"
            group.id = "{GROUP}"
            subscribe = "{TOPIC}"
            {source}
            [sink]
            {rows}
            [dead-letters]
            format = "parquet"
            path = "dead"
            [trigger]
            available-now = true
            [checkpoint]
            path = "checkpoint"
            {more}
            """
        )

    def set_offset(self, offset: int, partition: int = 0) -> None:
        """The group's offset."""
        path = paths.offset(GROUP, TopicPartition(TOPIC, partition))
        self.world.zookeeper.ensure(path, b"%d" % offset)

    def commit(
        self,
        batch: int,
        ranges: Mapping[TopicPartition, tuple[int, int]],
        rows: int | None = None,
        *,
        kind: str = "batch",
        query: str = SPARK_QUERY,
        dead: int = 0,
        filtered: int = 0,
        table: str = "rows",
    ) -> Path:
        """A batch with one file; its path.  ``rows`` None: so many that it closes."""
        offsets = sum(end - first for first, end in ranges.values())
        count = offsets - dead - filtered if rows is None else rows
        attempt = BatchAttempt(query, batch, f"a{batch}", 1)
        pairs = partition_ranges(OffsetRange(tp, first, end) for tp, (first, end) in ranges.items())
        counts = BatchCounts(count, dead, filtered)
        made = BatchLineage(query, batch, kind, "clicks", "claim", attempt.attempt, 1_000 + batch, pairs, counts)
        file = data_path(attempt, "part.parquet", 0)
        place = self.folder / table / file
        place.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"n": list(range(count))}), place)
        manifest = self.folder / table / batch_path(BATCHES, query, batch)
        manifest.parent.mkdir(parents=True, exist_ok=True)
        listed = ManifestFile(file, count, place.stat().st_size)
        manifest.write_bytes(format_manifest(BatchManifest(made, (listed,))))
        return place

    def reserve(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """A backfill has reserved these offsets."""
        pairs = partition_ranges(OffsetRange(tp, first, end) for tp, (first, end) in ranges.items())
        made = BatchLineage("b", 0, "backfill", "clicks", "snapshot", "a", 1, pairs, BatchCounts())
        file = self.folder / "rows" / batch_path(RESERVATIONS, "b", 0)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(to_json(made))

    def checkpoint(
        self, done: Mapping[int, tuple[int, int]], begun: Mapping[int, tuple[int, int]] | None = None
    ) -> None:
        """Batch number -> its range of partition 0, of finished and of begun batches."""
        folder = CheckpointFolder(self.folder / "checkpoint")
        for number, (first, end) in done.items():
            folder.done(number, envelope(number, {0: first}, {0: end}, group=GROUP, topic=TOPIC))
        for number, (first, end) in (begun or {}).items():
            folder.logged(number, envelope(number, {0: first}, {0: end}, group=GROUP, topic=TOPIC))
