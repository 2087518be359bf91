"""What a member logs about topics, in both kinds of groups.  Pure."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

TOPICS_NAMED_MAX = 5
"""Topics of a filter that are named one by one."""


def missing_topic_message(topic: str) -> str:
    """Of a topic that the program named and that is not there."""
    return (
        f"topic={topic}: there is no topic of this name, or the brokers' ACLs hide it; correct the name, or create the "
        "topic: it is read as soon as it is there"
    )


def filter_topics_message(before: AbstractSet[str], now: AbstractSet[str]) -> str:
    """Of the topics that a filter takes, and of those that came and went since the last line."""
    came, gone = sorted(now - before), sorted(before - now)
    words = f"topics={len(now)} came={len(came)} {came[:TOPICS_NAMED_MAX]} gone={len(gone)} {gone[:TOPICS_NAMED_MAX]}"
    return words if now else f"{words}: no topic matches the filter; one that is created later is read"
