"""Which columns become records, and which rows no broker accepts; the SQL itself runs in tests/spark/pipeline."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="the data source needs the extra [spark]")

from bridge.spark.pipeline.dead_letters import DEAD_LETTER_COLUMNS
from bridge.spark.pipeline.sinks import topic_records
from bridge.spark.pipeline.sinks.topic_records import (
    TopicFacts,
    dead_letter_expressions,
    row_problems,
    row_rejections,
)
from bridge.spark.sink import row_partitioning
from bridge.spark.sink.sink_option_table import REQUEST_BYTES_LIMIT
from bridge.spark.sink.topic_writer import BATCH_HEADER, QUERY_HEADER

VALUE = {"value": "string"}


def problems(columns: dict[str, str], topic: str | None = "rows") -> list[str]:
    return list(row_problems(columns, list(columns), topic))


def conditions(columns: dict[str, str], topic: str | None = "rows", **how: object) -> list[str]:
    facts = None if topic is None else TopicFacts(3, 1_000_000)
    made = row_rejections(columns, topic, str(how.get("compression", "none")), facts)
    return [each.condition for each in made]


def test_rows_without_a_value_get_one_line_with_the_columns_and_an_example() -> None:
    assert problems({"id": "bigint", "page": "string"}) == [
        "column value is missing: a record needs it, and [transform] select gives id, page; name one of them value "
        '(AS value), or write all of them as JSON: select = ["to_json(struct(*)) AS value"]'
    ]
    [line] = problems({f"c{number}": "int" for number in range(20)})
    assert "gives c0, c1, " in line
    assert "c11, …; " in line


def test_all_columns_of_a_record_fit() -> None:
    columns = {
        "value": "binary", "key": "string", "headers": "array<struct<key:string,value:binary>>", "partition": "int",
        "timestamp": "timestamp", "source": "string",
    }  # fmt: skip
    assert problems(columns) == []
    assert problems({**columns, "topic": "string"}, topic=None) == []


def test_another_column_and_a_wrong_type_are_a_line_each() -> None:
    [wrong, other] = problems({"value": "bigint", "keys": "string"})
    assert wrong == "column value: is bigint, and must be binary or string; cast it in [transform] select"
    assert other.startswith("column keys: a record has no such field (did you mean key?); drop it from [transform]")


def test_the_topic_is_the_key_of_the_section_or_a_column_and_not_both() -> None:
    assert problems(VALUE, None) == [
        "the rows have no topic; set topic in this section, or give each row one: a column topic of [transform]"
    ]
    [line] = problems({**VALUE, "topic": "string"})
    assert line == 'column topic: has no effect, since topic = "rows" is for all rows; remove one of them'


def test_only_what_a_row_can_have_wrong_is_asked() -> None:
    [size] = conditions(VALUE)
    assert size == "601 + coalesce(octet_length(`value`), 0) > 1000000"
    [topic, size] = conditions({**VALUE, "topic": "string"}, None)
    assert topic == "`topic` IS NULL OR `topic` = ''"
    assert size.endswith(f"> {REQUEST_BYTES_LIMIT}")
    [partition, _] = conditions({**VALUE, "partition": "int"})
    assert partition == "`partition` < 0 OR `partition` >= 3"


def test_with_compression_only_the_broker_knows_whether_a_record_fits() -> None:
    [size] = conditions(VALUE, compression="gzip")
    assert size.endswith(f"> {REQUEST_BYTES_LIMIT}")


def test_the_reason_names_the_setting_of_the_topic() -> None:
    [known] = row_rejections(VALUE, "rows", "none", TopicFacts(1, 20_000))
    assert (
        known.reason == "the record is larger than max.message.bytes of the topic, 20000 bytes, or at most 601 smaller"
    )
    [unknown] = row_rejections(VALUE, "rows", "none", TopicFacts(1, None))
    assert unknown.reason.startswith(f"the record is larger than the largest request, {REQUEST_BYTES_LIMIT} bytes")


def test_the_bounds_of_the_sql_are_those_of_the_tasks() -> None:
    overhead = row_partitioning.RECORD_OVERHEAD_BYTES + row_partitioning.RECORD_SET_OVERHEAD_BYTES
    assert overhead == topic_records.RECORD_BYTES
    assert row_partitioning.HEADER_OVERHEAD_BYTES == topic_records.HEADER_BYTES
    assert topic_records.RECORD_BYTES_LIMIT == REQUEST_BYTES_LIMIT
    names = (QUERY_HEADER, BATCH_HEADER, row_partitioning.SOURCE_HEADER)
    texts = (100, len(str(2**63)), 249 + 1 + len(str(2**31)) + 1 + len(str(2**63)))  # id, number, place
    own = sum(len(name) + row_partitioning.HEADER_OVERHEAD_BYTES for name in names) + sum(texts)
    assert own <= topic_records.OWN_HEADERS_BYTES


def test_the_json_of_a_dead_letter_has_every_field() -> None:
    made = dead_letter_expressions()
    assert all(f"`{name}`" in made["value"] for name in DEAD_LETTER_COLUMNS)
    assert made["key"] == made["source"], "a dead letter that is sent again has the same key"
