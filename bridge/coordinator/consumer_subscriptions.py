"""What consumers say they read, as far as their coordinator looks: the topics, and nothing behind them.  Pure."""

from __future__ import annotations

from collections.abc import Iterable

from zkconsumer.wire import consumer_protocol
from zkconsumer.wire.primitives import MalformedMessage

CONSUMER_PROTOCOL_TYPE = consumer_protocol.PROTOCOL_TYPE
"""The protocol type of consumers: the only one whose metadata a coordinator opens."""


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all of them; None if one is not readable, as with members that only call themselves consumers."""
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
