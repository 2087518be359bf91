"""The keys of the sections ``sink`` and ``dead-letters``.  Pure.

Both sections have the same keys for the same format, so that what is learned for one is valid for the other.  Dead
letters can also use the server or the brokers of the sink (``connection``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.spark.pipeline.option_keys import connection_keys
from bridge.spark.pipeline.pipeline_key import (
    KeyKind,
    PipelineKey,
    duration,
    filled_text,
    one_of,
    path,
    postgres_url,
    secret_place,
    topic_name,
)
from zkconsumer.config_def import Setting

SINK_FORMATS = ("parquet", "delta", "postgres", "topic")
DEAD_LETTER_FORMATS = ("none", "parquet", "delta", "postgres", "topic")
TIME_FOLDERS = ("day", "hour", "none")
PARQUET_CODECS = ("snappy", "zstd", "gzip", "none")
TOPIC_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SSL_MODES = ("prefer", "disable", "allow", "require", "verify-ca", "verify-full")
ACKS = ("all", "1")

OWN = "own"
"""The value of ``connection`` for a section that has its own server or brokers."""

CONNECTIONS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("sink", "topic"): ("source",),
    ("dead-letters", "postgres"): ("sink",),
    ("dead-letters", "topic"): ("source", "sink"),
}
"""Section and format -> the sections whose server or brokers it can use."""

FORMAT_REASONS: Mapping[str, str] = {
    "iceberg": "Iceberg has no release for Spark 4.2 or later",
    "jdbc": "the format of a PostgreSQL database is postgres",
    "postgresql": "the format of a PostgreSQL database is postgres",
    "kafka": "the format of a Kafka topic is topic",
    "console": "zkconsumer pipeline check shows the rows that would be written",
}
"""Formats of other programs -> why a sink does not have them."""

_TABLE = "the name of a table, without its schema"


def sink_keys() -> list[PipelineKey]:
    """The rows of ``sink``."""
    return [
        _row(
            "sink", KeyKind.CHOICE, is_required=True, example='"parquet"',
            setting=one_of(
                "format", SINK_FORMATS,
                "parquet: files in a folder; delta: a Delta table (Spark 4.2); postgres: a table of PostgreSQL; topic: "
                "a topic of Kafka, for rows with a column value, and key and headers if they have them; at least once.",
                FORMAT_REASONS,
            ),
        ),
        *_parquet("sink", "rows", "day"),
        *_delta("sink", "rows"),
        *_postgres("sink", "rows", "zkconsumer_batches"),
        *_topic("sink", "rows"),
    ]  # fmt: skip


def dead_letter_keys() -> list[PipelineKey]:
    """The rows of ``dead-letters``."""
    return [
        _row(
            "dead-letters", KeyKind.CHOICE, default="none",
            setting=one_of(
                "format", DEAD_LETTER_FORMATS,
                "none: there are no dead letters, and the query fails at the first record that would be one. The "
                "others: as in [sink].",
                FORMAT_REASONS,
            ),
        ),
        *_parquet("dead-letters", "dead letters", "none"),
        *_delta("dead-letters", "dead letters"),
        *_postgres("dead-letters", "dead letters", "zkconsumer_dead_letter_batches"),
        *_topic("dead-letters", "dead letters"),
    ]  # fmt: skip


def _row(section: str, kind: KeyKind, *, setting: Setting[Any], **rules: Any) -> PipelineKey:
    return PipelineKey(section=section, kind=kind, setting=setting, **rules)


def _parquet(section: str, what: str, folders: str) -> list[PipelineKey]:
    """``what``: what is written, in words.  ``folders``: the default of ``partition-by-time``."""
    formats = ("parquet",)
    return [
        _row(
            section, KeyKind.PATH, formats=formats, is_required=True, example=f'"data/{what.replace(" ", "-")}"',
            setting=path(
                "path", f"The folder of the {what}: files, and a manifest for each batch. Read it by the manifests."
            ),
        ),
        _row(
            section, KeyKind.CHOICE, formats=formats, default=folders,
            setting=one_of(
                "partition-by-time", TIME_FOLDERS,
                "The folders of the files by the time of the messages, in UTC. Messages without a time have one of "
                "their own.",
            ),
        ),
        _row(
            section, KeyKind.CHOICE, formats=formats, default="snappy",
            setting=one_of("compression", PARQUET_CODECS, "The compression of the files."),
        ),
    ]  # fmt: skip


def _delta(section: str, what: str) -> list[PipelineKey]:
    """``what``: what is written, in words."""
    formats = ("delta",)
    return [
        _row(
            section, KeyKind.PATH, formats=formats, is_required=True, excludes=("table",),
            example=f'"data/{what.replace(" ", "-")}"',
            setting=path("path", f"The folder of the Delta table of the {what}."),
        ),
        _row(
            section, KeyKind.TEXT, formats=formats, is_required=True, excludes=("path",),
            example=f'"shop.{what.replace(" ", "_")}"',
            setting=filled_text("table", f"The Delta table of the {what} in Spark's catalog.", "the name of a table"),
        ),
    ]  # fmt: skip


def _postgres(section: str, what: str, batch_table: str) -> list[PipelineKey]:
    """``batch_table``: the default of ``batch-table``; the sink and the dead letters must have different ones."""
    formats = ("postgres",)
    others = CONNECTIONS.get((section, "postgres"), ())

    def server(kind: KeyKind, *, setting: Setting[Any], **rules: Any) -> PipelineKey:
        is_in_template = section == "sink" or setting.key == "url"
        return _row(
            section, kind, formats=formats, taken_from=others, setting=setting, is_in_template=is_in_template, **rules
        )

    return [
        *_connection(section, "postgres", "Whose server is used: own, of this section; sink, that of [sink]."),
        server(
            KeyKind.TEXT, is_required=True, example='"postgresql://db:5432/shop"',
            setting=postgres_url(
                "url",
                "The database. The port is 5432 by default. Of several servers the first that accepts writes is used.",
            ),
        ),
        server(
            KeyKind.TEXT, example='"clicks"',
            setting=filled_text("user", "The user of the database; without it that of the process.", "a name"),
        ),
        server(
            KeyKind.SECRET, needs=("user",), example='"env:POSTGRES_PASSWORD"',
            setting=secret_place("password", "The user's password."),
        ),
        server(
            KeyKind.CHOICE, default="prefer", example='"verify-full"',
            setting=one_of(
                "ssl-mode", SSL_MODES,
                "Whether TLS is used and the server's certificate is checked, as sslmode of PostgreSQL's own clients.",
            ),
        ),
        server(
            KeyKind.PATH, needs=("ssl-mode",), example='"db-ca.pem"',
            setting=path(
                "ssl-root-certificate",
                "A PEM file with the authorities of the server's certificate, for ssl-mode verify-ca and verify-full.",
            ),
        ),
        server(
            KeyKind.DURATION, default="10s",
            setting=duration("connect-timeout", "How long one server may take to accept a connection.", low_ms=1_000),
        ),
        _row(
            section, KeyKind.TEXT, formats=formats, default="public",
            setting=filled_text("schema", "The schema of the tables.", "the name of a schema"),
        ),
        _row(
            section, KeyKind.TEXT, formats=formats, is_required=True, example=f'"{what.replace(" ", "_")}"',
            setting=filled_text("table", f"The table of the {what}.", _TABLE),
        ),
        _row(
            section, KeyKind.TEXT, formats=formats, default=batch_table,
            setting=filled_text(
                "batch-table",
                f"The table with one row for each batch of {what}, its offset ranges and counts. It makes the writes "
                "exactly-once.",
                _TABLE,
            ),
        ),
    ]  # fmt: skip


def _topic(section: str, what: str) -> list[PipelineKey]:
    formats = ("topic",)
    others = " Without it each row needs a column topic." if section == "sink" else ""
    return [
        _row(
            section, KeyKind.TEXT, formats=formats, is_required=section == "dead-letters",
            example=f'"clicks-{what.replace(" ", "-")}"',
            setting=topic_name("topic", f"The topic of the {what}. It gets them at least once: after a crash some "
                               "twice. It must exist." + others),
        ),
        _row(
            section, KeyKind.CHOICE, formats=formats, default="none",
            setting=one_of(
                "compression", TOPIC_CODECS, "The compression of the messages; zstd needs brokers from 2.1 on."
            ),
        ),
        _row(
            section, KeyKind.CHOICE, formats=formats, default="all",
            setting=one_of(
                "acks", ACKS,
                "Which replicas must have a message: all that are in sync, or only the leader (1). With 1 messages are "
                "lost when a leader fails.",
            ),
        ),
        *_connection(
            section, "topic", "Whose brokers are used: own, of this section; else those of that section, as kafka.*."
        ),
        *connection_keys(section, CONNECTIONS[section, "topic"]),
    ]  # fmt: skip


def _connection(section: str, format_: str, sentence: str) -> list[PipelineKey]:
    """The key ``connection``, where there is a choice."""
    others = CONNECTIONS.get((section, format_), ())
    setting = one_of("connection", (OWN, *others), sentence)
    return [_row(section, KeyKind.CHOICE, formats=(format_,), default=OWN, setting=setting)] if others else []
