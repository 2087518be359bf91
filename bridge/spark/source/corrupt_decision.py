"""The file in which a program fixes which offsets of a batch are corrupt: in the folder ``batchRangesPath``.

    pass 1 over the batch     tasks decide; rows with ``corrupt`` are what they passed over
    the program               writes PATH/corrupt.json                       on the driver
    each later pass           partitions(_, end) reads it: the tasks follow  in the process of the source, on the driver

A damage is a property of the bytes that one fetch gave, so two passes over a batch could decide differently: between
them a broker may repair its log, or a leader with a sound replica may be elected.  After the decision the offsets in
the file are not read, and have one row each; any other damage fails the batch.

Invariant: a decision belongs to the batch with exactly its ranges; for any other batch it has no effect.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bridge.migration.plan.atomic_file import write_atomically
from bridge.migration.plan.json_object_reader import (
    InvalidJsonError,
    JsonObjectReader,
    JsonValue,
    as_list,
    as_number,
    as_text,
)
from bridge.spark.decode.offset_ranges import OffsetRange, SkipOffsets, merge_offset_ranges
from zkconsumer.errors import PreconditionFailed, UsageError
from zkconsumer.types import TopicPartition

VERSION = 1
DECISION_FILE = "corrupt.json"

REASON_CHARS_MAX = 10_000
TOPIC_CHARS_MAX = 249


@dataclass(frozen=True, slots=True)
class DecidedRange:
    """Offsets that are corrupt, and why."""

    offsets: OffsetRange
    reason: str


@dataclass(frozen=True, slots=True)
class CorruptDecision:
    """``ranges``: of the batch.  ``corrupt``: its corrupt offsets.  ``skipped_offsets``: how many of these the program
    counts as skipped."""

    ranges: tuple[OffsetRange, ...]
    corrupt: tuple[DecidedRange, ...] = ()
    skipped_offsets: int = 0

    def is_of(self, planned: Iterable[OffsetRange]) -> bool:
        """Whether this is the decision of the batch with these ranges."""
        return set(self.ranges) == set(planned)

    @property
    def excluded(self) -> SkipOffsets:
        """The corrupt offsets, as ``without_skipped`` takes them."""
        pairs: dict[TopicPartition, list[tuple[int, int]]] = {}
        for each in self.corrupt:
            pairs.setdefault(each.offsets.tp, []).append((each.offsets.first, each.offsets.end))
        return {tp: merge_offset_ranges(some) for tp, some in pairs.items()}


def write_corrupt_decision(folder: str | Path, decision: CorruptDecision) -> None:
    """Replaces the decision of the batch before.  ``UsageError``: the folder cannot be written."""
    members = {
        "version": VERSION,
        "skipped_offsets": decision.skipped_offsets,
        "ranges": [_range_to_json(each) for each in decision.ranges],
        "corrupt": [[*_range_to_json(each.offsets), each.reason[:REASON_CHARS_MAX]] for each in decision.corrupt],
    }
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_atomically(Path(folder) / DECISION_FILE, [json.dumps(members) + "\n"], replace=True)
    except OSError as error:
        raise UsageError(
            f"{folder}: {error.strerror}; the decision about corrupt records needs a folder on the driver"
        ) from error


def read_corrupt_decision(folder: str | Path) -> CorruptDecision | None:
    """The decision of some batch; None without one.  ``PreconditionFailed``: the file is damaged."""
    file = Path(folder) / DECISION_FILE
    try:
        text = file.read_text("ascii")
    except FileNotFoundError:
        return None
    try:
        return _from_json(JsonObjectReader.parse(text, str(file)))
    except (InvalidJsonError, ValueError) as error:
        raise PreconditionFailed(f"{error}; end the query, remove the file, and start the query again") from error


def _range_to_json(each: OffsetRange) -> list[object]:
    return [each.tp.topic, each.tp.partition, each.first, each.end]


def _from_json(members: JsonObjectReader) -> CorruptDecision:
    version = members.number("version")
    if version != VERSION:
        raise members.error(f"version {version}; this release reads version {VERSION}")
    found = CorruptDecision(
        skipped_offsets=members.number("skipped_offsets"),
        ranges=tuple(_range(as_list(item, "ranges", 4)) for item in members.items("ranges")),
        corrupt=tuple(_decided(as_list(item, "corrupt", 5)) for item in members.items("corrupt")),
    )
    members.reject_unknown_keys()
    return found


def _decided(item: list[JsonValue]) -> DecidedRange:
    return DecidedRange(_range(item[:4]), as_text(item[4], "corrupt", REASON_CHARS_MAX))


def _range(item: list[JsonValue]) -> OffsetRange:
    topic, partition, first, end = item
    tp = TopicPartition(as_text(topic, "topic", TOPIC_CHARS_MAX), as_number(partition, "partition", 0, 2**31 - 1))
    low = as_number(first, "first")
    return OffsetRange(tp, low, as_number(end, "end", low))
