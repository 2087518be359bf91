"""``ConsumerRecord`` and the iteration over ``FetchedRecords``: the same with the compiled module and without it."""

from __future__ import annotations

import gc
import pickle
import weakref
from itertools import groupby
from typing import Any

import pytest

from zkconsumer.kafka.fetch.fetched_records import BatchEpochs, ConsumerRecord, FetchedRecords, RecordSlice
from zkconsumer.kafka.record_columns import BatchColumns, RecordColumns, TableColumns
from zkconsumer.types import TopicPartition
from zkconsumer.wire import compiled
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.record_tables import ROW, TableReader

TP = TopicPartition("clicks", 3)
HEADERS = (("trace", b"1"), ("empty", None))
RECORDS = [
    Record(10, 1_700_000_000_000, 0, b"k0", b"v0", HEADERS),
    Record(11, 1_700_000_000_001, 0, None, b"v1", ()),
    Record(12, 1_700_000_000_002, 0, b"", None, ()),
    Record(13, 1_700_000_000_003, 0, b"k3", b"", HEADERS[:1]),
]
NO_EPOCH = BatchEpochs([0], [None])

needs_compiled = pytest.mark.skipif(compiled.CONSUMER_RECORDS is None, reason="the compiled module is not in use")


def table_of(records: list[Record]) -> TableColumns:
    """The records as a compiled table."""
    assert compiled.RECORD_DECODER is not None
    # A batch has offsets of 32 bits, from its first one on.
    batches = groupby(records, lambda record: record.offset >> 31)
    data = memoryview(b"".join(build_record_set(list(batch), 2) for _, batch in batches))
    [table] = TableReader(compiled.RECORD_DECODER, data, 0, True).tables(bytearray(100 * ROW.size))
    return TableColumns(table.data, bytes(memoryview(table.rows)[: table.size * ROW.size]), table.size)


def sources() -> list[Any]:
    made: list[Any] = [pytest.param(RecordColumns, id="decoded one by one")]
    if compiled.RECORD_DECODER is not None:
        made.append(pytest.param(table_of, id="table"))
    return made


def fetched(columns: BatchColumns, epochs: BatchEpochs = NO_EPOCH, **objects: list[Any]) -> FetchedRecords:
    return FetchedRecords(TP, [RecordSlice(columns, epochs, **objects)])


@pytest.mark.parametrize("source", sources())
def test_the_records_have_all_fields(source: Any) -> None:
    found = list(fetched(source(RECORDS), BatchEpochs([0], [7])))
    assert [(each.topic, each.partition, each.offset, each.leader_epoch) for each in found] == [
        ("clicks", 3, offset, 7) for offset in range(10, 14)
    ]
    assert [(each.timestamp - 1_700_000_000_000, each.timestamp_type) for each in found] == [(n, 0) for n in range(4)]
    assert [each.key for each in found] == [b"k0", None, b"", b"k3"]
    assert [each.value for each in found] == [b"v0", b"v1", None, b""]
    assert [each.headers for each in found] == [HEADERS, (), (), HEADERS[:1]]
    assert [(each.serialized_key_size, each.serialized_value_size) for each in found] == [
        (2, 2), (-1, 2), (0, -1), (2, 0),
    ]  # fmt: skip


@pytest.mark.parametrize("source", sources())
def test_one_record_is_the_same_as_in_an_iteration(source: Any) -> None:
    records = fetched(source(RECORDS))
    assert [records[index] for index in range(4)] == list(records)
    assert records[-1].offset == 13


@pytest.mark.parametrize("source", sources())
def test_objects_of_deserializers_replace_the_bytes_and_the_sizes_stay(source: Any) -> None:
    keys, values = [object(), None, 2, 3], ["a", "b", None, []]
    found = list(fetched(source(RECORDS), keys=keys, values=values))
    assert [each.key for each in found] == keys
    assert [each.value for each in found] == values
    assert [each.serialized_key_size for each in found] == [2, -1, 0, 2]
    assert found[0].headers == HEADERS


@pytest.mark.parametrize("source", sources())
@pytest.mark.parametrize(
    ("starts", "epochs", "expected"),
    [
        ([0], [5], [5, 5, 5, 5]),
        ([0, 12], [5, 6], [5, 5, 6, 6]),
        ([0, 5, 11, 13], [3, 4, 5, None], [4, 5, 5, None]),
        ([0, 11, 100], [4, 5, 6], [4, 5, 5, 5]),
        ([], [], [None, None, None, None]),
    ],
)
def test_each_record_has_the_epoch_of_its_batch(
    source: Any, starts: list[int], epochs: list[int | None], expected: list[int | None]
) -> None:
    assert [each.leader_epoch for each in fetched(source(RECORDS), BatchEpochs(starts, epochs))] == expected


def a_record(**changes: Any) -> ConsumerRecord:
    fields: dict[str, Any] = {
        "topic": "t", "partition": 1, "offset": 2, "timestamp": 3, "timestamp_type": 1, "key": b"k", "value": "v",
        "headers": HEADERS, "leader_epoch": 4, "serialized_key_size": 1, "serialized_value_size": 9,
    }  # fmt: skip
    return ConsumerRecord(**{**fields, **changes})


def test_records_are_equal_if_all_fields_are() -> None:
    assert a_record() == a_record()
    assert a_record() != a_record(value="w")
    assert a_record() != a_record(leader_epoch=None)
    assert a_record() != a_record(serialized_value_size=8)
    assert a_record() != ("t", 1, 2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(a_record())


def test_the_class_has_type_parameters_for_key_and_value() -> None:
    assert ConsumerRecord[str, int].__args__ == (str, int)  # type: ignore[attr-defined]


def test_the_text_names_every_field() -> None:
    assert repr(a_record()) == (
        "ConsumerRecord(topic='t', partition=1, offset=2, timestamp=3, timestamp_type=1, key=b'k', value='v', "
        "headers=(('trace', b'1'), ('empty', None)), leader_epoch=4, serialized_key_size=1, serialized_value_size=9)"
    )


def test_a_pickled_record_is_the_same() -> None:
    assert pickle.loads(pickle.dumps(a_record())) == a_record()
    [first, *_] = fetched(sources()[-1].values[0](RECORDS))
    assert pickle.loads(pickle.dumps(first)) == first


@needs_compiled
def test_a_kept_record_does_not_keep_the_bytes_of_the_fetch() -> None:
    class Response(bytearray):
        """Can be referred to weakly."""

    table = table_of(RECORDS)
    response = Response(bytes(table.data))
    alive = weakref.ref(response)
    records = fetched(TableColumns(memoryview(response), table.rows, len(table)))
    kept = list(records)
    first = records[0]
    del records, response
    gc.collect()
    assert alive() is None
    assert [each.value for each in kept] == [b"v0", b"v1", None, b""]
    assert kept[0].headers == first.headers == HEADERS


@needs_compiled
def test_records_that_are_kept_when_the_iteration_is_given_up_are_complete() -> None:
    iterator = iter(fetched(table_of(RECORDS)))
    kept = [next(iterator), next(iterator)]
    del iterator
    assert [(each.key, each.value, each.headers) for each in kept] == [(b"k0", b"v0", HEADERS), (None, b"v1", ())]


@needs_compiled
def test_an_object_is_used_again_only_if_no_one_has_it() -> None:
    seen = [id(each) for each in fetched(table_of(RECORDS))]
    assert len(set(seen)) == 2
    assert len({id(each) for each in list(fetched(table_of(RECORDS)))}) == 4


@needs_compiled
def test_a_part_of_a_table_has_the_same_records_in_each_form() -> None:
    table = table_of(RECORDS)
    part = TableColumns(table.data, table.rows, 2, first=1)
    records = fetched(part)
    assert list(part.records(0, 2)) == RECORDS[1:3]
    assert [each.offset for each in records] == list(records.offsets) == [each.offset for each in RECORDS[1:3]]
    assert [each.value for each in records] == list(records.values) == [each.value for each in RECORDS[1:3]]
    assert [each.headers for each in records] == [each.headers for each in RECORDS[1:3]]
    assert records[1].offset == RECORDS[2].offset


@needs_compiled
def test_the_objects_of_a_part_belong_to_its_rows() -> None:
    assert compiled.CONSUMER_RECORDS is not None
    table = table_of(RECORDS)
    make = compiled.CONSUMER_RECORDS.RecordIterator
    iterator = make("t", 0, None, table.data, table.rows, 1, 1, 3, ["a", "b", "c"], None)
    assert [(each.offset, each.key) for each in iterator] == [(RECORDS[2].offset, "b"), (RECORDS[3].offset, "c")]


@needs_compiled
def test_a_table_that_does_not_fit_is_refused() -> None:
    assert compiled.CONSUMER_RECORDS is not None
    table = table_of(RECORDS)
    make = compiled.CONSUMER_RECORDS.RecordIterator
    for arguments, error in (
        ((table.data, table.rows, 0, 0, 5, None, None), "the table has fewer rows"),
        ((table.data, table.rows, 1, 0, 4, None, None), "the table has fewer rows"),
        ((table.data, table.rows, 0, 3, 2, None, None), "the bounds are not ascending"),
        ((table.data, table.rows, 0, -1, 2, None, None), "the bounds are not ascending"),
        ((table.data, table.rows, -1, 1, 2, None, None), "the bounds are not ascending"),
        ((table.data, table.rows, 2**62, 0, 2**62, None, None), "the bounds are not ascending"),
        ((b"", table.rows, 0, 0, 4, None, None), "a row whose fields are outside of the data"),
        ((table.data, table.rows, 0, 0, 4, [1], None), "a list with an object for each row"),
        ((table.data, table.rows, 0, 0, 4, None, (1, 2, 3, 4)), "a list with an object for each row"),
    ):
        with pytest.raises(ValueError, match=error):
            list(make("t", 0, None, *arguments))


@needs_compiled
def test_a_list_of_objects_that_became_shorter_ends_the_iteration() -> None:
    assert compiled.CONSUMER_RECORDS is not None
    table, keys = table_of(RECORDS), [1, 2, 3, 4]
    iterator = compiled.CONSUMER_RECORDS.RecordIterator("t", 0, None, table.data, table.rows, 0, 0, 4, keys, None)
    next(iterator)
    keys.clear()
    with pytest.raises(IndexError):
        next(iterator)


@needs_compiled
def test_an_iterator_that_is_used_while_it_makes_a_record_raises() -> None:
    assert compiled.CONSUMER_RECORDS is not None
    table = table_of(RECORDS)

    class Nested:
        def __del__(self) -> None:
            next(iterator, None)

    keys: list[Any] = [Nested(), Nested(), 2, 3]
    iterator = compiled.CONSUMER_RECORDS.RecordIterator("t", 0, None, table.data, table.rows, 0, 0, 4, keys, None)
    next(iterator)
    next(iterator)
    keys[0] = keys[1] = None
    with pytest.raises(RuntimeError, match="used while it was making a record"):
        list(iterator)


ALIKE = [Record(n, 0, 0, b"key-%03d" % n, b"value-%03d" % n, ()) for n in range(100)]
"""Records whose fields have the same sizes: the iteration uses the memory of a field again if nothing refers to it."""


@pytest.mark.parametrize("source", sources())
def test_a_field_that_the_program_keeps_stays_as_it_was(source: Any) -> None:
    kept = [(each.key, memoryview(each.value)) for each in fetched(source(ALIKE))]
    assert [(key, bytes(value)) for key, value in kept] == [(each.key, each.value) for each in ALIKE]
    some = [each.value for each in fetched(source(ALIKE)) if each.offset % 3 == 0]
    assert some == [each.value for each in ALIKE[::3]]


@pytest.mark.parametrize("source", sources())
def test_a_field_of_each_size_has_the_bytes_of_its_record(source: Any) -> None:
    sizes = [size for size in range(25) for _ in range(4)]  # four of each: the last two use the memory of the first two
    fields = [bytes((size * 31 + number * 7 + at) % 256 for at in range(size)) for number, size in enumerate(sizes)]
    records = [Record(number, 0, 0, field, field[::-1], ()) for number, field in enumerate(fields)]
    found = []
    for each in fetched(source(records)):
        found += [bytearray(each.key), bytearray(each.value)]  # copies: the program keeps no field
    assert found == [part for field in fields for part in (field, field[::-1])]


@pytest.mark.parametrize("source", sources())
def test_the_hash_of_a_field_is_that_of_its_bytes(source: Any) -> None:
    hashes = [(hash(each.key), hash(each.value)) for each in fetched(source(ALIKE))]
    assert hashes == [(hash(each.key), hash(each.value)) for each in ALIKE]
    counts: dict[bytes, int] = {}
    for each in fetched(source(ALIKE)):
        counts[each.key] = counts.get(each.key, 0) + 1
        if len(counts) > 10:
            counts.clear()
    assert set(counts.values()) == {1}


@pytest.mark.parametrize("source", sources())
def test_bytes_that_the_interpreter_shares_are_not_written(source: Any) -> None:
    records = [Record(n, 0, 0, b"%d" % (n % 10), b"", ()) for n in range(100)]
    assert [(each.key, each.value) for each in fetched(source(records))] == [(each.key, each.value) for each in records]
    assert [bytes([code]) for code in b"0123456789"] == [b"0", b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"9"]
    assert not b""


@needs_compiled
def test_the_memory_of_a_field_is_used_again() -> None:
    found = set()
    for each in fetched(table_of(ALIKE)):
        found.add(id(each.value))
    assert len(found) == 2, "the records of two turns"


OFFSETS = [
    *range(250, 260),  # CPython shares small integers
    *range((1 << 16) - 3, (1 << 16) + 3),
    *range((1 << 30) - 3, (1 << 30) + 3),  # CPython keeps integers in parts of 30 bits
    *range((1 << 60) - 3, (1 << 60) + 3),
    (1 << 62) + 1,
    (1 << 62) + 2,
]
"""Offsets at which the iteration may or may not use the memory of an integer again."""


@pytest.mark.parametrize("source", sources())
def test_an_offset_that_the_program_keeps_stays_as_it_was(source: Any) -> None:
    columns = source([Record(offset, 0, 0, b"k", b"v", ()) for offset in OFFSETS])
    assert [each.offset for each in fetched(columns)] == OFFSETS
    some = [each.offset for each in fetched(columns) if each.offset % 3 == 0]
    assert some == [offset for offset in OFFSETS if offset % 3 == 0]
    texts, sums = [], 0
    for each in fetched(columns):
        texts.append(str(each.offset))
        sums += each.offset
    assert (texts, sums) == ([str(offset) for offset in OFFSETS], sum(OFFSETS))
    assert [int(text) for text in ("250", "257", "259")] == [250, 257, 259]


@needs_compiled
def test_the_memory_of_an_offset_is_used_again() -> None:
    records = [Record((1 << 20) + n, 0, 0, b"k", b"v", ()) for n in range(100)]
    found = set()
    for each in fetched(table_of(records)):
        found.add(id(each.offset))
    assert len(found) == 2, "the records of two turns"


def test_a_cycle_through_a_value_is_collected() -> None:
    class Value:
        record: object = None

    value = Value()
    value.record = a_record(value=value)
    gone = weakref.ref(value)
    del value
    gc.collect()
    assert gone() is None
