"""Plans the changes of a group's offsets after a query crashed, partition by partition.  Pure.

Forward (the default), from the last batch that is in the checkpoint's commit log:

    the partition is not of that batch          left: an earlier batch settled it, or another query owns it since
    the query claims                            left: its claims moved the group; differences are reported.  Kafka's
                                                store follows ZooKeeper's
    the group's offset is smaller, or missing   written
    the group's offset is equal, or larger      left: forward never decreases an offset

With ``rewind``, for a checkpoint that is no longer used: from the query's own record in ZooKeeper.

    no claim of a batch after the last done     left: the sink has everything that was claimed
    the group's offset is the claim's end       set to its start, and the claim is removed from the record
    the group's offset is another one           left: others have continued, and would read their records again

The claim is removed in one multi with the offset: a query that is started on that checkpoint nevertheless claims again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bridge.spark.claims.records import BatchClaim, ClaimRecord
from bridge.spark.group_membership import CommitMode
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
    """The state of one group in a checkpoint.

    ``committed``: the end of the last batch that is done.  ``batch_partitions``: the partitions of this batch.
    ``query`` is the id that the query gave itself, None for ``format("kafka")``; ``batch`` the number, by its own
    count, of the last batch that is done, -1 without one.  ``spark_batches``: Spark's number of each batch in the
    checkpoint, by the query's own.  Spark counts batches that the query did not plan, so its number can be the larger
    one.  ``is_claiming``: its ends are plans, which do not say what was read; the records of its claims say that.
    """

    committed: Mapping[TopicPartition, int]
    batch_partitions: frozenset[TopicPartition]
    query: str | None
    batch: int
    spark_batches: Mapping[int, int] = field(default_factory=dict)
    is_claiming: bool = False


@dataclass(frozen=True, slots=True)
class ReconcileRow:
    """One partition in one store.  ``new_offset`` None: no write.  ``refusal``: why no row of the plan can be
    written.
    """

    tp: TopicPartition
    store: OffsetStoreName
    group_offset: int | None
    committed: int | None
    claim: BatchClaim | None
    new_offset: int | None
    decision: str
    refusal: str = ""


# --- the checkpoint ---------------------------------------------------------------------------------------------


def checkpoint_state_of(checkpoint: SparkCheckpoint, group: str, source: str | None) -> CheckpointState:
    """The state of the group in the checkpoint; ``source``: of this source only.

    Raises ``BadCheckpoint`` when it has no offsets of Kafka, or two sources read the same partitions;
    ``PreconditionFailed`` when it belongs to another group.
    """
    logged = [batch for batch in (checkpoint.committed, *checkpoint.pending) if batch is not None]
    known = {each.source for batch in logged for each in batch.sources}
    if source is not None and source not in known:
        names = ", ".join(sorted(known)) or "none"
        raise BadCheckpoint(f"{checkpoint.folder} has no offsets of Kafka of source {source}; it has sources {names}")
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
        committed,
        of_batch,
        queries[0] if queries else None,
        -1 if last is None else last.batch,
        numbers,
        is_claiming=any(envelope.mode is CommitMode.CLAIM for envelope in ours),
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
    """A batch is claimed when the one before is done.  Raises ``PreconditionFailed`` when the records are newer."""
    newest = max((record.last_decided_batch for record in records.values()), default=-1)
    if newest > found.batch + 1:
        done = f"batch {found.batch}" if found.batch >= 0 else "nothing"
        raise PreconditionFailed(
            f"nothing was changed: query {found.query} claimed for batch {newest}, but in {checkpoint.folder} it has "
            f"done {done}. This checkpoint is an old copy, or was set back: name the one that the query used last"
        )


# --- the plan ---------------------------------------------------------------------------------------------------


def current_of(stored: int | None, convention: str) -> int | None:
    """The *next* offset for a stored one."""
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
    """The first table.  ``current``: also of the ``authority`` where a query claims."""
    rows = []
    for tp in sorted(found.committed.keys() | records.keys()):
        group_offset, committed = current[store].get(tp), found.committed.get(tp)
        record = records.get(tp, ClaimRecord())
        claim = unfinished_claim(record, found)
        new: int | None = None
        if found.is_claiming:
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
        return f"set back below the claim of {record.latest.end}: left"
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
            decision = "set back already: left"
        elif group_offset == claim.first:
            decision = "equal already"
        else:
            decision = "others have continued: left"
        rows.append(ReconcileRow(tp, store, group_offset, found.committed.get(tp), claim, new, decision))
    return rows


def without_claim(record: ClaimRecord, claim: BatchClaim) -> ClaimRecord:
    """The record before this claim."""
    if record.pending == claim:
        return ClaimRecord(record.claims, record.refused)
    assert record.latest == claim, "only the latest claim can be removed"
    return ClaimRecord(record.claims[:-1])


def with_refusals(
    rows: list[ReconcileRow], logs: Mapping[TopicPartition, LogRange | str], owners: Mapping[TopicPartition, str]
) -> list[ReconcileRow]:
    """The rows, with refusals for partitions with an owner, and for offsets that do not exist in the log."""
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
            return f"the bounds of its log are not known: {problem}"
        case log:
            beyond = f"{new} is beyond the end of the log ({log.latest}): another cluster, or a topic created again"
            return beyond if new > log.latest else ""
