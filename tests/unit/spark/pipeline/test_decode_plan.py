"""A pipeline's sections become a plan of columns, or one error with a line for each problem."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the pipeline needs the extra [spark]")

from pyspark.sql.types import ArrayType, DataType, IntegerType, LongType, MapType, StringType, StructField, StructType

from bridge.spark.pipeline.decode.decode_plan import DecodePlan, nullable, plan_decoding
from bridge.spark.pipeline.decode.decoder_spec import DecoderSpec
from bridge.spark.pipeline.pipeline_file import PipelineFileError
from bridge.spark.pipeline.pipeline_spec import DecodeSection, PipelineSpec, RegistrySection
from bridge.spark.pipeline.secret_reference import SecretReference

DDL: dict[str, DataType] = {
    "id BIGINT, page STRING": StructType().add("id", LongType()).add("page", StringType()),
    "key INT": StructType().add("key", IntegerType()),
    "Page INT": StructType().add("Page", IntegerType()),
    "timestamp INT, Offset INT": StructType().add("timestamp", IntegerType()).add("Offset", IntegerType()),
    "a INT, A INT": StructType().add("a", IntegerType()).add("A", IntegerType()),
    "s ARRAY<STRUCT<x INT, X INT>>": StructType().add(
        "s", ArrayType(StructType().add("x", IntegerType()).add("X", IntegerType()))
    ),
    "_dead_stage INT": StructType().add("_dead_stage", IntegerType()),
    "_SOURCE_x INT": StructType().add("_SOURCE_x", IntegerType()),
    "m MAP<INT, INT>": StructType().add("m", MapType(IntegerType(), IntegerType())),
    "INT": IntegerType(),
    "": StructType(),
}
AVRO = json.dumps({"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]})
REGISTRY = RegistrySection("http://r", "me", SecretReference("env", "PASSWORD"), None, 1, 2, 3, 4)
BYTES_KEY = DecodeSection("key", "bytes", "key")


def plan_of(
    value: DecodeSection, key: DecodeSection = BYTES_KEY, headers: DecodeSection | None = None
) -> DecodePlan:  # fmt: skip
    others: Any = dict.fromkeys(("source", "transform", "sink", "dead_letters", "trigger", "checkpoint", "metrics"))
    spec = PipelineSpec(file="f.toml", name="f", decode=value, decode_key=key, decode_headers=headers, **others)
    return plan_decoding(spec, DDL.__getitem__, "Europe/Berlin")


def json_value(schema: str, **keys: Any) -> DecodeSection:
    return DecodeSection("value", "json", schema=schema, **keys)


def problems(*sections: DecodeSection) -> list[str]:
    with pytest.raises(PipelineFileError) as caught:
        plan_of(*sections)
    assert all(line.startswith("f.toml: ") and "\n" not in line for line in caught.value.problems)
    return [line.removeprefix("f.toml: ") for line in caught.value.problems]


def test_the_fields_of_a_json_value_are_columns_before_the_key_and_spark_decodes_them() -> None:
    plan = plan_of(json_value("id BIGINT, page STRING"), headers=DecodeSection("headers", "text", "headers"))
    assert plan.decoded_columns == ("id", "page", "key", "headers")
    assert [part.decoder for part in plan.parts] == [None, None, None]


def test_a_rescued_column_is_the_last_of_its_part_and_python_decodes_in_the_time_zone_of_the_session() -> None:
    plan = plan_of(json_value("id BIGINT, page STRING", rescued="more"))
    assert plan.decoded_columns == ("id", "page", "more", "key")
    decoder = plan.parts[0].decoder
    assert decoder is not None
    assert (decoder.format, decoder.rescues, decoder.time_zone) == ("json", True, "Europe/Berlin")


def test_a_key_with_a_schema_is_one_column() -> None:
    key = DecodeSection("key", "json", "k", schema="id BIGINT, page STRING", rescued="key_more")
    plan = plan_of(DecodeSection("value", "bytes", "value"), key)
    assert plan.decoded_columns == ("value", "k", "key_more")
    assert plan.parts[1].fields is not None


def test_columns_of_the_source_keep_their_plain_names_unless_a_field_has_them_in_any_case() -> None:
    assert plan_of(json_value("timestamp INT, Offset INT")).plain_source_columns == (
        "topic", "partition", "timestampType",
    )  # fmt: skip


def test_a_schema_may_be_the_json_form_of_spark() -> None:
    plan = plan_of(json_value(StructType([StructField("id", LongType(), nullable=False)]).json()))
    assert plan.parts[0].fields == StructType().add("id", LongType())


def test_not_null_is_removed_at_every_depth() -> None:
    inner = StructType([StructField("x", IntegerType(), nullable=False)])
    fields = StructType([
        StructField("a", ArrayType(inner, containsNull=False), nullable=False),
        StructField("m", MapType(StringType(), inner, valueContainsNull=False)),
    ])  # fmt: skip
    assert '"nullable":false' in fields.json()
    assert not {'"nullable":false', '"containsNull":false', '"valueContainsNull":false'} & set(
        nullable(fields).json().replace("{", ",").split(",")
    )


def test_avro_has_the_types_of_its_schema_and_its_registry_is_not_asked_for_the_plan() -> None:
    plan = plan_of(DecodeSection("value", "avro", schema=AVRO, registry=REGISTRY))
    assert plan.parts[0].fields == StructType().add("n", IntegerType())
    assert plan.parts[0].decoder == DecoderSpec("avro", AVRO, rescues=False, registry=REGISTRY)


def test_a_plan_shows_the_place_of_a_secret_only_also_when_it_is_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "t0p-secret")
    plan = plan_of(DecodeSection("value", "avro", schema=AVRO, registry=REGISTRY))
    assert b"t0p-secret" not in pickle.dumps(plan) + repr(plan).encode()
    assert pickle.loads(pickle.dumps(plan)) == plan


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("no ddl", "the schema is not DDL of Spark SQL ('no ddl'); correct it"),
        ('{"type":"struct"}', "the schema is not Spark's JSON form of a struct ("),
        ("{", "the schema is not Spark's JSON form of a struct ("),
        ("INT", "the schema has no fields; write it as names with types"),
        ("", "the schema has no fields"),
        ("m MAP<INT, INT>", "a map has keys of the type int, and the keys of JSON are texts; write MAP<STRING"),
        ("a INT, A INT", "the schema has two fields A; Spark does not distinguish case, so rename one of them"),
        ("s ARRAY<STRUCT<x INT, X INT>>", "the struct s has two fields X; "),
        ("_dead_stage INT", "_dead_stage: names that begin with _source_, _dead_, _outcome are reserved; rename it"),
        ("_SOURCE_x INT", "_SOURCE_x: names that begin with "),
    ],
)
def test_a_schema_that_cannot_be_used_is_one_line(schema: str, words: str) -> None:
    [line] = problems(json_value(schema))
    assert line.startswith(f"[decode] schema: {words}")


def test_the_key_of_a_schema_file_is_named() -> None:
    [line] = problems(DecodeSection("value", "avro", schema="{}", schema_file="/f.avsc"))
    assert line.startswith("[decode] schema-file: the pipeline's Avro schema cannot be used: ")


def test_all_problems_are_reported_at_once() -> None:
    lines = problems(json_value("no ddl"), DecodeSection("key", "json", "k", schema="INT"))
    assert [line.partition(":")[0] for line in lines] == ["[decode] schema", "[decode.key] schema"]


def test_two_parts_have_no_common_column_in_any_case() -> None:
    assert problems(json_value("key INT")) == [
        "[decode.key] column: [decode] has a column key already; choose another name"
    ]
    headers = DecodeSection("headers", "json", "h", schema="id BIGINT, page STRING", rescued="PAGE")
    assert problems(json_value("Page INT"), BYTES_KEY, headers) == [
        "[decode.headers] rescued: [decode] has a column PAGE already; choose another name"
    ]
