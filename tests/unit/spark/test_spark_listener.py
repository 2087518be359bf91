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
from zkconsumer.observe.lag_trend import LagTrend
from zkconsumer.testing.manual_clock import ManualClock

LINE = (
    "query-lag query=etl batch=%d group_lag=10 max_behind=10 max_seconds=? trend=unknown owned_partitions=2 "
    "rebalances=- lost_offsets=- skipped_offsets=- waiting_for_migration=- sources='KafkaV2[Subscribe[t]]'"
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


def at_second(second: int, read: int, logged: int, *, topic: str = "t") -> QueryProgressEvent:
    source = source_of({topic: {"0": read}}, {topic: {"0": logged}})
    return progressed(source, batch=second, timestamp=f"2026-01-01T00:00:{second:02}.000Z")


def test_the_lag_in_seconds_is_interpolated_between_batches_and_unknown_before() -> None:
    listener = ZkConsumerListener()
    listener.onQueryProgress(at_second(0, 40, 100))
    first = listener.latest["etl"].metrics
    assert ("maxSecondsBehindLatest" in first, first["secondsNotKnownPartitions"]) == (False, 1)
    listener.onQueryProgress(at_second(10, 60, 200))
    assert "maxSecondsBehindLatest" not in listener.latest["etl"].metrics, "older than the first batch"
    listener.onQueryProgress(at_second(20, 150, 300))
    assert listener.latest["etl"].metrics["maxSecondsBehindLatest"] == pytest.approx(15, abs=0.1)
    registry = CollectorRegistry()
    registry.register(LagCollector(listener))
    labels = {"query": "etl", "source": "0", "topic": "t", "partition": "0"}
    assert registry.get_sample_value("zkconsumer_spark_seconds_behind_latest", labels) == pytest.approx(15, abs=0.1)
    listener.onQueryProgress(at_second(30, 300, 300))
    assert listener.latest["etl"].metrics["maxSecondsBehindLatest"] == 0
    assert listener.latest["etl"].catch_up.trend is LagTrend.CAUGHT_UP


def test_a_query_that_reads_faster_than_the_producers_says_when_it_has_caught_up() -> None:
    listener = ZkConsumerListener()
    for second in range(0, 50, 10):
        listener.onQueryProgress(at_second(second, 20 * second, 1_000 + 10 * second))
    lag = listener.latest["etl"]
    assert lag.catch_up.trend is LagTrend.CATCHING_UP
    assert lag.metrics["caughtUpInSeconds"] == pytest.approx(60)
    listener.onQueryProgress(at_second(50, 1_000, 1_500, topic="other"))
    assert listener.latest["etl"].catch_up.trend is LagTrend.UNKNOWN, "other partitions after a rebalance"


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
