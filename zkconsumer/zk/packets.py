"""ZooKeeper's packets: requests to bytes, bytes to results.  Pure.

Why not the client library's own: it lacks multiRead, knows only exceptions, raises on an error code that it has
not heard of, and prints what it sends.  The layout is ZooKeeper's "jute": big-endian integers, strings and
buffers with a length in front (-1: null), a stat of eleven numbers.

    body(chroot, ops)   what follows the request header (xid, opcode) on the wire
    read_*(answer, at)  what follows the reply header (xid, zxid, error code)

Anything that does not parse is a ``MalformedAnswer`` (a ``ValueError`` to the connection, which then ends).
"""

from __future__ import annotations

from enum import IntEnum

from zkconsumer.zk.requests import (
    BadVersion,
    ConnectionLost,
    NoAuth,
    NodeExists,
    NoNode,
    NotEmpty,
    OtherError,
    SessionGone,
    StoreError,
)


class Opcode(IntEnum):
    """The request types that we send (ZooDefs.OpCode)."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    MULTI_READ = 22
    """Since ZooKeeper 3.6.  An older server ends the connection on it."""


_PLAIN_ERRORS: dict[int, type[StoreError]] = {
    -4: ConnectionLost,
    -101: NoNode,
    -102: NoAuth,
    -103: BadVersion,
    -110: NodeExists,
    -111: NotEmpty,
    -112: SessionGone,
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


def error_of(code: int, path: str) -> StoreError:
    """The value for an error code of a server."""
    plain = _PLAIN_ERRORS.get(code)
    return plain(path) if plain else OtherError(path, _OTHER_ERRORS.get(code, "Unknown"), code)
