"""``zkconsumer pipeline status`` and ``zkconsumer health --pipeline`` with servers in memory, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bridge.spark.decode.offset_ranges import OffsetRange
from bridge.spark.pipeline.lineage import BatchCounts, BatchLineage, partition_ranges
from bridge.spark.pipeline.status.run_phase import BEAT_AGE_MAX_MS
from bridge.spark.pipeline.status.run_state import RunBatch, RunError, RunState
from bridge.spark.pipeline.status.run_state_file import this_process, write_run_state
from bridge.testing.fake_environment import FakeEnvironment
from tests.delta_log_fixtures import DeltaTableFiles
from tests.pipeline_audit_fixtures import SPARK_QUERY, TOPIC, TP, PipelineInMemory
from zkconsumer.admin.admin_session import AdminDependencies
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.cli.main import main
from zkconsumer.errors import ZkTimeoutException
from zkconsumer.testing.fake_zk_store import FakeZkStore


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[PipelineInMemory]:
    with FakeEnvironment() as world:
        world.create_topic(TOPIC, 1)
        world.cluster.append(TOPIC, 0, [b"v"] * 30)
        yield PipelineInMemory(world, tmp_path)


def call(pipeline: PipelineInMemory, *words: str, **doors: Any) -> Result:
    found = {"store": pipeline.world.store, "connect": pipeline.world.connect} | doors
    done = CliRunner().invoke(main, [*words], obj=AdminDependencies(**found))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def status(pipeline: PipelineInMemory, code: int = 0, **doors: Any) -> dict[str, Any]:
    done = call(pipeline, "pipeline", "status", str(pipeline.file), "--json", **doors)
    assert done.exit_code == code, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["exit_code"] == code
    return document


def run_state(pipeline: PipelineInMemory, **more: Any) -> RunState:
    """Writes the state of a run of this process."""
    now_ms = SYSTEM_CLOCK.wall_ms()
    state = replace(RunState("clicks", "running", this_process(), now_ms, now_ms), **more)
    write_run_state(pipeline.folder / "checkpoint.status", state)
    return state


def test_a_pipeline_that_was_never_started(pipeline: PipelineInMemory) -> None:
    found = status(pipeline)
    assert (found["phase"], found["query"], found["last_batch"], found["last_error"]) == (
        "never-started", None, None, None,
    )  # fmt: skip
    assert found["partitions"] == [
        {
            "topic": TOPIC, "partition": 0, "reached": None, "planned": None, "group_offset": None, "log_end": 30,
            "lag": None,
        }
    ]  # fmt: skip


def test_a_running_pipeline_has_its_batch_offsets_and_lag(pipeline: PipelineInMemory) -> None:
    pipeline.checkpoint({0: (0, 10)}, {1: (10, 25)})
    pipeline.commit(0, {TP: (0, 10)}, dead=2, filtered=1)
    pipeline.set_offset(25)
    run_state(pipeline)
    found = status(pipeline)
    assert (found["phase"], found["is_running"], found["query"]) == ("running", True, SPARK_QUERY)
    assert found["last_batch"] | {"written_ms": 0} == {
        "query": SPARK_QUERY, "batch": 0, "written_ms": 0, "rows": 7, "dead_letters": 2, "filtered": 1,
        "skipped_offsets": 0,
    }  # fmt: skip
    assert (found["batch_in_progress"], found["dead_letters"], found["lag"]) == (1, 2, 5)
    [row] = found["partitions"]
    assert (row["reached"], row["planned"], row["group_offset"], row["log_end"]) == (10, 10, 25, 30)


def test_a_delta_table_has_its_last_batch_without_spark(pipeline: PipelineInMemory) -> None:
    pipeline.write_file(rows='format = "delta"\ntable = "shop.clicks"')
    found = status(pipeline, 1)
    assert "the folder of the Delta table shop.clicks is not known without Spark" in found["not_known"][0]
    pipeline.write_file(rows='format = "delta"\npath = "rows"')
    assert status(pipeline)["batches"] == 0
    made = BatchLineage(
        SPARK_QUERY, 0, "batch", "clicks", "claim", "a", 1, partition_ranges([OffsetRange(TP, 0, 10)]), BatchCounts(10)
    )
    DeltaTableFiles(pipeline.folder / "rows").batch(made, is_copied=False)
    found = status(pipeline)
    assert (found["rows"], found["last_batch"]["batch"], found["partitions"][0]["reached"]) == (10, 0, 10)


def test_the_table_has_the_last_error_and_what_is_in_the_sink(pipeline: PipelineInMemory) -> None:
    pipeline.commit(0, {TP: (0, 10)}, dead=2)
    run_state(pipeline, phase="failed", error=RunError(0, "the sink is away"))
    done = call(pipeline, "pipeline", "status", str(pipeline.file))
    assert done.exit_code == 0
    assert "clicks: failed\n" in done.stdout
    assert "1 batches: 8 rows, 2 dead letters, 0 filtered" in done.stdout
    assert "last error    1970-01-01T00:00:00Z: the sink is away" in done.stdout
    assert "clicks  0          10" in done.stdout


def test_a_killed_pipeline_has_failed(pipeline: PipelineInMemory) -> None:
    process = this_process()
    if not process.boot:
        pytest.skip("this system has no /proc")
    run_state(pipeline, process=replace(process, started_ticks=process.started_ticks - 1))
    found = status(pipeline)
    assert found["phase"] == "failed"
    assert "killed" in found["phase_text"]


def test_a_run_by_another_program_is_unknown(pipeline: PipelineInMemory) -> None:
    pipeline.checkpoint({0: (0, 10)})
    pipeline.commit(0, {TP: (0, 10)})
    assert status(pipeline)["phase"] == "unknown"


def test_servers_that_are_away_leave_the_rest(pipeline: PipelineInMemory) -> None:
    pipeline.checkpoint({0: (0, 10)})
    pipeline.commit(0, {TP: (0, 10)})
    run_state(pipeline, phase="finished")

    class NoZooKeeper(FakeZkStore):
        def start(self, timeout_ms: int) -> None:
            raise ZkTimeoutException(f"no session within {timeout_ms} ms")

    found = status(pipeline, 1, store=lambda *_, **__: NoZooKeeper(pipeline.world.zookeeper, "", 1_000, None))
    assert (found["phase"], found["rows"], found["lag"]) == ("finished", 10, None)
    assert found["not_known"] == ["the ends of the logs: no session within 5000 ms"]
    pipeline.world.cluster.stop_broker(0)
    found = status(pipeline, 1)
    assert (found["phase"], found["last_batch"]["batch"]) == ("finished", 0)
    assert "the ends of the logs" in found["not_known"][0]


def test_a_damaged_status_file_and_a_damaged_checkpoint_are_named(pipeline: PipelineInMemory) -> None:
    (pipeline.folder / "checkpoint.status").write_text("{")
    pipeline.checkpoint({0: (0, 10)})
    (pipeline.folder / "checkpoint/offsets/0").write_text("v1\n")
    found = status(pipeline, 1)
    assert found["phase"] == "unknown"
    assert len(found["not_known"]) == 2


def test_a_checkpoint_that_spark_is_just_creating_is_no_error(pipeline: PipelineInMemory) -> None:
    """Spark makes the folders before the file with the query's id."""
    (pipeline.folder / "checkpoint/offsets").mkdir(parents=True)
    assert status(pipeline)["phase"] == "never-started"
    (pipeline.folder / "checkpoint/offsets/0").write_text("v1\n")
    assert "no file metadata" in status(pipeline, 1)["not_known"][0]


def test_a_checkpoint_elsewhere_has_no_status_file(pipeline: PipelineInMemory) -> None:
    text = pipeline.file.read_text()
    pipeline.file.write_text(text.replace('path = "checkpoint"', 'path = "hdfs://name-node/checkpoint"'))
    found = status(pipeline, 1)
    assert found["phase"] == "unknown"
    assert "not on this machine" in found["not_known"][0]


# --- health -------------------------------------------------------------------------------------------------------


def health(pipeline: PipelineInMemory, *more: str) -> tuple[int, dict[str, Any] | None, str]:
    done = call(pipeline, "health", "--pipeline", str(pipeline.file), *more)
    return done.exit_code, json.loads(done.stdout) if done.stdout else None, done.stderr


def test_a_run_that_lives_is_healthy(pipeline: PipelineInMemory) -> None:
    run_state(pipeline, query="q", batches=2, counts=BatchCounts(5, 1), last_batch=RunBatch(1, 0, BatchCounts()))
    code, answer, _ = health(pipeline)
    assert code == 0
    assert answer is not None
    assert (answer["healthy"], answer["alive"], answer["pid"]) == (True, True, this_process().pid)
    [member] = answer["members"]
    assert (member["member"], member["group"], member["last_batch"]) == ("pipeline clicks", "clicks", 1)
    assert member["counters"] == {"batches": 2, "rows": 5, "dead_letters": 1}


def test_a_run_without_a_beat_is_alive_and_not_healthy(pipeline: PipelineInMemory) -> None:
    if not this_process().boot:
        pytest.skip("this system has no /proc")
    run_state(pipeline, beat_ms=SYSTEM_CLOCK.wall_ms() - BEAT_AGE_MAX_MS - 1_000)
    code, answer, words = health(pipeline)
    assert code == 1
    assert answer is not None
    assert answer["alive"]
    assert "no beat for" in words
    assert health(pipeline, "--alive")[0] == 0


@pytest.mark.parametrize("phase", ["finished", "stopped", "failed"])
def test_a_run_that_has_ended_does_not_answer(pipeline: PipelineInMemory, phase: str) -> None:
    run_state(pipeline, phase=phase, error=RunError(0, "the sink is away"))
    code, answer, words = health(pipeline)
    assert (code, answer) == (4, None)
    assert f"is not running: {phase}" in words
    assert ("the sink is away" in words) == (phase == "failed")


def test_without_a_run_there_is_no_answer(pipeline: PipelineInMemory) -> None:
    code, answer, words = health(pipeline)
    assert (code, answer) == (4, None)
    assert "zkconsumer pipeline run" in words


def test_one_of_the_three_is_asked(pipeline: PipelineInMemory) -> None:
    assert health(pipeline, "--pid", "1")[0] == 2
