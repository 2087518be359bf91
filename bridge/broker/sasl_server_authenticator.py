"""The broker's side of SASL PLAIN on one connection.  Pure.

    SaslHandshake v0 --> one raw message, after its length --> logged in        0.10
    SaslHandshake v1 --> SaslAuthenticate                  --> logged in        1.0, KIP-152

Before the login, ApiVersions is the only other request that is answered.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from zkconsumer.kafka.error_codes import ILLEGAL_SASL_STATE, SASL_AUTHENTICATION_FAILED, UNSUPPORTED_SASL_MECHANISM
from zkconsumer.wire.schemas.sasl_authenticate import SaslAuthenticateResponse
from zkconsumer.wire.schemas.sasl_handshake import SaslHandshakeResponse

ANONYMOUS = "ANONYMOUS"
"""The principal of a client without a login, as in Kafka."""

MECHANISMS = ["PLAIN"]
LOGIN_BYTES_MAX = 524_288
"""The longest frame before the login: ``sasl.server.max.receive.size`` (3.6)."""


class SaslServerState(Enum):
    """The state of the login."""

    HANDSHAKE_REQUEST = auto()
    AUTHENTICATE = auto()
    RAW_TOKEN = auto()
    COMPLETE = auto()


@dataclass(slots=True)
class SaslServerAuthenticator:
    """``users``: name → password; None: this listener needs no login."""

    users: Mapping[str, str] | None = field(repr=False)
    state: SaslServerState = SaslServerState.HANDSHAKE_REQUEST
    principal: str = ANONYMOUS

    def __post_init__(self) -> None:
        if self.users is None:
            self.state = SaslServerState.COMPLETE

    @property
    def is_complete(self) -> bool:
        """Whether any request may be answered."""
        return self.state is SaslServerState.COMPLETE

    def handshake(self, mechanism: str, version: int) -> SaslHandshakeResponse:
        """The answer to SaslHandshake; an error in it ends the login."""
        if self.users is None:
            return SaslHandshakeResponse(error_code=ILLEGAL_SASL_STATE.code, mechanisms=[])
        if mechanism not in MECHANISMS:
            return SaslHandshakeResponse(error_code=UNSUPPORTED_SASL_MECHANISM.code, mechanisms=MECHANISMS)
        if self.state is SaslServerState.COMPLETE and version == 0:
            return SaslHandshakeResponse(error_code=ILLEGAL_SASL_STATE.code, mechanisms=[])
        self.state = SaslServerState.RAW_TOKEN if version == 0 else SaslServerState.AUTHENTICATE
        return SaslHandshakeResponse(mechanisms=MECHANISMS)

    def authenticate(self, message: bytes) -> SaslAuthenticateResponse:
        """The answer to SaslAuthenticate; an error in it ends the connection."""
        if self.state is not SaslServerState.AUTHENTICATE:
            return SaslAuthenticateResponse(
                error_code=ILLEGAL_SASL_STATE.code, error_message="SaslAuthenticate comes after a SaslHandshake"
            )
        if not self.authenticate_token(message):
            return SaslAuthenticateResponse(
                error_code=SASL_AUTHENTICATION_FAILED.code,
                error_message="Authentication failed: Invalid username or password",
            )
        return SaslAuthenticateResponse()

    def authenticate_token(self, message: bytes) -> bool:
        """Whether a message of PLAIN (RFC 4616) contains a user and its password; if so, that user is logged in."""
        try:
            parts = message.decode("utf-8").split("\0")
        except UnicodeDecodeError:
            return False
        if len(parts) != 3 or self.users is None:
            return False
        authorization_id, user, password = parts
        expected = self.users.get(user, "")
        fits = hmac.compare_digest(password.encode(), expected.encode())
        if not (fits and user in self.users and authorization_id in ("", user)):
            return False
        self.state, self.principal = SaslServerState.COMPLETE, user
        return True
