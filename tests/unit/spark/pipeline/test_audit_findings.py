"""Each gap has one reason; what is wrong is never explained away."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.spark.decode.offset_ranges import OffsetRange
from bridge.spark.pipeline.audit.audit_buckets import BUCKET_MS, TimeBucket, bucket_starts, time_buckets
from bridge.spark.pipeline.audit.audit_facts import (
    AuditedCheckpoint,
    AuditedGroup,
    AuditFacts,
    CountedGroup,
    LogSpan,
    MissingLog,
    PartitionLog,
    PlannedBatch,
    QueryClaim,
    StoredRows,
    UnknownLog,
)
from bridge.spark.pipeline.audit.audit_findings import AuditFinding, GapReason, explain
from bridge.spark.pipeline.audit.audit_report import (
    AuditReport,
    bucket_cells,
    finding_cells,
    partition_cells,
    report_json,
    summary_lines,
)
from bridge.spark.pipeline.audit.entry_counts import OffsetCounts
from bridge.spark.pipeline.lineage import BatchCounts, BatchLineage, partition_ranges
from tests.unit.spark.pipeline.test_lineage_totals import T0, T1, lineage, totals_of
from zkconsumer.types import TopicPartition

Short = tuple[str, int | None, int | None, int]
"""Reason, first, end, offsets."""


def facts_of(
    *lineages: BatchLineage,
    logs: dict[TopicPartition, PartitionLog] | None = None,
    offset: int | None = None,
    **more: object,
) -> AuditFacts:
    """``offset``: the group's in partition 0."""
    facts = AuditFacts(
        totals=totals_of(*lineages),
        reserved=(),
        logs={T0: LogSpan(0, 100)} if logs is None else logs,
        group=AuditedGroup({} if offset is None else {T0: offset}),
        checkpoint=AuditedCheckpoint(),
        skip_offsets={},
        counted=(),
        rows=StoredRows(),
        dead_letters=StoredRows(),
        dead_letter_rows=None,
    )
    return replace(facts, **more)  # type: ignore[arg-type]


def short(findings: list[AuditFinding]) -> list[Short]:
    return [(each.reason.value, each.first, each.end, each.offsets) for each in findings]


def explained(*lineages: BatchLineage, **more: object) -> list[Short]:
    return short(explain(facts_of(*lineages, **more)))  # type: ignore[arg-type]


# --- offsets that no lineage has ----------------------------------------------------------------------------------


def test_a_log_that_the_lineage_covers_has_no_gap() -> None:
    assert explained(lineage(0, {T0: (0, 100)}), offset=100) == []


def test_what_is_after_the_groups_offset_is_not_read_yet() -> None:
    assert explained(lineage(0, {T0: (0, 60)}), offset=60) == [("not-yet-read", 60, 100, 40)]


def test_a_hole_that_the_groups_offset_has_passed_was_read_by_other_members() -> None:
    batches = lineage(0, {T0: (0, 20)}), lineage(1, {T0: (50, 100)})
    assert explained(*batches, offset=100) == [("other-members", 20, 50, 30)]


def test_a_hole_is_not_explained_by_a_groups_offset_that_has_not_passed_it() -> None:
    batches = lineage(0, {T0: (0, 20)}), lineage(1, {T0: (50, 100)})
    assert explained(*batches, offset=49) == [("other-members", 20, 49, 29), ("unexplained", 49, 50, 1)]
    assert explained(*batches) == [("unexplained", 20, 50, 30)]


def test_a_hole_beside_a_missing_batch_is_unexplained_although_the_offset_has_passed_it() -> None:
    found = explained(lineage(0, {T0: (0, 20)}), lineage(2, {T0: (50, 100)}), offset=100)
    assert found == [("unexplained", 20, 50, 30), ("unexplained", None, None, 0)]


def test_what_the_group_has_read_after_the_pipeline_was_read_by_other_members() -> None:
    found = explained(lineage(0, {T0: (0, 20)}), offset=70)
    assert found == [("other-members", 20, 70, 50), ("not-yet-read", 70, 100, 30)]


def test_what_the_query_has_claimed_and_not_written_is_unexplained() -> None:
    group = AuditedGroup({T0: 70}, claims={T0: QueryClaim(1, 20, 70)})
    found = explained(lineage(0, {T0: (0, 20)}), group=group)
    assert found == [("unexplained", 20, 70, 50), ("not-yet-read", 70, 100, 30)]


def test_what_a_begun_batch_has_claimed_is_in_progress() -> None:
    group = AuditedGroup({T0: 70}, claims={T0: QueryClaim(1, 20, 70)})
    checkpoint = AuditedCheckpoint("q", 0, {T0: 20}, [PlannedBatch(1, {T0: (20, 70)})])
    found = explained(lineage(0, {T0: (0, 20)}), group=group, checkpoint=checkpoint)
    assert found == [("in-progress", 20, 70, 50), ("not-yet-read", 70, 100, 30)]


def test_a_begun_batch_that_is_in_the_sink_is_not_in_progress() -> None:
    """Its claim was refused in part: another member has read the rest."""
    checkpoint = AuditedCheckpoint("q", None, {}, [PlannedBatch(0, {T0: (0, 70)})])
    found = explained(lineage(0, {T0: (0, 20)}), offset=70, checkpoint=checkpoint)
    assert found[0] == ("other-members", 20, 70, 50)


def test_a_claim_is_not_judged_without_the_checkpoint() -> None:
    group = AuditedGroup({T0: 70}, claims={T0: QueryClaim(1, 20, 70)})
    found = explained(lineage(0, {T0: (0, 20)}), group=group, checkpoint=AuditedCheckpoint(problem="hdfs"))
    assert [each[0] for each in found] == ["not-checked", "not-yet-read", "not-checked"]


def test_without_the_group_a_hole_is_not_checked() -> None:
    batches = lineage(0, {T0: (0, 20)}), lineage(1, {T0: (50, 100)})
    assert [each[0] for each in explained(*batches, group=AuditedGroup(problem="no ZooKeeper"))] == [
        "not-checked", "not-checked",
    ]  # fmt: skip


def test_offsets_before_the_first_one_of_the_pipeline_are_before_its_start() -> None:
    assert explained(lineage(0, {T0: (30, 100)}), offset=100) == [("before-start", 0, 30, 30)]


def test_a_partition_that_the_pipeline_has_not_read_is_that_of_the_group() -> None:
    logs = {T0: LogSpan(0, 100), T1: LogSpan(5, 9)}
    found = explained(logs=logs, offset=40)
    assert found == [("other-members", 0, 40, 40), ("not-yet-read", 40, 100, 60), ("not-yet-read", 5, 9, 4)]


def test_a_pipeline_that_begins_at_the_end_has_nothing_before_it_to_read() -> None:
    checkpoint = AuditedCheckpoint("q", 0, {T0: 80})
    assert explained(lineage(0, {}), checkpoint=checkpoint) == [
        ("before-start", 0, 80, 80), ("not-yet-read", 80, 100, 20),
    ]  # fmt: skip


def test_records_that_retention_removed_before_they_were_read() -> None:
    found = explained(lineage(0, {T0: (0, 20)}), logs={T0: LogSpan(60, 100)}, offset=20)
    assert found == [("retention", 20, 60, 40), ("not-yet-read", 60, 100, 40)]


def test_a_log_that_starts_after_everything_that_was_read() -> None:
    found = explained(lineage(0, {T0: (0, 20)}), logs={T0: LogSpan(10**15, 10**15)}, offset=20)
    assert found == [("retention", 20, 10**15, 10**15 - 20)]


def test_a_hole_that_retention_made_of_a_query_that_does_not_claim() -> None:
    batches = lineage(0, {T0: (0, 20)}, mode="snapshot"), lineage(1, {T0: (60, 100)}, mode="snapshot")
    assert explained(*batches, logs={T0: LogSpan(60, 100)}, offset=100) == [("retention", 20, 60, 40)]


def test_reserved_offsets_are_explained() -> None:
    reserved = [lineage(0, {T0: (10, 30)}, kind="backfill", query="b")]
    found = explained(lineage(0, {T0: (40, 100)}), offset=100, reserved=reserved)
    assert found == [("before-start", 0, 10, 10), ("reserved", 10, 30, 20), ("before-start", 30, 40, 10)]


def test_a_lineage_of_offsets_that_the_log_never_had_is_unexplained() -> None:
    found = explained(lineage(0, {T0: (0, 150)}), offset=150)
    assert found == [("unexplained", 100, 150, 50)]


def test_a_topic_that_was_created_again_is_seen_by_its_shorter_log() -> None:
    found = explained(lineage(0, {T0: (0, 1_000)}), logs={T0: LogSpan(0, 0)}, offset=1_000)
    assert found == [("unexplained", 0, 1_000, 1_000)]


def test_a_topic_that_was_created_again_and_read_again_is_twice_in_the_sink() -> None:
    found = explained(lineage(0, {T0: (0, 100)}), lineage(1, {T0: (0, 40)}), logs={T0: LogSpan(0, 40)}, offset=40)
    assert found == [("unexplained", 40, 100, 60), ("read-twice", 0, 40, 40)]


def test_a_deleted_topic_is_no_gap() -> None:
    assert explained(lineage(0, {T0: (0, 100)}), logs={T0: MissingLog()}) == [("topic-deleted", None, None, 100)]
    assert explained(lineage(0, {T0: (0, 100)}), logs={}) == [("topic-deleted", None, None, 100)]


def test_a_log_that_is_not_known_is_not_checked() -> None:
    assert explained(logs={T0: UnknownLog("no leader")}) == [("not-checked", None, None, 0)]


def test_a_checkpoint_that_is_ahead_of_the_sink_is_unexplained() -> None:
    found = explained(lineage(4, {T0: (0, 100)}), checkpoint=AuditedCheckpoint("q", 5, {T0: 120}), offset=100)
    assert ("unexplained", None, None, 0) in found
    assert explained(checkpoint=AuditedCheckpoint("q", 0), logs={}) == [("unexplained", None, None, 0)]
    assert explained(checkpoint=AuditedCheckpoint("q", None), logs={}) == []


# --- offsets that a lineage has -----------------------------------------------------------------------------------


def counted(rows: int, counts: OffsetCounts, problem: str = "") -> list[Short]:
    """A batch of the offsets [0, 100) with so many rows, in a log with these counts."""
    batch = lineage(0, {T0: (0, 100)}, rows=rows)
    [group] = totals_of(batch).groups
    assert counts.offsets == 100
    return explained(batch, offset=100, counted=[CountedGroup(group, {T0: counts}, problem)])


def test_markers_aborted_records_and_compaction_close_a_batch() -> None:
    found = counted(90, OffsetCounts(records=90, markers=2, aborted=3, absent=5))
    assert found == [
        ("transaction-markers", 0, 100, 2), ("aborted-transactions", 0, 100, 3), ("compaction", 0, 100, 5),
    ]  # fmt: skip


def test_a_record_of_the_log_that_became_nothing_is_unexplained() -> None:
    found = counted(90, OffsetCounts(records=91, markers=2, aborted=2, absent=5))
    assert found[-1] == ("unexplained", 0, 100, 1)


def test_records_that_were_compacted_after_they_were_read_are_rows() -> None:
    assert counted(98, OffsetCounts(records=50, markers=2, absent=48)) == [("transaction-markers", 0, 100, 2)]


def test_what_retention_removed_cannot_be_counted_and_is_no_error() -> None:
    assert counted(98, OffsetCounts(records=50, retention=50)) == [("retention", 0, 100, 2)]


def test_what_was_not_read_of_the_log_is_not_checked() -> None:
    assert counted(98, OffsetCounts(records=50, unread=50), "too many bytes") == [("not-checked", None, None, 2)]


def test_a_lost_record_is_found_although_a_part_was_not_read() -> None:
    found = counted(48, OffsetCounts(records=99, unread=1), "too many bytes")
    assert found == [("not-checked", None, None, 1), ("unexplained", 0, 100, 51)]


def test_a_surplus_is_read_twice() -> None:
    assert explained(lineage(0, {T0: (0, 100)}, rows=101), offset=100) == [("read-twice", None, None, 1)]


def test_counted_reasons_have_their_numbers() -> None:
    batch = lineage(0, {T0: (0, 100)}, dead=5, filtered=7, skipped=12)
    replay = lineage(0, {T0: (0, 100)}, rows=2, filtered=1, kind="replay", query="r")
    found = explained(batch, replay, offset=100, skip_offsets={T0: ((10, 20),), T1: ((0, 5),)})
    assert found == [
        ("passed-over", 10, 20, 10),
        ("passed-over", None, None, 2),
        ("filtered", None, None, 7),
        ("replayed", None, None, 3),
        ("dead-letters", None, None, 2),
    ]


def test_more_replayed_records_than_dead_letters_are_twice_in_the_sink() -> None:
    batch = lineage(0, {T0: (0, 100)}, dead=1)
    replay = lineage(0, {T0: (0, 100)}, rows=3, kind="replay", query="r")
    assert explained(batch, replay, offset=100) == [("replayed", None, None, 1), ("read-twice", None, None, 2)]


# --- the sink -----------------------------------------------------------------------------------------------------


def test_rows_and_dead_letters_that_are_not_there_are_missing() -> None:
    batch = lineage(0, {T0: (0, 100)}, dead=5)
    rows = StoredRows(90, ("file one", "file two"), 7)
    found = explained(batch, offset=100, rows=rows, dead_letter_rows={("q", 0): 3})
    assert [each for each in found if each[0] == "rows-missing"] == [
        ("rows-missing", None, None, 7), ("rows-missing", None, None, 0), ("rows-missing", None, None, 2),
    ]  # fmt: skip
    assert "rows-missing" not in str(explained(batch, offset=100, dead_letter_rows={("q", 0): 5}))


def test_a_sink_that_cannot_be_read_is_not_checked() -> None:
    assert explained(logs={}, rows=StoredRows(problem="away")) == [("not-checked", None, None, 0)]


# --- the report ---------------------------------------------------------------------------------------------------


def report_of(facts: AuditFacts) -> AuditReport:
    return AuditReport("clicks", facts, explain(facts), [])


def test_the_report_shows_what_is_wrong_first_and_names_the_identity() -> None:
    facts = facts_of(lineage(0, {T0: (0, 20)}, dead=2), lineage(2, {T0: (50, 90)}), offset=90)
    report = report_of(facts)
    assert list(partition_cells(report)) == [("t", 0, 0, 100, 60, 0, 40, 30)]
    assert [cells[0] for cells in finding_cells(report)] == [
        "unexplained", "unexplained", "not-yet-read", "dead-letters",
    ]  # fmt: skip
    lines = list(summary_lines(report))
    assert lines[0] == (
        "clicks: 2 batches and 0 backfills have 60 offsets = 58 rows + 2 dead letters + 0 filtered + 0 passed over + 0 "
        "without a record"
    )
    assert lines[-1] == "clicks: 2 findings are not explained, 30 offsets"
    document = report_json(report, 3)
    assert document["is_explained"] is False
    assert document["reasons"] == {"dead-letters": 2, "not-yet-read": 10, "unexplained": 30}
    assert document["partitions"][0]["gaps"] == 40


@pytest.mark.parametrize(
    ("group", "line"),
    [
        (AuditedGroup({T0: 100}), "clicks: every gap is explained"),
        (AuditedGroup(problem="away"), "clicks: not everything could be checked"),
    ],
)
def test_the_last_line_is_the_result(group: AuditedGroup, line: str) -> None:
    report = report_of(facts_of(lineage(0, {T0: (0, 100)}), group=group))
    assert list(summary_lines(report))[-1] == line
    assert report_json(report, 0)["is_explained"] == (not group.problem)


def test_buckets_have_the_offsets_of_their_times_and_the_gaps() -> None:
    facts = facts_of(lineage(0, {T0: (0, 20)}), lineage(2, {T0: (30, 90)}), offset=90)
    findings = explain(facts)
    day = BUCKET_MS["day"]
    found = time_buckets(facts, findings, {T0: [10, 25]}, [day, 2 * day])
    assert found == [
        TimeBucket(None, 10, 10, {}),
        TimeBucket(day, 15, 10, {GapReason.UNEXPLAINED: 5}),
        TimeBucket(2 * day, 75, 60, {GapReason.UNEXPLAINED: 5, GapReason.NOT_READ: 10}),
    ]
    assert [each.missing for each in found] == [0, 5, 5]
    cells = list(bucket_cells(AuditReport("clicks", facts, findings, found)))
    assert cells[:2] == [("earlier", 10, 10, 0, 0), ("1970-01-02T00:00Z", 15, 10, 5, 5)]


def test_buckets_begin_at_full_hours_and_days() -> None:
    starts = bucket_starts("hour", 3_600_000 * 5 + 17)
    assert [next(starts) for _ in range(2)] == [3_600_000 * 5, 3_600_000 * 4]


def test_the_counts_of_a_partition_are_those_of_its_batches() -> None:
    batch = lineage(0, {T0: (0, 50), T1: (0, 50)}, rows=90)
    [group] = totals_of(batch).groups
    counts = {T0: OffsetCounts(records=45, markers=5), T1: OffsetCounts(records=45, absent=5)}
    facts = facts_of(
        batch,
        logs={T0: LogSpan(0, 50), T1: LogSpan(0, 50)},
        group=AuditedGroup({T0: 50, T1: 50}),
        counted=[CountedGroup(group, counts)],
    )
    report = report_of(facts)
    assert list(partition_cells(report)) == [("t", 0, 0, 50, 50, 5, 0, 0), ("t", 1, 0, 50, 50, 5, 0, 0)]
    assert not report.missing


def test_ranges_of_a_lineage_may_have_holes() -> None:
    pairs = partition_ranges([OffsetRange(T0, 0, 10), OffsetRange(T0, 20, 100)])
    batch = replace(lineage(0, {T0: (0, 100)}), ranges=pairs, counts=BatchCounts(rows=90))
    assert explained(batch, offset=100) == [("other-members", 10, 20, 10)]
