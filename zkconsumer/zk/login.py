"""Logging in at a ZooKeeper server, on a connection whose session was just granted.  No packet of a member goes before.

    digest      one packet with user and password; the server takes any, and hashes it to an identity
    SASL        a few packets of the mechanism's own; a server that does not know us ends the connection

Our own packets and loop in the place of kazoo's: kazoo prints what it sends, and goes on for ever with a server that
has no SASL.
"""

from __future__ import annotations

import struct
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import AuthFailedError, ConnectionDropped

from zkconsumer.errors import UsageError
from zkconsumer.zk.packets import CODE_OK
from zkconsumer.zk.security import Digest, Login, SaslDigestMd5, SaslGssapi

if TYPE_CHECKING:
    from collections.abc import Callable

AUTH_OPCODE, SASL_OPCODE = 100, 102
AUTH_XID = -4
SASL_SERVICE = "zookeeper"
DIGEST_MD5_HOST = "zk-sasl-md5"
"""ZooKeeper's servers have this name under DIGEST-MD5, whatever they are called."""

SASL_ROUNDS_MAX = 10
_INT = struct.Struct("!i")


class LoginRefused(AuthFailedError):  # type: ignore[misc]
    """The server does not take us; kazoo ends its loop on it."""


class Packet:
    """Of the login; its text is never that of its content."""

    def __init__(self, opcode: int, body: bytes) -> None:
        self.type = opcode
        self._body = body

    def serialize(self) -> bytes:
        return self._body

    def __repr__(self) -> str:
        return f"Packet({self.type}, [hidden])"


def check_libraries(login: Login | None) -> None:
    """Raises ``UsageError`` when a library for this login is not installed."""
    match login:
        case SaslDigestMd5():
            _sasl_client()
        case SaslGssapi():
            _sasl_client()
            try:
                import_module("kerberos")
            except ImportError as error:
                raise UsageError(
                    "zookeeper.auth=sasl-gssapi needs kerberos: pip install 'zkconsumer[zookeeper-kerberos]'"
                ) from error


def log_in(
    login: Login,
    host: str,
    submit: Callable[[Packet, int], None],
    read_answer: Callable[[], tuple[Any, bytes, int]],
) -> None:
    """Log in, or raise ``LoginRefused``; ``submit`` sends a packet under an xid, ``read_answer`` gives the next."""
    match login:
        case Digest(user, password):
            _digest(f"{user}:{password}".encode(), submit, read_answer)
        case SaslDigestMd5(user, password):
            client = _sasl_client()(
                DIGEST_MD5_HOST, service=SASL_SERVICE, mechanism="DIGEST-MD5", username=user, password=password
            )
            _sasl(client, submit, read_answer)
        case SaslGssapi(principal):
            options = {} if principal is None else {"principal": principal}
            _sasl(_sasl_client()(host, service=SASL_SERVICE, mechanism="GSSAPI", **options), submit, read_answer)


def _digest(
    secret: bytes, submit: Callable[[Packet, int], None], read_answer: Callable[[], tuple[Any, bytes, int]]
) -> None:
    body = b"".join((_INT.pack(0), _bytes(b"digest"), _bytes(secret)))
    submit(Packet(AUTH_OPCODE, body), AUTH_XID)
    header, _, _ = read_answer()
    if header.xid != AUTH_XID:
        raise ConnectionDropped(f"an answer to {header.xid} where that to the login was due")
    if header.err != CODE_OK:
        raise LoginRefused(f"the server does not take logins of the scheme digest (error {header.err})")


def _sasl(
    client: Any, submit: Callable[[Packet, int], None], read_answer: Callable[[], tuple[Any, bytes, int]]
) -> None:
    challenge: bytes | None = None
    try:
        for xid in range(1, SASL_ROUNDS_MAX + 1):
            token = _step(client, challenge)
            if client.complete and not token:
                return
            submit(Packet(SASL_OPCODE, _bytes(token)), xid)
            challenge = _challenge(xid, read_answer)
            if client.complete:
                return
            if not challenge:
                raise LoginRefused("the server says nothing to our SASL login: it is not set up for SASL")
        raise LoginRefused(f"the SASL login did not end within {SASL_ROUNDS_MAX} packets")
    finally:
        client.dispose()


def _step(client: Any, challenge: bytes | None) -> bytes:
    try:
        return bytes(client.process(challenge=challenge) or b"")
    except Exception as error:  # the library has an error of its own for whatever a mechanism meets
        why = str(error) or type(error).__name__
        raise LoginRefused(f"the SASL login failed on our side: {why}") from error


def _challenge(xid: int, read_answer: Callable[[], tuple[Any, bytes, int]]) -> bytes:
    try:
        header, buffer, at = read_answer()
    except ConnectionDropped as error:
        raise LoginRefused("the server ended the connection on our SASL login: user or password are wrong") from error
    if header.err != CODE_OK:
        raise LoginRefused(f"the server refused our SASL login (error {header.err}): user or password are wrong")
    if header.xid != xid:
        raise ConnectionDropped(f"an answer to {header.xid} where {xid} was due")
    length = _INT.unpack_from(buffer, at)[0] if len(buffer) >= at + _INT.size else 0
    return bytes(buffer[at + _INT.size : at + _INT.size + max(0, length)])


def _sasl_client() -> Any:
    try:
        return import_module("puresasl.client").SASLClient
    except ImportError as error:
        raise UsageError(
            "zookeeper.auth=sasl-… needs pure-sasl: pip install 'zkconsumer[zookeeper-sasl]'"
        ) from error


def _bytes(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data
