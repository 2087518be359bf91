"""Encodes requests to ZooKeeper as packets, and decodes the answers.  Pure.

kazoo's own code is not used: it has no multiRead, reports errors only as exceptions, fails for unknown error codes, and
logs what it sends.  The layout is ZooKeeper's "jute": big-endian integers; strings and buffers after their length (-1:
null); a stat of eleven numbers.

    encode(request, chroot)             the opcode, and the bytes after it
    decode(request, error, answer, at)  the result, from the bytes after the reply header
"""

from __future__ import annotations

import struct
from enum import IntEnum
from functools import lru_cache
from typing import TypeAlias

from zkconsumer.zk.requests import (
    OPEN_ACL,
    Acl,
    BadVersion,
    CheckOp,
    ChildNames,
    Children,
    ConnectionLost,
    Create,
    CreateOp,
    Delete,
    DeleteOp,
    Exists,
    Get,
    GetAcl,
    GetMany,
    GetManyAcls,
    ManyAclsResult,
    Multi,
    MultiFailed,
    MultiOk,
    NoAuth,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    OtherError,
    Request,
    Result,
    SessionEnded,
    SetAcl,
    SetData,
    SetOp,
    Stat,
    StoreError,
    WatchFired,
    WatchKind,
    ZnodeAcl,
    ZnodeData,
    ZnodeResult,
    paths_of,
)


class MalformedResponseError(ValueError):
    """The bytes from the server are not a valid answer to the request."""


class Opcode(IntEnum):
    """The types of the requests that are sent (``ZooDefs.OpCode``)."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    MULTI_READ = 22
    """Since ZooKeeper 3.6.  An older server closes the connection for it."""


CODE_OK = 0
CODE_CONNECTION_LOSS = -4
CODE_NO_NODE = -101
CODE_NO_AUTH = -102
CODE_SESSION_EXPIRED = -112

_PLAIN_ERRORS: dict[int, type[StoreError]] = {
    CODE_CONNECTION_LOSS: ConnectionLost,
    CODE_NO_NODE: NoNode,
    CODE_NO_AUTH: NoAuth,
    -103: BadVersion,
    -110: NodeExists,
    -111: NotEmpty,
    CODE_SESSION_EXPIRED: SessionEnded,
}
_OTHER_ERRORS = {
    -1: "SystemError",
    -2: "RuntimeInconsistency",
    -3: "DataInconsistency",
    -5: "MarshallingError",
    -6: "Unimplemented",
    -7: "OperationTimeout",
    -8: "BadArguments",
    -100: "ApiError",
    -108: "NoChildrenForEphemerals",
    -114: "InvalidAcl",
    -115: "AuthFailed",
    -118: "SessionMoved",
    -119: "NotReadOnly",
    -122: "RequestTimeout",
    -124: "SaslRequired",
    -125: "QuotaExceeded",
    -127: "Throttled",
}
_WATCH_KINDS: dict[int, WatchKind] = {1: "created", 2: "deleted", 3: "data", 4: "children"}

_EPHEMERAL = 1
_ERROR_TYPE = -1

_INT = struct.Struct("!i")
_PATH_TAIL = struct.Struct("!?")
_STAT = struct.Struct("!qqqqiiiqiiq")
_MULTI_HEADER = struct.Struct("!i?i")
_RESULT_HEADER = struct.Struct("!i?ii")
"""The header of one result of a multiRead: the header of a multi, then the length of the data or the error code."""

_MULTI_END = _MULTI_HEADER.pack(-1, True, -1)
_EVENT = struct.Struct("!ii")

GET_MANY_BYTES_EACH = _MULTI_HEADER.size + _INT.size + _PATH_TAIL.size
"""The bytes of one read in a multiRead, in addition to its path."""

CACHED_ACLS_MAX = 1_024
"""How many different ACLs are cached; even 100,000 nodes have only a few different ones."""

EncodedRequest: TypeAlias = "tuple[Opcode, bytes]"


def store_error_of(code: int, path: str) -> StoreError:
    """The ``StoreError`` for an error code of the server."""
    plain = _PLAIN_ERRORS.get(code)
    return plain(path) if plain else OtherError(path, _OTHER_ERRORS.get(code, "Unknown"), code)


# --- requests ---------------------------------------------------------------------------------------------------


def encode(request: Request, chroot: str) -> EncodedRequest:
    """The opcode and body of one packet.  ``GetMany`` becomes a multiRead: call it only if the server supports that.

    A ``GetManyAcls`` must have one path: the caller splits it.
    """
    match request:
        case Get(path, watch):
            return Opcode.GET_DATA, _path(chroot, path) + _PATH_TAIL.pack(watch)
        case Exists(path, watch):
            return Opcode.EXISTS, _path(chroot, path) + _PATH_TAIL.pack(watch)
        case Children(path, watch):
            return Opcode.CHILDREN2, _path(chroot, path) + _PATH_TAIL.pack(watch)
        case GetAcl(path) | GetManyAcls((path,)):
            return Opcode.GET_ACL, _path(chroot, path)
        case GetManyAcls(paths):
            raise ValueError(f"one packet cannot request {len(paths)} access control lists")
        case SetAcl(path, acl, version):
            return Opcode.SET_ACL, _path(chroot, path) + _acl(acl) + _INT.pack(version)
        case GetMany(paths):
            header = _MULTI_HEADER.pack(Opcode.GET_DATA, False, -1)
            reads = [header + _path(chroot, path) + _PATH_TAIL.pack(False) for path in paths]
            return Opcode.MULTI_READ, b"".join(reads) + _MULTI_END
        case Create(path, data, ephemeral, acl):
            return _op(CreateOp(path, data, ephemeral, acl), chroot)
        case SetData(path, data, version):
            return _op(SetOp(path, data, version), chroot)
        case Delete(path, version):
            return _op(DeleteOp(path, version), chroot)
        case Multi(ops):
            return Opcode.MULTI, b"".join(_member(op, chroot) for op in ops) + _MULTI_END


def _member(op: Op, chroot: str) -> bytes:
    opcode, body = _op(op, chroot)
    return _MULTI_HEADER.pack(opcode, False, -1) + body


def _op(op: Op, chroot: str) -> EncodedRequest:
    path = _path(chroot, op.path)
    match op:
        case CreateOp(_, data, ephemeral, acl):
            flags = _INT.pack(_EPHEMERAL if ephemeral else 0)
            return Opcode.CREATE, path + _bytes(data) + _acl(OPEN_ACL if acl is None else acl) + flags
        case SetOp(_, data, version):
            return Opcode.SET_DATA, path + _bytes(data) + _INT.pack(version)
        case DeleteOp(_, version):
            return Opcode.DELETE, path + _INT.pack(version)
        case CheckOp(_, version):
            return Opcode.CHECK, path + _INT.pack(version)


def _path(chroot: str, path: str) -> bytes:
    data = (chroot + path if path != "/" else chroot or "/").encode()
    return _INT.pack(len(data)) + data


def _bytes(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _acl(acl: tuple[Acl, ...]) -> bytes:
    entries = [_INT.pack(entry.perms) + _bytes(entry.scheme.encode()) + _bytes(entry.id.encode()) for entry in acl]
    return _INT.pack(len(acl)) + b"".join(entries)


# --- answers ----------------------------------------------------------------------------------------------------


def decode(request: Request, error: int, answer: bytes, at: int) -> Result:
    """The result of a request.

    ``error``: the error code of the reply header.  ``answer``: the packet; ``at``: the index after the reply header.
    Raises ``MalformedResponseError``.
    """
    if error == CODE_NO_NODE and isinstance(request, Exists):
        return None
    if error != CODE_OK:
        errors = [store_error_of(error, path) for path in paths_of(request)]
        if isinstance(request, GetManyAcls):
            return ManyAclsResult([*errors])
        return [*errors] if isinstance(request, GetMany) else errors[0]
    if isinstance(request, GetManyAcls):
        return ManyAclsResult([_node_acl(answer, at)])
    reader = _PacketReader(answer, at)
    match request:
        case Get():
            return reader.read_node()
        case Exists() | SetData() | SetAcl():
            return reader.read_stat()
        case Children():
            return ChildNames(reader.read_texts(), reader.read_stat())
        case GetAcl():
            return _node_acl(answer, at).acl
        case GetMany(paths):
            return reader.read_results(paths)
        case Create(path):
            return path
        case Delete():
            return None
        case Multi(ops):
            return _multi(reader, ops)


def decode_event(chroot: str, answer: bytes, at: int) -> WatchFired | None:
    """Decode a watch event; None for an event of the session, or of a type that 3.8 does not have."""
    reader = _PacketReader(answer, at)
    kind = _WATCH_KINDS.get(reader.read_int())
    reader.read_int()
    path = reader.read_text()
    if kind is None or not path.startswith(chroot):
        return None
    return WatchFired(path[len(chroot) :] or "/", kind)


def _multi(reader: _PacketReader, ops: tuple[Op, ...]) -> MultiOk | MultiFailed:
    """In a failed multi, the results before the failed operation have code 0, later ones ``RuntimeInconsistency``."""
    results: list[str | Stat | None] = []
    for index, op in enumerate(ops):
        if reader.read_member() == _ERROR_TYPE:
            code = reader.read_int()
            if code != CODE_OK:
                return MultiFailed(op.path, index, store_error_of(code, op.path))
            continue
        match op:
            case CreateOp(path):
                reader.read_text()
                results.append(path)
            case SetOp():
                results.append(reader.read_stat())
            case DeleteOp() | CheckOp():
                results.append(None)
    if len(results) != len(ops):
        raise MalformedResponseError("a failed multi without a failed operation")
    return MultiOk(tuple(results))


def _stat(values: tuple[int, ...]) -> Stat:
    czxid, mzxid, ctime, mtime, version, cversion, aversion, owner, length, children, pzxid = values
    return Stat(czxid, mzxid, version, cversion, pzxid, owner, children, length, ctime, mtime, aversion)


def _node_acl(answer: bytes, at: int) -> ZnodeAcl:
    """Decode the rest of an answer: an ACL, then a stat."""
    end = len(answer) - _STAT.size
    if end < at:
        raise MalformedResponseError("an access control list without a stat")
    return ZnodeAcl(_acls_of(answer[at:end]), _stat(_STAT.unpack_from(answer, end)))


@lru_cache(CACHED_ACLS_MAX)
def _acls_of(data: bytes) -> tuple[Acl, ...]:
    """Decode an ACL; equal bytes have the same result object.  Raises ``MalformedResponseError``."""
    reader = _PacketReader(data, 0)
    found = reader.read_acls()
    reader.check_ended()
    return found


class _PacketReader:
    """Reads values from ``at`` on.  Raises ``MalformedResponseError`` at the end of the answer."""

    def __init__(self, answer: bytes, at: int) -> None:
        self._answer = answer
        self._at = at

    def read_int(self) -> int:
        return int(self._unpack(_INT)[0])

    def read_bytes(self) -> bytes:
        length = self.read_int()
        start = self._at
        self._at = self._end_of(start, length)
        return self._answer[start : self._at]

    def _end_of(self, start: int, length: int) -> int:
        """The index after ``length`` bytes; a length of -1 (null) counts as 0."""
        if length <= 0:
            return start
        if start + length > len(self._answer):
            raise MalformedResponseError(f"{length} bytes announced, {len(self._answer) - start} left")
        return start + length

    def read_text(self) -> str:
        try:
            return self.read_bytes().decode()
        except UnicodeDecodeError as exc:
            raise MalformedResponseError("a name that is not UTF-8") from exc

    def read_count(self) -> int:
        count = self.read_int()
        if count > (len(self._answer) - self._at) // _INT.size:
            raise MalformedResponseError(f"{count} names announced")
        return max(0, count)

    def read_texts(self) -> list[str]:
        """Read a count and that many texts; in one loop, because an answer may contain 500 names."""
        count = self.read_count()
        answer, at = self._answer, self._at
        found: list[str] = []
        try:
            for _ in range(count):
                [length] = _INT.unpack_from(answer, at)
                start = at + _INT.size
                at = self._end_of(start, length)
                found.append(answer[start:at].decode())
        except UnicodeDecodeError as exc:
            raise MalformedResponseError("a name that is not UTF-8") from exc
        except struct.error as exc:
            raise MalformedResponseError(f"an answer of {len(answer)} bytes is too short") from exc
        self._at = at
        return found

    def read_results(self, paths: tuple[str, ...]) -> list[ZnodeResult]:
        """Read the results of a multiRead; in one loop, because it may contain 1,000 nodes."""
        answer, at = self._answer, self._at
        results: list[ZnodeResult] = []
        try:
            for path in paths:
                kind, is_end, _, value = _RESULT_HEADER.unpack_from(answer, at)
                at += _RESULT_HEADER.size
                if is_end:
                    raise MalformedResponseError("fewer results than operations")
                if kind == _ERROR_TYPE:
                    results.append(store_error_of(value, path))
                    continue
                end = self._end_of(at, value)
                results.append(ZnodeData(answer[at:end], _stat(_STAT.unpack_from(answer, end))))
                at = end + _STAT.size
        except struct.error as exc:
            raise MalformedResponseError(f"an answer of {len(answer)} bytes is too short") from exc
        self._at = at
        return results

    def read_stat(self) -> Stat:
        return _stat(self._unpack(_STAT))

    def read_acl(self) -> Acl:
        return Acl(self.read_int(), self.read_text(), self.read_text())

    def read_acls(self) -> tuple[Acl, ...]:
        return tuple(self.read_acl() for _ in range(self.read_count()))

    def check_ended(self) -> None:
        if self._at != len(self._answer):
            raise MalformedResponseError(f"{len(self._answer) - self._at} bytes too many")

    def read_node(self) -> ZnodeData:
        return ZnodeData(self.read_bytes(), self.read_stat())

    def read_member(self) -> int:
        """Read the type of the next result of a multi."""
        kind, is_end, _ = self._unpack(_MULTI_HEADER)
        if is_end:
            raise MalformedResponseError("fewer results than operations")
        return int(kind)

    def _unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        try:
            values = layout.unpack_from(self._answer, self._at)
        except struct.error as exc:
            raise MalformedResponseError(f"an answer of {len(self._answer)} bytes is too short") from exc
        self._at += layout.size
        return values
