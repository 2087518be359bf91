"""The rows of ``zkconsumer groups top``, from the documents of the page.  Pure.

``list_rows`` has every group with the offsets in ZooKeeper; ``group_page`` has everything of one group, where it was
read.  What was not read yet, or cannot be known, is ``?`` and never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zkconsumer.admin.lag_time_text import seconds_text
from zkconsumer.admin.text_format import duration_text

if TYPE_CHECKING:
    from bridge.web.read_state import Document

UNKNOWN = "?"

CHANGES_SHOWN_MS = 5 * 60_000
"""For how long a change of owners is counted."""

TOP_COLUMNS = ("GROUP", "KIND", "STATE", "MEMBERS", "LAG", "LAG-SECONDS", "TREND", "OWNER-CHANGES", "PHASE")
DROPPABLE_TOP_COLUMNS = ("KIND", "PHASE", "STATE", "OWNER-CHANGES")
"""Those that a narrow terminal can do without, the least important first."""


@dataclass(frozen=True, slots=True)
class TopRow:
    """One group.  ``lag`` and ``lag_s`` are for sorting: -1 if nothing is known.  ``error``: why it cannot be read."""

    group: str
    kind: str | None
    state: str
    members: int | None
    lag_text: str
    lag: float
    seconds_text: str
    lag_s: float
    trend: str
    changes: int | None
    change_text: str
    phase: str | None
    error: str = ""

    @property
    def cells(self) -> tuple[object, ...]:
        """The values in the order of ``TOP_COLUMNS``."""
        members = UNKNOWN if self.members is None else self.members
        return (
            *(self.group, self.kind, self.state, members, self.lag_text, self.seconds_text, self.trend),
            *(self.change_text, self.phase),
        )


def one_line_a_group(listed: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The groups of ``list_rows``; a group of both stores, such as one that is migrating, in one line."""
    found: dict[str, Mapping[str, Any]] = {}
    for one in listed:
        other = found.get(one["group"])
        if other is None:
            found[one["group"]] = one
            continue
        members = [each["members"] for each in (other, one)]
        found[one["group"]] = {
            **other,
            "kind": f"{other['kind'] or 'zookeeper'}+{one['kind']}",
            "state": one.get("state") or other.get("state"),
            "active": other["active"] or one["active"],
            "members": None if None in members else sum(members),
        }
    return list(found.values())


def top_row(
    listed: Mapping[str, Any], page: Document | None, changed_ms: Sequence[int], now_ms: int, error: str = ""
) -> TopRow:
    """The row of a group.

    ``listed``: of ``list_rows``.  ``page``: ``group_page``, None before it was read.  ``changed_ms``: when owners
    changed, ms since 1970.  ``error``: of the newest read of the page; its values are then old.
    """
    total: Mapping[str, Any] | None = page["total"] if page is not None else listed["lag"]
    times: Mapping[str, Any] | None = page["lag_time"] if page is not None else None
    lag_text, lag = _lag(total)
    seconds, lag_s = _seconds(times)
    recent = [at_ms for at_ms in changed_ms if now_ms - at_ms <= CHANGES_SHOWN_MS]
    trend = UNKNOWN if times is None or times["trend"] == "unknown" else str(times["trend"])
    return TopRow(
        listed["group"],
        listed["kind"],
        UNKNOWN if error else _state(listed, page),
        _members(listed, page),
        lag_text,
        lag,
        seconds,
        lag_s,
        trend,
        None if page is None else len(recent),
        UNKNOWN if page is None else _changes_text(recent, now_ms),
        listed["phase"],
        error,
    )


def _state(listed: Mapping[str, Any], page: Document | None) -> str:
    if listed.get("state") is not None:
        found = page["coordinator_group"] if page is not None else None
        return str(listed["state"] if found is None else found["state"])
    if page is None:
        return "active" if listed["active"] else "empty"
    return "active" if page["active"] else "empty"


def _members(listed: Mapping[str, Any], page: Document | None) -> int | None:
    if page is None:
        number = listed["members"]
        return None if number is None else int(number)
    return sum(1 for one in page["all_members"] if one["kind"] != "unregistered")


def _lag(total: Mapping[str, Any] | None) -> tuple[str, float]:
    """As ``lag`` prints it: ``at least`` if a part is unknown; ``-`` if the group has no offset at all."""
    if total is None:
        return UNKNOWN, -1
    if total["lag"] is not None:
        return str(total["lag"]), total["lag"]
    if total["known"] is not None:
        return f"at least {total['known']}", total["known"]
    return (UNKNOWN, -1) if total["unknown"] else ("", -1)


def _seconds(times: Mapping[str, Any] | None) -> tuple[str, float]:
    if times is None:
        return UNKNOWN, -1
    exact, known = times["largest_lag_seconds"], times["largest_lag_seconds_known"]
    if exact is not None:
        return "0" if not exact else seconds_text(round(exact * 1000)), exact
    if known:
        return f"> {seconds_text(round(known * 1000))}", known
    return UNKNOWN, -1


def _changes_text(recent: Sequence[int], now_ms: int) -> str:
    return f"{len(recent)}, {duration_text(now_ms - max(recent))} ago" if recent else "0"


# --- order, and what is selected --------------------------------------------------------------------------------

TREND_ORDER = ("falling-behind", UNKNOWN, "steady", "catching-up", "caught-up")

SORT_KEYS: Mapping[str, tuple[str, Callable[[TopRow], Any]]] = {
    "g": ("GROUP", lambda row: row.group),
    "m": ("MEMBERS", lambda row: -(-1 if row.members is None else row.members)),
    "l": ("LAG", lambda row: -row.lag),
    "s": ("LAG-SECONDS", lambda row: -row.lag_s),
    "t": ("TREND", lambda row: TREND_ORDER.index(row.trend)),
    "c": ("OWNER-CHANGES", lambda row: -(-1 if row.changes is None else row.changes)),
    "p": ("PHASE", lambda row: (row.phase is None, row.phase or "")),
}
"""Key -> column and the order of its rows: what needs attention comes first."""

HELP_LINE = (
    "q quit  ↑↓ PgUp PgDn scroll  / filter  r reverse  "
    "sort: g group  m members  l lag  s seconds  t trend  c changes  p phase"
)

SHORT_HELP_LINE = "q quit  ↑↓ scroll  / filter  r reverse  sort by: g m l s t c p (first letters)"
"""For a terminal that is too narrow for the other one."""

KEY_UP, KEY_DOWN, KEY_PAGE_UP, KEY_PAGE_DOWN, KEY_HOME, KEY_END = "up", "down", "page-up", "page-down", "home", "end"
ESCAPE_SEQUENCES = {
    "\x1b[A": KEY_UP, "\x1bOA": KEY_UP, "\x1b[B": KEY_DOWN, "\x1bOB": KEY_DOWN,
    "\x1b[5~": KEY_PAGE_UP, "\x1b[6~": KEY_PAGE_DOWN,
    "\x1b[H": KEY_HOME, "\x1bOH": KEY_HOME, "\x1b[1~": KEY_HOME,
    "\x1b[F": KEY_END, "\x1bOF": KEY_END, "\x1b[4~": KEY_END,
}  # fmt: skip
ESCAPE, ENTER, BACKSPACE = "\x1b", ("\r", "\n"), ("\x7f", "\x08")
FILTER_CHARS_MAX = 100


def parse_keys(text: str) -> Iterable[str]:
    """Split what the terminal sent into characters and the names of keys; unknown sequences are ignored."""
    place = 0
    while place < len(text):
        if text[place] != ESCAPE or place + 1 == len(text) or text[place + 1] not in "[O":
            yield text[place]
            place += 1
            continue
        end = place + 2
        while end < len(text) and not ("@" <= text[end] <= "~"):
            end += 1
        name = ESCAPE_SEQUENCES.get(text[place : end + 1])
        if name is not None:
            yield name
        place = end + 1


@dataclass(slots=True)
class TopView:
    """Which groups are shown, in which order.  ``on_key`` changes it."""

    sort_key: str = "l"
    is_reversed: bool = False
    pattern: str = ""
    is_typing: bool = False
    first: int = 0
    """The row at the top."""
    is_ended: bool = False

    def on_key(self, key: str, page_rows: int) -> None:
        """A key was pressed; ``page_rows``: how many rows fit."""
        if self.is_typing:
            self._type(key)
            return
        steps = {KEY_UP: -1, KEY_DOWN: 1, KEY_PAGE_UP: -page_rows, KEY_PAGE_DOWN: page_rows, "k": -1, "j": 1}
        if key == "q":
            self.is_ended = True
        elif key in SORT_KEYS:
            self.is_reversed = key == self.sort_key and not self.is_reversed
            self.sort_key, self.first = key, 0
        elif key == "r":
            self.is_reversed = not self.is_reversed
        elif key == "/":
            self.is_typing = True
        elif key == ESCAPE:
            self.pattern, self.first = "", 0
        elif key in steps:
            self.first = max(0, self.first + steps[key])
        elif key == KEY_HOME:
            self.first = 0
        elif key == KEY_END:
            self.first = 1 << 30

    def _type(self, key: str) -> None:
        if key == ESCAPE:
            self.pattern, self.is_typing = "", False
        elif key in ENTER:
            self.is_typing = False
        elif key in BACKSPACE:
            self.pattern = self.pattern[:-1]
        elif len(key) == 1 and key.isprintable() and len(self.pattern) < FILTER_CHARS_MAX:
            self.pattern += key
        self.first = 0

    def matching(self, rows: Iterable[TopRow]) -> list[TopRow]:
        """The rows whose group contains the pattern, in order."""
        found = [row for row in rows if self.pattern in row.group]
        found.sort(key=lambda row: (row.group, row.kind or ""))
        found.sort(key=SORT_KEYS[self.sort_key][1], reverse=self.is_reversed)
        return found

    def shown(self, rows: Iterable[TopRow], page_rows: int) -> tuple[list[TopRow], int]:
        """The rows that fit, from ``first``, which is moved if there are fewer rows; and how many match."""
        found = self.matching(rows)
        self.first = max(0, min(self.first, len(found) - page_rows))
        return found[self.first : self.first + page_rows], len(found)

    def status_line(self, count: int, total: int) -> str:
        """Which groups are shown."""
        if self.is_typing:
            return f"filter: {self.pattern}_  (Enter: keep, Esc: all groups)"
        order = f"by {SORT_KEYS[self.sort_key][0]}{', reversed' if self.is_reversed else ''}"
        filtered = f" of {total} match {self.pattern!r} (Esc: all)" if self.pattern else ""
        return f"{count}{filtered} group{'' if count == 1 else 's'}, {order}, from {min(count, self.first + 1)}"
