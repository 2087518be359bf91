"""Which rights the steps of a move need, besides those to read and to administer, and which of them we lack.

    /consumers/G           create, delete          where ids, owners or offsets are missing: made, and taken away again
    ids                    create, delete          the way back wakes old members (K7), when the lists are as before
    /zkconsumer/groups/G   create, delete, write   where an earlier migration left it; else create on the nearest node
                                                   above it
    without the fence of access lists, behind which the nodes of the group are ours:
    owners, owners/T       create, delete          the owner fences (K2)
    offsets, offsets/T     create                  the way back, of what has no node yet
    offsets/T/P            write                   the way back

Looked at before anything is changed.  For most nodes the access lists decide.  Which address or Kerberos ticket a login
has, only the server can tell, so in doubt we have a right.  The server itself decides for offset znodes, of which a
group has many (``GroupZnodes.written``).  Pure; ``acl_inspection`` sends the requests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zkconsumer.admin.text_format import count_text
from zkconsumer.zk import paths
from zkconsumer.zk.requests import PERM_CREATE, PERM_DELETE, PERM_WRITE

if TYPE_CHECKING:
    from zkconsumer.types import TopicPartition

NAMED_MAX = 20
"""How many nodes a sentence names."""

PERMISSION_NAMES = {PERM_CREATE: "create", PERM_DELETE: "delete", PERM_WRITE: "write"}


@dataclass(frozen=True, slots=True)
class GroupZnodes:
    """The nodes of a group that a move reads and changes.  ``offsets``: the partitions that have an offset znode."""

    group: str
    topics: Collection[str]
    offsets: Collection[TopicPartition]
    acl_fence: bool

    @property
    def written(self) -> list[str]:
        """The paths of the offset znodes that the way back writes.  No other right on them is needed."""
        return [] if self.acl_fence else [paths.offset(self.group, tp) for tp in self.offsets]

    @property
    def all_paths(self) -> list[str]:
        """The paths of the other nodes, whether they exist or not."""
        group = self.group
        below = [paths.ids(group), paths.owners(group), paths.offsets(group)]
        control = paths.control(group)
        found = ["/", *paths.parents(control), control, paths.group_root(group), *below]
        if not self.acl_fence:
            found += [self._below(topic)[root] for topic in sorted(self.topics) for root in (0, 1)]
        return found

    def _below(self, topic: str) -> tuple[str, str]:
        return paths.owners_of_topic(self.group, topic), paths.offsets_of_topic(self.group, topic)

    def required_perms(self, there: Collection[str]) -> dict[str, int]:
        """Path -> rights, for the nodes of ``all`` that exist."""
        group = self.group
        owners, offsets, ids = paths.owners(group), paths.offsets(group), paths.ids(group)
        control = paths.control(group)
        above = [path for path in ("/", *paths.parents(control)) if path in there]
        wanted = {ids: PERM_CREATE | PERM_DELETE}
        if not {ids, owners, offsets}.issubset(there):
            wanted[paths.group_root(group)] = PERM_CREATE | PERM_DELETE
        if control in there:
            wanted[control] = PERM_CREATE | PERM_DELETE | PERM_WRITE
        else:
            wanted |= dict.fromkeys(above[-1:], PERM_CREATE)
        if not self.acl_fence:
            below = [self._below(topic) for topic in self.topics]
            wanted |= dict.fromkeys((of_owners for of_owners, _ in below), PERM_CREATE | PERM_DELETE)
            wanted |= dict.fromkeys((of_offsets for _, of_offsets in below), PERM_CREATE)
            if any(of_owners not in there for of_owners, _ in below):
                wanted[owners] = PERM_CREATE | PERM_DELETE
            if any(of_offsets not in there for _, of_offsets in below):
                wanted[offsets] = PERM_CREATE
        return {path: perms for path, perms in wanted.items() if path in there}


def missing_permissions_text(lacking: Collection[str]) -> str:
    """Which they are, and what to do; the sentence has no end."""
    return (
        f"the steps need rights that we do not have on {count_text(len(lacking), 'node')}: {_first(lacking)}. Log in "
        "as "
        "whom their access lists name (zookeeper.auth in a --config file, --zookeeper-auth), or have them added"
    )


def _first(names: Iterable[str]) -> str:
    shown = list(names)
    more = len(shown) - NAMED_MAX
    return ", ".join(shown[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
