"""Reads the access lists that a fence would change, and finds the permissions that this login lacks.

    ids, owners, owners/T, offsets, offsets/T, offsets/T/P       of the group, those that exist

A list names logins.  For an address (``ip``), a certificate or a Kerberos ticket only the server can decide whether the
entry means this login.  So only a list that certainly excludes this login counts as forbidden; the server decides the
rest.

A group has too many offset znodes to read the list of each (one request a node: 5.4 s for 100,000 on ZooKeeper 3.8.4).
For these ``unwritable`` sends writes that the server checks and then refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.migration.fences.fence_acls import is_fence
from bridge.migration.inspect.required_permissions import PERMISSION_NAMES
from zkconsumer.admin.admin_session import chunks, unexpected_result_error
from zkconsumer.zk import paths
from zkconsumer.zk.requests import (
    IMPOSSIBLE_VERSION,
    PERM_ADMIN,
    PERM_WRITE,
    Acl,
    BadVersion,
    CheckOp,
    ConnectionLost,
    Multi,
    MultiFailed,
    NoAuth,
    NoNode,
    SetOp,
)
from zkconsumer.zk.zk_security import SaslGssapiLogin, ZkLogin, identities, zk_login_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bridge.migration.inspect.required_permissions import GroupZnodes
    from zkconsumer.admin.admin_session import AdminSession
    from zkconsumer.admin.zookeeper_group import ZooKeeperGroup

ANYONE = ("world", "anyone")
SUPER_USER = "super"
"""A digest user with this name has every permission, if the server has configured one."""

SERVER_CHECKED_SCHEMES = ("ip", "x509", "host", "auth")

WRITES_IN_ONE_PACKET = 100
"""The time in which a server undoes a failed multi grows with the square of its length: with 3.8.4 and 3.4.6, one of
1,000 writes takes three times as long as ten of 100."""

DATA_BYTES_IN_ONE_PACKET = 1_000
"""A node with more data than this is not an offset znode; its write has a packet of its own."""

TRIES_MAX = 3
"""How often a packet is sent again after the connection lost its answer.  It changes nothing: a server always refuses
it."""


def inspect_acls(session: AdminSession, state: ZooKeeperGroup) -> tuple[dict[str, tuple[Acl, ...]], tuple[str, ...]]:
    """Path → list of the existing nodes, and the paths whose list this login may not change.

    Raises ``UnavailableError`` when ZooKeeper does not answer.
    """
    lists = session.get_acls(_fenced_paths(state))
    login = zk_login_of(session.config)
    found = {path: acl for path, acl in lists.items() if acl is not None}
    ours = {acl: has_permission(acl, login, PERM_ADMIN) for acl in set(found.values())}
    forbidden = [path for path, acl in lists.items() if acl is None or not ours[acl]]
    return found, tuple(sorted(forbidden))


def missing_permissions(
    session: AdminSession, nodes: GroupZnodes, before: Mapping[str, tuple[Acl, ...]] | None = None
) -> tuple[str, ...]:
    """The nodes on which this login lacks a permission, each with which: ``/consumers/g/ids (create, delete)``.

    ``before``: for nodes with a fence, the lists that are restored before the permissions are needed.
    Raises ``UnavailableError`` when ZooKeeper does not answer.
    """
    before = before or {}
    written = [path for path in nodes.written if path not in before]
    by_list = [path for path in nodes.written if path in before]
    lists = session.get_acls([*nodes.all_paths, *by_list])
    needed = nodes.required_perms(lists) | {path: PERM_WRITE for path in by_list if path in lists}
    login = zk_login_of(session.config)
    found = [f"{path} ({PERMISSION_NAMES[PERM_WRITE]})" for path in unwritable(session, written)]
    known: dict[tuple[object, int], bool] = {}
    for path, perms in needed.items():
        acl = _acl_without_fence(path, lists, before) if before else lists[path]
        if acl is None:  # this login may not read the list: another check reports it
            continue
        lacking = []
        for perm in (perm for perm in PERMISSION_NAMES if perms & perm):
            if (acl, perm) not in known:
                known[acl, perm] = has_permission(acl, login, perm)
            if not known[acl, perm]:
                lacking.append(PERMISSION_NAMES[perm])
        if lacking:
            found.append(f"{path} ({', '.join(lacking)})")
    return tuple(sorted(found))


def unwritable(session: AdminSession, wanted: Sequence[str]) -> list[str]:
    """The existing nodes that the server does not let this login write.  Changes nothing.

    Each packet is a multi that writes to a hundred nodes the data that they contain already, and ends with a check that
    always fails.  A server checks the permission for each operation in order, and executes none when one fails:
    ``NoAuth`` names the first node that this login may not write; if only the last operation fails, it may write all
    of them (seen with ZooKeeper 3.4.6 and 3.8.4).  So the server decides, also for logins by address, certificate or
    Kerberos.

    Raises ``ZkReadNotAuthorized`` for nodes that this login may not read, ``UnavailableError`` when ZooKeeper does not
    answer.
    """
    nodes = session.get_many(wanted)
    short = [(path, node.data) for path, node in nodes.items() if len(node.data) <= DATA_BYTES_IN_ONE_PACKET]
    pending = list(chunks(short, WRITES_IN_ONE_PACKET))
    pending += [[(path, node.data)] for path, node in nodes.items() if len(node.data) > DATA_BYTES_IN_ONE_PACKET]
    refused: list[str] = []
    tries = 1
    while pending:
        packets = [
            Multi((*(SetOp(*each) for each in some), CheckOp(some[0][0], IMPOSSIBLE_VERSION))) for some in pending
        ]
        left: list[list[tuple[str, bytes]]] = []
        is_lost = False
        for some, answer in zip(pending, session.request(packets), strict=True):
            match answer:
                case MultiFailed(failed=failed, error=BadVersion()) if failed == len(some):
                    rest = []
                case MultiFailed(failed=failed, error=NoAuth()) if failed < len(some):
                    refused.append(some[failed][0])
                    rest = some[failed + 1 :]
                case MultiFailed(failed=failed, error=NoNode()) if failed < len(some):  # deleted since it was read
                    rest = some[:failed] + some[failed + 1 :]
                case ConnectionLost() if tries < TRIES_MAX:
                    rest, is_lost = some, True
                case _:
                    raise unexpected_result_error(f"ZooKeeper did not report whether we may write {some[0][0]}", answer)
            left += [rest] if rest else []
        pending, tries = left, tries + is_lost
    return refused


def _acl_without_fence(
    path: str, lists: Mapping[str, tuple[Acl, ...] | None], before: Mapping[str, tuple[Acl, ...]]
) -> tuple[Acl, ...] | None:
    """The list that a node has after the fence is removed.

    ``before`` does not contain a node that was created for the fence: it is deleted then, or it gets its parent's list.
    """
    acl = lists.get(path)
    if acl is None or not is_fence(acl):
        return acl
    above = path.rpartition("/")[0]
    return before.get(path) or (_acl_without_fence(above, lists, before) if above in lists else acl)


def has_permission(acl: tuple[Acl, ...], login: ZkLogin | None, perm: int) -> bool:
    """Whether a list gives this login the permission, as far as the client can decide it; if unknown, True."""
    own = identities(login)
    if ("digest", SUPER_USER) in {(scheme, name.partition(":")[0]) for scheme, name in own}:
        return True
    for entry in acl:
        if entry.perms & perm and (
            (entry.scheme, entry.id) in (ANYONE, *own)
            or entry.scheme in SERVER_CHECKED_SCHEMES
            or (entry.scheme == "sasl" and isinstance(login, SaslGssapiLogin))
        ):
            return True
    return False


def _fenced_paths(state: ZooKeeperGroup) -> list[str]:
    group = state.group
    above = [paths.ids(group), paths.owners(group), paths.offsets(group)]
    topics = [paths.owners_of_topic(group, topic) for topic in sorted(state.owned_topics)]
    topics += [paths.offsets_of_topic(group, topic) for topic in sorted(state.offset_topics)]
    return [*above, *topics, *(paths.offset(group, tp) for tp in state.offsets)]
