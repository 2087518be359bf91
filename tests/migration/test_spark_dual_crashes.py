"""A Spark query dies at each of its crash points while its group moves with members in it, and is started again.

    kafka        it dies at *switched*, members read its share, it is started there
    out          it dies in ZooKeeper's group, and is started at *switched*
    back         it dies at *switched*, and is started in ZooKeeper's group, where the group was moved back
    completed    it dies at *completed*, and is started there

In all other phases it holds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from tests.micro_batch_engine import AFTER_CLAIM, AFTER_COMMIT_LOG, AFTER_SINK, AFTER_WAL
from tests.migration.dual_spark_query import DualSparkGroup, company
from tests.migration.migrating_connectors import Dual, dual, wait_until

__all__ = ["dual"]

pytestmark = pytest.mark.timeout(300)

POINTS = [AFTER_WAL, AFTER_CLAIM, AFTER_SINK, AFTER_COMMIT_LOG]
WAYS = ["kafka", "out", "back", "completed"]
BATCH = 12
QUICK = {("kafka", AFTER_CLAIM), ("out", AFTER_WAL), ("back", AFTER_SINK), ("completed", AFTER_COMMIT_LOG)}
"""With ``claim`` these are played every time, and all others nightly."""


def cells() -> Iterator[object]:
    for mode, way, point in product(["claim", "afterBatch"], WAYS, POINTS):
        marks = () if mode == "claim" and (way, point) in QUICK else pytest.mark.nightly
        yield pytest.param(mode, way, point, marks=marks)


def die(group: DualSparkGroup, point: str) -> None:
    """In the next batch that has anything; members read on what it had."""
    group.reads_on("it reads before it dies")
    reached = ""
    while reached != point:
        for reached in group.query.engine.trigger():
            if reached == point:
                break
    group.query.crash()


def others_read_all(group: DualSparkGroup) -> None:
    """Members are given something of every partition."""
    before = [len(reader.read) for reader in group.readers]

    def read() -> bool:
        new = [record for at, reader in zip(before, group.readers, strict=True) for record in reader.read[at:]]
        return len({partition for partition, _ in new}) == group.dual.partitions

    wait_until(read, "members read every partition")


def live_through(group: DualSparkGroup, way: str, point: str) -> None:
    group.plan()
    if way != "out":
        group.run("apply")
        group.reads_on("in Kafka's group")
    if way == "completed":
        group.run("complete")
    die(group, point)
    if way == "out":
        group.run("apply")
    elif way == "back":
        group.run("rollback")
    others_read_all(group)
    group.query.start()
    group.reads_on("it goes on")
    # A batch that is run again needs no member where nothing is claimed.
    there = lambda: group.query.members and group.query.is_in_kafka() is (way != "back")  # noqa: E731
    group.query.triggers_until(there, "it is where it belongs")
    group.end()


@pytest.mark.parametrize(("mode", "way", "point"), list(cells()))
def test_nothing_is_lost_and_no_other_member_reads_a_claimed_range(dual: Dual, mode: str, way: str, point: str) -> None:
    with company(dual, mode) as group:
        group.begin()
        live_through(group, way, point)
        rows, given = group.query_read(), group.members_read()
        assert rows == sorted(set(rows)), "the sink has nothing twice"
        assert given == sorted(set(given)), "members have nothing twice"
        assert sorted({*rows, *given}) == sorted(group.load.written)
        both = len({*rows} & {*given})
        assert both == 0 if mode == "claim" else both <= BATCH
