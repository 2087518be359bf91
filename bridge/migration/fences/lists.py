"""Which access lists are a fence (K9), and how nodes that an earlier run fenced are taken back.

    ours: everything     world: read and administer (and delete, under ``owners``, while members still leave)

``ours`` is whoever the session is logged in as: ``auth``, which the server writes out.  ``world`` keeps the right to
administer, so that a run with another login, made up at random, can take the nodes back.  This fences programs, not
people: no program of the original changes a list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from zkconsumer.admin.session import expect
from zkconsumer.zk.requests import (
    PERM_ADMIN,
    PERM_ALL,
    PERM_DELETE,
    PERM_READ,
    Acl,
    GetAcl,
    NoAuth,
    NoNode,
    SetAcl,
)

if TYPE_CHECKING:
    from bridge.migration.authority import Authority
    from zkconsumer.admin.session import AdminSession

AccessList: TypeAlias = tuple[Acl, ...]

OURS = Acl(PERM_ALL, "auth", "")
READ_ONLY = Acl(PERM_READ | PERM_ADMIN, "world", "anyone")
MAY_LEAVE = Acl(PERM_READ | PERM_ADMIN | PERM_DELETE, "world", "anyone")


def is_fence(acl: Sequence[Acl]) -> bool:
    """Whether a list is one of ours, of whatever run: nothing else gives the world these rights and one login all."""
    worlds = [entry for entry in acl if entry.scheme == "world"]
    others = [entry for entry in acl if entry.scheme != "world"]
    return (
        len(worlds) == 1
        and worlds[0] in (READ_ONLY, MAY_LEAVE)
        and bool(others)
        and all(entry.perms == PERM_ALL for entry in others)
    )


def is_fence_of(acl: Sequence[Acl], identity: Sequence[Acl], worlds: Iterable[Acl]) -> bool:
    """Whether it is a fence that lets *us*, with one of these rights for the world."""
    return bool(identity) and any(set(acl) == {*identity, world} for world in worlds)


def read_lists(session: AdminSession, wanted: Sequence[str]) -> dict[str, AccessList | None]:
    """The lists of these nodes, in this order; None where we may not even look.  Missing nodes are left out.

    Raises ``WorldError`` when ZooKeeper does not tell.
    """
    found: dict[str, AccessList | None] = {}
    known: dict[AccessList, AccessList] = {}  # mostly one list, a hundred thousand times
    for path, answer in zip(wanted, session.ask([GetAcl(path) for path in wanted]), strict=True):
        if isinstance(answer, NoAuth):
            found[path] = None
        elif not isinstance(answer, NoNode):
            acl: AccessList = expect(answer, tuple, path)
            found[path] = known.setdefault(acl, acl)
    return found


def take_back(authority: Authority, wanted: Sequence[str]) -> None:
    """Be the one whom the fences of these nodes let; nodes without a fence stay as they are.  The run must be ours.

    What is refused or lost shows at the write that wants the right.
    """
    lists: Mapping[str, AccessList | None] = read_lists(authority.session, wanted)
    identity = authority.identity()
    others = [
        path
        for path, acl in lists.items()
        if acl is not None and is_fence(acl) and not is_fence_of(acl, identity, (READ_ONLY, MAY_LEAVE))
    ]
    if others and identity:
        authority.session.ask([SetAcl(path, (OURS, READ_ONLY)) for path in others], authority.run_session())
