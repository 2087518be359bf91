"""``decode``: rows of ``format("zkconsumer")`` -> decoded columns, source columns, and why a row is a dead letter.

    key, value, topic, … --mapInArrow--> --from_json--> decoded columns, topic, …, _source_*, _dead_stage, _dead_error
                          (if a part needs Python)

Every input row is one output row.  Nothing is evaluated here, and nothing of a payload raises an exception when it is.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, BinaryType, DataType, StringType, StructField, StructType

from bridge.spark.pipeline.decode.arrow_decoding import ArrowDecoding, ArrowPart
from bridge.spark.pipeline.decode.decode_plan import DecodePlan, PartPlan, first_line
from bridge.spark.pipeline.decode.json_columns import (
    NOT_UTF8,
    evaluated_once,
    is_bad_json,
    json_error,
    json_value,
    parsed_json,
)
from bridge.spark.pipeline.decode.reserved_columns import DEAD_ERROR, DEAD_STAGE, PAYLOAD_COLUMNS, source_column
from bridge.spark.pipeline.pipeline_file import PipelineFileError
from bridge.spark.pipeline.pipeline_rules import SOURCE_COLUMNS
from bridge.spark.pipeline.toml_values import problem
from bridge.spark.source.datasource import IS_UTF8

DECODE_STAGE = "decode"
"""The stage of a dead letter whose payload could not be decoded."""

HEADERS_TYPE = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


@dataclass(frozen=True, slots=True)
class _Decoded:
    """One part.  ``value``: a struct of the fields, or the one column.

    ``is_bad``: whether the record is a dead letter, cheap, null is false; None: never.  ``error``: why; has a meaning
    only where ``is_bad`` is true, and costs something only where it is read.
    """

    value: Column
    is_bad: Column | None = None
    error: Column | None = None
    rescued: Column | None = None


def decode(frame: DataFrame, plan: DecodePlan, *, with_payloads: bool = True) -> DataFrame:
    """The decoded frame.

    ``frame``: the columns of ``format("zkconsumer")``, ``headers`` only if they are read.  With those of
    ``includeIsUtf8`` the JVM does not look for invalid UTF-8, which is a sixth of its time for records of 1 KB.
    The output has

    - ``plan.decoded_columns``, without a meaning where the row is a dead letter,
    - ``plan.plain_source_columns``: ``topic``, ``offset`` and so on,
    - all columns of the source as ``_source_NAME``; key, value and headers only ``with_payloads`` (where Python
      decodes, each column costs its way to Python and back),
    - ``_dead_stage`` (``decode``, or null) and ``_dead_error``.

    Raises ``PipelineFileError`` for a schema with a type that Spark cannot read from JSON.
    """
    there = set(frame.columns)
    checked = {part.part for part in plan.parts if part.is_checked_text and IS_UTF8[part.part] in there}
    rows = _source_rows(frame, plan, checked, with_payloads=with_payloads)
    rows = _arrow_decoded(rows, plan, with_payloads=with_payloads)
    for part in plan.parts:
        if part.format == "json" and part.decoder is None:
            rows = _json_parsed(rows, part, plan.file, is_checked=part.part in checked)
    parts = [(part, _decoded_part(part, is_checked=part.part in checked)) for part in plan.parts]
    columns = [column for part, decoded in parts for column in _columns(part, decoded)]
    columns += [sf.col(source_column(name)).alias(name) for name in plan.plain_source_columns]
    columns += [sf.col(name) for name in _kept(with_payloads=with_payloads)]
    stage, error = sf.lit(None).cast("string"), sf.lit(None).cast("string")
    for part, decoded in reversed(parts):
        if decoded.is_bad is not None and decoded.error is not None:
            stage = sf.when(decoded.is_bad, sf.lit(DECODE_STAGE)).otherwise(stage)
            words = sf.concat(sf.lit(f"{part.part}: "), decoded.error)
            error = sf.when(decoded.is_bad, words).otherwise(error)
    return rows.select(*columns, stage.alias(DEAD_STAGE), error.alias(DEAD_ERROR))


# --- the steps ----------------------------------------------------------------------------------------------------


def _source_rows(frame: DataFrame, plan: DecodePlan, checked: Set[str], *, with_payloads: bool) -> DataFrame:
    """The columns that are needed, under their reserved names.  ``checked``: the parts that the source has checked."""
    names = [*SOURCE_COLUMNS]
    names += PAYLOAD_COLUMNS if with_payloads else [part.part for part in plan.parts]
    columns = [_source_value(frame, name).alias(source_column(name)) for name in names]
    columns += [sf.col(IS_UTF8[part.part]).alias(_name(part, "is_utf8")) for part in plan.parts if part.part in checked]
    return frame.select(*columns)


def _source_value(frame: DataFrame, name: str) -> Column:
    if name == "headers" and name not in frame.columns:
        return sf.lit(None).cast(HEADERS_TYPE)
    return sf.col(name)


def _arrow_decoded(rows: DataFrame, plan: DecodePlan, *, with_payloads: bool) -> DataFrame:
    """The rows with the columns of the parts that Python decodes."""
    parts = [part for part in plan.parts if part.decoder is not None]
    if not parts:
        return rows
    unused = set() if with_payloads else {source_column(part.part) for part in parts}
    passed = [field for field in rows.schema.fields if field.name not in unused]
    function = ArrowDecoding(tuple(field.name for field in passed), tuple(_arrow_part(part) for part in parts))
    added = [StructField(name, kind) for part in parts for name, kind in _arrow_columns(part)]
    return rows.mapInArrow(function, StructType([*passed, *added]))


def _arrow_part(part: PartPlan) -> ArrowPart:
    assert part.decoder is not None, "Python decodes this part"
    rescued = None if part.rescued is None else _name(part, "rescued")
    return ArrowPart(
        part.decoder, source_column(part.part), _name(part, "decoded"), _name(part, "error"), rescued
    )  # fmt: skip


def _arrow_columns(part: PartPlan) -> list[tuple[str, DataType]]:
    assert part.fields is not None, "Python decodes JSON and Avro"
    kind: DataType = part.fields
    if part.part == "headers":
        kind = ArrayType(StructType([StructField("key", StringType()), StructField("value", part.fields)]))
    columns: list[tuple[str, DataType]] = [(_name(part, "decoded"), kind), (_name(part, "error"), StringType())]
    if part.rescued is not None:
        columns.append((_name(part, "rescued"), StringType()))
    return columns


def _json_parsed(rows: DataFrame, part: PartPlan, file: str, *, is_checked: bool) -> DataFrame:
    """The rows with the parsed JSON of a part, so that every use of it reads a column.

    Spark generates no code for ``from_json``, so it copies each row before that step, and the result after it.  What is
    read of the payload later becomes a column of its own before the step.  Then Spark's optimizer removes the columns
    that nothing reads before the step, and the text after it, which only errors read.
    """
    assert part.fields is not None, "JSON has a schema"
    fields, payload = part.fields, sf.col(source_column(part.part))
    if part.part == "headers":

        def parsed_header(header: Column) -> Column:
            text = header["value"].cast("string")
            return sf.struct(
                header["key"].alias("key"), text.alias("text"), parsed_json(text, fields).alias("parsed")
            )  # fmt: skip

        parsed = sf.transform(evaluated_once(payload), parsed_header)
    else:
        text = payload.cast("string")
        before = {_name(part, "text"): evaluated_once(text), _name(part, "has_text"): text.isNotNull()}
        if not is_checked:
            before[_name(part, "is_utf8")] = sf.is_valid_utf8(text)
        rows = rows.withColumns(before)
        parsed = parsed_json(evaluated_once(sf.col(_name(part, "text"))), fields)
    try:
        parsed_rows = rows.withColumn(_name(part, "parsed"), parsed)
        _ = parsed_rows.schema  # Spark Connect analyses here
        return parsed_rows
    except AnalysisException as error:
        words = f"Spark cannot read this schema from JSON ({first_line(error)}); correct the schema"
        raise PipelineFileError((f"{file}: {problem(part.section, 'schema', words)}",)) from error


# --- one part -----------------------------------------------------------------------------------------------------


def _decoded_part(part: PartPlan, *, is_checked: bool) -> _Decoded:
    if part.decoder is not None:
        rescued = None if part.rescued is None else sf.col(_name(part, "rescued"))
        error = sf.col(_name(part, "error"))
        return _Decoded(sf.col(_name(part, "decoded")), error.isNotNull(), error, rescued)
    payload = sf.col(source_column(part.part))
    text = payload.cast("string")
    is_utf8 = sf.col(_name(part, "is_utf8")) if is_checked or part.format == "json" else sf.is_valid_utf8(text)
    is_headers = part.part == "headers"
    match part.format:
        case "bytes":
            return _Decoded(payload)
        case "text":
            return _text_headers(payload) if is_headers else _text(text, is_utf8)
        case _ if is_headers:
            return _json_headers(part)
        case _:
            return _json(part, sf.col(_name(part, "parsed")), text, sf.col(_name(part, "has_text")), is_utf8)


def _text(text: Column, is_utf8: Column) -> _Decoded:
    return _Decoded(text, ~is_utf8, sf.lit(NOT_UTF8))


def _text_headers(headers: Column) -> _Decoded:
    texts = sf.transform(headers, lambda each: sf.struct(each["key"], each["value"].cast("string").alias("value")))
    return _of_headers(texts, texts, lambda each: _text(each["value"], sf.is_valid_utf8(each["value"])))


def _json(part: PartPlan, parsed: Column, text: Column, has_text: Column, is_utf8: Column) -> _Decoded:
    assert part.fields is not None, "JSON has a schema"
    error = json_error(parsed, text, is_utf8, part.fields)
    return _Decoded(json_value(parsed), is_bad_json(parsed, has_text, is_utf8), error)


def _json_headers(part: PartPlan) -> _Decoded:
    parsed = sf.col(_name(part, "parsed"))
    value = sf.transform(parsed, lambda each: sf.struct(each["key"], json_value(each["parsed"]).alias("value")))
    return _of_headers(
        value,
        parsed,
        lambda each: _json(
            part, each["parsed"], each["text"], each["text"].isNotNull(), sf.is_valid_utf8(each["text"])
        ),
    )


def _of_headers(value: Column, headers: Column, decoded: Callable[[Column], _Decoded]) -> _Decoded:
    """The record is bad if a header is; its error is that of the first one, after the key of the header."""

    def is_bad(each: Column) -> Column:
        found = decoded(each).is_bad
        assert found is not None, "headers in bytes are never bad"
        return found

    def named(each: Column) -> Column:
        error = decoded(each).error
        assert error is not None, "what is bad has an error"
        return sf.concat(sf.lit("header "), each["key"], sf.lit(": "), error)

    error = sf.get(sf.transform(sf.filter(headers, is_bad), named), sf.lit(0))
    return _Decoded(value, sf.exists(headers, is_bad), error)


# --- columns ------------------------------------------------------------------------------------------------------


def _columns(part: PartPlan, decoded: _Decoded) -> list[Column]:
    if part.column is not None:
        columns = [decoded.value.alias(part.column)]
    else:
        assert part.fields is not None, "bytes and text have a column"
        columns = [decoded.value[name].alias(name) for name in part.fields.names]
    if part.rescued is not None:
        assert decoded.rescued is not None, "Python decodes a part with a rescued column"
        columns.append(decoded.rescued.alias(part.rescued))
    return columns


def _kept(*, with_payloads: bool) -> list[str]:
    names = (*SOURCE_COLUMNS, *PAYLOAD_COLUMNS) if with_payloads else SOURCE_COLUMNS
    return [source_column(name) for name in names]


def _name(part: PartPlan, what: str) -> str:
    """An intermediate column of a part: nothing above has it."""
    return f"_{what}_{part.part}"
