"""The lag of a group over time, for the graphs: in all, and for each topic.  Pure, bounded.

An unknown lag is None, which the graph shows as a gap; it is never 0.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.web.read_state import Document

POINTS_MAX = 900
"""Points that are kept: a quarter of an hour at one a second."""

TOPICS_MAX = 8
"""Topics with a line of their own: those with the largest lag when they were first seen; colours for more do not
differ enough."""


class LagSeries:
    """Of one group.  ``add`` is called after each read."""

    def __init__(self) -> None:
        self._points: deque[tuple[int, float | None, dict[str, float | None]]] = deque(maxlen=POINTS_MAX)
        self._topics: list[str] = []

    def add(self, at_ms: int, page: Document) -> None:
        """The totals of a ``group_page`` document that was read at ``at_ms``."""
        lags = {one["topic"]: one["lag"] for one in page["topics"]}
        for topic in sorted(lags, key=lambda one: (-(lags[one] or 0), one)):
            if topic not in self._topics and len(self._topics) < TOPICS_MAX:
                self._topics.append(topic)
        self._points.append((at_ms, page["total"]["lag"], lags))

    def add_gap(self, at_ms: int) -> None:
        """A read that failed."""
        self._points.append((at_ms, None, {}))

    def to_json(self) -> dict[str, object]:
        """Columns: times, totals, and one for each topic."""
        return {
            "at_ms": [at_ms for at_ms, _, _ in self._points],
            "total": [total for _, total, _ in self._points],
            "topics": {topic: [lags.get(topic) for _, _, lags in self._points] for topic in self._topics},
        }

    def newest_to_json(self) -> dict[str, object]:
        """The newest point, in the form of ``to_json``."""
        at_ms, total, lags = self._points[-1]
        return {"at_ms": [at_ms], "total": [total], "topics": {topic: [lags.get(topic)] for topic in self._topics}}
