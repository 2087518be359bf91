"""Finds out whether the stored offsets are the next or the last record, as far as there is evidence.  Pure.

Kafka, the Scala consumer and this library store the *next* record; go_kafka_client and Spark's ReliableKafkaReceiver
store the *last* one that was read.  No znode shows which.  To take last for next repeats one record of each partition;
to take next for last loses one.  So only evidence with hardly any other explanation counts:

    next   the number is the end of the log: no record has that number, so no member has read it
    next   the partition's owner is a member of this library, and wrote the number
    last   the number is that of the log's newest record, and it was stored ``READ_WITHIN_MS`` or more after that record
           was written: a member that stores the next record would have read that one in this time, and stored a higher
           number.  On one partition that is chance (a member that was killed in between), so it needs
           ``LAST_CONVENTION_PARTITIONS_MIN`` partitions, or one beside a znode that only go_kafka_client creates

A number that was stored shortly after the newest record is no evidence: while a topic is written, a member often
commits when a record has been written and not yet read, and one commit stores the numbers of many partitions.

Without evidence, after an ended migration of the group, the convention is that of the migration: its rollback wrote the
numbers so.  The operator must decide if there is certain evidence of the other meaning, or a znode that only
go_kafka_client creates beside numbers that were the next record.

A log that ends with a transaction marker is no evidence: no consumer receives a marker, so the offset of a member that
stores the next record remains one before the end there.  The operator must decide where most partitions show last and
some show next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.plan.decisions import OffsetConvention
from zkconsumer.admin.log_ranges import LogRange
from zkconsumer.admin.text_format import list_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.migration.inspect.group_snapshot import GroupSnapshot, PartitionSnapshot
    from zkconsumer.types import TopicPartition

LAST_CONVENTION_PARTITIONS_MIN = 3
READ_WITHIN_MS = 10_000
"""A running member reads a new record within its ``fetch.wait.max.ms`` (100 ms by default) and a busy moment; and the
times of a record and of a znode come from two machines."""


@dataclass(frozen=True, slots=True)
class ConventionEvidence:
    """``convention`` None: no evidence, or evidence of both (``is_contradictory``); ``text`` describes the evidence."""

    convention: OffsetConvention | None
    text: str
    is_contradictory: bool = False


def find_convention_evidence(seen: GroupSnapshot) -> ConventionEvidence:
    """Find the convention of a group's stored offsets."""
    stored = [one for one in seen.partitions.values() if one.stored is not None and not one.is_older_than_topic]
    if not stored:
        return ConventionEvidence(OffsetConvention.NEXT, "no offset is stored, so it does not matter")
    shown, before = _evidence_of_logs(seen, stored), seen.convention_before
    if before is None or shown.convention is before or shown.is_contradictory:
        return shown
    of = "" if seen.control is None else f" {seen.control.migration_id}"
    meaning = "next" if before is OffsetConvention.NEXT else "last"
    known = f"to migration{of}, which has ended, each was the {meaning} record"
    if shown.convention is not None or (before is OffsetConvention.NEXT and seen.last_offset_clients):
        return ConventionEvidence(None, f"the evidence is divided: {shown.text}; {known}", is_contradictory=True)
    return ConventionEvidence(before, f"{known}, and nothing speaks against that ({shown.text})")


def _evidence_of_logs(seen: GroupSnapshot, stored: Sequence[PartitionSnapshot]) -> ConventionEvidence:
    """The same, from the numbers and the logs alone."""
    at_end = [one.tp for one in stored if isinstance(one.log, LogRange) and one.stored == one.log.latest]
    ours = [one.tp for one in stored if one.is_written_by_owner]
    read = [one.tp for one in stored if _is_at_known_last_record(one)]
    for_next, for_last = _for_next(at_end, ours), _for_last(read, seen.last_offset_clients)
    is_last = len(read) >= (1 if seen.last_offset_clients else LAST_CONVENTION_PARTITIONS_MIN)
    # A busy member is one record behind on some partitions; only a majority contradicts the other meaning.
    if for_next and is_last and len(read) > len(at_end) + len(ours):
        return ConventionEvidence(
            None, f"the evidence is divided: {'; '.join([*for_next, *for_last])}", is_contradictory=True
        )
    if for_next:
        return ConventionEvidence(OffsetConvention.NEXT, "; ".join(for_next))
    if is_last:
        return ConventionEvidence(OffsetConvention.LAST, "; ".join(for_last))
    if not for_last and not any(isinstance(one.log, LogRange) for one in stored):
        return ConventionEvidence(None, "no log could be looked at, and only those might show it")
    return ConventionEvidence(None, f"nothing shows it for certain{': ' if for_last else ''}{'; '.join(for_last)}")


def contradicts(evidence: ConventionEvidence, given: OffsetConvention) -> bool:
    """Whether the evidence shows the other convention than the given one."""
    return evidence.convention is not None and evidence.convention is not given


def needs_last_entry(partition: PartitionSnapshot) -> bool:
    """Whether the record at the end of the log could be evidence."""
    log = partition.log
    return isinstance(log, LogRange) and partition.stored == log.latest - 1 and log.latest > log.earliest


def _for_next(at_end: Sequence[TopicPartition], ours: Sequence[TopicPartition]) -> list[str]:
    words = []
    if at_end:
        words.append(f"{list_text(at_end)}: the number is the end of the log, and no record has it yet")
    if ours:
        words.append(f"{list_text(ours)}: written by the owner, a member of this library, which stores the next record")
    return words


def _for_last(read: Sequence[TopicPartition], traces: Sequence[str]) -> list[str]:
    words = []
    if read:
        words.append(
            f"{list_text(read)}: the number is that of the newest record, and was stored 10 s or more after it"
        )
    if traces:
        words.append(f"{list_text(traces)}: only go_kafka_client makes it, which stores the last record read")
    return words


def _is_at_known_last_record(partition: PartitionSnapshot) -> bool:
    last = partition.last_entry
    if last is None or not last.is_record or not needs_last_entry(partition):
        return False
    return 0 <= last.at_ms <= partition.written_ms - READ_WITHIN_MS
