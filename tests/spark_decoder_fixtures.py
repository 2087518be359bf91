"""Each test of a module that imports ``decoder`` runs with the compiled record decoder, if there is one, and without.

``rows_of`` gives what comes out of Arrow as records again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest

from bridge.spark.decode.arrow_decoder import ArrowDecoder
from bridge.spark.decode.arrow_schema import SCHEMA, ArrowBatchSpec
from zkconsumer.wire import compiled, record_tables
from zkconsumer.wire.entries import NO_END, Record
from zkconsumer.wire.records import DECOMPRESSED_BYTES_MAX

COMPILED, PYTHON = "compiled", "python"


@pytest.fixture(
    scope="module", params=[PYTHON] if compiled.RECORD_DECODER is None else [COMPILED, PYTHON], autouse=True
)
def decoder(request: pytest.FixtureRequest) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == PYTHON:
            patch.setattr(compiled, "RECORD_DECODER", None)
        yield request.param


@pytest.fixture
def only_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the compiled decoder leaves to the reference fails the test."""

    def slow(*_: object, **__: object) -> None:
        pytest.fail("the reference was asked")

    monkeypatch.setattr(record_tables, "_read_in_python", slow)


def target(schema: pa.Schema = SCHEMA, **limits: int) -> ArrowBatchSpec:
    return ArrowBatchSpec("t", 0, schema, **limits)


def batches_of(
    record_set: bytes | memoryview,
    first: int = 0,
    end: int = NO_END,
    into: ArrowBatchSpec | None = None,
    *,
    check_crcs: bool = True,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> Iterator[pa.RecordBatch]:
    return ArrowDecoder(into or target()).batches(
        record_set, first, end, check_crcs=check_crcs, decompressed_bytes_max=decompressed_bytes_max
    )


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Record]:
    """The rows as records; times beyond Spark's microseconds are those at the end of them."""
    for batch in batches:
        batch.validate(full=True)
        times = batch.column("timestamp").view("int64").to_pylist()
        for row, time_us in zip(batch.drop_columns(["timestamp"]).to_pylist(), times, strict=True):
            headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
            yield Record(row["offset"], time_us // 1000, row["timestampType"], row["key"], row["value"], headers)
