"""Becoming a member: what is checked, how many may, and what becomes of those that do not come back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.coordinator.behaviour import behaviour_of
from bridge.coordinator.join_requests import MEMBER_ID_EXTRA_CHARS, NAME_BYTES_MAX
from tests.coordinator.server_harness import CONFIG, DELAY_MS, RANGE, REBALANCE_MS, SESSION_MS, Member, Table
from zkconsumer.wire.schemas.leave_group import LeavingMember

ROUNDROBIN = (("roundrobin", b"r"),)
NEW_MEMBER_TIMEOUT_MS = 5 * 60 * 1000


def error(table: Table, token: int) -> int:
    return int(table.answer(token).error_code)


def pending_id(table: Table, **words: int) -> str:
    """A member that was sent away with an id."""
    answer = table.answer(table.join(version=4, **words))
    assert answer.error_code == 79
    return str(answer.member_id)


# --- what is checked -------------------------------------------------------------------------------------------------


def test_a_session_shorter_than_the_broker_allows_is_refused() -> None:
    table = Table()
    assert error(table, table.join(session_ms=CONFIG.group_min_session_timeout_ms - 1)) == 26


def test_a_session_longer_than_the_broker_allows_is_refused() -> None:
    table = Table()
    assert error(table, table.join(session_ms=CONFIG.group_max_session_timeout_ms + 1)) == 26


def test_an_unknown_id_is_refused_in_a_new_group() -> None:
    table = Table()
    assert error(table, table.join(member_id="somebody")) == 25
    assert table.state() == "Dead"


def test_an_unknown_id_is_refused_in_a_group_that_there_is() -> None:
    table = Table()
    table.stable()
    assert error(table, table.join(member_id="somebody")) == 25


def test_a_member_joins_a_new_group_after_the_initial_delay() -> None:
    table = Table()
    token = table.join()
    table.move(DELAY_MS - 1)
    assert not table.is_answered(token)
    table.move(1)
    answer = table.answer(token)
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 1, "range")
    assert answer.leader == answer.member_id == "client-1"
    assert [member.member_id for member in answer.members] == ["client-1"]
    assert answer.members[0].metadata == RANGE[0][1]


def test_only_the_leader_is_told_of_the_members() -> None:
    table = Table()
    tokens = [table.join(), table.join()]
    table.move(3 * DELAY_MS)
    leader, follower = (table.answer(token) for token in tokens)
    assert [member.member_id for member in leader.members] == [leader.member_id, follower.member_id]
    assert follower.members == []
    assert follower.leader == leader.member_id


def test_another_protocol_type_is_refused() -> None:
    table = Table()
    table.stable()
    assert error(table, table.join(protocol_type="connect")) == 23


@pytest.mark.parametrize("state", ["Empty", "Stable"])
def test_an_empty_protocol_type_is_refused(state: str) -> None:
    table = Table()
    if state == "Stable":
        table.stable()
    assert error(table, table.join(protocol_type="")) == 23


@pytest.mark.parametrize("state", ["Empty", "Stable"])
def test_a_member_without_protocols_is_refused(state: str) -> None:
    table = Table()
    if state == "Stable":
        table.stable()
    assert error(table, table.join(protocols=())) == 23


def test_a_member_that_has_no_protocol_in_common_with_the_others_is_refused() -> None:
    table = Table()
    table.stable()
    assert error(table, table.join(protocols=ROUNDROBIN)) == 23


def test_a_pending_member_that_is_refused_for_its_protocol_may_try_again() -> None:
    table = Table()
    table.stable()
    member_id = pending_id(table)
    assert error(table, table.join(member_id=member_id, version=4, protocols=ROUNDROBIN)) == 23
    assert not table.is_answered(table.join(member_id=member_id, version=4))
    assert table.group().size == 2


def test_a_protocol_that_a_member_lists_twice_counts_once() -> None:
    table = Table()
    table.stable(protocols=(*RANGE, *RANGE))
    assert not table.is_answered(table.join())


def test_beside_an_error_no_protocol_is_named() -> None:
    table = Table()
    for version, none in ((6, ""), (7, None)):
        answer = table.answer(table.join(version=version, session_ms=1))
        assert (answer.protocol_type, answer.protocol_name) == (None, none)
        assert (answer.generation_id, answer.leader, answer.members) == (-1, "", [])


def test_who_joins_is_told_the_protocol_type_in_every_state() -> None:
    table = Table()
    first, second = table.join(version=3), table.join(version=3)
    table.move(3 * DELAY_MS)
    assert [table.answer(token).protocol_type for token in (first, second)] == ["consumer", "consumer"]
    follower = table.joined(second)
    assert table.answer(table.join(member_id=follower.member_id, version=7)).protocol_type == "consumer"
    table.sync_all([table.joined(first), follower])
    assert table.answer(table.join(member_id=follower.member_id, version=7)).protocol_type == "consumer"


# --- how many may ----------------------------------------------------------------------------------------------------


def test_a_group_takes_no_more_members_than_it_may() -> None:
    table = Table()
    table.stable(4)
    answer = table.answer(table.join())
    assert (answer.error_code, answer.member_id) == (81, "")


def test_members_with_ids_given_first_are_as_many_as_may_join() -> None:
    table = Table(config=replace(CONFIG, group_initial_rebalance_delay_ms=0))
    ids = [pending_id(table) for _ in range(5)]
    tokens = [table.join(member_id=member_id, version=4) for member_id in ids]
    assert [table.is_answered(token) for token in tokens] == [False] * 4 + [True]
    assert error(table, tokens[4]) == 81
    table.move(1)
    members = [table.joined(token) for token in tokens[:4]]
    table.sync_all(members)
    assert error(table, table.join(version=4)) == 81
    again = [table.join(member_id=member.member_id, version=4) for member in members]
    assert [error(table, token) for token in again] == [0] * 4


def test_members_without_the_detour_are_as_many_as_may_join() -> None:
    table = Table()
    tokens = [table.join() for _ in range(5)]
    assert error(table, tokens[4]) == 81
    table.move(REBALANCE_MS)
    members = [table.joined(token) for token in tokens[:4]]
    table.sync_all(members)
    again = [table.join(member_id=member.member_id) for member in members]
    assert [error(table, token) for token in again] == [0] * 4


def test_static_members_are_as_many_as_may_join() -> None:
    table = Table()
    tokens = [table.join(instance_id=f"i{number}") for number in range(5)]
    assert error(table, tokens[4]) == 81
    table.move(REBALANCE_MS)
    members = [table.joined(token, f"i{number}") for number, token in enumerate(tokens[:4])]
    table.sync_all(members)
    assert error(table, table.join(instance_id="i4")) == 81
    again = [table.join(member_id=member.member_id, instance_id=member.instance_id) for member in members]
    assert [error(table, token) for token in again] == [0] * 4


def test_members_that_wait_already_may_join_again_in_a_full_rebalance() -> None:
    table = Table()
    ids = [pending_id(table) for _ in range(4)]
    first = [table.join(member_id=member_id, version=4) for member_id in ids]
    again = [table.join(member_id=member_id, version=4) for member_id in ids]
    assert [error(table, token) for token in first] == [25] * 4
    table.move(REBALANCE_MS)
    assert [error(table, token) for token in again] == [0] * 4


def test_the_last_to_join_again_are_put_out_of_a_group_that_is_too_large() -> None:
    table = Table()
    tokens = [table.join() for _ in range(4)]
    table.move(REBALANCE_MS)
    members = [table.joined(token) for token in tokens]
    table.sync_all(members)
    table.coordinator.config = replace(CONFIG, group_max_size=2)
    again = [table.join(member_id=member.member_id) for member in members]
    assert [error(table, token) for token in again[2:]] == [81, 81]
    assert [table.joined(token).generation_id for token in again[:2]] == [2, 2]
    assert table.group().size == 2
    assert {key for key in table.timers if key[0] == "heartbeat"} == {
        ("heartbeat", "g", members[0].member_id),
        ("heartbeat", "g", members[1].member_id),
    }


def test_a_pending_member_that_finds_the_group_full_is_forgotten() -> None:
    table = Table()
    late = pending_id(table)
    tokens = [table.join() for _ in range(4)]
    assert error(table, table.join(member_id=late, version=4)) == 81
    assert table.group().pending_members == set()
    table.move(REBALANCE_MS)
    assert [error(table, token) for token in tokens] == [0] * 4


# --- those that are new ----------------------------------------------------------------------------------------------


def test_a_new_member_is_not_waited_for_by_its_session_while_its_join_is_parked() -> None:
    table = Table(config=replace(CONFIG, group_initial_rebalance_delay_ms=10_000))
    token = table.join(rebalance_ms=20_000)
    table.move(10_000 - 1)
    assert not table.is_answered(token)
    table.move(1)
    assert error(table, token) == 0


def test_a_new_member_whose_group_does_not_come_together_is_dropped_after_five_minutes() -> None:
    table = Table()
    table.stable(rebalance_ms=2 * NEW_MEMBER_TIMEOUT_MS, session_ms=600_000)
    token = table.join(session_ms=SESSION_MS)
    table.move(NEW_MEMBER_TIMEOUT_MS - 1)
    assert not table.is_answered(token)
    table.move(1)
    answer = table.answer(token)
    assert (answer.error_code, answer.member_id) == (25, "")
    assert table.group().size == 1


def test_a_new_member_has_its_session_once_it_has_joined() -> None:
    table = Table()
    leader, other = table.rebalanced(2, rebalance_ms=5_000)
    table.sync(leader, {})
    table.heartbeat(other)
    table.move(SESSION_MS - 1)
    assert table.group().size == 2
    table.heartbeat(leader)
    table.move(1)
    assert table.state() == "PreparingRebalance"
    assert not table.group().has(other.member_id)


def test_a_new_member_has_its_session_once_it_has_synced() -> None:
    table = Table()
    leader, other = table.stable(2)
    table.move(SESSION_MS - 1)
    table.heartbeat(leader)
    table.move(1)
    assert table.state() == "PreparingRebalance"
    assert not table.group().has(other.member_id)


def test_a_member_without_an_id_is_sent_away_with_one_and_comes_again() -> None:
    table = Table()
    answer = table.answer(table.join(version=4, client_id="app"))
    assert (answer.error_code, answer.member_id, answer.generation_id) == (79, "app-1", -1)
    assert (table.state(), table.group().size) == ("Empty", 0)
    token = table.join(member_id="app-1", version=4)
    assert table.group().pending_members == set()
    table.move(DELAY_MS)
    assert table.joined(token).member_id == "app-1"


def test_a_rebalance_waits_for_a_pending_member_no_longer_than_for_the_others() -> None:
    table = Table()
    (leader,) = table.stable()
    member_id = pending_id(table, session_ms=5_000)
    again = table.join(member_id=leader.member_id)
    assert not table.is_answered(again)
    table.move(REBALANCE_MS)
    answer = table.answer(again)
    assert (answer.error_code, answer.generation_id) == (0, 2)
    assert member_id in table.group().pending_members


def test_a_rebalance_is_over_when_the_pending_member_has_joined() -> None:
    table = Table()
    (leader,) = table.stable()
    member_id = pending_id(table)
    again = table.join(member_id=leader.member_id)
    pending = table.join(member_id=member_id, version=4)
    assert table.joined(again).generation_id == table.joined(pending).generation_id == 2
    assert table.state() == "CompletingRebalance"


def test_a_rebalance_is_over_when_the_pending_member_s_time_is_up() -> None:
    table = Table()
    (leader,) = table.stable(rebalance_ms=5_000)
    pending_id(table, session_ms=100)
    again = table.join(member_id=leader.member_id, rebalance_ms=5_000)
    table.move(99)
    assert not table.is_answered(again)
    table.move(1)
    assert table.joined(again).generation_id == 2
    assert table.group().pending_members == set()


@pytest.mark.parametrize("version", [2, 3])
def test_a_rebalance_is_over_when_the_pending_member_leaves(version: int) -> None:
    table = Table()
    (leader,) = table.stable()
    member_id = pending_id(table)
    again = table.join(member_id=leader.member_id)
    answer = table.leave(LeavingMember(member_id=member_id), version=version)
    errors = [row.error_code for row in answer.members] if version == 3 else [answer.error_code]
    assert errors == [0]
    assert table.joined(again).generation_id == 2
    assert ("heartbeat", "g", member_id) not in table.timers


def test_a_pending_member_does_not_come_back_as_a_static_one() -> None:
    table = Table()
    member_id = pending_id(table)
    assert error(table, table.join(member_id=member_id, instance_id="i")) == -1


def test_a_join_that_is_sent_again_takes_the_place_of_the_one_before() -> None:
    table = Table()
    first = table.join(version=4)
    member_id = table.answer(first).member_id
    parked = table.join(member_id=member_id, version=4)
    again = table.join(member_id=member_id, version=4)
    assert error(table, parked) == 25
    table.move(DELAY_MS)
    assert table.joined(again).generation_id == 1
    assert table.group().num_members_awaiting_join == 0


# --- when a group rebalances -----------------------------------------------------------------------------------------


def test_a_follower_that_joins_again_unchanged_is_told_how_things_stand() -> None:
    table = Table()
    leader, follower = table.stable(2)
    answer = table.answer(table.join(member_id=follower.member_id))
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, leader.member_id)
    assert answer.members == []
    assert table.state() == "Stable"


def test_the_leader_that_joins_again_makes_the_group_rebalance() -> None:
    table = Table()
    (leader,) = table.stable()
    again = table.joined(table.join(member_id=leader.member_id))
    assert again.generation_id == 2
    assert table.state() == "CompletingRebalance"


def test_a_follower_that_joins_again_with_other_metadata_makes_the_group_rebalance() -> None:
    table = Table()
    _, follower = table.stable(2)
    token = table.join(member_id=follower.member_id, protocols=(("range", b"\x00\x00other"),))
    assert not table.is_answered(token)
    assert table.state() == "PreparingRebalance"


def test_every_rebalance_is_one_generation_further() -> None:
    table = Table()
    (member,) = table.stable()
    for generation in (2, 3, 4):
        member = table.joined(table.join(member_id=member.member_id))
        assert member.generation_id == generation
        table.sync_all([member])


def test_a_rebalance_is_over_when_the_last_member_joins() -> None:
    table = Table()
    leader, follower = table.stable(2, rebalance_ms=5_000, session_ms=5_000)
    joined = table.join(rebalance_ms=5_000)
    first = table.join(member_id=leader.member_id, rebalance_ms=5_000)
    assert not table.is_answered(joined)
    last = table.join(member_id=follower.member_id, rebalance_ms=5_000)
    assert {table.joined(token).generation_id for token in (joined, first, last)} == {2}


def test_a_rebalance_does_not_wait_for_members_longer_than_they_asked_for() -> None:
    table = Table()
    leader, follower = table.stable(2, rebalance_ms=700, session_ms=10_000)
    again = table.join(member_id=leader.member_id, rebalance_ms=700, session_ms=10_000)
    table.move(699)
    assert not table.is_answered(again)
    table.move(1)
    assert table.joined(again).generation_id == 2
    late = table.answer(table.join(member_id=follower.member_id))
    assert late.error_code == 25


def test_before_there_were_rebalance_timeouts_the_session_s_counts() -> None:
    table = Table()
    leader, _ = table.stable(2, session_ms=800, rebalance_ms=-1)
    table.move(300)
    again = table.join(member_id=leader.member_id, session_ms=800, rebalance_ms=-1, version=0)
    assert table.group().rebalance_timeout_ms == 800
    assert not table.is_answered(again)


def test_the_initial_delay_is_waited_in_an_empty_group() -> None:
    table = Table()
    token = table.join()
    table.move(DELAY_MS // 2)
    assert not table.is_answered(token)
    table.move(DELAY_MS // 2 + 1)
    assert table.is_answered(token)


def test_the_initial_delay_begins_anew_when_another_member_comes() -> None:
    table = Table()
    first = table.join()
    table.move(DELAY_MS - 1)
    second = table.join()
    table.move(2)
    assert not table.is_answered(first)
    table.move(DELAY_MS - 1)
    assert table.joined(first).generation_id == table.joined(second).generation_id == 1


def test_the_initial_delay_is_extended_no_further_than_the_rebalance_timeout() -> None:
    config = replace(CONFIG, group_max_size=100)
    table = Table(config=config)
    first = table.join(rebalance_ms=150)
    answered_after = 0
    while not table.is_answered(first):
        table.join(rebalance_ms=150)
        table.move(10)
        answered_after += 10
    assert answered_after == 150


def test_without_an_initial_delay_the_first_member_is_answered_at_once() -> None:
    table = Table(config=replace(CONFIG, group_initial_rebalance_delay_ms=0))
    token = table.join()
    table.move(0)
    assert table.joined(token).generation_id == 1


def test_when_no_member_comes_again_the_group_is_empty_in_the_next_generation() -> None:
    table = Table()
    table.stable(2)
    table.move(2 * REBALANCE_MS)
    assert (table.state(), table.group().generation_id) == ("Empty", 2)
    assert table.describe().members == []


def test_the_protocol_is_the_one_that_most_members_like_best() -> None:
    table = Table(behaviour_of("3.6.0"))
    both = (("range", b"a"), ("roundrobin", b"b"))
    other = (("roundrobin", b"b"), ("range", b"a"))
    tokens = [table.join(protocols=protocols) for protocols in (both, other, other)]
    table.move(4 * DELAY_MS)
    assert [table.answer(token).protocol_name for token in tokens] == ["roundrobin"] * 3
    assert [member.metadata for member in table.answer(tokens[0]).members] == [b"b"] * 3


def test_leaving_while_joining_answers_what_was_parked() -> None:
    table = Table()
    members = table.stable(2)
    again = table.join(member_id=members[0].member_id)
    assert table.leave_one(members[0].member_id) == 0
    answer = table.answer(again)
    assert (answer.error_code, answer.member_id) == (25, "")


def test_leaving_while_syncing_answers_what_was_parked() -> None:
    table = Table()
    _, follower = table.rebalanced(2)
    parked = table.sync(follower)
    assert table.leave_one(follower.member_id) == 0
    assert error(table, parked) == 25
    assert table.state() == "PreparingRebalance"


def test_the_leader_s_place_goes_to_the_member_that_came_next() -> None:
    table = Table()
    leader, second, third = table.stable(3)
    assert table.leave_one(leader.member_id) == 0
    tokens = [table.join(member_id=member.member_id) for member in (third, second)]
    assert {table.joined(token).leader_id for token in tokens} == {second.member_id}


def test_a_member_of_another_group_is_no_member() -> None:
    table = Table()
    (member,) = table.stable()
    table.stable(group="h")
    assert table.heartbeat(Member(member.member_id, 1, ""), "h") == 25


# --- at the limits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session_ms", [CONFIG.group_min_session_timeout_ms, CONFIG.group_max_session_timeout_ms])
def test_a_session_at_the_brokers_limit_is_taken(session_ms: int) -> None:
    table = Table()
    token = table.join(session_ms=session_ms)
    table.move(2 * DELAY_MS)
    assert table.joined(token).is_leader


def test_an_instance_id_must_leave_room_for_the_member_id_that_is_made_of_it() -> None:
    table = Table()
    longest = NAME_BYTES_MAX - MEMBER_ID_EXTRA_CHARS
    refused = table.join(instance_id="i" * (longest + 1))
    assert table.answer(refused).error_code == 23
    taken = table.join(instance_id="i" * longest)
    table.move(2 * DELAY_MS)
    assert table.joined(taken).is_leader


def test_a_pending_member_that_comes_while_its_group_is_being_deleted_is_told_to_ask_again() -> None:
    table = Table()
    assert table.commit({("t", 0): 1}) == [0]
    member_id = table.answer(table.join(version=4)).member_id
    table.holds_appends = True
    deletion = table.send_delete("g")
    assert table.answer(table.join(member_id=member_id, version=4)).error_code == 15
    table.holds_appends = False
    table.settle()
    assert [row.error_code for row in table.answer(deletion).results] == [0]
    assert table.state() == "Dead"


def test_of_a_member_that_does_not_join_again_nothing_is_left_but_a_line_in_the_log() -> None:
    table = Table()
    leader, follower = table.stable(2, session_ms=60_000)
    again = table.join(member_id=leader.member_id, session_ms=60_000)
    table.move(REBALANCE_MS)
    assert table.joined(again).generation_id == leader.generation_id + 1
    assert ("heartbeat", "g", follower.member_id) not in table.timers
    assert [dict(note.fields) for note in table.notes if note.name == "member-removed"] == [
        {"group": "g", "member": follower.member_id, "reason": "it did not join again"}
    ]
