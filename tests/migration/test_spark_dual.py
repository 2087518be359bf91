"""A Spark query keeps its place while its group moves with its members in it, and when it moves back."""

from __future__ import annotations

from functools import partial

import pytest

from bridge.migration.dual.participants import SPARK_QUERY_HINT
from bridge.migration.inspect.migration_status import read_migration_status
from tests.migration.dual_spark_query import DualSparkGroup, company
from tests.migration.migrating_connectors import GROUP, Dual, dual
from tests.migration.migrating_spark_query import Query
from tests.migration.test_dual_end_to_end import stands, tool
from zkconsumer.admin.kafka_offsets import KafkaOffsetAdmin

__all__ = ["dual"]

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("mode", ["claim", "afterBatch", "none"])
def test_every_record_is_read_once_while_a_running_query_migrates_with_its_group_and_back(
    dual: Dual, mode: str
) -> None:
    with company(dual, mode) as group:
        group.begin()
        group.reads_on("in ZooKeeper's group")
        group.plan()
        group.run("apply")
        assert stands(dual) == "switched"
        group.reads_on("in Kafka's group")
        assert group.query.is_in_kafka()
        group.run("rollback")
        assert stands(dual) == "undone"
        group.reads_on("in ZooKeeper's group again")
        assert not group.query.is_in_kafka()
        group.end()
        written, rows = sorted(group.load.written), group.query_read()
        assert rows == sorted(set(rows)), "the sink has nothing twice"
        if mode == "none":
            assert sorted({*group.members_read(), *rows}) == written, "the group knows nothing of what it reads"
        else:
            assert group.judge() == ([], {})


BATCH = 12
PLACES = {"planned": "nowhere", "locked": "nowhere", "switched": "kafka", "returned": "nowhere", "undone": "zookeeper"}
WAY = ["planned", "armed", "ready", "locked", "copied", "switched", "returning", "returned", "undone"]


def where(group: DualSparkGroup) -> str:
    seen = group.query.following.observe()
    return "nowhere" if seen["waiting_for_migration"] else "kafka" if seen["in_coordinator_group"] else "zookeeper"


@pytest.mark.parametrize("mode", ["claim", pytest.param("afterBatch", marks=pytest.mark.nightly)])
def test_a_query_started_in_any_phase_joins_the_right_group_and_reads_on(dual: Dual, mode: str) -> None:
    with company(dual, mode) as group:
        group.begin()
        group.plan()
        for phase in WAY:
            group.while_triggered(partial(group.tell, phase), phase)
            if phase not in PLACES:
                continue
            group.query.crash()
            group.query.start()
            if PLACES[phase] == "nowhere":
                group.query.triggers_until(group.query.waits, f"it waits in {phase}")
            else:
                group.reads_on(f"it reads on in {phase}")
            assert where(group) == PLACES[phase], phase
        group.end()
        rows, given, (lost, twice) = group.query_read(), group.members_read(), group.judge()
        assert not lost
        assert rows == sorted(set(rows)), "the sink has nothing twice"
        assert given == sorted(set(given)), "members have nothing twice"
        # Not claimed, the batch in front of each crash is not committed yet.
        assert len(twice) <= (0 if mode == "claim" else BATCH * len(PLACES)), twice


def test_after_completed_it_offers_the_members_protocols_and_nothing_moves(dual: Dual) -> None:
    with company(dual, "claim") as group:
        group.begin()
        group.plan()
        group.run("apply")
        group.reads_on("in Kafka's group")
        group.run("complete")
        group.reads_on("completed")
        with tool(dual) as session:
            modern = KafkaOffsetAdmin(session, GROUP).coordinator_group()
        assert modern is not None
        assert (modern.protocol, len(modern.members)) == ("range", 3)
        group.end()
        assert group.judge() == ([], {})


def test_a_run_of_available_now_beside_members_waits_for_an_assignment(dual: Dual) -> None:
    with company(dual, "claim") as group:
        group.begin()
        group.plan()
        group.run("apply")
        group.query.crash()
        before = len(group.query.rows)
        for _ in group.query.start(available_now=True).trigger():
            pass
        assert len(group.query.rows) > before


def test_a_topic_that_only_the_query_reads_migrates_with_it(dual: Dual) -> None:
    """Between plan and apply it read on: what counts is where it stood when it stepped aside."""
    dual.broker.create_topic("alone", 2)
    dual.broker.append("alone", 0, [b"x"] * 60)
    with company(dual, "claim", subscribe="alone") as group:
        group.begin()
        dual.broker.append("alone", 1, [b"x"] * 60)
        group.plan()
        group.reads_on("behind the plan")
        group.run("apply")
        dual.broker.append("alone", 0, [b"x"] * 60)
        group.reads_on("in Kafka's group")
        group.run("rollback")
        dual.broker.append("alone", 1, [b"x"] * 60)
        group.query.triggers_until(lambda: len(group.query.rows) == 240, "it reads to the end")
        assert group.query_read() == [(number, offset) for number in range(2) for offset in range(120)]


def test_a_group_of_queries_only_is_referred_to_the_copy_strategy(dual: Dual) -> None:
    dual.fill(20)
    query = Query(dual.zookeeper, GROUP, "claim", **{"kafka.bootstrap.servers": dual.broker.bootstrap})
    try:
        query.start()
        query.triggers_until(lambda: query.rows, "it reads")
        dual.say("planned")
        query.triggers_until(query.waits, "it steps aside")
        with tool(dual) as session:
            [words] = read_migration_status(session, GROUP).waiting_for
        assert words == f"a member to register: the group is empty{SPARK_QUERY_HINT}"
    finally:
        query.crash()
