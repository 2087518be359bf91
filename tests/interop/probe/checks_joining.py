"""JoinGroup: which members are admitted, and the contents of the answer."""

from __future__ import annotations

from tests.interop.probe.member import SUBSCRIPTION
from tests.interop.probe.probed_broker import GROUP_MAX_SIZE, SESSION_MAX_MS, SESSION_MIN_MS, Probe
from tests.interop.probe.registry import check
from zkconsumer.wire.schemas import JOIN_GROUP


@check()
def the_first_member_is_the_leader_in_generation_1(p: Probe) -> None:
    member = p.member()
    told = member.join()
    assert told.generation_id == 1
    assert told.leader == told.member_id
    assert [(each.member_id, each.metadata) for each in told.members] == [(told.member_id, SUBSCRIPTION)]


@check()
def a_member_id_is_the_client_id_a_dash_and_a_uuid(p: Probe) -> None:
    told = p.member(client_id="some.client").join()
    start, _, end = told.member_id.partition("-")
    assert start == "some.client"
    assert [len(part) for part in end.split("-")] == [8, 4, 4, 4, 12], told.member_id


@check()
def the_protocol_that_was_chosen_is_named(p: Probe) -> None:
    assert p.member().join().protocol_name == "range"


@check(since="2.5")
def from_version_7_on_the_protocol_type_is_named(p: Probe) -> None:
    assert p.member().join().protocol_type == "consumer"
    refused = p.member(protocol_type="connect", member_id="").join_once()
    assert (refused.protocol_type, refused.protocol_name) == (None, None), refused


@check(since="2.2")
def a_new_member_is_given_an_id_and_sent_away(p: Probe) -> None:
    told = p.member().join_once()
    assert (told.error_code, told.generation_id, told.leader, told.members) == (79, -1, "", []), told
    assert told.member_id.startswith("probe-")


@check(since="2.2")
def every_refused_newcomer_gets_another_id(p: Probe) -> None:
    assert len({p.member().join_once().member_id for _ in range(3)}) == 3


@check(since="2.2")
def the_id_that_was_given_lets_the_member_in_under_it(p: Probe) -> None:
    member = p.member()
    given = member.ask_id()
    member.send_join()
    assert member.joined().member_id == given


@check(since="2.2")
def version_3_lets_a_newcomer_in_at_once(p: Probe) -> None:
    member = p.member(version=3)
    member.send_join()
    assert member.joined().generation_id == 1


@check()
def an_id_that_nobody_gave_is_refused_in_an_unknown_group(p: Probe) -> None:
    told = p.member(member_id="nobody").join_once()
    assert told.error_code == 25
    assert told.generation_id == p.since("2.3", -1, 0), told


@check()
def an_id_that_nobody_gave_is_refused_in_a_known_group(p: Probe) -> None:
    p.stable()
    assert p.member(member_id="nobody").join_once().error_code == 25


@check()
def an_empty_group_id_is_refused(p: Probe) -> None:
    assert p.member(group="").join_once().error_code == 24


@check()
def a_session_time_out_below_the_least_is_refused(p: Probe) -> None:
    assert p.member(session_ms=SESSION_MIN_MS - 1).join_once().error_code == 26


@check()
def a_session_time_out_above_the_most_is_refused(p: Probe) -> None:
    assert p.member(session_ms=SESSION_MAX_MS + 1).join_once().error_code == 26


@check()
def the_session_time_outs_at_both_ends_are_accepted(p: Probe) -> None:
    for session_ms in (SESSION_MIN_MS, SESSION_MAX_MS):
        assert p.member(session_ms=session_ms).join_once().error_code in (0, 79)
        p.group += "x"


@check()
def another_protocol_type_is_refused(p: Probe) -> None:
    p.stable()
    assert p.member(protocol_type="connect").join_once().error_code == 23


@check()
def a_member_without_a_protocol_in_common_is_refused(p: Probe) -> None:
    p.stable()
    assert p.member(protocols=[("sticky", b"")]).join_once().error_code == 23


@check(since="1.0")
def an_empty_protocol_type_is_refused(p: Probe) -> None:
    assert p.member(protocol_type="").join_once().error_code == 23


@check(until="1.0")
def an_empty_protocol_type_was_accepted(p: Probe) -> None:
    assert p.member(protocol_type="").join_once().error_code == 0


@check(since="1.0")
def an_empty_list_of_protocols_is_refused(p: Probe) -> None:
    assert p.member(protocols=[]).join_once().error_code == 23


@check()
def only_the_leader_is_told_the_members(p: Probe) -> None:
    leader, follower = p.stable(2)
    assert leader.last.leader == follower.last.leader == leader.member_id
    assert {each.member_id for each in leader.last.members} == {leader.member_id, follower.member_id}
    assert follower.last.members == []


@check()
def the_leader_is_told_the_metadata_of_each_member_for_the_protocol_that_was_chosen(p: Probe) -> None:
    first = p.member(protocols=[("a", b"1a"), ("b", b"1b")])
    first.join()
    first.sync()
    second = p.member(protocols=[("b", b"2b")])
    p.grow([first], second)
    told = {each.member_id: each.metadata for each in first.last.members}
    assert first.last.protocol_name == "b"
    assert told == {first.member_id: b"1b", second.member_id: b"2b"}


@check()
def the_protocol_that_most_members_list_first_is_chosen(p: Probe) -> None:
    liked_by = {"a": [("a", b""), ("b", b"")], "b": [("b", b""), ("a", b"")]}
    members = []
    for liked in "abb":
        p.grow(members, p.member(protocols=liked_by[liked]))
    assert members[0].last.protocol_name == "b"


@check()
def a_protocol_that_one_member_lacks_gets_no_vote(p: Probe) -> None:
    members = []
    for names in ("ab", "ab", "bc"):
        p.grow(members, p.member(protocols=[(name, b"") for name in names]))
    assert members[0].last.protocol_name == "b"


@check(since="2.2")
def a_full_group_refuses_one_more(p: Probe) -> None:
    members = p.stable(GROUP_MAX_SIZE)
    assert p.member(version=3).join_once().error_code == 81
    assert members[0].heartbeat() == 0


@check(since="2.2")
def a_full_group_takes_its_own_members_back(p: Probe) -> None:
    members = p.stable(GROUP_MAX_SIZE)
    members[0].enter()
    p.rejoin(members[1:])
    assert {each.joined().generation_id for each in members} == {GROUP_MAX_SIZE + 1}


@check(since="3.2")
def a_leader_that_is_dynamic_always_assigns(p: Probe) -> None:
    assert p.member().join().skip_assignment is False


@check()
def every_version_of_join_group_makes_a_member(p: Probe) -> None:
    for version in p.versions(JOIN_GROUP):
        p.group += f".{version}"
        member = p.member(version=version)
        told = member.join()
        assert (told.generation_id, told.leader) == (1, told.member_id), (version, told)
