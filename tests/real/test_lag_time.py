"""The lag in seconds against the truth: a producer with known times, real brokers, and the command."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner

from tests.sandbox_fixtures import Clusters
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.admin.describe import GroupDescribeRow
from zkconsumer.admin.lag_time_observer import LagTimeObserver
from zkconsumer.admin.zookeeper_group_snapshot import read_group_snapshot
from zkconsumer.cli.main import main
from zkconsumer.observe.lag_time import KnownLagTime, LagTimeAtLeast, TimestampKind
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.testing.sandbox.producer_process import RecordToSend

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

HOUR_S = 3_600


def put_offset(cluster: Sandbox, group: str, topic: str, partition: int, offset: int) -> None:
    cluster.admin.put(f"/consumers/{group}/offsets/{topic}/{partition}", b"%d" % offset)


def lag(cluster: Sandbox, *words: str, by_brokers: bool = False) -> dict[str, Any]:
    address = ("--bootstrap-server", cluster.bootstrap) if by_brokers else ("--zookeeper", cluster.zookeeper_connect)
    done = CliRunner().invoke(main, ["lag", *words, *address, "-o", "json"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def assert_near(found_s: float, truth_s: float) -> None:
    """The promise: an error of at most the larger of 2 s and 5 %."""
    assert abs(found_s - truth_s) <= max(2, 0.05 * truth_s), (found_s, truth_s)


def test_the_append_time_of_the_broker_is_named_and_used(clusters: Clusters, names: tuple[str, str]) -> None:
    cluster = clusters.get("1.1.1")
    group, topic = names
    cluster.create_topic(topic, 1, config={"message.timestamp.type": "LogAppendTime"})
    appended_s = time.time()
    cluster.producer.produce_records(topic, 0, [RecordToSend(None, b"v", round(1000 * (appended_s - HOUR_S)))])
    put_offset(cluster, group, topic, 0, 0)
    time.sleep(1)
    [row] = lag(cluster, group)["partitions"]
    assert row["lag_time"]["timestamp_type"] == "LogAppendTime"
    assert_near(row["lag_seconds"], time.time() - appended_s)


@pytest.mark.parametrize("release", ["1.1.1", "3.9.1"])
def test_the_lag_by_timestamps_is_that_of_the_first_unread_record(
    clusters: Clusters, names: tuple[str, str], release: str
) -> None:
    cluster = clusters.get(release)
    group, topic = names
    cluster.create_topic(topic, 3)
    started_s = time.time()
    ages_s = (HOUR_S, 600, 30)
    for partition, codec in ((0, "none"), (1, "gzip")):
        records = [RecordToSend(None, b"v" * 3_000, round(1000 * (started_s - age_s))) for age_s in ages_s]
        cluster.producer.produce_records(topic, partition, records, codec=codec)
    cluster.produce(topic, 2, 5)
    for offset, age_s in enumerate(ages_s):
        for partition in (0, 1):
            put_offset(cluster, group, topic, partition, offset)
        put_offset(cluster, group, topic, 2, 5)
        found = lag(cluster, group)
        truth_s = age_s + time.time() - started_s
        for row in found["partitions"][:2]:
            assert (row["lag"], row["lag_time"]["timestamp_type"]) == (3 - offset, "CreateTime")
            assert_near(row["lag_seconds"], truth_s)
        assert (found["partitions"][2]["lag_seconds"], found["partitions"][2]["trend"]) == (0, "caught-up")
        assert_near(found["largest_lag_seconds"], truth_s)
    stored = ["offsets", "set", group, "--bootstrap-server", cluster.bootstrap, "--topic", f"{topic}:0"]
    done = CliRunner().invoke(main, [*stored, "--to-offset", "1", "--execute"])
    assert done.exit_code == 0, done.output
    [row] = lag(cluster, group, by_brokers=True)["partitions"]
    assert_near(row["lag_seconds"], 600 + time.time() - started_s)


@contextmanager
def observing(cluster: Sandbox, group: str) -> Iterator[Any]:
    """A function that observes the group once more and returns its rows."""
    with AdminSession.open(cluster.zookeeper_connect) as session:
        observer = LagTimeObserver.of_session(session)

        def look() -> list[GroupDescribeRow]:
            found = read_group_snapshot(session, group)
            assert found is not None
            return observer.with_lag_times(found.rows("zookeeper"), found.log_ranges)

        yield look


def test_without_timestamps_only_what_was_observed_has_a_time(clusters: Clusters, names: tuple[str, str]) -> None:
    cluster = clusters.get("0.8.2.2")
    group, topic = names
    cluster.create_topic(topic, 1)
    cluster.produce(topic, 0, 3)
    put_offset(cluster, group, topic, 0, 1)
    once = lag(cluster, group)
    [row] = once["partitions"]
    assert (row["lag"], row["lag_seconds"], row["unknown"]) == (2, None, ["lag_seconds"])
    assert "format 0" in row["lag_time"]["reason"]
    assert (once["largest_lag_seconds"], once["partitions_lag_seconds_not_known"]) == (None, 1)
    with observing(cluster, group) as look:
        look()
        first_s = time.time()
        produced_s: list[float] = []
        for _ in range(12):
            cluster.produce(topic, 0, 1)
            produced_s.append(time.time())
            time.sleep(0.3)
            look()
            time.sleep(0.3)
        [row] = look()
        assert row.lag_time is not None
        assert isinstance(row.lag_time.lag, LagTimeAtLeast)
        assert_near(row.lag_time.lag.lag_ms / 1000, time.time() - first_s)
        for number in (0, 5, 11):
            put_offset(cluster, group, topic, 0, 3 + number)
            [row] = look()
            assert row.lag_time is not None
            found = row.lag_time.lag
            assert isinstance(found, KnownLagTime)
            assert found.kind is TimestampKind.OBSERVED
            assert_near(found.lag_ms / 1000, time.time() - produced_s[number])
