"""``ConsumerRecords``: the result of ``KafkaConsumer.poll``."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.client.kafka_consumer.consumer_records import EMPTY, ConsumerRecords
from tests.kafka_consumer_fixtures import T2P0, TOPIC, TOPIC2, TP0, TP1, ScriptedConsumer
from zkconsumer.types import TopicPartition


@pytest.fixture
def records() -> ConsumerRecords[Any, Any]:
    """Two records of ``TP0``, one of ``TP1`` and three of ``T2P0``."""
    scripted = ScriptedConsumer(group=None)
    scripted.assign(TP0, TP1, T2P0)
    scripted.cluster.append(TP0, 2)
    scripted.cluster.append(TP1, 1)
    scripted.append(T2P0, 3)
    return scripted.poll()


def test_iterating_gives_the_records_of_one_partition_after_the_other(records: ConsumerRecords[Any, Any]) -> None:
    places = [(TopicPartition(record.topic, record.partition), record.offset) for record in records]
    order = list(dict.fromkeys(tp for tp, _ in places))
    assert sorted(places) == [(TP0, 0), (TP0, 1), (TP1, 0), (T2P0, 0), (T2P0, 1), (T2P0, 2)]
    assert places == [(tp, offset) for tp in order for place, offset in sorted(places) if place == tp]


def test_a_record_has_the_fields_of_java(records: ConsumerRecords[Any, Any]) -> None:
    [record] = records.records(TP1)
    assert (record.topic, record.partition, record.offset) == (TOPIC, 1, 0)
    assert (record.key, record.value, record.headers) == (b"key", b"value-0", ())
    assert (record.timestamp, record.timestamp_type, record.leader_epoch) == (0, 0, None)
    assert (record.serialized_key_size, record.serialized_value_size) == (3, 7)


def test_the_number_of_records_and_the_partitions(records: ConsumerRecords[Any, Any]) -> None:
    assert (len(records), records.count(), records.is_empty(), bool(records)) == (6, 6, False, True)
    assert records.partitions() == {TP0, TP1, T2P0}


def test_the_records_of_a_partition_are_columns(records: ConsumerRecords[Any, Any]) -> None:
    found = records.records(T2P0)
    assert list(found.offsets) == [0, 1, 2]
    assert list(found.values) == [b"value-0", b"value-1", b"value-2"]
    assert found[1].offset == 1


def test_the_records_of_a_partition_without_records_are_none(records: ConsumerRecords[Any, Any]) -> None:
    other = TopicPartition("other", 0)
    assert list(records.records(other)) == []
    assert records.records(other).partition == other


def test_the_records_of_a_topic(records: ConsumerRecords[Any, Any]) -> None:
    assert [record.topic for record in records.records_of_topic(TOPIC)] == [TOPIC] * 3
    assert [record.offset for record in records.records_of_topic(TOPIC2)] == [0, 1, 2]
    assert list(records.records_of_topic("other")) == []


def test_a_poll_without_records_returns_an_empty_result() -> None:
    scripted = ScriptedConsumer(group=None)
    scripted.assign(TP0)
    found = scripted.poll()
    assert found is EMPTY
    assert (len(found), found.is_empty(), bool(found), list(found), found.partitions()) == (0, True, False, [], set())


def test_the_text_names_partitions_and_offsets(records: ConsumerRecords[Any, Any]) -> None:
    assert "FetchedRecords(test2/0 offsets 0 to 2, 3 records)" in repr(records)


def test_interceptors_see_the_records_and_may_replace_them() -> None:
    class OnlyFirst:
        def on_consume(self, records: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
            return ConsumerRecords({TP0: records.records(TP0)})

        def on_commit(self, offsets: Any) -> None: ...

        def close(self) -> None: ...

    scripted = ScriptedConsumer(group=None, interceptor_classes=[OnlyFirst()])
    scripted.assign(TP0, TP1)
    scripted.cluster.append(TP1, 1)
    scripted.append(TP0, 2)
    assert scripted.poll().partitions() == {TP0}


def test_interceptors_are_not_called_without_records() -> None:
    class Refusing:
        calls = 0

        def on_consume(self, records: Any) -> Any:
            self.calls += 1
            return records

        def on_commit(self, offsets: Any) -> None: ...

        def close(self) -> None: ...

    refusing = Refusing()
    scripted = ScriptedConsumer(group=None, interceptor_classes=[refusing])
    scripted.assign(TP0)
    scripted.poll()
    assert refusing.calls == 0
