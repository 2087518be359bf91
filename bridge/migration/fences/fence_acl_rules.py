"""Computes the access list of a node with a fence, and of a new node, from the lists before the fence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bridge.migration.control.acl_policy import is_unmasked, matches_login
from bridge.migration.fences.fence_acls import AccessList, is_fence
from bridge.migration.fences.late_acls import acls_before_fence
from zkconsumer.zk import paths
from zkconsumer.zk.requests import OPEN_ACL, PERM_ALL, PERM_CREATE, PERM_DELETE, PERM_WRITE
from zkconsumer.zk.zk_security import SECURE_ACL

if TYPE_CHECKING:
    from bridge.migration.control.control_znode import ControlZnode
    from bridge.migration.plan.migration_plan import MigrationPlan


class FenceAclRules:
    """Computes the lists of a fence from the lists that the nodes had before.

    ``members_leave``: members may still delete their owner nodes, so those nodes keep DELETE.  ``_known``: path -> list
    from before the fence; a run without a login of its own does not need them.
    """

    def __init__(self, authority: ControlZnode, planned: Mapping[str, AccessList], members_leave: bool) -> None:
        self._authority = authority
        self._known = acls_before_fence(authority, planned) if authority.acl_policy.is_protected else {}
        self._owners = f"{paths.owners(authority.group)}/" if members_leave else None
        self._made: dict[tuple[AccessList, bool], AccessList] = {}  # a hundred thousand nodes mostly have one list

    def acl_for(self, path: str, acl: AccessList) -> AccessList:
        """The list of the fence for a node that now has the list ``acl``; ``()`` for a node that does not exist.

        If ``acl`` is already a fence, the result is computed from the list before it.  An owner node whose fence has
        lost DELETE does not get DELETE again: then no partition has an owner any more.
        """
        before = acl
        if acl == () or is_fence(acl):
            before = self._known.get(path) or acl_of_parent(self._authority, path, self._known)
        has_left = is_fence(acl) and not any(one.perms & PERM_DELETE and one.perms != PERM_ALL for one in acl)
        may_leave = self._owners is not None and path.startswith(self._owners) and not has_left
        made = self._made.get((before, may_leave))
        if made is None:
            made = self._made[before, may_leave] = self._authority.fence_acl_template.acl_for(
                before, may_delete=may_leave
            )
        return made


def acl_of_parent(authority: ControlZnode, path: str, known: Mapping[str, AccessList]) -> AccessList:
    """The list from before the fence of the nearest parent that has one: members would create a missing node with it.

    Open for a run without a login of its own, whose groups are open.
    """
    if not authority.acl_policy.is_protected:
        return OPEN_ACL
    root = paths.group_root(authority.group)
    for above in reversed(paths.parents(path)):
        if above in known and not is_fence(known[above]) and is_unmasked(known[above]):
            return known[above]
        if above == root:
            break
    acl = authority.session.get_acls([root]).get(root) or ()
    return acl if acl and is_unmasked(acl) else SECURE_ACL


def acl_of_new_offsets(authority: ControlZnode, plan: MigrationPlan) -> AccessList | None:
    """The list of offset znodes that the tool creates in a rollback.  None: open to the world.

    With an access list fence it is the list of the fence, until the lists are restored; else that of its siblings.
    """
    path = paths.offsets(authority.group)
    if plan.uses_acl_fence:
        return FenceAclRules(authority, plan.snapshot.acls, members_leave=False).acl_for(f"{path}/made", ())
    if not authority.acl_policy.is_protected:
        return None
    there = authority.session.get_acls([path])
    return acl_of_parent(authority, f"{path}/made", {path: acl for path, acl in there.items() if acl})


def blocks_group_logins(authority: ControlZnode, planned: Mapping[str, AccessList]) -> bool:
    """Whether the lists block members; they do not where a node lets only this run's login write."""
    login = authority.acl_policy.login
    if login is None:
        return True
    for acl in {one for one in planned.values() if not is_fence(one)}:
        writers = [entry for entry in acl if entry.perms & (PERM_CREATE | PERM_WRITE)]
        if writers and all(matches_login(entry, login) for entry in writers):
            return False
    return True
