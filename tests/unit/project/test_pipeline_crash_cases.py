"""The crash matrix of pipelines has the crashes that it says it has, and its judge finds what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bridge.spark.pipeline.lineage import BatchLineage
from tests.spark.crash.pipeline_cases import (
    BACKFILL,
    COMMITTED,
    FAULTS,
    IN_CI,
    KILL,
    LETTERS,
    NIGHTLY_CRASHES,
    PARQUET,
    POINTS_OF,
    REPLACE,
    REPLAY,
    ROUND,
    RUN,
    SENT,
    SINKS,
    STOP,
    TOPIC,
    PipelineCrash,
    crash_of,
    every_crash,
    is_possible,
    random_crash,
    rounds_of,
)
from tests.spark.crash.pipeline_input import (
    OFFSETS,
    PARTITIONS,
    Fate,
    expected_counts,
    expected_kinds,
    expected_letters,
    expected_rows,
    places,
)
from tests.spark.crash.pipeline_judge import FoundLetter, FoundRow, PipelineState, changes, judge
from tests.spark.crash.pipeline_table import pipeline_table
from zkconsumer.types import TopicPartition

HALF = OFFSETS // 2


def test_every_pair_has_both_faults_and_the_night_has_room_for_more() -> None:
    every = every_crash()
    assert len(set(every)) == len(every) == 118
    pairs = {(crash.command, crash.sink, crash.point) for crash in every}
    assert Counter(pair for crash in every for pair in [(crash.command, crash.sink, crash.point)]) == {
        pair: len(FAULTS) for pair in pairs
    }
    for sink in SINKS:
        live = [point for command, of, point in pairs if (command, of) == (RUN, sink)]
        assert set(live) | {SENT} == set(POINTS_OF[RUN]), f"{sink} has each point of the live query"
    assert len(every) < NIGHTLY_CRASHES
    assert {crash.batch for crash in every} == {0, 1}


def test_four_crashes_are_in_ci_one_of_them_a_stopped_driver() -> None:
    assert len(IN_CI) == 4
    assert [crash.fault for crash in IN_CI].count(STOP) == 1
    assert all(map(is_possible, IN_CI))


def test_a_round_has_all_crashes_once_and_delta_alone() -> None:
    rounds = rounds_of(every_crash())
    assert Counter(crash for each in rounds for crash in each) == Counter(every_crash())
    for each in rounds:
        assert len({crash.sink == "delta" for crash in each}) == 1
        assert max(Counter(crash.fault for crash in each).values()) <= ROUND
    assert rounds_of([]) == []


def test_the_text_of_a_crash_plays_it_again() -> None:
    for crash in [*every_crash(), *map(random_crash, range(50))]:
        assert crash_of(str(crash)) == replace(crash, seed=None)
    assert len({str(random_crash(seed)) for seed in range(50)}) > 40
    for text in (
        "run/parquet/after-send/kill/0",
        "replay/topic/after-write/kill/0",
        "replace/delta/after-write/stop/0",
    ):
        with pytest.raises(ValueError, match="has no such crash"):
            crash_of(text)


# --- the judge ----------------------------------------------------------------------------------------------------


def lineage(kind: str, batch: int, offsets: list[tuple[int, int]], command: str) -> BatchLineage:
    ranges = {
        TopicPartition("t", number): tuple((each, each + 1) for at, each in offsets if at == number)
        for number in PARTITIONS
    }
    merged = {tp: _merged(pairs) for tp, pairs in ranges.items() if pairs}
    counts = expected_counts(merged, command, kind)
    return BatchLineage(f"q-{kind}", batch, kind, "t", "claim", "a", 1, merged, counts)


def _merged(pairs: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for first, end in pairs:
        if found and found[-1][1] == first:
            found[-1] = found[-1][0], end
        else:
            found.append((first, end))
    return tuple(found)


def right_state(command: str, *, is_topic: bool = False) -> PipelineState:
    """What a run without a fault leaves."""
    lineages, replacements = [], int(command == REPLACE)
    for kind, wanted in expected_kinds(command, replacements).items():
        halves = [sorted(place for place in wanted if (place[1] < HALF) is is_first) for is_first in (True, False)]
        lineages += [lineage(kind, batch, half, command) for batch, half in enumerate(halves) if half]
    rows = [
        FoundRow(*row, ("q-batch", row[1] // HALF) if is_topic else None) for row in expected_rows(command).elements()
    ]
    letters = [
        FoundLetter(number, offset, f"q{copy}", offset // HALF, "decode")
        for (number, offset), count in expected_letters(command, replacements).items()
        for copy in range(count)
    ]
    end = dict.fromkeys(PARTITIONS, OFFSETS)
    return PipelineState(rows, letters, lineages, [], [], end, dict(end), {"commits/0": "v1"})


def crash(command: str = RUN, sink: str = PARQUET, point: str = COMMITTED, **more: Any) -> PipelineCrash:
    return PipelineCrash(command, sink, point, KILL, **{"batch": 0, **more})


@pytest.mark.parametrize("command", [RUN, BACKFILL, REPLAY, REPLACE])
def test_what_a_run_without_a_fault_leaves_is_right(command: str) -> None:
    verdict = judge(crash(command, "postgres"), right_state(command))
    assert (verdict.findings, verdict.lost, verdict.twice) == ((), 0, 0)


def test_a_replacement_that_was_complete_when_its_driver_died_is_made_once_more() -> None:
    state = right_state(REPLACE)
    again = [replace(each, query="second") for each in state.lineages if each.kind == REPLACE]
    letters = [*state.letters, *(replace(each, query="second") for each in state.letters if each.query == "q1")]
    twice = replace(state, lineages=[*state.lineages, *again], letters=letters)
    for point, batch, delay_ms, expected in (
        (COMMITTED, 1, None, (False, True)),
        (COMMITTED, 0, None, (True, False)),
        (LETTERS, 1, None, (True, False)),
        (LETTERS, 1, 7, (True, True)),
    ):
        played = crash(REPLACE, "postgres", point, batch=batch, delay_ms=delay_ms)
        assert (judge(played, state).is_valid, judge(played, twice).is_valid) == expected
    assert not judge(crash(REPLACE, "postgres", COMMITTED, batch=1), replace(twice, letters=state.letters)).is_valid


def test_the_input_has_each_fate_in_each_half_of_a_batch() -> None:
    for command in (RUN, REPLAY):
        for fate in Fate:
            found = {offset // (HALF // 2) for _, offset in places(command, fate)}
            assert found == (set() if fate is Fate.MISTYPED and command == RUN else {0, 1, 2, 3})


WRONG: dict[str, Callable[[PipelineState], PipelineState]] = {
    "1 rows are lost": lambda state: replace(state, rows=state.rows[1:]),
    "1 rows are there twice": lambda state: replace(state, rows=[*state.rows, state.rows[0]]),
    "1 rows are not of the input": lambda state: replace(state, rows=[*state.rows, FoundRow(0, 4, 4)]),
    "1 dead letters are lost": lambda state: replace(state, letters=state.letters[1:]),
    "1 dead letters are there twice": lambda state: replace(state, letters=[*state.letters, state.letters[0]]),
    "offsets of kind batch are lost": lambda state: replace(state, lineages=state.lineages[1:]),
    "offsets of kind batch are there twice": lambda state: replace(
        state, lineages=[*state.lineages, replace(state.lineages[0], batch=9)]
    ),
    "offsets of kind backfill are not of the input": lambda state: replace(
        state, lineages=[*state.lineages, replace(state.lineages[0], kind="backfill")]
    ),
    "and its ranges have": lambda state: replace(
        state,
        lineages=[replace(state.lineages[0], counts=replace(state.lineages[0].counts, filtered=0)), state.lineages[1]],
    ),
    "the group is at": lambda state: replace(state, group_offsets={0: OFFSETS, 1: OFFSETS - 1}),
    "the checkpoint is at": lambda state: replace(state, planned={0: OFFSETS}),
    "reservations are left": lambda state: replace(state, reservations=state.lineages[:1]),
}


@pytest.mark.parametrize("words", WRONG)
def test_what_is_wrong_is_found(words: str) -> None:
    verdict = judge(crash(), WRONG[words](right_state(RUN)))
    assert any(words in finding for finding in verdict.findings), verdict
    assert not verdict.is_valid
    assert "WRONG" in str(verdict)


def of_batch(state: PipelineState, batch: int) -> list[FoundRow]:
    return [row for row in state.rows if row.batch == ("q-batch", batch)]


def test_a_topic_has_twice_what_the_dead_attempt_had_sent_and_nothing_else() -> None:
    state = right_state(RUN, is_topic=True)
    sent_again = replace(state, rows=[*state.rows, *of_batch(state, 1)])
    verdict = judge(crash(sink=TOPIC, point=SENT, batch=1), sent_again)
    assert verdict.is_valid, verdict
    assert verdict.twice == len(of_batch(state, 1))
    for point, batch, rows in (
        (SENT, 0, sent_again.rows),
        (COMMITTED, 1, sent_again.rows),
        (SENT, 1, state.rows),
        (SENT, 1, sent_again.rows[:-1]),
        (SENT, 1, [*sent_again.rows, *of_batch(state, 0)]),
        (SENT, 1, [*sent_again.rows, *of_batch(state, 1)]),
        (SENT, 1, [*sent_again.rows, replace(state.rows[0], batch=("q-batch", 7))]),
    ):
        assert not judge(crash(sink=TOPIC, point=point, batch=batch), replace(state, rows=rows)).is_valid


def test_a_topic_may_have_a_part_of_one_batch_twice_some_time_after_a_point() -> None:
    state = right_state(RUN, is_topic=True)
    late = crash(sink=TOPIC, point=LETTERS, delay_ms=100)
    letters = [*state.letters, state.letters[0]]
    rows = [*state.rows, *of_batch(state, 0)[1:]]
    assert judge(late, state).is_valid
    assert judge(late, replace(state, rows=rows, letters=letters)).is_valid
    assert not judge(late, replace(state, rows=[*rows, of_batch(state, 1)[0]])).is_valid
    assert not judge(late, replace(state, rows=rows[1:])).is_valid
    assert not judge(late, replace(state, letters=[*letters, state.letters[-1]])).is_valid
    assert not judge(crash(sink=TOPIC), replace(state, letters=letters)).is_valid


def test_a_driver_that_continues_and_changes_something_is_found() -> None:
    state = right_state(RUN)
    assert list(changes(crash(), state, right_state(RUN))) == []
    for other, name in (
        (replace(state, rows=state.rows[1:]), "rows"),
        (replace(state, group_offsets={0: 3, 1: OFFSETS}), "group_offsets: 0: 20 -> 3"),
        (replace(state, checkpoint={"commits/0": "v1", "commits/2": "v1"}), "checkpoint: commits/2: None -> v1"),
    ):
        [found] = changes(crash(), state, other)
        assert f"has changed {name}" in found


def test_a_driver_that_was_stopped_while_it_sent_may_send_the_rest_to_a_topic() -> None:
    state = right_state(RUN, is_topic=True)
    sent_more = replace(state, rows=[*state.rows, state.rows[0]])
    late = crash(sink=TOPIC, point=LETTERS, delay_ms=5)
    assert list(changes(late, state, sent_more)) == []
    assert len(list(changes(late, state, replace(state, rows=state.rows[1:])))) == 1
    assert len(list(changes(crash(sink=TOPIC), state, sent_more))) == 1
    assert len(list(changes(crash(delay_ms=5), state, sent_more))) == 1


def test_the_table_has_a_row_a_point_and_a_column_a_sink() -> None:
    results = [
        {"command": RUN, "sink": sink, "point": COMMITTED, "fault": fault, "lost": 0, "twice": 0, "findings": []}
        for sink, fault in ((PARQUET, KILL), (PARQUET, STOP), (TOPIC, KILL))
    ]
    results.append({**results[0], "sink": "delta", "lost": 2, "findings": ["2 rows are lost"]})
    _, _, row = pipeline_table(results).splitlines()
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == [
        "run, after-commit", "1 killed, 1 stopped: lost 0, twice 0", "1 killed: lost 2, twice 0, WRONG 1", "",
        "1 killed: lost 0, twice 0",
    ]  # fmt: skip
