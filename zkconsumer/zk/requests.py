"""The requests to ZooKeeper, their results, and the events of a session.  Pure values.

A request is one packet (``GetMany``: one if the server supports multiRead, else one for each path; ``GetManyAcls``: one
for each path).  Its result is a *value*: the requested value, or a ``StoreError``, which is returned and never raised,
because each request of a batch has its own outcome.

    Get(path)            ZnodeData                    Create(path, data)   str (the path)
    Exists(path)         Stat, or None when missing   SetData(path, data)  Stat
    Children(path)       ChildNames                   Delete(path)         None
    GetMany(paths)       a list of ZnodeData or error Multi(ops)           MultiOk, or the error MultiFailed
    GetAcl(path)         a tuple of Acl               SetAcl(path, acl)    Stat
    GetManyAcls(paths)   ManyAclsResult

Paths are relative to the chroot: the store adds it to requests and removes it from results.  Versions are ZooKeeper's
data versions; -1 matches any version.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from zkconsumer.errors import InvalidNameError
from zkconsumer.member.events import SessionConnected, SessionLost, SessionSuspended

ANY_VERSION = -1
IMPOSSIBLE_VERSION = 2**31 - 1
"""No znode and no ACL has this version.  A server checks the permission before the version, so the result
``BadVersion`` means that this client has the permission; and nothing is changed."""

MULTI_OPS_MAX = 2_500
"""The maximum number of operations in one ``Multi``; the caller splits more.  A server only limits the bytes (see
below); this number limits how long one packet occupies it."""

PACKET_BYTES_MAX = 900_000
"""The maximum number of bytes in one packet: the server's default limit, with a reserve."""

SERVER_PACKET_BYTES_MAX = 0xFFFFF
"""The default of ``jute.maxbuffer``.  A server closes the connection for a longer packet."""


class Stat(NamedTuple):
    """ZooKeeper's metadata of a node.  ``ephemeral_owner``: the session of an ephemeral node; 0 for a persistent one.

    ``aversion`` counts the changes of the node's ACL.
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
    """One entry of an ACL; ``perms`` is a sum of the constants below."""

    perms: int
    scheme: str
    id: str


PERM_READ, PERM_WRITE, PERM_CREATE, PERM_DELETE, PERM_ADMIN, PERM_ALL = 1, 2, 4, 8, 16, 31
OPEN_ACL = (Acl(PERM_ALL, "world", "anyone"),)


# --- requests ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Get:
    """Data and stat of one node -> ``ZnodeData``.  The watch is set only if the node exists."""

    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class Exists:
    """Stat of one node -> ``Stat``, or None when it does not exist.  The watch is set in both cases.

    Recent servers require the permission to read (else ``NoAuth``); old servers answer every client.
    """

    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class Children:
    """Names of the children -> ``ChildNames``, in the server's order, which is not sorted."""

    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class GetMany:
    """Many ``Get`` without watches -> a list with one ``ZnodeData`` or ``StoreError`` for each path, in their order.

    It is not a snapshot: without multiRead, or with several packets, other writes may be executed in between.
    """

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node -> its path.  ``acl`` None: every client has all permissions, as for the Scala consumer's nodes."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    acl: tuple[Acl, ...] | None = None


@dataclass(frozen=True, slots=True)
class GetAcl:
    """The ACL of a node -> a tuple of ``Acl``.  Recent servers require the permission to read (else ``NoAuth``)."""

    path: str


@dataclass(frozen=True, slots=True)
class GetManyAcls:
    """Many ``GetAcl`` -> ``ManyAclsResult``.

    No server can read the ACLs of many nodes in one packet: multiRead only accepts reads of data and of children; for
    other operations it answers ``MarshallingError`` (seen with 3.8.4).  So each path is one packet; all are pipelined.
    """

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetAcl:
    """Replace the ACL of an existing node -> its ``Stat``.  Requires the permission to administer (else ``NoAuth``).

    ``version`` is the version of the *ACL* (``Stat.aversion``).  The server checks the permission first, so with an
    impossible version the result ``BadVersion`` means that this client has the permission, and nothing is changed.
    A ``Multi`` cannot contain this operation.
    """

    path: str
    acl: tuple[Acl, ...]
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class SetData:
    """Replace the data of an existing node -> its ``Stat`` after the write."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a node without children -> None."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class CreateOp:
    """``Create`` in a ``Multi``; its result is the path."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    acl: tuple[Acl, ...] | None = None


@dataclass(frozen=True, slots=True)
class SetOp:
    """``SetData`` in a ``Multi``; its result is the ``Stat`` after the write."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class DeleteOp:
    """``Delete`` in a ``Multi``; its result is None."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class CheckOp:
    """Check that the node exists and has this version; its result in a ``Multi`` is None."""

    path: str
    version: int = ANY_VERSION


Op: TypeAlias = CreateOp | SetOp | DeleteOp | CheckOp


@dataclass(frozen=True, slots=True)
class Multi:
    """Execute all of these operations in order, or none of them -> ``MultiOk`` or ``MultiFailed``."""

    ops: tuple[Op, ...]


Request: TypeAlias = (
    Get | Exists | Children | GetMany | GetAcl | GetManyAcls | Create | SetData | SetAcl | Delete | Multi
)


# --- results ----------------------------------------------------------------------------------------------------


class ZnodeData(NamedTuple):
    """Data and stat of a node.  Null data (zkclient creates such parents) is ``b""``."""

    data: bytes
    stat: Stat


class ZnodeAcl(NamedTuple):
    """The ACL and the stat of a node."""

    acl: tuple[Acl, ...]
    stat: Stat


@dataclass(frozen=True, slots=True)
class ManyAclsResult:
    """The results of ``GetManyAcls``: one value for each path, in the order of the paths."""

    found: list[ZnodeAcl | StoreError]


@dataclass(frozen=True, slots=True)
class ChildNames:
    """The children of a node: last path components, in the server's order."""

    names: list[str]
    stat: Stat


@dataclass(frozen=True, slots=True)
class MultiOk:
    """Every operation was executed; ``results`` has one value for each (path, ``Stat``, None, None)."""

    results: tuple[str | Stat | None, ...]


@dataclass(frozen=True, slots=True)
class StoreError:
    """Why a request has no value; ``path``: the node of the request."""

    path: str


@dataclass(frozen=True, slots=True)
class NoNode(StoreError):
    """The node does not exist; for a create, its parent does not exist."""


@dataclass(frozen=True, slots=True)
class NodeExists(StoreError):
    """The node exists already."""


@dataclass(frozen=True, slots=True)
class BadVersion(StoreError):
    """The node has another version than the request requires."""


@dataclass(frozen=True, slots=True)
class NoAuth(StoreError):
    """The ACL of the node, or of its parent, denies the request."""


@dataclass(frozen=True, slots=True)
class NotEmpty(StoreError):
    """The node has children."""


@dataclass(frozen=True, slots=True)
class ConnectionLost(StoreError):
    """The connection broke before the answer arrived; it is unknown whether the request was executed, so read again.

    The session may still live: a later ``SessionConnected(is_new=False)`` or ``SessionLost`` shows this.
    """


@dataclass(frozen=True, slots=True)
class SessionEnded(StoreError):
    """The session of the request has ended, or the store is closed.

    The request was not sent; or it was sent, and the session ended before the answer arrived (then ephemeral nodes that
    it created are deleted, other changes may exist).  It is never executed in a later session.
    """


@dataclass(frozen=True, slots=True)
class OtherError(StoreError):
    """Any other error of ZooKeeper, with its name and code."""

    name: str
    code: int


@dataclass(frozen=True, slots=True)
class MultiFailed(StoreError):
    """No operation was executed.  ``failed``: the index of the first operation that failed; ``error``: its error.

    ZooKeeper stops at this operation: the operations before it would have succeeded; those after it were not checked.
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


WatchKind: TypeAlias = Literal["created", "deleted", "data", "children"]


@dataclass(frozen=True, slots=True)
class WatchFired:
    """A node changed that was read with a watch.  A watch fires only once."""

    path: str
    kind: WatchKind


StoreEvent: TypeAlias = SessionConnected | SessionSuspended | SessionLost | WatchFired


# --- helpers ----------------------------------------------------------------------------------------------------

# What ZooKeeper's PathUtils rejects: empty, "." and ".." components, control characters, surrogates, private-use
# characters, and U+FFF0 to U+FFFF.
_PATH = re.compile(r"/|(?:/(?!\.{1,2}(?:/|\Z))[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+)+")


def check_path(path: str) -> str:
    """Return the path, or raise ``InvalidNameError`` if it is not a valid path of a znode."""
    if _PATH.fullmatch(path) is None:
        raise InvalidNameError(f"not a path of a znode: {path[:200]!r}")
    return path


def paths_of(request: Request) -> tuple[str, ...]:
    """All paths of a request, in its order."""
    match request:
        case GetMany(paths) | GetManyAcls(paths):
            return paths
        case Multi(ops):
            return tuple(op.path for op in ops)
        case _:
            return (request.path,)


def lost_request_result(request: Request, kind: type[ConnectionLost] | type[SessionEnded]) -> Result:
    """The result of a request whose answer is lost with the connection or the session."""
    if isinstance(request, GetMany):
        return [kind(path) for path in request.paths]
    if isinstance(request, GetManyAcls):
        return ManyAclsResult([kind(path) for path in request.paths])
    return kind(next(iter(paths_of(request)), "/"))
