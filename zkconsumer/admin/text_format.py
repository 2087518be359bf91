"""How tools say things: lists, counts, ages.  Pure."""

from __future__ import annotations

from collections.abc import Iterable

ITEMS_SHOWN_MAX = 5
"""How many of many things are named."""


def list_text(items: Iterable[object]) -> str:
    """A list in words: the first few, and how many more."""
    shown = [str(item) for item in items]
    more = len(shown) - ITEMS_SHOWN_MAX
    return ", ".join(shown[:ITEMS_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")


def duration_text(ms: int) -> str:
    """A span of time in its two largest units: ``3 d 4 h``."""
    rest = max(0, ms) // 1000
    parts: list[str] = []
    for unit, seconds in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, seconds)
        if count or parts or unit == "s":
            parts.append(f"{count} {unit}")
    return " ".join(part for n, part in enumerate(parts[:2]) if not n or not part.startswith("0 "))


def count_text(number: int, noun: str) -> str:
    """``1 partition``, ``2 partitions``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def unseen_members_warning(group: str) -> str:
    """What must be known of offsets in Kafka that no modern member made, where nobody looked into ZooKeeper."""
    return (
        f"No modern group {group} ever had a member. If an old group stores its offsets here, give --zookeeper too: "
        "its members are registered there, and without it nobody sees them."
    )


def registered_text(members: int) -> str:
    """``1 member is registered``, ``2 members are registered``."""
    return f"{count_text(members, 'member')} {'is' if members == 1 else 'are'} registered"
