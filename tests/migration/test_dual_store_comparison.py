"""When both stores agree, partition by partition, in each phase that compares them."""

from __future__ import annotations

import pytest

from bridge.migration.control.phases import Phase
from bridge.migration.dual.store_comparison import ComparedPartitions, StoresSnapshot, compare_offsets
from bridge.migration.inspect.group_snapshot import CommittedOffset
from bridge.migration.offsets.provenance import Provenance, format_provenance
from zkconsumer.admin.zookeeper_group import OffsetNode
from zkconsumer.types import TopicPartition
from zkconsumer.zk.requests import Stat

READ, UNREAD = TopicPartition("t", 0), TopicPartition("old", 0)
EPOCH = 3


def node(tp: TopicPartition, offset: int, version: int = 1, czxid: int = 1) -> OffsetNode:
    return OffsetNode(tp, b"%d" % offset, offset, Stat(czxid, 1, version, 0, 1, 0, 0, 1, 1, 1))


def ours(offset: int, epoch: int = EPOCH, source: int = 1, migration: str = "m1") -> CommittedOffset:
    return CommittedOffset(offset, format_provenance(Provenance(migration, epoch, source)))


@pytest.mark.parametrize(
    ("phase", "tp", "stored", "target", "value", "agrees"),
    [
        (Phase.LOCKED, READ, 5, None, ours(5), True),
        (Phase.LOCKED, READ, 5, None, ours(4), False),
        (Phase.LOCKED, READ, 5, None, None, False),
        (Phase.LOCKED, READ, 5, None, ours(5, epoch=2), False),
        (Phase.LOCKED, READ, 5, None, ours(5, migration="m0"), False),
        (Phase.LOCKED, READ, 5, None, CommittedOffset(5), False),
        (Phase.COPIED, READ, 5, None, CommittedOffset(5, "an application's"), True),
        (Phase.COPIED, READ, 5, None, CommittedOffset(6), False),
        (Phase.LOCKED, READ, 5, 3, ours(5), True),
        (Phase.LOCKED, READ, None, 7, ours(7, epoch=1), True),
        (Phase.LOCKED, READ, None, 7, ours(8, epoch=1), False),
        (Phase.COPIED, READ, None, 7, CommittedOffset(7), False),
        (Phase.LOCKED, READ, None, None, None, True),
        (Phase.LOCKED, READ, None, None, CommittedOffset(9), False),
        (Phase.LOCKED, UNREAD, 5, 5, ours(5, epoch=1), True),
        (Phase.LOCKED, UNREAD, 6, 5, ours(5, epoch=1), False),
        (Phase.RETURNING, READ, 5, None, CommittedOffset(5), True),
        (Phase.RETURNING, READ, 5, None, CommittedOffset(6), False),
        (Phase.RETURNING, READ, 5, None, None, True),
        (Phase.RETURNING, READ, None, None, CommittedOffset(6), False),
        (Phase.RETURNING, READ, None, 6, ours(6, source=-1), True),
    ],
)
def test_offsets_that_agree(
    phase: Phase,
    tp: TopicPartition,
    stored: int | None,
    target: int | None,
    value: CommittedOffset | None,
    agrees: bool,
) -> None:
    nodes = {} if stored is None else {tp: node(tp, stored)}
    wanted = ComparedPartitions(frozenset({READ}) & {tp}, {} if target is None else {tp: target})
    kept = StoresSnapshot(nodes, {} if value is None else {tp: value}, nodes)
    agree, differ = compare_offsets(wanted, kept, phase, "m1", EPOCH)
    assert (tp in agree, len(differ)) == (agrees, 0 if agrees else 1)


@pytest.mark.parametrize("phase", [Phase.LOCKED, Phase.COPIED, Phase.RETURNING])
@pytest.mark.parametrize("value", [5, 7, 9])
def test_a_frequently_committed_partition_agrees_when_zookeeper_passed_kafkas_offset(phase: Phase, value: int) -> None:
    kept = StoresSnapshot({READ: node(READ, 5)}, {READ: ours(value)}, {READ: node(READ, 9, version=4)})
    assert compare_offsets(ComparedPartitions(frozenset({READ}), {}), kept, phase, "m1", EPOCH) == ({READ}, [])


@pytest.mark.parametrize("value", [ours(4), ours(10), None])
def test_a_changed_offset_that_did_not_pass_kafkas_is_compared_again(value: CommittedOffset | None) -> None:
    """Kafka does not have ZooKeeper's earlier offset, or in a rollback ZooKeeper has not reached Kafka's yet."""
    kept = StoresSnapshot(
        {READ: node(READ, 5)}, {} if value is None else {READ: value}, {READ: node(READ, 9, version=4)}
    )
    for phase in (Phase.LOCKED, Phase.RETURNING):
        assert compare_offsets(ComparedPartitions(frozenset({READ}), {}), kept, phase, "m1", EPOCH) == (set(), [])


def test_a_foreign_value_that_was_passed_is_reported() -> None:
    kept = StoresSnapshot({READ: node(READ, 5)}, {READ: CommittedOffset(7)}, {READ: node(READ, 9, version=4)})
    agree, [differ] = compare_offsets(ComparedPartitions(frozenset({READ}), {}), kept, Phase.LOCKED, "m1", EPOCH)
    assert (agree, differ.tp) == (set(), READ)


def test_an_orphaned_offset_that_changes_is_compared_again() -> None:
    kept = StoresSnapshot({UNREAD: node(UNREAD, 5)}, {UNREAD: ours(5)}, {UNREAD: node(UNREAD, 9, version=4)})
    assert compare_offsets(ComparedPartitions(frozenset(), {UNREAD: 5}), kept, Phase.LOCKED, "m1", EPOCH) == (set(), [])


@pytest.mark.parametrize("behind", [node(READ, 4, version=2), node(READ, 5, czxid=2), None])
def test_an_offset_changed_during_the_comparison_is_compared_again(behind: OffsetNode | None) -> None:
    kept = StoresSnapshot({READ: node(READ, 5)}, {READ: ours(5)}, {} if behind is None else {READ: behind})
    assert compare_offsets(ComparedPartitions(frozenset({READ}), {}), kept, Phase.LOCKED, "m1", EPOCH) == (set(), [])
