"""The manifest of a batch, the names of all files of a parquet table, and the folders of message time.  Pure.

    <table>/message_day=2026-11-27/<query>-<batch>-<attempt>-00000.parquet     rows
    <table>/_zkconsumer/schema.json                                            the columns, as JSON of Spark
    <table>/_zkconsumer/batches/<query>/<batch>.json                           the manifest: lineage and files
    <table>/_zkconsumer/reservations/<query>/<batch>.json                      reserved ranges of a backfill or replay
    <table>/_zkconsumer/attempts/<query>~<batch>~<ms>~<attempt>                what executors of an attempt write
    <table>/_zkconsumer/attempts/<query>~<batch>~<ms>~<attempt>.json           its manifest before the commit, or empty
    <table>/_zkconsumer/attempts/<query>~<batch>~<ms>~<attempt>.dead           the same, of an attempt that is removed

Readers of other programs ignore the folder ``_zkconsumer``.  Ids have no ``~``, and batch ids have no limit of digits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bridge.migration.plan.json_object_reader import InvalidJsonError, JsonObjectReader
from bridge.spark.pipeline.lineage import (
    VERSION,
    BatchAttempt,
    BatchLineage,
    invalid_lineage,
    read_lineage,
    to_json,
)

FOLDER = "_zkconsumer"
SCHEMA_FILE = f"{FOLDER}/schema.json"
BATCHES = f"{FOLDER}/batches"
RESERVATIONS = f"{FOLDER}/reservations"
ATTEMPTS = f"{FOLDER}/attempts"

FILLED, DEAD = ".json", ".dead"

TIME_FOLDER_COLUMNS: Mapping[str, str | None] = {"day": "message_day", "hour": "message_hour", "none": None}
"""``partition-by-time`` -> the name of the folders."""

WITHOUT_TIME, OUT_OF_RANGE = "without-time", "out-of-range"
"""The folders of messages without a time, and of times before 1990 or more than a day after the start of the batch: a
wrong clock of a producer makes one more folder, not thousands."""

YEAR_1990_MS = 631_152_000_000
DAY_MS = 86_400_000
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """``path``: relative to the table."""

    path: str
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class BatchManifest:
    """A batch of a table: its lineage and all its files."""

    lineage: BatchLineage
    files: tuple[ManifestFile, ...]

    def __post_init__(self) -> None:
        assert sum(each.rows for each in self.files) == self.lineage.counts.rows, "the lineage counts the rows of files"


def format_manifest(manifest: BatchManifest) -> bytes:
    """JSON in UTF-8; the same manifest has the same bytes."""
    members = {
        "version": VERSION,
        "lineage": json.loads(to_json(manifest.lineage)),
        "files": [{"path": each.path, "rows": each.rows, "bytes": each.size_bytes} for each in manifest.files],
    }
    return json.dumps(members, indent=1).encode()


def parse_manifest(data: bytes, where: str) -> BatchManifest:
    """Raises ``InvalidLineageError``; ``where``: the place, for the error."""
    try:
        members = JsonObjectReader.parse(data.decode("utf-8", "replace"), where)
        if (version := members.number("version")) != VERSION:
            raise members.error(f"version {version}; this release reads version {VERSION}")
        lineage = read_lineage(members.take_object("lineage"), where)
        files = tuple(_read_file(JsonObjectReader(each, where)) for each in members.items("files"))
        members.reject_unknown_keys()
        if sum(each.rows for each in files) != lineage.counts.rows:
            raise members.error("the rows of the files are not those of the lineage")
    except InvalidJsonError as error:
        raise invalid_lineage(error) from error
    return BatchManifest(lineage, files)


def _read_file(members: JsonObjectReader) -> ManifestFile:
    file = ManifestFile(members.text("path"), members.number("rows"), members.number("bytes"))
    members.reject_unknown_keys()
    if file.path.startswith("/") or ".." in file.path.split("/"):
        raise members.error(f"the path {file.path[:100]!r} is not in the table")
    return file


# --- names --------------------------------------------------------------------------------------------------------


def batch_path(folder: str, query: str, batch: int) -> str:
    """``folder``: ``BATCHES`` or ``RESERVATIONS``."""
    return f"{folder}/{query}/{batch:010}.json"


def staging_folder(attempt: BatchAttempt) -> str:
    """Where executors write; with ``FILLED`` or ``DEAD`` after it the path of the attempt's file."""
    return f"{ATTEMPTS}/{attempt.query}~{attempt.batch}~{attempt.started_ms}~{attempt.attempt}"


def parse_staging_name(name: str) -> tuple[BatchAttempt, str] | None:
    """The attempt of a name in ``ATTEMPTS``, and ``FILLED``, ``DEAD`` or nothing; None: it is not one of ours."""
    ending = next((each for each in (FILLED, DEAD) if name.endswith(each)), "")
    parts = name.removesuffix(ending).split("~")
    if len(parts) != 4 or not (parts[1].isdecimal() and parts[2].isdecimal()):
        return None
    try:
        return BatchAttempt(parts[0], int(parts[1]), parts[3], int(parts[2])), ending
    except ValueError:
        return None


def data_path(attempt: BatchAttempt, staged: str, number: int) -> str:
    """The final path of a file; ``staged``: its path below the staging folder, ``number``: unique in the attempt."""
    folder, slash, _ = staged.rpartition("/")
    return f"{folder}{slash}{attempt.query}-{attempt.batch}-{attempt.attempt}-{number:05}.parquet"


def time_folder_sql(kind: str, column: str, started_ms: int) -> str:
    """The folder of a row as an expression of Spark SQL, in UTC; ``column``: a timestamp.

    The time zone of the session has no effect.
    """
    assert kind in ("day", "hour"), kind
    ms = f"unix_millis({column})"
    folder = f"cast(date_from_unix_date(cast({ms} div {DAY_MS} as int)) as string)"
    if kind == "hour":
        folder = f"concat({folder}, '-', lpad(cast({ms} div {HOUR_MS} % 24 as string), 2, '0'))"
    return (
        f"case when {column} is null or {ms} = -1 then '{WITHOUT_TIME}' "
        f"when {ms} < {YEAR_1990_MS} or {ms} > {started_ms + DAY_MS} then '{OUT_OF_RANGE}' else {folder} end"
    )


# --- the schema ---------------------------------------------------------------------------------------------------


def stored_schema(schema: Mapping[str, object]) -> dict[str, object]:
    """The JSON of a ``StructType`` as it is stored: every value may be null, and there are no metadata."""
    stored = _stored_type(schema)
    assert isinstance(stored, dict)
    return stored


def _stored_type(type_: object) -> object:
    if not isinstance(type_, dict):
        return type_
    match type_.get("type"):
        case "struct":
            fields = [
                {"name": each["name"], "type": _stored_type(each["type"]), "nullable": True, "metadata": {}}
                for each in type_["fields"]
            ]
            return {"type": "struct", "fields": fields}
        case "array":
            return {"type": "array", "elementType": _stored_type(type_["elementType"]), "containsNull": True}
        case "map":
            key, value = _stored_type(type_["keyType"]), _stored_type(type_["valueType"])
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    return type_


def schema_problems(
    schema: Mapping[str, object], table: Mapping[str, object] | None, kind: str, place: str = SCHEMA_FILE
) -> Iterator[str]:
    """Why rows of this schema cannot be written to a table with the schema ``table`` (None: it has none yet).

    Both are of ``stored_schema``.  ``kind``: ``partition-by-time``.  ``place``: where the operator adds a column.
    """
    columns, reserved = _columns(schema), TIME_FOLDER_COLUMNS[kind]
    if not columns:
        yield "there are no columns; select one at least"
    seen: dict[str, str] = {}
    for name, type_ in columns:
        if (first := seen.get(name.lower())) is not None:
            yield f"columns {first} and {name}: names must differ, also in lower case; rename one in [transform] select"
        seen[name.lower()] = name
        if name.lower() == reserved:
            yield f"column {name}: the folders of message time have this name; rename it in [transform] select"
        if unsupported := next(_unsupported(type_), None):
            yield f"column {name}: parquet has no type {unsupported}; cast it in [transform] select"
    if table is None:
        return
    ours, stored = dict(columns), dict(_columns(table))
    for name in stored.keys() - ours.keys():
        yield f"column {name}: the table has it, and the rows do not; select it, for example as null of its type"
    for name in ours.keys() - stored.keys():
        yield f"column {name}: the table does not have it; the operator must add it to {place}, or leave it out"
    for name in ours.keys() & stored.keys():
        if ours[name] != stored[name]:
            yield (
                f"column {name}: the table has the type {_type_text(stored[name])}, the rows have "
                f"{_type_text(ours[name])}; cast it in [transform] select"
            )


def _columns(schema: Mapping[str, object]) -> list[tuple[str, object]]:
    fields = schema["fields"]
    assert isinstance(fields, list)
    return [(each["name"], each["type"]) for each in fields]


def _unsupported(type_: object) -> Iterator[str]:
    """The types below ``type_`` that Spark does not write to parquet files."""
    if isinstance(type_, str):
        if type_ == "void" or type_.startswith("interval"):
            yield type_
    elif isinstance(type_, dict):
        if type_.get("type") == "udt":
            yield "udt"
        for name in ("elementType", "keyType", "valueType"):
            yield from _unsupported(type_.get(name))
        for field in type_.get("fields", ()):
            yield from _unsupported(field["type"])


def _type_text(type_: object) -> str:
    return type_ if isinstance(type_, str) else json.dumps(type_, separators=(",", ":"))
