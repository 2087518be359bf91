"""Formats lists, counts and ages for messages.  Pure."""

from __future__ import annotations

from collections.abc import Iterable

ITEMS_SHOWN_MAX = 5
"""How many items a list names."""


def list_text(items: Iterable[object]) -> str:
    """A list as text: the first few items, and the number of the others."""
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
    """A warning about offsets in Kafka that no coordinator member stored, if ZooKeeper was not read."""
    return (
        f"No coordinator group {group} ever had a member. If a ZooKeeper group stores its offsets here, also give "
        "--zookeeper: its members are registered there, and are not visible without it."
    )


def registered_text(members: int) -> str:
    """``1 member is registered``, ``2 members are registered``."""
    return f"{count_text(members, 'member')} {'is' if members == 1 else 'are'} registered"
