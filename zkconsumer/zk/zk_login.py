"""Logs in at a ZooKeeper server, immediately after the server created the session and before any other packet.

    digest      one packet with user and password; the server accepts any, and computes the identity from their hash
    SASL        a few packets of the mechanism; the server closes the connection of an unknown user

kazoo's login is not used: it logs the packets that it sends, and it never ends with a server without SASL.
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
"""The host name of every ZooKeeper server in DIGEST-MD5, regardless of its real name."""

SASL_ROUNDS_MAX = 10
_INT = struct.Struct("!i")


class ZkLoginError(AuthFailedError):  # type: ignore[misc]
    """The server rejected the login.  kazoo's connection loop ends for this error."""


class LoginPacket:
    """A packet of the login; its ``repr`` does not contain its body, which may be a secret."""

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
    """Log in, or raise ``ZkLoginError``.

    ``submit(packet, xid)`` sends a packet; ``read_answer()`` waits for the next one and returns its reply header, its
    bytes and the index after the header.
    """
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
        raise ConnectionDropped(f"an answer to request {header.xid} instead of the login")
    if header.err != CODE_OK:
        raise ZkLoginError(f"the server rejects logins of the scheme digest (error {header.err})")


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
                raise ZkLoginError("the server does not answer the SASL login: it is not configured for SASL")
    except ZkSaslError as error:
        raise ZkLoginError(f"the SASL login failed in this client: {error}") from error
    raise ZkLoginError(f"the SASL login did not end within {SASL_ROUNDS_MAX} packets")


def _challenge(xid: int, read_answer: Callable[[], tuple[Any, bytes, int]]) -> bytes:
    try:
        header, buffer, at = read_answer()
    except ConnectionDropped as error:
        why = "the server closed the connection during the SASL login: user or password is wrong"
        raise ZkLoginError(why) from error
    if header.err != CODE_OK:
        raise ZkLoginError(f"the server rejected the SASL login (error {header.err}): user or password is wrong")
    if header.xid != xid:
        raise ConnectionDropped(f"an answer to request {header.xid} instead of {xid}")
    length = _INT.unpack_from(buffer, at)[0] if len(buffer) >= at + _INT.size else 0
    return bytes(buffer[at + _INT.size : at + _INT.size + max(0, length)])


def _bytes(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data
