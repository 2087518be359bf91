"""Logging in at a ZooKeeper server, on a connection whose session was just granted.  No packet of a member goes before.

    digest      one packet with user and password; the server takes any, and hashes it to an identity
    SASL        a few packets of the mechanism's own; a server that does not know us ends the connection

Our own packets and loop in the place of kazoo's: kazoo prints what it sends, and goes on for ever with a server that
has no SASL.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import AuthFailedError, ConnectionDropped

from zkconsumer.base.kerberos import load_gssapi
from zkconsumer.errors import UsageError
from zkconsumer.zk.packets import CODE_OK
from zkconsumer.zk.zk_sasl import ZkDigestMd5Mechanism, ZkGssapiMechanism, ZkSaslError, ZkSaslMechanism
from zkconsumer.zk.zk_security import DigestLogin, SaslDigestMd5Login, SaslGssapiLogin, ZkLogin

if TYPE_CHECKING:
    from collections.abc import Callable

AUTH_OPCODE, SASL_OPCODE = 100, 102
AUTH_XID = -4
SASL_SERVICE = "zookeeper"
DIGEST_MD5_HOST = "zk-sasl-md5"
"""ZooKeeper's servers have this name under DIGEST-MD5, whatever they are called."""

SASL_ROUNDS_MAX = 10
_INT = struct.Struct("!i")


class ZkLoginError(AuthFailedError):  # type: ignore[misc]
    """The server does not take us; kazoo ends its loop on it."""


class LoginPacket:
    """Of the login; its text is never that of its content."""

    def __init__(self, opcode: int, body: bytes) -> None:
        self.type = opcode
        self._body = body

    def serialize(self) -> bytes:
        return self._body

    def __repr__(self) -> str:
        return f"Packet({self.type}, [hidden])"


def check_libraries(login: ZkLogin | None) -> None:
    """Raises ``UsageError`` when a library for this login is not installed."""
    if isinstance(login, SaslGssapiLogin):
        try:
            load_gssapi()
        except ImportError as error:
            raise UsageError(
                "zookeeper.auth=sasl-gssapi needs the package gssapi: pip install 'gssapi>=1.8' (and the "
                f"Kerberos library of the system); {error}"
            ) from error


def log_in(
    login: ZkLogin,
    host: str,
    submit: Callable[[LoginPacket, int], None],
    read_answer: Callable[[], tuple[Any, bytes, int]],
) -> None:
    """Log in, or raise ``ZkLoginError``; ``submit`` sends a packet under an xid, ``read_answer`` gives the next."""
    match login:
        case DigestLogin(user, password):
            _digest(f"{user}:{password}".encode(), submit, read_answer)
        case SaslDigestMd5Login(user, password):
            _sasl(lambda: ZkDigestMd5Mechanism(SASL_SERVICE, DIGEST_MD5_HOST, user, password), submit, read_answer)
        case SaslGssapiLogin(principal):
            _sasl(lambda: ZkGssapiMechanism(SASL_SERVICE, host, principal), submit, read_answer)


def _digest(
    secret: bytes, submit: Callable[[LoginPacket, int], None], read_answer: Callable[[], tuple[Any, bytes, int]]
) -> None:
    body = b"".join((_INT.pack(0), _bytes(b"digest"), _bytes(secret)))
    submit(LoginPacket(AUTH_OPCODE, body), AUTH_XID)
    header, _, _ = read_answer()
    if header.xid != AUTH_XID:
        raise ConnectionDropped(f"an answer to {header.xid} where that to the login was due")
    if header.err != CODE_OK:
        raise ZkLoginError(f"the server does not take logins of the scheme digest (error {header.err})")


def _sasl(
    new_mechanism: Callable[[], ZkSaslMechanism],
    submit: Callable[[LoginPacket, int], None],
    read_answer: Callable[[], tuple[Any, bytes, int]],
) -> None:
    challenge: bytes | None = None
    try:
        mechanism = new_mechanism()
        for xid in range(1, SASL_ROUNDS_MAX + 1):
            token = mechanism.process(challenge)
            if mechanism.is_complete and not token:
                return
            submit(LoginPacket(SASL_OPCODE, _bytes(token)), xid)
            challenge = _challenge(xid, read_answer)
            if mechanism.is_complete:
                return
            if not challenge:
                raise ZkLoginError("the server says nothing to our SASL login: it is not set up for SASL")
    except ZkSaslError as error:
        raise ZkLoginError(f"the SASL login failed on our side: {error}") from error
    raise ZkLoginError(f"the SASL login did not end within {SASL_ROUNDS_MAX} packets")


def _challenge(xid: int, read_answer: Callable[[], tuple[Any, bytes, int]]) -> bytes:
    try:
        header, buffer, at = read_answer()
    except ConnectionDropped as error:
        raise ZkLoginError("the server ended the connection on our SASL login: user or password are wrong") from error
    if header.err != CODE_OK:
        raise ZkLoginError(f"the server refused our SASL login (error {header.err}): user or password are wrong")
    if header.xid != xid:
        raise ConnectionDropped(f"an answer to {header.xid} where {xid} was due")
    length = _INT.unpack_from(buffer, at)[0] if len(buffer) >= at + _INT.size else 0
    return bytes(buffer[at + _INT.size : at + _INT.size + max(0, length)])


def _bytes(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data
