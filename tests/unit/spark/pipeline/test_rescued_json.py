"""JSON onto a schema: the same columns as Spark's ``from_json``, and what does not fit is rescued, not lost."""

from __future__ import annotations

import datetime as dt
import json
import math
import pickle
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs the extra [spark]")

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bridge.spark.pipeline.decode.json_coercions import MISFIT, java_double, json_field
from bridge.spark.pipeline.decode.payload_decoder import DecodedColumns, PayloadDecoder, PayloadSchemaError
from bridge.spark.pipeline.decode.rescued_json import NESTING_MAX, RescuedJsonDecoder
from bridge.spark.pipeline.decode.spark_time_text import parse_local_timestamp, zone_of

TABLE: dict[str, list[list[Any]]] = json.loads(Path(__file__).with_name("from_json_of_spark.json").read_text("utf-8"))
TIME_ZONE = "Europe/Berlin"

AB = pa.struct([("a", pa.int32()), ("b", pa.string())])
TYPES = {
    "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "boolean": pa.bool_(), "string": pa.string(), "binary": pa.binary(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
    "decimal(10,2)": pa.decimal128(10, 2), "decimal(38,18)": pa.decimal128(38, 18),
    "decimal(20,0)": pa.decimal128(20, 0),
    "struct<a:int,b:string>": AB, "array<int>": pa.list_(pa.int32()), "array<struct<a:int,b:string>>": pa.list_(AB),
    "map<string,int>": pa.map_(pa.string(), pa.int32()), "map<string,struct<a:int,b:string>>": pa.map_(pa.string(), AB),
    "array<array<int>>": pa.list_(pa.list_(pa.int32())),
    "struct<a:struct<a:int>>": pa.struct([("a", pa.struct([("a", pa.int32())]))]),
}  # fmt: skip

NO_JSON = {"NaN", "Infinity", "-Infinity"}
DIFFERENT = {
    "tinyint": {"128", "200", "255"},
    "float": NO_JSON,
    "double": NO_JSON,
    "string": {"1e999", "-1e999", "1e400000", '"\\ud800"', *NO_JSON},
    "timestamp": {
        "9223372036854775807", "-9223372036854775808", "9007199254740993", '"T03:04:05"', '"03:04:05"', '"12:34"',
    },
    "document int": {'{"v":1} trailing', '{"v":1}{"v":2}', "{'v':1}"},
    "document string": {'{"v":1} trailing', '{"v":1}{"v":2}', "{'v':1}", '{"v":NaN}'},
}  # fmt: skip
"""Where ``from_json`` changes or loses data; the head of ``rescued_json`` names each kind."""


def decode(schema: pa.Schema, *payloads: bytes | str | None, time_zone: str = "UTC") -> DecodedColumns:
    as_bytes = [one.encode("utf-8", "surrogatepass") if isinstance(one, str) else one for one in payloads]
    found = RescuedJsonDecoder(schema, time_zone=time_zone).decode(pa.array(as_bytes, pa.binary()))
    assert len(found.columns) == len(found.errors) == len(payloads), "a row was lost or added"
    return found


def one(schema: pa.Schema, payload: bytes | str) -> tuple[Any, str | None, Any]:
    """The columns, the error, and the rescued text of one payload."""
    found = decode(schema, payload)
    assert found.rescued is not None
    return found.columns.to_pylist()[0], found.errors.to_pylist()[0], found.rescued.to_pylist()[0]


def schema_of(**fields: pa.DataType) -> pa.Schema:
    return pa.schema(list(fields.items()))


def as_spark_shows(value: Any, kind: pa.DataType, spark_text: str | None) -> Any:
    """Our value in the form of the table, for a comparison with ``spark_text``."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        parts = (as_spark_shows(value[field.name], field.type, None) for field in kind)
        return "{" + ", ".join("null" if part is None else part for part in parts) + "}"
    if pa.types.is_list(kind):
        parts = (as_spark_shows(each, kind.value_type, None) for each in value)
        return "[" + ", ".join("null" if part is None else part for part in parts) + "]"
    if pa.types.is_map(kind):
        shown = ((key, as_spark_shows(each, kind.item_type, None)) for key, each in value)
        return "{" + ", ".join(f"{key} -> {'null' if part is None else part}" for key, part in shown) + "}"
    if pa.types.is_boolean(kind):
        return str(value).lower()
    if pa.types.is_binary(kind):
        return value.hex().upper()
    if pa.types.is_decimal(kind):
        return f"{value:f}"
    if pa.types.is_floating(kind):
        assert spark_text is not None
        wide = float(spark_text)
        spark = struct.unpack("f", struct.pack("f", wide))[0] if kind == pa.float32() and abs(wide) < 3.4e38 else wide
        return spark_text if value == spark or (math.isnan(value) and math.isnan(spark)) else str(value)
    return str(value)


@pytest.mark.parametrize("name", sorted(TABLE))
def test_a_column_is_what_spark_makes_of_it_and_what_spark_calls_a_bad_record_is_rescued_or_a_dead_letter(
    name: str,
) -> None:
    is_document, kind = name.startswith("document "), TYPES[name.removeprefix("document ")]
    rows = TABLE[name]
    payloads = [text if is_document else f'{{"v": {text}}}' for text, _, _ in rows]
    found = decode(schema_of(v=kind), *payloads, time_zone=TIME_ZONE)
    column = found.columns.field(0)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        column = column.cast(pa.int32()) if pa.types.is_date(kind) else column.cast(pa.int64())
    assert found.rescued is not None
    ours = zip(column.to_pylist(), found.errors.to_pylist(), found.rescued.to_pylist(), strict=True)
    different = set()
    for (text, spark, is_good), (value, error, rescued) in zip(rows, ours, strict=True):
        if name == "timestamp_ntz" and spark is not None:
            spark = str(parse_local_timestamp(spark))
        if as_spark_shows(value, kind, spark) != spark:
            different.add(text)
        elif not is_good or not is_document:
            assert is_good == (error is None and rescued is None), text
    assert different == DIFFERENT.get(name, set())


FLAT = schema_of(id=pa.int64(), name=pa.string(), price=pa.float64())


def test_a_record_that_fits_has_nothing_rescued() -> None:
    assert one(FLAT, '{"id":1,"name":"é","price":1.5}') == ({"id": 1, "name": "é", "price": 1.5}, None, None)


def test_a_missing_field_is_null() -> None:
    assert one(FLAT, "{}") == ({"id": None, "name": None, "price": None}, None, None)


@pytest.mark.parametrize(
    "text",
    [
        "123456789012345678901234567890", "1.10", "-0", "0", "1e400", '"\\u00e9\\/"', '"\\ud800"', '"x"', "null",
        "true", "false", '{"b" : [1, 2.50]}', "[ ]",
    ],
)  # fmt: skip
def test_an_unknown_field_keeps_its_text(text: str) -> None:
    columns, error, rescued = one(FLAT, f'{{"id":1,"x": {text} }}')
    assert (columns["id"], error) == (1, None)
    assert rescued == f'{{"x":{text}}}'


@pytest.mark.parametrize("text", ['"1"', "1.0", "9223372036854775808", "true", "[1]", '{"a":1}', '""'])
def test_a_field_of_the_wrong_type_is_null_and_keeps_its_text(text: str) -> None:
    columns, error, rescued = one(FLAT, f'{{"name":"n","id":{text}}}')
    assert columns == {"id": None, "name": "n", "price": None}
    assert (error, rescued) == (None, f'{{"id":{text}}}')


def test_of_a_key_that_occurs_twice_the_last_good_value_is_in_the_column_and_the_others_are_rescued() -> None:
    assert one(FLAT, '{"id":1,"id":2,"id":"x","y":1,"y":2.0}') == (
        {"id": 2, "name": None, "price": None},
        None,
        '{"id":1,"id":"x","y":1,"y":2.0}',
    )


def test_of_an_object_that_occurs_twice_the_earlier_one_is_rescued_as_a_whole() -> None:
    columns, _, rescued = one(schema_of(v=AB), '{"v":{"a":1,"z":2},"v":{"b":"x","q":3}}')
    assert columns == {"v": {"a": None, "b": "x"}}
    assert rescued == '{"v":{"a":1,"z":2},"v.q":3}'


def test_paths_name_structs_arrays_and_maps_and_are_quoted_where_they_must_be() -> None:
    schema = schema_of(s=AB, l=pa.list_(AB), m=pa.map_(pa.string(), AB))
    payload = (
        '{"s":{"a":"1","a.b":1,"":2},"l":[{"a":1},{"c`d":3}],"m":{"k":{"x":4},"k 2":{"a":null,"a":5.0}},"s.a":6,"é":7}'
    )
    columns, error, rescued = one(schema, payload)
    assert error is None
    assert columns == {
        "s": {"a": None, "b": None},
        "l": [{"a": 1, "b": None}, {"a": None, "b": None}],
        "m": [("k", {"a": None, "b": None}), ("k 2", {"a": None, "b": None})],
    }
    assert rescued is not None
    assert json.loads(rescued) == {
        "s.a": "1", "s.`a.b`": 1, "s.``": 2, "l[1].`c``d`": 3, "m.k.x": 4, "m.`k 2`.a": 5.0, "`s.a`": 6, "`é`": 7,
    }  # fmt: skip


def test_an_array_or_a_map_with_a_value_that_does_not_fit_is_rescued_as_a_whole() -> None:
    schema = schema_of(l=pa.list_(pa.int32()), m=pa.map_(pa.string(), AB))
    columns, _, rescued = one(schema, '{"l":[1, "x"],"m":{"a":{"z":1},"b":2}}')
    assert columns == {"l": None, "m": None}
    assert rescued == '{"l":[1, "x"],"m":{"a":{"z":1},"b":2}}'


def test_half_a_surrogate_pair_is_rescued_wherever_it_is() -> None:
    schema = schema_of(s=pa.string(), m=pa.map_(pa.string(), pa.string()), l=pa.list_(pa.string()))
    payload = '{"s":"\\ud800","m":{"\\udc00":"x"},"l":["\\ud800"],"\\ud801":1}'
    columns, error, rescued = one(schema, payload)
    assert (columns, error) == ({"s": None, "m": None, "l": None}, None)
    assert rescued == '{"s":"\\ud800","m":{"\\udc00":"x"},"l":["\\ud800"],"`\\ud801`":1}'


@pytest.mark.parametrize("value", ['{"\\udc00":"x"}', '{"k":"\\udc00"}', '{"k":["\\ud800\\ud800"]}'])
def test_half_a_surrogate_pair_in_a_map_is_no_dead_letter(value: str) -> None:
    schema = schema_of(m=pa.map_(pa.string(), pa.list_(pa.string()) if "[" in value else pa.string()))
    assert one(schema, f'{{"m":{value}}}') == ({"m": None}, None, f'{{"m":{value}}}')


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "broken JSON"),
        (b"  ", "broken JSON"),
        (b"{", "broken JSON"),
        (b'{"id":1', "broken JSON"),
        (b'{"id":1,}', "broken JSON"),
        (b'{"id":1} x', "broken JSON: the value ends at character 8 of 10"),
        (b'{"id":1}{"id":2}', "broken JSON"),
        (b"{'id':1}", "broken JSON"),
        (b'{"id":01}', "broken JSON"),
        (b'{"id":+1}', "broken JSON"),
        (b'{"name":"a\tb"}', "broken JSON"),
        (b'{"name":"\\x"}', "broken JSON"),
        (b'\xef\xbb\xbf{"id":1}', "broken JSON"),
        (b'{"price":NaN}', "broken JSON: NaN is no JSON"),
        (b'{"x":-Infinity}', "broken JSON: -Infinity is no JSON"),
        (b'{"name":"\xff"}', "not UTF-8: byte 9 of 12"),
        (b'{"name":"\xed\xa0\x80"}', "not UTF-8"),
        (b"[]", "no object"),
        (b'[{"id":1}]', "no object"),
        (b"null", "no object"),
        (b"1", "no object"),
        (b'"id"', "no object"),
        (b'{"x":' + b"1" * 5000 + b"}", "broken JSON"),
    ],
)
def test_what_is_no_json_object_is_a_dead_letter(payload: bytes, reason: str) -> None:
    columns, error, rescued = one(FLAT, payload)
    assert error is not None
    assert reason in error
    assert (columns, rescued) == (None, None)


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
def test_too_many_levels_are_a_dead_letter_and_the_most_are_not(opening: str) -> None:
    closing = "".join({"[": "]", "{": "}"}[char] for char in reversed(opening) if char in "[{")
    per_turn = len(closing)
    turns = (NESTING_MAX - 1) // per_turn
    fits = f'{{"x":{opening * turns}1{closing * turns}}}'
    columns, error, rescued = one(FLAT, fits)
    assert error is None
    assert rescued == fits
    for more in (turns + 1, 100_000):
        columns, error, _ = one(FLAT, f'{{"x":{opening * more}1{closing * more}}}')
        assert columns is None
        assert error == f"the payload has more than {NESTING_MAX} levels"
    _, error, _ = one(FLAT, f'{{"x":{opening * 100_000}')
    assert error is not None


def test_brackets_in_strings_are_no_levels() -> None:
    columns, error, _ = one(FLAT, '{"name":"' + '[\\"' * 2000 + '"}')
    assert error is None
    assert columns["name"] == '["' * 2000


def test_the_depth_of_hostile_quotes_is_found_in_linear_time() -> None:
    """Quadratic time would be minutes."""
    _, error, _ = one(FLAT, '{"name":"' + '\\"[' * 300_000)
    assert error is not None


def test_a_payload_that_is_null_has_no_columns_and_no_error() -> None:
    found = decode(FLAT, None, '{"id":1}')
    assert found.columns.is_null().to_pylist() == [True, False]
    assert found.errors.to_pylist() == [None, None]


def test_a_bad_record_leaves_its_neighbours_unchanged_whatever_else_is_in_the_batch() -> None:
    good = '{"id":7,"name":"n","price":0.5}'
    payloads = [good, "x", None, '{"id":"7"}', good, '{"y":1}', b"\xff", good]
    found = decode(FLAT, *payloads)
    assert found.rescued is not None
    alone = [decode(FLAT, payload) for payload in payloads]
    assert found.columns.to_pylist() == [each.columns.to_pylist()[0] for each in alone]
    assert found.errors.to_pylist() == [each.errors.to_pylist()[0] for each in alone]
    assert found.rescued.to_pylist() == [each.rescued.to_pylist()[0] for each in alone]  # type: ignore[union-attr]


def test_children_of_a_dead_letter_are_null_without_the_struct_as_well() -> None:
    found = decode(FLAT, '{"id":1,"name":"x"', '{"id":1}')
    assert [found.columns.field(i).to_pylist() for i in range(3)] == [[None, 1], [None, None], [None, None]]


def test_decimals_keep_digits_that_a_double_does_not_have() -> None:
    schema = schema_of(d=pa.decimal128(38, 18), l=pa.list_(pa.decimal128(38, 0)))
    columns, _, rescued = one(schema, '{"d":12345678901234567890.123456789012345678,"l":[123456789012345678901234567]}')
    assert columns == {
        "d": Decimal("12345678901234567890.123456789012345678"),
        "l": [Decimal(123456789012345678901234567)],
    }
    assert rescued is None


def test_an_exponent_that_no_decimal_has_is_rescued() -> None:
    for text in ("1e99999999999999999999", "1e1000000", '"1e99999999999999999999"'):
        columns, error, rescued = one(schema_of(d=pa.decimal128(10, 2)), f'{{"d":{text}}}')
        assert (columns, error, rescued) == ({"d": None}, None, f'{{"d":{text}}}')
    assert one(schema_of(d=pa.decimal128(10, 2)), '{"d":-1e-1000000}')[0] == {"d": Decimal("0.00")}


def test_the_session_s_time_zone_is_used_where_a_text_has_none() -> None:
    schema = schema_of(t=pa.timestamp("us", "UTC"))
    text = '{"t":"2024-07-01T12:00:00"}'
    hours = [
        decode(schema, text, time_zone=zone).columns.to_pylist()[0]["t"].astimezone(dt.UTC).hour
        for zone in ("UTC", "Europe/Berlin", "Asia/Tokyo", "-03:00", "PST")
    ]
    assert hours == [12, 10, 3, 15, 19]


def test_a_schema_that_cannot_be_used_is_refused_when_the_pipeline_is_checked() -> None:
    for kind in (pa.uint8(), pa.null(), pa.timestamp("ms"), pa.map_(pa.int32(), pa.int32()), pa.struct([])):
        with pytest.raises(PayloadSchemaError, match="v"):
            RescuedJsonDecoder(schema_of(v=pa.list_(kind)))
    for schema in (pa.schema([]), pa.schema([("a", pa.int32()), ("a", pa.int32())])):
        with pytest.raises(PayloadSchemaError, match="no fields, or two with the same name"):
            RescuedJsonDecoder(schema)
    with pytest.raises(PayloadSchemaError, match="time zone 'Nowhere/Land'"):
        RescuedJsonDecoder(FLAT, time_zone="Nowhere/Land")


def test_only_binary_payloads_are_accepted_and_no_payloads_give_no_rows() -> None:
    decoder: PayloadDecoder = RescuedJsonDecoder(FLAT)
    with pytest.raises(TypeError, match="must be binary"):
        decoder.decode(pa.array(["{}"]))
    empty = decoder.decode(pa.array([], pa.binary()))
    assert len(empty.columns) == len(empty.errors) == 0
    assert empty.columns.type == pa.struct(list(decoder.arrow_schema))


def test_a_decoder_can_be_pickled_with_its_settings() -> None:
    schema = schema_of(t=pa.timestamp("us", "UTC"))
    decoder = pickle.loads(pickle.dumps(RescuedJsonDecoder(schema, time_zone="Asia/Tokyo")))
    assert decoder.arrow_schema == schema
    payloads = pa.array([b'{"t":"2024-01-01"}'])
    expected = dt.datetime(2023, 12, 31, 15, tzinfo=dt.UTC)
    assert decoder.decode(payloads).columns.to_pylist() == [{"t": expected}]


def test_numbers_in_a_string_column_are_written_as_java_does() -> None:
    expected = {
        1e7: "1.0E7", 9999999.0: "9999999.0", 0.001: "0.001", 0.000999: "9.99E-4", 100.0: "100.0",
        1.5e-323: "1.5E-323", 1.7976931348623157e308: "1.7976931348623157E308", -12.5: "-12.5", 0.0: "0.0",
    }  # fmt: skip
    assert {value: java_double(value) for value in expected} == expected
    assert java_double(-0.0) == "-0.0"


# --- properties -------------------------------------------------------------------------------------------------------

WIDE = schema_of(
    i=pa.int32(), n=pa.int64(), f=pa.float64(), s=pa.string(), o=pa.bool_(), d=pa.decimal128(12, 3), b=pa.binary(),
    y=pa.date32(), t=pa.timestamp("us", "UTC"), l=pa.list_(pa.int64()), m=pa.map_(pa.string(), AB), r=AB,
)  # fmt: skip
NAMES = st.sampled_from([*WIDE.names, "a", "b", "x", "a.b", "é"])
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-200, 200), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5), st.sampled_from(["2024-01-02", "2024-01-02T03:04:05Z", "AAAA", "1.5", "NaN", "\ud800", "-0"]),
)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(NAMES, VALUES, max_size=8)


@settings(max_examples=300, derandomize=True)
@given(st.lists(DOCUMENTS, max_size=4))
@example([{"x": 0, "s": "-0"}])
@example([{"x": "é"}])
@example([{"f": "NaN"}])
def test_the_fast_way_and_the_exact_way_give_the_same(documents: list[dict[str, Any]]) -> None:
    """A blank before the record leads to the exact way."""
    texts = [json.dumps(each, ensure_ascii=True, separators=(",", ":")) for each in documents]
    fast, exact = decode(WIDE, *texts), decode(WIDE, *(f" {text}" for text in texts))
    assert repr(fast.columns.to_pylist()) == repr(exact.columns.to_pylist()), "NaN is not equal to itself"
    assert fast.rescued == exact.rescued
    assert fast.errors.null_count == exact.errors.null_count == len(documents)


@settings(max_examples=200, derandomize=True)
@given(DOCUMENTS)
def test_every_top_level_value_is_in_its_column_or_rescued(document: dict[str, Any]) -> None:
    columns, error, rescued = one(WIDE, json.dumps(document))
    assert error is None
    paths = json.loads(rescued) if rescued else {}
    for name, value in document.items():
        path = name if name.isidentifier() and name.isascii() else f"`{name}`"
        in_rescued = [each for each in paths if each == path or each.startswith((f"{path}.", f"{path}["))]
        if name not in WIDE.names or (columns[name] is None and value is not None):
            assert paths[path] == value
        else:
            assert path not in in_rescued


@settings(max_examples=200, derandomize=True)
@given(
    st.fixed_dictionaries(
        {
            "i": st.none() | st.integers(-(2**31), 2**31 - 1),
            "n": st.none() | st.integers(-(2**63), 2**63 - 1),
            "f": st.none() | st.floats(allow_nan=False, allow_infinity=False),
            "s": st.none() | st.text(),
            "o": st.none() | st.booleans(),
            "l": st.none() | st.lists(st.integers(-(2**63), 2**63 - 1)),
            "r": st.none() | st.fixed_dictionaries({"a": st.none() | st.integers(0, 9), "b": st.none() | st.text()}),
            "m": st.none()
            | st.dictionaries(st.text(), st.fixed_dictionaries({"a": st.integers(0, 9), "b": st.none()})),
        }
    ),
    st.booleans(),
)
def test_what_json_writes_is_read_again(record: dict[str, Any], as_ascii: bool) -> None:
    columns, error, rescued = one(WIDE, json.dumps(record, ensure_ascii=as_ascii))
    assert (error, rescued) == (None, None)
    found = {name: columns[name] for name in record}
    if found["m"] is not None:
        found["m"] = dict(found["m"])
    assert found == record


@settings(max_examples=300, derandomize=True)
@given(st.lists(st.none() | st.binary(max_size=30) | st.text(max_size=30).map(lambda text: text.encode()), max_size=5))
@example([b'{"s":"a"}\x00'])
def test_hostile_bytes_are_dead_letters_and_no_row_is_lost(payloads: list[bytes | None]) -> None:
    found = decode(WIDE, *payloads)
    for payload, error in zip(payloads, found.errors.to_pylist(), strict=True):
        try:
            is_object = payload is None or isinstance(json.loads(payload.decode(), parse_constant=int), dict)
        except ValueError:
            is_object = False
        assert (error is None) == is_object


@settings(max_examples=200, derandomize=True)
@given(DOCUMENTS, st.data())
def test_a_damaged_record_is_a_dead_letter_or_another_record(document: dict[str, Any], data: st.DataObject) -> None:
    text = bytearray(json.dumps(document).encode())
    at = data.draw(st.integers(0, len(text) - 1))
    text[at] = data.draw(st.integers(0, 255))
    columns, error, rescued = one(WIDE, bytes(text[: data.draw(st.integers(0, len(text)))]))
    assert (columns is None) == (error is not None)
    assert error is None or rescued is None


@settings(max_examples=200, derandomize=True)
@given(VALUES, st.sampled_from([field.type for field in WIDE]))
def test_what_the_fast_way_takes_is_what_the_exact_way_takes(value: Any, kind: pa.DataType) -> None:
    zone = zone_of("UTC")
    assert zone is not None
    fast = json_field(kind, "v", zone).fast(value)
    if fast is not MISFIT:
        assert len(pa.array([fast], kind)) == 1
