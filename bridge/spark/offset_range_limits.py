"""Where a query starts and ends, as its options set it: values, and the JSON format of Spark's Kafka source.
Pure.

    {"orders": {"0": 23, "1": -2}, "refunds": {"0": -1}}       topic -> partition -> offset; -2 earliest, -1 latest
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from bridge.spark.decode.offset_ranges import SkipOffsets, merge_offset_ranges
from zkconsumer.strict_json import read_json_object
from zkconsumer.types import EARLIEST_TIME, TopicPartition

OFFSET_MAX = 2**63 - 1
PARTITION_MAX = 2**31 - 1

JSON_CHARS_MAX = 16_000_000
"""A longer text is not parsed (it would name half a million partitions)."""


@dataclass(frozen=True, slots=True)
class GroupOffsetRangeLimit:
    """The group's offsets; ``auto.offset.reset`` decides where the group has none."""


@dataclass(frozen=True, slots=True)
class EarliestOffsetRangeLimit:
    """The start of each log."""


@dataclass(frozen=True, slots=True)
class LatestOffsetRangeLimit:
    """The end of each log."""


@dataclass(frozen=True, slots=True)
class SpecificOffsetRangeLimit:
    """An offset for each partition: one of the log, ``EARLIEST_TIME`` (-2) or ``LATEST_TIME`` (-1)."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class GlobalTimestampRangeLimit:
    """The first offset at or after this time, in ms since 1970, of every partition."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class SpecificTimestampRangeLimit:
    """The same, with a time for each partition."""

    times_ms: Mapping[TopicPartition, int]


StartingLimit: TypeAlias = (
    GroupOffsetRangeLimit
    | EarliestOffsetRangeLimit
    | LatestOffsetRangeLimit
    | SpecificOffsetRangeLimit
    | GlobalTimestampRangeLimit
    | SpecificTimestampRangeLimit
)
EndingLimit: TypeAlias = (
    LatestOffsetRangeLimit | SpecificOffsetRangeLimit | GlobalTimestampRangeLimit | SpecificTimestampRangeLimit
)


def parse_offsets(text: str) -> dict[TopicPartition, int]:
    """Parses offsets in JSON.  Raises ``ValueError`` that names what to change."""
    found = _parse(text, "an offset")
    for tp, offset in found.items():
        if offset < EARLIEST_TIME:
            raise ValueError(f"{tp} has {offset}: an offset is 0 or more, or -1 for latest, or -2 for earliest")
    return found


def parse_times(text: str) -> dict[TopicPartition, int]:
    """Parses times in ms since 1970 in JSON.  Raises ``ValueError`` that names what to change."""
    found = _parse(text, "a time")
    for tp, time_ms in found.items():
        if time_ms < 0:
            raise ValueError(f"{tp} has {time_ms}: a time is in milliseconds since 1970, and not less than 0")
    return found


def parse_partitions(text: str) -> tuple[TopicPartition, ...]:
    """Parses partitions in JSON, ``{"orders": [0, 1]}``.  Raises ``ValueError`` that names what to change."""
    found: list[TopicPartition] = []
    for topic, partitions in _object(text).items():
        if not isinstance(partitions, list) or not partitions:
            raise ValueError(f"{topic!r} has {_shown(partitions)}, which is not a list of partitions")
        for partition in partitions:
            if type(partition) is not int or not 0 <= partition <= PARTITION_MAX:
                raise ValueError(f"{topic!r} has {_shown(partition)}, which is not a partition number")
            found.append(TopicPartition(topic, partition))
    if len(set(found)) < len(found):
        raise ValueError("a partition occurs twice")
    return tuple(sorted(found))


def nested(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Topic -> partition -> number, sorted, for JSON."""
    made: dict[str, dict[str, int]] = {}
    for tp, offset in sorted(offsets.items()):
        made.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return made


def unnested(found: object, what: str) -> dict[TopicPartition, int]:
    """The reverse of ``nested``; ``what``: the kind of the numbers, with its article.  Raises ``ValueError``."""
    made: dict[TopicPartition, int] = {}
    for tp, number in values_by_partition(found):
        if type(number) is not int or abs(number) > OFFSET_MAX:
            raise ValueError(f"{tp} has {_shown(number)}, which is not {what}")
        made[tp] = number
    return made


def values_by_partition(found: object) -> Iterator[tuple[TopicPartition, object]]:
    """The values of topic -> partition -> value.  Raises ``ValueError`` when the keys do not have this form."""
    if not isinstance(found, dict):
        raise ValueError(f"{_shown(found)} is not a JSON object of topics")
    for topic, partitions in found.items():
        if not isinstance(partitions, dict):
            raise ValueError(f"{topic!r} has {_shown(partitions)}, which is not a JSON object of partitions")
        for partition, value in partitions.items():
            if not re.fullmatch("0|[1-9][0-9]{0,9}", partition) or int(partition) > PARTITION_MAX:
                raise ValueError(f"{topic!r} has {_shown(partition)}, which is not a partition number")
            yield TopicPartition(topic, int(partition)), value


def parse_skip_offsets(text: str) -> SkipOffsets:
    """Parses the ranges of ``skipOffsets`` in JSON, ``{"orders": {"0": [[1000, 1500], [9000, 9001]]}}``: sorted, and
    those that overlap or touch are merged.  Raises ``ValueError`` that names what to change."""
    made: dict[TopicPartition, tuple[tuple[int, int], ...]] = {}
    for tp, pairs in values_by_partition(_object(text)):
        if not isinstance(pairs, list) or not pairs:
            raise ValueError(f"{tp} has {_shown(pairs)}, which is not a list of ranges [[first, end], ...]")
        for pair in pairs:
            if not isinstance(pair, list) or len(pair) != 2 or any(type(number) is not int for number in pair):
                raise ValueError(f"{tp} has {_shown(pair)}, which is not a range [first, end] of two offsets")
            if not 0 <= pair[0] < pair[1] <= OFFSET_MAX:
                raise ValueError(
                    f"{tp} has {_shown(pair)}: first must be 0 or more and less than end, since end is not skipped"
                )
        made[tp] = merge_offset_ranges((first, end) for first, end in pairs)
    if not made:
        raise ValueError("it names no partition")
    return made


def check_all_partitions_named(option: str, named: Iterable[TopicPartition], there: Collection[TopicPartition]) -> str:
    """The problem when ``option`` does not name exactly the existing partitions, or "".

    As in Spark's Kafka source, which rejects a text that names too few or too many.
    """
    wanted = set(named)
    problems = []
    if missing := sorted(set(there) - wanted):
        problems.append(f"it does not name {format_partition_list(missing)} (use -1 for latest or -2 for earliest)")
    if foreign := sorted(wanted - set(there)):
        are = "are" if len(foreign) > 1 else "is"
        problems.append(f"it names {format_partition_list(foreign)}, which {are} not subscribed or not existing")
    return f"{option} must name every partition that is read and no other: {'; '.join(problems)}" if problems else ""


def late_timestamp_message(late: Mapping[TopicPartition, int]) -> str:
    """The error text when no record is as late as a starting time (partition -> ms since 1970)."""
    return (
        f"no record of {format_partition_list(late)} is as late as the starting time {max(late.values())} ms since "
        "1970: set an earlier one, or set startingOffsetsByTimestampStrategy=latest to start at the end there"
    )


def format_partition_list(partitions: Iterable[TopicPartition], most: int = 10) -> str:
    """Some partitions, and the number of the others."""
    names = [str(tp) for tp in sorted(partitions)]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _parse(text: str, what: str) -> dict[TopicPartition, int]:
    made = unnested(_object(text), what)
    if not made:
        raise ValueError("it names no partition")
    return made


def _object(text: str) -> dict[str, object]:
    if len(text) > JSON_CHARS_MAX:
        raise ValueError(f"it has {len(text)} characters; the maximum is {JSON_CHARS_MAX}")
    return read_json_object(text)


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
