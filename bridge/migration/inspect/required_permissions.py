"""The permissions that the steps of a migration need, besides reading and administering, and those that are missing.

    /consumers/G           create, delete          where ids, owners or offsets are missing: created, and deleted later
    ids                    create, delete          the rollback triggers a rebalance of old members after the
                                                   lists are restored
    /zkconsumer/groups/G   create, delete, write   where an earlier migration left it; else create on the nearest
                                                   existing parent
    without the access list fence, which gives this login all nodes of the group:
    owners, owners/T       create, delete          the owner fences
    offsets, offsets/T     create                  the rollback, for missing offset znodes
    offsets/T/P            write                   the rollback

The permissions are checked before anything is changed.  For most nodes the access lists decide.  Only the server knows
the address or the Kerberos ticket of a login, so an uncertain permission counts as present.  For offset znodes, of
which a group has many, the server itself decides (``GroupZnodes.written``).  Pure; ``acl_inspection`` sends the
requests.
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
    """The nodes of a group that a migration reads and changes.  ``offsets``: partitions that have an offset znode."""

    group: str
    topics: Collection[str]
    offsets: Collection[TopicPartition]
    acl_fence: bool

    @property
    def written(self) -> list[str]:
        """The paths of the offset znodes that the rollback writes.  No other permission on them is needed."""
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
        """Path -> permissions, for the existing nodes."""
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
    """The missing permissions, and what to do; without a period at the end."""
    return (
        f"the steps need permissions that this login lacks on {count_text(len(lacking), 'node')}: {_first(lacking)}. "
        "Log in as a user that their access lists name (zookeeper.auth in a --config file, --zookeeper-auth), or have "
        "it added"
    )


def _first(names: Iterable[str]) -> str:
    shown = list(names)
    more = len(shown) - NAMED_MAX
    return ", ".join(shown[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
