"""SaslHandshake (17): which SASL mechanism a client wants (Kafka 0.10.0, KIP-43).

After version 0 the mechanism's own messages follow bare, each behind its length; after version 1 (1.0, KIP-152) each
of them is a SaslAuthenticate.
"""

from __future__ import annotations

from zkconsumer.wire.field_types import int16, text
from zkconsumer.wire.schemas.message_schema import Api, array, f, message


@message
class SaslHandshakeRequest:
    """``mechanism``: ``PLAIN``, ``SCRAM-SHA-512`` and so on."""

    mechanism: str = f(text)


@message
class SaslHandshakeResponse:
    """Error 33 when the broker does not have the mechanism; ``mechanisms`` are those that it has."""

    error_code: int = f(int16, default=0)
    mechanisms: list[str] = f(array(text), default_factory=list)


SASL_HANDSHAKE = Api(17, "SaslHandshake", SaslHandshakeRequest, SaslHandshakeResponse, highest=1, flexible_from=2)
