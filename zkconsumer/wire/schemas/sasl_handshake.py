"""SaslHandshake (17): the SASL mechanism that a client selects (Kafka 0.10.0, KIP-43).

After version 0, the messages of the mechanism follow without a header, each after its length; after version 1 (1.0,
KIP-152), each of them is a SaslAuthenticate request.
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
    """Error 33: the broker does not support the mechanism; ``mechanisms``: those that it supports."""

    error_code: int = f(int16, default=0)
    mechanisms: list[str] = f(array(text), default_factory=list)


SASL_HANDSHAKE = Api(17, "SaslHandshake", SaslHandshakeRequest, SaslHandshakeResponse, highest=1, flexible_from=2)
