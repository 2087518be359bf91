"""The lists of owners that a watch guards: what a member need not list again before it claims.

A member that was refused lists the owners when one of them may be gone, and claims what is free in the same moment.
The listing leaves a watch, and a watch event comes before anything that shows the change.  So as long as the watch has
not fired the list is the server's, as far as this session can know; and a claim that meets a newer owner all the same
fails with ``NodeExists`` and lists them itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class OwnerListCache:
    """Topic -> names of the children of ``owners/T``, of one member.  ``fired`` and ``forget`` as the watches go."""

    def __init__(self) -> None:
        self._names: dict[str, frozenset[str]] = {}

    def put(self, topic: str, names: Iterable[str]) -> None:
        """They were listed just now, and a watch was left."""
        self._names[topic] = frozenset(names)

    def get(self, topic: str) -> frozenset[str] | None:
        """What the last listing gave; None when its watch has fired, or there was none."""
        return self._names.get(topic)

    def invalidate(self, topic: str) -> None:
        """The watch of this topic is used up, or its list turned out to be old."""
        self._names.pop(topic, None)

    def clear(self) -> None:
        """Every watch is gone."""
        self._names.clear()
