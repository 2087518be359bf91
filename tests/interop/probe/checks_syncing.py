"""SyncGroup: the leader's assignment on its way to the members."""

from __future__ import annotations

from tests.interop.probe.probed_broker import Probe, assignment
from tests.interop.probe.registry import check
from zkconsumer.wire.schemas import SYNC_GROUP


@check()
def each_member_gets_what_the_leader_gave_it(p: Probe) -> None:
    members = p.stable(3)  # asserts it
    assert {each.heartbeat() for each in members} == {0}


@check()
def a_follower_waits_for_the_leader(p: Probe) -> None:
    leader, follower = p.completing(2)
    follower.sync_later()
    assert follower.is_parked()
    leader.sync_later({follower.member_id: b"yours", leader.member_id: b"mine"})
    assert follower.synced().assignment == b"yours"
    assert leader.synced().assignment == b"mine"


@check()
def a_follower_that_comes_after_the_leader_is_answered_at_once(p: Probe) -> None:
    leader, follower = p.completing(2)
    assert leader.sync({follower.member_id: b"yours"}).error_code == 0
    assert follower.sync().assignment == b"yours"


@check()
def a_member_that_the_leader_left_out_gets_no_bytes(p: Probe) -> None:
    leader, follower = p.completing(2)
    assert leader.sync({follower.member_id: b"yours"}).assignment == b""


@check()
def an_assignment_for_a_stranger_is_passed_over(p: Probe) -> None:
    [leader] = p.completing(1)
    assert leader.sync({leader.member_id: b"mine", "stranger": b"x"}).assignment == b"mine"


@check()
def what_a_follower_assigns_is_passed_over(p: Probe) -> None:
    leader, follower = p.completing(2)
    follower.sync_later({follower.member_id: b"taken"})
    assert follower.is_parked()
    assert leader.sync({follower.member_id: b"given"}).error_code == 0
    assert follower.synced().assignment == b"given"


@check()
def the_assignment_can_be_asked_for_again(p: Probe) -> None:
    leader, follower = p.stable(2)
    assert leader.sync().assignment == assignment(0)
    assert follower.sync().assignment == assignment(1)


@check()
def an_empty_assignment_is_still_an_assignment(p: Probe) -> None:
    [leader] = p.completing(1)
    told = leader.sync({leader.member_id: b""})
    assert (told.error_code, told.assignment) == (0, b"")


@check()
def a_sync_in_an_unknown_group_is_refused(p: Probe) -> None:
    assert p.member(member_id="nobody").sync_error(generation_id=1) == 25


@check()
def a_sync_of_an_unknown_member_is_refused(p: Probe) -> None:
    p.stable()
    assert p.member(member_id="nobody").sync_error(generation_id=1) == 25


@check()
def a_sync_of_another_generation_is_refused(p: Probe) -> None:
    [member] = p.stable()
    assert member.sync_error(generation_id=0) == 22
    assert member.sync_error(generation_id=2) == 22


@check()
def a_sync_during_the_join_is_refused(p: Probe) -> None:
    _, second = p.preparing()
    assert second.sync_error() == 27


@check()
def a_sync_in_a_group_without_a_name_is_refused(p: Probe) -> None:
    assert p.member(group="", member_id="nobody").sync_error(generation_id=1) == p.since("2.0", 24, 25)


@check(since="2.5")
def a_sync_with_another_protocol_type_is_refused(p: Probe) -> None:
    [member] = p.completing(1)
    assert member.sync(protocol_type="connect").error_code == 23


@check(since="2.5")
def a_sync_with_another_protocol_name_is_refused(p: Probe) -> None:
    [member] = p.completing(1)
    assert member.sync(protocol_name="sticky").error_code == 23


@check(since="2.5")
def from_version_5_on_a_sync_must_name_its_protocol(p: Probe) -> None:
    [member] = p.completing(1)
    assert member.sync(protocol_type=None, protocol_name=None).error_code == 23
    told = member.sync({member.member_id: b"x"})
    assert (told.error_code, told.protocol_type, told.protocol_name) == (0, "consumer", "range")


@check(since="3.0", is_slow=True)
def a_member_that_never_syncs_is_removed(p: Probe) -> None:
    leader, follower = p.stable(2, rebalance_ms=800)
    leader.enter()
    p.rejoin([follower])
    leader.joined()
    follower.joined()
    leader.sync({leader.member_id: b"", follower.member_id: b""})
    p.until(lambda: leader.heartbeat() == 27, "the group rebalances without it")
    assert follower.heartbeat() == 25


@check()
def every_version_of_sync_group_brings_the_assignment(p: Probe) -> None:
    for version in p.versions(SYNC_GROUP):
        p.group += f".{version}"
        member = p.member()
        member.join()
        body = member.sync_request({member.member_id: b"mine"})
        told = p.ask(SYNC_GROUP, body, version)
        assert (told.error_code, told.assignment) == (0, b"mine"), (version, told)
