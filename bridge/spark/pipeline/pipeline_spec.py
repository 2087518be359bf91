"""``PipelineSpec``: the values of a pipeline file, one dataclass for each section.  Pure.

Everything is parsed, checked and complete: defaults are in place, paths are relative to nothing but the process (or
absolute, or URIs), times are in ms, and what one section takes from another one is there.  A secret is a
``SecretReference``, so a ``repr`` and a pickle contain only its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from bridge.spark.pipeline.secret_reference import MaybeSecret, ReadFile, SecretReference, resolve_secrets


@dataclass(frozen=True, slots=True)
class SourceSection:
    """``options``: of ``format("zkconsumer")``, as they are given and with the defaults that a pipeline has."""

    options: Mapping[str, MaybeSecret]

    def option_texts(self) -> dict[str, str]:
        """The options for ``.options(**)``, with the place of each secret instead of the secret."""
        return {name: str(value) for name, value in self.options.items()}

    def resolved_options(self, environment: Mapping[str, str], read_file: ReadFile) -> dict[str, str]:
        """The options for ``.options(**)`` with the secrets.  Raises ``SecretUnavailableError``."""
        return resolve_secrets(self.options, environment, read_file)


@dataclass(frozen=True, slots=True)
class RegistrySection:
    """A schema registry.  ``user`` and ``password``: basic authentication, both or none."""

    url: str
    user: str | None
    password: SecretReference | None
    ca_file: str | None
    connect_timeout_ms: int
    read_timeout_ms: int
    lookup_timeout_ms: int
    retries_max: int


@dataclass(frozen=True, slots=True)
class DecodeSection:
    """How one part of a record is decoded: ``[decode]``, ``[decode.key]`` or ``[decode.headers]``.

    ``part``: ``value``, ``key`` or ``headers``, the column of the source.  ``format``: ``bytes``, ``text``, ``json`` or
    ``avro``.  ``schema``: its text, with ``json`` and ``avro`` only; None also if it is in ``schema_file`` and no files
    were read (``parse_pipeline``).  ``column``: the name of the decoded column; None for JSON and Avro values, whose
    fields are columns.  ``rescued``: the name of the column of rescued fields; None: there is none.
    """

    part: str
    format: str
    column: str | None = None
    schema: str | None = None
    schema_file: str | None = None
    rescued: str | None = None
    registry: RegistrySection | None = None


@dataclass(frozen=True, slots=True)
class TransformSection:
    """``select``: expressions of Spark SQL, one at least.  ``where``: a condition; None: every row is written."""

    select: tuple[str, ...]
    where: str | None


@dataclass(frozen=True, slots=True)
class ParquetTarget:
    """Files in the folder ``path``.  ``partition_by_time``: ``day``, ``hour`` or ``none``."""

    path: str
    partition_by_time: str
    compression: str


@dataclass(frozen=True, slots=True)
class DeltaTarget:
    """A Delta table: in the folder ``path``, or ``table`` of Spark's catalog; the other one is None.

    ``place_folder``: of a table of the catalog: the folder beside the checkpoint with the place of the table.
    """

    path: str | None
    table: str | None
    place_folder: str | None = None


@dataclass(frozen=True, slots=True)
class PostgresTarget:
    """Two tables in ``schema`` of a PostgreSQL database.

    ``servers``: hosts with ports.  ``user``, ``password``: None: those of the process (``PGUSER``, ``.pgpass``).
    ``batch_table``: one row for each batch.  ``ssl_mode``: as ``sslmode`` of libpq.
    """

    servers: tuple[tuple[str, int], ...]
    database: str
    user: str | None
    password: SecretReference | None
    ssl_mode: str
    ssl_root_certificate: str | None
    connect_timeout_ms: int
    schema: str
    table: str
    batch_table: str


@dataclass(frozen=True, slots=True)
class TopicTarget:
    """A topic of Kafka.

    ``topic``: None: each row has its own.  ``connection``: the options ``kafka.*`` of its brokers.  ``acks``: ``all``
    or ``1``.  ``lineage_path``: the folder with one file for each batch, beside the checkpoint.
    """

    topic: str | None
    connection: Mapping[str, MaybeSecret]
    compression: str
    acks: str
    lineage_path: str
    holds_dead_letters: bool


SinkTarget: TypeAlias = ParquetTarget | DeltaTarget | PostgresTarget | TopicTarget
DeadLetterTarget: TypeAlias = SinkTarget


@dataclass(frozen=True, slots=True)
class TriggerSection:
    """``interval_ms``: from the start of one micro-batch to that of the next; None: what is there now, then the end."""

    interval_ms: int | None

    @property
    def is_available_now(self) -> bool:
        """Whether the pipeline ends when it has read what was there at its start."""
        return self.interval_ms is None


@dataclass(frozen=True, slots=True)
class CheckpointSection:
    """``path``: the folder of Spark's checkpoint."""

    path: str


@dataclass(frozen=True, slots=True)
class MetricsSection:
    """``listen``: ``HOST:PORT`` for Prometheus; None: nothing listens."""

    listen: str | None


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """A pipeline.

    ``file``: the pipeline file, as the user named it.  ``name``: the pipeline's.  ``decode_headers``: None: the headers
    are not decoded.  ``dead_letters``: None: a record that would be one fails the query.  ``warnings``: a line for each
    key that has no effect.  ``hadoop``: settings of Hadoop's file systems.
    """

    file: str
    name: str
    source: SourceSection
    decode: DecodeSection
    decode_key: DecodeSection
    decode_headers: DecodeSection | None
    transform: TransformSection
    sink: SinkTarget
    dead_letters: DeadLetterTarget | None
    trigger: TriggerSection
    checkpoint: CheckpointSection
    metrics: MetricsSection
    warnings: tuple[str, ...] = ()
    hadoop: Mapping[str, MaybeSecret] = field(default_factory=dict)

    @property
    def writes_delta(self) -> bool:
        """Whether the Spark session needs Delta."""
        return any(isinstance(each, DeltaTarget) for each in (self.sink, self.dead_letters))
