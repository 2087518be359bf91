"""Payloads to columns and SQL in a real Spark: what is good, what is a dead letter, and what it costs the plan."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the pipeline needs the extra [spark]")

import pyarrow as pa
from pyspark.sql import functions as sf

from bridge.spark.pipeline import transform
from bridge.spark.pipeline.decode import json_columns
from bridge.spark.pipeline.decode.decode_plan import DecodePlan, decode_plan_of
from bridge.spark.pipeline.decode.decoded_frame import decode
from bridge.spark.pipeline.decode.rescued_json import RescuedJsonDecoder
from bridge.spark.pipeline.decode.reserved_columns import DEAD_ERROR, DEAD_STAGE, OUTCOME
from bridge.spark.pipeline.pipeline_file import PipelineFileError, parse_pipeline
from bridge.spark.pipeline.pipeline_spec import PipelineSpec, TransformSection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.real

SOURCE = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key:string,value:binary>>"
)
FILE = """
[source]
"zookeeper.connect" = "zk:2181"
"group.id" = "clicks"
subscribe = "clicks"
[sink]
format = "parquet"
path = "/data/rows"
[checkpoint]
path = "/data/checkpoint"
"""
AB = 'format = "json"\nschema = "a INT, b STRING, c STRUCT<d: DOUBLE, e: ARRAY<INT>>"'
CLICK = json.dumps(
    {
        "type": "record",
        "name": "Click",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "page", "type": ["null", "string"], "default": None},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}, "default": 0},
        ],
    }
)


def pipeline(decode_keys: str, **others: str) -> PipelineSpec:
    """A pipeline with ``[decode]``, and sections like ``decode_key`` (``_`` is ``.``)."""
    sections = {"decode": decode_keys, **{name.replace("_", "."): keys for name, keys in others.items()}}
    return parse_pipeline(FILE + "".join(f"[{name}]\n{keys}\n" for name, keys in sections.items()), "clicks.toml")


def records(spark: SparkSession, *values: Any, key: bytes | None = None, headers: Any = None) -> DataFrame:
    """Records of one partition, with offsets from 0; a value is text, bytes or None."""
    rows = [
        (key, value.encode() if isinstance(value, str) else value, "clicks", 3, offset, None, 0, headers)
        for offset, value in enumerate(values)
    ]
    return spark.createDataFrame(rows, SOURCE)


def checked(frame: DataFrame) -> DataFrame:
    """With the columns of the source's option ``includeIsUtf8``."""
    return frame.select(
        "*", *(sf.coalesce(sf.is_valid_utf8(sf.col(name).cast("string")), sf.lit(True)).alias(f"{name}IsUtf8")
               for name in ("key", "value")),
    )  # fmt: skip


def decoded(spark: SparkSession, spec: PipelineSpec, frame: DataFrame, **how: Any) -> list[Row]:
    rows = decode(frame, decode_plan_of(spec, spark), **how).orderBy("_source_offset").collect()
    assert len(rows) == frame.count(), "a row was lost or added"
    return rows


def errors(rows: list[Row]) -> list[str | None]:
    """The errors; each is there exactly where the stage is."""
    assert all((row[DEAD_STAGE] == "decode") == (row[DEAD_ERROR] is not None) for row in rows)
    return [row[DEAD_ERROR] for row in rows]


# --- JSON ---------------------------------------------------------------------------------------------------------

BROKEN = f"value: {json_columns.BROKEN}"
NO_OBJECT = f"value: {json_columns.NO_OBJECT}"
NOT_UTF8 = f"value: {json_columns.NOT_UTF8}"


def misfit(*fields: str) -> str:
    return f"value: {json_columns.MISFIT}: {', '.join(fields)}"


@pytest.mark.parametrize("from_source", [lambda frame: frame, checked], ids=["unchecked", "checked"])
def test_json_fields_become_columns_and_what_does_not_fit_is_a_dead_letter_with_the_reason(
    spark: SparkSession, from_source: Callable[[DataFrame], DataFrame]
) -> None:
    good = {
        '{"a":1,"b":"x","c":{"d":1.5,"e":[1,null]}}': (1, "x", (1.5, [1, None])),
        ' {"a":null}\n': (None, None, None),
        "{}": (None, None, None),
        '{"unknown":1,"b":{"k":1}}': (None, '{"k":1}', None),
    }
    bad: dict[Any, str] = {
        '{"a":1': BROKEN,
        '{"a":1} trailing': BROKEN,
        '{"a":1}{"a":2}': BROKEN,
        '{"a":1},{"a":2}': BROKEN,
        '{"a":1},null': BROKEN,
        '{"a":1}],"x":[2': BROKEN,
        '{"a":1}]': BROKEN,
        '{"a":1}} ': BROKEN,
        '{"a":1,}': BROKEN,
        "{'a':1}": BROKEN,
        '{"a":00012}': BROKEN,
        '{"c":{"d":NaN}}': BROKEN,
        "": NO_OBJECT,
        "  ": NO_OBJECT,
        "3": NO_OBJECT,
        "null": NO_OBJECT,
        '[{"a":1}]': NO_OBJECT,
        '\ufeff{"a":1}': NO_OBJECT,
        b'{"b":"\xff"}': NOT_UTF8,
        '{"a":"x"}': misfit("a (int)"),
        '{"a":1.0,"b":"kept"}': misfit("a (int)"),
        '{"a":3000000000}': misfit("a (int)"),
        '{"a":"x","c":{"d":"y"}}': misfit("a (int)", "c.d (double)"),
        '{"c":{"e":[1,"x"]}}': misfit("c.e (array<int>)"),
        '{"c":7}': misfit("c (struct<d:double,e:array<int>>)"),
    }
    rows = decoded(spark, pipeline(AB), from_source(records(spark, *good, None, *bad)))
    assert errors(rows) == [None] * (len(good) + 1) + list(bad.values())
    assert [(row.a, row.b, row.c) for row in rows[: len(good) + 1]] == [*good.values(), (None, None, None)]


DIFFERENT = {
    '{"c":{"d":"NaN"}}',
    '{"c":{"d":"Infinity"}}',
    '{"a":1,"a":"x"}',
    '{"a":"x"}',
    '{"c":{"e":["x"]}}',
    '{"b":' + "[" * 600 + "]" * 600 + "}",
    '{"c":{"d":' + "1" * 1_100 + "}}",
    '{},null],"x":[1',
}
"""Good for one decoder and a dead letter for the other: all kinds that the head of ``json_columns`` lists."""


def test_dead_letters_are_those_of_the_rescued_decoder_but_for_the_listed_differences(spark: SparkSession) -> None:
    fields = pa.schema([
        ("a", pa.int32()), ("b", pa.string()), ("c", pa.struct([("d", pa.float64()), ("e", pa.list_(pa.int32()))])),
    ])  # fmt: skip
    table = json.loads((Path(__file__).parents[2] / "unit/spark/pipeline/from_json_of_spark.json").read_text("utf-8"))
    documents = [row[0].replace('"v"', '"b"') for row in table["document string"]]
    same = ["{}", "[]", "", " ", "null", "1", '{"a":1}', '{"a":1}x', "{'a':1}", '{"b":NaN}', '{"a":1,}', '{"a" 1}']
    same += [
        '{"b":"\\ud800"}',
        '{"b":"\x01"}',
        '{"b":"\t"}',
        '{"b":"\\x"}',
        '{"a":-}',
        '{"a":1.}',
        '{"a":+1}',
        '{"a":1}//',
    ]
    same += [
        '{"b":' + "[" * 1_200 + "]" * 1_200 + "}",
        '{"unknown":' + "1" * 900 + "}",
        '{"b":1}\0',
        "\0",
        '{"b":/**/1}',
    ]
    texts = list(dict.fromkeys([*documents, *same, *DIFFERENT]))
    there = RescuedJsonDecoder(fields).decode(pa.array([text.encode() for text in texts], pa.binary()))
    here = errors(decoded(spark, pipeline(AB), records(spark, *texts)))
    pairs = zip(texts, here, there.errors.to_pylist(), strict=True)
    assert {text for text, one, other in pairs if (one is None) != (other is None)} == DIFFERENT


def test_from_json_is_evaluated_once_for_each_row_also_below_a_filter_on_the_error(spark: SparkSession) -> None:
    frame = decode(records(spark, "{}"), decode_plan_of(pipeline(AB), spark), with_payloads=False)
    good = frame.filter(sf.col(DEAD_STAGE).isNull()).select("a", "c.d")
    assert executed_plan(good).count("from_json(") == 1


@pytest.mark.parametrize("from_source", [lambda frame: frame, checked], ids=["unchecked", "checked"])
def test_only_the_text_is_copied_to_the_parser_and_it_is_not_copied_after_it(
    spark: SparkSession, from_source: Callable[[DataFrame], DataFrame]
) -> None:
    frame = decode(from_source(records(spark, "{}")), decode_plan_of(pipeline(AB), spark), with_payloads=False)
    good = frame.filter(sf.col(DEAD_STAGE).isNull()).select("a", "c.d")
    lines = executed_plan(good).splitlines()
    [parser] = [number for number, line in enumerate(lines) if "from_json(" in line]
    kept = {"_has_text_value", "_is_utf8_value"}
    assert columns_of(lines[parser]) == {*kept, "_parsed_value"}
    assert columns_of(lines[parser + 1]) == {*kept, "_text_value"}


def test_what_the_source_has_checked_is_not_read_again(spark: SparkSession) -> None:
    spec = pipeline(AB, decode_key='format = "text"')
    plan = decode_plan_of(spec, spark)
    assert plan.source_options == {"includeIsUtf8": "true"}

    def steps(schema: str) -> str:
        frame = spark.createDataFrame([], schema)
        return executed_plan(decode(frame, plan).filter(sf.col(DEAD_STAGE).isNull()))

    assert "isValid" in steps(SOURCE)
    assert "isValid" not in steps(f"{SOURCE}, keyIsUtf8 boolean, valueIsUtf8 boolean")


def columns_of(step: str) -> set[str]:
    """The columns that a step of a plan makes or passes on."""
    return set(re.findall(r"(?:\[|, |AS )(_?\w+)#\d+L?(?=, |\])", step))


def executed_plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())  # type: ignore[attr-defined]


# --- text, bytes, keys, headers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("from_source", [lambda frame: frame, checked], ids=["unchecked", "checked"])
def test_bytes_are_as_they_were_and_text_must_be_utf8(
    spark: SparkSession, from_source: Callable[[DataFrame], DataFrame]
) -> None:
    frame = records(spark, b"\xff\x00", "ä", None, key=b"k\xff")
    rows = decoded(spark, pipeline('format = "bytes"'), frame)
    assert [(row.key, row.value) for row in rows] == [(b"k\xff", value) for value in (b"\xff\x00", "ä".encode(), None)]
    assert errors(rows) == [None] * 3
    assert decode_plan_of(pipeline('format = "bytes"'), spark).source_options == {}
    rows = decoded(spark, pipeline('format = "text"\ncolumn = "line"'), from_source(frame))
    assert errors(rows) == [NOT_UTF8, None, None]
    assert [row.line for row in rows[1:]] == ["ä", None]


def test_the_place_of_a_record_has_reserved_names_and_plain_ones_unless_a_field_has_them(spark: SparkSession) -> None:
    spec = pipeline('format = "json"\nschema = "Topic STRING, id INT"')
    [row] = decoded(spark, spec, records(spark, '{"Topic":"mine","id":1}', key=b"k"))
    assert (row["Topic"], row["_source_topic"], row["partition"], row["offset"]) == ("mine", "clicks", 3, 0)
    assert "topic" not in row
    assert (row["_source_key"], row["_source_value"]) == (b"k", b'{"Topic":"mine","id":1}')
    [row] = decoded(spark, spec, records(spark, "{}").drop("headers"), with_payloads=False)
    assert not {"_source_key", "_source_value", "_source_headers"} & set(row.asDict())


def test_a_key_in_json_is_one_struct_and_a_broken_key_makes_a_dead_letter(spark: SparkSession) -> None:
    spec = pipeline('format = "text"', decode_key='format = "json"\nschema = "id INT"')
    rows = decoded(spark, spec, records(spark, "v", key=b'{"id":7}'))
    assert (rows[0].key.id, rows[0].value, errors(rows)) == (7, "v", [None])
    assert errors(decoded(spark, spec, records(spark, "v", key=b"{"))) == [f"key: {json_columns.BROKEN}"]
    assert errors(decoded(spark, spec, records(spark, b"\xff", key=b"{"))) == [NOT_UTF8]


@pytest.mark.parametrize("rescued", ["", '\nrescued = "more"'])
def test_each_header_is_decoded_and_one_broken_header_makes_a_dead_letter(spark: SparkSession, rescued: str) -> None:
    spec = pipeline('format = "bytes"', decode_headers='format = "json"\nschema = "n INT"' + rescued)
    frame = records(spark, "v", headers=[("a", b'{"n":1,"x":2}'), ("b", None)])
    frame = frame.union(records(spark, "v", headers=[("a", b'{"n":1}'), ("b", b"{")])).union(records(spark, "v"))
    plan = decode_plan_of(spec, spark)
    first, second, third = decode(frame, plan).collect()
    assert [(each.key, each.value and each.value.n) for each in first.headers] == [("a", 1), ("b", None)]
    assert first[DEAD_ERROR] is third[DEAD_ERROR] is third.headers is None
    assert second[DEAD_ERROR].startswith("headers: header b: broken JSON")
    assert first["_source_headers"][0].value == b'{"n":1,"x":2}'
    if rescued:
        assert [row.more for row in (first, second, third)] == ['[{"x":2},null]', None, None]


def test_headers_in_text_must_be_utf8(spark: SparkSession) -> None:
    spec = pipeline('format = "bytes"', decode_headers='format = "text"')
    [row] = decoded(spark, spec, records(spark, "v", headers=[("a", b"x"), ("b", None)]))
    assert ([tuple(each) for each in row.headers], row[DEAD_ERROR]) == ([("a", "x"), ("b", None)], None)
    assert errors(decoded(spark, spec, records(spark, "v", headers=[("a", b"\xff")]))) == [
        "headers: header a: not UTF-8"
    ]


# --- Python -------------------------------------------------------------------------------------------------------


def test_json_with_a_rescued_column_keeps_what_does_not_fit(spark: SparkSession) -> None:
    spec = pipeline('format = "json"\nschema = "a INT NOT NULL, t TIMESTAMP, u TIMESTAMP_NTZ"\nrescued = "_rescued"')
    time = "2026-01-02T03:04:05"
    frame = records(spark, f'{{"a":1,"t":"{time}Z","u":"{time}"}}', '{"a":"x","z":[1.0]}', "{", None)
    rows = decoded(spark, spec, frame, with_payloads=False)
    assert [row.a for row in rows] == [1, None, None, None]
    assert (rows[0].t.isoformat(), rows[0].u.isoformat()) == (time, time)
    assert [row._rescued for row in rows] == [None, '{"a":"x","z":[1.0]}', None, None]
    found = errors(rows)
    assert found[2] is not None
    assert found[2].startswith("value: broken JSON: ")
    assert found == [None, None, found[2], None]


def avro(fields: dict[str, Any]) -> bytes:
    fastavro = pytest.importorskip("fastavro")
    made = io.BytesIO()
    fastavro.schemaless_writer(made, fastavro.parse_schema(json.loads(CLICK)), fields)
    return made.getvalue()


def test_avro_with_a_schema_file_and_text_keys_are_decoded_in_one_pass(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "click.avsc").write_text(CLICK)
    text = FILE + '[decode]\nformat = "avro"\nschema-file = "click.avsc"\n[decode.key]\nformat = "text"\n'
    spec = parse_pipeline(text, "clicks.toml", folder=str(tmp_path), read_text=lambda path: Path(path).read_text())
    frame = records(spark, avro({"id": 1, "page": "/", "at": 1_000_000}), b"\x01", None, key=b"k")
    rows = decoded(spark, spec, frame)
    assert (rows[0].id, rows[0].page, rows[0].at.second, rows[0].key) == (1, "/", 1, "k")
    assert [row.id for row in rows] == [1, None, None]
    found = errors(rows)
    assert found == [None, found[1], None]
    assert found[1] is not None
    assert found[1].startswith("value: ")
    assert rows[1]["_source_value"] == b"\x01"
    assert executed_plan(decode(frame, decode_plan_of(spec, spark))).count("MapInArrow") == 1


def registry(password: str) -> str:
    return (
        f'format = "avro"\nschema = \'{CLICK}\'\nregistry = "http://127.0.0.1:1"\nregistry-retries = 0\n'
        f'registry-user = "clicks"\nregistry-password = "file:{password}"\n'
    )


def test_the_worker_reads_the_password_of_a_registry_which_is_in_no_plan_and_no_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    framed = records(spark, b"\0\0\0\0\1\2")
    frame = decode(framed, decode_plan_of(pipeline(registry(f"{tmp_path}/password")), spark))
    with pytest.raises(Exception, match=f"SecretUnavailableError: file:{tmp_path}/password: the file cannot be read"):
        frame.collect()
    (tmp_path / "password").write_text("t0p-secret\n")
    with pytest.raises(Exception, match="SchemaRegistryUnavailable") as caught:
        frame.collect()
    shown = frame._jdf.queryExecution().toString()  # type: ignore[attr-defined]
    assert (
        "t0p-secret"
        not in f"{decode_plan_of(pipeline(registry(f'{tmp_path}/password')), spark)!r} {shown} {caught.value}"
    )


# --- SQL ----------------------------------------------------------------------------------------------------------


def planned(
    spark: SparkSession, frame: DataFrame, *select: str, where: str | None = None
) -> tuple[DataFrame, transform.TransformPlan]:
    plan: DecodePlan = decode_plan_of(
        pipeline('format = "json"\nschema = "a STRING, n INT, m MAP<STRING,STRING>"'), spark
    )
    rows = decode(frame, plan)
    return rows, transform.plan_transform(rows, plan, TransformSection(select, where))


def test_every_row_has_one_outcome_and_filtered_rows_are_counted(spark: SparkSession) -> None:
    frame = records(spark, '{"n":1,"a":"x"}', '{"n":2}', "{}", "{", '{"n":3}', None)
    rows, plan = planned(spark, frame, "*", "upper(a) AS up", "offset", where="n < 3")
    for checks_rows in (False, True):
        classified = transform.classify(rows, plan, checks_rows=checks_rows)
        [counts] = classified.select(*transform.outcome_counts()).collect()
        assert counts.asDict() == {"filtered": 3, "dead": 1}
        written = transform.written_rows(classified, plan, kept=["_source_partition"])
        assert (
            written.columns
            == ["a", "n", "m", "key", "up", "offset", "_source_partition"]
            == [*plan.columns, "_source_partition"]
        )
        assert [(row.n, row.up, row.offset) for row in written.orderBy("offset").collect()] == [
            (1, "X", 0),
            (2, None, 1),
        ]
        assert [row["_source_offset"] for row in transform.dead_rows(classified).collect()] == [3]


def test_rows_on_which_the_sql_fails_are_dead_letters_once_the_fast_way_has_failed(spark: SparkSession) -> None:
    frame = records(
        spark, '{"a":"1","n":1,"m":{"k":"1"}}', '{"a":"x","n":1}', '{"a":"5","n":0}', '{"m":{"k":"q"}}', "{",
        '{"n":9,"a":"y"}', '{"n":2147483647}',
    )  # fmt: skip
    select = (
        "a",
        "CAST(a AS INT) AS i",
        "CAST(a AS INT) + 1 AS j",
        "1 / n AS r",
        "transform_values(m, (k, v) -> CAST(v AS INT)) AS t",
    )
    rows, plan = planned(spark, frame, *select, where="n IS NULL OR n + 1 <> 10")
    with pytest.raises(Exception) as caught:
        transform.written_rows(transform.classify(rows, plan), plan).collect()
    assert transform.is_row_error(caught.value)
    classified = transform.classify(rows, plan, checks_rows=True)
    found = {row["_source_offset"]: row for row in classified.collect()}
    assert [found[offset][OUTCOME] for offset in range(7)] == [
        transform.WRITTEN,
        transform.DEAD,
        transform.DEAD,
        transform.DEAD,
        transform.DEAD,
        transform.FILTERED,
        transform.DEAD,
    ]
    assert [found[offset][DEAD_ERROR] for offset in (1, 2, 3, 6)] == [
        f"no result for this record: {failed}"
        for failed in (
            "select: CAST(a AS INT) AS i; select: CAST(a AS INT) + 1 AS j", "select: 1 / n AS r",
            f"select: {select[-1]}", "where: n IS NULL OR n + 1 <> 10",
        )
    ]  # fmt: skip
    assert {found[offset][DEAD_STAGE] for offset in (1, 2, 3, 6)} == {"transform"}
    assert found[4][DEAD_STAGE] == "decode"
    written = transform.written_rows(classified, plan)
    assert executed_plan(written).count("tryeval(") == 5, "where and four expressions, each once"
    assert [(row.i, row.j, row.t) for row in written.collect()] == [(1, 2, {"k": 1})]


def test_an_error_of_a_row_is_recognized_where_a_file_is_written_and_another_error_is_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows, plan = planned(spark, records(spark, '{"a":"x"}'), "CAST(a AS INT) AS i")
    written = transform.written_rows(transform.classify(rows, plan), plan)
    with pytest.raises(Exception) as caught:
        written.write.parquet(str(tmp_path / "rows"))
    assert transform.is_row_error(caught.value)
    (tmp_path / "file").write_text("")
    with pytest.raises(Exception) as caught:
        spark.range(1).write.parquet(str(tmp_path / "file" / "below"))
    assert not transform.is_row_error(caught.value)


def test_wrong_sql_is_one_line_each_with_section_and_key_before_any_job(spark: SparkSession) -> None:
    frame = records(spark)
    with pytest.raises(PipelineFileError) as caught:
        planned(
            spark,
            frame,
            "nope",
            "upper(",
            "count(*)",
            "explode(array(1))",
            "n",
            "N",
            "row_number() OVER (ORDER BY n)",
            where="n > 0 AND",
        )
    lines = caught.value.problems
    assert all(line.startswith("clicks.toml: [transform] ") for line in lines)
    keys = [line.split(": ")[1].removeprefix("[transform] ") for line in lines]
    assert keys == ["where"] + ["select"] * 6
    assert "nope" in lines[1]
    assert lines[1].endswith("; correct the expression")
    assert all("one value for each row" in line for line in lines[3:6])
    assert lines[6].endswith("two columns have the name N; give one of them another name with AS")
    with pytest.raises(PipelineFileError, match=r"\[transform\] where: n: is no condition, its type is int"):
        planned(spark, frame, "*", where="n")


def test_a_schema_that_spark_cannot_parse_is_one_line(spark: SparkSession) -> None:
    for schema in ("a INTT", "a", "INT"):
        with pytest.raises(PipelineFileError) as caught:
            decode_plan_of(pipeline(f'format = "json"\nschema = "{schema}"'), spark)
        [line] = caught.value.problems
        assert line.startswith("clicks.toml: [decode] schema: ")
        assert "\n" not in line
