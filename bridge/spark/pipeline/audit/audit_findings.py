"""``explain``: each offset that became no row, with its reason.  Pure.

    offsets that no lineage has     cut at the start of the log, the group's offset, the claims, the planned batches and
                                    the reservations; each piece has one reason            ``_explain_partition``
    offsets that a lineage has      rows + dead letters + filtered + skipped + offsets without a record, by the batch;
                                    the last of these are counted in the log               ``_explain_group``
    the lineage itself              missing batches, offsets in two lineages, rows of the sink

The log's side is never a count of the pipeline: it is end - start of logs and ranges, and the headers of entries.

The identity is that of a batch, not of a partition, since the lineage has the counts of a batch: a batch of several
partitions closes if the sum of its offsets is the sum of its counts.

A gap in the middle, before which no batch is missing, has one cause: the next batch of the query began later, at the
group's offset, so another member has read the offsets (or a command has set the group's offset).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from bridge.spark.pipeline.audit.audit_facts import (
    AuditFacts,
    CountedGroup,
    LogSpan,
    MissingLog,
    PlannedBatch,
    StoredRows,
    UnknownLog,
)
from bridge.spark.pipeline.audit.entry_counts import OffsetCounts
from bridge.spark.pipeline.audit.lineage_totals import PartitionCoverage
from bridge.spark.pipeline.audit.offset_set import OffsetSet
from zkconsumer.types import TopicPartition


class GapReason(Enum):
    """Why offsets are no rows; the values are the keys of the JSON form."""

    COMPACTION = "compaction"
    MARKERS = "transaction-markers"
    ABORTED = "aborted-transactions"
    DEAD_LETTERS = "dead-letters"
    FILTERED = "filtered"
    SKIPPED = "passed-over"
    REPLAYED = "replayed"
    RETENTION = "retention"
    OTHER_MEMBERS = "other-members"
    BEFORE_START = "before-start"
    IN_PROGRESS = "in-progress"
    NOT_READ = "not-yet-read"
    RESERVED = "reserved"
    TOPIC_DELETED = "topic-deleted"
    READ_TWICE = "read-twice"
    ROWS_MISSING = "rows-missing"
    NOT_CHECKED = "not-checked"
    UNEXPLAINED = "unexplained"


MISSING_REASONS = frozenset({GapReason.READ_TWICE, GapReason.ROWS_MISSING, GapReason.UNEXPLAINED})
"""Something is wrong: exit code 3."""

TODO: Mapping[GapReason, str] = {
    GapReason.RETENTION: "these offsets cannot be read any more; raise retention.ms if the pipeline was to read them",
    GapReason.IN_PROGRESS: "run the pipeline: it repeats this batch",
    GapReason.NOT_READ: "run the pipeline",
    GapReason.RESERVED: "run the backfill or replay again that reserved them",
    GapReason.DEAD_LETTERS: "look at the dead letters, correct the pipeline, and replay them",
    GapReason.READ_TWICE: "find the two batches in the lineage: a restored checkpoint, offsets that were set back, or "
    "a topic that was created again; remove the rows of one of them",
    GapReason.ROWS_MISSING: "restore the sink from a backup, or read these offsets again by a backfill",
    GapReason.NOT_CHECKED: "remove the cause, and run the audit again",
    GapReason.UNEXPLAINED: "read these offsets again by a backfill, and report it if no one has changed the sink, the "
    "checkpoint or the group's offsets",
}
"""What the operator does about a finding; for the other reasons there is nothing to do."""


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """``offsets``: how many offsets (or rows) it explains.  ``tp`` None: of the whole pipeline.

    ``first`` and ``end``: where they are; None: their place is not known.  With fewer ``offsets`` than the range has,
    they are somewhere in it.
    """

    reason: GapReason
    tp: TopicPartition | None
    first: int | None
    end: int | None
    offsets: int
    text: str

    @property
    def todo(self) -> str:
        return TODO.get(self.reason, "")

    @property
    def is_whole_range(self) -> bool:
        """Whether it explains each offset of its range."""
        return self.first is not None and self.end is not None and self.end - self.first == self.offsets


def explain(facts: AuditFacts) -> list[AuditFinding]:
    """All findings, by partition and offset; those of the whole pipeline come last."""
    found: list[AuditFinding] = []
    reserved: dict[TopicPartition, OffsetSet] = {}
    for lineage in facts.reserved:
        if lineage.kind == "backfill":
            for tp, pairs in lineage.ranges.items():
                for first, end in pairs:
                    reserved.setdefault(tp, OffsetSet()).add(first, end)
    for tp in sorted({*facts.logs, *facts.totals.partitions}):
        found += _PartitionExplainer(facts, tp, reserved.get(tp, OffsetSet())).explain()
    for each in facts.counted:
        found += _explain_group(each)
    found += _explain_counts(facts)
    found += _explain_lineage(facts)
    found += _explain_sink(facts)
    return found


# --- offsets that no lineage has ----------------------------------------------------------------------------------


class _PartitionExplainer:
    """The gaps of one partition.  ``_covered``: what batches and backfills have."""

    def __init__(self, facts: AuditFacts, tp: TopicPartition, reserved: OffsetSet) -> None:
        self._facts = facts
        self._tp = tp
        self._reserved = reserved
        self._coverage = facts.totals.partitions.get(tp, PartitionCoverage())
        self._covered = self._coverage.covered
        self._offset = facts.group.offsets.get(tp)
        self._claim = facts.group.claims.get(tp)
        self._position = facts.checkpoint.positions.get(tp)
        query = facts.checkpoint.query
        known = None if query is None else facts.totals.last.get(query)
        self._last_batch = -1 if known is None else known.batch
        """The newest batch of the checkpoint's query that is in the sink."""
        self._planned: list[PlannedBatch] = [
            each for each in facts.checkpoint.pending if tp in each.ranges and each.batch > self._last_batch
        ]

    def explain(self) -> Iterator[AuditFinding]:
        log = self._facts.logs.get(self._tp, MissingLog())
        match log:
            case UnknownLog(problem):
                yield self._finding(GapReason.NOT_CHECKED, None, None, 0, f"the log is not known: {problem}")
            case MissingLog():
                count = self._covered.count
                text = "the partition does not exist any more; what was read of it is in the sink"
                yield self._finding(GapReason.TOPIC_DELETED, None, None, count, text)
            case LogSpan(start, end):
                yield from self._in_log(start, end)

    def _in_log(self, start: int, end: int) -> Iterator[AuditFinding]:
        low = min(start, self._covered.first) if self._covered else start
        if self._covered and self._covered.end > end:
            for first, last in self._covered.common(max(end, 0), self._covered.end):
                text = (
                    f"the lineage has these offsets, and the log ends at {end}: the topic was deleted and created "
                    "again, or the log was truncated"
                )
                yield self._finding(GapReason.UNEXPLAINED, first, last, last - first, text)
        pieces: list[tuple[GapReason, str, int, int]] = []
        for first, last in self._covered.missing(low, end):
            cuts = [each for each in self._cuts(start) if first < each < last]
            for one, other in zip([first, *cuts], [*cuts, last], strict=True):
                reason, text = self._reason(one, other, start)
                if pieces and pieces[-1][:2] == (reason, text) and pieces[-1][3] == one:
                    one = pieces.pop()[2]
                pieces.append((reason, text, one, other))
        for reason, text, first, last in pieces:
            yield self._finding(reason, first, last, last - first, text)

    def _cuts(self, start: int) -> list[int]:
        """Where the reason may change, sorted."""
        cuts = {start}
        if self._offset is not None:
            cuts.add(self._offset)
        if self._position is not None:
            cuts.add(self._position)
        if self._claim is not None:
            cuts |= {self._claim.first, self._claim.end}
        for planned in self._planned:
            cuts |= {*planned.ranges[self._tp]}
        for offsets in (self._reserved, self._coverage.suspects):
            cuts |= {bound for pair in offsets for bound in pair}
        return sorted(cuts)

    def _reason(self, first: int, end: int, start: int) -> tuple[GapReason, str]:
        """Why no lineage has [first, end), which contains no cut."""
        if self._reserved.contains(first, end):
            return GapReason.RESERVED, "a backfill has reserved them and has not written them yet"
        for planned in self._planned:
            low, high = planned.ranges[self._tp]
            if low <= first and end <= high:
                return GapReason.IN_PROGRESS, f"batch {planned.batch} was begun, and is not in the sink yet"
        if self._covered and first < self._covered.first:
            return GapReason.BEFORE_START, "they are before the first offset that the pipeline has read"
        if self._coverage.suspects.contains(first, end):
            return GapReason.UNEXPLAINED, "a batch that may have read them is not in the sink, although later ones are"
        if self._covered and end <= self._covered.end:
            return self._reason_in_the_middle(end, start)
        return self._reason_at_the_end(first, end, start)

    def _reason_in_the_middle(self, end: int, start: int) -> tuple[GapReason, str]:
        if end <= start and not self._coverage.has_claims:
            return GapReason.RETENTION, f"the log starts at {start}: they were removed before the pipeline read them"
        if self._facts.group.problem:
            return GapReason.NOT_CHECKED, f"the group is not known: {self._facts.group.problem}"
        if self._offset is not None and end <= self._offset:
            text = "the group's offset has passed them without this pipeline: other members of the group read them"
            return GapReason.OTHER_MEMBERS, text
        at = "it has none" if self._offset is None else f"it is {self._offset}"
        text = f"the pipeline went on after them, and the group's offset has not passed them: {at}"
        return GapReason.UNEXPLAINED, text

    def _reason_at_the_end(self, first: int, end: int, start: int) -> tuple[GapReason, str]:
        group, checkpoint = self._facts.group, self._facts.checkpoint
        if group.problem:
            return GapReason.NOT_CHECKED, f"the group is not known: {group.problem}"
        has_passed = self._offset is not None and end <= self._offset
        if self._claim is not None and self._claim.first <= first and end <= self._claim.end:
            if checkpoint.problem:
                return GapReason.NOT_CHECKED, f"the checkpoint is not known: {checkpoint.problem}"
            text = f"batch {self._claim.batch} of the source has claimed them, and no batch in the sink has them"
            return GapReason.UNEXPLAINED, text
        if has_passed:
            owner = group.owners.get(self._tp)
            text = "the group's offset has passed them without this pipeline: other members of the group read them"
            return GapReason.OTHER_MEMBERS, text + (f"; the owner is {owner}" if owner else "")
        if not self._covered and self._position is not None and end <= self._position:
            return GapReason.BEFORE_START, "the pipeline began after them (startingOffsets)"
        if end <= start:
            return GapReason.RETENTION, f"the log starts at {start}: they were removed before the pipeline read them"
        return GapReason.NOT_READ, "the pipeline has not read them yet"

    def _finding(self, reason: GapReason, first: int | None, end: int | None, offsets: int, text: str) -> AuditFinding:
        return AuditFinding(reason, self._tp, first, end, offsets, text)


# --- offsets that a lineage has -----------------------------------------------------------------------------------


def _explain_group(counted: CountedGroup) -> Iterator[AuditFinding]:
    """The offsets of batches that became nothing: markers, aborted records and holes, and what is then left."""
    group, left = counted.group, counted.group.missing
    kinds = (
        ("markers", GapReason.MARKERS, "markers of transactions, which are no records"),
        ("aborted", GapReason.ABORTED, "records of aborted transactions (kafka.isolation.level=read_committed)"),
        ("absent", GapReason.COMPACTION, "no record is there any more, and later ones are"),
        ("retention", GapReason.RETENTION, "the log starts later now; whether there were records is not known"),
    )
    for name, reason, text in kinds:
        for tp, counts in sorted(counted.counts.items()):
            found = min(left, getattr(counts, name))
            if found:
                yield _in_group(reason, counted, tp, found, f"{text}; in {group.name}")
                left -= found
    unread = sum(each.unread for each in counted.counts.values())
    if left and unread:
        found = min(left, unread)
        text = f"{group.name}: {found} offsets have no row, and the log was not read there: {counted.problem}"
        yield AuditFinding(GapReason.NOT_CHECKED, None, None, None, found, text)
        left -= found
    beyond = sum(each.beyond_end for each in counted.counts.values())
    if left > beyond:  # what is after the end of the log is a finding of its partition
        text = f"{group.name}: the log has {left - beyond} records more than the batch has rows and other counts"
        for tp in group.ranges if len(group.ranges) == 1 else ():
            yield _in_group(GapReason.UNEXPLAINED, counted, tp, left - beyond, text)
            return
        yield AuditFinding(GapReason.UNEXPLAINED, None, None, None, left - beyond, text)


def _in_group(reason: GapReason, counted: CountedGroup, tp: TopicPartition, offsets: int, text: str) -> AuditFinding:
    pairs = counted.group.ranges[tp]
    return AuditFinding(reason, tp, pairs[0][0], pairs[-1][1], offsets, text)


def _explain_counts(facts: AuditFacts) -> Iterator[AuditFinding]:
    """What the batches counted, which has no place in the lineage except for ``skipOffsets``."""
    counts, replays = facts.totals.counts, facts.totals.replays
    placed = 0
    for tp, pairs in sorted(facts.skip_offsets.items()):
        coverage = facts.totals.partitions.get(tp)
        for first, end in pairs if coverage is not None else ():
            for start, last in coverage.covered.common(first, end) if coverage is not None else ():
                if placed + last - start <= counts.skipped_offsets:
                    placed += last - start
                    text = "skipOffsets of the pipeline file"
                    yield AuditFinding(GapReason.SKIPPED, tp, start, last, last - start, text)
    if counts.skipped_offsets > placed:
        text = "skipOffsets, onCorruptRecord or lost records; their place is in the log lines of the batches"
        yield AuditFinding(GapReason.SKIPPED, None, None, None, counts.skipped_offsets - placed, text)
    if counts.filtered:
        text = "[transform] where was not true"
        yield AuditFinding(GapReason.FILTERED, None, None, None, counts.filtered, text)
    replayed = replays.rows + replays.filtered
    remaining = counts.dead_letters - replayed
    if replayed:
        text = f"dead letters that a replay has read again: {replays.rows} rows, {replays.filtered} filtered"
        yield AuditFinding(GapReason.REPLAYED, None, None, None, min(replayed, counts.dead_letters), text)
    if remaining > 0:
        text = "dead letters that were not replayed"
        yield AuditFinding(GapReason.DEAD_LETTERS, None, None, None, remaining, text)
    if remaining < 0:
        text = f"replays have {-remaining} records more than there were dead letters"
        yield AuditFinding(GapReason.READ_TWICE, None, None, None, -remaining, text)


# --- the lineage and the sink -------------------------------------------------------------------------------------


def _explain_lineage(facts: AuditFacts) -> Iterator[AuditFinding]:
    totals, checkpoint = facts.totals, facts.checkpoint
    for name, place in totals.doubles:
        text = f"{name} has offsets that an earlier lineage has, too"
        yield AuditFinding(GapReason.READ_TWICE, place.tp, place.first, place.end, place.end - place.first, text)
    shown = sum(place.end - place.first for _, place in totals.doubles)
    if totals.doubled_offsets > shown:
        text = "more offsets that two lineages have"
        yield AuditFinding(GapReason.READ_TWICE, None, None, None, totals.doubled_offsets - shown, text)
    for name, records in totals.surplus:
        text = f"{name} has {records} rows and other counts more than offsets"
        yield AuditFinding(GapReason.READ_TWICE, None, None, None, records, text)
    for gap in totals.gaps:
        which = f"batch {gap.first} is" if gap.end == gap.first + 1 else f"batches {gap.first} to {gap.end - 1} are"
        text = f"query {gap.query}: {which} not in the sink, although batch {gap.end} is"
        yield AuditFinding(GapReason.UNEXPLAINED, None, None, None, 0, text)
    if checkpoint.problem:
        text = f"the checkpoint is not known: {checkpoint.problem}"
        yield AuditFinding(GapReason.NOT_CHECKED, None, None, None, 0, text)
    elif checkpoint.query is not None and checkpoint.done is not None:
        last = totals.last.get(checkpoint.query)
        known = -1 if last is None else last.batch
        if known < checkpoint.done:
            text = (
                f"query {checkpoint.query}: the checkpoint has finished batch {checkpoint.done}, and the newest one in "
                f"the sink is {'none' if known < 0 else known}: the sink is older than the checkpoint, or another one"
            )
            yield AuditFinding(GapReason.UNEXPLAINED, None, None, None, 0, text)
    if facts.group.problem:
        text = f"the group is not known: {facts.group.problem}"
        yield AuditFinding(GapReason.NOT_CHECKED, None, None, None, 0, text)


def _explain_sink(facts: AuditFacts) -> Iterator[AuditFinding]:
    for what, stored in (("the sink", facts.rows), ("the sink of dead letters", facts.dead_letters)):
        yield from _explain_stored(what, stored)
    if facts.dead_letter_rows is None:
        return
    fewer: Counter[tuple[str, int]] = Counter()
    for key, count in facts.totals.dead_letters.items():
        if count > (stored_count := facts.dead_letter_rows.get(key, 0)):
            fewer[key] = count - stored_count
    if fewer:
        (query, batch), count = fewer.most_common(1)[0]
        text = (
            f"the sink of dead letters lacks {fewer.total()} dead letters of {len(fewer)} batches, {count} of them of "
            f"batch {batch} of query {query}"
        )
        yield AuditFinding(GapReason.ROWS_MISSING, None, None, None, fewer.total(), text)


def _explain_stored(what: str, stored: StoredRows) -> Iterator[AuditFinding]:
    if stored.problem:
        yield AuditFinding(GapReason.NOT_CHECKED, None, None, None, 0, f"{what} could not be read: {stored.problem}")
    for number, line in enumerate(stored.missing):
        missing = stored.missing_rows if number == 0 else 0  # the sum is counted once
        yield AuditFinding(GapReason.ROWS_MISSING, None, None, None, missing, f"{what}: {line}")


def covered_counts(facts: AuditFacts, tp: TopicPartition) -> OffsetCounts:
    """What the log has in the ranges of the batches that do not close, of one partition."""
    total = OffsetCounts()
    for each in facts.counted:
        total += each.counts.get(tp, OffsetCounts())
    return total
