"""Which ranges a batch reads, and what it says when that cannot be: on worlds in memory."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from tests.admin_fixtures import doors
from tests.transactional_records import ABORT, Transactions
from zkconsumer.admin.admin_session import AdminDependencies
from zkconsumer.errors import PreconditionFailed, UsageError
from zkconsumer.types import TopicPartition

pytest.importorskip("pyspark", reason="the data source needs the extra [spark]")

from pyspark.sql.datasource import InputPartition

from bridge.spark.decode.cluster_connections import ClusterAddress, ClusterConnectionPool, ClusterConnections
from bridge.spark.decode.offset_ranges import OffsetRange
from bridge.spark.decode.range_partition import RangePartition, read_partition
from bridge.spark.options import read_options
from bridge.spark.source.batch_reader import ZkConsumerBatchReader, plan_batch
from bridge.spark.source.tasks import cut_into_tasks
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.zk import paths

HOUR_MS = 3_600_000


@pytest.fixture
def filled() -> Iterator[FakeEnvironment]:
    """Two topics: orders/0 holds 10 to 29 (one each ms from 1010 on), orders/1 0 to 4; refunds/0 is empty."""
    with FakeEnvironment() as world:
        world.create_topic("orders", 2)
        world.create_topic("refunds", 1)
        for offset in range(30):
            world.cluster.append("orders", 0, [b"v"], timestamp_ms=1000 + offset)
        world.cluster.append("orders", 1, [b"v"] * 5, timestamp_ms=1000)
        world.cluster.delete_before("orders", 0, 10)
        yield world


def plan(world: FakeEnvironment, options: Mapping[str, Any]) -> list[RangePartition]:
    given = {"zookeeper.connect": ADDRESS, **{name: str(value) for name, value in options.items()}}
    return plan_batch(read_options(given, is_stream=False), ("offset",), doors(world))


def ranges(world: FakeEnvironment, **options: Any) -> list[tuple[str, int, int]]:
    options = {"subscribe": "orders", **options} if "assign" not in options else options
    return [(str(p.wanted.tp), p.wanted.first, p.wanted.end) for p in plan(world, options)]


def stand(world: FakeEnvironment, offsets: Mapping[int, int], group: str = "g") -> None:
    for partition, offset in offsets.items():
        path = paths.offset(group, TopicPartition("orders", partition))
        world.zookeeper.ensure(path, str(offset).encode())


def test_a_batch_waits_for_zookeeper_as_long_as_the_option_says(filled: FakeEnvironment) -> None:
    waited: list[int] = []

    def store(connect: str, session_timeout_ms: int) -> Any:
        made = filled.store(connect, session_timeout_ms)
        start = made.start
        made.start = lambda timeout_ms: [waited.append(timeout_ms), start(timeout_ms)]  # type: ignore[method-assign]
        return made

    for more in ({}, {"zookeeper.connection.timeout.ms": "700"}):
        given = {"zookeeper.connect": ADDRESS, "subscribe": "orders", **more}
        reached = AdminDependencies(store=store, connect=filled.cluster.connect)
        plan_batch(read_options(given, is_stream=False), ("offset",), reached)
    assert waited == [6000, 700]


def test_without_a_group_all_that_there_is_is_read(filled: FakeEnvironment) -> None:
    assert ranges(filled) == [("orders/0", 10, 30), ("orders/1", 0, 5)]


def test_with_a_group_it_begins_where_the_group_stands(filled: FakeEnvironment) -> None:
    stand(filled, {0: 17, 1: 5})
    assert ranges(filled, **{"group.id": "g"}) == [("orders/0", 17, 30)]
    stand(filled, {0: 17, 1: 4}, "last")
    assert ranges(filled, **{"group.id": "last", "zk.offset.convention": "last-consumed"}) == [("orders/0", 18, 30)]


def test_a_group_behind_the_end_of_a_log_is_told(filled: FakeEnvironment) -> None:
    stand(filled, {0: 17, 1: 6})
    with pytest.raises(
        PreconditionFailed, match=r"orders/1: starts at 6, but the log ends at 5 \(was the topic created"
    ):
        ranges(filled, **{"group.id": "g"})
    assert ranges(filled, **{"group.id": "g"}, failOnDataLoss="false") == [("orders/0", 17, 30)]


def test_where_the_group_has_no_offset_the_reset_rule_holds(filled: FakeEnvironment) -> None:
    stand(filled, {0: 17})
    assert ranges(filled, **{"group.id": "g"}) == [("orders/0", 17, 30)]
    assert ranges(filled, **{"group.id": "g", "auto.offset.reset": "smallest"}) == [
        ("orders/0", 17, 30), ("orders/1", 0, 5),
    ]  # fmt: skip


def test_offsets_in_kafka_count_where_the_options_say_so(filled: FakeEnvironment) -> None:
    stand(filled, {0: 17, 1: 5})
    filled.cluster.create_topic("__consumer_offsets", 1)
    filled.zookeeper.ensure(paths.topic("__consumer_offsets"), b'{"version":1,"partitions":{"0":[0]}}')
    filled.cluster.commit("g", "orders", 0, 25)
    filled.cluster.commit("g", "orders", 1, 1)
    stored = {"group.id": "g", "offsets.storage": "kafka", "dual.commit.enabled": "false"}
    assert ranges(filled, **stored) == [("orders/0", 25, 30), ("orders/1", 1, 5)]


def test_a_group_without_offsets_is_told(filled: FakeEnvironment) -> None:
    with pytest.raises(PreconditionFailed, match=r"group nobody has no offset of any partition of orders.*startingOff"):
        ranges(filled, **{"group.id": "nobody"})


def test_offsets_and_their_words(filled: FakeEnvironment) -> None:
    both = {
        "startingOffsets": '{"orders": {"0": 12, "1": -2}}',
        "endingOffsets": '{"orders": {"0": 20, "1": -1}}',
    }
    assert ranges(filled, **both) == [("orders/0", 12, 20), ("orders/1", 0, 5)]


def test_a_committed_batch_ends_before_an_open_transaction(filled: FakeEnvironment) -> None:
    log = Transactions(filled.cluster, "orders")
    log.end_offset = filled.cluster.log_end("orders", 0)
    log.records(7, 3)
    [(_, first, end), other] = ranges(filled, **{"kafka.isolation.level": "read_committed"})
    assert ranges(filled) == [("orders/0", first, end + 3), other]
    log.end(7, ABORT)
    assert ranges(filled, **{"kafka.isolation.level": "read_committed"}) == [("orders/0", first, end + 4), other]


def test_an_end_before_the_start_of_the_log_is_lost_data(filled: FakeEnvironment) -> None:
    ended = {"assign": '{"orders": [0, 1]}', "endingOffsets": '{"orders": {"0": 5, "1": 3}}'}
    with pytest.raises(PreconditionFailed, match=r"orders/0: everything before 5 is requested, .* contains 10 to 29"):
        ranges(filled, **ended)
    assert ranges(filled, **ended, failOnDataLoss="false") == [("orders/1", 0, 3)]


def test_a_group_that_is_inside_of_an_open_transaction_has_nothing_to_read_there(filled: FakeEnvironment) -> None:
    log = Transactions(filled.cluster, "orders")
    log.end_offset = end = filled.cluster.log_end("orders", 0)
    log.records(7, 3)
    stand(filled, {0: end + 2, 1: 3})
    committed = {"group.id": "g", "kafka.isolation.level": "read_committed"}
    assert ranges(filled, **committed) == [("orders/1", 3, 5)]
    log.end(7, ABORT)
    assert ranges(filled, **committed) == [("orders/0", end + 2, end + 4), ("orders/1", 3, 5)]
    stand(filled, {0: end + 5})
    with pytest.raises(PreconditionFailed, match="was the topic created again"):
        ranges(filled, **committed)


def test_every_partition_must_be_named_and_no_other(filled: FakeEnvironment) -> None:
    with pytest.raises(UsageError, match=r"startingOffsets must name .*not name orders/1 .*names orders/7, which is"):
        ranges(filled, startingOffsets='{"orders": {"0": 12, "7": -2}}')
    with pytest.raises(UsageError, match=r"endingOffsetsByTimestamp must name .*does not name orders/1"):
        ranges(filled, endingOffsetsByTimestamp='{"orders": {"0": 12}}')


def test_times_become_offsets(filled: FakeEnvironment) -> None:
    assert ranges(filled, assign='{"orders": [0]}', startingTimestamp=1015, endingTimestamp=1020) == [
        ("orders/0", 15, 20)
    ]
    times = {"startingOffsetsByTimestamp": '{"orders": {"0": 1028, "1": 0}}'}
    assert ranges(filled, **times) == [("orders/0", 28, 30), ("orders/1", 0, 5)]


def test_a_time_behind_every_record(filled: FakeEnvironment) -> None:
    late = {"assign": '{"orders": [0]}', "startingTimestamp": HOUR_MS}
    with pytest.raises(UsageError, match="no record of orders/0 is as late as the starting time 3600000 ms since 1970"):
        ranges(filled, **late)
    assert ranges(filled, **late, startingOffsetsByTimestampStrategy="latest") == []
    assert ranges(filled, endingTimestamp=HOUR_MS) == [("orders/0", 10, 30), ("orders/1", 0, 5)]


def test_an_ending_time_on_a_log_without_times_is_refused() -> None:
    with FakeEnvironment(release="0.8.2.2") as world:
        world.create_topic("orders", 1)
        world.cluster.append("orders", 0, [b"v"] * 5)
        assert ranges(world) == [("orders/0", 0, 5)]
        with pytest.raises(UsageError, match=r"orders/0: the log has no times .* set endingOffsets"):
            ranges(world, endingTimestamp=HOUR_MS)


def test_what_the_log_does_not_hold_is_refused_or_left_out(
    filled: FakeEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    wide = {
        "assign": '{"orders": [0, 1]}',
        "startingOffsets": '{"orders": {"0": 3, "1": 7}}',
        "endingOffsets": '{"orders": {"0": 40, "1": 9}}',
    }
    with pytest.raises(PreconditionFailed, match=r"orders/0: 3 to 39 .* 10 to 29; orders/1: 7 to 8 .* 0 to 4.*failOn"):
        ranges(filled, **wide)
    with caplog.at_level(logging.WARNING):
        assert ranges(filled, **wide, failOnDataLoss="false") == [("orders/0", 10, 30)]
    assert [message for message in caplog.messages if message.startswith("data-lost")] == [
        "data-lost partition=orders/0 first=3 end=10 lost_offsets=7",
        "data-lost partition=orders/0 first=30 end=40 lost_offsets=10",
        "data-lost partition=orders/1 first=7 end=9 lost_offsets=2",
    ]


def test_a_range_the_wrong_way_round_is_refused(filled: FakeEnvironment) -> None:
    crossed = {"startingOffsets": '{"orders": {"0": 25, "1": 0}}', "endingOffsets": '{"orders": {"0": 20, "1": 0}}'}
    with pytest.raises(UsageError, match="start after their end: orders/0 starts at 25 and ends before 20"):
        ranges(filled, **crossed)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"subscribe": "orders,nothing"},
            "topic nothing does not exist at [^ ]*: correct subscribe, or create the topic",
        ),
        ({"topics": "order:1"}, r"topic order does not exist at [^ ]* \(did you mean orders\?\): correct topics"),
        ({"assign": '{"order": [0]}'}, r"topic order does not exist at .*\(did you mean orders\?\): correct assign"),
        ({"assign": '{"orders": [0, 9]}'}, "partition orders/9 does not exist at"),
        ({"subscribePattern": "x.*"}, "no topic at .* matches .*x.*"),
    ],
)
def test_what_is_not_there_is_told(filled: FakeEnvironment, options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        plan(filled, options)


def test_patterns_choose_topics(filled: FakeEnvironment) -> None:
    assert [str(p.wanted.tp) for p in plan(filled, {"subscribePattern": "or.*|ref.*"})] == ["orders/0", "orders/1"]
    assert plan(filled, {"subscribe.blacklist": "orders"}) == [], "refunds is empty"


def test_large_ranges_are_cut(filled: FakeEnvironment) -> None:
    assert ranges(filled, maxRecordsPerPartition=8)[:3] == [
        ("orders/0", 10, 16), ("orders/0", 16, 23), ("orders/0", 23, 30),
    ]  # fmt: skip
    assert len(ranges(filled, minPartitions=5)) == 5


def test_brokers_alone_are_enough(filled: FakeEnvironment) -> None:
    _, host, port = filled.cluster.addresses[0]
    options = read_options({"kafka.bootstrap.servers": f"{host}:{port}", "subscribe": "orders"}, is_stream=False)
    tasks = plan_batch(options, ("offset",), doors(filled))
    assert [(task.wanted.first, task.wanted.end) for task in tasks] == [(10, 30), (0, 5)]
    assert [(broker.host, broker.port) for broker in tasks[0].brokers] == [(host, port)]


def test_a_task_reads_what_was_planned(filled: FakeEnvironment) -> None:
    def open_(address: ClusterAddress) -> ClusterConnections:
        return ClusterConnections(lambda: address.brokers, filled.cluster.connect, address.client_id, SYSTEM_CLOCK)

    clusters = ClusterConnectionPool(open_)
    read = [
        batch.column("offset").to_pylist()
        for task in plan(filled, {"subscribe": "orders"})
        for batch in read_partition(task, clusters)
    ]
    assert read == [list(range(10, 30)), list(range(5))]
    assert list(read_partition(InputPartition(None), clusters)) == [], "what Spark makes of no partition at all"


def test_the_reader_travels_without_its_options() -> None:
    options = read_options({"zookeeper.connect": ADDRESS, "subscribe": "t"}, is_stream=False)
    reader = ZkConsumerBatchReader(options, ("value",))
    assert b"subscribe" not in pickle.dumps(reader)


# --- tasks --------------------------------------------------------------------------------------------------------


def cut(sizes: list[int], least: int | None, most: int | None) -> list[int]:
    made = [OffsetRange(TopicPartition("t", n), 100, 100 + size) for n, size in enumerate(sizes)]
    parts = cut_into_tasks(made, least, most)
    for whole in made:
        ends = [(part.first, part.end) for part in parts if part.tp == whole.tp]
        assert [high for _, high in ends[:-1]] == [low for low, _ in ends[1:]], "nothing is missing or twice"
        assert not ends or (ends[0][0], ends[-1][1]) == (whole.first, whole.end)
    return [part.end - part.first for part in parts]


@pytest.mark.parametrize(
    ("sizes", "least", "most", "expected"),
    [
        ([5, 0, 3], None, None, [5, 3]),
        ([], 4, 4, []),
        ([10], 3, None, [3, 3, 4]),
        ([1, 100], 4, None, [1, 33, 33, 34]),
        ([10, 10, 10], 2, None, [10, 10, 10]),
        ([10], None, 4, [3, 3, 4]),
        ([2], 5, None, [1, 1]),
    ],
)
def test_ranges_are_cut_as_spark_cuts_them(
    sizes: list[int], least: int | None, most: int | None, expected: list[int]
) -> None:
    assert cut(sizes, least, most) == expected
