"""What the checker says: findings, allowances, counts, and how they read.  Pure."""

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
    "lost": "a record was never handed to anyone although the stored offset passed it, or all had to be read",
    "skipped": "within one ownership an existing offset was jumped",
    "reordered": "within one ownership the offsets went back",
    "duplicated": "a record was handed out again and nothing in the history allows it",
    "two_owners": "a member of ours handed out after another member of ours had claimed the partition",
    "delivered_without_owner": "a member of ours handed out what it had released, or what was seen to be another's",
    "commit_ahead": "the stored offset passed what had been handed out (or consumed)",
    "commit_rewound": "the stored offset went back",
    "wrong_owner": "the owners of a settled group are not the expected ones",
    "delivered_after_close": "a member handed out after it had left or was killed",
    "not_in_log": "a record was handed out that the log does not hold",
    "no_log": "the history does not say what the log held, so nothing can be judged lost",
    "commit_by_non_owner": "M1: a store took the commit of a member although the partition was another's, or given up",
    "commit_while_fenced": "M1: a store took the commit of a member although the partition was fenced there",
    "delivered_while_fenced": "M2: a member was handed a record although the store with the authority was fenced",
    "started_at_wrong_offset": "M3: an owner started elsewhere than at the last commit that counts",
    "commit_in_wrong_store": "M4: without `dual`, a store without the authority took the commit of a member",
    "offset_overwritten": "M4: a run of the tool changed an offset in the store that had the authority",
    "stale_epoch": "M4: the epoch went back, the authority moved within one, or two migrations were under way",
    "authority_moved_unfenced": "M4: the authority moved while somebody could claim or commit",
    "authority_moved_stale": "M4: Kafka got the authority without the last commit that counts, or the plan's offset",
    "end_state_differs": "M5: killed and run again, a migration neither ended as without a kill nor was cleanly undone",
    "commit_lost_on_return": "M6: ZooKeeper got or had the authority in the end, without the last commit that counts",
    "fence_not_removed": "M6: a migration was undone and left a fence",
}
"""Every code of a finding, and what it means."""

ALLOWANCE_REASONS: Mapping[str, str] = {
    "killed": "a member was killed; what it was handed since the last commit came again",
    "paused": "a member was paused; what it was handed since the last commit came again",
    "expired": "a member lost its session; what it was handed since the last commit came again",
    "unclean_close": "a member left uncleanly; what it was handed since the last commit came again",
    "drain_timeout": "a member of ours released with a message in the caller's hand; that one came again",
    "in_hand_at_pause": "a member of ours showed after a pause what it had returned before it",
    "reset": "the offset was reset: read again from there, or not read up to there",
    "ours_to_ours": "repeated in a hand-over, within the limit of the policy",
    "ours_to_scala": "repeated by a Scala member that read the offset before our last commit",
    "scala_to_ours": "repeated by ours: a Scala member had handed it out after its last commit",
    "scala_to_scala": "repeated between Scala members, or by one over a rebalance",
    "scala_stale_chunk": "a Scala member delivered a chunk that it took before it gave the partition up",
    "scala_zombie": "a Scala member that had slept or lost its session went on, or put the stored offset back",
    "scala_commit": "a Scala member that started below the last commit stored its own position",
    "scala_in_flight": "a Scala member was stopped between counting a record and writing it down",
}
"""Every reason of an allowance, and what it means."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where to look: offsets as (first, last), lines of the history, and the time from the first to the last."""

    partition: str | None
    members: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]
    count: int
    lines: tuple[int, ...]
    t_first: int
    t_last: int


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that must not be."""

    code: str
    text: str
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Allowance:
    """Something that would be a finding, if the history did not hold the reason for it."""

    reason: str
    text: str
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class CheckerCounts:
    """How much was judged."""

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
    """How often the authority went from one store to the other."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of one history."""

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
    """Evidence that grows while the same thing goes on happening."""

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
        """One more stretch of offsets."""
        self.count += last - first + 1
        if self.spans and self.spans[-1][1] == first - 1:
            self.spans[-1] = (self.spans[-1][0], last)
        elif len(self.spans) < SPANS_MAX:
            self.spans.append((first, last))

    def add_line(self, line: int) -> None:
        """One more line; the first ones and the last are kept."""
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
    """Findings or allowances under way: what has the same key becomes one of them."""

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
        """Write one occurrence down; the text of the first one stays."""
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
        """All of them, in the order of time."""
        return sorted(self._drafts.values(), key=lambda draft: draft.t_first)


# --- reading ----------------------------------------------------------------------------------------------------


def render_text(verdict: Verdict) -> Iterator[str]:
    """One line a finding, one an allowance, then the counts."""
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
    """Wall clock milliseconds as logs show them, in UTC."""
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
