"""The writes for a partition after its claim was decided, and their conditions.  Pure.

    WriteClaim     check our owner node; the offset := end; the record, with this claim
    FinishClaim    the record, with this claim
    WriteRefusal   the record, with the refusal

Every write names the version that was read, or creates a node that did not exist.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from bridge.spark.claims.claim_decision import FinishClaim, OnRewind, WriteClaim, WriteRefusal
from bridge.spark.claims.claim_reads import MISSING_VERSION
from bridge.spark.claims.records import BatchClaim, ClaimRecord, format_record
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.group_procedures import OUR_OWNER_VERSION
from zkconsumer.zk.requests import Acl, CheckOp, Create, CreateOp, Op, SetOp
from zkconsumer.zk.znode_formats import format_offset


@dataclass(frozen=True, slots=True)
class ClaimContext:
    """The identity of the query that claims.

    ``run``: identifies one start of the query; every membership of that start has the same.  ``owned``: the partitions
    that the query owns and does not release now, with the czxid of the owner znode.  ``topic_czxids``: the czxid of
    each topic's znode, where it is known and ``offsets.older.than.topic`` ignores older offsets.  ``acl``: for new
    znodes. ``wall_ms``: written into the records.
    """

    group: str
    query: str
    run: str
    session_id: int
    owned: Mapping[TopicPartition, int]
    control_version: int | None = None
    on_rewind: OnRewind = OnRewind.IGNORE
    topic_czxids: Mapping[str, int] = field(default_factory=dict)
    acl: tuple[Acl, ...] | None = None
    wall_ms: int = 0


@dataclass(frozen=True, slots=True)
class PlannedClaimWrite:
    """The write for a partition, and its nodes as they were last read."""

    decision: WriteClaim | FinishClaim | WriteRefusal
    record: ClaimRecord
    record_version: int
    offset_version: int
    claimed_end: int | None


def claim_ops(context: ClaimContext, batch: int, tp: TopicPartition, planned: PlannedClaimWrite) -> list[Op]:
    """The operations of one partition, which must be in one multi."""
    match planned.decision:
        case WriteRefusal():
            record = planned.record.with_refusal(batch)
        case FinishClaim():
            assert planned.record.pending is not None, "only a begun claim is finished"
            record = planned.record.with_claim(planned.record.pending)
        case WriteClaim(first, end):
            record = planned.record.with_claim(BatchClaim(batch, first, end, context.owned[tp], context.wall_ms))
            return [
                CheckOp(paths.owner(context.group, tp), OUR_OWNER_VERSION),
                write_op(paths.offset(context.group, tp), format_offset(end), planned.offset_version, context.acl),
                record_op(context, tp, record, planned.record_version),
            ]
    return [record_op(context, tp, record, planned.record_version)]


def record_op(context: ClaimContext, tp: TopicPartition, record: ClaimRecord, version: int) -> Op:
    """The operation that writes a record."""
    return write_op(
        paths.claims_of_partition(context.group, context.query, tp), format_record(record), version, context.acl
    )


def missing_parents(
    context: ClaimContext, planned: Mapping[TopicPartition, PlannedClaimWrite], again: Collection[str]
) -> list[Create]:
    """The missing parents of the nodes to create, top down; below the query's own node, which exists.

    Empty where a partition of the topic has a record already.  ``again``: topics of which a write failed since.
    """
    has_record = {tp.topic for tp, one in planned.items() if one.record_version != MISSING_VERSION}
    without_record = {tp.topic for tp, one in planned.items() if one.record_version == MISSING_VERSION}
    creates = [
        Create(paths.claims_of_topic(context.group, context.query, topic), acl=context.acl)
        for topic in sorted(without_record - (has_record - set(again)))
    ]
    without_offset = {
        tp.topic
        for tp, one in planned.items()
        if one.offset_version == MISSING_VERSION and isinstance(one.decision, WriteClaim)
    }
    if without_offset:
        creates.append(Create(paths.offsets(context.group), acl=context.acl))
        creates += [
            Create(paths.offsets_of_topic(context.group, topic), acl=context.acl) for topic in sorted(without_offset)
        ]
    return creates


def write_op(path: str, data: bytes, version: int, acl: tuple[Acl, ...] | None) -> Op:
    """A write at the version that was read; ``MISSING_VERSION``: create the node."""
    return CreateOp(path, data, acl=acl) if version == MISSING_VERSION else SetOp(path, data, version)
