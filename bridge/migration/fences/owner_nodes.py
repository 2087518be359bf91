"""Reads the owner nodes of a group, and makes the error texts about those that block a migration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from bridge.migration.errors import PartiallyDoneError
from bridge.migration.fences.fence_record import parse_fence_record
from zkconsumer.admin.admin_session import zk_error_name
from zkconsumer.admin.zookeeper_group import read_topics
from zkconsumer.errors import InvalidNameError
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.group_procedures import owner_text
from zkconsumer.zk.requests import CheckOp, MultiFailed, NoAuth, NodeExists, NoNode, ZnodeData

if TYPE_CHECKING:
    from zkconsumer.admin.admin_session import AdminSession

NAMED_MAX = 20
"""How many partitions an error names."""

SIZE_OF_CONTROL_CHECK = CheckOp("/", 0)
"""For counting: the operations before those of each multi."""


def read_owner_nodes(session: AdminSession, group: str) -> dict[TopicPartition, ZnodeData]:
    """Every existing node ``owners/T/P``; other names are ignored."""
    listed = session.children(paths.owners(group))
    topics = [name for name in (listed.names if listed else ()) if is_topic(name)]
    return read_some_owner_nodes(session, group, [tp for topic in topics for tp in _children(session, group, topic)])


def _children(session: AdminSession, group: str, topic: str) -> list[TopicPartition]:
    listed = session.children(paths.owners_of_topic(group, topic))
    numbers = (paths.partition_number(name) for name in (listed.names if listed else ()))
    return [TopicPartition(topic, number) for number in numbers if number is not None]


def read_some_owner_nodes(
    session: AdminSession, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ZnodeData]:
    """The existing nodes of these partitions."""
    where = {paths.owner(group, tp): tp for tp in sorted(partitions)}
    return {where[path]: node for path, node in session.get_many(where).items()}


def read_group_partitions(session: AdminSession, group: str, known: Iterable[str]) -> list[TopicPartition]:
    """Every partition that the group has or could acquire: of its topics as they are now, and of its znodes.

    ``known``: topics of the group that no znode of it names.
    """
    found: set[TopicPartition] = set()
    topics = set(known)
    for root in (paths.owners(group), paths.offsets(group)):
        listed = session.children(root)
        names = [name for name in (listed.names if listed else ()) if is_topic(name)]
        topics.update(names)
        for path, children in session.children_of_many(f"{root}/{name}" for name in names).items():
            numbers = (paths.partition_number(name) for name in children.names)
            found.update(TopicPartition(path.rpartition("/")[2], number) for number in numbers if number is not None)
    for topic, state in read_topics(session, topics).items():
        found.update(TopicPartition(topic, number) for number in state.partitions)
    return sorted(found)


def is_topic(name: str) -> bool:
    """Whether a child of ``owners`` or ``offsets`` is a topic."""
    try:
        paths.check_topic(name)
    except InvalidNameError:
        return False
    return True


def format_partitions(partitions: Sequence[TopicPartition]) -> str:
    """The first partitions, and how many more there are."""
    more = len(partitions) - NAMED_MAX
    return ", ".join(map(str, partitions[:NAMED_MAX])) + (f" and {more} more" if more > 0 else "")


def member_registered_error(group: str, members: Sequence[str]) -> PartiallyDoneError:
    """The error for a member that registered between two steps."""
    more = f" and {len(members) - 5} more" if len(members) > 5 else ""
    return PartiallyDoneError(
        f"{', '.join(members[:5])}{more} registered in group {group} after all members had left: stop the program "
        "that starts it, and run the same command again. The completed steps remain"
    )


def foreign_owner_error(
    group: str, strangers: Mapping[TopicPartition, ZnodeData], migration_id: str
) -> PartiallyDoneError:
    """The error for partitions that other clients own."""
    words = [_foreign_owner_text(tp, node, migration_id) for tp, node in sorted(strangers.items())]
    more = f"; and {len(words) - NAMED_MAX} more" if len(words) > NAMED_MAX else ""
    return PartiallyDoneError(
        f"{'; '.join(words[:NAMED_MAX])}{more}. Then run the same command again for group {group}"
    )


def _foreign_owner_text(tp: TopicPartition, node: ZnodeData, migration_id: str) -> str:
    mark = parse_fence_record(node.data)
    if node.stat.ephemeral_owner:
        return f"{tp} is owned by {owner_text(node)} (session {node.stat.ephemeral_owner:#x}): stop that member"
    if mark is None:
        return f"another program created a persistent owner node of {tp} ({owner_text(node)}): delete it"
    if mark.migration_id == migration_id:
        return f"{tp} is fenced at epoch {mark.epoch}, later than this run's: another run took over; wait for its end"
    return (
        f"{tp} is fenced by migration {mark.migration_id}, which has no control znode: if that migration is not "
        "active, delete the node and its child"
    )


def multi_error_text(answer: object) -> str:
    match answer:
        case MultiFailed(path, _, NoAuth()):
            return f"no permission to write {path} (NoAuth): give the login that created it, with --zookeeper-auth"
        case MultiFailed(path, _, NodeExists() | NoNode()):
            return f"{path} changed in every try"
        case MultiFailed(path, _, error):
            return f"{path}: {zk_error_name(error)}"
    return "the connection to ZooKeeper broke in every try"
