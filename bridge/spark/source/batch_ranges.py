"""Computes the range that a batch reads of each partition, from the options and the log bounds.  Pure.

    stated           an offset, -2 (the start of the log) or -1 (its end), of every partition, for both ends
    resolve_ranges   stated, logs ---> ranges inside the logs, and the stated offsets that the logs no longer contain

With ``failOnDataLoss`` (the default) a range that the log does not contain completely is an error.  Without it the
range is reduced to the offsets that exist, and ``lost`` reports the missing ones.
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
    """The ranges to read; ``lost``: stated offsets that are not in the log."""

    ranges: Mapping[TopicPartition, OffsetRange]
    lost: tuple[OffsetRange, ...]


def resolve_ranges(
    starting: Mapping[TopicPartition, int],
    ending: Mapping[TopicPartition, int],
    logs: Mapping[TopicPartition, LogRange],
    fail_on_data_loss: bool,
) -> BatchRanges:
    """The ranges of all partitions, also empty ones.

    Raises ``UsageError`` for a range that starts after its end, and ``PreconditionFailed`` for offsets that the logs do
    not contain.
    """
    ranges: dict[TopicPartition, OffsetRange] = {}
    lost: list[OffsetRange] = []
    crossed: list[str] = []
    missing: list[str] = []
    for tp, log in logs.items():
        first = _in_log(starting[tp], log)
        end = _in_log(ending[tp], log)
        if first > end and ending[tp] == LATEST_TIME:
            ranges[tp] = OffsetRange(tp, end, end)
            if first <= log.latest:  # the group has read records of transactions that are open
                continue
            missing.append(
                f"{tp}: starts at {first}, but the log ends at {end} (was the topic created again, or truncated?)"
            )
            continue
        if first > end and starting[tp] == EARLIEST_TIME:
            missing.append(f"{tp}: everything before {end} is requested, but the log contains {_words(log)}")
            ranges[tp] = OffsetRange(tp, end, end)
            continue
        if first > end:
            crossed.append(f"{tp} starts at {first} and ends before {end}")
            continue
        low, high = min(max(first, log.earliest), end), max(min(end, log.latest), first)
        if (low, high) != (first, end):
            missing.append(f"{tp}: {first} to {end - 1} is requested, but the log contains {_words(log)}")
            lost += [OffsetRange(tp, a, b) for a, b in ((first, low), (high, end)) if a < b and low < high]
            lost += [OffsetRange(tp, first, end)] if low >= high else []
        ranges[tp] = OffsetRange(tp, low, max(low, high))
    if crossed:
        raise UsageError(
            f"ranges start after their end: {_some(crossed)}. Correct startingOffsets or endingOffsets, or the times"
        )
    if missing and fail_on_data_loss:
        raise PreconditionFailed(
            f"the logs do not contain the requested offsets: {_some(missing)}. Correct startingOffsets or "
            "endingOffsets, or set failOnDataLoss=false to read the offsets that exist"
        )
    return BatchRanges(ranges, tuple(lost))


def _in_log(stated: int, log: LogRange) -> int:
    return {EARLIEST_TIME: log.earliest, LATEST_TIME: log.readable_end}.get(stated, stated)


def _words(log: LogRange) -> str:
    return f"{log.earliest} to {log.latest - 1}" if log.earliest < log.latest else f"nothing (it ends at {log.latest})"


def _some(problems: list[str]) -> str:
    more = f"; and {len(problems) - PROBLEMS_SHOWN_MAX} more" if len(problems) > PROBLEMS_SHOWN_MAX else ""
    return "; ".join(problems[:PROBLEMS_SHOWN_MAX]) + more


# --- stated limits ------------------------------------------------------------------------------------------------


FetchLogsAtTimes = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, LogRange]]
"""Input: partition -> ms since 1970.  Output: the log bounds with the offset of that time (``at``)."""


def configured_start(
    starting: StartingLimit, partitions: Collection[TopicPartition], ask: FetchLogsAtTimes, is_late_an_error: bool
) -> dict[TopicPartition, int]:
    """The starting offset of each partition; not for ``GroupOffsetRangeLimit``.

    For a time: the first record at or after it.  Without such a record: ``UsageError``, or the end of the log
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
    """The ending offset of each partition.  For a time: before the first record at or after it, or the end of the log.

    Raises ``UsageError`` for a time on a log without times: the ending offset cannot be found there.
    """
    times = _times(ending, "endingOffsets", partitions)
    if times is None:
        return _offsets(ending, "endingOffsets", partitions, LATEST_TIME)
    found = ask(times)
    vague = [tp for tp, log in found.items() if log.for_time is None or log.for_time.kind in ("segment", "start")]
    if vague:
        raise UsageError(
            f"{format_partition_list(vague)}: the log has no times (message format 0, or a broker before 0.10.1), so "
            "the offset of an ending time cannot be found; set endingOffsets instead"
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
