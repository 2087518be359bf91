"""A large group costs as much as it has members, and no more: counted in members looked at, not in time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bridge.coordinator.group_metadata import GroupMetadata
from bridge.coordinator.member_metadata import MemberMetadata
from tests.coordinator.server_harness import CONFIG, Member, Table

SIZE = 1_000
LONG_MS = 60_000
LARGE = replace(CONFIG, group_max_size=10 * SIZE)


class Counted(dict[str, MemberMetadata]):
    """Members of a group; ``looked_at`` counts those that anybody walked past."""

    looked_at = 0

    def __iter__(self) -> Iterator[str]:
        for key in super().__iter__():
            type(self).looked_at += 1
            yield key

    def values(self) -> Any:
        return (self[key] for key in self)

    def items(self) -> Any:
        return ((key, self[key]) for key in self)


def counted(group: GroupMetadata) -> type[Counted]:
    """Count from now on what is looked at in this group."""
    Counted.looked_at = 0
    group.members = Counted(group.members)
    Counted.looked_at = 0
    return Counted


def large_group(size: int = SIZE) -> tuple[Table, list[Member]]:
    table = Table(config=LARGE)
    tokens = [table.join(session_ms=LONG_MS, rebalance_ms=LONG_MS) for _ in range(size)]
    table.move(LONG_MS)
    members = [table.joined(token) for token in tokens]
    return table, members


def test_a_thousand_members_that_join_are_each_looked_at_a_few_times() -> None:
    table = Table(config=LARGE)
    table.join(session_ms=LONG_MS, rebalance_ms=LONG_MS)
    seen = counted(table.group())
    tokens = [table.join(session_ms=LONG_MS, rebalance_ms=LONG_MS) for _ in range(SIZE - 1)]
    assert seen.looked_at == 0
    table.move(LONG_MS)
    assert all(table.answer(token).error_code == 0 for token in tokens)
    # Once to choose the protocol, for the topics, to answer, for the leader's list, and for the sync timer.
    assert seen.looked_at <= 8 * SIZE


def test_a_thousand_members_that_come_by_pending_ids_are_each_looked_at_a_few_times() -> None:
    table = Table(config=LARGE)
    ids = [table.answer(table.join(version=4)).member_id for _ in range(SIZE)]
    seen = counted(table.group())
    for member_id in ids:
        table.join(member_id=member_id, version=4, session_ms=LONG_MS, rebalance_ms=LONG_MS)
    table.move(LONG_MS // 2)
    assert table.state() == "CompletingRebalance"
    assert seen.looked_at <= 8 * SIZE


def test_a_thousand_members_that_sync_are_each_looked_at_a_few_times() -> None:
    table, members = large_group()
    seen = counted(table.group())
    table.sync_all(members)
    assert table.state() == "Stable"
    assert seen.looked_at <= 8 * SIZE


def test_a_thousand_members_that_join_again_are_each_looked_at_a_few_times() -> None:
    table, members = large_group()
    table.sync_all(members)
    seen = counted(table.group())
    tokens = [table.join(member_id=member.member_id, session_ms=LONG_MS, rebalance_ms=LONG_MS) for member in members]
    assert all(table.joined(token).generation_id == 2 for token in tokens)
    assert seen.looked_at <= 10 * SIZE


def test_heartbeats_and_commits_of_a_thousand_members_look_at_nobody_else() -> None:
    table, members = large_group()
    table.sync_all(members)
    seen = counted(table.group())
    for member in members:
        assert table.heartbeat(member) == 0
    for member in members[:100]:
        assert table.commit({("t", 0): 1}, member) == [0]
    assert seen.looked_at == 0


def test_a_thousand_members_that_leave_are_each_looked_at_a_few_times() -> None:
    table, members = large_group()
    table.sync_all(members)
    seen = counted(table.group())
    for member in members:
        assert table.leave_one(member.member_id) == 0
    assert table.state() == "Empty"
    assert seen.looked_at <= 8 * SIZE


def test_a_thousand_static_members_that_restart_during_a_rebalance_are_each_looked_at_a_few_times() -> None:
    table = Table(config=LARGE)
    for number in range(SIZE):
        table.join(instance_id=f"i{number}", session_ms=LONG_MS, rebalance_ms=LONG_MS)
    seen = counted(table.group())
    tokens = [table.join(instance_id=f"i{number}", session_ms=LONG_MS, rebalance_ms=LONG_MS) for number in range(SIZE)]
    table.move(LONG_MS)
    assert all(table.answer(token).error_code == 0 for token in tokens)
    assert seen.looked_at <= 8 * SIZE


def test_the_work_of_a_join_grows_with_the_group_and_not_faster() -> None:
    work = []
    for size in (100, 400):
        table = Table(config=LARGE)
        table.join(session_ms=LONG_MS, rebalance_ms=LONG_MS)
        seen = counted(table.group())
        for _ in range(size - 1):
            table.join(session_ms=LONG_MS, rebalance_ms=LONG_MS)
        table.move(LONG_MS)
        work.append(seen.looked_at / size)
    assert work[1] <= work[0] * 1.1
