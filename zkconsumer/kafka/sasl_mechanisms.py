"""The SASL mechanisms: the first message, the response to every challenge, and whether the broker has proved itself.

Nothing here sends messages: ``net.sasl_client_authenticator`` frames them.  Every login has a new mechanism object.

    PLAIN          user and password in plain text: only under TLS, or on a network where no other party can read
    SCRAM-SHA-…    a proof of the password; the broker also proves that it has the password (RFC 5802)
    OAUTHBEARER    a token that the program supplies (RFC 7628)
    GSSAPI         Kerberos (RFC 4752); requires the package gssapi
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from zkconsumer.base.kerberos import KerberosClient, KerberosError, SecurityLayerRequired, load_gssapi
from zkconsumer.errors import InvalidConfigException, RemoteProtocolError, SaslAuthenticationException

SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")

SCRAM_ITERATIONS_MAX = 100_000
"""The maximum number of hash iterations that a broker may demand; brokers accept 4096 to 16384."""

BROKER_MESSAGE_CHARS_MAX = 300
"""How many characters of a broker's own error text are quoted."""


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """The credentials; secrets are never shown.  ``oauth_token`` is called for each login."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    kerberos_service: str = "kafka"
    oauth_token: Callable[[], str] | None = field(default=None, repr=False)

    def new_mechanism(self, host: str) -> KafkaSaslMechanism:
        """A mechanism for one login at this broker.  ``InvalidConfigException``: a required part is missing."""
        match self.mechanism:
            case "PLAIN":
                return PlainMechanism(self.username, self.password)
            case mechanism if mechanism in SCRAM_MECHANISMS:
                return Scram(mechanism, self.username, self.password)
            case "OAUTHBEARER":
                return OAuthBearer(self.oauth_token)
            case "GSSAPI":
                return KafkaGssapi(self.kerberos_service, host)
        raise InvalidConfigException(f"sasl.mechanism={self.mechanism} is not supported")

    def check(self) -> None:
        """Raise ``InvalidConfigException`` for errors that would stop every login."""
        if self.mechanism == "OAUTHBEARER" and self.oauth_token is None:
            raise InvalidConfigException(
                "sasl.mechanism=OAUTHBEARER needs a source of tokens: give the connector oauth_token=, a "
                "function without arguments that returns one (the command line cannot)"
            )
        if self.mechanism == "GSSAPI":
            _check_gssapi()


class KafkaSaslMechanism(Protocol):
    """One login."""

    def initial_response(self) -> bytes:
        """The first message of the client."""

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        """The client's response to a challenge; None: the broker has proved itself, and the login is complete.

        Raises ``SaslAuthenticationException`` when the broker rejects the login, or has not proved itself, and
        ``RemoteProtocolError`` for a message that the mechanism does not allow.
        """

    @property
    def is_complete(self) -> bool:
        """Whether the broker has proved itself; a login that the broker ends before that fails."""

    @property
    def final_message_unanswered(self) -> bool:
        """Whether the last message has no response when messages are raw; with SaslAuthenticate each one has."""


class PlainMechanism:
    """RFC 4616."""

    is_complete = True
    final_message_unanswered = False

    def __init__(self, username: str, password: str) -> None:
        self._message = b"\0" + username.encode() + b"\0" + password.encode()

    def initial_response(self) -> bytes:
        return self._message

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise RemoteProtocolError("SASL PLAIN: the broker sent a challenge, but PLAIN has only one message")
        return None


class Scram:
    """RFC 5802, without channel binding, which Kafka does not have."""

    final_message_unanswered = False

    def __init__(self, mechanism: str, username: str, password: str) -> None:
        import scramp  # here, so that Spark's executors need it only for brokers that want it

        self._mechanism = mechanism
        self._refused: type[Exception] = scramp.ScramException
        self._client = scramp.ScramClient([mechanism], username, password)
        self._steps = 0
        self.is_complete = False

    def initial_response(self) -> bytes:
        return str(self._client.get_client_first()).encode()

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        self._steps += 1
        words = challenge.decode("utf-8", "replace")
        try:
            if self._steps == 1:
                self._limit_work(words)
                self._client.set_server_first(words)
                return str(self._client.get_client_final()).encode()
            if self._steps == 2 and not words.startswith("e="):
                self._client.set_server_final(words)
                self.is_complete = True
                return None
        except self._refused as error:
            raise SaslAuthenticationException(
                f"{self._mechanism}: the broker has not proved that it knows the password ({error}); either it is not "
                "the broker that it seems to be, or it has another password of this user"
            ) from error
        raise SaslAuthenticationException(f"{self._mechanism}: the broker refuses: {printable_text(words)}")

    def _limit_work(self, words: str) -> None:
        iterations = re.search(r"(?:^|,)i=([0-9]{1,20})(?:,|$)", words)
        if iterations is not None and int(iterations[1]) > SCRAM_ITERATIONS_MAX:
            raise RemoteProtocolError(
                f"{self._mechanism}: the broker wants {iterations[1]} iterations, more than {SCRAM_ITERATIONS_MAX}; "
                "make the user's credentials anew at the broker with fewer"
            )


class OAuthBearer:
    """RFC 7628; a rejection is a challenge with the reason, and the client must respond with a single 0x01."""

    is_complete = True
    final_message_unanswered = False

    def __init__(self, oauth_token: Callable[[], str] | None) -> None:
        self._oauth_token = oauth_token

    def initial_response(self) -> bytes:
        if self._oauth_token is None:
            raise InvalidConfigException("sasl.mechanism=OAUTHBEARER needs oauth_token=")
        try:
            token = self._oauth_token()
        except Exception as error:
            # The program's own function: any exception of it is reported.
            raise SaslAuthenticationException(
                f"OAUTHBEARER: oauth_token failed: {type(error).__name__}; see the cause"
            ) from error
        if not isinstance(token, str) or not re.fullmatch(r"[!-~]+", token):
            raise SaslAuthenticationException(
                "OAUTHBEARER: oauth_token returned no token: return a text of visible ASCII characters"
            )
        return f"n,,\x01auth=Bearer {token}\x01\x01".encode()

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        # After this the broker closes the connection, or sends an error; the reason is already in the challenge.
        return b"\x01" if challenge else None


class KafkaGssapi:
    """RFC 4752 without a security layer, with the ticket of the environment."""

    final_message_unanswered = True

    def __init__(self, service: str, host: str) -> None:
        _check_gssapi()
        self._where = f"{service}@{host}"
        try:
            self._client = KerberosClient(service, host)
        except KerberosError as error:
            raise self._refused(error) from error

    @property
    def is_complete(self) -> bool:
        return self._client.is_complete

    def initial_response(self) -> bytes:
        try:
            return self._client.first()
        except KerberosError as error:
            raise self._refused(error) from error

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        if self.is_complete:
            if challenge:
                raise RemoteProtocolError("GSSAPI: the broker sent a message after the end")
            return None
        try:
            return self._client.answer(challenge)
        except SecurityLayerRequired as error:
            raise RemoteProtocolError(
                "GSSAPI: the broker requires a security layer of Kerberos, which Kafka does not have"
            ) from error
        except KerberosError as error:
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> SaslAuthenticationException:
        return SaslAuthenticationException(
            f"GSSAPI: no login as a client of {self._where}: {printable_text(str(error))}; is there a ticket (klist), "
            "and is sasl.kerberos.service.name the service name of the broker?"
        )


def _check_gssapi() -> None:
    try:
        load_gssapi()
    except ImportError as error:
        raise InvalidConfigException(
            "sasl.mechanism=GSSAPI needs the package gssapi: pip install 'gssapi>=1.8' (and the Kerberos library of "
            f"the system); {error}"
        ) from error


def printable_text(words: str) -> str:
    """Make a broker's error text fit on one line."""
    shown = "".join(char if char.isprintable() else " " for char in words[:BROKER_MESSAGE_CHARS_MAX])
    return f"{shown}…" if len(words) > BROKER_MESSAGE_CHARS_MAX else shown
