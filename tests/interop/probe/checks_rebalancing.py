"""What causes a rebalance, which members take part, and when it ends."""

from __future__ import annotations

from tests.interop.probe.probed_broker import INITIAL_DELAY_MS, PROTOCOLS, SHORT_SESSION_MS, Probe
from tests.interop.probe.registry import check
from zkconsumer.base.clock import SYSTEM_CLOCK


@check()
def a_newcomer_makes_the_group_rebalance(p: Probe) -> None:
    [member] = p.stable()
    p.grow([member], p.member())
    assert member.generation == 2


@check()
def the_generation_rises_by_one_with_each_rebalance(p: Probe) -> None:
    members = p.stable(3)
    assert [each.generation for each in members] == [3, 3, 3]


@check()
def the_leader_stays_the_leader_while_it_rejoins(p: Probe) -> None:
    first, *others = p.stable(3)
    assert {each.last.leader for each in (first, *others)} == {first.member_id}


@check()
def a_follower_that_joins_again_unchanged_is_answered_at_once(p: Probe) -> None:
    leader, follower = p.stable(2)
    told = follower.join()
    assert (told.generation_id, told.leader, told.members) == (2, leader.member_id, [])
    assert leader.heartbeat() == 0


@check()
def a_leader_that_joins_again_unchanged_makes_the_group_rebalance(p: Probe) -> None:
    leader, follower = p.stable(2)
    leader.enter()
    assert leader.is_parked()
    assert follower.heartbeat() == 27
    follower.enter()
    assert leader.joined().generation_id == follower.joined().generation_id == 3


@check()
def a_follower_with_other_metadata_makes_the_group_rebalance(p: Probe) -> None:
    leader, follower = p.stable(2)
    follower.protocols = [(name, data + b"more") for name, data in PROTOCOLS]
    follower.enter()
    p.rejoin([leader])
    assert leader.joined().generation_id == follower.joined().generation_id == 3


@check()
def a_member_that_joins_again_before_the_assignment_is_answered_at_once(p: Probe) -> None:
    leader, follower = p.completing(2)
    assert follower.join().generation_id == 3
    told = leader.join()
    assert (told.generation_id, len(told.members)) == (3, 2)


@check()
def a_member_with_other_metadata_starts_over_before_the_assignment(p: Probe) -> None:
    leader, follower = p.completing(2)
    follower.protocols = [(name, data + b"more") for name, data in PROTOCOLS]
    follower.enter()
    p.until(lambda: leader.sync_error() == 27, "the rebalance is announced")
    leader.enter()
    assert leader.joined().generation_id == follower.joined().generation_id == 4


@check()
def a_newcomer_before_the_assignment_ends_the_waiting_syncs(p: Probe) -> None:
    leader, follower = p.completing(2)
    follower.sync_later()
    assert follower.is_parked()
    newcomer = p.member()
    newcomer.enter()
    assert follower.synced().error_code == 27
    p.rejoin([leader, follower])
    assert {each.joined().generation_id for each in (leader, follower, newcomer)} == {4}


@check(is_slow=True)
def a_member_that_does_not_rejoin_is_dropped(p: Probe) -> None:
    leader, follower = p.stable(2, session_ms=3_000, rebalance_ms=1_000)
    newcomer = p.member(session_ms=3_000, rebalance_ms=1_000)
    newcomer.enter()
    p.rejoin([leader])
    assert leader.joined().generation_id == newcomer.joined().generation_id == 3
    assert {each.member_id for each in leader.last.members} == {leader.member_id, newcomer.member_id}
    assert follower.heartbeat() == p.since("2.7", 25, p.since("0.10", 25, 27))


@check(is_slow=True)
def a_leader_that_does_not_rejoin_is_replaced_by_one_that_did(p: Probe) -> None:
    _, follower = p.stable(2, session_ms=3_000, rebalance_ms=1_000)
    newcomer = p.member(session_ms=3_000, rebalance_ms=1_000)
    newcomer.enter()
    p.rejoin([follower])
    told = follower.joined()
    assert newcomer.joined().leader == told.leader
    assert told.leader in (follower.member_id, newcomer.member_id)


@check(since="0.10.1", is_slow=True)
def the_rebalance_time_out_and_not_the_session_ends_a_join(p: Probe) -> None:
    members = p.stable(2, session_ms=8_000, rebalance_ms=700)
    began_ms = SYSTEM_CLOCK.now_ms()
    members[0].enter()
    members[0].joined()
    assert 600 <= SYSTEM_CLOCK.now_ms() - began_ms < 6_000


@check(is_slow=True)
def a_member_that_waits_for_the_join_needs_no_heartbeat(p: Probe) -> None:
    [lasting] = members = p.stable()
    waiting = p.member(session_ms=SHORT_SESSION_MS)
    p.grow(members, waiting)
    waiting.protocols = [(name, data + b"more") for name, data in PROTOCOLS]
    waiting.enter()
    p.pass_time(5_000)
    p.rejoin([lasting])
    assert waiting.joined().generation_id == lasting.joined().generation_id == 3


@check(since="0.11", is_slow=True)
def heartbeats_keep_a_session_during_the_join_too(p: Probe) -> None:
    [waiting] = members = p.stable()
    late = p.member(session_ms=SHORT_SESSION_MS)
    p.grow(members, late)
    waiting.enter()
    p.until(lambda: late.heartbeat() == 27, "the rebalance is announced")
    p.pass_time(5_000, lambda: late.heartbeat() == 27)
    late.enter()
    assert waiting.joined().generation_id == late.joined().generation_id == 3


@check(until="0.10", is_slow=True)
def heartbeats_did_not_keep_a_session_during_the_join(p: Probe) -> None:
    [waiting] = members = p.stable()
    late = p.member(session_ms=SHORT_SESSION_MS)
    p.grow(members, late)
    waiting.enter()
    p.until(lambda: late.heartbeat() == 27, "the rebalance is announced")
    p.pass_time(400, lambda: late.heartbeat() == 27)
    assert [each.member_id for each in waiting.joined().members] == [waiting.member_id]


@check(since="0.11")
def members_that_come_within_the_first_delay_start_together(p: Probe) -> None:
    first, second = p.member(), p.member()
    first.enter()
    second.enter()
    assert first.joined().generation_id == second.joined().generation_id == 1


@check(since="0.11")
def a_new_group_waits_for_the_first_delay(p: Probe) -> None:
    member = p.member()
    began_ms = SYSTEM_CLOCK.now_ms()
    member.join()
    assert SYSTEM_CLOCK.now_ms() - began_ms >= INITIAL_DELAY_MS - 1


@check(until="0.11")
def a_new_group_did_not_wait(p: Probe) -> None:
    first, second = p.member(), p.member()
    assert first.join().generation_id == 1
    second.enter()
    assert second.is_parked()


@check(since="2.2")
def a_rebalance_waits_for_whoever_was_given_an_id(p: Probe) -> None:
    leader, _ = first, second = p.stable(2)
    pending = p.member()
    pending.ask_id()
    first.enter()
    second.enter() if second.heartbeat() == 27 else p.rejoin([second])
    assert first.is_parked()
    pending.send_join()
    assert {each.joined().generation_id for each in (first, second, pending)} == {3}
    assert first.last.leader == leader.member_id


@check(since="2.2")
def a_rebalance_no_longer_waits_when_the_given_id_leaves(p: Probe) -> None:
    [member] = p.stable()
    pending = p.member()
    pending.ask_id()
    member.enter()
    assert member.is_parked()
    assert pending.leave() == 0
    assert member.joined().generation_id == 2


@check(since="2.2", is_slow=True)
def a_rebalance_waits_no_longer_than_the_session_of_a_given_id(p: Probe) -> None:
    [member] = p.stable()
    p.member(session_ms=SHORT_SESSION_MS).ask_id()
    member.enter()
    assert member.is_parked()
    assert member.joined().generation_id == 2


@check(is_slow=True)
def a_member_that_died_while_it_waited_for_the_join_is_found_out(p: Probe) -> None:
    leader, follower = p.stable(2, session_ms=1_500, rebalance_ms=1_500)
    newcomer = p.member(session_ms=1_500, rebalance_ms=1_500)
    newcomer.enter()
    follower.enter() if follower.heartbeat() == 27 else p.rejoin([follower])
    assert follower.is_parked()
    follower.disconnect()
    p.rejoin([leader])
    leader.joined()
    newcomer.joined()
    given = {leader.member_id: b"1", newcomer.member_id: b"2"}
    leader.sync_later(given)
    newcomer.sync_later()
    assert leader.synced().error_code == newcomer.synced().error_code == 0
    # It was answered, into a closed connection, and counts as a member until its session is over.
    p.until(lambda: {newcomer.heartbeat(), leader.heartbeat()} == {27}, "the dead one is found out")


@check(since="0.10.2")
def the_generation_goes_on_after_the_group_was_empty(p: Probe) -> None:
    [member] = p.stable()
    assert member.leave() == 0
    assert p.member().join().generation_id == 3


@check(until="0.10")
def the_generation_started_again_after_the_group_was_empty(p: Probe) -> None:
    [member] = p.stable()
    assert member.leave() == 0
    assert p.member().join().generation_id == 1
