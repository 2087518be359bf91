"""What is to be done to a group's offsets after a query of it crashed, partition by partition.  Pure.

Forward (the default), from the last batch that is in the checkpoint's commit log:

    the partition is not of that batch          left: it was settled when a later batch began, or is another's since
    the query claims (it has records)           left: its claims moved the group; what is odd is told.  Kafka's store
                                                follows ZooKeeper's
    the group has less, or nothing              written
    the group has as much, or more              left: an offset never goes back here

With ``rewind``, for a checkpoint that is given up: from the query's own record in ZooKeeper.

    no claim of a batch behind the last done    left: nothing was claimed that is not in the sink
    the group stands where the claim ends       set to where it begins, and the claim is taken out of the record
    the group stands elsewhere                  left: others went on, and would read again what they have read

The claim goes with the offset, in one multi: a query that is started on that checkpoint all the same claims anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bridge.spark.claims.records import BatchClaim, ClaimRecord
from bridge.spark.handoff.checkpoint_files import BadCheckpoint, SourceOffsets, SparkCheckpoint
from zkconsumer.errors import PreconditionFailed
from zkconsumer.types import TopicPartition
from zkconsumer.zk.znode_formats import INT64_MAX

if TYPE_CHECKING:
    from zkconsumer.admin.log_ranges import LogRange
    from zkconsumer.admin.offset_lines import OffsetStoreName
    from zkconsumer.admin.offset_plan import CurrentOffsets

OFFSETS_MOVED_BY_CLAIMS = "claims move this group"


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """What a checkpoint says of one group.

    ``committed``: the end of the last batch that is done.  ``of_batch``: the partitions that this batch had.  ``query``
    is the id that the query gave itself, None for ``format("kafka")``; ``batch`` the number, by its own count, of the
    last batch that is done, -1 without one.  ``spark_batches``: Spark's number of each batch in the checkpoint, by the
    query's own.  Spark counts batches that the query did not plan, so its number can be the larger one.
    """

    committed: Mapping[TopicPartition, int]
    batch_partitions: frozenset[TopicPartition]
    query: str | None
    batch: int
    spark_batches: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReconcileRow:
    """One partition in one store.  ``new`` None: nothing is written.  ``refusal``: why nothing of the plan can be."""

    tp: TopicPartition
    store: OffsetStoreName
    group_offset: int | None
    committed: int | None
    claim: BatchClaim | None
    new_offset: int | None
    decision: str
    refusal: str = ""


# --- what the checkpoint says -----------------------------------------------------------------------------------


def checkpoint_state_of(checkpoint: SparkCheckpoint, group: str, source: str | None) -> CheckpointState:
    """What the checkpoint says of the group; ``source``: of this source alone.

    Raises ``BadCheckpoint`` when there is nothing of Kafka in it, or two sources read the same partitions;
    ``PreconditionFailed`` when it is another group's.
    """
    logged = [batch for batch in (checkpoint.committed, *checkpoint.pending) if batch is not None]
    known = {each.source for batch in logged for each in batch.sources}
    if source is not None and source not in known:
        names = ", ".join(sorted(known)) or "none"
        raise BadCheckpoint(f"{checkpoint.folder} has no offsets of Kafka of source {source}; those that have: {names}")
    chosen = [[each for each in batch.sources if source in (None, each.source)] for batch in logged]
    if not any(chosen):
        what = "no batch yet" if not logged else "no source of Kafka"
        raise BadCheckpoint(f"{checkpoint.folder} has {what}: there is nothing to reconcile")
    ours = [each.stream_offset for batch in chosen for each in batch if each.stream_offset is not None]
    for envelope in ours:
        if envelope.group != group:
            raise PreconditionFailed(
                f"nothing was changed: the checkpoint {checkpoint.folder} is of group {envelope.group}, not of {group}"
            )
    queries = sorted({envelope.query for envelope in ours})
    if len(queries) > 1:
        raise BadCheckpoint(f"{checkpoint.folder} has several sources of this group; name one of them as source")
    done = chosen[0] if checkpoint.committed is not None else []
    committed = _merged(checkpoint, done)
    last = next((each.stream_offset for each in done if each.stream_offset is not None), None)
    of_batch = frozenset(last.claims) if last is not None else frozenset(committed)
    numbers = {
        each.stream_offset.batch: batch.number
        for batch, sources in zip(logged, chosen, strict=True)
        for each in sources
        if each.stream_offset is not None
    }
    return CheckpointState(
        committed, of_batch, queries[0] if queries else None, -1 if last is None else last.batch, numbers
    )


def _merged(checkpoint: SparkCheckpoint, sources: list[SourceOffsets]) -> dict[TopicPartition, int]:
    merged: dict[TopicPartition, int] = {}
    for each in sources:
        for tp, offset in each.offsets.items():
            if merged.setdefault(tp, offset) != offset:
                names = ", ".join(one.source for one in sources)
                raise BadCheckpoint(
                    f"{checkpoint.folder}: several sources read {tp}, up to different offsets; name one of them as "
                    f"source ({names})"
                )
    return merged


def check_checkpoint_is_newest(
    checkpoint: SparkCheckpoint, found: CheckpointState, records: Mapping[TopicPartition, ClaimRecord]
) -> None:
    """A batch is claimed when the one before is done.  Raises ``PreconditionFailed`` when the records are further."""
    newest = max((record.last_decided_batch for record in records.values()), default=-1)
    if newest > found.batch + 1:
        done = f"batch {found.batch}" if found.batch >= 0 else "nothing"
        raise PreconditionFailed(
            f"nothing was changed: query {found.query} claimed for batch {newest}, and by {checkpoint.folder} it has "
            f"done {done}. This checkpoint is an old copy, or was set back: name the one that the query used last"
        )


# --- the plan ---------------------------------------------------------------------------------------------------


def current_of(stored: int | None, convention: str) -> int | None:
    """The *next* offset that a stored one means."""
    if stored is None or stored < 0:
        return None
    return min(stored + (1 if convention == "last-consumed" else 0), INT64_MAX)


def unfinished_claim(record: ClaimRecord, found: CheckpointState) -> BatchClaim | None:
    """The claim of a batch that is not done; a batch begins when the one before is done, so there is one at most."""
    if record.pending is not None:
        return record.pending if record.pending.batch > found.batch else None
    return record.latest if record.latest is not None and record.latest.batch > found.batch else None


def plan_forward(
    found: CheckpointState,
    store: OffsetStoreName,
    current: CurrentOffsets,
    records: Mapping[TopicPartition, ClaimRecord],
    authority: OffsetStoreName = "zookeeper",
) -> list[ReconcileRow]:
    """The first table.  ``current``: of the ``authority`` too where a query claims: the store that claims move."""
    rows = []
    for tp in sorted(found.committed.keys() | records.keys()):
        group_offset, committed = current[store].get(tp), found.committed.get(tp)
        record = records.get(tp, ClaimRecord())
        claim = unfinished_claim(record, found)
        new: int | None = None
        if records:
            in_zookeeper = current[authority].get(tp)
            decision = _of_a_claiming_query(in_zookeeper, record, claim)
            if (
                store != authority
                and in_zookeeper is not None
                and (group_offset is None or group_offset < in_zookeeper)
            ):
                new, decision = in_zookeeper, "forward, as in zookeeper"
        elif tp not in found.batch_partitions:
            decision = "not of the last batch: left"
        elif committed is not None and (group_offset is None or group_offset < committed):
            new, decision = committed, "forward"
        else:
            decision = "as committed" if group_offset == committed else "ahead: left"
        rows.append(ReconcileRow(tp, store, group_offset, committed, claim, new, decision))
    return rows


def _of_a_claiming_query(group_offset: int | None, record: ClaimRecord, claim: BatchClaim | None) -> str:
    if record.latest is not None and (group_offset is None or group_offset < record.latest.end):
        return f"set back by somebody below the claim of {record.latest.end}: left"
    if claim is not None:
        return "claimed, not done: start again, or 'zkconsumer spark reconcile --group G --checkpoint DIR --rewind'"
    return OFFSETS_MOVED_BY_CLAIMS


def plan_rewind(
    found: CheckpointState,
    store: OffsetStoreName,
    current: CurrentOffsets,
    records: Mapping[TopicPartition, ClaimRecord],
    authority: OffsetStoreName = "zookeeper",
) -> list[ReconcileRow]:
    """The second table, the same for every ``authority``."""
    rows = []
    for tp in sorted(found.committed.keys() | records.keys()):
        group_offset, claim = current[store].get(tp), unfinished_claim(records.get(tp, ClaimRecord()), found)
        new: int | None = None
        if claim is None:
            decision = "nothing claimed that is not done: left"
        elif group_offset == claim.end:
            number = found.spark_batches.get(claim.batch)
            batch = "the claimed batch" if number is None else f"batch {number}"
            new, decision = claim.first, f"back before {batch}"
        elif group_offset is None or group_offset < claim.first:
            decision = "set back by somebody already: left"
        elif group_offset == claim.first:
            decision = "stands there already"
        else:
            decision = "others went on: left"
        rows.append(ReconcileRow(tp, store, group_offset, found.committed.get(tp), claim, new, decision))
    return rows


def without_claim(record: ClaimRecord, claim: BatchClaim) -> ClaimRecord:
    """The record before this claim."""
    if record.pending == claim:
        return ClaimRecord(record.claims, record.refused)
    assert record.latest == claim, "only the latest claim can be taken back"
    return ClaimRecord(record.claims[:-1])


def with_refusals(
    rows: list[ReconcileRow], logs: Mapping[TopicPartition, LogRange | str], owners: Mapping[TopicPartition, str]
) -> list[ReconcileRow]:
    """The rows, with refusals for what would be written where somebody reads, or where there is no such offset."""
    return [
        row if row.new_offset is None else replace(row, refusal=_refusal(row.new_offset, row.tp, logs, owners))
        for row in rows
    ]


def _refusal(
    new: int, tp: TopicPartition, logs: Mapping[TopicPartition, LogRange | str], owners: Mapping[TopicPartition, str]
) -> str:
    if tp in owners:
        return f"it is owned by {owners[tp]}, which writes its own position at its next commit"
    match logs[tp]:
        case str() as problem:
            return f"its log cannot be looked at: {problem}"
        case log:
            beyond = f"{new} is beyond the end of the log ({log.latest}): another cluster, or a topic made anew"
            return beyond if new > log.latest else ""
