"""Being heard of: heartbeats, sessions, and leaving."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.coordinator.behaviour import behaviour_of
from bridge.coordinator.events import GroupTimerFired
from tests.coordinator.server_harness import DELAY_MS, REBALANCE_MS, SESSION_MS, Member, Table
from zkconsumer.wire.schemas.leave_group import LeavingMember


def test_a_heartbeat_of_an_unknown_group_is_refused() -> None:
    assert Table().heartbeat(Member("m", 1, "")) == 25


def test_a_heartbeat_in_an_empty_group_is_refused() -> None:
    table = Table()
    (member,) = table.stable()
    table.leave_one(member.member_id)
    assert table.state() == "Empty"
    assert table.heartbeat(replace(member, generation_id=2)) == 25


def test_a_heartbeat_of_an_unknown_member_is_refused() -> None:
    table = Table()
    table.stable()
    assert table.heartbeat(Member("m", 1, "")) == 25


def test_a_heartbeat_of_another_generation_is_refused() -> None:
    table = Table()
    (member,) = table.stable()
    assert table.heartbeat(replace(member, generation_id=2)) == 22
    assert table.heartbeat(replace(member, generation_id=0)) == 22


def test_a_heartbeat_of_a_stable_group_is_well() -> None:
    table = Table()
    (member,) = table.stable()
    assert table.heartbeat(member) == 0


def test_a_heartbeat_of_a_member_that_waits_for_its_part_is_well() -> None:
    table = Table()
    (member,) = table.rebalanced()
    assert table.state() == "CompletingRebalance"
    assert table.heartbeat(member) == 0


def test_a_heartbeat_during_a_rebalance_asks_the_member_to_join() -> None:
    table = Table()
    leader, _ = table.stable(2)
    table.join()
    assert table.state() == "PreparingRebalance"
    assert table.heartbeat(leader) == 27


def test_a_heartbeat_during_a_rebalance_keeps_the_session() -> None:
    table = Table()
    (member,) = table.stable(rebalance_ms=5_000)
    table.join(rebalance_ms=5_000)
    for _ in range(5):
        table.move(SESSION_MS - 1)
        assert table.heartbeat(member) == 27
    assert table.group().has(member.member_id)


def test_a_member_that_is_not_heard_of_is_dropped() -> None:
    table = Table()
    (member,) = table.stable()
    table.move(SESSION_MS)
    assert table.state() == "Empty"
    assert table.heartbeat(member) == 25


def test_heartbeats_keep_a_session() -> None:
    table = Table()
    (member,) = table.stable()
    for _ in range(4):
        table.move(SESSION_MS // 2)
        assert table.heartbeat(member) == 0
    assert table.state() == "Stable"


def test_heartbeats_of_one_session_cost_one_timer() -> None:
    table = Table()
    (member,) = table.stable()
    timers = len(table._heap)
    for _ in range(20):
        table.move(10)
        table.heartbeat(member)
    assert len(table._heap) == timers


def test_commits_keep_a_session() -> None:
    table = Table()
    (member,) = table.stable()
    for offset in range(4):
        table.move(SESSION_MS // 2)
        assert table.commit({("t", 0): offset}, member) == [0]
    assert table.state() == "Stable"


def test_a_member_that_waits_for_a_rebalance_is_not_dropped_for_its_session() -> None:
    table = Table()
    leader, other = table.stable(2, session_ms=100, rebalance_ms=5_000)
    again = table.join(member_id=leader.member_id, session_ms=100, rebalance_ms=5_000)
    table.move(99)
    assert table.heartbeat(other) == 27
    table.move(99)
    assert table.heartbeat(other) == 27
    assert table.group().has(leader.member_id)
    assert not table.is_answered(again)


def test_a_member_that_does_not_join_again_is_dropped_by_its_session_and_the_rest_goes_on() -> None:
    table = Table()
    leader, _ = table.stable(2, rebalance_ms=5_000)
    again = table.join(member_id=leader.member_id, rebalance_ms=5_000)
    table.move(SESSION_MS)
    assert table.joined(again).generation_id == 2
    assert table.group().size == 1


def test_a_member_that_heartbeats_but_does_not_join_is_dropped_when_the_rebalance_is_over() -> None:
    table = Table()
    leader, other = table.stable(2, rebalance_ms=1_000)
    again = table.join(member_id=leader.member_id, rebalance_ms=1_000)
    for _ in range(4):
        table.move(240)
        assert table.heartbeat(other) == 27
    table.move(40)
    assert table.joined(again).generation_id == 2
    assert table.heartbeat(other) == 25


def test_a_deadline_that_was_put_off_or_belongs_to_nobody_is_passed_over() -> None:
    table = Table()
    (member,) = table.stable()
    key = ("heartbeat", "g", member.member_id)
    set_for = table.timers[key]
    table.move(1)
    table.heartbeat(member)
    table.happen(GroupTimerFired(key, set_for - 1))
    table.happen(GroupTimerFired(("heartbeat", "g", "nobody"), set_for))
    table.happen(GroupTimerFired(("join", "nothing"), set_for))
    assert table.state() == "Stable"


def test_the_deadline_of_a_group_that_was_deleted_is_passed_over() -> None:
    table = Table()
    table.join(version=4)
    ((key, deadline),) = [item for item in table.timers.items() if item[0][0] == "heartbeat"]
    assert table.delete("g") == {"g": 0}
    table.happen(GroupTimerFired(key, deadline))
    assert table.state() == "Dead"


def test_the_deadline_of_a_member_that_has_gone_is_passed_over() -> None:
    table = Table()
    leader, other = table.stable(2)
    deadline = table.timers["heartbeat", "g", other.member_id]
    table.leave_one(other.member_id)
    table.happen(GroupTimerFired(("heartbeat", "g", other.member_id), deadline))
    assert table.group().size == 1
    assert table.group().has(leader.member_id)


# --- leaving ---------------------------------------------------------------------------------------------------------


def test_nobody_leaves_an_unknown_group() -> None:
    assert Table().leave_one("m") == 25


def test_an_unknown_member_does_not_leave() -> None:
    table = Table()
    table.stable()
    assert table.leave_one("m") == 25


def test_a_member_leaves_and_is_not_known_any_more() -> None:
    table = Table()
    (member,) = table.stable()
    assert table.leave_one(member.member_id) == 0
    assert table.heartbeat(member) == 25
    assert ("heartbeat", "g", member.member_id) not in table.timers


def static(table: Table, *instances: str) -> list[Member]:
    """A stable group of these static members; the first leads."""
    tokens = [table.join(instance_id=instance) for instance in instances]
    table.move(DELAY_MS * (len(instances) + 1))
    members = [table.joined(token, instance) for token, instance in zip(tokens, instances, strict=True)]
    table.sync_all(members)
    return members


def test_a_static_member_leaves_by_its_ids_alone() -> None:
    table = Table()
    leader, _ = static(table, "a", "b")
    answer = table.leave(LeavingMember(member_id="m", group_instance_id="a"))
    assert [(row.group_instance_id, row.error_code) for row in answer.members] == [("a", 82)]
    answer = table.leave(LeavingMember(member_id=leader.member_id, group_instance_id="nobody"))
    assert [row.error_code for row in answer.members] == [25]
    assert table.group().size == 2


def test_a_static_member_leaves_by_its_instance_id_without_a_member_id() -> None:
    table = Table()
    static(table, "a", "b")
    answer = table.leave(LeavingMember(member_id="", group_instance_id="b"))
    assert [row.error_code for row in answer.members] == [0]
    assert list(table.group().static_members) == ["a"]


def test_several_static_members_leave_at_once() -> None:
    table = Table()
    static(table, "a", "b")
    leaving = [LeavingMember(member_id="", group_instance_id=instance) for instance in ("a", "b")]
    answer = table.leave(*leaving)
    assert (answer.error_code, [row.error_code for row in answer.members]) == (0, [0, 0])
    assert table.state() in ("PreparingRebalance", "Empty")
    table.move(REBALANCE_MS)
    assert table.state() == "Empty"


def test_static_members_of_an_unknown_group_are_refused_one_by_one() -> None:
    leaving = [LeavingMember(member_id="", group_instance_id=instance) for instance in ("a", "b")]
    answer = Table().leave(*leaving)
    assert (answer.error_code, [row.error_code for row in answer.members]) == (0, [25, 25])


def test_a_fenced_member_among_those_that_leave_stops_no_other() -> None:
    table = Table()
    static(table, "a", "b")
    leaving = [
        LeavingMember(member_id="wrong", group_instance_id="a"),
        LeavingMember(member_id="", group_instance_id="b"),
    ]
    answer = table.leave(*leaving)
    assert [row.error_code for row in answer.members] == [82, 0]


def test_an_unknown_instance_among_those_that_leave_stops_no_other() -> None:
    table = Table()
    static(table, "a", "b")
    leaving = [
        LeavingMember(member_id="", group_instance_id="nobody"),
        LeavingMember(member_id="", group_instance_id="b"),
    ]
    answer = table.leave(*leaving)
    assert [row.error_code for row in answer.members] == [25, 0]


@pytest.mark.parametrize(("version", "top", "rows"), [(0, 25, 0), (2, 25, 0), (3, 0, 1), (5, 0, 1)])
def test_the_error_of_one_member_is_that_of_the_whole_answer_in_old_versions(version: int, top: int, rows: int) -> None:
    table = Table()
    table.stable()
    answer = table.leave(LeavingMember(member_id="m"), version=version)
    assert (answer.error_code, len(answer.members)) == (top, rows)


def test_a_group_that_was_refilled_goes_on_counting_its_generations() -> None:
    table = Table(behaviour_of("3.6.0"))
    (member,) = table.stable()
    table.leave_one(member.member_id)
    token = table.join()
    table.move(2 * DELAY_MS)
    assert table.joined(token).generation_id == 3
