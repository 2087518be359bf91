"""Which run of a query may claim: the content of the query's own znode, and the decision.  Pure.

    {"v": 1, "runs": [run, ...]}     oldest first, at most RUNS_KEPT_MAX; the last one claims

A *run* lasts from one start of a query to its end; membership processes that are killed and sessions that expire in
between do not end it.  Two queries on copies of one checkpoint have the same query id and the same batch numbers: each
would take the other's claims as its own, read those ranges again, or get no range.  So a run registers itself before
its first claim, and each claim checks, in its multi, that no other run has registered since.

    not in the list     it registers itself
    the last one        it claims
    before the last     superseded: a later run has begun, and this one must stop

The latest run is valid, and not the first: a restarted query must never be refused because of its earlier run, even
when that run still seems alive (a membership process whose driver hangs, a session that has not expired yet).  A list,
also an old one, never shows *superseded* wrongly: the runs after ours have registered after us.  An old list without
our run is detected by the write, which names its version.

A znode with other content counts as an empty list: the only loss is that two runs are not distinguished.
"""

from __future__ import annotations

import json
from enum import Enum

from zkconsumer.errors import MalformedZnode
from zkconsumer.utf8 import decode_strict
from zkconsumer.zk.java_json import JavaJsonError, read_jackson_json

VERSION = 1

RUNS_KEPT_MAX = 32
"""The maximum length of the list: an idle run counts as new when so many others have registered since."""

RUNS_BYTES_MAX = 8_192
"""The maximum number of bytes that are read: what is written has a fifth of it."""


class RunStatus(Enum):
    """Whether a run may claim."""

    UNREGISTERED = "not in the list"
    CURRENT = "the last one"
    SUPERSEDED = "before the last"


def run_status(runs: tuple[str, ...], run: str) -> RunStatus:
    """Looks up the table above."""
    if run not in runs:
        return RunStatus.UNREGISTERED
    return RunStatus.CURRENT if runs[-1] == run else RunStatus.SUPERSEDED


def append_run(runs: tuple[str, ...], run: str) -> tuple[str, ...]:
    """The list with another run, which may claim from now on."""
    assert run not in runs, "a run registers once"
    return (*runs, run)[-RUNS_KEPT_MAX:]


def format_runs(runs: tuple[str, ...]) -> bytes:
    """The content for ZooKeeper: JSON in one line."""
    return json.dumps({"v": VERSION, "runs": list(runs)}, separators=(",", ":")).encode()


def parse_runs(data: bytes) -> tuple[str, ...]:
    """The runs; empty for other content."""
    try:
        found = read_jackson_json(decode_strict(data)) if len(data) <= RUNS_BYTES_MAX else None
    except (JavaJsonError, MalformedZnode, RecursionError):
        return ()
    runs = found.get("runs") if isinstance(found, dict) and found.get("v") == VERSION else None
    if not isinstance(runs, list) or len(runs) > RUNS_KEPT_MAX:
        return ()
    names = tuple(run for run in runs if isinstance(run, str))
    return names if len(set(names)) == len(runs) else ()
