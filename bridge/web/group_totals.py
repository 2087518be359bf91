"""The lag of every ZooKeeper group in all, for the list: few requests for many groups.

The offsets are those that were read for the list, and the end of each log is read once, however many groups read it.
A group whose offsets are not in ZooKeeper alone (it was migrated, or a partition has an offset in Kafka only) is left
to ``groups describe``; the list then shows no lag for it, and never 0.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, TypeAlias

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
    from zkconsumer.admin.zookeeper_group_list import GroupWithOffsets

StoredOffsets: TypeAlias = dict[str, dict[TopicPartition, int | None]]
"""Group -> partition -> its offset in ZooKeeper; None if it cannot be read."""


def stored_offsets(group: GroupWithOffsets) -> dict[TopicPartition, int | None]:
    """The group's offsets in ZooKeeper; None for one that cannot be read."""
    found: dict[TopicPartition, int | None] = {}
    for (topic, name), node in group.offsets.items():
        number = paths.partition_number(name)
        if number is None:
            continue
        try:
            offset: int | None = parse_offset(node.data)
        except MalformedZnode:
            offset = None
        found[TopicPartition(topic, number)] = offset
    return found


def read_group_phases(session: AnySession, document: Document) -> dict[str, str]:
    """Group -> phase of its migration, of the groups that have a control znode; ``?`` if that cannot be read.

    Raises ``UnavailableError`` when ZooKeeper does not answer.
    """
    if not isinstance(session, AdminSession):
        return {}
    groups = {paths.control(group): group for one in document["groups"] if paths.is_group(group := one["group"])}
    return {groups[path]: _phase(node.data) for path, node in session.get_many(groups).items()}


def _phase(data: bytes) -> str:
    try:
        return parse_control(data).phase
    except MalformedZnode:
        return UNKNOWN


def read_group_totals(session: AnySession, stored: StoredOffsets, migrating: Collection[str]) -> dict[str, Document]:
    """``total_json`` by group.

    ``migrating``: the groups with a control znode, which are left out.

    Groups that are missing: see above.  If brokers do not answer, their partitions count as unknown.  Raises
    ``UnavailableError`` when ZooKeeper does not answer.
    """
    if not isinstance(session, AdminSession) or configured_storage(session) in ("kafka", "dual"):
        return {}
    offsets = {group: found for group, found in stored.items() if group not in migrating}
    existing = read_topics(session, {tp.topic for found in offsets.values() for tp in found})
    wanted = {
        tp
        for tp in {tp for found in offsets.values() for tp in found}
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
