"""``reconcile``: makes a group agree with the checkpoint of a Spark query after a crash.  Needs no pyspark.

    report = reconcile("zk1:2181/kafka", "billing", "/var/spark/billing-checkpoint")              # what would be done
    report = reconcile("zk1:2181/kafka", "billing", "/var/spark/billing-checkpoint", execute=True)

``reconcile_plan`` decides, and explains why.  No offset is written while the group has members, since a running owner
overwrites it with its own position; with ``allow_members`` partitions without an owner are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bridge.spark.claims.claim_reads import MISSING_VERSION
from bridge.spark.claims.records import ClaimRecord, format_record
from bridge.spark.handoff.checkpoint_files import read_checkpoint
from bridge.spark.handoff.claim_administration import read_records
from bridge.spark.handoff.reconcile_plan import (
    CheckpointState,
    ReconcileRow,
    check_checkpoint_is_newest,
    checkpoint_state_of,
    current_of,
    plan_forward,
    plan_rewind,
    with_refusals,
    without_claim,
)
from bridge.spark.source.offset_selection import StoredOffsetConvention
from zkconsumer.admin.admin_session import AdminDependencies, AdminSession
from zkconsumer.admin.group_offset_stores import GroupOffsetsSnapshot, GroupOffsetStores, GroupWriteReports
from zkconsumer.admin.kafka_offsets import KafkaOffsetAdmin
from zkconsumer.admin.offset_lines import STORES_BY_OPTION, OffsetStoreName
from zkconsumer.admin.zookeeper_offset_writes import OffsetWrite, write_offsets
from zkconsumer.errors import PreconditionFailed, UnavailableError, UsageError
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.group_procedures import describe_result, owner_text
from zkconsumer.zk.requests import Multi, MultiOk, Op, SetOp
from zkconsumer.zk.zk_security import SECURE_ACL


@dataclass(slots=True)
class ReconcileReport:
    """What was found and what was done; one of ``rows`` for each partition and store.

    ``blocked_by``: why no offset may be written now, empty when it may.  ``write_reports``: the progress of the writes.
    """

    group: str
    checkpoint: Path
    checkpoint_state: CheckpointState
    stores: Sequence[OffsetStoreName]
    rows: list[ReconcileRow]
    blocked_by: str
    records: Mapping[TopicPartition, tuple[ClaimRecord, int]]
    snapshot: GroupOffsetsSnapshot
    write_reports: GroupWriteReports = field(default_factory=GroupWriteReports)

    @property
    def changes(self) -> list[ReconcileRow]:
        """The rows to write."""
        return [row for row in self.rows if row.new_offset is not None]

    @property
    def refused(self) -> list[ReconcileRow]:
        """The rows that cannot be written; while there are any, no row is written."""
        return [row for row in self.rows if row.refusal]


def reconcile(
    zookeeper: str | None,
    group: str,
    checkpoint: str | Path,
    *,
    execute: bool = False,
    rewind: bool = False,
    store: Literal["zookeeper", "kafka", "both"] = "zookeeper",
    convention: StoredOffsetConvention = "next",
    source: str | None = None,
    allow_members: bool = False,
    config_file: str | Path | None = None,
    dependencies: AdminDependencies | None = None,
) -> ReconcileReport:
    """Read, and with ``execute`` write; the help of ``zkconsumer spark reconcile`` explains each parameter.

    Raises ``BadCheckpoint`` for a checkpoint that cannot be read, ``PreconditionFailed`` when a condition is not met,
    ``UnavailableError`` when a server does not answer, or when the writes stopped half-way (the same call writes the
    rest).
    """
    file = None if config_file is None else Path(config_file)
    with AdminSession.open(zookeeper, file, dependencies) as session:
        report = plan_reconcile(
            session,
            group,
            checkpoint,
            rewind=rewind,
            stores=STORES_BY_OPTION[store],
            convention=convention,
            source=source,
            allow_members=allow_members,
        )
        if execute and report.changes:
            if report.blocked_by or report.refused:
                raise PreconditionFailed(report.blocked_by or f"{report.refused[0].tp}: {report.refused[0].refusal}")
            execute_reconcile(session, report, allow_members=allow_members)
            if report.write_reports.stopped_by:
                raise UnavailableError(
                    f"group {group}: {report.write_reports.written} of {len(report.changes)} offsets were written, "
                    "because "
                    f"{report.write_reports.stopped_by}; repeat the call for the rest"
                )
        return report


def plan_reconcile(
    session: AdminSession,
    group: str,
    checkpoint: str | Path,
    *,
    rewind: bool,
    stores: Sequence[OffsetStoreName],
    convention: StoredOffsetConvention,
    source: str | None,
    allow_members: bool,
) -> ReconcileReport:
    """The current state, and the changes that would be made."""
    if allow_members and "kafka" in stores:
        raise UsageError("Kafka accepts no offsets while a group has members: use allow-members with store zookeeper")
    if convention == "last-consumed" and "kafka" in stores:
        raise UsageError("offsets in Kafka are always the next ones: use last-consumed with store zookeeper only")
    read = read_checkpoint(checkpoint)
    found = checkpoint_state_of(read, paths.check_group(group), source)
    group_stores = GroupOffsetStores(session, group)
    seen = group_stores.read(stores)
    arbiter = claim_authority_of(seen)
    if rewind and arbiter not in stores:
        raise UsageError(f"claims of this group are made in {arbiter}: use rewind with store {arbiter}, or both")
    records = {} if found.query is None else read_records(session, group, found.query)
    if rewind and found.query is None:
        raise UsageError('the checkpoint is of format("kafka"), which does not claim: there is no claim to set back')
    plain = {tp: record for tp, (record, _) in records.items()}
    check_checkpoint_is_newest(read, found, plain)
    current = {
        each: {tp: current_of(offset, convention) for tp, offset in seen.offsets_in(each).items()}
        for each in dict.fromkeys((*stores, arbiter if found.is_claiming else stores[0]))
    }
    plan = plan_rewind if rewind else plan_forward
    rows = [row for each in stores for row in plan(found, each, current, plain, arbiter)]
    changed = [row.tp for row in rows if row.new_offset is not None]
    # A group that has migrated has fences there, and no owners; the check above found no members.
    owners = _owners(session, group, changed) if arbiter == "zookeeper" else {}
    rows = with_refusals(rows, group_stores.log_ranges(changed), owners)
    blocked_by = (
        "" if allow_members and not seen.control_problem and seen.control is None else seen.rejection_reason(stores)
    )
    return ReconcileReport(group, Path(checkpoint), found, stores, rows, blocked_by, records, seen)


def claim_authority_of(seen: GroupOffsetsSnapshot) -> OffsetStoreName:
    """The store whose offsets claims change: the one with the authority."""
    return "kafka" if seen.control is not None and seen.control.authority == "kafka" else "zookeeper"


def _owners(session: AdminSession, group: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, str]:
    wanted = {paths.owner(group, tp): tp for tp in partitions}
    return {wanted[path]: owner_text(node) for path, node in session.get_many(wanted).items()}


def execute_reconcile(session: AdminSession, report: ReconcileReport, *, allow_members: bool) -> None:
    """Write the changes: ZooKeeper first, each with the version that was read, then Kafka."""
    writes = [
        OffsetWrite(row.tp, row.new_offset, _version(report.snapshot, row.tp), _take_back(report, row))
        for row in report.changes
        if row.store == "zookeeper"
    ]
    acl = SECURE_ACL if session.config.zookeeper_set_acl else None
    done = report.write_reports
    write_offsets(
        session,
        report.group,
        writes,
        control_version=report.snapshot.control_version,
        report=done.zookeeper,
        acl=acl,
        allow_members=allow_members,
    )
    rows = {row.tp: row for row in report.changes if row.store == "kafka" and row.new_offset is not None}
    if rows and not done.stopped_by:
        new = {tp: row.new_offset for tp, row in rows.items() if row.new_offset is not None}
        KafkaOffsetAdmin(session, report.group).write_offsets(
            new, {tp: row.group_offset for tp, row in rows.items()}, done.kafka
        )
    if claim_authority_of(report.snapshot) == "kafka":
        _take_back_of_kafka(session, report, [rows[tp] for tp in done.kafka.written])


def _take_back_of_kafka(session: AdminSession, report: ReconcileReport, rows: Sequence[ReconcileRow]) -> None:
    """Remove the claims of these rows from their records, after Kafka has accepted the offsets.

    If the process ends in between, a claim remains whose range is read again: that is harmless.
    """
    for op in [op for row in rows for op in _take_back(report, row)]:
        [answer] = session.request([Multi((op,))])
        if not isinstance(answer, MultiOk):
            raise UnavailableError(
                f"{op.path}: the claim could not be removed from the record ({describe_result(answer)}): repeat the "
                "command"
            )


def _version(seen: GroupOffsetsSnapshot, tp: TopicPartition) -> int:
    node = seen.zookeeper.get(tp)
    return MISSING_VERSION if node is None else node.stat.version


def _take_back(report: ReconcileReport, row: ReconcileRow) -> tuple[Op, ...]:
    """With a rewind: the operation that removes the row's claim from the record of the partition; else none."""
    if row.claim is None:
        return ()
    assert report.checkpoint_state.query is not None, "a claim belongs to a query"
    record, version = report.records[row.tp]
    path = paths.claims_of_partition(report.group, report.checkpoint_state.query, row.tp)
    return (SetOp(path, format_record(without_claim(record, row.claim)), version),)
