"""SaslAuthenticate (36): one message of a SASL mechanism and the answer to it (Kafka 1.0, KIP-152)."""

from __future__ import annotations

from zkconsumer.wire.field_types import blob, int16, int64, text
from zkconsumer.wire.schemas.message_schema import Api, f, message


@message
class SaslAuthenticateRequest:
    """``auth_bytes``: the message of the mechanism."""

    auth_bytes: bytes = f(blob)


@message
class SaslAuthenticateResponse:
    """``error_message``: a text for users.  ``session_lifetime_ms`` (2.2, KIP-368): the time after which the broker
    closes the connection unless the client has authenticated again; 0: never."""

    error_code: int = f(int16, default=0)
    error_message: str | None = f(text, nullable="0+", default=None)
    auth_bytes: bytes = f(blob, default=b"")
    session_lifetime_ms: int = f(int64, "1+", default=0)


SASL_AUTHENTICATE = Api(
    36, "SaslAuthenticate", SaslAuthenticateRequest, SaslAuthenticateResponse, highest=2, flexible_from=2
)
