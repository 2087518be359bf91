"""The rows of a batch that are no records: offsets that the source passed over because they cannot be read.

    frame of the source --CorruptRows--> records, for decoding          (the corrupt offsets are observed on the way)
                                     '-> found: the corrupt ranges of this pass
    decided ranges --dead_letters_of--> dead letters of the stage ``fetch``

The source has the column ``corrupt`` with ``onCorruptRecord=deadLetter``, which a pipeline sets also where its file
says ``skip``: so one pass over the batch gives its rows and the offsets that it passed over.

A later pass may get other bytes.  With ``decided`` the records of these offsets are left out, whether or not they can
be read now, and ``found`` raises an error for offsets that cannot be read and were not decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as sf

from bridge.spark.decode.offset_ranges import OffsetRange, OnCorruptRecord, without_skipped
from bridge.spark.pipeline.lineage import PartitionRanges, partition_ranges
from bridge.spark.source.datasource import CORRUPT
from zkconsumer.errors import PreconditionFailed
from zkconsumer.types import TopicPartition

FETCH_STAGE = "fetch"
"""The stage of a dead letter that is a range of offsets which could not be read."""

OPTION = "onCorruptRecord"

CORRUPT_RANGES_MAX = 10_000
"""The most corrupt ranges of one batch: the driver has them in memory, and the lineage of the batch stores them."""

_FOUND = "corrupt_ranges"
_DECIDED = "_corrupt_topic STRING, _corrupt_partition INT, _corrupt_first BIGINT, _corrupt_end BIGINT, error STRING"


@dataclass(frozen=True, slots=True)
class DecidedRange:
    """Offsets that are corrupt for every pass over their batch, and why."""

    offsets: OffsetRange
    reason: str = ""


def corrupt_policy(options: Mapping[str, object]) -> OnCorruptRecord:
    """``onCorruptRecord`` of the options of a source, which are valid."""
    given = str(options.get(OPTION, OnCorruptRecord.FAIL.value)).lower()
    return next(each for each in OnCorruptRecord if each.value.lower() == given)


def source_option(policy: OnCorruptRecord) -> dict[str, str]:
    """The option with which the source of a pipeline is read."""
    return {} if policy is OnCorruptRecord.FAIL else {OPTION: OnCorruptRecord.DEAD_LETTER.value}


class CorruptRows:
    """One pass over a batch.

    ``decided``: None: this pass decides.  ``records``: the frame without rows that are no records, and without those of
    decided offsets.  ``found`` may be called when a job over ``records`` has ended.
    """

    def __init__(self, frame: DataFrame, decided: Sequence[DecidedRange] | None = None) -> None:
        self._decided = decided
        self._observed: Observation | None = None
        self.records = frame
        if CORRUPT in frame.columns:
            self._observed = Observation()
            found = sf.struct("topic", "partition", "offset", CORRUPT)
            every = sf.collect_list(sf.when(sf.col(CORRUPT).isNotNull(), found)).alias(_FOUND)
            self.records = frame.observe(self._observed, every).filter(sf.col(CORRUPT).isNull()).drop(CORRUPT)
        if decided:
            is_decided = (
                (sf.col("topic") == sf.col("_corrupt_topic"))
                & (sf.col("partition") == sf.col("_corrupt_partition"))
                & sf.col("offset").between(sf.col("_corrupt_first"), sf.col("_corrupt_end") - 1)
            )
            self.records = self.records.join(sf.broadcast(_frame_of(frame, decided)), is_decided, "left_anti")

    def found(self) -> tuple[DecidedRange, ...]:
        """The corrupt ranges of the batch, sorted: the decided ones, or those of this pass.

        Raises ``PreconditionFailed`` for too many, and for one that was not decided.
        """
        rows: Sequence[Any] = [] if self._observed is None else self._observed.get[_FOUND]
        ranges = [
            DecidedRange(
                OffsetRange(TopicPartition(row.topic, row.partition), row.offset, row[CORRUPT]["end"]),
                row[CORRUPT]["error"],
            )
            for row in rows
        ]
        if self._decided is None:
            check_count(ranges)
            return tuple(sorted(ranges, key=lambda each: (each.offsets.tp, each.offsets.first)))
        check_decided(ranges, self._decided)
        return tuple(self._decided)


def check_count(ranges: Sequence[DecidedRange]) -> None:
    """Raises ``PreconditionFailed`` for more ranges than one batch may have."""
    if len(ranges) > CORRUPT_RANGES_MAX:
        raise PreconditionFailed(
            f"the batch has {len(ranges)} corrupt ranges, and a pipeline stores at most {CORRUPT_RANGES_MAX} of one "
            "batch; nothing was written. The operator must repair the log of the broker, or leave the offsets out with "
            "skipOffsets"
        )


def check_decided(found: Sequence[DecidedRange], decided: Sequence[DecidedRange]) -> None:
    """Raises ``PreconditionFailed`` if a pass found a corrupt offset that was not decided."""
    known = ranges_of(decided)
    for each in found:
        if without_skipped(each.offsets, known)[0]:
            raise PreconditionFailed(
                f"{each.offsets} cannot be read ({each.reason}), but another pass over the batch has read it; nothing "
                "more was written. Start the pipeline again. If its dead letters are committed already, the operator "
                "must repair the log of the broker, or leave these offsets out with skipOffsets"
            )


def ranges_of(decided: Sequence[DecidedRange]) -> PartitionRanges:
    """The offsets, for a lineage."""
    return partition_ranges(each.offsets for each in decided)


def decided_of(ranges: PartitionRanges) -> tuple[DecidedRange, ...]:
    """What a lineage has stored."""
    return tuple(DecidedRange(OffsetRange(tp, *pair)) for tp, pairs in ranges.items() for pair in pairs)


def offset_count(decided: Sequence[DecidedRange]) -> int:
    """How many offsets these are."""
    return sum(end - first for pairs in ranges_of(decided).values() for first, end in pairs)


def dead_letters_of(frame: DataFrame, decided: Sequence[DecidedRange]) -> DataFrame:
    """One row for each decided range, with columns of a dead letter; ``value``: its bytes, if this pass found it again.

    ``offset`` is the first of the offsets; the error has the last one.
    """
    bytes_found = frame.filter(sf.col(CORRUPT).isNotNull()).select(
        sf.col("topic").alias("_found_topic"), sf.col("partition").alias("_found_partition"),
        sf.col("offset").alias("_found_first"), sf.col(CORRUPT)["end"].alias("_found_end"), "value",
    )  # fmt: skip
    is_same = sf.lit(True)
    for name in ("topic", "partition", "first", "end"):
        is_same &= sf.col(f"_corrupt_{name}") == sf.col(f"_found_{name}")
    rows = _frame_of(frame, decided).join(bytes_found, is_same, "left")
    last = (sf.col("_corrupt_end") - 1).cast("string")
    words = sf.concat(
        sf.lit("offsets "), sf.col("_corrupt_first").cast("string"), sf.lit(" to "), last,
        sf.lit(" cannot be read: "), sf.col("error"),
    )  # fmt: skip
    return rows.select(
        sf.col("_corrupt_topic").alias("topic"), sf.col("_corrupt_partition").alias("partition"),
        sf.col("_corrupt_first").alias("offset"), "value", sf.lit(FETCH_STAGE).alias("stage"), words.alias("error"),
    )  # fmt: skip


def _frame_of(frame: DataFrame, decided: Sequence[DecidedRange]) -> DataFrame:
    rows = [(*each.offsets.tp, each.offsets.first, each.offsets.end, each.reason) for each in decided]
    return frame.sparkSession.createDataFrame(rows, _DECIDED)
