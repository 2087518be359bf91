"""``GroupFeed``: everything that the page shows of one group, and the bytes that viewers receive.

The threads that read call ``put_…``; the event loop takes ``published``.  Each kind of message is serialized once for
all viewers.  A viewer that has the message before gets only the changed rows; one that missed some gets all of them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from bridge.web.group_changes import EventHistory, GroupEvent, changed_rows, group_events, migration_events
from bridge.web.lag_series import LagSeries
from bridge.web.page_documents import NO_QUERIES, group_page, move_page
from bridge.web.read_state import Document, ReadState

if TYPE_CHECKING:
    from zkconsumer.admin.lag_time_observer import LagTimeObserver
    from zkconsumer.cli.groups import DescribeReport

GROUP, LAG, MOVE, DOCTOR, VERIFY = "group", "lag", "move", "doctor", "verify"
"""The kinds of documents of a group; each is one command's."""

GROUP_KINDS = (GROUP, LAG, MOVE, DOCTOR, VERIFY)

HISTORY, EVENTS, STATES = "history", "events", "states"
"""Further messages to viewers."""


class PublishedMessage:
    """A message of server-sent events.

    ``full`` is serialized when the first viewer needs it; most viewers need only ``patch``, the change from the
    revision before (None: there is none).
    """

    __slots__ = ("_full", "_make", "_name", "patch", "revision")

    def __init__(
        self, before: PublishedMessage | None, name: str, make: Callable[[], object], patch: bytes | None = None
    ) -> None:
        self.revision: int = 1 if before is None else before.revision + 1
        self.patch = patch
        self._name = name
        self._make = make
        self._full: bytes | None = None

    def full(self) -> bytes:
        """The whole message.  Two threads may serialize it at once, with the same result."""
        if self._full is None:
            self._full = event_bytes(self._name, self._make())
        return self._full


def event_bytes(name: str, document: object) -> bytes:
    """One server-sent event.  JSON has no line break, so one ``data`` line is enough."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), json_bytes(document))


def json_bytes(document: object) -> bytes:
    """JSON in ASCII: a text of a znode may have half of a surrogate pair, which UTF-8 cannot contain."""
    return json.dumps(document, separators=(",", ":")).encode()


class GroupFeed:
    """One group.  Thread-safe."""

    def __init__(self, group: str, complete: Callable[[object], object]) -> None:
        self.group = group
        self.observer: LagTimeObserver | None = None
        """Of the lag in time: made and used by the thread that reads the group."""
        self._complete = complete
        self._lock = threading.Lock()
        self._states: dict[str, ReadState] = dict.fromkeys(GROUP_KINDS, ReadState())
        self._pages: dict[str, dict[str, Any]] = {}
        self._history = LagSeries()
        self._events = EventHistory()
        self._published: dict[str, PublishedMessage] = {}

    def state(self, kind: str) -> ReadState:
        """The state of one kind of document."""
        with self._lock:
            return self._states[kind]

    def page(self, kind: str) -> Document | None:
        """What the page shows of this kind; None before the first read, and if there is no such group."""
        with self._lock:
            return self._pages.get(kind)

    def owner_change_times_ms(self) -> list[int]:
        """When reads found that partitions had changed their owner; ms since 1970, oldest first."""
        with self._lock:
            return self._events.times_ms("owners")

    def published(self) -> Mapping[str, PublishedMessage]:
        """The newest message of each kind; viewers send those that they have not sent."""
        with self._lock:
            return dict(self._published)

    def put_report(self, report: DescribeReport | None, at_ms: int, queries: Mapping[str, str] = NO_QUERIES) -> None:
        """A read of the group that ended; None: there is no such group.  ``queries``: as of ``read_spark_members``."""
        page = None if report is None else self._completed(group_page(report, queries))
        document = None if report is None else self._completed(report.document)
        with self._lock:
            self._set_state(GROUP, document, at_ms)
            old = self._pages.get(GROUP)
            if page is None:
                if old is not None:
                    self._add_events([GroupEvent(at_ms, "state", "the group does not exist any more")])
                self._pages.pop(GROUP, None)
                self._publish(GROUP, {"document": None})
                return
            self._pages[GROUP] = page
            self._history.add(at_ms, page)
            self._publish_history()
            if old is not None:
                self._add_events(group_events(old, page, at_ms))
            if old != page:
                self._publish(GROUP, {"document": page}, None if old is None else _patch(old, page))

    def put_document(self, kind: str, document: Document | None, at_ms: int) -> None:
        """A read of another kind that ended; None: there is nothing to show."""
        document = None if document is None else self._completed(document)
        page = None if document is None else move_page(document) if kind == MOVE else dict(document)
        with self._lock:
            self._set_state(kind, document, at_ms)
            old = self._pages.get(kind)
            if page is None:
                self._pages.pop(kind, None)
            else:
                self._pages[kind] = page
                if kind == MOVE and old is not None:
                    self._add_events(migration_events(old, page, at_ms))
            shown = None if page is None else {key: value for key, value in page.items() if key != "at_ms"}
            before = None if old is None else {key: value for key, value in old.items() if key != "at_ms"}
            if shown != before or kind not in self._published:
                self._publish(kind, {"document": page})

    def put_error(self, kind: str, error: str, at_ms: int) -> None:
        """A read that failed: what was read before stays, and the panel shows the error beside it."""
        with self._lock:
            before = self._states[kind]
            self._states[kind] = before.with_error(error, at_ms)
            if kind == GROUP:
                self._history.add_gap(at_ms)
                self._publish_history()
                if not before.error:
                    self._add_events([GroupEvent(at_ms, "reading", f"the group cannot be read: {error}")])
            self._publish_states()

    def _set_state(self, kind: str, document: Document | None, at_ms: int) -> None:
        before = self._states[kind]
        after = before.without_group(at_ms) if document is None else before.with_document(document, at_ms)
        self._states[kind] = after
        if kind == GROUP and before.error:
            self._add_events([GroupEvent(at_ms, "reading", "the group can be read again")])
        self._publish_states()

    def _publish_states(self) -> None:
        self._publish(STATES, {kind: state.to_json() for kind, state in self._states.items()})

    def _add_events(self, events: Any) -> None:
        if self._events.add(events):
            self._publish(EVENTS, self._events.to_json())

    def _publish(self, name: str, document: object, patch: object | None = None) -> None:
        self._publish_made(name, lambda: document, patch)

    def _publish_made(self, name: str, make: Callable[[], object], patch: object | None = None) -> None:
        patch_bytes = None if patch is None else event_bytes(f"{name}-patch", patch)
        self._published[name] = PublishedMessage(self._published.get(name), name, make, patch_bytes)

    def _publish_history(self) -> None:
        """Viewers ignore points that they have, so the whole history may be newer than this message."""
        self._publish_made(HISTORY, self._history_json, self._history.newest_to_json())

    def _history_json(self) -> object:
        with self._lock:
            return self._history.to_json()

    def _completed(self, document: Mapping[str, Any]) -> dict[str, Any]:
        completed = self._complete({**document})
        assert isinstance(completed, dict), "an object stays an object"
        return completed


def _patch(old: Document, page: Document) -> dict[str, object]:
    changed, gone = changed_rows(old, page)
    return {"document": {key: value for key, value in page.items() if key != "rows"}, "changed": changed, "gone": gone}
