"""``DecodePlan``: which columns each part of a record becomes, and whether Spark or Python decodes it.

    PipelineSpec --plan_decoding (once, at the start)--> DecodePlan --decoded_frame.decode (each batch)--> columns

    format                  decoded by          columns of the value            of the key, of each header
    bytes, text             Spark               one                             one
    json                    Spark (from_json)   the fields of the schema        one struct
    json with rescued       Python (Arrow)      the fields, and the rescued     one struct, and the rescued
    avro                    Python (fastavro)   the fields (and the rescued)    one struct (and the rescued)

A plan is values only: no session, no secret.  Everything that is wrong with the schemas of a file becomes one
``PipelineFileError``, before a record is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from bridge.spark.pipeline.decode.decoder_spec import DecoderSpec, build_decoder
from bridge.spark.pipeline.decode.payload_decoder import PayloadSchemaError
from bridge.spark.pipeline.decode.reserved_columns import RESERVED_PREFIXES, is_reserved
from bridge.spark.pipeline.pipeline_file import PipelineFileError
from bridge.spark.pipeline.pipeline_keys import DECODE_SECTIONS
from bridge.spark.pipeline.pipeline_rules import SOURCE_COLUMNS
from bridge.spark.pipeline.pipeline_spec import DecodeSection, PipelineSpec
from bridge.spark.pipeline.toml_values import problem
from bridge.spark.source.datasource import IS_UTF8

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ParseDdl: TypeAlias = Callable[[str], DataType]
"""Parses DDL of Spark SQL; raises any exception for a text that is none."""

_SECTION_OF = {part: section for section, part in DECODE_SECTIONS.items()}


@dataclass(frozen=True, slots=True)
class PartPlan:
    """One part of a record.

    ``part``: ``value``, ``key`` or ``headers``.  ``column``: the column that it becomes; None: a struct whose fields
    are columns.  ``fields``: of JSON and Avro, all nullable; None: bytes or text.  ``decoder``: None: Spark decodes.
    """

    part: str
    format: str
    column: str | None
    fields: StructType | None = None
    rescued: str | None = None
    decoder: DecoderSpec | None = None

    @property
    def is_checked_text(self) -> bool:
        """Whether Spark decodes bytes of the record that must be UTF-8."""
        return self.decoder is None and self.format != "bytes" and self.part in IS_UTF8

    @property
    def section(self) -> str:
        """The section of the file."""
        return _SECTION_OF[self.part]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the decoded frame; the rescued column is the last."""
        if self.column is not None:
            decoded: tuple[str, ...] = (self.column,)
        else:
            assert self.fields is not None, "bytes and text have a column"
            decoded = tuple(self.fields.names)
        return decoded if self.rescued is None else (*decoded, self.rescued)


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """How records are decoded.  ``file``: of the pipeline, for errors.  ``parts``: the value first."""

    file: str
    parts: tuple[PartPlan, ...]

    @property
    def decoded_columns(self) -> tuple[str, ...]:
        """The columns that ``*`` means in ``select``."""
        return tuple(name for part in self.parts for name in part.columns)

    @property
    def plain_source_columns(self) -> tuple[str, ...]:
        """The columns of the source that SQL reads by their own name: no decoded column has it."""
        taken = {name.lower() for name in self.decoded_columns}
        return tuple(name for name in SOURCE_COLUMNS if name.lower() not in taken)

    @property
    def source_options(self) -> dict[str, str]:
        """The options with which the source is read, for the columns that ``decode`` takes if they are there."""
        return {"includeIsUtf8": "true"} if any(part.is_checked_text for part in self.parts) else {}


def decode_plan_of(spec: PipelineSpec, spark: SparkSession) -> DecodePlan:
    """``plan_decoding`` with the parser and the time zone of a session, classic or Connect."""
    time_zone = spark.conf.get("spark.sql.session.timeZone")
    assert time_zone is not None, "the session has a time zone"
    return plan_decoding(spec, StructType.fromDDL, time_zone)


def plan_decoding(spec: PipelineSpec, parse_ddl: ParseDdl, time_zone: str) -> DecodePlan:
    """The plan of a pipeline whose schema files were read (``read_pipeline``).

    Raises ``PipelineFileError`` with a line for each schema that cannot be used and each name that two columns would
    have, and ``FastavroMissing``.
    """
    problems: list[str] = []
    parts = []
    for section in (spec.decode, spec.decode_key, spec.decode_headers):
        if section is None:
            continue
        try:
            parts.append(_part_plan(section, parse_ddl, time_zone))
        except PayloadSchemaError as error:
            problems.append(problem(_SECTION_OF[section.part], _schema_key(section), str(error)))
    plan = DecodePlan(spec.file, tuple(parts))
    problems += _name_problems(plan)
    if problems:
        raise PipelineFileError(tuple(f"{spec.file}: {' '.join(line.split())}" for line in problems))
    return plan


def _schema_key(section: DecodeSection) -> str:
    return "schema" if section.schema_file is None else "schema-file"


def _part_plan(section: DecodeSection, parse_ddl: ParseDdl, time_zone: str) -> PartPlan:
    if section.format in ("bytes", "text"):
        return PartPlan(section.part, section.format, section.column)
    assert section.schema is not None, "the schema files of the pipeline were not read"
    decoder = None
    if section.format == "json":
        fields = _json_fields(section.schema, parse_ddl)
        if section.rescued is not None:
            decoder = DecoderSpec("json", fields.json(), rescues=True, time_zone=time_zone)
            _check(decoder)
    else:
        decoder = DecoderSpec("avro", section.schema, section.rescued is not None, registry=section.registry)
        # Spark has no time zone in the type: the zone of Arrow's type is what makes it one of Spark's two.
        fields = nullable(from_arrow_schema(_check(decoder), prefer_timestamp_ntz=True))
    column = None if section.part == "value" else section.column
    return PartPlan(section.part, section.format, column, fields, section.rescued, decoder)


def _check(spec: DecoderSpec) -> pa.Schema:
    """The Arrow schema of a decoder.  Raises ``PayloadSchemaError``; asks no registry and reads no secret."""
    without_registry = DecoderSpec(spec.format, spec.schema, spec.rescues, spec.time_zone)
    return build_decoder(without_registry, {}, _read_nothing).arrow_schema


def _read_nothing(path: str) -> bytes:
    raise AssertionError(f"{path}: the check of a schema reads no file")


def _json_fields(text: str, parse_ddl: ParseDdl) -> StructType:
    """The fields of a schema, DDL or Spark's JSON form; all nullable.  Raises ``PayloadSchemaError``."""
    if text.lstrip().startswith("{"):
        try:
            found: DataType = StructType.fromJson(json.loads(text))
        except Exception as error:  # pyspark has no common class for what a JSON form lacks
            raise PayloadSchemaError(
                f"the schema is not Spark's JSON form of a struct ({first_line(error)}); write it with "
                "df.schema.json(), or as DDL"
            ) from error
    else:
        try:
            found = parse_ddl(text)
        except Exception as error:  # the JVM's parser, or that of a Connect server
            raise PayloadSchemaError(
                f"the schema is not DDL of Spark SQL ({first_line(error)}); correct it, for example "
                "id BIGINT, page STRING"
            ) from error
    if not isinstance(found, StructType) or not found.fields:
        raise PayloadSchemaError("the schema has no fields; write it as names with types, like id BIGINT, page STRING")
    return nullable(found)


def first_line(error: Exception | str) -> str:
    """The first line of an error of Spark, without its SQLSTATE."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].partition(" SQLSTATE")[0] if lines else type(error).__name__


def nullable(fields: StructType) -> StructType:
    """The struct without NOT NULL: a field that a record does not have is null.

    Raises ``PayloadSchemaError`` for a map whose keys are no texts.
    """
    return StructType([StructField(each.name, _nullable(each.dataType)) for each in fields])


def _nullable(kind: DataType) -> DataType:
    match kind:
        case StructType():
            return nullable(kind)
        case ArrayType():
            return ArrayType(_nullable(kind.elementType))
        case MapType() if not isinstance(kind.keyType, StringType):
            raise PayloadSchemaError(
                f"a map has keys of the type {kind.keyType.simpleString()}, and the keys of JSON are texts; write "
                "MAP<STRING, …>"
            )
        case MapType():
            return MapType(kind.keyType, _nullable(kind.valueType))
        case _:
            return kind


# --- names --------------------------------------------------------------------------------------------------------


def _name_problems(plan: DecodePlan) -> Iterator[str]:
    """No column has a reserved name, and no two have the same one; Spark does not distinguish case."""
    owners: dict[str, str] = {}
    for part in plan.parts:
        if part.fields is not None:
            yield from (
                problem(part.section, "schema", f"{where} has two fields {name}; Spark does not distinguish case, so "
                        "rename one of them")
                for where, name in _twins(part.fields, "the schema")
            )  # fmt: skip
        for name in dict.fromkeys(part.columns):
            key = "rescued" if name == part.rescued else "column" if name == part.column else "schema"
            if is_reserved(name):
                prefixes = ", ".join(RESERVED_PREFIXES)
                yield problem(part.section, key, f"{name}: names that begin with {prefixes} are reserved; rename it")
            owner = owners.setdefault(name.lower(), part.section)
            if owner != part.section:
                yield problem(part.section, key, f"[{owner}] has a column {name} already; choose another name")


def _twins(fields: StructType, where: str) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for each in fields:
        if each.name.lower() in seen:
            yield where, each.name
        seen.add(each.name.lower())
        kind = each.dataType
        while isinstance(kind, (ArrayType, MapType)):
            kind = kind.elementType if isinstance(kind, ArrayType) else kind.valueType
        if isinstance(kind, StructType):
            yield from _twins(kind, f"the struct {each.name}")
