"""A cache of owner lists under watches: a member need not list these owners again before it acquires partitions.

A member with ownership conflicts lists the owners when one of them may be deleted, and acquires free partitions then.
The listing sets a watch, and a watch event arrives before any answer that shows the change.  So while the watch has not
fired, the list is current for this session.  If an owner node was created nevertheless, acquiring fails with
``NodeExists``, and the procedure lists the owners again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class OwnerListCache:
    """Topic -> names of the children of ``owners/TOPIC``, for one member."""

    def __init__(self) -> None:
        self._names: dict[str, frozenset[str]] = {}

    def put(self, topic: str, names: Iterable[str]) -> None:
        """Store a new list, for which a watch was set."""
        self._names[topic] = frozenset(names)

    def get(self, topic: str) -> frozenset[str] | None:
        """The cached list; None without one."""
        return self._names.get(topic)

    def invalidate(self, topic: str) -> None:
        """Remove the list of this topic: its watch fired, or the list is outdated."""
        self._names.pop(topic, None)

    def clear(self) -> None:
        """Remove all lists: all watches are lost."""
        self._names.clear()
