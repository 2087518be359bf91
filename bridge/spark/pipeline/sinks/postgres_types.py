"""Columns of Spark as columns of PostgreSQL: types, expressions, and the values that PostgreSQL cannot store.  Pure.

Types are JSON of Spark's ``DataType`` (``schema.jsonValue()``).  Arrays, maps, structs and variants are stored as
jsonb, so that the table needs no types of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bridge.spark.pipeline.sinks.row_rejection import RowRejection

TASK_COLUMN = "zkconsumer_task_attempt"
"""The column of a staging table with the id of the task's attempt; not a column of the target table."""

NAME_BYTES_MAX = 63
"""The longest name that PostgreSQL does not cut (NAMEDATALEN - 1)."""

_TYPES: Mapping[str, str] = {
    "boolean": "boolean",
    "byte": "smallint",
    "short": "smallint",
    "integer": "integer",
    "long": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
    "variant": "jsonb",
}
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
_TEXT = re.compile(r"string( collate .*)?|(var)?char\(\d+\)")

_NUL_IN_JSON = r"r'(?<!\\)(?:\\\\)*\\u0000'"
"""An escaped NUL; a backslash of the text is a double one."""


@dataclass(frozen=True, slots=True)
class PostgresColumn:
    """A column that PostgreSQL can have.  ``sql``: the type of PostgreSQL; ``expression``: Spark SQL of the value that
    executors get, which ``postgres_copy`` writes."""

    name: str
    sql: str
    expression: str
    unwritable: str | None
    """A condition of Spark SQL for values that PostgreSQL cannot store, or None."""


def postgres_columns(schema: Mapping[str, object]) -> list[PostgresColumn]:
    """The columns of a schema without problems (``column_problems``)."""
    return [_column(name, type_) for name, type_ in _fields(schema)]


def rejections_of(columns: list[PostgresColumn]) -> tuple[RowRejection, ...]:
    """The rows that cannot be stored, one condition for each column."""
    return tuple(
        RowRejection(each.unwritable, f"PostgreSQL cannot store this value of {each.name} as {each.sql}")
        for each in columns
        if each.unwritable is not None
    )


def column_problems(schema: Mapping[str, object]) -> Iterator[str]:
    """Why a table cannot have these columns."""
    fields = _fields(schema)
    if not fields:
        yield "there are no columns; select one at least"
    seen: set[str] = set()
    for name, type_ in fields:
        if name in seen:
            yield f"column {name}: it is there twice; rename one in [transform] select"
        seen.add(name)
        if name == TASK_COLUMN:
            yield f"column {name}: staging tables have this column; rename it in [transform] select"
        if not name or len(name.encode()) > NAME_BYTES_MAX or "\0" in name:
            yield f"column {name}: a name has 1 to {NAME_BYTES_MAX} bytes; rename it in [transform] select"
        if _postgres_type(type_) is None:
            yield f"column {name}: PostgreSQL has no type for {type_}; cast it in [transform] select"


def _fields(schema: Mapping[str, object]) -> list[tuple[str, object]]:
    fields = schema["fields"]
    assert isinstance(fields, list)
    return [(each["name"], each["type"]) for each in fields]


def _postgres_type(type_: object) -> str | None:
    if isinstance(type_, dict):
        return None if type_.get("type") == "udt" else "jsonb"
    assert isinstance(type_, str)
    if (found := _DECIMAL.fullmatch(type_)) is not None:
        return f"numeric({found[1]},{found[2]})"
    return "text" if _TEXT.fullmatch(type_) else _TYPES.get(type_)


def _column(name: str, type_: object) -> PostgresColumn:
    sql = _postgres_type(type_)
    assert sql is not None, f"{name} was not checked"
    quoted = "`" + name.replace("`", "``") + "`"
    value = f"to_json({quoted}, map('ignoreNullFields', 'false'))" if sql == "jsonb" else quoted
    return PostgresColumn(name, sql, f"{value} as {quoted}", _unwritable(value, sql))


def _unwritable(value: str, sql: str) -> str | None:
    match sql:
        case "text":
            return f"contains({value}, chr(0)) or not is_valid_utf8({value})"
        case "jsonb":
            return f"{value} rlike {_NUL_IN_JSON} or not is_valid_utf8({value})"
        case "date":
            return f"{value} < date'0001-01-01' or {value} > date'9999-12-31'"
        case "timestamp with time zone":
            return f"unix_micros({value}) < -62135596800000000 or unix_micros({value}) >= 253402300800000000"
        case "timestamp without time zone":
            return (
                f"{value} < timestamp_ntz'0001-01-01 00:00:00' or {value} > timestamp_ntz'9999-12-31 23:59:59.999999'"
            )
    return None
