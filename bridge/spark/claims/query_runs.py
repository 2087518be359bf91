"""Which run of a query may claim: the bytes of the query's own znode, and the judgement.  Pure.

    {"v": 1, "runs": [run, ...]}     oldest first, at most RUNS_KEPT_MAX; the last one claims

A *run* is one life of a query, from its start to its end; keepers that are killed and sessions that expire in between
do not end it.  Two queries that live on copies of one checkpoint have one query id and count their batches alike: each
would take the other's claims for its own, read those ranges again, or get nothing.  So a run enters itself before its
first claim, and each claim checks, in its multi, that nobody has entered since.

    not in the list     it enters itself
    the last one        it claims
    before the last     over: a younger run has begun, and this one must stop

The youngest wins, and not the one that was there first: a query that is started again must never be refused because of
its former life, however alive that looks (a keeper whose driver hangs, a session that has not expired yet).  A list
never says *over* wrongly, also when an old one is read: who stands behind us has entered after us.  An old list without
us is found out by the write, which names its version.

A znode that holds something else counts as an empty list: nothing can be lost by it but that two are told apart.
"""

from __future__ import annotations

import json
from enum import Enum

from zkconsumer.errors import MalformedZnode
from zkconsumer.utf8 import decode_strict
from zkconsumer.zk.java_json import JavaJsonError, read_jackson_json

VERSION = 1

RUNS_KEPT_MAX = 32
"""Runs that are remembered: a run that was silent while so many others began is taken for a new one."""

RUNS_BYTES_MAX = 8_192
"""Bytes that are read: what is written has a fifth of it."""


class RunStatus(Enum):
    """What a run may do."""

    UNREGISTERED = "not in the list"
    CURRENT = "the last one"
    SUPERSEDED = "before the last"


def run_status(runs: tuple[str, ...], run: str) -> RunStatus:
    """The table above."""
    if run not in runs:
        return RunStatus.UNREGISTERED
    return RunStatus.CURRENT if runs[-1] == run else RunStatus.SUPERSEDED


def append_run(runs: tuple[str, ...], run: str) -> tuple[str, ...]:
    """The list with another run that claims from now on."""
    assert run not in runs, "a run enters once"
    return (*runs, run)[-RUNS_KEPT_MAX:]


def format_runs(runs: tuple[str, ...]) -> bytes:
    """The bytes for ZooKeeper: JSON in one line."""
    return json.dumps({"v": VERSION, "runs": list(runs)}, separators=(",", ":")).encode()


def parse_runs(data: bytes) -> tuple[str, ...]:
    """The runs; none where the bytes are not ours."""
    try:
        found = read_jackson_json(decode_strict(data)) if len(data) <= RUNS_BYTES_MAX else None
    except (JavaJsonError, MalformedZnode, RecursionError):
        return ()
    runs = found.get("runs") if isinstance(found, dict) and found.get("v") == VERSION else None
    if not isinstance(runs, list) or len(runs) > RUNS_KEPT_MAX:
        return ()
    names = tuple(run for run in runs if isinstance(run, str))
    return names if len(set(names)) == len(runs) else ()
