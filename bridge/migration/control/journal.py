"""The journal, a child of the control znode: which process intended what, and when.

A run writes an entry before it acts, so after a crash the entries show what was in progress, and the name of the
placeholder member.  The journal keeps the newest ``ENTRIES_MAX`` entries.  No decision depends on it: the state of both
stores takes precedence.  A journal that cannot be parsed is reported in a new one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bridge.migration.control.control_layout import CHILD_BYTES_MAX, JOURNAL_CHILD
from bridge.migration.control.control_pieces import DamagedPiecesError, pack, unpack, update_child
from zkconsumer.errors import InternalError
from zkconsumer.zk import paths
from zkconsumer.zk.requests import CreateOp, Op, SetOp

if TYPE_CHECKING:
    from bridge.migration.control.control_znode import ControlZnode
    from zkconsumer.admin.admin_session import AdminSession

SCHEMA = "zkconsumer.migration.journal/1"
ENTRIES_MAX = 1_000
TEXT_CHARS_MAX = 500
"""The length of each text of an entry; a longer one is truncated."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One intention.  ``facts``: names and values for the next run, such as the id of a member."""

    at_ms: int
    who: str
    what: str
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JournalContents:
    """The entries, oldest first; ``error``: why the journal cannot be parsed."""

    entries: tuple[JournalEntry, ...] = ()
    error: str = ""

    def latest(self, what: str) -> JournalEntry | None:
        """The newest entry of that name."""
        return next((entry for entry in reversed(self.entries) if entry.what == what), None)


def read_journal(session: AdminSession, group: str) -> JournalContents:
    """The journal of a group.  Raises ``UnavailableError`` when ZooKeeper does not answer."""
    node = session.get(paths.control_child(group, JOURNAL_CHILD))
    return JournalContents() if node is None else parse_journal(node.data)


def parse_journal(data: bytes) -> JournalContents:
    """Parse any bytes: the entries, or the reason why there are none."""
    try:
        read = json.loads(unpack([data]))
        if not isinstance(read, dict) or read.get("schema") != SCHEMA:
            return JournalContents(error="it is no journal of this release")
        return JournalContents(tuple(map(_entry, read["entries"])))
    except (
        DamagedPiecesError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        OverflowError,
    ) as error:
        return JournalContents(error=f"it cannot be read: {type(error).__name__}")


def _entry(read: Mapping[str, object]) -> JournalEntry:
    at_ms, facts = read["at_ms"], read["facts"]
    if not isinstance(at_ms, int) or not isinstance(facts, dict):
        raise TypeError("no entry")
    return JournalEntry(
        at_ms, str(read["who"]), str(read["what"]), {str(key): str(value) for key, value in facts.items()}
    )


def format_journal(entries: tuple[JournalEntry, ...]) -> bytes:
    """The bytes for ZooKeeper: the newest entries that fit into one znode."""
    kept = entries[-ENTRIES_MAX:]
    while True:
        rows = [{"at_ms": e.at_ms, "who": e.who, "what": e.what, "facts": dict(e.facts)} for e in kept]
        [first, *more] = pack(json.dumps({"schema": SCHEMA, "entries": rows}).encode())
        if not more:
            return first
        if len(kept) == 1:
            raise InternalError(f"one entry of {CHILD_BYTES_MAX} bytes must not reach the journal")
        kept = kept[len(kept) // 2 :]


@dataclass(frozen=True, slots=True)
class Journal:
    """Appends what a run is about to do.  ``caller``: user, host, process."""

    control_znode: ControlZnode
    caller: str

    def append(self, what: str, facts: Mapping[str, str] | None = None) -> None:
        """Append an entry.  Raises ``PartiallyDoneError`` when another migration took over, ``UnavailableError``."""
        clock = self.control_znode.session.clock
        short = {key: value[:TEXT_CHARS_MAX] for key, value in (facts or {}).items()}
        entry = JournalEntry(clock.wall_ms(), self.caller[:TEXT_CHARS_MAX], what[:TEXT_CHARS_MAX], short)

        def op(path: str, before: bytes | None) -> Op:
            if before is None:
                return CreateOp(
                    path, format_journal((entry,)), acl=self.control_znode.acl_policy.acl_of_child(JOURNAL_CHILD)
                )
            read = parse_journal(before)
            told = (
                (JournalEntry(entry.at_ms, self.caller, f"the journal before this: {read.error}"),)
                if read.error
                else ()
            )
            return SetOp(path, format_journal((*read.entries, *told, entry)))

        def is_done(found: bytes | None) -> bool:
            return found is not None and entry in parse_journal(found).entries

        update_child(self.control_znode, JOURNAL_CHILD, op, is_done)
