"""TLS as a layer over a transport: the same calls, the same deadlines, the same abort.

    caller --plain bytes--> TlsTransport --records--> the transport below (a socket, or a test's memory)

OpenSSL works on two memory buffers here and not on the socket.  So a deadline, an ``abort`` from another thread
and ``wait`` have the same meaning as without TLS: a readable socket may contain only a session ticket.
"""

from __future__ import annotations

import shlex
import ssl
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from zkconsumer.errors import InvalidConfigException, SslAuthenticationException
from zkconsumer.kafka.transport import HandshakeClosedError, HandshakeTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable

    from zkconsumer.base.clock import Clock
    from zkconsumer.kafka.transport import Transport

T = TypeVar("T")

TLS_READ_BYTES = 64 * 1024
"""How much is read from the transport below at a time; a TLS record has at most 16 KiB."""

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


class TlsTransport:
    """A ``Transport`` that speaks TLS over another one, which it owns.

    Besides ``OSError``, ``open`` and the receiving calls raise ``SslAuthenticationException``: one side rejects the
    other, and a retry is useless.
    """

    def __init__(self, below: Transport, context: ssl.SSLContext, host: str, port: int, clock: Clock) -> None:
        self._below = below
        self._context = context
        self._host = host
        self._port = port
        self._clock = clock
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._piece = memoryview(bytearray(TLS_READ_BYTES))
        self._plain = b""
        self._start: bytes | None = None

    def open(self, deadline_ms: int) -> None:
        """Connect and do the handshake, in ``HANDSHAKE_TIMEOUT_MS`` at most."""
        self._below.open(deadline_ms)
        tls = self._context.wrap_bio(self._incoming, self._outgoing, server_hostname=self._host)
        deadline_ms = min(deadline_ms, self._clock.now_ms() + HANDSHAKE_TIMEOUT_MS)
        try:
            while not self._handshake_step(tls):
                self._flush(deadline_ms)
                if self._receive_encrypted(deadline_ms) == 0:
                    raise HandshakeClosedError("the TLS handshake")
            self._flush(deadline_ms)
        except TimeoutError:
            raise HandshakeTimeoutError("the TLS handshake") from None
        self._tls = tls

    def _handshake_step(self, tls: ssl.SSLObject) -> bool:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            self._send_alert()
            raise self._translate_error(error) from error
        return True

    def _send_alert(self) -> None:
        """Send the reason to the other side (an alert), as far as possible without waiting."""
        alert = self._outgoing.read()
        if alert:
            try:
                self._below.send_all(alert, self._clock.now_ms() + 100)
            except OSError:
                return

    def send_all(self, data: bytes, deadline_ms: int) -> None:
        """Encrypt, and send everything."""
        tls = self._opened()
        rest = memoryview(data)
        while rest:
            rest = rest[self._call_openssl(partial(tls.write, rest[:TLS_READ_BYTES])) :]
            self._flush(deadline_ms)

    def receive_into(self, view: memoryview, deadline_ms: int) -> int:
        """Fill the beginning of ``view``; 0: the other side ended."""
        if self._plain:
            piece, self._plain = self._plain[: len(view)], self._plain[len(view) :]
            view[: len(piece)] = piece
            return len(piece)
        tls = self._opened()
        while True:
            try:
                # With a buffer it returns the number of bytes, which its type annotation lacks.
                received: Any = self._call_openssl(partial(tls.read, len(view), view))
                return int(received)
            except ssl.SSLWantReadError:
                pass
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return 0
            # TLS itself may have bytes to send, such as new keys.
            self._flush(deadline_ms)
            if self._receive_encrypted(deadline_ms) == 0:
                self._incoming.write_eof()

    def fill(self, view: memoryview, deadline_ms: int) -> int:
        """Fill the whole of ``view``; returns the number of bytes: fewer, if the other side ended.

        TLS adds bytes to the plain bytes, so this can wait for all the missing bytes at once, less the beginning of one
        TLS record, which OpenSSL may have already.
        """
        filled = 0
        if self._plain:
            filled = self.receive_into(view, deadline_ms)
        # With a buffer it returns the number of bytes, which its type annotation lacks.
        read: Any = self._opened().read
        size = len(view)
        while True:
            try:
                # One TLS record for each call, so this loop does nothing else.
                while filled < size:
                    received = read(size - filled, view[filled:])
                    if received == 0:  # ``close_notify``: the other side has ended the TLS session
                        break
                    filled += received
                return filled
            except ssl.SSLWantReadError:
                pass
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return filled
            except ssl.SSLError as error:
                raise self._translate_error(error) from error
            self._flush(deadline_ms)
            if self._receive_encrypted(deadline_ms, size - filled - self._incoming.pending - RECORD_BYTES_MAX) == 0:
                self._incoming.write_eof()

    def wait(self, deadline_ms: int) -> bool:
        """Whether a receive would not block: only complete records count."""
        tls = self._opened()
        while not self._plain:
            try:
                self._plain = self._call_openssl(partial(tls.read, TLS_READ_BYTES))
                return True
            except ssl.SSLWantReadError:
                self._flush(deadline_ms)
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return True
            if not self._below.wait(deadline_ms):
                return False
            if self._receive_encrypted(max(deadline_ms, self._clock.now_ms() + 1)) == 0:
                self._incoming.write_eof()
        return True

    def renew(self, deadline_ms: int) -> None:
        """Nothing to renew in TLS."""
        self._below.renew(deadline_ms)

    def abort(self) -> None:
        """See ``Transport``."""
        self._below.abort()

    def release(self) -> None:
        """See ``Transport``."""
        self._tls = None
        self._below.release()

    def _opened(self) -> ssl.SSLObject:
        if self._tls is None:
            raise ConnectionAbortedError("the transport is not open")
        return self._tls

    def _flush(self, deadline_ms: int) -> None:
        if self._outgoing.pending:
            try:
                self._below.send_all(self._outgoing.read(), deadline_ms)
            except ConnectionError:
                self._raise_pending_alert()
                raise

    def _raise_pending_alert(self) -> None:
        """The other side has closed the connection; raise its last alert, if it was a rejection.

        In TLS 1.3 a server checks our certificate after our side of the handshake has ended.
        """
        while self._tls is not None:
            try:
                if not self._below.wait(self._clock.now_ms()) or self._receive_encrypted(self._clock.now_ms() + 1) == 0:
                    return
                while self._call_openssl(partial(self._tls.read, TLS_READ_BYTES)):
                    pass
            except ssl.SSLWantReadError:
                pass
            except OSError:
                return

    def _receive_encrypted(self, deadline_ms: int, bytes_sure: int = 0) -> int:
        """Read bytes from below for OpenSSL; ``bytes_sure``: how many will arrive unless the other side ends."""
        if bytes_sure > len(self._piece) < TLS_LARGE_READ_BYTES:
            self._piece = memoryview(bytearray(TLS_LARGE_READ_BYTES))
        if bytes_sure > TLS_READ_BYTES:
            received = self._below.fill(self._piece[:bytes_sure], deadline_ms)
        else:
            received = self._below.receive_into(self._piece, deadline_ms)
        if self._start is None and received:
            self._start = bytes(self._piece[: min(received, len(_TLS_STARTS[0]))])
        self._incoming.write(self._piece[:received])
        return received

    def _call_openssl(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError, ssl.SSLEOFError):
            raise
        except ssl.SSLError as error:
            raise self._translate_error(error) from error

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
