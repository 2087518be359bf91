"""The paths at which an error looks for the field that does not fit; the rest is tested in a real Spark."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the pipeline needs the extra [spark]")

from pyspark.sql.types import ArrayType, IntegerType, StringType, StructType

from bridge.spark.pipeline.decode.json_columns import MISFIT_PATHS_MAX, misfit_paths


def test_the_fields_of_a_struct_come_before_it_with_their_types() -> None:
    inner = StructType().add("d", ArrayType(IntegerType()))
    assert misfit_paths(StructType().add("a b", StringType()).add("c", inner)) == [
        ("$['a b']", "a b (string)"), ("$['c']['d']", "c.d (array<int>)"), ("$['c']", "c (struct<d:array<int>>)"),
    ]  # fmt: skip


def test_a_name_that_no_path_can_have_is_passed_over() -> None:
    assert misfit_paths(StructType().add("a'b", StringType()).add("a]b", StringType())) == []


def test_a_wide_schema_has_a_limited_number_of_paths() -> None:
    fields = StructType()
    for number in range(MISFIT_PATHS_MAX + 5):
        fields = fields.add(f"f{number}", StringType())
    assert len(misfit_paths(fields)) == MISFIT_PATHS_MAX
