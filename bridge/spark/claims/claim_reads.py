"""What is read of a partition: a record, an owner, an offset; and where the group stands, as one procedure.

A node that cannot be had is a value only when its answer was lost with the connection: then it is asked for again.
Everything else that is no node (rights, nonsense) is an error of ``zkconsumer.errors`` that says who must act.
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
    """Where the group stands; ``unknown`` and ``error`` as of a ``ClaimReport``."""

    offsets: dict[TopicPartition, GroupOffset] = field(default_factory=dict)
    unknown: dict[TopicPartition, str] = field(default_factory=dict)
    error: ZkConsumerError | None = None

    def result(self) -> dict[TopicPartition, GroupOffset]:
        """The stands; raises ``error``, or ``ZkTimeoutException`` when something is unknown."""
        raise_for(self.error, self.unknown, "where the group stands")
        return self.offsets


def raise_for(error: ZkConsumerError | None, unknown: Mapping[TopicPartition, str], what: str) -> None:
    """Raise the error; or say of the first unknown partition what is not known of it."""
    if error is not None:
        raise error
    if unknown:
        tp, why = next(iter(unknown.items()))
        raise ZkTimeoutException(f"ZooKeeper was asked again and again, and it is not known of {tp} {what} ({why})")


def read_group_offsets(
    group: str, query: str, partitions: Collection[TopicPartition], topic_czxids: Mapping[str, int] | None = None
) -> Procedure[GroupOffsetsReport]:
    """Where the group stands now, and the end of the query's latest claim: one packet.

    The record is read before the offset: only this query writes records, so what lies between is others' alone.
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
        if found.unreadable and claimed is None:
            report.error = MalformedZnode(f"{paths.offset(group, tp)}: {found.unreadable}; repair or delete it")
            break
        report.offsets[tp] = GroupOffset(NO_OFFSET if found.offset is None else found.offset, claimed)
    return report


# --- reading ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredGroupOffset:
    """``version`` of the znode; ``offset`` None: no offset, or with ``unreadable`` no number."""

    offset: int | None
    version: int
    unreadable: str = ""


def read_nodes(wanted: list[str]) -> Procedure[list[ZnodeResult]]:
    """These nodes, in one request; nothing is asked for nothing."""
    if not wanted:
        return []
    [nodes] = yield [GetMany(tuple(wanted))]
    assert isinstance(nodes, list), "reading many gives a list"
    return nodes


def first_lost_answer(*nodes: ZnodeResult) -> ZnodeResult | None:
    """The first whose answer was lost with the connection or the session."""
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
            raise ZkNotAuthorized(f"we may not read {path}: log in as whoever made it, or open it")
        case _:
            raise UnavailableError(f"ZooKeeper did not tell about {path}: {describe_result(node)}")


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
        raise ZkNotAuthorized(f"we may not read {node.path}: log in as whoever made it, or open it")
    raise UnavailableError(f"ZooKeeper did not tell about an offset: {found}")


def latest_claim_end(record: ClaimRecord, topic_czxid: int) -> int | None:
    """The end of the latest claim; None when there is none, or it was of a topic that is gone."""
    latest = record.latest
    return None if latest is None or latest.epoch < topic_czxid else latest.end
