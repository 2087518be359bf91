"""The records of a crash of the pipeline's matrix, and what must become of each.  Pure.

Each partition has two batches of ten offsets, and each half of a batch has all fates.  The input decides what is
expected, never the pipeline.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from enum import Enum

from bridge.spark.pipeline.lineage import BatchCounts, PartitionRanges
from tests.spark.crash.pipeline_cases import BACKFILL, REPLACE, REPLAY


class Fate(Enum):
    """What a record becomes."""

    ROW = "a row"
    BROKEN = "a dead letter"
    MISTYPED = "a dead letter, and a row by the replay"
    FILTERED = "left out by the filter"
    SKIPPED = "passed over by skipOffsets"


PARTITIONS = (0, 1)
PER_BATCH = 10
OFFSETS = 2 * PER_BATCH
"""Of each partition."""

FATES = (Fate.ROW, Fate.MISTYPED, Fate.BROKEN, Fate.FILTERED, Fate.SKIPPED)
REPLACED_BY = 1_000_000
"""What a replacement adds to the column n."""

SCHEMA = "id BIGINT, n STRING"
WHERE = "id >= 0"
NUMBER = "CAST(n AS INT)"
NUMBER_OF = {REPLAY: "CASE WHEN n = 'none' THEN 0 ELSE CAST(n AS INT) END", REPLACE: f"CAST(n AS INT) + {REPLACED_BY}"}
"""The expression of the corrected file."""

Row = tuple[int, int, int]
"""Partition, offset, n."""


def fate_of(offset: int, command: str) -> Fate:
    """The fate of each record with this offset.  Mistyped ones make a batch slower; only a replay needs them."""
    fate = FATES[offset % len(FATES)]
    return Fate.ROW if fate is Fate.MISTYPED and command != REPLAY else fate


def values_of(partition: int, command: str) -> list[bytes]:
    """The values of the records of a partition, from offset 0 on."""
    return [_value(_id(partition, offset), fate_of(offset, command)) for offset in range(OFFSETS)]


def _id(partition: int, offset: int) -> int:
    return 1_000 * partition + offset


def _value(number: int, fate: Fate) -> bytes:
    match fate:
        case Fate.ROW | Fate.SKIPPED:  # a skipped record that is read would be a row
            return json.dumps({"id": number, "n": str(number)}).encode()
        case Fate.MISTYPED:
            return json.dumps({"id": number, "n": "none"}).encode()
        case Fate.FILTERED:
            return json.dumps({"id": -1 - number, "n": "0"}).encode()
        case Fate.BROKEN:
            return b'{"id": %d' % number


def skipped_offsets(topic: str) -> str:
    """The option ``skipOffsets``."""
    found = [offset for offset in range(OFFSETS) if FATES[offset % len(FATES)] is Fate.SKIPPED]
    return json.dumps({topic: {str(number): [[each, each + 1] for each in found] for number in PARTITIONS}})


def starting_offsets(topic: str) -> str:
    """The option ``startingOffsets`` of a live query that leaves the first half to a backfill."""
    return json.dumps({topic: {str(number): PER_BATCH for number in PARTITIONS}})


# --- what is expected ---------------------------------------------------------------------------------------------


def places(command: str, *fates: Fate) -> list[tuple[int, int]]:
    """Partition and offset of all records of these fates."""
    return [
        (partition, offset)
        for partition in PARTITIONS
        for offset in range(OFFSETS)
        if fate_of(offset, command) in fates
    ]


def expected_rows(command: str) -> Counter[Row]:
    """The rows at the end."""
    added = REPLACED_BY if command == REPLACE else 0
    rows = [(number, offset, _id(number, offset) + added) for number, offset in places(command, Fate.ROW)]
    replayed = [(number, offset, 0) for number, offset in places(command, Fate.MISTYPED)]
    return Counter([*rows, *replayed])


def expected_letters(command: str, replacements: int = 0) -> Counter[tuple[int, int]]:
    """Partition and offset of the dead letters at the end; each replacement has its own."""
    return Counter(places(command, Fate.BROKEN, Fate.MISTYPED) * (1 + replacements))


def expected_counts(ranges: PartitionRanges, command: str, kind: str) -> BatchCounts:
    """The counts of a batch with these ranges."""
    fates = Counter(fate_of(offset, command) for offset in _offsets(ranges))
    dead = fates[Fate.BROKEN] + fates[Fate.MISTYPED]
    if kind == "replay":  # all that it has reserved can be written
        return BatchCounts(rows=sum(fates.values()))
    return BatchCounts(fates[Fate.ROW], dead, fates[Fate.FILTERED], fates[Fate.SKIPPED])


def expected_kinds(command: str, replacements: int = 0) -> dict[str, Counter[tuple[int, int]]]:
    """Kind of a lineage -> the places that all lineages of the kind have: each once, or once for each replacement."""
    log = {(number, offset) for number in PARTITIONS for offset in range(OFFSETS)}
    match command:
        case "backfill":
            older = {place for place in log if place[1] < PER_BATCH}
            return {"batch": Counter(log - older), BACKFILL: Counter(older)}
        case "replay":
            return {"batch": Counter(log), REPLAY: Counter(places(command, Fate.MISTYPED))}
        case "replace":
            return {"batch": Counter(log), REPLACE: Counter([*log] * replacements)}
        case _:
            return {"batch": Counter(log)}


def places_of(ranges: PartitionRanges) -> list[tuple[int, int]]:
    """Partition and offset of all offsets."""
    return [(tp.partition, each) for tp, pairs in ranges.items() for pair in pairs for each in range(*pair)]


def _offsets(ranges: PartitionRanges) -> Iterable[int]:
    return (offset for _, offset in places_of(ranges))
