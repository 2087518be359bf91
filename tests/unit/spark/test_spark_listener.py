"""``ZkConsumerListener`` and its collector, with events as Spark gives them; no Spark runs."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from pyspark.sql.streaming.listener import QueryProgressEvent

from bridge.spark.monitoring.lag_collector import LagCollector
from bridge.spark.monitoring.lag_listener import QUERIES_MAX, ZkConsumerListener
from bridge.spark.monitoring.query_lag import Lag
from tests.spark_listener_events import QUERY, RUN, ended, progressed, source_of
from zkconsumer.testing.manual_clock import ManualClock

LINE = (
    "query-lag query=etl batch=%d group_lag=10 max_behind=10 owned_partitions=2 rebalances=- lost_offsets=- "
    "skipped_offsets=- waiting_for_migration=- sources='KafkaV2[Subscribe[t]]'"
)
KAFKA = {"t": {"0": 90, "1": 40}}


def told(name: str | None = "etl", batch: int = 0, end: Any = KAFKA) -> QueryProgressEvent:
    return progressed(source_of(end, {"t": {"0": 100, "1": 40}}), name=name, batch=batch)


def test_the_latest_lag_of_each_query_is_kept() -> None:
    listener = ZkConsumerListener()
    listener.onQueryProgress(told(batch=0))
    listener.onQueryProgress(told(batch=1, end={"t": {"0": 97, "1": 40}}))
    listener.onQueryProgress(told(name=None))
    assert listener.latest["etl"].batch == 1
    assert listener.latest["etl"].metrics["groupLag"] == 3
    assert set(listener.latest) == {"etl", str(QUERY)}
    listener.onQueryTerminated(ended())
    assert "etl" in listener.latest, "a daily run is looked at afterwards"


def test_a_query_that_reads_no_kafka_is_passed_over() -> None:
    listener = ZkConsumerListener()
    listener.onQueryProgress(told(end={"logOffset": 3}))
    assert not listener.latest


def test_queries_are_not_remembered_for_ever() -> None:
    listener = ZkConsumerListener(log_interval_ms=None)
    for number in range(QUERIES_MAX + 5):
        listener.onQueryProgress(told(name=f"q{number}"))
    assert len(listener.latest) == QUERIES_MAX
    assert "q0" not in listener.latest


def test_a_line_comes_not_with_every_batch_but_first_in_each_run(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    listener = ZkConsumerListener(log_interval_ms=1_000, clock=clock)
    with caplog.at_level(logging.INFO, "zkconsumer.spark"):
        for batch in range(3):
            listener.onQueryProgress(told(batch=batch))
            clock.move(500)
        listener.onQueryTerminated(ended())
        listener.onQueryProgress(told(batch=3))
    assert [record.getMessage() for record in caplog.records] == [
        LINE % 0,
        LINE % 2,
        LINE % 3,
    ]


def test_a_caller_is_told_and_what_it_raises_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[int] = []

    def on_lag(found: Lag) -> None:
        heard.append(found.batch)
        raise RuntimeError("no network")

    listener = ZkConsumerListener(on_lag, log_interval_ms=None)
    listener.onQueryProgress(told(batch=0))
    listener.onQueryProgress(told(batch=1))
    assert heard == [0, 1]
    assert [record.getMessage() for record in caplog.records] == [
        "lag-callback-failed error=RuntimeError('no network'): it is called again after the next batch"
    ]


def test_a_progress_that_cannot_be_read_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    listener = ZkConsumerListener()
    for _ in range(2):
        listener.onQueryProgress(told(end={"v": 9, "n": 1}))
    assert caplog.text.count("query-lag-unknown reason='source 0 was written by another release") == 1


def test_the_end_of_a_run_can_be_waited_for() -> None:
    listener = ZkConsumerListener()
    assert not listener.await_end(str(RUN), 1)
    thread = threading.Thread(target=lambda: listener.onQueryTerminated(ended()))
    thread.start()
    assert listener.await_end(str(RUN), 5_000)
    thread.join()


def test_prometheus_is_shown_every_partition() -> None:
    listener = ZkConsumerListener()
    listener.onQueryProgress(told())
    counts = {"rebalances": 3, "lostOffsets": 4, "skippedOffsets": 2, "pythonDecoder": True}
    ours = {"v": 1, "g": "g", "n": 1, "to": KAFKA, "claims": {"t": {"0": 1}}, "s": counts}
    listener.onQueryProgress(told(name="live", end=ours))
    registry = CollectorRegistry()
    registry.register(LagCollector(listener))
    lines = generate_latest(registry).decode().splitlines()
    assert 'zkconsumer_spark_offsets_behind_latest{partition="0",query="etl",source="0",topic="t"} 10.0' in lines
    assert 'zkconsumer_spark_group_lag{query="etl"} 10.0' in lines
    assert 'zkconsumer_spark_rebalances_total{query="live"} 3.0' in lines
    assert 'zkconsumer_spark_lost_offsets_total{query="live"} 4.0' in lines
    assert 'zkconsumer_spark_skipped_offsets_total{query="live"} 2.0' in lines
    assert 'zkconsumer_spark_python_decoder{query="live"} 1.0' in lines
    assert 'zkconsumer_spark_owned_partitions{query="live"} 1.0' in lines
    assert not any("rebalances" in line and "etl" in line for line in lines), "nobody counted them"
