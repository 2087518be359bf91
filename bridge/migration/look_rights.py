"""The access lists that a fence would change, and those that we may not.

    ids, owners, owners/T, offsets, offsets/T, offsets/T/P       of the group, as far as they are there

A list tells who may; whether that is us, hangs on the login.  Only what certainly is not ours counts as forbidden: who
an address (``ip``), a certificate or a Kerberos ticket is, only the server can tell, and it will.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.admin.session import untold
from zkconsumer.zk import paths
from zkconsumer.zk.requests import PERM_ADMIN, Acl, GetAcl, NoAuth, NoNode
from zkconsumer.zk.security import Login, SaslGssapi, identities, login_of

if TYPE_CHECKING:
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

    A question a node.  Raises ``WorldError`` when ZooKeeper does not tell.
    """
    wanted = _fenced(state)
    login = login_of(session.config)
    found: dict[str, tuple[Acl, ...]] = {}
    forbidden: list[str] = []
    known: dict[tuple[Acl, ...], tuple[Acl, ...]] = {}
    for path, answer in zip(wanted, session.ask([GetAcl(path) for path in wanted]), strict=True):
        match answer:
            case tuple():
                found[path] = known.setdefault(answer, answer)
            case NoAuth():
                forbidden.append(path)
            case NoNode():
                continue
            case other:
                raise untold(f"ZooKeeper did not tell the access list of {path}", other)
    may = {acl: may_administer(acl, login) for acl in known}
    forbidden += [path for path, acl in found.items() if not may[acl]]
    return found, tuple(sorted(forbidden))


def may_administer(acl: tuple[Acl, ...], login: Login | None) -> bool:
    """Whether whoever is logged in so may change this list, as far as that can be told here: in doubt, yes."""
    own = identities(login)
    if ("digest", SUPER) in {(scheme, name.partition(":")[0]) for scheme, name in own}:
        return True
    for entry in acl:
        if entry.perms & PERM_ADMIN and (
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
