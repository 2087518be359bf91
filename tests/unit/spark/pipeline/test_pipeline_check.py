"""What ``zkconsumer pipeline check`` prints; the pipeline and its sample are made here, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="the pipeline needs the extra [spark]")

from bridge.commands import pipeline_check
from bridge.spark.pipeline import pipeline_query, pipeline_sample
from bridge.spark.pipeline.pipeline_sample import PipelineSample

FILE = """
[source]
"zookeeper.connect" = "zk:2181"
"group.id" = "clicks"
subscribe = "clicks"
[sink]
{sink}
[checkpoint]
path = "/data/checkpoint"
"""
TOPIC = 'format = "topic"\ntopic = "rows"\n"kafka.bootstrap.servers" = "k:9092"'
PARQUET = 'format = "parquet"\npath = "/data/rows"'


def printed(sink: str, folder: Path, patch: pytest.MonkeyPatch) -> str:
    """The output of the command for a file with this sink, and one row of one record."""
    prepared = SimpleNamespace(schema=SimpleNamespace(names=["value"]), close=lambda: None)
    sample = PipelineSample(2, (("row of check",),), 0, (("clicks/0 offset 1", "decode: no JSON"),))

    @contextmanager
    def no_session(*_: Any, **__: Any) -> Iterator[None]:
        yield

    patch.setattr(pipeline_check, "pipeline_spark_session", no_session)
    patch.setattr(pipeline_query, "prepare_pipeline", lambda *_: prepared)
    patch.setattr(pipeline_sample, "read_sample", lambda *_: sample)
    file = folder / "clicks.toml"
    file.write_text(FILE.format(sink=sink))
    result = CliRunner().invoke(pipeline_check.check, [str(file)], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_a_topic_is_at_least_once_and_the_row_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = printed(TOPIC, tmp_path, monkeypatch)
    assert "row of check" in output
    assert "[sink]: the topic rows: at least once: " in output
    assert "dead letter: clicks/0 offset 1: decode: no JSON" in output


def test_a_sink_with_a_commit_has_no_such_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "at least once" not in printed(PARQUET, tmp_path, monkeypatch)
