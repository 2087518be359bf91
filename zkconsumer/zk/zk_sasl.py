"""The SASL mechanisms of ZooKeeper servers: DIGEST-MD5 (RFC 2831) and GSSAPI.

A mechanism computes the client's answers to the server's challenges; ``zk_login`` sends them.  Each login uses a new
instance.  They are implemented here because pure-sasl, which kazoo uses, has had no release since 2019, and kerberos,
which pure-sasl needs for GSSAPI, none since 2021.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Protocol

from zkconsumer.base.kerberos import KerberosClient, KerberosError, SecurityLayerRequired

_PAIR = re.compile(r'\s*([a-z0-9-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^",\s]*))\s*(?:,|\Z)', re.IGNORECASE | re.DOTALL)
_NONCE_COUNT = "00000001"


class ZkSaslError(Exception):
    """The login failed in the client; the text contains the reason."""


class ZkSaslMechanism(Protocol):
    """One login."""

    @property
    def is_complete(self) -> bool:
        """Whether the client needs no further message of the server."""

    def process(self, challenge: bytes | None) -> bytes:
        """The answer to a challenge, None before the first one.  Raises ``ZkSaslError``."""


class ZkDigestMd5Mechanism:
    """Proves to the server that the client knows the password, without sending it, and checks the same of the server.

    ZooKeeper supports no stronger hash than MD5: an attacker that records a login can test passwords with it.  So use
    TLS, too.
    """

    def __init__(self, service: str, host: str, user: str, password: str) -> None:
        self.is_complete = False
        self._uri = f"{service}/{host}"
        self._user = user
        self._password = password
        self._expected_server_proof: str | None = None
        """The proof that the server's last message must contain; None until the client's proof was sent."""

    def process(self, challenge: bytes | None) -> bytes:
        if challenge is None:
            return b""  # in this mechanism the server sends the first message
        fields = _pairs(challenge)
        if self._expected_server_proof is None:
            return self._proof(fields)
        if not hmac.compare_digest(fields.get("rspauth", "").encode(), self._expected_server_proof.encode()):
            raise ZkSaslError("the server did not prove that it knows the password")
        self.is_complete = True
        return b""

    def _proof(self, demands: dict[str, str]) -> bytes:
        if "nonce" not in demands or demands.get("algorithm", "").lower() != "md5-sess":
            raise ZkSaslError("the server's challenge has no nonce, or another algorithm than md5-sess")
        if "auth" not in re.split(r"[\s,]+", demands.get("qop", "auth").lower()):
            raise ZkSaslError("the server requires a security layer of DIGEST-MD5, which ZooKeeper does not have")
        realm, nonce, own_nonce = demands.get("realm", ""), demands["nonce"], secrets.token_hex(16)
        secret = _md5(b":".join(map(_latin_1_or_utf_8, (self._user, realm, self._password))))
        session = _md5(secret + f":{nonce}:{own_nonce}".encode()).hex()

        def proof(method: str) -> str:
            what = _md5(f"{method}:{self._uri}".encode()).hex()
            return _md5(f"{session}:{nonce}:{_NONCE_COUNT}:{own_nonce}:auth:{what}".encode()).hex()

        self._expected_server_proof = proof("")
        fields = [
            "charset=utf-8",
            f"username={_quoted(self._user)}",
            f"realm={_quoted(realm)}",
            f"nonce={_quoted(nonce)}",
            f"nc={_NONCE_COUNT}",
            f"cnonce={_quoted(own_nonce)}",
            f"digest-uri={_quoted(self._uri)}",
            "maxbuf=65536",
            f"response={proof('AUTHENTICATE')}",
            "qop=auth",
        ]
        return ",".join(fields).encode()


class ZkGssapiMechanism:
    """Kerberos; ``principal``: the principal whose ticket is used; None: the default principal."""

    def __init__(self, service: str, host: str, principal: str | None) -> None:
        self._where = f"{service}@{host}"
        try:
            self._client = KerberosClient(service, host, principal)
        except KerberosError as error:
            raise self._failed(error) from error

    @property
    def is_complete(self) -> bool:
        return self._client.is_complete

    def process(self, challenge: bytes | None) -> bytes:
        if self.is_complete:
            return b""
        try:
            return self._client.first() if challenge is None else self._client.answer(challenge)
        except KerberosError as error:
            raise self._failed(error) from error
        except SecurityLayerRequired as error:
            what = "the server requires a security layer of Kerberos, which ZooKeeper does not have"
            raise ZkSaslError(what) from error

    def _failed(self, error: KerberosError) -> ZkSaslError:
        return ZkSaslError(f"the Kerberos login at {self._where} failed: {error}; check the ticket with klist")


def _pairs(challenge: bytes) -> dict[str, str]:
    """The fields of a challenge; of several with one name, the first is used.  Raises ``ZkSaslError``."""
    try:
        text = challenge.decode()
    except UnicodeDecodeError as error:
        raise ZkSaslError("the server's challenge is not UTF-8") from error
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        pair = _PAIR.match(text, position)
        if pair is None:
            raise ZkSaslError("the server's challenge is not a list of fields")
        name, in_quotes, plain = pair.groups()
        found.setdefault(name.lower(), plain if in_quotes is None else re.sub(r"\\(.)", r"\1", in_quotes, flags=re.S))
        position = pair.end()
    return found


def _latin_1_or_utf_8(text: str) -> bytes:
    """ISO 8859-1 if it can encode the text, else UTF-8, as in RFC 2831 (2.1.2.1) and in Java."""
    try:
        return text.encode("iso-8859-1")
    except UnicodeEncodeError:
        return text.encode()


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def _quoted(text: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'
