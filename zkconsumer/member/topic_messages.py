"""Log texts about topics, for ZooKeeper groups and coordinator groups.  Pure."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

TOPICS_NAMED_MAX = 5
"""How many topics of a filter a log line names."""


def missing_topic_message(topic: str) -> str:
    """The text for a subscribed topic that does not exist."""
    return (
        f"topic={topic}: no topic of this name exists, or the brokers' ACLs hide it; correct the name, or create the "
        "topic: it is read as soon as it exists"
    )


def filter_topics_message(before: AbstractSet[str], now: AbstractSet[str]) -> str:
    """The text for the topics that a filter matches, with those added and removed since the last line."""
    came, gone = sorted(now - before), sorted(before - now)
    words = f"topics={len(now)} came={len(came)} {came[:TOPICS_NAMED_MAX]} gone={len(gone)} {gone[:TOPICS_NAMED_MAX]}"
    return words if now else f"{words}: no topic matches the filter; one that is created later is read"
