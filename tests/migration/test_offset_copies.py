"""What a value in Kafka means to a copy, and what goes back: pure rules."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.migration.inspect.group_snapshot import CommittedOffset
from bridge.migration.offsets.offset_copies import (
    CopyStatus,
    OffsetCopy,
    copy_differences,
    copy_status,
    format_differences,
    pending_and_drifted,
    pending_zookeeper_writes,
    zookeeper_differences,
    zookeeper_offset_for,
)
from bridge.migration.plan.decisions import OffsetConvention
from zkconsumer.admin.zookeeper_group import OffsetNode
from zkconsumer.admin.zookeeper_offset_writes import NO_ZNODE_VERSION, OffsetWrite
from zkconsumer.types import TopicPartition
from zkconsumer.zk.requests import Stat

T0, T1, T2 = (TopicPartition("t", n) for n in range(3))
NEXT, LAST = OffsetConvention.NEXT, OffsetConvention.LAST


def mine(offset: int, epoch: int = 3, version: int = 7, migration: str = "m1") -> CommittedOffset:
    return CommittedOffset(offset, f"zkconsumer-migrate:1:{migration}:{epoch}:{version}")


def node(tp: TopicPartition, offset: int | None, version: int = 7, problem: str = "") -> OffsetNode:
    return OffsetNode(tp, b"", offset, Stat(1, 1, version, 0, 0, 0, 0, 0, 0, 0), problem)


SEEN = CommittedOffset(40, "app")
COPY = OffsetCopy(T0, 42, 42, 7, SEEN)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (mine(42), CopyStatus.DONE),
        (mine(42, epoch=2), CopyStatus.PENDING),
        (mine(41, epoch=2), CopyStatus.PENDING),
        (mine(41), CopyStatus.PENDING),
        (mine(42, version=8), CopyStatus.PENDING),
        (SEEN, CopyStatus.PENDING),
        (None, CopyStatus.PENDING),
        (CommittedOffset(42, ""), CopyStatus.DRIFT),
        (CommittedOffset(41, "app"), CopyStatus.DRIFT),
        (CommittedOffset(40, ""), CopyStatus.DRIFT),
        (mine(42, migration="m2"), CopyStatus.DRIFT),
    ],
)
def test_a_value_is_done_pending_or_drift(found: CommittedOffset | None, verdict: CopyStatus) -> None:
    assert copy_status(COPY, found, "m1", 3) is verdict
    left, drift = pending_and_drifted([COPY], {} if found is None else {T0: found}, "m1", 3)
    assert bool(drift) == (verdict is CopyStatus.DRIFT)
    assert left == ([COPY] if verdict is CopyStatus.PENDING else [])


def test_drift_contains_the_present_and_the_planned_value() -> None:
    left, [drift] = pending_and_drifted([COPY], {T0: CommittedOffset(57, "x")}, "m1", 3)
    assert left == []
    assert str(drift) == "t/0: Kafka has 57 (x), not 40 (app), as the plan saw"
    many = [OffsetCopy(TopicPartition("t", n), n) for n in range(13)]
    words = format_differences(pending_and_drifted(many, {copy.tp: CommittedOffset(9) for copy in many}, "m1", 3)[1])
    assert words.startswith("t/0: Kafka has 9, not nothing, as the plan saw; ")
    assert words.endswith("; and 3 more")


@settings(deadline=None)
@given(st.integers(0, 2**62), st.integers(-1, 2**31 - 1), st.integers(1, 10**9))
def test_a_written_copy_is_done_at_its_epoch_and_no_other(offset: int, version: int, epoch: int) -> None:
    copy = OffsetCopy(T0, offset, None, version)
    value = CommittedOffset(offset, copy.metadata("m1", epoch))
    assert copy_status(copy, value, "m1", epoch) is CopyStatus.DONE
    assert copy_status(copy, value, "m1", epoch + 1) is CopyStatus.PENDING
    assert copy_status(copy, value, "m", epoch) is CopyStatus.DRIFT


def test_after_a_copy_every_difference_is_named() -> None:
    copies = [COPY, OffsetCopy(T1, 5), OffsetCopy(T2, 6, 6, 1)]
    right = {T0: mine(42), T1: mine(5, version=NO_ZNODE_VERSION), T2: mine(6, version=1)}
    nodes = {T0: node(T0, 42), T2: node(T2, 6, 1)}

    def differences(kafka: dict[TopicPartition, CommittedOffset], there: dict[TopicPartition, OffsetNode]) -> list[str]:
        return list(map(str, copy_differences(copies, [], kafka, nodes=there, migration_id="m1", epoch=3)))

    assert differences(right, nodes) == []
    assert differences({**right, T0: mine(43)}, nodes) == [
        "t/0: Kafka has 43 (zkconsumer-migrate:1:m1:3:7), not 42 (zkconsumer-migrate:1:m1:3:7)"
    ]
    assert differences({T0: right[T0], T1: right[T1]}, nodes) == [
        "t/2: Kafka has nothing, not 6 (zkconsumer-migrate:1:m1:3:1)"
    ]
    assert differences({**right, T1: CommittedOffset(5)}, nodes) == [
        "t/1: Kafka has 5, not 5 (zkconsumer-migrate:1:m1:3:-1)"
    ]
    assert differences(right, {**nodes, T0: node(T0, 42, 8)}) == [
        "t/0: ZooKeeper has 42 at version 8, not 42 at version 7"
    ]
    assert differences(right, {**nodes, T0: node(T0, 41)}) == [
        "t/0: ZooKeeper has 41 at version 7, not 42 at version 7"
    ]
    assert differences(right, {T0: nodes[T0]}) == ["t/2: ZooKeeper has no znode, not 6 at version 1"]
    assert differences(right, {**nodes, T1: node(T1, 1, 0)}) == ["t/1: ZooKeeper has 1 at version 0, not no znode"]
    came = TopicPartition("new", 0)
    assert differences(right, {**nodes, came: node(came, 3, 0)}) == [
        "new/0: ZooKeeper has 3 at version 0, not no znode"
    ]
    assert (
        copy_differences(copies, [came], right, nodes={**nodes, came: node(came, 3, 0)}, migration_id="m1", epoch=3)
        == []
    )


@pytest.mark.parametrize(("convention", "next_", "stored"), [(NEXT, 0, 0), (NEXT, 5, 5), (LAST, 5, 4), (LAST, 0, None)])
def test_returned_offsets_have_the_groups_own_convention(
    convention: OffsetConvention, next_: int, stored: int | None
) -> None:
    assert zookeeper_offset_for(next_, convention) == stored


def test_only_different_offsets_are_written_back_and_others_stay() -> None:
    kafka = {T0: CommittedOffset(42), T1: CommittedOffset(50, "app"), T2: CommittedOffset(0)}
    nodes = {T0: node(T0, 42), T1: node(T1, 49, 3)}
    assert pending_zookeeper_writes(kafka, nodes, NEXT) == [
        OffsetWrite(T1, 50, 3),
        OffsetWrite(T2, 0, NO_ZNODE_VERSION),
    ]
    assert pending_zookeeper_writes(kafka, nodes, LAST) == [OffsetWrite(T0, 41, 7)], "49 is the last one before 50"
    assert pending_zookeeper_writes({}, nodes, NEXT) == []
    assert pending_zookeeper_writes({T0: CommittedOffset(0)}, nodes, LAST) == [OffsetWrite(T0, None, 7)]
    assert pending_zookeeper_writes({T0: CommittedOffset(0)}, {T0: node(T0, None, 1, "no offset")}, LAST) == [
        OffsetWrite(T0, None, 1)
    ]


def test_after_the_rollback_every_difference_is_named() -> None:
    kafka = {T0: CommittedOffset(42), T1: CommittedOffset(50)}
    assert zookeeper_differences(kafka, {T0: node(T0, 42), T1: node(T1, 50), T2: node(T2, 1)}, NEXT) == []
    assert list(map(str, zookeeper_differences(kafka, {T0: node(T0, 40)}, NEXT))) == [
        "t/0: ZooKeeper has 40 at version 7, not 42",
        "t/1: ZooKeeper has no znode, not 50",
    ]
