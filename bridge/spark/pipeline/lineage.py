"""``BatchLineage``: which offsets a batch has written to a sink, and the rules about two batches.  Pure.

A sink stores the lineage of a batch in the commit of its rows.  The key is (Spark's query id, batch id): the name of a
pipeline is no part of it, since the batches of a new checkpoint count from 0 again.

    require_same_ranges   the key is stored already: the same ranges (nothing is written), or an error
    uncovered             the offsets that no lineage has: what a backfill may read
    check_reservation     whether a backfill, a replacement or a replay may reserve its ranges
    abandoned             what is stored in the place of a reservation that is released

A batch of the live query is never checked against other keys: a backfill reserves only offsets below the position of
the live query, so the live query never fails because of a backfill.  A replay covers nothing: it reads dead letters of
ranges that batches and backfills cover.  A replacement (kind ``replace``) covers offsets that others may cover, too:
the rows of those are deleted in its commit, so the newest one is the one that counts.

The key of a released reservation stays taken, by a lineage without offsets: a process that was stopped before its
commit and continues later cannot commit under this key any more.

A lineage is stored as JSON (``to_json``), readable for any program; a stored text is checked as untrusted input.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from bridge.migration.plan.json_object_reader import (
    InvalidJsonError,
    JsonObjectReader,
    JsonValue,
    as_list,
    as_number,
)
from bridge.spark.decode.offset_ranges import OffsetRange, merge_offset_ranges, without_skipped
from zkconsumer.errors import PreconditionFailed
from zkconsumer.types import TopicPartition

VERSION = 1

KINDS = ("batch", "backfill", "replay", "replace")
MODES = ("claim", "snapshot")

ID_CHARS_MAX = 100
NAME_CHARS_MAX = 1_000

ABANDONED = "abandoned"
"""The attempt of the lineage of a released reservation."""

SHOWN_MAX = 5
"""How many ranges or problems an error shows."""

SHOWN_CHARS_MAX = 250
"""The longest part of a stored name in an error; a topic has at most 249 characters."""

_NAMES_OF_RANGES = {"ranges": "ranges", "corrupt": "corrupt offsets"}

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")

PartitionRanges: TypeAlias = Mapping[TopicPartition, tuple[tuple[int, int], ...]]
"""The ranges [first, end) of each partition: sorted, not empty, and neither overlapping nor touching."""


class LineageConflictError(PreconditionFailed):
    """A batch cannot be committed, or ranges cannot be reserved, beside what the sink has; nothing was written."""


class InvalidLineageError(PreconditionFailed):
    """A stored lineage is damaged, or a newer release wrote it; the operator must restore it, or upgrade."""


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """``rows``: written to the sink.  ``dead_letters``, ``filtered``: records.  ``skipped_offsets``: offsets of the
    ranges that were not read: ``skipOffsets``, corrupt records that are skipped, and lost records."""

    rows: int = 0
    dead_letters: int = 0
    filtered: int = 0
    skipped_offsets: int = 0

    def __post_init__(self) -> None:
        assert min(self.rows, self.dead_letters, self.filtered, self.skipped_offsets) >= 0, "counts are never negative"

    def __add__(self, other: BatchCounts) -> BatchCounts:
        return BatchCounts(
            self.rows + other.rows,
            self.dead_letters + other.dead_letters,
            self.filtered + other.filtered,
            self.skipped_offsets + other.skipped_offsets,
        )


@dataclass(frozen=True, slots=True)
class BatchAttempt:
    """One attempt to write a batch.  ``attempt``: a text that no other attempt has; ``started_ms``: since 1970."""

    query: str
    batch: int
    attempt: str
    started_ms: int

    def __post_init__(self) -> None:
        for text in (self.query, self.attempt):
            check_id(text)

    @property
    def key(self) -> tuple[str, int]:
        return self.query, self.batch


@dataclass(frozen=True, slots=True)
class BatchLineage:
    """What a batch has read and written.

    ``query``: the id of Spark's query; of the other kinds an id that each repetition of the command has.  ``kind``: one
    of ``KINDS``.  ``mode``: how the ranges were found (``group.offsets.commit``), one of ``MODES``.  ``attempt``: of
    the attempt that committed.  ``created_ms``: since 1970.  ``corrupt``: the offsets of the ranges that were passed
    over because no record could be decoded there; each later attempt of the batch does the same.
    """

    query: str
    batch: int
    kind: str
    pipeline: str
    mode: str
    attempt: str
    created_ms: int
    ranges: PartitionRanges
    counts: BatchCounts
    corrupt: PartitionRanges = field(default_factory=dict)

    def __post_init__(self) -> None:
        for text in (self.query, self.attempt):
            check_id(text)
        assert self.kind in KINDS, self.kind
        assert self.mode in MODES, self.mode
        assert self.batch >= 0, self.batch
        for ranges in (self.ranges, self.corrupt):
            assert all(pairs and pairs == merge_offset_ranges(pairs) for pairs in ranges.values()), (
                "the same offsets have one form, so that ranges can be compared"
            )

    @property
    def key(self) -> tuple[str, int]:
        return self.query, self.batch

    @property
    def name(self) -> str:
        """The kind and the key, for errors."""
        return f"{self.kind} {self.batch} of query {self.query}"

    @property
    def offsets(self) -> int:
        """The number of offsets in the ranges."""
        return sum(end - first for pairs in self.ranges.values() for first, end in pairs)


def check_id(text: str) -> None:
    """Raises ``ValueError`` for a text that cannot be part of the name of a file and of a table's row."""
    if not _ID.fullmatch(text) or len(text) > ID_CHARS_MAX:
        raise ValueError(f"{text[:ID_CHARS_MAX]!r} is no id: 1 to {ID_CHARS_MAX} letters, digits, dots, _ and -")


def partition_ranges(ranges: Iterable[OffsetRange]) -> PartitionRanges:
    """The offsets of these ranges; empty ranges are dropped."""
    pairs: dict[TopicPartition, list[tuple[int, int]]] = {}
    for each in ranges:
        if each.first < each.end:
            pairs.setdefault(each.tp, []).append((each.first, each.end))
    return {tp: merge_offset_ranges(pairs[tp]) for tp in sorted(pairs)}


# --- rules --------------------------------------------------------------------------------------------------------


def require_same_ranges(stored: BatchLineage, attempted: BatchLineage) -> None:
    """Raises ``LineageConflictError`` if the stored batch of this key has other ranges, or another kind."""
    assert stored.key == attempted.key, "the rule is about one key"
    if (stored.kind, stored.ranges) == (attempted.kind, attempted.ranges):
        return
    raise LineageConflictError(
        f"the sink has {stored.name} already with other offsets: stored {_text(stored.ranges)}, committed by attempt "
        f"{stored.attempt} of pipeline {stored.pipeline} at {stored.created_ms} ms; this attempt has "
        f"{_text(attempted.ranges)} as {attempted.kind}. Nothing was written. The checkpoint and the sink do not "
        "belong together: one of them was restored, copied, or used by two queries. The operator must end the other "
        "query, or restore the checkpoint of this sink, or start with a new checkpoint, which has a new query id"
    )


def require_same_corrupt_offsets(stored: BatchLineage, attempted: BatchLineage) -> None:
    """Raises ``LineageConflictError`` if two attempts of a batch have passed over different offsets."""
    if stored.corrupt == attempted.corrupt:
        return
    raise LineageConflictError(
        f"{stored.name} was decided by attempt {stored.attempt} with the corrupt offsets {_text(stored.corrupt)}, and "
        f"this attempt found {_text(attempted.corrupt)}. Nothing was written. Two drivers have run this batch; start "
        "the pipeline again: it follows the stored decision"
    )


def uncovered(ranges: PartitionRanges, lineages: Iterable[BatchLineage]) -> PartitionRanges:
    """The offsets of ``ranges`` that are in no batch and no backfill."""
    covered = _covered(lineages)
    return _split(ranges, covered)[0]


def check_reservation(
    wanted: BatchLineage,
    committed: Collection[BatchLineage],
    reserved: Collection[BatchLineage],
    positions: Mapping[TopicPartition, int],
) -> None:
    """Raises ``LineageConflictError`` unless a backfill, a replacement or a replay may reserve its ranges.

    ``committed`` and ``reserved``: all lineages of the sink; that of the same key is ignored.  ``positions``: the next
    offset that the live query reads of each of its partitions; empty if there is no live query.
    """
    assert wanted.kind != "batch", "the live query reserves nothing"
    committed = [each for each in committed if each.key != wanted.key]
    reserved = [each for each in reserved if each.key != wanted.key]
    problems: list[str] = []
    if wanted.kind == "replay":
        if outside := uncovered(wanted.ranges, committed):
            problems.append(
                f"no batch has read {_text(outside)}, so there are no dead letters; read these offsets by a backfill"
            )
    elif ahead := partition_ranges(
        OffsetRange(tp, max(first, positions[tp]), end)
        for tp, pairs in wanted.ranges.items()
        if tp in positions
        for first, end in pairs
    ):
        problems.append(f"the live query has yet to read {_text(ahead)}; leave these offsets to it")
    problems += [
        f"{_text(common)} was written by {other.name}; leave these offsets out"
        for other in committed
        if (common := common_ranges(wanted.ranges, _written(wanted, other, committed)))
    ]
    problems += [
        f"{_text(common)} is reserved for {other.name}; leave these offsets out, or repeat the command of that one, "
        "or, if it will not be repeated, release them: zkconsumer pipeline backfill FILE --abandon " + other.query
        for other in reserved
        if _excludes(wanted.kind, other.kind) and (common := common_ranges(wanted.ranges, other.ranges))
    ]
    if problems:
        more = f"; and {len(problems) - SHOWN_MAX} more" if len(problems) > SHOWN_MAX else ""
        raise LineageConflictError(
            f"the ranges of {wanted.name} cannot be reserved, nothing was written: "
            f"{'; '.join(problems[:SHOWN_MAX])}{more}"
        )


def _excludes(wanted: str, other: str) -> bool:
    """Whether two reservations of these kinds must not have a common offset.

    A backfill reads what nothing covers, and a replay what is covered, so these two never write the same record.
    """
    return wanted == other or "replace" in (wanted, other)


def _written(wanted: BatchLineage, other: BatchLineage, committed: Collection[BatchLineage]) -> PartitionRanges:
    """The offsets of ``other`` whose rows would be double beside those of ``wanted``."""
    match wanted.kind:
        case "backfill":
            return {} if other.kind == "replay" else other.ranges
        case "replay":
            return without_replaced(other, committed) if other.kind == "replay" else {}
    return {}  # a replacement deletes the rows of its offsets


def without_replaced(lineage: BatchLineage, committed: Iterable[BatchLineage]) -> PartitionRanges:
    """The offsets of a lineage that no later replacement has written again."""
    later = [
        each
        for each in committed
        if each.kind == "replace" and each.key != lineage.key and each.created_ms >= lineage.created_ms
    ]
    return _split(lineage.ranges, _covered(later))[0] if later else lineage.ranges


def common_ranges(ranges: PartitionRanges, others: PartitionRanges) -> PartitionRanges:
    """The offsets that are in both."""
    return _split(ranges, others)[1]


def remaining_ranges(ranges: PartitionRanges, others: Iterable[PartitionRanges]) -> PartitionRanges:
    """The offsets of ``ranges`` that are in none of the others."""
    for each in others:
        ranges = _split(ranges, each)[0]
    return ranges


def abandoned(reserved: BatchLineage) -> BatchLineage:
    """What is stored when a reservation is released: a lineage without offsets and rows, under the same key."""
    return replace(reserved, attempt=ABANDONED, ranges={}, counts=BatchCounts(), corrupt={})


def _covered(lineages: Iterable[BatchLineage]) -> PartitionRanges:
    return partition_ranges(
        OffsetRange(tp, first, end)
        for each in lineages
        if each.kind != "replay"
        for tp, pairs in each.ranges.items()
        for first, end in pairs
    )


def _split(ranges: PartitionRanges, others: PartitionRanges) -> tuple[PartitionRanges, PartitionRanges]:
    """The offsets that are not in ``others``, and those that are."""
    outside: list[OffsetRange] = []
    inside: list[OffsetRange] = []
    for tp, pairs in ranges.items():
        for first, end in pairs:
            kept, common = without_skipped(OffsetRange(tp, first, end), others)
            outside += kept
            inside += common
    return partition_ranges(outside), partition_ranges(inside)


def _text(ranges: PartitionRanges) -> str:
    texts = [str(OffsetRange(tp, first, end)) for tp, pairs in ranges.items() for first, end in pairs]
    more = f" and {len(texts) - SHOWN_MAX} more ranges" if len(texts) > SHOWN_MAX else ""
    return (", ".join(texts[:SHOWN_MAX]) or "no offset") + more


# --- JSON ---------------------------------------------------------------------------------------------------------


def to_json(lineage: BatchLineage) -> str:
    """One line; the same lineage has the same text."""
    counts = lineage.counts
    members: dict[str, object] = {
        "version": VERSION,
        "kind": lineage.kind,
        "query": lineage.query,
        "batch": lineage.batch,
        "pipeline": lineage.pipeline,
        "mode": lineage.mode,
        "attempt": lineage.attempt,
        "created_ms": lineage.created_ms,
        "ranges": _ranges_to_json(lineage.ranges),
        "counts": {
            "rows": counts.rows,
            "dead_letters": counts.dead_letters,
            "filtered": counts.filtered,
            "skipped_offsets": counts.skipped_offsets,
        },
    }
    if lineage.corrupt:
        members["corrupt"] = _ranges_to_json(lineage.corrupt)
    return json.dumps(members, separators=(",", ":"))


def _ranges_to_json(ranges: PartitionRanges) -> dict[str, dict[str, list[list[int]]]]:
    topics: dict[str, dict[str, list[list[int]]]] = {}
    for tp, pairs in sorted(ranges.items()):
        topics.setdefault(tp.topic, {})[str(tp.partition)] = [list(pair) for pair in pairs]
    return topics


def from_json(text: str, where: str) -> BatchLineage:
    """The lineage of a text.  ``where``: its place, for errors.  Raises ``InvalidLineageError``."""
    try:
        return read_lineage(JsonObjectReader.parse(text, where), where)
    except InvalidJsonError as error:
        raise invalid_lineage(error) from error


def invalid_lineage(error: InvalidJsonError) -> InvalidLineageError:
    """The error for the operator."""
    return InvalidLineageError(
        f"the lineage cannot be read, nothing was written: {error}. The operator must restore it from a backup of the "
        "sink; without it a batch could be written twice"
    )


def read_lineage(members: JsonObjectReader, where: str) -> BatchLineage:
    """The lineage of an object.  ``where``: its place, for errors.  Raises ``InvalidJsonError``."""
    version = members.number("version")
    if version != VERSION:
        raise members.error(f"version {version}; this release reads version {VERSION}, use the release that wrote it")
    counts = members.take_object("counts")
    lineage = BatchLineage(
        kind=_choice(members, "kind", KINDS),
        query=members.checked("query", _checked_id),
        batch=members.number("batch"),
        pipeline=members.text("pipeline", NAME_CHARS_MAX),
        mode=_choice(members, "mode", MODES),
        attempt=members.checked("attempt", _checked_id),
        created_ms=members.number("created_ms"),
        ranges=_read_ranges(members, "ranges", where),
        corrupt=_read_ranges(members, "corrupt", where) if members.has("corrupt") else {},
        counts=BatchCounts(*(counts.number(name) for name in ("rows", "dead_letters", "filtered", "skipped_offsets"))),
    )
    counts.reject_unknown_keys()
    members.reject_unknown_keys()
    return lineage


def _read_ranges(members: JsonObjectReader, name: str, place: str) -> PartitionRanges:
    ranges: dict[TopicPartition, tuple[tuple[int, int], ...]] = {}
    for topic, partitions in members.take_entries(name):
        if not isinstance(partitions, dict):
            raise members.error(f"the {_NAMES_OF_RANGES[name]} of {topic[:SHOWN_CHARS_MAX]!r} are no object")
        for number, pairs in partitions.items():
            where = f"{place}: the {_NAMES_OF_RANGES[name]} of {topic[:SHOWN_CHARS_MAX]}/{number[:SHOWN_CHARS_MAX]}"
            if not _PARTITION.fullmatch(number):
                raise InvalidJsonError(f"{where}: this is no partition")
            read = tuple(_read_pair(pair, where) for pair in as_list(pairs, where))
            if not read or merge_offset_ranges(read) != read:
                raise InvalidJsonError(f"{where} are empty, not sorted, or overlap")
            ranges[TopicPartition(topic, int(number))] = read
    return {tp: ranges[tp] for tp in sorted(ranges)}


def _read_pair(pair: JsonValue, where: str) -> tuple[int, int]:
    first, end = (as_number(each, where) for each in as_list(pair, where, 2))
    if first >= end:
        raise InvalidJsonError(f"{where}: [{first}, {end}) is empty")
    return first, end


def _choice(members: JsonObjectReader, name: str, values: tuple[str, ...]) -> str:
    value = members.text(name)
    if value not in values:
        raise members.error(f"{name!r} is {value[:50]!r}; it must be one of {', '.join(values)}")
    return value


def _checked_id(text: str) -> str:
    check_id(text)
    return text
