"""The table of all keys of the pipeline file.  Pure.

    SECTIONS          name -> what the section is for, in the order of the template
    PIPELINE_KEYS     one row for each key; two rows of one section and name have different formats
    keys_of(section)  its rows

``option_keys`` makes the rows of the source and of connections to brokers, ``target_keys`` those of the sink and the
dead letters.  ``pipeline_rules`` has the rules that concern values, or several sections.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.spark.option_table import SOURCE_OPTIONS
from bridge.spark.pipeline.option_keys import source_keys
from bridge.spark.pipeline.pipeline_key import (
    KeyKind,
    PipelineKey,
    column_name,
    duration,
    filled_text,
    one_of,
    path,
    registry_url,
    secret_place,
    text_list,
)
from bridge.spark.pipeline.target_keys import dead_letter_keys, sink_keys
from zkconsumer.config_def import Setting, boolean, check_group_id, integer, optional_text

SECTIONS: Mapping[str, str] = {
    "pipeline": "The pipeline itself.",
    "source": 'What is read, and as which member: the options of format("zkconsumer") for streams, with their names.',
    "decode": "How the values of the records become columns.",
    "decode.key": "How the keys of the records become a column. The other keys are those of [decode].",
    "decode.headers": "How the headers of the records become a column. Without a key here they do not. The other keys "
    "are those of [decode].",
    "transform": "What is written of the decoded columns, in Spark SQL.",
    "sink": "Where the rows are written. The brokers of a topic have the other kafka.* keys of [source], too.",
    "dead-letters": "Where records are kept that cannot be read, decoded, transformed or written. The other keys for a "
    "server or brokers are those of [sink].",
    "trigger": "When a micro-batch begins.",
    "checkpoint": "Where Spark stores the progress of the query.",
    "hadoop": "Settings of Hadoop's file systems, with Hadoop's own names, for all folders of this file that are not "
    'local: "fs.s3a.endpoint" = "https://s3:9000". A secret is a place: "fs.s3a.secret.key" = "env:S3_SECRET".',
    "metrics": "Where the pipeline serves its metrics.",
}

DECODE_SECTIONS: Mapping[str, str] = {"decode": "value", "decode.key": "key", "decode.headers": "headers"}
"""Section -> the column of the source that it decodes."""

DECODE_FORMATS = ("bytes", "text", "json", "avro")


def _row(section: str, kind: KeyKind, *, setting: Setting[Any], **rules: Any) -> PipelineKey:
    is_repeated = section in ("decode.key", "decode.headers") and setting.key not in ("format", "column")
    return PipelineKey(section=section, kind=kind, setting=setting, is_in_template=not is_repeated, **rules)


def _decode_keys(section: str, part: str) -> list[PipelineKey]:
    """The keys of one section that decodes; ``part``: what it decodes."""
    with_schema = ("json", "avro")
    is_value = part == "value"
    return [
        _row(
            section, KeyKind.CHOICE, default="bytes",
            setting=one_of(
                "format", DECODE_FORMATS,
                f"What {'each header' if part == 'headers' else f'the {part}'} contains. bytes: it is not decoded; "
                "text: UTF-8; json: one JSON object; avro: one Avro datum, with a registry in Confluent's "
                "framing (a zero byte, and the schema's id in 4 bytes).",
            ),
        ),
        _row(
            section, KeyKind.TEXT, default=part, formats=("bytes", "text") if is_value else (),
            setting=column_name(
                "column",
                f"The name of the column with the {part}."
                + (" The fields of JSON and Avro are columns themselves." if is_value else ""),
            ),
        ),
        _row(
            section, KeyKind.TEXT, formats=with_schema, is_required=True, excludes=("schema-file",),
            example='"id BIGINT, page STRING"',
            setting=filled_text(
                "schema", "The schema: of JSON as DDL of Spark SQL, of Avro as its JSON.", "the text of a schema"
            ),
        ),
        _row(
            section, KeyKind.PATH, formats=with_schema, is_required=True, excludes=("schema",), example='"clicks.avsc"',
            setting=path(
                "schema-file",
                "A file with the schema: of JSON as DDL or as Spark's JSON form of a schema, of Avro its JSON (.avsc).",
            ),
        ),
        _row(
            section, KeyKind.TEXT, formats=with_schema, example='"_rescued"',
            setting=column_name(
                "rescued",
                "The name of a column for fields that the schema does not have and for JSON fields of another type, as "
                "JSON text. Without it there is no such column, and decoding is faster.",
            ),
        ),
        *_registry_keys(section),
    ]  # fmt: skip


def _registry_keys(section: str) -> list[PipelineKey]:
    avro, registry = ("avro",), ("registry",)
    return [
        _row(
            section, KeyKind.TEXT, formats=avro, example='"https://registry:8081"',
            setting=registry_url(
                "registry",
                "The schema registry (Confluent's HTTP API) that has the writers' schemas. A record is decoded by the "
                "schema of its writer, and gets the schema of this section.",
            ),
        ),
        _row(
            section, KeyKind.TEXT, formats=avro, needs=("registry", "registry-password"), example='"clicks"',
            setting=filled_text("registry-user", "The user of the registry (basic authentication).", "a name"),
        ),
        _row(
            section, KeyKind.SECRET, formats=avro, needs=("registry", "registry-user"),
            example='"env:REGISTRY_PASSWORD"',
            setting=secret_place("registry-password", "The user's password at the registry."),
        ),
        _row(
            section, KeyKind.PATH, formats=avro, needs=registry, example='"registry-ca.pem"',
            setting=path(
                "registry-ca-file",
                "A PEM file with the authorities of the registry's certificate. Without it those of the system.",
            ),
        ),
        _row(
            section, KeyKind.DURATION, default="5s", formats=avro, needs=registry,
            setting=duration("registry-connect-timeout", "How long a connection to the registry may take to open."),
        ),
        _row(
            section, KeyKind.DURATION, default="10s", formats=avro, needs=registry,
            setting=duration(
                "registry-read-timeout",
                "How long the registry may be silent. Then the request is repeated.",
            ),
        ),
        _row(
            section, KeyKind.DURATION, default="60s", formats=avro, needs=registry,
            setting=duration(
                "registry-timeout",
                "How long one schema may take with all retries. Then the batch fails and is repeated; no record "
                "becomes a dead letter because of a registry that does not answer.",
            ),
        ),
        _row(
            section, KeyKind.INTEGER, default=5, formats=avro, needs=registry,
            setting=integer(
                "registry-retries", 5, "How often a request to the registry is repeated.", unit="attempts", high=1_000
            ),
        ),
    ]  # fmt: skip


def _other_keys() -> list[PipelineKey]:
    """The keys of the sections after the dead letters, and of ``transform``."""
    listen = SOURCE_OPTIONS["metrics.listen"]
    metrics_listen = optional_text(
        "listen", "Where the pipeline serves its metrics, in the text format of Prometheus.",
        listen.parse, listen.allowed,
    )  # fmt: skip
    metrics_listen.mask = listen.mask
    return [
        _row(
            "transform", KeyKind.TEXT_LIST, default=("*",),
            setting=text_list(
                "select",
                'The columns that are written, expressions of Spark SQL. ["*"]: all decoded columns.',
            ),
        ),
        _row(
            "transform", KeyKind.TEXT, example='"value IS NOT NULL"',
            setting=filled_text(
                "where",
                "Only rows for which this condition is true are written. The others are counted as filtered.",
                "a condition of Spark SQL",
            ),
        ),
        _row(
            "trigger", KeyKind.BOOLEAN, default=False, example="true",
            setting=boolean(
                "available-now", False,
                "true: the pipeline reads what is there when it starts, and ends. Not with interval.",
            ),
        ),
        _row(
            "trigger", KeyKind.DURATION, default="30s",
            setting=duration(
                "interval",
                "The time from the start of one micro-batch to the start of the next; 0s: without a pause.",
                low_ms=0,
            ),
        ),
        _row(
            "checkpoint", KeyKind.PATH, is_required=True, example='"data/checkpoint"',
            setting=path(
                "path",
                "The folder of Spark's checkpoint. With the same folder a pipeline continues where it stopped; with a "
                "new one it is another query.",
            ),
        ),
        _row("metrics", KeyKind.TEXT, setting=metrics_listen, example='"127.0.0.1:9310"'),
    ]  # fmt: skip


def _pipeline_keys() -> list[PipelineKey]:
    name = optional_text(
        "name", "The name of the pipeline in Spark's pages, logs and metrics. Without it the name of the file.",
        check_group_id, "letters, digits, '.', '_' and '-'",
    )  # fmt: skip
    return [_row("pipeline", KeyKind.TEXT, setting=name, example='"clicks"')]


PIPELINE_KEYS: tuple[PipelineKey, ...] = (
    *_pipeline_keys(),
    *source_keys(),
    *(row for section, part in DECODE_SECTIONS.items() for row in _decode_keys(section, part)),
    *sink_keys(),
    *dead_letter_keys(),
    *_other_keys(),
)
"""Every key of the file."""


def keys_of(section: str, format_: str | None = None) -> list[PipelineKey]:
    """The rows of a section that are valid with its format; None: of all formats."""
    return [key for key in PIPELINE_KEYS if key.section == section and key.is_valid_with(format_)]
