"""The log against the lineage by hours or days of the messages' times.  Pure.

The bound of a bucket in a log is the first offset whose message has that time or a later one (ListOffsets, brokers from
0.10.1 on).  With times that producers set, a later offset may have an earlier time, so a bucket is exact only where
times do not decrease in a partition.  A partition without times has no bucket.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from bridge.spark.pipeline.audit.audit_facts import AuditFacts, LogSpan
from bridge.spark.pipeline.audit.audit_findings import MISSING_REASONS, AuditFinding, GapReason
from zkconsumer.types import TopicPartition

BucketSize: TypeAlias = Literal["hour", "day"]

BUCKET_MS: Mapping[BucketSize, int] = {"hour": 3_600_000, "day": 86_400_000}


@dataclass(frozen=True, slots=True)
class TimeBucket:
    """Offsets of all logs whose messages have these times.

    ``start_ms`` None: all times before the next bucket.  ``gaps``: reason -> offsets that no lineage has.  ``missing``:
    how many of them have a reason that is an error.
    """

    start_ms: int | None
    offsets: int
    covered: int
    gaps: Mapping[GapReason, int]

    @property
    def missing(self) -> int:
        return sum(count for reason, count in self.gaps.items() if reason in MISSING_REASONS)


def bucket_starts(size: BucketSize, now_ms: int) -> Iterator[int]:
    """The starts of the buckets, the newest first, in UTC; without an end."""
    start = now_ms // BUCKET_MS[size] * BUCKET_MS[size]
    while True:
        yield start
        start -= BUCKET_MS[size]


def time_buckets(
    facts: AuditFacts,
    findings: Sequence[AuditFinding],
    bounds: Mapping[TopicPartition, Sequence[int]],
    starts: Sequence[int],
) -> list[TimeBucket]:
    """One bucket before the first start, and one from each start on, oldest first; none for partitions without times.

    ``bounds``: of each partition the offset at each of ``starts``, which are sorted.
    """
    made = []
    for number in range(len(starts) + 1):
        offsets = covered = 0
        gaps: dict[GapReason, int] = {}
        for tp, at in bounds.items():
            log = facts.logs[tp]
            assert isinstance(log, LogSpan), "only a log that is known has bounds"
            low = max(log.start, at[number - 1]) if number else log.start
            high = min(log.end, at[number]) if number < len(starts) else log.end
            if low >= high:
                continue
            offsets += high - low
            coverage = facts.totals.partitions.get(tp)
            covered += 0 if coverage is None else coverage.covered.common_count(low, high)
            for each in findings:
                if each.tp == tp and each.first is not None and each.end is not None and each.is_whole_range:
                    common = min(high, each.end) - max(low, each.first)
                    is_gap = coverage is None or not coverage.covered.contains(each.first, each.end)
                    if common > 0 and is_gap:
                        gaps[each.reason] = gaps.get(each.reason, 0) + common
        if offsets:
            made.append(TimeBucket(starts[number - 1] if number else None, offsets, covered, gaps))
    return made
