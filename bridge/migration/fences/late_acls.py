"""Stores the access lists from before the fence that the plan does not contain, or not in this form.

    /zkconsumer/groups/G/acls-0000    {"schema": ..., "lists": {path: [[rights, scheme, id], ...]}}, gzip

The plan was made while members ran: clients created offsets and topics after it, and a session without ADMIN does not
receive whole lists.  So the lists that are found when the fence is set are stored first.  Each piece is complete and is
never overwritten; where two pieces name a node, the later one is valid.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from bridge.migration.control.acl_policy import format_acl, is_owned_by_login
from bridge.migration.control.control_layout import ACL_PIECE_PREFIX, acl_piece_name
from bridge.migration.control.control_pieces import DamagedPiecesError, pack, read_pieces, store_child, unpack
from bridge.migration.errors import VerificationError
from zkconsumer.zk import paths
from zkconsumer.zk.requests import Acl

if TYPE_CHECKING:
    from bridge.migration.control.control_znode import ControlZnode
    from bridge.migration.fences.fence_acls import AccessList

SCHEMA = "zkconsumer.migration.acls/1"
LISTS_MAX = 5_000
"""The maximum of lists in one piece, if they fit."""


def read_late_acls(authority: ControlZnode) -> dict[str, AccessList]:
    """Path -> list.

    Raises ``VerificationError`` for a piece that cannot be read, since its lists exist nowhere else, and for one that
    other logins than this run's may have written.
    """
    found: dict[str, AccessList] = {}
    pieces = read_pieces(authority.session, authority.group, ACL_PIECE_PREFIX)
    _check_ours(authority, list(pieces))
    for name, data in pieces.items():
        try:
            found |= _parse(data)
        except (DamagedPiecesError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise VerificationError(
                f"{paths.control_child(authority.group, name)} is damaged ({type(error).__name__}): it contains access "
                "lists that the migration must restore. Set those of the group manually, then delete that node"
            ) from error
    return found


def _check_ours(authority: ControlZnode, names: list[str]) -> None:
    login = authority.acl_policy.login
    if login is None or not names:
        return
    wanted = [paths.control_child(authority.group, name) for name in names]
    for path, acl in authority.session.get_acls(wanted).items():
        if acl is None or not is_owned_by_login(acl, login, 0):
            raise VerificationError(
                f"{path} has the access list {format_acl(acl or ())}, so a client other than "
                f"{authority.acl_policy.login_text} may have written its data. Nothing was restored. Set the lists of "
                f"group {authority.group} manually, then delete that node"
            )


def acls_before_fence(authority: ControlZnode, planned: Mapping[str, AccessList]) -> dict[str, AccessList]:
    """Every known list from before the fence; raises as ``read_late_acls`` does."""
    return {**planned, **read_late_acls(authority)}


def store_late_acls(authority: ControlZnode, lists: Mapping[str, AccessList]) -> None:
    """Store the lists in a new piece after the existing ones.  Raises ``PartiallyDoneError``, ``UnavailableError``."""
    taken = read_pieces(authority.session, authority.group, ACL_PIECE_PREFIX)
    number = max((int(name.removeprefix(ACL_PIECE_PREFIX)) for name in taken), default=-1) + 1
    for piece in _pieces(lists):
        store_child(authority, acl_piece_name(number), piece)
        number += 1


def _pieces(lists: Mapping[str, AccessList]) -> Iterator[bytes]:
    rest = iter(lists.items())
    while some := dict(islice(rest, LISTS_MAX)):
        yield from _halved(some)


def _halved(lists: Mapping[str, AccessList]) -> Iterator[bytes]:
    rows = {path: [[entry.perms, entry.scheme, entry.id] for entry in acl] for path, acl in lists.items()}
    [first, *more] = pack(json.dumps({"schema": SCHEMA, "lists": rows}).encode())
    if not more or len(lists) == 1:
        yield b"".join((first, *more))
        return
    items = list(lists.items())
    for half in (items[: len(items) // 2], items[len(items) // 2 :]):
        yield from _halved(dict(half))


def _parse(data: bytes) -> dict[str, AccessList]:
    read = json.loads(unpack([data]))
    if read["schema"] != SCHEMA:
        raise ValueError("another schema")
    return {path: tuple(_entry(*entry) for entry in acl) for path, acl in read["lists"].items()}


def _entry(perms: object, scheme: object, name: object) -> Acl:
    if not isinstance(perms, int) or not isinstance(scheme, str) or not isinstance(name, str):
        raise TypeError("no entry of a list")
    return Acl(perms, scheme, name)
