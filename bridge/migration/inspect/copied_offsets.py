"""Reads the state of the copied offsets: until when Kafka keeps them, and which of them Kafka has lost.

Brokers before 2.1 count the retention from each commit, so the end is known: the journal has the moment of the commit
and the retention.  Later brokers keep the offsets as long as the group has members, and for their own retention after
the last one has left (KIP-211).

The state is read from ``copied`` to ``switched``.  From ``completed`` on the group belongs to Kafka alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.control.phases import Phase
from bridge.migration.inspect.group_snapshot import CommittedOffset
from bridge.migration.offsets.offset_copies import copies_of, lost_copies
from bridge.migration.offsets.offset_copy_steps import COPIED_JOURNAL_ENTRY, RETENTION_FACT
from bridge.migration.plan.offset_retention import broker_retention_text
from bridge.migration.steps.migration_context import read_effective_plan
from zkconsumer.admin.kafka_offsets import KafkaOffsetAdmin
from zkconsumer.errors import ZkConsumerError

if TYPE_CHECKING:
    from bridge.migration.control.journal import JournalContents
    from bridge.migration.offsets.offset_copies import StoreDifference
    from bridge.migration.plan.migration_plan import MigrationPlan
    from zkconsumer.admin.admin_session import AdminSession
    from zkconsumer.admin.coordinator_client import CoordinatorRetryPolicy

PHASES_WITH_COPIED_OFFSETS = (Phase.COPIED, Phase.VERIFIED, Phase.SWITCHED)
DIGITS_MAX = 18
LOST_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class CopiedOffsetsStatus:
    """``count``: the number of copied offsets.  ``lost``: those that Kafka does not have any more.

    ``kept_until_ms``: until when Kafka keeps them at least, by the wall clock; None: ``retention_text`` contains the
    duration, or why it is not known.  ``error``: why they could not be compared; then ``lost`` is empty.
    """

    count: int = 0
    lost: tuple[StoreDifference, ...] = ()
    kept_until_ms: int | None = None
    retention_text: str = ""
    error: str = ""

    @property
    def lines(self) -> list[str]:
        """One line for each lost offset, up to a limit."""
        more = len(self.lost) - LOST_SHOWN_MAX
        return [*map(str, self.lost[:LOST_SHOWN_MAX]), *([f"and {more} more"] if more > 0 else [])]

    def recovery_text(self, group: str, phase: Phase) -> str:
        """A sentence about the lost offsets, with the commands; empty when none is lost."""
        if not self.lost:
            return ""
        if phase is not Phase.SWITCHED:
            return f"commit them again: zkconsumer migrate apply --resume {group} --execute"
        first = self.lost[0]
        back = f"zkconsumer migrate rollback {group} --execute"
        where = f"--topic {first.tp.topic}:{first.tp.partition} --to-offset {first.expected_offset}"
        one = f"zkconsumer offsets set {group} --store kafka {where} --execute"
        return (
            "they expired or were deleted, and a member would start there at its auto.offset.reset. Stop the members; "
            f"then roll the group back to ZooKeeper, which still has them ({back}), or set each ({one})"
        )


def read_copied_offsets_status(
    session: AdminSession, group: str, entries: JournalContents, patience: CoordinatorRetryPolicy
) -> CopiedOffsetsStatus:
    """Compare now, in one of the phases ``PHASES_WITH_COPIED_OFFSETS``.  Raises nothing: the result contains errors."""
    try:
        plan = read_effective_plan(session, group)
        copies = copies_of(plan)
        found = KafkaOffsetAdmin(session, group, patience=patience).read_some([copy.tp for copy in copies])
    except ZkConsumerError as error:
        return CopiedOffsetsStatus(error=str(error))
    lost = lost_copies(copies, {tp: CommittedOffset(one.offset, one.metadata) for tp, one in found.items()})
    until_ms, kept = _retention_end(plan, entries)
    return CopiedOffsetsStatus(len(copies), tuple(lost), until_ms, kept)


def _retention_end(plan: MigrationPlan, entries: JournalContents) -> tuple[int | None, str]:
    """The time at which the retention ends, or the duration as text."""
    seen = plan.snapshot
    if not seen.keeps_by_commit:
        return (
            None,
            f"for {broker_retention_text(seen)} (offsets.retention.minutes) after the last member of the group has "
            "left",
        )
    # A repeated run commits only the missing offsets, so the first entry has the earliest end of all offsets.
    first = next((one for one in entries.entries if one.what == COPIED_JOURNAL_ENTRY), None)
    retention = "" if first is None else first.facts.get(RETENTION_FACT, "")
    if first is None or not (retention.isascii() and retention.isdigit() and len(retention) <= DIGITS_MAX):
        return None, "not known: the journal does not say when they were committed, and for how long"
    return first.at_ms + int(retention), ""
