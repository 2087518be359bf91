"""The results of the checker: findings, allowances, counts, and their text.  Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from zkconsumer.types import TopicPartition

SPANS_MAX = 20
LINES_MAX = 8
TEXT_FINDINGS_MAX = 200

FINDING_CODES: Mapping[str, str] = {
    "lost": "a record was never delivered although the committed offset passed it, or everything had to be read",
    "skipped": "within one ownership an existing offset was skipped",
    "reordered": "within one ownership the offsets went back",
    "duplicated": "a record was delivered again and the history contains no reason",
    "two_owners": "a member of ours delivered after another member of ours had acquired the partition",
    "delivered_without_owner": "a member of ours delivered from a partition that it had released or did not own",
    "commit_ahead": "the committed offset passed the delivered (or consumed) records",
    "commit_rewound": "the committed offset went back",
    "wrong_owner": "the owners of a stable group are not the expected ones",
    "delivered_after_close": "a member delivered after it had left or was killed",
    "not_in_log": "a record was delivered that the log does not contain",
    "no_log": "the history does not contain the log, so lost records cannot be found",
    "commit_by_non_owner": "M1: a store accepted the commit of a member that did not own the partition",
    "commit_while_fenced": "M1: a store accepted the commit of a member although the partition was fenced there",
    "delivered_while_fenced": "M2: a member received a record although the store with the authority was fenced",
    "started_at_wrong_offset": "M3: an owner did not start at the expected offset",
    "commit_in_wrong_store": "M4: without `dual`, a store without the authority accepted the commit of a member",
    "offset_overwritten": "M4: a run of the tool changed an offset in the store that had the authority",
    "stale_epoch": "M4: the epoch went back, the authority moved within one, or two migrations were active",
    "authority_moved_unfenced": "M4: the authority moved while another client could acquire or commit",
    "authority_moved_stale": "M4: Kafka got the authority without the expected offset",
    "end_state_differs": "M5: after a kill, a repeated migration neither ended as without it nor was completely undone",
    "commit_lost_on_return": "M6: ZooKeeper got or had the authority at the end, without the expected offset",
    "fence_not_removed": "M6: a migration was undone and left a fence",
}
"""Every code of a finding, and its meaning.  M1 to M6 are the guarantees of a migration:
``migration_docs/explanation/how-a-migration-works.md``."""

ALLOWANCE_REASONS: Mapping[str, str] = {
    "killed": "a member was killed; records that it received since the last commit were delivered again",
    "paused": "a member was paused; records that it received since the last commit were delivered again",
    "expired": "a member lost its session; records that it received since the last commit were delivered again",
    "unclean_close": "a member left uncleanly; records that it received since the last commit were delivered again",
    "drain_timeout": "a member of ours released with an unacknowledged message; that one was delivered again",
    "in_hand_at_pause": "a member of ours wrote after a pause the line of a record that it had received before",
    "reset": "the offset was reset: records after it were delivered again, or records before it were not read",
    "ours_to_ours": "delivered again in a transfer, within the limit of the policy",
    "ours_to_scala": "delivered again by a Scala member that read the offset before our last commit",
    "scala_to_ours": "delivered again by ours: a Scala member had delivered it after its last commit",
    "scala_to_scala": "delivered again between Scala members, or by one over a rebalance",
    "scala_stale_chunk": "a Scala member delivered a chunk that it fetched before it released the partition",
    "scala_zombie": "a Scala member that was paused or lost its session continued, or committed an old offset",
    "scala_commit": "a Scala member that started below the last commit committed its own position",
    "scala_in_flight": "a Scala member was stopped between counting a record and writing its line",
}
"""Every reason of an allowance, and its meaning."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Offsets as (first, last), lines of the history, and the time from the first to the last."""

    partition: str | None
    members: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]
    count: int
    lines: tuple[int, ...]
    t_first: int
    t_last: int


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken guarantee."""

    code: str
    text: str
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Allowance:
    """An event that would be a finding, if the history did not contain a reason for it."""

    reason: str
    text: str
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class CheckerCounts:
    """The counts of what was checked."""

    lines: int
    members: int
    partitions: int
    records: int
    delivered: int
    delivered_distinct: int
    commits: int
    duplicates: Mapping[str, int]
    ownership_transfers: Mapping[str, int]
    authority_changes: int
    """How often the authority moved from one store to the other."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for one history."""

    ok: bool
    findings: tuple[Finding, ...]
    allowances: tuple[Allowance, ...]
    counts: CheckerCounts

    @property
    def codes(self) -> frozenset[str]:
        """The codes of the findings."""
        return frozenset(finding.code for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Plain values for ``json.dumps``."""
        return asdict(self)


# --- collecting -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class PendingFinding:
    """Evidence that grows while the same event repeats."""

    label: str
    text: str
    partition: TopicPartition | None
    members: tuple[str, ...]
    t_first: int
    t_last: int
    spans: list[tuple[int, int]] = field(default_factory=list)
    count: int = 0
    lines: list[int] = field(default_factory=list)

    def add_offsets(self, first: int, last: int) -> None:
        """Add a range of offsets."""
        self.count += last - first + 1
        if self.spans and self.spans[-1][1] == first - 1:
            self.spans[-1] = (self.spans[-1][0], last)
        elif len(self.spans) < SPANS_MAX:
            self.spans.append((first, last))

    def add_line(self, line: int) -> None:
        """Add a line; the first ones and the last are kept."""
        if line <= 0 or line in self.lines:
            return
        if len(self.lines) == LINES_MAX:
            self.lines.pop()
        self.lines.append(line)

    def evidence(self) -> Evidence:
        return Evidence(
            str(self.partition) if self.partition else None,
            self.members,
            tuple(self.spans),
            self.count,
            tuple(self.lines),
            self.t_first,
            self.t_last,
        )


class FindingCollector:
    """Collects findings or allowances; those with the same label, partition and key become one."""

    def __init__(self) -> None:
        self._drafts: dict[Hashable, PendingFinding] = {}

    def add(
        self,
        key: Hashable,
        label: str,
        text: str,
        *,
        t: int,
        lines: tuple[int, ...],
        partition: TopicPartition | None = None,
        members: tuple[str, ...] = (),
        spans: tuple[tuple[int, int], ...] = (),
    ) -> None:
        """Add one occurrence; the text of the first one remains."""
        full_key = (label, partition, key)
        draft = self._drafts.get(full_key)
        if draft is None:
            draft = self._drafts[full_key] = PendingFinding(label, text, partition, members, t, t)
        draft.t_first = min(draft.t_first, t)
        draft.t_last = max(draft.t_last, t)
        for first, last in spans:
            draft.add_offsets(first, last)
        for line in lines:
            draft.add_line(line)

    def sorted_findings(self) -> list[PendingFinding]:
        """All findings, in the order of time."""
        return sorted(self._drafts.values(), key=lambda draft: draft.t_first)


# --- text -------------------------------------------------------------------------------------------------------


def render_text(verdict: Verdict) -> Iterator[str]:
    """One line for each finding and each allowance, then the counts."""
    counts = verdict.counts
    if verdict.ok:
        yield f"ok: {counts.records} records in {counts.partitions} partitions, {counts.lines} lines of history"
    else:
        found = "1 finding" if len(verdict.findings) == 1 else f"{len(verdict.findings)} findings"
        yield f"NOT OK: {found} in {counts.lines} lines of history"
    for finding in verdict.findings[:TEXT_FINDINGS_MAX]:
        yield f"{finding.code:<24} {_sentence(finding.text, finding.evidence)}"
    if len(verdict.findings) > TEXT_FINDINGS_MAX:
        yield f"... and {len(verdict.findings) - TEXT_FINDINGS_MAX} more findings (all of them: -o json)"
    for allowance in verdict.allowances[:TEXT_FINDINGS_MAX]:
        yield f"allowed: {_sentence(f'{allowance.reason}: {allowance.text}', allowance.evidence)}"
    if len(verdict.allowances) > TEXT_FINDINGS_MAX:
        yield f"... and {len(verdict.allowances) - TEXT_FINDINGS_MAX} more allowances (all of them: -o json)"
    yield f"records in log       {counts.records}"
    yield f"delivered            {counts.delivered} ({counts.delivered_distinct} different records)"
    yield f"duplicates           {_tally(counts.duplicates)}"
    yield f"ownership transfers  {_tally(counts.ownership_transfers)}"
    if counts.authority_changes:
        yield f"authority changes    {counts.authority_changes}"
    yield f"commits seen         {counts.commits}"
    yield f"members              {counts.members}"


def format_time(t: int) -> str:
    """Wall clock milliseconds in UTC, in the format of logs."""
    try:
        return datetime.fromtimestamp(t / 1000, tz=UTC).strftime("%H:%M:%S.") + f"{t % 1000:03d}"
    except (OverflowError, ValueError, OSError):
        return str(t)


def _sentence(text: str, evidence: Evidence) -> str:
    parts = [text]
    if evidence.partition:
        parts.insert(0, f"{evidence.partition}:")
    if evidence.offsets:
        spans = ", ".join(f"{a}" if a == b else f"{a}..{b}" for a, b in evidence.offsets[:5])
        more = ", ..." if len(evidence.offsets) > 5 else ""
        plural = "record" if evidence.count == 1 else "records"
        parts.append(f"| {evidence.count} {plural}: {spans}{more}")
    if evidence.lines:
        parts.append(f"| {'line' if len(evidence.lines) == 1 else 'lines'} {', '.join(map(str, evidence.lines))}")
    until = f" to {format_time(evidence.t_last)}" if evidence.t_last != evidence.t_first else ""
    parts.append(f"| {format_time(evidence.t_first)}{until}")
    return " ".join(parts)


def _tally(counts: Mapping[str, int]) -> str:
    total = sum(counts.values())
    parts = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in sorted(counts.items()) if count)
    return f"{total} ({parts})" if parts else str(total)
