"""From joined to stable: the leader's assignment, and everybody's part of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.coordinator.server_harness import REBALANCE_MS, SESSION_MS, Member, Table

LONG_MS = 5_000
OTHER = (("range", b"other"),)


def error(table: Table, token: int) -> int:
    return int(table.answer(token).error_code)


def test_a_sync_of_an_unknown_group_is_refused() -> None:
    table = Table()
    assert error(table, table.sync(Member("m", 1, ""))) == 25


def test_a_sync_of_an_unknown_member_is_refused() -> None:
    table = Table()
    table.stable()
    assert error(table, table.sync(Member("m", 1, ""))) == 25


def test_a_sync_of_another_generation_is_refused() -> None:
    table = Table()
    (member,) = table.rebalanced()
    assert error(table, table.sync(replace(member, generation_id=2))) == 22


def test_a_sync_in_an_empty_group_is_refused() -> None:
    table = Table()
    (member,) = table.stable()
    table.leave_one(member.member_id)
    assert error(table, table.sync(member)) == 25


def test_a_sync_while_members_join_is_asked_to_join_too() -> None:
    table = Table()
    (member,) = table.stable()
    table.join()
    assert error(table, table.sync(member)) == 27


def test_a_leader_that_assigns_nothing_gives_everybody_nothing() -> None:
    table = Table()
    (leader,) = table.rebalanced()
    answer = table.answer(table.sync(leader, {}))
    assert (answer.error_code, answer.assignment) == (0, b"")
    assert table.state() == "Stable"
    assert [note.name for note in table.notes if note.name == "members-without-assignment"] == [
        "members-without-assignment"
    ]


def test_a_follower_that_syncs_after_its_leader_is_answered_at_once() -> None:
    table = Table()
    leader, follower = table.rebalanced(2)
    table.sync(leader, {leader.member_id: b"1", follower.member_id: b"2"})
    answer = table.answer(table.sync(follower))
    assert (answer.error_code, answer.assignment) == (0, b"2")
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")


def test_a_follower_that_syncs_before_its_leader_is_answered_with_it() -> None:
    table = Table()
    leader, follower = table.rebalanced(2)
    token = table.sync(follower)
    assert not table.is_answered(token)
    first = table.sync(leader, {leader.member_id: b"1", follower.member_id: b"2"})
    assert (table.answer(first).assignment, table.answer(token).assignment) == (b"1", b"2")


def test_an_assignment_for_somebody_who_is_no_member_is_not_kept() -> None:
    table = Table()
    (leader,) = table.rebalanced()
    table.sync(leader, {leader.member_id: b"1", "nobody": b"2"})
    assert table.group().stored.group is not None
    assert [member.member_id for member in table.group().stored.group.members] == [leader.member_id]


def test_nobody_has_its_part_before_the_log_has_it() -> None:
    table = Table()
    leader, follower = table.rebalanced(2)
    table.holds_appends = True
    tokens = [table.sync(follower), table.sync(leader, {follower.member_id: b"2"})]
    assert table.state() == "CompletingRebalance"
    assert not any(table.is_answered(token) for token in tokens)
    table.settle()
    assert table.state() == "Stable"
    assert [table.answer(token).assignment for token in tokens] == [b"2", b""]


@pytest.mark.parametrize(
    ("append_error", "told"), [(3, 15), (19, 15), (20, 15), (6, 16), (56, 16), (7, 27), (10, -1), (18, -1), (4, -1)]
)
def test_an_assignment_that_the_log_refuses_makes_the_group_rebalance(append_error: int, told: int) -> None:
    table = Table()
    leader, follower = table.rebalanced(2)
    table.holds_appends = True
    tokens = [table.sync(follower), table.sync(leader, {follower.member_id: b"2"})]
    table.settle(append_error)
    answers = [table.answer(token) for token in tokens]
    assert [(answer.error_code, answer.assignment) for answer in answers] == [(told, b"")] * 2
    assert [(answer.protocol_type, answer.protocol_name) for answer in answers] == [(None, None)] * 2
    assert table.state() == "PreparingRebalance"
    again = [table.join(member_id=member.member_id) for member in (leader, follower)]
    assert [table.joined(token).generation_id for token in again] == [2, 2]


def test_an_assignment_that_the_group_has_gone_beyond_is_not_delivered() -> None:
    table = Table()
    leader, follower = table.rebalanced(2)
    table.holds_appends = True
    token = table.sync(leader, {follower.member_id: b"2"})
    table.join()
    assert error(table, token) == 27
    table.settle()
    assert table.state() == "PreparingRebalance"
    assert table.group().get(follower.member_id).assignment == b""


def test_an_assignment_of_the_generation_before_is_not_delivered_to_the_next() -> None:
    table = Table()
    leader, follower = table.rebalanced(2)
    table.holds_appends = True
    table.sync(leader, {follower.member_id: b"old"})
    again = [table.join(member_id=member.member_id, protocols=OTHER) for member in (leader, follower)]
    members = [table.joined(token) for token in again]
    assert [member.generation_id for member in members] == [2, 2]
    parked = table.sync(members[1])
    table.settle()
    assert (table.state(), table.is_answered(parked)) == ("CompletingRebalance", False)
    table.sync(members[0], {follower.member_id: b"new"})
    table.settle()
    assert table.answer(parked).assignment == b"new"


def test_a_leader_that_syncs_again_before_the_log_has_its_assignment_does_not_write_another() -> None:
    table = Table()
    (leader,) = table.rebalanced()
    table.holds_appends = True
    first = table.sync(leader, {leader.member_id: b"1"})
    second = table.sync(leader, {leader.member_id: b"2"})
    assert error(table, first) == 25
    assert len(table.appends) == 1
    table.settle()
    assert table.answer(second).assignment == b"1"
    table.holds_appends = False
    assert table.restart().group().get(leader.member_id).assignment == b"1"


def test_followers_are_asked_to_join_again_when_their_leader_is_lost() -> None:
    table = Table()
    leader, follower = table.rebalanced(2, rebalance_ms=LONG_MS)
    token = table.sync(follower)
    table.move(SESSION_MS)
    assert error(table, token) == 27
    assert not table.group().has(leader.member_id)
    assert table.joined(table.join(member_id=follower.member_id)).leader_id == follower.member_id


# --- the protocol is named -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["CompletingRebalance", "Stable"])
def test_another_protocol_type_is_refused(state: str) -> None:
    table = Table()
    (leader,) = table.rebalanced()
    if state == "Stable":
        table.sync_all([leader])
    assert error(table, table.sync(leader, protocol_type="other", protocol_name="range", version=5)) == 23


@pytest.mark.parametrize("state", ["CompletingRebalance", "Stable"])
def test_another_protocol_name_is_refused(state: str) -> None:
    table = Table()
    (leader,) = table.rebalanced()
    if state == "Stable":
        table.sync_all([leader])
    assert error(table, table.sync(leader, protocol_type="consumer", protocol_name="other", version=5)) == 23


def test_old_versions_name_no_protocol() -> None:
    table = Table()
    (leader,) = table.rebalanced()
    answer = table.answer(table.sync(leader, {}, version=4))
    assert (answer.error_code, answer.protocol_type, answer.protocol_name) == (0, "consumer", "range")


def test_the_right_protocol_is_well() -> None:
    table = Table()
    (leader,) = table.rebalanced()
    answer = table.answer(table.sync(leader, {}, protocol_type="consumer", protocol_name="range", version=5))
    assert (answer.error_code, answer.protocol_type, answer.protocol_name) == (0, "consumer", "range")


@pytest.mark.parametrize(("protocol_type", "protocol_name"), [(None, "range"), ("consumer", None), (None, None)])
def test_from_version_5_on_a_sync_without_its_protocol_is_refused(
    protocol_type: str | None, protocol_name: str | None
) -> None:
    table = Table()
    (leader,) = table.rebalanced()
    token = table.sync(leader, {}, protocol_type=protocol_type, protocol_name=protocol_name, version=5)
    assert error(table, token) == 23


# --- those that do not sync ------------------------------------------------------------------------------------------


def beat(table: Table, members: list[Member], for_ms: int) -> None:
    """Let time pass, and these members heartbeat all the while."""
    for _ in range(0, for_ms, 100):
        table.move(100)
        for member in members:
            table.heartbeat(member)


def test_when_nobody_syncs_in_time_all_are_dropped() -> None:
    table = Table()
    members = table.rebalanced(2)
    beat(table, members, REBALANCE_MS)
    assert (table.state(), table.group().size) == ("Empty", 0)


def test_followers_that_do_not_sync_in_time_are_dropped() -> None:
    table = Table()
    leader, follower = table.rebalanced(2)
    table.sync(leader, {})
    beat(table, [leader, follower], REBALANCE_MS)
    assert table.state() == "PreparingRebalance"
    assert list(table.group().members) == [leader.member_id]


def test_a_leader_that_does_not_sync_in_time_is_dropped() -> None:
    table = Table()
    leader, follower = table.rebalanced(2)
    token = table.sync(follower)
    beat(table, [leader], REBALANCE_MS)
    assert error(table, token) == 27
    assert list(table.group().members) == [follower.member_id]
    assert table.heartbeat(leader) == 25


def test_when_all_have_synced_nobody_is_dropped() -> None:
    table = Table()
    members = table.stable(2)
    assert ("sync", "g") not in table.timers
    beat(table, members, 2 * REBALANCE_MS)
    assert table.state() == "Stable"


def test_a_rebalance_that_begins_anew_waits_for_no_syncs_of_the_one_before() -> None:
    table = Table()
    leader, follower = table.rebalanced(2)
    table.join()
    assert ("sync", "g") not in table.timers
    assert table.group().pending_sync_members == {}
    assert table.heartbeat(leader) == table.heartbeat(follower) == 27


def test_who_syncs_when_the_group_is_stable_already_is_not_waited_for_any_more() -> None:
    table = Table()
    leader, follower = table.rebalanced(2, session_ms=LONG_MS)
    assert error(table, table.sync(leader, {leader.member_id: b"l", follower.member_id: b"f"})) == 0
    assert ("sync", "g") in table.timers
    assert table.answer(table.sync(follower)).assignment == b"f"
    assert ("sync", "g") not in table.timers
    table.move(REBALANCE_MS)
    assert table.heartbeat(follower) == 0
