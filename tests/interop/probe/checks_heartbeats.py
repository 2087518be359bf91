"""Heartbeat, and the session that it keeps."""

from __future__ import annotations

from tests.interop.probe.probed_broker import SHORT_SESSION_MS, Probe
from tests.interop.probe.registry import check
from zkconsumer.wire.schemas import HEARTBEAT
from zkconsumer.wire.schemas.heartbeat import HeartbeatRequest


@check()
def a_heartbeat_of_a_member_is_accepted(p: Probe) -> None:
    [member] = p.stable()
    assert member.heartbeat() == 0


@check()
def a_heartbeat_in_an_unknown_group_is_refused(p: Probe) -> None:
    assert p.member(member_id="nobody").heartbeat(generation_id=1) == 25


@check()
def a_heartbeat_of_an_unknown_member_is_refused(p: Probe) -> None:
    p.stable()
    assert p.member(member_id="nobody").heartbeat(generation_id=1) == 25


@check()
def a_heartbeat_of_another_generation_is_refused(p: Probe) -> None:
    [member] = p.stable()
    assert [member.heartbeat(generation_id=number) for number in (0, 2)] == [22, 22]


@check()
def a_heartbeat_during_the_join_announces_the_rebalance(p: Probe) -> None:
    first, second = p.preparing()
    assert first.heartbeat() == second.heartbeat() == 27


@check()
def a_heartbeat_between_join_and_sync(p: Probe) -> None:
    # Since 2.7 (KAFKA-10168 and its like) members beat while they wait for the assignment.
    [member] = p.completing(1)
    assert member.heartbeat() == p.since("2.7", 0, 27)


@check()
def a_heartbeat_of_an_unknown_member_during_the_join(p: Probe) -> None:
    p.preparing()
    assert p.member(member_id="nobody").heartbeat(generation_id=2) == p.since("0.10", 25, 27)


@check()
def a_heartbeat_in_an_emptied_group_is_refused(p: Probe) -> None:
    [member] = p.stable()
    member.leave()
    assert member.heartbeat() == 25


@check()
def a_heartbeat_in_a_group_without_a_name_is_refused(p: Probe) -> None:
    assert p.member(group="", member_id="nobody").heartbeat(generation_id=1) == p.since("2.0", 24, 25)


@check(is_slow=True)
def a_member_that_says_nothing_loses_its_session(p: Probe) -> None:
    silent = p.member(session_ms=SHORT_SESSION_MS)
    silent.join()
    silent.sync()
    p.wait_state(p.since("0.10.2", "Empty", "Dead"))
    assert silent.heartbeat() == 25


@check(is_slow=True)
def the_others_are_told_when_a_member_loses_its_session(p: Probe) -> None:
    lasting, silent = p.stable(2, session_ms=1_500, rebalance_ms=1_500)
    p.until(lambda: lasting.heartbeat() == 27, "the rebalance is announced", 10_000)
    lasting.enter()
    told = lasting.joined()
    assert [each.member_id for each in told.members] == [lasting.member_id]
    assert silent.heartbeat() == p.since("0.10", 25, 27)


@check(is_slow=True)
def heartbeats_keep_a_session(p: Probe) -> None:
    member = p.member(session_ms=SHORT_SESSION_MS)
    member.join()
    member.sync()
    p.pass_time(5_000, lambda: member.heartbeat() == 0)


@check(since="0.11", is_slow=True)
def commits_keep_a_session(p: Probe) -> None:
    member = p.member(session_ms=SHORT_SESSION_MS)
    member.join()
    member.sync()
    p.pass_time(5_000, lambda: member.commit(7) == 0)
    assert member.heartbeat() == 0


@check()
def every_version_of_heartbeat_is_accepted(p: Probe) -> None:
    [member] = p.stable()
    for version in p.versions(HEARTBEAT):
        body = HeartbeatRequest(group_id=p.group, generation_id=1, member_id=member.member_id)
        assert p.ask(HEARTBEAT, body, version).error_code == 0, version
