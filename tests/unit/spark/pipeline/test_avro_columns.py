"""Avro onto the pipeline's schema: by the schema of each writer; what cannot be resolved is a dead letter."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import pickle
import sys
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs the extra [spark]")
pytest.importorskip("fastavro", reason="Avro needs the extra [avro]")

import fastavro
import pyarrow as pa
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from bridge.spark.pipeline.decode import avro_columns
from bridge.spark.pipeline.decode.avro_columns import AvroDecoder, FastavroMissing
from bridge.spark.pipeline.decode.payload_decoder import DecodedColumns, PayloadDecoder, PayloadSchemaError
from bridge.spark.pipeline.decode.schema_registry import (
    RegisteredSchema,
    SchemaIdNotFound,
    SchemaRegistryRefused,
    SchemaRegistrySettings,
    SchemaRegistryUnavailable,
)

UTC = dt.UTC


def record(*fields: dict[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def written(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return stream.getvalue()


def framed(schema_id: int, body: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + body


class Lookup:
    """A registry in a dictionary; counts the lookups.  A value may be an exception."""

    def __init__(self, schemas: Mapping[int, Any]) -> None:
        self.schemas = dict(schemas)
        self.asked: list[int] = []

    def __call__(self, schema_id: int) -> RegisteredSchema:
        self.asked.append(schema_id)
        found = self.schemas.get(schema_id, SchemaIdNotFound(f"schema id {schema_id}: there is no schema of this id"))
        if isinstance(found, Exception):
            raise found
        if isinstance(found, RegisteredSchema):
            return found
        return RegisteredSchema(schema_id, found if isinstance(found, str) else json.dumps(found))


def decode(decoder: PayloadDecoder, *payloads: bytes | None) -> DecodedColumns:
    found = decoder.decode(pa.array(payloads, pa.binary()))
    assert len(found.columns) == len(found.errors) == len(payloads), "a row was lost or added"
    return found


def resolved(
    writer: Any, reader: Any, value: Any, *, default: Any = ..., rescues: bool = True
) -> tuple[Any, str | None, Any]:
    """The column ``f``, the error and the rescued text of a value of the writer's type, read as the reader's."""
    more = {} if default is ... else {"default": default}
    pipeline = json.dumps(record(field("f", reader, **more)))
    decoder = AvroDecoder(pipeline, lookup=Lookup({1: record(field("f", writer))}), rescues=rescues)
    found = decode(decoder, framed(1, written(record(field("f", writer)), {"f": value})))
    columns = found.columns.to_pylist()[0]
    rescued = None if found.rescued is None else found.rescued.to_pylist()[0]
    return (columns["f"] if columns else None), found.errors.to_pylist()[0], rescued


ORDER = record(field("id", "long"), field("name", ["null", "string"]), field("price", "double", default=0.5), name="O")
ORDER_TEXT = json.dumps(ORDER)
GOOD = {"id": 1, "name": "é", "price": 2.0}


# --- framing ----------------------------------------------------------------------------------------------------------


def test_plain_payloads_are_read_by_the_pipeline_s_schema() -> None:
    found = decode(AvroDecoder(ORDER_TEXT), written(ORDER, GOOD), None, written(ORDER, {**GOOD, "name": None}))
    assert found.columns.to_pylist() == [GOOD, None, {**GOOD, "name": None}]
    assert found.errors.null_count == 3
    assert found.rescued is None


def test_plain_payloads_may_have_another_writer_s_schema() -> None:
    writer = record(field("id", "int"), field("name", "string"), field("x", "int"))
    decoder = AvroDecoder(ORDER_TEXT, writer_schema=json.dumps(writer), rescues=True)
    found = decode(decoder, written(writer, {"id": 1, "name": "n", "x": 7}))
    assert found.columns.to_pylist() == [{"id": 1, "name": "n", "price": 0.5}]
    assert found.rescued is not None
    assert found.rescued.to_pylist() == ['{"x":7}']


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"", "the payload has no schema id: it is empty"),
        (b"\x01\0\0\0\x01", "its first byte is 1"),
        (b"{}", "its first byte is 123"),
        (b"\0\0\0", "it has 3 bytes, and Confluent's framing needs 5"),
        (b"\0\xff\xff\xff\xff", "schema id -1: ids are not negative"),
        (framed(1, b""), "schema id 1: the payload ends within the record"),
        (framed(1, b"\x02\x02\x04a"), "schema id 1: the payload ends within the record"),
        (framed(1, written(ORDER, GOOD) + b"\0"), "schema id 1: 1 bytes are left behind the record"),
        (framed(1, b"\x02\x08"), "schema id 1: the bytes are no record of this schema"),
        (framed(1, b"\x02\x02\x02\xff" + b"\0" * 8), "schema id 1: a string is not UTF-8"),
        (framed(1, b"\x02\x02\x01abc"), "schema id 1: the payload ends within the record"),
        (framed(1, b"\xff" * 12), "schema id 1: the bytes are no record of this schema"),
        (framed(9, written(ORDER, GOOD)), "schema id 9: there is no schema of this id"),
    ],
)
def test_broken_bytes_are_a_dead_letter_that_names_the_schema_and_the_reason(payload: bytes, words: str) -> None:
    decoder = AvroDecoder(ORDER_TEXT, lookup=Lookup({1: ORDER}), rescues=True)
    good = framed(1, written(ORDER, GOOD))
    found = decode(decoder, good, payload, good)
    assert found.columns.to_pylist() == [GOOD, None, GOOD]
    error = found.errors.to_pylist()[1]
    assert error is not None
    assert words in error


def test_each_record_of_a_batch_is_read_by_the_schema_that_it_was_written_with() -> None:
    schemas = {
        n: record(*(field(f"x{i}", "int") for i in range(n)), field("id", "int"), field("name", "string"))
        for n in range(20)
    }
    lookup = Lookup({n + 100: schema for n, schema in schemas.items()})
    decoder = AvroDecoder(ORDER_TEXT, lookup=lookup, rescues=True)
    numbers = [n * 7 % 20 for n in range(200)]
    payloads = [
        framed(n + 100, written(schemas[n], {**{f"x{i}": i for i in range(n)}, "id": row, "name": str(n)}))
        for row, n in enumerate(numbers)
    ]
    for _ in range(2):
        found = decode(decoder, *payloads)
        expected = [{"id": row, "name": str(n), "price": 0.5} for row, n in enumerate(numbers)]
        assert found.columns.to_pylist() == expected
        assert found.rescued is not None
        rescued = [json.loads(text or "{}") for text in found.rescued.to_pylist()]
        assert rescued == [{f"x{i}": i for i in range(n)} for n in numbers]
    assert sorted(lookup.asked) == sorted(schemas[n] is not None and n + 100 for n in range(20)), "each id once"


def test_a_schema_with_references_is_read_with_them() -> None:
    colour = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
    reader = json.dumps(record(field("c", {**colour, "name": "x.Colour"})))
    registered = RegisteredSchema(1, json.dumps(record(field("c", "Colour"))), (json.dumps(colour),))
    found = decode(AvroDecoder(reader, lookup=Lookup({1: registered})), framed(1, b"\x02"))
    assert found.columns.to_pylist() == [{"c": "BLUE"}]


@pytest.mark.parametrize(
    ("registered", "words"),
    [
        ('"string"', "schema id 1: the writer's type is string"),
        ("x", "schema id 1: the registered schema cannot be used: it is not JSON"),
        ({"type": "record", "name": "R", "fields": [field("id", ["null", "R"])]}, "recursive types are not supported"),
        (record(field("id", {"type": "array", "items": "null"})), "items that need no byte"),
        (record(field("id", "string"), field("name", "string")), "schema id 1: field id: the writer's type is string"),
        (record(field("id", "long")), "schema id 1: field name: the writer's schema lacks it, and it has no default"),
    ],
)
def test_a_writer_s_schema_that_cannot_be_resolved_makes_dead_letters_of_its_records_only(
    registered: Any, words: str
) -> None:
    lookup = Lookup({1: registered, 2: ORDER})
    decoder = AvroDecoder(ORDER_TEXT, lookup=lookup)
    for _ in range(2):
        found = decode(decoder, framed(1, b"\x02"), framed(2, written(ORDER, GOOD)), framed(1, b""))
        assert found.columns.to_pylist() == [None, GOOD, None]
        errors = found.errors.to_pylist()
        assert words in errors[0]
        assert errors[0] == errors[2]
    assert lookup.asked == [1, 2], "what cannot be resolved is remembered: schemas do not change"


def test_a_schema_that_is_registered_later_is_found_by_the_next_batch() -> None:
    lookup = Lookup({})
    decoder = AvroDecoder(ORDER_TEXT, lookup=lookup)
    payload = framed(1, written(ORDER, GOOD))
    assert decode(decoder, payload, payload).columns.to_pylist() == [None, None]
    assert lookup.asked == [1], "one lookup for a batch"
    lookup.schemas[1] = ORDER
    assert decode(decoder, payload).columns.to_pylist() == [GOOD]


@pytest.mark.parametrize("error", [SchemaRegistryUnavailable("down"), SchemaRegistryRefused("401")])
def test_a_failure_of_the_registry_fails_the_batch_and_the_next_attempt_decodes_it(error: Exception) -> None:
    lookup = Lookup({1: ORDER, 2: error})
    decoder = AvroDecoder(ORDER_TEXT, lookup=lookup)
    payloads = [framed(1, written(ORDER, GOOD)), framed(2, written(ORDER, GOOD))]
    with pytest.raises(type(error)):
        decode(decoder, *payloads)
    lookup.schemas[2] = ORDER
    assert decode(decoder, *payloads).columns.to_pylist() == [GOOD, GOOD]


def test_the_cache_of_resolved_schemas_is_bounded_and_keeps_what_was_used_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_columns, "WRITERS_CACHED_MAX", 2)
    lookup = Lookup(dict.fromkeys((1, 2, 3), ORDER))
    decoder = AvroDecoder(ORDER_TEXT, lookup=lookup)
    for n in (1, 2, 1, 3, 1, 2):
        decode(decoder, framed(n, written(ORDER, GOOD)))
    assert lookup.asked == [1, 2, 3, 2]


# --- resolution -------------------------------------------------------------------------------------------------------

ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}
FIXED = {"type": "fixed", "name": "F", "size": 2}


def logical(kind: str, meaning: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": meaning, **more}


def decimal(precision: int, scale: int, kind: str = "bytes", **more: Any) -> dict[str, Any]:
    return logical(kind, "decimal", precision=precision, scale=scale, **more)


@pytest.mark.parametrize(
    ("writer", "reader", "value", "expected"),
    [
        ("int", "long", -5, -5),
        ("int", "float", 3, 3.0),
        ("int", "double", 2**31 - 1, 2147483647.0),
        ("long", "float", 2**24 + 1, 16777216.0),
        ("long", "double", 2**60 + 1, float(2**60)),
        ("float", "double", 1.5, 1.5),
        ("string", "bytes", "é", "é".encode()),
        ("bytes", "string", "é".encode(), "é"),
        ("null", "null", None, None),
        ("null", ["null", "int"], None, None),
        ("int", ["null", "long"], 7, 7),
        (["null", "int"], ["long", "null"], 7, 7),
        (["null", "int"], "int", 7, 7),
        (["int", "string"], "string", "x", "x"),
        (["int", "string", "null"], ["null", "string"], None, None),
        (["int", "long"], "long", 2**40, 2**40),
        (["null", "int", "long"], ["null", "double"], 3, 3.0),
        (["int", "long"], ["long", "int"], 5, 5),
        (["string", "bytes"], "bytes", b"\xff", b"\xff"),
        (["int"], "int", 7, 7),
        ("int", ["int", "long"], 7, 7),
        (ENUM, {**ENUM, "name": "x.E", "symbols": ["C", "B", "A"]}, "A", "A"),
        (ENUM, {**ENUM, "symbols": ["B", "X"], "default": "X"}, "C", "X"),
        (ENUM, {**ENUM, "name": "New", "aliases": ["E"]}, "B", "B"),
        (FIXED, FIXED, b"ab", b"ab"),
        ({"type": "array", "items": "int"}, {"type": "array", "items": ["null", "double"]}, [1, 2], [1.0, 2.0]),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "double"}, {"a": 1}, [("a", 1.0)]),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "int"}, {"é": 1}, [("é", 1)]),
        (record(field("a", "int"), name="W"), record(field("a", "long"), name="X"), {"a": 1}, {"a": 1}),
        (logical("int", "date"), logical("int", "date"), -1, dt.date(1969, 12, 31)),
        ("int", logical("int", "date"), 1, dt.date(1970, 1, 2)),
        (logical("int", "date"), "int", 5, 5),
        (logical("int", "date"), "long", 5, 5),
        (logical("long", "timestamp-millis"), logical("long", "timestamp-micros"), 1500,
         dt.datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)),
        (logical("long", "timestamp-micros"), logical("long", "timestamp-millis"), 1_500_001,
         dt.datetime(1970, 1, 1, 0, 0, 1, 500_001, UTC)),
        (logical("long", "timestamp-nanos"), logical("long", "timestamp-micros"), 5_000,
         dt.datetime(1970, 1, 1, 0, 0, 0, 5, UTC)),
        ("long", logical("long", "timestamp-millis"), -1, dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)),
        ("int", logical("long", "timestamp-millis"), 1000, dt.datetime(1970, 1, 1, 0, 0, 1, 0, UTC)),
        (logical("long", "timestamp-millis"), "long", 5, 5),
        (logical("long", "local-timestamp-millis"), logical("long", "local-timestamp-micros"), 1000,
         dt.datetime(1970, 1, 1, 0, 0, 1)),
        (logical("long", "time-micros"), logical("long", "time-micros"), 1_000_001, dt.time(0, 0, 1, 1)),
        (logical("int", "time-millis"), logical("long", "time-micros"), 1_001, dt.time(0, 0, 1, 1000)),
        (logical("int", "time-millis"), logical("int", "time-millis"), 1_001, 1_001),
        (decimal(9, 2), decimal(10, 2), b"\x01\x00", Decimal("2.56")),
        ("bytes", decimal(10, 2), b"\xff", Decimal("-0.01")),
        (decimal(10, 2), "bytes", b"\xff", b"\xff"),
        (decimal(4, 1, "fixed", name="F", size=2), decimal(4, 1, "fixed", name="F", size=2), b"\xff\xfe",
         Decimal("-0.2")),
        (decimal(38, 0), decimal(38, 0), (10**38 - 1).to_bytes(16, "big"), Decimal(10**38 - 1)),
        (logical("string", "uuid"), "string", str(uuid.UUID(int=5)), str(uuid.UUID(int=5))),
    ],
)  # fmt: skip
def test_a_value_is_resolved(writer: Any, reader: Any, value: Any, expected: Any) -> None:
    plain = json.loads(json.dumps(writer).replace("logicalType", "ignored"))
    pipeline = json.dumps(record(field("f", reader)))
    decoder = AvroDecoder(pipeline, lookup=Lookup({1: record(field("f", writer))}))
    found = decode(decoder, framed(1, written(record(field("f", plain)), {"f": value})))
    assert found.errors.to_pylist() == [None]
    assert found.columns.to_pylist() == [{"f": expected}]


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        ("long", "int"),
        ("double", "float"),
        ("int", "string"),
        ("string", "int"),
        ("boolean", "int"),
        ("null", "int"),
        ("int", "null"),
        (["null", "string"], "int"),
        (["int", "string"], "boolean"),
        (ENUM, {**ENUM, "name": "Other"}),
        (ENUM, "string"),
        (FIXED, {**FIXED, "size": 3}),
        (FIXED, {**FIXED, "name": "Other"}),
        (FIXED, "bytes"),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "string"}),
        ({"type": "array", "items": "int"}, {"type": "map", "values": "int"}),
        (record(field("a", "int"), name="W"), record(field("b", "int"), name="X")),
        (logical("long", "timestamp-millis"), logical("long", "local-timestamp-millis")),
        (logical("int", "date"), logical("long", "timestamp-millis")),
        (logical("int", "time-millis"), logical("int", "date")),
        (logical("long", "timestamp-micros"), logical("long", "time-micros")),
        (decimal(9, 2), decimal(9, 3)),
        ("string", decimal(9, 2)),
    ],
)
def test_types_that_have_another_meaning_are_not_resolved(writer: Any, reader: Any) -> None:
    pipeline = json.dumps(record(field("f", reader)))
    decoder = AvroDecoder(pipeline, lookup=Lookup({1: record(field("f", writer))}))
    [error] = decode(decoder, framed(1, b"\0\0\0\0")).errors.to_pylist()
    assert error is not None
    assert error.startswith("schema id 1: field f")


@pytest.mark.parametrize(
    ("writer", "reader", "value", "words"),
    [
        (["int", "string"], "int", "x", "field f: the writer's type is string, and the pipeline's is int"),
        (["null", "int"], "int", None, "field f: it is null, and the pipeline's type is int"),
        (["null", "string"], ["null", "int"], "x", "the writer's type is string"),
        (ENUM, {**ENUM, "symbols": ["A"]}, "C", "the pipeline's enum has no symbol 'C', no default"),
        ("bytes", "string", b"\xff", "the bytes are not UTF-8"),
        ("bytes", decimal(2, 0), b"\x64", "more than 2 digits"),
        ("bytes", decimal(38, 0), b"\x7f" * 5000, "more than 38 digits"),
        ("long", logical("long", "timestamp-millis"), 2**62, "the time is out of range"),
        ("long", logical("long", "time-micros"), 86_400_000_000, "it is no time of a day"),
        ("long", logical("long", "time-micros"), -1, "it is no time of a day"),
    ],
)
def test_a_value_that_does_not_fit_is_a_dead_letter(writer: Any, reader: Any, value: Any, words: str) -> None:
    column, error, rescued = resolved(writer, reader, value)
    assert (column, rescued) == (None, None)
    assert error is not None
    assert error.startswith("schema id 1: ")
    assert words in error


def test_nanoseconds_are_not_cut_off() -> None:
    writer = record(field("f", logical("long", "timestamp-nanos")))
    pipeline = json.dumps(record(field("f", logical("long", "timestamp-micros"))))
    decoder = AvroDecoder(pipeline, lookup=Lookup({1: writer}))
    [error] = decode(decoder, framed(1, written(record(field("f", "long")), {"f": 5_001}))).errors.to_pylist()
    assert error == "schema id 1: field f: the time has nanoseconds, and the column only microseconds"


def test_an_int_of_more_than_32_bits_and_a_symbol_that_does_not_exist_are_dead_letters() -> None:
    """fastavro reads both without an error."""
    schema = record(field("i", "int"), field("e", ENUM))
    decoder = AvroDecoder(json.dumps(schema), lookup=Lookup({1: schema}))
    long_int = written(record(field("i", "long")), {"i": 2**40})
    good = framed(1, b"\x02\x00")
    found = decode(decoder, good, framed(1, long_int + b"\0"), framed(1, b"\x02\x01"), framed(1, b"\x02\x06"), good)
    errors = found.errors.to_pylist()
    assert errors[1] == "schema id 1: field i: the number is out of range"
    assert "there is no symbol -1" in errors[2]
    assert "there is no symbol 3" in errors[3]
    assert found.columns.to_pylist() == [{"i": 1, "e": "A"}, None, None, None, {"i": 1, "e": "A"}]
    assert found.columns.field(0).to_pylist() == [1, None, None, None, 1], "also without the struct"
    assert found.columns.field(1).to_pylist() == ["A", None, None, None, "A"]
    found = decode(decoder, good, framed(1, b"\x02\x01"))
    assert found.columns.field(0).to_pylist() == [1, None], "also where a conversion found the error"


def test_a_field_is_found_by_the_aliases_of_the_pipeline_s_schema() -> None:
    writer = record(field("old", "int"), field("rest", "int"))
    pipeline = json.dumps(record(field("new", "long", aliases=["older", "old"])))
    decoder = AvroDecoder(pipeline, lookup=Lookup({1: writer}), rescues=True)
    found = decode(decoder, framed(1, b"\x02\x04"))
    assert found.columns.to_pylist() == [{"new": 1}]
    assert found.rescued is not None
    assert found.rescued.to_pylist() == ['{"rest":2}']


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        ("int", 5, 5),
        ("double", 1, 1.0),
        ("string", "é", "é"),
        ("bytes", "\xff", b"\xff"),
        (FIXED, "ab", b"ab"),
        (ENUM, "B", "B"),
        (["null", "int"], None, None),
        (["null", "int"], 3, 3),
        (["int", "null"], 3, 3),
        (["int", "long"], 2**40, 2**40),
        (logical("long", "timestamp-millis"), 1000, dt.datetime(1970, 1, 1, 0, 0, 1, 0, UTC)),
        (decimal(4, 2), "\x01", Decimal("0.01")),
        ({"type": "array", "items": "double"}, [1], [1.0]),
        ({"type": "map", "values": ENUM}, {"a": "C"}, [("a", "C")]),
        (record(field("a", "int"), field("b", "string", default="x"), name="S"), {"a": 1}, {"a": 1, "b": "x"}),
    ],
)
def test_a_field_that_the_writer_lacks_has_its_default(kind: Any, default: Any, expected: Any) -> None:
    pipeline = json.dumps(record(field("f", kind, default=default)))
    decoder = AvroDecoder(pipeline, lookup=Lookup({1: record()}))
    assert decode(decoder, framed(1, b""), framed(1, b"")).columns.to_pylist() == [{"f": expected}] * 2


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("int", "5"), ("int", 2**31), ("int", True), ("int", 1.0), ("string", None), ("bytes", "\u0100"), (FIXED, "a"),
        (ENUM, "D"), (["null", "int"], "x"), ({"type": "array", "items": "int"}, ["x"]), ("null", 0), ("boolean", 1),
        (decimal(2, 0), "\x7f"), (record(field("a", "int"), name="S"), {}), ("double", False),
        (logical("long", "time-micros"), -1),
    ],
)  # fmt: skip
def test_a_default_of_another_type_is_refused_when_the_pipeline_is_checked(kind: Any, default: Any) -> None:
    for schema in (
        record(field("f", kind, default=default)),
        record(field("g", {"type": "map", "values": record(field("f", kind, default=default), name="I")})),
    ):
        with pytest.raises(PayloadSchemaError, match="f: its default does not fit its type; correct the default"):
            AvroDecoder(json.dumps(schema))


# --- the rescued column -----------------------------------------------------------------------------------------------


def test_new_fields_of_every_type_are_rescued_with_their_whole_value() -> None:
    extra = [
        field("i", "long"), field("d", "double"), field("s", "string"), field("b", "bytes"), field("o", "boolean"),
        field("n", "null"), field("e", ENUM), field("x", decimal(30, 5)), field("y", decimal(30, 0)),
        field("t", logical("long", "timestamp-millis")), field("u", ["null", "int", "string", ENUM["name"]]),
        field("v", ["null", "string"]), field("l", {"type": "array", "items": ["int", "string"]}),
        field("m", {"type": "map", "values": record(field("a", FIXED), name="In")}), field("z", ["int"]),
    ]  # fmt: skip
    writer = record(*ORDER["fields"], *extra)
    value = {
        "i": 2**63 - 1, "d": 0.1, "s": 'é"\n', "b": b"\0\xff", "o": False, "n": None, "e": "C",
        "x": b"\x0f" * 8, "y": b"\xff", "t": 2**61, "u": ("E", "B"), "v": None, "l": [1, "a"],
        "m": {"k.k": {"a": b"ab"}}, "z": 3,
    }  # fmt: skip
    plain = json.loads(json.dumps(writer).replace("logicalType", "ignored"))
    body = written(plain, {**GOOD, **value})
    found = decode(AvroDecoder(ORDER_TEXT, lookup=Lookup({1: writer}), rescues=True), framed(1, body))
    assert found.columns.to_pylist() == [GOOD]
    assert found.rescued is not None
    [text] = found.rescued.to_pylist()
    assert json.loads(text, parse_float=Decimal) == {
        "i": 2**63 - 1, "d": Decimal("0.1"), "s": 'é"\n', "b": base64.b64encode(b"\0\xff").decode(), "o": False,
        "n": None, "e": "C", "x": Decimal(int.from_bytes(b"\x0f" * 8, "big")).scaleb(-5), "y": -1, "t": 2**61, "u": "B",
        "v": None, "l": [1, "a"], "m": {"k.k": {"a": base64.b64encode(b"ab").decode()}}, "z": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"), [(float("nan"), '"NaN"'), (float("inf"), '"Infinity"'), (float("-inf"), '"-Infinity"')]
)
def test_numbers_that_json_does_not_have_are_rescued_as_strings(value: float, text: str) -> None:
    writer = record(field("f", "int"), field("x", "double"))
    decoder = AvroDecoder(json.dumps(record(field("f", "int"))), lookup=Lookup({1: writer}), rescues=True)
    found = decode(decoder, framed(1, written(writer, {"f": 1, "x": value})))
    assert found.rescued is not None
    assert found.rescued.to_pylist() == [f'{{"x":{text}}}']


def test_a_decimal_of_thousands_of_bytes_is_rescued() -> None:
    """Python refuses to write a number of more than 4,300 digits."""
    writer = record(field("f", "int"), field("x", decimal(10, 2)))
    decoder = AvroDecoder(json.dumps(record(field("f", "int"))), lookup=Lookup({1: writer}), rescues=True)
    body = written(record(field("f", "int"), field("x", "bytes")), {"f": 1, "x": b"\x7f" * 5000})
    found = decode(decoder, framed(1, body))
    assert found.errors.to_pylist() == [None]
    assert found.rescued is not None
    assert json.loads(found.rescued.to_pylist()[0])["x"] == base64.b64encode(b"\x7f" * 5000).decode()


def test_new_fields_inside_records_arrays_maps_and_unions_are_rescued_by_their_paths() -> None:
    new = record(field("a", "int"), field("b", "string"), name="In")
    old = record(field("a", "int"), name="In")

    def around(inner: Any) -> dict[str, Any]:
        return record(
            field("s", inner), field("l", {"type": "array", "items": "In"}),
            field("m", {"type": "map", "values": "In"}), field("u", ["null", "In"]),
        )  # fmt: skip

    decoder = AvroDecoder(json.dumps(around(old)), lookup=Lookup({1: around(new)}), rescues=True)
    one = {"a": 1, "b": "x"}
    found = decode(decoder, framed(1, written(around(new), {"s": one, "l": [one, one], "m": {"k k": one}, "u": one})))
    less = {"a": 1}
    assert found.columns.to_pylist() == [{"s": less, "l": [less, less], "m": [("k k", less)], "u": less}]
    assert found.rescued is not None
    assert json.loads(found.rescued.to_pylist()[0]) == {
        "s.b": "x", "l[0].b": "x", "l[1].b": "x", "m.`k k`.b": "x", "u.b": "x",
    }  # fmt: skip


def test_without_a_rescued_column_new_fields_are_passed_over() -> None:
    assert resolved(record(field("a", "int"), field("b", "int"), name="I"), record(field("a", "int"), name="I"),
                    {"a": 1, "b": 2}, rescues=False) == ({"a": 1}, None, None)  # fmt: skip


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"schema": "x"}, "the pipeline's Avro schema cannot be used: it is not JSON.*correct the schema"),
        ({"schema": '"int"'}, "must be a record"),
        ({"schema": json.dumps(record(field("f", ["int", "string"])))}, "field f: a union"),
        (
            {"schema": json.dumps({"type": "record", "name": "R", "fields": [field("f", ["null", "R"])]})},
            "the pipeline's Avro schema cannot be used: the type R contains itself; recursive",
        ),
        ({"schema": ORDER_TEXT, "writer_schema": "x"}, "the writer's Avro schema cannot be used"),
        ({"schema": ORDER_TEXT, "writer_schema": json.dumps(record())}, "field id: .*no record could be decoded"),
        (
            {"schema": ORDER_TEXT, "writer_schema": ORDER_TEXT, "registry": SchemaRegistrySettings("http://h")},
            "remove either the registry or the writer's schema",
        ),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_when_the_pipeline_is_checked(
    arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(PayloadSchemaError, match=words):
        AvroDecoder(**arguments)


def test_a_decoder_can_be_pickled_with_its_settings_and_makes_its_own_client() -> None:
    registry = SchemaRegistrySettings("http://127.0.0.1:1", "me", "hunter2secret", retries_max=0)
    decoder = AvroDecoder(ORDER_TEXT, registry=registry, rescues=True)
    assert "hunter2secret" not in repr(decoder)
    copied = pickle.loads(pickle.dumps(decoder))
    assert copied.arrow_schema == decoder.arrow_schema
    found = decode(copied, b"x")
    assert found.rescued is not None
    with pytest.raises(SchemaRegistryUnavailable):
        decode(copied, framed(1, b""))


def test_without_fastavro_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(FastavroMissing, match=r"pip install 'fastavro>=1\.9', on the driver and on every executor"):
        AvroDecoder(ORDER_TEXT)


# --- properties -------------------------------------------------------------------------------------------------------

SIMPLE: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=6),
    "string": st.text(max_size=6),
}


@st.composite
def types(draw: st.DrawFn, depth: int = 2) -> tuple[Any, st.SearchStrategy[Any]]:
    """A type that the pipeline supports, and its values."""
    kinds = [*SIMPLE, "enum", "fixed"] + (["array", "map", "record", "nullable"] if depth else [])
    kind = draw(st.sampled_from(kinds))
    name = "T"
    if kind in SIMPLE:
        return kind, SIMPLE[kind]
    if kind == "enum":
        return {"type": "enum", "name": name, "symbols": ["A", "B", "C"]}, st.sampled_from("ABC")
    if kind == "fixed":
        return {"type": "fixed", "name": name, "size": 3}, st.binary(min_size=3, max_size=3)
    inner, values = draw(types(depth=depth - 1))
    if kind == "array":
        return {"type": "array", "items": inner}, st.lists(values, max_size=3)
    if kind == "map":
        return {"type": "map", "values": inner}, st.dictionaries(st.text(max_size=3), values, max_size=3)
    if kind == "nullable":
        assume(not isinstance(inner, list))
        return ["null", inner], st.none() | values
    other, other_values = draw(types(depth=depth - 1))
    return record(field("a", inner), field("b", other), name=name), st.fixed_dictionaries(
        {"a": values, "b": other_values}
    )


def with_unique_names(schema: Any) -> Any:
    """The schema, in which each named type T has a name of its own."""
    first, *rest = json.dumps(schema).split('"name": "T"')
    return json.loads(first + "".join(f'"name": "T{n}"{part}' for n, part in enumerate(rest)))


def plain(value: Any) -> Any:
    """A value from Arrow, with dictionaries for maps."""
    if isinstance(value, list) and value and all(isinstance(each, tuple) for each in value):
        return {key: plain(each) for key, each in value}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return {key: plain(each) for key, each in value.items()} if isinstance(value, dict) else value


def without_empty(value: Any) -> Any:
    """An empty map of Arrow is an empty list in Python."""
    if value == {}:
        return []
    if isinstance(value, list):
        return [without_empty(each) for each in value]
    return {key: without_empty(each) for key, each in value.items()} if isinstance(value, dict) else value


@settings(max_examples=200, derandomize=True, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(st.data())
def test_what_fastavro_writes_is_read_again(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(types(), min_size=1, max_size=3))
    schema = with_unique_names(record(*(field(f"f{n}", kind) for n, (kind, _) in enumerate(kinds)), name="Top"))
    values = st.fixed_dictionaries({f"f{n}": strategy for n, (_, strategy) in enumerate(kinds)})
    rows = data.draw(st.lists(values, max_size=4))
    found = decode(AvroDecoder(json.dumps(schema)), *(written(schema, row) for row in rows))
    assert found.errors.null_count == len(rows)
    assert [without_empty(plain(each)) for each in found.columns.to_pylist()] == [without_empty(row) for row in rows]


@settings(max_examples=200, derandomize=True, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(st.data())
def test_what_the_pipeline_lacks_is_rescued_and_what_it_has_is_in_its_columns(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(types(), min_size=2, max_size=4))
    writer = with_unique_names(record(*(field(f"f{n}", kind) for n, (kind, _) in enumerate(kinds)), name="Top"))
    reader = record(*writer["fields"][::2], name="Top")
    decoder = AvroDecoder(json.dumps(reader), lookup=Lookup({1: writer}), rescues=True)
    row = data.draw(st.fixed_dictionaries({f"f{n}": strategy for n, (_, strategy) in enumerate(kinds)}))
    found = decode(decoder, framed(1, written(writer, row)))
    assert found.errors.to_pylist() == [None]
    assert found.rescued is not None
    [columns], [text] = found.columns.to_pylist(), found.rescued.to_pylist()
    assert without_empty(plain(columns)) == without_empty({f"f{n}": row[f"f{n}"] for n in range(0, len(kinds), 2)})
    assert set(json.loads(text)) == {f"f{n}" for n in range(1, len(kinds), 2)}


HOSTILE = record(
    field("id", "long"), field("name", ["null", "string"]), field("e", ENUM), field("x", FIXED),
    field("l", {"type": "array", "items": record(field("a", ["null", "int", "string"]), name="I")}),
    field("m", {"type": "map", "values": "bytes"}), field("d", decimal(12, 2)),
    field("t", logical("long", "timestamp-millis")), name="H",
)  # fmt: skip
HOSTILE_PIPELINE = record(
    *(one for one in HOSTILE["fields"] if one["name"] not in ("l", "x")),
    field("l", {"type": "array", "items": record(field("a", ["null", "int"]), name="I")}), name="H",
)  # fmt: skip
HOSTILE_DECODER = AvroDecoder(json.dumps(HOSTILE_PIPELINE), lookup=Lookup({1: HOSTILE}), rescues=True)
HOSTILE_BODY = written(
    json.loads(json.dumps(HOSTILE).replace("logicalType", "ignored")),
    {
        "id": 1,
        "name": "abc",
        "e": "B",
        "x": b"xy",
        "l": [{"a": 1}, {"a": None}],
        "m": {"k": b"v"},
        "d": b"\x01",
        "t": 5,
    },
)


@settings(max_examples=400, derandomize=True)
@given(
    st.lists(
        st.none()
        | st.binary(max_size=40)
        | st.binary(max_size=60).map(lambda body: framed(1, body))
        | st.tuples(st.integers(0, len(HOSTILE_BODY) - 1), st.integers(0, 255), st.integers(0, 60)).map(
            lambda damage: framed(
                1, (HOSTILE_BODY[: damage[0]] + bytes([damage[1]]) + HOSTILE_BODY[damage[0] + 1 :])[: damage[2] + 5]
            )
        ),
        max_size=5,
    )
)
def test_hostile_bytes_raise_nothing_and_leave_every_row_at_its_place(payloads: list[bytes | None]) -> None:
    good = framed(1, HOSTILE_BODY)
    found = decode(HOSTILE_DECODER, good, *payloads, good)
    columns, errors = found.columns.to_pylist(), found.errors.to_pylist()
    assert found.rescued is not None
    assert errors[0] is errors[-1] is None
    assert columns[0] == columns[-1]
    assert columns[0]["name"] == "abc"
    for payload, row, error, rescued in zip(
        payloads, columns[1:], errors[1:], found.rescued.to_pylist()[1:], strict=False
    ):
        assert (row is None) == (payload is None or error is not None)
        assert rescued is None or (error is None and isinstance(json.loads(rescued), dict))
        if payload is not None and payload[:5] != framed(1, b""):
            assert error is not None


def test_lengths_that_a_payload_only_announces_need_neither_time_nor_memory() -> None:
    huge = b"\xfe" + b"\xff" * 8 + b"\x01"  # 2^63 - 1, zigzag
    for kind in ("bytes", "string", {"type": "array", "items": "int"}, {"type": "map", "values": "int"}):
        schema = json.dumps(record(field("f", kind)))
        [error] = decode(AvroDecoder(schema), huge + b"\0" * 20).errors.to_pylist()
        assert error is not None
