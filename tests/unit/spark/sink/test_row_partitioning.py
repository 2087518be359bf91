"""Which partition a row gets, and where record sets end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the data source needs the extra [spark]")

import pyarrow as pa

from bridge.spark.sink.row_partitioning import (
    RECORD_OVERHEAD_BYTES,
    RECORD_SET_OVERHEAD_BYTES,
    STICKY_BYTES,
    PartitionRows,
    SinkRows,
    StickyPartitions,
)
from bridge.spark.sink.topic_partitions import PartitionCounts
from zkconsumer.errors import UsageError
from zkconsumer.wire.murmur2 import partition_of_key
from zkconsumer.wire.record_set_builder import build_record_set

HEADER_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
FIVE = PartitionCounts(5, (0, 1, 2, 3, 4))
LARGE = 1 << 30


def divided(
    columns: dict[str, Any], *, topic: str | None = "t", partitions: PartitionCounts = FIVE,
    sticky: StickyPartitions | None = None, set_bytes: int = LARGE, record_bytes: int = LARGE,
    headers: tuple[tuple[str, bytes | None], ...] = (),
) -> list[PartitionRows]:  # fmt: skip
    rows = SinkRows(pa.RecordBatch.from_pydict(columns), topic)
    made = rows.divide(
        lambda _: partitions, sticky or StickyPartitions(0), set_bytes, record_bytes, now_ms=7, headers=headers
    )
    return list(made)


def values(rows: Sequence[PartitionRows]) -> dict[tuple[str, int], list[bytes | None]]:
    found: dict[tuple[str, int], list[bytes | None]] = {}
    for each in rows:
        found.setdefault((each.tp.topic, each.tp.partition), []).extend(record.value for record in each.records(2))
    return found


def texts(count: int) -> pa.Array:
    return pa.array([str(number) for number in range(count)], pa.string())


def test_a_column_partition_wins_over_the_key_and_null_means_none() -> None:
    columns = {"value": texts(4), "key": pa.array([b"a", b"a", None, b"b"]), "partition": pa.array([0, None, 2, None])}
    assert values(divided(columns)) == {
        ("t", partition_of_key(b"a", 5)): [b"1"], ("t", partition_of_key(b"b", 5)): [b"3"], ("t", 2): [b"2"],
        ("t", 0): [b"0"],
    }  # fmt: skip


def test_keys_choose_among_all_partitions_and_others_among_those_with_a_leader() -> None:
    keys = pa.array([b"%d" % number for number in range(100)] + [None] * 100, pa.binary())
    some = PartitionCounts(5, (1, 3))
    found = values(divided({"value": texts(200), "key": keys}, partitions=some))
    of_keys = {partition for (_, partition), here in found.items() if any(int(value or 0) < 100 for value in here)}
    of_others = {partition for (_, partition), here in found.items() if any(int(value or 0) >= 100 for value in here)}
    assert of_keys == {0, 1, 2, 3, 4}
    assert of_others <= {1, 3}


def test_without_any_leader_rows_are_divided_among_all_partitions() -> None:
    assert values(divided({"value": texts(1)}, partitions=PartitionCounts(2, ()))) == {("t", 0): [b"0"]}


def test_a_sticky_partition_changes_after_its_bytes_also_across_batches() -> None:
    sticky = StickyPartitions(1)
    size = STICKY_BYTES // 4 - RECORD_OVERHEAD_BYTES
    columns = {"value": pa.array([b"x" * size] * 6, pa.binary())}
    counts = [
        {partition: len(here) for (_, partition), here in values(divided(columns, sticky=sticky)).items()}
        for _ in range(3)
    ]
    # 4 rows a partition: 1 1 1 1 2 2 | 2 2 3 3 3 3 | 4 4 4 4 0 0
    assert counts == [{1: 4, 2: 2}, {2: 2, 3: 4}, {4: 4, 0: 2}]


def test_rows_of_several_topics_keep_their_order_in_each_partition() -> None:
    generator = random.Random(1)
    topics = [generator.choice("abc") for _ in range(500)]
    numbers = [generator.randrange(5) for _ in range(500)]
    columns = {"value": texts(500), "topic": pa.array(topics), "partition": pa.array(numbers, pa.int32())}
    expected: dict[tuple[str, int], list[bytes]] = {}
    for at, place in enumerate(zip(topics, numbers, strict=True)):
        expected.setdefault(place, []).append(b"%d" % at)
    assert values(divided(columns, topic=None)) == expected


def test_the_option_topic_wins_over_the_column() -> None:
    columns = {"value": texts(1), "topic": pa.array(["other"]), "partition": pa.array([0])}
    assert values(divided(columns, topic="t")) == {("t", 0): [b"0"]}


@pytest.mark.parametrize("set_bytes", [200, 1_000, 5_000])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_no_record_set_is_larger_than_its_bound_or_than_the_limit(set_bytes: int, magic: int) -> None:
    generator = random.Random(set_bytes)
    count = 300
    columns = {
        "value": pa.array([b"v" * generator.randrange(90) for _ in range(count)], pa.binary()),
        "key": pa.array([generator.choice([None, b"k" * generator.randrange(9)]) for _ in range(count)], pa.binary()),
        "partition": pa.array([generator.randrange(2) for _ in range(count)]),
    }
    sets = divided(columns, set_bytes=set_bytes)
    assert sum(map(len, sets)) == count
    for each in sets:
        assert len(build_record_set(each.records(magic), magic)) <= each.data_bytes
        assert each.data_bytes <= set_bytes or len(each) == 1
    # Each limit is used: with one row more a record set would be too large.
    together = [one.data_bytes + two.row_sizes()[0].as_py() for one, two in pairwise(sets) if one.tp == two.tp]
    assert together
    assert min(together) > set_bytes


def test_headers_count_in_the_size() -> None:
    own = pa.array([None, [{"key": "a" * 50, "value": b"b" * 500}, {"key": "c", "value": None}], []], HEADER_TYPE)
    columns = {"value": texts(3), "headers": own, "source": pa.array([None, "s" * 70, None]), "partition": [0, 0, 0]}
    extra = (("zkconsumer.query", b"q" * 36),)
    [whole] = divided(columns, headers=extra)
    assert len(build_record_set(whole.records(2), 2)) <= whole.data_bytes
    sizes = [size - RECORD_OVERHEAD_BYTES for size in whole.row_sizes().to_pylist()]
    per_row = len("zkconsumer.query") + 36 + 10 + 1 + len("zkconsumer.source") + 10
    assert sizes == [per_row, per_row + 50 + 500 + 10 + 1 + 10 + 70, per_row]
    [staged] = divided({**columns, "stage": pa.array(["fetch", None, "sink"])}, headers=extra)
    assert len(build_record_set(staged.records(2), 2)) <= staged.data_bytes
    added = [
        big - small for big, small in zip(staged.row_sizes().to_pylist(), whole.row_sizes().to_pylist(), strict=True)
    ]
    assert added == [len("zkconsumer.stage") + 10 + length for length in (5, 0, 4)]


def test_a_row_that_no_request_can_have_is_an_error() -> None:
    columns = {"value": pa.array([b"", b"x" * 3_000], pa.binary())}
    with pytest.raises(UsageError, match=r"3040 bytes .*kafka\.max\.request\.size allows 2939"):
        divided(columns, record_bytes=3_000)
    assert len(divided(columns, record_bytes=3_000 + RECORD_OVERHEAD_BYTES + RECORD_SET_OVERHEAD_BYTES)) == 1


@pytest.mark.parametrize(("number", "named"), [(5, 5), (-1, -1)])
def test_a_partition_that_the_topic_does_not_have_is_an_error(number: int, named: int) -> None:
    with pytest.raises(UsageError, match=f"partition {named}, and topic t has partitions 0 to 4"):
        divided({"value": texts(2), "partition": pa.array([0, number])})


def test_a_row_without_a_topic_is_an_error() -> None:
    with pytest.raises(UsageError, match="column topic is null"):
        divided({"value": texts(2), "topic": pa.array(["t", None])}, topic=None)


def test_a_header_without_a_key_is_an_error() -> None:
    own = pa.array([[{"key": None, "value": b"1"}]], HEADER_TYPE)
    [rows] = divided({"value": texts(1), "headers": own})
    with pytest.raises(UsageError, match="t/0: a header has no key"):
        rows.records(2)


def test_halves_have_all_rows_and_bounds_of_their_own() -> None:
    [whole] = divided({"value": texts(5), "partition": pa.array([2] * 5)})
    first, second = whole.halves()
    assert [record.value for half in (first, second) for record in half.records(2)] == [b"0", b"1", b"2", b"3", b"4"]
    assert (len(first), len(second)) == (2, 3)
    assert first.data_bytes + second.data_bytes == whole.data_bytes + RECORD_SET_OVERHEAD_BYTES


def test_rows_that_wait_do_not_keep_the_whole_batch_in_memory() -> None:
    columns = {"value": pa.array([b"x" * 10_000] * 100, pa.binary()), "partition": pa.array([0] * 99 + [1])}
    small = divided(columns)[-1]
    assert (small.tp.partition, len(small)) == (1, 1)
    assert sum(buffer.size for buffer in small.table.column("value").buffers() if buffer is not None) < 20_000


def test_times_before_1970_and_fractions_are_rounded_down() -> None:
    times = pa.array([-1, 1_999, None], pa.timestamp("us", "UTC"))
    [rows] = divided({"value": texts(3), "timestamp": times, "partition": pa.array([0] * 3)})
    assert [record.timestamp for record in rows.records(2)] == [-1, 1, 7]


def test_large_types_of_arrow_are_written_too() -> None:
    columns = {"value": pa.array(["v"], pa.large_string()), "key": pa.array([b"k"], pa.large_binary())}
    assert list(values(divided(columns)).values()) == [[b"v"]]
