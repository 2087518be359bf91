"""A query is started again with another list of topics: each record is read once, or an error says who must act."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from bridge.spark.group_membership import CommitMode
from bridge.spark.options import read_options
from bridge.spark.source.micro_batch_plan import LogBounds
from tests.micro_batch_engine import AFTER_CLAIM, AFTER_SINK, AFTER_WAL
from tests.unit.spark.test_spark_stream import Query, rows_of
from zkconsumer.errors import UnavailableError, UsageError
from zkconsumer.types import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
EVERYTHING = rows_of(T0, 0, 10) + rows_of(T1, 0, 10) + rows_of(U0, 0, 10)

MODES = pytest.mark.parametrize("mode", list(CommitMode))


def subscribe(query: Query, topics: str, mode: CommitMode, **options: str) -> None:
    """The options of the next start, and the partitions that its membership has then.

    ``topics``: names; or a pattern, with ``pattern="true"``.
    """
    kind = "subscribePattern" if options.pop("pattern", "") else "subscribe"
    given = {"zookeeper.connect": "zk:1", "group.id": "g", "auto.offset.reset": "smallest"}
    given |= {kind: topics, "group.offsets.commit": mode.value, **options}
    query.options = read_options(given, is_stream=True)
    names = set(topics.replace("|", ",").split(","))
    sizes = {topic: count for topic, count in {"t": 2, "u": 1}.items() if topic in names}
    query.group.remove_member("query")
    query.group.topics = sizes
    query.group.assignment = dict.fromkeys(query.group.partitions, "query")


def query_of(topics: str, mode: CommitMode, **options: str) -> Query:
    query = Query(topics={"t": 2, "u": 1})
    subscribe(query, topics, mode, **options)
    return query


def crash(query: Query, point: str) -> None:
    """The query dies at this point of its first batch."""
    for reached in query.start().trigger():
        if reached == point:
            return
    raise AssertionError(point)


def sorted_rows(*parts: Iterable[tuple[TopicPartition, int]]) -> list[tuple[TopicPartition, int]]:
    return sorted(row for part in parts for row in part)


@MODES
@pytest.mark.parametrize("pattern", ["", "true"])
@pytest.mark.parametrize("reset", ["smallest", "largest"])
def test_a_topic_that_is_added_is_read_from_its_start(mode: CommitMode, pattern: str, reset: str) -> None:
    query = query_of("t", mode, pattern=pattern)
    query.start().run()
    subscribe(query, "t|u" if pattern else "t,u", mode, pattern=pattern, **{"auto.offset.reset": reset})
    query.start().run()
    assert query.rows == EVERYTHING
    query.start().run()
    assert query.rows == EVERYTHING


@MODES
def test_a_topic_that_is_added_is_read_from_the_groups_offset_if_it_has_one(mode: CommitMode) -> None:
    query = query_of("t", mode)
    query.start().run()
    query.group.offsets[U0] = 7
    subscribe(query, "t,u", mode)
    query.start().run()
    assert query.rows == sorted_rows(rows_of(T0, 0, 10), rows_of(T1, 0, 10), rows_of(U0, 7, 10))


@MODES
@pytest.mark.parametrize("point", [AFTER_WAL, AFTER_CLAIM, AFTER_SINK])
def test_a_topic_is_added_while_a_batch_without_it_is_repeated(mode: CommitMode, point: str) -> None:
    query = query_of("t", mode)
    crash(query, point)
    subscribe(query, "t,u", mode)
    query.start().run()
    assert query.rows == EVERYTHING


@MODES
@pytest.mark.parametrize("point", [AFTER_WAL, AFTER_CLAIM, AFTER_SINK])
@pytest.mark.parametrize("pattern", ["", "true"])
def test_a_topic_is_removed_while_a_planned_batch_has_its_offsets(mode: CommitMode, point: str, pattern: str) -> None:
    """The batch reads what it may, the next one is an error, and with the topic nothing is lost or read twice."""
    names = "t|u" if pattern else "t,u"
    query = query_of(names, mode, pattern=pattern)
    crash(query, point)
    subscribe(query, "t", mode, pattern=pattern)
    words = "the topic was deleted, or the pattern" if pattern else "which the options no longer name: name it again"
    for _ in range(2):
        with pytest.raises(UnavailableError, match=rf"this query has read the topic u, .*{words}"):
            query.start().run()
        query.group.remove_member("query")
    subscribe(query, names, mode, pattern=pattern)
    query.start().run()
    assert query.rows == EVERYTHING


@MODES
@pytest.mark.parametrize("point", [AFTER_WAL, AFTER_CLAIM, AFTER_SINK])
def test_a_query_goes_on_without_the_topic_if_the_operator_allows_it_and_with_it_later(
    mode: CommitMode, point: str
) -> None:
    query = query_of("t,u", mode)
    crash(query, point)
    subscribe(query, "t", mode, failOnDataLoss="false")
    query.logs.ranges[T0] = LogBounds(0, 12)
    query.start().run()
    query.start().run()
    assert rows_of(T0, 0, 12) == [row for row in query.rows if row[0] == T0]
    subscribe(query, "t,u", mode)
    query.logs.ranges[U0] = LogBounds(0, 15)
    query.start().run()
    assert query.rows == sorted_rows(rows_of(T0, 0, 12), rows_of(T1, 0, 10), rows_of(U0, 0, 15))


@MODES
def test_a_topic_is_replaced_by_another_one(mode: CommitMode) -> None:
    query = query_of("t", mode)
    query.start().run()
    subscribe(query, "u", mode)
    with pytest.raises(UnavailableError, match="this query has read the topic t, which the options no longer name"):
        query.start().run()
    assert query.rows == rows_of(T0, 0, 10) + rows_of(T1, 0, 10)


def test_a_topic_that_is_added_and_does_not_exist_is_an_error_of_a_new_query() -> None:
    query = Query(topics={"t": 2})
    subscribe(query, "t", CommitMode.CLAIM)
    query.options = read_options(
        {"zookeeper.connect": "zk:1", "group.id": "g", "subscribe": "t,v"}, is_stream=True
    )  # fmt: skip
    with pytest.raises(UsageError, match="topic v does not exist in the cluster of zk:1: create it, correct the name"):
        query.start().run()
