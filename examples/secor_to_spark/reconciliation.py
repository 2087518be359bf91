"""Compares what the old members and Spark have written with the log, record by record.  Pure.

Each offset of the log must be in exactly one of the two outputs.  One exception is permitted: the records of an upload
during which Spark moved the offset of the partition.  The old member reads the stored offset before its upload, and
writes the offset after it without another look.  So its file has these records, and Spark has them, too.

The versions of the offset's znode show whether Spark moved the offset during an upload; no clock is needed.  Each write
increases the version by one.  The member logs the version that it read when the upload began, and the version that its
own write made at the end.  A version in between that no member has written was made by Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

TopicAndPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Upload:
    """One file of an old member: the records [first, last] of a partition, from the member's own log.

    ``began_ms``, ``ended_ms``: since 1970.  ``version_read``: of the offset's znode when the upload began; -1: there
    was no znode.  ``version_written``: the version that the member's write made when the upload ended.
    """

    member: str
    partition: TopicAndPartition
    first: int
    last: int
    began_ms: int
    ended_ms: int
    version_read: int
    version_written: int

    def versions_between(self) -> range:
        """The versions that others have written during the upload."""
        return range(self.version_read + 1, self.version_written)


@dataclass(frozen=True, slots=True)
class DoubleRange:
    """The records [first, last] that are in both outputs.

    ``upload``: the one during which Spark moved the offset, ``writes_by_spark`` times; None: there is no such upload.
    """

    partition: TopicAndPartition
    first: int
    last: int
    upload: Upload | None
    writes_by_spark: int

    @property
    def records(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Numbers of records.  ``lost``: of the log, in no output.  ``repeated``: more than once in one output.
    ``unknown``: in an output and not in the log.  ``problems``: these records as ranges, one line each."""

    produced: int
    old: int
    spark: int
    lost: int
    repeated: int
    unknown: int
    doubles: tuple[DoubleRange, ...]
    problems: tuple[str, ...]

    @property
    def double(self) -> int:
        return sum(each.records for each in self.doubles)

    @property
    def unexplained(self) -> int:
        """Records that are in both outputs, and in no upload during which Spark moved the offset."""
        return sum(each.records for each in self.doubles if each.upload is None)

    def is_right(self, *, permits_doubles: bool) -> bool:
        """Whether each record is where it must be."""
        wrong = self.lost + self.repeated + self.unknown + self.unexplained
        return wrong == 0 and (permits_doubles or self.double == 0)


def reconcile(
    ends: Mapping[TopicAndPartition, int],
    old: Mapping[TopicAndPartition, Counter[int]],
    spark: Mapping[TopicAndPartition, Counter[int]],
    uploads: Iterable[Upload],
) -> Reconciliation:
    """``ends``: partition -> the number of records of its log, which begins at 0.  ``old``, ``spark``: partition ->
    offset -> how often the output has it."""
    uploads = list(uploads)
    lost = repeated = unknown = 0
    doubles: list[DoubleRange] = []
    problems: list[str] = []
    for partition in sorted(ends.keys() | old.keys() | spark.keys()):
        by_old, by_spark = old.get(partition, Counter()), spark.get(partition, Counter())
        log = set(range(ends.get(partition, 0)))
        missing = log - by_old.keys() - by_spark.keys()
        strange = (by_old.keys() | by_spark.keys()) - log
        lost += len(missing)
        unknown += len(strange)
        problems += _problems(partition, missing, "lost")
        problems += _problems(partition, strange, "not in the log")
        for name, output in (("the old members", by_old), ("Spark", by_spark)):
            again = {offset for offset, count in output.items() if count > 1}
            repeated += sum(output[offset] - 1 for offset in again)
            problems += _problems(partition, again, f"more than once in the output of {name}")
        doubles += _double_ranges(partition, by_old.keys() & by_spark.keys(), uploads)
    return Reconciliation(
        produced=sum(ends.values()),
        old=sum(output.total() for output in old.values()),
        spark=sum(output.total() for output in spark.values()),
        lost=lost,
        repeated=repeated,
        unknown=unknown,
        doubles=tuple(doubles),
        problems=tuple(problems),
    )


def writes_by_spark(upload: Upload, uploads: Iterable[Upload]) -> int:
    """How often Spark wrote the offset of the partition during the upload."""
    by_members = {each.version_written for each in uploads if each.partition == upload.partition}
    return sum(version not in by_members for version in upload.versions_between())


def place_text(partition: TopicAndPartition, first: int, last: int) -> str:
    """A range of records for people."""
    return f"{partition[0]}/{partition[1]} offsets {first} to {last}"


def _problems(partition: TopicAndPartition, offsets: set[int], what: str) -> Iterator[str]:
    """A line for each range of these offsets."""
    for _, group in groupby(enumerate(sorted(offsets)), lambda pair: pair[1] - pair[0]):
        found = [offset for _, offset in group]
        yield f"{place_text(partition, found[0], found[-1])}: {what}"


def _double_ranges(partition: TopicAndPartition, both: set[int], uploads: list[Upload]) -> Iterator[DoubleRange]:
    """The offsets as ranges; each range is in one upload, or in none."""
    first = last = -1
    upload: Upload | None = None
    for offset in sorted(both):
        explained = _explaining_upload(partition, offset, uploads)
        if last >= 0 and offset == last + 1 and explained == upload:
            last = offset
            continue
        if last >= 0:
            yield _double_range(partition, first, last, upload, uploads)
        first, last, upload = offset, offset, explained
    if last >= 0:
        yield _double_range(partition, first, last, upload, uploads)


def _double_range(
    partition: TopicAndPartition, first: int, last: int, upload: Upload | None, uploads: list[Upload]
) -> DoubleRange:
    return DoubleRange(partition, first, last, upload, 0 if upload is None else writes_by_spark(upload, uploads))


def _explaining_upload(partition: TopicAndPartition, offset: int, uploads: list[Upload]) -> Upload | None:
    for each in uploads:
        if each.partition == partition and each.first <= offset <= each.last and writes_by_spark(each, uploads):
            return each
    return None
