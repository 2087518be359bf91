"""What counts as a difference between a plan and the group as it is."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.migration.inspect.group_snapshot import CommittedOffset, OwnerSnapshot, PartitionSnapshot
from bridge.migration.offsets.provenance import Provenance, format_provenance
from bridge.migration.plan.decisions import OffsetConvention
from bridge.migration.plan.plan_drift import drift_lines, find_drift, unknown_broker_data
from tests.migration.group_snapshots import at_end, member, partition, plan, seen
from zkconsumer.admin.log_ranges import LogRange

OWN = format_provenance(Provenance("m1", 2, 3))
OTHERS = format_provenance(Provenance("m0", 2, 3))


def drift(before: list[PartitionSnapshot], after: list[PartitionSnapshot], **more: Any) -> list[str]:
    return drift_lines(find_drift(plan(*before, members=(member(),)), seen(*after, **more)))


def test_members_that_leave_and_logs_that_grow_are_no_drift() -> None:
    before = at_end(owner=OwnerSnapshot("g1_a-0", "scala"))
    after = partition(0, 100, log=LogRange(50, 1_000))
    assert plan(before).convention is OffsetConvention.NEXT
    assert drift([before], [after], members=(), at_ms=99) == []


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (partition(0, 101, version=4, log=LogRange(10, 101)),
         "ZooKeeper had 100 (version 3) and has 101 (version 4)"),
        (partition(0, 100, version=4), "ZooKeeper had 100 (version 3) and has 100 (version 4)"),
        (partition(0, 99, version=4),
         "ZooKeeper had 100 (version 3) and has 99 (version 4): it went back, as when a process resumes from a long "
         "pause and writes its old offset. To start at 100 nevertheless, make a new plan with --offset clicks:0=100"),
        (partition(0, None), "ZooKeeper had 100 (version 3) and has no offset"),
        (partition(0, None, error="x"), "ZooKeeper had 100 (version 3) and has no number (version 3)"),
        (at_end(kafka=CommittedOffset(5)), "Kafka had none and has 5"),
        (at_end(kafka=CommittedOffset(100, OTHERS)), "Kafka had none and has 100"),
        (partition(0, 100, log=LogRange(101, 200)), "the planned 100 is not in the log any more (101 to 200)"),
    ],
)  # fmt: skip
def test_changes_that_are_drift(after: PartitionSnapshot, words: str) -> None:
    assert drift([at_end()], [after]) == [f"clicks/0: {words}"]


def test_data_that_brokers_do_not_return_are_no_drift() -> None:
    """An unavailable leader is no changed offset: the comparison waits for it."""
    silent = partition(1, 100, log="nobody leads it")
    assert drift([at_end()], [partition(0, 100, log="nobody leads it")]) == []
    assert unknown_broker_data(seen(at_end())) == ""
    assert unknown_broker_data(seen(at_end(), silent)) == "the logs of clicks/1: nobody leads it"
    asleep = seen(at_end(), kafka_error="no broker answers")
    assert unknown_broker_data(asleep) == "what Kafka has stored for group g1: no broker answers"


def test_a_value_of_this_migration_in_kafka_is_no_drift() -> None:
    assert drift([at_end()], [at_end(kafka=CommittedOffset(100, OWN))]) == []
    assert drift([at_end(kafka=CommittedOffset(7))], [at_end(kafka=CommittedOffset(100, OWN))]) == []


def test_a_value_that_an_application_wrote_over_ours_is_drift() -> None:
    assert drift([at_end(kafka=CommittedOffset(7))], [at_end(kafka=CommittedOffset(8))]) == [
        "clicks/0: Kafka had 7 and has 8"
    ]


def test_partitions_that_came_and_went() -> None:
    assert drift([at_end(0), at_end(1)], [at_end(0), at_end(2)]) == [
        "clicks/1: it does not exist any more",
        "clicks/2: it was created after the plan",
    ]


def test_a_long_list_is_cut() -> None:
    lines = drift([at_end(number) for number in range(30)], [at_end(99)])
    assert len(lines) == 21
    assert lines[-1] == "and 11 more"
