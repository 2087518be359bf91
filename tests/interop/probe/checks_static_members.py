"""Static members (KIP-345, 2.3): a name of their own outlives the process."""

from __future__ import annotations

from tests.interop.probe.probed_broker import SHORT_SESSION_MS, Probe, assignment
from tests.interop.probe.registry import check
from zkconsumer.wire.schemas import LEAVE_GROUP
from zkconsumer.wire.schemas.leave_group import LeaveGroupRequest, LeavingMember


@check(since="2.4")
def a_static_member_is_let_in_at_once(p: Probe) -> None:
    told = p.member(instance="one").join()
    assert told.generation_id == 1
    assert told.member_id.startswith("one-")
    assert [each.group_instance_id for each in told.members] == ["one"]


@check(since="2.4")
def a_static_follower_that_starts_again_changes_nothing_but_its_id(p: Probe) -> None:
    leader = p.member(instance="leader")
    leader.join()
    leader.sync()
    follower = p.member(instance="follower")
    p.grow([leader], follower)
    again = p.member(instance="follower")
    told = again.join()
    assert (told.generation_id, told.leader, told.members) == (2, leader.member_id, [])
    assert told.member_id != follower.member_id
    assert leader.heartbeat() == 0
    assert again.sync().assignment == assignment(1)


@check(since="3.2")
def a_static_leader_that_starts_again_leads_and_need_not_assign(p: Probe) -> None:
    leader = p.member(instance="leader")
    leader.join()
    leader.sync({leader.member_id: b"mine"})
    again = p.member(instance="leader")
    told = again.join()
    assert (told.generation_id, told.skip_assignment, told.leader) == (1, True, told.member_id)
    assert [each.member_id for each in told.members] == [told.member_id]
    assert again.sync().assignment == b"mine"


@check(since="2.4")
def below_version_9_a_static_leader_that_starts_again_finds_its_old_self_leading(p: Probe) -> None:
    leader = p.member(instance="leader")
    leader.join()
    leader.sync({leader.member_id: b"mine"})
    told = p.member(instance="leader", version=8).join()
    assert (told.generation_id, told.leader, told.members) == (1, leader.member_id, [])


@check(since="2.4")
def the_old_process_of_a_static_member_is_fenced(p: Probe) -> None:
    old = p.member(instance="one")
    old.join()
    old.sync({old.member_id: b""})
    p.member(instance="one").join()
    assert old.heartbeat() == 82
    assert old.commit(1) == 82
    assert old.sync_error() == 82
    assert old.join_once().error_code == 82
    assert old.leave() == 82


@check(since="2.4")
def a_join_that_waits_is_fenced_by_the_new_process(p: Probe) -> None:
    first, second = p.member(instance="first"), p.member(instance="second")
    first.join()
    first.sync()
    p.grow([first], second)
    first.enter()
    assert first.is_parked()
    again = p.member(instance="first")
    again.enter()
    assert first.answer().error_code == 82
    second.enter()
    assert again.joined().generation_id == second.joined().generation_id == 3


@check(since="2.4")
def a_sync_that_waits_is_fenced_by_the_new_process(p: Probe) -> None:
    first, second = p.member(instance="first"), p.member(instance="second")
    first.join()
    first.sync()
    second.enter()
    p.rejoin([first])
    for each in (first, second):
        each.joined()
    second.sync_later()
    assert second.is_parked()
    p.member(instance="second").enter()
    assert second.synced().error_code == 82


@check(since="2.4")
def a_static_member_with_another_subscription_makes_the_group_rebalance(p: Probe) -> None:
    first = p.member(instance="first", protocols=[("a", b"1"), ("b", b"1")])
    first.join()
    first.sync()
    p.member(instance="first", protocols=[("b", b"1")]).enter()
    p.until(lambda: p.described().group_state != "Stable", "it rebalances")


@check(since="3.2")
def an_unknown_instance_with_a_known_id_is_refused(p: Probe) -> None:
    member = p.member(instance="one")
    member.join()
    member.sync()
    assert member.heartbeat(group_instance_id="another") == 25
    assert member.commit(1, instance="another") == 25


@check(since="2.4")
def a_known_instance_with_an_unknown_id_is_fenced(p: Probe) -> None:
    member = p.member(instance="one")
    member.join()
    member.sync()
    assert p.member(instance="one", member_id="made-up").join_once().error_code == 82
    assert member.heartbeat(member_id="made-up") == 82


@check(since="2.4")
def a_static_member_may_leave_by_its_instance_alone(p: Probe) -> None:
    member = p.member(instance="one")
    member.join()
    member.sync()
    body = LeaveGroupRequest(
        group_id=p.group,
        members=[LeavingMember(member_id="", group_instance_id=name) for name in ("one", "nobody")],
    )
    told = p.ask(LEAVE_GROUP, body)
    assert [(each.group_instance_id, each.error_code) for each in told.members] == [("one", 0), ("nobody", 25)]
    p.wait_state("Empty")


@check(since="2.4", is_slow=True)
def a_static_member_that_is_silent_loses_its_session_too(p: Probe) -> None:
    member = p.member(instance="one", session_ms=SHORT_SESSION_MS)
    member.join()
    member.sync()
    p.wait_state("Empty")


@check(since="2.4", is_slow=True)
def a_static_member_that_does_not_rejoin_is_not_dropped(p: Probe) -> None:
    away = p.member(instance="away", rebalance_ms=700)
    away.join()
    away.sync()
    there = p.member(rebalance_ms=700)
    there.enter()
    told = there.joined()
    assert told.generation_id == 2
    assert {each.member_id for each in told.members} == {there.member_id, away.member_id}
    assert told.leader == there.member_id


@check(since="2.4")
def the_instances_are_described(p: Probe) -> None:
    member = p.member(instance="one")
    member.join()
    member.sync()
    p.wait_state("Stable")
    assert [each.group_instance_id for each in p.described().members] == ["one"]
