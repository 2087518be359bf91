"""``lag``: from the progress of a query, in each of the forms in which Spark gives it, to the numbers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.spark.monitoring.query_lag import lag
from bridge.spark.source.stream_offset import Stats
from zkconsumer.errors import UsageError
from zkconsumer.types import TopicPartition

END = {"clicks": {"0": 90, "1": 40}, "orders": {"0": 7}}
LATEST = {"clicks": {"0": 100, "1": 40}, "orders": {"0": 9}}
ENVELOPE = {
    "v": 1,
    "g": "etl",
    "q": "5f",
    "n": 3,
    "from": {"clicks": {"0": 80}},
    "to": {"clicks": {"0": 90, "1": 12}},
    "claims": {"clicks": {"0": 4711}},
    "s": {"rebalances": 2, "lostOffsets": 30, "skippedOffsets": 4},
}


def source(end: Any = END, latest: Any = LATEST, **more: Any) -> dict[str, Any]:
    return {"description": "KafkaV2[Subscribe[clicks,orders]]", "endOffset": end, "latestOffset": latest, **more}


def progress(*sources: dict[str, Any], **more: Any) -> dict[str, Any]:
    heads = {"id": "q-1", "runId": "r-1", "name": "etl", "timestamp": "2026-01-01T00:00:00.000Z", "batchId": 3}
    return {**heads, "sources": list(sources), **more}


def test_the_numbers_of_the_jvm_source_and_the_sum() -> None:
    assert lag(progress(source())).metrics == {
        "minOffsetsBehindLatest": 0,
        "avgOffsetsBehindLatest": 4.0,
        "maxOffsetsBehindLatest": 10,
        "groupLag": 12,
        "ownedPartitions": 3,
    }


def test_our_own_source_is_described_by_its_group_and_topics() -> None:
    """Spark's own description of it is ``…PythonMicroBatchStreamWithTriggerAvailableNow@66a5a2c4``."""
    [found] = lag(progress(source(ENVELOPE, LATEST, description="org.….PythonMicroBatchStream@66"))).sources
    assert found.description == "zkconsumer[etl: clicks]"
    many = {**ENVELOPE, "to": {f"t{number}": {"0": 1} for number in range(8)}}
    assert lag(progress(source(many))).sources[0].description == "zkconsumer[etl: t0, t1, t2, t3, t4 and 3 more]"
    assert lag(progress(source({**ENVELOPE, "to": {}}, {}))).sources[0].description == "zkconsumer[etl]"
    assert lag(progress(source())).sources[0].description == "KafkaV2[Subscribe[clicks,orders]]"


def test_spark_asks_a_python_stream_for_nothing_that_could_be_metrics_or_a_description() -> None:
    """What the JVM can ask the Python process of a stream for; where this grows, the progress may be filled after all.

    That Spark's own class answers neither is shown in ``tests/spark/test_stream.py``.
    """
    runner = pytest.importorskip("pyspark.sql.streaming.python_streaming_source_runner")
    assert {name for name in vars(runner) if name.endswith(("_FUNC_ID", "_FEATURES_ID"))} <= {
        "INITIAL_OFFSET_FUNC_ID", "LATEST_OFFSET_FUNC_ID", "PARTITIONS_FUNC_ID", "COMMIT_FUNC_ID",
        "CHECK_SUPPORTED_FEATURES_ID", "PREPARE_FOR_TRIGGER_AVAILABLE_NOW_FUNC_ID",
        "LATEST_OFFSET_ADMISSION_CONTROL_FUNC_ID", "GET_DEFAULT_READ_LIMIT_FUNC_ID", "REPORT_LATEST_OFFSET_FUNC_ID",
    }  # fmt: skip


def test_each_partition_by_itself() -> None:
    found = lag(progress(source()))
    assert {str(tp): behind for _, tp, behind in found.offsets_behind_latest} == {
        "clicks/0": 10,
        "clicks/1": 0,
        "orders/0": 2,
    }
    assert (found.query_id, found.run_id, found.name, found.batch) == ("q-1", "r-1", "etl", 3)


@pytest.mark.parametrize("form", [dict, json.dumps, lambda read: json.dumps(read).encode()])
@pytest.mark.parametrize("offset", [lambda value: value, json.dumps])
def test_every_form_of_a_progress_is_the_same(form: Any, offset: Any) -> None:
    given = form(progress(source(offset(END), offset(LATEST))))
    assert lag(given).metrics["groupLag"] == 12


def test_of_our_own_source_only_what_is_owned_counts() -> None:
    found = lag(progress(source(ENVELOPE, LATEST)))
    assert found.metrics == {
        "minOffsetsBehindLatest": 10,
        "avgOffsetsBehindLatest": 10.0,
        "maxOffsetsBehindLatest": 10,
        "groupLag": 10,
        "ownedPartitions": 1,
        "rebalances": 2,
        "lostOffsets": 30,
        "skippedOffsets": 4,
        "waitingForMigration": 0,
        "pythonDecoder": 0,
    }
    [ours] = found.sources
    assert (ours.format, ours.group, ours.stats) == ("zkconsumer", "etl", Stats(2, 30, skipped_offsets=4))


def test_our_own_source_before_it_read_anything() -> None:
    found = lag(progress(source({"v": 1, "n": -1}, "None")))
    names = "ownedPartitions", "rebalances", "lostOffsets", "skippedOffsets", "waitingForMigration", "pythonDecoder"
    assert found.metrics == dict.fromkeys(names, 0)


def test_a_source_that_decodes_in_python_says_so() -> None:
    slow = {**ENVELOPE, "s": {**ENVELOPE["s"], "pythonDecoder": True}}
    found = lag(progress(source(slow, LATEST)))
    assert found.metrics["pythonDecoder"] == 1
    assert found.sources[0].stats == Stats(2, 30, skipped_offsets=4, python_decoder=True)


@pytest.mark.parametrize("stats", [None, 7, {"rebalances": "many"}])
def test_counts_that_cannot_be_read_hide_no_lag(stats: Any) -> None:
    found = lag(progress(source({**ENVELOPE, "s": stats})))
    assert (found.metrics["groupLag"], found.metrics["rebalances"]) == (10, 0)


def test_an_offset_of_another_release_is_told() -> None:
    with pytest.raises(UsageError, match="version 2 of its offsets, this release reads 1"):
        lag(progress(source({**ENVELOPE, "v": 2})))


def test_two_sources_are_counted_together() -> None:
    found = lag(progress(source({"a": {"0": 1}}, {"a": {"0": 4}}), source(ENVELOPE)))
    assert found.metrics["groupLag"] == 13
    assert [one.number for one in found.sources] == [0, 1]


@pytest.mark.parametrize("latest", ["None", None, "null", "", {}])
def test_without_a_latest_offset_nothing_is_known_and_nothing_is_invented(latest: Any) -> None:
    assert lag(progress(source(latest=latest))).metrics == {"ownedPartitions": 3}


def test_a_partition_that_is_new_has_no_lag_yet() -> None:
    found = lag(progress(source(latest={**LATEST, "new": {"0": 5}})))
    assert TopicPartition("new", 0) not in [tp for _, tp, _ in found.offsets_behind_latest]


def test_a_log_that_was_cut_shows_below_zero() -> None:
    assert lag(progress(source({"t": {"0": 9}}, {"t": {"0": 5}}))).metrics["minOffsetsBehindLatest"] == -4


def test_where_a_batch_did_not_run_its_start_counts() -> None:
    found = lag(progress(source("None", LATEST, startOffset=END)))
    assert found.metrics["groupLag"] == 12


@pytest.mark.parametrize("end", [{"logOffset": 3}, 7, "7", {}, {"t": {"x": 1}}, {"t": {"0": "1"}}, {"t": {"0": True}}])
def test_sources_of_other_kinds_are_left_out(end: Any) -> None:
    found = lag(progress(source(end)))
    assert found.sources == ()
    assert found.metrics == {}


@pytest.mark.parametrize(
    "wrong", ["{", pytest.param("[" * 100_000, id="deep"), "[]", "7", b"\xff", {}, {"sources": []}, 7]
)
def test_what_is_no_progress_is_told(wrong: Any) -> None:
    with pytest.raises(UsageError, match="progress"):
        lag(wrong)


def test_before_the_first_batch_there_is_no_progress() -> None:
    with pytest.raises(UsageError, match="None before the first batch is over"):
        lag(None)
