"""A range of a log to read, the settings to read it, and the errors of missing records: used by plans and readers.
Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from zkconsumer.errors import UnavailableError
from zkconsumer.types import TopicPartition
from zkconsumer.wire.isolation_level import READ_COMMITTED, READ_UNCOMMITTED

FETCH_BYTES = 8 * 1024 * 1024
"""The maximum size of a fetch: enough to decode many batches at once."""

REQUEST_TIMEOUT_MS = 30_000

GIVE_UP_MS = 120_000
"""How long a read without progress lasts before it fails."""


SkipOffsets: TypeAlias = Mapping[TopicPartition, tuple[tuple[int, int], ...]]
"""The option ``skipOffsets``: for each partition the ranges [first, end) to skip, sorted and disjoint."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The records of a partition with ``first`` <= offset < ``end``."""

    tp: TopicPartition
    first: int
    end: int

    def __str__(self) -> str:
        return f"{self.tp} [{self.first}, {self.end})"


def merge_offset_ranges(pairs: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The same offsets as sorted ranges [first, end) that neither overlap nor touch."""
    made: list[tuple[int, int]] = []
    for first, end in sorted(pairs):
        if made and first <= made[-1][1]:
            made[-1] = made[-1][0], max(end, made[-1][1])
        else:
            made.append((first, end))
    return tuple(made)


def skip_option(skips: SkipOffsets, also: OffsetRange) -> str:
    """The option that a user adds to the reader to skip ``also`` besides ``skips``, ready to paste.

    Topic names have no character that JSON or Python escapes.
    """
    ranges = {**skips, also.tp: merge_offset_ranges([*skips.get(also.tp, ()), (also.first, also.end)])}
    topics: dict[str, dict[str, tuple[tuple[int, int], ...]]] = {}
    for tp, pairs in sorted(ranges.items()):
        topics.setdefault(tp.topic, {})[str(tp.partition)] = pairs
    return f""".option("skipOffsets", '{json.dumps(topics, separators=(",", ":"))}')"""


def without_skipped(wanted: OffsetRange, skips: SkipOffsets) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """The parts of ``wanted`` to read, and those that ``skips`` removes; both in order, none is empty."""
    kept: list[OffsetRange] = []
    skipped: list[OffsetRange] = []
    position = wanted.first
    for first, end in skips.get(wanted.tp, ()):
        first, end = max(first, position), min(end, wanted.end)
        if first < end:
            kept.append(OffsetRange(wanted.tp, position, first))
            skipped.append(OffsetRange(wanted.tp, first, end))
            position = end
    kept.append(OffsetRange(wanted.tp, position, wanted.end))
    return [each for each in kept if each.first < each.end], skipped


class DataLost(UnavailableError):
    """Records of the planned range are no longer in the log; raise the retention, or set failOnDataLoss=false."""

    def __init__(self, lost: OffsetRange, log_first: int, log_end: int) -> None:
        holds = f"{log_first} to {log_end - 1}" if log_first < log_end else "no record"
        super().__init__(
            f"{lost.tp}: offsets {lost.first} to {lost.end - 1} must be read, but the log contains {holds}. "
            "Retention, a deletion, or a leader without all records removed them. Raise the topic's retention, or "
            "set failOnDataLoss=false to continue without them"
        )
        self.lost = lost
        self.log_first = log_first
        self.log_end = log_end


class FetchStalled(UnavailableError):
    """A leader sends no record although its log continues; repair its storage, or skip the offsets with skipOffsets.

    ``rest`` are the offsets that were not read; ``settings`` those of the task.
    """

    def __init__(self, rest: OffsetRange, log_end: int, leader: str, answer: str, settings: ReadSettings) -> None:
        """``log_end``: the end of the log, as ``leader`` reports it; ``answer``: its answer to a Fetch, as text."""
        until = min(rest.end, log_end)
        advice = "Check the log and the tiered storage of that broker"
        if settings.isolation_level == READ_COMMITTED:
            advice += ", or end the open transaction at that offset (kafka.isolation.level=read_committed stops at it)"
        super().__init__(
            f"{rest.tp}: no record arrived from offset {rest.first} on for {settings.give_up_ms} ms: {leader} answers "
            f"{answer}, although it reports {log_end} as the end of its log. The records may exist, so this query "
            f"does not skip them (also not with failOnDataLoss=false). {advice}, and start the query again: a stream "
            f"repeats this batch. Only if offsets {rest.first} to {until - 1} contain no record that you need, skip "
            "them (a stream: on the same checkpoint): add to the reader "
            f"{skip_option(settings.skip_offsets, OffsetRange(rest.tp, rest.first, until))}"
        )
        self.rest = rest
        self.log_end = log_end


class OnCorruptRecord(Enum):
    """``onCorruptRecord``: what a reader does with records in the log that cannot be decoded."""

    FAIL = "fail"
    """It raises an error."""

    SKIP = "skip"
    """It passes over their offsets, and logs them."""

    DEAD_LETTER = "deadLetter"
    """The same, and it returns a row for each range of offsets that it passed over."""


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """How to read; bytes and ms.  ``give_up_ms`` counts while there is no progress, but not while the caller pauses."""

    fetch_bytes: int = FETCH_BYTES
    check_crcs: bool = True
    fail_on_data_loss: bool = True
    request_timeout_ms: int = REQUEST_TIMEOUT_MS
    give_up_ms: int = GIVE_UP_MS
    skip_offsets: SkipOffsets = field(default_factory=dict)
    """The option of the query, for the advice in errors: the ranges of its tasks exclude these offsets already."""

    isolation_level: int = READ_UNCOMMITTED
    on_corrupt_record: OnCorruptRecord = OnCorruptRecord.FAIL

    claim_advice: str = ""
    """What else an operator can do about records that cannot be read, if the group's offset is after them already."""
