"""What the history of a dual migration must show besides what ``zkconsumer check`` checks.

The phases follow each other as in the table, both stores are equal when the authority moves, members own every
partition until it has moved, and ZooKeeper's offsets never decrease.
"""

from __future__ import annotations

from collections.abc import Iterable

from bridge.migration.control.control_layout import phase_of
from bridge.migration.control.phases import authority_of, next_phases
from zkconsumer.testing import checker as h
from zkconsumer.types import TopicPartition
from zkconsumer.zk.znode_formats import ControlRecord

UNFENCED = ("ready", "locked", "copied", "switched")
"""The phases that begin while members hold every partition."""


def judge_order(events: Iterable[h.HistoryEvent]) -> None:
    """Of the lines that a ``HistoryRecorder`` wrote, those of the stores."""
    stored: dict[h.Store, dict[TopicPartition, int]] = {"zookeeper": {}, "kafka": {}}
    fences: set[TopicPartition] = set()
    before: ControlRecord | None = None
    for event in events:
        match event:
            case h.OffsetCommitted(
                topic=topic, partition=number, offset=offset, store=("zookeeper" | "kafka") as store
            ):
                tp = TopicPartition(topic, number)
                assert store == "kafka" or stored[store].get(tp, -1) <= offset, f"{tp} went back in ZooKeeper"
                stored[store][tp] = offset
            case h.Fenced(store="zookeeper", topic=str(topic), partition=int(number)):
                fences.add(TopicPartition(topic, number))
            case h.Unfenced(store="zookeeper", topic=str(topic), partition=int(number)):
                fences.discard(TopicPartition(topic, number))
            case h.ControlWritten(epoch=epoch, phase=phase, authority=authority, migration=name, strategy=strategy):
                now = ControlRecord(name, epoch, phase, authority, strategy)
                if now != before:
                    _judge_step(before, now, stored)
                assert not fences or now.phase not in UNFENCED, f"{now.phase}: members hold everything, and {fences}"
                before = now


def _judge_step(
    before: ControlRecord | None, now: ControlRecord, stored: dict[h.Store, dict[TopicPartition, int]]
) -> None:
    """One write of the control znode."""
    assert now.authority == authority_of(phase_of(now)), f"phase {now.phase} has another authority"
    if before is None:
        assert now.phase == "planned", "a migration begins with its plan"
        return
    assert phase_of(now) in next_phases("dual", phase_of(before)), f"phases follow each other: {before}, then {now}"
    assert now.epoch >= before.epoch, "epochs grow"
    if now.authority != before.authority:
        assert now.epoch == before.epoch + 1, "an authority has an epoch of its own"
        known, there = stored[before.authority], stored[now.authority]
        assert known, "there is something to compare"
        unequal = {tp: (offset, there.get(tp)) for tp, offset in known.items() if there.get(tp) != offset}
        assert not unequal, f"B equals A when the authority moves: {unequal}"
