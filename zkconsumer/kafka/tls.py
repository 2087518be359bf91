"""TLS as a computation: OpenSSL on two memory buffers, without I/O.

    encrypted bytes of the socket --put_encrypted--> OpenSSL --decrypt--> plain bytes, into memory of the caller
    bytes for the socket <--take_encrypted-- OpenSSL <--encrypt-- plain bytes

OpenSSL does not work on the socket, so a deadline, an abort from another thread, and a wait for a response have the
same meaning as without TLS: a readable socket may contain only a session ticket.  ``net.broker_channel`` drives it.
"""

from __future__ import annotations

import shlex
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zkconsumer.errors import InvalidConfigException, SslAuthenticationException
from zkconsumer.kafka.net.handshake_errors import HandshakeClosedError

if TYPE_CHECKING:
    from collections.abc import Callable

TLS_READ_BYTES = 64 * 1024
"""How much is read from the socket, and encrypted, at a time; a TLS record has at most 16 KiB."""

TLS_LARGE_READ_BYTES = 512 * 1024
"""The same while a large response is expected; the memory for it stays with the connection."""

HANDSHAKE_TIMEOUT_MS = 10_000
"""How long the handshake may take after the TCP connect, also if ``socket.timeout.ms`` is longer."""

RECORD_BYTES_MAX = 18 * 1024
"""The longest TLS record, including the overhead of encryption (RFC 5246; TLS 1.3 has shorter ones)."""

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

_JKS_MAGIC = b"\xfe\xed\xfe\xed"
_DER_SEQUENCE = b"\x30"

# X509_V_ERR_…: OpenSSL's reasons to reject a certificate.
_NOT_YET_VALID, _EXPIRED, _WRONG_HOST, _WRONG_ADDRESS = 9, 10, 62, 64
_UNKNOWN_AUTHORITY = frozenset({2, 18, 19, 20, 21})


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Files are PEM; ``ca_file`` None: the system's certificate authorities.  Passwords are never shown."""

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    checks_host: bool = True
    versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")

    def context(self) -> ssl.SSLContext:
        """The OpenSSL context; raises ``InvalidConfigException`` for files that cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.checks_host
        context.verify_mode = ssl.CERT_REQUIRED
        wanted = [_VERSIONS[version] for version in self.versions]
        context.minimum_version, context.maximum_version = min(wanted), max(wanted)
        if self.ca_file is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        else:
            _check_pem(self.ca_file, "the authorities' certificates", TRUST_ADVICE)
            _load(lambda: context.load_verify_locations(self.ca_file), self.ca_file, "contains no certificate in PEM")
        if self.certificate_file is not None:
            for file in dict.fromkeys((self.certificate_file, self.key_file or self.certificate_file)):
                _check_pem(file, "our certificate and key", KEY_ADVICE)
            # Never None: OpenSSL would prompt for the password on the terminal.
            password = self.key_password or ""
            _load(
                lambda: context.load_cert_chain(str(self.certificate_file), self.key_file, password),
                self.key_file or self.certificate_file,
                "contains no private key in PEM that matches the certificate and that ssl.key.password decrypts",
            )
        return context


TRUST_ADVICE = {
    "JKS": "keytool -list -rfc -keystore {file} > truststore.pem",
    "PKCS12": "openssl pkcs12 -in {file} -nokeys -out truststore.pem",
}
KEY_ADVICE = {
    "JKS": "keytool -importkeystore -srckeystore {file} -destkeystore keystore.p12 -deststoretype PKCS12 && "
    "openssl pkcs12 -in keystore.p12 -nodes -out keystore.pem",
    "PKCS12": "openssl pkcs12 -in {file} -nodes -out keystore.pem",
}
"""The command that converts a Java keystore to PEM."""


def _check_pem(file: str, what: str, advice: dict[str, str]) -> None:
    try:
        with Path(file).open("rb") as opened:
            start = opened.read(4)
    except OSError as error:
        raise InvalidConfigException(f"{file}: {what} cannot be read: {error.strerror}") from error
    kind = "JKS" if start == _JKS_MAGIC else "PKCS12" if start.startswith(_DER_SEQUENCE) else ""
    if kind:
        name = {"JKS": "a Java keystore (JKS)", "PKCS12": "a PKCS #12 file"}[kind]
        command = advice[kind].format(file=shlex.quote(file))
        raise InvalidConfigException(f"{file}: is {name}, but only PEM is supported; convert it once with: {command}")


def _load(action: Callable[[], object], file: str, what: str) -> None:
    try:
        action()
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
        raise InvalidConfigException(f"{file}: {what} ({reason})") from error


class TlsClient:
    """The client's side of one TLS session; see the head of this module.

    Every method may raise ``SslAuthenticationException`` (one side rejects the other, and a retry is useless), and
    ``handshake`` also ``HandshakeClosedError``.  After an exception ``take_encrypted`` may return an alert for the
    other side.
    """

    def __init__(self, context: ssl.SSLContext, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        # With a buffer ``read`` returns the number of bytes, which its type annotation lacks.
        self._read: Any = self._tls.read
        self._start: bytes | None = None
        self._has_ended = False

    @property
    def has_ended(self) -> bool:
        """Whether the other side has ended the session, by ``close_notify`` or by the end of its bytes."""
        return self._has_ended

    @property
    def encrypted_bytes(self) -> int:
        """How many received bytes wait for decryption."""
        return self._incoming.pending

    @property
    def has_output(self) -> bool:
        """Whether ``take_encrypted`` returns bytes."""
        return self._outgoing.pending > 0

    def handshake(self) -> bool:
        """Continue the handshake with the received bytes; False: it needs more of them."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise self._translate_error(error) from error
        return True

    def put_encrypted(self, data: memoryview) -> None:
        """Bytes from the other side."""
        if self._start is None:
            self._start = bytes(data[: len(_TLS_STARTS[0])])
        self._incoming.write(data)

    def put_eof(self) -> None:
        """The other side sends no more bytes."""
        self._incoming.write_eof()

    def take_encrypted(self) -> bytes:
        """Bytes for the other side."""
        return self._outgoing.read()

    def encrypt(self, data: memoryview) -> int:
        """Encrypt the beginning of ``data``; returns how many bytes of it."""
        try:
            return self._tls.write(data)
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError, ssl.SSLEOFError):
            raise
        except ssl.SSLError as error:
            raise self._translate_error(error) from error

    def decrypt_record(self, view: memoryview) -> int:
        """Decrypt the next TLS record into ``view``; returns the number of bytes, 0 if there is none."""
        try:
            received = int(self._read(len(view), view))
        except ssl.SSLWantReadError:
            return 0
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            received = 0
        except ssl.SSLError as error:
            raise self._translate_error(error) from error
        self._has_ended = received == 0
        return received

    def decrypt(self, view: memoryview) -> int:
        """Decrypt into ``view`` until it is full or all received bytes are decrypted; returns the number of bytes."""
        read = self._read
        size = len(view)
        filled = 0
        try:
            # One TLS record for each call, so this loop does nothing else.
            while filled < size:
                received = read(size - filled, view[filled:])
                if received == 0:  # ``close_notify``: the other side has ended the TLS session
                    self._has_ended = True
                    break
                filled += received
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            self._has_ended = True
        except ssl.SSLError as error:
            raise self._translate_error(error) from error
        return filled

    def raise_pending_alert(self) -> None:
        """The other side has closed the connection; raise its last alert, if it was a rejection.

        In TLS 1.3 a server checks our certificate after our side of the handshake has ended.  Discards plain bytes.
        """
        scratch = memoryview(bytearray(RECORD_BYTES_MAX))
        while self.decrypt_record(scratch):
            pass

    def _translate_error(self, error: ssl.SSLError) -> Exception:
        """Which side rejects the other and who must act; an end in the middle stays a broken connection."""
        where = f"{self._host}:{self._port}"
        if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            return HandshakeClosedError("the TLS handshake")
        if isinstance(error, ssl.SSLCertVerificationError):
            return SslAuthenticationException(f"{where}: {_certificate_message(error, self._host)}")
        reason = error.reason or str(error)
        if "ALERT" in reason:
            return SslAuthenticationException(f"{where}: {_alert_message(reason)}")
        if reason in _NOT_TLS and self._start not in _TLS_STARTS:
            return NotTlsError(
                f"{where}: the port does not use TLS ({reason}); is this a PLAINTEXT port? "
                "Correct security.protocol, or the port"
            )
        return SslAuthenticationException(
            f"{where}: TLS could not be agreed on ({reason}); perhaps the broker wants a certificate of ours "
            "(ssl.keystore.location); its log says why"
        )


class NotTlsError(SslAuthenticationException):
    """The other side does not speak TLS: the port is probably a PLAINTEXT port; correct ``security.protocol``."""


_NOT_TLS = frozenset(
    {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "PACKET_LENGTH_TOO_LONG", "UNEXPECTED_MESSAGE",
     "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL", "BAD_RECORD_TYPE", "UNSUPPORTED_PROTOCOL_VERSION"}
)  # fmt: skip


_TLS_STARTS = (b"\x16\x03", b"\x15\x03")
"""The first byte of everything that a TLS server sends first: a handshake, or an alert."""


def _certificate_message(error: ssl.SSLCertVerificationError, host: str) -> str:
    why = error.verify_message
    match error.verify_code:
        case code if code == _EXPIRED:
            return f"the broker's certificate has expired ({why}); renew it at the broker (or correct this clock)"
        case code if code == _NOT_YET_VALID:
            return f"the broker's certificate is not valid yet ({why}); compare this machine's clock with the broker's"
        case code if code in (_WRONG_HOST, _WRONG_ADDRESS):
            return (
                f"the broker's certificate is not for {host} ({why}); connect by a name that it contains, create one "
                "with this name, or, if any broker of this authority may answer, set "
                "ssl.endpoint.identification.algorithm to nothing"
            )
        case code if code in _UNKNOWN_AUTHORITY:
            return (
                f"the broker's certificate is from an unknown authority ({why}); put the authority's "
                "certificate into ssl.truststore.location (or ssl.ca.location)"
            )
    return f"the broker's certificate is rejected ({why}); see ssl.truststore.location, or renew it at the broker"


def _alert_message(reason: str) -> str:
    if "PROTOCOL_VERSION" in reason:
        return f"the broker supports none of our versions of TLS ({reason}); see ssl.enabled.protocols on both sides"
    if "CERTIFICATE" in reason or "UNKNOWN_CA" in reason or "ACCESS_DENIED" in reason:
        return (
            f"the broker rejects our certificate, or requires one that we do not send ({reason}); set "
            "ssl.keystore.location to one that is in the broker's truststore"
        )
    return (
        f"the broker ended the TLS handshake ({reason}); perhaps it requires a certificate of ours "
        "(ssl.keystore.location); its log says why"
    )
