"""LeaveGroup."""

from __future__ import annotations

from tests.interop.probe.probed_broker import Probe
from tests.interop.probe.registry import check
from zkconsumer.wire.schemas import LEAVE_GROUP
from zkconsumer.wire.schemas.leave_group import LeaveGroupRequest, LeavingMember


@check()
def a_member_that_left_is_unknown(p: Probe) -> None:
    [member] = p.stable()
    assert member.leave() == 0
    assert member.heartbeat() == 25
    assert member.leave() == p.since("0.9", 25, 25)


@check()
def the_others_are_told_when_a_member_leaves(p: Probe) -> None:
    leader, follower = p.stable(2)
    assert follower.leave() == 0
    assert leader.heartbeat() == 27
    assert [each.member_id for each in leader.join().members] == [leader.member_id]


@check()
def when_the_leader_leaves_another_leads(p: Probe) -> None:
    leader, follower = p.stable(2)
    assert leader.leave() == 0
    assert follower.join().leader == follower.member_id


@check(since="0.10.2")
def a_group_whose_last_member_left_is_empty(p: Probe) -> None:
    [member] = p.stable()
    member.leave()
    p.wait_state("Empty")


@check(until="0.10")
def a_group_whose_last_member_left_was_dead_at_once(p: Probe) -> None:
    [member] = p.stable()
    member.leave()
    assert p.state() == "Dead"


@check()
def leaving_an_unknown_group_is_refused(p: Probe) -> None:
    assert p.member(member_id="nobody").leave() == 25


@check()
def a_leave_of_an_unknown_member_is_refused(p: Probe) -> None:
    p.stable()
    assert p.member(member_id="nobody").leave() == 25


@check()
def a_leave_in_a_group_without_a_name_is_refused(p: Probe) -> None:
    assert p.member(group="", member_id="nobody").leave() == p.since("2.0", 24, 25)


@check()
def a_leave_ends_the_join_that_waits_for_the_member(p: Probe) -> None:
    first, second = p.preparing()
    assert second.leave() == 0
    assert first.joined().generation_id == 3


@check(since="2.2")
def a_member_that_leaves_while_it_waits_for_the_join_is_answered(p: Probe) -> None:
    first, second = p.preparing()
    assert first.leave() == 0
    assert first.answer().error_code == 25
    assert second.join().leader == second.member_id


@check()
def a_leave_before_the_assignment_starts_over(p: Probe) -> None:
    leader, follower = p.completing(2)
    follower.sync_later()
    assert follower.is_parked()
    assert leader.leave() == 0
    assert follower.synced().error_code == 27
    assert follower.join().leader == follower.member_id


@check(since="2.4")
def several_leave_at_once_each_with_its_own_error(p: Probe) -> None:
    first, second = p.stable(2)
    names = [first.member_id, "nobody", second.member_id]
    body = LeaveGroupRequest(group_id=p.group, members=[LeavingMember(member_id=name) for name in names])
    told = p.ask(LEAVE_GROUP, body)
    assert told.error_code == 0
    assert [(each.member_id, each.error_code) for each in told.members] == [
        (names[0], 0),
        ("nobody", 25),
        (names[2], 0),
    ]
    p.wait_state("Empty")


@check(since="2.4")
def up_to_version_2_the_error_is_that_of_the_answer(p: Probe) -> None:
    assert p.member(member_id="nobody").leave_answer(version=2).error_code == 25
    told = p.member(member_id="nobody").leave_answer()
    assert (told.error_code, [each.error_code for each in told.members]) == (0, [25])


@check()
def every_version_of_leave_group_is_accepted(p: Probe) -> None:
    for version in p.versions(LEAVE_GROUP):
        p.group += f".{version}"
        [member] = p.stable()
        assert member.leave(version) == 0, version
