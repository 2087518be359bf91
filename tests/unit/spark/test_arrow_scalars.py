"""Scalars that do not import pandas, and the Python workers that are started with them."""

from __future__ import annotations

import importlib.util
import struct
import subprocess
import sys

import pyarrow as pa
import pytest

from bridge.spark.arrow_scalars import integer_scalar, row_of_integers, text_scalar
from zkconsumer.wire import compiled

RUN_TIMEOUT_S = 60

READS_AND_WRITES = """
import sys
from bridge.spark.arrow_scalars import row_of_integers
from bridge.spark.decode.arrow_decoder import ArrowDecoder
from bridge.spark.decode.arrow_schema import SCHEMA, ArrowBatchSpec
from bridge.spark.pipeline.sinks.postgres_copy import csv_of
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_set_builder import build_record_set

record_set = build_record_set([Record(n, 10**12, 0, b"key", b"value", (("name", b"h"),)) for n in range(3)], 2, 0)
[batch] = ArrowDecoder(ArrowBatchSpec("t", 1, SCHEMA)).batches(record_set)
rows = batch.select(["key", "value", "topic", "partition", "offset", "timestamp"])
assert len(csv_of(rows, 7).splitlines()) == 3
row_of_integers(task=7, rows=3)
print("pandas" in sys.modules)
"""
"""What a task of a pipeline from JSON into PostgreSQL does in Python."""


@pytest.mark.parametrize("value", [0, -1, 2**31 - 1, -(2**31)])
def test_an_integer_has_its_value_and_its_type(value: int) -> None:
    for kind in (pa.int32(), pa.int64()):
        assert integer_scalar(value, kind).equals(pa.scalar(value, kind))


def test_an_integer_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(struct.error):
        integer_scalar(2**31, pa.int32())


@pytest.mark.parametrize("value", ["", "a", "ä\0€𝄞"])
def test_a_text_has_its_value_and_its_type(value: str) -> None:
    for kind in (pa.string(), pa.large_string()):
        assert text_scalar(value, kind).equals(pa.scalar(value, kind))


def test_a_row_has_its_integers() -> None:
    row = row_of_integers(task=2**40, rows=3)
    assert row.equals(pa.record_batch({"task": [2**40], "rows": [3]}))


@pytest.mark.skipif(compiled.RECORD_DECODER is None, reason="an object is made for each record there")
def test_a_task_does_not_import_pandas() -> None:
    assert importlib.util.find_spec("pandas") is not None, "without it this test shows nothing"
    done = subprocess.run(
        [sys.executable, "-c", READS_AND_WRITES], capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=True
    )
    assert done.stdout == "False\n"
