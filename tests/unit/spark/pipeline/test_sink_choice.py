"""Which sink a section of the pipeline file has, and which file systems and formats are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.spark.pipeline.pipeline_spec import DeltaTarget, ParquetTarget, PostgresTarget, TopicTarget
from bridge.spark.pipeline.sinks.folder_choice import open_folder
from bridge.spark.pipeline.sinks.parquet_sink import ParquetSink
from bridge.spark.pipeline.sinks.postgres_sink import PostgresSink
from bridge.spark.pipeline.sinks.sink_choice import open_sink
from bridge.spark.pipeline.sinks.topic_sink import TopicSink
from zkconsumer.errors import UsageError

NO_SPARK: Any = object()


def test_each_format_with_a_commit_has_its_sink(tmp_path: Path) -> None:
    postgres = PostgresTarget((("db", 5432),), "shop", None, None, "prefer", None, 1_000, "public", "t", "b")
    assert isinstance(open_sink(ParquetTarget(str(tmp_path), "day", "snappy"), NO_SPARK), ParquetSink)
    assert isinstance(open_sink(postgres, NO_SPARK), PostgresSink)
    assert list(tmp_path.iterdir()) == []


def test_only_folders_of_message_time_need_the_time(tmp_path: Path) -> None:
    needs = {
        kind: open_sink(ParquetTarget(str(tmp_path), kind, "snappy"), NO_SPARK).needs_message_time
        for kind in ("day", "hour", "none")
    }
    assert needs == {"day": True, "hour": True, "none": False}


def test_a_format_that_is_not_written_is_refused_with_the_reason() -> None:
    newer: Any = SimpleNamespace(version="4.3.0")
    with pytest.raises(UsageError, match=r"Delta 4\.4\.0 fits pyspark 4\.2\.0 and not 4\.3"):
        open_sink(DeltaTarget("p", None), newer)


def test_the_lineage_of_a_topic_is_where_a_file_can_be_created_once(tmp_path: Path) -> None:
    target = TopicTarget("t", {}, "none", "all", str(tmp_path / "c-lineage" / "sink"), holds_dead_letters=False)
    assert isinstance(open_sink(target, NO_SPARK), TopicSink)
    with pytest.raises(UsageError, match=r"its lineage beside the checkpoint, .*s3a has no atomic create-if-absent"):
        open_sink(replace(target, lineage_path="s3a://bucket/c-lineage/sink"), NO_SPARK)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("/data/rows", "file:///data/rows/x"),
        ("file:/data/rows", "file:///data/rows/x"),
        ("file:///data/rows", "file:///data/rows/x"),
        ("FILE:///data/rows", "file:///data/rows/x"),
        ("/data/a b%20:c", "file:///data/a b%20:c/x"),
    ],
)
def test_a_path_without_a_scheme_is_local(path: str, uri: str) -> None:
    assert open_folder(path, NO_SPARK).uri("x") == uri


@pytest.mark.parametrize("path", ["s3a://bucket/rows", "gs://bucket/rows", "abfss://c@a.dfs.core.windows.net/rows"])
def test_a_file_system_without_a_create_if_absent_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match="has no atomic create-if-absent that was tried"):
        open_folder(path, NO_SPARK)


def test_hdfs_needs_a_session_in_this_process() -> None:
    class Remote:
        """A session of Spark Connect."""

    Remote.__module__ = "pyspark.sql.connect.session"
    remote: Any = Remote()
    with pytest.raises(UsageError, match="with Spark Connect only local folders"):
        open_folder("hdfs://name-node/rows", remote)
