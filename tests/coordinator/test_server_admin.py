"""Looking at groups, and deleting them and their offsets."""

from __future__ import annotations

import pytest

from bridge.coordinator.behaviour import behaviour_of
from tests.coordinator.server_harness import RANGE, REBALANCE_MS, SESSION_MS, Table
from zkconsumer.wire.consumer_protocol import Subscription, encode_subscription
from zkconsumer.wire.schemas.leave_group import LeavingMember

# --- looking ---------------------------------------------------------------------------------------------------------


def listed(table: Table, *states: str) -> dict[str, tuple[str, str]]:
    answer = table.list_groups(*states)
    assert answer.error_code == 0
    return {row.group_id: (row.protocol_type, row.group_state) for row in answer.groups}


def test_stable_groups_are_listed() -> None:
    table = Table()
    table.stable()
    assert listed(table) == {"g": ("consumer", "Stable")}


def test_groups_that_rebalance_are_listed() -> None:
    table = Table()
    table.rebalanced()
    assert listed(table) == {"g": ("consumer", "CompletingRebalance")}


def test_groups_that_only_store_offsets_are_listed_without_a_type() -> None:
    table = Table()
    table.commit({("t", 0): 1})
    assert listed(table) == {"g": ("", "Empty")}


def test_groups_are_listed_by_state() -> None:
    table = Table()
    table.stable()
    table.rebalanced(group="h")
    assert set(listed(table)) == {"g", "h"}
    assert set(listed(table, "Stable")) == {"g"}
    assert set(listed(table, "stable", "completingrebalance")) == {"g", "h"}
    assert listed(table, "PreparingRebalance") == {}
    assert listed(table, "nonsense") == {}


def test_groups_are_listed_by_type_and_all_are_of_one() -> None:
    table = Table()
    table.stable()
    assert [row.group_type for row in table.list_groups(types=("Classic", "consumer")).groups] == ["classic"]
    assert table.list_groups(types=("consumer",)).groups == []


def test_an_unknown_group_is_dead() -> None:
    described = Table().describe()
    assert (described.error_code, described.group_state, described.members) == (0, "Dead", [])


def test_a_stable_group_is_described_with_its_members_metadata_and_parts() -> None:
    table = Table()
    leader, follower = table.stable(2)
    described = table.describe()
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    assert [(row.member_id, row.group_instance_id, row.member_assignment) for row in described.members] == [
        (leader.member_id, None, leader.member_id.encode()),
        (follower.member_id, None, follower.member_id.encode()),
    ]
    assert {row.member_metadata for row in described.members} == {RANGE[0][1]}
    assert {(row.client_id, row.client_host) for row in described.members} == {("client", "/127.0.0.1")}


def test_a_stable_group_is_described_with_its_static_members() -> None:
    table = Table()
    table.join(instance_id="i")
    table.move(100)
    table.sync_all([table.joined(1, "i")])
    (row,) = table.describe().members
    assert row.group_instance_id == "i"


def test_a_group_that_rebalances_is_described_without_metadata_and_parts() -> None:
    table = Table()
    (leader,) = table.rebalanced()
    described = table.describe()
    assert (described.group_state, described.protocol_data) == ("CompletingRebalance", "")
    assert [(row.member_id, row.member_metadata, row.member_assignment) for row in described.members] == [
        (leader.member_id, b"", b"")
    ]
    table.join()
    assert table.describe().group_state == "PreparingRebalance"


# --- deleting groups -------------------------------------------------------------------------------------------------


def empty(table: Table, group: str = "g") -> None:
    """A group that has had a member, and has none."""
    (member,) = table.stable(group=group)
    assert table.leave_one(member.member_id, group) == 0


def test_a_group_with_members_is_not_deleted() -> None:
    table = Table()
    table.stable()
    table.rebalanced(group="h")
    assert table.delete("g", "h") == {"g": 68, "h": 68}
    assert table.state() == "Stable"


def test_a_group_that_there_is_not_is_not_deleted() -> None:
    assert Table().delete("g", "g", "h") == {"g": 69, "h": 69}


def test_an_empty_group_is_deleted() -> None:
    table = Table()
    empty(table)
    assert table.delete("g", "other") == {"g": 0, "other": 69}
    assert table.state() == "Dead"
    assert table.restart().state() == "Dead"


def test_an_empty_group_is_deleted_with_its_offsets() -> None:
    table = Table()
    empty(table)
    assert table.commit({("t", 0): 1}) == [0]
    assert table.delete("g") == {"g": 0}
    for at in (table, table.restart()):
        assert (at.describe().group_state, at.fetch([("t", 0)])) == ("Dead", {("t", 0): (-1, "", 0)})


def test_a_group_that_was_deleted_may_come_again_from_the_beginning() -> None:
    table = Table()
    empty(table)
    table.commit({("t", 0): 1})
    table.delete("g")
    assert [member.generation_id for member in table.stable()] == [1]
    assert table.fetch() == {}


def test_a_group_is_deleted_when_the_log_says_so_and_dead_until_then() -> None:
    table = Table()
    empty(table)
    table.commit({("t", 0): 1})
    table.holds_appends = True
    token = table.send_delete("g", "other")
    assert not table.is_answered(token)
    assert table.describe().group_state == "Dead"
    assert listed(table) == {}
    assert table.fetch([("t", 0)]) == {("t", 0): (-1, "", 0)}
    assert table.answer(table.join()).error_code == 15
    assert table.commit({("t", 0): 2}) == [15]
    assert table.delete("g") == {"g": 69}
    table.settle()
    assert {row.group_id: row.error_code for row in table.answer(token).results} == {"g": 0, "other": 69}
    table.holds_appends = False
    assert table.commit({("t", 0): 2}) == [0]


@pytest.mark.parametrize(("append_error", "told"), [(19, 15), (6, 16), (10, -1)])
def test_a_group_whose_end_the_log_refuses_is_there_again(append_error: int, told: int) -> None:
    table = Table()
    empty(table)
    table.commit({("t", 0): 1})
    table.holds_appends = True
    token = table.send_delete("g")
    table.settle(append_error)
    assert [row.error_code for row in table.answer(token).results] == [told]
    assert (table.state(), table.fetch()) == ("Empty", {("t", 0): (1, "", 0)})
    table.holds_appends = False
    assert [member.generation_id for member in table.stable()] == [3]


def test_several_groups_are_answered_when_the_last_is_settled() -> None:
    table = Table()
    for group in ("g", "h"):
        empty(table, group)
    table.holds_appends = True
    token = table.send_delete("g", "h")
    table.settle()
    assert not table.is_answered(token)
    table.settle(19)
    assert {row.group_id: row.error_code for row in table.answer(token).results} == {"g": 0, "h": 15}


def test_an_offset_that_is_under_way_when_its_group_is_deleted_does_not_survive_it() -> None:
    table = Table(holds_appends=True)
    commit = table.send_commit({("t", 0): 1})
    table.send_delete("g")
    table.settle()
    assert [row.error_code for topic in table.answer(commit).topics for row in topic.partitions] == [0]
    table.settle()
    table.holds_appends = False
    for at in (table, table.restart()):
        assert at.fetch([("t", 0)]) == {("t", 0): (-1, "", 0)}


@pytest.mark.parametrize("append_error", [0, 19])
def test_what_was_under_way_before_its_end_does_not_end_a_group_nor_bring_it_back(append_error: int) -> None:
    table = Table()
    table.commit({("t", 0): 1})
    table.holds_appends = True
    table.send_commit({("t", 1): 2})
    token = table.send_delete("g")
    table.settle(append_error)
    assert table.answer(table.join()).error_code == 15
    assert not table.is_answered(token)
    table.settle()
    table.holds_appends = False
    for at in (table, table.restart()):
        assert (at.state(), at.fetch()) == ("Dead", {})


def test_a_new_group_that_is_deleted_before_the_log_has_it_gets_its_tombstone() -> None:
    table = Table(behaviour_of("4.1.1"), holds_appends=True)
    table.join(version=4)
    token = table.send_delete("g")
    table.settle()
    assert not table.is_answered(token)
    table.settle()
    assert [row.error_code for row in table.answer(token).results] == [0]
    assert table.restart().state() == "Dead"


def test_a_group_that_comes_back_with_members_since_the_log_refused_its_end_waits_for_them() -> None:
    table = Table(behaviour_of("3.9.1"))
    (member,) = table.stable()
    table.holds_appends = True
    table.leave_one(member.member_id)
    table.send_delete("g")
    table.settle(19)
    table.settle(19)
    # The log knows the group with its member: so does the next coordinator, and so do we.
    assert (table.state(), table.restart().state()) == ("Stable", "Stable")
    table.move(SESSION_MS)
    table.settle()
    assert table.state() == "Empty"


def test_pending_members_of_a_group_that_is_deleted_are_forgotten() -> None:
    table = Table()
    member_id = table.answer(table.join(version=4)).member_id
    assert table.delete("g") == {"g": 0}
    assert [key for key in table.timers if key[0] == "heartbeat"] == []
    assert table.answer(table.join(member_id=member_id, version=4)).error_code == 25


# --- deleting offsets ------------------------------------------------------------------------------------------------


def subscribed(*topics: str) -> tuple[tuple[str, bytes], ...]:
    return (("range", encode_subscription(Subscription(topics))),)


def test_offsets_of_a_group_that_there_is_not_are_not_deleted() -> None:
    assert Table().delete_offsets([("t", 0)]) == (69, [])


def test_offsets_of_members_that_are_no_consumers_are_not_deleted() -> None:
    table = Table()
    table.stable(protocol_type="connect")
    assert table.delete_offsets([("t", 0)]) == (68, [])


def test_offsets_of_others_than_consumers_are_deleted_once_nobody_is_in_the_group() -> None:
    table = Table()
    (member,) = table.stable(protocol_type="connect")
    table.commit({("t", 0): 1, ("t", 1): 2}, member)
    table.leave_one(member.member_id)
    assert table.delete_offsets([("t", 0)]) == (0, [0])
    assert table.fetch() == {("t", 1): (2, "", 0)}


def test_offsets_of_consumers_that_do_not_say_what_they_read_are_not_deleted() -> None:
    table = Table()
    (member,) = table.stable(protocols=(("range", b""),))
    table.commit({("t", 0): 1}, member)
    assert table.delete_offsets([("t", 0)]) == (0, [86])
    assert table.fetch() == {("t", 0): (1, "", 0)}


def test_offsets_of_a_group_that_is_being_deleted_are_not_deleted() -> None:
    table = Table()
    empty(table)
    table.holds_appends = True
    table.send_delete("g")
    assert table.delete_offsets([("t", 0)]) == (69, [])


def test_offsets_of_an_empty_group_are_deleted_and_with_the_last_the_group() -> None:
    table = Table()
    (member,) = table.stable()
    table.commit({("t", 0): 1, ("t", 1): 2}, member)
    table.leave_one(member.member_id)
    assert table.delete_offsets([("t", 0), ("u", 9)]) == (0, [0, 0])
    assert table.fetch() == {("t", 1): (2, "", 0)}
    assert table.state() == "Empty"
    assert table.delete_offsets([("t", 1)]) == (0, [0])
    for at in (table, table.restart()):
        assert at.state() == "Dead"


def test_offsets_of_topics_that_nobody_reads_are_deleted_beside_members() -> None:
    table = Table()
    (member,) = table.stable(protocols=subscribed("read"))
    table.commit({("read", 0): 1, ("other", 0): 2}, member)
    assert table.delete_offsets([("read", 0), ("other", 0)]) == (0, [86, 0])
    for at in (table, table.restart()):
        assert at.fetch() == {("read", 0): (1, "", 0)}
        assert at.state() == "Stable"


@pytest.mark.parametrize(("append_error", "told"), [(19, 15), (6, 16), (7, 7)])
def test_offsets_whose_end_the_log_refuses_are_kept(append_error: int, told: int) -> None:
    table = Table()
    (member,) = table.stable(protocols=subscribed("read"))
    table.commit({("other", 0): 2}, member)
    table.holds_appends = True
    token = table.send_delete_offsets([("other", 0), ("read", 0)])
    assert not table.is_answered(token)
    table.settle(append_error)
    assert [row.error_code for topic in table.answer(token).topics for row in topic.partitions] == [told, 86]
    assert table.fetch() == {("other", 0): (2, "", 0)}


def test_an_offset_that_is_committed_again_after_it_was_deleted_stays() -> None:
    table = Table()
    table.commit({("t", 0): 1, ("t", 1): 1})
    table.holds_appends = True
    table.send_delete_offsets([("t", 0)])
    table.send_commit({("t", 0): 2})
    table.settle()
    assert table.fetch() == {("t", 1): (1, "", 0)}
    table.settle()
    table.holds_appends = False
    for at in (table, table.restart()):
        assert at.fetch() == {("t", 0): (2, "", 0), ("t", 1): (1, "", 0)}


def test_deleting_what_is_not_there_writes_nothing() -> None:
    table = Table()
    table.commit({("t", 0): 1})
    written = len(table.written)
    assert table.delete_offsets([("u", 0)]) == (0, [0])
    assert len(table.written) == written


def test_the_time_of_a_rebalance_does_not_matter_to_a_group_that_is_described() -> None:
    table = Table()
    table.stable()
    table.move(2 * REBALANCE_MS)
    described = table.describe()
    assert (described.group_state, described.protocol_type, described.members) == ("Empty", "consumer", [])


def test_who_leaves_a_group_that_is_being_deleted_is_told_so_once_for_all() -> None:
    table = Table()
    assert table.commit({("t", 0): 1}) == [0]
    table.holds_appends = True
    table.send_delete("g")
    answer = table.leave(LeavingMember(member_id="a"), LeavingMember(member_id="b"))
    assert (answer.error_code, answer.members) == (15, [])
