"""The lag of every ZooKeeper group in all, for the list: few requests for many groups.

The offsets of all groups are read together, and the end of each log once, however many groups read it.  A group whose
offsets are not in ZooKeeper alone (it was migrated, or a partition has an offset in Kafka only) is left to
``groups describe``; the list then shows no lag for it, and never 0.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from bridge.web.page_documents import total_json
from zkconsumer.admin.admin_session import AdminSession, AnySession
from zkconsumer.admin.broker_client import BROKER_REQUEST_ERRORS
from zkconsumer.admin.describe import UNKNOWN, GroupDescribeRow
from zkconsumer.admin.log_ranges import NO_SUCH_PARTITION, LogRange, log_ranges
from zkconsumer.admin.zookeeper_group import read_topics
from zkconsumer.admin.zookeeper_group_snapshot import configured_storage
from zkconsumer.errors import MalformedZnode
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.znode_formats import parse_control, parse_offset

if TYPE_CHECKING:
    from bridge.web.read_state import Document


def read_group_phases(session: AnySession, document: Document) -> dict[str, str]:
    """Group -> phase of its migration, of the groups that have a control znode; ``?`` if that cannot be read.

    Raises ``UnavailableError`` when ZooKeeper does not answer.
    """
    if not isinstance(session, AdminSession):
        return {}
    groups = {paths.control(one["group"]): one["group"] for one in document["groups"]}
    return {groups[path]: _phase(node.data) for path, node in session.get_many(groups).items()}


def _phase(data: bytes) -> str:
    try:
        return parse_control(data).phase
    except MalformedZnode:
        return UNKNOWN


def read_group_totals(
    session: AnySession, document: Document, migrating: Collection[str] | None = None
) -> dict[str, Document]:
    """``total_json`` by group, of the ZooKeeper groups in the document of ``groups list``.

    ``migrating``: the groups with a control znode, if they were read before.

    Groups that are missing: see above.  If brokers do not answer, their partitions count as unknown.  Raises
    ``UnavailableError`` when ZooKeeper does not answer.
    """
    if not isinstance(session, AdminSession) or configured_storage(session) in ("kafka", "dual"):
        return {}
    groups = [one["group"] for one in document["groups"] if one["kind"] != "coordinator"]
    if migrating is None:
        migrating = read_group_phases(session, document)
    groups = [group for group in groups if group not in migrating]
    offsets = _read_offsets(session, groups)
    existing = read_topics(session, {tp.topic for found in offsets.values() for tp in found})
    wanted = {
        tp
        for found in offsets.values()
        for tp in found
        if tp.topic in existing and tp.partition in existing[tp.topic].partitions
    }
    try:
        ranges: dict[TopicPartition, LogRange | str] = log_ranges(session.brokers, wanted) if wanted else {}
    except BROKER_REQUEST_ERRORS as error:
        ranges = dict.fromkeys(wanted, str(error))
    return {
        group: total_json(_row(group, tp, offset, ranges.get(tp, NO_SUCH_PARTITION)) for tp, offset in found.items())
        for group, found in offsets.items()
    }


def _read_offsets(session: AdminSession, groups: list[str]) -> dict[str, dict[TopicPartition, int | None]]:
    """Group -> partition -> its offset in ZooKeeper; None if it cannot be read."""
    roots = {paths.offsets(group): group for group in groups}
    topics = {
        f"{root}/{topic}": (roots[root], topic)
        for root, listed in session.children_of_many(roots).items()
        for topic in listed.names
    }
    places: dict[str, tuple[str, TopicPartition]] = {}
    for folder, listed in session.children_of_many(topics).items():
        group, topic = topics[folder]
        for name in listed.names:
            number = paths.partition_number(name)
            if number is not None:
                places[f"{folder}/{name}"] = group, TopicPartition(topic, number)
    found: dict[str, dict[TopicPartition, int | None]] = {group: {} for group in groups}
    for path, node in session.get_many(places).items():
        group, tp = places[path]
        try:
            offset: int | None = parse_offset(node.data)
        except MalformedZnode:
            offset = None
        found[group][tp] = offset
    return found


def _row(group: str, tp: TopicPartition, offset: int | None, log_range: LogRange | str) -> GroupDescribeRow:
    unknown = {"current_offset"} if offset is None else set()
    if isinstance(log_range, str) and log_range != NO_SUCH_PARTITION:
        unknown.add("log_end_offset")
    return GroupDescribeRow(
        group,
        tp.topic,
        tp.partition,
        current_offset=None if offset is None or offset < 0 else offset,
        log_end_offset=log_range.latest if isinstance(log_range, LogRange) else None,
        unknown=frozenset(unknown),
    )
