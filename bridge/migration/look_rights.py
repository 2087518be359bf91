"""The access lists that a fence would change, those that we may not, and the other rights that we lack.

    ids, owners, owners/T, offsets, offsets/T, offsets/T/P       of the group, as far as they are there

A list tells who may; whether that is us, hangs on the login.  Only what certainly is not ours counts as forbidden: who
an address (``ip``), a certificate or a Kerberos ticket is, only the server can tell, and it will.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.migration.fences.lists import is_fence
from bridge.migration.needed_rights import RIGHT_WORDS
from zkconsumer.zk import paths
from zkconsumer.zk.requests import PERM_ADMIN, Acl
from zkconsumer.zk.security import Login, SaslGssapi, identities, login_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.migration.needed_rights import Nodes
    from zkconsumer.admin.groups import GroupState
    from zkconsumer.admin.session import AdminSession

ANYONE = ("world", "anyone")
SUPER = "super"
"""A digest user of this name has every right, if the server knows one."""

ONLY_THE_SERVER_KNOWS = ("ip", "x509", "host", "auth")


def access_lists(
    session: AdminSession, state: GroupState
) -> tuple[dict[str, tuple[Acl, ...]], tuple[str, ...]]:
    """Path → list of the nodes that are there, and the paths whose list we may not change.

    Raises ``WorldError`` when ZooKeeper does not tell.
    """
    lists = session.access_lists(_fenced(state))
    login = login_of(session.config)
    found = {path: acl for path, acl in lists.items() if acl is not None}
    ours = {acl: may(acl, login, PERM_ADMIN) for acl in set(found.values())}
    forbidden = [path for path, acl in lists.items() if acl is None or not ours[acl]]
    return found, tuple(sorted(forbidden))


def lacking_rights(
    session: AdminSession, nodes: Nodes, before: Mapping[str, tuple[Acl, ...]] | None = None
) -> tuple[str, ...]:
    """The nodes on which we lack a right, each with which: ``/consumers/g/ids (create, delete)``.

    ``before``: lists that come back before the rights are needed, of nodes that have a fence's list now.
    Raises ``WorldError`` when ZooKeeper does not tell.
    """
    lists = session.access_lists(nodes.all)
    login = login_of(session.config)
    found = []
    known: dict[tuple[object, int], bool] = {}
    for path, perms in sorted(nodes.needed(lists).items()):
        acl = _list_behind(path, lists, before) if before else lists[path]
        if acl is None:  # we may not even look at it: told elsewhere
            continue
        lacking = []
        for perm in (perm for perm in RIGHT_WORDS if perms & perm):
            if (acl, perm) not in known:
                known[acl, perm] = may(acl, login, perm)
            if not known[acl, perm]:
                lacking.append(RIGHT_WORDS[perm])
        if lacking:
            found.append(f"{path} ({', '.join(lacking)})")
    return tuple(found)


def _list_behind(
    path: str, lists: Mapping[str, tuple[Acl, ...] | None], before: Mapping[str, tuple[Acl, ...]]
) -> tuple[Acl, ...] | None:
    """The list that a node has once the fence is lifted.

    A node that was made for the fence is in no list of ``before``: it goes then, or it gets the list of the node above.
    """
    acl = lists.get(path)
    if acl is None or not is_fence(acl):
        return acl
    above = path.rpartition("/")[0]
    return before.get(path) or (_list_behind(above, lists, before) if above in lists else acl)


def may(acl: tuple[Acl, ...], login: Login | None, perm: int) -> bool:
    """Whether whoever is logged in so has this right by a list, as far as that can be told here: in doubt, yes."""
    own = identities(login)
    if ("digest", SUPER) in {(scheme, name.partition(":")[0]) for scheme, name in own}:
        return True
    for entry in acl:
        if entry.perms & perm and (
            (entry.scheme, entry.id) in (ANYONE, *own)
            or entry.scheme in ONLY_THE_SERVER_KNOWS
            or (entry.scheme == "sasl" and isinstance(login, SaslGssapi))
        ):
            return True
    return False


def _fenced(state: GroupState) -> list[str]:
    group = state.group
    above = [paths.ids(group), paths.owners(group), paths.offsets(group)]
    topics = [paths.owners_of_topic(group, topic) for topic in sorted(state.owned_topics)]
    topics += [paths.offsets_of_topic(group, topic) for topic in sorted(state.offset_topics)]
    return [*above, *topics, *(paths.offset(group, tp) for tp in state.offsets)]
