"""The rows of a batch that are no records: offsets that the source passed over because they cannot be read.

    frame of the source --CorruptRows--> records, for decoding       (the corrupt offsets are observed on the way)
                                     '-> decision, dead letters of the stage ``fetch``

The source has the column ``corrupt`` with ``onCorruptRecord=deadLetter``, which a pipeline sets also where its file
says ``skip``: so one pass over the batch gives its rows and the offsets that it passed over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as sf

from bridge.spark.decode.offset_ranges import OffsetRange, OnCorruptRecord
from bridge.spark.pipeline.decode.reserved_columns import PAYLOAD_COLUMNS
from bridge.spark.source.corrupt_decision import CorruptDecision, DecidedRange
from bridge.spark.source.datasource import CORRUPT
from zkconsumer.errors import PreconditionFailed
from zkconsumer.types import TopicPartition

FETCH_STAGE = "fetch"
"""The stage of a dead letter that is a range of offsets which could not be read."""

OPTION = "onCorruptRecord"

CORRUPT_RANGES_MAX = 10_000
"""The most corrupt ranges of one batch: the driver has them in memory, and the lineage of the batch stores them."""

_FOUND = "corrupt_ranges"


def corrupt_policy(options: Mapping[str, object]) -> OnCorruptRecord:
    """``onCorruptRecord`` of the options of a source, which are valid."""
    given = str(options.get(OPTION, OnCorruptRecord.FAIL.value)).lower()
    return next(each for each in OnCorruptRecord if each.value.lower() == given)


def source_option(policy: OnCorruptRecord) -> dict[str, str]:
    """The option with which the source of a pipeline is read."""
    return {} if policy is OnCorruptRecord.FAIL else {OPTION: OnCorruptRecord.DEAD_LETTER.value}


class CorruptRows:
    """One pass over a batch.  ``records``: the frame without the rows that are no records.

    ``found`` may be called when a job over ``records`` has ended.
    """

    def __init__(self, frame: DataFrame) -> None:
        self._observed: Observation | None = None
        self.records = frame
        if CORRUPT in frame.columns:
            self._observed = Observation()
            found = sf.struct("topic", "partition", "offset", CORRUPT)
            every = sf.collect_list(sf.when(sf.col(CORRUPT).isNotNull(), found)).alias(_FOUND)
            self.records = frame.observe(self._observed, every).filter(sf.col(CORRUPT).isNull()).drop(CORRUPT)

    def found(self) -> tuple[DecidedRange, ...]:
        """The corrupt ranges of the batch, sorted.  Raises ``PreconditionFailed`` for too many."""
        rows: Sequence[Any] = [] if self._observed is None else self._observed.get[_FOUND]
        if len(rows) > CORRUPT_RANGES_MAX:
            raise PreconditionFailed(
                f"the batch has {len(rows)} corrupt ranges, and a pipeline stores at most {CORRUPT_RANGES_MAX} of one "
                "batch; nothing was written. The operator must repair the log of the broker, or leave the offsets out "
                "with skipOffsets"
            )
        ranges = [
            DecidedRange(
                OffsetRange(TopicPartition(row.topic, row.partition), row.offset, row[CORRUPT]["end"]),
                row[CORRUPT]["error"],
            )
            for row in rows
        ]
        return tuple(sorted(ranges, key=lambda each: (each.offsets.tp, each.offsets.first)))


def offset_count(ranges: Sequence[DecidedRange]) -> int:
    """How many offsets these are."""
    return sum(each.offsets.end - each.offsets.first for each in ranges)


def decision_of(
    ranges: tuple[OffsetRange, ...], corrupt: tuple[DecidedRange, ...], policy: OnCorruptRecord
) -> CorruptDecision:
    """What each later pass over the batch with these ranges must follow."""
    return CorruptDecision(ranges, corrupt, offset_count(corrupt) if policy is OnCorruptRecord.SKIP else 0)


def dead_letters_of_corrupt_rows(frame: DataFrame) -> DataFrame:
    """The columns of the source, the stage and the error (``stage``, ``error``), of the rows that are no records."""
    rows = frame.filter(sf.col(CORRUPT).isNotNull())
    names = [name for name in (*PAYLOAD_COLUMNS, "topic", "partition", "offset", "timestamp") if name in frame.columns]
    return rows.select(*names, sf.lit(FETCH_STAGE).alias("stage"), _error().alias("error"))


def _error() -> Column:
    """``offset`` is the first one; the error has the last one."""
    last = (sf.col(CORRUPT)["end"] - 1).cast("string")
    first = sf.col("offset").cast("string")
    return sf.concat(
        sf.lit("offsets "), first, sf.lit(" to "), last, sf.lit(" cannot be read: "), sf.col(CORRUPT)["error"]
    )  # fmt: skip
