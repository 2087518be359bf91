"""Commits to Kafka that are repeated during a rebalance, and only for a limited time."""

from __future__ import annotations

import pytest

from bridge.migration.dual.connector.urgent_writes import UrgentWrites
from zkconsumer.kafka.group.commands import CommitDone
from zkconsumer.kafka.group.errors import GroupAuthorizationException, RebalanceInProgressException
from zkconsumer.kafka.group.events import Offset
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OFFSETS = {T0: Offset(5), T1: Offset(6)}
PATIENCE_MS = 1_000
FORMS_ANEW = CommitDone(-1, RebalanceInProgressException("forms anew"), {})


class Played:
    """What was sent and what came of it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.sent: list[int] = []
        self.done: list[tuple[int, frozenset[TopicPartition]]] = []
        self.writes = UrgentWrites(
            lambda number, _: self.sent.append(number), lambda *what: self.done.append(what), self.clock
        )


@pytest.fixture
def played() -> Played:
    return Played()


def test_commits_rejected_during_a_rebalance_are_repeated(played: Played) -> None:
    played.writes.write(1, OFFSETS, PATIENCE_MS)
    played.writes.handle_response(1, FORMS_ANEW)
    played.writes.retry()
    assert (played.sent, played.done) == ([1, 1], [])
    played.writes.handle_response(1, CommitDone(-1, None, {T1: GroupAuthorizationException("no")}))
    played.writes.retry()
    assert (played.sent, played.done) == ([1, 1], [(1, frozenset({T0}))])


def test_after_a_pause_nothing_is_sent_for_partitions_that_may_be_lost(played: Played) -> None:
    played.writes.write(1, OFFSETS, PATIENCE_MS)
    played.writes.handle_response(1, FORMS_ANEW)
    played.clock.move(PATIENCE_MS)
    played.writes.retry()
    assert (played.sent, played.done) == ([1], [(1, frozenset())])
    played.writes.retry()
    assert len(played.done) == 1, "it is told once"


@pytest.mark.parametrize(
    ("patience_ms", "answer"),
    [(0, FORMS_ANEW), (PATIENCE_MS, CommitDone(-1, GroupAuthorizationException("no"), {}))],
    ids=["no patience", "another error"],
)
def test_commits_that_are_not_repeated(played: Played, patience_ms: int, answer: CommitDone) -> None:
    played.writes.write(1, OFFSETS, patience_ms)
    played.writes.handle_response(1, answer)
    played.writes.retry()
    assert (played.sent, played.done) == ([1], [(1, frozenset())])
