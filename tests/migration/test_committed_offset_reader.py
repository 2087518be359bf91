"""Committed offsets are requested until an answer arrives; a manual clock; answers are lost, refused, and late."""

from __future__ import annotations

import pytest

from bridge.migration.dual.connector.committed_offset_reader import (
    RESPONSE_TIMEOUT_MS,
    RETRY_BACKOFF_MS,
    CommittedOffsetReader,
)
from tests.coordinator.client_harness import T


class Coordinator:
    """The coordinator's answers, and the clock of the reader."""

    def __init__(self) -> None:
        self.at_ms = 0
        self.asked: list[frozenset[object]] = []
        self.told: list[dict[str, int]] = []
        self.held = set(T[:2])
        self.readings = CommittedOffsetReader(
            lambda _, partitions: self.asked.append(partitions),
            lambda offsets: self.told.append({str(tp): at for tp, at in offsets.items()}),
            self,
        )

    def now_ms(self) -> int:
        return self.at_ms

    def wait(self, delay_ms: int) -> None:
        """Looked at every 50 ms."""
        until_ms = self.at_ms + delay_ms
        while self.at_ms < until_ms:
            self.at_ms += min(RETRY_BACKOFF_MS, until_ms - self.at_ms)
            self.readings.poll(self.held)

    def answer(self, question: int, **offsets: int) -> None:
        assert self.readings.handle_response(question, {tp: offsets[f"t{tp.partition}"] for tp in T[: len(offsets)]})

    def refuse(self, question: int) -> None:
        assert self.readings.handle_response(question, None)


@pytest.fixture
def coordinator() -> Coordinator:
    made = Coordinator()
    made.readings.read(frozenset(T[:2]))
    return made


def test_a_lost_answer_is_requested_again_and_reported_once(coordinator: Coordinator) -> None:
    coordinator.wait(RESPONSE_TIMEOUT_MS - 1)
    assert len(coordinator.asked) == 1
    coordinator.wait(1)
    assert coordinator.asked == [frozenset(T[:2])] * 2
    coordinator.answer(2, t0=7, t1=8)
    coordinator.answer(1, t0=5, t1=6)
    coordinator.wait(10 * RESPONSE_TIMEOUT_MS)
    assert (len(coordinator.asked), coordinator.told) == (2, [{"t/0": 7, "t/1": 8}])


def test_a_refused_one_is_asked_again_after_pauses_that_grow_and_end_at_a_limit(coordinator: Coordinator) -> None:
    waited: list[int] = []
    for question in range(1, 13):
        coordinator.refuse(question)
        since_ms = coordinator.at_ms
        while len(coordinator.asked) == question:
            coordinator.wait(RETRY_BACKOFF_MS)
        waited.append(coordinator.at_ms - since_ms)
    assert waited[:4] == [RETRY_BACKOFF_MS, 2 * RETRY_BACKOFF_MS, 4 * RETRY_BACKOFF_MS, 8 * RETRY_BACKOFF_MS]
    assert max(waited) == waited[-1] == RESPONSE_TIMEOUT_MS
    coordinator.answer(13, t0=7, t1=8)
    assert coordinator.told == [{"t/0": 7, "t/1": 8}]


def test_offsets_of_partitions_that_are_no_longer_assigned_are_not_requested_again(coordinator: Coordinator) -> None:
    coordinator.held.discard(T[1])
    coordinator.wait(RESPONSE_TIMEOUT_MS)
    assert coordinator.asked[1:] == [frozenset(T[:1])]
    coordinator.answer(1, t0=7, t1=8)
    assert coordinator.told == [{"t/0": 7}]


def test_an_answer_to_an_earlier_question_does_not_count(coordinator: Coordinator) -> None:
    """In between another client may have committed."""
    coordinator.readings.read(frozenset(T[:1]))
    coordinator.answer(1, t0=5, t1=6)
    assert coordinator.told == [{"t/1": 6}]
    coordinator.answer(2, t0=7)
    assert coordinator.told[1:] == [{"t/0": 7}]


def test_answers_to_other_questions_are_not_reported(coordinator: Coordinator) -> None:
    assert not coordinator.readings.handle_response(-9, {T[0]: 1})
    assert not coordinator.told
