"""The judge of the order in which a migration with members writes finds each thing that must not be."""

from __future__ import annotations

import pytest

from tests.migration.dual_order_checker import judge_order
from zkconsumer.testing import checker as h


def at(phase: str, epoch: int, authority: h.Store = "zookeeper") -> h.ControlWritten:
    return h.ControlWritten(0, epoch, phase, authority, "m1", "dual")


def offset(store: h.Store, offset: int) -> h.OffsetCommitted:
    return h.OffsetCommitted(0, "t", 0, offset, "one", store=store)


BEGUN = [at("planned", 1), at("armed", 2), at("ready", 2)]
THERE = [
    *BEGUN,
    offset("zookeeper", 5),
    offset("kafka", 5),
    at("locked", 3),
    at("copied", 3),
    at("switched", 4, "kafka"),
]


def test_a_right_history_passes() -> None:
    judge_order([*THERE, at("switched", 4, "kafka"), offset("kafka", 6), offset("zookeeper", 6)])


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([at("armed", 2)], "begins with its plan"),
        ([*BEGUN, at("switched", 3, "kafka")], "phases follow each other"),
        ([at("planned", 1), at("armed", 0)], "epochs grow"),
        ([*THERE[:-1], at("switched", 3, "kafka")], "epoch of its own"),
        ([at("planned", 1, "kafka")], "another authority"),
        ([*THERE[:-1], offset("zookeeper", 6), THERE[-1]], "B equals A"),
        ([*BEGUN, *THERE[5:]], "something to compare"),
        ([offset("zookeeper", 5), offset("zookeeper", 4)], "went back"),
        ([*BEGUN[:-1], h.Fenced(0, "zookeeper", "t", 0), BEGUN[-1]], "members hold everything"),
    ],
)
def test_wrong_histories_are_found(events: list[h.HistoryEvent], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        judge_order(events)
