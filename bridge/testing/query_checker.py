"""Checks one Spark query and the other members of its group: did each record arrive, and did any arrive twice?

Pure: observations in, findings out.

    verdict = check_query_history(QueryHistory(mode=CommitMode.CLAIM, log={tp: range(0, 500)}, sunk=[...], read=[...],
    ...))
    assert verdict.is_valid, verdict.text

The guarantees are those of ``migration_docs/explanation/spark-guarantees.md``:

1. the sink and the other members together have exactly the records of the log (``lost``, ``not_in_log``,
   ``other_value``);
2. the sink has no record twice (``twice_in_sink``);
3. records in the sink that a member also delivered: with ``claim`` none (``claim_overlap``); otherwise, in
   one partition, of no more batches than there were crashes (``overlap``);
4. a stored offset of the group never goes back (``went_back``);
5. after a query that ran to its end, the group's offset is the end of the query's last batch (``group_end``).
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bridge.spark.group_membership import CommitMode
from zkconsumer.types import TopicPartition

QUERY_FINDING_CODES: Mapping[str, str] = {
    "lost": "in the log, and neither in the sink nor with a member",
    "not_in_log": "in the sink or with a member, and not in the log",
    "other_value": "in the sink with a value that differs from the log's",
    "twice_in_sink": "in the sink more than once",
    "claim_overlap": "in the sink and with a member, which claim rules out",
    "overlap": "in the sink and with a member, in more batches than there were crashes",
    "went_back": "a stored offset of the group became smaller",
    "group_end": "after a run to the end the group's offset is not the end of the last batch",
}
RANGES_SHOWN_MAX = 4


class SinkRow(NamedTuple):
    """One row of the sink; ``batch``: the id of its micro-batch."""

    batch: int
    partition: TopicPartition
    offset: int
    value: str | None = None


class MemberRead(NamedTuple):
    """One record that another member of the group delivered."""

    member: str
    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class QueryHistory:
    """The observations of one query and its group.

    ``log``: the contents of each partition at the brokers.  ``value_of``: the expected value of a record; None: values
    are not checked.  ``stored``: the group's offsets in the order in which ZooKeeper accepted them.
    ``final_offsets``: (the group's offset, the expected one) after a run to the end.  ``crashes``: how often the
    query's processes died.  ``retention_starts``: retention has deleted records below this offset, maybe unread ones.
    ``allowed_overlap``: records that may be in both, since the *member* was killed and read them again.
    """

    mode: CommitMode
    log: Mapping[TopicPartition, range]
    sink_rows: Sequence[SinkRow]
    member_reads: Sequence[MemberRead]
    stored: Mapping[TopicPartition, Sequence[int]] = field(default_factory=dict)
    final_offsets: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    crashes: int = 0
    retention_starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    allowed_overlap: frozenset[tuple[TopicPartition, int]] = frozenset()
    value_of: Callable[[TopicPartition, int], str] | None = None


@dataclass(frozen=True, slots=True)
class QueryFinding:
    """One broken guarantee in one partition."""

    code: str
    partition: TopicPartition
    what: str

    def __str__(self) -> str:
        return f"{self.code} {self.partition}: {self.what} ({QUERY_FINDING_CODES[self.code]})"


@dataclass(frozen=True, slots=True)
class QueryVerdict:
    """``overlap``: partition -> how many records are in the sink and with a member.
    ``member_duplicates``: how many records the other members delivered more than once among themselves; that is not
    the query's fault."""

    findings: tuple[QueryFinding, ...]
    records: int
    sunk: int
    read: int
    overlap: Mapping[TopicPartition, int]
    member_duplicates: int

    @property
    def is_valid(self) -> bool:
        """Whether every guarantee was kept."""
        return not self.findings

    @property
    def text(self) -> str:
        """One line of numbers, then a line for each finding."""
        numbers = (
            f"{self.records} records, {self.sunk} in the sink, {self.read} with members,"
            f" {sum(self.overlap.values())} with both, {self.member_duplicates} repeated by members"
        )
        return "\n".join([numbers, *map(str, self.findings)])


def check_query_history(feed: QueryHistory) -> QueryVerdict:
    """Check every guarantee, partition by partition."""
    sunk: dict[TopicPartition, list[SinkRow]] = defaultdict(list)
    read: dict[TopicPartition, Counter[int]] = defaultdict(Counter)
    for row in feed.sink_rows:
        sunk[row.partition].append(row)
    for one in feed.member_reads:
        read[one.partition][one.offset] += 1
    findings: list[QueryFinding] = []
    overlap: dict[TopicPartition, int] = {}
    for partition in sorted({*feed.log, *sunk, *read}):
        rows, handed = sunk[partition], read[partition]
        held = feed.log.get(partition, range(0))
        findings += _against_the_log(partition, held, rows, handed, feed)
        findings += _repeated(partition, rows)
        both = [row for row in rows if row.offset in handed and (partition, row.offset) not in feed.allowed_overlap]
        if both:
            overlap[partition] = len({row.offset for row in both})
            findings += _overlapping(partition, both, feed)
    for partition, offsets in sorted(feed.stored.items()):
        findings += _gone_back(partition, offsets)
    for partition, (stored_end, ends) in sorted(feed.final_offsets.items()):
        if stored_end != ends:
            findings.append(QueryFinding("group_end", partition, f"the group's offset is {stored_end} and not {ends}"))
    return QueryVerdict(
        tuple(findings),
        records=sum(map(len, feed.log.values())),
        sunk=len(feed.sink_rows),
        read=sum(map(len, read.values())),
        overlap=overlap,
        member_duplicates=sum(counted.total() - len(counted) for counted in read.values()),
    )


def _against_the_log(
    partition: TopicPartition,
    held: range,
    rows: Sequence[SinkRow],
    handed: Counter[int],
    feed: QueryHistory,
) -> Iterable[QueryFinding]:
    value_of = feed.value_of
    seen = {row.offset for row in rows} | handed.keys()
    missing = [offset for offset in held if offset not in seen and offset >= feed.retention_starts.get(partition, 0)]
    if missing:
        yield QueryFinding("lost", partition, _ranges(missing))
    invented = sorted(offset for offset in seen if offset not in held)
    if invented:
        yield QueryFinding("not_in_log", partition, _ranges(invented))
    if value_of is None:
        return
    for row in rows:
        if row.offset in held and row.value != value_of(partition, row.offset):
            wanted = value_of(partition, row.offset)
            yield QueryFinding("other_value", partition, f"{row.offset} has {row.value!r} and not {wanted!r}")
            return  # one says as much as a thousand


def _repeated(partition: TopicPartition, rows: Sequence[SinkRow]) -> Iterable[QueryFinding]:
    batches: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        batches[row.offset].append(row.batch)
    twice = sorted(offset for offset, found in batches.items() if len(found) > 1)
    if twice:
        first = sorted(batches[twice[0]])
        yield QueryFinding("twice_in_sink", partition, f"{_ranges(twice)}; {twice[0]} is in batches {first}")


def _overlapping(partition: TopicPartition, both: Sequence[SinkRow], feed: QueryHistory) -> Iterable[QueryFinding]:
    batches = sorted({row.batch for row in both})
    what = f"{_ranges(sorted({row.offset for row in both}))}, of batches {batches}"
    if feed.mode is CommitMode.CLAIM:
        yield QueryFinding("claim_overlap", partition, what)
    elif feed.mode is CommitMode.AFTER_BATCH and len(batches) > feed.crashes:
        yield QueryFinding("overlap", partition, f"{what}, after {feed.crashes} crashes")


def _gone_back(partition: TopicPartition, offsets: Sequence[int]) -> Iterable[QueryFinding]:
    for before, after in itertools.pairwise(offsets):
        if after < before:
            yield QueryFinding("went_back", partition, f"from {before} to {after}")


def _ranges(offsets: Sequence[int]) -> str:
    """``5-9 (5), 12 (1)`` of ascending offsets."""
    found: list[list[int]] = []
    for offset in offsets:
        if found and found[-1][1] == offset - 1:
            found[-1][1] = offset
        else:
            found.append([offset, offset])
    texts = [f"{a}-{b} ({b - a + 1})" if a != b else f"{a} (1)" for a, b in found[:RANGES_SHOWN_MAX]]
    return ", ".join(texts) + (f" and {len(found) - RANGES_SHOWN_MAX} more" if len(found) > RANGES_SHOWN_MAX else "")
