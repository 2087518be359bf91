"""Faults of a live query, of its membership process and of the servers: nothing is lost, nothing is read twice.

Every test has a group and a topic of its own in one driver; what ends a driver has a driver of its own.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox_fixtures import require_releases
from tests.spark.crash.crash_rounds import Clusters
from tests.spark.crash.lab import Driver
from tests.spark.crash.live_query import SESSION_MS, LiveQuery
from tests.spark_session_fixtures import require_spark
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.testing.sandbox import Sandbox, ScalaHost, wait_until
from zkconsumer.testing.sandbox.waiting import pause_ms

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

BROKER = "1.1.1"
EXPIRY_SLACK_MS = 3_000
HAND_OVER_MS = 10_000
"""A Scala member's first attempts may fail, 1 s apart, while a batch is under way."""

MODES = ["claim", "afterBatch"]


@pytest.fixture(scope="module")
def cluster(crash_clusters: Clusters) -> Sandbox:
    require_spark()
    require_releases(BROKER)
    return crash_clusters.sandbox(BROKER)


@pytest.fixture(scope="module")
def scala(crash_clusters: Clusters, cluster: Sandbox) -> ScalaHost:
    return crash_clusters.host(BROKER)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """One Spark for all tests that do not end it."""
    require_spark()
    made = Driver(tmp_path_factory.mktemp("driver"), "live")
    try:
        made.wait_ready()
        yield made
    finally:
        made.kill()


@pytest.fixture
def query(
    request: pytest.FixtureRequest, cluster: Sandbox, driver: Driver, fresh_name: str, tmp_path: Path
) -> Iterator[LiveQuery]:
    """A query that is fed and not yet started; ``parametrize`` it with its mode."""
    made = LiveQuery(fresh_name[-40:].lstrip("-._"), cluster, driver, tmp_path, mode=request.param)
    yield made
    made.close()


def in_ci(mode: str) -> pytest.MarkDecorator:
    """Both modes, of which CI runs one and the nightly run both."""
    modes = [mode, *(pytest.param(other, marks=pytest.mark.nightly) for other in MODES if other != mode)]
    return pytest.mark.parametrize("query", modes, indirect=True)


both_modes = pytest.mark.parametrize("query", MODES, indirect=True)
claim_only = pytest.mark.parametrize("query", MODES[:1], indirect=True)


def owned_by_others(query: LiveQuery) -> bool:
    return bool(query.owners()) and query.owned_by_query() == 0


# --- members come and go --------------------------------------------------------------------------------------------


@pytest.mark.nightly
@both_modes
def test_an_original_member_that_comes_and_goes_costs_no_record_twice(query: LiveQuery, scala: ScalaHost) -> None:
    query.start()
    query.wait_rows()
    peer = query.join(scala)
    query.wait_read()
    assert query.owned_by_query() == 2
    query.wait_rows()
    scala.stop(peer)
    wait_until(lambda: query.owned_by_query() == 4, "the query has all again", HAND_OVER_MS)
    assert query.finish().overlap == {}


@in_ci("claim")
def test_a_query_that_is_stopped_is_succeeded_at_once(query: LiveQuery, scala: ScalaHost) -> None:
    query.start()
    query.wait_rows()
    peer = query.join(scala)
    query.wait_read()
    query.stop()
    stopped_ms = SYSTEM_CLOCK.now_ms()
    wait_until(lambda: len(query.owners()) == 4 and owned_by_others(query), "the member has all", HAND_OVER_MS)
    took_ms = SYSTEM_CLOCK.now_ms() - stopped_ms
    assert took_ms < SESSION_MS, f"{took_ms} ms: the owner nodes stood until the session expired"
    query.wait_read()
    query.start()
    query.wait_rows()
    scala.stop(peer)
    # query.stop() kills the query's process in the middle of a batch: for afterBatch that is as a crash.
    query.finish(crashes=1)


# --- the membership process -------------------------------------------------------------------------------------


@in_ci("afterBatch")
def test_a_killed_membership_process_is_replaced_or_ends_the_query(query: LiveQuery) -> None:
    query.start()
    query.wait_rows()
    [process] = query.membership_processes()
    os.kill(process, signal.SIGKILL)
    go_on(query)
    query.finish(crashes=1)


@in_ci("claim")
def test_a_membership_process_that_sleeps_beyond_its_session_reads_nothing_twice(
    query: LiveQuery, scala: ScalaHost
) -> None:
    query.start()
    query.wait_rows()
    peer = query.join(scala)
    query.wait_read()
    [process] = query.membership_processes()
    os.kill(process, signal.SIGSTOP)
    try:
        wait_until(lambda: owned_by_others(query), "the member takes everything", SESSION_MS * 4)
        query.wait_read()
    finally:
        os.kill(process, signal.SIGCONT)
    go_on(query)
    scala.stop(peer)
    query.finish(crashes=1)


def go_on(query: LiveQuery) -> None:
    """Until rows come again; a query that has ended with an error is started again, as a supervisor does."""
    wanted = query.rows() + 400

    def check() -> bool:
        if len(query.driver.seen("ended", query.name)) == query._starts:
            print(f"{query.name} ended and is started again: {query.error}")
            query.start()
        return query.rows() >= wanted

    query.driver.wait(check, 60_000, "rows come again")


# --- Spark's own processes ------------------------------------------------------------------------------------------


@pytest.mark.nightly
@claim_only
def test_a_task_whose_worker_is_killed_is_run_again(query: LiveQuery) -> None:
    query.start()
    query.wait_rows()
    for _ in range(3):
        for worker in query.driver.pids("pyspark.daemon pyspark.worker"):
            os.kill(worker, signal.SIGKILL)
        query.wait_rows(100)
    query.finish()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.nightly
def test_a_driver_that_is_terminated_gives_everything_back_at_once(
    mode: str, cluster: Sandbox, scala: ScalaHost, fresh_name: str, tmp_path: Path
) -> None:
    driver = Driver(tmp_path, "first")
    query = LiveQuery(fresh_name[-40:].lstrip("-._"), cluster, driver, tmp_path, mode=mode)
    try:
        driver.wait_ready()
        query.start()
        query.wait_rows()
        query.join(scala)
        query.wait_read()
        driver.terminate(30_000)
        wait_until(lambda: len(query.owners()) == 4 and owned_by_others(query), "the member has all", HAND_OVER_MS)
        query.wait_read()
        scala.stop(*query.peers)
        query.peers.clear()
        query.driver, query._starts = Driver(tmp_path, "second"), 0
        query.driver.wait_ready()
        query.start()
        query.finish(crashes=1)
    finally:
        driver.kill()
        query.driver.kill()
        query.close()


# --- the servers ----------------------------------------------------------------------------------------------------


@claim_only
def test_partitions_that_come_while_it_runs_are_read_from_their_beginning(query: LiveQuery) -> None:
    query.start()
    query.wait_rows()
    query.sandbox.grow_topic(query.name, 6)
    query.partitions = 6
    for partition in (4, 5):
        query.sandbox.producer.produce(query.name, partition, 50, size=0)
    wait_until(lambda: query.owned_by_query() == 6, "the query has the new ones", HAND_OVER_MS)
    query.finish()


@pytest.mark.nightly
@both_modes
def test_a_broker_that_comes_back_is_read_on(query: LiveQuery) -> None:
    query.start()
    query.wait_rows()
    query.sandbox.brokers[0].restart()
    query.wait_rows()
    query.finish()


@pytest.mark.nightly
@both_modes
def test_zookeeper_may_be_away_longer_than_a_session(query: LiveQuery, scala: ScalaHost) -> None:
    query.start()
    query.wait_rows()
    query.sandbox.zookeeper.stop()
    pause_ms(10_000)
    query.sandbox.zookeeper.start()
    go_on(query)
    query.finish(crashes=1)


# --- deleted records --------------------------------------------------------------------------------------------------


@pytest.fixture
def overtaken(query: LiveQuery) -> LiveQuery:
    """A query that was stopped, and whose log has lost what comes next."""
    query.start()
    query.wait_rows()
    query.stop()
    query.delete_records()
    return query


@pytest.mark.nightly
@claim_only
def test_lost_records_fail_a_query_that_must_not_lose_any(overtaken: LiveQuery) -> None:
    overtaken.start()
    overtaken.wait_ended()
    assert overtaken.error is not None
    print(overtaken.error)
    assert "failOnDataLoss" in overtaken.error
    assert overtaken.name in overtaken.error


@pytest.mark.nightly
@claim_only
def test_lost_records_are_passed_over_by_a_query_that_may(overtaken: LiveQuery) -> None:
    overtaken.start(failOnDataLoss="false")
    overtaken.wait_rows()
    judgement = overtaken.finish()
    assert judgement.sunk < judgement.records


@pytest.mark.nightly
@pytest.mark.parametrize("may_lose", [True, False])
def test_records_that_go_between_plan_and_read(
    may_lose: bool, cluster: Sandbox, fresh_name: str, tmp_path: Path
) -> None:
    name = fresh_name[-40:].lstrip("-._")
    driver = Driver(tmp_path, "held", {name: "after_wal:2"})
    options = {"failOnDataLoss": str(may_lose is False).lower()}
    query = LiveQuery(name, cluster, driver, tmp_path, options=options)
    held = driver.fault_folder / name
    try:
        driver.wait_ready()
        query.start()
        driver.wait(held.exists, 60_000, "the third batch is planned")
        query.delete_records()
        held.unlink()
        if may_lose:
            query.finish()
            return
        query.wait_ended()
        assert query.error is not None
        print(query.error)
        assert "failOnDataLoss" in query.error
    finally:
        driver.kill()
        query.close()
