"""``AvroDecoder``: decodes Avro payloads onto the pipeline's schema, with ``fastavro``.

    plain      the payload is one record by the writer's schema (a file, or the pipeline's own)
    Confluent  byte 0, the schema id (4 bytes, big-endian), one record by the schema of that id in the registry

    payloads --schema id--> ResolvedWriter --fastavro--> raw records --avro_resolution--> columns, errors, rescued

Each record is read by the schema that it was written with, so one batch may have many.  A record becomes a dead letter
if its framing is wrong, if there is no usable schema for its id, if its schema cannot be resolved onto the pipeline's,
or if its bytes are too few, too many, or no value of the column; the error text begins with the schema id.

Theory of operation.  ``_writers`` has an entry for each schema id: a resolved writer, or the reason why all its records
are dead letters.  Registered schemas never change, so an entry for one is kept until ``WRITERS_CACHED_MAX`` others were
used later; the reason that the registry has no such schema is not kept here, since it may be registered later (the
client keeps it for a while, and ``_decode_batch`` for the batch).  A failure of the registry leaves ``decode`` as an
exception, before any array is built: the batch fails and is repeated.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeAlias

import pyarrow as pa

from bridge.spark.pipeline.decode.avro_resolution import (
    AvroUnresolvable,
    AvroValueError,
    RecordResolution,
    check_defaults,
    physical_schema,
    resolve_record,
)
from bridge.spark.pipeline.decode.avro_types import AvroSchemaError, AvroType, arrow_schema_of, parse_avro
from bridge.spark.pipeline.decode.payload_decoder import (
    DecodedColumns,
    PayloadSchemaError,
    decoded_columns,
    error_text,
    payload_list,
)
from bridge.spark.pipeline.decode.rescued_fields import RescuedField, rescued_text
from bridge.spark.pipeline.decode.schema_registry import (
    RegisteredSchema,
    SchemaRegistryClient,
    SchemaRegistrySettings,
    SchemaUnusable,
)
from zkconsumer.errors import UsageError

WRITERS_CACHED_MAX = 1_000
"""The maximum number of schema ids whose resolution is kept."""

PLAIN_ID = -1
"""The place of the one writer of plain payloads in ``_writers``; the registry's ids are not negative."""

_MAGIC = b"\0"
_HEADER_BYTES = 5

LookupSchema: TypeAlias = Callable[[int], RegisteredSchema]


class FastavroMissing(UsageError, ImportError):
    """Avro needs the package ``fastavro``; install it where the driver and the executors run."""


@dataclass(frozen=True, slots=True)
class ResolvedWriter:
    """A writer's schema, resolved.  ``physical``: the parsed schema for ``fastavro``."""

    physical: Any
    resolution: RecordResolution


@dataclass(slots=True)
class _Rows:
    """The rows of a batch that one writer's schema decodes: their numbers, and their payloads without framing."""

    numbers: list[int] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)


class AvroDecoder:
    """Decodes Avro.  Can be pickled with its settings; the caches are made anew in the worker.

    ``schema``: the pipeline's schema (JSON text).  ``writer_schema``: the schema of plain payloads; None: the
    pipeline's.  ``registry``: with it payloads have Confluent's framing, without it they are plain.  ``rescues``:
    fields of the writer that the pipeline's schema lacks go to the rescued column; otherwise they are passed over.

    Raises ``PayloadSchemaError`` for a schema that cannot be used, and ``FastavroMissing``.
    """

    def __init__(
        self,
        schema: str,
        *,
        writer_schema: str | None = None,
        registry: SchemaRegistrySettings | None = None,
        rescues: bool = False,
        lookup: LookupSchema | None = None,
    ) -> None:
        """``lookup`` replaces the client of the registry, in tests; a function that can be pickled."""
        if registry is not None and writer_schema is not None:
            raise PayloadSchemaError(
                "with a registry each record names its writer's schema; remove either the registry or the writer's "
                "schema"
            )
        self._schema = schema
        self._writer_schema = writer_schema
        self._registry = registry
        self._rescues = rescues
        self._lookup = lookup
        self._reader = _pipeline_schema(schema)
        self._arrow_schema = arrow_schema_of(self._reader)
        check_defaults(self._reader)
        self._fastavro = _fastavro()
        # The resolved writer of an id, or why all its records are dead letters; the last one was used last.
        self._writers: OrderedDict[int, ResolvedWriter | str] = OrderedDict()
        # None until the first payload with an unknown id.
        self._client: SchemaRegistryClient | None = None
        if not self._is_framed:
            self._writers[PLAIN_ID] = self._resolve_plain()

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self._schema, self._writer_schema, self._registry, self._rescues, self._lookup)

    def __repr__(self) -> str:
        return f"AvroDecoder({self._reader.name!r}, registry={self._registry!r}, rescues={self._rescues})"

    @property
    def arrow_schema(self) -> pa.Schema:
        return self._arrow_schema

    @property
    def _is_framed(self) -> bool:
        return self._registry is not None or self._lookup is not None

    def decode(self, payloads: pa.Array) -> DecodedColumns:
        """Decodes payloads; see ``PayloadDecoder``.

        Raises ``SchemaRegistryUnavailable`` (repeat the batch) and ``SchemaRegistryRefused`` (an operator must act).
        """
        values = payload_list(payloads)
        columns: list[list[Any]] = [[None] * len(values) for _ in self._arrow_schema]
        errors: list[str | None] = [None] * len(values)
        rescued: list[str | None] | None = [None] * len(values) if self._rescues else None
        by_schema = self._by_schema(values, errors)
        for schema_id, rows in by_schema.items():
            writer = self._writer(schema_id)
            if isinstance(writer, str):
                for number in rows.numbers:
                    errors[number] = error_text(writer)
            else:
                self._decode_rows(schema_id, writer, rows, columns, errors, rescued=rescued)

        ids: dict[int, int] = {}

        def prefix_of(row: int) -> str:
            if not ids:
                ids.update((number, schema_id) for schema_id, rows in by_schema.items() for number in rows.numbers)
            return _of_id(ids[row])

        absent = [value is None for value in values]
        return decoded_columns(self._arrow_schema, columns, absent, errors, rescued, prefix_of=prefix_of)

    def _by_schema(self, values: list[bytes | None], errors: list[str | None]) -> dict[int, _Rows]:
        found: dict[int, _Rows] = {}
        for number, value in enumerate(values):
            if value is None:
                continue
            if not self._is_framed:
                schema_id, body = PLAIN_ID, value
            elif value[:1] != _MAGIC or len(value) < _HEADER_BYTES:
                errors[number] = _framing_error(value)
                continue
            else:
                schema_id, body = int.from_bytes(value[1:_HEADER_BYTES], "big", signed=True), value[_HEADER_BYTES:]
                if schema_id < 0:
                    errors[number] = f"schema id {schema_id}: ids are not negative; the payload has no such framing"
                    continue
            rows = found.get(schema_id)
            if rows is None:
                rows = found[schema_id] = _Rows()
            rows.numbers.append(number)
            rows.payloads.append(body)
        return found

    def _decode_rows(
        self,
        schema_id: int,
        writer: ResolvedWriter,
        rows: _Rows,
        columns: list[list[Any]],
        errors: list[str | None],
        *,
        rescued: list[str | None] | None,
    ) -> None:
        numbers, records = self._read(schema_id, writer, rows, errors)
        extra: dict[int, list[RescuedField]] = {}
        for column, source in zip(columns, writer.resolution.sources, strict=True):
            name, convert = source.writer_name, source.convert
            if name is None:
                for number in numbers:
                    column[number] = source.default
            elif convert is None:
                for number, record in zip(numbers, records, strict=True):
                    column[number] = record[name]
            else:
                for number, record in zip(numbers, records, strict=True):
                    added: list[RescuedField] = []
                    try:
                        column[number] = convert(record[name], source.name, added)
                    except AvroValueError as error:
                        errors[number] = errors[number] or error_text(f"{_of_id(schema_id)}{error}")
                    if added:
                        extra.setdefault(number, []).extend(added)
        if rescued is not None:
            for number, record in zip(numbers, records, strict=True):
                fields = extra.get(number, [])
                writer.resolution.rescue(record, "", fields)
                rescued[number] = rescued_text(fields)
        for number in numbers:
            if errors[number] is not None:
                for column in columns:
                    column[number] = None

    def _read(
        self, schema_id: int, writer: ResolvedWriter, rows: _Rows, errors: list[str | None]
    ) -> tuple[list[int], list[dict[str, Any]]]:
        """The rows that are complete, and their raw records."""
        read, physical, opened = self._fastavro.schemaless_reader, writer.physical, io.BytesIO
        numbers: list[int] = []
        records: list[dict[str, Any]] = []
        for number, payload in zip(rows.numbers, rows.payloads, strict=True):
            stream = opened(payload)
            try:
                record = read(stream, physical, None)
            except Exception as error:  # noqa: BLE001 (fastavro documents no errors for invalid bytes; MemoryError too)
                errors[number] = f"{_of_id(schema_id)}{_broken(error)}"
                continue
            rest = len(payload) - stream.tell()
            if rest:
                errors[number] = f"{_of_id(schema_id)}{rest} bytes are left behind the record"
                continue
            numbers.append(number)
            records.append(record)
        return numbers, records

    def _writer(self, schema_id: int) -> ResolvedWriter | str:
        found = self._writers.get(schema_id)
        if found is not None:
            self._writers.move_to_end(schema_id)
            return found
        try:
            registered = self._registered(schema_id)
        except SchemaUnusable as error:
            return str(error)
        try:
            made: ResolvedWriter | str = self._resolve(registered.text, registered.references)
        except AvroSchemaError as error:
            made = f"schema id {schema_id}: the registered schema cannot be used: {error}"
        except AvroUnresolvable as error:
            made = f"schema id {schema_id}: {error}"
        self._writers[schema_id] = made
        while len(self._writers) > WRITERS_CACHED_MAX:
            self._writers.popitem(last=False)
        return made

    def _registered(self, schema_id: int) -> RegisteredSchema:
        if self._lookup is not None:
            return self._lookup(schema_id)
        if self._client is None:
            assert self._registry is not None, "only framed payloads have a schema id"
            self._client = SchemaRegistryClient(self._registry)
        return self._client.lookup(schema_id)

    def _resolve_plain(self) -> ResolvedWriter:
        if self._writer_schema is None:
            return self._resolve(self._schema, ())
        try:
            return self._resolve(self._writer_schema, ())
        except AvroSchemaError as error:
            raise PayloadSchemaError(f"the writer's Avro schema cannot be used: {error}; correct the schema") from error
        except AvroUnresolvable as error:
            raise PayloadSchemaError(f"{error}: no record could be decoded; correct one of the schemas") from error

    def _resolve(self, text: str, references: tuple[str, ...]) -> ResolvedWriter:
        writer = parse_avro(text, references)
        resolution = resolve_record(writer, self._reader, rescues=self._rescues)
        return ResolvedWriter(self._fastavro.parse_schema(physical_schema(writer)), resolution)


def _unpickled(
    schema: str,
    writer_schema: str | None,
    registry: SchemaRegistrySettings | None,
    rescues: bool,
    lookup: LookupSchema | None,
) -> AvroDecoder:
    return AvroDecoder(schema, writer_schema=writer_schema, registry=registry, rescues=rescues, lookup=lookup)


def _pipeline_schema(text: str) -> AvroType:
    try:
        return parse_avro(text)
    except AvroSchemaError as error:
        raise PayloadSchemaError(f"the pipeline's Avro schema cannot be used: {error}; correct the schema") from error


def _fastavro() -> Any:
    try:
        return import_module("fastavro")
    except ImportError as error:
        raise FastavroMissing(
            "format = \"avro\" needs the package fastavro: pip install 'fastavro>=1.9', on the driver and on every "
            "executor"
        ) from error


def _framing_error(payload: bytes) -> str:
    if payload[:1] != _MAGIC:
        first = f"its first byte is {payload[0]}" if payload else "it is empty"
        return f"the payload has no schema id: {first}, and Confluent's framing begins with byte 0"
    return f"the payload has no schema id: it has {len(payload)} bytes, and Confluent's framing needs {_HEADER_BYTES}"


def _of_id(schema_id: int) -> str:
    return "" if schema_id == PLAIN_ID else f"schema id {schema_id}: "


def _broken(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "a string is not UTF-8"
    if isinstance(error, EOFError):
        return "the payload ends within the record"
    if isinstance(error, IndexError):
        return "the bytes are no record of this schema: the number of a branch or a length is wrong"
    return f"the bytes are no record of this schema ({type(error).__name__})"
