"""Builds a ``PipelineSpec`` from the values of the sections of a file that has no problem.  Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

from bridge.spark.pipeline.option_checks import option_warnings
from bridge.spark.pipeline.option_keys import CONNECTION_OPTIONS, SOURCE_DEFAULTS
from bridge.spark.pipeline.pipeline_key import parse_postgres_url
from bridge.spark.pipeline.pipeline_keys import DECODE_SECTIONS
from bridge.spark.pipeline.pipeline_rules import lineage_folder
from bridge.spark.pipeline.pipeline_spec import (
    CheckpointSection,
    DeadLetterTarget,
    DecodeSection,
    DeltaTarget,
    MetricsSection,
    ParquetTarget,
    PipelineSpec,
    PostgresTarget,
    RegistrySection,
    SinkTarget,
    SourceSection,
    TopicTarget,
    TransformSection,
    TriggerSection,
)
from bridge.spark.pipeline.secret_reference import MaybeSecret
from bridge.spark.pipeline.section_values import SectionValues
from bridge.spark.pipeline.target_keys import OWN
from bridge.spark.pipeline.toml_values import problem

UNNAMED = "pipeline"
"""The name of a pipeline whose file has a name without a letter or a digit."""

_NOT_IN_NAMES = re.compile("[^A-Za-z0-9._-]+")


def build_spec(file: str, sections: Mapping[str, SectionValues], schemas: Mapping[str, str]) -> PipelineSpec:
    """The pipeline of ``file``.  ``sections``: all of them, without a problem.  ``schemas``: section -> the text of its
    schema file."""
    decoded = {
        section: _decode(part, sections[section], schemas.get(section)) for section, part in DECODE_SECTIONS.items()
    }
    dead_letters = _dead_letters(sections)
    has_headers = bool(sections["decode.headers"].given)
    trigger, transform = sections["trigger"], sections["transform"]
    warnings = option_warnings(sections["source"].values)
    return PipelineSpec(
        file=file,
        name=sections["pipeline"].get("name") or _name_of_file(file),
        source=_source(sections["source"], wants_headers=has_headers or dead_letters is not None),
        decode=decoded["decode"],
        decode_key=decoded["decode.key"],
        decode_headers=decoded["decode.headers"] if has_headers else None,
        transform=TransformSection(transform.get("select"), transform.get("where")),
        sink=_target(sections["sink"], sections),
        dead_letters=dead_letters,
        trigger=TriggerSection(None if trigger.get("available-now") else trigger.get("interval")),
        checkpoint=CheckpointSection(sections["checkpoint"].get("path")),
        metrics=MetricsSection(sections["metrics"].get("listen")),
        hadoop=sections["hadoop"].values,
        warnings=tuple(f"{file}: {problem('source', option, why)}" for option, why in warnings.items()),
    )


def _name_of_file(file: str) -> str:
    stem = posixpath.splitext(posixpath.basename(file))[0]
    return _NOT_IN_NAMES.sub("-", stem).strip("-.") or UNNAMED


def _source(source: SectionValues, *, wants_headers: bool) -> SourceSection:
    """The given options, the defaults of a pipeline, and the headers if a later part needs them."""
    options: dict[str, MaybeSecret] = {**SOURCE_DEFAULTS, **source.values}
    if wants_headers:
        options.setdefault("includeHeaders", "true")
    return SourceSection(options)


def _decode(part: str, values: SectionValues, schema: str | None) -> DecodeSection:
    format_ = values.format
    assert format_ is not None, "a format with a problem is a problem of the file"
    return DecodeSection(
        part=part, format=format_, column=values.get("column"), schema=values.get("schema") or schema,
        schema_file=values.get("schema-file"), rescued=values.get("rescued"),
        registry=_registry(values) if values.get("registry") else None,
    )  # fmt: skip


def _registry(values: SectionValues) -> RegistrySection:
    return RegistrySection(
        url=values.get("registry"), user=values.get("registry-user"), password=values.get("registry-password"),
        ca_file=values.get("registry-ca-file"), connect_timeout_ms=values.get("registry-connect-timeout"),
        read_timeout_ms=values.get("registry-read-timeout"), lookup_timeout_ms=values.get("registry-timeout"),
        retries_max=values.get("registry-retries"),
    )  # fmt: skip


def _dead_letters(sections: Mapping[str, SectionValues]) -> DeadLetterTarget | None:
    values = sections["dead-letters"]
    if values.format == "none":
        return None
    return _target(values, sections)


def _target(values: SectionValues, sections: Mapping[str, SectionValues]) -> SinkTarget:
    match values.format:
        case "parquet":
            return ParquetTarget(values.get("path"), values.get("partition-by-time"), values.get("compression"))
        case "delta":
            place = None if values.get("table") is None else _lineage_folder(values, sections)
            return DeltaTarget(values.get("path"), values.get("table"), place)
        case "postgres":
            return _postgres(values, sections["sink"] if values.get("connection") == "sink" else values)
        case "topic":
            brokers = _connection(values, sections)
            return TopicTarget(
                values.get("topic"), brokers, values.get("compression"), values.get("acks"),
                _lineage_folder(values, sections),
                holds_dead_letters=values.section == "dead-letters",
            )  # fmt: skip
    raise AssertionError(f"{values.format} is not a format, so it is a problem of the file")


def _lineage_folder(values: SectionValues, sections: Mapping[str, SectionValues]) -> str:
    """The folder of a section beside the checkpoint."""
    return f"{lineage_folder(sections['checkpoint'].get('path'))}/{values.section}"


def _postgres(values: SectionValues, server: SectionValues) -> PostgresTarget:
    servers, database = parse_postgres_url(server.get("url"))
    return PostgresTarget(
        servers=servers, database=database, user=server.get("user"), password=server.get("password"),
        ssl_mode=server.get("ssl-mode"), ssl_root_certificate=server.get("ssl-root-certificate"),
        connect_timeout_ms=server.get("connect-timeout"), schema=values.get("schema"), table=values.get("table"),
        batch_table=values.get("batch-table"),
    )  # fmt: skip


def _connection(values: SectionValues, sections: Mapping[str, SectionValues]) -> dict[str, MaybeSecret]:
    """The options of the brokers of a topic: those of its own section, or of the one that ``connection`` names."""
    connection = values.get("connection") or OWN
    if values.section != "source" and connection != OWN:
        return _connection(sections[connection], sections)
    return {name: value for name, value in values.values.items() if name in CONNECTION_OPTIONS & values.given}
