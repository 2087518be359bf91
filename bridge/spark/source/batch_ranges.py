"""From where to where a batch reads each partition: what the options say, held against the logs.  Pure.

    stated      an offset, -2 (where the log begins) or -1 (where it ends), of every partition, for both ends
    resolve_ranges   stated, logs ---> ranges inside the logs, and what of the stated ones is not there any more

With ``failOnDataLoss`` (the default) a range that the log does not hold whole is refused; without it is cut to what
there is, and what is missing is told.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from bridge.spark.decode.offset_ranges import OffsetRange
from bridge.spark.offset_range_limits import (
    EndingLimit,
    GlobalTimestampRangeLimit,
    SpecificOffsetRangeLimit,
    SpecificTimestampRangeLimit,
    StartingLimit,
    check_all_partitions_named,
    format_partition_list,
    late_timestamp_message,
)
from zkconsumer.admin.log_ranges import LogRange
from zkconsumer.errors import PreconditionFailed, UsageError
from zkconsumer.types import EARLIEST_TIME, LATEST_TIME, TopicPartition

PROBLEMS_SHOWN_MAX = 10


@dataclass(frozen=True, slots=True)
class BatchRanges:
    """What is to be read; ``lost``: what was stated and is not in the log."""

    ranges: Mapping[TopicPartition, OffsetRange]
    lost: tuple[OffsetRange, ...]


def resolve_ranges(
    starting: Mapping[TopicPartition, int],
    ending: Mapping[TopicPartition, int],
    logs: Mapping[TopicPartition, LogRange],
    fail_on_data_loss: bool,
) -> BatchRanges:
    """The ranges of all partitions, empty ones among them.

    Raises ``UsageError`` for a beginning behind the end, and ``PreconditionFailed`` for what the logs do not hold.
    """
    ranges: dict[TopicPartition, OffsetRange] = {}
    lost: list[OffsetRange] = []
    crossed: list[str] = []
    missing: list[str] = []
    for tp, log in logs.items():
        first = _in_log(starting[tp], log)
        end = _in_log(ending[tp], log)
        if first > end and ending[tp] == LATEST_TIME:
            missing.append(f"{tp}: begins at {first}, and the log ends at {end} (was the topic made anew, or cut off?)")
            ranges[tp] = OffsetRange(tp, end, end)
            continue
        if first > end:
            crossed.append(f"{tp} begins at {first} and ends before {end}")
            continue
        low, high = min(max(first, log.earliest), end), max(min(end, log.latest), first)
        if (low, high) != (first, end):
            missing.append(f"{tp}: {first} to {end - 1} is asked for, and the log holds {_words(log)}")
            lost += [OffsetRange(tp, a, b) for a, b in ((first, low), (high, end)) if a < b and low < high]
            lost += [OffsetRange(tp, first, end)] if low >= high else []
        ranges[tp] = OffsetRange(tp, low, max(low, high))
    if crossed:
        raise UsageError(
            f"ranges are the wrong way round: {_some(crossed)}. Correct startingOffsets or endingOffsets, or the times"
        )
    if missing and fail_on_data_loss:
        raise PreconditionFailed(
            f"the logs do not hold what is to be read: {_some(missing)}. Correct startingOffsets or endingOffsets, or "
            "set failOnDataLoss=false to read what there is"
        )
    return BatchRanges(ranges, tuple(lost))


def _in_log(stated: int, log: LogRange) -> int:
    return {EARLIEST_TIME: log.earliest, LATEST_TIME: log.latest}.get(stated, stated)


def _words(log: LogRange) -> str:
    return f"{log.earliest} to {log.latest - 1}" if log.earliest < log.latest else f"nothing (it ends at {log.latest})"


def _some(problems: list[str]) -> str:
    more = f"; and {len(problems) - PROBLEMS_SHOWN_MAX} more" if len(problems) > PROBLEMS_SHOWN_MAX else ""
    return "; ".join(problems[:PROBLEMS_SHOWN_MAX]) + more


# --- what is stated -----------------------------------------------------------------------------------------------


FetchLogsAtTimes = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, LogRange]]
"""Partition -> ms since 1970, in; the log with the offset of that time (``at``) out."""


def configured_start(
    starting: StartingLimit, partitions: Collection[TopicPartition], ask: FetchLogsAtTimes, is_late_an_error: bool
) -> dict[TopicPartition, int]:
    """Where each partition begins; not for ``GroupOffsetRangeLimit``.

    A time: the first record at or after it.  Where there is none: ``UsageError``, or the end of the log
    (``startingOffsetsByTimestampStrategy=latest``).
    """
    times = _times(starting, "startingOffsets", partitions)
    if times is None:
        return _offsets(starting, "startingOffsets", partitions, EARLIEST_TIME)
    found = ask(times)
    late = {tp: times[tp] for tp, log in found.items() if log.for_time is not None and log.for_time.kind == "end"}
    if late and is_late_an_error:
        raise UsageError(late_timestamp_message(late))
    return {tp: log.for_time.offset if log.for_time is not None else LATEST_TIME for tp, log in found.items()}


def configured_end(
    ending: EndingLimit, partitions: Collection[TopicPartition], ask: FetchLogsAtTimes
) -> dict[TopicPartition, int]:
    """Where each partition ends.  A time: before the first record at or after it, or at the end of the log.

    Raises ``UsageError`` for a time on a log without times: where to stop cannot be told there.
    """
    times = _times(ending, "endingOffsets", partitions)
    if times is None:
        return _offsets(ending, "endingOffsets", partitions, LATEST_TIME)
    found = ask(times)
    vague = [tp for tp, log in found.items() if log.for_time is None or log.for_time.kind in ("segment", "start")]
    if vague:
        raise UsageError(
            f"{format_partition_list(vague)}: the log has no times (message format 0, or a broker before 0.10.1), so "
            "it cannot be "
            "told where an ending time is; set endingOffsets"
        )
    return {tp: log.for_time.offset for tp, log in found.items() if log.for_time is not None}


def _times(
    stated: StartingLimit | EndingLimit, option: str, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int] | None:
    """The time of each partition, in ms since 1970; None where no times are stated."""
    match stated:
        case GlobalTimestampRangeLimit(time_ms):
            return dict.fromkeys(partitions, time_ms)
        case SpecificTimestampRangeLimit(times_ms):
            return _named(f"{option}ByTimestamp", times_ms, partitions)
    return None


def _offsets(
    stated: StartingLimit | EndingLimit, option: str, partitions: Collection[TopicPartition], otherwise: int
) -> dict[TopicPartition, int]:
    """The offset of each partition; ``otherwise`` where none is stated."""
    if isinstance(stated, SpecificOffsetRangeLimit):
        return _named(option, stated.offsets, partitions)
    return dict.fromkeys(partitions, otherwise)


def _named(
    option: str, given: Mapping[TopicPartition, int], partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    if problem := check_all_partitions_named(option, given, partitions):
        raise UsageError(problem)
    return dict(given)
