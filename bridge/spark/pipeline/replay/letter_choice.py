"""``LetterChoice``: which dead letters may be replayed: those whose record has no row, and gets none otherwise.  Pure.

A dead letter names the batch that wrote it.  At its place (topic, partition, offset) several batches may have read the
record: of two checkpoints, or a batch and its replacement.  The record is replayed once, if

    all batches that count at this place   have a dead letter of it; else one of them has written its row, or has
                                           filtered it.  With a replacement only the newest one, and later ones, count
    their numbers of dead letters          are those of the table of dead letters; if not, another program has changed
                                           it, since a batch follows the dead letters that were committed before
    no replay                              has written it since

Memory: the lineages of the table, and one place at a time: letters come in the order of their places.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import groupby

from bridge.spark.pipeline.lineage import BatchLineage, without_replaced
from zkconsumer.types import TopicPartition

FETCH = "fetch"
"""The stage of letters whose records could not be read: there is nothing to decode again."""

LetterKey = tuple[str, int]
"""The query and the batch of a letter."""


@dataclass(frozen=True, slots=True)
class LetterPlace:
    """A dead letter without its record.  ``time_ms``: when it was written, since 1970."""

    tp: TopicPartition
    offset: int
    query: str
    batch: int
    stage: str
    time_ms: int

    @property
    def key(self) -> LetterKey:
        return self.query, self.batch


class LetterState(Enum):
    """What becomes of the letters of a place."""

    OPEN = "to be replayed"
    REPLAYED = "replayed before"
    WRITTEN = "another batch has written or filtered the record"
    NOT_COMMITTED = "its batch is not in the table; the live query or the backfill repeats it"
    UNCERTAIN = "its batch has another number of dead letters: another program has changed the table"
    UNREADABLE = "the record could not be read; read its offsets by a backfill"
    NOT_SELECTED = "of another stage, or older than asked for"


@dataclass(frozen=True, slots=True)
class JudgedLetter:
    """The newest letter of a place, and what becomes of the record."""

    letter: LetterPlace
    state: LetterState


class LetterChoice:
    """Judges letters.

    ``lineages``: all of the table of rows.  ``letter_counts``: the number of letters of each batch in the table of dead
    letters.  ``stage``, ``since_ms``: which letters are asked for; None: all.
    """

    def __init__(
        self,
        lineages: Collection[BatchLineage],
        letter_counts: Mapping[LetterKey, int],
        stage: str | None = None,
        since_ms: int | None = None,
    ) -> None:
        self._read = _LineagesByPlace((each, each.ranges) for each in lineages if each.kind != "replay")
        self._replayed = _LineagesByPlace(
            (each, without_replaced(each, lineages)) for each in lineages if each.kind == "replay"
        )
        self._letter_counts = letter_counts
        self._stage = stage
        self._since_ms = since_ms

    def judge(self, letters: Iterable[LetterPlace]) -> Iterator[JudgedLetter]:
        """One judgement for each place.  ``letters``: those of a place in a row, offsets of a partition ascending."""
        for (tp, offset), found in groupby(letters, key=lambda each: (each.tp, each.offset)):
            of_place = list(found)
            newest = max(of_place, key=lambda each: (each.time_ms, each.key))
            yield JudgedLetter(newest, self._state(tp, offset, of_place, newest))

    def _state(
        self, tp: TopicPartition, offset: int, letters: Collection[LetterPlace], newest: LetterPlace
    ) -> LetterState:
        counting = _counting(self._read.at(tp, offset))
        replayed = self._replayed.at(tp, offset)
        if not counting:
            return LetterState.NOT_COMMITTED
        if {each.key for each in counting} - {each.key for each in letters}:
            return LetterState.WRITTEN
        if newest.stage == FETCH:
            return LetterState.UNREADABLE
        if any(self._letter_counts.get(each.key) != each.counts.dead_letters for each in counting):
            return LetterState.UNCERTAIN
        if replayed:
            return LetterState.REPLAYED
        is_selected = self._stage in (None, newest.stage) and newest.time_ms >= (self._since_ms or 0)
        return LetterState.OPEN if is_selected else LetterState.NOT_SELECTED


def _counting(lineages: Collection[BatchLineage]) -> list[BatchLineage]:
    """The newest replacement and what is newer; without one all."""
    newest = max((each for each in lineages if each.kind == "replace"), key=_age, default=None)
    return [each for each in lineages if newest is None or _age(each) >= _age(newest)]


def _age(lineage: BatchLineage) -> tuple[int, LetterKey]:
    return lineage.created_ms, lineage.key


class _LineagesByPlace:
    """The lineages that cover an offset; the offsets of a partition must be asked for in their order."""

    def __init__(
        self, ranges: Iterable[tuple[BatchLineage, Mapping[TopicPartition, tuple[tuple[int, int], ...]]]]
    ) -> None:
        # For each partition the ranges that begin later than the offset that was asked for last, the first one at the
        # end; and those that contained it.
        self._later: dict[TopicPartition, list[tuple[int, int, BatchLineage]]] = {}
        self._open: dict[TopicPartition, list[tuple[int, BatchLineage]]] = {}
        for lineage, partitions in ranges:
            for tp, pairs in partitions.items():
                self._later.setdefault(tp, []).extend((first, end, lineage) for first, end in pairs)
        for found in self._later.values():
            found.sort(key=lambda each: -each[0])

    def at(self, tp: TopicPartition, offset: int) -> list[BatchLineage]:
        later = self._later.get(tp, [])
        contained = self._open.setdefault(tp, [])
        while later and later[-1][0] <= offset:
            _, end, lineage = later.pop()
            contained.append((end, lineage))
        contained[:] = [each for each in contained if each[0] > offset]
        return [lineage for _, lineage in contained]
