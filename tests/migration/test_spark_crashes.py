"""A Spark query dies at each of its crash points, its group moves, another member reads, it is started again.

kafka    it dies in Kafka's group, and is started there
out      it dies in ZooKeeper's group, and is started in Kafka's
back     it dies in Kafka's group, and is started in ZooKeeper's, where the group was moved back
fenced   it dies in ZooKeeper's group, and is started between the two
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from bridge.migration.control.phases import Phase
from tests.micro_batch_engine import AFTER_CLAIM, AFTER_COMMIT_LOG, AFTER_SINK, AFTER_WAL, OutputRow
from tests.migration.migrating_spark_query import Query, modern_member, move, move_back, old_member, query_of, records
from tests.migration.migration_write_faults import EXPECTED, Lab, lab

__all__ = ["lab"]

POINTS = [AFTER_WAL, AFTER_CLAIM, AFTER_SINK, AFTER_COMMIT_LOG]
WAYS = ["kafka", "out", "back", "fenced"]
BATCH = 12
SHORT, LONG = 2, 9
"""Records that a member reads meanwhile: less than a batch has of a partition, and more."""


QUICK = {("out", point) for point in POINTS} | {("kafka", AFTER_CLAIM), ("back", AFTER_WAL), ("fenced", AFTER_CLAIM)}
"""With ``claim`` and ``LONG`` these are played every time, and all others nightly."""


def cells() -> Iterator[object]:
    for mode, way, point, count in product(["claim", "afterBatch"], WAYS, POINTS, [SHORT, LONG]):
        is_quick = mode == "claim" and count == LONG and (way, point) in QUICK
        yield pytest.param(mode, way, point, count, marks=() if is_quick else pytest.mark.nightly)


def die(query: Query, point: str) -> None:
    """In the third batch."""
    engine = query.start()
    query.triggers_until(lambda: len(query.checkpoint.offsets) >= 2, "two batches")
    for reached in engine.trigger():
        if reached == point:
            break
    query.crash()


def live_through(lab: Lab, query: Query, way: str, point: str, count: int) -> list[OutputRow]:
    """Everything up to the end of the log; what the other member was given."""
    if way in ("kafka", "back"):
        move(lab, query)
    die(query, point)
    if way == "kafka":
        given = modern_member(lab, query.group, count)
        query.start()
    elif way == "out":
        move(lab, query)
        given = modern_member(lab, query.group, count)
        query.start()
    elif way == "back":
        move_back(lab, query)
        given = old_member(lab, query.group, count)
        query.start()
    else:
        move(lab, query, stop_after=Phase.VERIFIED)
        query.start()
        query.triggers_until(query.waits, "it waits")
        move(lab, query, resume=True)
        given = []
    query.triggers_until(lambda: len(set(query.rows) | set(given)) == 120, "everything is read")
    return given


@pytest.mark.parametrize(("mode", "way", "point", "count"), list(cells()))
def test_nothing_is_lost_and_no_other_member_reads_a_claimed_range(
    lab: Lab, mode: str, way: str, point: str, count: int
) -> None:
    with query_of(lab, lab.new_group(), mode) as query:
        given = live_through(lab, query, way, point, count)
        rows = query.rows
        assert len(set(rows)) == len(rows), "the sink has nothing twice"
        wanted = set(records(lab, EXPECTED))
        assert (wanted - {*rows, *given}, {*rows} - wanted, {*given} - wanted) == (set(), set(), set())
        both = len({*rows} & {*given})
        assert both == 0 if mode == "claim" else both <= BATCH
