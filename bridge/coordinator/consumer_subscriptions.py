"""The topics in the subscriptions of consumers, the only part of them that a coordinator reads.  Pure."""

from __future__ import annotations

from collections.abc import Iterable

from zkconsumer.wire import consumer_protocol
from zkconsumer.wire.primitives import MalformedMessage

CONSUMER_PROTOCOL_TYPE = consumer_protocol.PROTOCOL_TYPE
"""The protocol type of consumers: the only one whose metadata a coordinator parses."""


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all of them; None if one cannot be parsed, as of members that use the type for other metadata."""
    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            topics.update(consumer_protocol.subscribed_topics(subscription))
    except MalformedMessage:
        return None
    return frozenset(topics)


def java_length(text: str) -> int:
    """``String.length`` of Java: characters outside the basic plane count twice."""
    return len(text) if text.isascii() else len(text.encode("utf-16-be", "surrogatepass")) // 2
