"""Which dead letters may be replayed: only records without a row."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bridge.spark.pipeline.lineage import BatchCounts, BatchLineage
from bridge.spark.pipeline.replay.letter_choice import LetterChoice, LetterPlace, LetterState
from zkconsumer.types import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def lineage(
    query: str, first: int = 0, end: int = 10, kind: str = "batch", dead: int = 1, at_ms: int = 100, batch: int = 0
) -> BatchLineage:
    ranges = {A0: ((first, end),)} if first < end else {}
    return BatchLineage(query, batch, kind, "p", "claim", "t", at_ms, ranges, BatchCounts(dead_letters=dead))


def letter(offset: int, query: str = "q", stage: str = "decode", time_ms: int = 90, batch: int = 0) -> LetterPlace:
    return LetterPlace(A0, offset, query, batch, stage, time_ms)


def state(
    lineages: Sequence[BatchLineage],
    *letters: LetterPlace,
    counts: int = 1,
    stage: str | None = None,
    since: int | None = None,
) -> LetterState:
    """Of the only place."""
    found = LetterChoice(lineages, {each.key: counts for each in letters}, stage, since).judge(letters)
    [judged] = found
    return judged.state


def test_a_letter_of_a_committed_batch_is_open() -> None:
    assert state([lineage("q")], letter(5)) is LetterState.OPEN


def test_a_letter_of_a_batch_that_is_not_in_the_table_is_left_to_the_repetition_of_the_batch() -> None:
    assert state([], letter(5)) is LetterState.NOT_COMMITTED
    assert state([lineage("q", 6)], letter(5)) is LetterState.NOT_COMMITTED
    assert state([lineage("q", 0, 0, "backfill")], letter(5)) is LetterState.NOT_COMMITTED, "it was released"


def test_a_record_that_was_replayed_is_not_replayed_again() -> None:
    assert state([lineage("q"), lineage("r", 5, 6, "replay")], letter(5)) is LetterState.REPLAYED
    assert state([lineage("q"), lineage("r", 6, 7, "replay")], letter(5)) is LetterState.OPEN


def test_a_record_that_another_batch_has_written_is_not_replayed() -> None:
    """A second checkpoint, with a corrected file, has read the record again."""
    assert state([lineage("q"), lineage("q2", at_ms=200)], letter(5)) is LetterState.WRITTEN
    assert state([lineage("q"), lineage("q2", at_ms=200)], letter(5), letter(5, "q2", time_ms=190)) is LetterState.OPEN


def test_of_a_replaced_record_only_the_letters_of_the_newest_replacement_count() -> None:
    replacement = lineage("n", kind="replace", at_ms=200)
    assert state([lineage("q"), replacement], letter(5)) is LetterState.WRITTEN, "its old letter has a row now"
    assert state([lineage("q"), replacement], letter(5, "n", time_ms=190)) is LetterState.OPEN
    newer = lineage("n2", kind="replace", at_ms=300)
    assert state([lineage("q"), replacement, newer], letter(5), letter(5, "n")) is LetterState.WRITTEN
    assert state([lineage("q"), replacement, newer], letter(5, "n2")) is LetterState.OPEN


def test_a_replay_before_a_replacement_does_not_count_and_one_after_it_does() -> None:
    replacement = lineage("n", kind="replace", at_ms=200)
    before, after = lineage("r", 5, 6, "replay", at_ms=150), lineage("r", 5, 6, "replay", at_ms=250, batch=1)
    assert state([lineage("q"), before, replacement], letter(5, "n")) is LetterState.OPEN
    assert state([lineage("q"), before, replacement, after], letter(5, "n")) is LetterState.REPLAYED


def test_letters_that_an_attempt_before_a_correction_has_left_are_not_replayed() -> None:
    assert state([lineage("q", dead=0)], letter(5)) is LetterState.UNCERTAIN
    assert state([lineage("q", dead=3)], letter(5), counts=2) is LetterState.UNCERTAIN


def test_a_record_that_could_not_be_read_is_not_decoded_again() -> None:
    assert state([lineage("q")], letter(5, stage="fetch")) is LetterState.UNREADABLE


@pytest.mark.parametrize(
    ("stage", "since", "expected"),
    [
        ("decode", None, LetterState.OPEN),
        ("transform", None, LetterState.NOT_SELECTED),
        (None, 90, LetterState.OPEN),
        (None, 91, LetterState.NOT_SELECTED),
    ],
)
def test_letters_are_selected_by_stage_and_time(stage: str | None, since: int | None, expected: LetterState) -> None:
    assert state([lineage("q")], letter(5), stage=stage, since=since) is expected


def test_each_place_of_many_is_judged_once_in_order() -> None:
    lineages = [lineage("q", 0, 50, dead=4), lineage("r", 10, 20, "replay"), lineage("q", 60, 90, batch=1, dead=2)]
    letters = [letter(n) for n in (3, 12, 19, 20)] + [letter(59), letter(60, batch=1), letter(89, batch=1), letter(90)]
    letters.append(LetterPlace(A1, 3, "q", 0, "decode", 90))
    counts = {("q", 0): 4, ("q", 1): 2}
    found = list(LetterChoice(lineages, counts).judge(letters))
    assert [each.letter for each in found] == letters
    opened = [each.letter.offset for each in found if each.state is LetterState.OPEN]
    assert opened == [3, 20, 60, 89]
    assert [each.letter.offset for each in found if each.state is LetterState.REPLAYED] == [12, 19]
