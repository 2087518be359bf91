"""Avro schemas: the Arrow schema that Spark would have, and one clear error for what is not supported."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs the extra [spark]")

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.spark.pipeline.decode.avro_types import (
    DEPTH_MAX,
    AvroSchemaError,
    AvroType,
    arrow_schema_of,
    parse_avro,
)
from bridge.spark.pipeline.decode.payload_decoder import PayloadSchemaError


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def of_field(kind: Any) -> str:
    return json.dumps(record({"name": "f", "type": kind}))


def arrow(kind: Any) -> pa.DataType:
    return arrow_schema_of(parse_avro(of_field(kind))).field(0).type


FIXED = {"type": "fixed", "name": "F"}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("boolean", pa.bool_()),
        ("int", pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("bytes", pa.binary()),
        ("string", pa.string()),
        ("null", pa.null()),
        ({"type": "string"}, pa.string()),
        ({"type": {"type": "string"}}, pa.string()),
        ({"type": "int", "logicalType": "date"}, pa.date32()),
        ({"type": "int", "logicalType": "time-millis"}, pa.int32()),
        ({"type": "long", "logicalType": "time-micros"}, pa.time64("ns")),
        ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("us", "UTC")),
        ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", "UTC")),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, pa.timestamp("us")),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us")),
        ({"type": "string", "logicalType": "uuid"}, pa.string()),
        ({**FIXED, "size": 16, "logicalType": "uuid"}, pa.binary()),
        ({"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}, pa.decimal128(10, 2)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 10}, pa.decimal128(10, 0)),
        ({**FIXED, "size": 4, "logicalType": "decimal", "precision": 9, "scale": 2}, pa.decimal128(9, 2)),
        ({**FIXED, "size": 2, "logicalType": "decimal", "precision": 9, "scale": 2}, pa.binary()),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 5}, pa.binary()),
        ({"type": "bytes", "logicalType": "decimal"}, pa.binary()),
        ({"type": "bytes", "logicalType": "big-decimal"}, pa.binary()),
        ({**FIXED, "size": 12, "logicalType": "duration"}, pa.binary()),
        ({**FIXED, "size": 3}, pa.binary()),
        ({"type": "long", "logicalType": "date"}, pa.int64()),
        ({"type": "long", "logicalType": "xyz"}, pa.int64()),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.string()),
        (["null", "int"], pa.int32()),
        (["int", "null"], pa.int32()),
        (["int"], pa.int32()),
        (["null"], pa.null()),
        (["int", "long"], pa.int64()),
        (["long", "null", "int"], pa.int64()),
        (["double", "float"], pa.float64()),
        ({"type": "array", "items": ["null", "int"]}, pa.list_(pa.int32())),
        ({"type": "map", "values": "long"}, pa.map_(pa.string(), pa.int64())),
        (record({"name": "x", "type": "int"}, name="S"), pa.struct([("x", pa.int32())])),
    ],
)
def test_the_arrow_type_is_that_of_spark_s_type(kind: Any, expected: pa.DataType) -> None:
    """Compared once with ``SchemaConverters.toSqlType`` of Spark 4.3, for each of these."""
    assert arrow(kind) == expected


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (["int", "string"], "field f: a union of int, string is not supported; keep one of these types"),
        ({"type": "array", "items": ["null", "int", "string"]}, r"field f\[\]: a union"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "set the logical type to timestamp-micros"),
        ({"type": "long", "logicalType": "local-timestamp-nanos"}, "set the logical type to local-timestamp-micros"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 39}, "at most 38 digits"),
        ({"type": "int", "spark.sql.catalyst.type": "interval year"}, "remove this property"),
        (record(name="S"), "the record S has no fields"),
    ],
)
def test_what_is_not_supported_is_one_error_that_names_the_field_and_the_remedy(kind: Any, words: str) -> None:
    with pytest.raises(PayloadSchemaError, match=words):
        arrow(kind)


def test_the_schema_of_a_pipeline_is_a_record_with_fields() -> None:
    for schema, words in (('"string"', "must be a record, and it is string"), (json.dumps(record()), "no fields")):
        with pytest.raises(PayloadSchemaError, match=words):
            arrow_schema_of(parse_avro(schema))


def nested(levels: int) -> Any:
    kind: Any = "int"
    for _ in range(levels):
        kind = {"type": "map", "values": kind}
    return kind


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("5", "5 is no type"),
        ('"nothing"', "there is no type 'nothing'"),
        ("{}", "is no type"),
        ('{"type":"array"}', "is no type"),
        ('{"type":"map","items":"int"}', "is no type"),
        ("[]", "a union has no types"),
        ('["int","int"]', "a type twice"),
        ('["int",["null"]]', "a union contains a union"),
        ('{"type":"enum","name":"E","symbols":[]}', "symbols"),
        ('{"type":"enum","name":"E","symbols":["A","A"]}', "symbols"),
        ('{"type":"enum","name":"E","symbols":["A"],"default":"B"}', "default of the enum E"),
        ('{"type":"enum","symbols":["A"]}', "a type enum has no name"),
        ('{"type":"fixed","name":"F"}', "definition of F is incomplete"),
        ('{"type":"fixed","name":"F","size":-1}', "definition of F is incomplete"),
        ('{"type":"fixed","name":"F","size":true}', "definition of F is incomplete"),
        ('{"type":"fixed","name":"1F","size":1}', "is no name of a type"),
        ('{"type":"record","name":"R"}', "definition of R is incomplete"),
        ('{"type":"record","name":"R","fields":[{"name":"a"}]}', "is no field"),
        ('{"type":"record","name":"R","fields":[{"name":"a-b","type":"int"}]}', "is no field"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}', "field twice"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":"int","aliases":"b"}]}', "aliases"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":["null","R"]}]}', "R contains itself; recursive"),
        ('{"type":"array","items":"null"}', "items that need no byte"),
        ('{"type":"array","items":{"type":"record","name":"R","fields":[{"name":"a","type":"null"}]}}', "no byte"),
        ('{"type":"array","items":{"type":"fixed","name":"F","size":0}}', "no byte"),
        (json.dumps(nested(DEPTH_MAX + 1)), "more than 64 levels"),
    ],
)
def test_a_text_that_is_no_schema_or_a_dangerous_one_is_refused(text: str, words: str) -> None:
    with pytest.raises(AvroSchemaError, match=words):
        parse_avro(text)


def test_names_are_resolved_by_their_namespaces() -> None:
    inner = {"type": "fixed", "name": "F", "size": 2}
    kind = parse_avro(
        json.dumps(record({"name": "a", "type": inner}, {"name": "b", "type": "F"}, {"name": "c", "type": "n.F"},
                          namespace="n"))
    )  # fmt: skip
    assert {field.kind.name for field in kind.fields} == {"n.F"}
    full = record({"name": "a", "type": {**inner, "name": "other.F"}}, {"name": "b", "type": "F"}, namespace="n")
    with pytest.raises(AvroSchemaError, match="there is no type 'F'"):
        parse_avro(json.dumps(full))


def test_a_schema_may_refer_to_types_of_other_schemas() -> None:
    item = json.dumps({"type": "enum", "name": "x.Colour", "symbols": ["RED"]})
    middle = json.dumps(record({"name": "c", "type": "x.Colour"}, name="x.Item"))
    top = json.dumps(record({"name": "i", "type": {"type": "array", "items": "x.Item"}}))
    found = arrow_schema_of(parse_avro(top, (item, middle)))
    assert found == pa.schema([("i", pa.list_(pa.struct([("c", pa.string())])))])
    with pytest.raises(AvroSchemaError, match=r"there is no type 'x\.Colour'"):
        parse_avro(top, (middle, item))


def test_types_that_double_at_each_name_are_refused_before_they_are_built() -> None:
    """Forty short definitions would be 10^12 types."""
    texts = [json.dumps(record({"name": "a", "type": "int"}, name="R0"))]
    for n in range(1, 40):
        fields = [{"name": name, "type": f"R{n - 1}"} for name in "ab"]
        texts.append(json.dumps(record(*fields, name=f"R{n}")))
    with pytest.raises(AvroSchemaError, match="types"):
        parse_avro(texts[-1], texts[:-1])


def test_named_types_inside_each_other_have_no_more_levels_than_others() -> None:
    texts = [json.dumps(record({"name": "a", "type": "int"}, name="R0"))]
    texts += [json.dumps(record({"name": "a", "type": f"R{n - 1}"}, name=f"R{n}")) for n in range(1, DEPTH_MAX + 1)]
    assert parse_avro(texts[DEPTH_MAX - 1], texts[: DEPTH_MAX - 1]).type == "record"
    with pytest.raises(AvroSchemaError, match="more than 64 levels"):
        parse_avro(texts[DEPTH_MAX], texts[:DEPTH_MAX])


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["int", "null", "record", "R", "a", "", "array"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["type", "name", "fields", "items", "values", "symbols", "size", "logicalType", "aliases",
                         "namespace", "default", "precision", "scale"]),
        inner,
        max_size=5,
    ),
    max_leaves=20,
)  # fmt: skip


@settings(derandomize=True)
@given(JSON_VALUES)
def test_any_json_is_a_schema_or_a_documented_error(value: Any) -> None:
    with contextlib.suppress(AvroSchemaError):
        assert isinstance(parse_avro(json.dumps(value)), AvroType)
