"""The result of an audit: its exit code, its text lines, its JSON form.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bridge.spark.pipeline.audit.audit_buckets import TimeBucket
from bridge.spark.pipeline.audit.audit_facts import AuditFacts, LogSpan
from bridge.spark.pipeline.audit.audit_findings import MISSING_REASONS, AuditFinding, GapReason, covered_counts
from zkconsumer.types import TopicPartition

SCHEMA = "zkconsumer/pipeline-audit/1"

FINDINGS_SHOWN_MAX = 50
"""How many findings the text shows; the JSON form has all."""

PARTITION_COLUMNS = ("TOPIC", "PARTITION", "LOG-START", "LOG-END", "IN-LINEAGE", "NO-RECORD", "GAPS", "MISSING")
FINDING_COLUMNS = ("REASON", "PARTITION", "FIRST", "END", "OFFSETS", "WHY")
BUCKET_COLUMNS = ("TIME", "LOG-OFFSETS", "IN-LINEAGE", "GAPS", "MISSING")


@dataclass(frozen=True, slots=True)
class AuditReport:
    """``buckets``: empty without ``--by``, and where no message has a time."""

    pipeline: str
    facts: AuditFacts
    findings: Sequence[AuditFinding]
    buckets: Sequence[TimeBucket]

    @property
    def missing(self) -> list[AuditFinding]:
        """The findings that no reason explains."""
        return [each for each in self.findings if each.reason in MISSING_REASONS]

    @property
    def not_checked(self) -> list[AuditFinding]:
        return [each for each in self.findings if each.reason is GapReason.NOT_CHECKED]

    @property
    def totals(self) -> dict[GapReason, int]:
        """Reason -> offsets, in the order of the reasons."""
        found = dict.fromkeys(GapReason, 0)
        for each in self.findings:
            found[each.reason] += each.offsets
        seen = {each.reason for each in self.findings}
        return {reason: count for reason, count in found.items() if reason in seen}

    def gaps_of(self, tp: TopicPartition) -> tuple[int, int]:
        """Offsets of a partition that no lineage has, and how many of them no reason explains."""
        coverage = self.facts.totals.partitions.get(tp)
        gaps = missing = 0
        for each in self.findings:
            if each.tp != tp or each.first is None or each.end is None:
                continue
            if each.reason in MISSING_REASONS:
                missing += each.offsets
            if coverage is None or not coverage.covered.common(each.first, each.end):
                gaps += each.offsets
        return gaps, missing


# --- text ---------------------------------------------------------------------------------------------------------


def partition_cells(report: AuditReport) -> Iterator[tuple[object, ...]]:
    """A row for each partition, for ``PARTITION_COLUMNS``."""
    for tp, log in sorted(report.facts.logs.items()):
        coverage = report.facts.totals.partitions.get(tp)
        counts = covered_counts(report.facts, tp)
        bounds = (log.start, log.end) if isinstance(log, LogSpan) else ("?", "?")
        covered = 0 if coverage is None else coverage.covered.count
        nothing = counts.markers + counts.aborted + counts.absent
        yield (tp.topic, tp.partition, *bounds, covered, nothing, *report.gaps_of(tp))


def finding_cells(report: AuditReport) -> Iterator[tuple[object, ...]]:
    """The findings for ``FINDING_COLUMNS``: those that are wrong come first."""
    order = [*report.missing, *report.not_checked]
    order += [each for each in report.findings if each not in order]
    for each in order[:FINDINGS_SHOWN_MAX]:
        place = "-" if each.tp is None else str(each.tp)
        yield each.reason.value, place, each.first, each.end, each.offsets, each.text


def bucket_cells(report: AuditReport) -> Iterator[tuple[object, ...]]:
    """The buckets for ``BUCKET_COLUMNS``."""
    for each in report.buckets:
        label = "earlier" if each.start_ms is None else _time_text(each.start_ms)
        yield label, each.offsets, each.covered, sum(each.gaps.values()), each.missing


def summary_lines(report: AuditReport) -> Iterator[str]:
    """The identity, what to do, and the result."""
    totals = report.facts.totals
    counts = totals.counts
    nothing = totals.offsets - counts.rows - counts.dead_letters - counts.filtered - counts.skipped_offsets
    yield (
        f"{report.pipeline}: {totals.batches} batches and {totals.backfills} backfills have {totals.offsets} offsets = "
        f"{counts.rows} rows + {counts.dead_letters} dead letters + {counts.filtered} filtered + "
        f"{counts.skipped_offsets} passed over + {nothing} without a record"
    )
    if totals.replayed:
        replays = totals.replays
        yield f"{totals.replayed} replays made {replays.rows} rows and {replays.filtered} filtered of dead letters"
    if totals.replacements:
        yield f"{totals.replacements} replacements have written the rows of {totals.replaced_offsets} offsets again"
    for stored in (report.facts.rows, report.facts.dead_letters):
        if stored.remark:
            yield stored.remark
    if len(report.findings) > FINDINGS_SHOWN_MAX:
        yield f"{len(report.findings) - FINDINGS_SHOWN_MAX} more findings: all of them are in the JSON form (--json)"
    todo = dict.fromkeys((each.reason.value, each.todo) for each in report.findings if each.todo)
    for reason, text in todo:
        yield f"{reason}: {text}"
    if report.missing:
        count = sum(each.offsets for each in report.missing)
        yield f"{report.pipeline}: {len(report.missing)} findings are not explained, {count} offsets"
    elif report.not_checked:
        yield f"{report.pipeline}: not everything could be checked"
    else:
        yield f"{report.pipeline}: every gap is explained"


# --- JSON ---------------------------------------------------------------------------------------------------------


def report_json(report: AuditReport, exit_code: int) -> dict[str, Any]:
    """The JSON form; keys are never renamed."""
    totals, facts = report.facts.totals, report.facts
    counts, replays = totals.counts, totals.replays
    return {
        "schema": SCHEMA,
        "pipeline": report.pipeline,
        "exit_code": exit_code,
        "is_explained": not report.missing and not report.not_checked,
        "batches": totals.batches,
        "backfills": totals.backfills,
        "replays": totals.replayed,
        "offsets": totals.offsets,
        "rows": counts.rows,
        "dead_letters": counts.dead_letters,
        "filtered": counts.filtered,
        "skipped_offsets": counts.skipped_offsets,
        "replayed_rows": replays.rows,
        "replayed_filtered": replays.filtered,
        "replacements": totals.replacements,
        "replaced_offsets": totals.replaced_offsets,
        "rows_in_sink": facts.rows.rows,
        "dead_letters_in_sink": facts.dead_letters.rows,
        "reasons": {reason.value: count for reason, count in report.totals.items()},
        "partitions": [_partition_json(report, tp) for tp in sorted(facts.logs)],
        "findings": [
            {
                "reason": each.reason.value,
                "topic": None if each.tp is None else each.tp.topic,
                "partition": None if each.tp is None else each.tp.partition,
                "first": each.first,
                "end": each.end,
                "offsets": each.offsets,
                "text": each.text,
                "todo": each.todo or None,
            }
            for each in report.findings
        ],
        "buckets": [
            {
                "start": None if each.start_ms is None else _time_text(each.start_ms),
                "offsets": each.offsets,
                "covered": each.covered,
                "gaps": {reason.value: count for reason, count in each.gaps.items()},
            }
            for each in report.buckets
        ],
        "remarks": [each.remark for each in (facts.rows, facts.dead_letters) if each.remark],
    }


def _partition_json(report: AuditReport, tp: TopicPartition) -> dict[str, Any]:
    facts = report.facts
    log, coverage = facts.logs[tp], facts.totals.partitions.get(tp)
    counts = covered_counts(facts, tp)
    gaps, missing = report.gaps_of(tp)
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "log_start": log.start if isinstance(log, LogSpan) else None,
        "log_end": log.end if isinstance(log, LogSpan) else None,
        "group_offset": facts.group.offsets.get(tp),
        "covered": 0 if coverage is None else coverage.covered.count,
        "markers": counts.markers,
        "aborted": counts.aborted,
        "absent": counts.absent,
        "gaps": gaps,
        "missing": missing,
    }


def _time_text(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%MZ")
