"""The file in which a stream writes which offsets its batch reads: the option ``batchRangesPath``.

    partitions(_, end)   claims, then writes PATH/QUERY-N.json          in the process of the source, on the driver
    foreachBatch         reads the newest file after the batch was read  in the program, on the driver

A program that stores the ranges of a batch beside its rows needs the ranges that were read.  The rows do not show them:
a range may have no record that is left, and with ``claim`` a planned range may have been refused.  The file is written
before a task reads, and again, with the same content, when Spark repeats the batch.

``N`` is the source's own count of batches, not Spark's batch id.  The files of the last two batches are kept.

A program ends its query between two batches with ``request_stop``: the source then plans no batch any more.  The
program stops the query when no trigger is active, or ``is_stop_seen``: the source was asked for another batch, so the
one before has ended.  ``query.stop()`` alone ends a batch in the middle.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from bridge.migration.plan.atomic_file import write_atomically
from bridge.migration.plan.json_object_reader import InvalidJsonError, JsonObjectReader, as_list, as_number, as_text
from bridge.spark.decode.offset_ranges import OffsetRange
from zkconsumer.errors import PreconditionFailed, UsageError
from zkconsumer.types import TopicPartition

VERSION = 1
FILES_KEPT = 2
STOP_FILE, STOP_SEEN_FILE = "stop", "stop-seen"

_NAME = re.compile(r"([0-9a-f]{32})-(0|[1-9][0-9]{0,18})\.json")


@dataclass(frozen=True, slots=True)
class StreamBatchRanges:
    """The offsets of batch ``batch``, counted by the source, of its query ``query`` on ``group``.

    ``commit_mode``: ``group.offsets.commit``.  ``ranges``: what the batch covers.  ``skipped_offsets``: how many of
    these offsets are not read because of ``skipOffsets``, and how many more the program has skipped.
    """

    group: str
    query: str
    batch: int
    commit_mode: str
    ranges: tuple[OffsetRange, ...]
    skipped_offsets: int = 0


def write_batch_ranges(folder: str | Path, found: StreamBatchRanges) -> None:
    """Write the file of a batch, and remove those of older batches.  ``UsageError``: the folder cannot be written."""
    root = Path(folder)
    try:
        root.mkdir(parents=True, exist_ok=True)
        write_atomically(root / f"{found.query}-{found.batch}.json", [_to_json(found)], replace=True)
        for query, batch, file in _files(root):
            if query == found.query and batch <= found.batch - FILES_KEPT:
                file.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"batchRangesPath={root}: {error.strerror}; give a folder on the driver that the query may write"
        ) from error


def read_batch_ranges(folder: str | Path) -> StreamBatchRanges | None:
    """The ranges of the newest batch; None: no batch was read yet.

    ``PreconditionFailed``: the files are damaged, or those of two queries.
    """
    root = Path(folder)
    files = _files(root) if root.is_dir() else []
    if not files:
        return None
    if len({query for query, _, _ in files}) > 1:
        raise PreconditionFailed(
            f"{root}: two queries have written their batch ranges here; give each query a batchRangesPath of its own, "
            "and remove the files of the other one"
        )
    _, _, file = max(files)
    try:
        return _from_json(JsonObjectReader.parse(file.read_text("ascii"), str(file)))
    except (InvalidJsonError, ValueError) as error:
        raise PreconditionFailed(
            f"{error}; remove the file and start the query again, which writes it again"
        ) from error


def add_skipped_offsets(folder: str | Path, found: StreamBatchRanges, offsets: int) -> None:
    """The program has skipped so many more offsets of its batch: the progress of the query counts them.

    ``found``: what ``read_batch_ranges`` returned for the batch.  Raises ``UsageError``.
    """
    write_batch_ranges(folder, replace(found, skipped_offsets=found.skipped_offsets + offsets))


def read_skipped_offsets(folder: str | Path, query: str, batch: int, planned: int) -> int:
    """The skipped offsets of this batch; ``planned`` if the newest file is of another one."""
    found = read_batch_ranges(folder)
    return found.skipped_offsets if found is not None and (found.query, found.batch) == (query, batch) else planned


def request_stop(folder: str | Path) -> None:
    """Let the source of this folder plan no further batch.  Raises ``OSError``."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    (Path(folder) / STOP_FILE).touch()


def sees_stop(folder: str | Path) -> bool:
    """For the source, before it plans a batch: whether ``request_stop`` was called; ``is_stop_seen`` is True then."""
    if not (Path(folder) / STOP_FILE).exists():
        return False
    (Path(folder) / STOP_SEEN_FILE).touch()
    return True


def is_stop_seen(folder: str | Path) -> bool:
    """Whether the source has planned no batch because of ``request_stop``: the last batch has ended."""
    return (Path(folder) / STOP_SEEN_FILE).exists()


def _files(root: Path) -> list[tuple[str, int, Path]]:
    found = [(_NAME.fullmatch(file.name), file) for file in root.iterdir()]
    return [(match[1], int(match[2]), file) for match, file in found if match is not None]


def _to_json(found: StreamBatchRanges) -> str:
    members = {
        "version": VERSION,
        "group": found.group,
        "query": found.query,
        "batch": found.batch,
        "commit": found.commit_mode,
        "skipped_offsets": found.skipped_offsets,
        "ranges": [[each.tp.topic, each.tp.partition, each.first, each.end] for each in found.ranges],
    }
    return json.dumps(members) + "\n"


def _from_json(members: JsonObjectReader) -> StreamBatchRanges:
    version = members.number("version")
    if version != VERSION:
        raise members.error(f"version {version}; this release reads version {VERSION}")
    found = StreamBatchRanges(
        group=members.text("group"),
        query=members.text("query"),
        batch=members.number("batch"),
        commit_mode=members.text("commit"),
        skipped_offsets=members.number("skipped_offsets"),
        ranges=tuple(_ranges(members)),
    )
    members.reject_unknown_keys()
    return found


def _ranges(members: JsonObjectReader) -> Iterable[OffsetRange]:
    for number, item in enumerate(members.items("ranges")):
        where = f"range {number}"
        topic, partition, first, end = as_list(item, where, 4)
        tp = TopicPartition(as_text(topic, where, 249), as_number(partition, where, 0, 2**31 - 1))
        low = as_number(first, where)
        yield OffsetRange(tp, low, as_number(end, where, low))
