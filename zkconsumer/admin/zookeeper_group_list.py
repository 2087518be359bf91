"""Every group below ``/consumers``, one line each.

Thousands of groups are read ``GROUPS_PER_BATCH`` at a time, with all reads of a batch pipelined.  Only the nodes of one
batch are in memory; of earlier groups only the line is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from zkconsumer.admin.admin_session import chunks
from zkconsumer.admin.zookeeper_group import owner_kind
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from zkconsumer.admin.admin_session import AdminSession
    from zkconsumer.zk.requests import ChildNames, Stat, ZnodeData

GROUPS_PER_BATCH = 100
"""Groups whose nodes are read together."""

_CONSOLE_GROUP = re.compile(r"console-consumer-[0-9]{1,5}", re.ASCII)


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One group.

    ``kind``: ``scala``, ``zkconsumer``, ``mixed`` or ``foreign``, inferred from the owner nodes; ``-`` without owners.
    ``topics``: owned, or with offsets.  ``last_commit_ms``: when the newest offset node was written, None if there is
    none.  ``last_write_ms``: when any znode of the group was last written.
    """

    group: str
    kind: str
    members: int
    topics: tuple[str, ...]
    last_commit_ms: int | None
    last_write_ms: int

    @property
    def is_active(self) -> bool:
        """Whether a member is registered (0.9 to 1.1: what Kafka's tools call active)."""
        return self.members > 0

    @property
    def is_stale_console_group(self) -> bool:
        """Left by a console consumer that was killed; see ``is_console_group``."""
        return not self.is_active and is_console_group(self.group)


class GroupWithOffsets(NamedTuple):
    """A group with the offset nodes that were read for its line, by topic and the name of the node."""

    line: GroupListing
    offsets: dict[tuple[str, str], ZnodeData]


def is_console_group(group: str) -> bool:
    """``console-consumer-<0…99999>``: the default group of the console consumer (0.8 to 1.1)."""
    return _CONSOLE_GROUP.fullmatch(group) is not None


def group_names(session: AdminSession) -> list[str]:
    """The children of ``/consumers`` that can be groups, sorted.  Raises ``UnavailableError``."""
    listed = session.children(paths.CONSUMERS)
    return sorted(name for name in (listed.names if listed else []) if paths.is_group(name))


def list_groups(session: AdminSession, names: Iterable[str] | None = None) -> Iterator[GroupListing]:
    """A line for each group: as ``read_groups_with_offsets``."""
    return (each.line for each in read_groups_with_offsets(session, names))


def read_groups_with_offsets(session: AdminSession, names: Iterable[str] | None = None) -> Iterator[GroupWithOffsets]:
    """Each group in the order of their names; a group that is deleted meanwhile is skipped.

    Raises ``UnavailableError`` when ZooKeeper does not answer.
    """
    for some in chunks(group_names(session) if names is None else list(names), GROUPS_PER_BATCH):
        yield from _listings(session, some)


def _listings(session: AdminSession, groups: Sequence[str]) -> Iterator[GroupWithOffsets]:
    folders = {group: (paths.ids(group), paths.owners(group), paths.offsets(group)) for group in groups}
    listed = session.children_of_many(path for three in folders.values() for path in three)
    topics = session.children_of_many(
        f"{root}/{topic}"
        for _, *roots in folders.values()
        for root in roots
        if root in listed
        for topic in listed[root].names
    )
    leaves = [f"{path}/{name}" for path, children in topics.items() for name in children.names]
    nodes = session.get_many([*map(paths.group_root, groups), *leaves])
    for group in groups:
        root = nodes.get(paths.group_root(group))
        if root is not None:
            yield _listing(group, root.stat, listed, topics, nodes)


def _listing(
    group: str,
    root: Stat,
    listed: Mapping[str, ChildNames],
    topics: Mapping[str, ChildNames],
    nodes: Mapping[str, ZnodeData],
) -> GroupWithOffsets:
    ids, owners, offsets = (listed.get(path) for path in (paths.ids(group), paths.owners(group), paths.offsets(group)))

    def below(path: str, folder: ChildNames | None) -> dict[tuple[str, str], ZnodeData]:
        found: dict[tuple[str, str], ZnodeData] = {}
        for topic in folder.names if folder else ():
            listed_topic = topics.get(f"{path}/{topic}")
            for name in listed_topic.names if listed_topic else ():
                node = nodes.get(f"{path}/{topic}/{name}")
                if node is not None:
                    found[topic, name] = node
        return found

    owner_nodes = list(below(paths.owners(group), owners).values())
    offset_nodes = below(paths.offsets(group), offsets)
    offset_stats = [node.stat for node in offset_nodes.values()]
    owner_stats = [node.stat for node in owner_nodes]
    folder_stats = [folder.stat for folder in (ids, owners, offsets) if folder]
    line = GroupListing(
        group,
        _kind(owner_nodes),
        len(ids.names) if ids else 0,
        tuple(sorted({*(owners.names if owners else ()), *(offsets.names if offsets else ())})),
        max((stat.mtime_ms for stat in offset_stats), default=None),
        max(stat.mtime_ms for stat in (root, *folder_stats, *owner_stats, *offset_stats)),
    )
    return GroupWithOffsets(line, offset_nodes)


def _kind(owners: Sequence[ZnodeData]) -> str:
    kinds = {owner_kind(node) for node in owners if node.stat.ephemeral_owner}
    if not kinds:
        return "-"
    return next(iter(kinds)) if len(kinds) == 1 else "mixed"
