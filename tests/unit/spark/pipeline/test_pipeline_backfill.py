"""``zkconsumer pipeline backfill`` and ``replay``: wrong options are one line, and a program gets JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bridge.commands import pipeline_backfill, pipeline_replay
from bridge.commands.pipeline import pipeline
from bridge.spark.pipeline import pipeline_query
from bridge.spark.pipeline.backfill import backfill_run
from bridge.spark.pipeline.backfill.backfill_run import AbandonReport, BackfillReport
from bridge.spark.pipeline.batch_writer import WrittenBatch
from bridge.spark.pipeline.lineage import BatchCounts, BatchLineage
from bridge.spark.pipeline.replay import replay_run
from bridge.spark.pipeline.replay.letter_choice import LetterState
from bridge.spark.pipeline.replay.replay_run import ReplayReport
from zkconsumer.errors import UsageError
from zkconsumer.types import TopicPartition

TP = TopicPartition("t", 0)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline file; a session of Spark is not started."""

    @contextmanager
    def no_session(*_: Any) -> Iterator[None]:
        yield None

    for module in (pipeline_backfill, pipeline_replay):
        monkeypatch.setattr(module, "pipeline_spark_session", no_session)
        monkeypatch.setattr(module, "require_spark", lambda: None)
    monkeypatch.setattr(pipeline_query, "prepare_pipeline", lambda *_: SimpleNamespace(close=lambda: None))
    found = tmp_path / "p.toml"
    found.write_text(
        """
        [pipeline]
        name = "clicks"
        [source]
        zookeeper.connect = "zk:2181"
        group.id = "g"
        subscribe = "t"
        [transform]
        select = ["value"]
        [sink]
        format = "parquet"
        path = "rows"
        [trigger]
        available-now = true
        [checkpoint]
        path = "checkpoint"
        """
    )
    return found


def run(*arguments: object) -> Result:
    return CliRunner().invoke(pipeline, [str(each) for each in arguments])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["backfill"], "give --from or --from-time"),
        (["backfill", "--abandon", "x", "--replace"], "give it alone"),
        (["backfill", "--abandon", "x", "--from-time", "0"], "give it alone"),
        (["backfill", "--from-time", "yesterday"], "--from-time 'yesterday': write YYYY-MM-DDTHH:mm:SS"),
        (["backfill", "--from", "earliest", "--to-time", "2026-13-01T00:00:00"], "--to-time '2026-13-01T00:00:00'"),
        (["replay", "--stage", "fetch"], "there is nothing to decode again"),
        (["replay", "--since", "1h"], "--since '1h': write YYYY-MM-DDTHH:mm:SS"),
    ],
)
def test_a_wrong_option_is_one_line_before_the_file_is_read(tmp_path: Path, arguments: list[str], why: str) -> None:
    found = run(arguments[0], tmp_path / "no.toml", *arguments[1:])
    assert isinstance(found.exception, UsageError)
    assert why in str(found.exception)


def test_a_backfill_prints_its_counts(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[Any] = []

    def backfill(_prepared: Any, request: Any, _wall_ms: Any, *, on_batch: Any) -> BackfillReport:
        requests.append(request)
        report = BackfillReport("backfill-1", has_live_query=False, covered=5)
        lineage = BatchLineage(
            "backfill-1", 0, "backfill", "clicks", "snapshot", "t", 1, {TP: ((0, 9),)}, BatchCounts(4, 1, 2, 2)
        )
        for written in (WrittenBatch(lineage, is_repeated=False), WrittenBatch(lineage, is_repeated=True)):
            report.add(written)
            on_batch(written)
        return report

    monkeypatch.setattr(backfill_run, "backfill", backfill)
    found = run("backfill", file, "--from-time", "2026-11-27T10:00:00Z", "--batch-offsets", 7, "-o", "json")
    assert found.exit_code == 0, found.exception
    assert json.loads(found.stdout) == {
        "schema": "zkconsumer/pipeline-backfill/1", "id": "backfill-1", "has_live_query": False, "covered_offsets": 5,
        "batches": 1, "repeated_batches": 1, "offsets": 9, "deleted_rows": 0, "rows": 4, "dead_letters": 1,
        "filtered": 2, "skipped_offsets": 2,
    }  # fmt: skip
    assert "batch 0: 9 offsets, 4 rows, 1 dead letters, 2 filtered" in found.stderr
    assert "batch 0: is in the target already" in found.stderr
    assert "there is no query with this checkpoint yet" in found.stderr
    assert (requests[0].is_replacement, requests[0].batch_offsets_max) == (False, 7)
    assert requests[0].bounds.start.time_ms == 1_795_773_600_000


def test_an_abandoned_reservation_is_printed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill_run, "abandon", lambda _sink, query: AbandonReport(query, 2, 30))
    found = run("backfill", file, "--abandon", "backfill-1", "-o", "json")
    assert found.exit_code == 0, found.exception
    assert json.loads(found.stdout)["released"] == {"batches": 2, "offsets": 30}
    assert "backfill-1: 2 batches with 30 offsets are released" in found.stderr


def test_a_replay_prints_what_is_dead_still_and_what_was_left_out(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[Any] = []

    def replay(_prepared: Any, request: Any, _wall_ms: Any, *, on_batch: Any) -> ReplayReport:
        requests.append(request)
        report = ReplayReport("replay-1", batches=1, rows=3, filtered=1)
        report.add_dead({(TP, offset): "decode: no JSON" for offset in range(20)})
        report.others = Counter({LetterState.UNCERTAIN: 2, LetterState.REPLAYED: 4})
        return report

    monkeypatch.setattr(replay_run, "replay", replay)
    found = run("replay", file, "--stage", "decode", "--since", "5", "-o", "json")
    assert found.exit_code == 0, found.exception
    printed = json.loads(found.stdout)
    assert printed["errors"] == [{"place": f"t/0 offset {n}", "error": "decode: no JSON"} for n in range(10)]
    assert printed["left_out"] == {"replayed": 4, "uncertain": 2}
    assert (printed["rows"], printed["filtered"], printed["still_dead"]) == (3, 1, 20)
    assert "4 records left out: replayed before" in found.stderr
    assert (requests[0].stage, requests[0].since_ms) == ("decode", 5)
