"""Defines which access lists are a fence, and takes over nodes that an earlier run fenced.

    the run has a login of its own    that login: everything     every entry from before: READ, if it had it (and
                                      DELETE, under ``owners``, while members still leave)     the fence entry: nothing
    it has none                       a generated login: everything     world: READ and ADMIN (and DELETE, ...)

So with a login no entry has more permissions than before, and the world never has ADMIN.  The fence entry is a digest
that no password has: it distinguishes a fence from a list that is similar, also where the members have the same login
as the run.

A run without a login of its own migrates only groups that give everything to the world.  There ``world`` keeps ADMIN,
so that the next run, whose login is another one, can take the nodes over.  This blocks programs, not people: the Scala
consumer changes no access list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from zkconsumer.zk.requests import (
    PERM_ADMIN,
    PERM_ALL,
    PERM_DELETE,
    PERM_READ,
    Acl,
    SetAcl,
)

if TYPE_CHECKING:
    from bridge.migration.control.control_znode import ControlZnode

AccessList: TypeAlias = tuple[Acl, ...]

OWN_LOGIN_ENTRY = Acl(PERM_ALL, "auth", "")
"""The login of the session; the server replaces it with the real one."""
READ_ONLY = Acl(PERM_READ | PERM_ADMIN, "world", "anyone")
READ_AND_DELETE = Acl(PERM_READ | PERM_ADMIN | PERM_DELETE, "world", "anyone")

FENCE_ACL_USER = "zkconsumer-fence"
"""The user of the fence entry's digest; the migration id replaces the hash, which always ends with ``=``."""


@dataclass(frozen=True, slots=True)
class FenceAclTemplate:
    """The lists of a fence of one run.  ``fence_entry`` None: of a run without a login of its own."""

    fence_entry: Acl | None = None

    def acl_for(self, before: Iterable[Acl], *, may_delete: bool) -> AccessList:
        """The list for a node that had this one; ``may_delete``: entries with DELETE keep it."""
        if self.fence_entry is None:
            return (OWN_LOGIN_ENTRY, READ_AND_DELETE if may_delete else READ_ONLY)
        kept = PERM_READ | (PERM_DELETE if may_delete else 0)
        others = (
            Acl(entry.perms & kept, entry.scheme, entry.id)
            for entry in before
            if entry.perms & kept and not is_fence_acl_entry(entry)
        )
        return (OWN_LOGIN_ENTRY, self.fence_entry, *others)


def fence_acl_entry(migration_id: str) -> Acl:
    """The entry that names the migration of a fence; it gives no login a permission."""
    return Acl(PERM_READ, "digest", f"{FENCE_ACL_USER}:{migration_id}")


def is_fence_acl_entry(entry: Acl) -> bool:
    """Whether an entry is the fence entry of any migration; without ADMIN the server hides its second part."""
    return entry.scheme == "digest" and entry.id.partition(":")[0] == FENCE_ACL_USER


def is_fence(acl: Sequence[Acl]) -> bool:
    """Whether a list is a fence of any run: it has a fence entry, or a run without a login sets this list."""
    if any(map(is_fence_acl_entry, acl)):
        return True
    worlds = [entry for entry in acl if entry.scheme == "world"]
    others = [entry for entry in acl if entry.scheme != "world"]
    return (
        len(worlds) == 1
        and worlds[0] in (READ_ONLY, READ_AND_DELETE)
        and bool(others)
        and all(entry.perms == PERM_ALL for entry in others)
    )


def is_same_acl(acl: Sequence[Acl], wanted: Sequence[Acl], identity: Sequence[Acl]) -> bool:
    """Whether it is this list; ``OWN_LOGIN_ENTRY`` matches ``identity``."""
    return bool(identity) and set(acl) == {*identity, *(entry for entry in wanted if entry != OWN_LOGIN_ENTRY)}


def take_over_fence_acls(authority: ControlZnode, wanted: Sequence[str]) -> None:
    """Make this run's login the one that the fences of these nodes permit; nodes without a fence are not changed.

    The run must have the lock.  Only a fence of a run without a login permits this.  A refused or lost request is
    reported by the later write that needs the permission.
    """
    lists: Mapping[str, AccessList | None] = authority.session.get_acls(wanted)
    identity = authority.own_acl_entries()
    others = [
        path for path, acl in lists.items() if acl is not None and is_fence(acl) and not set(identity) <= set(acl)
    ]
    if others and identity:
        fence = authority.fence_acl_template
        authority.write([SetAcl(path, fence.acl_for(lists[path] or (), may_delete=False)) for path in others])
