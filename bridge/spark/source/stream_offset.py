"""The offset of a stream, as Spark's checkpoint stores it: it describes its batch completely.  Pure.

    {"v": 1, "g": group, "q": query, "n": batch, "m": "claim", "topics": {"t": 1},
     "from": {"t": {"0": 5}}, "to": {"t": {"0": 9}}, "claims": {"t": {"0": czxid}},
     "s": {"rebalances": 1, "lostOffsets": 0, "skippedOffsets": 5, "waits": true, "pythonDecoder": true}}

Spark asks for ``initialOffset`` again when it replays the first batch, and plans a batch again after a crash before any
other call.  So the initial offset is a constant, and the *end* of a batch contains everything about it: its start
(``from``), its end (``to``), and the ownership under which it was planned (``claims``).  ``to`` has every partition
that the query ever read, ``from`` and ``claims`` those of this batch's ownership.  ``topics`` has the number of
partitions of each topic when the query began: later partitions are read from their beginning.  ``m`` is
``group.offsets.commit``: with ``claim`` a planned end has no meaning, otherwise the batch was read up to it; so a query
cannot continue from a checkpoint of the other mode.  ``s`` is for monitoring (``progress.lag``): Spark shows nothing
else of a Python source.  No decision depends on it.

The parser is strict: it refuses a text that this file did not write, and the error names the remedy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bridge.spark.group_membership import CommitMode
from bridge.spark.offset_range_limits import nested, unnested
from zkconsumer.errors import UsageError
from zkconsumer.types import TopicPartition

VERSION = 1
INITIAL_OFFSET: dict[str, Any] = {"v": VERSION, "n": -1}
"""The value of ``initialOffset``: no batch is planned yet."""

QUERY_ID_PATTERN = re.compile(r"[0-9a-f]{32}")
"""The name of a query: it becomes a part of paths in ZooKeeper."""

_KEYS = frozenset(("v", "g", "q", "n", "from", "to", "claims", "s", "m", "topics"))
_STATS = frozenset(("rebalances", "lostOffsets"))
_SKIPPED = "skippedOffsets"
_WAITS = "waits"
_PYTHON_DECODER = "pythonDecoder"
_FLAGS = frozenset((_WAITS, _PYTHON_DECODER))
_OPTIONAL = _FLAGS | {_SKIPPED}
"""Omitted where they are 0 and false, so that an offset without them has the same text in all releases."""
_SHOWN_CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class Stats:
    """Counters since the query began: changes of its assignment, and records that were deleted before they were read
    (``failOnDataLoss=false``).  ``waiting_for_migration``: the query owns nothing, and waits for the end of its group's
    migration.

    ``skipped_offsets``: the offsets that ``skipOffsets`` removed from the batches before this one; the number for a
    batch is known when the batch is read, and its end is written before that.

    ``python_decoder``: the compiled decoder was missing where the batch was planned
    (``bridge.spark.decode.arrow_decoder``).
    """

    rebalances: int = 0
    lost_offsets: int = 0
    waiting_for_migration: bool = False
    skipped_offsets: int = 0
    python_decoder: bool = False


@dataclass(frozen=True, slots=True)
class BatchOffsets:
    """Batch ``batch`` (0, 1, 2 …, counted by the source) of query ``query`` on ``group``.

    ``topics``: how many partitions each topic had when the query began.
    """

    group: str
    query: str
    batch: int
    first: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, int]
    claims: Mapping[TopicPartition, int]
    stats: Stats = Stats()
    mode: CommitMode = CommitMode.AFTER_BATCH
    topics: Mapping[str, int] = field(default_factory=dict)


class ForeignCheckpoint(UsageError):
    """This query cannot continue from its checkpoint; the operator must give it another checkpointLocation, or do what
    the error text names."""


def encode(offsets: BatchOffsets) -> dict[str, Any]:
    """The JSON object that Spark writes to the checkpoint."""
    counts: dict[str, Any] = {"rebalances": offsets.stats.rebalances, "lostOffsets": offsets.stats.lost_offsets}
    if offsets.stats.skipped_offsets:
        counts[_SKIPPED] = offsets.stats.skipped_offsets
    if offsets.stats.waiting_for_migration:
        counts[_WAITS] = True
    if offsets.stats.python_decoder:
        counts[_PYTHON_DECODER] = True
    return {
        "v": VERSION,
        "g": offsets.group,
        "q": offsets.query,
        "n": offsets.batch,
        "m": offsets.mode.value,
        "topics": dict(sorted(offsets.topics.items())),
        "from": nested(offsets.first),
        "to": nested(offsets.end),
        "claims": nested(offsets.claims),
        "s": counts,
    }


def decode(found: Any, group: str) -> BatchOffsets | None:
    """Parses an offset that Spark returns; None for the initial offset.  Raises ``ForeignCheckpoint``."""
    if found == INITIAL_OFFSET:
        return None
    if not isinstance(found, dict) or "v" not in found:
        raise ForeignCheckpoint(
            f"the checkpoint of this query was not written by zkconsumer: its offset is {_shown(found)}. "
            "Offsets of another source cannot be used: give this query a checkpointLocation of its own, and set "
            "startingOffsets ('zkconsumer spark reconcile' commits to the group what a checkpoint of "
            'format("kafka") has finished)'
        )
    version = found["v"]
    if type(version) is int and version > VERSION:
        raise ForeignCheckpoint(
            f"the checkpoint of this query was written by a later release of zkconsumer (version {version} of the "
            f"offsets; this release reads {VERSION}): install that release again"
        )
    offsets = _strict(found)
    if offsets.group != group:
        raise ForeignCheckpoint(
            f"the checkpoint of this query belongs to the group {offsets.group!r}, but group.id is {group!r}: set "
            f"group.id={offsets.group}, or give the query a checkpointLocation of its own, with which it starts from "
            "startingOffsets"
        )
    return offsets


def check_mode(began: BatchOffsets, mode: CommitMode) -> None:
    """A query can neither start nor stop claiming on an existing checkpoint.  Raises ``ForeignCheckpoint``.

    Records that a refused claim left unread are before the planned end of its batch, and the committed offset of a
    query that does not claim may be one batch before what is in the sink.
    """
    if (began.mode is CommitMode.CLAIM) is (mode is CommitMode.CLAIM):
        return
    raise ForeignCheckpoint(
        f"the checkpoint of this query was written with group.offsets.commit={began.mode.value}, and its offsets "
        f"have another meaning with {mode.value}: records would be lost, or read twice. Set "
        f"group.offsets.commit={began.mode.value} again; or commit to the group where the query ended "
        "('zkconsumer spark reconcile'), and give the query a checkpointLocation and a sink of its own, with which it "
        "starts from the group's offsets"
    )


def _strict(found: dict[str, Any]) -> BatchOffsets:
    try:
        if found["v"] != VERSION or set(found) != _KEYS:
            raise ValueError("its keys are not those of an offset")
        query = found["q"]
        if not isinstance(found["g"], str) or not isinstance(query, str) or not QUERY_ID_PATTERN.fullmatch(query):
            raise ValueError("g or q is not a valid name")
        mode, topics = CommitMode(found["m"]), found["topics"]
        if not isinstance(topics, dict):
            raise ValueError("topics is not a JSON object")
        stats = found["s"]
        if not isinstance(stats, dict) or set(stats) - _OPTIONAL != _STATS:
            raise ValueError("s does not have the counts of an offset")
        if any(stats.get(flag, True) is not True for flag in _FLAGS):
            raise ValueError("s does not have the counts of an offset")
        counted = [(name, stats[name]) for name in sorted(set(stats) - _FLAGS)]
        for key, count in [("n", found["n"]), *counted, *topics.items()]:
            if type(count) is not int or count < 0:
                raise ValueError(f"{key} is not a count")
        first, end = unnested(found["from"], "an offset"), unnested(found["to"], "an offset")
        claims = unnested(found["claims"], "a number of a transaction")
        if first.keys() != claims.keys():
            raise ValueError("from and claims name different partitions")
        for tp, offset in first.items():
            if not 0 <= offset <= end.get(tp, -1):
                raise ValueError(f"{tp} starts at {offset} and ends at {end.get(tp)}")
    except (KeyError, ValueError) as error:
        raise ForeignCheckpoint(
            f"an offset in the checkpoint of this query is damaged, or was edited: {error}. It is {_shown(found)}. "
            "Restore the checkpoint's folder, or give the query another checkpointLocation, with which it starts from "
            "startingOffsets (the group's offsets, unless another value is set)"
        ) from None
    counts = Stats(
        stats["rebalances"], stats["lostOffsets"], _WAITS in stats, stats.get(_SKIPPED, 0), _PYTHON_DECODER in stats
    )
    return BatchOffsets(found["g"], query, found["n"], first, end, claims, counts, mode, topics)


def _shown(found: Any) -> str:
    text = json.dumps(found, default=str)
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}…"
