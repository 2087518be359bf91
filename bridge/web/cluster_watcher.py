"""``ClusterWatcher``: reads one cluster on a schedule, for all viewers together.

    list     every group                     every 30 s, and only while a viewer shows it
    group    the groups that are shown       every second; ``lag`` the same, only for programs that request it
    move     their migrations                every 2 s
    doctor   their findings, verify rows     every 15 s, only while the panel is shown

A group is read while it has a viewer, and for ``WANTED_MS`` after the last request.  The number of groups that are read
is limited; more viewers of the same group cost nothing but the bytes that they receive.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bridge.web.document_readers import (
    MoveReader,
    read_doctor_document,
    read_group_report,
    read_lag_document,
    read_list_document,
    read_verify,
)
from bridge.web.group_feed import DOCTOR, GROUP, LAG, MOVE, STATES, VERIFY, GroupFeed, PublishedMessage
from bridge.web.group_totals import read_group_phases, read_group_totals
from bridge.web.page_documents import list_rows
from bridge.web.read_state import Document, ReadState
from bridge.web.reader_thread import OpenSession, ReaderThread, ReadingKind
from bridge.web.spark_members import read_spark_members
from zkconsumer.admin.lag_time_observer import LagTimeObserver
from zkconsumer.base.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from zkconsumer.admin.admin_session import AnySession

LIST_INTERVAL_MS = 30_000
GROUP_INTERVAL_MS = 1_000
MOVE_INTERVAL_MS = 2_000
DOCTOR_INTERVAL_MS = 15_000
COMPARE_EVERY_READS = 15
"""The copied offsets of a migration are read with each such read of ``move``: every 30 s."""

GROUPS_MAX = 50
"""Groups that are read at once."""

WANTED_MS = 20_000
"""How long a group is read after the last request of a program, or after its last viewer has gone."""

LIST = "list"
ALL = ""
"""The subject of the list."""


class TooManyGroups(Exception):
    """``GROUPS_MAX`` groups have viewers."""


@dataclass(slots=True)
class _Interest:
    """Why a group is read: its viewers, and until when (ms of the clock) programs want which kinds."""

    feed: GroupFeed
    viewers: int = 0
    kind_viewers: dict[str, int] = field(default_factory=dict)
    wanted_until_ms: dict[str, int] = field(default_factory=dict)

    def wants(self, kind: str, now_ms: int) -> bool:
        is_shown = self.viewers > 0 if kind in (GROUP, MOVE) else self.kind_viewers.get(kind, 0) > 0
        return is_shown or self.wanted_until_ms.get(kind, 0) > now_ms


class ClusterWatcher:
    """``open_session``: called on the threads that read.  ``on_change``: called on them after each read; must not
    block.

    ``complete``: completes the commands in a document with the options of this cluster.  ``intervals_ms``: kind -> from
    the start of a read to the next one, where it is not the one above.
    """

    def __init__(
        self,
        open_session: OpenSession,
        on_change: Callable[[], None],
        *,
        complete: Callable[[object], object] = lambda document: document,
        clock: Clock = SYSTEM_CLOCK,
        intervals_ms: Mapping[str, int] | None = None,
    ) -> None:
        intervals = {
            LIST: LIST_INTERVAL_MS, GROUP: GROUP_INTERVAL_MS, LAG: GROUP_INTERVAL_MS, MOVE: MOVE_INTERVAL_MS,
            DOCTOR: DOCTOR_INTERVAL_MS, VERIFY: DOCTOR_INTERVAL_MS, **(intervals_ms or {}),
        }  # fmt: skip
        self._on_change = on_change
        self._complete = complete
        self._clock = clock
        self._lock = threading.Lock()
        self._groups: dict[str, _Interest] = {}
        self._list_viewers = 0
        self._list_wanted_until_ms = 0
        self._list_state = ReadState()
        self._list_page: Document | None = None
        self._list_message: PublishedMessage | None = None
        self._list_states_message: PublishedMessage | None = None
        self._move_reader = MoveReader(COMPARE_EVERY_READS)
        kinds = (
            ReadingKind(LIST, intervals[LIST], self._read_list, self._list_failed),
            ReadingKind(GROUP, intervals[GROUP], self._read_group, lambda *error: self._failed(GROUP, *error)),
            ReadingKind(LAG, intervals[LAG], self._read_lag, lambda *error: self._failed(LAG, *error)),
            ReadingKind(MOVE, intervals[MOVE], self._read_move, lambda *error: self._failed(MOVE, *error)),
            ReadingKind(DOCTOR, intervals[DOCTOR], self._read_doctor, lambda *error: self._failed(DOCTOR, *error)),
            ReadingKind(VERIFY, intervals[VERIFY], self._read_verify, lambda *error: self._failed(VERIFY, *error)),
        )
        self._threads = {kind.name: ReaderThread(kind, open_session, clock) for kind in kinds}

    def close(self) -> None:
        """End all threads and their sessions."""
        for thread in self._threads.values():
            thread.close()

    # --- the list -----------------------------------------------------------------------------------------------

    def list_state(self) -> ReadState:
        """The document of ``groups list``."""
        with self._lock:
            return self._list_state

    def list_page(self) -> Document | None:
        """``list_rows`` of the newest read; None before the first."""
        with self._lock:
            return self._list_page

    def list_messages(self) -> dict[str, PublishedMessage]:
        """The messages for viewers of the list."""
        with self._lock:
            found = {LIST: self._list_message, STATES: self._list_states_message}
        return {name: message for name, message in found.items() if message is not None}

    def show_list(self, change: int) -> None:
        """A viewer of the list came (1) or left (-1)."""
        with self._lock:
            self._list_viewers += change
        self._schedule()

    def want_list(self) -> None:
        """A program requests the list."""
        with self._lock:
            self._list_wanted_until_ms = self._clock.now_ms() + WANTED_MS
        self._schedule()

    # --- groups -------------------------------------------------------------------------------------------------

    def show_group(self, group: str, kinds: tuple[str, ...] = ()) -> GroupFeed:
        """A viewer of a group came; ``kinds``: those that only this panel shows.  Raises ``TooManyGroups``."""
        with self._lock:
            interest = self._interest_of(group)
            interest.viewers += 1
            for kind in kinds:
                interest.kind_viewers[kind] = interest.kind_viewers.get(kind, 0) + 1
        self._schedule()
        return interest.feed

    def hide_group(self, group: str, kinds: tuple[str, ...] = ()) -> None:
        """The viewer left.  The group is read for ``WANTED_MS`` more, so a reload finds its history."""
        with self._lock:
            interest = self._groups[group]
            interest.viewers -= 1
            interest.wanted_until_ms[GROUP] = self._clock.now_ms() + WANTED_MS
            for kind in kinds:
                interest.kind_viewers[kind] -= 1
        self._schedule()

    def want_group(self, group: str, kind: str) -> GroupFeed:
        """A program requests one document.  Raises ``TooManyGroups``."""
        with self._lock:
            interest = self._interest_of(group)
            interest.wanted_until_ms[kind] = self._clock.now_ms() + WANTED_MS
        self._schedule()
        return interest.feed

    def feed_of(self, group: str) -> GroupFeed | None:
        """What was read of the group; None if it is not read."""
        return self._feed_of(group)

    def _interest_of(self, group: str) -> _Interest:
        if group not in self._groups:
            self._drop_unwanted()
            if len(self._groups) >= GROUPS_MAX:
                raise TooManyGroups(f"{GROUPS_MAX} groups are shown; close the page of another one")
            self._groups[group] = _Interest(GroupFeed(group, self._complete))
        return self._groups[group]

    def _drop_unwanted(self) -> None:
        now_ms = self._clock.now_ms()
        for group, interest in list(self._groups.items()):
            if not interest.viewers and all(until_ms <= now_ms for until_ms in interest.wanted_until_ms.values()):
                del self._groups[group]
                self._move_reader.forget(group)

    def _schedule(self) -> None:
        with self._lock:
            self._drop_unwanted()
            now_ms = self._clock.now_ms()
            is_list_wanted = self._list_viewers > 0 or self._list_wanted_until_ms > now_ms
            wanted = {
                kind: [group for group, one in self._groups.items() if one.wants(kind, now_ms)]
                for kind in (GROUP, LAG, MOVE, DOCTOR, VERIFY)
            }
        self._threads[LIST].want([ALL] if is_list_wanted else [])
        for kind, groups in wanted.items():
            self._threads[kind].want(groups)

    # --- on the threads that read -------------------------------------------------------------------------------

    def _read_list(self, session: AnySession, _: str) -> None:
        document, offsets = read_list_document(session)
        phases = read_group_phases(session, document)
        self._put_list(document, {}, phases, is_final=False)
        self._put_list(document, read_group_totals(session, offsets, phases), phases, is_final=True)
        self._ended()

    def _put_list(
        self, document: Document, totals: dict[str, Document], phases: dict[str, str], *, is_final: bool
    ) -> None:
        """The list is shown before the lags, which need the brokers; an old list stays until both are read."""
        now_ms = self._clock.wall_ms()
        with self._lock:
            if not is_final and self._list_message is not None:
                return
            completed = self._complete({**document})
            assert isinstance(completed, dict), "an object stays an object"
            self._list_state = self._list_state.with_document(completed, now_ms)
            page = list_rows(completed, totals, phases)
            self._list_page = page
            self._list_message = PublishedMessage(self._list_message, LIST, lambda: {"document": page})
            self._publish_list_state()
        self._on_change()

    def _list_failed(self, _: str, error: str) -> None:
        with self._lock:
            self._list_state = self._list_state.with_error(error, self._clock.wall_ms())
            self._publish_list_state()
        self._ended()

    def _publish_list_state(self) -> None:
        states = {LIST: self._list_state.to_json()}
        self._list_states_message = PublishedMessage(self._list_states_message, STATES, lambda: states)

    def _read_group(self, session: AnySession, group: str) -> None:
        feed = self._feed_of(group)
        if feed is None:
            return
        feed.observer = feed.observer or LagTimeObserver.of_session(session)
        report = read_group_report(session, group, feed.observer)
        queries = {} if report is None else read_spark_members(session, group, report)
        feed.put_report(report, self._clock.wall_ms(), queries)
        self._ended()

    def _read_lag(self, session: AnySession, group: str) -> None:
        self._put(LAG, group, read_lag_document(session, group))

    def _read_move(self, session: AnySession, group: str) -> None:
        self._put(MOVE, group, self._move_reader(session, group))

    def _read_doctor(self, session: AnySession, group: str) -> None:
        self._put(DOCTOR, group, read_doctor_document(session, group))

    def _read_verify(self, session: AnySession, group: str) -> None:
        self._put(VERIFY, group, read_verify(session, group))

    def _put(self, kind: str, group: str, document: Document | None) -> None:
        feed = self._feed_of(group)
        if feed is not None:
            feed.put_document(kind, document, self._clock.wall_ms())
        self._ended()

    def _failed(self, kind: str, group: str, error: str) -> None:
        feed = self._feed_of(group)
        if feed is not None:
            feed.put_error(kind, error, self._clock.wall_ms())
        self._ended()

    def _feed_of(self, group: str) -> GroupFeed | None:
        with self._lock:
            interest = self._groups.get(group)
        return None if interest is None else interest.feed

    def _ended(self) -> None:
        self._on_change()
        self._schedule()
