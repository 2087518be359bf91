"""``read_sample``: a few records of a pipeline's topics, decoded and transformed; nothing is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as sf

from bridge.spark.option_table import STREAM_ONLY
from bridge.spark.pipeline.corrupt_rows import CorruptRows, dead_letters_of
from bridge.spark.pipeline.decode.decoded_frame import decode
from bridge.spark.pipeline.decode.reserved_columns import DEAD_ERROR, DEAD_STAGE, OUTCOME, source_column
from bridge.spark.pipeline.pipeline_query import PreparedPipeline, spark_failures
from bridge.spark.pipeline.transform import DEAD, FILTERED, classify, written_rows
from bridge.spark.source.datasource_registration import NAME


@dataclass(frozen=True, slots=True)
class PipelineSample:
    """``rows``: what would be written.  ``dead``: the place of each dead letter, and why it is one."""

    records: int
    rows: tuple[tuple[Any, ...], ...]
    filtered: int
    dead: tuple[tuple[str, str], ...]


def read_sample(prepared: PreparedPipeline, records: int) -> PipelineSample:
    """Up to ``records`` records from the start of the logs, read as a batch, which joins no group.

    Raises ``PipelineFailedError`` and the errors of this project that a task ended with.
    """
    with spark_failures(prepared.spec.name, "repeat the command"):
        return _read_sample(prepared, records)


def _read_sample(prepared: PreparedPipeline, records: int) -> PipelineSample:
    options = {name: value for name, value in prepared.options.items() if name not in STREAM_ONLY}
    frame = prepared.spark.read.format(NAME).options(**options | {"startingOffsets": "earliest"}).load()
    # The records, in memory: each of the frames below reads the same ones.
    found = frame.limit(records).collect()
    everything = prepared.spark.createDataFrame(found, frame.schema)
    corrupt_rows = CorruptRows(everything)
    taken = corrupt_rows.records
    decoded = decode(taken, prepared.decoding, with_payloads=False)
    classified = classify(decoded, prepared.transform, checks_rows=True)
    rows = written_rows(classified, prepared.transform).collect()
    places = [sf.col(source_column(name)).alias(name) for name in ("topic", "partition", "offset")]
    errors = [sf.col(DEAD_STAGE).alias("stage"), sf.col(DEAD_ERROR).alias("error")]
    dead = classified.filter(sf.col(OUTCOME) == DEAD).select(*places, *errors).collect()
    if corrupt := corrupt_rows.found():
        dead = dead_letters_of(everything, corrupt).collect() + dead
    return PipelineSample(
        records=len(found),
        rows=tuple(tuple(row) for row in rows),
        filtered=classified.filter(sf.col(OUTCOME) == FILTERED).count(),
        dead=tuple((f"{row.topic}/{row.partition} offset {row.offset}", f"{row.stage}: {row.error}") for row in dead),
    )
