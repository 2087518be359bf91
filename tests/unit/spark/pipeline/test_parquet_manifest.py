"""The manifest of a batch as JSON, the names of a parquet table, and its schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.spark.pipeline.lineage import BatchAttempt, BatchCounts, BatchLineage, InvalidLineageError
from bridge.spark.pipeline.sinks.parquet_manifest import (
    BatchManifest,
    ManifestFile,
    data_path,
    format_manifest,
    parse_manifest,
    parse_staging_name,
    schema_problems,
    staging_folder,
    stored_schema,
)
from zkconsumer.types import TopicPartition

LINEAGE = BatchLineage(
    "q", 3, "batch", "p", "claim", "t", 5, {TopicPartition("a", 0): ((1, 4),)}, BatchCounts(3, 0, 0, 0)
)
MANIFEST = BatchManifest(LINEAGE, (ManifestFile("d/a.parquet", 1, 10), ManifestFile("d/b.parquet", 2, 20)))


def changed(**members: Any) -> bytes:
    return json.dumps({**json.loads(format_manifest(MANIFEST)), **members}).encode()


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert parse_manifest(format_manifest(MANIFEST), "m") == MANIFEST


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (format_manifest(MANIFEST)[:-5], "not JSON"),
        (changed(version=9), "version 9; this release reads version 1"),
        (changed(more=1), "'more' is not known"),
        (changed(files=[]), "the rows of the files are not those of the lineage"),
        (changed(files=[{"path": "../x", "rows": 3, "bytes": 1}]), "is not in the table"),
        (changed(files=[{"path": "/x", "rows": 3, "bytes": 1}]), "is not in the table"),
        (changed(files=[{"path": "x", "rows": 3}]), "'bytes' is missing"),
    ],
)
def test_a_damaged_manifest_is_an_error_with_its_place(data: bytes, why: str) -> None:
    with pytest.raises(InvalidLineageError, match=f"the file m.*{why}"):
        parse_manifest(data, "the file m")


def test_the_names_of_an_attempt_contain_it() -> None:
    attempt = BatchAttempt("9b2d-1.x_y", 12, "a-b.c", 99)
    name = staging_folder(attempt).rpartition("/")[2]
    assert parse_staging_name(name) == (attempt, "")
    assert parse_staging_name(f"{name}.json") == (attempt, ".json")
    assert parse_staging_name(f"{name}.dead") == (attempt, ".dead")
    assert data_path(attempt, "message_day=x/part-1.parquet", 7) == ("message_day=x/9b2d-1.x_y-12-a-b.c-00007.parquet")
    assert data_path(attempt, "part-1.parquet", 0) == "9b2d-1.x_y-12-a-b.c-00000.parquet"


@pytest.mark.parametrize("name", ["x", "a~b~c~d", "a~1~2", "a~1~2~b~c", "a~1~2~", "~1~2~b", "a~-1~2~b"])
def test_another_name_is_not_of_an_attempt(name: str) -> None:
    assert parse_staging_name(name) is None


def struct(**types: object) -> dict[str, object]:
    fields = [{"name": n, "type": t, "nullable": False, "metadata": {"x": 1}} for n, t in types.items()]
    return {"type": "struct", "fields": fields}


def test_a_stored_schema_permits_nulls_at_each_depth() -> None:
    deep = {"type": "array", "elementType": struct(x="long"), "containsNull": False}
    table = {"type": "map", "keyType": "string", "valueType": deep, "valueContainsNull": False}
    stored = json.dumps(stored_schema(struct(a="integer", m=table)))
    assert "false" not in stored
    assert '"x": 1' not in stored
    assert stored_schema(json.loads(stored)) == json.loads(stored)


def test_the_type_of_a_column_may_not_change_at_any_depth() -> None:
    old, new = ({"type": "array", "elementType": struct(x=each), "containsNull": True} for each in ("long", "string"))
    table, rows = stored_schema(struct(a=old)), stored_schema(struct(a=new))
    assert list(schema_problems(rows, rows, "none")) == []
    [problem] = schema_problems(rows, table, "none")
    assert problem.startswith("column a: the table has the type")


@pytest.mark.parametrize(("kind", "is_free"), [("day", False), ("hour", True), ("none", True)])
def test_only_the_name_of_the_own_folders_is_reserved(kind: str, is_free: bool) -> None:
    assert (list(schema_problems(struct(Message_Day="string"), None, kind)) == []) == is_free


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (struct(), "there are no columns"),
        (struct(a="long", A="long"), "columns a and A"),
        (struct(a="void"), "no type void"),
        (struct(a="interval day to second"), "no type interval day to second"),
        (struct(a={"type": "map", "keyType": "string", "valueType": struct(v="void")}), "no type void"),
    ],
)
def test_a_schema_that_parquet_does_not_have_is_a_problem(schema: dict[str, object], problem: str) -> None:
    [line] = schema_problems(schema, None, "day")
    assert problem in line
