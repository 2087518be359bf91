"""The znodes of the fake ZooKeeper: what one server holds, and what an operation does to it.  Pure.

Checks come in the order in which ZooKeeper's own request processor makes them, so that the *same* error is the
answer when several would do; ``tests/conformance`` runs one set of cases over this and over real servers.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

from zkconsumer.zk.packets import store_error_of
from zkconsumer.zk.requests import (
    ANY_VERSION,
    OPEN_ACL,
    PERM_ADMIN,
    PERM_CREATE,
    PERM_DELETE,
    PERM_READ,
    PERM_WRITE,
    Acl,
    BadVersion,
    CheckOp,
    ChildNames,
    CreateOp,
    DeleteOp,
    MultiFailed,
    MultiOk,
    NoAuth,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    SetOp,
    Stat,
    StoreError,
    ZnodeAcl,
    ZnodeData,
)

_NO_CHILDREN_FOR_EPHEMERALS = -108
_BAD_ARGUMENTS = -8
_INVALID_ACL = -114


AuthIds: TypeAlias = frozenset[tuple[str, str]]
"""As whom a session is logged in: schemes and ids."""

NO_AUTH_IDS: AuthIds = frozenset()
ANYONE = ("world", "anyone")


class ZnodeChange(NamedTuple):
    """Something that a watch may be waiting for."""

    path: str
    kind: Literal["created", "deleted", "data"]


@dataclass(slots=True)
class _Znode:
    data: bytes
    acl: tuple[Acl, ...]
    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    ephemeral_owner: int = 0
    version: int = 0
    cversion: int = 0
    aversion: int = 0
    children: set[str] = field(default_factory=set)

    def stat(self) -> Stat:
        return Stat(
            czxid=self.czxid,
            mzxid=self.mzxid,
            version=self.version,
            cversion=self.cversion,
            pzxid=self.pzxid,
            ephemeral_owner=self.ephemeral_owner,
            num_children=len(self.children),
            data_length=len(self.data),
            ctime_ms=self.ctime_ms,
            mtime_ms=self.mtime_ms,
            aversion=self.aversion,
        )

    def write(self, data: bytes, version: int, mzxid: int, mtime_ms: int) -> None:
        self.data, self.version, self.mzxid, self.mtime_ms = data, version, mzxid, mtime_ms

    def allows(self, perm: int, auth_ids: AuthIds) -> bool:
        return any(entry.perms & perm and (entry.scheme, entry.id) in (ANYONE, *auth_ids) for entry in self.acl)


def parent_of(path: str) -> str:
    """The path of a node's parent; that of ``/`` is ``/``."""
    return path.rpartition("/")[0] or "/"


def name_of(path: str) -> str:
    """The last component of a path."""
    return path.rpartition("/")[2]


def _effective_acl(acl: tuple[Acl, ...], auth_ids: AuthIds) -> tuple[Acl, ...]:
    """A list as it is kept: ``auth`` stands for everybody as whom the session is logged in; nothing, when nobody."""
    kept: list[Acl] = []
    for entry in acl:
        if entry.scheme != "auth":
            kept.append(entry)
        elif not auth_ids:
            return ()
        kept += [Acl(entry.perms, scheme, name) for scheme, name in sorted(auth_ids) if entry.scheme == "auth"]
    return tuple(dict.fromkeys(kept))


def _without_hash(entry: Acl) -> Acl:
    if entry.scheme != "digest":
        return entry
    return Acl(entry.perms, entry.scheme, f"{entry.id.partition(':')[0]}:x")


_OpResult: TypeAlias = str | Stat | StoreError | None


class ZnodeTree:
    """All znodes by absolute path.  Of access control lists entries for addresses (``ip``) are for nobody here."""

    def __init__(self) -> None:
        self.zxid = 0
        self._nodes = {"/": _Znode(b"", OPEN_ACL, 0, 0, 0, 0, 0)}
        self._ephemerals: dict[int, dict[str, None]] = {}
        self._undo: list[Callable[[], None]] = []

    def get(self, path: str, auth_ids: AuthIds = NO_AUTH_IDS) -> ZnodeData | StoreError:
        node = self._nodes.get(path)
        if node is None:
            return NoNode(path)
        return ZnodeData(node.data, node.stat()) if node.allows(PERM_READ, auth_ids) else NoAuth(path)

    def exists(self, path: str, auth_ids: AuthIds = NO_AUTH_IDS) -> Stat | StoreError | None:
        """Needs the right to read, as on recent servers; the old ones tell everybody."""
        node = self._nodes.get(path)
        if node is None:
            return None
        return node.stat() if node.allows(PERM_READ, auth_ids) else NoAuth(path)

    def get_acl(self, path: str, auth_ids: AuthIds = NO_AUTH_IDS) -> tuple[Acl, ...] | StoreError:
        """Needs the right to read or to administer, as on recent servers; the old ones tell everybody.

        Who may not administer is not told the hash of a password.
        """
        node = self._nodes.get(path)
        if node is None:
            return NoNode(path)
        if not node.allows(PERM_READ | PERM_ADMIN, auth_ids):
            return NoAuth(path)
        is_told_all = node.allows(PERM_ADMIN, auth_ids)
        return tuple(entry if is_told_all else _without_hash(entry) for entry in node.acl)

    def node_acl(self, path: str, auth_ids: AuthIds = NO_AUTH_IDS) -> ZnodeAcl | StoreError:
        """See ``get_acl``."""
        acl = self.get_acl(path, auth_ids)
        return acl if isinstance(acl, StoreError) else ZnodeAcl(acl, self._nodes[path].stat())

    def has_node(self, path: str) -> bool:
        """Whether there is such a node, for who runs the server."""
        return path in self._nodes

    def data(self, path: str) -> bytes | None:
        """The data of a node, None when it is missing, for who runs the server."""
        node = self._nodes.get(path)
        return None if node is None else node.data

    def children(self, path: str, auth_ids: AuthIds = NO_AUTH_IDS) -> ChildNames | StoreError:
        node = self._nodes.get(path)
        if node is None:
            return NoNode(path)
        if not node.allows(PERM_READ, auth_ids):
            return NoAuth(path)
        # A server's order is that of a hash set: whoever needs an order must sort.
        names = sorted(node.children, key=lambda name: (zlib.crc32(name.encode()), name))
        return ChildNames(names, node.stat())

    def apply(
        self, ops: Sequence[Op], session_id: int, wall_ms: int, auth_ids: AuthIds = NO_AUTH_IDS
    ) -> tuple[MultiOk | MultiFailed, list[ZnodeChange]]:
        """All operations in one transaction, or none; with what changed, in order."""
        self.zxid += 1
        self._undo.clear()
        changes: list[ZnodeChange] = []
        results: list[str | Stat | None] = []
        for index, op in enumerate(ops):
            result = self._apply_one(op, session_id, wall_ms, auth_ids, changes)
            if isinstance(result, StoreError):
                for back in reversed(self._undo):
                    back()
                return MultiFailed(op.path, index, result), []
            results.append(result)
        return MultiOk(tuple(results)), changes

    def end_session(self, session_id: int) -> list[ZnodeChange]:
        """Every ephemeral of the session goes, in one transaction, whatever its access control list says."""
        self.zxid += 1
        self._undo.clear()
        changes: list[ZnodeChange] = []
        for path in list(self._ephemerals.get(session_id, ())):
            self._remove(path, changes)
        self._ephemerals.pop(session_id, None)
        return changes

    def set_acl(self, path: str, acl: tuple[Acl, ...]) -> None:
        """Change who may do what to a node that exists."""
        self._nodes[path].acl = acl
        self._nodes[path].aversion += 1

    def change_acl(self, path: str, acl: tuple[Acl, ...], version: int, auth_ids: AuthIds) -> Stat | StoreError:
        """The same for a client: the list is looked at first, then the node, the right to administer, and the version
        of the list."""
        self.zxid += 1
        in_force = _effective_acl(acl, auth_ids)
        if not in_force:
            return store_error_of(_INVALID_ACL, path)
        node = self._nodes.get(path)
        if node is None:
            return NoNode(path)
        if not node.allows(PERM_ADMIN, auth_ids):
            return NoAuth(path)
        if version not in (ANY_VERSION, node.aversion):
            return BadVersion(path)
        self.set_acl(path, in_force)
        return node.stat()

    def dump(self) -> dict[str, bytes]:
        """Data by path, sorted, without ``/``."""
        return {path: self._nodes[path].data for path in sorted(self._nodes) if path != "/"}

    def _apply_one(
        self, op: Op, session_id: int, wall_ms: int, auth_ids: AuthIds, changes: list[ZnodeChange]
    ) -> str | Stat | StoreError | None:
        match op:
            case CreateOp():
                return self._create(op, session_id, wall_ms, auth_ids, changes)
            case SetOp():
                return self._set(op, wall_ms, auth_ids, changes)
            case DeleteOp():
                return self._delete(op, auth_ids, changes)
            case CheckOp(path, version):
                return self._refusal(path, PERM_READ, version, auth_ids)

    def _create(
        self, op: CreateOp, session_id: int, wall_ms: int, auth_ids: AuthIds, changes: list[ZnodeChange]
    ) -> str | StoreError:
        if op.path == "/":
            return NodeExists(op.path)
        acl = _effective_acl(op.acl or OPEN_ACL, auth_ids)
        if not acl:
            return store_error_of(_INVALID_ACL, op.path)
        parent = self._nodes.get(parent_of(op.path))
        if parent is None:
            return NoNode(op.path)
        if not parent.allows(PERM_CREATE, auth_ids):
            return NoAuth(op.path)
        if op.path in self._nodes:
            return NodeExists(op.path)
        if parent.ephemeral_owner:
            return store_error_of(_NO_CHILDREN_FOR_EPHEMERALS, op.path)
        node = _Znode(
            data=op.data,
            acl=acl,
            czxid=self.zxid,
            mzxid=self.zxid,
            pzxid=self.zxid,
            ctime_ms=wall_ms,
            mtime_ms=wall_ms,
            ephemeral_owner=session_id if op.ephemeral else 0,
        )
        self._undo.append(partial(self._unlink, op.path, parent.cversion, parent.pzxid))
        self._link(op.path, node, parent.cversion + 1, self.zxid)
        changes.append(ZnodeChange(op.path, "created"))
        return op.path

    def _set(self, op: SetOp, wall_ms: int, auth_ids: AuthIds, changes: list[ZnodeChange]) -> Stat | StoreError:
        refusal = self._refusal(op.path, PERM_WRITE, op.version, auth_ids)
        if refusal is not None:
            return refusal
        node = self._nodes[op.path]
        self._undo.append(partial(node.write, node.data, node.version, node.mzxid, node.mtime_ms))
        node.write(op.data, node.version + 1, self.zxid, wall_ms)
        changes.append(ZnodeChange(op.path, "data"))
        return node.stat()

    def _delete(self, op: DeleteOp, auth_ids: AuthIds, changes: list[ZnodeChange]) -> StoreError | None:
        if op.path == "/":
            return store_error_of(_BAD_ARGUMENTS, op.path)
        parent, node = self._nodes.get(parent_of(op.path)), self._nodes.get(op.path)
        if parent is None:
            return NoNode(op.path)
        if not parent.allows(PERM_DELETE, auth_ids):
            return NoAuth(op.path)
        if node is None:
            return NoNode(op.path)
        if op.version not in (ANY_VERSION, node.version):
            return BadVersion(op.path)
        if node.children:
            return NotEmpty(op.path)
        self._remove(op.path, changes)
        return None

    def _refusal(self, path: str, perm: int, version: int, auth_ids: AuthIds) -> StoreError | None:
        node = self._nodes.get(path)
        if node is None:
            return NoNode(path)
        if not node.allows(perm, auth_ids):
            return NoAuth(path)
        return None if version in (ANY_VERSION, node.version) else BadVersion(path)

    def _remove(self, path: str, changes: list[ZnodeChange]) -> None:
        node, parent = self._nodes[path], self._nodes[parent_of(path)]
        self._undo.append(partial(self._link, path, node, parent.cversion, parent.pzxid))
        self._unlink(path, parent.cversion + 1, self.zxid)
        changes.append(ZnodeChange(path, "deleted"))

    def _link(self, path: str, node: _Znode, parent_cversion: int, parent_pzxid: int) -> None:
        parent = self._nodes[parent_of(path)]
        parent.children.add(name_of(path))
        parent.cversion, parent.pzxid = parent_cversion, parent_pzxid
        self._nodes[path] = node
        if node.ephemeral_owner:
            self._ephemerals.setdefault(node.ephemeral_owner, {})[path] = None

    def _unlink(self, path: str, parent_cversion: int, parent_pzxid: int) -> None:
        parent = self._nodes[parent_of(path)]
        parent.children.discard(name_of(path))
        parent.cversion, parent.pzxid = parent_cversion, parent_pzxid
        node = self._nodes.pop(path)
        if node.ephemeral_owner:
            self._ephemerals[node.ephemeral_owner].pop(path, None)
