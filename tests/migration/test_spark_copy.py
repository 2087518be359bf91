"""A Spark query keeps its place while its group moves, and when it moves back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Any

import pytest

from bridge.client.coordinator_membership import CoordinatorMembership
from bridge.migration.control.phases import Phase
from bridge.migration.plan.plan_file import plan_to_bytes
from bridge.migration.steps.copy_strategy import CopyOptions, copy_steps
from bridge.spark.membership import membership_switcher
from bridge.spark.monitoring.query_lag import lag
from bridge.spark.source import stream_planner
from bridge.spark.source.stream_offset import decode
from tests.migration.migrating_spark_query import ids_of, modern_member, move, move_back, query_of, records
from tests.migration.migration_write_faults import DECISIONS, EXPECTED, Lab, lab
from zkconsumer.errors import GroupNotExclusive, UnavailableError

__all__ = ["lab"]


pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("mode", ["claim", "afterBatch", "none"])
def test_a_running_query_migrates_with_its_group_and_back_and_reads_every_record_once(lab: Lab, mode: str) -> None:
    with query_of(lab, lab.new_group(), mode) as query:
        engine = query.start()
        for _ in range(3):
            list(engine.trigger())
        before = len(query.rows)
        move(lab, query)
        assert lab.stands(query.group) == ("switched", "kafka")
        query.triggers_until(lambda: query.is_in_kafka() and len(query.rows) > before, "it goes on in Kafka")
        move_back(lab, query)
        assert lab.stands(query.group) == ("undone", "zookeeper")
        query.triggers_until(lambda: ids_of(lab, query.group) and len(query.rows) == 120, "it reads to the end")
        assert query.rows == records(lab, EXPECTED)
        if mode != "none":
            list(engine.trigger())
            assert lab.offsets(query.group) == dict.fromkeys(EXPECTED, 50)


# --- in Kafka's group -------------------------------------------------------------------------------------------

Commit = Callable[..., tuple[dict[Any, str], set[Any]]]
COMMIT: Commit = CoordinatorMembership.commit_once


def refused(member: CoordinatorMembership, offsets: Mapping[Any, Any], *how: Any) -> tuple[dict[Any, str], set[Any]]:
    return dict.fromkeys(offsets, "UNKNOWN_MEMBER_ID"), set()


def silent_but_made(
    member: CoordinatorMembership, offsets: Mapping[Any, Any], *how: Any
) -> tuple[dict[Any, str], set[Any]]:
    COMMIT(member, offsets, *how)
    return {}, set(offsets)


def silent_and_not_made(
    member: CoordinatorMembership, offsets: Mapping[Any, Any], *how: Any
) -> tuple[dict[Any, str], set[Any]]:
    return {}, set(offsets)


class Died(Exception):
    """The machine has failed."""


def died_behind_it(
    member: CoordinatorMembership, offsets: Mapping[Any, Any], *how: Any
) -> tuple[dict[Any, str], set[Any]]:
    COMMIT(member, offsets, *how)
    raise Died


def once(monkeypatch: pytest.MonkeyPatch, then: Commit) -> None:
    """The commit of the next claim is sent so, later ones as always."""
    todo = [then]

    def commit(member: CoordinatorMembership, *how: Any) -> Any:
        return (todo.pop() if todo else COMMIT)(member, *how)

    monkeypatch.setattr(CoordinatorMembership, "commit_once", commit)


@pytest.mark.parametrize("answer", [refused, silent_but_made, silent_and_not_made])
def test_a_commit_that_is_refused_or_not_answered_loses_nothing_and_repeats_nothing(
    lab: Lab, answer: Commit, monkeypatch: pytest.MonkeyPatch
) -> None:
    with query_of(lab, lab.new_group(), "claim") as query:
        move(lab, query)
        query.start()
        query.triggers_until(lambda: len(query.checkpoint.sink) == 2, "two batches")
        once(monkeypatch, answer)
        before = len(query.rows)
        list(query.engine.trigger())
        assert (len(query.rows) == before) is (answer is refused), "what was refused is not in the batch"
        query.triggers_until(lambda: len(query.rows) >= 120, "everything is read")
        assert query.rows == records(lab, EXPECTED)
        assert {tp: at for tp, (at, _) in lab.kafka(query.group).items()} == dict.fromkeys(EXPECTED, 50)


@pytest.mark.parametrize("count", [0, 9])
def test_a_query_that_died_between_commit_and_record_reads_the_range_and_reports_the_ambiguity(
    lab: Lab, count: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with query_of(lab, lab.new_group(), "claim") as query:
        move(lab, query)
        query.start()
        query.triggers_until(lambda: len(query.checkpoint.sink) == 2, "two batches")
        once(monkeypatch, died_behind_it)
        with pytest.raises(Died):
            list(query.engine.trigger())
        query.crash()
        given = modern_member(lab, query.group, count) if count else []
        query.start()
        query.triggers_until(lambda: len(set(query.rows) | set(given)) == 120, "everything is read")
        assert sorted({*query.rows, *given}) == records(lab, EXPECTED)
        assert not {*query.rows} & {*given}, "the commit was made, so the other began behind it"
        assert ("spark-claim-ambiguous" in caplog.text) is bool(count)


def test_an_existing_placeholder_is_waited_for(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(membership_switcher, "RETRY_BACKOFF_MS", 50)
    monkeypatch.setattr(stream_planner, "FIRST_ASSIGNMENT_WAIT_MS", 100)
    group = lab.new_group()
    with query_of(lab, group, "claim") as query:
        plan = lab.plan(group, DECISIONS)
        with lab.process() as session:
            moving = lab.moving(session, plan)
            options = CopyOptions(plan_to_bytes(plan))
            steps = copy_steps(moving, options)
            lab.carry_out(moving, takewhile(lambda step: step.name != "remove the placeholder member", steps))
            assert lab.stands(group) == ("switched", "kafka")
            query.start()
            query.triggers_until(lambda: "the coordinator group does not accept" in caplog.text, "it is kept out")
            assert query.rows == []
            lab.carry_out(moving, copy_steps(moving, options))
        query.triggers_until(lambda: len(query.rows) == 120, "it is let in")
        assert query.rows == records(lab, EXPECTED)


def test_two_queries_are_members_in_kafka_and_one_reads_what_the_other_releases(lab: Lab) -> None:
    group = lab.new_group()
    with query_of(lab, group, "claim") as one, query_of(lab, group, "claim") as other:
        move(lab, one)
        one.start()
        one.triggers_until(lambda: len(one.checkpoint.sink) == 2, "it has everything")
        other.start()

        def both() -> bool:
            list(other.engine.trigger())
            return len({*one.rows, *other.rows}) == 120

        one.triggers_until(both, "both read to the end")
        assert sorted([*one.rows, *other.rows]) == records(lab, EXPECTED), "nobody reads what another has claimed"
        assert other.rows, "the other has a share"


def test_a_whole_group_is_one_querys_in_kafka_too(lab: Lab) -> None:
    group = lab.new_group()
    with query_of(lab, group, "claim", **{"consumer.threads": "all"}) as one, query_of(lab, group, "claim") as other:
        move(lab, one)
        one.start()
        one.triggers_until(lambda: one.rows, "it reads")
        other.start()

        def joins() -> bool:
            list(other.engine.trigger())
            return False

        with pytest.raises(GroupNotExclusive, match=r"members that have [12] partitions"):
            one.triggers_until(joins, "somebody else is there")


def test_a_run_of_available_now_waits_and_then_reports_when_to_start_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_planner, "AVAILABLE_NOW_ASSIGNMENT_WAIT_MS", 600)
    with query_of(lab, lab.new_group(), "claim") as query:
        move(lab, query, stop_after=Phase.VERIFIED)
        engine = query.start(available_now=True)
        with pytest.raises(UnavailableError, match=r"would leave records unread: start the query again"):
            list(engine.trigger())


def test_a_query_reports_in_its_progress_that_it_waits(lab: Lab) -> None:
    with query_of(lab, lab.new_group(), "claim") as query:
        query.start()
        query.triggers_until(lambda: len(query.checkpoint.sink) == 2, "two batches")
        move(lab, query, stop_after=Phase.VERIFIED)
        query.triggers_until(
            lambda: decode(query.engine.last_planned_offset(), query.group).stats.waiting_for_migration, "it says so"
        )
        batches = len(query.checkpoint.offsets)
        shown = {
            "sources": [
                {"description": "", "endOffset": query.engine.last_planned_offset(), "latestOffset": {"t": {"0": 50}}}
            ]
        }
        found = lag(shown | {"id": "i", "runId": "r", "timestamp": "", "batchId": batches}).metrics
        assert (found["waitingForMigration"], found["ownedPartitions"]) == (1, 0)
        list(query.engine.trigger())
        assert len(query.checkpoint.offsets) == batches, "once"
        move(lab, query, resume=True)
        query.triggers_until(lambda: len(query.rows) == 120, "it goes on")
        assert not decode(query.engine.last_planned_offset(), query.group).stats.waiting_for_migration
