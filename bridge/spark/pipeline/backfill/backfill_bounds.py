"""``BackfillBounds``: where a backfill begins and ends, as the options of the command say it.  Pure.

    --from earliest | {"clicks": {"0": 5}}      --to latest | {"clicks": {"0": 9}} | nothing
    --from-time TIME                            --to-time TIME

With JSON only the partitions that it names are read, else all partitions of the pipeline.  Without an end a backfill
reads up to what the live query has yet to read; without a live query, to the ends of the logs.

The id of a backfill is a digest of the pipeline's name and of the bounds *as they are stated*, so that the same command
finds its own reservations again, whatever ``earliest`` is then.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256

from bridge.spark.offset_range_limits import (
    EarliestOffsetRangeLimit,
    EndingLimit,
    GlobalTimestampRangeLimit,
    LatestOffsetRangeLimit,
    SpecificOffsetRangeLimit,
    StartingLimit,
    format_partition_list,
    nested,
    parse_offsets,
)
from zkconsumer.errors import UsageError
from zkconsumer.types import EARLIEST_TIME, TopicPartition

ID_DIGITS = 16


@dataclass(frozen=True, slots=True)
class BackfillBounds:
    """``end`` None: what the live query has yet to read.  ``partitions`` None: all of the pipeline.  ``stated``: the
    bounds as one text, for the id."""

    start: StartingLimit
    end: EndingLimit | None
    partitions: tuple[TopicPartition, ...] | None
    stated: str


def parse_bounds(
    from_offsets: str | None, to_offsets: str | None, from_time_ms: int | None, to_time_ms: int | None
) -> BackfillBounds:
    """The bounds of the options; times in ms since 1970.  Raises ``UsageError`` that names the option and what to
    write."""
    if (from_offsets is None) is (from_time_ms is None):
        raise UsageError(
            'give --from or --from-time, one of them: --from earliest, --from \'{"clicks": {"0": 5}}\', or '
            "--from-time 2026-11-27T10:00:00Z"
        )
    if to_offsets is not None and to_time_ms is not None:
        raise UsageError("give --to or --to-time, not both")
    start: StartingLimit
    end: EndingLimit | None = None
    if from_time_ms is not None:
        start = GlobalTimestampRangeLimit(from_time_ms)
    elif from_offsets == "earliest":
        start = EarliestOffsetRangeLimit()
    else:
        start = SpecificOffsetRangeLimit(_offsets("--from", from_offsets or "", "earliest"))
    if to_time_ms is not None:
        end = GlobalTimestampRangeLimit(to_time_ms)
    elif to_offsets == "latest":
        end = LatestOffsetRangeLimit()
    elif to_offsets is not None:
        end = SpecificOffsetRangeLimit(_offsets("--to", to_offsets, "latest"))
        if back := [tp for tp, offset in end.offsets.items() if offset == EARLIEST_TIME]:
            raise UsageError(f"--to: {format_partition_list(back)}: a backfill cannot end where the log begins (-2)")
    return BackfillBounds(start, end, _partitions(start, end), json.dumps([_stated(start), _stated(end)]))


def backfill_id(pipeline: str, bounds: BackfillBounds) -> str:
    """The id of all batches of a backfill."""
    return f"backfill-{_digest(pipeline, bounds)}"


def replacement_prefix(pipeline: str, bounds: BackfillBounds) -> str:
    """What the ids of all replacements with these bounds begin with; a number follows."""
    return f"replace-{_digest(pipeline, bounds)}-"


def _digest(pipeline: str, bounds: BackfillBounds) -> str:
    return sha256(json.dumps([pipeline, bounds.stated]).encode()).hexdigest()[:ID_DIGITS]


def _partitions(start: StartingLimit, end: EndingLimit | None) -> tuple[TopicPartition, ...] | None:
    """The partitions that the bounds name; None: no bound names partitions."""
    named = [set(each.offsets) for each in (start, end) if isinstance(each, SpecificOffsetRangeLimit)]
    if not named:
        return None
    if apart := named[0] ^ named[-1]:
        raise UsageError(
            f"--from and --to must name the same partitions; only one of them names {format_partition_list(apart)}"
        )
    return tuple(sorted(named[0]))


def _offsets(option: str, text: str, word: str) -> dict[TopicPartition, int]:
    try:
        return parse_offsets(text)
    except ValueError as error:
        raise UsageError(
            f'{option}: {error}; write {word}, or offsets as in {option} \'{{"clicks": {{"0": 5}}}}\''
        ) from error


def _stated(limit: StartingLimit | EndingLimit | None) -> object:
    match limit:
        case SpecificOffsetRangeLimit(offsets):
            return nested(offsets)
        case GlobalTimestampRangeLimit(time_ms):
            return time_ms
        case None:
            return None
    return type(limit).__name__
