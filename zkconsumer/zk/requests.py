"""What can be asked of ZooKeeper, and what comes back.  Pure values.

A request is one packet (``GetMany``: one where the server can read many nodes at once, else one a path;
``GetManyAcls``: one a path).  Its result is a *value*: what was asked for, or an instance of a ``StoreError``, returned
and never
raised, because each request of a batch has an outcome of its own, and the caller decides about each.

    Get(path)            Node                         Create(path, data)   str (the path)
    Exists(path)         Stat, or None when missing   SetData(path, data)  Stat
    Children(path)       ChildNames                   Delete(path)         None
    GetMany(paths)       a list, Node or error each   Multi(ops)           MultiOk, or the error MultiFailed
    GetAcl(path)         a tuple of Acl               SetAcl(path, acl)    Stat
    GetManyAcls(paths)       ManyAclsResult

Paths are below the chroot: the store adds it, and takes it off again.  Versions are ZooKeeper's data versions; -1
means any.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from zkconsumer.errors import InvalidNameError

ANY_VERSION = -1
IMPOSSIBLE_VERSION = 2**31 - 1
"""No znode and no access list has this version.  The server looks at the permissions before it looks at the version, so
``BadVersion`` as the answer says that we have them; and nothing is changed."""

MULTI_OPS_MAX = 2_500
"""Operations in one ``Multi``; the caller cuts, the store does not.  A server counts only the bytes (see below): this
is how long one packet may keep it busy."""

PACKET_BYTES_MAX = 900_000
"""Bytes that we put into one packet: a server's limit, less some room."""

SERVER_PACKET_BYTES_MAX = 0xFFFFF
"""``jute.maxbuffer`` unless somebody changed it.  A server ends the connection on a longer packet."""


class Stat(NamedTuple):
    """What ZooKeeper knows of a node besides its data.  ``ephemeral_owner`` is 0 for a persistent node.

    ``aversion`` counts the changes of the node's access control list.
    """

    czxid: int
    mzxid: int
    version: int
    cversion: int
    pzxid: int
    ephemeral_owner: int
    num_children: int
    data_length: int
    ctime_ms: int
    mtime_ms: int
    aversion: int = 0


class Acl(NamedTuple):
    """One entry of an access control list: ``perms`` is a sum of the constants below."""

    perms: int
    scheme: str
    id: str


PERM_READ, PERM_WRITE, PERM_CREATE, PERM_DELETE, PERM_ADMIN, PERM_ALL = 1, 2, 4, 8, 16, 31
OPEN_ACL = (Acl(PERM_ALL, "world", "anyone"),)


# --- requests ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Get:
    """Data and stat of one node -> ``ZnodeData``.  A watch is left only when the node exists."""

    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class Exists:
    """Stat of one node -> ``Stat``, or None when it is missing.  A watch is left either way.

    Recent servers want the right to read (``NoAuth``), the old ones tell everybody.
    """

    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class Children:
    """Names of the children -> ``ChildNames``, in the server's order (which is no order)."""

    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class GetMany:
    """Many ``Get`` without watches -> a list with one ``ZnodeData`` or ``StoreError`` a path, in the given order.

    Not a snapshot: on a server without multiRead, and beyond one packet, other writes fall in between.
    """

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Create:
    """A new node -> its path.  ``acl`` None means open to the world, as the original creates everything."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    acl: tuple[Acl, ...] | None = None


@dataclass(frozen=True, slots=True)
class GetAcl:
    """Who may do what with a node -> a tuple of ``Acl``.  Recent servers want the right to read (``NoAuth``)."""

    path: str


@dataclass(frozen=True, slots=True)
class GetManyAcls:
    """Many ``GetAcl`` -> ``ManyAclsResult``.

    No server has a packet that reads the lists of many nodes: multiRead takes reads of data and of children, and
    answers ``MarshallingError`` to anything else (seen with 3.8.4).  So each path is a packet; all are pipelined.
    """

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetAcl:
    """Another access control list for a node that exists -> its ``Stat``.  Wants the right to administer (``NoAuth``).

    ``version`` is that of the *list* (``Stat.aversion``); the right is looked at before it, so one that cannot be
    tells, by ``BadVersion``, that we have the right, and changes nothing.  Servers have no such member of a ``Multi``.
    """

    path: str
    acl: tuple[Acl, ...]
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class SetData:
    """New data for a node that exists -> its ``Stat`` after the write."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a node without children -> None."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class CreateOp:
    """``Create`` as a member of a ``Multi``; its result there is the path."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    acl: tuple[Acl, ...] | None = None


@dataclass(frozen=True, slots=True)
class SetOp:
    """``SetData`` as a member of a ``Multi``; its result there is the ``Stat`` after the write."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class DeleteOp:
    """``Delete`` as a member of a ``Multi``; its result there is None."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class CheckOp:
    """The node exists and has this version; its result there is None."""

    path: str
    version: int = ANY_VERSION


Op: TypeAlias = CreateOp | SetOp | DeleteOp | CheckOp


@dataclass(frozen=True, slots=True)
class Multi:
    """All of these operations in their order, or none of them -> ``MultiOk`` or ``MultiFailed``."""

    ops: tuple[Op, ...]


Request: TypeAlias = (
    Get | Exists | Children | GetMany | GetAcl | GetManyAcls | Create | SetData | SetAcl | Delete | Multi
)


# --- results ----------------------------------------------------------------------------------------------------


class ZnodeData(NamedTuple):
    """A node as it was read.  A node with null data (zkclient makes such parents) reads as ``b""``."""

    data: bytes
    stat: Stat


class ZnodeAcl(NamedTuple):
    """The access control list of a node, with the node's stat."""

    acl: tuple[Acl, ...]
    stat: Stat


@dataclass(frozen=True, slots=True)
class ManyAclsResult:
    """What ``GetManyAcls`` found, a value a path, in the order of the paths."""

    found: list[ZnodeAcl | StoreError]


@dataclass(frozen=True, slots=True)
class ChildNames:
    """The children of a node: last path components, in the server's order."""

    names: list[str]
    stat: Stat


@dataclass(frozen=True, slots=True)
class MultiOk:
    """Every operation was done; ``results`` has one value an operation (path, ``Stat``, None, None)."""

    results: tuple[str | Stat | None, ...]


@dataclass(frozen=True, slots=True)
class StoreError:
    """Why a request has no value; ``path`` is the node it was about."""

    path: str


@dataclass(frozen=True, slots=True)
class NoNode(StoreError):
    """The node is missing; for a create: its parent is."""


@dataclass(frozen=True, slots=True)
class NodeExists(StoreError):
    """The node is there already."""


@dataclass(frozen=True, slots=True)
class BadVersion(StoreError):
    """The node has another data version than the request named."""


@dataclass(frozen=True, slots=True)
class NoAuth(StoreError):
    """The node's access control list does not let us."""


@dataclass(frozen=True, slots=True)
class NotEmpty(StoreError):
    """The node has children."""


@dataclass(frozen=True, slots=True)
class ConnectionLost(StoreError):
    """The connection ended before the answer came: whether it was done is unknown, so read again.

    The session may still be alive: ``ZkSessionConnected(is_new=False)`` or ``ZkSessionLost`` says so later.
    """


@dataclass(frozen=True, slots=True)
class SessionEnded(StoreError):
    """The session that this was meant for has ended, or the store is closed.

    It was not sent, or it was sent and the session ended before its answer (whatever ephemeral it made is gone,
    whatever else it did may stand).  It is never executed in a later session.
    """


@dataclass(frozen=True, slots=True)
class OtherError(StoreError):
    """ZooKeeper's own error, by name and code, that nobody here has a plan for."""

    name: str
    code: int


@dataclass(frozen=True, slots=True)
class MultiFailed(StoreError):
    """No operation was done.  ``failed`` is the index of the first that could not be, ``error`` says why.

    ZooKeeper stops at that one: of the operations behind it nothing is known, those before it would have passed.
    """

    failed: int
    error: StoreError


ZnodeResult: TypeAlias = ZnodeData | StoreError
Result: TypeAlias = (
    ZnodeData
    | Stat
    | ChildNames
    | MultiOk
    | tuple[Acl, ...]
    | ManyAclsResult
    | str
    | list[ZnodeResult]
    | StoreError
    | None
)


# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ZkSessionConnected:
    """A session is usable.  ``is_new`` False: the one of before a disconnect, its ephemerals kept, its watches not.

    ``timeout_ms`` is the *negotiated* time-out: the server may give less or more than was asked for.
    """

    session_id: int
    timeout_ms: int
    is_new: bool


@dataclass(frozen=True, slots=True)
class ZkSessionSuspended:
    """The connection broke; the session lives on at the servers for an unknown time.

    Every watch is dropped: whoever needs one reads again, with a watch, after the next ``ZkSessionConnected``.
    """


@dataclass(frozen=True, slots=True)
class ZkSessionLost:
    """The session has ended, and with it every ephemeral node that it made."""

    session_id: int


WatchKind: TypeAlias = Literal["created", "deleted", "data", "children"]


@dataclass(frozen=True, slots=True)
class WatchFired:
    """Something happened to a node that was read with a watch, once: the watch is used up."""

    path: str
    kind: WatchKind


StoreEvent: TypeAlias = ZkSessionConnected | ZkSessionSuspended | ZkSessionLost | WatchFired


# --- helpers ----------------------------------------------------------------------------------------------------

# What ZooKeeper's own PathUtils refuses: empty, "." and ".." components, control characters, surrogates, private
# use, and the last sixteen of the plane.
_PATH = re.compile(r"/|(?:/(?!\.{1,2}(?:/|\Z))[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+)+")


def check_path(path: str) -> str:
    """Give the path back, or raise ``InvalidNameError`` when ZooKeeper could not mean one node by it."""
    if _PATH.fullmatch(path) is None:
        raise InvalidNameError(f"not a path of a znode: {path[:200]!r}")
    return path


def paths_of(request: Request) -> tuple[str, ...]:
    """Every path that a request names, in its order."""
    match request:
        case GetMany(paths) | GetManyAcls(paths):
            return paths
        case Multi(ops):
            return tuple(op.path for op in ops)
        case _:
            return (request.path,)


def lost_request_result(request: Request, kind: type[ConnectionLost] | type[SessionEnded]) -> Result:
    """The result of a request that the connection or the session took with it."""
    if isinstance(request, GetMany):
        return [kind(path) for path in request.paths]
    if isinstance(request, GetManyAcls):
        return ManyAclsResult([kind(path) for path in request.paths])
    return kind(next(iter(paths_of(request)), "/"))
