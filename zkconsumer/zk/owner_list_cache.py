"""A cache of owner lists under watches: a member need not list these owners again before it acquires partitions.

A member with ownership conflicts lists the owners when one of them may be deleted, and acquires free partitions then.
The listing sets a watch, and a watch event arrives before any answer that shows the change.  So while the watch has not
fired, the list is current for this session.  If an owner node was created nevertheless, acquiring fails with
``NodeExists``, and the procedure lists the owners again.

The answers of one batch of requests are processed together, after the last of them.  The watch of the first list of the
batch may have fired by then, so a list is stored only if its topic was not invalidated since its request was sent.

Invariant: each stored list has a watch that has not fired.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class OwnerListCache:
    """Topic -> names of the children of ``owners/TOPIC``, for one member."""

    def __init__(self) -> None:
        self._names: dict[str, frozenset[str]] = {}
        self._invalidated_at: dict[str, int] = {}
        """Topic -> ``moment`` after its last invalidation."""
        self._cleared_at = 0
        self.moment = 0
        """How often lists were removed; read it before a list is requested."""

    def put(self, topic: str, names: Iterable[str], requested_at: int) -> None:
        """Store a new list, for which a watch was set, unless the watch may have fired already.

        ``requested_at``: ``moment`` before the request was sent.
        """
        if max(self._cleared_at, self._invalidated_at.get(topic, 0)) <= requested_at:
            self._names[topic] = frozenset(names)

    def get(self, topic: str) -> frozenset[str] | None:
        """The cached list; None without one."""
        return self._names.get(topic)

    def invalidate(self, topic: str) -> None:
        """Remove the list of this topic: its watch fired, or the list is outdated."""
        self.moment += 1
        self._invalidated_at[topic] = self.moment
        self._names.pop(topic, None)

    def clear(self) -> None:
        """Remove all lists: all watches are lost."""
        self.moment += 1
        self._cleared_at = self.moment
        self._invalidated_at.clear()
        self._names.clear()
