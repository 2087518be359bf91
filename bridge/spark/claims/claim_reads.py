"""Reads the state of a partition: a record, an owner, an offset; and the group's offsets, as one procedure.

If the answer about a node was lost with the connection, the report has the partition in ``unknown``, and the caller
repeats the request.  Every other failure (access rights, invalid content) is an error of ``zkconsumer.errors``, whose
text contains the remedy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from bridge.spark.claims.records import ClaimRecord, parse_record
from bridge.spark.group_membership import NO_OFFSET, GroupOffset
from zkconsumer.errors import MalformedZnode, UnavailableError, ZkConsumerError, ZkNotAuthorized, ZkTimeoutException
from zkconsumer.member.events import StoredOffset
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.group_procedures import Procedure, describe_result, stored_offset
from zkconsumer.zk.requests import ConnectionLost, GetMany, NoAuth, NoNode, SessionEnded, ZnodeData, ZnodeResult

MISSING_VERSION = -1
"""The version of a node that does not exist."""


@dataclass(slots=True)
class GroupOffsetsReport:
    """The group's offsets; ``unknown`` and ``error`` as in a ``ClaimReport``."""

    offsets: dict[TopicPartition, GroupOffset] = field(default_factory=dict)
    unknown: dict[TopicPartition, str] = field(default_factory=dict)
    error: ZkConsumerError | None = None

    def result(self) -> dict[TopicPartition, GroupOffset]:
        """The offsets; raises ``error``, or ``ZkTimeoutException`` when one is unknown."""
        raise_for(self.error, self.unknown, "the group's offset")
        return self.offsets


def raise_for(error: ZkConsumerError | None, unknown: Mapping[TopicPartition, str], what: str) -> None:
    """Raise ``error`` if there is one; else, if a partition is unknown, an error that ``what`` of it is not known."""
    if error is not None:
        raise error
    if unknown:
        tp, why = next(iter(unknown.items()))
        raise ZkTimeoutException(f"ZooKeeper did not answer repeated requests; not known of {tp}: {what} ({why})")


def read_group_offsets(
    group: str, query: str, partitions: Collection[TopicPartition], topic_czxids: Mapping[str, int] | None = None
) -> Procedure[GroupOffsetsReport]:
    """The current offsets of the group, and the end of the query's latest claim: one packet.

    The record is read before the offset: only this query writes records, so a difference comes from other members.
    """
    report = GroupOffsetsReport()
    nodes = yield from read_nodes(
        [paths.claims_of_partition(group, query, tp) for tp in partitions]
        + [paths.offset(group, tp) for tp in partitions]
    )
    for tp, record_node, offset_node in zip(
        partitions, nodes[: len(partitions)], nodes[len(partitions) :], strict=True
    ):
        if (lost := first_lost_answer(record_node, offset_node)) is not None:
            report.unknown[tp] = describe_result(lost)
            continue
        try:
            record = record_of(record_node, paths.claims_of_partition(group, query, tp))
            found = offset_of(offset_node, (topic_czxids or {}).get(tp.topic, 0))
        except ZkConsumerError as error:
            report.error = error
            break
        claimed = latest_claim_end(record, (topic_czxids or {}).get(tp.topic, 0))
        # With a claim it counts as no offset, below the end of the claim: ``onGroupRewind`` decides.
        if found.unreadable and claimed is None:
            report.error = MalformedZnode(f"{paths.offset(group, tp)}: {found.unreadable}; repair or delete it")
            break
        report.offsets[tp] = GroupOffset(NO_OFFSET if found.offset is None else found.offset, claimed)
    return report


# --- reads ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredGroupOffset:
    """``version`` of the znode; ``offset`` None: no offset, or with ``unreadable`` no number."""

    offset: int | None
    version: int
    unreadable: str = ""


def read_nodes(wanted: list[str]) -> Procedure[list[ZnodeResult]]:
    """These nodes, in one request; no request for an empty list."""
    if not wanted:
        return []
    [nodes] = yield [GetMany(tuple(wanted))]
    assert isinstance(nodes, list), "a read of many nodes returns a list"
    return nodes


def first_lost_answer(*nodes: ZnodeResult) -> ZnodeResult | None:
    """The first node whose answer was lost with the connection or the session."""
    return next((node for node in nodes if isinstance(node, ConnectionLost | SessionEnded)), None)


def record_of(node: ZnodeResult, path: str) -> ClaimRecord:
    """The record; an empty one when the node is missing.

    Raises ``MalformedZnode``, ``ZkNotAuthorized``, ``UnavailableError``.
    """
    match node:
        case ZnodeData():
            return parse_record(node.data, path)
        case NoNode():
            return ClaimRecord()
        case NoAuth():
            raise ZkNotAuthorized(f"we may not read {path}: log in as the user that created it, or change its ACL")
        case _:
            raise UnavailableError(f"ZooKeeper did not answer about {path}: {describe_result(node)}")


def offset_of(node: ZnodeResult, topic_czxid: int) -> StoredGroupOffset:
    """The offset; one from before the topic was created does not count.

    Raises ``ZkNotAuthorized``, ``UnavailableError``.
    """
    found = stored_offset(node)
    if isinstance(found, StoredOffset):
        counts = found.offset >= 0 and found.written_zxid >= topic_czxid
        return StoredGroupOffset(found.offset if counts else None, found.version)
    if isinstance(node, ZnodeData):
        return StoredGroupOffset(None, node.stat.version, found)
    if isinstance(node, NoAuth):
        raise ZkNotAuthorized(f"we may not read {node.path}: log in as the user that created it, or change its ACL")
    raise UnavailableError(f"ZooKeeper did not answer about an offset: {found}")


def latest_claim_end(record: ClaimRecord, topic_czxid: int) -> int | None:
    """The end of the latest claim; None without a claim, or when it was of a deleted topic."""
    latest = record.latest
    return None if latest is None or latest.epoch < topic_czxid else latest.end
