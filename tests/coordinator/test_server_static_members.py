"""Static members: they restart and keep their place, and what they were before is fenced."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.coordinator.server_harness import DELAY_MS, REBALANCE_MS, SESSION_MS, Member, Table

BOTH = (("range", b"1"), ("roundrobin", b"2"))
TURNED = (("roundrobin", b"2"), ("range", b"1"))
LONG_MS = 10_000
NAMES = ("leader", "follower", "third")


def static_group(table: Table, **words: Any) -> tuple[Member, Member]:
    """A stable group of the leader ``leader`` and the follower ``follower``."""
    tokens = [table.join(instance_id=name, protocols=BOTH, **words) for name in ("leader", "follower")]
    table.move(3 * DELAY_MS)
    leader, follower = (table.joined(token, name) for token, name in zip(tokens, ("leader", "follower"), strict=True))
    assert leader.is_leader
    table.sync_all([leader, follower])
    return leader, follower


def rejoin(table: Table, instance: str, member_id: str = "", **words: Any) -> int:
    return table.join(member_id=member_id, instance_id=instance, **{"protocols": BOTH, **words})


def error(table: Table, token: int) -> int:
    return int(table.answer(token).error_code)


# --- the first life --------------------------------------------------------------------------------------------------


def test_a_static_member_is_a_member_without_the_detour_of_an_id() -> None:
    table = Table()
    token = table.join(instance_id="i", version=5)
    table.move(DELAY_MS)
    answer = table.answer(token)
    assert answer.error_code == 0
    assert answer.member_id.startswith("i-")
    assert answer.members[0].group_instance_id == "i"


def test_a_member_id_that_the_instance_does_not_have_is_fenced() -> None:
    table = Table()
    static_group(table)
    assert error(table, rejoin(table, "leader", "wrong")) == 82


def test_an_instance_that_is_not_known_has_no_member_id() -> None:
    table = Table()
    leader, _ = static_group(table)
    assert error(table, rejoin(table, "nobody", leader.member_id)) == 25


# --- fencing ---------------------------------------------------------------------------------------------------------


def test_the_join_that_the_old_self_of_a_follower_had_parked_is_fenced_at_once() -> None:
    table = Table()
    leader, follower = static_group(table)
    rejoin(table, "leader", leader.member_id)
    old = rejoin(table, "follower", follower.member_id, protocols=TURNED)
    # Both have joined: the rebalance is over.  Another one, in which the old self waits.
    assert error(table, old) == 0
    table.join(protocols=BOTH)
    parked = rejoin(table, "follower", follower.member_id)
    new = rejoin(table, "follower")
    assert error(table, parked) == 82
    assert table.answer(parked).member_id == follower.member_id
    again = rejoin(table, "leader", leader.member_id)
    assert table.joined(new, "follower").generation_id == table.joined(again, "leader").generation_id == 3


def test_the_sync_that_the_old_self_of_a_follower_had_parked_is_fenced_at_once() -> None:
    table = Table()
    leader, follower = static_group(table)
    again = rejoin(table, "leader", leader.member_id)
    rejoin(table, "follower", follower.member_id)
    assert table.joined(again).generation_id == 2
    parked = table.sync(replace(follower, generation_id=2))
    new = rejoin(table, "follower")
    assert table.answer(parked).error_code == 82
    assert table.state() == "PreparingRebalance"
    assert not table.is_answered(new)
    assert table.heartbeat(replace(follower, generation_id=2)) == 82


def test_the_old_self_that_joins_after_the_new_one_is_fenced() -> None:
    table = Table()
    leader, follower = static_group(table)
    rejoin(table, "leader", leader.member_id)
    new = rejoin(table, "follower")
    assert error(table, rejoin(table, "follower", follower.member_id)) == 82
    assert table.joined(new).generation_id == 2


def test_a_fenced_self_can_do_nothing() -> None:
    table = Table()
    leader, _ = static_group(table)
    table.joined(rejoin(table, "leader"), "leader")
    assert table.heartbeat(leader) == 82
    assert table.answer(table.sync(leader)).error_code == 82
    assert table.commit({("t", 0): 1}, leader) == [82]
    assert error(table, rejoin(table, "leader", leader.member_id)) == 82


@pytest.mark.parametrize("what", ["sync", "heartbeat", "commit"])
def test_who_names_an_instance_with_another_member_id_is_fenced(what: str) -> None:
    table = Table()
    leader, _ = static_group(table)
    wrong = replace(leader, member_id="wrong")
    found = {
        "sync": lambda: table.answer(table.sync(wrong)).error_code,
        "heartbeat": lambda: table.heartbeat(wrong),
        "commit": lambda: table.commit({("t", 0): 1}, wrong)[0],
    }[what]()
    assert found == 82


def test_each_rejoin_gives_another_member_id() -> None:
    table = Table()
    static_group(table)
    ids = {table.joined(rejoin(table, "leader")).member_id for _ in range(5)}
    assert len(ids) == 5


# --- coming back in a stable group -----------------------------------------------------------------------------------


def test_a_static_member_that_joins_with_its_own_id_is_a_member_like_others() -> None:
    table = Table()
    token = table.join(instance_id="i")
    table.move(DELAY_MS)
    member = table.joined(token, "i")
    again = rejoin(table, "i", member.member_id, protocols=())
    assert error(table, again) == 23
    again = table.join(member_id=member.member_id, instance_id="i")
    answer = table.answer(again)
    assert (answer.error_code, answer.member_id, answer.generation_id) == (0, member.member_id, 1)


def test_a_leader_that_comes_back_without_its_id_keeps_its_generation() -> None:
    table = Table()
    leader, follower = static_group(table)
    answer = table.answer(rejoin(table, "leader", version=8))
    assert (answer.error_code, answer.generation_id) == (0, 1)
    assert answer.member_id != leader.member_id
    # It must not assign: a client before version 9 is told that its old self leads.
    assert (answer.leader, answer.members, answer.skip_assignment) == (leader.member_id, [], False)
    assert table.state() == "Stable"
    again = Member(answer.member_id, 1, answer.leader, "leader")
    assert table.answer(table.sync(again)).assignment == leader.member_id.encode()
    assert table.heartbeat(follower) == 0
    assert table.group().leader_id == answer.member_id


def test_a_leader_that_comes_back_can_be_told_to_leave_the_assignment_alone() -> None:
    table = Table()
    static_group(table)
    answer = table.answer(rejoin(table, "leader", version=9))
    assert (answer.leader, answer.skip_assignment) == (answer.member_id, True)
    assert {member.group_instance_id for member in answer.members} == {"leader", "follower"}
    follower = table.answer(rejoin(table, "follower", version=9))
    assert (follower.leader, follower.skip_assignment, follower.members) == (answer.member_id, False, [])


def test_a_follower_that_comes_back_without_its_id_keeps_its_generation_and_its_part() -> None:
    table = Table()
    leader, follower = static_group(table)
    answer = table.answer(rejoin(table, "follower"))
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, leader.member_id)
    again = Member(answer.member_id, 1, answer.leader, "follower")
    assert table.answer(table.sync(again)).assignment == follower.member_id.encode()
    assert table.state() == "Stable"


def test_a_member_id_that_changed_in_a_stable_group_is_in_the_log() -> None:
    table = Table()
    static_group(table)
    again = table.joined(rejoin(table, "follower"), "follower")
    other = table.restart()
    assert other.heartbeat(again) == 0


def test_a_leader_that_joins_again_with_its_id_makes_the_group_rebalance() -> None:
    table = Table()
    leader, follower = static_group(table)
    again = rejoin(table, "leader", leader.member_id)
    assert table.state() == "PreparingRebalance"
    assert not table.is_answered(again)
    table.move(REBALANCE_MS)
    assert table.joined(again).generation_id == 2
    # The follower is static: its place is kept until its session is over.
    assert table.heartbeat(follower) in (22, 25)


def test_a_static_member_of_a_group_that_is_being_deleted_asks_again_later() -> None:
    table = Table()
    leader, follower = static_group(table)
    for member in (leader, follower):
        assert table.leave_one(member.member_id) == 0
    table.move(REBALANCE_MS)
    table.holds_appends = True
    table.send_delete("g")
    assert error(table, rejoin(table, "leader", leader.member_id)) == 15
    assert error(table, rejoin(table, "leader")) == 15


def test_a_static_member_of_a_group_that_was_emptied_is_not_known() -> None:
    table = Table()
    leader, _ = static_group(table)
    table.move(SESSION_MS + REBALANCE_MS)
    assert table.state() == "Empty"
    assert error(table, rejoin(table, "leader", leader.member_id)) == 25


def test_a_static_id_in_an_empty_group_is_a_state_that_cannot_be() -> None:
    table = Table()
    static_group(table)
    group = table.group()
    group.state = type(group.state)("Empty")
    answer = table.answer(rejoin(table, "leader"))
    assert (answer.error_code, answer.member_id) == (-1, "")
    assert table.notes[-1].name == "illegal-state"


def test_a_follower_that_comes_back_with_its_id_and_other_metadata_makes_the_group_rebalance() -> None:
    table = Table()
    leader, follower = static_group(table)
    again = rejoin(table, "follower", follower.member_id, protocols=TURNED)
    assert not table.is_answered(again)
    leads = rejoin(table, "leader", leader.member_id)
    assert table.joined(again).generation_id == table.joined(leads).generation_id == 2


def test_a_follower_that_comes_back_and_changes_the_group_s_choice_makes_it_rebalance() -> None:
    table = Table()
    tokens = [
        table.join(instance_id="leader", protocols=BOTH),
        table.join(instance_id="second", protocols=BOTH),
        table.join(instance_id="third", protocols=TURNED),
    ]
    table.move(4 * DELAY_MS)
    names = ("leader", "second", "third")
    members = [table.joined(token, name) for token, name in zip(tokens, names, strict=True)]
    table.sync_all(members)
    assert table.group().protocol_name == "range"
    again = rejoin(table, "second", protocols=TURNED)
    assert table.state() == "PreparingRebalance"
    assert not table.is_answered(again)
    rejoin(table, "leader", members[0].member_id)
    rejoin(table, "third", members[2].member_id, protocols=TURNED)
    answer = table.answer(again)
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 2, "roundrobin")
    assert table.heartbeat(replace(members[1], generation_id=2)) == 82


def test_a_follower_that_comes_back_and_does_not_change_the_group_s_choice_keeps_its_generation() -> None:
    table = Table()
    leader, _ = static_group(table)
    answer = table.answer(rejoin(table, "follower", protocols=(BOTH[0],)))
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 1, "range")
    assert table.heartbeat(leader) == 0
    assert table.group().get(answer.member_id).supported_protocols == (BOTH[0],)


def test_a_change_that_could_not_be_written_is_undone() -> None:
    table = Table()
    _, follower = static_group(table)
    table.holds_appends = True
    token = rejoin(table, "follower", protocols=(BOTH[0],), session_ms=LONG_MS, rebalance_ms=LONG_MS)
    assert not table.is_answered(token)
    table.settle(10)
    answer = table.answer(token)
    assert (answer.error_code, answer.member_id) == (-1, "")
    member = table.group().get(follower.member_id)
    assert (member.supported_protocols, member.session_timeout_ms, member.rebalance_timeout_ms) == (
        BOTH,
        SESSION_MS,
        REBALANCE_MS,
    )
    assert table.heartbeat(follower) == 0
    assert table.group().num_members_awaiting_join == 0
    # And the group counts its protocols as before: another member with the second alone may join.
    assert not table.is_answered(table.join(protocols=(BOTH[1],)))


@pytest.mark.parametrize(("append_error", "told"), [(3, 15), (19, 15), (6, 16), (7, 27), (10, -1)])
def test_a_change_that_could_not_be_written_is_answered_as_the_log_refused_it(append_error: int, told: int) -> None:
    table = Table()
    static_group(table)
    table.holds_appends = True
    token = rejoin(table, "follower")
    table.settle(append_error)
    assert error(table, token) == told


def test_new_timeouts_of_a_static_member_are_written() -> None:
    table = Table()
    _, _ = static_group(table)
    again = table.joined(rejoin(table, "follower", session_ms=LONG_MS, rebalance_ms=2 * LONG_MS), "follower")
    for at in (table, table.restart()):
        member = at.group().get(again.member_id)
        assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (LONG_MS, 2 * LONG_MS)


def test_a_leader_with_its_id_and_a_follower_with_other_metadata_meet_in_the_next_generation() -> None:
    table = Table()
    leader, follower = static_group(table)
    leads = rejoin(table, "leader", leader.member_id)
    follows = rejoin(table, "follower", follower.member_id, protocols=(BOTH[1],))
    assert table.answer(leads).protocol_name == "roundrobin"
    assert table.joined(follows).leader_id == leader.member_id
    assert table.joined(follows).generation_id == 2


def test_a_follower_that_joins_again_unchanged_with_its_id_is_told_how_things_stand() -> None:
    table = Table()
    leader, follower = static_group(table)
    answer = table.answer(rejoin(table, "follower", follower.member_id))
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, leader.member_id)
    assert table.state() == "Stable"


def test_a_follower_with_the_leader_s_member_id_is_fenced() -> None:
    table = Table()
    leader, follower = static_group(table)
    assert error(table, rejoin(table, "follower", leader.member_id)) == 82
    assert error(table, rejoin(table, "leader", follower.member_id)) == 82


# --- while something else goes on ------------------------------------------------------------------------------------


def test_a_static_member_that_comes_back_twice_before_the_log_has_it_is_answered_once_each() -> None:
    table = Table()
    static_group(table)
    table.holds_appends = True
    first = rejoin(table, "follower")
    second = rejoin(table, "follower")
    assert error(table, first) == 82
    table.settle()
    assert not table.is_answered(second)
    table.settle()
    assert table.joined(second).member_id == "follower-4"


def test_a_static_member_whose_session_ended_before_the_log_had_its_new_id_has_a_new_one() -> None:
    table = Table()
    first = rejoin(table, "leader")
    table.move(DELAY_MS)
    table.sync_all([table.joined(first, "leader")])
    table.holds_appends = True
    token = rejoin(table, "leader")
    table.move(SESSION_MS + 1)
    assert not table.is_answered(token)
    table.settle()
    member_id = table.answer(token).member_id
    assert table.timers["heartbeat", "g", member_id] == table.now_ms + SESSION_MS


def test_a_rebalance_that_begins_before_the_log_has_the_new_id_takes_the_member_with_it() -> None:
    table = Table()
    leader, _ = static_group(table)
    table.holds_appends = True
    token = rejoin(table, "follower")
    leads = rejoin(table, "leader", leader.member_id)
    assert table.joined(token).generation_id == table.joined(leads).generation_id == 2
    table.settle(7)
    assert table.group().has(table.answer(token).member_id)


@pytest.mark.parametrize("append_error", [0, 19])
def test_a_static_member_whose_group_rebalances_meanwhile_is_answered_by_that(append_error: int) -> None:
    table = Table()
    tokens = [table.join(instance_id=name, protocols=BOTH) for name in ("leader", "follower", "third")]
    table.move(4 * DELAY_MS)
    leader, follower, third = (table.joined(token) for token in tokens)
    table.sync_all([replace(one, instance_id=name) for one, name in zip((leader, follower, third), NAMES, strict=True)])
    table.holds_appends = True
    token = rejoin(table, "follower")
    rejoin(table, "leader", leader.member_id)
    table.settle(append_error)
    assert not table.is_answered(token)
    rejoin(table, "third", third.member_id)
    again = table.joined(token)
    assert again.generation_id == 2
    assert again.member_id != follower.member_id
    assert table.group().num_members_awaiting_join == 0


def test_a_static_member_that_comes_back_to_a_group_that_waits_for_its_leader_makes_it_begin_anew() -> None:
    table = Table()
    tokens = [table.join(instance_id=name, protocols=BOTH) for name in ("leader", "follower")]
    table.move(3 * DELAY_MS)
    follower = table.joined(tokens[1], "follower")
    parked = table.sync(follower)
    rejoin(table, "leader")
    assert table.answer(parked).error_code == 27
    assert table.state() == "PreparingRebalance"


# --- those that do not come back -------------------------------------------------------------------------------------


def test_a_static_follower_that_does_not_join_in_time_keeps_its_place() -> None:
    table = Table()
    leader, follower = static_group(table, session_ms=LONG_MS)
    leads = rejoin(table, "leader", leader.member_id, session_ms=LONG_MS)
    table.move(REBALANCE_MS)
    assert table.joined(leads).generation_id == 2
    assert table.group().has(follower.member_id)
    assert {member.member_id for member in table.answer(leads).members} == {leader.member_id, follower.member_id}


def test_a_static_leader_that_does_not_join_in_time_keeps_its_place_and_another_leads() -> None:
    table = Table()
    leader, follower = static_group(table, session_ms=LONG_MS)
    follows = rejoin(table, "follower", follower.member_id, protocols=TURNED, session_ms=LONG_MS)
    table.move(REBALANCE_MS)
    answer = table.answer(follows)
    assert (answer.generation_id, answer.leader) == (2, follower.member_id)
    assert {member.member_id for member in answer.members} == {leader.member_id, follower.member_id}


def stuck_group(table: Table) -> tuple[Member, str]:
    """A static leader with a long session that does not join, while the dynamic member has left."""
    leads = table.join(instance_id="leader", session_ms=LONG_MS)
    other = table.join()
    table.move(3 * DELAY_MS)
    leader, dynamic = table.joined(leads, "leader"), table.joined(other)
    table.sync_all([leader, dynamic])
    assert table.leave_one(dynamic.member_id) == 0
    assert table.state() == "PreparingRebalance"
    return leader, dynamic.member_id


def test_a_group_whose_only_member_is_static_and_away_waits_until_its_session_is_over() -> None:
    table = Table()
    stuck_group(table)
    table.move(REBALANCE_MS)
    assert (table.state(), table.group().generation_id) == ("PreparingRebalance", 1)
    table.move(LONG_MS)
    assert (table.state(), table.group().generation_id) == ("Empty", 2)


def test_a_static_leader_that_comes_back_late_finds_its_group() -> None:
    table = Table()
    leader, _ = stuck_group(table)
    table.move(3 * REBALANCE_MS)
    answer = table.answer(table.join(member_id=leader.member_id, instance_id="leader", session_ms=LONG_MS))
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 2, leader.member_id)


# --- whose session runs ----------------------------------------------------------------------------------------------


def sessions(table: Table) -> set[str]:
    """The member ids that the group waits for a sign of."""
    return {key[2] for key in table.timers if key[:2] == ("heartbeat", "g")}


def test_the_session_of_the_old_self_ends_and_that_of_the_new_one_begins_before_the_log_has_it() -> None:
    table = Table()
    leader, follower = static_group(table, session_ms=LONG_MS)
    table.holds_appends = True
    rejoin(table, "follower", session_ms=LONG_MS)
    new_id = table.group().static_members["follower"]
    assert new_id != follower.member_id
    assert sessions(table) == {leader.member_id, new_id}


def test_a_change_that_could_not_be_written_gives_the_old_self_its_session_back() -> None:
    table = Table()
    leader, follower = static_group(table, session_ms=LONG_MS)
    table.holds_appends = True
    rejoin(table, "follower", session_ms=LONG_MS)
    table.settle(10)
    assert sessions(table) == {leader.member_id, follower.member_id}
