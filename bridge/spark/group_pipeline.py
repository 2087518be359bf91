"""The pipeline that reads a group: the content of its znode, and the texts for a second one.  Pure.

    {"v": 1, "query": ..., "run": ..., "pipeline": ..., "checkpoint": ..., "host": ..., "process": ..., "since_ms": ...}

A group has one pipeline at a time, since each of two would get a part of the partitions, and each target would have a
part of the records.  ``query`` decides who it is: the id that Spark has written to the checkpoint.

    another query id                 another pipeline: the one that comes later is refused
    the same one, another run        another run of the same query: the one that was started last goes on
    the same one, the same run       the same process, or its membership process before a restart
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime

from bridge.migration.plan.json_object_reader import InvalidJsonError, JsonObjectReader

VERSION = 1

TEXT_CHARS_MAX = 1_000
"""The longest text of a member: paths of checkpoints are longer than names."""

SINCE_MS_MAX = 253_402_300_799_000
"""The last second of the year 9999."""


@dataclass(frozen=True, slots=True)
class GroupPipeline:
    """``query``: the id of Spark's query.  ``name``: of the pipeline.  ``checkpoint``: its place, as configured.

    ``host``, ``process``: where the pipeline was started; ``since_ms``: when, since 1970.  ``run``: one start of the
    source, also when its membership process is started again; empty before that.
    """

    query: str
    name: str
    checkpoint: str
    host: str
    process: int
    since_ms: int
    run: str = ""


def format_pipeline(pipeline: GroupPipeline) -> str:
    """JSON in one line, in ASCII.  Longer texts are cut: they are for people."""
    members = {
        "v": VERSION,
        "query": pipeline.query,
        "run": pipeline.run,
        "pipeline": pipeline.name[:TEXT_CHARS_MAX],
        "checkpoint": pipeline.checkpoint[:TEXT_CHARS_MAX],
        "host": pipeline.host[:TEXT_CHARS_MAX],
        "process": pipeline.process,
        "since_ms": pipeline.since_ms,
    }
    return json.dumps(members, separators=(",", ":"))


def parse_pipeline(text: str, where: str) -> GroupPipeline:
    """Raises ``InvalidJsonError`` with ``where``."""
    members = JsonObjectReader.parse(text, where)
    version = members.number("v")
    if version != VERSION:
        raise members.error(f"version {version}; this release reads version {VERSION}")
    pipeline = GroupPipeline(
        query=members.text("query", TEXT_CHARS_MAX),
        run=members.text("run", TEXT_CHARS_MAX),
        name=members.text("pipeline", TEXT_CHARS_MAX),
        checkpoint=members.text("checkpoint", TEXT_CHARS_MAX),
        host=members.text("host", TEXT_CHARS_MAX),
        process=members.number("process"),
        since_ms=members.number("since_ms", 0, SINCE_MS_MAX),
    )
    members.reject_unknown_keys()
    return pipeline


def second_pipeline_message(group: str, data: bytes, path: str) -> str:
    """The error text for a pipeline that is refused; ``data``: of the znode ``path`` of the other one."""
    try:
        other = parse_pipeline(data.decode("utf-8", "replace"), path)
    except InvalidJsonError as error:
        return (
            f"another pipeline reads group {group}, and what it has written about itself cannot be read: {error}. A "
            "later release wrote it, or another program: end that pipeline, or delete the znode if there is none"
        )
    since = datetime.fromtimestamp(other.since_ms / 1_000, UTC).isoformat(timespec="seconds")
    return (
        f"another pipeline reads group {group}: {other.name} with the checkpoint {other.checkpoint} (query "
        f"{other.query}), process {other.process} on {other.host}, since {since}. Each of the two would get a part of "
        "the records, so this one does not start. End the other one first; after a crash it counts until its session "
        "with ZooKeeper has expired. Or start this one with that checkpoint, or give it a group of its own"
    )


def superseded_message(group: str, pipeline: GroupPipeline) -> str:
    """The error text for a run that has ended because a later one of the same query reads the group."""
    return (
        f"pipeline {pipeline.name} of group {group} was started again with the checkpoint {pipeline.checkpoint} while "
        f"this run of it was active (query {pipeline.query}), and the later run continues. Stop one of them; a copy of "
        "a checkpoint is the same query"
    )
