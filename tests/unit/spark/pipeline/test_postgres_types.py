"""Columns of Spark as columns of PostgreSQL."""

from __future__ import annotations

import pytest

from bridge.spark.pipeline.sinks.postgres_types import (
    TASK_COLUMN,
    column_problems,
    postgres_columns,
    rejections_of,
)


def struct(**types: object) -> dict[str, object]:
    return {"type": "struct", "fields": [{"name": name, "type": type_} for name, type_ in types.items()]}


ARRAY = {"type": "array", "elementType": "long", "containsNull": True}


def test_each_type_has_one_of_postgresql() -> None:
    types = {
        "boolean": "boolean", "byte": "smallint", "short": "smallint", "integer": "integer", "long": "bigint",
        "float": "real", "double": "double precision", "decimal(38,18)": "numeric(38,18)", "string": "text",
        "string collate UTF8_LCASE": "text", "varchar(3)": "text", "char(3)": "text", "binary": "bytea",
        "date": "date", "timestamp": "timestamp with time zone", "timestamp_ntz": "timestamp without time zone",
        "variant": "jsonb",
    }  # fmt: skip
    assert {each: postgres_columns(struct(c=each))[0].sql for each in types} == types
    assert [postgres_columns(struct(c=each))[0].sql for each in (ARRAY, struct(x="long"))] == ["jsonb", "jsonb"]


def test_names_are_quoted_and_nested_values_are_json() -> None:
    schema = struct(**{"a`b": ARRAY, 'c "d"': "long"})
    assert [each.expression for each in postgres_columns(schema)] == [
        "to_json(`a``b`, map('ignoreNullFields', 'false')) as `a``b`",
        '`c "d"` as `c "d"`',
    ]


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (struct(), "there are no columns"),
        (struct(c="void"), "PostgreSQL has no type for void; cast it"),
        (struct(c="interval day to second"), "PostgreSQL has no type for interval"),
        (struct(c={"type": "udt"}), "PostgreSQL has no type for"),
        (struct(**{"ä" * 32: "long"}), "a name has 1 to 63 bytes"),
        (struct(**{TASK_COLUMN: "long"}), "staging tables have this column"),
        ({"fields": [{"name": "c", "type": "long"}] * 2}, "column c: it is there twice"),
    ],
)
def test_a_column_that_postgresql_cannot_have_is_a_problem(schema: dict[str, object], problem: str) -> None:
    [line] = column_problems(schema)
    assert problem in line


def test_names_that_differ_in_case_are_two_columns() -> None:
    assert list(column_problems(struct(a="long", A="long"))) == []


def test_only_types_with_values_that_postgresql_lacks_have_a_condition() -> None:
    schema = struct(a="long", b="string", c="date", d="double", e=ARRAY, f="timestamp", g="timestamp_ntz", h="binary")
    assert [each.reason for each in rejections_of(postgres_columns(schema))] == [
        f"PostgreSQL cannot store this value of {name} as {type_}"
        for name, type_ in (
            ("b", "text"), ("c", "date"), ("e", "jsonb"), ("f", "timestamp with time zone"),
            ("g", "timestamp without time zone"),
        )
    ]  # fmt: skip
