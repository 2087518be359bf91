"""The security settings for ZooKeeper, read from the configured files: login, TLS, and the ACL of created nodes.

This module reads secrets and passes them to ``zkconsumer.zk.zk_login`` and to OpenSSL.  No text that is made of these
values contains a secret.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import shlex
import ssl
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from zkconsumer.errors import InvalidConfigException
from zkconsumer.zk.requests import PERM_ALL, PERM_READ, Acl

if TYPE_CHECKING:
    from collections.abc import Callable

    from zkconsumer.config import ConsumerConfig

SECURE_ACL = (Acl(PERM_ALL, "auth", ""), Acl(PERM_READ, "world", "anyone"))
"""The creator has all permissions, every client may read: the ACL of Scala consumers with JAAS since 0.9."""

SECRET_BYTES_MAX = 4_096

log = logging.getLogger("zkconsumer.zk.zk_security")


@dataclass(frozen=True, slots=True)
class DigestLogin:
    """ZooKeeper's scheme ``digest``: the server accepts every user and password; only ACLs reject a wrong password."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SaslDigestMd5Login:
    """Like a JAAS section with ``DigestLoginModule``; the server checks the password."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SaslGssapiLogin:
    """Kerberos, with the tickets of this process; ``principal`` None: the default principal."""

    principal: str | None = None


ZkLogin: TypeAlias = DigestLogin | SaslDigestMd5Login | SaslGssapiLogin


@dataclass(frozen=True, slots=True)
class ZkSecurity:
    """The security of a connection; the default is no login, no TLS, and an open ACL."""

    login: ZkLogin | None = None
    tls: ssl.SSLContext | None = None
    acl: tuple[Acl, ...] | None = None
    """The ACL of created owner and offset nodes and their parents; None: every client has all permissions."""

    @property
    def user_description(self) -> str:
        """The user of this client, for log and error texts."""
        match self.login:
            case DigestLogin(user):
                return f"digest user {user!r}"
            case SaslDigestMd5Login(user):
                return f"sasl:{user}"
            case SaslGssapiLogin(principal):
                return f"sasl:{principal}" if principal else "sasl (Kerberos)"
        return "an anonymous user (zookeeper.auth is not set)"


NO_SECURITY = ZkSecurity()


def zk_security_of(config: ConsumerConfig) -> ZkSecurity:
    """The security that the configuration describes.  Raises ``InvalidConfigException`` for unusable files."""
    return ZkSecurity(
        login=zk_login_of(config),
        tls=_tls(config) if config.zookeeper_ssl_client_enable else None,
        acl=SECURE_ACL if config.zookeeper_set_acl else None,
    )


def zk_login_of(config: ConsumerConfig) -> ZkLogin | None:
    """The login of ``zookeeper.auth``; None without one.  Raises ``InvalidConfigException`` for an unusable file."""
    return _login(config.zookeeper_auth)


def identities(login: ZkLogin | None) -> frozenset[tuple[str, str]]:
    """The scheme and id of this login in ACL entries; empty for Kerberos with the default principal.

    A digest's id contains a hash of the password: compare it, and do not show it.
    """
    match login:
        case DigestLogin(user, password):
            hashed = hashlib.sha1(f"{user}:{password}".encode()).digest()
            return frozenset({("digest", f"{user}:{base64.b64encode(hashed).decode()}")})
        case SaslDigestMd5Login(user):
            return frozenset({("sasl", user)})
        case SaslGssapiLogin(principal) if principal is not None:
            return frozenset({("sasl", principal)})
    return frozenset()


def _login(setting: str | None) -> ZkLogin | None:
    if setting is None:
        return None
    scheme, _, rest = setting.partition(":")
    match scheme:
        case "digest":
            return DigestLogin(*_user_and_password(Path(rest)))
        case "sasl-digest-md5":
            return SaslDigestMd5Login(*_user_and_password(Path(rest)))
        case _:
            return SaslGssapiLogin(rest or None)


def _user_and_password(path: Path) -> tuple[str, str]:
    try:
        with path.open("rb") as file:
            content = file.read(SECRET_BYTES_MAX + 1)
            mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise InvalidConfigException(f"zookeeper.auth: {path} cannot be read: {error.strerror}") from error
    try:
        text = content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        text = ""
    user, colon, password = text.partition(":")
    if not (user and colon and password) or "\n" in text or len(content) > SECRET_BYTES_MAX:
        raise InvalidConfigException(f"zookeeper.auth: {path} must contain one line, user:password")
    if mode & 0o077:
        log.warning("password-file-readable path=%s mode=%o: other users may read it; chmod 600 it", path, mode)
    return user, password


# --- TLS ----------------------------------------------------------------------------------------------------------

_JKS_MAGICS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_DER_SEQUENCE = b"\x30"
_TRUST_ADVICE = "keytool -list -rfc -keystore {file} > truststore.pem"
_KEY_ADVICE = (
    "keytool -importkeystore -srckeystore {file} -destkeystore keystore.p12 -deststoretype PKCS12 && "
    "openssl pkcs12 -in keystore.p12 -nodes -out keystore.pem"
)


def _tls(config: ConsumerConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = config.zookeeper_ssl_endpoint_identification_algorithm == "https"
    trust, key = config.zookeeper_ssl_truststore_location, config.zookeeper_ssl_keystore_location
    if trust is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        where = f"zookeeper.ssl.truststore.location={trust}"
        _check_is_pem(trust, where, _TRUST_ADVICE)
        _load(lambda: context.load_verify_locations(trust), f"{where}: contains no certificate in PEM format")
    if key is not None:
        where = f"zookeeper.ssl.keystore.location={key}"
        _check_is_pem(key, where, _KEY_ADVICE)
        # Not None: then OpenSSL asks for the password on the terminal.
        password = config.zookeeper_ssl_keystore_password or ""
        _load(
            lambda: context.load_cert_chain(key, password=password),
            f"{where}: contains no certificate and key in PEM format that zookeeper.ssl.keystore.password opens",
        )
    return context


def _check_is_pem(file: str, where: str, advice: str) -> None:
    try:
        with Path(file).open("rb") as opened:
            start = opened.read(4)
    except OSError as error:
        raise InvalidConfigException(f"{where}: cannot be read: {error.strerror}") from error
    if start in _JKS_MAGICS or start.startswith(_DER_SEQUENCE):
        command = advice.format(file=shlex.quote(file))
        raise InvalidConfigException(
            f"{where}: is a Java keystore (JKS or PKCS #12), and only PEM is supported; convert it with: {command}"
        )


def _load(action: Callable[[], object], what: str) -> None:
    try:
        action()
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
        raise InvalidConfigException(f"{what} ({reason})") from error
